/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading tokenizer.json. Two ways in one: the vocabulary and the merges, which are nearly all of
 * the file, are read in place by a strict pull reader (ech_json_scan); the rest, a few kilobytes,
 * goes through jansson.
 */
#ifndef ECH_TEXT_TOKENIZER_JSON_H
#define ECH_TEXT_TOKENIZER_JSON_H

#include <jansson.h>

#include "src/text/tokenizer_parts.h"

/* A place in JSON text. */
typedef struct ech_json_scan {
    const char *s;
    size_t len, at;
    ech_error *err;
} ech_json_scan;

ech_status ech_json_fail(const ech_json_scan *in, const char *why);
/* Skips white space; the next byte, or 0 at the end. */
char ech_json_peek(ech_json_scan *in);
/* Skips white space and takes c, or fails. */
ech_status ech_json_expect(ech_json_scan *in, char c);
/* Takes c if it is next. */
bool ech_json_take(ech_json_scan *in, char c);
/* A string, unescaped, appended to out. Control characters and lone surrogates are errors. */
ech_status ech_json_string(ech_json_scan *in, ech_buf *out);
/* A number; *ret_int only where it has neither a dot nor an exponent, else INT64_MIN. */
ech_status ech_json_number(ech_json_scan *in, double *ret_value, int64_t *ret_int);
/* Any value, its bounds in the text. */
ech_status ech_json_skip(ech_json_scan *in, size_t *ret_from, size_t *ret_to);

/* Fields of a part; what names it in errors. A field that is absent or null gives the default. */
ech_status ech_part_string(const json_t *o, const char *key, const char *what, ech_tokenizer *t,
                           ech_str *ret_s, ech_error *err);
ech_status ech_part_bool(const json_t *o, const char *key, const char *what, bool *io,
                         ech_error *err);
ech_status ech_part_size(const json_t *o, const char *key, const char *what, size_t *io,
                         ech_error *err);

/* The parts of the pipeline (tokenizer_json_parts.c). */
ech_status ech_json_normalizer(ech_tokenizer *t, const json_t *part, int depth, ech_error *err);
ech_status ech_json_pretok(ech_tokenizer *t, const json_t *part, int depth, ech_error *err);
ech_status ech_json_decoder(ech_tokenizer *t, const json_t *part, int depth, ech_error *err);
ech_status ech_json_post(ech_tokenizer *t, const json_t *part, int depth, ech_error *err);
/* Whether all pieces come out of ByteLevel, so that a BPE model may work on bytes themselves. */
bool ech_pretok_take_byte_chars(ech_pretok *p);

#endif
