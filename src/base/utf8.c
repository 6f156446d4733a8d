/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 by the table 3-7 of the Unicode standard: the first byte decides the length and the range
 * of the second byte; that range is what excludes overlong forms, surrogates and values that are
 * too large.
 */
#include "src/base/utf8.h"

#include <string.h>

typedef struct lead {
    int len;        /* 0: can't begin a sequence */
    uint8_t lo, hi; /* range of the second byte */
} lead;

static lead lead_of(const uint8_t c)
{
    if (c < 0x80) return (lead){ 1, 0, 0 };
    if (c < 0xC2) return (lead){ 0, 0, 0 };
    if (c < 0xE0) return (lead){ 2, 0x80, 0xBF };
    if (c == 0xE0) return (lead){ 3, 0xA0, 0xBF };
    if (c == 0xED) return (lead){ 3, 0x80, 0x9F };
    if (c < 0xF0) return (lead){ 3, 0x80, 0xBF };
    if (c == 0xF0) return (lead){ 4, 0x90, 0xBF };
    if (c < 0xF4) return (lead){ 4, 0x80, 0xBF };
    if (c == 0xF4) return (lead){ 4, 0x80, 0x8F };
    return (lead){ 0, 0, 0 };
}

/* How many bytes of s are a correct beginning of l's sequence, 1..l.len. */
static int good_bytes(const uint8_t *const s, const size_t len, const lead l)
{
    int n = 1;
    while (n < l.len && (size_t)n < len) {
        const uint8_t lo = n == 1 ? l.lo : 0x80;
        const uint8_t hi = n == 1 ? l.hi : 0xBF;
        if (s[n] < lo || s[n] > hi) break;
        n++;
    }
    return n;
}

int ech_utf8_decode(const char *const str, const size_t len, uint32_t *const ret_cp)
{
    if (len == 0) return 0;
    const uint8_t *const s = (const uint8_t *)str;
    const lead l = lead_of(s[0]);
    if (l.len == 0) return -1;
    const int n = good_bytes(s, len, l);
    if (n < l.len) return (size_t)n == len ? -2 : -1;

    static const uint8_t LEAD_MASK[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    uint32_t cp = s[0] & LEAD_MASK[l.len];
    for (int i = 1; i < l.len; i++) {
        cp = cp << 6 | (s[i] & 0x3FU);
    }
    *ret_cp = cp;
    return l.len;
}

int ech_utf8_encode(const uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp < 0xE000) return 0;
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp > 0x10FFFF) return 0;
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Bytes of ASCII at the beginning, eight at a time: most of most texts. */
static size_t ascii_len(const char *const s, const size_t len)
{
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, sizeof word);
        if (word & 0x8080808080808080U) break;
    }
    while (i < len && (uint8_t)s[i] < 0x80) {
        i++;
    }
    return i;
}

bool ech_utf8_valid(const char *const s, const size_t len, size_t *const ret_bad)
{
    size_t i = 0;
    while (i < len) {
        i += ascii_len(s + i, len - i);
        uint32_t cp;
        const int n = ech_utf8_decode(s + i, len - i, &cp);
        if (n < 0) {
            if (ret_bad != NULL) *ret_bad = i;
            return false;
        }
        i += (size_t)n;
    }
    return true;
}

size_t ech_utf8_broken_len(const char *const str, const size_t len)
{
    if (len == 0) return 0;
    const uint8_t *const s = (const uint8_t *)str;
    const lead l = lead_of(s[0]);
    return l.len == 0 ? 1 : (size_t)good_bytes(s, len, l);
}
