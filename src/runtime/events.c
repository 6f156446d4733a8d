/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong with children: deaths that the zygote reports, stalls, the zygote's own end. Each
 * is told once, and only when the process is known to be gone do its tasks fail, since until then
 * it may still write to their memory. Lock held everywhere.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/process.h"
#include "src/runtime/sched.h"
#include "src/runtime/zygote.h"

static void lose(ech_worker *const w, ech_endpoint *const ep, const ech_error *const why)
{
    const ech_completion_sink sink = ech_sched_sink(w);
    const bool was_ready = ep->state == ECH_CHILD_READY || ep->state == ECH_CHILD_POISONED;
    ech_endpoint_collect(ep, &sink); /* what it had finished counts */
    ech_endpoint_lose(ep, why, &sink);
    if (was_ready) w->count.lost++;
}

static void describe_death(const ech_worker *const w, const ech_endpoint *const ep,
                           const ech_proc *const p, ech_error *const why)
{
    char who[ECH_NAME_BYTES + 32], how[96];
    ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
    ech_os_status_text(p->wait_status, how, sizeof how);
    (void)ech_fail(why, ECH_ELOST, "%s, pid %d, is gone: %s; replace it and submit again", who,
                   p->pid, how);
}

/* Its end before it was ready is the failure of a start, whose text says so. */
static void lose_early(ech_worker *const w, ech_endpoint *const ep, const ech_proc *const p)
{
    char who[ECH_NAME_BYTES + 32], how[96];
    ech_error why = { 0 };
    ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
    ech_os_status_text(p->wait_status, how, sizeof how);
    (void)ech_fail(&why, ECH_ELOST, "%s, pid %d, exited before signalling ready: %s", who, p->pid,
                   how);
    lose(w, ep, &why);
}

static void no_fork(ech_worker *const w, ech_endpoint *const ep, const ech_proc *const p)
{
    char who[ECH_NAME_BYTES + 32];
    ech_error why = { 0 };
    ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
    (void)ech_fail(&why, ECH_EOS, "%s could not be forked: %s", who, strerror(p->wait_status));
    why.os_errno = p->wait_status;
    ep->reaped = true; /* there is nothing to reap */
    lose(w, ep, &why);
}

static void take_end(ech_worker *const w, ech_endpoint *const ep, const ech_proc *const p)
{
    ech_error why = { 0 };
    ep->pid = p->pid;
    ep->wait_status = p->wait_status;
    ep->reaped = true;
    if (ep->state == ECH_CHILD_STARTING) {
        /* One that published why it failed keeps its own text for whoever waits. */
        if (ech_load_acquire(&ep->mail->state) == ECH_MAIL_INIT_FAILED) {
            ep->state = ECH_CHILD_STOPPED;
        } else {
            lose_early(w, ep, p);
        }
    } else {
        const bool expected = ep->stopping && ep->state != ECH_CHILD_POISONED;
        describe_death(w, ep, p, &why);
        /* One that was asked to leave and ended badly, by a leak report for one, is worth a line
         * too. */
        if (!expected || p->wait_status != 0) ech_log(ECH_LOG_WARN, "%s", why.text);
        lose(w, ep, &why);
        if (expected) ep->state = ECH_CHILD_STOPPED;
    }
    ech_zygote_reap(w, ep->child);
}

static bool take_one(ech_worker *const w, const uint32_t child)
{
    const ech_proc *const p = &w->shared->procs[child];
    ech_endpoint *const ep = &w->endpoints[child];
    /* Partner: the zygote publishes pid and status before the tag. */
    const uint64_t tag = ech_load_acquire(&p->tag);
    if (tag == ECH_PROC_TAG(ep->generation, ECH_PROC_RUNNING) && ep->pid == 0) {
        ep->pid = p->pid;
        return true;
    }
    if (ep->reaped) return false;
    if (tag == ECH_PROC_TAG(ep->generation, ECH_PROC_FORK_FAILED)) {
        no_fork(w, ep, p);
        return true;
    }
    if (tag != ECH_PROC_TAG(ep->generation, ECH_PROC_EXITED)) return false;
    take_end(w, ep, p);
    return true;
}

bool ech_events_take(ech_worker *const w)
{
    bool moved = false;
    /* Read before the list: an event that comes meanwhile is looked for again. */
    w->seen_events = ech_load_acquire(&w->shared->zygote_events);
    for (uint32_t c = 0; c < w->n_children; c++)
        moved |= take_one(w, c);
    if (moved) ech_sched_kick(w);
    return moved;
}

/* ---- Stalls and the zygote ---------------------------------------------------------------------
 */

static void stalled(ech_worker *const w, ech_endpoint *const ep, const int64_t idle_ns)
{
    char who[ECH_NAME_BYTES + 32];
    ech_error why = { 0 };
    const ech_in_flight *const fl = &ep->in_flight[ep->tail % ECH_FRAMES];
    const ech_slot *const s = ech_graph_slot(&w->graph, fl->id.slot);
    ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
    (void)ech_fail(
        &why, ECH_ESTALLED,
        "%s, pid %d, made no progress for %.1f s: task %u '%s', core %u, program step %u; "
        "it is killed (ECHELON_STALL_LIMIT is %g s)",
        who, ep->pid, (double)idle_ns / 1e9, s->serial, s->label,
        ech_load_relaxed(&ep->mail->where_core), ech_load_relaxed(&ep->mail->where),
        w->stall_limit_s);
    ech_log(ECH_LOG_ERROR, "%s", why.text);
    ech_endpoint_poison(ep, &why, true);
}

static void check_stall(ech_worker *const w, ech_endpoint *const ep, const int64_t now)
{
    if (!ech_endpoint_busy(ep) || ep->distrusted || w->state != ECH_WORKER_READY) return;
    const uint64_t progress = ech_load_relaxed(&ep->mail->progress);
    if (ep->seen_ns == 0 || progress != ep->seen_progress) {
        ep->seen_progress = progress;
        ep->seen_ns = now;
        ep->stall_logged = false;
        if (w->my_mail != NULL) ech_fetch_add_relaxed(&w->my_mail->progress, 1);
        return;
    }
    const int64_t idle = now - ep->seen_ns;
    if ((double)idle / 1e9 >= w->stall_limit_s) {
        stalled(w, ep, idle);
    } else if (idle >= w->warn_ns && !ep->stall_logged) {
        ep->stall_logged = true;
        const ech_in_flight *const fl = &ep->in_flight[ep->tail % ECH_FRAMES];
        const ech_slot *const s = ech_graph_slot(&w->graph, fl->id.slot);
        ech_log(ECH_LOG_WARN,
                "%s: run %llu waits for child %u: task %u '%s' has been at step %u for %.0f s",
                w->name, (unsigned long long)fl->id.run_id, ep->child, s->serial, s->label,
                ech_load_relaxed(&ep->mail->where), (double)idle / 1e9);
    }
}

/* A producer that the slot still waits for; NULL when there is none. */
static const ech_slot *missing(const ech_worker *const w, const ech_slot *const s)
{
    const ech_graph_ring *const r = &w->graph.rings[s->ring];
    for (uint64_t i = s->dep_lo; i < s->dep_hi; i++) {
        const ech_slot *const p = ech_graph_slot(&w->graph, r->deps[i % r->dep_cap].producer);
        if (p->state < ECH_SLOT_COMPLETED) return p;
    }
    return NULL;
}

/* Names the oldest task of the run that can't start, and what it misses. */
static void log_blocked(const ech_worker *const w, const ech_run *const run, const int64_t idle)
{
    for (uint32_t k = 0; k < ECH_RINGS; k++) {
        const ech_graph_ring *const r = &w->graph.rings[k];
        for (uint64_t i = r->tail; i < r->head; i++) {
            const ech_slot *const s = &r->slots[i & (r->window - 1)];
            const ech_slot *const p = missing(w, s);
            if (s->run_id != run->id || s->state != ECH_SLOT_PENDING || p == NULL) continue;
            ech_log(ECH_LOG_WARN,
                    "%s: run %llu has waited for %.0f s with nothing running: task %u '%s' misses "
                    "%s %u "
                    "'%s' (%s)",
                    w->name, (unsigned long long)run->id, (double)idle / 1e9, s->serial, s->label,
                    p->kind == ECH_SLOT_GATE ? "gate" : "task", p->serial, p->label,
                    ech_slot_state_name(p->state));
            return;
        }
    }
}

/* A run that waits and has nothing in flight hangs on a gate, or on a callback that computes. */
static void check_quiet(ech_worker *const w, const int64_t now)
{
    const ech_run *const run = w->runs.active;
    bool busy = run == NULL || run->open == 0 || w->graph.progress != w->quiet_progress;
    for (uint32_t c = 0; c < w->n_children && !busy; c++)
        busy = ech_endpoint_busy(&w->endpoints[c]) > 0;
    if (busy || w->quiet_ns == 0) {
        w->quiet_progress = w->graph.progress;
        w->quiet_ns = busy ? 0 : now;
        w->quiet_logged = false;
    } else if (now - w->quiet_ns >= w->warn_ns && !w->quiet_logged) {
        w->quiet_logged = true;
        w->count.warnings++;
        log_blocked(w, run, now - w->quiet_ns);
    }
}

static void zygote_gone(ech_worker *const w, const int status)
{
    char how[96];
    ech_error why = { 0 };
    ech_os_status_text(status, how, sizeof how);
    (void)ech_fail(
        &why, ECH_ELOST,
        "%s: its zygote, pid %d, is gone (%s) and all children with it; close the worker", w->name,
        w->zygote_pid, how);
    w->zygote_lost = true;
    ech_log(ECH_LOG_ERROR, "%s", why.text);
    for (uint32_t c = 0; c < w->n_children; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        if (ep->state == ECH_CHILD_STOPPED || ep->state == ECH_CHILD_NONE) continue;
        ep->reaped = true;
        lose(w, ep, &why);
    }
    ech_sched_kick(w);
}

/* A worker inside a child process passes on what its parent wants of the task that runs it. */
static void obey_parent(ech_worker *const w)
{
    if (w->my_mail == NULL || w->runs.active == NULL) return;
    const uint64_t run = ech_load_relaxed(&w->my_task_run); /* W: the thread that serves the task */
    if (run != 0 && ech_load_relaxed(&w->my_mail->abort_run) >= run)
        ech_run_abort(w, w->runs.active);
}

bool ech_events_check(ech_worker *const w, const int64_t now_ns)
{
    int status;
    w->checked_ns = now_ns;
    obey_parent(w);
    for (uint32_t c = 0; c < w->n_children; c++)
        check_stall(w, &w->endpoints[c], now_ns);
    check_quiet(w, now_ns);
    if (w->zygote_pid <= 0 || w->zygote_lost || w->zygote_quit) return false;
    if (!ech_os_child_status(w->zygote_pid, false, &status)) return false;
    zygote_gone(w, status);
    return true;
}
