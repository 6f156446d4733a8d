/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What DRY's sequence breakers are in ids: every token whose text holds one, and for one that the
 * tokenizer spells with several tokens, these in a row.
 */
#ifndef ECH_ENGINE_BREAKERS_H
#define ECH_ENGINE_BREAKERS_H

#include "echelon/engine.h"
#include "echelon/tokenizer.h"
#include "src/base/arena.h"

enum { ECH_BREAKERS_MAX = 64 }; /* strings of a request */

typedef struct ech_breakers {
    const int32_t *ids; // [n_ids] tokens that hold one
    size_t n_ids;
    const int32_t *sequences; // [n_sequences] a length, then that many ids, …
    size_t n_sequences;
} ech_breakers;

/*
 * Those of a request, in the arena; empty where its DRY is off. Looks at every token, a few
 * milliseconds for 150 000: on the submitting thread. EINVAL names the field.
 */
ech_status ech_breakers_find(ech_breakers *ret, const ech_sampling *s, const ech_tokenizer *tok,
                             ech_arena *arena, ech_error *err);

#endif
