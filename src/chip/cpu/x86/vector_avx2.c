/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels along a row for AVX2 and FMA. 16 lanes are two ymm; every operation and its order are
 * those of ref/vector_ref.c, so the bits are equal. Tails are loaded through a mask, whose idle
 * lanes give zeros; only tails are, for a masked store takes Zen some twelve cycles.
 */
#include <immintrin.h>
#include <math.h>

#include "src/chip/cpu/exp.h"
#include "src/chip/cpu/x86/kernels.h"

/* Sixteen lanes. */
typedef struct f32x16 {
    __m256 lo, hi;
} f32x16;

static const int32_t mask_source[16] = { -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0 };

/* Lanes 0 … n-1 of 8. */
static inline __m256i mask_of(const uint32_t n)
{
    return _mm256_loadu_si256((const __m256i *)(mask_source + 8 - (n < 8 ? n : 8)));
}

/* A whole vector, or the first n < 8 numbers of one. */
static inline __m256 load_part(const float *const x, const uint32_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, mask_of(n));
}

static inline void store_part(float *const y, const uint32_t n, const __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, mask_of(n), v);
}

static inline float fold(const f32x16 v)
{
    const __m256 s8 = _mm256_add_ps(v.lo, v.hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

static inline __m256 exp8(const __m256 arg)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 x = _mm256_min_ps(_mm256_set1_ps(ECH_EXP_HI), arg);
    const __m256 magic = _mm256_set1_ps(ECH_EXP_MAGIC);
    const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(ECH_EXP_LOG2E), magic);
    const __m256 n = _mm256_sub_ps(t, magic);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-ECH_EXP_LN2_LO),
                                     _mm256_fmadd_ps(n, _mm256_set1_ps(-ECH_EXP_LN2_HI), x));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(ECH_EXP_C5), r, _mm256_set1_ps(ECH_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ECH_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ECH_EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ECH_EXP_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ECH_EXP_C0));
    const __m256 y = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), one);
    const __m256i scaled =
        _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    const __m256 is_zero = _mm256_cmp_ps(arg, _mm256_set1_ps(ECH_EXP_LO), _CMP_LT_OQ);
    return _mm256_andnot_ps(is_zero, _mm256_castsi256_ps(scaled));
}

void ech_k_rms_norm_avx2(const float *const x, const float *const w, const uint32_t n,
                         const float eps, float *const y)
{
    f32x16 sum = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256 lo = _mm256_loadu_ps(x + i), hi = _mm256_loadu_ps(x + i + 8);
        sum.lo = _mm256_fmadd_ps(lo, lo, sum.lo);
        sum.hi = _mm256_fmadd_ps(hi, hi, sum.hi);
    }
    if (i < n) {
        const uint32_t rest = n - i;
        const __m256 lo = _mm256_maskload_ps(x + i, mask_of(rest));
        const __m256 hi =
            rest > 8 ? _mm256_maskload_ps(x + i + 8, mask_of(rest - 8)) : _mm256_setzero_ps();
        sum.lo = _mm256_fmadd_ps(lo, lo, sum.lo);
        sum.hi = _mm256_fmadd_ps(hi, hi, sum.hi);
    }
    const float inv = 1.0f / sqrtf(fold(sum) / (float)n + eps);
    const __m256 vinv = _mm256_set1_ps(inv);
    for (i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_part(x + i, n - i), vinv);
        if (w != NULL) v = _mm256_mul_ps(v, load_part(w + i, n - i));
        store_part(y + i, n - i, v);
    }
}

void ech_k_to_bf16_avx2(const float *const x, const uint32_t n, uint16_t *const y)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        const __m256i bit = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
        const __m256i rounded =
            _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), bit);
        const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
        const __m256i magnitude = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
        const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
        const __m256i v = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
        _mm_storeu_si128((__m128i *)(y + i), _mm256_castsi256_si128(packed));
    }
    for (; i < n; i++)
        y[i] = ech_bf16_from_f32(x[i]);
    if (n % 2 != 0) y[n] = 0;
}

void ech_k_to_f16_avx2(const float *const x, const uint32_t n, uint16_t *const y)
{
    const __m256 max = _mm256_set1_ps(65504.0f), min = _mm256_set1_ps(-65504.0f);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        /* NaN as second operand passes min and max. */
        const __m256 v = _mm256_max_ps(min, _mm256_min_ps(max, _mm256_loadu_ps(x + i)));
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++)
        y[i] = ech_f16_from_f32_clamped(x[i]);
}

void ech_k_add_avx2(float *const y, const float *const x, const uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

void ech_k_swiglu_avx2(const float *const gate, const float *const up, const uint32_t n,
                       float *const y)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 g = load_part(gate + i, n - i);
        const __m256 e = exp8(_mm256_xor_ps(g, sign));
        const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
        store_part(y + i, n - i, _mm256_mul_ps(silu, load_part(up + i, n - i)));
    }
}

/* The largest s[i] * scale; NaN counts as nothing. */
static float max_scaled(const float *const s, const uint32_t n, const __m256 scale)
{
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 vmax = lowest;
    uint32_t i = 0;
    /* The product first: NaN in it leaves vmax. */
    for (; i + 8 <= n; i += 8)
        vmax = _mm256_max_ps(_mm256_mul_ps(_mm256_loadu_ps(s + i), scale), vmax);
    if (i < n) {
        const __m256i m = mask_of(n - i);
        const __m256 v = _mm256_mul_ps(_mm256_maskload_ps(s + i, m), scale);
        vmax = _mm256_max_ps(_mm256_blendv_ps(lowest, v, _mm256_castsi256_ps(m)), vmax);
    }
    float lanes[8], max = -INFINITY;
    _mm256_storeu_ps(lanes, vmax);
    for (int j = 0; j < 8; j++)
        if (lanes[j] > max) max = lanes[j];
    return max;
}

/* e = exp(s * scale - max) of up to 8, stored; zeros in the lanes past n. */
static inline __m256 exp_part(float *const s, const uint32_t n, const __m256 scale,
                              const __m256 max)
{
    const __m256 e = exp8(_mm256_sub_ps(_mm256_mul_ps(load_part(s, n), scale), max));
    store_part(s, n, e);
    return n >= 8 ? e : _mm256_and_ps(e, _mm256_castsi256_ps(mask_of(n)));
}

float ech_k_softmax_avx2(float *const s, const uint32_t n, const float scale, float *const ret_max)
{
    const __m256 vscale = _mm256_set1_ps(scale);
    *ret_max = max_scaled(s, n, vscale);
    const __m256 vmax = _mm256_set1_ps(*ret_max);
    f32x16 sum = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        sum.lo = _mm256_add_ps(sum.lo, exp_part(s + i, 8, vscale, vmax));
        sum.hi = _mm256_add_ps(sum.hi, exp_part(s + i + 8, 8, vscale, vmax));
    }
    if (i < n) sum.lo = _mm256_add_ps(sum.lo, exp_part(s + i, n - i, vscale, vmax));
    if (n - i > 8) sum.hi = _mm256_add_ps(sum.hi, exp_part(s + i + 8, n - i - 8, vscale, vmax));
    return fold(sum);
}

void ech_k_mix_avx2(float *const y, const float a, const float *const x, const float b,
                    const uint32_t n)
{
    const __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 xb = _mm256_mul_ps(load_part(x + i, n - i), vb);
        store_part(y + i, n - i, _mm256_fmadd_ps(load_part(y + i, n - i), va, xb));
    }
}

void ech_k_rope_avx2(float *const a, float *const b, const float *const cos_in,
                     const float *const sin_in, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const __m256 a0 = load_part(a + i, n - i), b0 = load_part(b + i, n - i);
        const __m256 c = load_part(cos_in + i, n - i), s = load_part(sin_in + i, n - i);
        store_part(a + i, n - i, _mm256_sub_ps(_mm256_mul_ps(a0, c), _mm256_mul_ps(b0, s)));
        store_part(b + i, n - i, _mm256_add_ps(_mm256_mul_ps(b0, c), _mm256_mul_ps(a0, s)));
    }
}

void ech_k_scale_avx2(float *const y, const float *const x, const float a, const uint32_t n)
{
    const __m256 va = _mm256_set1_ps(a);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), va));
    for (; i < n; i++)
        y[i] = x[i] * a;
}
