/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last stage of encoding: one piece of text to ids, by BPE, Unigram, WordPiece or WordLevel.
 *
 * A model is immutable once built; ech_model_scratch holds what an encode call needs, one per
 * thread at a time. A piece's ids depend on the piece alone, which is why a cache of words is
 * allowed in the scratch.
 */
#ifndef ECH_TEXT_TOKENIZER_MODEL_H
#define ECH_TEXT_TOKENIZER_MODEL_H

#include "echelon/tokenizer.h"
#include "src/text/tokenizer_lexicon.h"

typedef enum ech_model_kind {
    ECH_MODEL_BPE,
    ECH_MODEL_UNIGRAM,
    ECH_MODEL_WORDPIECE,
    ECH_MODEL_WORDLEVEL,
} ech_model_kind;

/* A merge: left and right stand side by side and become id; lower ranks go first. */
typedef struct ech_merge {
    uint64_t pair; /* left << 32 | right, plus 1; 0: an empty slot */
    uint32_t rank;
    int32_t id;
} ech_merge;

typedef struct ech_model {
    ech_model_kind kind;
    ech_lexicon lex; /* the vocabulary as the file writes it */

    int32_t unk_id; /* -1: none */
    bool has_unk;   /* an unknown token is configured, though it may be in no vocabulary */
    bool fuse_unk, byte_fallback, ignore_merges;
    /* Pieces are raw bytes, and the vocabulary spells each byte as a character (GPT-2's way). */
    bool is_byte_level;
    ech_str prefix, suffix; /* of a continuing and of a last character; empty: none */

    ech_merge *merges; /* [merge_mask + 1], open addressing */
    size_t merge_mask, n_merges;
    uint64_t seed;
    int32_t char_ids[256];     /* byte-level: by byte; else by ASCII character. -1: none */
    int32_t fallback_ids[256]; /* "<0x00>" … ; -1: none */
    /* No token continues with U+2581 after another character: such a place never merges. */
    bool cuts_at_meta;

    ech_trie trie;  /* Unigram: the pieces */
    double *scores; /* Unigram: [lex.n_ids] */
    double unk_score;

    size_t max_word_chars; /* WordPiece: a longer word is unknown */
} ech_model;

typedef struct ech_model_scratch ech_model_scratch;

/* Builds the tables from lex, merges given so far, and the options. */
ech_status ech_model_init(ech_model *m, ech_model_kind kind, size_t n_texts);
void ech_model_fini(ech_model *m);
/* BPE: room for n merges, then each in rank order. EFORMAT when a part is not in the vocabulary. */
ech_status ech_model_reserve_merges(ech_model *m, size_t n);
ech_status ech_model_add_merge(ech_model *m, ech_str left, ech_str right, uint32_t rank,
                               ech_error *err);
/* Once options, vocabulary and merges are there. */
ech_status ech_model_finish(ech_model *m, ech_error *err);

ech_status ech_model_scratch_create(ech_model_scratch **ret_scratch);
void ech_model_scratch_destroy(ech_model_scratch **scratch);

/* Appends the ids of piece[0..len). */
ech_status ech_model_encode(const ech_model *m, ech_model_scratch *s, const char *piece, size_t len,
                            ech_ids *ids, ech_error *err);

/* How a model encodes a word that isn't in the cache. */
typedef ech_status (*ech_word_fn)(const ech_model *m, ech_model_scratch *s, const char *piece,
                                  size_t len, ech_ids *ids, ech_error *err);

/* Appends the ids of a word, from the scratch's cache or by fn. */
ech_status ech_words_encode(const ech_model *m, ech_model_scratch *s, const char *piece, size_t len,
                            ech_ids *ids, ech_error *err, ech_word_fn fn);

/* GPT-2's alphabet: the character that spells a byte, and back (-1: none). */
uint32_t ech_byte_char(uint8_t byte);
int ech_char_byte(uint32_t cp);

/* Private to the model's files. */
ech_status ech_bpe_encode(const ech_model *m, ech_model_scratch *s, const char *piece, size_t len,
                          ech_ids *ids, ech_error *err);
ech_status ech_unigram_encode(const ech_model *m, ech_model_scratch *s, const char *piece,
                              size_t len, ech_ids *ids, ech_error *err);

/* A symbol of a word that is being merged; a list over an array. */
typedef struct ech_symbol {
    int32_t id;         /* -1: merged into the one before */
    int32_t prev, next; /* -1: none */
} ech_symbol;

/* A pair that may merge; stale when its symbols have changed. */
typedef struct ech_candidate {
    uint64_t order; /* rank << 32 | position */
    int32_t left, right;
} ech_candidate;

/* Unigram: the best way to a place in the text. */
typedef struct ech_best {
    double score;
    int64_t from; /* -1: not reached */
    int32_t id;
} ech_best;

#define ECH_WORD_KEY 24
#define ECH_WORD_IDS 9

/* One word of the cache; 64 bytes. */
typedef struct ech_word {
    uint64_t key[ECH_WORD_KEY / 8]; /* the bytes */
    uint8_t len, n_ids;             /* len 0: empty */
    int32_t ids[ECH_WORD_IDS];
} ech_word;

#define ECH_WORD_SLOTS 16384

struct ech_model_scratch {
    ech_word *words; /* [ECH_WORD_SLOTS], NULL until the first word; see tokenizer_words.c */
    ech_symbol *symbols;
    size_t cap_symbols;
    ech_candidate *heap;
    size_t cap_heap, n_heap;
    ech_best *best;
    size_t cap_best;
    ech_buf text; /* a spelled-out symbol */
};

#endif
