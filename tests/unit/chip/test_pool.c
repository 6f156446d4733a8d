/* SPDX-License-Identifier: Apache-2.0 */
/* The cores: every tile once, all of a phase before the next, also with more threads than CPUs. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/chip/pool.h"
#include "tests/unit/test.h"

#define TILES  37
#define PHASES 50

typedef struct job {
    uint32_t taken[PHASES][TILES];
    uint32_t done[PHASES];
    uint32_t early; /* tiles of a phase that began before the phase before it was done */
} job;

static void count_tiles(void *const arg, ech_core *const core)
{
    job *const j = arg;
    for (uint32_t p = 0; p < PHASES; p++) {
        for (uint32_t t; ech_pool_tile(core, TILES, &t);) {
            if (p > 0 && ech_load_acquire(&j->done[p - 1]) != TILES)
                (void)ech_fetch_add(&j->early, 1);
            (void)ech_fetch_add(&j->taken[p][t], 1);
            (void)ech_fetch_add(&j->done[p], 1);
        }
        ech_pool_barrier(core);
    }
}

static void run_with(const uint32_t n_threads, const int n_runs, const int pause_ms)
{
    ech_pool *pool = NULL;
    ech_error err;
    const ech_pool_options o = { .n_threads = n_threads, .scratch_bytes = 1000 };
    assert_int_equal(ech_pool_create(&pool, &o, &err), ECH_OK);
    assert_int_equal(ech_pool_n_cores(pool), n_threads);
    for (int i = 0; i < n_runs; i++) {
        static job j;
        memset(&j, 0, sizeof(j));
        ech_pool_run(pool, count_tiles, &j);
        assert_int_equal(j.early, 0);
        for (int p = 0; p < PHASES; p++)
            for (int t = 0; t < TILES; t++)
                assert_int_equal(j.taken[p][t], 1);
        if (pause_ms > 0) usleep((useconds_t)pause_ms * 1000); /* the cores go to sleep */
    }
    ech_pool_destroy(&pool);
    assert_null(pool);
}

static void every_tile_is_taken_once_and_phases_do_not_overlap(void **state)
{
    (void)state;
    run_with(1, 20, 0);
    run_with(2, 50, 0);
    run_with(3, 50, 0);
    run_with(8, 5, 0);
}

static void cores_wake_from_sleep(void **state)
{
    (void)state;
    run_with(2, 20, 1);
    run_with(4, 5, 2);
}

static void a_pool_that_never_ran_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        run_with(3, 0, 0);
    ech_pool *none = NULL;
    ech_pool_destroy(&none);
    ech_error err;
    const ech_pool_options o = { .n_threads = 0 };
    assert_int_equal(ech_pool_create(&none, &o, &err), ECH_EINVAL);
}

static void write_scratch(void *const arg, ech_core *const core)
{
    (void)arg;
    assert_int_equal((uintptr_t)core->scratch % 64, 0);
    memset(core->scratch, (int)core->idx, core->scratch_bytes);
    ech_pool_barrier(core);
    for (size_t i = 0; i < core->scratch_bytes; i++)
        if (((unsigned char *)core->scratch)[i] != core->idx) fail_msg("scratch is shared");
}

static void scratch_belongs_to_one_core(void **state)
{
    (void)state;
    ech_pool *pool = NULL;
    ech_error err;
    const ech_pool_options o = { .n_threads = 4, .scratch_bytes = 777 };
    assert_int_equal(ech_pool_create(&pool, &o, &err), ECH_OK);
    ech_pool_run(pool, write_scratch, NULL);
    ech_pool_destroy(&pool);
}

/* ---- shares ---- */

enum { SHARE_CORES = 3, SHARE_TILES = 10 };

typedef struct share_log {
    uint32_t arrived;
    uint32_t first[SHARE_CORES];
    uint32_t taken[SHARE_TILES];
} share_log;

/* Every core takes one tile; when all have one, core 0 takes what is left, of whatever share. */
static void take_shares(void *const arg, ech_core *const core)
{
    share_log *const log = arg;
    assert_true(ech_pool_tile(core, SHARE_TILES, &log->first[core->idx]));
    (void)ech_fetch_add(&log->taken[log->first[core->idx]], 1);
    (void)ech_fetch_add(&log->arrived, 1);
    while (ech_load_acquire(&log->arrived) != SHARE_CORES)
        (void)sched_yield();
    if (core->idx == 0)
        for (uint32_t t; ech_pool_tile(core, SHARE_TILES, &t);)
            (void)ech_fetch_add(&log->taken[t], 1);
    ech_pool_barrier(core);
}

static void a_core_begins_with_its_share_and_finishes_those_of_others(void **state)
{
    (void)state;
    ech_pool *pool = NULL;
    ech_error err;
    const ech_pool_options o = { .n_threads = SHARE_CORES, .scratch_bytes = 64 };
    assert_int_equal(ech_pool_create(&pool, &o, &err), ECH_OK);
    share_log log = { 0 };
    ech_pool_run(pool, take_shares, &log);
    ech_pool_destroy(&pool);
    assert_int_equal(log.first[0], 0);
    assert_int_equal(log.first[1], 3);
    assert_int_equal(log.first[2], 6);
    for (int t = 0; t < SHARE_TILES; t++)
        assert_int_equal(log.taken[t], 1);
}

/* ---- a core whose CPU is wanted by somebody else ----
 *
 * Tiles cost CPU time, so a core that gets half of its CPU should take half as many: then nobody
 * waits for it longer than for a tile. Shares are compared, not times: the machine may be busy.
 */

enum { BUSY_PHASES = 25, BUSY_TILES = 40 };

typedef struct shares {
    int64_t cpu_ns[2], n_tiles[2];
} shares;

static int64_t cpu_now(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void costly_tiles(void *const arg, ech_core *const core)
{
    shares *const s = arg;
    const int64_t start = cpu_now();
    for (uint32_t p = 0; p < BUSY_PHASES; p++) {
        for (uint32_t t; ech_pool_tile(core, BUSY_TILES, &t);) {
            for (const int64_t end = cpu_now() + 500000; cpu_now() < end;) {
            }
            s->n_tiles[core->idx]++;
        }
        ech_pool_barrier(core);
    }
    s->cpu_ns[core->idx] = cpu_now() - start;
}

static pid_t keep_busy(const uint32_t cpu)
{
    const pid_t pid = fork();
    if (pid != 0) return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
    (void)alarm(30);
    for (;;) {
    }
}

static void a_slowed_core_takes_fewer_tiles(void **state)
{
    (void)state;
    cpu_set_t all;
    uint32_t cpus[2], n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    for (uint32_t c = 0; c < CPU_SETSIZE && n < 2; c++)
        if (CPU_ISSET(c, &all)) cpus[n++] = c;
    if (n < 2) skip();
    const pid_t other = keep_busy(cpus[1]);
    ech_pool *pool = NULL;
    ech_error err;
    shares s = { 0 };
    const ech_pool_options o = { .n_threads = 2, .cpus = cpus, .scratch_bytes = 64 };
    const ech_status rc = ech_pool_create(&pool, &o, &err);
    if (rc == ECH_OK) ech_pool_run(pool, costly_tiles, &s);
    ech_pool_destroy(&pool);
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    (void)sched_setaffinity(0, sizeof(all), &all);
    assert_int_equal(rc, ECH_OK);
    const double tiles = (double)s.n_tiles[1] / (double)(s.n_tiles[0] + s.n_tiles[1]);
    const double cpu = (double)s.cpu_ns[1] / (double)(s.cpu_ns[0] + s.cpu_ns[1]);
    printf("  the slowed core took %.0f %% of the tiles with %.0f %% of the CPU time\n",
           100 * tiles, 100 * cpu);
    assert_true(tiles < cpu + 0.1 && tiles > cpu - 0.1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest shared[] = { cmocka_unit_test(a_slowed_core_takes_fewer_tiles) };
    if (argc > 1 && strcmp(argv[1], "busy") == 0) return cmocka_run_group_tests(shared, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_taken_once_and_phases_do_not_overlap),
        cmocka_unit_test(cores_wake_from_sleep),
        cmocka_unit_test(a_pool_that_never_ran_closes),
        cmocka_unit_test(scratch_belongs_to_one_core),
        cmocka_unit_test(a_core_begins_with_its_share_and_finishes_those_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
