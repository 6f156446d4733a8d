/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON schemas and JSON values as expressions. What is supported, and the rules and bounds, are in
 * docs/structured-output.md.
 */
#ifndef ECH_TEXT_CONSTRAINT_SCHEMA_H
#define ECH_TEXT_CONSTRAINT_SCHEMA_H

#include "echelon/constraint.h"

#include "src/text/constraint_expr.h"

/* A schema's text. Errors have the JSON pointer, or the line and column of broken JSON. */
ech_status ech_schema_expr(ech_cx_graph *g, ech_str text, const ech_constraint_options *options,
                           ech_cx *ret_expr, ech_error *err);
/* Any JSON object. */
ech_status ech_schema_any_object(ech_cx_graph *g, const ech_constraint_options *options,
                                 ech_cx *ret_expr, ech_error *err);
/* Up to max bytes of JSON whitespace. */
ech_cx ech_schema_space(ech_cx_graph *g, uint32_t max);

#endif
