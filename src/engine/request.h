/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request inside the engine, and its answers: one per choice.
 *
 * Made on the submitting thread, where everything is copied and checked; from then on the engine's
 * thread owns all of it but for the event queue, which the request's lock guards. Two hold it: the
 * caller until ech_request_close(), the engine until the last choice has ended.
 *
 *     QUEUED … one FINISH per choice … DONE      pushed by ech_request_event()
 */
#ifndef ECH_ENGINE_REQUEST_H
#define ECH_ENGINE_REQUEST_H

#include <pthread.h>

#include "echelon/parser.h"
#include "echelon/tokenizer.h"
#include "src/base/arena.h"
#include "src/chip/sampler.h"
#include "src/engine/breakers.h"
#include "src/engine/embed.h"
#include "src/engine/events.h"
#include "src/engine/guide.h"
#include "src/engine/inbox.h"
#include "src/engine/sched.h"

typedef struct ech_answer ech_answer;

struct ech_answer {
    ech_seq seq; /* first: the scheduler hands out pointers to it */
    ech_request *request;
    uint32_t index; /* choice, prompt-major */
    uint64_t seed;
    ech_parser *parser;  // NULL once it has finished
    ech_sampler_row row; /* what doesn't change while it has its slot */
    ech_guide guide;
    ech_embed embed;
    bool has_finished;
    float mu;           /* mirostat's, of the committed ids */
    uint32_t n_scored;  /* prompt ids whose log-probability was given out */
    uint32_t n_history; /* ids in its slot's history */
    int64_t last_token_ns;
    uint32_t deaths; /* chips that died in its steps since one was committed */
    bool is_suspect; /* was in a step that killed a chip twice */
    ech_usage usage;
};

struct ech_request {
    ech_inbox *inbox;
    uint64_t id;
    ech_arena arena; // everything that is copied from the options

    /* set at submit, then constant */
    uint32_t n_prompts, n, n_answers; // n_answers = n_prompts × n
    ech_sampling sampling;            // its arrays in the arena
    uint64_t seed;
    uint32_t min_tokens;
    const char **stop; // [n_stop]
    size_t n_stop;
    const int32_t *stop_ids; // [n_stop_ids] the model's end-of-sequence ids and the caller's
    size_t n_stop_ids;
    int32_t logprobs, prompt_logprobs; // -1: none
    bool skip_special, echo, scores_only;
    bool embeds;
    ech_pooling pooling; // of embeds
    uint32_t dimensions;
    void (*logits)(void *ctx, uint32_t choice, uint32_t pos,
                   const float *row); // NULL: nobody looks
    void *logits_ctx;
    ech_constraint *constraint; // a reference, or NULL
    int64_t thinking_budget;
    bool takes_forced; // nothing but its constraint forbids ids, so one that it forces is drawn
    int64_t deadline_ns;
    const char *tenant, *cache_salt;
    uint32_t tenant_weight;
    const ech_constraint_hook *hook;
    void (*notify)(void *ctx);
    void *notify_ctx;
    ech_breakers breakers;

    /* the engine's thread */
    ech_answer *answers; // [n_answers]
    uint32_t n_live;
    uint32_t salt, tenant_idx;
    bool has_places; // salt and tenant are held
    ech_error first_error;
    ech_request *prev, *next; // of the engine's list
    ech_request *next_new;    // of the inbox

    /* any thread, by atomic access */
    uint32_t cancel_wanted;
    uint64_t unread_bytes; // as of the last push or pop
    uint32_t is_behind;    // its reader is: no rows until everything is read

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    ech_event_queue events;
    uint32_t refs;
    uint32_t n_callbacks; // of notify that run now
    bool is_closed;       // the caller has let go: nothing is pushed
    bool engine_let_go;   // no hook will be called any more
    bool lost_event;      // there was no memory for one
    bool done_was_read;
};

/* What the engine lets a request be. */
typedef struct ech_request_limits {
    const ech_tokenizer *tokenizer;
    uint32_t vocab;
    uint32_t max_seq_len;
    uint64_t pool_tokens; // positions of all pages
    uint32_t max_lists;   // ints of one answer's sampler lists, and of DRY's breakers
    uint32_t max_answers; // of one request
    const int32_t *eos_ids;
    size_t n_eos_ids;
    uint32_t hidden; // numbers of an embedding
    ech_pooling pooling;
    ech_error why_no_pooling; // code ECH_OK, or why nothing can be embedded
} ech_request_limits;

/* Checks, tokenises, copies. One reference, the caller's; errors as ech_engine_submit(). */
ech_status ech_request_create(ech_request **ret_request, const ech_request_limits *limits,
                              const ech_request_options *options, ech_error *err);
void ech_request_ref(ech_request *r);
/* The last reference frees. */
void ech_request_unref(ech_request **r);

/*
 * Appends an event and tells the reader. Fills time_ns. Never fails: when there is no memory, the
 * reader is told ENOMEM, and the request is cancelled.
 */
void ech_request_event(ech_request *r, ech_event *ev);
/* The engine will call none of the request's hooks again, and gives its reference back. */
void ech_request_let_go(ech_request *r);

#endif
