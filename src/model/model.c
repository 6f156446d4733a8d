/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a model, and what is asked of an open one. Opening reads configs and tensor
 * headers, binds every tensor to the packed image and stops at the first thing that is wrong.
 */
#include "src/model/gguf_config.h"
#include "src/model/internal.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

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

static ech_status load_folder(ech_model *const m, ech_error *const err)
{
    m->format = ECH_FORMAT_SAFETENSORS;
    m->folder = strdup(m->path);
    if (m->folder == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    ECH_TRY(ech_config_load(m->path, &m->config, err));
    return read_folder(m, err);
}

static ech_status load_gguf(ech_model *const m, const char *const file, ech_error *const err)
{
    m->format = ECH_FORMAT_GGUF;
    m->folder = ech_path_folder(file);
    if (m->folder == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    ECH_TRY(ech_gguf_read(&m->gguf, &m->weights, file, err));
    return ech_gguf_config(&m->gguf, &m->weights, file, &m->strings, &m->config, err);
}

/* A first or only GGUF file. */
static bool is_first_gguf(const char *const name)
{
    const size_t len = strlen(name);
    if (len < 5 || strcmp(name + len - 5, ".gguf") != 0) return false;
    unsigned number = 0;
    const size_t tail = sizeof "-00001-of-00001.gguf" - 1;
    return len <= tail || sscanf(name + len - tail, "-%5u-of-", &number) != 1 || number == 1;
}

/*
 * The GGUF file that a path means: itself, or the only one of a folder without config.json. NULL
 * for a folder in Hugging Face's layout. The caller frees *ret.
 */
static ech_status find_gguf(const ech_model *const m, char **const ret, ech_error *const err)
{
    *ret = NULL;
    if (!ech_path_is_folder(m->path)) {
        *ret = strdup(m->path);
        return *ret != NULL ? ECH_OK
                            : ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    }
    char *const config = ech_path_join(m->path, "config.json");
    const bool has_config = config != NULL && ech_path_exists(config);
    free(config);
    DIR *const dir = has_config ? NULL : opendir(m->path);
    if (dir == NULL) return ECH_OK;
    ech_status rc = ECH_OK;
    for (const struct dirent *e; rc == ECH_OK && (e = readdir(dir)) != NULL;) {
        if (!is_first_gguf(e->d_name)) continue;
        if (*ret != NULL)
            rc = ech_fail(err, ECH_EINVAL, "opening %s: it holds several GGUF files: name one",
                          m->path);
        if (*ret == NULL) *ret = ech_path_join(m->path, e->d_name);
        if (*ret == NULL) rc = ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", m->path);
    }
    (void)closedir(dir);
    return rc;
}

static ech_status load(ech_model *const m, ech_error *const err)
{
    char *gguf = NULL;
    ech_status rc = find_gguf(m, &gguf, err);
    if (rc == ECH_OK) rc = gguf != NULL ? load_gguf(m, gguf, err) : load_folder(m, err);
    free(gguf);
    ECH_TRY(rc);
    ech_layout_init(&m->layout, &m->config, &m->weights, m->path, m->format, m->quantize);
    ECH_ASSERT(m->config.arch != NULL);
    ECH_TRY(m->config.arch->bind(&m->layout, err));
    ECH_TRY(ech_layout_finish(&m->layout, err));
    compare_tie(m);
    return ECH_OK;
}

ech_status ech_model_open(ech_model **const ret_model, const char *const path, ech_error *const err)
{
    return ech_model_open_with(ret_model, path, NULL, err);
}

/* An option of a caller that was built with a smaller struct has its default. */
static ech_status take_options(ech_model *const m, const ech_model_options *const o,
                               ech_error *const err)
{
    if (o != NULL && o->struct_size >= sizeof *o) m->quantize = o->quantize;
    if ((uint32_t)m->quantize <= ECH_QUANTIZE_Q6) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "opening %s: option quantize has no value %d", m->path,
                    (int)m->quantize);
}

ech_status ech_model_open_with(ech_model **const ret_model, const char *const path,
                               const ech_model_options *const options, ech_error *const err)
{
    char found[ECH_MODEL_PATH_MAX];
    ECH_TRY(ech_model_find(path, found, err));
    ech_model *m = calloc(1, sizeof *m);
    if (m == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", found);
    m->path = strdup(found);
    if (m->path == NULL) {
        free(m);
        return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", found);
    }
    ech_status rc = take_options(m, options, err);
    if (rc == ECH_OK) rc = load(m, err);
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
    ech_gguf_fini(&m->gguf);
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

ech_status ech_model_check_sources(const ech_model *const model, ech_error *const err)
{
    struct stat st;
    for (uint32_t i = 0; i < model->weights.n_files; i++) {
        const ech_weight_file *const f = &model->weights.files[i];
        if (fstat(f->fd, &st) != 0 || (uint64_t)st.st_size >= f->size) continue;
        return ech_fail(err, ECH_EIO,
                        "%s was cut while it was read: %" PRIu64 " bytes before, %lld now; start "
                        "again when it is whole",
                        f->path, f->size, (long long)st.st_size);
    }
    return ECH_OK;
}

void ech_model_close_sources(ech_model *const model)
{
    ech_weights_close_files(&model->weights);
}

const char *ech_model_warning_at(const ech_model *const model, const uint32_t idx)
{
    return idx < model->n_warnings ? model->warnings[idx] : NULL;
}
