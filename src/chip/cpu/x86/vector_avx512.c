/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels along a row for AVX-512: the 16 lanes of ref/vector_ref.c are one zmm; every operation
 * and its order are the same, so the bits are equal. Tails are masked, idle lanes give zeros.
 */
#include <immintrin.h>
#include <math.h>

#include "src/chip/cpu/exp.h"
#include "src/chip/cpu/x86/kernels.h"

#define LANES 16

/* Lanes 0 … n-1. */
static inline __mmask16 mask_of(const uint32_t n)
{
    const uint32_t all = 0xffff;
    return (__mmask16)(n >= LANES ? all : all & ~(all << n));
}

static inline float fold(const __m512 v)
{
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

static inline __m512 exp16(const __m512 arg)
{
    const __m512 x = _mm512_min_ps(_mm512_set1_ps(ECH_EXP_HI), arg);
    const __m512 magic = _mm512_set1_ps(ECH_EXP_MAGIC);
    const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(ECH_EXP_LOG2E), magic);
    const __m512 n = _mm512_sub_ps(t, magic);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-ECH_EXP_LN2_LO),
                                     _mm512_fmadd_ps(n, _mm512_set1_ps(-ECH_EXP_LN2_HI), x));
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(ECH_EXP_C5), r, _mm512_set1_ps(ECH_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(ECH_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(ECH_EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(ECH_EXP_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(ECH_EXP_C0));
    const __m512 y =
        _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r), _mm512_set1_ps(1.0f));
    const __m512i scaled =
        _mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(t), 23));
    /* Not less than, NaN included: keep. */
    const __mmask16 keep = _mm512_cmp_ps_mask(arg, _mm512_set1_ps(ECH_EXP_LO), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(keep, _mm512_castsi512_ps(scaled));
}

void ech_k_rms_norm_avx512(const float *const x, const float *const w, const uint32_t n,
                           const float eps, float *const y)
{
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES) {
        const __m512 v = _mm512_maskz_loadu_ps(mask_of(n - i), x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    const __m512 inv = _mm512_set1_ps(1.0f / sqrtf(fold(sum) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), inv);
        if (w != NULL) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + i));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

void ech_k_to_bf16_avx512(const float *const x, const uint32_t n, uint16_t *const y)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512i u = _mm512_castps_si512(_mm512_maskz_loadu_ps(m, x + i));
        const __m512i bit = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        const __m512i rounded =
            _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), bit);
        const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
        const __m512i magnitude = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
        const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
        const __m512i v = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16);
        _mm256_mask_storeu_epi16(y + i, m, _mm512_cvtepi32_epi16(v));
    }
    if (n % 2 != 0) y[n] = 0;
}

void ech_k_to_f16_avx512(const float *const x, const uint32_t n, uint16_t *const y)
{
    const __m512 max = _mm512_set1_ps(65504.0f), min = _mm512_set1_ps(-65504.0f);
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        /* NaN as second operand passes min and max. */
        const __m512 v = _mm512_max_ps(min, _mm512_min_ps(max, _mm512_maskz_loadu_ps(m, x + i)));
        _mm256_mask_storeu_epi16(y + i, m, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

void ech_k_add_avx512(float *const y, const float *const x, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        _mm512_mask_storeu_ps(
            y + i, m,
            _mm512_add_ps(_mm512_maskz_loadu_ps(m, y + i), _mm512_maskz_loadu_ps(m, x + i)));
    }
}

void ech_k_swiglu_avx512(const float *const gate, const float *const up, const uint32_t n,
                         float *const y)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512 g = _mm512_maskz_loadu_ps(m, gate + i);
        const __m512 minus = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(g), sign));
        const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(minus)));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

float ech_k_softmax_avx512(float *const s, const uint32_t n, const float scale,
                           float *const ret_max)
{
    const __m512 vscale = _mm512_set1_ps(scale), lowest = _mm512_set1_ps(-INFINITY);
    __m512 vmax = lowest;
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, s + i), vscale);
        _mm512_mask_storeu_ps(s + i, m, v);
        /* v first: NaN in it leaves vmax. */
        vmax = _mm512_max_ps(_mm512_mask_mov_ps(lowest, m, v), vmax);
    }
    const float max = _mm512_reduce_max_ps(vmax);
    vmax = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + i), vmax));
        _mm512_mask_storeu_ps(s + i, m, e);
        sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(m, e));
    }
    *ret_max = max;
    return fold(sum);
}

void ech_k_mix_avx512(float *const y, const float a, const float *const x, const float b,
                      const uint32_t n)
{
    const __m512 va = _mm512_set1_ps(a), vb = _mm512_set1_ps(b);
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512 xb = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), vb);
        _mm512_mask_storeu_ps(y + i, m, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, y + i), va, xb));
    }
}

void ech_k_rope_avx512(float *const a, float *const b, const float *const cos_in,
                       const float *const sin_in, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        const __m512 a0 = _mm512_maskz_loadu_ps(m, a + i), b0 = _mm512_maskz_loadu_ps(m, b + i);
        const __m512 c = _mm512_maskz_loadu_ps(m, cos_in + i);
        const __m512 s = _mm512_maskz_loadu_ps(m, sin_in + i);
        _mm512_mask_storeu_ps(a + i, m, _mm512_sub_ps(_mm512_mul_ps(a0, c), _mm512_mul_ps(b0, s)));
        _mm512_mask_storeu_ps(b + i, m, _mm512_add_ps(_mm512_mul_ps(b0, c), _mm512_mul_ps(a0, s)));
    }
}

void ech_k_scale_avx512(float *const y, const float *const x, const float a, const uint32_t n)
{
    const __m512 va = _mm512_set1_ps(a);
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 m = mask_of(n - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), va));
    }
}
