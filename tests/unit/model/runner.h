/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model run in this process: image, KV and step tensors in plain memory, programs given to the
 * executor directly. What the tests of numbers need, without a worker.
 */
#ifndef ECH_TESTS_UNIT_MODEL_RUNNER_H
#define ECH_TESTS_UNIT_MODEL_RUNNER_H

#include "src/chip/exec.h"
#include "src/model/model.h"

typedef struct runner_options {
    ech_kv_type kv_type;
    ech_compute compute;
    ech_quantize quantize;
    ech_isa isa;
    uint32_t n_threads;
    uint32_t max_rows;      /* of a step */
    uint32_t max_positions; /* of a sequence */
    uint32_t n_seqs;        /* sequences at a time, 1 at least */
} runner_options;

typedef struct runner {
    ech_model *model;
    runner_options o;
    ech_model_info info;
    ech_exec *exec;
    ech_buf forward;
    uint8_t *image;
    size_t image_bytes;
    uint8_t *kv;
    size_t kv_bytes;
    uint32_t *tables; /* [n_seqs, pages_per_seq] */
    uint32_t pages_per_seq;
    float *logits; /* [64, vocab] */
    ech_row *rows; /* [max_rows] */
} runner;

/* One sequence of ids that is fed in chunks. */
typedef struct lane {
    const int32_t *ids;
    uint32_t n;
    uint32_t chunk;       /* rows of a step at most */
    uint32_t logits_from; /* logits are asked for from this position on */
    uint32_t done;
    float *logits; /* [n, vocab]; rows below logits_from are left alone */
} lane;

/* ENOTFOUND: this CPU lacks the instruction set. Everything else that fails fails the test. */
ech_status runner_open(runner *r, const char *path, const runner_options *o);
void runner_close(runner *r);
/* One step of all lanes that have ids left; lane i is sequence i. False when none has. */
bool runner_step(runner *r, lane *lanes, uint32_t n_lanes);
/* Steps until every lane is done. */
void runner_run(runner *r, lane *lanes, uint32_t n_lanes);

#endif
