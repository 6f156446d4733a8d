/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers from GGUF arrays. The two published ones are turned into such arrays here, as a
 * converter would, and must give the ids of their tokenizer.json; the other kinds are small. The
 * argument is the folder of the unpacked golden tokenizers.
 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/tokenizer.h"
#include "src/text/tokenizer_tables.h"

static const char *golden;

#define META "\xE2\x96\x81"

/* The arrays of a tokenizer.json; they point into doc and text. */
typedef struct arrays {
    json_t *doc;
    ech_piece *tokens, *merges;
    int32_t *types;
    char **merge_texts;
    ech_gguf_vocab vocab;
} arrays;

static ech_piece piece_of(const char *const s)
{
    return (ech_piece){ s, strlen(s) };
}

static void put_token(arrays *const a, const int64_t id, const char *const text, const int32_t type)
{
    a->tokens[id] = piece_of(text);
    a->types[id] = type;
    if ((size_t)id >= a->vocab.n_tokens) a->vocab.n_tokens = (size_t)id + 1;
}

static void convert(arrays *const a, const char *const name, const char *const pre)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s/tokenizer.json", golden, name);
    *a = (arrays){ .doc = json_load_file(path, 0, NULL), .vocab = ech_gguf_vocab_default() };
    assert_non_null(a->doc);
    const json_t *const model = json_object_get(a->doc, "model"), *const merges = json_object_get(
                                                                      model, "merges");
    const size_t n = 200000, n_merges = json_array_size(merges);
    a->tokens = calloc(n, sizeof *a->tokens);
    a->types = calloc(n, sizeof *a->types);
    a->merges = calloc(n_merges, sizeof *a->merges);
    a->merge_texts = calloc(n_merges, sizeof *a->merge_texts);
    const char *key;
    json_t *id;
    json_object_foreach(json_object_get(model, "vocab"), key, id)
    {
        put_token(a, json_integer_value(id), key, ECH_PIECE_NORMAL);
    }
    const json_t *const added = json_object_get(a->doc, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *const t = json_array_get(added, i);
        put_token(a, json_integer_value(json_object_get(t, "id")),
                  json_string_value(json_object_get(t, "content")),
                  json_is_true(json_object_get(t, "special")) ? ECH_PIECE_CONTROL
                                                              : ECH_PIECE_USER_DEFINED);
    }
    for (size_t i = 0; i < n_merges; i++) {
        const json_t *const m = json_array_get(merges, i);
        const char *const l = json_string_value(json_array_get(m, 0)), *const r = json_string_value(
                                                                           json_array_get(m, 1));
        a->merge_texts[i] = malloc(strlen(l) + strlen(r) + 2);
        (void)sprintf(a->merge_texts[i], "%s %s", l, r);
        a->merges[i] = piece_of(a->merge_texts[i]);
    }
    for (size_t i = 0; i < a->vocab.n_tokens; i++) {
        if (a->tokens[i].ptr == NULL) a->tokens[i] = piece_of("");
    }
    a->vocab.model = "gpt2";
    a->vocab.pre = pre;
    a->vocab.tokens = a->tokens;
    a->vocab.types = a->types;
    a->vocab.merges = a->merges;
    a->vocab.n_merges = n_merges;
    a->vocab.bos_id = 1;
}

static void arrays_free(arrays *const a)
{
    for (size_t i = 0; i < a->vocab.n_merges; i++) {
        free(a->merge_texts[i]);
    }
    free(a->merge_texts);
    free(a->merges);
    free(a->tokens);
    free(a->types);
    json_decref(a->doc);
}

static void check_line(const ech_tokenizer *const a, const ech_tokenizer *const b,
                       const char *const line, const size_t number)
{
    json_t *const row = json_loads(line, JSON_ALLOW_NUL, NULL);
    const json_t *const text = json_object_get(row, "text");
    ech_ids x = { 0 }, y = { 0 };
    assert_int_equal(ech_tokenizer_encode(a, json_string_value(text), json_string_length(text),
                                          ECH_ENCODE_SPECIAL, &x, NULL),
                     ECH_OK);
    assert_int_equal(ech_tokenizer_encode(b, json_string_value(text), json_string_length(text),
                                          ECH_ENCODE_SPECIAL, &y, NULL),
                     ECH_OK);
    if (x.n != y.n || memcmp(x.data, y.data, x.n * sizeof *x.data) != 0)
        fail_msg("ids of line %zu differ", number);
    char *s = NULL, *t = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(ech_tokenizer_decode(a, x.data, x.n, ECH_DECODE_SKIP_SPECIAL, &s, &n, NULL),
                     ECH_OK);
    assert_int_equal(ech_tokenizer_decode(b, x.data, x.n, ECH_DECODE_SKIP_SPECIAL, &t, &m, NULL),
                     ECH_OK);
    assert_int_equal(n, m);
    assert_memory_equal(s, t, n);
    free(s);
    free(t);
    ech_ids_fini(&x);
    ech_ids_fini(&y);
    json_decref(row);
}

static ech_tokenizer *open_with(const ech_gguf_vocab *const v, const ech_buf *const tables)
{
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    if (ech_tokenizer_open_gguf_with(&tok, v, ech_buf_view(tables), &err) != ECH_OK)
        fail_msg("%s", err.text);
    return tok;
}

/* Opened with the tables of an earlier opening; those of other arrays aren't used. */
static ech_tokenizer *open_again(ech_gguf_vocab *const v)
{
    ech_buf tables = { 0 };
    ech_tokenizer *fresh = open_with(v, &tables);
    assert_int_equal(ech_tokenizer_write_tables(fresh, &tables), ECH_OK);
    ech_tokenizer_close(&fresh);
    v->n_merges--;
    ech_tokenizer *other = open_with(v, &tables);
    assert_false(ech_tokenizer_had_tables(other));
    ech_tokenizer_close(&other);
    v->n_merges++;
    ech_tokenizer *const tok = open_with(v, &tables);
    assert_true(ech_tokenizer_had_tables(tok));
    ech_buf_fini(&tables);
    return tok;
}

static void check_against_json(const char *const name, const char *const pre)
{
    arrays a;
    convert(&a, name, pre);
    ech_tokenizer *gguf = NULL, *json = NULL, *again = open_again(&a.vocab);
    ech_error err = { 0 };
    if (ech_tokenizer_open_gguf(&gguf, &a.vocab, &err) != ECH_OK) fail_msg("%s", err.text);
    arrays_free(&a);
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", golden, name);
    assert_int_equal(ech_tokenizer_open(&json, path, NULL), ECH_OK);
    assert_int_equal(ech_tokenizer_n_ids(gguf), ech_tokenizer_n_ids(json));
    (void)snprintf(path, sizeof path, "%s/%s/golden.jsonl", golden, name);
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    for (size_t i = 1; getline(&line, &cap, f) > 0; i++) {
        /* Added tokens that strip space or must be words: GGUF has no way to say that. */
        if (strstr(line, "mark") != NULL || strstr(line, "word") != NULL) continue;
        check_line(gguf, json, line, i);
        check_line(again, json, line, i);
    }
    free(line);
    (void)fclose(f);
    ech_tokenizer_close(&again);
    ech_tokenizer_close(&gguf);
    ech_tokenizer_close(&json);
}

static void byte_level_arrays_give_the_ids_of_the_json(void **state)
{
    (void)state;
    check_against_json("qwen3", "qwen2");
    check_against_json("smollm2", "smollm");
    check_against_json("llama3", "llama-bpe");
    check_against_json("o200k", "gpt-4o");
    check_against_json("deepseek", "deepseek-v3");
    check_against_json("gpt2", "gpt-2");
}

/* A vocabulary of these texts; scores fall with the id. */
typedef struct small {
    ech_piece tokens[32];
    float scores[32];
    int32_t types[32];
    ech_gguf_vocab vocab;
} small;

static void make_small(small *const s, const char *const model, const char *const *const texts,
                       const size_t n)
{
    *s = (small){ .vocab = ech_gguf_vocab_default() };
    for (size_t i = 0; i < n; i++) {
        s->tokens[i] = piece_of(texts[i]);
        s->scores[i] = -(float)i;
        s->types[i] =
            texts[i][0] == '<' || texts[i][0] == '[' ? ECH_PIECE_CONTROL : ECH_PIECE_NORMAL;
    }
    s->vocab.model = model;
    s->vocab.tokens = s->tokens;
    s->vocab.scores = s->scores;
    s->vocab.types = s->types;
    s->vocab.n_tokens = n;
    s->vocab.unk_id = 0;
    s->vocab.bos_id = 1;
    s->vocab.eos_id = 2;
}

static void check_small(const small *const s, const char *const text, const char *const want,
                        const char *const decoded)
{
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    ech_ids ids = { 0 };
    char got[256] = "", *back = NULL;
    size_t n = 0;
    if (ech_tokenizer_open_gguf(&tok, &s->vocab, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(ech_tokenizer_encode(tok, text, strlen(text),
                                          ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD, &ids, NULL),
                     ECH_OK);
    for (size_t i = 0; i < ids.n; i++) {
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%d", i > 0 ? " " : "", ids.data[i]);
    }
    assert_string_equal(got, want);
    assert_int_equal(
        ech_tokenizer_decode(tok, ids.data, ids.n, ECH_DECODE_SKIP_SPECIAL, &back, &n, NULL),
        ECH_OK);
    assert_string_equal(back, decoded);
    free(back);
    ech_ids_fini(&ids);
    ech_tokenizer_close(&tok);
}

static void sentencepiece_merges_by_score(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "<unk>", "<s>", "</s>", META "ab", "bc",     "ab",
                                         META,    "a",   "b",    "c",       "<0xC3>", "<0xA9>" };
    small s;
    make_small(&s, "llama", TEXTS, 12);
    s.types[10] = s.types[11] = ECH_PIECE_BYTE;
    check_small(&s, "abc", "1 6 7 4", "abc"); /* bc has the better score than ab */
    check_small(&s, "ab\xC3\xA9 c", "1 3 10 11 6 9", "ab\xC3\xA9 c");
    s.vocab.add_space_prefix = 0;
    check_small(&s, "ab", "1 5", "ab");
    s.vocab.add_bos = 0;
    s.vocab.add_eos = 1;
    check_small(&s, "a</s>b", "7 2 8 2", "ab");
}

static void unigram_takes_the_best_way(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "<unk>", "<s>", "</s>", META, "a", "b", META "ab", "c" };
    small s;
    make_small(&s, "t5", TEXTS, 8);
    check_small(&s, " ab  x", "6 3 0 2", "ab ");
}

static void wordpiece_puts_the_hashes_back(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "[UNK]", "[CLS]", "[SEP]", META "un",
                                         "aff",   "able",  META "a" };
    small s;
    make_small(&s, "bert", TEXTS, 7);
    check_small(&s,
                "Un\xC3\xA0"
                "ffable x a",
                "1 3 4 5 0 6 2", "unaffable a");
    check_small(&s, "UNAFFABLE", "1 3 4 5 2", "unaffable");
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "<unk>", "<s>", "</s>", "a" };
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    small s;
    make_small(&s, "gpt2", TEXTS, 4);
    s.vocab.pre = "unheard-of";
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "unheard-of"));
    assert_non_null(strstr(err.text, "qwen2"));
    make_small(&s, "rwkv", TEXTS, 4);
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EUNSUPPORTED);
    make_small(&s, "llama", TEXTS, 4);
    s.vocab.bos_id = 4;
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EFORMAT);
    make_small(&s, "llama", TEXTS, 4);
    s.scores[3] = (float)NAN;
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EFORMAT);
    make_small(&s, "llama", TEXTS, 4);
    s.tokens[3] = piece_of("\xFF");
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EFORMAT);
    make_small(&s, "llama", TEXTS, 4);
    s.vocab.struct_size = 1;
    assert_int_equal(ech_tokenizer_open_gguf(&tok, &s.vocab, &err), ECH_EINVAL);
    assert_null(tok);
}

int main(const int argc, char **const argv)
{
    if (argc != 2) return 2;
    golden = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_arrays_give_the_ids_of_the_json),
        cmocka_unit_test(sentencepiece_merges_by_score),
        cmocka_unit_test(unigram_takes_the_best_way),
        cmocka_unit_test(wordpiece_puts_the_hashes_back),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
