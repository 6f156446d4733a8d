/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products with usmmla: unsigned stored weights, 2 rows by 8 columns, times signed
 * activations, 8 columns by 2 rows, are 4 sums. Two groups of 4 columns are zipped into the 8 that
 * it wants. Nothing can overflow: 32 * 255 * 127 < 2^21.
 */
#define TILE_MAX_ROWS 4
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);

#include "src/chip/cpu/arm/mm_quant.h"

#define EIGHTHS (2 * QUARTERS) /* of a panel's rows: pairs */
#define PAIRS   (MAX_R / 2)    /* of activation rows */

/* Group g of 4 columns of quarter i. */
ALWAYS_INLINE uint32x4_t group(const ech_pack_type type, const uint8_t *const data,
                               const uint32_t g, const uint32_t i)
{
    if (type == ECH_PACK_Q8) return vreinterpretq_u32_u8(vld1q_u8(data + g * 64 + i * 16));
    if (type == ECH_PACK_Q6K) return vreinterpretq_u32_u8(group_q6k(data, g, i));
    return vreinterpretq_u32_u8(group_nibbles(type, data, g, i));
}

/* 8 columns of activation rows 2 j and 2 j + 1; of an odd last row, twice the same. */
ALWAYS_INLINE int8x16_t two_rows(const act_rows *const x, const uint32_t j, const size_t at,
                                 const uint32_t n_rows)
{
    const uint32_t second = 2 * j + 1 < n_rows ? 2 * j + 1 : 2 * j;
    return vcombine_s8(vld1_s8((const int8_t *)x->q[2 * j] + at),
                       vld1_s8((const int8_t *)x->q[second] + at));
}

ALWAYS_INLINE void sums(const ech_pack_type type, const uint8_t *const data,
                        const act_rows *const x, const uint32_t block, const groups some,
                        const uint32_t n_rows, int32x4_t sum[QUARTERS][MAX_R])
{
    int32x4_t four[EIGHTHS][PAIRS]; /* [row 0 x 0, row 0 x 1, row 1 x 0, row 1 x 1] */
    const uint32_t n_pairs = (n_rows + 1) / 2;
    UNROLL for (uint32_t i = 0; i < EIGHTHS; i++) UNROLL for (uint32_t j = 0; j < n_pairs; j++)
        four[i][j] = vdupq_n_s32(0);
    UNROLL for (uint32_t g = some.from; g < some.to; g += 2)
        UNROLL for (uint32_t i = 0; i < QUARTERS; i++)
    {
        const uint32x4_t a = group(type, data, g, i), b = group(type, data, g + 1, i);
        const uint8x16_t low = vreinterpretq_u8_u32(vzip1q_u32(a, b));
        const uint8x16_t high = vreinterpretq_u8_u32(vzip2q_u32(a, b));
        UNROLL for (uint32_t j = 0; j < n_pairs; j++)
        {
            const int8x16_t xj = two_rows(x, j, (size_t)block * ECH_QUANT_BLOCK + g * 4, n_rows);
            four[2 * i][j] = vusmmlaq_s32(four[2 * i][j], low, xj);
            four[2 * i + 1][j] = vusmmlaq_s32(four[2 * i + 1][j], high, xj);
        }
    }
    UNROLL for (uint32_t i = 0; i < QUARTERS; i++) UNROLL for (uint32_t j = 0; j < n_pairs; j++)
    {
        sum[i][2 * j] = vuzp1q_s32(four[2 * i][j], four[2 * i + 1][j]);
        if (2 * j + 1 < n_rows) sum[i][2 * j + 1] = vuzp2q_s32(four[2 * i][j], four[2 * i + 1][j]);
    }
}

MM_KERNEL(ech_k_mm_q8_q8_i8mm, tile_q8)
MM_KERNEL(ech_k_mm_q6k_q8_i8mm, tile_q6k)
MM_KERNEL(ech_k_mm_q4_q8_i8mm, tile_q4)
MM_KERNEL(ech_k_mm_q4m_q8_i8mm, tile_q4m)
MM_KERNEL(ech_k_mm_q4k_q8_i8mm, tile_q4k)
MM_KERNEL(ech_k_mm_q5k_q8_i8mm, tile_q5k)
