/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser's first half: statements, and what both halves share.
 *
 * Invariant: a statement's body ends at one of the names it was given; running into the end of the
 * source is an error that names the tag left open.
 *
 * The reference is jinja2's parser with the extensions that chat templates are rendered with (loop
 * controls, generation). Nodes and lists live in the compiler's arena. Bounds: p->depth guards the
 * C stack while parsing, a node's height guards every later walk over the tree. Inheritance and
 * imports are refused: a template is one text.
 */
#include <stdio.h>

#include "src/text/template_builtin.h"

static bool at(const ech_tparser *const p, const ech_ttok kind)
{
    return p->tok->kind == kind;
}

/* ---- shared ---- */

/*
 * An error of the lexer stands in the list as a token; its message wins over what the parser
 * expected in its place.
 */
ech_status ech_tparse_fail(ech_tparser *const p, const ech_ttoken *const where,
                           const char *const fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->tok->kind == ECH_TOK_ERROR) {
        return ech_tcompile_fail(p->c, ECH_EFORMAT, p->tok->line, p->tok->column, "%s",
                                 p->tok->ptr);
    }
    if (where->kind == ECH_TOK_EOF) {
        return ech_tcompile_fail(p->c, ECH_EFORMAT, where->line, where->column,
                                 "unexpected end of template: %s", text);
    }
    return ech_tcompile_fail(p->c, ECH_EFORMAT, where->line, where->column, "%s", text);
}

ech_status ech_tparse_node(ech_tparser *const p, const ech_tnode_kind kind,
                           const ech_ttoken *const where, ech_tnode **const ret)
{
    ECH_TRY(ech_tcompile_alloc(p->c, 1, sizeof **ret, ret));
    (*ret)->kind = (uint8_t)kind;
    (*ret)->line = where->line;
    (*ret)->column = where->column;
    return ECH_OK;
}

static uint16_t higher(const uint16_t h, const ech_tnode *const node)
{
    return node != NULL && node->height > h ? node->height : h;
}

static uint16_t highest(uint16_t h, const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        h = higher(h, list.items[i]);
    }
    return h;
}

static bool all_const(const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        if (!list.items[i]->is_const) return false;
    }
    return true;
}

static bool const_or_none(const ech_tnode *const n)
{
    return n == NULL || n->is_const;
}

/*
 * The filters that Jinja does not run while it compiles. In jinja2 they take the context, which
 * isn't there yet.
 */
static bool runs_late(const ech_tname *const name)
{
    static const char *const names[] = { "map",        "select",     "reject",
                                         "selectattr", "rejectattr", "random" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name->ptr, names[i]) == 0) return true;
    }
    return false;
}

/*
 * Jinja's optimiser folds what is constant, and folding forgives some errors; so it must be known
 * which nodes it would fold, though nothing is folded here.
 */
static bool computes_const(const ech_tnode *const n)
{
    if (n->kind == ECH_N_NAME || n->kind == ECH_N_NSREF || n->kind == ECH_N_CALL ||
        n->kind >= ECH_N_DATA)
        return false;
    if (n->kind == ECH_N_FILTER && (n->a == NULL || runs_late(n->name))) return false;
    return const_or_none(n->a) && const_or_none(n->b) && const_or_none(n->c) &&
           const_or_none(n->dyn_args) && const_or_none(n->dyn_kwargs) && all_const(n->list) &&
           all_const(n->args) && all_const(n->kwargs);
}

/* A slice that Jinja takes while compiling is undefined where Python's would fail. */
static void allow_slice(ech_tnode *const n)
{
    if (n != NULL && n->is_const && n->kind == ECH_N_GETITEM && n->b->kind == ECH_N_SLICE)
        n->is_lenient = true;
}

static void allow_slices(const ech_tnodes list)
{
    for (size_t i = 0; i < list.n; i++) {
        allow_slice(list.items[i]);
    }
}

/* Called when all children are set, so that heights add up from below. */
ech_status ech_tparse_done(ech_tparser *const p, ech_tnode *const n)
{
    uint16_t h =
        higher(higher(higher(higher(higher(0, n->a), n->b), n->c), n->dyn_args), n->dyn_kwargs);
    h = highest(highest(highest(highest(h, n->list), n->defaults), n->body), n->orelse);
    h = highest(highest(h, n->args), n->kwargs);
    n->height = (uint16_t)(h + 1);
    n->is_const = computes_const(n);
    if (n->is_const || n->kind == ECH_N_OUTPUT) {
        allow_slice(n->a);
        allow_slice(n->b);
        allow_slice(n->c);
        allow_slices(n->list);
        allow_slices(n->args);
        allow_slices(n->kwargs);
    }
    if (n->height > ECH_TNODE_MAX_HEIGHT) {
        return ech_tcompile_fail(p->c, ECH_ELIMIT, n->line, n->column,
                                 "nested more than %d levels deep", ECH_TNODE_MAX_HEIGHT);
    }
    return ECH_OK;
}

/* Doubling in an arena leaves the old arrays there: together less than the last one. */
ech_status ech_tparse_push(ech_tparser *const p, ech_tnodes *const list, size_t *const cap,
                           ech_tnode *const node)
{
    if (list->n == *cap) {
        const size_t more = *cap == 0 ? 4 : *cap * 2;
        ech_tnode **items;
        ECH_TRY(ech_tcompile_alloc(p->c, more, sizeof *items, &items));
        if (list->n > 0) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        *cap = more;
    }
    list->items[list->n++] = node;
    return ECH_OK;
}

bool ech_tparse_is_name(const ech_tparser *const p, const char *const name)
{
    return p->tok->kind == ECH_TOK_NAME && strcmp(p->tok->name->ptr, name) == 0;
}

bool ech_tparse_skip(ech_tparser *const p, const ech_ttok kind)
{
    if (p->tok->kind != kind) return false;
    p->tok++;
    return true;
}

bool ech_tparse_skip_name(ech_tparser *const p, const char *const name)
{
    if (!ech_tparse_is_name(p, name)) return false;
    p->tok++;
    return true;
}

ech_status ech_tparse_expect(ech_tparser *const p, const ech_ttok kind, const char *const what)
{
    if (ech_tparse_skip(p, kind)) return ECH_OK;
    return ech_tparse_fail(p, p->tok, "expected '%s'", what);
}

ech_status ech_tparse_name_token(ech_tparser *const p, ech_tname **const ret)
{
    if (!at(p, ECH_TOK_NAME)) return ech_tparse_fail(p, p->tok, "expected a name");
    *ret = p->tok->name;
    p->tok++;
    return ECH_OK;
}

/* ---- bodies ---- */

static ech_status parse_statement(ech_tparser *p, ech_tnode **ret);

/* No list: only the end of the source ends the body. */
static bool at_end_name(const ech_tparser *const p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (ech_tparse_is_name(p, *ends)) return true;
    }
    return false;
}

static ech_status parse_data(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tstr *s;
    ECH_TRY(ech_tparse_node(p, ECH_N_DATA, p->tok, ret));
    ECH_TRY(ech_tcompile_alloc(p->c, 1, sizeof *s, &s));
    *s = (ech_tstr){ .ptr = p->tok->ptr, .len = p->tok->len, .n_chars = SIZE_MAX };
    (*ret)->value = ech_tv_str(s);
    p->tok++;
    return ech_tparse_done(p, *ret);
}

/* "{{" tuple "}}": {{ a, b }} prints a tuple. */
static ech_status parse_output(ech_tparser *const p, ech_tnode **const ret)
{
    ech_tnode *expr;
    size_t cap = 0;
    ECH_TRY(ech_tparse_node(p, ECH_N_OUTPUT, p->tok, ret));
    p->tok++;
    ECH_TRY(ech_tparse_tuple(p, true, NULL, &expr));
    ECH_TRY(ech_tparse_push(p, &(*ret)->list, &cap, expr));
    ECH_TRY(ech_tparse_expect(p, ECH_TOK_VAR_END, "}}"));
    return ech_tparse_done(p, *ret);
}

/* Text and tags up to a tag that begins with one of `ends`, whose name is the current token then.
 */
static ech_status parse_body(ech_tparser *const p, const char *const *ends, ech_tnodes *const ret)
{
    size_t cap = 0;
    while (!at(p, ECH_TOK_EOF)) {
        ech_tnode *node;
        if (at(p, ECH_TOK_DATA)) {
            ECH_TRY(parse_data(p, &node));
        } else if (at(p, ECH_TOK_VAR_BEGIN)) {
            ECH_TRY(parse_output(p, &node));
        } else {
            ECH_TRY(ech_tparse_expect(p, ECH_TOK_BLOCK_BEGIN, "{%"));
            if (at_end_name(p, ends)) return ECH_OK;
            ECH_TRY(parse_statement(p, &node));
            ECH_TRY(ech_tparse_expect(p, ECH_TOK_BLOCK_END, "%}"));
        }
        ECH_TRY(ech_tparse_push(p, ret, &cap, node));
    }
    if (ends == NULL) return ECH_OK;
    /* What closes the tag is named, not what only divides it. */
    while (strncmp(ends[0], "end", 3) != 0 && ends[1] != NULL) {
        ends++;
    }
    return ech_tparse_fail(p, p->tok, "'%s' is missing", ends[0]);
}

/*
 * The body after a statement's head; drop: skips the name that ended it, which must be the only
 * one. A colon before the end of the tag is allowed, as in Python.
 */
static ech_status parse_block(ech_tparser *const p, const char *const *const ends, const bool drop,
                              ech_tnodes *const ret)
{
    (void)ech_tparse_skip(p, ECH_TOK_COLON);
    ECH_TRY(ech_tparse_expect(p, ECH_TOK_BLOCK_END, "%}"));
    ECH_TRY(parse_body(p, ends, ret));
    if (drop) p->tok++;
    return ECH_OK;
}

/* The names that end a body; the first that begins with "end" is what an error calls missing. */
#define ENDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- statements ---- */

/*
 * `recursive` ends the iterable's tuple, so it is no name there. The filter is one expression: no
 * tuple. "for" target "in" tuple ["if" expr] ["recursive"]. The tuple takes no `if` of its own,
 * which is left for the filter.
 */
static ech_status parse_for(ech_tparser *const p, ech_tnode *const node)
{
    ECH_TRY(ech_tparse_target(p, false, "in", &node->a));
    if (!ech_tparse_skip_name(p, "in")) return ech_tparse_fail(p, p->tok, "expected 'in'");
    ECH_TRY(ech_tparse_tuple(p, false, "recursive", &node->b));
    if (ech_tparse_skip_name(p, "if")) ECH_TRY(ech_tparse_expr(p, true, &node->c));
    node->flag = ech_tparse_skip_name(p, "recursive");
    ECH_TRY(parse_block(p, ENDS("endfor", "else"), false, &node->body));
    if (ech_tparse_skip_name(p, "else")) return parse_block(p, ENDS("endfor"), true, &node->orelse);
    p->tok++;
    return ECH_OK;
}

/*
 * elifs are nodes of their own in list, each with its test and body. A row of elifs is one node
 * high, however long it is.
 */
static ech_status parse_if(ech_tparser *const p, ech_tnode *const node)
{
    size_t cap = 0;
    ech_tnode *branch = node;
    for (;;) {
        ECH_TRY(ech_tparse_tuple(p, false, NULL, &branch->a));
        ECH_TRY(parse_block(p, ENDS("elif", "else", "endif"), false, &branch->body));
        if (branch != node) {
            ECH_TRY(ech_tparse_done(p, branch));
            ECH_TRY(ech_tparse_push(p, &node->list, &cap, branch));
        }
        const ech_ttoken *const where = p->tok;
        if (ech_tparse_skip_name(p, "elif")) {
            ECH_TRY(ech_tparse_node(p, ECH_N_IF, where, &branch));
            continue;
        }
        if (ech_tparse_skip_name(p, "else"))
            return parse_block(p, ENDS("endif"), true, &node->orelse);
        p->tok++;
        return ECH_OK;
    }
}

/* "set" target "=" tuple, or as a block "set" target filters … "endset". */
static ech_status parse_set(ech_tparser *const p, ech_tnode *const node)
{
    ECH_TRY(ech_tparse_target(p, true, NULL, &node->a));
    if (ech_tparse_skip(p, ECH_TOK_ASSIGN)) return ech_tparse_tuple(p, true, NULL, &node->b);
    node->kind = ECH_N_SET_BLOCK;
    ECH_TRY(ech_tparse_filters(p, NULL, false, &node->b));
    return parse_block(p, ENDS("endset"), true, &node->body);
}

/* (a, b=1): parameters to list, the last ones' defaults to defaults. */
static ech_status parse_signature(ech_tparser *const p, ech_tnode *const node)
{
    size_t cap = 0, dcap = 0;
    ECH_TRY(ech_tparse_expect(p, ECH_TOK_LPAREN, "("));
    while (!at(p, ECH_TOK_RPAREN)) {
        if (node->list.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        ech_tnode *arg, *value;
        ECH_TRY(ech_tparse_node(p, ECH_N_NAME, p->tok, &arg));
        ECH_TRY(ech_tparse_name_token(p, &arg->name));
        for (size_t i = 0; i < node->list.n; i++) {
            if (node->list.items[i]->name == arg->name)
                return ech_tparse_fail(p, p->tok - 1, "duplicate parameter");
        }
        ECH_TRY(ech_tparse_done(p, arg));
        if (ech_tparse_skip(p, ECH_TOK_ASSIGN)) {
            ECH_TRY(ech_tparse_expr(p, true, &value));
            ECH_TRY(ech_tparse_push(p, &node->defaults, &dcap, value));
        } else if (node->defaults.n > 0) {
            return ech_tparse_fail(p, p->tok, "non-default argument follows default argument");
        }
        ECH_TRY(ech_tparse_push(p, &node->list, &cap, arg));
    }
    p->tok++;
    return ECH_OK;
}

/* "macro" NAME signature … "endmacro" */
static ech_status parse_macro(ech_tparser *const p, ech_tnode *const node)
{
    ECH_TRY(ech_tparse_name_token(p, &node->name));
    ECH_TRY(parse_signature(p, node));
    return parse_block(p, ENDS("endmacro"), true, &node->body);
}

/*
 * "call" [signature] call … "endcall": the body becomes the macro that the called one knows as
 * `caller`.
 */
static ech_status parse_call_block(ech_tparser *const p, ech_tnode *const node)
{
    if (at(p, ECH_TOK_LPAREN)) ECH_TRY(parse_signature(p, node));
    ECH_TRY(ech_tparse_expr(p, true, &node->a));
    if (node->a->kind != ECH_N_CALL) return ech_tparse_fail(p, p->tok, "expected a call");
    return parse_block(p, ENDS("endcall"), true, &node->body);
}

/*
 * "filter" NAME [arguments] filters … "endfilter": the node of the innermost filter has no input.
 */
static ech_status parse_filter_block(ech_tparser *const p, ech_tnode *const node)
{
    ECH_TRY(ech_tparse_filters(p, NULL, true, &node->a));
    return parse_block(p, ENDS("endfilter"), true, &node->body);
}

/*
 * "with" [target "=" expr ("," …)*] … "endwith". Targets and values are two lists, of the same
 * length.
 */
static ech_status parse_with(ech_tparser *const p, ech_tnode *const node)
{
    size_t cap = 0, vcap = 0;
    while (!at(p, ECH_TOK_BLOCK_END)) {
        if (node->list.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        ech_tnode *target, *value;
        ECH_TRY(ech_tparse_target(p, false, NULL, &target));
        ECH_TRY(ech_tparse_expect(p, ECH_TOK_ASSIGN, "="));
        ECH_TRY(ech_tparse_expr(p, true, &value));
        ECH_TRY(ech_tparse_push(p, &node->list, &cap, target));
        ECH_TRY(ech_tparse_push(p, &node->defaults, &vcap, value));
    }
    return parse_block(p, ENDS("endwith"), true, &node->body);
}

/* A block stands where it is written; its name may be repeated at the end. */
static ech_status parse_block_tag(ech_tparser *const p, ech_tnode *const node)
{
    ECH_TRY(ech_tparse_name_token(p, &node->name));
    node->flag = ech_tparse_skip_name(p, "scoped");
    const ech_ttoken *const where = p->tok;
    const bool required = ech_tparse_skip_name(p, "required");
    ECH_TRY(parse_block(p, ENDS("endblock"), true, &node->body));
    (void)ech_tparse_skip_name(p, node->name->ptr);
    if (required)
        return ech_tparse_fail(p, where,
                               "a required block needs inheritance, which is not supported");
    return ECH_OK;
}

/* "print" [expr ("," expr)*], as {{ }} for each. */
static ech_status parse_print(ech_tparser *const p, ech_tnode *const node)
{
    size_t cap = 0;
    while (!at(p, ECH_TOK_BLOCK_END)) {
        if (node->list.n > 0) ECH_TRY(ech_tparse_expect(p, ECH_TOK_COMMA, ","));
        ech_tnode *expr;
        ECH_TRY(ech_tparse_expr(p, true, &expr));
        ECH_TRY(ech_tparse_push(p, &node->list, &cap, expr));
    }
    return ECH_OK;
}

static ech_status parse_generation(ech_tparser *const p, ech_tnode *const node)
{
    p->has_generation = true;
    return parse_block(p, ENDS("endgeneration"), true, &node->body);
}

static ech_status parse_nothing(ech_tparser *const p, ech_tnode *const node)
{
    (void)p;
    (void)node;
    return ECH_OK;
}

static const struct {
    const char *name;
    ech_tnode_kind kind;
    ech_status (*parse)(ech_tparser *, ech_tnode *);
} statements[] = {
    { "for", ECH_N_FOR, parse_for },
    { "if", ECH_N_IF, parse_if },
    { "set", ECH_N_SET, parse_set },
    { "macro", ECH_N_MACRO, parse_macro },
    { "call", ECH_N_CALL_BLOCK, parse_call_block },
    { "filter", ECH_N_FILTER_BLOCK, parse_filter_block },
    { "with", ECH_N_WITH, parse_with },
    { "block", ECH_N_BLOCK, parse_block_tag },
    { "print", ECH_N_OUTPUT, parse_print },
    { "generation", ECH_N_GENERATION, parse_generation },
    { "break", ECH_N_BREAK, parse_nothing },
    { "continue", ECH_N_CONTINUE, parse_nothing },
};

/* What needs a second template, or switches escaping on. */
static const char *const refused[] = { "include", "import", "from", "extends", "autoescape" };

/* Each nests a body, so each counts for the depth, even those that have none. */
static ech_status parse_statement(ech_tparser *const p, ech_tnode **const ret)
{
    const ech_ttoken *const where = p->tok;
    if (where->kind != ECH_TOK_NAME) return ech_tparse_fail(p, where, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!ech_tparse_is_name(p, statements[i].name)) continue;
        if (++p->depth > ECH_TNODE_MAX_HEIGHT) {
            return ech_tcompile_fail(p->c, ECH_ELIMIT, where->line, where->column,
                                     "nested more than %d levels deep", ECH_TNODE_MAX_HEIGHT);
        }
        p->tok++;
        ECH_TRY(ech_tparse_node(p, statements[i].kind, where, ret));
        ECH_TRY(statements[i].parse(p, *ret));
        p->depth--;
        return ech_tparse_done(p, *ret);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (ech_tparse_is_name(p, refused[i])) {
            return ech_tcompile_fail(p->c, ECH_EUNSUPPORTED, where->line, where->column,
                                     "the tag '%s' is not supported in a chat template",
                                     refused[i]);
        }
    }
    return ech_tparse_fail(p, where, "unknown tag '%.80s'", where->name->ptr);
}

/* The only way out but an error is the end of the source. */
ech_status ech_tparse(ech_tcompiler *const c, const ech_ttoken *const tokens, ech_tnodes *const ret)
{
    ech_tparser p = { .c = c, .tok = tokens };
    return parse_body(&p, NULL, ret);
}
