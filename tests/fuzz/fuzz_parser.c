/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's output: the first two bytes choose reasoning, tools and start, the rest is text. It is
 * parsed whole and a byte at a time; joined events must be the same, every event whole characters,
 * and a call's events in order.
 */
#include <string.h>

#include "echelon/parser.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/fuzz/fuzz.h"

/* What came so far: kind, call and text, deltas joined. */
typedef struct journal {
    ech_buf text;
    char last;
    uint32_t n_calls;
    bool in_call;
} journal;

static void note(journal *const j, const ech_parser_event *const e)
{
    static const char letters[] = "TRCAES";
    const char letter = letters[e->kind];
    ECH_ASSERT(ech_utf8_valid(e->text, e->text_len, NULL));
    ECH_ASSERT(j->in_call == (e->kind == ECH_PARSER_TOOL_ARGS || e->kind == ECH_PARSER_TOOL_END));
    if (e->kind == ECH_PARSER_TOOL_START) ECH_ASSERT(e->index == j->n_calls++ && e->text_len != 0);
    if (j->in_call) ECH_ASSERT(e->index + 1 == j->n_calls);
    j->in_call = e->kind == ECH_PARSER_TOOL_START || e->kind == ECH_PARSER_TOOL_ARGS;
    const bool joins = letter == j->last && strchr("TRA", letter) != NULL;
    if (!joins) ECH_ASSERT(ech_buf_printf(&j->text, "\x01%c%d", letter, e->complete) == ECH_OK);
    ECH_ASSERT(ech_buf_append(&j->text, e->text, e->text_len) == ECH_OK);
    j->last = letter;
}

static void note_all(journal *const j, const ech_parser *const p)
{
    size_t n;
    const ech_parser_event *e = ech_parser_events(p, &n);
    for (; n > 0; n--, e++) {
        note(j, e);
    }
}

static void parse(const ech_parser_options *const o, const char *const s, const size_t len,
                  const size_t step, journal *const j)
{
    ech_parser *p = NULL;
    ECH_ASSERT(ech_parser_create(&p, o, NULL) == ECH_OK);
    for (size_t i = 0; i < len; i += step) {
        ECH_ASSERT(ech_parser_feed(p, 1, s + i, len - i < step ? len - i : step, NULL) == ECH_OK);
        note_all(j, p);
    }
    ECH_ASSERT(ech_parser_finish(p, NULL) == ECH_OK);
    note_all(j, p);
    ECH_ASSERT(!j->in_call);
    ech_parser_destroy(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    static const char *const stops[] = { "STOP", "\n\n", "\xc3\xa9" };
    if (size < 2) return 0;
    ech_parser_options o = ech_parser_options_default();
    o.reasoning = (ech_reasoning_format)(data[0] % ECH_REASONING_COUNT);
    o.tools = (ech_tools_format)(data[1] % ECH_TOOLS_COUNT);
    o.start = (ech_parser_start)(data[0] / 8 % 3);
    o.stops = stops;
    o.n_stops = data[1] / 8 % 4;
    journal whole = { 0 };
    journal bytes = { 0 };
    parse(&o, (const char *)data + 2, size - 2, size, &whole);
    parse(&o, (const char *)data + 2, size - 2, 1, &bytes);
    ECH_ASSERT(whole.text.len == bytes.text.len);
    ECH_ASSERT(whole.text.len == 0 ||
               memcmp(whole.text.data, bytes.text.data, whole.text.len) == 0);
    ech_buf_fini(&whole.text);
    ech_buf_fini(&bytes.text);
    return 0;
}
