/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a spec to one expression: content, reasoning before it and calls around it. The languages
 * themselves are in constraint_schema.h, constraint_regex.h and constraint_gbnf.h.
 */
#ifndef ECH_TEXT_CONSTRAINT_COMPOSE_H
#define ECH_TEXT_CONSTRAINT_COMPOSE_H

#include "src/text/constraint_expr.h"
#include "src/text/constraint_vocab.h"

typedef struct ech_composed {
    ech_cx root;
    /*
     * Rules that finish reasoning at once and go on with the content. One when the end marker is a
     * control token; else one for each number of bytes of the marker that were written already.
     */
    uint32_t *closers;
    uint32_t n_closers;
} ech_composed;

/* On success the closers are the caller's to free. */
ech_status ech_compose(ech_cx_graph *g, const ech_mask_vocab *vocab,
                       const ech_constraint_spec *spec, const ech_constraint_options *options,
                       ech_composed *ret_composed, ech_error *err);

#endif
