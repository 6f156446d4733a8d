/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every line of a kind's golden.jsonl: ids, ids with what the post-processor adds, decoded text;
 * and what holds of every text: a stream gives what decoding gives, token by token and valid UTF-8
 * all along. The folder is the program's argument.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/tokenizer.h"
#include "src/base/utf8.h"

static const char *folder;

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

static void golden_lines_are_equal(void **state)
{
    (void)state;
    ech_error err = { 0 };
    ech_tokenizer *tok = NULL;
    if (ech_tokenizer_open(&tok, folder, &err) != ECH_OK) fail_msg("%s", err.text);
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/golden.jsonl", folder);
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0, n = 0;
    ech_ids ids = { 0 };
    while (getline(&line, &cap, f) > 0) {
        json_t *const row = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        n++;
        check_encode(tok, row, &ids, n);
        check_decode(tok, row, &ids, n);
        json_decref(row);
    }
    assert_true(n >= 500);
    (void)fclose(f);
    free(line);
    ech_ids_fini(&ids);
    ech_tokenizer_close(&tok);
}

int main(const int argc, char **const argv)
{
    if (argc != 2) return 2;
    folder = argv[1];
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden_lines_are_equal) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
