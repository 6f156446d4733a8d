/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a decoder, first on one text, then on lists, then on a stream.
 *
 * A decoder is a chain: the tokens' texts are a list, and each operation makes another list of it.
 * A list is one buffer with the ends of its texts (ech_texts). A stream can't wait for the list's
 * end, so there every text goes through the chain alone.
 *
 *     ["▁He", "llo"] -> Replace -> [" He", "llo"] -> Fuse -> [" Hello"] -> Strip -> ["Hello"]
 *
 * The reference is the tokenizers library, operation by operation, with what looks like its
 * mistakes: they are what people see. Where one text stands in the list matters to it (first, last,
 * beside its like), so the number of texts is part of the result until the end.
 *
 * Invariant: over a list the result is valid UTF-8, whatever the ids; a step of a stream may give
 * bytes that are no whole character. A decoder doesn't change once it is built: what a run writes
 * to is the caller's.
 *
 * Thread: any; the regex scratch belongs to one at a time. Left out: which ids are skipped, which
 * is the caller's.
 */
#include "src/text/tokenizer_decoder.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_model.h"

#define REPLACEMENT "\xEF\xBF\xBD"

void ech_texts_fini(ech_texts *const t)
{
    ech_buf_fini(&t->bytes);
    free(t->ends);
    *t = (ech_texts){ 0 };
}

/*
 * Ends the text that is being written: what was appended to bytes since the last end is one text.
 * An empty text counts as well. On failure the bytes stay, and the caller gives up the list.
 */
ech_status ech_texts_end(ech_texts *const t)
{
    if (t->n == t->cap) {
        const size_t cap = t->cap == 0 ? 64 : t->cap * 2;
        size_t *const ends = realloc(t->ends, cap * sizeof *ends);
        if (ends == NULL) return ECH_ENOMEM;
        t->ends = ends;
        t->cap = cap;
    }
    t->ends[t->n++] = t->bytes.len;
    return ECH_OK;
}

/* Borrowed: valid until the list grows. */
ech_str ech_texts_at(const ech_texts *const t, const size_t i)
{
    const size_t from = i == 0 ? 0 : t->ends[i - 1];
    return (ech_str){ t->bytes.data + from, t->ends[i] - from };
}

/* Takes the operation's pattern, also where it fails: the caller has one way out. */
ech_status ech_decoder_add(ech_decoder *const d, ech_decode_op op)
{
    if (d->n_ops == ECH_DECODER_MAX_OPS) {
        ech_regex_destroy(&op.re);
        return ECH_ELIMIT;
    }
    d->ops[d->n_ops++] = op;
    return ECH_OK;
}

void ech_decoder_fini(ech_decoder *const d)
{
    for (size_t i = 0; i < d->n_ops; i++) {
        ech_regex_destroy(&d->ops[i].re);
    }
    *d = (ech_decoder){ 0 };
}

/*
 * As Python's errors="replace": one U+FFFD for each maximal part of a character, not for each byte.
 * A character cut short is one mark, three stray bytes are three.
 */
ech_status ech_append_lossy(ech_buf *const out, const char *const s, const size_t len)
{
    size_t done = 0, bad = 0;
    while (!ech_utf8_valid(s + done, len - done, &bad)) {
        ECH_TRY(ech_buf_append(out, s + done, bad));
        ECH_TRY(ech_buf_puts(out, REPLACEMENT));
        done += bad;
        done += ech_utf8_broken_len(s + done, len - done);
    }
    return ech_buf_append(out, s + done, len - done);
}

/*
 * GPT-2's characters back to bytes; a text that has others is taken as it is. As it is means the
 * whole text: an added token with a blank or an emoji is no spelling of bytes, and the library
 * takes its UTF-8 then.
 */
static ech_status put_bytes(const ech_str text, ech_buf *const out)
{
    const size_t before = out->len;
    for (size_t i = 0; i < text.len;) {
        uint32_t cp = 0;
        const int n = ech_utf8_decode(text.ptr + i, text.len - i, &cp);
        const int byte = n > 0 ? ech_char_byte(cp) : -1;
        if (byte < 0) {
            out->len = before;
            return ech_buf_append(out, text.ptr, text.len);
        }
        ECH_TRY(ech_buf_push(out, (char)byte));
        i += (size_t)n;
    }
    return ECH_OK;
}

/* Either case, as the library reads it. */
static int hex(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte of "<0x0A>", or -1. All six characters, so that "<0x0A>x" is a text. */
static int fallback_byte(const ech_str t)
{
    if (t.len != 6 || memcmp(t.ptr, "<0x", 3) != 0 || t.ptr[5] != '>') return -1;
    const int hi = hex(t.ptr[3]), lo = hex(t.ptr[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/*
 * Every occurrence from the left, none within what was put in. An empty pattern changes nothing. An
 * empty content deletes.
 */
static ech_status replace_string(const ech_str text, const ech_str pattern, const ech_str content,
                                 ech_buf *const out)
{
    size_t done = 0;
    while (pattern.len > 0 && text.len - done >= pattern.len) {
        const char *const hit = memmem(text.ptr + done, text.len - done, pattern.ptr, pattern.len);
        if (hit == NULL) break;
        const size_t at = (size_t)(hit - text.ptr);
        ECH_TRY(ech_buf_append(out, text.ptr + done, at - done));
        ECH_TRY(ech_buf_append(out, content.ptr, content.len));
        done = at + pattern.len;
    }
    return ech_buf_append(out, text.ptr + done, text.len - done);
}

/*
 * Matches don't overlap. The library asks for all matches first and replaces then, so what is put
 * in is never searched. A match that takes too long is an error of the whole decoding.
 */
static ech_status replace_regex(const ech_decode_op *const op, ech_regex_scratch *const re,
                                const ech_str text, ech_buf *const out)
{
    size_t done = 0, from = 0, at = 0, end = 0;
    while (from <= text.len) {
        const int rc = ech_regex_find(op->re, re, text.ptr, text.len, from, &at, &end);
        if (rc < 0) return (ech_status)rc;
        if (rc == 0) break;
        ECH_TRY(ech_buf_append(out, text.ptr + done, at - done));
        ECH_TRY(ech_buf_append(out, op->content.ptr, op->content.len));
        done = end;
        from = end;
        if (at == end) { /* an empty match: go on behind the next character */
            const size_t left = text.len - end;
            uint32_t cp;
            const int n = left > 0 ? ech_utf8_decode(text.ptr + end, left, &cp) : 1;
            from += n > 0 ? (size_t)n : 1;
        }
    }
    return ech_buf_append(out, text.ptr + done, text.len - done);
}

/*
 * Takes the content off up to `start` times in front and, with both, `stop` times behind; a stream
 * knows no end and asks for the front alone. The front goes first: of a text that is all content,
 * the back takes what the front has left, where the library panics if nothing is. An empty content
 * matches every time and takes nothing.
 */
static ech_status strip(const ech_decode_op *const op, ech_str text, const bool both,
                        ech_buf *const out)
{
    const ech_str c = op->content;
    for (size_t i = 0; i < op->start && text.len >= c.len && memcmp(text.ptr, c.ptr, c.len) == 0;
         i++) {
        text.ptr += c.len;
        text.len -= c.len;
    }
    for (size_t i = 0; both && i < op->stop && text.len >= c.len; i++) {
        if (memcmp(text.ptr + text.len - c.len, c.ptr, c.len) != 0) break;
        text.len -= c.len;
    }
    return ech_buf_append(out, text.ptr, text.len);
}

/*
 * English typography as BERT's decoder mends it, in the reference's order. Each rule goes over the
 * whole text before the next begins, and may find what an earlier one made. Most texts have nothing
 * to mend: the search saves the copy. Works on out from `from` on, what stands before is done.
 */
static ech_status clean_up(ech_buf *const out, const size_t from)
{
    static const struct {
        const char *dirty, *clean;
    } RULES[] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    ech_buf next = { 0 };
    ech_status rc = ECH_OK;
    for (size_t i = 0; rc == ECH_OK && i < sizeof RULES / sizeof RULES[0]; i++) {
        const ech_str text = { out->data + from, out->len - from };
        if (memmem(text.ptr, text.len, RULES[i].dirty, strlen(RULES[i].dirty)) == NULL) continue;
        ech_buf_clear(&next);
        rc =
            replace_string(text, ech_str_from(RULES[i].dirty), ech_str_from(RULES[i].clean), &next);
        if (rc != ECH_OK) break;
        out->len = from;
        rc = ech_buf_append(out, next.data, next.len);
    }
    ech_buf_fini(&next);
    return rc;
}

/*
 * A piece that goes on with a word loses its prefix, any other follows a blank. Typography is
 * mended within this piece alone, as in the reference, which sees one token at a time. The first
 * text keeps its prefix, for there is no word it goes on with.
 */
static ech_status put_wordpiece(const ech_decode_op *const op, ech_str text, const bool is_first,
                                ech_buf *const out)
{
    const size_t from = out->len;
    if (!is_first && text.len >= op->pattern.len &&
        memcmp(text.ptr, op->pattern.ptr, op->pattern.len) == 0) {
        text.ptr += op->pattern.len;
        text.len -= op->pattern.len;
    } else if (!is_first) {
        ECH_TRY(ech_buf_push(out, ' '));
    }
    ECH_TRY(ech_buf_append(out, text.ptr, text.len));
    return op->cleans_up ? clean_up(out, from) : ECH_OK;
}

/*
 * The padding goes, then the word delimiter becomes a blank; repeats were dropped before, by
 * each(). The delimiter is only looked for when typography is mended: the library does both under
 * the one flag. A padding inside a text goes too, not only a text that is nothing else.
 */
static ech_status put_ctc(const ech_decode_op *const op, const ech_str text, ech_buf *const out)
{
    const size_t from = out->len;
    ECH_TRY(replace_string(text, op->pattern, (ech_str){ 0 }, out));
    if (!op->cleans_up) return ECH_OK;
    /* So that data is not NULL, even if nothing is left. */
    ECH_TRY(ech_buf_reserve(out, 1));
    ECH_TRY(clean_up(out, from));
    ech_buf copy = { 0 };
    ech_status rc = ech_buf_append(&copy, out->data + from, out->len - from);
    out->len = from;
    if (rc == ECH_OK) rc = replace_string(ech_buf_view(&copy), op->content, ECH_STR_LIT(" "), out);
    ech_buf_fini(&copy);
    return rc;
}

/*
 * An operation that looks at one text at a time. is_first and is_last are about the list this
 * operation gets, not about the ids: after Fuse one text is both.
 */
static ech_status put_one(const ech_decode_op *const op, ech_regex_scratch *const re,
                          const ech_str text, const bool is_first, const bool is_last,
                          ech_buf *const out)
{
    switch (op->kind) {
    case ECH_DECODE_REPLACE:
        return op->re != NULL ? replace_regex(op, re, text, out)
                              : replace_string(text, op->pattern, op->content, out);
    case ECH_DECODE_STRIP:
        return strip(op, text, true, out);
    /*
     * The first text loses every mark, also those in its middle, and not just the one in front: so
     * does the library.
     */
    case ECH_DECODE_METASPACE:
        return replace_string(text, op->pattern,
                              is_first && op->strips_start ? (ech_str){ 0 } : ECH_STR_LIT(" "),
                              out);
    case ECH_DECODE_WORDPIECE:
        return put_wordpiece(op, text, is_first, out);
    /* The suffix ends a word; behind the last one no blank is wanted. */
    case ECH_DECODE_BPE:
        return replace_string(text, op->pattern, is_last ? (ech_str){ 0 } : ECH_STR_LIT(" "), out);
    case ECH_DECODE_CTC:
        return put_ctc(op, text, out);
    default:
        return ech_buf_append(out, text.ptr, text.len);
    }
}

/* ---- Lists ---- */

/* Of no texts it makes one, which is empty. */
static ech_status fuse(const ech_texts *const in, ech_texts *const out)
{
    ECH_TRY(ech_buf_append(&out->bytes, in->bytes.data, in->bytes.len));
    return ech_texts_end(out);
}

/*
 * All texts together, since a character's bytes may come from several tokens. The mending comes
 * after the joining, so a character is whole if its bytes came in any two tokens.
 */
static ech_status byte_level(const ech_texts *const in, ech_texts *const out)
{
    ech_buf bytes = { 0 };
    ech_status rc = ECH_OK;
    for (size_t i = 0; rc == ECH_OK && i < in->n; i++) {
        rc = put_bytes(ech_texts_at(in, i), &bytes);
    }
    if (rc == ECH_OK) rc = ech_append_lossy(&out->bytes, bytes.data, bytes.len);
    ech_buf_fini(&bytes);
    return rc == ECH_OK ? ech_texts_end(out) : rc;
}

/*
 * A run of byte tokens: one text if it is UTF-8, else U+FFFD for every byte. All or nothing, as in
 * the library: one bad byte spoils the whole run, though part of it may be good. That is unlike
 * byte_level(), which marks only what is broken.
 */
static ech_status flush_bytes(ech_buf *const run, ech_texts *const out)
{
    if (run->len == 0) return ECH_OK;
    if (ech_utf8_valid(run->data, run->len, NULL)) {
        ECH_TRY(ech_buf_append(&out->bytes, run->data, run->len));
        ECH_TRY(ech_texts_end(out));
    } else {
        for (size_t i = 0; i < run->len; i++) {
            ECH_TRY(ech_buf_puts(&out->bytes, REPLACEMENT));
            ECH_TRY(ech_texts_end(out));
        }
    }
    ech_buf_clear(run);
    return ECH_OK;
}

/*
 * A run ends at a text that is no byte, or with the list. Every mark is a text by itself, which an
 * operation further on may treat as first or last.
 */
static ech_status byte_fallback_run(const ech_texts *const in, ech_texts *const out,
                                    ech_buf *const run)
{
    for (size_t i = 0; i < in->n; i++) {
        const ech_str text = ech_texts_at(in, i);
        const int byte = fallback_byte(text);
        if (byte >= 0) {
            ECH_TRY(ech_buf_push(run, (char)byte));
            continue;
        }
        ECH_TRY(flush_bytes(run, out));
        ECH_TRY(ech_buf_append(&out->bytes, text.ptr, text.len));
        ECH_TRY(ech_texts_end(out));
    }
    return flush_bytes(run, out);
}

/* Keeps the run's buffer in one place, so that there is one way out for it. */
static ech_status byte_fallback(const ech_texts *const in, ech_texts *const out)
{
    ech_buf run = { 0 };
    const ech_status rc = byte_fallback_run(in, out, &run);
    ech_buf_fini(&run);
    return rc;
}

/*
 * CTC drops what repeats the text before it, and texts that become empty: they do not count as
 * first or last any more. What repeats is told by the texts that come in, before anything is taken
 * out of them; a text between two equal ones keeps both.
 */
static ech_status each(const ech_decode_op *const op, ech_regex_scratch *const re,
                       const ech_texts *const in, ech_texts *const out)
{
    for (size_t i = 0; i < in->n; i++) {
        const ech_str text = ech_texts_at(in, i);
        if (op->kind == ECH_DECODE_CTC && i > 0 && ech_str_eq(text, ech_texts_at(in, i - 1)))
            continue;
        const size_t before = out->bytes.len;
        ECH_TRY(put_one(op, re, text, i == 0, i + 1 == in->n, &out->bytes));
        if (op->kind == ECH_DECODE_CTC && out->bytes.len == before) continue;
        ECH_TRY(ech_texts_end(out));
    }
    return ECH_OK;
}

static ech_status run_op(const ech_decode_op *const op, ech_regex_scratch *const re,
                         const ech_texts *const in, ech_texts *const out)
{
    switch (op->kind) {
    case ECH_DECODE_BYTE_LEVEL:
        return byte_level(in, out);
    case ECH_DECODE_BYTE_FALLBACK:
        return byte_fallback(in, out);
    case ECH_DECODE_FUSE:
        return fuse(in, out);
    default:
        return each(op, re, in, out);
    }
}

/*
 * What the library does for a tokenizer without a decoder. Tables of whole words come without one.
 */
static ech_status join_by_spaces(const ech_texts *const t, ech_buf *const out)
{
    for (size_t i = 0; i < t->n; i++) {
        const ech_str text = ech_texts_at(t, i);
        if (i > 0) ECH_TRY(ech_buf_push(out, ' '));
        ECH_TRY(ech_buf_append(out, text.ptr, text.len));
    }
    return ECH_OK;
}

/*
 * Each operation makes a new list from the whole old one, as the reference does, so that what one
 * fuses the next sees as one text. The caller's list is used up: it holds the last operation's. On
 * failure it holds some operation's, and is the caller's to release as before.
 */
ech_status ech_decoder_run(const ech_decoder *const d, ech_regex_scratch *const re,
                           ech_texts *const t, ech_buf *const out)
{
    if (d->n_ops == 0) return join_by_spaces(t, out);
    for (size_t i = 0; i < d->n_ops; i++) {
        ech_texts next = { 0 };
        ech_status rc = ech_buf_reserve(&next.bytes, t->bytes.len);
        if (rc == ECH_OK) rc = run_op(&d->ops[i], re, t, &next);
        if (rc != ECH_OK) {
            ech_texts_fini(&next);
            return rc;
        }
        ech_texts done = *t;
        *t = next;
        ech_texts_fini(&done);
    }
    return ech_buf_append(out, t->bytes.data, t->bytes.len);
}

/* ---- Streams ---- */

/*
 * The stream's version: bytes go out as they are, for the stream holds back what is no whole
 * character yet; what needs to know the last text takes this for one in the middle. Such bytes may
 * be broken; the list form would have marked them here.
 */
static ech_status step_op(const ech_decode_op *const op, ech_regex_scratch *const re,
                          const ech_str text, const bool is_first, const bool is_fused,
                          ech_buf *const out)
{
    const int byte = op->kind == ECH_DECODE_BYTE_FALLBACK ? fallback_byte(text) : -1;
    if (byte >= 0) return ech_buf_push(out, (char)byte);
    if (op->kind == ECH_DECODE_BYTE_LEVEL) return put_bytes(text, out);
    if (op->kind == ECH_DECODE_STRIP && is_fused) {
        /* Behind Fuse it means the whole text's start. Its end is never known in a stream. */
        return is_first ? strip(op, text, false, out) : ech_buf_append(out, text.ptr, text.len);
    }
    return put_one(op, re, text, is_first, false, out);
}

/*
 * One text through all operations, with two buffers that change places. Equal to what
 * ech_decoder_run() adds for the text, but for what an end would change.
 */
ech_status ech_decoder_step(const ech_decoder *const d, ech_regex_scratch *const re,
                            const ech_str text, const bool is_first, ech_buf *const out)
{
    if (d->n_ops == 0) {
        if (!is_first) ECH_TRY(ech_buf_push(out, ' '));
        return ech_buf_append(out, text.ptr, text.len);
    }
    ech_buf side[2] = { { 0 }, { 0 } };
    ech_str now = text;
    bool is_fused = false;
    int to_side = 0;
    ech_status rc = ECH_OK;
    for (size_t i = 0; rc == ECH_OK && i < d->n_ops; i++) {
        const ech_decode_op *const op = &d->ops[i];
        /* Both make one text of all; what follows looks at that, of which this is a part. */
        if (op->kind == ECH_DECODE_FUSE || op->kind == ECH_DECODE_BYTE_LEVEL) is_fused = true;
        if (op->kind == ECH_DECODE_FUSE) continue;
        /* now may lie in the other one, which stays untouched until it is read. */
        ech_buf *const to = &side[to_side];
        to_side = 1 - to_side;
        ech_buf_clear(to);
        rc = ech_buf_reserve(to, now.len);
        if (rc == ECH_OK) rc = step_op(op, re, now, is_first, is_fused, to);
        now = ech_buf_view(to);
    }
    if (rc == ECH_OK) rc = ech_buf_append(out, now.ptr, now.len);
    ech_buf_fini(&side[0]);
    ech_buf_fini(&side[1]);
    return rc;
}
