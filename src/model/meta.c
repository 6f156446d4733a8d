/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF model's metadata, for the engine to hand to text. Pure reading. */
#include <stdlib.h>

#include "src/model/internal.h"

bool ech_model_meta_str(const ech_model *const model, const char *const key, ech_str *const ret)
{
    return ech_gguf_str(&model->gguf, key, ret);
}

bool ech_model_meta_int(const ech_model *const model, const char *const key, int64_t *const ret)
{
    return ech_gguf_int(&model->gguf, key, ret);
}

bool ech_model_meta_bool(const ech_model *const model, const char *const key, bool *const ret)
{
    return ech_gguf_bool(&model->gguf, key, ret);
}

/* An array of strings or of numbers, as asked. */
static const ech_gguf_entry *find_array(const ech_model *const m, const char *const key,
                                        const bool strings)
{
    const ech_gguf_entry *const e = ech_gguf_find(&m->gguf, key);
    if (e == NULL || !e->is_array || e->type == ECH_GGUF_ARRAY) return NULL;
    return (e->type == ECH_GGUF_STRING) == strings ? e : NULL;
}

bool ech_model_meta_strings(const ech_model *const model, const char *const key,
                            ech_str **const ret, size_t *const ret_n)
{
    const ech_gguf_entry *const e = find_array(model, key, true);
    ech_str *const out = e != NULL ? calloc(e->n + 1, sizeof *out) : NULL;
    if (out == NULL) return false;
    ech_gguf_strings(&model->gguf, e, out);
    *ret = out;
    *ret_n = e->n;
    return true;
}

/* Numbers outside of the type become its limits, NaN 0: they are nobody's ids. */
bool ech_model_meta_ints(const ech_model *const model, const char *const key, int32_t **const ret,
                         size_t *const ret_n)
{
    const ech_gguf_entry *const e = find_array(model, key, false);
    int32_t *const out = e != NULL ? calloc(e->n + 1, sizeof *out) : NULL;
    if (out == NULL) return false;
    for (uint64_t i = 0; i < e->n; i++) {
        const double v = ech_gguf_element(&model->gguf, e, i);
        out[i] = v >= (double)INT32_MAX   ? INT32_MAX
                 : v <= (double)INT32_MIN ? INT32_MIN
                 : v == v                 ? (int32_t)v
                                          : 0;
    }
    *ret = out;
    *ret_n = e->n;
    return true;
}

bool ech_model_meta_floats(const ech_model *const model, const char *const key, float **const ret,
                           size_t *const ret_n)
{
    const ech_gguf_entry *const e = find_array(model, key, false);
    float *const out = e != NULL ? calloc(e->n + 1, sizeof *out) : NULL;
    if (out == NULL) return false;
    for (uint64_t i = 0; i < e->n; i++) {
        /* A double beyond f32's range has no defined conversion. */
        const double v = ech_gguf_element(&model->gguf, e, i);
        out[i] = v > 3.4e38 ? 3.4e38f : v < -3.4e38 ? -3.4e38f : (float)v;
    }
    *ret = out;
    *ret_n = e->n;
    return true;
}
