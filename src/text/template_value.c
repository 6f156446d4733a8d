/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: making them, comparing them, and the rendering's accounts (memory, steps, depth).
 *
 * Invariant: recursion over nested values goes through ech_tvm_enter(), so that no conversation
 * and no template can exhaust the stack. A rendering belongs to one thread.
 */
#include "src/text/template_value.h"

#include <math.h>
#include <stdio.h>

#include "src/text/template_node.h"

/* ---- the rendering ---- */

/*
 * All errors of a rendering come through here and get the place of vm->at. The text of a
 * raise_exception (EINVAL) stays alone: a server hands it on as it is.
 */
ech_status ech_tvm_fail(ech_tvm *const vm, const ech_status code, const char *const fmt, ...)
{
    char text[ECH_ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const int64_t line = vm->at == NULL ? 0 : (int64_t)vm->at->line;
    const int64_t column = vm->at == NULL ? 0 : (int64_t)vm->at->column;
    if (code == ECH_EINVAL) return ech_fail_at(vm->err, code, line, column, -1, "%s", text);
    if (line == 0) return ech_fail_at(vm->err, code, 0, 0, -1, "rendering the template: %s", text);
    return ech_fail_at(vm->err, code, line, column, -1,
                       "rendering the template, line %lld column %lld: %s", (long long)line,
                       (long long)column, text);
}

/*
 * The rendering's own limit and the machine's memory are told apart: the first is the request's
 * fault.
 */
ech_status ech_tvm_no_memory(ech_tvm *const vm, const size_t wanted)
{
    if (vm->arena.limit != 0 && wanted > vm->arena.limit - vm->arena.total) {
        (void)ech_tvm_fail(vm, ECH_ELIMIT, "needs more than the limit of %zu bytes of memory",
                           vm->arena.limit);
        return ECH_ELIMIT;
    }
    (void)ech_tvm_fail(vm, ECH_ENOMEM, "out of memory");
    return ECH_ENOMEM;
}

/*
 * Steps are what bounds time: every node costs one, long operations cost by their size. What is
 * spent stays spent.
 */
ech_status ech_tvm_charge(ech_tvm *const vm, const size_t n)
{
    if (n > vm->steps_left) {
        vm->steps_left = 0;
        (void)ech_tvm_fail(vm, ECH_ELIMIT, "takes more steps than the limit allows");
        return ECH_ELIMIT;
    }
    vm->steps_left -= n;
    return ECH_OK;
}

/*
 * One more level of nesting, for evaluation and for walks over nested values alike; the caller
 * takes it back by vm->depth--.
 */
ech_status ech_tvm_enter(ech_tvm *const vm)
{
    ECH_TRY(ech_tvm_charge(vm, 1));
    if (vm->depth >= vm->max_depth) {
        return ech_tvm_fail(vm, ECH_ELIMIT, "nested more than %u levels deep", vm->max_depth);
    }
    vm->depth++;
    return ECH_OK;
}

/* Zeroed memory. A product that would overflow is more than any limit. */
ech_status ech_tvm_alloc(ech_tvm *const vm, const size_t n, const size_t size, void *const ret)
{
    void *const p = ech_arena_array(&vm->arena, n, size);
    if (p == NULL) return ech_tvm_no_memory(vm, n > SIZE_MAX / size ? SIZE_MAX : n * size);
    *(void **)ret = p;
    return ECH_OK;
}

/* ---- sequences ---- */

/* With room for cap items and none of them set; 0 takes no memory for items. */
ech_status ech_tseq_new(ech_tvm *const vm, const size_t cap, ech_tseq **const ret)
{
    ech_tseq *seq;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *seq, &seq));
    if (cap > 0) ECH_TRY(ech_tvm_alloc(vm, cap, sizeof(ech_tval), &seq->items));
    seq->cap = cap;
    *ret = seq;
    return ECH_OK;
}

/*
 * Growth leaves the old items in the arena: nothing is freed before the rendering ends, so
 * doubling is what keeps the waste below the list's own size.
 */
ech_status ech_tseq_push(ech_tvm *const vm, ech_tseq *const seq, const ech_tval v)
{
    if (seq->n == seq->cap) {
        const size_t cap = seq->cap < 4 ? 4 : seq->cap * 2;
        ech_tval *items;
        ECH_TRY(ech_tvm_alloc(vm, cap, sizeof *items, &items));
        if (seq->n > 0) memcpy(items, seq->items, seq->n * sizeof *items);
        seq->items = items;
        seq->cap = cap;
    }
    seq->items[seq->n++] = v;
    return ECH_OK;
}

/*
 * kind tells a list from a tuple: they share everything but their name and whether they can be
 * hashed.
 */
ech_tval ech_tv_seq(const ech_tkind kind, ech_tseq *const seq)
{
    return (ech_tval){ .kind = (uint8_t)kind, .as.seq = seq };
}

ech_status ech_tv_pair(ech_tvm *const vm, const ech_tval a, const ech_tval b, ech_tval *const ret)
{
    ech_tseq *seq;
    ECH_TRY(ech_tseq_new(vm, 2, &seq));
    seq->items[0] = a;
    seq->items[1] = b;
    seq->n = 2;
    *ret = ech_tv_seq(ECH_T_TUPLE, seq);
    return ECH_OK;
}

/* ---- dictionaries ---- */

#define SMALL_DICT 8

/* Spreads the upper bits, since tables are masked by their lower ones. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

/*
 * FNV-1a. No secret in it: texts made to collide cost their sender steps, and then the rendering
 * ends.
 */
static uint64_t hash_bytes(const char *const p, const size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (uint8_t)p[i]) * 0x100000001b3u;
    }
    return mix(h ^ len);
}

/*
 * Numbers that are equal hash alike: 1, 1.0, True. Below the bound the integer is the double's
 * exact value.
 */
static uint64_t hash_float(const double f)
{
    if (f == floor(f) && fabs(f) < 9.0e18) return mix((uint64_t)(int64_t)f);
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return mix(bits);
}

/*
 * Lists and dicts can change, so Python refuses to hash them; tuples are hashed by what they hold.
 * What else there is may be a key by its kind, and == tells such keys apart.
 */
static ech_status hash_value(ech_tvm *const vm, const ech_tval v, uint64_t *const ret)
{
    switch (v.kind) {
    case ECH_T_STR:
        ECH_TRY(ech_tvm_charge(vm, v.as.str->len / 64));
        *ret = hash_bytes(v.as.str->ptr, v.as.str->len);
        return ECH_OK;
    case ECH_T_BIGINT:
        *ret = hash_bytes(v.as.str->ptr, v.as.str->len);
        return ECH_OK;
    case ECH_T_BOOL:
    case ECH_T_INT:
        *ret = mix((uint64_t)ech_tv_as_int(v));
        return ECH_OK;
    case ECH_T_FLOAT:
        *ret = hash_float(v.as.f);
        return ECH_OK;
    case ECH_T_TUPLE: {
        ECH_TRY(ech_tvm_enter(vm));
        uint64_t h = 0x345678;
        for (size_t i = 0; i < v.as.seq->n; i++) {
            uint64_t item;
            ECH_TRY(hash_value(vm, v.as.seq->items[i], &item));
            h = mix(h * 31 + item);
        }
        ech_tvm_leave(vm);
        *ret = h;
        return ECH_OK;
    }
    case ECH_T_LIST:
    case ECH_T_DICT:
        return ech_tvm_raise(vm, "unhashable type: '%s'", ech_tv_type(v));
    default:
        *ret = v.kind;
        return ECH_OK;
    }
}

/*
 * Empty dicts cost nothing but their head; up to SMALL_DICT entries are searched one by one, more
 * get an index of twice as many places.
 */
ech_status ech_tdict_new(ech_tvm *const vm, ech_tdict **const ret)
{
    return ech_tvm_alloc(vm, 1, sizeof **ret, ret);
}

/*
 * The entry with the key, or SIZE_MAX. Hashes are kept with the entries: keys are compared only
 * where they agree.
 */
static ech_status dict_lookup(ech_tvm *const vm, const ech_tdict *const d, const ech_tval key,
                              const uint64_t hash, size_t *const ret)
{
    bool same;
    *ret = SIZE_MAX;
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->entries[i].hash != hash) continue;
            ECH_TRY(ech_tv_equal(vm, d->entries[i].key, key, &same));
            if (same) {
                *ret = i;
                return ECH_OK;
            }
        }
        return ECH_OK;
    }
    for (size_t at = hash & (d->index_cap - 1); d->index[at] != 0;
         at = (at + 1) & (d->index_cap - 1)) {
        const size_t i = d->index[at] - 1;
        ECH_TRY(ech_tvm_charge(vm, 1));
        if (d->entries[i].hash != hash) continue;
        ECH_TRY(ech_tv_equal(vm, d->entries[i].key, key, &same));
        if (same) {
            *ret = i;
            return ECH_OK;
        }
    }
    return ECH_OK;
}

/* Linear probing; entries are never removed, so a free place ends every search. */
static void index_entry(ech_tdict *const d, const size_t i)
{
    size_t at = d->entries[i].hash & (d->index_cap - 1);
    while (d->index[at] != 0) {
        at = (at + 1) & (d->index_cap - 1);
    }
    d->index[at] = (uint32_t)(i + 1);
}

/*
 * Room for one more entry; rebuilds the index when it is half full. Old entries and the old index
 * stay in the arena, as with lists.
 */
static ech_status dict_grow(ech_tvm *const vm, ech_tdict *const d)
{
    if (d->n < d->cap) return ECH_OK;
    if (d->n >= UINT32_MAX / 4) return ech_tvm_no_memory(vm, SIZE_MAX);
    const size_t cap = d->cap < SMALL_DICT ? SMALL_DICT : d->cap * 2;
    ech_tentry *entries;
    ECH_TRY(ech_tvm_alloc(vm, cap, sizeof *entries, &entries));
    if (d->n > 0) memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->cap = cap;
    if (cap <= SMALL_DICT) return ECH_OK;
    ECH_TRY(ech_tvm_alloc(vm, cap * 2, sizeof *d->index, &d->index));
    d->index_cap = cap * 2;
    for (size_t i = 0; i < d->n; i++) {
        index_entry(d, i);
    }
    return ECH_OK;
}

/*
 * A new key goes to the end: dicts keep their order, as Python's do. A key that is there keeps its
 * place and its first spelling: 1, then True, stays 1.
 */
ech_status ech_tdict_set(ech_tvm *const vm, ech_tdict *const d, const ech_tval key,
                         const ech_tval value)
{
    uint64_t hash;
    size_t i;
    ECH_TRY(hash_value(vm, key, &hash));
    ECH_TRY(dict_lookup(vm, d, key, hash, &i));
    if (i != SIZE_MAX) {
        d->entries[i].value = value;
        return ECH_OK;
    }
    ECH_TRY(dict_grow(vm, d));
    d->entries[d->n] = (ech_tentry){ .key = key, .value = value, .hash = hash };
    d->n++;
    if (d->index != NULL) index_entry(d, d->n - 1);
    return ECH_OK;
}

/* ABSENT for what isn't there; a key that can't be hashed (a list) is Python's TypeError. */
ech_status ech_tdict_find(ech_tvm *const vm, const ech_tdict *const d, const ech_tval key,
                          ech_tval *const ret)
{
    uint64_t hash;
    size_t i;
    ECH_TRY(hash_value(vm, key, &hash));
    ECH_TRY(dict_lookup(vm, d, key, hash, &i));
    *ret = i == SIZE_MAX ? (ech_tval){ .kind = ECH_T_ABSENT } : d->entries[i].value;
    return ECH_OK;
}

static bool entry_is(const ech_tentry *const e, const char *const name, const size_t len)
{
    return e->key.kind == ECH_T_STR && e->key.as.str->len == len &&
           memcmp(e->key.as.str->ptr, name, len) == 0;
}

/*
 * By name, without making a value of it, and so without a way to fail: for the keys that the code
 * itself looks for.
 */
const ech_tval *ech_tdict_get(const ech_tdict *const d, const char *const name, const size_t len)
{
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            if (entry_is(&d->entries[i], name, len)) return &d->entries[i].value;
        }
        return NULL;
    }
    const uint64_t hash = hash_bytes(name, len);
    for (size_t at = hash & (d->index_cap - 1); d->index[at] != 0;
         at = (at + 1) & (d->index_cap - 1)) {
        const ech_tentry *const e = &d->entries[d->index[at] - 1];
        if (e->hash == hash && entry_is(e, name, len)) return &e->value;
    }
    return NULL;
}

/* ---- undefined ---- */

/* What is undefined knows why, since the error comes later, where it is used. */
static ech_status new_undef(ech_tvm *const vm, const ech_tundef u, ech_tval *const ret)
{
    ech_tundef *p;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *p, &p));
    *p = u;
    *ret = (ech_tval){ .kind = ECH_T_UNDEFINED, .as.undef = p };
    return ECH_OK;
}

ech_status ech_tv_undef_name(ech_tvm *const vm, const char *const name, const size_t len,
                             ech_tval *const ret)
{
    return new_undef(vm, (ech_tundef){ .name = name, .name_len = len }, ret);
}

ech_status ech_tv_undef_hint(ech_tvm *const vm, const char *const hint, ech_tval *const ret)
{
    return new_undef(vm, (ech_tundef){ .hint = hint }, ret);
}

ech_status ech_tv_undef_attr(ech_tvm *const vm, const ech_tval obj, const ech_tval key,
                             const bool is_unsafe, ech_tval *const ret)
{
    return new_undef(vm, (ech_tundef){ .obj = obj, .key = key, .is_unsafe = is_unsafe }, ret);
}

ech_status ech_tvm_fail_undef(ech_tvm *const vm, const ech_tundef *const u)
{
    if (u->hint != NULL) return ech_tvm_raise(vm, "%s", u->hint);
    if (u->obj.kind == ECH_T_ABSENT) {
        return ech_tvm_raise(vm, "'%.*s' is undefined", (int)u->name_len, u->name);
    }
    const char *const type = ech_tv_type(u->obj);
    const char *const what = u->obj.kind == ECH_T_NONE ? "" : " object";
    if (u->obj.kind == ECH_T_NONE || u->key.kind == ECH_T_STR) {
        const char *const name = u->key.kind == ECH_T_STR ? u->key.as.str->ptr : "?";
        const int len =
            u->key.kind == ECH_T_STR ? (int)(u->key.as.str->len < 80 ? u->key.as.str->len : 80) : 1;
        if (u->is_unsafe) {
            return ech_tvm_raise(vm, "access to attribute '%.*s' of '%s' object is unsafe", len,
                                 name, type);
        }
        return ech_tvm_raise(vm, "'%s%s' has no attribute '%.*s'",
                             u->obj.kind == ECH_T_NONE ? "None" : type, what, len, name);
    }
    if (ech_tv_is_int(u->key)) {
        return ech_tvm_raise(vm, "%s object has no element %lld", type,
                             (long long)ech_tv_as_int(u->key));
    }
    return ech_tvm_raise(vm, "%s object has no such element", type);
}

/* ---- asking ---- */

const char *ech_tv_type(const ech_tval v)
{
    static const char *const names[] = {
        [ECH_T_ABSENT] = "missing",
        [ECH_T_UNDEFINED] = "Undefined",
        [ECH_T_NONE] = "NoneType",
        [ECH_T_BOOL] = "bool",
        [ECH_T_INT] = "int",
        [ECH_T_FLOAT] = "float",
        [ECH_T_BIGINT] = "int",
        [ECH_T_STR] = "str",
        [ECH_T_TUPLE] = "tuple",
        [ECH_T_LIST] = "list",
        [ECH_T_DICT] = "dict",
        [ECH_T_RANGE] = "range",
        [ECH_T_VIEW] = "dict view",
        [ECH_T_ITER] = "generator",
        [ECH_T_NAMESPACE] = "Namespace",
        [ECH_T_FUNC] = "function",
        [ECH_T_MACRO] = "Macro",
        [ECH_T_LOOP] = "LoopContext",
        [ECH_T_CYCLER] = "Cycler",
        [ECH_T_JOINER] = "Joiner",
        [ECH_T_SLICE] = "slice",
    };
    if (v.kind == ECH_T_STR && v.as.str->is_markup) return "Markup";
    return names[v.kind];
}

bool ech_tv_truth(const ech_tval v)
{
    switch (v.kind) {
    case ECH_T_ABSENT:
    case ECH_T_UNDEFINED:
    case ECH_T_NONE:
        return false;
    case ECH_T_BOOL:
        return v.as.b;
    case ECH_T_INT:
        return v.as.i != 0;
    case ECH_T_FLOAT:
        return v.as.f != 0;
    case ECH_T_STR:
        return v.as.str->len > 0;
    case ECH_T_TUPLE:
    case ECH_T_LIST:
        return v.as.seq->n > 0;
    case ECH_T_DICT:
        return v.as.dict->n > 0;
    case ECH_T_RANGE:
        return v.as.range->n > 0;
    case ECH_T_VIEW:
        return v.as.view->dict->n > 0;
    default:
        return true;
    }
}

bool ech_tv_has_len(const ech_tval v)
{
    switch (v.kind) {
    case ECH_T_UNDEFINED:
    case ECH_T_STR:
    case ECH_T_TUPLE:
    case ECH_T_LIST:
    case ECH_T_DICT:
    case ECH_T_RANGE:
    case ECH_T_VIEW:
        return true;
    default:
        return false;
    }
}

ech_status ech_tv_len(ech_tvm *const vm, const ech_tval v, size_t *const ret)
{
    switch (v.kind) {
    case ECH_T_UNDEFINED:
        *ret = 0;
        return ECH_OK;
    case ECH_T_STR:
        if (v.as.str->n_chars == SIZE_MAX) ECH_TRY(ech_tvm_charge(vm, v.as.str->len / 64));
        *ret = ech_tstr_chars(v.as.str);
        return ECH_OK;
    case ECH_T_TUPLE:
    case ECH_T_LIST:
        *ret = v.as.seq->n;
        return ECH_OK;
    case ECH_T_DICT:
        *ret = v.as.dict->n;
        return ECH_OK;
    case ECH_T_RANGE:
        *ret = (size_t)v.as.range->n;
        return ECH_OK;
    case ECH_T_VIEW:
        *ret = v.as.view->dict->n;
        return ECH_OK;
    default:
        return ech_tvm_raise(vm, "object of type '%s' has no len()", ech_tv_type(v));
    }
}

bool ech_tv_same(const ech_tval a, const ech_tval b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case ECH_T_NONE:
        return true;
    case ECH_T_BOOL:
        return a.as.b == b.as.b;
    /* CPython keeps one object for each of the small integers. */
    case ECH_T_INT:
        return a.as.i == b.as.i && a.as.i >= -5 && a.as.i <= 256;
    case ECH_T_STR:
        return a.as.str == b.as.str || (a.as.str->len == 0 && b.as.str->len == 0);
    case ECH_T_FLOAT:
        return false;
    default:
        return a.as.seq == b.as.seq;
    }
}

static ech_status seq_equal(ech_tvm *const vm, const ech_tseq *const a, const ech_tseq *const b,
                            bool *const ret)
{
    *ret = false;
    if (a->n != b->n) return ECH_OK;
    if (a == b) {
        *ret = true;
        return ECH_OK;
    }
    ECH_TRY(ech_tvm_enter(vm));
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++) {
        ECH_TRY(ech_tv_equal(vm, a->items[i], b->items[i], &same));
    }
    ech_tvm_leave(vm);
    *ret = same;
    return ECH_OK;
}

static ech_status dict_equal(ech_tvm *const vm, const ech_tdict *const a, const ech_tdict *const b,
                             bool *const ret)
{
    *ret = false;
    if (a->n != b->n) return ECH_OK;
    ECH_TRY(ech_tvm_enter(vm));
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++) {
        ech_tval other;
        ECH_TRY(ech_tdict_find(vm, b, a->entries[i].key, &other));
        if (other.kind == ECH_T_ABSENT)
            same = false;
        else
            ECH_TRY(ech_tv_equal(vm, a->entries[i].value, other, &same));
    }
    ech_tvm_leave(vm);
    *ret = same;
    return ECH_OK;
}

/* 2^53 + 1 is not 2^53 as a float: compares exactly, as Python does. */
static bool num_equal(const ech_tval a, const ech_tval b)
{
    if (a.kind == ECH_T_FLOAT && b.kind == ECH_T_FLOAT) return a.as.f == b.as.f;
    if (a.kind != ECH_T_FLOAT && b.kind != ECH_T_FLOAT) return ech_tv_as_int(a) == ech_tv_as_int(b);
    const double f = a.kind == ECH_T_FLOAT ? a.as.f : b.as.f;
    const int64_t i = ech_tv_as_int(a.kind == ECH_T_FLOAT ? b : a);
    return f == floor(f) && fabs(f) < 9.2e18 && (int64_t)f == i;
}

static ech_status ranges_equal(const ech_trange *const a, const ech_trange *const b,
                               bool *const ret)
{
    *ret =
        a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
    return ECH_OK;
}

ech_status ech_tv_equal(ech_tvm *const vm, const ech_tval a, const ech_tval b, bool *const ret)
{
    ECH_TRY(ech_tvm_charge(vm, 1));
    if (ech_tv_is_num(a) && ech_tv_is_num(b)) {
        *ret = num_equal(a, b);
        return ECH_OK;
    }
    *ret = false;
    if (a.kind != b.kind) return ECH_OK;
    switch (a.kind) {
    case ECH_T_UNDEFINED:
    case ECH_T_NONE:
        *ret = true;
        return ECH_OK;
    case ECH_T_STR:
    case ECH_T_BIGINT:
        ECH_TRY(ech_tvm_charge(vm, a.as.str->len / 64));
        *ret = ech_tstr_eq(a.as.str, b.as.str);
        return ECH_OK;
    case ECH_T_TUPLE:
    case ECH_T_LIST:
        return seq_equal(vm, a.as.seq, b.as.seq, ret);
    case ECH_T_DICT:
        return dict_equal(vm, a.as.dict, b.as.dict, ret);
    case ECH_T_RANGE:
        return ranges_equal(a.as.range, b.as.range, ret);
    case ECH_T_VIEW:
        if (a.as.view->kind == b.as.view->kind && a.as.view->kind != ECH_TVIEW_VALUES) {
            return dict_equal(vm, a.as.view->dict, b.as.view->dict, ret);
        }
        return ECH_OK;
    default:
        *ret = a.as.seq == b.as.seq;
        return ECH_OK;
    }
}

static ech_status seq_less(ech_tvm *const vm, const ech_tseq *const a, const ech_tseq *const b,
                           bool *const ret)
{
    ECH_TRY(ech_tvm_enter(vm));
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        ECH_TRY(ech_tv_equal(vm, a->items[i], b->items[i], &same));
        if (same) continue;
        ECH_TRY(ech_tv_less(vm, a->items[i], b->items[i], ret));
        ech_tvm_leave(vm);
        return ECH_OK;
    }
    ech_tvm_leave(vm);
    *ret = a->n < b->n;
    return ECH_OK;
}

static bool num_less(const ech_tval a, const ech_tval b)
{
    if (a.kind == ECH_T_FLOAT || b.kind == ECH_T_FLOAT) {
        return ech_tv_as_float(a) < ech_tv_as_float(b);
    }
    return ech_tv_as_int(a) < ech_tv_as_int(b);
}

ech_status ech_tv_less(ech_tvm *const vm, const ech_tval a, const ech_tval b, bool *const ret)
{
    ECH_TRY(ech_tvm_charge(vm, 1));
    if (ech_tv_is_num(a) && ech_tv_is_num(b)) {
        *ret = num_less(a, b);
        return ECH_OK;
    }
    if (a.kind == ECH_T_STR && b.kind == ECH_T_STR) {
        /* The order of UTF-8's bytes is the order of code points. */
        const ech_tstr *const x = a.as.str, *const y = b.as.str;
        const size_t n = x->len < y->len ? x->len : y->len;
        ECH_TRY(ech_tvm_charge(vm, n / 64));
        const int c = n == 0 ? 0 : memcmp(x->ptr, y->ptr, n);
        *ret = c < 0 || (c == 0 && x->len < y->len);
        return ECH_OK;
    }
    if ((a.kind == ECH_T_LIST || a.kind == ECH_T_TUPLE) && a.kind == b.kind) {
        return seq_less(vm, a.as.seq, b.as.seq, ret);
    }
    if (a.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, a.as.undef);
    if (b.kind == ECH_T_UNDEFINED) return ech_tvm_fail_undef(vm, b.as.undef);
    if (a.kind == ECH_T_BIGINT || b.kind == ECH_T_BIGINT) {
        return ech_tvm_raise(vm, "integer beyond 64 bits");
    }
    return ech_tvm_raise(vm, "'<' not supported between instances of '%s' and '%s'", ech_tv_type(a),
                         ech_tv_type(b));
}
