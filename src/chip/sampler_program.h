/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `sample` program as bytes, and its execution on a pool of cores: rows are the tiles, every
 * core takes one after the other in its own part of the arena.
 *
 *     head | vocab, max_history, max_cores, scratch_bytes
 *
 * It binds no weights; the program says only how large a row's work can get, so that the arena is
 * planned before the fork and nothing allocates in a step.
 */
#ifndef ECH_CHIP_SAMPLER_PROGRAM_H
#define ECH_CHIP_SAMPLER_PROGRAM_H

#include "src/chip/exec.h"
#include "src/chip/sampler.h"

typedef struct ech_sample_header {
    ech_program_head head;
    uint32_t vocab;
    uint32_t max_history;
    uint32_t max_cores; /* cores beyond these only look on */
    uint32_t reserved;
    uint64_t scratch_bytes; /* of one core */
} ech_sample_header;

_Static_assert(sizeof(ech_sample_header) == 56, "part of the program format");

/*
 * Makes the program. vocab: columns of the logits tensor; max_history: ids of the longest history a
 * row may name, the context length; max_cores: threads of the chip. *ret_bytes is one malloc that
 * the caller frees; untouched on failure.
 */
ech_status ech_sample_program(uint32_t vocab, uint32_t max_history, uint32_t max_cores,
                              void **ret_bytes, size_t *ret_len, ech_error *err);

/* Checks a program of kind SAMPLE whose head was checked. */
ech_status ech_sample_program_check(const void *program, size_t len, ech_error *err);

/* Bytes of arena that a checked program needs. */
uint64_t ech_sample_program_arena_bytes(const void *program);

/*
 * Binds the task's tensors, sampler.h says which. EINVAL where a tensor is too short, misaligned or
 * missing. Row contents are checked row by row later.
 */
ech_status ech_sample_bind(const void *program, const ech_exec_args *task, ech_sample_args *ret,
                           ech_error *err);

/*
 * Runs a checked program: all rows, on all cores of the pool. arena: at least
 * ech_sample_program_arena_bytes(), aligned to 64, contents undefined. Polls once, at the start:
 * ECANCELLED, nothing written, when that says so.
 */
ech_status ech_sample_run(const void *program, const ech_exec_args *task, ech_pool *pool,
                          void *arena, uint64_t arena_bytes, ech_error *err);

#endif
