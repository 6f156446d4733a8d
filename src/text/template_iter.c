/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iterating, and sorting. A generator is as lazy as Python's: it opens what it walks when its
 * first item is asked for, and can be walked once.
 *
 * Invariant: ech_titer_next gives ABSENT at the end and nowhere else. Each step is charged, so no
 * loop over anything is free. Lists are read by index and not copied: what is appended while a loop
 * runs is seen by it, as in Python.
 */
#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

/* Undefined values are: a loop over one is empty, as with jinja2's Undefined. */
bool ech_tv_is_iterable(const ech_tval v)
{
    switch (v.kind) {
    case ECH_T_UNDEFINED:
    case ECH_T_STR:
    case ECH_T_TUPLE:
    case ECH_T_LIST:
    case ECH_T_DICT:
    case ECH_T_RANGE:
    case ECH_T_VIEW:
    case ECH_T_ITER:
    case ECH_T_LOOP:
        return true;
    default:
        return false;
    }
}

static bool kind_of(const ech_tval v, ech_titer_kind *const ret)
{
    switch (v.kind) {
    case ECH_T_UNDEFINED:
        *ret = ECH_TITER_NONE;
        return true;
    case ECH_T_STR:
        *ret = ECH_TITER_STR;
        return true;
    case ECH_T_TUPLE:
    case ECH_T_LIST:
        *ret = ECH_TITER_SEQ;
        return true;
    case ECH_T_DICT:
    case ECH_T_VIEW:
        *ret = ECH_TITER_DICT;
        return true;
    case ECH_T_RANGE:
        *ret = ECH_TITER_RANGE;
        return true;
    default:
        return false;
    }
}

/*
 * An iterator is its own iterator: what was taken from it is gone. The iterator is no copy: what it
 * walks is asked item by item.
 */
ech_status ech_titer_open(ech_tvm *const vm, const ech_tval v, ech_titer **const ret)
{
    if (v.kind == ECH_T_ITER) {
        *ret = v.as.iter;
        return ECH_OK;
    }
    ech_titer_kind kind;
    if (!kind_of(v, &kind)) return ech_tvm_raise(vm, "'%s' object is not iterable", ech_tv_type(v));
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof **ret, ret));
    **ret = (ech_titer){ .kind = kind, .source = v, .is_started = true };
    return ECH_OK;
}

/*
 * What filters like map give: next is asked for each item, state is its own. Not opened yet, so an
 * input that can't be walked fails with the first item and not before.
 */
ech_status ech_titer_generator(ech_tvm *const vm, const ech_titer_kind kind, const ech_tval v,
                               const ech_tnext next, void *const state, ech_tval *const ret)
{
    ech_titer *it;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *it, &it));
    *it = (ech_titer){ .kind = kind, .source = v, .next = next, .state = state };
    *ret = (ech_tval){ .kind = ECH_T_ITER, .as.iter = it };
    return ECH_OK;
}

/* One code point at a time: a slice of the text, so nothing is copied. */
static ech_status next_char(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    const ech_tstr *const s = it->source.as.str;
    if (it->pos >= s->len) return ECH_OK;
    uint32_t cp;
    const int n = ech_utf8_decode(s->ptr + it->pos, s->len - it->pos, &cp);
    const size_t step = n > 0 ? (size_t)n : 1;
    ECH_TRY(ech_tv_slice(vm, s, it->pos, step, ret));
    it->pos += step;
    /* Iterating over Markup gives plain characters, as str.__iter__ does. */
    ret->as.str->is_markup = false;
    return ECH_OK;
}

/* Keys, values or pairs; a dict itself gives keys. Pairs are made when they are asked for. */
static ech_status next_entry(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    const bool is_view = it->source.kind == ECH_T_VIEW;
    const ech_tdict *const d = is_view ? it->source.as.view->dict : it->source.as.dict;
    const ech_tview_kind kind = is_view ? it->source.as.view->kind : ECH_TVIEW_KEYS;
    if (it->pos >= d->n) return ECH_OK;
    const ech_tentry *const e = &d->entries[it->pos++];
    if (kind == ECH_TVIEW_KEYS)
        *ret = e->key;
    else if (kind == ECH_TVIEW_VALUES)
        *ret = e->value;
    else
        return ech_tv_pair(vm, e->key, e->value, ret);
    return ECH_OK;
}

/* By index from the end, so `reverse` copies nothing. */
static ech_status next_reversed(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    size_t n;
    ECH_TRY(ech_tv_len(vm, it->source, &n));
    if (it->pos >= n) return ECH_OK;
    const size_t i = n - 1 - it->pos++;
    if (it->source.kind == ECH_T_RANGE) {
        *ret = ech_tv_int(it->source.as.range->start + (int64_t)i * it->source.as.range->step);
    } else if (it->source.kind == ECH_T_DICT) {
        *ret = it->source.as.dict->entries[i].key;
    } else if (it->source.kind == ECH_T_VIEW) {
        /* A walk that begins at the entry, for one step. */
        ech_titer one = { .kind = ECH_TITER_DICT, .source = it->source, .pos = i };
        return next_entry(vm, &one, ret);
    } else {
        *ret = it->source.as.seq->items[i];
    }
    return ECH_OK;
}

/*
 * A generator inside a generator recurses, as deep as a template has put them on each other: hence
 * the level. Once it has ended it stays at its end, and its function is not asked again.
 */
static ech_status next_generated(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    if (it->is_done) return ECH_OK;
    if (!it->is_started) {
        it->is_started = true;
        /* select, reject and map look at the truth of what they walk before they walk it. */
        const bool asks = it->kind == ECH_TITER_MAP || it->kind == ECH_TITER_SELECT;
        if (asks && !ech_tv_truth(it->source)) {
            it->is_done = true;
            return ECH_OK;
        }
        ECH_TRY(ech_titer_open(vm, it->source, &it->inner));
    }
    ECH_TRY(ech_tvm_enter(vm));
    ECH_TRY(it->next(vm, it, ret));
    ech_tvm_leave(vm);
    it->is_done = ret->kind == ECH_T_ABSENT;
    return ECH_OK;
}

ech_status ech_titer_next(ech_tvm *const vm, ech_titer *const it, ech_tval *const ret)
{
    *ret = (ech_tval){ .kind = ECH_T_ABSENT };
    ECH_TRY(ech_tvm_charge(vm, 1));
    switch (it->kind) {
    case ECH_TITER_NONE:
        return ECH_OK;
    case ECH_TITER_SEQ:
        if (it->pos < it->source.as.seq->n) *ret = it->source.as.seq->items[it->pos++];
        return ECH_OK;
    case ECH_TITER_STR:
        return next_char(vm, it, ret);
    case ECH_TITER_DICT:
        return next_entry(vm, it, ret);
    case ECH_TITER_RANGE:
        if ((int64_t)it->pos < it->source.as.range->n) {
            *ret = ech_tv_int(it->source.as.range->start +
                              (int64_t)it->pos++ * it->source.as.range->step);
        }
        return ECH_OK;
    case ECH_TITER_REVERSED:
        return next_reversed(vm, it, ret);
    default:
        return next_generated(vm, it, ret);
    }
}

/* A new list even of a list: the caller may sort it or turn it round. */
ech_status ech_tv_to_list(ech_tvm *const vm, const ech_tval v, ech_tseq **const ret)
{
    ech_titer *it;
    size_t n = 0;
    ECH_TRY(ech_titer_open(vm, v, &it));
    if (v.kind == ECH_T_LIST || v.kind == ECH_T_TUPLE) n = v.as.seq->n;
    ECH_TRY(ech_tseq_new(vm, n, ret));
    for (;;) {
        ech_tval item;
        ECH_TRY(ech_titer_next(vm, it, &item));
        if (item.kind == ECH_T_ABSENT) return ECH_OK;
        ECH_TRY(ech_tseq_push(vm, *ret, item));
    }
}

/* ---- sorting: a merge sort, since comparisons may fail and the order must be stable ---- */

typedef struct sorter {
    ech_tvm *vm;
    ech_tval *items, *keys, *spare_items, *spare_keys;
    bool reverse;
} sorter;

/* Whether the right one goes before the left one. Equal ones stay, reversed or not. */
static ech_status goes_before(const sorter *const s, const ech_tval left, const ech_tval right,
                              bool *const ret)
{
    return s->reverse ? ech_tv_less(s->vm, left, right, ret) : ech_tv_less(s->vm, right, left, ret);
}

/* Items and their keys move together. */
static ech_status merge(const sorter *const s, const size_t from, const size_t mid, const size_t to)
{
    size_t a = from, b = mid;
    for (size_t i = from; i < to; i++) {
        bool take_right = a == mid;
        if (a < mid && b < to) ECH_TRY(goes_before(s, s->keys[a], s->keys[b], &take_right));
        const size_t k = take_right ? b++ : a++;
        s->spare_items[i] = s->items[k];
        s->spare_keys[i] = s->keys[k];
    }
    memcpy(s->items + from, s->spare_items + from, (to - from) * sizeof *s->items);
    memcpy(s->keys + from, s->spare_keys + from, (to - from) * sizeof *s->keys);
    return ECH_OK;
}

/* Bottom up, so that no recursion depends on the length; both arrays are scratch of the caller. */
ech_status ech_tseq_sort(ech_tvm *const vm, ech_tval *const items, ech_tval *const keys,
                         const size_t n, const bool reverse)
{
    sorter s = { .vm = vm, .items = items, .keys = keys, .reverse = reverse };
    if (n < 2) return ECH_OK;
    ECH_TRY(ech_tvm_alloc(vm, n, sizeof *items, &s.spare_items));
    ECH_TRY(ech_tvm_alloc(vm, n, sizeof *keys, &s.spare_keys));
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from + width < n; from += 2 * width) {
            const size_t to = from + 2 * width < n ? from + 2 * width : n;
            ECH_TRY(merge(&s, from, from + width, to));
        }
    }
    return ECH_OK;
}
