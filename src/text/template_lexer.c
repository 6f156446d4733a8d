/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template source to tokens, with Jinja's control of white space.
 *
 * Jinja's lexer is a list of regular expressions; this one gives the same tokens by hand, in one
 * pass. What a tag does to the text around it is decided here and nowhere else:
 *
 *     {%- …    the text before loses its trailing white space
 *     {% …     the text before loses blanks between the line's beginning and the tag
 * (lstrip_blocks)
 *     {%+ …    the text before stays
 *     … -%}    white space after it goes
 *     … %}     one newline after it goes (trim_blocks); not after }}
 *     … +%}    the newline stays
 *
 * Line ends are made "\n" first, and one at the very end is dropped. Left out: line statements.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_node.h"
#include "src/text/template_text.h"

#define MAX_BRACKETS 250

typedef struct lexer {
    ech_tcompiler *c;
    const char *s; /* source with "\n" line ends */
    size_t len, pos;
    uint32_t line;      /* of pos */
    size_t line_start;  /* where pos's line begins */
    bool line_starting; /* what was matched last ended a line, or nothing was */
    char brackets[MAX_BRACKETS];
    size_t n_brackets;
    ech_ttoken *tokens;
    size_t n, cap;
} lexer;

ech_status ech_tcompile_fail(ech_tcompiler *const c, const ech_status code, const uint32_t line,
                             const uint32_t column, const char *const fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ech_fail_at(c->err, code, line, column, -1, "template, line %u column %u: %s",
                       (unsigned)line, (unsigned)column, text);
}

ech_status ech_tcompile_alloc(ech_tcompiler *const c, const size_t n, const size_t size,
                              void *const ret)
{
    void *const p = ech_arena_array(c->arena, n, size);
    if (p == NULL) {
        (void)ech_fail(c->err, ECH_ELIMIT, "template: too large to compile");
        return ECH_ELIMIT;
    }
    *(void **)ret = p;
    return ECH_OK;
}

ech_status ech_tcompile_name(ech_tcompiler *const c, const char *const ptr, const size_t len,
                             ech_tname **const ret)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (uint8_t)ptr[i]) * 16777619u;
    }
    ech_tname **const bucket = &c->buckets[h % ECH_TNAME_BUCKETS];
    for (ech_tname *n = *bucket; n != NULL; n = n->next) {
        if (n->len == len && memcmp(n->ptr, ptr, len) == 0) {
            *ret = n;
            return ECH_OK;
        }
    }
    if (c->n_names == ECH_TNAMES_MAX) {
        return ech_fail(c->err, ECH_ELIMIT, "template: more than %d different names",
                        ECH_TNAMES_MAX);
    }
    ech_tname *name;
    ECH_TRY(ech_tcompile_alloc(c, 1, sizeof *name, &name));
    name->ptr = ech_arena_strdup(c->arena, (ech_str){ ptr, len });
    if (name->ptr == NULL) return ech_fail(c->err, ECH_ELIMIT, "template: too large to compile");
    name->len = len;
    name->next = *bucket;
    *bucket = name;
    c->n_names++;
    *ret = name;
    return ECH_OK;
}

static uint32_t column_of(const lexer *const l, const size_t pos)
{
    return (uint32_t)(pos - l->line_start + 1);
}

/*
 * Tokens are views of the source; old arrays stay in the arena, at most as much again as the last.
 */
static ech_status emit(lexer *const l, ech_ttoken tok)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        ech_ttoken *tokens;
        ECH_TRY(ech_tcompile_alloc(l->c, cap, sizeof *tokens, &tokens));
        if (l->n > 0) memcpy(tokens, l->tokens, l->n * sizeof *tokens);
        l->tokens = tokens;
        l->cap = cap;
    }
    if (tok.line == 0) {
        tok.line = l->line;
        tok.column = column_of(l, l->pos);
    }
    l->tokens[l->n++] = tok;
    return ECH_OK;
}

/* Moves on, counting lines. */
/*
 * What can't be read becomes the last token: jinja2 reads tokens as its parser asks for them, so an
 * error of the parser before this place is the one to report. Fails always, to end the lexer.
 */
static ech_status lex_fail(lexer *const l, const char *const fmt, ...)
{
    char text[200], *copy;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t len = strlen(text);
    ECH_TRY(ech_tcompile_alloc(l->c, len + 1, 1, &copy));
    memcpy(copy, text, len + 1);
    ECH_TRY(emit(l, (ech_ttoken){ .kind = ECH_TOK_ERROR, .ptr = copy, .len = len }));
    return ECH_EFORMAT;
}

static void advance_to(lexer *const l, const size_t to)
{
    for (size_t i = l->pos; i < to; i++) {
        if (l->s[i] == '\n') {
            l->line++;
            l->line_start = i + 1;
        }
    }
    if (to > l->pos) l->line_starting = l->s[to - 1] == '\n';
    l->pos = to;
}

static bool at_str(const lexer *const l, const size_t pos, const char *const what)
{
    const size_t n = strlen(what);
    return l->len - pos >= n && memcmp(l->s + pos, what, n) == 0;
}

/* White space is Python's \s, not ASCII's. */
static size_t skip_space(const lexer *const l, size_t pos)
{
    size_t n;
    while (pos < l->len && (n = ech_ttext_space(l->s + pos, l->len - pos)) > 0) {
        pos += n;
    }
    return pos;
}

/*
 * Emits the text before a tag, [pos, end), shortened as the tag's sign asks. may_lstrip is false
 * before {{: blanks there are part of what is printed. A tag's line must begin within this text, or
 * where the last tag ended a line.
 */
static ech_status emit_data(lexer *const l, const size_t end, const char sign,
                            const bool may_lstrip)
{
    size_t cut = end;
    if (sign == '-') {
        cut = l->pos + ech_ttext_rstrip(l->s + l->pos, end - l->pos);
    } else if (sign != '+' && may_lstrip) {
        size_t line = end;
        while (line > l->pos && l->s[line - 1] != '\n') {
            line--;
        }
        if ((line > l->pos || l->line_starting) && line < end && skip_space(l, line) >= end)
            cut = line;
    }
    if (cut > l->pos) {
        ECH_TRY(emit(
            l, (ech_ttoken){ .kind = ECH_TOK_DATA, .ptr = l->s + l->pos, .len = cut - l->pos }));
    }
    advance_to(l, end);
    return ECH_OK;
}

/*
 * The length of the end of a tag at pos, white space it swallows included; 0 when there is none.
 * For "}}" neither trim_blocks nor "+" applies.
 */
static size_t tag_end(const lexer *const l, const size_t pos, const char *const end)
{
    if (l->s[pos] == '-' && at_str(l, pos + 1, end)) return skip_space(l, pos + 3) - pos;
    if (end[0] == '}') return at_str(l, pos, end) ? 2 : 0;
    if (l->s[pos] == '+' && at_str(l, pos + 1, end)) return 3;
    if (!at_str(l, pos, end)) return 0;
    return pos + 2 < l->len && l->s[pos + 2] == '\n' ? 3 : 2;
}

/* Comments don't nest: the first end counts, even in quotes. */
static ech_status lex_comment(lexer *const l, const size_t body)
{
    for (size_t pos = body; pos < l->len; pos++) {
        const size_t n = tag_end(l, pos, "#}");
        if (n == 0) continue;
        advance_to(l, pos + n);
        return ECH_OK;
    }
    return lex_fail(l, "missing end of comment tag");
}

/* After `{% raw %}`: everything up to `{% endraw %}` is text. */
static ech_status lex_raw(lexer *const l)
{
    for (size_t pos = l->pos; pos + 1 < l->len; pos++) {
        if (!at_str(l, pos, "{%")) continue;
        const char sign =
            pos + 2 < l->len && (l->s[pos + 2] == '-' || l->s[pos + 2] == '+') ? l->s[pos + 2] : 0;
        size_t at = skip_space(l, pos + 2 + (sign != 0));
        if (!at_str(l, at, "endraw")) continue;
        at = skip_space(l, at + 6);
        const size_t n = at < l->len ? tag_end(l, at, "%}") : 0;
        if (n == 0) continue;
        ECH_TRY(emit_data(l, pos, sign, true));
        advance_to(l, at + n);
        return ECH_OK;
    }
    return lex_fail(l, "missing end of raw directive");
}

/* The end of `{% raw %}` when that is what begins at pos; else 0. */
static size_t raw_begin(const lexer *const l, const size_t after_sign)
{
    size_t at = skip_space(l, after_sign);
    if (!at_str(l, at, "raw")) return 0;
    at = skip_space(l, at + 3);
    if (at < l->len && l->s[at] == '-' && at_str(l, at + 1, "%}")) return skip_space(l, at + 3);
    return at < l->len && at_str(l, at, "%}") ? at + 2 : 0;
}

/* ---- inside a tag ---- */

static bool is_digit(const char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; the end. */
static size_t skip_digits(const lexer *const l, size_t pos)
{
    while (pos < l->len && (is_digit(l->s[pos]) ||
                            (l->s[pos] == '_' && pos + 1 < l->len && is_digit(l->s[pos + 1])))) {
        pos++;
    }
    return pos;
}

/*
 * The end of a floating point literal at pos, or 0. A number behind a dot is an attribute's index
 * ("a.1.2"), not a float.
 */
static size_t float_end(const lexer *const l, const size_t pos)
{
    if (pos > 0 && l->s[pos - 1] == '.') return 0;
    size_t at = skip_digits(l, pos);
    bool is_float = false;
    if (at + 1 < l->len && l->s[at] == '.' && is_digit(l->s[at + 1])) {
        at = skip_digits(l, at + 1);
        is_float = true;
    }
    if (at < l->len && (l->s[at] | 32) == 'e') {
        size_t e = at + 1;
        if (e < l->len && (l->s[e] == '+' || l->s[e] == '-')) e++;
        if (e < l->len && is_digit(l->s[e])) return skip_digits(l, e);
    }
    return is_float ? at : 0;
}

static int digit_value(const char c)
{
    if (is_digit(c)) return c - '0';
    const char lower = (char)(c | 32);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* The end of an integer literal; base is 2, 8, 10 or 16. */
static size_t int_end(const lexer *const l, const size_t pos, int *const ret_base)
{
    *ret_base = 10;
    if (l->s[pos] != '0') return skip_digits(l, pos);
    const char x = pos + 1 < l->len ? (char)(l->s[pos + 1] | 32) : 0;
    const int base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
    size_t at = pos + (base != 0 ? 2 : 1);
    const size_t first = at;
    const int limit = base != 0 ? base : 1;
    while (at < l->len) {
        const bool underscore =
            l->s[at] == '_' && at + 1 < l->len && digit_value(l->s[at + 1]) < limit;
        if (!underscore && digit_value(l->s[at]) >= limit) break;
        at++;
    }
    if (base != 0 && at == first) return pos + 1;
    if (base != 0) *ret_base = base;
    return at;
}

/* Underscores are left out before the C library reads the digits. */
static ech_status lex_number(lexer *const l)
{
    char text[128];
    size_t n = 0;
    int base = 0;
    const size_t fend = float_end(l, l->pos);
    const size_t end = fend != 0 ? fend : int_end(l, l->pos, &base);
    for (size_t i = l->pos; i < end; i++) {
        if (l->s[i] == '_') continue;
        if (n + 1 == sizeof text) return lex_fail(l, "number is too long");
        text[n++] = l->s[i];
    }
    text[n] = '\0';
    ech_ttoken tok = { .kind = fend != 0 ? ECH_TOK_FLOAT : ECH_TOK_INT };
    errno = 0;
    if (fend != 0) {
        tok.f = strtod(text, NULL);
    } else {
        tok.i = strtoll(base == 10 ? text : text + 2, NULL, base);
        if (errno == ERANGE) return lex_fail(l, "integer %s does not fit 64 bits", text);
    }
    ECH_TRY(emit(l, tok));
    advance_to(l, end);
    return ECH_OK;
}

/* 0 when there were n digits, -1 else. */
static int hex_run(const char *const p, const size_t left, const size_t n, uint32_t *const ret)
{
    if (left < n) return -1;
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        const int d = digit_value(p[i]);
        if (d > 15) return -1;
        v = v * 16 + (uint32_t)d;
    }
    *ret = v;
    return 0;
}

/*
 * One escape, p[0] being the backslash, as Python's unicode-escape codec reads it. *ret_cp is
 * UINT32_MAX for none (a line continuation). Returns bytes read, 0 for a broken escape, and -1
 * when the backslash stands for itself.
 */
static int unescape_one(const char *const p, const size_t left, uint32_t *const ret_cp)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = p[1];
    if (c == '\n') {
        *ret_cp = UINT32_MAX;
        return 2;
    }
    const char *const simple = memchr(from, c, sizeof from - 1);
    if (simple != NULL) {
        *ret_cp = (uint8_t)to[simple - from];
        return 2;
    }
    if (c >= '0' && c <= '7') {
        uint32_t v = 0;
        int n = 1;
        while (n < 4 && (size_t)n < left && p[n] >= '0' && p[n] <= '7') {
            v = v * 8 + (uint32_t)(p[n++] - '0');
        }
        *ret_cp = v;
        return n;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits != 0) return hex_run(p + 2, left - 2, digits, ret_cp) == 0 ? (int)digits + 2 : 0;
    return c == 'N' ? 0 : -1;
}

/* A string's text between its quotes, unescaped into the arena. */
static ech_status unescape(lexer *const l, const char *const p, const size_t len,
                           ech_ttoken *const tok)
{
    char *out;
    /* A backslash before a character beyond ASCII becomes its escape, up to 10 bytes for 3. */
    ECH_TRY(ech_tcompile_alloc(l->c, len * 4 + 1, 1, &out));
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (p[i] != '\\') {
            out[n++] = p[i++];
            continue;
        }
        uint32_t cp = 0;
        if (i + 1 < len && (uint8_t)p[i + 1] >= 0x80) {
            /* Python escapes it first, and then the backslash escapes that escape's own. */
            const int k = ech_utf8_decode(p + i + 1, len - i - 1, &cp);
            n += (size_t)sprintf(out + n,
                                 cp < 0x100     ? "\\x%02x"
                                 : cp < 0x10000 ? "\\u%04x"
                                                : "\\U%08x",
                                 (unsigned)cp);
            i += 1 + (size_t)k;
            continue;
        }
        const int k = unescape_one(p + i, len - i, &cp);
        if (k == 0) return lex_fail(l, "cannot read an escape in a string");
        if (k < 0) {
            out[n++] = p[i++];
            continue;
        }
        const int w = cp == UINT32_MAX ? 0 : ech_utf8_encode(cp, out + n);
        if (cp != UINT32_MAX && w == 0) return lex_fail(l, "escape in a string is no character");
        n += (size_t)w;
        i += (size_t)k;
    }
    tok->ptr = out;
    tok->len = n;
    return ECH_OK;
}

/* A string without a backslash is a view of the source. */
static ech_status lex_string(lexer *const l)
{
    const char quote = l->s[l->pos];
    size_t end = l->pos + 1;
    while (end < l->len && l->s[end] != quote) {
        end += l->s[end] == '\\' ? 2 : 1;
    }
    if (end >= l->len) return lex_fail(l, "unexpected char %c: the string does not end", quote);
    ech_ttoken tok = { .kind = ECH_TOK_STRING };
    const char *const text = l->s + l->pos + 1;
    const size_t len = end - l->pos - 1;
    if (memchr(text, '\\', len) == NULL) {
        tok.ptr = text;
        tok.len = len;
    } else {
        ECH_TRY(unescape(l, text, len, &tok));
    }
    ECH_TRY(emit(l, tok));
    advance_to(l, end + 1);
    return ECH_OK;
}

/* The end of a run of word characters at pos; pos itself when there is none. */
static size_t word_end(const lexer *const l, size_t pos)
{
    while (pos < l->len) {
        uint32_t cp;
        const int n = ech_utf8_decode(l->s + pos, l->len - pos, &cp);
        if (n <= 0 || !ech_ttext_is_word(cp)) break;
        pos += (size_t)n;
    }
    return pos;
}

/* Names are interned: the later passes compare pointers. */
static ech_status lex_name(lexer *const l, const size_t end)
{
    uint32_t cp;
    (void)ech_utf8_decode(l->s + l->pos, end - l->pos, &cp);
    if (!ech_ttext_is_word_start(cp)) return lex_fail(l, "invalid character in identifier");
    ech_ttoken tok = { .kind = ECH_TOK_NAME };
    ECH_TRY(ech_tcompile_name(l->c, l->s + l->pos, end - l->pos, &tok.name));
    ECH_TRY(emit(l, tok));
    advance_to(l, end);
    return ECH_OK;
}

static const struct {
    char text[3];
    uint8_t kind;
} operators[] = {
    { "//", ECH_TOK_FLOORDIV }, { "**", ECH_TOK_POW },      { "==", ECH_TOK_EQ },
    { "!=", ECH_TOK_NE },       { ">=", ECH_TOK_GE },       { "<=", ECH_TOK_LE },
    { "+", ECH_TOK_ADD },       { "-", ECH_TOK_SUB },       { "*", ECH_TOK_MUL },
    { "/", ECH_TOK_DIV },       { "%", ECH_TOK_MOD },       { "~", ECH_TOK_TILDE },
    { "[", ECH_TOK_LBRACKET },  { "]", ECH_TOK_RBRACKET },  { "(", ECH_TOK_LPAREN },
    { ")", ECH_TOK_RPAREN },    { "{", ECH_TOK_LBRACE },    { "}", ECH_TOK_RBRACE },
    { ">", ECH_TOK_GT },        { "<", ECH_TOK_LT },        { "=", ECH_TOK_ASSIGN },
    { ".", ECH_TOK_DOT },       { ":", ECH_TOK_COLON },     { "|", ECH_TOK_PIPE },
    { ",", ECH_TOK_COMMA },     { ";", ECH_TOK_SEMICOLON },
};

/*
 * Brackets are matched here because jinja2's lexer does, and because a tag doesn't end inside of
 * them.
 */
static ech_status balance(lexer *const l, const char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == MAX_BRACKETS) {
            return ech_tcompile_fail(l->c, ECH_ELIMIT, l->line, column_of(l, l->pos),
                                     "more than %d brackets inside each other", MAX_BRACKETS);
        }
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_brackets == 0) return lex_fail(l, "unexpected '%c'", c);
        const char want = l->brackets[--l->n_brackets];
        if (want != c) return lex_fail(l, "unexpected '%c', expected '%c'", c, want);
    }
    return ECH_OK;
}

static ech_status lex_operator(lexer *const l)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!at_str(l, l->pos, operators[i].text)) continue;
        ECH_TRY(balance(l, operators[i].text[0]));
        ECH_TRY(emit(l, (ech_ttoken){ .kind = operators[i].kind }));
        advance_to(l, l->pos + strlen(operators[i].text));
        return ECH_OK;
    }
    return lex_fail(l, "unexpected character");
}

/*
 * Tokens up to and including the tag's end; or to the end of the source, which the parser finds. An
 * end of the tag inside brackets is none: {{ {"a": {}} }} has two closing braces in a row.
 */
static ech_status lex_tag(lexer *const l, const char *const end, const ech_ttok end_kind)
{
    while (l->pos < l->len) {
        const size_t n = l->n_brackets == 0 ? tag_end(l, l->pos, end) : 0;
        if (n > 0) {
            ECH_TRY(emit(l, (ech_ttoken){ .kind = (uint8_t)end_kind }));
            advance_to(l, l->pos + n);
            return ECH_OK;
        }
        const size_t space = skip_space(l, l->pos);
        if (space > l->pos) {
            advance_to(l, space);
            continue;
        }
        const char c = l->s[l->pos];
        const size_t word = word_end(l, l->pos);
        if (is_digit(c))
            ECH_TRY(lex_number(l));
        else if (word > l->pos)
            ECH_TRY(lex_name(l, word));
        else if (c == '\'' || c == '"')
            ECH_TRY(lex_string(l));
        else
            ECH_TRY(lex_operator(l));
    }
    return ECH_OK;
}

/* The tag that begins at `at`, with the text before it. */
static ech_status lex_one(lexer *const l, const size_t at)
{
    const char kind = l->s[at + 1];
    const char next = at + 2 < l->len ? l->s[at + 2] : 0;
    const char sign = next == '-' || next == '+' ? next : 0;
    const size_t body = at + 2 + (sign != 0);
    const size_t raw = kind == '%' ? raw_begin(l, body) : 0;
    ECH_TRY(emit_data(l, at, sign, kind != '{'));
    if (raw != 0) {
        advance_to(l, raw);
        return lex_raw(l);
    }
    if (kind == '#') return lex_comment(l, body);
    const bool is_var = kind == '{';
    ECH_TRY(emit(l, (ech_ttoken){ .kind = is_var ? ECH_TOK_VAR_BEGIN : ECH_TOK_BLOCK_BEGIN }));
    advance_to(l, body);
    return lex_tag(l, is_var ? "}}" : "%}", is_var ? ECH_TOK_VAR_END : ECH_TOK_BLOCK_END);
}

/*
 * "\r\n" and "\r" become "\n"; a last one is dropped. The one newline at the very end goes, as
 * without jinja2's keep_trailing_newline.
 */
static ech_status normalise_lines(ech_tcompiler *const c, const char *const source,
                                  const size_t len, char **const ret, size_t *const ret_len)
{
    char *out;
    ECH_TRY(ech_tcompile_alloc(c, len + 1, 1, &out));
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        out[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && out[n - 1] == '\n') n--;
    out[n] = '\0';
    *ret = out;
    *ret_len = n;
    return ECH_OK;
}

/* A brace that begins no tag is text. */
static ech_status lex_all(lexer *const l)
{
    size_t at = 0;
    while (at + 1 < l->len) {
        const char next = l->s[at + 1];
        if (l->s[at] != '{' || (next != '{' && next != '%' && next != '#')) {
            at++;
            continue;
        }
        ECH_TRY(lex_one(l, at));
        at = l->pos;
    }
    if (l->pos < l->len) ECH_TRY(emit_data(l, l->len, '+', false));
    return emit(l, (ech_ttoken){ .kind = ECH_TOK_EOF });
}

ech_status ech_tlex(ech_tcompiler *const c, const char *const source, const size_t len,
                    ech_ttoken **const ret, size_t *const ret_n)
{
    char *s;
    lexer l = { .c = c, .line = 1, .line_starting = true };
    ECH_TRY(ech_tcompile_alloc(c, ECH_TNAME_BUCKETS, sizeof *c->buckets, &c->buckets));
    ECH_TRY(normalise_lines(c, source, len, &s, &l.len));
    l.s = s;
    const ech_status rc = lex_all(&l);
    if (rc != ECH_OK && rc != ECH_EFORMAT) return rc; /* EFORMAT: the last token says what */
    *ret = l.tokens;
    *ret_n = l.n;
    return ECH_OK;
}
