/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: Python's str() and repr(), and markupsafe's escape().
 *
 * A template that prints a list or a dict prints what Python would, to the last quote: models were
 * trained on such prompts, and one byte more is another token.
 *
 * Invariant: the bytes that a value is printed with are data when the value is: the brackets of a
 * list that came from the arguments, the quotes and escapes of a string, the digits of a number. So
 * nobody can write a control token by having a list printed around it.
 *
 * Everything is appended to a builder of the rendering, whose limits bound the length; nesting is
 * bounded by ech_tvm_enter(). Thread: the rendering's.
 *
 * Left out: addresses, and the names of Python's classes for what only Python has.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"
#include "src/text/template_text.h"

static ech_status put(ech_tbuild *const b, const char *const text, const bool is_data)
{
    return ech_tbuild_add(b, text, strlen(text), is_data);
}

/* ---- numbers ---- */

/*
 * The shortest digits that read back as the same double, and where the point stands: what Python's
 * repr() starts from. 15 digits always survive a round trip through text, so only 15, 16 and 17 are
 * tried; zeros at the end are no digits of the shortest form. 17 always do. The sign is the
 * caller's, and so is zero's, whose digit is one "0". The number printed has the form d.ddde±xx, so
 * the point stands one behind the exponent.
 */
static void shortest_digits(const double f, char digits[24], int *const ret_point)
{
    char text[40];
    for (int p = 14; p <= 16; p++) {
        (void)snprintf(text, sizeof text, "%.*e", p, f);
        if (strtod(text, NULL) == f) break;
    }
    size_t n = 0;
    const char *s = text;
    for (; *s != 'e'; s++) {
        if (*s != '.' && *s != '-') digits[n++] = *s;
    }
    while (n > 1 && digits[n - 1] == '0') {
        n--;
    }
    digits[n] = '\0';
    *ret_point = atoi(s + 1) + 1;
}

/*
 * Plain notation from 1e-4 up to below 1e16, as Python has it; always with a point or an exponent.
 * At most 24 characters. The zeros between the digits and the point are cut from a row of as many
 * as can be needed.
 */
size_t ech_tfloat_repr(const double f, char *const out)
{
    if (isnan(f)) return (size_t)sprintf(out, "nan");
    if (isinf(f)) return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
    char digits[24];
    int point;
    shortest_digits(fabs(f), digits, &point);
    const int n = (int)strlen(digits);
    char *p = out;
    if (signbit(f)) *p++ = '-';
    if (point > 16 || point < -3) {
        p += sprintf(p, "%c%s%s", digits[0], n > 1 ? "." : "", digits + 1);
        p += sprintf(p, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else if (point <= 0) {
        p += sprintf(p, "0.%.*s%s", -point, "0000", digits);
    } else if (n <= point) {
        p += sprintf(p, "%s%.*s.0", digits, point - n, "0000000000000000");
    } else {
        p += sprintf(p, "%.*s.%s", point, digits, digits + point);
    }
    return (size_t)(p - out);
}

/*
 * Numbers that kept their spelling print it; floats switch to an exponent where repr() does, below
 * 1e-4 and from 1e16 on. A bool is asked for first: it is an integer otherwise. A spelling is there
 * only where it is to be kept.
 */
static ech_status print_number(ech_tbuild *const b, const ech_tval v)
{
    char text[48];
    if (v.kind == ECH_T_BOOL) return put(b, v.as.b ? "True" : "False", v.is_data);
    if (v.spelling != NULL) return put(b, v.spelling, v.is_data);
    if (v.kind == ECH_T_INT)
        (void)snprintf(text, sizeof text, "%lld", (long long)v.as.i);
    else
        text[ech_tfloat_repr(v.as.f, text)] = '\0';
    return put(b, text, v.is_data);
}

/* ---- strings ---- */

/*
 * Python escapes what isn't printable, by its own table of categories: \x, \u or \U by size. The
 * four with a short form come first. Of the two quotes only the one around the text is escaped. Not
 * printable are control and format characters, every blank but U+0020, private use, and what
 * Unicode has not assigned.
 */
static ech_status repr_char(ech_tbuild *const b, const uint32_t cp, const char quote,
                            const bool is_data)
{
    char text[16];
    switch (cp) {
    case '\n':
        return put(b, "\\n", is_data);
    case '\r':
        return put(b, "\\r", is_data);
    case '\t':
        return put(b, "\\t", is_data);
    case '\\':
        return put(b, "\\\\", is_data);
    default:
        break;
    }
    if (cp == (uint8_t)quote) ECH_TRY(put(b, "\\", is_data));
    if (ech_ttext_is_printable(cp)) return ech_tbuild_cp(b, cp, is_data);
    (void)snprintf(text, sizeof text,
                   cp < 0x100     ? "\\x%02x"
                   : cp < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                   (unsigned)cp);
    return put(b, text, is_data);
}

/*
 * Single quotes, unless the text has some and no double ones. Each byte keeps its own origin; the
 * quotes have that of the character beside them, so a user's text can't end in a quote of the
 * template. The empty text has one origin for all. Markup shows itself as Markup('…').
 */
static ech_status repr_str(ech_tbuild *const b, const ech_tstr *const s)
{
    const bool single = memchr(s->ptr, '\'', s->len) != NULL,
               both = memchr(s->ptr, '"', s->len) != NULL;
    const char quote = single && !both ? '"' : '\'';
    const bool is_data = s->len > 0 ? ech_tstr_data_at(s, 0) : s->is_data;
    const char q[2] = { quote, '\0' };
    if (s->is_markup) ECH_TRY(put(b, "Markup(", is_data));
    ECH_TRY(put(b, q, is_data));
    ECH_TRY(ech_tvm_charge(b->vm, s->len / 8));
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        const int n = ech_utf8_decode(s->ptr + at, s->len - at, &cp);
        ECH_TRY(repr_char(b, cp, quote, ech_tstr_data_at(s, at)));
        /* Values are valid UTF-8; the step of one only keeps the loop going. */
        at += n > 0 ? (size_t)n : 1;
    }
    ECH_TRY(put(b, q, s->len > 0 ? ech_tstr_data_at(s, s->len - 1) : is_data));
    return s->is_markup ? put(b, ")", is_data) : ECH_OK;
}

/* ---- containers ---- */

/*
 * Brackets and commas have the list's origin, each item its own. Items by repr(), so texts inside
 * have quotes.
 */
static ech_status repr_items(ech_tbuild *const b, const ech_tseq *const seq, const bool is_data)
{
    for (size_t i = 0; i < seq->n; i++) {
        if (i > 0) ECH_TRY(put(b, ", ", is_data));
        ECH_TRY(ech_tv_repr(b, seq->items[i]));
    }
    return ECH_OK;
}

/* One item needs its comma. (1) would be a number in parentheses. */
static ech_status repr_tuple(ech_tbuild *const b, const ech_tval v)
{
    ECH_TRY(put(b, "(", v.is_data));
    ECH_TRY(repr_items(b, v.as.seq, v.is_data));
    return put(b, v.as.seq->n == 1 ? ",)" : ")", v.is_data);
}

/* In the order of insertion; keys by repr() as well, for they need not be text. */
static ech_status repr_dict(ech_tbuild *const b, const ech_tdict *const d, const bool is_data)
{
    ECH_TRY(put(b, "{", is_data));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0) ECH_TRY(put(b, ", ", is_data));
        ECH_TRY(ech_tv_repr(b, d->entries[i].key));
        ECH_TRY(put(b, ": ", is_data));
        ECH_TRY(ech_tv_repr(b, d->entries[i].value));
    }
    return put(b, "}", is_data);
}

/* As Python names them; templates that print a view by mistake look the same in both. */
static ech_status repr_view(ech_tbuild *const b, const ech_tval v)
{
    static const char *const names[] = { "dict_keys([", "dict_values([", "dict_items([" };
    ech_tseq *items;
    ECH_TRY(put(b, names[v.as.view->kind], v.is_data));
    ECH_TRY(ech_tv_to_list(b->vm, v, &items));
    ECH_TRY(repr_items(b, items, v.is_data));
    return put(b, "])", v.is_data);
}

/*
 * The step is left out when it is 1, as Python does. Three numbers of at most 20 characters fit. A
 * range comes from the template, so its text is the template's.
 */
static ech_status repr_range(ech_tbuild *const b, const ech_trange *const r)
{
    char text[100];
    if (r->step == 1)
        (void)snprintf(text, sizeof text, "range(%lld, %lld)", (long long)r->start,
                       (long long)r->stop);
    else
        (void)snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)r->start,
                       (long long)r->stop, (long long)r->step);
    return put(b, text, false);
}

/*
 * Things that a template can print but nobody should: functions, macros, loops. Addresses are left
 * out, so the text is the same every time. Names are cut, so that the buffer is enough. The text is
 * the template's: none of them comes with the arguments.
 */
static ech_status repr_object(ech_tbuild *const b, const ech_tval v)
{
    char text[120];
    switch (v.kind) {
    case ECH_T_MACRO:
        if (v.as.macro->node->kind != ECH_N_MACRO) return put(b, "<Macro anonymous>", false);
        (void)snprintf(text, sizeof text, "<Macro '%.80s'>", v.as.macro->node->name->ptr);
        return put(b, text, false);
    case ECH_T_FUNC:
        (void)snprintf(text, sizeof text, "<function %.80s>", v.as.func->b->name);
        return put(b, text, false);
    case ECH_T_ITER:
        return put(b, "<generator object>", false);
    case ECH_T_LOOP: {
        const ech_tstr length = { .ptr = "length", .len = 6 };
        ech_tval n;
        ECH_TRY(ech_tloop_attr(b->vm, v, &length, &n));
        (void)snprintf(text, sizeof text, "<LoopContext %lld/%lld>",
                       (long long)v.as.loop->index0 + 1, (long long)n.as.i);
        return put(b, text, false);
    }
    default:
        (void)snprintf(text, sizeof text, "<%s object>", ech_tv_type(v));
        return put(b, text, false);
    }
}

/* An undefined value has a repr inside of a list, though it prints as nothing by itself. */
static ech_status repr_any(ech_tbuild *const b, const ech_tval v)
{
    switch (v.kind) {
    case ECH_T_UNDEFINED:
        return put(b, "Undefined", false);
    case ECH_T_NONE:
        return put(b, "None", v.is_data);
    case ECH_T_BOOL:
    case ECH_T_INT:
    case ECH_T_FLOAT:
        return print_number(b, v);
    case ECH_T_BIGINT:
        return ech_tbuild_str(b, v.as.str);
    case ECH_T_STR:
        return repr_str(b, v.as.str);
    case ECH_T_TUPLE:
        return repr_tuple(b, v);
    case ECH_T_LIST:
        ECH_TRY(put(b, "[", v.is_data));
        ECH_TRY(repr_items(b, v.as.seq, v.is_data));
        return put(b, "]", v.is_data);
    case ECH_T_DICT:
        return repr_dict(b, v.as.dict, v.is_data);
    case ECH_T_VIEW:
        return repr_view(b, v);
    case ECH_T_RANGE:
        return repr_range(b, v.as.range);
    case ECH_T_NAMESPACE:
        ECH_TRY(put(b, "<Namespace ", false));
        ECH_TRY(repr_dict(b, v.as.dict, false));
        return put(b, ">", false);
    default:
        return repr_object(b, v);
    }
}

/*
 * The depth is bounded here, for values that a template nests as for those it is given. After an
 * error the depth stays as it is: the rendering is over.
 */
ech_status ech_tv_repr(ech_tbuild *const b, const ech_tval v)
{
    ECH_TRY(ech_tvm_enter(b->vm));
    ECH_TRY(repr_any(b, v));
    ech_tvm_leave(b->vm);
    return ECH_OK;
}

/*
 * str(): text as it is, everything else by repr(). Undefined values print nothing. It is what {{ }}
 * does with a value.
 */
ech_status ech_tv_print(ech_tbuild *const b, const ech_tval v)
{
    if (v.kind == ECH_T_STR) return ech_tbuild_str(b, v.as.str);
    if (v.kind == ECH_T_UNDEFINED) return ECH_OK;
    return ech_tv_repr(b, v);
}

/*
 * soft keeps text that is markup as it is. Text that needs no change is given back itself and not
 * copied, for strings never change.
 */
ech_status ech_tv_to_str(ech_tvm *const vm, const ech_tval v, const bool soft, ech_tstr **const ret)
{
    ech_tval s = v;
    if (v.kind == ECH_T_STR) {
        if (v.as.str->is_markup && !soft) ECH_TRY(ech_tv_marked(vm, v.as.str, false, &s));
    } else {
        ech_tbuild b = { .vm = vm };
        ECH_TRY(ech_tv_print(&b, v));
        ECH_TRY(ech_tbuild_done(&b, &s));
    }
    *ret = s.as.str;
    return ECH_OK;
}

/*
 * markupsafe's five characters, and `&` first of all; text that is markup already stays. Done in
 * one pass, so the order of the five doesn't matter, as it would in five replacements. What an
 * escaped character becomes has that character's origin. Plain stretches are copied as a whole.
 */
ech_status ech_tv_escape(ech_tvm *const vm, const ech_tval v, ech_tval *const ret)
{
    ech_tstr *s;
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_tv_to_str(vm, v, true, &s));
    if (s->is_markup) {
        *ret = ech_tv_str(s);
        return ECH_OK;
    }
    size_t from = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char c = s->ptr[i];
        const char *const to = c == '&'    ? "&amp;"
                               : c == '<'  ? "&lt;"
                               : c == '>'  ? "&gt;"
                               : c == '\'' ? "&#39;"
                               : c == '"'  ? "&#34;"
                                           : NULL;
        if (to == NULL) continue;
        ECH_TRY(ech_tbuild_sub(&b, s, from, i - from));
        ECH_TRY(put(&b, to, ech_tstr_data_at(s, i)));
        from = i + 1;
    }
    ECH_TRY(ech_tbuild_sub(&b, s, from, s->len - from));
    ECH_TRY(ech_tbuild_done(&b, ret));
    ret->as.str->is_markup = true;
    return ECH_OK;
}

/*
 * One level deep, as markupsafe wraps what str's methods return. The list was made by the method
 * and belongs to nobody else yet, so it is changed in place.
 */
ech_status ech_tv_mark_result(ech_tvm *const vm, ech_tval *const v)
{
    if (v->kind == ECH_T_STR) return ech_tv_marked(vm, v->as.str, true, v);
    if (v->kind != ECH_T_LIST && v->kind != ECH_T_TUPLE) return ECH_OK;
    for (size_t i = 0; i < v->as.seq->n; i++) {
        ech_tval *const item = &v->as.seq->items[i];
        if (item->kind == ECH_T_STR) ECH_TRY(ech_tv_marked(vm, item->as.str, true, item));
    }
    return ECH_OK;
}
