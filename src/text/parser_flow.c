/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where text goes: content, reasoning, or a call of some format; and the last stage of content, the
 * stop strings. One byte or marker at a time.
 *
 * Invariant: what may still turn out to be a call is in `raw`, and white space whose fate a marker
 * may decide is in `blank`; both come out again in order, as the text they were, unless a marker
 * takes them. Once a call is announced nothing of it is ever text.
 *
 * The way of a byte: ech_marker_push (is it part of a marker?), ech_flow_text, then plain text or
 * the format's own text function. Content goes through the stop strings at last; reasoning and
 * arguments don't.
 *
 * Errors are sticky in p->rc: memory may run out anywhere here, and ech_parser_feed reports it
 * once. Thread: the parser's owner.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/text/parser_state.h"

/* A call that isn't announced after this much is text. */
#define MAX_RAW ((size_t)1 << 20)

/* ---- events -------------------------------------------------------------------------------- */

void ech_flow_keep(ech_parser *const p, ech_buf *const b, const void *const ptr, const size_t len)
{
    const ech_status rc = ech_buf_append(b, ptr, len);
    if (rc != ECH_OK) p->rc = rc;
}

/* p->nowhere takes the writes when memory is out, so callers need no check. */
static ech_parser_event *new_event(ech_parser *const p, const ech_parser_event_kind kind,
                                   const uint32_t index)
{
    if (p->events == NULL || p->n_events == p->events_cap) {
        const size_t cap = p->events_cap == 0 ? 8 : p->events_cap * 2;
        ech_parser_event *const grown = realloc(p->events, cap * sizeof *grown);
        if (grown == NULL) {
            p->rc = ECH_ENOMEM;
            return &p->nowhere;
        }
        p->events = grown;
        p->events_cap = cap;
    }
    ech_parser_event *const e = &p->events[p->n_events++];
    *e = (ech_parser_event){ .kind = kind, .index = index };
    return e;
}

/* Text of an event; joined with the last one where that says more of the same. */
static void give(ech_parser *const p, const ech_parser_event_kind kind, const uint32_t index,
                 const char *const ptr, const size_t len)
{
    if (len == 0) return;
    ech_parser_event *e = p->n_events != 0 ? &p->events[p->n_events - 1] : NULL;
    if (e == NULL || e->kind != kind || e->index != index) e = new_event(p, kind, index);
    ech_flow_keep(p, &p->text, ptr, len);
    e->text_len += len;
}

/* ---- stop strings -------------------------------------------------------------------------- */

/* The first len bytes of what is held; the rest may still be the beginning of a stop string. */
static void give_content(ech_parser *const p, const size_t len)
{
    give(p, ECH_PARSER_TEXT, 0, p->content.data, len);
    if (len < p->content.len) memmove(p->content.data, p->content.data + len, p->content.len - len);
    p->content.len -= len;
}

/* Content is interrupted: no stop string spans what comes between. */
static void flush_content(ech_parser *const p)
{
    give_content(p, p->content.len);
    ech_stop_reset(&p->stop);
}

/*
 * The automaton says how many bytes at the end might begin a stop string: these stay, all others go
 * out.
 */
static void push_content(ech_parser *const p, const char c)
{
    if (p->stopped || p->rc != ECH_OK) return;
    ech_flow_keep(p, &p->content, &c, 1);
    if (p->rc != ECH_OK) return;
    size_t len = 0;
    const int32_t stop = ech_stop_push(&p->stop, (uint8_t)c, &len);
    if (stop < 0) {
        const size_t held = ech_stop_held(&p->stop);
        if (held < p->content.len) give_content(p, p->content.len - held);
        return;
    }
    give_content(p, p->include_stop ? p->content.len : p->content.len - len);
    ech_buf_clear(&p->content);
    (void)new_event(p, ECH_PARSER_STOP, (uint32_t)stop);
    p->stopped = true;
}

/* ---- content and reasoning ----------------------------------------------------------------- */

/* Only before any content, and once: later it is text that talks about markers. */
static ech_marker_set begin_reasoning(const ech_parser *const p)
{
    if (!p->may_reason || p->has_content) return 0;
    if (p->reasoning == ECH_REASONING_THINK) return ECH_MARK_BIT(THINK);
    return p->reasoning == ECH_REASONING_MISTRAL ? ECH_MARK_BIT(MISTRAL_THINK) : 0;
}

static ech_marker_set end_reasoning(const ech_parser *const p)
{
    if (p->reasoning == ECH_REASONING_THINK) return ECH_MARK_BIT(THINK_END);
    return p->reasoning == ECH_REASONING_MISTRAL ? ECH_MARK_BIT(MISTRAL_THINK_END) : 0;
}

/*
 * The markers that mean something where the parser stands; all others are text. late: a call
 * interrupted reasoning, whose end marker may still come and is then dropped.
 */
ech_marker_set ech_flow_live(const ech_parser *const p)
{
    const ech_marker_set begin = p->ops != NULL ? p->ops->begin : 0;
    const ech_marker_set late = p->is_cut ? end_reasoning(p) : 0;
    ECH_ASSERT(p->flow <= ECH_FLOW_REASONING || p->ops != NULL); /* only formats make calls */
    switch (p->flow) {
    case ECH_FLOW_CONTENT:
        return begin_reasoning(p) | begin | late;
    case ECH_FLOW_REASONING:
        return begin_reasoning(p) | end_reasoning(p) | begin;
    case ECH_FLOW_AFTER:
        return p->ops->live(p) | late;
    default:
        return p->ops->live(p);
    }
}

/* Whether white space here may belong to a marker. A stop string with a line break needs it now. */
static bool holds(const ech_parser *const p, const char c)
{
    if (p->is_harmony || !ech_json_is_space(c)) return false;
    if (p->flow == ECH_FLOW_REASONING) return c == '\n';
    if (p->stop.has_break || ech_flow_live(p) == 0) return false;
    return c == '\n' || !p->has_content;
}

static void push_plain(ech_parser *const p, const char c)
{
    if (p->flow == ECH_FLOW_REASONING) {
        flush_content(p);
        p->may_reason = false;
        give(p, ECH_PARSER_REASONING, 0, &c, 1);
    } else {
        push_content(p, c);
    }
}

static void release_blank(ech_parser *const p)
{
    for (size_t i = 0; i < p->blank.len; i++) {
        push_plain(p, p->blank.data[i]);
    }
    ech_buf_clear(&p->blank);
}

void ech_flow_plain(ech_parser *const p, const char c)
{
    if (c == '\n' && p->skips_breaks) return;
    if (holds(p, c)) {
        ech_flow_keep(p, &p->blank, &c, 1);
        return;
    }
    release_blank(p);
    p->skips_breaks = false;
    if (p->flow == ECH_FLOW_CONTENT) {
        p->has_content = p->has_content || !ech_json_is_space(c);
    }
    push_plain(p, c);
}

void ech_flow_text(ech_parser *const p, const char c)
{
    if (p->stopped || p->rc != ECH_OK) return;
    if (p->flow > ECH_FLOW_REASONING) {
        p->ops->text(p, c);
    } else if (p->tools == ECH_TOOLS_LLAMA3_JSON && ech_llama3_begins(p, c)) {
        ech_flow_open(p, "");
        p->ops->text(p, c);
    } else {
        ech_flow_plain(p, c);
    }
}

/* A marker takes the line breaks before it, and those behind it. */
static void switch_reasoning(ech_parser *const p, const ech_flow to)
{
    ech_buf_clear(&p->blank);
    p->flow = to;
    p->may_reason = false; /* once an answer */
    p->skips_breaks = true;
}

void ech_flow_marker(ech_parser *const p, const ech_marker m)
{
    if (p->stopped || p->rc != ECH_OK) return;
    const ech_marker_set bit = (ech_marker_set)1 << m;
    if (p->flow <= ECH_FLOW_REASONING && (bit & begin_reasoning(p)) != 0) {
        switch_reasoning(p, ECH_FLOW_REASONING);
    } else if (p->flow == ECH_FLOW_REASONING && (bit & end_reasoning(p)) != 0) {
        switch_reasoning(p, ECH_FLOW_CONTENT);
    } else if (p->is_cut && (bit & end_reasoning(p)) != 0) {
        p->is_cut = false; /* the call had ended it already */
        ech_buf_clear(&p->raw);
        switch_reasoning(p, ECH_FLOW_CONTENT);
    } else {
        p->ops->marker(p, m);
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

void ech_flow_open(ech_parser *const p, const char *const text)
{
    if (p->flow <= ECH_FLOW_REASONING) p->origin = p->flow;
    ech_buf_clear(&p->raw);
    ech_flow_keep(p, &p->raw, p->blank.data, p->blank.len);
    ech_flow_keep(p, &p->raw, text, strlen(text));
    ech_buf_clear(&p->blank);
    ech_buf_clear(&p->name);
    ech_buf_clear(&p->call_id);
    p->is_started = false;
    p->flow = ECH_FLOW_OPEN;
}

bool ech_flow_raw(ech_parser *const p, const char c)
{
    if (p->raw.len >= MAX_RAW) return false;
    ech_flow_keep(p, &p->raw, &c, 1);
    return true;
}

/*
 * Back to where the call began, with its text. A call whose arguments are whole is one, whatever
 * became of the object around them. raw is replayed as plain text, so time stays linear: nothing in
 * it is tried as a call again.
 */
static void restore(ech_parser *const p)
{
    if (p->is_started) {
        const bool complete = p->flow == ECH_FLOW_JSON && p->json.has_args;
        ech_flow_end(p, complete);
        if (complete) return;
    }
    p->flow = p->origin;
    ech_buf raw = p->raw; /* a call can't begin again in it: plain text changes no flow */
    p->raw = (ech_buf){ 0 };
    for (size_t i = 0; i < raw.len; i++) {
        ech_flow_plain(p, raw.data[i]);
    }
    ech_buf_fini(&raw);
}

void ech_flow_fail(ech_parser *const p, const char c)
{
    restore(p);
    if (c != 0) ech_flow_text(p, c);
}

void ech_flow_fail_marker(ech_parser *const p, const ech_marker m)
{
    restore(p);
    if ((ech_flow_live(p) >> m & 1) != 0) {
        ech_flow_marker(p, m);
        return;
    }
    for (const char *c = ech_marker_text(m); *c != 0; c++) {
        ech_flow_text(p, *c);
    }
}

/*
 * From here on nothing can be taken back: the client has seen the call. The name and the id go
 * first into p->text, in this order.
 */
void ech_flow_start(ech_parser *const p)
{
    flush_content(p);
    ech_parser_event *const e = new_event(p, ECH_PARSER_TOOL_START, p->n_calls++);
    e->text_len = p->name.len;
    e->call_id_len = p->call_id.len;
    ech_flow_keep(p, &p->text, p->name.data, p->name.len);
    ech_flow_keep(p, &p->text, p->call_id.data, p->call_id.len);
    ech_buf_clear(&p->raw);
    p->is_started = true;
    p->is_cut = p->is_cut || p->origin == ECH_FLOW_REASONING;
    p->may_reason = false;
}

void ech_flow_args(ech_parser *const p, const char *const ptr, const size_t len)
{
    give(p, ECH_PARSER_TOOL_ARGS, p->n_calls - 1, ptr, len);
}

void ech_flow_end(ech_parser *const p, const bool complete)
{
    new_event(p, ECH_PARSER_TOOL_END, p->n_calls - 1)->complete = complete;
    if (complete) p->n_complete++;
    p->is_started = false;
    p->skips_breaks = true;
    p->origin = ECH_FLOW_CONTENT; /* a call ends reasoning */
    p->flow = ECH_FLOW_AFTER;
}

void ech_flow_after(ech_parser *const p, const char c)
{
    if (ech_json_is_space(c) && ech_flow_raw(p, c)) return;
    ech_flow_fail(p, c);
}

/* ---- the end ------------------------------------------------------------------------------- */

/*
 * What the text ends in the middle of: a call that was announced ends incomplete, one that wasn't
 * is text.
 */
void ech_flow_finish(ech_parser *const p)
{
    const bool in_header = p->is_harmony && p->flow == ECH_FLOW_HEAD && p->raw.len != 0 &&
                           memchr(p->raw.data, '<', p->raw.len) != NULL;
    if (p->flow == ECH_FLOW_AFTER || in_header) { /* half a header is no text */
        ech_buf_clear(&p->raw);
        p->flow = ECH_FLOW_CONTENT;
    } else if (p->flow > ECH_FLOW_REASONING) {
        ech_flow_fail(p, 0);
    }
    /* White space behind calls, with no content at all, is nobody's. */
    if (p->flow == ECH_FLOW_REASONING || p->has_content || p->n_calls == 0) release_blank(p);
    ech_buf_clear(&p->blank);
    if (!p->stopped) flush_content(p);
}
