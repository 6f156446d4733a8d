/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tokenizer needs to know about characters, as the `tokenizers` library knows it.
 *
 * The tables are generated (tests/tools/make_unicode_tables.py) and don't depend on the Unicode
 * version of this system's libraries. Pure functions over constant tables.
 */
#ifndef ECH_TEXT_UNICODE_H
#define ECH_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ech_char_flags {
    /* A normal form may change the character, or join it with the one before. */
    ECH_CHAR_NFC = 1 << 0,
    ECH_CHAR_NFD = 1 << 1,
    ECH_CHAR_NFKC = 1 << 2,
    ECH_CHAR_NFKD = 1 << 3,
    /* Younger than the normal forms' Unicode version: they see it as inert. */
    ECH_CHAR_YOUNG = 1 << 4,
    ECH_CHAR_NUMERIC = 1 << 5, /* Nd, Nl, No */
    ECH_CHAR_PUNCT = 1 << 6,   /* ASCII and Unicode punctuation */
    ECH_CHAR_ACCENT = 1 << 7,  /* what StripAccents removes */
    ECH_CHAR_BERT_ACCENT = 1 << 8,
    ECH_CHAR_BERT_CONTROL = 1 << 9,
    ECH_CHAR_WORD = 1 << 10, /* \w of the Whitespace pre-tokenizer and of single_word */
} ech_char_flags;

/* Bits of ech_char_flags. */
unsigned ech_char_flags_of(uint32_t cp);
/* Unicode's White_Space property. */
bool ech_char_is_space(uint32_t cp);
/* The lower case: 1 or 2 code points in out; cp itself where there is none. */
int ech_char_lower(uint32_t cp, uint32_t out[2]);

/* cp << 11 | flags, ascending: each row holds up to the next one's cp. */
extern const uint32_t ech_unicode_runs[];
extern const size_t ech_unicode_runs_n;

/* Every stride-th code point of first … last has its lower case at cp + delta. */
typedef struct ech_lower_row {
    uint32_t first, last, stride;
    int32_t delta;
} ech_lower_row;

extern const ech_lower_row ech_unicode_lower[];
extern const size_t ech_unicode_lower_n;

/*
 * Members of a category or script that came after Unicode 14, up to 16: a regex library of that
 * version doesn't know them.
 */
typedef struct ech_fresh_row {
    const char *name; /* "Lo", "Han", … */
    uint32_t first, last;
} ech_fresh_row;

extern const ech_fresh_row ech_unicode_fresh[];
extern const size_t ech_unicode_fresh_n;
/* What a regex's \w has beyond L, M, Nd, Nl and Pc. */
extern const ech_fresh_row ech_unicode_word[];
extern const size_t ech_unicode_word_n;

#endif
