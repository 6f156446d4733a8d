/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding added tokens in a text. At each place the longest one counts, the leftmost place first.
 * A match that is refused (a special token that isn't to be parsed, one that is not a word of its
 * own, one whose bytes are not the template's) is passed over as a whole: the search goes on behind
 * it, as the reference does.
 */
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_parts.h"
#include "src/text/unicode.h"

/* The character before text[at]. */
static uint32_t char_before(const char *const text, size_t at)
{
    uint32_t cp = 0;
    const size_t end = at;
    do {
        at--;
    } while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    (void)ech_utf8_decode(text + at, end - at, &cp);
    return cp;
}

static bool is_word(const uint32_t cp)
{
    return (ech_char_flags_of(cp) & ECH_CHAR_WORD) != 0;
}

/* The ends of the text count as borders. */
static bool is_single_word(const char *const text, const size_t len, const size_t from,
                           const size_t to)
{
    uint32_t next = 0;
    if (from > 0 && is_word(char_before(text, from))) return false;
    return to == len || ech_utf8_decode(text + to, len - to, &next) <= 0 || !is_word(next);
}

/*
 * Where the white space before text[from] begins, not below floor. The floor is the end of the
 * match before, which may have taken this space already: the caller then drops the token.
 */
static size_t space_start(const char *const text, size_t from, const size_t floor)
{
    while (from > 0 && ech_char_is_space(char_before(text, from))) {
        do {
            from--;
        } while (((uint8_t)text[from] & 0xC0) == 0x80);
    }
    return from > floor ? from : floor;
}

static size_t space_end(const char *const text, const size_t len, size_t to)
{
    uint32_t cp = 0;
    while (to < len) {
        const int n = ech_utf8_decode(text + to, len - to, &cp);
        if (n <= 0 || !ech_char_is_space(cp)) break;
        to += (size_t)n;
    }
    return to;
}

/*
 * Whether a match may count, by who wrote its bytes. Guarded are special tokens and the template's
 * markers: one byte of data among theirs is enough to make them plain text.
 */
static bool is_allowed(const ech_match_rule *const rule, const ech_added_token *const token,
                       const size_t from, const size_t to)
{
    if (token->special && !rule->parse_special) return false;
    if (rule->tags == NULL) return true;
    bool is_guarded = token->special;
    for (size_t i = 0; !is_guarded && i < rule->n_markers; i++) {
        is_guarded = rule->marker_ids[i] == token->id;
    }
    for (size_t i = from; is_guarded && i < to; i++) {
        if (rule->tags[i] != 0) return false;
    }
    return true;
}

/*
 * The longest token that begins at text[at]; 0 when none does. Goes on past a shorter match, as
 * long as there is a longer token to hope for.
 */
static size_t longest(const ech_trie *const trie, const char *const text, const size_t len,
                      const size_t at, int32_t *const ret_index)
{
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = at; i < len; i++) {
        node = ech_trie_step(trie, node, (uint8_t)text[i]);
        if (node == 0) break;
        if (trie->values[node] < 0) continue;
        *ret_index = trie->values[node];
        found = i + 1 - at;
    }
    return found;
}

/*
 * One pass over the text: most bytes begin no token and are passed by the first loop. *pos is
 * behind the match itself, without the space it strips.
 */
bool ech_added_next(const ech_added *const a, const ech_trie *const trie,
                    const ech_match_rule *const rule, const char *const text, const size_t len,
                    size_t *const pos, const size_t floor, ech_added_match *const ret_match)
{
    size_t at = *pos;
    while (at < len) {
        while (at < len && trie->first[(uint8_t)text[at]] == 0) {
            at++;
        }
        int32_t index = -1;
        const size_t n = at < len ? longest(trie, text, len, at, &index) : 0;
        if (n == 0) {
            at++;
            continue;
        }
        const ech_added_token *const token = &a->tokens[index];
        const size_t from = at, to = at + n;
        at = to;
        if (!is_allowed(rule, token, from, to)) continue;
        if (token->single_word && !is_single_word(text, len, from, to)) continue;
        *pos = to;
        ret_match->token = token;
        ret_match->from = token->lstrip ? space_start(text, from, floor) : from;
        ret_match->to = token->rstrip ? space_end(text, len, to) : to;
        return true;
    }
    *pos = len;
    return false;
}
