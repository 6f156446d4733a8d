/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out; see json.h. Pure functions of their arguments. */
#include "src/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"

static ech_status put_ascii(ech_buf *const b, const unsigned char c)
{
    switch (c) {
    case '"':
        return ech_buf_puts(b, "\\\"");
    case '\\':
        return ech_buf_puts(b, "\\\\");
    case '\n':
        return ech_buf_puts(b, "\\n");
    case '\r':
        return ech_buf_puts(b, "\\r");
    case '\t':
        return ech_buf_puts(b, "\\t");
    default:
        break;
    }
    if (c < 0x20 || c == 0x7F) return ech_buf_printf(b, "\\u%04x", c);
    return ech_buf_push(b, (char)c);
}

/* Length of the run from s that can be copied as it is. */
static size_t plain_run(const char *const s, const size_t len)
{
    size_t n = 0;
    while (n < len && (unsigned char)s[n] >= 0x20 && (unsigned char)s[n] < 0x7F && s[n] != '"' &&
           s[n] != '\\') {
        n++;
    }
    return n;
}

ech_status ech_json_put_string(ech_buf *const b, const char *const s, const size_t len)
{
    ECH_TRY(ech_buf_push(b, '"'));
    for (size_t i = 0; i < len;) {
        const size_t run = plain_run(s + i, len - i);
        if (run > 0) {
            ECH_TRY(ech_buf_append(b, s + i, run));
            i += run;
            continue;
        }
        uint32_t cp;
        const int n = ech_utf8_decode(s + i, len - i, &cp);
        if (n == 1) {
            ECH_TRY(put_ascii(b, (unsigned char)s[i++]));
        } else if (n > 1) {
            ECH_TRY(ech_buf_append(b, s + i, (size_t)n));
            i += (size_t)n;
        } else {
            ECH_TRY(ech_buf_puts(b, "\xEF\xBF\xBD"));
            i += ech_utf8_broken_len(s + i, len - i);
        }
    }
    return ech_buf_push(b, '"');
}

ech_status ech_json_put_cstring(ech_buf *const b, const char *const s)
{
    return ech_json_put_string(b, s, strlen(s));
}

ech_status ech_json_put_float(ech_buf *const b, const float v)
{
    if (!isfinite(v)) return ech_buf_puts(b, "null");
    /* 9 digits always suffice for a float; fewer read better. */
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    return ech_buf_puts(b, text);
}
