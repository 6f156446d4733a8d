/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Markers: their texts, their ids, and the stage that finds them in text. It holds the longest
 * suffix that begins a marker which would mean something where the text is now (live), and asks
 * anew after every byte that it lets go, because that byte may have changed what is live.
 */
#include "src/text/parser_state.h"

static const char *const TEXTS[ECH_MARK_COUNT] = {
#define X(name, text) [ECH_MARK_##name] = text,
    ECH_MARKER_MAP(X)
#undef X
};

const char *ech_marker_text(const ech_marker m)
{
    return TEXTS[m];
}

/*
 * A marker that is one token of the vocabulary counts only as that token: its letters, spelled out
 * by the model or copied from a user's text, are text. Others can only be found in the bytes.
 */
void ech_marker_find_ids(ech_parser *const p, const ech_parser_options *const o)
{
    for (uint32_t m = 0; m < ECH_MARK_COUNT; m++) {
        p->ids[m] =
            o->marker_id != NULL ? o->marker_id(o->marker_ctx, TEXTS[m], strlen(TEXTS[m])) : -1;
        if (p->ids[m] < 0) p->by_text |= (ech_marker_set)1 << m;
    }
}

ech_marker ech_marker_of(const ech_parser *const p, const int32_t id)
{
    uint32_t m = 0;
    while (m < ECH_MARK_COUNT && (id < 0 || p->ids[m] != id)) {
        m++;
    }
    return (ech_marker)m;
}

typedef enum match { NONE, BEGINNING, WHOLE } match;

/* How text [len] stands to the markers of a set; *ret_marker is written for WHOLE. */
static match compare(const ech_marker_set set, const char *const text, const size_t len,
                     ech_marker *const ret_marker)
{
    match best = NONE;
    for (ech_marker_set rest = set; rest != 0; rest &= rest - 1) {
        const int m = __builtin_ctz(rest);
        if (strncmp(TEXTS[m], text, len) != 0) continue;
        if (TEXTS[m][len] == 0) {
            *ret_marker = (ech_marker)m;
            return WHOLE;
        }
        best = BEGINNING;
    }
    return best;
}

/* Lets go of what can't be part of a marker any more. */
static void settle(ech_parser *const p)
{
    while (p->mark.len != 0) {
        ech_marker m;
        const match how = compare(ech_flow_live(p) & p->by_text, p->mark.data, p->mark.len, &m);
        if (how == BEGINNING) return;
        if (how == WHOLE) {
            ech_buf_clear(&p->mark);
            ech_flow_marker(p, m);
            return;
        }
        const char c = p->mark.data[0];
        memmove(p->mark.data, p->mark.data + 1, --p->mark.len);
        ech_flow_text(p, c);
    }
}

void ech_marker_push(ech_parser *const p, const char c)
{
    p->pushed++;
    if (p->mark.len == 0 && c != '<' && c != '[') { /* no marker begins otherwise */
        ech_flow_text(p, c);
        return;
    }
    ech_flow_keep(p, &p->mark, &c, 1);
    settle(p);
}

/* At the end, and before a token of its own: a marker's beginning that was never finished. */
void ech_marker_flush(ech_parser *const p)
{
    while (p->mark.len != 0) {
        const char c = p->mark.data[0];
        memmove(p->mark.data, p->mark.data + 1, --p->mark.len);
        ech_flow_text(p, c);
        settle(p);
    }
}

/* Where the marker means nothing its text is given: a token that was generated is never lost. */
void ech_marker_push_id(ech_parser *const p, const ech_marker m)
{
    ech_marker_flush(p);
    const char *text = TEXTS[m];
    p->pushed += strlen(text);
    if ((ech_flow_live(p) >> m & 1) != 0) {
        ech_flow_marker(p, m);
        return;
    }
    for (; *text != 0; text++) {
        ech_flow_text(p, *text);
    }
}
