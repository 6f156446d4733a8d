/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A BPE tokenizer's large tables as bytes that can be kept in a file: vocabulary with its hash
 * table, merges, and what each id decodes to. Making them takes most of a tokenizer's opening; all
 * else is read from its source each time.
 *
 *     header | merges | ends of the ids' bytes | slots | ends of the texts | texts | ids' bytes
 *
 * No pointers, in memory order: for the machine that wrote them. They name their source by a
 * digest of all its bytes; tables of another source, version or make are not used. Bytes of tables
 * are input: a view is given out only when no use of it can leave the tables or go on forever.
 * That they say the truth about the vocabulary is the file's checksum's business.
 */
#ifndef ECH_TEXT_TOKENIZER_TABLES_H
#define ECH_TEXT_TOKENIZER_TABLES_H

#include "echelon/tokenizer.h"
#include "src/base/arena.h"
#include "src/base/buf.h"
#include "src/text/tokenizer_model.h"

/* What the tables were made of. */
typedef struct ech_tok_source {
    uint64_t digest[2];
    /* Where vocabulary and merges lie in a tokenizer.json: from, to, from, to; 0: absent. */
    uint64_t extents[4];
} ech_tok_source;

/* Tables that were found good; borrowed from the bytes. */
typedef struct ech_tok_tables {
    ech_tok_source source;
    uint64_t lex_seed, merge_seed;
    const ech_merge *merges; // [n_merge_slots], a power of two
    size_t n_merge_slots, n_merges;
    const uint32_t *slots; // [n_slots], a power of two
    size_t n_slots, n_texts;
    const uint32_t *text_ends; // [n_ids], each text with a zero behind it; no byte: no text
    const char *texts;
    size_t n_ids, text_bytes;
    const uint64_t *token_ends; // [n_tokens]
    const char *token_bytes;
    size_t n_tokens;
} ech_tok_tables;

/* False: not of that digest, or not whole. */
bool ech_tok_tables_view(ech_str bytes, const uint64_t digest[2], ech_tok_tables *ret);
/* Vocabulary and merges into a model that ech_model_init() made. */
ech_status ech_tok_tables_take(const ech_tok_tables *tables, ech_model *m, ech_arena *arena);

/* The tables of an open tokenizer, appended to out. Nothing where it isn't BPE. */
ech_status ech_tokenizer_write_tables(const ech_tokenizer *t, ech_buf *out);

/*
 * As ech_tokenizer_open() and ech_tokenizer_open_gguf(), with tables of an earlier opening, which
 * are not needed afterwards. Tables that are empty, of another source or damaged are not used.
 */
ech_status ech_tokenizer_open_with(ech_tokenizer **ret_tok, const char *dir, ech_str tables,
                                   ech_error *err);
ech_status ech_tokenizer_open_json_with(ech_tokenizer **ret_tok, ech_str json, ech_str tables,
                                        ech_error *err);
ech_status ech_tokenizer_open_gguf_with(ech_tokenizer **ret_tok, const ech_gguf_vocab *vocab,
                                        ech_str tables, ech_error *err);
/* Whether it was opened with its tables. */
bool ech_tokenizer_had_tables(const ech_tokenizer *t);

#endif
