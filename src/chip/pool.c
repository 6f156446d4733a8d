/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cores of a chip. One word, `generation`, starts runs; a sense barrier ends phases. Both wait
 * by spinning for a bounded time, then on a futex, so that a core whose CPU is taken away for a
 * while, or an idle chip, costs nothing.
 *
 * Every core has a tile counter, of its own share of a phase's tiles, in a cache line that others
 * touch only when they have none left. Counters are rewound by the last core that reaches a
 * barrier, while all others are inside it. So a tile belongs to exactly one core and one phase.
 *
 * Threads: run() from one thread at a time, which is core 0.
 */
#include "src/chip/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/os/futex.h"

/*
 * How long a wait spins before it sleeps. A wake-up costs about 15 µs on an idle virtual CPU
 * (docs/performance.md), so spinning for a few times that loses little and saves most sleeps.
 */
#define SPIN_NS        (50 * ECH_NS_PER_US)
#define SPINS_PER_LOOK 64 /* pauses between two looks at the clock */

typedef struct slot {
    _Alignas(128) ech_core core;
    pthread_t thread;
    uint32_t cpu;
    _Alignas(128) uint32_t next_tile; /* tiles taken of this core's share, or more */
} slot;

struct ech_pool {
    /* W: core 0  R: others */
    _Alignas(128) uint32_t generation;
    uint32_t generation_sleepers;
    ech_pool_fn *fn;
    void *job;
    bool stopping;

    _Alignas(128) uint32_t arrived; /* cores inside the barrier */
    _Alignas(128) uint32_t phase;   /* W: the last to arrive  R: the others */
    uint32_t phase_sleepers;

    _Alignas(128) uint32_t n_cores;
    uint32_t n_threads; /* started: n_cores - 1, or fewer while create() fails */
    bool is_pinned;
    char *scratch;
    slot *slots; // [n_cores]
};

/*
 * Returns when *word is no longer old. The sleeper counts itself before it looks at the word for
 * the last time, and publish() looks at the count after it has written the word; both sides fence
 * between, so that one of them sees the other.
 */
static void wait_while(uint32_t *const word, const uint32_t old, uint32_t *const sleepers)
{
    const int64_t until = ech_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (ech_load_acquire(word) != old) return; /* partner: publish() */
            ech_cpu_relax();
        }
    } while (ech_now_ns() < until);
    (void)ech_fetch_add(sleepers, 1);
    ech_fence();
    while (ech_load_acquire(word) == old)
        (void)ech_os_futex_wait(word, old, ECH_NO_DEADLINE);
    (void)ech_fetch_add(sleepers, (uint32_t)-1);
}

static void publish(uint32_t *const word, const uint32_t value, uint32_t *const sleepers)
{
    ech_store_release(word, value); /* partner: wait_while() */
    ech_fence();
    if (ech_load_relaxed(sleepers) != 0) ech_os_futex_wake(word);
}

static void rewind_tiles(ech_pool *const p)
{
    for (uint32_t i = 0; i < p->n_cores; i++)
        ech_store_relaxed(&p->slots[i].next_tile, 0);
}

void ech_pool_barrier(ech_core *const core)
{
    ech_pool *const p = core->pool;
    const uint32_t phase = core->phase++;
    if (p->n_cores > 1 && ech_fetch_add(&p->arrived, 1) != p->n_cores - 1) {
        wait_while(&p->phase, phase, &p->phase_sleepers);
        return;
    }
    ech_store_relaxed(&p->arrived, 0);
    rewind_tiles(p);
    if (p->n_cores > 1) publish(&p->phase, phase + 1, &p->phase_sleepers);
}

uint32_t ech_pool_share(const ech_core *const core, const uint32_t n_tiles, const uint32_t idx)
{
    return (uint32_t)((uint64_t)n_tiles * idx / core->n_cores);
}

/* The next tile of core idx's share, or false when none is left. */
static bool take_of(ech_core *const core, const uint32_t n_tiles, const uint32_t idx,
                    uint32_t *const ret_tile)
{
    uint32_t *const next = &core->pool->slots[idx].next_tile;
    const uint32_t from = ech_pool_share(core, n_tiles, idx);
    const uint32_t n = ech_pool_share(core, n_tiles, idx + 1) - from;
    if (ech_load_relaxed(next) >= n) return false;
    const uint32_t at = ech_fetch_add_relaxed(next, 1);
    *ret_tile = from + at;
    return at < n;
}

bool ech_pool_tile(ech_core *const core, const uint32_t n_tiles, uint32_t *const ret_tile)
{
    for (uint32_t i = 0, idx = core->idx; i < core->n_cores; i++) {
        if (take_of(core, n_tiles, idx, ret_tile)) return true;
        idx = idx + 1 < core->n_cores ? idx + 1 : 0;
    }
    return false;
}

static void pin(const uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* A CPU that was taken out of the cpuset since the plan was made: run unpinned, not fail. */
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void *core_main(void *const arg)
{
    slot *const s = arg;
    ech_pool *const p = s->core.pool;
    if (p->is_pinned) pin(s->cpu);
    for (uint32_t seen = 0;; seen++) {
        wait_while(&p->generation, seen, &p->generation_sleepers);
        if (p->stopping) return NULL;
        p->fn(p->job, &s->core);
        ech_pool_barrier(&s->core);
    }
}

void ech_pool_run(ech_pool *const p, ech_pool_fn *const fn, void *const job)
{
    p->fn = fn;
    p->job = job;
    if (p->n_cores > 1) publish(&p->generation, p->generation + 1, &p->generation_sleepers);
    fn(job, &p->slots[0].core);
    ech_pool_barrier(&p->slots[0].core);
}

uint32_t ech_pool_n_cores(const ech_pool *const p)
{
    return p->n_cores;
}

static ech_status start_threads(ech_pool *const p, ech_error *const err)
{
    for (uint32_t i = 1; i < p->n_cores; i++) {
        const int rc = pthread_create(&p->slots[i].thread, NULL, core_main, &p->slots[i]);
        if (rc != 0)
            return ech_fail(err, ECH_EOS, "starting core thread %u of %u: %s", i, p->n_cores,
                            strerror(rc));
        p->n_threads++;
    }
    return ECH_OK;
}

static ech_status init_slots(ech_pool *const p, const ech_pool_options *const o,
                             ech_error *const err)
{
    const size_t each = (o->scratch_bytes + 127) / 128 * 128 + 128;
    p->slots = aligned_alloc(128, p->n_cores * sizeof(slot));
    p->scratch = aligned_alloc(128, p->n_cores * each);
    if (p->slots == NULL || p->scratch == NULL)
        return ech_fail(err, ECH_ENOMEM, "starting %u core threads with %zu bytes each", p->n_cores,
                        each);
    memset(p->scratch, 0, p->n_cores * each);
    for (uint32_t i = 0; i < p->n_cores; i++)
        p->slots[i] = (slot){
            .core = {
                .pool = p,
                .idx = i,
                .n_cores = p->n_cores,
                .scratch = p->scratch + i * each,
                .scratch_bytes = o->scratch_bytes,
            },
            .cpu = o->cpus != NULL ? o->cpus[i] : 0,
        };
    return ECH_OK;
}

ech_status ech_pool_create(ech_pool **const ret_pool, const ech_pool_options *const o,
                           ech_error *const err)
{
    if (o->n_threads == 0 || o->n_threads > 4096)
        return ech_fail(err, ECH_EINVAL, "starting core threads: %u is not 1 to 4096",
                        o->n_threads);
    ech_pool *p = aligned_alloc(128, sizeof(*p));
    if (p == NULL) return ech_fail(err, ECH_ENOMEM, "starting core threads");
    memset(p, 0, sizeof(*p));
    p->n_cores = o->n_threads;
    p->is_pinned = o->cpus != NULL;
    ech_status rc = init_slots(p, o, err);
    if (rc == ECH_OK) rc = start_threads(p, err);
    if (rc != ECH_OK) {
        ech_pool_destroy(&p);
        return rc;
    }
    if (p->is_pinned && o->cpus != NULL) pin(o->cpus[0]);
    *ret_pool = p;
    return ECH_OK;
}

void ech_pool_destroy(ech_pool **const pool)
{
    ech_pool *const p = *pool;
    if (p == NULL) return;
    p->stopping = true;
    publish(&p->generation, p->generation + 1, &p->generation_sleepers);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->slots[i + 1].thread, NULL);
    free(p->slots);
    free(p->scratch);
    free(p);
    *pool = NULL;
}
