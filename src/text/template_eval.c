/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions.
 *
 * Invariant: vm->at is the innermost node being evaluated, so that whatever fails below has a
 * position. Constants of the tree are shared by renderings and never written.
 *
 * The reference is the Python that jinja2 generates: order of evaluation and what is
 * short-circuited are its. Recursion is one ech_teval per level of the tree, and each one is
 * counted (ech_tvm_enter). Left out: what operators and attributes do (template_ops.c,
 * template_attr.c).
 */
#include <math.h>

#include "src/text/template_builtin.h"

/* hops are functions outwards; the scope pass has made sure that they exist. */
static ech_tval *slot_at(ech_tframe *f, const ech_tref ref)
{
    for (uint32_t i = 0; i < ref.hops; i++) {
        f = f->up;
    }
    return &f->slots[ref.slot];
}

/*
 * A slot that is ABSENT was never set, or its scope is over: the name is undefined, and remembers
 * itself for the error message.
 */
static ech_status eval_name(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const ret)
{
    *ret = *slot_at(f, node->ref);
    if (ret->kind != ECH_T_ABSENT) return ECH_OK;
    return ech_tv_undef_name(vm, node->name->ptr, node->name->len, ret);
}

/* n grows as items are done, so that a list whose making fails never shows unset ones. */
static ech_status eval_sequence(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                                ech_tval *const ret)
{
    ech_tseq *seq;
    ECH_TRY(ech_tseq_new(vm, node->list.n, &seq));
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(ech_teval(vm, f, node->list.items[i], &seq->items[i]));
        seq->n++;
    }
    *ret = ech_tv_seq(node->kind == ECH_N_TUPLE ? ECH_T_TUPLE : ECH_T_LIST, seq);
    return ECH_OK;
}

/*
 * Keys and values alternate in the node's list. A repeated key keeps its first place and its last
 * value.
 */
static ech_status eval_dict(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const ret)
{
    ech_tdict *d;
    ECH_TRY(ech_tdict_new(vm, &d));
    for (size_t i = 0; i < node->list.n; i += 2) {
        ech_tval key, value;
        ECH_TRY(ech_teval(vm, f, node->list.items[i], &key));
        ECH_TRY(ech_teval(vm, f, node->list.items[i + 1], &value));
        ECH_TRY(ech_tdict_set(vm, d, key, value));
    }
    *ret = ech_tv_dict(d);
    return ECH_OK;
}

/*
 * flag: a power of a constant base and a computed exponent. Jinja writes such a base out for
 * Python, where `-1 ** x` is -(1 ** x); so the sign of a negative one is applied to the result.
 */
static ech_status eval_binary(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                              ech_tval *const ret)
{
    ech_tval a, b;
    ECH_TRY(ech_teval(vm, f, node->a, &a));
    ECH_TRY(ech_teval(vm, f, node->b, &b));
    vm->at = node;
    const bool is_flipped =
        node->flag && (a.kind == ECH_T_FLOAT ? signbit(a.as.f) : ech_tv_as_int(a) < 0);
    if (!is_flipped) return ech_tv_binary(vm, (ech_top)node->op, a, b, ret);
    ECH_TRY(ech_tv_negate(vm, a, true, &a));
    ECH_TRY(ech_tv_binary(vm, (ech_top)node->op, a, b, &a));
    return ech_tv_negate(vm, a, true, ret);
}

/* Only `not` looks at truth: + and - of a boolean give a number, as in Python. */
static ech_status eval_unary(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                             ech_tval *const ret)
{
    ech_tval a;
    ECH_TRY(ech_teval(vm, f, node->a, &a));
    vm->at = node;
    if (node->kind != ECH_N_NOT) return ech_tv_negate(vm, a, node->kind == ECH_N_NEG, ret);
    *ret = ech_tv_bool(!ech_tv_truth(a));
    return ECH_OK;
}

/* and, or: the value that decided, not a boolean; the other side is not even looked at. */
static ech_status eval_logic(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                             ech_tval *const ret)
{
    ECH_TRY(ech_teval(vm, f, node->a, ret));
    if (ech_tv_truth(*ret) == (node->kind == ECH_N_OR)) return ECH_OK;
    return ech_teval(vm, f, node->b, ret);
}

/* a < b < c: each operand is evaluated once, and none after the first that fails. */
static ech_status eval_compare(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                               ech_tval *const ret)
{
    ech_tval left, right;
    bool holds = true;
    ECH_TRY(ech_teval(vm, f, node->a, &left));
    for (size_t i = 0; i < node->list.n && holds; i++) {
        const ech_tnode *const operand = node->list.items[i];
        ECH_TRY(ech_teval(vm, f, operand->a, &right));
        vm->at = node;
        ECH_TRY(ech_tv_compare(vm, (ech_top)operand->op, left, right, &holds));
        left = right;
    }
    *ret = ech_tv_bool(holds);
    return ECH_OK;
}

/* `~` turns every operand into text, undefined ones into nothing. */
static ech_status eval_concat(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                              ech_tval *const ret)
{
    ech_tval v, text = { 0 };
    for (size_t i = 0; i < node->list.n; i++) {
        ech_tstr *s;
        ECH_TRY(ech_teval(vm, f, node->list.items[i], &v));
        vm->at = node;
        ECH_TRY(ech_tv_to_str(vm, v, false, &s));
        /* Onto the first one's memory where that is free, as `s ~ x` in a loop wants. */
        if (i == 0)
            text = ech_tv_str(s);
        else
            ECH_TRY(ech_tstr_concat(vm, text.as.str, s, &text));
    }
    *ret = text;
    return ECH_OK;
}

static ech_status eval_cond(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const ret)
{
    ech_tval test;
    ECH_TRY(ech_teval(vm, f, node->a, &test));
    if (ech_tv_truth(test)) return ech_teval(vm, f, node->b, ret);
    if (node->c != NULL) return ech_teval(vm, f, node->c, ret);
    return ech_tv_undef_hint(
        vm, "the inline if-expression evaluated to false and no else section was defined", ret);
}

/* ---- calls ---- */

ech_status ech_tcall_push(ech_tvm *const vm, ech_tcall *const c, const ech_tval v)
{
    if (c->n_pos == c->pos_cap) {
        const size_t cap = c->pos_cap == 0 ? 4 : c->pos_cap * 2;
        ech_tval *pos;
        ECH_TRY(ech_tvm_alloc(vm, cap, sizeof *pos, &pos));
        if (c->n_pos > 0) memcpy(pos, c->pos, c->n_pos * sizeof *pos);
        c->pos = pos;
        c->pos_cap = cap;
    }
    c->pos[c->n_pos++] = v;
    return ECH_OK;
}

/* name is borrowed; it lives in the tree or in a string of this rendering. */
ech_status ech_tcall_push_kw(ech_tvm *const vm, ech_tcall *const c, const char *const name,
                             const size_t len, const ech_tval v)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        if (c->kw[i].len == len && memcmp(c->kw[i].name, name, len) == 0) {
            return ech_tvm_raise(vm, "got multiple values for keyword argument '%.*s'", (int)len,
                                 name);
        }
    }
    if (c->n_kw == c->kw_cap) {
        const size_t cap = c->kw_cap == 0 ? 4 : c->kw_cap * 2;
        ech_tkw *kw;
        ECH_TRY(ech_tvm_alloc(vm, cap, sizeof *kw, &kw));
        if (c->n_kw > 0) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
        c->kw = kw;
        c->kw_cap = cap;
    }
    c->kw[c->n_kw++] = (ech_tkw){ name, len, v };
    return ECH_OK;
}

const ech_tval *ech_tcall_kw(const ech_tcall *const c, const char *const name)
{
    const size_t len = strlen(name);
    for (size_t i = 0; i < c->n_kw; i++) {
        if (c->kw[i].len == len && memcmp(c->kw[i].name, name, len) == 0) return &c->kw[i].value;
    }
    return NULL;
}

/* Any iterable may follow the star; each step is charged. */
static ech_status add_dyn_args(ech_tvm *const vm, const ech_tval v, ech_tcall *const c)
{
    ech_titer *it;
    ECH_TRY(ech_titer_open(vm, v, &it));
    for (;;) {
        ech_tval item;
        ECH_TRY(ech_titer_next(vm, it, &item));
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(ech_tcall_push(vm, c, item));
    }
}

static ech_status add_dyn_kwargs(ech_tvm *const vm, const ech_tval v, ech_tcall *const c)
{
    if (v.kind != ECH_T_DICT)
        return ech_tvm_raise(vm, "argument after ** must be a mapping, not %s", ech_tv_type(v));
    for (size_t i = 0; i < v.as.dict->n; i++) {
        const ech_tentry *const e = &v.as.dict->entries[i];
        if (e->key.kind != ECH_T_STR) return ech_tvm_raise(vm, "keywords must be strings");
        ECH_TRY(ech_tcall_push_kw(vm, c, e->key.as.str->ptr, e->key.as.str->len, e->value));
    }
    return ECH_OK;
}

/* Written arguments first, then * and ** as Python does, whatever their place in the source. */
ech_status ech_teval_args(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                          ech_tcall *const c)
{
    ech_tval v;
    for (size_t i = 0; i < node->args.n; i++) {
        ECH_TRY(ech_teval(vm, f, node->args.items[i], &v));
        ECH_TRY(ech_tcall_push(vm, c, v));
    }
    for (size_t i = 0; i < node->kwargs.n; i++) {
        const ech_tnode *const kw = node->kwargs.items[i];
        ECH_TRY(ech_teval(vm, f, kw->a, &v));
        ECH_TRY(ech_tcall_push_kw(vm, c, kw->name->ptr, kw->name->len, v));
    }
    vm->at = node;
    if (node->dyn_args != NULL) {
        ECH_TRY(ech_teval(vm, f, node->dyn_args, &v));
        ECH_TRY(add_dyn_args(vm, v, c));
    }
    if (node->dyn_kwargs != NULL) {
        ECH_TRY(ech_teval(vm, f, node->dyn_kwargs, &v));
        ECH_TRY(add_dyn_kwargs(vm, v, c));
    }
    vm->at = node;
    return ECH_OK;
}

/*
 * The next name of a parameter list; NULL at its end. A builtin's parameters are one string,
 * "!width ?fillchar": "!" at the front for positional only, "?" before those that may be missing.
 */
static const char *next_param(const char *spec, size_t *const ret_len, bool *const ret_optional)
{
    while (*spec == ' ' || *spec == '!') {
        spec++;
    }
    *ret_optional = *spec == '?';
    if (*ret_optional) spec++;
    *ret_len = strcspn(spec, " ");
    return *ret_len == 0 ? NULL : spec;
}

static size_t use_keyword(const ech_tcall *const c, const char *const name, const size_t len,
                          ech_tval *const ret)
{
    for (size_t i = 0; i < c->n_kw; i++) {
        if (c->kw[i].len == len && memcmp(c->kw[i].name, name, len) == 0) {
            *ret = c->kw[i].value;
            return 1;
        }
    }
    return 0;
}

/*
 * c->a[] gets the arguments in the order of the parameters, ABSENT for those not given. Every
 * keyword must have been used by the end.
 */
static ech_status bind(ech_tvm *const vm, const ech_tbuiltin *const b, ech_tcall *const c)
{
    size_t n = 0, used_kw = 0, len;
    bool optional;
    const bool positional_only = b->params[0] == '!';
    for (const char *p = next_param(b->params, &len, &optional); p != NULL;
         p = next_param(p + len, &len, &optional), n++) {
        ech_tval kw = { .kind = ECH_T_ABSENT };
        const size_t found = positional_only ? 0 : use_keyword(c, p, len, &kw);
        if (found > 0 && n < c->n_pos) {
            return ech_tvm_raise(vm, "%s() got multiple values for argument '%.*s'", b->name,
                                 (int)len, p);
        }
        used_kw += found;
        c->a[n] = n < c->n_pos ? c->pos[n] : kw;
        if (c->a[n].kind == ECH_T_ABSENT && !optional) {
            return ech_tvm_raise(vm, "%s() missing required argument: '%.*s'", b->name, (int)len,
                                 p);
        }
    }
    if (c->n_pos > n)
        return ech_tvm_raise(vm, "%s() takes at most %zu arguments (%zu given)", b->name, n,
                             c->n_pos);
    if (used_kw < c->n_kw)
        return ech_tvm_raise(vm, "%s() got an unexpected keyword argument", b->name);
    return ECH_OK;
}

ech_status ech_tbuiltin_call(ech_tvm *const vm, const ech_tbuiltin *const b, ech_tcall *const c,
                             ech_tval *const ret)
{
    ECH_TRY(ech_tvm_enter(vm));
    if (b->params != NULL) ECH_TRY(bind(vm, b, c));
    ECH_TRY(b->fn(vm, c, ret));
    ech_tvm_leave(vm);
    return ECH_OK;
}

/* A method of a Markup gives Markup again, as markupsafe wraps them all. */
ech_status ech_tcall_value(ech_tvm *const vm, const ech_tval callee, ech_tcall *const c,
                           ech_tval *const ret)
{
    switch (callee.kind) {
    case ECH_T_FUNC:
        c->self = callee.as.func->self;
        ECH_TRY(ech_tbuiltin_call(vm, callee.as.func->b, c, ret));
        if (c->self.kind != ECH_T_STR || !c->self.as.str->is_markup) return ECH_OK;
        return ech_tv_mark_result(vm, ret);
    case ECH_T_MACRO:
        return ech_tmacro_call(vm, callee.as.macro, c, ret);
    case ECH_T_LOOP:
        return ech_tloop_call(vm, callee.as.loop, c, ret);
    case ECH_T_JOINER:
        if (c->n_pos + c->n_kw > 0) return ech_tvm_raise(vm, "a joiner takes no arguments");
        if (callee.as.cycle->pos++ == 0) return ech_tv_lit(vm, "", ret);
        *ret = callee.as.cycle->items[0];
        return ECH_OK;
    case ECH_T_UNDEFINED:
        return ech_tvm_fail_undef(vm, callee.as.undef);
    default:
        return ech_tvm_raise(vm, "'%s' object is not callable", ech_tv_type(callee));
    }
}

static ech_status eval_call(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                            ech_tval *const ret)
{
    ech_tval callee;
    ech_tcall c = { 0 };
    ECH_TRY(ech_teval(vm, f, node->a, &callee));
    ECH_TRY(ech_teval_args(vm, f, node, &c));
    return ech_tcall_value(vm, callee, &c, ret);
}

/*
 * An unknown filter in a branch of an `if` fails only here, when the branch is taken (see is_soft
 * in template_scope.c).
 */
static ech_status eval_builtin(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                               ech_tval *const ret)
{
    ech_tcall c = { 0 };
    if (node->a != NULL) {
        ech_tval v;
        ECH_TRY(ech_teval(vm, f, node->a, &v));
        ECH_TRY(ech_tcall_push(vm, &c, v));
    } else {
        /* The text of a filter or set block, which the statement left in a[0]. */
        return ech_tvm_fail(vm, ECH_EINTERNAL, "a filter without input");
    }
    ECH_TRY(ech_teval_args(vm, f, node, &c));
    if (node->builtin == NULL) {
        return ech_tvm_raise(vm, "no %s named '%.80s' found",
                             node->kind == ECH_N_FILTER ? "filter" : "test", node->name->ptr);
    }
    return ech_tbuiltin_call(vm, node->builtin, &c, ret);
}

/* ---- subscripts ---- */

static ech_status eval_slice_part(ech_tvm *const vm, ech_tframe *const f,
                                  const ech_tnode *const node, ech_tval *const ret)
{
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    return node == NULL ? ECH_OK : ech_teval(vm, f, node, ret);
}

/* A slice's parts are evaluated after the object, ABSENT where they are not written. */
static ech_status eval_getitem(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                               ech_tval *const ret)
{
    ech_tval obj, key;
    ECH_TRY(ech_teval(vm, f, node->a, &obj));
    if (node->b->kind == ECH_N_SLICE) {
        ech_tslice s;
        ECH_TRY(eval_slice_part(vm, f, node->b->a, &s.start));
        ECH_TRY(eval_slice_part(vm, f, node->b->b, &s.stop));
        ECH_TRY(eval_slice_part(vm, f, node->b->c, &s.step));
        vm->at = node;
        const bool slices =
            obj.kind == ECH_T_STR || obj.kind == ECH_T_LIST || obj.kind == ECH_T_TUPLE;
        if (node->is_lenient && !slices)
            return ech_tv_undef_hint(vm, "the constant has no slices", ret);
        return ech_tv_slice_of(vm, obj, &s, ret);
    }
    ECH_TRY(ech_teval(vm, f, node->b, &key));
    vm->at = node;
    return ech_tv_item(vm, obj, key, ret);
}

/* a.b is an attribute first and an item second: a dict's methods hide keys of the same name. */
static ech_status eval_getattr(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                               ech_tval *const ret)
{
    ech_tval obj;
    ech_tstr name = { .ptr = node->name->ptr, .len = node->name->len, .n_chars = SIZE_MAX };
    ECH_TRY(ech_teval(vm, f, node->a, &obj));
    vm->at = node;
    if (obj.kind == ECH_T_DICT || obj.kind == ECH_T_NAMESPACE) {
        /* The usual case without making a string value of the name. */
        ech_tval found = { 0 };
        if (obj.kind == ECH_T_DICT) ECH_TRY(ech_tmethod_get(vm, obj, &name, &found));
        const ech_tval *const v =
            found.kind == ECH_T_ABSENT ? ech_tdict_get(obj.as.dict, name.ptr, name.len) : &found;
        if (v != NULL) {
            *ret = *v;
            return ECH_OK;
        }
    }
    ech_tval key;
    ECH_TRY(ech_tv_view(vm, name.ptr, name.len, false, &key));
    return ech_tv_attr(vm, obj, key, ret);
}

static ech_status eval_any(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                           ech_tval *const ret)
{
    switch (node->kind) {
    case ECH_N_CONST:
        *ret = node->value;
        return ECH_OK;
    case ECH_N_NAME:
        return eval_name(vm, f, node, ret);
    case ECH_N_TUPLE:
    case ECH_N_LIST:
        return eval_sequence(vm, f, node, ret);
    case ECH_N_DICT:
        return eval_dict(vm, f, node, ret);
    case ECH_N_BINARY:
        return eval_binary(vm, f, node, ret);
    case ECH_N_NEG:
    case ECH_N_POS:
    case ECH_N_NOT:
        return eval_unary(vm, f, node, ret);
    case ECH_N_AND:
    case ECH_N_OR:
        return eval_logic(vm, f, node, ret);
    case ECH_N_COMPARE:
        return eval_compare(vm, f, node, ret);
    case ECH_N_CONCAT:
        return eval_concat(vm, f, node, ret);
    case ECH_N_COND:
        return eval_cond(vm, f, node, ret);
    case ECH_N_FILTER:
    case ECH_N_TEST:
        return eval_builtin(vm, f, node, ret);
    case ECH_N_CALL:
        return eval_call(vm, f, node, ret);
    case ECH_N_GETATTR:
        return eval_getattr(vm, f, node, ret);
    case ECH_N_GETITEM:
        return eval_getitem(vm, f, node, ret);
    default:
        return ech_tvm_raise(vm, "a slice can only stand alone in a subscript");
    }
}

ech_status ech_teval(ech_tvm *const vm, ech_tframe *const f, const ech_tnode *const node,
                     ech_tval *const ret)
{
    ECH_TRY(ech_tvm_enter(vm));
    vm->at = node;
    ECH_TRY(eval_any(vm, f, node, ret));
    ech_tvm_leave(vm);
    return ECH_OK;
}
