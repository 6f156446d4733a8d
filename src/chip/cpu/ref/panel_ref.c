/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Panels of one type as panels of another, in plain C. What is read by hundreds of queries is
 * widened once for all of them; a product of the widened panel has the bits of one of the panel.
 */
#include "src/chip/cpu/ref/ref.h"
#include "src/chip/half.h"

void ech_k_widen_f16_ref(const void *const from, const uint32_t n, void *const to)
{
    for (size_t i = 0; i < (size_t)n * ECH_PANEL; i++)
        ((float *)to)[i] = ech_f16_to_f32(((const uint16_t *)from)[i]);
}

void ech_k_widen_bf16_ref(const void *const from, const uint32_t n, void *const to)
{
    const uint16_t *const pairs = from;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < ECH_PANEL; i++)
            ((float *)to)[(size_t)k * ECH_PANEL + i] =
                ech_bf16_to_f32(pairs[((size_t)(k / 2) * ECH_PANEL + i) * 2 + k % 2]);
}

void ech_k_widen_s8_ref(const void *const from, const uint32_t n, void *const to)
{
    for (size_t i = 0; i < (size_t)n * ECH_PANEL; i++)
        ((float *)to)[i] = (float)((const int8_t *)from)[i];
}
