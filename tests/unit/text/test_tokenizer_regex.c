/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns mean what Oniguruma's Ruby syntax means by them; the expected matches were taken from
 * it. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/tokenizer_regex.h"

/* All matches of pattern in text, joined by '|'. */
static const char *matches(const char *const pattern, const char *const text)
{
    static char out[512];
    ech_regex *re = NULL;
    ech_regex_scratch *s = NULL;
    ech_error err = { 0 };
    if (ech_regex_create(&re, ech_str_from(pattern), &err) != ECH_OK)
        fail_msg("%s: %s", pattern, err.text);
    assert_int_equal(ech_regex_scratch_create(&s), ECH_OK);
    size_t from = 0, at = 0, end = 0, n = 0;
    out[0] = '\0';
    while (from <= strlen(text) &&
           ech_regex_find(re, s, text, strlen(text), from, &at, &end) == 1) {
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", n > 0 ? "|" : "", (int)(end - at),
                              text + at);
        from = end > at ? end : end + 1;
    }
    ech_regex_scratch_destroy(&s);
    ech_regex_destroy(&re);
    return out;
}

static void shorthands_have_onigurumas_sets(void **state)
{
    (void)state;
    assert_string_equal(matches("\\s", "\u180e"), ""); /* no space since Unicode 6.3 */
    assert_string_equal(matches("\\s+", "a\xC2\x85\u3000"
                                        "b"),
                        "\xC2\x85\u3000");
    assert_string_equal(matches("\\h+", "xyzaF9 g"), "aF9"); /* hex digits, not horizontal space */
    assert_string_equal(matches("\\w+", "a\u0301b_1-\u00b2"), "a\u0301b_1|\u00b2");
    assert_string_equal(matches("\\W+", "a--b"), "--");
    assert_string_equal(matches("[\\w]+|[^\\w\\s]+", "a\u00bd"),
                        "a|\u00bd"); /* in a class it is none */
    assert_string_equal(matches("\\p{punct}+", "$!"), "!");
    assert_string_equal(matches("[[:^punct:]]+", "a$!b"), "a|b");
    assert_string_equal(matches("[^\\S\\n]+", "a \t\nb"), " \t");
    assert_string_equal(matches("[\\D]+", "12ab34"), "ab");
    assert_string_equal(matches("[[:punct:]]+", "a$+!b"), "$+!");
    assert_string_equal(matches("\\cA|\\c?", "A\001?\177"), "\001|\177"); /* controls */
    assert_string_equal(matches("[\\cj\\cI]+", "j\t\nI"), "\t\n");
}

static void properties_reach_unicode_16(void **state)
{
    (void)state;
    assert_string_equal(matches("\\p{L}+", "1\u1c89\U0002ebf0!"), "\u1c89\U0002ebf0");
    assert_string_equal(matches("[^\\p{L}]+", "1\u1c89!"), "1|!");
    assert_string_equal(matches("\\P{L}+", "1\u1c89!"), "1|!");
    assert_string_equal(matches("\\p{^L}+", "1\u1c89!"), "1|!");
    assert_string_equal(matches("\\p{Han}+", "a\u4e00\U0002ebf0"), "\u4e00\U0002ebf0");
    assert_string_equal(matches("\\p{Uppercase_Letter}", "aBc"), "B");
}

static void classes_nest_and_intersect(void **state)
{
    (void)state;
    assert_string_equal(matches("[a-c[x-z]]+", "abxq"), "abx");
    assert_string_equal(matches("[a[^b-z]]+", "a1b"), "a1");
    assert_string_equal(matches("[\\p{L}&&[^a-c]]+", "abcdef"), "def");
    assert_string_equal(matches("[^\\p{L}&&[^a-c]]+", "abcdef1"), "abc|1");
    assert_string_equal(matches(" ?[^(\\s|.,!?\u2026)]+", "hello, world!"), "hello| world");
}

static void repeats_are_rubys(void **state)
{
    (void)state;
    assert_string_equal(matches("(?:a{1,2}+)b", "aaab"), "aaab"); /* a repeat of a repeat */
    assert_string_equal(matches("a{,2}b", "aaab"), "aab");
    assert_string_equal(matches("a++b|a", "aac"), "a|a");
    assert_string_equal(matches("x{a}", "x{a}"), "x{a}");
    assert_string_equal(matches("a{2}?", "aa"), "aa|");
}

static void options_hold_to_the_end_of_their_group(void **state)
{
    (void)state;
    assert_string_equal(matches("(?i:'s|'t)", "'S't'\u017f"), "'S|'t|'\u017f");
    assert_string_equal(matches("a(?i)b|c", "aB|aC"), "aB|aC");
    assert_string_equal(matches("(?m:a.b)", "a\nb"), "a\nb");
    assert_string_equal(matches("^b$", "a\nb\nc"), "b");
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        ech_status code;
    } BAD[] = {
        { "\\p{Nonsense}", ECH_EUNSUPPORTED },
        { "(?x: a)", ECH_EUNSUPPORTED },
        { "\\k<n>", ECH_EUNSUPPORTED },
        { "(a", ECH_EFORMAT },
        { "a)", ECH_EFORMAT },
        { "[a", ECH_EFORMAT },
        { "*a", ECH_EFORMAT },
        { "\\", ECH_EFORMAT },
        { "[z-a]", ECH_EFORMAT },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ech_regex *re = NULL;
        ech_error err = { 0 };
        const ech_status rc = ech_regex_create(&re, ech_str_from(BAD[i].pattern), &err);
        if (rc != BAD[i].code) fail_msg("%s: %s", BAD[i].pattern, err.text);
        assert_true(strlen(err.text) > 10);
    }
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    char pattern[2001];
    for (int kind = 0; kind < 2; kind++) {
        memset(pattern, kind == 0 ? '(' : '[', 1000);
        memset(pattern + 1000, kind == 0 ? ')' : ']', 1000);
        pattern[2000] = '\0';
        ech_regex *re = NULL;
        assert_int_equal(ech_regex_create(&re, ech_str_from(pattern), NULL), ECH_ELIMIT);
    }
}

static void a_bomb_hits_the_limit(void **state)
{
    (void)state;
    ech_regex *re = NULL;
    ech_regex_scratch *s = NULL;
    char text[4001];
    size_t at, end;
    memset(text, 'a', 4000);
    text[4000] = '\0';
    assert_int_equal(ech_regex_create(&re, ech_str_from("(?:a+)+(?:a+)+b"), NULL), ECH_OK);
    assert_int_equal(ech_regex_scratch_create(&s), ECH_OK);
    text[3999] = 'c';
    const int rc = ech_regex_find(re, s, text, 4000, 0, &at, &end);
    assert_true(rc == 0 || rc == ECH_ELIMIT); /* the compiler may see that there is no b */
    text[3999] = 'b';
    text[3998] = 'c';
    assert_int_equal(ech_regex_find(re, s, text, 4000, 0, &at, &end), ECH_ELIMIT);
    ech_regex_scratch_destroy(&s);
    ech_regex_destroy(&re);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorthands_have_onigurumas_sets),
        cmocka_unit_test(properties_reach_unicode_16),
        cmocka_unit_test(classes_nest_and_intersect),
        cmocka_unit_test(repeats_are_rubys),
        cmocka_unit_test(options_hold_to_the_end_of_their_group),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_bomb_hits_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
