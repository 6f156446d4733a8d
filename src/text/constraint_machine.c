/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running programs. Invariants: frames and configs are equal exactly if their numbers are; every
 * item waits at a BYTE instruction, but for the one that says that the text may end, which is
 * (RET, empty stack); and every item can be finished within the depth limit, because an item whose
 * stack leaves too few levels for its instruction's height is dropped when it is found.
 *
 * The three layers of numbers: a frame is interned by (below, tag, value), so two equal stacks have
 * one number and comparing stacks is comparing integers; a config is interned by its sorted items;
 * a row holds, for each class of bytes, the config that follows. Frame 0 is the empty stack and
 * config 0 the dead one; indices that may be missing (next, mask, local) are kept plus one, so that
 * a zeroed config has none of them.
 *
 * Errors are sticky: a step that runs out of memory or room sets rc and returns DEAD, and
 * everything after it does nothing until the caller has looked at rc and cleared it. DEAD with rc
 * set says nothing about the text.
 *
 * Left out: which tokens the steps belong to (constraint_mask.c), locking and phases
 * (constraint.c).
 */
#include "src/text/constraint_machine.h"

#define UNKNOWN UINT32_MAX

ech_status ech_machine_init(ech_machine *const m, const ech_program *const program,
                            const uint32_t reach[ECH_CX_REACHES], const size_t max_bytes)
{
    const uint32_t near = reach[0], far = reach[1]; /* reach may be m's own */
    *m = (ech_machine){ .program = program, .reach = { near, far }, .max_bytes = max_bytes };
    m->cap_seen = 256;
    m->seen = calloc(m->cap_seen, sizeof *m->seen);
    m->seen_round = calloc(m->cap_seen, sizeof *m->seen_round);
    if (m->seen == NULL || m->seen_round == NULL || !ECH_VEC_GROW(m->frames, m->cap_frames, 0, 1) ||
        !ECH_VEC_GROW(m->configs, m->cap_configs, 0, 1)) {
        ech_machine_fini(m);
        return ECH_ENOMEM;
    }
    m->frames[0] = (ech_frame){ 0 };
    m->n_frames = 1;
    m->configs[ECH_CONFIG_DEAD] = (ech_config){ .n = 0 };
    m->n_configs = 1;
    return ECH_OK;
}

void ech_machine_fini(ech_machine *const m)
{
    free(m->frames);
    free(m->items);
    free(m->configs);
    free(m->rows);
    free(m->work);
    free(m->found);
    free(m->seen);
    free(m->seen_round);
    free(m->fresh);
    ech_index_fini(&m->frame_index);
    ech_index_fini(&m->config_index);
    *m = (ech_machine){ 0 };
}

/*
 * What the caches hold, for the limit; 8 is a slot of an index at its usual load. Capacity that is
 * not used yet is not counted.
 */
size_t ech_machine_bytes(const ech_machine *const m)
{
    return m->n_frames * (sizeof *m->frames + 8) + m->n_items * sizeof *m->items +
           m->n_configs * (sizeof *m->configs + 8) +
           (size_t)m->n_rows * m->program->n_classes * sizeof *m->rows;
}

/*
 * Sets rc when there is no room for more. Asked before each frame, config and row, so the machine
 * passes max_bytes by one of them at most.
 */
static bool has_room(ech_machine *const m)
{
    if (m->rc == ECH_OK && ech_machine_bytes(m) > m->max_bytes) m->rc = ECH_ELIMIT;
    return m->rc == ECH_OK;
}

/* ---- frames ---- */

static uint64_t hash_frame(const uint32_t below, const uint32_t tag, const uint32_t value)
{
    return ech_hash_step(ech_hash_step(ech_hash_step(5, below), tag), value);
}

static uint64_t hash_frame_at(const void *const owner, const uint32_t idx)
{
    const ech_frame *const f = &((const ech_machine *)owner)->frames[idx];
    return hash_frame(f->below, f->tag, f->value);
}

/*
 * nest is a function of the other three fields (the stack below and the rule called), so it is not
 * part of the key.
 */
static uint32_t intern_frame(ech_machine *const m, const uint32_t below, const uint32_t tag,
                             const uint32_t value, const uint32_t nest)
{
    if (!ech_index_reserve(&m->frame_index, hash_frame_at, m) ||
        !ECH_VEC_GROW(m->frames, m->cap_frames, m->n_frames, 1)) {
        m->rc = ECH_ENOMEM;
        return 0;
    }
    const uint32_t mask = m->frame_index.cap - 1;
    uint32_t s = (uint32_t)hash_frame(below, tag, value) & mask;
    for (; m->frame_index.slots[s] != 0; s = (s + 1) & mask) {
        const uint32_t idx = m->frame_index.slots[s] - 1;
        const ech_frame *const f = &m->frames[idx];
        if (f->below == below && f->tag == tag && f->value == value) return idx;
    }
    if (!has_room(m)) return 0;
    m->frames[m->n_frames] = (ech_frame){ below, tag, value, nest, { 0 } };
    m->frame_index.slots[s] = m->n_frames + 1;
    m->frame_index.used++;
    return m->n_frames++;
}

/* ---- configs ---- */

static uint64_t hash_items(const ech_item *const items, const uint32_t n)
{
    uint64_t h = 11;
    for (uint32_t i = 0; i < n; i++) {
        h = ech_hash_step(h, (uint64_t)items[i].pc << 32 | items[i].stack);
    }
    return h;
}

static uint64_t hash_config_at(const void *const owner, const uint32_t idx)
{
    const ech_machine *const m = owner;
    return hash_items(m->items + m->configs[idx].first, m->configs[idx].n);
}

static int compare_items(const void *const x, const void *const y)
{
    const ech_item *const a = x, *const b = y;
    if (a->pc != b->pc) return (a->pc > b->pc) - (a->pc < b->pc);
    return (a->stack > b->stack) - (a->stack < b->stack);
}

/*
 * Most configs have a handful of items, where an insertion sort beats the call to qsort. The order
 * makes equal sets equal arrays; it has no other meaning, but that RET (pc 0) comes first.
 */
static void sort_items(ech_item *const items, const uint32_t n)
{
    if (n > 16) {
        qsort(items, n, sizeof *items, compare_items);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        const ech_item x = items[i];
        uint32_t k = i;
        for (; k > 0 && compare_items(&items[k - 1], &x) > 0; k--)
            items[k] = items[k - 1];
        items[k] = x;
    }
}

/* ech_item has no padding (two uint32_t), so memcmp compares exactly the fields. */
uint32_t ech_machine_config_of_found(ech_machine *const m)
{
    if (m->rc != ECH_OK || m->n_found == 0) return ECH_CONFIG_DEAD;
    sort_items(m->found, m->n_found);
    if (!ech_index_reserve(&m->config_index, hash_config_at, m) ||
        !ECH_VEC_GROW(m->configs, m->cap_configs, m->n_configs, 1) ||
        !ECH_VEC_GROW(m->items, m->cap_items, m->n_items, m->n_found)) {
        m->rc = ECH_ENOMEM;
        return ECH_CONFIG_DEAD;
    }
    const uint32_t mask = m->config_index.cap - 1;
    uint32_t s = (uint32_t)hash_items(m->found, m->n_found) & mask;
    for (; m->config_index.slots[s] != 0; s = (s + 1) & mask) {
        const uint32_t idx = m->config_index.slots[s] - 1;
        const ech_config *const c = &m->configs[idx];
        if (c->n == m->n_found &&
            memcmp(m->items + c->first, m->found, c->n * sizeof *m->found) == 0) {
            return idx;
        }
    }
    if (!has_room(m)) return ECH_CONFIG_DEAD;
    memcpy(m->items + m->n_items, m->found, m->n_found * sizeof *m->found);
    m->configs[m->n_configs] =
        (ech_config){ .first = m->n_items, .n = m->n_found, .rough = { UNKNOWN, UNKNOWN } };
    m->n_items += m->n_found;
    m->config_index.slots[s] = m->n_configs + 1;
    m->config_index.used++;
    return m->n_configs++;
}

/* ---- following empty steps ---- */

/*
 * seen is not cleared: an entry counts only if its round is this step's, so beginning costs nothing
 * however large the table has grown.
 */
static void begin_step(ech_machine *const m)
{
    m->n_work = m->n_found = m->n_seen = m->n_fresh = 0;
    m->round++;
}

/* Doubles the table of pairs that were seen in this step. */
static bool grow_seen(ech_machine *const m)
{
    const uint32_t cap = m->cap_seen * 2;
    uint64_t *const seen = calloc(cap, sizeof *seen);
    uint32_t *const rounds = calloc(cap, sizeof *rounds);
    if (seen == NULL || rounds == NULL) {
        free(seen);
        free(rounds);
        m->rc = ECH_ENOMEM;
        return false;
    }
    for (uint32_t i = 0; i < m->cap_seen; i++) {
        if (m->seen_round[i] != m->round) continue;
        uint32_t s = (uint32_t)ech_hash_step(13, m->seen[i]) & (cap - 1);
        while (rounds[s] == m->round)
            s = (s + 1) & (cap - 1);
        seen[s] = m->seen[i];
        rounds[s] = m->round;
    }
    free(m->seen);
    free(m->seen_round);
    m->seen = seen;
    m->seen_round = rounds;
    m->cap_seen = cap;
    return true;
}

/*
 * Puts (pc, stack) on the list of what is to be followed, unless it was there in this step. Each
 * pair is followed once a step, which is what ends loops of empty steps (left to themselves, a rule
 * that may match nothing inside a star would run for ever). The limit on n_seen bounds the time of
 * one step for ambiguous grammars.
 */
static void push(ech_machine *const m, const uint32_t pc, const uint32_t stack)
{
    if (m->rc != ECH_OK || pc == ECH_PC_DEAD) return;
    if (m->n_seen * 2 >= m->cap_seen && !grow_seen(m)) return;
    const uint64_t key = (uint64_t)pc << 32 | stack;
    uint32_t s = (uint32_t)ech_hash_step(13, key) & (m->cap_seen - 1);
    for (; m->seen_round[s] == m->round; s = (s + 1) & (m->cap_seen - 1)) {
        if (m->seen[s] == key) return;
    }
    if (!ECH_VEC_GROW(m->work, m->cap_work, m->n_work, 1)) {
        m->rc = ECH_ENOMEM;
        return;
    }
    m->seen[s] = key;
    m->seen_round[s] = m->round;
    m->n_seen++;
    if (m->n_seen > ECH_MAX_ITEMS * 4) m->rc = ECH_ELIMIT;
    m->work[m->n_work++] = (ech_item){ pc, stack };
}

/*
 * Here dead ends of the depth limit are cut: height[pc] levels are still needed to finish from pc,
 * and an item that lacks them would lead the text into a place where every token is refused.
 */
static void add_item(ech_machine *const m, const uint32_t pc, const uint32_t stack)
{
    const ech_program *const p = m->program;
    if (p->height != NULL && m->frames[stack].nest + p->height[pc] > p->max_depth) return;
    if (m->n_found >= ECH_MAX_ITEMS)
        m->rc = ECH_ELIMIT;
    else if (!ECH_VEC_GROW(m->found, m->cap_found, m->n_found, 1))
        m->rc = ECH_ENOMEM;
    else
        m->found[m->n_found++] = (ech_item){ pc, stack };
}

/*
 * At the head of a loop that has done count rounds, with below the stack outside of it. The count
 * lives in the frame, so x{2,1000} costs a frame per round reached rather than a thousand copies of
 * x. Without a maximum, counts past min are one count, or an endless list would need endless
 * frames.
 */
static void at_loop_head(ech_machine *const m, const uint32_t loop, uint32_t count,
                         const uint32_t below)
{
    const ech_loop *const l = &m->program->loops[loop];
    if (l->max == ECH_CX_INF && count > l->min) count = l->min;
    if (count >= l->min) push(m, l->exit, below);
    if (count >= l->max) return;
    const uint32_t f = intern_frame(m, below, loop | ECH_FRAME_LOOP, count, m->frames[below].nest);
    if (l->is_nullable) {
        if (!ECH_VEC_GROW(m->fresh, m->cap_fresh, m->n_fresh, 1))
            m->rc = ECH_ENOMEM;
        else
            m->fresh[m->n_fresh++] = f;
    }
    push(m, l->body, f);
}

/*
 * One more round is done. A round that began in this very step has read nothing; counting it would
 * only waste counts, so it is dropped: the frames of nullable loops have min 0, and the place it
 * would lead to was reached when the round began.
 */
static void at_loop_end(ech_machine *const m, const uint32_t stack)
{
    const ech_frame f = m->frames[stack];
    const uint32_t loop = f.tag & ~ECH_FRAME_LOOP;
    if (m->program->loops[loop].is_nullable) {
        for (uint32_t i = 0; i < m->n_fresh; i++) {
            if (m->fresh[i] == stack) return;
        }
    }
    at_loop_head(m, loop, f.value + 1, f.below);
}

/*
 * A call whose next instruction is RET pushes nothing: tail calls keep right-recursive rules (lists
 * written as rules) at a constant depth.
 */
static void call(ech_machine *const m, const ech_instr *const i, const uint32_t stack)
{
    const ech_program *const p = m->program;
    if (i->b == ECH_PC_RET) {
        push(m, p->rule_entry[i->a], stack);
        return;
    }
    const uint32_t nest = m->frames[stack].nest + p->rule_nest[i->a];
    if (p->height != NULL && nest > p->max_depth) return;
    const uint32_t f = intern_frame(m, stack, i->b, i->a, nest);
    push(m, p->rule_entry[i->a], f);
}

/*
 * Follows everything on the list to the items it leads to. Depth first, with work as its stack; the
 * order doesn't matter, since the items are sorted afterwards.
 */
static void follow(ech_machine *const m)
{
    const ech_program *const p = m->program;
    while (m->n_work > 0 && m->rc == ECH_OK) {
        const ech_item at = m->work[--m->n_work];
        const ech_instr *const i = &p->instrs[at.pc];
        switch ((ech_op)i->op) {
        case ECH_OP_BYTE:
            add_item(m, at.pc, at.stack);
            break;
        case ECH_OP_RET:
            if (at.stack == 0)
                add_item(m, ECH_PC_RET, 0);
            else
                push(m, m->frames[at.stack].tag, m->frames[at.stack].below);
            break;
        case ECH_OP_SPLIT:
            for (uint32_t k = 0; k < i->b; k++)
                push(m, p->lists[i->a + k], at.stack);
            break;
        case ECH_OP_CALL:
            call(m, i, at.stack);
            break;
        case ECH_OP_ENTER:
            at_loop_head(m, i->a, 0, at.stack);
            break;
        case ECH_OP_NEXT:
            at_loop_end(m, at.stack);
            break;
        case ECH_OP_EXIT:
            add_item(m, ECH_PC_EXIT, 0);
            break;
        }
    }
}

uint32_t ech_machine_config_at(ech_machine *const m, const uint32_t pc)
{
    begin_step(m);
    push(m, pc, 0);
    follow(m);
    return ech_machine_config_of_found(m);
}

uint32_t ech_machine_start(ech_machine *const m)
{
    return ech_machine_config_at(m, m->program->start);
}

/*
 * The row of successors of a config, made if there is none; NULL and rc without memory. Rows are
 * made only for configs that are stepped from more than in passing, since each is n_classes words.
 * The pointer is valid until the next row is made.
 */
static uint32_t *row_of(ech_machine *const m, const uint32_t config)
{
    const uint32_t n = m->program->n_classes;
    if (m->configs[config].next == 0) {
        const size_t used = (size_t)m->n_rows * n;
        if (!has_room(m) || !ECH_VEC_GROW(m->rows, m->cap_rows, used, n)) {
            if (m->rc == ECH_OK) m->rc = ECH_ENOMEM;
            return NULL;
        }
        memset(m->rows + used, 0xFF, n * sizeof *m->rows);
        m->configs[config].next = ++m->n_rows;
    }
    return m->rows + (size_t)(m->configs[config].next - 1) * n;
}

/* The row is made after the step, so that a step that failed leaves no entry behind. */
uint32_t ech_machine_step_slow(ech_machine *const m, const uint32_t config,
                               const uint32_t byte_class, const bool once)
{
    if (config == ECH_CONFIG_DEAD || m->rc != ECH_OK) return ECH_CONFIG_DEAD;
    const ech_program *const p = m->program;
    begin_step(m);
    for (uint32_t i = 0; i < m->configs[config].n; i++) {
        const ech_item at = m->items[m->configs[config].first + i];
        const ech_instr *const in = &p->instrs[at.pc];
        if (in->op == ECH_OP_BYTE && ech_byteset_has(&p->sets[in->a], byte_class)) {
            push(m, in->b, at.stack);
        }
    }
    follow(m);
    const uint32_t to = ech_machine_config_of_found(m);
    if (once) return to;
    uint32_t *const row = m->rc == ECH_OK ? row_of(m, config) : NULL;
    if (row == NULL) return ECH_CONFIG_DEAD;
    row[byte_class] = to;
    return to;
}

/* (RET, empty stack) is the only item with pc ECH_PC_RET, which is 0. */
bool ech_machine_accepts(const ech_machine *const m, const uint32_t config)
{
    /* The item sorts first. */
    const ech_config *const c = &m->configs[config];
    return c->n > 0 && m->items[c->first].pc == ECH_PC_RET;
}

bool ech_machine_can_continue(const ech_machine *const m, const uint32_t config)
{
    return m->configs[config].n > (ech_machine_accepts(m, config) ? 1u : 0u);
}

/* ---- stand-ins ---- */

/*
 * A count from which no token reaches min or max is as good as another. A round reads at least one
 * byte, so a token adds at most as many as it has. far is the reach of the mask in bytes.
 */
static uint32_t rough_count(const ech_loop *const l, const uint32_t count, const uint32_t far)
{
    const bool max_is_far = l->max == ECH_CX_INF || l->max - count > far;
    if (!max_is_far) return count;
    if (count >= l->min) return l->min;
    return l->min - count > far ? 0 : count;
}

static uint32_t rough_pc(const ech_machine *const m, const uint32_t pc, const int reach)
{
    const uint32_t *const rough = m->program->rough[reach];
    return rough == NULL ? pc : rough[pc];
}

/*
 * The stand-in of one frame, on that of the stack below it. The return address may stand in for
 * another one too: what waits inside a rule called from an automaton's edge differs only in the
 * state it will come back to.
 */
static uint32_t rough_frame(ech_machine *const m, const uint32_t frame, const int reach)
{
    const ech_frame f = m->frames[frame];
    const uint32_t below = f.below == 0 ? 0 : m->frames[f.below].rough[reach];
    uint32_t value = f.value, tag = f.tag;
    if (tag & ECH_FRAME_LOOP) {
        value = rough_count(&m->program->loops[tag & ~ECH_FRAME_LOOP], value, m->reach[reach]);
    } else {
        tag = rough_pc(m, tag, reach);
    }
    return intern_frame(m, below, tag, value, f.nest);
}

/*
 * Works down the stack to a frame whose stand-in is known, then up again. A loop and no recursion:
 * stacks are as deep as the text nests.
 */
static uint32_t rough_stack(ech_machine *const m, const uint32_t stack, const int reach)
{
    while (stack != 0 && m->frames[stack].rough[reach] == 0) {
        uint32_t at = stack;
        while (m->frames[at].below != 0 && m->frames[m->frames[at].below].rough[reach] == 0) {
            at = m->frames[at].below;
        }
        const uint32_t rough = rough_frame(m, at, reach);
        if (m->rc != ECH_OK) return 0;
        m->frames[at].rough[reach] = rough;
        m->frames[rough].rough[reach] = rough;
    }
    return stack == 0 ? 0 : m->frames[stack].rough[reach];
}

/* A stand-in stands for itself, which is noted at once, so asking twice costs nothing. */
uint32_t ech_machine_rough(ech_machine *const m, const uint32_t config, const int reach)
{
    const ech_config c = m->configs[config];
    if (config == ECH_CONFIG_DEAD || c.rough[reach] != UNKNOWN) {
        return config == ECH_CONFIG_DEAD ? config : c.rough[reach];
    }
    m->n_found = 0;
    if (!ECH_VEC_GROW(m->found, m->cap_found, 0, c.n)) m->rc = ECH_ENOMEM;
    for (uint32_t i = 0; i < c.n && m->rc == ECH_OK; i++) {
        const ech_item at = m->items[c.first + i];
        m->found[m->n_found++] =
            (ech_item){ rough_pc(m, at.pc, reach), rough_stack(m, at.stack, reach) };
    }
    if (m->rc != ECH_OK) return ECH_CONFIG_DEAD;
    sort_items(m->found, m->n_found);
    uint32_t w = 0; /* stand-ins may coincide */
    for (uint32_t i = 0; i < m->n_found; i++) {
        if (w == 0 || compare_items(&m->found[w - 1], &m->found[i]) != 0) {
            m->found[w++] = m->found[i];
        }
    }
    m->n_found = w;
    const uint32_t rough = ech_machine_config_of_found(m);
    if (m->rc != ECH_OK) return ECH_CONFIG_DEAD;
    m->configs[config].rough[reach] = rough;
    m->configs[rough].rough[reach] = rough;
    return rough;
}

/* ---- relative configs ---- */

#define RELATIVE_ITEMS 64u
#define RELATIVE_DEPTH 16u

/*
 * The place of the first frame of a stack that is in chain[0 .. n), n when there is none near. Both
 * bounds, RELATIVE_DEPTH and RELATIVE_ITEMS, keep this search cheap: a config that is not caught by
 * them goes the general way, which is right as well.
 */
static uint32_t meets(const ech_machine *const m, uint32_t stack, const uint32_t *const chain,
                      const uint32_t n)
{
    for (uint32_t depth = 0; stack != 0 && depth < RELATIVE_DEPTH; depth++) {
        for (uint32_t k = 0; k < n; k++) {
            if (chain[k] == stack) return k;
        }
        stack = m->frames[stack].below;
    }
    return n;
}

/*
 * The topmost return address in the stacks of all items; 0 when there is none near the top. A loop
 * frame is no return address: one goes on downwards to the next that is. Everything above the frame
 * found is then private to the items, and everything below is shared by all.
 */
static uint32_t common_frame(const ech_machine *const m, const ech_config c)
{
    uint32_t chain[RELATIVE_DEPTH], n = 0, place = 0;
    if (c.n == 0 || c.n > RELATIVE_ITEMS) return 0;
    for (uint32_t at = m->items[c.first].stack; at != 0 && n < RELATIVE_DEPTH;
         at = m->frames[at].below) {
        chain[n++] = at;
    }
    for (uint32_t i = 0; i < c.n && place < n; i++) {
        const uint32_t k = meets(m, m->items[c.first + i].stack, chain, n);
        if (k > place) place = k;
    }
    while (place < n && (m->frames[chain[place]].tag & ECH_FRAME_LOOP))
        place++;
    return place < n ? chain[place] : 0;
}

/*
 * The part of a stack above base, put on other instead. above[] is enough: meets() found a frame of
 * the first item's chain at most RELATIVE_DEPTH frames down, and the way from there to base is a
 * part of that chain, which is no longer.
 */
static uint32_t transplant(ech_machine *const m, const uint32_t stack, const uint32_t base,
                           const uint32_t other)
{
    uint32_t above[RELATIVE_DEPTH * 2], n = 0;
    for (uint32_t at = stack; at != base; at = m->frames[at].below)
        above[n++] = at;
    uint32_t out = other;
    while (n > 0 && m->rc == ECH_OK) {
        const ech_frame f = m->frames[above[--n]];
        out = intern_frame(m, out, f.tag, f.value, f.nest);
    }
    return out;
}

uint32_t ech_machine_relative(ech_machine *const m, const uint32_t config, uint32_t *const ret_base)
{
    const ech_config c = m->configs[config];
    const uint32_t base = common_frame(m, c);
    if (base == 0) return ECH_CONFIG_DEAD;
    /* What is allowed depends on the levels that are left, so they are part of the stand-in. */
    const uint32_t nest = m->frames[base].nest;
    const uint32_t other = intern_frame(m, 0, ECH_PC_EXIT, nest, nest);
    m->n_found = 0;
    if (!ECH_VEC_GROW(m->found, m->cap_found, 0, c.n)) m->rc = ECH_ENOMEM;
    for (uint32_t i = 0; i < c.n && m->rc == ECH_OK; i++) {
        const ech_item at = m->items[c.first + i];
        m->found[m->n_found++] = (ech_item){ at.pc, transplant(m, at.stack, base, other) };
    }
    if (m->rc != ECH_OK) return ECH_CONFIG_DEAD;
    *ret_base = base;
    return ech_machine_config_of_found(m);
}

uint32_t ech_machine_return(ech_machine *const m, const uint32_t frame)
{
    begin_step(m);
    push(m, m->frames[frame].tag, m->frames[frame].below);
    follow(m);
    return ech_machine_config_of_found(m);
}

bool ech_machine_exits(const ech_machine *const m, const uint32_t config, bool *const ret_only)
{
    const ech_config *const c = &m->configs[config];
    *ret_only = c->n == 1;
    /* Only RET sorts before it, and a relative config has no empty stack but this one's. */
    return c->n > 0 && m->items[c->first].pc == ECH_PC_EXIT;
}

/* ---- collection ---- */

/* Two machines over one program: what is still held moves from the full one to a fresh one. */
typedef struct collector {
    ech_machine *from, *to;
    ech_status rc;
} collector;

/*
 * Copies a stack from one machine to the other, bottom first. Bottom first, since a frame's key
 * contains the frame below. Stacks share their lower frames in the new machine as they did in the
 * old.
 */
static uint32_t move_stack(collector *const c, const uint32_t stack)
{
    const ech_machine *const m = c->from;
    uint32_t depth = 0;
    for (uint32_t at = stack; at != 0; at = m->frames[at].below)
        depth++;
    uint32_t *const path = malloc(((size_t)depth + 1) * sizeof *path);
    if (path == NULL) {
        c->rc = ECH_ENOMEM;
        return 0;
    }
    uint32_t n = 0;
    for (uint32_t at = stack; at != 0; at = m->frames[at].below)
        path[n++] = at;
    uint32_t below = 0;
    while (n > 0) {
        const ech_frame *const f = &m->frames[path[--n]];
        below = intern_frame(c->to, below, f->tag, f->value, f->nest);
    }
    free(path);
    return below;
}

/*
 * Items keep their pc and get new stack numbers, so they are sorted anew there. Called twice for
 * each place: the first time with a copy (try_config), so that running out of memory in the middle
 * leaves every holder with a number that is still good.
 */
static void move_config(void *const keeper, uint32_t *const config)
{
    collector *const c = keeper;
    const ech_config old = c->from->configs[*config];
    ech_machine *const to = c->to;
    begin_step(to);
    if (!ECH_VEC_GROW(to->found, to->cap_found, 0, old.n)) c->rc = ECH_ENOMEM;
    for (uint32_t i = 0; i < old.n && c->rc == ECH_OK; i++) {
        const ech_item at = c->from->items[old.first + i];
        to->found[to->n_found++] = (ech_item){ at.pc, move_stack(c, at.stack) };
    }
    const uint32_t moved = c->rc == ECH_OK ? ech_machine_config_of_found(to) : ECH_CONFIG_DEAD;
    if (to->rc != ECH_OK) c->rc = to->rc;
    /* Numbers are written into the visitor's places only at the second pass, when all went well. */
    if (c->rc == ECH_OK) *config = moved;
}

static void try_config(void *const keeper, uint32_t *const config)
{
    uint32_t copy = *config;
    move_config(keeper, &copy);
}

/* On failure m is untouched. Masks refer to config numbers: the caller clears them afterwards. */
ech_status ech_machine_collect(ech_machine *const m,
                               void (*const visit)(void *user, ech_machine_keep *keep,
                                                   void *keeper),
                               void *const user)
{
    ech_machine fresh;
    ECH_TRY(ech_machine_init(&fresh, m->program, m->reach, m->max_bytes));
    collector c = { m, &fresh, ECH_OK };
    visit(user, try_config, &c);
    if (c.rc == ECH_OK) visit(user, move_config, &c); /* finds what is there, can't fail */
    if (c.rc != ECH_OK) {
        ech_machine_fini(&fresh);
        return c.rc;
    }
    ech_machine_fini(m);
    *m = fresh;
    return ECH_OK;
}
