/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products for AVX2, FMA and F16C: two ymm hold one k of a panel's 16 rows. Chains as
 * ref/mm_ref.c has them, so the bits are equal. Up to 12 accumulators of the 16 registers.
 */
#include <immintrin.h>

#define TILE_MAX_ROWS  6
#define TILE_PANELS(n) ((n) == 1 ? 4 : (n) <= 3 ? 2 : 1)
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);                                                                                 \
    CASE(5, tile);                                                                                 \
    CASE(6, tile);

#include "src/chip/cpu/mm_tile.h"
#include "src/chip/cpu/x86/kernels.h"

#define MAX_P 8 /* halves: two to a panel */
#define MAX_R 6

ALWAYS_INLINE void zero_acc(const uint32_t n_panels, const uint32_t n_rows,
                            __m256 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        acc[i][j] = _mm256_setzero_ps();
}

ALWAYS_INLINE void store_acc(const ech_mm_args *const a, const uint32_t p, const uint32_t r,
                             const uint32_t n_panels, const uint32_t n_rows,
                             __m256 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        _mm256_storeu_ps(output_at(a, p + i / 2, r + j) + i % 2 * 8, acc[i][j]);
}

ALWAYS_INLINE void step(const float *const *const x, const uint32_t k, const uint32_t n_panels,
                        const uint32_t n_rows, const __m256 w[MAX_P], __m256 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m256 xj = _mm256_broadcast_ss(x[j] + k);
        UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) acc[i][j] =
            _mm256_fmadd_ps(w[i], xj, acc[i][j]);
    }
}

ALWAYS_INLINE __m256 widen_f32(const char *const panel, const uint32_t k, const uint32_t half)
{
    return _mm256_load_ps((const float *)panel + (size_t)k * ECH_PANEL + half * 8);
}

ALWAYS_INLINE __m256 widen_f16(const char *const panel, const uint32_t k, const uint32_t half)
{
    return _mm256_cvtph_ps(_mm_load_si128(
        (const __m128i *)((const uint16_t *)panel + (size_t)k * ECH_PANEL + half * 8)));
}

ALWAYS_INLINE __m256 widen_s8(const char *const panel, const uint32_t k, const uint32_t half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(
        (const __m128i *)((const int8_t *)panel + (size_t)k * ECH_PANEL + half * 8))));
}

#define TILE(name, widen, k_bytes)                                                                 \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        __m256 acc[MAX_P][MAX_R], w[MAX_P];                                                        \
        const float *x[MAX_R];                                                                     \
        panels w_at;                                                                               \
        take_rows(a, r, n_rows, x);                                                                \
        zero_acc(n_panels, n_rows, acc);                                                           \
        for (uint32_t part = 0; part < a->n_parts; part++) {                                       \
            const uint32_t n = take_panels(a, part, p, n_panels, n_rows, &w_at);                   \
            for (uint32_t k = 0; k < n; k++) {                                                     \
                fetch(&w_at, (size_t)k *(k_bytes), n_panels, n_rows);                              \
                UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) w[i] =                          \
                    widen(w_at.now[i / 2], k, i % 2);                                              \
                step(x, k, n_panels, n_rows, w, acc);                                              \
            }                                                                                      \
            advance_rows(n, n_rows, x);                                                            \
        }                                                                                          \
        store_acc(a, p, r, n_panels, n_rows, acc);                                                 \
    }

TILE(tile_f32, widen_f32, 64)
TILE(tile_f16, widen_f16, 32)
TILE(tile_s8, widen_s8, 16)

/* Two k of 8 rows. */
ALWAYS_INLINE __m256i pairs_at(const char *const panel, const uint32_t k, const uint32_t half)
{
    return _mm256_load_si256((const __m256i *)(panel + (size_t)k * 32 + half * 32));
}

ALWAYS_INLINE __m256 even_of(const __m256i w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

static const uint32_t upper_halves[8] __attribute__((aligned(32))) = {
    0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
    0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
};

/* The mask stays in memory: in a register, where the compiler puts it, an accumulator is spilled.
 */
ALWAYS_INLINE __m256 odd_of(const __m256i w)
{
    __m256 odd;
    __asm__("vandps %1, %2, %0" : "=x"(odd) : "m"(upper_halves), "x"(w));
    return odd;
}

/*
 * The pair is loaded twice rather than kept: with 12 accumulators there are four registers for
 * weights and activation.
 */
ALWAYS_INLINE void part_bf16(const panels *const w_at, const float *const *const x,
                             const uint32_t n, const uint32_t n_panels, const uint32_t n_rows,
                             __m256 acc[MAX_P][MAX_R])
{
    __m256 w[MAX_P];
    uint32_t k = 0;
    for (; k + 2 <= n; k += 2) {
        fetch(w_at, (size_t)k * 32, n_panels, n_rows);
        UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) w[i] =
            even_of(pairs_at(w_at->now[i / 2], k, i % 2));
        step(x, k, n_panels, n_rows, w, acc);
        UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) w[i] =
            odd_of(pairs_at(w_at->now[i / 2], k, i % 2));
        step(x, k + 1, n_panels, n_rows, w, acc);
    }
    if (k < n) {
        UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) w[i] =
            even_of(pairs_at(w_at->now[i / 2], k, i % 2));
        step(x, k, n_panels, n_rows, w, acc);
    }
}

/* bf16 activations, emulated as ref does it: the odd k of a pair first. */
ALWAYS_INLINE void part_bf16_bf16(const panels *const w_at, const float *const *const x,
                                  const uint32_t n, const uint32_t n_panels, const uint32_t n_rows,
                                  __m256 acc[MAX_P][MAX_R])
{
    __m256 w[MAX_P];
    for (uint32_t k = 0; k < n; k += 2)
        UNROLL for (int odd = 1; odd >= 0; odd--)
        {
            UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++)
            {
                const __m256i pair = pairs_at(w_at->now[i / 2], k, i % 2);
                w[i] = odd ? odd_of(pair) : even_of(pair);
            }
            UNROLL for (uint32_t j = 0; j < n_rows; j++)
            {
                const __m256i pair = _mm256_castps_si256(_mm256_broadcast_ss(x[j] + k / 2));
                const __m256 xj = odd ? odd_of(pair) : even_of(pair);
                UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) acc[i][j] =
                    _mm256_fmadd_ps(w[i], xj, acc[i][j]);
            }
        }
}

/* floats: what n columns of a row take. */
#define TILE_PARTS(name, do_part, floats)                                                          \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        __m256 acc[MAX_P][MAX_R];                                                                  \
        const float *x[MAX_R];                                                                     \
        panels w_at;                                                                               \
        take_rows(a, r, n_rows, x);                                                                \
        zero_acc(n_panels, n_rows, acc);                                                           \
        for (uint32_t part = 0; part < a->n_parts; part++) {                                       \
            const uint32_t n = take_panels(a, part, p, n_panels, n_rows, &w_at);                   \
            do_part(&w_at, x, n, n_panels, n_rows, acc);                                           \
            advance_rows(floats, n_rows, x);                                                       \
        }                                                                                          \
        store_acc(a, p, r, n_panels, n_rows, acc);                                                 \
    }

TILE_PARTS(tile_bf16, part_bf16, n)
TILE_PARTS(tile_bf16_bf16, part_bf16_bf16, n / 2)

MM_KERNEL(ech_k_mm_f32_f32_avx2, tile_f32)
MM_KERNEL(ech_k_mm_f16_f32_avx2, tile_f16)
MM_KERNEL(ech_k_mm_s8_f32_avx2, tile_s8)
MM_KERNEL(ech_k_mm_bf16_f32_avx2, tile_bf16)
MM_KERNEL(ech_k_mm_bf16_bf16_avx2, tile_bf16_bf16)

/* ---- panels as f32 ----------------------------------------------------------------------------
 */

#define WIDEN_KERNEL(name, widen)                                                                  \
    void name(const void *const from, const uint32_t n, const void *const next, void *const to)    \
    {                                                                                              \
        (void)next;                                                                                \
        for (uint32_t k = 0; k < n; k++)                                                           \
            UNROLL for (uint32_t half = 0; half < 2; half++) _mm256_store_ps(                      \
                (float *)to + (size_t)k * ECH_PANEL + half * 8, widen(from, k, half));             \
    }

WIDEN_KERNEL(ech_k_widen_f16_avx2, widen_f16)
WIDEN_KERNEL(ech_k_widen_s8_avx2, widen_s8)

/* bf16 in the upper half of every lane, rounded to nearest even; NaN becomes quiet. */
ALWAYS_INLINE __m256i round_bf16(const __m256 x)
{
    const __m256i u = _mm256_castps_si256(x);
    const __m256i bit = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), bit);
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

void ech_k_round_f16_avx2(const void *const from, const uint32_t n, const void *const next,
                          void *const to)
{
    const char *const ahead = next != NULL ? next : from;
    for (uint32_t k = 0; k < n; k += 2) {
        __builtin_prefetch(ahead + (size_t)k * 32, 0, 2);
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            const __m256i even = round_bf16(widen_f16(from, k, half));
            const __m256i odd =
                k + 1 < n ? round_bf16(widen_f16(from, k + 1, half)) : _mm256_setzero_si256();
            _mm256_store_si256((__m256i *)((char *)to + (size_t)k * 32 + half * 32),
                               _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
        }
    }
}
