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
    if (!s->settled || s->scope_held || s->consumers > 0 || s->pending > 0) return;
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
 * Tells the consumers. Those that fail with this task are chained into *failures through `next`,
 * which a PENDING slot doesn't use otherwise.
 */
static void tell_consumers(ech_graph *const g, ech_slot *const s, uint32_t *const failures)
{
    const bool failed = s->state == ECH_SLOT_FAILED;
    uint32_t at = s->first_out;
    s->first_out = ECH_NO_SLOT;
    while (at != ECH_NO_SLOT) {
        const ech_dep *const d = &g->rings[at >> 28].deps[at & 0x0fffffff];
        ech_slot *const c = ech_graph_slot(g, d->consumer);
        at = d->next;
        c->pending--;
        uint32_t expected = ECH_SLOT_PENDING;
        if (failed && ech_cas(&c->state, &expected, ECH_SLOT_FAILED)) {
            c->poisoned = 1;
            c->cause = s->cause;
            c->next = *failures;
            *failures = c->ref;
        } else if (c->state == ECH_SLOT_FAILED) {
            ech_graph_consume(g, c); /* this was the last one that pointed at it */
        } else if (c->pending == 0 && c->kind != ECH_SLOT_GATE) {
            ech_graph_make_ready(g, c);
        }
    }
}

/* A slot that has just become terminal. */
static void settle(ech_graph *const g, ech_slot *const s, uint32_t *const failures)
{
    ech_tensormap_remove(&g->maps[s->run], &s->map_head);
    tell_consumers(g, s, failures);
    g->hooks.terminal(g->hooks.ctx, s);
    release_producers(g, s);
    s->settled = true; /* from here on it may be reclaimed */
    ech_graph_consume(g, s);
    g->progress++;
}

void ech_graph_finish(ech_graph *const g, ech_slot *const slot, const bool failed,
                      const uint8_t cause)
{
    uint32_t failures = ECH_NO_SLOT;
    slot->cause = cause;
    ech_store_release(&slot->state, failed ? ECH_SLOT_FAILED : ECH_SLOT_COMPLETED);
    settle(g, slot, &failures);
    while (failures != ECH_NO_SLOT) {
        ech_slot *const s = ech_graph_slot(g, failures);
        failures = s->next;
        settle(g, s, &failures);
    }
}
