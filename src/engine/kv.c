/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References on KV pages, the stack of free ones and the heap of evictable ones.
 *
 * Invariant: a page is on the free stack exactly when it has no reference and is no node; it is in
 * the heap exactly when it has no reference, is a node and has no children. Runs on the engine's
 * thread. Prefixes are kv_tree.c's.
 */
#include "src/engine/kv_int.h"

#include <stdlib.h>

#include "src/base/error.h"

/* A page of a prefix p pages deep counts as used p/8 ticks later, at most 32: recomputing it costs
 * attention over all that is before it. */
enum { TICK_WEIGHT = 8, DEPTH_WEIGHT_MAX = 256 };

static uint32_t bucket_count(uint32_t n_pages)
{
    uint32_t n = 16;
    while (n < n_pages && n < UINT32_C(1) << 30)
        n *= 2;
    return n;
}

ech_status ech_kv_init(ech_kv *kv, uint32_t n_pages, uint64_t seed, ech_error *err)
{
    ECH_ASSERT(n_pages > 0 && n_pages < ECH_KV_NONE);
    const uint32_t n_buckets = bucket_count(n_pages);
    *kv = (ech_kv){ .n_pages = n_pages, .n_buckets = n_buckets, .seed = seed, .cap_salts = 1 };
    kv->pages = calloc(n_pages, sizeof *kv->pages);
    kv->free_stack = calloc(n_pages, sizeof *kv->free_stack);
    kv->heap = calloc(n_pages, sizeof *kv->heap);
    kv->by_hash = malloc(n_buckets * sizeof *kv->by_hash);
    kv->by_parent = malloc(n_buckets * sizeof *kv->by_parent);
    kv->salts = calloc(1, sizeof *kv->salts);
    if (kv->pages == NULL || kv->free_stack == NULL || kv->heap == NULL || kv->by_hash == NULL ||
        kv->by_parent == NULL || kv->salts == NULL) {
        ech_kv_fini(kv);
        return ech_fail(err, ECH_ENOMEM, "making the table of %u KV pages: out of memory", n_pages);
    }
    kv->salts[0].n_uses = 1; /* the empty name, for ever */
    for (uint32_t i = 0; i < n_buckets; i++)
        kv->by_hash[i] = kv->by_parent[i] = ECH_KV_NONE;
    for (uint32_t i = 0; i < n_pages; i++) {
        kv->pages[i].heap_pos = ECH_KV_NONE;
        kv->free_stack[i] = n_pages - 1 - i; /* low numbers first: they share memory pages */
    }
    kv->n_free = n_pages;
    return ECH_OK;
}

void ech_kv_fini(ech_kv *kv)
{
    for (uint32_t i = 0; kv->salts != NULL && i < kv->cap_salts; i++)
        free(kv->salts[i].name);
    free(kv->pages);
    free(kv->free_stack);
    free(kv->heap);
    free(kv->by_hash);
    free(kv->by_parent);
    free(kv->salts);
    *kv = (ech_kv){ 0 };
}

/* ---- the heap: a binary heap by what_goes_first ---- */

static uint64_t eviction_key(const ech_kv_page *p)
{
    const uint64_t depth = p->depth < DEPTH_WEIGHT_MAX ? p->depth : DEPTH_WEIGHT_MAX;
    return p->last_use * TICK_WEIGHT + depth;
}

static bool goes_first(const ech_kv *kv, uint32_t a, uint32_t b)
{
    const uint64_t key_a = eviction_key(&kv->pages[a]), key_b = eviction_key(&kv->pages[b]);
    return key_a < key_b || (key_a == key_b && a < b);
}

static void heap_place(ech_kv *kv, uint32_t pos, uint32_t page)
{
    kv->heap[pos] = page;
    kv->pages[page].heap_pos = pos;
}

static void heap_up(ech_kv *kv, uint32_t pos)
{
    const uint32_t page = kv->heap[pos];
    for (; pos > 0 && goes_first(kv, page, kv->heap[(pos - 1) / 2]); pos = (pos - 1) / 2)
        heap_place(kv, pos, kv->heap[(pos - 1) / 2]);
    heap_place(kv, pos, page);
}

static void heap_down(ech_kv *kv, uint32_t pos)
{
    const uint32_t page = kv->heap[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= kv->n_heap) break;
        if (child + 1 < kv->n_heap && goes_first(kv, kv->heap[child + 1], kv->heap[child])) child++;
        if (!goes_first(kv, kv->heap[child], page)) break;
        heap_place(kv, pos, kv->heap[child]);
        pos = child;
    }
    heap_place(kv, pos, page);
}

static void heap_remove(ech_kv *kv, uint32_t page)
{
    const uint32_t pos = kv->pages[page].heap_pos;
    const uint32_t last = kv->heap[--kv->n_heap];
    kv->pages[page].heap_pos = ECH_KV_NONE;
    if (last == page) return;
    heap_place(kv, pos, last);
    heap_up(kv, pos);
    heap_down(kv, kv->pages[last].heap_pos);
}

void ech_kv_heap_update(ech_kv *kv, uint32_t page)
{
    const ech_kv_page *const p = &kv->pages[page];
    const bool is_evictable = p->refs == 0 && ech_kv_is_node(p) && p->n_children == 0;
    if (p->heap_pos != ECH_KV_NONE) heap_remove(kv, page);
    if (!is_evictable) return;
    heap_place(kv, kv->n_heap++, page);
    heap_up(kv, kv->n_heap - 1);
}

/* ---- references ---- */

static void evict_one(ech_kv *kv)
{
    const uint32_t page = kv->heap[0];
    ech_kv_tree_remove(kv, page);
    kv->n_cached--;
    kv->n_evictions++;
    kv->free_stack[kv->n_free++] = page;
}

bool ech_kv_acquire(ech_kv *kv, uint32_t *ret_page)
{
    if (kv->n_free == 0 && kv->n_heap == 0) return false;
    if (kv->n_free == 0) evict_one(kv);
    const uint32_t page = kv->free_stack[--kv->n_free];
    ECH_DCHECK(kv->pages[page].refs == 0 && !ech_kv_is_node(&kv->pages[page]));
    kv->pages[page].refs = 1;
    *ret_page = page;
    return true;
}

void ech_kv_ref(ech_kv *kv, uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    ECH_ASSERT(page < kv->n_pages && (p->refs > 0 || ech_kv_is_node(p)));
    if (p->refs++ > 0) return;
    kv->n_cached--;
    ech_kv_heap_update(kv, page);
}

void ech_kv_unref(ech_kv *kv, uint32_t page)
{
    ECH_ASSERT(page < kv->n_pages && kv->pages[page].refs > 0);
    ech_kv_page *const p = &kv->pages[page];
    if (--p->refs > 0) return;
    if (ech_kv_is_node(p)) {
        kv->n_cached++;
        ech_kv_heap_update(kv, page);
    } else {
        kv->free_stack[kv->n_free++] = page;
    }
}

uint32_t ech_kv_refs(const ech_kv *kv, uint32_t page)
{
    return kv->pages[page].refs;
}

/* A sequence holds every page of its prefix, so below a cached page all are cached, and each can be
 * had once those below it are gone. */
uint32_t ech_kv_n_available(const ech_kv *kv)
{
    return kv->n_free + kv->n_cached;
}

void ech_kv_touch(ech_kv *kv, uint32_t page)
{
    kv->pages[page].last_use = ++kv->tick;
    ech_kv_heap_update(kv, page);
}

bool ech_kv_is_sound(const ech_kv *kv)
{
    uint32_t n_free = 0, n_cached = 0, n_evictable = 0;
    for (uint32_t i = 0; i < kv->n_pages; i++) {
        const ech_kv_page *const p = &kv->pages[i];
        const bool is_evictable = p->refs == 0 && ech_kv_is_node(p) && p->n_children == 0;
        n_free += p->refs == 0 && !ech_kv_is_node(p);
        n_cached += p->refs == 0 && ech_kv_is_node(p);
        n_evictable += is_evictable;
        if (is_evictable != (p->heap_pos != ECH_KV_NONE)) return false;
        if (is_evictable && kv->heap[p->heap_pos] != i) return false;
    }
    for (uint32_t i = 1; i < kv->n_heap; i++)
        if (goes_first(kv, kv->heap[i], kv->heap[(i - 1) / 2])) return false;
    return n_free == kv->n_free && n_cached == kv->n_cached && n_evictable == kv->n_heap &&
           ech_kv_tree_is_sound(kv);
}
