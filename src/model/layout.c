/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding tensors to the image. The packed type of a matrix is that of its tensors; where tensors
 * of one entry differ, one that holds each of them. A vector is always f32.
 */
#include "src/model/layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/chip/quant.h"

void ech_layout_init(ech_layout *const l, const ech_config *const config,
                     const ech_weights *const weights, const char *const path,
                     const ech_model_format format, const ech_quantize quantize)
{
    *l = (ech_layout){
        .config = config, .weights = weights, .path = path, .format = format, .quantize = quantize
    };
}

void ech_layout_fini(ech_layout *const l)
{
    ech_image_plan_fini(&l->image);
    free(l->parts);
    free(l->used);
    *l = (ech_layout){ 0 };
}

static const char *file_of(const ech_layout *const l, const ech_weight *const w)
{
    return l->weights->files[w->file].path;
}

/* How the chip reads a stored type; false for types that aren't weights. */
static bool source_type(const ech_wtype type, ech_src_type *const ret)
{
    static const struct {
        ech_wtype stored;
        ech_src_type source;
    } TYPES[] = {
        { ECH_WTYPE_F32, ECH_SRC_F32 },     { ECH_WTYPE_F16, ECH_SRC_F16 },
        { ECH_WTYPE_BF16, ECH_SRC_BF16 },   { ECH_WTYPE_Q4_0, ECH_SRC_Q4_0 },
        { ECH_WTYPE_Q4_1, ECH_SRC_Q4_1 },   { ECH_WTYPE_Q5_0, ECH_SRC_Q5_0 },
        { ECH_WTYPE_Q5_1, ECH_SRC_Q5_1 },   { ECH_WTYPE_Q8_0, ECH_SRC_Q8_0 },
        { ECH_WTYPE_Q2_K, ECH_SRC_Q2_K },   { ECH_WTYPE_Q3_K, ECH_SRC_Q3_K },
        { ECH_WTYPE_Q4_K, ECH_SRC_Q4_K },   { ECH_WTYPE_Q5_K, ECH_SRC_Q5_K },
        { ECH_WTYPE_Q6_K, ECH_SRC_Q6_K },   { ECH_WTYPE_IQ4_NL, ECH_SRC_IQ4_NL },
        { ECH_WTYPE_MXFP4, ECH_SRC_MXFP4 },
    };
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (TYPES[i].stored == type) {
            *ret = TYPES[i].source;
            return true;
        }
    }
    return false;
}

/*
 * What a matrix is packed as. Blocks that the chip multiplies are kept as they are (repack.h);
 * those that it doesn't are written again with 8 bits, which is finer than what they were.
 */
static ech_pack_type packed_type(const ech_wtype type)
{
    switch (type) {
    case ECH_WTYPE_F32:
        return ECH_PACK_F32;
    case ECH_WTYPE_F16:
        return ECH_PACK_F16;
    case ECH_WTYPE_BF16:
        return ECH_PACK_BF16;
    case ECH_WTYPE_Q4_0:
        return ECH_PACK_Q4;
    case ECH_WTYPE_Q4_1:
        return ECH_PACK_Q4M;
    case ECH_WTYPE_Q4_K:
        return ECH_PACK_Q4K;
    case ECH_WTYPE_Q5_K:
        return ECH_PACK_Q5K;
    case ECH_WTYPE_Q6_K:
        return ECH_PACK_Q6K;
    default:
        return ECH_PACK_Q8;
    }
}

/* Types from the coarsest on: what they are compared by. */
static uint32_t fineness(const ech_pack_type type)
{
    switch (type) {
    case ECH_PACK_F32:
        return 64;
    case ECH_PACK_Q8:
        return 17;
    case ECH_PACK_Q6K:
        return 14;
    case ECH_PACK_Q6:
        return 13;
    case ECH_PACK_Q5K:
        return 12;
    case ECH_PACK_Q4M:
        return 11;
    case ECH_PACK_Q4K:
        return 10;
    case ECH_PACK_Q4:
        return 9;
    default:
        return 32;
    }
}

/* A type of at most the bits that were asked for; what embeds and picks ids is kept finer. */
static ech_pack_type quantised_type(const ech_layout *const l, const char *const entry,
                                    const ech_pack_type type)
{
    const bool is_edge = strcmp(entry, "embed") == 0 || strcmp(entry, "head") == 0;
    ech_pack_type target = type;
    if (l->quantize == ECH_QUANTIZE_BF16) target = ECH_PACK_BF16;
    if (l->quantize == ECH_QUANTIZE_Q8) target = ECH_PACK_Q8;
    if (l->quantize == ECH_QUANTIZE_Q6) target = is_edge ? ECH_PACK_Q8 : ECH_PACK_Q6;
    if (l->quantize == ECH_QUANTIZE_Q4) target = is_edge ? ECH_PACK_Q8 : ECH_PACK_Q4;
    return fineness(target) < fineness(type) ? target : type;
}

/* The type that holds the tensors of two: 8 bits, where both are of few bits, else f32. */
static ech_pack_type wider_type(const ech_pack_type a, const ech_pack_type b)
{
    const bool few_bits = ech_pack_is_quant(a) && ech_pack_is_quant(b);
    return few_bits ? ECH_PACK_Q8 : ECH_PACK_F32;
}

/* The tensor of that name with that shape and a type that is computed, marked as used. */
static ech_status take(ech_layout *const l, const char *const name, const uint32_t n_dims,
                       const uint64_t *const dims, const ech_weight **const ret,
                       ech_error *const err)
{
    const ech_weight *const w = ech_weights_find(l->weights, name);
    if (w == NULL) {
        return ech_fail(err, ECH_EFORMAT,
                        "opening %s: tensor %s is missing: architecture %s with %u layers needs it",
                        l->path, name, l->config->arch->name, l->config->n_layers);
    }
    char expected[64];
    char found[64];
    (void)ech_weight_shape_text(n_dims, dims, expected, sizeof expected);
    (void)ech_weight_shape_text(w->n_dims, w->dims, found, sizeof found);
    if (w->n_dims != n_dims || memcmp(w->dims, dims, n_dims * sizeof *dims) != 0) {
        return ech_fail(err, ECH_EFORMAT,
                        "reading %s: tensor %s: expected shape %s by the config, found %s",
                        file_of(l, w), name, expected, found);
    }
    ech_src_type type;
    if (!source_type(w->type, &type)) {
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: tensor %s: weights of type %s are not computed", file_of(l, w),
                        name, ech_wtype_name(w->type));
    }
    l->used[w - l->weights->list] = true;
    *ret = w;
    return ECH_OK;
}

static ech_status add_part(ech_layout *const l, const ech_part part, ech_error *const err)
{
    if (l->n_parts == l->cap_parts) {
        const uint32_t cap = l->cap_parts == 0 ? 64 : 2 * l->cap_parts;
        ech_part *const parts = realloc(l->parts, cap * sizeof *parts);
        if (parts == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", l->path);
        l->parts = parts;
        l->cap_parts = cap;
    }
    l->parts[l->n_parts++] = part;
    return ECH_OK;
}

static ech_status prepare(ech_layout *const l, ech_error *const err)
{
    if (l->used != NULL) return ECH_OK;
    l->used = calloc(l->weights->n + 1, sizeof *l->used);
    return l->used != NULL ? ECH_OK
                           : ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", l->path);
}

/* Rows that a panel-wise stacked tensor takes: its last panel is filled up. */
static uint64_t panel_rows(const uint64_t rows)
{
    return (rows + ECH_PANEL - 1) / ECH_PANEL * ECH_PANEL;
}

ech_status ech_layout_matrix(ech_layout *const l, const char *const entry,
                             const ech_source_rows *const sources, const uint32_t n,
                             const uint64_t cols, const ech_stacking stacking, ech_error *const err)
{
    ECH_TRY(prepare(l, err));
    uint64_t rows = 0;
    ech_pack_type type = ECH_PACK_COUNT;
    for (uint32_t i = 0; i < n; i++) {
        const ech_weight *w = NULL;
        const uint64_t dims[2] = { sources[i].rows, cols };
        ECH_TRY(take(l, sources[i].name, 2, dims, &w, err));
        ECH_ASSERT(w != NULL);
        const bool below = stacking == ECH_STACK_BELOW;
        const ech_part part = {
            .weight = w,
            .entry = l->image.n_entries,
            .rows = sources[i].rows,
            .place = below ? ech_pack_rows(rows) : ech_pack_rows_interleaved(i),
        };
        ECH_TRY(add_part(l, part, err));
        rows += below ? sources[i].rows : panel_rows(sources[i].rows);
        const ech_pack_type own = packed_type(w->type);
        type = i == 0 || own == type ? own : wider_type(own, type);
    }
    return ech_image_plan_matrix(&l->image, entry, quantised_type(l, entry, type), rows, cols, NULL,
                                 err);
}

bool ech_layout_agrees(const ech_layout *const l, const ech_source_rows *const sources,
                       const uint32_t n)
{
    ech_pack_type first = ECH_PACK_COUNT;
    for (uint32_t i = 0; i < n; i++) {
        const ech_weight *const w = ech_weights_find(l->weights, sources[i].name);
        if (w == NULL) return true; /* binding says so */
        const ech_pack_type type = quantised_type(l, "", packed_type(w->type));
        if (i > 0 && type != first) return false;
        first = type;
    }
    return true;
}

ech_status ech_layout_vector(ech_layout *const l, const char *const entry, const char *const tensor,
                             const uint64_t n, ech_error *const err)
{
    ECH_TRY(prepare(l, err));
    const ech_weight *w = NULL;
    ECH_TRY(take(l, tensor, 1, &n, &w, err));
    const ech_part part = { .weight = w, .entry = l->image.n_entries, .rows = n };
    ECH_TRY(add_part(l, part, err));
    return ech_image_plan_vector(&l->image, entry, n, NULL, err);
}

bool ech_layout_has(const ech_layout *const l, const char *const tensor)
{
    return ech_weights_find(l->weights, tensor) != NULL;
}

/* Old checkpoints carry tables that are computed from the config; GGUF's went into it already. */
static bool has_no_effect(const char *const name)
{
    static const char *const SUFFIXES[] = { ".rotary_emb.inv_freq", ".attn.masked_bias",
                                            "rope_freqs.weight" };
    const size_t len = strlen(name);
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof SUFFIXES[0]; i++) {
        const size_t n = strlen(SUFFIXES[i]);
        if (len >= n && strcmp(name + len - n, SUFFIXES[i]) == 0) return true;
    }
    return false;
}

ech_status ech_layout_finish(ech_layout *const l, ech_error *const err)
{
    for (uint32_t i = 0; i < l->weights->n; i++) {
        const ech_weight *const w = &l->weights->list[i];
        if (l->used[i] || has_no_effect(w->name)) continue;
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: tensor %s is not part of architecture %s with %u layers: "
                        "running without it would be another model",
                        file_of(l, w), w->name, l->config->arch->name, l->config->n_layers);
    }
    l->image_bytes = ech_image_plan_place(&l->image);
    return ECH_OK;
}

const ech_image_entry *ech_layout_entry(const ech_layout *const l, const char *const fmt, ...)
{
    char name[ECH_IMAGE_NAME];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    for (uint32_t i = 0; i < l->image.n_entries; i++) {
        if (strcmp(l->image.entries[i].name, name) == 0) return &l->image.entries[i];
    }
    return NULL;
}

static ech_status pack_part(const ech_layout *const l, const ech_part *const p,
                            ech_pack_builder *const b, ech_error *const err)
{
    const ech_image_entry *const entry = &l->image.entries[p->entry];
    ech_pack_source source = { .tensor = p->weight->file, .offset = p->weight->offset };
    if (!source_type(p->weight->type, &source.type))
        return ech_fail(err, ECH_EINTERNAL, "packing %s: type", entry->name);
    if (entry->kind == ECH_IMAGE_VECTOR) {
        return ech_pack_builder_vector(b, entry, source, 0, p->rows, err);
    }
    return ech_pack_builder_matrix(b, entry, source, p->rows, p->place, err);
}

ech_status ech_layout_pack_program(const ech_layout *const l, ech_buf *const out,
                                   ech_error *const err)
{
    ech_pack_builder *b = NULL;
    void *bytes = NULL;
    size_t len = 0;
    if (ech_pack_builder_create(&b) != ECH_OK) {
        return ech_fail(err, ECH_ENOMEM, "planning the packing of %s: out of memory", l->path);
    }
    ech_status rc = ECH_OK;
    for (uint32_t i = 0; i < l->n_parts && rc == ECH_OK; i++) {
        rc = pack_part(l, &l->parts[i], b, err);
    }
    if (rc == ECH_OK) {
        rc = ech_pack_builder_finish(b, l->weights->n_files, l->image_bytes, &bytes, &len, err);
    }
    if (rc == ECH_OK && ech_buf_append(out, bytes, len) != ECH_OK) {
        rc = ech_fail(err, ECH_ENOMEM, "planning the packing of %s: out of memory", l->path);
    }
    free(bytes);
    ech_pack_builder_destroy(&b);
    return rc;
}
