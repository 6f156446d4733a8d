/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other servers reported, as far as one answer's parser is concerned: stop
 * strings (ST*), tool calls and reasoning (TC*, CT5). The argument is the case's ID.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/text/parser_harness.h"

#define CALL(args) "<tool_call>\n{\"name\": \"f\", \"arguments\": " args "}\n</tool_call>"

/* Events of the text: whole, byte by byte, and cut in two at every place; all must be `want`. */
static void expect(const ech_parser_options *const o, const char *const in, const char *const want)
{
    const size_t len = strlen(in);
    bool *const cuts = calloc(len + 1, sizeof *cuts);
    ech_buf got = { 0 };
    for (size_t i = 0; i <= len + 1; i++) { /* i = len: whole; len + 1: every byte */
        memset(cuts, i > len, len + 1);
        if (i < len) cuts[i] = true;
        harness_parse(o, in, len, cuts, false, &got);
        assert_string_equal(got.data != NULL ? got.data : "", want);
    }
    ech_buf_fini(&got);
    free(cuts);
}

static ech_parser_options with_stops(const char *const *const stops, const size_t n)
{
    ech_parser_options o = ech_parser_options_default();
    o.stops = stops;
    o.n_stops = n;
    return o;
}

static ech_parser_options hermes(void)
{
    ech_parser_options o = ech_parser_options_default();
    o.tools = ECH_TOOLS_HERMES;
    o.reasoning = ECH_REASONING_THINK;
    return o;
}

/* A stop string of several tokens. */
static void ST1(void **state)
{
    (void)state;
    const char *const stops[] = { "O P Q" };
    const ech_parser_options o = with_stops(stops, 1);
    expect(&o, " L M N O P Q R S", "T L M N \x01S0\x01");
}

/* Several stop strings, streamed and not: nothing twice. */
static void ST3(void **state)
{
    (void)state;
    const char *const stops[] = { "\n", "Alice:" };
    const ech_parser_options o = with_stops(stops, 2);
    expect(&o, "Bob: hi Alice, Alic Alice: you", "TBob: hi Alice, Alic \x01S1\x01");
    expect(&o, "one line\nAlice:", "Tone line\x01S0\x01");
}

/* A stop string that begins as a marker does hides no marker. */
static void ST5(void **state)
{
    (void)state;
    const char *const stops[] = { "<thing>", "<tool_box>", "</th" };
    ech_parser_options o = hermes();
    o.stops = stops;
    o.n_stops = 3;
    expect(&o, "<think>a</th b</think>c", "Ra</th b\x01Tc\x01");
    expect(&o, "x" CALL("{}"),
           "Tx\x01"
           "Cf\x02{}\x02"
           "1\x01");
    expect(&o, "x<tool_box>y", "Tx\x01S1\x01");
}

/* The beginning of a stop string never gets out before it is certain that it is none. */
static void ST6(void **state)
{
    (void)state;
    const char *const stops[] = { "END_OF" };
    const ech_parser_options o = with_stops(stops, 1);
    ech_parser *p = NULL;
    assert_int_equal(ech_parser_create(&p, &o, NULL), ECH_OK);
    const char *const tokens[] = { "text ", "END", "_", "OF" };
    ech_buf got = { 0 };
    char last = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ech_parser_feed(p, 1, tokens[i], strlen(tokens[i]), NULL), ECH_OK);
        harness_events(p, &got, &last);
        assert_string_equal(got.data, i < 3 ? "Ttext " : "Ttext \x01S0\x01");
    }
    ech_buf_fini(&got);
    ech_parser_destroy(&p);
    expect(&o, "text END_ON", "Ttext END_ON\x01");
}

/* Neither text behind the stop string nor half of it. */
static void ST8(void **state)
{
    (void)state;
    const char *const stops[] = { "own fox" };
    ech_parser_options o = with_stops(stops, 1);
    expect(&o, "the quick brown fox jumps", "Tthe quick br\x01S0\x01");
    o.include_stop = true;
    expect(&o, "the quick brown fox jumps", "Tthe quick brown fox\x01S0\x01");
}

/* Empty, many, overlapping, multi-byte. */
static void ST9(void **state)
{
    (void)state;
    const char *empty[] = { "a", "" };
    ech_parser_options o = with_stops(empty, 2);
    ech_parser *p = NULL;
    ech_error err;
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_EINVAL);
    char names[64][16];
    const char *many[64];
    for (int i = 0; i < 64; i++) {
        (void)snprintf(names[i], sizeof names[i], "s%02d", i);
        many[i] = names[i];
    }
    o = with_stops(many, 64);
    expect(&o, "s6s66s63", "Ts6s66\x01S63\x01");
    const char *const overlapping[] = { "ab", "abc" };
    o = with_stops(overlapping, 2);
    expect(&o, "xabcd", "Tx\x01S0\x01");
    const char *const emoji[] = { "😊" };
    o = with_stops(emoji, 1);
    expect(&o, "a😀b😊c", "Ta😀b\x01S0\x01");
}

/* Qwen3's thinking models write no opening marker: the prompt has it. */
static void CT5(void **state)
{
    (void)state;
    ech_parser_options o = hermes();
    const char *const prompt = "<|im_start|>assistant\n<think>\n";
    o.start = ech_parser_start_of(o.reasoning, prompt, strlen(prompt));
    expect(&o, "because\n</think>\n\nanswer", "Rbecause\x01Tanswer\x01");
}

/* Long arguments with quotes in quotes. */
static void TC1(void **state)
{
    (void)state;
    ech_buf args = { 0 };
    (void)ech_buf_puts(&args, "{\"code\": \"");
    for (int i = 0; i < 40; i++) {
        (void)ech_buf_printf(&args, "print(\\\"a '%d' \\\\\\\"b\\\\\\\" {}[]\\\")\\n", i);
    }
    (void)ech_buf_puts(&args, "\"}");
    ech_buf in = { 0 };
    ech_buf want = { 0 };
    (void)ech_buf_printf(&in, CALL("%s"), args.data);
    (void)ech_buf_printf(&want, "Cf\x02%s\x02%d\x01", args.data, 1);
    const ech_parser_options o = hermes();
    expect(&o, in.data, want.data);
    ech_buf_fini(&args);
    ech_buf_fini(&in);
    ech_buf_fini(&want);
}

/* Parallel calls, with and without a line break between them. */
static void TC2(void **state)
{
    (void)state;
    const ech_parser_options o = hermes();
    const char *const want = "Cf\x02{\"a\": 1}\x02"
                             "1\x01"
                             "Cf\x02{\"a\": 2}\x02"
                             "1\x01";
    expect(&o, CALL("{\"a\": 1}") "\n" CALL("{\"a\": 2}"), want);
    expect(&o, CALL("{\"a\": 1}") CALL("{\"a\": 2}"), want);
}

/* Fragments of arguments join to exactly what the whole text gives. */
static void TC3(void **state)
{
    (void)state;
    const ech_parser_options o = hermes();
    expect(&o, CALL("{\"a\": \"</tool_call>\", \"b\": [1, {\"c\": \"}\"}], \"d\": \"é🚀\"}"),
           "Cf\x02{\"a\": \"</tool_call>\", \"b\": [1, {\"c\": \"}\"}], \"d\": \"é🚀\"}\x02"
           "1\x01");
}

/* A malformed call is content, and there is no complete call to finish for. */
static void TC5(void **state)
{
    (void)state;
    const ech_parser_options o = hermes();
    const char *const in = "<tool_call>\n{\"name\": f}\n</tool_call>";
    ech_buf want = { 0 };
    (void)ech_buf_printf(&want, "T%s\x01", in);
    expect(&o, in, want.data);
    ech_buf_fini(&want);
    ech_parser *p = NULL;
    assert_int_equal(ech_parser_create(&p, &o, NULL), ECH_OK);
    assert_int_equal(ech_parser_feed(p, 1, in, strlen(in), NULL), ECH_OK);
    assert_int_equal(ech_parser_finish(p, NULL), ECH_OK);
    assert_int_equal(ech_parser_complete_calls(p), 0);
    ech_parser_destroy(&p);
}

/* A call that is cut at any byte: complete only with all its arguments, streamed as whole. */
static void TC6(void **state)
{
    (void)state;
    const char *const in = CALL("{\"a\": [1, \"x\"]}");
    const size_t args_end = (size_t)(strstr(in, "]}") - in) + 2;
    const ech_parser_options o = hermes();
    ech_buf whole = { 0 };
    ech_buf bytes = { 0 };
    bool cuts[128];
    memset(cuts, 1, sizeof cuts);
    for (size_t len = 0; len <= strlen(in); len++) {
        harness_parse(&o, in, len, NULL, false, &whole);
        harness_parse(&o, in, len, cuts, false, &bytes);
        assert_int_equal(whole.len, bytes.len);
        if (len != 0) assert_string_equal(whole.data, bytes.data);
        const bool complete = len != 0 && strstr(whole.data, "\x02"
                                                             "1\x01") != NULL;
        assert_int_equal(complete, len >= args_end);
        if (len != 0 && whole.data[0] == 'T') { /* text: all of it */
            assert_int_equal(whole.len, len + 2);
            assert_memory_equal(whole.data + 1, in, len);
        }
    }
    ech_buf_fini(&whole);
    ech_buf_fini(&bytes);
}

/* The whole call in one piece; no arguments. */
static void TC7(void **state)
{
    (void)state;
    const ech_parser_options o = hermes();
    expect(&o, CALL("{}"),
           "Cf\x02{}\x02"
           "1\x01");
    expect(&o, "<tool_call>{\"name\": \"f\"}</tool_call>",
           "Cf\x02{}\x02"
           "1\x01");
}

/* All 2^k ways to cut a golden text at k places. */
static void TC8(void **state)
{
    (void)state;
    const char *const in = "a<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
                           "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>b";
    const char *const want = "Ta\x01"
                             "Cf\x02{\"a\": 1}\x02"
                             "1\x01"
                             "Cg\x02{}\x02"
                             "1\x01"
                             "Tb\x01";
    const ech_parser_options o = hermes();
    const size_t len = strlen(in);
    enum { K = 12 };
    bool cuts[256];
    ech_buf got = { 0 };
    for (uint32_t way = 0; way < 1u << K; way++) {
        memset(cuts, 0, sizeof cuts);
        for (uint32_t k = 0; k < K; k++) {
            cuts[(k + 1) * len / (K + 1)] = (way >> k & 1) != 0;
        }
        harness_parse(&o, in, len, cuts, false, &got);
        assert_string_equal(got.data, want);
    }
    ech_buf_fini(&got);
}

/* A call inside reasoning ends it. */
static void TC12(void **state)
{
    (void)state;
    const ech_parser_options o = hermes();
    expect(&o, "<think>\nI look.\n" CALL("{}") "\n</think>\n\nok",
           "RI look.\x01"
           "Cf\x02{}\x02"
           "1\x01"
           "Tok\x01");
    expect(&o, "<think>a <tool_call> b</think>c", "Ra <tool_call> b\x01Tc\x01");
}

int main(const int argc, char **const argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ST1), cmocka_unit_test(ST3), cmocka_unit_test(ST5),  cmocka_unit_test(ST6),
        cmocka_unit_test(ST8), cmocka_unit_test(ST9), cmocka_unit_test(CT5),  cmocka_unit_test(TC1),
        cmocka_unit_test(TC2), cmocka_unit_test(TC3), cmocka_unit_test(TC5),  cmocka_unit_test(TC6),
        cmocka_unit_test(TC7), cmocka_unit_test(TC8), cmocka_unit_test(TC12),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
