/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deterministic automata over code points: what a string value or a key may be. They exist for
 * what expressions can't say: intersection (pattern and maxLength, two patterns), difference (keys
 * that are not declared) and emptiness. Every operation is bounded by ECH_DFA_MAX_STATES and fails
 * with ELIMIT beyond it. Pure; a DFA is immutable once made.
 */
#ifndef ECH_TEXT_CONSTRAINT_DFA_H
#define ECH_TEXT_CONSTRAINT_DFA_H

#include "src/text/constraint_chars.h"

#define ECH_DFA_MAX_STATES 60000u
#define ECH_DFA_DEAD       UINT32_MAX

/*
 * The code points are cut into segments, segment i = [seg_first[i], seg_first[i + 1]), and each
 * segment belongs to a class; all code points of a class behave alike.
 */
typedef struct ech_dfa {
    uint32_t n_states; /* state 0 is the start */
    uint32_t n_classes;
    uint32_t n_segs;
    uint32_t *seg_first; /* [n_segs], seg_first[0] == 0 */
    uint32_t *seg_class; /* [n_segs] */
    uint32_t *next;      /* [n_states][n_classes], ECH_DFA_DEAD: none */
    uint8_t *accepting;  /* [n_states] */
} ech_dfa;

void ech_dfa_free(ech_dfa **dfa);
/* Every text. */
ech_status ech_dfa_any(ech_dfa **ret_dfa, ech_error *err);
/* Exactly these texts, which are UTF-8. */
ech_status ech_dfa_words(const ech_str *words, size_t n, ech_dfa **ret_dfa, ech_error *err);
/* Texts of a that are in b too (minus false), or that are not in b (minus true). */
ech_status ech_dfa_combine(const ech_dfa *a, const ech_dfa *b, bool minus, ech_dfa **ret_dfa,
                           ech_error *err);
/* Texts of a with min to max code points; max may be ECH_CX_INF. */
ech_status ech_dfa_length(const ech_dfa *a, uint32_t min, uint32_t max, ech_dfa **ret_dfa,
                          ech_error *err);
/* Joins states that behave alike. Gives up silently on large or slow cases: it is optional. */
ech_status ech_dfa_minimize(const ech_dfa *a, ech_dfa **ret_dfa, ech_error *err);
bool ech_dfa_is_empty(const ech_dfa *a);
bool ech_dfa_accepts(const ech_dfa *a, ech_str utf8);
ech_cx ech_dfa_expr(ech_cx_graph *g, const ech_dfa *a, ech_spelling spelling);

/*
 * For makers of automata: segments from a list of sets, such that every set is a union of classes.
 * Fills seg_first, seg_class, n_segs and n_classes of a zeroed dfa.
 */
ech_status ech_dfa_partition(ech_dfa *dfa, const ech_cset *sets, size_t n_sets, ech_error *err);
/* One more state; ECH_DFA_DEAD and *ret_rc when there is no room. cap starts at 0. */
uint32_t ech_dfa_add_state(ech_dfa *dfa, uint32_t *cap, bool accepting, ech_status *ret_rc);
uint32_t ech_dfa_class_of(const ech_dfa *dfa, uint32_t cp);
ech_status ech_dfa_fail(ech_status rc, ech_error *err);

#endif
