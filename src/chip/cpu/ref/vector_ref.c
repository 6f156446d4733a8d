/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels along a row, in plain C: what every other version must equal bit for bit. Sums run in 16
 * lanes that are folded at the end (ops.h), the order that SIMD registers of any width can follow.
 */
#include <math.h>

#include "src/chip/cpu/exp.h"
#include "src/chip/cpu/ref/ref.h"

#define LANES 16

static float fold(float lanes[LANES])
{
    for (uint32_t half = LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

void ech_k_rms_norm_ref(const float *const x, const float *const w, const uint32_t n,
                        const float eps, float *const y)
{
    float lanes[LANES] = { 0 };
    for (uint32_t i = 0; i < n; i++)
        lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    const float inv = 1.0f / sqrtf(fold(lanes) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = w != NULL ? x[i] * inv * w[i] : x[i] * inv;
}

void ech_k_to_bf16_ref(const float *const x, const uint32_t n, uint16_t *const y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = ech_bf16_from_f32(x[i]);
    if (n % 2 != 0) y[n] = 0;
}

void ech_k_to_f16_ref(const float *const x, const uint32_t n, uint16_t *const y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = ech_f16_from_f32_clamped(x[i]);
}

void ech_k_add_ref(float *const y, const float *const x, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] += x[i];
}

void ech_k_swiglu_ref(const float *const gate, const float *const up, const uint32_t n,
                      float *const y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + ech_exp_ref(-gate[i])) * up[i];
}

float ech_k_softmax_ref(float *const s, const uint32_t n, const float scale, float *const ret_max)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        s[i] *= scale;
        if (s[i] > max) max = s[i];
    }
    float lanes[LANES] = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        s[i] = ech_exp_ref(s[i] - max);
        lanes[i % LANES] += s[i];
    }
    *ret_max = max;
    return fold(lanes);
}

void ech_k_mix_ref(float *const y, const float a, const float *const x, const float b,
                   const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(y[i], a, x[i] * b);
}

void ech_k_rope_ref(float *const a, float *const b, const float *const cos_in,
                    const float *const sin_in, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float a0 = a[i], b0 = b[i];
        a[i] = a0 * cos_in[i] - b0 * sin_in[i];
        b[i] = b0 * cos_in[i] + a0 * sin_in[i];
    }
}

void ech_k_scale_ref(float *const y, const float *const x, const float a, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * a;
}
