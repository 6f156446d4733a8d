/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Close: stop submissions, drain, stop the scheduler, the children, the zygote, give memory back.
 * Each class of resource is tried even when an earlier one failed; the first failure is reported,
 * and a later close tries only what is left. One thread tears down, others share its result.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/process.h"
#include "src/runtime/lifecycle.h"
#include "src/runtime/sched.h"
#include "src/runtime/zygote.h"

/* ---- Children ----------------------------------------------------------------------------------
 */

static bool has_process(const ech_worker *const w, const ech_endpoint *const ep)
{
    return ep->generation > 0 && !ep->reaped && !w->zygote_lost;
}

static bool all_gone(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (has_process(w, &w->endpoints[c])) return false;
    }
    return true;
}

static void ask_to_leave(ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_children; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        if (!has_process(w, ep)) continue;
        const uint32_t said = ech_load_acquire(&ep->mail->state);
        const bool answers = ep->state != ECH_CHILD_STARTING || said != ECH_MAIL_NONE;
        ep->stopping = true;
        ech_mailbox_shutdown(ep->mail);
        /* One that is stuck in its start will not look at the word. */
        if (!answers) ech_os_kill(ep->pid, true);
    }
}

static void kill_left(ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_children; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        if (has_process(w, ep)) ech_os_kill(ep->pid, true);
    }
}

ech_status ech_stop_children(ech_worker *const w, const int64_t grace_ns, const int64_t hard_ns,
                             ech_error *const err)
{
    ask_to_leave(w);
    if (ech_sched_wait(w, all_gone, NULL, grace_ns)) return ECH_OK;
    kill_left(w);
    if (ech_sched_wait(w, all_gone, NULL, hard_ns)) return ECH_OK;
    for (uint32_t c = 0; c < w->n_children; c++) {
        const ech_endpoint *const ep = &w->endpoints[c];
        if (!has_process(w, ep)) continue;
        return ech_fail(
            err, ECH_ETIMEOUT,
            "closing %s: child %u, pid %d, doesn't end; its memory is kept, close again", w->name,
            c, ep->pid);
    }
    return ECH_OK;
}

/* ---- Draining ----------------------------------------------------------------------------------
 */

static bool no_runs(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    return w->runs.active == NULL && w->runs.prepared == NULL;
}

static bool no_leases(ech_worker *const w, void *const ctx)
{
    (void)ctx;
    return w->leases == 0;
}

/* What didn't drain in time is stopped: runs are cancelled, and their tasks end with the children.
 */
static void cancel_runs(ech_worker *const w)
{
    while (w->runs.prepared != NULL && !w->runs.prepared->cancelled)
        ech_run_abort(w, w->runs.prepared);
    if (w->runs.active != NULL) ech_run_abort(w, w->runs.active);
}

static ech_status drain(ech_worker *const w, const int64_t deadline, ech_error *const err)
{
    ech_sched_kick(w); /* submitters that are blocked see `closing` */
    if (!ech_sched_wait(w, no_runs, NULL, deadline)) cancel_runs(w);
    /* Operations see that they are unwanted; a callback of the owner ends when it ends. */
    if (!ech_sched_wait(w, no_leases, NULL, ech_now_ns() + (int64_t)(w->close_timeout_s * 1e9 / 4)))
        return ech_fail(
            err, ECH_ETIMEOUT,
            "closing %s: %u operations are still in progress; close again when they have "
            "returned",
            w->name, w->leases);
    return ECH_OK;
}

/* ---- Teardown ----------------------------------------------------------------------------------
 */

static void timed_wait(ech_worker *const w, const int64_t deadline)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_REALTIME, &at);
    /* A bounded look again: what is waited for must not depend on one wake-up being seen. */
    int64_t ns = deadline - ech_now_ns();
    if (ns > 50 * ECH_NS_PER_MS) ns = 50 * ECH_NS_PER_MS;
    if (ns < 0) ns = 0;
    const int64_t sum = at.tv_nsec + ns;
    at.tv_sec += sum / ECH_NS_PER_S;
    at.tv_nsec = sum % ECH_NS_PER_S;
    (void)pthread_cond_timedwait(&w->cond, &w->lock, &at);
}

/* Lock held. Init gives up by itself when it is told; one that is stuck elsewhere isn't waited for.
 */
static ech_status cancel_init(ech_worker *const w, const int64_t deadline, ech_error *const err)
{
    w->init_cancelled = true;
    ech_sched_kick(w);
    while (w->init_running && ech_now_ns() < deadline)
        timed_wait(w, deadline);
    if (!w->init_running) return ECH_OK;
    return ech_fail(err, ECH_ETIMEOUT, "closing %s: its init doesn't return; close again", w->name);
}

static void keep_first(ech_status *const first, ech_error *const err, const ech_status rc,
                       const ech_error *const e)
{
    if (rc == ECH_OK || *first != ECH_OK) return;
    *first = rc;
    *err = *e;
}

/* Lock held. The worker's own children exist as NEW workers in this process, with mappings. */
static ech_status close_inner(ech_worker *const w, ech_error *const err)
{
    ech_status first = ECH_OK;
    for (uint32_t c = 0; c < w->n_next; c++) {
        ech_error e = { 0 };
        if (w->child_worker[c] == NULL) continue;
        const ech_status rc = ech_worker_close(&w->child_worker[c], &e);
        if (rc != ECH_OK && first == ECH_OK) first = ech_fail(err, rc, "%s", e.text);
    }
    return first;
}

static bool has_inner(const ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_next; c++) {
        if (w->child_worker[c] != NULL) return true;
    }
    return false;
}

/* Lock held. The last class; what stays is all that a later close has to do. */
static ech_status release_memory(ech_worker *const w, ech_error *const err)
{
    ech_error e = { 0 };
    ech_status first = close_inner(w, err);
    ech_store_release(&w->state, (uint32_t)ECH_WORKER_CLOSED); /* one that was half made as well */
    keep_first(&first, err, ech_journal_release(&w->journal, &e), &e);
    return first;
}

/* Lock held; given up in between. err is never NULL here. */
static ech_status tear_down(ech_worker *const w, ech_error *const err)
{
    const int64_t start = ech_now_ns(), budget = (int64_t)(w->close_timeout_s * 1e9);
    ech_status first = ECH_OK;
    ech_error e = { 0 };
    if (w->init_running) ECH_TRY(cancel_init(w, start + budget, err));
    ECH_TRY(drain(w, start + budget / 2, err));
    ech_point_at(ECH_POINT_CLOSE_DRAINED, 0);
    if (w->zygote_pid > 0) {
        const int64_t now = ech_now_ns();
        const int64_t grace =
            start + budget > now + ECH_NS_PER_S ? start + budget : now + ECH_NS_PER_S;
        keep_first(&first, err, ech_stop_children(w, grace, grace + ECH_NS_PER_S, &e), &e);
    }
    while (w->waiters > 0)
        timed_wait(w, ech_now_ns() + ECH_NS_PER_S);
    pthread_mutex_unlock(&w->lock);
    ech_sched_stop(w);
    /* Survivors keep the zygote, which is the only one that can reap them, and their mailbox. */
    const bool survivors = first != ECH_OK;
    if (!survivors) keep_first(&first, err, ech_zygote_stop(w, &e), &e);
    pthread_mutex_lock(&w->lock);
    if (w->zygote_pid > 0) return first;
    ech_worker_free_graph(w);
    w->shared = NULL;
    w->trace = NULL;
    keep_first(&first, err, release_memory(w, &e), &e);
    return first;
}

static ech_status share_result(ech_worker *const w, ech_error *const err)
{
    const uint64_t epoch = w->close_epoch;
    while (w->close_epoch == epoch)
        timed_wait(w, ech_now_ns() + ECH_NS_PER_S);
    if (w->close_result != ECH_OK && err != NULL) *err = w->close_error;
    return w->close_result;
}

ech_status ech_worker_shutdown(ech_worker *const w, ech_error *const err)
{
    if (ech_lease_inside(w))
        return ech_fail(
            err, ECH_EREENTRANT,
            "closing %s: called from inside a callback of it; call it after the callback", w->name);
    pthread_mutex_lock(&w->lock);
    ech_status rc = ECH_OK;
    if (w->init_running && pthread_equal(w->init_thread, pthread_self())) {
        rc = ech_fail(err, ECH_ESTATE, "closing %s: called from the thread that is inside init",
                      w->name);
    } else if (w->close_running) {
        rc = share_result(w, err);
    } else if (w->state != ECH_WORKER_CLOSED || w->journal.n > 0 || has_inner(w)) {
        ech_error e = { 0 };
        w->close_running = true;
        w->closing = true;
        pthread_cond_broadcast(&w->cond);
        rc = w->shared == NULL ? release_memory(w, &e) : tear_down(w, &e);
        w->close_result = rc;
        w->close_error = e;
        w->close_epoch++;
        w->close_running = false;
        pthread_cond_broadcast(&w->cond);
        if (rc != ECH_OK && err != NULL) *err = e;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

ech_status ech_worker_close(ech_worker **const w, ech_error *const err)
{
    if (w == NULL || *w == NULL) return ECH_OK;
    ECH_TRY(ech_worker_shutdown(*w, err));
    ech_worker *const it = *w;
    /* Here and not in shutdown, since handles may be released between the two. */
    for (ech_run *run = it->runs.pool, *next; run != NULL; run = next) {
        next = run->free_next;
        free(run);
    }
    for (uint32_t c = 0; c < ECH_MAX_CHILDREN; c++)
        free(it->chip_options[c]);
    pthread_mutex_destroy(&it->lock);
    pthread_mutex_destroy(&it->submit_lock);
    pthread_mutex_destroy(&it->registry_lock);
    pthread_cond_destroy(&it->cond);
    free(it);
    *w = NULL;
    return ECH_OK;
}
