/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's thread: fills the weights, then turns.
 *
 *     take new requests · look at cancels and deadlines
 *     while fewer than two steps are in flight and there are rows: plan, build, send
 *     wait for the oldest step · commit · read what it drew
 *
 * The next step is planned while one runs, on the guess that no answer ends in it: the rows of one
 * that does were computed for nothing, and nothing of them is seen.
 */
#include <math.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/engine/engine_int.h"

/* How often a step is left alone while it is waited for, to see cancels and new requests. */
#define LOOK_S 0.1

static bool is_closing(ech_engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    const bool closing = e->is_closing;
    (void)pthread_mutex_unlock(&e->lock);
    return closing;
}

static void set_state(ech_engine *e, ech_engine_state state, const ech_error *why)
{
    (void)pthread_mutex_lock(&e->lock);
    e->state = state;
    if (why != NULL) e->failure = *why;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
}

void ech_engine_fail(ech_engine *e, const ech_error *why)
{
    ech_inbox_fail(e->inbox, why);
    set_state(e, ECH_ENGINE_FAILED, why);
    ech_inbox_ring(e->inbox); /* the engine's thread may be about to wait for requests */
}

/* ---- requests ---- */

static void take_requests(ech_engine *e, int64_t deadline_ns)
{
    bool rung;
    ech_request *r = ech_inbox_take(e->inbox, deadline_ns, &rung);
    while (r != NULL) {
        ech_request *const next = r->next_new;
        ech_live_accept(e, r);
        r = next;
    }
    ech_inbox_serve(e->inbox);
    ech_live_look(e, rung);
    ech_live_reap(e);
}

/* ---- sending ---- */

static uint32_t count_decoding(const ech_engine *e)
{
    uint32_t n = 0;
    for (const ech_seq *seq = e->sched.running.head; seq != NULL; seq = seq->next)
        n += !seq->is_paused && !seq->embeds && seq->n_sent >= seq->n_prompt;
    return n;
}

static void plan_step(ech_engine *e, ech_step *step)
{
    const uint32_t budget =
        ech_cost_budget(&e->cost, count_decoding(e), e->options.max_itl_ms * ECH_NS_PER_MS);
    bool again;
    do {
        ech_sched_plan(&e->sched, ech_now_ns(), budget, &step->plan);
        again = false;
        for (uint32_t i = 0; i < step->plan.n_admitted; i++) {
            ech_answer *const a = (ech_answer *)step->plan.admitted[i];
            ech_live_start(e, a);
            again = again || a->has_finished;
        }
    } while (again); /* one could not start: its rows must not stay in the plan */
}

static bool build_step(ech_engine *e, ech_step *step)
{
    ech_error err = { .code = ECH_OK };
    ech_answer *failed = NULL;
    if (ech_step_build(step, &e->memory, &failed, &err) == ECH_OK) return true;
    ech_live_finish(e, failed, ECH_FINISH_ERROR, NULL, &err);
    return false;
}

/* Plans and sends a step. False when there is nothing to send now. */
static bool send_step(ech_engine *e)
{
    /* Logits exist once: where somebody looks at them, the step after waits. */
    const uint32_t depth = e->sched.only != NULL || e->n_watchers > 0 ? 1 : 2;
    if (ech_engine_in_flight(e) >= depth || !ech_chip_is_there(e)) return false;
    ech_step *const step = &e->steps[e->n_sent & 1];
    step->parity = (uint32_t)(e->n_sent & 1);
    do {
        plan_step(e, step);
        if (step->plan.n_items == 0) return false;
    } while (!build_step(e, step));
    ech_error err = { .code = ECH_OK };
    const ech_status rc = ech_step_send(step, &e->memory, &e->programs, e->worker, &e->args, &err);
    if (rc != ECH_OK) {
        step->run = NULL;
        ech_chip_failed(e, rc, &err);
        return true;
    }
    ech_sched_sent(&e->sched, &step->plan);
    e->n_sent++;
    return true;
}

/* ---- completing ---- */

static bool is_wanted(const ech_step *step)
{
    for (uint32_t i = 0; i < step->plan.n_items; i++)
        if (!((const ech_answer *)step->plan.items[i].seq)->has_finished) return true;
    return false;
}

static ech_status wait_for_step(ech_engine *e, ech_step *step, ech_error *err)
{
    bool was_cancelled = false;
    for (;;) {
        const ech_status rc = ech_run_wait(step->run, LOOK_S, err);
        if (rc != ECH_ETIMEOUT) return rc;
        take_requests(e, 0);
        if (was_cancelled || (is_wanted(step) && !is_closing(e))) continue;
        ech_run_cancel(step->run);
        was_cancelled = true;
    }
}

/* k: n is above 2^(k-1) and at most 2^k. */
static uint32_t size_of(uint32_t n)
{
    uint32_t k = 0;
    while (k < ECH_STEP_SIZES - 1 && n > UINT32_C(1) << k)
        k++;
    return k;
}

static void count_step(ech_engine *e, const ech_step *step, int64_t ns)
{
    const ech_step_plan *const plan = &step->plan;
    uint32_t wasted = 0, prompt_rows = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const bool has_ended = ((const ech_answer *)plan->items[i].seq)->has_finished;
        wasted += has_ended ? plan->items[i].n_rows : 0;
        prompt_rows +=
            plan->items[i].first < plan->items[i].seq->n_prompt ? plan->items[i].n_rows : 0;
    }
    struct timespec cpu;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    (void)pthread_mutex_lock(&e->lock);
    ech_engine_counters *const c = &e->counters;
    c->steps++;
    c->step_rows_total += plan->n_rows;
    c->steps_of[size_of(plan->n_rows)]++;
    c->mixed_steps += plan->n_decode_rows > 0 && plan->n_rows > plan->n_decode_rows;
    c->wasted_rows += wasted;
    c->prefill_rows += prompt_rows;
    c->step_ns_total += (uint64_t)ns;
    c->host_ns_total = (uint64_t)cpu.tv_sec * ECH_NS_PER_S + (uint64_t)cpu.tv_nsec;
    c->step_ms = e->cost.step_ns / ECH_NS_PER_MS;
    c->solo_step_ms = e->cost.solo_ns / ECH_NS_PER_MS;
    c->row_us = e->cost.row_ns / ECH_NS_PER_US;
    (void)pthread_mutex_unlock(&e->lock);
}

/* What the scheduler knows, to where other threads may read it. */
static void publish(ech_engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    ech_engine_counters *const c = &e->counters;
    c->is_ready = e->state == ECH_ENGINE_READY && e->next_replace_ns == 0;
    c->requests = e->live.n;
    c->running = e->sched.running.n;
    c->pages_free = e->kv.n_free;
    c->pages_cached = e->kv.n_cached;
    c->pages_used = e->kv.n_pages - e->kv.n_free - e->kv.n_cached;
    c->preemptions = e->sched.n_preemptions;
    c->copied_pages = e->sched.n_copies;
    c->evictions = e->kv.n_evictions;
    (void)pthread_mutex_unlock(&e->lock);
}

/* The step behind the one that was read may wait for masks. */
static void open_gate(ech_engine *e)
{
    ech_step *const next = &e->steps[e->n_done & 1];
    ech_error err = { .code = ECH_OK };
    ech_answer *failed = NULL;
    if (ech_engine_in_flight(e) == 0 || !next->has_gate) return;
    while (ech_step_open_gate(next, &e->memory, e->worker, &failed, &err) != ECH_OK)
        ech_live_finish(e, failed, ECH_FINISH_ERROR, NULL, &err);
}

static double prompt_cost(const ech_engine *e, const ech_step_plan *plan)
{
    double cost = 0;
    for (uint32_t i = 0; i < plan->n_items; i++)
        if (!plan->items[i].decodes)
            cost += ech_sched_row_cost(&e->sched, plan->items[i].first, plan->items[i].n_rows);
    return cost;
}

static void complete_step(ech_engine *e)
{
    ech_step *const step = &e->steps[e->n_done & 1];
    ech_error err = { .code = ECH_OK };
    const ech_status rc = wait_for_step(e, step, &err);
    ech_run_release(&step->run);
    ech_error why = { .code = ECH_OK };
    /* With --load map a system call a step, one fstat: nothing else tells before a token is sent.
     */
    if (ech_load_check(e, &why) != ECH_OK) {
        ech_chip_lost_weights(e, &why);
        return;
    }
    if (rc != ECH_OK) {
        ech_chip_failed(e, rc, &err);
        return;
    }
    const int64_t now = ech_now_ns();
    const int64_t began = step->sent_ns > e->last_done_ns ? step->sent_ns : e->last_done_ns;
    e->last_done_ns = now;
    e->n_done++;
    ech_cost_observe(&e->cost, step->plan.n_decode_rows, prompt_cost(e, &step->plan), now - began);
    ech_sched_committed(&e->sched, &step->plan);
    ech_live_read(e, step);
    open_gate(e);
    ech_chip_worked(e, step);
    count_step(e, step, now - began);
    ech_live_reap(e);
}

/* ---- the thread ---- */

/* A burst arrives within a moment, and the first step would be its first request's alone: who was
 * idle waits a quarter of a decode step for the others. */
static void await_companions(const ech_engine *e)
{
    const struct timespec moment = { .tv_nsec = (long)fmin(e->cost.solo_ns / 4, 1e8) };
    (void)nanosleep(&moment, NULL);
}

static void idle(ech_engine *e)
{
    publish(e);
    int64_t until = ech_live_next_deadline(e);
    if (e->next_replace_ns > 0 && e->next_replace_ns < until) until = e->next_replace_ns;
    const int64_t limit = ech_now_ns() + 3600 * ECH_NS_PER_S;
    take_requests(e, until < limit ? until : limit);
    if (e->sched.waiting.n > 0) await_companions(e);
}

static void turn(ech_engine *e)
{
    take_requests(e, 0);
    while (send_step(e))
        ;
    if (ech_engine_in_flight(e) > 0)
        complete_step(e);
    else
        idle(e);
    publish(e);
}

static void load(ech_engine *e)
{
    ech_error err = { .code = ECH_OK };
    if (ech_load_run(e, &err) == ECH_OK) {
        set_state(e, ECH_ENGINE_READY, NULL);
        publish(e);
        return;
    }
    (void)ech_error_prefix(&err, err.code, "loading the weights");
    ech_engine_fail(e, &err);
}

void *ech_engine_thread(void *engine)
{
    ech_engine *const e = engine;
    load(e);
    while (!is_closing(e)) {
        if (e->state == ECH_ENGINE_READY) {
            turn(e);
            continue;
        }
        ech_live_end_all(e, ECH_FINISH_ERROR, &e->failure);
        ech_live_reap(e);
        publish(e);
        take_requests(e, ech_now_ns() + 3600 * ECH_NS_PER_S);
    }
    ech_inbox_fail(e->inbox, NULL);
    while (ech_engine_in_flight(e) > 0)
        complete_step(e);
    take_requests(e, 0);
    ech_live_end_all(e, ECH_FINISH_CANCELLED, NULL);
    ech_live_reap(e);
    ECH_ASSERT(e->live.n == 0 && e->ending.n == 0);
    return NULL;
}
