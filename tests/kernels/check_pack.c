/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing's loops against ref: equal bytes, whatever the numbers are, unaligned, before a guard
 * page.
 */
#include <math.h>
#include <string.h>

#include "src/chip/pack_ops.h"
#include "tests/kernels/kernels.h"

enum { BLOCKS = 4000 };

/* Blocks of all kinds: ordinary, odd, of few values (ties, both signs of zero), of one, tiny. */
static void draw_block(float *const x, const uint32_t kind)
{
    static const float few[] = { -1.0f, 1.0f, 0.0f, -0.0f, 0.5f, -0.5f, 2.0f, -2.0f };
    const float one = draw_f32(true);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++) {
        x[i] = draw_f32(kind == 1);
        if (kind == 2) x[i] = few[draw() % 8];
        if (kind == 3) x[i] = one;
        if (kind == 4) x[i] *= 0x1p-140f;
        if (kind == 5) x[i] = fabsf(x[i]) + 1.0f;
        if (kind == 6) x[i] = few[draw() % 4];
        if (kind == 7) x[i] = draw() % 8 == 0 ? NAN : x[i];
    }
}

static void check_quantise(const level *const l, const ech_pack_ops *const ops)
{
    static const ech_pack_type types[] = { ECH_PACK_Q8, ECH_PACK_Q6, ECH_PACK_Q4, ECH_PACK_Q4M };
    float *const x = guard_alloc(ECH_QUANT_BLOCK * sizeof(float));
    for (uint32_t n = 0; n < BLOCKS; n++) {
        draw_block(x, n % 8);
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
            ech_quant_block got = { 0 }, want = { 0 };
            ops->quantise(types[t], x, &got);
            ech_pack_ops_ref.quantise(types[t], x, &want);
            n_checks++;
            if (memcmp(&got, &want, sizeof(got)) != 0)
                report(l->name, "quantise", "%s, kind %u: d %04x, expected %04x; m %04x, %04x",
                       ech_pack_type_name(types[t]), n % 8, got.d, want.d, got.m, want.m);
        }
    }
    guard_free(x, ECH_QUANT_BLOCK * sizeof(float));
}

static void check_widen(const level *const l, const ech_pack_ops *const ops)
{
    for (uint32_t n = 1; n < 70; n++) {
        uint16_t *const src = guard_alloc(2 * (size_t)n);
        float *const got = guard_alloc(4 * (size_t)n), *const want = guard_alloc(4 * (size_t)n);
        for (uint32_t i = 0; i < n; i++)
            src[i] = (uint16_t)draw();
        for (int half = 0; half < 2; half++) {
            (half != 0 ? ops->widen_f16 : ops->widen_bf16)(src, n, got);
            (half != 0 ? ech_pack_ops_ref.widen_f16 : ech_pack_ops_ref.widen_bf16)(src, n, want);
            n_checks++;
            for (uint32_t i = 0; i < n; i++)
                if (!same_f32(got[i], want[i]))
                    report(l->name, half != 0 ? "widen_f16" : "widen_bf16", "n %u: element %u", n,
                           i);
        }
        guard_free(src, 2 * (size_t)n);
        guard_free(got, 4 * (size_t)n);
        guard_free(want, 4 * (size_t)n);
    }
}

static void check_interleave(const level *const l, const ech_pack_ops *const ops)
{
    for (uint64_t n = 1; n < 40; n++) {
        const size_t row = 4 * n + n % 3, bytes = 15 * row + 4 * n; /* rows begin anywhere */
        const size_t out = n * ECH_PANEL * 4;
        char *const src = guard_alloc(bytes);
        uint32_t *const got = guard_alloc(out), *const want = guard_alloc(out);
        for (size_t i = 0; i < bytes; i++)
            src[i] = (char)draw();
        ops->interleave32(src, row, n, got);
        ech_pack_ops_ref.interleave32(src, row, n, want);
        n_checks++;
        if (memcmp(got, want, out) != 0) report(l->name, "interleave32", "%u words", (unsigned)n);
        guard_free(src, bytes);
        guard_free(got, out);
        guard_free(want, out);
    }
}

void check_pack(const level *const l)
{
    const ech_pack_ops *const ops = ech_pack_ops_for(l->features);
    check_quantise(l, ops);
    check_widen(l, ops);
    check_interleave(l, ops);
}
