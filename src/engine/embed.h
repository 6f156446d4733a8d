/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From hidden states to embeddings: which positions count, how they become one vector.
 *
 *     mean   the sum over all positions in their order, in double, by their count
 *     cls    the first position's
 *     last   the last position's
 *
 * The order of the sum is that of the positions, whatever the chunks, so an embedding's bits don't
 * depend on what it was computed with. Runs on the engine's thread.
 */
#ifndef ECH_ENGINE_EMBED_H
#define ECH_ENGINE_EMBED_H

#include "echelon/engine.h"

/* What is pooled of one prompt so far. */
typedef struct ech_embed {
    double *sum;       // [width], owned; NULL before it has begun and after it has ended
    uint32_t n_pooled; // positions in it; a position that is computed again is not added again
} ech_embed;

/* Whether the hidden state at pos counts. */
static inline bool ech_embed_wants(const ech_pooling pooling, const uint32_t pos,
                                   const uint32_t n_prompt)
{
    if (pooling == ECH_POOLING_MEAN) return true;
    return pooling == ECH_POOLING_CLS ? pos == 0 : pos + 1 == n_prompt;
}

ech_status ech_embed_begin(ech_embed *m, uint32_t width);
void ech_embed_end(ech_embed *m);
/* Adds the hidden state that is number idx, in order of position, of those that count. */
void ech_embed_add(ech_embed *m, uint32_t idx, const float *hidden, uint32_t width);
/*
 * The mean, its first `dimensions` numbers (0: all), scaled to length 1, over the sum: *ret is
 * [*ret_n], valid until ech_embed_end(). ENUMERIC: it is no vector of numbers.
 */
ech_status ech_embed_finish(ech_embed *m, uint32_t width, uint32_t dimensions, const float **ret,
                            size_t *ret_n, ech_error *err);

#endif
