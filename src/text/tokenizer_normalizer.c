/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations. Each reads a text and either says that nothing changes, or writes the other one
 * of two buffers. ASCII goes a short way: no normal form changes it.
 *
 * Invariants: well-formed UTF-8 stays well-formed. Where tags are asked for, each byte of a result
 * has the tags (bits, or-ed) of the source bytes it was made from, which is how origin survives
 * normalisation. Two buffers take turns: the current text lies in one, the next is written to the
 * other.
 *
 * The references are Hugging Face's tokenizers and the Unicode version its tables have; characters
 * that are younger ("young") are left alone. The operations are shared and read-only, the scratch
 * is one thread's. Left out: offsets.
 */
#include "src/text/tokenizer_normalizer.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_model.h"
#include "src/text/unicode.h"

/* Where an operation writes. */
typedef struct sink {
    ech_buf *text, *tags;
    const ech_norm_text *in;
    ech_norm_scratch *s;
    bool lost_start;
} sink;

ech_status ech_normalizer_add(ech_normalizer *const n, ech_norm_op op)
{
    if (n->n_ops == n->cap_ops) {
        const size_t cap = n->cap_ops == 0 ? 8 : n->cap_ops * 2;
        ech_norm_op *const ops = realloc(n->ops, cap * sizeof *ops);
        if (ops == NULL) {
            ech_regex_destroy(&op.re);
            return ECH_ENOMEM;
        }
        n->ops = ops;
        n->cap_ops = cap;
    }
    n->ops[n->n_ops++] = op;
    return ECH_OK;
}

void ech_normalizer_fini(ech_normalizer *const n)
{
    for (size_t i = 0; i < n->n_ops; i++) {
        ech_regex_destroy(&n->ops[i].re);
    }
    free(n->ops);
    *n = (ech_normalizer){ 0 };
}

void ech_norm_scratch_fini(ech_norm_scratch *const s)
{
    for (int i = 0; i < 2; i++) {
        ech_buf_fini(&s->side[i].text);
        ech_buf_fini(&s->side[i].tags);
    }
    ech_buf_fini(&s->run);
}

/* Or-ed: a character that was composed from two origins has both. */
static uint8_t tags_of(const ech_norm_text *const in, const size_t from, const size_t to)
{
    uint8_t tag = 0;
    for (size_t i = from; in->tags != NULL && i < to; i++) {
        tag |= in->tags[i];
    }
    return tag;
}

/* Writes bytes that were made from in[from..to). */
static ech_status put(sink *const out, const char *const ptr, const size_t len, const size_t from,
                      const size_t to)
{
    ECH_TRY(ech_buf_append(out->text, ptr, len));
    if (out->in->tags == NULL) return ECH_OK;
    ECH_TRY(ech_buf_reserve(out->tags, len));
    memset(out->tags->data + out->tags->len, tags_of(out->in, from, to), len);
    out->tags->len += len;
    return ECH_OK;
}

/* Writes in[from..to) as it is. */
static ech_status copy(sink *const out, const size_t from, const size_t to)
{
    ECH_TRY(ech_buf_append(out->text, out->in->ptr + from, to - from));
    if (out->in->tags == NULL) return ECH_OK;
    return ech_buf_append(out->tags, out->in->tags + from, to - from);
}

static ech_status put_cp(sink *const out, const uint32_t cp, const size_t from, const size_t to)
{
    char c[4];
    const int n = ech_utf8_encode(cp, c);
    return put(out, c, (size_t)n, from, to);
}

/*
 * Leaves in[…] out: only the beginning of a text needs to know. lost_start tells that the result's
 * first byte isn't the source's first any more, which decides whether a Metaspace puts its
 * character in front.
 */
static ech_status drop(sink *const out)
{
    if (out->text->len == 0) out->lost_start = true;
    return ECH_OK;
}

/* Bytes of the character at in[i], and the character. */
static size_t char_at(const ech_norm_text *const in, const size_t i, uint32_t *const ret_cp)
{
    if ((uint8_t)in->ptr[i] < 0x80) {
        *ret_cp = (uint8_t)in->ptr[i];
        return 1;
    }
    const int n = ech_utf8_decode(in->ptr + i, in->len - i, ret_cp);
    return n > 0 ? (size_t)n : 1;
}

/* Eight bytes at a time by their top bits. */
static size_t ascii_len(const char *const s, const size_t len)
{
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        uint64_t w;
        memcpy(&w, s + i, 8);
        if (w & 0x8080808080808080ULL) break;
    }
    while (i < len && (uint8_t)s[i] < 0x80) {
        i++;
    }
    return i;
}

/* ---- Normal forms ---- */

static const unsigned FORM_FLAG[] = { ECH_CHAR_NFC, ECH_CHAR_NFD, ECH_CHAR_NFKC, ECH_CHAR_NFKD };
static const int FORM_OPTIONS[] = {
    UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

/*
 * Writes the normal form of in[from..to), a run that nothing outside of it combines with. Asked for
 * its size first, then decomposed and composed in place. The run is short in ordinary text, and 4
 * bytes a character are enough for UTF-8 to be written over the code points.
 */
static ech_status put_form(sink *const out, const ech_norm_kind form, const size_t from,
                           const size_t to)
{
    const int options = FORM_OPTIONS[form];
    ech_buf *const run = &out->s->run;
    const uint8_t *const src = (const uint8_t *)out->in->ptr + from;
    const utf8proc_ssize_t len = (utf8proc_ssize_t)(to - from);
    const utf8proc_ssize_t n = utf8proc_decompose(src, len, NULL, 0, (utf8proc_option_t)options);
    if (n < 0) return ECH_EINTERNAL;
    ech_buf_clear(run);
    ECH_TRY(ech_buf_reserve(run, (size_t)(n + 1) * 4));
    utf8proc_int32_t *const cps = (utf8proc_int32_t *)(void *)run->data;
    (void)utf8proc_decompose(src, len, cps, n, (utf8proc_option_t)options);
    const utf8proc_ssize_t bytes = utf8proc_reencode(cps, n, (utf8proc_option_t)options);
    if (bytes < 0) return ECH_EINTERNAL;
    return put(out, run->data, (size_t)bytes, from, to);
}

/*
 * Finds the next run that the form may change: in[*from..to). It begins with the last character
 * that can't change alone, since what follows may join it. Characters that are younger than the
 * form join nothing. Returns to, or 0 when there is none.
 */
static size_t next_run(const ech_norm_text *const in, const unsigned flag, size_t *const from)
{
    size_t start = *from, i = *from;
    bool found = false;
    while (i < in->len) {
        const size_t ascii = found ? 0 : ascii_len(in->ptr + i, in->len - i);
        if (ascii > 0) {
            i += ascii;
            start = i - 1;
            continue;
        }
        uint32_t cp = 0;
        const size_t n = char_at(in, i, &cp);
        const unsigned flags = cp < 0xA0 ? 0 : ech_char_flags_of(cp);
        if (flags & flag) {
            found = true;
        } else if (found) {
            break;
        } else {
            start = flags & ECH_CHAR_YOUNG ? i + n : i;
        }
        i += n;
    }
    *from = start;
    return found ? i : 0;
}

static ech_status normal_form(const ech_norm_op *const op, sink *const out, bool *const changed)
{
    const ech_norm_text *const in = out->in;
    size_t done = 0, from = 0, to;
    while ((to = next_run(in, FORM_FLAG[op->kind], &from)) != 0) {
        *changed = true;
        ECH_TRY(copy(out, done, from));
        ECH_TRY(put_form(out, op->kind, from, to));
        done = from = to;
    }
    return *changed ? copy(out, done, in->len) : ECH_OK;
}

/* ---- Character by character ---- */

static ech_status lower_char(sink *const out, const uint32_t cp, const size_t from, const size_t to)
{
    uint32_t low[2];
    const int n = ech_char_lower(cp, low);
    for (int i = 0; i < n; i++) {
        ECH_TRY(put_cp(out, low[i], from, to));
    }
    return ECH_OK;
}

/* SentencePiece's "nmt" rules: controls go, odd spaces become spaces. */
static ech_status nmt_char(sink *const out, const uint32_t cp, const size_t from, const size_t to)
{
    if ((cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F ||
        cp == 0x8F || cp == 0x9F)
        return drop(out);
    const bool is_space = cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 ||
                          (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 ||
                          cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;
    return is_space ? put(out, " ", 1, from, to) : copy(out, from, to);
}

static ech_status bert_clean_char(sink *const out, const uint32_t cp, const size_t from,
                                  const size_t to)
{
    if (ech_char_flags_of(cp) & ECH_CHAR_BERT_CONTROL) return drop(out);
    return ech_char_is_space(cp) ? put(out, " ", 1, from, to) : copy(out, from, to);
}

/* The reference's list, its gap included (U+2B820 to U+2B91F). */
static bool is_chinese(const uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B81F) ||
           (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static ech_status chinese_char(sink *const out, const uint32_t cp, const size_t from,
                               const size_t to)
{
    if (!is_chinese(cp)) return copy(out, from, to);
    ECH_TRY(put(out, " ", 1, from, to));
    ECH_TRY(copy(out, from, to));
    return put(out, " ", 1, from, to);
}

static ech_status byte_level_char(sink *const out, const size_t from, const size_t to)
{
    for (size_t i = from; i < to; i++) {
        ECH_TRY(put_cp(out, ech_byte_char((uint8_t)out->in->ptr[i]), from, to));
    }
    return ECH_OK;
}

/*
 * Bytes of ASCII from i on that the operation leaves as they are. Must name only bytes that
 * put_changed would copy: it is a short cut, not a rule of its own.
 */
static size_t unchanged_ascii(const ech_norm_kind kind, const ech_norm_text *const in, size_t i)
{
    const size_t from = i;
    if (kind == ECH_NORM_BYTE_LEVEL) return 0;
    for (; i < in->len && (uint8_t)in->ptr[i] < 0x7F; i++) {
        const char c = in->ptr[i];
        if (kind == ECH_NORM_LOWERCASE ? c >= 'A' && c <= 'Z' : c < ' ') break;
    }
    return i - from;
}

/* One character that unchanged_ascii doesn't vouch for. */
static ech_status put_changed(const ech_norm_kind kind, sink *const out, const uint32_t cp,
                              const size_t from, const size_t to)
{
    switch (kind) {
    case ECH_NORM_LOWERCASE:
        return lower_char(out, cp, from, to);
    case ECH_NORM_NMT:
        return nmt_char(out, cp, from, to);
    case ECH_NORM_BERT_CLEAN:
        return bert_clean_char(out, cp, from, to);
    case ECH_NORM_BERT_CHINESE:
        return chinese_char(out, cp, from, to);
    case ECH_NORM_BYTE_LEVEL:
        return byte_level_char(out, from, to);
    case ECH_NORM_STRIP_ACCENTS:
        return ech_char_flags_of(cp) & ECH_CHAR_ACCENT ? drop(out) : copy(out, from, to);
    case ECH_NORM_BERT_ACCENTS:
        return ech_char_flags_of(cp) & ECH_CHAR_BERT_ACCENT ? drop(out) : copy(out, from, to);
    default:
        return copy(out, from, to);
    }
}

/* A text that is unchanged ASCII from end to end is not copied at all. */
static ech_status by_char(const ech_norm_op *const op, sink *const out, bool *const changed)
{
    const ech_norm_text *const in = out->in;
    for (size_t i = 0; i < in->len;) {
        const size_t same = unchanged_ascii(op->kind, in, i);
        if (same == in->len) return ECH_OK;
        *changed = true;
        ECH_TRY(copy(out, i, i + same));
        i += same;
        if (i == in->len) break;
        uint32_t cp = 0;
        const size_t to = i + char_at(in, i, &cp);
        ECH_TRY(put_changed(op->kind, out, cp, i, to));
        i = to;
    }
    return ECH_OK;
}

/* ---- Whole texts ---- */

static ech_status strip(const ech_norm_op *const op, sink *const out, bool *const changed)
{
    const ech_norm_text *const in = out->in;
    size_t from = 0, to = in->len;
    uint32_t cp = 0;
    while ((op->flags & 1) && from < to) {
        const size_t n = char_at(in, from, &cp);
        if (!ech_char_is_space(cp)) break;
        from += n;
    }
    while ((op->flags & 2) && to > from) {
        size_t at = to - 1;
        while (at > from && ((uint8_t)in->ptr[at] & 0xC0) == 0x80) {
            at--;
        }
        (void)char_at(in, at, &cp);
        if (!ech_char_is_space(cp)) break;
        to = at;
    }
    *changed = from > 0 || to < in->len;
    if (from > 0) ECH_TRY(drop(out));
    return *changed ? copy(out, from, to) : ECH_OK;
}

/*
 * What a Replace puts for in[from..to). The reference gives it the place of the match's last
 * character: after a longer match at the very beginning, nothing stands at the source's start.
 */
static ech_status put_replacement(const ech_norm_op *const op, sink *const out, const size_t from,
                                  const size_t to)
{
    uint32_t cp = 0;
    const bool is_long = from < to && char_at(out->in, from, &cp) < to - from;
    if (op->content.len == 0 || is_long) ECH_TRY(drop(out));
    return put(out, op->content.ptr, op->content.len, from, to);
}

static ech_status replace_string(const ech_norm_op *const op, sink *const out, bool *const changed)
{
    const ech_norm_text *const in = out->in;
    size_t done = 0;
    while (in->len - done >= op->pattern.len) {
        const char *const hit =
            memmem(in->ptr + done, in->len - done, op->pattern.ptr, op->pattern.len);
        if (hit == NULL) break;
        const size_t at = (size_t)(hit - in->ptr), end = at + op->pattern.len;
        *changed = true;
        ECH_TRY(copy(out, done, at));
        ECH_TRY(put_replacement(op, out, at, end));
        done = end;
    }
    return *changed ? copy(out, done, in->len) : ECH_OK;
}

/* Bytes of the character at in[i], 1 beyond the end: how a search steps over an empty match. */
static size_t step_len(const ech_norm_text *const in, const size_t i)
{
    uint32_t cp;
    return i < in->len ? char_at(in, i, &cp) : 1;
}

static ech_status replace_regex(const ech_norm_op *const op, sink *const out,
                                ech_regex_scratch *const re, bool *const changed,
                                ech_error *const err)
{
    const ech_norm_text *const in = out->in;
    size_t done = 0, from = 0, at = 0, end = 0;
    int64_t last_end = -1;
    while (from <= in->len) {
        const int rc = ech_regex_find(op->re, re, in->ptr, in->len, from, &at, &end);
        if (rc < 0)
            return ech_fail(err, (ech_status)rc,
                            "normalising: the pattern of Replace takes too long");
        if (rc == 0) break;
        if (at == end && (int64_t)at == last_end) {
            from += step_len(in, from); /* an empty match right behind a match is none */
            continue;
        }
        *changed = true;
        ECH_TRY(copy(out, done, at));
        ECH_TRY(put_replacement(op, out, at, end));
        done = from = end;
        last_end = (int64_t)end;
    }
    return *changed ? copy(out, done, in->len) : ECH_OK;
}

/* Nothing is put before an empty text. */
static ech_status prepend(const ech_norm_op *const op, sink *const out, bool *const changed)
{
    if (out->in->len == 0) return ECH_OK;
    *changed = true;
    ECH_TRY(put(out, op->content.ptr, op->content.len, 0, 0));
    return copy(out, 0, out->in->len);
}

/* One character by the charsmap, or as it is. */
static ech_status charsmap_char(const ech_norm_op *const op, sink *const out, const size_t from,
                                const size_t to)
{
    const ech_str hit = ech_charsmap_find(op->content, out->in->ptr + from, to - from);
    if (hit.ptr == NULL) return copy(out, from, to);
    return hit.len > 0 ? put(out, hit.ptr, hit.len, from, to) : drop(out);
}

/* A short grapheme is looked up as a whole first, then its characters one by one. */
static ech_status charsmap_grapheme(const ech_norm_op *const op, sink *const out, const size_t from,
                                    const size_t to)
{
    if (to - from < 6) {
        const ech_str hit = ech_charsmap_find(op->content, out->in->ptr + from, to - from);
        if (hit.ptr != NULL) return hit.len > 0 ? put(out, hit.ptr, hit.len, from, to) : drop(out);
    }
    for (size_t i = from; i < to;) {
        uint32_t cp;
        const size_t n = char_at(out->in, i, &cp);
        ECH_TRY(charsmap_char(op, out, i, i + n));
        i += n;
    }
    return ECH_OK;
}

/*
 * Graphemes as in the reference, which looks up whole clusters: a letter with its accents may have
 * a row.
 */
static ech_status precompiled(const ech_norm_op *const op, sink *const out)
{
    const ech_norm_text *const in = out->in;
    utf8proc_int32_t state = 0;
    size_t start = 0;
    uint32_t before = 0;
    for (size_t i = 0; i < in->len;) {
        uint32_t cp = 0;
        const size_t n = char_at(in, i, &cp);
        if (i > 0 && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before,
                                                      (utf8proc_int32_t)cp, &state)) {
            ECH_TRY(charsmap_grapheme(op, out, start, i));
            start = i;
        }
        before = cp;
        i += n;
    }
    return charsmap_grapheme(op, out, start, in->len);
}

static ech_status run_op(const ech_norm_op *const op, sink *const out, ech_regex_scratch *const re,
                         bool *const changed, ech_error *const err)
{
    switch (op->kind) {
    case ECH_NORM_NFC:
    case ECH_NORM_NFD:
    case ECH_NORM_NFKC:
    case ECH_NORM_NFKD:
        return normal_form(op, out, changed);
    case ECH_NORM_STRIP:
        return strip(op, out, changed);
    case ECH_NORM_REPLACE:
        return op->re != NULL ? replace_regex(op, out, re, changed, err)
                              : replace_string(op, out, changed);
    case ECH_NORM_PREPEND:
        return prepend(op, out, changed);
    case ECH_NORM_PRECOMPILED:
        *changed = true;
        return precompiled(op, out);
    default:
        return by_char(op, out, changed);
    }
}

/* text points into the scratch afterwards, until the next call; untouched where nothing changed. */
ech_status ech_normalizer_apply(const ech_normalizer *const n, ech_norm_scratch *const s,
                                ech_regex_scratch *const re, ech_norm_text *const text,
                                ech_error *const err)
{
    for (size_t i = 0; i < n->n_ops; i++) {
        sink out = { &s->side[s->next].text, &s->side[s->next].tags, text, s, false };
        ech_buf_clear(out.text);
        ech_buf_clear(out.tags);
        ECH_TRY(ech_buf_reserve(out.text, 1));
        ECH_TRY(ech_buf_reserve(out.tags, 1));
        bool changed = false;
        ECH_TRY(run_op(&n->ops[i], &out, re, &changed, err));
        if (!changed) continue;
        text->ptr = out.text->data;
        text->len = out.text->len;
        if (text->tags != NULL) text->tags = (const uint8_t *)out.tags->data;
        text->lost_start = text->lost_start || out.lost_start;
        s->next = 1 - s->next;
    }
    return ECH_OK;
}
