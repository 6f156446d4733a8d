/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF header. A cursor moves over the file's first bytes, which are read as they are needed;
 * whatever it is asked for is held against the file's size and the limit first. Entries keep
 * offsets, because the buffer moves while it grows. What is left out: what keys mean
 * (gguf_config.c).
 */
#include "src/model/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/model/names.h"

#define READ_AHEAD    (1u << 20)
#define ALIGNMENT     32u
#define ALIGNMENT_MAX (1u << 20)
#define DIMS_MAX      4u
#define SPLITS_MAX    ECH_WEIGHT_FILES_MAX

/* Bytes of a value of fixed size; 0 for strings, arrays and what is no type. */
static uint32_t type_bytes(const uint32_t type)
{
    static const uint8_t BYTES[ECH_GGUF_TYPES] = {
        [ECH_GGUF_U8] = 1,  [ECH_GGUF_I8] = 1,  [ECH_GGUF_U16] = 2, [ECH_GGUF_I16] = 2,
        [ECH_GGUF_U32] = 4, [ECH_GGUF_I32] = 4, [ECH_GGUF_F32] = 4, [ECH_GGUF_BOOL] = 1,
        [ECH_GGUF_U64] = 8, [ECH_GGUF_I64] = 8, [ECH_GGUF_F64] = 8,
    };
    return type < ECH_GGUF_TYPES ? BYTES[type] : 0;
}

/* One file while it is read. */
typedef struct cursor {
    ech_gguf *g;
    ech_weights *ws;
    uint32_t file;
    const char *path;
    uint64_t size; /* of the file */
    uint64_t at;   /* the next byte */
    ech_error *err;
} cursor;

static ech_status broken(const cursor *const c, const char *const why)
{
    return ech_fail_at(c->err, ECH_EFORMAT, 0, 0, (int64_t)c->at,
                       "reading %s: at byte %" PRIu64 ": %s", c->path, c->at, why);
}

/* Makes sure that the next len bytes are in the buffer. */
static ech_status need(cursor *const c, const uint64_t len)
{
    ech_buf *const b = &c->g->header;
    if (len > c->size - c->at) {
        return ech_fail_at(c->err, ECH_EFORMAT, 0, 0, (int64_t)c->at,
                           "reading %s: expected %" PRIu64 " bytes at byte %" PRIu64
                           ", found %" PRIu64 " to the end of the file: it was cut or is damaged",
                           c->path, len, c->at, c->size - c->at);
    }
    const uint64_t end = c->at + len;
    if (end > ECH_GGUF_HEADER_MAX) {
        return ech_fail(c->err, ECH_ELIMIT, "reading %s: its header has over %u bytes", c->path,
                        ECH_GGUF_HEADER_MAX);
    }
    if (end <= b->len) return ECH_OK;
    const uint64_t left = c->size - b->len;
    const uint64_t want = end - b->len > READ_AHEAD ? end - b->len : READ_AHEAD;
    const size_t n = (size_t)(want < left ? want : left);
    if (ech_buf_reserve(b, n) != ECH_OK)
        return ech_fail(c->err, ECH_ENOMEM, "reading %s: out of memory", c->path);
    ECH_TRY(ech_weights_read(c->ws, c->file, b->len, b->data + b->len, n, c->err));
    b->len += n;
    return ECH_OK;
}

static ech_status skip(cursor *const c, const uint64_t len)
{
    ECH_TRY(need(c, len));
    c->at += len;
    return ECH_OK;
}

static ech_status get(cursor *const c, void *const to, const size_t len)
{
    ECH_TRY(need(c, len));
    memcpy(to, c->g->header.data + c->at, len);
    c->at += len;
    return ECH_OK;
}

/* A length and that many bytes; where they are goes to ret. */
static ech_status get_string(cursor *const c, const uint64_t max, uint64_t *const ret_at,
                             uint64_t *const ret_len)
{
    uint64_t len = 0;
    ECH_TRY(get(c, &len, sizeof len));
    if (len > max) return broken(c, "a string is longer than the format allows");
    *ret_at = c->at;
    *ret_len = len;
    return skip(c, len);
}

/* Steps over n values of a type. */
static ech_status skip_values(cursor *const c, const uint32_t type, const uint64_t n,
                              const uint32_t depth)
{
    const uint32_t bytes = type_bytes(type);
    uint64_t total = 0;
    if (bytes > 0) {
        if (__builtin_mul_overflow(n, (uint64_t)bytes, &total))
            return broken(c, "an array is longer than any file");
        return skip(c, total);
    }
    if (type != ECH_GGUF_STRING && type != ECH_GGUF_ARRAY)
        return broken(c, "unknown type of value");
    if (depth == ECH_GGUF_DEPTH_MAX) return broken(c, "arrays are nested too deeply");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = 0;
        uint64_t len = 0;
        if (type == ECH_GGUF_STRING) {
            ECH_TRY(get_string(c, UINT64_MAX, &at, &len));
            continue;
        }
        uint32_t inner = 0;
        ECH_TRY(get(c, &inner, sizeof inner));
        ECH_TRY(get(c, &len, sizeof len));
        ECH_TRY(skip_values(c, inner, len, depth + 1));
    }
    return ECH_OK;
}

static ech_status add_entry(cursor *const c, const ech_gguf_entry *const e)
{
    ech_gguf *const g = c->g;
    if (g->n == g->cap) {
        const uint32_t cap = g->cap == 0 ? 64 : 2 * g->cap;
        ech_gguf_entry *const entries = realloc(g->entries, cap * sizeof *entries);
        if (entries == NULL)
            return ech_fail(c->err, ECH_ENOMEM, "reading %s: out of memory", c->path);
        g->entries = entries;
        g->cap = cap;
    }
    g->entries[g->n++] = *e;
    return ECH_OK;
}

static ech_status get_pair(cursor *const c)
{
    ech_gguf_entry e = { .n = 1 };
    uint64_t key_len = 0;
    uint32_t type = 0;
    ECH_TRY(get_string(c, ECH_GGUF_KEY_MAX, &e.key, &key_len));
    e.key_len = (uint32_t)key_len;
    ECH_TRY(get(c, &type, sizeof type));
    if (type == ECH_GGUF_ARRAY) {
        e.is_array = true;
        ECH_TRY(get(c, &type, sizeof type));
        ECH_TRY(get(c, &e.n, sizeof e.n));
    }
    e.value = c->at;
    ECH_TRY(skip_values(c, type, e.n, 0));
    e.type = (ech_gguf_type)type;
    return add_entry(c, &e);
}

static ech_str key_of(const ech_gguf *const g, const ech_gguf_entry *const e)
{
    return (ech_str){ g->header.data + e->key, e->key_len };
}

static int compare_keys(const void *const a, const void *const b, void *const header)
{
    const ech_gguf_entry *const x = a;
    const ech_gguf_entry *const y = b;
    const uint32_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
    const int order = memcmp((char *)header + x->key, (char *)header + y->key, n);
    return order != 0 ? order : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

/* In the order of keys, each once. */
static ech_status sort_keys(const cursor *const c)
{
    ech_gguf *const g = c->g;
    if (g->n == 0) return ECH_OK;
    qsort_r(g->entries, g->n, sizeof *g->entries, compare_keys, g->header.data);
    for (uint32_t i = 1; i < g->n; i++) {
        const ech_str key = key_of(g, &g->entries[i]);
        if (!ech_str_eq(key_of(g, &g->entries[i - 1]), key)) continue;
        return ech_fail(c->err, ECH_EFORMAT, "reading %s: key %.*s stands twice", c->path,
                        (int)(key.len < 128 ? key.len : 128), key.ptr);
    }
    return ECH_OK;
}

static ech_status get_tensor(cursor *const c, ech_weight *const w, char *const name)
{
    uint64_t at = 0;
    uint64_t len = 0;
    uint32_t type = 0;
    uint64_t dims[DIMS_MAX] = { 0 };
    ECH_TRY(get_string(c, ECH_NAME_MAX, &at, &len));
    memcpy(name, c->g->header.data + at, len);
    name[len] = '\0';
    if (strlen(name) != len || !ech_name_is_plain(name))
        return broken(c, "a tensor's name is empty or has control characters");
    *w = (ech_weight){ .name = name, .file = c->file };
    ECH_TRY(get(c, &w->n_dims, sizeof w->n_dims));
    if (w->n_dims > DIMS_MAX) return broken(c, "a tensor has more than 4 dimensions");
    ECH_TRY(get(c, dims, w->n_dims * sizeof *dims));
    for (uint32_t i = 0; i < w->n_dims; i++) {
        w->dims[i] = dims[w->n_dims - 1 - i];
    }
    ECH_TRY(get(c, &type, sizeof type));
    ECH_TRY(get(c, &w->offset, sizeof w->offset));
    if (!ech_wtype_from_gguf(type, &w->type)) {
        return ech_fail(c->err, ECH_EUNSUPPORTED, "reading %s: tensor %s: unknown type number %u",
                        c->path, name, type);
    }
    if (!ech_wtype_bytes(w->type, w->n_dims, w->dims, &w->bytes)) {
        char shape[96];
        return ech_fail(
            c->err, ECH_EFORMAT,
            "reading %s: tensor %s: shape %s is not whole blocks of %s, or larger than any file",
            c->path, name, ech_weight_shape_text(w->n_dims, w->dims, shape, sizeof shape),
            ech_wtype_name(w->type));
    }
    return ECH_OK;
}

/* The first of this file's tensors in ws. */
static ech_status get_tensors(cursor *const c, const uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char name[ECH_NAME_MAX + 1];
        ech_weight w;
        ECH_TRY(get_tensor(c, &w, name));
        ECH_TRY(ech_weights_add(c->ws, &w, c->err));
    }
    return ECH_OK;
}

static int compare_offsets(const void *const a, const void *const b)
{
    const ech_weight *const x = a;
    const ech_weight *const y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Makes offsets those of the file; every tensor is aligned, inside, and beside the others. */
static ech_status place_tensors(const cursor *const c, const uint32_t first, const uint64_t data,
                                const uint64_t alignment)
{
    ech_weight *const list = c->ws->list + first;
    const uint32_t n = c->ws->n - first;
    if (n > 0) qsort(list, n, sizeof *list, compare_offsets);
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        ech_weight *const w = &list[i];
        if (w->offset % alignment != 0) {
            return ech_fail(c->err, ECH_EFORMAT,
                            "reading %s: tensor %s: offset %" PRIu64
                            " is no multiple of the alignment %" PRIu64,
                            c->path, w->name, w->offset, alignment);
        }
        if (w->offset < end) {
            return ech_fail(c->err, ECH_EFORMAT,
                            "reading %s: tensor %s: its data overlaps that of %s", c->path, w->name,
                            list[i - 1].name);
        }
        if (data > c->size || w->offset > c->size - data || w->bytes > c->size - data - w->offset) {
            return ech_fail(c->err, ECH_EFORMAT,
                            "reading %s: tensor %s: expected %" PRIu64 " bytes at offset %" PRIu64
                            " of the data, found a file of %" PRIu64
                            " bytes: it was cut, get it again",
                            c->path, w->name, w->bytes, w->offset, c->size);
        }
        end = w->offset + w->bytes;
        w->offset += data;
    }
    return ECH_OK;
}

static ech_status get_alignment(const cursor *const c, uint64_t *const ret)
{
    int64_t alignment = ALIGNMENT;
    if (ech_gguf_find(c->g, "general.alignment") != NULL &&
        (!ech_gguf_int(c->g, "general.alignment", &alignment) || alignment <= 0 ||
         alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)) != 0)) {
        return ech_fail(c->err, ECH_EFORMAT,
                        "reading %s: general.alignment: expected a power of two up to %u", c->path,
                        ALIGNMENT_MAX);
    }
    *ret = (uint64_t)alignment;
    return ECH_OK;
}

static ech_status get_counts(cursor *const c, uint64_t *const ret_tensors,
                             uint64_t *const ret_pairs)
{
    char magic[4];
    uint32_t version = 0;
    ECH_TRY(get(c, magic, sizeof magic));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return ech_fail(c->err, ECH_EFORMAT,
                        "reading %s: expected a GGUF file, found other first bytes; of a model in "
                        "safetensors name its folder",
                        c->path);
    }
    ECH_TRY(get(c, &version, sizeof version));
    if (version != 2 && version != 3) {
        return ech_fail(c->err, ECH_EUNSUPPORTED,
                        "reading %s: GGUF version %u: versions 2 and 3, little-endian, are read",
                        c->path, version);
    }
    ECH_TRY(get(c, ret_tensors, sizeof *ret_tensors));
    ECH_TRY(get(c, ret_pairs, sizeof *ret_pairs));
    if (*ret_tensors > ECH_WEIGHTS_MAX || *ret_pairs > ECH_GGUF_KEYS_MAX) {
        return ech_fail(c->err, ECH_ELIMIT,
                        "reading %s: %" PRIu64 " tensors and %" PRIu64
                        " keys, at most %u and %u are read",
                        c->path, *ret_tensors, *ret_pairs, ECH_WEIGHTS_MAX, ECH_GGUF_KEYS_MAX);
    }
    return ECH_OK;
}

static ech_status read_file(ech_gguf *const g, ech_weights *const ws, const char *const path,
                            ech_error *const err)
{
    cursor c = { .g = g, .ws = ws, .path = path, .err = err };
    const uint32_t first = ws->n;
    uint64_t n_tensors = 0;
    uint64_t n_pairs = 0;
    uint64_t alignment = ALIGNMENT;
    ECH_TRY(ech_weights_open_file(ws, path, &c.file, err));
    c.size = ws->files[c.file].size;
    ECH_TRY(get_counts(&c, &n_tensors, &n_pairs));
    for (uint64_t i = 0; i < n_pairs; i++) {
        ECH_TRY(get_pair(&c));
    }
    ECH_TRY(sort_keys(&c));
    ECH_TRY(get_alignment(&c, &alignment));
    ECH_TRY(get_tensors(&c, n_tensors));
    return place_tensors(&c, first, (c.at + alignment - 1) / alignment * alignment, alignment);
}

/* "NAME-00002-of-00005.gguf" of a split; len is the path's up to "-00002". */
static bool parse_split_path(const char *const path, size_t *const ret_len,
                             unsigned *const ret_count)
{
    const size_t len = strlen(path);
    const size_t tail = sizeof "-00001-of-00001.gguf" - 1;
    unsigned number = 0;
    int used = 0;
    if (len <= tail) return false;
    if (sscanf(path + len - tail, "-%5u-of-%5u.gguf%n", &number, ret_count, &used) != 2 ||
        used != (int)tail)
        return false;
    *ret_len = len - tail;
    return true;
}

/* Reads one further file of a split one. */
static ech_status read_part(ech_weights *const ws, const char *const path, const unsigned number,
                            ech_error *const err)
{
    ech_gguf part = { 0 };
    ech_status rc = read_file(&part, ws, path, err);
    int64_t own = -1;
    if (rc == ECH_OK && (!ech_gguf_int(&part, "split.no", &own) || own != (int64_t)number)) {
        rc = ech_fail(err, ECH_EFORMAT, "reading %s: split.no: expected %u, found %" PRId64, path,
                      number, own);
    }
    ech_gguf_fini(&part);
    return rc;
}

static ech_status read_split(ech_gguf *const g, ech_weights *const ws, const char *const path,
                             const size_t stem_len, const unsigned count, ech_error *const err)
{
    ech_status rc = ECH_OK;
    int64_t declared = 0;
    for (unsigned i = 0; i < count && rc == ECH_OK; i++) {
        char *part = NULL;
        if (asprintf(&part, "%.*s-%05u-of-%05u.gguf", (int)stem_len, path, i + 1, count) < 0) {
            return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
        }
        rc = i == 0 ? read_file(g, ws, part, err) : read_part(ws, part, i, err);
        if (rc == ECH_OK && i == 0 &&
            (!ech_gguf_int(g, "split.count", &declared) || declared != (int64_t)count)) {
            rc = ech_fail(err, ECH_EFORMAT,
                          "reading %s: split.count: expected %u by the file's name, found %" PRId64,
                          part, count, declared);
        }
        free(part);
    }
    int64_t tensors = 0;
    if (rc == ECH_OK && ech_gguf_int(g, "split.tensors.count", &tensors) &&
        tensors != (int64_t)ws->n) {
        rc = ech_fail(err, ECH_EFORMAT,
                      "reading %s: split.tensors.count: expected %" PRId64
                      " tensors in all files, found %u",
                      path, tensors, ws->n);
    }
    return rc;
}

ech_status ech_gguf_read(ech_gguf *const g, ech_weights *const ws, const char *const path,
                         ech_error *const err)
{
    size_t stem_len = 0;
    unsigned count = 0;
    if (parse_split_path(path, &stem_len, &count) && count > 1) {
        if (count > SPLITS_MAX)
            return ech_fail(err, ECH_ELIMIT, "reading %s: at most %u files are read", path,
                            SPLITS_MAX);
        ECH_TRY(read_split(g, ws, path, stem_len, count, err));
    } else {
        ECH_TRY(read_file(g, ws, path, err));
        int64_t declared = 1;
        if (ech_gguf_int(g, "split.count", &declared) && declared > 1) {
            return ech_fail(err, ECH_EFORMAT,
                            "reading %s: it is one of %" PRId64
                            " files, which are found by names like NAME-00001-of-%05" PRId64
                            ".gguf",
                            path, declared, declared);
        }
    }
    return ech_weights_seal(ws, err);
}

void ech_gguf_fini(ech_gguf *const g)
{
    ech_buf_fini(&g->header);
    free(g->entries);
    *g = (ech_gguf){ 0 };
}

const ech_gguf_entry *ech_gguf_find(const ech_gguf *const g, const char *const key)
{
    const ech_str want = ech_str_from(key);
    for (uint32_t i = 0; i < g->n; i++) {
        if (ech_str_eq(key_of(g, &g->entries[i]), want)) return &g->entries[i];
    }
    return NULL;
}

/* A number of any fixed type at p. */
static double number_at(const ech_gguf_type type, const char *const p)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } v = { 0 };
    memcpy(&v, p, type_bytes(type));
    switch (type) {
    case ECH_GGUF_U8:
    case ECH_GGUF_BOOL:
        return v.u8;
    case ECH_GGUF_I8:
        return v.i8;
    case ECH_GGUF_U16:
        return v.u16;
    case ECH_GGUF_I16:
        return v.i16;
    case ECH_GGUF_U32:
        return v.u32;
    case ECH_GGUF_I32:
        return v.i32;
    case ECH_GGUF_F32:
        return (double)v.f32;
    case ECH_GGUF_U64:
        return (double)v.u64;
    case ECH_GGUF_I64:
        return (double)v.i64;
    case ECH_GGUF_F64:
        return v.f64;
    default:
        return 0.0;
    }
}

static const ech_gguf_entry *find_alone(const ech_gguf *const g, const char *const key)
{
    const ech_gguf_entry *const e = ech_gguf_find(g, key);
    return e != NULL && !e->is_array ? e : NULL;
}

bool ech_gguf_number(const ech_gguf *const g, const char *const key, double *const ret)
{
    const ech_gguf_entry *const e = find_alone(g, key);
    if (e == NULL || type_bytes(e->type) == 0 || e->type == ECH_GGUF_BOOL) return false;
    *ret = number_at(e->type, g->header.data + e->value);
    return true;
}

bool ech_gguf_int(const ech_gguf *const g, const char *const key, int64_t *const ret)
{
    const ech_gguf_entry *const e = find_alone(g, key);
    if (e == NULL || type_bytes(e->type) == 0 || e->type == ECH_GGUF_BOOL ||
        e->type == ECH_GGUF_F32 || e->type == ECH_GGUF_F64) {
        return false;
    }
    if (e->type == ECH_GGUF_I64 || e->type == ECH_GGUF_U64) {
        int64_t v = 0;
        memcpy(&v, g->header.data + e->value, sizeof v);
        if (e->type == ECH_GGUF_U64 && v < 0) return false;
        *ret = v;
        return true;
    }
    *ret = (int64_t)number_at(e->type, g->header.data + e->value);
    return true;
}

bool ech_gguf_bool(const ech_gguf *const g, const char *const key, bool *const ret)
{
    const ech_gguf_entry *const e = find_alone(g, key);
    if (e == NULL || e->type != ECH_GGUF_BOOL) return false;
    *ret = g->header.data[e->value] != 0;
    return true;
}

/* The string at an offset; sizes were checked when the file was read. */
static ech_str string_at(const ech_gguf *const g, const uint64_t at)
{
    uint64_t len = 0;
    memcpy(&len, g->header.data + at, sizeof len);
    return (ech_str){ g->header.data + at + sizeof len, (size_t)len };
}

bool ech_gguf_str(const ech_gguf *const g, const char *const key, ech_str *const ret)
{
    const ech_gguf_entry *const e = find_alone(g, key);
    if (e == NULL || e->type != ECH_GGUF_STRING) return false;
    *ret = string_at(g, e->value);
    return true;
}

double ech_gguf_element(const ech_gguf *const g, const ech_gguf_entry *const e, const uint64_t idx)
{
    ECH_DCHECK(idx < e->n);
    return number_at(e->type, g->header.data + e->value + idx * type_bytes(e->type));
}

void ech_gguf_strings(const ech_gguf *const g, const ech_gguf_entry *const e, ech_str *const out)
{
    uint64_t at = e->value;
    for (uint64_t i = 0; i < e->n; i++) {
        out[i] = string_at(g, at);
        at += sizeof(uint64_t) + out[i].len;
    }
}
