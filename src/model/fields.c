/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to JSON objects with errors that name the field. No state. */
#include "src/model/fields.h"

#include <stdio.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"

ech_status ech_json_load_any(const char *const path, const size_t max_bytes,
                             json_t **const ret_root, ech_error *const err)
{
    ech_buf text = { 0 };
    const ech_status rc = ech_buf_read_regular(&text, path, max_bytes, err);
    if (rc != ECH_OK) {
        ech_buf_fini(&text);
        return rc;
    }
    json_error_t at;
    json_t *const root =
        json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &at);
    ech_buf_fini(&text);
    if (root == NULL) {
        return ech_fail_at(err, ECH_EFORMAT, at.line, at.column, at.position,
                           "reading %s: line %d, column %d: %s", path, at.line, at.column, at.text);
    }
    *ret_root = root;
    return ECH_OK;
}

ech_status ech_json_load(const char *const path, const size_t max_bytes, json_t **const ret_root,
                         ech_error *const err)
{
    json_t *root;
    ECH_TRY(ech_json_load_any(path, max_bytes, &root, err));
    if (!json_is_object(root)) {
        json_decref(root);
        return ech_fail(err, ECH_EFORMAT, "reading %s: expected a JSON object", path);
    }
    *ret_root = root;
    return ECH_OK;
}

const char *ech_json_text(const json_t *const value, char *const buf, const size_t cap)
{
    if (json_is_object(value)) {
        (void)snprintf(buf, cap, "an object");
    } else if (json_is_array(value)) {
        (void)snprintf(buf, cap, "an array");
    } else {
        const size_t n = json_dumpb(value, buf, cap - 1, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        buf[n < cap ? n : cap - 1] = '\0';
    }
    return buf;
}

/* The field unless it is absent or null. */
static const json_t *get(const ech_fields *const f, const char *const name)
{
    const json_t *const value = json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

static ech_status wrong(const ech_fields *const f, const char *const name,
                        const json_t *const value, const char *const expected)
{
    char found[64];
    return ech_fail(f->err, ECH_EFORMAT, "reading %s: %s%s: expected %s, found %s", f->path,
                    f->prefix, name, expected, ech_json_text(value, found, sizeof found));
}

bool ech_field_has(const ech_fields *const f, const char *const name)
{
    return get(f, name) != NULL;
}

ech_status ech_field_require(const ech_fields *const f, const char *const name)
{
    if (ech_field_has(f, name)) return ECH_OK;
    return ech_fail(f->err, ECH_EFORMAT, "reading %s: %s%s is missing", f->path, f->prefix, name);
}

ech_status ech_field_u32(const ech_fields *const f, const char *const name, const uint32_t min,
                         const uint32_t max, uint32_t *const inout)
{
    const json_t *const value = get(f, name);
    if (value == NULL) return ECH_OK;
    const json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < (json_int_t)min || n > (json_int_t)max) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "an integer from %u to %u", min, max);
        return wrong(f, name, value, expected);
    }
    *inout = (uint32_t)n;
    return ECH_OK;
}

ech_status ech_field_number(const ech_fields *const f, const char *const name, const double min,
                            const double max, double *const inout)
{
    const json_t *const value = get(f, name);
    if (value == NULL) return ECH_OK;
    const double x = json_number_value(value);
    /* Written so that a NaN fails; JSON has none, but the bound is for whatever is read later. */
    if (!json_is_number(value) || !(x >= min && x <= max)) {
        char expected[80];
        (void)snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
        return wrong(f, name, value, expected);
    }
    *inout = x;
    return ECH_OK;
}

ech_status ech_field_bool(const ech_fields *const f, const char *const name, bool *const inout)
{
    const json_t *const value = get(f, name);
    if (value == NULL) return ECH_OK;
    if (!json_is_boolean(value)) return wrong(f, name, value, "true or false");
    *inout = json_is_true(value);
    return ECH_OK;
}

ech_status ech_field_str(const ech_fields *const f, const char *const name,
                         const char **const inout)
{
    const json_t *const value = get(f, name);
    if (value == NULL) return ECH_OK;
    if (!json_is_string(value)) return wrong(f, name, value, "a string");
    *inout = json_string_value(value);
    return ECH_OK;
}
