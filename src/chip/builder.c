/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emits forward programs. Runs in the parent, on one thread, before the worker exists. The first
 * failure is kept and everything after it is a no-op, so that architecture files read as the list
 * of operations that they are.
 *
 * The arena: buffers in the order of their making, then the prepared rows. Every buffer lives for
 * the whole step; an architecture reuses the few it makes for all layers.
 */
#include "src/chip/builder.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/chip/forward.h"

#define MAX_BUFFERS 64

struct ech_program_builder {
    ech_program_shape shape;
    ech_op_buffer buffers[MAX_BUFFERS];
    uint32_t n_buffers;
    uint64_t arena_bytes;
    uint64_t prep_bytes;
    uint32_t out_width;
    ech_buf ops;
    ech_buf data;
    ech_status rc;
    ech_error err;
};

/* Where the first failure is recorded; NULL when there was one already. */
static ech_error *failing(ech_program_builder *const b)
{
    return b->rc == ECH_OK ? &b->err : NULL;
}

static void fail(ech_program_builder *const b, const char *const what)
{
    if (failing(b) != NULL)
        b->rc = ech_fail(&b->err, ECH_EINVAL, "emitting a forward program: %s", what);
}

ech_status ech_program_builder_create(ech_program_builder **const ret_b,
                                      const ech_program_shape *const shape, ech_error *const err)
{
    ech_program_builder *const b = calloc(1, sizeof(*b));
    if (b == NULL) return ech_fail(err, ECH_ENOMEM, "emitting a forward program: out of memory");
    b->shape = *shape;
    if (shape->max_rows == 0 || shape->max_rows > ECH_MAX_ROWS) fail(b, "rows out of range");
    if (shape->n_heads == 0) fail(b, "no heads");
    *ret_b = b;
    return ECH_OK;
}

void ech_program_builder_destroy(ech_program_builder **const b)
{
    if (*b == NULL) return;
    ech_buf_fini(&(*b)->ops);
    ech_buf_fini(&(*b)->data);
    free(*b);
    *b = NULL;
}

uint32_t ech_row_stride(const uint32_t width)
{
    const uint32_t padded = (width + 15) / 16 * 16;
    return padded + 16;
}

ech_buffer_ref ech_program_builder_buffer(ech_program_builder *const b, const uint32_t width)
{
    if (b->n_buffers == MAX_BUFFERS || width == 0 || width > (1u << 26)) {
        fail(b, "a buffer too many, or one of an impossible width");
        return (ech_buffer_ref){ 0 };
    }
    const uint32_t stride = ech_row_stride(width);
    b->buffers[b->n_buffers] = (ech_op_buffer){ b->arena_bytes, width, stride };
    b->arena_bytes += (uint64_t)b->shape.max_rows * stride * sizeof(float);
    return (ech_buffer_ref){ b->n_buffers++ };
}

static ech_op_buffer buffer(ech_program_builder *const b, const ech_buffer_ref ref)
{
    if (ref.idx < b->n_buffers) return b->buffers[ref.idx];
    fail(b, "an operation names a buffer that was never made");
    return (ech_op_buffer){ 0 };
}

ech_buffer_ref ech_program_builder_slice(ech_program_builder *const b, const ech_buffer_ref of,
                                         const uint32_t from, const uint32_t width)
{
    const ech_op_buffer whole = buffer(b, of);
    if (b->n_buffers == MAX_BUFFERS || from % ECH_PANEL != 0 || width == 0 || width > whole.width ||
        from > whole.width - width) {
        fail(b, "a slice that isn't one of its buffer");
        return of;
    }
    b->buffers[b->n_buffers] =
        (ech_op_buffer){ whole.offset + from * sizeof(float), width, whole.stride };
    return (ech_buffer_ref){ b->n_buffers++ };
}

static ech_op_weight weight(ech_program_builder *const b, const ech_image_entry *const e)
{
    if (e == NULL || e->kind != ECH_IMAGE_MATRIX || e->rows > UINT32_MAX || e->cols > UINT32_MAX) {
        fail(b, "a weight that is no matrix of the image");
        return (ech_op_weight){ 0 };
    }
    const uint64_t prep = ech_prep_row_bytes((ech_pack_type)e->type, b->shape.compute, e->cols);
    if (prep > b->prep_bytes) b->prep_bytes = prep;
    return (ech_op_weight){ e->offset, e->type, (uint32_t)e->rows, (uint32_t)e->cols, 0 };
}

static uint64_t vector(ech_program_builder *const b, const ech_image_entry *const e,
                       const uint64_t n)
{
    if (e == NULL) return ECH_NONE;
    if (e->kind != ECH_IMAGE_VECTOR || e->rows != n) {
        if (failing(b) != NULL)
            b->rc = ech_fail(&b->err, ECH_EINVAL,
                             "emitting a forward program: vector %s has %llu elements, the "
                             "operation needs %llu",
                             e->name, (unsigned long long)e->rows, (unsigned long long)n);
        return ECH_NONE;
    }
    return e->offset;
}

static void emit(ech_program_builder *const b, const ech_op *const op)
{
    if (b->rc == ECH_OK && ech_buf_append(&b->ops, op, sizeof(*op)) != ECH_OK)
        b->rc = ech_fail(&b->err, ECH_ENOMEM, "emitting a forward program: out of memory");
}

ech_buffer_ref ech_program_builder_rope(ech_program_builder *const b, const float *const inv_freq,
                                        const uint32_t n_freqs, const float scaling)
{
    const ech_buffer_ref ref = ech_program_builder_buffer(b, 2 * n_freqs);
    const ech_op op = {
        .kind = ECH_OP_ROPE_TABLE,
        .rope_table = {
            .freqs = b->data.len,
            .n_freqs = n_freqs,
            .scaling = scaling,
            .out = buffer(b, ref),
        },
    };
    if (b->rc == ECH_OK && ech_buf_append(&b->data, inv_freq, n_freqs * sizeof(float)) != ECH_OK)
        b->rc = ech_fail(&b->err, ECH_ENOMEM, "emitting a forward program: out of memory");
    emit(b, &op);
    return ref;
}

void ech_program_builder_embed(ech_program_builder *const b, const ech_image_entry *const table,
                               const ech_buffer_ref out)
{
    const ech_op op = {
        .kind = ECH_OP_EMBED,
        .embed = { .table = weight(b, table), .out = buffer(b, out) },
    };
    emit(b, &op);
}

void ech_program_builder_matmul(ech_program_builder *const b, const ech_image_entry *const w,
                                const ech_buffer_ref in, const ech_buffer_ref out,
                                const ech_matmul_options *const options)
{
    const ech_op_weight m = weight(b, w);
    const ech_op op = {
        .kind = ECH_OP_MATMUL,
        .matmul = {
            .weight = m,
            .norm = vector(b, options->norm, m.cols),
            .bias = vector(b, options->bias, m.rows),
            .eps = options->eps,
            .epilogue = options->epilogue,
            .in = buffer(b, in),
            .out = buffer(b, out),
        },
    };
    if (in.idx == out.idx) fail(b, "a matrix product in place");
    emit(b, &op);
}

void ech_program_builder_rope_kv(ech_program_builder *const b, const ech_buffer_ref qkv,
                                 const ech_buffer_ref rope, const uint32_t layer,
                                 const ech_rope_kv_options *const options)
{
    const ech_kv_shape *const kv = &b->shape.kv;
    const ech_op op = {
        .kind = ECH_OP_ROPE_KV,
        .rope_kv = {
            .q_norm = vector(b, options->q_norm, kv->head_dim),
            .k_norm = vector(b, options->k_norm, kv->head_dim),
            .eps = options->eps,
            .layer = layer,
            .n_heads = b->shape.n_heads,
            .n_kv_heads = kv->n_kv_heads,
            .head_dim = kv->head_dim,
            .pairs = options->pairs,
            .qkv = buffer(b, qkv),
            .rope = buffer(b, rope),
        },
    };
    emit(b, &op);
}

void ech_program_builder_attention(ech_program_builder *const b, const ech_buffer_ref qkv,
                                   const ech_buffer_ref out, const uint32_t layer,
                                   const float scale)
{
    const ech_op op = {
        .kind = ECH_OP_ATTENTION,
        .attention = {
            .scale = scale,
            .layer = layer,
            .n_heads = b->shape.n_heads,
            .n_kv_heads = b->shape.kv.n_kv_heads,
            .head_dim = b->shape.kv.head_dim,
            .qkv = buffer(b, qkv),
            .out = buffer(b, out),
        },
    };
    emit(b, &op);
}

void ech_program_builder_head(ech_program_builder *const b, const ech_image_entry *const w,
                              const ech_image_entry *const norm, const float eps,
                              const ech_buffer_ref in)
{
    const ech_op_weight m = weight(b, w);
    b->out_width = b->shape.gives_hidden ? m.cols : m.rows;
    if (b->shape.gives_hidden) {
        const ech_op hidden = {
            .kind = ECH_OP_HIDDEN,
            .hidden = { .norm = vector(b, norm, m.cols), .eps = eps, .in = buffer(b, in) },
        };
        emit(b, &hidden);
        return;
    }
    const ech_op op = {
        .kind = ECH_OP_HEAD,
        .head = {
            .weight = m,
            .norm = vector(b, norm, m.cols),
            .eps = eps,
            .in = buffer(b, in),
        },
    };
    emit(b, &op);
}

static ech_forward_header make_header(const ech_program_builder *const b)
{
    const ech_program_shape *const s = &b->shape;
    ech_forward_header h = {
        .n_ops = (uint32_t)(b->ops.len / sizeof(ech_op)),
        .op_bytes = sizeof(ech_op),
        .ops_offset = sizeof(h),
        .data_offset = sizeof(h) + b->ops.len,
        .data_bytes = b->data.len,
        .image_bytes = s->image_bytes,
        .arena_bytes = b->arena_bytes + s->max_rows * b->prep_bytes,
        .prep_offset = b->arena_bytes,
        .prep_bytes = b->prep_bytes,
        .max_rows = s->max_rows,
        .max_logits = s->max_logits,
        .max_positions = s->max_positions,
        .out_width = b->out_width > 0 ? b->out_width : s->vocab,
        .vocab = s->vocab,
        .n_layers = s->kv.n_layers,
        .n_kv_heads = s->kv.n_kv_heads,
        .head_dim = s->kv.head_dim,
        .kv_type = s->kv.type,
        .compute = s->compute,
    };
    return h;
}

ech_status ech_program_builder_finish(ech_program_builder *const b, void **const ret_bytes,
                                      size_t *const ret_len, ech_error *const err)
{
    if (b->rc != ECH_OK) {
        if (err != NULL) *err = b->err;
        return b->rc;
    }
    const ech_forward_header h = make_header(b);
    const size_t len = sizeof(h) + b->ops.len + b->data.len;
    char *const bytes = malloc(len);
    if (bytes == NULL)
        return ech_fail(err, ECH_ENOMEM, "emitting a forward program: out of memory");
    memcpy(bytes, &h, sizeof(h));
    if (b->ops.len > 0) memcpy(bytes + h.ops_offset, b->ops.data, b->ops.len);
    if (b->data.len > 0) memcpy(bytes + h.data_offset, b->data.data, b->data.len);
    ech_program_seal(bytes, len, ECH_PROGRAM_FORWARD);
    const ech_status rc = ech_forward_check(bytes, len, h.image_bytes, err);
    if (rc != ECH_OK) {
        free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_len = len;
    return ECH_OK;
}
