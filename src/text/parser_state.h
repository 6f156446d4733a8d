/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a parser (echelon/parser.h): its state, and what the files of the formats may do with
 * it. Text goes through four stages, each of which holds back as little as it can:
 *
 *     parser.c          bytes -> whole characters; ids -> markers; events
 *     parser_marker.c   characters -> text and markers
 *     parser_flow.c     text and markers -> content, reasoning, calls     (and parser_FORMAT.c)
 *     parser_flow.c     content -> stop strings -> events
 *
 * From the second stage on everything is a byte or a marker at a time, so the events can't depend
 * on how the text was cut. A failed allocation is kept in `rc` and reported by the public call.
 */
#ifndef ECH_TEXT_PARSER_STATE_H
#define ECH_TEXT_PARSER_STATE_H

#include "echelon/parser.h"
#include "src/base/buf.h"
#include "src/text/json_scan.h"
#include "src/text/stop.h"

/* X(NAME, "text") */
#define ECH_MARKER_MAP(X)                                                                          \
    X(THINK, "<think>")                                                                            \
    X(THINK_END, "</think>")                                                                       \
    X(MISTRAL_THINK, "[THINK]")                                                                    \
    X(MISTRAL_THINK_END, "[/THINK]")                                                               \
    X(CALL, "<tool_call>")                                                                         \
    X(CALL_END, "</tool_call>")                                                                    \
    X(FUNCTION, "<function=")                                                                      \
    X(FUNCTION_END, "</function>")                                                                 \
    X(PARAM, "<parameter=")                                                                        \
    X(PARAM_END, "</parameter>")                                                                   \
    X(PYTHON, "<|python_tag|>")                                                                    \
    X(TOOL_CALLS, "[TOOL_CALLS]")                                                                  \
    X(CALL_ID, "[CALL_ID]")                                                                        \
    X(ARGS, "[ARGS]")                                                                              \
    X(DS_CALLS, "<｜tool▁calls▁begin｜>")                                                          \
    X(DS_CALLS_END, "<｜tool▁calls▁end｜>")                                                        \
    X(DS_CALL, "<｜tool▁call▁begin｜>")                                                            \
    X(DS_CALL_END, "<｜tool▁call▁end｜>")                                                          \
    X(DS_SEP, "<｜tool▁sep｜>")                                                                    \
    X(H_START, "<|start|>")                                                                        \
    X(H_CHANNEL, "<|channel|>")                                                                    \
    X(H_CONSTRAIN, "<|constrain|>")                                                                \
    X(H_MESSAGE, "<|message|>")                                                                    \
    X(H_END, "<|end|>")                                                                            \
    X(H_CALL, "<|call|>")                                                                          \
    X(H_RETURN, "<|return|>")

typedef enum ech_marker {
#define X(name, text) ECH_MARK_##name,
    ECH_MARKER_MAP(X)
#undef X
        ECH_MARK_COUNT,
} ech_marker;

typedef uint32_t ech_marker_set; /* a bit per marker */
_Static_assert(ECH_MARK_COUNT <= 32, "a bit per marker");

#define ECH_MARK_BIT(name) ((ech_marker_set)1 << ECH_MARK_##name)

/* Where a text is. Up to REASONING every format has them; the rest is in calls. */
typedef enum ech_flow {
    ECH_FLOW_CONTENT,
    ECH_FLOW_REASONING,
    ECH_FLOW_OPEN,  /* behind the marker that begins a call */
    ECH_FLOW_JSON,  /* in an object {"name": …, "arguments": …} */
    ECH_FLOW_ARGS,  /* in an object that is the arguments; the name is known */
    ECH_FLOW_AFTER, /* behind a call */
    ECH_FLOW_NAME,  /* a name that ends as the format says */
    ECH_FLOW_ID,    /* Mistral: the model's own id of a call */
    ECH_FLOW_ITEM,  /* Mistral: before an element of an array */
    ECH_FLOW_BODY,  /* Qwen3-Coder: between parameters */
    ECH_FLOW_KEY,   /* Qwen3-Coder: a parameter's name */
    ECH_FLOW_VALUE, /* Qwen3-Coder: its value */
    ECH_FLOW_HEAD,  /* DeepSeek: before the separator. Harmony: a message's header */
    ECH_FLOW_FENCE, /* DeepSeek: between name and arguments */
} ech_flow;

typedef struct ech_tools_ops {
    ech_marker_set begin; /* markers that begin a call, in content and in reasoning */
    /* Markers that mean something where the text is now, in a flow from OPEN on. */
    ech_marker_set (*live)(const ech_parser *p);
    /* A byte in such a flow. */
    void (*text)(ech_parser *p, char c);
    /* A live marker, one of `begin` in content or reasoning included. */
    void (*marker)(ech_parser *p, ech_marker m);
} ech_tools_ops;

/* The object of a call as it is read: which field the text is in. */
typedef enum ech_call_field {
    ECH_FIELD_OTHER,
    ECH_FIELD_NAME,
    ECH_FIELD_ID,
    ECH_FIELD_ARGS,
} ech_call_field;

typedef struct ech_call_json {
    ech_json_scan scan;
    ech_call_field field;
    bool in_value;
    bool is_number; /* of the value */
    bool is_object;
    bool has_name;
    bool has_args;
    ech_buf key;
    ech_buf value; /* a string's characters, quotes included; or arguments before the name */
} ech_call_json;

/* A value of Qwen3-Coder. */
typedef struct ech_call_param {
    ech_param_type type;
    bool is_streamed; /* a string for certain, its quote is out */
    bool has_break;   /* a line break that goes if the value ends now */
    bool is_first;    /* nothing came yet: a line break goes */
    uint32_t n;       /* of the call, before this one */
    ech_buf key;
    ech_buf value;
} ech_call_param;

struct ech_parser {
    ech_reasoning_format reasoning;
    ech_tools_format tools;
    const ech_tools_ops *ops; /* NULL: no tools */
    bool is_harmony;
    bool include_stop;
    ech_param_type (*param_type)(void *ctx, const char *tool, const char *param);
    void *param_ctx;
    char **tool_names; /* [n_tools] */
    size_t n_tools;
    int32_t ids[ECH_MARK_COUNT]; /* of markers that are one token; -1 */
    ech_marker_set by_text;      /* the others */

    ech_status rc;
    bool stopped;
    bool finished;

    /* characters and markers */
    char partial[4]; /* the beginning of a character */
    size_t n_partial;
    ech_buf mark; /* the beginning of a live marker */

    /* flow */
    ech_flow flow;
    ech_flow origin;   /* CONTENT or REASONING: where the call began */
    bool may_reason;   /* reasoning may still begin */
    bool is_cut;       /* a call ended reasoning: its end marker may still come */
    bool has_content;  /* something but white space came */
    bool skips_breaks; /* behind a marker: line breaks go */
    ech_buf blank;     /* white space whose fate a marker may decide */
    ech_buf raw;       /* all of a call that hasn't been announced yet */
    bool is_started;   /* the call has been announced */
    bool is_list;      /* Mistral: calls in an array */
    uint32_t n_calls;  /* announced */
    uint32_t n_complete;
    ech_buf name;
    ech_buf call_id;
    ech_call_json json;
    ech_call_param param;

    /* stop strings and events */
    ech_stop stop;
    ech_buf content; /* what the stop strings hold */
    ech_buf text;    /* of the events */
    ech_parser_event *events;
    size_t n_events;
    size_t events_cap;
    ech_parser_event nowhere; /* written instead when there is no memory */

    /* tokens: where each ends, in characters and markers that came; [ends_head ..) are held */
    uint64_t pushed;
    ech_buf ends; /* uint64_t each */
    size_t ends_head;
    size_t n_reasoning;
};

/* ---- parser_marker.c ----------------------------------------------------------------------- */

const char *ech_marker_text(ech_marker m);
/* Looks markers up as options say; -1 for those that match by text. */
void ech_marker_find_ids(ech_parser *p, const ech_parser_options *o);
/* The marker of an id, or COUNT. */
ech_marker ech_marker_of(const ech_parser *p, int32_t id);
/* One byte of text, on to the flow once it can't be part of a marker. */
void ech_marker_push(ech_parser *p, char c);
/* A marker that came as one token; text where it means nothing. */
void ech_marker_push_id(ech_parser *p, ech_marker m);
/* The text is interrupted or over: what is held is text. */
void ech_marker_flush(ech_parser *p);

/* ---- parser_flow.c ------------------------------------------------------------------------- */

/* Markers that mean something now, by text or id. */
ech_marker_set ech_flow_live(const ech_parser *p);
void ech_flow_text(ech_parser *p, char c);
void ech_flow_marker(ech_parser *p, ech_marker m);
void ech_flow_finish(ech_parser *p);

/* Appends, keeping a failure in p->rc. */
void ech_flow_keep(ech_parser *p, ech_buf *b, const void *ptr, size_t len);
/* A call may begin here: keeps `text` to give it back. The flow becomes OPEN. */
void ech_flow_open(ech_parser *p, const char *text);
/* One more byte of a call that hasn't been announced; false when it got too long. */
bool ech_flow_raw(ech_parser *p, char c);
/* It is no call, or not any more: gives back what wasn't used; c, if not 0, is text too. */
void ech_flow_fail(ech_parser *p, char c);
/* The same with a marker. */
void ech_flow_fail_marker(ech_parser *p, ech_marker m);
/* Announces a call by p->name and p->call_id, gives its arguments, ends it. */
void ech_flow_start(ech_parser *p);
void ech_flow_args(ech_parser *p, const char *ptr, size_t len);
void ech_flow_end(ech_parser *p, bool complete);
/* Text behind a call: white space is kept until it is known what follows. */
void ech_flow_after(ech_parser *p, char c);
/* Text into content or reasoning, past the markers. */
void ech_flow_plain(ech_parser *p, char c);

/* ---- parser_call.c ------------------------------------------------------------------------- */

/* The flow becomes JSON or ARGS; what has been read of the value comes with the next byte. */
void ech_call_begin_json(ech_parser *p);
void ech_call_begin_args(ech_parser *p);
/* A byte in the flow JSON or ARGS. When the object is over the call has ended: AFTER. */
void ech_call_json_text(ech_parser *p, char c);
void ech_call_args_text(ech_parser *p, char c);
/* In a string, where a marker is only text. */
bool ech_call_in_string(const ech_parser *p);
/* JSON string content [len], without its quotes, as text. */
void ech_call_unescape(ech_parser *p, ech_buf *to, const char *ptr, size_t len);
/* One byte of text as JSON string content. */
void ech_call_escape(ech_parser *p, ech_buf *to, char c);

/* ---- the formats --------------------------------------------------------------------------- */

extern const ech_tools_ops ech_tools_hermes;
extern const ech_tools_ops ech_tools_qwen3_coder;
extern const ech_tools_ops ech_tools_llama3;
extern const ech_tools_ops ech_tools_mistral;
extern const ech_tools_ops ech_tools_deepseek;
extern const ech_tools_ops ech_tools_harmony;
/* Whether a bare '{' at the beginning of content may begin a call; parser_llama3.c. */
bool ech_llama3_begins(const ech_parser *p, char c);
/* Whether the request has a tool of this name; true where it named none. */
bool ech_parser_has_tool(const ech_parser *p, const char *name, size_t len);

#endif
