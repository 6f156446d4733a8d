/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An orchestration inside one process, as a chip runs it below level 3: the same graph, rings and
 * tensor map as a worker's, but tasks are function calls on the calling thread, made when the
 * submitter is blocked, when a scope is over, or in ech_local_wait(). One owner, one thread.
 *
 * A ring that can't give what is needed is fatal: the code is latched, one line with code, name,
 * meaning and hint is logged, and every later call does nothing and returns the same status.
 *
 *     code   status               when
 *     1      SCOPE_DEADLOCK       the innermost scope holds every slot
 *     2      HEAP_RING_DEADLOCK   the heap can't free what is needed
 *     3      TASK_WINDOW_DEADLOCK several open scopes hold every slot
 *     4      DEP_POOL_OVERFLOW    more producers than the pool has entries
 *     5      RING_INVALID_ARGS    a dependency list that makes no sense
 */
#ifndef ECH_RUNTIME_LOCAL_H
#define ECH_RUNTIME_LOCAL_H

#include "src/runtime/graph.h"

typedef struct ech_local ech_local;

/* What a task is given: its memory by address, its scalars. */
typedef struct ech_local_task {
    void *ptr[ECH_INLINE_TENSORS]; /* of each tensor; NULL where it has no memory here */
    const ech_tensor *tensors;
    const uint64_t *scalars;
    uint32_t n_tensors, n_scalars;
    void *arg;
} ech_local_task;

typedef ech_status (*ech_local_fn)(const ech_local_task *task, ech_error *err);

/*
 * sizes: of this orchestration; NULL, or fields that are 0: those of the dispatch that runs as
 * `task` (may be NULL), the environment, the built-in ones. Precedence: dispatch first.
 */
ech_status ech_local_open(const ech_task *task, const ech_ring_sizes *sizes, ech_local **ret,
                          ech_error *err);
void ech_local_close(ech_local **local);

/* Names memory of the caller; it has to outlive the orchestration. At most 64. */
ech_status ech_local_buffer(ech_local *l, void *ptr, uint64_t bytes, ech_buffer *ret,
                            ech_error *err);
/*
 * Adds a call. after: tasks to wait for besides what the tags say, n_after of them, as earlier
 * submits returned them. args may hold at most ECH_INLINE_TENSORS tensors.
 */
ech_status ech_local_submit(ech_local *l, ech_local_fn fn, void *arg, ech_args *args,
                            const uint32_t *after, uint32_t n_after, uint32_t *ret_task,
                            ech_error *err);
ech_status ech_local_alloc(ech_local *l, ech_dtype dtype, uint32_t ndim, const uint64_t *shape,
                           ech_tensor *ret, ech_error *err);
ech_status ech_local_scope_begin(ech_local *l, ech_error *err);
ech_status ech_local_scope_end(ech_local *l, ech_error *err);
/* Makes every call that was submitted. The first failure of a task, or the fatal status. */
ech_status ech_local_wait(ech_local *l, ech_error *err);
/* 0, or the number of the table above. */
int ech_local_fatal_code(const ech_local *l);

#endif
