/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes, subscripts and slices, and the methods of everything but str.
 *
 * x.name asks the object first and its keys second, x['name'] the other way round, as Jinja's
 * environment does. Both give an undefined value where there is nothing, so that `is defined` can
 * ask; only what is done with it fails.
 *
 * The sandbox stands here, Jinja's immutable one. A template reaches what the tables below list and
 * nothing else: there is no reflection, no name with a leading underscore, and the methods that
 * would change a list or dict are undefined, with a reason that the error names. Keys of a dict are
 * data and may be called anything.
 *
 * Invariant: no method here changes its object, but for a cycler's. That is why copies may share.
 *
 * Everything lives in the rendering's arena. Thread: the rendering's.
 */
#include "src/text/template_builtin.h"

/* The object is kept with the function, so `x.get` may be passed on and called later. */
ech_status ech_tv_func(ech_tvm *const vm, const ech_tbuiltin *const b, const ech_tval self,
                       ech_tval *const ret)
{
    ech_tfunc *fn;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *fn, &fn));
    *fn = (ech_tfunc){ .b = b, .self = self };
    *ret = (ech_tval){ .kind = ECH_T_FUNC, .as.func = fn };
    return ECH_OK;
}

/*
 * The tables are short: the first character and the length rule out nearly every row before the
 * bytes are compared. An empty name has no length in common with any.
 */
const ech_tbuiltin *ech_tbuiltin_in(const ech_tbuiltin *table, const char *const name,
                                    const size_t len)
{
    for (; table->name != NULL; table++) {
        if (table->name[0] == name[0] && strlen(table->name) == len &&
            memcmp(table->name, name, len) == 0)
            return table;
    }
    return NULL;
}

/* ---- dict ---- */

/*
 * Never undefined: what is absent is None or the given value, which a template can tell from a
 * value that is undefined. A key that is there with the value None gives None, too, and not the
 * default.
 */
static ech_status d_get(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ECH_TRY(ech_tdict_find(vm, c->self.as.dict, c->a[0], ret));
    if (ret->kind == ECH_T_ABSENT) *ret = c->a[1].kind == ECH_T_ABSENT ? ech_tv_none() : c->a[1];
    return ECH_OK;
}

/*
 * items(), keys() and values() are views in Python 3: they have a length and can be walked, but not
 * indexed. They look at the dict itself. Jinja's `[0]` on one is undefined, a mistake that
 * templates written for Python 2 make.
 */
static ech_status new_view(ech_tvm *const vm, const ech_tval dict, const ech_tview_kind kind,
                           ech_tval *const ret)
{
    ech_tview *v;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *v, &v));
    *v = (ech_tview){ .dict = dict.as.dict, .kind = kind };
    *ret = (ech_tval){ .kind = ECH_T_VIEW, .is_data = dict.is_data, .as.view = v };
    return ECH_OK;
}

static ech_status d_items(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_view(vm, c->self, ECH_TVIEW_ITEMS, ret);
}
static ech_status d_keys(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_view(vm, c->self, ECH_TVIEW_KEYS, ret);
}
static ech_status d_values(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_view(vm, c->self, ECH_TVIEW_VALUES, ret);
}

/*
 * A dict's and a list's copy(), which are new objects in Python. No method here can change either,
 * so the same one will do.
 */
static ech_status d_copy(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    *ret = c->self;
    return ECH_OK;
}

/*
 * Reached by a dict and by the function dict itself, as the class method it is in Python. A key
 * that comes twice keeps its first place.
 */
static ech_status d_fromkeys(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_titer *it;
    ech_tdict *d;
    ECH_TRY(ech_titer_open(vm, c->a[0], &it));
    ECH_TRY(ech_tdict_new(vm, &d));
    for (;;) {
        ech_tval key;
        ECH_TRY(ech_titer_next(vm, it, &key));
        if (key.kind == ECH_T_ABSENT) break;
        ECH_TRY(ech_tdict_set(vm, d, key, c->a[1].kind == ECH_T_ABSENT ? ech_tv_none() : c->a[1]));
    }
    *ret = ech_tv_dict(d);
    return ECH_OK;
}

static const ech_tbuiltin dict_methods[] = {
    { "copy", d_copy, "!" },
    { "fromkeys", d_fromkeys, "!iterable ?value" },
    { "get", d_get, "!key ?default" },
    { "items", d_items, "!" },
    { "keys", d_keys, "!" },
    { "values", d_values, "!" },
    { NULL, NULL, NULL },
};

/* ---- list, tuple, range ---- */

/* Counts what is equal, so True counts 1 too. */
static ech_status s_count(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_titer *it;
    int64_t n = 0;
    ECH_TRY(ech_titer_open(vm, c->self, &it));
    for (;;) {
        ech_tval v;
        bool same;
        ECH_TRY(ech_titer_next(vm, it, &v));
        if (v.kind == ECH_T_ABSENT) break;
        ECH_TRY(ech_tv_equal(vm, v, c->a[0], &same));
        n += same;
    }
    *ret = ech_tv_int(n);
    return ECH_OK;
}

/*
 * A bound of index(), start or stop: counted from the end when negative, never below 0. What lies
 * behind the end stays: the loop ends there anyway. *ret is left alone when the bound is.
 */
static ech_status clamp_index(ech_tvm *const vm, const ech_tval v, const size_t n,
                              size_t *const ret)
{
    int64_t i;
    if (v.kind == ECH_T_ABSENT) return ECH_OK;
    ECH_TRY(ech_targ_int(vm, v, &i));
    if (i < 0) i = i + (int64_t)n < 0 ? 0 : i + (int64_t)n;
    *ret = (size_t)i;
    return ECH_OK;
}

/*
 * Fails where there is none, as ValueError does; templates that aren't sure ask `in` first. The
 * loop goes from the first item even where the search starts later, since an iterator can't jump.
 */
static ech_status s_index(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    size_t n, from = 0, to;
    ech_titer *it;
    ECH_TRY(ech_tv_len(vm, c->self, &n));
    to = n;
    ECH_TRY(clamp_index(vm, c->a[1], n, &from));
    ECH_TRY(clamp_index(vm, c->a[2], n, &to));
    ECH_TRY(ech_titer_open(vm, c->self, &it));
    for (size_t i = 0; i < n && i < to; i++) {
        ech_tval v;
        bool same;
        ECH_TRY(ech_titer_next(vm, it, &v));
        ECH_TRY(ech_tv_equal(vm, v, c->a[0], &same));
        if (!same || i < from) continue;
        *ret = ech_tv_int((int64_t)i);
        return ECH_OK;
    }
    return ech_tvm_raise(vm, "the value is not in the %s", ech_tv_type(c->self));
}

/* Of tuples and ranges, too; copy is a list's alone. */
static const ech_tbuiltin list_methods[] = {
    { "copy", d_copy, "!" },
    { "count", s_count, "!value" },
    { "index", s_index, "!value ?start ?stop" },
    { NULL, NULL, NULL },
};

/* ---- numbers ---- */

/* f - f is 0 for finite values alone; infinities and NaN are no integers. */
static ech_status f_is_integer(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    const double f = c->self.as.f;
    *ret = ech_tv_bool(f - f == 0 && f == __builtin_floor(f));
    return ECH_OK;
}

/*
 * Of the absolute value, as in Python. Unsigned, for that of INT64_MIN has no signed form; and clz
 * of 0 is undefined in C.
 */
static ech_status i_bit_length(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    const int64_t i = ech_tv_as_int(c->self);
    const uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *ret = ech_tv_int(u == 0 ? 0 : 64 - __builtin_clzll(u));
    return ECH_OK;
}

/* A real number is its own; Python has it for both kinds. */
static ech_status n_conjugate(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    *ret = c->self;
    return ECH_OK;
}

/* What of Python's numbers needs no kind of value that isn't here: no bytes, no fractions. */
static const ech_tbuiltin float_methods[] = { { "conjugate", n_conjugate, "!" },
                                              { "is_integer", f_is_integer, "!" },
                                              { NULL, NULL, NULL } };
static const ech_tbuiltin int_methods[] = { { "bit_length", i_bit_length, "!" },
                                            { "conjugate", n_conjugate, "!" },
                                            { NULL, NULL, NULL } };

/*
 * What Python's numbers have that a template can see: parts of a fraction, parts of a complex
 * number. Attributes of a bool are an integer's: true.real is 1. A float has no numerator.
 */
static ech_status number_attr(ech_tvm *const vm, const ech_tval obj, const ech_tstr *const name,
                              ech_tval *const ret)
{
    const bool is_int = obj.kind != ECH_T_FLOAT;
    const ech_tbuiltin *const b =
        ech_tbuiltin_in(is_int ? int_methods : float_methods, name->ptr, name->len);
    if (b != NULL) return ech_tv_func(vm, b, obj, ret);
    const ech_tval self = is_int ? ech_tv_int(ech_tv_as_int(obj)) : obj;
    if (ech_tstr_is(name, "real") || (is_int && ech_tstr_is(name, "numerator")))
        *ret = self;
    else if (ech_tstr_is(name, "imag"))
        *ret = is_int ? ech_tv_int(0) : ech_tv_float(0);
    else if (is_int && ech_tstr_is(name, "denominator"))
        *ret = ech_tv_int(1);
    return ECH_OK;
}

/* ---- cycler, macro, range ---- */

/*
 * A cycler's next value; it starts again behind the last. Whoever holds the cycler sees it move: a
 * value that changes by being called.
 */
static ech_status c_next(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    ech_tcycle *const cy = c->self.as.cycle;
    *ret = cy->items[cy->pos];
    cy->pos = (cy->pos + 1) % cy->n;
    return ECH_OK;
}

/* The return value prints as None where a template forgets to use {% set %} for it, as in Jinja. */
static ech_status c_reset(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)vm;
    c->self.as.cycle->pos = 0;
    *ret = ech_tv_none();
    return ECH_OK;
}

static const ech_tbuiltin cycler_methods[] = { { "next", c_next, "!" },
                                               { "reset", c_reset, "!" },
                                               { NULL, NULL, NULL } };

/*
 * What Jinja tells of a macro: name, arguments, and whether it takes more than it names. A call
 * block is a macro without a name. Python's booleans say what the body mentions: catch_kwargs is
 * true if it reads `kwargs` anywhere.
 */
static ech_status macro_attr(ech_tvm *const vm, const ech_tval obj, const ech_tstr *const name,
                             ech_tval *const ret)
{
    const ech_tnode *const node = obj.as.macro->node;
    if (ech_tstr_is(name, "name")) {
        if (node->kind == ECH_N_MACRO)
            return ech_tv_view(vm, node->name->ptr, node->name->len, false, ret);
        *ret = ech_tv_none();
    } else if (ech_tstr_is(name, "catch_kwargs")) {
        *ret = ech_tv_bool(node->code->has_kwargs);
    } else if (ech_tstr_is(name, "catch_varargs")) {
        *ret = ech_tv_bool(node->code->has_varargs);
    } else if (ech_tstr_is(name, "caller")) {
        *ret = ech_tv_bool(node->code->has_caller);
    } else if (ech_tstr_is(name, "arguments")) {
        ech_tseq *seq;
        ECH_TRY(ech_tseq_new(vm, node->list.n, &seq));
        for (size_t i = 0; i < node->list.n; i++) {
            ech_tval arg;
            ECH_TRY(ech_tv_view(vm, node->list.items[i]->name->ptr, node->list.items[i]->name->len,
                                false, &arg));
            ECH_TRY(ech_tseq_push(vm, seq, arg));
        }
        *ret = ech_tv_seq(ECH_T_TUPLE, seq);
    }
    return ECH_OK;
}

/* As they were given: range(0, 5, 2).stop is 5, though 5 is not reached. */
static void range_attr(const ech_trange *const r, const ech_tstr *const name, ech_tval *const ret)
{
    if (ech_tstr_is(name, "start"))
        *ret = ech_tv_int(r->start);
    else if (ech_tstr_is(name, "stop"))
        *ret = ech_tv_int(r->stop);
    else if (ech_tstr_is(name, "step"))
        *ret = ech_tv_int(r->step);
}

/* ---- the sandbox ---- */

/*
 * Methods that would change their object: the sandbox is an immutable one. They are named although
 * no table has them: absent would be a plain undefined value, and the error would not say why.
 */
static bool changes(const ech_tval obj, const ech_tstr *const name)
{
    static const char *const list[] = { "append", "clear",  "pop",    "reverse", "insert",
                                        "sort",   "extend", "remove", NULL };
    static const char *const dict[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
    for (const char *const *n = obj.kind == ECH_T_LIST ? list : dict; *n != NULL; n++) {
        if (ech_tstr_is(name, *n)) return true;
    }
    return false;
}

/* *ret stays ABSENT where the table has no such name. */
static ech_status method_of(ech_tvm *const vm, const ech_tval obj, const ech_tbuiltin *const table,
                            const ech_tstr *const name, ech_tval *const ret)
{
    const ech_tbuiltin *const b = ech_tbuiltin_in(table, name->ptr, name->len);
    return b == NULL ? ECH_OK : ech_tv_func(vm, b, obj, ret);
}

/*
 * An undefined value that says why, so that the error names the sandbox and not a typing mistake.
 * It is no failure by itself: `is defined` may ask for it.
 */
static ech_status unsafe(ech_tvm *const vm, const ech_tval obj, const ech_tstr *const name,
                         ech_tval *const ret)
{
    ech_tval key;
    ECH_TRY(ech_tv_view(vm, name->ptr, name->len, false, &key));
    return ech_tv_undef_attr(vm, obj, key, true, ret);
}

/*
 * Rows of groupby are named tuples: .grouper and .list beside their places. A tuple has no copy()
 * in Python, so that row of the table is passed over.
 */
static ech_status tuple_attr(ech_tvm *const vm, const ech_tval obj, const ech_tstr *const name,
                             ech_tval *const ret)
{
    if (obj.as.seq->is_group && ech_tstr_is(name, "grouper"))
        *ret = obj.as.seq->items[0];
    else if (obj.as.seq->is_group && ech_tstr_is(name, "list"))
        *ret = obj.as.seq->items[1];
    else if (!ech_tstr_is(name, "copy"))
        return method_of(vm, obj, list_methods, name, ret);
    return ECH_OK;
}

/*
 * The attribute of any kind of value; ABSENT where there is none. Names with a leading underscore
 * are never attributes. None of the tables has one, and a namespace can't get one. Keys of a dict
 * are not looked at: this is getattr(). *ret may be an undefined value, where the sandbox stands.
 */
ech_status ech_tmethod_get(ech_tvm *const vm, const ech_tval obj, const ech_tstr *const name,
                           ech_tval *const ret)
{
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    if (name->len == 0) return ECH_OK;
    switch (obj.kind) {
    case ECH_T_STR: {
        const ech_tbuiltin *const b = ech_tstr_method(name->ptr, name->len);
        return b == NULL ? ECH_OK : ech_tv_func(vm, b, obj, ret);
    }
    case ECH_T_LIST:
    case ECH_T_DICT:
        if (changes(obj, name)) return unsafe(vm, obj, name, ret);
        return method_of(vm, obj, obj.kind == ECH_T_LIST ? list_methods : dict_methods, name, ret);
    case ECH_T_TUPLE:
        return tuple_attr(vm, obj, name, ret);
    /* A range shares index() and count() with lists, and has no copy() either. */
    case ECH_T_RANGE:
        range_attr(obj.as.range, name, ret);
        if (ret->kind != ECH_T_ABSENT || ech_tstr_is(name, "copy")) return ECH_OK;
        return method_of(vm, obj, list_methods, name, ret);
    case ECH_T_BOOL:
    case ECH_T_INT:
    case ECH_T_FLOAT:
        return number_attr(vm, obj, name, ret);
    case ECH_T_NAMESPACE: {
        const ech_tval *const v = ech_tdict_get(obj.as.dict, name->ptr, name->len);
        if (v != NULL) *ret = *v;
        return ECH_OK;
    }
    case ECH_T_LOOP:
        return ech_tloop_attr(vm, obj, name, ret);
    case ECH_T_MACRO:
        return macro_attr(vm, obj, name, ret);
    case ECH_T_CYCLER:
        if (ech_tstr_is(name, "current"))
            *ret = obj.as.cycle->items[obj.as.cycle->pos];
        else
            return method_of(vm, obj, cycler_methods, name, ret);
        return ECH_OK;
    case ECH_T_FUNC:
        /* The class method alone: the others would take the function for a dict. */
        if (strcmp(obj.as.func->b->name, "dict") == 0 && ech_tstr_is(name, "fromkeys"))
            return method_of(vm, obj, dict_methods, name, ret);
        return ECH_OK;
    default:
        return ECH_OK;
    }
}

/* ---- subscripts ---- */

/*
 * obj[key] where Python has it, without a look at attributes; ABSENT otherwise. Jinja catches
 * TypeError and LookupError, so a key of the wrong kind is as absent as one that isn't there. A
 * bool is an integer as an index.
 */
static ech_status plain_item(ech_tvm *const vm, const ech_tval obj, const ech_tval key,
                             ech_tval *const ret)
{
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    if (obj.kind == ECH_T_DICT) {
        /* Can't be keys: ech_tdict_find() would raise, and Jinja catches that here. */
        if (key.kind == ECH_T_LIST || key.kind == ECH_T_DICT) return ECH_OK;
        return ech_tdict_find(vm, obj.as.dict, key, ret);
    }
    if (!ech_tv_is_int(key)) return ECH_OK;
    size_t n;
    int64_t i = ech_tv_as_int(key);
    if (obj.kind != ECH_T_LIST && obj.kind != ECH_T_TUPLE && obj.kind != ECH_T_STR &&
        obj.kind != ECH_T_RANGE)
        return ECH_OK;
    ECH_TRY(ech_tv_len(vm, obj, &n));
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) return ECH_OK;
    if (obj.kind == ECH_T_STR) {
        ech_tstr *const s = obj.as.str;
        /*
         * ASCII alone is indexed for free. Otherwise the place is counted from the front, and a
         * loop over s[i] would be quadratic without a charge.
         */
        if (n != s->len) ECH_TRY(ech_tvm_charge(vm, s->len / 64));
        const size_t from = ech_tstr_byte_of(s, (size_t)i);
        size_t to = from + 1;
        /* To the end of the character. */
        while (to < s->len && ((uint8_t)s->ptr[to] & 0xc0) == 0x80) {
            to++;
        }
        return ech_tv_slice(vm, s, from, to - from, ret);
    }
    *ret = obj.kind == ECH_T_RANGE ? ech_tv_int(obj.as.range->start + i * obj.as.range->step)
                                   : obj.as.seq->items[i];
    return ECH_OK;
}

/*
 * x.name: attributes first, so that a key called "items" does not hide the method. An undefined
 * object fails at once: Jinja lets one dot be wrong, not two.
 */
ech_status ech_tv_attr(ech_tvm *const vm, const ech_tval obj, const ech_tval name,
                       ech_tval *const ret)
{
    if (obj.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, obj.as.undef);
    ECH_TRY(ech_tmethod_get(vm, obj, name.as.str, ret));
    if (ret->kind != ECH_T_ABSENT) return ECH_OK;
    ECH_TRY(plain_item(vm, obj, name, ret));
    if (ret->kind != ECH_T_ABSENT) return ECH_OK;
    return ech_tv_undef_attr(vm, obj, name, false, ret);
}

/*
 * x[key]: keys first, and attributes only for text that is no key. So a message may have a field
 * "get", and x["get"] is that field while x.get is the method.
 */
ech_status ech_tv_item(ech_tvm *const vm, const ech_tval obj, const ech_tval key,
                       ech_tval *const ret)
{
    if (obj.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, obj.as.undef);
    ECH_TRY(plain_item(vm, obj, key, ret));
    if (ret->kind != ECH_T_ABSENT) return ECH_OK;
    if (key.kind == ECH_T_STR) ECH_TRY(ech_tmethod_get(vm, obj, key.as.str, ret));
    if (ret->kind != ECH_T_ABSENT) return ECH_OK;
    return ech_tv_undef_attr(vm, obj, key, false, ret);
}

/* ---- slices ---- */

/* Python's slice.indices(): start, stop, step and how many. */
typedef struct indices {
    int64_t start, stop, step;
    size_t n;
} indices;

/*
 * A bound as Python's slice.indices() makes it: whatever is given, it ends inside the sequence or
 * just beside it. `back` is for negative steps, where "just beside" means one before the first, -1,
 * and one behind the last is never reached. None and left out are the same.
 */
static ech_status slice_part(ech_tvm *const vm, const ech_tval v, const int64_t len,
                             const bool back, const int64_t otherwise, int64_t *const ret)
{
    *ret = otherwise;
    if (v.kind == ECH_T_ABSENT || v.kind == ECH_T_NONE) return ECH_OK;
    if (!ech_tv_is_int(v)) {
        if (v.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, v.as.undef);
        return ech_tvm_raise(vm, "slice indices must be integers or None");
    }
    int64_t i = ech_tv_as_int(v);
    if (i < 0)
        i = i < -len ? (back ? -1 : 0) : i + len;
    else if (i >= len)
        i = back ? len - 1 : len;
    *ret = i;
    return ECH_OK;
}

/* First place, step and count; the count is exact, so that the walk needs no further test. */
static ech_status slice_indices(ech_tvm *const vm, const ech_tslice *const s, const size_t n,
                                indices *const ret)
{
    const int64_t len = (int64_t)n;
    int64_t step = 1;
    if (s->step.kind != ECH_T_ABSENT && s->step.kind != ECH_T_NONE) {
        if (!ech_tv_is_int(s->step))
            return ech_tvm_raise(vm, "slice indices must be integers or None");
        step = ech_tv_as_int(s->step);
    }
    if (step == 0) return ech_tvm_raise(vm, "slice step cannot be zero");
    const bool back = step < 0;
    ECH_TRY(slice_part(vm, s->start, len, back, back ? len - 1 : 0, &ret->start));
    ECH_TRY(slice_part(vm, s->stop, len, back, back ? -1 : len, &ret->stop));
    ret->step = step;
    const int64_t span = back ? ret->start - ret->stop : ret->stop - ret->start;
    /* Its absolute value, also of INT64_MIN. */
    const uint64_t size = back ? 0 - (uint64_t)step : (uint64_t)step;
    /* Rounded up: the last step may be a shorter one. */
    ret->n = span <= 0 ? 0 : (size_t)(((uint64_t)span - 1) / size + 1);
    return ECH_OK;
}

/*
 * By code points. A step of one is a slice of the text's memory; others copy character by
 * character, each with its origin. Markup stays markup.
 */
static ech_status slice_str(ech_tvm *const vm, ech_tstr *const s, const indices *const at,
                            ech_tval *const ret)
{
    ech_tbuild b = { .vm = vm };
    if (at->step == 1) {
        const size_t from = ech_tstr_byte_of(s, (size_t)at->start);
        const size_t to = at->n == 0 ? from : ech_tstr_byte_of(s, (size_t)at->start + at->n);
        return ech_tv_slice(vm, s, from, to - from, ret);
    }
    /* Offsets of all characters: a string may have to be walked from its end. */
    size_t *offset;
    const size_t n = ech_tstr_chars(s);
    ECH_TRY(ech_tvm_charge(vm, n / 16));
    ECH_TRY(ech_tvm_alloc(vm, n + 1, sizeof *offset, &offset));
    for (size_t i = 0, k = 0; i < s->len; i++) {
        if (((uint8_t)s->ptr[i] & 0xc0) != 0x80) offset[k++] = i;
    }
    /* The end of the last, so that each character is what lies between two. */
    offset[n] = s->len;
    for (size_t i = 0; i < at->n; i++) {
        const size_t k = (size_t)(at->start + (int64_t)i * at->step);
        ECH_TRY(ech_tbuild_sub(&b, s, offset[k], offset[k + 1] - offset[k]));
    }
    ECH_TRY(ech_tbuild_done(&b, ret));
    ret->as.str->is_markup = s->is_markup;
    return ECH_OK;
}

/*
 * A slice of a range is a range. Without its numbers being made, whatever the length. Ends that
 * leave 64 bits are an error, where Python has long integers.
 */
static ech_status slice_range(ech_tvm *const vm, const ech_trange *const r, const indices *const at,
                              ech_tval *const ret)
{
    ech_trange *out;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *out, &out));
    out->n = (int64_t)at->n;
    if (__builtin_mul_overflow(at->start, r->step, &out->start) ||
        __builtin_add_overflow(out->start, r->start, &out->start) ||
        __builtin_mul_overflow(r->step, at->step, &out->step) ||
        __builtin_mul_overflow(at->stop, r->step, &out->stop) ||
        __builtin_add_overflow(out->stop, r->start, &out->stop)) {
        return ech_tvm_raise(vm, "integer result does not fit 64 bits");
    }
    *ret = (ech_tval){ .kind = ECH_T_RANGE, .as.range = out };
    return ECH_OK;
}

/*
 * Jinja writes a slice as Python's own, past its environment, so what can't be sliced raises; that
 * it is undefined in constant expressions is the caller's affair (is_lenient). A slice of a list is
 * always a new list.
 */
ech_status ech_tv_slice_of(ech_tvm *const vm, const ech_tval obj, const ech_tslice *const s,
                           ech_tval *const ret)
{
    size_t n;
    indices at;
    if (obj.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, obj.as.undef);
    if (obj.kind != ECH_T_STR && obj.kind != ECH_T_LIST && obj.kind != ECH_T_TUPLE &&
        obj.kind != ECH_T_RANGE) {
        return ech_tvm_raise(vm, "'%s' object cannot be sliced", ech_tv_type(obj));
    }
    ECH_TRY(ech_tv_len(vm, obj, &n));
    ECH_TRY(slice_indices(vm, s, n, &at));
    if (obj.kind == ECH_T_STR) return slice_str(vm, obj.as.str, &at, ret);
    if (obj.kind == ECH_T_RANGE) return slice_range(vm, obj.as.range, &at, ret);
    ech_tseq *out;
    /* Less than a step each: copying is cheap beside evaluating. */
    ECH_TRY(ech_tvm_charge(vm, at.n / 4));
    ECH_TRY(ech_tseq_new(vm, at.n, &out));
    for (size_t i = 0; i < at.n; i++) {
        out->items[i] = obj.as.seq->items[at.start + (int64_t)i * at.step];
    }
    out->n = at.n;
    *ret = ech_tv_seq((ech_tkind)obj.kind, out);
    ret->is_data = obj.is_data;
    return ECH_OK;
}
