/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to 8-bit blocks for AVX2: a block is four ymm. Magnitudes are compared as integers,
 * so that infinities and NaN are found; rounding is to nearest even. Bits are those of
 * ref/quant_ref.c.
 */
#include <immintrin.h>
#include <math.h>

#include "src/chip/cpu/x86/kernels.h"
#include "src/chip/half.h"
#include "src/chip/quant.h"

#define TINY 1e-30f

static const int32_t mask_source[16] = { -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0 };

/* Up to 32 numbers, zeros after n. */
static inline void load_block(const float *const x, const uint32_t n, __m256 v[4])
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t left = n > i * 8 ? n - i * 8 : 0;
        const __m256i mask =
            _mm256_loadu_si256((const __m256i *)(mask_source + 8 - (left < 8 ? left : 8)));
        v[i] = left == 0 ? _mm256_setzero_ps() : _mm256_maskload_ps(x + i * 8, mask);
    }
}

static inline uint32_t max_magnitude(const __m256 v[4])
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), mask));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static inline int32_t sum_of(const __m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* Stores 32 bytes, returns what corrects their products. */
static inline int32_t store_block(const __m256 v[4], const float inverse, const int32_t factor,
                                  int8_t *const q)
{
    const __m256 scale = _mm256_set1_ps(inverse);
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));
    const __m256i first = _mm256_add_epi32(n[0], n[1]), second = _mm256_add_epi32(n[2], n[3]);
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    /* Packing works within halves: put the words back in order. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(bytes, order));
    if (factor != ECH_QUANT_HALVES) return sum_of(_mm256_add_epi32(first, second)) * factor;
    return ech_quant_c(sum_of(first), sum_of(second), factor);
}

void ech_k_to_q8_avx2(const float *const x, const uint32_t n, const int32_t factor, void *const row,
                      const uint32_t first, const uint32_t end)
{
    const uint32_t n_blocks = ech_quant_blocks(n);
    int8_t *const q = row;
    float *const s = (float *)(q + (size_t)n_blocks * ECH_QUANT_BLOCK);
    int32_t *const c = (int32_t *)(s + n_blocks);
    for (uint32_t b = first; b < end; b++) {
        const uint32_t from = b * ECH_QUANT_BLOCK;
        __m256 v[4];
        load_block(x + from, from < n ? n - from : 0, v);
        const uint32_t max = max_magnitude(v);
        const float amax = ech_f32_from_bits(max);
        const bool is_finite = max < 0x7f800000u, is_zero = amax < TINY;
        if (!is_finite)
            for (int i = 0; i < 4; i++)
                v[i] = _mm256_setzero_ps();
        const float inverse = is_finite && !is_zero ? 127.0f / amax : 0.0f;
        s[b] = !is_finite ? NAN : is_zero ? 0.0f : amax / 127.0f;
        c[b] = store_block(v, inverse, factor, q + from);
    }
}
