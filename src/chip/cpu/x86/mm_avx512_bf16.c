/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix product of bf16 weights and bf16 activations with vdpbf16ps: one load is two k of a
 * panel's 16 rows, a pair of activations is broadcast. One chain over pairs per output. How the
 * pair is summed is the CPU's own; the same for every tile.
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

ALWAYS_INLINE void tile_bf16(const ech_mm_args *const a, const uint32_t p, const uint32_t r,
                             const uint32_t n_panels, const uint32_t n_rows)
{
    __m512 acc[MAX_P][MAX_R];
    __m512i w[MAX_P];
    const float *x[MAX_R]; /* pairs of bf16, read as words */
    panels w_at;
    take_rows(a, r, n_rows, x);
    UNROLL for (uint32_t i = 0; i < n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        acc[i][j] = _mm512_setzero_ps();
    for (uint32_t part = 0; part < a->n_parts; part++) {
        const uint32_t n_pairs = (take_panels(a, part, p, n_panels, n_rows, &w_at) + 1) / 2;
        for (uint32_t k = 0; k < n_pairs; k++) {
            fetch(&w_at, (size_t)k * 64, n_panels, n_rows);
            UNROLL for (uint32_t i = 0; i < n_panels; i++) w[i] =
                _mm512_load_si512(w_at.now[i] + (size_t)k * 64);
            UNROLL for (uint32_t j = 0; j < n_rows; j++)
            {
                const __m512 xj = _mm512_set1_ps(x[j][k]);
                UNROLL for (uint32_t i = 0; i < n_panels; i++) acc[i][j] =
                    _mm512_dpbf16_ps(acc[i][j], (__m512bh)w[i], (__m512bh)xj);
            }
        }
        advance_rows(n_pairs, n_rows, x);
    }
    UNROLL for (uint32_t i = 0; i < n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        _mm512_storeu_ps(output_at(a, p + i, r + j), acc[i][j]);
}

MM_KERNEL(ech_k_mm_bf16_bf16_avx512_bf16, tile_bf16)

/* No f16 becomes a denormal f32, which the instruction would flush; NaN stays NaN as in ref. */
void ech_k_round_f16_avx512_bf16(const void *const from, const uint32_t n, const void *const next,
                                 void *const to)
{
    const char *const ahead = next != NULL ? next : from;
    const __m256i *const columns = from;
    /* Word i of the even column, then of the odd one. */
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i order = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)),
                                           _mm512_set1_epi32(0x100000));
    for (uint32_t k = 0; k < n; k += 2) {
        __builtin_prefetch(ahead + (size_t)k * 32, 0, 2);
        const __m512 even = _mm512_cvtph_ps(columns[k]);
        const __m512 odd = k + 1 < n ? _mm512_cvtph_ps(columns[k + 1]) : _mm512_setzero_ps();
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
        _mm512_store_si512((char *)to + (size_t)k * 32, _mm512_permutexvar_epi16(order, both));
    }
}

void ech_k_round_bf16_avx512_bf16(const void *const from, const uint32_t n, const void *const next,
                                  void *const to)
{
    const char *const ahead = next != NULL ? next : from;
    for (uint32_t k = 0; k < n; k += 2) {
        __builtin_prefetch(ahead + (size_t)k * 32, 0, 2);
        const __m512i pair = _mm512_load_si512((const char *)from + (size_t)k * 32);
        const __m512i even = _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
        _mm512_store_si512((char *)to + (size_t)k * 32, k + 1 < n ? pair : even);
    }
}
