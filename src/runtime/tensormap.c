/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensor map: see tensormap.h. Entries and nodes live in two growing arrays and are linked by
 * index, so that growing moves nothing that anybody points at. Guarded by the graph's owner.
 */
#include "src/runtime/tensormap.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/os/fault.h"

#define FIRST_ENTRIES 256u
#define FIRST_BUCKETS 256u

static uint32_t bucket_of(const ech_tensormap *const m, const ech_buffer *const b)
{
    uint64_t h =
        b->id * UINT64_C(0x9e3779b97f4a7c15) ^ b->generation * UINT64_C(0xc2b2ae3d27d4eb4f);
    h ^= b->nonce[0];
    h ^= h >> 32;
    return (uint32_t)h & (m->n_buckets - 1);
}

static bool node_is(const ech_map_node *const n, const ech_buffer *const b)
{
    return n->id == b->id && n->generation == b->generation && n->nonce == b->nonce[0];
}

/* A copy with more room; NULL when there is no memory, and the old one stays. */
static void *grow(void *const old, const size_t n_old, const size_t n_new, const size_t size)
{
    void *const p = ech_mem_alloc(n_new, size);
    if (p == NULL) return NULL;
    if (n_old > 0) memcpy(p, old, n_old * size);
    free(old);
    return p;
}

static ech_status grow_entries(ech_tensormap *const m, const uint32_t need, ech_error *const err)
{
    uint32_t n = m->n_entries ? m->n_entries : FIRST_ENTRIES;
    while (n - m->used_entries < need)
        n *= 2;
    if (n == m->n_entries) return ECH_OK;
    ech_map_entry *const e = grow(m->entries, m->n_entries, n, sizeof *e);
    if (e == NULL) return ech_fail(err, ECH_ENOMEM, "growing the tensor map: out of memory");
    m->entries = e;
    for (uint32_t i = n; i-- > m->n_entries;) {
        e[i].next = m->free_entry;
        m->free_entry = i;
    }
    m->n_entries = n;
    return ECH_OK;
}

static ech_status grow_nodes(ech_tensormap *const m, const uint32_t need, ech_error *const err)
{
    uint32_t n = m->n_nodes ? m->n_nodes : FIRST_ENTRIES;
    while (n - m->used_nodes < need)
        n *= 2;
    if (n == m->n_nodes) return ECH_OK;
    ech_map_node *const e = grow(m->nodes, m->n_nodes, n, sizeof *e);
    if (e == NULL) return ech_fail(err, ECH_ENOMEM, "growing the tensor map: out of memory");
    m->nodes = e;
    for (uint32_t i = n; i-- > m->n_nodes;) {
        e[i].next = m->free_node;
        m->free_node = i;
    }
    m->n_nodes = n;
    return ECH_OK;
}

/* Keeps chains short: at most one node a bucket on average. */
static ech_status grow_buckets(ech_tensormap *const m, const uint32_t need, ech_error *const err)
{
    uint32_t n = m->n_buckets ? m->n_buckets : FIRST_BUCKETS;
    while (n < m->used_nodes + need)
        n *= 2;
    if (n == m->n_buckets) return ECH_OK;
    uint32_t *const b = ech_mem_alloc(n, sizeof *b);
    if (b == NULL) return ech_fail(err, ECH_ENOMEM, "growing the tensor map: out of memory");
    memset(b, 0xff, n * sizeof *b);
    const uint32_t n_old = m->n_buckets;
    uint32_t *const old = m->buckets;
    m->buckets = b;
    m->n_buckets = n;
    for (uint32_t i = 0; i < n_old; i++) {
        for (uint32_t k = old[i], next; k != ECH_NO_ENTRY; k = next) {
            ech_map_node *const node = &m->nodes[k];
            const ech_buffer key = { .nonce = { node->nonce },
                                     .id = node->id,
                                     .generation = node->generation };
            next = node->next;
            node->bucket = bucket_of(m, &key);
            node->next = b[node->bucket];
            b[node->bucket] = k;
        }
    }
    free(old);
    return ECH_OK;
}

ech_status ech_tensormap_reserve(ech_tensormap *const m, const uint32_t n, ech_error *const err)
{
    ECH_TRY(grow_entries(m, n, err));
    ECH_TRY(grow_nodes(m, n, err));
    return grow_buckets(m, n, err);
}

ech_status ech_tensormap_init(ech_tensormap *const m, ech_error *const err)
{
    memset(m, 0, sizeof *m);
    m->free_entry = m->free_node = ECH_NO_ENTRY;
    return ech_tensormap_reserve(m, 1, err);
}

void ech_tensormap_fini(ech_tensormap *const m)
{
    free(m->entries);
    free(m->nodes);
    free(m->buckets);
    memset(m, 0, sizeof *m);
}

static uint32_t find_node(const ech_tensormap *const m, const ech_buffer *const b)
{
    uint32_t k = m->buckets[bucket_of(m, b)];
    while (k != ECH_NO_ENTRY && !node_is(&m->nodes[k], b))
        k = m->nodes[k].next;
    return k;
}

void ech_tensormap_find(const ech_tensormap *const m, const ech_buffer *const buffer,
                        const ech_box *const box, const bool reads, const bool writes,
                        void (*const fn)(void *ctx, uint32_t slot), void *const ctx)
{
    const uint32_t k = find_node(m, buffer);
    if (k == ECH_NO_ENTRY) return;
    for (uint32_t i = m->nodes[k].first; i != ECH_NO_ENTRY; i = m->entries[i].next) {
        const ech_map_entry *const e = &m->entries[i];
        if ((e->writes ? reads || writes : writes) && ech_box_overlaps(&e->box, box))
            fn(ctx, e->slot);
    }
}

static uint32_t make_node(ech_tensormap *const m, const ech_buffer *const b)
{
    const uint32_t k = m->free_node;
    ech_map_node *const n = &m->nodes[k];
    m->free_node = n->next;
    m->used_nodes++;
    *n = (ech_map_node){
        .nonce = b->nonce[0], .id = b->id, .generation = b->generation, .first = ECH_NO_ENTRY
    };
    n->bucket = bucket_of(m, b);
    n->next = m->buckets[n->bucket];
    m->buckets[n->bucket] = k;
    return k;
}

static void drop_node(ech_tensormap *const m, const uint32_t k)
{
    uint32_t *link = &m->buckets[m->nodes[k].bucket];
    while (*link != k)
        link = &m->nodes[*link].next;
    *link = m->nodes[k].next;
    m->nodes[k].next = m->free_node;
    m->free_node = k;
    m->used_nodes--;
}

/* Off its buffer's list. The node stays, even when it is empty. */
static void unlink_entry(ech_tensormap *const m, const uint32_t i)
{
    ech_map_entry *const e = &m->entries[i];
    if (e->prev != ECH_NO_ENTRY) {
        m->entries[e->prev].next = e->next;
    } else {
        m->nodes[e->node].first = e->next;
    }
    if (e->next != ECH_NO_ENTRY) m->entries[e->next].prev = e->prev;
}

static void drop_covered(ech_tensormap *const m, const uint32_t node, const ech_box *const box,
                         const uint32_t slot)
{
    for (uint32_t i = m->nodes[node].first, next; i != ECH_NO_ENTRY; i = next) {
        ech_map_entry *const e = &m->entries[i];
        next = e->next;
        if (e->slot == slot || !ech_box_covers(box, &e->box)) continue;
        unlink_entry(m, i);
        e->covered = true;
    }
}

void ech_tensormap_insert(ech_tensormap *const m, const ech_buffer *const buffer,
                          const ech_box *const box, const bool writes, const uint32_t slot,
                          uint32_t *const slot_head)
{
    uint32_t k = find_node(m, buffer);
    if (k == ECH_NO_ENTRY) {
        k = make_node(m, buffer);
    } else if (writes) {
        drop_covered(m, k, box, slot);
    }
    const uint32_t i = m->free_entry;
    ech_map_entry *const e = &m->entries[i];
    m->free_entry = e->next;
    m->used_entries++;
    *e = (ech_map_entry){ .prev = ECH_NO_ENTRY,
                          .next = m->nodes[k].first,
                          .slot_next = *slot_head,
                          .node = k,
                          .slot = slot,
                          .writes = writes };
    /* Only the dimensions in use: a run is the common case. */
    e->box.lo = box->lo;
    e->box.hi = box->hi;
    e->box.ndim = box->ndim;
    memcpy(e->box.stride, box->stride, box->ndim * sizeof *box->stride);
    memcpy(e->box.extent, box->extent, box->ndim * sizeof *box->extent);
    if (e->next != ECH_NO_ENTRY) m->entries[e->next].prev = i;
    m->nodes[k].first = i;
    *slot_head = i;
}

void ech_tensormap_remove(ech_tensormap *const m, uint32_t *const slot_head)
{
    for (uint32_t i = *slot_head, next; i != ECH_NO_ENTRY; i = next) {
        ech_map_entry *const e = &m->entries[i];
        next = e->slot_next;
        if (!e->covered) {
            unlink_entry(m, i);
            if (m->nodes[e->node].first == ECH_NO_ENTRY) drop_node(m, e->node);
        }
        e->next = m->free_entry;
        m->free_entry = i;
        m->used_entries--;
    }
    *slot_head = ECH_NO_ENTRY;
}
