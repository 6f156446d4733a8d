/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lazily sorted order against a full sort, over sizes around a block and rows with ties,
 * infinities and one single value; and the sums against a plain loop. `--bench` times rows of the
 * largest vocabulary instead.
 */
#include "tests/unit/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/chip/sampler.h"
#include "src/chip/sampler_order.h"
#include "src/chip/sampler_scan.h"

static uint64_t rng = 1;

static uint32_t next(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static float gauss(void)
{
    double s = 0.0;
    for (int i = 0; i < 12; i++) {
        s += next() / 2147483648.0;
    }
    return (float)(s - 6.0);
}

typedef enum shape { SMOOTH, TIES, EQUAL, HOLES, STEEP, EXTREME, SHAPES } shape;

static float *make_row(const uint32_t n, const shape s)
{
    float *const x = malloc(n * sizeof *x);
    for (uint32_t i = 0; i < n; i++) {
        const float g = gauss();
        switch (s) {
        case SMOOTH:
            x[i] = g;
            break;
        case TIES:
            x[i] = roundf(g * 3);
            break;
        case EQUAL:
            x[i] = i % 2 ? 0.0f : -0.0f;
            break;
        case HOLES:
            x[i] = next() % 3 ? -INFINITY : g;
            break;
        case STEEP:
            x[i] = g * 200;
            break;
        default:
            x[i] = next() % 2 ? FLT_MAX * (next() % 2 ? 1 : -1) : g * FLT_MIN;
            break;
        }
    }
    return x;
}

static const float *sorted_by;

static int by_value_then_id(const void *const a, const void *const b)
{
    const uint32_t i = *(const uint32_t *)a;
    const uint32_t j = *(const uint32_t *)b;
    if (sorted_by[i] != sorted_by[j]) return sorted_by[i] > sorted_by[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static ech_order order_new(const uint32_t n)
{
    return (ech_order){ .block_max = malloc(ech_scan_blocks(n) * sizeof(float)),
                        .steps = malloc(ech_scan_blocks(n) * sizeof(uint64_t)),
                        .keys = malloc(n * sizeof(uint64_t)),
                        .tmp = malloc(n * sizeof(uint64_t)) };
}

static void order_free(ech_order *const o)
{
    free(o->block_max);
    free(o->steps);
    free(o->keys);
    free(o->tmp);
}

static void compare(const uint32_t n, const shape s, const uint32_t stride)
{
    float *const x = make_row(n, s);
    uint32_t *const want = malloc(n * sizeof *want);
    uint32_t finite = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > -INFINITY) want[finite++] = i;
    }
    sorted_by = x;
    qsort(want, finite, sizeof *want, by_value_then_id);
    ech_order o = order_new(n);
    ech_order_start(&o, x, n);
    assert_false(o.has_nan);
    for (uint32_t i = 0; i < finite; i += stride) {
        assert_true(ech_order_reach(&o, i));
        assert_int_equal(ech_order_id(&o, i), want[i]);
    }
    assert_false(ech_order_reach(&o, finite));
    assert_int_equal(o.n, finite);
    if (finite != 0) assert_int_equal(ech_order_first(&o), want[0]);
    order_free(&o);
    free(want);
    free(x);
}

static void order_is_that_of_a_full_sort(void **state)
{
    (void)state;
    const uint32_t sizes[] = { 1, 2, 7, 63, 64, 65, 127, 128, 1000, 4096, 4099, 20000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (shape s = SMOOTH; s < SHAPES; s++) {
            compare(sizes[i], s, 1);
            compare(sizes[i], s, sizes[i] / 3 + 1);
        }
    }
}

static void sums_are_those_of_a_plain_loop(void **state)
{
    (void)state;
    const uint32_t sizes[] = { 1, 5, 8, 9, 64, 65, 71, 1000, 30000 };
    const double ts[] = { 0.05, 0.7, 1.0, 5.0 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t t = 0; t < 4; t++) {
            const uint32_t n = sizes[i];
            float *const x = make_row(n, t % 2 == 0 ? SMOOTH : HOLES);
            x[n / 2] = 1.0f;
            float *const blocks = malloc(ech_scan_blocks(n) * sizeof *blocks);
            float max;
            assert_false(ech_scan_max(x, n, blocks, &max));
            double mass;
            double same;
            double wz;
            ech_scan_sum(x, n, blocks, max, 1.0 / ts[t], &mass, &wz);
            ech_scan_sum(x, n, blocks, max, 1.0 / ts[t], &same, NULL);
            assert_true(mass == same);
            double want = 0.0;
            double want_wz = 0.0;
            for (uint32_t k = 0; k < n; k++) {
                if (!(x[k] > -INFINITY)) continue;
                const double z = ((double)x[k] - (double)max) / ts[t];
                want += exp(z);
                want_wz += z * exp(z);
            }
            assert_true(fabs(mass / want - 1.0) < 1e-9);
            assert_true(fabs(wz - want_wz) <= 1e-9 * fabs(want_wz) + 1e-12);
            free(blocks);
            free(x);
        }
    }
}

static void bench_row(const char *const name, const float *const logits, const uint32_t vocab,
                      void *const scratch, const ech_sampler_row *const row)
{
    _Alignas(8) uint8_t out[ECH_SAMPLE_OUT_BYTES(ECH_SAMPLE_TOP_DEFAULT)];
    ech_sampler_row r = *row;
    const ech_sample_args a = { .logits = logits,
                                .rows = &r,
                                .out = out,
                                .vocab = vocab,
                                .n_rows = 1,
                                .n_logits = 1,
                                .out_stride = sizeof out };
    int64_t best = INT64_MAX;
    for (int i = 0; i < 300; i++, r.pos++) {
        const int64_t start = ech_now_ns();
        ech_sample_row(&a, 0, scratch);
        const int64_t ns = ech_now_ns() - start;
        best = ns < best ? ns : best;
    }
    printf("%-16s %8.1f us\n", name, (double)best / 1e3);
}

static int bench(void)
{
    enum { N = 151936 };
    float *const x = make_row(N, SMOOTH);
    for (uint32_t i = 0; i < N; i++) {
        x[i] *= 2.5f;
    }
    for (int i = 0; i < 20; i++) {
        x[next() % N] += 12.0f; /* a head as models have it */
    }
    void *const scratch = aligned_alloc(64, ech_sample_scratch_bytes(N, 0));
    ech_sampler_row row;
    ech_sampler_row_init(&row);
    bench_row("greedy", x, N, scratch, &row);
    row.want_logprob = 1;
    bench_row("greedy, logprob", x, N, scratch, &row);
    row.want_logprob = 0;
    row.temperature = 0.7f;
    row.top_k = 20;
    bench_row("top-k 20", x, N, scratch, &row);
    row.top_p = 0.8f;
    bench_row("+ top-p 0.8", x, N, scratch, &row);
    row.top_k = 0;
    bench_row("top-p 0.8", x, N, scratch, &row);
    row.top_p = 1.0f;
    row.min_p = 0.05f;
    bench_row("min-p 0.05", x, N, scratch, &row);
    free(scratch);
    free(x);
    return 0;
}

int main(const int argc, char **const argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    if (argc > 1) rng = strtoull(argv[1], NULL, 0);
    printf("seed=%llu\n", (unsigned long long)rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_that_of_a_full_sort),
        cmocka_unit_test(sums_are_those_of_a_plain_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
