/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a chat template: Python's, as far as a template can see them.
 *
 * A value is 16 bytes and immutable, or a pointer to something in the rendering's arena. Nothing
 * is freed before the rendering ends, so that values can be shared without counting. What changes
 * in place: a namespace, an iterator's position, a cycler, a joiner.
 *
 * Every value knows whether it is data (it came out of the arguments) or the template's own.
 * A string knows it per byte; anything else as a whole, and gives it to the bytes that print it.
 */
#ifndef ECH_TEXT_TEMPLATE_VALUE_H
#define ECH_TEXT_TEMPLATE_VALUE_H

#include "echelon/template.h"
#include "src/base/arena.h"
#include "src/base/buf.h"
#include "src/base/error.h"

typedef enum ech_tkind {
    ECH_T_ABSENT = 0, /* no value at all: an argument not given, a slot not set */
    ECH_T_UNDEFINED,
    ECH_T_NONE,
    ECH_T_BOOL,
    ECH_T_INT,
    ECH_T_FLOAT,
    ECH_T_BIGINT, /* an integer of the arguments beyond 64 bits: prints, computes nothing */
    ECH_T_STR,
    ECH_T_TUPLE,
    ECH_T_LIST,
    ECH_T_DICT,
    ECH_T_RANGE,
    ECH_T_VIEW, /* dict.items(), .keys(), .values() */
    ECH_T_ITER, /* a generator or another one-way iterator */
    ECH_T_NAMESPACE,
    ECH_T_FUNC, /* a builtin function or a method bound to its object */
    ECH_T_MACRO,
    ECH_T_LOOP,
    ECH_T_CYCLER,
    ECH_T_JOINER,
    ECH_T_SLICE, /* only inside a subscript */
} ech_tkind;

typedef struct ech_tstr ech_tstr;
typedef struct ech_tseq ech_tseq;
typedef struct ech_tdict ech_tdict;
typedef struct ech_tundef ech_tundef;
typedef struct ech_trange ech_trange;
typedef struct ech_tview ech_tview;
typedef struct ech_titer ech_titer;
typedef struct ech_tfunc ech_tfunc;
typedef struct ech_tmacro ech_tmacro;
typedef struct ech_tloop ech_tloop;
typedef struct ech_tcycle ech_tcycle;
typedef struct ech_tslice ech_tslice;
typedef struct ech_tvm ech_tvm;

typedef struct ech_tval {
    uint8_t kind; /* ech_tkind */
    bool is_data; /* for all but strings, which know it per byte */
    union {
        bool b;
        int64_t i;
        double f;
        ech_tstr *str;   /* STR, BIGINT */
        ech_tseq *seq;   /* TUPLE, LIST */
        ech_tdict *dict; /* DICT, NAMESPACE */
        ech_tundef *undef;
        ech_trange *range;
        ech_tview *view;
        ech_titer *iter;
        ech_tfunc *func;
        ech_tmacro *macro;
        ech_tloop *loop;
        ech_tcycle *cycle; /* CYCLER, JOINER */
        ech_tslice *slice;
    } as;
    const char *spelling; /* INT, FLOAT: how the arguments spelled it, when that is to be kept */
} ech_tval;

/*
 * A string: a slice of bytes that are never overwritten. `grow` is the builder's memory behind
 * them; the one string that ends where that memory's used part ends may be extended in place,
 * which makes `s = s + x` in a loop linear.
 */
typedef struct ech_tmem {
    char *data;
    uint8_t *origin; /* [cap] */
    size_t used, cap;
} ech_tmem;

struct ech_tstr {
    const char *ptr;
    const uint8_t *origin; /* [len], 1: data; NULL: all bytes as is_data says */
    size_t len;            /* bytes */
    size_t n_chars;        /* code points; SIZE_MAX: not counted yet */
    ech_tmem *grow;        /* NULL: not extendable */
    bool is_data;
    bool is_markup; /* Python's Markup: went through |safe or |escape */
};

struct ech_tseq {
    ech_tval *items;
    size_t n, cap;
    bool is_group; /* a pair that groupby made: has .grouper and .list */
};

typedef struct ech_tentry {
    ech_tval key, value;
    uint64_t hash;
} ech_tentry;

/* Entries in insertion order, and above a handful an open-addressed index of them. */
struct ech_tdict {
    ech_tentry *entries;
    size_t n, cap;
    uint32_t *index;  /* [index_cap] entry + 1, 0: free; NULL for small dicts */
    size_t index_cap; /* power of two */
};

/* Why a value is undefined; the message is made when it is needed. */
struct ech_tundef {
    const char *hint; /* the whole message, or NULL */
    const char *name; /* the name or attribute, or NULL when key says it */
    size_t name_len;
    ech_tval obj, key; /* obj is ABSENT for a plain name */
    bool is_unsafe;    /* the attribute exists and the sandbox refuses it */
};

struct ech_trange {
    int64_t start, stop, step;
    int64_t n;
};

typedef enum ech_tview_kind { ECH_TVIEW_KEYS, ECH_TVIEW_VALUES, ECH_TVIEW_ITEMS } ech_tview_kind;

struct ech_tview {
    ech_tdict *dict;
    ech_tview_kind kind;
};

struct ech_tslice {
    ech_tval start, stop, step; /* ABSENT or NONE: not given */
};

struct ech_tcycle {
    ech_tval *items; /* CYCLER: what to go round; JOINER: items[0] is the separator */
    size_t n, pos;   /* JOINER: pos is 1 once it was called */
};

/* ---- the rendering ---- */

typedef struct ech_tnode ech_tnode;
typedef struct ech_tframe ech_tframe;
typedef struct ech_tbuild ech_tbuild;

/* One rendering: its memory, its limits, where it is. One thread. */
struct ech_tvm {
    const ech_template *t;
    ech_arena arena;
    uint64_t steps_left;
    uint32_t depth, max_depth;
    size_t max_output;
    const ech_tnode *at; /* what is being evaluated: the position of an error */
    ech_error *err;
    ech_tdict *args; /* the context: the arguments */
    ech_tdict *vars; /* names assigned at the top level, which blocks see */
    ech_tbuild *out; /* where statements print to */
    int flow;        /* ech_tflow: a break or continue on its way */
    const char *now;
    bool spelled_numbers;
};

/* Fails at the node being evaluated. */
ech_status ech_tvm_fail(ech_tvm *vm, ech_status code, const char *fmt, ...) ECH_PRINTF_(3, 4);
/* What a Python TypeError, ValueError or LookupError is here. */
#define ech_tvm_raise(vm, ...) ((void)ech_tvm_fail(vm, ECH_EFORMAT, __VA_ARGS__), ECH_EFORMAT)
/* There were not `wanted` bytes more: by the rendering's limit, or the machine has no more. */
ech_status ech_tvm_no_memory(ech_tvm *vm, size_t wanted);
/* Accounts for work that is not a node: n units. ELIMIT when the steps are used up. */
ech_status ech_tvm_charge(ech_tvm *vm, size_t n);
/* One level deeper; every success is followed by ech_tvm_leave(). */
ech_status ech_tvm_enter(ech_tvm *vm);
static inline void ech_tvm_leave(ech_tvm *const vm)
{
    vm->depth--;
}
/* Zeroed memory for the rendering's lifetime. */
ech_status ech_tvm_alloc(ech_tvm *vm, size_t n, size_t size, void *ret);

/* ---- making values ---- */

static inline ech_tval ech_tv_none(void)
{
    return (ech_tval){ .kind = ECH_T_NONE };
}
static inline ech_tval ech_tv_bool(const bool b)
{
    return (ech_tval){ .kind = ECH_T_BOOL, .as.b = b };
}
static inline ech_tval ech_tv_int(const int64_t i)
{
    return (ech_tval){ .kind = ECH_T_INT, .as.i = i };
}
static inline ech_tval ech_tv_float(const double f)
{
    return (ech_tval){ .kind = ECH_T_FLOAT, .as.f = f };
}
static inline ech_tval ech_tv_str(ech_tstr *const s)
{
    return (ech_tval){ .kind = ECH_T_STR, .as.str = s };
}
static inline ech_tval ech_tv_dict(ech_tdict *const d)
{
    return (ech_tval){ .kind = ECH_T_DICT, .as.dict = d };
}

/* A string of the template's bytes that live at least as long as the rendering. */
ech_status ech_tv_lit(ech_tvm *vm, const char *cstr, ech_tval *ret);
/* A string over bytes that are not copied, all of one origin. */
ech_status ech_tv_view(ech_tvm *vm, const char *ptr, size_t len, bool is_data, ech_tval *ret);
/* The slice [from, from + len) of s, in bytes. Shares s's bytes; Markup stays Markup. */
ech_status ech_tv_slice(ech_tvm *vm, const ech_tstr *s, size_t from, size_t len, ech_tval *ret);
/* The same string, as plain text or as Markup. */
ech_status ech_tv_marked(ech_tvm *vm, const ech_tstr *s, bool is_markup, ech_tval *ret);

ech_status ech_tseq_new(ech_tvm *vm, size_t cap, ech_tseq **ret);
ech_status ech_tseq_push(ech_tvm *vm, ech_tseq *seq, ech_tval v);
ech_tval ech_tv_seq(ech_tkind kind, ech_tseq *seq);
/* A tuple of two. */
ech_status ech_tv_pair(ech_tvm *vm, ech_tval a, ech_tval b, ech_tval *ret);

ech_status ech_tdict_new(ech_tvm *vm, ech_tdict **ret);
/* Fails for a key that cannot be hashed. Keeps the place of a key that is there. */
ech_status ech_tdict_set(ech_tvm *vm, ech_tdict *d, ech_tval key, ech_tval value);
/* *ret is ABSENT when the key is not there. */
ech_status ech_tdict_find(ech_tvm *vm, const ech_tdict *d, ech_tval key, ech_tval *ret);
/* The same for a name; NULL when it is not there. Cannot fail. */
const ech_tval *ech_tdict_get(const ech_tdict *d, const char *name, size_t len);

ech_status ech_tv_undef_name(ech_tvm *vm, const char *name, size_t len, ech_tval *ret);
ech_status ech_tv_undef_hint(ech_tvm *vm, const char *hint, ech_tval *ret);
ech_status ech_tv_undef_attr(ech_tvm *vm, ech_tval obj, ech_tval key, bool is_unsafe,
                             ech_tval *ret);
/* Fails with what an undefined value says when it is used. */
ech_status ech_tvm_fail_undef(ech_tvm *vm, const ech_tundef *u);

/* ---- asking values ---- */

/* Python's type name: "str", "list", "NoneType", "Undefined", … */
const char *ech_tv_type(ech_tval v);
bool ech_tv_truth(ech_tval v);
static inline bool ech_tv_is_int(const ech_tval v)
{
    return v.kind == ECH_T_INT || v.kind == ECH_T_BOOL;
}
static inline int64_t ech_tv_as_int(const ech_tval v)
{
    return v.kind == ECH_T_BOOL ? (int64_t)v.as.b : v.as.i;
}
static inline bool ech_tv_is_num(const ech_tval v)
{
    return ech_tv_is_int(v) || v.kind == ECH_T_FLOAT;
}
static inline double ech_tv_as_float(const ech_tval v)
{
    return v.kind == ECH_T_FLOAT ? v.as.f : (double)ech_tv_as_int(v);
}
/* Python's ==. Fails only for depth and steps. */
ech_status ech_tv_equal(ech_tvm *vm, ech_tval a, ech_tval b, bool *ret);
/* Python's <; fails for what has no order. */
ech_status ech_tv_less(ech_tvm *vm, ech_tval a, ech_tval b, bool *ret);
/* Python's `is`. */
bool ech_tv_same(ech_tval a, ech_tval b);
/* len(); fails for what has none. */
ech_status ech_tv_len(ech_tvm *vm, ech_tval v, size_t *ret);
/* Whether len() works. */
bool ech_tv_has_len(ech_tval v);

/* ---- strings ---- */

/* Grows a string with its origins. Zero it and set vm; the memory is the rendering's. */
struct ech_tbuild {
    ech_tvm *vm;
    ech_tmem *mem;
    size_t start;   /* where this string begins in mem */
    size_t max_len; /* 0: only memory bounds it */
};

ech_status ech_tbuild_add(ech_tbuild *b, const char *ptr, size_t len, bool is_data);
ech_status ech_tbuild_str(ech_tbuild *b, const ech_tstr *s);
/* Bytes [from, from + len) of s. */
ech_status ech_tbuild_sub(ech_tbuild *b, const ech_tstr *s, size_t from, size_t len);
ech_status ech_tbuild_cp(ech_tbuild *b, uint32_t cp, bool is_data);
ech_status ech_tbuild_fill(ech_tbuild *b, char c, size_t n, bool is_data);
static inline size_t ech_tbuild_len(const ech_tbuild *const b)
{
    return b->mem == NULL ? 0 : b->mem->used - b->start;
}
/* Gives the string and empties the builder. */
ech_status ech_tbuild_done(ech_tbuild *b, ech_tval *ret);

static inline bool ech_tstr_data_at(const ech_tstr *const s, const size_t i)
{
    return s->origin != NULL ? s->origin[i] != 0 : s->is_data;
}
static inline bool ech_tstr_eq(const ech_tstr *const a, const ech_tstr *const b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->ptr, b->ptr, a->len) == 0);
}
static inline bool ech_tstr_is(const ech_tstr *const s, const char *const cstr)
{
    return s->len == strlen(cstr) && memcmp(s->ptr, cstr, s->len) == 0;
}
/* Code points. */
size_t ech_tstr_chars(ech_tstr *s);
/* The byte where code point i begins; i may be the number of code points. */
size_t ech_tstr_byte_of(ech_tstr *s, size_t i);
/* a + b, in place when a's memory allows it. Markup escapes the other side. */
ech_status ech_tstr_concat(ech_tvm *vm, const ech_tstr *a, const ech_tstr *b, ech_tval *ret);

#endif
