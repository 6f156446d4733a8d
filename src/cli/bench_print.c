/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of `echelon bench MODEL`, as JSON objects first; tables are written from these. avg, stddev
 * and samples are llama-bench's; median and roofline are ours. Main thread.
 *
 * Ownership: an object that a function returns is the caller's. Columns of the Markdown table
 * are those that people paste beside llama-bench's; the roofline says how far a row is from what
 * this machine can do at all.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/bench_model.h"
#include "src/cli/numbers.h"

/* ---- numbers ---- */

/* Of an even number the mean of both in the middle. */
static double median(const double *x, uint32_t n)
{
    double sorted[ECH_BENCH_MAX_REPS];
    memcpy(sorted, x, n * sizeof *x);
    ech_sort_numbers(sorted, n);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static double mean(const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* Of a sample, as llama-bench has it. */
static double deviation(const double *x, uint32_t n)
{
    const double m = mean(x, n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (x[i] - m) * (x[i] - m);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

/* All samples are kept: whoever doubts a mean can look at them. */
static json_t *array_of(const double *x, uint32_t n)
{
    json_t *const a = json_array();
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(a, json_real(x[i]));
    return a;
}

/* ---- the roofline ---- */

/* The least that a repetition could read and multiply, whatever code does it. */
typedef struct work {
    double bytes, macs; /* of one repetition */
} work;

/* What the weights and the KV cache cost at least. Attention's products aren't counted. */
static work work_of(const ech_bench *b, const ech_bench_test *t)
{
    if (t->n_prompt > 0) {
        const uint32_t chunk = b->info.prefill_chunk;
        const uint32_t steps = (t->n_prompt + chunk - 1) / chunk;
        return (work){ .bytes = (double)b->info.step_bytes * steps,
                       .macs = (double)b->info.layer_params * t->n_prompt };
    }
    const double positions = t->n_depth + 1 + (double)t->n_gen / 2;
    const double kv = positions * (double)b->kv_bytes_per_token * t->n_streams;
    return (work){ .bytes = ((double)b->info.step_bytes + kv) * t->n_gen,
                   .macs = (double)b->info.step_params * t->n_gen * t->n_streams };
}

/* In the order of ech_meter_kind. */
static const char *product_name(ech_meter_kind kind)
{
    static const char *const NAMES[] = { "read", "int8", "bf16", "f32" };
    return NAMES[kind];
}

/*
 * Both limits are measured just before each repetition, so that a noisy neighbour lowers them
 * too. The larger share is the limit that counts.
 */
static void add_roofline(const ech_bench *b, const ech_bench_row *row, double seconds, json_t *o)
{
    const work w = work_of(b, &row->test);
    const double read = median(row->read, row->n_reps), peak = median(row->peak, row->n_reps);
    const double of_read = w.bytes / seconds / read, of_peak = w.macs / seconds / peak;
    char text[64];
    (void)snprintf(text, sizeof text, "%.0f %% of %s", 100 * fmax(of_read, of_peak),
                   of_read > of_peak ? "read" : product_name(b->info.product));
    json_t *const more =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:s}", "bytes_per_second",
                  w.bytes / seconds, "read_bytes_per_second", read, "read_fraction", of_read,
                  "macs_per_second", w.macs / seconds, "peak_macs_per_second", peak,
                  "peak_fraction", of_peak, "product", product_name(b->info.product), "peak_loop",
                  ech_meter_loop(b->meter, b->info.product), "roofline", text);
    (void)json_object_update(o, more);
    json_decref(more);
}

/* ---- a row ---- */

/* llama-bench's names, with the streams between. */
void ech_bench_test_name(const ech_bench_test *t, char *out, size_t cap)
{
    char streams[16] = "", depth[24] = "";
    if (t->n_streams > 1) (void)snprintf(streams, sizeof streams, " x%u", t->n_streams);
    if (t->n_depth > 0) (void)snprintf(depth, sizeof depth, " @ d%u", t->n_depth);
    (void)snprintf(out, cap, "%s%u%s%s", t->n_prompt > 0 ? "pp" : "tg",
                   t->n_prompt > 0 ? t->n_prompt : t->n_gen, streams, depth);
}

/*
 * The same test is one with the same four numbers, wherever it stands in the file. Medians are
 * compared: a mean follows its outliers.
 */
static void add_compared(const json_t *old, json_t *o)
{
    static const char *const KEYS[] = { "n_prompt", "n_gen", "n_depth", "n_streams" };
    size_t i;
    json_t *was;
    json_array_foreach(old, i, was)
    {
        bool is_same = true;
        for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++)
            is_same =
                is_same && json_equal(json_object_get(was, KEYS[k]), json_object_get(o, KEYS[k]));
        const double ts = json_number_value(json_object_get(was, "median_ts"));
        if (!is_same || !(ts > 0)) continue;
        (void)json_object_set_new(o, "saved_median_ts", json_real(ts));
        (void)json_object_set_new(
            o, "ratio", json_real(json_number_value(json_object_get(o, "median_ts")) / ts));
        return;
    }
}

/* The same in every row, as llama-bench repeats it: a row can be read by itself. */
static json_t *subject_json(const ech_bench *b, const ech_bench_subject *s)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:s, s:s, s:s}", "version",
                     s->version, "cpu_info", s->cpu, "backends", "CPU", "model_filename",
                     s->model_filename, "model_type", s->model_type, "model_size",
                     (json_int_t)s->model_size, "model_n_params", (json_int_t)s->model_n_params,
                     "n_batch", (int)b->info.prefill_chunk, "n_ubatch", (int)b->info.prefill_chunk,
                     "n_threads", (int)b->info.threads, "type_k", s->type_kv, "type_v", s->type_kv,
                     "compute", s->compute);
}

/* NULL: out of memory. A repetition of 0 ns, which a clock could give, counts as one. */
json_t *ech_bench_row_json(const ech_bench *b, const ech_bench_subject *s, const ech_bench_row *row,
                           const json_t *old)
{
    const ech_bench_test *const t = &row->test;
    const uint32_t n = row->n_reps;
    const double tokens = t->n_prompt > 0 ? t->n_prompt : (double)t->n_gen * t->n_streams;
    double ns[ECH_BENCH_MAX_REPS], ts[ECH_BENCH_MAX_REPS];
    char name[64];
    for (uint32_t i = 0; i < n; i++) {
        ns[i] = (double)(row->ns[i] > 0 ? row->ns[i] : 1);
        ts[i] = tokens * 1e9 / ns[i];
    }
    ech_bench_test_name(t, name, sizeof name);
    json_t *const o = subject_json(b, s);
    json_t *const measured = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "test", name,
        "n_prompt", (int)t->n_prompt, "n_gen", (int)t->n_gen, "n_depth", (int)t->n_depth,
        "n_streams", (int)t->n_streams, "test_time", row->when, "avg_ns", mean(ns, n), "stddev_ns",
        deviation(ns, n), "avg_ts", mean(ts, n), "stddev_ts", deviation(ts, n), "median_ts",
        median(ts, n), "samples_ns", array_of(ns, n), "samples_ts", array_of(ts, n));
    if (o == NULL || measured == NULL) {
        json_decref(o);
        json_decref(measured);
        return NULL;
    }
    (void)json_object_update(o, measured);
    json_decref(measured);
    add_roofline(b, row, median(ns, n) / 1e9, o);
    add_compared(old, o);
    return o;
}

/* ---- tables ---- */

static const char *text_of(const json_t *row, const char *key)
{
    const char *const text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static double number_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Two more columns where a saved run stands beside. */
void ech_bench_print_md_head(bool compares)
{
    (void)printf("| model | size | params | backend | threads | type_k | type_v | test | t/s | "
                 "roofline |%s\n",
                 compares ? " saved t/s | ratio |" : "");
    (void)printf("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |%s\n",
                 compares ? " ---: | ---: |" : "");
}

/* Flushed row by row: a run may take an hour. */
void ech_bench_print_md(const ech_bench_subject *s, const json_t *row)
{
    const double mib = (double)s->model_size / 1048576, millions = (double)s->model_n_params / 1e6;
    (void)printf("| %s | %.2f %s | %.2f %s | %s | %.0f | %s | %s | %s | %.2f ± %.2f | %s |",
                 s->model_type, mib < 1024 ? mib : mib / 1024, mib < 1024 ? "MiB" : "GiB",
                 millions < 1000 ? millions : millions / 1000, millions < 1000 ? "M" : "B",
                 text_of(row, "backends"), number_of(row, "n_threads"), text_of(row, "type_k"),
                 text_of(row, "type_v"), text_of(row, "test"), number_of(row, "avg_ts"),
                 number_of(row, "stddev_ts"), text_of(row, "roofline"));
    if (json_object_get(row, "ratio") != NULL)
        (void)printf(" %.2f | %.3f |", number_of(row, "saved_median_ts"), number_of(row, "ratio"));
    (void)printf("\n");
    (void)fflush(stdout);
}

static const char *const CSV_COLUMNS[] = {
    "version",        "cpu_info",  "backends", "model_filename", "model_type", "model_size",
    "model_n_params", "n_batch",   "n_ubatch", "n_threads",      "type_k",     "type_v",
    "compute",        "n_prompt",  "n_gen",    "n_depth",        "n_streams",  "test_time",
    "avg_ns",         "stddev_ns", "avg_ts",   "stddev_ts",      "median_ts",  "read_fraction",
    "peak_fraction",  "product",
};

void ech_bench_print_csv_head(void)
{
    for (size_t i = 0; i < sizeof CSV_COLUMNS / sizeof CSV_COLUMNS[0]; i++)
        (void)printf("%s%s", i > 0 ? "," : "", CSV_COLUMNS[i]);
    (void)printf("\n");
}

/* In quotes, and a quote twice. */
static void print_csv_text(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') (void)putchar('"');
        (void)putchar(*text);
    }
    (void)putchar('"');
}

/* Whole numbers stay whole; a column that the row lacks is 0. */
void ech_bench_print_csv(const json_t *row)
{
    for (size_t i = 0; i < sizeof CSV_COLUMNS / sizeof CSV_COLUMNS[0]; i++) {
        const json_t *const value = json_object_get(row, CSV_COLUMNS[i]);
        if (i > 0) (void)putchar(',');
        if (json_is_string(value))
            print_csv_text(json_string_value(value));
        else
            (void)printf(json_is_integer(value) ? "%.0f" : "%.6f", json_number_value(value));
    }
    (void)printf("\n");
    (void)fflush(stdout);
}
