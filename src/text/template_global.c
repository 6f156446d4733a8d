/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The global functions: Jinja's (range, dict, namespace, cycler, joiner) and those that
 * transformers gives to chat templates (raise_exception, strftime_now). Left out: lipsum, which is
 * random.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/text/template_builtin.h"

#define RANGE_MAX 100000 /* jinja2.sandbox.MAX_RANGE */

/* In unsigned arithmetic: from INT64_MIN to INT64_MAX is further than an int64_t can say. */
static ech_status range_size(ech_tvm *const vm, ech_trange *const r)
{
    if (r->step == 0) return ech_tvm_raise(vm, "range() arg 3 must not be zero");
    const bool up = r->step > 0;
    uint64_t span = 0;
    if (up && r->start < r->stop) span = (uint64_t)r->stop - (uint64_t)r->start;
    if (!up && r->stop < r->start) span = (uint64_t)r->start - (uint64_t)r->stop;
    const uint64_t step = up ? (uint64_t)r->step : 0 - (uint64_t)r->step;
    const uint64_t n = span == 0 ? 0 : (span - 1) / step + 1;
    if (n > RANGE_MAX)
        return ech_tvm_raise(vm, "range too big: the sandbox blocks ranges larger than %d",
                             RANGE_MAX);
    r->n = (int64_t)n;
    return ECH_OK;
}

static ech_status g_range(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    int64_t arg[3] = { 0, 0, 1 };
    if (c->n_kw > 0 || c->n_pos < 1 || c->n_pos > 3)
        return ech_tvm_raise(vm, "range expected 1 to 3 arguments");
    for (size_t i = 0; i < c->n_pos; i++) {
        ECH_TRY(ech_targ_int(vm, c->pos[i], &arg[i]));
    }
    ech_trange *r;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *r, &r));
    if (c->n_pos == 1)
        *r = (ech_trange){ .start = 0, .stop = arg[0], .step = 1 };
    else
        *r = (ech_trange){ .start = arg[0], .stop = arg[1], .step = arg[2] };
    ECH_TRY(range_size(vm, r));
    *ret = (ech_tval){ .kind = ECH_T_RANGE, .as.range = r };
    return ECH_OK;
}

/*
 * dict(x): another dict, or anything whose items are pairs. The values are shared, the dict is
 * new, as in Python.
 */
static ech_status add_pairs(ech_tvm *const vm, ech_tdict *const d, const ech_tval from)
{
    ech_titer *it;
    if (from.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, from.as.undef);
    if (from.kind == ECH_T_DICT) {
        for (size_t i = 0; i < from.as.dict->n; i++) {
            ECH_TRY(
                ech_tdict_set(vm, d, from.as.dict->entries[i].key, from.as.dict->entries[i].value));
        }
        return ECH_OK;
    }
    ECH_TRY(ech_titer_open(vm, from, &it));
    for (;;) {
        ech_tval pair;
        ech_tseq *two;
        ECH_TRY(ech_titer_next(vm, it, &pair));
        if (pair.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(ech_tv_to_list(vm, pair, &two));
        if (two->n != 2)
            return ech_tvm_raise(
                vm, "dictionary update sequence element has length %zu; 2 is required", two->n);
        ECH_TRY(ech_tdict_set(vm, d, two->items[0], two->items[1]));
    }
}

/* Keywords come last and win; their names are the template's text. */
static ech_status make_dict(ech_tvm *const vm, const ech_tcall *const c, ech_tdict **const ret)
{
    if (c->n_pos > 1)
        return ech_tvm_raise(vm, "dict expected at most 1 argument, got %zu", c->n_pos);
    ECH_TRY(ech_tdict_new(vm, ret));
    if (c->n_pos == 1) ECH_TRY(add_pairs(vm, *ret, c->pos[0]));
    for (size_t i = 0; i < c->n_kw; i++) {
        ech_tval key;
        ECH_TRY(ech_tv_view(vm, c->kw[i].name, c->kw[i].len, false, &key));
        ECH_TRY(ech_tdict_set(vm, *ret, key, c->kw[i].value));
    }
    return ECH_OK;
}

static ech_status g_dict(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tdict *d;
    ECH_TRY(make_dict(vm, c, &d));
    *ret = ech_tv_dict(d);
    return ECH_OK;
}

/*
 * A namespace would be a way around the rule that no attribute begins with an underscore, since
 * its keys are its attributes: refused when they are made.
 */
static ech_status g_namespace(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tdict *d;
    ECH_TRY(make_dict(vm, c, &d));
    for (size_t i = 0; i < d->n; i++) {
        const ech_tval key = d->entries[i].key;
        if (key.kind == ECH_T_STR && key.as.str->len > 0 && key.as.str->ptr[0] == '_') {
            return ech_tvm_raise(vm, "cannot store underscore-prefixed attributes on a namespace");
        }
    }
    *ret = (ech_tval){ .kind = ECH_T_NAMESPACE, .as.dict = d };
    return ECH_OK;
}

/* cycler and joiner are the same thing: items, and how far they have come. */
static ech_status new_cycle(ech_tvm *const vm, const ech_tkind kind, const ech_tval *const items,
                            const size_t n, ech_tval *const ret)
{
    ech_tcycle *cy;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *cy, &cy));
    ECH_TRY(ech_tvm_alloc(vm, n, sizeof *cy->items, &cy->items));
    memcpy(cy->items, items, n * sizeof *items);
    cy->n = n;
    *ret = (ech_tval){ .kind = (uint8_t)kind, .as.cycle = cy };
    return ECH_OK;
}

static ech_status g_cycler(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    if (c->n_kw > 0) return ech_tvm_raise(vm, "cycler() got an unexpected keyword argument");
    if (c->n_pos == 0) return ech_tvm_raise(vm, "at least one item has to be provided");
    return new_cycle(vm, ECH_T_CYCLER, c->pos, c->n_pos, ret);
}

static ech_status g_joiner(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tval sep = c->a[0];
    if (sep.kind == ECH_T_ABSENT) ECH_TRY(ech_tv_lit(vm, ", ", &sep));
    return new_cycle(vm, ECH_T_JOINER, &sep, 1, ret);
}

/* The message is the whole error, cut at a character's end where it does not fit. */
static ech_status g_raise_exception(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *s;
    (void)ret;
    ECH_TRY(ech_tv_to_str(vm, c->a[0], false, &s));
    size_t n = s->len < ECH_ERROR_TEXT - 1 ? s->len : ECH_ERROR_TEXT - 1;
    while (n > 0 && n < s->len && ((uint8_t)s->ptr[n] & 0xc0) == 0x80) {
        n--;
    }
    return ech_tvm_fail(vm, ECH_EINVAL, "%.*s", (int)n, s->ptr);
}

/*
 * The broken-down time that strftime_now formats. A time that is given makes the text a function of
 * its inputs, which tests and caches of prompts need; the clock is asked only without one.
 */
static ech_status current_time(ech_tvm *const vm, struct tm *const ret)
{
    if (vm->now == NULL) {
        const time_t t = time(NULL);
        if (localtime_r(&t, ret) == NULL)
            return ech_tvm_fail(vm, ECH_EOS, "the clock cannot be read");
        return ECH_OK;
    }
    memset(ret, 0, sizeof *ret);
    if (strptime(vm->now, "%Y-%m-%dT%H:%M:%S", ret) == NULL) {
        return ech_tvm_fail(vm, ECH_EFORMAT, "the time '%.40s' is not like 2026-01-02T03:04:05",
                            vm->now);
    }
    ret->tm_isdst = -1;
    return ECH_OK;
}

/* The text counts as the format does: a date written by the template is the template's. */
static ech_status g_strftime_now(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *fmt;
    struct tm tm;
    char text[1024];
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_targ_str(vm, c->a[0], &fmt));
    ECH_TRY(current_time(vm, &tm));
    char *const f = ech_arena_strdup(&vm->arena, (ech_str){ fmt->ptr, fmt->len });
    if (f == NULL) return ech_tvm_no_memory(vm, SIZE_MAX);
    if (fmt->len > 200)
        return ech_tvm_fail(vm, ECH_ELIMIT, "a format for strftime_now of more than 200 bytes");
    const size_t n = strftime(text, sizeof text, f, &tm);
    ECH_TRY(ech_tbuild_add(&b, text, n, fmt->len > 0 && ech_tstr_data_at(fmt, 0)));
    return ech_tbuild_done(&b, ret);
}

static const ech_tbuiltin globals[] = {
    { "cycler", g_cycler, NULL },
    { "dict", g_dict, NULL },
    { "joiner", g_joiner, "?sep" },
    { "namespace", g_namespace, NULL },
    { "raise_exception", g_raise_exception, "message" },
    { "range", g_range, NULL },
    { "strftime_now", g_strftime_now, "format" },
    { NULL, NULL, NULL },
};

/* ABSENT for a name that is none: the caller then has an undefined value, as Jinja has. */
ech_status ech_tglobal_get(ech_tvm *const vm, const char *const name, const size_t len,
                           ech_tval *const ret)
{
    const ech_tbuiltin *const b = len == 0 ? NULL : ech_tbuiltin_in(globals, name, len);
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    return b == NULL ? ECH_OK : ech_tv_func(vm, b, (ech_tval){ 0 }, ret);
}
