/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of words: a text's pieces repeat, and a piece's ids depend on the piece alone.
 *
 * A word has two places it can be in, side by side; a new one takes the first and moves what was
 * there to the second. Longer words, and words of many ids, are not kept. It belongs to a scratch,
 * so to one thread at a time, and to one model.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/text/tokenizer_model.h"

static uint64_t load64(const char *const p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load32(const char *const p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The bytes of a word in three numbers: with the length, different for different words. */
static void load_key(const char *const p, const size_t len, uint64_t key[ECH_WORD_KEY / 8])
{
    key[0] = key[1] = key[2] = 0;
    if (len >= 8) {
        key[0] = load64(p);
        key[1] = load64(len >= 16 ? p + 8 : p + len - 8);
        if (len > 16) key[2] = load64(p + len - 8);
    } else if (len >= 4) {
        key[0] = load32(p) | load32(p + len - 4) << 32;
    } else {
        key[0] = (uint8_t)p[0] | (uint64_t)(uint8_t)p[len / 2] << 8 |
                 (uint64_t)(uint8_t)p[len - 1] << 16;
    }
}

/* The first of a word's two places. */
static ech_word *place_of(ech_model_scratch *const s, const uint64_t key[ECH_WORD_KEY / 8],
                          const size_t len)
{
    uint64_t h = (key[0] ^ key[1] * 0xC2B2AE3D27D4EB4FULL ^ key[2] * 0x165667B19E3779F9ULL) + len;
    h = (h ^ h >> 32) * 0x9E3779B97F4A7C15ULL;
    return &s->words[(h >> 40) % (ECH_WORD_SLOTS / 2) * 2];
}

static bool is_word(const ech_word *const w, const uint64_t key[ECH_WORD_KEY / 8], const size_t len)
{
    return w->len == len && w->key[0] == key[0] && w->key[1] == key[1] && w->key[2] == key[2];
}

static void keep(ech_word *const w, const uint64_t key[ECH_WORD_KEY / 8], const size_t len,
                 const int32_t *const ids, const size_t n)
{
    w[1] = w[0];
    memcpy(w->key, key, sizeof w->key);
    w->len = (uint8_t)len;
    w->n_ids = (uint8_t)n;
    memcpy(w->ids, ids, n * sizeof *ids);
}

ech_status ech_words_encode(const ech_model *const m, ech_model_scratch *const s,
                            const char *const piece, const size_t len, ech_ids *const ids,
                            ech_error *const err, const ech_word_fn fn)
{
    if (len > ECH_WORD_KEY) return fn(m, s, piece, len, ids, err);
    if (s->words == NULL) s->words = calloc(ECH_WORD_SLOTS, sizeof *s->words);
    if (s->words == NULL) return ECH_ENOMEM;

    uint64_t key[ECH_WORD_KEY / 8];
    load_key(piece, len, key);
    ech_word *const w = place_of(s, key, len);
    if (is_word(&w[0], key, len)) return ech_ids_append(ids, w[0].ids, w[0].n_ids);
    if (is_word(&w[1], key, len)) return ech_ids_append(ids, w[1].ids, w[1].n_ids);

    const size_t before = ids->n;
    ECH_TRY(fn(m, s, piece, len, ids, err));
    if (ids->n > before && ids->n - before <= ECH_WORD_IDS)
        keep(w, key, len, ids->data + before, ids->n - before);
    return ECH_OK;
}
