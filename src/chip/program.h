/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of compiled programs: position-independent bytes, made in the parent (builder.h,
 * pack.h), registered with the worker, executed in a chip child (exec.h). All numbers are
 * little-endian; there are no pointers, only offsets:
 *
 *     in the image    weights and vectors (image.h)
 *     in the data     constants that travel with the program (RoPE frequencies)
 *     in the arena    activations, f32, placed when the program was compiled
 *
 * A program is input like any other bytes: ech_program_check() looks at every offset and size
 * before one operation runs. Every program of whatever kind begins with ech_program_head.
 */
#ifndef ECH_CHIP_PROGRAM_H
#define ECH_CHIP_PROGRAM_H

#include "src/chip/image.h"
#include "src/chip/kv.h"

#define ECH_PROGRAM_MAGIC   UINT64_C(0x474f5250484345fe)
#define ECH_PROGRAM_VERSION 1
#define ECH_NONE            UINT64_MAX /* an offset that stands for "there is none" */

typedef enum ech_program_kind {
    ECH_PROGRAM_FORWARD = 1, /* prefill and decode: step.h */
    ECH_PROGRAM_PACK = 2,    /* pack.h */
    ECH_PROGRAM_SAMPLE = 3,  /* sampler.h */
} ech_program_kind;

typedef struct ech_program_head {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t bytes;    /* of the whole program, this head included */
    uint64_t checksum; /* ech_checksum() of all bytes after the head */
} ech_program_head;

_Static_assert(sizeof(ech_program_head) == 32, "part of the program format");

/* Magic, version, size and checksum; the kind goes to *ret_kind. EFORMAT otherwise. */
ech_status ech_program_head_check(const void *program, size_t len, ech_program_kind *ret_kind,
                                  ech_error *err);
/* Fills head and checksum of a finished program whose first bytes are an ech_program_head. */
void ech_program_seal(void *program, size_t len, ech_program_kind kind);

/* ---- forward programs ---------------------------------------------------------------------------
 */

/*
 * ech_compute says what a matrix product multiplies. With ECH_COMPUTE_BF16 the input of a matrix
 * whose packed type is bf16 is rounded to bf16; matrices of other types compute as with F32.
 * Attention over keys and values of type f16 or bf16 rounds too (forward_attention.c).
 */

typedef struct ech_forward_header {
    ech_program_head head;
    uint32_t n_ops;
    uint32_t op_bytes; /* sizeof(ech_op) */
    uint64_t ops_offset;
    uint64_t data_offset;
    uint64_t data_bytes;
    uint64_t image_bytes; /* the least size of the weights tensor */
    uint64_t arena_bytes; /* what the chip's arena must have */
    uint64_t
        prep_offset; /* in the arena: prepared inputs of a matrix product, [max_rows, prep_bytes] */
    uint64_t prep_bytes; /* bytes of one prepared row */
    uint32_t max_rows;
    uint32_t max_logits; /* rows of a step's output: logits or hidden states */
    uint32_t vocab;
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t kv_type; /* ech_kv_type */
    uint32_t compute; /* ech_compute */
    uint32_t
        max_positions;  /* a row's position must be below; bounds the page table that it may name */
    uint32_t out_width; /* columns of a step's output: the vocabulary, or a hidden state's */
} ech_forward_header;

_Static_assert(sizeof(ech_forward_header) % 8 == 0, "operations follow it");

/*
 * f32 [max_rows, stride] in the arena, or columns of it: offset is the first one's; columns past
 * width are spare, or another's.
 */
typedef struct ech_op_buffer {
    uint64_t offset;
    uint32_t width;
    uint32_t stride; /* in floats */
} ech_op_buffer;

/* A matrix of the image. */
typedef struct ech_op_weight {
    uint64_t offset;
    uint32_t type; /* ech_pack_type */
    uint32_t rows;
    uint32_t cols;
    uint32_t reserved;
} ech_op_weight;

typedef enum ech_op_kind {
    ECH_OP_EMBED = 1,  /* out = row `token` of the table */
    ECH_OP_MATMUL,     /* out = epilogue(norm(in) · weightᵀ + bias) */
    ECH_OP_ROPE_KV,    /* qkv: norm and rotate q and k in place, write k and v to the pages */
    ECH_OP_ATTENTION,  /* out = softmax(q · Kᵀ * scale) · V over the pages */
    ECH_OP_HEAD,       /* logits = norm(in) · weightᵀ, for the rows that want them */
    ECH_OP_ROPE_TABLE, /* cos and sin of every row's position, for the ROPE_KV operations that name
                          it */
    ECH_OP_HIDDEN,     /* output = norm(in), for the rows that want it: ends an embedding */
    ECH_OP_COUNT,
} ech_op_kind;

typedef enum ech_epilogue {
    ECH_EPILOGUE_NONE,   /* out = product */
    ECH_EPILOGUE_ADD,    /* out = out + product (the residual stream) */
    ECH_EPILOGUE_SWIGLU, /* panels alternate gate, up; out = silu(gate) * up; width = rows / 2 or
                            less */
    ECH_EPILOGUE_COUNT,
} ech_epilogue;

typedef enum ech_rope_pairs {
    ECH_ROPE_HALF,        /* (i, i + rotary/2), as transformers */
    ECH_ROPE_INTERLEAVED, /* (2i, 2i + 1), as GGUF files of the llama architecture store them */
} ech_rope_pairs;

typedef struct ech_op_embed {
    ech_op_weight table; /* rows = vocabulary */
    ech_op_buffer out;
} ech_op_embed;

typedef struct ech_op_rope_table {
    uint64_t freqs; /* in the data: f32 [n_freqs] inverse frequencies */
    uint32_t n_freqs;
    float scaling;     /* cos and sin are multiplied by it (YaRN's attention factor), else 1 */
    ech_op_buffer out; /* [cos 0…n-1, sin 0…n-1] */
} ech_op_rope_table;

typedef struct ech_op_matmul {
    ech_op_weight weight;
    uint64_t norm; /* in the image: f32 [cols] RMS norm weight, or ECH_NONE */
    uint64_t bias; /* in the image: f32 [rows], or ECH_NONE */
    float eps;
    uint32_t epilogue; /* ech_epilogue */
    ech_op_buffer in;
    ech_op_buffer out;
} ech_op_matmul;

typedef struct ech_op_rope_kv {
    uint64_t q_norm; /* in the image: f32 [head_dim], or ECH_NONE */
    uint64_t k_norm;
    float eps;
    uint32_t layer;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t pairs;     /* ech_rope_pairs */
    ech_op_buffer qkv;  /* [n_heads q, n_kv_heads k, n_kv_heads v] heads of head_dim */
    ech_op_buffer rope; /* of an ECH_OP_ROPE_TABLE; 2 * n_freqs wide, n_freqs <= head_dim / 2 */
} ech_op_rope_kv;

typedef struct ech_op_attention {
    float scale;
    uint32_t layer;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t reserved;
    ech_op_buffer qkv;
    ech_op_buffer out; /* [n_heads, head_dim] */
} ech_op_attention;

typedef struct ech_op_head {
    ech_op_weight weight; /* rows = vocabulary */
    uint64_t norm;        /* in the image, or ECH_NONE */
    float eps;
    uint32_t reserved;
    ech_op_buffer in;
} ech_op_head;

typedef struct ech_op_hidden {
    uint64_t norm; /* in the image, or ECH_NONE */
    float eps;
    uint32_t reserved;
    ech_op_buffer in;
} ech_op_hidden;

typedef struct ech_op {
    uint32_t kind; /* ech_op_kind */
    uint32_t reserved;
    union {
        ech_op_embed embed;
        ech_op_rope_table rope_table;
        ech_op_matmul matmul;
        ech_op_rope_kv rope_kv;
        ech_op_attention attention;
        ech_op_head head;
        ech_op_hidden hidden;
        uint8_t bytes[120];
    };
} ech_op;

_Static_assert(sizeof(ech_op) == 128, "part of the program format");

/*
 * Whether a program of kind FORWARD can be run with an image of image_bytes, whatever the rows:
 * every offset aligned and inside, shapes that match from operation to operation. Says which
 * operation is wrong.
 */
ech_status ech_forward_check(const void *program, size_t len, uint64_t image_bytes, ech_error *err);

/* Bytes that the chip's arena must have to run this (checked) program of whatever kind. */
uint64_t ech_program_arena_bytes(const void *program, size_t len);

#endif
