/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How keys and values lie in a page. A page holds 32 positions of every layer:
 *
 *     page   = [layer][kv head][K block, V block]
 *     block  = two (K) or head_dim/16 (V) panels, the same panels that weights have (image.h),
 *              so that one set of matrix kernels reads both:
 *       K: [2 halves of 16 positions][k = dimension]  16 positions side by side
 *       V: [panels of 16 dimensions ][k = position ]  16 dimensions side by side
 *     q8 : 32 f32 scales, one per position, then the block of bytes
 *
 * Every block starts at a multiple of 64 bytes. Head dimensions are padded to 16 with zeros in V.
 * A layout version is part of every page's owner; bytes of another version are never read.
 */
#ifndef ECH_CHIP_KV_H
#define ECH_CHIP_KV_H

#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"
#include "echelon/types.h"

#define ECH_KV_PAGE           32 /* positions in a page */
#define ECH_KV_LAYOUT_VERSION 1

typedef struct ech_kv_shape {
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    ech_kv_type type;
} ech_kv_shape;

/* Types of ech_kv_type: values at or above it are none. */
#define ECH_KV_TYPES 4

/* Bytes of one K block and of one V block (they are equal). */
size_t ech_kv_block_bytes(ech_kv_type type, uint32_t head_dim);
/* Bytes of one page; 0 when the shape is not one that this chip can run. */
size_t ech_kv_page_bytes(const ech_kv_shape *shape);

#endif
