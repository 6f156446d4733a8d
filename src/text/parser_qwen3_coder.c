/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3-Coder:
 *
 *     <tool_call>
 *     <function=f>
 *     <parameter=key>
 *     value
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * The outer marker may be missing. Arguments become a JSON object as they come: values that are
 * strings by the tool's schema, or can't be anything else, are escaped character by character;
 * others are held to their end and taken as JSON where they are. One line break at either end of a
 * value belongs to the markers.
 */
#include "src/text/parser_state.h"

#define MAX_NAME 256

static ech_marker_set live(const ech_parser *const p)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        return ECH_MARK_BIT(FUNCTION) | ECH_MARK_BIT(CALL);
    case ECH_FLOW_BODY:
        return ECH_MARK_BIT(PARAM) | ECH_MARK_BIT(FUNCTION_END) | ECH_MARK_BIT(CALL_END);
    case ECH_FLOW_VALUE:
        return ECH_MARK_BIT(PARAM_END);
    case ECH_FLOW_AFTER:
        return ECH_MARK_BIT(CALL) | ECH_MARK_BIT(CALL_END) | ECH_MARK_BIT(FUNCTION);
    default:
        return 0;
    }
}

static void give_escaped(ech_parser *const p, const char *const s, const size_t len)
{
    ech_buf out = { 0 };
    for (size_t i = 0; i < len; i++) {
        ech_call_escape(p, &out, s[i]);
    }
    ech_flow_args(p, out.data, out.len);
    ech_buf_fini(&out);
}

/* ---- values -------------------------------------------------------------------------------- */

/*
 * Keys and commas of the object are ours, so they are JSON whatever the model wrote. The key is
 * NUL-terminated for the schema's look-up.
 */
static void begin_value(ech_parser *const p)
{
    ech_call_param *const a = &p->param;
    ech_flow_args(p, a->n == 0 ? "{\"" : ", \"", a->n == 0 ? 2 : 3);
    give_escaped(p, a->key.data, a->key.len);
    ech_flow_args(p, "\": ", 3);
    a->type = p->param_type != NULL ? p->param_type(p->param_ctx, p->name.data, a->key.data)
                                    : ECH_PARAM_UNKNOWN;
    a->is_first = true;
    a->has_break = false;
    a->is_streamed = a->type == ECH_PARAM_STRING;
    ech_buf_clear(&a->value);
    if (a->is_streamed) ech_flow_args(p, "\"", 1);
    p->flow = ECH_FLOW_VALUE;
}

/* A character that no JSON value but a string begins with. */
static bool begins_string(const char c)
{
    return !ech_json_is_space(c) && (c == 0 || strchr("-0123456789tfn[{", c) == NULL);
}

/* For a parameter of unknown type the first character that isn't white space decides. */
static void value_char(ech_parser *const p, const char c)
{
    ech_call_param *const a = &p->param;
    if (!a->is_streamed && a->type == ECH_PARAM_UNKNOWN && begins_string(c)) {
        bool blank = true;
        for (size_t i = 0; i < a->value.len; i++) {
            blank = blank && ech_json_is_space(a->value.data[i]);
        }
        if (blank) {
            ech_flow_args(p, "\"", 1);
            give_escaped(p, a->value.data, a->value.len);
            ech_buf_clear(&a->value);
            a->is_streamed = true;
        }
    }
    if (a->is_streamed) {
        give_escaped(p, &c, 1);
    } else {
        ech_flow_keep(p, &a->value, &c, 1);
    }
}

/* A line break is held for one character: the last one belongs to </parameter>. */
static void value_text(ech_parser *const p, const char c)
{
    ech_call_param *const a = &p->param;
    const bool first = a->is_first;
    a->is_first = false;
    if (first && c == '\n') return;
    if (a->has_break) value_char(p, '\n');
    a->has_break = c == '\n';
    if (!a->has_break) value_char(p, c);
}

/* What can't be JSON is a string after all. */
static void end_value(ech_parser *const p)
{
    ech_call_param *const a = &p->param;
    if (a->is_streamed) {
        ech_flow_args(p, "\"", 1);
    } else if (ech_json_scan_whole(a->value.data, a->value.len)) {
        ech_flow_args(p, a->value.data, a->value.len);
    } else {
        ech_flow_args(p, "\"", 1);
        give_escaped(p, a->value.data, a->value.len);
        ech_flow_args(p, "\"", 1);
    }
    ech_buf_clear(&a->value);
    a->n++;
    p->flow = ECH_FLOW_BODY;
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Up to '>': the function's name, or a parameter's. */
static void name_text(ech_parser *const p, const char c)
{
    ech_buf *const to = p->flow == ECH_FLOW_NAME ? &p->name : &p->param.key;
    if (c != '>') {
        const bool bad = c == '<' || c == '\n' || to->len == MAX_NAME;
        if (bad || (!p->is_started && !ech_flow_raw(p, c))) {
            ech_flow_fail(p, c);
        } else {
            ech_flow_keep(p, to, &c, 1);
        }
    } else if (to->len == 0) {
        ech_flow_fail(p, c);
    } else if (p->flow == ECH_FLOW_NAME) {
        ech_flow_start(p);
        p->param.n = 0;
        p->flow = ECH_FLOW_BODY;
    } else {
        begin_value(p);
    }
}

static void text(ech_parser *const p, const char c)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        if (!ech_json_is_space(c) || !ech_flow_raw(p, c)) ech_flow_fail(p, c);
        return;
    case ECH_FLOW_BODY:
        if (!ech_json_is_space(c)) ech_flow_fail(p, c);
        return;
    case ECH_FLOW_VALUE:
        value_text(p, c);
        return;
    case ECH_FLOW_AFTER:
        ech_flow_after(p, c);
        return;
    default:
        name_text(p, c);
        return;
    }
}

static void begin_function(ech_parser *const p, const ech_marker m)
{
    if (p->flow == ECH_FLOW_OPEN) {
        for (const char *c = ech_marker_text(m); *c != 0; c++) {
            (void)ech_flow_raw(p, *c);
        }
    } else {
        ech_flow_open(p, ech_marker_text(m));
    }
    ech_buf_clear(&p->name);
    p->flow = ECH_FLOW_NAME;
}

/*
 * A closing marker that comes too early closes what is open; one that was forgotten is made up for.
 */
static void marker(ech_parser *const p, const ech_marker m)
{
    switch (m) {
    case ECH_MARK_CALL:
        if (p->flow == ECH_FLOW_OPEN) {
            ech_flow_fail_marker(p, m); /* the one before was none */
        } else {
            ech_flow_open(p, ech_marker_text(m));
        }
        return;
    case ECH_MARK_FUNCTION:
        begin_function(p, m);
        return;
    case ECH_MARK_PARAM:
        ech_buf_clear(&p->param.key);
        p->flow = ECH_FLOW_KEY;
        return;
    case ECH_MARK_PARAM_END:
        end_value(p);
        return;
    default:
        break;
    }
    if (p->flow == ECH_FLOW_BODY) { /* </function>, or </tool_call> where that was forgotten */
        ech_flow_args(p, p->param.n == 0 ? "{}" : "}", p->param.n == 0 ? 2 : 1);
        ech_flow_end(p, true);
        if (m == ECH_MARK_FUNCTION_END) return;
    }
    ech_buf_clear(&p->raw);
    p->flow = ECH_FLOW_CONTENT;
    p->skips_breaks = true;
}

const ech_tools_ops ech_tools_qwen3_coder = {
    .begin = ECH_MARK_BIT(CALL) | ECH_MARK_BIT(FUNCTION),
    .live = live,
    .text = text,
    .marker = marker,
};
