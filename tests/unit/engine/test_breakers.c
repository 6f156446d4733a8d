/* SPDX-License-Identifier: Apache-2.0 */
/* From texts to the ids that break a repeat, with the demo model's tokenizer. */
#include "tests/unit/test.h"

#include <string.h>

#include "src/engine/breakers.h"

static ech_tokenizer *tok;
static ech_arena arena;

static int set_up(void **state)
{
    (void)state;
    return ech_tokenizer_open(&tok, ECH_SOURCE_DIR "/models/tale", NULL) == ECH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ech_arena_fini(&arena);
    ech_tokenizer_close(&tok);
    return 0;
}

static ech_sampling dry_with(const char *const *texts, size_t n)
{
    const ech_sampling s = {
        .dry_multiplier = 1, .dry_range = -1, .dry_breakers = texts, .n_dry_breakers = n
    };
    return s;
}

static bool is_listed(const ech_breakers *b, int32_t id)
{
    for (size_t i = 0; i < b->n_ids; i++)
        if (b->ids[i] == id) return true;
    return false;
}

static void the_default_is_every_token_that_holds_one_of_four(void **state)
{
    (void)state;
    ech_breakers b;
    const ech_sampling s = dry_with(NULL, 0);
    assert_int_equal(ech_breakers_find(&b, &s, tok, &arena, NULL), ECH_OK);
    assert_true(b.n_ids >= 4);
    for (int32_t id = 0; id < (int32_t)ech_tokenizer_n_ids(tok); id++) {
        size_t len;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        bool holds = false;
        for (size_t i = 0; i < len; i++)
            holds = holds || (bytes[i] != 0 && strchr("\n:\"*", bytes[i]) != NULL);
        assert_int_equal(is_listed(&b, id), holds);
    }
}

static void a_text_of_several_tokens_is_a_sequence(void **state)
{
    (void)state;
    static const char *const texts[] = { "Molly found a rope", ":" };
    ech_breakers b;
    ech_ids ids = { 0 };
    const ech_sampling s = dry_with(texts, 2);
    assert_int_equal(
        ech_tokenizer_encode(tok, texts[0], strlen(texts[0]), ECH_ENCODE_SPECIAL, &ids, NULL),
        ECH_OK);
    assert_true(ids.n > 1);
    assert_int_equal(ech_breakers_find(&b, &s, tok, &arena, NULL), ECH_OK);
    assert_int_equal(b.n_sequences, ids.n + 1);
    assert_int_equal(b.sequences[0], ids.n);
    assert_memory_equal(b.sequences + 1, ids.data, ids.n * sizeof *ids.data);
    ech_ids_fini(&ids);
}

static void nothing_breaks_where_dry_is_off_or_none_is_given(void **state)
{
    (void)state;
    static const char *const none[1] = { NULL };
    ech_breakers b;
    ech_sampling s = dry_with(none, 0);
    assert_int_equal(ech_breakers_find(&b, &s, tok, &arena, NULL), ECH_OK);
    assert_int_equal(b.n_ids + b.n_sequences, 0);
    s = dry_with(NULL, 0);
    s.dry_multiplier = 0;
    assert_int_equal(ech_breakers_find(&b, &s, tok, &arena, NULL), ECH_OK);
    assert_int_equal(b.n_ids + b.n_sequences, 0);
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    static char huge[400];
    memset(huge, 'x', sizeof huge - 1);
    const char *const texts[][1] = { { NULL }, { "" }, { huge } };
    ech_breakers b;
    ech_error err;
    for (size_t i = 0; i < 3; i++) {
        const ech_sampling s = dry_with(texts[i], 1);
        assert_int_equal(ech_breakers_find(&b, &s, tok, &arena, &err), ECH_EINVAL);
        assert_non_null(strstr(err.text, "dry_breakers[0]"));
    }
    const ech_sampling many = dry_with(texts[1], ECH_BREAKERS_MAX + 1);
    assert_int_equal(ech_breakers_find(&b, &many, tok, &arena, &err), ECH_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_every_token_that_holds_one_of_four),
        cmocka_unit_test(a_text_of_several_tokens_is_a_sequence),
        cmocka_unit_test(nothing_breaks_where_dry_is_off_or_none_is_given),
        cmocka_unit_test(bad_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
