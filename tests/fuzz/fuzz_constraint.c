/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constraints: the first byte says what the rest is (s schema, r regular expression, g grammar,
 * c choice), a zero byte ends it, and what follows are tokens to try. Whatever compiles must have
 * masks that are never empty and agree with what is accepted.
 */
#include <stdlib.h>
#include <string.h>

#include "echelon/constraint.h"
#include "src/base/error.h"
#include "tests/fuzz/fuzz.h"

#define N_IDS   300
#define N_WORDS ((N_IDS + 31) / 32)
#define EOS     (N_IDS - 1)

static ech_mask_vocab *vocab;

static void free_vocab(void)
{
    ech_mask_vocab_unref(&vocab);
}

static void make_vocab(void)
{
    static char bytes[256];
    static const char *const WORDS[] = { "\":",      "\",", "{\"", "\\u", "\\n",  "  ",
                                         "\n  ",     "123", "abc", "ab",  "true", "\xC3\xA9",
                                         "\xE4\xBD", "]}",  "}}",  "-1",  ".5",   "e1" };
    ech_mask_token tokens[N_IDS] = { { 0 } };
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (ech_mask_token){ &bytes[i], 1, ECH_MASK_TOKEN_TEXT };
    }
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        tokens[256 + i] =
            (ech_mask_token){ WORDS[i], (uint32_t)strlen(WORDS[i]), ECH_MASK_TOKEN_TEXT };
    }
    tokens[EOS] = (ech_mask_token){ "<eos>", 5, ECH_MASK_TOKEN_CONTROL };
    const int32_t eos = EOS;
    if (ech_mask_vocab_create(tokens, N_IDS, &eos, 1, &vocab, NULL) != ECH_OK) abort();
    (void)atexit(free_vocab);
}

/* Follows the mask, choosing by the input's bytes. */
static void follow(ech_constraint *const c, const uint8_t *const data, const size_t len)
{
    ech_constraint_state *s = NULL;
    ech_error err = { 0 };
    if (ech_constraint_state_create(c, -1, &s, &err) != ECH_OK) return;
    for (size_t i = 0; i < 24; i++) {
        uint32_t words[N_WORDS];
        const ech_status rc = ech_constraint_state_mask(s, words, N_WORDS, &err);
        if (rc == ECH_ELIMIT || rc == ECH_ENOMEM) break;
        ECH_ASSERT(rc == ECH_OK);
        const uint32_t from = i < len ? data[i] * 7u % N_IDS : (uint32_t)(i * 31 % N_IDS);
        int32_t id = -1;
        for (uint32_t k = 0; k < N_IDS && id < 0; k++) {
            const uint32_t at = (from + k) % N_IDS;
            if ((words[at >> 5] >> (at & 31)) & 1) id = (int32_t)at;
        }
        ECH_ASSERT(id >= 0);
        const ech_status took = ech_constraint_state_accept(s, id, &err);
        if (took == ECH_ELIMIT || took == ECH_ENOMEM) break;
        ECH_ASSERT(took == ECH_OK);
        if (id == EOS) break;
    }
    ech_constraint_state_destroy(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (vocab == NULL) make_vocab();
    if (len == 0) return 0;
    ech_constraint_spec spec = ech_constraint_spec_default();
    spec.content_kind = data[0] == 's'   ? ECH_CONSTRAINT_JSON_SCHEMA
                        : data[0] == 'r' ? ECH_CONSTRAINT_REGEX
                        : data[0] == 'c' ? ECH_CONSTRAINT_CHOICE
                                         : ECH_CONSTRAINT_GBNF;
    const uint8_t *const text = data + 1;
    const uint8_t *const end = len > 1 ? memchr(text, 0, len - 1) : NULL;
    spec.content = (const char *)text;
    spec.content_len = end != NULL ? (size_t)(end - text) : len - 1;
    ech_constraint_options options = ech_constraint_options_default();
    options.max_states = 20000;
    options.cache_bytes = (size_t)1 << 20;
    options.warm_masks = 2;
    ech_constraint *c = NULL;
    ech_error err = { 0 };
    if (ech_constraint_compile(vocab, &spec, &options, &c, &err) != ECH_OK) {
        ECH_ASSERT(err.text[0] != 0);
        return 0;
    }
    const size_t used = 1 + spec.content_len;
    follow(c, data + used, len - used);
    ech_constraint_unref(&c);
    return 0;
}
