/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products with vpmaddubsw and vpmaddwd. Nothing saturates, for any weight byte. Two
 * products of a nibble and an activation are at most 2 * 15 * 127 = 3810, so that the 8 groups of a
 * block can be added in 16 bits: 30480. Of 6 bits, 2 * 63 * 127 = 16002, two groups can.
 *
 *   q4 …     one sum of nibbles per block (q4m and q4k too)
 *   q8       two, of the stored byte's low and high nibbles: low + 16 * high
 *   q5k …    whole numbers, two groups in 16 bits, then in 32 (q6 and q6k too)
 *
 * (A whole stored byte against the activation would reach 2 * 255 * 127. Taking |w| and giving its
 * sign to the activation stays below 2^15, but has to be widened for every 32 products.)
 *
 * A panel's 16 rows are two ymm, taken one after the other: the integers of 4 rows and a few
 * temporaries fill the 16 registers. The f32 part is that of ref/quant_ref.c.
 */
#include <immintrin.h>

#define TILE_MAX_ROWS  4
#define TILE_PANELS(n) 1
#define TILE_CASES(tile)                                                                           \
    CASE(1, tile);                                                                                 \
    CASE(2, tile);                                                                                 \
    CASE(3, tile);                                                                                 \
    CASE(4, tile);

#include "src/chip/cpu/mm_prepared.h"
#include "src/chip/cpu/mm_tile.h"
#include "src/chip/cpu/x86/kernels.h"
#include "src/chip/quant.h"

#define MAX_P 2 /* halves of a panel */
#define MAX_R 4

typedef struct act_rows {
    const char *q[MAX_R];
    size_t s, c; /* from a row's first byte */
} act_rows;

ALWAYS_INLINE __m256i quad(const act_rows *const x, const uint32_t j, const size_t at)
{
    int32_t v;
    __builtin_memcpy(&v, x->q[j] + at, sizeof(v));
    return _mm256_set1_epi32(v);
}

ALWAYS_INLINE __m256i load(const char *const p)
{
    return _mm256_load_si256((const __m256i *)p);
}

/*
 * The sum, made here and now: left alone, the compiler regroups a block's additions into a tree,
 * whose leaves don't fit in the registers.
 */
ALWAYS_INLINE __m256i add16(__m256i sum, const __m256i v)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(v));
    return sum;
}

/* The rows' bytes, loaded anew for every half: kept, they would be spilled. */
ALWAYS_INLINE void reload(act_rows *const x, const uint32_t n_rows)
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x->q[j] = keep(x->q[j]);
}

/* Group g of a block whose weights are low + 16 × high: its products in 16 bits, per row of x. */
ALWAYS_INLINE void add_parts(const act_rows *const x, const uint32_t block, const uint32_t g,
                             const uint32_t n_rows, const __m256i w_low, const __m256i w_high,
                             __m256i low[MAX_R], __m256i high[MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++)
    {
        const __m256i xj = quad(x, j, (size_t)block * ECH_QUANT_BLOCK + g * 4);
        const __m256i a = _mm256_maddubs_epi16(w_low, xj);
        const __m256i b = _mm256_maddubs_epi16(w_high, xj);
        low[j] = g == 0 ? a : add16(low[j], a);
        high[j] = g == 0 ? b : add16(high[j], b);
    }
}

/* The sums of a block, in 32 bits. */
ALWAYS_INLINE void join_parts(const __m256i low[MAX_R], const __m256i high[MAX_R],
                              const uint32_t n_rows, __m256i sum[MAX_R])
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++) sum[j] =
        _mm256_add_epi32(_mm256_madd_epi16(low[j], _mm256_set1_epi16(1)),
                         _mm256_madd_epi16(high[j], _mm256_set1_epi16(16)));
}

/*
 * The halves of a panel one after the other: 16-bit sums of low and of high nibbles of 4 rows, the
 * nibbles, an activation and the mask are 12 registers.
 */
ALWAYS_INLINE void sums_q8(const char *const *const unit, act_rows *const x, const uint32_t block,
                           const uint32_t n_panels, const uint32_t n_rows,
                           __m256i sum[MAX_P][MAX_R])
{
    const __m256i mask = _mm256_set1_epi8(15);
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++)
    {
        __m256i low[MAX_R], high[MAX_R];
        reload(x, n_rows);
        UNROLL for (uint32_t g = 0; g < 8; g++)
        {
            const __m256i w = load(unit[i / 2] + block % 2 * 512 + g * 64 + i % 2 * 32);
            const __m256i w_low = _mm256_and_si256(w, mask);
            const __m256i w_high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
            add_parts(x, block, g, n_rows, w_low, w_high, low, high);
        }
        join_parts(low, high, n_rows, sum[i]);
    }
}

/* Nibbles from byte `from` of the units on. */
ALWAYS_INLINE void sums_q4(const char *const *const unit, const size_t from,
                           const act_rows *const x, const uint32_t block, const uint32_t n_panels,
                           const uint32_t n_rows, __m256i sum[MAX_P][MAX_R])
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const size_t at = (size_t)block * ECH_QUANT_BLOCK;
    UNROLL for (uint32_t g = 0; g < 4; g++) UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++)
    {
        const __m256i pair = load(unit[i / 2] + from + g * 64 + i % 2 * 32);
        const __m256i w = _mm256_and_si256(pair, low);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(pair, 4), low);
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const __m256i a = _mm256_maddubs_epi16(w, quad(x, j, at + g * 4));
            const __m256i b = _mm256_maddubs_epi16(high, quad(x, j, at + 16 + g * 4));
            const __m256i both = _mm256_add_epi16(a, b);
            sum[i][j] = g == 0 ? both : add16(sum[i][j], both);
        }
    }
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        sum[i][j] = _mm256_madd_epi16(sum[i][j], ones);
}

/* Products of 16 columns, whose weights are at most 63, in 32 bits. */
ALWAYS_INLINE __m256i sum16(const act_rows *const x, const uint32_t j, const size_t at,
                            const __m256i w[4])
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], quad(x, j, at)),
                                       _mm256_maddubs_epi16(w[1], quad(x, j, at + 4)));
    const __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], quad(x, j, at + 8)),
                                       _mm256_maddubs_epi16(w[3], quad(x, j, at + 12)));
    return _mm256_add_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones));
}

/* The same for both halves of a panel, of one load of each activation. */
ALWAYS_INLINE void sums16(const act_rows *const x, const uint32_t j, const size_t at,
                          __m256i w[MAX_P][4], __m256i sum[MAX_P])
{
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (uint32_t g = 0; g < 4; g += 2)
    {
        const __m256i x0 = quad(x, j, at + g * 4), x1 = quad(x, j, at + g * 4 + 4);
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            const __m256i two = _mm256_add_epi16(_mm256_maddubs_epi16(w[i][g], x0),
                                                 _mm256_maddubs_epi16(w[i][g + 1], x1));
            const __m256i part = _mm256_madd_epi16(two, ones);
            sum[i] = g == 0 ? part : _mm256_add_epi32(sum[i], part);
        }
    }
}

/* Bits 4 and 5 of a group's numbers, of the four groups whose pairs a byte holds. */
ALWAYS_INLINE __m256i high_bits(const __m256i pairs, const uint32_t which)
{
    const __m256i mask = _mm256_set1_epi8(0x30);
    if (which == 0) return _mm256_and_si256(_mm256_slli_epi16(pairs, 4), mask);
    if (which == 1) return _mm256_and_si256(_mm256_slli_epi16(pairs, 2), mask);
    if (which == 2) return _mm256_and_si256(pairs, mask);
    return _mm256_and_si256(_mm256_srli_epi16(pairs, 2), mask);
}

ALWAYS_INLINE void sums_q6(const char *const *const unit, act_rows *const x, const uint32_t block,
                           const uint32_t n_panels, const uint32_t n_rows,
                           __m256i sum[MAX_P][MAX_R])
{
    const __m256i mask = _mm256_set1_epi8(15);
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++)
    {
        const char *const at = unit[i / 2] + block % 2 * 384 + i % 2 * 32;
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            __m256i w[4];
            reload(x, n_rows);
            UNROLL for (uint32_t g = 0; g < 4; g++)
            {
                const __m256i pair = load(at + g * 64);
                const __m256i low = h == 0 ? pair : _mm256_srli_epi16(pair, 4);
                w[g] = _mm256_or_si256(_mm256_and_si256(low, mask),
                                       high_bits(load(at + 256 + g % 2 * 64), 2 * h + g / 2));
            }
            UNROLL for (uint32_t j = 0; j < n_rows; j++)
            {
                const __m256i part = sum16(x, j, (size_t)block * ECH_QUANT_BLOCK + h * 16, w);
                sum[i][j] = h == 0 ? part : _mm256_add_epi32(sum[i][j], part);
            }
        }
    }
}

/* Numbers up to 31: two groups are added in 16 bits, as of q6. */
ALWAYS_INLINE void sums_q5(const char *const *const unit, const size_t from, act_rows *const x,
                           const uint32_t block, const uint32_t n_panels, const uint32_t n_rows,
                           __m256i sum[MAX_P][MAX_R])
{
    const __m256i mask = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const char *const at = unit[i / 2] + from + i % 2 * 32;
        const __m256i bits = load(at + 256);
        __m256i w[4];
        reload(x, n_rows);
        UNROLL for (uint32_t g = 0; g < 4; g++)
        {
            const __m256i pair = load(at + g * 64);
            const __m256i low = h == 0 ? pair : _mm256_srli_epi16(pair, 4);
            const __m256i five =
                h == 0 ? _mm256_slli_epi16(bits, 4 - g) : _mm256_srli_epi16(bits, g);
            w[g] = _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_and_si256(five, fifth));
        }
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const __m256i part = sum16(x, j, (size_t)block * ECH_QUANT_BLOCK + h * 16, w);
            sum[i][j] = h == 0 ? part : _mm256_add_epi32(sum[i][j], part);
        }
    }
}

/* 8 f16. */
ALWAYS_INLINE __m256 halves_at(const char *const at)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)at));
}

/* 8 bytes, 0 … 255. */
ALWAYS_INLINE __m256i bytes_at(const char *const at)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
}

/* Scale and minimum of a block of q4k or q5k, of half a panel: 6 bits each, times their factors. */
ALWAYS_INLINE void scales_6bit(const ech_pack_type type, const char *const unit,
                               const uint32_t block, const uint32_t half, __m256 *const d,
                               __m256 *const m)
{
    const uint32_t in = ech_quant_in_unit(type, block);
    const char *const at = unit + ech_quant_data_bytes(type);
    const char *const factor = unit + ech_quant_factor_at(type) + half * 16;
    const __m256i low = bytes_at(at + in * ECH_PANEL + half * 8);
    const __m256i high = bytes_at(unit + ech_quant_high_at(type) + in / 2 * ECH_PANEL + half * 8);
    const __m256i mask = _mm256_set1_epi32(0x30);
    const __m256i of_d = block % 2 == 0 ? _mm256_slli_epi32(high, 4) : high;
    const __m256i of_m = block % 2 == 0 ? _mm256_slli_epi32(high, 2) : _mm256_srli_epi32(high, 2);
    const __m256i scale =
        _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), _mm256_and_si256(of_d, mask));
    const __m256i min = _mm256_or_si256(_mm256_srli_epi32(low, 4), _mm256_and_si256(of_m, mask));
    *d = _mm256_mul_ps(_mm256_cvtepi32_ps(scale), halves_at(factor));
    *m = _mm256_mul_ps(_mm256_cvtepi32_ps(min), halves_at(factor + 32));
}

/* Scale of half a block of q6k, of half a panel. */
ALWAYS_INLINE __m256 scale_q6k(const char *const unit, const uint32_t block, const uint32_t h,
                               const uint32_t half)
{
    const uint32_t at = (ech_quant_in_unit(ECH_PACK_Q6K, block) * 2 + h) * ECH_PANEL + half * 8;
    const __m256i scale = _mm256_cvtepi8_epi32(
        _mm_loadl_epi64((const __m128i *)(unit + ech_quant_data_bytes(ECH_PACK_Q6K) + at)));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(scale),
                         halves_at(unit + ech_quant_factor_at(ECH_PACK_Q6K) + half * 16));
}

/* The numbers of half a block of q6k. */
ALWAYS_INLINE void weights_q6k(const char *const at, __m256i w[4])
{
    const __m256i low = _mm256_set1_epi8(63);
    const __m256i b0 = load(at), b1 = load(at + 64), b2 = load(at + 128);
    w[0] = _mm256_and_si256(b0, low);
    w[1] = _mm256_and_si256(b1, low);
    w[2] = _mm256_and_si256(b2, low);
    w[3] = _mm256_or_si256(
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b0, 6), _mm256_set1_epi8(3)),
                        _mm256_and_si256(_mm256_srli_epi16(b1, 4), _mm256_set1_epi8(12))),
        _mm256_and_si256(_mm256_srli_epi16(b2, 2), _mm256_set1_epi8(48)));
}

/* Each half of a block has its own scale and c. */
ALWAYS_INLINE void block_q6k(const char *const *const unit, act_rows *const x, const uint32_t block,
                             const uint32_t n_rows, __m256 acc[MAX_P][MAX_R])
{
    __m256 first[MAX_P][MAX_R];
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        __m256i w[MAX_P][4], sum[MAX_P];
        reload(x, n_rows);
        UNROLL for (uint32_t i = 0; i < 2; i++) weights_q6k(
            unit[0] + ech_quant_in_unit(ECH_PACK_Q6K, block) * 384 + h * 192 + i * 32, w[i]);
        const __m256 d[] = { scale_q6k(unit[0], block, h, 0), scale_q6k(unit[0], block, h, 1) };
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const __m256i c = quad(x, j, x->c + (size_t)block * 8 + h * 4);
            sums16(x, j, (size_t)block * ECH_QUANT_BLOCK + h * 16, w, sum);
            UNROLL for (uint32_t i = 0; i < 2; i++)
            {
                const __m256 f = _mm256_cvtepi32_ps(_mm256_add_epi32(sum[i], c));
                if (h == 0) {
                    first[i][j] = _mm256_mul_ps(f, d[i]);
                    continue;
                }
                const __m256 s = _mm256_castsi256_ps(quad(x, j, x->s + (size_t)block * 4));
                acc[i][j] = _mm256_fmadd_ps(_mm256_fmadd_ps(f, d[i], first[i][j]), s, acc[i][j]);
            }
        }
    }
}

/* scales: of this block, prepared, or NULL. */
ALWAYS_INLINE void one_block(const ech_pack_type type, const char *const *const unit,
                             const float *const scales, act_rows *const x, const uint32_t block,
                             const uint32_t n_panels, const uint32_t n_rows,
                             __m256 acc[MAX_P][MAX_R])
{
    __m256i sum[MAX_P][MAX_R];
    if (type == ECH_PACK_Q6K) {
        block_q6k(unit, x, block, n_rows, acc);
        return;
    }
    if (type == ECH_PACK_Q8)
        sums_q8(unit, x, block, n_panels, n_rows, sum);
    else if (type == ECH_PACK_Q6)
        sums_q6(unit, x, block, n_panels, n_rows, sum);
    else if (type == ECH_PACK_Q5K)
        sums_q5(unit, ech_quant_in_unit(type, block) * 320, x, block, n_panels, n_rows, sum);
    else
        sums_q4(unit, ech_quant_in_unit(type, block) * 256, x, block, n_panels, n_rows, sum);
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++)
    {
        const char *const at =
            unit[i / 2] + ech_quant_data_bytes(type) + block % 2 * 32 + i % 2 * 16;
        const bool has_min = ech_quant_has_min(type);
        __m256 d, m;
        if (scales != NULL) {
            d = _mm256_load_ps(scales + i % 2 * 8);
            m = _mm256_load_ps(scales + ECH_PANEL + i % 2 * 8);
        } else if (ech_quant_is_super(type)) {
            scales_6bit(type, unit[i / 2], block, i % 2, &d, &m);
        } else {
            d = halves_at(at);
            if (has_min) m = halves_at(at + 64);
        }
        UNROLL for (uint32_t j = 0; j < n_rows; j++)
        {
            const __m256 s = _mm256_castsi256_ps(quad(x, j, x->s + (size_t)block * 4));
            const __m256i c = quad(x, j, x->c + (size_t)block * 4);
            if (!has_min) {
                sum[i][j] = _mm256_add_epi32(sum[i][j], c);
                acc[i][j] =
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][j]), _mm256_mul_ps(d, s), acc[i][j]);
                continue;
            }
            const __m256 cm = _mm256_mul_ps(_mm256_cvtepi32_ps(c), m);
            acc[i][j] = _mm256_fmadd_ps(_mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][j]), d, cm), s,
                                        acc[i][j]);
        }
    }
}

/* How far from a unit lies what is fetched into L2 beside it: `ahead` in units before `until`. */
typedef struct fetcher {
    const char *until;
    ptrdiff_t ahead, then;
} fetcher;

/*
 * A stream (one or two rows) fetches so far ahead, at the end of a panel the beginning of the one
 * that it reads next. Measured on Zen 3 (docs/performance.md): far enough for a core to have all
 * the lines in flight that it can, whatever the prefetchers make of the order of loads.
 */
#define STREAM_AHEAD 8192

ALWAYS_INLINE fetcher fetcher_of(const ech_mm_args *const a, const uint32_t p,
                                 const uint32_t n_rows, const size_t panel_bytes)
{
    const char *const w = a->w[p], *const end = w + panel_bytes;
    if (n_rows > STREAM_ROWS) {
        const ptrdiff_t ahead = bytes_ahead(a, p, n_rows);
        return (fetcher){ end, ahead, ahead };
    }
    const char *const next = p + 1 < a->n_panels ? a->w[p + 1] : a->next != NULL ? a->next[0] : end;
    return (fetcher){ end - STREAM_AHEAD, STREAM_AHEAD, next - end + STREAM_AHEAD };
}

ALWAYS_INLINE void tile_quant(const ech_pack_type type, const ech_mm_args *const a,
                              const float *scales, const uint32_t p, const uint32_t r,
                              const uint32_t n_panels, const uint32_t n_rows)
{
    __m256 acc[MAX_P][MAX_R];
    const char *unit[MAX_P];
    act_rows x;
    const uint32_t pair = ech_quant_pair_bytes(type), half = pair / 2 / 64 * 64;
    const uint32_t n_blocks = ech_quant_blocks(a->k_last);
    const fetcher f = fetcher_of(a, p, n_rows, ech_panel_bytes(type, a->k_last));
    x.s = (size_t)n_blocks * ECH_QUANT_BLOCK;
    x.c = x.s + (size_t)n_blocks * 4;
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x.q[j] = keep((const char *)row_f32(a, r + j));
    UNROLL for (uint32_t i = 0; i < n_panels; i++) unit[i] = keep(a->w[p + i]);
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        acc[i][j] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b += 2) {
        const char *const here = unit[0] + ech_quant_in_unit(type, b) / 2 * pair;
        const char *const at = here + (here < f.until ? f.ahead : f.then);
        if (f.ahead != 0) fetch_unit(at, half);
        one_block(type, unit, scales, &x, b, n_panels, n_rows, acc);
        if (scales != NULL) scales += 2 * ECH_PANEL;
        if (f.ahead != 0) fetch_unit(at + half, pair - half);
        one_block(type, unit, scales, &x, b + 1, n_panels, n_rows, acc);
        if (scales != NULL) scales += 2 * ECH_PANEL;
        if (ech_quant_in_unit(type, b + 2) == 0)
            UNROLL for (uint32_t i = 0; i < n_panels; i++) unit[i] += ech_quant_unit_bytes(type);
    }
    UNROLL for (uint32_t i = 0; i < 2 * n_panels; i++) UNROLL for (uint32_t j = 0; j < n_rows; j++)
        _mm256_storeu_ps(output_at(a, p + i / 2, r + j) + i % 2 * 8, acc[i][j]);
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

MM_KERNEL(ech_k_mm_q8_q8_avx2, tile_q8)
MM_KERNEL(ech_k_mm_q6_q8_avx2, tile_q6)
MM_KERNEL(ech_k_mm_q6k_q8_avx2, tile_q6k)
MM_KERNEL(ech_k_mm_q4_q8_avx2, tile_q4)
MM_KERNEL(ech_k_mm_q4m_q8_avx2, tile_q4m)

ALWAYS_INLINE void prepare(const ech_pack_type type, const char *const unit, const uint32_t block,
                           float *const to)
{
    for (uint32_t half = 0; half < 2; half++) {
        __m256 d, m;
        scales_6bit(type, unit, block, half, &d, &m);
        _mm256_store_ps(to + half * 8, d);
        _mm256_store_ps(to + ECH_PANEL + half * 8, m);
    }
}

PREPARED_KERNEL(ech_k_mm_q4k_q8_avx2, q4k, ECH_PACK_Q4K)
PREPARED_KERNEL(ech_k_mm_q5k_q8_avx2, q5k, ECH_PACK_Q5K)
