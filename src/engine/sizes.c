/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of an engine. See sizes.h. Runs on the thread that opens it. */
#include "src/engine/sizes.h"

#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/chip/forward.h"
#include "src/engine/machine.h"

#define MIB (1024.0 * 1024.0)
#define GIB (1024.0 * MIB)

static const char *limit_name(const ech_sizes *s)
{
    return s->limited_by != NULL ? s->limited_by : "memory";
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* Pages for max_running answers of full length, within half of what is left after the weights; for
 * one, within seven eighths of it. */
static uint64_t default_pages(const ech_engine_options *o, const ech_sizes *s,
                              uint64_t pages_of_one)
{
    const uint64_t rest = s->plan.weights_bytes + s->plan.arena_bytes + s->plan.logits_bytes;
    const uint64_t left = s->available > rest ? s->available - rest : 0;
    uint64_t n = at_most(o->max_running * pages_of_one, left / 2 / s->plan.kv_page_bytes);
    if (n < pages_of_one) n = at_most(pages_of_one, left / 8 * 7 / s->plan.kv_page_bytes);
    /* A length that was asked for counts; whether it fits is checked with everything else. */
    return o->max_seq_len > 0 && n < pages_of_one ? pages_of_one : n;
}

static ech_status plan_pages(const ech_engine_options *o, ech_sizes *s, ech_error *err)
{
    const uint64_t pages_of_one = ech_memory_table_len(&s->shape);
    uint64_t n =
        o->kv_memory > 0 ? o->kv_memory / s->plan.kv_page_bytes : default_pages(o, s, pages_of_one);
    if (n == 0 && o->kv_memory > 0)
        return ech_fail_argument(err, ECH_EINVAL, "kv_memory",
                                 "kv_memory is %llu bytes, one page of %d positions takes %llu",
                                 (unsigned long long)o->kv_memory, ECH_KV_PAGE,
                                 (unsigned long long)s->plan.kv_page_bytes);
    if (n == 0) n = 1; /* the check of the whole plan says what is missing */
    s->shape.n_pages = (uint32_t)at_most(n, UINT32_C(1) << 30);
    return ECH_OK;
}

/* A pool that was asked for has the length that it has. */
static void warn_of_short_context(const ech_engine *e, const ech_sizes *s)
{
    if (e->options.kv_memory > 0 || s->shape.max_seq_len >= s->forward.max_positions) return;
    ech_log(ECH_LOG_WARN,
            "the context is %u positions of the model's %u: keys and values of all of them would "
            "take %.1f GiB, and %.1f GiB are free (%s), weights included; a smaller --kv-type or "
            "--quantize leaves more",
            s->shape.max_seq_len, e->model_info.max_context,
            (double)s->forward.max_positions / ECH_KV_PAGE * (double)s->plan.kv_page_bytes / GIB,
            (double)s->available / GIB, limit_name(s));
}

ech_status ech_sizes_plan(const ech_engine *e, uint64_t available, const char *limited_by,
                          ech_sizes *s, ech_error *err)
{
    const ech_engine_options *const o = &e->options;
    const uint32_t model_max = e->model_info.max_context;
    if (o->max_seq_len > model_max)
        return ech_fail_argument(
            err, ECH_EINVAL, "max_seq_len",
            "max_seq_len is %u, the model was made for %u positions; choose at most "
            "that",
            o->max_seq_len, model_max);
    const uint32_t max_seq_len = o->max_seq_len > 0 ? o->max_seq_len : model_max;
    *s = (ech_sizes){ .forward = { .max_rows = o->prefill_chunk + o->max_running,
                                   .max_logits = ECH_STEP_MAX_LOGITS,
                                   .max_positions = max_seq_len,
                                   .kv_type = o->kv_type,
                                   .compute = o->compute } };
    ECH_TRY(ech_model_make_plan(e->model, &s->forward, &s->plan, err));
    s->available = available;
    s->limited_by = limited_by;
    s->shape = (ech_memory_shape){
        .max_rows = s->forward.max_rows,
        .max_running = o->max_running,
        .max_seq_len = max_seq_len,
        .vocab = e->model_info.vocab,
        .hidden = e->model_info.hidden,
        .page_bytes = s->plan.kv_page_bytes,
        .weights_bytes = s->plan.weights_bytes,
    };
    ECH_TRY(plan_pages(o, s, err));
    const uint64_t pool_tokens = (uint64_t)s->shape.n_pages * ECH_KV_PAGE;
    if (o->max_seq_len == 0 && pool_tokens < max_seq_len)
        s->shape.max_seq_len = (uint32_t)pool_tokens;
    ECH_TRY(ech_plan_check(e->model, &s->plan, s->shape.n_pages, 1, s->available, err));
    warn_of_short_context(e, s);
    return ECH_OK;
}

/* ---- in words ---- */

/* What a decode step reads, by the type in memory. */
typedef struct class_bytes {
    uint64_t of[ECH_PACK_COUNT];
} class_bytes;

static class_bytes count_classes(const ech_model *model)
{
    class_bytes c = { { 0 } };
    for (uint32_t i = 0; i < ech_model_n_tensors(model); i++) {
        ech_model_tensor t;
        if (ech_model_tensor_at(model, i, &t) != ECH_OK || !t.read_per_step || t.n_dims < 2)
            continue;
        for (uint32_t w = 0; w < ECH_PACK_COUNT; w++)
            if (strcmp(t.packed_type, ech_pack_type_name((ech_pack_type)w)) == 0)
                c.of[w] += t.packed_bytes;
    }
    return c;
}

/* Which instructions each class of tensors is multiplied with. */
static ech_status describe_kernels(const ech_engine *e, ech_buf *b, ech_error *err)
{
    uint32_t features;
    ECH_TRY(ech_cpu_features_allowed(&features, err));
    const class_bytes c = count_classes(e->model);
    const ech_pack_type kv = ech_kv_panel_type(e->options.kv_type);
    ECH_TRY(ech_buf_puts(b, "kernels: "));
    for (uint32_t w = 0; w < ECH_PACK_COUNT; w++) {
        if (c.of[w] == 0) continue;
        const ech_act_type act = ech_act_of((ech_pack_type)w, e->options.compute);
        ECH_TRY(ech_buf_printf(b, "%s weights × %s by %s, %.1f MiB a step · ",
                               ech_pack_type_name((ech_pack_type)w), ech_machine_act_name(act),
                               ech_machine_kernel((ech_pack_type)w, act, features),
                               (double)c.of[w] / MIB));
    }
    return ech_buf_printf(b, "%s keys and values × f32 by %s\n",
                          ech_kv_type_name(e->options.kv_type),
                          ech_machine_kernel(kv, ECH_ACT_F32, features));
}

static ech_status describe(const ech_engine *e, const ech_sizes *s, const ech_cpu_options *cpu,
                           ech_buf *b, ech_error *err)
{
    ECH_TRY(ech_buf_printf(
        b,
        "weights %.1f MiB · KV %u pages of %d positions, %.1f MiB (%s) · step %.1f MiB · arena "
        "%.1f MiB\n"
        "free %.1f MiB (%s) · context %u of the model's %u · %u answers at a time · prefill %u "
        "rows a step\n"
        "chip 0: %s, %u threads%s\n",
        (double)s->plan.weights_bytes / MIB, s->shape.n_pages, ECH_KV_PAGE,
        (double)s->shape.n_pages * (double)s->plan.kv_page_bytes / MIB,
        ech_kv_type_name(e->options.kv_type), (double)ech_memory_step_bytes(&s->shape) / MIB,
        (double)s->plan.arena_bytes / MIB, (double)s->available / MIB, limit_name(s),
        s->shape.max_seq_len, e->model_info.max_context, s->shape.max_running,
        e->options.prefill_chunk, e->options.platform, cpu->n_threads, cpu->pin ? ", pinned" : ""));
    return strcmp(e->options.platform, "cpu") == 0 ? describe_kernels(e, b, err) : ECH_OK;
}

ech_status ech_sizes_describe(const ech_engine *e, const ech_sizes *s, const ech_cpu_options *cpu,
                              char **ret_text, ech_error *err)
{
    ech_buf b = { 0 };
    const ech_status rc = describe(e, s, cpu, &b, err);
    *ret_text = b.data;
    if (rc == ECH_ENOMEM) return ech_fail(err, rc, "writing the plan: out of memory");
    return rc;
}
