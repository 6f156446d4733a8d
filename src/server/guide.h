/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request asks of the form of its answer: structured output, tools, reasoning. From its
 * fields to a parser's options and a compiled constraint. A constraint that can't be enforced is a
 * 400 that names where; it is never left out.
 *
 * Compiled constraints are kept (the last 32, by all that went into them): agents send the same
 * tools with every request. The cache has a lock of its own; text threads.
 */
#ifndef ECH_SERVER_GUIDE_H
#define ECH_SERVER_GUIDE_H

#include <pthread.h>

#include "echelon/constraint.h"
#include "echelon/parser.h"
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

/* What tool_choice comes to. */
typedef enum ech_tool_mode {
    ECH_TOOL_MODE_NONE, /* no tools, or none may be called: the prompt has none */
    ECH_TOOL_MODE_AUTO,
    ECH_TOOL_MODE_REQUIRED,
    ECH_TOOL_MODE_NAMED,
} ech_tool_mode;

typedef struct ech_guide_request {
    ech_tool_mode mode;
    const json_t *tools; /* for the template: a list, or NULL */
    const char *named;   /* NAMED: its name */
    const char **names;  /* [n_names] of all tools */
    size_t n_names;
} ech_guide_request;

/* Checks tools and tool_choice. False: the answer is set. */
bool ech_guide_take_tools(ech_exchange *x, const ech_params *p, ech_guide_request *ret);

/*
 * Fills options->parser, constraint and thinking_budget; prompt is the rendered text, whose end
 * says where the answer begins. The options' constraint is released by the exchange. False: the
 * answer is set.
 */
bool ech_guide_apply(ech_exchange *x, const ech_params *p, const ech_guide_request *r,
                     const char *prompt, size_t len, ech_request_options *options);

#endif
