/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors header. Everything in it is input: the header's length, every number and name is
 * checked against the file's size before it is used, and nothing of the data is read. jansson
 * refuses bad UTF-8, repeated keys, numbers beyond 64 bits and nesting over its limit of 2048.
 * What is left out: the index of a sharded model (safetensors_index.c).
 */
#include "src/model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include <jansson.h>

#include "src/base/error.h"
#include "src/model/names.h"

/* One file while it is read. */
typedef struct st_reader {
    ech_weights *ts;
    uint32_t file;
    const char *path;
    uint64_t data_start;
    uint64_t data_bytes;
    ech_error *err;
} st_reader;

/* A tensor's span of the data, for the check that they tile it. */
typedef struct span {
    uint64_t begin;
    uint64_t end;
    const char *name;
} span;

static ech_status read_shape(const st_reader *const r, const char *const name,
                             const json_t *const shape, ech_weight *const t)
{
    if (!json_is_array(shape)) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: tensor %s: \"shape\" is missing or no array", r->path, name);
    }
    const size_t n = json_array_size(shape);
    if (n > ECH_WEIGHT_DIMS_MAX) {
        return ech_fail(r->err, ECH_EUNSUPPORTED,
                        "reading %s: tensor %s has %zu dimensions, at most %d are read", r->path,
                        name, n, ECH_WEIGHT_DIMS_MAX);
    }
    t->n_dims = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *const dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return ech_fail(r->err, ECH_EFORMAT,
                            "reading %s: tensor %s: \"shape\" holds something else than sizes",
                            r->path, name);
        }
        t->dims[i] = (uint64_t)json_integer_value(dim);
    }
    return ECH_OK;
}

static ech_status read_offsets(const st_reader *const r, const char *const name,
                               const json_t *const offsets, span *const ret_span)
{
    const json_t *const begin = json_array_get(offsets, 0);
    const json_t *const end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return ech_fail(
            r->err, ECH_EFORMAT,
            "reading %s: tensor %s: \"data_offsets\" is not [begin, end] with begin <= end",
            r->path, name);
    }
    ret_span->begin = (uint64_t)json_integer_value(begin);
    ret_span->end = (uint64_t)json_integer_value(end);
    ret_span->name = name;
    if (ret_span->end > r->data_bytes) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: tensor %s: expected its data to end at byte %" PRIu64
                        " of the file, found %" PRIu64 " bytes: the file was cut, get it again",
                        r->path, name, r->data_start + ret_span->end,
                        r->data_start + r->data_bytes);
    }
    return ECH_OK;
}

static ech_status read_dtype(const st_reader *const r, const char *const name,
                             const json_t *const dtype, ech_wtype *const ret_type)
{
    if (!json_is_string(dtype)) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: tensor %s: \"dtype\" is missing or no string", r->path, name);
    }
    const ech_str text = { json_string_value(dtype), json_string_length(dtype) };
    if (!ech_wtype_from_safetensors(text, ret_type)) {
        return ech_fail(r->err, ECH_EUNSUPPORTED, "reading %s: tensor %s: unknown dtype \"%.32s\"",
                        r->path, name, text.ptr);
    }
    return ECH_OK;
}

static ech_status read_tensor(const st_reader *const r, const char *const name,
                              const json_t *const entry, span *const ret_span)
{
    if (!ech_name_is_plain(name)) {
        return ech_fail(
            r->err, ECH_EFORMAT,
            "reading %s: a tensor's name is empty, over %d bytes, or has control characters",
            r->path, ECH_NAME_MAX);
    }
    if (!json_is_object(entry)) {
        return ech_fail(r->err, ECH_EFORMAT, "reading %s: tensor %s: its entry is no object",
                        r->path, name);
    }
    ech_weight t = { .name = name, .file = r->file };
    ECH_TRY(read_dtype(r, name, json_object_get(entry, "dtype"), &t.type));
    ECH_TRY(read_shape(r, name, json_object_get(entry, "shape"), &t));
    ECH_TRY(read_offsets(r, name, json_object_get(entry, "data_offsets"), ret_span));

    char shape[128];
    (void)ech_weight_shape_text(t.n_dims, t.dims, shape, sizeof shape);
    if (!ech_wtype_bytes(t.type, t.n_dims, t.dims, &t.bytes)) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: tensor %s: shape %s is larger than any file", r->path, name,
                        shape);
    }
    if (t.bytes != ret_span->end - ret_span->begin) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: tensor %s: expected %" PRIu64
                        " bytes for %s %s, found %" PRIu64 " between its offsets",
                        r->path, name, t.bytes, ech_wtype_name(t.type), shape,
                        ret_span->end - ret_span->begin);
    }
    t.offset = r->data_start + ret_span->begin;
    return ech_weights_add(r->ts, &t, r->err);
}

static int compare_spans(const void *const a, const void *const b)
{
    const span *const x = a;
    const span *const y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Each span begins where the one before ends, and the last ends with the file. */
static ech_status check_tiling(const st_reader *const r, span *const spans, const size_t n)
{
    uint64_t at = 0;
    const char *before = "the header";
    if (n > 0) qsort(spans, n, sizeof *spans, compare_spans);
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin != at) {
            return ech_fail(r->err, ECH_EFORMAT,
                            "reading %s: tensor %s: expected its data at offset %" PRIu64
                            ", right after %s, found %" PRIu64 ": tensors %s",
                            r->path, spans[i].name, at, before, spans[i].begin,
                            spans[i].begin < at ? "overlap" : "leave a hole");
        }
        at = spans[i].end;
        before = spans[i].name;
    }
    if (at != r->data_bytes) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: expected the file to end at byte %" PRIu64
                        " with tensor %s, found %" PRIu64 " bytes",
                        r->path, r->data_start + at, before, r->data_start + r->data_bytes);
    }
    return ECH_OK;
}

static ech_status read_entries(const st_reader *const r, json_t *const header)
{
    span *const spans = calloc(json_object_size(header) + 1, sizeof *spans);
    if (spans == NULL) return ech_fail(r->err, ECH_ENOMEM, "reading %s: out of memory", r->path);
    size_t n = 0;
    ech_status rc = ECH_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        rc = read_tensor(r, name, entry, &spans[n++]);
        if (rc != ECH_OK) break;
    }
    if (rc == ECH_OK) rc = check_tiling(r, spans, n);
    free(spans);
    return rc;
}

static ech_status parse_header(const st_reader *const r, const char *const text, const size_t len)
{
    json_error_t at;
    json_t *const header = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    if (header == NULL) {
        return ech_fail_at(r->err, ECH_EFORMAT, at.line, at.column, 8 + (int64_t)at.position,
                           "reading %s: the header is not JSON at byte %d: %s", r->path,
                           8 + at.position, at.text);
    }
    ech_status rc;
    if (!json_is_object(header)) {
        rc = ech_fail(r->err, ECH_EFORMAT, "reading %s: the header is no JSON object", r->path);
    } else {
        rc = read_entries(r, header);
    }
    json_decref(header);
    return rc;
}

/* Reads and checks the header's length. */
static ech_status read_length(const st_reader *const r, const uint64_t size,
                              uint64_t *const ret_len)
{
    unsigned char b[8];
    if (size < sizeof b) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: expected a header of at least 8 bytes, found %" PRIu64,
                        r->path, size);
    }
    ECH_TRY(ech_weights_read(r->ts, r->file, 0, b, sizeof b, r->err));
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--) {
        len = len << 8 | b[i];
    }
    if (len > size - sizeof b) {
        return ech_fail(r->err, ECH_EFORMAT,
                        "reading %s: expected a header of %" PRIu64 " bytes, found %" PRIu64
                        " in the whole file: it was cut or is no safetensors file",
                        r->path, len, size - sizeof b);
    }
    if (len > ECH_SAFETENSORS_HEADER_MAX) {
        return ech_fail(r->err, ECH_ELIMIT,
                        "reading %s: its header has %" PRIu64 " bytes, at most %u are read",
                        r->path, len, ECH_SAFETENSORS_HEADER_MAX);
    }
    *ret_len = len;
    return ECH_OK;
}

ech_status ech_safetensors_read(ech_weights *const ts, const char *const path, ech_error *const err)
{
    st_reader r = { .ts = ts, .path = path, .err = err };
    ECH_TRY(ech_weights_open_file(ts, path, &r.file, err));
    const uint64_t size = ts->files[r.file].size;
    uint64_t len = 0;
    ECH_TRY(read_length(&r, size, &len));
    r.data_start = 8 + len;
    r.data_bytes = size - r.data_start;

    char *const text = malloc(len + 1);
    if (text == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
    ech_status rc = ech_weights_read(ts, r.file, 8, text, len, err);
    if (rc == ECH_OK) rc = parse_header(&r, text, len);
    free(text);
    return rc;
}
