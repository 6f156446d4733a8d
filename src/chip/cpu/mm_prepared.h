/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of super-blocks with more rows than two register tiles have: scales, 6 bits and a factor
 * in memory, are made floats once for all rows, not by each tile. The including file has mm_tile.h
 * and defines
 *
 *     ALWAYS_INLINE void prepare(ech_pack_type type, const char *unit, uint32_t block, float *to)
 *
 * which writes a block's scales and minima, [2][16], and tiles tile_X and, with scales of
 * prepared_scales(), tile_X_prepared; PREPARED_KERNEL(name, X, type) then makes the kernel. The
 * floats are those that a tile would make: bits don't change.
 */
#ifndef ECH_CHIP_CPU_MM_PREPARED_H
#define ECH_CHIP_CPU_MM_PREPARED_H

#include "src/chip/cpu/mm_tile.h"
#include "src/chip/quant.h"

/* Longer rows (no model has them) don't have their scales prepared. */
#define MAX_PREPARED 1024 /* blocks */

typedef struct prepared_args {
    ech_mm_args a;       /* first: tiles are given this */
    const float *scales; /* [block][panel][2][16] */
} prepared_args;

ALWAYS_INLINE const float *prepared_scales(const ech_mm_args *const a)
{
    return ((const prepared_args *)(const void *)a)->scales;
}

ALWAYS_INLINE void prepare(ech_pack_type type, const char *unit, uint32_t block, float *to);

/* All rows of n panels from p on, by a kernel that takes prepared scales. */
ALWAYS_INLINE void run_prepared(const ech_mm_args *const a, const ech_pack_type type,
                                const uint32_t p, const uint32_t n, ech_mm_fn *const kernel)
{
    float scales[MAX_PREPARED * TILE_PANELS(TILE_MAX_ROWS) * 2 * ECH_PANEL]
        __attribute__((aligned(64)));
    prepared_args some = { *a, scales };
    const uint32_t n_blocks = ech_quant_blocks(a->k_last);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t b = 0; b < n_blocks; b++) {
            const size_t unit = b / (ech_quant_unit_cols(type) / ECH_QUANT_BLOCK);
            prepare(type, (const char *)a->w[p + i] + unit * ech_quant_unit_bytes(type), b,
                    scales + ((size_t)b * n + i) * 2 * ECH_PANEL);
        }
    some.a.w += p;
    some.a.n_panels = n;
    some.a.next = a->next != NULL ? a->next + p : NULL;
    some.a.y += (size_t)p * ECH_PANEL;
    kernel(&some.a);
}

ALWAYS_INLINE void walk_prepared(const ech_mm_args *const a, const ech_pack_type type,
                                 ech_mm_fn *const few_rows, ech_mm_fn *const many_rows)
{
    const uint32_t most = TILE_PANELS(TILE_MAX_ROWS);
    /* Of one tile and a bit the preparation saves nothing. */
    if (a->n_rows < 2 * TILE_MAX_ROWS || ech_quant_blocks(a->k_last) > MAX_PREPARED) {
        few_rows(a);
        return;
    }
    for (uint32_t p = 0; p < a->n_panels; p += most)
        run_prepared(a, type, p, a->n_panels - p < most ? a->n_panels - p : most, many_rows);
}

#define PREPARED_KERNEL(name, x, type)                                                             \
    static ech_mm_fn few_rows_##x, many_rows_##x;                                                  \
    MM_KERNEL(few_rows_##x, tile_##x)                                                              \
    MM_KERNEL(many_rows_##x, tile_##x##_prepared)                                                  \
    void name(const ech_mm_args *const a)                                                          \
    {                                                                                              \
        walk_prepared(a, type, few_rows_##x, many_rows_##x);                                       \
    }

#endif
