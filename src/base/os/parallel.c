/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that share a counter; see parallel.h. Invariant: when the call returns, its threads are
 * joined, so that a process that forks later (a worker's start) is as single-threaded as before.
 */
#include "src/base/os/parallel.h"

#include <pthread.h>
#include <signal.h>

#include "src/base/atomic.h"
#include "src/base/os/cpu.h"

#define MAX_THREADS 256

typedef struct job {
    size_t next; /* atomic: the piece that nobody has yet */
    size_t n;
    ech_parallel_piece piece;
    void *ctx;
} job;

static void *job_main(void *const arg)
{
    job *const j = arg;
    for (;;) {
        /* Only a number is handed over; what pieces write is read after the join. */
        const size_t i = ech_fetch_add_relaxed(&j->next, 1);
        if (i >= j->n) return NULL;
        j->piece(j->ctx, i);
    }
}

/* Signals stay with the threads that the program made for itself. */
static uint32_t start_threads(job *const j, pthread_t *const threads, const uint32_t n)
{
    sigset_t all, before;
    uint32_t started = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < n && pthread_create(&threads[started], NULL, job_main, j) == 0) {
        started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void ech_os_parallel(const uint32_t n_threads, const size_t n, const ech_parallel_piece piece,
                     void *const ctx)
{
    pthread_t threads[MAX_THREADS];
    job j = { .n = n, .piece = piece, .ctx = ctx };
    size_t wanted = n_threads < n ? n_threads : n;
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    const uint32_t started = wanted > 1 ? start_threads(&j, threads, (uint32_t)wanted - 1) : 0;
    (void)job_main(&j);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

uint32_t ech_os_usable_cores(void)
{
    ech_machine m;
    ech_os_machine(&m);
    uint32_t cores = m.n_cores;
    if (m.quota_cpus > 0 && m.quota_cpus < cores) cores = (uint32_t)(m.quota_cpus + 0.5);
    return cores > 0 ? cores : 1;
}
