/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding of one piece.
 *
 * Rule: of all neighbours that have a merge, the one with the lowest rank is merged, the leftmost
 * of equals; until none is left. Short pieces do it by scanning, long ones with a heap, in
 * n log n. Most pieces of a text are words that were seen before: those come from the cache
 * (tokenizer_words.c).
 *
 * Invariant: the result is the reference's (Hugging Face's tokenizers) for every piece, whichever
 * of the two loops ran and whether the cache answered. Both loops take the lowest rank first and
 * the leftmost of equal ranks. The model is shared and read-only; the scratch belongs to the
 * calling thread.
 *
 * Left out: cutting text into pieces (tokenizer_pretok.c), dropout, and the making of merges.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_model.h"

/* Up to here scanning is faster than a heap (measured on English and Chinese pieces). */
#define SCAN_MAX 32
/* U+2581, which SentencePiece writes for a space. */
#define META "\xE2\x96\x81"

/*
 * Open addressing with linear probes; the key is stored plus one so that 0 can mean empty. The
 * table always has an empty slot (ech_model_reserve_merges), which ends the probe. The multiplier
 * is 2^64 divided by the golden ratio, the shift takes its well-mixed middle bits.
 */
static const ech_merge *find_merge(const ech_model *const m, const int32_t left,
                                   const int32_t right)
{
    const uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t i = (size_t)(((pair ^ m->seed) * 0x9E3779B97F4A7C15ULL) >> 24) & m->merge_mask;
    while (m->merges[i].pair != 0) {
        if (m->merges[i].pair == pair) return &m->merges[i];
        i = (i + 1) & m->merge_mask;
    }
    return NULL;
}

/*
 * Contents past the old capacity are garbage, and nothing needs the old ones: called before
 * spelling.
 */
static ech_status symbols_reserve(ech_model_scratch *const s, const size_t n)
{
    if (n <= s->cap_symbols) return ECH_OK;
    const size_t cap = n + n / 2;
    ech_symbol *const p = realloc(s->symbols, cap * sizeof *p);
    if (p == NULL) return ECH_ENOMEM;
    s->symbols = p;
    s->cap_symbols = cap;
    return ECH_OK;
}

/* What becomes symbols, and the unknown token that waits to see whether it is fused. */
typedef struct speller {
    const ech_model *m;
    ech_model_scratch *s;
    size_t n;         /* symbols so far */
    bool has_pending; /* an unknown token */
} speller;

static void put_symbol(speller *const sp, const int32_t id)
{
    sp->s->symbols[sp->n++].id = id;
}

static void flush_unknown(speller *const sp)
{
    if (sp->has_pending) put_symbol(sp, sp->m->unk_id);
    sp->has_pending = false;
}

/*
 * The symbol's text as the vocabulary would hold it: prefix, characters, suffix. A byte is spelled
 * by GPT-2's alphabet when the model is byte-level, since that is how its vocabulary writes it. The
 * result is in s->text until the next call.
 */
static ech_status spell(speller *const sp, const char *const unit, const size_t len,
                        const bool is_first, const bool is_last)
{
    ech_buf *const text = &sp->s->text;
    ech_buf_clear(text);
    if (!is_first) ECH_TRY(ech_buf_append(text, sp->m->prefix.ptr, sp->m->prefix.len));
    if (sp->m->is_byte_level) {
        char c[4];
        const int n = ech_utf8_encode(ech_byte_char((uint8_t)unit[0]), c);
        ECH_TRY(ech_buf_append(text, c, (size_t)n));
    } else {
        ECH_TRY(ech_buf_append(text, unit, len));
    }
    return is_last ? ech_buf_append(text, sp->m->suffix.ptr, sp->m->suffix.len) : ECH_OK;
}

/*
 * A spelled symbol that the vocabulary lacks: its bytes, or the unknown token, or nothing. Byte
 * fallback is all or nothing for a symbol: a character of which one byte has no token becomes the
 * unknown token as a whole.
 */
static ech_status put_unknown(speller *const sp, ech_error *const err)
{
    const ech_model *const m = sp->m;
    const ech_buf *const text = &sp->s->text;
    bool all = m->byte_fallback;
    for (size_t i = 0; all && i < text->len; i++) {
        all = m->fallback_ids[(uint8_t)text->data[i]] >= 0;
    }
    if (all) {
        /* A waiting unknown token stays waiting: the reference does the same. */
        for (size_t i = 0; i < text->len; i++) {
            put_symbol(sp, m->fallback_ids[(uint8_t)text->data[i]]);
        }
        return ECH_OK;
    }
    if (!m->has_unk) return ECH_OK;
    if (m->unk_id < 0)
        return ech_fail(err, ECH_EFORMAT, "encoding: the unknown token is not in the vocabulary");
    if (!m->fuse_unk) flush_unknown(sp);
    sp->has_pending = true;
    return ECH_OK;
}

/* The general case: any prefix, suffix, unknown characters. */
static ech_status spell_unit(speller *const sp, const char *const unit, const size_t len,
                             const bool is_first, const bool is_last, ech_error *const err)
{
    ECH_TRY(spell(sp, unit, len, is_first, is_last));
    const int32_t id = ech_lexicon_find(&sp->m->lex, sp->s->text.data, sp->s->text.len);
    if (id < 0) return put_unknown(sp, err);
    flush_unknown(sp);
    put_symbol(sp, id);
    return ECH_OK;
}

/*
 * Bytes of the unit at piece[i]: one byte, or one character. Ill-formed UTF-8 counts as one byte a
 * unit: the text may be any bytes.
 */
static size_t unit_len(const ech_model *const m, const char *const piece, const size_t len,
                       const size_t i)
{
    if (m->is_byte_level || (uint8_t)piece[i] < 0x80) return 1;
    uint32_t cp;
    const int n = ech_utf8_decode(piece + i, len - i, &cp);
    return n > 0 ? (size_t)n : 1;
}

/*
 * The piece's first symbols. *ret_n may be 0: characters without an id and no unknown token.
 * char_ids answers single bytes without a look-up in the vocabulary; it is used only where no
 * prefix or suffix changes the spelling. The room reserved is the bound that lets put_symbol write
 * without a check.
 */
static ech_status spell_piece(const ech_model *const m, ech_model_scratch *const s,
                              const char *const piece, const size_t len, size_t *const ret_n,
                              ech_error *const err)
{
    /* One symbol a byte; byte fallback also spells a prefix or suffix in bytes. */
    const size_t per_unit = 2 + m->prefix.len + m->suffix.len;
    if (len >= INT32_MAX / per_unit)
        return ech_fail(err, ECH_ELIMIT, "encoding: a piece of %zu bytes is too long", len);
    ECH_TRY(symbols_reserve(s, len * per_unit + 1));
    speller sp = { .m = m, .s = s };
    const bool is_plain = m->prefix.len == 0 && m->suffix.len == 0;
    for (size_t i = 0; i < len;) {
        const size_t n = unit_len(m, piece, len, i);
        const int32_t id = is_plain && n == 1 ? m->char_ids[(uint8_t)piece[i]] : -1;
        if (id >= 0) {
            flush_unknown(&sp);
            put_symbol(&sp, id);
        } else {
            ECH_TRY(spell_unit(&sp, piece + i, n, i == 0, i + n == len, err));
        }
        i += n;
    }
    flush_unknown(&sp);
    *ret_n = sp.n;
    return ECH_OK;
}

/*
 * Merges by looking at all pairs each time. Returns how many symbols are left, at the front. n is
 * at most SCAN_MAX, so the pairs are 256 bytes on the stack and the quadratic loop stays in the
 * first-level cache. Only the two pairs beside a merge are looked up again. The strict < takes the
 * leftmost of equal ranks.
 */
static size_t merge_by_scan(const ech_model *const m, ech_symbol *const sym, size_t n)
{
    const ech_merge *pair[SCAN_MAX]; /* pair[i]: the merge of i and i + 1 */
    for (size_t i = 0; i + 1 < n; i++) {
        pair[i] = find_merge(m, sym[i].id, sym[i + 1].id);
    }
    while (n > 1) {
        size_t at = 0;
        const ech_merge *best = NULL;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] != NULL && (best == NULL || pair[i]->rank < best->rank)) {
                best = pair[i];
                at = i;
            }
        }
        if (best == NULL) break;
        sym[at].id = best->id;
        for (size_t i = at + 1; i + 1 < n; i++) {
            sym[i] = sym[i + 1];
            pair[i - 1] = pair[i];
        }
        n--;
        /* pair[at] now holds what was the pair behind; both neighbours are asked again. */
        if (at + 1 < n) pair[at] = find_merge(m, sym[at].id, sym[at + 1].id);
        if (at > 0) pair[at - 1] = find_merge(m, sym[at - 1].id, sym[at].id);
    }
    return n;
}

/*
 * order is rank << 32 | position: one comparison gives the lowest rank and, among equals, the
 * leftmost.
 */
static void heap_down(ech_candidate *const h, const size_t n, size_t i)
{
    const ech_candidate moving = h[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && h[child + 1].order < h[child].order) child++;
        if (moving.order <= h[child].order) break;
        h[i] = h[child];
        i = child;
    }
    h[i] = moving;
}

static void heap_push(ech_model_scratch *const s, const ech_candidate c)
{
    size_t i = s->n_heap++;
    while (i > 0 && c.order < s->heap[(i - 1) / 2].order) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
}

/*
 * The pair that begins at position at, when it has a merge. left and right are remembered, so that
 * a candidate can tell later whether it is stale.
 */
static bool candidate_at(const ech_model *const m, const ech_symbol *const sym, const int32_t at,
                         ech_candidate *const ret_c)
{
    if (at < 0 || sym[at].next < 0) return false;
    const int32_t left = sym[at].id, right = sym[sym[at].next].id;
    const ech_merge *const merge = find_merge(m, left, right);
    if (merge == NULL) return false;
    *ret_c = (ech_candidate){ (uint64_t)merge->rank << 32 | (uint32_t)at, left, right };
    return true;
}

/*
 * Every merge takes one symbol away and adds at most two candidates. n - 1 candidates at first, two
 * more for each of at most n - 1 merges: below 3 n, so that heap_push needs no check.
 */
static ech_status heap_reserve(ech_model_scratch *const s, const size_t n)
{
    const size_t need = 3 * n + 1;
    if (need <= s->cap_heap) return ECH_OK;
    ech_candidate *const heap = realloc(s->heap, need * sizeof *heap);
    if (heap == NULL) return ECH_ENOMEM;
    s->heap = heap;
    s->cap_heap = need;
    return ECH_OK;
}

/*
 * Candidates are not removed when a merge makes them void; they are skipped when they come up,
 * because one of the two ids has changed. An id is compared, not a version: should the same pair
 * stand there again, merging it is what the rule asks for at that rank. Symbols are a doubly linked
 * list over the array, so positions keep their order.
 */
static ech_status merge_by_heap(const ech_model *const m, ech_model_scratch *const s,
                                const size_t n)
{
    ECH_TRY(heap_reserve(s, n));
    ech_symbol *const sym = s->symbols;
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        sym[i].prev = (int32_t)i - 1;
        sym[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    ech_candidate c;
    for (size_t i = 0; i < n; i++) {
        if (candidate_at(m, sym, (int32_t)i, &c)) s->heap[s->n_heap++] = c;
    }
    for (size_t i = s->n_heap / 2; i-- > 0;) {
        heap_down(s->heap, s->n_heap, i);
    }
    while (s->n_heap > 0) {
        c = s->heap[0];
        s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap > 0) heap_down(s->heap, s->n_heap, 0);

        ech_symbol *const left = &sym[(uint32_t)c.order];
        if (left->id != c.left || left->next < 0 || sym[left->next].id != c.right) continue;
        ech_symbol *const right = &sym[left->next];
        left->id = find_merge(m, c.left, c.right)->id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) sym[left->next].prev = (int32_t)(left - sym);
        if (candidate_at(m, sym, (int32_t)(left - sym), &c)) heap_push(s, c);
        if (candidate_at(m, sym, left->prev, &c)) heap_push(s, c);
    }
    return ECH_OK;
}

static ech_status append_symbols(const ech_symbol *const sym, const size_t n, ech_ids *const ids)
{
    for (size_t i = 0; i < n; i++) {
        if (sym[i].id >= 0) ECH_TRY(ech_ids_append(ids, &sym[i].id, 1));
    }
    return ECH_OK;
}

static ech_status encode_word(const ech_model *const m, ech_model_scratch *const s,
                              const char *const piece, const size_t len, ech_ids *const ids,
                              ech_error *const err)
{
    size_t n = 0;
    ECH_TRY(spell_piece(m, s, piece, len, &n, err));
    if (n > 1 && n <= SCAN_MAX) {
        n = merge_by_scan(m, s->symbols, n);
    } else if (n > 1) {
        ECH_TRY(merge_by_heap(m, s, n));
    }
    return append_symbols(s->symbols, n, ids);
}

/*
 * The whole piece as one token of the vocabulary, or -1. For ignore_merges (Llama 3's way): a piece
 * that is a token of the vocabulary is that token, even if no row of merges leads to it. 2 * len is
 * enough: GPT-2's characters take at most two bytes of UTF-8.
 */
static int32_t whole_piece(const ech_model *const m, ech_model_scratch *const s,
                           const char *const piece, const size_t len)
{
    if (!m->is_byte_level) return ech_lexicon_find(&m->lex, piece, len);
    if (len > m->lex.max_len) return -1;
    ech_buf_clear(&s->text);
    if (ech_buf_reserve(&s->text, 2 * len) != ECH_OK) return -1;
    for (size_t i = 0; i < len; i++) {
        s->text.len +=
            (size_t)ech_utf8_encode(ech_byte_char((uint8_t)piece[i]), s->text.data + s->text.len);
    }
    return ech_lexicon_find(&m->lex, s->text.data, s->text.len);
}

/* A word that the cache doesn't know. */
static ech_status encode_fresh(const ech_model *const m, ech_model_scratch *const s,
                               const char *const piece, const size_t len, ech_ids *const ids,
                               ech_error *const err)
{
    const int32_t whole = m->ignore_merges ? whole_piece(m, s, piece, len) : -1;
    if (whole >= 0) return ech_ids_append(ids, &whole, 1);
    return encode_word(m, s, piece, len, ids, err);
}

/*
 * Where the next word begins: before a U+2581 that follows another character. The run of U+2581 at
 * the front belongs to the word. memchr looks for the first byte only, which is what makes this
 * cheap on text without it.
 */
static size_t word_end(const char *const piece, const size_t len, const size_t from)
{
    size_t i = from;
    while (len - i >= 3 && memcmp(piece + i, META, 3) == 0) {
        i += 3;
    }
    const char *p = i < len ? piece + i : NULL;
    while (p != NULL) {
        p = memchr(p, META[0], (size_t)(piece + len - p));
        if (p == NULL || (size_t)(piece + len - p) < 3) break;
        if (memcmp(p, META, 3) == 0) return (size_t)(p - piece);
        p++;
    }
    return len;
}

/*
 * Where the vocabulary proves that no token crosses a U+2581 (cuts_at_meta), a SentencePiece-style
 * text that has no pre-tokenizer is cut there: words are cached and a long text doesn't become one
 * heap. The ids are the same as for the whole.
 */
ech_status ech_bpe_encode(const ech_model *const m, ech_model_scratch *const s,
                          const char *const piece, const size_t len, ech_ids *const ids,
                          ech_error *const err)
{
    if (!m->cuts_at_meta) return ech_words_encode(m, s, piece, len, ids, err, encode_fresh);
    for (size_t i = 0; i < len;) {
        const size_t end = word_end(piece, len, i);
        ECH_TRY(ech_words_encode(m, s, piece + i, end - i, ids, err, encode_fresh));
        i = end;
    }
    return ECH_OK;
}
