/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes before anything is allocated, and the forward program that some of them come from.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/chip/step.h"
#include "src/model/internal.h"

static ech_kv_shape kv_shape(const ech_model *const m, const ech_kv_type type)
{
    return (ech_kv_shape){
        .n_layers = m->config.n_layers,
        .n_kv_heads = m->config.n_kv_heads,
        .head_dim = m->config.head_dim,
        .type = type,
    };
}

uint64_t ech_model_kv_bytes_per_token(const ech_model *const model, const ech_kv_type type)
{
    const ech_kv_shape shape = kv_shape(model, type);
    return (uint32_t)type < ECH_KV_TYPES ? ech_kv_page_bytes(&shape) / ECH_KV_PAGE : 0;
}

/* Compiles a step. *ret_bytes is the caller's, for free(). */
static ech_status compile(const ech_model *const m, const ech_forward_options *const o,
                          void **const ret_bytes, size_t *const ret_len, ech_error *const err)
{
    const ech_program_shape shape = {
        .max_rows = o->max_rows,
        .max_logits = o->gives_hidden ? o->max_rows : o->max_logits,
        .gives_hidden = o->gives_hidden,
        .max_positions = o->max_positions,
        .vocab = m->config.vocab,
        .n_heads = m->config.n_heads,
        .kv = kv_shape(m, o->kv_type),
        .compute = o->compute,
        .image_bytes = m->layout.image_bytes,
    };
    ech_program_builder *b = NULL;
    ECH_TRY(ech_program_builder_create(&b, &shape, err));
    ech_status rc = m->config.arch->emit(&m->layout, b, err);
    if (rc == ECH_OK) rc = ech_program_builder_finish(b, ret_bytes, ret_len, err);
    ech_program_builder_destroy(&b);
    return rc;
}

static ech_status check_options(const ech_model *const m, const ech_forward_options *const o,
                                ech_error *const err)
{
    if (o->max_rows == 0 || o->max_logits == 0 || o->max_logits > ECH_STEP_MAX_LOGITS ||
        o->max_positions == 0) {
        return ech_fail(err, ECH_EINVAL,
                        "planning %s: expected rows and positions, and 1 to %d rows of logits, "
                        "found %u, %u, %u",
                        m->path, ECH_STEP_MAX_LOGITS, o->max_rows, o->max_positions, o->max_logits);
    }
    return ECH_OK;
}

ech_status ech_model_forward_program(const ech_model *const model,
                                     const ech_forward_options *const opts, ech_buf *const out,
                                     ech_error *const err)
{
    ECH_TRY(check_options(model, opts, err));
    void *bytes = NULL;
    size_t len = 0;
    ECH_TRY(compile(model, opts, &bytes, &len, err));
    ech_status rc = ech_buf_append(out, bytes, len);
    if (rc != ECH_OK) rc = ech_fail(err, rc, "compiling %s: out of memory", model->path);
    free(bytes);
    return rc;
}

ech_status ech_model_pack_program(const ech_model *const model, ech_buf *const out,
                                  ech_error *const err)
{
    return ech_layout_pack_program(&model->layout, out, err);
}

void ech_model_image_begin(const ech_model *const model, void *const image)
{
    ech_image_plan_write(&model->layout.image, image);
}

ech_status ech_model_make_plan(const ech_model *const model, const ech_forward_options *const opts,
                               ech_model_plan *const ret_plan, ech_error *const err)
{
    ECH_TRY(check_options(model, opts, err));
    void *bytes = NULL;
    size_t len = 0;
    ECH_TRY(compile(model, opts, &bytes, &len, err));
    const uint64_t arena = ech_program_arena_bytes(bytes, len);
    free(bytes);
    const ech_kv_shape shape = kv_shape(model, opts->kv_type);
    const uint64_t page = ech_kv_page_bytes(&shape);
    *ret_plan = (ech_model_plan){
        .weights_bytes = model->layout.image_bytes,
        .arena_bytes = arena,
        .kv_page_bytes = page,
        .kv_token_bytes = page / ECH_KV_PAGE,
        .logits_bytes = UINT64_C(4) * opts->max_logits * model->config.vocab,
    };
    return ECH_OK;
}

/* "1.5 GiB" */
static const char *size_text(const uint64_t bytes, char *const buf, const size_t cap)
{
    const double mib = (double)bytes / (1 << 20);
    if (mib >= 1024.0) {
        (void)snprintf(buf, cap, "%.2f GiB", mib / 1024.0);
    } else {
        (void)snprintf(buf, cap, "%.1f MiB", mib);
    }
    return buf;
}

ech_status ech_plan_check(const ech_model *const model, const ech_model_plan *const plan,
                          const uint64_t n_pages, const uint32_t n_chips,
                          const uint64_t available_bytes, ech_error *const err)
{
    uint64_t kv = 0;
    uint64_t step = 0;
    uint64_t total = 0;
    bool over = __builtin_mul_overflow(n_pages, plan->kv_page_bytes, &kv);
    over = __builtin_mul_overflow(plan->arena_bytes, (uint64_t)n_chips, &step) || over;
    over = __builtin_add_overflow(step, plan->logits_bytes, &step) || over;
    over = __builtin_add_overflow(plan->weights_bytes, kv, &total) || over;
    over = __builtin_add_overflow(total, step, &total) || over;
    if (!over && total <= available_bytes) return ECH_OK;

    char w[32];
    char k[32];
    char s[32];
    char t[32];
    char a[32];
    return ech_fail(
        err, ECH_ENOMEM,
        "loading %s: expected at most %s of memory, found a need of %s: weights %s, KV cache %s "
        "for %" PRIu64
        " positions, step %s; choose a smaller --max-seq-len, --kv-type or model, or free memory",
        model->path, size_text(available_bytes, a, sizeof a),
        over ? "2^64 bytes" : size_text(total, t, sizeof t),
        size_text(plan->weights_bytes, w, sizeof w), over ? "?" : size_text(kv, k, sizeof k),
        n_pages * 32, over ? "?" : size_text(step, s, sizeof s));
}
