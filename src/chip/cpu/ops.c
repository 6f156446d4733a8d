/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the kernel table: ref first, then upward with early returns for what the CPU has. The only
 * place that knows which instruction sets there are; run once per chip child.
 */
#include "src/chip/cpu/ops.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/chip/cpu/ref/ref.h"
#if defined(__x86_64__)
#include "src/chip/cpu/x86/init.h"
#elif defined(__aarch64__)
#include "src/chip/cpu/arm/init.h"
#endif

static const ech_cpu_ops ref_ops = {
    .name = "ref",
    .mm = {
        [ECH_PACK_F32] = { [ECH_ACT_F32] = ech_k_mm_f32_f32_ref },
        [ECH_PACK_F16] = { [ECH_ACT_F32] = ech_k_mm_f16_f32_ref },
        [ECH_PACK_BF16] = { [ECH_ACT_F32] = ech_k_mm_bf16_f32_ref,
                            [ECH_ACT_BF16] = ech_k_mm_bf16_bf16_ref },
        [ECH_PACK_S8] = { [ECH_ACT_F32] = ech_k_mm_s8_f32_ref },
            [ECH_PACK_Q8] = { [ECH_ACT_Q8] = ech_k_mm_q8_q8_ref },
            [ECH_PACK_Q6] = { [ECH_ACT_Q8] = ech_k_mm_q6_q8_ref },
            [ECH_PACK_Q6K] = { [ECH_ACT_Q8] = ech_k_mm_q6k_q8_ref },
            [ECH_PACK_Q4] = { [ECH_ACT_Q8] = ech_k_mm_q4_q8_ref },
            [ECH_PACK_Q4M] = { [ECH_ACT_Q8] = ech_k_mm_q4m_q8_ref },
            [ECH_PACK_Q4K] = { [ECH_ACT_Q8] = ech_k_mm_q4k_q8_ref },
            [ECH_PACK_Q5K] = { [ECH_ACT_Q8] = ech_k_mm_q5k_q8_ref },
    },
    .widen = {
        [ECH_PACK_F16] = ech_k_widen_f16_ref,
        [ECH_PACK_S8] = ech_k_widen_s8_ref,
    },
    .round = { [ECH_PACK_F16] = ech_k_round_f16_ref, [ECH_PACK_BF16] = ech_k_round_bf16_ref },
    .to_q8 = ech_k_to_q8_ref,
    .rms_norm = ech_k_rms_norm_ref,
    .to_bf16 = ech_k_to_bf16_ref,
    .to_f16 = ech_k_to_f16_ref,
    .add = ech_k_add_ref,
    .swiglu = ech_k_swiglu_ref,
    .softmax = ech_k_softmax_ref,
    .mix = ech_k_mix_ref,
    .rope = ech_k_rope_ref,
    .scale = ech_k_scale_ref,
};

uint32_t ech_cpu_features(void)
{
#if defined(__x86_64__)
    return ech_cpu_features_x86();
#elif defined(__aarch64__)
    return ech_cpu_features_arm();
#else
    return 0;
#endif
}

uint32_t ech_cpu_features_mask(const ech_isa isa)
{
    switch (isa) {
    case ECH_ISA_REF:
        return 0;
    case ECH_ISA_AVX2:
        return ECH_CPU_V3;
    case ECH_ISA_AVX512:
    case ECH_ISA_AUTO:
        break;
    }
    return UINT32_MAX;
}

ech_status ech_cpu_features_allowed(uint32_t *const ret_features, ech_error *const err)
{
    static const struct {
        const char *word;
        ech_isa isa;
    } words[] = { { "ref", ECH_ISA_REF }, { "avx2", ECH_ISA_AVX2 }, { "avx512", ECH_ISA_AVX512 } };
    const char *const value = getenv("ECHELON_CPU");
    if (value == NULL || value[0] == 0) {
        *ret_features = ech_cpu_features();
        return ECH_OK;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(value, words[i].word) == 0) {
            *ret_features = ech_cpu_features() & ech_cpu_features_mask(words[i].isa);
            return ECH_OK;
        }
    return ech_fail(err, ECH_EINVAL,
                    "choosing kernels: ECHELON_CPU is \"%.40s\", known are ref, avx2, avx512",
                    value);
}

void ech_cpu_ops_init(ech_cpu_ops *const ops, const uint32_t features)
{
    *ops = ref_ops;
#if defined(__x86_64__)
    ech_cpu_ops_init_x86(ops, features);
#elif defined(__aarch64__)
    ech_cpu_ops_init_arm(ops, features);
#else
    (void)features;
#endif
}
