/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with f32 activations for AVX-512 (F, BW, DQ, VL): one zmm holds one k of a
 * panel's 16 rows, an activation is broadcast from the cache, one FMA per k, panel and row. Chains
 * as ref/mm_ref.c has them, so the bits are equal. Up to 24 accumulators of the 32 registers.
 */
#include <immintrin.h>

#define TILE_MAX_ROWS  12
#define TILE_PANELS(n) ((n) == 1 ? 8 : (n) <= 6 ? 4 : 2)
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);                                                                                 \
    CASE(5, tile);                                                                                 \
    CASE(6, tile);                                                                                 \
    CASE(7, tile);                                                                                 \
    CASE(8, tile);                                                                                 \
    CASE(9, tile);                                                                                 \
    CASE(10, tile);                                                                                \
    CASE(11, tile);                                                                                \
    CASE(12, tile);

#include "src/chip/cpu/mm_tile.h"
#include "src/chip/cpu/x86/kernels.h"

#define MAX_P 8
#define MAX_R 12

ALWAYS_INLINE void zero_acc(const uint32_t n_panels, const uint32_t n_rows,
                            __m512 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t i = 0; i < n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        acc[i][j] = _mm512_setzero_ps();
}

ALWAYS_INLINE void store_acc(const ech_mm_args *const a, const uint32_t p, const uint32_t r,
                             const uint32_t n_panels, const uint32_t n_rows,
                             __m512 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t i = 0; i < n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        _mm512_storeu_ps(output_at(a, p + i, r + j), acc[i][j]);
}

/* One k of all chains of the tile: w is the panels' widened weights. */
ALWAYS_INLINE void step(const float *const *const x, const uint32_t k, const uint32_t n_panels,
                        const uint32_t n_rows, const __m512 w[MAX_P], __m512 acc[MAX_P][MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512 xj = _mm512_set1_ps(x[j][k]);
        UNROLL for (uint32_t i = 0; i < n_panels; i++) acc[i][j] =
            _mm512_fmadd_ps(w[i], xj, acc[i][j]);
    }
}

ALWAYS_INLINE __m512 widen_f32(const char *const panel, const uint32_t k)
{
    return _mm512_load_ps((const float *)panel + (size_t)k * ECH_PANEL);
}

ALWAYS_INLINE __m512 widen_f16(const char *const panel, const uint32_t k)
{
    return _mm512_cvtph_ps(
        _mm256_load_si256((const __m256i *)((const uint16_t *)panel + (size_t)k * ECH_PANEL)));
}

ALWAYS_INLINE __m512 widen_s8(const char *const panel, const uint32_t k)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
        _mm_load_si128((const __m128i *)((const int8_t *)panel + (size_t)k * ECH_PANEL))));
}

#define TILE(name, widen, k_bytes)                                                                 \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        __m512 acc[MAX_P][MAX_R], w[MAX_P];                                                        \
        const float *x[MAX_R];                                                                     \
        panels w_at;                                                                               \
        take_rows(a, r, n_rows, x);                                                                \
        zero_acc(n_panels, n_rows, acc);                                                           \
        for (uint32_t part = 0; part < a->n_parts; part++) {                                       \
            const uint32_t n = take_panels(a, part, p, n_panels, n_rows, &w_at);                   \
            for (uint32_t k = 0; k < n; k++) {                                                     \
                fetch(&w_at, (size_t)k *(k_bytes), n_panels, n_rows);                              \
                UNROLL for (uint32_t i = 0; i < n_panels; i++) w[i] = widen(w_at.now[i], k);       \
                step(x, k, n_panels, n_rows, w, acc);                                              \
            }                                                                                      \
            advance_rows(n, n_rows, x);                                                            \
        }                                                                                          \
        store_acc(a, p, r, n_panels, n_rows, acc);                                                 \
    }

TILE(tile_f32, widen_f32, 64)
TILE(tile_f16, widen_f16, 32)
TILE(tile_s8, widen_s8, 16)

/* bf16: one load has two k of 16 rows; the even one is shifted up, the odd one masked. */
ALWAYS_INLINE void part_bf16(const panels *const w_at, const float *const *const x,
                             const uint32_t n, const uint32_t n_panels, const uint32_t n_rows,
                             __m512 acc[MAX_P][MAX_R])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512 even[MAX_P], odd[MAX_P];
    uint32_t k = 0;
    for (; k + 2 <= n; k += 2) {
        fetch(w_at, (size_t)k * 32, n_panels, n_rows);
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const __m512i w = _mm512_load_si512(w_at->now[i] + (size_t)k * 32);
            even[i] = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
            odd[i] = _mm512_castsi512_ps(_mm512_and_si512(w, upper));
        }
        step(x, k, n_panels, n_rows, even, acc);
        step(x, k + 1, n_panels, n_rows, odd, acc);
    }
    if (k < n) {
        UNROLL for (uint32_t i = 0; i < n_panels; i++) even[i] = _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_load_si512(w_at->now[i] + (size_t)k * 32), 16));
        step(x, k, n_panels, n_rows, even, acc);
    }
}

ALWAYS_INLINE void tile_bf16(const ech_mm_args *const a, const uint32_t p, const uint32_t r,
                             const uint32_t n_panels, const uint32_t n_rows)
{
    __m512 acc[MAX_P][MAX_R];
    const float *x[MAX_R];
    panels w_at;
    take_rows(a, r, n_rows, x);
    zero_acc(n_panels, n_rows, acc);
    for (uint32_t part = 0; part < a->n_parts; part++) {
        const uint32_t n = take_panels(a, part, p, n_panels, n_rows, &w_at);
        part_bf16(&w_at, x, n, n_panels, n_rows, acc);
        advance_rows(n, n_rows, x);
    }
    store_acc(a, p, r, n_panels, n_rows, acc);
}

MM_KERNEL(ech_k_mm_f32_f32_avx512, tile_f32)
MM_KERNEL(ech_k_mm_f16_f32_avx512, tile_f16)
MM_KERNEL(ech_k_mm_s8_f32_avx512, tile_s8)
MM_KERNEL(ech_k_mm_bf16_f32_avx512, tile_bf16)

/* ---- panels as f32 ----------------------------------------------------------------------------
 */

#define WIDEN_KERNEL(name, widen)                                                                  \
    void name(const void *const from, const uint32_t n, const void *const next, void *const to)    \
    {                                                                                              \
        (void)next;                                                                                \
        for (uint32_t k = 0; k < n; k++)                                                           \
            _mm512_store_ps((float *)to + (size_t)k * ECH_PANEL, widen(from, k));                  \
    }

WIDEN_KERNEL(ech_k_widen_f16_avx512, widen_f16)
WIDEN_KERNEL(ech_k_widen_s8_avx512, widen_s8)
