/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's loop and hand-overs: see sched.h. All state is guarded by the worker's lock,
 * which is held for one round at a time and never while spinning or sleeping. After a task is
 * claimed (READY -> RUNNING) nothing allocates.
 */
#include "src/runtime/sched.h"

#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/fault.h"
#include "src/base/os/futex.h"
#include "src/base/os/process.h"
#include "src/runtime/trace.h"

/* ---- Completions -------------------------------------------------------------------------------
 */

static void on_accepted(void *const ctx, ech_endpoint *const ep, const ech_identity *const id)
{
    ech_worker *const w = ctx;
    ech_slot *const s = ech_graph_slot(&w->graph, id->slot);
    (void)ep;
    if (s->generation != id->generation) return;
    s->accepted = true;
    w->count.accepted++;
}

/* A cause as the owner reads it: who, which task, the child's code and words. */
static uint8_t add_cause(ech_worker *const w, ech_run *const run, const ech_endpoint *const ep,
                         const ech_slot *const s, const ech_completion *const c)
{
    char who[ECH_NAME_BYTES + 32];
    ech_error e = { 0 };
    const bool of_endpoint = c->result == ECH_ELOST || c->result == ECH_EPOISONED ||
                             c->result == ECH_ESTALLED || c->result == ECH_ECANCELLED;
    ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
    (void)ech_fail(&e, of_endpoint ? c->result : ECH_ETASK, "%s: task %u '%s': %s: %s", who,
                   s->serial, s->label, ech_status_name(c->result), c->text);
    return ech_run_add_cause(run, &e);
}

static void on_completed(void *const ctx, ech_endpoint *const ep, const ech_completion *const c)
{
    ech_worker *const w = ctx;
    ech_slot *const s = ech_graph_slot(&w->graph, c->id.slot);
    /* A late answer for a slot that has moved on is nobody's. */
    if (s->generation != c->id.generation || s->state != ECH_SLOT_RUNNING) return;
    ech_run *const run = ech_run_of(w, s);
    if (run == NULL) return;
    if (c->result != ECH_OK) {
        s->members_failed++;
        if (s->cause == 0) s->cause = add_cause(w, run, ep, s, c);
    }
    ech_trace_task(w, ep, s, c);
    if (--s->members_left > 0) return;
    ech_graph_finish(&w->graph, s, s->members_failed > 0, s->cause);
}

ech_completion_sink ech_sched_sink(ech_worker *const w)
{
    return (ech_completion_sink){ on_accepted, on_completed, w };
}

void ech_sched_terminal(void *const ctx, ech_slot *const slot)
{
    ech_worker *const w = ctx;
    ech_run *const run = ech_run_of(w, slot);
    if (slot->kind != ECH_SLOT_GATE) {
        w->count.tasks++;
        if (slot->state == ECH_SLOT_FAILED) w->count.tasks_failed++;
    }
    ech_trace_terminal(w, slot);
    if (run == NULL) return;
    run->open--;
    ech_run_settle(w, run);
}

static bool collect(ech_worker *const w)
{
    const ech_completion_sink sink = ech_sched_sink(w);
    bool moved = false;
    for (uint32_t c = 0; c < w->n_children; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        if (!ech_endpoint_busy(ep)) continue;
        const uint64_t tail = ep->tail;
        ech_endpoint_collect(ep, &sink);
        moved |= ep->tail != tail;
    }
    return moved;
}

/* ---- Ready queues ------------------------------------------------------------------------------
 */

void ech_sched_ready(void *const ctx, ech_slot *const slot)
{
    ech_worker *const w = ctx;
    ech_graph *const g = &w->graph;
    ech_run *const run = ech_run_of(w, slot);
    run->n_ready++;
    if (ech_trace_on(w)) slot->t_ready_ns = ech_now_ns();
    switch (slot->kind) {
    case ECH_SLOT_GROUP:
        ech_queue_push(g, &run->groups, slot);
        break;
    case ECH_SLOT_SUB:
        ech_queue_push(g, &run->subs, slot);
        break;
    default:
        ech_queue_push(g, &run->singles[slot->child], slot);
        run->singles_mask |= UINT64_C(1) << slot->child;
    }
}

/* ---- Hand-overs --------------------------------------------------------------------------------
 */

static void hand_over(ech_worker *const w, ech_endpoint *const ep, const ech_slot *const s,
                      const uint16_t member)
{
    const ech_identity id = { ++w->dispatch_id, s->run_id, s->ref, s->generation };
    ep->reserved_ns = 0; /* an episode of being kept idle ends here */
    ep->reserved_warned = false;
    ech_frame *const f =
        ech_endpoint_stage(ep, &id, s, member, w->shared->callables[s->callable].generation);
    if (s->rings_heap | s->rings_window | s->rings_pool || f->ring_heap | f->ring_window) {
        f->ring_heap = s->rings_heap;
        f->ring_window = s->rings_window;
        f->ring_pool = s->rings_pool;
    }
    if (ech_trace_on(w)) memcpy(f->label, s->label, sizeof f->label);
    ech_endpoint_activate(ep, f);
}

/* Its child is lost: the task fails at once, with the endpoint's reason. */
static void fail_slot(ech_worker *const w, ech_run *const run, ech_slot *const s,
                      const ech_endpoint *const ep)
{
    const ech_completion c = { .result = ep->lost.code, .text = ep->lost.text };
    if (!ech_slot_claim(s)) return;
    ech_graph_finish(&w->graph, s, true, add_cause(w, run, ep, s, &c));
}

static bool is_gone(const ech_endpoint *const ep)
{
    return ep->state != ECH_CHILD_READY && ep->state != ECH_CHILD_STARTING;
}

/* Which children the group at the head of the queue keeps for itself, and from when on. */
typedef struct reservation {
    uint64_t children; /* bit mask */
    uint64_t seq;      /* singles that became ready later wait */
} reservation;

static bool earlier_single(const ech_worker *const w, const ech_run *const run,
                           const uint32_t child, const uint64_t seq)
{
    const ech_slot *const s = ech_queue_peek(&w->graph, &run->singles[child]);
    return s != NULL && s->ready_seq < seq;
}

static bool group_may_start(const ech_worker *const w, const ech_run *const run,
                            const ech_slot *const g)
{
    for (uint32_t m = 0; m < g->n_members; m++) {
        const ech_endpoint *const ep = &w->endpoints[g->member_child[m]];
        if (is_gone(ep)) continue; /* its member fails, the others run */
        if (ep->state != ECH_CHILD_READY || ech_endpoint_busy(ep) > 0 ||
            earlier_single(w, run, ep->child, g->ready_seq))
            return false;
    }
    return true;
}

/* All members at once; one whose child is gone fails, and those after it are skipped. */
static void start_group(ech_worker *const w, ech_run *const run, ech_slot *const g)
{
    if (!ech_slot_claim(g)) return;
    const uint32_t n = g->n_members;
    uint32_t started = 0;
    for (; started < n; started++) {
        ech_endpoint *const ep = &w->endpoints[g->member_child[started]];
        if (is_gone(ep)) {
            const ech_completion c = { .result = ep->lost.code, .text = ep->lost.text };
            g->cause = add_cause(w, run, ep, g, &c);
            break;
        }
        hand_over(w, ep, g, (uint16_t)started);
    }
    if (started == n) return;
    g->members_failed = 1;
    g->members_left = started;
    w->count.tasks_skipped += n - started - 1;
    if (started == 0) ech_graph_finish(&w->graph, g, true, g->cause);
}

static void warn_reserved(ech_worker *const w, ech_endpoint *const ep, const bool waiting,
                          const ech_slot *const group)
{
    if (!waiting || ech_endpoint_busy(ep) > 0) {
        ep->reserved_ns = 0;
        ep->reserved_warned = false;
        return;
    }
    const int64_t now = ech_now_ns();
    if (ep->reserved_ns == 0) ep->reserved_ns = now;
    if (ep->reserved_warned || now - ep->reserved_ns < w->warn_ns) return;
    ep->reserved_warned = true;
    w->count.warnings++;
    ech_log(ECH_LOG_WARN,
            "%s: child %u is idle and has tasks, but group task %u '%s' keeps it; it waits for "
            "its other children",
            w->name, ep->child, group->serial, group->label);
}

static bool dispatch_groups(ech_worker *const w, ech_run *const run, reservation *const res)
{
    bool moved = false;
    ech_slot *g;
    *res = (reservation){ 0, UINT64_MAX };
    while ((g = ech_queue_peek(&w->graph, &run->groups)) != NULL) {
        if (!group_may_start(w, run, g)) break;
        (void)ech_queue_pop(&w->graph, &run->groups);
        run->n_ready--;
        start_group(w, run, g);
        moved = true;
    }
    if (g == NULL) return moved;
    res->seq = g->ready_seq;
    for (uint32_t m = 0; m < g->n_members; m++)
        res->children |= UINT64_C(1) << g->member_child[m];
    return moved;
}

static bool dispatch_child(ech_worker *const w, ech_run *const run, const uint32_t child,
                           const reservation *const res)
{
    ech_endpoint *const ep = &w->endpoints[child];
    const bool reserved = res->children >> child & 1;
    bool moved = false, waiting = false;
    ech_slot *s;
    while ((s = ech_queue_peek(&w->graph, &run->singles[child])) != NULL) {
        waiting = reserved && s->ready_seq > res->seq;
        if (waiting || !(ech_endpoint_has_room(ep) || is_gone(ep))) break;
        (void)ech_queue_pop(&w->graph, &run->singles[child]);
        run->n_ready--;
        moved = true;
        if (is_gone(ep)) {
            fail_slot(w, run, s, ep);
        } else if (ech_slot_claim(s)) {
            hand_over(w, ep, s, 0);
        }
    }
    if (s == NULL) run->singles_mask &= ~(UINT64_C(1) << child);
    if (reserved) warn_reserved(w, ep, waiting, ech_queue_peek(&w->graph, &run->groups));
    return moved;
}

static bool dispatch_singles(ech_worker *const w, ech_run *const run, const reservation *const res)
{
    bool moved = false;
    for (uint64_t left = run->singles_mask; left != 0; left &= left - 1)
        moved |= dispatch_child(w, run, (uint32_t)__builtin_ctzll(left), res);
    return moved;
}

/*
 * An idle sub child, NULL when there is none. A single one may have its ring filled: nobody else
 * could run those tasks sooner. *ret_gone: the last of them that is gone when all are.
 */
static ech_endpoint *find_sub(ech_worker *const w, const ech_endpoint **const ret_gone)
{
    const uint32_t n = w->n_subs;
    uint32_t n_gone = 0;
    for (uint32_t i = 0; i < n; i++) {
        ech_endpoint *const ep = &w->endpoints[w->n_next + (w->next_sub + i) % n];
        if (is_gone(ep)) {
            n_gone++;
            *ret_gone = ep;
        } else if (n == 1 ? ech_endpoint_has_room(ep)
                          : ep->state == ECH_CHILD_READY && ech_endpoint_busy(ep) == 0) {
            w->next_sub = (w->next_sub + i + 1) % n;
            return ep;
        }
    }
    if (n_gone < n) *ret_gone = NULL;
    return NULL;
}

static bool dispatch_subs(ech_worker *const w, ech_run *const run)
{
    bool moved = false;
    ech_slot *s;
    while ((s = ech_queue_peek(&w->graph, &run->subs)) != NULL) {
        const ech_endpoint *gone = NULL;
        ech_endpoint *const ep = find_sub(w, &gone);
        if (ep == NULL && gone == NULL) break;
        (void)ech_queue_pop(&w->graph, &run->subs);
        run->n_ready--;
        moved = true;
        if (ep == NULL) {
            fail_slot(w, run, s, gone);
        } else if (ech_slot_claim(s)) {
            s->child = (int32_t)ep->child;
            hand_over(w, ep, s, 0);
        }
    }
    return moved;
}

bool ech_sched_dispatch(ech_worker *const w)
{
    ech_run *const run = w->runs.active;
    reservation res = { 0, UINT64_MAX };
    if (run == NULL || run->n_ready == 0) return false;
    bool moved = false;
    if (run->groups.len > 0) moved = dispatch_groups(w, run, &res);
    /* A run that failed while its tasks were handed over has nothing left in its queues. */
    if (run->singles_mask != 0) moved |= dispatch_singles(w, run, &res);
    if (run->subs.len > 0) moved |= dispatch_subs(w, run);
    return moved;
}

/* ---- The loop ----------------------------------------------------------------------------------
 */

bool ech_sched_pump(ech_worker *const w)
{
    bool moved = collect(w);
    if (ech_load_relaxed(&w->shared->zygote_events) != w->seen_events) moved |= ech_events_take(w);
    ech_run_promote(w);
    moved |= ech_sched_dispatch(w);
    w->pump_seq++;
    if (moved && w->my_mail != NULL) ech_fetch_add_relaxed(&w->my_mail->progress, 1);
    return moved;
}

void ech_sched_kick(ech_worker *const w)
{
    ech_fetch_add(&w->kicks, 1);
    if (ech_load_relaxed(&w->shared->sleeping) > 0) {
        ech_fetch_add(&w->shared->bell, 1);
        ech_os_futex_wake(&w->shared->bell);
        w->count.wakes++;
    }
    pthread_cond_broadcast(&w->cond);
}

/*
 * Spins, without the lock, until a frame is done, somebody kicks, or the time is over. What to
 * look at is copied first, since others may hand over meanwhile.
 */
static void spin(ech_worker *const w, const int64_t until_ns)
{
    const uint32_t *words[ECH_MAX_CHILDREN];
    uint32_t n = 0;
    for (uint32_t c = 0; c < w->n_children; c++) {
        const ech_endpoint *const ep = &w->endpoints[c];
        if (ech_endpoint_busy(ep)) words[n++] = &ep->mail->frames[ep->tail % ECH_FRAMES].state;
    }
    const uint32_t kicks = w->kicks, events = w->seen_events;
    pthread_mutex_unlock(&w->lock);
    for (uint32_t round = 1;; round++) {
        bool news = ech_load_relaxed(&w->kicks) != kicks;
        for (uint32_t i = 0; i < n; i++)
            news |= ech_load_relaxed(words[i]) == ECH_FRAME_DONE;
        if (news) break;
        ech_cpu_relax();
        if (round % 64 == 0 &&
            (ech_load_relaxed(&w->shared->zygote_events) != events || ech_now_ns() >= until_ns))
            break;
    }
    pthread_mutex_lock(&w->lock);
}

static bool has_news(const ech_worker *const w)
{
    if (ech_load_relaxed(&w->shared->zygote_events) != w->seen_events) return true;
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (ech_endpoint_has_news(&w->endpoints[c])) return true;
    }
    return false;
}

static void sleep_on_bell(ech_worker *const w, const ech_done_fn done, void *const ctx,
                          const int64_t until_ns)
{
    const uint32_t bell = ech_load_relaxed(&w->shared->bell);
    ech_fetch_add(&w->shared->sleeping, 1);
    /* Partner: ech_shared_ring. Either the child sees us sleeping, or we see its frame. */
    ech_fence();
    if (!has_news(w) && !done(w, ctx)) {
        pthread_mutex_unlock(&w->lock);
        (void)ech_os_futex_wait(&w->shared->bell, bell, until_ns);
        pthread_mutex_lock(&w->lock);
    }
    ech_fetch_add(&w->shared->sleeping, (uint32_t)-1);
}

static bool any_in_flight(const ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (ech_endpoint_busy(&w->endpoints[c])) return true;
    }
    return false;
}

/* Drives until done or the deadline. Sleeps are cut so that liveness is looked at in between. */
static bool drive(ech_worker *const w, const ech_done_fn done, void *const ctx,
                  const int64_t deadline_ns)
{
    int64_t spin_until = 0;
    for (;;) {
        const bool moved = ech_sched_pump(w);
        if (done(w, ctx)) return true;
        if (moved) {
            spin_until = 0;
            continue;
        }
        const int64_t now = ech_now_ns();
        if (now >= deadline_ns) return false;
        if (now - w->checked_ns >= ECH_CHECK_NS && ech_events_check(w, now)) continue;
        if (spin_until == 0) spin_until = now + w->spin_ns;
        if (now < spin_until && any_in_flight(w)) {
            spin(w, spin_until < deadline_ns ? spin_until : deadline_ns);
            continue;
        }
        const int64_t next = now + ECH_CHECK_NS;
        sleep_on_bell(w, done, ctx, next < deadline_ns ? next : deadline_ns);
    }
}

bool ech_sched_wait(ech_worker *const w, const ech_done_fn done, void *const ctx,
                    const int64_t deadline_ns)
{
    ech_sched_enter(w);
    const bool ok = drive(w, done, ctx, deadline_ns);
    ech_sched_leave(w);
    return ok;
}

/* ---- The scheduler's own thread ----------------------------------------------------------------
 */

/* After this long without a run its thread sleeps for good and has to be woken. */
#define SHALLOW_NS (INT64_C(100) * ECH_NS_PER_MS)

static void unpark(ech_worker *const w)
{
    ech_fetch_add(&w->park, 1);
    ech_os_futex_wake(&w->park);
    w->count.wakes++;
}

void ech_sched_enter(ech_worker *const w)
{
    w->drivers++;
    w->active_ns = ech_now_ns();
    ech_fetch_add_relaxed(&w->kicks, 1); /* the scheduler's own thread stops spinning */
    if (w->sched_parked) {
        w->sched_parked = false;
        unpark(w); /* so that it watches this thread, which may be long in its callback */
    }
}

void ech_sched_leave(ech_worker *const w)
{
    if (--w->drivers == 0 && w->runs.active != NULL) unpark(w);
}

static bool own_thread_done(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    return w->drivers > 0 || w->sched_stop || w->runs.active == NULL;
}

/*
 * While others drive, looks every millisecond whether they still do: a callback that computes for
 * long between submits must not hold up what is ready. When nothing has run for a while, sleeps.
 */
static void park(ech_worker *const w)
{
    const uint64_t seq = w->pump_seq;
    const int64_t now = ech_now_ns();
    const uint32_t value = ech_load_relaxed(&w->park);
    w->sched_parked = w->drivers == 0 && now - w->active_ns > SHALLOW_NS;
    const int64_t until = now + (w->sched_parked ? 500 * ECH_NS_PER_MS : ECH_NS_PER_MS);
    pthread_mutex_unlock(&w->lock);
    (void)ech_os_futex_wait(&w->park, value, until);
    pthread_mutex_lock(&w->lock);
    w->sched_parked = false;
    if (w->sched_stop) return;
    if (w->drivers > 0 && w->runs.active != NULL && w->pump_seq == seq) (void)ech_sched_pump(w);
    const int64_t later = ech_now_ns();
    if (later - w->checked_ns >= ECH_CHECK_NS) (void)ech_events_check(w, later);
    if (ech_load_relaxed(&w->shared->zygote_events) != w->seen_events) (void)ech_events_take(w);
}

static void *own_thread(void *const arg)
{
    ech_worker *const w = arg;
    ech_os_set_name("ech-sched");
    pthread_mutex_lock(&w->lock);
    while (!w->sched_stop) {
        if (w->drivers == 0 && w->runs.active != NULL) {
            (void)drive(w, own_thread_done, NULL, ECH_NO_DEADLINE);
        } else {
            park(w);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ech_status ech_sched_start(ech_worker *const w, ech_error *const err)
{
    w->sched_stop = false;
    w->active_ns = ech_now_ns();
    if (ech_fault_hit(ECH_FAULT_THREAD) ||
        pthread_create(&w->sched_thread, NULL, own_thread, w) != 0)
        return ech_fail(err, ECH_EOS, "starting %s: no thread for its scheduler", w->name);
    w->sched_started = true;
    return ECH_OK;
}

void ech_sched_stop(ech_worker *const w)
{
    if (!w->sched_started) return;
    pthread_mutex_lock(&w->lock);
    w->sched_stop = true;
    unpark(w);
    ech_sched_kick(w);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->sched_thread, NULL);
    w->sched_started = false;
}

/* ---- Run boundaries ----------------------------------------------------------------------------
 */

static bool at_boundary(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    return w->runs.active == NULL;
}

ech_status ech_sched_boundary_enter(ech_worker *const w, ech_error *const err)
{
    w->boundary_waiters++;
    if (w->runs.active == NULL || ech_sched_wait(w, at_boundary, NULL, ECH_NO_DEADLINE))
        return ECH_OK;
    ech_sched_boundary_leave(w);
    return ech_fail(err, ECH_ETIMEOUT, "waiting for the end of a run");
}

void ech_sched_boundary_leave(ech_worker *const w)
{
    if (--w->boundary_waiters > 0) return;
    ech_run_promote(w);
    (void)ech_sched_dispatch(w);
    ech_sched_kick(w);
    if (w->drivers == 0 && w->runs.active != NULL) unpark(w);
}
