/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enum and const, and how a JSON value is spelled: strings with the escapes JSON demands and no
 * others, numbers as they were read, whitespace between the tokens of arrays and objects as
 * anywhere. Values that the rest of the schema refuses are left out.
 */
#include "src/text/constraint_schema_parts.h"

#include <stdio.h>

#include "src/text/json_dump.h"

/*
 * The one spelling in which a literal may be written. Were any escape allowed, a two-letter word
 * would have thousands of spellings, and a model that began one of them could be held to it.
 */
ech_status ech_schema_quote(ech_schema *const s, const ech_str text, ech_buf *const out)
{
    static const char ESCAPES[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    ech_status rc = ech_buf_push(out, '"');
    for (size_t i = 0; i < text.len && rc == ECH_OK; i++) {
        const char c = text.ptr[i];
        const char *short_form = NULL;
        for (size_t k = 0; k + 1 < sizeof ESCAPES; k += 2) {
            if (ESCAPES[k] == c) short_form = &ESCAPES[k + 1];
        }
        if (short_form != NULL)
            rc = ech_buf_printf(out, "\\%c", *short_form);
        else if ((unsigned char)c < 0x20)
            rc = ech_buf_printf(out, "\\u%04x", (unsigned char)c);
        else
            rc = ech_buf_push(out, c);
    }
    if (rc == ECH_OK) rc = ech_buf_push(out, '"');
    return rc == ECH_OK ? rc : ech_schema_fail(s, ECH_ENOMEM, NULL, "");
}

/*
 * Numbers in the shortest form that reads back the same: what Python and JavaScript print, so an
 * answer compares equal as text too.
 */
static ech_status scalar_expr(ech_schema *const s, const json_t *const value, ech_cx *const ret)
{
    ech_buf text = { 0 };
    ech_status rc = ECH_OK;
    if (json_is_string(value)) {
        const ech_str str = { json_string_value(value), json_string_length(value) };
        rc = ech_schema_quote(s, str, &text);
    } else {
        char *const dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        char shorter[40] = "";
        if (json_is_real(value) && json_real_value(value) >= 0x1p63) {
            ech_json_spell_double(json_real_value(value), shorter);
        } else if (json_is_real(value)) {
            /* The shortest spelling that reads back the same. */
            for (int precision = 1; precision <= 17; precision++) {
                (void)snprintf(shorter, sizeof shorter, "%.*g", precision, json_real_value(value));
                if (strtod(shorter, NULL) == json_real_value(value)) break;
            }
        }
        rc = dump == NULL ? ECH_ENOMEM : ech_buf_puts(&text, shorter[0] != 0 ? shorter : dump);
        free(dump);
    }
    if (rc == ECH_OK) *ret = ech_cx_lit(s->g, text.data, text.len);
    ech_buf_fini(&text);
    return rc == ECH_OK ? rc : ech_schema_fail(s, rc, NULL, "");
}

static ech_status value_expr(ech_schema *s, const json_t *value, int depth, ech_cx *ret);

/*
 * Whitespace may stand wherever it may in a value that no literal bounds: models indent by habit.
 */
static ech_status array_value(ech_schema *const s, const json_t *const value, const int depth,
                              ech_cx *const out)
{
    ech_cx_graph *const g = s->g;
    for (size_t i = 0; i < json_array_size(value); i++) {
        ech_cx item = ECH_CX_FAIL;
        ECH_TRY(value_expr(s, json_array_get(value, i), depth, &item));
        const ech_cx comma = i == 0 ? ECH_CX_EMPTY : ech_cx_range(g, ',', ',');
        const ech_cx parts[5] = { *out, comma, i == 0 ? ECH_CX_EMPTY : s->space, item, s->space };
        *out = ech_cx_seq(g, parts, 5);
    }
    return ECH_OK;
}

/* Keys in the literal's own order, which is rule 2 of docs/structured-output.md for values. */
static ech_status object_value(ech_schema *const s, const json_t *const value, const int depth,
                               ech_cx *const out)
{
    ech_cx_graph *const g = s->g;
    const char *key;
    size_t len;
    json_t *member;
    bool is_first = true;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, len, member)
    {
        ech_buf quoted = { 0 };
        ech_cx item = ECH_CX_FAIL;
        ech_status rc = ech_schema_quote(s, (ech_str){ key, len }, &quoted);
        const ech_cx name = rc == ECH_OK ? ech_cx_lit(g, quoted.data, quoted.len) : ECH_CX_FAIL;
        ech_buf_fini(&quoted);
        if (rc == ECH_OK) rc = value_expr(s, member, depth, &item);
        ECH_TRY(rc);
        const ech_cx parts[9] = {
            *out,
            is_first ? ECH_CX_EMPTY : ech_cx_range(g, ',', ','),
            is_first ? ECH_CX_EMPTY : s->space,
            name,
            s->space,
            ech_cx_range(g, ':', ':'),
            s->space,
            item,
            s->space,
        };
        *out = ech_cx_seq(g, parts, 9);
        is_first = false;
    }
    return ECH_OK;
}

static ech_status value_expr(ech_schema *const s, const json_t *const value, const int depth,
                             ech_cx *const ret)
{
    const bool is_array = json_is_array(value);
    if (!is_array && !json_is_object(value)) return scalar_expr(s, value, ret);
    if (depth > ECH_SCHEMA_MAX_NESTING) {
        return ech_schema_fail(s, ECH_ELIMIT, NULL, "a value nests over 120 deep");
    }
    ech_cx body = s->space;
    ECH_TRY(is_array ? array_value(s, value, depth + 1, &body)
                     : object_value(s, value, depth + 1, &body));
    *ret = ech_cx_seq3(s->g, ech_cx_range(s->g, is_array ? '[' : '{', is_array ? '[' : '{'), body,
                       ech_cx_range(s->g, is_array ? ']' : '}', is_array ? ']' : '}'));
    return ech_cx_graph_check(s->g, s->err);
}

/*
 * Whether the rest of the schema lets a value of enum or const through. A value that the rest
 * refuses must not be offered, and one that can't be judged must not be guessed: both would break
 * the promise that every answer validates.
 */
static ech_status is_admitted(ech_schema *const s, const json_t *const schema,
                              const json_t *const value, bool *const ret)
{
    const int answer = ech_schema_admits(s, schema, value);
    if (answer < 0) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, NULL,
                               "enum or const beside these keywords can't be enforced");
    }
    *ret = answer == 1;
    return ECH_OK;
}

/* Strings are collected for one tree; other values become an alternative each. */
static ech_status add_value(ech_schema *const s, const json_t *const value, ech_buf *const words,
                            ech_cx *const out)
{
    if (json_is_string(value)) {
        const ech_str str = { json_string_value(value), json_string_length(value) };
        return ech_schema_quote(s, str, words);
    }
    ech_cx one = ECH_CX_FAIL;
    ECH_TRY(value_expr(s, value, 0, &one));
    *out = ech_cx_alt2(s->g, *out, one);
    return ECH_OK;
}

/*
 * list[0 .. n): the values, or one value for const. Strings share one tree, so that 20 000 country
 * names cost a node per letter and not an alternative each. The buffer moves while it grows, hence
 * ends first and views when it is complete.
 */
static ech_status literal_list(ech_schema *const s, const json_t *const schema,
                               const json_t *const list, ech_cx *const ret)
{
    const size_t n = json_array_size(list);
    ech_buf text = { 0 };
    size_t *const ends = malloc((n + 1) * sizeof *ends);
    ech_str *const words = malloc((n + 1) * sizeof *words);
    ech_cx out = ECH_CX_FAIL;
    size_t n_words = 0;
    ech_status rc =
        ends != NULL && words != NULL ? ECH_OK : ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    for (size_t i = 0; i < n && rc == ECH_OK; i++) {
        const json_t *const value = json_array_get(list, i);
        bool admitted = false;
        rc = is_admitted(s, schema, value, &admitted);
        if (rc != ECH_OK || !admitted) continue;
        rc = add_value(s, value, &text, &out);
        if (json_is_string(value)) ends[n_words++] = text.len;
    }
    for (size_t i = 0, from = 0; i < n_words && rc == ECH_OK; from = ends[i++]) {
        words[i] = (ech_str){ text.data + from, ends[i] - from };
    }
    if (rc == ECH_OK) *ret = ech_cx_alt2(s->g, out, ech_cx_words(s->g, words, n_words));
    ech_buf_fini(&text);
    free(ends);
    free(words);
    return rc == ECH_OK ? ech_cx_graph_check(s->g, s->err) : rc;
}

ech_status ech_schema_literals(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    const json_t *list = json_object_get(schema, "enum");
    if (list != NULL && !json_is_array(list)) {
        return ech_schema_fail(s, ECH_EFORMAT, "enum", "it must be an array");
    }
    if (json_array_size(list) > ECH_SCHEMA_MAX_LIST) {
        return ech_schema_fail(s, ECH_ELIMIT, "enum", "it has over 20000 values");
    }
    if (list != NULL) return literal_list(s, schema, list, ret);
    json_t *const one = json_pack("[O]", json_object_get(schema, "const"));
    if (one == NULL) return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    const ech_status rc = literal_list(s, schema, one, ret);
    json_decref(one);
    return rc;
}
