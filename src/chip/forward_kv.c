/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the product q, k, v to rotated queries in the arena and keys and values in the pages.
 *
 * A key or value is rounded to the KV type once, here; attention reads all of them from the pages,
 * those of the same step too. So it doesn't matter in which step a position was computed.
 */
#include <math.h>

#include "src/chip/forward.h"
#include "src/chip/half.h"

/* A tile: cos and sin of one row's position. */
void ech_forward_rope_table(const ech_forward *const f, const ech_op_rope_table *const op,
                            ech_core *const core)
{
    const float *const freqs = (const float *)(f->data + op->freqs);
    for (uint32_t r; ech_pool_tile(core, f->n_rows, &r);) {
        float *const cos_out = ech_forward_row(f, &op->out, r);
        float *const sin_out = cos_out + op->n_freqs;
        for (uint32_t i = 0; i < op->n_freqs; i++) {
            /* In f32, as the models' own code multiplies. */
            const float angle = (float)f->rows[r].pos * freqs[i];
            cos_out[i] = cosf(angle) * op->scaling;
            sin_out[i] = sinf(angle) * op->scaling;
        }
    }
}

static void rotate(float *const x, const float *const cos_in, const uint32_t n_freqs,
                   const uint32_t pairs)
{
    const float *const sin_in = cos_in + n_freqs;
    for (uint32_t i = 0; i < n_freqs; i++) {
        float *const a = pairs == ECH_ROPE_HALF ? &x[i] : &x[2 * i];
        float *const b = pairs == ECH_ROPE_HALF ? &x[i + n_freqs] : &x[2 * i + 1];
        const float a0 = *a, b0 = *b;
        *a = a0 * cos_in[i] - b0 * sin_in[i];
        *b = b0 * cos_in[i] + a0 * sin_in[i];
    }
}

/* ---- writing into a block ---------------------------------------------------------------------
 */

/* Where element (k, lane) of a panel lies, in elements. */
static size_t at_bf16(const uint32_t k, const uint32_t lane)
{
    return ((size_t)(k / 2) * ECH_PANEL + lane) * 2 + k % 2;
}

static size_t at_plain(const uint32_t k, const uint32_t lane)
{
    return (size_t)k * ECH_PANEL + lane;
}

/* One element of a block whose panels have the type; bits is the element's pattern. */
static void put(char *const panel, const ech_kv_type type, const uint32_t k, const uint32_t lane,
                const uint32_t bits)
{
    switch (type) {
    case ECH_KV_F32:
        ((uint32_t *)panel)[at_plain(k, lane)] = bits;
        break;
    case ECH_KV_F16:
        ((uint16_t *)panel)[at_plain(k, lane)] = (uint16_t)bits;
        break;
    case ECH_KV_BF16:
        ((uint16_t *)panel)[at_bf16(k, lane)] = (uint16_t)bits;
        break;
    case ECH_KV_Q8:
        ((uint8_t *)panel)[at_plain(k, lane)] = (uint8_t)bits;
        break;
    }
}

/* The head's numbers as bit patterns of the KV type; q8's scale goes to *ret_scale. */
static void encode(const ech_forward *const f, const ech_kv_type type, const float *const x,
                   const uint32_t n, uint32_t *const bits, float *const ret_scale)
{
    uint16_t half[ECH_KV_MAX_HEAD_DIM + 1];
    float max = 0.0f;
    switch (type) {
    case ECH_KV_F32:
        for (uint32_t i = 0; i < n; i++)
            bits[i] = ech_f32_bits(x[i]);
        return;
    case ECH_KV_F16:
        f->k->to_f16(x, n, half);
        break;
    case ECH_KV_BF16:
        f->k->to_bf16(x, n, half);
        break;
    case ECH_KV_Q8:
        for (uint32_t i = 0; i < n; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        *ret_scale = max / 127.0f;
        for (uint32_t i = 0; i < n; i++) {
            const float q = max > 0.0f ? x[i] * (127.0f / max) : 0.0f;
            /* Adding 1.5 * 2^23 rounds to nearest even; the low byte is the number. NaN: any. */
            bits[i] = ech_f32_bits(q + 0x1.8p+23f) & 0xffu;
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        bits[i] = half[i];
}

/* Position `slot` of a K block: a column of one of its two panels. */
static void put_key(const ech_forward *const f, char *const block, const uint32_t slot,
                    const float *const x)
{
    const ech_kv_type type = (ech_kv_type)f->h->kv_type;
    const uint32_t n = f->h->head_dim;
    uint32_t bits[ECH_KV_MAX_HEAD_DIM];
    encode(f, type, x, n, bits, (float *)block + slot);
    char *const panel =
        block + ech_kv_scale_bytes(type) + slot / ECH_PANEL * ech_kv_k_panel_bytes(type, n);
    for (uint32_t d = 0; d < n; d++)
        put(panel, type, d, slot % ECH_PANEL, bits[d]);
}

/* Position `slot` of a V block: row `slot` of every panel. */
static void put_value(const ech_forward *const f, char *const block, const uint32_t slot,
                      const float *const x)
{
    const ech_kv_type type = (ech_kv_type)f->h->kv_type;
    const uint32_t n = f->h->head_dim;
    uint32_t bits[ECH_KV_MAX_HEAD_DIM];
    encode(f, type, x, n, bits, (float *)block + slot);
    char *const panels = block + ech_kv_scale_bytes(type);
    const size_t panel_bytes = ech_kv_v_panel_bytes(type);
    for (uint32_t d = 0; d < n; d++)
        put(panels + d / ECH_PANEL * panel_bytes, type, slot, d % ECH_PANEL, bits[d]);
}

/* A tile: one KV head of one row, and the query heads of its group. */
void ech_forward_rope_kv(const ech_forward *const f, const ech_op_rope_kv *const op,
                         ech_core *const core)
{
    const uint32_t n = op->head_dim;
    const uint32_t group = op->n_heads / op->n_kv_heads;
    const float *const q_norm = ech_forward_vector(f, op->q_norm);
    const float *const k_norm = ech_forward_vector(f, op->k_norm);
    for (uint32_t t; ech_pool_tile(core, f->n_rows * op->n_kv_heads, &t);) {
        const uint32_t r = t / op->n_kv_heads, kv_head = t % op->n_kv_heads;
        float *const qkv = ech_forward_row(f, &op->qkv, r);
        float *const q = qkv + (size_t)kv_head * group * n;
        float *const k = qkv + ((size_t)op->n_heads + kv_head) * n;
        const float *const v = k + (size_t)op->n_kv_heads * n;
        const float *const cos_in = ech_forward_row(f, &op->rope, r);
        for (uint32_t g = 0; g < group; g++) {
            if (q_norm != NULL) f->k->rms_norm(q + g * n, q_norm, n, op->eps, q + g * n);
            rotate(q + g * n, cos_in, op->rope.width / 2, op->pairs);
        }
        if (k_norm != NULL) f->k->rms_norm(k, k_norm, n, op->eps, k);
        rotate(k, cos_in, op->rope.width / 2, op->pairs);

        const ech_row *const row = &f->rows[r];
        const uint32_t page = f->pages[row->pages + row->pos / ECH_KV_PAGE];
        char *const block = ech_forward_kv(f, page, op->layer, kv_head);
        put_key(f, block, row->pos % ECH_KV_PAGE, k);
        put_value(f, block + f->k_bytes, row->pos % ECH_KV_PAGE, v);
    }
}
