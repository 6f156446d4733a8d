/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of a matrix product over register tiles, for every instruction set. The including
 * file defines, before it:
 *
 *     TILE_MAX_ROWS            most rows that a register tile holds
 *     TILE_PANELS(rows)        panels that are taken together with that many rows: a power of two
 *
 * and for every kernel a function
 *
 *     static ALWAYS_INLINE void tile_X(const ech_mm_args *a, uint32_t p, uint32_t r,
 *                                      uint32_t n_panels, uint32_t n_rows)
 *
 * that computes rows r … r+n_rows-1 of panels p … p+n_panels-1, both counts constants after
 * inlining. MM_KERNEL(name, tile_X) then makes the kernel. Which tile an output falls into changes
 * nothing about its chain (ops.h).
 *
 * Rows are cut into blocks of nearly the same size, so that no block of one row pays for reading
 * all weights alone.
 */
#ifndef ECH_CHIP_CPU_MM_TILE_H
#define ECH_CHIP_CPU_MM_TILE_H

#include "src/chip/cpu/ops.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 17")

typedef void tile_fn(const ech_mm_args *a, uint32_t p, uint32_t r, uint32_t n_panels,
                     uint32_t n_rows);

ALWAYS_INLINE const float *row_f32(const ech_mm_args *const a, const uint32_t r)
{
    return (const float *)((const char *)a->x + r * a->x_stride);
}

ALWAYS_INLINE float *output_at(const ech_mm_args *const a, const uint32_t p, const uint32_t r)
{
    return a->y + r * a->y_stride + (size_t)p * ECH_PANEL;
}

/*
 * The same pointer, computed here and not again: left alone, the compiler multiplies strides anew
 * in every round of the innermost loop.
 */
ALWAYS_INLINE const void *keep(const void *ptr)
{
    __asm__("" : "+r"(ptr));
    return ptr;
}

ALWAYS_INLINE void take_rows(const ech_mm_args *const a, const uint32_t r, const uint32_t n_rows,
                             const float **const x)
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x[j] = keep(row_f32(a, r + j));
}

/* Panels being read, and what to fetch meanwhile. */
typedef struct panels {
    const char *now[ECH_MM_MAX_PANELS], *next[ECH_MM_MAX_PANELS];
} panels;

/*
 * Every tile of these kernels (at most 12 rows): 3 to 16 rows of queries at depth wait for keys and
 * values otherwise, and larger prompts lose nothing by it (docs/performance.md). A kernel with
 * larger tiles would have no registers for it.
 */
ALWAYS_INLINE bool fetches(const uint32_t n_rows)
{
    return n_rows <= 12;
}

/* So few rows only stream their weights. */
#define STREAM_ROWS 2

/*
 * Kernels of quantised weights: how far ahead of what they read they fetch into L2, in bytes. A
 * stream a little: the prefetchers follow a single stream well, but stop at 4 KiB. More rows the
 * panels of the next call, since a stream that is read in bursts isn't followed. (Streams of AVX2
 * have their own way: mm_quant_avx2.c.)
 */
ALWAYS_INLINE ptrdiff_t bytes_ahead(const ech_mm_args *const a, const uint32_t p,
                                    const uint32_t n_rows)
{
    if (n_rows <= STREAM_ROWS) return 1024;
    return a->next != NULL ? (const char *)a->next[p] - (const char *)a->w[p] : 0;
}

/* A constant number of bytes, a unit of quantised weights. */
ALWAYS_INLINE void fetch_unit(const char *const at, const uint32_t n)
{
    UNROLL for (uint32_t i = 0; i < n; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/* The panels of one part; returns its number of columns. */
ALWAYS_INLINE uint32_t take_panels(const ech_mm_args *const a, const uint32_t part,
                                   const uint32_t p, const uint32_t n_panels, const uint32_t n_rows,
                                   panels *const w)
{
    const void *const *const next = a->next != NULL ? a->next : a->w;
    UNROLL for (uint32_t i = 0; i < n_panels; i++)
    {
        w->now[i] = keep(a->w[part * a->n_panels + p + i]);
        if (fetches(n_rows)) w->next[i] = keep(next[part * a->n_panels + p + i]);
    }
    return part == a->n_parts - 1 ? a->k_last : a->k_part;
}

/*
 * Into L2: measured on Zen 4 (docs/performance.md), the stream prefetchers start anew at every
 * 4 KiB, where panels of a page end; fetching into L1 occupies the few buffers that loads need.
 */
ALWAYS_INLINE void fetch(const panels *const w, const size_t at, const uint32_t n_panels,
                         const uint32_t n_rows)
{
    if (!fetches(n_rows)) return;
    UNROLL for (uint32_t i = 0; i < n_panels; i++) __builtin_prefetch(w->next[i] + at, 0, 2);
}

/* From a part's columns of the rows to the next part's: n floats on. */
ALWAYS_INLINE void advance_rows(const uint32_t n, const uint32_t n_rows, const float **const x)
{
    UNROLL for (uint32_t j = 0; j < n_rows; j++) x[j] += n;
}

/* n_rows constant: all panels of the call, in groups that shrink at the end. */
ALWAYS_INLINE void walk_panels(const ech_mm_args *const a, const uint32_t r, const uint32_t n_rows,
                               tile_fn *const tile)
{
    uint32_t p = 0;
    if (TILE_PANELS(n_rows) >= 8)
        for (; a->n_panels - p >= 8; p += 8)
            tile(a, p, r, 8, n_rows);
    if (TILE_PANELS(n_rows) >= 4)
        for (; a->n_panels - p >= 4; p += 4)
            tile(a, p, r, 4, n_rows);
    if (TILE_PANELS(n_rows) >= 2)
        for (; a->n_panels - p >= 2; p += 2)
            tile(a, p, r, 2, n_rows);
    for (; p < a->n_panels; p++)
        tile(a, p, r, 1, n_rows);
}

/* Rows of block i when n are cut into n_blocks nearly equal ones. */
ALWAYS_INLINE uint32_t block_size(const uint32_t n, const uint32_t n_blocks, const uint32_t i)
{
    return n / n_blocks + (i < n % n_blocks ? 1 : 0);
}

#define CASE(n, tile)                                                                              \
    case n:                                                                                        \
        walk_panels(a, r, n, tile);                                                                \
        break

#define MM_KERNEL(name, tile)                                                                      \
    void name(const ech_mm_args *const a)                                                          \
    {                                                                                              \
        const uint32_t n_blocks = (a->n_rows + TILE_MAX_ROWS - 1) / TILE_MAX_ROWS;                 \
        uint32_t r = 0;                                                                            \
        for (uint32_t i = 0; i < n_blocks; i++) {                                                  \
            const uint32_t n = block_size(a->n_rows, n_blocks, i);                                 \
            switch (n) {                                                                           \
                TILE_CASES(tile)                                                                   \
            }                                                                                      \
            r += n;                                                                                \
        }                                                                                          \
    }

#endif
