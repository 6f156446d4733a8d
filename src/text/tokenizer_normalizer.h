/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers: text to text, before it is cut. A chain of operations, immutable once built.
 *
 * Each byte may carry a tag (its origin, one bit per kind); a byte that an operation makes gets
 * the tags of all it was made from, so that text keeps its origin through every change.
 */
#ifndef ECH_TEXT_TOKENIZER_NORMALIZER_H
#define ECH_TEXT_TOKENIZER_NORMALIZER_H

#include "src/text/tokenizer_regex.h"

typedef enum ech_norm_kind {
    ECH_NORM_NFC,
    ECH_NORM_NFD,
    ECH_NORM_NFKC,
    ECH_NORM_NFKD,
    ECH_NORM_LOWERCASE,
    ECH_NORM_STRIP, /* flags: left 1, right 2 */
    ECH_NORM_STRIP_ACCENTS,
    ECH_NORM_REPLACE, /* pattern (or re) → content */
    ECH_NORM_PREPEND, /* content, unless the text is empty */
    ECH_NORM_NMT,
    ECH_NORM_PRECOMPILED, /* content: SentencePiece's charsmap */
    ECH_NORM_BYTE_LEVEL,
    /* BertNormalizer is these four, as far as its options ask for them. */
    ECH_NORM_BERT_CLEAN,
    ECH_NORM_BERT_CHINESE,
    ECH_NORM_BERT_ACCENTS,
} ech_norm_kind;

typedef struct ech_norm_op {
    ech_norm_kind kind;
    unsigned flags;
    ech_str pattern, content; /* borrowed from the tokenizer's arena */
    ech_regex *re;            /* owned; NULL: pattern is a plain string */
} ech_norm_op;

typedef struct ech_normalizer {
    ech_norm_op *ops;
    size_t n_ops, cap_ops;
} ech_normalizer;

/* A text on its way through the chain. */
typedef struct ech_norm_text {
    const char *ptr;
    size_t len;
    const uint8_t *tags; /* [len], or NULL: no origin is kept */
    bool lost_start;     /* the first character of the source is gone */
} ech_norm_text;

/* Two buffers that the operations write to in turn; one per thread. */
typedef struct ech_norm_scratch {
    struct {
        ech_buf text, tags;
    } side[2];
    int next;
    ech_buf run; /* a run of characters that is normalised together */
} ech_norm_scratch;

/* Takes over op's regex, on failure too. */
ech_status ech_normalizer_add(ech_normalizer *n, ech_norm_op op);
void ech_normalizer_fini(ech_normalizer *n);
void ech_norm_scratch_fini(ech_norm_scratch *s);

/*
 * Runs the chain on *text. The result is either the text itself or lies in the scratch, until the
 * next call with it.
 */
ech_status ech_normalizer_apply(const ech_normalizer *n, ech_norm_scratch *s, ech_regex_scratch *re,
                                ech_norm_text *text, ech_error *err);

/* Whether charsmap is a table that ECH_NORM_PRECOMPILED can read. */
bool ech_charsmap_valid(ech_str charsmap);
/* What charsmap makes of the beginning of s; ptr NULL: nothing. */
ech_str ech_charsmap_find(ech_str charsmap, const char *s, size_t len);

#endif
