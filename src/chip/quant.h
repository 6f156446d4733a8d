/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised panels and quantised activations: where each number lies, and the arithmetic that
 * defines them. Blocks are 32 columns of one row; a panel is cut into units of 2 or 8 blocks:
 *
 *     q8    [2 blocks][8 groups][16 rows][4 k] bytes q + 128     [2][16] f16 d          1088 bytes
 *     q4    [2 blocks][4 groups][16 rows][4 k] nibbles q         [2][16] f16 d           576 bytes
 *     q4m   as q4                                  [2][16] f16 d, [2][16] f16 m          640 bytes
 *     q6    [2 blocks]{ [4 groups][16 rows][4 k] low nibbles,
 *                       [2][16 rows][4 k] pairs of high bits }    [2][16] f16 d           832 bytes
 *     q4k   [8 blocks][4 groups][16 rows][4 k] nibbles q
 *           [8 blocks][16] bytes: low nibbles of scale and minimum
 *           [4 pairs of blocks][16] bytes: their high bits  [16] f16 d, [16] f16 m       2304 bytes
 *     q5k   [8 blocks]{ nibbles as in q4k, [16 rows][4 k] fifth bits }, then as q4k      2816 bytes
 *     q6k   [8 blocks][2 halves][3][16 rows][4 k] bytes
 *           [8 blocks][2 halves][16] int8 scales  [16] f16 d, 32 bytes of zeros          3392 bytes
 *
 *     weight:  q8  d * q, q = -128 … 127     q4  d * (q - 8)     q4m  d * q + m, q = 0 … 15
 *              q6  d * (q - 32), q = 0 … 63
 *              q4k, q5k  d * scale * q - m * minimum, both of the block, 0 … 63
 *              q6k d * scale * (q - 32), scale of the block's half
 *     nibbles: byte (j, row, i): low  k = 4 j + i, high k = 4 (j + 4) + i
 *     pairs:   byte (j, row, i): bits 2 c, 2 c + 1 are those of k = 4 (j + 2 c) + i
 *     scales of q4k, q5k: low byte: bits 0 … 3 of the scale, then of the minimum; high byte: bits 4
 *              and 5 of the even block's scale, of its minimum, then of the odd block's
 *     fifth bits: bit g of byte (row, i) is that of k = 4 g + i
 *     q6k:     byte (j, row, i) of half h: bits 0 … 5 are k = 16 h + 4 j + i, bits 6 and 7 are bits
 *              2 j and 2 j + 1 of k = 16 h + 12 + i
 *
 * One 64-byte load is 4 columns of 16 rows, what vpdpbusd sums. Padding rows weigh 0: their d and
 * m are; of padding columns the activations are 0. A product reads two blocks at a time: of a last
 * unit of 8 maybe only the first 2, 4 or 6.
 *
 * An activation row, prepared for weights of one type:
 *
 *     int8 q[columns, to 64]     f32 s[blocks]     i32 c[blocks], of q6k [blocks][2]
 *
 * x is about s * q; c is the block's sum of q times what the weights' offset needs: -128 (q8), -32
 * (q6), -8 (q4), 1 (q4m), -1 (q4k, q5k); for q6k -32 times the sum of each half. A product over K
 * is, blocks in ascending order:
 *
 *     q8, q6, q4   i = sum of (stored q) * (activation q) + c              exact
 *              acc = fma(i, d * s, acc)
 *     q4m      acc = fma(fma(i, d, c * m), s, acc), i without c
 *     q4k, q5k the same with d * scale and m * minimum, which are exact, instead of d and m
 *     q6k      acc = fma(fma(i1, d1, i0 * d0), s, acc), i and d * scale (exact) of the halves, each
 *              with its c
 */
#ifndef ECH_CHIP_QUANT_H
#define ECH_CHIP_QUANT_H

#include "src/chip/image.h"

#define ECH_QUANT_BLOCK 32
#define ECH_QUANT_UNIT  64 /* columns: a product takes whole ones */
#define ECH_QUANT_SUPER 256

/* Whether its units are super-blocks: 8 blocks whose scales share a factor. */
static inline bool ech_quant_is_super(const ech_pack_type type)
{
    return type == ECH_PACK_Q4K || type == ECH_PACK_Q5K || type == ECH_PACK_Q6K;
}

static inline bool ech_pack_is_quant(const ech_pack_type type)
{
    return type == ECH_PACK_Q8 || type == ECH_PACK_Q6 || type == ECH_PACK_Q4 ||
           type == ECH_PACK_Q4M || ech_quant_is_super(type);
}

static inline uint32_t ech_quant_unit_cols(const ech_pack_type type)
{
    return ech_quant_is_super(type) ? ECH_QUANT_SUPER : ECH_QUANT_UNIT;
}

/* Columns that ech_quant_put() takes at most: what has scales of its own. */
static inline uint32_t ech_quant_put_cols(const ech_pack_type type)
{
    return ech_quant_is_super(type) ? ECH_QUANT_SUPER : ECH_QUANT_BLOCK;
}

/* A block's place in its unit. */
static inline uint32_t ech_quant_in_unit(const ech_pack_type type, const uint32_t block)
{
    return block % (ech_quant_unit_cols(type) / ECH_QUANT_BLOCK);
}

/* Bytes of a block's numbers, of 16 rows. */
static inline uint32_t ech_quant_block_bytes(const ech_pack_type type)
{
    if (type == ECH_PACK_Q8) return 512;
    if (type == ECH_PACK_Q5K) return 320;
    return type == ECH_PACK_Q6 || type == ECH_PACK_Q6K ? 384 : 256;
}

/* Bytes of a unit's numbers, and of a whole unit. */
static inline uint32_t ech_quant_data_bytes(const ech_pack_type type)
{
    return ech_quant_block_bytes(type) * (ech_quant_unit_cols(type) / ECH_QUANT_BLOCK);
}

static inline uint32_t ech_quant_unit_bytes(const ech_pack_type type)
{
    const uint32_t data = ech_quant_data_bytes(type);
    if (type == ECH_PACK_Q4K || type == ECH_PACK_Q5K) return data + 128 + 64 + 64;
    if (type == ECH_PACK_Q6K) return data + 256 + 64;
    return data + (type == ECH_PACK_Q4M ? 128 : 64);
}

/* A pair of blocks' share of a unit. */
static inline uint32_t ech_quant_pair_bytes(const ech_pack_type type)
{
    return ech_quant_unit_bytes(type) / (ech_quant_unit_cols(type) / ECH_QUANT_UNIT);
}

/* From a unit's first byte: high bits of q4k's and q5k's scales. */
static inline uint32_t ech_quant_high_at(const ech_pack_type type)
{
    return ech_quant_data_bytes(type) + 128;
}

/* The same: a super-block's f16 d and m, of q6k d alone. */
static inline uint32_t ech_quant_factor_at(const ech_pack_type type)
{
    return ech_quant_data_bytes(type) + (type == ECH_PACK_Q6K ? 256 : 128 + 64);
}

/* Whether a block has a minimum, m. */
static inline bool ech_quant_has_min(const ech_pack_type type)
{
    return type == ECH_PACK_Q4M || type == ECH_PACK_Q4K || type == ECH_PACK_Q5K;
}

/* The factor that stands for two sums, of a block's halves, times -32. */
#define ECH_QUANT_HALVES 0

/* What a block's sum is multiplied with. */
static inline int32_t ech_quant_factor(const ech_pack_type type)
{
    if (type == ECH_PACK_Q6K) return ECH_QUANT_HALVES;
    if (type == ECH_PACK_Q4K || type == ECH_PACK_Q5K) return -1;
    return type == ECH_PACK_Q8 ? -128 : type == ECH_PACK_Q6 ? -32 : type == ECH_PACK_Q4 ? -8 : 1;
}

static inline uint32_t ech_quant_blocks(const uint64_t cols)
{
    return (uint32_t)((cols + ECH_QUANT_UNIT - 1) / ECH_QUANT_UNIT * 2);
}

/* Block b's of a row's c, whose halves' activations have these sums. */
static inline void ech_quant_put_c(int32_t *const c, const uint32_t b, const int32_t first,
                                   const int32_t second, const int32_t factor)
{
    if (factor != ECH_QUANT_HALVES) {
        c[b] = (first + second) * factor;
        return;
    }
    c[2 * (size_t)b] = first * -32;
    c[2 * (size_t)b + 1] = second * -32;
}

/* Bytes of a prepared activation row, for weights of any type. */
static inline uint64_t ech_quant_row_bytes(const uint64_t cols)
{
    return (uint64_t)ech_quant_blocks(cols) * (ECH_QUANT_BLOCK + 12);
}

/* A block: what is stored of its numbers (q + 128 in q8), scale and, of q4m, minimum as f16. */
typedef struct ech_quant_block {
    uint16_t d, m;
    uint8_t q[ECH_QUANT_BLOCK];
} ech_quant_block;

/* A super-block of one row: q4k and q5k have a scale and a minimum a block, q6k a scale for each
 * half. */
typedef struct ech_quant_super {
    uint16_t d, m;
    int8_t scale[16];
    uint8_t min[8];
    uint8_t q[ECH_QUANT_SUPER];
} ech_quant_super;

/* The block of one row (lane) of a panel at column k, a multiple of 32; not of a type with
 * super-blocks. */
void ech_quant_store(char *panel, ech_pack_type type, uint32_t lane, uint64_t k,
                     const ech_quant_block *b);
/* The super-block of one row (lane) of a panel at column k, a multiple of 256. */
void ech_quant_store_super(char *panel, ech_pack_type type, uint32_t lane, uint64_t k,
                           const ech_quant_super *b);
/* n <= 32 numbers as a block of that type: which scale, which integers. */
void ech_quantise(ech_pack_type type, const float *x, uint32_t n, ech_quant_block *b);
/*
 * Columns of one row (lane) of a panel, from n <= ech_quant_put_cols() numbers; k is a multiple of
 * that.
 */
void ech_quant_put(char *panel, ech_pack_type type, uint32_t lane, uint64_t k, const float *x,
                   uint32_t n);
/* Columns [0, n) of one row of a panel. */
void ech_quant_get(const char *panel, ech_pack_type type, uint32_t lane, uint32_t n, float *y);

#endif
