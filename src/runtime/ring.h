/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ring: task slots, heap bytes and dependency entries that are taken and given back in order.
 *
 *      tail                     head
 *        v                        v
 *     [ 5 | 6 consumed | 7 | 8 | free … ]    6 returns when 5 does: places are a FIFO, so that
 *                                            taking one is adding 1, and memory is never in pieces
 *
 * Positions count up for ever; the place is position modulo size. A heap piece never wraps: what
 * is left before the end is skipped and returns with the piece. A heap without users starts again
 * at place 0, so that a piece as large as the ring always fits into an empty one.
 */
#ifndef ECH_RUNTIME_RING_H
#define ECH_RUNTIME_RING_H

#include "src/runtime/graph.h"

/* Heap pieces are multiples of this, and aligned to it: one cache line. */
#define ECH_HEAP_ALIGN 64u

ech_status ech_ring_init(ech_graph_ring *r, uint32_t ring, const ech_ring_sizes *sizes,
                         uint64_t region_offset, ech_error *err);
void ech_ring_fini(ech_graph_ring *r);

static inline uint64_t ech_ring_round(const uint64_t bytes)
{
    return (bytes + ECH_HEAP_ALIGN - 1) / ECH_HEAP_ALIGN * ECH_HEAP_ALIGN;
}

bool ech_ring_has_slot(const ech_graph_ring *r);
bool ech_ring_has_heap(const ech_graph_ring *r, uint64_t bytes);
/* An error when even an empty ring couldn't give that much. */
ech_status ech_ring_possible(const ech_graph_ring *r, uint32_t ring, ech_resource res,
                             uint64_t need, ech_error *err);
/* These take what was seen to be there. */
ech_slot *ech_ring_take_slot(ech_graph_ring *r);
void ech_ring_take_heap(ech_graph_ring *r, ech_slot *slot, uint64_t bytes);
/* The identity of the piece of a slot's memory that starts at this heap position. */
void ech_ring_buffer(const ech_graph *g, const ech_slot *slot, uint64_t pos, ech_buffer *ret);
/* Gives back every consumed slot at the tail; whether there was any. */
bool ech_ring_reclaim(ech_graph_ring *r);
void ech_ring_count(ech_graph_ring *r, ech_resource res, uint64_t taken, uint64_t used);
/* Brings the counters' `used` and `capacity` up to date. */
void ech_ring_counters_at(const ech_graph_ring *r, ech_resource res, ech_ring_counters *ret);

/* Shared by graph.c and finish.c. */
void ech_graph_make_ready(ech_graph *g, ech_slot *slot);
void ech_graph_consume(ech_graph *g, ech_slot *slot);

#endif
