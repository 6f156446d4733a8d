/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to 8-bit blocks for AVX2: a block is four ymm. Magnitudes are compared as integers,
 * so that infinities and NaN are found; rounding is to nearest even. Bits are those of
 * ref/quant_ref.c.
 *
 * Eight blocks at a time, whose largest magnitudes, divisions and sums share their instructions;
 * one at a time where a row ends or a number isn't finite.
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

/* A row's three parts (quant.h). */
typedef struct q8_row {
    int8_t *q;
    float *s;
    int32_t *c;
} q8_row;

/* Stores a block's bytes, and what corrects their products. */
static inline void store_block(const __m256 v[4], const float inverse, const int32_t factor,
                               const q8_row *const to, const uint32_t b)
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
    _mm256_storeu_si256((__m256i *)(to->q + (size_t)b * ECH_QUANT_BLOCK),
                        _mm256_permutevar8x32_epi32(bytes, order));
    ech_quant_put_c(to->c, b, sum_of(first), sum_of(second), factor);
}

static inline void one_block(const float *const x, const uint32_t n, const int32_t factor,
                             const q8_row *const to, const uint32_t b)
{
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
    to->s[b] = !is_finite ? NAN : is_zero ? 0.0f : amax / 127.0f;
    store_block(v, inverse, factor, to, b);
}

#define GROUP 8 /* blocks */

/* Lanes 0 … 7: of each block the largest of its eight numbers, none negative. */
static inline __m256i max_of_each(const __m256i m[GROUP])
{
    __m256i pair[4], four[2];
    for (int i = 0; i < 4; i++)
        pair[i] = _mm256_max_epi32(_mm256_unpacklo_epi32(m[2 * i], m[2 * i + 1]),
                                   _mm256_unpackhi_epi32(m[2 * i], m[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_max_epi32(_mm256_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                                   _mm256_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                            _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

static inline __m256i group_magnitudes(const float *const x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i m[GROUP];
    for (int b = 0; b < GROUP; b++) {
        m[b] = _mm256_setzero_si256();
        for (int i = 0; i < 4; i++) {
            const float *const at = x + b * ECH_QUANT_BLOCK + i * 8;
            const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)at);
            m[b] = _mm256_max_epi32(m[b], _mm256_and_si256(v, mask));
        }
    }
    return max_of_each(m);
}

/* Stores 32 bytes; their sums in 32 bits, those of the first half in the lower four. */
static inline __m256i store_bytes(const float *const x, const __m256 scale, int8_t *const q)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * 8), scale));
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3])), order);
    _mm256_storeu_si256((__m256i *)q, bytes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* ech_quant_put_c() of eight blocks. */
static inline void put_corrections(const __m256i first, const __m256i second, const int32_t factor,
                                   int32_t *const c, const uint32_t b)
{
    if (factor != ECH_QUANT_HALVES) {
        const __m256i sum = _mm256_add_epi32(first, second);
        _mm256_storeu_si256((__m256i *)(c + b), _mm256_mullo_epi32(sum, _mm256_set1_epi32(factor)));
        return;
    }
    const __m256i factors = _mm256_set1_epi32(-32);
    const __m256i low = _mm256_mullo_epi32(_mm256_unpacklo_epi32(first, second), factors);
    const __m256i high = _mm256_mullo_epi32(_mm256_unpackhi_epi32(first, second), factors);
    __m256i *const to = (__m256i *)(c + 2 * (size_t)b);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

/* Eight whole blocks from b on; false, and nothing is done, where a number isn't finite. */
static inline bool one_group(const float *const x, const int32_t factor, const q8_row *const to,
                             const uint32_t b)
{
    const float *const from = x + (size_t)b * ECH_QUANT_BLOCK;
    const __m256i max = group_magnitudes(from);
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(max, _mm256_set1_epi32(0x7f7fffff))) != 0)
        return false;
    const __m256 amax = _mm256_castsi256_ps(max), k = _mm256_set1_ps(127.0f);
    const __m256 counts = _mm256_cmp_ps(amax, _mm256_set1_ps(TINY), _CMP_GE_OQ);
    _mm256_storeu_ps(to->s + b, _mm256_and_ps(_mm256_div_ps(amax, k), counts));
    float inverse[GROUP];
    _mm256_storeu_ps(inverse, _mm256_and_ps(_mm256_div_ps(k, amax), counts));
    __m256i sum[GROUP], four[2];
    for (uint32_t i = 0; i < GROUP; i++)
        sum[i] = store_bytes(from + i * ECH_QUANT_BLOCK, _mm256_broadcast_ss(&inverse[i]),
                             to->q + ((size_t)b + i) * ECH_QUANT_BLOCK);
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[4 * i], sum[4 * i + 1]),
                                    _mm256_hadd_epi32(sum[4 * i + 2], sum[4 * i + 3]));
    put_corrections(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                    _mm256_permute2x128_si256(four[0], four[1], 0x31), factor, to->c, b);
    return true;
}

void ech_k_to_q8_avx2(const float *const x, const uint32_t n, const int32_t factor, void *const row,
                      const uint32_t first, const uint32_t end)
{
    const uint32_t n_blocks = ech_quant_blocks(n), n_whole = n / ECH_QUANT_BLOCK;
    q8_row to = { .q = row };
    to.s = (float *)(to.q + (size_t)n_blocks * ECH_QUANT_BLOCK);
    to.c = (int32_t *)(to.s + n_blocks);
    for (uint32_t b = first; b < end;) {
        if (b + GROUP <= end && b + GROUP <= n_whole && one_group(x, factor, &to, b)) {
            b += GROUP;
            continue;
        }
        one_block(x, n, factor, &to, b++);
    }
}
