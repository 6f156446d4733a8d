/* SPDX-License-Identifier: Apache-2.0 */
/* From ech_task to ech_exec_args, for the children of every platform. No allocation. */
#include "src/chip/bind.h"

#include "src/base/error.h"

static bool poll_task(void *const task, const uint32_t step)
{
    return ech_task_poll(task, step);
}

ech_exec_args ech_bind_task(ech_task *const task, ech_bound_task *const room)
{
    const uint32_t n_tensors = ech_task_n_tensors(task), n_scalars = ech_task_n_scalars(task);
    ECH_ASSERT(n_tensors <= ECH_MAX_TENSORS && n_scalars <= ECH_MAX_SCALARS);
    for (uint32_t i = 0; i < n_tensors; i++) {
        const ech_task_tensor *const t = ech_task_tensor_at(task, i);
        room->tensors[i] = (ech_exec_tensor){ t->ptr, t->bytes };
    }
    for (uint32_t i = 0; i < n_scalars; i++)
        room->scalars[i] = ech_task_scalar_at(task, i);
    return (ech_exec_args){
        .tensors = room->tensors,
        .n_tensors = n_tensors,
        .scalars = room->scalars,
        .n_scalars = n_scalars,
        .poll = poll_task,
        .poll_ctx = task,
    };
}
