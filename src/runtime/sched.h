/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: completions in, ready tasks out. Its loop is run by whoever waits: a thread inside
 * a wait drives it, and the scheduler's own thread only when nobody else does, so that a run with
 * one task needs two running threads, the caller's and the child's.
 */
#ifndef ECH_RUNTIME_SCHED_H
#define ECH_RUNTIME_SCHED_H

#include "src/runtime/node.h"

/* What a wait waits for; called with the lock held, must not wait. */
typedef bool (*ech_done_fn)(ech_worker *w, void *ctx);

/*
 * Drives the scheduler until done says so or the deadline (ECH_NO_DEADLINE: none) has passed.
 * Lock held on entry and on return. Returns what done said last.
 */
bool ech_sched_wait(ech_worker *w, ech_done_fn done, void *ctx, int64_t deadline_ns);
/* One round without waiting: completions, deaths, hand-overs. Whether anything moved. Lock held. */
bool ech_sched_pump(ech_worker *w);
/* Hands over what is ready. Lock held. */
bool ech_sched_dispatch(ech_worker *w);
/* Something that sleepers wait for has changed. Lock held. */
void ech_sched_kick(ech_worker *w);
/* Announces and retracts a thread that drives by itself, between its waits too. Lock held. */
void ech_sched_enter(ech_worker *w);
void ech_sched_leave(ech_worker *w);

/* Waits until no run is active and keeps the prepared one back until leave. Lock held. */
ech_status ech_sched_boundary_enter(ech_worker *w, ech_error *err);
void ech_sched_boundary_leave(ech_worker *w);

ech_status ech_sched_start(ech_worker *w, ech_error *err);
void ech_sched_stop(ech_worker *w);

/* The graph's hooks. */
void ech_sched_ready(void *ctx, ech_slot *slot);
void ech_sched_terminal(void *ctx, ech_slot *slot);

/* events.c: deaths that the zygote reports, stalls, the zygote itself. Whether anything changed. */
bool ech_events_take(ech_worker *w);
bool ech_events_check(ech_worker *w, int64_t now_ns);
/* How often liveness is looked at while something waits. */
#define ECH_CHECK_NS (INT64_C(100) * ECH_NS_PER_MS)

/* run.c, for the scheduler: lock held. */
ech_run *ech_run_of(const ech_worker *w, const ech_slot *slot);
/* Ends the run if its callback is over and nothing is open. */
void ech_run_settle(ech_worker *w, ech_run *run);
/* Fails what isn't launched, with cause number `cause`. */
void ech_run_skip(ech_worker *w, ech_run *run, uint8_t cause);
/* Stops a run: skips what isn't launched, asks the rest to stop. */
void ech_run_abort(ech_worker *w, ech_run *run);
/* Makes the prepared run the active one when it may begin. */
void ech_run_promote(ech_worker *w);

ech_completion_sink ech_sched_sink(ech_worker *w);

#endif
