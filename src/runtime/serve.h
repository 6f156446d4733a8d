/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's side: what a process does between its fork and its _exit. Sub children and workers
 * answer commands on a thread of their own, since their callables know nothing of it; a chip with
 * a platform answers them between operations.
 */
#ifndef ECH_RUNTIME_SERVE_H
#define ECH_RUNTIME_SERVE_H

#include <sys/types.h>

#include "src/runtime/node.h"

typedef struct ech_serve ech_serve;

/* What a callable sees of its task; in the child only. */
struct ech_task {
    ech_serve *serve;
    ech_frame *frame;
    uint32_t n_tensors, n_scalars;
    uint32_t abort; /* 1: stop; read by core threads */
    ech_task_tensor tensors[ECH_MAX_TENSORS];
    uint64_t scalars[ECH_MAX_SCALARS]; /* copied: what was checked is what is used */
};

/* Never returns. zygote: who forked it. */
_Noreturn void ech_serve_child(ech_worker *w, uint32_t child, uint32_t generation, pid_t zygote);

/*
 * Fills a task from a frame: counts, identities, bounds and access are checked. Used by the loop
 * and by tests of bad frames.
 */
ech_status ech_task_decode(ech_task *task, const ech_worker *w, uint32_t child, ech_frame *frame,
                           ech_error *err);

#endif
