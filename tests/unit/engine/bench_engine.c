/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures an engine at its events: total tokens per second at several numbers of streams, times to
 * first token, gaps, the host's share of a step; and what a long prompt does to a running stream.
 *
 *     bench_engine MODEL_DIR [streams|victim|prefix] [MAX_STREAMS] [PROMPT_TOKENS] [NEW_TOKENS]
 *
 * Not a test: it says numbers, and judges none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/engine.h"
#include "src/base/clock.h"

enum { MAX_STREAMS = 64 };

static ech_engine *engine;
static uint32_t vocab;

static double ms(int64_t ns)
{
    return (double)ns / ECH_NS_PER_MS;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *v, size_t n, double q)
{
    if (n == 0) return 0;
    qsort(v, n, sizeof *v, by_value);
    const size_t i = (size_t)(q * (double)n);
    return v[i < n ? i : n - 1];
}

static void check(ech_status rc, const ech_error *err)
{
    if (rc == ECH_OK) return;
    (void)fprintf(stderr, "bench_engine: %s\n", err->text);
    exit(1);
}

static void random_ids(int32_t *ids, uint32_t n, uint32_t seed)
{
    uint64_t r = seed * UINT64_C(977) + 13;
    for (uint32_t i = 0; i < n; i++) {
        r = r * UINT64_C(6364136223846793005) + 1442695040888963407u;
        ids[i] = (int32_t)((r >> 33) % vocab);
    }
}

static ech_request *submit(const int32_t *ids, uint32_t n, uint32_t max_tokens)
{
    const ech_prompt prompt = { .ids = ids, .n_ids = n };
    ech_request_options o;
    ech_error err;
    ech_request *r;
    ech_request_options_default(&o);
    o.prompts = &prompt;
    o.n_prompts = 1;
    o.sampling.temperature = 0;
    o.ignore_eos = true;
    o.max_tokens = max_tokens;
    check(ech_engine_submit(engine, &o, &r, &err), &err);
    return r;
}

static ech_engine_counters counters(void)
{
    ech_engine_counters c = { .struct_size = sizeof c };
    ech_engine_counters_get(engine, &c);
    return c;
}

/* ---- streams ---- */

typedef struct measure {
    double *ttft, *gaps;
    size_t n_ttft, n_gaps;
} measure;

/* Reads a stream to its end. Times are the engine's. */
static void read_stream(ech_request **r, int64_t began, measure *m)
{
    ech_event ev = { 0 };
    int64_t last = 0;
    ech_error err;
    while (ev.kind != ECH_EVENT_DONE) {
        check(ech_request_next(*r, -1, &ev, &err), &err);
        if (ev.kind != ECH_EVENT_TOKEN) continue;
        if (last == 0)
            m->ttft[m->n_ttft++] = ms(ev.time_ns - began);
        else
            m->gaps[m->n_gaps++] = ms(ev.time_ns - last);
        last = ev.time_ns;
    }
    ech_request_close(r);
}

static void bench_streams(uint32_t n, uint32_t n_prompt, uint32_t n_new, uint32_t seed)
{
    ech_request *streams[MAX_STREAMS];
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    measure m = { .ttft = malloc(n * sizeof(double)), .gaps = malloc(n * n_new * sizeof(double)) };
    const ech_engine_counters before = counters();
    const int64_t began = ech_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        random_ids(ids, n_prompt, seed * 100 + i);
        streams[i] = submit(ids, n_prompt, n_new);
    }
    for (uint32_t i = 0; i < n; i++)
        read_stream(&streams[i], began, &m);
    const double wall_s = ms(ech_now_ns() - began) / 1000;
    const ech_engine_counters after = counters();
    (void)printf(
        "%3u streams: %8.1f tok/s out, %8.1f tok/s in+out; TTFT p50 %7.1f p95 %7.1f ms; gap "
        "p50 %6.1f p95 %6.1f p99 %6.1f ms; host %.2f %% of step time, %.0f us a step\n",
        n, n * n_new / wall_s, n * (n_new + n_prompt) / wall_s, quantile(m.ttft, m.n_ttft, 0.5),
        quantile(m.ttft, m.n_ttft, 0.95), quantile(m.gaps, m.n_gaps, 0.5),
        quantile(m.gaps, m.n_gaps, 0.95), quantile(m.gaps, m.n_gaps, 0.99),
        100.0 * (double)(after.host_ns_total - before.host_ns_total) /
            (double)(after.step_ns_total - before.step_ns_total),
        (double)(after.host_ns_total - before.host_ns_total) /
            (double)(after.steps - before.steps) / 1000);
    free(m.ttft);
    free(m.gaps);
    free(ids);
}

/* ---- a long prompt beside a stream ---- */

static void bench_victim(uint32_t n_prompt)
{
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    double *const gaps = malloc(100000 * sizeof *gaps);
    size_t n_gaps = 0;
    ech_event ev = { 0 };
    ech_error err;
    random_ids(ids, n_prompt, 4711);
    ech_request *r = submit(ids, n_prompt, 1);
    const int64_t began = ech_now_ns();
    measure m = { .ttft = gaps, .gaps = gaps };
    read_stream(&r, began, &m);
    const double alone_s = ms(ech_now_ns() - began) / 1000;
    random_ids(ids, 512, 4712);
    ech_request *stream = submit(ids, 512, 4000);
    for (int n = 0; n < 50;) {
        check(ech_request_next(stream, -1, &ev, &err), &err);
        n += ev.kind == ECH_EVENT_TOKEN;
    }
    random_ids(ids, n_prompt, 4713);
    const int64_t start = ech_now_ns();
    int64_t last = ev.time_ns, end = 0;
    r = submit(ids, n_prompt, 1);
    while (end == 0) {
        ech_event other;
        while (ech_request_next(r, 0, &other, &err) == ECH_OK)
            if (other.kind == ECH_EVENT_TOKEN) end = other.time_ns;
        check(ech_request_next(stream, -1, &ev, &err), &err);
        if (ev.kind != ECH_EVENT_TOKEN) continue;
        gaps[n_gaps++] = ms(ev.time_ns - last);
        last = ev.time_ns;
    }
    (void)printf(
        "victim: prompt of %u alone %.2f s, beside a stream %.2f s (%.0f %% of its speed); "
        "%zu gaps p50 %.1f p99 %.1f max %.1f ms; solo step %.1f ms\n",
        n_prompt, alone_s, ms(end - start) / 1000, 100 * alone_s / (ms(end - start) / 1000), n_gaps,
        quantile(gaps, n_gaps, 0.5), quantile(gaps, n_gaps, 0.99), quantile(gaps, n_gaps, 1),
        counters().solo_step_ms);
    ech_request_close(&r);
    ech_request_close(&stream);
    free(ids);
    free(gaps);
}

/* ---- a prompt that is known ---- */

static void bench_prefix(uint32_t n_prompt)
{
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    double one[2];
    random_ids(ids, n_prompt, 99);
    for (int i = 0; i < 3; i++) {
        measure m = { .ttft = one, .gaps = one + 1 };
        const int64_t began = ech_now_ns();
        ech_request *r = submit(ids, n_prompt, 2);
        read_stream(&r, began, &m);
        (void)printf("prefix of %u, time %d: first token after %.1f ms; solo step %.1f ms\n",
                     n_prompt, i, one[0], counters().solo_step_ms);
    }
    free(ids);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_engine MODEL_DIR [streams|victim|prefix] [MAX_STREAMS] "
                              "[PROMPT_TOKENS] [NEW_TOKENS]\n");
        return 2;
    }
    const char *const what = argc > 2 ? argv[2] : "streams";
    const uint32_t max_streams = argc > 3 ? (uint32_t)atoi(argv[3]) : 32;
    const uint32_t n_prompt = argc > 4 ? (uint32_t)atoi(argv[4]) : 128;
    const uint32_t n_new = argc > 5 ? (uint32_t)atoi(argv[5]) : 128;
    ech_engine_options o;
    ech_error err;
    ech_engine_options_default(&o);
    o.model_dir = argv[1];
    o.max_running = max_streams < MAX_STREAMS ? max_streams : MAX_STREAMS;
    const char *const itl = getenv("MAX_ITL_MS");
    if (itl != NULL) o.max_itl_ms = (uint32_t)atoi(itl);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    check(ech_engine_open(&engine, &o, &err), &err);
    check(ech_engine_wait_ready(engine, -1, NULL, &err), &err);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(engine, &info);
    vocab = info.vocab_size < 2000 ? info.vocab_size : 2000;
    (void)printf("%s", info.plan);
    if (strcmp(what, "victim") == 0) bench_victim(n_prompt);
    if (strcmp(what, "prefix") == 0) bench_prefix(n_prompt);
    for (uint32_t n = 1; strcmp(what, "streams") == 0 && n <= o.max_running; n *= n == 1 ? 4 : 2)
        bench_streams(n, n_prompt, n_new, n);
    ech_engine_close(&engine);
    return 0;
}
