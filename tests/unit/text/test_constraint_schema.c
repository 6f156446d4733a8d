/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schema, keyword by keyword: valid texts are accepted, invalid ones refused at the first byte
 * after which nothing could be right. In a case, "ok" texts come first; of a wrong text, the part
 * before the mark | is right and the next byte is wrong (or missing, when it ends there).
 */
#include "tests/unit/text/constraint_helpers.h"

#define MAX_TEXTS 14

typedef struct schema_case {
    const char *schema;
    const char *ok[MAX_TEXTS];
    const char *wrong[MAX_TEXTS];
} schema_case;

static void check_wrong(ech_constraint *const c, const char *const marked)
{
    const char *const mark = strchr(marked, '|');
    assert_non_null(mark);
    char text[512];
    const size_t at = (size_t)(mark - marked);
    (void)snprintf(text, sizeof text, "%.*s%s", (int)at, marked, mark + 1);
    assert_rejects_at(c, text, at);
}

static void check_cases(const schema_case *const cases, const size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ech_constraint *c = compile_text(ECH_CONSTRAINT_JSON_SCHEMA, cases[i].schema);
        for (size_t k = 0; k < MAX_TEXTS && cases[i].ok[k] != NULL; k++) {
            assert_accepts(c, cases[i].ok[k]);
        }
        for (size_t k = 0; k < MAX_TEXTS && cases[i].wrong[k] != NULL; k++) {
            check_wrong(c, cases[i].wrong[k]);
        }
        ech_constraint_unref(&c);
    }
}

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        static const schema_case CASES[] = { __VA_ARGS__ };                                        \
        check_cases(CASES, sizeof CASES / sizeof CASES[0]);                                        \
    } while (0)

static void types(void **state)
{
    (void)state;
    CHECK(
        { "{\"type\":\"null\"}", { "null" }, { "|true", "nul|", "null|l", "| null", "null| " } },
        { "{\"type\":\"boolean\"}", { "true", "false" }, { "t|alse", "|1", "|\"true\"" } },
        { "{\"type\":\"integer\"}",
          { "0", "-0", "7", "-12345678901234567890", "1.0", "-3.0" },
          { "0|1", "|+1", "1.|5", "1.0|0", "|\"1\"", "-|-1", "1|e2", "-|" } },
        { "{\"type\":\"number\"}",
          { "0", "1.5", "-0.001", "1e5", "2E-7", "1.25e+10", "0e0" },
          { "1.|", "1.|e5", "1e|", "1e12|3", "0|0.5", "|.5", "|NaN", "|Infinity", "-|Infinity" } },
        { "{\"type\":\"string\"}",
          { "\"\"", "\"a\"", "\"\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "\"\\u00e9\\uD83D\\ude00\"",
            "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\x7f\"" },
          { "|a", "\"|\n\"", "\"\\|x\"", "\"\\u12|g4\"", "\"\\uD800|\"", "\"\\uD8|\"",
            "\"\\uD|C00\"", "\"a\"|\"" } },
        { "{\"type\":\"array\"}",
          { "[]", "[1,\"a\",[null]]", "[ 1 , 2 ]" },
          { "[|,]", "[1,|]", "|{}", "[1|}" } },
        { "{\"type\":\"object\"}",
          { "{}", "{\"a\":1}", "{ \"a\" : {\"b\" : []} , \"c\":null }" },
          { "{|a:1}", "{\"a\"|,", "{\"a\":1,|}", "|[]" } },
        { "{\"type\":[\"string\",\"null\"]}", { "\"x\"", "null" }, { "|1", "|true" } },
        { "{\"type\":[\"integer\",\"boolean\"]}", { "5", "true" }, { "5.|5", "|null" } });
}

static void anything(void **state)
{
    (void)state;
    CHECK({ "{}", { "1", "null", "\"x\"", "[{\"a\":[1.5e3]}]", "{\"\":{}}" }, { "|x", "[1 |2]" } },
          { "true", { "1", "{\"a\":1}" }, { "|x" } },
          { "{\"title\":\"t\",\"description\":\"d\",\"default\":3,\"x-vendor\":1}",
            { "1", "[]" },
            { "|?" } },
          { "{\"minLength\":2}", { "\"ab\"", "1", "[]", "{}" }, { "\"a|\"" } },
          { "{\"minimum\":5}", { "5", "\"a\"", "null", "{\"a\":1}" }, { "4|", "|-1" } });
}

static void enums_and_consts(void **state)
{
    (void)state;
    CHECK({ "{\"enum\":[1,true,null]}",
            { "1", "true", "null" },
            { "|2", "|false", "1|0", "|\"1\"" } },
          { "{\"enum\":[\"red\",\"green\",\"re\"]}",
            { "\"red\"", "\"re\"", "\"green\"" },
            { "\"r|d\"", "\"red|d\"", "|red" } },
          { "{\"enum\":[[1,{\"a\":\"b\"}],-2.5,\"\\u00e9\\n\\\"\"]}",
            { "[1,{\"a\":\"b\"}]", "[ 1 , { \"a\" : \"b\" } ]", "-2.5", "\"\xC3\xA9\\n\\\"\"" },
            { "[1,{\"a\":\"b\"|,", "-2.|6", "[|2", "\"\xC3\xA9\\|t" } },
          { "{\"const\":{\"k\":[]}}", { "{\"k\":[]}", "{\"k\": [ ]}" }, { "{|}", "{\"k\":[|1]" } },
          { "{\"const\":false}", { "false" }, { "|true", "|0" } },
          { "{\"type\":\"string\",\"enum\":[\"a\",1,null]}", { "\"a\"" }, { "|1", "|null" } },
          { "{\"enum\":[1,5,10,\"x\"],\"minimum\":5}", { "5", "10", "\"x\"" }, { "1|" } },
          { "{\"enum\":[\"ab\",\"abcd\",\"xy\"],\"maxLength\":3,\"pattern\":\"^a\"}",
            { "\"ab\"" },
            { "\"ab|c", "\"|x" } },
          { "{\"const\":\"\"}", { "\"\"" }, { "\"|a" } });
}

static void properties(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
            "\"string\"}},\"required\":[\"a\"]}",
            { "{\"a\":1}", "{\"a\":1,\"b\":\"x\"}", "{ \"a\" : 1 , \"b\" : \"x\" }",
              "{\n  \"a\": 1,\n  \"b\": \"\"\n}" },
            { "{|}", "{\"|b\":\"x\"}", "{\"a\":|\"1\"", "{\"a\":1,\"|c\"", "{\"a\":1,\"b\":\"x\"|,",
              "{\"a\":1,|}", "|[]" } },
          { "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}}}",
            { "{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"c\":2}", "{\"b\":0,\"c\":{}}" },
            { "{\"b\":1,\"|a\":1}", "{\"c\":1|,", "{\"|d\"" } },
          { "{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\",\"z\"]}",
            { "{\"a\":1,\"z\":[2]}" },
            { "{\"a\":1|}", "{\"|z\":1" } },
          { "{\"type\":\"object\",\"properties\":{}}", { "{}", "{ }" }, { "{|\"a\"" } },
          { "{\"type\":\"object\",\"required\":[\"k\"]}",
            { "{\"k\":1}", "{\"k\":1,\"other\":2}" },
            { "{|}", "{\"|o" } },
          { "{\"type\":\"object\",\"properties\":{\"q\\\"k\":{\"const\":1},\"n/~\":{\"const\":2}}}",
            { "{\"q\\\"k\":1,\"n/~\":2}", "{\"n/~\":2}" },
            { "{\"q|k\"" } },
          { "{\"type\":\"object\",\"properties\":{\"x\":false,\"y\":{}}}",
            { "{\"y\":1}", "{}" },
            { "{\"|x\"" } });
}

static void additional_properties(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
            { "{}", "{\"a\":1}", "{\"a\":1,\"b\":2}" },
            { "{\"a\":|\"x\"}", "{\"a\":1.|5" } },
          { "{\"type\":\"object\",\"additionalProperties\":false}", { "{}" }, { "{|\"" } },
          { "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"null\"}},"
            "\"additionalProperties\":{\"type\":\"integer\"}}",
            { "{\"name\":null}", "{\"name\":null,\"x\":1}", "{\"names\":1,\"nam\":2}", "{}",
              "{\"nam\":1}", "{\"\":1}" },
            { "{\"x\":1,\"name|\":", "{\"name\":|1",
              "{\"x\":1,\"\\u006eame|\":", "{\"x\":1,\"n\\u0061me|\"" } },
          { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":"
            "true}",
            { "{\"a\":1,\"zz\":[]}", "{\"b\":2}" },
            { "{\"a\":|2" } },
          { "{\"type\":\"object\",\"patternProperties\":{\"^n_\":{\"type\":\"integer\"}},"
            "\"additionalProperties\":{\"type\":\"string\"}}",
            { "{\"n_a\":1,\"b\":\"x\"}", "{\"n\":\"x\",\"n_\":5}" },
            { "{\"n_a\":|\"x\"", "{\"b\":|1" } },
          { "{\"type\":\"object\",\"properties\":{\"x1\":{\"minimum\":3}},\"patternProperties\":{"
            "\"\\\\d$\":{\"type\":\"integer\"}},"
            "\"additionalProperties\":false}",
            { "{\"x1\":3}", "{\"x1\":4,\"y2\":1}", "{\"y2\":1}" },
            { "{\"x1\":2|", "{\"x1\":|\"", "{\"y|\"", "{\"y2\":|null" } },
          { "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"z$\":{"
            "\"minimum\":10}},\"additionalProperties\":false}",
            { "{\"a\":1,\"z\":\"s\",\"az\":10}" },
            { "{\"az\":9|", "{\"az\":|\"", "{\"b|\"" } },
          { "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
            { "{\"a\":1}", "{\"a\":1,\"b\":2}" },
            { "{|}", "{\"a\":1,\"b\":2|,\"c\"" } });
}

static void arrays(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
            { "[]", "[1]", "[1, 2,3]" },
            { "[|\"", "[1,|null" } },
          { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
            { "[1,2]", "[1,2,3]" },
            { "[|]", "[1|]", "[1,2,3|,4]" } },
          { "{\"type\":\"array\",\"maxItems\":0}", { "[]", "[ ]" }, { "[|1]" } },
          { "{\"type\":\"array\",\"items\":false}", { "[]" }, { "[|1" } },
          { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
            "\"items\":false}",
            { "[]", "[1]", "[1,\"a\"]" },
            { "[|\"a\"", "[1,|2", "[1,\"a\"|," } },
          { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":"
            "\"null\"},\"minItems\":2}",
            { "[1,null]", "[1,null,null]" },
            { "[1|]", "[1,|2" } },
          { "{\"type\":\"array\",\"items\":[{\"const\":1},{\"const\":2}],\"additionalItems\":{"
            "\"const\":3}}",
            { "[]", "[1]", "[1,2]", "[1,2,3,3]" },
            { "[|2", "[1,2,|4" } },
          { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1}]}",
            { "[1,\"any\",null]", "[]" },
            { "[|2" } },
          { "{\"type\":\"array\",\"minItems\":1000000}", { NULL }, { "[|]", "[1|]" } });
}

static void number_bounds(void **state)
{
    (void)state;
    CHECK(
        {
            "{\"type\":\"integer\",\"minimum\":0,\"maximum\":150}",
            { "0", "150", "99", "-0", "7.0" },
            { "-|1", "15|1", "15|9", "100|0" },
        },
        { "{\"type\":\"integer\",\"minimum\":-20,\"maximum\":-3}",
          { "-3", "-20", "-9", "-11" },
          { "-2|", "|3", "-1|", "-2|1" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":12}",
          { "10", "11" },
          { "|9", "1|2" } },
        { "{\"type\":\"number\",\"minimum\":0.5,\"maximum\":2.25}",
          { "0.5", "0.50", "1", "2", "2.25", "2.2", "0.75" },
          { "0|", "0.|4", "2.2|6", "2.|3", "|-1", "|3", "2|e0" } },
        { "{\"type\":\"number\",\"exclusiveMaximum\":0}",
          { "-0.1", "-5" },
          { "|0", "-0|", "|1", "-0.0|" } },
        { "{\"type\":\"number\",\"exclusiveMinimum\":-1.5}",
          { "-1.49", "0", "-1", "10" },
          { "-1.|5", "-|2" } },
        { "{\"type\":\"number\",\"minimum\":5}",
          { "5", "5.0", "123456", "50" },
          { "4|.9", "|-5", "4|" } },
        { "{\"type\":\"integer\",\"multipleOf\":7}",
          { "0", "7", "-14", "70", "700", "7.0" },
          { "8|", "1|", "71|" } },
        { "{\"type\":\"number\",\"multipleOf\":0.01}",
          { "0.01", "1.1", "19.99", "3", "-0.5" },
          { "1.23|4" } },
        { "{\"type\":\"number\",\"multipleOf\":2.5}",
          { "2.5", "5", "7.5", "10.0" },
          { "2|", "2.|4", "1|" } },
        { "{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":12,\"maximum\":21}",
          { "15", "20" },
          { "1|", "2|1", "|5" } },
        { "{\"type\":\"integer\",\"minimum\":9007199254740993}",
          { "9007199254740993", "10000000000000000" },
          { "9007199254740992|" } },
        { "{\"type\":\"number\",\"maximum\":1e-7}",
          { "0", "0.0000001", "-5" },
          { "0.000000|2", "|1" } },
        /* u64's and u128's bounds, as schemas made from types have them; and beyond any double. */
        { "{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
          { "0", "9223372036854775808", "18446744073709551615" },
          { "-|1", "1844674407370955161|6", "18446744073709551615|0" } },
        { "{\"type\":\"integer\",\"maximum\":340282366920938463463374607431768211455}",
          { "-5", "18446744073709551616" },
          { "40000000000000000000000000000000000000|0" } },
        { "{\"type\":\"integer\",\"minimum\":-1e400,\"maximum\":1e400}",
          { "0", "-5", "18446744073709551616" },
          { "1|e3" } },
        { "{\"enum\":[18446744073709551615,1]}",
          { "18446744073709551615", "1" },
          { "18446744073709551615|0" } },
        { "{\"type\":\"string\",\"maxLength\":18446744073709551615}",
          { "\"\"", "\"abc\"" },
          { "|1" } });
}

static void strings(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
            { "\"ab\"", "\"abc\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\u0041\"",
              "\"\\ud83d\\ude00x\"" },
            { "\"a|\"", "\"abc|d\"", "\"\\ud83d\\ude00|\"" } },
          { "{\"type\":\"string\",\"maxLength\":0}", { "\"\"" }, { "\"|a" } },
          { "{\"type\":\"string\",\"pattern\":\"^a+$\"}",
            { "\"a\"", "\"aaa\"", "\"\\u0061a\"" },
            { "\"|b", "\"|\"", "\"a|b" } },
          { "{\"type\":\"string\",\"pattern\":\"b\"}",
            { "\"b\"", "\"abc\"", "\"\\n\\\"b\"", "\"\\u0062\"" },
            { "\"|\"", "\"aa|\"" } },
          { "{\"type\":\"string\",\"pattern\":\"^\\\"\\\\n\\\\\\\\$\"}",
            { "\"\\\"\\n\\\\\"", "\"\\u0022\\u000A\\u005c\"" },
            { "\"|\"", "\"\\\"|n", "\"\\|t" } },
          { "{\"type\":\"string\",\"pattern\":\"^[a-z]{3}$\",\"maxLength\":3}",
            { "\"abc\"" },
            { "\"ab|\"", "\"abc|d" } },
          { "{\"type\":\"string\",\"pattern\":\"^(ab|abcd)$\",\"maxLength\":3}",
            { "\"ab\"" },
            { "\"ab|c" } },
          { "{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":3}",
            { "\"abc\"", "\"a12345\"" },
            { "\"a1|\"", "\"|b" } },
          { "{\"type\":\"string\",\"pattern\":\"^(aa)*$\",\"minLength\":3,\"maxLength\":5}",
            { "\"aaaa\"" },
            { "\"aa|\"", "\"aaaa|a" } },
          { "{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"pattern\":\"z$\"}]}",
            { "\"az\"", "\"a..z\"" },
            { "\"a|\"", "\"|z" } });
}

static void formats(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"string\",\"format\":\"date\"}",
            { "\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\"" },
            { "\"2023-02-2|9\"", "\"1900-02-2|9", "\"2024-1|3", "\"2024-04-3|1", "\"000|0" } },
          { "{\"type\":\"string\",\"format\":\"time\"}",
            { "\"00:00:00Z\"", "\"23:59:59.123+05:30\"" },
            { "\"2|4", "\"12:|60", "\"12:00:00|\"", "\"12:00:|60" } },
          { "{\"type\":\"string\",\"format\":\"date-time\"}",
            { "\"2024-02-29T12:00:00Z\"", "\"2024-01-01t00:00:00.5-08:00\"" },
            { "\"2024-01-01|\"", "\"2024-01-01| " } },
          { "{\"type\":\"string\",\"format\":\"uuid\"}",
            { "\"123e4567-E89B-12d3-a456-426614174000\"" },
            { "\"123e4567|e", "\"12|g" } },
          { "{\"type\":\"string\",\"format\":\"email\"}",
            { "\"a@b\"", "\"first.last+tag@mail.example.org\"" },
            { "\"|@", "\"a|\"", "\"a.|@", "\"a@|-" } },
          { "{\"type\":\"string\",\"format\":\"ipv4\"}",
            { "\"0.0.0.0\"", "\"255.255.255.255\"", "\"192.168.1.10\"" },
            { "\"25|6", "\"0|1", "\"1.2.3|\"", "\"1.2.3.4|." } },
          { "{\"type\":\"string\",\"format\":\"ipv6\"}",
            { "\"::\"", "\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"",
              "\"1::\"", "\"1:2:3:4:5:6:1.2.3.4\"" },
            { "\"1::2:|:", "\"1:2:3:4:5:6:7:8|:", "\"|g", "\"1234|5" } },
          { "{\"type\":\"string\",\"format\":\"uri\"}",
            { "\"http://a.b/c?d=e#f\"", "\"mailto:a@b\"", "\"urn:x:y\"", "\"ftp://[::1]:21/%20\"",
              "\"file:///x\"" },
            { "\"|:", "\"http|\"", "\"http://| ", "\"a:%2|g" } },
          { "{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2024\"}",
            { "\"2024-05-01\"" },
            { "\"202|3" } });
}

static void references(void **state)
{
    (void)state;
    CHECK({ "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
            "p\"},\"$defs\":{\"p\":{\"type\":\"integer\"}}}",
            { "[1,2]" },
            { "[|\"" } },
          { "{\"$ref\":\"#/definitions/a~1b\",\"definitions\":{\"a/b\":{\"const\":1}}}",
            { "1" },
            { "|2" } },
          { "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"},\"y\":{\"$ref\":\"#/"
            "properties/x\"}}}",
            { "{\"x\":1,\"y\":2}" },
            { "{\"y\":|\"" } },
          { "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":"
            "\"array\",\"items\":{\"$ref\":\"#\"}}},\"required\":[\"v\"]}",
            { "{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2},{\"v\":3,\"kids\":[]}]}" },
            { "{\"v\":1,\"kids\":[|1", "{\"v\":1,\"kids\":[{|}" } },
          { "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/"
            "b\"},\"b\":{\"type\":\"null\"}}}",
            { "null" },
            { "|1" } },
          { "{\"$ref\":\"#/$defs/s\",\"maxLength\":2,\"$defs\":{\"s\":{\"type\":\"string\"}}}",
            { "\"ab\"" },
            { "\"ab|c", "|1" } },
          { "{\"$defs\":{\"l\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"properties\":"
            "{\"n\":{\"$ref\":\"#/$defs/l\"}},"
            "\"required\":[\"n\"]}]}},\"$ref\":\"#/$defs/l\"}",
            { "null", "{\"n\":{\"n\":null}}" },
            { "{|}", "{\"n\":|1" } });
}

static void combinations(void **state)
{
    (void)state;
    CHECK(
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
          { "5", "\"x\"" },
          { "\"x|y", "|null" } },
        { "{\"type\":\"integer\",\"anyOf\":[{\"minimum\":10},{\"maximum\":3}]}",
          { "10", "3", "-5" },
          { "5|", "|\"" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
          "\"integer\"}},"
          "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
          { "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}" },
          { "{|}" } },
        { "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
          "\"required\":[\"a\"]},"
          "{\"properties\":{\"b\":{\"type\":\"null\"}}}]}",
          { "{\"a\":1}", "{\"a\":1,\"b\":null}" },
          { "{|}", "{\"a\":1,\"|c" } },
        { "{\"allOf\":[{\"type\":\"number\"},{\"minimum\":2},{\"maximum\":4},{\"type\":\"integer\"}"
          "]}",
          { "2", "3", "4" },
          { "|1", "|5", "3.|5" } },
        { "{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}]}", { "2", "3" }, { "|1", "|4" } },
        { "{\"allOf\":[{\"$ref\":\"#/$defs/"
          "a\"},{\"required\":[\"x\"]}],\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{"
          "\"x\":{\"const\":1}}}}}",
          { "{\"x\":1}" },
          { "{|}" } },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
          { "1", "\"a\"" },
          { "|null" } },
        { "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{"
          "\"type\":\"integer\"}},\"required\":[\"k\",\"x\"]},"
          "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"y\":{\"type\":\"null\"}},"
          "\"required\":[\"k\"]}]}",
          { "{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}", "{\"k\":\"b\",\"y\":null}" },
          { "{\"k\":\"a\"|}", "{\"k\":\"b\",\"|x" } },
        { "{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"minimum\":5}]}",
          { "3", "5" },
          { "4|" } },
        { "{\"anyOf\":[{\"type\":\"null\"}],\"oneOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]"
          "}",
          { "null" },
          { "|1" } },
        { "{\"anyOf\":[false,{\"const\":1}]}", { "1" }, { "|2" } },
        { "{\"allOf\":[{\"items\":{\"type\":\"integer\"}},{\"items\":{\"minimum\":3}}],\"type\":"
          "\"array\"}",
          { "[3]", "[]" },
          { "[2|", "[|\"" } },
        { "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":"
          "false},{\"properties\":{\"b\":{}}}]}",
          { "{}", "{\"a\":1}" },
          { "{\"|b" } });
}

static void bounds(void **state)
{
    (void)state;
    ech_constraint *c = compile_text(ECH_CONSTRAINT_JSON_SCHEMA,
                                     "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}");
    char text[4096];
    /* 40 digits before and after the point, not 41; two of an exponent. */
    (void)snprintf(text, sizeof text, "[%0*d", 1, 1);
    (void)memset(text + 1, '7', 41);
    text[42] = 0;
    assert_rejects_at(c, text, 41);
    assert_rejects_at(c, "[1e123", 5);
    (void)snprintf(text, sizeof text, "[0.%.*s", 41, "11111111111111111111111111111111111111111");
    assert_rejects_at(c, text, 43);
    /* 64 bytes of whitespace in one place. */
    (void)snprintf(text, sizeof text, "[%64s1%64s,%64s2]", "", "", "");
    assert_accepts(c, text);
    (void)snprintf(text, sizeof text, "[%65s", "");
    assert_rejects_at(c, text, 65);
    ech_constraint_unref(&c);
    /* 32 levels of free-form JSON below the first. */
    c = compile_text(ECH_CONSTRAINT_JSON_SCHEMA, "{}");
    (void)memset(text, '[', 40);
    text[40] = 0;
    assert_rejects_at(c, text, 33);
    (void)memset(text + 33, ']', 33);
    text[66] = 0;
    assert_accepts(c, text);
    ech_constraint_unref(&c);
}

static void refuses_what_it_cannot_enforce(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        ech_status code;
        const char *text;
    } CASES[] = {
        { "{\"not\":{}}", ECH_EUNSUPPORTED, "/not" },
        { "{\"properties\":{\"a/b\":{\"if\":{}}}}", ECH_EUNSUPPORTED, "/properties/a~1b/if" },
        /* Behind a $ref the pointer is that of the keyword in the document. */
        { "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"items\":{\"not\":{}}}}}", ECH_EUNSUPPORTED,
          "at /$defs/x/items/not," },
        { "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
          "x\"},\"b\":{\"if\":{}}},\"$defs\":{\"x\":true}}",
          ECH_EUNSUPPORTED, "at /properties/b/if," },
        { "{\"items\":{\"uniqueItems\":true}}", ECH_EUNSUPPORTED, "/items/uniqueItems" },
        { "{\"anyOf\":[{},{\"contains\":{}}]}", ECH_EUNSUPPORTED, "/anyOf/1/contains" },
        { "{\"type\":\"string\",\"format\":\"iri\"}", ECH_EUNSUPPORTED, "/format" },
        { "{\"$ref\":\"http://x/y\"}", ECH_EUNSUPPORTED, "/$ref" },
        { "{\"$ref\":\"#/$defs/none\"}", ECH_EFORMAT, "/$ref" },
        { "{\"type\":\"strin\"}", ECH_EFORMAT, "/type" },
        { "{\"type\":\"string\",\"pattern\":\"(\"}", ECH_EFORMAT, "/pattern" },
        { "{\"type\":\"string\",\"minLength\":-1}", ECH_EFORMAT, "/minLength" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", ECH_EUNSUPPORTED,
          "/oneOf" },
        { "{\"type\":\"integer\",\"multipleOf\":0}", ECH_EFORMAT, "/multipleOf" },
        { "{\"type\":\"integer\",\"multipleOf\":123457}", ECH_EUNSUPPORTED, "/multipleOf" },
        { "{\"properties\":[]}", ECH_EFORMAT, "/properties" },
        { "{\"items\":3}", ECH_EFORMAT, "/items" },
        { "[]", ECH_EFORMAT, "/" },
        { "{\"enum\":3}", ECH_EFORMAT, "/enum" },
        { "{\"a\":1,\"a\":2}", ECH_EFORMAT, "line 1" },
        { "{\"type\":\"object\"", ECH_EFORMAT, "line 1" },
        { "", ECH_EFORMAT, "line 1" },
        { "false", ECH_EINVAL, "no value" },
        { "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", ECH_EINVAL,
          "no value" },
        { "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", ECH_EINVAL, "no value" },
        { "{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}", ECH_EINVAL, "no value" },
        { "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#\"}},\"required\":[\"x\"]}",
          ECH_EINVAL, "no text" },
        { "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", ECH_EINVAL, "no value" },
        { "{\"$ref\":\"#\"}", ECH_EINVAL, "" },
        { "{\"allOf\":[{\"$ref\":\"#\"}]}", ECH_ELIMIT, "" },
        { "{\"type\":\"object\",\"minProperties\":2}", ECH_EUNSUPPORTED, "/minProperties" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        ech_error err;
        const ech_status rc = compile_error(ECH_CONSTRAINT_JSON_SCHEMA, CASES[i].schema, &err);
        if (rc != CASES[i].code || strstr(err.text, CASES[i].text) == NULL) {
            fail_msg("%s: %s: %s", CASES[i].schema, ech_status_name(rc), err.text);
        }
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
        cmocka_unit_test(types),
        cmocka_unit_test(anything),
        cmocka_unit_test(enums_and_consts),
        cmocka_unit_test(properties),
        cmocka_unit_test(additional_properties),
        cmocka_unit_test(arrays),
        cmocka_unit_test(number_bounds),
        cmocka_unit_test(strings),
        cmocka_unit_test(formats),
        cmocka_unit_test(references),
        cmocka_unit_test(combinations),
        cmocka_unit_test(bounds),
        cmocka_unit_test(refuses_what_it_cannot_enforce),
    };
    return cmocka_run_group_tests(tests, NULL, free_vocab);
}
