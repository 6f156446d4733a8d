/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `pack` program: which bytes of which source file become which part of the image. Made in the
 * parent, run on all cores of a chip. Running it twice gives the same bytes.
 *
 *     task: tensors 0 … n-1 the sources (u8, INPUT), last the weights image (u8, OUTPUT_EXISTING);
 *           no scalars
 *
 * The image's padding must be zero before (a fresh region is). The progress word counts tiles.
 * A program without items fills nothing: it enters an image that is there already, as a mapped file
 * (INPUT then), into the chip's page tables, and locks it in memory if that is allowed.
 *
 *     ech_pack_builder *b;
 *     ech_pack_builder_create(&b);
 *     ech_pack_builder_matrix(b, &entries[qkv], (ech_pack_source){ 0, q_off, ECH_SRC_BF16 },
 * q_rows, ech_pack_rows(0), err); ech_pack_builder_matrix(b, &entries[qkv], k_source, k_rows,
 * ech_pack_rows(q_rows), err); ech_pack_builder_matrix(b, &entries[gate_up], gate, n,
 * ech_pack_rows_interleaved(0), err); ech_pack_builder_matrix(b, &entries[gate_up], up, n,
 * ech_pack_rows_interleaved(1), err); ech_pack_builder_finish(b, n_sources, image_bytes, &bytes,
 * &len, err);   // free(bytes) ech_pack_builder_destroy(&b);
 */
#ifndef ECH_CHIP_PACK_H
#define ECH_CHIP_PACK_H

#include "src/chip/pack_ops.h"
#include "src/chip/program.h"

/* How numbers are stored in a source file. Part of the program format: append only. */
typedef enum ech_src_type {
    ECH_SRC_F32,
    ECH_SRC_F16,
    ECH_SRC_BF16,
    /* Blocks of GGUF files (dequant.h). */
    ECH_SRC_Q4_0,
    ECH_SRC_Q4_1,
    ECH_SRC_Q5_0,
    ECH_SRC_Q5_1,
    ECH_SRC_Q8_0,
    ECH_SRC_Q2_K,
    ECH_SRC_Q3_K,
    ECH_SRC_Q4_K,
    ECH_SRC_Q5_K,
    ECH_SRC_Q6_K,
    ECH_SRC_IQ4_NL,
    ECH_SRC_MXFP4,
    ECH_SRC_COUNT,
} ech_src_type;

/* Bytes of n numbers in a row; 0 when the type isn't one, or n is no multiple of its block. */
size_t ech_src_bytes(ech_src_type type, uint64_t n);

typedef struct ech_pack_source {
    uint32_t tensor;   /* index of the task's source tensor */
    uint64_t offset;   /* byte of the first number in it; any alignment */
    ech_src_type type; /* row-major [rows, cols], no gaps */
} ech_pack_source;

/*
 * Which row of the destination source row r becomes: row0 + (r / group) * stride + r % group.
 * ech_pack_rows: one block at row0. ech_pack_rows_interleaved: panels of 16 of two matrices in
 * turn (gate panel, up panel, …), which the SwiGLU epilogue expects; a matrix made of two with n
 * rows each has 2 * round_up(n, 16) rows.
 */
typedef struct ech_pack_place {
    uint64_t row0, group, stride;
} ech_pack_place;

static inline ech_pack_place ech_pack_rows(const uint64_t row0)
{
    return (ech_pack_place){ row0, UINT64_MAX, 0 };
}

static inline ech_pack_place ech_pack_rows_interleaved(const uint32_t which)
{
    return (ech_pack_place){ (uint64_t)which * ECH_PANEL, ECH_PANEL, UINT64_C(2) * ECH_PANEL };
}

typedef struct ech_pack_builder ech_pack_builder;

ech_status ech_pack_builder_create(ech_pack_builder **ret_b);
void ech_pack_builder_destroy(ech_pack_builder **b);
/* rows x entry->cols numbers into the (placed) matrix entry. EINVAL when they don't fit in it. */
ech_status ech_pack_builder_matrix(ech_pack_builder *b, const ech_image_entry *entry,
                                   ech_pack_source source, uint64_t rows, ech_pack_place place,
                                   ech_error *err);
/* n numbers to f32 at element `first` of a vector entry. */
ech_status ech_pack_builder_vector(ech_pack_builder *b, const ech_image_entry *entry,
                                   ech_pack_source source, uint64_t first, uint64_t n,
                                   ech_error *err);
/*
 * The entry's bytes as they are in another image, whose checksum they must have (entry->checksum);
 * source.type means nothing.
 */
ech_status ech_pack_builder_copy(ech_pack_builder *b, const ech_image_entry *entry,
                                 ech_pack_source source, ech_error *err);
/* The program's bytes, one malloc that the caller frees. Nothing is written on failure. */
ech_status ech_pack_builder_finish(ech_pack_builder *b, uint32_t n_sources, uint64_t image_bytes,
                                   void **ret_bytes, size_t *ret_len, ech_error *err);

/* ---- the program's format, for the executor -----------------------------------------------------
 */

typedef struct ech_pack_item {
    uint64_t src_offset;
    uint32_t src_tensor;
    uint32_t src_type;   /* ech_src_type */
    uint64_t rows, cols; /* of the source; a vector has one row */
    uint64_t dst_offset; /* in the image: of the matrix, or of the vector's first element written */
    uint64_t dst_rows;   /* of the matrix */
    ech_pack_place place;
    uint32_t kind;     /* ech_image_kind: MATRIX, VECTOR, or RAW for `cols` bytes that are copied */
    uint32_t type;     /* ech_pack_type of a matrix */
    uint64_t checksum; /* that copied bytes must have */
} ech_pack_item;

typedef struct ech_pack_header {
    ech_program_head head;
    uint32_t n_items;
    uint32_t n_sources;
    uint64_t image_bytes;
} ech_pack_header; /* the items follow */

/* Every item inside the image and of a possible shape. The sources' sizes are checked by a run. */
ech_status ech_pack_check(const void *program, size_t len, ech_error *err);

/* The items whose bytes a source must have; what check leaves open. */
ech_status ech_pack_check_source(const ech_pack_item *item, uint64_t source_bytes, ech_error *err);

/* Tiles of an item, and one of them: 16 source rows of a matrix, a whole vector or copy. Any core.
 */
uint32_t ech_pack_item_tiles(const ech_pack_item *item);
/* The bytes of the image that a tile writes lie in [*ret_from, *ret_to). */
void ech_pack_tile_range(const ech_pack_item *item, uint32_t tile, uint64_t *ret_from,
                         uint64_t *ret_to);
/* False: copied bytes don't have their checksum. */
bool ech_pack_tile(const ech_pack_ops *ops, const ech_pack_item *item, uint32_t tile,
                   const void *source, void *image);

#endif
