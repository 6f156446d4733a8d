/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a conversation to a prompt: what is put in order, what is refused, and that nothing a user
 * writes becomes a control token, whatever the operations it goes through. Argument: the folder of
 * the unpacked tokenizers. ECH_TEST_SEED repeats a run of the injection test.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/chat.h"
#include "src/base/buf.h"

static const char *tokenizers;

static ech_chat *open_chat(const char *const source, const ech_tokenizer *const tok)
{
    ech_chat *c = NULL;
    ech_error err = { 0 };
    if (ech_chat_open(&c, source, strlen(source), tok, &err) != ECH_OK) fail_msg("%s", err.text);
    return c;
}

static void expect(const char *const source, const char *const request, const char *const text)
{
    ech_chat *c = open_chat(source, NULL);
    ech_chat_prompt p = { 0 };
    ech_error err = { 0 };
    if (ech_chat_make_prompt(c, request, strlen(request), NULL, &p, &err) != ECH_OK)
        fail_msg("%s\n%s", request, err.text);
    if (strcmp(p.rendered.text, text) != 0)
        fail_msg("%s\ngot  [%s]\nwant [%s]", request, p.rendered.text, text);
    size_t sum = 0;
    for (size_t i = 0; i < p.rendered.n_spans; i++) {
        sum += p.rendered.spans[i].len;
    }
    assert_int_equal(sum, p.rendered.len);
    assert_int_equal(p.ids.n, 0);
    ech_chat_prompt_release(&p);
    ech_chat_close(&c);
}

static void expect_refused(const char *const source, const char *const request,
                           const ech_status code, const char *const part)
{
    ech_chat *c = open_chat(source, NULL);
    ech_chat_prompt p = { 0 };
    ech_error err = { 0 };
    const ech_status rc = ech_chat_make_prompt(c, request, strlen(request), NULL, &p, &err);
    if (rc != code || strstr(err.text, part) == NULL)
        fail_msg("%s\n%s: %s", request, ech_status_name(rc), err.text);
    ech_chat_close(&c);
}

#define PLAIN                                                                                      \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt " \
    "%}<go>{% endif %}"
#define PARTS                                                                                      \
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "     \
    "m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}"
#define CALLS                                                                                      \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.id }}:{{ "              \
    "c.function.arguments | tojson }}{% endfor %}{% endfor %}"
#define REASON                                                                                     \
    "{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content "            \
    "}}</think>{% endif %}{{ m.content }}{% endfor %}"

static void content_is_put_in_order(void **state)
{
    (void)state;
    expect(PLAIN, "{\"messages\":[{\"role\":\"user\"}]}", "<user><go>");
    expect(PLAIN, "{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", "<assistant><go>");
    expect(PLAIN,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
           "\"type\":\"text\",\"text\":\"b\"}]}]}",
           "<user>ab<go>");
    expect(PLAIN,
           "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":"
           "\"no\"}]}]}",
           "<assistant>no<go>");
    expect(PLAIN, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "<user><go>");
    expect(PARTS,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
           "\"type\":\"text\",\"text\":\"b\"}]}]}",
           "[a][b]");
    expect(PLAIN, "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", "<system>x<go>");
    expect(PLAIN "{# #}{{ '' if 'developer' }}",
           "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", "<developer>x<go>");
    expect(PLAIN,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":false}",
           "<user>x");
}

static void calls_are_put_in_order(void **state)
{
    (void)state;
    expect(CALLS,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"function\":{"
           "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1.50,\\\"b\\\":[1e5,12345678901234567890]}\"}"
           "}]}]}",
           "i:{\"a\": 1.50, \"b\": [1e5, 12345678901234567890]}");
    expect(CALLS,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"function\":{"
           "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\"}}]}]}",
           "i:\"{\\\"a\\\":\"");
    expect(CALLS,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"function\":{"
           "\"name\":\"f\",\"arguments\":\"[1]\"}}]}]}",
           "i:\"[1]\"");
    expect(CALLS,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"function\":{"
           "\"name\":\"f\",\"arguments\":{\"a\":1.50}}}]}]}",
           "i:{\"a\": 1.5}");
    /* A template that adds strings gets strings. */
    static const char adds[] =
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + "
        "c.function.arguments }}{% endfor %}{% endfor %}";
    expect(adds,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
           "\"arguments\":{\"a\":1}}}]}]}",
           "f{\"a\": 1}");
    expect(adds,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
           "\"arguments\":\"{\\\"a\\\":1}\"}}]}]}",
           "f{\"a\":1}");
    /* Mistral's ids. */
    static const char nine[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ "
        "raise_exception('alphanumeric strings with length 9!') }}{% endif %}{{ c.id }}{% endfor "
        "%}{{ m.tool_call_id }} {% endfor %}";
    expect(nine,
           "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"abcDEF123\","
           "\"function\":{\"name\":\"f\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcDEF123\"}]}",
           "abcDEF123 abcDEF123 ");
    ech_chat *c = open_chat(nine, NULL);
    ech_chat_prompt p = { 0 };
    static const char request[] =
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"call_1\",\"function\":{"
        "\"name\":\"f\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\"}]}";
    assert_int_equal(ech_chat_make_prompt(c, request, sizeof request - 1, NULL, &p, NULL), ECH_OK);
    assert_int_equal(p.rendered.len, 20);
    assert_memory_equal(p.rendered.text, p.rendered.text + 10, 9);
    ech_chat_prompt_release(&p);
    ech_chat_close(&c);
}

static void reasoning_is_put_in_order(void **state)
{
    (void)state;
    expect(
        REASON,
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"r\"}]}",
        "<think>r</think>a");
    expect(REASON,
           "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"r\"}]}",
           "<think>r</think>a");
    expect(
        REASON,
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<think>\\nr\\n</think>\\n\\na\"}]}",
        "<think>r</think>a");
    expect(REASON, "{\"messages\":[{\"role\":\"user\",\"content\":\"<think>r</think>a\"}]}",
           "<think>r</think>a");
    expect(REASON, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<think>r\"}]}",
           "<think>r");
    expect(
        "{% for m in messages %}{{ m.thinking }}{{ m.content }}{% endfor %}",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"r\"}]}",
        "ra");
    expect(PLAIN, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<think>r</think>a\"}]}",
           "<assistant><think>r</think>a<go>");
}

static char *prompt_of(const ech_chat *const c, const char *const assistant)
{
    char request[2000];
    ech_chat_prompt p = { 0 };
    ech_error err = { 0 };
    const int n = snprintf(request, sizeof request,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                           "\"assistant\",%s},{\"role\":\"user\",\"content\":\"b\"}]}",
                           assistant);
    if (ech_chat_make_prompt(c, request, (size_t)n, NULL, &p, &err) != ECH_OK)
        fail_msg("%s\n%s", request, err.text);
    char *const text = strdup(p.rendered.text);
    ech_chat_prompt_release(&p);
    return text;
}

/* Calls in an assistant's text give the prompt of the same calls as tool_calls. */
static void calls_in_the_text_are_split_off(void **state)
{
    (void)state;
#define CALL(args)                                                                                 \
    "<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": " args "}\\n</tool_call>"
    static const char *const rows[][2] = {
        { "\"content\":\"Well.\\n" CALL("{\\\"a\\\": 1.50}") "\\n" CALL("{}") "\"",
          "\"content\":\"Well.\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":"
          "\"f\",\"arguments\":\"{\\\"a\\\": 1.50}\"}},{\"type\":\"function\",\"function\":{"
          "\"name\":\"f\",\"arguments\":\"{}\"}}]" },
        { "\"content\":\"<think>\\nx\\n</think>\\n\\n" CALL("{}") "\"",
          "\"content\":\"\",\"reasoning_content\":\"x\",\"tool_calls\":[{\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"arguments\":{}}}]" },
    };
    ech_buf source = { 0 };
    assert_int_equal(ech_buf_read_file(&source,
                                       ECH_SOURCE_DIR
                                       "/tests/golden/templates/jinja/Qwen-Qwen3-0.6B.jinja",
                                       ECH_TEMPLATE_SOURCE_MAX, NULL),
                     ECH_OK);
    ech_chat *c = open_chat(source.data, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *const as_text = prompt_of(c, rows[i][0]), *const as_calls = prompt_of(c, rows[i][1]);
        assert_string_equal(as_text, as_calls);
        free(as_text);
        free(as_calls);
    }
    /* Unfinished ones stay text, and so do a user's. */
    char *const broken = prompt_of(c, "\"content\":\"x <tool_call>\\n{\\\"name\\\": \"");
    assert_non_null(strstr(broken, "x <tool_call>\n{\"name\": <|im_end|>"));
    free(broken);
    ech_chat_close(&c);
    ech_buf_fini(&source);
}

static void other_arguments_are_put_in_order(void **state)
{
    (void)state;
    static const char source[] = "{{ tools is none }}{{ tools }}{{ documents }}{{ enable_thinking "
                                 "}}{{ messages | length }}{{ bos_token }}{{ reasoning_effort }}";
    expect(source, "{\"messages\":[{\"role\":\"user\"}]}", "TrueNoneNone1");
    expect(source, "{\"messages\":[{\"role\":\"user\"}],\"tools\":[]}", "TrueNoneNone1");
    expect(source, "{\"messages\":[{\"role\":\"user\"}],\"tools\":[1],\"tool_choice\":\"none\"}",
           "TrueNoneNone1");
    expect(source,
           "{\"messages\":[{\"role\":\"user\"}],\"tools\":[1],\"tool_choice\":\"auto\",\"reasoning_"
           "effort\":\"low\"}",
           "False[1]None1low");
    expect(source,
           "{\"messages\":[{\"role\":\"user\"}],\"chat_template_kwargs\":{\"enable_thinking\":"
           "false,\"messages\":[],\"bos_token\":\"x\"}}",
           "TrueNoneNoneFalse1");
    /* No effort is no thinking, unless the request says otherwise. */
    expect(source, "{\"messages\":[{\"role\":\"user\"}],\"reasoning_effort\":\"none\"}",
           "TrueNoneNoneFalse1none");
    expect(source,
           "{\"messages\":[{\"role\":\"user\"}],\"reasoning_effort\":\"none\","
           "\"chat_template_kwargs\":{\"enable_thinking\":true}}",
           "TrueNoneNoneTrue1none");
    /* Defaults come after both; an effort among them is one too. */
    expect(
        source,
        "{\"messages\":[{\"role\":\"user\"}],\"reasoning_effort\":\"none\","
        "\"chat_template_defaults\":{\"enable_thinking\":true,\"tools\":[1],\"bos_token\":\"x\"}}",
        "TrueNoneNoneFalse1none");
    expect(
        source,
        "{\"messages\":[{\"role\":\"user\"}],\"chat_template_kwargs\":{\"enable_thinking\":true},"
        "\"chat_template_defaults\":{\"enable_thinking\":false,\"reasoning_effort\":\"low\"}}",
        "TrueNoneNoneTrue1low");
    expect(source,
           "{\"messages\":[{\"role\":\"user\"}],\"chat_template_defaults\":{\"reasoning_effort\":"
           "\"none\"}}",
           "TrueNoneNoneFalse1none");
    expect(source,
           "{\"messages\":[{\"role\":\"user\"}],\"reasoning_effort\":\"high\","
           "\"chat_template_defaults\":{\"reasoning_effort\":\"none\"}}",
           "TrueNoneNone1high");
    /* What is said to others is no variable. */
    expect("{{ seed is defined }}{{ grammar is defined }}{{ tool_choice }}",
           "{\"messages\":[{\"role\":\"user\"}],\"seed\":1,\"grammar\":\"x\",\"tool_choice\":"
           "\"auto\"}",
           "FalseFalseauto");
}

static void tools_are_a_list_for_those_who_walk_it(void **state)
{
    (void)state;
    static const char walks[] = "{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}";
    expect(walks, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "q");
    expect(walks, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[1]}", "1q");
}

static void the_last_message_can_be_continued(void **state)
{
    (void)state;
    static const char go_on[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
        "\"Sure, \"}],\"continue_final_message\":true}";
    expect("{% for m in messages %}<{{ m.role }}>{{ m.content }}</e>\n{% endfor %}{% if "
           "add_generation_prompt %}<go>{% endif %}",
           go_on, "<user>q</e>\n<assistant>Sure, ");
    expect("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</e>\n{% endfor %}", go_on,
           "<user>q</e>\n<assistant>Sure,");
    expect_refused("{{ messages[0].content }}", go_on, ECH_EINVAL, "continue_final_message");
}

static void bad_requests_are_refused_by_place(void **state)
{
    (void)state;
    static const struct {
        const char *request, *part;
    } rows[] = {
        { "{}", "messages: must be a list" },
        { "{\"messages\":[]}", "messages: must be a list" },
        { "{\"messages\":{}}", "messages: must be a list" },
        { "{\"messages\":[1]}", "messages[0]: must be an object" },
        { "{\"messages\":[{\"content\":\"\"}]}", "messages[0].role" },
        { "{\"messages\":[{\"role\":\"user\"},{\"role\":\"user\",\"content\":1}]}",
          "messages[1].content: must be" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{"
          "\"type\":\"image_url\",\"image_url\":{}}]}]}",
          "messages[0].content[1]: only text" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[1]}]}", "messages[0].content[0]" },
        { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":1}]}",
          "messages[0].tool_calls: must" },
        { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
          "messages[0].tool_calls[0].function" },
        { "{\"messages\":[{\"role\":\"user\"}],\"tools\":{}}", "tools: must be a list" },
        { "{\"messages\":[{\"role\":\"user\"}],\"chat_template_kwargs\":1}",
          "chat_template_kwargs: must be an object" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_refused(PLAIN, rows[i].request, ECH_EINVAL, rows[i].part);
    }
    expect_refused(PLAIN, "{", ECH_EFORMAT, "JSON");
    expect_refused("{{ raise_exception('never') }}", "{\"messages\":[{\"role\":\"user\"}]}",
                   ECH_EINVAL, "never");
}

/* ---- injection ---- */

static uint64_t rng;

static uint32_t next(const uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static const char *const specials[] = { "<|im_start|>", "<|im_end|>",  "<|endoftext|>", "<think>",
                                        "</think>",     "<tool_call>", "</tool_call>" };

/* Text of markers whole, cut and doubled, and of ordinary words, as JSON. */
static void hostile_text(ech_buf *const out)
{
    static const char *const words[] = { "system\\n", " hi ",    "\\n",        "Say X",
                                         "é",         "{{ x }}", "<",          "|>",
                                         "im_end",    "<|",      "<|IM_END|>", "\\t" };
    for (uint32_t n = 1 + next(6); n > 0; n--) {
        const char *const m = specials[next(7)];
        const uint32_t kind = next(4);
        if (kind == 0)
            (void)ech_buf_puts(out, words[next(12)]);
        else if (kind == 1)
            (void)ech_buf_append(out, m, next((uint32_t)strlen(m)) + 1);
        else if (kind == 2)
            (void)ech_buf_puts(out, m + next((uint32_t)strlen(m)));
        else
            (void)ech_buf_puts(out, m);
    }
}

/* The same conversation twice: with hostile texts, and with "x" in their places. */
static void make_request(ech_buf *const hostile, ech_buf *const plain)
{
    const char *const roles[] = { "user", "assistant", "system", "tool" };
    ech_buf *const both[] = { hostile, plain };
    const uint32_t n = 1 + next(4);
    for (int b = 0; b < 2; b++) {
        ech_buf_clear(both[b]);
        (void)ech_buf_puts(both[b], "{\"messages\":[");
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *const role = roles[i == 0 ? 0 : next(4)];
        for (int b = 0; b < 2; b++) {
            (void)ech_buf_printf(both[b], "%s{\"role\":\"%s\",\"content\":\"", i > 0 ? "," : "",
                                 role);
            if (b == 0)
                hostile_text(hostile);
            else
                (void)ech_buf_puts(plain, "x");
            (void)ech_buf_puts(both[b], "\"}");
        }
    }
    for (int b = 0; b < 2; b++) {
        (void)ech_buf_puts(both[b], "]}");
    }
}

/* How many ids of special tokens and of the template's markers a prompt holds. */
static size_t count_control(const ech_chat *const c, const ech_tokenizer *const tok,
                            const ech_buf *const request)
{
    ech_chat_prompt p = { 0 };
    ech_error err = { 0 };
    size_t n = 0;
    if (ech_chat_make_prompt(c, request->data, request->len, NULL, &p, &err) != ECH_OK)
        fail_msg("%s\n%s", request->data, err.text);
    for (size_t i = 0; i < p.ids.n; i++) {
        bool control = ech_tokenizer_is_special(tok, p.ids.data[i]);
        for (size_t k = 0; k < 7; k++) {
            const bool is_marker = ech_template_has_text(ech_chat_template(c), specials[k]);
            control = control ||
                      (is_marker && p.ids.data[i] == ech_tokenizer_find_added(tok, specials[k],
                                                                              strlen(specials[k])));
        }
        n += control;
    }
    ech_chat_prompt_release(&p);
    return n;
}

static void users_never_write_control_tokens(void **state)
{
    (void)state;
    /* The operations that a template may do with data; in the first two, all markers are its own.
     */
    static const char *const sources[] = {
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor "
        "%}<|im_start|>assistant\n<think>\n</think><tool_call></tool_call><|endoftext|>",
        "{% for m in messages %}<|im_start|>{{ m.content | upper | lower }}{{ m.content | trim | "
        "replace('x', 'y') }}<|im_end|>{{ '</think><think></tool_call><tool_call>' }}{% endfor %}",
        "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{{ "
        "m.content[::-1][::-1] }}{{ m.content.split('|') | join('|') }}{{ '%s' % m.content }}{% "
        "endfor %}",
        "{% for m in messages %}<|im_start|>{{ m | tojson }}{{ [m.content] }}{{ "
        "'{}'.format(m.content) }}<|im_end|>{{ m.content | list | join }}{% endfor %}",
        "{% for m in messages %}<|im_start|>{% set a %}{{ m.content }}{% endset %}{{ a ~ '' }}{% "
        "for c in m.content %}{{ c }}{% endfor %}{% filter trim %}{{ m.content }}{% endfilter "
        "%}<|im_end|>{% endfor %}",
        "{% macro p(t) %}{{ t.strip() }}{% endmacro %}{% for m in messages %}<|im_start|>{{ "
        "p(m.content) }}{{ m.content | indent(2) }}{{ m.content | safe }}{{ '<|im_' ~ m.content "
        "}}<|im_end|>{% endfor %}",
    };
    char dir[1024];
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    const char *const seed = getenv("ECH_TEST_SEED");
    rng = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    print_message("seed=%llu\n", (unsigned long long)rng);
    (void)snprintf(dir, sizeof dir, "%s/qwen3", tokenizers);
    if (ech_tokenizer_open(&tok, dir, &err) != ECH_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        ech_chat *c = open_chat(sources[i], tok);
        ech_buf hostile = { 0 }, plain = { 0 };
        for (int k = 0; k < 100; k++) {
            make_request(&hostile, &plain);
            const size_t got = count_control(c, tok, &hostile),
                         want = count_control(c, tok, &plain);
            if (got != want)
                fail_msg("template %zu: %zu control tokens, not %zu\n%s", i, got, want,
                         hostile.data);
        }
        ech_buf_fini(&hostile);
        ech_buf_fini(&plain);
        ech_chat_close(&c);
    }
    ech_tokenizer_close(&tok);
}

int main(const int argc, char **const argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_is_put_in_order),
        cmocka_unit_test(calls_are_put_in_order),
        cmocka_unit_test(reasoning_is_put_in_order),
        cmocka_unit_test(calls_in_the_text_are_split_off),
        cmocka_unit_test(other_arguments_are_put_in_order),
        cmocka_unit_test(tools_are_a_list_for_those_who_walk_it),
        cmocka_unit_test(the_last_message_can_be_continued),
        cmocka_unit_test(bad_requests_are_refused_by_place),
        cmocka_unit_test(users_never_write_control_tokens),
    };
    if (argc != 2) return 2;
    tokenizers = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
