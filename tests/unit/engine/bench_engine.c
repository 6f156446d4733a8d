/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures an engine at its events:
 *
 *     bench_engine MODEL streams   tokens per second at several numbers of streams, times to first
 *                                  token, gaps, beside a bare loop of the same forward passes
 *     bench_engine MODEL host      how long the chip waits between two tasks, of a step
 *     bench_engine MODEL victim    what a long prompt does to a running stream
 *     bench_engine MODEL prefix    first token of a prompt that is known
 *
 *     --quantize q4|q8  --max-itl MS  --streams MAX  --prompt N  --new N  --threads N
 *     --trace FILE      a Chrome trace of every task of the run
 *
 * Not a test: it says numbers, and judges none.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/engine/engine_int.h"

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

typedef struct measure {
    double *ttft, *gaps;
    size_t n_ttft, n_gaps;
    int64_t began, all_run_since, last; // last first token, last token
    double wall_ms;
} measure;

/* Reads a stream to its end. Times are the engine's. */
static void read_stream(ech_request **r, measure *m)
{
    ech_event ev = { 0 };
    int64_t last = 0;
    ech_error err;
    while (ev.kind != ECH_EVENT_DONE) {
        check(ech_request_next(*r, -1, &ev, &err), &err);
        if (ev.kind != ECH_EVENT_TOKEN) continue;
        if (last == 0) {
            m->ttft[m->n_ttft++] = ms(ev.time_ns - m->began);
            if (ev.time_ns > m->all_run_since) m->all_run_since = ev.time_ns;
        } else {
            m->gaps[m->n_gaps++] = ms(ev.time_ns - last);
        }
        last = ev.time_ns;
    }
    if (last > m->last) m->last = last;
    ech_request_close(r);
}

/* ---- a bare loop ---- */

/* Rows of n sequences, n_rows each, that end at position end; pages as they come. */
static void write_bare_rows(uint32_t n, uint32_t n_rows, uint32_t end)
{
    const ech_memory *const m = &engine->memory;
    const uint32_t table_len = ech_memory_table_len(&m->shape);
    const uint32_t n_pages = (end + ECH_KV_TOKENS - 1) / ECH_KV_TOKENS;
    ech_row *row = (ech_row *)(void *)m->rows.ptr;
    uint32_t *const tables = (uint32_t *)(void *)m->tables.ptr;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n_pages; k++)
            tables[i * table_len + k] = (i * n_pages + k) % m->shape.n_pages;
        for (uint32_t k = 0; k < n_rows; k++)
            *row++ = (ech_row){ .seq = i,
                                .pos = end - n_rows + k,
                                .id = (int32_t)(i + k),
                                .pages = i * table_len,
                                .logit_row = k + 1 == n_rows ? (int32_t)i : -1 };
    }
}

typedef struct bare {
    uint32_t n, n_rows;
} bare;

static ech_status submit_bare(ech_orch *orch, void *arg, ech_error *err)
{
    const bare *const b = arg;
    const ech_memory *const m = &engine->memory;
    const uint64_t rows = b->n * b->n_rows * sizeof(ech_row);
    const struct {
        ech_tag tag;
        const ech_area *area;
        ech_dtype dtype;
        uint32_t n_dims;
        uint64_t shape[2];
    } tensors[] = {
        { ECH_INPUT, &m->weights, ECH_DTYPE_U8, 1, { m->weights.bytes } },
        { ECH_INPUT, &m->rows, ECH_DTYPE_U8, 1, { rows } },
        { ECH_INPUT, &m->tables, ECH_DTYPE_U32, 1, { m->tables.bytes / 4 } },
        { ECH_INOUT, &m->kv, ECH_DTYPE_U8, 2, { m->shape.n_pages, m->shape.page_bytes } },
        { ECH_INPUT, &m->ids, ECH_DTYPE_I32, 1, { m->ids.bytes / 4 } },
        { ECH_OUTPUT_EXISTING,
          &m->logits,
          ECH_DTYPE_F32,
          2,
          { ECH_STEP_MAX_LOGITS, m->shape.vocab } },
    };
    ech_args *const args = &engine->args;
    ech_args_clear(args);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        const ech_tensor t = ech_tensor_view(tensors[i].area->buffer, 0, tensors[i].dtype,
                                             tensors[i].n_dims, tensors[i].shape);
        ech_args_add(args, tensors[i].tag, &t);
    }
    ech_args_add_scalar(args, b->n * b->n_rows);
    ech_args_add_scalar(args, b->n);
    return ech_submit_next_level(orch, &engine->programs.decode, args, NULL, 0, err);
}

/* Median time of so many forward passes and nothing else, while the engine has nothing to do. */
static double bare_ms(uint32_t n, uint32_t n_rows, uint32_t end, uint32_t repeats)
{
    double took[64];
    bare b = { n, n_rows };
    ech_error err;
    write_bare_rows(n, n_rows, end);
    for (uint32_t i = 0; i < repeats; i++) {
        ech_run *run;
        const int64_t began = ech_now_ns();
        check(ech_worker_submit(engine->worker, submit_bare, &b, &run, &err), &err);
        check(ech_run_wait(run, ECH_FOREVER, &err), &err);
        ech_run_release(&run);
        took[i] = ms(ech_now_ns() - began);
    }
    return quantile(took, repeats, 0.5);
}

/* ---- the chip's time ---- */

static int64_t chip_busy_ns(void)
{
    ech_child_info info;
    ech_error err;
    check(ech_worker_child_info(engine->worker, 0, &info, &err), &err);
    return info.busy_ns;
}

/* ---- streams ---- */

static void run_streams(uint32_t n, uint32_t n_prompt, uint32_t n_new, uint32_t seed, measure *m)
{
    ech_request *streams[MAX_STREAMS];
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    *m =
        (measure){ .ttft = malloc(n * sizeof(double)), .gaps = malloc(n * n_new * sizeof(double)) };
    m->began = ech_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        random_ids(ids, n_prompt, seed * 100 + i);
        streams[i] = submit(ids, n_prompt, n_new);
    }
    for (uint32_t i = 0; i < n; i++)
        read_stream(&streams[i], m);
    m->wall_ms = ms(ech_now_ns() - m->began);
    free(ids);
}

static void free_measure(measure *m)
{
    free(m->ttft);
    free(m->gaps);
}

static void bench_streams(uint32_t n, uint32_t n_prompt, uint32_t n_new)
{
    measure m;
    /* All prompts in steps as large as the engine's, then a row of each per token. */
    const uint32_t chunk = engine->options.prefill_chunk;
    const uint32_t at_once = chunk / n_prompt > n ? n : chunk / n_prompt > 0 ? chunk / n_prompt : 1;
    const uint32_t rows = n_prompt < chunk ? n_prompt : chunk;
    const double step = bare_ms(n, 1, n_prompt + n_new / 2, 16);
    const double wave = bare_ms(at_once, rows, n_prompt, 6) * n * n_prompt / (at_once * rows);
    run_streams(n, n_prompt, n_new, n, &m);
    const double step_2 = bare_ms(n, 1, n_prompt + n_new / 2, 16);
    const double bare_step = (step + step_2) / 2;
    const double decode_ms = ms(m.last - m.all_run_since) / (double)(n_new - 1);
    (void)printf("%3u streams: %7.1f tok/s out, %7.1f in+out; TTFT p50 %7.1f p95 %7.1f ms; gap p50 "
                 "%6.1f p95 %6.1f p99 %6.1f ms\n",
                 n, n * n_new / m.wall_ms * 1000, n * (n_new + n_prompt) / m.wall_ms * 1000,
                 quantile(m.ttft, m.n_ttft, 0.5), quantile(m.ttft, m.n_ttft, 0.95),
                 quantile(m.gaps, m.n_gaps, 0.5), quantile(m.gaps, m.n_gaps, 0.95),
                 quantile(m.gaps, m.n_gaps, 0.99));
    (void)printf(
        "             bare: step of %u rows %.1f ms, prompts as one wave %.0f ms; step of "
        "the engine %.1f ms: %.0f %% of the bare rate; whole run %.0f %%; TTFT p50 %.0f %% "
        "of the wave\n",
        n, bare_step, wave, decode_ms, 100 * bare_step / decode_ms,
        100 * (wave + bare_step * (n_new - 1)) / m.wall_ms,
        100 * quantile(m.ttft, m.n_ttft, 0.5) / wave);
    free_measure(&m);
}

/* ---- the host's share ---- */

static void bench_host(uint32_t n, uint32_t n_prompt, uint32_t n_new)
{
    measure m;
    ech_worker_trace_set(engine->worker, true); /* the chip's time is counted while it is on */
    const ech_engine_counters before = counters();
    const int64_t busy = chip_busy_ns();
    run_streams(n, n_prompt, n_new, n, &m);
    ech_engine_counters after = counters();
    while (after.requests > 0) /* the last step is counted after its events were told */
        after = counters();
    const double busy_ms = ms(chip_busy_ns() - busy);
    const double steps = (double)(after.steps - before.steps);
    const double in_flight_ms = ms((int64_t)(after.step_ns_total - before.step_ns_total));
    (void)printf(
        "%3u streams: %.0f steps, %.2f ms each; the chip waits %.0f us a step, %.2f %%; the "
        "engine's thread works %.0f us a step, beside it\n",
        n, steps, in_flight_ms / steps, 1000 * (in_flight_ms - busy_ms) / steps,
        100 * (in_flight_ms - busy_ms) / in_flight_ms,
        (double)(after.host_ns_total - before.host_ns_total) / steps / 1000);
    free_measure(&m);
}

/* ---- a long prompt beside a stream ---- */

enum { VICTIM_DEPTH = 512, LONG_STREAM = 30000, SHALLOW = 4096, MAX_GAPS = 100000 };

typedef struct gaps {
    double *ms;
    size_t n;
} gaps;

static void print_gaps(const char *what, gaps *g, double target)
{
    size_t n_over = 0;
    for (size_t i = 0; i < g->n; i++)
        n_over += g->ms[i] > 3 * target;
    const double p99 = quantile(g->ms, g->n, 0.99);
    (void)printf(
        "  %-22s %5zu gaps: p50 %6.1f p90 %6.1f p99 %6.1f max %6.1f ms; p99 is %.2f of the "
        "target of %.1f ms, %zu over three times\n",
        what, g->n, quantile(g->ms, g->n, 0.5), quantile(g->ms, g->n, 0.9), p99,
        quantile(g->ms, g->n, 1), p99 / target, target, n_over);
}

/* Gaps of the stream until *until tokens came or, with a prompt, until it has its token. */
static int64_t read_victim(ech_request *stream, ech_request *prompt, size_t until, int64_t *last,
                           gaps *shallow, gaps *deep)
{
    ech_event ev, other;
    ech_error err;
    uint32_t depth = 0;
    int64_t end = 0;
    for (size_t n = 0; prompt != NULL ? end == 0 : n < until;) {
        check(ech_request_next(stream, -1, &ev, &err), &err);
        while (prompt != NULL && ech_request_next(prompt, 0, &other, &err) == ECH_OK) {
            if (other.kind == ECH_EVENT_PROGRESS) depth = other.progress_done;
            if (other.kind == ECH_EVENT_TOKEN) end = other.time_ns;
        }
        if (ev.kind != ECH_EVENT_TOKEN) continue;
        gaps *const g = depth < SHALLOW ? shallow : deep;
        if (*last > 0 && g->n < MAX_GAPS) g->ms[g->n++] = ms(ev.time_ns - *last);
        *last = ev.time_ns;
        n++;
    }
    return end;
}

static double prompt_alone_s(int32_t *ids, uint32_t n)
{
    double ttft[1], none[2];
    measure m = { .ttft = ttft, .gaps = none };
    random_ids(ids, n, 4711);
    m.began = ech_now_ns();
    ech_request *r = submit(ids, n, 1);
    read_stream(&r, &m);
    return ttft[0] / 1000;
}

static void bench_victim(uint32_t n_prompt)
{
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    gaps solo = { malloc(MAX_GAPS * sizeof(double)), 0 }, shallow = solo, deep = solo;
    shallow.ms = malloc(MAX_GAPS * sizeof(double));
    deep.ms = malloc(MAX_GAPS * sizeof(double));
    const double alone_s = prompt_alone_s(ids, n_prompt);
    random_ids(ids, VICTIM_DEPTH, 4712);
    ech_request *stream = submit(ids, VICTIM_DEPTH, LONG_STREAM);
    int64_t last = 0;
    (void)read_victim(stream, NULL, 100, &last, &solo, &solo);
    const double solo_ms = quantile(solo.ms, solo.n, 0.5);
    random_ids(ids, n_prompt, 4713);
    const int64_t start = ech_now_ns();
    ech_request *r = submit(ids, n_prompt, 1);
    const double beside_s = ms(read_victim(stream, r, 0, &last, &shallow, &deep) - start) / 1000;
    const uint32_t itl = engine->options.max_itl_ms;
    const double by_default = 2 * solo_ms > 50 ? 2 * solo_ms : 50;
    (void)printf("prompt of %u: alone %.2f s, beside a stream at depth %d %.2f s: %.0f %% of its "
                 "speed\n",
                 n_prompt, alone_s, VICTIM_DEPTH, beside_s, 100 * alone_s / beside_s);
    print_gaps("the stream alone", &solo, solo_ms);
    print_gaps("prompt below 4k", &shallow, itl > 0 ? itl : by_default);
    print_gaps("prompt deeper", &deep, itl > 0 ? itl : by_default);
    ech_request_close(&r);
    ech_request_close(&stream);
    free(ids);
    free(solo.ms);
    free(shallow.ms);
    free(deep.ms);
}

/* ---- a prompt that is known ---- */

static void bench_prefix(uint32_t n_prompt)
{
    int32_t *const ids = malloc(n_prompt * sizeof *ids);
    double first[1], gap[64];
    random_ids(ids, n_prompt, 99);
    for (int i = 0; i < 4; i++) {
        measure m = { .ttft = first, .gaps = gap, .began = ech_now_ns() };
        ech_request *r = submit(ids, n_prompt, 33);
        read_stream(&r, &m);
        const double step = quantile(gap, m.n_gaps, 0.5);
        (void)printf("prefix of %u, time %d: first token after %.1f ms, %.2f steps of %.1f ms\n",
                     n_prompt, i, first[0], first[0] / step, step);
    }
    free(ids);
}

/* ---- what is asked for ---- */

typedef struct setup {
    ech_engine_options o;
    const char *what;
    uint32_t max_streams, n_prompt, n_new;
} setup;

static void usage(void)
{
    (void)fprintf(stderr, "usage: bench_engine MODEL streams|host|victim|prefix [--quantize q4|q8] "
                          "[--max-itl MS] [--streams MAX] [--prompt N] [--new N] [--threads N] "
                          "[--trace FILE]\n");
    exit(2);
}

static void take_option(setup *s, int option)
{
    const uint32_t n = (uint32_t)strtoul(optarg, NULL, 10);
    if (option == 'q')
        s->o.quantize = strcmp(optarg, "q4") == 0 ? ECH_QUANTIZE_Q4 : ECH_QUANTIZE_Q8;
    if (option == 'i') s->o.max_itl_ms = n;
    if (option == 's') s->max_streams = n < MAX_STREAMS ? n : MAX_STREAMS;
    if (option == 'p') s->n_prompt = n;
    if (option == 'n') s->n_new = n;
    if (option == 't') s->o.threads = n;
    if (option == 'f') s->o.trace_path = optarg;
}

static void take_arguments(setup *s, int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        { "quantize", required_argument, NULL, 'q' }, { "max-itl", required_argument, NULL, 'i' },
        { "streams", required_argument, NULL, 's' },  { "prompt", required_argument, NULL, 'p' },
        { "new", required_argument, NULL, 'n' },      { "threads", required_argument, NULL, 't' },
        { "trace", required_argument, NULL, 'f' },    { 0 },
    };
    ech_engine_options_default(&s->o);
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (c == '?') usage();
        take_option(s, c);
    }
    if (argc - optind != 2) usage();
    s->o.model_dir = argv[optind];
    s->what = argv[optind + 1];
    const bool is_victim = strcmp(s->what, "victim") == 0;
    if (s->n_prompt == 0)
        s->n_prompt = is_victim ? 16384 : strcmp(s->what, "prefix") == 0 ? 4096 : 128;
    if (s->n_new == 0) s->n_new = 128;
    s->o.max_running = s->max_streams;
    s->o.no_prefix_cache = is_victim || strcmp(s->what, "streams") == 0;
}

int main(int argc, char **argv)
{
    setup s = { .max_streams = 32 };
    ech_error err;
    take_arguments(&s, argc, argv);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    check(ech_engine_open(&engine, &s.o, &err), &err);
    check(ech_engine_wait_ready(engine, -1, NULL, &err), &err);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(engine, &info);
    vocab = info.vocab_size < 2000 ? info.vocab_size : 2000;
    (void)printf("%s", info.plan);
    if (strcmp(s.what, "victim") == 0) bench_victim(s.n_prompt);
    if (strcmp(s.what, "prefix") == 0) bench_prefix(s.n_prompt);
    for (uint32_t n = 1; strcmp(s.what, "streams") == 0 && n <= s.max_streams; n *= n == 1 ? 4 : 2)
        bench_streams(n, s.n_prompt, s.n_new);
    for (uint32_t n = 1; strcmp(s.what, "host") == 0 && n <= s.max_streams; n *= n == 1 ? 4 : 2)
        bench_host(n, s.n_prompt, s.n_new);
    ech_engine_close(&engine);
    return 0;
}
