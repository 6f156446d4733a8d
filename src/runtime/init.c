/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init: one transaction. Everything private is made, the zygote and all children are forked, each
 * child brings its own subtree up, and when all have said so the scheduler starts. Any failure
 * undoes it all and the first cause is what every waiter is told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/process.h"
#include "src/runtime/lifecycle.h"
#include "src/runtime/registry.h"
#include "src/runtime/sched.h"
#include "src/runtime/trace.h"
#include "src/runtime/zygote.h"

/* ---- Children ----------------------------------------------------------------------------------
 */

void ech_start_child(ech_worker *const w, const uint32_t child)
{
    ech_endpoint *const ep = &w->endpoints[child];
    ech_endpoint_reset(ep, ep->generation + 1);
    ech_zygote_spawn(w, child, ep->generation);
}

ech_status ech_child_started(ech_worker *const w, const uint32_t child, ech_error *const err)
{
    ech_endpoint *const ep = &w->endpoints[child];
    if (ep->state == ECH_CHILD_READY) return ECH_OK;
    /* Partner: the child's release store when it has written its text. */
    const uint32_t said = ech_load_acquire(&ep->mail->state);
    if (said == ECH_MAIL_INIT_FAILED) {
        char who[ECH_NAME_BYTES + 32];
        ep->mail->error[sizeof ep->mail->error - 1] = '\0';
        ech_endpoint_name(ep, w->name, w->n_next, who, sizeof who);
        const ech_status code =
            ep->mail->error_code < 0 ? (ech_status)ep->mail->error_code : ECH_EINTERNAL;
        return ech_fail(err, code, "%s failed to start: %s", who, ep->mail->error);
    }
    /* The child may be faster than the zygote's note of its pid, which owners may ask for. */
    if (ep->state == ECH_CHILD_STARTING && said == ECH_MAIL_INIT_READY && ep->pid != 0) {
        ep->state = ECH_CHILD_READY;
        return ECH_OK;
    }
    if (ep->state == ECH_CHILD_STARTING) return ECH_EAGAIN;
    if (err != NULL) *err = ep->lost;
    return ep->lost.code != ECH_OK ? ep->lost.code : ECH_ELOST;
}

typedef struct starting {
    ech_status rc; /* EAGAIN while children are missing */
    ech_error *err;
} starting;

static bool all_started(ech_worker *const w, void *const ctx)
{
    starting *const s = ctx;
    if (w->init_cancelled) {
        s->rc = ech_fail(s->err, ECH_ECANCELLED, "starting %s: cancelled by close", w->name);
        return true;
    }
    bool all = true;
    for (uint32_t c = 0; c < w->n_children; c++) {
        const ech_status rc = ech_child_started(w, c, s->err);
        if (rc == ECH_EAGAIN) all = false;
        if (rc == ECH_OK || rc == ECH_EAGAIN) continue;
        s->rc = rc;
        return true;
    }
    if (all) s->rc = ECH_OK;
    return all;
}

static ech_status late_child(ech_worker *const w, ech_error *const err)
{
    char who[ECH_NAME_BYTES + 32] = "?";
    int pid = 0;
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (w->endpoints[c].state != ECH_CHILD_STARTING) continue;
        ech_endpoint_name(&w->endpoints[c], w->name, w->n_next, who, sizeof who);
        pid = w->endpoints[c].pid;
    }
    return ech_fail(err, ECH_ETIMEOUT,
                    "starting %s: %s, pid %d, wasn't ready within options.startup_timeout_s %g s",
                    w->name, who, pid, w->startup_timeout_s);
}

/* ---- The steps ---------------------------------------------------------------------------------
 */

static void init_endpoints(ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_children; c++) {
        ech_endpoint *const ep = &w->endpoints[c];
        *ep = (ech_endpoint){ .mail = &w->shared->mail[c], .child = c };
        ep->kind = c >= w->n_next               ? ECH_ENDPOINT_SUB
                   : w->child_worker[c] != NULL ? ECH_ENDPOINT_WORKER
                                                : ECH_ENDPOINT_CHIP;
        /* A worker that starts again in a replaced process inherits used tables. */
        memset(&w->shared->procs[c], 0, sizeof w->shared->procs[c]);
        ech_mailbox_reset(ep->mail, c, 0);
    }
    w->shared->bell = w->shared->sleeping = 0;
    w->shared->zygote_events = 0;
    w->seen_events = 0;
}

static ech_status make_graph(ech_worker *const w, ech_error *const err)
{
    const ech_graph_hooks hooks = { ech_sched_ready, ech_sched_terminal, ech_trace_edge, w };
    ECH_TRY(ech_graph_init(&w->graph, &w->sizes, &hooks, w->shared->nonce, err));
    w->orch.boxes = ech_mem_alloc(ECH_MAX_TENSORS, sizeof *w->orch.boxes);
    w->orch.boxes_cap = ECH_MAX_TENSORS;
    if (w->orch.boxes == NULL)
        return ech_fail(err, ECH_ENOMEM, "starting %s: out of memory", w->name);
    return ECH_OK;
}

void ech_worker_free_graph(ech_worker *const w)
{
    ech_graph_fini(&w->graph);
    free(w->orch.boxes);
    w->orch.boxes = NULL;
    w->orch.boxes_cap = 0;
}

static ech_status wait_for_children(ech_worker *const w, ech_error *const err)
{
    starting s = { ECH_EAGAIN, err };
    pthread_mutex_lock(&w->lock);
    for (uint32_t c = 0; c < w->n_children; c++)
        ech_start_child(w, c);
    ech_point_at(ECH_POINT_INIT_WAITING, 0);
    const bool done = ech_sched_wait(w, all_started, &s, w->init_deadline_ns);
    const ech_status rc = done ? s.rc : late_child(w, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* Undoes what start() did before it failed; the cause is already written. */
static void roll_back(ech_worker *const w)
{
    const int64_t now = ech_now_ns();
    pthread_mutex_lock(&w->lock);
    if (w->zygote_pid > 0)
        (void)ech_stop_children(w, now + ECH_ROLLBACK_NS / 2, now + ECH_ROLLBACK_NS, NULL);
    pthread_mutex_unlock(&w->lock);
    (void)ech_zygote_stop(w, NULL);
    ech_worker_free_graph(w);
}

static ech_status start(ech_worker *const w, ech_error *const err)
{
    ECH_TRY(ech_registry_check_runnable(w, err));
    if (w->init_deadline_ns == 0)
        w->init_deadline_ns = ech_now_ns() + (int64_t)(w->startup_timeout_s * 1e9);
    ech_registry_note_images(w);
    w->leak_check = ech_os_thread_count() == 1;
    init_endpoints(w);
    ech_status rc = make_graph(w, err);
    ech_point_at(ECH_POINT_INIT_MAPPED, 0);
    if (rc == ECH_OK) rc = ech_zygote_start(w, err);
    ech_point_at(ECH_POINT_INIT_FORKED, 0);
    if (rc == ECH_OK) rc = wait_for_children(w, err);
    if (rc == ECH_OK) rc = ech_sched_start(w, err);
    if (rc != ECH_OK) roll_back(w);
    return rc;
}

/* ---- Public calls ------------------------------------------------------------------------------
 */

static ech_status begin_init(ech_worker *const w, ech_error *const err)
{
    static const char *const why[ECH_WORKER_STATE_COUNT] = {
        [ECH_WORKER_INITIALIZING] = "another thread is starting it already",
        [ECH_WORKER_READY] = "it is READY already",
        [ECH_WORKER_FAILED] = "an earlier init failed; close it and make a new one",
        [ECH_WORKER_CLOSED] = "it is CLOSED; make a new one",
    };
    if (w->state != ECH_WORKER_NEW)
        return ech_fail(err, ECH_ESTATE, "starting %s: %s", w->name, why[w->state]);
    if (w->closing)
        return ech_fail(err, ECH_ECANCELLED, "starting %s: it is being closed", w->name);
    if (w->parent != NULL && w->my_mail == NULL)
        return ech_fail(err, ECH_ESTATE, "starting %s: it is a child of %s, whose init starts it",
                        w->name, w->parent->name);
    ech_store_release(&w->state, (uint32_t)ECH_WORKER_INITIALIZING);
    w->init_running = true;
    w->init_thread = pthread_self();
    return ECH_OK;
}

ech_status ech_worker_init(ech_worker *const w, ech_error *const err)
{
    ech_error e = { 0 };
    pthread_mutex_lock(&w->lock);
    ech_status rc = begin_init(w, err);
    pthread_mutex_unlock(&w->lock);
    if (rc != ECH_OK) return rc;
    rc = start(w, &e);
    pthread_mutex_lock(&w->lock);
    w->init_running = false;
    if (rc == ECH_OK && w->init_cancelled)
        rc = ech_fail(&e, ECH_ECANCELLED, "starting %s: cancelled by close", w->name);
    if (rc != ECH_OK) w->init_error = e;
    /* A cancelled start stays with its closer, which makes it CLOSED. */
    if (!w->init_cancelled)
        ech_store_release(&w->state,
                          (uint32_t)(rc == ECH_OK ? ECH_WORKER_READY : ECH_WORKER_FAILED));
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    if (rc != ECH_OK && err != NULL) *err = e;
    return rc;
}

ech_status ech_worker_wait_ready(ech_worker *const w, ech_error *const err)
{
    pthread_mutex_lock(&w->lock);
    while (w->state == ECH_WORKER_NEW || w->init_running) {
        if (w->closing && !w->init_running) break;
        pthread_cond_wait(&w->cond, &w->lock);
    }
    ech_status rc = ECH_OK;
    if (w->init_error.code != ECH_OK) {
        rc = w->init_error.code;
        if (err != NULL) *err = w->init_error;
    } else if (w->state != ECH_WORKER_READY) {
        rc = ech_fail(err, ECH_ESTATE, "waiting for %s: it is %s", w->name,
                      ech_worker_state_name((ech_worker_state)w->state));
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}
