/* SPDX-License-Identifier: Apache-2.0 */
/* The sim chip as the worker's child loop sees it. Runs in the chip process, on its one thread. */
#include "src/chip/sim/child.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/chip/bind.h"
#include "src/chip/sim/sim.h"

typedef struct sim_chip {
    ech_sim *sim;
    ech_bound_task bound;
} sim_chip;

static ech_status sim_open(const ech_child_env *const env, void **const ret_state,
                           ech_error *const err)
{
    sim_chip *const c = calloc(1, sizeof(*c));
    if (c == NULL) return ech_fail(err, ECH_ENOMEM, "opening a sim chip: out of memory");
    const ech_status rc =
        ech_sim_create(&c->sim, env->options, env->options_bytes, env->generation, err);
    if (rc != ECH_OK) {
        free(c);
        return rc;
    }
    *ret_state = c;
    return ECH_OK;
}

static ech_status sim_load(void *const state, const char *const kind, const char *const name,
                           const void *const bytes, const size_t n_bytes, void **const ret_program,
                           ech_error *const err)
{
    (void)kind;
    (void)name;
    sim_chip *const c = state;
    ech_sim_program *program = NULL;
    ECH_TRY(ech_sim_load(c->sim, bytes, n_bytes, &program, err));
    *ret_program = program;
    return ECH_OK;
}

static void sim_unload(void *const state, void *const program)
{
    (void)state;
    ech_sim_program *p = program;
    ech_sim_unload(&p);
}

static ech_status sim_run(void *const state, void *const program, const void *const bytes,
                          const size_t n_bytes, ech_task *const task, ech_error *const err)
{
    (void)bytes;
    (void)n_bytes;
    sim_chip *const c = state;
    const ech_exec_args args = ech_bind_task(task, &c->bound);
    return ech_sim_run(c->sim, program, &args, err);
}

static ech_status sim_control(void *const state, const uint32_t op, const void *const req,
                              const size_t req_len, void *const resp, const size_t cap,
                              size_t *const ret_len, ech_error *const err)
{
    sim_chip *const c = state;
    return ech_sim_control(c->sim, op, req, req_len, resp, cap, ret_len, err);
}

static void sim_close(void *const state)
{
    sim_chip *const c = state;
    ech_sim_destroy(&c->sim);
    free(c);
}

const ech_child_ops ech_sim_child_ops = {
    .name = "sim",
    .open = sim_open,
    .load = sim_load,
    .unload = sim_unload,
    .run = sim_run,
    .control = sim_control,
    .close = sim_close,
};
