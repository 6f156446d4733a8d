/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detokenising an answer and finding its stop strings. See output.h. Runs on the engine's thread.
 *
 * The stop string that is complete first wins; of two that end at the same byte, the longer one.
 * So the result depends on the text alone, not on how ids cut it.
 */
#include "src/engine/output.h"

#include "src/base/error.h"

ech_status ech_output_init(ech_output *o, const ech_output_options *options, ech_error *err)
{
    *o = (ech_output){ .options = *options };
    return ech_detok_open(&o->detok, options->tokenizer,
                          options->skip_special ? ECH_DECODE_SKIP_SPECIAL : 0, options->prompt_ids,
                          options->n_prompt, err);
}

void ech_output_fini(ech_output *o)
{
    ech_detok_close(&o->detok);
    ech_buf_fini(&o->held);
    ech_buf_fini(&o->text);
}

ech_status ech_output_echo(ech_output *o, const int32_t *ids, size_t n, ech_str *ret_text,
                           ech_error *err)
{
    ech_buf_clear(&o->text);
    for (size_t i = 0; i < n; i++) {
        const char *text;
        size_t len;
        ECH_TRY(ech_detok_push(o->detok, ids[i], &text, &len, err));
        if (ech_buf_append(&o->text, text, len) != ECH_OK)
            return ech_fail(err, ECH_ENOMEM, "echoing a prompt: out of memory");
    }
    *ret_text = ech_buf_view(&o->text);
    return ECH_OK;
}

/* The longest stop string that ends held[0..end), its index; n_stop: none. */
static size_t stop_that_ends(const ech_output *o, size_t end)
{
    size_t best = o->options.n_stop, best_len = 0;
    for (size_t i = 0; i < o->options.n_stop; i++) {
        const size_t len = strlen(o->options.stop[i]);
        if (len > end || len <= best_len) continue;
        if (memcmp(o->held.data + end - len, o->options.stop[i], len) != 0) continue;
        best = i;
        best_len = len;
    }
    return best;
}

/* Whether held[start..) is the beginning of a stop string. */
static bool may_become_stop(const ech_output *o, size_t start)
{
    const size_t len = o->held.len - start;
    for (size_t i = 0; i < o->options.n_stop; i++)
        if (strncmp(o->options.stop[i], o->held.data + start, len) == 0 &&
            strlen(o->options.stop[i]) > len)
            return true;
    return false;
}

/* Moves the first n bytes of what is held to the text that is given out. */
static ech_status give_out(ech_output *o, size_t n)
{
    if (n == 0) return ECH_OK;
    ECH_TRY(ech_buf_append(&o->text, o->held.data, n));
    memmove(o->held.data, o->held.data + n, o->held.len - n);
    o->held.len -= n;
    return ECH_OK;
}

static ech_status take_text(ech_output *o, const char *text, size_t len)
{
    if (len == 0) return ECH_OK;
    if (o->options.n_stop == 0) return ech_buf_append(&o->text, text, len);
    const size_t before = o->held.len;
    ECH_TRY(ech_buf_append(&o->held, text, len));
    for (size_t end = before + 1; end <= o->held.len; end++) {
        const size_t i = stop_that_ends(o, end);
        if (i == o->options.n_stop) continue;
        o->stopped = o->options.stop[i];
        const size_t cut = o->options.include_stop ? end : end - strlen(o->stopped);
        ECH_TRY(give_out(o, cut));
        ech_buf_clear(&o->held);
        return ECH_OK;
    }
    size_t keep = 0;
    while (keep < o->held.len && !may_become_stop(o, keep))
        keep++;
    return give_out(o, keep);
}

ech_status ech_output_push(ech_output *o, int32_t id, ech_str *ret_text, ech_error *err)
{
    ECH_ASSERT(o->stopped == NULL);
    const char *text;
    size_t len;
    ech_buf_clear(&o->text);
    ECH_TRY(ech_detok_push(o->detok, id, &text, &len, err));
    if (take_text(o, text, len) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "taking an answer's text: out of memory");
    *ret_text = ech_buf_view(&o->text);
    return ECH_OK;
}

ech_status ech_output_finish(ech_output *o, ech_str *ret_text, ech_error *err)
{
    const char *text;
    size_t len;
    ech_buf_clear(&o->text);
    *ret_text = (ech_str){ NULL, 0 };
    if (o->stopped != NULL) return ECH_OK;
    ECH_TRY(ech_detok_finish(o->detok, &text, &len, err));
    if (take_text(o, text, len) != ECH_OK ||
        (o->stopped == NULL && give_out(o, o->held.len) != ECH_OK))
        return ech_fail(err, ECH_ENOMEM, "taking an answer's text: out of memory");
    *ret_text = ech_buf_view(&o->text);
    return ECH_OK;
}
