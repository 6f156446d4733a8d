/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements: what prints, loops and defines.
 *
 * Output goes to vm->out; a statement that captures text puts a builder of its own there and the
 * old one back. A break or continue is vm->flow, looked at after every statement. Names were made
 * slots at compile time: a scope is entered by running its loads and left by emptying its slots.
 *
 * The reference is jinja2 as chat templates use it; where its generated Python shows through (loop
 * else, namespaces, unpacking errors, string joins) the same is done here, since published
 * templates rely on it.
 *
 * Memory is the rendering's arena: nothing here is freed, a value lives until the text is taken.
 * Bounds: ech_tvm_enter limits the depth of nesting and counts steps, ech_tvm_charge counts what a
 * loop would hide, and max_output bounds every captured text. After an error the vm is abandoned:
 * that is why vm->out and the depth are not put back on the way out.
 *
 * Thread: one rendering belongs to one thread; the tree is shared and read-only.
 */
#include "src/text/template_builtin.h"

/* ---- frames and scopes ---- */

/*
 * Slots are zero, which is ECH_T_ABSENT: a name that was not stored is undefined when it is read.
 */
ech_status ech_tframe_new(ech_tvm *const vm, const ech_tcode *const code, ech_tframe *const up,
                          ech_tframe **const ret)
{
    ech_tframe *f;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *f, &f));
    f->up = up;
    if (code->n_slots > 0) ECH_TRY(ech_tvm_alloc(vm, code->n_slots, sizeof *f->slots, &f->slots));
    *ret = f;
    return ECH_OK;
}

/*
 * A name of the context: what the top level set, an argument, a global; ABSENT when none is. The
 * order is jinja2's Context: exported variables, then what render() was given, then globals.
 */
static ech_status resolve(ech_tvm *const vm, const ech_tname *const name, ech_tval *const ret)
{
    const ech_tval *v = ech_tdict_get(vm->vars, name->ptr, name->len);
    if (v == NULL) v = ech_tdict_get(vm->args, name->ptr, name->len);
    if (v == NULL) return ech_tglobal_get(vm, name->ptr, name->len, ret);
    *ret = *v;
    return ECH_OK;
}

/*
 * RESOLVE looks a name up once, at the entry: later changes of the context are not seen, as with
 * jinja2's local variables. PARAM loads are left to whoever binds the parameters. An alias copies
 * the outer value, so a store inside stays inside.
 */
ech_status ech_tscope_enter(ech_tvm *const vm, ech_tframe *const f, const ech_tscope *const s)
{
    ECH_TRY(ech_tvm_charge(vm, s->n_loads));
    for (size_t i = 0; i < s->n_loads; i++) {
        const ech_tload *const load = &s->loads[i];
        ech_tval *const slot = &f->slots[load->slot];
        if (load->kind == ECH_TLOAD_RESOLVE) {
            ECH_TRY(resolve(vm, load->name, slot));
        } else if (load->kind == ECH_TLOAD_UNDEFINED) {
            *slot = (ech_tval){ .kind = ECH_T_ABSENT };
        } else if (load->kind == ECH_TLOAD_ALIAS) {
            const ech_tframe *from = f;
            for (uint32_t k = 0; k < load->from.hops; k++) {
                from = from->up;
            }
            *slot = from->slots[load->from.slot];
        }
    }
    return ECH_OK;
}

static void leave_scope(ech_tframe *const f, const ech_tscope *const s)
{
    for (size_t i = 0; i < s->n_loads; i++) {
        f->slots[s->loads[i].slot] = (ech_tval){ .kind = ECH_T_ABSENT };
    }
}

/*
 * Runs a body with its text kept. max_output applies to each captured text by itself. On failure
 * out stays at text: see the head.
 */
static ech_status capture(ech_tvm *const vm, ech_tframe *const f, const ech_tnodes body,
                          ech_tval *const ret)
{
    ech_tbuild text = { .vm = vm, .max_len = vm->max_output };
    ech_tbuild *const before = vm->out;
    vm->out = &text;
    ECH_TRY(ech_texec(vm, f, body));
    vm->out = before;
    return ech_tbuild_done(&text, ret);
}

/* ---- assignment ---- */

/* At the top level the name is exported too: blocks and macros find it through vm->vars. */
static ech_status assign_name(ech_tvm *const vm, ech_tframe *f, const ech_tnode *const target,
                              const ech_tval v, const bool is_toplevel)
{
    for (uint32_t i = 0; i < target->ref.hops; i++) {
        f = f->up;
    }
    f->slots[target->ref.slot] = v;
    if (!is_toplevel) return ECH_OK;
    ech_tval key;
    ECH_TRY(ech_tv_view(vm, target->name->ptr, target->name->len, false, &key));
    return ech_tdict_set(vm, vm->vars, key, v);
}

static ech_status assign_field(ech_tvm *const vm, ech_tframe *f, const ech_tnode *const target,
                               const ech_tval v)
{
    for (uint32_t i = 0; i < target->ref.hops; i++) {
        f = f->up;
    }
    const ech_tval ns = f->slots[target->ref.slot];
    if (ns.kind != ECH_T_NAMESPACE)
        return ech_tvm_raise(vm, "cannot assign attribute on non-namespace object");
    if (target->field->ptr[0] == '_') {
        return ech_tvm_raise(
            vm, "cannot store the underscore-prefixed attribute '%.80s' on a namespace",
            target->field->ptr);
    }
    ech_tval key;
    ECH_TRY(ech_tv_view(vm, target->field->ptr, target->field->len, false, &key));
    return ech_tdict_set(vm, ns.as.dict, key, v);
}

/*
 * The value may be any iterable, a string or a generator. No more than want + 1 items are read, so
 * an endless one can't be unpacked for ever. The messages are Python's.
 */
static ech_status assign_tuple(ech_tvm *const vm, ech_tframe *const f,
                               const ech_tnode *const target, const ech_tval v,
                               const bool is_toplevel)
{
    ech_titer *it;
    ech_tseq *items;
    ech_tval item;
    const size_t want = target->list.n;
    ECH_TRY(ech_titer_open(vm, v, &it));
    ECH_TRY(ech_tseq_new(vm, want, &items));
    for (;;) {
        ECH_TRY(ech_titer_next(vm, it, &item));
        if (item.kind == ECH_T_ABSENT) break;
        if (items->n == want)
            return ech_tvm_raise(vm, "too many values to unpack (expected %zu)", want);
        ECH_TRY(ech_tseq_push(vm, items, item));
    }
    if (items->n < want)
        return ech_tvm_raise(vm, "not enough values to unpack (expected %zu, got %zu)", want,
                             items->n);
    for (size_t i = 0; i < want; i++) {
        ECH_TRY(ech_tassign(vm, f, target->list.items[i], items->items[i], is_toplevel));
    }
    return ECH_OK;
}

ech_status ech_tassign(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const target,
                       const ech_tval v, const bool is_toplevel)
{
    if (target->kind == ECH_N_NAME) return assign_name(vm, f, target, v, is_toplevel);
    if (target->kind == ECH_N_NSREF) return assign_field(vm, f, target, v);
    return assign_tuple(vm, f, target, v, is_toplevel);
}

/* Jinja checks the namespaces of a target before the value is computed. */
static ech_status check_namespaces(ech_tvm *const vm, ech_tframe *f, const ech_tnode *const target)
{
    if (target->kind == ECH_N_TUPLE) {
        for (size_t i = 0; i < target->list.n; i++) {
            ECH_TRY(check_namespaces(vm, f, target->list.items[i]));
        }
    }
    if (target->kind != ECH_N_NSREF) return ECH_OK;
    for (uint32_t i = 0; i < target->ref.hops; i++) {
        f = f->up;
    }
    if (f->slots[target->ref.slot].kind == ECH_T_NAMESPACE) return ECH_OK;
    return ech_tvm_raise(vm, "cannot assign attribute on non-namespace object");
}

static ech_status exec_set(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    ech_tval v;
    ECH_TRY(check_namespaces(vm, f, node->a));
    ECH_TRY(ech_teval(vm, f, node->b, &v));
    vm->at = node;
    return ech_tassign(vm, f, node->a, v, node->is_toplevel);
}

/*
 * Applies the filters of a filter or set block: the innermost one takes the text. node->a is the
 * filter that is applied before this one; the recursion ends at the innermost.
 */
static ech_status apply_filters(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                                const ech_tval text, ech_tval *const ret)
{
    ech_tcall c = { 0 };
    ech_tval input = text;
    ECH_TRY(ech_tvm_enter(vm));
    if (node->a != NULL) ECH_TRY(apply_filters(vm, f, node->a, text, &input));
    ECH_TRY(ech_tcall_push(vm, &c, input));
    ECH_TRY(ech_teval_args(vm, f, node, &c));
    if (node->builtin == NULL)
        return ech_tvm_raise(vm, "no filter named '%.80s' found", node->name->ptr);
    ECH_TRY(ech_tbuiltin_call(vm, node->builtin, &c, ret));
    ech_tvm_leave(vm);
    return ECH_OK;
}

/* A break inside the block leaves it without assigning, like the jump it is in Python. */
static ech_status exec_set_block(ech_tvm *const vm, ech_tframe *const f,
                                 const ech_tnode *const node)
{
    ech_tval text;
    ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
    ECH_TRY(capture(vm, f, node->body, &text));
    if (vm->flow != ECH_TFLOW_NEXT) return ECH_OK;
    vm->at = node;
    if (node->b != NULL) ECH_TRY(apply_filters(vm, f, node->b, text, &text));
    ECH_TRY(ech_tassign(vm, f, node->a, text, node->is_toplevel));
    leave_scope(f, &node->scope);
    return ECH_OK;
}

/* Jinja puts what a filter or call block gives among its strings as it is: nothing else will do. */
static ech_status print_text(ech_tvm *const vm, const ech_tval v)
{
    if (v.kind != ECH_T_STR) {
        return ech_tvm_raise(vm, "expected str instance, %s found", ech_tv_type(v));
    }
    return ech_tbuild_str(vm->out, v.as.str);
}

static ech_status exec_filter_block(ech_tvm *const vm, ech_tframe *const f,
                                    const ech_tnode *const node)
{
    ech_tval text;
    ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
    ECH_TRY(capture(vm, f, node->body, &text));
    if (vm->flow != ECH_TFLOW_NEXT) return ECH_OK;
    vm->at = node;
    ECH_TRY(apply_filters(vm, f, node->a, text, &text));
    leave_scope(f, &node->scope);
    return print_text(vm, text);
}

/*
 * Values are computed in the outer scope and in order; the targets are the inner scope's slots, so
 * `with a = 1, b = a` reads the a outside.
 */
static ech_status exec_with(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
    for (size_t i = 0; i < node->list.n; i++) {
        ech_tval v;
        ECH_TRY(ech_teval(vm, f, node->defaults.items[i], &v));
        ECH_TRY(ech_tassign(vm, f, node->list.items[i], v, false));
    }
    ECH_TRY(ech_texec(vm, f, node->body));
    leave_scope(f, &node->scope);
    return ECH_OK;
}

/* ---- output and branches ---- */

static ech_status exec_output(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    for (size_t i = 0; i < node->list.n; i++) {
        ech_tval v;
        ECH_TRY(ech_teval(vm, f, node->list.items[i], &v));
        vm->at = node->list.items[i];
        ECH_TRY(ech_tv_print(vm->out, v));
    }
    return ECH_OK;
}

static ech_status exec_if(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    ech_tval test;
    ECH_TRY(ech_teval(vm, f, node->a, &test));
    if (ech_tv_truth(test)) return ech_texec(vm, f, node->body);
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(ech_teval(vm, f, node->list.items[i]->a, &test));
        if (ech_tv_truth(test)) return ech_texec(vm, f, node->list.items[i]->body);
    }
    return ech_texec(vm, f, node->orelse);
}

/* ---- loops ---- */

typedef struct loop_test {
    const ech_tnode *node;
    ech_tframe *frame;
} loop_test;

/*
 * The target as it was assigned: a tuple for `for a, b in`. The generated Python yields the target
 * expression after the test, not the item it came from, so a tuple is built anew from the slots.
 */
static ech_status target_value(ech_tvm *const vm, ech_tframe *const f,
                               const ech_tnode *const target, const ech_tval item,
                               ech_tval *const ret)
{
    if (target->kind != ECH_N_TUPLE) {
        *ret = item;
        return ECH_OK;
    }
    ech_tseq *seq;
    ECH_TRY(ech_tseq_new(vm, target->list.n, &seq));
    for (size_t i = 0; i < target->list.n; i++) {
        const ech_tnode *const part = target->list.items[i];
        ech_tval v = { 0 };
        if (part->kind == ECH_N_TUPLE)
            ECH_TRY(target_value(vm, f, part, item, &v));
        else
            v = f->slots[part->ref.slot];
        ECH_TRY(ech_tseq_push(vm, seq, v));
    }
    *ret = ech_tv_seq(ECH_T_TUPLE, seq);
    return ECH_OK;
}

/*
 * The next item that passes `for … if test`. Lazy: the test of an item runs when the loop asks for
 * it, between two iterations of the body.
 */
static ech_status next_tested(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    const loop_test *const t = it->state;
    for (;;) {
        ech_tval item, holds;
        ECH_TRY(ech_titer_next(vm, it->inner, &item));
        *ret = item;
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(ech_tassign(vm, t->frame, t->node->test_target, item, false));
        ECH_TRY(ech_teval(vm, t->frame, t->node->c, &holds));
        if (ech_tv_truth(holds)) return target_value(vm, t->frame, t->node->test_target, item, ret);
    }
}

/*
 * The test has a frame of its own, because it is a generator function in jinja2: what it assigns is
 * not seen by the body.
 */
static ech_status with_test(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const iterable)
{
    loop_test *t;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *t, &t));
    t->node = node;
    ECH_TRY(ech_tframe_new(vm, node->test_code, f, &t->frame));
    ECH_TRY(ech_tscope_enter(vm, t->frame, &node->test_scope));
    return ech_titer_generator(vm, ECH_TITER_TEST, *iterable, next_tested, t, iterable);
}

/* after holds an item that was read ahead for `last` or `nextitem`; it is given out first. */
static ech_status loop_advance(ech_tvm *const vm, ech_tloop *const loop, ech_tval *const ret)
{
    if (loop->after.kind != ECH_T_ABSENT) {
        *ret = loop->after;
        loop->after = (ech_tval){ .kind = ECH_T_ABSENT };
    } else {
        ECH_TRY(ech_titer_next(vm, loop->iter, ret));
        if (ret->kind == ECH_T_ABSENT) return ECH_OK;
    }
    loop->index0++;
    loop->before = loop->current;
    loop->current = *ret;
    return ECH_OK;
}

/*
 * Runs a loop over iterable in frame f, whose scope is the loop's. The else part runs when no
 * iteration came to its end, which is what Jinja does: a loop whose iterations all `continue`
 * counts as empty. The scope is entered anew for each iteration: what an iteration sets is gone in
 * the next. `loop` itself is a slot only where the body reads it.
 */
static ech_status run_loop(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                           ech_tval iterable, const int64_t depth0)
{
    ech_tloop *loop;
    bool completed = false;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *loop, &loop));
    if (node->c != NULL) ECH_TRY(with_test(vm, node->flag ? f->up : f, node, &iterable));
    *loop = (ech_tloop){ .iterable = iterable,
                         .index0 = -1,
                         .length = -1,
                         .depth0 = depth0,
                         .up = f->up,
                         .recursive = node->flag ? node : NULL };
    ECH_TRY(ech_titer_open(vm, iterable, &loop->iter));
    for (;;) {
        ech_tval item;
        vm->at = node;
        ECH_TRY(loop_advance(vm, loop, &item));
        if (item.kind == ECH_T_ABSENT) break;
        ECH_TRY(ech_tassign(vm, f, node->a, item, false));
        if (node->uses_loop)
            f->slots[node->slot] = (ech_tval){ .kind = ECH_T_LOOP, .as.loop = loop };
        ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
        ECH_TRY(ech_texec(vm, f, node->body));
        const int flow = vm->flow;
        vm->flow = ECH_TFLOW_NEXT;
        if (flow == ECH_TFLOW_BREAK) break;
        if (flow == ECH_TFLOW_NEXT) completed = true;
    }
    leave_scope(f, &node->scope);
    if (completed || node->orelse.n == 0) return ECH_OK;
    ECH_TRY(ech_tscope_enter(vm, f, &node->else_scope));
    ECH_TRY(ech_texec(vm, f, node->orelse));
    leave_scope(f, &node->else_scope);
    return ECH_OK;
}

/* A recursive loop is a function that gives text. */
static ech_status run_recursive(ech_tvm *const vm, ech_tframe *const up,
                                const ech_tnode *const node, const ech_tval iterable,
                                const int64_t depth0, ech_tval *const ret)
{
    ech_tframe *f;
    ech_tbuild text = { .vm = vm, .max_len = vm->max_output };
    ech_tbuild *const before = vm->out;
    ECH_TRY(ech_tframe_new(vm, node->code, up, &f));
    vm->out = &text;
    ECH_TRY(run_loop(vm, f, node, iterable, depth0));
    vm->out = before;
    return ech_tbuild_done(&text, ret);
}

static ech_status exec_for(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    ech_tval iterable, text;
    ECH_TRY(ech_teval(vm, f, node->b, &iterable));
    if (!node->flag) return run_loop(vm, f, node, iterable, 0);
    ECH_TRY(run_recursive(vm, f, node, iterable, 0, &text));
    return ech_tv_print(vm->out, text);
}

/* Recursion by the template's own data (nested lists): ech_tvm_enter is what bounds it. */
ech_status ech_tloop_call(ech_tvm *const vm, ech_tloop *const loop, ech_tcall *const c,
                          ech_tval *const ret)
{
    if (loop->recursive == NULL)
        return ech_tvm_raise(vm,
                             "the loop must have the 'recursive' marker to be called recursively");
    if (c->n_pos != 1 || c->n_kw != 0) return ech_tvm_raise(vm, "loop() takes one argument");
    ECH_TRY(ech_tvm_enter(vm));
    ECH_TRY(run_recursive(vm, loop->up, loop->recursive, c->pos[0], loop->depth0 + 1, ret));
    ech_tvm_leave(vm);
    return ECH_OK;
}

/* ---- the loop variable ---- */

static ech_status loop_length(ech_tvm *const vm, ech_tloop *const loop, int64_t *const ret)
{
    if (loop->length < 0) {
        size_t n;
        if (ech_tv_has_len(loop->iterable)) {
            ECH_TRY(ech_tv_len(vm, loop->iterable, &n));
            loop->length = (int64_t)n;
        } else {
            /* What is left is read now, and given out later from a list. */
            ech_tseq *rest;
            const ech_tval source = { .kind = ECH_T_ITER, .as.iter = loop->iter };
            ECH_TRY(ech_tv_to_list(vm, source, &rest));
            ECH_TRY(ech_titer_open(vm, ech_tv_seq(ECH_T_LIST, rest), &loop->iter));
            loop->length = (int64_t)rest->n + loop->index0 + 1 + (loop->after.kind != ECH_T_ABSENT);
        }
    }
    *ret = loop->length;
    return ECH_OK;
}

static ech_status loop_peek(ech_tvm *const vm, ech_tloop *const loop)
{
    if (loop->after.kind != ECH_T_ABSENT) return ECH_OK;
    return ech_titer_next(vm, loop->iter, &loop->after);
}

static ech_status loop_cycle(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    if (c->n_kw > 0) return ech_tvm_raise(vm, "cycle() got an unexpected keyword argument");
    if (c->n_pos == 0) return ech_tvm_raise(vm, "no items for cycling given");
    *ret = c->pos[(size_t)c->self.as.loop->index0 % c->n_pos];
    return ECH_OK;
}

/* Compared as a tuple of all arguments; the first call says changed. */
static ech_status loop_changed(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tloop *const loop = c->self.as.loop;
    ech_tseq *seq;
    bool same = false;
    if (c->n_kw > 0) return ech_tvm_raise(vm, "changed() got an unexpected keyword argument");
    ECH_TRY(ech_tseq_new(vm, c->n_pos, &seq));
    for (size_t i = 0; i < c->n_pos; i++) {
        ECH_TRY(ech_tseq_push(vm, seq, c->pos[i]));
    }
    const ech_tval now = ech_tv_seq(ECH_T_TUPLE, seq);
    if (loop->changed.kind != ECH_T_ABSENT) ECH_TRY(ech_tv_equal(vm, loop->changed, now, &same));
    loop->changed = now;
    *ret = ech_tv_bool(!same);
    return ECH_OK;
}

static ech_status loop_method(ech_tvm *const vm, const ech_tval loop, const ech_tbuiltin *const b,
                              ech_tval *const ret)
{
    ech_tfunc *fn;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *fn, &fn));
    *fn = (ech_tfunc){ .b = b, .self = loop };
    *ret = (ech_tval){ .kind = ECH_T_FUNC, .as.func = fn };
    return ECH_OK;
}

static ech_status loop_neighbour(ech_tvm *const vm, ech_tloop *const loop, const bool next,
                                 ech_tval *const ret)
{
    if (!next) {
        if (loop->index0 == 0) return ech_tv_undef_hint(vm, "there is no previous item", ret);
        *ret = loop->before;
        return ECH_OK;
    }
    ECH_TRY(loop_peek(vm, loop));
    if (loop->after.kind == ECH_T_ABSENT)
        return ech_tv_undef_hint(vm, "there is no next item", ret);
    *ret = loop->after;
    return ECH_OK;
}

/*
 * index0 is -1 before the first item, but the attributes can only be asked for inside the body. An
 * unknown name is ABSENT, which the caller makes undefined.
 */
ech_status ech_tloop_attr(ech_tvm *const vm, const ech_tval v, const ech_tstr *const name,
                          ech_tval *const ret)
{
    static const ech_tbuiltin cycle = { "cycle", loop_cycle, NULL },
                              changed = { "changed", loop_changed, NULL };
    ech_tloop *const loop = v.as.loop;
    int64_t n;
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    if (ech_tstr_is(name, "index"))
        *ret = ech_tv_int(loop->index0 + 1);
    else if (ech_tstr_is(name, "index0"))
        *ret = ech_tv_int(loop->index0);
    else if (ech_tstr_is(name, "first"))
        *ret = ech_tv_bool(loop->index0 == 0);
    else if (ech_tstr_is(name, "depth"))
        *ret = ech_tv_int(loop->depth0 + 1);
    else if (ech_tstr_is(name, "depth0"))
        *ret = ech_tv_int(loop->depth0);
    else if (ech_tstr_is(name, "previtem"))
        return loop_neighbour(vm, loop, false, ret);
    else if (ech_tstr_is(name, "nextitem"))
        return loop_neighbour(vm, loop, true, ret);
    else if (ech_tstr_is(name, "cycle"))
        return loop_method(vm, v, &cycle, ret);
    else if (ech_tstr_is(name, "changed"))
        return loop_method(vm, v, &changed, ret);
    else if (ech_tstr_is(name, "last")) {
        ECH_TRY(loop_peek(vm, loop));
        *ret = ech_tv_bool(loop->after.kind == ECH_T_ABSENT);
    } else if (ech_tstr_is(name, "length") || ech_tstr_is(name, "revindex") ||
               ech_tstr_is(name, "revindex0")) {
        ECH_TRY(loop_length(vm, loop, &n));
        if (ech_tstr_is(name, "length"))
            *ret = ech_tv_int(n);
        else
            *ret = ech_tv_int(n - loop->index0 - (ech_tstr_is(name, "revindex0") ? 1 : 0));
    }
    return ECH_OK;
}

/* ---- macros ---- */

/*
 * Gives the declared parameters their values; used[k] tells which keywords were taken. A positional
 * argument wins without a word; the keyword of the same name is then left over and refused by
 * bind_rest. used[] has room for c->n_kw entries.
 */
static void bind_params(ech_tframe *const f, const ech_tnode *const node, const ech_tcall *const c,
                        bool *const used)
{
    const ech_tcode *const code = node->code;
    for (size_t i = 0; i < code->n_params; i++) {
        ech_tval v = { .kind = ECH_T_ABSENT };
        if (i < c->n_pos) {
            v = c->pos[i];
        } else {
            const ech_tname *const name = node->list.items[i]->name;
            for (size_t k = 0; k < c->n_kw; k++) {
                if (c->kw[k].len != name->len || memcmp(c->kw[k].name, name->ptr, name->len) != 0)
                    continue;
                v = c->kw[k].value;
                used[k] = true;
            }
        }
        f->slots[code->params[i]] = v;
    }
}

/*
 * In order, in the macro's own frame, so a default may read the parameters before it. A parameter
 * without one is undefined with its name, and fails when it is used, not when the macro is called.
 */
static ech_status fill_defaults(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    const ech_tcode *const code = node->code;
    const size_t required = code->n_params - node->defaults.n;
    for (size_t i = 0; i < code->n_params; i++) {
        ech_tval *const slot = &f->slots[code->params[i]];
        if (slot->kind != ECH_T_ABSENT) continue;
        if (i >= required)
            ECH_TRY(ech_teval(vm, f, node->defaults.items[i - required], slot));
        else
            ECH_TRY(ech_tv_undef_name(vm, node->list.items[i]->name->ptr,
                                      node->list.items[i]->name->len, slot));
    }
    return ECH_OK;
}

/* A caller of none (the keyword given as none) counts as no caller. */
static ech_status bind_caller(ech_tvm *const vm, ech_tframe *const f, const ech_tcode *const code,
                              const ech_tcall *const c, bool *const used)
{
    ech_tval v;
    ECH_TRY(ech_tv_undef_hint(vm, "no caller defined", &v));
    for (size_t k = 0; k < c->n_kw; k++) {
        if (c->kw[k].len != 6 || memcmp(c->kw[k].name, "caller", 6) != 0) continue;
        used[k] = true;
        if (c->kw[k].value.kind != ECH_T_NONE) v = c->kw[k].value;
    }
    f->slots[code->caller_slot] = v;
    return ECH_OK;
}

/* What is left over: to kwargs and varargs where the body reads them, else an error. */
static ech_status bind_rest(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            const ech_tcall *const c, const bool *const used)
{
    const ech_tcode *const code = node->code;
    ech_tdict *rest;
    ECH_TRY(ech_tdict_new(vm, &rest));
    for (size_t k = 0; k < c->n_kw; k++) {
        ech_tval key;
        if (used[k]) continue;
        if (!code->has_kwargs)
            return ech_tvm_raise(vm, "the macro takes no keyword argument '%.*s'",
                                 (int)c->kw[k].len, c->kw[k].name);
        ECH_TRY(ech_tv_view(vm, c->kw[k].name, c->kw[k].len, false, &key));
        ECH_TRY(ech_tdict_set(vm, rest, key, c->kw[k].value));
    }
    if (code->has_kwargs) f->slots[code->kwargs_slot] = ech_tv_dict(rest);
    if (c->n_pos > code->n_params && !code->has_varargs) {
        return ech_tvm_raise(vm, "the macro takes not more than %zu argument(s)", code->n_params);
    }
    if (!code->has_varargs) return ECH_OK;
    ech_tseq *more;
    ECH_TRY(ech_tseq_new(vm, 0, &more));
    for (size_t i = code->n_params; i < c->n_pos; i++) {
        ECH_TRY(ech_tseq_push(vm, more, c->pos[i]));
    }
    f->slots[code->varargs_slot] = ech_tv_seq(ECH_T_TUPLE, more);
    return ECH_OK;
}

/*
 * Its frame's up is the frame of the definition, not of the call: closures, as in Python.
 * Parameters come before the scope is entered, defaults after it, because defaults may read names
 * that the scope loads.
 */
ech_status ech_tmacro_call(ech_tvm *const vm, const ech_tmacro *const m, ech_tcall *const c,
                           ech_tval *const ret)
{
    const ech_tnode *const node = m->node;
    ech_tframe *f;
    bool *used;
    ECH_TRY(ech_tvm_enter(vm));
    ECH_TRY(ech_tframe_new(vm, node->code, m->up, &f));
    ECH_TRY(ech_tvm_alloc(vm, c->n_kw + 1, sizeof *used, &used));
    bind_params(f, node, c, used);
    if (node->code->has_caller && !node->code->explicit_caller)
        ECH_TRY(bind_caller(vm, f, node->code, c, used));
    ECH_TRY(bind_rest(vm, f, node, c, used));
    ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
    ECH_TRY(fill_defaults(vm, f, node));
    ECH_TRY(capture(vm, f, node->body, ret));
    ech_tvm_leave(vm);
    return ECH_OK;
}

static ech_status new_macro(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const ret)
{
    ech_tmacro *m;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *m, &m));
    *m = (ech_tmacro){ .node = node, .up = f };
    *ret = (ech_tval){ .kind = ECH_T_MACRO, .as.macro = m };
    return ECH_OK;
}

static ech_status exec_macro(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    ech_tval macro, key;
    ECH_TRY(new_macro(vm, f, node, &macro));
    f->slots[node->slot] = macro;
    if (!node->is_toplevel) return ECH_OK;
    ECH_TRY(ech_tv_view(vm, node->name->ptr, node->name->len, false, &key));
    return ech_tdict_set(vm, vm->vars, key, macro);
}

/* The block's body becomes a macro that is handed over as the keyword `caller`. */
static ech_status exec_call_block(ech_tvm *const vm, ech_tframe *const f,
                                  const ech_tnode *const node)
{
    ech_tval caller, callee, text;
    ech_tcall c = { 0 };
    ECH_TRY(new_macro(vm, f, node, &caller));
    ECH_TRY(ech_teval(vm, f, node->a->a, &callee));
    ECH_TRY(ech_teval_args(vm, f, node->a, &c));
    ECH_TRY(ech_tcall_push_kw(vm, &c, "caller", 6, caller));
    ECH_TRY(ech_tcall_value(vm, callee, &c, &text));
    return print_text(vm, text);
}

static ech_status exec_generation(ech_tvm *const vm, ech_tframe *const f,
                                  const ech_tnode *const node)
{
    ech_tval text;
    ech_tcall c = { 0 };
    const ech_tmacro body = { .node = node, .up = f };
    ECH_TRY(ech_tmacro_call(vm, &body, &c, &text));
    return ech_tv_print(vm->out, text);
}

/* No frame above it: a block sees exported names and arguments only. */
static ech_status exec_block(ech_tvm *const vm, const ech_tnode *const node)
{
    ech_tframe *f;
    ECH_TRY(ech_tframe_new(vm, node->code, NULL, &f));
    ECH_TRY(ech_tscope_enter(vm, f, &node->scope));
    return ech_texec(vm, f, node->body);
}

/* ---- all of them ---- */

static ech_status exec_node(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node)
{
    switch (node->kind) {
    case ECH_N_DATA:
        return ech_tbuild_str(vm->out, node->value.as.str);
    case ECH_N_OUTPUT:
        return exec_output(vm, f, node);
    case ECH_N_IF:
        return exec_if(vm, f, node);
    case ECH_N_FOR:
        return exec_for(vm, f, node);
    case ECH_N_SET:
        return exec_set(vm, f, node);
    case ECH_N_SET_BLOCK:
        return exec_set_block(vm, f, node);
    case ECH_N_MACRO:
        return exec_macro(vm, f, node);
    case ECH_N_CALL_BLOCK:
        return exec_call_block(vm, f, node);
    case ECH_N_GENERATION:
        return exec_generation(vm, f, node);
    case ECH_N_FILTER_BLOCK:
        return exec_filter_block(vm, f, node);
    case ECH_N_WITH:
        return exec_with(vm, f, node);
    case ECH_N_BLOCK:
        return exec_block(vm, node);
    case ECH_N_BREAK:
        vm->flow = ECH_TFLOW_BREAK;
        return ECH_OK;
    case ECH_N_CONTINUE:
        vm->flow = ECH_TFLOW_CONTINUE;
        return ECH_OK;
    default:
        return ech_tvm_fail(vm, ECH_EINTERNAL, "an expression where a statement should be");
    }
}

/* A break or continue ends the list by vm->flow, and every list around it up to the loop. */
ech_status ech_texec(ech_tvm *const vm, ech_tframe *const f, const ech_tnodes body)
{
    for (size_t i = 0; i < body.n && vm->flow == ECH_TFLOW_NEXT; i++) {
        ECH_TRY(ech_tvm_enter(vm));
        vm->at = body.items[i];
        ECH_TRY(exec_node(vm, f, body.items[i]));
        ech_tvm_leave(vm);
    }
    return ECH_OK;
}
