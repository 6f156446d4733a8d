/* SPDX-License-Identifier: Apache-2.0 */
/* Packing's loops in plain C, and the choice of a table. No state, any thread. */
#include "src/chip/pack_ops.h"

#include <string.h>

#include "src/chip/cpu/ops.h"
#include "src/chip/half.h"

static void widen_bf16(const void *const src, const uint32_t n, float *const y)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, (const char *)src + 2 * (size_t)i, sizeof(h));
        y[i] = ech_bf16_to_f32(h);
    }
}

static void widen_f16(const void *const src, const uint32_t n, float *const y)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, (const char *)src + 2 * (size_t)i, sizeof(h));
        y[i] = ech_f16_to_f32(h);
    }
}

static void quantise(const ech_pack_type type, const float *const x, ech_quant_block *const b)
{
    ech_quantise(type, x, ECH_QUANT_BLOCK, b);
}

static void interleave32(const void *const src, const size_t row_bytes, const uint64_t n,
                         uint32_t *const dst)
{
    for (uint64_t k = 0; k < n; k++)
        for (uint32_t r = 0; r < ECH_PANEL; r++)
            memcpy(&dst[k * ECH_PANEL + r], (const char *)src + r * row_bytes + 4 * k, 4);
}

const ech_pack_ops ech_pack_ops_ref = { widen_bf16, widen_f16, quantise, interleave32 };

const ech_pack_ops *ech_pack_ops_for(const uint32_t features)
{
#if defined(__x86_64__)
    if (features & ECH_CPU_V3) return &ech_pack_ops_avx2;
#else
    (void)features;
#endif
    return &ech_pack_ops_ref;
}
