/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face's config.json. Defaults are those of `transformers` for the architecture. What is
 * left out: how the numbers become tensors and operations (arch_*.c).
 */
#include "src/model/config.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/model/fields.h"
#include "src/model/names.h"

/* Real ones have a few kB; one with a list per layer and expert may have 1 MB. */
#define CONFIG_BYTES_MAX (8u << 20)

static ech_status unsupported(const ech_fields *const f, const char *const name,
                              const char *const why)
{
    char found[64];
    return ech_fail(f->err, ECH_EUNSUPPORTED, "reading %s: %s%s is %s: %s", f->path, f->prefix,
                    name, ech_json_text(json_object_get(f->object, name), found, sizeof found),
                    why);
}

static ech_status read_arch(const ech_fields *const f, ech_config *const c)
{
    const char *type = NULL;
    ECH_TRY(ech_field_require(f, "model_type"));
    ECH_TRY(ech_field_str(f, "model_type", &type));
    c->arch = ech_arch_find(type);
    if (c->arch == NULL) {
        ech_buf list = { 0 };
        ech_arch_list(&list);
        const ech_status rc = ech_fail(
            f->err, ECH_EUNSUPPORTED, "reading %s: model_type: expected one of %s, found \"%.64s\"",
            f->path, list.data != NULL ? list.data : "?", type);
        ech_buf_fini(&list);
        return rc;
    }
    /* A classifier or reward model shares the type and the trunk, but has another head. */
    const json_t *const classes = json_object_get(f->object, "architectures");
    const char *const first = json_string_value(json_array_get(classes, 0));
    if (first != NULL && strcmp(first, c->arch->hf_class) != 0) {
        return ech_fail(f->err, ECH_EUNSUPPORTED,
                        "reading %s: architectures: expected \"%s\", found \"%.64s\"", f->path,
                        c->arch->hf_class, first);
    }
    return ECH_OK;
}

static ech_status read_sizes(const ech_fields *const f, ech_config *const c)
{
    static const char *const REQUIRED[] = { "hidden_size",       "intermediate_size",
                                            "num_hidden_layers", "num_attention_heads",
                                            "vocab_size",        "max_position_embeddings" };
    for (size_t i = 0; i < sizeof REQUIRED / sizeof REQUIRED[0]; i++) {
        ECH_TRY(ech_field_require(f, REQUIRED[i]));
    }
    ECH_TRY(ech_field_u32(f, "hidden_size", 1, ECH_CONFIG_WIDTH_MAX, &c->hidden));
    ECH_TRY(ech_field_u32(f, "intermediate_size", 1, ECH_CONFIG_WIDTH_MAX, &c->ffn));
    ECH_TRY(ech_field_u32(f, "num_hidden_layers", 1, ECH_CONFIG_LAYERS_MAX, &c->n_layers));
    ECH_TRY(ech_field_u32(f, "num_attention_heads", 1, ECH_CONFIG_HEADS_MAX, &c->n_heads));
    ECH_TRY(ech_field_u32(f, "vocab_size", 1, ECH_CONFIG_VOCAB_MAX, &c->vocab));
    ECH_TRY(
        ech_field_u32(f, "max_position_embeddings", 1, ECH_CONFIG_CONTEXT_MAX, &c->max_context));
    c->n_kv_heads = c->n_heads;
    ECH_TRY(ech_field_u32(f, "num_key_value_heads", 1, ECH_CONFIG_HEADS_MAX, &c->n_kv_heads));
    c->head_dim = c->arch->head_dim != 0 ? c->arch->head_dim : c->hidden / c->n_heads;
    ECH_TRY(ech_field_u32(f, "head_dim", 2, ECH_CONFIG_WIDTH_MAX, &c->head_dim));
    c->rms_eps = 1e-6;
    ECH_TRY(ech_field_number(f, "rms_norm_eps", 0.0, 1.0, &c->rms_eps));
    c->has_tie = ech_field_has(f, "tie_word_embeddings");
    return ech_field_bool(f, "tie_word_embeddings", &c->tie);
}

/* A flag that must be false, or a field that must be absent. */
static ech_status refuse_flag(const ech_fields *const f, const char *const name,
                              const char *const why)
{
    bool on = false;
    ECH_TRY(ech_field_bool(f, name, &on));
    return on ? unsupported(f, name, why) : ECH_OK;
}

static ech_status refuse_field(const ech_fields *const f, const char *const name,
                               const char *const why)
{
    return ech_field_has(f, name) ? unsupported(f, name, why) : ECH_OK;
}

static ech_status refuse_sliding(const ech_fields *const f, const ech_config *const c)
{
    const json_t *const types = json_object_get(f->object, "layer_types");
    if (types != NULL && !json_is_null(types) && !json_is_array(types)) {
        return ech_fail(f->err, ECH_EFORMAT, "reading %s: layer_types: expected an array or null",
                        f->path);
    }
    size_t i;
    const json_t *type;
    json_array_foreach(types, i, type)
    {
        const char *const text = json_string_value(type);
        if (text == NULL || strcmp(text, "full_attention") != 0) {
            char found[64];
            return ech_fail(
                f->err, ECH_EUNSUPPORTED,
                "reading %s: layer_types[%zu]: only \"full_attention\" is computed, found %s",
                f->path, i, ech_json_text(type, found, sizeof found));
        }
    }
    if (json_is_array(types)) return ECH_OK;
    bool sliding = false;
    ECH_TRY(ech_field_bool(f, "use_sliding_window", &sliding));
    uint32_t first = 28; /* the default of transformers */
    ECH_TRY(ech_field_u32(f, "max_window_layers", 0, UINT32_MAX, &first));
    if (sliding && ech_field_has(f, "sliding_window") && first < c->n_layers) {
        return unsupported(f, "use_sliding_window",
                           "attention over a sliding window is not computed");
    }
    return ECH_OK;
}

static ech_status refuse_unsupported(const ech_fields *const f, const ech_config *const c)
{
    const char *act = "silu";
    ECH_TRY(ech_field_str(f, "hidden_act", &act));
    if (strcmp(act, "silu") != 0) return unsupported(f, "hidden_act", "only \"silu\" is computed");
    ECH_TRY(refuse_flag(f, "attention_bias", "biases are not computed"));
    ECH_TRY(refuse_flag(f, "mlp_bias", "biases are not computed"));
    ECH_TRY(refuse_field(f, "num_experts", "mixtures of experts are not computed"));
    ECH_TRY(refuse_field(f, "num_local_experts", "mixtures of experts are not computed"));
    ECH_TRY(refuse_field(f, "final_logit_softcapping", "soft caps are not computed"));
    ECH_TRY(refuse_field(f, "attn_logit_softcapping", "soft caps are not computed"));
    ECH_TRY(
        refuse_field(f, "quantization_config", "take a checkpoint in f32, f16 or bf16, or GGUF"));
    return refuse_sliding(f, c);
}

static ech_status read_llama3(const ech_fields *const f, ech_rope *const r)
{
    ECH_TRY(ech_field_require(f, "factor"));
    ECH_TRY(ech_field_require(f, "low_freq_factor"));
    ECH_TRY(ech_field_require(f, "high_freq_factor"));
    ECH_TRY(ech_field_number(f, "low_freq_factor", 1e-3, 1e6, &r->low_freq_factor));
    ECH_TRY(ech_field_number(f, "high_freq_factor", 1e-3, 1e6, &r->high_freq_factor));
    if (r->high_freq_factor <= r->low_freq_factor) {
        return ech_fail(
            f->err, ECH_EFORMAT,
            "reading %s: %shigh_freq_factor: expected more than low_freq_factor, %g, found %g",
            f->path, f->prefix, r->low_freq_factor, r->high_freq_factor);
    }
    return ECH_OK;
}

static ech_status read_yarn(const ech_fields *const f, const uint32_t max_context,
                            ech_rope *const r)
{
    if (!ech_field_has(f, "factor")) r->factor = max_context / r->original_context;
    r->beta_fast = 32.0;
    r->beta_slow = 1.0;
    r->truncate = true;
    double mscale = 0.0;
    double mscale_all_dim = 0.0;
    ECH_TRY(ech_field_number(f, "beta_fast", 0.0, 1e6, &r->beta_fast));
    ECH_TRY(ech_field_number(f, "beta_slow", 0.0, 1e6, &r->beta_slow));
    if (r->beta_fast == 0.0) r->beta_fast = 32.0; /* transformers takes 0 for absent */
    if (r->beta_slow == 0.0) r->beta_slow = 1.0;
    ECH_TRY(ech_field_bool(f, "truncate", &r->truncate));
    ECH_TRY(ech_field_number(f, "mscale", 0.0, 1e3, &mscale));
    ECH_TRY(ech_field_number(f, "mscale_all_dim", 0.0, 1e3, &mscale_all_dim));
    r->attention_factor = ech_rope_yarn_attention(r->factor, mscale, mscale_all_dim);
    return ech_field_number(f, "attention_factor", 1e-6, 1e6, &r->attention_factor);
}

static ech_status read_theta(const ech_fields *const f, ech_rope *const r)
{
    double partial = 1.0;
    ECH_TRY(ech_field_number(f, "rope_theta", 1.0 + 1e-6, 1e15, &r->theta));
    ECH_TRY(ech_field_number(f, "partial_rotary_factor", 0.0, 1.0, &partial));
    return partial == 1.0 ? ECH_OK
                          : unsupported(f, "partial_rotary_factor", "only whole heads are rotated");
}

/* The scaling's own fields. f's object is rope_scaling or rope_parameters, outer's the config. */
static ech_status read_scaling(const ech_fields *const f, const ech_fields *const outer,
                               const uint32_t max_context, ech_rope *const r)
{
    const char *kind = "default";
    ECH_TRY(ech_field_str(f, "type", &kind)); /* the oldest configs' name of rope_type */
    ECH_TRY(ech_field_str(f, "rope_type", &kind));
    if (!ech_rope_kind_find(kind, &r->kind)) {
        return ech_fail(
            f->err, ECH_EUNSUPPORTED,
            "reading %s: %srope_type: expected default, linear, llama3 or yarn, found \"%.64s\"",
            f->path, f->prefix, kind);
    }
    ECH_TRY(read_theta(f, r));
    if (r->kind == ECH_ROPE_DEFAULT) return ECH_OK;

    /* Some configs have the original length outside as well, and there it counts more. */
    ECH_TRY(ech_field_number(f, "original_max_position_embeddings", 1.0, ECH_CONFIG_CONTEXT_MAX,
                             &r->original_context));
    ECH_TRY(ech_field_number(outer, "original_max_position_embeddings", 1.0, ECH_CONFIG_CONTEXT_MAX,
                             &r->original_context));
    ECH_TRY(ech_field_number(f, "factor", 1e-3, 1e6, &r->factor));
    if (r->kind == ECH_ROPE_LINEAR) return ech_field_require(f, "factor");
    return r->kind == ECH_ROPE_LLAMA3 ? read_llama3(f, r) : read_yarn(f, max_context, r);
}

/* The older form is rope_theta and rope_scaling, the newer one rope_parameters. */
static ech_status read_rope(const ech_fields *const f, ech_config *const c)
{
    c->rope = (ech_rope){ .theta = 10000.0, .factor = 1.0, .attention_factor = 1.0 };
    c->rope.original_context = c->max_context;
    ECH_TRY(read_theta(f, &c->rope));
    const bool older = ech_field_has(f, "rope_scaling");
    const char *const name = older ? "rope_scaling" : "rope_parameters";
    if (!ech_field_has(f, name)) return ECH_OK;
    const json_t *const object = json_object_get(f->object, name);
    if (!json_is_object(object)) {
        char found[64];
        return ech_fail(f->err, ECH_EFORMAT, "reading %s: %s: expected an object or null, found %s",
                        f->path, name, ech_json_text(object, found, sizeof found));
    }
    const ech_fields inner = {
        .path = f->path,
        .prefix = older ? "rope_scaling." : "rope_parameters.",
        .object = object,
        .err = f->err,
    };
    return read_scaling(&inner, f, c->max_context, &c->rope);
}

static ech_status add_eos(const ech_fields *const f, const json_t *const value, ech_config *const c)
{
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= (json_int_t)c->vocab) {
        char found[64];
        return ech_fail(f->err, ECH_EFORMAT,
                        "reading %s: eos_token_id: expected ids from 0 to %u, found %s", f->path,
                        c->vocab - 1, ech_json_text(value, found, sizeof found));
    }
    for (uint32_t i = 0; i < c->ids.n_eos; i++) {
        if (c->ids.eos[i] == (int32_t)id) return ECH_OK;
    }
    if (c->ids.n_eos == ECH_MODEL_EOS_MAX) {
        return ech_fail(f->err, ECH_ELIMIT, "reading %s: eos_token_id: at most %d ids are kept",
                        f->path, ECH_MODEL_EOS_MAX);
    }
    c->ids.eos[c->ids.n_eos++] = (int32_t)id;
    return ECH_OK;
}

static ech_status read_ids(const ech_fields *const f, ech_config *const c)
{
    const json_t *const eos = json_object_get(f->object, "eos_token_id");
    if (json_is_array(eos)) {
        size_t i;
        const json_t *value;
        json_array_foreach(eos, i, value)
        {
            ECH_TRY(add_eos(f, value, c));
        }
    } else if (ech_field_has(f, "eos_token_id")) {
        ECH_TRY(add_eos(f, eos, c));
    }
    /* -1 stands for none in some files. */
    const json_t *const bos = json_object_get(f->object, "bos_token_id");
    const json_t *const pad = json_object_get(f->object, "pad_token_id");
    if (json_is_integer(bos) && json_integer_value(bos) >= 0 &&
        json_integer_value(bos) < c->vocab) {
        c->ids.bos = (int32_t)json_integer_value(bos);
    }
    if (json_is_integer(pad) && json_integer_value(pad) >= 0 &&
        json_integer_value(pad) < c->vocab) {
        c->ids.pad = (int32_t)json_integer_value(pad);
    }
    return ECH_OK;
}

static ech_status read_float(const ech_fields *const f, const char *const name, const double min,
                             const double max, bool *const ret_has, float *const ret)
{
    double x = 0.0;
    ECH_TRY(ech_field_number(f, name, min, max, &x));
    *ret_has = ech_field_has(f, name);
    if (*ret_has) *ret = (float)x;
    return ECH_OK;
}

static ech_status read_sampling(const ech_fields *const f, ech_sampling_defaults *const s)
{
    s->has_do_sample = ech_field_has(f, "do_sample");
    s->has_top_k = ech_field_has(f, "top_k");
    ECH_TRY(ech_field_bool(f, "do_sample", &s->do_sample));
    ECH_TRY(ech_field_u32(f, "top_k", 0, INT32_MAX, &s->top_k));
    ECH_TRY(read_float(f, "temperature", 0.0, 1e3, &s->has_temperature, &s->temperature));
    ECH_TRY(read_float(f, "top_p", 0.0, 1.0, &s->has_top_p, &s->top_p));
    ECH_TRY(read_float(f, "min_p", 0.0, 1.0, &s->has_min_p, &s->min_p));
    return read_float(f, "repetition_penalty", 1e-3, 1e3, &s->has_repetition_penalty,
                      &s->repetition_penalty);
}

ech_status ech_config_check(const ech_config *const c, const char *const where,
                            ech_error *const err)
{
    if (c->n_heads % c->n_kv_heads != 0) {
        return ech_fail(err, ECH_EFORMAT,
                        "reading %s: expected query heads in whole groups per KV head, found %u "
                        "query heads and %u KV heads",
                        where, c->n_heads, c->n_kv_heads);
    }
    if (c->head_dim < 2 || c->head_dim % 2 != 0) {
        return ech_fail(err, ECH_EFORMAT, "reading %s: head_dim: expected an even number, found %u",
                        where, c->head_dim);
    }
    if ((uint64_t)c->n_heads * c->head_dim > ECH_CONFIG_WIDTH_MAX) {
        return ech_fail(err, ECH_ELIMIT,
                        "reading %s: %u heads of %u are wider than the limit of %u", where,
                        c->n_heads, c->head_dim, ECH_CONFIG_WIDTH_MAX);
    }
    return ECH_OK;
}

static ech_status read_config(const ech_fields *const f, ech_config *const c)
{
    ECH_TRY(read_arch(f, c));
    ECH_TRY(read_sizes(f, c));
    ECH_TRY(refuse_unsupported(f, c));
    ECH_TRY(read_rope(f, c));
    return ech_config_check(c, f->path, f->err);
}

/* Its ids come first: where both files name one, this is the newer word. */
static ech_status read_generation(const char *const folder, ech_config *const c,
                                  ech_error *const err)
{
    char *const path = ech_path_join(folder, "generation_config.json");
    if (path == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", folder);
    json_t *root = NULL;
    ech_status rc = ECH_OK;
    if (ech_path_exists(path)) {
        rc = ech_json_load(path, CONFIG_BYTES_MAX, &root, err);
        const ech_fields f = { .path = path, .prefix = "", .object = root, .err = err };
        if (rc == ECH_OK) rc = read_ids(&f, c);
        if (rc == ECH_OK) rc = read_sampling(&f, &c->sampling);
    }
    json_decref(root);
    free(path);
    return rc;
}

ech_status ech_config_load(const char *const folder, ech_config *const ret_config,
                           ech_error *const err)
{
    char *const path = ech_path_join(folder, "config.json");
    if (path == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", folder);
    json_t *root = NULL;
    ech_config c = { .ids = { .bos = -1, .pad = -1 } };
    ech_status rc = ech_json_load(path, CONFIG_BYTES_MAX, &root, err);
    const ech_fields f = { .path = path, .prefix = "", .object = root, .err = err };
    if (rc == ECH_OK) rc = read_config(&f, &c);
    if (rc == ECH_OK) rc = read_generation(folder, &c, err);
    if (rc == ECH_OK) rc = read_ids(&f, &c);
    if (rc == ECH_OK) *ret_config = c;
    json_decref(root);
    free(path);
    return rc;
}
