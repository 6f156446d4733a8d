/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser's own behaviour beyond the goldens: options, whole characters, what is held, places
 * and budgets, formats picked from templates, and the pieces from which a call is made.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/utf8.h"
#include "src/text/json_scan.h"
#include "src/text/parser_state.h"
#include "tests/unit/text/parser_harness.h"

static uint64_t rng = 7;

static uint32_t next(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static ech_parser *make(const ech_parser_options *const o)
{
    ech_parser *p = NULL;
    assert_int_equal(ech_parser_create(&p, o, NULL), ECH_OK);
    return p;
}

static void feed(ech_parser *const p, const int32_t id, const char *const s)
{
    assert_int_equal(ech_parser_feed(p, id, s, strlen(s), NULL), ECH_OK);
}

/* The one event of the last call, if it says this. */
static void assert_event(const ech_parser *const p, const ech_parser_event_kind kind,
                         const char *const text)
{
    size_t n;
    const ech_parser_event *const e = ech_parser_events(p, &n);
    assert_int_equal(n, 1);
    assert_int_equal(e->kind, kind);
    assert_int_equal(e->text_len, strlen(text));
    assert_memory_equal(e->text, text, e->text_len);
}

static void assert_no_event(const ech_parser *const p)
{
    size_t n;
    (void)ech_parser_events(p, &n);
    assert_int_equal(n, 0);
}

static void bad_stop_strings_are_refused(void **state)
{
    (void)state;
    ech_parser *p = NULL;
    ech_error err;
    const char *stops[ECH_PARSER_MAX_STOPS + 1];
    ech_parser_options o = ech_parser_options_default();
    o.stops = stops;
    for (int i = 0; i <= ECH_PARSER_MAX_STOPS; i++) {
        stops[i] = "x";
    }
    o.n_stops = ECH_PARSER_MAX_STOPS + 1;
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_ELIMIT);
    o.n_stops = 2;
    stops[1] = "";
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "1"));
    stops[1] = "a\xf0\x9f";
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_EINVAL);
    char *const big = calloc(1, ECH_PARSER_MAX_STOP_BYTES + 2);
    memset(big, 'a', ECH_PARSER_MAX_STOP_BYTES + 1);
    stops[1] = big;
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_ELIMIT);
    big[ECH_PARSER_MAX_STOP_BYTES] = 0;
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_OK);
    ech_parser_destroy(&p);
    ech_parser_destroy(&p);
    ech_parser_destroy(NULL);
    o.tools = ECH_TOOLS_COUNT;
    assert_int_equal(ech_parser_create(&p, &o, &err), ECH_EINVAL);
    free(big);
}

/* bytes.decode(errors="replace"), straight from its description. */
static void replace(const char *const s, const size_t len, ech_buf *const to)
{
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        const int n = ech_utf8_decode(s + i, len - i, &cp);
        const size_t used = n > 0 ? (size_t)n : ech_utf8_broken_len(s + i, len - i);
        (void)ech_buf_append(to, n > 0 ? s + i : "\xef\xbf\xbd", n > 0 ? used : 3);
        i += used;
    }
}

static void broken_bytes_become_replacement_characters(void **state)
{
    (void)state;
    static const char bytes[] = "a\xc3\xa9\xf0\x9f\x98\x8a\xe2\x82\xff\xc0\xed\xa0\xbf\x80z";
    const ech_parser_options o = ech_parser_options_default();
    ech_buf want = { 0 };
    ech_buf got = { 0 };
    for (int round = 0; round < 3000; round++) {
        char in[24];
        bool cuts[24];
        const size_t len = next() % sizeof in;
        for (size_t i = 0; i < len; i++) {
            in[i] = bytes[next() % (sizeof bytes - 1)];
            cuts[i] = next() % 3 == 0;
        }
        ech_buf_clear(&want);
        if (len != 0) (void)ech_buf_push(&want, 'T');
        replace(in, len, &want);
        if (len != 0) (void)ech_buf_push(&want, 1);
        harness_parse(&o, in, len, cuts, false, &got);
        assert_int_equal(got.len, want.len);
        if (len != 0) assert_memory_equal(got.data, want.data, want.len);
    }
    ech_buf_fini(&want);
    ech_buf_fini(&got);
}

static void text_comes_as_soon_as_it_is_certain(void **state)
{
    (void)state;
    const char *stops[] = { "END_OF", "xy" };
    ech_parser_options o = ech_parser_options_default();
    o.stops = stops;
    o.n_stops = 2;
    o.tools = ECH_TOOLS_HERMES;
    ech_parser *p = make(&o);
    feed(p, 1, "abc");
    assert_event(p, ECH_PARSER_TEXT, "abc");
    assert_int_equal(ech_parser_held_tokens(p), 0);
    feed(p, 1, "dEN");
    assert_event(p, ECH_PARSER_TEXT, "d");
    assert_int_equal(ech_parser_held_tokens(p), 1);
    feed(p, 1, "D");
    assert_no_event(p);
    assert_int_equal(ech_parser_held_tokens(p), 2);
    feed(p, 1, "E");
    assert_event(p, ECH_PARSER_TEXT, "END"); /* E may begin it anew */
    assert_int_equal(ech_parser_held_tokens(p), 1);
    feed(p, 1, " <tool_");
    assert_event(p, ECH_PARSER_TEXT, "E ");
    assert_int_equal(ech_parser_held_tokens(p), 1);
    feed(p, 1, "box> \xf0\x9f");
    assert_event(p, ECH_PARSER_TEXT, "<tool_box> ");
    assert_int_equal(ech_parser_held_tokens(p), 1);
    feed(p, 1, "\x98\x8a");
    assert_event(p, ECH_PARSER_TEXT, "😊");
    feed(p, 1, "");
    assert_int_equal(ech_parser_held_tokens(p), 0);
    feed(p, 1, "x");
    assert_no_event(p);
    assert_int_equal(ech_parser_finish(p, NULL), ECH_OK);
    assert_event(p, ECH_PARSER_TEXT, "x");
    feed(p, 1, "more");
    assert_no_event(p);
    assert_int_equal(ech_parser_finish(p, NULL), ECH_OK);
    assert_no_event(p);
    ech_parser_destroy(&p);
}

static void nothing_follows_a_stop(void **state)
{
    (void)state;
    const char *stops[] = { "STOP" };
    ech_parser_options o = ech_parser_options_default();
    o.stops = stops;
    o.n_stops = 1;
    ech_parser *p = make(&o);
    feed(p, 1, "STOP and more");
    assert_event(p, ECH_PARSER_STOP, "");
    assert_true(ech_parser_stopped(p));
    assert_int_equal(ech_parser_held_tokens(p), 0);
    feed(p, 1, "text");
    assert_no_event(p);
    assert_int_equal(ech_parser_finish(p, NULL), ECH_OK);
    assert_no_event(p);
    ech_parser_destroy(&p);
}

/* With ids, the same bytes out of other tokens are text. */
static void a_marker_that_is_a_token_matches_by_its_id_alone(void **state)
{
    (void)state;
    ech_parser_options o = ech_parser_options_default();
    o.reasoning = ECH_REASONING_THINK;
    o.tools = ECH_TOOLS_HERMES;
    o.marker_id = harness_marker_id;
    ech_parser *p = make(&o);
    feed(p, 1, "<think>");
    assert_event(p, ECH_PARSER_TEXT, "<think>");
    feed(p, 1, "<tool_call>{");
    assert_event(p, ECH_PARSER_TEXT, "<tool_call>{");
    ech_parser_destroy(&p);
    p = make(&o);
    feed(p, harness_marker_id(NULL, "<think>", 7), ""); /* a special token may come without bytes */
    assert_no_event(p);
    assert_int_equal(ech_parser_place_of(p), ECH_PLACE_REASONING);
    feed(p, 1, "</think>");
    assert_event(p, ECH_PARSER_REASONING, "</think>");
    feed(p, harness_marker_id(NULL, "</think>", 8), "</think>");
    assert_int_equal(ech_parser_place_of(p), ECH_PLACE_CONTENT);
    ech_parser_destroy(&p);
}

static void reasoning_is_counted_for_a_budget(void **state)
{
    (void)state;
    ech_parser_options o = ech_parser_options_default();
    o.reasoning = ECH_REASONING_THINK;
    o.start = ECH_START_OPEN;
    o.marker_id = harness_marker_id;
    ech_parser *p = make(&o);
    assert_int_equal(ech_parser_place_of(p), ECH_PLACE_REASONING);
    feed(p, 1, "a");
    feed(p, 1, " b");
    assert_int_equal(ech_parser_reasoning_tokens(p), 2);
    const char *const end = ech_reasoning_end(o.reasoning);
    feed(p, harness_marker_id(NULL, end, strlen(end)), end);
    feed(p, 1, "c");
    assert_event(p, ECH_PARSER_TEXT, "c");
    assert_int_equal(ech_parser_reasoning_tokens(p), 2);
    ech_parser_destroy(&p);
}

static void a_call_is_a_place(void **state)
{
    (void)state;
    ech_parser_options o = ech_parser_options_default();
    o.tools = ECH_TOOLS_HERMES;
    ech_parser *p = make(&o);
    feed(p, 1, "<tool_call>");
    assert_int_equal(ech_parser_place_of(p), ECH_PLACE_TOOL);
    assert_int_equal(ech_parser_held_tokens(p), 1);
    feed(p, 1, "{\"name\": \"f\", \"arguments\": {\"a");
    assert_int_equal(ech_parser_held_tokens(p), 0);
    assert_int_equal(ech_parser_complete_calls(p), 0);
    feed(p, 1, "\": 1}}");
    assert_int_equal(ech_parser_place_of(p), ECH_PLACE_CONTENT);
    assert_int_equal(ech_parser_complete_calls(p), 1);
    ech_parser_destroy(&p);
}

static void a_models_own_call_id_is_given(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}",
        "[TOOL_CALLS][{\"id\": \"abc123def\", \"name\": \"f\", \"arguments\": {}}]",
    };
    ech_parser_options o = ech_parser_options_default();
    o.tools = ECH_TOOLS_MISTRAL;
    for (int i = 0; i < 2; i++) {
        ech_parser *p = make(&o);
        feed(p, 1, texts[i]);
        size_t n;
        const ech_parser_event *const e = ech_parser_events(p, &n);
        assert_int_equal(e[0].kind, ECH_PARSER_TOOL_START);
        assert_int_equal(e[0].call_id_len, 9);
        assert_memory_equal(e[0].call_id, "abc123def", 9);
        ech_parser_destroy(&p);
    }
}

static void a_call_that_never_gets_to_its_arguments_is_text(void **state)
{
    (void)state;
    ech_parser_options o = ech_parser_options_default();
    o.tools = ECH_TOOLS_HERMES;
    ech_parser *p = make(&o);
    feed(p, 1, "<tool_call>{\"x\": \"");
    char chunk[1025] = { 0 };
    memset(chunk, 'a', 1024);
    size_t total = 0;
    for (int i = 0; i < 1100; i++) {
        feed(p, 1, chunk);
        size_t n;
        const ech_parser_event *const e = ech_parser_events(p, &n);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(e[k].kind, ECH_PARSER_TEXT);
            total += e[k].text_len;
        }
    }
    assert_int_equal(total, 1100 * 1024 + strlen("<tool_call>{\"x\": \""));
    ech_parser_destroy(&p);
}

/* What a constraint would demand, put together, is what the parser reads. */
static void the_pieces_of_a_call_make_calls(void **state)
{
    (void)state;
    for (int f = ECH_TOOLS_NONE + 1; f < ECH_TOOLS_COUNT; f++) {
        ech_call_syntax s;
        assert_int_equal(ech_tools_call_syntax((ech_tools_format)f, &s), ECH_OK);
        ech_parser_options o = ech_parser_options_default();
        o.tools = (ech_tools_format)f;
        const char *const args =
            s.json_arguments ? "{\"a\": \"b\"}" : "<parameter=a>\nb\n</parameter>\n";
        ech_buf in = { 0 };
        (void)ech_buf_printf(&in, "%sfirst%s%s%s%ssecond%s%s%s%s", s.before, s.between, args,
                             s.after, s.next, s.between, args, s.after, s.last);
        ech_buf got = { 0 };
        harness_parse(&o, in.data, in.len, NULL, false, &got);
        const char *const want = "Cfirst\x02{\"a\": \"b\"}\x02"
                                 "1\x01"
                                 "Csecond\x02{\"a\": \"b\"}\x02"
                                 "1\x01";
        assert_string_equal(got.data, want);
        ech_buf_fini(&in);
        ech_buf_fini(&got);
    }
    ech_call_syntax s;
    assert_int_equal(ech_tools_call_syntax(ECH_TOOLS_NONE, &s), ECH_EUNSUPPORTED);
}

static void formats_have_names(void **state)
{
    (void)state;
    for (int f = 0; f < ECH_TOOLS_COUNT; f++) {
        ech_tools_format found = ECH_TOOLS_COUNT;
        assert_true(ech_tools_format_find(ech_tools_format_name((ech_tools_format)f), &found));
        assert_int_equal(found, f);
    }
    for (int f = 0; f < ECH_REASONING_COUNT; f++) {
        ech_reasoning_format found = ECH_REASONING_COUNT;
        assert_true(
            ech_reasoning_format_find(ech_reasoning_format_name((ech_reasoning_format)f), &found));
        assert_int_equal(found, f);
    }
    ech_tools_format t;
    assert_false(ech_tools_format_find("nonsense", &t));
    assert_string_equal(ech_tools_format_name(ECH_TOOLS_COUNT), "");
}

/* Formats of public templates: tests/golden/parser/picks.txt has a line for each. */
static void formats_are_picked_from_templates(void **state)
{
    (void)state;
    ech_buf picks = { 0 };
    harness_file("golden/parser/picks.txt", &picks);
    int n = 0;
    char *rest = NULL;
    for (char *line = strtok_r(picks.data, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest), n++) {
        char file[96];
        char reasoning[16];
        char tools[16];
        assert_int_equal(sscanf(line, "%95s %15s %15s", file, reasoning, tools), 3);
        ech_buf path = { 0 };
        ech_buf text = { 0 };
        (void)ech_buf_printf(&path, "golden/templates/jinja/%s", file);
        harness_file(path.data, &text);
        ech_reasoning_format r;
        ech_tools_format t;
        ech_parser_pick(text.data, text.len, &r, &t);
        assert_string_equal(ech_reasoning_format_name(r), reasoning);
        assert_string_equal(ech_tools_format_name(t), tools);
        ech_buf_fini(&path);
        ech_buf_fini(&text);
    }
    assert_true(n >= 40);
    ech_buf_fini(&picks);
}

static void the_start_is_read_from_the_prompt(void **state)
{
    (void)state;
    static const struct {
        ech_reasoning_format format;
        const char *prompt;
        ech_parser_start start;
    } cases[] = {
        { ECH_REASONING_THINK, "<|im_start|>assistant\n", ECH_START_NONE },
        { ECH_REASONING_THINK, "<|im_start|>assistant\n<think>\n", ECH_START_OPEN },
        { ECH_REASONING_THINK, "<|im_start|>assistant\n<think>\n\n</think>\n\n", ECH_START_CLOSED },
        { ECH_REASONING_THINK, "", ECH_START_NONE },
        { ECH_REASONING_MISTRAL, "[/INST][THINK]", ECH_START_OPEN },
        { ECH_REASONING_NONE, "<think>", ECH_START_NONE },
        { ECH_REASONING_HARMONY, "<|start|>assistant", ECH_START_NONE },
        { ECH_REASONING_HARMONY, "<|start|>assistant<|channel|>final<|message|>",
          ECH_START_CLOSED },
        { ECH_REASONING_HARMONY, "<|channel|>analysis<|message|>", ECH_START_OPEN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            ech_parser_start_of(cases[i].format, cases[i].prompt, strlen(cases[i].prompt)),
            cases[i].start);
    }
}

static void json_is_scanned_as_the_standard_says(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "1.5e+10",
        "-12E-3",
        "\"\"",
        "[]",
        "{}",
        " [ 1 , 2 ] ",
        "{\"a\":{\"b\":[null,true,false]}}",
        "7 ",
        "\"\\u00e9\\n\"",
        "[[[]]]",
        "{\"\":0}",
    };
    static const char *const bad[] = {
        "",        "01",    "1.",    "-",       "+1",         ".5",          "1e",  "[1,]", "{,}",
        "{\"a\"}", "{a:1}", "[1 2]", "\"\\x\"", "\"\n\"",     "\"\\u12g4\"", "nul", "tru ", "[}",
        "{]",      "{} x",  "\"a",   "[",       "{\"a\":1,}", "'a'",         "1 2",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(ech_json_scan_whole(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(ech_json_scan_whole(bad[i], strlen(bad[i])));
    }
    char deep[2 * ECH_JSON_SCAN_DEPTH + 2];
    memset(deep, '[', ECH_JSON_SCAN_DEPTH + 1);
    memset(deep + ECH_JSON_SCAN_DEPTH + 1, ']', ECH_JSON_SCAN_DEPTH + 1);
    assert_false(ech_json_scan_whole(deep, sizeof deep));
    assert_true(ech_json_scan_whole(deep + 1, sizeof deep - 2));
}

/* Whatever comes, in whatever format: no crash, whole characters, nothing held at the end. */
static void any_bytes_are_parsed(void **state)
{
    (void)state;
    static const char *const words[] = {
        "{",        "}",        "\"name\"", ":",    "\"f\"",    "\"arguments\"",
        ",",        "[",        "]",        "\n",   " ",        "x",
        "\\",       "\"",       "=",        ">",    "<",        "to=functions.",
        "f",        "1",        ";",        "`",    "\xf0\x9f", "\x98",
        "\xc3\xa9", "function", "json",     "null", "a",
    };
    ech_buf in = { 0 };
    ech_buf whole = { 0 };
    ech_buf cut = { 0 };
    bool cuts[1024];
    for (int round = 0; round < 4000; round++) {
        ech_parser_options o = ech_parser_options_default();
        const char *stops[] = { "x1", "{\"" };
        o.reasoning = (ech_reasoning_format)(next() % ECH_REASONING_COUNT);
        o.tools = (ech_tools_format)(next() % ECH_TOOLS_COUNT);
        o.start = (ech_parser_start)(next() % 3);
        o.stops = stops;
        o.n_stops = next() % 3;
        ech_buf_clear(&in);
        for (uint32_t n = next() % 24; n > 0; n--) {
            const char *const w = next() % 3 == 0
                                      ? ech_marker_text((ech_marker)(next() % ECH_MARK_COUNT))
                                      : words[next() % (sizeof words / sizeof *words)];
            (void)ech_buf_puts(&in, w);
        }
        for (size_t i = 0; i < in.len; i++) {
            cuts[i] = next() % 3 == 0;
        }
        const bool ids = next() % 2 == 0;
        harness_parse(&o, in.data, in.len, NULL, ids, &whole);
        harness_parse(&o, in.data, in.len, cuts, ids, &cut);
        assert_int_equal(whole.len, cut.len);
        if (whole.len != 0) assert_memory_equal(whole.data, cut.data, cut.len);
    }
    ech_buf_fini(&in);
    ech_buf_fini(&whole);
    ech_buf_fini(&cut);
}

int main(const int argc, char **const argv)
{
    if (argc > 1) rng = strtoull(argv[1], NULL, 0);
    printf("seed=%llu\n", (unsigned long long)rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_stop_strings_are_refused),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(text_comes_as_soon_as_it_is_certain),
        cmocka_unit_test(nothing_follows_a_stop),
        cmocka_unit_test(a_marker_that_is_a_token_matches_by_its_id_alone),
        cmocka_unit_test(reasoning_is_counted_for_a_budget),
        cmocka_unit_test(a_call_is_a_place),
        cmocka_unit_test(a_models_own_call_id_is_given),
        cmocka_unit_test(a_call_that_never_gets_to_its_arguments_is_text),
        cmocka_unit_test(the_pieces_of_a_call_make_calls),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(formats_are_picked_from_templates),
        cmocka_unit_test(the_start_is_read_from_the_prompt),
        cmocka_unit_test(json_is_scanned_as_the_standard_says),
        cmocka_unit_test(any_bytes_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
