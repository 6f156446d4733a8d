/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's precompiled_charsmap: a double-array trie (darts-clone's layout) over UTF-8 and
 * the zero-terminated replacements behind it.
 *
 *     u32 bytes of the trie | u32 units[…] | replacements
 *
 * A unit: bit 31 and 0-7 label, bit 8 "a value follows", bit 9 and 10-31 offset to the children.
 * The table comes from a file: every step is checked against the array's bounds.
 */
#include "src/text/tokenizer_normalizer.h"

static uint32_t load_u32(const char *const p)
{
    const uint8_t *const b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool ech_charsmap_valid(const ech_str map)
{
    if (map.len < 8) return false;
    const size_t trie = load_u32(map.ptr);
    return trie >= 4 && trie % 4 == 0 && trie <= map.len - 4;
}

static size_t offset_of(const uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1U << 9)) >> 6);
}

ech_str ech_charsmap_find(const ech_str map, const char *const s, const size_t len)
{
    const size_t n = load_u32(map.ptr) / 4;
    const char *const units = map.ptr + 4;
    const char *const texts = units + n * 4;
    const size_t n_texts = map.len - 4 - n * 4;
    size_t at = offset_of(load_u32(units));
    for (size_t i = 0; i < len && s[i] != '\0'; i++) {
        at ^= (uint8_t)s[i];
        if (at >= n) break;
        const uint32_t unit = load_u32(units + at * 4);
        if ((unit & 0x800000FFU) != (uint8_t)s[i]) break;
        at ^= offset_of(unit);
        if (!(unit & 0x100U)) continue;
        if (at >= n) break;
        /* The shortest entry counts: the reference takes the first that it finds. */
        const size_t value = load_u32(units + at * 4) & 0x7FFFFFFFU;
        if (value >= n_texts) break;
        return (ech_str){ texts + value, strnlen(texts + value, n_texts - value) };
    }
    return (ech_str){ 0 };
}
