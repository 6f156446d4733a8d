/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers: a normalised text is cut into pieces, which the model then takes one by one. A
 * chain of operations, immutable once built; each piece that one makes goes through the rest.
 */
#ifndef ECH_TEXT_TOKENIZER_PRETOK_H
#define ECH_TEXT_TOKENIZER_PRETOK_H

#include "src/text/tokenizer_regex.h"

typedef enum ech_pretok_kind {
    ECH_PRETOK_SPLIT,        /* at re or pattern, by behavior */
    ECH_PRETOK_PREFIX_SPACE, /* a space before a piece that has none */
    ECH_PRETOK_BYTE_CHARS,   /* each byte becomes the character that spells it */
    ECH_PRETOK_DIGITS,
    ECH_PRETOK_METASPACE, /* spaces become pattern; one is put first, as scheme says */
    ECH_PRETOK_PUNCTUATION,
    ECH_PRETOK_WHITESPACE, /* runs of word characters, and of others but spaces */
    ECH_PRETOK_WHITESPACE_SPLIT,
} ech_pretok_kind;

/* What becomes of a match, and of what lies between matches. */
typedef enum ech_split_behavior {
    ECH_SPLIT_ISOLATED, /* both are pieces */
    ECH_SPLIT_REMOVED,
    ECH_SPLIT_MERGED_WITH_PREVIOUS,
    ECH_SPLIT_MERGED_WITH_NEXT,
    ECH_SPLIT_CONTIGUOUS, /* neighbouring matches are one piece */
} ech_split_behavior;

typedef enum ech_meta_scheme {
    ECH_META_NEVER,
    ECH_META_FIRST, /* at the beginning of the text only */
    ECH_META_ALWAYS,
} ech_meta_scheme;

typedef struct ech_pretok_op {
    ech_pretok_kind kind;
    ech_split_behavior behavior;
    bool inverted;
    ech_meta_scheme scheme;
    ech_str pattern; /* borrowed from the tokenizer's arena */
    ech_regex *re;   /* owned */
} ech_pretok_op;

#define ECH_PRETOK_MAX_OPS 16

typedef struct ech_pretok {
    ech_pretok_op ops[ECH_PRETOK_MAX_OPS];
    size_t n_ops;
} ech_pretok;

/* One per thread: what an operation writes, until the pieces made of it are done. */
typedef struct ech_pretok_scratch {
    ech_buf text[ECH_PRETOK_MAX_OPS];
} ech_pretok_scratch;

/* Takes a piece, which is never empty. */
typedef ech_status (*ech_piece_fn)(void *to, const char *piece, size_t len);

/* Takes over op's regex, on failure too. ELIMIT: too many. */
ech_status ech_pretok_add(ech_pretok *p, ech_pretok_op op);
void ech_pretok_fini(ech_pretok *p);
void ech_pretok_scratch_fini(ech_pretok_scratch *s);

/* Cuts text and gives each piece to fn. is_start: text is the beginning of what is encoded. */
ech_status ech_pretok_run(const ech_pretok *p, ech_pretok_scratch *s, ech_regex_scratch *re,
                          const char *text, size_t len, bool is_start, ech_piece_fn fn, void *to);

#endif
