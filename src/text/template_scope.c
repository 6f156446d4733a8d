/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the names of a template mean.
 *
 * Jinja compiles a template to a Python function and its variables to Python's local variables,
 * so what a name means follows from where it is read and stored in the source, not from what ran.
 * This pass gives the same answers. Two walks alternate:
 *
 *   analyse_…   looks ahead through one scope, in source order, and notes for every name whether
 *               it is read or stored first; branches of an `if` are merged; inner scopes are not
 *               entered
 *   resolve_…   walks the tree, opens a scope wherever Jinja does, and turns names into slots
 *
 * A scope belongs to a function (ech_tcode) and has slots of its own in its frames. A name that no
 * scope around it has is looked up in the arguments when its scope is entered.
 *
 * The reference is jinja2's idtracking.py and compiler.py; the two halves here follow its Symbols
 * and its visitors, and what looks arbitrary (an if's branches merged as they are, a set block's
 * filter resolved late) is how those behave.
 *
 * Invariant: after this pass every name has ref = (hops, slot), hops being functions outwards, and
 * a slot is below its function's n_slots. All memory is the compiler's arena. Recursion is as deep
 * as the parser let the tree become.
 */
#include "src/text/template_builtin.h"

/* The slots of one scope by name; shared by the copies that branches make of its symbols. */
typedef struct scope_slots {
    ech_tname **names;
    uint32_t *slots;
    size_t n, cap;
} scope_slots;

typedef struct function {
    struct function *up;
    uint32_t depth;
    ech_tcode *code;
} function;

typedef struct symbol {
    ech_tname *name;
    uint32_t slot;
    ech_tload_kind load;
    bool is_stored;
    function *from_fn; /* ALIAS: the owner of from_slot */
    uint32_t from_slot;
} symbol;

typedef struct symbols {
    const struct symbols *up;
    function *fn;
    scope_slots *slots;
    symbol *items;
    size_t n, cap;
} symbols;

/* Where resolve_… stands. */
typedef struct place {
    ech_tcompiler *c;
    symbols *syms;
    bool is_soft; /* in an `if`: an unknown filter fails when it is met, not now */
    bool is_toplevel;
    bool in_loop; /* of the same function: break and continue are allowed */
} place;

static ech_status fail_node(ech_tcompiler *const c, const ech_tnode *const node,
                            const char *const text)
{
    return ech_tcompile_fail(c, ECH_EFORMAT, node->line, node->column, "%s", text);
}

/* ---- symbols ---- */

static symbol *find_own(const symbols *const s, const ech_tname *const name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].name == name) return &s->items[i];
    }
    return NULL;
}

/* The nearest scope that has the name. */
static symbol *find_ref(const symbols *s, const ech_tname *const name, function **const ret_fn)
{
    for (; s != NULL; s = s->up) {
        symbol *const found = find_own(s, name);
        if (found != NULL) {
            *ret_fn = s->fn;
            return found;
        }
    }
    return NULL;
}

/*
 * A name has one slot in a scope for good, also if two branches of an `if` each make a symbol for
 * it: the table is shared by their copies.
 */
static ech_status slot_of(ech_tcompiler *const c, symbols *const s, ech_tname *const name,
                          uint32_t *const ret)
{
    scope_slots *const t = s->slots;
    for (size_t i = 0; i < t->n; i++) {
        if (t->names[i] == name) {
            *ret = t->slots[i];
            return ECH_OK;
        }
    }
    if (t->n == t->cap) {
        const size_t cap = t->cap == 0 ? 8 : t->cap * 2;
        ech_tname **names;
        uint32_t *slots;
        ECH_TRY(ech_tcompile_alloc(c, cap, sizeof *names, &names));
        ECH_TRY(ech_tcompile_alloc(c, cap, sizeof *slots, &slots));
        if (t->n > 0) {
            memcpy(names, t->names, t->n * sizeof *names);
            memcpy(slots, t->slots, t->n * sizeof *slots);
        }
        t->names = names;
        t->slots = slots;
        t->cap = cap;
    }
    t->names[t->n] = name;
    t->slots[t->n] = s->fn->code->n_slots++;
    *ret = t->slots[t->n++];
    return ECH_OK;
}

static ech_status grow_symbols(ech_tcompiler *const c, symbols *const s)
{
    if (s->n < s->cap) return ECH_OK;
    const size_t cap = s->cap == 0 ? 8 : s->cap * 2;
    symbol *items;
    ECH_TRY(ech_tcompile_alloc(c, cap, sizeof *items, &items));
    if (s->n > 0) memcpy(items, s->items, s->n * sizeof *items);
    s->items = items;
    s->cap = cap;
    return ECH_OK;
}

/*
 * The name's symbol in this very scope; made when it is not there. The pointer is good until the
 * next symbol is added.
 */
static ech_status define(ech_tcompiler *const c, symbols *const s, ech_tname *const name,
                         const ech_tload_kind load, symbol **const ret)
{
    symbol *sym = find_own(s, name);
    if (sym == NULL) {
        ECH_TRY(grow_symbols(c, s));
        sym = &s->items[s->n];
        *sym = (symbol){ .name = name };
        ECH_TRY(slot_of(c, s, name, &sym->slot));
        s->n++;
    }
    sym->load = load;
    *ret = sym;
    return ECH_OK;
}

/* is_variable marks names that a template takes from outside: what it asks its arguments for. */
static ech_status note_load(ech_tcompiler *const c, symbols *const s, ech_tname *const name)
{
    function *fn;
    symbol *sym;
    if (find_ref(s, name, &fn) != NULL) return ECH_OK;
    name->is_variable = true;
    return define(c, s, name, ECH_TLOAD_RESOLVE, &sym);
}

static ech_status note_param(ech_tcompiler *const c, symbols *const s, ech_tname *const name)
{
    symbol *sym;
    ECH_TRY(define(c, s, name, ECH_TLOAD_PARAM, &sym));
    sym->is_stored = true;
    return ECH_OK;
}

/* What a name that is stored here holds before: the outer one's value, or nothing. */
static ech_status note_store(ech_tcompiler *const c, symbols *const s, ech_tname *const name)
{
    symbol *sym = find_own(s, name);
    if (sym == NULL) {
        function *fn;
        const symbol *const outer = find_ref(s->up, name, &fn);
        ECH_TRY(define(c, s, name, outer != NULL ? ECH_TLOAD_ALIAS : ECH_TLOAD_UNDEFINED, &sym));
        if (outer != NULL) {
            sym->from_fn = fn;
            sym->from_slot = outer->slot;
        }
    }
    sym->is_stored = true;
    return ECH_OK;
}

/* Copied for a branch: items are its own, slots and the scope above are shared. */
static ech_status copy_symbols(ech_tcompiler *const c, const symbols *const s, symbols *const ret)
{
    *ret = *s;
    if (s->cap == 0) return ECH_OK;
    ECH_TRY(ech_tcompile_alloc(c, s->cap, sizeof *s->items, &ret->items));
    memcpy(ret->items, s->items, s->n * sizeof *s->items);
    return ECH_OK;
}

/*
 * Puts what one branch of an `if` noted into the scope. was_stored grows beside s->items: a name
 * that the branch made was not stored before it.
 */
static ech_status merge_branch(ech_tcompiler *const c, symbols *const s,
                               const symbols *const branch, bool *const was_stored)
{
    for (size_t i = 0; i < branch->n; i++) {
        symbol *sym = find_own(s, branch->items[i].name);
        if (sym == NULL) {
            ECH_TRY(grow_symbols(c, s));
            sym = &s->items[s->n++];
            was_stored[s->n - 1] = false;
        }
        *sym = branch->items[i];
    }
    return ECH_OK;
}

/*
 * After an `if`: a name that some branch stores, and that was not stored before, may not have been
 * stored after all. Then it is what it was outside: the outer scope's, or the arguments'. Only the
 * name's load changes: it is computed when the scope is entered, and a branch that does run
 * overwrites the slot.
 */
static ech_status merge_branches(ech_tcompiler *const c, symbols *const s,
                                 const symbols branches[3])
{
    const size_t most = s->n + branches[0].n + branches[1].n + branches[2].n;
    bool *was_stored, *is_stored;
    ECH_TRY(ech_tcompile_alloc(c, most + 1, 1, &was_stored));
    ECH_TRY(ech_tcompile_alloc(c, most + 1, 1, &is_stored));
    for (size_t i = 0; i < s->n; i++) {
        was_stored[i] = is_stored[i] = s->items[i].is_stored;
    }
    for (int b = 0; b < 3; b++) {
        ECH_TRY(merge_branch(c, s, &branches[b], was_stored));
        for (size_t i = 0; i < s->n; i++) {
            is_stored[i] = is_stored[i] || s->items[i].is_stored;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        symbol *const sym = &s->items[i];
        sym->is_stored = is_stored[i];
        if (!sym->is_stored || was_stored[i]) continue;
        function *fn;
        const symbol *const outer = find_ref(s->up, sym->name, &fn);
        sym->load = outer != NULL ? ECH_TLOAD_ALIAS : ECH_TLOAD_RESOLVE;
        sym->name->is_variable = sym->name->is_variable || outer == NULL;
        if (outer != NULL) {
            sym->from_fn = fn;
            sym->from_slot = outer->slot;
        }
    }
    return ECH_OK;
}

/* ---- looking ahead through one scope ---- */

static ech_status analyse_node(ech_tcompiler *c, symbols *s, const ech_tnode *node);

static ech_status analyse_list(ech_tcompiler *const c, symbols *const s, const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        ECH_TRY(analyse_node(c, s, list.items[i]));
    }
    return ECH_OK;
}

static ech_status analyse_target(ech_tcompiler *const c, symbols *const s, const ech_tnode *const t,
                                 const bool as_param)
{
    if (t->kind == ECH_N_NSREF) return note_load(c, s, t->name);
    if (t->kind == ECH_N_NAME)
        return as_param ? note_param(c, s, t->name) : note_store(c, s, t->name);
    for (size_t i = 0; i < t->list.n; i++) {
        ECH_TRY(analyse_target(c, s, t->list.items[i], as_param));
    }
    return ECH_OK;
}

/* All three branches begin from the same symbols; node->list are the elifs, taken as one branch. */
static ech_status analyse_if(ech_tcompiler *const c, symbols *const s, const ech_tnode *const node)
{
    symbols branches[3];
    ECH_TRY(analyse_node(c, s, node->a));
    for (int b = 0; b < 3; b++) {
        ECH_TRY(copy_symbols(c, s, &branches[b]));
    }
    ECH_TRY(analyse_list(c, &branches[0], node->body));
    ECH_TRY(analyse_list(c, &branches[1], node->list));
    ECH_TRY(analyse_list(c, &branches[2], node->orelse));
    return merge_branches(c, s, branches);
}

static ech_status analyse_expr(ech_tcompiler *const c, symbols *const s,
                               const ech_tnode *const node)
{
    const ech_tnode *const children[] = { node->a, node->b, node->c };
    for (size_t i = 0; i < 3; i++) {
        if (children[i] != NULL) ECH_TRY(analyse_node(c, s, children[i]));
    }
    ECH_TRY(analyse_list(c, s, node->list));
    ECH_TRY(analyse_list(c, s, node->args));
    ECH_TRY(analyse_list(c, s, node->kwargs));
    if (node->dyn_args != NULL) ECH_TRY(analyse_node(c, s, node->dyn_args));
    if (node->dyn_kwargs != NULL) ECH_TRY(analyse_node(c, s, node->dyn_kwargs));
    return ECH_OK;
}

/*
 * Inner scopes are not entered, only what they evaluate outside of themselves: a loop's iterable, a
 * call's arguments, the values of a with.
 */
static ech_status analyse_node(ech_tcompiler *const c, symbols *const s,
                               const ech_tnode *const node)
{
    switch (node->kind) {
    case ECH_N_NAME:
        return note_load(c, s, node->name);
    case ECH_N_IF:
        return analyse_if(c, s, node);
    case ECH_N_MACRO:
        return note_store(c, s, node->name);
    case ECH_N_SET:
        ECH_TRY(analyse_node(c, s, node->b));
        return analyse_target(c, s, node->a, false);
    case ECH_N_SET_BLOCK:
        return analyse_target(c, s, node->a, false);
    case ECH_N_FOR:
        return analyse_node(c, s, node->b);
    case ECH_N_CALL_BLOCK:
    case ECH_N_FILTER_BLOCK:
        return analyse_node(c, s, node->a);
    case ECH_N_WITH:
        return analyse_list(c, s, node->defaults);
    case ECH_N_GENERATION:
    case ECH_N_BLOCK:
    case ECH_N_DATA:
        return ECH_OK;
    default:
        return analyse_expr(c, s, node);
    }
}

/* ---- is a name read before it is stored, anywhere below? ---- */

typedef struct seeker {
    const char *name;
    bool found, hidden, stored;
} seeker;

static void seek(seeker *k, const ech_tnode *node);

static void seek_list(seeker *const k, const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        seek(k, list.items[i]);
    }
}

static void seek_target(seeker *const k, const ech_tnode *const t)
{
    if (t->kind == ECH_N_NAME && strcmp(t->name->ptr, k->name) == 0) k->hidden = k->stored = true;
    if (t->kind == ECH_N_TUPLE) {
        for (size_t i = 0; i < t->list.n; i++) {
            seek_target(k, t->list.items[i]);
        }
    }
}

/*
 * Like jinja2's search for undeclared names: in source order, a store hides every read after it,
 * also if the store is in a branch that may not run. That decides whether `loop`, `caller`,
 * `kwargs` and `varargs` exist.
 */
static void seek(seeker *const k, const ech_tnode *const node)
{
    if (node == NULL) return;
    switch (node->kind) {
    case ECH_N_BLOCK:
        return;
    case ECH_N_NAME:
        if (strcmp(node->name->ptr, k->name) == 0 && !k->hidden) k->found = true;
        return;
    case ECH_N_FOR:
    case ECH_N_SET:
    case ECH_N_SET_BLOCK:
        seek_target(k, node->a);
        break;
    case ECH_N_WITH:
    case ECH_N_MACRO:
    case ECH_N_CALL_BLOCK:
        if (node->kind == ECH_N_CALL_BLOCK) seek(k, node->a);
        for (size_t i = 0; i < node->list.n; i++) {
            seek_target(k, node->list.items[i]);
        }
        seek_list(k, node->defaults);
        seek_list(k, node->body);
        return;
    default:
        seek(k, node->a);
        break;
    }
    seek(k, node->b);
    seek(k, node->c);
    seek_list(k, node->list);
    seek_list(k, node->args);
    seek_list(k, node->kwargs);
    seek(k, node->dyn_args);
    seek(k, node->dyn_kwargs);
    seek_list(k, node->body);
    seek_list(k, node->orelse);
}

static bool reads(const ech_tnodes body, const char *const name)
{
    seeker k = { .name = name };
    seek_list(&k, body);
    return k.found;
}

/* ---- opening and closing scopes ---- */

static ech_status open_scope(ech_tcompiler *const c, const symbols *const up, function *const fn,
                             symbols *const ret)
{
    *ret = (symbols){ .up = up, .fn = fn };
    return ech_tcompile_alloc(c, 1, sizeof *ret->slots, &ret->slots);
}

static ech_status open_function(ech_tcompiler *const c, function *const up, function *const ret)
{
    *ret = (function){ .up = up, .depth = up == NULL ? 0 : up->depth + 1 };
    return ech_tcompile_alloc(c, 1, sizeof *ret->code, &ret->code);
}

/*
 * What entering the scope does, for the interpreter. hops are counted from the function whose scope
 * is entered to the one that owns the slot.
 */
static ech_status save_loads(ech_tcompiler *const c, const symbols *const s, ech_tscope *const ret)
{
    ECH_TRY(ech_tcompile_alloc(c, s->n + 1, sizeof *ret->loads, &ret->loads));
    for (size_t i = 0; i < s->n; i++) {
        const symbol *const sym = &s->items[i];
        ech_tload *const load = &ret->loads[ret->n_loads++];
        *load = (ech_tload){ .kind = sym->load, .slot = sym->slot, .name = sym->name };
        if (sym->load == ECH_TLOAD_ALIAS) {
            load->from = (ech_tref){ s->fn->depth - sym->from_fn->depth, sym->from_slot };
        }
    }
    return ECH_OK;
}

/* ---- turning names into slots ---- */

static ech_status resolve_node(const place *at, ech_tnode *node);

static ech_status resolve_list(const place *const at, const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        ECH_TRY(resolve_node(at, list.items[i]));
    }
    return ECH_OK;
}

static ech_status resolve_name(const place *const at, ech_tnode *const node)
{
    function *fn;
    const symbol *sym = find_ref(at->syms, node->name, &fn);
    if (sym == NULL) {
        /* Only the arguments of a set block's filter are not looked at before. */
        ECH_TRY(note_load(at->c, at->syms, node->name));
        sym = find_ref(at->syms, node->name, &fn);
    }
    node->ref = (ech_tref){ at->syms->fn->depth - fn->depth, sym->slot };
    return ECH_OK;
}

static ech_status resolve_target(const place *const at, ech_tnode *const t)
{
    if (t->kind == ECH_N_NAME || t->kind == ECH_N_NSREF) return resolve_name(at, t);
    for (size_t i = 0; i < t->list.n; i++) {
        ECH_TRY(resolve_target(at, t->list.items[i]));
    }
    return ECH_OK;
}

static ech_status resolve_expr(const place *const at, ech_tnode *const node)
{
    ech_tnode *const children[] = { node->a, node->b, node->c };
    for (size_t i = 0; i < 3; i++) {
        if (children[i] != NULL) ECH_TRY(resolve_node(at, children[i]));
    }
    ECH_TRY(resolve_list(at, node->list));
    ECH_TRY(resolve_list(at, node->args));
    ECH_TRY(resolve_list(at, node->kwargs));
    if (node->dyn_args != NULL) ECH_TRY(resolve_node(at, node->dyn_args));
    if (node->dyn_kwargs != NULL) ECH_TRY(resolve_node(at, node->dyn_kwargs));
    return ECH_OK;
}

static ech_status resolve_call(const place *const at, ech_tnode *const node)
{
    if (node->builtin == NULL && !at->is_soft) {
        return ech_tcompile_fail(at->c, ECH_EFORMAT, node->line, node->column,
                                 "no %s named '%.80s'",
                                 node->kind == ECH_N_FILTER ? "filter" : "test", node->name->ptr);
    }
    return resolve_expr(at, node);
}

/* The place inside a new scope of the same function. */
static place inside(const place *const at, symbols *const syms)
{
    return (place){ .c = at->c, .syms = syms, .in_loop = at->in_loop };
}

/*
 * A test's target is a second tree over the test's slots. Deep, because each copy gets its own
 * refs.
 */
static ech_status copy_target(ech_tcompiler *const c, const ech_tnode *const t,
                              ech_tnode **const ret)
{
    ECH_TRY(ech_tcompile_alloc(c, 1, sizeof **ret, ret));
    **ret = *t;
    if (t->list.n == 0) return ECH_OK;
    ECH_TRY(ech_tcompile_alloc(c, t->list.n, sizeof *t->list.items, &(*ret)->list.items));
    for (size_t i = 0; i < t->list.n; i++) {
        ECH_TRY(copy_target(c, t->list.items[i], &(*ret)->list.items[i]));
    }
    return ECH_OK;
}

/* The test is a function of its own (a generator in jinja2) with the target as its parameter. */
static ech_status resolve_loop_test(const place *const at, ech_tnode *const node)
{
    function fn;
    symbols syms;
    ECH_TRY(open_function(at->c, at->syms->fn, &fn));
    ECH_TRY(open_scope(at->c, at->syms, &fn, &syms));
    ECH_TRY(copy_target(at->c, node->a, &node->test_target));
    ECH_TRY(analyse_target(at->c, &syms, node->a, true));
    ECH_TRY(analyse_node(at->c, &syms, node->c));
    const place test = { .c = at->c, .syms = &syms };
    ECH_TRY(resolve_target(&test, node->test_target));
    ECH_TRY(resolve_node(&test, node->c));
    node->test_code = fn.code;
    return save_loads(at->c, &syms, &node->test_scope);
}

static ech_status check_loop_name(ech_tcompiler *const c, const ech_tnode *const node)
{
    seeker k = { .name = "loop" };
    seek(&k, node);
    return k.stored ? fail_node(c, node, "cannot assign to the special variable loop in a for loop")
                    : ECH_OK;
}

/*
 * The iterable and the test belong to the scope outside, the target and the body to the one inside;
 * the else part has a third. A recursive loop is a function, so its body may not break an outer
 * loop.
 */
static ech_status resolve_for(const place *const at, ech_tnode *const node)
{
    function own = { 0 };
    function *fn = at->syms->fn;
    if (node->flag) {
        ECH_TRY(open_function(at->c, fn, &own));
        fn = &own;
        node->code = own.code;
    }
    symbols body, other;
    ECH_TRY(check_loop_name(at->c, node));
    ECH_TRY(open_scope(at->c, at->syms, fn, &body));
    node->uses_loop = node->flag || reads(node->body, "loop");
    ech_tname *loop_name;
    ECH_TRY(ech_tcompile_name(at->c, "loop", 4, &loop_name));
    if (node->uses_loop) {
        ECH_TRY(note_param(at->c, &body, loop_name));
        ECH_TRY(slot_of(at->c, &body, loop_name, &node->slot));
    }
    ECH_TRY(analyse_target(at->c, &body, node->a, true));
    ECH_TRY(analyse_list(at->c, &body, node->body));
    if (node->c != NULL) ECH_TRY(resolve_loop_test(at, node));
    ECH_TRY(resolve_node(at, node->b));
    place in = inside(at, &body);
    in.in_loop = true;
    ECH_TRY(resolve_target(&in, node->a));
    ECH_TRY(resolve_list(&in, node->body));
    ECH_TRY(save_loads(at->c, &body, &node->scope));
    if (node->orelse.n == 0) return ECH_OK;
    ECH_TRY(open_scope(at->c, at->syms, fn, &other));
    ECH_TRY(analyse_list(at->c, &other, node->orelse));
    place in_else = inside(at, &other);
    in_else.in_loop = at->in_loop && !node->flag;
    ECH_TRY(resolve_list(&in_else, node->orelse));
    return save_loads(at->c, &other, &node->else_scope);
}

static ech_status resolve_if(const place *const at, ech_tnode *const node)
{
    place soft = *at;
    soft.is_soft = true;
    ECH_TRY(resolve_node(&soft, node->a));
    ECH_TRY(resolve_list(&soft, node->body));
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(resolve_node(&soft, node->list.items[i]->a));
        ECH_TRY(resolve_list(&soft, node->list.items[i]->body));
    }
    return resolve_list(&soft, node->orelse);
}

/*
 * caller, kwargs and varargs are parameters of a macro that reads them. A declared parameter of
 * that name takes the place of the special one; for caller it must have a default, as jinja2 says.
 */
static ech_status add_special(const place *const at, symbols *const syms,
                              const ech_tnode *const node, const char *const name,
                              bool *const ret_has, uint32_t *const ret_slot)
{
    ech_tname *n;
    *ret_has = reads(node->body, name);
    if (!*ret_has) return ECH_OK;
    for (size_t i = 0; i < node->list.n; i++) {
        if (strcmp(node->list.items[i]->name->ptr, name) != 0) continue;
        if (strcmp(name, "caller") != 0) {
            *ret_has = false;
            return ECH_OK;
        }
        if (i + node->defaults.n < node->list.n) {
            return fail_node(at->c, node,
                             "the special argument caller must be omitted or be given a default");
        }
        node->code->explicit_caller = true;
    }
    ECH_TRY(ech_tcompile_name(at->c, name, strlen(name), &n));
    ECH_TRY(note_param(at->c, syms, n));
    return slot_of(at->c, syms, n, ret_slot);
}

static ech_status declare_params(const place *const at, symbols *const syms,
                                 const ech_tnode *const node)
{
    ech_tcode *const code = node->code;
    ECH_TRY(ech_tcompile_alloc(at->c, node->list.n + 1, sizeof *code->params, &code->params));
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(note_param(at->c, syms, node->list.items[i]->name));
        ECH_TRY(slot_of(at->c, syms, node->list.items[i]->name, &code->params[i]));
        if (strcmp(node->list.items[i]->name->ptr, "caller") == 0) code->explicit_caller = true;
    }
    code->n_params = node->list.n;
    return ECH_OK;
}

/* The body of a macro, a call block or a generation block: a function of its own. */
static ech_status resolve_function(const place *const at, ech_tnode *const node)
{
    function fn;
    symbols syms;
    ECH_TRY(open_function(at->c, at->syms->fn, &fn));
    ECH_TRY(open_scope(at->c, at->syms, &fn, &syms));
    node->code = fn.code;
    ECH_TRY(declare_params(at, &syms, node));
    ECH_TRY(add_special(at, &syms, node, "caller", &fn.code->has_caller, &fn.code->caller_slot));
    ECH_TRY(add_special(at, &syms, node, "kwargs", &fn.code->has_kwargs, &fn.code->kwargs_slot));
    ECH_TRY(add_special(at, &syms, node, "varargs", &fn.code->has_varargs, &fn.code->varargs_slot));
    ECH_TRY(analyse_list(at->c, &syms, node->defaults));
    ECH_TRY(analyse_list(at->c, &syms, node->body));
    const place in = { .c = at->c, .syms = &syms };
    ECH_TRY(resolve_list(&in, node->defaults));
    ECH_TRY(resolve_list(&in, node->body));
    return save_loads(at->c, &syms, &node->scope);
}

static ech_status resolve_macro(const place *const at, ech_tnode *const node)
{
    function *owner;
    ECH_TRY(resolve_function(at, node));
    node->slot = find_ref(at->syms, node->name, &owner)->slot;
    node->is_toplevel = at->is_toplevel;
    return ECH_OK;
}

/* The target belongs outside, the text and the filters inside. */
static ech_status resolve_set_block(const place *const at, ech_tnode *const node)
{
    symbols syms;
    ECH_TRY(open_scope(at->c, at->syms, at->syms->fn, &syms));
    ECH_TRY(analyse_list(at->c, &syms, node->body));
    const place in = inside(at, &syms);
    ECH_TRY(resolve_list(&in, node->body));
    if (node->b != NULL) ECH_TRY(resolve_node(&in, node->b));
    ECH_TRY(save_loads(at->c, &syms, &node->scope));
    node->is_toplevel = at->is_toplevel;
    return resolve_target(at, node->a);
}

static ech_status resolve_filter_block(const place *const at, ech_tnode *const node)
{
    symbols syms;
    ECH_TRY(open_scope(at->c, at->syms, at->syms->fn, &syms));
    ECH_TRY(analyse_list(at->c, &syms, node->body));
    ECH_TRY(analyse_node(at->c, &syms, node->a));
    const place in = inside(at, &syms);
    ECH_TRY(resolve_list(&in, node->body));
    ECH_TRY(resolve_node(&in, node->a));
    return save_loads(at->c, &syms, &node->scope);
}

static ech_status resolve_with(const place *const at, ech_tnode *const node)
{
    symbols syms;
    ECH_TRY(open_scope(at->c, at->syms, at->syms->fn, &syms));
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(analyse_target(at->c, &syms, node->list.items[i], true));
    }
    ECH_TRY(analyse_list(at->c, &syms, node->body));
    const place in = inside(at, &syms);
    ECH_TRY(resolve_list(at, node->defaults));
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(resolve_target(&in, node->list.items[i]));
    }
    ECH_TRY(resolve_list(&in, node->body));
    return save_loads(at->c, &syms, &node->scope);
}

/* A block sees the arguments and what the top level has set, not the scopes around it. */
static ech_status resolve_block(const place *const at, ech_tnode *const node)
{
    function fn;
    symbols syms;
    if (node->flag) {
        return ech_tcompile_fail(at->c, ECH_EUNSUPPORTED, node->line, node->column,
                                 "a scoped block is not supported in a chat template");
    }
    ECH_TRY(open_function(at->c, NULL, &fn));
    ECH_TRY(open_scope(at->c, NULL, &fn, &syms));
    node->code = fn.code;
    ECH_TRY(analyse_list(at->c, &syms, node->body));
    const place in = { .c = at->c, .syms = &syms };
    ECH_TRY(resolve_list(&in, node->body));
    return save_loads(at->c, &syms, &node->scope);
}

static ech_status resolve_node(const place *const at, ech_tnode *const node)
{
    place soft = *at;
    soft.is_soft = true;
    switch (node->kind) {
    case ECH_N_NAME:
        return resolve_name(at, node);
    case ECH_N_COND:
        return resolve_expr(&soft, node);
    case ECH_N_FILTER:
    case ECH_N_TEST:
        return resolve_call(at, node);
    case ECH_N_IF:
        return resolve_if(at, node);
    case ECH_N_FOR:
        return resolve_for(at, node);
    case ECH_N_SET:
        node->is_toplevel = at->is_toplevel;
        ECH_TRY(resolve_target(at, node->a));
        return resolve_node(at, node->b);
    case ECH_N_SET_BLOCK:
        return resolve_set_block(at, node);
    case ECH_N_MACRO:
        return resolve_macro(at, node);
    case ECH_N_CALL_BLOCK:
        ECH_TRY(resolve_node(at, node->a));
        return resolve_function(at, node);
    case ECH_N_GENERATION:
        return resolve_function(at, node);
    case ECH_N_FILTER_BLOCK:
        return resolve_filter_block(at, node);
    case ECH_N_WITH:
        return resolve_with(at, node);
    case ECH_N_BLOCK:
        return resolve_block(at, node);
    case ECH_N_BREAK:
    case ECH_N_CONTINUE:
        return at->in_loop ? ECH_OK : fail_node(at->c, node, "break or continue outside of a loop");
    default:
        return resolve_expr(at, node);
    }
}

ech_status ech_tscope_resolve(ech_tcompiler *const c, const ech_tnodes body,
                              ech_tscope *const ret_scope, ech_tcode *const ret_code)
{
    function fn;
    symbols syms;
    ECH_TRY(open_function(c, NULL, &fn));
    ECH_TRY(open_scope(c, NULL, &fn, &syms));
    ECH_TRY(analyse_list(c, &syms, body));
    const place top = { .c = c, .syms = &syms, .is_toplevel = true };
    ECH_TRY(resolve_list(&top, body));
    ECH_TRY(save_loads(c, &syms, ret_scope));
    *ret_code = *fn.code;
    return ECH_OK;
}
