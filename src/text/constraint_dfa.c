/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Automata over code points: construction by products, minimisation by partition refinement, and
 * translation to an expression. All products are built forward from the start state, so only
 * states that are reachable exist; states that lead nowhere are dropped by ech_cx_auto_new.
 *
 * Invariant: in a finished automaton seg_first is sorted and begins with 0, every code point has
 * exactly one class, and state 0 is the start. While a product is built its numbering is the order
 * of discovery, so the loop over states is at once the breadth-first queue.
 *
 * Left out: parsing of what the automata come from (constraint_regex.c, constraint_schema_*.c), and
 * UTF-8, which ech_cx_chars writes out for each edge. Runs while a constraint is compiled, on the
 * thread that compiles; nothing here is shared.
 */
#include "src/text/constraint_dfa.h"

#include "src/base/utf8.h"

ech_status ech_dfa_fail(const ech_status rc, ech_error *const err)
{
    if (rc == ECH_ELIMIT) {
        return ech_fail(err, rc,
                        "building the automaton of a string: more than %u states, use "
                        "shorter repeats or lengths",
                        ECH_DFA_MAX_STATES);
    }
    return ech_fail(err, rc, "building the automaton of a string: out of memory");
}

void ech_dfa_free(ech_dfa **const dfa)
{
    if (dfa == NULL || *dfa == NULL) return;
    free((*dfa)->seg_first);
    free((*dfa)->seg_class);
    free((*dfa)->next);
    free((*dfa)->accepting);
    free(*dfa);
    *dfa = NULL;
}

/*
 * The last segment that begins at or before cp, by bisection. It exists because seg_first[0] is 0.
 */
uint32_t ech_dfa_class_of(const ech_dfa *const dfa, const uint32_t cp)
{
    uint32_t lo = 0, hi = dfa->n_segs;
    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (dfa->seg_first[mid] <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return dfa->seg_class[lo];
}

/*
 * cap is the capacity of both arrays, doubled together. A new row is all 0xFF, which is
 * ECH_DFA_DEAD in each cell, so a maker only writes the edges that exist. Either realloc may
 * succeed alone: its result is kept at once and the automaton stays free-able.
 */
uint32_t ech_dfa_add_state(ech_dfa *const dfa, uint32_t *const cap, const bool accepting,
                           ech_status *const ret_rc)
{
    if (dfa->n_states >= ECH_DFA_MAX_STATES) {
        *ret_rc = ECH_ELIMIT;
        return ECH_DFA_DEAD;
    }
    if (dfa->n_states == *cap) {
        const uint32_t want = *cap == 0 ? 16 : *cap * 2;
        void *const next = realloc(dfa->next, (size_t)want * dfa->n_classes * sizeof *dfa->next);
        if (next != NULL) dfa->next = next;
        void *const acc = realloc(dfa->accepting, want);
        if (acc != NULL) dfa->accepting = acc;
        if (next == NULL || acc == NULL) {
            *ret_rc = ECH_ENOMEM;
            return ECH_DFA_DEAD;
        }
        *cap = want;
    }
    const uint32_t s = dfa->n_states++;
    memset(dfa->next + (size_t)s * dfa->n_classes, 0xFF, dfa->n_classes * sizeof *dfa->next);
    dfa->accepting[s] = accepting;
    return s;
}

/* ---- segments ---- */

static int compare_u32(const void *const x, const void *const y)
{
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* All places where some set begins or ends, sorted, each once, 0 among them. */
static ech_status find_cuts(ech_dfa *const dfa, const ech_cset *const sets, const size_t n_sets)
{
    size_t n = 1;
    for (size_t i = 0; i < n_sets; i++)
        n += 2 * (size_t)sets[i].n;
    uint32_t *const cuts = malloc(n * sizeof *cuts);
    if (cuts == NULL) return ECH_ENOMEM;
    n = 0;
    cuts[n++] = 0;
    for (size_t i = 0; i < n_sets; i++) {
        for (uint32_t r = 0; r < sets[i].n; r++) {
            cuts[n++] = sets[i].ranges[r].first;
            if (sets[i].ranges[r].last < ECH_CP_MAX) cuts[n++] = sets[i].ranges[r].last + 1;
        }
    }
    qsort(cuts, n, sizeof *cuts, compare_u32);
    uint32_t w = 1;
    for (size_t r = 1; r < n; r++) {
        if (cuts[r] != cuts[w - 1]) cuts[w++] = cuts[r];
    }
    dfa->seg_first = cuts;
    dfa->n_segs = w;
    return ECH_OK;
}

/*
 * One segment and its class in each of two partitions. Sorting by (a, b) makes equal pairs
 * neighbours; seg last makes the order total, so class numbers don't depend on the sort's
 * stability.
 */
typedef struct class_pair {
    uint32_t a, b, seg;
} class_pair;

static int compare_pairs(const void *const x, const void *const y)
{
    const class_pair *const p = x, *const q = y;
    if (p->a != q->a) return (p->a > q->a) - (p->a < q->a);
    if (p->b != q->b) return (p->b > q->b) - (p->b < q->b);
    return (p->seg > q->seg) - (p->seg < q->seg);
}

/* Numbers the pairs (a, b) of n segments; the number of a segment's pair goes to ret_class. */
static uint32_t number_pairs(class_pair *const pairs, const uint32_t n, uint32_t *const ret_class)
{
    qsort(pairs, n, sizeof *pairs, compare_pairs);
    uint32_t id = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && (pairs[i].a != pairs[i - 1].a || pairs[i].b != pairs[i - 1].b)) id++;
        ret_class[pairs[i].seg] = id;
    }
    return n == 0 ? 0 : id + 1;
}

/*
 * Starts with one class for everything and splits it by each set in turn: two segments stay
 * together exactly if they are in the same sets. Segments are never cut inside a set, so its
 * membership can be asked at the segment's first code point. n_sets sorts of n_segs each.
 */
ech_status ech_dfa_partition(ech_dfa *const dfa, const ech_cset *const sets, const size_t n_sets,
                             ech_error *const err)
{
    if (find_cuts(dfa, sets, n_sets) != ECH_OK) return ech_dfa_fail(ECH_ENOMEM, err);
    dfa->seg_class = calloc(dfa->n_segs, sizeof *dfa->seg_class);
    class_pair *const pairs = calloc(dfa->n_segs, sizeof *pairs);
    if (dfa->seg_class == NULL || pairs == NULL) {
        free(pairs);
        return ech_dfa_fail(ECH_ENOMEM, err);
    }
    dfa->n_classes = 1;
    for (size_t i = 0; i < n_sets; i++) {
        for (uint32_t s = 0; s < dfa->n_segs; s++) {
            pairs[s] =
                (class_pair){ dfa->seg_class[s], ech_cset_has(&sets[i], dfa->seg_first[s]), s };
        }
        dfa->n_classes = number_pairs(pairs, dfa->n_segs, dfa->seg_class);
    }
    free(pairs);
    return ECH_OK;
}

/*
 * The common refinement of two partitions, in a zeroed dfa; class c of it is class a_of[c] of a and
 * b_of[c] of b. The two arrays are the caller's to free, on failure too. A merge of two sorted
 * lists of cuts. Both begin with 0, so i and j are at least 1 after the first step and [i - 1] is
 * the segment that holds the cut.
 */
static ech_status refine(const ech_dfa *const a, const ech_dfa *const b, ech_dfa *const out,
                         uint32_t **const a_of, uint32_t **const b_of)
{
    const size_t most = (size_t)a->n_segs + b->n_segs;
    class_pair *const pairs = malloc(most * sizeof *pairs);
    out->seg_first = malloc(most * sizeof *out->seg_first);
    out->seg_class = malloc(most * sizeof *out->seg_class);
    *a_of = malloc(most * sizeof **a_of);
    *b_of = malloc(most * sizeof **b_of);
    if (pairs == NULL || out->seg_first == NULL || out->seg_class == NULL || *a_of == NULL ||
        *b_of == NULL) {
        free(pairs);
        return ECH_ENOMEM;
    }
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->n_segs || j < b->n_segs) {
        const uint32_t at_a = i < a->n_segs ? a->seg_first[i] : UINT32_MAX;
        const uint32_t at_b = j < b->n_segs ? b->seg_first[j] : UINT32_MAX;
        const uint32_t at = at_a < at_b ? at_a : at_b;
        i += at_a == at;
        j += at_b == at;
        out->seg_first[n] = at;
        pairs[n] = (class_pair){ a->seg_class[i - 1], b->seg_class[j - 1], n };
        n++;
    }
    out->n_segs = n;
    out->n_classes = number_pairs(pairs, n, out->seg_class);
    for (uint32_t k = 0; k < n; k++) {
        (*a_of)[out->seg_class[pairs[k].seg]] = pairs[k].a;
        (*b_of)[out->seg_class[pairs[k].seg]] = pairs[k].b;
    }
    free(pairs);
    return ECH_OK;
}

/* ---- products ---- */

/* The states of a product: pairs, each once, in the order of discovery. */
typedef struct product {
    ech_dfa *dfa;
    uint32_t cap;
    uint32_t (*pairs)[2]; /* [dfa->n_states] */
    uint32_t cap_pairs;
    ech_index index;
    ech_status rc;
} product;

static uint64_t hash_pair(const void *const owner, const uint32_t idx)
{
    const product *const p = owner;
    return ech_hash_step(ech_hash_step(1, p->pairs[idx][0]), p->pairs[idx][1]);
}

/*
 * Room is reserved before the probe, because growing the index moves its slots. p->rc, once set,
 * makes every later call a no-op: callers check it in their loops only.
 */
static uint32_t product_state(product *const p, const uint32_t a, const uint32_t b,
                              const bool accepting)
{
    if (p->rc != ECH_OK) return ECH_DFA_DEAD;
    const uint32_t n = p->dfa->n_states;
    if (!ech_index_reserve(&p->index, hash_pair, p) ||
        !ECH_VEC_GROW(p->pairs, p->cap_pairs, n, 1)) {
        p->rc = ECH_ENOMEM;
        return ECH_DFA_DEAD;
    }
    const uint32_t mask = p->index.cap - 1;
    uint32_t s = (uint32_t)ech_hash_step(ech_hash_step(1, a), b) & mask;
    for (; p->index.slots[s] != 0; s = (s + 1) & mask) {
        const uint32_t idx = p->index.slots[s] - 1;
        if (p->pairs[idx][0] == a && p->pairs[idx][1] == b) return idx;
    }
    if (ech_dfa_add_state(p->dfa, &p->cap, accepting, &p->rc) == ECH_DFA_DEAD) return ECH_DFA_DEAD;
    p->pairs[n][0] = a;
    p->pairs[n][1] = b;
    p->index.slots[s] = n + 1;
    p->index.used++;
    return n;
}

static ech_status product_end(product *const p, ech_dfa **const ret_dfa, ech_error *const err)
{
    free(p->pairs);
    ech_index_fini(&p->index);
    if (p->rc != ECH_OK) {
        ech_dfa_free(&p->dfa);
        return ech_dfa_fail(p->rc, err);
    }
    *ret_dfa = p->dfa;
    return ECH_OK;
}

static bool accepts_pair(const ech_dfa *const a, const ech_dfa *const b, const bool minus,
                         const uint32_t s, const uint32_t t)
{
    return a->accepting[s] && (t != ECH_DFA_DEAD && b->accepting[t]) != minus;
}

/*
 * The product construction. For a difference a walk must go on where b has died: b's side is then
 * ECH_DFA_DEAD itself, a state of its own in the pairs, from which everything of a is accepted. a's
 * side never dies in a pair: what a can't read is in neither result.
 */
ech_status ech_dfa_combine(const ech_dfa *const a, const ech_dfa *const b, const bool minus,
                           ech_dfa **const ret_dfa, ech_error *const err)
{
    product p = { .dfa = calloc(1, sizeof *p.dfa) };
    uint32_t *a_of = NULL, *b_of = NULL;
    p.rc = p.dfa == NULL ? ECH_ENOMEM : refine(a, b, p.dfa, &a_of, &b_of);
    (void)product_state(&p, 0, 0, p.rc == ECH_OK && accepts_pair(a, b, minus, 0, 0));
    for (uint32_t n = 0; p.rc == ECH_OK && n < p.dfa->n_states; n++) {
        for (uint32_t c = 0; c < p.dfa->n_classes && p.rc == ECH_OK; c++) {
            const uint32_t at_b = p.pairs[n][1];
            const uint32_t s = a->next[(size_t)p.pairs[n][0] * a->n_classes + a_of[c]];
            const uint32_t t = at_b == ECH_DFA_DEAD
                                   ? ECH_DFA_DEAD
                                   : b->next[(size_t)at_b * b->n_classes + b_of[c]];
            if (s == ECH_DFA_DEAD || (t == ECH_DFA_DEAD && !minus)) continue;
            const uint32_t to = product_state(&p, s, t, accepts_pair(a, b, minus, s, t));
            p.dfa->next[(size_t)n * p.dfa->n_classes + c] = to;
        }
    }
    free(a_of);
    free(b_of);
    return product_end(&p, ret_dfa, err);
}

static bool copy_segments(ech_dfa *const out, const ech_dfa *const a)
{
    out->n_segs = a->n_segs;
    out->n_classes = a->n_classes;
    out->seg_first = malloc(a->n_segs * sizeof *out->seg_first);
    out->seg_class = malloc(a->n_segs * sizeof *out->seg_class);
    if (out->seg_first == NULL || out->seg_class == NULL) return false;
    memcpy(out->seg_first, a->seg_first, a->n_segs * sizeof *out->seg_first);
    memcpy(out->seg_class, a->seg_class, a->n_segs * sizeof *out->seg_class);
    return true;
}

/* A count past min needs no telling apart when there is no maximum. */
static uint32_t next_count(const uint32_t count, const uint32_t min, const uint32_t max)
{
    return max == ECH_CX_INF && count >= min ? min : count + 1;
}

/*
 * A product of a with a counter of code points, the counter being the second half of each pair.
 * States multiply by max, which is why a large maxLength beside a pattern runs into
 * ECH_DFA_MAX_STATES.
 */
ech_status ech_dfa_length(const ech_dfa *const a, const uint32_t min, const uint32_t max,
                          ech_dfa **const ret_dfa, ech_error *const err)
{
    product p = { .dfa = calloc(1, sizeof *p.dfa) };
    if (p.dfa == NULL || !copy_segments(p.dfa, a)) p.rc = ECH_ENOMEM;
    (void)product_state(&p, 0, 0, a->accepting[0] && min == 0);
    for (uint32_t n = 0; p.rc == ECH_OK && n < p.dfa->n_states; n++) {
        const uint32_t count = next_count(p.pairs[n][1], min, max);
        if (count > max) continue;
        for (uint32_t c = 0; c < a->n_classes && p.rc == ECH_OK; c++) {
            const uint32_t s = a->next[(size_t)p.pairs[n][0] * a->n_classes + c];
            if (s == ECH_DFA_DEAD) continue;
            const uint32_t to = product_state(&p, s, count, a->accepting[s] && count >= min);
            p.dfa->next[(size_t)n * a->n_classes + c] = to;
        }
    }
    return product_end(&p, ret_dfa, err);
}

/* ---- simple automata ---- */

ech_status ech_dfa_any(ech_dfa **const ret_dfa, ech_error *const err)
{
    ech_dfa *dfa = calloc(1, sizeof *dfa);
    if (dfa == NULL) return ech_dfa_fail(ECH_ENOMEM, err);
    uint32_t cap = 0;
    ech_status rc = ech_dfa_partition(dfa, NULL, 0, err);
    if (rc == ECH_OK && ech_dfa_add_state(dfa, &cap, true, &rc) == 0) dfa->next[0] = 0;
    if (rc != ECH_OK) {
        ech_dfa_free(&dfa);
        return ech_dfa_fail(rc, err);
    }
    *ret_dfa = dfa;
    return ECH_OK;
}

/*
 * Walks one word into the tree, adding what is missing. Words share prefixes, so the tree has at
 * most one state more than the words have code points. Each code point is a class of its own here
 * (sets_of_words), so an edge never takes a character that was not written.
 */
static ech_status add_word(ech_dfa *const dfa, uint32_t *const cap, const ech_str word)
{
    uint32_t s = 0, cp = 0;
    ech_status rc = ECH_OK;
    for (size_t i = 0; i < word.len;) {
        const int n = ech_utf8_decode(word.ptr + i, word.len - i, &cp);
        if (n <= 0) return ECH_EFORMAT;
        i += (size_t)n;
        const size_t at = (size_t)s * dfa->n_classes + ech_dfa_class_of(dfa, cp);
        if (dfa->next[at] == ECH_DFA_DEAD) {
            const uint32_t to = ech_dfa_add_state(dfa, cap, false, &rc);
            if (to == ECH_DFA_DEAD) return rc;
            dfa->next[at] = to;
        }
        s = dfa->next[at];
    }
    dfa->accepting[s] = 1;
    return ECH_OK;
}

/*
 * One set per code point that occurs in the words. *ret_sets is the caller's to free, on failure
 * too.
 */
static ech_status sets_of_words(const ech_str *const words, const size_t n_words,
                                ech_cset **const ret_sets, size_t *const ret_n)
{
    ech_cset all = { 0 };
    uint32_t cp = 0;
    for (size_t w = 0; w < n_words; w++) {
        for (size_t i = 0; i < words[w].len;) {
            const int n = ech_utf8_decode(words[w].ptr + i, words[w].len - i, &cp);
            i += n > 0 ? (size_t)n : 1;
            if (n > 0) ech_cset_add(&all, cp, cp);
        }
    }
    ech_cset_tidy(&all);
    size_t n = 0;
    for (uint32_t i = 0; i < all.n; i++)
        n += all.ranges[i].last - all.ranges[i].first + 1;
    ech_cset *const sets = calloc(n + 1, sizeof *sets);
    bool ok = sets != NULL && !all.oom;
    size_t k = 0;
    for (uint32_t i = 0; ok && i < all.n; i++) {
        for (uint32_t c = all.ranges[i].first; ok && c <= all.ranges[i].last; c++) {
            ech_cset_add(&sets[k], c, c);
            ok = !sets[k++].oom;
        }
    }
    ech_cset_fini(&all);
    *ret_sets = sets;
    *ret_n = k;
    return ok ? ECH_OK : ECH_ENOMEM;
}

ech_status ech_dfa_words(const ech_str *const words, const size_t n, ech_dfa **const ret_dfa,
                         ech_error *const err)
{
    ech_dfa *dfa = calloc(1, sizeof *dfa);
    ech_cset *sets = NULL;
    size_t n_sets = 0;
    uint32_t cap = 0;
    ech_status rc = dfa == NULL ? ECH_ENOMEM : sets_of_words(words, n, &sets, &n_sets);
    if (rc == ECH_OK) rc = ech_dfa_partition(dfa, sets, n_sets, err);
    if (rc == ECH_OK) (void)ech_dfa_add_state(dfa, &cap, false, &rc);
    for (size_t i = 0; i < n && rc == ECH_OK; i++)
        rc = add_word(dfa, &cap, words[i]);
    for (size_t i = 0; sets != NULL && i < n_sets; i++)
        ech_cset_fini(&sets[i]);
    free(sets);
    if (rc != ECH_OK) {
        ech_dfa_free(&dfa);
        return ech_dfa_fail(rc, err);
    }
    *ret_dfa = dfa;
    return ECH_OK;
}

bool ech_dfa_is_empty(const ech_dfa *const a)
{
    for (uint32_t s = 0; s < a->n_states; s++) {
        if (a->accepting[s]) return false;
    }
    return true;
}

/*
 * For testing single texts (values of an enum, names of members). Ill-formed UTF-8 is no text, so
 * it isn't accepted.
 */
bool ech_dfa_accepts(const ech_dfa *const a, const ech_str utf8)
{
    uint32_t s = 0, cp = 0;
    for (size_t i = 0; i < utf8.len;) {
        const int n = ech_utf8_decode(utf8.ptr + i, utf8.len - i, &cp);
        if (n <= 0) return false;
        i += (size_t)n;
        s = a->next[(size_t)s * a->n_classes + ech_dfa_class_of(a, cp)];
        if (s == ECH_DFA_DEAD) return false;
    }
    return a->accepting[s];
}

/* ---- minimisation ---- */

/*
 * One round of refinement: states of a block part when their successors' blocks differ. The new
 * block of state s is the number of its (block, successors' blocks) signature.
 */
static uint32_t refine_blocks(const ech_dfa *const a, const uint32_t *const block,
                              uint32_t *const ret_block, uint32_t *const slots, const uint32_t cap)
{
    uint32_t n = 0;
    memset(slots, 0, cap * sizeof *slots);
    for (uint32_t s = 0; s < a->n_states; s++) {
        const uint32_t *const row = a->next + (size_t)s * a->n_classes;
        uint64_t h = block[s] + 1;
        for (uint32_t c = 0; c < a->n_classes; c++) {
            h = ech_hash_step(h, row[c] == ECH_DFA_DEAD ? UINT32_MAX : block[row[c]]);
        }
        uint32_t slot = (uint32_t)h & (cap - 1);
        for (; slots[slot] != 0; slot = (slot + 1) & (cap - 1)) {
            const uint32_t t = slots[slot] - 1; /* the first state of its new block */
            const uint32_t *const other = a->next + (size_t)t * a->n_classes;
            bool same = block[t] == block[s];
            for (uint32_t c = 0; same && c < a->n_classes; c++) {
                const uint32_t x = row[c], y = other[c];
                same = x == y || (x != ECH_DFA_DEAD && y != ECH_DFA_DEAD && block[x] == block[y]);
            }
            if (same) break;
        }
        if (slots[slot] == 0) {
            slots[slot] = s + 1;
            ret_block[s] = n++;
        } else {
            ret_block[s] = ret_block[slots[slot] - 1];
        }
    }
    return n;
}

/* Every state of a block writes the same row, so whichever comes last may stay. */
static ech_dfa *quotient(const ech_dfa *const a, const uint32_t *const block, const uint32_t n)
{
    ech_dfa *out = calloc(1, sizeof *out);
    if (out == NULL) return NULL;
    out->next = malloc((size_t)n * a->n_classes * sizeof *out->next);
    out->accepting = malloc(n);
    if (!copy_segments(out, a) || out->next == NULL || out->accepting == NULL) {
        ech_dfa_free(&out);
        return NULL;
    }
    out->n_states = n;
    for (uint32_t s = 0; s < a->n_states; s++) {
        out->accepting[block[s]] = a->accepting[s];
        for (uint32_t c = 0; c < a->n_classes; c++) {
            const uint32_t to = a->next[(size_t)s * a->n_classes + c];
            out->next[(size_t)block[s] * a->n_classes + c] =
                to == ECH_DFA_DEAD ? ECH_DFA_DEAD : block[to];
        }
    }
    return out;
}

/*
 * Moore's algorithm with a hash for the signatures. Blocks are numbered by their first state, and
 * the start is state 0, so it is state 0 of the result too. cap is at least twice n_states, so a
 * probe always finds an empty slot.
 */
ech_status ech_dfa_minimize(const ech_dfa *const a, ech_dfa **const ret_dfa, ech_error *const err)
{
    uint32_t cap = 16;
    while (cap < a->n_states * 2)
        cap *= 2;
    uint32_t *block = malloc(a->n_states * sizeof *block);
    uint32_t *next = malloc(a->n_states * sizeof *next);
    uint32_t *const slots = malloc(cap * sizeof *slots);
    ech_dfa *out = NULL;
    if (block != NULL && next != NULL && slots != NULL) {
        for (uint32_t s = 0; s < a->n_states; s++)
            block[s] = a->accepting[s];
        /* Chains of counts need a round per state and gain nothing: hence the bound on rounds. */
        uint32_t n = 0, rounds = 0, before = UINT32_MAX;
        while (n != before && rounds++ < 64) {
            before = n;
            n = refine_blocks(a, block, next, slots, cap);
            uint32_t *const t = block;
            block = next;
            next = t;
        }
        if (n != before) {
            for (uint32_t s = 0; s < a->n_states; s++)
                block[s] = s;
            n = a->n_states;
        }
        out = quotient(a, block, n);
    }
    free(block);
    free(next);
    free(slots);
    if (out == NULL) return ech_dfa_fail(ECH_ENOMEM, err);
    *ret_dfa = out;
    return ECH_OK;
}

/* ---- to an expression ---- */

/*
 * Expressions of sets of classes that were met before: a set is a slice of lists. The states of an
 * automaton use few different ones, and writing one out can be a thousand nodes.
 */
typedef struct spelled {
    uint32_t first, n; /* in lists */
    ech_cx expr;
} spelled;

typedef struct speller {
    ech_cx_graph *g;
    const ech_dfa *dfa;
    ech_spelling how;
    spelled *known;
    uint32_t n_known, cap_known;
    uint32_t *lists;
    uint32_t n_lists, cap_lists;
} speller;

static ech_cx spell_classes(const speller *const sp, const uint32_t *const classes,
                            const uint32_t n)
{
    const ech_dfa *const a = sp->dfa;
    ech_cset set = { 0 };
    for (uint32_t i = 0; i < a->n_segs; i++) {
        bool is_in = false;
        for (uint32_t k = 0; k < n && !is_in; k++)
            is_in = a->seg_class[i] == classes[k];
        if (!is_in) continue;
        ech_cset_add(&set, a->seg_first[i],
                     i + 1 < a->n_segs ? a->seg_first[i + 1] - 1 : ECH_CP_MAX);
    }
    ech_cset_tidy(&set);
    /* By reference: every edge would get a copy otherwise. */
    const ech_cx out = ech_cx_shared(sp->g, ech_cx_chars(sp->g, &set, sp->how));
    ech_cset_fini(&set);
    return out;
}

/*
 * The expression of lists[first .. n_lists); the slice is kept if it is new. A linear search: the
 * sets are few, and the slice just written is taken back when it was known.
 */
static ech_cx spell_last(speller *const sp, const uint32_t first)
{
    const uint32_t n = sp->n_lists - first;
    for (uint32_t i = 0; i < sp->n_known; i++) {
        const spelled *const k = &sp->known[i];
        if (k->n == n &&
            memcmp(sp->lists + k->first, sp->lists + first, n * sizeof *sp->lists) == 0) {
            sp->n_lists = first;
            return k->expr;
        }
    }
    const ech_cx expr = spell_classes(sp, sp->lists + first, n);
    if (!ECH_VEC_GROW(sp->known, sp->cap_known, sp->n_known, 1)) return ECH_CX_FAIL;
    sp->known[sp->n_known++] = (spelled){ first, n, expr };
    return expr;
}

/*
 * The classes with the same successor of state s become one edge. An edge per successor and not per
 * class keeps programs small: inside a string nearly all classes lead to the same state.
 */
static bool add_edges(speller *const sp, const uint32_t s, ech_cx_auto *const m,
                      uint32_t *const cap)
{
    const uint32_t n = sp->dfa->n_classes;
    const uint32_t *const row = sp->dfa->next + (size_t)s * n;
    for (uint32_t c = 0; c < n; c++) {
        bool is_first = row[c] != ECH_DFA_DEAD;
        for (uint32_t d = 0; d < c && is_first; d++)
            is_first = row[d] != row[c];
        if (!is_first) continue;
        if (!ECH_VEC_GROW(sp->lists, sp->cap_lists, sp->n_lists, n) ||
            !ECH_VEC_GROW(m->edges, *cap, m->n_edges, 1)) {
            return false;
        }
        const uint32_t first = sp->n_lists;
        for (uint32_t d = c; d < n; d++) {
            if (row[d] == row[c]) sp->lists[sp->n_lists++] = d;
        }
        m->edges[m->n_edges++] = (ech_cx_edge){ s, row[c], spell_last(sp, first) };
    }
    return true;
}

/*
 * Edges come out sorted by their from, which is what the emitter of programs relies on. The graph
 * takes over m's arrays, in the error case too.
 */
ech_cx ech_dfa_expr(ech_cx_graph *const g, const ech_dfa *const a, const ech_spelling how)
{
    ech_cx_auto m = { .n_states = a->n_states, .accepting = malloc(a->n_states) };
    speller sp = { .g = g, .dfa = a, .how = how };
    uint32_t cap = 0;
    bool ok = m.accepting != NULL;
    if (ok) memcpy(m.accepting, a->accepting, a->n_states);
    for (uint32_t s = 0; s < a->n_states && ok && g->rc == ECH_OK; s++) {
        ok = add_edges(&sp, s, &m, &cap);
    }
    free(sp.known);
    free(sp.lists);
    if (!ok && g->rc == ECH_OK) g->rc = ECH_ENOMEM;
    return ech_cx_auto_new(g, m);
}
