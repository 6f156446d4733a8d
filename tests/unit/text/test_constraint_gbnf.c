/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF grammars: every construct of the notation, and what is refused where. */
#include "tests/unit/text/constraint_helpers.h"

#define MAX_TEXTS 8

static const struct {
    const char *grammar;
    const char *ok[MAX_TEXTS];
    const char *wrong[MAX_TEXTS];
} CASES[] = {
    { "root ::= \"a\"", { "a" }, { "", "aa", "b" } },
    { "root ::= \"a\" | \"b\" \"c\" |\n  \"d\"", { "a", "bc", "d" }, { "b", "ad" } },
    { "root ::= \"a\"\n  | \"b\"\nother ::= \"x\"\n", { "a", "b" }, { "x" } },
    { "# comment\nroot ::= x # more\n# and\n\n\nx ::= \"1\" # \"2\"\n", { "1" }, { "2" } },
    { "root ::= [a-z]+ [^0-9a-z]", { "abc!", "a\xC3\xA9" }, { "abc", "a1", "!" } },
    { "root ::= [\\]\\[\\-\\^] [a-] [-a]", { "]a-", "[-a", "^aa" }, { "aaa" } },
    { "root ::= \"a\"* \"b\"+ \"c\"?", { "b", "aabbc" }, { "a", "c", "bcc" } },
    { "root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"{,1}",
      { "aab", "aabbccd" },
      { "ab", "aa", "aabccc" } },
    { "root ::= (\"a\" | \"b\" (\"c\" | \"d\")?)+", { "a", "b", "abcbda" }, { "", "c" } },
    { "root ::= (\n  \"a\"\n  \"b\" # inside\n  |\n  \"c\"\n)", { "ab", "c" }, { "a" } },
    { "root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\"",
      { "A\xC3\xA9\xF0\x9F\x98\x80\n\t\r\\\"" },
      { "A" } },
    { "root ::= . .", { "ab", "\xC3\xA9\n" }, { "a", "abc" } },
    { "root ::= \"\xE4\xBD\xA0\" [\xE4\xBD\xA0-\xE5\xA5\xBD]",
      { "\xE4\xBD\xA0\xE5\x80\x80" },
      { "\xE4\xBD\xA0"
        "a" } },
    { "root ::= \"(\" root \")\" | \"x\"", { "x", "((x))" }, { "(x", "x)" } },
    { "root ::= \"a\" root | \"b\"", { "b", "aaaab" }, { "aaa" } },
    { "root ::= a-b C1 _x\na-b ::= \"1\"\nC1 ::= \"2\"\n_x ::= \"\"", { "12" }, { "1" } },
    { "root::=\"a\"\"b\"", { "ab" }, { "a" } },
    { "\r\nroot ::= \"a\"\r\nx ::= \"b\"\r\n", { "a" }, { "b" } },
    { "root ::= (\"a\"*)* \"b\"", { "b", "aab" }, { "a" } },
    { "root ::= (\"a\"? \"b\"?){2,3} \"!\"", { "!", "ab!", "ababab!", "ba!" }, { "abababa!" } },
    { "root ::= \"a\" | ", { "a", "" }, { "b" } },
    { "root ::= object\n"
      "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
      "object ::=\n  \"{\" ws (\n            string \":\" ws value\n    (\",\" ws string \":\" ws "
      "value)*\n  )? \"}\" ws\n"
      "array ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n"
      "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n    \"\\\\\" ([\"\\\\bfnrt] | "
      "\"u\" [0-9a-fA-F]{4}) # escapes\n"
      "  )* \"\\\"\" ws\n"
      "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
      "[1-9]{0,15})? ws\n"
      "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
      { "{}", "{\"a\": [1, 2.5e3,\"x\\n\"], \"b\":{\"c\":null}}" },
      { "{", "[1]", "{\"a\":}", "{\"a\":1,}" } },
};

static void notation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        ech_constraint *c = compile_text(ECH_CONSTRAINT_GBNF, CASES[i].grammar);
        for (size_t k = 0; k < MAX_TEXTS && CASES[i].ok[k] != NULL; k++) {
            assert_accepts(c, CASES[i].ok[k]);
        }
        for (size_t k = 0; k < MAX_TEXTS && CASES[i].wrong[k] != NULL; k++) {
            bool ends = false;
            (void)accepted(c, CASES[i].wrong[k], &ends);
            if (ends) fail_msg("%s accepts %s", CASES[i].grammar, CASES[i].wrong[k]);
        }
        ech_constraint_unref(&c);
    }
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *grammar;
        ech_status code;
        int64_t line, column;
    } ERRORS[] = {
        { "", ECH_EFORMAT, 1, 1 },
        { "x ::= \"a\"", ECH_EFORMAT, 1, 10 },
        { "root ::= \"a\"\nroot ::= \"b\"", ECH_EFORMAT, 2, 1 },
        { "root ::= x\n", ECH_EFORMAT, 1, 10 },
        { "root ::= \"a", ECH_EFORMAT, 1, 11 },
        { "root ::= [a", ECH_EFORMAT, 1, 11 },
        { "root ::= (\"a\"", ECH_EFORMAT, 1, 11 },
        { "root ::= \"a\")", ECH_EFORMAT, 1, 13 },
        { "root = \"a\"", ECH_EFORMAT, 1, 6 },
        { "root ::= \"\\q\"", ECH_EFORMAT, 1, 12 },
        { "root ::= \"\\u12\"", ECH_EFORMAT, 1, 15 },
        { "root ::= \"\\ud800\"", ECH_EFORMAT, 1, 17 },
        { "root ::= [z-a]", ECH_EFORMAT, 1, 14 },
        { "root ::= *", ECH_EFORMAT, 1, 10 },
        { "root ::= \"a\"{2,1}", ECH_EFORMAT, 1, 18 },
        { "root ::= \"a\"{x}", ECH_EFORMAT, 1, 14 },
        { "root ::= \"a\"{9999999}", ECH_ELIMIT, 1, 21 },
        { "root ::= \"a\"\n  b ::= \"c\"\n?", ECH_EFORMAT, 3, 1 },
        { "root ::= <think>", ECH_EUNSUPPORTED, 1, 10 },
        { "root ::= \"\xC3\"", ECH_EFORMAT, 1, 11 },
    };
    for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        ech_error err;
        const ech_status rc = compile_error(ECH_CONSTRAINT_GBNF, ERRORS[i].grammar, &err);
        if (rc != ERRORS[i].code || err.line != ERRORS[i].line || err.column != ERRORS[i].column) {
            fail_msg("%s: %s: %s", ERRORS[i].grammar, ech_status_name(rc), err.text);
        }
    }
}

static void grammars_without_a_meaning(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "root ::= root \"a\" | \"b\"",
        "root ::= \"x\" y\ny ::= z \"a\"\nz ::= \"\" y | \"c\"",
        "root ::= x\nx ::= \"a\"? x",
        "root ::= \"a\" root",
        "root ::= root",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ech_error err;
        assert_int_equal(compile_error(ECH_CONSTRAINT_GBNF, BAD[i], &err), ECH_EINVAL);
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
        cmocka_unit_test(notation),
        cmocka_unit_test(errors),
        cmocka_unit_test(grammars_without_a_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
