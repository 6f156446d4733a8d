/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed fields of a JSON config. A field that is absent or null keeps the value that stands in
 * *inout, so a default is set before reading; a field of the wrong type or range is an error that
 * names file and field, and says what was expected and found.
 */
#ifndef ECH_MODEL_FIELDS_H
#define ECH_MODEL_FIELDS_H

#include <jansson.h>

#include "echelon/status.h"

typedef struct ech_fields {
    const char *path;   /* of the file, for errors */
    const char *prefix; /* "rope_scaling." or "" */
    const json_t *object;
    ech_error *err;
} ech_fields;

/* Reads a JSON file whose root is an object. *ret_root is the caller's, for json_decref. */
ech_status ech_json_load(const char *path, size_t max_bytes, json_t **ret_root, ech_error *err);
/* The same with a root of any kind. */
ech_status ech_json_load_any(const char *path, size_t max_bytes, json_t **ret_root, ech_error *err);

/* Whether the field is there and not null. */
bool ech_field_has(const ech_fields *f, const char *name);
/* EFORMAT when it isn't. */
ech_status ech_field_require(const ech_fields *f, const char *name);
ech_status ech_field_u32(const ech_fields *f, const char *name, uint32_t min, uint32_t max,
                         uint32_t *inout);
/* Finite and within [min, max]. */
ech_status ech_field_number(const ech_fields *f, const char *name, double min, double max,
                            double *inout);
ech_status ech_field_bool(const ech_fields *f, const char *name, bool *inout);
/* Borrowed from the JSON. */
ech_status ech_field_str(const ech_fields *f, const char *name, const char **inout);
/* The value in JSON, cut to cap, for an error. Returns buf. */
const char *ech_json_text(const json_t *value, char *buf, size_t cap);

#endif
