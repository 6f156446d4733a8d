/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of GBNF grammars: one pass, rules by name through a hash table, so a rule may be used
 * before it is written. Recursive descent over groups, whose depth is bounded; everything else is
 * flat. Works on UTF-8 and reports line, column and offset.
 *
 * The language is llama.cpp's GBNF, without its references to tokens. Errors are sticky: the first
 * one counts, later calls return ECH_CX_FAIL. A grammar comes from a client: depth, counts, names
 * and the graph's size are bounded. Left recursion is found later, by ech_cx_analyse. Runs on the
 * compiling thread.
 */
#include "src/text/constraint_gbnf.h"

#include <stdio.h>

#include "src/base/utf8.h"
#include "src/text/constraint_chars.h"

#define MAX_DEPTH 200
#define MAX_COUNT 1000000u
#define MAX_NAME  255u

typedef struct parser {
    ech_cx_graph *g;
    ech_str text;
    size_t at;
    int depth;
    ech_index names; /* of rules */
    ech_error *err;
    ech_status rc;
} parser;

/* A growing list of expressions on the heap. */
typedef struct cx_list {
    ech_cx *items;
    uint32_t n, cap;
} cx_list;

/* ---- reading ---- */

static void position(const parser *const p, const size_t at, int64_t *const line,
                     int64_t *const column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at && i < p->text.len; i++) {
        (*column)++;
        if (p->text.ptr[i] != '\n') continue;
        (*line)++;
        *column = 1;
    }
}

static ech_cx fail_at(parser *const p, const size_t at, const ech_status code,
                      const char *const why)
{
    if (p->rc != ECH_OK) return ECH_CX_FAIL;
    int64_t line = 0, column = 0;
    position(p, at, &line, &column);
    p->rc = code;
    (void)ech_fail_at(p->err, code, line, column, (int64_t)at,
                      "parsing a grammar: line %lld, column %lld: %s", (long long)line,
                      (long long)column, why);
    return ECH_CX_FAIL;
}

static ech_cx fail(parser *const p, const ech_status code, const char *const why)
{
    return fail_at(p, p->at, code, why);
}

static bool at_end(const parser *const p)
{
    return p->at >= p->text.len;
}

/* The next byte, 0 at the end; a zero byte in the text is an error wherever it is looked at. */
static char peek(const parser *const p)
{
    return at_end(p) ? 0 : p->text.ptr[p->at];
}

static bool take(parser *const p, const char c)
{
    if (at_end(p) || p->text.ptr[p->at] != c) return false;
    p->at++;
    return true;
}

/*
 * Skips blanks and comments, and line ends if they don't end anything here. Within parentheses a
 * line end is a blank; outside it ends the rule.
 */
static void skip_space(parser *const p, const bool lines)
{
    while (!at_end(p)) {
        const char c = peek(p);
        if (c == '#') {
            while (!at_end(p) && peek(p) != '\n')
                p->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static bool is_name_char(const char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static bool parse_name(parser *const p, char out[MAX_NAME + 1])
{
    size_t n = 0;
    while (!at_end(p) && is_name_char(peek(p))) {
        if (n == MAX_NAME) {
            (void)fail(p, ECH_ELIMIT, "a name is longer than 255 characters");
            return false;
        }
        out[n++] = p->text.ptr[p->at++];
    }
    out[n] = 0;
    return n > 0;
}

/* ---- rules ---- */

static uint64_t hash_name(const char *const name)
{
    uint64_t h = 19;
    for (const char *c = name; *c != 0; c++)
        h = ech_hash_step(h, (uint8_t)*c);
    return h;
}

static uint64_t hash_rule(const void *const owner, const uint32_t idx)
{
    return hash_name(((const parser *)owner)->g->rules[idx].name);
}

/*
 * The rule of a name, made if there is none; at is where it is used. mark remembers where the name
 * stood first, for the message when the rule is never written. Every rule counts towards the depth
 * limit.
 */
static uint32_t find_rule(parser *const p, const char *const name, const size_t at)
{
    ech_cx_graph *const g = p->g;
    if (!ech_index_reserve(&p->names, hash_rule, p)) {
        (void)fail(p, ECH_ENOMEM, "out of memory");
        return ECH_CX_INF;
    }
    const uint32_t mask = p->names.cap - 1;
    uint32_t s = (uint32_t)hash_name(name) & mask;
    for (; p->names.slots[s] != 0; s = (s + 1) & mask) {
        if (strcmp(g->rules[p->names.slots[s] - 1].name, name) == 0) return p->names.slots[s] - 1;
    }
    const uint32_t rule = ech_cx_rule_new(g, name, true);
    if (rule == ECH_CX_INF || g->rules[rule].name == NULL) {
        (void)fail(p, g->rc, "it has too many rules");
        return ECH_CX_INF;
    }
    g->rules[rule].mark = (uint32_t)at;
    p->names.slots[s] = rule + 1;
    p->names.used++;
    return rule;
}

/* ---- terminals ---- */

static int hex_value(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Surrogates are refused, since no UTF-8 text has them. */
static uint32_t parse_hex(parser *const p, const int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        const int d = hex_value(peek(p));
        if (d < 0) {
            (void)fail(p, ECH_EFORMAT, "an escape wants more hexadecimal digits");
            return 0;
        }
        v = v * 16 + (uint32_t)d;
        p->at++;
    }
    if (v > ECH_CP_MAX || (v >= 0xD800 && v <= 0xDFFF)) {
        (void)fail(p, ECH_EFORMAT, "an escape is no character");
    }
    return v;
}

/* On failure the place stays at the character in question. */
static uint32_t parse_escape(parser *const p)
{
    const char c = peek(p);
    p->at += !at_end(p);
    switch (c) {
    case 'x':
        return parse_hex(p, 2);
    case 'u':
        return parse_hex(p, 4);
    case 'U':
        return parse_hex(p, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        return (uint8_t)c;
    default:
        p->at -= !at_end(p);
        (void)fail(p, ECH_EFORMAT, "unknown escape");
        return 0;
    }
}

/* One character of a literal or class, escapes resolved. */
static uint32_t parse_char(parser *const p)
{
    if (take(p, '\\')) return parse_escape(p);
    uint32_t cp = 0;
    const int n = ech_utf8_decode(p->text.ptr + p->at, p->text.len - p->at, &cp);
    p->at += n > 0 ? (size_t)n : 1; /* the text was checked to be UTF-8 */
    return cp;
}

/* After the opening quote. A literal is bytes from here on. Line ends must be written as \n. */
static ech_cx parse_literal(parser *const p)
{
    ech_buf bytes = { 0 };
    const size_t start = p->at;
    while (p->rc == ECH_OK && !take(p, '"')) {
        if (at_end(p) || peek(p) == '\n') {
            (void)fail_at(p, start, ECH_EFORMAT, "a \" is not closed");
            break;
        }
        char out[4];
        const int n = ech_utf8_encode(parse_char(p), out);
        if (p->rc == ECH_OK && ech_buf_append(&bytes, out, (size_t)n) != ECH_OK) {
            (void)fail(p, ECH_ENOMEM, "out of memory");
        }
    }
    const ech_cx out = p->rc == ECH_OK ? ech_cx_lit(p->g, bytes.data, bytes.len) : ECH_CX_FAIL;
    ech_buf_fini(&bytes);
    return out;
}

/*
 * After the opening bracket. A hyphen at the end stands for itself. Shared: a class may be
 * thousands of nodes as UTF-8.
 */
static ech_cx parse_class(parser *const p)
{
    ech_cset set = { 0 };
    const size_t start = p->at;
    const bool negated = take(p, '^');
    while (p->rc == ECH_OK && !take(p, ']')) {
        if (at_end(p) || peek(p) == '\n') {
            (void)fail_at(p, start, ECH_EFORMAT, "a [ is not closed");
            break;
        }
        const uint32_t first = parse_char(p);
        uint32_t last = first;
        const bool is_range =
            peek(p) == '-' && p->at + 1 < p->text.len && p->text.ptr[p->at + 1] != ']';
        if (is_range) {
            p->at++;
            last = parse_char(p);
        }
        if (last < first)
            (void)fail(p, ECH_EFORMAT, "a range runs backwards");
        else
            ech_cset_add(&set, first, last);
    }
    ech_cset_tidy(&set);
    if (negated) ech_cset_negate(&set);
    const ech_cx out = p->rc == ECH_OK
                           ? ech_cx_shared(p->g, ech_cx_chars(p->g, &set, ECH_SPELL_RAW))
                           : ECH_CX_FAIL;
    ech_cset_fini(&set);
    return out;
}

/* ---- structure ---- */

static ech_cx parse_alternatives(parser *p, bool nested);

static ech_cx parse_group(parser *const p)
{
    const size_t start = p->at;
    if (++p->depth > MAX_DEPTH) return fail(p, ECH_ELIMIT, "groups nest over 200 deep");
    skip_space(p, true);
    const ech_cx inner = parse_alternatives(p, true);
    p->depth--;
    if (p->rc == ECH_OK && !take(p, ')'))
        return fail_at(p, start, ECH_EFORMAT, "a ( is not closed");
    return inner;
}

static ech_cx parse_reference(parser *const p)
{
    char name[MAX_NAME + 1];
    const size_t at = p->at;
    if (!parse_name(p, name)) return fail(p, ECH_EFORMAT, "a terminal, a name or a ( is expected");
    return ech_cx_ref(p->g, find_rule(p, name, at));
}

static ech_cx parse_atom(parser *const p)
{
    if (take(p, '"')) return parse_literal(p);
    if (take(p, '[')) return parse_class(p);
    if (take(p, '(')) return parse_group(p);
    if (take(p, '.')) return ech_cx_shared(p->g, ech_cx_any_char(p->g, ECH_SPELL_RAW));
    if (peek(p) == '<' || peek(p) == '!') {
        return fail(p, ECH_EUNSUPPORTED, "references to tokens are not supported");
    }
    return parse_reference(p);
}

static bool parse_count(parser *const p, uint32_t *const ret)
{
    uint64_t v = 0;
    const size_t from = p->at;
    while (peek(p) >= '0' && peek(p) <= '9') {
        v = v * 10 + (uint64_t)(p->text.ptr[p->at++] - '0');
        if (v > MAX_COUNT) {
            (void)fail(p, ECH_ELIMIT, "a repeat count is over 1000000");
            return false;
        }
    }
    *ret = (uint32_t)v;
    return p->at > from;
}

/* After the opening brace: m}, m,} or m,n}. */
static ech_cx parse_braces(parser *const p, const ech_cx atom)
{
    uint32_t min = 0, max = 0;
    skip_space(p, false);
    const bool has_min = parse_count(p, &min);
    max = min;
    skip_space(p, false);
    bool ok = has_min;
    if (take(p, ',')) {
        skip_space(p, false);
        if (!parse_count(p, &max)) max = ECH_CX_INF;
        skip_space(p, false);
        ok = has_min || max != ECH_CX_INF;
    }
    if (!ok || !take(p, '}') || min > max) {
        return fail(p, ECH_EFORMAT, "a repeat must be {m}, {m,} or {m,n} with m not above n");
    }
    return ech_cx_repeat(p->g, atom, min, max);
}

/* An atom and its repeats, of which there may be several: "a"*? is ("a"*)?. */
static ech_cx parse_term(parser *const p, const bool nested)
{
    ech_cx out = parse_atom(p);
    for (int i = 0; p->rc == ECH_OK; i++) {
        if (i > MAX_DEPTH) return fail(p, ECH_ELIMIT, "too many repeats of one term");
        if (take(p, '*'))
            out = ech_cx_repeat(p->g, out, 0, ECH_CX_INF);
        else if (take(p, '+'))
            out = ech_cx_repeat(p->g, out, 1, ECH_CX_INF);
        else if (take(p, '?'))
            out = ech_cx_opt(p->g, out);
        else if (take(p, '{'))
            out = parse_braces(p, out);
        else
            break;
        skip_space(p, nested);
    }
    return out;
}

static void push(parser *const p, cx_list *const list, const ech_cx item)
{
    if (p->rc != ECH_OK) return;
    if (!ECH_VEC_GROW(list->items, list->cap, list->n, 1))
        (void)fail(p, ECH_ENOMEM, "out of memory");
    else
        list->items[list->n++] = item;
}

static bool ends_sequence(const parser *const p)
{
    const char c = peek(p);
    return at_end(p) || c == '|' || c == ')' || c == '\n' || c == '\r';
}

static ech_cx parse_sequence(parser *const p, const bool nested)
{
    cx_list list = { 0 };
    skip_space(p, nested);
    while (p->rc == ECH_OK && !ends_sequence(p)) {
        push(p, &list, parse_term(p, nested));
        skip_space(p, nested);
    }
    const ech_cx out = ech_cx_seq(p->g, list.items, list.n);
    free(list.items);
    return out;
}

/*
 * Whether the next line goes on with another alternative; takes the line ends if so. "|" at the
 * beginning of a line goes on with the rule above it.
 */
static bool continues(parser *const p, const bool nested)
{
    if (nested) return false;
    const size_t back = p->at;
    skip_space(p, true);
    if (peek(p) == '|') return true;
    p->at = back;
    return false;
}

static ech_cx parse_alternatives(parser *const p, const bool nested)
{
    cx_list list = { 0 };
    push(p, &list, parse_sequence(p, nested));
    while (p->rc == ECH_OK && (peek(p) == '|' || continues(p, nested))) {
        p->at++;
        skip_space(p, true);
        push(p, &list, parse_sequence(p, nested));
    }
    const ech_cx out = ech_cx_alt(p->g, list.items, list.n);
    free(list.items);
    return out;
}

static void parse_rule(parser *const p)
{
    char name[MAX_NAME + 1];
    const size_t at = p->at;
    if (!parse_name(p, name)) {
        (void)fail(p, ECH_EFORMAT, "a rule's name is expected");
        return;
    }
    const uint32_t rule = find_rule(p, name, at);
    if (p->rc != ECH_OK) return;
    skip_space(p, false);
    if (p->text.len - p->at < 3 || memcmp(p->text.ptr + p->at, "::=", 3) != 0) {
        (void)fail(p, ECH_EFORMAT, "::= is expected after a rule's name");
        return;
    }
    p->at += 3;
    if (p->g->rules[rule].is_defined) {
        (void)fail_at(p, at, ECH_EFORMAT, "the rule is defined twice");
        return;
    }
    skip_space(p, true);
    const ech_cx body = parse_alternatives(p, false);
    if (p->rc != ECH_OK) return;
    ech_cx_rule_define(p->g, rule, body);
    if (!at_end(p) && peek(p) != '\n' && peek(p) != '\r') {
        (void)fail(p, ECH_EFORMAT, "a rule must end where its line ends");
    }
}

/* Every name that is used must be a rule. */
static void check_rules(parser *const p, const uint32_t first)
{
    for (uint32_t i = first; i < p->g->n_rules && p->rc == ECH_OK; i++) {
        const ech_cx_rule *const rule = &p->g->rules[i];
        if (rule->is_defined) continue;
        char why[MAX_NAME + 40];
        (void)snprintf(why, sizeof why, "there is no rule %s", rule->name);
        (void)fail_at(p, rule->mark, ECH_EFORMAT, why);
    }
}

ech_status ech_gbnf_expr(ech_cx_graph *const g, const ech_str text, ech_cx *const ret_expr,
                         ech_error *const err)
{
    parser p = { .g = g, .text = text, .err = err };
    const uint32_t first = g->n_rules;
    size_t bad = 0;
    if (!ech_utf8_valid(text.ptr, text.len, &bad))
        (void)fail_at(&p, bad, ECH_EFORMAT, "it is not UTF-8");
    skip_space(&p, true);
    while (p.rc == ECH_OK && !at_end(&p)) {
        parse_rule(&p);
        skip_space(&p, true);
    }
    if (p.rc == ECH_OK) check_rules(&p, first);
    uint32_t root = ECH_CX_INF;
    if (p.rc == ECH_OK) root = find_rule(&p, "root", text.len);
    if (p.rc == ECH_OK && !g->rules[root].is_defined) {
        (void)fail_at(&p, text.len, ECH_EFORMAT, "there is no rule named root");
    }
    ech_index_fini(&p.names);
    if (p.rc != ECH_OK) return p.rc;
    ECH_TRY(ech_cx_graph_check(g, err));
    *ret_expr = ech_cx_ref(g, root);
    return ech_cx_graph_check(g, err);
}
