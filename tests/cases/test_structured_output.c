/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of structured output that users of other servers reported; one argument: the case. */
#include "tests/unit/text/constraint_helpers.h"

#define SCHEMA ECH_CONSTRAINT_JSON_SCHEMA

static void assert_refused(const ech_constraint_kind kind, const char *const text,
                           const ech_status code, const char *const where)
{
    ech_error err;
    const ech_status rc = compile_error(kind, text, &err);
    if (rc != code || strstr(err.text, where) == NULL || ech_status_http(rc) != 400) {
        fail_msg("%.100s: %s: %s", text, ech_status_name(rc), err.text);
    }
}

/* What can't be enforced is an error with a JSON pointer, never an unconstrained answer. */
static void js1(void **state)
{
    (void)state;
    static const char *const KEYWORDS[] = {
        "not",
        "if",
        "contains",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
    };
    char text[200], where[100];
    for (size_t i = 0; i < sizeof KEYWORDS / sizeof KEYWORDS[0]; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"type\":\"object\",\"properties\":{\"x\":{\"%s\":{}}}}", KEYWORDS[i]);
        (void)snprintf(where, sizeof where, "/properties/x/%s", KEYWORDS[i]);
        assert_refused(SCHEMA, text, ECH_EUNSUPPORTED, where);
    }
    assert_refused(SCHEMA, "{\"items\":{\"uniqueItems\":true}}", ECH_EUNSUPPORTED,
                   "/items/uniqueItems");
    assert_refused(SCHEMA, "{\"properties\":{\"x\":{\"format\":\"iri\"}}}", ECH_EUNSUPPORTED,
                   "/properties/x/format");
    assert_refused(SCHEMA, "{\"items\":{\"$ref\":\"other.json\"}}", ECH_EUNSUPPORTED,
                   "/items/$ref");
    assert_refused(SCHEMA, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
                   ECH_EUNSUPPORTED, "/oneOf");
    assert_refused(SCHEMA, "{\"properties\":{\"x\":{\"pattern\":\"^(?=a)\"}}}", ECH_EUNSUPPORTED,
                   "/properties/x/pattern");
    assert_refused(SCHEMA, "{\"properties\":{\"x\":{\"type\":\"text\"}}}", ECH_EFORMAT,
                   "/properties/x/type");
    assert_refused(ECH_CONSTRAINT_GBNF, "root ::= \"a\n", ECH_EFORMAT, "line 1, column 11");
}

/* Large lengths are counters. */
static void js2(void **state)
{
    (void)state;
    ech_constraint *small = compile_text(SCHEMA, "{\"type\":\"string\",\"maxLength\":10}");
    ech_constraint *large =
        compile_text(SCHEMA, "{\"type\":\"string\",\"minLength\":5000,\"maxLength\":100000}");
    assert_int_equal(ech_constraint_get_stats(small).n_instructions,
                     ech_constraint_get_stats(large).n_instructions);
    char *const text = malloc(100004);
    assert_non_null(text);
    (void)memset(text, 'a', 100003);
    text[0] = '"';
    text[100002] = 0;
    assert_rejects_at(large, text, 100001);
    text[100001] = '"';
    assert_accepts(large, text);
    text[4000] = '"';
    assert_rejects_at(large, text, 4000);
    free(text);
    ech_constraint_unref(&small);
    ech_constraint_unref(&large);
    ech_constraint *c = compile_text(
        SCHEMA,
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
        "\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2000},\"maxItems\":3000}}},"
        "\"maxItems\":5000}");
    assert_true(ech_constraint_get_stats(c).n_instructions < 200);
    ech_constraint_unref(&c);
}

/* Patterns that broke parsers. */
static void js4(void **state)
{
    (void)state;
    assert_refused(SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(?=x)\"}", ECH_EUNSUPPORTED,
                   "look-around");
    ech_constraint *c = compile_text(SCHEMA, "{\"type\":\"string\",\"pattern\":\"\\\\p{L}\"}");
    assert_accepts(c, "\"1\xC3\xA9\"");
    assert_rejects_at(c, "\"12\"", 3);
    ech_constraint_unref(&c);
    c = compile_text(SCHEMA, "{\"type\":\"string\",\"pattern\":\"(a|b)*$\"}");
    assert_accepts(c, "\"zzz\"");
    assert_accepts(c, "\"\"");
    ech_constraint_unref(&c);
    c = compile_text(SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(a|b)*$\"}");
    assert_accepts(c, "\"abba\"");
    assert_rejects_at(c, "\"abc\"", 3);
    ech_constraint_unref(&c);
    c = compile_text(SCHEMA, "{\"type\":\"string\",\"pattern\":\"\"}");
    assert_accepts(c, "\"anything \\n\"");
    ech_constraint_unref(&c);
}

/* Grammars that are malformed, deep or large: errors within bounded time, never a crash. */
static void js5(void **state)
{
    (void)state;
    const size_t n = 60000;
    char *const text = malloc(2 * n + 100 + n * 24);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "root ::= ");
    (void)memset(text + at, '(', n);
    at += n;
    at += (size_t)sprintf(text + at, "\"a\"");
    (void)memset(text + at, ')', n);
    text[at + n] = 0;
    assert_refused(ECH_CONSTRAINT_GBNF, text, ECH_ELIMIT, "line 1, column 211");
    /* A chain of sixty thousand rules. */
    ech_error err;
    at = (size_t)sprintf(text, "root ::= r0 \"x\"\n");
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "r%zu ::= r%zu \"x\"\n", i, i + 1);
    (void)sprintf(text + at, "r%zu ::= \"y\"\n", n);
    const ech_constraint_spec spec = spec_of(ECH_CONSTRAINT_GBNF, text);
    ech_constraint *c = NULL;
    ech_constraint_options options = ech_constraint_options_default();
    options.max_source_bytes = (size_t)1 << 24;
    assert_int_not_equal(ech_constraint_compile(test_vocab(), &spec, &options, &c, &err), ECH_OK);
    static const char *const BAD[] = { "root ::= ",       "::=",        "root ::= \"",
                                       "root ::= [",      "root ::= (", "root ::= {",
                                       "root ::= \"a\"{", "root",       "root ::= root",
                                       "root ::= \"\\",   "\xFF\xFE" };
    for (size_t i = 1; i < sizeof BAD / sizeof BAD[0]; i++) {
        (void)compile_error(ECH_CONSTRAINT_GBNF, BAD[i], &err);
    }
    free(text);
}

/* $ref anywhere, recursive too. */
static void js6(void **state)
{
    (void)state;
    ech_constraint *c = compile_text(
        SCHEMA,
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"},\"$defs\":{\"node\":{\"type\":"
        "\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":\"array\","
        "\"items\":"
        "{\"$ref\":\"#/$defs/node\"}}},\"required\":[\"v\"]}}}");
    assert_accepts(c, "[{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[{\"v\":3}]}]},{\"v\":4}]");
    assert_rejects_at(c, "[{\"v\":1,\"kids\":[{\"w\"", 18);
    ech_constraint_unref(&c);
    c = compile_text(SCHEMA, "{\"type\":\"object\",\"properties\":{\"x\":{\"enum\":[\"a\"]},\"y\":{"
                             "\"$ref\":\"#/properties/x\"}}}");
    assert_accepts(c, "{\"y\":\"a\"}");
    assert_rejects_at(c, "{\"y\":\"b", 6);
    ech_constraint_unref(&c);
    assert_refused(SCHEMA, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
                   ECH_EINVAL, "");
    assert_refused(SCHEMA, "{\"properties\":{\"x\":{\"$ref\":\"#/$defs/none\"}}}", ECH_EFORMAT,
                   "/properties/x/$ref");
}

/* Ten thousand nested properties: an error, no overflow. */
static void js7(void **state)
{
    (void)state;
    const int n = 10000;
    char *const text = malloc((size_t)n * 32 + 16);
    assert_non_null(text);
    ech_error err;
    for (int depth = 100; depth <= n; depth *= 10) {
        size_t at = 0;
        for (int i = 0; i < depth; i++)
            at += (size_t)sprintf(text + at, "{\"properties\":{\"a\":");
        at += (size_t)sprintf(text + at, "{}");
        for (int i = 0; i < depth; i++)
            at += (size_t)sprintf(text + at, "}}");
        if (depth > 100) {
            assert_int_not_equal(compile_error(SCHEMA, text, &err), ECH_EINTERNAL);
            continue;
        }
        ech_constraint *c = compile_text(SCHEMA, text);
        assert_accepts(c, "{\"a\":{\"a\":{\"a\":1}}}");
        ech_constraint_unref(&c);
    }
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "[");
    assert_int_not_equal(compile_error(SCHEMA, text, &err), ECH_EINTERNAL);
    free(text);
}

/* Schemas of additional properties, enums of any type. */
static void js9(void **state)
{
    (void)state;
    ech_constraint *c = compile_text(
        SCHEMA, "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}");
    assert_accepts(c, "{\"a\":1,\"b\":-2}");
    assert_rejects_at(c, "{\"a\":\"1\"}", 5);
    assert_rejects_at(c, "{\"a\":1,\"b\":null}", 11);
    ech_constraint_unref(&c);
    c = compile_text(SCHEMA, "{\"enum\":[1,true,null]}");
    assert_accepts(c, "1");
    assert_accepts(c, "true");
    assert_accepts(c, "null");
    assert_rejects_at(c, "\"1\"", 0);
    assert_rejects_at(c, "false", 0);
    ech_constraint_unref(&c);
}

/* Properties in the schema's order; no key, however it began, leaves only escapes to go on with. */
static void js10(void **state)
{
    (void)state;
    ech_constraint *c =
        compile_text(SCHEMA, "{\"type\":\"object\",\"properties\":{\"first\":{},\"second\":{}},"
                             "\"additionalProperties\":{\"type\":\"integer\"}}");
    assert_accepts(c, "{\"first\":1,\"second\":2,\"third\":3}");
    assert_accepts(c, "{\"second\":2}");
    /* A declared key out of order: it can't be closed, but it can be made another key. */
    assert_rejects_at(c, "{\"second\":2,\"first\":1}", 18);
    assert_accepts(c, "{\"second\":2,\"first_\":1}");
    assert_rejects_at(c, "{\"second\":2,\"fi\\u0072st\":1}", 23);
    ech_constraint_unref(&c);
    /* Not more than 256 escapes in a row where nothing else bounds a string. */
    c = compile_text(SCHEMA, "{\"type\":\"string\"}");
    char text[600] = "\"";
    for (int i = 0; i < 257; i++)
        (void)memcpy(text + 1 + 2 * i, "\\n", 3);
    assert_rejects_at(c, text, 513);
    text[513] = 'x';
    text[514] = '"';
    text[515] = 0;
    assert_accepts(c, text);
    ech_constraint_unref(&c);
}

/* The longest text of whitespace and digits that masks let through from a place. */
static void js11(void **state)
{
    (void)state;
    static const char *const PREFIXES[] = { "{",         "{\"a\"",   "{\"a\":",  "{\"a\":1",
                                            "{\"a\":1,", "{\"a\":[", "{\"a\":[1" };
    ech_constraint *c = compile_text(ECH_CONSTRAINT_JSON_OBJECT, "");
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        ech_constraint_state *s = start(c, -1);
        assert_int_equal(
            ech_constraint_state_accept_bytes(s, PREFIXES[i], strlen(PREFIXES[i]), NULL, NULL),
            ECH_OK);
        int n = 0;
        while (n < 1000 && ech_constraint_state_accept(s, n % 2 ? '\n' : ' ', NULL) == ECH_OK)
            n++;
        assert_int_equal(n, 64);
        ech_constraint_state_destroy(&s);
    }
    assert_rejects_at(c, " {", 0);
    ech_constraint_state *s = start(c, -1);
    assert_int_equal(ech_constraint_state_accept_bytes(s, "{}", 2, NULL, NULL), ECH_OK);
    assert_true(ech_constraint_state_is_complete(s)); /* nothing but the end */
    ech_constraint_state_destroy(&s);
    ech_constraint_unref(&c);
}

static void js12(void **state)
{
    (void)state;
    static const char *const PREFIXES[] = { "1", "-1", "0.", "1.5e" };
    static const int MOST[] = { 39, 39, 40, 2 };
    ech_constraint *c = compile_text(SCHEMA, "{}");
    for (size_t i = 0; i < sizeof PREFIXES / sizeof PREFIXES[0]; i++) {
        ech_constraint_state *s = start(c, -1);
        assert_int_equal(
            ech_constraint_state_accept_bytes(s, PREFIXES[i], strlen(PREFIXES[i]), NULL, NULL),
            ECH_OK);
        int n = 0;
        while (n < 1000 && ech_constraint_state_accept(s, '7', NULL) == ECH_OK)
            n++;
        assert_int_equal(n, MOST[i]);
        assert_true(ech_constraint_state_can_end(s));
        ech_constraint_state_destroy(&s);
    }
    ech_constraint_unref(&c);
}

int main(const int argc, char **const argv)
{
    static const struct CMUnitTest TESTS[] = {
        { "JS1", js1, NULL, NULL, NULL },   { "JS2", js2, NULL, NULL, NULL },
        { "JS4", js4, NULL, NULL, NULL },   { "JS5", js5, NULL, NULL, NULL },
        { "JS6", js6, NULL, NULL, NULL },   { "JS7", js7, NULL, NULL, NULL },
        { "JS9", js9, NULL, NULL, NULL },   { "JS10", js10, NULL, NULL, NULL },
        { "JS11", js11, NULL, NULL, NULL }, { "JS12", js12, NULL, NULL, NULL },
    };
    for (size_t i = 0; argc > 1 && i < sizeof TESTS / sizeof TESTS[0]; i++) {
        if (strcmp(TESTS[i].name, argv[1]) != 0) continue;
        const struct CMUnitTest one[] = { TESTS[i] };
        const int rc = cmocka_run_group_tests(one, NULL, NULL);
        test_vocab_free();
        return rc;
    }
    (void)fprintf(stderr, "no such case\n");
    return 1;
}
