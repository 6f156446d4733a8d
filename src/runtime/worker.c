/* SPDX-License-Identifier: Apache-2.0 */
/* Making a worker: options, memory, children that are workers, replacement, and questions. */
#include "echelon/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/process.h"
#include "src/runtime/lifecycle.h"
#include "src/runtime/memory.h"
#include "src/runtime/ring.h"
#include "src/runtime/sched.h"
#include "src/runtime/settings.h"
#include "src/runtime/trace.h"

ech_worker_options ech_worker_options_default(void)
{
    return (ech_worker_options){
        .struct_size = sizeof(ech_worker_options),
        .level = 3,
        .startup_timeout_s = 300,
        .close_timeout_s = 10,
        .run_depth = ECH_RUN_DEPTH,
        .reserve_bytes = UINT64_C(64) << 20,
        .program_bytes = UINT64_C(64) << 20,
        .spin_us = 50,
    };
}

const char *ech_worker_state_name(const ech_worker_state state)
{
    static const char *const names[ECH_WORKER_STATE_COUNT] = { "NEW", "INITIALIZING", "READY",
                                                               "FAILED", "CLOSED" };
    return (unsigned)state < ECH_WORKER_STATE_COUNT ? names[state] : "unknown";
}

ech_worker_state ech_worker_state_get(const ech_worker *const w)
{
    return (ech_worker_state)ech_load_acquire(&w->state);
}

/* ---- Options -----------------------------------------------------------------------------------
 */

static ech_status check_times(const ech_worker_options *const o, ech_error *const err)
{
    if (!isfinite(o->startup_timeout_s) || o->startup_timeout_s <= 0)
        return ech_fail(err, ECH_EINVAL,
                        "options.startup_timeout_s is %g; it must be above 0 and finite",
                        o->startup_timeout_s);
    if (!isfinite(o->close_timeout_s) || o->close_timeout_s <= 0)
        return ech_fail(err, ECH_EINVAL,
                        "options.close_timeout_s is %g; it must be above 0 and finite",
                        o->close_timeout_s);
    return ECH_OK;
}

static ech_status check_options(const ech_worker_options *const o, ech_error *const err)
{
    if (o->struct_size != sizeof *o)
        return ech_fail(err, ECH_EINVAL,
                        "options.struct_size is %zu, not %zu; start from "
                        "ech_worker_options_default()",
                        o->struct_size, sizeof *o);
    if (o->level < 3)
        return ech_fail(err, ECH_EINVAL, "options.level is %d; workers begin at 3", o->level);
    if (o->n_ranks > 0 && o->level < 4)
        return ech_fail(err, ECH_EINVAL,
                        "options.n_ranks is %u at level %d; ranks need level 4 or more", o->n_ranks,
                        o->level);
    if (o->n_ranks > 0)
        return ech_fail(err, ECH_EUNSUPPORTED, "options.n_ranks is %u; this build has no MPI",
                        o->n_ranks);
    if (o->n_chips > ECH_MAX_CHILDREN || o->n_subs > ECH_MAX_CHILDREN - o->n_chips)
        return ech_fail(err, ECH_EINVAL,
                        "options.n_chips %u and n_subs %u are more than %d children", o->n_chips,
                        o->n_subs, ECH_MAX_CHILDREN);
    if (o->run_depth < 1 || o->run_depth > ECH_RUN_DEPTH)
        return ech_fail(err, ECH_EINVAL, "options.run_depth is %u; 1 and %d are possible",
                        o->run_depth, ECH_RUN_DEPTH);
    if (o->reserve_bytes == 0 || o->program_bytes == 0)
        return ech_fail(err, ECH_EINVAL, "options.%s is 0",
                        o->reserve_bytes == 0 ? "reserve_bytes" : "program_bytes");
    if (o->name != NULL && (*o->name == '\0' || strlen(o->name) >= ECH_NAME_BYTES))
        return ech_fail(err, ECH_EINVAL, "options.name must have 1 to %d bytes",
                        ECH_NAME_BYTES - 1);
    return check_times(o, err);
}

static ech_status copy_chip_options(ech_worker *const w, const ech_worker_options *const o,
                                    ech_error *const err)
{
    for (uint32_t c = 0; c < o->n_chips && o->chip_options != NULL; c++) {
        const size_t n = o->chip_options_bytes[c];
        w->chip_options[c] = ech_mem_alloc(1, n > 0 ? n : 1);
        if (w->chip_options[c] == NULL)
            return ech_fail(err, ECH_ENOMEM, "making a worker: out of memory");
        if (n > 0) memcpy(w->chip_options[c], o->chip_options[c], n);
        w->chip_options_bytes[c] = n;
    }
    return ECH_OK;
}

static ech_status fill(ech_worker *const w, const ech_worker_options *const o, ech_error *const err)
{
    (void)snprintf(w->name, sizeof w->name, "%s", o->name != NULL ? o->name : "worker");
    w->level = o->level;
    w->n_chips = w->n_next = o->n_chips;
    w->n_subs = o->n_subs;
    w->n_children = o->n_chips + o->n_subs;
    w->chip_ops = o->chip_ops;
    w->startup_timeout_s = o->startup_timeout_s;
    w->close_timeout_s = o->close_timeout_s;
    w->spin_ns = o->spin_us * ECH_NS_PER_US;
    w->runs.depth = o->run_depth;
    w->warn_ns = 5 * ECH_NS_PER_S;
    w->zygote_socket = -1;
    ECH_TRY(ech_settings_rings(&o->rings, NULL, &w->sizes, err));
    ECH_TRY(ech_settings_stall(o->stall_limit_s, &w->stall_limit_s, err));
    ECH_TRY(copy_chip_options(w, o, err));
    ECH_TRY(ech_memory_open(w, o->reserve_bytes, o->program_bytes, err));
    ECH_TRY(ech_trace_open(w, err));
    w->shared->tracing = o->trace;
    return ECH_OK;
}

static void init_locks(ech_worker *const w)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    /* Rounds under the lock are short, so a waiter spins a little before it sleeps. */
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&w->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_init(&w->submit_lock, NULL);
    pthread_mutex_init(&w->registry_lock, NULL);
    pthread_cond_init(&w->cond, NULL);
}

ech_status ech_worker_create(ech_worker **const ret_worker, const ech_worker_options *const options,
                             ech_error *const err)
{
    ECH_TRY(check_options(options, err));
    ech_worker *w = ech_mem_alloc(1, sizeof *w);
    if (w == NULL) return ech_fail(err, ECH_ENOMEM, "making a worker: out of memory");
    init_locks(w);
    const ech_status rc = fill(w, options, err);
    if (rc != ECH_OK) {
        (void)ech_worker_close(&w, NULL);
        return rc;
    }
    *ret_worker = w;
    return ECH_OK;
}

/* ---- Levels ------------------------------------------------------------------------------------
 */

static ech_status check_adoption(const ech_worker *const w, const ech_worker *const child,
                                 ech_error *const err)
{
    if (w->state != ECH_WORKER_NEW || child->state != ECH_WORKER_NEW || child->parent != NULL)
        return ech_fail(err, ECH_ESTATE,
                        "adding %s to %s: both must be NEW, and it a child of nobody", child->name,
                        w->name);
    if (w->level <= child->level)
        return ech_fail(err, ECH_EINVAL, "adding %s to %s: level %d isn't above level %d",
                        child->name, w->name, w->level, child->level);
    if (w->n_children >= ECH_MAX_CHILDREN)
        return ech_fail(err, ECH_ELIMIT, "adding %s to %s: it has %d children, the limit",
                        child->name, w->name, ECH_MAX_CHILDREN);
    return ECH_OK;
}

ech_status ech_worker_add_child(ech_worker *const w, ech_worker **const child,
                                uint32_t *const ret_index, ech_error *const err)
{
    pthread_mutex_lock(&w->lock);
    const ech_status rc = check_adoption(w, *child, err);
    if (rc == ECH_OK) {
        w->child_worker[w->n_next] = *child;
        (*child)->parent = w;
        (*child)->parent_child = w->n_next;
        if (ret_index != NULL) *ret_index = w->n_next;
        w->n_next++;
        w->n_children++;
        *child = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* ---- Children ----------------------------------------------------------------------------------
 */

uint32_t ech_worker_n_next(const ech_worker *const w)
{
    return w->n_next;
}

uint32_t ech_worker_n_children(const ech_worker *const w)
{
    return w->n_children;
}

static ech_status check_index(const ech_worker *const w, const uint32_t child, ech_error *const err)
{
    if (child < w->n_children) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "child %u is not one of the %u of %s", child, w->n_children,
                    w->name);
}

ech_status ech_worker_child_info(ech_worker *const w, const uint32_t child,
                                 ech_child_info *const ret_info, ech_error *const err)
{
    ECH_TRY(check_index(w, child, err));
    pthread_mutex_lock(&w->lock);
    const ech_endpoint *const ep = &w->endpoints[child];
    const bool mapped = w->shared != NULL && ep->mail != NULL;
    *ret_info = (ech_child_info){ .state = (ech_child_state)ep->state,
                                  .pid = ep->reaped ? 0 : ep->pid,
                                  .wait_status = ep->wait_status,
                                  .generation = ep->generation > 0 ? ep->generation - 1 : 0,
                                  .in_flight = ech_endpoint_busy(ep),
                                  .replace_ns = ep->replace_ns };
    if (mapped) {
        ret_info->tasks = ep->tasks + ech_load_relaxed(&ep->mail->tasks);
        ret_info->busy_ns = ech_load_relaxed(&ep->mail->busy_ns);
    }
    pthread_mutex_unlock(&w->lock);
    return ECH_OK;
}

typedef struct replacing {
    uint32_t child;
    ech_status rc;
    ech_error *err;
} replacing;

static bool is_dead(ech_worker *const w, void *const ctx)
{
    const replacing *const r = ctx;
    return w->endpoints[r->child].reaped || w->zygote_lost;
}

static bool is_started(ech_worker *const w, void *const ctx)
{
    replacing *const r = ctx;
    r->rc = ech_child_started(w, r->child, r->err);
    return r->rc != ECH_EAGAIN;
}

/* Lock held. Whatever is left of the old process is gone before the new one is asked for. */
static ech_status end_old(ech_worker *const w, ech_endpoint *const ep, replacing *const r,
                          ech_error *const err)
{
    if (ep->reaped) return ECH_OK;
    ech_os_kill(ep->pid, true);
    if (ech_sched_wait(w, is_dead, r, ech_now_ns() + 5 * ECH_NS_PER_S)) return ECH_OK;
    return ech_fail(err, ECH_ETIMEOUT, "replacing child %u of %s: pid %d can't be killed",
                    ep->child, w->name, ep->pid);
}

static ech_status replace(ech_worker *const w, const uint32_t child, ech_error *const err)
{
    ech_endpoint *const ep = &w->endpoints[child];
    replacing r = { child, ECH_EAGAIN, err };
    if (w->state != ECH_WORKER_READY || w->zygote_lost)
        return ech_fail(err, w->zygote_lost ? ECH_EPOISONED : ECH_ESTATE,
                        "replacing child %u of %s: %s", child, w->name,
                        w->zygote_lost ? "the zygote is gone" : "it is not READY");
    if (ep->state != ECH_CHILD_LOST && ep->state != ECH_CHILD_POISONED)
        return ech_fail(err, ECH_ESTATE,
                        "replacing child %u of %s: it is neither lost nor poisoned", child,
                        w->name);
    const int64_t start = ech_now_ns();
    ECH_TRY(end_old(w, ep, &r, err));
    ech_start_child(w, child);
    (void)ech_sched_wait(w, is_started, &r, start + (int64_t)(w->startup_timeout_s * 1e9));
    if (r.rc == ECH_OK) {
        ep->replace_ns = ech_now_ns() - start;
        w->count.replaced++;
        (void)ech_sched_pump(w);
        return ECH_OK;
    }
    if (r.rc == ECH_EAGAIN)
        r.rc = ech_fail(err, ECH_ETIMEOUT, "replacing child %u of %s: not ready in time", child,
                        w->name);
    /* It stays lost, with the reason why the new one didn't start. */
    ech_error why = { 0 };
    (void)ech_fail(&why, ECH_ELOST, "child %u of %s could not be replaced", child, w->name);
    ech_os_kill(ep->pid, true);
    if (ep->state == ECH_CHILD_STARTING || ep->state == ECH_CHILD_STOPPED) {
        const ech_completion_sink sink = ech_sched_sink(w);
        ech_endpoint_lose(ep, &why, &sink);
    }
    return r.rc;
}

ech_status ech_worker_replace(ech_worker *const w, const uint32_t child, ech_error *const err)
{
    ech_lease_guard guard;
    ECH_TRY(check_index(w, child, err));
    ECH_TRY(ech_lease_begin(w, "replacing a child", &guard, err));
    pthread_mutex_lock(&w->lock);
    const ech_status rc = replace(w, child, err);
    pthread_mutex_unlock(&w->lock);
    ech_lease_end(w, &guard);
    return rc;
}

/* ---- Counters ----------------------------------------------------------------------------------
 */

static void snapshot(const ech_worker *const w, ech_worker_counters *const c)
{
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        const ech_graph_ring *const ring = &w->graph.rings[r];
        ech_ring_counters_at(ring, ECH_RES_HEAP, &c->heap[r]);
        ech_ring_counters_at(ring, ECH_RES_WINDOW, &c->task_window[r]);
        ech_ring_counters_at(ring, ECH_RES_DEPS, &c->dep_pool[r]);
    }
    c->runs = w->count.runs;
    c->runs_failed = w->count.runs_failed;
    c->tasks = w->count.tasks;
    c->tasks_failed = w->count.tasks_failed;
    c->tasks_skipped = w->count.tasks_skipped;
    c->tasks_accepted = w->count.accepted;
    c->edges = w->graph.edges;
    c->gates = w->count.gates;
    c->groups = w->count.groups;
    c->children_lost = w->count.lost;
    c->children_replaced = w->count.replaced;
    c->wakes = w->count.wakes;
    c->warnings = w->count.warnings;
    c->runs_in_flight = (w->runs.active != NULL) + (w->runs.prepared != NULL);
    c->ready = w->runs.active != NULL ? w->runs.active->n_ready : 0;
    for (uint32_t i = 0; i < w->n_children; i++)
        c->in_flight += ech_endpoint_busy(&w->endpoints[i]);
    c->callables = w->n_callables;
    c->regions = w->n_regions;
    c->buffers = w->n_live_buffers;
    c->region_bytes = w->region_bytes;
    c->reserve_used = w->reserve_used;
    if (w->shared != NULL) c->reserve_bytes = w->shared->regions[ECH_REGION_RESERVE].bytes;
}

void ech_worker_snapshot(ech_worker *const w, ech_worker_counters *const ret_counters)
{
    memset(ret_counters, 0, sizeof *ret_counters);
    pthread_mutex_lock(&w->lock);
    snapshot(w, ret_counters);
    pthread_mutex_unlock(&w->lock);
}
