/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to ids: added tokens are taken out, what lies between is normalised, searched again for
 * tokens that match normalised text, cut into pieces, and encoded piece by piece into the list.
 *
 *     text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> model -> ids
 *
 * No piece is kept: each goes to the model as the pre-tokenizer finds it, so memory beside the ids
 * is that of the scratch, whatever the length of the text.
 *
 * Invariant: ids are appended in the order of the text, and a call that fails leaves the list as it
 * was. Bytes that are tagged as data never become a special token, however they are spelled
 * (ech_added_next() sees to it).
 *
 * Thread: any; a call takes a scratch of the tokenizer's for itself and gives it back. Left out:
 * offsets, truncation, padding.
 */
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_parts.h"

typedef struct encoder {
    const ech_tokenizer *t;
    ech_tok_scratch *s;
    ech_match_rule rule;
    ech_ids *ids;
    ech_error *err;
} encoder;

/* The piece is borrowed: the model is done with it on return. */
static ech_status put_piece(void *const to, const char *const piece, const size_t len)
{
    const encoder *const e = to;
    return ech_model_encode(&e->t->model, e->s->model, piece, len, e->ids, e->err);
}

/*
 * Normalised text without added tokens. is_start tells the pre-tokenizer whether the text begins
 * here: some put a blank before the first word alone.
 */
static ech_status put_text(const encoder *const e, const char *const text, const size_t len,
                           const bool is_start)
{
    return ech_pretok_run(&e->t->pretok, &e->s->pretok, e->s->re, text, len, is_start, put_piece,
                          (void *)(uintptr_t)e);
}

/*
 * A match's id. Where the token before has taken its space and this one begins with that space, no
 * text is left for it, and the reference drops it.
 */
static ech_status put_match(const encoder *const e, const ech_added_match *const match)
{
    return match->from < match->to ? ech_ids_append(e->ids, &match->token->id, 1) : ECH_OK;
}

/*
 * Normalised text in which tokens that are matched after normalising may stand. A text's start is
 * lost when a normalizer has taken it away, or when a token stands there.
 */
static ech_status put_normalised(const encoder *const e, const ech_norm_text *const text,
                                 const bool is_start)
{
    const bool at_start = is_start && !text->lost_start;
    if (!e->t->added.has_normal) return put_text(e, text->ptr, text->len, at_start);
    /* Tags of the normalised bytes, not of the source. */
    ech_match_rule rule = e->rule;
    rule.tags = text->tags;
    size_t done = 0, pos = 0;
    ech_added_match match;
    while (ech_added_next(&e->t->added, &e->t->added.normal, &rule, text->ptr, text->len, &pos,
                          done, &match)) {
        if (done < match.from)
            ECH_TRY(put_text(e, text->ptr + done, match.from - done, at_start && done == 0));
        ECH_TRY(put_match(e, &match));
        done = match.to;
    }
    return done < text->len ? put_text(e, text->ptr + done, text->len - done, at_start && done == 0)
                            : ECH_OK;
}

/*
 * text[from..to) of the source, free of tokens that are matched as written. Each stretch is
 * normalised by itself, as the library does: a prefix that the normalizer adds comes before each of
 * them, not once.
 */
static ech_status put_plain(const encoder *const e, const char *const text, const size_t from,
                            const size_t to)
{
    ech_norm_text n = { text + from, to - from, e->rule.tags != NULL ? e->rule.tags + from : NULL,
                        false };
    ECH_TRY(ech_normalizer_apply(&e->t->normalizer, &e->s->norm, e->s->re, &n, e->err));
    return put_normalised(e, &n, from == 0);
}

/*
 * done is where the last match ended, with the space it stripped; pos, which ech_added_next()
 * moves, is where the search goes on.
 */
static ech_status put_all(const encoder *const e, const char *const text, const size_t len)
{
    size_t done = 0, pos = 0;
    ech_added_match match;
    while (
        ech_added_next(&e->t->added, &e->t->added.plain, &e->rule, text, len, &pos, done, &match)) {
        if (done < match.from) ECH_TRY(put_plain(e, text, done, match.from));
        ECH_TRY(put_match(e, &match));
        done = match.to;
    }
    return done < len ? put_plain(e, text, done, len) : ECH_OK;
}

/*
 * Text fits the limits and is UTF-8. Before any work, so that what follows may count on both: sizes
 * fit, and decoding a character can't fail.
 */
static ech_status check_text(const char *const text, const size_t len, ech_error *const err)
{
    if (len > ECH_ENCODE_MAX_BYTES) {
        return ech_fail(err, ECH_ELIMIT, "encoding a text: %zu bytes, the limit is %zu", len,
                        ECH_ENCODE_MAX_BYTES);
    }
    size_t bad = 0;
    if (ech_utf8_valid(text, len, &bad)) return ECH_OK;
    return ech_fail_at(err, ECH_EFORMAT, 0, 0, (int64_t)bad,
                       "encoding a text: byte %zu is not UTF-8", bad);
}

/* Whether the ids from before on begin with the one that the post-processor would put first. */
static bool has_bos(const ech_tokenizer *const t, const ech_ids *const ids, const size_t before)
{
    return t->n_before > 0 && ids->n > before && ids->data[before] == t->before[0];
}

/*
 * Puts the post-processor's ids around those from before on. Moved into place afterwards, since
 * only then is it known whether the text brings its own: templates often write the first token, and
 * two of them confuse a model.
 */
static ech_status add_around(const ech_tokenizer *const t, const unsigned flags,
                             const size_t before, ech_ids *const ids)
{
    if ((flags & ECH_ENCODE_ADD) == 0) return ECH_OK;
    if (t->n_before > 0 && !((flags & ECH_ENCODE_ONE_BOS) && has_bos(t, ids, before))) {
        ECH_TRY(ech_ids_append(ids, t->before, t->n_before)); /* makes room */
        memmove(ids->data + before + t->n_before, ids->data + before,
                (ids->n - t->n_before - before) * sizeof *ids->data);
        memcpy(ids->data + before, t->before, t->n_before * sizeof *ids->data);
    }
    return ech_ids_append(ids, t->after, t->n_after);
}

/*
 * A failure deep inside has no text of its own where it is memory or a pattern's limit. The detail
 * is filled in by whoever failed first; the caller's err is touched once, at the end.
 */
static ech_status explain(const ech_status rc, const ech_error *const detail, ech_error *const err)
{
    if (rc == ECH_OK) return rc;
    if (detail->code == rc) {
        if (err != NULL) *err = *detail;
        return rc;
    }
    return ech_fail(err, rc, "encoding a text: %s",
                    rc == ECH_ELIMIT ? "the tokenizer's pattern takes too long on it"
                                     : ech_status_str(rc));
}

/* All or nothing: after an error the list is as long as it was. */
static ech_status encode(const ech_tokenizer *const t, const char *const text, const size_t len,
                         const ech_match_rule rule, const unsigned flags, ech_ids *const ids,
                         ech_error *const err)
{
    ECH_TRY(check_text(text, len, err));
    ech_error detail = { 0 };
    encoder e = { .t = t, .rule = rule, .ids = ids, .err = &detail };
    const size_t before = ids->n;
    ech_status rc = ech_tok_scratch_take(t, &e.s);
    if (rc == ECH_OK) rc = put_all(&e, text, len);
    if (rc == ECH_OK) rc = add_around(t, flags, before, ids);
    ech_tok_scratch_give(t, e.s);
    if (rc != ECH_OK) ids->n = before;
    return explain(rc, &detail, err);
}

/* All bytes count as the caller's own: special tokens are found only if the flags ask for it. */
ech_status ech_tokenizer_encode(const ech_tokenizer *const tok, const char *const text,
                                const size_t len, const unsigned flags, ech_ids *const ids,
                                ech_error *const err)
{
    const ech_match_rule rule = { .parse_special = (flags & ECH_ENCODE_SPECIAL) != 0 };
    return encode(tok, text, len, rule, flags, ids, err);
}

/*
 * One tag a byte: 1 where it is data. Bytes and not spans, because normalizers move text about and
 * carry the tags along. What is not the template's is data, whoever it came from. The spans must
 * cover the text exactly.
 */
static ech_status tag_bytes(const ech_spans *const spans, ech_buf *const tags, ech_error *const err)
{
    size_t at = 0;
    if (ech_buf_reserve(tags, spans->len) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "encoding a text: out of memory");
    for (size_t i = 0; i < spans->n_spans; i++) {
        const ech_span span = spans->spans[i];
        if (span.len > spans->len - at)
            return ech_fail(err, ECH_EINVAL, "encoding spans: they are longer than the text");
        memset(tags->data + at, span.origin == ECH_ORIGIN_TEMPLATE ? 0 : 1, span.len);
        at += span.len;
    }
    if (at != spans->len)
        return ech_fail(err, ECH_EINVAL, "encoding spans: they are shorter than the text");
    return ECH_OK;
}

/*
 * Length first: the tags are as long as the text. Special tokens may come only from bytes of the
 * template, and from the markers that are named.
 */
ech_status ech_tokenizer_encode_spans(const ech_tokenizer *const tok, const ech_spans *const spans,
                                      const unsigned flags, ech_ids *const ids,
                                      ech_error *const err)
{
    if (spans->len > ECH_ENCODE_MAX_BYTES) return check_text(spans->text, spans->len, err);
    ech_buf tags = { 0 };
    ech_status rc = tag_bytes(spans, &tags, err);
    if (rc == ECH_OK) {
        const ech_match_rule rule = {
            .parse_special = true,
            .tags = (const uint8_t *)tags.data,
            .marker_ids = spans->marker_ids,
            .n_markers = spans->n_markers,
        };
        rc = encode(tok, spans->text, spans->len, rule, flags, ids, err);
    }
    ech_buf_fini(&tags);
    return rc;
}
