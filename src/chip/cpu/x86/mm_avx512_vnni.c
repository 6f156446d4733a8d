/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products with vpdpbusd: stored weights are its unsigned bytes, activations its signed
 * ones; one load is 4 columns of a panel's 16 rows. Integers start at c, which takes the weights'
 * offset back, and can't overflow or saturate: 32 * 255 * 127 < 2^21. The f32 part is that of
 * ref/quant_ref.c, so the bits are equal.
 *
 * 12 integer and 12 float accumulators of the 32 registers. One or two rows read one panel after
 * the other, a single stream, which memory delivers half as fast again as four at once; the chains
 * of a panel's blocks are independent but for one FMA each, so one panel is enough to fill the
 * pipes.
 */
#include <immintrin.h>

#define TILE_MAX_ROWS  6
#define TILE_PANELS(n) ((n) <= STREAM_ROWS ? 1 : (n) == 3 ? 4 : 2)
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);                                                                                 \
    CASE(5, tile);                                                                                 \
    CASE(6, tile);

#include "src/chip/cpu/mm_prepared.h"
#include "src/chip/cpu/mm_tile.h"
#include "src/chip/cpu/x86/kernels.h"
#include "src/chip/quant.h"

#define MAX_P 4
#define MAX_R 6

/* By hand: gcc 12 copies the accumulator before every one of the intrinsic. */
ALWAYS_INLINE __m512i dot(__m512i acc, const __m512i w, const __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}

/* Rows of activations: bytes, then scales, then corrections (quant.h). */
typedef struct act_rows {
    const char *q[MAX_R];
    size_t s, c; /* from a row's first byte */
} act_rows;

ALWAYS_INLINE __m512i quad(const act_rows *const x, const uint32_t j, const size_t at)
{
    int32_t v;
    __builtin_memcpy(&v, x->q[j] + at, sizeof(v));
    return _mm512_set1_epi32(v);
}

ALWAYS_INLINE __m512 scale_of(const act_rows *const x, const uint32_t j, const uint32_t block)
{
    return _mm512_castsi512_ps(quad(x, j, x->s + (size_t)block * 4));
}

/* One group of 4 columns: every panel's weights against every row. */
ALWAYS_INLINE void group(const act_rows *const x, const size_t at, const uint32_t n_panels,
                         const uint32_t n_rows, const __m512i w[MAX_P], __m512i sum[MAX_P][MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512i xj = quad(x, j, at);
        UNROLL for (uint32_t i = 0; i < n_panels; i++) sum[i][j] = dot(sum[i][j], w[i], xj);
    }
}

ALWAYS_INLINE void sums_q8(const char *const *const unit, const act_rows *const x,
                           const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                           __m512i sum[MAX_P][MAX_R])
{
    __m512i w[MAX_P];
    UNROLL for (uint32_t g = 0; g < 8; g++)
    {
        UNROLL for (uint32_t i = 0; i < n_panels; i++) w[i] =
            _mm512_load_si512(unit[i] + block % 2 * 512 + g * 64);
        group(x, (size_t)block * ECH_QUANT_BLOCK + g * 4, n_panels, n_rows, w, sum);
    }
}

/* Nibbles from byte `at` of the units on. */
ALWAYS_INLINE void sums_q4(const char *const *const unit, const size_t at, const act_rows *const x,
                           const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                           __m512i sum[MAX_P][MAX_R])
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i w[MAX_P], high[MAX_P];
    UNROLL for (uint32_t g = 0; g < 4; g++)
    {
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const __m512i pair = _mm512_load_si512(unit[i] + at + g * 64);
            w[i] = _mm512_and_si512(pair, low);
            high[i] = _mm512_and_si512(_mm512_srli_epi16(pair, 4), low);
        }
        group(x, (size_t)block * ECH_QUANT_BLOCK + g * 4, n_panels, n_rows, w, sum);
        group(x, (size_t)block * ECH_QUANT_BLOCK + 16 + g * 4, n_panels, n_rows, high, sum);
    }
}

/* Nibbles, and the fifth bits behind them. */
ALWAYS_INLINE void sums_q5(const char *const *const unit, const size_t at, const act_rows *const x,
                           const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                           __m512i sum[MAX_P][MAX_R])
{
    const __m512i low = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
    __m512i w[MAX_P], high[MAX_P];
    UNROLL for (uint32_t g = 0; g < 4; g++)
    {
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const __m512i pair = _mm512_load_si512(unit[i] + at + g * 64);
            const __m512i bits = _mm512_load_si512(unit[i] + at + 256);
            w[i] = _mm512_or_si512(_mm512_and_si512(pair, low),
                                   _mm512_and_si512(_mm512_slli_epi16(bits, 4 - g), fifth));
            high[i] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(pair, 4), low),
                                      _mm512_and_si512(_mm512_srli_epi16(bits, g), fifth));
        }
        group(x, (size_t)block * ECH_QUANT_BLOCK + g * 4, n_panels, n_rows, w, sum);
        group(x, (size_t)block * ECH_QUANT_BLOCK + 16 + g * 4, n_panels, n_rows, high, sum);
    }
}

/* Bits 4 and 5 of a group's numbers, of the four groups whose pairs a byte holds. */
ALWAYS_INLINE __m512i high_bits(const __m512i pairs, const uint32_t which)
{
    const __m512i mask = _mm512_set1_epi8(0x30);
    if (which == 0) return _mm512_and_si512(_mm512_slli_epi16(pairs, 4), mask);
    if (which == 1) return _mm512_and_si512(_mm512_slli_epi16(pairs, 2), mask);
    if (which == 2) return _mm512_and_si512(pairs, mask);
    return _mm512_and_si512(_mm512_srli_epi16(pairs, 2), mask);
}

ALWAYS_INLINE void sums_q6(const char *const *const unit, const act_rows *const x,
                           const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                           __m512i sum[MAX_P][MAX_R])
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i w[MAX_P];
    UNROLL for (uint32_t g = 0; g < 8; g++)
    {
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const char *const at = unit[i] + block % 2 * 384;
            const __m512i pair = _mm512_load_si512(at + g % 4 * 64);
            const __m512i nibble = g < 4 ? pair : _mm512_srli_epi16(pair, 4);
            w[i] = _mm512_or_si512(_mm512_and_si512(nibble, low),
                                   high_bits(_mm512_load_si512(at + 256 + g % 2 * 64), g / 2));
        }
        group(x, (size_t)block * ECH_QUANT_BLOCK + g * 4, n_panels, n_rows, w, sum);
    }
}

/* 16 f16. */
ALWAYS_INLINE __m512 halves_at(const char *const at)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)at));
}

/* 16 bytes, 0 … 255. */
ALWAYS_INLINE __m512i bytes_at(const char *const at)
{
    return _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)at));
}

/* Scale and minimum of a block of q4k or q5k: 6 bits each, times their factors. */
ALWAYS_INLINE void scales_6bit(const ech_pack_type type, const char *const unit,
                               const uint32_t block, __m512 *const d, __m512 *const m)
{
    const char *const factor = unit + ech_quant_factor_at(type);
    const uint32_t in = ech_quant_in_unit(type, block);
    const __m512i low = bytes_at(unit + ech_quant_data_bytes(type) + in * ECH_PANEL);
    const __m512i high = bytes_at(unit + ech_quant_high_at(type) + in / 2 * ECH_PANEL);
    const __m512i mask = _mm512_set1_epi32(0x30);
    const __m512i of_d = block % 2 == 0 ? _mm512_slli_epi32(high, 4) : high;
    const __m512i of_m = block % 2 == 0 ? _mm512_slli_epi32(high, 2) : _mm512_srli_epi32(high, 2);
    const __m512i scale =
        _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)), _mm512_and_si512(of_d, mask));
    const __m512i min = _mm512_or_si512(_mm512_srli_epi32(low, 4), _mm512_and_si512(of_m, mask));
    *d = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), halves_at(factor));
    *m = _mm512_mul_ps(_mm512_cvtepi32_ps(min), halves_at(factor + 32));
}

/* Scale of half a block of q6k. */
ALWAYS_INLINE __m512 scale_q6k(const char *const unit, const uint32_t block, const uint32_t h)
{
    const uint32_t at = (ech_quant_in_unit(ECH_PACK_Q6K, block) * 2 + h) * ECH_PANEL;
    const __m512i scale = _mm512_cvtepi8_epi32(
        _mm_load_si128((const __m128i *)(unit + ech_quant_data_bytes(ECH_PACK_Q6K) + at)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(scale),
                         halves_at(unit + ech_quant_factor_at(ECH_PACK_Q6K)));
}

/* Group g of 4 in half a block of q6k: the last lies in the other ones' spare bits. */
ALWAYS_INLINE __m512i group_q6k(const char *const at, const uint32_t g)
{
    if (g < 3) return _mm512_and_si512(_mm512_load_si512(at + g * 64), _mm512_set1_epi8(63));
    const __m512i b0 = _mm512_srli_epi16(_mm512_load_si512(at), 6);
    const __m512i b1 = _mm512_srli_epi16(_mm512_load_si512(at + 64), 4);
    const __m512i b2 = _mm512_srli_epi16(_mm512_load_si512(at + 128), 2);
    return _mm512_or_si512(_mm512_or_si512(_mm512_and_si512(b0, _mm512_set1_epi8(3)),
                                           _mm512_and_si512(b1, _mm512_set1_epi8(12))),
                           _mm512_and_si512(b2, _mm512_set1_epi8(48)));
}

/* The integers of half a block of q6k, which begin at its c. */
ALWAYS_INLINE void sums_q6k(const char *const *const unit, const act_rows *const x,
                            const uint32_t block, const uint32_t h, const uint32_t n_panels,
                            const uint32_t n_rows, __m512i sum[MAX_P][MAX_R])
{
    __m512i w[MAX_P];
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512i c = quad(x, j, x->c + (size_t)block * 8 + h * 4);
        UNROLL for (uint32_t i = 0; i < n_panels; i++) sum[i][j] = c;
    }
    UNROLL for (uint32_t g = 0; g < 4; g++)
    {
        UNROLL for (uint32_t i = 0; i < n_panels; i++) w[i] =
            group_q6k(unit[i] + ech_quant_in_unit(ECH_PACK_Q6K, block) * 384 + h * 192, g);
        group(x, (size_t)block * ECH_QUANT_BLOCK + h * 16 + g * 4, n_panels, n_rows, w, sum);
    }
}

/* Each half of a block has its own scale. */
ALWAYS_INLINE void block_q6k(const char *const *const unit, const act_rows *const x,
                             const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                             __m512 acc[MAX_P][MAX_R])
{
    __m512i sum[MAX_P][MAX_R];
    __m512 first[MAX_P][MAX_R], d[MAX_P];
    sums_q6k(unit, x, block, 0, n_panels, n_rows, sum);
    UNROLL for (uint32_t i = 0; i < n_panels; i++)
    {
        d[i] = scale_q6k(unit[i], block, 0);
        UNROLL for (uint32_t j = 0; j < n_rows; j++) first[i][j] =
            _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][j]), d[i]);
    }
    sums_q6k(unit, x, block, 1, n_panels, n_rows, sum);
    UNROLL for (uint32_t i = 0; i < n_panels; i++) d[i] = scale_q6k(unit[i], block, 1);
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512 s = scale_of(x, j, block);
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const __m512 f = _mm512_cvtepi32_ps(sum[i][j]);
            acc[i][j] = _mm512_fmadd_ps(_mm512_fmadd_ps(f, d[i], first[i][j]), s, acc[i][j]);
        }
    }
}

/* scales: of this block, prepared, or NULL. */
ALWAYS_INLINE void one_block(const ech_pack_type type, const char *const *const unit,
                             const float *const scales, const act_rows *const x,
                             const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                             __m512 acc[MAX_P][MAX_R])
{
    const bool has_min = ech_quant_has_min(type);
    __m512i sum[MAX_P][MAX_R];
    if (type == ECH_PACK_Q6K) {
        block_q6k(unit, x, block, n_panels, n_rows, acc);
        return;
    }
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512i c = has_min ? _mm512_setzero_si512() : quad(x, j, x->c + (size_t)block * 4);
        UNROLL for (uint32_t i = 0; i < n_panels; i++) sum[i][j] = c;
    }
    if (type == ECH_PACK_Q8)
        sums_q8(unit, x, block, n_panels, n_rows, sum);
    else if (type == ECH_PACK_Q6)
        sums_q6(unit, x, block, n_panels, n_rows, sum);
    else if (type == ECH_PACK_Q5K)
        sums_q5(unit, ech_quant_in_unit(type, block) * 320, x, block, n_panels, n_rows, sum);
    else
        sums_q4(unit, ech_quant_in_unit(type, block) * 256, x, block, n_panels, n_rows, sum);
    __m512 d[MAX_P], m[MAX_P];
    UNROLL for (uint32_t i = 0; i < n_panels; i++)
    {
        const char *const at = unit[i] + ech_quant_data_bytes(type) + block % 2 * 32;
        if (scales != NULL) {
            d[i] = _mm512_load_ps(scales + i * 2 * ECH_PANEL);
            m[i] = _mm512_load_ps(scales + i * 2 * ECH_PANEL + ECH_PANEL);
            continue;
        }
        if (ech_quant_is_super(type)) {
            scales_6bit(type, unit[i], block, &d[i], &m[i]);
            continue;
        }
        d[i] = halves_at(at);
        if (has_min) m[i] = halves_at(at + 64);
    }
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m512 s = scale_of(x, j, block);
        UNROLL for (uint32_t i = 0; i < n_panels; i++)
        {
            const __m512 f = _mm512_cvtepi32_ps(sum[i][j]);
            if (!has_min) {
                acc[i][j] = _mm512_fmadd_ps(f, _mm512_mul_ps(d[i], s), acc[i][j]);
                continue;
            }
            const __m512 c = _mm512_cvtepi32_ps(quad(x, j, x->c + (size_t)block * 4));
            acc[i][j] =
                _mm512_fmadd_ps(_mm512_fmadd_ps(f, d[i], _mm512_mul_ps(c, m[i])), s, acc[i][j]);
        }
    }
}

ALWAYS_INLINE void tile_quant(const ech_pack_type type, const ech_mm_args *const a,
                              const float *scales, const uint32_t p, const uint32_t r,
                              const uint32_t n_panels, const uint32_t n_rows)
{
    const uint32_t scales_each = n_panels * 2 * ECH_PANEL;
    __m512 acc[MAX_P][MAX_R];
    const char *unit[MAX_P];
    act_rows x;
    const ptrdiff_t ahead = bytes_ahead(a, p, n_rows);
    const uint32_t n_blocks = ech_quant_blocks(a->k_last);
    x.s = (size_t)n_blocks * ECH_QUANT_BLOCK;
    x.c = x.s + (size_t)n_blocks * 4;
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x.q[j] = keep((const char *)row_f32(a, r + j));
    UNROLL for (uint32_t i = 0; i < n_panels; i++)
    {
        unit[i] = keep(a->w[p + i]);
        UNROLL for (uint32_t j = 0; j < n_rows; j++) acc[i][j] = _mm512_setzero_ps();
    }
    for (uint32_t b = 0; b < n_blocks; b += 2) {
        const uint32_t in = ech_quant_in_unit(type, b);
        if (ahead != 0)
            UNROLL for (uint32_t i = 0; i < n_panels; i++) fetch_unit(
                unit[i] + in / 2 * ech_quant_pair_bytes(type) + ahead, ech_quant_pair_bytes(type));
        one_block(type, unit, scales, &x, b, n_panels, n_rows, acc);
        if (scales != NULL) scales += scales_each;
        one_block(type, unit, scales, &x, b + 1, n_panels, n_rows, acc);
        if (scales != NULL) scales += scales_each;
        if (ech_quant_in_unit(type, b + 2) == 0)
            UNROLL for (uint32_t i = 0; i < n_panels; i++) unit[i] += ech_quant_unit_bytes(type);
    }
    UNROLL for (uint32_t i = 0; i < n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        _mm512_storeu_ps(output_at(a, p + i, r + j), acc[i][j]);
}

#define TILE(name, type, scales)                                                                   \
    ALWAYS_INLINE void name(const ech_mm_args *const a, const uint32_t p, const uint32_t r,        \
                            const uint32_t n_panels, const uint32_t n_rows)                        \
    {                                                                                              \
        tile_quant(type, a, scales, p, r, n_panels, n_rows);                                       \
    }

TILE(tile_q8, ECH_PACK_Q8, NULL)
TILE(tile_q6, ECH_PACK_Q6, NULL)
TILE(tile_q6k, ECH_PACK_Q6K, NULL)
TILE(tile_q4, ECH_PACK_Q4, NULL)
TILE(tile_q4m, ECH_PACK_Q4M, NULL)
TILE(tile_q4k, ECH_PACK_Q4K, NULL)
TILE(tile_q4k_prepared, ECH_PACK_Q4K, prepared_scales(a))
TILE(tile_q5k, ECH_PACK_Q5K, NULL)
TILE(tile_q5k_prepared, ECH_PACK_Q5K, prepared_scales(a))

MM_KERNEL(ech_k_mm_q8_q8_avx512_vnni, tile_q8)
MM_KERNEL(ech_k_mm_q6_q8_avx512_vnni, tile_q6)
MM_KERNEL(ech_k_mm_q4_q8_avx512_vnni, tile_q4)
MM_KERNEL(ech_k_mm_q4m_q8_avx512_vnni, tile_q4m)

ALWAYS_INLINE void prepare(const ech_pack_type type, const char *const unit, const uint32_t block,
                           float *const to)
{
    __m512 d, m;
    scales_6bit(type, unit, block, &d, &m);
    _mm512_store_ps(to, d);
    _mm512_store_ps(to + ECH_PANEL, m);
}

/*
 * Streams of super-blocks go to the kernels for AVX2, whose bits are the same: measured on Zen 4
 * (docs/performance.md), they come nearer to what memory delivers, whatever is fetched here.
 */
#define STREAM_BY_AVX2(x)                                                                          \
    void ech_k_mm_##x##_q8_avx512_vnni(const ech_mm_args *const a)                                 \
    {                                                                                              \
        if (a->n_rows <= STREAM_ROWS)                                                              \
            ech_k_mm_##x##_q8_avx2(a);                                                             \
        else                                                                                       \
            rows_##x(a);                                                                           \
    }

static ech_mm_fn rows_q4k, rows_q5k, rows_q6k;
PREPARED_KERNEL(rows_q4k, q4k, ECH_PACK_Q4K)
PREPARED_KERNEL(rows_q5k, q5k, ECH_PACK_Q5K)
MM_KERNEL(rows_q6k, tile_q6k)
STREAM_BY_AVX2(q4k)
STREAM_BY_AVX2(q5k)
STREAM_BY_AVX2(q6k)
