/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's inside, shared by the files that make it:
 *
 *     sizes.c   what it takes of memory, rows and positions
 *     open.c    regions, fork, programs, close
 *     load.c    filling the weights, writing the cache
 *     loop.c    the engine's thread: loading, then the steps
 *     live.c    what happens to requests between steps: start, ids, text, end
 *     embed.c   hidden states that become embeddings
 *     chip.c    what happens when a step fails: replace the chip, find who killed it
 *     engine.c  the public calls
 *
 * Everything is the engine's thread's unless it says otherwise.
 */
#ifndef ECH_ENGINE_ENGINE_INT_H
#define ECH_ENGINE_ENGINE_INT_H

#include "src/engine/cost.h"
#include "src/engine/load.h"
#include "src/engine/step.h"

typedef enum ech_engine_state {
    ECH_ENGINE_LOADING,
    ECH_ENGINE_READY,
    ECH_ENGINE_FAILED, // the weights could not be filled
} ech_engine_state;

/* Requests that the engine holds. */
typedef struct ech_request_list {
    ech_request *head, *tail;
    uint32_t n;
} ech_request_list;

struct ech_engine {
    /* constant after open */
    ech_engine_options options; // every 0 replaced by what it stands for
    ech_model *model;
    ech_tokenizer
        *tokenizer; // read while the weights are filled; nothing before the end of open uses it
    ech_model_info model_info;
    ech_request_limits limits;
    char *plan_text;
    char *trace_path;
    const void *chip_options; // the caller's, read during open; NULL: the cpu chip's
    size_t chip_options_bytes;

    ech_loading loading;
    ech_worker *worker;
    ech_memory memory;
    ech_programs programs;
    ech_inbox *inbox; // any thread

    ech_kv kv;
    ech_sched sched;
    ech_cost cost;
    ech_step steps[2];
    uint64_t n_sent, n_done;  // steps; those between are in flight
    ech_args args;            // scratch
    ech_request_list live;    // not all of their answers have ended
    ech_request_list ending;  // DONE was told, steps in flight still name their answers
    uint32_t n_deadlines;     // live requests that have one
    uint32_t n_watchers;      // live requests that look at logits
    int64_t last_done_ns;     // when the last step was complete
    uint32_t deaths_in_a_row; // chips that died since a step was committed
    uint32_t n_suspects;      // answers that are run alone, one after the other
    int64_t next_replace_ns;  // after a replacement failed
    int64_t replace_wait_ns;

    pthread_t thread;
    bool thread_runs;

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    ech_engine_state state;
    ech_error failure;
    bool is_closing;

    pthread_mutex_t vocab_lock;   // guards the next
    ech_mask_vocab *mask_vocab;   // made at the first call for it
    ech_engine_counters counters; // gauges are filled in by counters_get
};

/* ---- live.c ---- */

/* A request from the inbox: tells QUEUED and queues its answers. */
void ech_live_accept(ech_engine *e, ech_request *r);
/* An answer has got a slot. */
void ech_live_start(ech_engine *e, ech_answer *a);
/* What a complete step's records say. Before it ech_sched_committed. */
void ech_live_read(ech_engine *e, const ech_step *step);
/* Ends an answer; err counts for ECH_FINISH_ERROR. */
void ech_live_finish(ech_engine *e, ech_answer *a, ech_finish why, const char *stop,
                     const ech_error *err);
/* Cancelled ones, deadlines, readers that have caught up. rung: somebody asked to look. */
void ech_live_look(ech_engine *e, bool rung);
/* Lets go of requests whose last step is complete. */
void ech_live_reap(ech_engine *e);
/* Ends everything, for close and for a load that failed. */
void ech_live_end_all(ech_engine *e, ech_finish why, const ech_error *err);
/* The earliest deadline of a live request; INT64_MAX: none. */
int64_t ech_live_next_deadline(const ech_engine *e);

/* ---- embed.c ---- */

/* Hidden states of a complete step, pooled; embeddings that are done are told. */
void ech_embed_read(ech_engine *e, const ech_step *step);

/* ---- chip.c ---- */

/* The mapped weights are others by now: settles both steps and fails the engine. */
void ech_chip_lost_weights(ech_engine *e, const ech_error *why);
/* The oldest step in flight has failed: settles both, rolls back, mends what can be mended. */
void ech_chip_failed(ech_engine *e, ech_status rc, const ech_error *err);
/* A step was committed. */
void ech_chip_worked(ech_engine *e, const ech_step *step);
/* Whether the next step may be sent; false while a chip is missing. */
bool ech_chip_is_there(ech_engine *e);

/* ---- loop.c ---- */

/* The engine's thread. */
void *ech_engine_thread(void *engine);

/* ---- open.c ---- */

/* What ech_engine_open() doesn't say. */
typedef struct ech_open_how {
    const void *chip_options; // NULL: the cpu chip's
    size_t chip_options_bytes;
    bool is_packing;    // for ech_engine_pack()
    const char *output; // and where to; NULL: the cache
} ech_open_how;

ech_status ech_engine_open_how(ech_engine **ret_engine, const ech_engine_options *options,
                               const ech_open_how *how, ech_error *err);
/* ech_engine_open() with another options blob for the chip, for sim chips that fail on demand. */
ech_status ech_engine_open_on(ech_engine **ret_engine, const ech_engine_options *options,
                              const void *chip_options, size_t chip_options_bytes, ech_error *err);

/* Every request ends with why, and so will later ones: nothing brings this engine back. */
void ech_engine_fail(ech_engine *e, const ech_error *why);

static inline uint32_t ech_engine_in_flight(const ech_engine *const e)
{
    return (uint32_t)(e->n_sent - e->n_done);
}

#endif
