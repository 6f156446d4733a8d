/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The automaton of JSON: one function per kind of state, a bit per level that says whether it is
 * an object. Iterative, so depth costs no stack; beyond ECH_JSON_SCAN_DEPTH it is no JSON for us.
 *
 * Invariant: after any prefix the state says exactly which bytes may follow, so a text that is no
 * JSON is refused at its first wrong byte. The state is a plain struct without pointers to its own
 * (rest points to a literal), so a copy of it is a snapshot. Left out: UTF-8, which the caller has
 * made sure of.
 */
#include "src/text/json_scan.h"

#include <string.h>

static bool is_digit(const char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(const char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Only where depth is at least 1. */
static bool in_object(const ech_json_scan *const s)
{
    const uint32_t level = s->depth - 1;
    return (s->is_object[level / 64] >> (level % 64) & 1) != 0;
}

/*
 * A value is complete: the whole one, or an element of what surrounds it. DONE takes white space
 * and nothing else.
 */
static ech_json_result end_value(ech_json_scan *const s)
{
    if (s->depth == 0) {
        s->state = ECH_JSON_DONE;
        return ECH_JSON_END;
    }
    s->state = ECH_JSON_COMMA_OR_END;
    return ECH_JSON_MORE;
}

/* The bit is written either way: an earlier level of the same depth may have left its own. */
static ech_json_result open_level(ech_json_scan *const s, const bool object)
{
    if (s->depth == ECH_JSON_SCAN_DEPTH) return ECH_JSON_BAD;
    const uint64_t bit = UINT64_C(1) << (s->depth % 64);
    uint64_t *const word = &s->is_object[s->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    s->depth++;
    s->state = object ? ECH_JSON_KEY_OR_END : ECH_JSON_VALUE_OR_END;
    return ECH_JSON_MORE;
}

/* The wrong bracket is refused here, and so is one too many. */
static ech_json_result close_level(ech_json_scan *const s, const bool object)
{
    if (s->depth == 0 || in_object(s) != object) return ECH_JSON_BAD;
    s->depth--;
    return end_value(s);
}

static ech_json_result go(ech_json_scan *const s, const ech_json_state state)
{
    s->state = state;
    return ECH_JSON_MORE;
}

static ech_json_result begin_literal(ech_json_scan *const s, const char *const rest)
{
    s->rest = rest;
    return go(s, ECH_JSON_LITERAL);
}

/* A number's first byte decides what may follow: no leading zeros, no plus. */
static ech_json_result begin_value(ech_json_scan *const s, const char c)
{
    switch (c) {
    case '{':
        return open_level(s, true);
    case '[':
        return open_level(s, false);
    case '"':
        s->in_key = false;
        return go(s, ECH_JSON_STRING);
    case 't':
        return begin_literal(s, "rue");
    case 'f':
        return begin_literal(s, "alse");
    case 'n':
        return begin_literal(s, "ull");
    case '-':
        return go(s, ECH_JSON_MINUS);
    case '0':
        return go(s, ECH_JSON_ZERO);
    default:
        return is_digit(c) ? go(s, ECH_JSON_INT) : ECH_JSON_BAD;
    }
}

/* Bytes from 0x80 on pass: they are parts of characters. Control characters must be escaped. */
static ech_json_result push_string(ech_json_scan *const s, const char c)
{
    if (c == '\\') return go(s, ECH_JSON_ESCAPE);
    if ((unsigned char)c < 0x20) return ECH_JSON_BAD;
    if (c != '"') return ECH_JSON_MORE;
    return s->in_key ? go(s, ECH_JSON_COLON) : end_value(s);
}

/* Surrogates are not paired here: JSON's grammar allows lone ones. */
static ech_json_result push_escape(ech_json_scan *const s, const char c)
{
    if (s->state == ECH_JSON_HEX) {
        if (!is_hex(c)) return ECH_JSON_BAD;
        return --s->n_hex == 0 ? go(s, ECH_JSON_STRING) : ECH_JSON_MORE;
    }
    if (c == 'u') {
        s->n_hex = 4;
        return go(s, ECH_JSON_HEX);
    }
    return c != 0 && strchr("\"\\/bfnrt", c) != NULL ? go(s, ECH_JSON_STRING) : ECH_JSON_BAD;
}

/*
 * The number has ended before c, which belongs to what surrounds it. A number is the only value
 * that ends by what follows it, so that byte is read twice; at depth 0 it is past the value.
 */
static ech_json_result end_number(ech_json_scan *const s, const char c)
{
    if (end_value(s) == ECH_JSON_END) return ECH_JSON_PAST;
    return ech_json_scan_push(s, c);
}

static ech_json_result push_number(ech_json_scan *const s, const char c)
{
    const bool digit = is_digit(c);
    switch (s->state) {
    case ECH_JSON_MINUS:
        return digit ? go(s, c == '0' ? ECH_JSON_ZERO : ECH_JSON_INT) : ECH_JSON_BAD;
    case ECH_JSON_POINT:
        return digit ? go(s, ECH_JSON_FRACTION) : ECH_JSON_BAD;
    case ECH_JSON_E:
        if (c == '+' || c == '-') return go(s, ECH_JSON_E_SIGN);
        return digit ? go(s, ECH_JSON_EXPONENT) : ECH_JSON_BAD;
    case ECH_JSON_E_SIGN:
        return digit ? go(s, ECH_JSON_EXPONENT) : ECH_JSON_BAD;
    case ECH_JSON_EXPONENT:
        return digit ? ECH_JSON_MORE : end_number(s, c);
    default:
        break;
    }
    /* ZERO, INT, FRACTION: the number may end here */
    if (digit) return s->state == ECH_JSON_ZERO ? ECH_JSON_BAD : ECH_JSON_MORE;
    if (c == '.' && s->state != ECH_JSON_FRACTION) return go(s, ECH_JSON_POINT);
    if (c == 'e' || c == 'E') return go(s, ECH_JSON_E);
    return end_number(s, c);
}

static ech_json_result push_literal(ech_json_scan *const s, const char c)
{
    if (c != *s->rest) return ECH_JSON_BAD;
    return *++s->rest == 0 ? end_value(s) : ECH_JSON_MORE;
}

/* A comma must have something behind it, so the empty forms are not allowed then. */
static ech_json_result push_comma_or_end(ech_json_scan *const s, const char c)
{
    if (c == ',') return go(s, in_object(s) ? ECH_JSON_KEY : ECH_JSON_VALUE);
    if (c == '}') return close_level(s, true);
    return c == ']' ? close_level(s, false) : ECH_JSON_BAD;
}

/* An end may come only where nothing was written yet. */
static ech_json_result push_key(ech_json_scan *const s, const char c)
{
    if (c == '}' && s->state == ECH_JSON_KEY_OR_END) return close_level(s, true);
    s->in_key = true;
    return c == '"' ? go(s, ECH_JSON_STRING) : ECH_JSON_BAD;
}

/*
 * First the states inside a token, where white space is no separator; then, behind it, those
 * between tokens.
 */
ech_json_result ech_json_scan_push(ech_json_scan *const s, const char c)
{
    switch (s->state) {
    case ECH_JSON_STRING:
        return push_string(s, c);
    case ECH_JSON_ESCAPE:
    case ECH_JSON_HEX:
        return push_escape(s, c);
    case ECH_JSON_LITERAL:
        return push_literal(s, c);
    case ECH_JSON_VALUE:
    case ECH_JSON_VALUE_OR_END:
    case ECH_JSON_KEY_OR_END:
    case ECH_JSON_KEY:
    case ECH_JSON_COLON:
    case ECH_JSON_COMMA_OR_END:
    case ECH_JSON_DONE:
        break;
    default:
        return push_number(s, c);
    }
    if (ech_json_is_space(c)) return ECH_JSON_MORE;
    switch (s->state) {
    case ECH_JSON_VALUE_OR_END:
        return c == ']' ? close_level(s, false) : begin_value(s, c);
    case ECH_JSON_VALUE:
        return begin_value(s, c);
    case ECH_JSON_KEY_OR_END:
    case ECH_JSON_KEY:
        return push_key(s, c);
    case ECH_JSON_COLON:
        return c == ':' ? go(s, ECH_JSON_VALUE) : ECH_JSON_BAD;
    case ECH_JSON_COMMA_OR_END:
        return push_comma_or_end(s, c);
    default:
        return ECH_JSON_BAD;
    }
}

bool ech_json_scan_in_string(const ech_json_scan *const s)
{
    return s->state == ECH_JSON_STRING || s->state == ECH_JSON_ESCAPE || s->state == ECH_JSON_HEX;
}

bool ech_json_scan_whole(const char *const text, const size_t len)
{
    ech_json_scan s = { 0 };
    for (size_t i = 0; i < len; i++) {
        const ech_json_result r = ech_json_scan_push(&s, text[i]);
        /* PAST: a number followed by what can only be white space, which DONE takes. */
        if (r == ECH_JSON_BAD || (r == ECH_JSON_PAST && !ech_json_is_space(text[i]))) return false;
    }
    /* A number may end with the text. */
    return s.state == ECH_JSON_DONE ||
           (s.depth == 0 && (s.state == ECH_JSON_ZERO || s.state == ECH_JSON_INT ||
                             s.state == ECH_JSON_FRACTION || s.state == ECH_JSON_EXPONENT));
}
