/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser's second half: expressions, by recursive descent in Jinja's own order of precedence.
 * It is not Python's: `~` stands between + and *, `**` is read from the left, a filter or test
 * takes a whole unary expression (`-1 | abs` is 1), and `x if y` needs no else. From loose to
 * tight:
 *
 * if, or, and, not, comparisons, + -, ~, * / // %, **, | and is, unary + -, and last . [] ().
 *
 * Invariant: recursion is bounded by ECH_TNODE_MAX_HEIGHT, for the parser itself by p->depth, for
 * those who walk the tree later by each node's height. Loops that build on the left (a + b + c)
 * don't recurse, but the tree they make is as high as it is long, and ech_tparse_done() refuses it.
 *
 * A node is complete, with height and constness, when the function that makes it returns. Nodes
 * live in the compiler's arena: an error leaves them there. A node's position is what a failure at
 * run time reports.
 *
 * Thread: the one that compiles.
 */
#include <stdio.h>

#include "src/text/template_builtin.h"

static ech_status parse_unary(ech_tparser *p, bool with_filter, ech_tnode **ret);
static ech_status parse_postfix(ech_tparser *p, ech_tnode *node, ech_tnode **ret);

/*
 * One token is looked at; where the grammar needs two (NAME =, not in), the list of tokens is at
 * hand.
 */
static bool at(const ech_tparser *const p, const ech_ttok kind)
{
    return p->tok->kind == kind;
}

/* The depth goes down again only on success: after an error nobody parses on. */
static ech_status enter(ech_tparser *const p)
{
    if (++p->depth > ECH_TNODE_MAX_HEIGHT) {
        return ech_tcompile_fail(p->c, ECH_ELIMIT, p->tok->line, p->tok->column,
                                 "nested more than %d levels deep", ECH_TNODE_MAX_HEIGHT);
    }
    return ECH_OK;
}

/*
 * A node over one or two others. Constant only if both are: Jinja folds those, and what folds
 * decides how a power binds (see parse_pow). b is NULL for the unary kinds.
 */
static ech_status new_binary(ech_tparser *const p, const ech_tnode_kind kind, const int op,
                             const ech_ttoken *const where, ech_tnode *const a, ech_tnode *const b,
                             ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, kind, where, ret));
    (*ret)->op = (uint8_t)op;
    (*ret)->a = a;
    (*ret)->b = b;
    return ech_tparse_done(p, *ret);
}

/* ---- primaries ---- */

/* A literal of one token. */
static ech_status parse_const(ech_tparser *const p, const ech_tval v, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_CONST, p->tok, ret));
    (*ret)->value = v;
    p->tok++;
    return ech_tparse_done(p, *ret);
}

/*
 * NAME, or NAME.FIELD where a namespace may be assigned to. true, false and none are literals in
 * either spelling, so they can be neither variables nor targets; all capitals (TRUE) is an ordinary
 * name.
 */
static ech_status parse_name(ech_tparser *const p, const bool with_namespace, ech_tnode **const ret)
{
    const ech_tname *const n = p->tok->name;
    if (ech_tparse_is_name(p, "true") || ech_tparse_is_name(p, "True")) {
        return parse_const(p, ech_tv_bool(true), ret);
    }
    if (ech_tparse_is_name(p, "false") || ech_tparse_is_name(p, "False")) {
        return parse_const(p, ech_tv_bool(false), ret);
    }
    if (ech_tparse_is_name(p, "none") || ech_tparse_is_name(p, "None")) {
        return parse_const(p, ech_tv_none(), ret);
    }
    ECH_TRY(ech_tparse_node(p, ECH_N_NAME, p->tok, ret));
    (*ret)->name = (ech_tname *)n;
    p->tok++;
    /*
     * ns.x is a target only where {% set %} asks for one; whether ns is a namespace is found out
     * when it is stored to.
     */
    if (with_namespace && at(p, ECH_TOK_DOT)) {
        p->tok++;
        (*ret)->kind = ECH_N_NSREF;
        ECH_TRY(ech_tparse_name_token(p, &(*ret)->field));
    }
    return ech_tparse_done(p, *ret);
}

/* STRING+: neighbours are one, as in Python. Escapes are resolved by the lexer. */
static ech_status parse_string(ech_tparser *const p, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_CONST, p->tok, ret));
    size_t len = 0;
    const ech_ttoken *end = p->tok;
    for (; end->kind == ECH_TOK_STRING; end++) {
        len += end->len;
    }
    char *text;
    ech_tstr *s;
    /* One byte more, so that the empty text has an address. */
    ECH_TRY(ech_tcompile_alloc(p->c, len + 1, 1, &text));
    ECH_TRY(ech_tcompile_alloc(p->c, 1, sizeof *s, &s));
    size_t n = 0;
    for (; p->tok < end; p->tok++) {
        memcpy(text + n, p->tok->ptr, p->tok->len);
        n += p->tok->len;
    }
    *s = (ech_tstr){ .ptr = text, .len = len, .n_chars = SIZE_MAX };
    /* Counted now: a compiled template is shared by threads and must not change. */
    (void)ech_tstr_chars(s);
    (*ret)->value = ech_tv_str(s);
    return ech_tparse_done(p, *ret);
}

/*
 * "[" [expr ("," expr)* [","]] "]". A comma may stand before the end, but not alone: [,] has no
 * item to follow.
 */
static ech_status parse_list(ech_tparser *const p, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_LIST, p->tok, ret));
    size_t cap = 0;
    p->tok++;
    while (!at(p, ECH_TOK_RBRACKET)) {
        if ((*ret)->list.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        /* The comma before was the last one, which may end the list. */
        if (at(p, ECH_TOK_RBRACKET)) break;
        ech_tnode *item;
        ECH_TRY(ech_tparse_expr(p, true, &item));
        ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, item));
    }
    p->tok++;
    return ech_tparse_done(p, *ret);
}

/*
 * "{" [expr ":" expr ("," expr ":" expr)* [","]] "}". Keys and values alternate in one list. Keys
 * are any expressions; whether one can be a key is a matter of its value, so of the rendering.
 */
static ech_status parse_dict(ech_tparser *const p, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_DICT, p->tok, ret));
    size_t cap = 0;
    p->tok++;
    while (!at(p, ECH_TOK_RBRACE)) {
        if ((*ret)->list.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        if (at(p, ECH_TOK_RBRACE)) break;
        ech_tnode *key, *value;
        ECH_TRY(ech_tparse_expr(p, true, &key));
        ECH_TRY(ech_tparse_expect(p, ECH_TOK_COLON, ":"));
        ECH_TRY(ech_tparse_expr(p, true, &value));
        ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, key));
        ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, value));
    }
    p->tok++;
    return ech_tparse_done(p, *ret);
}

/* A tuple with or without parentheses; simplified: only names and literals, as targets are. */
static ech_status parse_tuple(ech_tparser *const p, const bool simplified,
                              const bool with_namespace, const bool with_cond,
                              const char *const end, const bool parens, ech_tnode **const ret);

/*
 * The parentheses of a tuple are read here, since only they make () one. A minus is none of this:
 * targets and arguments of tests begin with a primary, and `is divisibleby -3` is a subtraction.
 */
static ech_status parse_primary(ech_tparser *const p, const bool with_namespace,
                                ech_tnode **const ret)
{
    switch (p->tok->kind) {
    case ECH_TOK_NAME:
        return parse_name(p, with_namespace, ret);
    case ECH_TOK_STRING:
        return parse_string(p, ret);
    case ECH_TOK_INT:
        return parse_const(p, ech_tv_int(p->tok->i), ret);
    case ECH_TOK_FLOAT:
        return parse_const(p, ech_tv_float(p->tok->f), ret);
    case ECH_TOK_LPAREN:
        p->tok++;
        ECH_TRY(parse_tuple(p, false, false, true, NULL, true, ret));
        return ech_tparse_expect(p, ECH_TOK_RPAREN, ")");
    case ECH_TOK_LBRACKET:
        return parse_list(p, ret);
    case ECH_TOK_LBRACE:
        return parse_dict(p, ret);
    default:
        return ech_tparse_fail(p, p->tok, "unexpected token, an expression was expected");
    }
}

/*
 * What can follow a tuple's comma without being an item of it. `end` is the word of the statement
 * that reads on, as `in` of a for loop.
 */
static bool is_tuple_end(const ech_tparser *const p, const char *const end)
{
    return at(p, ECH_TOK_VAR_END) || at(p, ECH_TOK_BLOCK_END) || at(p, ECH_TOK_RPAREN) ||
           (end != NULL && ech_tparse_is_name(p, end));
}

/*
 * Without a comma it is the expression itself, so (x) is x. Nothing at all is a tuple between
 * parentheses and an error elsewhere.
 */
static ech_status parse_tuple(ech_tparser *const p, const bool simplified,
                              const bool with_namespace, const bool with_cond,
                              const char *const end, const bool parens, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    ech_tnodes items = { 0 };
    size_t cap = 0;
    bool is_tuple = false;
    ECH_TRY(enter(p));
    for (;;) {
        if (items.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        /*
         * Before the first item this is the empty tuple, later a comma at the end: (1,) is a tuple
         * of one.
         */
        if (is_tuple_end(p, end)) break;
        ech_tnode *item;
        if (simplified)
            ECH_TRY(parse_primary(p, with_namespace, &item));
        else
            ECH_TRY(ech_tparse_expr(p, with_cond, &item));
        ECH_TRY(ech_tparse_push(p, &items, &cap, item));
        if (!at(p, ECH_TOK_COMMA)) break;
        is_tuple = true;
    }
    p->depth--;
    if (!is_tuple && items.n > 0) {
        *ret = items.items[0];
        return ECH_OK;
    }
    if (!is_tuple && !parens) return ech_tparse_fail(p, p->tok, "expected an expression");
    ECH_TRY(ech_tparse_node(p, ECH_N_TUPLE, where, ret));
    (*ret)->list = items;
    return ech_tparse_done(p, *ret);
}

/* What statements read: {{ a, b }} and {% set x = 1, 2 %} are tuples without parentheses. */
ech_status ech_tparse_tuple(ech_tparser *const p, const bool with_cond, const char *const end,
                            ech_tnode **const ret)
{
    return parse_tuple(p, false, false, with_cond, end, false, ret);
}

/*
 * What may be stored to: names, fields of a namespace, and tuples of them. The parser above lets
 * more through: a literal, or (a, 1). Attributes and items are no targets at all in Jinja; ns.x is
 * one by the special case of parse_name().
 */
static ech_status check_target(ech_tparser *const p, const ech_tnode *const node)
{
    if (node->kind == ECH_N_NAME || node->kind == ECH_N_NSREF) return ECH_OK;
    if (node->kind != ECH_N_TUPLE) {
        return ech_tcompile_fail(p->c, ECH_EFORMAT, node->line, node->column,
                                 "cannot assign to this");
    }
    for (size_t i = 0; i < node->list.n; i++) {
        ECH_TRY(check_target(p, node->list.items[i]));
    }
    return ECH_OK;
}

/* Of a for loop, a set or a with; only set may store to a namespace. */
ech_status ech_tparse_target(ech_tparser *const p, const bool with_namespace, const char *const end,
                             ech_tnode **const ret)
{
    ECH_TRY(parse_tuple(p, true, with_namespace, true, end, false, ret));
    return check_target(p, *ret);
}

/* ---- what follows a primary ---- */

/*
 * A part of a slice may be left out, before a colon or the bracket's end. It stays NULL then; None
 * means the same at run time.
 */
static ech_status parse_slice_part(ech_tparser *const p, ech_tnode **const ret)
{
    *ret = NULL;
    if (at(p, ECH_TOK_COLON) || at(p, ECH_TOK_RBRACKET) || at(p, ECH_TOK_COMMA)) return ECH_OK;
    return ech_tparse_expr(p, true, ret);
}

/* expr | [expr] ":" [expr] [":" [expr]] */
static ech_status parse_subscribed(ech_tparser *const p, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    ech_tnode *start = NULL, *stop = NULL, *step = NULL;
    if (!at(p, ECH_TOK_COLON)) {
        ECH_TRY(ech_tparse_expr(p, true, &start));
        if (!at(p, ECH_TOK_COLON)) {
            *ret = start;
            return ECH_OK;
        }
    }
    p->tok++;
    ECH_TRY(parse_slice_part(p, &stop));
    if (ech_tparse_skip(p, ECH_TOK_COLON)) ECH_TRY(parse_slice_part(p, &step));
    ECH_TRY(ech_tparse_node(p, ECH_N_SLICE, where, ret));
    (*ret)->a = start;
    (*ret)->b = stop;
    (*ret)->c = step;
    return ech_tparse_done(p, *ret);
}

/*
 * Remembers the name of a key that the template mentions as a constant, x['name']:
 * ech_template_reads_field() answers from these. A template that computes its keys is not seen
 * through; longer names are no fields that anybody asks for.
 */
static ech_status mark_field(ech_tparser *const p, const ech_tnode *const node)
{
    if (node == NULL || node->kind != ECH_N_CONST || node->value.kind != ECH_T_STR) return ECH_OK;
    const ech_tstr *const s = node->value.as.str;
    if (s->len == 0 || s->len > 64) return ECH_OK;
    ech_tname *name;
    ECH_TRY(ech_tcompile_name(p->c, s->ptr, s->len, &name));
    name->is_field = true;
    return ECH_OK;
}

/*
 * "[" subscribed ("," subscribed)* "]": several make a tuple, as a key of a dict may be one. Slices
 * may stand among them. No comma may end the row, and x[] is a lookup with the empty tuple, both as
 * in Jinja's parser.
 */
static ech_status parse_brackets(ech_tparser *const p, ech_tnode *const node, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok++;
    ech_tnodes items = { 0 };
    size_t cap = 0;
    while (!at(p, ECH_TOK_RBRACKET)) {
        if (items.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        ech_tnode *item;
        ECH_TRY(parse_subscribed(p, &item));
        ECH_TRY(ech_tparse_push(p, &items, &cap, item));
    }
    p->tok++;
    /* One subscript is itself; none or several are a tuple. */
    ech_tnode *arg = items.n == 1 ? items.items[0] : NULL;
    if (arg == NULL) {
        ECH_TRY(ech_tparse_node(p, ECH_N_TUPLE, where, &arg));
        arg->list = items;
        ECH_TRY(ech_tparse_done(p, arg));
    }
    ECH_TRY(mark_field(p, arg));
    return new_binary(p, ECH_N_GETITEM, 0, where, node, arg, ret);
}

/* "." NAME asks for an attribute, "." INTEGER for an item: x.0 is x[0]. */
static ech_status parse_dot(ech_tparser *const p, ech_tnode *const node, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok++;
    if (at(p, ECH_TOK_INT)) {
        ech_tnode *index;
        ECH_TRY(parse_const(p, ech_tv_int(p->tok->i), &index));
        return new_binary(p, ECH_N_GETITEM, 0, where, node, index, ret);
    }
    ECH_TRY(ech_tparse_node(p, ECH_N_GETATTR, where, ret));
    (*ret)->a = node;
    ECH_TRY(ech_tparse_name_token(p, &(*ret)->name));
    (*ret)->name->is_field = true;
    return ech_tparse_done(p, *ret);
}

/* NAME "=" expr. The caller has seen both tokens. */
static ech_status parse_keyword(ech_tparser *const p, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_KEYWORD, p->tok, ret));
    (*ret)->name = p->tok->name;
    p->tok += 2;
    ECH_TRY(ech_tparse_expr(p, true, &(*ret)->a));
    return ech_tparse_done(p, *ret);
}

/*
 * One argument: *x, **x, name=x or x. Positional ones come before keywords and before *args,
 * **kwargs last. Jinja takes `f(a=1, *b)`, as Python does, but not `f(*a, b)`, which Python takes.
 * A keyword given twice fails here; in Jinja it is Python's compiler that finds it.
 */
static ech_status parse_arg(ech_tparser *const p, ech_tnode *const call, size_t *const cap,
                            size_t *const kwcap)
{
    const ech_ttoken *const where = p->tok;
    bool ok;
    ech_tnode *arg;
    if (ech_tparse_skip(p, ECH_TOK_MUL)) {
        /* Only one of either may stand in a call, in Jinja though not in Python. */
        ok = call->dyn_args == NULL && call->dyn_kwargs == NULL;
        ECH_TRY(ech_tparse_expr(p, true, &call->dyn_args));
    } else if (ech_tparse_skip(p, ECH_TOK_POW)) {
        ok = call->dyn_kwargs == NULL;
        ECH_TRY(ech_tparse_expr(p, true, &call->dyn_kwargs));
    } else if (at(p, ECH_TOK_NAME) && p->tok[1].kind == ECH_TOK_ASSIGN) {
        ok = call->dyn_kwargs == NULL;
        ECH_TRY(parse_keyword(p, &arg));
        for (size_t i = 0; i < call->kwargs.n; i++) {
            /* Names are interned: equal ones are the same pointer. */
            ok = ok && call->kwargs.items[i]->name != arg->name;
        }
        ECH_TRY(ech_tparse_push(p, &call->kwargs, kwcap, arg));
    } else {
        ok = call->dyn_args == NULL && call->dyn_kwargs == NULL && call->kwargs.n == 0;
        ECH_TRY(ech_tparse_expr(p, true, &arg));
        ECH_TRY(ech_tparse_push(p, &call->args, cap, arg));
    }
    return ok ? ECH_OK : ech_tparse_fail(p, where, "invalid syntax for function call expression");
}

/* "(" [arg ("," arg)* [","]] ")" The closing parenthesis is taken, too. */
static ech_status parse_call_args(ech_tparser *const p, ech_tnode *const call)
{
    size_t cap = 0, kwcap = 0;
    bool first = true;
    ECH_TRY(ech_tparse_expect(p, ECH_TOK_LPAREN, "("));
    while (!at(p, ECH_TOK_RPAREN)) {
        if (!first) {
            ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
            if (at(p, ECH_TOK_RPAREN)) break;
        }
        first = false;
        ECH_TRY(parse_arg(p, call, &cap, &kwcap));
    }
    p->tok++;
    return ECH_OK;
}

/*
 * The first argument of any method counts as a field that is read, because x.get('name') asks as
 * x['name'] does.
 */
static ech_status parse_call(ech_tparser *const p, ech_tnode *const node, ech_tnode **const ret)
{
    ECH_TRY(ech_tparse_node(p, ECH_N_CALL, p->tok, ret));
    (*ret)->a = node;
    ECH_TRY(parse_call_args(p, *ret));
    /* See ech_template_reads_field(). */
    if (node->kind == ECH_N_GETATTR && (*ret)->args.n > 0)
        ECH_TRY(mark_field(p, (*ret)->args.items[0]));
    return ech_tparse_done(p, *ret);
}

/* ("." … | "[" … "]" | "(" … ")")*, from the left. */
static ech_status parse_postfix(ech_tparser *const p, ech_tnode *node, ech_tnode **const ret)
{
    for (;;) {
        if (at(p, ECH_TOK_DOT))
            ECH_TRY(parse_dot(p, node, &node));
        else if (at(p, ECH_TOK_LBRACKET))
            ECH_TRY(parse_brackets(p, node, &node));
        else if (at(p, ECH_TOK_LPAREN))
            ECH_TRY(parse_call(p, node, &node));
        else
            break;
    }
    *ret = node;
    return ECH_OK;
}

/*
 * NAME ("." NAME)*: names of filters and tests may have dots in Jinja, where an application
 * registers them. No builtin has one, so such a name only shows up in an error, which 60 bytes of a
 * part are enough for.
 */
static ech_status parse_dotted(ech_tparser *const p, ech_tname **const ret)
{
    ECH_TRY(ech_tparse_name_token(p, ret));
    while (ech_tparse_skip(p, ECH_TOK_DOT)) {
        ech_tname *more;
        char text[130];
        ECH_TRY(ech_tparse_name_token(p, &more));
        /* The buffer holds two parts of 60, the dot and the end. */
        const int n = snprintf(text, sizeof text, "%.60s.%.60s", (*ret)->ptr, more->ptr);
        ECH_TRY(ech_tcompile_name(p->c, text, (size_t)n, ret));
    }
    return ECH_OK;
}

/*
 * ("|" NAME ["(" args ")"])*; with inline_start the first name comes without its bar, as in {%
 * filter upper %}. An unknown name is no error yet: the scope pass knows whether Jinja would fail
 * for it while compiling or only where it is reached, as in a branch of an if.
 */
ech_status ech_tparse_filters(ech_tparser *const p, ech_tnode *node, bool inline_start,
                              ech_tnode **const ret)
{
    while (inline_start || at(p, ECH_TOK_PIPE)) {
        if (!inline_start) p->tok++;
        inline_start = false;
        ech_tnode *filter;
        ECH_TRY(ech_tparse_node(p, ECH_N_FILTER, p->tok, &filter));
        filter->a = node;
        ECH_TRY(parse_dotted(p, &filter->name));
        if (at(p, ECH_TOK_LPAREN)) ECH_TRY(parse_call_args(p, filter));
        /* Once per template, and not for each rendering. */
        filter->builtin = ech_tfilter_find(filter->name->ptr);
        ECH_TRY(ech_tparse_done(p, filter));
        node = filter;
    }
    *ret = node;
    return ECH_OK;
}

/*
 * Whether a test's argument may come without parentheses: `x is divisibleby 3`, but not before an
 * operator, nor before these three words. `if` is not among them: in `a if x is odd if y`, as in
 * Jinja, the second `if` is read as the argument of odd.
 */
static bool begins_test_arg(const ech_tparser *const p)
{
    switch (p->tok->kind) {
    case ECH_TOK_NAME:
        return !ech_tparse_is_name(p, "else") && !ech_tparse_is_name(p, "or") &&
               !ech_tparse_is_name(p, "and");
    case ECH_TOK_STRING:
    case ECH_TOK_INT:
    case ECH_TOK_FLOAT:
    case ECH_TOK_LBRACKET:
    case ECH_TOK_LBRACE:
        return true;
    default:
        return false;
    }
}

/*
 * "is" ["not"] NAME [argument]. The argument is a primary with what follows it, without operators
 * or filters: `x is eq 1 + 1` compares with 1 and adds then. `not` makes a node around the test.
 */
static ech_status parse_test(ech_tparser *const p, ech_tnode *const node, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok++;
    const bool negated = ech_tparse_skip_name(p, "not");
    ech_tnode *test;
    ECH_TRY(ech_tparse_node(p, ECH_N_TEST, where, &test));
    test->a = node;
    ECH_TRY(parse_dotted(p, &test->name));
    if (at(p, ECH_TOK_LPAREN)) {
        ECH_TRY(parse_call_args(p, test));
    } else if (begins_test_arg(p)) {
        /* `is` would be taken for the argument's name otherwise. */
        if (ech_tparse_is_name(p, "is"))
            return ech_tparse_fail(p, p->tok, "you cannot chain multiple tests with is");
        ech_tnode *arg;
        size_t cap = 0;
        ECH_TRY(parse_primary(p, false, &arg));
        ECH_TRY(parse_postfix(p, arg, &arg));
        ECH_TRY(ech_tparse_push(p, &test->args, &cap, arg));
    }
    test->builtin = ech_ttest_find(test->name->ptr);
    ECH_TRY(ech_tparse_done(p, test));
    *ret = test;
    return negated ? new_binary(p, ECH_N_NOT, 0, where, test, NULL, ret) : ECH_OK;
}

/*
 * Filters and tests and calls of their results, in any order: `x | f is t` and `(x | f)()`. The
 * call belongs to the filter's result, as its own arguments were taken before: `x |
 * attr("upper")()`. A bar behind a test filters the test's result: `x is odd | string`. A dot or
 * bracket does not go on here: it would need parentheses.
 */
static ech_status parse_filter_expr(ech_tparser *const p, ech_tnode *node, ech_tnode **const ret)
{
    for (;;) {
        if (at(p, ECH_TOK_PIPE))
            ECH_TRY(ech_tparse_filters(p, node, false, &node));
        else if (ech_tparse_is_name(p, "is"))
            ECH_TRY(parse_test(p, node, &node));
        else if (at(p, ECH_TOK_LPAREN))
            ECH_TRY(parse_call(p, node, &node));
        else
            break;
    }
    *ret = node;
    return ECH_OK;
}

/* ---- operators ---- */

/*
 * ("-" | "+") unary | primary, then postfix, then filters. The order is Jinja's: an attribute binds
 * to the name, so `-x.y` negates x.y, but the filter of `-x | abs` takes the negated value.
 * with_filter is false behind a sign, which leaves the filters to the outermost one. Each sign is
 * one level, as each primary is.
 */
static ech_status parse_unary(ech_tparser *const p, const bool with_filter, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    ech_tnode *node;
    ECH_TRY(enter(p));
    if (at(p, ECH_TOK_SUB) || at(p, ECH_TOK_ADD)) {
        p->tok++;
        ECH_TRY(parse_unary(p, false, &node));
        ECH_TRY(new_binary(p, where->kind == ECH_TOK_SUB ? ECH_N_NEG : ECH_N_POS, 0, where, node,
                           NULL, &node));
    } else {
        ECH_TRY(parse_primary(p, false, &node));
    }
    ECH_TRY(parse_postfix(p, node, &node));
    if (with_filter) ECH_TRY(parse_filter_expr(p, node, &node));
    p->depth--;
    *ret = node;
    return ECH_OK;
}

/*
 * unary ("**" unary)*, from the left where Python goes from the right: 2 ** 3 ** 2 is 64. A unary
 * minus binds tighter as well, so (-x) ** 2 is what -x ** 2 means. Filters of the right side belong
 * to it alone: 2 ** x | abs is 2 ** (x | abs).
 */
static ech_status parse_pow(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *node, *right;
    ECH_TRY(parse_unary(p, true, &node));
    while (at(p, ECH_TOK_POW)) {
        const ech_ttoken *const where = p->tok++;
        ECH_TRY(parse_unary(p, true, &right));
        const bool left_const = node->is_const;
        ECH_TRY(new_binary(p, ECH_N_BINARY, ECH_OP_POW, where, node, right, &node));
        /*
         * Jinja writes `-1 ** x` for Python, which reads it as -(1 ** x): a negative constant loses
         * its parentheses when it is folded. If both sides are constant the power is folded too,
         * and comes out right. eval_binary() turns the sign of a base that is negative.
         */
        node->flag = left_const && !right->is_const;
    }
    *ret = node;
    return ECH_OK;
}

/* -1 for a token that is none of them. */
static int math_op(const uint8_t kind)
{
    switch (kind) {
    case ECH_TOK_MUL:
        return ECH_OP_MUL;
    case ECH_TOK_DIV:
        return ECH_OP_DIV;
    case ECH_TOK_FLOORDIV:
        return ECH_OP_FLOORDIV;
    case ECH_TOK_MOD:
        return ECH_OP_MOD;
    case ECH_TOK_ADD:
        return ECH_OP_ADD;
    case ECH_TOK_SUB:
        return ECH_OP_SUB;
    default:
        return -1;
    }
}

/* pow (("*" | "/" | "//" | "%") pow)*, the same level for all four, from the left. */
static ech_status parse_product(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *node, *right;
    ECH_TRY(parse_pow(p, &node));
    for (;;) {
        const int op = math_op(p->tok->kind);
        if (op < 0 || op == ECH_OP_ADD || op == ECH_OP_SUB) break;
        const ech_ttoken *const where = p->tok++;
        ECH_TRY(parse_pow(p, &right));
        ECH_TRY(new_binary(p, ECH_N_BINARY, op, where, node, right, &node));
    }
    *ret = node;
    return ECH_OK;
}

/*
 * product ("~" product)*: one node for the whole row, joined at once. Looser than * and tighter
 * than +, so `1 + 2 ~ 3` adds 1 and "23" and fails.
 */
static ech_status parse_concat(ech_tparser *const p, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    ech_tnode *node;
    ECH_TRY(parse_product(p, &node));
    if (!at(p, ECH_TOK_TILDE)) {
        *ret = node;
        return ECH_OK;
    }
    size_t cap = 0;
    ECH_TRY(ech_tparse_node(p, ECH_N_CONCAT, where, ret));
    ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, node));
    while (ech_tparse_skip(p, ECH_TOK_TILDE)) {
        ECH_TRY(parse_product(p, &node));
        ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, node));
    }
    return ech_tparse_done(p, *ret);
}

/* concat (("+" | "-") concat)*. Operands are whole rows of ~. */
static ech_status parse_sum(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *node, *right;
    ECH_TRY(parse_concat(p, &node));
    while (at(p, ECH_TOK_ADD) || at(p, ECH_TOK_SUB)) {
        const ech_ttoken *const where = p->tok++;
        ECH_TRY(parse_concat(p, &right));
        ECH_TRY(new_binary(p, ECH_N_BINARY, math_op(where->kind), where, node, right, &node));
    }
    *ret = node;
    return ECH_OK;
}

/*
 * The operator of a comparison that begins here, skipped; -1 for none. `not in` is two tokens, and
 * a `not` with anything else behind it is left alone.
 */
static int skip_comparison(ech_tparser *const p)
{
    static const struct {
        uint8_t tok, op;
    } ops[] = {
        { ECH_TOK_EQ, ECH_OP_EQ }, { ECH_TOK_NE, ECH_OP_NE }, { ECH_TOK_LT, ECH_OP_LT },
        { ECH_TOK_LE, ECH_OP_LE }, { ECH_TOK_GT, ECH_OP_GT }, { ECH_TOK_GE, ECH_OP_GE },
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (ech_tparse_skip(p, ops[i].tok)) return ops[i].op;
    }
    if (ech_tparse_skip_name(p, "in")) return ECH_OP_IN;
    if (ech_tparse_is_name(p, "not") && p->tok[1].kind == ECH_TOK_NAME &&
        strcmp(p->tok[1].name->ptr, "in") == 0) {
        p->tok += 2;
        return ECH_OP_NOT_IN;
    }
    return -1;
}

/*
 * sum (operator sum)*, one node: a < b < c looks at b once. Each later one only where those before
 * it hold: Python's chain. A constant on the left of `in` is a key somebody looks for.
 */
static ech_status parse_compare(ech_tparser *const p, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    ech_tnode *node;
    ECH_TRY(parse_sum(p, &node));
    int op = skip_comparison(p);
    if (op < 0) {
        *ret = node;
        return ECH_OK;
    }
    size_t cap = 0;
    if (op == ECH_OP_IN || op == ECH_OP_NOT_IN) ECH_TRY(mark_field(p, node));
    ECH_TRY(ech_tparse_node(p, ECH_N_COMPARE, where, ret));
    (*ret)->a = node;
    /* All in one list, so a chain of any length is one level high. */
    for (; op >= 0; op = skip_comparison(p)) {
        ech_tnode *right, *operand;
        const ech_ttoken *const at_op = p->tok;
        ECH_TRY(parse_sum(p, &right));
        ECH_TRY(new_binary(p, ECH_N_OPERAND, op, at_op, right, NULL, &operand));
        ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, operand));
    }
    return ech_tparse_done(p, *ret);
}

/* "not" not | compare. Looser than comparisons: `not a in b` is `not (a in b)`. */
static ech_status parse_not(ech_tparser *const p, ech_tnode **const ret)
{
    if (!ech_tparse_is_name(p, "not")) return parse_compare(p, ret);
    const ech_ttoken *const where = p->tok++;
    ech_tnode *node;
    ECH_TRY(enter(p));
    ECH_TRY(parse_not(p, &node));
    p->depth--;
    return new_binary(p, ECH_N_NOT, 0, where, node, NULL, ret);
}

/* not ("and" not)*: the value of one side, as in Python, and not a bool. */
static ech_status parse_and(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *node, *right;
    ECH_TRY(parse_not(p, &node));
    while (ech_tparse_is_name(p, "and")) {
        const ech_ttoken *const where = p->tok++;
        ECH_TRY(parse_not(p, &right));
        ECH_TRY(new_binary(p, ECH_N_AND, 0, where, node, right, &node));
    }
    *ret = node;
    return ECH_OK;
}

/* and ("or" and)* */
static ech_status parse_or(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *node, *right;
    ECH_TRY(parse_and(p, &node));
    while (ech_tparse_is_name(p, "or")) {
        const ech_ttoken *const where = p->tok++;
        ECH_TRY(parse_and(p, &right));
        ECH_TRY(new_binary(p, ECH_N_OR, 0, where, node, right, &node));
    }
    *ret = node;
    return ECH_OK;
}

/*
 * or ["if" or ["else" expr]]: without with_cond the `if` is left to the statement, as in {% for x
 * in y if z %}. The middle is an `or`, the last part a whole expression, so chains of `else` go to
 * the right; a second `if` without an else before it takes the first as its value.
 */
ech_status ech_tparse_expr(ech_tparser *const p, const bool with_cond, ech_tnode **const ret)
{
    ech_tnode *node;
    ECH_TRY(enter(p));
    ECH_TRY(parse_or(p, &node));
    while (with_cond && ech_tparse_is_name(p, "if")) {
        const ech_ttoken *const where = p->tok++;
        ech_tnode *cond;
        ECH_TRY(ech_tparse_node(p, ECH_N_COND, where, &cond));
        cond->b = node;
        ECH_TRY(parse_or(p, &cond->a));
        if (ech_tparse_skip_name(p, "else")) ECH_TRY(ech_tparse_expr(p, true, &cond->c));
        ECH_TRY(ech_tparse_done(p, cond));
        node = cond;
    }
    p->depth--;
    *ret = node;
    return ECH_OK;
}
