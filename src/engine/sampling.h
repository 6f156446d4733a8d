/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling options: checking them, copying them, and turning them into the sampler's rows and
 * lists (src/chip/sampler.h).
 */
#ifndef ECH_ENGINE_SAMPLING_H
#define ECH_ENGINE_SAMPLING_H

#include "echelon/engine.h"
#include "src/base/arena.h"
#include "src/chip/sampler.h"
#include "src/engine/breakers.h"

/* EINVAL names the field, what it is and what it may be. */
ech_status ech_sampling_check(const ech_sampling *s, uint32_t vocab, ech_error *err);
/* Copies the arrays into the arena. ENOMEM. */
ech_status ech_sampling_copy(ech_sampling *ret, const ech_sampling *s, ech_arena *arena);

/* Ints that the lists of one answer take, DRY's breakers not counted. */
uint64_t ech_sampling_list_ints(const ech_sampling *s, size_t n_stop_ids);
/* The option whose list takes most of them. */
const char *ech_sampling_longest_list(const ech_sampling *s, size_t n_stop_ids);
/*
 * Fills the row's fields that don't change from step to step, and writes its lists to ints, whose
 * place in the lists tensor is offset. stop_ids are what min_tokens bans.
 */
void ech_sampling_fill(ech_sampler_row *row, const ech_sampling *s, const ech_breakers *breakers,
                       const int32_t *stop_ids, size_t n_stop_ids, int32_t *ints, uint32_t offset);
/* Whether it may forbid an id that a mask allows, or keeps a state that every draw changes. */
bool ech_sampling_bends_masks(const ech_sampling *s);
/* Whether the row needs the ids that came before. */
bool ech_sampling_needs_history(const ech_sampling *s);

#endif
