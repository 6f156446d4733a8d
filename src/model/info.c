/* SPDX-License-Identifier: Apache-2.0 */
/* What an open model says of itself (echelon/model.h). Pure reading. */
#include <string.h>

#include "src/base/error.h"
#include "src/model/internal.h"

static const char *const KV_NAMES[] = {
#define X(name, value, text) [ECH_KV_##name] = text,
    ECH_KV_TYPE_MAP(X)
#undef X
};

static const char *const COMPUTE_NAMES[] = {
#define X(name, value, text) [ECH_COMPUTE_##name] = text,
    ECH_COMPUTE_MAP(X)
#undef X
};

static const char *const QUANTIZE_NAMES[] = {
#define X(name, value, text) [ECH_QUANTIZE_##name] = text,
    ECH_QUANTIZE_MAP(X)
#undef X
};

static const char *const POOLING_NAMES[] = {
#define X(name, value, text) [ECH_POOLING_##name] = text,
    ECH_POOLING_MAP(X)
#undef X
};

static const char *const LOAD_NAMES[] = {
#define X(name, value, text) [ECH_LOAD_##name] = text,
    ECH_LOADS_MAP(X)
#undef X
};

#define LENGTH_OF(a) (sizeof(a) / sizeof((a)[0]))

/* The number of a name in a list; EINVAL with all of them. */
static ech_status find_name(const char *const what, const char *const *const names, const size_t n,
                            const char *const name, size_t *const ret, ech_error *const err)
{
    ech_buf list = { 0 };
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            ech_buf_fini(&list);
            *ret = i;
            return ECH_OK;
        }
        (void)ech_buf_printf(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    const ech_status rc =
        ech_fail(err, ECH_EINVAL, "reading the %s: expected one of %s, found \"%.64s\"", what,
                 list.data != NULL ? list.data : "?", name);
    ech_buf_fini(&list);
    return rc;
}

const char *ech_kv_type_name(const ech_kv_type type)
{
    return (size_t)type < LENGTH_OF(KV_NAMES) ? KV_NAMES[type] : "?";
}

ech_status ech_kv_type_parse(const char *const name, ech_kv_type *const ret_type,
                             ech_error *const err)
{
    size_t i = 0;
    ECH_TRY(find_name("KV type", KV_NAMES, LENGTH_OF(KV_NAMES), name, &i, err));
    *ret_type = (ech_kv_type)i;
    return ECH_OK;
}

const char *ech_compute_name(const ech_compute compute)
{
    return (size_t)compute < LENGTH_OF(COMPUTE_NAMES) ? COMPUTE_NAMES[compute] : "?";
}

ech_status ech_compute_parse(const char *const name, ech_compute *const ret_compute,
                             ech_error *const err)
{
    size_t i = 0;
    ECH_TRY(find_name("compute type", COMPUTE_NAMES, LENGTH_OF(COMPUTE_NAMES), name, &i, err));
    *ret_compute = (ech_compute)i;
    return ECH_OK;
}

const char *ech_quantize_name(const ech_quantize quantize)
{
    return (size_t)quantize < LENGTH_OF(QUANTIZE_NAMES) ? QUANTIZE_NAMES[quantize] : "?";
}

ech_status ech_quantize_parse(const char *const name, ech_quantize *const ret_quantize,
                              ech_error *const err)
{
    size_t i = 0;
    ECH_TRY(
        find_name("type to quantise to", QUANTIZE_NAMES, LENGTH_OF(QUANTIZE_NAMES), name, &i, err));
    *ret_quantize = (ech_quantize)i;
    return ECH_OK;
}

const char *ech_pooling_name(const ech_pooling pooling)
{
    return (size_t)pooling < LENGTH_OF(POOLING_NAMES) ? POOLING_NAMES[pooling] : "?";
}

ech_status ech_pooling_parse(const char *const name, ech_pooling *const ret_pooling,
                             ech_error *const err)
{
    size_t i = ECH_POOLING_LAST;
    /* The word of sentence-transformers. */
    if (strcmp(name, "lasttoken") != 0)
        ECH_TRY(find_name("pooling", POOLING_NAMES, LENGTH_OF(POOLING_NAMES), name, &i, err));
    *ret_pooling = (ech_pooling)i;
    return ECH_OK;
}

const char *ech_load_name(const ech_load load)
{
    return (size_t)load < LENGTH_OF(LOAD_NAMES) ? LOAD_NAMES[load] : "?";
}

ech_status ech_load_parse(const char *const name, ech_load *const ret_load, ech_error *const err)
{
    size_t i = 0;
    ECH_TRY(find_name("way to load", LOAD_NAMES, LENGTH_OF(LOAD_NAMES), name, &i, err));
    *ret_load = (ech_load)i;
    return ECH_OK;
}

/* A decode step reads every entry whole, but of an embedding that isn't the head only a row. */
static bool is_read(const ech_model *const m, const ech_image_entry *const e)
{
    return m->layout.tied || strcmp(e->name, "embed") != 0;
}

static uint64_t elements(const ech_weight *const w)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < w->n_dims; i++) {
        n *= w->dims[i];
    }
    return n;
}

static void sum_parts(const ech_model *const m, ech_model_info *const ret)
{
    for (uint32_t i = 0; i < m->layout.n_parts; i++) {
        const ech_part *const p = &m->layout.parts[i];
        ret->source_bytes += p->weight->bytes;
        ret->n_params += elements(p->weight);
        if (is_read(m, &m->layout.image.entries[p->entry]))
            ret->n_params_step += elements(p->weight);
    }
    for (uint32_t i = 0; i < m->layout.image.n_entries; i++) {
        const ech_image_entry *const e = &m->layout.image.entries[i];
        if (is_read(m, e)) ret->step_bytes += e->bytes;
    }
}

void ech_model_get_info(const ech_model *const model, ech_model_info *const ret)
{
    const ech_config *const c = &model->config;
    *ret = (ech_model_info){
        .path = model->path,
        .architecture = c->arch->name,
        .format = model->format == ECH_FORMAT_GGUF ? "gguf" : "safetensors",
        .n_files = model->weights.n_files,
        .n_tensors = model->layout.n_parts,
        .n_layers = c->n_layers,
        .hidden = c->hidden,
        .ffn = c->ffn,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .vocab = c->vocab,
        .max_context = c->max_context,
        .tied = model->layout.tied,
        .rope =
            c->rope_factors != NULL ? ech_rope_name(ECH_ROPE_LLAMA3) : ech_rope_name(c->rope.kind),
        .packed_bytes = model->layout.image_bytes,
    };
    sum_parts(model, ret);
}

uint32_t ech_model_n_tensors(const ech_model *const model)
{
    return model->layout.n_parts;
}

ech_status ech_model_tensor_at(const ech_model *const model, const uint32_t idx,
                               ech_model_tensor *const ret)
{
    if (idx >= model->layout.n_parts) return ECH_EINVAL;
    const ech_part *const p = &model->layout.parts[idx];
    const ech_weight *const w = p->weight;
    const ech_image_entry *const e = &model->layout.image.entries[p->entry];
    *ret = (ech_model_tensor){
        .name = w->name,
        .file = model->weights.files[w->file].path,
        .type = ech_wtype_name(w->type),
        .packed_type =
            e->kind == ECH_IMAGE_MATRIX ? ech_pack_type_name((ech_pack_type)e->type) : "f32",
        .n_dims = w->n_dims,
        .offset = w->offset,
        .bytes = w->bytes,
        /* Its share of an entry that holds several tensors; rows never reach 2^24. */
        .packed_bytes = e->bytes / e->rows * p->rows,
        .read_per_step = is_read(model, e),
    };
    memcpy(ret->dims, w->dims, w->n_dims * sizeof *w->dims);
    return ECH_OK;
}
