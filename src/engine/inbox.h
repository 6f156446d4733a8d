/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where other threads reach the engine's thread: new requests, and a bell for everything else
 * (a cancel, a reader that has caught up). It outlives the engine as long as a request does, so
 * that a late cancel rings a bell that nobody hears, and touches nothing that is gone.
 *
 * Limits of the queue are kept here, because they are checked on the submitting thread: what was
 * accepted is counted in until the engine admits it.
 */
#ifndef ECH_ENGINE_INBOX_H
#define ECH_ENGINE_INBOX_H

#include <pthread.h>

#include "echelon/engine.h"

/* A function that the engine's thread calls for another thread, which waits. */
typedef struct ech_inbox_call {
    void (*fn)(void *arg);
    void *arg;
    bool is_done;
    struct ech_inbox_call *next;
} ech_inbox_call;

typedef struct ech_inbox {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    uint32_t refs;    /* the engine and every request */
    bool is_closed;   /* the engine takes nothing any more */
    ech_error failed; /* code ECH_OK, or why the engine can't run anything */
    bool has_rung;
    ech_request *head, *tail; /* new requests, linked by next_new */
    ech_inbox_call *calls;    /* guarded like all of it; their owners wait for `called` */
    pthread_cond_t called;
    uint64_t n_requests;  /* accepted ever: numbers them */
    uint32_t waiting;     /* choices accepted and not started */
    uint64_t waiting_ids; /* their prompts' */
    uint32_t max_waiting;
    uint64_t max_waiting_ids;
    uint64_t n_refused;
} ech_inbox;

/* One reference, the caller's. */
ech_status ech_inbox_create(ech_inbox **ret_inbox, ech_error *err);
void ech_inbox_ref(ech_inbox *inbox);
void ech_inbox_unref(ech_inbox **inbox);

/*
 * Puts a request in, if the queue takes that many choices with that many prompt ids: sets its id.
 * EBUSY says how full the queue is; the engine's own error when it failed; ESTATE when closed.
 */
ech_status ech_inbox_put(ech_inbox *inbox, ech_request *request, uint32_t n_choices, uint64_t n_ids,
                         ech_error *err);
/* Choices have started, or ended without: they no longer count as waiting. */
void ech_inbox_started(ech_inbox *inbox, uint32_t n_choices, uint64_t n_ids);
void ech_inbox_ring(ech_inbox *inbox);
/*
 * Takes all new requests, in order, linked by next_new; NULL when there are none. Waits for one, or
 * for the bell, until deadline_ns (monotonic; 0: doesn't wait). *ret_rung: the bell, now silent.
 */
ech_request *ech_inbox_take(ech_inbox *inbox, int64_t deadline_ns, bool *ret_rung);
/* Has fn(arg) called on the engine's thread, between two steps, and waits for it. ESTATE: the
 * engine is closed. Not from the engine's thread. */
ech_status ech_inbox_call_and_wait(ech_inbox *inbox, void (*fn)(void *arg), void *arg,
                                   ech_error *err);
/* Makes the calls that were asked for. The engine's thread. */
void ech_inbox_serve(ech_inbox *inbox);
/* From now on put fails with this; NULL: the engine is closed. */
void ech_inbox_fail(ech_inbox *inbox, const ech_error *why);
/* The opposite: the engine runs again. */
void ech_inbox_heal(ech_inbox *inbox);

#endif
