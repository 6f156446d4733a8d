/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels along a row against ref: equal bits, for every length up to a few registers and some
 * long ones, with NaN, infinities and denormals among the numbers, unaligned, before a guard page.
 * And ref's exponential against the C library's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/cpu/exp.h"
#include "src/chip/quant.h"
#include "tests/kernels/kernels.h"

/* Inputs a, b and three outputs that start equal: by the kernel, by ref. */
typedef struct rows {
    uint32_t n;
    size_t bytes;
    float *a, *b, *got, *want;
} rows;

static void open_rows(rows *const r, const uint32_t n, const bool odd)
{
    r->n = n;
    r->bytes = n * sizeof(float);
    r->a = guard_alloc(r->bytes);
    r->b = guard_alloc(r->bytes);
    r->got = guard_alloc(r->bytes);
    r->want = guard_alloc(r->bytes);
    for (uint32_t i = 0; i < n; i++) {
        r->a[i] = draw_f32(odd);
        r->b[i] = draw_f32(odd);
        r->got[i] = r->want[i] = draw_f32(odd);
    }
}

static void close_rows(rows *const r)
{
    guard_free(r->a, r->bytes);
    guard_free(r->b, r->bytes);
    guard_free(r->got, r->bytes);
    guard_free(r->want, r->bytes);
}

static void compare(const level *const l, const char *const kernel, const rows *const r)
{
    n_checks++;
    for (uint32_t i = 0; i < r->n; i++)
        if (!same_f32(r->got[i], r->want[i])) {
            report(l->name, kernel, "n %u: element %u is %.9g, expected %.9g", r->n, i,
                   (double)r->got[i], (double)r->want[i]);
            return;
        }
}

static void check_elementwise(const level *const l, rows *const r)
{
    const float s = draw_f32(false), t = draw_f32(false);
    l->ops.add(r->got, r->a, r->n);
    ref_ops.add(r->want, r->a, r->n);
    compare(l, "add", r);
    l->ops.mix(r->got, s, r->b, t, r->n);
    ref_ops.mix(r->want, s, r->b, t, r->n);
    compare(l, "mix", r);
    l->ops.scale(r->got, r->a, s, r->n);
    ref_ops.scale(r->want, r->a, s, r->n);
    compare(l, "scale", r);
    l->ops.swiglu(r->a, r->b, r->n, r->got);
    ref_ops.swiglu(r->a, r->b, r->n, r->want);
    compare(l, "swiglu", r);
    l->ops.rms_norm(r->a, r->b, r->n, 1e-6f, r->got);
    ref_ops.rms_norm(r->a, r->b, r->n, 1e-6f, r->want);
    compare(l, "rms_norm", r);
    l->ops.rms_norm(r->a, NULL, r->n, 1e-6f, r->got);
    ref_ops.rms_norm(r->a, NULL, r->n, 1e-6f, r->want);
    compare(l, "rms_norm without weight", r);
}

/* Both halves are outputs: a first compares the one, then the other. */
static void check_rope(const level *const l, rows *const r)
{
    float *const got_b = guard_alloc(r->bytes), *const want_b = guard_alloc(r->bytes);
    memcpy(got_b, r->want, r->bytes);
    memcpy(want_b, r->want, r->bytes);
    memcpy(r->got, r->want, r->bytes);
    l->ops.rope(r->got, got_b, r->a, r->b, r->n);
    ref_ops.rope(r->want, want_b, r->a, r->b, r->n);
    compare(l, "rope, first halves", r);
    memcpy(r->got, got_b, r->bytes);
    memcpy(r->want, want_b, r->bytes);
    compare(l, "rope, second halves", r);
    guard_free(got_b, r->bytes);
    guard_free(want_b, r->bytes);
}

static void check_softmax(const level *const l, rows *const r)
{
    float max = 0, max_want = 0;
    memcpy(r->got, r->a, r->bytes);
    memcpy(r->want, r->a, r->bytes);
    const float sum = l->ops.softmax(r->got, r->n, 0.7f, &max);
    const float sum_want = ref_ops.softmax(r->want, r->n, 0.7f, &max_want);
    compare(l, "softmax", r);
    if (!same_f32(sum, sum_want) || !same_f32(max, max_want))
        report(l->name, "softmax", "n %u: sum %.9g and maximum %.9g, expected %.9g and %.9g", r->n,
               (double)sum, (double)max, (double)sum_want, (double)max_want);
}

typedef void to_half_fn(const float *x, uint32_t n, uint16_t *y);

static void check_half(const level *const l, const char *const kernel, to_half_fn *const fn,
                       to_half_fn *const ref, const rows *const r)
{
    const size_t bytes = (size_t)(r->n + r->n % 2) * 2;
    uint16_t *const got = guard_alloc(bytes), *const want = guard_alloc(bytes);
    fn(r->a, r->n, got);
    ref(r->a, r->n, want);
    n_checks++;
    if (memcmp(got, want, bytes) != 0) report(l->name, kernel, "n %u: other bits", r->n);
    guard_free(got, bytes);
    guard_free(want, bytes);
}

static void check_to_q8(const level *const l, const rows *const r, const int32_t factor)
{
    const size_t bytes = ech_quant_row_bytes(r->n);
    char *const got = guard_alloc(bytes), *const want = guard_alloc(bytes);
    const uint32_t n_blocks = ech_quant_blocks(r->n), some = n_blocks / 3;
    const size_t at = (size_t)n_blocks * ECH_QUANT_BLOCK;
    const size_t c_bytes = (factor == ECH_QUANT_HALVES ? 8 : 4) * (size_t)n_blocks;
    l->ops.to_q8(r->a, r->n, factor, got, some, n_blocks);
    l->ops.to_q8(r->a, r->n, factor, got, 0, some);
    ref_ops.to_q8(r->a, r->n, factor, want, 0, n_blocks);
    n_checks++;
    bool same = memcmp(got, want, at) == 0 &&
                memcmp(got + at + n_blocks * 4, want + at + n_blocks * 4, c_bytes) == 0;
    for (size_t b = 0; b < n_blocks; b++)
        same = same && same_f32(((float *)(got + at))[b], ((float *)(want + at))[b]);
    if (!same) report(l->name, "to_q8", "n %u, factor %d: other bits", r->n, factor);
    guard_free(got, bytes);
    guard_free(want, bytes);
}

static void check_exp(const level *const l)
{
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        const float x = -87.3f + (float)(draw() >> 40) * (175.0f / 16777216.0f);
        const double want = exp((double)x);
        worst = fmax(worst, fabs(ech_exp_ref(x) - want) / want);
    }
    n_checks++;
    if (worst > 1.2e-7) report(l->name, "exp", "relative error %.3g", worst);
}

void check_vector(const level *const l)
{
    for (int odd = 0; odd < 2; odd++)
        for (uint32_t n = 1; n <= 1100; n += n < 70 ? 1 : 171) {
            rows r;
            open_rows(&r, n, odd != 0);
            check_elementwise(l, &r);
            check_rope(l, &r);
            check_softmax(l, &r);
            check_half(l, "to_bf16", l->ops.to_bf16, ref_ops.to_bf16, &r);
            check_half(l, "to_f16", l->ops.to_f16, ref_ops.to_f16, &r);
            for (int small = 0; small < 2; small++) { /* then with blocks of zeros and almost */
                check_to_q8(l, &r, -128);
                check_to_q8(l, &r, ECH_QUANT_HALVES);
                for (uint32_t i = 0; i < n; i++)
                    if (i / ECH_QUANT_BLOCK % 3 != 0)
                        r.a[i] *= i / ECH_QUANT_BLOCK % 3 == 1 ? 0 : 1e-32f;
            }
            close_rows(&r);
        }
    check_exp(l);
}
