/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this CPU could do at most: loops of the bare operation that matrix products are made of, in
 * registers alone, and of plain reads. A measured speed is held against these. One file per
 * instruction set, chosen as the kernels are; ref/ where there is nothing better.
 *
 *     int8   avx512_vnni  vpdpbusd zmm             avx2  vpmaddubsw, vpmaddwd and vpaddd ymm
 *     bf16   avx512_bf16  vdpbf16ps zmm            else  as f32
 *     f32    avx512       vfmadd231ps zmm          avx2  vfmadd231ps ymm
 *
 * Independent accumulators, enough of them to hide the latency. No state, any thread.
 */
#ifndef ECH_CHIP_CPU_PEAK_H
#define ECH_CHIP_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

typedef enum ech_peak_kind {
    ECH_PEAK_OF_INT8,
    ECH_PEAK_OF_BF16,
    ECH_PEAK_OF_F32,
    ECH_PEAK_KINDS,
} ech_peak_kind;

#define ECH_READ_STREAMS 4
#define PEAK_UNROLL      _Pragma("GCC unroll 16")

/* Does `rounds` rounds; returns the multiply-accumulates done. */
typedef uint64_t ech_peak_fn(uint64_t rounds);
/* Reads `bytes` (a multiple of 256) from each stream, in turns. */
typedef void ech_read_fn(const void *const streams[ECH_READ_STREAMS], size_t bytes);

typedef struct ech_peak_ops {
    ech_peak_fn *peak[ECH_PEAK_KINDS];
    const char *loop[ECH_PEAK_KINDS]; /* the instructions, for people */
    ech_read_fn *read;
} ech_peak_ops;

/* features: ECH_CPU_* bits (ops.h). */
void ech_peak_ops_init(ech_peak_ops *ops, uint32_t features);

ech_peak_fn ech_peak_int8_ref;
ech_peak_fn ech_peak_f32_ref;
ech_read_fn ech_peak_read_ref;

ech_peak_fn ech_peak_int8_avx2;
ech_peak_fn ech_peak_f32_avx2;
ech_read_fn ech_peak_read_avx2;
ech_peak_fn ech_peak_f32_avx512;
ech_read_fn ech_peak_read_avx512;
ech_peak_fn ech_peak_int8_avx512_vnni;
ech_peak_fn ech_peak_bf16_avx512_bf16;

#endif
