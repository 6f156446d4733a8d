/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Character properties on top of utf8proc, with Python's exceptions (template_ranges.c). Where
 * Unicode versions differ, utf8proc's is used, not that of any one Python.
 *
 * Each function answers for one code point and asks nothing of its surroundings; what depends on
 * the word (the final sigma, titles) is the caller's. ASCII is answered first where it is common.
 * No state: any thread.
 */
#include "src/text/template_text.h"

#include <utf8proc.h>

#include "src/base/utf8.h"

/*
 * Python's isspace() has the four separators of ASCII, 0x1c to 0x1f, which Unicode's White_Space
 * has not; U+200B and U+FEFF are none in either.
 */
bool ech_ttext_is_space(const uint32_t cp)
{
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* The length of the white space character at the front; 0 for none. */
size_t ech_ttext_space(const char *const s, const size_t len)
{
    uint32_t cp;
    if (len == 0) return 0;
    if ((uint8_t)s[0] < 0x80) return ech_ttext_is_space((uint8_t)s[0]);
    const int n = ech_utf8_decode(s, len, &cp);
    return n > 0 && ech_ttext_is_space(cp) ? (size_t)n : 0;
}

/* Back to each character's first byte, as what continues it tells nothing of its kind. */
size_t ech_ttext_rstrip(const char *const s, size_t len)
{
    while (len > 0) {
        size_t at = len - 1;
        while (at > 0 && ((uint8_t)s[at] & 0xc0) == 0x80) {
            at--;
        }
        if (ech_ttext_space(s + at, len - at) == 0) break;
        len = at;
    }
    return len;
}

static bool is_in(const ech_ttext_range *const ranges, const size_t n, const uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (ranges[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && ranges[lo].first <= cp;
}

static utf8proc_category_t category(const uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

/*
 * Python's \w, by which `title` and `wordcount` part words: letters, marks, numbers and
 * connectors. U+00B7 is no letter but continues an identifier.
 */
bool ech_ttext_is_word(const uint32_t cp)
{
    if (cp < 0x80) {
        const uint32_t lower = cp | 32;
        return (lower >= 'a' && lower <= 'z') || (cp >= '0' && cp <= '9') || cp == '_';
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return cp == 0xb7;
    }
}

bool ech_ttext_is_alpha(const uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return true;
    default:
        return false;
    }
}

bool ech_ttext_is_word_start(const uint32_t cp)
{
    return cp == '_' || ech_ttext_is_alpha(cp) || category(cp) == UTF8PROC_CATEGORY_NL;
}

/*
 * repr() escapes what this refuses: controls, format characters, what isn't assigned, and every
 * space but the plain one, so that a text's repr shows them.
 */
bool ech_ttext_is_printable(const uint32_t cp)
{
    if (cp < 0x7f) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool ech_ttext_is_decimal(const uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

/* str.isdigit(): decimals, and figures like superscripts that have a digit's value. */
bool ech_ttext_is_digit(const uint32_t cp)
{
    return ech_ttext_is_decimal(cp) || is_in(ech_ttext_digits, ech_ttext_n_digits, cp);
}

/* str.isnumeric(): fractions and Roman numerals too, and the ideographs that are numbers. */
bool ech_ttext_is_numeric(const uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
           is_in(ech_ttext_numerals, ech_ttext_n_numerals, cp);
}

/* Other_Uppercase beside the letters: circled ones, Roman numerals. */
bool ech_ttext_is_upper(const uint32_t cp)
{
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU ||
           is_in(ech_ttext_other_upper, ech_ttext_n_other_upper, cp);
}

bool ech_ttext_is_lower(const uint32_t cp)
{
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    return category(cp) == UTF8PROC_CATEGORY_LL ||
           is_in(ech_ttext_other_lower, ech_ttext_n_other_lower, cp);
}

/* The few digraphs with one capital part, and Greek with iota adscript. */
bool ech_ttext_is_title(const uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

/*
 * Case_Ignorable as the rule of the final sigma needs it. The characters after `default` are of
 * the categories Po and Pf, of which few belong.
 */
bool ech_ttext_is_case_ignorable(const uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xb7 || cp == 0x2019;
    }
}

/* A hundred rows, looked up for every character beyond ASCII that changes its case. */
static const ech_ttext_special *find_special(const uint32_t cp)
{
    size_t lo = 0, hi = ech_ttext_n_specials;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (ech_ttext_specials[mid].cp == cp) return &ech_ttext_specials[mid];
        if (ech_ttext_specials[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static int copy_special(const uint32_t from[3], uint32_t out[3])
{
    int n = 0;
    while (n < 3 && from[n] != 0) {
        out[n] = from[n];
        n++;
    }
    return n;
}

/* At most three code points, so callers have room for them on the stack. */
int ech_ttext_upper(const uint32_t cp, uint32_t out[3])
{
    const ech_ttext_special *const s = cp < 0x80 ? NULL : find_special(cp);
    if (s != NULL) return copy_special(s->upper, out);
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

int ech_ttext_title(const uint32_t cp, uint32_t out[3])
{
    const ech_ttext_special *const s = cp < 0x80 ? NULL : find_special(cp);
    if (s != NULL) return copy_special(s->title, out);
    out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
    return 1;
}

/*
 * One character alone grows when it is made small: the Turkish capital I with a dot. The final
 * sigma is the caller's, who sees the word.
 */
int ech_ttext_lower(const uint32_t cp, uint32_t out[3])
{
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

/*
 * utf8proc has the full folding. What it can't fold, or would make longer than any folding is,
 * stays itself.
 */
int ech_ttext_fold(const uint32_t cp, uint32_t out[4])
{
    utf8proc_int32_t buf[4];
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, buf, 4, UTF8PROC_CASEFOLD, NULL);
    if (n < 1 || n > 4) {
        out[0] = cp;
        return 1;
    }
    for (int i = 0; i < n; i++) {
        out[i] = (uint32_t)buf[i];
    }
    return (int)n;
}
