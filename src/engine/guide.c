/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints and hooks of answers. See guide.h. Runs on the engine's thread. */
#include "src/engine/guide.h"

#include "src/base/error.h"

ech_status ech_guide_open(ech_guide *g, ech_constraint *constraint, int64_t thinking_budget,
                          const ech_constraint_hook *hook, ech_error *err)
{
    *g = (ech_guide){ 0 };
    if (constraint != NULL)
        return ech_constraint_state_create(constraint, thinking_budget, &g->state, err);
    if (hook == NULL) return ECH_OK;
    ECH_TRY(hook->open(hook->self, &g->hook_state, err));
    g->hook = hook;
    return ECH_OK;
}

void ech_guide_close(ech_guide *g)
{
    ech_constraint_state_destroy(&g->state);
    if (g->hook != NULL) g->hook->close(g->hook_state);
    *g = (ech_guide){ 0 };
}

bool ech_guide_is_open(const ech_guide *g)
{
    return g->state != NULL || g->hook != NULL;
}

ech_status ech_guide_mask(ech_guide *g, uint32_t *words, size_t n_words, ech_error *err)
{
    if (g->state != NULL) return ech_constraint_state_mask(g->state, words, n_words, err);
    return g->hook->mask(g->hook_state, words, n_words, err);
}

ech_status ech_guide_accept(ech_guide *g, int32_t id, bool *ret_ended, ech_error *err)
{
    *ret_ended = false;
    if (g->hook != NULL) return g->hook->accept(g->hook_state, id, ret_ended, err);
    if (g->state == NULL) return ECH_OK;
    ECH_TRY(ech_constraint_state_accept(g->state, id, err));
    *ret_ended = ech_constraint_state_is_complete(g->state);
    return ECH_OK;
}
