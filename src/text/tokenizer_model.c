/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the models share: vocabulary, merge table, scratch; and the two small models, WordPiece
 * (greedy longest match) and WordLevel (a look-up).
 *
 * Invariants: after ech_model_finish a model never changes, so any number of threads may use it,
 * each with a scratch. The merge table always has an empty slot, which ends every probe. The
 * tables' seed is random, so that no file can be made to collide on purpose; ids never depend on
 * it.
 */
#include "src/text/tokenizer_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"

#define META "\xE2\x96\x81"

/* Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100 on. */
uint32_t ech_byte_char(const uint8_t byte)
{
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE) return byte;
    /* The others are numbered from 256 on, in their order. */
    if (byte <= ' ') return 256U + byte;
    if (byte <= 0xA0) return 256U + 33U + (byte - 0x7FU);
    return 256U + 67U; /* 0xAD, the last */
}

int ech_char_byte(const uint32_t cp)
{
    if (cp < 256) return ech_byte_char((uint8_t)cp) == cp ? (int)cp : -1;
    if (cp <= 256 + ' ') return (int)(cp - 256);
    if (cp <= 256 + 66) return (int)(cp - 256 - 33 + 0x7F);
    return cp == 256 + 67 ? 0xAD : -1;
}

ech_status ech_model_init(ech_model *const m, const ech_model_kind kind, const size_t n_texts)
{
    *m = (ech_model){
        .kind = kind, .unk_id = -1, .seed = ech_lexicon_seed(), .max_word_chars = 100
    };
    return ech_lexicon_init(&m->lex, n_texts);
}

void ech_model_fini(ech_model *const m)
{
    ech_lexicon_fini(&m->lex);
    ech_trie_fini(&m->trie);
    free(m->merges);
    free(m->scores);
    *m = (ech_model){ 0 };
}

ech_status ech_model_reserve_merges(ech_model *const m, const size_t n)
{
    if (n > ECH_LEXICON_MAX_IDS) return ECH_ELIMIT;
    size_t size = 16;
    while (size * 5 < n * 8) { /* at most 5/8 full */
        size *= 2;
    }
    m->merges = calloc(size, sizeof *m->merges);
    if (m->merges == NULL) return ECH_ENOMEM;
    m->merge_mask = size - 1;
    return ECH_OK;
}

/*
 * The ids of left, right and what they make: left and right put together, the right one's prefix
 * taken off. -1: no such token.
 */
static ech_status merge_ids(const ech_model *const m, const ech_str left, const ech_str right,
                            int32_t ret[3])
{
    char small[256];
    const size_t skip = m->prefix.len;
    if (right.len < skip || left.len + right.len - skip > m->lex.max_len) {
        ret[0] = ech_lexicon_find(&m->lex, left.ptr, left.len);
        ret[1] = ech_lexicon_find(&m->lex, right.ptr, right.len);
        ret[2] = -1;
        return ECH_OK;
    }
    const size_t len = left.len + right.len - skip;
    char *const text = len <= sizeof small ? small : malloc(len);
    if (text == NULL) return ECH_ENOMEM;
    memcpy(text, left.ptr, left.len);
    memcpy(text + left.len, right.ptr + skip, right.len - skip);
    ech_lexicon_find_n(&m->lex, (ech_str[]){ left, right, { text, len } }, 3, ret);
    if (text != small) free(text);
    return ECH_OK;
}

ech_status ech_model_add_merge(ech_model *const m, const ech_str left, const ech_str right,
                               const uint32_t rank, ech_error *const err)
{
    int32_t ids[3];
    ECH_TRY(merge_ids(m, left, right, ids));
    const int32_t l = ids[0], r = ids[1], id = ids[2];
    if (l < 0 || r < 0 || id < 0) {
        return ech_fail(err, ECH_EFORMAT,
                        "reading merge %u (\"%.*s\" and \"%.*s\"): %s is not in the vocabulary",
                        rank, (int)(left.len > 60 ? 60 : left.len), left.ptr,
                        (int)(right.len > 60 ? 60 : right.len), right.ptr,
                        l < 0   ? "the left part"
                        : r < 0 ? "the right part"
                                : "what they make");
    }
    const uint64_t pair = ((uint64_t)(uint32_t)l << 32 | (uint32_t)r) + 1;
    size_t i = (size_t)(((pair ^ m->seed) * 0x9E3779B97F4A7C15ULL) >> 24) & m->merge_mask;
    while (m->merges[i].pair != 0 && m->merges[i].pair != pair) {
        i = (i + 1) & m->merge_mask;
    }
    if (m->merges[i].pair == 0) m->n_merges++;
    m->merges[i] =
        (ech_merge){ pair, rank, id }; /* the last one of equals counts, as in the reference */
    return ECH_OK;
}

/*
 * Whether U+2581 never stands behind another character within a token that merges make. Asked once,
 * over all merges: if so, no merge ever joins across such a place, and cutting there is exact.
 */
static bool cuts_at_meta(const ech_model *const m)
{
    if (m->is_byte_level || m->ignore_merges || m->prefix.len > 0 || m->suffix.len > 0)
        return false;
    if (ech_lexicon_find(&m->lex, META, 3) < 0) return false;
    for (size_t i = 0; i <= m->merge_mask; i++) {
        if (m->merges[i].pair == 0) continue;
        const ech_str text = m->lex.texts[m->merges[i].id];
        size_t at = 0;
        while (text.len - at >= 3 && memcmp(text.ptr + at, META, 3) == 0) {
            at += 3;
        }
        if (memmem(text.ptr + at, text.len - at, META, 3) != NULL) return false;
    }
    return true;
}

/* For other models only ASCII is one byte a character, so bytes from 0x80 on have no entry. */
static void find_char_ids(ech_model *const m)
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", b);
        m->fallback_ids[b] = ech_lexicon_find(&m->lex, text, 6);
        const uint32_t cp = m->is_byte_level ? ech_byte_char((uint8_t)b) : (uint32_t)b;
        const int n = ech_utf8_encode(cp, text);
        m->char_ids[b] =
            m->is_byte_level || b < 0x80 ? ech_lexicon_find(&m->lex, text, (size_t)n) : -1;
    }
}

ech_status ech_model_finish(ech_model *const m, ech_error *const err)
{
    find_char_ids(m);
    if (m->kind == ECH_MODEL_BPE) {
        if (m->merges == NULL && ech_model_reserve_merges(m, 0) != ECH_OK) {
            return ech_fail(err, ECH_ENOMEM, "building the merges: out of memory");
        }
        m->cuts_at_meta = cuts_at_meta(m);
    }
    return ECH_OK;
}

ech_status ech_model_scratch_create(ech_model_scratch **const ret_scratch)
{
    ech_model_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) return ECH_ENOMEM;
    *ret_scratch = s;
    return ECH_OK;
}

void ech_model_scratch_destroy(ech_model_scratch **const scratch)
{
    ech_model_scratch *const s = *scratch;
    if (s == NULL) return;
    free(s->words);
    free(s->symbols);
    free(s->heap);
    free(s->best);
    ech_buf_fini(&s->text);
    free(s);
    *scratch = NULL;
}

/* A vocabulary without its unknown token is found out only when a text needs it. */
static ech_status put_unk(const ech_model *const m, ech_ids *const ids, ech_error *const err)
{
    if (m->unk_id < 0)
        return ech_fail(err, ECH_EFORMAT, "encoding: the unknown token is not in the vocabulary");
    return ech_ids_append(ids, &m->unk_id, 1);
}

/* The longest token at the beginning of rest, behind prefix; its length, 0 for none. */
static size_t longest_token(const ech_model *const m, ech_buf *const text, const ech_str prefix,
                            const ech_str rest, int32_t *const ret_id)
{
    ech_buf_clear(text);
    size_t len = rest.len;
    if (len > m->lex.max_len) len = m->lex.max_len; /* nothing longer can be found */
    if (ech_buf_append(text, prefix.ptr, prefix.len) != ECH_OK ||
        ech_buf_append(text, rest.ptr, len) != ECH_OK)
        return 0;
    for (; len > 0; len--) {
        /* Only at the end of a character; the middle of one is found in no vocabulary anyway. */
        if (len < rest.len && ((uint8_t)rest.ptr[len] & 0xC0) == 0x80) continue;
        *ret_id = ech_lexicon_find(&m->lex, text->data, prefix.len + len);
        if (*ret_id >= 0) return len;
    }
    return 0;
}

static size_t count_chars(const char *const s, const size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += ((uint8_t)s[i] & 0xC0) != 0x80;
    }
    return n;
}

/* max_word_chars counts characters. Greedy from the left, with no way back. */
static ech_status wordpiece_encode(const ech_model *const m, ech_model_scratch *const s,
                                   const char *const piece, const size_t len, ech_ids *const ids,
                                   ech_error *const err)
{
    const size_t before = ids->n;
    if (count_chars(piece, len) > m->max_word_chars) return put_unk(m, ids, err);
    for (size_t at = 0; at < len;) {
        int32_t id = -1;
        const ech_str prefix = at > 0 ? m->prefix : (ech_str){ 0 };
        const size_t n = longest_token(m, &s->text, prefix, (ech_str){ piece + at, len - at }, &id);
        if (n == 0) {
            ids->n = before; /* one part unknown: the whole word is */
            return put_unk(m, ids, err);
        }
        ECH_TRY(ech_ids_append(ids, &id, 1));
        at += n;
    }
    return ECH_OK;
}

ech_status ech_model_encode(const ech_model *const m, ech_model_scratch *const s,
                            const char *const piece, const size_t len, ech_ids *const ids,
                            ech_error *const err)
{
    if (len == 0) return ECH_OK;
    switch (m->kind) {
    case ECH_MODEL_BPE:
        return ech_bpe_encode(m, s, piece, len, ids, err);
    case ECH_MODEL_UNIGRAM:
        return ech_words_encode(m, s, piece, len, ids, err, ech_unigram_encode);
    case ECH_MODEL_WORDPIECE:
        return ech_words_encode(m, s, piece, len, ids, err, wordpiece_encode);
    case ECH_MODEL_WORDLEVEL:
        break;
    }
    const int32_t id = ech_lexicon_find(&m->lex, piece, len);
    return id >= 0 ? ech_ids_append(ids, &id, 1) : put_unk(m, ids, err);
}
