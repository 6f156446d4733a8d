/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What packing does number by number, as a table that an instruction set overrides. Plain C is the
 * specification (pack_ops.c, quant.c); every version gives the same bytes. Checked by
 * tests/kernels.
 */
#ifndef ECH_CHIP_PACK_OPS_H
#define ECH_CHIP_PACK_OPS_H

#include "src/chip/quant.h"

typedef struct ech_pack_ops {
    /* n numbers of 16 bits, any alignment, to f32. */
    void (*widen_bf16)(const void *src, uint32_t n, float *y);
    void (*widen_f16)(const void *src, uint32_t n, float *y);
    /* A whole block of 32 numbers, any of them NaN or infinite. */
    void (*quantise)(ech_pack_type type, const float *x, ech_quant_block *b);
    /* 16 rows of n 32-bit words, row_bytes apart and of any alignment, to dst[n][16]. */
    void (*interleave32)(const void *src, size_t row_bytes, uint64_t n, uint32_t *dst);
} ech_pack_ops;

/* The table for these features (ECH_CPU_* of cpu/ops.h). */
const ech_pack_ops *ech_pack_ops_for(uint32_t features);
extern const ech_pack_ops ech_pack_ops_ref, ech_pack_ops_avx2;

#endif
