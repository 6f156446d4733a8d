/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups by binary search, ASCII by hand. */
#include "src/text/unicode.h"

/* ASCII by hand: it is most of what is asked. */
static unsigned ascii_flags(const uint32_t cp)
{
    const uint32_t lower = cp | 0x20;
    if (cp >= '0' && cp <= '9') return ECH_CHAR_NUMERIC | ECH_CHAR_WORD;
    if (lower >= 'a' && lower <= 'z') return ECH_CHAR_WORD;
    if (cp == '_') return ECH_CHAR_PUNCT | ECH_CHAR_WORD;
    if (cp < ' ') return cp == '\t' || cp == '\n' || cp == '\r' ? 0 : ECH_CHAR_BERT_CONTROL;
    return cp == ' ' ? 0 : cp == 0x7F ? ECH_CHAR_BERT_CONTROL : ECH_CHAR_PUNCT;
}

unsigned ech_char_flags_of(const uint32_t cp)
{
    if (cp < 0x80) return ascii_flags(cp);
    size_t lo = 0, hi = ech_unicode_runs_n; /* the row is in [lo, hi) */
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (ech_unicode_runs[mid] >> 11 <= cp) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return ech_unicode_runs[lo] & 0x7FFU;
}

bool ech_char_is_space(const uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

int ech_char_lower(const uint32_t cp, uint32_t out[2])
{
    out[0] = cp;
    if (cp < 0x80) {
        if (cp >= 'A' && cp <= 'Z') out[0] = cp + 32;
        return 1;
    }
    if (cp == 0x130) { /* the one character with two: i and a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    size_t lo = 0, hi = ech_unicode_lower_n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const ech_lower_row *const row = &ech_unicode_lower[mid];
        if (cp < row->first) {
            hi = mid;
        } else if (cp > row->last) {
            lo = mid + 1;
        } else {
            if ((cp - row->first) % row->stride == 0) out[0] = cp + (uint32_t)row->delta;
            return 1;
        }
    }
    return 1;
}
