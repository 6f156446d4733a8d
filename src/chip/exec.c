/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: owns the cores, the arena and the tables of one run, checks what a task binds, and
 * starts the cores on it. What a step reads from shared memory before it is used as an index (rows,
 * ids) is copied first, so that it can't change between the check and the use.
 */
#include "src/chip/exec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/error.h"
#include "src/chip/forward.h"
#include "src/chip/pack_run.h"
#include "src/chip/sampler_program.h"

#define ARENA_ALIGN ((size_t)2 << 20) /* so that huge pages fit */

struct ech_exec {
    ech_pool *pool;
    ech_cpu_ops ops;
    const ech_pack_ops *pack_ops;
    char *arena;
    uint64_t arena_bytes;
    ech_row rows[ECH_MAX_ROWS];
    int32_t ids[ECH_MAX_ROWS];
    int32_t logit_rows[ECH_MAX_ROWS];
    ech_row_block blocks[ECH_MAX_ROWS];
};

/* ---- opening ----------------------------------------------------------------------------------
 */

static ech_status alloc_arena(ech_exec *const e, const uint64_t bytes, ech_error *const err)
{
    if (bytes == 0) return ECH_OK;
    const size_t padded = (size_t)((bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN);
    e->arena = bytes <= SIZE_MAX / 2 ? aligned_alloc(ARENA_ALIGN, padded) : NULL;
    if (e->arena == NULL)
        return ech_fail(err, ECH_ENOMEM,
                        "allocating the arena of %llu bytes: out of memory, choose fewer rows in a "
                        "step",
                        (unsigned long long)bytes);
    (void)madvise(e->arena, padded, MADV_HUGEPAGE);
    memset(e->arena, 0, padded); /* here, not in the first step */
    e->arena_bytes = bytes;
    return ECH_OK;
}

static ech_status choose_kernels(ech_exec *const e, const ech_isa isa, ech_error *const err)
{
    uint32_t features = 0;
    ECH_TRY(ech_cpu_features_allowed(&features, err));
    features &= ech_cpu_features_mask(isa);
    ech_cpu_ops_init(&e->ops, features);
    e->pack_ops = ech_pack_ops_for(features);
    return ECH_OK;
}

ech_status ech_exec_create(ech_exec **const ret_exec, const ech_exec_options *const o,
                           ech_error *const err)
{
    ech_exec *e = calloc(1, sizeof(*e));
    if (e == NULL) return ech_fail(err, ECH_ENOMEM, "opening an executor: out of memory");
    const ech_pool_options pool = {
        .n_threads = o->n_threads == 0 ? 1 : o->n_threads,
        .cpus = o->cpus,
        .scratch_bytes = ECH_FORWARD_SCRATCH,
    };
    ech_status rc = choose_kernels(e, o->isa, err);
    if (rc == ECH_OK) rc = alloc_arena(e, o->arena_bytes, err);
    if (rc == ECH_OK) rc = ech_pool_create(&e->pool, &pool, err);
    if (rc != ECH_OK) {
        ech_exec_destroy(&e);
        return rc;
    }
    *ret_exec = e;
    return ECH_OK;
}

void ech_exec_destroy(ech_exec **const exec)
{
    ech_exec *const e = *exec;
    if (e == NULL) return;
    ech_pool_destroy(&e->pool);
    free(e->arena);
    free(e);
    *exec = NULL;
}

ech_pool *ech_exec_pool(ech_exec *const e)
{
    return e->pool;
}

const char *ech_exec_isa_name(const ech_exec *const e)
{
    return e->ops.name;
}

ech_status ech_exec_load(ech_exec *const e, const void *const program, const size_t len,
                         ech_error *const err)
{
    ech_program_kind kind;
    ECH_TRY(ech_program_head_check(program, len, &kind, err));
    if (kind == ECH_PROGRAM_PACK) return ech_pack_check(program, len, err);
    if (kind == ECH_PROGRAM_SAMPLE)
        ECH_TRY(ech_sample_program_check(program, len, err));
    else if (kind == ECH_PROGRAM_FORWARD)
        ECH_TRY(ech_forward_check(program, len, UINT64_MAX, err));
    else
        return ech_fail(err, ECH_EUNSUPPORTED, "loading a program: kind %d is not run here", kind);
    const uint64_t need = ech_program_arena_bytes(program, len);
    if (need > e->arena_bytes)
        return ech_fail(err, ECH_ELIMIT,
                        "loading a program: it needs an arena of %llu bytes, the chip was "
                        "opened with %llu",
                        (unsigned long long)need, (unsigned long long)e->arena_bytes);
    return ECH_OK;
}

/* ---- a step -----------------------------------------------------------------------------------
 */

/* What a step binds, measured. */
typedef struct binding {
    uint64_t n_pages_listed;
    uint64_t n_kv_pages;
    uint64_t n_slots;
} binding;

static ech_status bind_tensors(ech_forward *const f, const ech_exec_args *const a,
                               binding *const ret, ech_error *const err)
{
    if (a->n_tensors != ECH_STEP_TENSORS || a->n_scalars != ECH_STEP_SCALARS)
        return ech_fail(err, ECH_EINVAL,
                        "running a step: %u tensors and %u scalars, needed are %d "
                        "and %d",
                        a->n_tensors, a->n_scalars, ECH_STEP_TENSORS, ECH_STEP_SCALARS);
    const ech_exec_tensor *const t = a->tensors;
    const uint64_t n_rows = a->scalars[ECH_STEP_N_ROWS], n_logits = a->scalars[ECH_STEP_N_LOGITS];
    if (n_rows == 0 || n_rows > f->h->max_rows || n_logits > f->h->max_logits || n_logits > n_rows)
        return ech_fail(err, ECH_EINVAL,
                        "running a step: %llu rows and %llu rows of logits, at most %u and %u",
                        (unsigned long long)n_rows, (unsigned long long)n_logits, f->h->max_rows,
                        f->h->max_logits);
    if (t[ECH_STEP_WEIGHTS].bytes < f->h->image_bytes ||
        t[ECH_STEP_ROWS].bytes < n_rows * sizeof(ech_row) ||
        t[ECH_STEP_LOGITS].bytes < n_logits * f->h->out_width * sizeof(float))
        return ech_fail(err, ECH_EINVAL,
                        "running a step: weights (%zu bytes), rows (%zu) or logits (%zu) are too "
                        "small for the program and %llu rows",
                        t[ECH_STEP_WEIGHTS].bytes, t[ECH_STEP_ROWS].bytes, t[ECH_STEP_LOGITS].bytes,
                        (unsigned long long)n_rows);
    static const uint8_t aligns[ECH_STEP_TENSORS] = { 64, 8, 4, 64, 4, 4 };
    for (int i = 0; i < ECH_STEP_TENSORS; i++)
        if ((uintptr_t)t[i].ptr % aligns[i] != 0)
            return ech_fail(err, ECH_EINVAL, "running a step: tensor %d is not aligned to %u bytes",
                            i, aligns[i]);
    f->n_rows = (uint32_t)n_rows;
    f->n_logits = (uint32_t)n_logits;
    f->image = t[ECH_STEP_WEIGHTS].ptr;
    f->pages = t[ECH_STEP_PAGES].ptr;
    f->kv = t[ECH_STEP_KV].ptr;
    f->sampled = t[ECH_STEP_SAMPLED].ptr;
    f->logits = t[ECH_STEP_LOGITS].ptr;
    *ret = (binding){
        .n_pages_listed = t[ECH_STEP_PAGES].bytes / sizeof(uint32_t),
        .n_kv_pages = t[ECH_STEP_KV].bytes / f->page_bytes,
        .n_slots = t[ECH_STEP_SAMPLED].bytes / sizeof(int32_t),
    };
    return ECH_OK;
}

static ech_status check_row(const ech_forward *const f, const binding *const b, const uint32_t r,
                            ech_error *const err)
{
    const ech_row *const row = &f->rows[r];
    if (row->pos >= f->h->max_positions)
        return ech_fail(err, ECH_EINVAL,
                        "running a step: row %u is at position %u, the limit is %u", r, row->pos,
                        f->h->max_positions);
    if ((uint64_t)row->pages + row->pos / ECH_KV_PAGE >= b->n_pages_listed)
        return ech_fail(err, ECH_EINVAL,
                        "running a step: row %u names page table entry %llu of %llu", r,
                        (unsigned long long)row->pages + row->pos / ECH_KV_PAGE,
                        (unsigned long long)b->n_pages_listed);
    return ECH_OK;
}

static ech_status look_up_id(ech_exec *const e, const ech_forward *const f, const binding *const b,
                             const uint32_t r, ech_error *const err)
{
    int32_t id = f->rows[r].id;
    if (id < 0) {
        const uint32_t slot = (uint32_t)(-1 - id);
        if (slot >= b->n_slots)
            return ech_fail(err, ECH_EINVAL, "running a step: row %u reads sampled id %u of %llu",
                            r, slot, (unsigned long long)b->n_slots);
        id = f->sampled[slot];
    }
    if (id < 0 || (uint32_t)id >= f->h->vocab)
        return ech_fail(err, ECH_EINVAL, "running a step: row %u has token %d, the vocabulary %u",
                        r, id, f->h->vocab);
    e->ids[r] = id;
    return ECH_OK;
}

/* Every row of logits is filled by exactly one row. */
static ech_status map_logits(ech_exec *const e, const ech_forward *const f, ech_error *const err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_logits; i++)
        e->logit_rows[i] = -1;
    for (uint32_t r = 0; r < f->n_rows; r++) {
        const int32_t to = f->rows[r].logit_row;
        if (to < 0) continue;
        if ((uint32_t)to >= f->n_logits || e->logit_rows[to] >= 0)
            return ech_fail(err, ECH_EINVAL,
                            "running a step: row %u wants logit row %d, which is taken or not one "
                            "of %u",
                            r, to, f->n_logits);
        e->logit_rows[to] = (int32_t)r;
        n++;
    }
    if (n != f->n_logits)
        return ech_fail(err, ECH_EINVAL, "running a step: %u rows want logits, the scalar says %u",
                        n, f->n_logits);
    return ECH_OK;
}

static bool continues(const ech_row *const a, const ech_row *const b)
{
    return b->seq == a->seq && b->pages == a->pages && b->pos == a->pos + 1;
}

/* Cuts the rows into blocks and looks at every page that a block will read. */
static ech_status make_blocks(ech_exec *const e, ech_forward *const f, const binding *const b,
                              ech_error *const err)
{
    const uint32_t most = ech_forward_attention_rows(f, ech_pool_n_cores(e->pool));
    f->n_blocks = 0;
    for (uint32_t r = 0; r < f->n_rows;) {
        uint32_t n = 1;
        while (r + n < f->n_rows && n < most && continues(&f->rows[r + n - 1], &f->rows[r + n]))
            n++;
        const ech_row *const last = &f->rows[r + n - 1];
        for (uint32_t i = 0; i <= last->pos / ECH_KV_PAGE; i++)
            if (f->pages[last->pages + i] >= b->n_kv_pages)
                return ech_fail(err, ECH_EINVAL,
                                "running a step: entry %u of row %u's page table is %u, there are "
                                "%llu pages",
                                i, r, f->pages[last->pages + i], (unsigned long long)b->n_kv_pages);
        e->blocks[f->n_blocks++] = (ech_row_block){ r, n };
        r += n;
    }
    return ECH_OK;
}

static ech_status run_forward(ech_exec *const e, const char *const program,
                              const ech_exec_args *const a, ech_error *const err)
{
    const ech_forward_header *const h = (const ech_forward_header *)program;
    const ech_kv_shape kv = { h->n_layers, h->n_kv_heads, h->head_dim, (ech_kv_type)h->kv_type };
    ech_forward f = {
        .k = &e->ops,
        .h = h,
        .ops = (const ech_op *)(program + h->ops_offset),
        .data = program + h->data_offset,
        .rows = e->rows,
        .arena = e->arena,
        .ids = e->ids,
        .logit_rows = e->logit_rows,
        .blocks = e->blocks,
        .page_bytes = ech_kv_page_bytes(&kv),
        .k_bytes = ech_kv_k_bytes(kv.type, kv.head_dim),
        .v_bytes = ech_kv_v_bytes(kv.type, kv.head_dim),
        .poll = a->poll,
        .poll_ctx = a->poll_ctx,
        .stop_at = UINT32_MAX,
    };
    binding b = { 0 };
    ECH_TRY(bind_tensors(&f, a, &b, err));
    memcpy(e->rows, a->tensors[ECH_STEP_ROWS].ptr, f.n_rows * sizeof(ech_row));
    for (uint32_t r = 0; r < f.n_rows; r++) {
        ECH_TRY(check_row(&f, &b, r, err));
        ECH_TRY(look_up_id(e, &f, &b, r, err));
    }
    ECH_TRY(map_logits(e, &f, err));
    ECH_TRY(make_blocks(e, &f, &b, err));
    ech_pool_run(e->pool, ech_forward_core, &f);
    if (f.stop_at != UINT32_MAX) return ech_fail(err, ECH_ECANCELLED, "running a step: cancelled");
    return ECH_OK;
}

ech_status ech_exec_run(ech_exec *const e, const void *const program, const size_t len,
                        const ech_exec_args *const args, ech_error *const err)
{
    const ech_program_head *const head = program;
    if (len < sizeof(*head))
        return ech_fail(err, ECH_EFORMAT, "running a program of %zu bytes", len);
    switch (head->kind) {
    case ECH_PROGRAM_FORWARD:
        return run_forward(e, program, args, err);
    case ECH_PROGRAM_PACK:
        return ech_pack_execute(program, args, e->pool, e->pack_ops, err);
    case ECH_PROGRAM_SAMPLE:
        return ech_sample_run(program, args, e->pool, e->arena, e->arena_bytes, err);
    default:
        return ech_fail(err, ECH_EUNSUPPORTED, "running a program of kind %u", head->kind);
    }
}
