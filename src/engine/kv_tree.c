/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of prefixes over KV pages: salts, lookup, insertion, removal.
 *
 * Invariant: a node with children is full; a chain of parents ends at ECH_KV_NONE and has one salt;
 * no two full nodes stand for the same prefix; the parents of a held node are held.
 *
 * Runs on the engine's thread.
 */
#include "src/engine/kv_int.h"

#include <stdlib.h>
#include <xxhash.h>

#include "src/base/error.h"

/* ---- salts ---- */

bool ech_kv_salt_find(const ech_kv *kv, ech_str name, uint32_t *ret_salt)
{
    for (uint32_t i = 0; i < kv->cap_salts; i++) {
        const ech_kv_salt *const s = &kv->salts[i];
        if (s->n_uses == 0 || !ech_str_eq((ech_str){ s->name, s->len }, name)) continue;
        *ret_salt = i;
        return true;
    }
    return false;
}

static ech_status grow_salts(ech_kv *kv, uint32_t *ret_salt)
{
    for (uint32_t i = 0; i < kv->cap_salts; i++) {
        if (kv->salts[i].n_uses > 0) continue;
        *ret_salt = i;
        return ECH_OK;
    }
    const uint32_t cap = kv->cap_salts > 0 ? kv->cap_salts * 2 : 1;
    ech_kv_salt *const grown = realloc(kv->salts, cap * sizeof *grown);
    if (grown == NULL) return ECH_ENOMEM;
    memset(grown + kv->cap_salts, 0, (cap - kv->cap_salts) * sizeof *grown);
    *ret_salt = kv->cap_salts;
    kv->salts = grown;
    kv->cap_salts = cap;
    return ECH_OK;
}

ech_status ech_kv_salt_acquire(ech_kv *kv, ech_str name, uint32_t *ret_salt)
{
    uint32_t salt = 0;
    if (!ech_kv_salt_find(kv, name, &salt)) {
        ECH_TRY(grow_salts(kv, &salt));
        char *const copy = malloc(name.len);
        if (copy == NULL) return ECH_ENOMEM;
        memcpy(copy, name.ptr, name.len);
        kv->salts[salt].name = copy;
        kv->salts[salt].len = name.len;
    }
    kv->salts[salt].n_uses++;
    *ret_salt = salt;
    return ECH_OK;
}

void ech_kv_salt_release(ech_kv *kv, uint32_t salt)
{
    ech_kv_salt *const s = &kv->salts[salt];
    ECH_ASSERT(salt < kv->cap_salts && s->n_uses > 0);
    if (--s->n_uses > 0) return;
    free(s->name);
    *s = (ech_kv_salt){ 0 };
}

/* ---- hashes and chains ---- */

typedef struct prefix_key {
    uint64_t before[2]; /* hash of the prefix before, or the salt's number and ~0 */
    int32_t ids[ECH_KV_TOKENS];
} prefix_key;

static void hash_prefix(const ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids,
                        uint64_t ret_hash[2])
{
    prefix_key key = { .before = { salt, ~UINT64_C(0) } };
    if (parent != ECH_KV_NONE) memcpy(key.before, kv->pages[parent].hash, sizeof key.before);
    memcpy(key.ids, ids, sizeof key.ids);
    const XXH128_hash_t h = XXH3_128bits_withSeed(&key, sizeof key, kv->seed);
    ret_hash[0] = h.low64;
    ret_hash[1] = h.high64;
}

static uint32_t hash_bucket(const ech_kv *kv, const uint64_t hash[2])
{
    return (uint32_t)hash[0] & (kv->n_buckets - 1);
}

static uint32_t parent_bucket(const ech_kv *kv, uint32_t salt, uint32_t parent, int32_t first_id)
{
    const uint32_t key[3] = { parent == ECH_KV_NONE ? salt : 0, parent, (uint32_t)first_id };
    return (uint32_t)XXH3_64bits_withSeed(key, sizeof key, kv->seed) & (kv->n_buckets - 1);
}

static bool is_same_place(const ech_kv_page *p, uint32_t salt, uint32_t parent)
{
    return p->parent == parent && p->salt == salt;
}

static uint32_t find_full(const ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids)
{
    uint64_t hash[2];
    hash_prefix(kv, salt, parent, ids, hash);
    uint32_t i = kv->by_hash[hash_bucket(kv, hash)];
    for (; i != ECH_KV_NONE; i = kv->pages[i].hash_next) {
        const ech_kv_page *const p = &kv->pages[i];
        if (memcmp(p->hash, hash, sizeof hash) == 0 && is_same_place(p, salt, parent) &&
            memcmp(p->ids, ids, sizeof p->ids) == 0)
            break;
    }
    return i;
}

static uint32_t common_prefix(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The child that shares most with ids[0..n); how much goes to *ret_ids. */
static uint32_t find_partial(const ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids,
                             size_t n, uint32_t *ret_ids)
{
    uint32_t best = ECH_KV_NONE, best_ids = 0;
    if (n > 0) {
        uint32_t i = kv->by_parent[parent_bucket(kv, salt, parent, ids[0])];
        for (; i != ECH_KV_NONE; i = kv->pages[i].parent_next) {
            const ech_kv_page *const p = &kv->pages[i];
            if (!is_same_place(p, salt, parent)) continue;
            const uint32_t limit = n < p->n_ids ? (uint32_t)n : p->n_ids;
            const uint32_t same = common_prefix(p->ids, ids, limit);
            if (same <= best_ids) continue;
            best = i;
            best_ids = same;
        }
    }
    *ret_ids = best_ids;
    return best;
}

static void link_hash(ech_kv *kv, uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    hash_prefix(kv, p->salt, p->parent, p->ids, p->hash);
    uint32_t *const head = &kv->by_hash[hash_bucket(kv, p->hash)];
    p->hash_prev = ECH_KV_NONE;
    p->hash_next = *head;
    if (*head != ECH_KV_NONE) kv->pages[*head].hash_prev = page;
    *head = page;
}

static void unlink_hash(ech_kv *kv, const ech_kv_page *p)
{
    if (p->hash_next != ECH_KV_NONE) kv->pages[p->hash_next].hash_prev = p->hash_prev;
    if (p->hash_prev != ECH_KV_NONE)
        kv->pages[p->hash_prev].hash_next = p->hash_next;
    else
        kv->by_hash[hash_bucket(kv, p->hash)] = p->hash_next;
}

static void link_parent(ech_kv *kv, uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    uint32_t *const head = &kv->by_parent[parent_bucket(kv, p->salt, p->parent, p->ids[0])];
    p->parent_prev = ECH_KV_NONE;
    p->parent_next = *head;
    if (*head != ECH_KV_NONE) kv->pages[*head].parent_prev = page;
    *head = page;
    if (p->parent == ECH_KV_NONE) return;
    kv->pages[p->parent].n_children++;
    ech_kv_heap_update(kv, p->parent);
}

static void unlink_parent(ech_kv *kv, const ech_kv_page *p)
{
    if (p->parent_next != ECH_KV_NONE) kv->pages[p->parent_next].parent_prev = p->parent_prev;
    if (p->parent_prev != ECH_KV_NONE)
        kv->pages[p->parent_prev].parent_next = p->parent_next;
    else
        kv->by_parent[parent_bucket(kv, p->salt, p->parent, p->ids[0])] = p->parent_next;
    if (p->parent == ECH_KV_NONE) return;
    kv->pages[p->parent].n_children--;
    ech_kv_heap_update(kv, p->parent);
}

void ech_kv_tree_remove(ech_kv *kv, uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    ECH_ASSERT(ech_kv_is_node(p) && p->n_children == 0);
    if (p->n_ids == ECH_KV_TOKENS) unlink_hash(kv, p);
    unlink_parent(kv, p);
    if (p->parent == ECH_KV_NONE) ech_kv_salt_release(kv, p->salt);
    p->n_ids = 0;
    ech_kv_heap_update(kv, page);
}

/* ---- lookup and insertion ---- */

void ech_kv_find(const ech_kv *kv, uint32_t salt, const int32_t *ids, size_t n, uint32_t *pages,
                 ech_kv_hit *ret_hit)
{
    uint32_t parent = ECH_KV_NONE, n_full = 0;
    while (n - (size_t)n_full * ECH_KV_TOKENS >= ECH_KV_TOKENS) {
        const uint32_t page = find_full(kv, salt, parent, ids + (size_t)n_full * ECH_KV_TOKENS);
        if (page == ECH_KV_NONE) break;
        pages[n_full++] = page;
        parent = page;
    }
    const size_t done = (size_t)n_full * ECH_KV_TOKENS;
    *ret_hit = (ech_kv_hit){ .n_full = n_full };
    ret_hit->partial_page =
        find_partial(kv, salt, parent, ids + done, n - done, &ret_hit->partial_ids);
}

static void grow_node(ech_kv *kv, uint32_t page, const int32_t *ids, uint32_t n)
{
    ech_kv_page *const p = &kv->pages[page];
    ECH_ASSERT(n >= p->n_ids && common_prefix(p->ids, ids, p->n_ids) == p->n_ids);
    if (p->n_ids == ECH_KV_TOKENS) return;
    memcpy(p->ids, ids, n * sizeof *ids);
    p->n_ids = n;
    if (n == ECH_KV_TOKENS) link_hash(kv, page);
}

static void add_node(ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids, uint32_t n,
                     uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    p->salt = salt;
    p->parent = parent;
    p->depth = parent == ECH_KV_NONE ? 0 : kv->pages[parent].depth + 1;
    p->n_children = 0;
    p->last_use = kv->tick;
    p->n_ids = n;
    memcpy(p->ids, ids, n * sizeof *ids);
    if (parent == ECH_KV_NONE) kv->salts[salt].n_uses++;
    link_parent(kv, page);
    if (n == ECH_KV_TOKENS) link_hash(kv, page);
}

/* A cached leaf that the new page covers is of no more use. */
static void drop_covered(ech_kv *kv, uint32_t old)
{
    if (kv->pages[old].refs > 0) return;
    ech_kv_tree_remove(kv, old);
    kv->n_cached--;
    kv->free_stack[kv->n_free++] = old;
}

uint32_t ech_kv_insert(ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids, uint32_t n,
                       uint32_t page)
{
    ech_kv_page *const p = &kv->pages[page];
    ECH_ASSERT(n >= 1 && n <= ECH_KV_TOKENS && p->refs > 0);
    ECH_ASSERT(parent == ECH_KV_NONE || kv->pages[parent].n_ids == ECH_KV_TOKENS);
    const bool is_node = ech_kv_is_node(p);
    if (n == ECH_KV_TOKENS) {
        const uint32_t same = find_full(kv, salt, parent, ids);
        if (same != ECH_KV_NONE && same != page) {
            if (is_node) ech_kv_tree_remove(kv, page);
            return same;
        }
    }
    if (is_node) {
        ECH_ASSERT(is_same_place(p, salt, parent));
        grow_node(kv, page, ids, n);
        return page;
    }
    uint32_t n_same = 0;
    const uint32_t near = find_partial(kv, salt, parent, ids, n, &n_same);
    if (near != ECH_KV_NONE && n_same == n) return ECH_KV_NONE;
    if (near != ECH_KV_NONE && n_same == kv->pages[near].n_ids) drop_covered(kv, near);
    add_node(kv, salt, parent, ids, n, page);
    return page;
}

const int32_t *ech_kv_node_ids(const ech_kv *kv, uint32_t page, uint32_t *ret_n)
{
    *ret_n = kv->pages[page].n_ids;
    return kv->pages[page].ids;
}

bool ech_kv_tree_is_sound(const ech_kv *kv)
{
    for (uint32_t i = 0; i < kv->n_pages; i++) {
        const ech_kv_page *const p = &kv->pages[i];
        if (!ech_kv_is_node(p)) continue;
        if (p->n_children > 0 && p->n_ids != ECH_KV_TOKENS) return false;
        if (p->n_ids == ECH_KV_TOKENS && find_full(kv, p->salt, p->parent, p->ids) != i)
            return false;
        uint32_t n_children = 0;
        for (uint32_t k = 0; k < kv->n_pages; k++)
            n_children += ech_kv_is_node(&kv->pages[k]) && kv->pages[k].parent == i;
        if (n_children != p->n_children) return false;
        if (p->parent == ECH_KV_NONE) continue;
        const ech_kv_page *const up = &kv->pages[p->parent];
        if (up->n_ids != ECH_KV_TOKENS || up->salt != p->salt || up->depth + 1 != p->depth)
            return false;
        if (p->refs > 0 && up->refs == 0) return false;
    }
    return true;
}
