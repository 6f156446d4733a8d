/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores and instruction sets: what users of other servers lost by a wrong number of threads or by a
 * path that was left out. One function per row, by its name; machines that this one is not are
 * described, not simulated.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/clock.h"
#include "src/chip/cpu/ops.h"
#include "src/chip/pool.h"
#include "src/engine/machine.h"
#include "tests/unit/test.h"

/* Threads that are chosen on a machine of n_cores cores with `smt` CPUs each. */
static ech_cpu_options plan(const uint32_t n_cores, const uint32_t smt, const double quota,
                            const uint32_t asked)
{
    static ech_machine m;
    m = (ech_machine){ .n_cpus = n_cores * smt, .n_cores = n_cores, .n_nodes = 1 };
    m.quota_cpus = quota;
    for (uint32_t i = 0; i < m.n_cpus; i++) {
        m.cpus[i] = (uint16_t)i;
        m.core[i] = (uint16_t)(i % n_cores); /* siblings are numbered after all cores */
    }
    ech_cpu_options o = { .struct_size = sizeof(o) };
    ech_machine_plan_cores(&m, asked, false, &o);
    return o;
}

/* A quota of two CPUs on a host of 64: two threads, not 64. */
static void CP1(void **state)
{
    (void)state;
    assert_int_equal(plan(64, 1, 2.0, 0).n_threads, 2);
    assert_int_equal(plan(64, 1, 1.5, 0).n_threads, 2);
    assert_int_equal(plan(64, 1, 0.2, 0).n_threads, 1);
    assert_int_equal(plan(4, 1, 0, 0).n_threads, 4);
    assert_int_equal(plan(4, 1, 16.0, 0).n_threads, 4);
}

/* 288 CPUs: one thread per physical core, pinned to the first CPU of each. */
static void CP3(void **state)
{
    (void)state;
    const ech_cpu_options o = plan(144, 2, 0, 0);
    assert_int_equal(o.n_threads, 144);
    assert_int_not_equal(o.pin, 0);
    for (uint32_t i = 0; i < 144; i++)
        assert_int_equal(o.cpus[i], i);
}

/* More threads are not taken than there are CPUs, and siblings only when asked for. */
static void CP4(void **state)
{
    (void)state;
    assert_int_equal(plan(16, 2, 0, 0).n_threads, 16);
    assert_int_equal(plan(16, 2, 0, 20).n_threads, 20);
    assert_int_equal(plan(16, 2, 0, 1000).n_threads, 32);
}

static const uint32_t levels[] = {
    ECH_CPU_V3,
    ECH_CPU_V3 | ECH_CPU_V4,
    ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_VNNI,
    ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_VNNI | ECH_CPU_V4_BF16,
};

/* Every tier of instruction sets has a path of its own for everything, and says its name. */
static void CP9(void **state)
{
    (void)state;
    ech_cpu_ops ref, below, ops;
    ech_cpu_ops_init(&ref, 0);
    below = ref;
    for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++) {
        if ((ech_cpu_features() & levels[l]) != levels[l]) continue;
        ech_cpu_ops_init(&ops, levels[l]);
        assert_string_not_equal(ops.name, below.name);
        for (int type = 0; type < ECH_PACK_COUNT; type++)
            for (int act = 0; act < ECH_ACT_COUNT; act++) {
                assert_int_equal(ops.mm[type][act] != NULL, ref.mm[type][act] != NULL);
                if (ref.mm[type][act] != NULL)
                    assert_ptr_not_equal(ops.mm[type][act], ref.mm[type][act]);
            }
        assert_ptr_not_equal(ops.softmax, ref.softmax);
        assert_ptr_not_equal(ops.to_q8, ref.to_q8);
        below = ops;
    }
}

/* ---- kernels beside each other ---------------------------------------------------------------
 */

enum { K = 1024, ROWS = 32, PANELS = 2, FLOATS = PANELS * ECH_PANEL };

/* Zeros: what is timed doesn't depend on the numbers, as long as none is a denormal. */
static struct {
    _Alignas(64) char w[PANELS][K * ECH_PANEL * sizeof(float)];
    _Alignas(64) char x[ROWS][K * sizeof(float) + 64];
    _Alignas(64) float y[ROWS][FLOATS];
} at_work;

/* A product of so many rows, as attention's over a head of 128 and as a layer's; softmax for none.
 */
typedef struct shape {
    uint32_t n_rows, k;
} shape;
static const shape SHAPES[] = { { 0, K }, { 1, 128 }, { 1, K }, { ROWS, 128 }, { ROWS, K } };

static void run_once(const ech_cpu_ops *const ops, const int type, const int act, const shape s)
{
    const void *const panels[PANELS] = { at_work.w[0], at_work.w[1] };
    float largest;
    if (s.n_rows == 0) {
        (void)ops->softmax((float *)at_work.x[0], s.k, 1, &largest);
        return;
    }
    ops->mm[type][act](&(ech_mm_args){
        .w = panels,
        .n_panels = PANELS,
        .n_parts = 1,
        .k_part = s.k,
        .k_last = s.k,
        .x = at_work.x,
        .x_stride = sizeof at_work.x[0],
        .n_rows = s.n_rows,
        .y = at_work.y[0],
        .y_stride = FLOATS,
    });
}

/* The least time of one of both tables, in turns: whoever else is on the machine disturbs both. */
static void race(const ech_cpu_ops *const tables[2], const int type, const int act, const shape s,
                 const int rounds, double ret_ns[2])
{
    enum { REPEATS = 8 };
    ret_ns[0] = ret_ns[1] = 1e18;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            const int64_t begin = ech_now_ns();
            for (int r = 0; r < REPEATS; r++)
                run_once(tables[i], type, act, s);
            const double ns = (double)(ech_now_ns() - begin) / REPEATS;
            if (ns < ret_ns[i]) ret_ns[i] = ns;
        }
    }
}

/*
 * What a kernel's choice costs: for prefill and decode, for weights and for keys and values of each
 * type, the tier that is taken by default is nowhere slower than one below it. The choice is by
 * instruction set and never by guess at the time of a request: attention has one algorithm.
 *
 * Nowhere by more than a quarter: one row of f16 or of q8 pages in the nearest caches takes AVX-512
 * 1.08 to 1.14 times what it takes AVX2 (Zen 4); from memory both go at its rate. A
 * wrong choice costs a factor.
 */
#define SLOWER 1.25

static void CP8(void **state)
{
    (void)state;
    ech_cpu_ops chosen, below;
    uint32_t n_races = 0, n_lost = 0;
    ech_cpu_ops_init(&chosen, ech_cpu_features());
    for (size_t l = 0; l <= sizeof(levels) / sizeof(levels[0]); l++) {
        const uint32_t features = l == 0 ? 0 : levels[l - 1]; /* plain C first, which is slow */
        if ((ech_cpu_features() & features) != features) break;
        ech_cpu_ops_init(&below, features);
        if (strcmp(below.name, chosen.name) == 0) break;
        const ech_cpu_ops *const tables[2] = { &chosen, &below };
        for (int type = 0; type < ECH_PACK_COUNT; type++)
            for (int act = 0; act < ECH_ACT_COUNT; act++)
                for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
                    double ns[2];
                    if (chosen.mm[type][act] == below.mm[type][act]) continue;
                    race(tables, type, act, SHAPES[i], l == 0 ? 2 : 60, ns);
                    n_races++;
                    if (ns[0] <= SLOWER * ns[1]) continue;
                    printf("  %s: pack type %d, activations %d, %u rows of %u: %.0f ns, %s %.0f\n",
                           chosen.name, type, act, SHAPES[i].n_rows, SHAPES[i].k, ns[0], below.name,
                           ns[1]);
                    n_lost++;
                }
    }
    printf("  %s: %u races, %u lost\n", chosen.name, n_races, n_lost);
    assert_int_equal(n_lost, 0);
}

/* ---- two cores at work ------------------------------------------------------------------------
 */

enum { TILES = 4000, PHASES = 200 };

/* A tile is some 50 µs of arithmetic, without a system call. */
static void work(void *const arg, ech_core *const core)
{
    (void)arg;
    volatile uint64_t sum = 0; /* volatile: the work is not optimised away */
    for (uint32_t p = 0; p < PHASES; p++) {
        for (uint32_t t; ech_pool_tile(core, TILES / PHASES, &t);)
            for (uint32_t i = 0; i < 30000; i++)
                sum += i;
        ech_pool_barrier(core);
    }
    (void)sum;
}

static double seconds(const struct timeval *const t)
{
    return (double)t->tv_sec + (double)t->tv_usec * 1e-6;
}

static void run_two(void)
{
    ech_pool *pool = NULL;
    ech_error err;
    const ech_pool_options o = { .n_threads = 2, .scratch_bytes = 64 };
    assert_int_equal(ech_pool_create(&pool, &o, &err), ECH_OK);
    ech_pool_run(pool, work, NULL);
    ech_pool_destroy(&pool);
}

/* Part of a run's time that the system took. */
static double system_share(void)
{
    struct rusage before, after;
    (void)getrusage(RUSAGE_SELF, &before);
    run_two();
    (void)getrusage(RUSAGE_SELF, &after);
    const double sys = seconds(&after.ru_stime) - seconds(&before.ru_stime);
    const double user = seconds(&after.ru_utime) - seconds(&before.ru_utime);
    return sys / (sys + user);
}

/*
 * Waiting at barriers and taking tiles is no work for the system: spinning is bounded, then sleep.
 * What others do on the machine adds to it, since a core whose CPU is taken away is slept for: the
 * least of many short runs counts.
 */
static void CP11(void **state)
{
    (void)state;
    double least = 1;
    for (int i = 0; i < 100 && least >= 0.02; i++) {
        const double share = system_share();
        if (share < least) least = share;
    }
    printf("  %.2f %% of the time in the system\n", 100 * least);
    assert_true(least < 0.02);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = { CASE(CP1), CASE(CP3), CASE(CP4),
                                        CASE(CP8), CASE(CP9), CASE(CP11) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
