/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ids of a row of logits in descending order, ties to the lower id, sorted only as far as
 * somebody looks.
 *
 *     one pass over the row: the maximum of every block of 64, NaN found on the way
 *     first look: the block maxima are sorted; the m-th largest, t, is a bound that at least m ids
 *       reach; the ids >= t are gathered from the blocks that have any, and sorted
 *     later looks: the same for m four times as large, ids below the bound before
 *
 * A top-k of 20 out of 151,936 ids costs little more than the one pass. -inf is never in the order.
 * Owned by the core that runs the row; memory is the caller's scratch.
 */
#ifndef ECH_CHIP_SAMPLER_ORDER_H
#define ECH_CHIP_SAMPLER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ech_order {
    const float *logits; // [vocab]
    uint32_t vocab;
    uint32_t n_blocks;
    float *block_max; // [n_blocks]
    uint64_t *steps;  // [n_blocks]: block maxima as sort keys, ascending keys: descending maxima
    uint64_t *keys;   // [vocab]: sort key in the upper half, id in the lower; [0, n) in order
    uint64_t *tmp;    // [vocab]: the sort's other buffer
    uint32_t n;       /* ids in order so far */
    uint32_t n_steps; /* block maxima used for the last bound */
    float bound;      /* every id with a logit >= bound is in order */
    float max;        /* largest logit; -inf: there is none */
    bool has_nan;
    bool steps_sorted;
    bool complete; /* no id is left */
} ech_order;

/* Points o at logits and makes the one pass. The four buffers must have been set. */
void ech_order_start(ech_order *o, const float *logits, uint32_t vocab);
/* Whether there is an i-th id (from 0); sorts further where that is not known yet. */
bool ech_order_reach(ech_order *o, uint32_t i);
/* The first id with the largest logit, without sorting; 0 where there is none. */
uint32_t ech_order_first(const ech_order *o);

/* The i-th id, which has been reached. */
static inline uint32_t ech_order_id(const ech_order *const o, const uint32_t i)
{
    return (uint32_t)o->keys[i];
}

#endif
