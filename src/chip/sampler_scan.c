/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over a whole row, in the compilers' portable vectors of 16 bytes: two doubles or four
 * floats are one register on every CPU that Echelon knows, and a vector operation is that many
 * scalar ones, so nothing depends on the instruction set. Runs on a core thread, touches only its
 * arguments.
 */
#include "src/chip/sampler_scan.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "src/chip/sampler_math.h"

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));

#define LANES 8u /* four vectors of two: enough in flight to hide the latency of exp */

/* ---- maxima -------------------------------------------------------------------------------- */

static inline f32x4 vmax(const f32x4 a, const f32x4 b)
{
    const i32x4 greater = a > b; /* false for NaN: b stays */
    return (f32x4)(((i32x4)a & greater) | ((i32x4)b & ~greater));
}

static inline float fold_max(const f32x4 m)
{
    const float a = m[0] > m[1] ? m[0] : m[1];
    const float b = m[2] > m[3] ? m[2] : m[3];
    return a > b ? a : b;
}

static inline float whole_block_max(const float *const x, i32x4 *const nan)
{
    const f32x4 none = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    f32x4 m[2] = { none, none };
    for (uint32_t i = 0; i < ECH_SCAN_BLOCK; i += 8) {
        f32x4 v[2];
        memcpy(v, x + i, sizeof v);
        m[0] = vmax(v[0], m[0]);
        m[1] = vmax(v[1], m[1]);
        /* NOLINTNEXTLINE(misc-redundant-expression): what isn't equal to itself is NaN. */
        *nan |= (v[0] != v[0]) | (v[1] != v[1]);
    }
    return fold_max(vmax(m[0], m[1]));
}

/* The last, shorter block, padded with what changes nothing. */
static float part_block_max(const float *const x, const uint32_t n, i32x4 *const nan)
{
    float padded[ECH_SCAN_BLOCK];
    for (uint32_t i = 0; i < ECH_SCAN_BLOCK; i++) {
        padded[i] = i < n ? x[i] : -INFINITY;
    }
    return whole_block_max(padded, nan);
}

bool ech_scan_max(const float *const x, const uint32_t n, float *const block_max,
                  float *const ret_max)
{
    i32x4 nan = { 0 };
    float max = -INFINITY;
    for (uint32_t b = 0; b < ech_scan_blocks(n); b++) {
        const uint32_t at = b * ECH_SCAN_BLOCK;
        const float m = n - at >= ECH_SCAN_BLOCK ? whole_block_max(x + at, &nan)
                                                 : part_block_max(x + at, n - at, &nan);
        block_max[b] = m;
        max = m > max ? m : max;
    }
    *ret_max = max;
    return (nan[0] | nan[1] | nan[2] | nan[3]) != 0;
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* ech_sampler_exp() of two numbers, operation by operation, so that both give the same bits. */
static inline f64x2 vexp(const f64x2 x)
{
    const f64x2 t = x * ECH_EXP_LOG2E + ECH_EXP_SHIFT;
    const f64x2 n = t - ECH_EXP_SHIFT;
    const f64x2 r = (x - n * ECH_EXP_LN2_HI) - n * ECH_EXP_LN2_LO;
    const f64x2 p = ECH_EXP_POLYNOMIAL(r);
    return (f64x2)((i64x2)p + ((i64x2)t << 52));
}

typedef struct sums {
    f64x2 mass[LANES / 2];
    f64x2 wz[LANES / 2];
} sums;

static inline void add_lanes(sums *const s, const float *const x, const double max,
                             const double inv_t, const bool with_wz)
{
    for (uint32_t p = 0; p < LANES / 2; p++) {
        f64x2 z = { (double)x[2 * p], (double)x[2 * p + 1] };
        z = (z - max) * inv_t;
        const i64x2 low = z < ECH_EXP_MIN; /* -inf too: its product with 0 must not be NaN */
        const f64x2 least = { ECH_EXP_MIN, ECH_EXP_MIN };
        z = (f64x2)(((i64x2)least & low) | ((i64x2)z & ~low));
        const f64x2 w = vexp(z);
        s->mass[p] += w;
        if (with_wz) s->wz[p] += w * z;
    }
}

static inline double fold_sum(const f64x2 *const s)
{
    const f64x2 even = s[0] + s[2]; /* l0 + l4, l1 + l5 */
    const f64x2 odd = s[1] + s[3];  /* l2 + l6, l3 + l7 */
    const f64x2 both = even + odd;
    return both[0] + both[1];
}

static inline void sum_row(sums *const ret, const float *const x, const uint32_t n,
                           const float *const block_max, const float max, const double inv_t,
                           const bool with_wz)
{
    sums s = { 0 };
    for (uint32_t b = 0; b < ech_scan_blocks(n); b++) {
        if (((double)block_max[b] - (double)max) * inv_t < -50.0) continue;
        uint32_t i = b * ECH_SCAN_BLOCK;
        const uint32_t end = n - i >= ECH_SCAN_BLOCK ? i + ECH_SCAN_BLOCK : n;
        for (; i + LANES <= end; i += LANES) {
            add_lanes(&s, x + i, (double)max, inv_t, with_wz);
        }
        if (i < end) {
            float padded[LANES]; /* -inf weighs e^-700: nothing in a sum that is at least 1 */
            for (uint32_t l = 0; l < LANES; l++) {
                padded[l] = i + l < end ? x[i + l] : -INFINITY;
            }
            add_lanes(&s, padded, (double)max, inv_t, with_wz);
        }
    }
    *ret = s;
}

void ech_scan_sum(const float *const x, const uint32_t n, const float *const block_max,
                  const float max, const double inv_t, double *const ret_mass, double *const ret_wz)
{
    sums s;
    if (ret_wz == NULL) {
        sum_row(&s, x, n, block_max, max, inv_t, false);
    } else {
        sum_row(&s, x, n, block_max, max, inv_t, true);
        *ret_wz = fold_sum(s.wz);
    }
    *ret_mass = fold_sum(s.mass);
}
