/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of jansson's written back as compact JSON. Not jansson's own writer: that prints 17 digits
 * of a double, so that a schema's 0.1 would come back as 0.10000000000000001, another bound and
 * another prompt. Here a number has the shortest spelling that reads back the same.
 */
#ifndef ECH_TEXT_JSON_DUMP_H
#define ECH_TEXT_JSON_DUMP_H

#include <jansson.h>

#include "src/base/buf.h"

/* Bytes that hold any double's spelling, the zero included. */
#define ECH_JSON_DOUBLE_BYTES 40

/*
 * The shortest spelling that reads back the same, always one that ech_json_read() reads as a real;
 * a whole number from 2^63 to 2^64 has no exponent.
 */
void ech_json_spell_double(double v, char text[ECH_JSON_DOUBLE_BYTES]);
/* Appends v, not NULL. Members keep their order. ENOMEM is the only failure. */
ech_status ech_json_dump(ech_buf *b, const json_t *v);

#endif
