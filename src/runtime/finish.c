/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tasks end: consumers become ready or fail with the root cause, memory is given back when
 * nobody can use it any more. Guarded by the owner's lock; allocates nothing.
 */
#include "src/runtime/graph.h"

#include <stdlib.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/runtime/ring.h"

bool ech_slot_claim(ech_slot *const slot)
{
    uint32_t expected = ECH_SLOT_READY;
    return ech_cas(&slot->state, &expected, ECH_SLOT_RUNNING);
}

void ech_graph_make_ready(ech_graph *const g, ech_slot *const slot)
{
    uint32_t expected = ECH_SLOT_PENDING;
    if (!ech_cas(&slot->state, &expected, ECH_SLOT_READY)) return;
    slot->ready_seq = g->ready_seq++;
    g->hooks.ready(g->hooks.ctx, slot);
}

/* Whether nobody needs the slot any more; then it, and all consumed ones before it, are free. */
void ech_graph_consume(ech_graph *const g, ech_slot *const s)
{
    if (!s->drained || s->scope_held || s->consumers > 0) return;
    if (s->state != ECH_SLOT_COMPLETED && s->state != ECH_SLOT_FAILED) return;
    ech_store_release(&s->state, ECH_SLOT_CONSUMED);
    if (ech_ring_reclaim(&g->rings[s->ring])) g->progress++;
}

/* The task has ended, so it no longer uses its producers' memory. */
static void release_producers(ech_graph *const g, ech_slot *const s)
{
    const ech_graph_ring *const r = &g->rings[s->ring];
    for (uint64_t i = s->dep_lo; i < s->dep_hi; i++) {
        ech_slot *const p = ech_graph_slot(g, r->deps[i % r->dep_cap].producer);
        p->consumers--;
        ech_graph_consume(g, p);
    }
}

/*
 * Ending has two halves. A task settles when its outcome is known: consumers of a failed one fail
 * too, at once. It drains when besides that nothing it was ordered behind still runs; only then
 * are its consumers let go, since whoever comes after it in the order relies on that. A task that
 * ran settles and drains together; one that failed before it ran may have to wait.
 */
typedef struct work {
    uint32_t settle, drain; /* lists through `next`, which such slots don't use otherwise */
} work;

static void put(uint32_t *const list, ech_slot *const s)
{
    s->next = *list;
    *list = s->ref;
}

static ech_slot *take(const ech_graph *const g, uint32_t *const list)
{
    ech_slot *const s = ech_graph_slot(g, *list);
    *list = s->next;
    return s;
}

static void poison_consumers(ech_graph *const g, const ech_slot *const s, work *const w)
{
    for (uint32_t at = s->first_out; at != ECH_NO_SLOT;) {
        const ech_dep *const d = &g->rings[at >> 28].deps[at & 0x0fffffff];
        ech_slot *const c = ech_graph_slot(g, d->consumer);
        uint32_t expected = ECH_SLOT_PENDING;
        at = d->next;
        if (!ech_cas(&c->state, &expected, ECH_SLOT_FAILED)) continue;
        c->poisoned = 1;
        c->cause = s->cause;
        put(&w->settle, c);
    }
}

static void settle(ech_graph *const g, ech_slot *const s, work *const w)
{
    if (s->state == ECH_SLOT_FAILED) poison_consumers(g, s, w);
    s->settled = true;
    g->hooks.terminal(g->hooks.ctx, s);
    release_producers(g, s);
    g->progress++;
    if (s->pending == 0) put(&w->drain, s);
}

static void drain(ech_graph *const g, ech_slot *const s, work *const w)
{
    uint32_t at = s->first_out;
    s->first_out = ECH_NO_SLOT;
    ech_tensormap_remove(&g->maps[s->run], &s->map_head);
    while (at != ECH_NO_SLOT) {
        const ech_dep *const d = &g->rings[at >> 28].deps[at & 0x0fffffff];
        ech_slot *const c = ech_graph_slot(g, d->consumer);
        at = d->next;
        if (--c->pending > 0) continue;
        if (c->state == ECH_SLOT_FAILED) {
            if (c->settled) put(&w->drain, c);
        } else if (c->kind != ECH_SLOT_GATE) {
            ech_graph_make_ready(g, c);
        }
    }
    s->drained = true; /* from here on it may be reclaimed */
    ech_graph_consume(g, s);
}

void ech_graph_finish(ech_graph *const g, ech_slot *const slot, const bool failed,
                      const uint8_t cause)
{
    work w = { ECH_NO_SLOT, ECH_NO_SLOT };
    slot->cause = cause;
    ech_store_release(&slot->state, failed ? ECH_SLOT_FAILED : ECH_SLOT_COMPLETED);
    put(&w.settle, slot);
    while (w.settle != ECH_NO_SLOT || w.drain != ECH_NO_SLOT) {
        if (w.settle != ECH_NO_SLOT) {
            settle(g, take(g, &w.settle), &w);
        } else {
            drain(g, take(g, &w.drain), &w);
        }
    }
}
