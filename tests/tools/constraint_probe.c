/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constraints for scripts: reads one JSON object a line, writes one a line.
 *
 *     {"kind": "json_schema", "text": "...", "docs": ["..."], "samples": 3, "seed": 1}
 *     {"docs": [[taken, can_end], ...], "samples": ["..."], "states": 123}
 *     {"error": "...", "code": "EUNSUPPORTED"}
 *
 * taken is the number of bytes of the document that were right; can_end whether it may end after
 * them all. Samples are drawn from the masks, ids uniformly at first, then, so that they end, from
 * those whose tokens close things. The vocabulary is all bytes and some JSON-like words, or that of
 * the tokenizer in the folder that is the argument.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/constraint.h"
#include "src/base/buf.h"
#include "src/base/error.h"

#define FREE_TOKENS 60 /* drawn uniformly */
#define MAX_TOKENS  4000

static uint64_t rng;

static uint32_t random_below(const uint32_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((rng >> 33) % n);
}

/* ---- vocabulary ---- */

static const char *const WORDS[] = {
    "\":",
    "\",",
    "\",\"",
    "\":\"",
    "\"}",
    "\"]",
    "},{",
    "}}",
    "]}",
    "],[",
    "{\"",
    "[{",
    "[\"",
    " \"",
    "\": ",
    ", ",
    ": ",
    ": \"",
    ", \"",
    "\n",
    "\n  ",
    "\n    ",
    "  ",
    "    ",
    "\t",
    "true",
    "false",
    "null",
    "name",
    "type",
    "the",
    " the",
    "id",
    "value",
    "00",
    "10",
    "12",
    "123",
    "2024",
    "-1",
    "0.",
    ".5",
    ".0",
    "e1",
    "E+",
    "1e",
    "\\n",
    "\\\"",
    "\\\\",
    "\\u",
    "\\u00",
    "u00",
    "ab",
    "abc",
    "foo",
    "bar",
    "baz",
    "a1",
    "A",
    "ZZ",
    "\xC3\xA9",
    "\xE4\xBD\xA0",
    "\xE4\xBD",
    "\xA0",
    "\xF0\x9F\x98\x80",
    "\xF0\x9F",
    "\x98\x80",
    "caf\xC3",
    "-",
    "--",
    "@",
    ".com",
    "://",
    "http",
    "::",
    "T00",
    "Z",
    "+00:00",
    "\\",
    "\"\"",
    "[]",
    "{}",
};

static int32_t eos;

static ech_status small_vocab(ech_mask_vocab **const ret, ech_error *const err)
{
    static char bytes[256];
    static ech_mask_token tokens[256 + sizeof WORDS / sizeof WORDS[0] + 1];
    size_t n = 0;
    for (; n < 256; n++) {
        bytes[n] = (char)n;
        tokens[n] = (ech_mask_token){ &bytes[n], 1, ECH_MASK_TOKEN_TEXT };
    }
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        tokens[n++] = (ech_mask_token){ WORDS[i], (uint32_t)strlen(WORDS[i]), ECH_MASK_TOKEN_TEXT };
    }
    eos = (int32_t)n;
    tokens[n++] = (ech_mask_token){ "<eos>", 5, ECH_MASK_TOKEN_CONTROL };
    return ech_mask_vocab_create(tokens, n, &eos, 1, ret, err);
}

/* ---- one line ---- */

static ech_constraint_kind kind_of(const char *const name)
{
    if (strcmp(name, "json_object") == 0) return ECH_CONSTRAINT_JSON_OBJECT;
    if (strcmp(name, "regex") == 0) return ECH_CONSTRAINT_REGEX;
    if (strcmp(name, "choice") == 0) return ECH_CONSTRAINT_CHOICE;
    if (strcmp(name, "gbnf") == 0) return ECH_CONSTRAINT_GBNF;
    return ECH_CONSTRAINT_JSON_SCHEMA;
}

static json_t *check_doc(ech_constraint *const c, const json_t *const doc)
{
    ech_constraint_state *s = NULL;
    size_t taken = 0;
    ech_error err;
    if (ech_constraint_state_create(c, -1, &s, &err) != ECH_OK) return json_null();
    (void)ech_constraint_state_accept_bytes(s, json_string_value(doc), json_string_length(doc),
                                            &taken, &err);
    const bool ends = taken == json_string_length(doc) && ech_constraint_state_can_end(s);
    ech_constraint_state_destroy(&s);
    return json_pack("[I,b]", (json_int_t)taken, ends);
}

/* Draws an id of the mask; late, prefers tokens that close something, and the end. */
static int32_t draw(const uint32_t *const words, const uint32_t n_ids, const bool late,
                    const ech_tokenizer *const tok)
{
    static int32_t some[1 << 20];
    uint32_t n = 0, n_closing = 0;
    if (late && (words[eos >> 5] >> (eos & 31)) & 1) return eos;
    for (uint32_t i = 0; i < n_ids; i++) {
        if (!((words[i >> 5] >> (i & 31)) & 1)) continue;
        size_t len = 1;
        const char byte = (char)i;
        const char *const bytes = tok != NULL ? ech_tokenizer_token_bytes(tok, (int32_t)i, &len)
                                  : i < 256   ? &byte
                                              : NULL;
        const bool closes =
            bytes != NULL && len == 1 && strchr("\"}]", bytes[0]) != NULL && bytes[0] != 0;
        some[n++] = (int32_t)i;
        if (closes && late && random_below(4) != 0) {
            some[n_closing++] = (int32_t)i; /* overwrites what is not needed then */
        }
    }
    if (n == 0) return -1;
    return n_closing > 0 ? some[random_below(n_closing)] : some[random_below(n)];
}

static json_t *sample(ech_constraint *const c, const ech_tokenizer *const tok)
{
    const ech_mask_vocab *const vocab = ech_constraint_vocab(c);
    const size_t n_words = ech_mask_vocab_words(vocab);
    uint32_t *const words = calloc(n_words, sizeof *words);
    ech_constraint_state *s = NULL;
    ech_error err = { 0 };
    ech_buf text = { 0 };
    ech_status rc = ech_constraint_state_create(c, -1, &s, &err);
    for (int i = 0; rc == ECH_OK && i < MAX_TOKENS; i++) {
        rc = ech_constraint_state_mask(s, words, n_words, &err);
        if (rc != ECH_OK) break;
        const int32_t id = draw(words, (uint32_t)ech_mask_vocab_size(vocab), i > FREE_TOKENS, tok);
        rc = id < 0 ? ech_fail(&err, ECH_EINTERNAL, "the mask is empty")
                    : ech_constraint_state_accept(s, id, &err);
        if (id == eos) break;
        size_t len = 1;
        const char byte = (char)id;
        const char *const bytes = tok != NULL ? ech_tokenizer_token_bytes(tok, id, &len)
                                  : id < 256  ? &byte
                                              : WORDS[id - 256];
        if (tok == NULL && id >= 256) len = strlen(bytes);
        (void)ech_buf_append(&text, bytes, len);
    }
    const bool ended = rc == ECH_OK && ech_constraint_state_can_end(s);
    json_t *out = rc != ECH_OK ? json_pack("{s:s}", "error", err.text)
                  : !ended     ? json_pack("{s:s%}", "unfinished", text.data, text.len)
                               : json_stringn(text.data != NULL ? text.data : "", text.len);
    if (out == NULL) out = json_pack("{s:s}", ended ? "error" : "unfinished", "it is not UTF-8");
    ech_constraint_state_destroy(&s);
    ech_buf_fini(&text);
    free(words);
    return out;
}

static json_t *answer(const json_t *const line, ech_mask_vocab *const vocab,
                      const ech_tokenizer *const tok)
{
    ech_constraint_spec spec = ech_constraint_spec_default();
    const json_t *const text = json_object_get(line, "text");
    spec.content_kind = kind_of(json_string_value(json_object_get(line, "kind")));
    spec.content = json_string_value(text);
    spec.content_len = json_string_length(text);
    ech_constraint_options options = ech_constraint_options_default();
    options.warm_masks = 0;
    ech_constraint *c = NULL;
    ech_error err = { 0 };
    const ech_status rc = ech_constraint_compile(vocab, &spec, &options, &c, &err);
    if (rc != ECH_OK) return json_pack("{s:s,s:s}", "error", err.text, "code", ech_status_name(rc));
    rng = (uint64_t)json_integer_value(json_object_get(line, "seed"));
    json_t *const docs = json_array(), *const samples = json_array();
    const json_t *const given = json_object_get(line, "docs");
    for (size_t i = 0; i < json_array_size(given); i++) {
        (void)json_array_append_new(docs, check_doc(c, json_array_get(given, i)));
    }
    const json_int_t n = json_integer_value(json_object_get(line, "samples"));
    for (json_int_t i = 0; i < n; i++)
        (void)json_array_append_new(samples, sample(c, tok));
    const json_int_t states = (json_int_t)ech_constraint_get_stats(c).n_instructions;
    ech_constraint_unref(&c);
    return json_pack("{s:o,s:o,s:I}", "docs", docs, "samples", samples, "states", states);
}

int main(const int argc, char **const argv)
{
    ech_error err = { 0 };
    ech_mask_vocab *vocab = NULL;
    ech_tokenizer *tok = NULL;
    ech_status rc = ECH_OK;
    if (argc > 1) {
        rc = ech_tokenizer_open(&tok, argv[1], &err);
        if (rc == ECH_OK) eos = ech_tokenizer_special_id(tok, ECH_SPECIAL_EOS);
        if (rc == ECH_OK) rc = ech_mask_vocab_from_tokenizer(tok, &eos, 1, &vocab, &err);
    } else {
        rc = small_vocab(&vocab, &err);
    }
    if (rc != ECH_OK) {
        (void)fprintf(stderr, "constraint_probe: %s\n", err.text);
        return 1;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t len = 0;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        json_t *const in = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL);
        json_t *const out =
            in != NULL ? answer(in, vocab, tok) : json_pack("{s:s}", "error", "no JSON");
        (void)json_dumpf(out, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        (void)fputc('\n', stdout);
        (void)fflush(stdout);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    ech_mask_vocab_unref(&vocab);
    ech_tokenizer_close(&tok);
    return 0;
}
