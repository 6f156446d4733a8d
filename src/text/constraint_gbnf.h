/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF grammars as expressions. The syntax is in docs/structured-output.md. */
#ifndef ECH_TEXT_CONSTRAINT_GBNF_H
#define ECH_TEXT_CONSTRAINT_GBNF_H

#include "src/text/constraint_expr.h"

/* Errors have line, column and offset. Left recursion shows only when the graph is analysed. */
ech_status ech_gbnf_expr(ech_cx_graph *g, ech_str text, ech_cx *ret_expr, ech_error *err);

#endif
