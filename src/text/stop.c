/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The automaton of the stop strings: stop.h says what it is. Built once per request; a byte costs a
 * walk down the suffix links, amortised constant.
 *
 * Invariant: nodes[at].depth is the length of the longest end of the text that begins some stop
 * string, which is just what may not be given away yet. Node 0 is the root; 0 also means "no
 * child". Memory is one node per byte of the strings, bounded by ECH_PARSER_MAX_STOPS and
 * ECH_PARSER_MAX_STOP_BYTES.
 */
#include "src/text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "echelon/parser.h"
#include "src/base/error.h"
#include "src/base/utf8.h"

/* Children are a list: stop strings are few, and a table of 256 per node would be wasted. */
static uint32_t find_child(const ech_stop *const s, const uint32_t node, const uint8_t byte)
{
    uint32_t c = s->nodes[node].child;
    while (c != 0 && s->nodes[c].byte != byte) {
        c = s->nodes[c].sibling;
    }
    return c;
}

static void insert(ech_stop *const s, const char *const text, const size_t len, const int32_t stop)
{
    uint32_t at = 0;
    for (size_t i = 0; i < len; i++) {
        const uint8_t byte = (uint8_t)text[i];
        uint32_t c = find_child(s, at, byte);
        if (c == 0) {
            c = s->n_nodes++;
            s->nodes[c] = (ech_stop_node){ .byte = byte,
                                           .sibling = s->nodes[at].child,
                                           .depth = s->nodes[at].depth + 1,
                                           .stop = -1 };
            s->nodes[at].child = c;
        }
        at = c;
    }
    if (s->nodes[at].stop >= 0) return; /* the same string twice: the first counts */
    s->nodes[at].stop = stop;
    s->nodes[at].stop_len = (uint32_t)len;
}

/*
 * The state after `byte` in the state `at`, along the suffix links. Returns 0, the root, when
 * nothing fits; amortised constant, since each step down was paid by a byte.
 */
static uint32_t next_state(const ech_stop *const s, uint32_t at, const uint8_t byte)
{
    uint32_t c = find_child(s, at, byte);
    while (c == 0 && at != 0) {
        at = s->nodes[at].fail;
        c = find_child(s, at, byte);
    }
    return c;
}

/*
 * Suffix links level by level; a node that ends no string takes what its suffix ends. Breadth
 * first: the suffix of a node is shorter, so its link is ready before. If several strings end at
 * one byte, the node's own, which is the longest, counts.
 */
static void link_suffixes(ech_stop *const s, uint32_t *const queue)
{
    uint32_t head = 0;
    uint32_t tail = 0;
    queue[tail++] = 0;
    while (head < tail) {
        const uint32_t node = queue[head++];
        for (uint32_t c = s->nodes[node].child; c != 0; c = s->nodes[c].sibling) {
            ech_stop_node *const n = &s->nodes[c];
            n->fail = node == 0 ? 0 : next_state(s, s->nodes[node].fail, n->byte);
            if (n->stop < 0) {
                n->stop = s->nodes[n->fail].stop;
                n->stop_len = s->nodes[n->fail].stop_len;
            }
            queue[tail++] = c;
        }
    }
}

static ech_status check(const char *const *const stops, const size_t n, size_t *const ret_bytes,
                        ech_error *const err)
{
    size_t bytes = 0;
    if (n > ECH_PARSER_MAX_STOPS) {
        return ech_fail_argument(err, ECH_ELIMIT, "stops", "stop: %zu strings, at most %d", n,
                                 ECH_PARSER_MAX_STOPS);
    }
    for (size_t i = 0; i < n; i++) {
        const size_t len = stops[i] != NULL ? strlen(stops[i]) : 0;
        size_t bad = 0;
        if (len == 0)
            return ech_fail_argument(err, ECH_EINVAL, "stops", "stop: string %zu is empty", i);
        if (len > ECH_PARSER_MAX_STOP_BYTES) {
            return ech_fail_argument(err, ECH_ELIMIT, "stops",
                                     "stop: string %zu has %zu bytes, at most %d", i, len,
                                     ECH_PARSER_MAX_STOP_BYTES);
        }
        if (!ech_utf8_valid(stops[i], len, &bad)) {
            return ech_fail_argument(err, ECH_EINVAL, "stops",
                                     "stop: string %zu is not UTF-8 at byte %zu", i, bad);
        }
        bytes += len;
    }
    *ret_bytes = bytes;
    return ECH_OK;
}

ech_status ech_stop_init(ech_stop *const s, const char *const *const stops, const size_t n,
                         ech_error *const err)
{
    size_t bytes = 0;
    ECH_TRY(check(stops, n, &bytes, err));
    *s = (ech_stop){ 0 };
    if (n == 0) return ECH_OK;
    s->nodes = calloc(bytes + 1, sizeof *s->nodes);
    uint32_t *const queue = calloc(bytes + 1, sizeof *queue);
    if (s->nodes == NULL || queue == NULL) {
        free(queue);
        ech_stop_fini(s);
        return ech_fail(err, ECH_ENOMEM, "stop: out of memory");
    }
    s->nodes[0].stop = -1;
    s->n_nodes = 1;
    for (size_t i = 0; i < n; i++) {
        insert(s, stops[i], strlen(stops[i]), (int32_t)i);
        s->has_break = s->has_break || strchr(stops[i], '\n') != NULL;
    }
    link_suffixes(s, queue);
    free(queue);
    return ECH_OK;
}

void ech_stop_fini(ech_stop *const s)
{
    free(s->nodes);
    *s = (ech_stop){ 0 };
}

/* -1: no string ends here. ret_len is meaningful otherwise. */
int32_t ech_stop_push(ech_stop *const s, const uint8_t byte, size_t *const ret_len)
{
    if (s->nodes == NULL) return -1;
    s->at = next_state(s, s->at, byte);
    *ret_len = s->nodes[s->at].stop_len;
    return s->nodes[s->at].stop;
}

size_t ech_stop_held(const ech_stop *const s)
{
    return s->nodes == NULL ? 0 : s->nodes[s->at].depth;
}

void ech_stop_reset(ech_stop *const s)
{
    s->at = 0;
}
