/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States that stand in for others. A pattern with a maxLength is an automaton with a state for
 * every length; far from the limit they behave alike for as many bytes as a token has, and one mask
 * serves all of them. Two states are alike for n bytes if both accept or neither does, and each
 * edge of one has a partner in the other with the same expression, whose target is alike for n - 1
 * bytes (an expression reads at least one). So n rounds of partition refinement find them.
 */
#include "src/text/constraint_expr.h"

/* Automata smaller than this have few masks as they are; in larger ones the rounds cost too much.
 */
#define MIN_STATES 40u
#define MAX_WORK   UINT64_C(40000000) /* edges looked at */
#define MAX_DEGREE 64u                /* edges of one state */

typedef struct refiner {
    const ech_cx_auto *m;
    const uint32_t *first;  /* [n_states + 1] edges of a state */
    uint32_t *block, *next; /* [n_states] */
    uint32_t *slots;
    uint32_t cap;
} refiner;

/* The edges of a state as (target's block, expression) pairs, sorted. Returns how many. */
static uint32_t signature(const refiner *const r, const uint32_t s, uint64_t out[MAX_DEGREE])
{
    uint32_t n = 0;
    for (uint32_t i = r->first[s]; i < r->first[s + 1] && n < MAX_DEGREE; i++) {
        const ech_cx_edge *const e = &r->m->edges[i];
        const uint64_t key = (uint64_t)r->block[e->to] << 32 | e->expr;
        uint32_t k = n++;
        for (; k > 0 && out[k - 1] > key; k--)
            out[k] = out[k - 1];
        out[k] = key;
    }
    return n;
}

static bool same_signature(const refiner *const r, const uint32_t s, const uint32_t t)
{
    uint64_t a[MAX_DEGREE], b[MAX_DEGREE];
    const uint32_t n = signature(r, s, a);
    return r->block[s] == r->block[t] && n == signature(r, t, b) &&
           memcmp(a, b, n * sizeof a[0]) == 0;
}

/* One round; the number of blocks there are then. A block's number is its first state. */
static uint32_t refine(refiner *const r)
{
    uint32_t n = 0;
    memset(r->slots, 0, r->cap * sizeof *r->slots);
    for (uint32_t s = 0; s < r->m->n_states; s++) {
        uint64_t list[MAX_DEGREE];
        const uint32_t degree = signature(r, s, list);
        uint64_t h = r->block[s] + UINT64_C(1);
        for (uint32_t i = 0; i < degree; i++)
            h = ech_hash_step(h, list[i]);
        uint32_t slot = (uint32_t)h & (r->cap - 1);
        while (r->slots[slot] != 0 && !same_signature(r, s, r->slots[slot] - 1)) {
            slot = (slot + 1) & (r->cap - 1);
        }
        if (r->slots[slot] == 0) {
            r->slots[slot] = s + 1;
            n++;
        }
        r->next[s] = r->slots[slot] - 1;
    }
    uint32_t *const t = r->block;
    r->block = r->next;
    r->next = t;
    return n;
}

/* Whether the automaton is of a size, and all its states of a degree, that this is for. */
static bool is_suitable(const ech_cx_auto *const m, const uint32_t *const first,
                        const uint32_t longest)
{
    if (m->n_states < MIN_STATES || (uint64_t)m->n_edges * longest > MAX_WORK) return false;
    for (uint32_t s = 0; s < m->n_states; s++) {
        if (first[s + 1] - first[s] > MAX_DEGREE) return false;
    }
    return true;
}

static bool run(refiner *const r, ech_cx_auto *const m, const uint32_t reach[ECH_CX_REACHES])
{
    uint32_t rounds = 0, before = 0, accepting = UINT32_MAX, other = UINT32_MAX;
    for (uint32_t s = 0; s < m->n_states; s++) {
        uint32_t *const first = m->accepting[s] ? &accepting : &other;
        if (*first == UINT32_MAX) *first = s;
        r->block[s] = *first;
    }
    bool stable = false;
    for (int k = 0; k < ECH_CX_REACHES; k++) {
        for (; rounds < reach[k] && !stable; rounds++) {
            const uint32_t n = refine(r);
            stable = n == before;
            before = n;
        }
        if (before == m->n_states) return true; /* no two are alike, nor will be later */
        m->rough[k] = malloc(m->n_states * sizeof *m->rough[k]);
        if (m->rough[k] == NULL) return false;
        memcpy(m->rough[k], r->block, m->n_states * sizeof *m->rough[k]);
    }
    return true;
}

bool ech_cx_auto_find_rough(ech_cx_auto *const m, const uint32_t reach[ECH_CX_REACHES])
{
    const uint32_t longest = reach[ECH_CX_REACHES - 1];
    if (longest == 0 || m->n_states < MIN_STATES) return true;
    const size_t n = m->n_states;
    refiner r = { .m = m, .cap = 64 };
    while (r.cap < n * 2)
        r.cap *= 2;
    uint32_t *const first = calloc(n + 2, sizeof *first);
    r.block = malloc(n * sizeof *r.block);
    r.next = malloc(n * sizeof *r.next);
    r.slots = malloc(r.cap * sizeof *r.slots);
    bool ok = first != NULL && r.block != NULL && r.next != NULL && r.slots != NULL;
    if (ok) {
        for (uint32_t i = 0; i < m->n_edges; i++)
            first[m->edges[i].from + 1]++;
        for (size_t s = 1; s <= n; s++)
            first[s] += first[s - 1];
        r.first = first;
        if (is_suitable(m, first, longest)) ok = run(&r, m, reach);
    }
    free(first);
    free(r.block);
    free(r.next);
    free(r.slots);
    return ok;
}
