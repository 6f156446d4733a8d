/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report; see bench_report.h. Failed requests count as failed and in no time.
 *
 * Ownership: records are the caller's and only read; the object that ech_bench_sum_up() returns
 * is the caller's to free. Times are in milliseconds but in the detail. Invariant: every number
 * of the report follows from the run's records; only the date doesn't. Main thread, when all
 * streams are joined.
 */
#include "src/cli/bench_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/cli/numbers.h"

enum { TTFT, TPOT, ITL, E2EL, N_SERIES };
static const char *const NAMES[] = { "ttft", "tpot", "itl", "e2el" };

typedef struct series {
    double *v; /* [n] ms, sorted */
    size_t n;
} series;

/* Linear between neighbours, as numpy has it. */
static double percentile(const series *const s, const double p)
{
    if (s->n == 0) return 0;
    const double at = p / 100 * (double)(s->n - 1);
    const size_t i = (size_t)at;
    return i + 1 < s->n ? s->v[i] + (at - (double)i) * (s->v[i + 1] - s->v[i]) : s->v[i];
}

static double ms_between(const int64_t from_ns, const int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-6;
}

/*
 * vLLM's: the time after the first token over the tokens after it. 0 where there is only one,
 * which counts as good.
 */
static double tpot_of(const ech_bench_record *const r)
{
    return r->n_completion > 1 ? ms_between(r->first_ns, r->last_ns) / (double)(r->n_completion - 1)
                               : 0;
}

/* ---- the times of all requests -------------------------------------------------------------- */

static void series_fini(series s[N_SERIES])
{
    for (size_t k = 0; k < N_SERIES; k++) {
        free(s[k].v);
    }
}

/*
 * Room for every value of each series. Gaps are counted first: their number is that of the
 * chunks. All or none.
 */
static bool series_alloc(series s[N_SERIES], const ech_bench_run *const run)
{
    size_t gaps = 1;
    for (size_t i = 0; i < run->n; i++) {
        gaps += run->records[i].n_gaps;
    }
    for (size_t k = 0; k < N_SERIES; k++) {
        s[k] = (series){ calloc(k == ITL ? gaps : run->n + 1, sizeof(double)), 0 };
    }
    for (size_t k = 0; k < N_SERIES; k++) {
        if (s[k].v != NULL) continue;
        series_fini(s);
        return false;
    }
    return true;
}

static void push(series *const s, const double value)
{
    s->v[s->n++] = value;
}

/* Sorted times of the requests that were answered. False: out of memory. */
static bool series_open(series s[N_SERIES], const ech_bench_run *const run)
{
    if (!series_alloc(s, run)) return false;
    for (size_t i = 0; i < run->n; i++) {
        const ech_bench_record *const r = &run->records[i];
        if (!r->ok) continue;
        push(&s[TTFT], ms_between(r->start_ns, r->first_ns));
        if (r->n_completion > 1) push(&s[TPOT], tpot_of(r));
        push(&s[E2EL], ms_between(r->start_ns, r->end_ns));
        for (size_t k = 0; k < r->n_gaps; k++) {
            push(&s[ITL], r->gaps_ms[k]);
        }
    }
    for (size_t k = 0; k < N_SERIES; k++) {
        ech_sort_numbers(s[k].v, s[k].n);
    }
    return true;
}

/*
 * std is that of the population, as numpy's default. The difference of squares may come out
 * below 0 by rounding.
 */
static void put_series(json_t *const out, const char *const name, const series *const s)
{
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < s->n; i++) {
        sum += s->v[i];
        squares += s->v[i] * s->v[i];
    }
    const double mean = s->n > 0 ? sum / (double)s->n : 0;
    const double var = s->n > 0 ? squares / (double)s->n - mean * mean : 0;
    const struct {
        const char *prefix;
        double value;
    } ROWS[] = {
        { "mean", mean },
        { "median", percentile(s, 50) },
        { "std", sqrt(var > 0 ? var : 0) },
        { "p50", percentile(s, 50) },
        { "p90", percentile(s, 90) },
        { "p95", percentile(s, 95) },
        { "p99", percentile(s, 99) },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "%s_%s_ms", ROWS[i].prefix, name);
        (void)json_object_set_new(out, key, json_real(ROWS[i].value));
    }
}

/* ---- sums ----------------------------------------------------------------------------------- */

typedef struct totals {
    int64_t completed, good, prompt, completion;
} totals;

/* A limit that wasn't given is always kept. */
static bool is_good(const ech_bench_run *const run, const ech_bench_record *const r)
{
    return (run->goodput_ttft <= 0 || ms_between(r->start_ns, r->first_ns) <= run->goodput_ttft) &&
           (run->goodput_tpot <= 0 || tpot_of(r) <= run->goodput_tpot) &&
           (run->goodput_e2el <= 0 || ms_between(r->start_ns, r->end_ns) <= run->goodput_e2el);
}

static totals totals_of(const ech_bench_run *const run)
{
    totals s = { 0 };
    for (size_t i = 0; i < run->n; i++) {
        const ech_bench_record *const r = &run->records[i];
        if (!r->ok) continue;
        s.completed++;
        s.good += is_good(run, r);
        s.prompt += r->n_prompt;
        s.completion += r->n_completion;
    }
    return s;
}

static int by_time(const void *const a, const void *const b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/*
 * The most requests that were in flight together. A sweep over sorted starts and ends: how many
 * have begun less how many are over by then. An end at the same moment counts as over.
 */
static int64_t peak_in_flight(const ech_bench_run *const run)
{
    int64_t *const starts = calloc(2 * run->n + 1, sizeof *starts); /* [n], then the [n] ends */
    if (starts == NULL) return 0;
    int64_t *const ends = starts + run->n;
    for (size_t i = 0; i < run->n; i++) {
        starts[i] = run->records[i].start_ns;
        ends[i] = run->records[i].end_ns;
    }
    qsort(starts, run->n, sizeof *starts, by_time);
    qsort(ends, run->n, sizeof *ends, by_time);
    size_t most = 0;
    size_t ended = 0;
    for (size_t started = 1; started <= run->n; started++) {
        while (ends[ended] <= starts[started - 1]) {
            ended++;
        }
        if (started - ended > most) most = started - ended;
    }
    free(starts);
    return (int64_t)most;
}

/*
 * The most chunks within one second of the run, seconds counted from its start. Gaps are added
 * up from the first token, so the times need not be kept. Without memory 0, as a report without
 * it is better than none.
 */
static double peak_rate(const ech_bench_run *const run)
{
    const size_t n_bins = (size_t)run->seconds + 2;
    int64_t *const bins = calloc(n_bins, sizeof *bins);
    if (bins == NULL) return 0;
    for (size_t i = 0; i < run->n; i++) {
        const ech_bench_record *const r = &run->records[i];
        if (!r->ok) continue;
        double at_s = ms_between(run->start_ns, r->first_ns) * 1e-3;
        for (size_t k = 0;; k++) {
            const size_t bin = (size_t)at_s;
            if (bin < n_bins) bins[bin]++;
            if (k == r->n_gaps) break;
            at_s += r->gaps_ms[k] * 1e-3;
        }
    }
    int64_t most = 0;
    for (size_t i = 0; i < n_bins; i++) {
        if (bins[i] > most) most = bins[i];
    }
    free(bins);
    return (double)most;
}

/*
 * The keys of vLLM's result files, also those that say little here: scripts that read them look
 * for all.
 */
static void put_head(json_t *const out, const ech_bench_run *const run)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm tm;
    (void)strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    json_t *const head =
        json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:I, s:o, s:f, s:I}", "date", date,
                  "endpoint_type", "openai", "backend", "openai", "label", "model_id", run->model,
                  "tokenizer_id", run->model, "num_prompts", (json_int_t)run->n, "request_rate",
                  run->request_rate > 0 ? json_real(run->request_rate) : json_string("inf"),
                  "burstiness", 1.0, "max_concurrency", (json_int_t)run->max_concurrency);
    (void)json_object_update(out, head);
    json_decref(head);
}

/* request_goodput is null where no goal was set: 0 would mean that none was met. */
static void put_sums(json_t *const out, const ech_bench_run *const run)
{
    const totals s = totals_of(run);
    const double seconds = run->seconds > 0 ? run->seconds : 1e-9;
    const bool has_goal = run->goodput_ttft > 0 || run->goodput_tpot > 0 || run->goodput_e2el > 0;
    json_t *const part = json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:f, s:I}", "duration", seconds, "completed",
        (json_int_t)s.completed, "failed", (json_int_t)((int64_t)run->n - s.completed),
        "total_input_tokens", (json_int_t)s.prompt, "total_output_tokens", (json_int_t)s.completion,
        "request_throughput", (double)s.completed / seconds, "request_goodput",
        has_goal ? json_real((double)s.good / seconds) : json_null(), "output_throughput",
        (double)s.completion / seconds, "total_token_throughput",
        (double)(s.prompt + s.completion) / seconds, "max_output_tokens_per_s", peak_rate(run),
        "max_concurrent_requests", (json_int_t)peak_in_flight(run));
    (void)json_object_update(out, part);
    json_decref(part);
}

/* The numbers of each request; times in seconds, as vLLM has them here. */
static void put_detail(json_t *const out, const ech_bench_run *const run)
{
    json_t *const lists[] = { json_array(), json_array(), json_array(),
                              json_array(), json_array(), json_array() };
    static const char *const KEYS[] = { "input_lens", "output_lens", "ttfts",
                                        "itls",       "start_times", "errors" };
    for (size_t i = 0; i < run->n; i++) {
        const ech_bench_record *const r = &run->records[i];
        json_t *const gaps = json_array();
        for (size_t k = 0; k < r->n_gaps; k++) {
            (void)json_array_append_new(gaps, json_real(r->gaps_ms[k] * 1e-3));
        }
        const double ttft = r->first_ns != 0 ? ms_between(r->start_ns, r->first_ns) * 1e-3 : 0;
        json_t *const row[] = { json_integer(r->n_prompt),
                                json_integer(r->n_completion),
                                json_real(ttft),
                                gaps,
                                json_real(ms_between(run->start_ns, r->start_ns) * 1e-3),
                                json_string(r->failure) };
        for (size_t k = 0; k < sizeof row / sizeof row[0]; k++) {
            (void)json_array_append_new(lists[k], row[k]);
        }
    }
    for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++) {
        (void)json_object_set_new(out, KEYS[k], lists[k]);
    }
}

/* NULL: out of memory. The order of the members is that of printing. */
json_t *ech_bench_sum_up(const ech_bench_run *const run)
{
    series s[N_SERIES];
    json_t *const out = json_object();
    if (out == NULL || !series_open(s, run)) {
        json_decref(out);
        return NULL;
    }
    put_head(out, run);
    put_sums(out, run);
    for (size_t k = 0; k < N_SERIES; k++) {
        put_series(out, NAMES[k], &s[k]);
    }
    if (run->is_detailed) put_detail(out, run);
    series_fini(s);
    return out;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* How many values fall into each of the columns between the least and the most of them. */
static void print_histogram(const char *const name, const series *const s)
{
    enum { COLUMNS = 48 };
    static const char *const BARS[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    if (s->n == 0) return;
    const double low = s->v[0];
    const double width = (s->v[s->n - 1] - low) / COLUMNS;
    size_t counts[COLUMNS] = { 0 };
    size_t most = 1;
    for (size_t i = 0; i < s->n; i++) {
        size_t at = width > 0 ? (size_t)((s->v[i] - low) / width) : 0;
        if (at >= COLUMNS) at = COLUMNS - 1;
        if (++counts[at] > most) most = counts[at];
    }
    (void)printf("%-5s %9.2f ms ▕", name, low);
    for (size_t i = 0; i < COLUMNS; i++) {
        /* What isn't empty shows. */
        (void)fputs(BARS[(counts[i] * 8 + most - 1) / most], stdout);
    }
    (void)printf("▏ %.2f ms\n", s->v[s->n - 1]);
}

/* Numbers first, then the shape of each series: two humps don't show in percentiles. */
void ech_bench_print(const ech_bench_run *const run, const json_t *const sums)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)sums, key, value)
    {
        if (json_is_real(value)) {
            (void)printf("%-24s %.2f\n", key, json_real_value(value));
        } else if (json_is_integer(value)) {
            (void)printf("%-24s %lld\n", key, (long long)json_integer_value(value));
        } else if (json_is_string(value)) {
            (void)printf("%-24s %s\n", key, json_string_value(value));
        }
    }
    series s[N_SERIES];
    if (!series_open(s, run)) return;
    (void)putchar('\n');
    for (size_t k = 0; k < N_SERIES; k++) {
        print_histogram(NAMES[k], &s[k]);
    }
    series_fini(s);
}

/* ---- picture -------------------------------------------------------------------------------- */

/*
 * Grey from the sending to the first token, blue to the end; red is a request that failed. A row
 * for each, six units apart.
 */
static void plot_request(FILE *const f, const ech_bench_run *const run, const size_t i,
                         const double scale)
{
    const ech_bench_record *const r = &run->records[i];
    const int64_t first_ns = r->first_ns != 0 ? r->first_ns : r->end_ns;
    const double x0 = 30 + ms_between(run->start_ns, r->start_ns) * scale;
    const double x1 = 30 + ms_between(run->start_ns, first_ns) * scale;
    const double x2 = 30 + ms_between(run->start_ns, r->end_ns) * scale;
    (void)fprintf(f, "<rect x=\"%.1f\" y=\"%zu\" width=\"%.1f\" height=\"4\" fill=\"#bbb\"/>", x0,
                  i * 6 + 10, x1 - x0);
    (void)fprintf(f, "<rect x=\"%.1f\" y=\"%zu\" width=\"%.1f\" height=\"4\" fill=\"%s\"/>\n", x1,
                  i * 6 + 10, x2 - x1, r->ok ? "#2457c5" : "#b3261e");
}

/* Written without a library: rectangles are all it has. */
bool ech_bench_plot(const ech_bench_run *const run, FILE *const f)
{
    const double scale = 800 / (run->seconds > 0 ? run->seconds * 1e3 : 1);
    const size_t below = run->n * 6 + 30;
    (void)fprintf(f,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%zu\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n",
                  below + 10);
    for (size_t i = 0; i < run->n; i++) {
        plot_request(f, run, i, scale);
    }
    (void)fprintf(
        f, "<text x=\"30\" y=\"%zu\">0 s</text><text x=\"800\" y=\"%zu\">%.1f s</text>\n</svg>\n",
        below, below, run->seconds);
    const bool bad = ferror(f) != 0;
    return fclose(f) == 0 && !bad;
}
