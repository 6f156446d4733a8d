/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model's hidden states become one vector: what its files say. A folder says it as
 * sentence-transformers does, in 1_Pooling/config.json; a GGUF file in ARCHITECTURE.pooling_type.
 * Read once, when an engine is opened. Weighted, maximum and rank pooling are refused by name, and
 * so is a folder whose modules.json has a step after pooling that isn't computed, as 2_Dense.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/model/fields.h"
#include "src/model/internal.h"
#include "src/model/model.h"
#include "src/model/names.h"

#define POOLING_BYTES_MAX ((size_t)1 << 20)

/* X(key of the older form, name of the newer one, what it is here; MODEL: not computed) */
#define POOLING_MODES(X)                                                                           \
    X("pooling_mode_cls_token", "cls", CLS)                                                        \
    X("pooling_mode_mean_tokens", "mean", MEAN)                                                    \
    X("pooling_mode_lasttoken", "lasttoken", LAST)                                                 \
    X("pooling_mode_max_tokens", "max", MODEL)                                                     \
    X("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", MODEL)                          \
    X("pooling_mode_weightedmean_tokens", "weightedmean", MODEL)

static ech_status take_mode(const ech_fields *const f, const char *const name,
                            const ech_pooling mode, ech_pooling *const inout)
{
    if (mode == ECH_POOLING_MODEL || *inout != ECH_POOLING_MODEL) {
        return ech_fail(f->err, ECH_EUNSUPPORTED,
                        "reading %s: %s: expected exactly one of cls, mean and lasttoken; choose "
                        "with --pooling",
                        f->path, name);
    }
    *inout = mode;
    return ECH_OK;
}

static ech_status read_modes(const ech_fields *const f, ech_pooling *const ret)
{
    static const struct {
        const char *key, *name;
        ech_pooling mode;
    } MODES[] = {
#define X(key, name, mode) { key, name, ECH_POOLING_##mode },
        POOLING_MODES(X)
#undef X
    };
    ech_pooling mode = ECH_POOLING_MODEL;
    const char *named = NULL;
    ECH_TRY(ech_field_str(f, "pooling_mode", &named));
    bool is_known = named == NULL;
    for (size_t i = 0; i < sizeof MODES / sizeof MODES[0]; i++) {
        bool on = false;
        ECH_TRY(ech_field_bool(f, MODES[i].key, &on));
        if (named != NULL) on = strcmp(named, MODES[i].name) == 0;
        is_known = is_known || on;
        if (on) ECH_TRY(take_mode(f, MODES[i].key, MODES[i].mode, &mode));
    }
    if (!is_known) ECH_TRY(take_mode(f, "pooling_mode", ECH_POOLING_MODEL, &mode));
    *ret = mode == ECH_POOLING_MODEL ? ECH_POOLING_LAST : mode;
    return ECH_OK;
}

static ech_status take_pooling(const char *const path, const json_t *const root,
                               ech_pooling *const ret, ech_error *const err)
{
    if (!json_is_object(root))
        return ech_fail(err, ECH_EFORMAT, "reading %s: expected a JSON object", path);
    const ech_fields f = { .path = path, .prefix = "", .object = root, .err = err };
    return read_modes(&f, ret);
}

/* "sentence_transformers.models.Dense" → is it a step that the engine computes? */
static bool is_computed(const char *const type)
{
    static const char *const NAMES[] = { "Transformer", "Pooling", "Normalize" };
    const char *const dot = strrchr(type, '.');
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(dot != NULL ? dot + 1 : type, NAMES[i]) == 0) return true;
    }
    return false;
}

/* A vector without one of the model's steps would look like one with it. */
static ech_status check_modules(const char *const path, const json_t *const root,
                                ech_pooling *const ret, ech_error *const err)
{
    (void)ret;
    for (size_t i = 0; i < json_array_size(root); i++) {
        const char *const type =
            json_string_value(json_object_get(json_array_get(root, i), "type"));
        if (type != NULL && is_computed(type)) continue;
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: module %zu is %.100s: expected Transformer, Pooling or "
                        "Normalize; --pooling gives the vectors before it",
                        path, i, type != NULL ? type : "of no type");
    }
    return json_is_array(root)
               ? ECH_OK
               : ech_fail(err, ECH_EFORMAT, "reading %s: expected a list of modules", path);
}

/* A file of the folder, where it is there, through `take`. */
static ech_status read_file(const ech_model *const m, const char *const name,
                            ech_status (*const take)(const char *path, const json_t *root,
                                                     ech_pooling *ret, ech_error *err),
                            ech_pooling *const ret, ech_error *const err)
{
    char *const path = ech_path_join(m->folder, name);
    if (path == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", m->folder);
    ech_status rc = ECH_OK;
    if (ech_path_exists(path)) {
        json_t *root = NULL;
        rc = ech_json_load_any(path, POOLING_BYTES_MAX, &root, err);
        if (rc == ECH_OK) rc = take(path, root, ret, err);
        json_decref(root);
    }
    free(path);
    return rc;
}

static ech_status read_folder(const ech_model *const m, ech_pooling *const ret,
                              ech_error *const err)
{
    *ret = ECH_POOLING_LAST;
    ECH_TRY(read_file(m, "modules.json", check_modules, ret, err));
    return read_file(m, "1_Pooling/config.json", take_pooling, ret, err);
}

/* The numbers are those of the format: 0 none, 1 mean, 2 cls, 3 last, 4 rank. */
static ech_status read_gguf(const ech_model *const m, ech_pooling *const ret, ech_error *const err)
{
    static const ech_pooling MODES[] = { ECH_POOLING_LAST, ECH_POOLING_MEAN, ECH_POOLING_CLS,
                                         ECH_POOLING_LAST };
    char key[128];
    int64_t type = 0;
    (void)snprintf(key, sizeof key, "%s.pooling_type", m->config.arch->name);
    (void)ech_model_meta_int(m, key, &type);
    if (type < 0 || type >= (int64_t)(sizeof MODES / sizeof MODES[0])) {
        return ech_fail(err, ECH_EUNSUPPORTED,
                        "reading %s: %s: expected 0 to 3, found %lld; choose with --pooling",
                        m->path, key, (long long)type);
    }
    *ret = MODES[type];
    return ECH_OK;
}

ech_status ech_model_pooling(const ech_model *const model, ech_pooling *const ret,
                             ech_error *const err)
{
    return model->format == ECH_FORMAT_GGUF ? read_gguf(model, ret, err)
                                            : read_folder(model, ret, err);
}
