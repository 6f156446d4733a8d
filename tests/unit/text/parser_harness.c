/* SPDX-License-Identifier: Apache-2.0 */
/* Goldens and event strings: parser_harness.h. */
#include "tests/unit/test.h"

#include "tests/unit/text/parser_harness.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/utf8.h"
#include "src/text/parser_state.h"

enum { FIRST_ID = 1000 };

int32_t harness_marker_id(void *const ctx, const char *const text, const size_t len)
{
    (void)ctx;
    for (uint32_t m = 0; m < ECH_MARK_COUNT; m++) {
        if (ech_marker_text((ech_marker)m) == text) return (int32_t)(FIRST_ID + m);
        if (strcmp(ech_marker_text((ech_marker)m), text) == 0 && text[len] == 0)
            return (int32_t)(FIRST_ID + m);
    }
    return -1;
}

/* The marker that begins at text, or COUNT. */
static uint32_t marker_at(const char *const text, const size_t len)
{
    if (text[0] != '<' && text[0] != '[') return ECH_MARK_COUNT;
    for (uint32_t m = 0; m < ECH_MARK_COUNT; m++) {
        const size_t n = strlen(ech_marker_text((ech_marker)m));
        if (n <= len && memcmp(text, ech_marker_text((ech_marker)m), n) == 0) return m;
    }
    return ECH_MARK_COUNT;
}

static void put(ech_buf *const b, const char *const s, const size_t len)
{
    assert_int_equal(ech_buf_append(b, s, len), ECH_OK);
}

static void close_last(ech_buf *const to, char *const last)
{
    if (*last == 'T' || *last == 'R') put(to, "\x01", 1);
    *last = 0;
}

static void put_delta(ech_buf *const to, char *const last, const char kind,
                      const ech_parser_event *const e)
{
    if (*last != kind) {
        close_last(to, last);
        put(to, &kind, 1);
        *last = kind;
    }
    put(to, e->text, e->text_len);
}

void harness_events(const ech_parser *const p, ech_buf *const to, char *const last)
{
    size_t n;
    const ech_parser_event *e = ech_parser_events(p, &n);
    for (; n-- > 0; e++) {
        assert_true(ech_utf8_valid(e->text, e->text_len, NULL));
        switch (e->kind) {
        case ECH_PARSER_TEXT:
            assert_int_not_equal(e->text_len, 0);
            put_delta(to, last, 'T', e);
            break;
        case ECH_PARSER_REASONING:
            assert_int_not_equal(e->text_len, 0);
            put_delta(to, last, 'R', e);
            break;
        case ECH_PARSER_TOOL_START:
            close_last(to, last);
            put(to, "C", 1);
            put(to, e->text, e->text_len);
            put(to, "\x02", 1);
            break;
        case ECH_PARSER_TOOL_ARGS:
            put(to, e->text, e->text_len);
            break;
        case ECH_PARSER_TOOL_END:
            put(to,
                e->complete ? "\x02"
                              "1\x01"
                            : "\x02"
                              "0\x01",
                3);
            break;
        case ECH_PARSER_STOP:
            close_last(to, last);
            assert_int_equal(ech_buf_printf(to, "S%u\x01", e->index), ECH_OK);
            break;
        }
    }
}

static void feed(ech_parser *const p, const int32_t id, const char *const s, const size_t len,
                 ech_buf *const to, char *const last)
{
    assert_int_equal(ech_parser_feed(p, id, s, len, NULL), ECH_OK);
    harness_events(p, to, last);
}

void harness_parse(const ech_parser_options *const options, const char *const in, const size_t len,
                   const bool *const cuts, const bool ids, ech_buf *const ret)
{
    ech_parser_options o = *options;
    o.marker_id = ids ? harness_marker_id : NULL;
    ech_parser *p = NULL;
    assert_int_equal(ech_parser_create(&p, &o, NULL), ECH_OK);
    ech_buf_clear(ret);
    char last = 0;
    size_t begin = 0;
    for (size_t i = 0; i < len;) {
        const uint32_t m = ids ? marker_at(in + i, len - i) : ECH_MARK_COUNT;
        if (m != ECH_MARK_COUNT || (cuts != NULL && cuts[i])) {
            if (i > begin) feed(p, 1, in + begin, i - begin, ret, &last);
            begin = i;
        }
        if (m != ECH_MARK_COUNT) {
            const size_t n = strlen(ech_marker_text((ech_marker)m));
            feed(p, (int32_t)(FIRST_ID + m), in + i, n, ret, &last);
            begin = i += n;
        } else {
            i++;
        }
    }
    if (len > begin) feed(p, 1, in + begin, len - begin, ret, &last);
    assert_int_equal(ech_parser_finish(p, NULL), ECH_OK);
    harness_events(p, ret, &last);
    close_last(ret, &last);
    assert_int_equal(ech_parser_held_tokens(p), 0);
    ech_parser_destroy(&p);
}

/* ---- goldens ------------------------------------------------------------------------------- */

static const char *text_of(json_t *const o, const char *const key, const char *const otherwise)
{
    json_t *const v = json_object_get(o, key);
    return v != NULL ? json_string_value(v) : otherwise;
}

static size_t strings_of(json_t *const list, const char **const to, const size_t cap)
{
    const size_t n = json_array_size(list);
    assert_true(n <= cap);
    for (size_t i = 0; i < n; i++) {
        to[i] = json_string_value(json_array_get(list, i));
    }
    return n;
}

static ech_param_type type_of(void *const ctx, const char *const tool, const char *const param)
{
    (void)tool;
    const char *const t = text_of(ctx, param, "");
    if (strcmp(t, "string") == 0) return ECH_PARAM_STRING;
    return strcmp(t, "json") == 0 ? ECH_PARAM_JSON : ECH_PARAM_UNKNOWN;
}

static void write_want(json_t *const out, ech_buf *const to)
{
    for (size_t i = 0; i < json_array_size(out); i++) {
        json_t *const e = json_array_get(out, i);
        const char *const kind = json_string_value(json_array_get(e, 0));
        const char *const text = json_string_value(json_array_get(e, 1));
        if (strcmp(kind, "text") == 0 || strcmp(kind, "reasoning") == 0) {
            (void)ech_buf_printf(to, "%c%s\x01", kind[0] == 't' ? 'T' : 'R', text);
        } else if (strcmp(kind, "call") == 0) {
            (void)ech_buf_printf(to, "C%s\x02%s\x02%d\x01", text,
                                 json_string_value(json_array_get(e, 2)),
                                 json_is_true(json_array_get(e, 3)));
        } else {
            (void)ech_buf_printf(to, "S%d\x01", (int)json_integer_value(json_array_get(e, 1)));
        }
    }
}

void golden_read(golden *const g, const char *const line, const size_t len)
{
    *g = (golden){ .options = ech_parser_options_default() };
    json_t *const j = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    g->json = j;
    g->name = text_of(j, "name", "");
    g->in = text_of(j, "in", "");
    g->len = json_string_length(json_object_get(j, "in"));
    ech_parser_options *const o = &g->options;
    assert_true(ech_reasoning_format_find(text_of(j, "reasoning", "none"), &o->reasoning));
    assert_true(ech_tools_format_find(text_of(j, "tools", "none"), &o->tools));
    const char *const start = text_of(j, "start", "none");
    o->start = strcmp(start, "open") == 0     ? ECH_START_OPEN
               : strcmp(start, "closed") == 0 ? ECH_START_CLOSED
                                              : ECH_START_NONE;
    o->stops = g->stops;
    o->n_stops = strings_of(json_object_get(j, "stops"), g->stops, ECH_PARSER_MAX_STOPS);
    o->include_stop = json_is_true(json_object_get(j, "include_stop"));
    o->tool_names = g->tool_names;
    o->n_tools = strings_of(json_object_get(j, "tool_names"), g->tool_names, 8);
    if (json_object_get(j, "types") != NULL) {
        o->param_type = type_of;
        o->param_ctx = json_object_get(j, "types");
    }
    const char *const mode = text_of(j, "mode", "both");
    g->text_mode = strcmp(mode, "ids") != 0;
    g->ids_mode = strcmp(mode, "text") != 0;
    write_want(json_object_get(j, "out"), &g->want);
}

void golden_release(golden *const g)
{
    json_decref(g->json);
    ech_buf_fini(&g->want);
}

void harness_file(const char *const name, ech_buf *const ret)
{
    ech_buf path = { 0 };
    (void)ech_buf_printf(&path, "%s/tests/%s", ECH_SOURCE_DIR, name);
    assert_int_equal(ech_buf_read_file(ret, path.data, 16u << 20, NULL), ECH_OK);
    ech_buf_fini(&path);
}
