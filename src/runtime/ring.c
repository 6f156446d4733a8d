/* SPDX-License-Identifier: Apache-2.0 */
/* Rings: see ring.h. Guarded by the graph's owner; allocates in init only. */
#include "src/runtime/ring.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"

ech_status ech_ring_init(ech_graph_ring *const r, const uint32_t ring,
                         const ech_ring_sizes *const sizes, const uint64_t region_offset,
                         ech_error *const err)
{
    r->index = ring;
    r->window = sizes->task_window[ring];
    r->dep_cap = sizes->dep_pool[ring];
    r->heap_bytes = sizes->heap_bytes[ring];
    r->region_offset = region_offset;
    r->slots = ech_mem_alloc(r->window, sizeof *r->slots);
    r->deps = ech_mem_alloc(r->dep_cap, sizeof *r->deps);
    if (r->slots == NULL || r->deps == NULL)
        return ech_fail(err, ECH_ENOMEM, "making ring %u: no memory for %u slots and %u entries",
                        ring, r->window, r->dep_cap);
    return ECH_OK;
}

void ech_ring_fini(ech_graph_ring *const r)
{
    for (uint64_t i = r->tail; r->slots != NULL && i < r->head; i++)
        free(r->slots[i % r->window].extra);
    free(r->slots);
    free(r->deps);
    r->slots = NULL;
    r->deps = NULL;
}

bool ech_ring_has_slot(const ech_graph_ring *const r)
{
    return r->head - r->tail < r->window;
}

/* The position at which a piece would start: never across the end of the ring. */
static uint64_t heap_start(const ech_graph_ring *const r, const uint64_t bytes)
{
    const uint64_t at = r->heap_head % r->heap_bytes;
    return at + bytes <= r->heap_bytes ? r->heap_head : r->heap_head + (r->heap_bytes - at);
}

bool ech_ring_has_heap(const ech_graph_ring *const r, uint64_t bytes)
{
    if (bytes == 0) return true;
    bytes = ech_ring_round(bytes);
    return heap_start(r, bytes) + bytes - r->heap_tail <= r->heap_bytes;
}

ech_status ech_ring_possible(const ech_graph_ring *const r, const uint32_t ring,
                             const ech_resource res, const uint64_t need, ech_error *const err)
{
    if (res == ECH_RES_HEAP && (need > r->heap_bytes || ech_ring_round(need) > r->heap_bytes))
        return ech_fail(err, ECH_HEAP_RING_DEADLOCK,
                        "allocating %llu bytes from heap ring %u: the whole ring has %llu; set "
                        "ECHELON_RING_HEAP to at least %llu",
                        (unsigned long long)need, ring, (unsigned long long)r->heap_bytes,
                        (unsigned long long)ech_ring_round(need));
    if (res == ECH_RES_DEPS && need > r->dep_cap)
        return ech_fail(err, ECH_DEP_POOL_OVERFLOW,
                        "submitting a task with %llu producers: dependency pool %u has %u entries "
                        "in all; set ECHELON_RING_DEP_POOL to at least %llu",
                        (unsigned long long)need, ring, r->dep_cap, (unsigned long long)need);
    return ECH_OK;
}

void ech_ring_count(ech_graph_ring *const r, const ech_resource res, const uint64_t taken,
                    const uint64_t used)
{
    ech_ring_counters *const c = &r->count[res];
    c->taken += taken;
    if (used > c->high_water) c->high_water = used;
}

void ech_ring_counters_at(const ech_graph_ring *const r, const ech_resource res,
                          ech_ring_counters *const ret)
{
    *ret = r->count[res];
    switch (res) {
    case ECH_RES_WINDOW:
        ret->capacity = r->window;
        ret->used = r->head - r->tail;
        break;
    case ECH_RES_HEAP:
        ret->capacity = r->heap_bytes;
        ret->used = r->heap_head - r->heap_tail;
        break;
    default:
        ret->capacity = r->dep_cap;
        ret->used = r->dep_head - r->dep_tail;
    }
}

ech_slot *ech_ring_take_slot(ech_graph_ring *const r)
{
    const uint32_t idx = (uint32_t)(r->head & (r->window - 1));
    ech_slot *const s = &r->slots[idx];
    r->head++;
    s->generation++;
    s->ring = (uint8_t)r->index;
    s->ref = ECH_SLOT_REF(r->index, idx);
    s->consumers = s->members_failed = 0;
    s->first_out = s->next = ECH_NO_SLOT;
    s->map_head = ECH_NO_ENTRY;
    s->mark = 0;
    s->accepted = s->settled = s->drained = false;
    s->cause = s->poisoned = 0;
    s->member_args = NULL;
    s->member_child = NULL;
    s->heap_lo = s->heap_hi = r->heap_head;
    ech_store_release(&s->state, ECH_SLOT_BUILDING);
    ech_ring_count(r, ECH_RES_WINDOW, 1, r->head - r->tail);
    return s;
}

void ech_ring_take_heap(ech_graph_ring *const r, ech_slot *const slot, const uint64_t bytes)
{
    const uint64_t size = ech_ring_round(bytes);
    slot->heap_lo = heap_start(r, size);
    slot->heap_hi = slot->heap_lo + size;
    r->heap_head = slot->heap_hi;
    ech_ring_count(r, ECH_RES_HEAP, size, r->heap_head - r->heap_tail);
}

void ech_ring_buffer(const ech_graph *const g, const ech_slot *const slot, const uint64_t pos,
                     ech_buffer *const ret)
{
    const ech_graph_ring *const r = &g->rings[slot->ring];
    const uint64_t start = r->region_offset + pos % r->heap_bytes;
    ret->nonce[0] = g->nonce[0];
    ret->nonce[1] = g->nonce[1];
    ret->id = ECH_RING_BUFFER | (uint64_t)slot->ring << 60 | start / ECH_HEAP_ALIGN;
    ret->generation = (uint64_t)slot->generation << 32 | (slot->ref & 0x0fffffff);
}

bool ech_ring_reclaim(ech_graph_ring *const r)
{
    const uint64_t before = r->tail;
    while (r->tail < r->head) {
        ech_slot *const s = &r->slots[r->tail & (r->window - 1)];
        if (s->state != ECH_SLOT_CONSUMED) break;
        if (s->extra != NULL) {
            free(s->extra);
            s->extra = NULL;
        }
        if (s->heap_hi > s->heap_lo) r->heap_tail = s->heap_hi;
        r->dep_tail = s->dep_hi;
        ech_store_release(&s->state, ECH_SLOT_FREE);
        r->tail++;
    }
    if (r->heap_tail == r->heap_head) r->heap_head = r->heap_tail = 0;
    return r->tail != before;
}
