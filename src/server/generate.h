/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A generation behind an exchange: the engine's one event stream, read on the loop thread, and the
 * dialect that writes it as frames or as one body. What both forms carry comes from the same
 * accumulated choices, so that a streamed answer and a whole one can't differ.
 */
#ifndef ECH_SERVER_GENERATE_H
#define ECH_SERVER_GENERATE_H

#include "src/server/exchange.h"
#include "src/server/fields.h"

/* Chat has one column of objects; completions four of values (tokens, logprobs, top, offsets). */
#define ECH_LOGPROB_COLUMNS 4

#define ECH_CALL_ID_BYTES   64

/* One tool call of an answer. */
typedef struct ech_call {
    char id[ECH_CALL_ID_BYTES];
    ech_buf name, args;
    bool is_complete;
} ech_call;

typedef struct ech_choice {
    ech_buf text[4];                    /* by ech_channel */
    ech_buf items[ECH_LOGPROB_COLUMNS]; /* log-probability items, each column joined by ',' */
    size_t sent[ECH_LOGPROB_COLUMNS];   /* bytes of a column that frames have carried */
    ech_call *calls;                    /* [n_calls] */
    uint32_t n_calls, cap_calls;
    ech_buf ids;          /* "12,13,14": every drawn id */
    ech_buf prompt_probs; /* of prompt_logprobs, as vLLM has them, joined by ',' */
    size_t text_offset;   /* completions: characters before the next token */
    size_t held;          /* completions: bytes of the text's end that wait for their scores */
    ech_finish finish;
    ech_usage usage;
    int64_t last_token_ns; /* when the last id was drawn; 0: none was */
    const char *stop;      /* the stop string that ended it, in the exchange's arena; NULL: none */
} ech_choice;

typedef struct ech_generation {
    ech_params params;
    bool wants_logprobs;
    int32_t n_top;
    bool include_usage;
    bool wants_base64;         /* embeddings */
    const ech_prompt *prompts; /* [n_prompts] what was submitted */
    uint32_t n_prompts;
    bool keeps_text;          /* /apply-template: prompt_text is wanted */
    ech_str prompt_text;      /* as the template rendered it, in the exchange's arena */
    const char *prompt_param; /* the field that the prompt came from; NULL: messages as they are */
    const char *model;        /* as the answer names it */
    int64_t created_s;
    uint32_t n_choices;
    ech_choice *choices; /* [n_choices] */
    ech_usage usage;
    struct ech_blocks *blocks; /* of dialects that write in blocks (blocks.h), else NULL */
    bool is_named_call; /* tool_choice named a function: OpenAI's finish_reason is then stop */
    struct {
        int64_t started_ns, first_ns, last_ns; /* 0: not yet */
        uint32_t prompt, cached, drawn;        /* ids, over all choices */
    } timing;
    bool was_cancelled; /* by DELETE /requests/{id}, a drain, or the engine's end */
} ech_generation;

struct ech_dialect {
    bool writes_always; /* delta, call_end and finish are called for whole answers too */
    /* Frames; each appends to x->out. */
    ech_status (*begin)(ech_exchange *x, ech_generation *g);
    ech_status (*delta)(ech_exchange *x, ech_generation *g, uint32_t choice, const ech_event *ev);
    /* A tool call is over; NULL: nothing to say. */
    ech_status (*call_end)(ech_exchange *x, ech_generation *g, uint32_t choice, ech_call *call);
    ech_status (*finish)(ech_exchange *x, ech_generation *g, uint32_t choice);
    ech_status (*done)(ech_exchange *x, ech_generation *g);
    /* A drawn id, or one of an echoed prompt, into the choice's columns. */
    ech_status (*logprob)(ech_exchange *x, ech_generation *g, ech_choice *c, const ech_event *ev);
    /* An input's vector; for those whose answers are such. */
    ech_status (*embedding)(ech_exchange *x, ech_generation *g, ech_choice *c, const ech_event *ev);
    /* The stream's last frame when it fails; NULL: OpenAI's error object. */
    ech_status (*fail)(ech_exchange *x, ech_generation *g, const ech_error *why);
    /* The whole answer into x->reply. */
    ech_status (*body)(ech_exchange *x, ech_generation *g);
};

/*
 * Submits and moves the exchange to RUNNING, or sets the answer on failure. options comes filled
 * from g->params by ech_generate_options(), prompts set by the caller.
 */
void ech_generate_start(ech_exchange *x, const ech_dialect *dialect, ech_generation *g,
                        ech_request_options *options);

/* A generation with defaults, in the exchange's arena; NULL: out of memory. */
ech_generation *ech_generation_new(ech_exchange *x);
/* Parses the body and what all dialects share. False: the answer is set. */
bool ech_generation_parse(ech_exchange *x, ech_generation *g, const json_t *body, unsigned where);
/* object.effort to p->reasoning_effort; name is what a refusal calls it. */
bool ech_generation_take_effort(ech_exchange *x, ech_params *p, const json_t *object,
                                const char *name);
/* Fills the request's options but for the prompts. False: the answer is set. */
bool ech_generate_options(ech_exchange *x, ech_generation *g, ech_request_options *o);

/* Reads what events there are. Loop thread. A whole answer moves to ANSWER at the last one. */
void ech_generate_pump(ech_exchange *x);
/* Frees the generation and its request. */
void ech_generate_release(ech_exchange *x);

/*
 * What a frame or body says of column `col`: what was not sent yet (fresh_only), or all of it.
 * Marks it as sent.
 */
ech_str ech_logprobs_take(ech_choice *c, size_t col, bool fresh_only);
/* Starts an item in a column: the comma, if it isn't the first. */
ech_status ech_logprobs_next(ech_choice *c, size_t col);

/* {"prompt_tokens":…} as OpenAI has it. */
ech_status ech_put_usage(ech_buf *b, const ech_usage *u);
/* ,"prompt_token_ids":[…] and ,"prompt_logprobs":[…] of a choice's prompt, where the request asks
 * for them. */
ech_status ech_put_prompt(ech_buf *b, const ech_generation *g, uint32_t choice);
/* ,"token_ids":[…] of a choice, where the request asks for them. */
ech_status ech_put_token_ids(ech_buf *b, const ech_generation *g, uint32_t choice);
/* ,"timings":{…} as llama-server has them, where the request asks for them. */
ech_status ech_put_timings(ech_buf *b, const ech_generation *g);
/* Calls of a choice whose arguments are whole. */
uint32_t ech_choice_complete_calls(const ech_choice *c);

#endif
