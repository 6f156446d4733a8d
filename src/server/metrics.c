/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics: the engine's counters and the server's own in Prometheus text, under vLLM's names
 * with a prefix of our own (--metrics-prefix vllm makes existing dashboards work).
 *
 * Inline on the loop thread. Nothing is computed here that isn't counted where it happens; the
 * page is a snapshot without a lock over all of it, so numbers that belong together may differ
 * by a step. Left out: anything of a single request, and labels that clients could make (a name
 * of a model, a path), which would grow without bound.
 */
#include <stddef.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/* What each line carries in its braces: model_name="…", with '\\', '"' and line ends escaped. */
static ech_status put_label(ech_buf *const b, const char *const name, const char *value)
{
    ECH_TRY(ech_buf_printf(b, "%s=\"", name));
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            ECH_TRY(ech_buf_puts(b, "\\n"));
            continue;
        }
        if (*value == '"' || *value == '\\') ECH_TRY(ech_buf_push(b, '\\'));
        ECH_TRY(ech_buf_push(b, *value));
    }
    return ech_buf_push(b, '"');
}

/* Where a page is written to, and what every line of it has in common. */
typedef struct page {
    ech_buf *b;
    const char *prefix, *labels;
} page;

/* HELP and TYPE come once before all lines of a name, as the format wants it. */
static ech_status put_family(const page *const p, const char *const name, const char *const type,
                             const char *const help)
{
    return ech_buf_printf(p->b, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", p->prefix, name, help,
                          p->prefix, name, type);
}

/*
 * 17 digits give a double back exactly; counters beyond 2^53 would round, which no server
 * reaches.
 */
static ech_status put(const page *const p, const char *const name, const char *const type,
                      const char *const help, const double value)
{
    ECH_TRY(put_family(p, name, type, help));
    return ech_buf_printf(p->b, "%s:%s{%s} %.17g\n", p->prefix, name, p->labels, value);
}

/* One line of a name's use; kind is a further label, NULL for none. */
static ech_status put_use(const page *const p, const char *const family, const ech_quota *const q,
                          const char *const kind, const uint64_t value)
{
    ECH_TRY(ech_buf_printf(p->b, "%s:%s{%s,", p->prefix, family, p->labels));
    ECH_TRY(put_label(p->b, "key", q->name));
    if (kind != NULL) ECH_TRY(ech_buf_printf(p->b, ",kind=\"%s\"", kind));
    return ech_buf_printf(p->b, "} %llu\n", (unsigned long long)value);
}

/*
 * A family after the other, not a key after the other: Prometheus wants the lines of a name
 * together. A key that a reload has taken away stays, since counters must not vanish.
 */
static ech_status put_uses(const page *const p, const ech_quota *const first)
{
    ECH_TRY(put_family(p, "key_requests_total", "counter", "Requests of each API key."));
    for (const ech_quota *q = first; q != NULL; q = q->next) {
        ECH_TRY(put_use(p, "key_requests_total", q, NULL, q->n_requests));
    }
    ECH_TRY(put_family(p, "key_refused_total", "counter", "Requests that a key's limits refused."));
    for (const ech_quota *q = first; q != NULL; q = q->next) {
        ECH_TRY(put_use(p, "key_refused_total", q, NULL, q->n_refused));
    }
    ECH_TRY(put_family(p, "key_tokens_total", "counter", "Tokens of each API key."));
    for (const ech_quota *q = first; q != NULL; q = q->next) {
        ECH_TRY(put_use(p, "key_tokens_total", q, "prompt", q->n_prompt_tokens));
        ECH_TRY(put_use(p, "key_tokens_total", q, "generation", q->n_completion_tokens));
    }
    return ECH_OK;
}

/*
 * The lock guards the numbers and the list; it is held while a line for each name is written,
 * and requests that take quota wait for it.
 */
static ech_status put_keys(const page *const p, ech_keys *const k)
{
    ech_status rc = ECH_OK;
    (void)pthread_mutex_lock(&k->lock);
    if (k->quotas != NULL) rc = put_uses(p, k->quotas);
    (void)pthread_mutex_unlock(&k->lock);
    return rc;
}

/* vLLM's buckets: 1, 8, 16 up to 16384, which are some of the engine's. */
static ech_status put_iterations(const page *const p, const ech_engine_counters *const c)
{
    static const char NAME[] = "iteration_tokens_total";
    uint64_t n = 0;
    ECH_TRY(put_family(p, NAME, "histogram", "Tokens computed in a step."));
    for (size_t k = 0; k + 1 < ECH_STEP_SIZES; k++) {
        n += c->steps_of[k];
        if (k == 1 || k == 2) continue;
        ECH_TRY(ech_buf_printf(p->b, "%s:%s_bucket{%s,le=\"%u\"} %llu\n", p->prefix, NAME,
                               p->labels, 1U << k, (unsigned long long)n));
    }
    return ech_buf_printf(
        p->b, "%s:%s_bucket{%s,le=\"+Inf\"} %llu\n%s:%s_sum{%s} %llu\n%s:%s_count{%s} %llu\n",
        p->prefix, NAME, p->labels, (unsigned long long)c->steps, p->prefix, NAME, p->labels,
        (unsigned long long)c->step_rows_total, p->prefix, NAME, p->labels,
        (unsigned long long)c->steps);
}

/*
 * Hits and queries of the prefix cache are counted in tokens: their quotient is the share of
 * prompts that wasn't computed.
 */
static ech_status put_engine(const page *const x, const ech_engine_counters *const c)
{
    const double pages = c->pages_total > 0 ? (double)c->pages_used / c->pages_total : 0;
    ECH_TRY(put(x, "num_requests_running", "gauge", "Choices that run.", c->running));
    ECH_TRY(put(x, "num_requests_waiting", "gauge", "Choices that wait.", c->queued));
    ECH_TRY(put(x, "kv_cache_usage_perc", "gauge", "Share of KV pages in use, 0 to 1.", pages));
    if (strcmp(x->prefix, "vllm") == 0) /* its older name, for dashboards that are there */
        ECH_TRY(put(x, "gpu_cache_usage_perc", "gauge", "The same, as it was called.", pages));
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
    return put(x, "chip_replacements_total", "counter", "Chips that died and were replaced.",
               (double)c->chip_replacements);
}

/*
 * One family: a line for each ring of the runtime, its number at an offset of the struct. The
 * offset names one of the struct's 64-bit numbers, so that three families share the loop.
 */
static ech_status put_ring_family(const page *const p, const char *const name,
                                  const char *const help, const ech_engine_ring *const rings,
                                  const size_t n, const size_t offset)
{
    ECH_TRY(put_family(p, name, "gauge", help));
    for (size_t i = 0; i < n; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&rings[i] + offset, sizeof value);
        ECH_TRY(ech_buf_printf(p->b, "%s:%s{%s,ring=\"%s\",depth=\"%u\"} %llu\n", p->prefix, name,
                               p->labels, rings[i].name, rings[i].depth,
                               (unsigned long long)value));
    }
    return ECH_OK;
}

/* What bounds the graph of a step: see docs/internals/rings.md. */
static ech_status put_rings(const page *const p, ech_engine *const e)
{
    ech_engine_ring rings[16];
    size_t n = ech_engine_rings_get(e, rings, 16);
    if (n > 16) n = 16;
    ECH_TRY(put_ring_family(p, "ring_capacity", "Size of a ring: bytes, slots or entries.", rings,
                            n, offsetof(ech_engine_ring, capacity)));
    ECH_TRY(put_ring_family(p, "ring_used", "What is taken of it now.", rings, n,
                            offsetof(ech_engine_ring, used)));
    return put_ring_family(p, "ring_high_water", "The most that was ever taken.", rings, n,
                           offsetof(ech_engine_ring, high_water));
}

static ech_status put_all(const page *const p, ech_server *const s)
{
    ech_engine_counters c = { .struct_size = sizeof c };
    ech_engine_counters_get(s->engine, &c);
    ECH_TRY(put_engine(p, &c));
    ECH_TRY(put_iterations(p, &c));
    ECH_TRY(ech_observed_put(p->b, &s->observed, p->prefix, p->labels));
    ECH_TRY(put_keys(p, &s->keys));
    ECH_TRY(put_rings(p, s->engine));
    ECH_TRY(put(p, "http_connections", "gauge", "Clients that are connected.",
                ech_http_connections(s->http)));
    ECH_TRY(put(p, "http_requests_total", "counter", "Requests over HTTP.",
                (double)ech_load_relaxed(&s->http_requests)));
    return put(p, "http_errors_total", "counter", "Answers of 500 and above.",
               (double)ech_load_relaxed(&s->http_errors[5]));
}

/* The content type names the version of the text format; scrapers pick their parser by it. */
void ech_api_metrics(ech_exchange *const x)
{
    ech_buf labels = { 0 };
    ech_status rc = put_label(&labels, "model_name", x->server->names[0]);
    const page p = { &x->reply, x->server->options.metrics_prefix, labels.data };
    if (rc == ECH_OK) rc = put_all(&p, x->server);
    ech_buf_fini(&labels);
    if (rc == ECH_OK) {
        ech_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8");
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}
