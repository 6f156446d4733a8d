/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every line of a kind's golden.jsonl: ids, ids with what the post-processor adds, decoded text;
 * and what holds of every text: a stream gives what decoding gives, token by token and valid UTF-8
 * all along. The folder is the program's argument; ECH_TEST_SEED repeats a run of the random ids.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/utf8.h"
#include "src/text/tokenizer_parts.h"

static const char *folder;

static uint32_t test_random(uint64_t *const rng, const uint32_t below)
{
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*rng >> 33) % below);
}

static void check_ids(const char *const what, const json_t *const want, const ech_ids *const got,
                      const size_t line)
{
    bool same = json_array_size(want) == got->n;
    for (size_t i = 0; same && i < got->n; i++) {
        same = json_integer_value(json_array_get(want, i)) == got->data[i];
    }
    if (!same) fail_msg("%s differ in line %zu of %s", what, line, folder);
}

static void check_encode(const ech_tokenizer *const tok, const json_t *const row,
                         ech_ids *const ids, const size_t line)
{
    const json_t *const text = json_object_get(row, "text"),
                        *around = json_object_get(row, "ids_with_special");
    const char *const s = json_string_value(text);
    const size_t len = json_string_length(text);
    ech_error err = { 0 };
    if (around == NULL) around = json_object_get(row, "ids");

    ids->n = 0;
    if (ech_tokenizer_encode(tok, s, len, ECH_ENCODE_SPECIAL | ECH_ENCODE_ADD, ids, &err) != ECH_OK)
        fail_msg("%s", err.text);
    check_ids("ids with special tokens", around, ids, line);
    ids->n = 0;
    if (ech_tokenizer_encode(tok, s, len, ECH_ENCODE_SPECIAL, ids, &err) != ECH_OK)
        fail_msg("%s", err.text);
    check_ids("ids", json_object_get(row, "ids"), ids, line);
}

/* The ids pushed one by one; the text is the caller's. */
static char *stream(const ech_tokenizer *const tok, const ech_ids *const ids, size_t *const ret_len)
{
    char *const all = malloc(ids->n * 512 + 64);
    size_t len = 0, n = 0;
    const char *piece = NULL;
    ech_detok *d = NULL;
    assert_int_equal(ech_detok_open(&d, tok, 0, NULL, 0, NULL), ECH_OK);
    for (size_t i = 0; i <= ids->n; i++) {
        assert_int_equal(i < ids->n ? ech_detok_push(d, ids->data[i], &piece, &n, NULL)
                                    : ech_detok_finish(d, &piece, &n, NULL),
                         ECH_OK);
        assert_true(ech_utf8_valid(piece, n, NULL));
        assert_true(n < 512);
        memcpy(all + len, piece, n);
        len += n;
    }
    ech_detok_close(&d);
    *ret_len = len;
    return all;
}

static void check_decode(const ech_tokenizer *const tok, const json_t *const row,
                         const ech_ids *const ids, const size_t line)
{
    const json_t *want = json_object_get(row, "decoded");
    if (want == NULL) want = json_object_get(row, "text");
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(ech_tokenizer_decode(tok, ids->data, ids->n, 0, &text, &len, NULL), ECH_OK);
    if (len != json_string_length(want) || memcmp(text, json_string_value(want), len) != 0) {
        fail_msg("the text decoded differs in line %zu of %s", line, folder);
    }
    /* Of a broken run of byte tokens the reference makes more U+FFFD than a stream, which can't
     * look back. */
    if (memmem(text, len, "\xEF\xBF\xBD", 3) == NULL) {
        size_t n = 0;
        char *const streamed = stream(tok, ids, &n);
        if (n != len || memcmp(streamed, text, n) != 0)
            fail_msg("the stream differs in line %zu of %s", line, folder);
        free(streamed);
    }
    free(text);
}

static ech_tokenizer *open_with(const ech_buf *const tables)
{
    ech_error err = { 0 };
    ech_tokenizer *tok = NULL;
    if (ech_tokenizer_open_with(&tok, folder, ech_buf_view(tables), &err) != ECH_OK)
        fail_msg("%s", err.text);
    return tok;
}

/* Of all lines, or of the first `most`. */
static void check_lines(const ech_tokenizer *const tok, const size_t most)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/golden.jsonl", folder);
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0, n = 0;
    ech_ids ids = { 0 };
    while (n < most && getline(&line, &cap, f) > 0) {
        json_t *const row = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        n++;
        check_encode(tok, row, &ids, n);
        check_decode(tok, row, &ids, n);
        json_decref(row);
    }
    assert_true(n >= 500 || n == most);
    (void)fclose(f);
    free(line);
    ech_ids_fini(&ids);
}

/* Nothing where it isn't BPE. */
static void make_tables(ech_buf *const out, uint64_t ret_digest[2])
{
    ech_tokenizer *tok = open_with(&(ech_buf){ 0 });
    memcpy(ret_digest, tok->source.digest, sizeof tok->source.digest);
    assert_false(ech_tokenizer_had_tables(tok));
    assert_int_equal(ech_tokenizer_write_tables(tok, out), ECH_OK);
    assert_int_equal(out->len > 0, tok->model.kind == ECH_MODEL_BPE);
    ech_tokenizer_close(&tok);
}

static void golden_lines_are_equal(void **state)
{
    (void)state;
    ech_tokenizer *tok = open_with(&(ech_buf){ 0 });
    check_lines(tok, SIZE_MAX);
    ech_tokenizer_close(&tok);
}

/* Opened with tables of an earlier opening: all is the same, and the tables are written alike. */
static void golden_lines_are_equal_with_tables(void **state)
{
    (void)state;
    ech_buf tables = { 0 }, again = { 0 };
    uint64_t digest[2];
    make_tables(&tables, digest);
    const bool is_bpe = tables.len > 0;
    ech_tokenizer *fresh = open_with(&(ech_buf){ 0 }), *tok = open_with(&tables);
    assert_int_equal(ech_tokenizer_had_tables(tok), is_bpe);
    assert_int_equal(ech_tokenizer_write_tables(tok, &again), ECH_OK);
    assert_true(ech_str_eq(ech_buf_view(&tables), ech_buf_view(&again)));
    ech_buf_fini(&tables); /* not needed any more */
    check_lines(tok, SIZE_MAX);
    assert_int_equal(ech_tokenizer_n_ids(tok), ech_tokenizer_n_ids(fresh));
    for (int32_t id = 0; (size_t)id < ech_tokenizer_n_ids(tok); id++) {
        size_t n = 0, m = 0;
        const char *const a = ech_tokenizer_token_bytes(tok, id, &n);
        const char *const b = ech_tokenizer_token_bytes(fresh, id, &m);
        assert_true((a == NULL) == (b == NULL) && n == m && (n == 0 || memcmp(a, b, n) == 0));
    }
    for (int i = 0; i < ECH_SPECIAL_COUNT; i++)
        assert_int_equal(ech_tokenizer_special_id(tok, (ech_special)i),
                         ech_tokenizer_special_id(fresh, (ech_special)i));
    ech_buf_fini(&again);
    ech_tokenizer_close(&fresh);
    ech_tokenizer_close(&tok);
}

/* Opening with them is as without. */
static void check_refused(const ech_buf *const tables)
{
    ech_tokenizer *tok = open_with(tables);
    assert_false(ech_tokenizer_had_tables(tok));
    check_lines(tok, 3);
    ech_tokenizer_close(&tok);
}

/* Cut, longer, of another version or source: none are used, and the answers are right. */
static void tables_that_are_not_whole_are_made_again(void **state)
{
    (void)state;
    ech_buf tables = { 0 };
    ech_tok_tables view;
    uint64_t digest[2] = { 0 };
    make_tables(&tables, digest);
    const size_t whole = tables.len;
    const size_t cuts[] = { 0, 1, 100, whole / 2, whole - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        assert_false(whole > 0 &&
                     ech_tok_tables_view((ech_str){ tables.data, cuts[i] }, digest, &view));
    for (size_t at = 0; whole > 0 && at < 80; at += 16) { /* magic, counts, sizes; not the seeds */
        tables.data[at] ^= 0x11;
        assert_int_equal(ech_tok_tables_view(ech_buf_view(&tables), digest, &view), at == 48);
        tables.data[at] ^= 0x11;
    }
    assert_int_equal(whole > 0, ech_tok_tables_view(ech_buf_view(&tables), digest, &view));
    digest[1] ^= 1;
    assert_false(ech_tok_tables_view(ech_buf_view(&tables), digest, &view));
    assert_int_equal(ech_buf_append(&tables, "x", 1), ECH_OK);
    check_refused(&tables);
    ech_buf_fini(&tables);
}

/* What must have come out of raw bytes: whole characters, U+FFFD for what can't become one. */
static void certain_text(const ech_buf *const raw, ech_buf *const out)
{
    ech_buf_clear(out);
    for (size_t at = 0; at < raw->len;) {
        uint32_t cp;
        const int n = ech_utf8_decode(raw->data + at, raw->len - at, &cp);
        if (n == -2) return; /* may still become one */
        const size_t len = n > 0 ? (size_t)n : ech_utf8_broken_len(raw->data + at, raw->len - at);
        const char *const text = n > 0 ? raw->data + at : "\xEF\xBF\xBD";
        assert_int_equal(ech_buf_append(out, text, n > 0 ? len : 3), ECH_OK);
        at += len;
    }
}

/*
 * Whatever ids come after a prompt: at every step exactly what is certain is out, no split
 * character, no complete one withheld.
 */
static void streams_give_exactly_what_is_certain(void **state)
{
    (void)state;
    const char *const given = getenv("ECH_TEST_SEED");
    uint64_t rng = given != NULL ? strtoull(given, NULL, 0) : 1;
    print_message("seed=%llu\n", (unsigned long long)rng);
    ech_tokenizer *tok = NULL;
    ech_buf raw = { 0 }, want = { 0 }, got = { 0 };
    assert_int_equal(ech_tokenizer_open(&tok, folder, NULL), ECH_OK);
    const uint32_t n_ids = (uint32_t)ech_tokenizer_n_ids(tok);
    for (int round = 0; round < 300; round++) {
        /* Low ids hold the single bytes in most vocabularies: they break characters best. */
        const uint32_t top = test_random(&rng, 2) == 0 ? n_ids : (n_ids < 300 ? n_ids : 300);
        const int32_t prompt = (int32_t)test_random(&rng, n_ids);
        ech_detok *d = NULL;
        assert_int_equal(ech_detok_open(&d, tok, 0, &prompt, 1, NULL), ECH_OK);
        ech_buf_clear(&raw);
        ech_buf_clear(&got);
        size_t len = 0;
        const char *piece = ech_tokenizer_token_bytes(tok, prompt, &len);
        /* A prompt that ends within a character: its own test. */
        const bool is_whole = piece == NULL || ech_utf8_valid(piece, len, NULL);
        for (int i = 0; is_whole && i < 30; i++) {
            const int32_t id = (int32_t)test_random(&rng, top);
            const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
            if (bytes != NULL) assert_int_equal(ech_buf_append(&raw, bytes, len), ECH_OK);
            assert_int_equal(ech_detok_push(d, id, &piece, &len, NULL), ECH_OK);
            assert_int_equal(ech_buf_append(&got, piece, len), ECH_OK);
            certain_text(&raw, &want);
            if (!ech_str_eq(ech_buf_view(&want), ech_buf_view(&got)))
                fail_msg("round %d, id %d: got [%s], want [%s]", round, id, got.data, want.data);
        }
        ech_detok_close(&d);
    }
    ech_buf_fini(&raw);
    ech_buf_fini(&want);
    ech_buf_fini(&got);
    ech_tokenizer_close(&tok);
}

int main(const int argc, char **const argv)
{
    if (argc != 2) return 2;
    folder = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_lines_are_equal),
        cmocka_unit_test(golden_lines_are_equal_with_tables),
        cmocka_unit_test(tables_that_are_not_whole_are_made_again),
        cmocka_unit_test(streams_give_exactly_what_is_certain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
