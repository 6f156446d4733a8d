/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: measured ones, as benchmarks and scores need them, and lists of ids. */
#ifndef ECH_CLI_NUMBERS_H
#define ECH_CLI_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sorts x[n], the smallest first. */
void ech_sort_numbers(double *x, size_t n);

/*
 * Ids, "1,2,3" with blanks behind the commas or not, into ids[strlen(text) / 2 + 1]; "" is none.
 * False: anything else stands there. Whether a model has them the engine says.
 */
bool ech_parse_ids(const char *text, int32_t *ids, size_t *ret_n);

#endif
