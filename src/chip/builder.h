/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes forward programs, in the parent. An architecture file calls one function per fused
 * operation and keeps no offsets: buffers and constants are placed here.
 *
 *     ech_program_builder *b;
 *     ech_program_builder_create(&b, &shape, err);
 *     x    = ech_program_builder_buffer(b, hidden);
 *     qkv  = ech_program_builder_buffer(b, (n_heads + 2 * n_kv_heads) * head_dim);
 *     attn = ech_program_builder_buffer(b, n_heads * head_dim);
 *     act  = ech_program_builder_buffer(b, intermediate);
 *     rope = ech_program_builder_rope(b, inv_freq, head_dim / 2, 1.0f);
 *     ech_program_builder_embed(b, find("embed"), x);
 *     for every layer
 *         ech_program_builder_matmul(b, find("qkv"), x, qkv, &(ech_matmul_options){ .norm = …, .eps
 * = eps }); ech_program_builder_rope_kv(b, qkv, rope, layer, &(ech_rope_kv_options){ … });
 *         ech_program_builder_attention(b, qkv, attn, layer, 1 / sqrtf(head_dim));
 *         ech_program_builder_matmul(b, find("o"), attn, x, &(ech_matmul_options){ .epilogue =
 * ECH_EPILOGUE_ADD }); ech_program_builder_matmul(b, find("gate_up"), x, act, &(…){ .norm = …,
 * .epilogue = ECH_EPILOGUE_SWIGLU }); ech_program_builder_matmul(b, find("down"), act, x, &(…){
 * .epilogue = ECH_EPILOGUE_ADD }); ech_program_builder_head(b, find("head"), find("norm"), eps, x);
 *     ech_program_builder_finish(b, &bytes, &len, err);
 *     ech_program_builder_destroy(&b);
 *
 * Entries are those of the image's directory, placed (image.h). The first call that fails is
 * remembered and returned by finish(); the ones after it do nothing. So calls need no checks.
 */
#ifndef ECH_CHIP_BUILDER_H
#define ECH_CHIP_BUILDER_H

#include "src/chip/program.h"

typedef struct ech_program_builder ech_program_builder;

typedef struct ech_program_shape {
    uint32_t max_rows;      /* rows of the largest step: the prefill chunk and the decode rows */
    uint32_t max_logits;    /* rows of the output: <= ECH_STEP_MAX_LOGITS of logits */
    uint32_t max_positions; /* context length: positions are below it */
    uint32_t vocab;         /* columns of the logits tensor */
    uint32_t n_heads;
    ech_kv_shape kv; /* layers, KV heads, head_dim, type */
    ech_compute compute;
    uint64_t image_bytes;
    bool gives_hidden; /* the program ends with the normed hidden state, not with logits */
} ech_program_shape;

typedef struct ech_buffer_ref {
    uint32_t idx;
} ech_buffer_ref;

typedef struct ech_matmul_options {
    const ech_image_entry *norm; /* RMS norm of the input, or NULL */
    const ech_image_entry *bias; /* or NULL */
    float eps;
    ech_epilogue epilogue;
} ech_matmul_options;

typedef struct ech_rope_kv_options {
    const ech_image_entry *q_norm; /* per-head RMS norm, or NULL */
    const ech_image_entry *k_norm;
    float eps;
    ech_rope_pairs pairs;
} ech_rope_kv_options;

ech_status ech_program_builder_create(ech_program_builder **ret_b, const ech_program_shape *shape,
                                      ech_error *err);
void ech_program_builder_destroy(ech_program_builder **b);

/* f32 [max_rows, width] in the arena. Contents last until overwritten, within one step. */
ech_buffer_ref ech_program_builder_buffer(ech_program_builder *b, uint32_t width);
/* Columns [from, from + width) of a buffer, as one to write to; from is a multiple of 16. */
ech_buffer_ref ech_program_builder_slice(ech_program_builder *b, ech_buffer_ref of, uint32_t from,
                                         uint32_t width);
/* cos and sin of pos * inv_freq[i], times scaling, computed once a step. Copies inv_freq. */
ech_buffer_ref ech_program_builder_rope(ech_program_builder *b, const float *inv_freq,
                                        uint32_t n_freqs, float scaling);

void ech_program_builder_embed(ech_program_builder *b, const ech_image_entry *table,
                               ech_buffer_ref out);
/* in [cols of weight]; out [rows], or half of it with SWIGLU; in and out differ, unless stated. */
void ech_program_builder_matmul(ech_program_builder *b, const ech_image_entry *weight,
                                ech_buffer_ref in, ech_buffer_ref out,
                                const ech_matmul_options *options);
void ech_program_builder_rope_kv(ech_program_builder *b, ech_buffer_ref qkv, ech_buffer_ref rope,
                                 uint32_t layer, const ech_rope_kv_options *options);
void ech_program_builder_attention(ech_program_builder *b, ech_buffer_ref qkv, ech_buffer_ref out,
                                   uint32_t layer, float scale);
/* The end: logits, or with gives_hidden the hidden state as the head would read it. norm may be
 * NULL. */
void ech_program_builder_head(ech_program_builder *b, const ech_image_entry *weight,
                              const ech_image_entry *norm, float eps, ech_buffer_ref in);

/*
 * Places the arena, seals and checks the program. *ret_bytes is one malloc that the caller frees.
 * The builder can only be destroyed afterwards.
 */
ech_status ech_program_builder_finish(ech_program_builder *b, void **ret_bytes, size_t *ret_len,
                                      ech_error *err);

#endif
