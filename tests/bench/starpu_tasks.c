/* SPDX-License-Identifier: Apache-2.0 */
/* No-op tasks under StarPU: the graphs of `echelon bench runtime`, for the table in
 * docs/benchmarks.md. */
#include <starpu.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t ns[5000];
static char memory[257][64];
static starpu_data_handle_t handles[257];

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

static void noop(void *buffers[], void *arg)
{
    (void)buffers;
    (void)arg;
}

static struct starpu_codelet flat_codelet = { .cpu_funcs = { noop }, .nbuffers = 0 };
static struct starpu_codelet chain_codelet = { .cpu_funcs = { noop },
                                               .nbuffers = 1,
                                               .modes = { STARPU_RW } };
static struct starpu_codelet fan_codelet = { .cpu_funcs = { noop },
                                             .nbuffers = 2,
                                             .modes = { STARPU_R, STARPU_W } };

static void flat(int n)
{
    for (int i = 0; i < n; i++)
        starpu_task_insert(&flat_codelet, 0);
}

static void chain(int n)
{
    for (int i = 0; i < n; i++)
        starpu_task_insert(&chain_codelet, STARPU_RW, handles[0], 0);
}

/* One writer, 256 tasks that read it, and a wait for all: StarPU's codelets have few buffers. */
static void fan(int n)
{
    starpu_task_insert(&chain_codelet, STARPU_RW, handles[0], 0);
    for (int i = 1; i <= n; i++)
        starpu_task_insert(&fan_codelet, STARPU_R, handles[0], STARPU_W, handles[i], 0);
    starpu_task_insert(&chain_codelet, STARPU_RW, handles[0], 0);
}

static double median_us(void (*graph)(int), int n, int runs)
{
    for (int r = 0; r < runs; r++) {
        const int64_t t = now();
        graph(n);
        starpu_task_wait_for_all();
        ns[r] = now() - t;
    }
    qsort(ns, (size_t)runs, sizeof *ns, compare);
    return (double)ns[runs / 2] / 1e3;
}

int main(void)
{
    struct starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = 1; /* as one sub child; the main thread submits */
    if (starpu_init(&conf) != 0) return 77;
    for (int i = 0; i < 257; i++)
        starpu_vector_data_register(&handles[i], STARPU_MAIN_RAM, (uintptr_t)memory[i], 64, 1);
    const double one = median_us(flat, 1, 2000), many = median_us(flat, 4096, 20);
    printf("run with one task, us: %.3f\n", one);
    printf("per task of 4096, us: %.3f\n", many / 4096);
    printf("chain of 1000, per task, us: %.3f\n", median_us(chain, 1000, 20) / 1000);
    printf("fan 1 -> 256 -> 1, us: %.3f\n", median_us(fan, 256, 50));
    for (int i = 0; i < 257; i++)
        starpu_data_unregister(handles[i]);
    starpu_shutdown();
    return 0;
}
