/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from the inside: its parts in the order in which a text goes through them.
 *
 *     text → added tokens (as written) → normalizer → added tokens (normalised) → pre-tokenizer
 *          → model → post-processor → ids → decoder → text
 *
 * Everything is set while it is opened and never changes after; the spare scratches alone are
 * shared, each owned by the call that took it.
 */
#ifndef ECH_TEXT_TOKENIZER_PARTS_H
#define ECH_TEXT_TOKENIZER_PARTS_H

#include "echelon/tokenizer.h"
#include "src/base/arena.h"
#include "src/text/tokenizer_decoder.h"
#include "src/text/tokenizer_model.h"
#include "src/text/tokenizer_normalizer.h"
#include "src/text/tokenizer_pretok.h"
#include "src/text/tokenizer_tables.h"

/* Limits of what a file may bring. */
#define ECH_TOKENIZER_MAX_BYTES ((size_t)256 << 20)
#define ECH_ADDED_MAX           16384
#define ECH_ADDED_MAX_BYTES     4096
#define ECH_POST_MAX_IDS        64

/* A token on top of the model's vocabulary. */
typedef struct ech_added_token {
    ech_str text;    /* as the file writes it */
    ech_str decoded; /* what decoding sees: normalised, where matching is */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} ech_added_token;

typedef struct ech_added {
    ech_added_token *tokens; /* [n] */
    size_t n, cap;
    ech_lexicon lex; /* text ↔ id */
    int32_t *by_id;  /* [n_by_id]: index in tokens, or -1; set when the tokenizer is finished */
    size_t n_by_id;
    ech_trie plain;  /* texts as written; values are indices in tokens */
    ech_trie normal; /* normalised texts */
    bool has_normal;
} ech_added;

/* What an encode call needs; taken from the tokenizer and given back. */
typedef struct ech_tok_scratch {
    ech_regex_scratch *re;
    ech_model_scratch *model;
    ech_norm_scratch norm;
    ech_pretok_scratch pretok;
} ech_tok_scratch;

#define ECH_TOK_SPARES 16

struct ech_tokenizer {
    ech_arena arena; /* all strings that come from the file */
    ech_added added;
    ech_normalizer normalizer;
    ech_pretok pretok;
    ech_model model;
    ech_decoder decoder;
    int32_t before[ECH_POST_MAX_IDS], after[ECH_POST_MAX_IDS]; /* what ECH_ENCODE_ADD adds */
    size_t n_before, n_after;

    int32_t special_ids[ECH_SPECIAL_COUNT];
    const char *special_texts[ECH_SPECIAL_COUNT];
    size_t n_ids;
    /* token_bytes of id: bytes[ends[id - 1] … ends[id]); a hole has the bit in is_hole. */
    ech_buf token_bytes;
    size_t *token_ends;                      /* [n_ids] */
    ech_tok_source source;                   /* what the tables are of */
    const ech_tok_tables *tables;            /* while it is opened: made before, or NULL */
    bool had_tables;
    ech_tok_scratch *spares[ECH_TOK_SPARES]; /* taken and put back by atomic exchange */
};

/* ---- Building (tokenizer_json.c, tokenizer_gguf.c) ---- */

ech_tokenizer *ech_tokenizer_new(void);
/* Adds a token; the file's id counts only where the vocabulary doesn't know the text. */
ech_status ech_tokenizer_add_token(ech_tokenizer *t, ech_added_token token, ech_error *err);
/* When all parts are there: tries, tables, checks. */
ech_status ech_tokenizer_finish(ech_tokenizer *t, ech_error *err);
/* The text of an id in the vocabulary or among the added tokens; ptr NULL for none. */
ech_str ech_tokenizer_text(const ech_tokenizer *t, int64_t id);

/* ---- Running ---- */

ech_status ech_tok_scratch_take(const ech_tokenizer *t, ech_tok_scratch **ret_s);
void ech_tok_scratch_give(const ech_tokenizer *t, ech_tok_scratch *s);
void ech_tok_scratch_destroy(ech_tok_scratch **s);

/* A stretch of text between or at added tokens. */
typedef struct ech_added_match {
    size_t from, to; /* of the match, stripped space included */
    const ech_added_token *token;
} ech_added_match;

/* Which matches count. */
typedef struct ech_match_rule {
    bool parse_special;
    const uint8_t *tags;       /* [len] of the text, 1: data; NULL: all of one hand */
    const int32_t *marker_ids; /* with tags */
    size_t n_markers;
} ech_match_rule;

/*
 * The next match in text[*pos..len) that counts, *pos moved behind it; false: none. floor is where
 * the last match ended, its stripped space included.
 */
bool ech_added_next(const ech_added *a, const ech_trie *trie, const ech_match_rule *rule,
                    const char *text, size_t len, size_t *pos, size_t floor,
                    ech_added_match *ret_match);

#endif
