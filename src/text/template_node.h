/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template as a tree, and what is known about its names.
 *
 *     source --lexer--> tokens --parser--> nodes --scope--> nodes whose names are slots
 *
 * All of it lives in the template's arena and does not change once ech_template_compile() returns.
 *
 * Names. Jinja decides at compile time what a name means, and its rules are not those of a chain
 * of dictionaries. So the scope pass repeats them: every scope says what to do with each of its
 * names on entry (ech_tload), and every name in an expression is a slot of a frame, some frames
 * up. A frame is one activation of a function: the template itself, a macro, the body of a call
 * block, a block, a recursive loop.
 */
#ifndef ECH_TEXT_TEMPLATE_NODE_H
#define ECH_TEXT_TEMPLATE_NODE_H

#include "src/text/template_value.h"

/* Nodes above each other at most: bounds the recursion of everything that walks the tree. */
#define ECH_TNODE_MAX_HEIGHT 400
/* Different names in a template at most. */
#define ECH_TNAMES_MAX    2000
#define ECH_TNAME_BUCKETS 256

/* An interned name: equal names are the same pointer. */
typedef struct ech_tname {
    const char *ptr; /* followed by a zero byte */
    size_t len;
    struct ech_tname *next; /* of its bucket */
    bool is_variable;       /* read from the arguments somewhere */
    bool is_field;          /* read as an attribute or key somewhere */
} ech_tname;

typedef enum ech_tnode_kind {
    /* Expressions. */
    ECH_N_CONST,   /* value */
    ECH_N_NAME,    /* name, ref */
    ECH_N_NSREF,   /* name, ref; field: an assignment to ns.field */
    ECH_N_TUPLE,   /* list */
    ECH_N_LIST,    /* list */
    ECH_N_DICT,    /* list: key, value, key, value … */
    ECH_N_BINARY,  /* op, a, b */
    ECH_N_NEG,     /* a */
    ECH_N_POS,     /* a */
    ECH_N_NOT,     /* a */
    ECH_N_AND,     /* a, b */
    ECH_N_OR,      /* a, b */
    ECH_N_COMPARE, /* a, list of ECH_N_OPERAND */
    ECH_N_OPERAND, /* op, a */
    ECH_N_CONCAT,  /* list */
    ECH_N_COND,    /* test a; b if true, else c (NULL: undefined) */
    ECH_N_FILTER,  /* a (NULL: the block's text), name, call arguments, builtin */
    ECH_N_TEST,    /* a, name, call arguments, builtin */
    ECH_N_CALL,    /* a, call arguments */
    ECH_N_KEYWORD, /* name, a: a keyword argument */
    ECH_N_GETATTR, /* a, name */
    ECH_N_GETITEM, /* a, b */
    ECH_N_SLICE,   /* a, b, c, each may be NULL */
    /* Statements. */
    ECH_N_DATA,       /* value */
    ECH_N_OUTPUT,     /* list */
    ECH_N_FOR,        /* target a, iter b, test c or NULL; body, orelse, flag: recursive */
    ECH_N_IF,         /* test a, body, orelse; list: elif nodes, ECH_N_IF without list and orelse */
    ECH_N_SET,        /* target a, value b */
    ECH_N_SET_BLOCK,  /* target a, filter b or NULL, body */
    ECH_N_MACRO,      /* name, list: parameters, defaults: of the last ones; body */
    ECH_N_CALL_BLOCK, /* call a, list, defaults, body */
    ECH_N_GENERATION, /* body */
    ECH_N_FILTER_BLOCK, /* filter a, body */
    ECH_N_WITH,         /* list: targets, defaults: values, body */
    ECH_N_BLOCK,        /* name, body */
    ECH_N_BREAK,
    ECH_N_CONTINUE,
} ech_tnode_kind;

typedef enum ech_top {
    ECH_OP_ADD,
    ECH_OP_SUB,
    ECH_OP_MUL,
    ECH_OP_DIV,
    ECH_OP_FLOORDIV,
    ECH_OP_MOD,
    ECH_OP_POW,
    ECH_OP_EQ,
    ECH_OP_NE,
    ECH_OP_LT,
    ECH_OP_LE,
    ECH_OP_GT,
    ECH_OP_GE,
    ECH_OP_IN,
    ECH_OP_NOT_IN,
} ech_top;

typedef struct ech_tnodes {
    ech_tnode **items;
    size_t n;
} ech_tnodes;

/* A slot: `hops` frames up, then an index. */
typedef struct ech_tref {
    uint32_t hops, slot;
} ech_tref;

typedef enum ech_tload_kind {
    ECH_TLOAD_PARAM,     /* somebody else sets it */
    ECH_TLOAD_RESOLVE,   /* from the context, by name */
    ECH_TLOAD_ALIAS,     /* from a slot further out */
    ECH_TLOAD_UNDEFINED, /* not set */
} ech_tload_kind;

typedef struct ech_tload {
    ech_tload_kind kind;
    uint32_t slot; /* of the current frame */
    ech_tname *name;
    ech_tref from; /* ALIAS */
} ech_tload;

/* What happens on entry to a scope. */
typedef struct ech_tscope {
    ech_tload *loads;
    size_t n_loads;
} ech_tscope;

/* A function: what a macro, a call block, a recursive loop and the template are. */
typedef struct ech_tcode {
    uint32_t n_slots;
    uint32_t *params; /* [n_params] slots of the declared parameters */
    size_t n_params;
    bool has_caller, has_kwargs, has_varargs;
    bool explicit_caller; /* `caller` is a declared parameter */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
} ech_tcode;

typedef struct ech_tbuiltin ech_tbuiltin;

struct ech_tnode {
    uint8_t kind, op;
    bool flag;        /* FOR: recursive; BLOCK: scoped; BINARY: `-1 ** x`, see parse_pow */
    bool is_const;    /* nothing in it depends on a name: Jinja computes it while compiling */
    bool is_lenient;  /* a constant's slice inside a constant, see ech_tparse_done */
    bool uses_loop;   /* FOR: the body reads `loop` */
    bool is_toplevel; /* SET, SET_BLOCK, MACRO: the name is visible to blocks */
    uint16_t height;
    uint32_t line, column;
    ech_tname *name, *field;
    ech_tnode *a, *b, *c;
    ech_tnodes list, defaults, body, orelse;
    ech_tnode *dyn_args, *dyn_kwargs; /* *args, **kwargs of a call */
    ech_tnodes args, kwargs;          /* of CALL, FILTER, TEST */
    const ech_tbuiltin *builtin;      /* FILTER, TEST; NULL: unknown, fails when it is met */
    ech_tval value;
    ech_tref ref;
    uint32_t slot;                     /* MACRO: where it is stored; FOR: where `loop` is */
    ech_tscope scope;                  /* of the body */
    ech_tscope else_scope, test_scope; /* FOR */
    ech_tnode *test_target;            /* FOR with a test: the target in the test's own slots */
    ech_tcode *code;                   /* MACRO, CALL_BLOCK, GENERATION, BLOCK, recursive FOR */
    ech_tcode *test_code;              /* FOR with a test: the test is a function of its own */
};

/* ---- the compiler's shared state ---- */

typedef struct ech_tcompiler {
    ech_arena *arena;
    ech_tname **buckets; /* [ECH_TNAME_BUCKETS] chains of names with one hash */
    size_t n_names;
    ech_error *err;
} ech_tcompiler;

ech_status ech_tcompile_fail(ech_tcompiler *c, ech_status code, uint32_t line, uint32_t column,
                             const char *fmt, ...) ECH_PRINTF_(5, 6);
ech_status ech_tcompile_alloc(ech_tcompiler *c, size_t n, size_t size, void *ret);
ech_status ech_tcompile_name(ech_tcompiler *c, const char *ptr, size_t len, ech_tname **ret);

/* ---- tokens ---- */

typedef enum ech_ttok {
    ECH_TOK_EOF = 0,
    ECH_TOK_ERROR, /* the lexer got no further; the token's text says why */
    ECH_TOK_DATA,
    ECH_TOK_VAR_BEGIN,
    ECH_TOK_VAR_END,
    ECH_TOK_BLOCK_BEGIN,
    ECH_TOK_BLOCK_END,
    ECH_TOK_NAME,
    ECH_TOK_STRING,
    ECH_TOK_INT,
    ECH_TOK_FLOAT,
    ECH_TOK_ADD,
    ECH_TOK_SUB,
    ECH_TOK_MUL,
    ECH_TOK_DIV,
    ECH_TOK_FLOORDIV,
    ECH_TOK_MOD,
    ECH_TOK_POW,
    ECH_TOK_TILDE,
    ECH_TOK_LBRACKET,
    ECH_TOK_RBRACKET,
    ECH_TOK_LPAREN,
    ECH_TOK_RPAREN,
    ECH_TOK_LBRACE,
    ECH_TOK_RBRACE,
    ECH_TOK_EQ,
    ECH_TOK_NE,
    ECH_TOK_GT,
    ECH_TOK_GE,
    ECH_TOK_LT,
    ECH_TOK_LE,
    ECH_TOK_ASSIGN,
    ECH_TOK_DOT,
    ECH_TOK_COLON,
    ECH_TOK_PIPE,
    ECH_TOK_COMMA,
    ECH_TOK_SEMICOLON,
} ech_ttok;

typedef struct ech_ttoken {
    uint8_t kind;
    uint32_t line, column;
    ech_tname *name; /* NAME */
    const char *ptr; /* DATA, STRING: the text, unescaped; ERROR: the message */
    size_t len;
    int64_t i; /* INT */
    double f;  /* FLOAT */
} ech_ttoken;

/* source must be valid UTF-8; tokens and texts go to the arena. The last token is EOF or ERROR. */
ech_status ech_tlex(ech_tcompiler *c, const char *source, size_t len, ech_ttoken **ret,
                    size_t *ret_n);

/* ---- tree ---- */

typedef struct ech_tparser {
    ech_tcompiler *c;
    const ech_ttoken *tok; /* the current one */
    uint32_t depth;
    bool has_generation;
} ech_tparser;

ech_status ech_tparse(ech_tcompiler *c, const ech_ttoken *tokens, ech_tnodes *ret);

/* Between the two halves of the parser: statements and expressions. */
ech_status ech_tparse_node(ech_tparser *p, ech_tnode_kind kind, const ech_ttoken *at,
                           ech_tnode **ret);
ech_status ech_tparse_done(ech_tparser *p, ech_tnode *node);
ech_status ech_tparse_fail(ech_tparser *p, const ech_ttoken *at, const char *fmt, ...)
    ECH_PRINTF_(3, 4);
ech_status ech_tparse_push(ech_tparser *p, ech_tnodes *list, size_t *cap, ech_tnode *node);
bool ech_tparse_is_name(const ech_tparser *p, const char *name);
bool ech_tparse_skip(ech_tparser *p, ech_ttok kind);
bool ech_tparse_skip_name(ech_tparser *p, const char *name);
ech_status ech_tparse_expect(ech_tparser *p, ech_ttok kind, const char *what);
ech_status ech_tparse_expr(ech_tparser *p, bool with_cond, ech_tnode **ret);
/* A tuple without parentheses, or the one expression; ends before the name end (may be NULL). */
ech_status ech_tparse_tuple(ech_tparser *p, bool with_cond, const char *end, ech_tnode **ret);
ech_status ech_tparse_target(ech_tparser *p, bool with_namespace, const char *end, ech_tnode **ret);
ech_status ech_tparse_name_token(ech_tparser *p, ech_tname **ret);
/* Filters after `|`; with inline_start the first one comes without its bar. */
ech_status ech_tparse_filters(ech_tparser *p, ech_tnode *node, bool inline_start, ech_tnode **ret);

/* Makes slots of names. *ret_code is the template's own function. */
ech_status ech_tscope_resolve(ech_tcompiler *c, ech_tnodes body, ech_tscope *ret_scope,
                              ech_tcode *ret_code);

#endif
