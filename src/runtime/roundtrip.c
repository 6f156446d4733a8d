/* SPDX-License-Identifier: Apache-2.0 */
/* The bare hand-over, for measuring: endpoint and mailbox as runs use them, no graph. */
#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/runtime/registry.h"
#include "src/runtime/sched.h"

typedef struct trip {
    const ech_worker *w;
    bool accepted, completed;
    ech_status result;
    ech_error *err;
} trip;

static void on_accepted(void *const ctx, ech_endpoint *const ep, const ech_identity *const id)
{
    (void)ep;
    (void)id;
    ((trip *)ctx)->accepted = true;
}

static void on_completed(void *const ctx, ech_endpoint *const ep, const ech_completion *const c)
{
    trip *const t = ctx;
    (void)ep;
    t->completed = true;
    t->result = c->result;
    if (c->result != ECH_OK)
        (void)ech_fail(t->err, c->result, "measuring a hand-over: %s", c->text);
}

static ech_status check(const ech_worker *const w, const ech_endpoint *const ep,
                        const uint32_t place, ech_error *const err)
{
    if (w->state != ECH_WORKER_READY || w->runs.active != NULL || ep->state != ECH_CHILD_READY)
        return ech_fail(err, ECH_ESTATE,
                        "measuring hand-overs: %s must be READY, without a run in flight", w->name);
    if (!ech_registry_runs(w, ep->kind, w->shared->callables[place].kind))
        return ech_fail(err, ECH_EINVAL, "measuring hand-overs: child %u can't run that callable",
                        ep->child);
    return ECH_OK;
}

/* One task there and back. The child's death is noticed as in every wait. */
static ech_status one_trip(ech_worker *const w, ech_endpoint *const ep, const ech_slot *const s,
                           trip *const t)
{
    const ech_completion_sink sink = { on_accepted, on_completed, t };
    const ech_identity id = { ++w->dispatch_id, w->runs.done_id + 1, s->ref, s->generation };
    t->accepted = t->completed = false;
    ech_endpoint_activate(
        ep, ech_endpoint_stage(ep, &id, s, 0, w->shared->callables[s->callable].generation));
    while (!t->completed) {
        while (!ech_endpoint_has_news(ep)) {
            if (ech_load_relaxed(&w->shared->zygote_events) != w->seen_events) break;
            ech_cpu_relax();
        }
        ech_endpoint_collect(ep, &sink);
        if (!t->completed && ech_load_relaxed(&w->shared->zygote_events) != w->seen_events &&
            ech_events_take(w) && !ech_endpoint_busy(ep))
            return ech_fail(t->err, ECH_ELOST, "measuring a hand-over: %s", ep->lost.text);
    }
    ECH_ASSERT(t->accepted);
    return t->result;
}

ech_status ech_worker_round_trips(ech_worker *const w, const uint32_t child,
                                  const ech_callable *const callable, const size_t n,
                                  int64_t *const ret_ns, ech_error *const err)
{
    uint32_t place;
    uint64_t scalar = 0;
    ech_slot s = { .kind = ECH_SLOT_SUB, .args = { .n_scalars = 1, .scalars = &scalar } };
    if (child >= w->n_children)
        return ech_fail(err, ECH_EINVAL, "measuring hand-overs: child %u isn't one", child);
    pthread_mutex_lock(&w->lock);
    ech_status rc = ech_registry_find(w, callable, &place, err);
    if (rc == ECH_OK) rc = check(w, &w->endpoints[child], place, err);
    if (rc == ECH_OK) {
        trip t = { .w = w, .err = err };
        s.callable = (uint8_t)place;
        for (size_t i = 0; i < n && rc == ECH_OK; i++) {
            const int64_t start = ech_now_ns();
            rc = one_trip(w, &w->endpoints[child], &s, &t);
            ret_ns[i] = ech_now_ns() - start;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}
