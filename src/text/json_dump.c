/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a tree of jansson's; see json_dump.h. The tree is as deep as its reader allowed (2048
 * levels), which bounds the recursion.
 */
#include "src/text/json_dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/json.h"

/*
 * The integers beyond int64 that json_read.h makes reals of, as far as u64 goes. 2^64 is spelled as
 * 2^64 - 1, which reads back the same: that is the bound that schemas have, and a model should see
 * what was written.
 */
static bool spell_integer(const double v, char text[const ECH_JSON_DOUBLE_BYTES])
{
    if (v != floor(v) || v < 0x1p63 || v > 0x1p64) return false;
    (void)snprintf(text, ECH_JSON_DOUBLE_BYTES, "%.0f", v);
    if (v == 0x1p64) (void)strcpy(text, "18446744073709551615");
    return true;
}

void ech_json_spell_double(const double v, char text[const ECH_JSON_DOUBLE_BYTES])
{
    if (spell_integer(v, text)) return;
    /* 15 digits give back whatever was spelled with as many; 17 give back every double. */
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(text, ECH_JSON_DOUBLE_BYTES, "%.*g", precision, v);
        if (strtod(text, NULL) == v) break;
    }
    /* 3 would read back as an integer, and some templates print those differently. */
    if (strpbrk(text, ".e") == NULL) (void)strcat(text, ".0");
}

static ech_status dump_array(ech_buf *const b, const json_t *const v)
{
    ECH_TRY(ech_buf_push(b, '['));
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(ech_json_dump(b, json_array_get(v, i)));
    }
    return ech_buf_push(b, ']');
}

static ech_status dump_object(ech_buf *const b, const json_t *const v)
{
    const char *key;
    size_t len;
    json_t *member;
    bool is_first = true;
    ECH_TRY(ech_buf_push(b, '{'));
    json_object_keylen_foreach((json_t *)(uintptr_t)v, key, len, member)
    {
        if (!is_first) ECH_TRY(ech_buf_push(b, ','));
        is_first = false;
        ECH_TRY(ech_json_put_string(b, key, len));
        ECH_TRY(ech_buf_push(b, ':'));
        ECH_TRY(ech_json_dump(b, member));
    }
    return ech_buf_push(b, '}');
}

ech_status ech_json_dump(ech_buf *const b, const json_t *const v)
{
    char number[ECH_JSON_DOUBLE_BYTES];
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return dump_object(b, v);
    case JSON_ARRAY:
        return dump_array(b, v);
    case JSON_STRING:
        return ech_json_put_string(b, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return ech_buf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        ech_json_spell_double(json_real_value(v), number);
        return ech_buf_puts(b, number);
    case JSON_TRUE:
        return ech_buf_puts(b, "true");
    case JSON_FALSE:
        return ech_buf_puts(b, "false");
    case JSON_NULL:
        break;
    }
    return ech_buf_puts(b, "null");
}
