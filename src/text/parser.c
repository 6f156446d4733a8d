/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public side of the parser: options, tokens in, events out, and the first stage, which makes
 * whole characters of bytes. What the text means is decided in parser_flow.c and the formats.
 *
 * A parser belongs to one thread at a time; its buffers keep their memory from token to token.
 *
 * Invariant: every byte fed in comes out in an event, is held back (held_chars), or was part of a
 * marker or of white space that a marker takes. Characters are whole: what is half a character
 * stays in `partial` until the next token, and ill-formed bytes become U+FFFD as Python's decoder
 * would write them.
 */
#include "echelon/parser.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/parser_state.h"

static const ech_tools_ops *const OPS[ECH_TOOLS_COUNT] = {
    [ECH_TOOLS_HERMES] = &ech_tools_hermes,      [ECH_TOOLS_QWEN3_CODER] = &ech_tools_qwen3_coder,
    [ECH_TOOLS_LLAMA3_JSON] = &ech_tools_llama3, [ECH_TOOLS_MISTRAL] = &ech_tools_mistral,
    [ECH_TOOLS_DEEPSEEK] = &ech_tools_deepseek,  [ECH_TOOLS_HARMONY] = &ech_tools_harmony,
};

ech_parser_options ech_parser_options_default(void)
{
    return (ech_parser_options){ .struct_size = sizeof(ech_parser_options) };
}

static ech_status copy_names(ech_parser *const p, const ech_parser_options *const o)
{
    if (o->tool_names == NULL || o->n_tools == 0) return ECH_OK;
    p->tool_names = calloc(o->n_tools, sizeof *p->tool_names);
    if (p->tool_names == NULL) return ECH_ENOMEM;
    for (; p->n_tools < o->n_tools; p->n_tools++) {
        p->tool_names[p->n_tools] = strdup(o->tool_names[p->n_tools]);
        if (p->tool_names[p->n_tools] == NULL) return ECH_ENOMEM;
    }
    return ECH_OK;
}

bool ech_parser_has_tool(const ech_parser *const p, const char *const name, const size_t len)
{
    for (size_t i = 0; i < p->n_tools; i++) {
        if (ech_str_eq(ech_str_from(p->tool_names[i]), (ech_str){ name, len })) return true;
    }
    return p->n_tools == 0;
}

static void set_formats(ech_parser *const p, const ech_parser_options *const o)
{
    p->reasoning = o->reasoning;
    p->tools = o->tools;
    p->ops = OPS[o->tools];
    p->is_harmony = o->reasoning == ECH_REASONING_HARMONY || o->tools == ECH_TOOLS_HARMONY;
    if (p->is_harmony) { /* its messages are read whole or not at all: no other format beside it */
        p->ops = &ech_tools_harmony;
        if (p->tools != ECH_TOOLS_HARMONY) p->tools = ECH_TOOLS_NONE;
        if (p->reasoning != ECH_REASONING_HARMONY) p->reasoning = ECH_REASONING_NONE;
    }
    p->may_reason = o->start != ECH_START_CLOSED;
    p->skips_breaks = o->start != ECH_START_NONE && !p->is_harmony;
    if (o->start == ECH_START_OPEN && o->reasoning != ECH_REASONING_NONE) {
        p->flow = ECH_FLOW_REASONING;
    } else if (p->is_harmony && o->start == ECH_START_NONE) {
        p->flow = ECH_FLOW_HEAD;
    }
}

ech_status ech_parser_create(ech_parser **const ret_parser, const ech_parser_options *const o,
                             ech_error *const err)
{
    if (o->reasoning >= ECH_REASONING_COUNT || o->tools >= ECH_TOOLS_COUNT) {
        return ech_fail(err, ECH_EINVAL, "parser: unknown format (reasoning %d, tools %d)",
                        (int)o->reasoning, (int)o->tools);
    }
    ech_parser *p = calloc(1, sizeof *p);
    if (p == NULL) return ech_fail(err, ECH_ENOMEM, "parser: out of memory");
    p->include_stop = o->include_stop;
    p->param_type = o->param_type;
    p->param_ctx = o->param_ctx;
    ech_marker_find_ids(p, o);
    set_formats(p, o);
    ech_status rc = ech_stop_init(&p->stop, o->stops, o->n_stops, err);
    if (rc == ECH_OK) {
        rc = copy_names(p, o);
        if (rc != ECH_OK) (void)ech_fail(err, rc, "parser: out of memory");
    }
    if (rc == ECH_OK) {
        *ret_parser = p;
    } else {
        ech_parser_destroy(&p);
    }
    return rc;
}

void ech_parser_destroy(ech_parser **const parser)
{
    ech_parser *const p = parser != NULL ? *parser : NULL;
    if (p == NULL) return;
    for (size_t i = 0; i < p->n_tools; i++) {
        free(p->tool_names[i]);
    }
    free(p->tool_names);
    ech_buf *const bufs[] = {
        &p->mark,     &p->blank,      &p->raw,       &p->name,        &p->call_id,
        &p->json.key, &p->json.value, &p->param.key, &p->param.value, &p->content,
        &p->text,     &p->ends,       NULL
    };
    for (size_t i = 0; bufs[i] != NULL; i++) {
        ech_buf_fini(bufs[i]);
    }
    ech_stop_fini(&p->stop);
    free(p->events);
    free(p);
    *parser = NULL;
}

/* ---- characters ---------------------------------------------------------------------------- */

static void push_chars(ech_parser *const p, const char *const s, const size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ech_marker_push(p, s[i]);
    }
}

/* What the text so far ends with is no beginning of a character after all. */
static void push_broken(ech_parser *const p)
{
    push_chars(p, "\xef\xbf\xbd", 3);
}

/*
 * One byte behind `partial`: a character, or as many U+FFFD as Python would write. partial has room
 * for a character; ech_utf8_decode says -2 for one that is not finished. Broken bytes are taken off
 * in the pieces that Python's "replace" uses, so texts agree with the reference's.
 */
static void push_byte(ech_parser *const p, const char byte)
{
    p->partial[p->n_partial++] = byte;
    while (p->n_partial != 0) {
        uint32_t cp;
        const int n = ech_utf8_decode(p->partial, p->n_partial, &cp);
        if (n == -2) return;
        size_t used = (size_t)n;
        if (n > 0) {
            push_chars(p, p->partial, used);
        } else {
            used = ech_utf8_broken_len(p->partial, p->n_partial);
            push_broken(p);
        }
        p->n_partial -= used;
        memmove(p->partial, p->partial + used, p->n_partial);
    }
}

static void flush_partial(ech_parser *const p)
{
    if (p->n_partial != 0) push_broken(p);
    p->n_partial = 0;
}

/* ---- tokens -------------------------------------------------------------------------------- */

/*
 * Characters that came and went neither into an event nor into a marker. Bytes, the buffers that
 * may still turn out to be text.
 */
static size_t held_chars(const ech_parser *const p)
{
    return p->mark.len + p->blank.len + p->raw.len + p->content.len + p->param.value.len;
}

/*
 * Notes where this token ends, and forgets those whose text is out. ends is a queue of positions in
 * the text, one per token; those at or before `out` are final. Its length is
 * ech_parser_held_tokens().
 */
static void note_token(ech_parser *const p)
{
    const uint64_t end = p->pushed + (p->n_partial != 0 ? 1 : 0);
    ech_flow_keep(p, &p->ends, &end, sizeof end);
    const uint64_t out = p->stopped ? UINT64_MAX : p->pushed - held_chars(p);
    const size_t n = p->ends.len / sizeof end;
    for (; p->ends_head < n; p->ends_head++) {
        uint64_t first;
        memcpy(&first, p->ends.data + p->ends_head * sizeof first, sizeof first);
        if (first > out) break;
    }
    if (p->ends_head == n) {
        ech_buf_clear(&p->ends);
        p->ends_head = 0;
    }
}

/*
 * The texts of the events lie one behind the other; only now do they stay where they are. p->text
 * may move while it grows, so events have lengths only until here; text and call_id of an event lie
 * behind each other in that order.
 */
static ech_status settle_events(ech_parser *const p, ech_error *const err)
{
    if (p->rc != ECH_OK) return ech_fail(err, p->rc, "parser: out of memory");
    const char *at = p->text.data != NULL ? p->text.data : "";
    for (size_t i = 0; i < p->n_events; i++) {
        ech_parser_event *const e = &p->events[i];
        e->text = at;
        at += e->text_len;
        e->call_id = at;
        at += e->call_id_len;
    }
    return ECH_OK;
}

static void clear_events(ech_parser *const p)
{
    p->n_events = 0;
    ech_buf_clear(&p->text);
}

/*
 * A marker by its id is one even if its text were split; bytes are only looked at for other tokens.
 * Events are valid until the next call.
 */
ech_status ech_parser_feed(ech_parser *const p, const int32_t id, const char *const bytes,
                           const size_t len, ech_error *const err)
{
    clear_events(p);
    if (p->stopped || p->finished) return ECH_OK;
    const bool was_reasoning = p->flow == ECH_FLOW_REASONING;
    const ech_marker m = ech_marker_of(p, id);
    if (m != ECH_MARK_COUNT) {
        flush_partial(p);
        ech_marker_push_id(p, m);
    } else {
        for (size_t i = 0; i < len; i++) {
            push_byte(p, bytes[i]);
        }
    }
    if (was_reasoning && p->flow == ECH_FLOW_REASONING) p->n_reasoning++;
    note_token(p);
    return settle_events(p, err);
}

ech_status ech_parser_finish(ech_parser *const p, ech_error *const err)
{
    clear_events(p);
    if (p->finished) return ECH_OK;
    p->finished = true;
    if (!p->stopped) {
        flush_partial(p);
        ech_marker_flush(p);
        ech_flow_finish(p);
    }
    ech_buf_clear(&p->ends);
    p->ends_head = 0;
    return settle_events(p, err);
}

const ech_parser_event *ech_parser_events(const ech_parser *const p, size_t *const ret_n)
{
    *ret_n = p->n_events;
    return p->events;
}

bool ech_parser_stopped(const ech_parser *const p)
{
    return p->stopped;
}

size_t ech_parser_held_tokens(const ech_parser *const p)
{
    return p->ends.len / sizeof(uint64_t) - p->ends_head;
}

uint32_t ech_parser_complete_calls(const ech_parser *const p)
{
    return p->n_complete;
}

ech_parser_place ech_parser_place_of(const ech_parser *const p)
{
    if (p->flow == ECH_FLOW_REASONING) return ECH_PLACE_REASONING;
    const bool in_content = p->flow == ECH_FLOW_CONTENT || p->flow == ECH_FLOW_AFTER;
    return in_content ? ECH_PLACE_CONTENT : ECH_PLACE_TOOL;
}

size_t ech_parser_reasoning_tokens(const ech_parser *const p)
{
    return p->n_reasoning;
}
