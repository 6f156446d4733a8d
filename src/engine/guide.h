/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What restricts the ids of one answer: a compiled constraint of src/text, a hook of the caller, or
 * nothing. The state of either, behind one face.
 */
#ifndef ECH_ENGINE_GUIDE_H
#define ECH_ENGINE_GUIDE_H

#include "echelon/constraint.h"
#include "echelon/engine.h"

typedef struct ech_guide {
    const ech_constraint_hook *hook;
    void *hook_state;            // of hook
    ech_constraint_state *state; // of a constraint
    ech_constraint_state *ahead; // behind the ids of the last look ahead; NULL: never looked
} ech_guide;

/* Both NULL: nothing is restricted. thinking_budget: tokens, -1 for none. */
ech_status ech_guide_open(ech_guide *g, ech_constraint *constraint, int64_t thinking_budget,
                          const ech_constraint_hook *hook, ech_error *err);
void ech_guide_close(ech_guide *g);
bool ech_guide_is_open(const ech_guide *g);
/* Writes all n_words. */
ech_status ech_guide_mask(ech_guide *g, uint32_t *words, size_t n_words, ech_error *err);
/*
 * The ids that must follow, each the only one that its mask has: at most max, into ids[]; how many.
 * Ids from a caller's hook are never known.
 */
uint32_t ech_guide_look_ahead(ech_guide *g, int32_t *ids, uint32_t max);
/* The mask behind the ids of the last look ahead. */
ech_status ech_guide_mask_ahead(ech_guide *g, uint32_t *words, size_t n_words, ech_error *err);
/* Takes an id. *ret_ended: nothing but an end of sequence may follow. */
ech_status ech_guide_accept(ech_guide *g, int32_t id, bool *ret_ended, ech_error *err);

#endif
