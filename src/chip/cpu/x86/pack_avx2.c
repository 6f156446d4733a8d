/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing's loops for AVX2: the same bytes as pack_ops.c and quant.c. What decides a block's scale
 * doesn't depend on the order of comparison, but for signs of zero and NaN in a minimum: such
 * blocks, rare among weights, are left to plain C.
 */
#include <immintrin.h>

#include "src/chip/half.h"
#include "src/chip/pack_ops.h"

static void widen_bf16(const void *const src, const uint32_t n, float *const y)
{
    const char *const p = src;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i h = _mm_loadu_si128((const __m128i *)(p + 2 * (size_t)i));
        const __m256i w = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
        _mm256_storeu_ps(y + i, _mm256_castsi256_ps(w));
    }
    ech_pack_ops_ref.widen_bf16(p + 2 * (size_t)i, n - i, y + i);
}

static void widen_f16(const void *const src, const uint32_t n, float *const y)
{
    const char *const p = src;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 2 * (size_t)i))));
    ech_pack_ops_ref.widen_f16(p + 2 * (size_t)i, n - i, y + i);
}

typedef struct four {
    __m256 v[4];
} four;

static inline four load32(const float *const x)
{
    return (four){ { _mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                     _mm256_loadu_ps(x + 24) } };
}

static inline float max8(const __m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline float min8(const __m256 v)
{
    __m128 m = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_min_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}

static inline __m256 absolute(const __m256 v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* The largest magnitude; NaN counts as nothing: an operand that is one gives the other. */
static inline float max_abs(const four *const x)
{
    __m256 m = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++)
        m = _mm256_max_ps(absolute(x->v[i]), m);
    return max8(m);
}

/* The first number of that magnitude. */
static inline float first_of(const four *const x, const float magnitude, const float *const from)
{
    for (int i = 0; i < 4; i++) {
        const int mask = _mm256_movemask_ps(
            _mm256_cmp_ps(absolute(x->v[i]), _mm256_set1_ps(magnitude), _CMP_EQ_OQ));
        if (mask != 0) return from[8 * i + __builtin_ctz((unsigned)mask)];
    }
    return 0.0f;
}

/* clamp(round(x) + add, lo, hi) as bytes, offset added; NaN gives lo. */
static inline void store_bytes(const four *const x, const float add, const float lo, const float hi,
                               const int offset, uint8_t *const q)
{
    __m256i w[4];
    for (int i = 0; i < 4; i++) {
        __m256 r = _mm256_round_ps(x->v[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        r = _mm256_add_ps(r, _mm256_set1_ps(add));
        r = _mm256_min_ps(_mm256_max_ps(r, _mm256_set1_ps(lo)), _mm256_set1_ps(hi));
        w[i] = _mm256_add_epi32(_mm256_cvttps_epi32(r), _mm256_set1_epi32(offset));
    }
    const __m256i a = _mm256_packs_epi32(w[0], w[1]), b = _mm256_packs_epi32(w[2], w[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)q,
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
}

static inline four scaled(const four *const x, const float by)
{
    four y;
    for (int i = 0; i < 4; i++)
        y.v[i] = _mm256_mul_ps(x->v[i], _mm256_set1_ps(by));
    return y;
}

static void quantise_q8(const float *const from, ech_quant_block *const b)
{
    const four x = load32(from);
    b->d = ech_f16_from_f32_clamped(max_abs(&x) / 127.0f);
    const four y = scaled(&x, ech_f16_inverse(b->d));
    store_bytes(&y, 0.0f, -128.0f, 127.0f, 128, b->q);
}

static void quantise_signed(const float *const from, const float half, ech_quant_block *const b)
{
    const four x = load32(from);
    const float magnitude = max_abs(&x);
    const float max = magnitude != 0.0f ? first_of(&x, magnitude, from) : 0.0f;
    b->d = ech_f16_from_f32_clamped(max / -half);
    const four y = scaled(&x, ech_f16_inverse(b->d));
    store_bytes(&y, half, 0.0f, 2.0f * half - 1.0f, 0, b->q);
}

static void quantise_q4m(const float *const from, ech_quant_block *const b)
{
    const four x = load32(from);
    __m256 lo = x.v[0], hi = x.v[0], nan = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        lo = _mm256_min_ps(x.v[i], lo);
        hi = _mm256_max_ps(x.v[i], hi);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(x.v[i], x.v[i], _CMP_UNORD_Q));
    }
    const float min = min8(lo), max = max8(hi);
    if (_mm256_movemask_ps(nan) != 0 || min == 0.0f || max == 0.0f) {
        ech_pack_ops_ref.quantise(ECH_PACK_Q4M, from, b);
        return;
    }
    b->d = ech_f16_from_f32_clamped((max - min) / 15.0f);
    b->m = ech_f16_from_f32_clamped(min);
    four y;
    for (int i = 0; i < 4; i++)
        y.v[i] = _mm256_sub_ps(x.v[i], _mm256_set1_ps(ech_f16_to_f32(b->m)));
    y = scaled(&y, ech_f16_inverse(b->d));
    store_bytes(&y, 0.0f, 0.0f, 15.0f, 0, b->q);
}

static void quantise(const ech_pack_type type, const float *const x, ech_quant_block *const b)
{
    if (type == ECH_PACK_Q8)
        quantise_q8(x, b);
    else if (type == ECH_PACK_Q4)
        quantise_signed(x, 8.0f, b);
    else if (type == ECH_PACK_Q6)
        quantise_signed(x, 32.0f, b);
    else if (type == ECH_PACK_Q4M)
        quantise_q4m(x, b);
    else
        ech_pack_ops_ref.quantise(type, x, b);
}

/* 8 rows of 8 words, turned. */
static inline void turn8(const char *const src, const size_t row_bytes, uint32_t *const dst)
{
    __m256 r[8], t[8];
    for (size_t i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps((const float *)(const void *)(src + i * row_bytes));
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            const __m256d a = _mm256_castps_pd(t[4 * i + j]),
                          b = _mm256_castps_pd(t[4 * i + j + 2]);
            r[4 * i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            r[4 * i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps((float *)(void *)(dst + i * ECH_PANEL),
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps((float *)(void *)(dst + (i + 4) * ECH_PANEL),
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static void interleave32(const void *const src, const size_t row_bytes, const uint64_t n,
                         uint32_t *const dst)
{
    const char *const p = src;
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        turn8(p + 4 * k, row_bytes, dst + k * ECH_PANEL);
        turn8(p + 8 * row_bytes + 4 * k, row_bytes, dst + k * ECH_PANEL + 8);
    }
    ech_pack_ops_ref.interleave32(p + 4 * k, row_bytes, n - k, dst + k * ECH_PANEL);
}

const ech_pack_ops ech_pack_ops_avx2 = { widen_bf16, widen_f16, quantise, interleave32 };
