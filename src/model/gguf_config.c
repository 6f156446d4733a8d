/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF keys of dense decoders. Keys of the architecture begin with its name ("qwen3.block_count").
 * Where a key that llama.cpp acts upon means something that isn't computed here, that is an error
 * that names it.
 */
#include "src/model/gguf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"

/* Factors by which Llama 3 divides its frequencies; computed by the converter. */
#define ROPE_FACTORS "rope_freqs.weight"

#define HEAD_DIM_MAX 65536u

/* The value of tokenizer.ggml.token_type for special tokens. */
#define CONTROL_TOKEN 3.0

typedef struct keys {
    const ech_gguf *g;
    const char *path;
    const char *arch;
    char key[128]; /* the last that was asked for, for errors */
    ech_error *err;
} keys;

static const char *arch_key(keys *const k, const char *const name)
{
    (void)snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

/* An integer of the architecture within [1, max]. An absent one keeps *inout, unless that is 0. */
static ech_status get_u32(keys *const k, const char *const name, const uint32_t max,
                          uint32_t *const inout)
{
    const char *const key = arch_key(k, name);
    int64_t v = 0;
    if (ech_gguf_find(k->g, key) == NULL) {
        if (*inout != 0) return ECH_OK;
        return ech_fail(k->err, ECH_EFORMAT, "reading %s: key %s is missing", k->path, key);
    }
    if (!ech_gguf_int(k->g, key, &v) || v < 1 || v > (int64_t)max) {
        return ech_fail(k->err, ECH_EFORMAT, "reading %s: %s: expected an integer from 1 to %u",
                        k->path, key, max);
    }
    *inout = (uint32_t)v;
    return ECH_OK;
}

/* A number within [min, max]; an absent one keeps *inout. */
static ech_status get_number(keys *const k, const char *const name, const double min,
                             const double max, double *const inout)
{
    const char *const key = arch_key(k, name);
    double v = 0.0;
    if (ech_gguf_find(k->g, key) == NULL) return ECH_OK;
    if (!ech_gguf_number(k->g, key, &v) || !(v >= min && v <= max)) {
        return ech_fail(k->err, ECH_EFORMAT, "reading %s: %s: expected a number from %g to %g",
                        k->path, key, min, max);
    }
    *inout = v;
    return ECH_OK;
}

static ech_status unsupported(const keys *const k, const char *const why)
{
    return ech_fail(k->err, ECH_EUNSUPPORTED, "reading %s: %s: %s", k->path, k->key, why);
}

static ech_status get_arch(keys *const k, ech_config *const c)
{
    ech_str name = { 0 };
    if (!ech_gguf_str(k->g, "general.architecture", &name)) {
        return ech_fail(k->err, ECH_EFORMAT,
                        "reading %s: key general.architecture is missing or no string", k->path);
    }
    char text[65] = "";
    memcpy(text, name.ptr, name.len < 64 ? name.len : 64);
    c->arch = ech_arch_find(text);
    if (c->arch == NULL) {
        ech_buf list = { 0 };
        ech_arch_list(&list);
        const ech_status rc =
            ech_fail(k->err, ECH_EUNSUPPORTED,
                     "reading %s: general.architecture: expected one of %s, found \"%s\"", k->path,
                     list.data != NULL ? list.data : "?", text);
        ech_buf_fini(&list);
        return rc;
    }
    k->arch = c->arch->name;
    return ECH_OK;
}

/* Ids are rows of the embedding, whatever else says how many there are. */
static ech_status get_vocab(const keys *const k, const ech_weights *const ws, ech_config *const c)
{
    const ech_weight *const embed = ech_weights_find(ws, "token_embd.weight");
    if (embed == NULL || embed->n_dims != 2 || embed->dims[0] < 1 ||
        embed->dims[0] > ECH_CONFIG_VOCAB_MAX) {
        return ech_fail(
            k->err, ECH_EFORMAT,
            "reading %s: tensor token_embd.weight: expected [vocabulary, hidden], found %s",
            k->path, embed == NULL ? "no such tensor" : "another shape");
    }
    c->vocab = (uint32_t)embed->dims[0];
    return ECH_OK;
}

static ech_status get_sizes(keys *const k, ech_config *const c)
{
    ECH_TRY(get_u32(k, "block_count", ECH_CONFIG_LAYERS_MAX, &c->n_layers));
    ECH_TRY(get_u32(k, "embedding_length", ECH_CONFIG_WIDTH_MAX, &c->hidden));
    ECH_TRY(get_u32(k, "feed_forward_length", ECH_CONFIG_WIDTH_MAX, &c->ffn));
    ECH_TRY(get_u32(k, "attention.head_count", ECH_CONFIG_HEADS_MAX, &c->n_heads));
    c->n_kv_heads = c->n_heads;
    ECH_TRY(get_u32(k, "attention.head_count_kv", ECH_CONFIG_HEADS_MAX, &c->n_kv_heads));
    ECH_TRY(get_u32(k, "context_length", ECH_CONFIG_CONTEXT_MAX, &c->max_context));
    ECH_ASSERT(c->n_heads > 0);
    c->head_dim = c->hidden / c->n_heads;
    if (c->head_dim == 0) c->head_dim = 1; /* refused below, as any odd number */
    ECH_TRY(get_u32(k, "attention.key_length", HEAD_DIM_MAX, &c->head_dim));
    uint32_t value_dim = c->head_dim;
    ECH_TRY(get_u32(k, "attention.value_length", HEAD_DIM_MAX, &value_dim));
    if (value_dim != c->head_dim)
        return unsupported(k, "values of another length than keys are not computed");
    uint32_t rotated = c->head_dim;
    ECH_TRY(get_u32(k, "rope.dimension_count", HEAD_DIM_MAX, &rotated));
    if (rotated != c->head_dim) return unsupported(k, "only whole heads are rotated");
    if (ech_gguf_find(k->g, arch_key(k, "attention.layer_norm_rms_epsilon")) == NULL) {
        return ech_fail(k->err, ECH_EFORMAT, "reading %s: key %s is missing", k->path, k->key);
    }
    return get_number(k, "attention.layer_norm_rms_epsilon", 0.0, 1.0, &c->rms_eps);
}

/* ---- types of the keys that are optional: an unreadable one is not an absent one ---- */

typedef enum value_kind { TEXT, NUMBER, FLAG, TEXTS, NUMBERS } value_kind;

static bool is_number(const ech_gguf_type type)
{
    return type != ECH_GGUF_STRING && type != ECH_GGUF_ARRAY && type != ECH_GGUF_BOOL;
}

static bool is_of_kind(const ech_gguf_entry *const e, const value_kind kind)
{
    switch (kind) {
    case TEXT:
        return !e->is_array && e->type == ECH_GGUF_STRING;
    case NUMBER:
        return !e->is_array && is_number(e->type);
    case FLAG:
        return !e->is_array && e->type == ECH_GGUF_BOOL;
    case TEXTS:
        return e->is_array && e->type == ECH_GGUF_STRING;
    case NUMBERS:
        return e->is_array && is_number(e->type);
    }
    return false;
}

static ech_status check_kind(const keys *const k, const char *const key, const value_kind kind)
{
    static const char *const NAMES[] = { "a string", "a number", "a bool", "an array of strings",
                                         "an array of numbers" };
    const ech_gguf_entry *const e = ech_gguf_find(k->g, key);
    if (e == NULL || is_of_kind(e, kind)) return ECH_OK;
    return ech_fail(k->err, ECH_EFORMAT, "reading %s: %s: expected %s, found another type", k->path,
                    key, NAMES[kind]);
}

/* Arrays beside the tokens have one element for each. */
static ech_status check_lengths(const keys *const k)
{
    static const char *const BESIDE[] = { "tokenizer.ggml.scores", "tokenizer.ggml.token_type" };
    const ech_gguf_entry *const tokens = ech_gguf_find(k->g, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < sizeof BESIDE / sizeof BESIDE[0]; i++) {
        const ech_gguf_entry *const e = ech_gguf_find(k->g, BESIDE[i]);
        if (e == NULL || tokens == NULL || e->n == tokens->n) continue;
        return ech_fail(k->err, ECH_EFORMAT,
                        "reading %s: %s: expected one element for each of %" PRIu64
                        " tokens, found %" PRIu64,
                        k->path, BESIDE[i], tokens->n, e->n);
    }
    return ECH_OK;
}

static ech_status check_kinds(keys *const k)
{
    static const struct {
        const char *key;
        value_kind kind;
    } KNOWN[] = {
        { "tokenizer.chat_template", TEXT },
        { "tokenizer.ggml.model", TEXT },
        { "tokenizer.ggml.pre", TEXT },
        { "tokenizer.ggml.tokens", TEXTS },
        { "tokenizer.ggml.merges", TEXTS },
        { "tokenizer.ggml.scores", NUMBERS },
        { "tokenizer.ggml.token_type", NUMBERS },
        { "tokenizer.ggml.bos_token_id", NUMBER },
        { "tokenizer.ggml.eos_token_id", NUMBER },
        { "tokenizer.ggml.eot_token_id", NUMBER },
        { "tokenizer.ggml.eom_token_id", NUMBER },
        { "tokenizer.ggml.unknown_token_id", NUMBER },
        { "tokenizer.ggml.padding_token_id", NUMBER },
        { "tokenizer.ggml.seperator_token_id", NUMBER }, /* the format spells it so */
        { "tokenizer.ggml.cls_token_id", NUMBER },
        { "tokenizer.ggml.add_bos_token", FLAG },
        { "tokenizer.ggml.add_eos_token", FLAG },
        { "tokenizer.ggml.add_space_prefix", FLAG },
        { "tokenizer.ggml.remove_extra_whitespaces", FLAG },
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        ECH_TRY(check_kind(k, KNOWN[i].key, KNOWN[i].kind));
    ECH_TRY(check_kind(k, arch_key(k, "rope.scaling.type"), TEXT));
    ECH_TRY(check_kind(k, arch_key(k, "pooling_type"), NUMBER));
    return check_lengths(k);
}

/* What llama.cpp would act upon and is not computed here. */
static ech_status refuse_unsupported(keys *const k)
{
    static const char *const NAMES[] = { "expert_count",
                                         "attention.sliding_window",
                                         "attn_logit_softcapping",
                                         "final_logit_softcapping",
                                         "logit_scale",
                                         "residual_scale",
                                         "embedding_scale",
                                         "attention.scale" };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        double v = 0.0;
        if (ech_gguf_find(k->g, arch_key(k, NAMES[i])) == NULL) continue;
        if (!ech_gguf_number(k->g, k->key, &v) || v != 0.0)
            return unsupported(k, "this is not computed");
    }
    return ECH_OK;
}

static ech_status get_yarn(keys *const k, ech_rope *const r)
{
    double attention = 1.0;
    double ext = 1.0;
    r->beta_fast = 32.0;
    r->beta_slow = 1.0;
    r->truncate = true;
    ECH_TRY(get_number(k, "rope.scaling.yarn_ext_factor", -1.0, 1e6, &ext));
    if (ext != 1.0 && ext != -1.0) return unsupported(k, "only 1 is computed");
    ECH_TRY(get_number(k, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &r->beta_fast));
    ECH_TRY(get_number(k, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &r->beta_slow));
    ECH_TRY(get_number(k, "rope.scaling.yarn_attn_factor", 1e-6, 1e6, &attention));
    ECH_TRY(get_number(k, "rope.scaling.attn_factor", 1e-6, 1e6, &attention));
    r->attention_factor = attention * ech_rope_yarn_attention(r->factor, 0.0, 0.0);
    return ECH_OK;
}

static ech_status get_rope(keys *const k, ech_config *const c)
{
    ech_rope *const r = &c->rope;
    *r = (ech_rope){
        .theta = 10000.0, .factor = 1.0, .attention_factor = 1.0, .original_context = c->max_context
    };
    ECH_TRY(get_number(k, "rope.freq_base", 1.0 + 1e-6, 1e15, &r->theta));
    /* The oldest files have the factor alone, and mean linear scaling. */
    ECH_TRY(get_number(k, "rope.scale_linear", 1e-3, 1e6, &r->factor));
    r->kind = r->factor != 1.0 ? ECH_ROPE_LINEAR : ECH_ROPE_DEFAULT;
    ech_str kind = { 0 };
    if (!ech_gguf_str(k->g, arch_key(k, "rope.scaling.type"), &kind) ||
        ech_str_eq(kind, ECH_STR_LIT("none")))
        return ECH_OK;
    ECH_TRY(get_number(k, "rope.scaling.factor", 1e-3, 1e6, &r->factor));
    ECH_TRY(get_number(k, "rope.scaling.original_context_length", 1.0, ECH_CONFIG_CONTEXT_MAX,
                       &r->original_context));
    (void)arch_key(k, "rope.scaling.type");
    if (ech_str_eq(kind, ECH_STR_LIT("linear"))) {
        r->kind = ECH_ROPE_LINEAR;
        return ECH_OK;
    }
    if (!ech_str_eq(kind, ECH_STR_LIT("yarn")))
        return unsupported(k, "only none, linear and yarn are computed");
    r->kind = ECH_ROPE_YARN;
    return get_yarn(k, r);
}

/* Reads the factors now: a few hundred bytes that belong to the program, not to the weights. */
static ech_status get_factors(const keys *const k, const ech_weights *const ws,
                              ech_arena *const arena, ech_config *const c)
{
    const ech_weight *const w = ech_weights_find(ws, ROPE_FACTORS);
    if (w == NULL) return ECH_OK;
    const uint32_t n = c->head_dim / 2;
    if (w->type != ECH_WTYPE_F32 || w->n_dims != 1 || w->dims[0] != n) {
        return ech_fail(k->err, ECH_EFORMAT,
                        "reading %s: tensor %s: expected %u numbers of type f32", k->path,
                        ROPE_FACTORS, n);
    }
    float *const factors = ech_arena_array(arena, n, sizeof *factors);
    if (factors == NULL) return ech_fail(k->err, ECH_ENOMEM, "reading %s: out of memory", k->path);
    ECH_TRY(ech_weights_read(ws, w->file, w->offset, factors, n * sizeof *factors, k->err));
    for (uint32_t i = 0; i < n; i++) {
        if (!(factors[i] >= 1e-6f && factors[i] <= 1e6f)) {
            return ech_fail(k->err, ECH_EFORMAT, "reading %s: tensor %s: number %u is no factor",
                            k->path, ROPE_FACTORS, i);
        }
    }
    c->rope_factors = factors;
    return ECH_OK;
}

/* An id of the vocabulary; other values stand for none in some files. */
static int32_t get_id(const keys *const k, const char *const key, const ech_config *const c)
{
    int64_t id = -1;
    return ech_gguf_int(k->g, key, &id) && id >= 0 && id < (int64_t)c->vocab ? (int32_t)id : -1;
}

static void add_eos(ech_config *const c, const int32_t id)
{
    for (uint32_t i = 0; i < c->ids.n_eos; i++) {
        if (c->ids.eos[i] == id) return;
    }
    if (id >= 0 && c->ids.n_eos < ECH_MODEL_EOS_MAX) c->ids.eos[c->ids.n_eos++] = id;
}

/*
 * Files name one id, and chat models end a turn with another. So control tokens count whose text
 * is an end in every model that has it, as llama.cpp does.
 */
static ech_status add_ends_by_text(const keys *const k, ech_config *const c)
{
    static const char *const ENDS[] = { "<|im_end|>",      "<|eot_id|>",    "<|endoftext|>",
                                        "<|end|>",         "<end_of_turn>", "<|eom_id|>",
                                        "<|end_of_text|>", "<|return|>",    "<|call|>" };
    const ech_gguf_entry *const tokens = ech_gguf_find(k->g, "tokenizer.ggml.tokens");
    const ech_gguf_entry *const kinds = ech_gguf_find(k->g, "tokenizer.ggml.token_type");
    if (tokens == NULL || kinds == NULL || !tokens->is_array || !kinds->is_array ||
        tokens->type != ECH_GGUF_STRING || kinds->type == ECH_GGUF_STRING ||
        kinds->type == ECH_GGUF_ARRAY || kinds->n != tokens->n) {
        return ECH_OK;
    }
    ech_str *const texts = calloc(tokens->n + 1, sizeof *texts);
    if (texts == NULL) return ech_fail(k->err, ECH_ENOMEM, "reading %s: out of memory", k->path);
    ech_gguf_strings(k->g, tokens, texts);
    for (uint64_t i = 0; i < tokens->n && i < c->vocab; i++) {
        if (ech_gguf_element(k->g, kinds, i) != CONTROL_TOKEN) continue;
        for (size_t e = 0; e < sizeof ENDS / sizeof ENDS[0]; e++) {
            if (ech_str_eq(texts[i], ech_str_from(ENDS[e]))) add_eos(c, (int32_t)i);
        }
    }
    free(texts);
    return ECH_OK;
}

static ech_status get_ids(const keys *const k, ech_config *const c)
{
    c->ids.bos = get_id(k, "tokenizer.ggml.bos_token_id", c);
    c->ids.pad = get_id(k, "tokenizer.ggml.padding_token_id", c);
    add_eos(c, get_id(k, "tokenizer.ggml.eos_token_id", c));
    add_eos(c, get_id(k, "tokenizer.ggml.eot_token_id", c));
    add_eos(c, get_id(k, "tokenizer.ggml.eom_token_id", c));
    return add_ends_by_text(k, c);
}

ech_status ech_gguf_config(const ech_gguf *const g, const ech_weights *const ws,
                           const char *const path, ech_arena *const arena,
                           ech_config *const ret_config, ech_error *const err)
{
    keys k = { .g = g, .path = path, .err = err };
    ech_config c = { .ids = { .bos = -1, .pad = -1 } };
    ECH_TRY(get_arch(&k, &c));
    ECH_TRY(get_vocab(&k, ws, &c));
    ECH_TRY(check_kinds(&k));
    ECH_TRY(get_sizes(&k, &c));
    ECH_TRY(refuse_unsupported(&k));
    ECH_TRY(get_rope(&k, &c));
    ECH_TRY(ech_config_check(&c, path, err));
    ECH_TRY(get_factors(&k, ws, arena, &c));
    ECH_TRY(get_ids(&k, &c));
    *ret_config = c;
    return ECH_OK;
}
