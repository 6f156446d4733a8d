/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/model/runner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/chip/builder.h"
#include "src/chip/step.h"
#include "tests/unit/test.h"

#define MAX_LOGITS 64u

/* Fails the test with the error's text. */
#define OK(call, err)                                                                              \
    do {                                                                                           \
        if ((call) != ECH_OK) fail_msg("%s", (err).text);                                          \
    } while (0)

static void *zeros(const size_t bytes)
{
    void *const p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* Maps the sources, runs the pack program, unmaps. */
static void pack(runner *const r, const ech_buf *const program)
{
    ech_error err;
    const uint32_t n = ech_model_n_sources(r->model);
    ech_exec_tensor *const tensors = calloc(n + 1, sizeof *tensors);
    for (uint32_t i = 0; i < n; i++) {
        const ech_model_source s = ech_model_source_at(r->model, i);
        tensors[i].bytes = s.bytes;
        tensors[i].ptr = mmap(NULL, s.bytes, PROT_READ, MAP_PRIVATE, s.fd, 0);
        assert_true(tensors[i].ptr != MAP_FAILED);
    }
    tensors[n] = (ech_exec_tensor){ r->image, r->image_bytes };
    const ech_exec_args args = { .tensors = tensors, .n_tensors = n + 1 };
    OK(ech_exec_run(r->exec, program->data, program->len, &args, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        (void)munmap(tensors[i].ptr, tensors[i].bytes);
    }
    free(tensors);
    ech_model_close_sources(r->model);
}

/* Pages of all sequences are interleaved and run backwards, so that a table is needed. */
static void make_tables(runner *const r)
{
    const uint32_t n = r->o.n_seqs * r->pages_per_seq;
    r->tables = calloc(n, sizeof *r->tables);
    for (uint32_t s = 0; s < r->o.n_seqs; s++) {
        for (uint32_t p = 0; p < r->pages_per_seq; p++) {
            r->tables[s * r->pages_per_seq + p] = n - 1 - (p * r->o.n_seqs + s);
        }
    }
}

static void make_buffers(runner *const r, const ech_model_plan *const plan)
{
    r->pages_per_seq = (r->o.max_positions + 31) / 32;
    r->kv_bytes = (size_t)r->o.n_seqs * r->pages_per_seq * plan->kv_page_bytes;
    r->kv = zeros(r->kv_bytes);
    memset(r->kv, 0xff, r->kv_bytes); /* what was never written must not matter: NaN */
    r->logits = aligned_alloc(64, MAX_LOGITS * (((size_t)r->info.vocab * 4 + 63) / 64 * 64));
    r->rows = calloc(r->o.max_rows, sizeof *r->rows);
    make_tables(r);
}

/* Creating takes what the CPU has at most; the tests want to know what that is. */
static ech_status create_exec(runner *const r, const uint64_t arena_bytes)
{
    ech_error err;
    const ech_exec_options o = {
        .n_threads = r->o.n_threads,
        .arena_bytes = arena_bytes,
        .isa = r->o.isa,
    };
    OK(ech_exec_create(&r->exec, &o, &err), err);
    const char *const want = r->o.isa == ECH_ISA_AVX512 ? "avx512"
                             : r->o.isa == ECH_ISA_AVX2 ? "avx2"
                                                        : "";
    return strncmp(ech_exec_isa_name(r->exec), want, strlen(want)) == 0 ? ECH_OK : ECH_ENOTFOUND;
}

ech_status runner_open(runner *const r, const char *const path, const runner_options *const o)
{
    ech_error err;
    *r = (runner){ .o = *o };
    const ech_model_options mo = { .struct_size = sizeof mo, .quantize = o->quantize };
    OK(ech_model_open_with(&r->model, path, &mo, &err), err);
    ech_model_get_info(r->model, &r->info);
    const ech_forward_options fo = {
        .max_rows = o->max_rows,
        .max_logits = MAX_LOGITS,
        .max_positions = o->max_positions,
        .kv_type = o->kv_type,
        .compute = o->compute,
    };
    ech_model_plan plan;
    ech_buf program = { 0 };
    OK(ech_model_make_plan(r->model, &fo, &plan, &err), err);
    OK(ech_model_forward_program(r->model, &fo, &r->forward, &err), err);
    OK(ech_model_pack_program(r->model, &program, &err), err);
    const ech_status rc = create_exec(r, plan.arena_bytes);
    if (rc == ECH_OK) {
        r->image_bytes = plan.weights_bytes;
        r->image = zeros(r->image_bytes);
        ech_model_image_begin(r->model, r->image);
        pack(r, &program);
        OK(ech_image_check(r->image, r->image_bytes, &err), err);
        make_buffers(r, &plan);
    }
    ech_buf_fini(&program);
    if (rc != ECH_OK) runner_close(r);
    return rc;
}

void runner_close(runner *const r)
{
    ech_exec_destroy(&r->exec);
    ech_model_close(&r->model);
    ech_buf_fini(&r->forward);
    if (r->image != NULL) (void)munmap(r->image, r->image_bytes);
    if (r->kv != NULL) (void)munmap(r->kv, r->kv_bytes);
    free(r->tables);
    free(r->logits);
    free(r->rows);
    *r = (runner){ 0 };
}

/* Appends a lane's next rows; returns how many. */
static uint32_t add_rows(runner *const r, const lane *const l, const uint32_t seq,
                         const uint32_t at, uint32_t *const n_logits)
{
    const uint32_t left = l->n - l->done;
    const uint32_t n = left < l->chunk ? left : l->chunk;
    assert_true(at + n <= r->o.max_rows);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pos = l->done + i;
        r->rows[at + i] = (ech_row){
            .seq = seq,
            .pos = pos,
            .id = l->ids[pos],
            .pages = seq * r->pages_per_seq,
            .logit_row = pos >= l->logits_from ? (int32_t)(*n_logits)++ : -1,
        };
    }
    return n;
}

static void run_rows(runner *const r, const uint32_t n_rows, const uint32_t n_logits)
{
    ech_error err;
    int32_t sampled[1] = { 0 };
    const size_t n_tables = (size_t)r->o.n_seqs * r->pages_per_seq;
    const ech_exec_tensor tensors[ECH_STEP_TENSORS] = {
        [ECH_STEP_WEIGHTS] = { r->image, r->image_bytes },
        [ECH_STEP_ROWS] = { r->rows, n_rows * sizeof *r->rows },
        [ECH_STEP_PAGES] = { r->tables, n_tables * sizeof *r->tables },
        [ECH_STEP_KV] = { r->kv, r->kv_bytes },
        [ECH_STEP_SAMPLED] = { sampled, sizeof sampled },
        [ECH_STEP_LOGITS] = { r->logits, (size_t)MAX_LOGITS * r->info.vocab * sizeof *r->logits },
    };
    const uint64_t scalars[ECH_STEP_SCALARS] = { n_rows, n_logits };
    const ech_exec_args args = {
        .tensors = tensors,
        .n_tensors = ECH_STEP_TENSORS,
        .scalars = scalars,
        .n_scalars = ECH_STEP_SCALARS,
    };
    OK(ech_exec_run(r->exec, r->forward.data, r->forward.len, &args, &err), err);
}

bool runner_step(runner *const r, lane *const lanes, const uint32_t n_lanes)
{
    uint32_t n_rows = 0;
    uint32_t n_logits = 0;
    for (uint32_t s = 0; s < n_lanes; s++) {
        n_rows += add_rows(r, &lanes[s], s, n_rows, &n_logits);
    }
    if (n_rows == 0) return false;
    assert_true(n_logits <= MAX_LOGITS);
    run_rows(r, n_rows, n_logits);
    for (uint32_t i = 0; i < n_rows; i++) {
        const ech_row *const row = &r->rows[i];
        lane *const l = &lanes[row->seq];
        l->done = row->pos + 1;
        if (row->logit_row < 0) continue;
        memcpy(l->logits + (size_t)row->pos * r->info.vocab,
               r->logits + (size_t)row->logit_row * r->info.vocab,
               r->info.vocab * sizeof *r->logits);
    }
    return true;
}

void runner_run(runner *const r, lane *const lanes, const uint32_t n_lanes)
{
    while (runner_step(r, lanes, n_lanes)) {
    }
}
