/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised blocks of model files to f32, as the `gguf` package computes them: the same products
 * and sums in f32, in the same order, so that the results are equal to the bit.
 *
 * Of the 32-blocks, s an f16 scale, m an f16 minimum, h 32 high bits:
 *
 *     Q4_0    s, 32 nibbles, offset 8          Q8_0    s, 32 signed bytes
 *     Q4_1    s, m, nibbles                    IQ4_NL  s, nibbles into a table
 *     Q5_0    s, h, nibbles, offset 16         MXFP4   8-bit exponent, nibbles into a table
 *     Q5_1    s, m, h, nibbles
 *
 * Of the 256-blocks, with scales of their parts:
 *
 *     Q2_K    16 scales and minimums of 4 bits, 2-bit numbers, s, m
 *     Q3_K    high bits, 2-bit numbers, 16 scales of 6 bits, s
 *     Q4_K    s, m, 8 scales and minimums of 6 bits, nibbles
 *     Q5_K    s, m, 8 scales and minimums of 6 bits, high bits, nibbles
 *     Q6_K    nibbles, 2 high bits, 16 scales of 8 bits, s
 */
#ifndef ECH_CHIP_DEQUANT_H
#define ECH_CHIP_DEQUANT_H

#include "src/chip/pack.h"

/* Numbers in a block of the type and bytes that it takes; 1 and the size of one for plain types. */
uint32_t ech_src_block_elems(ech_src_type type);
uint32_t ech_src_block_bytes(ech_src_type type);
/* n numbers, whole blocks, of any source type to out. src has any alignment. */
void ech_dequant(ech_src_type type, const void *src, uint64_t n, float *out);

/* What repack.c shares: the tables, MXFP4's scale (half of 2^(e - 127)), and Q4_K's scale and
 * minimum j of 8, six bits each in twelve bytes. */
extern const int8_t ech_iq4_nl_values[16];
extern const int8_t ech_mxfp4_values[16];
float ech_mxfp4_scale(uint8_t e);
void ech_q4_k_scale(const uint8_t *s, uint32_t j, uint32_t *ret_scale, uint32_t *ret_min);

#endif
