/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings: an Aho-Corasick automaton that is fed a byte at a time. Its state is the longest
 * suffix of what came that begins some stop string: exactly what must be held back.
 *
 *     node = { byte, first child, next sibling, suffix link, depth, stop that ends here }
 *
 * Owned by one parser. Left out: what happens to the text (parser.c).
 */
#ifndef ECH_TEXT_STOP_H
#define ECH_TEXT_STOP_H

#include "echelon/status.h"

typedef struct ech_stop_node {
    uint32_t child;   /* 0: none; the root is nobody's child */
    uint32_t sibling; /* 0: none */
    uint32_t fail;    /* the node of the longest proper suffix */
    uint32_t depth;   /* bytes from the root: what is held in this state */
    int32_t stop;     /* the longest stop string that ends here; -1: none */
    uint32_t stop_len;
    uint8_t byte;
} ech_stop_node;

typedef struct ech_stop {
    ech_stop_node *nodes; /* [n_nodes]; NULL: no stop strings */
    uint32_t n_nodes;
    uint32_t at;    /* the state */
    bool has_break; /* a stop string holds a line break */
} ech_stop;

/* Checks as parser.h says. n = 0 is fine. Ownership: ech_stop_fini() after success. */
ech_status ech_stop_init(ech_stop *s, const char *const *stops, size_t n, ech_error *err);
void ech_stop_fini(ech_stop *s);
/*
 * One byte. Returns the index of the stop string that it completes, its length in *ret_len, or -1.
 * Afterwards ech_stop_held() says how many of the last bytes must be held.
 */
int32_t ech_stop_push(ech_stop *s, uint8_t byte, size_t *ret_len);
size_t ech_stop_held(const ech_stop *s);
/* Forgets what came: the text is interrupted. */
void ech_stop_reset(ech_stop *s);

#endif
