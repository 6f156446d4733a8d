/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the product q, k, v to rotated queries in the arena and keys and values in the pages.
 *
 * A key or value is rounded to the KV type once, here; attention reads all of them from the pages,
 * those of the same step too. So it doesn't matter in which step a position was computed.
 */
#include <math.h>
#include <string.h>

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

static void rotate(const ech_forward *const f, float *const x, const float *const cos_in,
                   const uint32_t n_freqs, const uint32_t pairs)
{
    if (pairs == ECH_ROPE_HALF) {
        f->k->rope(x, x + n_freqs, cos_in, cos_in + n_freqs, n_freqs);
        return;
    }
    const float *const sin_in = cos_in + n_freqs;
    for (uint32_t i = 0; i < n_freqs; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos_in[i] - b * sin_in[i];
        x[2 * i + 1] = b * cos_in[i] + a * sin_in[i];
    }
}

/* ---- writing into a block ---------------------------------------------------------------------
 */

/*
 * A head's numbers in the KV type, and what is needed to place them. Where element (k, lane) of a
 * panel lies: image.h. A key is a column (one lane, every k), a value a row (one k, every lane).
 */
typedef struct encoded {
    ech_kv_type type;
    uint32_t n;
    float scale; /* of q8 */
    union {
        uint32_t u32[ECH_KV_MAX_HEAD_DIM];
        uint16_t u16[ECH_KV_MAX_HEAD_DIM + 1];
        uint8_t u8[ECH_KV_MAX_HEAD_DIM];
    };
} encoded;

static void encode_q8(const float *const x, encoded *const e)
{
    float max = 0.0f;
    for (uint32_t i = 0; i < e->n; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    e->scale = max / 127.0f;
    const float inverse = max > 0.0f ? 127.0f / max : 0.0f;
    /* Adding 1.5 * 2^23 rounds to nearest even; the low byte is the number. Of NaN, any. */
    for (uint32_t i = 0; i < e->n; i++)
        e->u8[i] = (uint8_t)ech_f32_bits(x[i] * inverse + 0x1.8p+23f);
}

static void encode(const ech_forward *const f, const float *const x, encoded *const e)
{
    e->type = (ech_kv_type)f->h->kv_type;
    e->n = f->h->head_dim;
    switch (e->type) {
    case ECH_KV_F32:
        memcpy(e->u32, x, e->n * sizeof(float));
        break;
    case ECH_KV_F16:
        f->k->to_f16(x, e->n, e->u16);
        break;
    case ECH_KV_BF16:
        f->k->to_bf16(x, e->n, e->u16);
        break;
    case ECH_KV_Q8:
        encode_q8(x, e);
        break;
    }
}

static void put_column(const encoded *const e, char *const panel, const uint32_t lane)
{
    uint32_t *const to32 = (uint32_t *)panel + lane;
    uint16_t *const to16 = (uint16_t *)panel + lane;
    uint8_t *const to8 = (uint8_t *)panel + lane;
    switch (e->type) {
    case ECH_KV_F32:
        for (uint32_t k = 0; k < e->n; k++)
            to32[(size_t)k * ECH_PANEL] = e->u32[k];
        break;
    case ECH_KV_F16:
        for (uint32_t k = 0; k < e->n; k++)
            to16[(size_t)k * ECH_PANEL] = e->u16[k];
        break;
    case ECH_KV_BF16: /* pairs of k are neighbours; the spare one of an odd n is zero */
        for (uint32_t k = 0; k < (e->n + 1) / 2; k++)
            to32[(size_t)k * ECH_PANEL] = e->u32[k];
        break;
    case ECH_KV_Q8:
        for (uint32_t k = 0; k < e->n; k++)
            to8[(size_t)k * ECH_PANEL] = e->u8[k];
        break;
    }
}

/* Lanes first … first+n-1 of the head become row k of one panel. */
static void put_row(const encoded *const e, char *const panel, const uint32_t k,
                    const uint32_t first, const uint32_t n)
{
    const size_t at = (size_t)k * ECH_PANEL;
    uint16_t *const pairs = (uint16_t *)panel + (size_t)(k / 2) * 2 * ECH_PANEL + k % 2;
    switch (e->type) {
    case ECH_KV_F32:
        memcpy((uint32_t *)panel + at, e->u32 + first, n * 4);
        break;
    case ECH_KV_F16:
        memcpy((uint16_t *)panel + at, e->u16 + first, n * 2);
        break;
    case ECH_KV_BF16:
        for (uint32_t i = 0; i < n; i++)
            pairs[2 * i] = e->u16[first + i];
        break;
    case ECH_KV_Q8:
        memcpy((uint8_t *)panel + at, e->u8 + first, n);
        break;
    }
}

/* Position `slot` of a K block: a column of one of its two panels. */
static void put_key(const ech_forward *const f, char *const block, const uint32_t slot,
                    const float *const x)
{
    encoded e;
    encode(f, x, &e);
    if (e.type == ECH_KV_Q8) ((float *)block)[slot] = e.scale;
    put_column(&e,
               block + ech_kv_scale_bytes(e.type) +
                   slot / ECH_PANEL * ech_kv_k_panel_bytes(e.type, e.n),
               slot % ECH_PANEL);
}

/* Position `slot` of a V block: row `slot` of every panel. */
static void put_value(const ech_forward *const f, char *const block, const uint32_t slot,
                      const float *const x)
{
    encoded e;
    encode(f, x, &e);
    if (e.type == ECH_KV_Q8) ((float *)block)[slot] = e.scale;
    const size_t panel_bytes = ech_kv_v_panel_bytes(e.type);
    for (uint32_t d = 0; d < e.n; d += ECH_PANEL)
        put_row(&e, block + ech_kv_scale_bytes(e.type) + d / ECH_PANEL * panel_bytes, slot, d,
                e.n - d < ECH_PANEL ? e.n - d : ECH_PANEL);
}

/* A tile: one KV head of one row, and the query heads of its group; all rows of a head in a row, as
 * the core that multiplied its columns takes them (forward_matmul.c). */
void ech_forward_rope_kv(const ech_forward *const f, const ech_op_rope_kv *const op,
                         ech_core *const core)
{
    const uint32_t n = op->head_dim;
    const uint32_t group = op->n_heads / op->n_kv_heads;
    const float *const q_norm = ech_forward_vector(f, op->q_norm);
    const float *const k_norm = ech_forward_vector(f, op->k_norm);
    for (uint32_t t; ech_pool_tile(core, f->n_rows * op->n_kv_heads, &t);) {
        const uint32_t r = t % f->n_rows, kv_head = t / f->n_rows;
        float *const qkv = ech_forward_row(f, &op->qkv, r);
        float *const q = qkv + (size_t)kv_head * group * n;
        float *const k = qkv + ((size_t)op->n_heads + kv_head) * n;
        const float *const v = k + (size_t)op->n_kv_heads * n;
        const float *const cos_in = ech_forward_row(f, &op->rope, r);
        for (uint32_t g = 0; g < group; g++) {
            if (q_norm != NULL) f->k->rms_norm(q + g * n, q_norm, n, op->eps, q + g * n);
            rotate(f, q + g * n, cos_in, op->rope.width / 2, op->pairs);
        }
        if (k_norm != NULL) f->k->rms_norm(k, k_norm, n, op->eps, k);
        rotate(f, k, cos_in, op->rope.width / 2, op->pairs);

        const ech_row *const row = &f->rows[r];
        const uint32_t page = f->pages[row->pages + row->pos / ECH_KV_PAGE];
        char *const block = ech_forward_kv(f, page, op->layer, kv_head);
        put_key(f, block, row->pos % ECH_KV_PAGE, k);
        put_value(f, block + f->k_bytes, row->pos % ECH_KV_PAGE, v);
    }
}
