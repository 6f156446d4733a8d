/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what this aarch64 CPU has, from what the kernel reports, and fills the table. NEON with FMA
 * is part of the baseline. What runs along a row stays plain C: the compiler has FMA there too.
 */
#include <sys/auxv.h>

#include "src/chip/cpu/arm/init.h"
#include "src/chip/cpu/arm/kernels.h"

/* Bits of AT_HWCAP and AT_HWCAP2, which are part of the kernel's interface. */
#define HAS_ASIMDDP (1ul << 20)
#define HAS_I8MM    (1ul << 13)

uint32_t ech_cpu_features_arm(void)
{
    uint32_t features = ECH_CPU_NEON;
    if ((getauxval(AT_HWCAP) & HAS_ASIMDDP) != 0) features |= ECH_CPU_DOTPROD;
    if ((getauxval(AT_HWCAP2) & HAS_I8MM) != 0) features |= ECH_CPU_I8MM;
    return features;
}

void ech_cpu_ops_init_arm(ech_cpu_ops *const ops, const uint32_t features)
{
    if ((features & ECH_CPU_NEON) == 0) return;
    ops->name = "neon";
    ops->mm[ECH_PACK_F32][ECH_ACT_F32] = ech_k_mm_f32_f32_neon;
    ops->mm[ECH_PACK_F16][ECH_ACT_F32] = ech_k_mm_f16_f32_neon;
    ops->mm[ECH_PACK_BF16][ECH_ACT_F32] = ech_k_mm_bf16_f32_neon;
    ops->mm[ECH_PACK_S8][ECH_ACT_F32] = ech_k_mm_s8_f32_neon;
    ops->widen[ECH_PACK_F16] = ech_k_widen_f16_neon;
    ops->widen[ECH_PACK_S8] = ech_k_widen_s8_neon;
    if ((features & ECH_CPU_DOTPROD) == 0) return;
    ops->name = "dotprod";
    ops->mm[ECH_PACK_Q8][ECH_ACT_Q8] = ech_k_mm_q8_q8_dotprod;
    ops->mm[ECH_PACK_Q6K][ECH_ACT_Q8] = ech_k_mm_q6k_q8_dotprod;
    ops->mm[ECH_PACK_Q4][ECH_ACT_Q8] = ech_k_mm_q4_q8_dotprod;
    ops->mm[ECH_PACK_Q4M][ECH_ACT_Q8] = ech_k_mm_q4m_q8_dotprod;
    ops->mm[ECH_PACK_Q4K][ECH_ACT_Q8] = ech_k_mm_q4k_q8_dotprod;
    ops->mm[ECH_PACK_Q5K][ECH_ACT_Q8] = ech_k_mm_q5k_q8_dotprod;
    if ((features & ECH_CPU_I8MM) == 0) return;
    ops->name = "i8mm";
    ops->mm[ECH_PACK_Q8][ECH_ACT_Q8] = ech_k_mm_q8_q8_i8mm;
    ops->mm[ECH_PACK_Q6K][ECH_ACT_Q8] = ech_k_mm_q6k_q8_i8mm;
    ops->mm[ECH_PACK_Q4][ECH_ACT_Q8] = ech_k_mm_q4_q8_i8mm;
    ops->mm[ECH_PACK_Q4M][ECH_ACT_Q8] = ech_k_mm_q4m_q8_i8mm;
    ops->mm[ECH_PACK_Q4K][ECH_ACT_Q8] = ech_k_mm_q4k_q8_i8mm;
    ops->mm[ECH_PACK_Q5K][ECH_ACT_Q8] = ech_k_mm_q5k_q8_i8mm;
}
