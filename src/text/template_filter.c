/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builtin filters on single values: text, numbers, defaults, JSON. Those on sequences are in
 * template_filter_seq.c, which also holds the table's other half.
 *
 * The reference is jinja2 3.1, and what it inherits from Python: a filter takes what str(), int()
 * or round() take there, fails where they raise and gives the same digits. tojson is the one that
 * transformers puts in its place.
 *
 * Invariant: text keeps its origin. What a filter copies keeps the origin it had, byte by byte;
 * what it makes of a value has the value's origin; only bytes that stand in the template or in this
 * file are the template's.
 *
 * Memory is the rendering's arena, so nothing is freed here and an error leaves nothing behind.
 * Thread: the rendering's.
 *
 * Left out, and refused by name when they are met: pprint, random, striptags, urlize, wordwrap.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_filters.h"
#include "src/text/template_text.h"

/* ---- arguments ---- */

/*
 * An undefined argument fails under its own name: "x is undefined" helps more than a complaint
 * about its type. Bools are integers, floats are not, not even whole ones: Python's __index__. An
 * integer beyond 64 bits is no int here either.
 */
ech_status ech_targ_int(ech_tvm *const vm, const ech_tval v, int64_t *const ret)
{
    if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, v.as.undef);
    if (!ech_tv_is_int(v))
        return ech_tvm_raise(vm, "'%s' object cannot be interpreted as an integer", ech_tv_type(v));
    *ret = ech_tv_as_int(v);
    return ECH_OK;
}

/* Bools and integers will do, as for a float in Python; text is not parsed. */
ech_status ech_targ_float(ech_tvm *const vm, const ech_tval v, double *const ret)
{
    if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, v.as.undef);
    if (!ech_tv_is_num(v))
        return ech_tvm_raise(vm, "must be a real number, not %s", ech_tv_type(v));
    *ret = ech_tv_as_float(v);
    return ECH_OK;
}

/* No conversion: where Jinja turns a value into text first, the filter says so by soft(). */
ech_status ech_targ_str(ech_tvm *const vm, const ech_tval v, ech_tstr **const ret)
{
    if (v.kind != ECH_T_STR) return ech_tvm_raise(vm, "must be str, not %s", ech_tv_type(v));
    *ret = v.as.str;
    return ECH_OK;
}

/* A parameter that the call left out is ABSENT; None is a value and counts as given. */
static bool given(const ech_tval v)
{
    return v.kind != ECH_T_ABSENT;
}
/*
 * A flag that was left out is false; every optional flag of these filters has that default but
 * autospace.
 */
static bool truth(const ech_tval v)
{
    return given(v) && ech_tv_truth(v);
}

/* None is no integer and fails, as it does in Python; only what is absent has the default. */
static ech_status int_or(ech_tvm *const vm, const ech_tval v, const int64_t otherwise,
                         int64_t *const ret)
{
    *ret = otherwise;
    return given(v) ? ech_targ_int(vm, v, ret) : ECH_OK;
}

/* What Jinja's soft_str() does: a value as text, keeping the mark of text that is markup. */
static ech_status soft(ech_tvm *const vm, const ech_tval v, ech_tstr **const ret)
{
    return ech_tv_to_str(vm, v, true, ret);
}

/* ---- text ---- */

/*
 * Input need not be text: `5 | upper` is "5" in Jinja as well. An undefined value becomes the empty
 * text here, and not an error, for soft_str() prints it.
 */
static ech_status cased(ech_tvm *const vm, ech_tcall *const c, const ech_tcase how,
                        ech_tval *const ret)
{
    ech_tstr *s;
    ECH_TRY(soft(vm, c->a[0], &s));
    return ech_tstr_case(vm, s, how, ret);
}

static ech_status f_upper(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return cased(vm, c, ECH_TCASE_UPPER, ret);
}
static ech_status f_lower(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return cased(vm, c, ECH_TCASE_LOWER, ret);
}
static ech_status f_capitalize(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return cased(vm, c, ECH_TCASE_CAPITALIZE, ret);
}

/*
 * Where a title's words part: at white space and at the brackets and dashes that Jinja's own
 * pattern lists, not where str.title() parts them (an apostrophe is inside a word). Blanks are
 * white space as `\s` means it in Python, so they may be longer than one byte; the brackets are all
 * ASCII.
 */
static bool parts_words(const ech_tstr *const s, const size_t at, size_t *const ret_len)
{
    const char c = s->ptr[at];
    *ret_len = 1;
    if (c == '-' || c == '(' || c == '{' || c == '[' || c == '<') return true;
    const size_t n = ech_ttext_space(s->ptr + at, s->len - at);
    if (n > 0) *ret_len = n;
    return n > 0;
}

/*
 * One word: its first character in upper case, the rest in lower case. The two parts change case by
 * themselves, so that a first letter that grows keeps its whole upper form: "ß" becomes "SS".
 */
static ech_status title_word(ech_tbuild *const b, const ech_tstr *const s, const size_t from,
                             const size_t to)
{
    ech_tval first, rest;
    size_t n = from + 1;
    /* The rest of the first character: bytes that only continue it. */
    while (n < to && ((uint8_t)s->ptr[n] & 0xc0) == 0x80) {
        n++;
    }
    ECH_TRY(ech_tv_slice(b->vm, s, from, n - from, &first));
    ECH_TRY(ech_tv_slice(b->vm, s, n, to - n, &rest));
    ECH_TRY(ech_tstr_case(b->vm, first.as.str, ECH_TCASE_UPPER, &first));
    ECH_TRY(ech_tstr_case(b->vm, rest.as.str, ECH_TCASE_LOWER, &rest));
    ECH_TRY(ech_tbuild_str(b, first.as.str));
    return ech_tbuild_str(b, rest.as.str);
}

/*
 * Every run between separators is a word, also behind a digit or an apostrophe: "it's" becomes
 * "It's", where str.title() makes "It'S". Separators are copied as they are.
 */
static ech_status f_title(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    ech_tbuild b = { .vm = vm };
    ECH_TRY(soft(vm, c->a[0], &s));
    for (size_t at = 0; at < s->len;) {
        size_t n, end = at;
        if (parts_words(s, at, &n)) {
            ECH_TRY(ech_tbuild_sub(&b, s, at, n));
            at += n;
            continue;
        }
        while (end < s->len && !parts_words(s, end, &n)) {
            end++;
        }
        ECH_TRY(title_word(&b, s, at, end));
        at = end;
    }
    return ech_tbuild_done(&b, ret);
}

/*
 * None means white space. A set of characters must be text: str.strip() raises for anything else. 3
 * is both sides.
 */
static ech_status f_trim(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s, *chars = NULL;
    ECH_TRY(soft(vm, c->a[0], &s));
    if (given(c->a[1]) && c->a[1].kind != ECH_T_NONE) ECH_TRY(ech_targ_str(vm, c->a[1], &chars));
    return ech_tstr_strip(vm, s, chars, 3, ret);
}

static ech_status f_string(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    ECH_TRY(soft(vm, c->a[0], &s));
    *ret = ech_tv_str(s);
    return ECH_OK;
}

/*
 * With autoescape off, as for chat templates, the mark changes nothing that is printed; it counts
 * where +, ~ and str.join() meet marked and plain text.
 */
static ech_status f_safe(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    ECH_TRY(soft(vm, c->a[0], &s));
    return ech_tv_marked(vm, s, true, ret);
}

/* Text that carries the mark is not escaped again. */
static ech_status f_escape(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tv_escape(vm, c->a[0], ret);
}

/* Unlike escape, escapes text again that says it is escaped. */
static ech_status f_forceescape(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    ECH_TRY(ech_tv_to_str(vm, c->a[0], false, &s));
    return ech_tv_escape(vm, ech_tv_str(s), ret);
}

/*
 * Jinja's replace works on str() of all three, so numbers may be replaced too; a count of None
 * means all.
 */
static ech_status f_replace(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s, *from, *to;
    int64_t count = -1;
    ECH_TRY(ech_tv_to_str(vm, c->a[0], false, &s));
    ECH_TRY(ech_tv_to_str(vm, c->a[1], false, &from));
    ECH_TRY(ech_tv_to_str(vm, c->a[2], false, &to));
    if (given(c->a[3]) && c->a[3].kind != ECH_T_NONE) ECH_TRY(ech_targ_int(vm, c->a[3], &count));
    return ech_tstr_replace(vm, s, from, to, count, ret);
}

/*
 * The width counts code points. An odd blank goes where str.center() puts it; what is wider already
 * is given back.
 */
static ech_status f_center(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    int64_t width;
    ECH_TRY(soft(vm, c->a[0], &s));
    ECH_TRY(int_or(vm, c->a[1], 80, &width));
    return ech_tstr_pad(vm, s, width, NULL, 0, ret);
}

/*
 * printf-style, after the string itself: positional values make a tuple, named ones a dict; Jinja
 * takes one kind or the other. Binds its own arguments, because any name may be a keyword here. The
 * input is pos[0], and what stands behind it are the values.
 */
static ech_status f_format(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *fmt;
    if (c->n_pos == 0) return ech_tvm_raise(vm, "format() needs a value");
    if (c->n_pos > 1 && c->n_kw > 0)
        return ech_tvm_raise(vm, "can't handle positional and keyword arguments at the same time");
    ECH_TRY(soft(vm, c->pos[0], &fmt));
    /* Also without any value: then the tuple is empty, and a % in the text that wants one fails. */
    if (c->n_kw == 0) {
        ech_tseq *seq;
        ECH_TRY(ech_tseq_new(vm, c->n_pos - 1, &seq));
        for (size_t i = 1; i < c->n_pos; i++) {
            ECH_TRY(ech_tseq_push(vm, seq, c->pos[i]));
        }
        return ech_tstr_percent(vm, fmt, ech_tv_seq(ECH_T_TUPLE, seq), ret);
    }
    ech_tdict *d;
    ECH_TRY(ech_tdict_new(vm, &d));
    for (size_t i = 0; i < c->n_kw; i++) {
        ech_tval key;
        /* Names of keywords are words of the template. */
        ECH_TRY(ech_tv_view(vm, c->kw[i].name, c->kw[i].len, false, &key));
        ECH_TRY(ech_tdict_set(vm, d, key, c->kw[i].value));
    }
    return ech_tstr_percent(vm, fmt, ech_tv_dict(d), ret);
}

/*
 * The text that lines are moved in by: blanks by number, or a text of the template's choice. Blanks
 * are the template's bytes whoever's text they stand in. A negative number of blanks is none, as in
 * " " * -1. A huge width fails at the rendering's limit of memory.
 */
static ech_status indention(ech_tvm *const vm, const ech_tval width, const bool markup,
                            ech_tstr **const ret)
{
    ech_tval text;
    ech_tbuild b = { .vm = vm };
    if (width.kind == ECH_T_STR) {
        ECH_TRY(ech_tv_marked(vm, width.as.str, markup || width.as.str->is_markup, &text));
    } else {
        int64_t n;
        ECH_TRY(int_or(vm, width, 4, &n));
        ECH_TRY(ech_tbuild_fill(&b, ' ', n < 0 ? 0 : (size_t)n, false));
        ECH_TRY(ech_tbuild_done(&b, &text));
    }
    *ret = text.as.str;
    return ECH_OK;
}

/*
 * Lines are those of str.splitlines() over the text with a line break added, as Jinja has it: so a
 * text that ends with one keeps it, and empty lines stay empty unless `blank` is true. More than
 * "\n" ends a line there (a vertical tab, U+2028), and all of them come out as "\n". The first line
 * is moved in for `first` alone, whatever `blank` says, and even if it is empty. Unlike most
 * filters on text this one takes no other value: Python's += would fail.
 */
static ech_status f_indent(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s, *with;
    ech_tseq *lines;
    ech_tbuild b = { .vm = vm };
    ech_tval nl, text;
    if (c->a[0].kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, c->a[0].as.undef);
    ECH_TRY(ech_targ_str(vm, c->a[0], &s));
    ECH_TRY(indention(vm, c->a[1], s->is_markup, &with));
    ECH_TRY(ech_tv_lit(vm, "\n", &nl));
    ECH_TRY(ech_tstr_concat(vm, s, nl.as.str, &text));
    ECH_TRY(ech_tstr_lines(vm, text.as.str, false, &lines));
    if (truth(c->a[2])) ECH_TRY(ech_tbuild_str(&b, with));
    for (size_t i = 0; i < lines->n; i++) {
        const ech_tstr *const line = lines->items[i].as.str;
        if (i > 0) ECH_TRY(ech_tbuild_add(&b, "\n", 1, false));
        if (i > 0 && (line->len > 0 || truth(c->a[3]))) ECH_TRY(ech_tbuild_str(&b, with));
        ECH_TRY(ech_tbuild_str(&b, line));
    }
    ECH_TRY(ech_tbuild_done(&b, ret));
    ret->as.str->is_markup = s->is_markup;
    return ECH_OK;
}

/*
 * Cuts before the last blank of s[0, len). Where there is none, everything stays, as rsplit() has
 * it: a long first word is cut hard at the length. Only U+0020 counts.
 */
static size_t last_blank(const ech_tstr *const s, const size_t len)
{
    for (size_t i = len; i > 0; i--) {
        if (s->ptr[i - 1] == ' ') return i - 1;
    }
    return len;
}

/*
 * Lengths count code points; the end's own length is part of the wanted one. What is at most
 * `leeway` longer stays whole. Both bounds are checked before the text is looked at, as Jinja's
 * asserts are, so that a wrong length fails for short texts as well.
 */
static ech_status f_truncate(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    int64_t length, leeway;
    ech_tval dots = c->a[3];
    size_t n;
    if (!given(dots)) ECH_TRY(ech_tv_lit(vm, "...", &dots));
    ECH_TRY(int_or(vm, c->a[1], 255, &length));
    /*
     * A leeway of None asks for the environment's policy, which is 5, the same as when it is left
     * out.
     */
    ECH_TRY(int_or(vm, c->a[4].kind == ECH_T_NONE ? (ech_tval){ 0 } : c->a[4], 5, &leeway));
    ECH_TRY(ech_tv_len(vm, dots, &n));
    if (length < (int64_t)n)
        return ech_tvm_raise(vm, "expected length >= %zu, got %lld", n, (long long)length);
    if (leeway < 0) return ech_tvm_raise(vm, "expected leeway >= 0, got %lld", (long long)leeway);
    /* Not negative: checked above. */
    const int64_t keep = length - (int64_t)n;
    ECH_TRY(ech_tv_len(vm, c->a[0], &n));
    *ret = c->a[0];
    if ((int64_t)n <= length + leeway) return ECH_OK;
    ech_tstr *s, *end;
    ECH_TRY(ech_targ_str(vm, c->a[0], &s));
    ECH_TRY(ech_targ_str(vm, dots, &end));
    size_t cut = ech_tstr_byte_of(s, (size_t)keep);
    if (!truth(c->a[2])) cut = last_blank(s, cut);
    ech_tval head;
    ECH_TRY(ech_tv_slice(vm, s, 0, cut, &head));
    /*
     * Added as `+` adds, not copied byte after byte: the end is escaped if the text is markup, and
     * keeps its own origin.
     */
    return ech_tv_binary(vm, ECH_OP_ADD, head, ech_tv_str(end), ret);
}

/*
 * Python's \w+: letters, numbers of any script, and the underscore. Words are counted where one
 * begins, so one pass with one bit of memory will do.
 */
static ech_status f_wordcount(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    int64_t n = 0;
    bool in_word = false;
    ECH_TRY(soft(vm, c->a[0], &s));
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        const int k = ech_utf8_decode(s->ptr + at, s->len - at, &cp);
        const bool word = cp == '_' || ech_ttext_is_alpha(cp) || ech_ttext_is_numeric(cp);
        n += word && !in_word;
        in_word = word;
        /*
         * Texts are valid UTF-8 once they are values; the step of one only keeps the loop from
         * standing still.
         */
        at += k > 0 ? (size_t)k : 1;
    }
    *ret = ech_tv_int(n);
    return ECH_OK;
}

/* ---- addresses and attributes ---- */

/*
 * urllib's quote() for paths, where a slash stays, and quote_plus() for queries. An escaped byte
 * has the origin of the byte. Bytes, not characters, are escaped, so that the text's UTF-8 is what
 * the address holds.
 */
static ech_status quote_into(ech_tbuild *const b, const ech_tval v, const bool for_query)
{
    ech_tstr *s;
    ECH_TRY(ech_tv_to_str(b->vm, v, false, &s));
    for (size_t i = 0; i < s->len; i++) {
        const uint8_t c = (uint8_t)s->ptr[i];
        const uint8_t lower = c | 32;
        const bool is_data = ech_tstr_data_at(s, i);
        char text[4];
        if ((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
            c == '-' || c == '~' || (c == '/' && !for_query)) {
            ECH_TRY(ech_tbuild_sub(b, s, i, 1));
        } else if (c == ' ' && for_query) {
            ECH_TRY(ech_tbuild_add(b, "+", 1, is_data));
        } else {
            (void)snprintf(text, sizeof text, "%%%02X", c);
            ECH_TRY(ech_tbuild_add(b, text, 3, is_data));
        }
    }
    return ECH_OK;
}

/*
 * A text is quoted as a path; a dict, or a list of pairs, becomes a query. Text is iterable as
 * well, so it is asked for first. A dict goes by its items, whose view lives on the stack: the walk
 * ends before this function does.
 */
static ech_status f_urlencode(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tbuild b = { .vm = vm };
    ech_tval v = c->a[0];
    if (v.kind == ECH_T_STR || !ech_tv_is_iterable(v)) {
        ECH_TRY(quote_into(&b, v, false));
        return ech_tbuild_done(&b, ret);
    }
    ech_titer *it;
    ech_tview view = { .dict = v.as.dict, .kind = ECH_TVIEW_ITEMS };
    if (v.kind == ECH_T_DICT) v = (ech_tval){ .kind = ECH_T_VIEW, .as.view = &view };
    ECH_TRY(ech_titer_open(vm, v, &it));
    for (size_t i = 0;; i++) {
        ech_tval pair;
        ech_tseq *two;
        ECH_TRY(ech_titer_next(vm, it, &pair));
        if (pair.kind == ECH_T_ABSENT) break;
        ECH_TRY(ech_tv_to_list(vm, pair, &two));
        if (two->n != 2) return ech_tvm_raise(vm, "urlencode needs pairs");
        if (i > 0) ECH_TRY(ech_tbuild_add(&b, "&", 1, false));
        ECH_TRY(quote_into(&b, two->items[0], true));
        ECH_TRY(ech_tbuild_add(&b, "=", 1, false));
        ECH_TRY(quote_into(&b, two->items[1], true));
    }
    return ech_tbuild_done(&b, ret);
}

/*
 * Names may not hold what would end a name in markup: that is refused rather than escaped, as in
 * Jinja since 3.1.4. None and undefined values are left out before the name is looked at, so a bad
 * name without a value passes there and here. A NUL in a name is refused as well: strchr() finds
 * the end of its list. The separating blank in front comes only with a pair, so an empty dict
 * prints nothing.
 */
static ech_status f_xmlattr(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tbuild b = { .vm = vm };
    if (c->a[0].kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, c->a[0].as.undef);
    if (c->a[0].kind != ECH_T_DICT)
        return ech_tvm_raise(vm, "'%s' object has no attribute 'items'", ech_tv_type(c->a[0]));
    const ech_tdict *const d = c->a[0].as.dict;
    bool space = !given(c->a[1]) || ech_tv_truth(c->a[1]);
    for (size_t i = 0; i < d->n; i++) {
        ech_tval key = d->entries[i].key, value = d->entries[i].value;
        if (value.kind == ECH_T_NONE || value.kind == ECH_T_UNDEFINED) continue;
        ech_tstr *name;
        ECH_TRY(ech_targ_str(vm, key, &name));
        for (size_t k = 0; k < name->len; k++) {
            if (strchr(" \t\n\r\f\v/>=", name->ptr[k]) != NULL)
                return ech_tvm_raise(vm, "invalid character in attribute name");
        }
        if (space) ECH_TRY(ech_tbuild_add(&b, " ", 1, false));
        space = true;
        ECH_TRY(ech_tv_escape(vm, key, &key));
        ECH_TRY(ech_tv_escape(vm, value, &value));
        ECH_TRY(ech_tbuild_str(&b, key.as.str));
        ECH_TRY(ech_tbuild_add(&b, "=\"", 2, false));
        ECH_TRY(ech_tbuild_str(&b, value.as.str));
        ECH_TRY(ech_tbuild_add(&b, "\"", 1, false));
    }
    return ech_tbuild_done(&b, ret);
}

/* ---- numbers ---- */

/*
 * The sign bit decides for floats, so that -0.0 becomes 0.0 as in Python. Undefined is no number:
 * abs() of it raises TypeError, and not the undefined error.
 */
static ech_status f_abs(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tval v = c->a[0];
    if (!ech_tv_is_num(v))
        return ech_tvm_raise(vm, "bad operand type for abs(): '%s'", ech_tv_type(v));
    const bool negative = v.kind == ECH_T_FLOAT ? signbit(v.as.f) != 0 : ech_tv_as_int(v) < 0;
    return ech_tv_negate(vm, v, negative, ret);
}

/*
 * The text of a number without the underscores that Python allows; NULL when they stand wrong.
 * White space around is dropped, too, in all its Unicode forms. An underscore stands between two
 * digits, or letters of a larger base, and never beside another one. The arena's memory is zeroed,
 * so what is copied ends with a NUL; a NUL inside is no number, and would cut it short.
 */
static char *plain_number(ech_tvm *const vm, const ech_tstr *const s)
{
    size_t from = 0, to = ech_ttext_rstrip(s->ptr, s->len), n = 0, k;
    while (from < to && (k = ech_ttext_space(s->ptr + from, to - from)) > 0) {
        from += k;
    }
    char *const out = ech_arena_alloc(&vm->arena, to - from + 1);
    for (size_t i = from; out != NULL && i < to; i++) {
        if (s->ptr[i] == '\0') return NULL;
        if (s->ptr[i] != '_') {
            out[n++] = s->ptr[i];
            continue;
        }
        const bool inside = i > from && i + 1 < to && (isalnum((uint8_t)s->ptr[i - 1]) != 0) &&
                            (isalnum((uint8_t)s->ptr[i + 1]) != 0);
        if (!inside) return NULL;
    }
    return out;
}

static bool are_digits(const char *p, const int64_t base)
{
    for (; *p != '\0'; p++) {
        const int digit = isdigit((uint8_t)*p)   ? *p - '0'
                          : isalpha((uint8_t)*p) ? (*p | 32) - 'a' + 10
                                                 : 36;
        if (digit >= base) return false;
    }
    return true;
}

/*
 * int(text, base). *ret_ok is false for what is no integer. strtoll takes more than Python does and
 * some less, so what differs is settled before it: white space and signs behind the first sign, a
 * prefix that does not go with the base, a leading zero with base 0. Digits that are right but too
 * many are an error, and not "no integer": the default would be a wrong number that nobody notices.
 */
static ech_status parse_int(ech_tvm *const vm, const ech_tstr *const s, const int64_t base,
                            int64_t *const ret, bool *const ret_ok)
{
    char *end;
    const char *const text = plain_number(vm, s);
    *ret_ok = false;
    if (base != 0 && (base < 2 || base > 36)) return ECH_OK;
    if (text == NULL || *text == '\0' || isspace((uint8_t)*text)) return ECH_OK;
    const char *p = text + (*text == '-' || *text == '+');
    char clean[80];
    /* "0x" alone is no prefix, for digits must follow: then the x ends the number. */
    const size_t prefix =
        p[0] == '0' && p[1] != '\0' && strchr("xXoObB", p[1]) != NULL && p[2] != '\0' ? 2 : 0;
    const int64_t of_prefix = prefix == 0          ? 0
                              : (p[1] | 32) == 'x' ? 16
                              : (p[1] | 32) == 'o' ? 8
                                                   : 2;
    const bool skip = prefix != 0 && (base == 0 || base == of_prefix);
    /* 64 binary digits, a prefix and a sign fit. What is longer is out of range, or no number. */
    if (strlen(p) >= sizeof clean - 1) {
        const int64_t digits_of = skip ? of_prefix : base == 0 ? 10 : base;
        if (!are_digits(p + (skip ? prefix : 0), digits_of)) return ECH_OK;
        return ech_tvm_raise(vm, "integer does not fit 64 bits");
    }
    (void)snprintf(clean, sizeof clean, "%s%s", *text == '-' ? "-" : "", p + (skip ? prefix : 0));
    /* Empty, or a second sign, which strtoll would take. */
    if (!isalnum((uint8_t)clean[*text == '-'])) return ECH_OK;
    /* With base 0 Python reads a literal of its source, where 012 is refused and 00 is not. */
    if (base == 0 && !skip && p[0] == '0' && strspn(p, "0") != strlen(p)) return ECH_OK;
    errno = 0;
    /* strtoll would skip a second prefix. */
    const int64_t real_base = skip ? of_prefix : base == 0 ? 10 : base;
    if (real_base == 16 && clean[*text == '-'] == '0' && (clean[(*text == '-') + 1] | 32) == 'x')
        return ECH_OK;
    *ret = strtoll(clean, &end, (int)real_base);
    if (*end != '\0') return ECH_OK;
    if (errno == ERANGE) return ech_tvm_raise(vm, "integer does not fit 64 bits");
    *ret_ok = true;
    return ECH_OK;
}

/*
 * float(text). strtod's two extras are refused: hexadecimal floats and "nan(...)". What it shares
 * with float() stays, among them "inf", "infinity" and "nan" in any case.
 */
static bool parse_float(ech_tvm *const vm, const ech_tstr *const s, double *const ret)
{
    char *end;
    const char *const text = plain_number(vm, s);
    if (text == NULL || *text == '\0' || isspace((uint8_t)*text)) return false;
    const char *const p = text + (*text == '-' || *text == '+');
    if (p[0] == '0' && (p[1] | 32) == 'x') return false;
    if (strchr(p, '(') != NULL) return false;
    *ret = strtod(text, &end);
    return *end == '\0';
}

/*
 * int(float) cuts towards zero. Jinja catches the error of a NaN and gives the default; infinities
 * raise OverflowError, which it does not catch.
 */
static ech_status float_to_int(ech_tvm *const vm, const ech_tval otherwise, const double f,
                               ech_tval *const ret)
{
    if (isnan(f)) {
        *ret = otherwise;
        return ECH_OK;
    }
    if (!(fabs(f) < 9.2e18))
        return ech_tvm_raise(vm, "cannot convert the float to a 64 bit integer");
    *ret = ech_tv_int((int64_t)f);
    return ECH_OK;
}

/*
 * A number, or text that int() or else float() takes; the default for everything else. A result has
 * the origin of what it was read from: digits of a user stay a user's. "1.9" is 1 and "1e3" is
 * 1000, by the second of the two; an infinity spelled out is the default, though the value itself
 * raises: Jinja catches the error in the one place and not in the other.
 */
static ech_status f_int(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tval v = c->a[0], otherwise = given(c->a[1]) ? c->a[1] : ech_tv_int(0);
    int64_t base, i;
    bool ok;
    double f;
    ECH_TRY(int_or(vm, c->a[2], 10, &base));
    *ret = otherwise;
    switch (v.kind) {
    case ECH_T_UNDEFINED:
        return ech_tvm_fail_undef(vm, v.as.undef);
    /*
     * Kept as it is spelled: a number beyond 64 bits can be passed on and printed, only not
     * computed with.
     */
    case ECH_T_BIGINT:
        *ret = v;
        return ECH_OK;
    case ECH_T_BOOL:
    case ECH_T_INT:
        *ret = ech_tv_int(ech_tv_as_int(v));
        break;
    case ECH_T_FLOAT:
        ECH_TRY(float_to_int(vm, otherwise, v.as.f, ret));
        break;
    case ECH_T_STR:
        ECH_TRY(parse_int(vm, v.as.str, base, &i, &ok));
        if (ok)
            *ret = ech_tv_int(i);
        else if (parse_float(vm, v.as.str, &f) && isfinite(f))
            ECH_TRY(float_to_int(vm, otherwise, f, ret));
        ret->is_data = v.as.str->len > 0 && ech_tstr_data_at(v.as.str, 0);
        return ECH_OK;
    default:
        return ECH_OK;
    }
    ret->is_data = v.is_data;
    return ECH_OK;
}

/*
 * As int, without a base; 0.0 is the default's default. An integer beyond 64 bits goes through its
 * digits and loses precision, as float() does.
 */
static ech_status f_float(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tval v = c->a[0];
    double f;
    *ret = given(c->a[1]) ? c->a[1] : ech_tv_float(0);
    if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, v.as.undef);
    if (ech_tv_is_num(v)) {
        *ret = ech_tv_float(ech_tv_as_float(v));
        ret->is_data = v.is_data;
    } else if (v.kind == ECH_T_BIGINT || v.kind == ECH_T_STR) {
        if (!parse_float(vm, v.as.str, &f)) return ECH_OK;
        *ret = ech_tv_float(f);
        ret->is_data = v.as.str->len > 0 && ech_tstr_data_at(v.as.str, 0);
    }
    return ECH_OK;
}

/*
 * round(value, precision) as Python does it: to even, on the exact decimal value. Halves go to the
 * even neighbour: 2.5 to 2, and 25 with a precision of -1 to 20. An integer stays one. "Exact" is
 * why printf does it: it rounds the double's true value, so 2.675 (which is a bit less) becomes
 * 2.67, where multiplying by 100 first would give 2.68.
 */
static ech_status round_common(ech_tvm *const vm, const ech_tval v, const int64_t p,
                               ech_tval *const ret)
{
    if (v.kind != ECH_T_FLOAT) {
        int64_t i = ech_tv_as_int(v), unit = 1;
        /* Stops before it overflows; what that leaves too small is set right below. */
        for (int64_t k = p; k < 0 && unit <= INT64_MAX / 20; k++) {
            unit *= 10;
        }
        if (p < -18) unit = 0;
        if (p < 0 && unit == 0) {
            i = 0;
        } else if (p < 0) {
            /*
             * The remainder is brought above zero, so that down is the lower neighbour for
             * negatives too.
             */
            const int64_t rest = ((i % unit) + unit) % unit, down = i - rest;
            const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
            i = up ? down + unit : down;
        }
        *ret = ech_tv_int(i);
        return ECH_OK;
    }
    char text[400];
    if (!isfinite(v.as.f) || p > 300) {
        *ret = ech_tv_float(v.as.f);
    } else if (p >= 0) {
        const int n = snprintf(text, sizeof text, "%.*f", (int)(p > 60 ? 60 : p), v.as.f);
        if (n < 0 || (size_t)n >= sizeof text) return ech_tvm_raise(vm, "rounding overflows");
        *ret = ech_tv_float(strtod(text, NULL));
    } else {
        const double unit = p < -308 ? INFINITY : pow(10, (double)-p);
        *ret = ech_tv_float(isinf(unit) ? 0.0 : rint(v.as.f / unit) * unit);
    }
    return ECH_OK;
}

/*
 * ceil and floor go through a power of ten and back, with the errors of doubles that Python makes
 * in the same place. They always give a float, also for an integer: `3 | round(0, 'floor')` is 3.0,
 * while `3 | round` is 3. The method is checked first, as in Jinja, before the value is looked at.
 */
static ech_status f_round(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tval v = c->a[0];
    int64_t p;
    ECH_TRY(int_or(vm, c->a[1], 0, &p));
    ech_tstr *how = NULL;
    if (given(c->a[2])) ECH_TRY(ech_targ_str(vm, c->a[2], &how));
    if (how != NULL && !ech_tstr_is(how, "common") && !ech_tstr_is(how, "ceil") &&
        !ech_tstr_is(how, "floor")) {
        return ech_tvm_raise(vm, "method must be common, ceil or floor");
    }
    if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, v.as.undef);
    if (!ech_tv_is_num(v))
        return ech_tvm_raise(vm, "type %s doesn't define __round__ method", ech_tv_type(v));
    if (how == NULL || ech_tstr_is(how, "common")) {
        ECH_TRY(round_common(vm, v, p, ret));
    } else {
        const double unit = pow(10, (double)p), scaled = ech_tv_as_float(v) * unit;
        if (!isfinite(scaled)) return ech_tvm_raise(vm, "cannot convert the float to an integer");
        /* Python's ceil and floor give an int, which has no negative zero. */
        const double whole = (ech_tstr_is(how, "ceil") ? ceil(scaled) : floor(scaled)) + 0.0;
        *ret = ech_tv_float(whole / unit);
    }
    ret->is_data = v.is_data;
    return ECH_OK;
}

/*
 * Jinja's own arithmetic: the unit is found by comparing with its powers, so that a number just
 * below a unit may still print as 1000.0 of the smaller one. 999999 bytes print as "1000.0 kB"
 * there and here. Negative ones are below every unit and print as bytes; NaN is below none and ends
 * at the largest. "1 Byte" is the only singular.
 */
static ech_status f_filesizeformat(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    static const char *const units[2][8] = { { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" },
                                             { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB",
                                               "YiB" } };
    const bool binary = truth(c->a[1]);
    const double base = binary ? 1024 : 1000;
    double bytes = 0;
    char text[400];
    if (c->a[0].kind == ECH_T_STR) {
        if (!parse_float(vm, c->a[0].as.str, &bytes))
            return ech_tvm_raise(vm, "could not convert string to float");
    } else {
        ECH_TRY(ech_targ_float(vm, c->a[0], &bytes));
    }
    if (bytes == 1) {
        (void)snprintf(text, sizeof text, "1 Byte");
    } else if (bytes < base) {
        /* Only minus infinity comes here: Jinja asks for int() of small numbers alone. */
        if (isinf(bytes)) return ech_tvm_raise(vm, "cannot convert float infinity to integer");
        (void)snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        int i = 0;
        double unit = base * base;
        /* YB is the last: what is larger prints with more digits. */
        while (i < 7 && !(bytes < unit)) {
            unit *= base;
            i++;
        }
        (void)snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, units[binary][i]);
    }
    ech_tbuild b = { .vm = vm };
    const bool is_data = c->a[0].kind == ECH_T_STR
                             ? c->a[0].as.str->len > 0 && ech_tstr_data_at(c->a[0].as.str, 0)
                             : c->a[0].is_data;
    ECH_TRY(ech_tbuild_add(&b, text, strlen(text), is_data));
    return ech_tbuild_done(&b, ret);
}

/* ---- the rest ---- */

/*
 * Replaces what is undefined; with `boolean` also what is false. The value itself goes through
 * untouched, origin and all. None is defined and stays. The call itself does not fail for an
 * undefined input, since a filter only sees a value; `nope.a | default('x')` fails before, when the
 * attribute is asked for.
 */
static ech_status f_default(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const bool replace =
        c->a[0].kind == ECH_T_UNDEFINED || (truth(c->a[2]) && !ech_tv_truth(c->a[0]));
    *ret = replace ? c->a[1] : c->a[0];
    return replace && !given(c->a[1]) ? ech_tv_lit(vm, "", ret) : ECH_OK;
}

/*
 * Only attributes, never keys: the one way to reach a method that a key hides. A method that would
 * change its object is undefined here, too: ech_tmethod_get() is the sandbox's one door.
 */
static ech_status f_attr(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *name;
    if (c->a[0].kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, c->a[0].as.undef);
    ECH_TRY(ech_targ_str(vm, c->a[1], &name));
    ECH_TRY(ech_tmethod_get(vm, c->a[0], name, ret));
    return ret->kind != ECH_T_ABSENT ? ECH_OK : ech_tv_undef_attr(vm, c->a[0], c->a[1], false, ret);
}

/*
 * json.dumps takes a number of blanks, any text, or None for one line. With 0 it still breaks
 * lines.
 */
static ech_status json_indent(ech_tvm *const vm, const ech_tval v, const ech_tstr **const ret)
{
    *ret = NULL;
    if (!given(v) || v.kind == ECH_T_NONE) return ECH_OK;
    if (v.kind == ECH_T_STR) {
        *ret = v.as.str;
        return ECH_OK;
    }
    int64_t n;
    ech_tval text;
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_targ_int(vm, v, &n));
    ECH_TRY(ech_tbuild_fill(&b, ' ', n < 0 ? 0 : (size_t)n, false));
    ECH_TRY(ech_tbuild_done(&b, &text));
    *ret = text.as.str;
    return ECH_OK;
}

/*
 * The separators that json.dumps chooses depend on `indent`: without it ", ", with it "," since a
 * line break follows. This is transformers' tojson: unlike Jinja's own it escapes nothing for HTML,
 * leaves non-ASCII characters alone and keeps keys in their order. Models were trained on prompts
 * made with it.
 */
static ech_status f_tojson(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    static const ech_tstr comma = { .ptr = ",", .len = 1 }, comma_blank = { .ptr = ", ", .len = 2 },
                          colon = { .ptr = ": ", .len = 2 };
    ech_tjson_style style = { .ensure_ascii = truth(c->a[1]),
                              .sort_keys = truth(c->a[4]),
                              .key_sep = &colon };
    ECH_TRY(json_indent(vm, c->a[2], &style.indent));
    style.item_sep = style.indent == NULL ? &comma_blank : &comma;
    if (given(c->a[3]) && c->a[3].kind != ECH_T_NONE) {
        ech_tseq *two;
        ech_tstr *s;
        ECH_TRY(ech_tv_to_list(vm, c->a[3], &two));
        if (two->n != 2) return ech_tvm_raise(vm, "separators must be two strings");
        /* Any two texts will do, even ones that make no JSON: json.dumps does not look at them. */
        ECH_TRY(ech_targ_str(vm, two->items[0], &s));
        style.item_sep = s;
        ECH_TRY(ech_targ_str(vm, two->items[1], &s));
        style.key_sep = s;
    }
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_tjson_dump(&b, &style, c->a[0]));
    return ech_tbuild_done(&b, ret);
}

/*
 * Random ones would make a prompt depend on chance; the others format for people or for HTML, and
 * no public chat template uses them.
 */
static ech_status f_refused(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)c;
    (void)ret;
    return ech_tvm_fail(
        vm, ECH_EUNSUPPORTED,
        "the filters pprint, random, striptags, urlize and wordwrap are not supported");
}

/*
 * In the order of the alphabet for those who read it; the search goes from the top, once per filter
 * and compilation. NULL parameters: the function binds its arguments itself.
 */
static const ech_tbuiltin filters[] = {
    { "abs", f_abs, "!x" },
    { "attr", f_attr, "obj name" },
    { "capitalize", f_capitalize, "s" },
    { "center", f_center, "value ?width" },
    { "d", f_default, "value ?default_value ?boolean" },
    { "default", f_default, "value ?default_value ?boolean" },
    { "e", f_escape, "!s" },
    { "escape", f_escape, "!s" },
    { "filesizeformat", f_filesizeformat, "value ?binary" },
    { "float", f_float, "value ?default" },
    { "forceescape", f_forceescape, "value" },
    { "format", f_format, NULL },
    { "indent", f_indent, "s ?width ?first ?blank" },
    { "int", f_int, "value ?default ?base" },
    { "lower", f_lower, "s" },
    { "pprint", f_refused, NULL },
    { "random", f_refused, NULL },
    { "replace", f_replace, "s old new ?count" },
    { "round", f_round, "value ?precision ?method" },
    { "safe", f_safe, "value" },
    { "string", f_string, "s" },
    { "striptags", f_refused, NULL },
    { "title", f_title, "s" },
    { "tojson", f_tojson, "x ?ensure_ascii ?indent ?separators ?sort_keys" },
    { "trim", f_trim, "value ?chars" },
    { "truncate", f_truncate, "s ?length ?killwords ?end ?leeway" },
    { "upper", f_upper, "s" },
    { "urlencode", f_urlencode, "value" },
    { "urlize", f_refused, NULL },
    { "wordcount", f_wordcount, "s" },
    { "wordwrap", f_refused, NULL },
    { "xmlattr", f_xmlattr, "d ?autospace" },
    { NULL, NULL, NULL },
};

/* Called by the parser, and by map() with a name that is known only while rendering. */
const ech_tbuiltin *ech_tfilter_find(const char *const name)
{
    const ech_tbuiltin *const b = ech_tbuiltin_in(filters, name, strlen(name));
    return b != NULL ? b : ech_tbuiltin_in(ech_tfilters_seq, name, strlen(name));
}
