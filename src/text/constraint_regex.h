/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions in the ECMAScript syntax of JSON schema's `pattern`: what is supported is in
 * docs/structured-output.md. Pure.
 */
#ifndef ECH_TEXT_CONSTRAINT_REGEX_H
#define ECH_TEXT_CONSTRAINT_REGEX_H

#include "src/text/constraint_dfa.h"

typedef struct ech_regex ech_regex;

/* Largest count in {m,n}, and how deep groups may nest. */
#define ECH_REGEX_MAX_COUNT 1000000u
#define ECH_REGEX_MAX_DEPTH 200

/*
 * Engines disagree about \d, \w and \s outside of ASCII: ECMAScript has some sets, others go by
 * Unicode. STRICT takes what all agree on, for texts to be written: a character that only some call
 * a digit matches neither \d nor \D. WIDE takes what any of them has, for texts to be avoided;
 * there $ also matches before a last newline.
 */
typedef enum ech_regex_reading { ECH_REGEX_STRICT, ECH_REGEX_WIDE } ech_regex_reading;

/*
 * Parses text, which is UTF-8. Errors: EFORMAT for what is no expression, EUNSUPPORTED for what
 * describes no regular language (look-around, back references), ELIMIT; err's column and offset
 * say where. The regex is the caller's to free.
 */
ech_status ech_regex_parse(ech_str text, ech_regex_reading reading, ech_regex **ret_regex,
                           ech_error *err);
void ech_regex_free(ech_regex **regex);

/*
 * search: texts that contain a match, as JSON schema wants it; else texts that match as a whole.
 */
ech_status ech_regex_dfa(const ech_regex *regex, bool search, ech_dfa **ret_dfa, ech_error *err);
/* The same as an expression. Repeats become counters, so {1,100000} is as small as {1,2}. */
ech_status ech_regex_expr(const ech_regex *regex, bool search, ech_spelling spelling,
                          ech_cx_graph *g, ech_cx *ret_expr, ech_error *err);

#endif
