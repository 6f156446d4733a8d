/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations. A text is a row of stretches, matches and what lies between them; a splitter
 * turns the row into pieces as its behaviour says, and each piece goes to the next operation at
 * once, so that nothing is collected.
 *
 * Invariant: operations hand pieces on in order and leave nothing out, but for what
 * ECH_SPLIT_REMOVED and ECH_PRETOK_WHITESPACE are meant to drop. No stage gets an empty piece. The
 * recursion of stage() is as deep as there are operations, ECH_PRETOK_MAX_OPS at most; each writing
 * operation k owns scratch text[k], which is in use until the pieces made of it are done.
 *
 * The reference is Hugging Face's tokenizers; comments below name its quirks. Left out: offsets
 * into the original text, which no caller asks for.
 */
#include "src/text/tokenizer_pretok.h"

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_model.h"
#include "src/text/unicode.h"

typedef struct run {
    const ech_pretok *p;
    ech_pretok_scratch *s;
    ech_regex_scratch *re;
    ech_piece_fn fn;
    void *to;
} run;

static ech_status stage(const run *r, size_t k, const char *text, size_t len, bool is_start);

ech_status ech_pretok_add(ech_pretok *const p, ech_pretok_op op)
{
    if (p->n_ops == ECH_PRETOK_MAX_OPS) {
        ech_regex_destroy(&op.re);
        return ECH_ELIMIT;
    }
    p->ops[p->n_ops++] = op;
    return ECH_OK;
}

void ech_pretok_fini(ech_pretok *const p)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        ech_regex_destroy(&p->ops[i].re);
    }
    *p = (ech_pretok){ 0 };
}

void ech_pretok_scratch_fini(ech_pretok_scratch *const s)
{
    for (size_t i = 0; i < ECH_PRETOK_MAX_OPS; i++) {
        ech_buf_fini(&s->text[i]);
    }
}

/* Stretches of one text in, pieces out. */
typedef struct splitter {
    const run *r;
    size_t k; /* the operation that gets the pieces */
    const char *text;
    bool is_start;
    ech_split_behavior behavior;
    bool inverted;
    bool has_held; /* held: a piece that may still grow */
    bool was_match;
    size_t from, to; /* of the held piece */
} splitter;

/* is_start stays with the piece that begins where the text begins, for ECH_META_FIRST. */
static ech_status put_piece(const splitter *const sp, const size_t from, const size_t to)
{
    if (from == to) return ECH_OK;
    return stage(sp->r, sp->k, sp->text + from, to - from, sp->is_start && from == 0);
}

static ech_status flush(splitter *const sp)
{
    if (!sp->has_held) return ECH_OK;
    sp->has_held = false;
    return put_piece(sp, sp->from, sp->to);
}

/*
 * The next stretch. One stretch at a time with one held piece is all that the five behaviours need:
 * whether a stretch joins the one before depends on the kinds of the two only. was_match is false
 * at first, so a text that begins with a match under MERGED_WITH_PREVIOUS has nothing to join and
 * becomes a piece of its own.
 */
static ech_status feed(splitter *const sp, const size_t from, const size_t to, bool is_match)
{
    is_match ^= sp->inverted;
    bool joins = false;
    switch (sp->behavior) {
    case ECH_SPLIT_ISOLATED:
        return put_piece(sp, from, to);
    case ECH_SPLIT_REMOVED:
        return is_match ? ECH_OK : put_piece(sp, from, to);
    case ECH_SPLIT_MERGED_WITH_PREVIOUS:
        joins = is_match && !sp->was_match;
        break;
    case ECH_SPLIT_MERGED_WITH_NEXT:
        joins = !is_match && sp->was_match;
        break;
    case ECH_SPLIT_CONTIGUOUS:
        joins = is_match == sp->was_match;
        break;
    }
    sp->was_match = is_match;
    if (joins && sp->has_held) {
        sp->to = to;
        return ECH_OK;
    }
    ECH_TRY(flush(sp));
    sp->has_held = true;
    sp->from = from;
    sp->to = to;
    return ECH_OK;
}

static size_t char_len(const char *const text, const size_t len, const size_t at)
{
    uint32_t cp;
    const int n = at < len ? ech_utf8_decode(text + at, len - at, &cp) : 1;
    return n > 0 ? (size_t)n : 1;
}

/*
 * Follows the iterator of Rust's regex bindings: an empty match may occur, but not right behind the
 * match before it; there the search goes on one character further. from == len is allowed, since an
 * empty match may lie at the end.
 */
static ech_status split_by_regex(splitter *const sp, const ech_regex *const re, const size_t len)
{
    size_t done = 0, from = 0, at = 0, end = 0, last_end = SIZE_MAX;
    while (from <= len) {
        const int rc = ech_regex_find(re, sp->r->re, sp->text, len, from, &at, &end);
        if (rc < 0) return (ech_status)rc;
        if (rc == 0) break;
        if (at == end && at == last_end) { /* an empty match right behind a match is none */
            from += char_len(sp->text, len, from);
            continue;
        }
        if (done != at) ECH_TRY(feed(sp, done, at, false));
        ECH_TRY(feed(sp, at, end, true));
        done = from = last_end = end;
    }
    if (done != len) ECH_TRY(feed(sp, done, len, false));
    return flush(sp);
}

/* Matches don't overlap, and are found from the left. An empty pattern matches nothing here. */
static ech_status split_by_string(splitter *const sp, const ech_str pattern, const size_t len)
{
    size_t done = 0;
    while (pattern.len > 0 && len - done >= pattern.len) {
        const char *const hit = memmem(sp->text + done, len - done, pattern.ptr, pattern.len);
        if (hit == NULL) break;
        const size_t at = (size_t)(hit - sp->text);
        if (done != at) ECH_TRY(feed(sp, done, at, false));
        ECH_TRY(feed(sp, at, at + pattern.len, true));
        done = at + pattern.len;
    }
    if (done != len) ECH_TRY(feed(sp, done, len, false));
    return flush(sp);
}

/* Rust's char::is_numeric: the categories Nd, Nl and No. ASCII goes without the table. */
static bool is_numeric(const uint32_t cp)
{
    return cp < 0x80 ? cp >= '0' && cp <= '9' : (ech_char_flags_of(cp) & ECH_CHAR_NUMERIC) != 0;
}

static bool is_punctuation(const uint32_t cp)
{
    return (ech_char_flags_of(cp) & ECH_CHAR_PUNCT) != 0;
}

/*
 * Each matching character is a stretch by itself; whether neighbours join is the behaviour's
 * matter. Ill-formed bytes pass as U+FFFD, one at a time.
 */
static ech_status split_by_char(splitter *const sp, bool (*const matches)(uint32_t),
                                const size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0xFFFD;
        const int n = ech_utf8_decode(sp->text + i, len - i, &cp);
        const size_t end = i + (n > 0 ? (size_t)n : 1);
        if (matches(cp)) {
            if (done != i) ECH_TRY(feed(sp, done, i, false));
            ECH_TRY(feed(sp, i, end, true));
            done = end;
        }
        i = end;
    }
    if (done != len) ECH_TRY(feed(sp, done, len, false));
    return flush(sp);
}

/* 0 space, 1 word, 2 other. */
static int char_class(const uint32_t cp)
{
    if (ech_char_is_space(cp)) return 0;
    return ech_char_flags_of(cp) & ECH_CHAR_WORD ? 1 : 2;
}

/*
 * The reference's pattern is \w+|[^\w\s]+; whitespace falls out. Here a change of class ends a
 * piece, so no regex is run.
 */
static ech_status split_words(const splitter *const sp, const size_t len)
{
    size_t start = 0;
    int class = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0xFFFD;
        const int n = ech_utf8_decode(sp->text + i, len - i, &cp);
        const int next = char_class(cp);
        if (next != class) {
            if (class != 0) ECH_TRY(put_piece(sp, start, i));
            class = next;
            start = i;
        }
        i += n > 0 ? (size_t)n : 1;
    }
    return class != 0 ? put_piece(sp, start, len) : ECH_OK;
}

static ech_status prefix_space(const run *const r, const size_t k, const char *const text,
                               const size_t len, const bool is_start)
{
    if (text[0] == ' ') return stage(r, k + 1, text, len, is_start);
    ech_buf *const b = &r->s->text[k];
    ech_buf_clear(b);
    ECH_TRY(ech_buf_push(b, ' '));
    ECH_TRY(ech_buf_append(b, text, len));
    return stage(r, k + 1, b->data, b->len, is_start);
}

/* 2 * len is enough: a byte becomes a character below U+0144, two bytes at most. */
static ech_status byte_chars(const run *const r, const size_t k, const char *const text,
                             const size_t len, const bool is_start)
{
    ech_buf *const b = &r->s->text[k];
    ech_buf_clear(b);
    ECH_TRY(ech_buf_reserve(b, 2 * len));
    for (size_t i = 0; i < len; i++) {
        b->len += (size_t)ech_utf8_encode(ech_byte_char((uint8_t)text[i]), b->data + b->len);
    }
    return stage(r, k + 1, b->data, b->len, is_start);
}

/*
 * MERGED_WITH_NEXT is how the operation's split option arrives: then the text is cut before each
 * meta character. A text that already begins with a space gets no second one.
 */
static ech_status metaspace(splitter *const sp, const ech_pretok_op *const op, const size_t k,
                            const size_t len)
{
    ech_buf *const b = &sp->r->s->text[k];
    const char *const text = sp->text;
    const ech_str meta = op->pattern;
    ech_buf_clear(b);
    const bool has_meta =
        text[0] == ' ' || (len >= meta.len && memcmp(text, meta.ptr, meta.len) == 0);
    const bool wanted =
        op->scheme == ECH_META_ALWAYS || (op->scheme == ECH_META_FIRST && sp->is_start);
    if (wanted && !has_meta) ECH_TRY(ech_buf_append(b, meta.ptr, meta.len));
    for (size_t done = 0; done < len;) {
        const char *const hit = memchr(text + done, ' ', len - done);
        const size_t at = hit != NULL ? (size_t)(hit - text) : len;
        ECH_TRY(ech_buf_append(b, text + done, at - done));
        if (hit != NULL) ECH_TRY(ech_buf_append(b, meta.ptr, meta.len));
        done = at + 1;
    }
    if (op->behavior != ECH_SPLIT_MERGED_WITH_NEXT)
        return stage(sp->r, sp->k, b->data, b->len, sp->is_start);
    sp->text = b->data;
    return split_by_string(sp, meta, b->len);
}

static ech_status stage(const run *const r, const size_t k, const char *const text,
                        const size_t len, const bool is_start)
{
    if (k == r->p->n_ops) return r->fn(r->to, text, len);
    const ech_pretok_op *const op = &r->p->ops[k];
    splitter sp = { .r = r,
                    .k = k + 1,
                    .text = text,
                    .is_start = is_start,
                    .behavior = op->behavior,
                    .inverted = op->inverted };
    switch (op->kind) {
    case ECH_PRETOK_SPLIT:
        return op->re != NULL ? split_by_regex(&sp, op->re, len)
                              : split_by_string(&sp, op->pattern, len);
    case ECH_PRETOK_PREFIX_SPACE:
        return prefix_space(r, k, text, len, is_start);
    case ECH_PRETOK_BYTE_CHARS:
        return byte_chars(r, k, text, len, is_start);
    case ECH_PRETOK_DIGITS:
        return split_by_char(&sp, is_numeric, len);
    case ECH_PRETOK_METASPACE:
        return metaspace(&sp, op, k, len);
    case ECH_PRETOK_PUNCTUATION:
        return split_by_char(&sp, is_punctuation, len);
    case ECH_PRETOK_WHITESPACE:
        return split_words(&sp, len);
    case ECH_PRETOK_WHITESPACE_SPLIT:
        return split_by_char(&sp, ech_char_is_space, len);
    }
    return ECH_EINTERNAL;
}

ech_status ech_pretok_run(const ech_pretok *const p, ech_pretok_scratch *const s,
                          ech_regex_scratch *const re, const char *const text, const size_t len,
                          const bool is_start, const ech_piece_fn fn, void *const to)
{
    if (len == 0) return ECH_OK;
    const run r = { p, s, re, fn, to };
    return stage(&r, 0, text, len, is_start);
}
