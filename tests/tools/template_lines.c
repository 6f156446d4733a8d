/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renders templates for the comparison with jinja2: reads lines {"template": "…", "args": {…},
 * "now": "…"} and answers each with {"text": "…"} or {"error": "…", "code": "…"}, in order, so that
 * one process serves thousands of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/template.h"

static void answer(json_t *const reply)
{
    char *const text = json_dumps(reply, JSON_ENSURE_ASCII);
    puts(text != NULL ? text : "{\"error\": \"not UTF-8\", \"code\": \"BAD_OUTPUT\"}");
    free(text);
    json_decref(reply);
}

static void answer_error(const ech_error *const err)
{
    answer(json_pack("{s:s, s:s, s:i, s:i}", "error", err->text, "code", ech_status_name(err->code),
                     "line", (int)err->line, "column", (int)err->column));
}

/* The JSON text of the arguments is cut out as it stands: jansson would change its numbers. */
static void do_line(const char *const source, const char *const args, const char *const now)
{
    ech_template *t = NULL;
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.now = now;
    if (ech_template_compile(source, strlen(source), &t, &err) != ECH_OK ||
        ech_template_render(t, args, strlen(args), &opts, &r, &err) != ECH_OK) {
        answer_error(&err);
    } else {
        answer(json_pack("{s:o}", "text", json_stringn(r.text, r.len)));
    }
    ech_rendered_release(&r);
    ech_template_destroy(&t);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) >= 0) {
        json_error_t why;
        json_t *const v = json_loads(line, 0, &why);
        const char *const source = json_string_value(json_object_get(v, "template"));
        const char *const args = json_string_value(json_object_get(v, "args"));
        if (source == NULL || args == NULL) {
            fprintf(stderr, "template_lines: a line without template or args: %s\n", why.text);
            return 2;
        }
        do_line(source, args, json_string_value(json_object_get(v, "now")));
        json_decref(v);
        (void)fflush(stdout);
    }
    free(line);
    return 0;
}
