/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over a forward program's operations, on every core, and its two ends that are no
 * product: the embedding table's rows in, hidden states out. Between two operations all cores meet;
 * the calling thread, core 0, reports progress and asks whether to stop.
 */
#include "src/chip/forward.h"

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/chip/half.h"
#include "src/chip/quant.h"

/* Row `id` of a packed table: one lane of one panel. */
static void unpack_row(const ech_pack_type type, const char *const matrix, const uint32_t cols,
                       const uint32_t id, float *const y)
{
    const char *const panel = matrix + id / ECH_PANEL * ech_panel_bytes(type, cols);
    const uint32_t lane = id % ECH_PANEL;
    if (ech_pack_is_quant(type)) {
        ech_quant_get(panel, type, lane, cols, y);
        return;
    }
    const float *const f32 = (const float *)panel;
    const uint16_t *const u16 = (const uint16_t *)panel;
    for (uint32_t k = 0; k < cols; k++) {
        if (type == ECH_PACK_F32)
            y[k] = f32[(size_t)k * ECH_PANEL + lane];
        else if (type == ECH_PACK_F16)
            y[k] = ech_f16_to_f32(u16[(size_t)k * ECH_PANEL + lane]);
        else
            y[k] = ech_bf16_to_f32(u16[((size_t)(k / 2) * ECH_PANEL + lane) * 2 + k % 2]);
    }
}

void ech_forward_embed(const ech_forward *const f, const ech_op_embed *const op,
                       ech_core *const core)
{
    for (uint32_t r; ech_pool_tile(core, f->n_rows, &r);)
        unpack_row((ech_pack_type)op->table.type, f->image + op->table.offset, op->table.cols,
                   (uint32_t)f->ids[r], ech_forward_row(f, &op->out, r));
}

void ech_forward_hidden(const ech_forward *const f, const ech_op_hidden *const op,
                        ech_core *const core)
{
    const float *const norm = ech_forward_vector(f, op->norm);
    const uint32_t n = f->h->out_width;
    for (uint32_t i; ech_pool_tile(core, f->n_logits, &i);) {
        const float *const x = ech_forward_row(f, &op->in, (uint32_t)f->logit_rows[i]);
        float *const y = f->logits + (size_t)i * n;
        if (norm != NULL)
            f->k->rms_norm(x, norm, n, op->eps, y);
        else
            f->k->scale(y, x, 1.0f, n);
    }
}

static void run_op(const ech_forward *const f, const ech_op *const op, ech_core *const core)
{
    switch (op->kind) {
    case ECH_OP_EMBED:
        ech_forward_embed(f, &op->embed, core);
        break;
    case ECH_OP_ROPE_TABLE:
        ech_forward_rope_table(f, &op->rope_table, core);
        break;
    case ECH_OP_MATMUL:
        ech_forward_matmul(f, op, core);
        break;
    case ECH_OP_ROPE_KV:
        ech_forward_rope_kv(f, &op->rope_kv, core);
        break;
    case ECH_OP_ATTENTION:
        ech_forward_attention(f, &op->attention, core);
        break;
    case ECH_OP_HEAD:
        ech_forward_head(f, op, core);
        break;
    case ECH_OP_HIDDEN:
        ech_forward_hidden(f, &op->hidden, core);
        break;
    default:
        ECH_DCHECK(!"checked by ech_forward_check");
    }
}

void ech_forward_core(void *const run, ech_core *const core)
{
    ech_forward *const f = run;
    for (uint32_t i = 0; i < f->h->n_ops; i++) {
        run_op(f, &f->ops[i], core);
        if (core->idx == 0 && f->poll != NULL && f->poll(f->poll_ctx, i))
            ech_store_relaxed(&f->stop_at, i);
        ech_pool_barrier(core);
        /*
         * Compared with i, not just set: core 0 may be an operation ahead when a slow core comes
         * here, and that core must still take part in the barrier that follows.
         */
        if (ech_load_relaxed(&f->stop_at) <= i) return;
    }
}
