/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products for NEON: four registers hold one k of a panel's 16 rows. Chains as
 * ref/mm_ref.c has them, so the bits are equal. 16 accumulators of the 32 registers.
 */
#include <arm_neon.h>

#define TILE_MAX_ROWS  4
#define TILE_PANELS(n) 1
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);

#include "src/chip/cpu/arm/kernels.h"
#include "src/chip/cpu/mm_tile.h"

#define QUARTERS 4 /* of a panel's rows */

ALWAYS_INLINE float32x4_t widen_f32(const char *const panel, const uint32_t k, const uint32_t i)
{
    return vld1q_f32((const float *)panel + (size_t)k * ECH_PANEL + i * 4);
}

ALWAYS_INLINE float32x4_t widen_f16(const char *const panel, const uint32_t k, const uint32_t i)
{
    return vcvt_f32_f16(
        vreinterpret_f16_u16(vld1_u16((const uint16_t *)panel + (size_t)k * ECH_PANEL + i * 4)));
}

/* Pairs of k are neighbours: the even one is shifted up, the odd one masked. */
ALWAYS_INLINE float32x4_t widen_bf16(const char *const panel, const uint32_t k, const uint32_t i)
{
    const uint32x4_t pair =
        vld1q_u32((const uint32_t *)panel + (size_t)(k / 2) * ECH_PANEL + i * 4);
    return vreinterpretq_f32_u32(k % 2 == 0 ? vshlq_n_u32(pair, 16)
                                            : vandq_u32(pair, vdupq_n_u32(0xffff0000u)));
}

ALWAYS_INLINE float32x4_t widen_s8(const char *const panel, const uint32_t k, const uint32_t i)
{
    int32_t four;
    __builtin_memcpy(&four, panel + (size_t)k * ECH_PANEL + i * 4, sizeof(four));
    const int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

#define TILE(name, widen)                                                                          \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        float32x4_t acc[QUARTERS][TILE_MAX_ROWS], w[QUARTERS];                                     \
        const float *x[TILE_MAX_ROWS];                                                             \
        panels w_at;                                                                               \
        take_rows(a, r, n_rows, x);                                                                \
        UNROLL for (uint32_t i = 0; i < QUARTERS; i++)                                             \
            UNROLL for (uint32_t j = 0; j < n_rows; j++) acc[i][j] = vdupq_n_f32(0);               \
        for (uint32_t part = 0; part < a->n_parts; part++) {                                       \
            const uint32_t n = take_panels(a, part, p, n_panels, n_rows, &w_at);                   \
            for (uint32_t k = 0; k < n; k++) {                                                     \
                UNROLL for (uint32_t i = 0; i < QUARTERS; i++) w[i] = widen(w_at.now[0], k, i);    \
                UNROLL for (uint32_t j = 0; j < n_rows; j++)                                       \
                    UNROLL for (uint32_t i = 0; i < QUARTERS; i++) acc[i][j] =                     \
                        vfmaq_n_f32(acc[i][j], w[i], x[j][k]);                                     \
            }                                                                                      \
            advance_rows(n, n_rows, x);                                                            \
        }                                                                                          \
        UNROLL for (uint32_t i = 0; i < QUARTERS; i++)                                             \
            UNROLL for (uint32_t j = 0; j < n_rows; j++)                                           \
                vst1q_f32(output_at(a, p, r + j) + i * 4, acc[i][j]);                              \
    }

TILE(tile_f32, widen_f32)
TILE(tile_f16, widen_f16)
TILE(tile_bf16, widen_bf16)
TILE(tile_s8, widen_s8)

MM_KERNEL(ech_k_mm_f32_f32_neon, tile_f32)
MM_KERNEL(ech_k_mm_f16_f32_neon, tile_f16)
MM_KERNEL(ech_k_mm_bf16_f32_neon, tile_bf16)
MM_KERNEL(ech_k_mm_s8_f32_neon, tile_s8)

/* ---- panels as f32 ----------------------------------------------------------------------------
 */

#define WIDEN_KERNEL(name, widen)                                                                  \
    void name(const void *const from, const uint32_t n, const void *const next, void *const to)    \
    {                                                                                              \
        (void)next;                                                                                \
        for (uint32_t k = 0; k < n; k++)                                                           \
            UNROLL for (uint32_t i = 0; i < QUARTERS; i++)                                         \
                vst1q_f32((float *)to + (size_t)k * ECH_PANEL + i * 4, widen(from, k, i));         \
    }

WIDEN_KERNEL(ech_k_widen_f16_neon, widen_f16)
WIDEN_KERNEL(ech_k_widen_s8_neon, widen_s8)
