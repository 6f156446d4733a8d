/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of quantised weights and activations, and the activations' quantisation, in plain C:
 * what every other version must equal, integers and floats (quant.h has the formulas).
 */
#include <math.h>

#include "src/chip/cpu/ref/ref.h"
#include "src/chip/half.h"
#include "src/chip/quant.h"

/* Below it a block counts as zeros: 127 / 1e-30 is still a number. */
#define TINY 1e-30f

void ech_k_to_q8_ref(const float *const x, const uint32_t n, const int32_t factor, void *const row,
                     const uint32_t first, const uint32_t end)
{
    const uint32_t n_blocks = ech_quant_blocks(n);
    int8_t *const q = row;
    float *const s = (float *)(q + (size_t)n_blocks * ECH_QUANT_BLOCK);
    int32_t *const c = (int32_t *)(s + n_blocks);
    for (uint32_t b = first; b < end; b++) {
        const uint32_t from = b * ECH_QUANT_BLOCK;
        const uint32_t len = from >= n                    ? 0
                             : n - from < ECH_QUANT_BLOCK ? n - from
                                                          : ECH_QUANT_BLOCK;
        uint32_t max = 0; /* of magnitudes, as bits: infinities and NaN are the largest */
        for (uint32_t i = 0; i < len; i++) {
            const uint32_t bits = ech_f32_bits(x[from + i]) & 0x7fffffffu;
            max = bits > max ? bits : max;
        }
        const float amax = ech_f32_from_bits(max);
        const bool is_finite = max < 0x7f800000u, is_zero = amax < TINY;
        const float inverse = is_finite && !is_zero ? 127.0f / amax : 0.0f;
        s[b] = !is_finite ? NAN : is_zero ? 0.0f : amax / 127.0f;
        int32_t sum[2] = { 0, 0 };
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++) {
            const float v = i < len && is_finite ? x[from + i] * inverse : 0.0f;
            q[from + i] = (int8_t)(ech_f32_bits(v + 0x1.8p+23f) & 0xffu);
            sum[i / 16] += q[from + i];
        }
        ech_quant_put_c(c, b, sum[0], sum[1], factor);
    }
}

/* Stored weight (0 … 255, 63, 31 or 15) of column i of a block. */
static int32_t stored(const ech_pack_type type, const uint8_t *const data, const uint32_t lane,
                      const uint32_t i)
{
    if (type == ECH_PACK_Q8) return data[(i / 4) * 64 + lane * 4 + i % 4];
    if (type == ECH_PACK_Q6K) {
        const uint8_t *const at = data + i / 16 * 192 + lane * 4 + i % 4;
        if (i % 16 < 12) return at[i % 16 / 4 * 64] & 63;
        return at[0] >> 6 | at[64] >> 6 << 2 | at[128] >> 6 << 4;
    }
    const uint8_t pair = data[(i % 16 / 4) * 64 + lane * 4 + i % 4];
    const int32_t nibble = i < 16 ? pair & 15 : pair >> 4;
    if (type == ECH_PACK_Q5K) return nibble | (data[256 + lane * 4 + i % 4] >> i / 4 & 1) << 4;
    if (type != ECH_PACK_Q6) return nibble;
    const uint8_t high = data[256 + (i / 4 % 2) * 64 + lane * 4 + i % 4];
    return nibble | (high >> i / 8 * 2 & 3) << 4;
}

/* d and m of a block's first and second part: halves (q6k), else the block's scale and minimum. */
static void scales_of(const ech_pack_type type, const char *const unit, const uint32_t in,
                      const uint32_t lane, float *const ret_d, float *const ret_m)
{
    const uint8_t *const data = (const uint8_t *)unit, *const at =
                                                           data + ech_quant_data_bytes(type);
    if (type == ECH_PACK_Q6K) {
        const float d =
            ech_f16_to_f32(((const uint16_t *)(unit + ech_quant_factor_at(type)))[lane]);
        *ret_d = d * (float)(int8_t)at[2 * in * ECH_PANEL + lane];
        *ret_m = d * (float)(int8_t)at[(2 * in + 1) * ECH_PANEL + lane];
        return;
    }
    if (ech_quant_is_super(type)) {
        const uint16_t *const f = (const uint16_t *)(unit + ech_quant_factor_at(type));
        const uint32_t low = at[in * ECH_PANEL + lane];
        const uint32_t high =
            data[ech_quant_high_at(type) + in / 2 * ECH_PANEL + lane] >> in % 2 * 4 & 15u;
        *ret_d = ech_f16_to_f32(f[lane]) * (float)((low & 15u) | (high & 3u) << 4);
        *ret_m = ech_f16_to_f32(f[ECH_PANEL + lane]) * (float)(low >> 4 | high >> 2 << 4);
        return;
    }
    const uint16_t *const scales = (const uint16_t *)at;
    *ret_d = ech_f16_to_f32(scales[in * ECH_PANEL + lane]);
    if (type == ECH_PACK_Q4M) *ret_m = ech_f16_to_f32(scales[(2 + in) * ECH_PANEL + lane]);
}

static float add_block(const ech_pack_type type, const char *const unit, const uint32_t in,
                       const uint32_t lane, const int8_t *const q, const float s,
                       const int32_t *const c, const float acc)
{
    const uint8_t *const data = (const uint8_t *)unit + in * ech_quant_block_bytes(type);
    float d = 0.0f, m = 0.0f;
    int32_t halves[2] = { 0, 0 };
    scales_of(type, unit, in, lane, &d, &m);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        halves[i / 16] += stored(type, data, lane, i) * q[i];
    const int32_t sum = halves[0] + halves[1];
    if (ech_quant_has_min(type)) return fmaf(fmaf((float)sum, d, (float)*c * m), s, acc);
    if (type != ECH_PACK_Q6K) return fmaf((float)(sum + *c), d * s, acc);
    const float first = (float)(halves[0] + c[0]), second = (float)(halves[1] + c[1]);
    return fmaf(fmaf(second, m, first * d), s, acc);
}

static void mm_quant(const ech_mm_args *const a, const ech_pack_type type)
{
    const uint32_t n_blocks = ech_quant_blocks(a->k_last), each = type == ECH_PACK_Q6K ? 2 : 1;
    const uint32_t per_unit = ech_quant_unit_cols(type) / ECH_QUANT_BLOCK;
    for (uint32_t p = 0; p < a->n_panels; p++)
        for (uint32_t r = 0; r < a->n_rows; r++) {
            const int8_t *const q = (const int8_t *)a->x + r * a->x_stride;
            const float *const s = (const float *)(q + (size_t)n_blocks * ECH_QUANT_BLOCK);
            const int32_t *const c = (const int32_t *)(s + n_blocks);
            for (uint32_t lane = 0; lane < ECH_PANEL; lane++) {
                float acc = 0.0f;
                for (uint32_t b = 0; b < n_blocks; b++)
                    acc = add_block(
                        type, (const char *)a->w[p] + b / per_unit * ech_quant_unit_bytes(type),
                        b % per_unit, lane, q + b * ECH_QUANT_BLOCK, s[b], c + b * each, acc);
                a->y[r * a->y_stride + (size_t)p * ECH_PANEL + lane] = acc;
            }
        }
}

void ech_k_mm_q8_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q8);
}

void ech_k_mm_q6_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q6);
}

void ech_k_mm_q4_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q4);
}

void ech_k_mm_q4m_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q4M);
}

void ech_k_mm_q6k_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q6K);
}

void ech_k_mm_q4k_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q4K);
}

void ech_k_mm_q5k_q8_ref(const ech_mm_args *const a)
{
    mm_quant(a, ECH_PACK_Q5K);
}
