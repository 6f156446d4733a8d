/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from expressions: which match anything, which match the empty text, and whether a
 * rule begins with itself. All three in time linear in the graph, without recursion, because a
 * grammar of a client may chain sixty thousand rules.
 *
 * The first two are Horn clauses: a SEQ holds when all its kids do, an ALT when one does. Each
 * node counts what it still waits for; a node whose count reaches zero is done and tells its
 * parents, once.
 */
#include "src/text/constraint_expr.h"

/* Parents of every node, in one array: those of n are list[first[n] .. first[n + 1]). */
typedef struct parents {
    uint32_t *first;
    uint32_t *list;
} parents;

/* Calls visit for every (kid, parent) pair; a REF's kid is its rule's body. */
static void for_each_kid(const ech_cx_graph *const g,
                         void (*const visit)(void *user, uint32_t kid, uint32_t parent),
                         void *const user)
{
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const ech_cx_node *const node = &g->nodes[n];
        switch ((ech_cx_kind)node->kind) {
        case ECH_CX_KIND_SEQ:
        case ECH_CX_KIND_ALT:
            for (uint32_t i = 0; i < node->b; i++)
                visit(user, g->kids[node->a + i], n);
            break;
        case ECH_CX_KIND_REPEAT:
            visit(user, node->a, n);
            break;
        case ECH_CX_KIND_REF:
            visit(user, g->rules[node->a].expr, n);
            break;
        default:
            break;
        }
    }
}

/*
 * Two passes over the pairs make the lists of parents without a list of pairs: the first counts
 * them, shifted by two so that the second may use first[kid + 1] as its cursor and leave it, when
 * all are placed, where the next node's list begins.
 */
static void count_parent(void *const user, const uint32_t kid, const uint32_t parent)
{
    (void)parent;
    ((parents *)user)->first[kid + 2]++;
}

static void place_parent(void *const user, const uint32_t kid, const uint32_t parent)
{
    parents *const p = user;
    p->list[p->first[kid + 1]++] = parent;
}

static ech_status find_parents(const ech_cx_graph *const g, parents *const p)
{
    p->first = calloc((size_t)g->n_nodes + 2, sizeof *p->first);
    if (p->first == NULL) return ECH_ENOMEM;
    for_each_kid(g, count_parent, p);
    for (uint32_t n = 2; n < g->n_nodes + 2; n++)
        p->first[n] += p->first[n - 1];
    p->list = malloc(((size_t)p->first[g->n_nodes + 1] + 1) * sizeof *p->list);
    if (p->list == NULL) return ECH_ENOMEM;
    for_each_kid(g, place_parent, p); /* leaves first[n] at the start of n */
    return ECH_OK;
}

/* How many kids must hold before the node does; 0: it holds at once; UINT32_MAX: never. */
static uint32_t waits_for(const ech_cx_graph *const g, const ech_cx_node *const n,
                          const bool nullable)
{
    switch ((ech_cx_kind)n->kind) {
    case ECH_CX_KIND_EMPTY:
        return 0;
    case ECH_CX_KIND_SET:
        return nullable ? UINT32_MAX : 0;
    case ECH_CX_KIND_AUTO:
        return nullable && !g->autos[n->a].accepting[0] ? UINT32_MAX : 0;
    case ECH_CX_KIND_SEQ:
        return n->b;
    case ECH_CX_KIND_REPEAT:
        return n->b == 0 ? 0 : 1;
    case ECH_CX_KIND_ALT:
    case ECH_CX_KIND_REF:
        return 1;
    case ECH_CX_KIND_FAIL:
        break;
    }
    return UINT32_MAX;
}

/* Sets holds[n] for every node; counts and queue are scratch of n_nodes each. */
static void propagate(const ech_cx_graph *const g, const parents *const p, const bool nullable,
                      uint32_t *const counts, uint32_t *const queue, uint8_t *const holds)
{
    uint32_t n_queue = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        counts[n] = waits_for(g, &g->nodes[n], nullable);
        if (counts[n] != 0) continue;
        holds[n] = 1;
        queue[n_queue++] = n;
    }
    while (n_queue > 0) {
        const uint32_t n = queue[--n_queue];
        for (uint32_t i = p->first[n]; i < p->first[n + 1]; i++) {
            const uint32_t parent = p->list[i];
            if (holds[parent] || counts[parent] == UINT32_MAX || --counts[parent] > 0) continue;
            holds[parent] = 1;
            queue[n_queue++] = parent;
        }
    }
}

/* ---- left recursion ---- */

/* The i-th node that may begin n, FAIL past the last. */
static ech_cx beginning_at(const ech_cx_graph *const g, const ech_cx_facts *const facts,
                           const ech_cx n, const uint32_t i)
{
    const ech_cx_node *const node = &g->nodes[n];
    switch ((ech_cx_kind)node->kind) {
    case ECH_CX_KIND_ALT:
        return i < node->b ? g->kids[node->a + i] : ECH_CX_FAIL;
    case ECH_CX_KIND_SEQ:
        if (i >= node->b || (i > 0 && !facts->nullable[g->kids[node->a + i - 1]])) break;
        return g->kids[node->a + i];
    case ECH_CX_KIND_REPEAT:
        return i == 0 ? node->a : ECH_CX_FAIL;
    case ECH_CX_KIND_REF:
        return i == 0 ? g->rules[node->a].expr : ECH_CX_FAIL;
    default:
        break;
    }
    return ECH_CX_FAIL;
}

/* The innermost rule on the path is named: it is the one whose text the user can change. */
static ech_status fail_left(const ech_cx_graph *const g, const ech_cx *const path, uint32_t depth,
                            uint32_t *const ret_rule, ech_error *const err)
{
    while (depth > 0 && g->nodes[path[depth - 1]].kind != ECH_CX_KIND_REF)
        depth--;
    ECH_ASSERT(depth > 0); /* only a REF can close a cycle */
    const uint32_t rule = g->nodes[path[depth - 1]].a;
    if (ret_rule != NULL) *ret_rule = rule;
    const char *const name = g->rules[rule].name;
    return ech_fail(err, ECH_EINVAL,
                    "compiling a constraint: rule %s begins with itself (left "
                    "recursion), write it as a repetition",
                    name != NULL ? name : "(unnamed)");
}

/* Depth first, by hand: path holds the open nodes, next how far each has come, seen 1 open 2 done.
 */
static ech_status find_left(const ech_cx_graph *const g, const ech_cx_facts *const facts,
                            const ech_cx root, uint32_t *const path, uint32_t *const next,
                            uint8_t *const seen, uint32_t *const ret_rule, ech_error *const err)
{
    uint32_t depth = 0;
    path[depth++] = root;
    seen[root] = 1;
    while (depth > 0) {
        const ech_cx n = path[depth - 1];
        const ech_cx kid = beginning_at(g, facts, n, next[n]++);
        if (kid == ECH_CX_FAIL) {
            /* An alternative may itself be FAIL, which ends nothing: the others are still open. */
            const bool has_more = g->nodes[n].kind == ECH_CX_KIND_ALT && next[n] <= g->nodes[n].b;
            if (has_more) continue;
            seen[n] = 2;
            depth--;
        } else if (seen[kid] == 1) {
            return fail_left(g, path, depth, ret_rule, err);
        } else if (seen[kid] == 0) {
            seen[kid] = 1;
            path[depth++] = kid;
        }
    }
    return ECH_OK;
}

/* Every rule that is used must be checked, also those that no beginning reaches. */
static ech_status check_left(const ech_cx_graph *const g, const ech_cx_facts *const facts,
                             const ech_cx root, uint32_t *const path, uint32_t *const next,
                             uint32_t *const ret_rule, ech_error *const err)
{
    uint8_t *const seen = calloc(g->n_nodes, 1);
    if (seen == NULL) return ech_fail(err, ECH_ENOMEM, "compiling a constraint: out of memory");
    memset(next, 0, g->n_nodes * sizeof *next);
    ech_status rc = find_left(g, facts, root, path, next, seen, ret_rule, err);
    for (uint32_t n = 0; n < g->n_nodes && rc == ECH_OK; n++) {
        if (g->nodes[n].kind != ECH_CX_KIND_REF || seen[n] != 0) continue;
        rc = find_left(g, facts, n, path, next, seen, ret_rule, err);
    }
    free(seen);
    return rc;
}

/*
 * One propagation answers two of the questions, and its scratch arrays serve the third: a client's
 * grammar may be large, so nothing is allocated twice.
 */
ech_status ech_cx_analyse(const ech_cx_graph *const g, const ech_cx root,
                          ech_cx_facts *const ret_facts, uint32_t *const ret_rule,
                          ech_error *const err)
{
    ECH_TRY(ech_cx_graph_check(g, err));
    ech_cx_facts facts = { calloc(g->n_nodes, 1), calloc(g->n_nodes, 1) };
    uint32_t *const counts = malloc(g->n_nodes * sizeof *counts);
    uint32_t *const queue = malloc(g->n_nodes * sizeof *queue);
    parents p = { 0 };
    ech_status rc = ECH_ENOMEM;
    if (facts.productive != NULL && facts.nullable != NULL && counts != NULL && queue != NULL) {
        rc = find_parents(g, &p);
    }
    if (rc == ECH_OK) {
        propagate(g, &p, false, counts, queue, facts.productive);
        propagate(g, &p, true, counts, queue, facts.nullable);
        rc = check_left(g, &facts, root, queue, counts, ret_rule, err);
    } else {
        (void)ech_fail(err, rc, "compiling a constraint: out of memory");
    }
    free(p.first);
    free(p.list);
    free(counts);
    free(queue);
    if (rc == ECH_OK)
        *ret_facts = facts;
    else
        ech_cx_facts_fini(&facts);
    return rc;
}

void ech_cx_facts_fini(ech_cx_facts *const facts)
{
    free(facts->productive);
    free(facts->nullable);
    *facts = (ech_cx_facts){ NULL, NULL };
}
