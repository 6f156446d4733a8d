/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16-bit floats in plain C. Exact to f32; rounded to nearest even from it. Bit patterns, not
 * values: f16 is IEEE binary16, bf16 the upper half of an f32.
 */
#ifndef ECH_CHIP_HALF_H
#define ECH_CHIP_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ech_f32_bits(const float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float ech_f32_from_bits(const uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float ech_bf16_to_f32(const uint16_t h)
{
    return ech_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t ech_bf16_from_f32(const float x)
{
    const uint32_t u = ech_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u); /* quiet NaN */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float ech_f16_to_f32(const uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = h & 0x7fffu;
    if (rest >= 0x7c00u)
        return ech_f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
                                 (rest > 0x7c00u ? 0x400000u : 0));
    if (rest >= 0x400u) return ech_f32_from_bits(sign | ((rest << 13) + 0x38000000u));
    /* Subnormal or zero: rest * 2^-24, exact in f32. */
    return ech_f32_from_bits(sign | ech_f32_bits((float)rest * 0x1p-24f));
}

static inline uint16_t ech_f16_from_f32(const float x)
{
    const uint32_t u = ech_f32_bits(x);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    const uint32_t rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x1ffu));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 2^16 or more */
    if (rest >= 0x38800000u)
        return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
    /* Subnormal: adding 0.5 lets the FPU round at 2^-24. */
    const float shifted = ech_f32_from_bits(rest) + 0.5f;
    return (uint16_t)(sign | (ech_f32_bits(shifted) - 0x3f000000u));
}

/* 1 / d, and 0 for a block of zeros: what values are multiplied by to be counted in steps of d. */
static inline float ech_f16_inverse(const uint16_t d)
{
    const float x = ech_f16_to_f32(d);
    return x != 0.0f ? 1.0f / x : 0.0f;
}

/* The same, but what f16 can't hold becomes its largest number; NaN stays. */
static inline uint16_t ech_f16_from_f32_clamped(const float x)
{
    const uint16_t h = ech_f16_from_f32(x);
    return (h & 0x7fffu) == 0x7c00u ? (uint16_t)((h & 0x8000u) | 0x7bffu) : h;
}

#endif
