/* SPDX-License-Identifier: Apache-2.0 */
/* A task of the worker as the executor takes it. */
#ifndef ECH_CHIP_BIND_H
#define ECH_CHIP_BIND_H

#include "src/chip/exec.h"
#include "src/runtime/child.h"

/* Room for the largest task; one per chip child. */
typedef struct ech_bound_task {
    ech_exec_tensor tensors[ECH_MAX_TENSORS];
    uint64_t scalars[ECH_MAX_SCALARS];
} ech_bound_task;

/* Arguments that point into *room; valid while the task runs. */
ech_exec_args ech_bind_task(ech_task *task, ech_bound_task *room);

#endif
