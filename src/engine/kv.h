/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV pages: who holds them, and what prefixes they hold.
 *
 * A page is a number below n_pages: 32 positions of one sequence in the `kv` region. This module
 * never touches the region, it only decides who may. Each page is in one of three states:
 *
 *     free    refs 0, not in the tree           on the free stack
 *     used    refs > 0, in the tree or not      a sequence computes or reads it
 *     cached  refs 0, in the tree               kept for its content until it is evicted
 *
 * The tree: a node is a page. Its key is the ids whose keys and values it holds, its parent the
 * page that holds the 32 positions before. A node with fewer than 32 ids is a leaf, and grows in
 * place while its sequence goes on; positions below its n_ids never change.
 *
 *     salt "" ── [Once upon a …32] ── [time there was …32] ── [a dragon, 3 ids]
 *                                 └── [day the king …32]
 *     salt "x" ─ [Once upon a …32]
 *
 * Full pages are found through a table keyed by an XXH3-128 hash of the whole prefix, seeded at
 * random, and their ids are compared: the hash alone never decides. The longest partial match is
 * found among the children that begin with the same id.
 *
 * Evicted are leaves that nobody holds, so tails go first; among those the least recently used,
 * where a page of a longer prefix counts as used a little later, since it costs more to compute.
 *
 * Pure: no thread, no clock, no I/O. Owned by the engine's thread. Every call is O(1) or
 * O(log n_pages), but for a partial match: O(children that begin with the same id).
 */
#ifndef ECH_ENGINE_KV_H
#define ECH_ENGINE_KV_H

#include "src/base/buf.h"

#define ECH_KV_TOKENS 32         /* positions in a page */
#define ECH_KV_NONE   UINT32_MAX /* no page; parent of a first page */

typedef struct ech_kv_page ech_kv_page;
typedef struct ech_kv_salt ech_kv_salt;

typedef struct ech_kv {
    ech_kv_page *pages; // [n_pages]
    uint32_t n_pages;
    uint32_t *free_stack; // [n_pages], the first n_free count
    uint32_t n_free;
    uint32_t n_cached;
    uint32_t *heap; // [n_pages] evictable pages, the first to go on top
    uint32_t n_heap;
    uint32_t *by_hash;   // [n_buckets] heads of chains of full nodes
    uint32_t *by_parent; // [n_buckets] heads of chains of nodes by parent and first id
    uint32_t n_buckets;  // power of two
    ech_kv_salt *salts;  // [cap_salts], number 0 is the empty one
    uint32_t cap_salts;
    uint64_t seed;
    uint64_t tick; /* of the last use */
    uint64_t n_evictions;
} ech_kv;

/* Allocates for n_pages ≥ 1. seed keys the hash; a random one keeps users from making collisions.
 */
ech_status ech_kv_init(ech_kv *kv, uint32_t n_pages, uint64_t seed, ech_error *err);
void ech_kv_fini(ech_kv *kv);

/*
 * A page with one reference: a free one, else one that is evicted. False when every page is used.
 */
bool ech_kv_acquire(ech_kv *kv, uint32_t *ret_page);
/* One more reference on a page that is used or cached. */
void ech_kv_ref(ech_kv *kv, uint32_t page);
/* One less; the last one leaves the page cached when it is in the tree, else free. */
void ech_kv_unref(ech_kv *kv, uint32_t page);
/* References on a page, for tests and for deciding whether it may be written. */
uint32_t ech_kv_refs(const ech_kv *kv, uint32_t page);
/* Pages that could be had: free, or cached and evictable one after the other. */
uint32_t ech_kv_n_available(const ech_kv *kv);

/*
 * Salts: names under which prefixes are kept apart. A number is valid between acquire and release;
 * nodes hold their salt themselves.
 */
ech_status ech_kv_salt_acquire(ech_kv *kv, ech_str name, uint32_t *ret_salt);
void ech_kv_salt_release(ech_kv *kv, uint32_t salt);
/* The number of a name that some request or page uses; false when there is none. */
bool ech_kv_salt_find(const ech_kv *kv, ech_str name, uint32_t *ret_salt);

typedef struct ech_kv_hit {
    uint32_t n_full;       /* pages that match whole */
    uint32_t partial_page; /* ECH_KV_NONE, or the page whose first partial_ids match what follows */
    uint32_t partial_ids;  /* below 32, above 0 when there is a page */
} ech_kv_hit;

/*
 * The longest prefix of ids[0..n) that is kept. pages [n / 32] receives the pages that match
 * whole. Takes no reference and marks nothing used: see ech_kv_touch.
 */
void ech_kv_find(const ech_kv *kv, uint32_t salt, const int32_t *ids, size_t n, uint32_t *pages,
                 ech_kv_hit *ret_hit);
/* Marks a page of the tree as used now. */
void ech_kv_touch(ech_kv *kv, uint32_t page);

/*
 * Enters page as the node for ids[0..n), 1 ≤ n ≤ 32, that follow after parent (ECH_KV_NONE or a
 * full node that the caller holds). The caller holds a reference on page. A page that is a node
 * already grows to n ids. Returns the node that stands for these ids from now on: page, or another
 * full one that holds the same (page is then no node): the caller should hold that one instead, so
 * that every held node's parents are held. ECH_KV_NONE: a partial page that another one covers;
 * nothing was entered.
 */
uint32_t ech_kv_insert(ech_kv *kv, uint32_t salt, uint32_t parent, const int32_t *ids, uint32_t n,
                       uint32_t page);

/* Ids of a node; [*ret_n], borrowed. 0 for a page that is no node. */
const int32_t *ech_kv_node_ids(const ech_kv *kv, uint32_t page, uint32_t *ret_n);

/* Walks everything; false when an invariant is broken. For tests and ECH_DCHECK. */
bool ech_kv_is_sound(const ech_kv *kv);

#endif
