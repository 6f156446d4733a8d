/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level 0: the cores of a chip. One pinned thread each; the thread that calls ech_pool_run() is
 * core 0. Between runs the others spin for a short, bounded time, then sleep on a futex.
 *
 * A run is SPMD: every core executes fn(job, core). Inside it, cores share work with
 * ech_pool_tile(), which hands out the numbers below n_tiles, and meet at ech_pool_barrier():
 *
 *     static void scale(void *job, ech_core *core)
 *     {
 *         for (uint32_t t; ech_pool_tile(core, n_tiles, &t);) …   // phase 1
 *         ech_pool_barrier(core);                                 // all of phase 1 is visible
 *         for (uint32_t t; ech_pool_tile(core, n_more, &t);) …    // phase 2
 *         ech_pool_barrier(core);
 *     }
 *
 * Core i of c first takes its share, tiles n_tiles * i / c up to n_tiles * (i + 1) / c in ascending
 * order, then what others have left of theirs. So in phases that are cut alike a core mostly finds
 * in its own caches what it wrote before; a core that another process holds up does less.
 *
 * Every core takes tiles until ech_pool_tile() says false, then calls ech_pool_barrier() once;
 * the barrier rewinds the counters. Results may not depend on which core takes which tile. No
 * allocation, no system call while all cores are busy.
 */
#ifndef ECH_CHIP_POOL_H
#define ECH_CHIP_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"

typedef struct ech_pool ech_pool;

typedef struct ech_core {
    ech_pool *pool;
    uint32_t idx; /* 0 … n_cores-1 */
    uint32_t n_cores;
    void *scratch; /* of this core alone, 64-byte aligned, undefined at the start of a run */
    size_t scratch_bytes;
    uint32_t phase; /* the pool's */
} ech_core;

typedef void ech_pool_fn(void *job, ech_core *core);

typedef struct ech_pool_options {
    uint32_t n_threads;   /* >= 1 */
    const uint32_t *cpus; /* [n_threads] CPU numbers to pin to, or NULL: not pinned */
    size_t scratch_bytes; /* per core */
} ech_pool_options;

/* Starts the threads. In a chip child only, after its fork. */
ech_status ech_pool_create(ech_pool **ret_pool, const ech_pool_options *options, ech_error *err);
/* Stops and joins them. */
void ech_pool_destroy(ech_pool **pool);
uint32_t ech_pool_n_cores(const ech_pool *pool);

/* Runs fn on every core and returns when all have returned. One run at a time. */
void ech_pool_run(ech_pool *pool, ech_pool_fn *fn, void *job);

/* The next tile of this phase, or false when none of n_tiles is left. n_tiles: in all cores alike.
 */
bool ech_pool_tile(ech_core *core, uint32_t n_tiles, uint32_t *ret_tile);
/* The first tile of core idx's share; of idx n_cores, n_tiles. */
uint32_t ech_pool_share(const ech_core *core, uint32_t n_tiles, uint32_t idx);
/* The end of a phase: returns when every core has called it. */
void ech_pool_barrier(ech_core *core);

#endif
