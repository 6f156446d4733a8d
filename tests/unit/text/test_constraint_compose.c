/* SPDX-License-Identifier: Apache-2.0 */
/* Reasoning before the constrained text, and calls around it. */
#include "tests/unit/text/constraint_helpers.h"

#define N_MASK_WORDS ((N_IDS + 31) / 32)
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"

static ech_constraint_spec with_reasoning(ech_constraint_spec spec, const ech_reasoning_start how,
                                          const char *const end)
{
    spec.reasoning = how;
    spec.reasoning_end = end;
    spec.reasoning_end_len = strlen(end);
    spec.reasoning_begin = "<think>";
    spec.reasoning_begin_len = 7;
    return spec;
}

static bool allows(ech_constraint_state *const s, const int32_t id)
{
    uint32_t words[N_MASK_WORDS];
    assert_int_equal(ech_constraint_state_mask(s, words, N_MASK_WORDS, NULL), ECH_OK);
    return (words[id >> 5] >> (id & 31)) & 1;
}

static void take(ech_constraint_state *const s, const int32_t id)
{
    ech_error err;
    assert_true(allows(s, id));
    if (ech_constraint_state_accept(s, id, &err) != ECH_OK) fail_msg("%d: %s", id, err.text);
}

/* Byte by byte, as tokens. */
static void write_text(ech_constraint_state *const s, const char *const text)
{
    for (const char *c = text; *c != 0; c++)
        take(s, (uint8_t)*c);
}

static int32_t word(const char *const text)
{
    for (int32_t i = 0; i < N_WORDS; i++) {
        if (strcmp(TEST_WORDS[i], text) == 0) return ID_WORDS + i;
    }
    fail_msg("no word %s", text);
    return -1;
}

/* At every step of a token sequence, masks equal what is accepted. */
static void check_masks(ech_constraint *const c, const int64_t budget, uint64_t *const rng)
{
    ech_constraint_state *s = start(c, budget), *scratch = start(c, budget);
    uint32_t words[N_MASK_WORDS];
    for (int i = 0; i < 40; i++) {
        int32_t ids[N_IDS];
        uint32_t n = 0;
        assert_int_equal(ech_constraint_state_mask(s, words, N_MASK_WORDS, NULL), ECH_OK);
        for (int32_t id = 0; id < N_IDS; id++) {
            ech_constraint_state_assign(scratch, s);
            const bool bit = (words[id >> 5] >> (id & 31)) & 1;
            assert_int_equal(ech_constraint_state_accept(scratch, id, NULL) == ECH_OK, bit);
            if (bit) ids[n++] = id;
        }
        assert_int_not_equal(n, 0);
        /* Markers often, or free text would never end. */
        int32_t id = ids[test_random(rng, n)];
        for (uint32_t k = 0; k < n && test_random(rng, 6) == 0; k++) {
            if (ids[k] >= ID_THINK && ids[k] < ID_EOS) id = ids[k];
        }
        assert_int_equal(ech_constraint_state_accept(s, id, NULL), ECH_OK);
        if (id >= ID_EOS) break;
    }
    ech_constraint_state_destroy(&s);
    ech_constraint_state_destroy(&scratch);
}

static void constraint_starts_after_the_end_marker(void **state)
{
    (void)state;
    const ech_constraint_spec spec =
        with_reasoning(spec_of(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA), ECH_THINKING_OPEN, "</think>");
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, -1);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
    assert_false(allows(s, ID_EOS));
    write_text(s, "Hmm: {\"x\" is </think not it");
    take(s, word("\xF0\x9F\x98\x80"));
    take(s, ID_THINK);
    take(s, ID_END_THINK);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CONTENT);
    assert_false(allows(s, 'x'));
    take(s, word("\n\n"));
    write_text(s, "{\"a\":1}");
    assert_true(ech_constraint_state_can_end(s));
    assert_true(ech_constraint_state_is_complete(s));
    assert_int_equal(ech_constraint_state_forced(s), -1); /* there are two ends */
    take(s, ID_EOS_2);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_ENDED);
    ech_constraint_state_destroy(&s);

    /* The marker spelled in plain text ends reasoning too, and what follows it in its token counts.
     */
    s = start(c, -1);
    take(s, word("</"));
    write_text(s, "think");
    assert_true(allows(s, '>'));
    take(s, '>');
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CONTENT);
    ech_constraint_state_destroy(&s);
    s = start(c, -1);
    take(s, word("</think>\n"));
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CONTENT);
    write_text(s, "{\"a\"");
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

/* Only what the parser takes for the marker's may come between it and the answer. */
static void line_breaks_alone_follow_the_marker(void **state)
{
    (void)state;
    const ech_constraint_spec spec =
        with_reasoning(spec_of(ECH_CONSTRAINT_REGEX, "[a-z]{2}"), ECH_THINKING_OPEN, "</think>");
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, 0);
    take(s, ID_END_THINK);
    assert_false(allows(s, ' ') || allows(s, '\t') || allows(s, '\r'));
    take(s, word("\n\n"));
    assert_false(allows(s, ' '));
    write_text(s, "\nab");
    assert_true(ech_constraint_state_is_complete(s));
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void budget_forces_the_marker(void **state)
{
    (void)state;
    const ech_constraint_spec spec =
        with_reasoning(spec_of(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA), ECH_THINKING_OPEN, "</think>");
    ech_constraint *c = compile(&spec);
    for (int64_t budget = 0; budget < 5; budget++) {
        ech_constraint_state *s = start(c, budget);
        for (int64_t i = 0; i < budget; i++) {
            assert_int_equal(ech_constraint_state_forced(s), -1);
            take(s, word("the"));
        }
        assert_int_equal(ech_constraint_state_forced(s), ID_END_THINK);
        assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
        take(s, ID_END_THINK);
        assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CONTENT);
        write_text(s, "{\"a\":1}");
        ech_constraint_state_destroy(&s);
    }
    /* A character that was begun may be finished. */
    ech_constraint_state *s = start(c, 1);
    take(s, 0xE4);
    assert_int_equal(ech_constraint_state_forced(s), -1);
    take(s, 0xBD);
    take(s, 0xA0);
    assert_int_equal(ech_constraint_state_forced(s), ID_END_THINK);
    ech_constraint_state_destroy(&s);
    /* But not for ever. */
    s = start(c, 1);
    for (int i = 0; i < 4; i++)
        take(s, 0xE4);
    assert_int_equal(ech_constraint_state_forced(s), ID_END_THINK);
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

/* Without a token for the marker, its rest is forced, from what was written of it already. */
static void budget_forces_a_spelled_marker(void **state)
{
    (void)state;
    const ech_constraint_spec spec =
        with_reasoning(spec_of(ECH_CONSTRAINT_CHOICE, "[\"yes\"]"), ECH_THINKING_OPEN, "[/THINK]");
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, 4);
    write_text(s, "ab[/");
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
    for (const char *rest = "THINK]"; *rest != 0; rest++) {
        assert_int_equal(ech_constraint_state_forced(s), *rest);
        take(s, *rest);
    }
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CONTENT);
    take(s, word("yes"));
    assert_true(ech_constraint_state_is_complete(s));
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void optional_reasoning(void **state)
{
    (void)state;
    ech_constraint_spec spec = with_reasoning(spec_of(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA),
                                              ECH_THINKING_OPTIONAL, "</think>");
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, 2);
    assert_true(allows(s, '{') && allows(s, ID_THINK) && !allows(s, 'x'));
    take(s, ID_THINK);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
    write_text(s, "ok");
    assert_int_equal(ech_constraint_state_forced(s), ID_END_THINK);
    take(s, ID_END_THINK);
    write_text(s, "{\"a\":1}");
    ech_constraint_state_destroy(&s);
    s = start(c, 2);
    write_text(s, "{\"a\":1}");
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
    /* Free text could hold the marker: once it is complete it is reasoning, and the budget holds.
     */
    spec = with_reasoning(ech_constraint_spec_default(), ECH_THINKING_OPTIONAL, "</think>");
    c = compile(&spec);
    s = start(c, 1);
    take(s, ID_THINK);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
    assert_false(allows(s, ID_EOS));
    take(s, 'x');
    assert_int_equal(ech_constraint_state_forced(s), ID_END_THINK);
    ech_constraint_state_destroy(&s);
    s = start(c, 0);
    take(s, 'x');
    take(s, 'x');
    assert_true(allows(s, ID_EOS));
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static const ech_constraint_call CALLS[] = {
    { "<tool_call>\n{\"name\": \"ok\", \"arguments\": ", 40, SCHEMA, sizeof SCHEMA - 1,
      "}\n</tool_call>", 14 },
    { "<tool_call>\n{\"name\": \"no\", \"arguments\": ", 40, NULL, 0, "}\n</tool_call>", 14 },
};

static ech_constraint_spec with_calls(ech_constraint_spec spec, const ech_call_mode mode)
{
    spec.call_mode = mode;
    spec.calls = CALLS;
    spec.n_calls = 2;
    spec.call_trigger = "<tool_call>";
    spec.call_trigger_len = 11;
    spec.call_separator = "\n";
    spec.call_separator_len = 1;
    return spec;
}

static void required_calls(void **state)
{
    (void)state;
    assert_int_equal(strlen(CALLS[0].begin), CALLS[0].begin_len);
    ech_constraint_spec spec = with_calls(ech_constraint_spec_default(), ECH_CALLS_REQUIRED);
    spec.max_calls = 2;
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, -1);
    assert_int_equal(ech_constraint_state_forced(s), ID_CALL);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CALL);
    take(s, ID_CALL);
    take(s, '\n');
    take(s, word("{\"name\": \""));
    take(s, word("ok"));
    write_text(s, "\", \"arguments\": {\"a\":7}}\n");
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CALL);
    assert_int_equal(ech_constraint_state_forced(s), ID_END_CALL);
    take(s, ID_END_CALL);
    assert_true(allows(s, ID_EOS) && allows(s, '\n') && !allows(s, 'x'));
    take(s, '\n');
    take(s, ID_CALL);
    write_text(s, "\n{\"name\": \"no\", \"arguments\": {\"any\":[]}}\n");
    take(s, ID_END_CALL);
    assert_true(ech_constraint_state_is_complete(s));
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void calls_in_free_text(void **state)
{
    (void)state;
    ech_constraint_spec spec = with_calls(ech_constraint_spec_default(), ECH_CALLS_AUTO);
    spec = with_reasoning(spec, ECH_THINKING_OPEN, "</think>");
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, -1);
    write_text(s, "should I <tool_call>?"); /* in reasoning it is text */
    take(s, ID_CALL);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_REASONING);
    take(s, ID_END_THINK);
    assert_true(allows(s, ID_EOS));
    write_text(s, "Let me see. <tool");
    assert_true(ech_constraint_state_can_end(s));
    take(s, ID_CALL);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CALL);
    assert_false(ech_constraint_state_can_end(s));
    assert_true(allows(s, '\n') && !allows(s, ' '));
    write_text(s, "\n{\"name\": \"ok\", \"arguments\": {\"a\":");
    assert_false(allows(s, '"'));
    write_text(s, "5}}\n");
    take(s, ID_END_CALL);
    assert_true(allows(s, ID_EOS) && allows(s, 'x') && allows(s, ID_CALL));
    take(s, word("<tool"));
    write_text(s, "_call>"); /* spelled in plain text it begins a call as well */
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CALL);
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void content_or_calls(void **state)
{
    (void)state;
    ech_constraint_spec spec =
        with_calls(spec_of(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA), ECH_CALLS_AUTO);
    spec.max_calls = 1;
    ech_constraint *c = compile(&spec);
    ech_constraint_state *s = start(c, -1);
    assert_true(allows(s, '{') && allows(s, ID_CALL) && !allows(s, 'x'));
    write_text(s, "{\"a\":1}");
    assert_true(ech_constraint_state_is_complete(s));
    ech_constraint_state_destroy(&s);
    s = start(c, -1);
    take(s, ID_CALL);
    assert_int_equal(ech_constraint_state_phase(s), ECH_PHASE_CALL);
    write_text(s, "\n{\"name\": \"no\", \"arguments\": {}}\n");
    take(s, ID_END_CALL);
    assert_true(ech_constraint_state_is_complete(s));
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void masks_of_compositions_equal_brute_force(void **state)
{
    (void)state;
    uint64_t rng = test_seed();
    const ech_constraint_spec text = ech_constraint_spec_default();
    const ech_constraint_spec json = spec_of(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA);
    const ech_constraint_spec specs[] = {
        with_reasoning(text, ECH_THINKING_OPEN, "</think>"),
        with_reasoning(json, ECH_THINKING_OPEN, "</think>"),
        with_reasoning(json, ECH_THINKING_OPTIONAL, "--aab--aac"),
        with_calls(text, ECH_CALLS_AUTO),
        with_calls(json, ECH_CALLS_AUTO),
        with_reasoning(with_calls(text, ECH_CALLS_AUTO), ECH_THINKING_OPEN, "</think>\n"),
        with_reasoning(with_calls(text, ECH_CALLS_REQUIRED), ECH_THINKING_OPEN, "</think>"),
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        ech_constraint *c = compile(&specs[i]);
        for (int k = 0; k < 10; k++)
            check_masks(c, k % 3 == 0 ? -1 : k, &rng);
        ech_constraint_unref(&c);
    }
}

static void state_is_unchanged_by_what_it_refuses(void **state)
{
    (void)state;
    ech_constraint *c = compile_text(ECH_CONSTRAINT_JSON_SCHEMA, SCHEMA);
    ech_constraint_state *s = start(c, -1), *copy = NULL;
    write_text(s, "{\"a\"");
    ech_error err;
    size_t taken = 99;
    assert_int_equal(ech_constraint_state_accept(s, 'x', &err), ECH_EINVAL);
    assert_int_equal(ech_constraint_state_accept(s, ID_EOS, &err), ECH_EINVAL);
    assert_int_equal(ech_constraint_state_accept(s, -1, &err), ECH_EINVAL);
    assert_int_equal(ech_constraint_state_accept(s, N_IDS, &err), ECH_EINVAL);
    assert_int_equal(ech_constraint_state_accept_bytes(s, ":12x", 4, &taken, &err), ECH_EINVAL);
    assert_int_equal(taken, 3);
    assert_int_equal(err.offset, 3);
    uint32_t words[N_MASK_WORDS];
    assert_int_equal(ech_constraint_state_mask(s, words, N_MASK_WORDS - 1, &err), ECH_EINVAL);
    assert_int_equal(ech_constraint_state_clone(s, &copy, &err), ECH_OK);
    write_text(s, ":1}");
    write_text(copy, ":-2 ");
    ech_constraint_state_assign(s, copy);
    write_text(s, "}");
    assert_true(ech_constraint_state_is_complete(s) && !ech_constraint_state_is_complete(copy));
    ech_constraint_unref(&c); /* the states hold it */
    write_text(copy, "}");
    ech_constraint_state_destroy(&copy);
    ech_constraint_state_destroy(&s);
    ech_constraint_state_destroy(&s);
}

static void bad_specs(void **state)
{
    (void)state;
    ech_constraint *c = NULL;
    ech_error err;
    ech_constraint_spec spec = with_reasoning(ech_constraint_spec_default(), ECH_THINKING_OPEN, "");
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, NULL, &c, &err), ECH_EINVAL);
    spec = with_calls(ech_constraint_spec_default(), ECH_CALLS_NONE);
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, NULL, &c, &err), ECH_EINVAL);
    spec = with_calls(ech_constraint_spec_default(), ECH_CALLS_AUTO);
    spec.call_trigger = "<other>";
    spec.call_trigger_len = 7;
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, NULL, &c, &err), ECH_EINVAL);
    spec = spec_of(ECH_CONSTRAINT_GBNF, NULL);
    spec.content_len = 5;
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, NULL, &c, &err), ECH_EINVAL);
    const ech_constraint_call bad = { "<tool_call>", 11, "{\"not\":{}}", 10, "", 0 };
    spec = with_calls(ech_constraint_spec_default(), ECH_CALLS_REQUIRED);
    spec.calls = &bad;
    spec.n_calls = 1;
    assert_int_equal(ech_constraint_compile(test_vocab(), &spec, NULL, &c, &err), ECH_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "call 0"));
    assert_non_null(strstr(err.text, "/not"));
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
        cmocka_unit_test(constraint_starts_after_the_end_marker),
        cmocka_unit_test(line_breaks_alone_follow_the_marker),
        cmocka_unit_test(budget_forces_the_marker),
        cmocka_unit_test(budget_forces_a_spelled_marker),
        cmocka_unit_test(optional_reasoning),
        cmocka_unit_test(required_calls),
        cmocka_unit_test(calls_in_free_text),
        cmocka_unit_test(content_or_calls),
        cmocka_unit_test(masks_of_compositions_equal_brute_force),
        cmocka_unit_test(state_is_unchanged_by_what_it_refuses),
        cmocka_unit_test(bad_specs),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
