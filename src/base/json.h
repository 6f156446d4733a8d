/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON into a buffer. Reading is jansson's; writing is here because an answer is built
 * piece by piece as events come, and a tree in between would be copied twice. ENOMEM is the only
 * failure.
 */
#ifndef ECH_BASE_JSON_H
#define ECH_BASE_JSON_H

#include "src/base/buf.h"

/* A string in quotes; bytes that are no UTF-8 become U+FFFD, so that the result is always JSON. */
ech_status ech_json_put_string(ech_buf *b, const char *s, size_t len);
ech_status ech_json_put_cstring(ech_buf *b, const char *s);
/* A float as short as it can be and still read back the same; NaN and infinities as null. */
ech_status ech_json_put_float(ech_buf *b, float v);

#endif
