/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renders templates for the comparison with jinja2: reads lines {"template": "…", "args": {…},
 * "now": "…"} and answers each with {"text": "…"} or {"error": "…", "code": "…"}, in order, so that
 * one process serves thousands of them. With a tokenizer's folder as argument, "ids" too: those of
 * the text by its origins, as a prompt gets them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/template.h"
#include "echelon/tokenizer.h"

static ech_tokenizer *tok; /* NULL: no ids */

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

/* Added tokens, not special, that the template writes. */
static size_t find_markers(const ech_template *const t, int32_t *const markers, const size_t cap)
{
    size_t n = 0;
    for (int32_t id = 0; (size_t)id < ech_tokenizer_n_ids(tok); id++) {
        char text[128];
        size_t len;
        if (!ech_tokenizer_is_added(tok, id) || ech_tokenizer_is_special(tok, id)) continue;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        if (bytes == NULL || len >= sizeof text) continue;
        memcpy(text, bytes, len);
        text[len] = '\0';
        if (ech_template_has_text(t, text) && n < cap) markers[n++] = id;
    }
    return n;
}

static void answer_ids(const ech_template *const t, const ech_rendered *const r)
{
    int32_t markers[64];
    ech_ids ids = { 0 };
    ech_error err = { 0 };
    const ech_spans spans = { .text = r->text,
                              .len = r->len,
                              .spans = r->spans,
                              .n_spans = r->n_spans,
                              .marker_ids = markers,
                              .n_markers = find_markers(t, markers, 64) };
    if (ech_tokenizer_encode_spans(tok, &spans, 0, &ids, &err) != ECH_OK) {
        answer_error(&err);
    } else {
        json_t *const list = json_array();
        for (size_t i = 0; i < ids.n; i++)
            (void)json_array_append_new(list, json_integer(ids.data[i]));
        answer(json_pack("{s:o, s:o}", "text", json_stringn(r->text, r->len), "ids", list));
    }
    ech_ids_fini(&ids);
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
    } else if (tok != NULL) {
        answer_ids(t, &r);
    } else {
        answer(json_pack("{s:o}", "text", json_stringn(r.text, r.len)));
    }
    ech_rendered_release(&r);
    ech_template_destroy(&t);
}

int main(const int argc, char **const argv)
{
    char *line = NULL;
    size_t cap = 0;
    ech_error err;
    if (argc > 1 && ech_tokenizer_open(&tok, argv[1], &err) != ECH_OK) {
        fprintf(stderr, "template_lines: %s\n", err.text);
        return 2;
    }
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
    ech_tokenizer_close(&tok);
    return 0;
}
