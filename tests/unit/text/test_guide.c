/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's fields as a guide reads them: tools, tool_choice, structured output, the budget of
 * reasoning; which field is at fault where one is; and how numbers of a schema are written back.
 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/guide.h"
#include "src/text/json_dump.h"
#include "src/text/json_read.h"

#define TOOL(name, rest) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"" rest "}}"
#define TWO                                                                                        \
    "\"tools\":[" TOOL("add", ",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":"        \
                              "{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"e\":{"         \
                              "\"enum\":[\"x\",\"y\"]},\"u\":{}}}") "," TOOL("sub", "") "]"

static ech_guide *open_guide(const char *const request, const ech_guide_options *const o)
{
    ech_guide *g = NULL;
    ech_error err = { 0 };
    char field[ECH_GUIDE_FIELD_BYTES];
    if (ech_guide_create(&g, request, strlen(request), o, field, &err) != ECH_OK)
        fail_msg("%s: %s", request, err.text);
    assert_string_equal(field, "");
    return g;
}

static ech_guide_options qwen(void)
{
    ech_guide_options o = ech_guide_options_default();
    o.reasoning = ECH_REASONING_THINK;
    o.tools = ECH_TOOLS_HERMES;
    return o;
}

static void expect_refused(const char *const request, const char *const want_field)
{
    const ech_guide_options o = qwen();
    ech_guide *g = NULL;
    ech_error err = { 0 };
    char field[ECH_GUIDE_FIELD_BYTES];
    if (ech_guide_create(&g, request, strlen(request), &o, field, &err) != ECH_EINVAL)
        fail_msg("%s: taken", request);
    assert_string_equal(field, want_field);
    assert_int_equal(strncmp(err.text, field, strlen(field)), 0);
    assert_null(g);
}

static void fields_at_fault_are_named(void **state)
{
    (void)state;
    expect_refused("{\"tools\":{}}", "tools");
    expect_refused("{\"tools\":[{}]}", "tools[0].function.name");
    expect_refused("{\"tools\":[" TOOL("a", "") "," TOOL("b c", "") "]}", "tools[1].function.name");
    expect_refused("{\"tools\":[" TOOL("a", ",\"parameters\":[]") "]}",
                   "tools[0].function.parameters");
    expect_refused("{" TWO ",\"tool_choice\":\"maybe\"}", "tool_choice");
    expect_refused("{" TWO ",\"tool_choice\":{\"name\":\"mul\"}}", "tool_choice");
    expect_refused("{" TWO ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice");
    expect_refused("{" TWO ",\"tool_choice\":{\"type\":\"allowed_tools\",\"tools\":[]}}",
                   "tool_choice.allowed_tools");
    expect_refused("{\"tool_choice\":\"required\"}", "tool_choice");
    expect_refused("{\"parallel_tool_calls\":1}", "parallel_tool_calls");
    expect_refused("{\"thinking_budget\":-1}", "thinking_budget");
    expect_refused("{\"thinking_budget\":1.5}", "thinking_budget");
    expect_refused("{\"structured_outputs\":[]}", "structured_outputs");
    expect_refused("{\"structured_outputs\":{\"regex\":1}}", "structured_outputs.regex");
    expect_refused("{\"guided_choice\":\"a\"}", "guided_choice");
    expect_refused("{\"response_format\":{\"type\":\"xml\"}}", "response_format");
    expect_refused("{\"response_format\":{\"type\":\"json_schema\"}}", "response_format");
    expect_refused("{\"guided_json\":{},\"grammar\":\"root ::= \\\"a\\\"\"}", "grammar");
    expect_refused("{\"guided_json\":{},\"response_format\":{\"type\":\"json_object\"}}",
                   "response_format");
}

static void expect_content(const char *const request, const ech_constraint_kind kind,
                           const char *const text, const char *const field)
{
    const ech_guide_options o = qwen();
    ech_guide *g = open_guide(request, &o);
    const ech_constraint_spec *const spec = ech_guide_spec(g);
    assert_non_null(spec);
    assert_int_equal(spec->content_kind, kind);
    assert_string_equal(ech_guide_spec_field(g), field);
    assert_int_equal(spec->content_len, strlen(text));
    if (spec->content_len > 0) assert_memory_equal(spec->content, text, spec->content_len);
    ech_guide_destroy(&g);
}

static void every_name_of_structured_output_is_read(void **state)
{
    (void)state;
    static const char schema[] = "{\"minimum\":0.1,\"maximum\":3.0}";
    expect_content("{\"structured_outputs\":{\"json\":{\"minimum\":0.1,\"maximum\":3.0}}}",
                   ECH_CONSTRAINT_JSON_SCHEMA, schema, "structured_outputs.json");
    expect_content("{\"guided_json\":\"{\\\"minimum\\\":0.10}\"}", ECH_CONSTRAINT_JSON_SCHEMA,
                   "{\"minimum\":0.10}", "guided_json");
    expect_content("{\"json_schema\":true}", ECH_CONSTRAINT_JSON_SCHEMA, "true", "json_schema");
    expect_content("{\"guided_regex\":\"a+\"}", ECH_CONSTRAINT_REGEX, "a+", "guided_regex");
    expect_content("{\"guided_choice\":[\"a\",\"\\u00e9\"]}", ECH_CONSTRAINT_CHOICE,
                   "[\"a\",\"\xc3\xa9\"]", "guided_choice");
    expect_content("{\"grammar\":\"root ::= x\"}", ECH_CONSTRAINT_GBNF, "root ::= x", "grammar");
    expect_content("{\"response_format\":{\"type\":\"json_object\"}}", ECH_CONSTRAINT_JSON_OBJECT,
                   "", "response_format");
    expect_content("{\"response_format\":{\"type\":\"json_object\",\"schema\":{}}}",
                   ECH_CONSTRAINT_JSON_SCHEMA, "{}", "response_format.schema");
    expect_content("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
                   "\"schema\":{}}}}",
                   ECH_CONSTRAINT_JSON_SCHEMA, "{}", "response_format.json_schema.schema");
    expect_content("{\"response_format\":{\"type\":\"json_schema\",\"schema\":{}}}",
                   ECH_CONSTRAINT_JSON_SCHEMA, "{}", "response_format.json_schema.schema");
}

static void expect_mode(const char *const choice, const ech_tool_mode mode, const size_t n_calls,
                        const ech_call_mode call_mode, const uint32_t max_calls)
{
    char request[2000];
    const ech_guide_options o = qwen();
    (void)snprintf(request, sizeof request, "{" TWO "%s}", choice);
    ech_guide *g = open_guide(request, &o);
    const ech_constraint_spec *const spec = ech_guide_spec(g);
    assert_int_equal(ech_guide_tool_mode(g), mode);
    assert_int_equal(spec != NULL, n_calls > 0);
    assert_int_equal(ech_guide_parser(g)->tools,
                     mode == ECH_TOOL_MODE_NONE ? ECH_TOOLS_NONE : ECH_TOOLS_HERMES);
    if (spec != NULL) {
        assert_int_equal(spec->n_calls, n_calls);
        assert_int_equal(spec->call_mode, call_mode);
        assert_int_equal(spec->max_calls, max_calls);
        assert_string_equal(ech_guide_spec_field(g), "tools");
    }
    ech_guide_destroy(&g);
}

static void tool_choice_says_what_may_be_called(void **state)
{
    (void)state;
    expect_mode("", ECH_TOOL_MODE_AUTO, 0, ECH_CALLS_NONE, 0);
    expect_mode(",\"tool_choice\":null", ECH_TOOL_MODE_AUTO, 0, ECH_CALLS_NONE, 0);
    expect_mode(",\"tool_choice\":\"auto\"", ECH_TOOL_MODE_AUTO, 0, ECH_CALLS_NONE, 0);
    expect_mode(",\"tool_choice\":\"none\"", ECH_TOOL_MODE_NONE, 0, ECH_CALLS_NONE, 0);
    expect_mode(",\"tool_choice\":\"required\"", ECH_TOOL_MODE_REQUIRED, 2, ECH_CALLS_REQUIRED, 0);
    expect_mode(",\"tool_choice\":\"required\",\"parallel_tool_calls\":false",
                ECH_TOOL_MODE_REQUIRED, 2, ECH_CALLS_REQUIRED, 1);
    expect_mode(",\"parallel_tool_calls\":false", ECH_TOOL_MODE_AUTO, 2, ECH_CALLS_AUTO, 1);
    expect_mode(",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"sub\"}}",
                ECH_TOOL_MODE_NAMED, 1, ECH_CALLS_REQUIRED, 1);
    expect_mode(",\"tool_choice\":{\"type\":\"function\",\"name\":\"sub\"}", ECH_TOOL_MODE_NAMED, 1,
                ECH_CALLS_REQUIRED, 1);
    expect_mode(",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{"
                "\"type\":\"function\",\"name\":\"sub\"}]}",
                ECH_TOOL_MODE_AUTO, 1, ECH_CALLS_AUTO, 0);
    expect_mode(
        ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
        "\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]}}",
        ECH_TOOL_MODE_REQUIRED, 1, ECH_CALLS_REQUIRED, 0);
}

/* With auto only what is strict is held to its schema; where a call must come, everything. */
static void strict_tools_are_held_to_their_schema(void **state)
{
    (void)state;
    static const char tools[] =
        "{\"tools\":[" TOOL("a", ",\"strict\":true,\"parameters\":{\"type\":\"object\"}") "," TOOL(
            "b", ",\"parameters\":{\"not\":{}}") "]}";
    const ech_guide_options o = qwen();
    ech_guide *g = open_guide(tools, &o);
    const ech_constraint_spec *const spec = ech_guide_spec(g);
    assert_int_equal(spec->n_calls, 2);
    assert_string_equal(spec->calls[0].schema, "{\"type\":\"object\"}");
    assert_null(spec->calls[1].schema);
    ech_guide_destroy(&g);
}

static void parameters_have_the_schemas_type(void **state)
{
    (void)state;
    ech_guide_options o = qwen();
    o.tools = ECH_TOOLS_QWEN3_CODER;
    ech_guide *g = open_guide("{" TWO "}", &o);
    const ech_parser_options *const p = ech_guide_parser(g);
    assert_int_equal(p->param_type(p->param_ctx, "add", "s"), ECH_PARAM_STRING);
    assert_int_equal(p->param_type(p->param_ctx, "add", "e"), ECH_PARAM_STRING);
    assert_int_equal(p->param_type(p->param_ctx, "add", "a"), ECH_PARAM_JSON);
    assert_int_equal(p->param_type(p->param_ctx, "add", "u"), ECH_PARAM_UNKNOWN);
    assert_int_equal(p->param_type(p->param_ctx, "add", "none"), ECH_PARAM_UNKNOWN);
    assert_int_equal(p->param_type(p->param_ctx, "mul", "a"), ECH_PARAM_UNKNOWN);
    ech_guide_destroy(&g);
}

static void the_prompts_end_says_where_the_answer_begins(void **state)
{
    (void)state;
    static const struct {
        const char *prompt;
        ech_reasoning_start start;
    } rows[] = { { "<|im_start|>assistant\n", ECH_THINKING_OPTIONAL },
                 { "<|im_start|>assistant\n<think>\n", ECH_THINKING_OPEN },
                 { "<think>\n\n</think>\n\n", ECH_THINKING_NONE } };
    const ech_guide_options o = qwen();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_guide *g = open_guide("{\"thinking_budget\":5}", &o);
        ech_guide_begin(g, rows[i].prompt, strlen(rows[i].prompt));
        const ech_constraint_spec *const spec = ech_guide_spec(g);
        assert_int_equal(ech_guide_thinking_budget(g), 5);
        if (rows[i].start == ECH_THINKING_NONE) {
            assert_null(spec); /* nothing left to bound */
        } else {
            assert_int_equal(spec->reasoning, rows[i].start);
            assert_string_equal(ech_guide_spec_field(g), "thinking_budget");
        }
        ech_guide_destroy(&g);
    }
}

static void a_text_has_no_parser(void **state)
{
    (void)state;
    ech_guide_options o = qwen();
    o.is_text = true;
    ech_guide *g = open_guide("{" TWO ",\"thinking_budget\":5,\"guided_regex\":\"a\"}", &o);
    assert_null(ech_guide_parser(g));
    assert_int_equal(ech_guide_thinking_budget(g), -1);
    assert_int_equal(ech_guide_spec(g)->n_calls, 0);
    assert_int_equal(ech_guide_spec(g)->reasoning, ECH_THINKING_NONE);
    ech_guide_destroy(&g);
    ech_guide_destroy(&g);
}

static void a_model_without_calls_refuses_tools(void **state)
{
    (void)state;
    const ech_guide_options o = ech_guide_options_default();
    ech_guide *g = NULL;
    ech_error err = { 0 };
    static const char request[] = "{" TWO "}";
    assert_int_equal(ech_guide_create(&g, request, strlen(request), &o, NULL, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "--tool-call-parser"));
    assert_int_equal(ech_guide_create(&g, "[]", 2, &o, NULL, &err), ECH_EFORMAT);
    assert_int_equal(ech_guide_create(&g, "{", 1, &o, NULL, &err), ECH_EFORMAT);
}

/* Shortest spellings, as Python's repr has them but for the exponent's form. */
static void numbers_keep_a_short_spelling(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "[0.1,2.5,1e300,1.0,-0.0]", "[0.1,2.5,1e+300,1.0,-0.0]" },
        { "[0.30000000000000004,9007199254740993]", "[0.30000000000000004,9007199254740993]" },
        { "{\"b\\n\":[null,true,false,{}],\"a\":[]}", "{\"b\\n\":[null,true,false,{}],\"a\":[]}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *const v = json_loads(rows[i][0], 0, NULL);
        ech_buf b = { 0 };
        assert_int_equal(ech_json_dump(&b, v), ECH_OK);
        assert_string_equal(b.data, rows[i][1]);
        ech_buf_fini(&b);
        json_decref(v);
    }
}

/* What is read of a text; a number beyond int64 or a double doesn't make it no JSON. */
static void numbers_of_any_size_are_read(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "[9223372036854775807,-9223372036854775808]",
          "[9223372036854775807,-9223372036854775808]" },
        { "[9223372036854775808,18446744073709551615]",
          "[9223372036854775808,18446744073709551615]" },
        { "[18446744073709551616]", "[18446744073709551615]" }, /* the same double */
        { "[18446744073709555712]", "[1.8446744073709556e+19]" },
        { "[-9223372036854775809]", "[-9.223372036854778e+18]" }, /* not int64's end */
        { "[-18446744073709551616,1000000000000000000000]", "[-1.8446744073709552e+19,1e+21]" },
        { "[9999999999999999999,0]", "[10000000000000000000,0]" },
        { "[1e400,-1e309,12345678901234567890.5,1e-400]",
          "[9e+307,-9e+307,12345678901234567168,0.0]" },
        { "[1e400 , {\"a\":2e999}]", "[9e+307,{\"a\":9e+307}]" },
        { "{\"1e400\":\"18446744073709551616\",\"\\\"\\\\\":1e400,\"b\":\"\\\\\"}",
          "{\"1e400\":\"18446744073709551616\",\"\\\"\\\\\":9e+307,\"b\":\"\\\\\"}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_error_t why;
        json_t *const v = ech_json_read(rows[i][0], strlen(rows[i][0]), 0, &why);
        ech_buf b = { 0 };
        if (v == NULL) fail_msg("%s: %s", rows[i][0], why.text);
        assert_int_equal(ech_json_dump(&b, v), ECH_OK);
        assert_string_equal(b.data, rows[i][1]);
        ech_buf_fini(&b);
        json_decref(v);
    }
}

/* Of every number of digits, with and without sign and exponent, beside a decimal reading of it. */
static void a_number_is_the_nearest_double(void **state)
{
    (void)state;
    char text[420];
    for (int n = 1; n < 330; n++) {
        for (int form = 0; form < 4; form++) {
            const int sign = form & 1;
            memset(text, 0, sizeof text);
            text[0] = '[';
            text[1] = '-';
            for (int i = 0; i < n; i++)
                text[1 + sign + i] = (char)('0' + (form < 2 ? 9 - i % 3 : 1 + (i * 7) % 9));
            const double want = strtod(text + 1, NULL);
            text[1 + sign + n] = ']';
            json_error_t why;
            json_t *const v = ech_json_read(text, strlen(text), 0, &why);
            if (v == NULL) fail_msg("%s: %s", text, why.text);
            const double got = json_number_value(json_array_get(v, 0));
            if (isinf(want) ? fabs(got) != 9e307 || (got < 0) != sign : got != want)
                fail_msg("%s: %.17g", text, got);
            json_decref(v);
        }
    }
}

/* Nothing becomes JSON by it, and the place of what isn't is that in the text. */
static void what_is_no_json_stays_so(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "[1e400, 01e400]",
        "[1e400, .5e400]",
        "[1e400, 5.e400]",
        "[1e400, +1e400]",
        "[1e400, 1e400e]",
        "[1e400, --1e400]",
        "[1e400, 0x1e400]",
        "[1e400",
        "[1e400, 018446744073709551616]",
        "[1e400, \"\\",
        "[1e400, -]",
        "[1e400, \"1e400]",
        "[1e400]1",
        "[18446744073709551616, x]",
        "[18446744073709551616.]",
        "[1e400 1]",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_error_t why;
        json_t *const v = ech_json_read(rows[i], strlen(rows[i]), 0, &why);
        if (v != NULL) fail_msg("%s was read", rows[i]);
    }
    json_error_t why;
    assert_null(ech_json_read("[18446744073709551616, x]", 25, 0, &why));
    assert_int_equal(why.position, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_at_fault_are_named),
        cmocka_unit_test(every_name_of_structured_output_is_read),
        cmocka_unit_test(tool_choice_says_what_may_be_called),
        cmocka_unit_test(strict_tools_are_held_to_their_schema),
        cmocka_unit_test(parameters_have_the_schemas_type),
        cmocka_unit_test(the_prompts_end_says_where_the_answer_begins),
        cmocka_unit_test(a_text_has_no_parser),
        cmocka_unit_test(a_model_without_calls_refuses_tools),
        cmocka_unit_test(numbers_keep_a_short_spelling),
        cmocka_unit_test(numbers_of_any_size_are_read),
        cmocka_unit_test(a_number_is_the_nearest_double),
        cmocka_unit_test(what_is_no_json_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
