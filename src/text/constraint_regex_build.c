/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a parsed regular expression becomes: first a tree without anchors (resolve), then an
 * automaton or an expression.
 *
 * Anchors. JSON schema searches: `a` accepts every text that contains an a. So where nothing
 * anchors the beginning or the end of the expression, any text may stand there. resolve() walks
 * down the two edges of the tree, adds that "any text" at the leaves it arrives at, and drops the
 * anchors it meets. An anchor that is not on its edge could only match nothing or be redundant;
 * it is refused.
 */
#include "src/text/constraint_regex_ast.h"

#define NONE          UINT32_MAX
#define MAX_NFA       20000u  /* unrolled states of an expression that becomes an automaton */
#define MAX_DFA       4096u   /* states of it */
#define MAX_SET_TOTAL 600000u /* sum of the sizes of the sets behind those states */

/* What lies between a node and the beginning (or the end) of the whole expression. */
typedef enum edge {
    INSIDE, /* other terms */
    OPEN,   /* nothing, and no anchor was seen: any text may come */
    CLOSED, /* an anchor */
} edge;

typedef struct resolver {
    ech_regex *re;
    uint32_t any; /* any text */
    uint32_t empty;
    uint32_t eol; /* what $ takes */
    ech_status rc;
    const char *why;
} resolver;

static uint32_t resolve_fail(resolver *const r, const ech_status rc, const char *const why)
{
    r->rc = rc;
    r->why = why;
    return NONE;
}

/* Recursion is as deep as groups nest, which the parser has bounded. */
static bool has_anchor(const ech_regex *const re, const uint32_t node)
{
    const ech_re_node n = re->nodes[node];
    if (n.kind == ECH_RE_BOL || n.kind == ECH_RE_EOL) return true;
    if (n.kind == ECH_RE_REPEAT) return has_anchor(re, n.a);
    if (n.kind != ECH_RE_CAT && n.kind != ECH_RE_ALT) return false;
    for (uint32_t i = 0; i < n.b; i++) {
        if (has_anchor(re, re->kids[n.a + i])) return true;
    }
    return false;
}

/* A node without anchors between its surroundings. */
static uint32_t surround(resolver *const r, uint32_t node, const edge left, const edge right)
{
    const ech_re_node n = r->re->nodes[node];
    if (n.kind == ECH_RE_REPEAT && (left == OPEN || right == OPEN)) {
        /* Beside "any text", more than the minimum adds nothing. */
        node = ech_re_add(r->re, ECH_RE_REPEAT, n.a, n.b, n.b);
    }
    uint32_t kids[3];
    uint32_t count = 0;
    if (left == OPEN) kids[count++] = r->any;
    kids[count++] = node;
    if (right == OPEN) kids[count++] = r->any;
    if (count == 1) return node;
    const uint32_t out = ech_re_add_list(r->re, ECH_RE_CAT, kids, count);
    return out != NONE ? out : resolve_fail(r, ECH_ENOMEM, "out of memory");
}

static uint32_t resolve(resolver *r, uint32_t node, edge left, edge right);

/*
 * Only the first and the last term are on an edge; all others are INSIDE. Nothing left over between
 * two anchors means the empty text, or any text where a side is still open.
 */
static uint32_t resolve_cat(resolver *const r, const ech_re_node n, const edge left,
                            const edge right)
{
    uint32_t *const out = malloc(((size_t)n.b + 1) * sizeof *out);
    if (out == NULL) return resolve_fail(r, ECH_ENOMEM, "out of memory");
    /* Anchors at either end close that end for the terms that follow inwards. */
    uint32_t first = 0, last = n.b;
    edge l = left, e = right;
    while (first < last && r->re->nodes[r->re->kids[n.a + first]].kind == ECH_RE_BOL &&
           l != INSIDE) {
        l = CLOSED;
        first++;
    }
    while (last > first && r->re->nodes[r->re->kids[n.a + last - 1]].kind == ECH_RE_EOL &&
           e != INSIDE) {
        e = CLOSED;
        last--;
    }
    const bool has_eol = last < n.b;
    uint32_t count = 0;
    for (uint32_t i = first; i < last && r->rc == ECH_OK; i++) {
        out[count++] =
            resolve(r, r->re->kids[n.a + i], i == first ? l : INSIDE, i + 1 == last ? e : INSIDE);
    }
    if (first == last && (l == OPEN || e == OPEN)) out[count++] = r->any;
    if (has_eol) out[count++] = r->eol;
    const uint32_t result = r->rc == ECH_OK ? ech_re_add_list(r->re, ECH_RE_CAT, out, count) : NONE;
    free(out);
    return result;
}

/* Every alternative lies on both edges of the whole: a|b$ anchors b only. */
static uint32_t resolve_alt(resolver *const r, const ech_re_node n, const edge left,
                            const edge right)
{
    uint32_t *const out = malloc(n.b * sizeof *out);
    if (out == NULL) return resolve_fail(r, ECH_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < n.b && r->rc == ECH_OK; i++) {
        out[i] = resolve(r, r->re->kids[n.a + i], left, right);
    }
    const uint32_t result = r->rc == ECH_OK ? ech_re_add_list(r->re, ECH_RE_ALT, out, n.b) : NONE;
    free(out);
    return result;
}

/* own is the anchor's edge, other the opposite one; the anchor itself takes nothing (self). */
static uint32_t resolve_anchor(resolver *const r, const edge own, const edge other,
                               const uint32_t self)
{
    if (own == INSIDE) {
        return resolve_fail(r, ECH_EUNSUPPORTED,
                            "^ and $ are supported at the beginning and the "
                            "end of alternatives only");
    }
    const uint32_t both[2] = { r->any, self };
    return other == OPEN ? ech_re_add_list(r->re, ECH_RE_CAT, both, 2) : self;
}

static uint32_t resolve(resolver *const r, const uint32_t node, const edge left, const edge right)
{
    const ech_re_node n = r->re->nodes[node];
    switch (n.kind) {
    case ECH_RE_BOL:
        return resolve_anchor(r, left, right, r->empty);
    case ECH_RE_EOL:
        return resolve_anchor(r, right, left, r->eol);
    case ECH_RE_CAT:
        return resolve_cat(r, n, left, right);
    case ECH_RE_ALT:
        return resolve_alt(r, n, left, right);
    case ECH_RE_REPEAT:
        if (has_anchor(r->re, n.a)) {
            return resolve_fail(r, ECH_EUNSUPPORTED, "^ and $ inside a repeat are not supported");
        }
        break;
    default:
        break;
    }
    return surround(r, node, left, right);
}

/*
 * Two trees share the nodes: root_search for JSON Schema's pattern, root_full for a whole text.
 * Under the wide reading $ may also stand before a last line break, as it does in Python and Perl.
 */
ech_status ech_re_resolve(ech_regex *const re, ech_error *const err)
{
    resolver r = { .re = re };
    ech_cset all = { 0 };
    ech_cset_add(&all, 0, ECH_CP_MAX);
    const uint32_t any = ech_re_add_set(re, &all);
    r.any = any == NONE ? NONE : ech_re_add(re, ECH_RE_REPEAT, any, 0, ECH_CX_INF);
    r.empty = r.eol = ech_re_add(re, ECH_RE_EMPTY, 0, 0, 0);
    if (re->reading == ECH_REGEX_WIDE) {
        ech_cset newline = { 0 };
        ech_cset_add(&newline, '\n', '\n');
        const uint32_t one = ech_re_add_set(re, &newline);
        r.eol = one == NONE ? NONE : ech_re_add(re, ECH_RE_REPEAT, one, 0, 1);
    }
    if (r.any == NONE || r.empty == NONE || r.eol == NONE)
        (void)resolve_fail(&r, ECH_ENOMEM, "out of memory");
    if (r.rc == ECH_OK) re->root_search = resolve(&r, re->root, OPEN, OPEN);
    if (r.rc == ECH_OK) re->root_full = resolve(&r, re->root, CLOSED, CLOSED);
    if (r.rc == ECH_OK && (re->root_search == NONE || re->root_full == NONE)) {
        (void)resolve_fail(&r, ECH_ENOMEM, "out of memory");
    }
    if (r.rc == ECH_OK) return ECH_OK;
    return ech_fail(err, r.rc, "parsing a regular expression: %s", r.why);
}

/* ---- to an expression ---- */

/*
 * Sets are shared as rules, since their UTF-8 may be hundreds of nodes; sets: [n_sets] those that
 * are made, FAIL the others, which costs an empty set no more than its look.
 */
static ech_cx express(const ech_regex *const re, const uint32_t node, const ech_spelling how,
                      ech_cx *const sets, ech_cx_graph *const g)
{
    const ech_re_node n = re->nodes[node];
    switch (n.kind) {
    case ECH_RE_SET:
        if (sets[n.a] == ECH_CX_FAIL)
            sets[n.a] = ech_cx_shared(g, ech_cx_chars(g, &re->sets[n.a], how));
        return sets[n.a];
    case ECH_RE_REPEAT:
        return ech_cx_repeat(g, express(re, n.a, how, sets, g), n.b, n.c);
    case ECH_RE_CAT:
    case ECH_RE_ALT:
        break;
    default:
        return n.kind == ECH_RE_EMPTY ? ECH_CX_EMPTY : ECH_CX_FAIL;
    }
    ech_cx *const kids = malloc(n.b * sizeof *kids);
    if (kids == NULL) {
        g->rc = ECH_ENOMEM;
        return ECH_CX_FAIL;
    }
    for (uint32_t i = 0; i < n.b; i++)
        kids[i] = express(re, re->kids[n.a + i], how, sets, g);
    const ech_cx out = n.kind == ECH_RE_CAT ? ech_cx_seq(g, kids, n.b) : ech_cx_alt(g, kids, n.b);
    free(kids);
    return out;
}

ech_status ech_regex_expr(const ech_regex *const re, const bool search, const ech_spelling how,
                          ech_cx_graph *const g, ech_cx *const ret_expr, ech_error *const err)
{
    ech_cx *const sets = malloc((re->n_sets + 1) * sizeof *sets);
    if (sets == NULL) g->rc = ECH_ENOMEM;
    for (uint32_t i = 0; i < re->n_sets && sets != NULL; i++)
        sets[i] = ECH_CX_FAIL;
    const ech_cx expr = sets != NULL
                            ? express(re, search ? re->root_search : re->root_full, how, sets, g)
                            : ECH_CX_FAIL;
    free(sets);
    ECH_TRY(ech_cx_graph_check(g, err));
    *ret_expr = expr;
    return ECH_OK;
}

/* ---- to an automaton ---- */

/* set NONE: an empty step to a and, if it isn't NONE, to b. Else one character of set, then a. */
typedef struct nfa_state {
    uint32_t set, a, b;
} nfa_state;

typedef struct nfa {
    const ech_regex *re;
    nfa_state *states;
    uint32_t n, cap;
    ech_status rc;
} nfa;

/* States are numbered as they are made; state 0 is the final one. */
static uint32_t nfa_add(nfa *const m, const uint32_t set, const uint32_t a, const uint32_t b)
{
    if (m->rc == ECH_OK && m->n >= MAX_NFA) m->rc = ECH_ELIMIT;
    if (m->rc == ECH_OK && !ECH_VEC_GROW(m->states, m->cap, m->n, 1)) m->rc = ECH_ENOMEM;
    if (m->rc != ECH_OK) return 0;
    m->states[m->n] = (nfa_state){ set, a, b };
    return m->n++;
}

static uint32_t nfa_emit(nfa *m, uint32_t node, uint32_t next);

/* Repeats are unrolled: the optional copies nest, so that each may be the last. */
static uint32_t nfa_repeat(nfa *const m, const ech_re_node n, const uint32_t next)
{
    uint32_t at = next;
    if (n.c == ECH_CX_INF) {
        const uint32_t loop = nfa_add(m, NONE, NONE, next);
        const uint32_t body = nfa_emit(m, n.a, loop);
        if (m->rc == ECH_OK) m->states[loop].a = body;
        at = loop;
    } else {
        for (uint32_t i = n.b; i < n.c && m->rc == ECH_OK; i++) {
            at = nfa_add(m, NONE, nfa_emit(m, n.a, at), next);
        }
    }
    for (uint32_t i = 0; i < n.b && m->rc == ECH_OK; i++)
        at = nfa_emit(m, n.a, at);
    return at;
}

/* The entry of node, followed by next. */
static uint32_t nfa_emit(nfa *const m, const uint32_t node, const uint32_t next)
{
    const ech_re_node n = m->re->nodes[node];
    uint32_t at = next;
    switch (n.kind) {
    case ECH_RE_SET:
        return nfa_add(m, n.a, next, NONE);
    case ECH_RE_REPEAT:
        return nfa_repeat(m, n, next);
    case ECH_RE_CAT:
        for (uint32_t i = n.b; i > 0 && m->rc == ECH_OK; i--) {
            at = nfa_emit(m, m->re->kids[n.a + i - 1], at);
        }
        return at;
    case ECH_RE_ALT:
        at = nfa_emit(m, m->re->kids[n.a], next);
        for (uint32_t i = 1; i < n.b && m->rc == ECH_OK; i++) {
            at = nfa_add(m, NONE, at, nfa_emit(m, m->re->kids[n.a + i], next));
        }
        return at;
    case ECH_RE_FAIL: /* a character of no set */
        return nfa_add(m, NONE, NONE, NONE);
    default:
        return next;
    }
}

/* Subset construction: a DFA state is a slice of members, sorted NFA states that read. */
typedef struct subsets {
    const nfa *m;
    ech_dfa *dfa;
    uint32_t cap;
    uint32_t *first; /* [dfa->n_states + 1] into members */
    uint32_t cap_first;
    uint32_t *members;
    uint32_t n_members, cap_members;
    ech_index index;
    uint32_t *stack; /* [m->n + 1] */
    uint32_t *seen;  /* [m->n] round in which a state was reached */
    uint32_t round;
    ech_status rc;
} subsets;

static uint64_t hash_subset(const void *const owner, const uint32_t idx)
{
    const subsets *const s = owner;
    const uint32_t n = s->first[idx + 1] - s->first[idx];
    return n == 0 ? 7 : ech_hash_words(7, s->members + s->first[idx], n);
}

/*
 * Appends the closure of state to members; *accepting when it reaches the final state 0. Each state
 * is pushed once a round, so the stack needs no more room than there are states.
 */
static void close_over(subsets *const s, const uint32_t state, bool *const accepting)
{
    uint32_t depth = 0;
    if (s->seen[state] != s->round) s->stack[depth++] = state;
    s->seen[state] = s->round;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        const nfa_state *const n = &s->m->states[at];
        if (at == 0)
            *accepting = true;
        else if (n->set != NONE) {
            if (!ECH_VEC_GROW(s->members, s->cap_members, s->n_members, 1))
                s->rc = ECH_ENOMEM;
            else
                s->members[s->n_members++] = at;
        }
        const uint32_t next[2] = { n->set == NONE && at != 0 ? n->a : NONE,
                                   n->set == NONE && at != 0 ? n->b : NONE };
        for (int i = 0; i < 2; i++) {
            if (next[i] == NONE || s->seen[next[i]] == s->round) continue;
            s->seen[next[i]] = s->round;
            s->stack[depth++] = next[i];
        }
    }
}

static int compare_u32(const void *const x, const void *const y)
{
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/*
 * The state whose members were appended since first[n_states]; they are kept if it is new. members
 * since first[n] are the candidate: dropped again if the set is known. Both limits are for
 * expressions whose automaton explodes; the caller then keeps the expression.
 */
static uint32_t subset_state(subsets *const s, const bool accepting)
{
    const uint32_t n = s->dfa->n_states, from = s->first[n], size = s->n_members - from;
    if (size > 1) qsort(s->members + from, size, sizeof *s->members, compare_u32);
    if (s->n_members > MAX_SET_TOTAL || n >= MAX_DFA) s->rc = ECH_ELIMIT;
    if (s->rc == ECH_OK && (!ech_index_reserve(&s->index, hash_subset, s) ||
                            !ECH_VEC_GROW(s->first, s->cap_first, n, 2))) {
        s->rc = ECH_ENOMEM;
    }
    if (s->rc != ECH_OK) return ECH_DFA_DEAD;
    s->first[n + 1] = s->n_members;
    const uint32_t mask = s->index.cap - 1;
    uint32_t slot = (uint32_t)hash_subset(s, n) & mask;
    for (; s->index.slots[slot] != 0; slot = (slot + 1) & mask) {
        const uint32_t idx = s->index.slots[slot] - 1;
        if (s->first[idx + 1] - s->first[idx] == size && s->dfa->accepting[idx] == accepting &&
            (size == 0 || memcmp(s->members + s->first[idx], s->members + from,
                                 size * sizeof *s->members) == 0)) {
            s->n_members = from;
            return idx;
        }
    }
    s->index.slots[slot] = n + 1;
    s->index.used++;
    return ech_dfa_add_state(s->dfa, &s->cap, accepting, &s->rc);
}

/*
 * representatives[c]: a code point of class c. One code point stands for its class: that is what
 * the partition into classes is for.
 */
static void expand(subsets *const s, const uint32_t state, const uint32_t *const representatives)
{
    for (uint32_t c = 0; c < s->dfa->n_classes && s->rc == ECH_OK; c++) {
        bool accepting = false;
        s->round++;
        for (uint32_t i = s->first[state]; i < s->first[state + 1] && s->rc == ECH_OK; i++) {
            const nfa_state *const n = &s->m->states[s->members[i]];
            if (ech_cset_has(&s->m->re->sets[n->set], representatives[c])) {
                close_over(s, n->a, &accepting);
            }
        }
        if (s->n_members == s->first[s->dfa->n_states] && !accepting) continue;
        const uint32_t to = subset_state(s, accepting);
        s->dfa->next[(size_t)state * s->dfa->n_classes + c] = to;
    }
}

static ech_status determinize(const nfa *const m, const uint32_t start, ech_dfa *const dfa)
{
    subsets s = { .m = m, .dfa = dfa };
    uint32_t *const representatives = malloc(dfa->n_classes * sizeof *representatives);
    s.stack = malloc(((size_t)m->n + 1) * sizeof *s.stack);
    s.seen = calloc(m->n, sizeof *s.seen);
    if (representatives == NULL || s.stack == NULL || s.seen == NULL ||
        !ECH_VEC_GROW(s.first, s.cap_first, 0, 2)) {
        s.rc = ECH_ENOMEM;
    } else {
        for (uint32_t i = 0; i < dfa->n_segs; i++) {
            representatives[dfa->seg_class[i]] = dfa->seg_first[i];
        }
        s.first[0] = 0;
        bool accepting = false;
        s.round = 1;
        close_over(&s, start, &accepting);
        (void)subset_state(&s, accepting);
        for (uint32_t n = 0; s.rc == ECH_OK && n < dfa->n_states; n++) {
            expand(&s, n, representatives);
        }
    }
    free(representatives);
    free(s.first);
    free(s.members);
    free(s.stack);
    free(s.seen);
    ech_index_fini(&s.index);
    return s.rc;
}

ech_status ech_regex_dfa(const ech_regex *const re, const bool search, ech_dfa **const ret_dfa,
                         ech_error *const err)
{
    nfa m = { .re = re };
    (void)nfa_add(&m, NONE, NONE, NONE); /* state 0: the end */
    const uint32_t start = nfa_emit(&m, search ? re->root_search : re->root_full, 0);
    ech_dfa *dfa = calloc(1, sizeof *dfa);
    ech_status rc = dfa == NULL ? ECH_ENOMEM : m.rc;
    if (rc == ECH_OK) rc = ech_dfa_partition(dfa, re->sets, re->n_sets, err);
    if (rc == ECH_OK) rc = determinize(&m, start, dfa);
    free(m.states);
    if (rc != ECH_OK)
        rc = ech_dfa_fail(rc, err);
    else
        rc = ech_dfa_minimize(dfa, ret_dfa, err);
    ech_dfa_free(&dfa);
    return rc;
}
