/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling a slow ring from a dead one. Places return in order, so only the oldest slot of a ring
 * matters. While its scope is open, only the submitter can end it, and the submitter is blocked:
 * that is a proof. Otherwise the slot waits for tasks that are already in the graph; they can only
 * hang on a gate, which is why silence while nothing runs is given ECH_STUCK_NS and then reported.
 */
#include "src/runtime/ring.h"

#include <stdio.h>

#include "src/base/error.h"

static const struct {
    const char *what, *unit, *setting;
    ech_status code;
} resources[ECH_RES_COUNT] = {
    [ECH_RES_WINDOW] = { "task window", "slots", "ECHELON_RING_TASK_WINDOW",
                         ECH_TASK_WINDOW_DEADLOCK },
    [ECH_RES_HEAP] = { "heap ring", "bytes", "ECHELON_RING_HEAP", ECH_HEAP_RING_DEADLOCK },
    [ECH_RES_DEPS] = { "dependency pool", "entries", "ECHELON_RING_DEP_POOL",
                       ECH_DEP_POOL_OVERFLOW },
};

/* Whether every slot of the ring belongs to the innermost open scope. */
static bool one_scope_holds_all(const ech_graph *const g, const ech_graph_ring *const r)
{
    for (uint64_t i = r->tail; i < r->head; i++) {
        const ech_slot *const s = &r->slots[i & (r->window - 1)];
        if (!s->scope_held || s->depth != g->depth || s->run_id != g->run_id) return false;
    }
    return true;
}

static void describe_head(const ech_slot *const head, char *const out, const size_t cap)
{
    if (head->scope_held) {
        (void)snprintf(out, cap, "task %u '%s' (%s) of the open scope at depth %u", head->serial,
                       head->label, ech_slot_state_name(head->state), head->depth);
    } else {
        (void)snprintf(out, cap, "task %u '%s' (%s, %u producers and %u users unfinished)",
                       head->serial, head->label, ech_slot_state_name(head->state), head->pending,
                       head->consumers);
    }
}

/* The next size to try: what is used and needed, doubled when the ring counts powers of two. */
static uint64_t suggest(const ech_resource res, const ech_ring_counters *const c,
                        const uint64_t need)
{
    const uint64_t least = c->used + need;
    if (res == ECH_RES_HEAP) return (least + 4095) / 4096 * 4096;
    uint64_t size = c->capacity;
    while (size < least || size == c->capacity)
        size *= 2;
    return size;
}

ech_status ech_graph_stuck(const ech_graph *const g, const ech_resource lack, const uint64_t need,
                           const int64_t idle_ns, ech_error *const err)
{
    const uint32_t ring = ech_graph_ring_of(g->depth);
    const ech_graph_ring *const r = &g->rings[ring];
    if (r->head == r->tail) return ECH_OK;
    const ech_slot *const head = &r->slots[r->tail & (r->window - 1)];
    const bool proved = head->scope_held && head->run_id == g->run_id;
    if (!proved && idle_ns < ECH_STUCK_NS) return ECH_OK;
    ech_ring_counters c;
    char who[128], how[64] = "only the blocked submitter can end that scope";
    ech_ring_counters_at(r, lack, &c);
    describe_head(head, who, sizeof who);
    if (!proved)
        (void)snprintf(how, sizeof how, "nothing has progressed for %lld ms",
                       (long long)(idle_ns / 1000000));
    ech_status code = resources[lack].code;
    if (lack == ECH_RES_WINDOW && proved && one_scope_holds_all(g, r)) code = ECH_SCOPE_DEADLOCK;
    return ech_fail(err, code,
                    "submitting a task: %s %u is full (%llu of %llu %s, high water %llu, %llu "
                    "needed), its head is %s, and %s; end scopes earlier or set %s to %llu",
                    resources[lack].what, ring, (unsigned long long)c.used,
                    (unsigned long long)c.capacity, resources[lack].unit,
                    (unsigned long long)c.high_water, (unsigned long long)need, who, how,
                    resources[lack].setting, (unsigned long long)suggest(lack, &c, need));
}
