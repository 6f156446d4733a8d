/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of the matrix kernels, beside what the machine can do in the same minute. One thread.
 *
 *   stream   one row, weights of 96 MiB: bytes per second, beside a plain read of as many
 *   tile     many rows, weights that stay in the L2 cache: operations per second, beside FMAs
 *            between registers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/kernels.h"
#include "tests/kernels/peak.h"

#define STREAM_BYTES ((size_t)96 << 20)

typedef void bench_fn(void *arg);

/* The best of several runs, in ns: the machine is shared. */
static double time_ns(bench_fn *const fn, void *const arg, const int n_runs)
{
    double best = 1e18;
    for (int i = 0; i < n_runs; i++) {
        const int64_t t0 = cpu_ns();
        fn(arg);
        const double t = (double)(cpu_ns() - t0);
        if (t < best) best = t;
    }
    return best;
}

static void *weights;
static float *sink;

typedef struct mm_bench {
    ech_mm_fn *mm;
    ech_mm_args args;
    size_t panel_bytes;
    uint32_t n_panels; /* in all, taken ECH_MM_MAX_PANELS at a time */
    uint32_t repeats;
} mm_bench;

static void run_mm(void *const arg)
{
    mm_bench *const b = arg;
    for (uint32_t i = 0; i < b->repeats; i++)
        for (uint32_t p = 0; p < b->n_panels; p += ECH_MM_MAX_PANELS) {
            ech_mm_args a = b->args;
            const void *panels[ECH_MM_MAX_PANELS];
            a.w = panels;
            a.n_panels = b->n_panels - p < ECH_MM_MAX_PANELS ? b->n_panels - p : ECH_MM_MAX_PANELS;
            for (uint32_t j = 0; j < a.n_panels; j++)
                panels[j] = (const char *)weights + (p + j) * b->panel_bytes;
            b->mm(&a);
        }
}

static mm_bench make(const ech_cpu_ops *const ops, const ech_pack_type type, const ech_act_type act,
                     const uint32_t k, const uint32_t n_rows, const size_t w_bytes, char *const x)
{
    const size_t panel = ech_panel_bytes(type, k);
    return (mm_bench){
        .mm = ops->mm[type][act],
        .args = {
            .n_parts = 1,
.k_part = k,
.k_last = k,
            .x = x,
            .x_stride = (size_t)k * 4 + 64,
            .n_rows = n_rows,
            .y = sink,
            .y_stride = ECH_MM_MAX_PANELS * ECH_PANEL,
        },
        .panel_bytes = panel,
        .n_panels = (uint32_t)(w_bytes / panel),
        .repeats = 1,
    };
}

static void bench_types(const level *const l, char *const x)
{
    static const struct {
        ech_pack_type type;
        ech_act_type act;
        const char *name;
    } pairs[] = {
        { ECH_PACK_F32, ECH_ACT_F32, "f32 x f32" },
        { ECH_PACK_F16, ECH_ACT_F32, "f16 x f32" },
        { ECH_PACK_BF16, ECH_ACT_F32, "bf16 x f32" },
        { ECH_PACK_BF16, ECH_ACT_BF16, "bf16 x bf16" },
        { ECH_PACK_Q8, ECH_ACT_Q8, "q8 x q8" },
        { ECH_PACK_Q6, ECH_ACT_Q8, "q6 x q8" },
        { ECH_PACK_Q6K, ECH_ACT_Q8, "q6k x q8" },
        { ECH_PACK_Q4, ECH_ACT_Q8, "q4 x q8" },
        { ECH_PACK_Q4M, ECH_ACT_Q8, "q4m x q8" },
        { ECH_PACK_Q4K, ECH_ACT_Q8, "q4k x q8" },
        { ECH_PACK_Q5K, ECH_ACT_Q8, "q5k x q8" },
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const bool is_ref = l->features == 0;
        mm_bench s = make(&l->ops, pairs[i].type, pairs[i].act, 2560, 1,
                          is_ref ? (size_t)1 << 20 : STREAM_BYTES, x);
        const double stream_ns = time_ns(run_mm, &s, is_ref ? 1 : 5);
        const double stream_bytes = (double)s.n_panels * (double)s.panel_bytes;
        printf("%-12s %-12s stream %6.1f GB/s  GFLOP/s by rows:", l->name, pairs[i].name,
               stream_bytes / stream_ns);
        static const uint32_t rows[] = { 1, 2, 4, 8, 12, 16, 48 };
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            if (is_ref && rows[r] > 2) break;
            mm_bench t =
                make(&l->ops, pairs[i].type, pairs[i].act, 1024, rows[r], (size_t)256 << 10, x);
            const double flops = 2.0 * 1024 * ECH_PANEL * t.n_panels * rows[r];
            t.repeats = is_ref ? 1 : (uint32_t)(2e8 / flops) + 1;
            printf(" %u:%.0f", rows[r], flops * t.repeats / time_ns(run_mm, &t, is_ref ? 1 : 5));
        }
        printf("\n");
    }
}

static void run_read(void *const arg)
{
    (void)arg;
    sink[0] += (float)peak_read(weights, STREAM_BYTES);
}

void bench_all(const level *const levels, const uint32_t n_levels)
{
    char *const x = aligned_alloc(64, (size_t)64 * (2560 * 4 + 64));
    weights = aligned_alloc((size_t)2 << 20, STREAM_BYTES);
    sink = aligned_alloc(64, (size_t)64 * ECH_MM_MAX_PANELS * ECH_PANEL * sizeof(float));
    memset(x, 0, (size_t)64 * (2560 * 4 + 64));
    memset(weights, 0, STREAM_BYTES);
    memset(sink, 0, (size_t)64 * ECH_MM_MAX_PANELS * ECH_PANEL * sizeof(float));
    const double read_ns = time_ns(run_read, NULL, 5);
    printf("plain read, 1 thread: %.1f GB/s\n", (double)STREAM_BYTES / read_ns);
    peak_print(ech_cpu_features());
    for (uint32_t i = 0; i < n_levels; i++)
        bench_types(&levels[i], x);
    free(x);
    free(weights);
    free(sink);
}
