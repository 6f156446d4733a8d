/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms; see observe.h. The loop thread observes, one relaxed addition per value, and prints:
 * buckets are summed up only then. Bucket bounds are vLLM's, so that its dashboards fit.
 *
 * Invariant: a counter only grows, and every choice that ran ends up in `finished` once. Relaxed
 * additions are enough: a reader may see a sum without its count for a moment, which the next
 * scrape mends. Times are the engine's events' own, not those of reading them: a slow client
 * doesn't make the engine look slow.
 */
#include "src/server/observe.h"

#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/server/generate.h"
#include "src/server/state.h"

/* Upper bounds, ascending; 0 ends the list. */
static const double BUCKETS_TTFT[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                       0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                       20,    40,    80,   160,  640,  2560, 0 };
static const double BUCKETS_GAP[] = { 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80,  0 };
static const double BUCKETS_REQUEST[] = { 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,   20,
                                          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680, 0 };
static const double BUCKETS_TOKENS[] = { 1,     2,      5,      10,     20,      50,    100,
                                         200,   500,    1000,   2000,   5000,    10000, 20000,
                                         50000, 100000, 200000, 500000, 1000000, 0 };
static const double BUCKETS_COUNTS[] = { 1, 2, 5, 10, 20, 0 };

typedef struct family {
    const char *name, *help;
    const double *bounds;
    bool is_time;
} family;

#define IS_TIME_TTFT    true
#define IS_TIME_GAP     true
#define IS_TIME_REQUEST true
#define IS_TIME_TOKENS  false
#define IS_TIME_COUNTS  false

static const family FAMILIES[] = {
#define X(id, name, buckets, help) { name, help, BUCKETS_##buckets, IS_TIME_##buckets },
    ECH_HISTOGRAM_MAP(X)
#undef X
};

_Static_assert(sizeof BUCKETS_TTFT / sizeof(double) <= ECH_HISTOGRAM_BUCKETS + 1, "a list fits");
_Static_assert(sizeof BUCKETS_TOKENS / sizeof(double) <= ECH_HISTOGRAM_BUCKETS + 1, "a list fits");

/* Kept in nanoseconds and whole tokens, so that additions are exact; Prometheus wants seconds. */
static double shown(const family *const f, const uint64_t value)
{
    return f->is_time ? (double)value * 1e-9 : (double)value;
}

/* A walk over two dozen bounds. A negative time (clocks of two threads) counts as 0. */
static void observe(ech_observed *const o, const ech_histogram_id id, const int64_t value)
{
    const family *const f = &FAMILIES[id];
    ech_histogram *const h = &o->histograms[id];
    const uint64_t v = value > 0 ? (uint64_t)value : 0;
    size_t i = 0;
    while (f->bounds[i] != 0 && shown(f, v) > f->bounds[i]) {
        i++;
    }
    if (f->bounds[i] == 0) i = ECH_HISTOGRAM_BUCKETS;
    (void)ech_fetch_add_relaxed(&h->counts[i], 1);
    (void)ech_fetch_add_relaxed(&h->sum, v);
}

/* ---- what happens --------------------------------------------------------------------------- */

/* Only requests that the engine took: what is refused has no tokens to count. */
void ech_observe_request(ech_exchange *const x, const ech_generation *const g,
                         const uint32_t max_tokens)
{
    ech_observed *const o = &x->server->observed;
    observe(o, ECH_HISTOGRAM_N, g->params.n);
    observe(o, ECH_HISTOGRAM_MAX_TOKENS, max_tokens);
}

/* Gaps are of a choice, not of the request: choices of n > 1 run side by side. */
void ech_observe_token(ech_exchange *const x, ech_choice *const c, const ech_event *const ev)
{
    ech_observed *const o = &x->server->observed;
    if (c->last_token_ns == 0) {
        observe(o, ECH_HISTOGRAM_TTFT, ev->time_ns - x->started_ns);
    } else {
        observe(o, ECH_HISTOGRAM_ITL, ev->time_ns - c->last_token_ns);
    }
    c->last_token_ns = ev->time_ns;
}

/*
 * What never started has no time of a step, what drew nothing none to a first token; they count
 * where they have a value.
 */
void ech_observe_finish(ech_exchange *const x, ech_choice *const c, const ech_event *const ev)
{
    ech_observed *const o = &x->server->observed;
    const ech_usage *const u = &ev->usage;
    (void)ech_fetch_add_relaxed(&o->finished[ev->finish], 1);
    observe(o, ECH_HISTOGRAM_E2E, ev->time_ns - x->started_ns);
    observe(o, ECH_HISTOGRAM_PROMPT, u->prompt_tokens);
    observe(o, ECH_HISTOGRAM_GENERATION, u->completion_tokens);
    if (u->started_ns != 0) {
        observe(o, ECH_HISTOGRAM_QUEUE, u->started_ns - u->queued_ns);
        observe(o, ECH_HISTOGRAM_INFERENCE, u->finished_ns - u->started_ns);
    }
    if (u->first_token_ns == 0) return;
    const int64_t decode = u->finished_ns - u->first_token_ns;
    observe(o, ECH_HISTOGRAM_PREFILL, u->first_token_ns - u->started_ns);
    observe(o, ECH_HISTOGRAM_DECODE, decode);
    if (u->completion_tokens > 1)
        observe(o, ECH_HISTOGRAM_TPOT, decode / (int64_t)(u->completion_tokens - 1));
    c->last_token_ns = ev->time_ns;
}

/* A client that left has read no FINISH; vLLM calls those "abort". */
void ech_observe_end(ech_exchange *const x, const ech_generation *const g)
{
    for (uint32_t i = 0; i < g->n_choices && g->choices != NULL && x->request != NULL; i++) {
        if (g->choices[i].finish == ECH_FINISH_NONE)
            (void)ech_fetch_add_relaxed(&x->server->observed.finished[ECH_FINISH_CANCELLED], 1);
    }
}

/* ---- as text -------------------------------------------------------------------------------- */

/*
 * Prometheus wants buckets that include the smaller ones, and the count of the last equal to
 * _count: so both are summed from the same reads here.
 */
static ech_status put_histogram(ech_buf *const b, const family *const f,
                                const ech_histogram *const h, const char *const prefix,
                                const char *const labels)
{
    ECH_TRY(ech_buf_printf(b, "# HELP %s:%s %s\n# TYPE %s:%s histogram\n", prefix, f->name, f->help,
                           prefix, f->name));
    uint64_t n = 0;
    for (size_t i = 0; f->bounds[i] != 0; i++) {
        n += ech_load_relaxed(&h->counts[i]);
        ECH_TRY(ech_buf_printf(b, "%s:%s_bucket{%s,le=\"%g\"} %llu\n", prefix, f->name, labels,
                               f->bounds[i], (unsigned long long)n));
    }
    n += ech_load_relaxed(&h->counts[ECH_HISTOGRAM_BUCKETS]);
    return ech_buf_printf(b,
                          "%s:%s_bucket{%s,le=\"+Inf\"} %llu\n%s:%s_sum{%s} %.17g\n"
                          "%s:%s_count{%s} %llu\n",
                          prefix, f->name, labels, (unsigned long long)n, prefix, f->name, labels,
                          shown(f, ech_load_relaxed(&h->sum)), prefix, f->name, labels,
                          (unsigned long long)n);
}

static ech_status put_finished(ech_buf *const b, const ech_observed *const o,
                               const char *const prefix, const char *const labels)
{
    static const struct {
        ech_finish finish;
        const char *name;
    } REASONS[] = {
        { ECH_FINISH_STOP, "stop" },
        { ECH_FINISH_LENGTH, "length" },
        { ECH_FINISH_CANCELLED, "abort" },
        { ECH_FINISH_ERROR, "error" },
    };
    ECH_TRY(ech_buf_printf(b,
                           "# HELP %s:request_success_total Choices that ended.\n"
                           "# TYPE %s:request_success_total counter\n",
                           prefix, prefix));
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++) {
        ECH_TRY(
            ech_buf_printf(b, "%s:request_success_total{%s,finished_reason=\"%s\"} %llu\n", prefix,
                           labels, REASONS[i].name,
                           (unsigned long long)ech_load_relaxed(&o->finished[REASONS[i].finish])));
    }
    return ECH_OK;
}

ech_status ech_observed_put(ech_buf *const b, const ech_observed *const o, const char *const prefix,
                            const char *const labels)
{
    for (size_t i = 0; i < ECH_HISTOGRAM_COUNT; i++) {
        ECH_TRY(put_histogram(b, &FAMILIES[i], &o->histograms[i], prefix, labels));
    }
    /* What vLLM itself called it before; dashboards that are there ask for this name. */
    family older = FAMILIES[ECH_HISTOGRAM_ITL];
    older.name = "time_per_output_token_seconds";
    if (strcmp(prefix, "vllm") == 0)
        ECH_TRY(put_histogram(b, &older, &o->histograms[ECH_HISTOGRAM_ITL], prefix, labels));
    return put_finished(b, o, prefix, labels);
}
