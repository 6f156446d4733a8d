/* SPDX-License-Identifier: Apache-2.0 */
/* No-op tasks under OpenMP: the graphs of `echelon bench runtime`, for the table in
 * docs/benchmarks.md. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t ns[5000];
static char element[257]; /* names of dependencies */
static volatile int sink;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void flat(int n)
{
    for (int i = 0; i < n; i++) {
#pragma omp task
        sink = 1;
    }
}

static void chain(int n)
{
    for (int i = 0; i < n; i++) {
#pragma omp task depend(inout : element[0])
        sink = 1;
    }
}

static void fan(int n)
{
#pragma omp task depend(out : element[0])
    sink = 1;
    for (int i = 1; i <= n; i++) {
#pragma omp task depend(in : element[0]) depend(out : element[i])
        sink = 1;
    }
#pragma omp task depend(iterator(int k = 1 : 257), in : element[k])
    sink = 1;
}

static double median_us(void (*graph)(int), int n, int runs)
{
#pragma omp parallel num_threads(2)
#pragma omp single
    for (int r = 0; r < runs; r++) {
        const int64_t t = now();
        graph(n);
#pragma omp taskwait
        ns[r] = now() - t;
    }
    qsort(ns, (size_t)runs, sizeof *ns, compare);
    return (double)ns[runs / 2] / 1e3;
}

int main(void)
{
    const double one = median_us(flat, 1, 5000), many = median_us(flat, 4096, 50);
    printf("run with one task, us: %.3f\n", one);
    printf("per task of 4096, us: %.3f\n", many / 4096);
    printf("chain of 1000, per task, us: %.3f\n", median_us(chain, 1000, 50) / 1000);
    printf("fan 1 -> 256 -> 1, us: %.3f\n", median_us(fan, 256, 100));
    return 0;
}
