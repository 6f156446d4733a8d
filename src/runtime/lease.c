/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of two kinds. An operation's lease keeps close from tearing down under it, and tells a
 * call that comes from inside a callback of the same worker. A place's lease says which run may
 * use a place of the run table.
 */
#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/runtime/node.h"

/* The operations that this thread is inside of, innermost first. */
static _Thread_local ech_lease_guard *inside;

bool ech_lease_inside(const ech_worker *const w)
{
    for (const ech_lease_guard *g = inside; g != NULL; g = g->outer) {
        if (g->worker == w && g->callback) return true;
    }
    return false;
}

void ech_lease_callback(ech_lease_guard *const guard, const bool is_inside)
{
    guard->callback = is_inside;
}

ech_status ech_lease_begin(ech_worker *const w, const char *const what,
                           ech_lease_guard *const guard, ech_error *const err)
{
    if (ech_lease_inside(w))
        return ech_fail(err, ECH_EREENTRANT,
                        "%s on %s: called from inside a callback of the same worker; call it after "
                        "the callback has returned",
                        what, w->name);
    pthread_mutex_lock(&w->lock);
    const bool closing = w->closing || w->state == ECH_WORKER_CLOSED;
    if (!closing) w->leases++;
    pthread_mutex_unlock(&w->lock);
    if (closing) return ech_fail(err, ECH_ESTATE, "%s on %s: the worker is closed", what, w->name);
    *guard = (ech_lease_guard){ .worker = w, .outer = inside };
    inside = guard;
    return ECH_OK;
}

void ech_lease_end(ech_worker *const w, ech_lease_guard *const guard)
{
    ECH_ASSERT(inside == guard);
    inside = guard->outer;
    pthread_mutex_lock(&w->lock);
    if (--w->leases == 0) pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

bool ech_lease_take(ech_run_table *const t, ech_run *const run, ech_lease *const ret_lease)
{
    for (uint32_t i = 0; i < t->depth; i++) {
        if (t->places[i].run != NULL) continue;
        t->places[i].run = run;
        *ret_lease = (ech_lease){ i, ++t->places[i].generation };
        return true;
    }
    return false;
}

ech_run *ech_lease_run(const ech_run_table *const t, const ech_lease lease)
{
    if (lease.place >= ECH_RUN_DEPTH || t->places[lease.place].generation != lease.generation)
        return NULL;
    return t->places[lease.place].run;
}

bool ech_lease_release(ech_run_table *const t, const ech_lease lease)
{
    if (ech_lease_run(t, lease) == NULL) return false;
    t->places[lease.place].run = NULL;
    return true;
}
