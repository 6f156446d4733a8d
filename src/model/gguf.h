/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading GGUF headers, version 2 and 3, little-endian; one file, or split in several.
 *
 *     "GGUF", u32 version, u64 tensors, u64 pairs
 *     pairs:    string key, u32 type, value            string: u64 length, bytes
 *     tensors:  string name, u32 n_dims, u64 dims (innermost first), u32 type, u64 offset
 *     padding to general.alignment (32), then the data; offsets count from there
 *
 * The metadata is kept as it stands in the file, with an index of keys; values are read on demand.
 * Every length is held against the file before it is used.
 */
#ifndef ECH_MODEL_GGUF_H
#define ECH_MODEL_GGUF_H

#include "src/model/weights.h"

/* The largest known has 30 MB, most of it a vocabulary. */
#define ECH_GGUF_HEADER_MAX (256u << 20)
#define ECH_GGUF_KEYS_MAX   65536u
#define ECH_GGUF_KEY_MAX    65535u
/* Arrays of arrays are in the format, though no file is known to have them. */
#define ECH_GGUF_DEPTH_MAX 4u

/* Part of the format. */
typedef enum ech_gguf_type {
    ECH_GGUF_U8,
    ECH_GGUF_I8,
    ECH_GGUF_U16,
    ECH_GGUF_I16,
    ECH_GGUF_U32,
    ECH_GGUF_I32,
    ECH_GGUF_F32,
    ECH_GGUF_BOOL,
    ECH_GGUF_STRING,
    ECH_GGUF_ARRAY,
    ECH_GGUF_U64,
    ECH_GGUF_I64,
    ECH_GGUF_F64,
    ECH_GGUF_TYPES,
} ech_gguf_type;

typedef struct ech_gguf_entry {
    uint64_t key; /* offset of its bytes in header */
    uint32_t key_len;
    ech_gguf_type type; /* of the value; of the elements, where it is an array */
    bool is_array;
    uint64_t n;     /* elements; 1 for a value alone */
    uint64_t value; /* offset of the first one's bytes in header */
} ech_gguf_entry;

typedef struct ech_gguf {
    ech_buf header;          /* the file's first bytes */
    ech_gguf_entry *entries; /* [n] in the file's order */
    uint32_t n;
    uint32_t cap;
} ech_gguf;

/*
 * Reads a file, or all files of a split one whichever of them path names, and seals ws. The
 * metadata is the first file's. On failure both are to be released all the same.
 */
ech_status ech_gguf_read(ech_gguf *g, ech_weights *ws, const char *path, ech_error *err);
void ech_gguf_fini(ech_gguf *g);

/* NULL when there is no such key. */
const ech_gguf_entry *ech_gguf_find(const ech_gguf *g, const char *key);
/*
 * A value of any number type; false when the key is absent or holds something else. Integers that
 * aren't whole in 63 bits are no ech_gguf_int.
 */
bool ech_gguf_int(const ech_gguf *g, const char *key, int64_t *ret);
bool ech_gguf_number(const ech_gguf *g, const char *key, double *ret);
bool ech_gguf_bool(const ech_gguf *g, const char *key, bool *ret);
/* Borrowed from g. */
bool ech_gguf_str(const ech_gguf *g, const char *key, ech_str *ret);
/*
 * Element idx of an array of numbers, as a double: exact for all types but 64-bit integers beyond
 * 2^53. idx is below e->n and the element type is a number.
 */
double ech_gguf_element(const ech_gguf *g, const ech_gguf_entry *e, uint64_t idx);
/* All n strings of an array of strings into out[e->n]; borrowed from g. */
void ech_gguf_strings(const ech_gguf *g, const ech_gguf_entry *e, ech_str *out);

#endif
