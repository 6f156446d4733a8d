/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what this x86 CPU has. A level is a set of features that always come together, and counts
 * only when the operating system saves the registers (XGETBV). Compiled for the baseline.
 */
#include <cpuid.h>

#include "src/chip/cpu/x86/init.h"
#include "src/chip/cpu/x86/kernels.h"

/* State components of XCR0. */
#define XCR0_YMM 0x06u
#define XCR0_ZMM 0xe6u

static uint32_t xcr0(void)
{
    uint32_t eax = 0, edx = 0;
    __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return eax;
}

static bool has_all(const uint32_t reg, const uint32_t bits)
{
    return (reg & bits) == bits;
}

/* The part of the levels that leaf 7 decides. */
static uint32_t features_of_leaf7(const bool is_v3, const uint32_t saved)
{
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0, eax1 = 0, unused = 0;
    if (!is_v3 || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 ||
        !has_all(ebx, bit_BMI | bit_AVX2 | bit_BMI2))
        return 0;
    uint32_t features = ECH_CPU_V3;
    if (!has_all(saved, XCR0_ZMM) ||
        !has_all(ebx, bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL))
        return features;
    features |= ECH_CPU_V4;
    if (has_all(ecx, bit_AVX512VNNI)) features |= ECH_CPU_V4_VNNI;
    if (__get_cpuid_count(7, 1, &eax1, &unused, &unused, &unused) != 0 &&
        has_all(eax1, bit_AVX512BF16))
        features |= ECH_CPU_V4_BF16;
    return features;
}

uint32_t ech_cpu_features_x86(void)
{
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !has_all(ecx, bit_OSXSAVE)) return 0;
    const uint32_t saved = xcr0();
    const bool is_v3 = has_all(ecx, bit_AVX | bit_FMA | bit_F16C) && has_all(saved, XCR0_YMM);
    return features_of_leaf7(is_v3, saved);
}

static void use_avx2(ech_cpu_ops *const ops)
{
    ops->name = "avx2";
    ops->mm[ECH_PACK_F32][ECH_ACT_F32] = ech_k_mm_f32_f32_avx2;
    ops->mm[ECH_PACK_F16][ECH_ACT_F32] = ech_k_mm_f16_f32_avx2;
    ops->mm[ECH_PACK_BF16][ECH_ACT_F32] = ech_k_mm_bf16_f32_avx2;
    ops->mm[ECH_PACK_BF16][ECH_ACT_BF16] = ech_k_mm_bf16_bf16_avx2;
    ops->mm[ECH_PACK_S8][ECH_ACT_F32] = ech_k_mm_s8_f32_avx2;
    ops->mm[ECH_PACK_Q8][ECH_ACT_Q8] = ech_k_mm_q8_q8_avx2;
    ops->mm[ECH_PACK_Q6][ECH_ACT_Q8] = ech_k_mm_q6_q8_avx2;
    ops->mm[ECH_PACK_Q6K][ECH_ACT_Q8] = ech_k_mm_q6k_q8_avx2;
    ops->mm[ECH_PACK_Q4][ECH_ACT_Q8] = ech_k_mm_q4_q8_avx2;
    ops->mm[ECH_PACK_Q4M][ECH_ACT_Q8] = ech_k_mm_q4m_q8_avx2;
    ops->mm[ECH_PACK_Q4K][ECH_ACT_Q8] = ech_k_mm_q4k_q8_avx2;
    ops->mm[ECH_PACK_Q5K][ECH_ACT_Q8] = ech_k_mm_q5k_q8_avx2;
    ops->to_q8 = ech_k_to_q8_avx2;
    ops->widen[ECH_PACK_F16] = ech_k_widen_f16_avx2;
    ops->widen[ECH_PACK_S8] = ech_k_widen_s8_avx2;
    ops->round[ECH_PACK_F16] = ech_k_round_f16_avx2;
    ops->rms_norm = ech_k_rms_norm_avx2;
    ops->to_bf16 = ech_k_to_bf16_avx2;
    ops->to_f16 = ech_k_to_f16_avx2;
    ops->add = ech_k_add_avx2;
    ops->swiglu = ech_k_swiglu_avx2;
    ops->softmax = ech_k_softmax_avx2;
    ops->mix = ech_k_mix_avx2;
    ops->rope = ech_k_rope_avx2;
    ops->scale = ech_k_scale_avx2;
}

static void use_avx512(ech_cpu_ops *const ops)
{
    ops->name = "avx512";
    ops->mm[ECH_PACK_F32][ECH_ACT_F32] = ech_k_mm_f32_f32_avx512;
    ops->mm[ECH_PACK_F16][ECH_ACT_F32] = ech_k_mm_f16_f32_avx512;
    ops->mm[ECH_PACK_BF16][ECH_ACT_F32] = ech_k_mm_bf16_f32_avx512;
    ops->mm[ECH_PACK_S8][ECH_ACT_F32] = ech_k_mm_s8_f32_avx512;
    ops->widen[ECH_PACK_F16] = ech_k_widen_f16_avx512;
    ops->widen[ECH_PACK_S8] = ech_k_widen_s8_avx512;
    ops->rms_norm = ech_k_rms_norm_avx512;
    ops->to_bf16 = ech_k_to_bf16_avx512;
    ops->to_f16 = ech_k_to_f16_avx512;
    ops->add = ech_k_add_avx512;
    ops->swiglu = ech_k_swiglu_avx512;
    ops->softmax = ech_k_softmax_avx512;
    ops->mix = ech_k_mix_avx512;
    ops->rope = ech_k_rope_avx512;
    ops->scale = ech_k_scale_avx512;
}

void ech_cpu_ops_init_x86(ech_cpu_ops *const ops, const uint32_t features)
{
    if (!has_all(features, ECH_CPU_V3)) return;
    use_avx2(ops);
    if (!has_all(features, ECH_CPU_V4)) return;
    use_avx512(ops);
    if (has_all(features, ECH_CPU_V4_VNNI)) {
        ops->name = "avx512_vnni";
        ops->mm[ECH_PACK_Q8][ECH_ACT_Q8] = ech_k_mm_q8_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q6][ECH_ACT_Q8] = ech_k_mm_q6_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q6K][ECH_ACT_Q8] = ech_k_mm_q6k_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q4][ECH_ACT_Q8] = ech_k_mm_q4_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q4M][ECH_ACT_Q8] = ech_k_mm_q4m_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q4K][ECH_ACT_Q8] = ech_k_mm_q4k_q8_avx512_vnni;
        ops->mm[ECH_PACK_Q5K][ECH_ACT_Q8] = ech_k_mm_q5k_q8_avx512_vnni;
    }
    if (!has_all(features, ECH_CPU_V4_BF16)) return;
    ops->name = "avx512_bf16";
    ops->mm[ECH_PACK_BF16][ECH_ACT_BF16] = ech_k_mm_bf16_bf16_avx512_bf16;
    ops->round[ECH_PACK_F16] = ech_k_round_f16_avx512_bf16;
    ops->round[ECH_PACK_BF16] = ech_k_round_bf16_avx512_bf16;
}
