/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions and choices as whole texts; patterns are in test_constraint_schema.c. */
#include "tests/unit/text/constraint_helpers.h"

#include <time.h>

#define MAX_TEXTS 8

static const struct {
    const char *regex;
    const char *ok[MAX_TEXTS];
    const char *wrong[MAX_TEXTS];
} CASES[] = {
    { "", { "" }, { "a" } },
    { "abc", { "abc" }, { "ab", "abcd", "" } },
    { "a|b|", { "a", "b", "" }, { "c", "ab" } },
    { "a*b+c?", { "b", "aabbc", "bc" }, { "a", "c", "bcc" } },
    { "a{2}", { "aa" }, { "a", "aaa" } },
    { "a{2,}", { "aa", "aaaaa" }, { "a" } },
    { "(ab){1,2}", { "ab", "abab" }, { "", "ababab" } },
    { "a{0}b", { "b" }, { "ab" } },
    { "(a?){3}", { "", "a", "aaa" }, { "aaaa" } },
    { "(a*)*", { "", "aaaa" }, { "b" } },
    { "(?:a|b)(?<n>c)(d)", { "acd", "bcd" }, { "ac" } },
    { "a+?b*?", { "a", "aab" }, { "b" } },
    { "[a-cx]", { "a", "c", "x" }, { "d", "" } },
    { "[^a-c]", { "d", "\xC3\xA9", "\n" }, { "a", "dd" } },
    { "[-a]", { "-", "a" }, { "b" } },
    { "[a\\-z\\]]", { "-", "]" }, { "b" } },
    { "[\\w-x]", { "-", "q", "_" }, { "+" } },
    { "\\d\\D", { "1a" }, { "11", "a1", "1\xD9\xA3" } },
    { "\\w\\W", { "a ", "_-" }, { "aa", "a\xC3\xA9" } },
    { "\\s\\S", { " a", "\t\xC3\xA9" }, { "aa", "  " } },
    { ".", { "a", "\xF0\x9F\x98\x80", "\"" }, { "\n", "ab", "" } },
    { "\\p{L}\\P{L}", { "a1", "\xC3\xA9 " }, { "ab", "11" } },
    { "\\p{Lu}\\p{gc=Nd}", { "A1", "\xC3\x89\xD9\xA3" }, { "a1" } },
    { "\\x41\\u0042\\u{43}\\t", { "ABC\t" }, { "ABCt" } },
    { "\\ud83d\\ude00", { "\xF0\x9F\x98\x80" }, { "x" } },
    { "\\.\\*\\(\\[\\{\\\\\\/", { ".*([{\\/" }, { "a" } },
    { "^abc$", { "abc" }, { "xabc" } },
    { "^(a|b$)", { "a", "b" }, { "c" } },
    { "a{,2}", { "a{,2}" }, { "aa" } },
    { "x{", { "x{" }, { "x" } },
    { "\\cA", { "\x01" }, { "A" } },
    { "(a|ab)(c|bcd)", { "ac", "abcd", "abc" }, { "abbcdd" } },
};

static void whole_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {

        ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, CASES[i].regex);
        for (size_t k = 0; k < MAX_TEXTS && CASES[i].ok[k] != NULL; k++) {
            assert_accepts(c, CASES[i].ok[k]);
        }
        for (size_t k = 0; k < MAX_TEXTS && CASES[i].wrong[k] != NULL; k++) {
            bool ends = false;
            (void)accepted(c, CASES[i].wrong[k], &ends);
            if (ends) fail_msg("%s accepts %s", CASES[i].regex, CASES[i].wrong[k]);
        }
        ech_constraint_unref(&c);
    }
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *regex;
        ech_status code;
        int64_t offset;
    } ERRORS[] = {
        { "a(b", ECH_EFORMAT, 3 },          { "a)b", ECH_EFORMAT, 1 },
        { "[a", ECH_EFORMAT, 2 },           { "*a", ECH_EFORMAT, 0 },
        { "a**", ECH_EFORMAT, 2 },          { "a{3,2}", ECH_EFORMAT, 6 },
        { "a\\", ECH_EFORMAT, 2 },          { "\\x4", ECH_EFORMAT, 2 },
        { "[z-a]", ECH_EFORMAT, 4 },        { "(?=a)", ECH_EUNSUPPORTED, 1 },
        { "(?<!a)b", ECH_EUNSUPPORTED, 1 }, { "(a)\\1", ECH_EUNSUPPORTED, 4 },
        { "\\bx", ECH_EUNSUPPORTED, 1 },    { "\\p{Greek}", ECH_EUNSUPPORTED, 2 },
        { "(?i)a", ECH_EUNSUPPORTED, 1 },   { "a++", ECH_EUNSUPPORTED, 2 },
        { "a{2000000}", ECH_ELIMIT, 10 },   { "\\q", ECH_EUNSUPPORTED, 1 },
        { "^*", ECH_EFORMAT, 2 },           { "\xFF", ECH_EFORMAT, 0 },
    };
    for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        ech_error err;
        const ech_status rc = compile_error(ECH_CONSTRAINT_REGEX, ERRORS[i].regex, &err);
        if (rc != ERRORS[i].code || err.offset != ERRORS[i].offset) {
            fail_msg("%s: %s at %d: %s", ERRORS[i].regex, ech_status_name(rc), (int)err.offset,
                     err.text);
        }
    }
    ech_error err;
    assert_int_equal(compile_error(ECH_CONSTRAINT_REGEX, "a^b", &err), ECH_EUNSUPPORTED);
    assert_int_equal(compile_error(ECH_CONSTRAINT_REGEX, "[]", &err), ECH_EINVAL);
}

static void deep_groups_are_a_limit(void **state)
{
    (void)state;
    char text[130000];
    (void)memset(text, '(', 60000);
    (void)memset(text + 60000, ')', 60000);
    text[120000] = 0;
    ech_error err;
    assert_int_equal(compile_error(ECH_CONSTRAINT_REGEX, text, &err), ECH_ELIMIT);
    text[100] = 0;
    (void)memset(text + 100, ')', 100);
    text[200] = 0;
    ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, text);
    assert_accepts(c, "");
    ech_constraint_unref(&c);
}

/* Counts are counters: the size of the automaton doesn't depend on them. */
static void repeats_are_not_unrolled(void **state)
{
    (void)state;
    static const char *const REGEXES[] = { "(ab|c{2,3}){5,7}", "(ab|c{2000,300000}){5000,700000}" };
    size_t sizes[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, REGEXES[i]);
        sizes[i] = ech_constraint_get_stats(c).n_instructions;
        ech_constraint_unref(&c);
    }
    assert_true(sizes[1] < 30);
    ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, "a{99990,100000}b");
    char *const text = malloc(100002);
    assert_non_null(text);
    (void)memset(text, 'a', 100001);
    text[100001] = 0;
    assert_rejects_at(c, text, 100000);
    text[99990] = 'b';
    text[99991] = 0;
    assert_accepts(c, text);
    text[99989] = 'b';
    assert_rejects_at(c, text, 99989);
    free(text);
    ech_constraint_unref(&c);
}

/*
 * A set costs by its ranges, a pattern by its length: each of these took a second per ten thousand
 * sets, a quarter of an hour for what one request may send.
 */
static void a_set_that_repeats_is_made_once(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const char *const SETS[] = { ".", "[^a]", "\\s", "\\d" };
    char *const text = malloc(N * 5 + 1);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof SETS / sizeof SETS[0]; i++) {
        size_t n = 0;
        for (size_t k = 0; k < N; k++)
            n += (size_t)sprintf(text + n, "%s", SETS[i]);
        const clock_t begin = clock(); /* of this process: others may run */
        ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, text);
        assert_in_range((clock() - begin) / CLOCKS_PER_SEC, 0, 4);
        ech_constraint_unref(&c);
    }
    /* Categories have hundreds of ranges in a few bytes: a limit, and soon. */
    size_t n = 0;
    for (size_t k = 0; k < N; k++)
        n += (size_t)sprintf(text + n, "\\p{L}");
    const clock_t begin = clock();
    ech_error err;
    assert_int_equal(compile_error(ECH_CONSTRAINT_REGEX, text, &err), ECH_ELIMIT);
    assert_in_range((clock() - begin) / CLOCKS_PER_SEC, 0, 4);
    assert_non_null(strstr(err.text, "ranges"));
    text[1000 * 5] = '\0';
    ech_constraint *c = compile_text(ECH_CONSTRAINT_REGEX, text);
    assert_rejects_at(c, "a\xC3\xA9-", 3);
    ech_constraint_unref(&c);
    free(text);
}

static void choices(void **state)
{
    (void)state;
    ech_constraint *c =
        compile_text(ECH_CONSTRAINT_CHOICE, "[\"a\",\"ab\",\"\\u00e9\\n\",\"b\\u0000c\",\"a\"]");
    assert_accepts(c, "a");
    assert_accepts(c, "ab");
    assert_accepts(c, "\xC3\xA9\n");
    assert_rejects_at(c, "abc", 2);
    assert_rejects_at(c, "\xC3\xA8", 1);
    assert_rejects_at(c, "", 0);
    ech_constraint_unref(&c);
    ech_error err;
    assert_int_equal(compile_error(ECH_CONSTRAINT_CHOICE, "[]", &err), ECH_EINVAL);
    assert_int_equal(compile_error(ECH_CONSTRAINT_CHOICE, "[1]", &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "/0"));
    assert_int_equal(compile_error(ECH_CONSTRAINT_CHOICE, "[\"a\"", &err), ECH_EFORMAT);
    /* Five thousand words that begin with each other. */
    char *const big = malloc(5000 * 12 + 3);
    assert_non_null(big);
    size_t n = (size_t)sprintf(big, "[");
    for (int i = 0; i < 5000; i++)
        n += (size_t)sprintf(big + n, "%s\"w%d\"", i > 0 ? "," : "", i);
    (void)sprintf(big + n, "]");
    c = compile_text(ECH_CONSTRAINT_CHOICE, big);
    assert_accepts(c, "w4999");
    assert_rejects_at(c, "w5000", 4);
    ech_constraint_unref(&c);
    free(big);
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
        cmocka_unit_test(whole_texts),
        cmocka_unit_test(errors),
        cmocka_unit_test(deep_groups_are_a_limit),
        cmocka_unit_test(repeats_are_not_unrolled),
        cmocka_unit_test(a_set_that_repeats_is_made_once),
        cmocka_unit_test(choices),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
