/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions: the common form that schemas, regular expressions, grammars and markers are
 * translated to before they become a program (constraint_program.h).
 *
 * An expression is a node of a graph without cycles whose leaves are sets of bytes; recursion
 * goes through rules. Nodes are shared: two equal expressions are one node, so a character class
 * that a hundred properties use exists once.
 *
 *     FAIL            matches nothing
 *     EMPTY           matches the empty text
 *     SET s           one byte of a set
 *     SEQ a b c …     one after the other
 *     ALT a b c …     one of them
 *     REPEAT a m n    m to n times a; n may be ECH_CX_INF. Never unrolled
 *     REF r           rule r
 *     AUTO d          a finite automaton whose edges are expressions
 *
 * Errors stick: once memory or the limit is exhausted, `rc` is set, constructors return FAIL, and
 * the caller looks at rc at the end. One owner at a time; everything is freed with the graph.
 */
#ifndef ECH_TEXT_CONSTRAINT_EXPR_H
#define ECH_TEXT_CONSTRAINT_EXPR_H

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/text/constraint_vec.h"

typedef uint32_t ech_cx; /* a node */

#define ECH_CX_FAIL  0u
#define ECH_CX_EMPTY 1u
#define ECH_CX_INF   UINT32_MAX

typedef enum ech_cx_kind {
    ECH_CX_KIND_FAIL,
    ECH_CX_KIND_EMPTY,
    ECH_CX_KIND_SET,
    ECH_CX_KIND_SEQ,
    ECH_CX_KIND_ALT,
    ECH_CX_KIND_REPEAT,
    ECH_CX_KIND_REF,
    ECH_CX_KIND_AUTO,
} ech_cx_kind;

typedef struct ech_cx_node {
    uint32_t kind;
    uint32_t a; /* SET: set; SEQ, ALT: first in kids; REPEAT: node; REF: rule; AUTO: automaton */
    uint32_t b; /* SEQ, ALT: how many kids; REPEAT: min */
    uint32_t c; /* REPEAT: max */
} ech_cx_node;

typedef struct ech_byteset {
    uint64_t bits[4];
} ech_byteset;

/*
 * How far ahead masks look, in bytes: ordinary tokens, and the longest. What can't be told apart
 * within a reach has one mask (constraint_mask.c).
 */
#define ECH_CX_REACHES 2

typedef struct ech_cx_edge {
    uint32_t from;
    uint32_t to;
    ech_cx expr; /* must consume at least one byte */
} ech_cx_edge;

/* States 0..n_states, start 0. In the graph every state reaches an accepting one. */
typedef struct ech_cx_auto {
    uint32_t n_states;
    uint32_t n_edges;
    ech_cx_edge *edges; /* sorted by from */
    uint8_t *accepting; /* [n_states] */
    /*
     * For each reach of the graph, the state that stands in for a state where no more than that
     * many bytes follow: [n_states], NULL: none do. Found by the graph.
     */
    uint32_t *rough[ECH_CX_REACHES];
} ech_cx_auto;

/* What text of a rule is to the caller, ech_constraint_phase. */
typedef enum ech_cx_role { ECH_ROLE_NONE, ECH_ROLE_REASONING, ECH_ROLE_CALL } ech_cx_role;

typedef struct ech_cx_rule {
    ech_cx expr;
    bool is_defined;
    bool is_nest;  /* counts towards the depth limit */
    uint8_t role;  /* ech_cx_role */
    uint32_t mark; /* the source's own: where it was first used */
    char *name;    /* for messages, or NULL */
} ech_cx_rule;

typedef struct ech_cx_graph {
    ech_cx_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *kids;
    uint32_t n_kids, cap_kids;
    ech_byteset *sets;
    uint32_t n_sets, cap_sets;
    ech_cx_rule *rules;
    uint32_t n_rules, cap_rules;
    ech_cx_auto *autos;
    uint32_t n_autos, cap_autos;
    uint32_t *shared; /* [cap_shared] the rule of a node plus one, see ech_cx_shared */
    uint32_t cap_shared;
    ech_index node_index; /* of nodes but AUTO */
    ech_index set_index;
    uint32_t max_nodes;
    uint32_t reach[ECH_CX_REACHES]; /* 0: unknown, automata get no stand-ins */
    ech_status rc;                  /* ENOMEM or ELIMIT once something failed */
} ech_cx_graph;

void ech_cx_graph_init(ech_cx_graph *g, uint32_t max_nodes);
void ech_cx_graph_fini(ech_cx_graph *g);
/* rc as an error with a text; ECH_OK when nothing failed. */
ech_status ech_cx_graph_check(const ech_cx_graph *g, ech_error *err);

static inline void ech_byteset_add(ech_byteset *const s, const unsigned first, const unsigned last)
{
    for (unsigned b = first; b <= last; b++)
        s->bits[b >> 6] |= UINT64_C(1) << (b & 63);
}

static inline bool ech_byteset_has(const ech_byteset *const s, const unsigned b)
{
    return (s->bits[b >> 6] >> (b & 63)) & 1;
}

ech_cx ech_cx_set(ech_cx_graph *g, const ech_byteset *set); /* empty: FAIL */
ech_cx ech_cx_range(ech_cx_graph *g, uint8_t first, uint8_t last);
/* Exactly these bytes. */
ech_cx ech_cx_lit(ech_cx_graph *g, const char *bytes, size_t len);
/* Nested sequences and EMPTY are flattened; a FAIL inside makes it FAIL. */
ech_cx ech_cx_seq(ech_cx_graph *g, const ech_cx *kids, size_t n);
ech_cx ech_cx_seq2(ech_cx_graph *g, ech_cx a, ech_cx b);
ech_cx ech_cx_seq3(ech_cx_graph *g, ech_cx a, ech_cx b, ech_cx c);
/* Nested alternatives are flattened, FAIL and repetitions dropped, sets joined. */
ech_cx ech_cx_alt(ech_cx_graph *g, const ech_cx *kids, size_t n);
ech_cx ech_cx_alt2(ech_cx_graph *g, ech_cx a, ech_cx b);
ech_cx ech_cx_repeat(ech_cx_graph *g, ech_cx a, uint32_t min, uint32_t max);
ech_cx ech_cx_opt(ech_cx_graph *g, ech_cx a);
/* What is left of a when the empty text is taken from it; a is EMPTY, an ech_cx_opt, or neither. */
ech_cx ech_cx_nonempty(const ech_cx_graph *g, ech_cx a);
/* One of the texts, as a tree of their common beginnings. Reorders the array. */
ech_cx ech_cx_words(ech_cx_graph *g, ech_str *words, size_t n);

/* A rule without a body yet; ECH_CX_INF when memory is out. */
uint32_t ech_cx_rule_new(ech_cx_graph *g, const char *name, bool is_nest);
void ech_cx_rule_define(ech_cx_graph *g, uint32_t rule, ech_cx expr);
ech_cx ech_cx_ref(ech_cx_graph *g, uint32_t rule);
/* The rule with this body, by reference; a is returned as it is when it is small. */
ech_cx ech_cx_shared(ech_cx_graph *g, ech_cx a);
/*
 * States that don't reach an accepting one are taken out; FAIL when none is left. Takes ownership
 * of edges and accepting in every case.
 */
ech_cx ech_cx_auto_new(ech_cx_graph *g, ech_cx_auto automaton);
/* Fills rough of a trimmed automaton; false without memory. constraint_rough.c */
bool ech_cx_auto_find_rough(ech_cx_auto *automaton, const uint32_t reach[ECH_CX_REACHES]);

/* What ech_cx_analyse finds out about each node. */
typedef struct ech_cx_facts {
    uint8_t *productive; /* [n_nodes] matches some text */
    uint8_t *nullable;   /* [n_nodes] matches the empty text */
} ech_cx_facts;

/*
 * Computes the facts of all nodes, in time linear in the graph. Fails with EINVAL when a rule that
 * root reaches begins with itself (left recursion), naming it in the text and in *ret_rule.
 */
ech_status ech_cx_analyse(const ech_cx_graph *g, ech_cx root, ech_cx_facts *ret_facts,
                          uint32_t *ret_rule, ech_error *err);
void ech_cx_facts_fini(ech_cx_facts *facts);

#endif
