/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regular expressions of tokenizer.json, which are written for Oniguruma in its Ruby syntax
 * and Unicode 16. They are rewritten for PCRE2: classes, shorthands and properties are spelled out
 * so that both agree on every character.
 *
 * A compiled expression is immutable; what a match needs is in an ech_regex_scratch, one per
 * thread. Patterns come from files, so a match has limits: a match that backtracks too much is
 * ELIMIT.
 */
#ifndef ECH_TEXT_TOKENIZER_REGEX_H
#define ECH_TEXT_TOKENIZER_REGEX_H

#include "src/base/buf.h"

typedef struct ech_regex ech_regex;
typedef struct ech_regex_scratch ech_regex_scratch;

/* The PCRE2 pattern for an Oniguruma pattern, appended to out. EUNSUPPORTED names what isn't known.
 */
ech_status ech_regex_translate(ech_str pattern, ech_buf *out, ech_error *err);

ech_status ech_regex_create(ech_regex **ret_re, ech_str pattern, ech_error *err);
void ech_regex_destroy(ech_regex **re);

ech_status ech_regex_scratch_create(ech_regex_scratch **ret_scratch);
void ech_regex_scratch_destroy(ech_regex_scratch **scratch);

/*
 * The leftmost match in text[from..len): 1 and its bounds, 0 for none, or a negative ech_status.
 * text must be UTF-8 and from the beginning of a character.
 */
int ech_regex_find(const ech_regex *re, ech_regex_scratch *scratch, const char *text, size_t len,
                   size_t from, size_t *ret_start, size_t *ret_end);

#endif
