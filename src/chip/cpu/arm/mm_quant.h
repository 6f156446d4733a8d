/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the quantised products of aarch64 have in common: all but the integer sums of a block. The
 * including file defines TILE_MAX_ROWS and TILE_CASES, and
 *
 *     static ALWAYS_INLINE void sums(ech_pack_type type, const uint8_t *data, const act_rows *x,
 *                                    uint32_t block, groups g, uint32_t n_rows,
 *                                    int32x4_t sum[4][MAX_R])
 *
 * which fills sum[i][j] with the products of stored weights of rows 4 i … 4 i + 3 and activations
 * of row j in those groups of 4 columns, c not yet added. The f32 part is that of ref/quant_ref.c,
 * so the bits are equal.
 */
#ifndef ECH_CHIP_CPU_ARM_MM_QUANT_H
#define ECH_CHIP_CPU_ARM_MM_QUANT_H

#include <arm_neon.h>

#define TILE_PANELS(n) 1

#include "src/chip/cpu/arm/kernels.h"
#include "src/chip/cpu/mm_tile.h"
#include "src/chip/quant.h"

#define QUARTERS 4 /* of a panel's rows */
#define MAX_R    TILE_MAX_ROWS

/* Rows of activations: bytes, then scales, then corrections (quant.h). */
typedef struct act_rows {
    const char *q[MAX_R];
    size_t s, c; /* from a row's first byte */
} act_rows;

ALWAYS_INLINE int32_t word(const act_rows *const x, const uint32_t j, const size_t at)
{
    int32_t v;
    __builtin_memcpy(&v, x->q[j] + at, sizeof(v));
    return v;
}

ALWAYS_INLINE float scale_of(const act_rows *const x, const uint32_t j, const uint32_t block)
{
    float v;
    __builtin_memcpy(&v, x->q[j] + x->s + (size_t)block * 4, sizeof(v));
    return v;
}

/* Four f16 of quarter i of a panel's. */
ALWAYS_INLINE float32x4_t halves_at(const char *const at, const uint32_t i)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)at + i * 4)));
}

/* Four bytes of quarter i of a panel's, to 16 bits. */
ALWAYS_INLINE uint16x4_t bytes_at(const char *const at, const uint32_t i)
{
    uint32_t four;
    __builtin_memcpy(&four, at + i * 4, sizeof(four));
    return vget_low_u16(vmovl_u8(vcreate_u8(four)));
}

/* Scale and minimum of a block of q4k or q5k: 6 bits each, times their factors. */
ALWAYS_INLINE void scales_6bit(const ech_pack_type type, const char *const unit,
                               const uint32_t block, const uint32_t i, float32x4_t *const d,
                               float32x4_t *const m)
{
    const uint32_t in = ech_quant_in_unit(type, block);
    const char *const at = unit + ech_quant_data_bytes(type);
    const char *const factor = unit + ech_quant_factor_at(type);
    const uint16x4_t low = bytes_at(at + in * ECH_PANEL, i);
    const uint16x4_t both = bytes_at(unit + ech_quant_high_at(type) + in / 2 * ECH_PANEL, i);
    const uint16x4_t high = block % 2 == 0 ? both : vshr_n_u16(both, 4);
    const uint16x4_t scale =
        vorr_u16(vand_u16(low, vdup_n_u16(15)), vshl_n_u16(vand_u16(high, vdup_n_u16(3)), 4));
    const uint16x4_t min =
        vorr_u16(vshr_n_u16(low, 4), vshl_n_u16(vand_u16(high, vdup_n_u16(12)), 2));
    *d = vmulq_f32(vcvtq_f32_u32(vmovl_u16(scale)), halves_at(factor, i));
    *m = vmulq_f32(vcvtq_f32_u32(vmovl_u16(min)), halves_at(factor + 32, i));
}

/* Scale of half a block of q6k. */
ALWAYS_INLINE float32x4_t scale_q6k(const char *const unit, const uint32_t block, const uint32_t h,
                                    const uint32_t i)
{
    const uint32_t half = ech_quant_in_unit(ECH_PACK_Q6K, block) * 2 + h;
    int32_t four;
    __builtin_memcpy(&four, unit + ech_quant_data_bytes(ECH_PACK_Q6K) + half * ECH_PANEL + i * 4,
                     sizeof(four));
    const int16x4_t scale = vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)four)));
    return vmulq_f32(vcvtq_f32_s32(vmovl_s16(scale)),
                     halves_at(unit + ech_quant_factor_at(ECH_PACK_Q6K), i));
}

/* An even number of a block's 8 groups of 4 columns. */
typedef struct groups {
    uint32_t from, to;
} groups;

ALWAYS_INLINE void sums(ech_pack_type type, const uint8_t *data, const act_rows *x, uint32_t block,
                        groups g, uint32_t n_rows, int32x4_t sum[QUARTERS][MAX_R]);

/* Group g of quarter i of a block of nibbles; of q5k with their fifth bits. */
ALWAYS_INLINE uint8x16_t group_nibbles(const ech_pack_type type, const uint8_t *const data,
                                       const uint32_t g, const uint32_t i)
{
    const uint8x16_t pair = vld1q_u8(data + g % 4 * 64 + i * 16);
    const uint8x16_t w = g < 4 ? vandq_u8(pair, vdupq_n_u8(15)) : vshrq_n_u8(pair, 4);
    if (type != ECH_PACK_Q5K) return w;
    const uint8x16_t bits = vld1q_u8(data + 256 + i * 16);
    return vorrq_u8(w, vandq_u8(vtstq_u8(bits, vdupq_n_u8((uint8_t)(1u << g))), vdupq_n_u8(16)));
}

/* Group g of quarter i of a block of q6k: the last of four lies in the other ones' spare bits. */
ALWAYS_INLINE uint8x16_t group_q6k(const uint8_t *const data, const uint32_t g, const uint32_t i)
{
    const uint8_t *const at = data + g / 4 * 192 + i * 16;
    if (g % 4 < 3) return vandq_u8(vld1q_u8(at + g % 4 * 64), vdupq_n_u8(63));
    const uint8x16_t b1 = vshlq_n_u8(vshrq_n_u8(vld1q_u8(at + 64), 6), 2);
    const uint8x16_t b2 = vshlq_n_u8(vshrq_n_u8(vld1q_u8(at + 128), 6), 4);
    return vorrq_u8(vshrq_n_u8(vld1q_u8(at), 6), vorrq_u8(b1, b2));
}

/* Each half of a block has its own scale and c. */
ALWAYS_INLINE void block_q6k(const char *const unit, const act_rows *const x, const uint32_t block,
                             const uint32_t n_rows, float32x4_t acc[QUARTERS][MAX_R])
{
    const uint8_t *const data =
        (const uint8_t *)unit + ech_quant_in_unit(ECH_PACK_Q6K, block) * 384;
    int32x4_t sum[2][QUARTERS][MAX_R];
    sums(ECH_PACK_Q6K, data, x, block, (groups){ 0, 4 }, n_rows, sum[0]);
    sums(ECH_PACK_Q6K, data, x, block, (groups){ 4, 8 }, n_rows, sum[1]);
    UNROLL for (uint32_t i = 0; i < QUARTERS; i++)
    {
        const float32x4_t d = scale_q6k(unit, block, 0, i);
        const float32x4_t m = scale_q6k(unit, block, 1, i);
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const int32x4_t c0 = vdupq_n_s32(word(x, j, x->c + (size_t)block * 8));
            const int32x4_t c1 = vdupq_n_s32(word(x, j, x->c + (size_t)block * 8 + 4));
            const float32x4_t f0 = vcvtq_f32_s32(vaddq_s32(sum[0][i][j], c0));
            const float32x4_t f1 = vcvtq_f32_s32(vaddq_s32(sum[1][i][j], c1));
            const float32x4_t s = vdupq_n_f32(scale_of(x, j, block));
            acc[i][j] = vfmaq_f32(acc[i][j], vfmaq_f32(vmulq_f32(f0, d), f1, m), s);
        }
    }
}

ALWAYS_INLINE void one_block(const ech_pack_type type, const char *const unit,
                             const act_rows *const x, const uint32_t block, const uint32_t n_rows,
                             float32x4_t acc[QUARTERS][MAX_R])
{
    int32x4_t sum[QUARTERS][MAX_R];
    if (type == ECH_PACK_Q6K) {
        block_q6k(unit, x, block, n_rows, acc);
        return;
    }
    sums(type, (const uint8_t *)unit + ech_quant_in_unit(type, block) * ech_quant_block_bytes(type),
         x, block, (groups){ 0, 8 }, n_rows, sum);
    UNROLL for (uint32_t i = 0; i < QUARTERS; i++)
    {
        const char *const at = unit + ech_quant_data_bytes(type) + block % 2 * 32;
        const bool has_min = ech_quant_has_min(type);
        float32x4_t d, m;
        if (ech_quant_is_super(type))
            scales_6bit(type, unit, block, i, &d, &m);
        else
            d = halves_at(at, i);
        if (type == ECH_PACK_Q4M) m = halves_at(at + 64, i);
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const float32x4_t s = vdupq_n_f32(scale_of(x, j, block));
            const int32x4_t c = vdupq_n_s32(word(x, j, x->c + (size_t)block * 4));
            if (!has_min) {
                const float32x4_t f = vcvtq_f32_s32(vaddq_s32(sum[i][j], c));
                acc[i][j] = vfmaq_f32(acc[i][j], f, vmulq_f32(d, s));
                continue;
            }
            const float32x4_t cm = vmulq_f32(vcvtq_f32_s32(c), m);
            acc[i][j] = vfmaq_f32(acc[i][j], vfmaq_f32(cm, vcvtq_f32_s32(sum[i][j]), d), s);
        }
    }
}

ALWAYS_INLINE void tile_quant(const ech_pack_type type, const ech_mm_args *const a,
                              const uint32_t p, const uint32_t r, const uint32_t n_rows)
{
    float32x4_t acc[QUARTERS][MAX_R];
    act_rows x;
    const uint32_t n_blocks = ech_quant_blocks(a->k_last);
    const char *unit = keep(a->w[p]);
    const ptrdiff_t ahead = bytes_ahead(a, p, n_rows);
    x.s = (size_t)n_blocks * ECH_QUANT_BLOCK;
    x.c = x.s + (size_t)n_blocks * 4;
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x.q[j] = keep((const char *)row_f32(a, r + j));
    UNROLL for (uint32_t i = 0; i < QUARTERS; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        acc[i][j] = vdupq_n_f32(0);
    for (uint32_t b = 0; b < n_blocks; b += 2) {
        const uint32_t in = ech_quant_in_unit(type, b), pair = ech_quant_pair_bytes(type);
        if (ahead != 0) fetch_unit(unit + in / 2 * pair + ahead, pair);
        one_block(type, unit, &x, b, n_rows, acc);
        one_block(type, unit, &x, b + 1, n_rows, acc);
        if (ech_quant_in_unit(type, b + 2) == 0) unit += ech_quant_unit_bytes(type);
    }
    UNROLL for (uint32_t i = 0; i < QUARTERS; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        vst1q_f32(output_at(a, p, r + j) + i * 4, acc[i][j]);
}

#define TILE(name, type)                                                                           \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        (void)n_panels;                                                                            \
        tile_quant(type, a, p, r, n_rows);                                                         \
    }

TILE(tile_q8, ECH_PACK_Q8)
TILE(tile_q6k, ECH_PACK_Q6K)
TILE(tile_q4, ECH_PACK_Q4)
TILE(tile_q4m, ECH_PACK_Q4M)
TILE(tile_q4k, ECH_PACK_Q4K)
TILE(tile_q5k, ECH_PACK_Q5K)

#endif
