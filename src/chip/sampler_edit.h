/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a row's logits before temperature: masks, lists, penalties. Internal to the
 * sampler.
 */
#ifndef ECH_CHIP_SAMPLER_EDIT_H
#define ECH_CHIP_SAMPLER_EDIT_H

#include <stdbool.h>

#include "src/chip/sampler.h"

typedef struct ech_sampler_edit {
    const ech_sample_args *args;
    const ech_sampler_row *row;
    float *logits;   // [vocab], edited in place
    uint32_t *count; // [vocab], anything before and after
    int32_t *ids;    // [max_history]: prompt, then output, the pending id included
    uint32_t *match; // [max_history]: DRY's match lengths
    uint32_t n_prompt;
    uint32_t n_ids;
} ech_sampler_edit;

/* Whether the row changes any logit; where not, the raw ones serve as they are. */
bool ech_sampler_edits(const ech_sampler_row *row);
/*
 * Applies all of it, in the order that sampler.h states. False where a list or the history holds an
 * id outside the vocabulary or a list is malformed: the row is bad.
 */
bool ech_sampler_edit_apply(ech_sampler_edit *e);

#endif
