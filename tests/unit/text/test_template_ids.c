/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendered templates become the ids that `tokenizers` makes of the same text, spans or not, where
 * no data looks like a control token. Argument: the folder of the unpacked tokenizers.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/template.h"
#include "src/base/buf.h"

#define GOLDEN ECH_SOURCE_DIR "/tests/golden/templates/"

static const char *tokenizers;

typedef struct subject {
    char name[256];
    ech_template *t;
    int32_t markers[64];
    size_t n_markers;
} subject;

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

static void find_markers(subject *const s, const ech_tokenizer *const tok)
{
    s->n_markers = 0;
    for (int32_t id = 0; (size_t)id < ech_tokenizer_n_ids(tok); id++) {
        char text[128];
        size_t len;
        if (!ech_tokenizer_is_added(tok, id) || ech_tokenizer_is_special(tok, id)) continue;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        if (bytes == NULL || len >= sizeof text) continue;
        memcpy(text, bytes, len);
        text[len] = '\0';
        if (ech_template_has_text(s->t, text) && s->n_markers < 64) s->markers[s->n_markers++] = id;
    }
}

static void choose(subject *const s, const char *const name, const ech_tokenizer *const tok)
{
    char path[512];
    ech_buf source = { 0 };
    if (strcmp(s->name, name) == 0) return;
    ech_template_destroy(&s->t);
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    (void)snprintf(path, sizeof path, GOLDEN "jinja/%s", name);
    assert_int_equal(ech_buf_read_file(&source, path, ECH_TEMPLATE_SOURCE_MAX, NULL), ECH_OK);
    assert_int_equal(ech_template_compile(source.data, source.len, &s->t, NULL), ECH_OK);
    ech_buf_fini(&source);
    find_markers(s, tok);
}

static uint64_t digest(const ech_ids *const ids)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < ids->n * sizeof *ids->data; i++) {
        h = (h ^ ((const uint8_t *)ids->data)[i]) * 0x100000001b3u;
    }
    return h;
}

static bool check(const subject *const s, const ech_tokenizer *const tok, const char *const args,
                  const json_t *const want)
{
    ech_rendered r = { 0 };
    ech_ids ids = { 0 };
    ech_error err = { 0 };
    ech_template_options opts;
    char hex[20];
    ech_template_options_default(&opts);
    opts.now = "2026-01-02T03:04:05";
    assert_int_equal(ech_template_render(s->t, args, strlen(args), &opts, &r, &err), ECH_OK);
    const ech_spans spans = { .text = r.text,
                              .len = r.len,
                              .spans = r.spans,
                              .n_spans = r.n_spans,
                              .marker_ids = s->markers,
                              .n_markers = s->n_markers };
    assert_int_equal(ech_tokenizer_encode_spans(tok, &spans, 0, &ids, &err), ECH_OK);
    (void)snprintf(hex, sizeof hex, "%016llx", (unsigned long long)digest(&ids));
    const bool ok = (size_t)json_integer_value(json_array_get(want, 0)) == ids.n &&
                    strcmp(json_string_value(json_array_get(want, 1)), hex) == 0;
    ech_ids_fini(&ids);
    ech_rendered_release(&r);
    return ok;
}

static void compare(const char *const kind)
{
    char dir[1024];
    ech_error err = { 0 };
    json_error_t why;
    ech_tokenizer *tok = NULL;
    subject s = { .t = NULL };
    (void)snprintf(dir, sizeof dir, "%s/%s", tokenizers, kind);
    if (ech_tokenizer_open(&tok, dir, &err) != ECH_OK) fail_msg("%s", err.text);
    json_t *const cases = json_load_file(GOLDEN "cases.json", 0, &why);
    FILE *const lines = fopen(GOLDEN "ids.jsonl", "r");
    assert_non_null(lines);
    char *text = NULL;
    size_t cap = 0, n = 0, bad = 0;
    while (getline(&text, &cap, lines) > 0) {
        json_t *const line = json_loads(text, 0, &why);
        const char *const kase = json_string_value(json_object_get(line, "case"));
        choose(&s, json_string_value(json_object_get(line, "template")), tok);
        char *const args = args_of(json_object_get(cases, kase));
        const bool ok = check(&s, tok, args, json_object_get(line, kind));
        if (!ok) print_error("%s: %s, %s\n", kind, s.name, kase);
        bad += !ok;
        n++;
        free(args);
        json_decref(line);
    }
    free(text);
    (void)fclose(lines);
    json_decref(cases);
    ech_template_destroy(&s.t);
    ech_tokenizer_close(&tok);
    assert_true(n > 500);
    assert_int_equal(bad, 0);
}

static void qwen3_ids_are_those_of_tokenizers(void **state)
{
    (void)state;
    compare("qwen3");
}

static void smollm2_ids_are_those_of_tokenizers(void **state)
{
    (void)state;
    compare("smollm2");
}

int main(const int argc, char **const argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(qwen3_ids_are_those_of_tokenizers),
                                        cmocka_unit_test(smollm2_ids_are_those_of_tokenizers) };
    if (argc != 2) return 2;
    tokenizers = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
