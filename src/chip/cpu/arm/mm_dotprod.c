/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products with sdot. It takes signed bytes only: of a stored 8-bit weight, w + 128, the
 * upper bit is flipped, and the sums get back what the offset would have added, 128 times the sum
 * of the activations; both exact. Nibbles are small enough as they are. Nothing can overflow:
 * 32 * 128 * 127 < 2^20.
 */
#define TILE_MAX_ROWS 3
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);

#include "src/chip/cpu/arm/mm_quant.h"

/* Group g of 4 columns of quarter i. */
ALWAYS_INLINE int8x16_t group(const ech_pack_type type, const uint8_t *const data, const uint32_t g,
                              const uint32_t i)
{
    if (type == ECH_PACK_Q8)
        return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(data + g * 64 + i * 16), vdupq_n_u8(0x80)));
    if (type == ECH_PACK_Q6K) return vreinterpretq_s8_u8(group_q6k(data, g, i));
    return vreinterpretq_s8_u8(group_nibbles(type, data, g, i));
}

ALWAYS_INLINE void sums(const ech_pack_type type, const uint8_t *const data,
                        const act_rows *const x, const uint32_t block, const groups some,
                        const uint32_t n_rows, int32x4_t sum[QUARTERS][MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        /* c is -128 times the activations' sum. */
        const int32_t c = type == ECH_PACK_Q8 ? word(x, j, x->c + (size_t)block * 4) : 0;
        UNROLL for (uint32_t i = 0; i < QUARTERS; i++) sum[i][j] = vdupq_n_s32(-c);
    }
    UNROLL for (uint32_t g = some.from; g < some.to; g++)
        UNROLL for (uint32_t i = 0; i < QUARTERS; i++)
    {
        const int8x16_t w = group(type, data, g, i);
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const int32_t quad = word(x, j, (size_t)block * ECH_QUANT_BLOCK + g * 4);
            sum[i][j] = vdotq_s32(sum[i][j], w, vreinterpretq_s8_s32(vdupq_n_s32(quad)));
        }
    }
}

MM_KERNEL(ech_k_mm_q8_q8_dotprod, tile_q8)
MM_KERNEL(ech_k_mm_q6k_q8_dotprod, tile_q6k)
MM_KERNEL(ech_k_mm_q4_q8_dotprod, tile_q4)
MM_KERNEL(ech_k_mm_q4m_q8_dotprod, tile_q4m)
MM_KERNEL(ech_k_mm_q4k_q8_dotprod, tile_q4k)
MM_KERNEL(ech_k_mm_q5k_q8_dotprod, tile_q5k)
