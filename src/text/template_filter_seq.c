/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builtin filters on sequences. map, select, reject and their kin, batch, slice, unique and
 * items are generators, as in Jinja: nothing happens before their items are asked for, neither work
 * nor errors. A filter of the wrong name in a map() that nobody walks never fails.
 *
 * Invariants: an input that is no generator is never changed, since a template sees the same list
 * again; what comes out is a new list or a generator. Every item that is walked is charged by
 * ech_titer_next(), so no filter needs a bound of its own but where it makes items that nobody gave
 * it (batch's filling).
 *
 * Order is Python's: sorts are stable, min and max give the first of equals, dicts go by insertion.
 * Case is ignored for text wherever a filter compares, unless case_sensitive says otherwise.
 *
 * State of a generator lives in the rendering's arena, as all its values do. Thread: the
 * rendering's.
 */
#include "src/text/template_filters.h"

/*
 * Unlike in template_filter.c, None counts as left out: Jinja's parameters here have None as their
 * default and ask `is not None`.
 */
static bool given(const ech_tval v)
{
    return v.kind != ECH_T_ABSENT && v.kind != ECH_T_NONE;
}
static bool truth(const ech_tval v)
{
    return v.kind != ECH_T_ABSENT && ech_tv_truth(v);
}

/* ---- attributes by path: "a.b.0" ---- */

typedef struct path {
    ech_tval *parts;
    size_t n;
    ech_tval otherwise; /* for what is undefined on the way; ABSENT: nothing */
    bool ignore_case;
} path;

/*
 * Jinja's make_attrgetter() turns parts of digits into indices, so that "pairs.0" works on lists;
 * 17 digits are more than any list has. That many always fit 64 bits, so the digits are added up
 * without a check.
 */
static bool is_number(const ech_tstr *const s)
{
    for (size_t i = 0; i < s->len; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9') return false;
    }
    return s->len > 0 && s->len < 18;
}

/*
 * Splits "a.b.0" once, before the items are walked. Something that is no text (an integer) is a
 * path of one part. Without an attribute the path is empty, and following it gives the item itself.
 */
static ech_status new_path(ech_tvm *const vm, const ech_tval attribute, path *const ret)
{
    *ret = (path){ 0 };
    if (!given(attribute)) return ECH_OK;
    ech_tseq *seq;
    if (attribute.kind == ECH_T_STR) {
        const ech_tstr dot = { .ptr = ".", .len = 1 };
        ECH_TRY(ech_tstr_split(vm, attribute.as.str, &dot, -1, &seq));
    } else {
        ECH_TRY(ech_tseq_new(vm, 1, &seq));
        ECH_TRY(ech_tseq_push(vm, seq, attribute));
    }
    for (size_t i = 0; i < seq->n; i++) {
        ech_tval *const part = &seq->items[i];
        if (part->kind != ECH_T_STR || !is_number(part->as.str)) continue;
        int64_t n = 0;
        for (size_t k = 0; k < part->as.str->len; k++) {
            n = n * 10 + (part->as.str->ptr[k] - '0');
        }
        *part = ech_tv_int(n);
    }
    ret->parts = seq->items;
    ret->n = seq->n;
    return ECH_OK;
}

/*
 * Case is ignored for text alone, by lower(); other values compare as they are. ignore_case() in
 * Jinja: lower(), not casefold(), so "ß" and "SS" stay different.
 */
static ech_status fold_case(ech_tvm *const vm, ech_tval *const v)
{
    return v->kind == ECH_T_STR ? ech_tstr_case(vm, v->as.str, ECH_TCASE_LOWER, v) : ECH_OK;
}

/*
 * The default replaces an undefined value on every step, so that the rest of the path is looked up
 * in it: that is what Jinja does too. Each part is asked for as x[part] is, keys before attributes,
 * the other way round than the dot of an expression. An undefined value on the way without a
 * default fails at the next part; as the last it is given out, and what orders it fails.
 */
static ech_status follow(ech_tvm *const vm, const path *const p, const ech_tval item,
                         ech_tval *const ret)
{
    *ret = item;
    for (size_t i = 0; i < p->n; i++) {
        ECH_TRY(ech_tv_item(vm, *ret, p->parts[i], ret));
        if (ret->kind == ECH_T_UNDEFINED && given(p->otherwise)) *ret = p->otherwise;
    }
    return p->ignore_case ? fold_case(vm, ret) : ECH_OK;
}

/* ---- generators ---- */

/* What map, select and their kin do with an item. */
typedef struct mapper {
    ech_tcall call;         /* pos[0] is the item */
    const ech_tbuiltin *fn; /* NULL: the item (or its attribute) itself */
    path path;
    bool wanted; /* select: true, reject: false */
    bool is_ready;
} mapper;

/*
 * Filters and tests are found by name when the first item is asked for, as a generator's body runs
 * only then. A name longer than the buffer can be no builtin's; the message shows its first 60
 * bytes.
 */
static ech_status take_function(ech_tvm *const vm, mapper *const m, const size_t at,
                                const ech_tbuiltin *(*const find)(const char *),
                                const char *const what)
{
    ech_tstr *name;
    char text[64];
    ECH_TRY(ech_targ_str(vm, m->call.pos[at], &name));
    if (name->len < sizeof text) {
        memcpy(text, name->ptr, name->len);
        text[name->len] = '\0';
        m->fn = find(text);
    }
    if (m->fn == NULL)
        return ech_tvm_raise(vm, "no %s named '%.*s'", what, (int)(name->len < 60 ? name->len : 60),
                             name->ptr);
    /* What is left is the item's place and the function's own arguments. */
    m->call.pos += at;
    m->call.n_pos -= at;
    m->call.pos_cap -= at;
    return ECH_OK;
}

/*
 * Every item gets its own copy of the arguments: a filter may keep them, in a generator of its
 * own.
 */
static ech_status apply(ech_tvm *const vm, const mapper *const m, const ech_tval item,
                        ech_tval *const ret)
{
    ech_tcall c = m->call;
    ECH_TRY(ech_tvm_alloc(vm, c.n_pos, sizeof *c.pos, &c.pos));
    memcpy(c.pos, m->call.pos, c.n_pos * sizeof *c.pos);
    c.pos[0] = item;
    return ech_tbuiltin_call(vm, m->fn, &c, ret);
}

/*
 * A positional argument wins over `attribute`, which then goes to the filter as a keyword of its
 * own. What is unknown as a keyword is only an error without one.
 */
static ech_status prepare_map(ech_tvm *const vm, mapper *const m)
{
    m->is_ready = true;
    if (m->call.n_pos > 1) return take_function(vm, m, 1, ech_tfilter_find, "filter");
    const ech_tval *const attribute = ech_tcall_kw(&m->call, "attribute"), *const otherwise =
                                                                               ech_tcall_kw(
                                                                                   &m->call,
                                                                                   "default");
    if (attribute == NULL) return ech_tvm_raise(vm, "map requires a filter argument");
    if (m->call.n_kw > 1 + (size_t)(otherwise != NULL))
        return ech_tvm_raise(vm, "map() got an unexpected keyword argument");
    ECH_TRY(new_path(vm, *attribute, &m->path));
    if (otherwise != NULL) m->path.otherwise = *otherwise;
    return ECH_OK;
}

/*
 * The inner walk is not asked before the arguments are right, so a wrong map() takes nothing from
 * it.
 */
static ech_status next_mapped(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    mapper *const m = it->state;
    ech_tval item;
    if (!m->is_ready) ECH_TRY(prepare_map(vm, m));
    ECH_TRY(ech_titer_next(vm, it->inner, &item));
    *ret = item;
    if (item.kind == ECH_T_ABSENT) return ECH_OK;
    return m->fn == NULL ? follow(vm, &m->path, item, ret) : apply(vm, m, item, ret);
}

/*
 * The attribute's name, for the …attr filters, and the test's name stand before its arguments.
 * Extra keywords go on to the test, which knows whether it wants them.
 */
static ech_status prepare_select(ech_tvm *const vm, mapper *const m, const bool by_attr)
{
    m->is_ready = true;
    const size_t at = by_attr ? 2 : 1;
    if (by_attr) {
        if (m->call.n_pos < 2) return ech_tvm_raise(vm, "missing parameter for attribute name");
        ECH_TRY(new_path(vm, m->call.pos[1], &m->path));
    }
    return m->call.n_pos > at ? take_function(vm, m, at, ech_ttest_find, "test") : ECH_OK;
}

/*
 * The item is judged by its attribute and given out whole. Without a test, truth decides. An
 * undefined attribute is false without a test, so selectattr("x") asks "is there a true x"; with a
 * test it goes to the test, which may be `defined`.
 */
static ech_status next_selected(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    mapper *const m = it->state;
    for (;;) {
        ech_tval item, v;
        ECH_TRY(ech_titer_next(vm, it->inner, &item));
        *ret = item;
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(follow(vm, &m->path, item, &v));
        if (m->fn != NULL) ECH_TRY(apply(vm, m, v, &v));
        if (ech_tv_truth(v) == m->wanted) {
            *ret = item;
            return ECH_OK;
        }
    }
}

static ech_status next_select(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    mapper *const m = it->state;
    if (!m->is_ready) ECH_TRY(prepare_select(vm, m, false));
    return next_selected(vm, it, ret);
}

static ech_status next_selectattr(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    mapper *const m = it->state;
    if (!m->is_ready) ECH_TRY(prepare_select(vm, m, true));
    return next_selected(vm, it, ret);
}

/*
 * The call is copied: the caller's is on its stack, and the generator may outlive it. Its arrays
 * are the arena's.
 */
static ech_status new_mapper(ech_tvm *const vm, ech_tcall *const c, const ech_titer_kind kind,
                             const ech_tnext next, const bool wanted, ech_tval *const ret)
{
    mapper *m;
    if (c->n_pos == 0) return ech_tvm_raise(vm, "a filter without input");
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *m, &m));
    *m = (mapper){ .call = *c, .wanted = wanted };
    return ech_titer_generator(vm, kind, c->pos[0], next, m, ret);
}

static ech_status f_map(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_mapper(vm, c, ECH_TITER_MAP, next_mapped, true, ret);
}
static ech_status f_select(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_mapper(vm, c, ECH_TITER_SELECT, next_select, true, ret);
}
static ech_status f_reject(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_mapper(vm, c, ECH_TITER_SELECT, next_select, false, ret);
}
static ech_status f_selectattr(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_mapper(vm, c, ECH_TITER_SELECT, next_selectattr, true, ret);
}
static ech_status f_rejectattr(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_mapper(vm, c, ECH_TITER_SELECT, next_selectattr, false, ret);
}

/*
 * The state of batch, slice, unique and items: how far the walk is, and what must be known before
 * the first answer.
 */
typedef struct chunker {
    ech_tval size, fill;
    ech_tseq *all; /* slice: everything, once it is read */
    int64_t n, i;
    size_t at;
    ech_tdict *seen; /* unique */
    path path;
} chunker;

/*
 * One walk forward, a batch at a time: a batch of what a generator gives needs no more memory than
 * the batch.
 */
static ech_status next_batch(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    chunker *const k = it->state;
    int64_t n;
    ech_tseq *out;
    ech_tval item = { 0 };
    /*
     * Jinja compares len(tmp) == linecount, so a negative size never fills and all is one batch; so
     * it is with 0 here, where Jinja gives an empty list first.
     */
    ECH_TRY(ech_targ_int(vm, k->size, &n));
    ECH_TRY(ech_tseq_new(vm, 0, &out));
    while (n < 1 || out->n < (size_t)n) {
        ECH_TRY(ech_titer_next(vm, it->inner, &item));
        if (item.kind == ECH_T_ABSENT) break;
        ECH_TRY(ech_tseq_push(vm, out, item));
    }
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    if (out->n == 0) return ECH_OK;
    /* The one loop that makes items nobody gave: a size of a thousand millions must cost steps. */
    while (given(k->fill) && n > 0 && out->n < (size_t)n) {
        ECH_TRY(ech_tvm_charge(vm, 1));
        ECH_TRY(ech_tseq_push(vm, out, k->fill));
    }
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

/*
 * The number of columns is fixed, not their length: the first n % columns have one more, and only
 * the others are filled. Five items in three columns are 2, 2 and 1, and the last gets the filling;
 * where they come out even Jinja fills every column, one item more each, and so does this. A
 * negative number of columns gives none.
 */
static ech_status next_slice(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    chunker *const k = it->state;
    ech_tseq *out;
    if (k->all == NULL) {
        ECH_TRY(
            ech_tv_to_list(vm, (ech_tval){ .kind = ECH_T_ITER, .as.iter = it->inner }, &k->all));
        ECH_TRY(ech_targ_int(vm, k->size, &k->n));
        if (k->n == 0) return ech_tvm_raise(vm, "integer division or modulo by zero");
    }
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    if (k->i >= k->n) return ECH_OK;
    const size_t per = k->all->n / (size_t)k->n, extra = k->all->n % (size_t)k->n;
    /* Columns at the front take one of the remainder each. */
    const bool longer = (size_t)k->i < extra;
    ECH_TRY(ech_tseq_new(vm, per + 1, &out));
    for (size_t i = 0; i < per + longer; i++) {
        ECH_TRY(ech_tseq_push(vm, out, k->all->items[k->at++]));
    }
    if (given(k->fill) && !longer) ECH_TRY(ech_tseq_push(vm, out, k->fill));
    k->i++;
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

/*
 * Keys are values of a dict, so what is equal in Python (1 and 1.0 and true) is one. What can't be
 * a key (a list, a dict) fails, as in a set. The first of equals is given out; with case ignored
 * that may be "a" or "A".
 */
static ech_status next_unique(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    chunker *const k = it->state;
    for (;;) {
        ech_tval item, key, found;
        ECH_TRY(ech_titer_next(vm, it->inner, &item));
        *ret = item;
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(follow(vm, &k->path, item, &key));
        ECH_TRY(ech_tdict_find(vm, k->seen, key, &found));
        if (found.kind != ECH_T_ABSENT) continue;
        return ech_tdict_set(vm, k->seen, key, ech_tv_none());
    }
}

/*
 * The view makes the pairs; this generator only stands before it, so that even a wrong input fails
 * late.
 */
static ech_status next_item(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    return ech_titer_next(vm, it->inner, ret);
}

/*
 * The input is opened when the first item is asked for. a[1] and a[2] are the two parameters behind
 * the input, under whatever name the filter has for them; unique has its own use for them.
 */
static ech_status new_chunker(ech_tvm *const vm, ech_tcall *const c, const ech_titer_kind kind,
                              const ech_tnext next, ech_tval *const ret)
{
    chunker *k;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *k, &k));
    *k = (chunker){ .size = c->a[1], .fill = c->a[2] };
    return ech_titer_generator(vm, kind, c->a[0], next, k, ret);
}

static ech_status f_batch(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_chunker(vm, c, ECH_TITER_BATCH, next_batch, ret);
}
static ech_status f_slice(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return new_chunker(vm, c, ECH_TITER_SLICE, next_slice, ret);
}

/*
 * Attribute and set are made here and not at the first item: neither can fail in a way a template
 * could see, but for memory.
 */
static ech_status f_unique(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ECH_TRY(new_chunker(vm, c, ECH_TITER_UNIQUE, next_unique, ret));
    chunker *const k = ret->as.iter->state;
    ECH_TRY(ech_tdict_new(vm, &k->seen));
    ECH_TRY(new_path(vm, c->a[2], &k->path));
    k->path.ignore_case = !truth(c->a[1]);
    return ECH_OK;
}

/* An undefined input gives nothing, which saves a template the question whether there are any. */
static ech_status f_items(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tval pairs = c->a[0];
    if (pairs.kind == ECH_T_DICT) {
        ech_tview *v;
        ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *v, &v));
        *v = (ech_tview){ .dict = pairs.as.dict, .kind = ECH_TVIEW_ITEMS };
        pairs = (ech_tval){ .kind = ECH_T_VIEW, .as.view = v };
    } else if (pairs.kind != ECH_T_UNDEFINED) {
        /* Jinja fails when the first pair is asked for; a number fails there as well. */
        pairs = ech_tv_none();
    }
    return ech_titer_generator(vm, ECH_TITER_ITEMS, pairs, next_item, NULL, ret);
}

/* ---- sorting and grouping ---- */

/*
 * Keys are made once; the sort is stable, also when it is reversed, as Python's is. Memory is one
 * key for each item beside the list. `seq` is sorted in place, so it must be the caller's own.
 */
static ech_status sort_by(ech_tvm *const vm, ech_tseq *const seq, const path *const p,
                          const bool reverse, ech_tval **const ret_keys)
{
    ech_tval *keys;
    ECH_TRY(ech_tvm_alloc(vm, seq->n + 1, sizeof *keys, &keys));
    for (size_t i = 0; i < seq->n; i++) {
        ECH_TRY(follow(vm, p, seq->items[i], &keys[i]));
    }
    *ret_keys = keys;
    return ech_tseq_sort(vm, seq->items, keys, seq->n, reverse);
}

/*
 * The keys of a sort: lists, one value for each attribute of "a,b". Parts of a path with dots work
 * in each of them. A key is a list even for one attribute, as in Jinja: lists compare item by item,
 * so the first difference decides.
 */
static ech_status sort_keys(ech_tvm *const vm, const ech_tseq *const seq, const ech_tval attribute,
                            const bool ignore_case, ech_tval *const keys)
{
    const ech_tstr comma = { .ptr = ",", .len = 1 };
    ech_tseq one = { .items = (ech_tval[]){ attribute }, .n = 1 };
    ech_tseq *names = &one;
    if (attribute.kind == ECH_T_STR)
        ECH_TRY(ech_tstr_split(vm, attribute.as.str, &comma, -1, &names));
    for (size_t i = 0; i < seq->n; i++) {
        ech_tseq *key;
        ECH_TRY(ech_tseq_new(vm, names->n, &key));
        for (size_t k = 0; k < names->n; k++) {
            path p;
            ech_tval v;
            ECH_TRY(new_path(vm, names->items[k], &p));
            p.ignore_case = ignore_case;
            ECH_TRY(follow(vm, &p, seq->items[i], &v));
            ECH_TRY(ech_tseq_push(vm, key, v));
        }
        keys[i] = ech_tv_seq(ECH_T_LIST, key);
    }
    return ECH_OK;
}

/*
 * Values without an order (a number and a text) fail, as Python's < does. The list is a copy: the
 * input keeps its order.
 */
static ech_status f_sort(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tseq *seq;
    ech_tval *keys;
    ECH_TRY(ech_tv_to_list(vm, c->a[0], &seq));
    *ret = ech_tv_seq(ECH_T_LIST, seq);
    ECH_TRY(ech_tvm_alloc(vm, seq->n + 1, sizeof *keys, &keys));
    ECH_TRY(sort_keys(vm, seq, c->a[3], !truth(c->a[2]), keys));
    return ech_tseq_sort(vm, seq->items, keys, seq->n, truth(c->a[1]));
}

/*
 * A list of pairs, sorted by one half of them: by the number 0 or 1 as a path. `by` is checked
 * before the kind of the input, as in Jinja.
 */
static ech_status f_dictsort(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    bool by_value = false;
    if (c->a[0].kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, c->a[0].as.undef);
    if (c->a[2].kind != ECH_T_ABSENT) {
        by_value = c->a[2].kind == ECH_T_STR && ech_tstr_is(c->a[2].as.str, "value");
        if (!by_value && !(c->a[2].kind == ECH_T_STR && ech_tstr_is(c->a[2].as.str, "key"))) {
            return ech_tvm_raise(vm, "you can only sort by either \"key\" or \"value\"");
        }
    }
    if (c->a[0].kind != ECH_T_DICT)
        return ech_tvm_raise(vm, "'%s' object has no attribute 'items'", ech_tv_type(c->a[0]));
    /* Entries stand in the order of insertion, which equal keys keep. */
    const ech_tdict *const d = c->a[0].as.dict;
    ech_tseq *seq;
    ech_tval *keys, part = ech_tv_int(by_value);
    ECH_TRY(ech_tseq_new(vm, d->n, &seq));
    for (size_t i = 0; i < d->n; i++) {
        ech_tval pair;
        ECH_TRY(ech_tv_pair(vm, d->entries[i].key, d->entries[i].value, &pair));
        ECH_TRY(ech_tseq_push(vm, seq, pair));
    }
    const path p = { .parts = &part, .n = 1, .ignore_case = !truth(c->a[1]) };
    *ret = ech_tv_seq(ECH_T_LIST, seq);
    return sort_by(vm, seq, &p, truth(c->a[3]), &keys);
}

/* The items are filled in afterwards: the pair points at the list that grows. */
static ech_status push_group(ech_tvm *const vm, ech_tseq *const out, const ech_tval key,
                             ech_tseq *const items)
{
    ech_tval pair;
    ECH_TRY(ech_tv_pair(vm, key, ech_tv_seq(ECH_T_LIST, items), &pair));
    pair.as.seq->is_group = true;
    return ech_tseq_push(vm, out, pair);
}

/*
 * Sorted first, then cut where the key changes, so groups come in the order of their keys and items
 * in the order they had. Case is ignored for both, but the group shows the key of its first item as
 * it is written: that is why the path is followed twice.
 */
static ech_status f_groupby(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tseq *seq, *out, *group = NULL;
    ech_tval *keys, shown = { 0 };
    path p, exact;
    ECH_TRY(new_path(vm, c->a[1], &p));
    p.otherwise = c->a[2];
    exact = p;
    p.ignore_case = !truth(c->a[3]);
    ECH_TRY(ech_tv_to_list(vm, c->a[0], &seq));
    ECH_TRY(sort_by(vm, seq, &p, false, &keys));
    ECH_TRY(ech_tseq_new(vm, 0, &out));
    for (size_t i = 0; i < seq->n; i++) {
        bool same = false;
        if (i > 0) ECH_TRY(ech_tv_equal(vm, keys[i - 1], keys[i], &same));
        if (!same) {
            ECH_TRY(ech_tseq_new(vm, 0, &group));
            /* With the case it has: the key of the sort may be in lower case. */
            ECH_TRY(follow(vm, &exact, seq->items[i], &shown));
            ECH_TRY(push_group(vm, out, shown, group));
        }
        ECH_TRY(ech_tseq_push(vm, group, seq->items[i]));
    }
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

/*
 * The first of equals stays, for Python's max() wants "greater" and its min() "less". Nothing to
 * choose from is an undefined value and no error.
 */
static ech_status extreme(ech_tvm *const vm, ech_tcall *const c, const bool max,
                          ech_tval *const ret)
{
    ech_titer *it;
    path p;
    ech_tval item, key, best_key = { 0 };
    ECH_TRY(new_path(vm, c->a[2], &p));
    p.ignore_case = !truth(c->a[1]);
    ECH_TRY(ech_titer_open(vm, c->a[0], &it));
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    for (;;) {
        bool better = true;
        ECH_TRY(ech_titer_next(vm, it, &item));
        if (item.kind == ECH_T_ABSENT) break;
        ECH_TRY(follow(vm, &p, item, &key));
        if (ret->kind != ECH_T_ABSENT)
            ECH_TRY(max ? ech_tv_less(vm, best_key, key, &better)
                        : ech_tv_less(vm, key, best_key, &better));
        /* The first item has nothing to beat. */
        if (!better) continue;
        *ret = item;
        best_key = key;
    }
    return ret->kind != ECH_T_ABSENT
               ? ECH_OK
               : ech_tv_undef_hint(vm, "no aggregated item, sequence was empty", ret);
}

static ech_status f_min(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return extreme(vm, c, false, ret);
}
static ech_status f_max(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return extreme(vm, c, true, ret);
}

/* ---- the rest ---- */

/*
 * The loop's own object has a length as well: that of the whole iterable, however far the loop is.
 */
static ech_status f_length(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    size_t n;
    if (c->a[0].kind == ECH_T_LOOP) {
        const ech_tstr name = { .ptr = "length", .len = 6 };
        return ech_tloop_attr(vm, c->a[0], &name, ret);
    }
    ECH_TRY(ech_tv_len(vm, c->a[0], &n));
    *ret = ech_tv_int((int64_t)n);
    return ECH_OK;
}

/*
 * Always a copy, also of a list. It has the input's origin: brackets and commas of a user's list
 * stay data when they are printed.
 */
static ech_status f_list(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tseq *seq;
    ECH_TRY(ech_tv_to_list(vm, c->a[0], &seq));
    *ret = ech_tv_seq(ECH_T_LIST, seq);
    ret->is_data = c->a[0].is_data;
    return ECH_OK;
}

/*
 * Items are turned into text as str() does it, so None joins as "None"; that is the reference with
 * autoescape off. The separator loses its mark as well.
 */
static ech_status f_join(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *sep;
    ech_tval items = c->a[0], empty;
    ECH_TRY(ech_tv_lit(vm, "", &empty));
    ECH_TRY(ech_tv_to_str(vm, c->a[1].kind == ECH_T_ABSENT ? empty : c->a[1], false, &sep));
    if (given(c->a[2])) {
        path p;
        ech_tseq *seq;
        ECH_TRY(new_path(vm, c->a[2], &p));
        ECH_TRY(ech_tv_to_list(vm, items, &seq));
        for (size_t i = 0; i < seq->n; i++) {
            ECH_TRY(follow(vm, &p, seq->items[i], &seq->items[i]));
        }
        items = ech_tv_seq(ECH_T_LIST, seq);
    }
    return ech_tstr_join(vm, sep, items, true, ret);
}

/* A generator loses its first item by it, and no more. */
static ech_status f_first(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_titer *it;
    ECH_TRY(ech_titer_open(vm, c->a[0], &it));
    ECH_TRY(ech_titer_next(vm, it, ret));
    return ret->kind != ECH_T_ABSENT
               ? ECH_OK
               : ech_tv_undef_hint(vm, "no first item, sequence was empty", ret);
}

/*
 * What reversed() takes in Python. A generator is not among them: `last` fails for it, while
 * `reverse` reads it into a list first, as in Jinja.
 */
static bool is_reversible(const ech_tval v)
{
    return v.kind == ECH_T_LIST || v.kind == ECH_T_TUPLE || v.kind == ECH_T_DICT ||
           v.kind == ECH_T_RANGE || v.kind == ECH_T_VIEW || v.kind == ECH_T_UNDEFINED ||
           v.kind == ECH_T_STR;
}

/* An iterator, not a list: it can be walked once and has no length. */
static ech_status reversed(ech_tvm *const vm, const ech_tval v, ech_tval *const ret)
{
    ech_titer *it;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *it, &it));
    *it = (ech_titer){ .kind = v.kind == ECH_T_UNDEFINED ? ECH_TITER_NONE : ECH_TITER_REVERSED,
                       .source = v,
                       .is_started = true };
    *ret = (ech_tval){ .kind = ECH_T_ITER, .as.iter = it };
    return ECH_OK;
}

/* By the slice [::-1], which goes by characters and keeps each one's origin. */
static ech_status reverse_str(ech_tvm *const vm, const ech_tval v, ech_tval *const ret)
{
    const ech_tslice back = { .step = ech_tv_int(-1) };
    return ech_tv_slice_of(vm, v, &back, ret);
}

/*
 * Text by its index, everything else by the first step of a walk from the end: no item but the last
 * is looked at.
 */
static ech_status f_last(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tval v = c->a[0];
    if (!is_reversible(v))
        return ech_tvm_raise(vm, "'%s' object is not reversible", ech_tv_type(v));
    if (v.kind == ECH_T_STR) {
        ECH_TRY(ech_tv_item(vm, v, ech_tv_int(-1), ret));
        return ret->kind != ECH_T_UNDEFINED
                   ? ECH_OK
                   : ech_tv_undef_hint(vm, "no last item, sequence was empty", ret);
    }
    ECH_TRY(reversed(vm, v, &v));
    ECH_TRY(ech_titer_next(vm, v.as.iter, ret));
    return ret->kind != ECH_T_ABSENT
               ? ECH_OK
               : ech_tv_undef_hint(vm, "no last item, sequence was empty", ret);
}

/* Text gives text, a sequence an iterator, and only what can't be walked backwards is copied. */
static ech_status f_reverse(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    if (c->a[0].kind == ECH_T_STR) return reverse_str(vm, c->a[0], ret);
    if (is_reversible(c->a[0])) return reversed(vm, c->a[0], ret);
    ech_tseq *seq;
    ECH_TRY(ech_tv_to_list(vm, c->a[0], &seq));
    /* Its own copy, so it may be turned round in place. */
    for (size_t i = 0; i < seq->n / 2; i++) {
        const ech_tval swap = seq->items[i];
        seq->items[i] = seq->items[seq->n - 1 - i];
        seq->items[seq->n - 1 - i] = swap;
    }
    *ret = ech_tv_seq(ECH_T_LIST, seq);
    return ECH_OK;
}

/*
 * By `+`, from the start value on, so lists add up if the start is one. Text as a start is refused,
 * as Python does, since it would be quadratic; text among the items fails at the first +, 0 being a
 * number.
 */
static ech_status f_sum(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_titer *it;
    path p;
    ECH_TRY(new_path(vm, c->a[1], &p));
    *ret = c->a[2].kind == ECH_T_ABSENT ? ech_tv_int(0) : c->a[2];
    if (ret->kind == ECH_T_STR) return ech_tvm_raise(vm, "sum() can't sum strings");
    ECH_TRY(ech_titer_open(vm, c->a[0], &it));
    for (;;) {
        ech_tval item;
        ECH_TRY(ech_titer_next(vm, it, &item));
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(follow(vm, &p, item, &item));
        ECH_TRY(ech_tv_binary(vm, ECH_OP_ADD, *ret, item, ret));
    }
}

/*
 * count and length are Python's len(), which takes no keyword, hence "!". map and its kin bind
 * their own arguments, since most of them are another filter's.
 */
const ech_tbuiltin ech_tfilters_seq[] = {
    { "batch", f_batch, "value linecount ?fill_with" },
    { "count", f_length, "!obj" },
    { "dictsort", f_dictsort, "value ?case_sensitive ?by ?reverse" },
    { "first", f_first, "seq" },
    { "groupby", f_groupby, "value attribute ?default ?case_sensitive" },
    { "items", f_items, "value" },
    { "join", f_join, "value ?d ?attribute" },
    { "last", f_last, "seq" },
    { "length", f_length, "!obj" },
    { "list", f_list, "value" },
    { "map", f_map, NULL },
    { "max", f_max, "value ?case_sensitive ?attribute" },
    { "min", f_min, "value ?case_sensitive ?attribute" },
    { "reject", f_reject, NULL },
    { "rejectattr", f_rejectattr, NULL },
    { "reverse", f_reverse, "value" },
    { "select", f_select, NULL },
    { "selectattr", f_selectattr, NULL },
    { "slice", f_slice, "value slices ?fill_with" },
    { "sort", f_sort, "value ?reverse ?case_sensitive ?attribute" },
    { "sum", f_sum, "iterable ?attribute ?start" },
    { "unique", f_unique, "value ?case_sensitive ?attribute" },
    { NULL, NULL, NULL },
};
