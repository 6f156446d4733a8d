/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies: from a tokenizer, their limits, and constraints that several threads follow. */
#include "tests/unit/text/constraint_helpers.h"

#include <pthread.h>

static void a_tokenizer_gives_its_vocabulary(void **state)
{
    (void)state;
    ech_tokenizer *tok = NULL;
    ech_mask_vocab *vocab = NULL;
    ech_error err;
    assert_int_equal(ech_tokenizer_open(&tok, ECH_SOURCE_DIR "/models/tale", &err), ECH_OK);
    const int32_t eos = ech_tokenizer_special_id(tok, ECH_SPECIAL_EOS);
    assert_int_equal(ech_mask_vocab_from_tokenizer(tok, &eos, 1, &vocab, &err), ECH_OK);
    assert_int_equal(ech_mask_vocab_size(vocab), ech_tokenizer_n_ids(tok));
    /* What the tokenizer makes of a text is allowed, token by token; its special tokens are not. */
    static const char TEXT[] =
        "{\"name\": \"Once upon a \\u00e9 time\", \"n\": -12.5e3, \"l\": [true, null]}";
    ech_ids ids = { 0 };
    assert_int_equal(ech_tokenizer_encode(tok, TEXT, sizeof TEXT - 1, 0, &ids, &err), ECH_OK);
    const ech_constraint_spec spec = spec_of(ECH_CONSTRAINT_JSON_OBJECT, "");
    ech_constraint *c = NULL;
    assert_int_equal(ech_constraint_compile(vocab, &spec, NULL, &c, &err), ECH_OK);
    ech_constraint_state *s = start(c, -1);
    uint32_t *const words = calloc(ech_mask_vocab_words(vocab), sizeof *words);
    assert_non_null(words);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_equal(ech_constraint_state_mask(s, words, ech_mask_vocab_words(vocab), &err),
                         ECH_OK);
        assert_true((words[ids.data[i] >> 5] >> (ids.data[i] & 31)) & 1);
        assert_false((words[eos >> 5] >> (eos & 31)) & 1);
        assert_int_equal(ech_constraint_state_accept(s, ids.data[i], &err), ECH_OK);
    }
    assert_true(ech_constraint_state_is_complete(s));
    assert_int_equal(ech_constraint_state_forced(s), eos);
    free(words);
    ech_ids_fini(&ids);
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
    ech_mask_vocab_unref(&vocab);
    ech_tokenizer_close(&tok);
}

static void bad_vocabularies(void **state)
{
    (void)state;
    const ech_mask_token one = { "a", 1, ECH_MASK_TOKEN_TEXT },
                         large = { "a", 40000, ECH_MASK_TOKEN_TEXT };
    const int32_t outside[] = { 1 }, negative[] = { -1 };
    ech_mask_vocab *v = NULL;
    ech_error err;
    assert_int_equal(ech_mask_vocab_create(&one, 0, NULL, 0, &v, &err), ECH_EINVAL);
    assert_int_equal(ech_mask_vocab_create(&one, 1, outside, 1, &v, &err), ECH_EINVAL);
    assert_int_equal(ech_mask_vocab_create(&one, 1, negative, 1, &v, &err), ECH_EINVAL);
    assert_int_equal(ech_mask_vocab_create(&large, 1, NULL, 0, &v, &err), ECH_ELIMIT);
    assert_int_equal(ech_mask_vocab_create(&one, ECH_MASK_VOCAB_MAX_IDS + 1, NULL, 0, &v, &err),
                     ECH_ELIMIT);
    /* A vocabulary that can't spell what is asked for: an error, not an empty mask. */
    assert_int_equal(ech_mask_vocab_create(&one, 1, NULL, 0, &v, &err), ECH_OK);
    const ech_constraint_spec spec = spec_of(ECH_CONSTRAINT_REGEX, "ab");
    ech_constraint *c = NULL;
    assert_int_equal(ech_constraint_compile(v, &spec, NULL, &c, &err), ECH_OK);
    ech_constraint_state *s = start(c, -1);
    uint32_t word = 0;
    assert_int_equal(ech_constraint_state_forced(s), 0);
    assert_int_equal(ech_constraint_state_accept(s, 0, &err), ECH_OK);
    assert_int_equal(ech_constraint_state_mask(s, &word, 1, &err), ECH_EINVAL);
    assert_int_equal(word, 0);
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
    ech_mask_vocab_unref(&v);
    ech_mask_vocab_unref(&v);
}

typedef struct job {
    ech_constraint *c;
    uint64_t seed;
    uint64_t digest; /* of all masks and ids */
} job;

static void *follow(void *const user)
{
    job *const j = user;
    uint64_t rng = j->seed;
    uint32_t words[(N_IDS + 31) / 32];
    for (int doc = 0; doc < 20; doc++) {
        ech_constraint_state *s = NULL;
        if (ech_constraint_state_create(j->c, -1, &s, NULL) != ECH_OK) return NULL;
        for (int i = 0; i < 60 && !ech_constraint_state_is_complete(s); i++) {
            if (ech_constraint_state_mask(s, words, sizeof words / sizeof words[0], NULL) != ECH_OK)
                break;
            int32_t id = (int32_t)test_random(&rng, N_IDS);
            while (!((words[id >> 5] >> (id & 31)) & 1))
                id = (id + 1) % N_IDS;
            for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
                j->digest = j->digest * 31 + words[k];
            if (ech_constraint_state_accept(s, id, NULL) != ECH_OK) j->digest = 0;
        }
        ech_constraint_state_destroy(&s);
    }
    return NULL;
}

/* The cache is emptied under the threads' feet; each sees what it would see alone. */
static void threads_share_a_constraint(void **state)
{
    (void)state;
    ech_constraint_options options = ech_constraint_options_default();
    options.cache_bytes = 30000;
    options.warm_masks = 0;
    const ech_constraint_spec spec = spec_of(ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"object\"}");
    job together[3], alone[3];
    pthread_t threads[3];
    ech_constraint *c = NULL;
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, &options, &c, NULL), ECH_OK);
    for (uint64_t i = 0; i < 3; i++) {
        together[i] = (job){ c, i + 1, 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, follow, &together[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(ech_constraint_get_stats(c).flushes > 0);
    ech_constraint_unref(&c);
    for (uint64_t i = 0; i < 3; i++) {
        c = compile(&spec);
        alone[i] = (job){ c, i + 1, 1 };
        (void)follow(&alone[i]);
        assert_int_equal(alone[i].digest, together[i].digest);
        ech_constraint_unref(&c);
    }
}

static int free_vocab(void **state)
{
    (void)state;
    test_vocab_free();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tokenizer_gives_its_vocabulary),
        cmocka_unit_test(bad_vocabularies),
        cmocka_unit_test(threads_share_a_constraint),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
