/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks against brute force: at every state of random walks, a token's bit is set exactly if the
 * state accepts the token.
 */
#include "tests/unit/text/constraint_helpers.h"

#define N_MASK_WORDS ((N_IDS + 31) / 32)

static const struct {
    ech_constraint_kind kind;
    const char *text;
} CASES[] = {
    { ECH_CONSTRAINT_JSON_OBJECT, "" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":9}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":100000}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{2,5}(\\\\d|x)*$\"}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"abc\"}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^.{4}a*$\"}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"string\",\"pattern\":\"\\\\p{L}{3}\",\"maxLength\":12}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":4},"
      "\"id\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":120},\"a1\":{\"enum\":[\"abc\","
      "\"ab\",null,1.5]},"
      "\"xs\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":40}}"
      ","
      "\"required\":[\"id\"]}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
      "\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
      "\"boolean\"}}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"$ref\":\"#/$defs/"
      "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":"
      "\"#/$defs/n\"},\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}}}}}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"string\",\"pattern\":\"^[a-z]+( [a-z]+)*$\",\"maxLength\":130}" },
    { ECH_CONSTRAINT_JSON_SCHEMA,
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"a b|x$\",\"minLength\":50,"
      "\"maxLength\":110}}" },
    { ECH_CONSTRAINT_REGEX, "[ab]{90}(x|[ab]{30})*" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"number\",\"multipleOf\":7,\"minimum\":12}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"date-time\"}" },
    { ECH_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"ipv6\"}" },
    { ECH_CONSTRAINT_REGEX, "(ab|abc)*x{3,}.?" },
    { ECH_CONSTRAINT_REGEX, "(a?b?){0,7}c" },
    { ECH_CONSTRAINT_REGEX, "[^a]{0,50000}!" },
    { ECH_CONSTRAINT_REGEX, "(x{1,3}a?){2,70000}" },
    { ECH_CONSTRAINT_CHOICE, "[\"yes\",\"no\",\"yesterday\",\"\",\"the name\"]" },
    { ECH_CONSTRAINT_GBNF,
      "root ::= item (\",\" item){0,5}\nitem ::= \"a\" item \"b\" | \"x\"* \"!\"" },
    { ECH_CONSTRAINT_GBNF, "root ::= s s\ns ::= \"a\" s | \"a\" s \"b\" | [x-z]?\n" },
    { ECH_CONSTRAINT_GBNF,
      "root ::= (a? b?)* \"!\"\na ::= \"ab\"?\nb ::= [\xC3\xA9-\xE4\xBD\xA0]{2,3} | \"\"" },
};

static void check_mask(ech_constraint_state *const s, ech_constraint_state *const scratch,
                       uint32_t words[N_MASK_WORDS], const char *const what)
{
    ech_error err;
    assert_int_equal(ech_constraint_state_mask(s, words, N_MASK_WORDS, &err), ECH_OK);
    uint32_t n = 0;
    int32_t last = -1;
    for (int32_t id = 0; id < N_IDS; id++) {
        ech_constraint_state_assign(scratch, s);
        const bool accepts = ech_constraint_state_accept(scratch, id, NULL) == ECH_OK;
        const bool bit = (words[id >> 5] >> (id & 31)) & 1;
        if (accepts != bit) fail_msg("%s: token %d: bit %d, accepted %d", what, id, bit, accepts);
        n += bit;
        if (bit) last = id;
    }
    assert_int_not_equal(n, 0);
    assert_int_equal(ech_constraint_state_forced(s), n == 1 ? last : -1);
    const bool can_end = ech_constraint_state_can_end(s);
    assert_int_equal(can_end, (words[ID_EOS >> 5] >> (ID_EOS & 31)) & 1);
}

static int32_t draw(const uint32_t *const words, uint64_t *const rng)
{
    int32_t ids[N_IDS];
    uint32_t n = 0;
    for (int32_t id = 0; id < N_IDS; id++) {
        if ((words[id >> 5] >> (id & 31)) & 1) ids[n++] = id;
    }
    /* Words lead to rarer places than single bytes. */
    const int32_t id = ids[test_random(rng, n)];
    return id < ID_WORDS ? ids[test_random(rng, n)] : id;
}

static void walk(ech_constraint *const c, uint64_t *const rng, const char *const what)
{
    ech_constraint_state *s = start(c, -1), *scratch = start(c, -1);
    uint32_t words[N_MASK_WORDS];
    for (int i = 0; i < 30; i++) {
        check_mask(s, scratch, words, what);
        const int32_t id = draw(words, rng);
        assert_int_equal(ech_constraint_state_accept(s, id, NULL), ECH_OK);
        if (id == ID_EOS || id == ID_EOS_2) break;
    }
    ech_constraint_state_destroy(&s);
    ech_constraint_state_destroy(&scratch);
}

static void masks_equal_brute_force(void **state)
{
    (void)state;
    uint64_t rng = test_seed();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        ech_constraint *c = compile_text(CASES[i].kind, CASES[i].text);
        for (int k = 0; k < 12; k++)
            walk(c, &rng, CASES[i].text);
        ech_constraint_unref(&c);
    }
}

/* A cache that is emptied all the time gives the same masks. */
static void masks_survive_a_small_cache(void **state)
{
    (void)state;
    uint64_t rng = test_seed(), flushes = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        ech_constraint_options options = ech_constraint_options_default();
        options.cache_bytes = 4000;
        options.warm_masks = 3;
        const ech_constraint_spec spec = spec_of(CASES[i].kind, CASES[i].text);
        ech_constraint *c = NULL;
        assert_int_equal(ech_constraint_compile(test_vocab(), &spec, &options, &c, NULL), ECH_OK);
        for (int k = 0; k < 3; k++)
            walk(c, &rng, CASES[i].text);
        flushes += ech_constraint_get_stats(c).flushes;
        ech_constraint_unref(&c);
    }
    assert_true(flushes > 10);
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
        cmocka_unit_test(masks_equal_brute_force),
        cmocka_unit_test(masks_survive_a_small_cache),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
