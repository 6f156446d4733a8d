/* SPDX-License-Identifier: Apache-2.0 */
/* The aarch64 kernels' names, for the files that put them into the table. */
#ifndef ECH_CHIP_CPU_ARM_KERNELS_H
#define ECH_CHIP_CPU_ARM_KERNELS_H

#include "src/chip/cpu/ops.h"

ech_mm_fn ech_k_mm_f32_f32_neon;
ech_mm_fn ech_k_mm_f16_f32_neon;
ech_mm_fn ech_k_mm_bf16_f32_neon;
ech_mm_fn ech_k_mm_s8_f32_neon;
ech_panel_fn ech_k_widen_f16_neon;
ech_panel_fn ech_k_widen_s8_neon;

ech_mm_fn ech_k_mm_q8_q8_dotprod;
ech_mm_fn ech_k_mm_q6k_q8_dotprod;
ech_mm_fn ech_k_mm_q4_q8_dotprod;
ech_mm_fn ech_k_mm_q4m_q8_dotprod;
ech_mm_fn ech_k_mm_q4k_q8_dotprod;
ech_mm_fn ech_k_mm_q5k_q8_dotprod;

ech_mm_fn ech_k_mm_q8_q8_i8mm;
ech_mm_fn ech_k_mm_q6k_q8_i8mm;
ech_mm_fn ech_k_mm_q4_q8_i8mm;
ech_mm_fn ech_k_mm_q4m_q8_i8mm;
ech_mm_fn ech_k_mm_q4k_q8_i8mm;
ech_mm_fn ech_k_mm_q5k_q8_i8mm;

#endif
