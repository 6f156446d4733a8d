/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics: the engine's counters and the server's own in Prometheus text, under vLLM's names
 * with a prefix of our own (--metrics-prefix vllm makes existing dashboards work).
 */
#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/reply.h"
#include "src/server/state.h"

static ech_status put(ech_exchange *const x, const char *const name, const char *const type,
                      const char *const help, const double value)
{
    const char *const prefix = x->server->options.metrics_prefix;
    ech_buf *const b = &x->reply;
    return ech_buf_printf(b, "# HELP %s:%s %s\n# TYPE %s:%s %s\n%s:%s{model_name=\"%s\"} %.17g\n",
                          prefix, name, help, prefix, name, type, prefix, name, x->server->names[0],
                          value);
}

static ech_status put_all(ech_exchange *const x, const ech_engine_counters *const c)
{
    const double pages = c->pages_total > 0 ? (double)c->pages_used / c->pages_total : 0;
    ECH_TRY(put(x, "num_requests_running", "gauge", "Choices that run.", c->running));
    ECH_TRY(put(x, "num_requests_waiting", "gauge", "Choices that wait.", c->queued));
    ECH_TRY(put(x, "kv_cache_usage_perc", "gauge", "Share of KV pages in use, 0 to 1.", pages));
    ECH_TRY(
        put(x, "kv_pages_cached", "gauge", "KV pages kept for their content.", c->pages_cached));
    ECH_TRY(put(x, "num_preemptions_total", "counter", "Choices put back to the queue.",
                (double)c->preemptions));
    ECH_TRY(put(x, "prompt_tokens_total", "counter", "Prompt tokens of started choices.",
                (double)c->prompt_tokens));
    ECH_TRY(
        put(x, "generation_tokens_total", "counter", "Tokens drawn.", (double)c->generated_tokens));
    ECH_TRY(put(x, "prefix_cache_queries_total", "counter", "Prompt tokens looked up.",
                (double)c->prompt_tokens));
    ECH_TRY(put(x, "prefix_cache_hits_total", "counter", "Prompt tokens reused.",
                (double)c->cached_tokens));
    ECH_TRY(put(x, "steps_total", "counter", "Steps computed.", (double)c->steps));
    ECH_TRY(put(x, "step_seconds_total", "counter", "Time with a step in flight.",
                (double)c->step_ns_total * 1e-9));
    ECH_TRY(put(x, "host_seconds_total", "counter", "CPU time of the engine's thread.",
                (double)c->host_ns_total * 1e-9));
    ECH_TRY(put(x, "chip_replacements_total", "counter", "Chips that died and were replaced.",
                (double)c->chip_replacements));
    ECH_TRY(put(x, "http_requests_total", "counter", "Requests over HTTP.",
                (double)ech_load_relaxed(&x->server->http_requests)));
    return put(x, "http_errors_total", "counter", "Answers of 500 and above.",
               (double)ech_load_relaxed(&x->server->http_errors[5]));
}

void ech_api_metrics(ech_exchange *const x)
{
    ech_engine_counters c = { .struct_size = sizeof c };
    ech_engine_counters_get(x->server->engine, &c);
    if (put_all(x, &c) == ECH_OK) {
        ech_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8");
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}
