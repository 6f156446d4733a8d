/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hermes, Qwen2.5, Qwen3:
 *
 *     <tool_call>
 *     {"name": "f", "arguments": {…}}
 *     </tool_call>
 *
 * any number of times, line breaks between them or not. The end of the JSON ends the call; the
 * closing marker is taken with it. In reasoning the marker implies its end.
 */
#include "src/text/parser_state.h"

static ech_marker_set live(const ech_parser *const p)
{
    if (p->flow == ECH_FLOW_JSON && ech_call_in_string(p)) return 0;
    return ECH_MARK_BIT(CALL) | ECH_MARK_BIT(CALL_END);
}

static void text(ech_parser *const p, const char c)
{
    if (p->flow == ECH_FLOW_AFTER) {
        ech_flow_after(p, c);
    } else {
        ech_call_json_text(p, c);
    }
}

static void marker(ech_parser *const p, const ech_marker m)
{
    if (p->flow == ECH_FLOW_JSON) {
        ech_flow_fail_marker(p, m); /* not where JSON has a marker */
    } else if (m == ECH_MARK_CALL) {
        ech_flow_open(p, ech_marker_text(m));
        ech_call_begin_json(p);
    } else { /* </tool_call> behind a call */
        ech_buf_clear(&p->raw);
        p->flow = ECH_FLOW_CONTENT;
        p->skips_breaks = true;
    }
}

const ech_tools_ops ech_tools_hermes = {
    .begin = ECH_MARK_BIT(CALL),
    .live = live,
    .text = text,
    .marker = marker,
};
