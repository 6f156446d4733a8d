/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `tojson` of chat templates: Python's json.dumps with its separators, its number forms and
 * its order of keys, without HTML escaping. Origins as in template_repr.c.
 */
#include <math.h>
#include <stdio.h>

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

typedef struct dumper {
    ech_tbuild *b;
    const ech_tjson_style *style;
    size_t level;
} dumper;

static ech_status dump(dumper *d, ech_tval v);

static ech_status put(const dumper *const d, const char *const text, const bool is_data)
{
    return ech_tbuild_add(d->b, text, strlen(text), is_data);
}

/* One character with an escape, or as it is. */
static ech_status dump_char(const dumper *const d, const uint32_t cp, const bool is_data)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    char text[16];
    const char *const simple = cp == 0 || cp > 0x7f ? NULL : memchr(from, (int)cp, sizeof from - 1);
    if (simple != NULL) {
        (void)snprintf(text, sizeof text, "\\%c", to[simple - from]);
    } else if (cp < 0x20 || (cp > 0x7e && cp < 0x10000 && d->style->ensure_ascii)) {
        (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
    } else if (cp >= 0x10000 && d->style->ensure_ascii) {
        const uint32_t v = cp - 0x10000;
        (void)snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + (v >> 10)),
                       (unsigned)(0xdc00 + (v & 0x3ff)));
    } else {
        return ech_tbuild_cp(d->b, cp, is_data);
    }
    return put(d, text, is_data);
}

/* What is written as it is in every style; runs of it are copied at once. */
static bool is_plain(const char c)
{
    return (uint8_t)c >= 0x20 && c != '"' && c != '\\' && (uint8_t)c < 0x7f;
}

/*
 * Each byte keeps its origin, an escape that of the character it stands for; quotes follow the
 * ends.
 */
static ech_status dump_str(const dumper *const d, const ech_tstr *const s)
{
    const bool first = s->len > 0 ? ech_tstr_data_at(s, 0) : s->is_data;
    ECH_TRY(put(d, "\"", first));
    ECH_TRY(ech_tvm_charge(d->b->vm, s->len / 32));
    for (size_t at = 0; at < s->len;) {
        size_t end = at;
        while (end < s->len && is_plain(s->ptr[end])) {
            end++;
        }
        ECH_TRY(ech_tbuild_sub(d->b, s, at, end - at));
        at = end;
        if (at == s->len) break;
        uint32_t cp;
        const int n = ech_utf8_decode(s->ptr + at, s->len - at, &cp);
        ECH_TRY(dump_char(d, cp, ech_tstr_data_at(s, at)));
        at += n > 0 ? (size_t)n : 1;
    }
    return put(d, "\"", s->len > 0 ? ech_tstr_data_at(s, s->len - 1) : first);
}

/*
 * A number or None or a bool, as json.dumps writes it: NaN and the infinities too, which are no
 * JSON but what Python gives. False for anything else.
 */
static bool scalar_text(const ech_tval v, char text[48], bool *const ret_known)
{
    *ret_known = true;
    if (v.kind == ECH_T_NONE)
        strcpy(text, "null");
    else if (v.kind == ECH_T_BOOL)
        strcpy(text, v.as.b ? "true" : "false");
    else if (v.kind == ECH_T_INT)
        (void)sprintf(text, "%lld", (long long)v.as.i);
    else if (v.kind == ECH_T_FLOAT && isnan(v.as.f))
        strcpy(text, "NaN");
    else if (v.kind == ECH_T_FLOAT && isinf(v.as.f))
        strcpy(text, v.as.f < 0 ? "-Infinity" : "Infinity");
    else if (v.kind == ECH_T_FLOAT)
        text[ech_tfloat_repr(v.as.f, text)] = '\0';
    else
        *ret_known = false;
    return *ret_known;
}

/* Without an indent everything stands on one line, and the separators have their own spaces. */
static ech_status new_line(const dumper *const d, const bool is_data)
{
    if (d->style->indent == NULL) return ECH_OK;
    ECH_TRY(put(d, "\n", is_data));
    for (size_t i = 0; i < d->level; i++) {
        ECH_TRY(ech_tvm_charge(d->b->vm, 1));
        ECH_TRY(ech_tbuild_str(d->b, d->style->indent));
    }
    return ECH_OK;
}

static ech_status dump_list(dumper *const d, const ech_tval v)
{
    if (v.as.seq->n == 0) return put(d, "[]", v.is_data);
    ECH_TRY(put(d, "[", v.is_data));
    d->level++;
    for (size_t i = 0; i < v.as.seq->n; i++) {
        if (i > 0)
            ECH_TRY(
                ech_tbuild_add(d->b, d->style->item_sep->ptr, d->style->item_sep->len, v.is_data));
        ECH_TRY(new_line(d, v.is_data));
        ECH_TRY(dump(d, v.as.seq->items[i]));
    }
    d->level--;
    ECH_TRY(new_line(d, v.is_data));
    return put(d, "]", v.is_data);
}

/* Python turns keys that are numbers, bools or None into strings; others it refuses. */
static ech_status dump_key(dumper *const d, const ech_tval key)
{
    char text[48];
    bool known;
    if (key.kind == ECH_T_STR) return dump_str(d, key.as.str);
    if (key.kind == ECH_T_BIGINT) {
        ECH_TRY(put(d, "\"", key.is_data));
        ECH_TRY(ech_tbuild_str(d->b, key.as.str));
        return put(d, "\"", key.is_data);
    }
    if (!scalar_text(key, text, &known)) {
        return ech_tvm_raise(d->b->vm, "keys must be str, int, float, bool or None, not %s",
                             ech_tv_type(key));
    }
    ECH_TRY(put(d, "\"", key.is_data));
    ECH_TRY(put(d, text, key.is_data));
    return put(d, "\"", key.is_data);
}

/* The entries in the order to write them: sorted by key when that is asked for. */
static ech_status entry_order(const dumper *const d, const ech_tdict *const dict,
                              ech_tval **const ret)
{
    ech_tval *order, *keys;
    ECH_TRY(ech_tvm_alloc(d->b->vm, dict->n, sizeof *order, &order));
    ECH_TRY(ech_tvm_alloc(d->b->vm, dict->n, sizeof *keys, &keys));
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = ech_tv_int((int64_t)i);
        keys[i] = dict->entries[i].key;
    }
    if (d->style->sort_keys) ECH_TRY(ech_tseq_sort(d->b->vm, order, keys, dict->n, false));
    *ret = order;
    return ECH_OK;
}

/* In the order of the template or of the arguments: clients and models see what they wrote. */
static ech_status dump_dict(dumper *const d, const ech_tval v)
{
    const ech_tdict *const dict = v.as.dict;
    if (dict->n == 0) return put(d, "{}", v.is_data);
    ech_tval *order;
    ECH_TRY(entry_order(d, dict, &order));
    ECH_TRY(put(d, "{", v.is_data));
    d->level++;
    for (size_t i = 0; i < dict->n; i++) {
        const ech_tentry *const e = &dict->entries[order[i].as.i];
        if (i > 0)
            ECH_TRY(
                ech_tbuild_add(d->b, d->style->item_sep->ptr, d->style->item_sep->len, v.is_data));
        ECH_TRY(new_line(d, v.is_data));
        ECH_TRY(dump_key(d, e->key));
        ECH_TRY(ech_tbuild_add(d->b, d->style->key_sep->ptr, d->style->key_sep->len, v.is_data));
        ECH_TRY(dump(d, e->value));
    }
    d->level--;
    ECH_TRY(new_line(d, v.is_data));
    return put(d, "}", v.is_data);
}

static ech_status dump_any(dumper *const d, const ech_tval v)
{
    char text[48];
    bool known;
    switch (v.kind) {
    case ECH_T_STR:
        return dump_str(d, v.as.str);
    case ECH_T_BIGINT:
        return ech_tbuild_str(d->b, v.as.str);
    case ECH_T_LIST:
    case ECH_T_TUPLE:
        return dump_list(d, v);
    case ECH_T_DICT:
        return dump_dict(d, v);
    default:
        break;
    }
    if (v.spelling != NULL) return put(d, v.spelling, v.is_data);
    if (scalar_text(v, text, &known)) return put(d, text, v.is_data);
    return ech_tvm_raise(d->b->vm, "Object of type %s is not JSON serializable", ech_tv_type(v));
}

/* The depth is bounded where values are entered, not where they are made. */
static ech_status dump(dumper *const d, const ech_tval v)
{
    ECH_TRY(ech_tvm_enter(d->b->vm));
    ECH_TRY(dump_any(d, v));
    ech_tvm_leave(d->b->vm);
    return ECH_OK;
}

ech_status ech_tjson_dump(ech_tbuild *const b, const ech_tjson_style *const style, const ech_tval v)
{
    dumper d = { .b = b, .style = style };
    return dump(&d, v);
}
