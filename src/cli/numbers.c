/* SPDX-License-Identifier: Apache-2.0 */
/* See numbers.h. */
#include "src/cli/numbers.h"

#include <stdlib.h>

static int compare(const void *const a, const void *const b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ech_sort_numbers(double *const x, const size_t n)
{
    if (n > 0) qsort(x, n, sizeof *x, compare);
}
