/* SPDX-License-Identifier: Apache-2.0 */
/* The plain C kernels, the specification of all others (ops.h says what each computes). */
#ifndef ECH_CHIP_CPU_REF_H
#define ECH_CHIP_CPU_REF_H

#include "src/chip/cpu/ops.h"

ech_mm_fn ech_k_mm_f32_f32_ref;
ech_mm_fn ech_k_mm_f16_f32_ref;
ech_mm_fn ech_k_mm_bf16_f32_ref;
ech_mm_fn ech_k_mm_s8_f32_ref;
ech_mm_fn ech_k_mm_bf16_bf16_ref;

ech_mm_fn ech_k_mm_q8_q8_ref;
ech_mm_fn ech_k_mm_q6_q8_ref;
ech_mm_fn ech_k_mm_q6k_q8_ref;
ech_mm_fn ech_k_mm_q4_q8_ref;
ech_mm_fn ech_k_mm_q4m_q8_ref;
ech_mm_fn ech_k_mm_q4k_q8_ref;
ech_mm_fn ech_k_mm_q5k_q8_ref;

ech_panel_fn ech_k_widen_f16_ref;
ech_panel_fn ech_k_widen_s8_ref;
ech_panel_fn ech_k_round_f16_ref;
ech_panel_fn ech_k_round_bf16_ref;

void ech_k_to_q8_ref(const float *x, uint32_t n, int32_t factor, void *row, uint32_t first,
                     uint32_t end);
void ech_k_rms_norm_ref(const float *x, const float *w, uint32_t n, float eps, float *y);
void ech_k_to_bf16_ref(const float *x, uint32_t n, uint16_t *y);
void ech_k_to_f16_ref(const float *x, uint32_t n, uint16_t *y);
void ech_k_add_ref(float *y, const float *x, uint32_t n);
void ech_k_swiglu_ref(const float *gate, const float *up, uint32_t n, float *y);
float ech_k_softmax_ref(float *s, uint32_t n, float scale, float *ret_max);
void ech_k_mix_ref(float *y, float a, const float *x, float b, uint32_t n);
void ech_k_rope_ref(float *a, float *b, const float *cos_in, const float *sin_in, uint32_t n);
void ech_k_scale_ref(float *y, const float *x, float a, uint32_t n);

#endif
