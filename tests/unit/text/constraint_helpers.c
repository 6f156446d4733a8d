/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/text/constraint_helpers.h"

const char *const TEST_WORDS[N_WORDS] = {
    "\":",
    "\",",
    "\",\"",
    "\"}",
    "\"]",
    "},{",
    "}}",
    "{\"",
    "[\"",
    " \"",
    "\": ",
    ", ",
    ": ",
    "\n",
    "\n  ",
    "    ",
    "\t",
    "true",
    "false",
    "null",
    "name",
    "the",
    " the",
    "id",
    "00",
    "10",
    "123",
    "-1",
    "0.",
    ".5",
    "e1",
    "\\n",
    "\\\"",
    "\\u",
    "\\u00",
    "ab",
    "abc",
    "foo",
    "bar",
    "a1",
    "A",
    "\xC3\xA9",
    "\xE4\xBD\xA0",
    "\xE4\xBD",
    "\xF0\x9F\x98\x80",
    "caf\xC3",
    "--",
    "</",
    "<tool",
    "</think>\n",
    "\n\n",
    "{\"name\": \"",
    "ok",
    "yes",
    "no",
    "x",
    "a b c d e f g h i j k l m n o p\"",
    "                              ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaa",
    "\"\"",
    "[]",
    "{}",
    "abc", /* a twin: the same bytes under two ids */
};

static const char *const CONTROLS[] = { "<think>",      "</think>",   "<tool_call>",
                                        "</tool_call>", "<|im_end|>", "<|endoftext|>" };

static ech_mask_vocab *vocab;

const char *test_token(const int32_t id, size_t *const ret_len)
{
    static char byte;
    byte = (char)id;
    const char *const text = id < ID_WORDS   ? &byte
                             : id < ID_THINK ? TEST_WORDS[id - ID_WORDS]
                                             : CONTROLS[id - ID_THINK];
    *ret_len = id < ID_WORDS ? 1 : strlen(text);
    return text;
}

ech_mask_vocab *test_vocab(void)
{
    if (vocab != NULL) return vocab;
    static char bytes[256];
    ech_mask_token tokens[N_IDS];
    for (int32_t i = 0; i < N_IDS; i++) {
        size_t len = 0;
        tokens[i].bytes = test_token(i, &len);
        tokens[i].len = (uint32_t)len;
        tokens[i].kind = i < ID_THINK ? ECH_MASK_TOKEN_TEXT : ECH_MASK_TOKEN_CONTROL;
        if (i >= ID_WORDS) continue;
        bytes[i] = (char)i;
        tokens[i].bytes = &bytes[i];
    }
    const int32_t eos[] = { ID_EOS, ID_EOS_2 };
    ech_error err;
    assert_int_equal(ech_mask_vocab_create(tokens, N_IDS, eos, 2, &vocab, &err), ECH_OK);
    return vocab;
}

void test_vocab_free(void)
{
    ech_mask_vocab_unref(&vocab);
}

ech_constraint_spec spec_of(const ech_constraint_kind kind, const char *const text)
{
    ech_constraint_spec spec = ech_constraint_spec_default();
    spec.content_kind = kind;
    spec.content = text;
    spec.content_len = text != NULL ? strlen(text) : 0;
    return spec;
}

ech_constraint *compile(const ech_constraint_spec *const spec)
{
    ech_constraint *c = NULL;
    ech_error err = { 0 };
    if (ech_constraint_compile(test_vocab(), spec, NULL, &c, &err) != ECH_OK) {
        fail_msg("%.*s: %s", (int)spec->content_len, spec->content, err.text);
    }
    return c;
}

ech_constraint *compile_text(const ech_constraint_kind kind, const char *const text)
{
    const ech_constraint_spec spec = spec_of(kind, text);
    return compile(&spec);
}

ech_constraint_state *start(ech_constraint *const c, const int64_t budget)
{
    ech_constraint_state *s = NULL;
    ech_error err;
    assert_int_equal(ech_constraint_state_create(c, budget, &s, &err), ECH_OK);
    return s;
}

ech_status compile_error(const ech_constraint_kind kind, const char *const text,
                         ech_error *const err)
{
    const ech_constraint_spec spec = spec_of(kind, text);
    ech_constraint *c = NULL;
    *err = (ech_error){ 0 };
    const ech_status rc = ech_constraint_compile(test_vocab(), &spec, NULL, &c, err);
    if (rc == ECH_OK) {
        ech_constraint_unref(&c);
        fail_msg("compiled: %.300s", text);
    }
    assert_int_equal(err->code, rc);
    return rc;
}

size_t accepted(ech_constraint *const c, const char *const text, bool *const ret_ends)
{
    ech_constraint_state *s = start(c, -1);
    size_t taken = 0;
    const size_t len = strlen(text);
    (void)ech_constraint_state_accept_bytes(s, text, len, &taken, NULL);
    *ret_ends = taken == len && ech_constraint_state_can_end(s);
    ech_constraint_state_destroy(&s);
    return taken;
}

void assert_accepts(ech_constraint *const c, const char *const text)
{
    bool ends = false;
    const size_t taken = accepted(c, text, &ends);
    if (taken != strlen(text)) fail_msg("%s is refused at byte %zu", text, taken);
    if (!ends) fail_msg("%s may not end", text);
}

void assert_rejects_at(ech_constraint *const c, const char *const text, const size_t at)
{
    bool ends = false;
    const size_t taken = accepted(c, text, &ends);
    if (taken != at) fail_msg("%s: refused at byte %zu, not %zu", text, taken, at);
    if (ends) fail_msg("%s is accepted", text);
}

uint64_t test_seed(void)
{
    const char *const given = getenv("ECH_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20240917;
    print_message("seed=%llu\n", (unsigned long long)seed);
    return seed;
}

uint32_t test_random(uint64_t *const rng, const uint32_t below)
{
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*rng >> 33) % below);
}
