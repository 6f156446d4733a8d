/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek, with markers that are one token each:
 *
 *     V3, R1   <calls begin><call begin>function<sep>f\n```json\n{…}\n```<call end>\n…<calls end>
 *     V3.1     <calls begin><call begin>f<sep>{…}<call end><call begin>…<calls end>
 *
 * What stands before the separator tells which: the word "function", or the name.
 */
#include "src/text/parser_state.h"

#define MAX_NAME 256

static ech_marker_set live(const ech_parser *const p)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        return ECH_MARK_BIT(DS_CALL);
    case ECH_FLOW_HEAD:
        return ECH_MARK_BIT(DS_SEP);
    case ECH_FLOW_AFTER:
        return ECH_MARK_BIT(DS_CALL) | ECH_MARK_BIT(DS_CALL_END) | ECH_MARK_BIT(DS_CALLS_END) |
               ECH_MARK_BIT(DS_CALLS);
    case ECH_FLOW_ARGS:
        if (ech_call_in_string(p)) return 0;
        return ECH_MARK_BIT(DS_CALL_END) | ECH_MARK_BIT(DS_CALLS_END);
    default:
        return 0;
    }
}

static bool name_is_function(const ech_parser *const p)
{
    return ech_str_eq(ech_buf_view(&p->name), ECH_STR_LIT("function"));
}

/* A name, up to the separator or, in the older form, to the end of its line. */
static void name_text(ech_parser *const p, const char c)
{
    if (p->flow == ECH_FLOW_NAME && c == '\n' && p->name.len != 0) {
        p->flow = ECH_FLOW_FENCE;
        (void)ech_flow_raw(p, c);
    } else if (p->flow == ECH_FLOW_NAME && c == '{' && p->name.len == 0) {
        ech_flow_keep(p, &p->name, "function", 8); /* a tool of that name, newer form */
        ech_call_begin_args(p);
        ech_call_args_text(p, c);
    } else if (c == '\n' || p->name.len == MAX_NAME || !ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
    } else {
        ech_flow_keep(p, &p->name, &c, 1);
    }
}

/* "```json" and line breaks before the object. */
static void fence_text(ech_parser *const p, const char c)
{
    if (c == '{') {
        ech_call_begin_args(p);
        ech_call_args_text(p, c);
    } else if (c == 0 || strchr("`json \r\n", c) == NULL || !ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
    }
}

static void text(ech_parser *const p, const char c)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        if (!ech_json_is_space(c) || !ech_flow_raw(p, c)) ech_flow_fail(p, c);
        return;
    case ECH_FLOW_FENCE:
        fence_text(p, c);
        return;
    case ECH_FLOW_ARGS:
        ech_call_args_text(p, c);
        return;
    case ECH_FLOW_AFTER:
        if (c != '`' || !ech_flow_raw(p, c)) ech_flow_after(p, c);
        return;
    default:
        name_text(p, c);
        return;
    }
}

static void keep_marker(ech_parser *const p, const ech_marker m)
{
    for (const char *c = ech_marker_text(m); *c != 0; c++) {
        (void)ech_flow_raw(p, *c);
    }
}

/* <call begin>, behind <calls begin>, behind another call or alone. */
static void begin_call(ech_parser *const p, const ech_marker m)
{
    if (p->flow == ECH_FLOW_OPEN) {
        keep_marker(p, m);
    } else {
        ech_flow_open(p, ech_marker_text(m));
    }
    ech_buf_clear(&p->name);
    p->flow = ECH_FLOW_HEAD;
}

static void marker(ech_parser *const p, const ech_marker m)
{
    switch (m) {
    case ECH_MARK_DS_CALLS:
        ech_flow_open(p, ech_marker_text(m));
        return;
    case ECH_MARK_DS_CALL:
        begin_call(p, m);
        return;
    case ECH_MARK_DS_SEP:
        keep_marker(p, m);
        if (name_is_function(p)) {
            ech_buf_clear(&p->name);
            p->flow = ECH_FLOW_NAME;
        } else if (p->name.len == 0) {
            ech_flow_fail(p, 0);
        } else {
            ech_call_begin_args(p);
        }
        return;
    default:
        break;
    }
    if (p->flow == ECH_FLOW_ARGS) {
        ech_flow_fail_marker(p, m); /* the object isn't over */
        return;
    }
    ech_buf_clear(&p->raw);
    if (m == ECH_MARK_DS_CALLS_END) p->flow = ECH_FLOW_CONTENT;
    p->skips_breaks = true;
}

const ech_tools_ops ech_tools_deepseek = {
    .begin = ECH_MARK_BIT(DS_CALLS) | ECH_MARK_BIT(DS_CALL),
    .live = live,
    .text = text,
    .marker = marker,
};
