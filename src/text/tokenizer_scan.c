/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict JSON pull reader for the two large members of tokenizer.json. The text has been checked
 * to be UTF-8. No recursion: nesting is a counter with a limit.
 *
 * Invariant: in->at never passes in->len, and every function either leaves it behind what it read
 * or fails with line and column. Runs while a tokenizer is opened, on that thread. Left out:
 * building a tree, which jansson does for the rest of the file.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_json.h"

#define MAX_NESTING 256

/* Lines are counted only now: an error happens once. */
ech_status ech_json_fail(const ech_json_scan *const in, const char *const why)
{
    int64_t line = 1, column = 1;
    for (size_t i = 0; i < in->at && i < in->len; i++) {
        column = in->s[i] == '\n' ? 1 : column + 1;
        line += in->s[i] == '\n';
    }
    return ech_fail_at(in->err, ECH_EFORMAT, line, column, (int64_t)in->at,
                       "reading JSON: %s at line %lld, column %lld", why, (long long)line,
                       (long long)column);
}

/*
 * 0 at the end; a zero byte in the text reads as an end too, which no JSON has outside of strings.
 */
char ech_json_peek(ech_json_scan *const in)
{
    while (in->at < in->len) {
        const char c = in->s[in->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        in->at++;
    }
    return '\0';
}

/* Nothing is taken where it fails, so it can ask for one thing after the other. */
bool ech_json_take(ech_json_scan *const in, const char c)
{
    if (ech_json_peek(in) != c || c == '\0') return false;
    in->at++;
    return true;
}

ech_status ech_json_expect(ech_json_scan *const in, const char c)
{
    if (ech_json_take(in, c)) return ECH_OK;
    char why[] = "expected ' '";
    why[10] = c;
    return ech_json_fail(in, why);
}

/* By hand, since strtol would take signs and spaces. */
static int hex4(const ech_json_scan *const in, const size_t at)
{
    int v = 0;
    if (in->len - at < 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        const char c = in->s[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/*
 * "\u1234", or two of them for a character beyond U+FFFF; in->at is behind the u. A lone half is
 * refused: it has no UTF-8.
 */
static ech_status read_unicode(ech_json_scan *const in, ech_buf *const out)
{
    int cp = hex4(in, in->at);
    if (cp < 0) return ech_json_fail(in, "bad \\u escape");
    in->at += 4;
    if (cp >= 0xD800 && cp < 0xDC00) {
        const int low = in->len - in->at >= 6 && in->s[in->at] == '\\' && in->s[in->at + 1] == 'u'
                            ? hex4(in, in->at + 2)
                            : -1;
        if (low < 0xDC00 || low > 0xDFFF) return ech_json_fail(in, "half a surrogate pair");
        in->at += 6;
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    char c[4];
    const int n = ech_utf8_encode((uint32_t)cp, c);
    if (n == 0) return ech_json_fail(in, "half a surrogate pair");
    return ech_buf_append(out, c, (size_t)n);
}

/* in->at is at the backslash. The two lists go together, place by place. */
static ech_status read_escape(ech_json_scan *const in, ech_buf *const out)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    in->at++;
    const char c = in->at < in->len ? in->s[in->at] : '\0';
    const char *const p = c != '\0' ? strchr(FROM, c) : NULL;
    if (c != 'u' && p == NULL) return ech_json_fail(in, "bad escape");
    in->at++;
    return c == 'u' ? read_unicode(in, out) : ech_buf_push(out, TO[p - FROM]);
}

/* Appends, so that two strings may share a buffer. */
ech_status ech_json_string(ech_json_scan *const in, ech_buf *const out)
{
    ECH_TRY(ech_json_expect(in, '"'));
    for (;;) {
        const size_t from = in->at;
        while (in->at < in->len && (uint8_t)in->s[in->at] >= 0x20 && in->s[in->at] != '"' &&
               in->s[in->at] != '\\') {
            in->at++;
        }
        if (ech_buf_append(out, in->s + from, in->at - from) != ECH_OK) {
            return ech_fail(in->err, ECH_ENOMEM, "reading JSON: out of memory");
        }
        if (in->at == in->len) return ech_json_fail(in, "a string without an end");
        if (in->s[in->at] == '"') break;
        if (in->s[in->at] != '\\') return ech_json_fail(in, "a control character in a string");
        ECH_TRY(read_escape(in, out));
    }
    in->at++;
    return ECH_OK;
}

/*
 * strtod needs an end, hence the copy; longer numbers than 63 characters are refused by what
 * follows. Integers over 17 digits are none here: no id is that large.
 */
ech_status ech_json_number(ech_json_scan *const in, double *const ret_value, int64_t *const ret_int)
{
    (void)ech_json_peek(in);
    char text[64];
    size_t n = 0;
    bool is_int = true;
    while (in->at < in->len && n < sizeof text - 1 && in->s[in->at] != '\0' &&
           strchr("+-.eE0123456789", in->s[in->at]) != NULL) {
        is_int = is_int && strchr(".eE", in->s[in->at]) == NULL;
        text[n++] = in->s[in->at++];
    }
    text[n] = '\0';
    char *end = text;
    *ret_value = strtod(text, &end);
    if (n == 0 || end != text + n || text[0] == '+' || text[0] == '.')
        return ech_json_fail(in, "not a number");
    *ret_int = is_int && n < 18 ? strtoll(text, NULL, 10) : INT64_MIN;
    return ECH_OK;
}

/*
 * A string's bounds alone. An escaped quote is passed with its backslash; what else is wrong inside
 * is not asked.
 */
static ech_status skip_string(ech_json_scan *const in)
{
    for (in->at++; in->at < in->len && in->s[in->at] != '"'; in->at++) {
        if (in->s[in->at] == '\\') in->at++;
    }
    if (in->at >= in->len) return ech_json_fail(in, "a string without an end");
    in->at++;
    return ECH_OK;
}

/* Checks brackets by count and not by kind: what is skipped is read by somebody else later. */
ech_status ech_json_skip(ech_json_scan *const in, size_t *const ret_from, size_t *const ret_to)
{
    size_t depth = 0;
    (void)ech_json_peek(in);
    *ret_from = in->at;
    do {
        const char c = ech_json_peek(in);
        if (c == '\0') return ech_json_fail(in, "an early end");
        if (c == '"') {
            ECH_TRY(skip_string(in));
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']' || c == ',') && depth == 0)
            return ech_json_fail(in, "a value is missing");
        if (c == '}' || c == ']') depth--;
        if (depth > MAX_NESTING) return ech_json_fail(in, "nested too deeply");
        in->at++;
        /* A bare word or number at depth 0 runs to its end. */
        while (depth == 0 && c != '}' && c != ']' && in->at < in->len &&
               strchr(",]} \n\r\t", in->s[in->at]) == NULL) {
            in->at++;
        }
    } while (depth > 0);
    *ret_to = in->at;
    return ECH_OK;
}
