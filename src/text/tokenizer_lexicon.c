/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing, at most half full. The trie keeps its edges in one hash table: a vocabulary of
 * 250 000 pieces has a million nodes, nearly all with one child.
 *
 * Invariants: a table has always more slots than entries, so a probe ends; slots hold a tag and id
 * + 1, and 0 is empty. Texts are borrowed and must outlive the lexicon. The seed is random against
 * files that are made to collide. Not locked: built by one thread, read-only afterwards.
 */
#include "src/text/tokenizer_lexicon.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

#include "src/base/clock.h"
#include "src/base/error.h"

/* Never waits: a seed need not be secret, only not known to who wrote the file. */
uint64_t ech_lexicon_seed(void)
{
    uint64_t seed = 0;
    /* Without entropy, early after a boot, the clock must do. */
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)ech_now_ns();
    return seed;
}

/* A power of two, so that a mask gives the place. */
static size_t table_size(const size_t n)
{
    size_t size = 16;
    while (size < 2 * n) {
        size *= 2;
    }
    return size;
}

ech_status ech_lexicon_init(ech_lexicon *const lex, const size_t n)
{
    *lex = (ech_lexicon){ .seed = ech_lexicon_seed() };
    if (n > ECH_LEXICON_MAX_IDS) return ECH_ELIMIT;
    const size_t size = table_size(n);
    lex->slots = calloc(size, sizeof *lex->slots);
    if (lex->slots == NULL) return ECH_ENOMEM;
    lex->mask = size - 1;
    return ECH_OK;
}

void ech_lexicon_fini(ech_lexicon *const lex)
{
    free(lex->texts);
    free(lex->slots);
    *lex = (ech_lexicon){ 0 };
}

/* A slot is 0 or a tag and an id + 1: texts of another hash are passed without a look at them. */
enum { ID_BITS = ECH_LEXICON_ID_BITS, ID_MASK = (1 << ID_BITS) - 1 };
_Static_assert(ECH_LEXICON_MAX_IDS <= ID_MASK, "an id + 1 fits into a slot beside its tag");

static uint64_t hash_of(const ech_lexicon *const lex, const ech_str text)
{
    return XXH3_64bits_withSeed(text.ptr, text.len, lex->seed);
}

/* The tag is of the hash's upper bits, the place of its lower ones. */
static uint32_t slot_value(const uint64_t hash, const size_t id)
{
    return (uint32_t)(hash >> (32 + ID_BITS)) << ID_BITS | ((uint32_t)id + 1);
}

/* The slot that holds text, whose hash is given, or the empty one where it would go. */
static size_t slot_of(const ech_lexicon *const lex, const uint64_t hash, const ech_str text)
{
    size_t i = (size_t)hash & lex->mask;
    for (; lex->slots[i] != 0; i = (i + 1) & lex->mask) {
        if ((lex->slots[i] ^ slot_value(hash, 0)) >> ID_BITS != 0) continue;
        if (ech_str_eq(lex->texts[ech_lexicon_slot_id(lex->slots[i])], text)) break;
    }
    return i;
}

/* On failure the old table stays whole. */
static ech_status lexicon_rehash(ech_lexicon *const lex)
{
    uint32_t *const old = lex->slots;
    const size_t old_size = lex->mask + 1;
    uint32_t *const slots = calloc(old_size * 2, sizeof *slots);
    if (slots == NULL) return ECH_ENOMEM;
    lex->slots = slots;
    lex->mask = old_size * 2 - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i] == 0) continue;
        const ech_str text = lex->texts[ech_lexicon_slot_id(old[i])];
        lex->slots[slot_of(lex, hash_of(lex, text), text)] = old[i];
    }
    free(old);
    return ECH_OK;
}

/* Room for id in texts[]. New places are zeroed: ptr NULL is an id without a text. */
static ech_status lexicon_grow(ech_lexicon *const lex, const size_t id)
{
    if (id < lex->cap_ids) return ECH_OK;
    size_t cap = lex->cap_ids < 256 ? 256 : lex->cap_ids;
    while (cap <= id) {
        cap += cap / 2;
    }
    ech_str *const texts = realloc(lex->texts, cap * sizeof *texts);
    if (texts == NULL) return ECH_ENOMEM;
    memset(texts + lex->cap_ids, 0, (cap - lex->cap_ids) * sizeof *texts);
    lex->texts = texts;
    lex->cap_ids = cap;
    return ECH_OK;
}

/* A text that is given twice leads to the later id, as in a dictionary. */
ech_status ech_lexicon_add(ech_lexicon *const lex, const ech_str text, const int64_t id)
{
    if (id < 0 || id >= ECH_LEXICON_MAX_IDS) return ECH_ELIMIT;
    if (2 * (lex->n_texts + 1) > lex->mask) ECH_TRY(lexicon_rehash(lex));
    ECH_TRY(lexicon_grow(lex, (size_t)id));

    const uint64_t hash = hash_of(lex, text);
    const size_t slot = slot_of(lex, hash, text);
    if (lex->slots[slot] == 0) lex->n_texts++;
    /* An id that is given twice: its older text loses its way in, or the table would compare with
     * the newer one. */
    if (lex->texts[id].ptr != NULL && !ech_str_eq(lex->texts[id], text)) return ECH_EFORMAT;
    lex->texts[id] = text;
    lex->slots[slot] = slot_value(hash, (size_t)id);
    if ((size_t)id >= lex->n_ids) lex->n_ids = (size_t)id + 1;
    if (text.len > lex->max_len) lex->max_len = text.len;
    return ECH_OK;
}

/* max_len refuses long pieces before they are hashed. An empty slot is 0, so it comes out as -1. */
static int32_t find_hashed(const ech_lexicon *const lex, const uint64_t hash, const ech_str text)
{
    const uint32_t slot = lex->slots[slot_of(lex, hash, text)];
    return slot == 0 ? -1 : (int32_t)ech_lexicon_slot_id(slot);
}

int32_t ech_lexicon_find(const ech_lexicon *const lex, const char *const ptr, const size_t len)
{
    if (len > lex->max_len || lex->slots == NULL) return -1;
    const ech_str text = { ptr, len };
    return find_hashed(lex, hash_of(lex, text), text);
}

/*
 * Each pass asks memory for what the next one reads; a wrong guess costs nothing but that. The
 * table is larger than the caches: n lookups wait for memory once and not n times.
 */
void ech_lexicon_find_n(const ech_lexicon *const lex, const ech_str *const texts, const size_t n,
                        int32_t *const ret_ids)
{
    uint64_t hash[ECH_LEXICON_FINDS];
    uint32_t slot[ECH_LEXICON_FINDS];
    assert(n <= ECH_LEXICON_FINDS && lex->slots != NULL);
    for (size_t k = 0; k < n; k++) {
        hash[k] = hash_of(lex, texts[k]);
        __builtin_prefetch(&lex->slots[(size_t)hash[k] & lex->mask]);
    }
    for (size_t k = 0; k < n; k++) {
        slot[k] = lex->slots[(size_t)hash[k] & lex->mask];
        if (slot[k] != 0) __builtin_prefetch(&lex->texts[ech_lexicon_slot_id(slot[k])]);
    }
    for (size_t k = 0; k < n; k++) {
        if (slot[k] != 0) __builtin_prefetch(lex->texts[ech_lexicon_slot_id(slot[k])].ptr);
    }
    for (size_t k = 0; k < n; k++)
        ret_ids[k] = find_hashed(lex, hash[k], texts[k]);
}

ech_status ech_trie_init(ech_trie *const trie)
{
    *trie = (ech_trie){ .seed = ech_lexicon_seed(), .cap_nodes = 64, .n_nodes = 1 };
    trie->edges = calloc(256, sizeof *trie->edges);
    trie->values = malloc(trie->cap_nodes * sizeof *trie->values);
    if (trie->edges == NULL || trie->values == NULL) {
        ech_trie_fini(trie);
        return ECH_ENOMEM;
    }
    trie->mask = 255;
    trie->values[0] = -1;
    return ECH_OK;
}

void ech_trie_fini(ech_trie *const trie)
{
    free(trie->edges);
    free(trie->values);
    *trie = (ech_trie){ 0 };
}

/* There is room and the key is new: the caller has seen to both. */
static void edge_put(ech_trie *const trie, const uint64_t key, const uint32_t child)
{
    size_t i = (size_t)(((key ^ trie->seed) * 0x9E3779B97F4A7C15ULL) >> 24) & trie->mask;
    while (trie->edges[i].key != 0) {
        i = (i + 1) & trie->mask;
    }
    trie->edges[i] = (ech_trie_edge){ key, child };
}

/* Keys are new in an empty table, so nothing is compared. */
static ech_status edges_grow(ech_trie *const trie)
{
    ech_trie_edge *const old = trie->edges;
    const size_t old_size = trie->mask + 1;
    ech_trie_edge *const edges = calloc(old_size * 2, sizeof *edges);
    if (edges == NULL) return ECH_ENOMEM;
    trie->edges = edges;
    trie->mask = old_size * 2 - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].key != 0) edge_put(trie, old[i].key, old[i].child);
    }
    free(old);
    return ECH_OK;
}

/*
 * A new node, the child of node over byte. The root's children are an array (first), since every
 * walk begins there; all others are edges of the table. The key is node and byte, plus one, so that
 * 0 can mean empty.
 */
static ech_status node_add(ech_trie *const trie, const uint32_t node, const uint8_t byte,
                           uint32_t *const ret_child)
{
    if (trie->n_nodes >= UINT32_MAX / 512) return ECH_ELIMIT;
    if (trie->n_nodes == trie->cap_nodes) {
        const size_t cap = trie->cap_nodes * 2;
        int32_t *const values = realloc(trie->values, cap * sizeof *values);
        if (values == NULL) return ECH_ENOMEM;
        trie->values = values;
        trie->cap_nodes = cap;
    }
    if (2 * (trie->n_edges + 1) > trie->mask) ECH_TRY(edges_grow(trie));
    const uint32_t child = (uint32_t)trie->n_nodes++;
    trie->values[child] = -1;
    if (node == 0) {
        trie->first[byte] = child;
    } else {
        edge_put(trie, ((uint64_t)node << 8 | byte) + 1, child);
        trie->n_edges++;
    }
    *ret_child = child;
    return ECH_OK;
}

/*
 * The empty text is left out: it would match everywhere. keep: of two values for a text the first
 * stays. On failure a beginning of the text may stand without a value, which no search sees.
 */
ech_status ech_trie_add(ech_trie *const trie, const ech_str text, const int32_t value,
                        const bool keep)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++) {
        const uint8_t byte = (uint8_t)text.ptr[i];
        uint32_t child = ech_trie_step(trie, node, byte);
        if (child == 0) ECH_TRY(node_add(trie, node, byte, &child));
        node = child;
    }
    if (node != 0 && (trie->values[node] < 0 || !keep)) trie->values[node] = value;
    return ECH_OK;
}
