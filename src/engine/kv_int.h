/* SPDX-License-Identifier: Apache-2.0 */
/* What kv.c (references, eviction) and kv_tree.c (prefixes) share. Nobody else includes it. */
#ifndef ECH_ENGINE_KV_INT_H
#define ECH_ENGINE_KV_INT_H

#include "src/engine/kv.h"

struct ech_kv_page {
    uint32_t refs;                 /* sequences that hold it */
    uint32_t n_ids;                /* 0: not in the tree */
    uint32_t parent;               /* page of the 32 ids before; ECH_KV_NONE: first of its salt */
    uint32_t salt;                 /* the node holds a use of it */
    uint32_t depth;                /* pages before it */
    uint32_t n_children;           /* nodes whose parent it is */
    uint32_t hash_next, hash_prev; /* chain of by_hash, full nodes only */
    uint32_t parent_next, parent_prev; /* chain of by_parent */
    uint32_t heap_pos;                 /* ECH_KV_NONE: not evictable */
    uint64_t hash[2];                  /* of the prefix that ends with this page, full nodes only */
    uint64_t last_use;                 /* tick */
    int32_t ids[ECH_KV_TOKENS];
};

struct ech_kv_salt {
    char *name; // [len], owned
    size_t len;
    uint32_t n_uses; /* requests and first-level nodes; 0: the entry is free */
};

static inline bool ech_kv_is_node(const ech_kv_page *const p)
{
    return p->n_ids > 0;
}

/* Puts a page into the heap of evictable ones, takes it out, or moves it, as its state says. */
void ech_kv_heap_update(ech_kv *kv, uint32_t page);
/* Takes a childless node out of the tree; its parent may become evictable. */
void ech_kv_tree_remove(ech_kv *kv, uint32_t page);
/* The tree's part of ech_kv_is_sound. */
bool ech_kv_tree_is_sound(const ech_kv *kv);

#endif
