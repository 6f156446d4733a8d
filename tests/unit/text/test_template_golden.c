/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public models' templates against what jinja2 renders: every byte of every text, every message of
 * raise_exception, and an error wherever Python has one.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/template.h"
#include "src/base/buf.h"

#define GOLDEN ECH_SOURCE_DIR "/tests/golden/templates/"

static char *args_of(const json_t *const kase)
{
    json_t *const args = json_pack("{s:n, s:n, s:b, s:s, s:s, s:s, s:s}", "tools", "documents",
                                   "add_generation_prompt", 1, "bos_token", "<s>", "eos_token",
                                   "</s>", "pad_token", "<pad>", "unk_token", "<unk>");
    json_object_update(args, (json_t *)kase);
    char *const text = json_dumps(args, JSON_COMPACT);
    json_decref(args);
    return text;
}

static ech_template *compile(const char *const name)
{
    char path[512];
    ech_buf source = { 0 };
    ech_error err = { 0 };
    ech_template *t = NULL;
    (void)snprintf(path, sizeof path, GOLDEN "jinja/%s", name);
    assert_int_equal(ech_buf_read_file(&source, path, ECH_TEMPLATE_SOURCE_MAX, &err), ECH_OK);
    if (ech_template_compile(source.data, source.len, &t, &err) != ECH_OK)
        fail_msg("%s: %s", name, err.text);
    ech_buf_fini(&source);
    return t;
}

/* Whether the rendering is as expected; says so when it isn't. */
static bool check(const ech_template *const t, const json_t *const line, const char *const args)
{
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.now = "2026-01-02T03:04:05";
    const ech_status rc = ech_template_render(t, args, strlen(args), &opts, &r, &err);
    const char *const text = json_string_value(json_object_get(line, "text"));
    const char *const error = json_string_value(json_object_get(line, "error"));
    bool ok;
    if (text != NULL) {
        ok = rc == ECH_OK && r.len == json_string_length(json_object_get(line, "text")) &&
             memcmp(r.text, text, r.len) == 0;
    } else {
        const bool own = strncmp(error, "TemplateError: ", 15) == 0;
        ok = rc != ECH_OK && own == (rc == ECH_EINVAL) &&
             (!own || strcmp(err.text, error + 15) == 0);
    }
    if (!ok) {
        print_error("%s, %s: got %s\n", json_string_value(json_object_get(line, "template")),
                    json_string_value(json_object_get(line, "case")),
                    rc == ECH_OK ? r.text : err.text);
    }
    ech_rendered_release(&r);
    return ok;
}

static void templates_render_as_jinja2_renders_them(void **state)
{
    (void)state;
    json_error_t why;
    json_t *const cases = json_load_file(GOLDEN "cases.json", 0, &why);
    FILE *const lines = fopen(GOLDEN "expected.jsonl", "r");
    assert_non_null(cases);
    assert_non_null(lines);
    char *text = NULL, name[256] = "";
    size_t cap = 0, n = 0, bad = 0;
    ech_template *t = NULL;
    while (getline(&text, &cap, lines) > 0) {
        json_t *const line = json_loads(text, JSON_ALLOW_NUL, &why);
        assert_non_null(line);
        const char *const template = json_string_value(json_object_get(line, "template"));
        if (strcmp(name, template) != 0) {
            ech_template_destroy(&t);
            t = compile(template);
            (void)snprintf(name, sizeof name, "%s", template);
        }
        char *const args =
            args_of(json_object_get(cases, json_string_value(json_object_get(line, "case"))));
        bad += !check(t, line, args);
        n++;
        free(args);
        json_decref(line);
    }
    ech_template_destroy(&t);
    free(text);
    (void)fclose(lines);
    json_decref(cases);
    assert_int_equal(n, 42 * 18);
    assert_int_equal(bad, 0);
}

/* Every filter, test, global, method and statement that Jinja's own documentation lists. */
static void the_documentations_examples_render_as_in_jinja2(void **state)
{
    (void)state;
    json_error_t why;
    FILE *const lines = fopen(GOLDEN "docs.jsonl", "r");
    assert_non_null(lines);
    char *text = NULL, *args = NULL;
    size_t cap = 0, n = 0, bad = 0;
    while (getline(&text, &cap, lines) > 0) {
        json_t *const line = json_loads(text, JSON_ALLOW_NUL, &why);
        assert_non_null(line);
        if (args == NULL) {
            args = json_dumps(json_object_get(line, "args"), JSON_COMPACT);
        } else {
            const char *const source = json_string_value(json_object_get(line, "template"));
            ech_template *t = NULL;
            /* An error may be found at once or only when it is met. */
            if (ech_template_compile(source, strlen(source), &t, NULL) == ECH_OK)
                bad += !check(t, line, args);
            else if (json_object_get(line, "error") == NULL)
                fail_msg("%s doesn't compile", source);
            ech_template_destroy(&t);
            n++;
        }
        json_decref(line);
    }
    free(args);
    free(text);
    (void)fclose(lines);
    assert_true(n > 400);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja2_renders_them),
        cmocka_unit_test(the_documentations_examples_render_as_in_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
