/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/constraint.h - constrained decoding: from a JSON schema, a regular expression, a list of
 * choices or a GBNF grammar to the mask of tokens that may come next.
 *
 * Three objects:
 *
 *   ech_mask_vocab             what every token id stands for in bytes, as tries; made once a
 * tokenizer ech_constraint        a compiled constraint: immutable, reference counted, shared by
 * requests ech_constraint_state  where one sequence is in its constraint; belongs to that sequence
 *
 *     ech_constraint_spec spec = ech_constraint_spec_default();
 *     spec.content_kind = ECH_CONSTRAINT_JSON_SCHEMA;
 *     spec.content = schema, spec.content_len = strlen(schema);
 *     ech_constraint_compile(&constraint, vocab, &spec, NULL, &err);
 *     ech_constraint_state_create(&state, constraint, -1, &err);
 *     while (!ech_constraint_state_is_complete(state)) {
 *         ech_constraint_state_mask(state, words, n_words, &err);
 *         id = sample(logits, words);
 *         ech_constraint_state_accept(state, id, &err);
 *     }
 *
 * What is enforced: every sequence of ids that the masks let through and that ends where
 * ech_constraint_state_can_end() is true spells a text that satisfies the constraint, and no
 * mask is ever empty: a text that was let through can always be finished. What a schema may hold,
 * the spelling rules and the bounds are in docs/structured-output.md. A constraint that cannot be
 * enforced is an error when it is compiled, never a weaker constraint.
 *
 * Threads: vocabularies and constraints may be used by any number of threads at once (a constraint
 * keeps a cache of masks behind a lock of its own). A state is used by one thread at a time; states
 * of one constraint are independent of each other. Nothing here starts threads, reads files or
 * looks at the clock.
 */
#ifndef ECHELON_CONSTRAINT_H
#define ECHELON_CONSTRAINT_H

#include "echelon/status.h"
#include "echelon/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ech_mask_vocab ech_mask_vocab;
typedef struct ech_constraint ech_constraint;
typedef struct ech_constraint_state ech_constraint_state;

/* ---- vocabulary ---------------------------------------------------------------------------- */

/* How a token takes part in constrained text. */
typedef enum ech_mask_token_kind {
    ECH_MASK_TOKEN_TEXT,    /* stands for its bytes */
    ECH_MASK_TOKEN_CONTROL, /* a marker: matches only where a marker's text is asked for, never
                          inside a string or a regular expression. For <think>, <tool_call>,
                          <|channel|>,
                          <|im_end|> …: all added tokens whose text steers a parser */
    ECH_MASK_TOKEN_UNUSED,  /* never allowed: padding ids, holes */
} ech_mask_token_kind;

typedef struct ech_mask_token {
    const char *bytes; /* the text the id decodes to in the middle of a text; not terminated */
    uint32_t len;      /* 0 makes the token unused */
    ech_mask_token_kind kind;
} ech_mask_token;

/** Largest number of ids of a vocabulary. */
#define ECH_MASK_VOCAB_MAX_IDS (1u << 22)

/**
 * Builds a vocabulary of n_tokens ids; tokens[i] is id i. The ids of eos end a sequence: a mask
 * allows them exactly where the constraint may end, whatever their bytes. Takes about 50 ms for
 * 150 000 ids. A token that holds the byte 0xFF, which no UTF-8 text has, is treated as unused.
 *
 * Fails with EINVAL (no tokens, an eos id outside the vocabulary), ELIMIT (more than
 * ECH_MASK_VOCAB_MAX_IDS ids, a token over 32 767 bytes) or ENOMEM.
 * Ownership: the arguments stay the caller's and may be freed at once. On success *ret_vocab holds
 * one reference that the caller must give back with ech_mask_vocab_unref().
 */
ECH_API ech_status ech_mask_vocab_create(const ech_mask_token *tokens, size_t n_tokens,
                                         const int32_t *eos, size_t n_eos,
                                         ech_mask_vocab **ret_vocab, ech_error *err);
/**
 * The vocabulary of a tokenizer. Control tokens are its special tokens, and those other added
 * tokens that look like a marker: <...> or [...]. Errors and ownership as above; the tokenizer may
 * be closed at once.
 */
ECH_API ech_status ech_mask_vocab_from_tokenizer(const ech_tokenizer *tokenizer, const int32_t *eos,
                                                 size_t n_eos, ech_mask_vocab **ret_vocab,
                                                 ech_error *err);
/** One more reference; returns its argument. */
ECH_API ech_mask_vocab *ech_mask_vocab_ref(ech_mask_vocab *vocab);
/** Gives a reference back, nulls the pointer; NULL and pointers to NULL are fine. */
ECH_API void ech_mask_vocab_unref(ech_mask_vocab **vocab);
/** Number of ids. */
ECH_API size_t ech_mask_vocab_size(const ech_mask_vocab *vocab);
/** Number of uint32_t words of a mask: (ids + 31) / 32. */
ECH_API size_t ech_mask_vocab_words(const ech_mask_vocab *vocab);

/* ---- what is asked for --------------------------------------------------------------------- */

/* The language of the text after reasoning and outside of tool calls. */
typedef enum ech_constraint_kind {
    ECH_CONSTRAINT_TEXT,        /* anything; only useful with reasoning or calls */
    ECH_CONSTRAINT_JSON_SCHEMA, /* content is a JSON schema (2020-12; draft 7 spellings accepted) */
    ECH_CONSTRAINT_JSON_OBJECT, /* any JSON object; content is not read */
    ECH_CONSTRAINT_REGEX,       /* content is a regular expression that the whole text matches */
    ECH_CONSTRAINT_CHOICE,      /* content is a JSON array of strings, one of which is the text */
    ECH_CONSTRAINT_GBNF,        /* content is a grammar with a rule named root */
} ech_constraint_kind;

/* Where a sequence stands when it begins, as the end of the rendered prompt shows. */
typedef enum ech_reasoning_start {
    ECH_THINKING_NONE,     /* reasoning is over or there is none: the constraint holds at once */
    ECH_THINKING_OPEN,     /* inside reasoning: the constraint starts after reasoning_end */
    ECH_THINKING_OPTIONAL, /* reasoning if reasoning_begin comes first, else as NONE */
} ech_reasoning_start;

/* When a tool call may or must come. */
typedef enum ech_call_mode {
    ECH_CALLS_NONE,     /* no calls: n_calls is 0 */
    ECH_CALLS_AUTO,     /* the content, or calls. With content_kind TEXT: text in which a call's
                           begin starts a call, whose arguments are constrained from there on */
    ECH_CALLS_REQUIRED, /* calls only, the first at once */
} ech_call_mode;

/*
 * One way to write a call: begin, then a value of the schema, then end. A parser's format with a
 * tool's name baked into begin, for instance
 *     begin  <tool_call>\n{"name": "weather", "arguments":
 *     end    }\n</tool_call>
 */
typedef struct ech_constraint_call {
    const char *begin;
    size_t begin_len;   /* at least 1 */
    const char *schema; /* JSON schema of the arguments; NULL: any JSON object */
    size_t schema_len;
    const char *end;
    size_t end_len; /* may be 0 */
} ech_constraint_call;

/*
 * All strings are bytes with a length, UTF-8, borrowed for the duration of the call that takes the
 * spec. Text of reasoning markers, begin and end may name control tokens of the vocabulary; it is
 * matched by that token, and while waiting for a marker also by its plain spelling.
 */
typedef struct ech_constraint_spec {
    size_t struct_size; /* set by ech_constraint_spec_default() */

    ech_constraint_kind content_kind;
    const char *content;
    size_t content_len;

    ech_reasoning_start reasoning;
    const char *reasoning_begin; /* OPTIONAL only */
    size_t reasoning_begin_len;
    const char *reasoning_end; /* OPEN and OPTIONAL */
    size_t reasoning_end_len;

    ech_call_mode call_mode;
    const ech_constraint_call *calls;
    size_t n_calls;
    const char *call_trigger; /* AUTO with TEXT: what ends free text; every begin starts with it */
    size_t call_trigger_len;
    const char *call_separator; /* between two calls, "" for none */
    size_t call_separator_len;
    uint32_t max_calls; /* 1: no parallel calls; 0: any number */
} ech_constraint_spec;

/** A spec that asks for nothing: TEXT, no reasoning, no calls. */
ECH_API ech_constraint_spec ech_constraint_spec_default(void);

/* Bounds. All of them are part of what is promised, docs/structured-output.md lists the values. */
typedef struct ech_constraint_options {
    size_t struct_size;      /* set by ech_constraint_options_default() */
    size_t max_source_bytes; /* length of content and of each call's schema: 1 MiB */
    uint32_t max_states;     /* size of the compiled automaton: 500 000 */
    uint32_t max_depth;      /* how deep recursion and free-form JSON may nest: 32 */
    uint32_t max_whitespace; /* bytes of whitespace at one place between JSON tokens: 64 */
    uint32_t max_digits;     /* digits before, and digits after, a number's point: 40 */
    size_t cache_bytes;      /* memory for masks and automaton states, soft: 32 MiB */
    uint32_t warm_masks;     /* masks computed when compiling, those nearest the start: 256 */
} ech_constraint_options;

ECH_API ech_constraint_options ech_constraint_options_default(void);

/* ---- compiled constraints ------------------------------------------------------------------ */

/**
 * Compiles a spec for a vocabulary. Takes milliseconds for usual schemas; keep it off the thread
 * that steps the batch. options NULL: the defaults.
 *
 * Fails with
 *   EFORMAT       the text is no JSON, no schema, no expression, no grammar: text says why and
 *                 where (JSON pointer; or line and column, which are in err as well)
 *   EUNSUPPORTED  a keyword or construct that can't be enforced: err's text has its JSON pointer
 *   EINVAL        the constraint admits no text at all, or the spec contradicts itself
 *   ELIMIT        a bound of options is exceeded; the text names it
 *   ENOMEM
 * A JSON pointer is written as `at /properties/x/pattern`, the whole document as `at /`.
 * Ownership: the spec stays the caller's. On success *ret_constraint holds one reference, and the
 * constraint one of vocab.
 */
ECH_API ech_status ech_constraint_compile(ech_mask_vocab *vocab, const ech_constraint_spec *spec,
                                          const ech_constraint_options *options,
                                          ech_constraint **ret_constraint, ech_error *err);
/** One more reference; returns its argument. */
ECH_API ech_constraint *ech_constraint_ref(ech_constraint *constraint);
/** Gives a reference back, nulls the pointer; NULL and pointers to NULL are fine. */
ECH_API void ech_constraint_unref(ech_constraint **constraint);
/** The vocabulary it was compiled for, borrowed. */
ECH_API ech_mask_vocab *ech_constraint_vocab(const ech_constraint *constraint);

typedef struct ech_constraint_stats {
    size_t n_instructions; /* size of the automaton */
    size_t n_configs;      /* states of the lazily built machine in memory */
    size_t n_masks;        /* masks in memory */
    size_t cache_bytes;    /* bytes of both */
    uint64_t mask_hits;    /* masks answered from memory */
    uint64_t mask_misses;  /* masks computed */
    uint64_t flushes;      /* times the cache was emptied because it was full */
} ech_constraint_stats;

ECH_API ech_constraint_stats ech_constraint_get_stats(ech_constraint *constraint);

/* ---- states -------------------------------------------------------------------------------- */

/* What the next token belongs to. */
typedef enum ech_constraint_phase {
    ECH_PHASE_REASONING,
    ECH_PHASE_CONTENT, /* constrained content, free text outside of calls, or nothing yet */
    ECH_PHASE_CALL,    /* inside a call, its begin included */
    ECH_PHASE_ENDED,   /* an eos id was accepted */
} ech_constraint_phase;

/**
 * The state of a sequence that has produced nothing yet. thinking_budget: how many tokens of
 * reasoning may come before its end marker is forced, -1 for no budget; 0 closes it at once. The
 * marker itself doesn't count, and a character that the last token left unfinished may be
 * finished first.
 * Ownership: the caller destroys *ret_state; the state holds a reference of constraint.
 */
ECH_API ech_status ech_constraint_state_create(ech_constraint *constraint, int64_t thinking_budget,
                                               ech_constraint_state **ret_state, ech_error *err);
/** An independent copy at the same place: for n > 1, and to go back after speculation. */
ECH_API ech_status ech_constraint_state_clone(const ech_constraint_state *state,
                                              ech_constraint_state **ret_state, ech_error *err);
/** Makes dst, a state of the same constraint, stand where src stands. Never fails. */
ECH_API void ech_constraint_state_assign(ech_constraint_state *dst,
                                         const ech_constraint_state *src);
/** Frees a state, nulls the pointer; NULL and pointers to NULL are fine. */
ECH_API void ech_constraint_state_destroy(ech_constraint_state **state);

/**
 * Takes the token that was chosen. EINVAL when the constraint doesn't allow it here; ELIMIT when
 * the grammar is so ambiguous that its bounds are exceeded. The state is unchanged on failure.
 */
ECH_API ech_status ech_constraint_state_accept(ech_constraint_state *state, int32_t id,
                                               ech_error *err);
/**
 * Takes text that isn't split into tokens (a prefilled answer). All of it or nothing: on failure
 * the state is unchanged, err's offset and *ret_accepted (may be NULL, set on failure too) say how
 * many bytes would have been right. Control tokens can't be spelled this way except as described
 * for ech_constraint_spec. A thinking budget counts a call of this as one token.
 */
ECH_API ech_status ech_constraint_state_accept_bytes(ech_constraint_state *state, const char *bytes,
                                                     size_t len, size_t *ret_accepted,
                                                     ech_error *err);
/** Whether the text so far satisfies the constraint: an eos id is allowed now. */
ECH_API bool ech_constraint_state_can_end(const ech_constraint_state *state);
/**
 * Whether nothing but an eos id may follow (or one was accepted): the request may finish with
 * reason "stop" without sampling one more token.
 */
ECH_API bool ech_constraint_state_is_complete(const ech_constraint_state *state);
ECH_API ech_constraint_phase ech_constraint_state_phase(const ech_constraint_state *state);

/**
 * Writes the mask of the ids that may come next: bit (id & 31) of words[id >> 5]. All n_words words
 * are written; the bits past the vocabulary are 0. n_words must be at least
 * ech_mask_vocab_words(). After an eos id the mask has the eos ids again.
 * Fails with EINVAL (n_words) or ELIMIT or ENOMEM; the words are then all 0.
 */
ECH_API ech_status ech_constraint_state_mask(ech_constraint_state *state, uint32_t *words,
                                             size_t n_words, ech_error *err);
/**
 * The one id that the mask allows, or -1 when it allows more. Cheaper than the mask. Forced means
 * exactly one bit: the ids stay those of plain decoding.
 */
ECH_API int32_t ech_constraint_state_forced(ech_constraint_state *state);

#ifdef __cplusplus
}
#endif

#endif
