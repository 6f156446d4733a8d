/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon bench MODEL` in three parts: cmd_bench_model.c has the options and the order of things,
 * bench_run.c measures one row, bench_print.c writes rows. Names and meaning of fields are those of
 * llama-bench where it has such a field.
 */
#ifndef ECH_CLI_BENCH_MODEL_H
#define ECH_CLI_BENCH_MODEL_H

#include <jansson.h>

#include "echelon/engine.h"

enum { ECH_BENCH_MAX_REPS = 100 };

/* What is timed: n_prompt tokens of a prompt, or n_gen of each of n_streams answers, behind a depth
 * of tokens that are there already. */
typedef struct ech_bench_test {
    uint32_t n_prompt, n_gen; /* one of them is 0 */
    uint32_t n_depth;
    uint32_t n_streams;
} ech_bench_test;

typedef struct ech_bench_row {
    ech_bench_test test;
    uint32_t n_reps;
    int64_t ns[ECH_BENCH_MAX_REPS];  /* wall time of a repetition */
    double read[ECH_BENCH_MAX_REPS]; /* the machine's plain read just before it, bytes a second */
    double peak[ECH_BENCH_MAX_REPS]; /* and its peak, multiply-accumulates a second */
    char when[32];                   /* 2026-01-31T12:00:00Z */
} ech_bench_row;

typedef struct ech_bench {
    ech_engine *engine;
    ech_meter *meter;
    ech_engine_info info;
    uint64_t kv_bytes_per_token;
    uint64_t n_made; /* measured prompts so far: each begins with an id of its own */
    int64_t seed;
} ech_bench;

/* What is the same in every row. */
typedef struct ech_bench_subject {
    const char *version, *cpu, *model_filename;
    char model_type[128];
    uint64_t model_size, model_n_params;
    const char *type_kv, *compute;
} ech_bench_subject;

/* One warm-up, then n_reps repetitions. ELIMIT when the depth doesn't stay in the KV memory. */
ech_status ech_bench_measure(ech_bench *b, const ech_bench_test *test, uint32_t n_reps,
                             ech_bench_row *ret_row, ech_error *err);

/* KV positions that a test needs at once, warm-up and a repetition. */
uint64_t ech_bench_kv_tokens(const ech_bench_test *test);

/* ---- printing ---- */

/* "pp512", "tg128 x16 @ d4096" */
void ech_bench_test_name(const ech_bench_test *test, char *out, size_t cap);
/* A row as a JSON object; old: NULL, or the array of a saved run to compare with. */
json_t *ech_bench_row_json(const ech_bench *b, const ech_bench_subject *s, const ech_bench_row *row,
                           const json_t *old);
void ech_bench_print_md_head(bool compares);
void ech_bench_print_md(const ech_bench_subject *s, const json_t *row);
void ech_bench_print_csv_head(void);
void ech_bench_print_csv(const json_t *row);

#endif
