/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a load on a server came to: one record per request in, a JSON object under the names of
 * `vllm bench serve`, a text with small histograms, and an SVG out. One thread, after the load.
 */
#ifndef ECH_CLI_BENCH_REPORT_H
#define ECH_CLI_BENCH_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One request. first_ns is 0 when no token came. */
typedef struct ech_bench_record {
    int64_t start_ns, first_ns, last_ns, end_ns;
    double *gaps_ms; /* [n_gaps] between two chunks with text */
    size_t n_gaps, cap;
    int64_t n_prompt, n_completion;
    bool ok;
    char failure[160];
} ech_bench_record;

typedef struct ech_bench_run {
    const ech_bench_record *records; /* [n] */
    size_t n;
    int64_t start_ns;
    double seconds;
    const char *model;       /* "" unknown */
    double request_rate;     /* 0: as fast as they go */
    int64_t max_concurrency; /* asked for */
    /* What makes a request a good one, ms; 0: not looked at. */
    double goodput_ttft, goodput_tpot, goodput_e2el;
    bool is_detailed; /* with the numbers of each request */
} ech_bench_run;

/* The object; the caller's. NULL: out of memory. */
json_t *ech_bench_sum_up(const ech_bench_run *run);
/* The numbers of the object as lines, then a histogram of each time. */
void ech_bench_print(const ech_bench_run *run, const json_t *sums);
/* A line per request: grey while it waits for its first token, blue while tokens come. Closes f;
 * false with errno when not all of it was written. */
bool ech_bench_plot(const ech_bench_run *run, FILE *f);

#endif
