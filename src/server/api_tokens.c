/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /tokenize, /detokenize, /apply-template: text to ids and back, while the model may still
 * be loading.
 *
 * Text threads. Nothing is generated and no quota is taken: only the tokenizer and the template
 * are used, which are there as soon as the server is. Field names of llama-server and of vLLM
 * are both accepted and both answered, since clients of either ask here.
 */
#include <stdlib.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/chat_prompt.h"
#include "src/server/fields.h"
#include "src/server/prompt.h"
#include "src/server/reply.h"
#include "src/server/state.h"

static ech_status put_list(const int32_t *const ids, const size_t n, ech_buf *const b)
{
    for (size_t i = 0; i < n; i++) {
        ECH_TRY(ech_buf_printf(b, "%s%d", i > 0 ? "," : "", ids[i]));
    }
    return ech_buf_puts(b, "]}");
}

static ech_status put_ids(const ech_exchange *const x, const ech_ids *const ids, ech_buf *const b)
{
    ECH_TRY(ech_buf_printf(b, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids->n,
                           x->server->info.max_seq_len));
    return put_list(ids->data, ids->n, b);
}

/*
 * Ends a handler whose body was being written; the only thing that can go wrong by then is
 * memory.
 */
static void finish(ech_exchange *const x, const ech_status rc)
{
    if (rc == ECH_OK) {
        ech_reply_json(x, 200);
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}

/*
 * What is counted here must be what a completion with the same text would compute: the defaults
 * (special tokens parsed, one BOS) are those of /v1/completions.
 */
void ech_api_tokenize(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_params p = { .parse_special = true, .add_special = true };
    if (body == NULL || !ech_fields_parse(x, body, ECH_IN_TOKENIZE, &p)) return;
    const char *const name = p.prompt != NULL || (p.content == NULL && p.text == NULL) ? "prompt"
                             : p.content != NULL                                       ? "content"
                                                                                       : "text";
    const json_t *const text = p.prompt != NULL ? p.prompt : p.content != NULL ? p.content : p.text;
    if (!json_is_string(text)) {
        (void)ech_reply_refuse(x, name, "must be a string");
        return;
    }
    const unsigned flags = (p.parse_special ? ECH_ENCODE_SPECIAL : 0U) |
                           (p.add_special ? ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS : 0U);
    ech_ids ids = { 0 };
    ech_error err;
    if (ech_tokenizer_encode(ech_engine_tokenizer(x->server->engine), json_string_value(text),
                             json_string_length(text), flags, &ids, &err) != ECH_OK) {
        ech_reply_failure(x, &err);
    } else {
        finish(x, put_ids(x, &ids, &x->reply));
    }
    ech_ids_fini(&ids);
}

static ech_status put_text(const char *const text, const size_t len, ech_buf *const b)
{
    /* llama-server calls it content, vLLM prompt. */
    ECH_TRY(ech_buf_puts(b, "{\"content\":"));
    ECH_TRY(ech_json_put_string(b, text, len));
    ECH_TRY(ech_buf_puts(b, ",\"prompt\":"));
    ECH_TRY(ech_json_put_string(b, text, len));
    return ech_buf_push(b, '}');
}

/*
 * The ids take the way of a prompt of ids, so that the same check refuses those the model
 * doesn't have. An empty list is a text too, the empty one, though no prompt.
 */
void ech_api_detokenize(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_params p = { 0 };
    if (body == NULL || !ech_fields_parse(x, body, ECH_IN_DETOKENIZE, &p)) return;
    const json_t *const first = json_array_get(p.tokens, 0);
    if (!json_is_array(p.tokens) || (first != NULL && !json_is_number(first))) {
        ech_reply_error(x, 400, "invalid_value", "tokens", "tokens must be a list of token ids");
        return;
    }
    ech_request_options taken = { 0 };
    const bool is_empty = json_array_size(p.tokens) == 0;
    if (!is_empty && !ech_prompts_take(x, p.tokens, "tokens", &taken)) return;
    char *text = NULL;
    size_t len = 0;
    ech_error err;
    if (!is_empty &&
        ech_tokenizer_decode(ech_engine_tokenizer(x->server->engine), taken.prompts[0].ids,
                             taken.prompts[0].n_ids, 0, &text, &len, &err) != ECH_OK) {
        ech_reply_failure(x, &err);
        return;
    }
    finish(x, put_text(text, len, &x->reply));
    free(text);
}

/*
 * The text and its ids: a client that caches prompts wants both, and the ids aren't those of the
 * text alone, since user text never becomes control tokens.
 */
static ech_status put_prompt(const ech_str text, const ech_prompt *const p, ech_buf *const b)
{
    ECH_TRY(ech_buf_puts(b, "{\"prompt\":"));
    ECH_TRY(ech_json_put_string(b, text.ptr, text.len));
    ECH_TRY(ech_buf_printf(b, ",\"count\":%zu,\"token_ids\":[", p->n_ids));
    return put_list(p->ids, p->n_ids, b);
}

/*
 * Takes what /chat/completions takes. keeps_text is set before anything is read: the prompt's
 * text is thrown away otherwise, once its ids are there.
 */
void ech_api_apply_template(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    g->keeps_text = true;
    if (!ech_generation_parse(x, g, body, ECH_IN_CHAT) || !ech_generate_options(x, g, &options) ||
        !ech_chat_take(x, g, &options))
        return;
    finish(x, put_prompt(g->prompt_text, &options.prompts[0], &x->reply));
}
