/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code point sets and their spellings. A spelling is a number written in digits of a few bits: two
 * to four bytes of UTF-8 are digits of 3 to 6 bits, \uXXXX are four of 4 bits, a surrogate pair is
 * six of 2 and 4. One recursion writes all of them (spell_digits): a digit whose numbers are all
 * inside the set or all outside needs no further look, and digits with the same continuation
 * become one set of bytes. So \p{L} is a few hundred nodes, not a thousand alternatives.
 */
#include "src/text/constraint_chars.h"

#include <utf8proc.h>

void ech_cset_fini(ech_cset *const s)
{
    free(s->ranges);
    *s = (ech_cset){ 0 };
}

void ech_cset_add(ech_cset *const s, const uint32_t first, const uint32_t last)
{
    if (first > last) return;
    if (!ECH_VEC_GROW(s->ranges, s->cap, s->n, 1)) {
        s->oom = true;
        return;
    }
    s->ranges[s->n++] = (ech_cp_range){ first, last };
}

void ech_cset_add_all(ech_cset *const s, const ech_cset *const other)
{
    for (uint32_t i = 0; i < other->n; i++) {
        ech_cset_add(s, other->ranges[i].first, other->ranges[i].last);
    }
    s->oom |= other->oom;
}

static int compare_ranges(const void *const x, const void *const y)
{
    const ech_cp_range *const a = x, *const b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* After it ranges are sorted, don't touch and don't overlap; has and negate rely on that. */
void ech_cset_tidy(ech_cset *const s)
{
    if (s->n < 2) return;
    qsort(s->ranges, s->n, sizeof *s->ranges, compare_ranges);
    uint32_t w = 0;
    for (uint32_t r = 1; r < s->n; r++) {
        if (s->ranges[r].first <= s->ranges[w].last + 1) {
            if (s->ranges[r].last > s->ranges[w].last) s->ranges[w].last = s->ranges[r].last;
        } else {
            s->ranges[++w] = s->ranges[r];
        }
    }
    s->n = w + 1;
}

/* Surrogates are code points here too; spelling leaves them out. */
void ech_cset_negate(ech_cset *const s)
{
    ech_cset out = { .oom = s->oom };
    uint32_t next = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranges[i].first > next) ech_cset_add(&out, next, s->ranges[i].first - 1);
        next = s->ranges[i].last + 1;
    }
    if (next <= ECH_CP_MAX) ech_cset_add(&out, next, ECH_CP_MAX);
    ech_cset_fini(s);
    *s = out;
}

/* Index of the first range that ends at cp or later. */
static uint32_t range_at(const ech_cset *const s, const uint32_t cp)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (s->ranges[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool ech_cset_has(const ech_cset *const s, const uint32_t cp)
{
    const uint32_t i = range_at(s, cp);
    return i < s->n && s->ranges[i].first <= cp;
}

/* ---- categories ---- */

static const struct {
    const char *names[2];
    const char *letters; /* the two-letter categories it stands for, separated by spaces */
} CATEGORIES[] = {
    { { "L", "Letter" }, "Lu Ll Lt Lm Lo" },
    { { "(LMN)", "(LMN)" }, "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No" }, /* our own: see add_named_set */
    { { "LC", "Cased_Letter" }, "Lu Ll Lt" },
    { { "M", "Mark" }, "Mn Mc Me" },
    { { "N", "Number" }, "Nd Nl No" },
    { { "P", "Punctuation" }, "Pc Pd Ps Pe Pi Pf Po" },
    { { "S", "Symbol" }, "Sm Sc Sk So" },
    { { "Z", "Separator" }, "Zs Zl Zp" },
    { { "C", "Other" }, "Cc Cf Cs Co Cn" },
    { { "Lu", "Uppercase_Letter" }, "Lu" },
    { { "Ll", "Lowercase_Letter" }, "Ll" },
    { { "Lt", "Titlecase_Letter" }, "Lt" },
    { { "Lm", "Modifier_Letter" }, "Lm" },
    { { "Lo", "Other_Letter" }, "Lo" },
    { { "Mn", "Nonspacing_Mark" }, "Mn" },
    { { "Mc", "Spacing_Mark" }, "Mc" },
    { { "Me", "Enclosing_Mark" }, "Me" },
    { { "Nd", "Decimal_Number" }, "Nd" },
    { { "Nl", "Letter_Number" }, "Nl" },
    { { "No", "Other_Number" }, "No" },
    { { "Pc", "Connector_Punctuation" }, "Pc" },
    { { "Pd", "Dash_Punctuation" }, "Pd" },
    { { "Ps", "Open_Punctuation" }, "Ps" },
    { { "Pe", "Close_Punctuation" }, "Pe" },
    { { "Pi", "Initial_Punctuation" }, "Pi" },
    { { "Pf", "Final_Punctuation" }, "Pf" },
    { { "Po", "Other_Punctuation" }, "Po" },
    { { "Sm", "Math_Symbol" }, "Sm" },
    { { "Sc", "Currency_Symbol" }, "Sc" },
    { { "Sk", "Modifier_Symbol" }, "Sk" },
    { { "So", "Other_Symbol" }, "So" },
    { { "Zs", "Space_Separator" }, "Zs" },
    { { "Zl", "Line_Separator" }, "Zl" },
    { { "Zp", "Paragraph_Separator" }, "Zp" },
    { { "Cc", "Control" }, "Cc" },
    { { "Cf", "Format" }, "Cf" },
    { { "Co", "Private_Use" }, "Co" },
    { { "Cn", "Unassigned" }, "Cn" },
};

static const char *category_letters(const char *const name, const size_t len)
{
    for (size_t i = 0; i < sizeof CATEGORIES / sizeof CATEGORIES[0]; i++) {
        for (int k = 0; k < 2; k++) {
            const char *const c = CATEGORIES[i].names[k];
            if (strlen(c) == len && memcmp(c, name, len) == 0) return CATEGORIES[i].letters;
        }
    }
    return NULL;
}

/* The categories that letters names, a bit each. */
static uint32_t category_bits(const char *const letters)
{
    uint32_t bits = 0;
    for (const char *p = letters; *p != 0; p += p[2] == ' ' ? 3 : 2) {
        /* utf8proc knows categories by number; some code point has each of them. */
        static const struct {
            char name[3];
            uint8_t number;
        } NUMBERS[] = {
            { "Cn", UTF8PROC_CATEGORY_CN }, { "Lu", UTF8PROC_CATEGORY_LU },
            { "Ll", UTF8PROC_CATEGORY_LL }, { "Lt", UTF8PROC_CATEGORY_LT },
            { "Lm", UTF8PROC_CATEGORY_LM }, { "Lo", UTF8PROC_CATEGORY_LO },
            { "Mn", UTF8PROC_CATEGORY_MN }, { "Mc", UTF8PROC_CATEGORY_MC },
            { "Me", UTF8PROC_CATEGORY_ME }, { "Nd", UTF8PROC_CATEGORY_ND },
            { "Nl", UTF8PROC_CATEGORY_NL }, { "No", UTF8PROC_CATEGORY_NO },
            { "Pc", UTF8PROC_CATEGORY_PC }, { "Pd", UTF8PROC_CATEGORY_PD },
            { "Ps", UTF8PROC_CATEGORY_PS }, { "Pe", UTF8PROC_CATEGORY_PE },
            { "Pi", UTF8PROC_CATEGORY_PI }, { "Pf", UTF8PROC_CATEGORY_PF },
            { "Po", UTF8PROC_CATEGORY_PO }, { "Sm", UTF8PROC_CATEGORY_SM },
            { "Sc", UTF8PROC_CATEGORY_SC }, { "Sk", UTF8PROC_CATEGORY_SK },
            { "So", UTF8PROC_CATEGORY_SO }, { "Zs", UTF8PROC_CATEGORY_ZS },
            { "Zl", UTF8PROC_CATEGORY_ZL }, { "Zp", UTF8PROC_CATEGORY_ZP },
            { "Cc", UTF8PROC_CATEGORY_CC }, { "Cf", UTF8PROC_CATEGORY_CF },
            { "Cs", UTF8PROC_CATEGORY_CS }, { "Co", UTF8PROC_CATEGORY_CO },
        };
        for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
            if (memcmp(NUMBERS[i].name, p, 2) == 0) bits |= UINT32_C(1) << NUMBERS[i].number;
        }
    }
    return bits;
}

_Static_assert(sizeof CATEGORIES / sizeof CATEGORIES[0] <=
                   sizeof((ech_categories *)0)->made / sizeof((ech_categories *)0)->made[0],
               "every category has a place");

static void walk_category(ech_cset *const s, const uint32_t bits)
{
    uint32_t first = 0;
    bool inside = false;
    for (uint32_t cp = 0; cp <= ECH_CP_MAX + 1; cp++) {
        const bool is_in =
            cp <= ECH_CP_MAX && ((bits >> utf8proc_category((utf8proc_int32_t)cp)) & 1) != 0;
        if (is_in && !inside) first = cp;
        if (!is_in && inside) ech_cset_add(s, first, cp - 1);
        inside = is_in;
        /* Planes 4 to 13 have no characters: as the first one, so all. */
        if (cp == 0x40000) cp = 0xDFFFF;
    }
}

bool ech_cset_add_category(ech_cset *const s, ech_categories *const known, const char *const name,
                           const size_t len)
{
    const char *const letters = category_letters(name, len);
    if (letters == NULL) return false;
    const uint32_t bits = category_bits(letters);
    uint32_t i = 0;
    while (i < known->n && known->made[i].bits != bits)
        i++;
    if (i == known->n) {
        known->made[known->n++].bits = bits;
        walk_category(&known->made[i].set, bits);
    }
    s->oom |= known->made[i].set.oom;
    ech_cset_add_all(s, &known->made[i].set);
    return true;
}

void ech_categories_fini(ech_categories *const c)
{
    for (uint32_t i = 0; i < c->n; i++)
        ech_cset_fini(&c->made[i].set);
    c->n = 0;
}

/* ---- spellings ---- */

typedef struct digit {
    uint8_t bits;
    bool is_hex; /* a hexadecimal digit, either case; else a byte */
    uint8_t add; /* added to the digit: the byte's upper bits, or where hexadecimal digits start */
    const char *before; /* bytes that come first; 'd' stands for either case */
} digit;

#define MAX_DIGITS 6

typedef struct number_form {
    const digit *digits;
    int n_digits;
    uint32_t minus;       /* what is subtracted from the code point first */
    uint32_t first, last; /* the code points that are written this way */
} number_form;

static const digit UTF8_2[] = { { 5, false, 0xC0, "" }, { 6, false, 0x80, "" } };
static const digit UTF8_3[] = {
    { 4, false, 0xE0, "" },
    { 6, false, 0x80, "" },
    { 6, false, 0x80, "" },
};
static const digit UTF8_4[] = {
    { 3, false, 0xF0, "" },
    { 6, false, 0x80, "" },
    { 6, false, 0x80, "" },
    { 6, false, 0x80, "" },
};
static const digit HEX_4[] = {
    { 4, true, 0, "" },
    { 4, true, 0, "" },
    { 4, true, 0, "" },
    { 4, true, 0, "" },
};
static const digit HEX_PAIR[MAX_DIGITS] = {
    { 2, true, 8, "d" },     { 4, true, 0, "" }, { 4, true, 0, "" },
    { 2, true, 12, "\\ud" }, { 4, true, 0, "" }, { 4, true, 0, "" },
};

static void add_hex(ech_byteset *const set, const unsigned value)
{
    if (value < 10) {
        ech_byteset_add(set, '0' + value, '0' + value);
    } else {
        ech_byteset_add(set, 'a' + value - 10, 'a' + value - 10);
        ech_byteset_add(set, 'A' + value - 10, 'A' + value - 10);
    }
}

/* A byte's digit goes below its fixed upper bits. */
static void add_digit(ech_byteset *const set, const digit *const d, const unsigned value)
{
    if (d->is_hex)
        add_hex(set, value + d->add);
    else
        ech_byteset_add(set, value | d->add, value | d->add);
}

/* The `\ud` between the halves of a surrogate pair, with D in either case. */
static ech_cx before_digit(ech_cx_graph *const g, const digit *const d)
{
    ech_cx out = ECH_CX_EMPTY;
    for (const char *p = d->before; *p != 0; p++) {
        ech_byteset set = { { 0 } };
        if (*p == 'd')
            add_hex(&set, 13);
        else
            ech_byteset_add(&set, (uint8_t)*p, (uint8_t)*p);
        out = ech_cx_seq2(g, out, ech_cx_set(g, &set));
    }
    return out;
}

/*
 * How much of [first, last] a set covers: 0 nothing, 2 all, 1 some. s is tidy, so the range at
 * first is the only one that can cover all.
 */
static int covers(const ech_cset *const s, const uint32_t first, const uint32_t last)
{
    const uint32_t i = range_at(s, first);
    if (i == s->n || s->ranges[i].first > last) return 0;
    return s->ranges[i].first <= first && s->ranges[i].last >= last ? 2 : 1;
}

/*
 * Digits k and later of the numbers of s in [base, base + 2^(bits of those digits)). whole: all of
 * them. s is in numbers, not in code points.
 */
static ech_cx spell_digits(ech_cx_graph *const g, const ech_cset *const s,
                           const number_form *const sp, const int k, const uint32_t base,
                           const bool whole)
{
    if (k == sp->n_digits) return ECH_CX_EMPTY;
    unsigned below = 0;
    for (int i = k + 1; i < sp->n_digits; i++)
        below += sp->digits[i].bits;
    const digit *const d = &sp->digits[k];
    ech_cx rests[64];
    ech_byteset sets[64];
    unsigned n = 0;
    for (unsigned v = 0; v < 1u << d->bits; v++) {
        const uint32_t first = base + (v << below);
        const int part = whole ? 2 : covers(s, first, first + (1u << below) - 1);
        if (part == 0) continue;
        const ech_cx rest = spell_digits(g, s, sp, k + 1, first, part == 2);
        unsigned i = 0;
        while (i < n && rests[i] != rest)
            i++;
        if (i == n) {
            rests[n] = rest;
            memset(&sets[n++], 0, sizeof sets[0]);
        }
        add_digit(&sets[i], d, v);
        /* A whole span's digits all continue alike: one look at the first is enough. */
        for (; whole && v + 1 < 1u << d->bits; v++)
            add_digit(&sets[i], d, v + 1);
    }
    ech_cx alts[64];
    for (unsigned i = 0; i < n; i++)
        alts[i] = ech_cx_seq2(g, ech_cx_set(g, &sets[i]), rests[i]);
    return ech_cx_seq2(g, before_digit(g, d), ech_cx_alt(g, alts, n));
}

/* Cut to the form's code points and shifted to its numbers. */
static ech_cx spell(ech_cx_graph *const g, const ech_cset *const s, const number_form *const sp)
{
    ech_cset numbers = { 0 };
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t first = s->ranges[i].first > sp->first ? s->ranges[i].first : sp->first;
        const uint32_t last = s->ranges[i].last < sp->last ? s->ranges[i].last : sp->last;
        if (first <= last) ech_cset_add(&numbers, first - sp->minus, last - sp->minus);
    }
    if (numbers.oom) g->rc = ECH_ENOMEM;
    const ech_cx out = numbers.n == 0 ? ECH_CX_FAIL : spell_digits(g, &numbers, sp, 0, 0, false);
    ech_cset_fini(&numbers);
    return out;
}

static const number_form SPELL_UTF8[] = {
    { UTF8_2, 2, 0, 0x80, 0x7FF },
    { UTF8_3, 3, 0, 0x800, 0xD7FF },
    { UTF8_3, 3, 0, 0xE000, 0xFFFF },
    { UTF8_4, 4, 0, 0x10000, ECH_CP_MAX },
};

/*
 * ASCII is one set of bytes; each longer length is a form of its own. Overlong forms and surrogates
 * are in none of them.
 */
static ech_cx spell_utf8(ech_cx_graph *const g, const ech_cset *const s)
{
    ech_byteset ascii = { { 0 } };
    for (uint32_t i = 0; i < s->n && s->ranges[i].first < 0x80; i++) {
        ech_byteset_add(&ascii, s->ranges[i].first,
                        s->ranges[i].last < 0x80 ? s->ranges[i].last : 0x7F);
    }
    ech_cx alts[5] = { ech_cx_set(g, &ascii) };
    for (int i = 0; i < 4; i++)
        alts[i + 1] = spell(g, s, &SPELL_UTF8[i]);
    return ech_cx_alt(g, alts, 5);
}

/* What may stand for itself in a JSON string: no control characters, quote or backslash. */
ech_cx ech_cx_json_plain(ech_cx_graph *const g, const ech_cset *const s)
{
    static const ech_cp_range ALLOWED[] = { { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, ECH_CP_MAX } };
    ech_cset plain = { 0 };
    for (size_t a = 0; a < sizeof ALLOWED / sizeof ALLOWED[0]; a++) {
        for (uint32_t i = range_at(s, ALLOWED[a].first); i < s->n; i++) {
            const ech_cp_range r = s->ranges[i];
            if (r.first > ALLOWED[a].last) break;
            ech_cset_add(&plain, r.first > ALLOWED[a].first ? r.first : ALLOWED[a].first,
                         r.last < ALLOWED[a].last ? r.last : ALLOWED[a].last);
        }
    }
    if (plain.oom) g->rc = ECH_ENOMEM;
    const ech_cx out = spell_utf8(g, &plain);
    ech_cset_fini(&plain);
    return out;
}

/* Every way JSON has to write the character: short, \uXXXX in either case, a pair beyond U+FFFF. */
ech_cx ech_cx_json_escape(ech_cx_graph *const g, const ech_cset *const s)
{
    static const char SHORT[][2] = {
        { '"', '"' },  { '\\', '\\' }, { '/', '/' },  { '\b', 'b' },
        { '\f', 'f' }, { '\n', 'n' },  { '\r', 'r' }, { '\t', 't' },
    };
    static const number_form BMP[] = { { HEX_4, 4, 0, 0, 0xD7FF },
                                       { HEX_4, 4, 0, 0xE000, 0xFFFF } };
    static const number_form PAIR = { HEX_PAIR, 6, 0x10000, 0x10000, ECH_CP_MAX };
    ech_byteset letters = { { 0 } };
    for (size_t i = 0; i < sizeof SHORT / sizeof SHORT[0]; i++) {
        if (ech_cset_has(s, (uint8_t)SHORT[i][0])) {
            ech_byteset_add(&letters, (uint8_t)SHORT[i][1], (uint8_t)SHORT[i][1]);
        }
    }
    const ech_cx hex[3] = { spell(g, s, &BMP[0]), spell(g, s, &BMP[1]), spell(g, s, &PAIR) };
    const ech_cx u = ech_cx_seq2(g, ech_cx_range(g, 'u', 'u'), ech_cx_alt(g, hex, 3));
    return ech_cx_seq2(g, ech_cx_range(g, '\\', '\\'), ech_cx_alt2(g, ech_cx_set(g, &letters), u));
}

ech_cx ech_cx_chars(ech_cx_graph *const g, const ech_cset *const s, const ech_spelling spelling)
{
    if (s->oom && g->rc == ECH_OK) g->rc = ECH_ENOMEM;
    if (s->n == 0 || g->rc != ECH_OK) return ECH_CX_FAIL;
    if (spelling == ECH_SPELL_RAW) return spell_utf8(g, s);
    return ech_cx_alt2(g, ech_cx_json_plain(g, s), ech_cx_json_escape(g, s));
}

ech_cx ech_cx_any_char(ech_cx_graph *const g, const ech_spelling spelling)
{
    ech_cp_range all = { 0, ECH_CP_MAX };
    const ech_cset s = { &all, 1, 1, false };
    return ech_cx_chars(g, &s, spelling);
}
