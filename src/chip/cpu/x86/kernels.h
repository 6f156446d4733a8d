/* SPDX-License-Identifier: Apache-2.0 */
/* The x86 kernels' names, for the files that put them into the table. */
#ifndef ECH_CHIP_CPU_X86_KERNELS_H
#define ECH_CHIP_CPU_X86_KERNELS_H

#include "src/chip/cpu/ops.h"

#define ECH_VECTOR_KERNELS(isa)                                                                    \
    void ech_k_rms_norm_##isa(const float *x, const float *w, uint32_t n, float eps, float *y);    \
    void ech_k_to_bf16_##isa(const float *x, uint32_t n, uint16_t *y);                             \
    void ech_k_to_f16_##isa(const float *x, uint32_t n, uint16_t *y);                              \
    void ech_k_add_##isa(float *y, const float *x, uint32_t n);                                    \
    void ech_k_swiglu_##isa(const float *gate, const float *up, uint32_t n, float *y);             \
    float ech_k_softmax_##isa(float *s, uint32_t n, float scale, float *ret_max);                  \
    void ech_k_mix_##isa(float *y, float a, const float *x, float b, uint32_t n);                  \
    void ech_k_rope_##isa(float *a, float *b, const float *cos_in, const float *sin_in,            \
                          uint32_t n);                                                             \
    void ech_k_scale_##isa(float *y, const float *x, float a, uint32_t n)

ech_mm_fn ech_k_mm_f32_f32_avx2;
ech_mm_fn ech_k_mm_f16_f32_avx2;
ech_mm_fn ech_k_mm_bf16_f32_avx2;
ech_mm_fn ech_k_mm_s8_f32_avx2;
ech_mm_fn ech_k_mm_bf16_bf16_avx2;
ech_mm_fn ech_k_mm_q8_q8_avx2;
ech_mm_fn ech_k_mm_q6_q8_avx2;
ech_mm_fn ech_k_mm_q6k_q8_avx2;
ech_mm_fn ech_k_mm_q4_q8_avx2;
ech_mm_fn ech_k_mm_q4m_q8_avx2;
ech_mm_fn ech_k_mm_q4k_q8_avx2;
ech_mm_fn ech_k_mm_q5k_q8_avx2;
void ech_k_to_q8_avx2(const float *x, uint32_t n, int32_t factor, void *row, uint32_t first,
                      uint32_t end);
ech_panel_fn ech_k_widen_f16_avx2;
ech_panel_fn ech_k_widen_s8_avx2;
ech_panel_fn ech_k_round_f16_avx2;
ECH_VECTOR_KERNELS(avx2);

ech_mm_fn ech_k_mm_f32_f32_avx512;
ech_mm_fn ech_k_mm_f16_f32_avx512;
ech_mm_fn ech_k_mm_bf16_f32_avx512;
ech_mm_fn ech_k_mm_s8_f32_avx512;
ech_panel_fn ech_k_widen_f16_avx512;
ech_panel_fn ech_k_widen_s8_avx512;
ECH_VECTOR_KERNELS(avx512);

ech_mm_fn ech_k_mm_q8_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q6_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q6k_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q4_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q4m_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q4k_q8_avx512_vnni;
ech_mm_fn ech_k_mm_q5k_q8_avx512_vnni;

ech_mm_fn ech_k_mm_bf16_bf16_avx512_bf16;
ech_panel_fn ech_k_round_f16_avx512_bf16;
ech_panel_fn ech_k_round_bf16_avx512_bf16;

#endif
