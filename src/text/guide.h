/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a guide; the interface is echelon/guide.h. */
#ifndef ECH_TEXT_GUIDE_H
#define ECH_TEXT_GUIDE_H

#include <jansson.h>

#include "echelon/guide.h"
#include "src/base/arena.h"

struct ech_guide {
    ech_guide_options options;
    json_t *request; /* owned; everything below borrows from it or from the arena */
    ech_arena arena;

    ech_tool_mode mode;
    const json_t *tools; /* the request's list; NULL: none */
    const char **names;  /* [n_tools] */
    bool *is_allowed;    /* [n_tools] what tool_choice lets be called */
    size_t n_tools;
    bool parallel;
    bool guides_calls; /* the spec has calls */

    int64_t thinking_budget;
    const char *spec_field;
    ech_buf content; /* of the spec, where it was dumped */
    ech_parser_options parser;
    ech_constraint_spec spec;
};

/* What reads a request: the guide, and where a complaint goes. */
typedef struct ech_guide_reader {
    ech_guide *g;
    char *field; /* [ECH_GUIDE_FIELD_BYTES] */
    ech_error *err;
} ech_guide_reader;

/* A member of the request; NULL where it is absent or null. */
const json_t *ech_guide_get(const ech_guide *g, const char *name);
/* "FIELD WHY", EINVAL. */
ech_status ech_guide_refuse(const ech_guide_reader *r, const char *field, const char *why);

/* tools, tool_choice, parallel_tool_calls: checked; parser and spec get what follows from them. */
ech_status ech_guide_read_tools(const ech_guide_reader *r);
/* The fields of structured output into the spec. */
ech_status ech_guide_read_content(const ech_guide_reader *r);

#endif
