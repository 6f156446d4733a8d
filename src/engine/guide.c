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
    ech_constraint_state_destroy(&g->ahead);
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

/* Memory that is short costs steps here, nothing else. */
static bool stand_ahead(ech_guide *g)
{
    if (g->ahead == NULL) return ech_constraint_state_clone(g->state, &g->ahead, NULL) == ECH_OK;
    ech_constraint_state_assign(g->ahead, g->state);
    return true;
}

uint32_t ech_guide_look_ahead(ech_guide *g, int32_t *ids, uint32_t max)
{
    if (g->state == NULL || max == 0) return 0;
    int32_t id = ech_constraint_state_forced(g->state);
    if (id < 0 || !stand_ahead(g)) return 0;
    uint32_t n = 0;
    while (n < max && id >= 0 && ech_constraint_state_accept(g->ahead, id, NULL) == ECH_OK) {
        ids[n++] = id;
        if (ech_constraint_state_is_complete(g->ahead)) break;
        id = ech_constraint_state_forced(g->ahead);
    }
    return n;
}

ech_status ech_guide_mask_ahead(ech_guide *g, uint32_t *words, size_t n_words, ech_error *err)
{
    return ech_constraint_state_mask(g->ahead, words, n_words, err);
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
