/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson's reader for what clients send. It refuses a document for one number that is beyond
 * int64 or beyond a double, though that is JSON, and though the number may be anywhere: the
 * largest u64 as a bound in a tool's schema, a field that nobody looks at. Here such a number is a
 * real that is as near to it as can be; whoever reads the field says what its range is.
 */
#ifndef ECH_TEXT_JSON_READ_H
#define ECH_TEXT_JSON_READ_H

#include <jansson.h>

/*
 * As json_loadb(). An integer beyond int64 is a real, never one that is in int64's range; what is
 * beyond a double is 9e307 or -9e307. Places in *why are those of text.
 */
json_t *ech_json_read(const char *text, size_t len, size_t flags, json_error_t *why);

#endif
