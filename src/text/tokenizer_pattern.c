/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Oniguruma (Ruby syntax) to PCRE2. One pass, recursive over groups and classes, depth-limited.
 *
 * What differs between the two, and is rewritten:
 * - properties and shorthands: PCRE2's Unicode may be older; \s, \w, \h, [:punct:] mean other sets
 * - classes: Oniguruma nests them and has &&; a nested negation becomes an alternative, an
 *   intersection a look-ahead, both of one character
 * - x{n,m}+ is a repeat of a repeat there and possessive here; {,n} means {0,n}
 * - (?i) inside a group holds to its end, alternatives included; (?m) is PCRE2's (?s)
 *
 * Literals are written as \x{…}, so that no character of the input can mean something else.
 *
 * Invariant: in->at moves forward only (but for the single steps back in classes), so time is
 * linear in the pattern up to the copies that wrap() and intersections make. The depth limit holds
 * for groups and classes together. What is not understood is refused with its place; nothing is
 * passed through unread, since a construct that both engines know but read differently would change
 * ids silently.
 *
 * Runs when a tokenizer is opened, on that thread; patterns come from the model's file and are
 * untrusted. Left out: matching (tokenizer_regex.c), captures and back references.
 */
#include <stdio.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_regex.h"
#include "src/text/unicode.h"

#define MAX_DEPTH 64

typedef struct source {
    const char *s;
    size_t len, at;
    int depth;
    ech_buf *out;
    ech_error *err;
} source;

/* A class under construction: what a PCRE2 class can hold, and what it can't. */
typedef struct charset {
    ech_buf items;        /* the inside of [ … ] */
    ech_buf alternatives; /* "|x|y": expressions of one character */
    bool in_class;        /* it stands in [ … ], not by itself */
} charset;

/* Unicode's White_Space, and all but it. */
#define SPACES                                                                                     \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NON_SPACES                                                                                 \
    "\\x00-\\x08\\x0E-\\x1F!-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"           \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{"   \
    "10FFFF}"

static ech_status put(source *const in, ech_buf *const b, const char *const text)
{
    return ech_buf_puts(b, text) == ECH_OK
               ? ECH_OK
               : ech_fail(in->err, ECH_ENOMEM, "reading a pattern: out of memory");
}

static ech_status put_str(source *const in, ech_buf *const b, const ech_str text)
{
    if (ech_buf_append(b, text.ptr, text.len) == ECH_OK) return ECH_OK;
    return ech_fail(in->err, ECH_ENOMEM, "reading a pattern: out of memory");
}

static ech_status put_char(source *const in, ech_buf *const b, const uint32_t cp)
{
    char text[16];
    (void)snprintf(text, sizeof text, "\\x{%X}", (unsigned)cp);
    return put(in, b, text);
}

/*
 * Byte offsets into the pattern; it is shown cut to 80 bytes, since files hold patterns of several
 * thousand.
 */
static ech_status fail(const source *const in, const ech_status code, const char *const why)
{
    return ech_fail_at(in->err, code, 0, 0, (int64_t)in->at,
                       "reading the pattern %.*s: %s at byte %zu",
                       (int)(in->len > 80 ? 80 : in->len), in->s, why, in->at);
}

static bool more(const source *const in)
{
    return in->at < in->len;
}

static bool looking_at(const source *const in, const char *const what)
{
    const size_t n = strlen(what);
    return in->len - in->at >= n && memcmp(in->s + in->at, what, n) == 0;
}

static bool skip(source *const in, const char *const what)
{
    if (!looking_at(in, what)) return false;
    in->at += strlen(what);
    return true;
}

/*
 * The next character of the pattern, which is UTF-8. The pattern was checked to be UTF-8 as a
 * whole, so the fallback of one byte never happens.
 */
static uint32_t next_char(source *const in)
{
    uint32_t cp = 0xFFFD;
    const int n = ech_utf8_decode(in->s + in->at, in->len - in->at, &cp);
    in->at += n > 0 ? (size_t)n : 1;
    return cp;
}

static ech_status put_range(source *const in, ech_buf *const b, const uint32_t first,
                            const uint32_t last)
{
    ECH_TRY(put_char(in, b, first));
    if (first == last) return ECH_OK;
    ECH_TRY(put(in, b, "-"));
    return put_char(in, b, last);
}

/* Adds what a property gained after Unicode 14: rows of its name, or of its categories (L: Lu, Ll
 * …). */
static ech_status put_fresh(source *const in, ech_buf *const b, const char *const name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < ech_unicode_fresh_n; i++) {
        const ech_fresh_row *const row = &ech_unicode_fresh[i];
        const bool hit =
            n == 1 ? row->name[0] == name[0] && row->name[2] == '\0' : strcmp(row->name, name) == 0;
        if (hit) ECH_TRY(put_range(in, b, row->first, row->last));
    }
    return ECH_OK;
}

/*
 * Names of more than two letters are scripts here; \p{sc:…} keeps PCRE2 from reading them as script
 * extensions, which are larger sets.
 */
static ech_status put_property(source *const in, ech_buf *const b, const char *const name)
{
    char text[48];
    (void)snprintf(text, sizeof text, strlen(name) > 2 ? "\\p{sc:%s}" : "\\p{%s}", name);
    ECH_TRY(put(in, b, text));
    return put_fresh(in, b, name);
}

/*
 * names is a row of categories without separators ("LMNdNlPc"): an upper-case letter and perhaps a
 * lower-case one.
 */
static ech_status put_properties(source *const in, ech_buf *const b, const char *const names)
{
    char name[3] = "";
    for (const char *p = names; *p != '\0'; p++) {
        const size_t n = p[1] >= 'a' && p[1] <= 'z' ? 2 : 1;
        memcpy(name, p, n);
        name[n] = '\0';
        ECH_TRY(put_property(in, b, name));
        p += n - 1;
    }
    return ECH_OK;
}

/*
 * \w. Oniguruma has two ideas of it: within a class, the superscripts and fractions of Latin-1
 * (U+00B2, U+00BD, …) are no word characters; by itself it takes them.
 */
static ech_status put_word(source *const in, ech_buf *const b, const bool in_class)
{
    ECH_TRY(put_properties(in, b, "LMNdNlPc"));
    for (size_t i = 0; i < ech_unicode_word_n; i++) {
        if (in_class && ech_unicode_word[i].last < 0x100) continue;
        ECH_TRY(put_range(in, b, ech_unicode_word[i].first, ech_unicode_word[i].last));
    }
    return ECH_OK;
}

typedef struct named_set {
    const char *name;  /* lower case, without spaces, '_' and '-' */
    const char *gc;    /* general categories, "" for none */
    const char *items; /* more of a class' inside */
} named_set;

static const named_set NAMED_SETS[] = {
    { "letter", "L", "" },
    { "mark", "M", "" },
    { "number", "N", "" },
    { "punctuation", "P", "" },
    { "symbol", "S", "" },
    { "separator", "Z", "" },
    { "uppercaseletter", "Lu", "" },
    { "lowercaseletter", "Ll", "" },
    { "titlecaseletter", "Lt", "" },
    { "modifierletter", "Lm", "" },
    { "otherletter", "Lo", "" },
    { "nonspacingmark", "Mn", "" },
    { "spacingmark", "Mc", "" },
    { "enclosingmark", "Me", "" },
    { "decimalnumber", "Nd", "" },
    { "letternumber", "Nl", "" },
    { "othernumber", "No", "" },
    { "connectorpunctuation", "Pc", "" },
    { "dashpunctuation", "Pd", "" },
    { "openpunctuation", "Ps", "" },
    { "closepunctuation", "Pe", "" },
    { "initialpunctuation", "Pi", "" },
    { "finalpunctuation", "Pf", "" },
    { "otherpunctuation", "Po", "" },
    { "mathsymbol", "Sm", "" },
    { "currencysymbol", "Sc", "" },
    { "modifiersymbol", "Sk", "" },
    { "othersymbol", "So", "" },
    { "spaceseparator", "Zs", "" },
    { "lineseparator", "Zl", "" },
    { "paragraphseparator", "Zp", "" },
    { "control", "Cc", "" },
    { "format", "Cf", "" },
    { "privateuse", "Co", "" },
    { "digit", "Nd", "" },
    { "punct", "P", "" },
    { "punctorsymbol", "PS", "" },
    { "cntrl", "Cc", "" },
    { "space", "", SPACES },
    { "blank", "Zs", "\\t" },
    { "xdigit", "", "0-9A-Fa-f" },
    { "ascii", "", "\\x00-\\x7F" },
};

static const char *const SCRIPTS[] = {
    "Han",        "Hiragana",  "Katakana", "Hangul",   "Bopomofo", "Latin",   "Greek",
    "Cyrillic",   "Armenian",  "Georgian", "Hebrew",   "Arabic",   "Syriac",  "Thaana",
    "Devanagari", "Bengali",   "Gurmukhi", "Gujarati", "Oriya",    "Tamil",   "Telugu",
    "Kannada",    "Malayalam", "Sinhala",  "Thai",     "Lao",      "Tibetan", "Myanmar",
    "Khmer",      "Mongolian", "Ethiopic",
};

/* A blank behind each, so that a search for "L " doesn't find "Lu ". */
static const char CATEGORIES[] = "L M N P S Z Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf "
                                 "Po Sm Sc Sk So Zs Zl Zp Cc Cf Co ";

/* Property names are compared without case, spaces, '_' and '-'. */
static void fold_name(const ech_str name, char out[32])
{
    size_t n = 0;
    memset(out, 0, 32);
    for (size_t i = 0; i < name.len && n < 31; i++) {
        const char c = name.ptr[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        out[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    out[n] = '\0';
}

static ech_status put_named_set(source *const in, ech_buf *const b, const named_set *const set)
{
    ECH_TRY(put_properties(in, b, set->gc));
    return put(in, b, set->items);
}

/*
 * The inside of a class with the members of \p{name}. Tried in order: a category by its short name,
 * \w, the long names and POSIX classes, the scripts that tokenizers use. folded holds 31
 * characters; longer names can't be any of these.
 */
static ech_status put_set_named(source *const in, ech_buf *const b, const ech_str name,
                                const bool in_class)
{
    char folded[32];
    fold_name(name, folded);
    if (strlen(folded) == 1 || strlen(folded) == 2) {
        const char second = folded[1] != '\0' ? folded[1] : ' ';
        char cat[4] = { (char)(folded[0] - 32), second, second != ' ' ? ' ' : '\0', '\0' };
        if (strstr(CATEGORIES, cat) != NULL) {
            cat[strcspn(cat, " ")] = '\0';
            return put_property(in, b, cat);
        }
    }
    if (strcmp(folded, "word") == 0) return put_word(in, b, in_class);
    for (size_t i = 0; i < sizeof NAMED_SETS / sizeof NAMED_SETS[0]; i++) {
        if (strcmp(folded, NAMED_SETS[i].name) == 0) return put_named_set(in, b, &NAMED_SETS[i]);
    }
    for (size_t i = 0; i < sizeof SCRIPTS / sizeof SCRIPTS[0]; i++) {
        char script[32];
        fold_name(ech_str_from(SCRIPTS[i]), script);
        if (strcmp(folded, script) == 0) return put_property(in, b, SCRIPTS[i]);
    }
    return ech_fail(in->err, ECH_EUNSUPPORTED,
                    "reading a pattern: the character property %.*s is not supported",
                    (int)(name.len > 40 ? 40 : name.len), name.ptr);
}

/*
 * Adds a set that is named by a shorthand or property to a class; negated sets become an
 * alternative, since PCRE2's classes can't hold them.
 */
static ech_status charset_add(source *const in, charset *const set, const ech_str name,
                              const bool negated)
{
    if (!negated) return put_set_named(in, &set->items, name, set->in_class);
    if (name.len == 5 && memcmp(name.ptr, "space", 5) == 0) return put(in, &set->items, NON_SPACES);
    ECH_TRY(put(in, &set->alternatives, "|[^"));
    ECH_TRY(put_set_named(in, &set->alternatives, name, set->in_class));
    return put(in, &set->alternatives, "]");
}

/* "{Name}" or "{^Name}" after \p or \P. */
static ech_status read_property(source *const in, ech_str *const ret_name, bool *const negated)
{
    if (!skip(in, "{")) return fail(in, ECH_EFORMAT, "\\p without {…}");
    if (skip(in, "^")) *negated = !*negated;
    const char *const start = in->s + in->at;
    while (more(in) && in->s[in->at] != '}') {
        in->at++;
    }
    *ret_name = (ech_str){ start, (size_t)(in->s + in->at - start) };
    if (!skip(in, "}")) return fail(in, ECH_EFORMAT, "\\p{ without }");
    return ECH_OK;
}

/*
 * The set's name that a backslash and this letter stand for; false when it is no such shorthand. \h
 * is a hexadecimal digit in Oniguruma; in PCRE2 it is horizontal white space.
 */
static ech_status read_shorthand(source *const in, ech_str *const ret_name, bool *const ret_negated,
                                 bool *const ret_is)
{
    *ret_is = true;
    const char c = in->s[in->at];
    *ret_negated = c >= 'A' && c <= 'Z';
    switch (c) {
    case 's':
    case 'S':
        *ret_name = ECH_STR_LIT("space");
        break;
    case 'w':
    case 'W':
        *ret_name = ECH_STR_LIT("word");
        break;
    case 'd':
    case 'D':
        *ret_name = ECH_STR_LIT("digit");
        break;
    case 'h':
    case 'H':
        *ret_name = ECH_STR_LIT("xdigit");
        break;
    case 'p':
    case 'P':
        in->at++;
        return read_property(in, ret_name, ret_negated);
    default:
        *ret_is = false;
        return ECH_OK;
    }
    in->at++;
    return ECH_OK;
}

static int hex_value(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* At most eight digits, so v can't overflow. */
static uint32_t read_hex(source *const in, const int max_digits)
{
    uint32_t v = 0;
    for (int i = 0; i < max_digits && more(in) && hex_value(in->s[in->at]) >= 0; i++) {
        v = v * 16 + (uint32_t)hex_value(in->s[in->at++]);
    }
    return v;
}

/*
 * The character of an escape that stands for one; in->at is behind the backslash. Letters that are
 * no escape here are refused: they may be one in Oniguruma that is not rewritten.
 */
static ech_status read_escaped_char(source *const in, uint32_t *const ret_cp)
{
    if (!more(in)) return fail(in, ECH_EFORMAT, "a backslash at the end");
    const char c = in->s[in->at];
    static const char FROM[] = "ntrfvae", TO[] = "\n\t\r\f\v\a\033";
    const char *const simple = strchr(FROM, c);
    if (simple != NULL && c != '\0') {
        in->at++;
        *ret_cp = (uint32_t)TO[simple - FROM];
        return ECH_OK;
    }
    if (c == 'x' || c == 'u') {
        in->at++;
        if (c == 'x' && skip(in, "{")) {
            *ret_cp = read_hex(in, 8);
            if (!skip(in, "}")) return fail(in, ECH_EFORMAT, "\\x{ without }");
        } else {
            *ret_cp = read_hex(in, c == 'x' ? 2 : 4);
        }
        if (*ret_cp > 0x10FFFF || (*ret_cp >= 0xD800 && *ret_cp < 0xE000))
            return fail(in, ECH_EFORMAT, "no character");
        return ECH_OK;
    }
    if (c == '0') {
        in->at++;
        *ret_cp = 0;
        for (int i = 0; i < 2 && more(in) && in->s[in->at] >= '0' && in->s[in->at] <= '7'; i++) {
            *ret_cp = *ret_cp * 8 + (uint32_t)(in->s[in->at++] - '0');
        }
        return ECH_OK;
    }
    if (c == 'c' && in->at + 1 < in->len && in->s[in->at + 1] != '\\') {
        in->at++;
        const uint32_t control = next_char(in);
        *ret_cp = control == '?' ? 0x7F : control & 0x9F; /* Oniguruma's: \ca is U+0001 */
        return ECH_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return fail(in, ECH_EUNSUPPORTED, "an escape that is not supported");
    }
    *ret_cp = next_char(in);
    return ECH_OK;
}

static ech_status read_class(source *in, ech_buf *out);

/* "[:name:]" or "[:^name:]"; false when it isn't one. */
static ech_status read_posix(source *const in, charset *const set, bool *const ret_is)
{
    *ret_is = false;
    if (!looking_at(in, "[:")) return ECH_OK;
    size_t end = in->at + 2;
    while (end < in->len && (in->s[end] == '^' || (in->s[end] >= 'a' && in->s[end] <= 'z'))) {
        end++;
    }
    if (in->len - end < 2 || memcmp(in->s + end, ":]", 2) != 0) return ECH_OK;
    const bool negated = in->s[in->at + 2] == '^';
    const size_t start = in->at + 2 + (negated ? 1 : 0);
    *ret_is = true;
    in->at = end + 2;
    ech_str name = { in->s + start, end - start };
    /* Its [:punct:] has the symbols as well, its \p{punct} hasn't. */
    if (ech_str_eq(name, ECH_STR_LIT("punct"))) name = ECH_STR_LIT("punct or symbol");
    return charset_add(in, set, name, negated);
}

/* One character of a class, escaped or not. */
static ech_status read_class_char(source *const in, uint32_t *const ret_cp)
{
    if (!skip(in, "\\")) {
        *ret_cp = next_char(in);
        return ECH_OK;
    }
    if (skip(in, "b")) {
        *ret_cp = '\b';
        return ECH_OK;
    }
    return read_escaped_char(in, ret_cp);
}

/*
 * One member: a set, a nested class, a character or a range. A nested class becomes an alternative
 * of its own, since [ … ] of PCRE2 can't hold it.
 */
static ech_status read_class_item(source *const in, charset *const set)
{
    bool is = false;
    ECH_TRY(read_posix(in, set, &is));
    if (is) return ECH_OK;
    if (in->s[in->at] == '[') {
        ECH_TRY(put(in, &set->alternatives, "|"));
        return read_class(in, &set->alternatives);
    }
    if (in->s[in->at] == '\\' && in->at + 1 < in->len) {
        ech_str name = { 0 };
        bool negated;
        in->at++;
        ECH_TRY(read_shorthand(in, &name, &negated, &is));
        if (is) return charset_add(in, set, name, negated);
        in->at--;
    }
    uint32_t first = 0, last = 0;
    ECH_TRY(read_class_char(in, &first));
    last = first;
    if (in->len - in->at >= 2 && in->s[in->at] == '-' && in->s[in->at + 1] != ']') {
        const size_t back = in->at++;
        if (in->s[in->at] == '[' || (in->s[in->at] == '\\' && in->at + 1 < in->len &&
                                     strchr("sSwWdDhHpP", in->s[in->at + 1]))) {
            in->at = back; /* "a-\d": the dash is a character */
        } else {
            ECH_TRY(read_class_char(in, &last));
        }
    }
    if (last < first) return fail(in, ECH_EFORMAT, "a range that runs backwards");
    return put_range(in, &set->items, first, last);
}

/*
 * An expression for one character of the set. alternatives begins with "|". Without items that bar
 * is dropped. A negation with alternatives is a look-ahead that refuses them, then any character,
 * line breaks included.
 */
static ech_status put_charset(source *const in, ech_buf *const out, const charset *const set,
                              const bool negated)
{
    const bool has_items = set->items.len > 0;
    const ech_str alt = ech_buf_view(&set->alternatives);
    if (alt.len == 0) {
        ECH_TRY(put(in, out, negated ? "[^" : "["));
        ECH_TRY(put_str(in, out, ech_buf_view(&set->items)));
        return put(in, out, "]");
    }
    ECH_TRY(put(in, out, negated ? "(?:(?!" : "(?:"));
    if (has_items) {
        ECH_TRY(put(in, out, "["));
        ECH_TRY(put_str(in, out, ech_buf_view(&set->items)));
        ECH_TRY(put(in, out, "]"));
    }
    const ech_str rest = has_items ? alt : (ech_str){ alt.ptr + 1, alt.len - 1 };
    ECH_TRY(put_str(in, out, rest));
    return put(in, out, negated ? ")(?s:.))" : ")");
}

static void charset_fini(charset *const set)
{
    ech_buf_fini(&set->items);
    ech_buf_fini(&set->alternatives);
}

/* Members up to "]" or "&&", written as one expression. */
static ech_status read_class_operand(source *const in, ech_buf *const out, const bool negated)
{
    charset set = { .in_class = true };
    ech_status rc = ECH_OK;
    bool first = true;
    while (rc == ECH_OK && more(in) && (first || in->s[in->at] != ']') && !looking_at(in, "&&")) {
        rc = read_class_item(in, &set);
        first = false;
    }
    if (rc == ECH_OK && !more(in)) rc = fail(in, ECH_EFORMAT, "a class without ]");
    if (rc == ECH_OK && first) rc = fail(in, ECH_EFORMAT, "an empty class");
    if (rc == ECH_OK) rc = put_charset(in, out, &set, negated);
    charset_fini(&set);
    return rc;
}

/*
 * Whether the class that begins here has a && of its own. Looks ahead from behind the bracket. An
 * escaped character is skipped, nested classes by their depth.
 */
static bool has_intersection(const source *const in)
{
    int depth = 0;
    for (size_t i = in->at; i < in->len; i++) {
        const char c = in->s[i];
        if (c == '\\') {
            i++;
        } else if (c == '[') {
            depth++;
        } else if (c == ']' && depth-- == 0) {
            return false;
        } else if (c == '&' && depth == 0 && i + 1 < in->len && in->s[i + 1] == '&') {
            return true;
        }
    }
    return false;
}

/*
 * "[ … ]", in->at at the bracket: an expression of one character. a && b && c: the operands but the
 * last are look-aheads, the last reads the character.
 */
static ech_status read_class(source *const in, ech_buf *const out)
{
    if (++in->depth > MAX_DEPTH) return fail(in, ECH_ELIMIT, "nested too deeply");
    in->at++;
    const bool negated = skip(in, "^");
    if (!has_intersection(in)) {
        ECH_TRY(read_class_operand(in, out, negated));
    } else {
        ECH_TRY(put(in, out, negated ? "(?:(?!" : "(?:"));
        for (;;) {
            ech_buf operand = { 0 };
            ech_status rc = read_class_operand(in, &operand, false);
            const bool last = rc != ECH_OK || !skip(in, "&&");
            if (rc == ECH_OK && !last) rc = put(in, out, "(?=");
            if (rc == ECH_OK) rc = put_str(in, out, ech_buf_view(&operand));
            if (rc == ECH_OK && !last) rc = put(in, out, ")");
            ech_buf_fini(&operand);
            if (rc != ECH_OK) return rc;
            if (last) break;
        }
        ECH_TRY(put(in, out, negated ? ")(?s:.))" : ")"));
    }
    in->depth--;
    if (!skip(in, "]")) return fail(in, ECH_EFORMAT, "a class without ]");
    return ECH_OK;
}

/*
 * \b and \B, with Oniguruma's idea of a word. PCRE2's \b has its own idea of a word, so it is
 * spelled out by look-arounds of one character.
 */
static ech_status put_boundary(source *const in, const bool is_boundary)
{
    ech_buf w = { 0 };
    ech_status rc = put_word(in, &w, false);
    if (rc == ECH_OK) {
        const char *const fmt = is_boundary ? "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"
                                            : "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))";
        rc = ech_buf_printf(in->out, fmt, w.data, w.data, w.data, w.data);
    }
    ech_buf_fini(&w);
    return rc;
}

/* An escape outside of a class. */
static ech_status read_escape(source *const in)
{
    in->at++;
    if (!more(in)) return fail(in, ECH_EFORMAT, "a backslash at the end");
    charset set = { 0 };
    ech_str name = { 0 };
    bool negated, is;
    ECH_TRY(read_shorthand(in, &name, &negated, &is));
    if (is) {
        ech_status rc = charset_add(in, &set, name, false);
        if (rc == ECH_OK) rc = put_charset(in, in->out, &set, negated);
        charset_fini(&set);
        return rc;
    }
    if (skip(in, "b")) return put_boundary(in, true);
    if (skip(in, "B")) return put_boundary(in, false);
    static const char *const SAME[] = { "A", "z", "Z", "G", "R", "K" };
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        if (!skip(in, SAME[i])) continue;
        ECH_TRY(put(in, in->out, "\\"));
        return put(in, in->out, SAME[i]);
    }
    uint32_t cp = 0;
    ECH_TRY(read_escaped_char(in, &cp));
    return put_char(in, in->out, cp);
}

/* Options of "(?i-m:" or "(?i)": i stays i, Ruby's m is s here. */
static ech_status read_options(source *const in, char options[8])
{
    size_t n = 0;
    while (more(in) && in->s[in->at] != ':' && in->s[in->at] != ')') {
        const char c = in->s[in->at];
        if (n == 7 || (c != 'i' && c != 'm' && c != '-'))
            return fail(in, ECH_EUNSUPPORTED, "a group that is not supported");
        options[n++] = c == 'm' ? 's' : c;
        in->at++;
    }
    options[n] = '\0';
    if (!more(in)) return fail(in, ECH_EFORMAT, "a group without )");
    return ECH_OK;
}

static ech_status read_alternatives(source *in);

/* The body of a group up to its ")", both included. */
static ech_status read_group_body(source *const in)
{
    ECH_TRY(read_alternatives(in));
    if (!skip(in, ")")) return fail(in, ECH_EFORMAT, "a group without )");
    return put(in, in->out, ")");
}

/*
 * "( … )" of any kind. *ret_rest: it was "(?i)", so that the rest of the enclosing group is in it.
 * Captures become (?: … ), since nobody reads them.
 */
static ech_status read_group(source *const in, bool *const ret_rest)
{
    *ret_rest = false;
    static const char *const SAME[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        if (!skip(in, SAME[i])) continue;
        ECH_TRY(put(in, in->out, SAME[i]));
        return read_group_body(in);
    }
    if (skip(in, "(?#")) {
        while (more(in) && in->s[in->at] != ')') {
            in->at++;
        }
        return skip(in, ")") ? ECH_OK : fail(in, ECH_EFORMAT, "a comment without )");
    }
    if (skip(in, "(?<")) { /* a name: nothing refers to it, since \k is refused */
        while (more(in) && in->s[in->at] != '>') {
            in->at++;
        }
        if (!skip(in, ">")) return fail(in, ECH_EFORMAT, "a group's name without >");
        ECH_TRY(put(in, in->out, "(?:"));
        return read_group_body(in);
    }
    if (skip(in, "(?")) {
        char options[8];
        ECH_TRY(read_options(in, options));
        ECH_TRY(put(in, in->out, "(?"));
        ECH_TRY(put(in, in->out, options));
        ECH_TRY(put(in, in->out, ":"));
        if (skip(in, ":")) return read_group_body(in);
        in->at++;
        *ret_rest = true;
        ECH_TRY(read_alternatives(in));
        return put(in, in->out, ")");
    }
    in->at++;
    ECH_TRY(put(in, in->out, "(?:"));
    return read_group_body(in);
}

/*
 * "{n}", "{n,}", "{,m}" or "{n,m}": its bounds as PCRE2 writes them; false: an ordinary brace. A
 * bound has at most six digits; what is too large for PCRE2 (65535) it refuses when it compiles.
 */
static bool read_interval(source *const in, char out[32])
{
    size_t at = in->at + 1;
    unsigned long bound[2] = { 0, 0 };
    bool has[2] = { false, false }, comma = false;
    for (; at < in->len && in->s[at] != '}'; at++) {
        const char c = in->s[at];
        if (c == ',' && !comma) {
            comma = true;
        } else if (c >= '0' && c <= '9' && bound[comma] < 100000) {
            bound[comma] = bound[comma] * 10 + (unsigned long)(c - '0');
            has[comma] = true;
        } else {
            return false;
        }
    }
    if (at >= in->len || (!has[0] && !has[1])) return false;
    if (!comma) {
        (void)snprintf(out, 32, "{%lu}", bound[0]);
    } else if (!has[1]) {
        (void)snprintf(out, 32, "{%lu,}", bound[0]);
    } else {
        (void)snprintf(out, 32, "{%lu,%lu}", bound[0], bound[1]);
    }
    in->at = at + 1;
    return true;
}

/* Puts a group around what was written since start, so that it can be repeated once more. */
static ech_status wrap(source *const in, const size_t start)
{
    ech_buf atom = { 0 };
    ECH_TRY(put_str(in, &atom, (ech_str){ in->out->data + start, in->out->len - start }));
    in->out->len = start;
    ech_status rc = put(in, in->out, "(?:");
    if (rc == ECH_OK) rc = put_str(in, in->out, ech_buf_view(&atom));
    if (rc == ECH_OK) rc = put(in, in->out, ")");
    ech_buf_fini(&atom);
    return rc;
}

/*
 * The repeats behind an atom that was written from start on. A second repeat wraps the first: a{2}+
 * is (?:a{2})+ in Ruby's syntax. The limit on n bounds what wrapping copies. A {n} with nothing
 * else is not made lazy by a "?": there it is another repeat.
 */
static ech_status read_repeats(source *const in, const size_t start)
{
    for (int n = 0; more(in); n++) {
        const char c = in->s[in->at];
        char text[32] = "";
        bool is_interval = false;
        if (c == '{') {
            if (!read_interval(in, text)) return ECH_OK;
            is_interval = true;
        } else if (c == '*' || c == '+' || c == '?') {
            text[0] = c;
            in->at++;
        } else {
            return ECH_OK;
        }
        if (n > 16) return fail(in, ECH_ELIMIT, "too many repeats of one thing");
        if (n > 0) ECH_TRY(wrap(in, start));
        ECH_TRY(put(in, in->out, text));
        const bool is_exact = is_interval && strchr(text, ',') == NULL;
        if (!is_exact && skip(in, "?")) {
            ECH_TRY(put(in, in->out, "?"));
        } else if (!is_interval && skip(in, "+")) {
            ECH_TRY(put(in, in->out, "+"));
        }
    }
    return ECH_OK;
}

/* One atom and its repeats. *ret_rest as in read_group. */
static ech_status read_atom(source *const in, bool *const ret_rest)
{
    const size_t start = in->out->len;
    *ret_rest = false;
    switch (in->s[in->at]) {
    case '(':
        ECH_TRY(read_group(in, ret_rest));
        break;
    case '[':
        ECH_TRY(read_class(in, in->out));
        break;
    case '\\':
        ECH_TRY(read_escape(in));
        break;
    case '.':
        in->at++;
        ECH_TRY(put(in, in->out, "."));
        break;
    case '^':
        in->at++;
        return put(in, in->out, "^");
    case '$':
        in->at++;
        return put(in, in->out, "$");
    case '*':
    case '+':
    case '?':
        return fail(in, ECH_EFORMAT, "a repeat of nothing");
    default:
        ECH_TRY(put_char(in, in->out, next_char(in)));
        break;
    }
    return *ret_rest ? ECH_OK : read_repeats(in, start);
}

/* Alternatives up to ")" or the end. */
static ech_status read_alternatives(source *const in)
{
    if (++in->depth > MAX_DEPTH) return fail(in, ECH_ELIMIT, "nested too deeply");
    while (more(in) && in->s[in->at] != ')') {
        if (skip(in, "|")) {
            ECH_TRY(put(in, in->out, "|"));
            continue;
        }
        bool rest = false;
        ECH_TRY(read_atom(in, &rest));
        if (rest) break;
    }
    in->depth--;
    return ECH_OK;
}

ech_status ech_regex_translate(const ech_str pattern, ech_buf *const out, ech_error *const err)
{
    if (!ech_utf8_valid(pattern.ptr, pattern.len, NULL)) {
        return ech_fail(err, ECH_EFORMAT, "reading a pattern: it is not UTF-8");
    }
    source in = { .s = pattern.ptr, .len = pattern.len, .out = out, .err = err };
    ECH_TRY(ech_buf_reserve(out, 64));
    ECH_TRY(read_alternatives(&in));
    if (more(&in)) return fail(&in, ECH_EFORMAT, "a ) without (");
    return ECH_OK;
}
