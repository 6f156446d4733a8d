/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/parser.h - from a model's tokens to an answer: text, reasoning, tool calls.
 *
 * A parser is one incremental machine per choice. It takes (id, bytes) pairs as they are sampled
 * and gives events. It owns all hold-back: nothing that it gave is ever taken back, and what it
 * holds is only what may still become part of a marker, a stop string or an unfinished character.
 *
 *     bytes -> whole UTF-8 characters -> reasoning and tool markers -> stop strings -> events
 *
 *     ech_parser_options o = ech_parser_options_default();
 *     o.reasoning = ECH_REASONING_THINK;
 *     o.tools = ECH_TOOLS_HERMES;
 *     ech_parser_create(&p, &o, &err);
 *     for every token
 *         ech_parser_feed(p, id, bytes, len, &err);
 *         for (e = ech_parser_events(p, &n); n-- > 0; e++) …
 *         if (ech_parser_stopped(p)) break;
 *     ech_parser_finish(p, &err);           what is held comes out
 *     for (e = ech_parser_events(p, &n); …
 *
 * The events depend on the tokens alone, not on how they come: joined deltas of a text fed token by
 * token, byte by byte or whole are the same, apart from markers that are one added token.
 *
 * **Markers.** A marker that is one added token of the vocabulary (options.marker_id knows it)
 * matches by that id only; the same bytes out of other tokens are text. Other markers match by
 * their text, however tokens cut it. A marker takes the line breaks around it with it.
 *
 * **Malformed is text.** What begins like a tool call and isn't one comes out as the text that it
 * was, markers included. A call is announced (TOOL_START) once its name is complete and its
 * arguments have begun; if it breaks after that, its TOOL_END says `complete = false`, and what
 * follows is text. Nothing is lost, nothing is invented.
 *
 * **Stop strings** act on content: not in reasoning, not in tool calls. Without reasoning and tools
 * (text completions) everything is content. The first stop string to be complete wins; of those
 * that end together, the longest.
 *
 * **Characters.** Events hold whole characters. Bytes that are no UTF-8 become U+FFFD, as Python's
 * bytes.decode(errors="replace") does.
 *
 * Threads: a parser belongs to one thread at a time. Nothing here blocks. Memory: what is held, and
 * the events of the last call; a call that doesn't get to its arguments within 1 MiB is text.
 */
#ifndef ECHELON_PARSER_H
#define ECHELON_PARSER_H

#include "echelon/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Stop strings a parser takes at most, and bytes of one. */
#define ECH_PARSER_MAX_STOPS      64
#define ECH_PARSER_MAX_STOP_BYTES 4096

/** How a model writes its reasoning. */
typedef enum ech_reasoning_format {
    ECH_REASONING_NONE,    /* it doesn't, or it is content */
    ECH_REASONING_THINK,   /* <think> … </think>: Qwen3, QwQ, DeepSeek-R1 and most others */
    ECH_REASONING_MISTRAL, /* [THINK] … [/THINK]: Ministral, Magistral */
    ECH_REASONING_HARMONY, /* channels: gpt-oss; beside it only ECH_TOOLS_HARMONY or NONE count */
    ECH_REASONING_COUNT
} ech_reasoning_format;

/** How a model writes tool calls. */
typedef enum ech_tools_format {
    ECH_TOOLS_NONE,   /* it doesn't, or calls are content */
    ECH_TOOLS_HERMES, /* <tool_call>{"name": …, "arguments": …}</tool_call>: Qwen2.5, Qwen3 */
    ECH_TOOLS_QWEN3_CODER, /* <tool_call><function=NAME><parameter=KEY>VALUE</parameter>… */
    ECH_TOOLS_LLAMA3_JSON, /* {"name": …, "parameters": …} as the whole answer: Llama 3.1 to 3.3 */
    ECH_TOOLS_MISTRAL,     /* [TOOL_CALLS][{…}, …], and [TOOL_CALLS]NAME[ARGS]{…} */
    ECH_TOOLS_DEEPSEEK,    /* <｜tool▁calls▁begin｜>…: V3, R1 and V3.1 */
    ECH_TOOLS_HARMONY,     /* <|channel|>commentary to=functions.NAME<|message|>{…}<|call|> */
    ECH_TOOLS_COUNT
} ech_tools_format;

/** "none", "think", "mistral", "harmony"; "" for a value that is none. Static. */
ECH_API const char *ech_reasoning_format_name(ech_reasoning_format format);
/** "none", "hermes", "qwen3_coder", "llama3_json", "mistral", "deepseek", "harmony". Static. */
ECH_API const char *ech_tools_format_name(ech_tools_format format);
/** By such a name; other servers' names are known too (qwen3, deepseek_r1, openai, …). */
ECH_API bool ech_reasoning_format_find(const char *name, ech_reasoning_format *ret_format);
ECH_API bool ech_tools_format_find(const char *name, ech_tools_format *ret_format);

/**
 * Both formats as the text of the model's chat template shows them. Templates of formats that
 * aren't known give NONE. text: [len], any bytes.
 */
ECH_API void ech_parser_pick(const char *text, size_t len, ech_reasoning_format *ret_reasoning,
                             ech_tools_format *ret_tools);

/** Where an answer begins, as the end of the rendered prompt leaves it. */
typedef enum ech_parser_start {
    ECH_START_NONE,   /* nothing said: reasoning may begin with its marker, before any content */
    ECH_START_OPEN,   /* the prompt ends inside reasoning: its end marker is awaited */
    ECH_START_CLOSED, /* the prompt ends with closed reasoning: what comes is content */
} ech_parser_start;

/** Reads the start from the prompt's last characters. prompt: [len] bytes. */
ECH_API ech_parser_start ech_parser_start_of(ech_reasoning_format format, const char *prompt,
                                             size_t len);

/** What the schema of a tool says of a parameter's value. */
typedef enum ech_param_type {
    ECH_PARAM_UNKNOWN, /* JSON if it parses as a value that is no string, else a string */
    ECH_PARAM_STRING,  /* a string, whatever it looks like */
    ECH_PARAM_JSON,    /* number, boolean, null, array or object; a string where it doesn't parse */
} ech_param_type;

typedef struct ech_parser_options {
    size_t struct_size; /* sizeof(ech_parser_options), set by _default() */
    ech_reasoning_format reasoning;
    ech_tools_format tools; /* NONE too when the request offers no tools or forbids them */
    ech_parser_start start;

    /*
     * The id of the added token whose text is exactly [len] bytes at text; -1 when there is none.
     * NULL: all markers match by their text (history, formats whose markers are no tokens).
     * Called by create only.
     */
    int32_t (*marker_id)(void *ctx, const char *text, size_t len);
    void *marker_ctx;

    /*
     * Names of the request's tools, [n_tools] zero-terminated, or NULL: any name. Only where a call
     * has no marker (LLAMA3_JSON) does an unknown name make it text.
     */
    const char *const *tool_names;
    size_t n_tools;
    /* For QWEN3_CODER, whose values have no type of their own. NULL: UNKNOWN. */
    ech_param_type (*param_type)(void *ctx, const char *tool, const char *param);
    void *param_ctx;

    const char *const *stops; /* [n_stops] zero-terminated, valid UTF-8, not empty */
    size_t n_stops;
    bool include_stop; /* the stop string is part of the content */
} ech_parser_options;

/** No reasoning, no tools, no stops: everything is content. */
ECH_API ech_parser_options ech_parser_options_default(void);

typedef struct ech_parser ech_parser; /* opaque */

typedef enum ech_parser_event_kind {
    ECH_PARSER_TEXT,       /* text: more content */
    ECH_PARSER_REASONING,  /* text: more reasoning */
    ECH_PARSER_TOOL_START, /* call `index` begins; text: its name */
    ECH_PARSER_TOOL_ARGS,  /* text: more of call `index`'s arguments, JSON */
    ECH_PARSER_TOOL_END,   /* call `index` is over; `complete`: its arguments are valid JSON */
    ECH_PARSER_STOP,       /* stop string `index` came; nothing follows */
} ech_parser_event_kind;

typedef struct ech_parser_event {
    ech_parser_event_kind kind;
    uint32_t index;   /* of the call, from 0 and without gaps; of the stop string */
    bool complete;    /* TOOL_END */
    const char *text; /* [text_len], whole characters; not zero-terminated */
    size_t text_len;
    const char *call_id; /* TOOL_START: [call_id_len], the model's own id for the call, or empty */
    size_t call_id_len;
} ech_parser_event;

/**
 * Makes a parser. Everything in options is copied, but for the contexts of param_type, which must
 * live as long as the parser.
 * Errors: EINVAL for an empty stop string or one that isn't UTF-8, ELIMIT for too many or too long
 * ones, naming it; ENOMEM.
 * Ownership: *ret_parser is the caller's, to be given to ech_parser_destroy().
 */
ECH_API ech_status ech_parser_create(ech_parser **ret_parser, const ech_parser_options *options,
                                     ech_error *err);
/** Frees it; NULL and a pointer to NULL are fine. */
ECH_API void ech_parser_destroy(ech_parser **parser);

/**
 * Takes one token: its id (-1: none, only text) and the bytes that it adds to the text, which may
 * be none or part of a character. After a stop, does nothing. Replaces the events of the last call.
 * Errors: ENOMEM; the parser can then only be destroyed.
 */
ECH_API ech_status ech_parser_feed(ech_parser *parser, int32_t id, const char *bytes, size_t len,
                                   ech_error *err);
/**
 * The end of the answer, for whatever reason: all that is held comes out, a call that isn't done
 * ends incomplete. Once; later feeds do nothing.
 */
ECH_API ech_status ech_parser_finish(ech_parser *parser, ech_error *err);

/** Events of the last feed or finish, in order, [*ret_n]; valid until the next. May be NULL for 0.
 */
ECH_API const ech_parser_event *ech_parser_events(const ech_parser *parser, size_t *ret_n);

/** Whether a stop string came. */
ECH_API bool ech_parser_stopped(const ech_parser *parser);
/**
 * How many of the last tokens have text that is held, or characters that aren't whole: the others'
 * text has been given or used up, so what goes with them (log-probabilities) can go out.
 */
ECH_API size_t ech_parser_held_tokens(const ech_parser *parser);
/** Calls that ended complete. An answer with none didn't finish for tool calls. */
ECH_API uint32_t ech_parser_complete_calls(const ech_parser *parser);

/* ---- thinking budget, and constraints that start at a marker ------------------------------- */

/** Where the next token's text will go, as far as it is known now. */
typedef enum ech_parser_place {
    ECH_PLACE_CONTENT,
    ECH_PLACE_REASONING,
    ECH_PLACE_TOOL, /* from a call's marker to its end */
} ech_parser_place;

ECH_API ech_parser_place ech_parser_place_of(const ech_parser *parser);
/** Tokens that were fed while the place was REASONING, markers not counted. */
ECH_API size_t ech_parser_reasoning_tokens(const ech_parser *parser);
/**
 * The text that ends reasoning in this format, "</think>"; "" where there is none. What a thinking
 * budget makes the model write when it is used up; its id is marker_id's, where it is one token.
 */
ECH_API const char *ech_reasoning_end(ech_reasoning_format format);
/** The text that opens reasoning, "<think>". */
ECH_API const char *ech_reasoning_begin(ech_reasoning_format format);

/**
 * The pieces from which a call to a tool is put together, so that a constraint can demand it:
 *
 *     before NAME between ARGUMENTS after     once
 *     next   NAME between ARGUMENTS after     for every further call
 *     last                                    behind all of them
 *
 * json_arguments is false where arguments are no JSON (QWEN3_CODER). All static. EUNSUPPORTED for
 * ECH_TOOLS_NONE.
 */
typedef struct ech_call_syntax {
    const char *before;
    const char *next;
    const char *between;
    const char *after;
    const char *last;
    bool json_arguments;
} ech_call_syntax;

ECH_API ech_status ech_tools_call_syntax(ech_tools_format format, ech_call_syntax *ret_syntax);

#ifdef __cplusplus
}
#endif

#endif
