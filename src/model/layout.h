/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pack plan: which tensor of the files becomes which rows of which entry of the packed image.
 *
 *     files                         image
 *     q_proj [2048, 1024] ──┐
 *     k_proj [1024, 1024] ──┼──→    layers.0.qkv      [4096, 1024]
 *     v_proj [1024, 1024] ──┘
 *     gate_proj, up_proj  ────→     layers.0.gate_up  panels of 16 rows in turn
 *
 * An architecture fills it through ech_layout_matrix and ech_layout_vector, which check that the
 * tensor is there, has the expected shape and a type that is computed. After ech_layout_finish it
 * is read-only: every tensor of the files is bound or known to be without effect.
 */
#ifndef ECH_MODEL_LAYOUT_H
#define ECH_MODEL_LAYOUT_H

#include "src/chip/image.h"
#include "src/chip/pack.h"
#include "src/model/config.h"
#include "src/model/weights.h"

/* One tensor's place. */
typedef struct ech_part {
    const ech_weight *weight;
    uint32_t entry;       /* of the image plan */
    uint64_t rows;        /* of a matrix; elements of a vector */
    ech_pack_place place; /* of a matrix */
} ech_part;

struct ech_layout {
    const ech_config *config;
    const ech_weights *weights;
    const char *path; /* of the model, for errors */
    ech_model_format format;
    ech_quantize quantize;
    ech_image_plan image;
    uint64_t image_bytes; /* after ech_layout_finish */
    ech_part *parts;      /* [n_parts] in the order of the computation */
    uint32_t n_parts;
    uint32_t cap_parts;
    bool *used; /* [weights->n] */
    bool tied;  /* the head is the embedding */
};

/* A tensor of the files and what the config says its rows are. */
typedef struct ech_source_rows {
    char name[128];
    uint64_t rows;
} ech_source_rows;

typedef enum ech_stacking {
    ECH_STACK_BELOW,  /* one after the other */
    ECH_STACK_PANELS, /* two tensors, panels of 16 rows in turn */
} ech_stacking;

void ech_layout_init(ech_layout *l, const ech_config *config, const ech_weights *weights,
                     const char *path, ech_model_format format, ech_quantize quantize);
void ech_layout_fini(ech_layout *l);

/* Binds n tensors of cols columns to one matrix entry. */
ech_status ech_layout_matrix(ech_layout *l, const char *entry, const ech_source_rows *sources,
                             uint32_t n, uint64_t cols, ech_stacking stacking, ech_error *err);
/* Whether the matrices of these tensors would be packed as one type; missing ones don't disagree.
 */
bool ech_layout_agrees(const ech_layout *l, const ech_source_rows *sources, uint32_t n);
/* Binds a tensor of n elements to a vector entry. */
ech_status ech_layout_vector(ech_layout *l, const char *entry, const char *tensor, uint64_t n,
                             ech_error *err);
/* Whether the files have a tensor of that name. */
bool ech_layout_has(const ech_layout *l, const char *tensor);
/* Refuses tensors that nothing bound, then places the entries. */
ech_status ech_layout_finish(ech_layout *l, ech_error *err);

/* The entry of that name; the architecture asks for those that it bound. */
const ech_image_entry *ech_layout_entry(const ech_layout *l, const char *fmt, ...)
    ECH_PRINTF_(2, 3);

/* The pack program's bytes, appended to out. */
ech_status ech_layout_pack_program(const ech_layout *l, ech_buf *out, ech_error *err);

#endif
