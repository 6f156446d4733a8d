/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of ech_mask_vocab: tokens as bytes, tries over them, and slices.
 *
 * A control token's bytes are the byte 0xFF and its id in three bytes: no text can spell it, and an
 * automaton can ask for it.
 *
 * Trie: nodes in depth-first order; a node knows where its subtree ends, so a walk that dies skips
 * it by one assignment.
 *
 * Slices: most tokens are a few ordinary characters, and inside a string nearly all of them are
 * allowed. A family of slices is a kind of token (made of characters that need no escape in JSON;
 * made of whitespace), one mask for each length: masks[k - 1] has those of at most k characters.
 * Where an automaton takes k characters of the kind and no more, that mask is copied and only the
 * trie of the other tokens is walked.
 *
 * Immutable once created.
 */
#ifndef ECH_TEXT_CONSTRAINT_VOCAB_H
#define ECH_TEXT_CONSTRAINT_VOCAB_H

#include "echelon/constraint.h"

#include "src/base/buf.h"
#include "src/text/constraint_vec.h"

#define ECH_CONTROL_BYTE 0xFFu
/*
 * Vocabularies have a few hundred very long tokens (runs of spaces, of dashes). They are kept
 * apart, so that masks of all others need to look no further than this many bytes ahead.
 */
#define ECH_ORDINARY_LEN 24u

typedef struct ech_trie_node {
    uint32_t end;   /* index of the first node after the subtree */
    uint32_t token; /* an id that ends here plus one, 0: none; more in ech_mask_vocab.same */
    uint16_t depth; /* bytes from the root, at least 1 */
    uint8_t byte;
} ech_trie_node;

typedef struct ech_trie {
    ech_trie_node *nodes;
    uint32_t n, cap;
} ech_trie;

typedef enum ech_slice_kind {
    ECH_SLICE_PLAIN, /* code points that stand for themselves in a JSON string */
    ECH_SLICE_SPACE, /* space, tab, newline, carriage return */
    ECH_SLICE_COUNT,
} ech_slice_kind;

#define ECH_SLICE_LEVELS 32

typedef struct ech_slices {
    uint32_t *masks; /* [ECH_SLICE_LEVELS][n_words] */
    uint32_t counts[ECH_SLICE_LEVELS];
    ech_trie rest; /* all ordinary tokens that are in no mask */
} ech_slices;

struct ech_mask_vocab {
    uint32_t refs;
    uint32_t n_ids, n_words;
    char *bytes;        /* of all tokens, encoded */
    uint32_t *first;    /* [n_ids + 1] into bytes */
    uint8_t *kinds;     /* [n_ids] ech_mask_token_kind; UNUSED for tokens that never take part */
    uint32_t *same;     /* [n_ids] the next id with the same bytes plus one, 0: none */
    uint32_t token_len; /* longest token */
    uint32_t reach[2];  /* longest of the ordinary tokens, and token_len */
    int32_t *eos;
    uint32_t n_eos;
    uint8_t *is_eos;   /* [n_ids] */
    int32_t *controls; /* ids of control tokens, longest text first */
    uint32_t n_controls;
    char *control_bytes;     /* their texts */
    uint32_t *control_first; /* [n_controls + 1] */
    ech_trie all;            /* all ordinary tokens */
    ech_trie longs;          /* tokens longer than ECH_ORDINARY_LEN */
    ech_slices slices[ECH_SLICE_COUNT];
};

static inline ech_str ech_mask_vocab_bytes(const ech_mask_vocab *const v, const int32_t id)
{
    return (ech_str){ v->bytes + v->first[id], v->first[id + 1] - v->first[id] };
}

/* text with the control tokens in it replaced by their bytes, appended to out. */
ech_status ech_mask_vocab_encode(const ech_mask_vocab *v, ech_str text, ech_buf *out);

#endif
