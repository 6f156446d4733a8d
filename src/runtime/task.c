/* SPDX-License-Identifier: Apache-2.0 */
/* A task as its child sees it. Frames were written by another process: all of it is checked. */
#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/runtime/memory.h"
#include "src/runtime/serve.h"

ech_status ech_task_decode(ech_task *const task, const ech_worker *const w, const uint32_t child,
                           ech_frame *const frame, ech_error *const err)
{
    ECH_TRY(ech_frame_check(frame, err));
    task->frame = frame;
    task->n_tensors = frame->n_tensors;
    task->n_scalars = frame->n_scalars;
    task->abort = 0;
    if (task->n_scalars > 1)
        memcpy(task->scalars, frame->scalars, task->n_scalars * sizeof *task->scalars);
    task->scalars[0] = frame->scalar0;
    for (uint32_t i = 0; i < task->n_tensors; i++) {
        const ech_tensor t = frame->tensors[i]; /* a copy: it can't change under the check */
        ech_error e = { 0 };
        const ech_status rc = ech_memory_resolve(w, &t, "tensor", child, &task->tensors[i], &e);
        if (rc != ECH_OK)
            return ech_fail(err, rc, "reading a task frame: tensor %u%s", i,
                            e.text + strlen("tensor"));
    }
    return ECH_OK;
}

uint32_t ech_task_n_tensors(const ech_task *const task)
{
    return task->n_tensors;
}

uint32_t ech_task_n_scalars(const ech_task *const task)
{
    return task->n_scalars;
}

const ech_task_tensor *ech_task_tensor_at(const ech_task *const task, const uint32_t i)
{
    return i < task->n_tensors ? &task->tensors[i] : NULL;
}

uint64_t ech_task_scalar_at(const ech_task *const task, const uint32_t i)
{
    return i < task->n_scalars ? task->scalars[i] : 0;
}

const ech_tensor *ech_task_view_at(const ech_task *const task, const uint32_t i)
{
    return i < task->n_tensors ? &task->frame->tensors[i] : NULL;
}

const uint32_t *ech_task_abort_word(const ech_task *const task)
{
    return &task->abort;
}
