/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders: the vocabulary's texts of some ids to readable text. A chain of operations over a list
 * of texts, immutable once built.
 *
 * Two ways to run it: over a whole list, exactly as the reference does, or text by text for a
 * stream, where bytes stay bytes until the stream puts characters together.
 */
#ifndef ECH_TEXT_TOKENIZER_DECODER_H
#define ECH_TEXT_TOKENIZER_DECODER_H

#include "src/text/tokenizer_regex.h"

typedef enum ech_decode_kind {
    ECH_DECODE_BYTE_LEVEL,
    ECH_DECODE_BYTE_FALLBACK,
    ECH_DECODE_FUSE,
    ECH_DECODE_REPLACE,   /* pattern (or re) → content */
    ECH_DECODE_STRIP,     /* content, up to start and stop times */
    ECH_DECODE_METASPACE, /* pattern → space; none at the start if strips_start */
    ECH_DECODE_WORDPIECE, /* pattern: the prefix */
    ECH_DECODE_BPE,       /* pattern: the suffix */
    ECH_DECODE_CTC,       /* pattern: padding, content: word delimiter */
} ech_decode_kind;

typedef struct ech_decode_op {
    ech_decode_kind kind;
    ech_str pattern, content; /* borrowed from the tokenizer's arena */
    ech_regex *re;            /* owned */
    size_t start, stop;
    bool cleans_up;    /* WordPiece, CTC */
    bool strips_start; /* Metaspace */
} ech_decode_op;

#define ECH_DECODER_MAX_OPS 16

typedef struct ech_decoder {
    ech_decode_op ops[ECH_DECODER_MAX_OPS];
    size_t n_ops;
} ech_decoder;

/* Texts one after the other in one buffer. */
typedef struct ech_texts {
    ech_buf bytes;
    size_t *ends; /* [n]: where each one ends */
    size_t n, cap;
} ech_texts;

void ech_texts_fini(ech_texts *t);
ech_status ech_texts_end(ech_texts *t); /* what was appended to bytes is one text */
ech_str ech_texts_at(const ech_texts *t, size_t i);

/* Takes over op's regex, on failure too. */
ech_status ech_decoder_add(ech_decoder *d, ech_decode_op op);
void ech_decoder_fini(ech_decoder *d);

/* Runs the chain over *t and appends the result to out, valid UTF-8. Without operations texts are
 * joined by spaces. */
ech_status ech_decoder_run(const ech_decoder *d, ech_regex_scratch *re, ech_texts *t, ech_buf *out);

/*
 * What one text adds in a stream: bytes, appended to out. is_first: nothing came before it. Of
 * Strip only the start counts, by the stream's first text.
 */
ech_status ech_decoder_step(const ech_decoder *d, ech_regex_scratch *re, ech_str text,
                            bool is_first, ech_buf *out);

/* Appends s with U+FFFD for what is no UTF-8. */
ech_status ech_append_lossy(ech_buf *out, const char *s, size_t len);

#endif
