/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from the arrays of a GGUF file. The file says less than a tokenizer.json: a model's
 * kind, the name of its cutting rule, tokens, scores, types. What the converter left out (the
 * pattern, the normal form, the decoder) is put back here, so that ids are those of the
 * tokenizer.json that the file was made from.
 *
 * Invariant: the arrays of the file are only read; texts are copied to the tokenizer's arena, so
 * the file may be unmapped afterwards. Everything in it is untrusted: counts, ids and scores are
 * checked by check_vocab before anything is built, texts must be UTF-8.
 *
 * Left out: reading the GGUF file itself (the model's reader fills ech_gguf_vocab). Runs while a
 * model is opened, on that thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_json.h"

#define META "\xE2\x96\x81"

ech_gguf_vocab ech_gguf_vocab_default(void)
{
    return (ech_gguf_vocab){
        .struct_size = sizeof(ech_gguf_vocab),
        .bos_id = ECH_NO_ID,
        .eos_id = ECH_NO_ID,
        .unk_id = ECH_NO_ID,
        .pad_id = ECH_NO_ID,
        .sep_id = ECH_NO_ID,
        .cls_id = ECH_NO_ID,
        .add_bos = -1,
        .add_eos = -1,
        .add_space_prefix = -1,
        .remove_extra_whitespaces = -1,
    };
}

/* ---- Cutting rules by name ---- */

#define TAIL   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORTS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define QWEN2  SHORTS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define LLAMA3                                                                                     \
    SHORTS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define QWEN35                                                                                     \
    SHORTS                                                                                         \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORTS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" SHORTS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"    \
    "\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
#define CJK    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define BLOOM  " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
#define FALCON "[\\p{P}\\$\\+<=>\\^~\\|`]+"

typedef struct pre_rule {
    const char *names;       /* separated by spaces, one before and behind each */
    const char *patterns[4]; /* each cuts the pieces of the one before */
    bool cuts_digits;        /* each digit a piece, first of all */
    bool has_nfc;
    bool ignores_merges;
} pre_rule;

/*
 * One row for each way of cutting; names are those that llama.cpp's converter writes into
 * tokenizer.ggml.pre.
 */
static const pre_rule PRE_RULES[] = {
    { " qwen2 megrez hunyuan ", { QWEN2 }, .has_nfc = true },
    { " qwen35 ", { QWEN35 }, .has_nfc = true },
    { " stablelm2 ", { QWEN2 }, .has_nfc = true },
    { " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
      { LLAMA3 },
      .ignores_merges = true },
    { " dbrx smaug-bpe chatglm-bpe glm4 ", { LLAMA3 } },
    { " gpt-4o llama4 ", { O200K }, .ignores_merges = true },
    { " tekken ", { TEKKEN }, .ignores_merges = true },
    { " deepseek-v3 deepseek-r1-qwen-v3 ", { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
    { " deepseek-r1-qwen ", { QWEN2 }, .has_nfc = true },
    { " gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de roberta-bpe mpt olmo jais a.x-4.0 mellum "
      "modern-bert ",
      { GPT2 } },
    { " smollm starcoder refact codeshell ", { GPT2 }, .cuts_digits = true },
    { " command-r ", { GPT2 }, .cuts_digits = true, .has_nfc = true },
    { " falcon ", { FALCON, GPT2, "[0-9][0-9][0-9]" } },
    { " bloom gpt3-finnish poro-chat ", { BLOOM } },
    { " viking ", { BLOOM, "\\p{N}" } },
};

/* A name is searched with its two blanks, so that no part of another one matches. */
static const pre_rule *find_rule(const char *const name)
{
    char wanted[64];
    if ((size_t)snprintf(wanted, sizeof wanted, " %s ", name) >= sizeof wanted) return NULL;
    for (size_t i = 0; i < sizeof PRE_RULES / sizeof PRE_RULES[0]; i++) {
        if (strstr(PRE_RULES[i].names, wanted) != NULL) return &PRE_RULES[i];
    }
    return NULL;
}

static ech_status unknown_rule(const char *const name, ech_error *const err)
{
    char known[400] = "";
    for (size_t i = 0; i < sizeof PRE_RULES / sizeof PRE_RULES[0]; i++) {
        const size_t n = strlen(known);
        (void)snprintf(known + n, sizeof known - n, "%s", PRE_RULES[i].names + (i > 0));
    }
    return ech_fail(
        err, ECH_EUNSUPPORTED,
        "reading a GGUF tokenizer: tokenizer.ggml.pre \"%.40s\" is not supported; known:%s", name,
        known);
}

static ech_status add_pattern(ech_tokenizer *const t, const char *const pattern,
                              ech_error *const err)
{
    ech_pretok_op op = { .kind = ECH_PRETOK_SPLIT, .behavior = ECH_SPLIT_ISOLATED };
    ECH_TRY(ech_regex_create(&op.re, ech_str_from(pattern), err));
    return ech_pretok_add(&t->pretok, op);
}

static ech_status add_rule(ech_tokenizer *const t, const pre_rule *const rule, ech_error *const err)
{
    if (rule->has_nfc)
        ECH_TRY(ech_normalizer_add(&t->normalizer, (ech_norm_op){ .kind = ECH_NORM_NFC }));
    if (rule->cuts_digits) {
        const ech_pretok_op digits = { .kind = ECH_PRETOK_DIGITS, .behavior = ECH_SPLIT_ISOLATED };
        ECH_TRY(ech_pretok_add(&t->pretok, digits));
    }
    for (int i = 0; i < 4 && rule->patterns[i] != NULL; i++) {
        ECH_TRY(add_pattern(t, rule->patterns[i], err));
    }
    t->model.ignore_merges = rule->ignores_merges;
    return ECH_OK;
}

/* ---- Vocabulary ---- */

static ech_str piece_at(const ech_gguf_vocab *const v, const size_t i)
{
    return (ech_str){ v->tokens[i].ptr, v->tokens[i].len };
}

/* A file without types has normal tokens only. */
static int32_t type_of(const ech_gguf_vocab *const v, const size_t i)
{
    return v->types != NULL ? v->types[i] : ECH_PIECE_NORMAL;
}

/* Unknown counts as added: its text in a prompt is the token, as with the original tokenizers. */
static bool is_added(const int32_t type)
{
    return type == ECH_PIECE_CONTROL || type == ECH_PIECE_USER_DEFINED || type == ECH_PIECE_UNKNOWN;
}

/* BERT's tokens are stored with U+2581 before a word's beginning instead of ## before its rest. */
static ech_str bert_text(ech_tokenizer *const t, const ech_str piece)
{
    if (piece.len >= 3 && memcmp(piece.ptr, META, 3) == 0) {
        return (ech_str){ ech_arena_strdup(&t->arena, (ech_str){ piece.ptr + 3, piece.len - 3 }),
                          piece.len - 3 };
    }
    if (piece.len >= 2 && piece.ptr[0] == '[' && piece.ptr[piece.len - 1] == ']') {
        return (ech_str){ ech_arena_strdup(&t->arena, piece), piece.len };
    }
    char *const text = ech_arena_alloc(&t->arena, piece.len + 3);
    if (text == NULL) return (ech_str){ 0 };
    text[0] = text[1] = '#';
    memcpy(text + 2, piece.ptr, piece.len);
    return (ech_str){ text, piece.len + 2 };
}

static ech_status add_pieces(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                             ech_error *const err)
{
    if (t->tables != NULL) return ech_tok_tables_take(t->tables, &t->model, &t->arena);
    for (size_t i = 0; i < v->n_tokens; i++) {
        const ech_str piece = piece_at(v, i);
        if (!ech_utf8_valid(piece.ptr, piece.len, NULL)) {
            return ech_fail(err, ECH_EFORMAT, "reading a GGUF tokenizer: token %zu is not UTF-8",
                            i);
        }
        ech_str text = { 0 };
        if (t->model.kind == ECH_MODEL_WORDPIECE) {
            text = bert_text(t, piece);
        } else {
            text = (ech_str){ ech_arena_strdup(&t->arena, piece), piece.len };
        }
        if (text.ptr == NULL) return ECH_ENOMEM;
        ECH_TRY(ech_lexicon_add(&t->model.lex, text, (int64_t)i));
    }
    return ECH_OK;
}

/* Control and unknown tokens are special; user-defined ones are merely added. */
static ech_status add_added(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                            ech_error *const err)
{
    for (size_t i = 0; i < v->n_tokens; i++) {
        const int32_t type = type_of(v, i);
        if (!is_added(type)) continue;
        const ech_str text = t->model.lex.texts[i];
        /* Of two equal texts the vocabulary knows the later one. */
        if (text.len > 0 && ech_lexicon_find(&t->model.lex, text.ptr, text.len) != (int32_t)i)
            continue;
        const ech_added_token token = { .text = text,
                                        .id = (int32_t)i,
                                        .special = type != ECH_PIECE_USER_DEFINED };
        ECH_TRY(ech_tokenizer_add_token(t, token, err));
    }
    return ECH_OK;
}

/*
 * A merge is two parts with a space between; the search begins at the second byte, since the left
 * part is never empty.
 */
static ech_status add_merges(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                             ech_error *const err)
{
    ECH_TRY(ech_model_reserve_merges(&t->model, v->n_merges));
    for (size_t i = 0; i < v->n_merges; i++) {
        const ech_piece m = v->merges[i];
        const char *const space = m.len > 1 ? memchr(m.ptr + 1, ' ', m.len - 1) : NULL;
        if (space == NULL)
            return ech_fail(err, ECH_EFORMAT,
                            "reading a GGUF tokenizer: merge %zu is not two parts", i);
        const size_t left = (size_t)(space - m.ptr);
        const ech_str a = { m.ptr, left }, b = { space + 1, m.len - left - 1 };
        ECH_TRY(ech_model_add_merge(&t->model, a, b, (uint32_t)i, err));
    }
    return ECH_OK;
}

/* ---- SentencePiece BPE: merges from scores ---- */

/* One way to make a token of two. */
typedef struct split {
    double score;
    uint32_t left_chars, right_chars; /* lengths of the parts in characters */
    int32_t id, left, right;
    uint32_t left_len; /* in bytes */
} split;

typedef struct splits {
    split *data;
    size_t n, cap;
} splits;

static uint32_t count_chars(const char *const s, const size_t len)
{
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += ((uint8_t)s[i] & 0xC0) != 0x80;
    }
    return n;
}

/* The list may have several times as many entries as the vocabulary has tokens. */
static ech_status splits_push(splits *const list, const split s)
{
    if (list->n == list->cap) {
        const size_t cap = list->cap == 0 ? 4096 : list->cap * 2;
        split *const data = realloc(list->data, cap * sizeof *data);
        if (data == NULL) return ECH_ENOMEM;
        list->data = data;
        list->cap = cap;
    }
    list->data[list->n++] = s;
    return ECH_OK;
}

/*
 * Best score first, then longer parts first; among the ways to make one token, lower ids first.
 * This is the order in which the conversion of SentencePiece models to tokenizer.json ranks the
 * merges, so ids come out equal. It is total, so qsort's order of equals doesn't matter.
 */
static int compare_splits(const void *const pa, const void *const pb)
{
    const split *const a = pa, *const b = pb;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->left_chars != b->left_chars) return a->left_chars > b->left_chars ? -1 : 1;
    if (a->right_chars != b->right_chars) return a->right_chars > b->right_chars ? -1 : 1;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

/*
 * Every cut at a character's border whose two sides are tokens. Tokens over 512 bytes (runs of one
 * character) would make their cost quadratic and are made by no merge.
 */
static ech_status add_splits(const ech_model *const m, const ech_gguf_vocab *const v,
                             const size_t id, splits *const list)
{
    const ech_str text = m->lex.texts[id];
    if (text.len > 512) return ECH_OK;
    for (size_t cut = 1; cut < text.len; cut++) {
        if (((uint8_t)text.ptr[cut] & 0xC0) == 0x80) continue;
        const int32_t left = ech_lexicon_find(&m->lex, text.ptr, cut);
        const int32_t right =
            left < 0 ? -1 : ech_lexicon_find(&m->lex, text.ptr + cut, text.len - cut);
        if (right < 0) continue;
        const split s = { v->scores[id],
                          count_chars(text.ptr, cut),
                          count_chars(text.ptr + cut, text.len - cut),
                          (int32_t)id,
                          left,
                          right,
                          (uint32_t)cut };
        ECH_TRY(splits_push(list, s));
    }
    return ECH_OK;
}

/*
 * The file holds no merges for this kind, only scores; a token's score ranks all ways to make it.
 */
static ech_status merges_from_scores(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                                     ech_error *const err)
{
    splits list = { 0 };
    ech_status rc = ECH_OK;
    for (size_t i = 0; rc == ECH_OK && i < v->n_tokens; i++) {
        const int32_t type = type_of(v, i);
        if (type == ECH_PIECE_NORMAL || type == ECH_PIECE_USER_DEFINED)
            rc = add_splits(&t->model, v, i, &list);
    }
    if (list.n > 0) qsort(list.data, list.n, sizeof *list.data, compare_splits);
    if (rc == ECH_OK) rc = ech_model_reserve_merges(&t->model, list.n);
    for (size_t i = 0; rc == ECH_OK && i < list.n; i++) {
        const ech_str text = t->model.lex.texts[list.data[i].id];
        const size_t cut = list.data[i].left_len;
        rc = ech_model_add_merge(&t->model, (ech_str){ text.ptr, cut },
                                 (ech_str){ text.ptr + cut, text.len - cut }, (uint32_t)i, err);
    }
    free(list.data);
    return rc;
}

/* ---- The kinds ---- */

static ech_status set_around(ech_tokenizer *const t, const int32_t before, const int32_t after)
{
    if (before >= 0) t->before[t->n_before++] = before;
    if (after >= 0) t->after[t->n_after++] = after;
    return ECH_OK;
}

/* Whether to add, by the file or the kind's habit. */
static bool adds(const int said, const bool habit)
{
    return said < 0 ? habit : said != 0;
}

/* Llama 3's files may say nothing about BOS although the original tokenizer adds it. */
static ech_status open_gpt2(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                            ech_error *const err)
{
    const char *name = v->pre;
    if (name == NULL || strcmp(name, "default") == 0) {
        ech_log(ECH_LOG_WARN,
                "the GGUF file names no tokenizer.ggml.pre: text is cut by GPT-2's rule");
        name = "gpt-2";
    }
    const pre_rule *const rule = find_rule(name);
    if (rule == NULL) return unknown_rule(name, err);
    ECH_TRY(ech_model_init(&t->model, ECH_MODEL_BPE, v->n_tokens));
    ECH_TRY(add_rule(t, rule, err));
    ECH_TRY(add_pieces(t, v, err));
    if (t->tables == NULL) ECH_TRY(add_merges(t, v, err));
    t->model.is_byte_level = true;
    ECH_TRY(ech_decoder_add(&t->decoder, (ech_decode_op){ .kind = ECH_DECODE_BYTE_LEVEL }));
    const bool bos =
        adds(v->add_bos, rule->patterns[0] != NULL && strcmp(rule->patterns[0], LLAMA3) == 0 &&
                             rule->ignores_merges);
    return set_around(t, bos ? v->bos_id : ECH_NO_ID,
                      adds(v->add_eos, false) ? v->eos_id : ECH_NO_ID);
}

/* The decoder of SentencePiece models: U+2581 is a space, bytes are bytes. */
static ech_status add_sentencepiece_decoder(ech_tokenizer *const t, const bool strips)
{
    const ech_decode_op spaces = { .kind = ECH_DECODE_REPLACE,
                                   .pattern = ECH_STR_LIT(META),
                                   .content = ECH_STR_LIT(" ") };
    const ech_decode_op strip = { .kind = ECH_DECODE_STRIP,
                                  .content = ECH_STR_LIT(" "),
                                  .start = 1 };
    ECH_TRY(ech_decoder_add(&t->decoder, spaces));
    ECH_TRY(ech_decoder_add(&t->decoder, (ech_decode_op){ .kind = ECH_DECODE_BYTE_FALLBACK }));
    ECH_TRY(ech_decoder_add(&t->decoder, (ech_decode_op){ .kind = ECH_DECODE_FUSE }));
    return strips ? ech_decoder_add(&t->decoder, strip) : ECH_OK;
}

/*
 * There is no pre-tokenizer: a whole text is one piece, cut at U+2581 by the model where that is
 * safe.
 */
static ech_status open_llama(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                             ech_error *const err)
{
    if (v->scores == NULL)
        return ech_fail(err, ECH_EFORMAT,
                        "reading a GGUF tokenizer: model \"llama\" without scores");
    const bool prefix = adds(v->add_space_prefix, true);
    const ech_norm_op prepend = { .kind = ECH_NORM_PREPEND, .content = ECH_STR_LIT(META) };
    const ech_norm_op spaces = { .kind = ECH_NORM_REPLACE,
                                 .pattern = ECH_STR_LIT(" "),
                                 .content = ECH_STR_LIT(META) };
    ECH_TRY(ech_model_init(&t->model, ECH_MODEL_BPE, v->n_tokens));
    if (prefix) ECH_TRY(ech_normalizer_add(&t->normalizer, prepend));
    ECH_TRY(ech_normalizer_add(&t->normalizer, spaces));
    ECH_TRY(add_pieces(t, v, err));
    if (t->tables == NULL) ECH_TRY(merges_from_scores(t, v, err));
    t->model.byte_fallback = true;
    t->model.fuse_unk = true;
    t->model.has_unk = v->unk_id >= 0;
    t->model.unk_id = v->unk_id;
    ECH_TRY(add_sentencepiece_decoder(t, prefix));
    return set_around(t, adds(v->add_bos, true) ? v->bos_id : ECH_NO_ID,
                      adds(v->add_eos, false) ? v->eos_id : ECH_NO_ID);
}

/* In SentencePiece's order: the table of characters, then the ends, then runs of spaces. */
static ech_status t5_normalizer(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                                ech_error *const err)
{
    if (v->charsmap_len > 0) {
        const ech_str map = {
            ech_arena_strdup(&t->arena, (ech_str){ v->charsmap, v->charsmap_len }), v->charsmap_len
        };
        if (map.ptr == NULL) return ECH_ENOMEM;
        if (!ech_charsmap_valid(map))
            return ech_fail(err, ECH_EFORMAT,
                            "reading a GGUF tokenizer: its precompiled_charsmap is malformed");
        ECH_TRY(ech_normalizer_add(&t->normalizer,
                                   (ech_norm_op){ .kind = ECH_NORM_PRECOMPILED, .content = map }));
    }
    if (!adds(v->remove_extra_whitespaces, true)) return ECH_OK;
    ech_norm_op runs = { .kind = ECH_NORM_REPLACE,
                         .pattern = ECH_STR_LIT(" {2,}"),
                         .content = ECH_STR_LIT(" ") };
    ECH_TRY(
        ech_normalizer_add(&t->normalizer, (ech_norm_op){ .kind = ECH_NORM_STRIP, .flags = 3 }));
    ECH_TRY(ech_regex_create(&runs.re, runs.pattern, err));
    return ech_normalizer_add(&t->normalizer, runs);
}

/* An unknown character costs 10 more than the worst piece: SentencePiece's penalty. */
static ech_status open_t5(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                          ech_error *const err)
{
    if (v->scores == NULL)
        return ech_fail(err, ECH_EFORMAT, "reading a GGUF tokenizer: model \"t5\" without scores");
    ECH_TRY(ech_model_init(&t->model, ECH_MODEL_UNIGRAM, v->n_tokens));
    ECH_TRY(t5_normalizer(t, v, err));
    ECH_TRY(add_pieces(t, v, err));
    ech_model *const m = &t->model;
    m->scores = malloc((v->n_tokens + 1) * sizeof *m->scores);
    if (m->scores == NULL) return ECH_ENOMEM;
    ECH_TRY(ech_trie_init(&m->trie));
    double lowest = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        m->scores[i] = v->scores[i];
        if (v->scores[i] < lowest) lowest = v->scores[i];
        ECH_TRY(ech_trie_add(&m->trie, m->lex.texts[i], (int32_t)i, false));
    }
    m->unk_score = lowest - 10.0;
    m->unk_id = v->unk_id;
    const bool prefix = adds(v->add_space_prefix, true);
    const ech_pretok_op op = { .kind = ECH_PRETOK_METASPACE,
                               .behavior = ECH_SPLIT_MERGED_WITH_NEXT,
                               .scheme = prefix ? ECH_META_ALWAYS : ECH_META_NEVER,
                               .pattern = ECH_STR_LIT(META) };
    ECH_TRY(ech_pretok_add(&t->pretok, op));
    const ech_decode_op spaces = { .kind = ECH_DECODE_METASPACE,
                                   .pattern = ECH_STR_LIT(META),
                                   .strips_start = prefix };
    ECH_TRY(ech_decoder_add(&t->decoder, spaces));
    return set_around(t, adds(v->add_bos, false) ? v->bos_id : ECH_NO_ID,
                      adds(v->add_eos, true) ? v->eos_id : ECH_NO_ID);
}

/* The uncased normalizer: a GGUF file doesn't say which one the model had. */
static ech_status open_bert(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                            ech_error *const err)
{
    static const ech_norm_kind STEPS[] = { ECH_NORM_BERT_CLEAN, ECH_NORM_BERT_CHINESE, ECH_NORM_NFD,
                                           ECH_NORM_BERT_ACCENTS, ECH_NORM_LOWERCASE };
    ECH_TRY(ech_model_init(&t->model, ECH_MODEL_WORDPIECE, v->n_tokens));
    t->model.prefix = ECH_STR_LIT("##");
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        ECH_TRY(ech_normalizer_add(&t->normalizer, (ech_norm_op){ .kind = STEPS[i] }));
    }
    ECH_TRY(ech_pretok_add(&t->pretok, (ech_pretok_op){ .kind = ECH_PRETOK_WHITESPACE_SPLIT,
                                                        .behavior = ECH_SPLIT_REMOVED }));
    ECH_TRY(ech_pretok_add(&t->pretok, (ech_pretok_op){ .kind = ECH_PRETOK_PUNCTUATION }));
    ECH_TRY(add_pieces(t, v, err));
    t->model.unk_id = v->unk_id;
    const ech_decode_op join = { .kind = ECH_DECODE_WORDPIECE,
                                 .pattern = ECH_STR_LIT("##"),
                                 .cleans_up = true };
    ECH_TRY(ech_decoder_add(&t->decoder, join));
    const int32_t cls = v->cls_id >= 0 ? v->cls_id : v->bos_id,
                  sep = v->sep_id >= 0 ? v->sep_id : v->eos_id;
    return set_around(t, adds(v->add_bos, true) ? cls : ECH_NO_ID,
                      adds(v->add_eos, true) ? sep : ECH_NO_ID);
}

/* ---- All of them ---- */

static ech_status check_vocab(const ech_gguf_vocab *const v, ech_error *const err)
{
    const int32_t ids[] = { v->bos_id, v->eos_id, v->unk_id, v->pad_id, v->sep_id, v->cls_id };
    if (v->struct_size != sizeof *v)
        return ech_fail(err, ECH_EINVAL,
                        "reading a GGUF tokenizer: start from ech_gguf_vocab_default()");
    if (v->model == NULL || v->tokens == NULL || v->n_tokens == 0) {
        return ech_fail(
            err, ECH_EFORMAT,
            "reading a GGUF tokenizer: tokenizer.ggml.model or tokenizer.ggml.tokens is missing");
    }
    if (v->n_tokens > ECH_LEXICON_MAX_IDS || v->n_merges > ECH_LEXICON_MAX_IDS) {
        return ech_fail(err, ECH_ELIMIT, "reading a GGUF tokenizer: more than %d tokens or merges",
                        ECH_LEXICON_MAX_IDS);
    }
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i] < ECH_NO_ID || ids[i] >= (int64_t)v->n_tokens) {
            return ech_fail(
                err, ECH_EFORMAT,
                "reading a GGUF tokenizer: special id %d is not in the vocabulary of %zu", ids[i],
                v->n_tokens);
        }
    }
    for (size_t i = 0; v->scores != NULL && i < v->n_tokens; i++) {
        if (!isfinite(v->scores[i]))
            return ech_fail(err, ECH_EFORMAT, "reading a GGUF tokenizer: score %zu is not a number",
                            i);
    }
    return ECH_OK;
}

/* By the value of tokenizer.ggml.model. */
static ech_status open_kind(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                            ech_error *const err)
{
    if (strcmp(v->model, "gpt2") == 0) return open_gpt2(t, v, err);
    if (strcmp(v->model, "llama") == 0) return open_llama(t, v, err);
    if (strcmp(v->model, "t5") == 0) return open_t5(t, v, err);
    if (strcmp(v->model, "bert") == 0) return open_bert(t, v, err);
    return ech_fail(err, ECH_EUNSUPPORTED,
                    "reading a GGUF tokenizer: tokenizer.ggml.model \"%.40s\" is not supported; "
                    "known: gpt2 llama t5 bert",
                    v->model);
}

static void set_special(ech_tokenizer *const t, const ech_special which, const int32_t id)
{
    t->special_ids[which] = id;
    t->special_texts[which] = ech_tokenizer_text(t, id).ptr;
}

static ech_status open_all(ech_tokenizer *const t, const ech_gguf_vocab *const v,
                           ech_error *const err)
{
    ECH_TRY(open_kind(t, v, err));
    ECH_TRY(add_added(t, v, err));
    ECH_TRY(ech_tokenizer_finish(t, err));
    set_special(t, ECH_SPECIAL_BOS, v->bos_id);
    set_special(t, ECH_SPECIAL_EOS, v->eos_id);
    set_special(t, ECH_SPECIAL_UNK, v->unk_id);
    set_special(t, ECH_SPECIAL_PAD, v->pad_id);
    set_special(t, ECH_SPECIAL_SEP, v->sep_id);
    set_special(t, ECH_SPECIAL_CLS, v->cls_id);
    return ECH_OK;
}

/* Of every byte that the tables depend on: each hash is the next one's seed. */
static void digest(const ech_gguf_vocab *const v, uint64_t ret[2])
{
    const int64_t head[] = { (int64_t)v->n_tokens, (int64_t)v->n_merges, v->scores != NULL,
                             v->types != NULL, v->add_space_prefix };
    const char *const pre = v->pre != NULL ? v->pre : "";
    uint64_t h = XXH3_64bits(head, sizeof head);
    h = XXH3_64bits_withSeed(v->model, strlen(v->model), h);
    h = XXH3_64bits_withSeed(pre, strlen(pre), h);
    if (v->scores != NULL)
        h = XXH3_64bits_withSeed(v->scores, v->n_tokens * sizeof *v->scores, h);
    if (v->types != NULL) h = XXH3_64bits_withSeed(v->types, v->n_tokens * sizeof *v->types, h);
    for (size_t i = 0; i < v->n_tokens; i++)
        h = XXH3_64bits_withSeed(v->tokens[i].ptr, v->tokens[i].len, h);
    ret[0] = h;
    for (size_t i = 0; i < v->n_merges; i++)
        h = XXH3_64bits_withSeed(v->merges[i].ptr, v->merges[i].len, h);
    ret[1] = h;
}

/*
 * Errors are collected in detail first: some calls return a bare status, which then gets a text
 * here.
 */
static ech_status open_once(ech_tokenizer **const ret_tok, const ech_gguf_vocab *const vocab,
                            const uint64_t of[2], const ech_tok_tables *const tables,
                            ech_error *const err)
{
    ech_tokenizer *t = ech_tokenizer_new();
    ech_error detail = { 0 };
    if (t != NULL) {
        memcpy(t->source.digest, of, sizeof t->source.digest);
        t->tables = tables;
    }
    const ech_status rc = t == NULL ? ECH_ENOMEM : open_all(t, vocab, &detail);
    if (rc == ECH_OK) {
        t->tables = NULL;
        t->had_tables = tables != NULL;
        *ret_tok = t;
        return rc;
    }
    ech_tokenizer_close(&t);
    if (detail.code != rc)
        return ech_fail(err, rc, "reading a GGUF tokenizer: %s", ech_status_str(rc));
    if (err != NULL) *err = detail;
    return rc;
}

/* Tables that turn out to be wrong are as none. */
ech_status ech_tokenizer_open_gguf_with(ech_tokenizer **const ret_tok,
                                        const ech_gguf_vocab *const vocab, const ech_str tables,
                                        ech_error *const err)
{
    ech_tok_tables view;
    uint64_t of[2];
    ECH_TRY(check_vocab(vocab, err));
    digest(vocab, of);
    if (ech_tok_tables_view(tables, of, &view) && view.n_ids == vocab->n_tokens &&
        open_once(ret_tok, vocab, of, &view, NULL) == ECH_OK)
        return ECH_OK;
    return open_once(ret_tok, vocab, of, NULL, err);
}

ech_status ech_tokenizer_open_gguf(ech_tokenizer **const ret_tok, const ech_gguf_vocab *const vocab,
                                   ech_error *const err)
{
    return ech_tokenizer_open_gguf_with(ret_tok, vocab, (ech_str){ 0 }, err);
}
