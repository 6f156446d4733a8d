/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the forward executor share: the limits, the state of one run, and the
 * operations. Inside src/chip only.
 *
 * One run is SPMD over the pool: every core walks the list of operations; inside an operation it
 * takes tiles until none is left, and all meet at a barrier. So an operation sees everything that
 * the ones before it wrote.
 */
#ifndef ECH_CHIP_FORWARD_H
#define ECH_CHIP_FORWARD_H

#include "src/chip/cpu/ops.h"
#include "src/chip/pool.h"
#include "src/chip/program.h"
#include "src/chip/step.h"

#define ECH_MAX_ROWS      4096       /* rows of a step */
#define ECH_MAX_OPS       65536      /* operations of a program */
#define ECH_MAX_COLS      (1u << 16) /* of a matrix: rows of activations fit in a core's scratch */
#define ECH_MAX_GROUP     64         /* query heads to a KV head */
#define ECH_MAX_POSITIONS (1u << 24) /* f32 counts positions exactly up to here */

/*
 * Attention is split at multiples of this many positions: inside a split softmax is taken at once,
 * then the splits are merged in ascending order. Part of what the bits of a result depend on.
 */
#define ECH_ATTN_SPLIT 256

/* Consecutive rows of a step at consecutive positions of one sequence. */
typedef struct ech_row_block {
    uint32_t first; /* row */
    uint32_t n;
} ech_row_block;

/* Scratch of one core that a forward program may need at most; see forward_matmul.c, _attention.c.
 */
#define ECH_FORWARD_SCRATCH (1u << 20)

/* One run. Written by the calling thread before the cores start, but for `stop`. */
typedef struct ech_forward {
    const ech_cpu_ops *k;
    const ech_forward_header *h;
    const ech_op *ops;
    const char *data;
    const char *image;
    const ech_row *rows;    // [n_rows]
    const uint32_t *pages;  // [n_pages_listed]
    char *kv;               // [n_kv_pages, page_bytes]
    const int32_t *sampled; // [n_slots]
    float *logits;          // [n_logits, out_width] or hidden states
    char *arena;
    int32_t *ids;          // [n_rows] token of every row, looked up
    int32_t *logit_rows;   // [n_logits] the row that fills each
    ech_row_block *blocks; // [n_blocks]
    uint32_t n_rows, n_logits, n_blocks;
    size_t page_bytes, k_bytes, v_bytes;
    bool (*poll)(void *poll_ctx, uint32_t step);
    void *poll_ctx;
    uint32_t stop_at; /* the operation after which the run ends; written by core 0 */
} ech_forward;

/* What an input row of a matrix product becomes. */
ech_act_type ech_act_of(ech_pack_type type, ech_compute compute);
/* Bytes of one prepared input row of that many columns, a multiple of 64. */
uint64_t ech_prep_row_bytes(ech_pack_type type, ech_compute compute, uint64_t cols);
/* Floats from row to row of a buffer: padded, and off multiples of 4 KiB, which share cache sets.
 */
uint32_t ech_row_stride(uint32_t width);

/* One operation on one core; ends without a barrier. */
void ech_forward_embed(const ech_forward *f, const ech_op_embed *op, ech_core *core);
void ech_forward_rope_table(const ech_forward *f, const ech_op_rope_table *op, ech_core *core);
void ech_forward_matmul(const ech_forward *f, const ech_op *op, ech_core *core);
void ech_forward_head(const ech_forward *f, const ech_op *op, ech_core *core);
void ech_forward_hidden(const ech_forward *f, const ech_op_hidden *op, ech_core *core);
void ech_forward_rope_kv(const ech_forward *f, const ech_op_rope_kv *op, ech_core *core);
void ech_forward_attention(const ech_forward *f, const ech_op_attention *op, ech_core *core);

/* Most rows of a block (ech_row_block), for the number of rows and cores. */
uint32_t ech_forward_attention_rows(const ech_forward *f, uint32_t n_cores);

/* The whole run, on every core: an ech_pool_fn. */
void ech_forward_core(void *run, ech_core *core);

static inline float *ech_forward_row(const ech_forward *const f, const ech_op_buffer *const b,
                                     const uint32_t row)
{
    return (float *)(f->arena + b->offset) + (size_t)row * b->stride;
}

static inline const float *ech_forward_vector(const ech_forward *const f, const uint64_t offset)
{
    return offset == ECH_NONE ? NULL : (const float *)(f->image + offset);
}

/* The K block of a KV head in a page; the V block follows at k_bytes. */
static inline char *ech_forward_kv(const ech_forward *const f, const uint32_t page,
                                   const uint32_t layer, const uint32_t kv_head)
{
    return f->kv + page * f->page_bytes +
           ((size_t)layer * f->h->n_kv_heads + kv_head) * (f->k_bytes + f->v_bytes);
}

#endif
