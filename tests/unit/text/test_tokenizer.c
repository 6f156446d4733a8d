/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Behaviour of small tokenizers made here: options of each part, origin of bytes, streams, and what
 * malformed or hostile files get. Exactness on real ones is test_tokenizer_golden.c's.
 */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/utf8.h"

/* A tokenizer.json around these members. */
static ech_status open_parts(ech_tokenizer **const ret_tok, const char *const parts,
                             ech_error *const err)
{
    return ech_tokenizer_open_json(ret_tok, parts, strlen(parts), NULL, 0, err);
}

static ech_tokenizer *must_open(const char *const json)
{
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    if (open_parts(&tok, json, &err) != ECH_OK) fail_msg("%s", err.text);
    return tok;
}

/* Ids as "1 2 3". */
static const char *encoded(const ech_tokenizer *const tok, const char *const text,
                           const unsigned flags)
{
    static char out[1024];
    ech_ids ids = { 0 };
    ech_error err = { 0 };
    if (ech_tokenizer_encode(tok, text, strlen(text), flags, &ids, &err) != ECH_OK)
        fail_msg("%s", err.text);
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ids.n && n < sizeof out - 16; i++) {
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", i > 0 ? " " : "", ids.data[i]);
    }
    ech_ids_fini(&ids);
    return out;
}

static const char BPE[] =
    "{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":7,\"content\":\"<think>\",\"special\":false,\"normalized\":false}],"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<"
    "s>\"}},{\"Sequence\":{\"id\":\"A\"}}],"
    "\"special_tokens\":{\"<s>\":{\"ids\":[6]}}},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":%s,\"vocab\":{\"a\":0,\"b\":1,"
    "\"c\":2,\"ab\":3,\"abc\":4,\"?\":5},"
    "\"merges\":[[\"a\",\"b\"],\"ab c\"]}}";

static ech_tokenizer *open_bpe(const char *const fuse)
{
    char json[sizeof BPE + 16];
    (void)snprintf(json, sizeof json, BPE, fuse);
    return must_open(json);
}

static void bpe_merges_by_rank_and_fuses_unknowns(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("false");
    assert_string_equal(encoded(tok, "abcab", 0), "4 3");
    assert_string_equal(encoded(tok, "axyb", 0), "0 5 5 1");
    ech_tokenizer_close(&tok);
    tok = open_bpe("true");
    assert_string_equal(encoded(tok, "axyb", 0), "0 5 1");
    ech_tokenizer_close(&tok);
}

static void special_tokens_are_text_unless_asked_for(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("true");
    assert_string_equal(encoded(tok, "a<s>b", 0), "0 5 1");
    assert_string_equal(encoded(tok, "a<s>b", ECH_ENCODE_SPECIAL), "0 6 1");
    assert_string_equal(encoded(tok, "a<think>b", 0), "0 7 1"); /* not special: always */
    assert_string_equal(encoded(tok, "a", ECH_ENCODE_ADD), "6 0");
    assert_string_equal(encoded(tok, "<s>a", ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD), "6 6 0");
    assert_string_equal(
        encoded(tok, "<s>a", ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS), "6 0");
    assert_string_equal(encoded(tok, "", ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS), "6");
    ech_tokenizer_close(&tok);
}

static void looking_in(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("true");
    size_t len = 99;
    assert_int_equal(ech_tokenizer_n_ids(tok), 8);
    assert_memory_equal(ech_tokenizer_token_bytes(tok, 7, &len), " <think>",
                        8); /* no decoder: joined by spaces */
    assert_int_equal(len, 8);
    assert_null(ech_tokenizer_token_bytes(tok, 8, &len));
    assert_null(ech_tokenizer_token_bytes(tok, -1, &len));
    assert_int_equal(len, 0);
    assert_true(ech_tokenizer_is_special(tok, 6));
    assert_false(ech_tokenizer_is_special(tok, 7));
    assert_true(ech_tokenizer_is_added(tok, 7));
    assert_false(ech_tokenizer_is_added(tok, 0));
    assert_int_equal(ech_tokenizer_find_added(tok, "<think>", 7), 7);
    assert_int_equal(ech_tokenizer_find_added(tok, "<thin", 5), ECH_NO_ID);
    assert_int_equal(ech_tokenizer_special_id(tok, ECH_SPECIAL_UNK), 5);
    assert_string_equal(ech_tokenizer_special_text(tok, ECH_SPECIAL_UNK), "?");
    assert_int_equal(ech_tokenizer_special_id(tok, ECH_SPECIAL_BOS), ECH_NO_ID);
    ech_tokenizer_close(&tok);
}

static void config_names_the_special_tokens(void **state)
{
    (void)state;
    char json[sizeof BPE + 16];
    (void)snprintf(json, sizeof json, BPE, "true");
    static const char CONFIG[] =
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</none>\",\"pad_token\":null}";
    ech_tokenizer *tok = NULL;
    assert_int_equal(
        ech_tokenizer_open_json(&tok, json, strlen(json), CONFIG, sizeof CONFIG - 1, NULL), ECH_OK);
    assert_int_equal(ech_tokenizer_special_id(tok, ECH_SPECIAL_BOS), 6);
    assert_string_equal(ech_tokenizer_special_text(tok, ECH_SPECIAL_BOS), "<s>");
    assert_int_equal(ech_tokenizer_special_id(tok, ECH_SPECIAL_EOS), ECH_NO_ID);
    assert_string_equal(ech_tokenizer_special_text(tok, ECH_SPECIAL_EOS), "</none>");
    assert_null(ech_tokenizer_special_text(tok, ECH_SPECIAL_PAD));
    ech_tokenizer_close(&tok);
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("true");
    ech_ids ids = { 0 };
    ech_error err = { 0 };
    assert_int_equal(ech_tokenizer_encode(tok, "ab\xFF", 3, 0, &ids, &err), ECH_EFORMAT);
    assert_int_equal(err.offset, 2);
    assert_int_equal(ids.n, 0);
    assert_int_equal(ech_tokenizer_encode(tok, "\xED\xA0\x80", 3, 0, &ids, &err), ECH_EFORMAT);
    ech_ids_fini(&ids);
    ech_tokenizer_close(&tok);
}

static void spans_must_add_up(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("true");
    ech_ids ids = { 0 };
    const ech_span spans[] = { { 2, ECH_ORIGIN_TEMPLATE }, { 3, ECH_ORIGIN_DATA } };
    ech_spans text = { .text = "<s>abc", .len = 6, .spans = spans, .n_spans = 2 };
    assert_int_equal(ech_tokenizer_encode_spans(tok, &text, 0, &ids, NULL), ECH_EINVAL);
    text.len = 4;
    assert_int_equal(ech_tokenizer_encode_spans(tok, &text, 0, &ids, NULL), ECH_EINVAL);
    ech_ids_fini(&ids);
    ech_tokenizer_close(&tok);
}

/* A special token that is matched in normalised text keeps its bytes' origin through the
 * normalizer. */
static void origin_survives_normalising(void **state)
{
    (void)state;
    ech_tokenizer *tok = must_open(
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":"
        "\"Lowercase\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"__\"}]},"
        "\"added_tokens\":[{\"id\":4,\"content\":\"<END>\",\"special\":true,\"normalized\":true}],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"_\":1,\"<\":2,\"n\":3},\"merges\":[]}}");
    static const char TEXT[] = " \xEF\xBC\x9C"
                               "END> a <end>"; /* a full-width '<' */
    for (size_t cut = 0; cut <= sizeof TEXT - 1; cut++) {
        const ech_span spans[] = { { cut, ECH_ORIGIN_TEMPLATE },
                                   { sizeof TEXT - 1 - cut, ECH_ORIGIN_DATA } };
        const ech_spans text = {
            .text = TEXT, .len = sizeof TEXT - 1, .spans = spans, .n_spans = 2
        };
        ech_ids ids = { 0 };
        assert_int_equal(ech_tokenizer_encode_spans(tok, &text, 0, &ids, NULL), ECH_OK);
        size_t n = 0;
        for (size_t i = 0; i < ids.n; i++) {
            n += ids.data[i] == 4;
        }
        assert_int_equal(n, (cut >= 8) + (cut >= sizeof TEXT - 1));
        ech_ids_fini(&ids);
    }
    ech_tokenizer_close(&tok);
}

static void markers_in_data_are_text_and_others_match(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_bpe("true");
    const ech_span spans[] = { { 10, ECH_ORIGIN_DATA } };
    const int32_t marker = 7;
    ech_spans text = { .text = "<s><think>", .len = 10, .spans = spans, .n_spans = 1 };
    ech_ids ids = { 0 };
    assert_int_equal(ech_tokenizer_encode_spans(tok, &text, 0, &ids, NULL), ECH_OK);
    assert_int_equal(ids.data[ids.n - 1], 7);
    ids.n = 0;
    text.marker_ids = &marker;
    text.n_markers = 1;
    assert_int_equal(ech_tokenizer_encode_spans(tok, &text, 0, &ids, NULL), ECH_OK);
    for (size_t i = 0; i < ids.n; i++) {
        assert_true(ids.data[i] != 7 && ids.data[i] != 6);
    }
    ech_ids_fini(&ids);
    ech_tokenizer_close(&tok);
}

static const char BYTES[] =
    "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
    "\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
    "\",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"\xE2\x96\x81"
    "a\":0,\"<0xF0>\":1,\"<0x9F>\":2,\"<0x98>\":3,\"<0x8A>\":4,\"b\":5,"
    "\"<0xFF>\":6},\"merges\":[]}}";

/* What a stream gives for ids, pieces separated by '|'. */
static const char *streamed(const ech_tokenizer *const tok, const int32_t *const prompt,
                            const size_t n_prompt, const int32_t *const ids, const size_t n)
{
    static char out[512];
    size_t len = 0, piece_len = 0;
    const char *piece = NULL;
    ech_detok *d = NULL;
    assert_int_equal(ech_detok_open(&d, tok, 0, prompt, n_prompt, NULL), ECH_OK);
    for (size_t i = 0; i <= n; i++) {
        assert_int_equal(i < n ? ech_detok_push(d, ids[i], &piece, &piece_len, NULL)
                               : ech_detok_finish(d, &piece, &piece_len, NULL),
                         ECH_OK);
        assert_true(ech_utf8_valid(piece, piece_len, NULL));
        assert_true(ech_detok_pending(d) <= 3);
        len += (size_t)snprintf(out + len, sizeof out - len, "%s%.*s", i > 0 ? "|" : "",
                                (int)piece_len, piece);
    }
    assert_int_equal(ech_detok_push(d, 0, &piece, &piece_len, NULL), ECH_ESTATE);
    ech_detok_close(&d);
    return out;
}

static void streams_hold_back_unfinished_characters_only(void **state)
{
    (void)state;
    ech_tokenizer *tok = must_open(BYTES);
    const int32_t whole[] = { 0, 1, 2, 3, 4, 0 };
    assert_string_equal(streamed(tok, NULL, 0, whole, 6), "a||||\U0001F60A| a|");
    const int32_t broken[] = { 5, 1, 2, 5, 6, 1 };
    assert_string_equal(streamed(tok, NULL, 0, broken, 6), "b|||\uFFFDb|\uFFFD||\uFFFD");
    /* After a prompt the first space stays, and nothing of the prompt comes out. */
    const int32_t prompt[] = { 0, 1, 2 }, rest[] = { 3, 4, 0 };
    assert_string_equal(streamed(tok, prompt, 3, rest, 3), "\uFFFD|\uFFFD| a|");
    ech_tokenizer_close(&tok);
}

static void ids_outside_the_vocabulary_give_nothing(void **state)
{
    (void)state;
    ech_tokenizer *tok = must_open(BYTES);
    const int32_t ids[] = { 5, 7, -1, INT32_MAX, INT32_MIN, 5 };
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(ech_tokenizer_decode(tok, ids, 6, 0, &text, &len, NULL), ECH_OK);
    assert_string_equal(text, "bb");
    free(text);
    assert_string_equal(streamed(tok, NULL, 0, ids, 6), "b|||||b|");
    assert_int_equal(ech_tokenizer_decode(tok, NULL, 0, 0, &text, &len, NULL), ECH_OK);
    assert_int_equal(len, 0);
    free(text);
    ech_tokenizer_close(&tok);
}

/* Near-linear on the texts that break naive encoders. */
static void hostile_texts_take_no_longer(void **state)
{
    (void)state;
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    if (ech_tokenizer_open(&tok, ECH_SOURCE_DIR "/models/tale", &err) != ECH_OK)
        fail_msg("%s", err.text);
    static const char *const UNITS[] = {
        "a", " ",        "\n", "ab",           "<",        "<|",   "'",
        "1", "\xCC\x81", " a", "\xE2\x80\x83", "<|im_end", "\r\n "
    };
    const size_t len = 1 << 18;
    char *const text = malloc(len);
    for (size_t u = 0; u < sizeof UNITS / sizeof UNITS[0]; u++) {
        const size_t n = strlen(UNITS[u]);
        for (size_t i = 0; i < len; i++) {
            text[i] = UNITS[u][i % n];
        }
        ech_ids ids = { 0 };
        const size_t used = len - len % n;
        if (ech_tokenizer_encode(tok, text, used, ECH_ENCODE_SPECIAL, &ids, &err) != ECH_OK)
            fail_msg("%s", err.text);
        assert_true(ids.n > 0);
        ech_ids_fini(&ids);
    }
    free(text);
    ech_tokenizer_close(&tok);
}

typedef struct worker {
    const ech_tokenizer *tok;
    ech_ids ids;
    ech_status rc;
} worker;

static void *encode_many(void *const arg)
{
    worker *const w = arg;
    for (int i = 0; w->rc == ECH_OK && i < 200; i++) {
        w->ids.n = 0;
        w->rc = ech_tokenizer_encode(w->tok, "The quick brown fox, 2024!\n<|im_end|>", 36,
                                     ECH_ENCODE_SPECIAL, &w->ids, NULL);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    ech_tokenizer *tok = NULL;
    assert_int_equal(ech_tokenizer_open(&tok, ECH_SOURCE_DIR "/models/tale", NULL), ECH_OK);
    enum { N = 20 }; /* more than there are spare scratches */
    worker w[N];
    pthread_t thread[N];
    for (int i = 0; i < N; i++) {
        w[i] = (worker){ .tok = tok };
        assert_int_equal(pthread_create(&thread[i], NULL, encode_many, &w[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(w[i].rc, ECH_OK);
        assert_int_equal(w[i].ids.n, w[0].ids.n);
        assert_memory_equal(w[i].ids.data, w[0].ids.data, w[0].ids.n * sizeof(int32_t));
    }
    for (int i = 0; i < N; i++) {
        ech_ids_fini(&w[i].ids);
    }
    ech_tokenizer_close(&tok);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}"

/* The ids of each text alone, whatever the threads; the first bad text is named, others are done.
 */
static void a_batch_is_its_texts_one_by_one(void **state)
{
    (void)state;
    enum { N = 300 };
    ech_tokenizer *tok = open_bpe("false");
    static char text[4000];
    ech_piece texts[N];
    ech_error err = { 0 };
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abc ba cab"[i * i % 10];
    for (size_t i = 0; i < N; i++)
        texts[i] = (ech_piece){ text + i, i * 12 % 3600 };
    for (uint32_t threads = 0; threads < 5; threads++) {
        ech_ids ids[N] = { 0 };
        assert_int_equal(ech_tokenizer_encode_batch(tok, texts, N, 0, threads, ids, &err), ECH_OK);
        for (size_t i = 0; i < N; i++) {
            ech_ids one = { 0 };
            assert_int_equal(ech_tokenizer_encode(tok, texts[i].ptr, texts[i].len, 0, &one, &err),
                             ECH_OK);
            assert_int_equal(one.n, ids[i].n);
            if (one.n > 0) assert_memory_equal(one.data, ids[i].data, one.n * sizeof *one.data);
            ech_ids_fini(&one);
            ech_ids_fini(&ids[i]);
        }
    }
    texts[7] = (ech_piece){ "a\xff", 2 };
    texts[200] = (ech_piece){ "\xff", 1 };
    ech_ids ids[N] = { 0 };
    assert_int_equal(ech_tokenizer_encode_batch(tok, texts, N, 0, 4, ids, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "text 7 of the batch"));
    assert_int_equal(ids[7].n, 0);
    assert_true(ids[199].n > 0 && ids[201].n > 0);
    for (size_t i = 0; i < N; i++)
        ech_ids_fini(&ids[i]);
    assert_int_equal(ech_tokenizer_encode_batch(tok, NULL, 0, 0, 0, NULL, &err), ECH_OK);
    ech_tokenizer_close(&tok);
}

static void malformed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        ech_status code;
        const char *says;
    } BAD[] = {
        { "", ECH_EFORMAT, "expected '{'" },
        { "[]", ECH_EFORMAT, "expected '{'" },
        { "{}", ECH_EFORMAT, "no \"model\"" },
        { "{\"model\":{}}", ECH_EFORMAT, "\"vocab\"" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", ECH_EFORMAT,
          "expected '}'" },
        { "{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", ECH_EUNSUPPORTED, "Magic" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", ECH_EFORMAT,
          "twice" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999999},\"merges\":[]}}", ECH_EFORMAT,
          "out of range" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ECH_EFORMAT,
          "out of range" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", ECH_EFORMAT,
          "out of range" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", ECH_EFORMAT,
          "right part" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", ECH_EFORMAT,
          "two parts" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
          ECH_EUNSUPPORTED, "dropout" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", ECH_EFORMAT,
          "surrogate" },
        { "{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",-1]]}}", ECH_EFORMAT,
          "unk_id" },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", ECH_EFORMAT, "empty" },
        { "{\"normalizer\":{\"type\":\"Upper\"}," MODEL "}", ECH_EUNSUPPORTED, "Upper" },
        { "{\"pre_tokenizer\":{\"type\":\"Magic\"}," MODEL "}", ECH_EUNSUPPORTED, "Magic" },
        { "{\"decoder\":{\"type\":\"Magic\"}," MODEL "}", ECH_EUNSUPPORTED, "Magic" },
        { "{\"post_processor\":{\"type\":\"Magic\"}," MODEL "}", ECH_EUNSUPPORTED, "Magic" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
          "\"Isolated\"}," MODEL "}",
          ECH_EFORMAT, "group" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
          "\"Odd\"}," MODEL "}",
          ECH_EUNSUPPORTED, "behavior" },
        { "{\"added_tokens\":{}," MODEL "}", ECH_EFORMAT, "added_tokens" },
        { "{\"added_tokens\":[1]," MODEL "}", ECH_EFORMAT, "added_tokens" },
        { "{\"added_tokens\":[{\"content\":1}]," MODEL "}", ECH_EFORMAT, "content" },
        { "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}," MODEL "}",
          ECH_EFORMAT, "charsmap" },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ech_tokenizer *tok = NULL;
        ech_error err = { 0 };
        const ech_status rc = open_parts(&tok, BAD[i].json, &err);
        if (rc != BAD[i].code || strstr(err.text, BAD[i].says) == NULL)
            fail_msg("%s: %d, %s", BAD[i].json, rc, err.text);
        assert_null(tok);
    }
}

/* prefix, then unit n times, then suffix. */
static char *repeated(const char *const prefix, const char *const unit, const size_t n,
                      const char *const suffix)
{
    ech_buf b = { 0 };
    assert_int_equal(ech_buf_puts(&b, prefix), ECH_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ech_buf_puts(&b, unit), ECH_OK);
    }
    assert_int_equal(ech_buf_puts(&b, suffix), ECH_OK);
    return b.data;
}

static void deep_and_large_files_are_refused(void **state)
{
    (void)state;
    char *const cases[] = {
        repeated("{\"x\":", "[", 100000, "}"),
        repeated("{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", 50, "}"),
        repeated("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"},",
                 10000, "{\"type\":\"NFC\"}]}," MODEL "}"),
        repeated("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                 "{\"type\":\"Whitespace\"},", 40, "{\"type\":\"Whitespace\"}]}," MODEL "}"),
        repeated("{\"added_tokens\":[{\"content\":\"", "a", 5000, "\"}]," MODEL "}"),
        repeated("{\"added_tokens\":[", "{\"content\":\"a\"},", 20000, "1]," MODEL "}"),
        repeated("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[",
                 "{\"SpecialToken\":{\"id\":\"s\"}},", 100,
                 "{\"Sequence\":{}}],\"special_tokens\":{\"s\":{\"ids\":[0]}}}," MODEL "}"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_tokenizer *tok = NULL;
        ech_error err = { 0 };
        if (open_parts(&tok, cases[i], &err) == ECH_OK) fail_msg("case %zu was taken", i);
        assert_true(strlen(err.text) > 0);
        free(cases[i]);
    }
}

static void a_folder_without_a_tokenizer_is_named(void **state)
{
    (void)state;
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    assert_int_equal(ech_tokenizer_open(&tok, "/nonexistent", &err), ECH_ENOTFOUND);
    assert_non_null(strstr(err.text, "/nonexistent"));
    assert_non_null(strstr(err.text, "tokenizer.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank_and_fuses_unknowns),
        cmocka_unit_test(special_tokens_are_text_unless_asked_for),
        cmocka_unit_test(looking_in),
        cmocka_unit_test(config_names_the_special_tokens),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(spans_must_add_up),
        cmocka_unit_test(origin_survives_normalising),
        cmocka_unit_test(markers_in_data_are_text_and_others_match),
        cmocka_unit_test(streams_hold_back_unfinished_characters_only),
        cmocka_unit_test(ids_outside_the_vocabulary_give_nothing),
        cmocka_unit_test(hostile_texts_take_no_longer),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(a_batch_is_its_texts_one_by_one),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(deep_and_large_files_are_refused),
        cmocka_unit_test(a_folder_without_a_tokenizer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
