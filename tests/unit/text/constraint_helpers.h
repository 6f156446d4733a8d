/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of constraints share: a small vocabulary, one-line checks. */
#ifndef ECH_TESTS_UNIT_TEXT_CONSTRAINT_HELPERS_H
#define ECH_TESTS_UNIT_TEXT_CONSTRAINT_HELPERS_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/constraint.h"

/* All single bytes (id = byte), then words, then control tokens; ids below. */
enum {
    ID_WORDS = 256,
    N_WORDS = 64,
    ID_THINK = ID_WORDS + N_WORDS,
    ID_END_THINK,
    ID_CALL,
    ID_END_CALL,
    ID_EOS,
    ID_EOS_2,
    N_IDS,
};

extern const char *const TEST_WORDS[N_WORDS];

/* Made once, never freed before the end of the program: test_vocab_free. */
ech_mask_vocab *test_vocab(void);
void test_vocab_free(void);
/* The text of an id as the model would write it. */
const char *test_token(int32_t id, size_t *ret_len);

ech_constraint_spec spec_of(ech_constraint_kind kind, const char *text);
/* Fails the test when it doesn't compile. */
ech_constraint *compile(const ech_constraint_spec *spec);
ech_constraint *compile_text(ech_constraint_kind kind, const char *text);
ech_constraint_state *start(ech_constraint *c, int64_t budget);

/* The error of a spec that must not compile. */
ech_status compile_error(ech_constraint_kind kind, const char *text, ech_error *err);

/* How many bytes of text are right, and whether the text may end after all of them. */
size_t accepted(ech_constraint *c, const char *text, bool *ret_ends);
/* Asserts with the text in the message. */
void assert_accepts(ech_constraint *c, const char *text);
/* The text is wrong from byte at on; at == its length: it is unfinished. */
void assert_rejects_at(ech_constraint *c, const char *text, size_t at);

/* A seed that is printed and can be given back in ECH_TEST_SEED. */
uint64_t test_seed(void);
uint32_t test_random(uint64_t *rng, uint32_t below);

#endif
