/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential function of all kernels, as constants and as plain C. Every instruction set does
 * the same operations in the same order, each rounded to nearest even, so that bits are equal.
 *
 *     n = x / ln 2 rounded to an integer, r = x - n ln 2 in two steps, |r| <= 0.3467
 *     exp(x) = 2^n * (1 + (r + r² * P(r)))
 *
 * Relative error below 1.2e-7. Below ECH_EXP_LO the result is 0, above ECH_EXP_HI that of
 * ECH_EXP_HI (2.4e38); NaN gives NaN.
 */
#ifndef ECH_CHIP_CPU_EXP_H
#define ECH_CHIP_CPU_EXP_H

#include <math.h>

#include "src/chip/half.h"

#define ECH_EXP_HI     88.37f
#define ECH_EXP_LO     (-87.33f)
#define ECH_EXP_LOG2E  0x1.715476p+0f
#define ECH_EXP_MAGIC  0x1.8p+23f /* adding it leaves the integer in the low bits */
#define ECH_EXP_LN2_HI 0x1.62e400p-1f
#define ECH_EXP_LN2_LO 0x1.7f7d1cp-20f
/* Least maximum error over the interval, fitted in f64 and rounded. P = C0 + C1 r + … + C5 r⁵. */
#define ECH_EXP_C0 0x1.000000p-1f
#define ECH_EXP_C1 0x1.555554p-3f
#define ECH_EXP_C2 0x1.55548ep-5f
#define ECH_EXP_C3 0x1.111272p-7f
#define ECH_EXP_C4 0x1.6d8d52p-10f
#define ECH_EXP_C5 0x1.9f085ap-13f

static inline float ech_exp_ref(const float arg)
{
    if (arg < ECH_EXP_LO) return 0.0f;
    const float x = ECH_EXP_HI < arg ? ECH_EXP_HI : arg;
    const float t = fmaf(x, ECH_EXP_LOG2E, ECH_EXP_MAGIC);
    const float n = t - ECH_EXP_MAGIC;
    const float r = fmaf(n, -ECH_EXP_LN2_LO, fmaf(n, -ECH_EXP_LN2_HI, x));
    float p = fmaf(ECH_EXP_C5, r, ECH_EXP_C4);
    p = fmaf(p, r, ECH_EXP_C3);
    p = fmaf(p, r, ECH_EXP_C2);
    p = fmaf(p, r, ECH_EXP_C1);
    p = fmaf(p, r, ECH_EXP_C0);
    const float y = fmaf(r * r, p, r) + 1.0f;
    /* 2^n enters as an addition to the exponent; unsigned, so that NaN can't overflow. */
    return ech_f32_from_bits(ech_f32_bits(y) + (ech_f32_bits(t) << 23));
}

#endif
