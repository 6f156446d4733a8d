/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised blocks of model files to f32, as the `gguf` package computes them: the same products
 * and sums in f32, in the same order, so that the results are equal to the bit.
 *
 * Sizes of blocks and what they hold. s: f16 scale, m: f16 minimum.
 *
 *     Q4_0    32   s, 16 x 2 nibbles, offset 8           Q2_K  256   16 x 4-bit scale and min, 2
 * bits, s, m Q4_1    32   s, m, 16 x 2 nibbles                  Q3_K  256   high bits, 2 bits, 16 x
 * 6-bit scale, s Q5_0    32   s, 32 high bits, nibbles, offset 16   Q4_K  256   s, m, 8 x 6-bit
 * scale and min, nibbles Q5_1    32   s, m, 32 high bits, nibbles           Q5_K  256   as Q4_K
 * with high bits Q8_0    32   s, 32 signed bytes                    Q6_K  256   nibbles, 2 high
 * bits, 16 x scale, s IQ4_NL  32   s, nibbles into a table               MXFP4  32   8-bit
 * exponent, nibbles into a table
 */
#ifndef ECH_CHIP_DEQUANT_H
#define ECH_CHIP_DEQUANT_H

#include "src/chip/pack.h"

/* Numbers in a block of the type and bytes that it takes; 1 and the size of one for plain types. */
uint32_t ech_src_block_elems(ech_src_type type);
uint32_t ech_src_block_bytes(ech_src_type type);
/* n numbers, whole blocks, of any source type to out. src has any alignment. */
void ech_dequant(ech_src_type type, const void *src, uint64_t n, float *out);

#endif
