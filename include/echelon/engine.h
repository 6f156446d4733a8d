/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/engine.h - many generations at once on one model.
 *
 * An ENGINE is a loaded model together with the worker that executes it, its KV pages and one
 * thread that picks the next batch. A REQUEST is one or more prompts with n choices each; it is
 * admitted, refused and cancelled as a whole. What happens to it comes back as one stream of
 * EVENTS, each of which names the choice it is about.
 *
 *     ech_engine_options eo;
 *     ech_engine_options_default(&eo);
 *     eo.model_dir = "models/tale";
 *     ech_engine *engine;
 *     if (ech_engine_open(&engine, &eo, &err) != ECH_OK) …
 *
 *     const ech_prompt prompt = { .text = "Once upon a time", .text_len = 16 };
 *     ech_request_options ro;
 *     ech_request_options_default(&ro);
 *     ro.prompts = &prompt;
 *     ro.n_prompts = 1;
 *     ech_request *req;
 *     if (ech_engine_submit(engine, &ro, &req, &err) != ECH_OK) …
 *
 *     ech_event ev;
 *     do {
 *         if (ech_request_next(req, -1, &ev, &err) != ECH_OK) break;
 *         if (ev.kind == ECH_EVENT_TEXT) fwrite(ev.text, 1, ev.text_len, stdout);
 *     } while (ev.kind != ECH_EVENT_DONE);
 *     ech_request_close(&req);
 *     ech_engine_close(&engine);
 *
 * There is one way to execute a model: every step, for one prompt or for sixty streams, is a task
 * graph submitted to a level-3 worker (echelon/worker.h). The engine forks its chips inside
 * ech_engine_open(), before it starts a thread of its own.
 *
 * The promise: a choice's ids, text and log-probabilities are a function of its prompt, its
 * options and its seed. They do not depend on what else runs, on how the prompt was cut into
 * chunks, on thread counts, on cache hits, or on a chip that died and was replaced.
 *
 * Threads: every call is safe from any thread, except that one thread at a time may read one
 * request's events. No callback runs under a lock of the engine. Times are nanoseconds of
 * CLOCK_MONOTONIC. Texts are bytes with a length, not zero-terminated, unless it is said.
 */
#ifndef ECHELON_ENGINE_H
#define ECHELON_ENGINE_H

#include "echelon/machine.h"
#include "echelon/model.h"
#include "echelon/status.h"
#include "echelon/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening -------------------------------------------------------------------------------- */

typedef struct ech_engine ech_engine;
typedef struct ech_request ech_request;

/*
 * How an engine is opened. Always filled by ech_engine_options_default() first, so that a program
 * built against this header runs with a later library. Pointers are read during
 * ech_engine_open() only. 0 means "the default" for every size and count.
 */
typedef struct ech_engine_options {
    size_t struct_size;    /* set by the defaults function, don't change */
    const char *model_dir; /* as ech_model_find() takes it; NULL: the demo model */
    const char *platform;  /* "cpu" (default) or "sim", a chip that computes nothing, for tests */
    const int *device_ids; /* [n_devices] NULL: device 0 */
    size_t n_devices;      /* this version runs the model on the first */
    uint32_t threads;      /* cores per chip; 0: one per physical core it may use */
    uint32_t max_seq_len;  /* prompt and answer together, in tokens; 0: the model's own limit,
                              or what fits the KV memory if that is less */
    uint32_t max_running;  /* choices that run at the same time, 1..64; 0: 32 */
    uint32_t max_queued;   /* choices that may wait; 0: 2048, as many inputs as
                              OpenAI's clients put into one request for embeddings */
    uint64_t max_queued_tokens; /* prompt tokens that may wait; 0: 4 Mi */
    uint64_t kv_memory;         /* bytes of KV pages; 0: enough for max_running answers of
                                   max_seq_len, at most half of the memory that is free */
    ech_kv_type kv_type;
    ech_compute compute;
    ech_quantize quantize; /* what the weights are packed as; default: as the files have them */
    ech_load load;         /* where the weights live once they are in the cache */
    const char *cache_dir; /* folder of packed weights; NULL: as ech_cache_list() says */
    bool no_cache;         /* pack the model's files, look at no cache and write none */
    const char *packed;    /* NULL, or a file that ech_engine_pack() made, instead of the cache; one
                              that was made of other files, or as another type, is an error */
    uint32_t prefill_chunk; /* most prompt rows in one step, 1..512; 0: 256, fewer where the
                               measured cost of a row says that max_itl would be passed */
    uint32_t max_itl_ms;    /* wanted bound of the gap between two tokens of a running choice while
                               prompts are prefilled; 0: the larger of 50 and twice the step of the
                               choices that run without prompts */
    bool no_prefix_cache;   /* every prompt is computed, whatever was computed before */
    uint32_t chip_deaths;   /* chips that may die in a row, without a completed step between them,
                               before the step's requests fail; 0: 3 */
    uint64_t event_bytes;   /* unread event bytes at which a choice is taken out of the batch until
                               its events are read; 0: 1 MiB */
    const char *trace_path; /* NULL, or the file that a Chrome trace of every step goes to at close;
                               an error of open where that can't be written */
    ech_pooling pooling;    /* of embeddings; default: what the model's files say */
} ech_engine_options;

/** Fills *o with the defaults, struct_size included. */
ECH_API void ech_engine_options_default(ech_engine_options *o);

/*
 * Reads the model's headers and plans every size; maps every region; forks the worker's
 * processes; starts the engine's thread; returns. The weights are filled after that, by that
 * thread: see ech_engine_wait_ready(). Requests may be submitted at once and run when it is done.
 *
 * The calling process should have no SIGCHLD handler that reaps foreign children.
 *
 * Ownership: on success *ret_engine is the caller's, to be closed. On failure nothing is left: no
 * process, mapping or descriptor.
 * Errors: EINVAL (err->argument is the option), ENOTFOUND, EFORMAT, EUNSUPPORTED (name file,
 * tensor, what was expected and found), ENOMEM (with the plan: what needs how much), EOS.
 */
ECH_API ech_status ech_engine_open(ech_engine **ret_engine, const ech_engine_options *options,
                                   ech_error *err);

/** What ech_engine_pack() did. */
typedef struct ech_pack_report {
    char path[ECH_MODEL_PATH_MAX]; /* the file */
    bool was_there;                /* in the cache already: nothing was packed */
    uint64_t source_bytes;         /* of the model's files */
    uint64_t packed_bytes;         /* of the file */
    double pack_s, write_s;
} ech_pack_report;

/*
 * Packs a model without running it. file: where to, NULL: into the cache, whatever the model's
 * size. Of the options, those count that say what is packed and how (model_dir, quantize, threads,
 * cache_dir). Needs memory for the packed weights. Nothing is left running.
 * Errors: as ech_engine_open; EIO: the file can't be written; and nothing is left of it.
 */
ECH_API ech_status ech_engine_pack(const ech_engine_options *options, const char *file,
                                   ech_pack_report *ret_report, ech_error *err);

/** How far the weights are. */
typedef struct ech_load_progress {
    uint64_t done;  /* bytes */
    uint64_t total; /* bytes; 0 while it isn't known */
} ech_load_progress;

/*
 * Waits until the engine can run requests: at most timeout_ms (0: looks only, -1: for ever).
 * ret_progress (NULL allowed) is written on ECH_ETIMEOUT too.
 * Errors: ETIMEOUT, not ready yet; else the reason why loading failed, and every request fails
 * with the same.
 */
ECH_API ech_status ech_engine_wait_ready(ech_engine *engine, int timeout_ms,
                                         ech_load_progress *ret_progress, ech_error *err);

/*
 * Cancels what runs and waits, ends the worker's processes, frees everything, sets *engine NULL.
 * Requests that are still open stay valid and end with an ECH_EVENT_DONE; close them as usual,
 * before or after. Accepts NULL and a pointer to NULL.
 *
 * Everything is closed whatever it returns. EIO: the file of trace_path couldn't be written, and
 * what stood there before stays; a line of the log says why.
 */
ECH_API ech_status ech_engine_close(ech_engine **engine);

/** What was opened. Strings live as long as the engine. */
typedef struct ech_engine_info {
    size_t struct_size;       /* set by the caller: sizeof(ech_engine_info) */
    const char *architecture; /* "qwen3"; zero-terminated */
    const char *plan;         /* the plan of memory, lines of text; zero-terminated */
    uint32_t vocab_size;      /* logits of a row; ids are below it */
    uint32_t max_seq_len;
    uint32_t model_max_seq_len;
    uint32_t page_tokens; /* positions in one KV page */
    uint32_t n_pages;     /* in the whole pool */
    uint64_t page_bytes;
    uint64_t weights_bytes; /* packed */
    uint32_t max_running;
    uint32_t prefill_chunk;
    uint32_t threads;       /* per chip */
    const int32_t *eos_ids; /* [n_eos_ids] end-of-sequence ids of the model */
    size_t n_eos_ids;
    const char *model_dir;   /* the folder or file that was opened; zero-terminated */
    uint64_t step_bytes;     /* packed weights that a step reads, whatever its rows */
    uint64_t step_params;    /* multiply-accumulates with weights of a decoded token */
    uint64_t layer_params;   /* of a prompt's token: without the head */
    ech_meter_kind product;  /* what most of them are, to be held against ech_meter_run() */
    uint32_t embedding_size; /* numbers of an embedding */
    ech_pooling pooling;     /* of embeddings; MODEL: the files say something that is not computed,
                                and every embedding fails with that */
} ech_engine_info;

/** Fills *ret_info as far as its struct_size says. */
ECH_API void ech_engine_info_get(const ech_engine *engine, ech_engine_info *ret_info);

/** The model's tokenizer, borrowed until the engine is closed. */
struct ech_tokenizer; /* echelon/tokenizer.h */
ECH_API const struct ech_tokenizer *ech_engine_tokenizer(const ech_engine *engine);

/**
 * The tokenizer of a model, without an engine: of a folder with tokenizer.json, weights or not, or
 * out of a GGUF file. Ownership: *ret_tok is the caller's, for ech_tokenizer_close(). Errors as
 * ech_tokenizer_open() and ech_model_open() have them; *ret_tok is then untouched.
 */
ECH_API ech_status ech_engine_open_tokenizer(struct ech_tokenizer **ret_tok, const char *model_dir,
                                             ech_error *err);

/**
 * The chat template inside the model's file (GGUF), *ret_len bytes, borrowed until the engine is
 * closed. NULL: there is none inside; a folder has its own beside the weights, in model_dir.
 */
ECH_API const char *ech_engine_chat_template(const ech_engine *engine, size_t *ret_len);

/* ---- sampling ------------------------------------------------------------------------------- */

/** An id and what is added to its logit. */
typedef struct ech_logit_bias {
    int32_t id;
    float bias; /* finite, or -inf to forbid the id */
} ech_logit_bias;

/** A sequence of ids. */
typedef struct ech_id_list {
    const int32_t *ids; /* [n] */
    size_t n;
} ech_id_list;

/*
 * How the next id is drawn from a row of logits. Applied in this order: mask, banned and allowed
 * ids, bad words, logit bias, min_tokens; repetition (over prompt and answer), frequency and
 * presence penalty (over the answer), DRY; temperature; top-k, typical, top-p, min-p, XTC; draw.
 * Mirostat replaces what follows temperature. Log-probabilities are always those of the raw
 * logits, before any of this.
 *
 * ech_sampling_default() fills in values that change nothing: temperature 1, the rest off.
 */
typedef struct ech_sampling {
    size_t struct_size;
    float temperature;               /* 0: greedy, ties to the lower id; up to 100 */
    int32_t top_k;                   /* 0: off */
    float top_p;                     /* (0, 1], keeps the id that crosses it; 1: off */
    float min_p;                     /* [0, 1]; 0: off */
    float typical_p;                 /* (0, 1]; 1: off */
    float repetition_penalty;        /* [0.001, 1000]; 1: off */
    float frequency_penalty;         /* [-2, 2]; 0: off */
    float presence_penalty;          /* [-2, 2]; 0: off */
    float dry_multiplier;            /* >= 0; 0: off */
    float dry_base;                  /* >= 1; 1.75 */
    int32_t dry_allowed_length;      /* 2 */
    int32_t dry_range;               /* ids looked back at; -1: all */
    const char *const *dry_breakers; /* [n_dry_breakers] zero-terminated: no repeat reaches over a
                                        token that holds one of these texts; NULL: newline, colon,
                                        double quote and star; 0 entries: nothing breaks */
    size_t n_dry_breakers;           /* up to 64 */
    float xtc_probability;           /* [0, 1]; 0: off */
    float xtc_threshold;             /* [0, 1]; 0.1 */
    int32_t mirostat;                /* 0 off, 1 or 2 */
    float mirostat_tau;              /* 5 */
    float mirostat_eta;              /* 0.1 */
    bool has_seed; /* false: one is drawn at submit and shown in ECH_EVENT_QUEUED */
    uint64_t seed; /* choice k of a prompt draws as a request with n = 1 and seed + k */
    const ech_logit_bias *logit_bias; /* [n_logit_bias] */
    size_t n_logit_bias;
    const int32_t *allowed_ids; /* [n_allowed_ids] only these may be drawn; 0 entries: all */
    size_t n_allowed_ids;
    const int32_t *banned_ids; /* [n_banned_ids] */
    size_t n_banned_ids;
    const ech_id_list *bad_words; /* [n_bad_words] the last id of each may not complete it */
    size_t n_bad_words;
} ech_sampling;

/** Values that change nothing. */
ECH_API void ech_sampling_default(ech_sampling *s);
/** The same, then what the model's generation_config.json says. */
ECH_API void ech_engine_sampling_default(const ech_engine *engine, ech_sampling *s);

/* ---- submitting ----------------------------------------------------------------------------- */

struct ech_constraint;     /* echelon/constraint.h */
struct ech_mask_vocab;     /* echelon/constraint.h */
struct ech_parser_options; /* echelon/parser.h */

/** One prompt: ids, or a text that the engine tokenises. An empty prompt is refused (EINVAL). */
typedef struct ech_prompt {
    const int32_t *ids; /* [n_ids]; NULL: text counts */
    size_t n_ids;
    const char *text; /* UTF-8 */
    size_t text_len;
} ech_prompt;

/*
 * What restricts a choice's ids: a grammar, a schema. One object serves one request; the engine
 * asks for a state per choice. Calls come from the engine's thread, one at a time, and should
 * take microseconds. A failing call fails that request alone, with the hook's own error.
 */
typedef struct ech_constraint_hook {
    void *self;
    /** A new state at the start of an answer. */
    ech_status (*open)(void *self, void **ret_state, ech_error *err);
    /** Sets bit i of words[i / 32] for each id that may come next, clears the others. */
    ech_status (*mask)(void *state, uint32_t *words, size_t n_words, ech_error *err);
    /** The id that was drawn. ret_ended: nothing but an end of sequence may follow. */
    ech_status (*accept)(void *state, int32_t id, bool *ret_ended, ech_error *err);
    void (*close)(void *state);
} ech_constraint_hook;

/*
 * One request. Filled by ech_request_options_default() first. Everything that is pointed to is
 * copied by ech_engine_submit(), except the hook and what the callbacks' contexts point to, which
 * must live until ech_request_close() has returned.
 */
typedef struct ech_request_options {
    size_t struct_size;
    const ech_prompt *prompts; /* [n_prompts] 1..4096 */
    size_t n_prompts;
    uint32_t n;         /* choices per prompt, 1..128; default 1 */
    bool parse_special; /* in texts: special tokens written out count as such; default true */
    bool add_special;   /* to texts: what the post-processor adds (BOS); default true */
    ech_sampling sampling;
    uint32_t max_tokens;     /* most ids of a choice; default 256. Cut to what the context and the
                                pool can hold, then the choice ends with `length`.
                                0 with prompt_logprobs or echo: scores the prompt alone */
    uint32_t min_tokens;     /* end-of-sequence and stop ids are banned before */
    const char *const *stop; /* [n_stop] zero-terminated stop strings, not empty, 1..64 */
    size_t n_stop;
    bool include_stop;       /* the stop string is part of the text */
    const int32_t *stop_ids; /* [n_stop_ids] end the choice as an end-of-sequence id does */
    size_t n_stop_ids;
    bool ignore_eos;         /* end-of-sequence ids are ordinary ids */
    bool skip_special;       /* special tokens are left out of the text; default true */
    int32_t logprobs;        /* -1: none (default); 0..20: of the drawn id and so many best ones */
    int32_t prompt_logprobs; /* the same for the prompt's ids; such a prompt is computed whole */
    uint32_t prompt_logprobs_from; /* only of ids from this position on, below the prompt's end;
                                      default 0: all. Those before have no event */
    /*
     * Whole rows of logits, to hold one model against another; with prompt_logprobs alone. Called
     * for each id that is scored, in the order of positions: [vocab_size] logits from which the id
     * at pos was predicted, valid during the call. The engine's thread makes the call and steps
     * wait for it: meant for programs that measure, not for servers.
     */
    void (*logits)(void *ctx, uint32_t choice, uint32_t pos, const float *row);
    void *logits_ctx;
    bool echo;              /* the prompt's text comes first in the text */
    int32_t priority;       /* lower runs first; default 0 */
    int64_t deadline_ns;    /* 0: none; a choice that isn't done then ends with ETIMEOUT */
    const char *tenant;     /* NULL or whose share it runs on; tenants share fairly by weight */
    uint32_t tenant_weight; /* default 1 */
    const char *cache_salt; /* NULL, or prompts are reused among requests of one salt only */
    /*
     * A compiled constraint that the ids must satisfy, NULL for none; made for the vocabulary of
     * ech_engine_mask_vocab(). The request takes a reference. With it, or alone (a constraint of
     * kind TEXT), a bound of reasoning tokens; -1, the default: none.
     */
    struct ech_constraint *constraint;
    int64_t thinking_budget;
    const ech_constraint_hook *hook; /* the same by the caller's own code; not with constraint */
    /*
     * How reasoning and tool calls are told from content; NULL: everything is content. Its stop
     * strings and marker_id are the engine's own. param_ctx must live as the hook must.
     */
    const struct ech_parser_options *parser;
    /*
     * The embedding of each prompt is wanted, not an answer: one ECH_EVENT_EMBEDDING per prompt, in
     * whatever order they are done. What is drawn, parsed or scored doesn't go with it: n must be
     * 1, and sampling, max_tokens and stop are not looked at.
     */
    bool embed;
    uint32_t dimensions; /* with embed: the first so many numbers, 0: all of them */
    /** Called when an event was added to a stream that had none unread. NULL allowed. */
    void (*notify)(void *ctx);
    void *notify_ctx;
} ech_request_options;

/** Fills *o with the defaults, greedy sampling off: temperature 1. */
ECH_API void ech_request_options_default(ech_request_options *o);

/*
 * Checks, tokenises and queues a request. Never waits for compute.
 *
 * Ownership: on success *ret_request is the caller's, to be closed; on failure nothing is.
 * Errors: EINVAL, ELIMIT, ECONTEXT (a prompt with one token more does not fit the context or the
 * whole pool; says both counts), of which err->argument is the member of ech_request_options or
 * ech_sampling at fault; EBUSY (the queue is full), ENOMEM, or the reason why the engine failed to
 * load.
 */
ECH_API ech_status ech_engine_submit(ech_engine *engine, const ech_request_options *options,
                                     ech_request **ret_request, ech_error *err);

/*
 * Ends what is left of a request within one step: its choices finish with
 * ECH_FINISH_CANCELLED, then ECH_EVENT_DONE comes. Harmless when it has ended. Any thread.
 */
ECH_API void ech_request_cancel(ech_request *request);

/*
 * Cancels if need be, and frees the caller's hold; sets *request NULL. Returns when no hook or
 * callback of the request runs any more. Accepts NULL and a pointer to NULL.
 */
ECH_API void ech_request_close(ech_request **request);

/** Number of the request, unique in this engine, from 1. */
ECH_API uint64_t ech_request_id(const ech_request *request);

/*
 * The vocabulary to compile constraints for, made at the first call (about 50 ms for 150 000 ids).
 * Ownership: one reference, to be given back with ech_mask_vocab_unref(). Any thread.
 */
ECH_API ech_status ech_engine_mask_vocab(ech_engine *engine, struct ech_mask_vocab **ret_vocab,
                                         ech_error *err);

/* ---- events --------------------------------------------------------------------------------- */

/*
 * In order, for each request: QUEUED; then for each choice STARTED, PROGRESS*, PROMPT_TOKEN*,
 * (TOKEN, TEXT?)*, FINISH; then DONE. Choices interleave. A choice that never started has FINISH
 * alone. With embed: STARTED, PROGRESS*, EMBEDDING, FINISH.
 */
typedef enum ech_event_kind {
    ECH_EVENT_QUEUED = 1,       /* accepted; seed of choice 0, usage.prompt_tokens over all */
    ECH_EVENT_STARTED = 2,      /* the choice runs; its seed, usage.prompt_tokens, cached_tokens */
    ECH_EVENT_PROGRESS = 3,     /* progress_done of usage.prompt_tokens are computed */
    ECH_EVENT_PROMPT_TOKEN = 4, /* with prompt_logprobs: an id of the prompt, in order; the first
                                   has no log-probability */
    ECH_EVENT_TOKEN = 5,        /* an id was drawn, end-of-sequence ids included */
    ECH_EVENT_TEXT = 6,         /* text that is final: whole characters, beyond any stop string */
    ECH_EVENT_FINISH = 7,       /* the choice ended: finish, usage, error */
    ECH_EVENT_DONE = 8,       /* the request ended: usage summed, its first error; the last event */
    ECH_EVENT_TOOL_END = 9,   /* call_index is over; call_complete: its arguments are JSON */
    ECH_EVENT_EMBEDDING = 10, /* the prompt's vector */
} ech_event_kind;

/** Why a choice ended. */
typedef enum ech_finish {
    ECH_FINISH_NONE = 0,
    ECH_FINISH_STOP = 1,      /* end-of-sequence id, stop id or stop string */
    ECH_FINISH_LENGTH = 2,    /* max_tokens, or the context is full */
    ECH_FINISH_CANCELLED = 3, /* ech_request_cancel() or the engine was closed */
    ECH_FINISH_ERROR = 4,     /* see the event's error */
} ech_finish;

/** "stop", "length", "cancelled", "error", ""; static. */
ECH_API const char *ech_finish_name(ech_finish finish);

/** Which part of an answer a text belongs to. */
typedef enum ech_channel {
    ECH_CHANNEL_CONTENT = 0,
    ECH_CHANNEL_REASONING = 1,
    ECH_CHANNEL_TOOL_NAME = 2, /* call_index counts the calls of the choice */
    ECH_CHANNEL_TOOL_ARGS = 3,
} ech_channel;

/** An id and the natural logarithm of its probability under the raw logits. */
typedef struct ech_token_prob {
    int32_t id;
    float logprob;
} ech_token_prob;

/** Counts of tokens and times of one choice, or of a request: sums, earliest and latest. */
typedef struct ech_usage {
    uint32_t prompt_tokens;     /* of a request: each prompt once */
    uint32_t cached_tokens;     /* of these, reused from earlier requests */
    uint32_t completion_tokens; /* every drawn id, the end-of-sequence id included */
    uint32_t reasoning_tokens;  /* of these, inside reasoning */
    uint32_t preemptions;       /* how often it was put back to the queue for want of pages */
    int64_t queued_ns;          /* when it was submitted */
    int64_t started_ns;         /* when its first step was submitted; 0: never */
    int64_t first_token_ns;     /* 0: never */
    int64_t finished_ns;
} ech_usage;

/*
 * One event. The struct is the caller's, reused for every call; what it points to is valid until
 * the next ech_request_next() or ech_request_close() on the request.
 */
typedef struct ech_event {
    ech_event_kind kind;
    uint32_t choice;           /* prompt-major: prompt index × n + choice of the prompt */
    int64_t time_ns;           /* when the engine made it */
    uint64_t seed;             /* QUEUED, STARTED */
    uint32_t progress_done;    /* PROGRESS */
    int32_t id;                /* TOKEN, PROMPT_TOKEN */
    bool has_logprob;          /* TOKEN, PROMPT_TOKEN */
    float logprob;             /* of the id */
    uint32_t rank;             /* of the id: so many raw logits are at least its own */
    const ech_token_prob *top; /* [n_top] best first; may hold the id itself */
    size_t n_top;
    ech_channel channel; /* TEXT */
    uint32_t call_index; /* TEXT of a tool call */
    bool call_complete;  /* TOOL_END */
    uint32_t n_calls;    /* FINISH: calls that ended complete */
    const char *call_id; /* TEXT of a tool's name: [call_id_len] the model's own id of the
                            call, or empty */
    size_t call_id_len;
    const char *text; /* TEXT: [text_len] whole UTF-8 characters; bytes that are none have
                         become U+FFFD */
    size_t text_len;
    const float *embedding; /* EMBEDDING: [n_embedding] pooled, cut to dimensions, then of
                               length 1 (a vector of zeros stays one) */
    size_t n_embedding;
    ech_finish finish; /* FINISH */
    const char *stop;  /* FINISH by a stop string: that string, zero-terminated; else NULL */
    ech_usage usage;   /* QUEUED, STARTED, FINISH, DONE */
    ech_error error;   /* FINISH, DONE: code ECH_OK unless it failed */
} ech_event;

/*
 * The next event, waiting at most timeout_ms (0: looks only, -1: for ever).
 * Errors: ETIMEOUT, there is none yet; ESTATE after DONE was read.
 */
ECH_API ech_status ech_request_next(ech_request *request, int timeout_ms, ech_event *ret_event,
                                    ech_error *err);

/* ---- looking inside ------------------------------------------------------------------------- */

/** Steps are counted by their tokens, k of them at most 2^k; the last has all that are larger. */
#define ECH_STEP_SIZES 16

/** One moment of an engine. Gauges say what is, counters count since the engine was opened. */
typedef struct ech_engine_counters {
    size_t struct_size; /* set by the caller: sizeof(ech_engine_counters) */
    /* gauges */
    bool is_ready;
    uint32_t requests; /* open and not done */
    uint32_t queued;   /* choices */
    uint64_t queued_tokens;
    uint32_t running; /* choices */
    uint32_t pages_total;
    uint32_t pages_free;   /* never filled, or evicted */
    uint32_t pages_cached; /* kept for their content, nobody uses them */
    uint32_t pages_used;   /* held by a choice, shared ones once */
    double step_ms;        /* smoothed time of a step */
    double solo_step_ms;   /* the same for steps of one decode row */
    double row_us;         /* what one more prompt row costs, from the cost model */
    /* counters */
    uint64_t requests_total;
    uint64_t requests_refused;
    uint64_t finished_stop, finished_length, finished_cancelled, finished_error; /* choices */
    uint64_t prompt_tokens; /* of started choices */
    uint64_t cached_tokens; /* of these, reused */
    uint64_t prefill_rows;  /* computed, recomputation after a preemption included */
    uint64_t generated_tokens;
    uint64_t steps;
    uint64_t mixed_steps; /* with decode and prompt rows */
    uint64_t preemptions;
    uint64_t evictions;    /* pages taken from the cache */
    uint64_t copied_pages; /* heads of shared pages that were copied */
    uint64_t wasted_rows;  /* computed past an end of sequence that was found late */
    uint64_t chip_replacements;
    uint64_t step_ns_total;             /* wall time with a step in flight */
    uint64_t host_ns_total;             /* CPU time of the engine's thread */
    uint64_t ttft_ns_total, ttft_count; /* submit to first id */
    uint64_t gap_ns_total, gap_count;   /* between two ids of a choice */
    uint64_t step_rows_total;           /* tokens computed */
    uint64_t steps_of[ECH_STEP_SIZES];  /* [k]: above 2^(k-1) of these tokens, at most 2^k */
} ech_engine_counters;

/** Fills *ret_counters as far as its struct_size says. Never waits for a step. */
ECH_API void ech_engine_counters_get(ech_engine *engine, ech_engine_counters *ret_counters);

/** A ring of the worker below, which bounds the graph of a step (worker.h). */
typedef struct ech_engine_ring {
    const char *name;                    /* "heap", "task_window" or "dep_pool" */
    uint32_t depth;                      /* of the scope that it serves */
    uint64_t capacity, used, high_water; /* bytes, slots, entries */
} ech_engine_ring;

/** Fills at most cap rings of ret_rings; returns how many there are. Never waits for a step. */
ECH_API size_t ech_engine_rings_get(ech_engine *engine, ech_engine_ring *ret_rings, size_t cap);

/** Why a prompt was, or would be, found in the prefix cache only so far. */
typedef struct ech_cache_explanation {
    uint32_t n_tokens;      /* of the prompt */
    uint32_t cached_tokens; /* that would be reused now */
    bool has_divergence;    /* an earlier prompt goes on with another token at that place */
    int32_t prompt_id;      /* the prompt's token there, -1 at its end */
    int32_t cached_id;      /* the cached one's */
    char around[256];       /* the text up to there, the two tokens in brackets; zero-terminated */
} ech_cache_explanation;

/*
 * Looks a prompt up without changing anything. salt as in ech_request_options, NULL for none.
 * Errors: EINVAL; ESTATE while the engine loads.
 */
ECH_API ech_status ech_engine_cache_explain(ech_engine *engine, const ech_prompt *prompt,
                                            const char *salt,
                                            ech_cache_explanation *ret_explanation, ech_error *err);

#ifdef __cplusplus
}
#endif

#endif
