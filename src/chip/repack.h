/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of model files to quantised panels without widening them to f32 in between: the numbers
 * are copied, the scales too. So a panel weighs exactly what the file's block weighs:
 *
 *     Q8_0, Q5_0, IQ4_NL → q8      Q4_0 → q4      Q4_1 → q4m         to the bit
 *     MXFP4 → q8                   where the exponent fits f16, which has 2^-24 … 2^15
 *     Q4_K → q4k, Q5_K → q5k, Q6_K → q6k       to the bit
 *     Q3_K → q8                    to the bit
 *     Q5_1 → q8                    minimum and scale become one scale: put_q8_offset()
 *
 * Other pairs go through f32 (dequant.h, quant.h). Any thread; a block is written by one.
 */
#ifndef ECH_CHIP_REPACK_H
#define ECH_CHIP_REPACK_H

#include "src/chip/pack.h"

/* Whether there is a way without f32. */
bool ech_repack_has(ech_src_type source, ech_pack_type type);
/*
 * n columns, whole source blocks, of one row (lane) of a panel of the type that ech_repack_has()
 * for the source, from column k on, a multiple of a source block's.
 */
void ech_repack(ech_src_type source, const void *src, uint64_t n, char *panel, uint32_t lane,
                uint64_t k);

#endif
