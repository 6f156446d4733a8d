/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph of expressions: constructors that share equal nodes. Invariant: a node's kids have
 * smaller numbers than the node, except through REF. What the nodes mean for a program is
 * constraint_program.c's business, what follows from them constraint_facts.c's.
 *
 * Equal nodes are one node, so comparing expressions is comparing numbers, and repeating a part
 * costs nothing. Errors are sticky in g->rc: constructors then return FAIL, so that callers build
 * on and ask once (ech_cx_graph_check). Simplifications made here are those that need no look at
 * the whole: FAIL and EMPTY vanish, sets of one alternative become one set. Bounded by max_nodes;
 * used by one thread.
 */
#include "src/text/constraint_expr.h"

/* FAIL and EMPTY are the nodes 0 and 1, so that a zeroed ech_cx fails. */
void ech_cx_graph_init(ech_cx_graph *const g, const uint32_t max_nodes)
{
    *g = (ech_cx_graph){ .max_nodes = max_nodes };
    if (!ECH_VEC_GROW(g->nodes, g->cap_nodes, 0, 2)) {
        g->rc = ECH_ENOMEM;
        return;
    }
    g->nodes[ECH_CX_FAIL] = (ech_cx_node){ .kind = ECH_CX_KIND_FAIL };
    g->nodes[ECH_CX_EMPTY] = (ech_cx_node){ .kind = ECH_CX_KIND_EMPTY };
    g->n_nodes = 2;
}

void ech_cx_graph_fini(ech_cx_graph *const g)
{
    for (uint32_t i = 0; i < g->n_autos; i++) {
        free(g->autos[i].edges);
        free(g->autos[i].accepting);
        for (int k = 0; k < ECH_CX_REACHES; k++)
            free(g->autos[i].rough[k]);
    }
    free(g->nodes);
    free(g->kids);
    free(g->sets);
    for (uint32_t i = 0; i < g->n_rules; i++)
        free(g->rules[i].name);
    free(g->rules);
    free(g->autos);
    free(g->shared);
    ech_index_fini(&g->node_index);
    ech_index_fini(&g->set_index);
    *g = (ech_cx_graph){ 0 };
}

ech_status ech_cx_graph_check(const ech_cx_graph *const g, ech_error *const err)
{
    if (g->rc == ECH_ELIMIT) {
        return ech_fail(err, g->rc,
                        "compiling a constraint: its automaton has more than %u states, "
                        "simplify it or raise max_states",
                        g->max_nodes);
    }
    if (g->rc != ECH_OK) return ech_fail(err, g->rc, "compiling a constraint: out of memory");
    return ECH_OK;
}

/* ---- sharing ---- */

static bool has_kids(const uint32_t kind)
{
    return kind == ECH_CX_KIND_SEQ || kind == ECH_CX_KIND_ALT;
}

/* A node with kids is hashed by them and not by where they lie. */
static uint64_t hash_node(const ech_cx_graph *const g, const ech_cx_node *const n)
{
    if (has_kids(n->kind)) return ech_hash_words(n->kind, g->kids + n->a, n->b);
    return ech_hash_step(ech_hash_step(ech_hash_step(n->kind, n->a), n->b), n->c);
}

static uint64_t hash_node_at(const void *const owner, const uint32_t idx)
{
    const ech_cx_graph *const g = owner;
    return hash_node(g, &g->nodes[idx]);
}

static bool same_node(const ech_cx_graph *const g, const ech_cx_node *const x,
                      const ech_cx_node *const y)
{
    if (x->kind != y->kind || x->b != y->b) return false;
    if (!has_kids(x->kind)) return x->a == y->a && x->c == y->c;
    return x->a == y->a || memcmp(g->kids + x->a, g->kids + y->a, x->b * sizeof *g->kids) == 0;
}

/* The node equal to n, made if there is none. */
static ech_cx intern(ech_cx_graph *const g, const ech_cx_node n)
{
    if (g->rc != ECH_OK) return ECH_CX_FAIL;
    if (!ech_index_reserve(&g->node_index, hash_node_at, g) ||
        !ECH_VEC_GROW(g->nodes, g->cap_nodes, g->n_nodes, 1)) {
        g->rc = ECH_ENOMEM;
        return ECH_CX_FAIL;
    }
    const uint32_t mask = g->node_index.cap - 1;
    uint32_t s = (uint32_t)hash_node(g, &n) & mask;
    for (; g->node_index.slots[s] != 0; s = (s + 1) & mask) {
        const uint32_t idx = g->node_index.slots[s] - 1;
        if (same_node(g, &g->nodes[idx], &n)) return idx;
    }
    if (g->n_nodes >= g->max_nodes) {
        g->rc = ECH_ELIMIT;
        return ECH_CX_FAIL;
    }
    g->nodes[g->n_nodes] = n;
    g->node_index.slots[s] = g->n_nodes + 1;
    g->node_index.used++;
    return g->n_nodes++;
}

/* A node whose kids are those appended to g->kids since first; takes them back if it existed. */
static ech_cx intern_kids(ech_cx_graph *const g, const ech_cx_kind kind, const uint32_t first)
{
    const ech_cx n = intern(g, (ech_cx_node){ kind, first, g->n_kids - first, 0 });
    if (g->rc != ECH_OK || g->nodes[n].a != first) g->n_kids = first;
    return n;
}

/*
 * Kids of a node under construction are at the end of g->kids; no other node may be made in
 * between.
 */
static bool push_kid(ech_cx_graph *const g, const ech_cx kid)
{
    if (g->rc == ECH_OK && !ECH_VEC_GROW(g->kids, g->cap_kids, g->n_kids, 1)) g->rc = ECH_ENOMEM;
    if (g->rc != ECH_OK) return false;
    g->kids[g->n_kids++] = kid;
    return true;
}

/* ---- sets ---- */

static uint64_t hash_set(const ech_byteset *const s)
{
    uint64_t h = 0;
    for (int i = 0; i < 4; i++)
        h = ech_hash_step(h, s->bits[i]);
    return h;
}

static uint64_t hash_set_at(const void *const owner, const uint32_t idx)
{
    return hash_set(&((const ech_cx_graph *)owner)->sets[idx]);
}

/* The empty set matches nothing: FAIL. */
ech_cx ech_cx_set(ech_cx_graph *const g, const ech_byteset *const set)
{
    if ((set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]) == 0) return ECH_CX_FAIL;
    if (g->rc != ECH_OK) return ECH_CX_FAIL;
    if (!ech_index_reserve(&g->set_index, hash_set_at, g) ||
        !ECH_VEC_GROW(g->sets, g->cap_sets, g->n_sets, 1)) {
        g->rc = ECH_ENOMEM;
        return ECH_CX_FAIL;
    }
    const uint32_t mask = g->set_index.cap - 1;
    uint32_t s = (uint32_t)hash_set(set) & mask;
    for (; g->set_index.slots[s] != 0; s = (s + 1) & mask) {
        const uint32_t idx = g->set_index.slots[s] - 1;
        if (memcmp(&g->sets[idx], set, sizeof *set) == 0) {
            return intern(g, (ech_cx_node){ ECH_CX_KIND_SET, idx, 0, 0 });
        }
    }
    g->sets[g->n_sets] = *set;
    g->set_index.slots[s] = g->n_sets + 1;
    g->set_index.used++;
    return intern(g, (ech_cx_node){ ECH_CX_KIND_SET, g->n_sets++, 0, 0 });
}

ech_cx ech_cx_range(ech_cx_graph *const g, const uint8_t first, const uint8_t last)
{
    ech_byteset s = { { 0 } };
    ech_byteset_add(&s, first, last);
    return ech_cx_set(g, &s);
}

/* ---- composition ---- */

/* The sets are made first, since making them while kids are pushed would mix the two. */
ech_cx ech_cx_lit(ech_cx_graph *const g, const char *const bytes, const size_t len)
{
    if (len == 0) return ECH_CX_EMPTY;
    if (len == 1) return ech_cx_range(g, (uint8_t)bytes[0], (uint8_t)bytes[0]);
    if (len > g->max_nodes) g->rc = g->rc != ECH_OK ? g->rc : ECH_ELIMIT;
    ech_cx of_byte[256] = { 0 };
    for (size_t i = 0; i < len; i++) {
        const uint8_t b = (uint8_t)bytes[i];
        if (of_byte[b] == ECH_CX_FAIL) of_byte[b] = ech_cx_range(g, b, b);
    }
    const uint32_t first = g->n_kids;
    for (size_t i = 0; i < len; i++) {
        if (!push_kid(g, of_byte[(uint8_t)bytes[i]])) return ECH_CX_FAIL;
    }
    return intern_kids(g, ECH_CX_KIND_SEQ, first);
}

/* Appends a kid of a SEQ, or its own kids if it is one; false when the whole is FAIL. */
static bool push_seq(ech_cx_graph *const g, const ech_cx kid)
{
    if (kid == ECH_CX_EMPTY) return true;
    if (kid == ECH_CX_FAIL) return false;
    if (g->nodes[kid].kind != ECH_CX_KIND_SEQ) return push_kid(g, kid);
    const ech_cx_node n = g->nodes[kid];
    for (uint32_t i = 0; i < n.b; i++) {
        if (!push_kid(g, g->kids[n.a + i])) return false;
    }
    return true;
}

/*
 * Nested sequences are flattened, which keeps the nesting of expressions small however they were
 * built.
 */
ech_cx ech_cx_seq(ech_cx_graph *const g, const ech_cx *const kids, const size_t n)
{
    const uint32_t first = g->n_kids;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = push_seq(g, kids[i]);
    const uint32_t count = g->n_kids - first;
    if (ok && count >= 2) return intern_kids(g, ECH_CX_KIND_SEQ, first);
    const ech_cx only = count == 1 ? g->kids[first] : ECH_CX_EMPTY;
    g->n_kids = first;
    return ok ? only : ECH_CX_FAIL;
}

ech_cx ech_cx_seq2(ech_cx_graph *const g, const ech_cx a, const ech_cx b)
{
    const ech_cx kids[2] = { a, b };
    return ech_cx_seq(g, kids, 2);
}

ech_cx ech_cx_seq3(ech_cx_graph *const g, const ech_cx a, const ech_cx b, const ech_cx c)
{
    const ech_cx kids[3] = { a, b, c };
    return ech_cx_seq(g, kids, 3);
}

static int compare_ids(const void *const x, const void *const y)
{
    const ech_cx a = *(const ech_cx *)x, b = *(const ech_cx *)y;
    return (a > b) - (a < b);
}

/*
 * Sorts the kids since first, drops doubles and FAIL, and takes out the sets, whose union is
 * written to *ret_set.
 */
static void tidy_alternatives(ech_cx_graph *const g, const uint32_t first,
                              ech_byteset *const ret_set)
{
    if (g->n_kids - first > 1) {
        qsort(g->kids + first, g->n_kids - first, sizeof *g->kids, compare_ids);
    }
    uint32_t w = first;
    for (uint32_t r = first; r < g->n_kids; r++) {
        const ech_cx kid = g->kids[r];
        if (kid == ECH_CX_FAIL || (w > first && g->kids[w - 1] == kid)) continue;
        if (g->nodes[kid].kind == ECH_CX_KIND_SET) {
            const ech_byteset *const s = &g->sets[g->nodes[kid].a];
            for (int i = 0; i < 4; i++)
                ret_set->bits[i] |= s->bits[i];
            continue;
        }
        g->kids[w++] = kid;
    }
    g->n_kids = w;
}

/*
 * Order doesn't matter for a set of texts, so alternatives are sorted by number: equal choices are
 * one node.
 */
ech_cx ech_cx_alt(ech_cx_graph *const g, const ech_cx *const kids, const size_t n)
{
    const uint32_t first = g->n_kids;
    for (size_t i = 0; i < n; i++) {
        const ech_cx_node node = g->nodes[kids[i]];
        const bool is_alt = node.kind == ECH_CX_KIND_ALT;
        for (uint32_t k = 0; k < (is_alt ? node.b : 1); k++) {
            if (!push_kid(g, is_alt ? g->kids[node.a + k] : kids[i])) return ECH_CX_FAIL;
        }
    }
    ech_byteset set = { { 0 } };
    tidy_alternatives(g, first, &set);
    const ech_cx joined = ech_cx_set(g, &set);
    if (joined != ECH_CX_FAIL) (void)push_kid(g, joined);
    if (g->rc != ECH_OK) return ECH_CX_FAIL;
    if (g->n_kids - first >= 2) return intern_kids(g, ECH_CX_KIND_ALT, first);
    const ech_cx only = g->n_kids > first ? g->kids[first] : ECH_CX_FAIL;
    g->n_kids = first;
    return only;
}

ech_cx ech_cx_alt2(ech_cx_graph *const g, const ech_cx a, const ech_cx b)
{
    const ech_cx kids[2] = { a, b };
    return ech_cx_alt(g, kids, 2);
}

/* Bounds stay as they are; writing them out or counting them is the program's decision. */
ech_cx ech_cx_repeat(ech_cx_graph *const g, const ech_cx a, const uint32_t min, const uint32_t max)
{
    if (min > max) return ECH_CX_FAIL;
    if (max == 0 || a == ECH_CX_EMPTY) return ECH_CX_EMPTY;
    if (a == ECH_CX_FAIL) return min == 0 ? ECH_CX_EMPTY : ECH_CX_FAIL;
    if (min == 1 && max == 1) return a;
    return intern(g, (ech_cx_node){ ECH_CX_KIND_REPEAT, a, min, max });
}

ech_cx ech_cx_opt(ech_cx_graph *const g, const ech_cx a)
{
    return ech_cx_repeat(g, a, 0, 1);
}

ech_cx ech_cx_nonempty(const ech_cx_graph *const g, const ech_cx a)
{
    const ech_cx_node *const n = &g->nodes[a];
    if (a == ECH_CX_EMPTY) return ECH_CX_FAIL;
    return n->kind == ECH_CX_KIND_REPEAT && n->b == 0 && n->c == 1 ? n->a : a;
}

/* ---- words ---- */

static int compare_words(const void *const x, const void *const y)
{
    const ech_str *const a = x, *const b = y;
    const size_t n = a->len < b->len ? a->len : b->len;
    const int c = n == 0 ? 0 : memcmp(a->ptr, b->ptr, n);
    return c != 0 ? c : (a->len > b->len) - (a->len < b->len);
}

/*
 * The tree of words[0..n), sorted and agreeing in their first `at` bytes. Goes one level deeper
 * only where words part, so the depth is at most the number of words, and at most log2 of it for
 * every halving.
 */
static ech_cx word_tree(ech_cx_graph *const g, const ech_str *const words, const size_t n,
                        const size_t at, const int depth)
{
    if (n == 1) return ech_cx_lit(g, words[0].ptr + at, words[0].len - at);
    size_t common = at; /* sorted: what first and last share, all share */
    while (common < words[0].len && words[0].ptr[common] == words[n - 1].ptr[common])
        common++;
    if (common == words[n - 1].len) return ech_cx_lit(g, words[0].ptr + at, common - at);
    const ech_cx head = ech_cx_lit(g, words[0].ptr + at, common - at);
    ech_cx tail = ECH_CX_FAIL;
    for (size_t i = 0; i < n && g->rc == ECH_OK;) {
        size_t j = i + 1;
        if (words[i].len > common) {
            while (j < n && words[j].ptr[common] == words[i].ptr[common])
                j++;
        }
        /* Far down (words that are prefixes of each other) the tree isn't worth its depth. */
        ech_cx branch = ECH_CX_FAIL;
        if (words[i].len == common)
            branch = ECH_CX_EMPTY;
        else if (depth < 200)
            branch = word_tree(g, words + i, j - i, common, depth + 1);
        else {
            for (size_t k = i; k < j; k++) {
                branch = ech_cx_alt2(g, branch,
                                     ech_cx_lit(g, words[k].ptr + common, words[k].len - common));
            }
        }
        tail = ech_cx_alt2(g, tail, branch);
        i = j;
    }
    return ech_cx_seq2(g, head, tail);
}

ech_cx ech_cx_words(ech_cx_graph *const g, ech_str *const words, const size_t n)
{
    if (n == 0) return ECH_CX_FAIL;
    qsort(words, n, sizeof *words, compare_words);
    return word_tree(g, words, n, 0, 0);
}

/* ---- rules and automata ---- */

/* A rule may be referred to before it is defined. */
uint32_t ech_cx_rule_new(ech_cx_graph *const g, const char *const name, const bool is_nest)
{
    if (g->rc == ECH_OK && !ECH_VEC_GROW(g->rules, g->cap_rules, g->n_rules, 1)) {
        g->rc = ECH_ENOMEM;
    }
    if (g->rc == ECH_OK && g->n_rules >= g->max_nodes) g->rc = ECH_ELIMIT;
    if (g->rc != ECH_OK) return ECH_CX_INF;
    char *const copy = name != NULL ? strdup(name) : NULL;
    if (name != NULL && copy == NULL) g->rc = ECH_ENOMEM;
    g->rules[g->n_rules] = (ech_cx_rule){ .name = copy, .is_nest = is_nest };
    return g->n_rules++;
}

void ech_cx_rule_define(ech_cx_graph *const g, const uint32_t rule, const ech_cx expr)
{
    if (rule == ECH_CX_INF) return;
    ECH_ASSERT(rule < g->n_rules);
    g->rules[rule].expr = expr;
    g->rules[rule].is_defined = true;
}

ech_cx ech_cx_ref(ech_cx_graph *const g, const uint32_t rule)
{
    if (rule == ECH_CX_INF) return ECH_CX_FAIL;
    return intern(g, (ech_cx_node){ ECH_CX_KIND_REF, rule, 0, 0 });
}

/*
 * A rule is emitted once and called, where an expression is emitted again for every continuation.
 * shared maps a node to its rule plus one, so asking twice gives the same rule.
 */
ech_cx ech_cx_shared(ech_cx_graph *const g, const ech_cx a)
{
    const ech_cx_kind kind = (ech_cx_kind)g->nodes[a].kind;
    if (kind == ECH_CX_KIND_FAIL || kind == ECH_CX_KIND_EMPTY || kind == ECH_CX_KIND_SET ||
        kind == ECH_CX_KIND_REF) {
        return a;
    }
    const uint32_t before = g->cap_shared;
    if (a >= before) {
        if (!ECH_VEC_GROW(g->shared, g->cap_shared, before, (size_t)a + 1 - before)) {
            g->rc = ECH_ENOMEM;
            return ECH_CX_FAIL;
        }
        memset(g->shared + before, 0, (g->cap_shared - before) * sizeof *g->shared);
    }
    if (g->shared[a] == 0) {
        const uint32_t rule = ech_cx_rule_new(g, NULL, false);
        if (rule == ECH_CX_INF) return ECH_CX_FAIL;
        ech_cx_rule_define(g, rule, a);
        g->shared[a] = rule + 1;
    }
    return ech_cx_ref(g, g->shared[a] - 1);
}

static int compare_edges(const void *const x, const void *const y)
{
    const ech_cx_edge *const a = x, *const b = y;
    if (a->from != b->from) return (a->from > b->from) - (a->from < b->from);
    if (a->to != b->to) return (a->to > b->to) - (a->to < b->to);
    return (a->expr > b->expr) - (a->expr < b->expr);
}

/*
 * Marks in live the states that reach an accepting one. by_to: edges sorted by target. Backwards
 * from the accepting states; every state is queued at most once.
 */
static void mark_live(const ech_cx_auto *const m, const uint32_t *const first_to,
                      const uint32_t *const by_to, uint8_t *const live, uint32_t *const queue)
{
    uint32_t n_queue = 0;
    for (uint32_t s = 0; s < m->n_states; s++) {
        live[s] = m->accepting[s];
        if (live[s]) queue[n_queue++] = s;
    }
    while (n_queue > 0) {
        const uint32_t s = queue[--n_queue];
        for (uint32_t i = first_to[s]; i < first_to[s + 1]; i++) {
            const uint32_t from = m->edges[by_to[i]].from;
            if (live[from]) continue;
            live[from] = 1;
            queue[n_queue++] = from;
        }
    }
}

/* Takes dead states out; renumbers the others in order, so that 0 stays 0 if it lives. */
static void drop_dead(ech_cx_auto *const m, const uint8_t *const live, uint32_t *const number)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->n_states; s++) {
        number[s] = n;
        m->accepting[n] = m->accepting[s];
        n += live[s];
    }
    uint32_t w = 0;
    for (uint32_t i = 0; i < m->n_edges; i++) {
        const ech_cx_edge e = m->edges[i];
        if (e.expr == ECH_CX_FAIL || !live[e.from] || !live[e.to]) continue;
        m->edges[w++] = (ech_cx_edge){ number[e.from], number[e.to], e.expr };
    }
    m->n_edges = w;
    m->n_states = live[0] ? n : 0;
}

/*
 * Counting sort by target: first_to is shifted by two while it is filled, so that after the second
 * pass first_to[s] .. first_to[s + 1] are the edges to s.
 */
static bool trim(ech_cx_auto *const m)
{
    const size_t n = m->n_states;
    uint32_t *const scratch = calloc(2 * n + 2 + m->n_edges, sizeof *scratch);
    uint32_t *const queue = malloc((n + 1) * sizeof *queue);
    uint8_t *const live = calloc(n + 1, 1);
    const bool ok = scratch != NULL && queue != NULL && live != NULL;
    if (ok) {
        uint32_t *const first_to = scratch, *const by_to = scratch + n + 2;
        for (uint32_t i = 0; i < m->n_edges; i++)
            first_to[m->edges[i].to + 2]++;
        for (size_t s = 2; s < n + 2; s++)
            first_to[s] += first_to[s - 1];
        for (uint32_t i = 0; i < m->n_edges; i++)
            by_to[first_to[m->edges[i].to + 1]++] = i;
        mark_live(m, first_to, by_to, live, queue);
        drop_dead(m, live, queue);
        if (m->n_edges > 1) qsort(m->edges, m->n_edges, sizeof *m->edges, compare_edges);
    }
    free(scratch);
    free(queue);
    free(live);
    return ok;
}

/* Takes over the arrays, on failure too. An automaton that accepts nothing is FAIL. */
ech_cx ech_cx_auto_new(ech_cx_graph *const g, ech_cx_auto automaton)
{
    if (g->rc == ECH_OK && !trim(&automaton)) g->rc = ECH_ENOMEM;
    const uint64_t size = (uint64_t)automaton.n_states + automaton.n_edges;
    if (g->rc == ECH_OK && size > g->max_nodes) g->rc = ECH_ELIMIT;
    if (g->rc == ECH_OK && !ECH_VEC_GROW(g->autos, g->cap_autos, g->n_autos, 1)) {
        g->rc = ECH_ENOMEM;
    }
    if (g->rc == ECH_OK && automaton.n_states > 0 &&
        !ech_cx_auto_find_rough(&automaton, g->reach)) {
        g->rc = ECH_ENOMEM;
    }
    if (g->rc != ECH_OK || automaton.n_states == 0) {
        free(automaton.edges);
        free(automaton.accepting);
        for (int k = 0; k < ECH_CX_REACHES; k++)
            free(automaton.rough[k]);
        return ECH_CX_FAIL;
    }
    g->autos[g->n_autos] = automaton;
    return intern(g, (ech_cx_node){ ECH_CX_KIND_AUTO, g->n_autos++, 0, 0 });
}
