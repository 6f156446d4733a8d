/* SPDX-License-Identifier: Apache-2.0 */
/* From GGUF metadata to a tokenizer. Called once, while an engine is opened. */
#include "src/engine/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "echelon/engine.h"
#include "src/base/arena.h"
#include "src/base/error.h"
#include "src/text/tokenizer_tables.h"

/* What the vocabulary borrows while the tokenizer is made. */
typedef struct borrowed {
    ech_arena strings;
    ech_piece *tokens;
    ech_piece *merges;
    float *scores;
    int32_t *types;
} borrowed;

/* A string of the metadata as a C string; NULL when it has none or has a zero inside. */
static const char *get_text(const ech_model *m, borrowed *b, const char *key)
{
    ech_str s = { 0 };
    if (!ech_model_meta_str(m, key, &s) || memchr(s.ptr, 0, s.len) != NULL) return NULL;
    return ech_arena_strdup(&b->strings, s);
}

static int get_flag(const ech_model *m, const char *key)
{
    bool on = false;
    return ech_model_meta_bool(m, key, &on) ? on : -1;
}

static int32_t get_id(const ech_model *m, const char *key)
{
    int64_t id = 0;
    return ech_model_meta_int(m, key, &id) && id >= 0 && id <= INT32_MAX ? (int32_t)id : ECH_NO_ID;
}

/* An array of strings as pieces, for free(); NULL when the metadata has none. */
static ech_piece *get_pieces(const ech_model *m, const char *key, size_t *ret_n)
{
    ech_str *strings = NULL;
    if (!ech_model_meta_strings(m, key, &strings, ret_n)) return NULL;
    ech_piece *const pieces = calloc(*ret_n + 1, sizeof *pieces);
    for (size_t i = 0; pieces != NULL && i < *ret_n; i++)
        pieces[i] = (ech_piece){ strings[i].ptr, strings[i].len };
    free(strings);
    return pieces;
}

/* Arrays beside the tokens have their length, or are left out. */
static void get_arrays(const ech_model *m, borrowed *b, ech_gguf_vocab *v)
{
    size_t n = 0;
    b->tokens = get_pieces(m, "tokenizer.ggml.tokens", &v->n_tokens);
    b->merges = get_pieces(m, "tokenizer.ggml.merges", &v->n_merges);
    if (ech_model_meta_floats(m, "tokenizer.ggml.scores", &b->scores, &n) && n == v->n_tokens)
        v->scores = b->scores;
    if (ech_model_meta_ints(m, "tokenizer.ggml.token_type", &b->types, &n) && n == v->n_tokens)
        v->types = b->types;
    v->tokens = b->tokens;
    v->merges = b->merges;
}

static ech_gguf_vocab get_vocab(const ech_model *m, borrowed *b)
{
    ech_gguf_vocab v = ech_gguf_vocab_default();
    v.model = get_text(m, b, "tokenizer.ggml.model");
    v.pre = get_text(m, b, "tokenizer.ggml.pre");
    v.bos_id = get_id(m, "tokenizer.ggml.bos_token_id");
    v.eos_id = get_id(m, "tokenizer.ggml.eos_token_id");
    v.unk_id = get_id(m, "tokenizer.ggml.unknown_token_id");
    v.pad_id = get_id(m, "tokenizer.ggml.padding_token_id");
    v.sep_id = get_id(m, "tokenizer.ggml.seperator_token_id"); /* the format spells it so */
    v.cls_id = get_id(m, "tokenizer.ggml.cls_token_id");
    v.add_bos = get_flag(m, "tokenizer.ggml.add_bos_token");
    v.add_eos = get_flag(m, "tokenizer.ggml.add_eos_token");
    v.add_space_prefix = get_flag(m, "tokenizer.ggml.add_space_prefix");
    v.remove_extra_whitespaces = get_flag(m, "tokenizer.ggml.remove_extra_whitespaces");
    get_arrays(m, b, &v);
    return v;
}

static ech_status open_gguf(const ech_model *m, ech_str tables, ech_tokenizer **ret_tok,
                            ech_error *err)
{
    borrowed b = { 0 };
    ech_model_info info;
    ech_model_get_info(m, &info);
    const ech_gguf_vocab v = get_vocab(m, &b);
    ech_status rc;
    if (v.model == NULL || v.tokens == NULL)
        rc = ech_fail(err, ECH_EFORMAT,
                      "key tokenizer.ggml.model or tokenizer.ggml.tokens is missing");
    else
        rc = ech_tokenizer_open_gguf_with(ret_tok, &v, tables, err);
    if (rc != ECH_OK) (void)ech_error_prefix(err, rc, "opening the tokenizer of %s", info.path);
    ech_arena_fini(&b.strings);
    free(b.tokens);
    free(b.merges);
    free(b.scores);
    free(b.types);
    return rc;
}

ech_status ech_vocab_open(const ech_model *model, ech_str tables, ech_tokenizer **ret_tok,
                          ech_error *err)
{
    ech_model_info info;
    ech_model_get_info(model, &info);
    if (strcmp(info.format, "gguf") == 0) return open_gguf(model, tables, ret_tok, err);
    return ech_tokenizer_open_with(ret_tok, ech_model_folder(model), tables, err);
}

static ech_status open_from_model(ech_tokenizer **ret_tok, const char *path, ech_error *err)
{
    ech_model *model = NULL;
    ECH_TRY(ech_model_open(&model, path, err));
    const ech_status rc = ech_vocab_open(model, (ech_str){ 0 }, ret_tok, err);
    ech_model_close(&model);
    return rc;
}

ech_status ech_engine_open_tokenizer(ech_tokenizer **ret_tok, const char *model_dir, ech_error *err)
{
    struct stat st;
    if (stat(model_dir, &st) == 0 && S_ISREG(st.st_mode))
        return open_from_model(ret_tok, model_dir, err);
    const ech_status rc = ech_tokenizer_open(ret_tok, model_dir, err);
    /* A folder that holds a GGUF file needs no tokenizer.json; the first error is the clearer one.
     */
    return rc == ECH_ENOTFOUND && open_from_model(ret_tok, model_dir, NULL) == ECH_OK ? ECH_OK : rc;
}
