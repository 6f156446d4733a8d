/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server is and how it is: health, models, version, props. Inline on the loop thread: they
 * answer whatever the engine computes.
 *
 * /health is what a load balancer asks: 503 takes the server out of rotation without killing it.
 * /health/live is what a supervisor asks: it is 200 as long as the process can answer at all,
 * also while weights are filled and while it drains.
 */
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/front.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/* The end of a handler whose body was being written. */
static void finish(ech_exchange *const x, const ech_status rc, const int status)
{
    if (rc == ECH_OK) {
        ech_reply_json(x, status);
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}

/*
 * Draining wins over ready: the engine still computes then, but no new request would be taken.
 * Loading and draining say so in a body of their own, since both are normal; only a load that
 * failed is an error.
 */
void ech_api_health(ech_exchange *const x)
{
    ech_load_progress progress = { 0 };
    ech_error err;
    const ech_status rc = ech_engine_wait_ready(x->server->engine, 0, &progress, &err);
    if (ech_load_acquire(&x->server->draining) != 0) {
        finish(x, ech_buf_puts(&x->reply, "{\"status\":\"draining\"}"), 503);
    } else if (rc == ECH_OK) {
        finish(x, ech_buf_puts(&x->reply, "{\"status\":\"ok\"}"), 200);
    } else if (rc == ECH_ETIMEOUT) {
        const double part = progress.total > 0 ? (double)progress.done / (double)progress.total : 0;
        finish(x, ech_buf_printf(&x->reply, "{\"status\":\"loading\",\"progress\":%.3f}", part),
               503);
    } else {
        ech_reply_error(x, 503, "load_failed", NULL, "%s", err.text);
    }
}

/* It looks at nothing: whatever it looked at could be the reason why a live process is killed. */
void ech_api_live(ech_exchange *const x)
{
    finish(x, ech_buf_puts(&x->reply, "{\"status\":\"live\"}"), 200);
}

void ech_api_version(ech_exchange *const x)
{
    finish(x, ech_buf_puts(&x->reply, "{\"version\":\"" ECH_VERSION "\"}"), 200);
}

/*
 * OpenAI's four keys, and beside them those under which vLLM (max_model_len) and llama-server
 * (meta) tell the size of a context: clients look for one of them to fill their prompts.
 */
static ech_status put_model(const ech_server *const s, const char *const name, ech_buf *const b)
{
    ECH_TRY(ech_buf_puts(b, "{\"id\":"));
    ECH_TRY(ech_json_put_cstring(b, name));
    ECH_TRY(ech_buf_printf(
        b,
        ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"echelon\",\"max_model_len\":%u,"
        "\"meta\":{\"architecture\":",
        (long long)s->created_s, s->info.max_seq_len));
    ECH_TRY(ech_json_put_cstring(b, s->info.architecture));
    return ech_buf_printf(
        b, ",\"n_vocab\":%u,\"n_embd\":%u,\"n_ctx\":%u,\"n_ctx_train\":%u,\"size\":%llu}}",
        s->info.vocab_size, s->info.embedding_size, s->info.max_seq_len, s->info.model_max_seq_len,
        (unsigned long long)s->info.weights_bytes);
}

static ech_status put_models(const ech_server *const s, ech_buf *const b)
{
    ECH_TRY(ech_buf_puts(b, "{\"object\":\"list\",\"data\":["));
    for (size_t i = 0; i < s->n_names; i++) {
        if (i > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(put_model(s, s->names[i], b));
    }
    return ech_buf_puts(b, "]}");
}

void ech_api_models(ech_exchange *const x)
{
    finish(x, put_models(x->server, &x->reply), 200);
}

/* Every served name is a model of its own to a client, though all are the same one here. */
void ech_api_model(ech_exchange *const x)
{
    for (size_t i = 0; i < x->server->n_names; i++) {
        if (strcmp(x->server->names[i], x->tail) == 0) {
            finish(x, put_model(x->server, x->tail, &x->reply), 200);
            return;
        }
    }
    ech_reply_error(x, 404, "model_not_found", "model",
                    "the model '%.100s' is not served here; /v1/models lists what is", x->tail);
}

/*
 * What an operator asks a running server: the numbers that were chosen, also where no option
 * gave them. Those under `limits` that no option sets (json_depth, prompts, stop_strings, n) are
 * the bounds of the parsers; a value here that differs from the parser's would be a lie to
 * clients.
 */
static ech_status put_props(const ech_server *const s, ech_buf *const b)
{
    const ech_server_options *const o = &s->options;
    ECH_TRY(ech_buf_puts(b, "{\"version\":\"" ECH_VERSION "\",\"model\":"));
    ECH_TRY(ech_json_put_cstring(b, s->names[0]));
    ECH_TRY(ech_buf_printf(
        b,
        ",\"max_seq_len\":%u,\"max_running\":%u,\"prefill_chunk\":%u,\"threads\":%u,"
        "\"page_tokens\":%u,\"pages\":%u,\"page_bytes\":%llu,\"weights_bytes\":%llu",
        s->info.max_seq_len, s->info.max_running, s->info.prefill_chunk, s->info.threads,
        s->info.page_tokens, s->info.n_pages, (unsigned long long)s->info.page_bytes,
        (unsigned long long)s->info.weights_bytes));
    ECH_TRY(ech_buf_printf(b, ",\"embedding_size\":%u,\"pooling\":\"%s\"", s->info.embedding_size,
                           ech_pooling_name(s->info.pooling)));
    ECH_TRY(ech_buf_puts(b, ",\"plan\":"));
    ECH_TRY(ech_json_put_cstring(b, s->info.plan != NULL ? s->info.plan : ""));
    return ech_buf_printf(
        b,
        ",\"limits\":{\"max_body\":%zu,\"max_header_bytes\":%zu,\"max_connections\":%u,\"max_"
        "tokens\":%u,\"json_depth\":%d,"
        "\"prompts\":%d,\"stop_strings\":64,\"n\":128,\"ping_ms\":%u,\"write_timeout_ms\":%u,"
        "\"request_timeout_s\":%u,\"idle_timeout_s\":%u,\"header_timeout_s\":%u,"
        "\"body_bytes_per_s\":%d}}",
        o->max_body, o->max_header_bytes, o->max_connections, o->max_tokens, 512, 4096, o->ping_ms,
        o->write_timeout_ms, o->request_timeout_s, o->idle_timeout_s, o->header_timeout_s,
        ECH_FRONT_MIN_PACE);
}

void ech_api_props(ech_exchange *const x)
{
    finish(x, put_props(x->server, &x->reply), 200);
}
