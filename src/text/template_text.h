/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Python's str knows about characters: white space, words, case, printability. Pure functions
 * over valid UTF-8.
 */
#ifndef ECH_TEXT_TEMPLATE_TEXT_H
#define ECH_TEXT_TEMPLATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Code points from first to last; tables of them are in template_ranges.c. */
typedef struct ech_ttext_range {
    uint32_t first, last;
} ech_ttext_range;

extern const ech_ttext_range ech_ttext_other_upper[], ech_ttext_other_lower[], ech_ttext_digits[],
    ech_ttext_numerals[];
extern const size_t ech_ttext_n_other_upper, ech_ttext_n_other_lower, ech_ttext_n_digits,
    ech_ttext_n_numerals;

typedef struct ech_ttext_special {
    uint32_t cp, upper[3], title[3];
} ech_ttext_special;

extern const ech_ttext_special ech_ttext_specials[];
extern const size_t ech_ttext_n_specials;

/* str.isspace() for one character. */
bool ech_ttext_is_space(uint32_t cp);
/* The bytes of the white space character that s begins with; 0 when it begins with none. */
size_t ech_ttext_space(const char *s, size_t len);
/* The length of s without trailing white space. */
size_t ech_ttext_rstrip(const char *s, size_t len);
/* Characters that may stand in an identifier, and at its beginning. */
bool ech_ttext_is_word(uint32_t cp);
bool ech_ttext_is_word_start(uint32_t cp);

bool ech_ttext_is_printable(uint32_t cp);
bool ech_ttext_is_alpha(uint32_t cp);
bool ech_ttext_is_decimal(uint32_t cp);
bool ech_ttext_is_digit(uint32_t cp);
bool ech_ttext_is_numeric(uint32_t cp);
bool ech_ttext_is_upper(uint32_t cp);
bool ech_ttext_is_lower(uint32_t cp);
bool ech_ttext_is_title(uint32_t cp);
/* Neither has nor is case, but does not end a word: for the final sigma. */
bool ech_ttext_is_case_ignorable(uint32_t cp);

/* Case mappings to 1..3 characters; the number is returned. */
int ech_ttext_upper(uint32_t cp, uint32_t out[3]);
int ech_ttext_title(uint32_t cp, uint32_t out[3]);
int ech_ttext_lower(uint32_t cp, uint32_t out[3]);
int ech_ttext_fold(uint32_t cp, uint32_t out[4]);

#endif
