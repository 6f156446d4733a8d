/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the interpreter's parts know of each other at run time: calling, iterating, operators,
 * printing, and the tables of builtin filters, tests, methods and functions.
 *
 * Adding a filter is one function and one row of its table.
 */
#ifndef ECH_TEXT_TEMPLATE_BUILTIN_H
#define ECH_TEXT_TEMPLATE_BUILTIN_H

#include "src/text/template_node.h"

/* ---- calls ---- */

typedef struct ech_tkw {
    const char *name;
    size_t len;
    ech_tval value;
} ech_tkw;

#define ECH_TCALL_BOUND 8

/* One call. A filter's input is the first positional argument. */
typedef struct ech_tcall {
    ech_tval self; /* a method's object */
    ech_tval *pos;
    size_t n_pos, pos_cap;
    ech_tkw *kw;
    size_t n_kw, kw_cap;
    ech_tval
        a[ECH_TCALL_BOUND]; /* the arguments in the order of the parameters; ABSENT: not given */
} ech_tcall;

typedef ech_status (*ech_tfn)(ech_tvm *vm, ech_tcall *c, ech_tval *ret);

/*
 * params: names separated by blanks, "?" before those that may be absent; "!" as the first
 * character: positional only. NULL: the function looks at pos and kw itself.
 */
struct ech_tbuiltin {
    const char *name;
    ech_tfn fn;
    const char *params;
};

/* A builtin, bound to an object when it is a method. */
struct ech_tfunc {
    const ech_tbuiltin *b;
    ech_tval self;
};

/* NULL when there is none of the name. */
const ech_tbuiltin *ech_tfilter_find(const char *name);
const ech_tbuiltin *ech_ttest_find(const char *name);
const ech_tbuiltin *ech_tbuiltin_in(const ech_tbuiltin *table, const char *name, size_t len);

/* Binds the arguments and calls. */
ech_status ech_tbuiltin_call(ech_tvm *vm, const ech_tbuiltin *b, ech_tcall *c, ech_tval *ret);
/* Filter and test by node, and by name for map, select and their kin. */
ech_status ech_tcall_value(ech_tvm *vm, ech_tval callee, ech_tcall *c, ech_tval *ret);
ech_status ech_tcall_push(ech_tvm *vm, ech_tcall *c, ech_tval v);
ech_status ech_tcall_push_kw(ech_tvm *vm, ech_tcall *c, const char *name, size_t len, ech_tval v);
/* A keyword argument by name, or NULL. */
const ech_tval *ech_tcall_kw(const ech_tcall *c, const char *name);

/* Arguments as C wants them. Undefined and wrong types fail as in Python. */
ech_status ech_targ_int(ech_tvm *vm, ech_tval v, int64_t *ret);
ech_status ech_targ_float(ech_tvm *vm, ech_tval v, double *ret);
ech_status ech_targ_str(ech_tvm *vm, ech_tval v, ech_tstr **ret);

/* ---- a rendering with its arguments changed before the template runs ---- */

typedef struct ech_trender {
    const char *args;
    size_t args_len;
    ech_status (*prepare)(ech_tvm *vm, void *ctx); /* may change vm->args; NULL: nothing */
    void *ctx;
} ech_trender;

ech_status ech_template_run(const ech_template *t, const ech_trender *job,
                            const ech_template_options *opts, ech_rendered *ret, ech_error *err);

/* ---- text of values ---- */

/* str(v), appended. */
ech_status ech_tv_print(ech_tbuild *b, ech_tval v);
ech_status ech_tv_repr(ech_tbuild *b, ech_tval v);
/* A float as Python's repr; out has room for 40 bytes. Returns the length. */
size_t ech_tfloat_repr(double f, char *out);
/* str(v): Markup becomes plain. soft: Markup stays. */
ech_status ech_tv_to_str(ech_tvm *vm, ech_tval v, bool soft, ech_tstr **ret);
/* json.dumps. indent: ABSENT or NONE for one line; separators likewise for the defaults. */
typedef struct ech_tjson_style {
    bool ensure_ascii, sort_keys;
    const ech_tstr *indent; /* NULL: everything on one line */
    const ech_tstr *item_sep, *key_sep;
} ech_tjson_style;
ech_status ech_tjson_dump(ech_tbuild *b, const ech_tjson_style *style, ech_tval v);
/* The arguments: a JSON object, all of it data but the special tokens' texts. */
ech_status ech_targs_parse(ech_tvm *vm, const char *json, size_t len, ech_tdict **ret);
/*
 * The value of a JSON text that is data, with its numbers as spelled; *ret is ABSENT when it is no
 * JSON. Fails only for memory and steps.
 */
ech_status ech_tjson_try(ech_tvm *vm, const char *json, size_t len, ech_tval *ret);
/* markupsafe.escape. */
ech_status ech_tv_escape(ech_tvm *vm, ech_tval v, ech_tval *ret);

/* ---- operators ---- */

ech_status ech_tv_binary(ech_tvm *vm, ech_top op, ech_tval a, ech_tval b, ech_tval *ret);
ech_status ech_tv_negate(ech_tvm *vm, ech_tval a, bool negate, ech_tval *ret);
ech_status ech_tv_compare(ech_tvm *vm, ech_top op, ech_tval a, ech_tval b, bool *ret);
ech_status ech_tv_contains(ech_tvm *vm, ech_tval seq, ech_tval item, bool *ret);
/* str % values */
ech_status ech_tstr_percent(ech_tvm *vm, const ech_tstr *fmt, ech_tval values, ech_tval *ret);
/* str.format */
ech_status ech_tstr_format(ech_tvm *vm, const ech_tstr *fmt, const ech_tcall *c, ech_tval *ret);
/* format(v, spec), appended. */
ech_status ech_tv_format_spec(ech_tbuild *b, ech_tval v, const ech_tstr *spec);

/* environment.getattr, environment.getitem; undefined when there is nothing. */
ech_status ech_tv_attr(ech_tvm *vm, ech_tval obj, ech_tval name, ech_tval *ret);
ech_status ech_tv_item(ech_tvm *vm, ech_tval obj, ech_tval key, ech_tval *ret);
/* obj[slice]: fails for what cannot be sliced. */
ech_status ech_tv_slice_of(ech_tvm *vm, ech_tval obj, const ech_tslice *s, ech_tval *ret);
/* A method or attribute that Python's type has; ABSENT when it has none of the name. */
ech_status ech_tmethod_get(ech_tvm *vm, ech_tval obj, const ech_tstr *name, ech_tval *ret);
/* The methods of str. */
const ech_tbuiltin *ech_tstr_method(const char *name, size_t len);
/* A builtin as a value, bound to self. */
ech_status ech_tv_func(ech_tvm *vm, const ech_tbuiltin *b, ech_tval self, ech_tval *ret);
/* Marks what a method of Markup gives as Markup: a string, or those in a list or tuple. */
ech_status ech_tv_mark_result(ech_tvm *vm, ech_tval *v);
/* str.strip and its halves: chars NULL for white space; sides 1 left, 2 right, 3 both. */
ech_status ech_tstr_strip(ech_tvm *vm, const ech_tstr *s, const ech_tstr *chars, int sides,
                          ech_tval *ret);
ech_status ech_tstr_replace(ech_tvm *vm, const ech_tstr *s, const ech_tstr *from,
                            const ech_tstr *to, int64_t count, ech_tval *ret);
/* sep.join(it); str_items: items are turned into strings first. */
ech_status ech_tstr_join(ech_tvm *vm, const ech_tstr *sep, ech_tval items, bool str_items,
                         ech_tval *ret);
typedef enum ech_tcase {
    ECH_TCASE_UPPER,
    ECH_TCASE_LOWER,
    ECH_TCASE_CAPITALIZE,
    ECH_TCASE_TITLE,
    ECH_TCASE_SWAP,
    ECH_TCASE_FOLD
} ech_tcase;
ech_status ech_tstr_case(ech_tvm *vm, const ech_tstr *s, ech_tcase how, ech_tval *ret);
/* str.splitlines */
ech_status ech_tstr_lines(ech_tvm *vm, const ech_tstr *s, bool keep_ends, ech_tseq **ret);
/* str.split() and str.split(sep) without a limit when max is negative. */
ech_status ech_tstr_split(ech_tvm *vm, const ech_tstr *s, const ech_tstr *sep, int64_t max,
                          ech_tseq **ret);
/* str.center and its kin: side 0 centers, 1 pads on the right, 2 on the left. */
ech_status ech_tstr_pad(ech_tvm *vm, ech_tstr *s, int64_t width, const ech_tstr *fill, int side,
                        ech_tval *ret);

/* A global function or object; NULL when there is none. */
ech_status ech_tglobal_get(ech_tvm *vm, const char *name, size_t len, ech_tval *ret);

/* ---- iterating ---- */

typedef enum ech_titer_kind {
    ECH_TITER_SEQ,  /* a list or tuple */
    ECH_TITER_STR,  /* characters */
    ECH_TITER_DICT, /* source is a dict: its keys; or a view */
    ECH_TITER_RANGE,
    ECH_TITER_NONE,     /* nothing */
    ECH_TITER_REVERSED, /* a sequence from its end */
    ECH_TITER_MAP,      /* the rest are generators over `inner` */
    ECH_TITER_SELECT,
    ECH_TITER_UNIQUE,
    ECH_TITER_BATCH,
    ECH_TITER_SLICE,
    ECH_TITER_ITEMS,
    ECH_TITER_TEST, /* the items of a loop that pass its test */
} ech_titer_kind;

typedef ech_status (*ech_tnext)(ech_tvm *vm, ech_titer *it, ech_tval *ret);

struct ech_titer {
    ech_titer_kind kind;
    ech_tval source;
    size_t pos;
    bool is_started, is_done;
    ech_titer *inner;
    ech_tnext next; /* generators */
    void *state;    /* theirs */
};

/* iter(v); fails for what cannot be iterated. An iterator is its own. */
ech_status ech_titer_open(ech_tvm *vm, ech_tval v, ech_titer **ret);
/* *ret is ABSENT at the end. */
ech_status ech_titer_next(ech_tvm *vm, ech_titer *it, ech_tval *ret);
bool ech_tv_is_iterable(ech_tval v);
/* list(v): a new list. */
ech_status ech_tv_to_list(ech_tvm *vm, ech_tval v, ech_tseq **ret);
/* A generator that opens v at its first item. */
ech_status ech_titer_generator(ech_tvm *vm, ech_titer_kind kind, ech_tval v, ech_tnext next,
                               void *state, ech_tval *ret);
/* Stable sort by Python's <; keys[i] belongs to items[i]. */
ech_status ech_tseq_sort(ech_tvm *vm, ech_tval *items, ech_tval *keys, size_t n, bool reverse);

/* ---- running ---- */

struct ech_tframe {
    ech_tval *slots;
    ech_tframe *up;
};

struct ech_tmacro {
    const ech_tnode *node; /* its parameters and body */
    ech_tframe *up;        /* the frame it was made in */
};

/* The `loop` variable. */
struct ech_tloop {
    ech_titer *iter;
    ech_tval iterable;               /* for its length; ABSENT when it has none */
    ech_tval before, current, after; /* after: looked ahead, or ABSENT */
    ech_tval changed;                /* what changed() was called with last */
    int64_t index0, length;          /* length -1: not known yet */
    int64_t depth0;
    const ech_tnode *recursive; /* the node when loop() may be called */
    ech_tframe *up;
};

enum ech_tflow { ECH_TFLOW_NEXT = 0, ECH_TFLOW_BREAK, ECH_TFLOW_CONTINUE };

ech_status ech_teval(ech_tvm *vm, ech_tframe *f, const ech_tnode *node, ech_tval *ret);
ech_status ech_texec(ech_tvm *vm, ech_tframe *f, ech_tnodes body);
ech_status ech_tassign(ech_tvm *vm, ech_tframe *f, const ech_tnode *target, ech_tval v,
                       bool is_toplevel);
/* Collects positional and keyword arguments of a call, filter or test. */
ech_status ech_teval_args(ech_tvm *vm, ech_tframe *f, const ech_tnode *node, ech_tcall *c);
ech_status ech_tframe_new(ech_tvm *vm, const ech_tcode *code, ech_tframe *up, ech_tframe **ret);
ech_status ech_tscope_enter(ech_tvm *vm, ech_tframe *f, const ech_tscope *s);
ech_status ech_tmacro_call(ech_tvm *vm, const ech_tmacro *m, ech_tcall *c, ech_tval *ret);
/* Text printed by a filter or set block's body, as a string. */
ech_status ech_tloop_attr(ech_tvm *vm, ech_tval loop, const ech_tstr *name, ech_tval *ret);
ech_status ech_tloop_call(ech_tvm *vm, ech_tloop *loop, ech_tcall *c, ech_tval *ret);

#endif
