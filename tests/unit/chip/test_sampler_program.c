/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `sample` program through the executor: rows shared among cores give what each gives alone,
 * and programs, tensors and scalars that don't fit are refused before anything is written.
 */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "src/chip/sampler_program.h"

enum { VOCAB = 1500, ROWS = 33, LOGITS = 7, SLOTS = 64, STRIDE = ECH_SAMPLE_OUT_BYTES(4) };

typedef struct task {
    float logits[LOGITS * VOCAB];
    ech_sampler_row rows[ROWS];
    int32_t history[100];
    float state[2];
    int32_t ids[SLOTS];
    _Alignas(8) uint8_t out[ROWS * STRIDE];
    ech_exec_tensor tensors[ECH_SAMPLE_T_COUNT];
    uint64_t scalars[ECH_SAMPLE_S_COUNT];
    ech_exec_args args;
} task;

static task *task_new(void)
{
    task *const t = calloc(1, sizeof *t);
    for (int i = 0; i < LOGITS * VOCAB; i++) {
        t->logits[i] = (float)((i * 7919) % 2003) / 300.0f;
    }
    for (int i = 0; i < 100; i++) {
        t->history[i] = i * 13 % VOCAB;
    }
    for (int r = 0; r < ROWS; r++) {
        ech_sampler_row *const row = &t->rows[r];
        ech_sampler_row_init(row);
        row->logit_row = (uint32_t)r % LOGITS;
        row->temperature = r % 3 == 0 ? 0.0f : 0.8f;
        row->top_p = 0.9f;
        row->repetition = 1.1f;
        row->n_prompt = 60;
        row->n_output = 40;
        row->seed = 5;
        row->pos = (uint64_t)r;
        row->n_top = 4;
        row->out_slot = SLOTS - 1 - r;
    }
    const ech_exec_tensor tensors[ECH_SAMPLE_T_COUNT] = {
        [ECH_SAMPLE_T_LOGITS] = { t->logits, sizeof t->logits },
        [ECH_SAMPLE_T_ROWS] = { t->rows, sizeof t->rows },
        [ECH_SAMPLE_T_HISTORY] = { t->history, sizeof t->history },
        [ECH_SAMPLE_T_STATE] = { t->state, sizeof t->state },
        [ECH_SAMPLE_T_IDS] = { t->ids, sizeof t->ids },
        [ECH_SAMPLE_T_OUT] = { t->out, sizeof t->out },
    };
    memcpy(t->tensors, tensors, sizeof tensors);
    t->scalars[ECH_SAMPLE_S_N_ROWS] = ROWS;
    t->scalars[ECH_SAMPLE_S_OUT_STRIDE] = STRIDE;
    t->args = (ech_exec_args){ .tensors = t->tensors,
                               .n_tensors = ECH_SAMPLE_T_COUNT,
                               .scalars = t->scalars,
                               .n_scalars = ECH_SAMPLE_S_COUNT };
    return t;
}

static ech_exec *exec_new(const uint32_t threads, const uint64_t arena)
{
    const ech_exec_options o = { .n_threads = threads, .arena_bytes = arena, .isa = ECH_ISA_REF };
    ech_exec *e = NULL;
    assert_int_equal(ech_exec_create(&e, &o, NULL), ECH_OK);
    return e;
}

static void rows_are_the_same_on_any_number_of_cores(void **state)
{
    (void)state;
    void *program;
    size_t len;
    assert_int_equal(ech_sample_program(VOCAB, 100, 2, &program, &len, NULL), ECH_OK);
    const uint64_t arena = ech_program_arena_bytes(program, len);
    assert_true(arena >= 2 * ech_sample_scratch_bytes(VOCAB, 100));
    task *first = NULL;
    for (uint32_t threads = 1; threads <= 3; threads++) { /* the third core only looks on */
        ech_exec *e = exec_new(threads, arena);
        assert_int_equal(ech_exec_load(e, program, len, NULL), ECH_OK);
        task *const t = task_new();
        assert_int_equal(ech_exec_run(e, program, len, &t->args, NULL), ECH_OK);
        if (first != NULL) {
            assert_memory_equal(t->ids, first->ids, sizeof t->ids);
            assert_memory_equal(t->out, first->out, sizeof t->out);
            free(first);
        }
        first = t;
        ech_exec_destroy(&e);
    }
    for (int r = 0; r < ROWS; r++) {
        const ech_sample_out *const o = (const void *)(first->out + r * STRIDE);
        assert_int_equal(o->status, ECH_SAMPLE_OK);
        assert_int_equal(o->n_top, 4);
        assert_int_equal(first->ids[SLOTS - 1 - r], o->id);
    }
    free(first);
    free(program);
}

static bool always(void *ctx, const uint32_t step)
{
    (void)ctx;
    (void)step;
    return true;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    void *program;
    size_t len;
    ech_error err;
    assert_int_equal(ech_sample_program(0, 100, 2, &program, &len, &err), ECH_EINVAL);
    assert_int_equal(ech_sample_program(VOCAB, 100, 0, &program, &len, &err), ECH_EINVAL);
    assert_int_equal(ech_sample_program(VOCAB, 100, 1, &program, &len, &err), ECH_OK);
    ech_exec *e = exec_new(1, ech_program_arena_bytes(program, len));
    assert_int_equal(ech_exec_load(e, program, len - 1, &err), ECH_EFORMAT);
    task *const t = task_new();
    const struct {
        int tensor;
        size_t bytes;
    } shorter[] = { { ECH_SAMPLE_T_ROWS, ROWS * sizeof(ech_sampler_row) - 1 },
                    { ECH_SAMPLE_T_OUT, ROWS * STRIDE - 1 } };
    for (int i = 0; i < 2; i++) {
        const size_t kept = t->tensors[shorter[i].tensor].bytes;
        t->tensors[shorter[i].tensor].bytes = shorter[i].bytes;
        assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_EINVAL);
        t->tensors[shorter[i].tensor].bytes = kept;
    }
    const uint64_t strides[] = { 0, 24, 33, UINT64_MAX, UINT64_MAX - 7 };
    for (int i = 0; i < 5; i++) {
        t->scalars[ECH_SAMPLE_S_OUT_STRIDE] = strides[i];
        assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_EINVAL);
    }
    t->scalars[ECH_SAMPLE_S_OUT_STRIDE] = STRIDE;
    t->scalars[ECH_SAMPLE_S_N_ROWS] = UINT64_MAX;
    assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_EINVAL);
    t->scalars[ECH_SAMPLE_S_N_ROWS] = ROWS;
    t->args.n_tensors--;
    assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_EINVAL);
    t->args.n_tensors++;
    t->args.poll = always;
    assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_ECANCELLED);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(t->ids[i], 0);
    }
    t->args.poll = NULL;
    t->tensors[ECH_SAMPLE_T_LOGITS].bytes -= 1; /* one row less: rows that use it fail alone */
    assert_int_equal(ech_exec_run(e, program, len, &t->args, &err), ECH_OK);
    assert_int_equal(((const ech_sample_out *)(const void *)(t->out + 6 * STRIDE))->status,
                     ECH_SAMPLE_BAD_ROW);
    assert_int_equal(((const ech_sample_out *)(const void *)t->out)->status, ECH_SAMPLE_OK);
    ech_exec_destroy(&e);
    e = exec_new(1, 64);
    assert_int_equal(ech_exec_load(e, program, len, &err), ECH_ELIMIT);
    ech_exec_destroy(&e);
    free(t);
    free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_same_on_any_number_of_cores),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
