/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a rendering: JSON text to values, in one pass.
 *
 * A reader of its own, because jansson forgets how a number was spelled and refuses integers
 * beyond 64 bits, and a conversation must be printed back as it came. Strict otherwise: RFC 8259,
 * valid UTF-8, no lone surrogates, bounded nesting. Of a repeated key the last value counts, at
 * the first one's place, as in Python.
 */
#include <errno.h>
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

#define MAX_NESTING 200

typedef struct reader {
    ech_tvm *vm;
    const char *s;
    size_t len, pos;
    uint32_t depth;
    bool is_data; /* what is read now counts as data */
} reader;

static ech_status read_value(reader *r, ech_tval *ret);

static ech_status fail(const reader *const r, const char *const why)
{
    return ech_fail_at(r->vm->err, ECH_EFORMAT, 0, 0, (int64_t)r->pos,
                       "reading the template's arguments, JSON at byte %zu: %s", r->pos, why);
}

static void skip_space(reader *const r)
{
    while (r->pos < r->len && (r->s[r->pos] == ' ' || r->s[r->pos] == '\n' ||
                               r->s[r->pos] == '\r' || r->s[r->pos] == '\t')) {
        r->pos++;
    }
}

static char peek(const reader *const r)
{
    return r->pos < r->len ? r->s[r->pos] : '\0';
}

/* peek() gives NUL at the end, which a text may also hold: hence the second look. */
static bool skip_char(reader *const r, const char c)
{
    if (peek(r) != c || r->pos >= r->len) return false;
    r->pos++;
    return true;
}

/* ---- strings ---- */

/* By hand, since strtoul would take signs and spaces. */
static int hex4(const reader *const r, const size_t pos, uint32_t *const ret)
{
    if (r->len - pos < 4) return -1;
    uint32_t v = 0;
    for (size_t i = pos; i < pos + 4; i++) {
        const char c = r->s[i], lower = (char)(c | 32);
        if (c >= '0' && c <= '9')
            v = v * 16 + (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            v = v * 16 + (uint32_t)(lower - 'a' + 10);
        else
            return -1;
    }
    *ret = v;
    return 0;
}

/* After `\u`: one character, of a pair of escapes when it is a surrogate. */
static ech_status read_unicode(reader *const r, uint32_t *const ret)
{
    uint32_t low;
    if (hex4(r, r->pos, ret) != 0) return fail(r, "four hexadecimal digits must follow \\u");
    r->pos += 4;
    if (*ret < 0xd800 || *ret > 0xdfff) return ECH_OK;
    if (*ret > 0xdbff || r->len - r->pos < 6 || r->s[r->pos] != '\\' || r->s[r->pos + 1] != 'u' ||
        hex4(r, r->pos + 2, &low) != 0 || low < 0xdc00 || low > 0xdfff) {
        return fail(r, "a lone surrogate is no character");
    }
    r->pos += 6;
    *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    return ECH_OK;
}

/* out has room: an escape is never shorter than what it stands for. */
static ech_status read_escape(reader *const r, char *const out, size_t *const n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = peek(r);
    const char *const simple = c == '\0' ? NULL : strchr(from, c);
    r->pos++;
    if (simple != NULL) {
        out[(*n)++] = to[simple - from];
        return ECH_OK;
    }
    uint32_t cp;
    if (c != 'u') return fail(r, "unknown escape in a string");
    ECH_TRY(read_unicode(r, &cp));
    *n += (size_t)ech_utf8_encode(cp, out + *n);
    return ECH_OK;
}

/* The string's end, the position of its closing quote; checks nothing else. */
static ech_status find_end(const reader *const r, size_t *const ret, bool *const ret_escaped)
{
    *ret_escaped = false;
    for (size_t i = r->pos; i < r->len; i++) {
        const char c = r->s[i];
        if (c == '"') {
            *ret = i;
            return ECH_OK;
        }
        if ((uint8_t)c < 0x20) return fail(r, "control character in a string");
        if (c == '\\') {
            *ret_escaped = true;
            i++;
        }
    }
    return fail(r, "the string does not end");
}

/* A string, pos behind its opening quote. Without escapes the JSON text itself is shared. */
static ech_status read_string(reader *const r, ech_tval *const ret)
{
    size_t end = 0, bad;
    bool escaped;
    ECH_TRY(find_end(r, &end, &escaped));
    if (!ech_utf8_valid(r->s + r->pos, end - r->pos, &bad)) return fail(r, "not UTF-8");
    const char *text = r->s + r->pos;
    size_t n = end - r->pos;
    if (escaped) {
        char *out;
        ECH_TRY(ech_tvm_alloc(r->vm, n + 1, 1, &out));
        text = out;
        n = 0;
        while (r->pos < end) {
            if (r->s[r->pos] != '\\') {
                out[n++] = r->s[r->pos++];
                continue;
            }
            r->pos++;
            ECH_TRY(read_escape(r, out, &n));
        }
    }
    r->pos = end + 1;
    return ech_tv_view(r->vm, text, n, r->is_data, ret);
}

/* ---- numbers ---- */

static size_t digits(const reader *const r, size_t pos)
{
    while (pos < r->len && r->s[pos] >= '0' && r->s[pos] <= '9') {
        pos++;
    }
    return pos;
}

/* The end of a number at pos, or pos when there is none. */
static size_t number_end(const reader *const r, bool *const ret_float)
{
    size_t at = r->pos + (peek(r) == '-');
    const size_t whole = digits(r, at);
    if (whole == at || (r->s[at] == '0' && whole > at + 1)) return r->pos;
    *ret_float = false;
    at = whole;
    if (at < r->len && r->s[at] == '.') {
        const size_t end = digits(r, at + 1);
        if (end == at + 1) return r->pos;
        *ret_float = true;
        at = end;
    }
    if (at < r->len && (r->s[at] | 32) == 'e') {
        size_t e = at + 1;
        if (e < r->len && (r->s[e] == '+' || r->s[e] == '-')) e++;
        const size_t end = digits(r, e);
        if (end == e) return r->pos;
        *ret_float = true;
        at = end;
    }
    return at;
}

/*
 * Integers beyond 64 bits stay text, BIGINT: they print as they came, and arithmetic with them is
 * an error. The spelling of other numbers is kept only where tojson must give it back.
 */
static ech_status read_number(reader *const r, ech_tval *const ret)
{
    bool is_float;
    const size_t end = number_end(r, &is_float);
    if (end == r->pos) return fail(r, "a value was expected");
    char *const text = ech_arena_strdup(&r->vm->arena, (ech_str){ r->s + r->pos, end - r->pos });
    if (text == NULL) return ech_tvm_no_memory(r->vm, SIZE_MAX);
    r->pos = end;
    errno = 0;
    if (is_float) {
        *ret = ech_tv_float(strtod(text, NULL));
    } else {
        const long long i = strtoll(text, NULL, 10);
        if (errno == ERANGE) {
            ECH_TRY(ech_tv_view(r->vm, text, strlen(text), r->is_data, ret));
            ret->kind = ECH_T_BIGINT;
        } else {
            *ret = ech_tv_int(i);
        }
    }
    ret->is_data = r->is_data;
    if (r->vm->spelled_numbers && ret->kind != ECH_T_BIGINT) ret->spelling = text;
    return ECH_OK;
}

/* ---- containers ---- */

/* Depth is counted in read_value(), once for lists and objects. */
static ech_status read_list(reader *const r, ech_tval *const ret)
{
    ech_tseq *seq;
    ECH_TRY(ech_tseq_new(r->vm, 0, &seq));
    *ret = ech_tv_seq(ECH_T_LIST, seq);
    ret->is_data = r->is_data;
    skip_space(r);
    if (skip_char(r, ']')) return ECH_OK;
    for (;;) {
        ech_tval item;
        ECH_TRY(read_value(r, &item));
        ECH_TRY(ech_tseq_push(r->vm, seq, item));
        skip_space(r);
        if (skip_char(r, ']')) return ECH_OK;
        if (!skip_char(r, ',')) return fail(r, "expected , or ]");
    }
}

/*
 * The arguments whose text is the template's own: the model's files give them, no user can, and
 * templates print them where a marker must count. Only at the top: a message may have a key of that
 * name.
 */
static bool is_own(const ech_tstr *const key)
{
    static const char *const names[] = { "bos_token", "eos_token", "pad_token", "unk_token",
                                         "sep_token", "cls_token", "mask_token" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (ech_tstr_is(key, names[i])) return true;
    }
    return false;
}

/* Keys are data as well: a tool's parameter may be called <|im_end|>. */
static ech_status read_dict(reader *const r, ech_tval *const ret)
{
    ech_tdict *d;
    ECH_TRY(ech_tdict_new(r->vm, &d));
    *ret = ech_tv_dict(d);
    ret->is_data = r->is_data;
    skip_space(r);
    if (skip_char(r, '}')) return ECH_OK;
    for (;;) {
        ech_tval key, value;
        skip_space(r);
        if (!skip_char(r, '"')) return fail(r, "a key must be a string");
        ECH_TRY(read_string(r, &key));
        skip_space(r);
        if (!skip_char(r, ':')) return fail(r, "expected :");
        r->is_data = !(r->depth == 1 && is_own(key.as.str));
        ECH_TRY(read_value(r, &value));
        r->is_data = true;
        ECH_TRY(ech_tdict_set(r->vm, d, key, value));
        skip_space(r);
        if (skip_char(r, '}')) return ECH_OK;
        if (!skip_char(r, ',')) return fail(r, "expected , or }");
    }
}

static bool skip_word(reader *const r, const char *const word)
{
    const size_t n = strlen(word);
    if (r->len - r->pos < n || memcmp(r->s + r->pos, word, n) != 0) return false;
    r->pos += n;
    return true;
}

static ech_status read_value(reader *const r, ech_tval *const ret)
{
    ech_status rc;
    skip_space(r);
    ECH_TRY(ech_tvm_charge(r->vm, 1));
    if (skip_char(r, '"')) return read_string(r, ret);
    if (skip_char(r, '{') || skip_char(r, '[')) {
        const bool is_dict = r->s[r->pos - 1] == '{';
        if (++r->depth > MAX_NESTING) return fail(r, "nested more than 200 levels deep");
        rc = is_dict ? read_dict(r, ret) : read_list(r, ret);
        r->depth--;
        return rc;
    }
    if (skip_word(r, "true"))
        *ret = ech_tv_bool(true);
    else if (skip_word(r, "false"))
        *ret = ech_tv_bool(false);
    else if (skip_word(r, "null"))
        *ret = ech_tv_none();
    else
        return read_number(r, ret);
    ret->is_data = r->is_data;
    return ECH_OK;
}

/* One charge a value, so that the step limit of the rendering bounds its arguments too. */
ech_status ech_targs_parse(ech_tvm *const vm, const char *const json, const size_t len,
                           ech_tdict **const ret)
{
    reader r = { .vm = vm, .s = json, .len = len, .is_data = true };
    ech_tval v;
    ECH_TRY(read_value(&r, &v));
    skip_space(&r);
    if (r.pos < r.len) return fail(&r, "text after the end");
    if (v.kind != ECH_T_DICT) return fail(&r, "the arguments must be an object");
    *ret = v.as.dict;
    return ECH_OK;
}

/*
 * For `arguments` given as a string: templates want the object. What doesn't parse is no error but
 * ABSENT, and the caller leaves the string. Depth 1 keeps is_own() out: nothing here is the top.
 */
ech_status ech_tjson_try(ech_tvm *const vm, const char *const json, const size_t len,
                         ech_tval *const ret)
{
    reader r = { .vm = vm, .s = json, .len = len, .is_data = true, .depth = 1 };
    ech_error *const err = vm->err;
    const bool spelled = vm->spelled_numbers;
    ech_error scratch;
    vm->err = &scratch;
    vm->spelled_numbers = true;
    const ech_status rc = read_value(&r, ret);
    skip_space(&r);
    vm->err = err;
    vm->spelled_numbers = spelled;
    if (rc != ECH_OK && rc != ECH_EFORMAT) {
        if (err != NULL) *err = scratch;
        return rc;
    }
    if (rc != ECH_OK || r.pos < len) *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    return ECH_OK;
}
