/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of regular expressions: recursive descent over the groups, whose depth is bounded;
 * lists of alternatives and of terms are flat. Works on UTF-8 and reports the byte and the column
 * of what it can't take. Anchors are parsed where they stand and resolved in
 * constraint_regex_build.c.
 *
 * The language is ECMA-262's, without what no automaton can do: look-around, back references and
 * word boundaries are refused. Laziness is taken and means nothing, since only the set of texts
 * counts.
 *
 * Engines disagree about \d, \w, \s and "."; a reading says which way to err. STRICT takes what
 * every engine takes, WIDE what some engine does, and negation turns one into the other. Errors are
 * sticky in p->rc; NONE travels up as the node of what failed. Untrusted input; runs on the
 * compiling thread.
 */
#include "src/text/constraint_regex_ast.h"

#include "src/base/utf8.h"

#define NONE UINT32_MAX

typedef struct parser {
    ech_regex *re;
    ech_str text;
    ech_regex_reading reading;
    size_t at;
    int depth;
    ech_categories categories;
    uint64_t n_ranges; /* of all sets that were read */
    ech_error *err;
    ech_status rc;
} parser;

/* A category has hundreds in five bytes: what bounds the text alone would bound nothing. */
#define MAX_RANGES (UINT64_C(4) << 20)

/* ---- the tree ---- */

uint32_t ech_re_add(ech_regex *const re, const ech_re_kind kind, const uint32_t a, const uint32_t b,
                    const uint32_t c)
{
    if (!ECH_VEC_GROW(re->nodes, re->cap_nodes, re->n_nodes, 1)) return NONE;
    re->nodes[re->n_nodes] = (ech_re_node){ kind, a, b, c };
    return re->n_nodes++;
}

/*
 * Nothing in a row is the empty text, no alternative is failure, and a single node needs no list.
 */
uint32_t ech_re_add_list(ech_regex *const re, const ech_re_kind kind, const uint32_t *const nodes,
                         const uint32_t n)
{
    if (n == 0) return ech_re_add(re, kind == ECH_RE_CAT ? ECH_RE_EMPTY : ECH_RE_FAIL, 0, 0, 0);
    if (n == 1) return nodes[0];
    if (!ECH_VEC_GROW(re->kids, re->cap_kids, re->n_kids, n)) return NONE;
    memcpy(re->kids + re->n_kids, nodes, n * sizeof *nodes);
    re->n_kids += n;
    return ech_re_add(re, kind, re->n_kids - n, n, 0);
}

static uint64_t hash_set(const ech_cset *const s)
{
    uint64_t h = s->n;
    for (uint32_t i = 0; i < s->n; i++)
        h = ech_hash_step(h, (uint64_t)s->ranges[i].first << 32 | s->ranges[i].last);
    return h;
}

static uint64_t hash_set_at(const void *const owner, const uint32_t idx)
{
    const ech_regex *const re = owner;
    return hash_set(&re->sets[idx]);
}

static bool same_set(const ech_cset *const a, const ech_cset *const b)
{
    return a->n == b->n &&
           (a->n == 0 || memcmp(a->ranges, b->ranges, a->n * sizeof *a->ranges) == 0);
}

/*
 * The index of an equal set, or of this one, which is kept then. What is made of a set costs by its
 * ranges: a pattern of a million dots must cost one of them.
 */
static uint32_t intern_set(ech_regex *const re, ech_cset *const set)
{
    const uint32_t mask = re->set_index.cap - 1;
    uint32_t at = (uint32_t)hash_set(set) & mask;
    for (; re->set_index.slots[at] != 0; at = (at + 1) & mask) {
        const uint32_t idx = re->set_index.slots[at] - 1;
        if (same_set(&re->sets[idx], set)) return idx;
    }
    re->sets[re->n_sets] = *set;
    *set = (ech_cset){ 0 };
    re->set_index.slots[at] = re->n_sets + 1;
    re->set_index.used++;
    return re->n_sets++;
}

/* Takes what set holds, on failure too. */
uint32_t ech_re_add_set(ech_regex *const re, ech_cset *const set)
{
    const bool has_room = !set->oom && ECH_VEC_GROW(re->sets, re->cap_sets, re->n_sets, 1) &&
                          ech_index_reserve(&re->set_index, hash_set_at, re);
    const uint32_t idx = has_room ? intern_set(re, set) : NONE;
    ech_cset_fini(set);
    return has_room ? ech_re_add(re, ECH_RE_SET, idx, 0, 0) : NONE;
}

void ech_regex_free(ech_regex **const regex)
{
    if (regex == NULL || *regex == NULL) return;
    for (uint32_t i = 0; i < (*regex)->n_sets; i++)
        ech_cset_fini(&(*regex)->sets[i]);
    free((*regex)->nodes);
    free((*regex)->kids);
    free((*regex)->sets);
    ech_index_fini(&(*regex)->set_index);
    free(*regex);
    *regex = NULL;
}

/* ---- reading ---- */

/* The first error counts. */
static uint32_t fail(parser *const p, const ech_status code, const char *const why)
{
    if (p->rc != ECH_OK) return NONE;
    p->rc = code;
    (void)ech_fail_at(p->err, code, 1, (int64_t)p->at + 1, (int64_t)p->at,
                      "parsing a regular expression: at byte %zu, %s", p->at, why);
    return NONE;
}

/* Passes a node on, turning a failed allocation into an error. */
static uint32_t check(parser *const p, const uint32_t node)
{
    return node == NONE ? fail(p, ECH_ENOMEM, "out of memory") : node;
}

static bool at_end(const parser *const p)
{
    return p->at >= p->text.len;
}

static bool looking_at(const parser *const p, const char *const s)
{
    const size_t n = strlen(s);
    return p->text.len - p->at >= n && memcmp(p->text.ptr + p->at, s, n) == 0;
}

static bool take(parser *const p, const char *const s)
{
    if (!looking_at(p, s)) return false;
    p->at += strlen(s);
    return true;
}

/* The next code point; the text was checked to be UTF-8. */
static uint32_t next_cp(parser *const p)
{
    uint32_t cp = 0;
    const int n = ech_utf8_decode(p->text.ptr + p->at, p->text.len - p->at, &cp);
    p->at += n > 0 ? (size_t)n : 1;
    return cp;
}

static int hex_value(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Exactly n hexadecimal digits; NONE, with nothing taken, when they aren't there. */
static uint32_t take_hex(parser *const p, const size_t n)
{
    uint32_t v = 0;
    if (p->text.len - p->at < n) return NONE;
    for (size_t i = 0; i < n; i++) {
        const int d = hex_value(p->text.ptr[p->at + i]);
        if (d < 0) return NONE;
        v = v * 16 + (uint32_t)d;
    }
    p->at += n;
    return v;
}

/* What follows \u: four digits, a pair of them, or {digits}. */
static uint32_t parse_unicode(parser *const p)
{
    if (take(p, "{")) {
        uint32_t v = 0, n = 0;
        while (!at_end(p) && hex_value(p->text.ptr[p->at]) >= 0 && n++ < 6) {
            v = v * 16 + (uint32_t)hex_value(p->text.ptr[p->at++]);
        }
        if (n == 0 || v > ECH_CP_MAX || !take(p, "}")) {
            return fail(p, ECH_EFORMAT, "\\u{...} wants a code point in hexadecimal");
        }
        return v;
    }
    const uint32_t hi = take_hex(p, 4);
    if (hi == NONE) return fail(p, ECH_EFORMAT, "\\u wants four hexadecimal digits");
    if (hi < 0xD800 || hi > 0xDBFF || !looking_at(p, "\\u")) return hi;
    const size_t back = p->at;
    p->at += 2;
    const uint32_t lo = take_hex(p, 4);
    if (lo != NONE && lo >= 0xDC00 && lo <= 0xDFFF) {
        return 0x10000 + ((hi - 0xD800) << 10) + (lo - 0xDC00);
    }
    p->at = back;
    return hi;
}

/* ---- sets ---- */

/*
 * The sets of \d, \w and \s: those of ECMAScript, or with everything that some engine counts
 * among them. Unicode's alphanumerics are letters and numbers; other engines' white space has the
 * separators U+001C to U+001F and U+0085, and not U+FEFF.
 */
static void add_named_set(parser *const p, ech_cset *const s, const char letter, const bool wide)
{
    static const ech_cp_range SPACES[] = {
        { 0x09, 0x0D },     { 0x20, 0x20 },     { 0xA0, 0xA0 },
        { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
        { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 },
    };
    if (letter == 's') {
        for (size_t i = 0; i < sizeof SPACES / sizeof SPACES[0]; i++) {
            ech_cset_add(s, SPACES[i].first, SPACES[i].last);
        }
        if (!wide) return;
        ech_cset_add(s, 0x1C, 0x1F);
        ech_cset_add(s, 0x85, 0x85);
        ech_cset_add(s, 0xFEFF, 0xFEFF);
        return;
    }
    ech_cset_add(s, '0', '9');
    if (letter == 'w') {
        ech_cset_add(s, 'A', 'Z');
        ech_cset_add(s, '_', '_');
        ech_cset_add(s, 'a', 'z');
    }
    if (!wide) return;
    (void)ech_cset_add_category(s, &p->categories, letter == 'w' ? "(LMN)" : "Nd",
                                letter == 'w' ? 5 : 2);
}

/* Adds part, negated if asked, to s. Takes what part holds. */
static void add_part(parser *const p, ech_cset *const s, ech_cset *const part, const bool negated)
{
    p->n_ranges += part->n;
    if (p->n_ranges > MAX_RANGES) (void)fail(p, ECH_ELIMIT, "its sets have over 4194304 ranges");
    ech_cset_tidy(part);
    if (negated) ech_cset_negate(part);
    ech_cset_add_all(s, part);
    ech_cset_fini(part);
}

/*
 * After \p or \P: {name} or {gc=name}. Scripts and binary properties are refused: the tables here
 * have general categories only.
 */
static void parse_property(parser *const p, const bool negated, ech_cset *const s)
{
    const char *const open = p->text.ptr + p->at;
    const char *const close =
        at_end(p) || *open != '{' ? NULL : memchr(open, '}', p->text.len - p->at);
    if (close == NULL) {
        (void)fail(p, ECH_EFORMAT, "\\p wants {a general category}");
        return;
    }
    const char *name = open + 1;
    static const char *const PREFIXES[] = { "gc=", "General_Category=" };
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(PREFIXES[i]);
        if ((size_t)(close - name) > n && memcmp(name, PREFIXES[i], n) == 0) name += n;
    }
    ech_cset part = { 0 };
    if (!ech_cset_add_category(&part, &p->categories, name, (size_t)(close - name))) {
        (void)fail(p, ECH_EUNSUPPORTED, "\\p{} knows general categories only (L, Lu, Nd, ...)");
    }
    p->at = (size_t)(close - p->text.ptr) + 1;
    add_part(p, s, &part, negated);
}

/* An escape that stands for a set: \d \D \w \W \s \S \p \P. False if the next one is none. */
static bool parse_set_escape(parser *const p, ech_cset *const s)
{
    if (p->text.len - p->at < 2 || p->text.ptr[p->at] != '\\') return false;
    const char c = p->text.ptr[p->at + 1];
    if (strchr("dDwWsSpP", c) == NULL || c == 0) return false;
    p->at += 2;
    const bool negated = c < 'a';
    if (c == 'p' || c == 'P') {
        parse_property(p, negated, s);
        return true;
    }
    ech_cset part = { 0 };
    /* What a negated set leaves out must be wide for it to be strict, and the other way round. */
    add_named_set(p, &part, (char)(c | 0x20), (p->reading == ECH_REGEX_WIDE) != negated);
    add_part(p, s, &part, negated);
    return true;
}

/* The code point of a control letter: \t \n \v \f \r; NONE for another letter. */
static uint32_t control_escape(const char c)
{
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'v':
        return '\v';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    default:
        return NONE;
    }
}

static bool is_digit(const char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(const char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * An escape that stands for one character, the backslash taken. \- and other punctuation stand for
 * themselves. An unknown letter is refused: it may mean something elsewhere.
 */
static uint32_t parse_char_escape(parser *const p, const bool in_class)
{
    if (at_end(p)) return fail(p, ECH_EFORMAT, "it ends in a backslash");
    const char c = p->text.ptr[p->at];
    if ((uint8_t)c >= 0x80) return next_cp(p);
    p->at++;
    if (control_escape(c) != NONE) return control_escape(c);
    if (c == 'b' && in_class) return '\b';
    if (c == 'x') {
        const uint32_t v = take_hex(p, 2);
        return v != NONE ? v : fail(p, ECH_EFORMAT, "\\x wants two hexadecimal digits");
    }
    if (c == 'u') return parse_unicode(p);
    if (c == 'c' && !at_end(p) && is_letter(p->text.ptr[p->at])) {
        return (uint32_t)p->text.ptr[p->at++] & 31;
    }
    if (c == '0' && (at_end(p) || !is_digit(p->text.ptr[p->at]))) return 0;
    p->at--;
    if (is_digit(c) || c == 'k')
        return fail(p, ECH_EUNSUPPORTED, "back references are not regular");
    if (c == 'b' || c == 'B') return fail(p, ECH_EUNSUPPORTED, "word boundaries are not supported");
    if (is_letter(c)) return fail(p, ECH_EUNSUPPORTED, "unknown escape");
    p->at++;
    return (uint8_t)c;
}

/* One end of a range in [...], or a set escape, in which case *ret_is_set. */
static uint32_t parse_class_atom(parser *const p, ech_cset *const s, bool *const ret_is_set)
{
    *ret_is_set = parse_set_escape(p, s);
    if (*ret_is_set) return NONE;
    if (take(p, "\\")) {
        if (take(p, "-")) return '-';
        return parse_char_escape(p, true);
    }
    return next_cp(p);
}

static void parse_class_item(parser *const p, ech_cset *const s)
{
    bool is_set = false, is_set_2 = false;
    const uint32_t first = parse_class_atom(p, s, &is_set);
    const bool is_range = looking_at(p, "-") && !looking_at(p, "-]") && p->text.len - p->at > 1;
    if (is_set || !is_range) {
        if (!is_set && p->rc == ECH_OK) ech_cset_add(s, first, first);
        return;
    }
    p->at++;
    const uint32_t last = parse_class_atom(p, s, &is_set_2);
    if (p->rc != ECH_OK) return;
    if (is_set_2) { /* [a-\d]: the hyphen stands for itself */
        ech_cset_add(s, first, first);
        ech_cset_add(s, '-', '-');
    } else if (first > last) {
        (void)fail(p, ECH_EFORMAT, "a range runs backwards");
    } else {
        ech_cset_add(s, first, last);
    }
}

static uint32_t add_class(parser *const p, ech_cset *const s, const bool negated)
{
    ech_cset_tidy(s);
    if (negated) ech_cset_negate(s);
    if (p->rc != ECH_OK) {
        ech_cset_fini(s);
        return NONE;
    }
    return check(p, ech_re_add_set(p->re, s));
}

/*
 * After [. [^…] turns the reading round for what is inside. [] matches nothing, [^] everything, as
 * in ECMAScript.
 */
static uint32_t parse_class(parser *const p)
{
    ech_cset s = { 0 };
    const bool negated = take(p, "^");
    const ech_regex_reading outside = p->reading;
    if (negated) p->reading = outside == ECH_REGEX_WIDE ? ECH_REGEX_STRICT : ECH_REGEX_WIDE;
    while (p->rc == ECH_OK && !take(p, "]")) {
        if (at_end(p))
            (void)fail(p, ECH_EFORMAT, "a [ is not closed");
        else
            parse_class_item(p, &s);
    }
    p->reading = outside;
    return add_class(p, &s, negated);
}

/* All line ends of ECMAScript are left out, under either reading. */
static uint32_t parse_dot(parser *const p)
{
    ech_cset s = { 0 };
    ech_cset_add(&s, '\n', '\n');
    ech_cset_add(&s, '\r', '\r');
    ech_cset_add(&s, 0x2028, 0x2029);
    return add_class(p, &s, true);
}

static uint32_t add_char(parser *const p, const uint32_t cp)
{
    ech_cset s = { 0 };
    if (p->rc == ECH_OK) ech_cset_add(&s, cp, cp);
    return add_class(p, &s, false);
}

/* ---- groups and terms ---- */

static uint32_t parse_alternatives(parser *p);

static void parse_group_name(parser *const p, const char end)
{
    const char *const close = memchr(p->text.ptr + p->at, end, p->text.len - p->at);
    if (close == NULL)
        (void)fail(p, ECH_EFORMAT, "a group's name is not closed");
    else
        p->at = (size_t)(close - p->text.ptr) + 1;
}

/* After (. All groups are alike: captures and their names mean nothing here. */
static uint32_t parse_group(parser *const p)
{
    if (looking_at(p, "?=") || looking_at(p, "?!") || looking_at(p, "?<=") ||
        looking_at(p, "?<!")) {
        return fail(p, ECH_EUNSUPPORTED, "look-around is not supported");
    }
    if (take(p, "?<") || take(p, "?P<"))
        parse_group_name(p, '>');
    else if (!take(p, "?:") && looking_at(p, "?")) {
        return fail(p, ECH_EUNSUPPORTED, "flags and special groups are not supported");
    }
    if (p->rc != ECH_OK) return NONE;
    if (++p->depth > ECH_REGEX_MAX_DEPTH) return fail(p, ECH_ELIMIT, "groups nest over 200 deep");
    const uint32_t node = parse_alternatives(p);
    p->depth--;
    if (p->rc == ECH_OK && !take(p, ")")) return fail(p, ECH_EFORMAT, "a ( is not closed");
    return node;
}

static uint32_t parse_atom(parser *const p)
{
    ech_cset s = { 0 };
    if (parse_set_escape(p, &s)) return add_class(p, &s, false);
    if (take(p, "\\")) return add_char(p, parse_char_escape(p, false));
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return parse_dot(p);
    if (take(p, "^")) return check(p, ech_re_add(p->re, ECH_RE_BOL, 0, 0, 0));
    if (take(p, "$")) return check(p, ech_re_add(p->re, ECH_RE_EOL, 0, 0, 0));
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?")) {
        return fail(p, ECH_EFORMAT, "there is nothing to repeat");
    }
    return add_char(p, next_cp(p));
}

/* Saturates one above the limit, so that the caller can say so. */
static bool parse_count(parser *const p, uint32_t *const ret)
{
    const size_t from = p->at;
    uint64_t v = 0;
    while (!at_end(p) && is_digit(p->text.ptr[p->at])) {
        v = v * 10 + (uint64_t)(p->text.ptr[p->at++] - '0');
        if (v > ECH_REGEX_MAX_COUNT) v = ECH_REGEX_MAX_COUNT + 1;
    }
    *ret = (uint32_t)v;
    return p->at > from;
}

/* {m}, {m,} or {m,n}; false, with nothing taken, when the brace is an ordinary character. */
static bool parse_braces(parser *const p, uint32_t *const min, uint32_t *const max)
{
    const size_t back = p->at;
    p->at++;
    bool ok = parse_count(p, min);
    *max = *min;
    if (ok && take(p, ",") && !parse_count(p, max)) *max = ECH_CX_INF;
    ok = ok && take(p, "}");
    if (!ok) p->at = back;
    return ok;
}

static bool parse_quantifier(parser *const p, uint32_t *const min, uint32_t *const max)
{
    *min = 0;
    *max = ECH_CX_INF;
    if (take(p, "*")) return true;
    if (take(p, "+")) {
        *min = 1;
        return true;
    }
    if (take(p, "?")) {
        *max = 1;
        return true;
    }
    return looking_at(p, "{") && parse_braces(p, min, max);
}

/* A count is checked by itself here; how large the whole becomes is bounded where it is built. */
static uint32_t parse_term(parser *const p)
{
    const uint32_t atom = parse_atom(p);
    uint32_t min = 0, max = 0;
    if (p->rc != ECH_OK || !parse_quantifier(p, &min, &max)) return atom;
    const ech_re_kind kind = p->re->nodes[atom].kind;
    if (kind == ECH_RE_BOL || kind == ECH_RE_EOL) {
        return fail(p, ECH_EFORMAT, "an anchor can't be repeated");
    }
    if (min > ECH_REGEX_MAX_COUNT || (max != ECH_CX_INF && max > ECH_REGEX_MAX_COUNT)) {
        return fail(p, ECH_ELIMIT, "a repeat count is over 1000000");
    }
    if (min > max) return fail(p, ECH_EFORMAT, "a repeat's bounds are out of order");
    if (looking_at(p, "+"))
        return fail(p, ECH_EUNSUPPORTED, "possessive repeats are not supported");
    (void)take(p, "?"); /* lazy: the same texts */
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?")) {
        return fail(p, ECH_EFORMAT, "there is nothing to repeat");
    }
    return check(p, ech_re_add(p->re, ECH_RE_REPEAT, atom, min, max));
}

/* A growing list of nodes on the heap, one per open sequence. */
typedef struct node_list {
    uint32_t *nodes;
    uint32_t n, cap;
} node_list;

static void push_node(parser *const p, node_list *const list, const uint32_t node)
{
    if (p->rc != ECH_OK) return;
    if (!ECH_VEC_GROW(list->nodes, list->cap, list->n, 1))
        (void)check(p, NONE);
    else
        list->nodes[list->n++] = node;
}

static uint32_t end_list(parser *const p, node_list *const list, const ech_re_kind kind)
{
    const uint32_t node =
        p->rc != ECH_OK ? NONE : check(p, ech_re_add_list(p->re, kind, list->nodes, list->n));
    free(list->nodes);
    return node;
}

static uint32_t parse_sequence(parser *const p)
{
    node_list list = { 0 };
    while (p->rc == ECH_OK && !at_end(p) && !looking_at(p, "|") && !looking_at(p, ")")) {
        push_node(p, &list, parse_term(p));
    }
    return end_list(p, &list, ECH_RE_CAT);
}

static uint32_t parse_alternatives(parser *const p)
{
    node_list list = { 0 };
    do
        push_node(p, &list, parse_sequence(p));
    while (p->rc == ECH_OK && take(p, "|"));
    return end_list(p, &list, ECH_RE_ALT);
}

ech_status ech_regex_parse(const ech_str text, const ech_regex_reading reading,
                           ech_regex **const ret_regex, ech_error *const err)
{
    ech_regex *re = calloc(1, sizeof *re);
    if (re == NULL) return ech_fail(err, ECH_ENOMEM, "parsing a regular expression: out of memory");
    re->reading = reading;
    parser p = { .re = re, .text = text, .reading = reading, .err = err };
    size_t bad = 0;
    if (!ech_utf8_valid(text.ptr, text.len, &bad)) {
        p.at = bad;
        (void)fail(&p, ECH_EFORMAT, "it is not UTF-8");
    } else {
        re->root = parse_alternatives(&p);
        if (p.rc == ECH_OK && !at_end(&p)) (void)fail(&p, ECH_EFORMAT, "a ) has no (");
    }
    ech_categories_fini(&p.categories);
    if (p.rc == ECH_OK) p.rc = ech_re_resolve(re, err);
    if (p.rc != ECH_OK) {
        ech_regex_free(&re);
        return p.rc;
    }
    *ret_regex = re;
    return ECH_OK;
}
