/* SPDX-License-Identifier: Apache-2.0 */
/*
 * History in order; see history.h. The parser is the one that reads answers, so what it told apart
 * when it was written is told apart when it comes back. Pure; text threads.
 *
 * Why: some clients send back an assistant's content as they got it from a server without a
 * parser, with <think> and calls in it as text. A template would write that into the prompt a
 * second time, beside its own markers, or miss the calls. The request's messages are not
 * changed; what is new is a copy.
 */
#include "src/server/history.h"

#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"

/* One content, taken apart. */
typedef struct pieces {
    ech_buf text, reasoning, name, args;
    json_t *calls;  /* as templates have them */
    bool is_broken; /* a call is not whole */
} pieces;

static void pieces_fini(pieces *const p)
{
    ech_buf_fini(&p->text);
    ech_buf_fini(&p->reasoning);
    ech_buf_fini(&p->name);
    ech_buf_fini(&p->args);
    json_decref(p->calls);
}

/* Ids are counted: the text has none, and a template only compares them. */
static ech_status end_call(pieces *const p, const ech_parser_event *const ev)
{
    p->is_broken = p->is_broken || !ev->complete;
    if (p->calls == NULL) p->calls = json_array();
    json_t *const call = json_pack(
        "{s:s, s:o, s:{s:s%, s:s%}}", "type", "function", "id", json_sprintf("call_%u", ev->index),
        "function", "name", p->name.data != NULL ? p->name.data : "", p->name.len, "arguments",
        p->args.data != NULL ? p->args.data : "", p->args.len);
    ech_buf_clear(&p->name);
    ech_buf_clear(&p->args);
    return call != NULL && json_array_append_new(p->calls, call) == 0 ? ECH_OK : ECH_ENOMEM;
}

/* Events point into the parser until its next call, so they are copied out here. */
static ech_status take_events(const ech_parser *const parser, pieces *const p)
{
    size_t n;
    const ech_parser_event *const events = ech_parser_events(parser, &n);
    for (size_t i = 0; i < n; i++) {
        const ech_parser_event *const ev = &events[i];
        if (ev->kind == ECH_PARSER_TOOL_END) {
            ECH_TRY(end_call(p, ev));
            continue;
        }
        ech_buf *const into = ev->kind == ECH_PARSER_REASONING    ? &p->reasoning
                              : ev->kind == ECH_PARSER_TOOL_START ? &p->name
                              : ev->kind == ECH_PARSER_TOOL_ARGS  ? &p->args
                                                                  : &p->text;
        ECH_TRY(ech_buf_append(into, ev->text, ev->text_len));
    }
    return ECH_OK;
}

/*
 * The parser begins outside of reasoning and knows no stops: this is a whole text, no answer
 * that goes on. It is fed without ids, so markers count as text spells them.
 */
static ech_status take_apart(const json_t *const content, const ech_parser_options *const how,
                             pieces *const p)
{
    ech_parser_options o = *how;
    ech_parser *parser;
    ech_error err;
    o.start = ECH_START_NONE;
    o.marker_id = NULL;
    o.stops = NULL;
    o.n_stops = 0;
    ECH_TRY(ech_parser_create(&parser, &o, &err));
    ech_status rc =
        ech_parser_feed(parser, -1, json_string_value(content), json_string_length(content), &err);
    if (rc == ECH_OK) rc = take_events(parser, p);
    if (rc == ECH_OK) rc = ech_parser_finish(parser, &err);
    if (rc == ECH_OK) rc = take_events(parser, p);
    ech_parser_destroy(&parser);
    return rc;
}

/* A template writes its own line breaks before calls. */
static size_t trimmed(const ech_buf *const text)
{
    size_t n = text->len;
    while (n > 0 && strchr(" \t\r\n", text->data[n - 1]) != NULL) {
        n--;
    }
    return n;
}

static bool has_reasoning(const json_t *const message)
{
    return json_object_get(message, "reasoning_content") != NULL ||
           json_object_get(message, "reasoning") != NULL ||
           json_object_get(message, "thinking") != NULL;
}

/*
 * The message with its pieces; NULL: out of memory. Fields that the message has of its own win
 * over what its text says.
 */
static json_t *put_together(json_t *const message, const pieces *const p)
{
    json_t *const m = json_copy(message);
    const size_t len = p->calls != NULL ? trimmed(&p->text) : p->text.len;
    const char *const text = p->text.data != NULL ? p->text.data : "";
    bool ok = m != NULL && json_object_set_new(m, "content", json_stringn(text, len)) == 0;
    if (ok && p->reasoning.len > 0 && !has_reasoning(m))
        ok = json_object_set_new(m, "reasoning_content",
                                 json_stringn(p->reasoning.data, p->reasoning.len)) == 0;
    if (ok && p->calls != NULL && json_array_size(json_object_get(m, "tool_calls")) == 0)
        ok = json_object_set(m, "tool_calls", p->calls) == 0;
    if (ok) return m;
    json_decref(m);
    return NULL;
}

/* A cheap look before a parser is made: every marker of the formats begins with one of these. */
static bool may_have_markers(const json_t *const message)
{
    const char *const role = json_string_value(json_object_get(message, "role"));
    const char *const content = json_string_value(json_object_get(message, "content"));
    return role != NULL && strcmp(role, "assistant") == 0 && content != NULL &&
           strpbrk(content, "<[{") != NULL;
}

/*
 * A new reference: to the message itself when it has no markers. A text with a broken call stays
 * as it is: to guess would change what the model said.
 */
static json_t *split_message(json_t *const message, const ech_parser_options *const how)
{
    if (!may_have_markers(message)) return json_incref(message);
    pieces p = { 0 };
    json_t *made = NULL;
    if (take_apart(json_object_get(message, "content"), how, &p) == ECH_OK) {
        const bool is_plain = (p.calls == NULL && p.reasoning.len == 0) || p.is_broken;
        made = is_plain ? json_incref(message) : put_together(message, &p);
    }
    pieces_fini(&p);
    return made;
}

json_t *ech_history_split(json_t *const messages, const ech_parser_options *const how)
{
    if (how->tools == ECH_TOOLS_NONE && how->reasoning == ECH_REASONING_NONE)
        return json_incref(messages);
    json_t *const list = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *const m = split_message(json_array_get(messages, i), how);
        if (m != NULL && json_array_append_new(list, m) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}
