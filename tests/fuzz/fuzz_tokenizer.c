/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json, and after a zero byte, if there is one, a text. What opens must encode the text
 * and some of our own under every flag, and decode all it has, without a wrong step.
 */
#include <stdlib.h>
#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/fuzz/fuzz.h"

static void check_ids(const ech_tokenizer *const tok, const ech_ids *const ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        ECH_ASSERT(ids->data[i] >= 0);
    }
    char *text = NULL;
    size_t len = 0, n = 0;
    if (ech_tokenizer_decode(tok, ids->data, ids->n, 0, &text, &len, NULL) == ECH_OK) {
        ECH_ASSERT(ech_utf8_valid(text, len, NULL));
        free(text);
    }
    ech_detok *d = NULL;
    const char *piece = NULL;
    if (ech_detok_open(&d, tok, ECH_DECODE_SKIP_SPECIAL, NULL, 0, NULL) != ECH_OK) return;
    for (size_t i = 0; i < ids->n; i++) {
        if (ech_detok_push(d, ids->data[i], &piece, &n, NULL) != ECH_OK) break;
        ECH_ASSERT(ech_utf8_valid(piece, n, NULL) && ech_detok_pending(d) <= 3);
    }
    ech_detok_close(&d);
}

static void try_text(const ech_tokenizer *const tok, const char *const text, const size_t len)
{
    for (unsigned flags = 0; flags < 8; flags++) {
        ech_ids ids = { 0 };
        ech_error err;
        if (ech_tokenizer_encode(tok, text, len, flags, &ids, &err) == ECH_OK) check_ids(tok, &ids);
        ech_ids_fini(&ids);
    }
    const ech_span spans[] = { { len / 2, ECH_ORIGIN_DATA },
                               { len - len / 2, ECH_ORIGIN_TEMPLATE } };
    const int32_t markers[] = { 0, 3 };
    const ech_spans all = { .text = text,
                            .len = len,
                            .spans = spans,
                            .n_spans = 2,
                            .marker_ids = markers,
                            .n_markers = 2 };
    ech_ids ids = { 0 };
    (void)ech_tokenizer_encode_spans(tok, &all, ECH_ENCODE_ADD, &ids, NULL);
    ech_ids_fini(&ids);
}

/* Every token's looks, and all of them decoded as one. */
static void look_in(const ech_tokenizer *const tok)
{
    ech_ids ids = { 0 };
    const int32_t n = (int32_t)ech_tokenizer_n_ids(tok);
    for (int32_t id = -1; id <= n && id < 5000; id++) {
        size_t len = 0;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        ECH_ASSERT(bytes != NULL || len == 0);
        ECH_ASSERT(!ech_tokenizer_is_special(tok, id) || ech_tokenizer_is_added(tok, id));
        if (id >= 0) (void)ech_ids_append(&ids, &id, 1);
    }
    check_ids(tok, &ids);
    ech_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    static const char TEXT[] =
        "Hello  w\xC3\xB6rld, it's <s>123</s>\r\n\t\xE2\x96\x81\xF0\x9F\x98\x8A"
        "e\xCC\x81 \xE4\xB8\xAD. <mark> ABC</w>";
    const char *const json = (const char *)data;
    const char *const end = size > 0 ? memchr(json, '\0', size) : NULL;
    const size_t len = end != NULL ? (size_t)(end - json) : size;
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    if (ech_tokenizer_open_json(&tok, json, len, NULL, 0, &err) != ECH_OK) {
        ECH_ASSERT(err.text[0] != '\0');
        return 0;
    }
    look_in(tok);
    try_text(tok, TEXT, sizeof TEXT - 1);
    if (end != NULL) try_text(tok, end + 1, size - len - 1);
    ech_tokenizer_close(&tok);
    return 0;
}
