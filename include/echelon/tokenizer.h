/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/tokenizer.h - text to token ids and back.
 *
 *     ech_tokenizer *tok;
 *     ech_ids ids = { 0 };
 *     ech_error err;
 *     if (ech_tokenizer_open(&tok, "models/tale", &err) != ECH_OK) …
 *     if (ech_tokenizer_encode(tok, "Once", 4, ECH_ENCODE_SPECIAL, &ids, &err) != ECH_OK) …
 *     ech_ids_fini(&ids);
 *     ech_tokenizer_close(&tok);
 *
 * A tokenizer comes from a Hugging Face `tokenizer.json` or from the arrays of a GGUF file, and
 * gives the ids that the `tokenizers` library gives for the same file. What it can't do exactly it
 * refuses when it is opened, with an error that names the part.
 *
 * Threads: an open tokenizer never changes; any number of threads may use it at once. A stream
 * (ech_detok) belongs to one thread at a time. Text is UTF-8, given as pointer and length; it may
 * hold zero bytes. Ids are int32_t, 0 … ech_tokenizer_n_ids() - 1.
 */
#ifndef ECHELON_TOKENIZER_H
#define ECHELON_TOKENIZER_H

#include "echelon/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A tokenizer: vocabulary, rules, added tokens. Immutable once open. */
typedef struct ech_tokenizer ech_tokenizer;
/** A decoder that is fed one id at a time; see ech_detok_open(). */
typedef struct ech_detok ech_detok;

/** An id that isn't there: "this tokenizer has no such token". */
#define ECH_NO_ID (-1)
/** The longest text that is encoded at once, in bytes: 1 GiB. Longer ones are ELIMIT. */
#define ECH_ENCODE_MAX_BYTES ((size_t)1 << 30)

/*
 * A growing list of ids. Start with { 0 }; the calls below append to it. The caller owns it and
 * releases it with ech_ids_fini(). A call that fails leaves the first n ids as they were.
 */
typedef struct ech_ids {
    int32_t *data; /* NULL until the first append */
    size_t n;      /* ids in use */
    size_t cap;    /* ids allocated */
} ech_ids;

/** Frees the list's memory and empties it. NULL data is fine. */
ECH_API void ech_ids_fini(ech_ids *ids);
/** Appends n ids. ENOMEM leaves the list as it was. */
ECH_API ech_status ech_ids_append(ech_ids *ids, const int32_t *data, size_t n);

/*
 * ---- Opening ----
 */

/*
 * Opens the tokenizer of a folder: `tokenizer.json`, and `tokenizer_config.json` and
 * `special_tokens_map.json` where they exist (names of the special tokens). Nothing else of a
 * model needs to be there.
 *
 * Errors: ENOTFOUND no tokenizer.json, EIO unreadable, EFORMAT malformed (with the part and, for
 * broken JSON, line and column), EUNSUPPORTED a kind of part that isn't known, ELIMIT too large,
 * ENOMEM. Ownership: on success *ret_tok is the caller's, released with ech_tokenizer_close(); on
 * failure it is untouched.
 */
ECH_API ech_status ech_tokenizer_open(ech_tokenizer **ret_tok, const char *dir, ech_error *err);

/*
 * The same from bytes in memory: the contents of tokenizer.json, and of tokenizer_config.json
 * (config may be NULL with config_len 0). The bytes are not needed after the call.
 */
ECH_API ech_status ech_tokenizer_open_json(ech_tokenizer **ret_tok, const char *json,
                                           size_t json_len, const char *config, size_t config_len,
                                           ech_error *err);

/** Bytes that somebody else owns; need not end in a zero. */
typedef struct ech_piece {
    const char *ptr;
    size_t len;
} ech_piece;

/** The `tokenizer.ggml.token_type` values of a GGUF file. */
typedef enum ech_piece_type {
    ECH_PIECE_NORMAL = 1,
    ECH_PIECE_UNKNOWN = 2,
    ECH_PIECE_CONTROL = 3,      /* special: bos, eos, <|im_end|> … */
    ECH_PIECE_USER_DEFINED = 4, /* added, not special: <think> … */
    ECH_PIECE_UNUSED = 5,
    ECH_PIECE_BYTE = 6, /* "<0x0A>" */
} ech_piece_type;

/*
 * The tokenizer arrays of a GGUF file (`tokenizer.ggml.*`). Start from
 * ech_gguf_vocab_default(), which sets struct_size, every id to ECH_NO_ID and the rest to 0.
 */
typedef struct ech_gguf_vocab {
    size_t struct_size;      /* sizeof(ech_gguf_vocab) */
    const char *model;       /* tokenizer.ggml.model: "gpt2", "llama", "t5" or "bert" */
    const char *pre;         /* tokenizer.ggml.pre: "qwen2", "llama-bpe", …; NULL where absent */
    const ech_piece *tokens; /* [n_tokens], in id order */
    const float *scores;     /* [n_tokens] or NULL */
    const int32_t *types;    /* [n_tokens] of ech_piece_type, or NULL: all normal */
    size_t n_tokens;
    const ech_piece *merges; /* [n_merges], "left right"; NULL for SentencePiece models */
    size_t n_merges;
    int32_t bos_id, eos_id, unk_id, pad_id, sep_id, cls_id; /* or ECH_NO_ID */
    int add_bos, add_eos;         /* 1, 0, or -1 where the file doesn't say */
    int add_space_prefix;         /* 1, 0, or -1 where the file doesn't say */
    int remove_extra_whitespaces; /* 1, 0, or -1 */
    const char *charsmap;         /* tokenizer.ggml.precompiled_charsmap or NULL */
    size_t charsmap_len;
} ech_gguf_vocab;

/** An ech_gguf_vocab with everything absent. */
ECH_API ech_gguf_vocab ech_gguf_vocab_default(void);

/*
 * Opens a tokenizer from GGUF arrays. Nothing that vocab points to is needed after the call.
 * Errors as ech_tokenizer_open(); EUNSUPPORTED names a `model` or `pre` that isn't known, and
 * lists those that are.
 */
ECH_API ech_status ech_tokenizer_open_gguf(ech_tokenizer **ret_tok, const ech_gguf_vocab *vocab,
                                            ech_error *err);

/** Releases a tokenizer and sets *tok to NULL. NULL is fine. No stream of it may be open. */
ECH_API void ech_tokenizer_close(ech_tokenizer **tok);

/*
 * ---- Text to ids ----
 */

typedef enum ech_encode_flags {
    /*
     * Special tokens that stand in the text become their ids. Without it they are ordinary text:
     * "<|im_end|>" is cut into pieces like any other word. Added tokens that are not special
     * (`<think>`) always match.
     */
    ECH_ENCODE_SPECIAL = 1,
    /** Adds what the tokenizer's post-processor adds: BOS, EOS, [CLS] … [SEP]. */
    ECH_ENCODE_ADD = 2,
    /** With ECH_ENCODE_ADD: no second BOS where the text begins with one that was parsed. */
    ECH_ENCODE_ONE_BOS = 4,
} ech_encode_flags;

/*
 * Appends the ids of text[0..len) to *ids. Text must be UTF-8, else EFORMAT with the offset of the
 * first bad byte. flags: ech_encode_flags or-ed together. Time grows as len log len at worst,
 * whatever the text.
 */
ECH_API ech_status ech_tokenizer_encode(const ech_tokenizer *tok, const char *text, size_t len,
                                        unsigned flags, ech_ids *ids, ech_error *err);

/*
 * Encodes texts[0..n_texts) on up to n_threads threads (0: one for each core that the process may
 * use), which end with the call. The ids of text i are appended to ids[i], and are those of
 * ech_tokenizer_encode(), whatever the number of threads.
 *
 * A text that fails leaves its list as it was, the others are encoded all the same; the error is
 * that of the first one, and names its index.
 */
ECH_API ech_status ech_tokenizer_encode_batch(const ech_tokenizer *tok, const ech_piece *texts,
                                              size_t n_texts, unsigned flags, uint32_t n_threads,
                                              ech_ids *ids, ech_error *err);

/** Who wrote a piece of text. */
typedef enum ech_origin {
    ECH_ORIGIN_TEMPLATE = 0, /* the chat template, or anybody who may write control tokens */
    ECH_ORIGIN_DATA = 1,     /* messages, documents, tool results */
} ech_origin;

/** One stretch of bytes of one origin. */
typedef struct ech_span {
    size_t len;
    ech_origin origin;
} ech_span;

/** A text whose bytes have an origin. Borrowed; the spans' lengths add up to len. */
typedef struct ech_spans {
    const char *text;
    size_t len;
    const ech_span *spans; /* [n_spans], in the order of the text */
    size_t n_spans;
    /*
     * Added tokens that are not special but steer a template or a parser (`<think>`,
     * `<tool_call>`): the ids for which the rule of special tokens holds as well.
     */
    const int32_t *marker_ids; /* [n_markers], may be NULL with 0 */
    size_t n_markers;
} ech_spans;

/*
 * Encodes a rendered chat template. The whole text is normalised, cut and merged as one, as if it
 * came from one hand; origin decides one thing only: an added token that is special, or is a
 * marker, counts only if all its bytes are the template's. Its text is ordinary text otherwise.
 * Other added tokens match anywhere.
 *
 * ECH_ENCODE_SPECIAL is implied. EINVAL when the spans' lengths don't add up to len.
 */
ECH_API ech_status ech_tokenizer_encode_spans(const ech_tokenizer *tok, const ech_spans *spans,
                                              unsigned flags, ech_ids *ids, ech_error *err);

/*
 * ---- Ids to text ----
 */

typedef enum ech_decode_flags {
    /** Special tokens give no text. Without it they give their own. */
    ECH_DECODE_SKIP_SPECIAL = 1,
} ech_decode_flags;

/*
 * The text of ids[0..n), as the `tokenizers` library decodes it: bytes that are no UTF-8 become
 * U+FFFD; ids outside the vocabulary give nothing.
 *
 * Ownership: on success *ret_text is the caller's, released with free(); it is followed by a zero
 * byte that *ret_len doesn't count. On failure (ENOMEM) both are untouched.
 */
ECH_API ech_status ech_tokenizer_decode(const ech_tokenizer *tok, const int32_t *ids, size_t n,
                                        unsigned flags, char **ret_text, size_t *ret_len,
                                        ech_error *err);

/*
 * Opens a decoder for ids that come one by one. prompt_ids[0..n_prompt) is what they follow (may
 * be NULL with 0 for a text of their own): where the tokenizer drops a space at the very beginning
 * of a text, it keeps it after a prompt. No byte of the prompt is ever given out: when the prompt
 * ends within a character, the stream begins with the remaining bytes alone, which are no
 * character and so become U+FFFD.
 *
 * What the pushes and the finish give, put together, is valid UTF-8, whatever the ids, and does
 * not depend on how the ids were fed.
 *
 * Ownership: on success *ret_detok is the caller's, released with ech_detok_close() before the
 * tokenizer. ENOMEM is the only error.
 */
ECH_API ech_status ech_detok_open(ech_detok **ret_detok, const ech_tokenizer *tok, unsigned flags,
                                  const int32_t *prompt_ids, size_t n_prompt, ech_error *err);

/*
 * Takes one id and gives the text that has become certain: only whole characters, and every
 * character as soon as its last byte is known. *ret_text may be empty; it is valid until the next
 * call with the same stream, and is not zero-terminated.
 */
ECH_API ech_status ech_detok_push(ech_detok *detok, int32_t id, const char **ret_text,
                                  size_t *ret_len, ech_error *err);

/** Bytes that are held back because a character is unfinished: 0 … 3. */
ECH_API size_t ech_detok_pending(const ech_detok *detok);

/** The end: what was held back becomes U+FFFD. The stream can't be pushed to any more. */
ECH_API ech_status ech_detok_finish(ech_detok *detok, const char **ret_text, size_t *ret_len,
                                    ech_error *err);

/** Releases the stream and sets *detok to NULL. NULL is fine. */
ECH_API void ech_detok_close(ech_detok **detok);

/*
 * ---- Looking into the vocabulary ----
 */

/** The special tokens that have a name. */
typedef enum ech_special {
    ECH_SPECIAL_BOS,
    ECH_SPECIAL_EOS,
    ECH_SPECIAL_PAD,
    ECH_SPECIAL_UNK,
    ECH_SPECIAL_SEP,
    ECH_SPECIAL_CLS,
    ECH_SPECIAL_MASK,
    ECH_SPECIAL_COUNT,
} ech_special;

/** The largest id plus one. A model's head may have more rows than this; they have no text. */
ECH_API size_t ech_tokenizer_n_ids(const ech_tokenizer *tok);

/*
 * The bytes that an id adds to a text in its middle: " the" for "Ġthe" and "▁the", one byte for
 * "<0x0A>", its own text for an added token, special or not. They may be a part of a character.
 * NULL with *ret_len 0 for an id without text (a hole, or outside the vocabulary). Valid until the
 * tokenizer is closed; not zero-terminated.
 */
ECH_API const char *ech_tokenizer_token_bytes(const ech_tokenizer *tok, int32_t id,
                                              size_t *ret_len);

/** Whether id is a special token: one that ECH_DECODE_SKIP_SPECIAL leaves out. */
ECH_API bool ech_tokenizer_is_special(const ech_tokenizer *tok, int32_t id);
/** Whether id is an added token, special or not. */
ECH_API bool ech_tokenizer_is_added(const ech_tokenizer *tok, int32_t id);
/** The added token with exactly this text, or ECH_NO_ID. */
ECH_API int32_t ech_tokenizer_find_added(const ech_tokenizer *tok, const char *text, size_t len);

/** The id of a named special token, or ECH_NO_ID. */
ECH_API int32_t ech_tokenizer_special_id(const ech_tokenizer *tok, ech_special which);
/*
 * The text of a named special token, as a chat template sees it (`bos_token`); NULL where the
 * tokenizer has none. Zero-terminated, valid until the tokenizer is closed.
 */
ECH_API const char *ech_tokenizer_special_text(const ech_tokenizer *tok, ech_special which);

#ifdef __cplusplus
}
#endif

#endif
