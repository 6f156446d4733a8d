/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, checking, binding and running the `sample` program. The one place that knows both the
 * task's tensors and the pool; the arithmetic is in sampler.c. Parent (making) and chip child (the
 * rest).
 */
#include "src/chip/sampler_program.h"

#include <stdlib.h>

#include "src/base/error.h"

/* Ids fit in a sort key and block numbers in 32 bits with much room; memory per core stays sane. */
#define MAX_VOCAB   (1u << 24)
#define MAX_HISTORY (1u << 26)

static ech_status check_sizes(const uint32_t vocab, const uint32_t max_history,
                              const uint32_t max_cores, ech_error *const err)
{
    if (vocab == 0 || vocab > MAX_VOCAB || max_history > MAX_HISTORY || max_cores == 0 ||
        max_cores > 4096) {
        return ech_fail(err, ECH_EINVAL,
                        "sample program: vocabulary %u (1 to %u), history %u (at most %u), cores "
                        "%u (1 to 4096): out of range",
                        vocab, MAX_VOCAB, max_history, MAX_HISTORY, max_cores);
    }
    return ECH_OK;
}

ech_status ech_sample_program(const uint32_t vocab, const uint32_t max_history,
                              const uint32_t max_cores, void **const ret_bytes,
                              size_t *const ret_len, ech_error *const err)
{
    ECH_TRY(check_sizes(vocab, max_history, max_cores, err));
    ech_sample_header *const h = calloc(1, sizeof *h);
    if (h == NULL) return ech_fail(err, ECH_ENOMEM, "sample program: out of memory");
    h->vocab = vocab;
    h->max_history = max_history;
    h->max_cores = max_cores;
    h->scratch_bytes = ech_sample_scratch_bytes(vocab, max_history);
    ech_program_seal(h, sizeof *h, ECH_PROGRAM_SAMPLE);
    *ret_bytes = h;
    *ret_len = sizeof *h;
    return ECH_OK;
}

ech_status ech_sample_program_check(const void *const program, const size_t len,
                                    ech_error *const err)
{
    const ech_sample_header *const h = program;
    if (len != sizeof *h) {
        return ech_fail(err, ECH_EFORMAT, "sample program: %zu bytes, expected %zu", len,
                        sizeof *h);
    }
    ECH_TRY(check_sizes(h->vocab, h->max_history, h->max_cores, err));
    const size_t scratch = ech_sample_scratch_bytes(h->vocab, h->max_history);
    if (h->scratch_bytes != scratch) {
        return ech_fail(err, ECH_EFORMAT, "sample program: scratch of %llu bytes, expected %zu",
                        (unsigned long long)h->scratch_bytes, scratch);
    }
    return ECH_OK;
}

uint64_t ech_sample_program_arena_bytes(const void *const program)
{
    const ech_sample_header *const h = program;
    return h->scratch_bytes * h->max_cores;
}

/* Whether tensor t is there and aligned; its whole elements are counted. */
static ech_status measure(const ech_exec_tensor *const t, const int which, const size_t element,
                          const size_t align, uint64_t *const ret_n, ech_error *const err)
{
    if ((t->ptr == NULL && t->bytes != 0) || (uintptr_t)t->ptr % align != 0) {
        return ech_fail(err, ECH_EINVAL, "sample: tensor %d is missing or misaligned", which);
    }
    *ret_n = t->bytes / element;
    return ECH_OK;
}

static ech_status measure_all(const ech_sample_header *const h, const ech_exec_args *const task,
                              uint64_t n[ECH_SAMPLE_T_COUNT], ech_error *const err)
{
    const struct {
        size_t element;
        size_t align;
    } spec[ECH_SAMPLE_T_COUNT] = {
        [ECH_SAMPLE_T_LOGITS] = { sizeof(float) * h->vocab, 4 },
        [ECH_SAMPLE_T_ROWS] = { sizeof(ech_sampler_row), 8 },
        [ECH_SAMPLE_T_HISTORY] = { sizeof(int32_t), 4 },
        [ECH_SAMPLE_T_LISTS] = { sizeof(int32_t), 4 },
        [ECH_SAMPLE_T_MASKS] = { sizeof(uint32_t) * ECH_MASK_WORDS(h->vocab), 4 },
        [ECH_SAMPLE_T_STATE] = { sizeof(float) * 2, 4 },
        [ECH_SAMPLE_T_IDS] = { sizeof(int32_t), 4 },
        [ECH_SAMPLE_T_OUT] = { 1, 8 },
    };
    if (task->n_tensors != ECH_SAMPLE_T_COUNT || task->n_scalars != ECH_SAMPLE_S_COUNT) {
        return ech_fail(err, ECH_EINVAL, "sample: %u tensors and %u scalars, expected %d and %d",
                        task->n_tensors, task->n_scalars, ECH_SAMPLE_T_COUNT, ECH_SAMPLE_S_COUNT);
    }
    for (int t = 0; t < ECH_SAMPLE_T_COUNT; t++) {
        ECH_TRY(measure(&task->tensors[t], t, spec[t].element, spec[t].align, &n[t], err));
    }
    return ECH_OK;
}

/* The scalars against the tensors that they count. */
static ech_status check_scalars(const uint64_t rows, const uint64_t stride, const uint64_t *const n,
                                ech_error *const err)
{
    if (rows > n[ECH_SAMPLE_T_ROWS] || rows > UINT32_MAX) {
        return ech_fail(err, ECH_EINVAL, "sample: %llu rows, the rows tensor holds %llu",
                        (unsigned long long)rows, (unsigned long long)n[ECH_SAMPLE_T_ROWS]);
    }
    if (stride < sizeof(ech_sample_out) || stride % 8 != 0 || stride > (1u << 30) ||
        rows * stride > n[ECH_SAMPLE_T_OUT]) {
        return ech_fail(err, ECH_EINVAL,
                        "sample: records of %llu bytes for %llu rows do not fit in %llu bytes",
                        (unsigned long long)stride, (unsigned long long)rows,
                        (unsigned long long)n[ECH_SAMPLE_T_OUT]);
    }
    return ECH_OK;
}

static uint32_t clamp_u32(const uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

ech_status ech_sample_bind(const void *const program, const ech_exec_args *const task,
                           ech_sample_args *const ret, ech_error *const err)
{
    const ech_sample_header *const h = program;
    uint64_t n[ECH_SAMPLE_T_COUNT] = { 0 };
    ECH_TRY(measure_all(h, task, n, err));
    const uint64_t rows = task->scalars[ECH_SAMPLE_S_N_ROWS];
    const uint64_t stride = task->scalars[ECH_SAMPLE_S_OUT_STRIDE];
    ECH_TRY(check_scalars(rows, stride, n, err));
    const ech_exec_tensor *const t = task->tensors;
    *ret = (ech_sample_args){
        .logits = t[ECH_SAMPLE_T_LOGITS].ptr,
        .rows = t[ECH_SAMPLE_T_ROWS].ptr,
        .history = t[ECH_SAMPLE_T_HISTORY].ptr,
        .lists = t[ECH_SAMPLE_T_LISTS].ptr,
        .masks = t[ECH_SAMPLE_T_MASKS].ptr,
        .state = t[ECH_SAMPLE_T_STATE].ptr,
        .ids = t[ECH_SAMPLE_T_IDS].ptr,
        .out = t[ECH_SAMPLE_T_OUT].ptr,
        .vocab = h->vocab,
        .n_rows = (uint32_t)rows,
        .n_logits = clamp_u32(n[ECH_SAMPLE_T_LOGITS]),
        .n_masks = clamp_u32(n[ECH_SAMPLE_T_MASKS]),
        .n_state = clamp_u32(n[ECH_SAMPLE_T_STATE]),
        .n_ids = clamp_u32(n[ECH_SAMPLE_T_IDS]),
        .out_stride = (uint32_t)stride,
        .max_history = h->max_history,
        .n_history = n[ECH_SAMPLE_T_HISTORY],
        .n_lists = n[ECH_SAMPLE_T_LISTS],
    };
    return ECH_OK;
}

typedef struct job {
    ech_sample_args args;
    char *arena;
    uint64_t scratch_bytes;
    uint32_t max_cores;
} job;

static void sample_rows(void *const arg, ech_core *const core)
{
    const job *const j = arg;
    if (core->idx < j->max_cores) {
        void *const scratch = j->arena + core->idx * j->scratch_bytes;
        for (uint32_t row; ech_pool_tile(core, j->args.n_rows, &row);) {
            ech_sample_row(&j->args, row, scratch);
        }
    }
    ech_pool_barrier(core);
}

ech_status ech_sample_run(const void *const program, const ech_exec_args *const task,
                          ech_pool *const pool, void *const arena, const uint64_t arena_bytes,
                          ech_error *const err)
{
    const ech_sample_header *const h = program;
    if (arena_bytes < ech_sample_program_arena_bytes(program)) {
        return ech_fail(err, ECH_EINVAL, "sample: the arena has %llu bytes, needed are %llu",
                        (unsigned long long)arena_bytes,
                        (unsigned long long)ech_sample_program_arena_bytes(program));
    }
    if (task->poll != NULL && task->poll(task->poll_ctx, 0)) {
        return ech_fail(err, ECH_ECANCELLED, "sample: cancelled before the first row");
    }
    job j = { .arena = arena, .scratch_bytes = h->scratch_bytes, .max_cores = h->max_cores };
    ECH_TRY(ech_sample_bind(program, task, &j.args, err));
    ech_pool_run(pool, sample_rows, &j);
    return ECH_OK;
}
