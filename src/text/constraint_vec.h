/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays and the hash of the constraint compiler. An array is three fields of its owner: a
 * pointer, a length and a capacity; ECH_VEC_GROW makes room for more elements and is false when
 * memory is out, the array then being as it was. Pure.
 */
#ifndef ECH_TEXT_CONSTRAINT_VEC_H
#define ECH_TEXT_CONSTRAINT_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for extra more than len elements of size bytes. */
static inline bool ech_vec_grow(void **const data, uint32_t *const cap, const size_t len,
                                const size_t extra, const size_t size)
{
    if (len + extra <= *cap) return true;
    size_t want = *cap < 8 ? 8 : (size_t)*cap * 2;
    if (want < len + extra) want = len + extra;
    if (want > UINT32_MAX || want > SIZE_MAX / size) return false;
    void *const p = realloc(*data, want * size);
    if (p == NULL) return false;
    *data = p;
    *cap = (uint32_t)want;
    return true;
}

#define ECH_VEC_GROW(ptr, cap, len, extra)                                                         \
    ech_vec_grow((void **)&(ptr), &(cap), (len), (extra), sizeof *(ptr))

/* One step of a multiplicative hash (the constant is 2^64 over the golden ratio). */
static inline uint64_t ech_hash_step(const uint64_t h, const uint64_t v)
{
    const uint64_t x = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return x ^ (x >> 29);
}

static inline uint64_t ech_hash_words(uint64_t h, const uint32_t *const words, const size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = ech_hash_step(h, words[i]);
    return h;
}

/*
 * A table from hashes to indices (kept plus one; 0 is an empty slot), open addressing. The owner
 * compares; the table only probes.
 */
typedef struct ech_index {
    uint32_t *slots;
    uint32_t cap; /* power of two */
    uint32_t used;
} ech_index;

static inline void ech_index_fini(ech_index *const t)
{
    free(t->slots);
    *t = (ech_index){ 0 };
}

/*
 * Makes room for one more entry. hash_of gives the hash of an index that is in the table.
 */
static inline bool ech_index_reserve(ech_index *const t,
                                     uint64_t (*const hash_of)(const void *owner, uint32_t idx),
                                     const void *const owner)
{
    if ((uint64_t)(t->used + 1) * 4 <= (uint64_t)t->cap * 3) return true;
    const uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
    if (cap == 0) return false;
    uint32_t *const slots = calloc(cap, sizeof *slots);
    if (slots == NULL) return false;
    for (uint32_t i = 0; i < t->cap; i++) {
        if (t->slots[i] == 0) continue;
        uint32_t s = (uint32_t)hash_of(owner, t->slots[i] - 1) & (cap - 1);
        while (slots[s] != 0)
            s = (s + 1) & (cap - 1);
        slots[s] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->cap = cap;
    return true;
}

#endif
