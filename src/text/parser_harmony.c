/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt-oss's harmony: an answer is messages, each a header and a body.
 *
 *     <|channel|>analysis<|message|>thinking<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{…}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>answer<|return|>
 *
 * The prompt ends with <|start|>assistant, so an answer begins inside a header. Channel analysis is
 * reasoning; a message to functions.NAME, whatever its channel, is a call; everything else is
 * content. What isn't a header at all is content at once.
 */
#include "src/text/parser_state.h"

#define MAX_HEADER 512

static ech_marker_set live(const ech_parser *const p)
{
    const ech_marker_set ends = ECH_MARK_BIT(H_END) | ECH_MARK_BIT(H_CALL) | ECH_MARK_BIT(H_RETURN);
    switch (p->flow) {
    case ECH_FLOW_HEAD:
        return ECH_MARK_BIT(H_CHANNEL) | ECH_MARK_BIT(H_CONSTRAIN) | ECH_MARK_BIT(H_MESSAGE);
    case ECH_FLOW_AFTER:
        return ends | ECH_MARK_BIT(H_START);
    default: /* ARGS */
        return ech_call_in_string(p) ? 0 : ends;
    }
}

/* The word behind `key` in a header, up to white space or a marker; empty where there is none. */
static ech_str word_behind(const ech_buf *const head, const char *const key)
{
    const char *const at = head->data != NULL ? strstr(head->data, key) : NULL;
    if (at == NULL) return (ech_str){ "", 0 };
    const char *const word = at + strlen(key);
    return (ech_str){ word, strcspn(word, " \t\r\n<") };
}

/* The header is complete: what its body is. */
static void begin_body(ech_parser *const p)
{
    static const char functions[] = "functions.";
    const size_t prefix = sizeof functions - 1;
    const ech_str channel = word_behind(&p->raw, "<|channel|>");
    const ech_str to = word_behind(&p->raw, "to=");
    if (p->tools == ECH_TOOLS_HARMONY && to.len > prefix &&
        memcmp(to.ptr, functions, prefix) == 0) {
        ech_buf_clear(&p->name);
        ech_flow_keep(p, &p->name, to.ptr + prefix, to.len - prefix);
        ech_buf_clear(&p->call_id);
        ech_buf_clear(&p->raw);
        ech_call_begin_args(p);
        return;
    }
    const bool thinks =
        p->reasoning == ECH_REASONING_HARMONY && ech_str_eq(channel, ECH_STR_LIT("analysis"));
    ech_buf_clear(&p->raw);
    p->flow = thinks ? ECH_FLOW_REASONING : ECH_FLOW_CONTENT;
}

/*
 * Before its first marker a header may say a role or whom it is for: "assistant", " to=…". Anything
 * else is an answer without a header.
 */
static bool may_be_header(const ech_parser *const p, const char c)
{
    if (p->raw.len >= MAX_HEADER) return false;
    if (p->raw.len != 0 && memchr(p->raw.data, '<', p->raw.len) != NULL) return c != '\n';
    static const char to[] = " to=";
    const size_t n = p->raw.len;
    return n < sizeof to - 1 ? c == to[n] : c != '\n' && c != '<';
}

static void text(ech_parser *const p, const char c)
{
    switch (p->flow) {
    case ECH_FLOW_HEAD:
        if (!may_be_header(p, c) || !ech_flow_raw(p, c)) {
            ech_flow_fail(p, c);
        }
        return;
    case ECH_FLOW_ARGS:
        ech_call_args_text(p, c);
        return;
    default:
        ech_flow_after(p, c);
        return;
    }
}

static void keep_marker(ech_parser *const p, const ech_marker m)
{
    for (const char *c = ech_marker_text(m); *c != 0; c++) {
        (void)ech_flow_raw(p, *c);
    }
}

static void marker(ech_parser *const p, const ech_marker m)
{
    if (m == ECH_MARK_H_MESSAGE) {
        begin_body(p);
    } else if (p->flow == ECH_FLOW_HEAD) {
        keep_marker(p, m);
    } else if (m == ECH_MARK_H_START) {
        ech_buf_clear(&p->raw);
        ech_flow_keep(p, &p->raw, "<|start|>", 9);
        p->flow = ECH_FLOW_HEAD;
    } else if (p->flow == ECH_FLOW_ARGS) {
        ech_flow_fail_marker(p, m); /* the arguments aren't over */
    } else {                        /* a message is over */
        ech_buf_clear(&p->raw);
        p->flow = ECH_FLOW_AFTER;
    }
}

const ech_tools_ops ech_tools_harmony = {
    .begin =
        ECH_MARK_BIT(H_START) | ECH_MARK_BIT(H_END) | ECH_MARK_BIT(H_CALL) | ECH_MARK_BIT(H_RETURN),
    .live = live,
    .text = text,
    .marker = marker,
};
