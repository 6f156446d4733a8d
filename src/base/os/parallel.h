/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many independent pieces of work on several cores: threads of its own that end with the call.
 * For what runs now and then and takes long, a batch of texts say; not for steps of a model, which
 * have their chips.
 */
#ifndef ECH_BASE_OS_PARALLEL_H
#define ECH_BASE_OS_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

/* Does piece i, on any thread. It reports through ctx. */
typedef void (*ech_parallel_piece)(void *ctx, size_t i);

/* Cores that this process may use: physical ones that its affinity allows, or its quota if less. */
uint32_t ech_os_usable_cores(void);

/*
 * Does the pieces 0 … n - 1, each once, on at most n_threads threads (the caller's among them),
 * and returns when all are done. Pieces are handed out in order, one at a time. A thread that can't
 * be started is done without.
 */
void ech_os_parallel(uint32_t n_threads, size_t n, ech_parallel_piece piece, void *ctx);

#endif
