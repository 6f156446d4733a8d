/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Panels of one type as panels of another, in plain C. What is read by hundreds of queries is
 * widened once for all of them; a product of the widened panel has the bits of one of the panel.
 */
#include <string.h>

#include "src/chip/cpu/ref/ref.h"
#include "src/chip/half.h"

void ech_k_widen_f16_ref(const void *const from, const uint32_t n, const void *const next,
                         void *const to)
{
    (void)next;
    for (size_t i = 0; i < (size_t)n * ECH_PANEL; i++)
        ((float *)to)[i] = ech_f16_to_f32(((const uint16_t *)from)[i]);
}

void ech_k_widen_s8_ref(const void *const from, const uint32_t n, const void *const next,
                        void *const to)
{
    (void)next;
    for (size_t i = 0; i < (size_t)n * ECH_PANEL; i++)
        ((float *)to)[i] = (float)((const int8_t *)from)[i];
}

void ech_k_round_f16_ref(const void *const from, const uint32_t n, const void *const next,
                         void *const to)
{
    (void)next;
    uint16_t *const pairs = to;
    for (uint32_t k = 0; k < (n + 1) / 2 * 2; k++)
        for (uint32_t i = 0; i < ECH_PANEL; i++)
            pairs[((size_t)(k / 2) * ECH_PANEL + i) * 2 + k % 2] =
                k < n ? ech_bf16_from_f32(
                            ech_f16_to_f32(((const uint16_t *)from)[(size_t)k * ECH_PANEL + i]))
                      : 0;
}

void ech_k_round_bf16_ref(const void *const from, const uint32_t n, const void *const next,
                          void *const to)
{
    (void)next;
    uint16_t *const pairs = to;
    memcpy(pairs, from, (size_t)(n + 1) / 2 * 2 * ECH_PANEL * sizeof(*pairs));
    for (uint32_t i = 0; i < ECH_PANEL && n % 2 != 0; i++)
        pairs[((size_t)(n / 2) * ECH_PANEL + i) * 2 + 1] = 0;
}
