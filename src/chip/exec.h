/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: runs compiled programs on a pool of cores. It is what the cpu chip's child calls
 * for every task, and can be called directly, in one process, by tests and tools.
 *
 * Nothing allocates in a run. A program is checked once, by ech_exec_load(); a run checks tensors
 * and rows (all of them are input), and touches nothing when it fails that check. One run at a time
 * per executor.
 */
#ifndef ECH_CHIP_EXEC_H
#define ECH_CHIP_EXEC_H

#include "src/chip/cpu/ops.h"
#include "src/chip/pool.h"
#include "src/chip/program.h"
#include "src/chip/step.h"

typedef struct ech_exec ech_exec;

typedef struct ech_exec_options {
    uint32_t n_threads;   /* 0: 1 */
    const uint32_t *cpus; /* [n_threads] to pin to, or NULL */
    uint64_t arena_bytes; /* the largest of ech_program_arena_bytes() of what will run */
    ech_isa isa;
} ech_exec_options;

#define ECH_EXEC_MAX_TENSORS 256

typedef struct ech_exec_tensor {
    void *ptr; /* written only if the program's contract says so */
    size_t bytes;
} ech_exec_tensor;

/* What one run binds; tensors and scalars in the order of the program kind's contract. */
typedef struct ech_exec_args {
    const ech_exec_tensor *tensors;
    uint32_t n_tensors;
    const uint64_t *scalars;
    uint32_t n_scalars;
    /*
     * Called by the calling thread between operations, with the operation's number; true ends the
     * run. May be NULL. In a chip child: ech_task_poll().
     */
    bool (*poll)(void *poll_ctx, uint32_t step);
    void *poll_ctx;
} ech_exec_args;

ech_status ech_exec_create(ech_exec **ret_exec, const ech_exec_options *options, ech_error *err);
void ech_exec_destroy(ech_exec **exec);

/*
 * Whether this executor can run the program, of whatever kind: its bytes are sound and its arena
 * fits. Once per program, before it is run; the bytes must not change afterwards.
 */
ech_status ech_exec_load(ech_exec *exec, const void *program, size_t len, ech_error *err);
/*
 * Runs a loaded program. ECANCELLED when poll ended it; KV beyond what was committed before, and
 * logits, are then undefined. NaN is not looked for here: a model's NaN reaches the logits.
 */
ech_status ech_exec_run(ech_exec *exec, const void *program, size_t len, const ech_exec_args *args,
                        ech_error *err);

ech_pool *ech_exec_pool(ech_exec *exec);
/* What runs: "ref", "avx2", "avx512", "avx512_bf16". */
const char *ech_exec_isa_name(const ech_exec *exec);

#endif
