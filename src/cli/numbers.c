/* SPDX-License-Identifier: Apache-2.0 */
/* See numbers.h. */
#include "src/cli/numbers.h"

#include <errno.h>
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

bool ech_parse_ids(const char *const text, int32_t *const ids, size_t *const ret_n)
{
    size_t n = 0;
    for (const char *at = text; *text != '\0'; at++) {
        char *end;
        while (n > 0 && *at == ' ')
            at++;
        errno = 0;
        const long v = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 || v > INT32_MAX) return false;
        ids[n++] = (int32_t)v;
        at = end;
        if (*at == '\0') break;
        if (*at != ',') return false;
    }
    *ret_n = n;
    return true;
}
