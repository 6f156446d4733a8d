/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of the filters' table, private to template_filter*.c. */
#ifndef ECH_TEXT_TEMPLATE_FILTERS_H
#define ECH_TEXT_TEMPLATE_FILTERS_H

#include "src/text/template_builtin.h"

/* Filters on sequences; ends with a row without a name. */
extern const ech_tbuiltin ech_tfilters_seq[];

#endif
