/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truncating samplers over a row's ids in descending order: each narrows a range [begin, end)
 * of that order, and each sees the probabilities as the one before it left them, renormalised.
 * While nothing has bounded the range, `end` is open and ids are sorted only as far as needed.
 * Internal to the sampler; runs on the core of the row, in its scratch.
 */
#ifndef ECH_CHIP_SAMPLER_FILTER_H
#define ECH_CHIP_SAMPLER_FILTER_H

#include "src/chip/sampler.h"
#include "src/chip/sampler_order.h"

typedef struct ech_sampler_view {
    ech_order *order;
    double *weights; // [vocab]: e^((logit - max) / temperature) of order[0 .. n_weights)
    uint32_t n_weights;
    double inv_t;
    uint32_t begin;
    uint32_t end; /* ECH_VIEW_OPEN: to the last id with a finite logit */
} ech_sampler_view;

#define ECH_VIEW_OPEN UINT32_MAX

/* The whole order at this temperature, which is > 0. The order holds at least one id. */
void ech_sampler_view_start(ech_sampler_view *v, ech_order *order, double *weights,
                            float temperature);
/* top-k, typical, top-p, min-p, XTC, each where the row asks for it. u: XTC's draw, in [0, 1). */
void ech_sampler_filter(ech_sampler_view *v, const ech_sampler_row *row, double u);
/*
 * Inverse CDF in descending probability: the first place whose running sum exceeds u of the mass.
 * Sums go in order, in double. Where rounding leaves none, the last place.
 */
uint32_t ech_sampler_draw(ech_sampler_view *v, double u);
/* Mirostat 1 or 2: truncates by mu, draws, and returns the place; *mu becomes the next one. */
uint32_t ech_sampler_mirostat(ech_sampler_view *v, const ech_sampler_row *row, double u, float *mu);

#endif
