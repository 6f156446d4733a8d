/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builtin tests, `x is name`: Jinja's, all of them, with its other spellings (`is eq`, `is ==`,
 * `is equalto`). A test gives true or false and nothing that has an origin; those that compare go
 * through the operators, so that errors are Python's too.
 *
 * Where Jinja asks for a Python type or a protocol, the kinds stand for it: a mapping is a dict,
 * and a sequence has a length and an index. Tests on the kind never fail, whatever they get, and so
 * answer for undefined values as well.
 *
 * Owns nothing but its table. Thread: the rendering's.
 */
#include "src/text/template_builtin.h"

static ech_status is(ech_tval *const ret, const bool b)
{
    *ret = ech_tv_bool(b);
    return ECH_OK;
}

/*
 * value % n == rest, by the operator of the template's own numbers: a float may be even, and a text
 * makes the error that Python makes, since % formats there.
 */
static ech_status rest_is(ech_tvm *const vm, const ech_tval v, const ech_tval n, const int64_t rest,
                          ech_tval *const ret)
{
    ech_tval r;
    bool same;
    ECH_TRY(ech_tv_binary(vm, ECH_OP_MOD, v, n, &r));
    ECH_TRY(ech_tv_equal(vm, r, ech_tv_int(rest), &same));
    return is(ret, same);
}

static ech_status t_odd(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return rest_is(vm, c->a[0], ech_tv_int(2), 1, ret);
}
static ech_status t_even(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return rest_is(vm, c->a[0], ech_tv_int(2), 0, ret);
}
static ech_status t_divisibleby(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return rest_is(vm, c->a[0], c->a[1], 0, ret);
}

/*
 * A test that looks at the value's kind alone. An undefined value has a kind, so it is no error
 * here.
 */
#define KIND_TEST(name, cond)                                                                      \
    static ech_status t_##name(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)         \
    {                                                                                              \
        (void)vm;                                                                                  \
        const ech_tval v = c->a[0];                                                                \
        return is(ret, cond);                                                                      \
    }

KIND_TEST(defined, v.kind != ECH_T_UNDEFINED)
KIND_TEST(undefined, v.kind == ECH_T_UNDEFINED)
KIND_TEST(none, v.kind == ECH_T_NONE)
/* By the exact kind: 1 is not true, and true is not an integer, as in Jinja. */
KIND_TEST(boolean, v.kind == ECH_T_BOOL)
KIND_TEST(false, v.kind == ECH_T_BOOL && !v.as.b)
KIND_TEST(true, v.kind == ECH_T_BOOL && v.as.b)
KIND_TEST(integer, v.kind == ECH_T_INT || v.kind == ECH_T_BIGINT)
KIND_TEST(float, v.kind == ECH_T_FLOAT)
/* But true is a number, for Python's bool is an int. */
KIND_TEST(number, ech_tv_is_num(v) || v.kind == ECH_T_BIGINT)
KIND_TEST(string, v.kind == ECH_T_STR)
KIND_TEST(mapping, v.kind == ECH_T_DICT)
KIND_TEST(sequence, ech_tv_has_len(v) && v.kind != ECH_T_VIEW)
KIND_TEST(iterable, ech_tv_is_iterable(v))
KIND_TEST(escaped, v.kind == ECH_T_STR && v.as.str->is_markup)
/* Undefined is callable in Python: calling it raises the error that names it. */
KIND_TEST(callable, v.kind == ECH_T_FUNC || v.kind == ECH_T_MACRO || v.kind == ECH_T_JOINER ||
                        v.kind == ECH_T_LOOP || v.kind == ECH_T_UNDEFINED)
KIND_TEST(sameas, ech_tv_same(v, c->a[1]))

#undef KIND_TEST

/* jinja2 asks str(value): a number is neither, and no error. */
static ech_status str_method(ech_tvm *const vm, ech_tcall *const c, const char *const name,
                             ech_tval *const ret)
{
    ech_tstr *s;
    ech_tcall inner = { 0 };
    ECH_TRY(ech_tv_to_str(vm, c->a[0], false, &s));
    inner.self = ech_tv_str(s);
    return ech_tbuiltin_call(vm, ech_tstr_method(name, strlen(name)), &inner, ret);
}

static ech_status t_lower(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return str_method(vm, c, "islower", ret);
}
static ech_status t_upper(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return str_method(vm, c, "isupper", ret);
}

/*
 * The name of a filter or test that exists; other values only fail where Python can't hash them.
 * Longer names than the buffer belong to nothing; the empty name stands for them, and finds
 * nothing.
 */
static ech_status known(ech_tvm *const vm, const ech_tval v,
                        const ech_tbuiltin *(*const find)(const char *), ech_tval *const ret)
{
    char name[64] = "";
    if (v.kind == ECH_T_LIST || v.kind == ECH_T_DICT)
        return ech_tvm_raise(vm, "unhashable type: '%s'", ech_tv_type(v));
    if (v.kind == ECH_T_STR && v.as.str->len < sizeof name)
        memcpy(name, v.as.str->ptr, v.as.str->len);
    return is(ret, find(name) != NULL);
}

static ech_status t_filter(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return known(vm, c->a[0], ech_tfilter_find, ret);
}
static ech_status t_test(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return known(vm, c->a[0], ech_ttest_find, ret);
}

/* The tests' order of arguments is the operator's: `a is lt b` is a < b, `a is in b` is a in b. */
static ech_status compare(ech_tvm *const vm, ech_tcall *const c, const ech_top op,
                          ech_tval *const ret)
{
    bool holds;
    ECH_TRY(ech_tv_compare(vm, op, c->a[0], c->a[1], &holds));
    return is(ret, holds);
}

static ech_status t_eq(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_EQ, ret);
}
static ech_status t_ne(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_NE, ret);
}
static ech_status t_lt(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_LT, ret);
}
static ech_status t_le(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_LE, ret);
}
static ech_status t_gt(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_GT, ret);
}
static ech_status t_ge(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_GE, ret);
}
static ech_status t_in(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return compare(vm, c, ECH_OP_IN, ret);
}

static const ech_tbuiltin tests[] = {
    { "boolean", t_boolean, "value" },
    { "callable", t_callable, "!obj" },
    { "defined", t_defined, "value" },
    { "divisibleby", t_divisibleby, "value num" },
    { "eq", t_eq, "!a b" },
    { "equalto", t_eq, "!a b" },
    { "==", t_eq, "!a b" },
    { "escaped", t_escaped, "value" },
    { "even", t_even, "value" },
    { "false", t_false, "value" },
    { "filter", t_filter, "value" },
    { "float", t_float, "value" },
    { "ge", t_ge, "!a b" },
    { ">=", t_ge, "!a b" },
    { "greaterthan", t_gt, "!a b" },
    { "gt", t_gt, "!a b" },
    { ">", t_gt, "!a b" },
    { "in", t_in, "value seq" },
    { "integer", t_integer, "value" },
    { "iterable", t_iterable, "value" },
    { "le", t_le, "!a b" },
    { "<=", t_le, "!a b" },
    { "lessthan", t_lt, "!a b" },
    { "lower", t_lower, "value" },
    { "lt", t_lt, "!a b" },
    { "<", t_lt, "!a b" },
    { "mapping", t_mapping, "value" },
    { "ne", t_ne, "!a b" },
    { "!=", t_ne, "!a b" },
    { "none", t_none, "value" },
    { "number", t_number, "value" },
    { "odd", t_odd, "value" },
    { "sameas", t_sameas, "value other" },
    { "sequence", t_sequence, "value" },
    { "string", t_string, "value" },
    { "test", t_test, "value" },
    { "true", t_true, "value" },
    { "undefined", t_undefined, "value" },
    { "upper", t_upper, "value" },
    { NULL, NULL, NULL },
};

/* For the parser, and for select() and its kin with a name that is known late. */
const ech_tbuiltin *ech_ttest_find(const char *const name)
{
    return ech_tbuiltin_in(tests, name, strlen(name));
}
