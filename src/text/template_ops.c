/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's operators. Integers that would leave 64 bits are an error, never a wrong number. What
 * comes of data is data: a sum is data when either side is, but strings know it byte by byte and
 * keep it through joining.
 *
 * Which operator goes with which kinds, and what their errors say, is Python's. Numbers are one
 * kind here: a bool is an integer, and an integer beside a float becomes one.
 *
 * Invariant: what costs more than a step is charged before it is done, so `'a' * 1000000000` ends
 * by the limits and not by the machine's memory. Results are new values in the rendering's arena;
 * operands never change, with one exception: a string that ends its memory may be extended in place
 * (ech_tstr_concat), which nobody who holds the old one can see.
 *
 * Thread: the rendering's.
 */
#include <math.h>

#include "src/text/template_builtin.h"

/*
 * The numbers of the arguments may be larger: they are carried as text (BIGINT) and fail here when
 * somebody computes with them.
 */
static ech_status overflow(ech_tvm *const vm)
{
    return ech_tvm_raise(vm, "integer result does not fit 64 bits");
}

/*
 * The error Python would raise for these two types. An undefined operand is named instead: that is
 * the template's real mistake. The left one first, as Python evaluates. Text on the left of + has a
 * message of its own in Python, by the concatenation that was tried.
 */
static ech_status unsupported(ech_tvm *const vm, const char *const op, const ech_tval a,
                              const ech_tval b)
{
    if (a.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, a.as.undef);
    if (b.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, b.as.undef);
    if (a.kind == ECH_T_BIGINT || b.kind == ECH_T_BIGINT) return overflow(vm);
    if (a.kind == ECH_T_STR && strcmp(op, "+") == 0) {
        return ech_tvm_raise(vm, "can only concatenate str (not \"%s\") to str", ech_tv_type(b));
    }
    return ech_tvm_raise(vm, "unsupported operand type(s) for %s: '%s' and '%s'", op,
                         ech_tv_type(a), ech_tv_type(b));
}

/* ---- repetition and concatenation ---- */

/*
 * A count that could only fail for want of memory fails at once, before it costs steps. A negative
 * count is none, and nothing repeated any number of times is nothing: no limit then.
 */
static ech_status repeat_count(ech_tvm *const vm, const ech_tval n, const size_t len,
                               size_t *const ret)
{
    const int64_t times = ech_tv_as_int(n);
    *ret = times < 0 ? 0 : (size_t)times;
    if (len > 0 && *ret > (size_t)1 << 40) return ech_tvm_no_memory(vm, SIZE_MAX);
    return ECH_OK;
}

/*
 * Step by step and charged each time, so that `'a' * n` can't outrun the limits. Copies keep the
 * origin of every byte. Markup stays markup, since nothing foreign is added.
 */
static ech_status repeat_str(ech_tvm *const vm, const ech_tstr *const s, const ech_tval n,
                             ech_tval *const ret)
{
    size_t times;
    ech_tbuild b = { .vm = vm };
    ECH_TRY(repeat_count(vm, n, s->len, &times));
    for (size_t i = 0; i < times && s->len > 0; i++) {
        ECH_TRY(ech_tvm_charge(vm, 1));
        ECH_TRY(ech_tbuild_str(&b, s));
    }
    ECH_TRY(ech_tbuild_done(&b, ret));
    ret->as.str->is_markup = s->is_markup;
    return ECH_OK;
}

/*
 * The items are shared, as in Python; only the list is new. [[]] * 3 holds one list three times; it
 * makes no difference as long as lists don't change.
 */
static ech_status repeat_seq(ech_tvm *const vm, const ech_tval seq, const ech_tval n,
                             ech_tval *const ret)
{
    size_t times;
    ech_tseq *out;
    ECH_TRY(repeat_count(vm, n, seq.as.seq->n, &times));
    ECH_TRY(ech_tseq_new(vm, 0, &out));
    for (size_t i = 0; i < times && seq.as.seq->n > 0; i++) {
        ECH_TRY(ech_tvm_charge(vm, seq.as.seq->n));
        for (size_t k = 0; k < seq.as.seq->n; k++) {
            ECH_TRY(ech_tseq_push(vm, out, seq.as.seq->items[k]));
        }
    }
    *ret = ech_tv_seq((ech_tkind)seq.kind, out);
    ret->is_data = seq.is_data;
    return ECH_OK;
}

/*
 * A new list, data if either side is: its brackets and commas print with that origin. memcpy from a
 * NULL pointer is undefined even for no bytes, hence the two conditions.
 */
static ech_status add_seqs(ech_tvm *const vm, const ech_tval a, const ech_tval b,
                           ech_tval *const ret)
{
    ech_tseq *out;
    const size_t n = a.as.seq->n, m = b.as.seq->n;
    ECH_TRY(ech_tvm_charge(vm, (n + m) / 4));
    ECH_TRY(ech_tseq_new(vm, n + m, &out));
    if (n > 0) memcpy(out->items, a.as.seq->items, n * sizeof *out->items);
    if (m > 0) memcpy(out->items + n, b.as.seq->items, m * sizeof *out->items);
    out->n = n + m;
    *ret = ech_tv_seq((ech_tkind)a.kind, out);
    ret->is_data = a.is_data || b.is_data;
    return ECH_OK;
}

/*
 * Markup escapes what it is joined with, whichever side it stands on. Escaping text that is markup
 * already changes nothing, so both sides go through it.
 */
static ech_status add_strs(ech_tvm *const vm, ech_tval a, ech_tval b, ech_tval *const ret)
{
    const bool markup = a.as.str->is_markup || b.as.str->is_markup;
    if (markup) {
        ECH_TRY(ech_tv_escape(vm, a, &a));
        ECH_TRY(ech_tv_escape(vm, b, &b));
    }
    ECH_TRY(ech_tstr_concat(vm, a.as.str, b.as.str, ret));
    ret->as.str->is_markup = markup;
    return ECH_OK;
}

/* ---- numbers ---- */

/*
 * By squaring. A negative exponent makes a float, as in Python. Only squares that are still needed
 * are made: the last one might overflow without being part of the result. 0 ** 0 is 1.
 */
static ech_status int_power(ech_tvm *const vm, int64_t base, int64_t exp, ech_tval *const ret)
{
    if (exp < 0) {
        if (base == 0) return ech_tvm_raise(vm, "0.0 cannot be raised to a negative power");
        *ret = ech_tv_float(pow((double)base, (double)exp));
        return ECH_OK;
    }
    int64_t result = 1;
    while (exp > 0) {
        if ((exp & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow(vm);
        exp >>= 1;
        if (exp > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(vm);
    }
    *ret = ech_tv_int(result);
    return ECH_OK;
}

/*
 * Whatever leaves 64 bits is an error, where Python would go on with a long integer: no chat
 * template computes such a number, and a wrong one would go unnoticed.
 */
static ech_status int_op(ech_tvm *const vm, const ech_top op, const int64_t a, const int64_t b,
                         ech_tval *const ret)
{
    int64_t r = 0;
    switch (op) {
    case ECH_OP_ADD:
        if (__builtin_add_overflow(a, b, &r)) return overflow(vm);
        break;
    case ECH_OP_SUB:
        if (__builtin_sub_overflow(a, b, &r)) return overflow(vm);
        break;
    case ECH_OP_MUL:
        if (__builtin_mul_overflow(a, b, &r)) return overflow(vm);
        break;
    case ECH_OP_DIV:
        if (b == 0) return ech_tvm_raise(vm, "division by zero");
        /*
         * True division, so 4 / 2 is 2.0. Python rounds once even where the operands have more than
         * 53 bits; here each is rounded before.
         */
        *ret = ech_tv_float((double)a / (double)b);
        return ECH_OK;
    case ECH_OP_FLOORDIV:
    case ECH_OP_MOD:
        if (b == 0) return ech_tvm_raise(vm, "integer division or modulo by zero");
        /*
         * INT64_MIN / -1 traps on x86, and its remainder with it. Every other quotient is just the
         * negative, the remainder 0.
         */
        if (b == -1) {
            if (op == ECH_OP_FLOORDIV && __builtin_sub_overflow(0, a, &r)) return overflow(vm);
            break;
        }
        r = op == ECH_OP_MOD ? a % b : a / b;
        /* C rounds to zero, Python down: so the remainder has the divisor's sign. */
        if (a % b != 0 && (a % b < 0) != (b < 0)) r += op == ECH_OP_MOD ? b : -1;
        break;
    default:
        return int_power(vm, a, b, ret);
    }
    *ret = ech_tv_int(r);
    return ECH_OK;
}

/*
 * Python's %: the sign is the divisor's, also of a zero. fmod alone has the dividend's sign. Adding
 * b may round, as it does in Python.
 */
static double float_mod(const double a, const double b)
{
    const double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/*
 * Python's //, step by step as its own code does it, since floor(a / b) rounds twice. (a - mod) / b
 * is nearly whole, and the last two lines take the whole number it is near to: 1.0 // 0.1 is 9.0,
 * since 0.1 is a bit more than a tenth.
 */
static double float_floordiv(const double a, const double b)
{
    const double mod = fmod(a, b);
    double div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
    if (div == 0) return copysign(0.0, a / b);
    const double down = floor(div);
    return div - down > 0.5 ? down + 1.0 : down;
}

/*
 * Python raises where C gives an infinity, and goes on in complex numbers where C gives NaN. pow of
 * finite operands that overflows is OverflowError there; an infinite operand gives an infinite
 * result in both.
 */
static ech_status float_power(ech_tvm *const vm, const double a, const double b,
                              ech_tval *const ret)
{
    if (a == 0 && b < 0) return ech_tvm_raise(vm, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b) && isfinite(b))
        return ech_tvm_fail(vm, ECH_EUNSUPPORTED, "complex numbers are not supported");
    const double r = pow(a, b);
    if (isinf(r) && isfinite(a) && isfinite(b))
        return ech_tvm_raise(vm, "numerical result out of range");
    *ret = ech_tv_float(r);
    return ECH_OK;
}

/*
 * Divisors of zero are caught before, for all three operators: C would give an infinity or NaN.
 * Sums and products may become infinite, as in Python.
 */
static ech_status float_op(ech_tvm *const vm, const ech_top op, const double a, const double b,
                           ech_tval *const ret)
{
    if (b == 0 && (op == ECH_OP_DIV || op == ECH_OP_FLOORDIV || op == ECH_OP_MOD)) {
        return ech_tvm_raise(vm, "float division by zero");
    }
    switch (op) {
    case ECH_OP_ADD:
        *ret = ech_tv_float(a + b);
        return ECH_OK;
    case ECH_OP_SUB:
        *ret = ech_tv_float(a - b);
        return ECH_OK;
    case ECH_OP_MUL:
        *ret = ech_tv_float(a * b);
        return ECH_OK;
    case ECH_OP_DIV:
        *ret = ech_tv_float(a / b);
        return ECH_OK;
    case ECH_OP_FLOORDIV:
        *ret = ech_tv_float(float_floordiv(a, b));
        return ECH_OK;
    case ECH_OP_MOD:
        *ret = ech_tv_float(float_mod(a, b));
        return ECH_OK;
    default:
        return float_power(vm, a, b, ret);
    }
}

/*
 * A bool is an integer here, as in Python: True + True is 2. One float makes both floats. The
 * result keeps no spelling: it is a number of its own.
 */
static ech_status num_op(ech_tvm *const vm, const ech_top op, const ech_tval a, const ech_tval b,
                         ech_tval *const ret)
{
    if (a.kind == ECH_T_FLOAT || b.kind == ECH_T_FLOAT) {
        ECH_TRY(float_op(vm, op, ech_tv_as_float(a), ech_tv_as_float(b), ret));
    } else {
        ECH_TRY(int_op(vm, op, ech_tv_as_int(a), ech_tv_as_int(b), ret));
    }
    ret->is_data = a.is_data || b.is_data;
    return ECH_OK;
}

/* Ranges and views are sequences in Python, but know neither + nor *. */
static bool is_seq(const ech_tval v)
{
    return v.kind == ECH_T_LIST || v.kind == ECH_T_TUPLE;
}

/*
 * Lists add to lists and tuples to tuples, never one to the other. Repetition works from both
 * sides, and % on a text is formatting whatever stands on the right. The order of the tests is that
 * of Python's types: numbers first, then what the left side can do, then the right. What is left
 * has no such operator.
 */
ech_status ech_tv_binary(ech_tvm *const vm, const ech_top op, const ech_tval a, const ech_tval b,
                         ech_tval *const ret)
{
    /* In the order of ech_top; the power is named as Python names it. */
    static const char *const names[] = { "+", "-", "*", "/", "//", "%", "** or pow()" };
    if (ech_tv_is_num(a) && ech_tv_is_num(b)) return num_op(vm, op, a, b, ret);
    if (op == ECH_OP_ADD) {
        if (a.kind == ECH_T_STR && b.kind == ECH_T_STR) return add_strs(vm, a, b, ret);
        if (is_seq(a) && a.kind == b.kind) return add_seqs(vm, a, b, ret);
    }
    if (op == ECH_OP_MUL) {
        if (a.kind == ECH_T_STR && ech_tv_is_int(b)) return repeat_str(vm, a.as.str, b, ret);
        if (b.kind == ECH_T_STR && ech_tv_is_int(a)) return repeat_str(vm, b.as.str, a, ret);
        if (is_seq(a) && ech_tv_is_int(b)) return repeat_seq(vm, a, b, ret);
        if (is_seq(b) && ech_tv_is_int(a)) return repeat_seq(vm, b, a, ret);
    }
    if (op == ECH_OP_MOD && a.kind == ECH_T_STR) return ech_tstr_percent(vm, a.as.str, b, ret);
    return unsupported(vm, names[op], a, b);
}

/*
 * -INT64_MIN has no 64-bit value; unary plus only checks its operand. A bool becomes an integer by
 * either sign.
 */
ech_status ech_tv_negate(ech_tvm *const vm, const ech_tval a, const bool negate,
                         ech_tval *const ret)
{
    if (a.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, a.as.undef);
    if (a.kind == ECH_T_BIGINT) return overflow(vm);
    if (!ech_tv_is_num(a))
        return ech_tvm_raise(vm, "bad operand type for unary %c: '%s'", negate ? '-' : '+',
                             ech_tv_type(a));
    if (a.kind == ECH_T_FLOAT) {
        *ret = ech_tv_float(negate ? -a.as.f : a.as.f);
    } else {
        const int64_t i = ech_tv_as_int(a);
        if (negate && i == INT64_MIN) return overflow(vm);
        *ret = ech_tv_int(negate ? -i : i);
    }
    ret->is_data = a.is_data;
    return ECH_OK;
}

/* ---- comparisons ---- */

/*
 * The empty text is in every text. Searching is charged by length, not by hits. Bytes will do: in
 * UTF-8 no character's bytes stand within another's. An undefined item is a plain TypeError in
 * Python, so it isn't named here either.
 */
static ech_status contains_str(ech_tvm *const vm, const ech_tstr *const s, const ech_tval item,
                               bool *const ret)
{
    if (item.kind != ECH_T_STR) {
        if (item.kind == ECH_T_UNDEFINED)
            return ech_tvm_raise(vm,
                                 "'in <string>' requires string as left operand, not Undefined");
        return ech_tvm_raise(vm, "'in <string>' requires string as left operand, not %s",
                             ech_tv_type(item));
    }
    ECH_TRY(ech_tvm_charge(vm, s->len / 32));
    *ret =
        item.as.str->len == 0 || memmem(s->ptr, s->len, item.as.str->ptr, item.as.str->len) != NULL;
    return ECH_OK;
}

/*
 * Keys by hash where there are any; everything else is walked and compared with ==, so a generator
 * is used up by `in`, as in Python. It ends at the first hit, and a generator goes on behind it. An
 * undefined value holds nothing and is no error: `in` walks it as an empty row. What can't be a key
 * fails beside a dict, but only there.
 */
ech_status ech_tv_contains(ech_tvm *const vm, const ech_tval seq, const ech_tval item,
                           bool *const ret)
{
    ech_tval found;
    *ret = false;
    if (seq.kind == ECH_T_STR) return contains_str(vm, seq.as.str, item, ret);
    if (seq.kind == ECH_T_DICT || (seq.kind == ECH_T_VIEW && seq.as.view->kind == ECH_TVIEW_KEYS)) {
        ECH_TRY(ech_tdict_find(vm, seq.kind == ECH_T_DICT ? seq.as.dict : seq.as.view->dict, item,
                               &found));
        *ret = found.kind != ECH_T_ABSENT;
        return ECH_OK;
    }
    if (!ech_tv_is_iterable(seq))
        return ech_tvm_raise(vm, "argument of type '%s' is not iterable", ech_tv_type(seq));
    ech_titer *it;
    ECH_TRY(ech_titer_open(vm, seq, &it));
    while (!*ret) {
        ech_tval v;
        ECH_TRY(ech_titer_next(vm, it, &v));
        if (v.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(ech_tv_equal(vm, v, item, ret));
    }
    return ECH_OK;
}

/*
 * All orders come from < alone, so that there is one place that knows which kinds have one. An
 * operand the other way round is why `a > b` of two kinds fails with a message about <. == never
 * fails: what has nothing to compare is different.
 */
ech_status ech_tv_compare(ech_tvm *const vm, const ech_top op, const ech_tval a, const ech_tval b,
                          bool *const ret)
{
    bool r;
    switch (op) {
    case ECH_OP_EQ:
        return ech_tv_equal(vm, a, b, ret);
    case ECH_OP_NE:
        ECH_TRY(ech_tv_equal(vm, a, b, &r));
        *ret = !r;
        return ECH_OK;
    case ECH_OP_IN:
        return ech_tv_contains(vm, b, a, ret);
    case ECH_OP_NOT_IN:
        ECH_TRY(ech_tv_contains(vm, b, a, &r));
        *ret = !r;
        return ECH_OK;
    case ECH_OP_LT:
        return ech_tv_less(vm, a, b, ret);
    case ECH_OP_GT:
        return ech_tv_less(vm, b, a, ret);
    default:
        break;
    }
    /*
     * a <= b is "not b < a" but for NaN, which is in no order. The comparison is made all the same,
     * for the error that the other side may deserve.
     */
    if ((a.kind == ECH_T_FLOAT && isnan(a.as.f)) || (b.kind == ECH_T_FLOAT && isnan(b.as.f))) {
        ECH_TRY(ech_tv_less(vm, a, b, &r));
        *ret = false;
        return ECH_OK;
    }
    ECH_TRY(op == ECH_OP_LE ? ech_tv_less(vm, b, a, &r) : ech_tv_less(vm, a, b, &r));
    *ret = !r;
    return ECH_OK;
}
