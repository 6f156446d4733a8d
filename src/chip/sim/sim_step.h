/* SPDX-License-Identifier: Apache-2.0 */
/* The model of hashes that the sim chip runs as `forward`: sim.h says what it computes. */
#ifndef ECH_CHIP_SIM_STEP_H
#define ECH_CHIP_SIM_STEP_H

#include "src/chip/exec.h"

/* A step's tensors, bound and measured. */
typedef struct ech_sim_step {
    const ech_row *rows;
    const uint32_t *tables;
    char *kv;
    const int32_t *sampled;
    float *logits;
    uint64_t n_tables;
    uint64_t n_pages;
    uint64_t page_bytes;
    uint64_t n_slots;
    uint64_t n_logit_rows;
    uint32_t n_rows;
    uint32_t vocab;
    uint32_t out_width;
    uint32_t max_positions;
} ech_sim_step;

/* EINVAL where a tensor or scalar doesn't fit a program of this header. */
ech_status ech_sim_step_bind(const ech_forward_header *h, const ech_exec_args *args,
                             ech_sim_step *ret_step, ech_error *err);
/* The id of row i, looked up among the sampled ones where it says so; -1: out of range. */
int32_t ech_sim_step_id(const ech_sim_step *s, uint32_t i);
/* order: room for the n_rows numbers of rows. Nothing is written when a row is wrong. */
ech_status ech_sim_step_run(const ech_sim_step *s, uint32_t *order, ech_error *err);

#endif
