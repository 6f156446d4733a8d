/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu chip as the worker's child loop sees it: an executor behind ech_child_ops. Runs in the
 * chip process; the loop's thread is core 0. What the options and the tasks say is input and is
 * checked, here or by the executor.
 */
#include "src/chip/cpu/child.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/os/shm.h"
#include "src/chip/bind.h"
#include "src/chip/platform.h"

typedef struct cpu_chip {
    ech_exec *exec;
    ech_bound_task bound;
} cpu_chip;

static ech_status read_options(const ech_child_env *const env, ech_cpu_options *const o,
                               ech_error *const err)
{
    *o = (ech_cpu_options){ .struct_size = sizeof(*o), .n_threads = 1 };
    if (env->options == NULL) return ECH_OK;
    if (env->options_bytes != sizeof(*o))
        return ech_fail(err, ECH_EINVAL, "opening a cpu chip: options of %zu bytes, expected %zu",
                        env->options_bytes, sizeof(*o));
    memcpy(o, env->options, sizeof(*o));
    if (o->struct_size != sizeof(*o) || o->n_threads == 0 || o->n_threads > ECH_CPU_MAX_THREADS ||
        o->isa > ECH_ISA_AVX512)
        return ech_fail(
            err, ECH_EINVAL,
            "opening a cpu chip: %u threads (1 to %d), instruction set %u: out of range",
            o->n_threads, ECH_CPU_MAX_THREADS, o->isa);
    return ECH_OK;
}

static void cpu_close(void *const state)
{
    cpu_chip *const c = state;
    if (c == NULL) return;
    ech_exec_destroy(&c->exec);
    free(c);
}

static ech_status cpu_open(const ech_child_env *const env, void **const ret_state,
                           ech_error *const err)
{
    ech_cpu_options o;
    ECH_TRY(read_options(env, &o, err));
    cpu_chip *const c = calloc(1, sizeof(*c));
    if (c == NULL) return ech_fail(err, ECH_ENOMEM, "opening a cpu chip: out of memory");
    const ech_exec_options options = {
        .n_threads = o.n_threads,
        .cpus = o.pin != 0 ? o.cpus : NULL,
        .arena_bytes = o.arena_bytes,
        .isa = (ech_isa)o.isa,
    };
    const ech_status rc = ech_exec_create(&c->exec, &options, err);
    if (rc != ECH_OK) {
        cpu_close(c);
        return rc;
    }
    *ret_state = c;
    return ECH_OK;
}

static ech_status cpu_load(void *const state, const char *const kind, const char *const name,
                           const void *const bytes, const size_t n_bytes, void **const ret_program,
                           ech_error *const err)
{
    (void)kind;
    (void)name;
    (void)ret_program;
    cpu_chip *const c = state;
    return ech_exec_load(c->exec, bytes, n_bytes, err);
}

static ech_status cpu_run(void *const state, void *const program, const void *const bytes,
                          const size_t n_bytes, ech_task *const task, ech_error *const err)
{
    (void)program;
    cpu_chip *const c = state;
    const ech_exec_args args = ech_bind_task(task, &c->bound);
    const ech_status rc = ech_exec_run(c->exec, bytes, n_bytes, &args, err);
    const ech_program_head *const head = bytes;
    /* A pack task's sources are files: their pages stay in the system's cache, this process is done
     * with them. */
    for (uint32_t i = 0; head->kind == ECH_PROGRAM_PACK && i + 1 < args.n_tensors; i++)
        ech_os_forget(args.tensors[i].ptr, args.tensors[i].bytes);
    return rc;
}

const ech_child_ops ech_cpu_child_ops = {
    .name = "cpu",
    .open = cpu_open,
    .load = cpu_load,
    .run = cpu_run,
    .close = cpu_close,
};
