/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a prompt is found in the prefix cache only so far. The tree belongs to the engine's thread,
 * so the lookup is made there, between two steps; the words are put together by the asking thread.
 */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/engine/engine_int.h"

enum { CONTEXT_IDS = 12 }; /* shown before the place */

typedef struct question {
    ech_engine *e;
    const ech_ids *ids;
    ech_str salt;
    uint32_t *pages;
    ech_cache_explanation answer;
} question;

static void look_up(void *arg)
{
    question *const q = arg;
    ech_kv *const kv = &q->e->kv;
    ech_cache_explanation *const x = &q->answer;
    uint32_t salt;
    *x = (ech_cache_explanation){ .n_tokens = (uint32_t)q->ids->n,
                                  .prompt_id = -1,
                                  .cached_id = -1 };
    if (q->e->sched.no_cache || !ech_kv_salt_find(kv, q->salt, &salt)) return;
    ech_kv_hit hit;
    ech_kv_find(kv, salt, q->ids->data, q->ids->n, q->pages, &hit);
    const uint32_t same = hit.n_full * ECH_KV_TOKENS + hit.partial_ids;
    x->cached_tokens = same < x->n_tokens ? same : x->n_tokens - 1; /* the last one is computed */
    if (same < x->n_tokens) x->prompt_id = q->ids->data[same];
    if (hit.partial_page == ECH_KV_NONE) return;
    uint32_t n;
    const int32_t *const cached = ech_kv_node_ids(kv, hit.partial_page, &n);
    if (hit.partial_ids < n && same < x->n_tokens) {
        x->has_divergence = true;
        x->cached_id = cached[hit.partial_ids];
    }
}

static void append_id(ech_buf *b, const ech_tokenizer *t, int32_t id)
{
    size_t len;
    const char *const bytes = ech_tokenizer_token_bytes(t, id, &len);
    if (bytes != NULL) (void)ech_buf_append(b, bytes, len);
}

/* "… the old [king] was / [queen] in the cache", as far as it fits. */
static void describe(const question *q, ech_cache_explanation *x)
{
    const ech_tokenizer *const t = q->e->tokenizer;
    ech_buf b = { 0 };
    const size_t place = x->cached_tokens, n = q->ids->n;
    for (size_t i = place > CONTEXT_IDS ? place - CONTEXT_IDS : 0; i < place && i < n; i++)
        append_id(&b, t, q->ids->data[i]);
    if (x->prompt_id >= 0) {
        (void)ech_buf_puts(&b, "[");
        append_id(&b, t, x->prompt_id);
        (void)ech_buf_puts(&b, "]");
    }
    if (x->has_divergence) {
        (void)ech_buf_puts(&b, "[");
        append_id(&b, t, x->cached_id);
        (void)ech_buf_puts(&b, "]");
    }
    const int len = snprintf(x->around, sizeof x->around, "%s", b.data != NULL ? b.data : "");
    size_t bad;
    if (len > 0 && !ech_utf8_valid(x->around, strlen(x->around), &bad))
        x->around[bad] = '\0'; /* cut within a character, or a token that ends in one */
    ech_buf_fini(&b);
}

static ech_status read_prompt(const ech_engine *e, const ech_prompt *prompt, ech_ids *ids,
                              ech_error *err)
{
    if (prompt->ids != NULL)
        ECH_TRY(ech_ids_append(ids, prompt->ids, prompt->n_ids));
    else
        ECH_TRY(ech_tokenizer_encode(e->tokenizer, prompt->text, prompt->text_len,
                                     ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS, ids,
                                     err));
    return ids->n > 0 ? ECH_OK : ech_fail(err, ECH_EINVAL, "explaining a prompt: it is empty");
}

static ech_status check_ready(ech_engine *e, ech_error *err)
{
    const ech_status rc = ech_engine_wait_ready(e, 0, NULL, NULL);
    return rc == ECH_OK ? ECH_OK
                        : ech_fail(err, ECH_ESTATE, "explaining a prompt: the engine is not ready");
}

ech_status ech_engine_cache_explain(ech_engine *e, const ech_prompt *prompt, const char *salt,
                                    ech_cache_explanation *ret_explanation, ech_error *err)
{
    ech_ids ids = { 0 };
    question q = { .e = e, .ids = &ids, .salt = ech_str_from(salt != NULL ? salt : "") };
    ech_status rc = read_prompt(e, prompt, &ids, err);
    if (rc == ECH_OK) rc = check_ready(e, err);
    if (rc == ECH_OK) {
        q.pages = malloc((ids.n / ECH_KV_TOKENS + 1) * sizeof *q.pages);
        rc = q.pages != NULL ? ech_inbox_call_and_wait(e->inbox, look_up, &q, err)
                             : ech_fail(err, ECH_ENOMEM, "explaining a prompt: out of memory");
    }
    if (rc == ECH_OK) {
        *ret_explanation = q.answer;
        describe(&q, ret_explanation);
    }
    free(q.pages);
    ech_ids_fini(&ids);
    return rc;
}
