/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and operations of a dense decoder. Seven operations a layer: the norms are fused into
 * the products that read them, the residual additions into those that write it.
 *
 *     x ─┬─ norm·qkv ─ rope, KV ─ attention ─ o ─ + ─┬─ norm·gate_up, SwiGLU ─ down ─ + ─ x
 *        └───────────────────────────────────────────┘ └──────────────────────────────┘
 */
#include "src/model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"

/* What a tensor is; each format has its own names. */
typedef enum role {
    ROLE_EMBED,
    ROLE_NORM,
    ROLE_HEAD,
    ROLE_ATTN_NORM,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_O,
    ROLE_FFN_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_COUNT,
} role;

/* [format][role]; those of a layer hold its number. */
static const char *const NAMES[][ROLE_COUNT] = {
    [ECH_FORMAT_SAFETENSORS] = {
        [ROLE_EMBED] = "model.embed_tokens.weight",
        [ROLE_NORM] = "model.norm.weight",
        [ROLE_HEAD] = "lm_head.weight",
        [ROLE_ATTN_NORM] = "model.layers.%u.input_layernorm.weight",
        [ROLE_Q] = "model.layers.%u.self_attn.q_proj.weight",
        [ROLE_K] = "model.layers.%u.self_attn.k_proj.weight",
        [ROLE_V] = "model.layers.%u.self_attn.v_proj.weight",
        [ROLE_Q_NORM] = "model.layers.%u.self_attn.q_norm.weight",
        [ROLE_K_NORM] = "model.layers.%u.self_attn.k_norm.weight",
        [ROLE_O] = "model.layers.%u.self_attn.o_proj.weight",
        [ROLE_FFN_NORM] = "model.layers.%u.post_attention_layernorm.weight",
        [ROLE_GATE] = "model.layers.%u.mlp.gate_proj.weight",
        [ROLE_UP] = "model.layers.%u.mlp.up_proj.weight",
        [ROLE_DOWN] = "model.layers.%u.mlp.down_proj.weight",
    },
    [ECH_FORMAT_GGUF] = {
        [ROLE_EMBED] = "token_embd.weight",
        [ROLE_NORM] = "output_norm.weight",
        [ROLE_HEAD] = "output.weight",
        [ROLE_ATTN_NORM] = "blk.%u.attn_norm.weight",
        [ROLE_Q] = "blk.%u.attn_q.weight",
        [ROLE_K] = "blk.%u.attn_k.weight",
        [ROLE_V] = "blk.%u.attn_v.weight",
        [ROLE_Q_NORM] = "blk.%u.attn_q_norm.weight",
        [ROLE_K_NORM] = "blk.%u.attn_k_norm.weight",
        [ROLE_O] = "blk.%u.attn_output.weight",
        [ROLE_FFN_NORM] = "blk.%u.ffn_norm.weight",
        [ROLE_GATE] = "blk.%u.ffn_gate.weight",
        [ROLE_UP] = "blk.%u.ffn_up.weight",
        [ROLE_DOWN] = "blk.%u.ffn_down.weight",
    },
};

#define PREFIX "model."

static bool is_bare(const ech_layout *const l)
{
    const char *const full = NAMES[ECH_FORMAT_SAFETENSORS][ROLE_EMBED];
    return !ech_layout_has(l, full) && ech_layout_has(l, full + sizeof PREFIX - 1);
}

/* A name of the table with the layer's number in the place of its "%u". */
static void name_of(const ech_layout *const l, const role r, const uint32_t layer, char *const out,
                    const size_t cap)
{
    const char *pattern = NAMES[l->format][r];
    /* Embedding models are saved without their head, and then without this prefix. */
    if (strncmp(pattern, PREFIX, sizeof PREFIX - 1) == 0 && is_bare(l))
        pattern += sizeof PREFIX - 1;
    const char *const at = strstr(pattern, "%u");
    if (at == NULL) {
        (void)snprintf(out, cap, "%s", pattern);
    } else {
        (void)snprintf(out, cap, "%.*s%u%s", (int)(at - pattern), pattern, layer, at + 2);
    }
}

static ech_source_rows source(const ech_layout *const l, const role r, const uint32_t layer,
                              const uint64_t rows)
{
    ech_source_rows s = { .rows = rows };
    name_of(l, r, layer, s.name, sizeof s.name);
    return s;
}

static ech_status bind_vector(ech_layout *const l, const char *const entry, const role r,
                              const uint32_t layer, const uint64_t n, ech_error *const err)
{
    char tensor[128];
    char name[ECH_IMAGE_NAME];
    name_of(l, r, layer, tensor, sizeof tensor);
    (void)snprintf(name, sizeof name, "layers.%u.%s", layer, entry);
    return ech_layout_vector(l, name, tensor, n, err);
}

static ech_status bind_matrix(ech_layout *const l, const char *const entry, const uint32_t layer,
                              const ech_source_rows *const sources, const uint32_t n,
                              const uint64_t cols, const ech_stacking stacking,
                              ech_error *const err)
{
    char name[ECH_IMAGE_NAME];
    (void)snprintf(name, sizeof name, "layers.%u.%s", layer, entry);
    return ech_layout_matrix(l, name, sources, n, cols, stacking, err);
}

/*
 * One matrix, but where values have another type than the rest, as in files whose values are kept
 * finer: those are two, so that neither takes the other's bits.
 */
static ech_status bind_qkv(ech_layout *const l, const uint32_t layer, const ech_source_rows qkv[3],
                           ech_error *const err)
{
    const uint64_t cols = l->config->hidden, above = qkv[0].rows + qkv[1].rows;
    if (above % ECH_PANEL != 0 || ech_layout_agrees(l, qkv, 3) || !ech_layout_agrees(l, qkv, 2))
        return bind_matrix(l, "qkv", layer, qkv, 3, cols, ECH_STACK_BELOW, err);
    ECH_TRY(bind_matrix(l, "qk", layer, qkv, 2, cols, ECH_STACK_BELOW, err));
    return bind_matrix(l, "v", layer, qkv + 2, 1, cols, ECH_STACK_BELOW, err);
}

static ech_status bind_attention(const ech_decoder_traits *const t, ech_layout *const l,
                                 const uint32_t layer, ech_error *const err)
{
    const ech_config *const c = l->config;
    const uint64_t q_rows = (uint64_t)c->n_heads * c->head_dim;
    const uint64_t kv_rows = (uint64_t)c->n_kv_heads * c->head_dim;
    const ech_source_rows qkv[3] = {
        source(l, ROLE_Q, layer, q_rows),
        source(l, ROLE_K, layer, kv_rows),
        source(l, ROLE_V, layer, kv_rows),
    };
    const ech_source_rows o = source(l, ROLE_O, layer, c->hidden);
    ECH_TRY(bind_vector(l, "attn_norm", ROLE_ATTN_NORM, layer, c->hidden, err));
    ECH_TRY(bind_qkv(l, layer, qkv, err));
    if (t->qk_norm) {
        ECH_TRY(bind_vector(l, "q_norm", ROLE_Q_NORM, layer, c->head_dim, err));
        ECH_TRY(bind_vector(l, "k_norm", ROLE_K_NORM, layer, c->head_dim, err));
    }
    return bind_matrix(l, "o", layer, &o, 1, q_rows, ECH_STACK_BELOW, err);
}

static ech_status bind_ffn(ech_layout *const l, const uint32_t layer, ech_error *const err)
{
    const ech_config *const c = l->config;
    const ech_source_rows gate_up[2] = {
        source(l, ROLE_GATE, layer, c->ffn),
        source(l, ROLE_UP, layer, c->ffn),
    };
    const ech_source_rows down = source(l, ROLE_DOWN, layer, c->hidden);
    ECH_TRY(bind_vector(l, "ffn_norm", ROLE_FFN_NORM, layer, c->hidden, err));
    ECH_TRY(bind_matrix(l, "gate_up", layer, gate_up, 2, c->hidden, ECH_STACK_PANELS, err));
    return bind_matrix(l, "down", layer, &down, 1, c->ffn, ECH_STACK_BELOW, err);
}

ech_status ech_decoder_bind(const ech_decoder_traits *const t, ech_layout *const l,
                            ech_error *const err)
{
    const ech_config *const c = l->config;
    const ech_source_rows embed = source(l, ROLE_EMBED, 0, c->vocab);
    const ech_source_rows head = source(l, ROLE_HEAD, 0, c->vocab);
    const ech_source_rows norm = source(l, ROLE_NORM, 0, 1);
    ECH_TRY(ech_layout_matrix(l, "embed", &embed, 1, c->hidden, ECH_STACK_BELOW, err));
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        ECH_TRY(bind_attention(t, l, layer, err));
        ECH_TRY(bind_ffn(l, layer, err));
    }
    ECH_TRY(ech_layout_vector(l, "norm", norm.name, c->hidden, err));
    /* The tensors decide whether the head is tied; the config's word is only compared with it. */
    l->tied = !ech_layout_has(l, head.name);
    if (l->tied) return ECH_OK;
    return ech_layout_matrix(l, "head", &head, 1, c->hidden, ECH_STACK_BELOW, err);
}

/* The buffers of a step, [rows, width] each. */
typedef struct step_buffers {
    ech_buffer_ref x;    /* hidden: the residual stream */
    ech_buffer_ref qkv;  /* (heads + 2 KV heads) × head_dim */
    ech_buffer_ref qk;   /* its first heads + KV heads */
    ech_buffer_ref v;    /* and the rest */
    ech_buffer_ref attn; /* heads × head_dim */
    ech_buffer_ref act;  /* ffn */
    ech_buffer_ref rope;
} step_buffers;

static ech_status emit_buffers(const ech_config *const c, ech_program_builder *const b,
                               step_buffers *const s)
{
    float *const inv_freq = calloc(c->head_dim / 2, sizeof *inv_freq);
    if (inv_freq == NULL) return ECH_ENOMEM;
    ech_rope_inv_freq(&c->rope, c->head_dim, inv_freq);
    for (uint32_t i = 0; c->rope_factors != NULL && i < c->head_dim / 2; i++) {
        inv_freq[i] /= c->rope_factors[i];
    }
    s->x = ech_program_builder_buffer(b, c->hidden);
    s->qkv = ech_program_builder_buffer(b, (c->n_heads + 2 * c->n_kv_heads) * c->head_dim);
    const uint32_t qk = (c->n_heads + c->n_kv_heads) * c->head_dim;
    if (qk % ECH_PANEL == 0) {
        s->qk = ech_program_builder_slice(b, s->qkv, 0, qk);
        s->v = ech_program_builder_slice(b, s->qkv, qk, c->n_kv_heads * c->head_dim);
    }
    s->attn = ech_program_builder_buffer(b, c->n_heads * c->head_dim);
    s->act = ech_program_builder_buffer(b, c->ffn);
    s->rope =
        ech_program_builder_rope(b, inv_freq, c->head_dim / 2, (float)c->rope.attention_factor);
    free(inv_freq);
    return ECH_OK;
}

static void emit_layer(const ech_decoder_traits *const t, const ech_layout *const l,
                       ech_program_builder *const b, const step_buffers *const s,
                       const uint32_t layer)
{
    const ech_config *const c = l->config;
    const float eps = (float)c->rms_eps;
    const ech_matmul_options qkv = { .norm = ech_layout_entry(l, "layers.%u.attn_norm", layer),
                                     .eps = eps };
    const ech_matmul_options add = { .epilogue = ECH_EPILOGUE_ADD };
    const ech_matmul_options swiglu = {
        .norm = ech_layout_entry(l, "layers.%u.ffn_norm", layer),
        .eps = eps,
        .epilogue = ECH_EPILOGUE_SWIGLU,
    };
    const ech_rope_kv_options rope = {
        .q_norm = t->qk_norm ? ech_layout_entry(l, "layers.%u.q_norm", layer) : NULL,
        .k_norm = t->qk_norm ? ech_layout_entry(l, "layers.%u.k_norm", layer) : NULL,
        .eps = eps,
        .pairs = l->format == ECH_FORMAT_GGUF ? t->gguf_pairs : ECH_ROPE_HALF,
    };
    const ech_image_entry *const whole = ech_layout_entry(l, "layers.%u.qkv", layer);
    if (whole != NULL) {
        ech_program_builder_matmul(b, whole, s->x, s->qkv, &qkv);
    } else {
        ech_program_builder_matmul(b, ech_layout_entry(l, "layers.%u.qk", layer), s->x, s->qk,
                                   &qkv);
        ech_program_builder_matmul(b, ech_layout_entry(l, "layers.%u.v", layer), s->x, s->v, &qkv);
    }
    ech_program_builder_rope_kv(b, s->qkv, s->rope, layer, &rope);
    ech_program_builder_attention(b, s->qkv, s->attn, layer, 1.0f / sqrtf((float)c->head_dim));
    ech_program_builder_matmul(b, ech_layout_entry(l, "layers.%u.o", layer), s->attn, s->x, &add);
    ech_program_builder_matmul(b, ech_layout_entry(l, "layers.%u.gate_up", layer), s->x, s->act,
                               &swiglu);
    ech_program_builder_matmul(b, ech_layout_entry(l, "layers.%u.down", layer), s->act, s->x, &add);
}

ech_status ech_decoder_emit(const ech_decoder_traits *const t, const ech_layout *const l,
                            ech_program_builder *const b, ech_error *const err)
{
    const ech_config *const c = l->config;
    step_buffers s;
    if (emit_buffers(c, b, &s) != ECH_OK) {
        return ech_fail(err, ECH_ENOMEM, "compiling %s: out of memory", l->path);
    }
    ech_program_builder_embed(b, ech_layout_entry(l, "embed"), s.x);
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        emit_layer(t, l, b, &s, layer);
    }
    ech_program_builder_head(b, ech_layout_entry(l, l->tied ? "embed" : "head"),
                             ech_layout_entry(l, "norm"), (float)c->rms_eps, s.x);
    return ECH_OK;
}
