/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads and writes which bytes: for each buffer that unfinished tasks of a run name, the list
 * of their accesses. A new access finds the earlier ones it must wait for (RAW, WAW, WAR).
 *
 * Entries leave when their task completes, and when a later writer covers them whole: whoever
 * comes after that writer is ordered behind them through it. A writer covered in part stays, so
 * that its other bytes are still found. So the map is bounded by the tasks alive.
 */
#ifndef ECH_RUNTIME_TENSORMAP_H
#define ECH_RUNTIME_TENSORMAP_H

#include "src/runtime/box.h"

#define ECH_NO_ENTRY UINT32_MAX

typedef struct ech_map_entry {
    uint32_t prev, next; /* in its buffer's list, or the free list */
    uint32_t slot_next;  /* next entry of the same slot */
    uint32_t node;       /* its buffer */
    uint32_t slot;       /* who */
    bool writes;
    bool covered; /* by a later writer: off its buffer's list, kept on its slot's */
    ech_box box;
} ech_map_entry;

typedef struct ech_map_node {
    uint64_t nonce, id, generation;
    uint32_t first; /* newest entry */
    uint32_t next;  /* in the bucket, or the free list */
    uint32_t bucket;
} ech_map_node;

typedef struct ech_tensormap {
    ech_map_entry *entries;
    ech_map_node *nodes;
    uint32_t *buckets;
    uint32_t n_entries, n_nodes, n_buckets; /* allocated */
    uint32_t free_entry, free_node;
    uint32_t used_entries, used_nodes;
} ech_tensormap;

ech_status ech_tensormap_init(ech_tensormap *m, ech_error *err);
void ech_tensormap_fini(ech_tensormap *m);
/* Room for n more entries, so that inserting can't fail. */
ech_status ech_tensormap_reserve(ech_tensormap *m, uint32_t n, ech_error *err);

/*
 * Calls fn for each access that one with this box has to wait for. reads: RAW; writes: WAW and WAR.
 * The same slot may be named more than once.
 */
void ech_tensormap_find(const ech_tensormap *m, const ech_buffer *buffer, const ech_box *box,
                        bool reads, bool writes, void (*fn)(void *ctx, uint32_t slot), void *ctx);
/* Notes an access; *slot_head is the slot's list. Room was reserved. */
void ech_tensormap_insert(ech_tensormap *m, const ech_buffer *buffer, const ech_box *box,
                          bool writes, uint32_t slot, uint32_t *slot_head);
/* Forgets all accesses of a slot. */
void ech_tensormap_remove(ech_tensormap *m, uint32_t *slot_head);

#endif
