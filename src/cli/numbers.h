/* SPDX-License-Identifier: Apache-2.0 */
/* Measured numbers, as benchmarks and scores need them. */
#ifndef ECH_CLI_NUMBERS_H
#define ECH_CLI_NUMBERS_H

#include <stddef.h>

/* Sorts x[n], the smallest first. */
void ech_sort_numbers(double *x, size_t n);

#endif
