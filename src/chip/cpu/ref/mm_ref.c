/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product, in plain C: what every other version must equal. y[r, p * 16 + i] is one
 * chain of fused multiply-adds over k in ascending order. Any number of rows, any k.
 *
 * fmaf() is a function call where the compiler may not assume FMA; that is the price of being
 * exact everywhere.
 */
#include <math.h>

#include "src/chip/cpu/ref/ref.h"
#include "src/chip/half.h"

typedef float widen_fn(const void *panel, uint32_t k, uint32_t lane);

static float widen_f32(const void *const panel, const uint32_t k, const uint32_t lane)
{
    return ((const float *)panel)[(size_t)k * ECH_PANEL + lane];
}

static float widen_f16(const void *const panel, const uint32_t k, const uint32_t lane)
{
    return ech_f16_to_f32(((const uint16_t *)panel)[(size_t)k * ECH_PANEL + lane]);
}

static float widen_bf16(const void *const panel, const uint32_t k, const uint32_t lane)
{
    return ech_bf16_to_f32(
        ((const uint16_t *)panel)[((size_t)(k / 2) * ECH_PANEL + lane) * 2 + k % 2]);
}

static float widen_s8(const void *const panel, const uint32_t k, const uint32_t lane)
{
    return (float)((const int8_t *)panel)[(size_t)k * ECH_PANEL + lane];
}

static inline const float *row_f32(const ech_mm_args *const a, const uint32_t r)
{
    return (const float *)((const char *)a->x + r * a->x_stride);
}

static inline uint32_t part_size(const ech_mm_args *const a, const uint32_t part)
{
    return part == a->n_parts - 1 ? a->k_last : a->k_part;
}

/* One part of one panel. k runs outside rows, so that a weight is widened once for all of them. */
static inline void mm_part(const ech_mm_args *const a, widen_fn *const widen, const uint32_t part,
                           const uint32_t p)
{
    const void *const panel = a->w[part * a->n_panels + p];
    float *const y = a->y + (size_t)p * ECH_PANEL;
    for (uint32_t k = 0; k < part_size(a, part); k++)
        for (uint32_t i = 0; i < ECH_PANEL; i++) {
            const float w = widen(panel, k, i);
            for (uint32_t r = 0; r < a->n_rows; r++) {
                float *const acc = &y[r * a->y_stride + i];
                *acc = fmaf(w, row_f32(a, r)[part * a->k_part + k], *acc);
            }
        }
}

static inline void mm_f32(const ech_mm_args *const a, widen_fn *const widen)
{
    for (uint32_t r = 0; r < a->n_rows; r++)
        for (uint32_t i = 0; i < a->n_panels * ECH_PANEL; i++)
            a->y[r * a->y_stride + i] = 0.0f;
    for (uint32_t p = 0; p < a->n_panels; p++)
        for (uint32_t part = 0; part < a->n_parts; part++)
            mm_part(a, widen, part, p);
}

void ech_k_mm_f32_f32_ref(const ech_mm_args *const a)
{
    mm_f32(a, widen_f32);
}

void ech_k_mm_f16_f32_ref(const ech_mm_args *const a)
{
    mm_f32(a, widen_f16);
}

void ech_k_mm_bf16_f32_ref(const ech_mm_args *const a)
{
    mm_f32(a, widen_bf16);
}

void ech_k_mm_s8_f32_ref(const ech_mm_args *const a)
{
    mm_f32(a, widen_s8);
}

/* As vdpbf16ps documents it: the odd element first, each step rounded once. */
static float dot_pair(const float acc, const uint16_t *const w, const uint16_t *const x)
{
    const float odd = fmaf(ech_bf16_to_f32(w[1]), ech_bf16_to_f32(x[1]), acc);
    return fmaf(ech_bf16_to_f32(w[0]), ech_bf16_to_f32(x[0]), odd);
}

void ech_k_mm_bf16_bf16_ref(const ech_mm_args *const a)
{
    for (uint32_t p = 0; p < a->n_panels; p++)
        for (uint32_t r = 0; r < a->n_rows; r++)
            for (uint32_t i = 0; i < ECH_PANEL; i++) {
                const uint16_t *x = (const uint16_t *)((const char *)a->x + r * a->x_stride);
                float acc = 0.0f;
                for (uint32_t part = 0; part < a->n_parts; part++, x += a->k_part) {
                    const uint16_t *const w = a->w[part * a->n_panels + p];
                    for (uint32_t k = 0; k < (part_size(a, part) + 1) / 2; k++)
                        acc = dot_pair(acc, w + ((size_t)k * ECH_PANEL + i) * 2, x + (size_t)k * 2);
                }
                a->y[r * a->y_stride + (size_t)p * ECH_PANEL + i] = acc;
            }
}
