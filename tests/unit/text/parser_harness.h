/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeding a parser and writing its events down as one string, in which deltas are joined:
 *
 *     "T" text   "R" reasoning   "C" name 0x02 arguments 0x02 ("1" complete | "0")   "S" index
 *
 * each followed by 0x01.
 */
#ifndef ECH_TESTS_TEXT_PARSER_HARNESS_H
#define ECH_TESTS_TEXT_PARSER_HARNESS_H

#include <jansson.h>

#include "echelon/parser.h"
#include "src/base/buf.h"

/* One line of tests/golden/parser/outputs.jsonl. */
typedef struct golden {
    json_t *json;
    const char *name;
    const char *in;
    size_t len;
    const char *stops[ECH_PARSER_MAX_STOPS];
    const char *tool_names[8];
    ech_parser_options options;
    bool text_mode, ids_mode;
    ech_buf want;
} golden;

/* Reads line `line` of the file's text. Fails the test where it is malformed. */
void golden_read(golden *g, const char *line, size_t len);
void golden_release(golden *g);

/* Ids that markers have in "ids" mode. */
int32_t harness_marker_id(void *ctx, const char *text, size_t len);

/*
 * Parses in[0 .. len), cut before every position p with cuts[p] set (cuts may be NULL: whole); with
 * ids, markers are tokens of their own and cuts inside them don't count.
 */
void harness_parse(const ech_parser_options *o, const char *in, size_t len, const bool *cuts,
                   bool ids, ech_buf *ret);
/* Appends the last call's events, joined with what `to` ends with. */
void harness_events(const ech_parser *p, ech_buf *to, char *last);
/* A whole file of tests/. */
void harness_file(const char *name, ech_buf *ret);

#endif
