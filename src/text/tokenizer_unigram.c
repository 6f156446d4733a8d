/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram: the way through the piece with the highest sum of scores (Viterbi), in one pass. Scores
 * are added in f64 from left to right; of equal ways the one found first stays, as in the
 * reference. Memory is 24 bytes per byte of the piece.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/text/tokenizer_model.h"

static ech_status best_reserve(ech_model_scratch *const s, const size_t n)
{
    if (n <= s->cap_best) return ECH_OK;
    const size_t cap = n + n / 2;
    ech_best *const best = realloc(s->best, cap * sizeof *best);
    if (best == NULL) return ECH_ENOMEM;
    s->best = best;
    s->cap_best = cap;
    return ECH_OK;
}

static size_t char_len(const char c)
{
    const uint8_t b = (uint8_t)c;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

static void improve(ech_best *const to, const double score, const size_t from, const int32_t id)
{
    if (to->from < 0 || score > to->score) *to = (ech_best){ score, (int64_t)from, id };
}

/* All tokens that begin at from; a character that is no token by itself may be unknown. */
static void step(const ech_model *const m, ech_best *const best, const char *const piece,
                 const size_t len, const size_t from)
{
    const double here = best[from].score;
    size_t n = char_len(piece[from]);
    if (n > len - from) n = len - from;
    bool has_single = false;
    uint32_t node = 0;
    for (size_t i = from; i < len; i++) {
        node = ech_trie_step(&m->trie, node, (uint8_t)piece[i]);
        if (node == 0) break;
        const int32_t id = m->trie.values[node];
        if (id < 0) continue;
        improve(&best[i + 1], m->scores[id] + here, from, id);
        if (i + 1 - from == n) has_single = true;
    }
    if (!has_single) improve(&best[from + n], m->unk_score + here, from, m->unk_id);
}

/* Ids of piece[from..to): a token, or unknown text that is bytes where the model falls back to
 * them. */
static ech_status put_piece(const ech_model *const m, const char *const text, const size_t len,
                            ech_ids *const ids)
{
    const int32_t id = ech_lexicon_find(&m->lex, text, len);
    if (id >= 0) return ech_ids_append(ids, &id, 1);
    bool all = m->byte_fallback;
    for (size_t i = 0; all && i < len; i++) {
        all = m->fallback_ids[(uint8_t)text[i]] >= 0;
    }
    if (!all) return ech_ids_append(ids, &m->unk_id, 1);
    for (size_t i = 0; i < len; i++) {
        ECH_TRY(ech_ids_append(ids, &m->fallback_ids[(uint8_t)text[i]], 1));
    }
    return ECH_OK;
}

/* Turns the chain of bests around, so that it can be walked forwards: from becomes "to". */
static void reverse_path(ech_best *const best, const size_t len)
{
    int64_t at = (int64_t)len, next = -1;
    int32_t next_id = -1;
    while (at >= 0) {
        const ech_best b = best[at];
        best[at].from = next;
        best[at].id = next_id;
        next = at;
        next_id = b.id;
        if (at == 0) break;
        at = b.from;
    }
}

ech_status ech_unigram_encode(const ech_model *const m, ech_model_scratch *const s,
                              const char *const piece, const size_t len, ech_ids *const ids,
                              ech_error *const err)
{
    ECH_TRY(best_reserve(s, len + 1));
    ech_best *const best = s->best;
    for (size_t i = 0; i <= len; i++) {
        best[i] = (ech_best){ 0.0, -1, 0 };
    }
    for (size_t i = 0; i < len; i += char_len(piece[i])) {
        /* Places within a token may be reachable by no way; the reference counts them as 0 too. */
        step(m, best, piece, len, i);
    }
    if (m->unk_id < 0) {
        for (size_t at = len; at > 0; at = (size_t)best[at].from) {
            if (best[at].id < 0)
                return ech_fail(err, ECH_EFORMAT,
                                "encoding: the text has unknown parts, the model no unknown token");
        }
    }
    reverse_path(best, len);
    for (size_t at = 0; at < len;) {
        size_t to = (size_t)best[at].from;
        /* Unknown neighbours are one. */
        while (best[at].id == m->unk_id && to < len && best[to].id == m->unk_id) {
            to = (size_t)best[to].from;
        }
        ECH_TRY(put_piece(m, piece + at, to - at, ids));
        at = to;
    }
    return ECH_OK;
}
