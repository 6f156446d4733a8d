/* SPDX-License-Identifier: Apache-2.0 */
/* What a model wrote before, taken apart again: markers in an assistant's content. */
#ifndef ECH_SERVER_HISTORY_H
#define ECH_SERVER_HISTORY_H

#include <jansson.h>

#include "echelon/parser.h"

/*
 * The messages with reasoning and tool calls that stand as markers in an assistant's content made
 * the fields that templates read. What has such fields of its own keeps them. A call that is not
 * whole stays text. how: formats and tools of the request. A new reference, to the same list when
 * there was nothing to do; NULL: out of memory.
 */
json_t *ech_history_split(json_t *messages, const ech_parser_options *how);

#endif
