/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's two ways to format: `'…' % values` and `'…'.format(…)`, and the format specification
 * that both come down to: [[fill]align][sign][#][0][width][grouping][.precision][type].
 *
 * Padding and signs have the origin of the value they surround; the format's own text has its own.
 *
 * The reference is CPython's: messages, rounding and the corner cases (0 before the width, a
 * precision of integers under %, `g` without a type) are its. glibc's printf rounds as CPython
 * does, correctly, which is why digits are made by it and only arranged here.
 *
 * Bounds: width and precision at most MAX_WIDTH, and what is written goes through ech_tbuild, which
 * knows max_output. Integers here have 64 bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

/* Width and precision at most: a hostile template may ask for any. */
#define MAX_WIDTH 1000000

typedef struct spec {
    uint32_t fill; /* 0: a blank, or a zero */
    char align;    /* < > ^ = or 0 */
    char sign;     /* + - blank or 0 */
    bool alt, zero;
    int64_t width, precision; /* -1: not given */
    char grouping;            /* , _ or 0 */
    char type;                /* 0: none */
} spec;

/* ---- numbers to digits ---- */

/* Writes u in a base; returns the length. out needs 64 bytes, for base 2. */
static size_t to_base(uint64_t u, const unsigned base, const bool upper, char *const out)
{
    char rev[66];
    size_t n = 0;
    do {
        rev[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u > 0);
    for (size_t i = 0; i < n; i++) {
        out[i] = rev[n - 1 - i];
    }
    return n;
}

/*
 * Digits as `g` shows them: p significant ones, an exponent when the point is far away. CPython's
 * rule: with p significant digits and a decimal point after digit `point`, an exponent is used
 * below 1e-4 and from 10^p on; without a type from 10^(p-1) on, so that a float shows ".0". The
 * first print is only there to learn the exponent after rounding (9.99 becomes 1.0e+01).
 */
static void general_digits(ech_buf *const b, const double f, const int64_t p, const char type,
                           const bool alt)
{
    char *text = NULL;
    const int n = asprintf(&text, "%.*e", (int)(p - 1), f);
    if (n < 0) return;
    char *const e = strchr(text, 'e');
    const int point = atoi(e + 1) + 1;
    const bool exponent = point <= -4 || point > p - (type == 0 ? 1 : 0);
    free(text);
    text = NULL;
    if (asprintf(&text, "%.*f", (int)(p - point < 0 ? 0 : p - point), f) < 0) return;
    if (exponent) {
        free(text);
        text = NULL;
        if (asprintf(&text, "%.*e", (int)(p - 1), f) < 0) return;
    }
    char *const tail = strchr(text, 'e');
    size_t len = tail != NULL ? (size_t)(tail - text) : strlen(text);
    if (memchr(text, '.', len) != NULL && !alt) {
        while (text[len - 1] == '0') {
            len--;
        }
        if (text[len - 1] == '.') len--;
    }
    (void)ech_buf_append(b, text, len);
    if (type == 0 && !exponent && memchr(text, '.', len) == NULL) (void)ech_buf_puts(b, ".0");
    if (tail != NULL) (void)ech_buf_puts(b, tail);
    free(text);
}

/*
 * The magnitude of a float by type; sign and padding come later. f is not negative. A float without
 * type and precision is repr(), the shortest text that reads back. Upper-case types are written in
 * lower case and raised at the end, "inf" and "nan" too.
 */
static void float_digits(ech_buf *const b, const double f, const spec *const s)
{
    const char type = s->type;
    const char lower = (char)(type | 32);
    int64_t p = s->precision;
    if (isnan(f) || isinf(f)) {
        (void)ech_buf_puts(b, isnan(f) ? "nan" : "inf");
    } else if (type == 0 && p < 0) {
        char text[48];
        (void)ech_buf_append(b, text, ech_tfloat_repr(f, text));
    } else if (lower == 'f' || type == '%') {
        (void)ech_buf_printf(b, s->alt ? "%#.*f" : "%.*f", (int)(p < 0 ? 6 : p),
                             type == '%' ? f * 100 : f);
    } else if (lower == 'e') {
        (void)ech_buf_printf(b, s->alt ? "%#.*e" : "%.*e", (int)(p < 0 ? 6 : p), f);
    } else if (f == 0) {
        (void)ech_buf_puts(b, type == 0 ? "0.0" : "0");
    } else {
        if (p < 0) p = 6;
        general_digits(b, f, p == 0 ? 1 : p, type, s->alt);
    }
    for (size_t i = 0; type != 0 && type != '%' && type == (type & ~32) && i < b->len; i++) {
        if (b->data[i] >= 'a' && b->data[i] <= 'z') b->data[i] = (char)(b->data[i] & ~32);
    }
}

/*
 * Puts separators between groups of the whole part's digits. Runs over the digits only: sign and
 * padding come later, so zeros of padding are not grouped.
 */
static void group_digits(ech_buf *const b, const char sep, const size_t group)
{
    size_t whole = 0;
    while (whole < b->len && b->data[whole] != '.' && b->data[whole] != 'e' &&
           b->data[whole] != '%') {
        whole++;
    }
    ech_buf out = { 0 };
    for (size_t i = 0; i < b->len; i++) {
        if (i > 0 && i < whole && (whole - i) % group == 0) (void)ech_buf_push(&out, sep);
        (void)ech_buf_push(&out, b->data[i]);
    }
    ech_buf_fini(b);
    *b = out;
}

/*
 * Sign, prefix and digits, padded. `=` puts the padding between sign and digits. head has room for
 * a sign and "0x".
 */
static ech_status emit_number(ech_tbuild *const out, const spec *const s, const bool negative,
                              const char *const prefix, const ech_buf *const digits,
                              const bool is_data)
{
    char head[8];
    const char *const sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    const size_t head_len = (size_t)snprintf(head, sizeof head, "%s%s", sign, prefix);
    const size_t tail_len = s->type == '%' ? 1 : 0;
    const size_t len = head_len + digits->len + tail_len;
    const size_t pad = s->width > (int64_t)len ? (size_t)s->width - len : 0;
    const char align = s->align != 0 ? s->align : s->zero ? '=' : '>';
    const size_t left = align == '<' || align == '=' ? 0 : align == '^' ? pad / 2 : pad;
    const uint32_t fill = s->fill != 0 ? s->fill : s->zero ? '0' : ' ';
    for (size_t i = 0; i < left; i++) {
        ECH_TRY(ech_tbuild_cp(out, fill, is_data));
    }
    ECH_TRY(ech_tbuild_add(out, head, head_len, is_data));
    for (size_t i = 0; align == '=' && i < pad; i++) {
        ECH_TRY(ech_tbuild_cp(out, fill, is_data));
    }
    ECH_TRY(ech_tbuild_add(out, digits->data, digits->len, is_data));
    ECH_TRY(ech_tbuild_add(out, "%", tail_len, is_data));
    for (size_t i = left; align != '=' && i < pad; i++) {
        ECH_TRY(ech_tbuild_cp(out, fill, is_data));
    }
    return ECH_OK;
}

/* The sign is taken off first, that of -0.0 too; a nan has none. */
static ech_status format_float(ech_tbuild *const out, const double f, const spec *const s,
                               const bool is_data)
{
    ech_buf digits = { 0 };
    float_digits(&digits, fabs(f), s);
    if (s->grouping != 0) group_digits(&digits, s->grouping, 3);
    const ech_status rc = emit_number(out, s, signbit(f) && !isnan(f), "", &digits, is_data);
    ech_buf_fini(&digits);
    return rc;
}

/* The magnitude is taken as unsigned, so INT64_MIN has one. */
static ech_status format_int(ech_tbuild *const out, const int64_t i, const spec *const s,
                             const bool is_data)
{
    const char lower = (char)(s->type | 32);
    const unsigned base = s->type == 0   ? 10
                          : lower == 'x' ? 16
                          : lower == 'o' ? 8
                          : lower == 'b' ? 2
                                         : 10;
    const uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    char text[72];
    ech_buf digits = { 0 };
    const char *const prefix = !s->alt || base == 10 ? ""
                               : base == 16          ? (s->type == 'X' ? "0X" : "0x")
                               : base == 8           ? "0o"
                                                     : "0b";
    const size_t n = to_base(u, base, s->type == 'X', text);
    ech_status rc = ech_buf_append(&digits, text, n);
    if (rc != ECH_OK) return ech_tvm_no_memory(out->vm, SIZE_MAX);
    if (s->grouping != 0) group_digits(&digits, s->grouping, base == 10 ? 3 : 4);
    rc = emit_number(out, s, i < 0, prefix, &digits, is_data);
    ech_buf_fini(&digits);
    return rc;
}

/*
 * Width and precision count code points, not bytes. A zero flag of a string pads with zeros on the
 * right, as CPython does since 3.10.
 */
static ech_status format_str(ech_tbuild *const out, ech_tstr *const str, const spec *const s)
{
    size_t chars = ech_tstr_chars(str), len = str->len;
    if (s->precision >= 0 && (size_t)s->precision < chars) {
        chars = (size_t)s->precision;
        len = ech_tstr_byte_of(str, chars);
    }
    const size_t pad = s->width > (int64_t)chars ? (size_t)s->width - chars : 0;
    const bool is_data = str->len > 0 ? ech_tstr_data_at(str, 0) : str->is_data;
    const size_t left = s->align == '>' ? pad : s->align == '^' ? pad / 2 : 0;
    const uint32_t fill = s->fill != 0 ? s->fill : s->zero ? '0' : ' ';
    for (size_t i = 0; i < left; i++) {
        ECH_TRY(ech_tbuild_cp(out, fill, is_data));
    }
    ECH_TRY(ech_tbuild_sub(out, str, 0, len));
    for (size_t i = left; i < pad; i++) {
        ECH_TRY(ech_tbuild_cp(out, fill, is_data));
    }
    return ECH_OK;
}

/* ---- the specification ---- */

static bool is_align(const char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* Checked at each digit, so v can't overflow. -1: no digit. */
static ech_status read_int(ech_tvm *const vm, const char *const p, const size_t len,
                           size_t *const at, int64_t *const ret)
{
    int64_t v = 0;
    bool any = false;
    while (*at < len && p[*at] >= '0' && p[*at] <= '9') {
        v = v * 10 + (p[*at] - '0');
        if (v > MAX_WIDTH)
            return ech_tvm_fail(vm, ECH_ELIMIT, "a width or precision over %d", MAX_WIDTH);
        any = true;
        (*at)++;
    }
    *ret = any ? v : -1;
    return ECH_OK;
}

/* The fill may be any code point, so the alignment is looked for behind the first one first. */
static ech_status parse_spec(ech_tvm *const vm, const ech_tstr *const text, spec *const s)
{
    const char *const p = text->ptr;
    const size_t len = text->len;
    size_t at = 0;
    uint32_t cp = 0;
    *s = (spec){ .width = -1, .precision = -1 };
    const int first = ech_utf8_decode(p, len, &cp);
    if (first > 0 && (size_t)first < len && is_align(p[first])) {
        s->fill = cp;
        s->align = p[first];
        at = (size_t)first + 1;
    } else if (len > 0 && is_align(p[0])) {
        s->align = p[at++];
    }
    if (at < len && (p[at] == '+' || p[at] == '-' || p[at] == ' ')) s->sign = p[at++];
    if (at < len && p[at] == '#') {
        s->alt = true;
        at++;
    }
    if (at < len && p[at] == '0' && s->fill == 0) {
        s->zero = true;
        at++;
    }
    ECH_TRY(read_int(vm, p, len, &at, &s->width));
    if (at < len && (p[at] == ',' || p[at] == '_')) s->grouping = p[at++];
    if (at < len && p[at] == '.') {
        at++;
        ECH_TRY(read_int(vm, p, len, &at, &s->precision));
        if (s->precision < 0) return ech_tvm_raise(vm, "format specifier missing precision");
    }
    if (at < len) s->type = p[at++];
    if (at < len || (uint8_t)s->type >= 0x80) return ech_tvm_raise(vm, "invalid format specifier");
    return ECH_OK;
}

static ech_status wrong_type(ech_tvm *const vm, const spec *const s, const ech_tval v)
{
    return ech_tvm_raise(vm, "unknown format code '%c' for object of type '%s'", s->type,
                         ech_tv_type(v));
}

/* bool counts as int, as in Python. 'n' is 'g' or 'd' without a locale. */
static ech_status format_num_spec(ech_tbuild *const b, const ech_tval v, const spec *const s)
{
    const bool floating = s->type != 0 && strchr("eEfFgG%", s->type) != NULL;
    if (floating || (v.kind == ECH_T_FLOAT && (s->type == 0 || s->type == 'n'))) {
        spec plain = *s;
        if (plain.type == 'n') plain.type = 'g';
        return format_float(b, ech_tv_as_float(v), &plain, v.is_data);
    }
    if (v.kind == ECH_T_FLOAT || (s->type != 0 && strchr("bcdoxXn", s->type) == NULL))
        return wrong_type(b->vm, s, v);
    if (s->precision >= 0)
        return ech_tvm_raise(b->vm, "precision not allowed in integer format specifier");
    if (s->grouping == ',' && s->type != 0 && s->type != 'd')
        return ech_tvm_raise(b->vm, "cannot specify ',' with '%c'", s->type);
    if (s->type != 'c') return format_int(b, ech_tv_as_int(v), s, v.is_data);
    ech_tbuild one = { .vm = b->vm };
    ech_tval text;
    const int64_t i = ech_tv_as_int(v);
    if (i < 0 || i > 0x10ffff) return ech_tvm_raise(b->vm, "%%c arg not in range(0x110000)");
    ECH_TRY(ech_tbuild_cp(&one, (uint32_t)i, v.is_data));
    ECH_TRY(ech_tbuild_done(&one, &text));
    return format_str(b, text.as.str, s);
}

ech_status ech_tv_format_spec(ech_tbuild *const b, const ech_tval v, const ech_tstr *const text)
{
    spec s;
    if (text->len == 0) return ech_tv_print(b, v);
    if (!ech_tv_is_num(v) && v.kind != ECH_T_STR) {
        return ech_tvm_raise(b->vm, "unsupported format string passed to %s.__format__",
                             ech_tv_type(v));
    }
    ECH_TRY(parse_spec(b->vm, text, &s));
    if (ech_tv_is_num(v)) return format_num_spec(b, v, &s);
    if (s.type != 0 && s.type != 's') return wrong_type(b->vm, &s, v);
    if (s.sign != 0) return ech_tvm_raise(b->vm, "sign not allowed in string format specifier");
    if (s.align == '=')
        return ech_tvm_raise(b->vm, "'=' alignment not allowed in string format specifier");
    if (s.alt || s.grouping != 0) return ech_tvm_raise(b->vm, "invalid string format specifier");
    return format_str(b, v.as.str, &s);
}

/* ---- % ---- */

typedef struct percent {
    ech_tvm *vm;
    const ech_tstr *fmt;
    size_t at;
    ech_tval values;
    size_t next; /* of a tuple; 1 once the single value is used */
    bool used_key;
    ech_tbuild out;
} percent;

/* A tuple gives its items one by one; anything else is the single value. */
static ech_status next_value(percent *const p, ech_tval *const ret)
{
    if (p->values.kind == ECH_T_TUPLE) {
        if (p->next >= p->values.as.seq->n)
            return ech_tvm_raise(p->vm, "not enough arguments for format string");
        *ret = p->values.as.seq->items[p->next++];
        return ECH_OK;
    }
    if (p->next++ > 0) return ech_tvm_raise(p->vm, "not enough arguments for format string");
    *ret = p->values;
    return ECH_OK;
}

/*
 * (name) after a percent sign: the value of that key. Parentheses nest within the key, which ends
 * at the matching one.
 */
static ech_status keyed_value(percent *const p, ech_tval *const ret)
{
    const size_t from = ++p->at;
    int depth = 1;
    while (p->at < p->fmt->len && depth > 0) {
        depth += p->fmt->ptr[p->at] == '(' ? 1 : p->fmt->ptr[p->at] == ')' ? -1 : 0;
        p->at++;
    }
    if (depth > 0) return ech_tvm_raise(p->vm, "incomplete format key");
    if (p->values.kind != ECH_T_DICT) return ech_tvm_raise(p->vm, "format requires a mapping");
    ech_tval key;
    ECH_TRY(ech_tv_slice(p->vm, p->fmt, from, p->at - 1 - from, &key));
    ECH_TRY(ech_tdict_find(p->vm, p->values.as.dict, key, ret));
    if (ret->kind == ECH_T_ABSENT) return ech_tvm_raise(p->vm, "no key for the format");
    p->used_key = true;
    return ECH_OK;
}

/* A negative width from a star means left-aligned; the caller sees to it. */
static ech_status star_or_int(percent *const p, int64_t *const ret)
{
    if (p->at >= p->fmt->len || p->fmt->ptr[p->at] != '*')
        return read_int(p->vm, p->fmt->ptr, p->fmt->len, &p->at, ret);
    ech_tval v;
    p->at++;
    ECH_TRY(next_value(p, &v));
    if (!ech_tv_is_int(v)) return ech_tvm_raise(p->vm, "* wants int");
    *ret = ech_tv_as_int(v);
    if (*ret > MAX_WIDTH || *ret < -MAX_WIDTH)
        return ech_tvm_fail(p->vm, ECH_ELIMIT, "a width or precision over %d", MAX_WIDTH);
    return ECH_OK;
}

static ech_status percent_flags(percent *const p, spec *const s)
{
    *s = (spec){ .width = -1, .precision = -1 };
    bool left = false;
    for (; p->at < p->fmt->len; p->at++) {
        const char c = p->fmt->ptr[p->at];
        if (c == '-')
            left = true;
        else if (c == '+')
            s->sign = '+';
        else if (c == ' ')
            s->sign = s->sign == '+' ? '+' : ' ';
        else if (c == '#')
            s->alt = true;
        else if (c == '0')
            s->zero = true;
        else
            break;
    }
    ECH_TRY(star_or_int(p, &s->width));
    if (s->width < -1) {
        left = true;
        s->width = -s->width;
    }
    if (p->at < p->fmt->len && p->fmt->ptr[p->at] == '.') {
        p->at++;
        ECH_TRY(star_or_int(p, &s->precision));
        if (s->precision < 0) s->precision = 0;
    }
    if (p->at < p->fmt->len && strchr("hlL", p->fmt->ptr[p->at]) != NULL) p->at++;
    s->align = left ? '<' : 0;
    if (left) s->zero = false;
    return ECH_OK;
}

/*
 * The value is printed first and cut by the precision afterwards, %r and %a too. In a Markup
 * format, values that are no markup are escaped.
 */
static ech_status percent_text(percent *const p, const ech_tval v, const char conv, spec *const s)
{
    ech_tval text = v;
    ech_tbuild b = { .vm = p->vm };
    if (conv == 'c') {
        if (v.kind == ECH_T_STR && ech_tstr_chars(v.as.str) == 1)
            ECH_TRY(ech_tbuild_str(&b, v.as.str));
        else if (ech_tv_is_int(v) && ech_tv_as_int(v) >= 0 && ech_tv_as_int(v) <= 0x10ffff)
            ECH_TRY(ech_tbuild_cp(&b, (uint32_t)ech_tv_as_int(v), v.is_data));
        else
            return ech_tvm_raise(p->vm, "%%c requires int or char");
    } else {
        ECH_TRY(conv == 's' ? ech_tv_print(&b, v) : ech_tv_repr(&b, v));
    }
    ECH_TRY(ech_tbuild_done(&b, &text));
    if (p->fmt->is_markup && !(v.kind == ECH_T_STR && v.as.str->is_markup))
        ECH_TRY(ech_tv_escape(p->vm, text, &text));
    if (conv == 'c') s->precision = -1;
    s->align = s->align == '<' ? '<' : '>';
    s->zero = false;
    return format_str(&p->out, text.as.str, s);
}

/* %d of a float truncates; %x and %o of a float are refused. */
static ech_status percent_number(percent *const p, const ech_tval v, const char conv, spec *const s)
{
    if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(p->vm, v.as.undef);
    if (!ech_tv_is_num(v))
        return ech_tvm_raise(p->vm, "%%%c format: a number is required, not %s", conv,
                             ech_tv_type(v));
    if (strchr("eEfFgG", conv) != NULL) {
        s->type = conv;
        if (isinf(ech_tv_as_float(v)) || isnan(ech_tv_as_float(v))) s->zero = false;
        return format_float(&p->out, ech_tv_as_float(v), s, v.is_data);
    }
    s->type = conv == 'i' || conv == 'u' || conv == 'd' ? 'd' : conv;
    if (v.kind == ECH_T_FLOAT) {
        if (s->type != 'd')
            return ech_tvm_raise(p->vm, "%%%c format: an integer is required, not float", conv);
        if (!(fabs(v.as.f) < 9.2e18))
            return ech_tvm_raise(p->vm, "the float does not fit a 64 bit integer");
    }
    const int64_t i = v.kind == ECH_T_FLOAT ? (int64_t)v.as.f : ech_tv_as_int(v);
    if (s->precision < 0) return format_int(&p->out, i, s, v.is_data);
    /* A precision is the least number of digits. */
    char text[72];
    ech_buf digits = { 0 };
    const unsigned base = (conv | 32) == 'x' ? 16 : conv == 'o' ? 8 : 10;
    const size_t n = to_base(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, conv == 'X', text);
    ech_status rc = ECH_OK;
    for (size_t k = n; rc == ECH_OK && k < (size_t)s->precision; k++) {
        rc = ech_buf_push(&digits, '0');
    }
    if (rc == ECH_OK) rc = ech_buf_append(&digits, text, n);
    const char *const prefix = !s->alt || base == 10 ? ""
                               : base == 16          ? (conv == 'X' ? "0X" : "0x")
                                                     : "0o";
    if (rc == ECH_OK) rc = emit_number(&p->out, s, i < 0, prefix, &digits, v.is_data);
    ech_buf_fini(&digits);
    return rc;
}

static ech_status percent_one(percent *const p)
{
    ech_tval v = { .kind = ECH_T_ABSENT };
    spec s;
    p->at++;
    if (p->at < p->fmt->len && p->fmt->ptr[p->at] == '(') ECH_TRY(keyed_value(p, &v));
    ECH_TRY(percent_flags(p, &s));
    if (p->at >= p->fmt->len) return ech_tvm_raise(p->vm, "incomplete format");
    const char conv = p->fmt->ptr[p->at++];
    if (conv == '%') return ech_tbuild_sub(&p->out, p->fmt, p->at - 1, 1);
    if (conv == '\0' || strchr("sracdiuoxXeEfFgG", conv) == NULL)
        return ech_tvm_raise(p->vm, "unsupported format character");
    if (v.kind == ECH_T_ABSENT) ECH_TRY(next_value(p, &v));
    if (strchr("srac", conv) != NULL) return percent_text(p, v, conv, &s);
    return percent_number(p, v, conv, &s);
}

/*
 * Left-over values are an error unless the right side is a mapping or looks like one to CPython (it
 * has __getitem__ and is neither tuple nor str), which includes lists.
 */
ech_status ech_tstr_percent(ech_tvm *const vm, const ech_tstr *const fmt, const ech_tval values,
                            ech_tval *const ret)
{
    percent p = { .vm = vm, .fmt = fmt, .values = values, .out = { .vm = vm } };
    while (p.at < fmt->len) {
        const char *const hit = memchr(fmt->ptr + p.at, '%', fmt->len - p.at);
        const size_t end = hit == NULL ? fmt->len : (size_t)(hit - fmt->ptr);
        ECH_TRY(ech_tbuild_sub(&p.out, fmt, p.at, end - p.at));
        p.at = end;
        if (hit != NULL) ECH_TRY(percent_one(&p));
    }
    const bool mapping = values.kind == ECH_T_DICT || values.kind == ECH_T_LIST ||
                         values.kind == ECH_T_UNDEFINED || values.kind == ECH_T_RANGE;
    const size_t given = values.kind == ECH_T_TUPLE ? values.as.seq->n : 1;
    if (!mapping && !p.used_key && p.next < given)
        return ech_tvm_raise(vm, "not all arguments converted during string formatting");
    ECH_TRY(ech_tbuild_done(&p.out, ret));
    ret->as.str->is_markup = fmt->is_markup;
    return ECH_OK;
}

/* ---- str.format ---- */

typedef struct formatter {
    ech_tvm *vm;
    const ech_tcall *call;
    bool is_markup;
    int64_t next_auto; /* the next automatic number; -1 once numbers were given by hand */
    bool manual;
} formatter;

static ech_status format_into(formatter *f, const ech_tstr *fmt, int depth, ech_tbuild *out);

static bool all_digits(const char *const p, const size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
    }
    return len > 0;
}

static ech_status positional(formatter *const f, const int64_t i, ech_tval *const ret)
{
    if (i >= (int64_t)f->call->n_pos)
        return ech_tvm_raise(f->vm, "replacement index %lld out of range for positional args",
                             (long long)i);
    *ret = f->call->pos[i];
    return ECH_OK;
}

/*
 * The argument that a field begins with: nothing, a number or a name. Automatic and manual numbers
 * exclude each other within one format string, names go with both.
 */
static ech_status field_value(formatter *const f, const char *const p, const size_t len,
                              ech_tval *const ret)
{
    if (len == 0) {
        if (f->manual)
            return ech_tvm_raise(
                f->vm,
                "cannot switch from manual field specification to automatic field numbering");
        return positional(f, f->next_auto++, ret);
    }
    if (all_digits(p, len)) {
        if (f->next_auto > 0)
            return ech_tvm_raise(
                f->vm,
                "cannot switch from automatic field numbering to manual field specification");
        f->manual = true;
        return positional(f, strtoll(p, NULL, 10), ret);
    }
    for (size_t i = 0; i < f->call->n_kw; i++) {
        if (f->call->kw[i].len == len && memcmp(f->call->kw[i].name, p, len) == 0) {
            *ret = f->call->kw[i].value;
            return ECH_OK;
        }
    }
    return ech_tvm_raise(f->vm, "no argument named '%.*s' for the format",
                         (int)(len < 60 ? len : 60), p);
}

/*
 * .attr and [key] after the first part of a field. A key in brackets that is all digits is an
 * index, anything else a string; quotes are not special.
 */
static ech_status field_path(formatter *const f, const ech_tstr *const fmt, size_t at,
                             const size_t end, ech_tval *const v)
{
    while (at < end) {
        const bool bracket = fmt->ptr[at] == '[';
        if (!bracket && fmt->ptr[at] != '.')
            return ech_tvm_raise(f->vm, "only '.' or '[' may follow ']' in format field specifier");
        const size_t from = ++at;
        while (at < end &&
               (bracket ? fmt->ptr[at] != ']' : fmt->ptr[at] != '.' && fmt->ptr[at] != '[')) {
            at++;
        }
        if (at == from) return ech_tvm_raise(f->vm, "empty attribute in format string");
        if (bracket && at == end) return ech_tvm_raise(f->vm, "missing ']' in format string");
        ech_tval key;
        ECH_TRY(ech_tv_slice(f->vm, fmt, from, at - from, &key));
        if (bracket && all_digits(fmt->ptr + from, at - from))
            key = ech_tv_int(strtoll(fmt->ptr + from, NULL, 10));
        ECH_TRY(bracket ? ech_tv_item(f->vm, *v, key, v) : ech_tv_attr(f->vm, *v, key, v));
        at += bracket;
    }
    return ECH_OK;
}

static ech_status convert(formatter *const f, const char conv, ech_tval *const v)
{
    ech_tbuild b = { .vm = f->vm };
    if (conv != 's' && conv != 'r' && conv != 'a')
        return ech_tvm_raise(f->vm, "unknown conversion specifier");
    ECH_TRY(conv == 's' ? ech_tv_print(&b, *v) : ech_tv_repr(&b, *v));
    return ech_tbuild_done(&b, v);
}

/*
 * One field between its braces, [at, end). The specification may hold fields of its own, one level
 * deep (depth is 1 at first), as in CPython.
 */
static ech_status format_field(formatter *const f, const ech_tstr *const fmt, const size_t at,
                               const size_t end, const int depth, ech_tbuild *const out)
{
    size_t name_end = at, path_end;
    while (name_end < end && strchr(".[!:", fmt->ptr[name_end]) == NULL) {
        name_end++;
    }
    int brackets = 0;
    for (path_end = name_end; path_end < end; path_end++) {
        const char c = fmt->ptr[path_end];
        brackets += c == '[' ? 1 : c == ']' ? -1 : 0;
        if (brackets <= 0 && (c == '!' || c == ':')) break;
    }
    ech_tval v, spec_text;
    ECH_TRY(field_value(f, fmt->ptr + at, name_end - at, &v));
    ECH_TRY(field_path(f, fmt, name_end, path_end, &v));
    size_t i = path_end;
    if (i < end && fmt->ptr[i] == '!') {
        if (i + 1 == end || (i + 2 < end && fmt->ptr[i + 2] != ':'))
            return ech_tvm_raise(f->vm, "expected ':' after conversion specifier");
        ECH_TRY(convert(f, fmt->ptr[i + 1], &v));
        i += 2;
    }
    ech_tbuild b = { .vm = f->vm };
    if (i < end) {
        ech_tval raw;
        ECH_TRY(ech_tv_slice(f->vm, fmt, i + 1, end - i - 1, &raw));
        if (depth == 0) return ech_tvm_raise(f->vm, "max string recursion exceeded");
        ECH_TRY(format_into(f, raw.as.str, depth - 1, &b));
    }
    ECH_TRY(ech_tbuild_done(&b, &spec_text));
    if (!f->is_markup) return ech_tv_format_spec(out, v, spec_text.as.str);
    ech_tbuild piece = { .vm = f->vm };
    ech_tval text = v;
    if (!(v.kind == ECH_T_STR && v.as.str->is_markup)) {
        ECH_TRY(ech_tv_format_spec(&piece, v, spec_text.as.str));
        ECH_TRY(ech_tbuild_done(&piece, &text));
        ECH_TRY(ech_tv_escape(f->vm, text, &text));
    } else if (spec_text.as.str->len > 0) {
        return ech_tvm_raise(f->vm, "unsupported format specification for Markup");
    }
    return ech_tbuild_str(out, text.as.str);
}

/*
 * The end of the field that begins at `at`: its closing brace, those inside counted. Braces inside
 * [ … ] don't count, as CPython's parser has it.
 */
static ech_status field_end(formatter *const f, const ech_tstr *const fmt, const size_t at,
                            size_t *const ret)
{
    int depth = 1;
    bool in_bracket = false;
    for (size_t i = at; i < fmt->len; i++) {
        const char c = fmt->ptr[i];
        if (c == '[')
            in_bracket = true;
        else if (c == ']')
            in_bracket = false;
        if (c == '{' && !in_bracket) depth++;
        if (c == '}' && !in_bracket) depth--;
        if (depth == 0) {
            *ret = i;
            return ECH_OK;
        }
    }
    return ech_tvm_raise(f->vm, "expected '}' before end of string");
}

static ech_status format_into(formatter *const f, const ech_tstr *const fmt, const int depth,
                              ech_tbuild *const out)
{
    ECH_TRY(ech_tvm_enter(f->vm));
    for (size_t at = 0; at < fmt->len;) {
        const char c = fmt->ptr[at];
        if (c != '{' && c != '}') {
            size_t end = at;
            while (end < fmt->len && fmt->ptr[end] != '{' && fmt->ptr[end] != '}') {
                end++;
            }
            ECH_TRY(ech_tbuild_sub(out, fmt, at, end - at));
            at = end;
        } else if (at + 1 < fmt->len && fmt->ptr[at + 1] == c) {
            ECH_TRY(ech_tbuild_sub(out, fmt, at, 1));
            at += 2;
        } else if (c == '}') {
            return ech_tvm_raise(f->vm, "single '}' encountered in format string");
        } else {
            size_t end;
            ECH_TRY(field_end(f, fmt, at + 1, &end));
            ECH_TRY(format_field(f, fmt, at + 1, end, depth, out));
            at = end + 1;
        }
    }
    ech_tvm_leave(f->vm);
    return ECH_OK;
}

ech_status ech_tstr_format(ech_tvm *const vm, const ech_tstr *const fmt, const ech_tcall *const c,
                           ech_tval *const ret)
{
    formatter f = { .vm = vm, .call = c, .is_markup = fmt->is_markup };
    ech_tbuild out = { .vm = vm };
    ECH_TRY(format_into(&f, fmt, 1, &out));
    ECH_TRY(ech_tbuild_done(&out, ret));
    ret->as.str->is_markup = fmt->is_markup;
    return ECH_OK;
}
