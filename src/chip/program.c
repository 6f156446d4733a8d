/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of program bytes. Whatever passes here can be run: the executor relies on it and looks at
 * no offset again. What depends on a step (rows, pages, tensors' sizes) is checked by the step.
 * Pure functions; run once per program and child.
 */
#include "src/chip/program.h"

#include <string.h>

#include "src/base/error.h"
#include "src/chip/forward.h"
#include "src/chip/sampler_program.h"

ech_status ech_program_head_check(const void *const program, const size_t len,
                                  ech_program_kind *const ret_kind, ech_error *const err)
{
    ech_program_head h;
    if (len < sizeof(h) || (uintptr_t)program % 8 != 0)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a program: %zu bytes at %p: too short or not aligned to 8", len,
                        program);
    memcpy(&h, program, sizeof(h));
    if (h.magic != ECH_PROGRAM_MAGIC)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a program: no magic, these bytes are no program");
    if (h.version != ECH_PROGRAM_VERSION)
        return ech_fail(err, ECH_EFORMAT, "loading a program: version %u, this chip runs %d",
                        h.version, ECH_PROGRAM_VERSION);
    if (h.bytes != len)
        return ech_fail(err, ECH_EFORMAT, "loading a program: %zu bytes, its head says %llu", len,
                        (unsigned long long)h.bytes);
    if (ech_checksum((const char *)program + sizeof(h), len - sizeof(h)) != h.checksum)
        return ech_fail(err, ECH_EFORMAT, "loading a program: the checksum is wrong");
    if (h.kind < ECH_PROGRAM_FORWARD || h.kind > ECH_PROGRAM_SAMPLE)
        return ech_fail(err, ECH_EFORMAT, "loading a program: kind %u is unknown", h.kind);
    *ret_kind = (ech_program_kind)h.kind;
    return ECH_OK;
}

void ech_program_seal(void *const program, const size_t len, const ech_program_kind kind)
{
    const ech_program_head h = {
        .magic = ECH_PROGRAM_MAGIC,
        .version = ECH_PROGRAM_VERSION,
        .kind = kind,
        .bytes = len,
        .checksum = ech_checksum((const char *)program + sizeof(h), len - sizeof(h)),
    };
    memcpy(program, &h, sizeof(h));
}

/* ---- forward programs ---------------------------------------------------------------------------
 */

typedef struct checker {
    const ech_forward_header *h;
    uint32_t op;      /* being looked at */
    const char *what; /* its kind's name */
    ech_error *err;
} checker;

static ech_status bad(const checker *const c, const char *const why)
{
    return ech_fail(c->err, ECH_EFORMAT, "loading a forward program: operation %u (%s): %s", c->op,
                    c->what, why);
}

/* [from, from + bytes) inside [0, limit), aligned. */
static bool inside(const uint64_t from, const uint64_t bytes, const uint64_t limit,
                   const uint64_t align)
{
    return from % align == 0 && from <= limit && bytes <= limit - from;
}

static ech_status check_buffer(const checker *const c, const ech_op_buffer *const b,
                               const uint64_t width)
{
    /* A slice begins within its buffer's rows: of its last row only the columns count. */
    const uint64_t columns = ((uint64_t)b->width + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL;
    const uint64_t bytes = ((c->h->max_rows - UINT64_C(1)) * b->stride + columns) * sizeof(float);
    if (b->width != width) return bad(c, "a buffer's width is not what the operation needs");
    if (b->width == 0 || b->stride < b->width || b->stride % 16 != 0 ||
        !inside(b->offset, bytes, c->h->arena_bytes, 64))
        return bad(c, "a buffer lies outside the arena, or its stride is wrong");
    return ECH_OK;
}

static ech_status check_vector(const checker *const c, const uint64_t offset, const uint64_t n)
{
    if (offset == ECH_NONE || inside(offset, n * sizeof(float), c->h->image_bytes, 64))
        return ECH_OK;
    return bad(c, "a vector lies outside the image");
}

static ech_status check_weight(const checker *const c, const ech_op_weight *const w)
{
    const size_t bytes = ech_matrix_bytes((ech_pack_type)w->type, w->rows, w->cols);
    if (bytes == 0 || w->type == ECH_PACK_S8 || w->cols > ECH_MAX_COLS)
        return bad(c, "a matrix of no possible type or shape");
    if (!inside(w->offset, bytes, c->h->image_bytes, 64))
        return bad(c, "a matrix lies outside the image");
    if (ech_prep_row_bytes((ech_pack_type)w->type, (ech_compute)c->h->compute, w->cols) >
        c->h->prep_bytes)
        return bad(c, "its input doesn't fit in the prepared rows");
    return ECH_OK;
}

static ech_status check_matmul(const checker *const c, const ech_op_matmul *const m)
{
    ECH_TRY(check_weight(c, &m->weight));
    ECH_TRY(check_buffer(c, &m->in, m->weight.cols));
    ECH_TRY(check_vector(c, m->norm, m->weight.cols));
    ECH_TRY(check_vector(c, m->bias, m->weight.rows));
    if (m->epilogue >= ECH_EPILOGUE_COUNT) return bad(c, "its epilogue is unknown");
    if (m->epilogue == ECH_EPILOGUE_SWIGLU) {
        const uint64_t padded = ((uint64_t)m->out.width + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL;
        if (m->weight.rows != 2 * padded || m->bias != ECH_NONE)
            return bad(c,
                       "gate and up must be two times the output, padded to panels, without bias");
        return check_buffer(c, &m->out, m->out.width);
    }
    return check_buffer(c, &m->out, m->weight.rows);
}

static ech_status check_heads(const checker *const c, const uint32_t layer, const uint32_t n_heads,
                              const uint32_t n_kv_heads, const uint32_t head_dim,
                              const ech_op_buffer *const qkv)
{
    if (layer >= c->h->n_layers || n_kv_heads != c->h->n_kv_heads || head_dim != c->h->head_dim)
        return bad(c, "layer, KV heads or head size are not those of the KV pages");
    if (n_heads == 0 || n_heads % n_kv_heads != 0 || n_heads / n_kv_heads > ECH_MAX_GROUP)
        return bad(c, "query heads must be 1 to 64 times the KV heads");
    return check_buffer(c, qkv, ((uint64_t)n_heads + 2 * (uint64_t)n_kv_heads) * head_dim);
}

static ech_status check_rope_kv(const checker *const c, const ech_op_rope_kv *const r)
{
    ECH_TRY(check_heads(c, r->layer, r->n_heads, r->n_kv_heads, r->head_dim, &r->qkv));
    ECH_TRY(check_vector(c, r->q_norm, r->head_dim));
    ECH_TRY(check_vector(c, r->k_norm, r->head_dim));
    if (r->rope.width == 0 || r->rope.width % 2 != 0 || r->rope.width > r->head_dim)
        return bad(c, "more rotated dimensions than the head has, or none");
    if (r->pairs > ECH_ROPE_INTERLEAVED) return bad(c, "its rotation is unknown");
    return check_buffer(c, &r->rope, r->rope.width);
}

static ech_status check_op(const checker *const c, const ech_op *const op)
{
    switch (op->kind) {
    case ECH_OP_EMBED:
        ECH_TRY(check_weight(c, &op->embed.table));
        if (op->embed.table.rows < c->h->vocab) return bad(c, "fewer rows than the vocabulary");
        return check_buffer(c, &op->embed.out, op->embed.table.cols);
    case ECH_OP_ROPE_TABLE: {
        const ech_op_rope_table *const r = &op->rope_table;
        if (!inside(r->freqs, (uint64_t)r->n_freqs * sizeof(float), c->h->data_bytes, 4))
            return bad(c, "the frequencies lie outside the data");
        return check_buffer(c, &r->out, 2 * (uint64_t)r->n_freqs);
    }
    case ECH_OP_MATMUL:
        return check_matmul(c, &op->matmul);
    case ECH_OP_ROPE_KV:
        return check_rope_kv(c, &op->rope_kv);
    case ECH_OP_ATTENTION: {
        const ech_op_attention *const a = &op->attention;
        ECH_TRY(check_heads(c, a->layer, a->n_heads, a->n_kv_heads, a->head_dim, &a->qkv));
        return check_buffer(c, &a->out, (uint64_t)a->n_heads * a->head_dim);
    }
    case ECH_OP_HEAD:
        ECH_TRY(check_weight(c, &op->head.weight));
        if (op->head.weight.rows != c->h->vocab) return bad(c, "its rows are not the vocabulary");
        if (c->h->out_width != c->h->vocab || c->h->max_logits > ECH_STEP_MAX_LOGITS)
            return bad(c, "the output is not one of logits");
        ECH_TRY(check_vector(c, op->head.norm, op->head.weight.cols));
        return check_buffer(c, &op->head.in, op->head.weight.cols);
    case ECH_OP_HIDDEN:
        ECH_TRY(check_vector(c, op->hidden.norm, c->h->out_width));
        return check_buffer(c, &op->hidden.in, c->h->out_width);
    default:
        return bad(c, "unknown to this version");
    }
}

static const char *op_name(const uint32_t kind)
{
    static const char *const names[ECH_OP_COUNT] = {
        [ECH_OP_EMBED] = "embed",     [ECH_OP_MATMUL] = "matmul",
        [ECH_OP_ROPE_KV] = "rope_kv", [ECH_OP_ATTENTION] = "attention",
        [ECH_OP_HEAD] = "head",       [ECH_OP_ROPE_TABLE] = "rope_table",
        [ECH_OP_HIDDEN] = "hidden",
    };
    return kind < ECH_OP_COUNT && names[kind] != NULL ? names[kind] : "unknown";
}

static ech_status check_shape(const ech_forward_header *const h, ech_error *const err)
{
    const ech_kv_shape kv = { h->n_layers, h->n_kv_heads, h->head_dim, (ech_kv_type)h->kv_type };
    if (h->kv_type >= ECH_KV_TYPES || h->compute > ECH_COMPUTE_BF16 || ech_kv_page_bytes(&kv) == 0)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a forward program: KV type %u, compute type %u, %u layers, %u KV "
                        "heads of %u: not a shape that this chip runs",
                        h->kv_type, h->compute, h->n_layers, h->n_kv_heads, h->head_dim);
    if (h->max_rows == 0 || h->max_rows > ECH_MAX_ROWS || h->max_logits == 0 ||
        h->max_logits > ECH_MAX_ROWS || h->vocab == 0 || h->vocab > INT32_MAX ||
        h->out_width == 0 || h->out_width > INT32_MAX || h->max_positions == 0 ||
        h->max_positions > ECH_MAX_POSITIONS)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a forward program: %u rows (1 to %d), output %u by %u (up to %d "
                        "rows), vocabulary %u, %u positions (1 to %u): out of range",
                        h->max_rows, ECH_MAX_ROWS, h->max_logits, h->out_width, ECH_MAX_ROWS,
                        h->vocab, h->max_positions, ECH_MAX_POSITIONS);
    return ECH_OK;
}

static ech_status check_sections(const ech_forward_header *const h, const size_t len,
                                 ech_error *const err)
{
    const uint64_t prep = h->max_rows * h->prep_bytes;
    if (h->n_ops > ECH_MAX_OPS || h->op_bytes != sizeof(ech_op) ||
        !inside(h->ops_offset, (uint64_t)h->n_ops * sizeof(ech_op), len, 8) ||
        !inside(h->data_offset, h->data_bytes, len, 8) || h->data_bytes > len)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a forward program: operations or data lie outside its %zu bytes",
                        len);
    if (h->prep_bytes == 0 || h->prep_bytes % 64 != 0 || h->prep_bytes > UINT32_MAX ||
        !inside(h->prep_offset, prep, h->arena_bytes, 64))
        return ech_fail(err, ECH_EFORMAT,
                        "loading a forward program: the prepared rows lie outside the arena");
    return ECH_OK;
}

ech_status ech_forward_check(const void *const program, const size_t len,
                             const uint64_t image_bytes, ech_error *const err)
{
    const ech_forward_header *const h = program;
    if (len < sizeof(*h))
        return ech_fail(err, ECH_EFORMAT, "loading a forward program: %zu bytes are too few", len);
    if (h->image_bytes > image_bytes)
        return ech_fail(err, ECH_EFORMAT,
                        "loading a forward program: it is made for weights of %llu bytes, there "
                        "are %llu",
                        (unsigned long long)h->image_bytes, (unsigned long long)image_bytes);
    ECH_TRY(check_shape(h, err));
    ECH_TRY(check_sections(h, len, err));
    const ech_op *const ops = (const ech_op *)((const char *)program + h->ops_offset);
    checker c = { .h = h, .err = err };
    for (c.op = 0; c.op < h->n_ops; c.op++) {
        c.what = op_name(ops[c.op].kind);
        ECH_TRY(check_op(&c, &ops[c.op]));
    }
    return ECH_OK;
}

uint64_t ech_program_arena_bytes(const void *const program, const size_t len)
{
    const ech_program_head *const head = program;
    if (len >= sizeof(ech_sample_header) && head->kind == ECH_PROGRAM_SAMPLE) {
        return ech_sample_program_arena_bytes(program);
    }
    if (len < sizeof(ech_forward_header) || head->kind != ECH_PROGRAM_FORWARD) return 0;
    return ((const ech_forward_header *)program)->arena_bytes;
}
