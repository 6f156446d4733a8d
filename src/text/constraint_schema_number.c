/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers. Without bounds they are a plain expression. With minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum or multipleOf they are an automaton over their digits that compares as it
 * reads, exactly, in decimal:
 *
 *     while integer digits come, their count and the comparison of the digits read so far with the
 *     first digits of the bound are kept; at the point the counts decide, or else the comparison;
 *     digits after the point continue the comparison where it is undecided. The remainder modulo
 *     the divisor (scaled to an integer) is kept digit by digit.
 *
 * Bounded numbers have no exponent, and not more digits after the point than a double tells apart
 * near the bound, so that readers that parse doubles agree.
 */
#include "src/text/constraint_schema_parts.h"

#include <stdio.h>

#include "src/text/json_dump.h"

#define MAX_BOUND_DIGITS 340 /* a double has at most 309 before the point, 324 zeros after it */
#define MAX_STATES       60000u
#define MAX_DIVISOR      2000u
#define DOUBLE_DIGITS    15u
#define MULTIPLE_DIGITS  15u /* integer digits of a multiple, so that doubles hold it exactly */

typedef struct bound {
    bool exists;
    bool is_exclusive;
    bool is_negative;
    uint16_t n_int;                    /* digits before the point, no leading zeros; 0 for zero */
    uint16_t n_frac;                   /* digits after it, no trailing zeros */
    char digits[2 * MAX_BOUND_DIGITS]; /* both, one after the other */
} bound;

typedef struct number_rules {
    bound low, high;
    bool is_integer;
    uint32_t divisor; /* 0: none */
    uint16_t scale;   /* the divisor is divisor / 10^scale */
    uint16_t max_int, max_frac;
} number_rules;

/* ---- reading bounds ---- */

/*
 * The shortest decimal that reads back as d. 15 digits are tried first: with them most numbers of a
 * schema are as they were written.
 */
static void shortest(const double d, char *const out, const size_t size)
{
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(out, size, "%.*e", precision - 1, d);
        if (strtod(out, NULL) == d) return;
    }
}

/*
 * Takes "-d.ddde-dd" apart. digits has room for what "%.17e" writes; b->digits for the largest
 * exponents of a double.
 */
static void set_decimal(bound *const b, const char *text)
{
    char digits[64];
    int n = 0, exponent = 0;
    b->is_negative = *text == '-';
    for (text += b->is_negative; *text != 0 && *text != 'e'; text++) {
        if (*text != '.') digits[n++] = *text;
    }
    if (*text == 'e') exponent = atoi(text + 1);
    while (n > 0 && digits[n - 1] == '0')
        n--;
    int lead = 0;
    while (lead < n && digits[lead] == '0')
        lead++;
    /* Now 0.d[lead]d[lead+1]... times 10^point. */
    const int point = exponent + 1 - lead;
    uint16_t at = 0;
    for (int i = 0; i < point; i++)
        b->digits[at++] = lead + i < n ? digits[lead + i] : '0';
    b->n_int = lead < n ? at : 0;
    at = b->n_int;
    for (int i = point; i < 0 && lead < n; i++)
        b->digits[at++] = '0';
    for (int i = point > 0 ? point : 0; lead + i < n; i++)
        b->digits[at++] = digits[lead + i];
    b->n_frac = (uint16_t)(at - b->n_int);
    if (b->n_int + b->n_frac == 0) b->is_negative = false;
}

/*
 * An integer gets its exponent: set_decimal puts the point after the first digit. One beyond int64
 * is a real, and its digits are those of its spelling.
 */
static void decimal_of(const json_t *const number, char out[ECH_JSON_DOUBLE_BYTES])
{
    if (json_is_integer(number)) {
        (void)snprintf(out, ECH_JSON_DOUBLE_BYTES, "%lld", (long long)json_integer_value(number));
    } else {
        ech_json_spell_double(json_real_value(number), out);
    }
    if (strpbrk(out, ".e") != NULL) {
        shortest(json_real_value(number), out, ECH_JSON_DOUBLE_BYTES);
        return;
    }
    const size_t n = strlen(out) - (out[0] == '-');
    (void)snprintf(out + strlen(out), ECH_JSON_DOUBLE_BYTES - strlen(out), "e%zu", n - 1);
}

/* Digits without a point: "123e2" is 1.23e2, which set_decimal reads alike. */
static void read_bound(const json_t *const number, const bool exclusive, bound *const b)
{
    char text[ECH_JSON_DOUBLE_BYTES];
    decimal_of(number, text);
    *b = (bound){ .exists = true, .is_exclusive = exclusive };
    set_decimal(b, text);
}

static int compare_numbers(const json_t *const a, const json_t *const b)
{
    const double x = json_number_value(a), y = json_number_value(b);
    return (x > y) - (x < y);
}

/*
 * The tighter of key and its exclusive form; sign 1 for minimum, -1 for maximum. Draft 4 has
 * exclusiveMinimum as a flag beside minimum, later drafts as a number of its own.
 */
static ech_status get_bound(ech_schema *const s, const json_t *const schema, const char *const key,
                            const char *const exclusive_key, const int sign, bound *const ret)
{
    const json_t *const plain = json_object_get(schema, key);
    const json_t *exclusive = json_object_get(schema, exclusive_key);
    bool plain_is_exclusive = false;
    if (json_is_boolean(exclusive)) { /* draft 4 */
        plain_is_exclusive = json_is_true(exclusive);
        exclusive = NULL;
    }
    if (plain != NULL && !json_is_number(plain)) {
        return ech_schema_fail(s, ECH_EFORMAT, key, "it must be a number");
    }
    if (exclusive != NULL && !json_is_number(exclusive)) {
        return ech_schema_fail(s, ECH_EFORMAT, exclusive_key, "it must be a number");
    }
    const bool take_exclusive =
        exclusive != NULL && (plain == NULL || compare_numbers(exclusive, plain) * sign >= 0);
    if (take_exclusive)
        read_bound(exclusive, true, ret);
    else if (plain != NULL)
        read_bound(plain, plain_is_exclusive, ret);
    return ECH_OK;
}

/*
 * The remainder is part of the automaton's state, so the divisor multiplies the states: hence
 * MAX_DIVISOR.
 */
static ech_status get_divisor(ech_schema *const s, const json_t *const schema,
                              number_rules *const r)
{
    const json_t *const multiple = json_object_get(schema, "multipleOf");
    if (multiple == NULL) return ECH_OK;
    if (!json_is_number(multiple) || json_number_value(multiple) <= 0) {
        return ech_schema_fail(s, ECH_EFORMAT, "multipleOf", "it must be a number above 0");
    }
    bound b;
    read_bound(multiple, false, &b);
    uint64_t divisor = 0;
    for (int i = 0; i < b.n_int + b.n_frac && divisor <= MAX_DIVISOR; i++) {
        divisor = divisor * 10 + (uint64_t)(b.digits[i] - '0');
    }
    if (divisor > MAX_DIVISOR || b.n_frac > DOUBLE_DIGITS) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "multipleOf",
                               "its digits, read as an integer, are over 2000");
    }
    r->divisor = (uint32_t)divisor;
    r->scale = b.n_frac;
    return ECH_OK;
}

/* An integer may have ".0" behind it, which JSON Schema counts as the same number. */
static void set_digit_limits(const ech_schema *const s, number_rules *const r)
{
    const bound *const bounds[2] = { &r->low, &r->high };
    uint32_t n_int = 0, n_frac = 0;
    for (int i = 0; i < 2; i++) {
        if (!bounds[i]->exists) continue;
        if (bounds[i]->n_int > n_int) n_int = bounds[i]->n_int;
        if (bounds[i]->n_frac > n_frac) n_frac = bounds[i]->n_frac;
    }
    const uint32_t most = s->options->max_digits < 1000 ? s->options->max_digits : 1000;
    uint32_t frac = n_int < DOUBLE_DIGITS ? DOUBLE_DIGITS - n_int : 0;
    if (frac < n_frac) frac = n_frac;
    if (r->divisor != 0 && frac > r->scale) frac = r->scale;
    if (r->is_integer) frac = 1;
    r->max_frac = (uint16_t)frac;
    r->max_int = (uint16_t)(r->divisor != 0 && most > MULTIPLE_DIGITS ? MULTIPLE_DIGITS : most);
}

/* ---- the automaton ---- */

typedef enum phase { START, SIGN, ZERO, INT, POINT, FRAC } phase;

/* All fields are bytes or words without gaps that matter: states are compared as memory. */
typedef struct digits_state {
    uint8_t phase;
    uint8_t is_negative;
    uint8_t is_nonzero;
    int8_t order[2]; /* of the digits so far against the magnitudes of low and high */
    uint8_t unused;
    uint16_t count; /* digits since the start, or since the point */
    uint32_t rem;
} digits_state;

/* Digits are compared by place; where the bound has no more, it has zeros. */
static int8_t compare_digit(const int8_t order, const bound *const b, const uint32_t at,
                            const char c)
{
    if (order != 0 || !b->exists) return order;
    const char other = at < (uint32_t)b->n_int + b->n_frac ? b->digits[at] : '0';
    return (int8_t)((c > other) - (c < other));
}

/*
 * At the end of the integer part, of n digits. A number with more integer digits is larger, since
 * neither has leading zeros.
 */
static int8_t settle_integer(const int8_t order, const bound *const b, const uint32_t n)
{
    if (!b->exists) return 0;
    if (n != b->n_int) return n > b->n_int ? 1 : -1;
    return order;
}

/* A zero never comes first here: ZERO is a phase of its own. */
static bool step_integer(const number_rules *const r, digits_state *const st, const char c)
{
    if (st->count >= r->max_int) return false;
    st->phase = INT;
    for (int i = 0; i < 2; i++) {
        const bound *const b = i == 0 ? &r->low : &r->high;
        /* A digit past the bound's is decided by the counts. */
        if (st->count < b->n_int) st->order[i] = compare_digit(st->order[i], b, st->count, c);
    }
    st->count++;
    st->is_nonzero = 1;
    if (r->divisor != 0) st->rem = (st->rem * 10 + (uint32_t)(c - '0')) % r->divisor;
    return true;
}

static bool step_point(const number_rules *const r, digits_state *const st)
{
    if (r->max_frac == 0) return false;
    const uint32_t n = st->phase == ZERO ? 0 : st->count;
    st->order[0] = settle_integer(st->order[0], &r->low, n);
    st->order[1] = settle_integer(st->order[1], &r->high, n);
    st->phase = POINT;
    st->count = 0;
    return true;
}

static bool step_fraction(const number_rules *const r, digits_state *const st, const char c)
{
    if (st->count >= r->max_frac || (r->is_integer && c != '0')) return false;
    st->phase = FRAC;
    st->order[0] = compare_digit(st->order[0], &r->low, (uint32_t)r->low.n_int + st->count, c);
    st->order[1] = compare_digit(st->order[1], &r->high, (uint32_t)r->high.n_int + st->count, c);
    if (r->divisor != 0 && st->count < r->scale) {
        st->rem = (st->rem * 10 + (uint32_t)(c - '0')) % r->divisor;
    }
    st->count++;
    if (c != '0') st->is_nonzero = 1;
    return true;
}

/* JSON's grammar of numbers without exponents. */
static bool step_number(const number_rules *const r, digits_state *const st, const char c)
{
    switch ((phase)st->phase) {
    case START:
        if (c == '-') {
            st->phase = SIGN;
            st->is_negative = 1;
            return true;
        }
        /* fall through */
    case SIGN:
        if (c == '0') {
            st->phase = ZERO;
            return true;
        }
        return c >= '1' && c <= '9' && step_integer(r, st, c);
    case ZERO:
        return c == '.' && step_point(r, st);
    case INT:
        if (c == '.') return step_point(r, st);
        return c >= '0' && c <= '9' && step_integer(r, st, c);
    case POINT:
    case FRAC:
        return c >= '0' && c <= '9' && step_fraction(r, st, c);
    }
    return false;
}

/*
 * Sign of the number minus the bound, from that of their magnitudes. -0 is zero: a sign counts only
 * if some digit does.
 */
static int signed_order(const digits_state *const st, const bound *const b, int8_t order)
{
    const bool is_negative = st->is_negative && st->is_nonzero;
    const bool bound_is_zero = b->n_int + b->n_frac == 0;
    if (is_negative != b->is_negative && (st->is_nonzero || !bound_is_zero)) {
        return is_negative ? -1 : 1;
    }
    return is_negative ? -order : order;
}

/* The order of the magnitudes when the number ends here. */
static int8_t final_order(const digits_state *const st, const bound *const b, int8_t order)
{
    uint32_t n_frac = st->count;
    if (st->phase == ZERO || st->phase == INT) {
        order = settle_integer(order, b, st->phase == ZERO ? 0 : st->count);
        n_frac = 0;
    }
    /* Digits that the bound has beyond these are not all zero. */
    return order == 0 && n_frac < b->n_frac ? -1 : order;
}

/*
 * Places of the divisor's scale that were not written are zeros, so the remainder is carried on for
 * them.
 */
static bool accepts_number(const number_rules *const r, const digits_state *const st)
{
    if (st->phase != ZERO && st->phase != INT && st->phase != FRAC) return false;
    if (r->low.exists) {
        const int o = signed_order(st, &r->low, final_order(st, &r->low, st->order[0]));
        if (o < 0 || (o == 0 && r->low.is_exclusive)) return false;
    }
    if (r->high.exists) {
        const int o = signed_order(st, &r->high, final_order(st, &r->high, st->order[1]));
        if (o > 0 || (o == 0 && r->high.is_exclusive)) return false;
    }
    if (r->divisor == 0) return true;
    uint64_t rem = st->rem;
    for (uint32_t i = st->phase == FRAC ? st->count : 0; i < r->scale; i++) {
        rem = rem * 10 % r->divisor;
    }
    return rem == 0;
}

typedef struct explorer {
    digits_state *states;
    uint32_t n, cap;
    ech_index index;
    ech_cx_auto out;
    uint32_t cap_edges, cap_accepting;
    ech_status rc;
} explorer;

static uint64_t hash_state(const digits_state *const st)
{
    uint32_t words[3];
    _Static_assert(sizeof words == sizeof *st, "states are hashed as three words");
    memcpy(words, st, sizeof words);
    return ech_hash_words(17, words, 3);
}

static uint64_t hash_state_at(const void *const owner, const uint32_t idx)
{
    return hash_state(&((const explorer *)owner)->states[idx]);
}

/* digits_state is compared and hashed as memory: it has no padding, and unused stays 0. */
static uint32_t find_state(explorer *const x, const number_rules *const r,
                           const digits_state *const st)
{
    if (!ech_index_reserve(&x->index, hash_state_at, x) ||
        !ECH_VEC_GROW(x->states, x->cap, x->n, 1) ||
        !ECH_VEC_GROW(x->out.accepting, x->cap_accepting, x->n, 1)) {
        x->rc = ECH_ENOMEM;
        return 0;
    }
    const uint32_t mask = x->index.cap - 1;
    uint32_t slot = (uint32_t)hash_state(st) & mask;
    for (; x->index.slots[slot] != 0; slot = (slot + 1) & mask) {
        const uint32_t idx = x->index.slots[slot] - 1;
        if (memcmp(&x->states[idx], st, sizeof *st) == 0) return idx;
    }
    if (x->n >= MAX_STATES) x->rc = ECH_ELIMIT;
    if (x->rc != ECH_OK) return 0;
    x->states[x->n] = *st;
    x->out.accepting[x->n] = accepts_number(r, st);
    x->index.slots[slot] = x->n + 1;
    x->index.used++;
    return x->n++;
}

/* Adds the edges of a state, characters with one target joined. */
static void explore(explorer *const x, const number_rules *const r, const uint32_t from,
                    ech_cx_graph *const g)
{
    static const char CHARS[] = "-.0123456789";
    uint32_t targets[12];
    for (int i = 0; i < 12 && x->rc == ECH_OK; i++) {
        digits_state st = x->states[from];
        targets[i] = step_number(r, &st, CHARS[i]) ? find_state(x, r, &st) : UINT32_MAX;
    }
    for (int i = 0; i < 12 && x->rc == ECH_OK; i++) {
        if (targets[i] == UINT32_MAX) continue;
        const uint32_t to = targets[i];
        ech_byteset set = { { 0 } };
        for (int k = i; k < 12; k++) {
            if (targets[k] != to) continue;
            targets[k] = UINT32_MAX;
            ech_byteset_add(&set, (uint8_t)CHARS[k], (uint8_t)CHARS[k]);
        }
        if (!ECH_VEC_GROW(x->out.edges, x->cap_edges, x->out.n_edges, 1))
            x->rc = ECH_ENOMEM;
        else
            x->out.edges[x->out.n_edges++] = (ech_cx_edge){ from, to, ech_cx_set(g, &set) };
    }
}

/*
 * Breadth first from the start: states are numbered in the order of discovery, as the loop needs.
 */
static ech_status bounded_number(ech_schema *const s, const number_rules *const r,
                                 ech_cx *const ret)
{
    explorer x = { 0 };
    const digits_state start = { .phase = START };
    (void)find_state(&x, r, &start);
    for (uint32_t i = 0; i < x.n && x.rc == ECH_OK; i++)
        explore(&x, r, i, s->g);
    x.out.n_states = x.n;
    free(x.states);
    ech_index_fini(&x.index);
    if (x.rc != ECH_OK) {
        free(x.out.edges);
        free(x.out.accepting);
        return ech_schema_fail(s, x.rc, NULL, "its bounds and multipleOf need over 60000 states");
    }
    *ret = ech_cx_auto_new(s->g, x.out);
    return ech_cx_graph_check(s->g, s->err);
}

/* ---- without bounds ---- */

static ech_cx digits(ech_cx_graph *const g, const uint32_t min, const uint32_t max)
{
    return ech_cx_repeat(g, ech_cx_range(g, '0', '9'), min, max);
}

/*
 * max_digits bounds what a model that goes on writing digits can do. At most two digits of
 * exponent, which any double can hold.
 */
static ech_cx free_number(ech_schema *const s, const bool is_integer)
{
    ech_cx_graph *const g = s->g;
    const uint32_t most = s->options->max_digits > 0 ? s->options->max_digits : 1;
    const ech_cx minus = ech_cx_range(g, '-', '-'), point = ech_cx_range(g, '.', '.');
    const ech_cx whole =
        ech_cx_alt2(g, ech_cx_range(g, '0', '0'),
                    ech_cx_seq2(g, ech_cx_range(g, '1', '9'), digits(g, 0, most - 1)));
    const ech_cx head = ech_cx_seq2(g, ech_cx_opt(g, minus), whole);
    if (is_integer) {
        return ech_cx_seq2(g, head, ech_cx_opt(g, ech_cx_lit(g, ".0", 2)));
    }
    const ech_cx fraction = ech_cx_opt(g, ech_cx_seq2(g, point, digits(g, 1, most)));
    ech_byteset e = { { 0 } }, sign = { { 0 } };
    ech_byteset_add(&e, 'e', 'e');
    ech_byteset_add(&e, 'E', 'E');
    ech_byteset_add(&sign, '+', '+');
    ech_byteset_add(&sign, '-', '-');
    const ech_cx exponent =
        ech_cx_seq3(g, ech_cx_set(g, &e), ech_cx_opt(g, ech_cx_set(g, &sign)), digits(g, 1, 2));
    return ech_cx_shared(g, ech_cx_seq3(g, head, fraction, ech_cx_opt(g, exponent)));
}

ech_status ech_schema_number(ech_schema *const s, const json_t *const schema,
                             const ech_json_type type, ech_cx *const ret)
{
    number_rules r = { .is_integer = type == ECH_TYPE_INTEGER };
    ECH_TRY(get_bound(s, schema, "minimum", "exclusiveMinimum", 1, &r.low));
    ECH_TRY(get_bound(s, schema, "maximum", "exclusiveMaximum", -1, &r.high));
    ECH_TRY(get_divisor(s, schema, &r));
    if (!r.low.exists && !r.high.exists && r.divisor == 0) {
        *ret = free_number(s, r.is_integer);
        return ech_cx_graph_check(s->g, s->err);
    }
    set_digit_limits(s, &r);
    return bounded_number(s, &r, ret);
}
