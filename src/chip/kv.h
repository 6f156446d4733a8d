/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How keys and values lie in a page. A page holds 32 positions of every layer:
 *
 *     page   = [layer][kv head][K block, V block]
 *     block  = two (K) or head_dim/16, rounded up (V), panels, the same that weights have
 *              (image.h), so that one set of matrix kernels reads both:
 *       K: [2 halves of 16 positions][k = dimension]  16 positions side by side
 *       V: [panels of 16 dimensions ][k = position ]  16 dimensions side by side
 *     q8 : 32 f32 scales, one per position, then the block of bytes
 *
 * Every block starts at a multiple of 64 bytes. What lies past the positions written, or past
 * head_dim in V, is never part of a result. Numbers that f16 can't hold are stored as its largest.
 */
#ifndef ECH_CHIP_KV_H
#define ECH_CHIP_KV_H

#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"
#include "echelon/types.h"
#include "src/chip/image.h"

#define ECH_KV_PAGE           32 /* positions in a page */
#define ECH_KV_LAYOUT_VERSION 1
/* What a page's shape may be at most. */
#define ECH_KV_MAX_LAYERS   1024
#define ECH_KV_MAX_HEADS    1024
#define ECH_KV_MAX_HEAD_DIM 1024

typedef struct ech_kv_shape {
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    ech_kv_type type;
} ech_kv_shape;

/* Types of ech_kv_type: values at or above it are none. */
#define ECH_KV_TYPES 4

/* Bytes of the K block and of the V block of one head in one page. */
size_t ech_kv_k_bytes(ech_kv_type type, uint32_t head_dim);
size_t ech_kv_v_bytes(ech_kv_type type, uint32_t head_dim);
/* The panel type that a KV type is read as. */
ech_pack_type ech_kv_panel_type(ech_kv_type type);
/* The parts of a block: scales (0 bytes but for q8), then panels of these sizes. */
size_t ech_kv_scale_bytes(ech_kv_type type);
size_t ech_kv_k_panel_bytes(ech_kv_type type, uint32_t head_dim);
size_t ech_kv_v_panel_bytes(ech_kv_type type);
/* Bytes of one page; 0 when the shape is not one that this chip can run. */
size_t ech_kv_page_bytes(const ech_kv_shape *shape);

#endif
