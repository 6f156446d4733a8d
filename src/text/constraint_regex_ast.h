/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of a regular expression, between constraint_regex.c, which parses and resolves it, and
 * constraint_regex_build.c, which turns it into automata and expressions. Nodes are numbers into
 * one array; lists of kids are slices of another.
 */
#ifndef ECH_TEXT_CONSTRAINT_REGEX_AST_H
#define ECH_TEXT_CONSTRAINT_REGEX_AST_H

#include "src/text/constraint_regex.h"

typedef enum ech_re_kind {
    ECH_RE_EMPTY,
    ECH_RE_FAIL,
    ECH_RE_SET,    /* a: set */
    ECH_RE_CAT,    /* a: first kid, b: kids */
    ECH_RE_ALT,    /* a: first kid, b: kids */
    ECH_RE_REPEAT, /* a: node, b: min, c: max */
    ECH_RE_BOL,
    ECH_RE_EOL,
} ech_re_kind;

typedef struct ech_re_node {
    ech_re_kind kind;
    uint32_t a, b, c;
} ech_re_node;

struct ech_regex {
    ech_re_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *kids;
    uint32_t n_kids, cap_kids;
    ech_cset *sets;
    uint32_t n_sets, cap_sets; /* no two are equal */
    ech_index set_index;
    ech_regex_reading reading;
    uint32_t root;        /* as parsed, anchors in place */
    uint32_t root_search; /* without anchors: what contains a match */
    uint32_t root_full;   /* without anchors: what is a match */
};

/* A node; UINT32_MAX when memory is out. */
uint32_t ech_re_add(ech_regex *re, ech_re_kind kind, uint32_t a, uint32_t b, uint32_t c);
/* A CAT or ALT of n nodes; the node itself when n is 1, EMPTY or FAIL when it is 0. */
uint32_t ech_re_add_list(ech_regex *re, ech_re_kind kind, const uint32_t *nodes, uint32_t n);
/* A tidy set, whose ownership is taken. */
uint32_t ech_re_add_set(ech_regex *re, ech_cset *set);
/* Fills root_search and root_full. */
ech_status ech_re_resolve(ech_regex *re, ech_error *err);

#endif
