/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a program out. Instructions are emitted from the end: emit(node, next) gives the entry
 * of node such that next follows it. The same node with the same continuation is emitted once, so
 * what expressions share stays shared where it ends alike.
 *
 * The walk recurses as deep as expressions nest (not as long as they are); MAX_NESTING bounds it,
 * and the sources bound their own nesting far below that.
 *
 * Invariants of a finished program: every address is below n_instrs; BYTE's sets and class_of speak
 * of the same classes; what can't match is left out or leads to ECH_PC_DEAD. Runs on the compiling
 * thread; what fails sets e->rc and every later call does nothing.
 *
 * Left out: what is productive or nullable (constraint_facts.c), and running
 * (constraint_machine.c).
 */
#include "src/text/constraint_program.h"

#define MAX_NESTING     6000
#define MAX_HEIGHT_WORK UINT64_C(200000000) /* instructions looked at, about a second */

/* One entry of the memo: emit(node, next) gave pc. */
typedef struct emitted {
    ech_cx node;
    uint32_t next, pc;
} emitted;

typedef struct emitter {
    const ech_cx_graph *g;
    const ech_cx_facts *facts;
    ech_program *p;
    uint32_t max_instrs;
    emitted *memo;
    uint32_t n_memo, cap_memo;
    ech_index index;
    struct {
        uint32_t *pairs; /* instruction, stand-in */
        uint32_t n, cap;
    } rough[ECH_CX_REACHES];
    int depth;
    ech_status rc;
} emitter;

static uint32_t add_instr(emitter *const e, const ech_op op, const uint32_t a, const uint32_t b)
{
    ech_program *const p = e->p;
    if (e->rc == ECH_OK && p->n_instrs >= e->max_instrs) e->rc = ECH_ELIMIT;
    if (e->rc == ECH_OK && !ECH_VEC_GROW(p->instrs, p->cap_instrs, p->n_instrs, 1)) {
        e->rc = ECH_ENOMEM;
    }
    if (e->rc != ECH_OK) return ECH_PC_DEAD;
    p->instrs[p->n_instrs] = (ech_instr){ op, a, b };
    return p->n_instrs++;
}

/*
 * Makes instruction pc a SPLIT of the targets. Lists are bounded beside the instructions, since one
 * SPLIT may have as many targets as it likes.
 */
static void set_split(emitter *const e, const uint32_t pc, const uint32_t *const targets,
                      const uint32_t n)
{
    ech_program *const p = e->p;
    if (e->rc == ECH_OK && p->n_lists + (uint64_t)n > (uint64_t)e->max_instrs * 4) {
        e->rc = ECH_ELIMIT;
    }
    if (e->rc == ECH_OK && !ECH_VEC_GROW(p->lists, p->cap_lists, p->n_lists, n)) {
        e->rc = ECH_ENOMEM;
    }
    if (e->rc != ECH_OK) return;
    if (n > 0) memcpy(p->lists + p->n_lists, targets, n * sizeof *targets);
    p->instrs[pc] = (ech_instr){ ECH_OP_SPLIT, p->n_lists, n };
    p->n_lists += n;
}

static uint32_t add_split(emitter *const e, const uint32_t *const targets, const uint32_t n)
{
    const uint32_t pc = add_instr(e, ECH_OP_SPLIT, 0, 0);
    set_split(e, pc, targets, n);
    return pc;
}

/* ---- what was emitted before ---- */

static uint64_t hash_emitted(const void *const owner, const uint32_t idx)
{
    const emitted *const m = &((const emitter *)owner)->memo[idx];
    return ech_hash_step(ech_hash_step(3, m->node), m->next);
}

/*
 * An expression is emitted once for each place it goes on at: the pair (node, next) is the key.
 * Graphs share nodes freely, and without this a doubly shared chain would be written out 2^n times.
 */
static bool find_emitted(const emitter *const e, const ech_cx node, const uint32_t next,
                         uint32_t *const ret_pc)
{
    if (e->index.cap == 0) return false;
    const uint32_t mask = e->index.cap - 1;
    uint32_t s = (uint32_t)ech_hash_step(ech_hash_step(3, node), next) & mask;
    for (; e->index.slots[s] != 0; s = (s + 1) & mask) {
        const emitted *const m = &e->memo[e->index.slots[s] - 1];
        if (m->node != node || m->next != next) continue;
        *ret_pc = m->pc;
        return true;
    }
    return false;
}

static void remember(emitter *const e, const ech_cx node, const uint32_t next, const uint32_t pc)
{
    if (e->rc != ECH_OK) return;
    if (!ECH_VEC_GROW(e->memo, e->cap_memo, e->n_memo, 1) ||
        !ech_index_reserve(&e->index, hash_emitted, e)) {
        e->rc = ECH_ENOMEM;
        return;
    }
    e->memo[e->n_memo] = (emitted){ node, next, pc };
    const uint32_t mask = e->index.cap - 1;
    uint32_t s = (uint32_t)hash_emitted(e, e->n_memo) & mask;
    while (e->index.slots[s] != 0)
        s = (s + 1) & mask;
    e->index.slots[s] = ++e->n_memo;
    e->index.used++;
}

/* ---- emission ---- */

static uint32_t emit(emitter *e, ech_cx node, uint32_t next);

/*
 * Branches that match no text are left out here, so the machine never has items that lead nowhere.
 */
static uint32_t emit_alt(emitter *const e, const ech_cx_node n, const uint32_t next)
{
    uint32_t *const targets = malloc(n.b * sizeof *targets);
    if (targets == NULL) {
        e->rc = ECH_ENOMEM;
        return ECH_PC_DEAD;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < n.b && e->rc == ECH_OK; i++) {
        const ech_cx kid = e->g->kids[n.a + i];
        if (e->facts->productive[kid]) targets[count++] = emit(e, kid, next);
    }
    const uint32_t pc = count == 1 ? targets[0] : add_split(e, targets, count);
    free(targets);
    return pc;
}

/* The SPLIT is made first and filled last, because the body has to come back to it. */
static uint32_t emit_star(emitter *const e, const ech_cx body, const bool at_least_one,
                          const uint32_t next)
{
    const uint32_t loop = add_instr(e, ECH_OP_SPLIT, 0, 0);
    const uint32_t targets[2] = { emit(e, body, loop), next };
    set_split(e, loop, targets, 2);
    return at_least_one ? targets[0] : loop;
}

/*
 * A body that may match nothing satisfies any minimum at once, so its min is written as 0: rounds
 * that read nothing need not be counted (see at_loop_end in the machine). ENTER is emitted last,
 * the loop's body before it, and body is filled in afterwards, since NEXT refers to the loop by its
 * number.
 */
static uint32_t emit_counted(emitter *const e, const ech_cx_node n, const uint32_t next)
{
    ech_program *const p = e->p;
    if (!ECH_VEC_GROW(p->loops, p->cap_loops, p->n_loops, 1)) {
        e->rc = ECH_ENOMEM;
        return ECH_PC_DEAD;
    }
    const uint32_t loop = p->n_loops++;
    const bool nullable = e->facts->nullable[n.a];
    p->loops[loop] =
        (ech_loop){ .min = nullable ? 0 : n.b, .max = n.c, .exit = next, .is_nullable = nullable };
    const uint32_t body = emit(e, n.a, add_instr(e, ECH_OP_NEXT, loop, 0));
    p->loops[loop].body = body;
    return add_instr(e, ECH_OP_ENTER, loop, 0);
}

/* x*, x+ and x? need no count; only what is left gets a frame with one. */
static uint32_t emit_repeat(emitter *const e, const ech_cx_node n, const uint32_t next)
{
    if (!e->facts->productive[n.a]) return n.b == 0 ? next : ECH_PC_DEAD;
    if (n.b <= 1 && n.c == ECH_CX_INF) return emit_star(e, n.a, n.b == 1, next);
    if (n.b == 0 && n.c == 1) {
        const uint32_t targets[2] = { emit(e, n.a, next), next };
        return add_split(e, targets, 2);
    }
    return emit_counted(e, n, next);
}

/* Pairs (pc, stand-in) are collected, since n_instrs isn't known before the last emission. */
static void add_stand_in(emitter *const e, const int reach, const uint32_t pc, const uint32_t other)
{
    if (pc == other || e->rc != ECH_OK) return;
    if (!ECH_VEC_GROW(e->rough[reach].pairs, e->rough[reach].cap, e->rough[reach].n, 2)) {
        e->rc = ECH_ENOMEM;
        return;
    }
    e->rough[reach].pairs[e->rough[reach].n++] = pc;
    e->rough[reach].pairs[e->rough[reach].n++] = other;
}

/*
 * Stand-ins of an automaton's states, and of single bytes on the way to a state. What waits inside
 * a rule on an edge has the state's address in its frame.
 */
static void add_stand_ins(emitter *const e, const ech_cx_auto *const m, const uint32_t *const pcs)
{
    for (int k = 0; k < ECH_CX_REACHES; k++) {
        const uint32_t *const rough = m->rough[k];
        if (rough == NULL) continue;
        for (uint32_t s = 0; s < m->n_states; s++)
            add_stand_in(e, k, pcs[s], pcs[rough[s]]);
        for (uint32_t i = 0; i < m->n_edges && e->rc == ECH_OK; i++) {
            const ech_cx_edge *const edge = &m->edges[i];
            if (e->g->nodes[edge->expr].kind != ECH_CX_KIND_SET) continue;
            add_stand_in(e, k, emit(e, edge->expr, pcs[edge->to]),
                         emit(e, edge->expr, pcs[rough[edge->to]]));
        }
    }
}

/*
 * Every state is a SPLIT over its edges, and over next where it accepts. Edges are sorted by their
 * from, so one index walks them beside the states.
 */
static uint32_t emit_auto(emitter *const e, const ech_cx_auto *const m, const uint32_t next)
{
    uint32_t *const pcs = malloc(m->n_states * sizeof *pcs);
    uint32_t *const targets = malloc(((size_t)m->n_edges + 1) * sizeof *targets);
    if (pcs == NULL || targets == NULL) e->rc = ECH_ENOMEM;
    for (uint32_t s = 0; e->rc == ECH_OK && s < m->n_states; s++) {
        pcs[s] = add_instr(e, ECH_OP_SPLIT, 0, 0);
    }
    for (uint32_t s = 0, i = 0; e->rc == ECH_OK && s < m->n_states; s++) {
        uint32_t n = 0;
        for (; i < m->n_edges && m->edges[i].from == s; i++) {
            targets[n++] = emit(e, m->edges[i].expr, pcs[m->edges[i].to]);
        }
        if (m->accepting[s]) targets[n++] = next;
        set_split(e, pcs[s], targets, n);
    }
    if (e->rc == ECH_OK) add_stand_ins(e, m, pcs);
    const uint32_t start = e->rc == ECH_OK ? pcs[0] : ECH_PC_DEAD;
    free(pcs);
    free(targets);
    return start;
}

/* Everything is emitted back to front: what comes after is known before what comes first. */
static uint32_t emit_new(emitter *const e, const ech_cx node, const uint32_t next)
{
    const ech_cx_node n = e->g->nodes[node];
    uint32_t at = next;
    switch ((ech_cx_kind)n.kind) {
    case ECH_CX_KIND_SET:
        return add_instr(e, ECH_OP_BYTE, n.a, next);
    case ECH_CX_KIND_SEQ:
        for (uint32_t i = n.b; i > 0 && e->rc == ECH_OK; i--) {
            at = emit(e, e->g->kids[n.a + i - 1], at);
        }
        return at;
    case ECH_CX_KIND_ALT:
        return emit_alt(e, n, next);
    case ECH_CX_KIND_REPEAT:
        return emit_repeat(e, n, next);
    case ECH_CX_KIND_REF:
        /* A rule with a role must leave its frame on the stack, so it is no tail call. */
        if (e->g->rules[n.a].role != ECH_ROLE_NONE && next == ECH_PC_RET) {
            at = add_split(e, &next, 1);
        }
        return add_instr(e, ECH_OP_CALL, n.a, at);
    case ECH_CX_KIND_AUTO:
        return emit_auto(e, &e->g->autos[n.a], next);
    default:
        return ECH_PC_DEAD;
    }
}

/*
 * MAX_NESTING guards the C stack against expressions nested by a client's schema; the depth counts
 * nodes, not instructions.
 */
static uint32_t emit(emitter *const e, const ech_cx node, const uint32_t next)
{
    if (node == ECH_CX_EMPTY) return next;
    if (e->rc != ECH_OK || !e->facts->productive[node]) return ECH_PC_DEAD;
    uint32_t pc = ECH_PC_DEAD;
    if (find_emitted(e, node, next, &pc)) return pc;
    if (e->depth >= MAX_NESTING) {
        e->rc = ECH_ELIMIT;
        return ECH_PC_DEAD;
    }
    e->depth++;
    pc = emit_new(e, node, next);
    e->depth--;
    remember(e, node, next, pc);
    return pc;
}

/* ---- byte classes ---- */

/*
 * Cuts the bytes into classes such that every set is a union of them, then renames the sets.
 * Partition refinement over 256 bytes, one set at a time: a class that lies partly in the set loses
 * its members in the set to a new class. n stays at most 256, since every class has a byte. Rows of
 * the machine have n_classes cells instead of 256.
 */
static void make_classes(ech_program *const p)
{
    unsigned n = 1;
    for (uint32_t s = 0; s < p->n_sets; s++) {
        int renamed[256]; /* the class of a class's members that are in the set */
        memset(renamed, -1, sizeof renamed);
        unsigned outside[256] = { 0 };
        for (unsigned b = 0; b < 256; b++) {
            outside[p->class_of[b]] += !ech_byteset_has(&p->sets[s], b);
        }
        for (unsigned b = 0; b < 256; b++) {
            const unsigned c = p->class_of[b];
            if (!ech_byteset_has(&p->sets[s], b) || (renamed[c] < 0 && outside[c] == 0)) continue;
            if (renamed[c] < 0) renamed[c] = (int)n++;
            p->class_of[b] = (uint8_t)renamed[c];
        }
    }
    p->n_classes = n;
    for (unsigned b = 0; b < 256; b++)
        p->byte_of[p->class_of[b]] = (uint8_t)b;
    for (uint32_t s = 0; s < p->n_sets; s++) {
        ech_byteset classes = { { 0 } };
        for (unsigned c = 0; c < n; c++) {
            if (ech_byteset_has(&p->sets[s], p->byte_of[c])) ech_byteset_add(&classes, c, c);
        }
        p->sets[s] = classes;
    }
}

/* ---- heights ---- */

static uint16_t max_height(const uint16_t a, const uint16_t b)
{
    return a > b ? a : b;
}

/*
 * One step of the fixed point: how many counted calls must be open at once to get from pc to its
 * RET, on the cheapest way. NEVER stays where no way fits into max_depth.
 */
static uint16_t height_of(const ech_program *const p, const uint32_t pc)
{
    const ech_instr *const i = &p->instrs[pc];
    const uint16_t *const h = p->height;
    uint16_t best = ECH_HEIGHT_NEVER;
    switch ((ech_op)i->op) {
    case ECH_OP_RET:
    case ECH_OP_EXIT:
        return 0;
    case ECH_OP_BYTE:
        return h[i->b];
    case ECH_OP_SPLIT:
        for (uint32_t k = 0; k < i->b; k++) {
            if (h[p->lists[i->a + k]] < best) best = h[p->lists[i->a + k]];
        }
        return best;
    case ECH_OP_CALL: {
        const uint32_t entry = (uint32_t)h[p->rule_entry[i->a]] + p->rule_nest[i->a];
        if (entry > p->max_depth) return ECH_HEIGHT_NEVER;
        return max_height((uint16_t)entry, h[i->b]);
    }
    case ECH_OP_ENTER: {
        const ech_loop *const l = &p->loops[i->a];
        return l->min == 0 ? h[l->exit] : max_height(h[l->body], h[l->exit]);
    }
    case ECH_OP_NEXT:
        /* Another round needs no more than the first did, which ENTER has answered for. */
        return h[p->loops[i->a].exit];
    }
    return best;
}

/*
 * Lowers heights to their least fixed point, up and down in turn. Heights only fall, from NEVER on,
 * so this ends; alternating the direction makes chains that run against the numbering settle in few
 * rounds. MAX_HEIGHT_WORK bounds what a hostile grammar can cost. NULL when no rule counts: then
 * nothing can be too deep and the machine skips the check.
 */
static ech_status find_heights(ech_program *const p)
{
    bool counts = false;
    for (uint32_t r = 0; r < p->n_rules; r++)
        counts |= p->rule_nest[r] != 0;
    if (!counts) return ECH_OK;
    p->height = malloc(p->n_instrs * sizeof *p->height);
    if (p->height == NULL) return ECH_ENOMEM;
    memset(p->height, 0xFF, p->n_instrs * sizeof *p->height);
    bool changed = true;
    uint64_t work = 0;
    for (int round = 0; changed; round++) {
        changed = false;
        work += p->n_instrs;
        if (work > MAX_HEIGHT_WORK) return ECH_ELIMIT;
        for (uint32_t i = 0; i < p->n_instrs; i++) {
            const uint32_t pc = round % 2 == 0 ? i : p->n_instrs - 1 - i;
            const uint16_t h = height_of(p, pc);
            changed |= h != p->height[pc];
            p->height[pc] = h;
        }
    }
    return ECH_OK;
}

/* ---- all of it ---- */

static ech_status place_stand_ins(const emitter *const e)
{
    ech_program *const p = e->p;
    for (int k = 0; k < ECH_CX_REACHES; k++) {
        if (e->rough[k].n == 0) continue;
        p->rough[k] = malloc(p->n_instrs * sizeof *p->rough[k]);
        if (p->rough[k] == NULL) return ECH_ENOMEM;
        for (uint32_t pc = 0; pc < p->n_instrs; pc++)
            p->rough[k][pc] = pc;
        for (uint32_t i = 0; i < e->rough[k].n; i += 2) {
            p->rough[k][e->rough[k].pairs[i]] = e->rough[k].pairs[i + 1];
        }
    }
    return ECH_OK;
}

/*
 * The first three instructions have fixed addresses: ECH_PC_RET, ECH_PC_DEAD (a SPLIT of nothing)
 * and ECH_PC_EXIT. A CALL names its rule and not an address, so rules may refer to later ones.
 */
static ech_status emit_rules(emitter *const e, const ech_cx root)
{
    ech_program *const p = e->p;
    p->n_rules = e->g->n_rules;
    p->rule_entry = calloc((size_t)p->n_rules + 1, sizeof *p->rule_entry);
    p->rule_nest = calloc((size_t)p->n_rules + 1, 1);
    p->rule_role = calloc((size_t)p->n_rules + 1, 1);
    p->n_sets = e->g->n_sets;
    p->sets = malloc(((size_t)p->n_sets + 1) * sizeof *p->sets);
    if (p->rule_entry == NULL || p->rule_nest == NULL || p->rule_role == NULL || p->sets == NULL) {
        return ECH_ENOMEM;
    }
    if (p->n_sets > 0) memcpy(p->sets, e->g->sets, p->n_sets * sizeof *p->sets);
    (void)add_instr(e, ECH_OP_RET, 0, 0);
    (void)add_instr(e, ECH_OP_SPLIT, 0, 0);
    (void)add_instr(e, ECH_OP_EXIT, 0, 0);
    for (uint32_t r = 0; r < p->n_rules && e->rc == ECH_OK; r++) {
        p->rule_entry[r] = emit(e, e->g->rules[r].expr, ECH_PC_RET);
        p->rule_nest[r] = e->g->rules[r].is_nest;
        p->rule_role[r] = e->g->rules[r].role;
    }
    p->start = emit(e, root, ECH_PC_RET);
    return e->rc;
}

static ech_status build_fail(const ech_status rc, const uint32_t max_instrs, ech_error *const err)
{
    if (rc == ECH_ELIMIT) {
        return ech_fail(err, rc,
                        "compiling a constraint: its automaton has more than %u states, "
                        "simplify it or raise max_states",
                        max_instrs);
    }
    return ech_fail(err, rc, "compiling a constraint: out of memory");
}

ech_status ech_program_build(const ech_cx_graph *const g, const ech_cx root,
                             const uint32_t max_instrs, const uint32_t max_depth,
                             ech_program *const ret_program, uint32_t *const ret_rule,
                             ech_error *const err)
{
    ech_cx_facts facts = { NULL, NULL };
    ECH_TRY(ech_cx_analyse(g, root, &facts, ret_rule, err));
    if (!facts.productive[root]) {
        ech_cx_facts_fini(&facts);
        return ech_fail(err, ECH_EINVAL, "compiling a constraint: no text satisfies it");
    }
    /*
     * Heights are 16 bits and UINT16_MAX means never: the limit stays below, to keep the two apart.
     */
    ech_program p = { .max_depth = max_depth < 60000 ? max_depth : 60000 };
    emitter e = { .g = g, .facts = &facts, .p = &p, .max_instrs = max_instrs };
    ech_status rc = emit_rules(&e, root);
    ech_cx_facts_fini(&facts);
    free(e.memo);
    ech_index_fini(&e.index);
    if (rc == ECH_OK) rc = place_stand_ins(&e);
    for (int k = 0; k < ECH_CX_REACHES; k++)
        free(e.rough[k].pairs);
    if (rc == ECH_OK) rc = find_heights(&p);
    if (rc != ECH_OK) {
        ech_program_fini(&p);
        return build_fail(rc, max_instrs, err);
    }
    if (p.height != NULL && p.height[p.start] > p.max_depth) {
        ech_program_fini(&p);
        return ech_fail(err, ECH_EINVAL,
                        "compiling a constraint: every text that satisfies it "
                        "nests more than %u deep, raise max_depth",
                        max_depth);
    }
    /* Last: BYTE and the sets are read as bytes until here, as classes from here on. */
    make_classes(&p);
    *ret_program = p;
    return ECH_OK;
}

void ech_program_fini(ech_program *const p)
{
    free(p->instrs);
    free(p->lists);
    free(p->loops);
    free(p->rule_entry);
    free(p->rule_nest);
    free(p->rule_role);
    free(p->height);
    for (int k = 0; k < ECH_CX_REACHES; k++)
        free(p->rough[k]);
    free(p->sets);
    *p = (ech_program){ 0 };
}
