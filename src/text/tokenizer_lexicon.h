/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings and ids: a lexicon (both ways, exact) and a trie (longest and common prefixes).
 *
 * Built once while a tokenizer is opened, then read only. Hashes are seeded, so that a file can't
 * choose its collisions.
 */
#ifndef ECH_TEXT_TOKENIZER_LEXICON_H
#define ECH_TEXT_TOKENIZER_LEXICON_H

#include "src/base/buf.h"

/* Ids a tokenizer may have; the largest public vocabularies hold 262144. */
#define ECH_LEXICON_MAX_IDS (1 << 22)
#define ECH_LEXICON_ID_BITS 23 /* of a slot, for id + 1 */

typedef struct ech_lexicon {
    ech_str *texts; /* [n_ids], ptr NULL where an id has no text; the bytes belong to others */
    size_t n_ids;   /* largest id + 1 */
    size_t cap_ids;
    uint32_t *slots; /* [mask + 1], 0 or 9 bits of the text's hash, then 23 of id + 1 */
    size_t mask;
    size_t n_texts; /* different texts */
    size_t max_len; /* longest text */
    uint64_t seed;
} ech_lexicon;

/* The id of a slot that isn't empty; out of range where the slot is none of a lexicon's. */
static inline size_t ech_lexicon_slot_id(const uint32_t slot)
{
    return (size_t)(slot & ((1U << ECH_LEXICON_ID_BITS) - 1)) - 1;
}

/* A seed that a file can't know. */
uint64_t ech_lexicon_seed(void);

/* Room for n texts, so that adding them doesn't rehash. */
ech_status ech_lexicon_init(ech_lexicon *lex, size_t n);
void ech_lexicon_fini(ech_lexicon *lex);
/* Adds text → id and id → text; a text that is there already gets the new id. ELIMIT for an id out
 * of range. */
ech_status ech_lexicon_add(ech_lexicon *lex, ech_str text, int64_t id);
/* The id, or -1. */
int32_t ech_lexicon_find(const ech_lexicon *lex, const char *ptr, size_t len);
/*
 * The same for a few texts at once: their ways through slots, texts and bytes, each a cache miss,
 * are gone side by side. Opening a vocabulary of 150 000 pieces with its merges takes half a
 * million finds.
 */
enum { ECH_LEXICON_FINDS = 4 };
void ech_lexicon_find_n(const ech_lexicon *lex, const ech_str *texts, size_t n, int32_t *ret_ids);
/* The text of an id; ptr NULL where there is none. */
static inline ech_str ech_lexicon_text(const ech_lexicon *const lex, const int64_t id)
{
    return id >= 0 && (uint64_t)id < lex->n_ids ? lex->texts[id] : (ech_str){ 0 };
}

typedef struct ech_trie_edge {
    uint64_t key; /* node << 8 | byte, plus 1; 0: empty */
    uint32_t child;
} ech_trie_edge;

typedef struct ech_trie {
    ech_trie_edge *edges; /* [mask + 1], open addressing */
    size_t mask, n_edges;
    int32_t *values; /* [n_nodes], -1: no text ends here */
    size_t n_nodes, cap_nodes;
    uint32_t first[256]; /* the root's children; 0: none */
    uint64_t seed;
} ech_trie;

ech_status ech_trie_init(ech_trie *trie);
void ech_trie_fini(ech_trie *trie);
/* value ≥ 0. keep: a text that is there already keeps its value. Empty texts are not added. */
ech_status ech_trie_add(ech_trie *trie, ech_str text, int32_t value, bool keep);
/* The child of a node (0: the root) over byte, or 0. */
static inline uint32_t ech_trie_step(const ech_trie *const trie, const uint32_t node,
                                     const uint8_t byte)
{
    if (node == 0) return trie->first[byte];
    const uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    size_t i = (size_t)(((key ^ trie->seed) * 0x9E3779B97F4A7C15ULL) >> 24) & trie->mask;
    while (trie->edges[i].key != 0) {
        if (trie->edges[i].key == key) return trie->edges[i].child;
        i = (i + 1) & trie->mask;
    }
    return 0;
}

#endif
