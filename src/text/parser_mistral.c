/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mistral, older and newer:
 *
 *     [TOOL_CALLS] [{"name": "f", "arguments": {…}, "id": "abcdefghi"}, …]
 *     [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{…}[TOOL_CALLS]g[ARGS]{…}
 *
 * The first character behind the marker tells which. [CALL_ID] may be missing, and [ARGS] too.
 */
#include "src/text/parser_state.h"

#define MAX_NAME 256

/*
 * Markers count only where the form allows them: [ARGS] inside of arguments is part of a string.
 * What is not live passes as text, byte by byte.
 */
static ech_marker_set live(const ech_parser *const p)
{
    switch (p->flow) {
    case ECH_FLOW_NAME:
        return ECH_MARK_BIT(ARGS) | ECH_MARK_BIT(CALL_ID);
    case ECH_FLOW_ID:
        return ECH_MARK_BIT(ARGS);
    case ECH_FLOW_AFTER:
        return ECH_MARK_BIT(TOOL_CALLS);
    default:
        return 0;
    }
}

static bool is_name_char(const char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("_-./:", c) != NULL);
}

/*
 * Where [ARGS] is missing the first brace ends the name. A name or an id that grows past any real
 * one was never a call: what has been held goes out as text.
 */
static void name_text(ech_parser *const p, const char c)
{
    ech_buf *const to = p->flow == ECH_FLOW_ID ? &p->call_id : &p->name;
    if (c == '{' && p->name.len != 0) {
        ech_call_begin_args(p);
        ech_call_args_text(p, c);
    } else if (!is_name_char(c) || to->len == MAX_NAME || !ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
    } else {
        ech_flow_keep(p, to, &c, 1);
    }
}

/* A brace at once is a single call without the list around it, which small models write. */
static void open_text(ech_parser *const p, const char c)
{
    if (c == '{') {
        ech_call_begin_json(p);
        ech_call_json_text(p, c);
    } else if (c == '[') {
        p->is_list = true;
        p->flow = ECH_FLOW_ITEM;
        (void)ech_flow_raw(p, c);
    } else if (!ech_json_is_space(c)) {
        p->flow = ECH_FLOW_NAME;
        name_text(p, c);
    } else if (!ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
    }
}

static void item_text(ech_parser *const p, const char c)
{
    if (c == '{') {
        ech_call_begin_json(p);
        ech_call_json_text(p, c);
    } else if (!ech_json_is_space(c) || !ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
    }
}

/* Behind a call: more of the array, its end, or text. */
static void after_text(ech_parser *const p, const char c)
{
    if (p->is_list && c == ']') {
        p->is_list = false;
        ech_buf_clear(&p->raw);
    } else if (p->is_list && c == ',') {
        p->flow = ECH_FLOW_ITEM;
        (void)ech_flow_raw(p, c);
    } else {
        ech_flow_after(p, c);
    }
}

static void text(ech_parser *const p, const char c)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        open_text(p, c);
        return;
    case ECH_FLOW_ITEM:
        item_text(p, c);
        return;
    case ECH_FLOW_NAME:
    case ECH_FLOW_ID:
        name_text(p, c);
        return;
    case ECH_FLOW_ARGS:
        ech_call_args_text(p, c);
        return;
    case ECH_FLOW_AFTER:
        after_text(p, c);
        return;
    default:
        ech_call_json_text(p, c);
        return;
    }
}

/* raw keeps the markers too: should the call turn out malformed, its text is given as it came. */
static void marker(ech_parser *const p, const ech_marker m)
{
    if (m == ECH_MARK_TOOL_CALLS) {
        ech_flow_open(p, ech_marker_text(m));
        p->is_list = false;
        return;
    }
    for (const char *c = ech_marker_text(m); *c != 0; c++) {
        (void)ech_flow_raw(p, *c);
    }
    if (m == ECH_MARK_CALL_ID) {
        p->flow = ECH_FLOW_ID;
    } else {
        ech_call_begin_args(p);
    }
}

const ech_tools_ops ech_tools_mistral = {
    .begin = ECH_MARK_BIT(TOOL_CALLS),
    .live = live,
    .text = text,
    .marker = marker,
};
