/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 3.1 to 3.3: the answer is the call, with or without <|python_tag|> before it, several
 * separated by ';':
 *
 *     {"name": "f", "parameters": {…}}; {"name": "g", "parameters": {…}}
 *
 * Without a marker a call is told from an answer that is JSON by its keys, and by its name where
 * the request's tools are known: the text of an object is held until then.
 */
#include "src/text/parser_state.h"

bool ech_llama3_begins(const ech_parser *const p, const char c)
{
    return c == '{' && p->flow == ECH_FLOW_CONTENT && !p->has_content;
}

static ech_marker_set live(const ech_parser *const p)
{
    return p->flow == ECH_FLOW_AFTER ? ECH_MARK_BIT(PYTHON) : 0;
}

static void text(ech_parser *const p, const char c)
{
    switch (p->flow) {
    case ECH_FLOW_OPEN:
        if (c == '{') {
            ech_call_begin_json(p);
            ech_call_json_text(p, c);
        } else if (!ech_json_is_space(c) || !ech_flow_raw(p, c)) {
            ech_flow_fail(p, c);
        }
        return;
    case ECH_FLOW_AFTER:
        if (c == '{') {
            ech_call_begin_json(p); /* the separator stays in raw */
            ech_call_json_text(p, c);
        } else if (c != ';' || !ech_flow_raw(p, c)) {
            ech_flow_after(p, c);
        }
        return;
    default:
        ech_call_json_text(p, c);
        return;
    }
}

static void marker(ech_parser *const p, const ech_marker m)
{
    ech_flow_open(p, ech_marker_text(m));
}

const ech_tools_ops ech_tools_llama3 = {
    .begin = ECH_MARK_BIT(PYTHON),
    .live = live,
    .text = text,
    .marker = marker,
};
