/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/chip/toy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/half.h"
#include "src/chip/quant.h"
#include "tests/unit/test.h"

#define EPS 1e-6f

uint64_t toy_random(uint64_t *const state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

float toy_uniform(uint64_t *const state)
{
    return (float)(toy_random(state) >> 40) * 0x1p-23f - 1.0f;
}

static void check(const ech_status rc, const ech_error *const err)
{
    if (rc != ECH_OK) fail_msg("%s", err->text);
}

/* ---- source weights ---------------------------------------------------------------------------
 */

/* Where each tensor lies in `weights`, in numbers. */
typedef struct layer_at {
    size_t q, k, v, o, gate, up, down, in_norm, mid_norm, q_norm, k_norm;
} layer_at;

typedef struct tensor_offsets {
    size_t embed, head, norm, total;
    layer_at layer[TOY_MAX_LAYERS];
} tensor_offsets;

static tensor_offsets offsets(const toy_shape *const s)
{
    tensor_offsets a = { 0 };
    size_t n = 0;
    const size_t h = s->hidden, d = s->head_dim;
#define TAKE(field, count) (a.field = n, n += (count))
    TAKE(embed, s->vocab * h);
    TAKE(head, s->vocab * h);
    TAKE(norm, h);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        TAKE(layer[l].q, s->n_heads * d * h);
        TAKE(layer[l].k, s->n_kv_heads * d * h);
        TAKE(layer[l].v, s->n_kv_heads * d * h);
        TAKE(layer[l].o, s->n_heads * d * h);
        TAKE(layer[l].gate, s->ffn * h);
        TAKE(layer[l].up, s->ffn * h);
        TAKE(layer[l].down, s->ffn * h);
        TAKE(layer[l].in_norm, h);
        TAKE(layer[l].mid_norm, h);
        TAKE(layer[l].q_norm, d);
        TAKE(layer[l].k_norm, d);
    }
#undef TAKE
    a.total = n;
    return a;
}

static float round_to(const ech_pack_type type, const float x)
{
    if (type == ECH_PACK_BF16) return ech_bf16_to_f32(ech_bf16_from_f32(x));
    if (type == ECH_PACK_F16) return ech_f16_to_f32(ech_f16_from_f32(x));
    return x;
}

static void fill(toy *const t, const tensor_offsets *const a, uint64_t seed)
{
    const size_t each = ech_src_bytes(t->s.source, 1);
    t->weights = malloc(a->total * sizeof(float));
    t->source_bytes = a->total * each + 1;
    t->source = malloc(t->source_bytes);
    const float spread = 1.7f / sqrtf((float)t->s.hidden);
    for (size_t i = 0; i < a->total; i++) {
        const float x = i < a->head ? toy_uniform(&seed) : toy_uniform(&seed) * spread;
        t->weights[i] = round_to((ech_pack_type)t->s.source, x);
    }
    for (uint32_t l = 0; l < t->s.n_layers; l++)
        for (size_t i = a->layer[l].in_norm; i < a->layer[l].k_norm + t->s.head_dim; i++)
            t->weights[i] = round_to((ech_pack_type)t->s.source, 1.0f + 0.3f * toy_uniform(&seed));
    /* One byte in, so that nothing is aligned. */
    char *const src = (char *)t->source + 1;
    for (size_t i = 0; i < a->total; i++) {
        const uint16_t half = t->s.source == ECH_SRC_F16 ? ech_f16_from_f32(t->weights[i])
                                                         : ech_bf16_from_f32(t->weights[i]);
        memcpy(src + i * each, each == 4 ? (void *)&t->weights[i] : (void *)&half, each);
    }
}

/* Rows as a quantised panel holds them, so that the reference multiplies the same numbers. */
static void settle(toy *const t, const size_t at, const size_t rows, const uint32_t cols)
{
    char *const panel = calloc(1, ech_panel_bytes(t->s.type, cols));
    for (size_t r = 0; r < rows; r++) {
        float *const x = t->weights + at + r * cols;
        const uint32_t each = ech_quant_put_cols(t->s.type);
        for (uint32_t k = 0; k < cols; k += each)
            ech_quant_put(panel, t->s.type, 5, k, x + k, cols - k < each ? cols - k : each);
        ech_quant_get(panel, t->s.type, 5, cols, x);
    }
    free(panel);
}

static void settle_all(toy *const t, const tensor_offsets *const a)
{
    const toy_shape *const s = &t->s;
    const uint32_t h = s->hidden, d = s->head_dim;
    settle(t, a->embed, s->vocab, h);
    settle(t, a->head, s->vocab, h);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        settle(t, a->layer[l].q, s->n_heads * d, h);
        settle(t, a->layer[l].k, s->n_kv_heads * d, h);
        settle(t, a->layer[l].v, s->n_kv_heads * d, h);
        settle(t, a->layer[l].o, h, s->n_heads * d);
        settle(t, a->layer[l].gate, s->ffn, h);
        settle(t, a->layer[l].up, s->ffn, h);
        settle(t, a->layer[l].down, h, s->ffn);
    }
}

/* ---- image and programs -----------------------------------------------------------------------
 */

typedef struct layer_entries {
    uint32_t qkv, o, gate_up, down, in_norm, mid_norm, q_norm, k_norm;
} layer_entries;

typedef struct maker {
    toy *t;
    tensor_offsets a;
    ech_image_plan plan;
    ech_pack_builder *pack;
    uint32_t embed, head, norm;
    layer_entries layer[TOY_MAX_LAYERS];
    ech_error err;
} maker;

static ech_pack_source source(const maker *const m, const size_t at)
{
    return (ech_pack_source){ 0, 1 + ech_src_bytes(m->t->s.source, at), m->t->s.source };
}

static uint32_t plan_matrix(maker *const m, const char *const name, const uint32_t l,
                            const uint64_t rows, const uint64_t cols)
{
    char full[64];
    uint32_t idx = 0;
    snprintf(full, sizeof(full), "%s.%u", name, l);
    check(ech_image_plan_matrix(&m->plan, full, m->t->s.type, rows, cols, &idx, &m->err), &m->err);
    return idx;
}

static uint32_t plan_vector(maker *const m, const char *const name, const uint32_t l,
                            const uint64_t n)
{
    char full[64];
    uint32_t idx = 0;
    snprintf(full, sizeof(full), "%s.%u", name, l);
    check(ech_image_plan_vector(&m->plan, full, n, &idx, &m->err), &m->err);
    return idx;
}

static void plan_image(maker *const m)
{
    const toy_shape *const s = &m->t->s;
    const uint64_t ffn_pad = (s->ffn + 15) / 16 * 16;
    m->embed = plan_matrix(m, "embed", 0, s->vocab, s->hidden);
    m->head = plan_matrix(m, "head", 0, s->vocab, s->hidden);
    m->norm = plan_vector(m, "norm", 0, s->hidden);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        layer_entries *const e = &m->layer[l];
        e->qkv =
            plan_matrix(m, "qkv", l, (s->n_heads + 2 * s->n_kv_heads) * s->head_dim, s->hidden);
        e->o = plan_matrix(m, "o", l, s->hidden, s->n_heads * s->head_dim);
        e->gate_up = plan_matrix(m, "gate_up", l, 2 * ffn_pad, s->hidden);
        e->down = plan_matrix(m, "down", l, s->hidden, s->ffn);
        e->in_norm = plan_vector(m, "in_norm", l, s->hidden);
        e->mid_norm = plan_vector(m, "mid_norm", l, s->hidden);
        e->q_norm = plan_vector(m, "q_norm", l, s->head_dim);
        e->k_norm = plan_vector(m, "k_norm", l, s->head_dim);
    }
    m->t->image_bytes = ech_image_plan_place(&m->plan);
}

static void pack_matrix(maker *const m, const uint32_t idx, const size_t at, const uint64_t rows,
                        const ech_pack_place place)
{
    check(ech_pack_builder_matrix(m->pack, &m->plan.entries[idx], source(m, at), rows, place,
                                  &m->err),
          &m->err);
}

static void pack_vector(maker *const m, const uint32_t idx, const size_t at, const uint64_t n)
{
    check(ech_pack_builder_vector(m->pack, &m->plan.entries[idx], source(m, at), 0, n, &m->err),
          &m->err);
}

static void emit_pack(maker *const m)
{
    const toy_shape *const s = &m->t->s;
    const uint64_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    assert_int_equal(ech_pack_builder_create(&m->pack), ECH_OK);
    pack_matrix(m, m->embed, m->a.embed, s->vocab, ech_pack_rows(0));
    pack_matrix(m, m->head, m->a.head, s->vocab, ech_pack_rows(0));
    pack_vector(m, m->norm, m->a.norm, s->hidden);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const layer_entries *const e = &m->layer[l];
        const layer_at *const a = &m->a.layer[l];
        pack_matrix(m, e->qkv, a->q, q, ech_pack_rows(0));
        pack_matrix(m, e->qkv, a->k, kv, ech_pack_rows(q));
        pack_matrix(m, e->qkv, a->v, kv, ech_pack_rows(q + kv));
        pack_matrix(m, e->o, a->o, s->hidden, ech_pack_rows(0));
        pack_matrix(m, e->gate_up, a->gate, s->ffn, ech_pack_rows_interleaved(0));
        pack_matrix(m, e->gate_up, a->up, s->ffn, ech_pack_rows_interleaved(1));
        pack_matrix(m, e->down, a->down, s->hidden, ech_pack_rows(0));
        pack_vector(m, e->in_norm, a->in_norm, s->hidden);
        pack_vector(m, e->mid_norm, a->mid_norm, s->hidden);
        pack_vector(m, e->q_norm, a->q_norm, s->head_dim);
        pack_vector(m, e->k_norm, a->k_norm, s->head_dim);
    }
    check(ech_pack_builder_finish(m->pack, 1, m->t->image_bytes, &m->t->pack, &m->t->pack_len,
                                  &m->err),
          &m->err);
    ech_pack_builder_destroy(&m->pack);
}

static void emit_layer(maker *const m, ech_program_builder *const b, const uint32_t l,
                       const ech_buffer_ref x, const ech_buffer_ref qkv, const ech_buffer_ref attn,
                       const ech_buffer_ref act, const ech_buffer_ref rope)
{
    const ech_image_entry *const at = m->plan.entries;
    const layer_entries *const e = &m->layer[l];
    const toy_shape *const s = &m->t->s;
    ech_program_builder_matmul(b, &at[e->qkv], x, qkv,
                               &(ech_matmul_options){ .norm = &at[e->in_norm], .eps = EPS });
    ech_program_builder_rope_kv(b, qkv, rope, l,
                                &(ech_rope_kv_options){
                                    .q_norm = s->is_qwen ? &at[e->q_norm] : NULL,
                                    .k_norm = s->is_qwen ? &at[e->k_norm] : NULL,
                                    .eps = EPS,
                                    .pairs = s->pairs,
                                });
    ech_program_builder_attention(b, qkv, attn, l, 1.0f / sqrtf((float)s->head_dim));
    ech_program_builder_matmul(b, &at[e->o], attn, x,
                               &(ech_matmul_options){ .epilogue = ECH_EPILOGUE_ADD });
    ech_program_builder_matmul(b, &at[e->gate_up], x, act,
                               &(ech_matmul_options){ .norm = &at[e->mid_norm],
                                                      .eps = EPS,
                                                      .epilogue = ECH_EPILOGUE_SWIGLU });
    ech_program_builder_matmul(b, &at[e->down], act, x,
                               &(ech_matmul_options){ .epilogue = ECH_EPILOGUE_ADD });
}

static void emit_program(maker *const m)
{
    const toy_shape *const s = &m->t->s;
    const ech_program_shape shape = {
        .max_rows = s->max_rows,
        .max_logits = ECH_STEP_MAX_LOGITS,
        .max_positions = s->max_positions,
        .vocab = s->vocab,
        .n_heads = s->n_heads,
        .kv = { s->n_layers, s->n_kv_heads, s->head_dim, s->kv },
        .compute = s->compute,
        .image_bytes = m->t->image_bytes,
    };
    ech_program_builder *b = NULL;
    check(ech_program_builder_create(&b, &shape, &m->err), &m->err);
    const ech_buffer_ref x = ech_program_builder_buffer(b, s->hidden);
    const ech_buffer_ref qkv =
        ech_program_builder_buffer(b, (s->n_heads + 2 * s->n_kv_heads) * s->head_dim);
    const ech_buffer_ref attn = ech_program_builder_buffer(b, s->n_heads * s->head_dim);
    const ech_buffer_ref act = ech_program_builder_buffer(b, s->ffn);
    const ech_buffer_ref rope = ech_program_builder_rope(b, m->t->inv_freq, s->head_dim / 2, 1.0f);
    ech_program_builder_embed(b, &m->plan.entries[m->embed], x);
    for (uint32_t l = 0; l < s->n_layers; l++)
        emit_layer(m, b, l, x, qkv, attn, act, rope);
    ech_program_builder_head(b, &m->plan.entries[m->head], &m->plan.entries[m->norm], EPS, x);
    check(ech_program_builder_finish(b, &m->t->program, &m->t->program_len, &m->err), &m->err);
    ech_program_builder_destroy(&b);
    m->t->page_bytes = ech_kv_page_bytes(&shape.kv);
}

void toy_init(toy *const t, const toy_shape *const shape, const uint64_t seed)
{
    *t = (toy){ .s = *shape };
    maker m = { .t = t, .a = offsets(shape) };
    fill(t, &m.a, seed);
    t->inv_freq = malloc(shape->head_dim / 2 * sizeof(float));
    for (uint32_t i = 0; i < shape->head_dim / 2; i++)
        t->inv_freq[i] = (float)pow(10000.0, -2.0 * i / shape->head_dim);
    if (ech_pack_is_quant(shape->type)) settle_all(t, &m.a);
    plan_image(&m);
    t->image = aligned_alloc(4096, t->image_bytes);
    memset(t->image, 0, t->image_bytes);
    ech_image_plan_write(&m.plan, t->image);
    emit_pack(&m);
    emit_program(&m);
    ech_image_plan_fini(&m.plan);

    ech_exec *e = NULL;
    check(ech_exec_create(&e, &(ech_exec_options){ .n_threads = 1 }, &m.err), &m.err);
    check(ech_exec_load(e, t->pack, t->pack_len, &m.err), &m.err);
    const ech_exec_tensor tensors[] = { { t->source, t->source_bytes },
                                        { t->image, t->image_bytes } };
    check(ech_exec_run(e, t->pack, t->pack_len,
                       &(ech_exec_args){ .tensors = tensors, .n_tensors = 2 }, &m.err),
          &m.err);
    ech_exec_destroy(&e);
    check(ech_image_check(t->image, t->image_bytes, &m.err), &m.err);
}

void toy_fini(toy *const t)
{
    free(t->weights);
    free(t->source);
    free(t->image);
    free(t->pack);
    free(t->program);
    free(t->inv_freq);
}

/* ---- running ----------------------------------------------------------------------------------
 */

void toy_run_init(toy_run *const r, const toy *const t, const uint32_t n, const uint32_t n_threads,
                  const ech_isa isa)
{
    ech_error err;
    *r = (toy_run){ .t = t, .n = n, .n_pages = (n + 31) / 32 + 2 };
    check(ech_exec_create(&r->exec,
                          &(ech_exec_options){
                              .n_threads = n_threads,
                              .isa = isa,
                              .arena_bytes = ech_program_arena_bytes(t->program, t->program_len),
                          },
                          &err),
          &err);
    check(ech_exec_load(r->exec, t->program, t->program_len, &err), &err);
    r->kv = aligned_alloc(64, (r->n_pages * t->page_bytes + 63) / 64 * 64);
    memset(r->kv, 0x2b, r->n_pages * t->page_bytes);
    r->pages = malloc(r->n_pages * sizeof(uint32_t));
    for (uint32_t i = 0; i < r->n_pages; i++)
        r->pages[i] = r->n_pages - 1 - i;
    r->logits = malloc((size_t)n * t->s.vocab * sizeof(float));
}

void toy_run_fini(toy_run *const r)
{
    ech_exec_destroy(&r->exec);
    free(r->kv);
    free(r->pages);
    free(r->logits);
}

ech_status toy_run_try(toy_run *const r, const int32_t *const ids, const uint32_t from,
                       const uint32_t n, ech_error *const err)
{
    ech_row rows[128];
    assert_true(n <= 128);
    const uint32_t first = n > 64 ? n - 64 : 0; /* logits of the last 64 */
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (ech_row){ .pos = from + i,
                             .id = ids[from + i],
                             .logit_row = i >= first ? (int32_t)(i - first) : -1 };
    const uint64_t scalars[] = { n, n - first };
    int32_t no_ids[1] = { 0 };
    const ech_exec_tensor tensors[ECH_STEP_TENSORS] = {
        [ECH_STEP_WEIGHTS] = { r->t->image, r->t->image_bytes },
        [ECH_STEP_ROWS] = { rows, n * sizeof(ech_row) },
        [ECH_STEP_PAGES] = { r->pages, r->n_pages * sizeof(uint32_t) },
        [ECH_STEP_KV] = { r->kv, r->n_pages * r->t->page_bytes },
        [ECH_STEP_SAMPLED] = { no_ids, sizeof(no_ids) },
        [ECH_STEP_LOGITS] = { r->logits + (size_t)(from + first) * r->t->s.vocab,
                              (size_t)(n - first) * r->t->s.vocab * sizeof(float) },
    };
    return ech_exec_run(r->exec, r->t->program, r->t->program_len,
                        &(ech_exec_args){ .tensors = tensors,
                                          .n_tensors = ECH_STEP_TENSORS,
                                          .scalars = scalars,
                                          .n_scalars = ECH_STEP_SCALARS },
                        err);
}

void toy_run_step(toy_run *const r, const int32_t *const ids, const uint32_t from, const uint32_t n)
{
    ech_error err;
    check(toy_run_try(r, ids, from, n, &err), &err);
}

void toy_run_chunks(toy_run *const r, const int32_t *const ids, const uint32_t chunk)
{
    for (uint32_t from = 0; from < r->n; from += chunk)
        toy_run_step(r, ids, from, r->n - from < chunk ? r->n - from : chunk);
}

/* ---- reference --------------------------------------------------------------------------------
 */

static void norm_ref(const double *const x, const float *const w, const uint32_t n, double *const y)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const double inv = 1 / sqrt(sum / n + EPS);
    for (uint32_t i = 0; i < n; i++)
        y[i] = w != NULL ? x[i] * inv * w[i] : x[i] * inv;
}

static void mul_ref(const toy *const t, const size_t at, const uint32_t rows, const uint32_t cols,
                    const double *const x, double *const y)
{
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t k = 0; k < cols; k++)
            sum += (double)round_to(t->s.type, t->weights[at + (size_t)r * cols + k]) * x[k];
        y[r] = sum;
    }
}

static void rope_ref(const toy *const t, double *const x, const uint32_t pos)
{
    const uint32_t half = t->s.head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        const double angle = (double)((float)pos * t->inv_freq[i]);
        double *const a = t->s.pairs == ECH_ROPE_HALF ? &x[i] : &x[2 * i];
        double *const b = t->s.pairs == ECH_ROPE_HALF ? &x[i + half] : &x[2 * i + 1];
        const double a0 = *a, b0 = *b;
        *a = a0 * cos(angle) - b0 * sin(angle);
        *b = b0 * cos(angle) + a0 * sin(angle);
    }
}

static void attention_ref(const toy_shape *const s, const double *const q, const double *const keys,
                          const double *const values, const uint32_t n, double *const out)
{
    double *const p = malloc(n * sizeof(double));
    const uint32_t group = s->n_heads / s->n_kv_heads, d = s->head_dim;
    for (uint32_t h = 0; h < s->n_heads; h++) {
        double max = -INFINITY, sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            p[j] = 0;
            for (uint32_t i = 0; i < d; i++)
                p[j] += q[h * d + i] * keys[((size_t)j * s->n_kv_heads + h / group) * d + i];
            p[j] /= sqrt(d);
            max = fmax(max, p[j]);
        }
        for (uint32_t j = 0; j < n; j++)
            sum += p[j] = exp(p[j] - max);
        for (uint32_t i = 0; i < d; i++) {
            double o = 0;
            for (uint32_t j = 0; j < n; j++)
                o += p[j] * values[((size_t)j * s->n_kv_heads + h / group) * d + i];
            out[h * d + i] = o / sum;
        }
    }
    free(p);
}

/* One layer over all positions: x [n, hidden] in place. */
static void layer_ref(const toy *const t, const layer_at *const a, const uint32_t n,
                      double *const x)
{
    const toy_shape *const s = &t->s;
    const uint32_t d = s->head_dim, nq = s->n_heads * d, nkv = s->n_kv_heads * d;
    double *const keys = malloc((size_t)n * nkv * sizeof(double));
    double *const values = malloc((size_t)n * nkv * sizeof(double));
    double *const tmp = malloc((s->hidden * 2 + nq * 2 + s->ffn * 2) * sizeof(double));
    double *const h = tmp, *const q = h + s->hidden, *const o = q + nq, *const y = o + nq,
                  *const gate = y + s->hidden, *const up = gate + s->ffn;
    for (uint32_t pos = 0; pos < n; pos++) {
        double *const xp = x + (size_t)pos * s->hidden;
        double *const k = keys + (size_t)pos * nkv;
        norm_ref(xp, t->weights + a->in_norm, s->hidden, h);
        mul_ref(t, a->q, nq, s->hidden, h, q);
        mul_ref(t, a->k, nkv, s->hidden, h, k);
        mul_ref(t, a->v, nkv, s->hidden, h, values + (size_t)pos * nkv);
        for (uint32_t i = 0; i < s->n_heads; i++) {
            if (s->is_qwen) norm_ref(q + i * d, t->weights + a->q_norm, d, q + i * d);
            rope_ref(t, q + i * d, pos);
        }
        for (uint32_t i = 0; i < s->n_kv_heads; i++) {
            if (s->is_qwen) norm_ref(k + i * d, t->weights + a->k_norm, d, k + i * d);
            rope_ref(t, k + i * d, pos);
        }
        attention_ref(s, q, keys, values, pos + 1, o);
        mul_ref(t, a->o, s->hidden, nq, o, y);
        for (uint32_t i = 0; i < s->hidden; i++)
            xp[i] += y[i];
        norm_ref(xp, t->weights + a->mid_norm, s->hidden, h);
        mul_ref(t, a->gate, s->ffn, s->hidden, h, gate);
        mul_ref(t, a->up, s->ffn, s->hidden, h, up);
        for (uint32_t i = 0; i < s->ffn; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        mul_ref(t, a->down, s->hidden, s->ffn, gate, y);
        for (uint32_t i = 0; i < s->hidden; i++)
            xp[i] += y[i];
    }
    free(keys);
    free(values);
    free(tmp);
}

void toy_reference(const toy *const t, const int32_t *const ids, const uint32_t n,
                   double *const logits)
{
    const toy_shape *const s = &t->s;
    const tensor_offsets a = offsets(s);
    double *const x = malloc((size_t)n * s->hidden * sizeof(double));
    double *const h = malloc(s->hidden * sizeof(double));
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t i = 0; i < s->hidden; i++)
            x[p * s->hidden + i] =
                round_to(s->type, t->weights[a.embed + (size_t)ids[p] * s->hidden + i]);
    for (uint32_t l = 0; l < s->n_layers; l++)
        layer_ref(t, &a.layer[l], n, x);
    for (uint32_t p = 0; p < n; p++) {
        norm_ref(x + (size_t)p * s->hidden, t->weights + a.norm, s->hidden, h);
        mul_ref(t, a.head, s->vocab, s->hidden, h, logits + (size_t)p * s->vocab);
    }
    free(x);
    free(h);
}
