/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids to text, whole and as a stream.
 *
 * A stream keeps up to three bytes: the correct but unfinished beginning of a character. Whatever
 * else arrives goes out at once, with U+FFFD for what can't be a character any more. The prompt's
 * bytes are never looked at; that it was there is all the stream knows.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_parts.h"

struct ech_detok {
    const ech_tokenizer *tok;
    unsigned flags;
    bool is_first;
    bool is_finished;
    ech_buf bytes; /* what isn't given out yet; at most 3 bytes between calls */
    ech_buf text;  /* what the last call gave out */
};

static bool is_skipped(const ech_tokenizer *const t, const int32_t id, const unsigned flags)
{
    return (flags & ECH_DECODE_SKIP_SPECIAL) && ech_tokenizer_is_special(t, id);
}

/* The texts of the ids that have one and are not left out. */
static ech_status collect(const ech_tokenizer *const t, const int32_t *const ids, const size_t n,
                          const unsigned flags, ech_texts *const texts)
{
    for (size_t i = 0; i < n; i++) {
        const ech_str text = ech_tokenizer_text(t, ids[i]);
        if (text.ptr == NULL || is_skipped(t, ids[i], flags)) continue;
        ECH_TRY(ech_buf_append(&texts->bytes, text.ptr, text.len));
        ECH_TRY(ech_texts_end(texts));
    }
    return ECH_OK;
}

ech_status ech_tokenizer_decode(const ech_tokenizer *const tok, const int32_t *const ids,
                                const size_t n, const unsigned flags, char **const ret_text,
                                size_t *const ret_len, ech_error *const err)
{
    ech_texts texts = { 0 };
    ech_buf out = { 0 };
    ech_tok_scratch *s = NULL;
    ech_status rc = ech_tok_scratch_take(tok, &s);
    if (rc == ECH_OK) rc = ech_buf_reserve(&out, 1);
    if (rc == ECH_OK) rc = ech_buf_reserve(&texts.bytes, 1);
    if (rc == ECH_OK) rc = collect(tok, ids, n, flags, &texts);
    if (rc == ECH_OK) rc = ech_decoder_run(&tok->decoder, s->re, &texts, &out);
    ech_tok_scratch_give(tok, s);
    ech_texts_fini(&texts);
    if (rc != ECH_OK) {
        ech_buf_fini(&out);
        return ech_fail(err, rc, "decoding ids: %s", ech_status_str(rc));
    }
    *ret_text = out.data;
    *ret_len = out.len;
    return ECH_OK;
}

/*
 * Decoders that strip the first space do so at the start of a text; an answer that goes on from a
 * prompt is not at the start, so the stream is told what came before.
 */
ech_status ech_detok_open(ech_detok **const ret_detok, const ech_tokenizer *const tok,
                          const unsigned flags, const int32_t *const prompt_ids,
                          const size_t n_prompt, ech_error *const err)
{
    ech_detok *d = calloc(1, sizeof *d);
    if (d == NULL) return ech_fail(err, ECH_ENOMEM, "opening a decoder: out of memory");
    d->tok = tok;
    d->flags = flags;
    d->is_first = true;
    for (size_t i = n_prompt; d->is_first && i-- > 0;) {
        /* A prompt of special tokens alone gives no text that this could continue. */
        d->is_first = ech_tokenizer_text(tok, prompt_ids[i]).ptr == NULL ||
                      ech_tokenizer_is_special(tok, prompt_ids[i]);
    }
    if (ech_buf_reserve(&d->text, 64) != ECH_OK || ech_buf_reserve(&d->bytes, 64) != ECH_OK) {
        ech_detok_close(&d);
        return ech_fail(err, ECH_ENOMEM, "opening a decoder: out of memory");
    }
    *ret_detok = d;
    return ECH_OK;
}

/* How many bytes at the end are a correct but unfinished beginning of a character: 0 … 3. */
static size_t unfinished(const ech_buf *const b)
{
    for (size_t n = 1; n <= 3 && n <= b->len; n++) {
        const char *const p = b->data + b->len - n;
        if (((uint8_t)*p & 0xC0) == 0x80) continue;
        uint32_t cp;
        return ech_utf8_decode(p, n, &cp) == -2 ? n : 0;
    }
    return 0;
}

/* Moves all but the last keep bytes to text. */
static ech_status give_out(ech_detok *const d, const size_t keep)
{
    const size_t n = d->bytes.len - keep;
    ech_buf_clear(&d->text);
    ECH_TRY(ech_append_lossy(&d->text, d->bytes.data, n));
    memmove(d->bytes.data, d->bytes.data + n, keep);
    d->bytes.len = keep;
    return ECH_OK;
}

/*
 * One token at a time: of what a decoder does across several, a stream has the part that doesn't
 * need the future. What was given out is never taken back.
 */
ech_status ech_detok_push(ech_detok *const d, const int32_t id, const char **const ret_text,
                          size_t *const ret_len, ech_error *const err)
{
    if (d->is_finished) return ech_fail(err, ECH_ESTATE, "decoding a stream: it has been finished");
    const ech_str text = ech_tokenizer_text(d->tok, id);
    ech_status rc = ECH_OK;
    if (text.ptr != NULL && !is_skipped(d->tok, id, d->flags)) {
        ech_tok_scratch *s = NULL;
        rc = ech_tok_scratch_take(d->tok, &s);
        if (rc == ECH_OK)
            rc = ech_decoder_step(&d->tok->decoder, s->re, text, d->is_first, &d->bytes);
        ech_tok_scratch_give(d->tok, s);
        d->is_first = false;
    }
    if (rc == ECH_OK) rc = give_out(d, unfinished(&d->bytes));
    if (rc != ECH_OK) return ech_fail(err, rc, "decoding a stream: %s", ech_status_str(rc));
    *ret_text = d->text.data;
    *ret_len = d->text.len;
    return ECH_OK;
}

size_t ech_detok_pending(const ech_detok *const d)
{
    return d->bytes.len;
}

/* A character that never ended comes out as U+FFFD: withheld bytes would be bytes lost. */
ech_status ech_detok_finish(ech_detok *const d, const char **const ret_text, size_t *const ret_len,
                            ech_error *const err)
{
    if (give_out(d, 0) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "decoding a stream: out of memory");
    d->is_finished = true;
    *ret_text = d->text.data;
    *ret_len = d->text.len;
    return ECH_OK;
}

void ech_detok_close(ech_detok **const detok)
{
    ech_detok *const d = *detok;
    if (d == NULL) return;
    ech_buf_fini(&d->bytes);
    ech_buf_fini(&d->text);
    free(d);
    *detok = NULL;
}
