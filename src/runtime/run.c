/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: see run.h. A run is complete when its callback is over and nothing of it is open. They end
 * in order: the prepared run begins when the active one has ended well, and ends unlaunched, with
 * the same cause, when it has not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/futex.h"
#include "src/runtime/deps.h"
#include "src/runtime/sched.h"
#include "src/runtime/trace.h"

/* ---- Queues ------------------------------------------------------------------------------------
 */

void ech_queue_push(ech_graph *const g, ech_queue *const q, ech_slot *const s)
{
    s->next = ECH_NO_SLOT;
    if (q->len++ == 0) {
        q->head = s->ref;
    } else {
        ech_graph_slot(g, q->tail)->next = s->ref;
    }
    q->tail = s->ref;
}

ech_slot *ech_queue_peek(const ech_graph *const g, const ech_queue *const q)
{
    return q->len > 0 ? ech_graph_slot(g, q->head) : NULL;
}

ech_slot *ech_queue_pop(const ech_graph *const g, ech_queue *const q)
{
    ech_slot *const s = ech_queue_peek(g, q);
    if (s == NULL) return NULL;
    q->head = s->next;
    q->len--;
    return s;
}

/* ---- Objects -----------------------------------------------------------------------------------
 */

uint8_t ech_run_add_cause(ech_run *const run, const ech_error *const cause)
{
    if (run->n_causes < ECH_MAX_CAUSES) run->causes[run->n_causes++] = *cause;
    return (uint8_t)run->n_causes;
}

/* Lock held. From the pool, or new. */
static ech_run *run_alloc(ech_worker *const w)
{
    ech_run *run = w->runs.pool;
    if (run != NULL) {
        w->runs.pool = run->free_next;
        /* The texts need no clearing: n_causes says how many there are. */
        run->n_causes = 0;
    } else {
        run = ech_mem_alloc(1, sizeof *run);
        if (run == NULL) return NULL;
    }
    run->worker = w;
    run->refs = 2; /* the handle's and the table's */
    run->building = true;
    run->cancelled = run->done = run->reported = false;
    run->result = ECH_OK;
    run->open = run->n_ready = 0;
    run->singles_mask = 0;
    run->groups.len = run->subs.len = 0;
    run->deps = NULL;
    return run;
}

/* Lock held. */
static void run_unref(ech_run *const run)
{
    ech_worker *const w = run->worker;
    if (--run->refs > 0) return;
    ech_deps_free(&run->deps);
    run->free_next = w->runs.pool;
    w->runs.pool = run;
}

ech_run *ech_run_of(const ech_worker *const w, const ech_slot *const slot)
{
    ech_run *const run = w->runs.places[slot->run % ECH_RUN_DEPTH].run;
    return run != NULL && run->id == slot->run_id ? run : NULL;
}

/* ---- Ending ------------------------------------------------------------------------------------
 */

/* All that isn't launched fails; what runs is let run. */
void ech_run_skip(ech_worker *const w, ech_run *const run, const uint8_t cause)
{
    memset(run->singles, 0, sizeof run->singles);
    run->groups.len = run->subs.len = 0;
    run->singles_mask = 0;
    run->n_ready = 0;
    for (uint32_t i = 0; i < ECH_RINGS; i++) {
        const ech_graph_ring *const r = &w->graph.rings[i];
        for (uint64_t k = r->tail; k < r->head; k++) {
            ech_slot *const s = &r->slots[k & (r->window - 1)];
            if (s->run_id != run->id) continue;
            if (s->state != ECH_SLOT_PENDING && s->state != ECH_SLOT_READY) continue;
            w->count.tasks_skipped++;
            ech_graph_finish(&w->graph, s, true, cause);
        }
    }
}

static void fail_prepared(ech_worker *const w, ech_run *const run, const ech_error *const cause)
{
    ech_error e = { 0 };
    (void)ech_fail(&e, cause->code, "not launched, the run before it failed: %s", cause->text);
    const uint8_t number = ech_run_add_cause(run, &e);
    ech_run_skip(w, run, number);
}

/* All runs below the oldest one in flight are finished, whichever order failures end them in. */
static void note_done(ech_run_table *const t)
{
    t->done_id = t->active != NULL     ? t->active->id - 1
                 : t->prepared != NULL ? t->prepared->id - 1
                                       : t->last_id;
}

static void end_run(ech_worker *const w, ech_run *const run)
{
    run->done = true;
    run->result = run->n_causes > 0 ? run->causes[0].code : ECH_OK;
    w->count.runs++;
    if (run->result != ECH_OK) w->count.runs_failed++;
    (void)ech_lease_release(&w->runs, (ech_lease){ run->lease, run->lease_generation });
    ech_run *const prepared = w->runs.prepared;
    if (w->runs.active == run) {
        w->runs.active = NULL;
    } else if (prepared == run) {
        w->runs.prepared = NULL;
    }
    note_done(&w->runs);
    ech_trace_run(w, run);
    if (run->result != ECH_OK && !run->reported && prepared != NULL && prepared != run &&
        !prepared->cancelled) {
        prepared->cancelled = true;
        fail_prepared(w, prepared, &run->causes[0]);
        ech_run_settle(w, prepared);
    }
    run_unref(run);
    if (ech_load_relaxed(&w->shared->sleeping) > 0 || w->drivers != 1) ech_sched_kick(w);
}

void ech_run_settle(ech_worker *const w, ech_run *const run)
{
    if (run->building || run->open > 0 || run->done) return;
    /* In order: a prepared run waits for the active one, unless it has failed and holds nothing. */
    if (run == w->runs.prepared && w->runs.active != NULL && run->n_causes == 0) return;
    end_run(w, run);
}

void ech_run_promote(ech_worker *const w)
{
    while (w->runs.active == NULL && w->runs.prepared != NULL && w->boundary_waiters == 0) {
        ech_run *const run = w->runs.prepared;
        w->runs.prepared = NULL;
        w->runs.active = run;
        ech_run_settle(w, run);
    }
}

void ech_run_abort(ech_worker *const w, ech_run *const run)
{
    ech_error e = { 0 };
    if (run->done || run->cancelled) return;
    run->cancelled = true;
    (void)ech_fail(&e, ECH_ECANCELLED, "run %llu of %s was cancelled", (unsigned long long)run->id,
                   w->name);
    ech_run_skip(w, run, ech_run_add_cause(run, &e));
    for (uint32_t c = 0; c < w->n_children && run == w->runs.active; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        if (ech_endpoint_busy(ep)) ech_store_release(&ep->mail->abort_run, run->id);
    }
    ech_run_settle(w, run);
    ech_sched_kick(w);
}

/* ---- Submitting --------------------------------------------------------------------------------
 */

static bool has_place(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < w->runs.depth; i++)
        taken += w->runs.places[i].run != NULL;
    /* While a boundary keeps the prepared run back there is no active one, and still no room. */
    return w->closing || (taken < w->runs.depth && w->runs.prepared == NULL);
}

static ech_status check_ready(const ech_worker *const w, ech_error *const err)
{
    if (w->state != ECH_WORKER_READY)
        return ech_fail(err, ECH_ESTATE, "submitting a run to %s: it is %s, not READY", w->name,
                        ech_worker_state_name((ech_worker_state)w->state));
    if (w->closing)
        return ech_fail(err, ECH_ECANCELLED, "submitting a run to %s: it is being closed", w->name);
    return ECH_OK;
}

/* Lock held; waits for a place in the pipeline, before the callback. */
static ech_status begin_run(ech_worker *const w, ech_run **const ret, ech_error *const err)
{
    ECH_TRY(check_ready(w, err));
    if (!has_place(w, NULL)) (void)ech_sched_wait(w, has_place, NULL, ECH_NO_DEADLINE);
    ECH_TRY(check_ready(w, err));
    ech_run *const run = run_alloc(w);
    if (run == NULL) {
        (void)ech_fail(err, ECH_ENOMEM, "submitting a run to %s: out of memory", w->name);
        return ECH_ENOMEM;
    }
    ech_lease lease;
    const bool took = ech_lease_take(&w->runs, run, &lease);
    ECH_ASSERT(took);
    (void)took;
    run->lease = lease.place;
    run->lease_generation = lease.generation;
    run->id = ++w->runs.last_id;
    run->t_begin_ns = ech_trace_on(w) ? ech_now_ns() : 0;
    if (w->keep_deps) run->deps = ech_deps_new(w);
    if (w->runs.active == NULL && w->boundary_waiters == 0) {
        w->runs.active = run;
    } else {
        w->runs.prepared = run;
    }
    w->orch.worker = w;
    w->orch.run = run;
    ech_graph_open(&w->graph, run->id, run->lease);
    *ret = run;
    return ECH_OK;
}

/* Lock held. The callback is over: rc is what it returned. */
static void finish_building(ech_worker *const w, ech_run *const run, const ech_status rc,
                            const ech_error *const e)
{
    if (rc != ECH_OK) {
        const uint8_t number = ech_run_add_cause(run, e);
        run->cancelled = run->reported = true;
        ech_run_skip(w, run, number);
    }
    ech_graph_close(&w->graph);
    run->building = false;
    w->orch.run = NULL;
    ech_run_settle(w, run);
    (void)ech_sched_dispatch(w);
}

static ech_status submit(ech_worker *const w, const ech_orch_fn fn, void *const arg,
                         ech_lease_guard *const guard, ech_run **const ret_run,
                         ech_error *const err)
{
    ech_run *run = NULL;
    ech_error e = { 0 };
    pthread_mutex_lock(&w->lock);
    ech_sched_enter(w);
    ech_status rc = begin_run(w, &run, err);
    if (rc != ECH_OK) {
        ech_sched_leave(w);
        pthread_mutex_unlock(&w->lock);
        return rc;
    }
    pthread_mutex_unlock(&w->lock);
    ech_lease_callback(guard, true);
    rc = fn(&w->orch, arg, &e);
    ech_lease_callback(guard, false);
    pthread_mutex_lock(&w->lock);
    if (rc != ECH_OK && e.code == ECH_OK)
        (void)ech_fail(&e, rc, "the orchestration callback returned %s", ech_status_name(rc));
    finish_building(w, run, rc, &e);
    if (rc != ECH_OK) {
        if (err != NULL) *err = e;
        run_unref(run);
    } else {
        *ret_run = run;
    }
    ech_sched_leave(w);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

ech_status ech_worker_submit(ech_worker *const w, const ech_orch_fn fn, void *const arg,
                             ech_run **const ret_run, ech_error *const err)
{
    ech_lease_guard guard;
    ECH_TRY(ech_lease_begin(w, "submitting a run", &guard, err));
    pthread_mutex_lock(&w->submit_lock);
    const ech_status rc = submit(w, fn, arg, &guard, ret_run, err);
    pthread_mutex_unlock(&w->submit_lock);
    ech_lease_end(w, &guard);
    return rc;
}

/* ---- Waiting -----------------------------------------------------------------------------------
 */

static bool is_done(ech_worker *const w, void *const ctx)
{
    (void)w;
    return ((const ech_run *)ctx)->done;
}

static int64_t deadline_of(const double timeout_s)
{
    if (!(timeout_s >= 0)) return ECH_NO_DEADLINE;
    const int64_t now = ech_now_ns();
    return timeout_s > 1e9 ? ECH_NO_DEADLINE : now + (int64_t)(timeout_s * 1e9);
}

static ech_status wait_locked(ech_run *const run, const int64_t deadline, ech_error *const err)
{
    ech_worker *const w = run->worker;
    if (!run->done && !ech_sched_wait(w, is_done, run, deadline))
        return ech_fail(err, ECH_ETIMEOUT, "waiting for run %llu of %s: it still runs",
                        (unsigned long long)run->id, w->name);
    if (run->result != ECH_OK && err != NULL) *err = run->causes[0];
    return run->result;
}

ech_status ech_run_wait(ech_run *const run, const double timeout_s, ech_error *const err)
{
    ech_worker *const w = run->worker;
    if (ech_lease_inside(w))
        return ech_fail(err, ECH_EREENTRANT, "waiting for a run from inside a callback of %s",
                        w->name);
    const int64_t deadline = deadline_of(timeout_s);
    pthread_mutex_lock(&w->lock);
    w->waiters++;
    const ech_status rc = wait_locked(run, deadline, err);
    if (--w->waiters == 0) pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

ech_status ech_worker_run(ech_worker *const w, const ech_orch_fn fn, void *const arg,
                          ech_error *const err)
{
    ech_lease_guard guard;
    ech_run *run = NULL;
    ECH_TRY(ech_lease_begin(w, "running a graph", &guard, err));
    pthread_mutex_lock(&w->lock);
    ech_sched_enter(w); /* this thread drives from the callback to the end: no hand-over between */
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_lock(&w->submit_lock);
    ech_status rc = submit(w, fn, arg, &guard, &run, err);
    pthread_mutex_unlock(&w->submit_lock);
    pthread_mutex_lock(&w->lock);
    if (rc == ECH_OK) {
        rc = wait_locked(run, ECH_NO_DEADLINE, err);
        run_unref(run);
    }
    ech_sched_leave(w);
    pthread_mutex_unlock(&w->lock);
    ech_lease_end(w, &guard);
    return rc;
}

bool ech_run_done(const ech_run *const run)
{
    pthread_mutex_lock(&run->worker->lock);
    const bool done = run->done;
    pthread_mutex_unlock(&run->worker->lock);
    return done;
}

void ech_run_cancel(ech_run *const run)
{
    pthread_mutex_lock(&run->worker->lock);
    ech_run_abort(run->worker, run);
    pthread_mutex_unlock(&run->worker->lock);
}

uint64_t ech_run_id(const ech_run *const run)
{
    return run->id;
}

void ech_run_release(ech_run **const run)
{
    if (*run == NULL) return;
    ech_worker *const w = (*run)->worker;
    pthread_mutex_lock(&w->lock);
    run_unref(*run);
    pthread_mutex_unlock(&w->lock);
    *run = NULL;
}
