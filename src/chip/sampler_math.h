/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of the sampler: exp, log and the random generator. libm's exp and log pick their code
 * by the CPU and differ in the last bit; these are a fixed sequence of IEEE operations, so that a
 * sampled id never depends on the machine. The build forbids contraction to fused multiply-add.
 * Pure functions, no state, branch-free where a loop over a row calls them.
 */
#ifndef ECH_CHIP_SAMPLER_MATH_H
#define ECH_CHIP_SAMPLER_MATH_H

#include <stdint.h>
#include <string.h>

/* Constants of exp: ln 2 in two parts, the upper one short enough that n * ln2_hi is exact. */
#define ECH_EXP_MIN    (-700.0)
#define ECH_EXP_LOG2E  0x1.71547652b82fep0
#define ECH_EXP_LN2_HI 0x1.62e42fee00000p-1
#define ECH_EXP_LN2_LO 0x1.a39ef35793c76p-33
#define ECH_EXP_SHIFT  0x1.8p52 /* adding it leaves the rounded integer in the low bits */

/* 1 + r + … + r^8 / 8! for |r| <= ln 2 / 2, in pairs: short chains, and one order for all types. */
#define ECH_EXP_POLYNOMIAL(r)                                                                      \
    (((r) + 1.0) + ((r) * (r)) * (((r) * (1.0 / 6) + 0.5) +                                        \
                                  ((r) * (r)) * (((r) * (1.0 / 120) + 1.0 / 24) +                  \
                                                 ((r) * (r)) * (((r) * (1.0 / 5040) + 1.0 / 720) + \
                                                                ((r) * (r)) * (1.0 / 40320)))))

/*
 * e^x for x in [-700, 700], clamped to that from below; relative error under 3e-10, a hundredth of
 * the last bit of an f32.
 */
static inline double ech_sampler_exp(double x)
{
    x = x < ECH_EXP_MIN ? ECH_EXP_MIN : x;
    const double t = x * ECH_EXP_LOG2E + ECH_EXP_SHIFT;
    const double n = t - ECH_EXP_SHIFT;
    const double r = (x - n * ECH_EXP_LN2_HI) - n * ECH_EXP_LN2_LO;
    double p = ECH_EXP_POLYNOMIAL(r);
    uint64_t bits;
    uint64_t scale;
    memcpy(&scale, &t, sizeof scale);
    memcpy(&bits, &p, sizeof bits);
    bits += scale << 52; /* p is in [0.7, 1.42): its exponent can take n */
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* ln x for finite normal x > 0; error under 1e-14 relative to max(1, |ln x|). */
static inline double ech_sampler_log(const double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (UINT64_C(1023) << 52);
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) { /* sqrt 2: keeps m near 1 */
        m *= 0.5;
        e += 1;
    }
    /* ln m = 2 atanh((m - 1) / (m + 1)), |s| < 0.172: eleven odd powers are enough. */
    const double s = (m - 1.0) / (m + 1.0);
    const double s2 = s * s;
    double p = 0.0;
    for (int k = 21; k >= 1; k -= 2) {
        p = p * s2 + 1.0 / k;
    }
    return (double)e * 0x1.62e42fefa39efp-1 + 2.0 * s * p;
}

/* b^e by squaring, saturated at 1e30 so that a logit less it stays finite. b >= 1. */
static inline double ech_sampler_powi(double b, uint32_t e)
{
    double r = 1.0;
    for (; e != 0 && r < 1e30; e >>= 1) {
        if (e & 1u) r *= b;
        b = b < 1e30 ? b * b : b;
    }
    return r < 1e30 ? r : 1e30;
}

/*
 * Philox4x32-10 (Salmon et al., SC 2011) with the seed as key and the position as counter: the
 * four words of a position are the same wherever and whenever they are asked for.
 */
static inline void ech_sampler_philox(const uint64_t seed, const uint64_t pos, uint32_t ret[4])
{
    uint32_t c0 = (uint32_t)pos;
    uint32_t c1 = (uint32_t)(pos >> 32);
    uint32_t c2 = 0;
    uint32_t c3 = 0;
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * c0;
        const uint64_t b = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

/* 53 bits of two words as a number in [0, 1). */
static inline double ech_sampler_uniform(const uint32_t hi, const uint32_t lo)
{
    return (double)((((uint64_t)hi << 32) | lo) >> 11) * 0x1p-53;
}

#endif
