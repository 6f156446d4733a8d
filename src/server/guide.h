/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request asks of the form of its answer: structured output, tools, reasoning. The fields'
 * meaning is echelon/guide.h's; here they become one, a 400 says which field is at fault, and
 * constraints are compiled.
 *
 * Compiled constraints are kept (the last 32, by all that went into them): agents send the same
 * tools with every request. The cache has a lock of its own; text threads.
 */
#ifndef ECH_SERVER_GUIDE_H
#define ECH_SERVER_GUIDE_H

#include <pthread.h>

#include "echelon/guide.h"
#include "src/server/generate.h"

#define ECH_GUIDE_CACHE 32

typedef struct ech_guides {
    pthread_mutex_t lock;
    struct {
        ech_buf key;                /* everything that went into it; empty: free */
        ech_constraint *constraint; /* one reference */
        uint64_t used;              /* of `clock`, when it was last asked for */
    } cache[ECH_GUIDE_CACHE];
    uint64_t clock;
    ech_mask_vocab *vocab;          /* made at the first need */
    ech_reasoning_format reasoning; /* as the template shows, or as an option says */
    ech_tools_format tools;
} ech_guides;

/* Formats by name (--reasoning-parser, --tool-call-parser), else from the template's source. */
ech_status ech_guides_open(ech_guides *g, const char *template_source, size_t len,
                           const char *reasoning_name, const char *tools_name, ech_error *err);
void ech_guides_close(ech_guides *g);

/*
 * Makes x->guide of the request's fields, is_text for a completion. False: the answer is set. The
 * exchange frees it after the request, whose parser asks it for the types of parameters.
 */
bool ech_guide_take(ech_exchange *x, const ech_params *p, bool is_text);

/*
 * Fills options->parser, constraint and thinking_budget from x->guide, after ech_guide_begin()
 * where there is a prompt. The constraint's reference is the exchange's. False: the answer is set.
 */
bool ech_guide_apply(ech_exchange *x, ech_request_options *options);

#endif
