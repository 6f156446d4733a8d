/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model's files: name, type, shape, and where the bytes are. Filled by a reader
 * (safetensors.h, gguf.h), sealed once, then read-only.
 *
 * Invariant after ech_weights_seal: names are unique, every tensor lies inside its file and has
 * exactly the bytes that its type and shape ask for.
 */
#ifndef ECH_MODEL_WEIGHTS_H
#define ECH_MODEL_WEIGHTS_H

#include "src/base/arena.h"
#include "src/model/wtype.h"

#define ECH_WEIGHT_DIMS_MAX 8
#define ECH_WEIGHTS_MAX     (1u << 20)
/* A task takes 256 tensors: the files and the packed image. */
#define ECH_WEIGHT_FILES_MAX 255u

typedef struct ech_weight_file {
    const char *path;
    int fd;        /* -1 once closed */
    uint64_t size; /* when it was opened */
} ech_weight_file;

typedef struct ech_weight {
    const char *name;
    uint32_t file; /* index into files */
    ech_wtype type;
    uint32_t n_dims;
    uint64_t dims[ECH_WEIGHT_DIMS_MAX]; /* outermost first */
    uint64_t offset;                    /* of the first byte in the file */
    uint64_t bytes;
} ech_weight;

typedef struct ech_weights {
    ech_arena arena;        /* names and paths */
    ech_weight_file *files; /* [n_files] */
    uint32_t n_files;
    ech_weight *list; /* [n], by name once sealed */
    uint32_t n;
    uint32_t cap;
} ech_weights;

/* Opens a file for reading and adds it; only regular files. A zeroed ech_weights is empty. */
ech_status ech_weights_open_file(ech_weights *ts, const char *path, uint32_t *ret_file,
                                 ech_error *err);
/* Reads exactly len bytes at offset; a file that ends earlier is EFORMAT. */
ech_status ech_weights_read(const ech_weights *ts, uint32_t file, uint64_t offset, void *to,
                            size_t len, ech_error *err);
/* Adds a copy; t->name is copied too. */
ech_status ech_weights_add(ech_weights *ts, const ech_weight *t, ech_error *err);
/* Sorts by name. Two tensors of one name are EFORMAT with both files' names. */
ech_status ech_weights_seal(ech_weights *ts, ech_error *err);
/* Of a sealed set; NULL when there is none. */
const ech_weight *ech_weights_find(const ech_weights *ts, const char *name);
/* "[2, 3]" into buf, cut when it doesn't fit; returns buf. */
const char *ech_weight_shape_text(uint32_t n_dims, const uint64_t *dims, char *buf, size_t cap);
void ech_weights_close_files(ech_weights *ts);
void ech_weights_fini(ech_weights *ts);

#endif
