/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8, strict as the Unicode standard has it: no overlong forms, no surrogates, nothing above
 * U+10FFFF. Pure functions.
 */
#ifndef ECH_BASE_UTF8_H
#define ECH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads one code point from s[0..len). Returns its length, 1..4; 0 when len is 0; -1 when the
 * first byte can't begin, or the sequence is broken; -2 when the bytes are a correct but
 * unfinished beginning. *ret_cp is written for 1..4 only.
 */
int ech_utf8_decode(const char *s, size_t len, uint32_t *ret_cp);
/* Writes cp to out, returns 1..4; 0 for a surrogate or a value above U+10FFFF. */
int ech_utf8_encode(uint32_t cp, char out[4]);
/* Whether all of s[0..len) is UTF-8; the offset of the first bad byte goes to *ret_bad (may be NULL). */
bool ech_utf8_valid(const char *s, size_t len, size_t *ret_bad);
/*
 * Length of the maximal subpart that one U+FFFD replaces at a broken place, as Python's
 * errors="replace" does: the longest prefix of a correct sequence, at least 1.
 */
size_t ech_utf8_broken_len(const char *s, size_t len);

#endif
