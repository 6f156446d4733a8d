/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of a tokenizer (tokenizer_tables.h) with wrong bytes in them. The input says which: each 5
 * bytes are a place, a width and what to write there; a last odd byte cuts the tables. Whatever
 * stands in tables, the tokenizer opens, and encoding and decoding stay within them and end.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/text/tokenizer_tables.h"
#include "tests/fuzz/fuzz.h"

#define JSON                                                                                       \
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"c\":3,"   \
    "\"ab\":4,\"abc\":5,\"bc\":6,\"\":9},\"merges\":[[\"a\",\"b\"],[\"b\",\"c\"],[\"ab\",\"c\"]]},"   \
    "\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true}]}"

static ech_tokenizer *open_with(const ech_str tables)
{
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    ECH_ASSERT(ech_tokenizer_open_json_with(&tok, ECH_STR_LIT(JSON), tables, &err) == ECH_OK);
    return tok;
}

static void use(const ech_tokenizer *const tok)
{
    static const char TEXT[] = "abcabcaaabbbccc?<s>xabc";
    ech_ids ids = { 0 };
    char *text = NULL;
    size_t len = 0;
    (void)ech_tokenizer_encode(tok, TEXT, sizeof TEXT - 1, ECH_ENCODE_SPECIAL, &ids, NULL);
    for (int32_t id = 0; id < 12; id++) {
        (void)ech_tokenizer_token_bytes(tok, id, &len);
        (void)ech_ids_append(&ids, &id, 1);
    }
    if (ech_tokenizer_decode(tok, ids.data, ids.n, 0, &text, &len, NULL) == ECH_OK) free(text);
    ech_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    ech_buf tables = { 0 };
    ech_tokenizer *tok = open_with((ech_str){ 0 });
    ECH_ASSERT(ech_tokenizer_write_tables(tok, &tables) == ECH_OK && tables.len > 400);
    ech_tokenizer_close(&tok);
    for (size_t i = 0; i + 5 <= size; i += 5) {
        const size_t at = (data[i] | (size_t)data[i + 1] << 8) % tables.len;
        const size_t left = tables.len - at, width = 1 + data[i + 2] % 8U;
        memset(tables.data + at, data[i + 3], width < left ? width : left);
        tables.data[at] = (char)data[i + 4];
    }
    if (size % 5 == 1) tables.len -= data[size - 1];
    tok = open_with(ech_buf_view(&tables));
    ECH_ASSERT(size > 0 || ech_tokenizer_had_tables(tok));
    use(tok);
    ech_tokenizer_close(&tok);
    ech_buf_fini(&tables);
    return 0;
}
