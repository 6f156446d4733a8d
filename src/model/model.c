/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a model, and what is asked of an open one. Opening reads configs and tensor
 * headers, binds every tensor to the packed image and stops at the first thing that is wrong.
 */
#include "src/model/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/model/names.h"
#include "src/model/safetensors.h"

#define ONE_FILE   "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"

void ech_model_warn(ech_model *const m, const char *const fmt, ...)
{
    char text[ECH_ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *const copy = ech_arena_strdup(&m->strings, ech_str_from(text));
    if (copy != NULL && m->n_warnings < ECH_MODEL_WARNINGS_MAX) m->warnings[m->n_warnings++] = copy;
}

/* As transformers chooses: the single file first, then the index. */
static ech_status read_folder(ech_model *const m, ech_error *const err)
{
    char *const one = ech_path_join(m->path, ONE_FILE);
    char *const index = ech_path_join(m->path, INDEX_FILE);
    ech_status rc;
    if (one == NULL || index == NULL) {
        rc = ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    } else if (ech_path_exists(one)) {
        if (ech_path_exists(index)) ech_model_warn(m, "%s is not used: %s exists", index, ONE_FILE);
        rc = ech_safetensors_read(&m->weights, one, err);
        if (rc == ECH_OK) rc = ech_weights_seal(&m->weights, err);
    } else if (ech_path_exists(index)) {
        rc = ech_safetensors_read_index(&m->weights, index, err);
    } else {
        rc = ech_fail(err, ECH_ENOTFOUND, "opening %s: expected %s or %s in it, found neither",
                      m->path, ONE_FILE, INDEX_FILE);
    }
    free(one);
    free(index);
    return rc;
}

static void compare_tie(ech_model *const m)
{
    if (!m->config.has_tie || m->config.tie == m->layout.tied) return;
    if (m->layout.tied) {
        ech_model_warn(m, "tie_word_embeddings is false but the files have no tensor for the head: "
                          "the embedding is used");
    } else {
        ech_model_warn(m, "tie_word_embeddings is true but the files have a tensor for the head: "
                          "that tensor is used");
    }
}

static ech_status load(ech_model *const m, ech_error *const err)
{
    if (!ech_path_is_folder(m->path)) {
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "opening %s: expected a folder with config.json and safetensors files",
                        m->path);
    }
    m->folder = strdup(m->path);
    if (m->folder == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    m->format = ECH_FORMAT_SAFETENSORS;
    ECH_TRY(ech_config_load(m->path, &m->config, err));
    ECH_TRY(read_folder(m, err));
    ech_layout_init(&m->layout, &m->config, &m->weights, m->path, m->format);
    ECH_TRY(m->config.arch->bind(&m->layout, err));
    ECH_TRY(ech_layout_finish(&m->layout, err));
    compare_tie(m);
    return ECH_OK;
}

ech_status ech_model_open(ech_model **const ret_model, const char *const path, ech_error *const err)
{
    char found[ECH_MODEL_PATH_MAX];
    ECH_TRY(ech_model_find(path, found, err));
    ech_model *m = calloc(1, sizeof *m);
    if (m == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", found);
    m->path = strdup(found);
    ech_status rc = m->path != NULL ? load(m, err)
                                    : ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", found);
    if (rc != ECH_OK) {
        ech_model_close(&m);
        return rc;
    }
    *ret_model = m;
    return ECH_OK;
}

void ech_model_close(ech_model **const model)
{
    if (model == NULL || *model == NULL) return;
    ech_model *const m = *model;
    ech_layout_fini(&m->layout);
    ech_weights_fini(&m->weights);
    ech_arena_fini(&m->strings);
    free(m->path);
    free(m->folder);
    free(m);
    *model = NULL;
}

const ech_model_ids *ech_model_get_ids(const ech_model *const model)
{
    return &model->config.ids;
}

const ech_sampling_defaults *ech_model_get_sampling(const ech_model *const model)
{
    return &model->config.sampling;
}

const char *ech_model_folder(const ech_model *const model)
{
    return model->folder;
}

uint32_t ech_model_n_sources(const ech_model *const model)
{
    return model->weights.n_files;
}

ech_model_source ech_model_source_at(const ech_model *const model, const uint32_t idx)
{
    ECH_ASSERT(idx < model->weights.n_files);
    const ech_weight_file *const f = &model->weights.files[idx];
    return (ech_model_source){ .path = f->path, .fd = f->fd, .bytes = f->size };
}

void ech_model_close_sources(ech_model *const model)
{
    ech_weights_close_files(&model->weights);
}

const char *ech_model_warning_at(const ech_model *const model, const uint32_t idx)
{
    return idx < model->n_warnings ? model->warnings[idx] : NULL;
}
