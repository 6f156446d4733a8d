/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint: the worker's end of one child's mailbox. The scheduler hands tasks to endpoints and
 * gets completions back; it knows nothing of what is behind them.
 *
 * Every frame that was handed over yields exactly one completion: the child's answer, or the
 * endpoint's failure. An answer whose identity isn't the one handed over is dropped and poisons
 * the endpoint. Guarded by the worker's lock.
 */
#ifndef ECH_RUNTIME_ENDPOINT_H
#define ECH_RUNTIME_ENDPOINT_H

#include "src/runtime/graph.h"
#include "src/runtime/mailbox.h"

enum ech_endpoint_kind {
    ECH_ENDPOINT_CHIP,
    ECH_ENDPOINT_WORKER,
    ECH_ENDPOINT_SUB,
};

typedef struct ech_in_flight {
    ech_identity id;
    uint16_t member;
    bool accepted; /* reported */
} ech_in_flight;

typedef struct ech_endpoint {
    ech_mailbox *mail;
    uint32_t child;
    uint8_t kind;
    uint32_t state;        /* ech_child_state */
    bool control_busy;     /* a command is on its way */
    bool control_poisoned; /* a command timed out */
    bool distrusted;       /* broke the protocol: its answers are not looked at, it is killed */
    bool stopping;         /* shutdown was asked for */
    uint32_t generation;   /* of its process */
    bool reaped;           /* its end was taken note of */
    bool stall_logged;
    int32_t pid;
    int32_t wait_status;
    uint64_t head, tail; /* frames handed over, frames completed */
    ech_in_flight in_flight[ECH_FRAMES];
    uint64_t seen_progress;
    int64_t seen_ns;     /* when progress was last seen, while busy; 0: not busy */
    int64_t reserved_ns; /* since when a group keeps it idle while singles wait; 0: not so */
    bool reserved_warned;
    uint64_t tasks; /* of earlier processes */
    int64_t replace_ns;
    ech_error lost; /* why, when LOST or POISONED */
} ech_endpoint;

/* One task that has ended, as the child or the endpoint's failure says. */
typedef struct ech_completion {
    ech_identity id;
    uint16_t member;
    ech_status result;
    const char *text; /* of a failure */
    int64_t t_start, t_end;
} ech_completion;

typedef struct ech_completion_sink {
    void (*accepted)(void *ctx, ech_endpoint *ep, const ech_identity *id);
    void (*completed)(void *ctx, ech_endpoint *ep, const ech_completion *c);
    void *ctx;
} ech_completion_sink;

static inline uint32_t ech_endpoint_busy(const ech_endpoint *const ep)
{
    return (uint32_t)(ep->head - ep->tail);
}

/* Whether a task can be handed over now. */
static inline bool ech_endpoint_has_room(const ech_endpoint *const ep)
{
    return ep->state == ECH_CHILD_READY && ech_endpoint_busy(ep) < ECH_FRAMES;
}

/* Whether the oldest frame is done: one load, for spinning. */
bool ech_endpoint_has_news(const ech_endpoint *ep);

/*
 * Writes the next frame (STAGED); the child doesn't look at it before it is activated. There is
 * room. callable_generation as in the registry.
 */
ech_frame *ech_endpoint_stage(ech_endpoint *ep, const ech_identity *id, const ech_slot *slot,
                              uint16_t member, uint32_t callable_generation);
/* STAGED -> READY, and wakes the child. */
void ech_endpoint_activate(ech_endpoint *ep, ech_frame *frame);
/* Takes completed frames off the ring, in order. */
void ech_endpoint_collect(ech_endpoint *ep, const ech_completion_sink *sink);
/*
 * No more tasks for this child. distrust: it broke the protocol; its answers are ignored from now
 * on and the process is killed. What it has in flight completes when its end is reported, since
 * until then it may still write to the tasks' memory.
 */
void ech_endpoint_poison(ech_endpoint *ep, const ech_error *why, bool distrust);
/*
 * The process is gone: LOST (or POISONED, if it was), and every frame handed over and not completed
 * yields one failed completion.
 */
void ech_endpoint_lose(ech_endpoint *ep, const ech_error *why, const ech_completion_sink *sink);
/* Ready for the next process of this child. */
void ech_endpoint_reset(ech_endpoint *ep, uint32_t generation);
/* "chip 0 of node", "sub 1 of node": how errors call it. */
void ech_endpoint_name(const ech_endpoint *ep, const char *worker, uint32_t n_next, char *out,
                       size_t cap);

#endif
