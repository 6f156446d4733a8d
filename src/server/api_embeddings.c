/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/embeddings: texts or ids in, a vector for each out, as numbers or as base64 of
 * little-endian floats, which is what the official clients ask for. One request of the engine holds
 * all inputs, so they run as a batch.
 *
 * Read on a text thread, written on the loop thread. There is no stream: the dialect has a body
 * and nothing else, and `stream` is no field here. A model made for text gives embeddings as
 * well; whether they are good is the model's business, not checked here.
 */
#include <string.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/generate.h"
#include "src/server/prompt.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/*
 * RFC 4648, padded. Room for all of it is taken first, so that the pushes below can't fail
 * halfway.
 */
static ech_status put_base64(ech_buf *const b, const void *const data, const size_t len)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *const bytes = data;
    ECH_TRY(ech_buf_reserve(b, (len + 2) / 3 * 4));
    for (size_t i = 0; i < len; i += 3) {
        const size_t n = len - i < 3 ? len - i : 3;
        uint32_t word = 0;
        for (size_t k = 0; k < 3; k++) {
            word = word << 8 | (k < n ? bytes[i + k] : 0U);
        }
        for (size_t k = 0; k < 4; k++) {
            const char digit = DIGITS[word >> (18 - 6 * k) & 63];
            ECH_TRY(ech_buf_push(b, k <= n ? digit : '='));
        }
    }
    return ECH_OK;
}

static ech_status put_numbers(ech_buf *const b, const float *const numbers, const size_t n)
{
    ECH_TRY(ech_buf_push(b, '['));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(ech_json_put_float(b, numbers[i]));
    }
    return ech_buf_push(b, ']');
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "base64 carries the floats as they lie");

/* Vectors come as they are done; each is kept as the JSON that the body will hold. */
static ech_status on_embedding(ech_exchange *const x, ech_generation *const g, ech_choice *const c,
                               const ech_event *const ev)
{
    (void)x;
    ech_buf *const b = &c->text[0];
    if (!g->wants_base64) return put_numbers(b, ev->embedding, ev->n_embedding);
    ECH_TRY(ech_buf_push(b, '"'));
    ECH_TRY(put_base64(b, ev->embedding, ev->n_embedding * sizeof *ev->embedding));
    return ech_buf_push(b, '"');
}

/*
 * In the order of the inputs, whatever order they were done in. No completion_tokens: OpenAI's
 * usage has none here.
 */
static ech_status on_body(ech_exchange *const x, ech_generation *const g)
{
    ech_buf *const b = &x->reply;
    ECH_TRY(ech_buf_puts(b, "{\"object\":\"list\",\"data\":["));
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const ech_str vector = ech_buf_view(&g->choices[i].text[0]);
        ECH_TRY(ech_buf_printf(
            b, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i > 0 ? "," : "", i));
        ECH_TRY(ech_buf_append(b, vector.ptr, vector.len));
        ECH_TRY(ech_buf_push(b, '}'));
    }
    ECH_TRY(ech_buf_puts(b, "],\"model\":"));
    ECH_TRY(ech_json_put_cstring(b, g->model));
    return ech_buf_printf(b, ",\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}",
                          g->usage.prompt_tokens, g->usage.prompt_tokens);
}

static const ech_dialect EMBEDDINGS = { .embedding = on_embedding, .body = on_body };

/* Fewer than the model has is a cut and a scaling in the engine; more can't be made up. */
static bool take_dimensions(ech_exchange *const x, const ech_params *const p)
{
    if (p->dimensions <= x->server->info.embedding_size) return true;
    ech_reply_error(x, 400, "invalid_value", "dimensions",
                    "dimensions is %lld, this model's embeddings have %u", (long long)p->dimensions,
                    x->server->info.embedding_size);
    return false;
}

void ech_api_embeddings(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    if (!ech_generation_parse(x, g, body, ECH_IN_EMBEDDINGS) || !take_dimensions(x, &g->params) ||
        !ech_generate_options(x, g, &options) ||
        !ech_prompts_take(x, g->params.input, "input", &options)) {
        return;
    }
    const char *const format = g->params.encoding_format;
    g->wants_base64 = format != NULL && strcmp(format, "base64") == 0;
    options.embed = true;
    if (!ech_prompts_prepare(x, &g->params, &options)) return;
    options.dimensions = (uint32_t)g->params.dimensions;
    g->prompt_param = "input";
    ech_generate_start(x, &EMBEDDINGS, g, &options);
}
