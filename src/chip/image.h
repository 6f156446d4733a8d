/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed image: all weights of a model in one region, in the layout that the kernels read.
 *
 *     0            header
 *     dir_offset   directory: n_entries records, in the order of offsets
 *     …            entries, each at a multiple of ECH_IMAGE_ALIGN
 *
 * A matrix [rows, cols] is cut into panels of 16 output rows; inside a panel, k (the column) runs
 * slowest, so that one 64-byte load gives the same k of 16 rows:
 *
 *     f32   [panel][k][16]
 *     f16   [panel][k][16]
 *     bf16  [panel][k/2][16][2]        one load: 16 rows x 2 k, for shifts and for dot products
 *
 *     q8, q6, q4, q4m  blocks with scales, see quant.h
 *
 * Rows are padded to 16, odd K of bf16 to 2, both with zeros. One layout serves every instruction
 * set. Vectors are f32, contiguous. A raw entry is bytes that only its owner interprets.
 *
 * The image is input wherever it comes from: ech_image_check() before anything in it is used. The
 * parent plans it with ech_image_plan_*(), writes header and directory, and has the `pack`
 * callable fill the entries (pack.h). Pure functions, any thread.
 */
#ifndef ECH_CHIP_IMAGE_H
#define ECH_CHIP_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"

#define ECH_IMAGE_MAGIC          UINT64_C(0x474d49484345beef)
#define ECH_IMAGE_LAYOUT_VERSION 4
#define ECH_IMAGE_ALIGN                                                                            \
    4096                   /* of entries: a page, so that a part can be advised or checked alone */
#define ECH_IMAGE_NAME 120 /* bytes of an entry's name, its zero included */
#define ECH_PANEL      16  /* output rows of a panel */

/* Part of the image format: append only. */
typedef enum ech_pack_type {
    ECH_PACK_F32,
    ECH_PACK_F16,
    ECH_PACK_BF16,
    ECH_PACK_S8,  /* only in KV pages: [panel][k][16] bytes, scales beside them */
    ECH_PACK_Q8,  /* 8-bit blocks of 32 columns with a scale: quant.h */
    ECH_PACK_Q4,  /* 4-bit blocks with a scale */
    ECH_PACK_Q4M, /* 4-bit blocks with a scale and a minimum */
    ECH_PACK_Q6,  /* 6-bit blocks with a scale */
    ECH_PACK_Q6K, /* 6-bit super-blocks with a scale for each 16 columns */
    ECH_PACK_Q4K, /* 4-bit super-blocks with a scale and a minimum for each 32 columns */
    ECH_PACK_Q5K, /* the same of 5 bits */
    ECH_PACK_COUNT,
} ech_pack_type;

typedef enum ech_image_kind {
    ECH_IMAGE_MATRIX = 1, /* panels of `type` */
    ECH_IMAGE_VECTOR = 2, /* f32 [rows], cols 1 */
    ECH_IMAGE_RAW = 3,    /* rows bytes, cols 1 */
} ech_image_kind;

typedef struct ech_image_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_entries;
    uint64_t image_bytes; /* of the whole image, a multiple of ECH_IMAGE_ALIGN */
    uint64_t dir_offset;
    uint64_t dir_checksum; /* ech_checksum() of the directory */
    uint64_t reserved[3];
} ech_image_header;

_Static_assert(sizeof(ech_image_header) == 64, "part of the image format");

typedef struct ech_image_entry {
    char name[ECH_IMAGE_NAME];
    uint32_t kind;   /* ech_image_kind */
    uint32_t type;   /* ech_pack_type of a matrix, else 0 */
    uint64_t rows;   /* outputs */
    uint64_t cols;   /* K */
    uint64_t offset; /* from the image's first byte */
    uint64_t bytes;
    uint64_t checksum; /* of the entry's bytes, written with a cache file; 0: not known */
    uint64_t reserved[2];
} ech_image_entry;

_Static_assert(sizeof(ech_image_entry) == 184, "part of the image format");

const char *ech_pack_type_name(ech_pack_type type);

/* Bytes of one panel with that many columns; 0 for a type that isn't one. */
size_t ech_panel_bytes(ech_pack_type type, uint64_t cols);
/* Bytes of a packed matrix; 0 when the type isn't one or the size overflows. */
size_t ech_matrix_bytes(ech_pack_type type, uint64_t rows, uint64_t cols);

/* 64-bit digest against accidents (not against people); fast, the same on every machine. */
uint64_t ech_checksum(const void *data, size_t len);

/* ---- planning, in the parent ------------------------------------------------------------------
 */

typedef struct ech_image_plan {
    ech_image_entry *entries;
    uint32_t n_entries, cap_entries;
} ech_image_plan;

/*
 * Adds an entry; its index goes to *ret_idx (may be NULL). The offset is set by
 * ech_image_plan_place(). EINVAL: a name that is empty, too long or taken, a shape of 0 or too
 * large.
 */
ech_status ech_image_plan_matrix(ech_image_plan *plan, const char *name, ech_pack_type type,
                                 uint64_t rows, uint64_t cols, uint32_t *ret_idx, ech_error *err);
ech_status ech_image_plan_vector(ech_image_plan *plan, const char *name, uint64_t n,
                                 uint32_t *ret_idx, ech_error *err);
ech_status ech_image_plan_raw(ech_image_plan *plan, const char *name, uint64_t bytes,
                              uint32_t *ret_idx, ech_error *err);
/* Gives every entry its offset; returns the image's size, what the region must have. */
uint64_t ech_image_plan_place(ech_image_plan *plan);
/* Writes header and directory to the image's beginning; place() was called and the region is that
 * large. */
void ech_image_plan_write(const ech_image_plan *plan, void *image);
void ech_image_plan_fini(ech_image_plan *plan);

/* ---- reading -------------------------------------------------------------------------------- */

/*
 * Whether bytes [0, len) begin with an image that this program can use: header, version, directory
 * checksum, every entry inside the image, aligned, of the size that its shape says, names unique
 * and terminated. Doesn't read the entries. EFORMAT says which entry and what.
 */
ech_status ech_image_check(const void *image, size_t len, ech_error *err);
/* The directory of a checked image. */
const ech_image_entry *ech_image_entries(const void *image, uint32_t *ret_n);
/* The entry of that name, NULL if there is none. */
const ech_image_entry *ech_image_find(const void *image, const char *name);
/* Compares the bytes of every entry that has a checksum with it. Reads the whole image. */
ech_status ech_image_verify(const void *image, size_t len, ech_error *err);

#endif
