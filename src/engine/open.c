/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing an engine, in the order of every start: read headers and plan sizes · map
 * regions · register programs · fork · start the thread, which fills the weights · meanwhile read
 * the tokenizer, which takes longer than mapping packed weights does.
 *
 * Nothing is allocated for the model before the plan is known to fit, and no thread of ours exists
 * before the fork. Runs on the caller's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/newfile.h"
#include "src/base/os/process.h"
#include "src/chip/kv.h"
#include "src/chip/sampler_program.h"
#include "src/engine/engine_int.h"
#include "src/engine/machine.h"
#include "src/engine/sizes.h"

_Static_assert(ECH_KV_TOKENS == ECH_KV_PAGE, "the engine's pages are the chip's");

enum { DEFAULT_RUNNING = 32, DEFAULT_QUEUED = 2048, DEFAULT_CHUNK = 256, MAX_CHUNK = 512 };
#define DEFAULT_QUEUED_TOKENS (UINT64_C(4) << 20)
#define DEFAULT_EVENT_BYTES   (UINT64_C(1) << 20)

void ech_engine_options_default(ech_engine_options *o)
{
    *o = (ech_engine_options){ .struct_size = sizeof *o };
}

/* ---- options ---- */

static ech_status check_option(const char *name, uint64_t value, uint64_t max, ech_error *err)
{
    if (value <= max) return ECH_OK;
    return ech_fail_argument(err, ECH_EINVAL, name, "%s is %llu, must be at most %llu", name,
                             (unsigned long long)value, (unsigned long long)max);
}

static ech_status check_options(const ech_engine_options *o, ech_error *err)
{
    if (o->struct_size != sizeof *o)
        return ech_fail_argument(err, ECH_EINVAL, "struct_size",
                                 "struct_size is not set; call ech_engine_options_default() first");
    ECH_TRY(check_option("max_running", o->max_running, ECH_SCHED_MAX_RUNNING, err));
    ECH_TRY(check_option("prefill_chunk", o->prefill_chunk, MAX_CHUNK, err));
    ECH_TRY(check_option("threads", o->threads, ECH_CPU_MAX_THREADS, err));
    ECH_TRY(check_option("kv_type", o->kv_type, ECH_KV_TYPES - 1, err));
    ECH_TRY(check_option("compute", o->compute, ECH_COMPUTE_BF16, err));
    ECH_TRY(check_option("load", o->load, ECH_LOAD_MAP, err));
    ECH_TRY(check_option("quantize", o->quantize, ECH_QUANTIZE_Q6, err));
    ECH_TRY(check_option("pooling", o->pooling, ECH_POOLING_CLS, err));
    if (o->platform != NULL && ech_platform_find(o->platform) == NULL)
        return ech_fail_argument(err, ECH_EINVAL, "platform",
                                 "there is no platform '%s', there are: %s", o->platform,
                                 ech_platform_names());
    for (size_t i = 0; i < o->n_devices; i++)
        if (o->device_ids[i] != 0)
            return ech_fail_argument(err, ECH_EINVAL, "device_ids",
                                     "there is no device %d, this machine has one, 0",
                                     o->device_ids[i]);
    return check_option("n_devices", o->n_devices, 1, err);
}

static void fill_defaults(ech_engine_options *o)
{
    if (o->platform == NULL) o->platform = "cpu";
    if (o->max_running == 0) o->max_running = DEFAULT_RUNNING;
    if (o->max_queued == 0) o->max_queued = DEFAULT_QUEUED;
    if (o->max_queued_tokens == 0) o->max_queued_tokens = DEFAULT_QUEUED_TOKENS;
    if (o->prefill_chunk == 0) o->prefill_chunk = DEFAULT_CHUNK;
    if (o->chip_deaths == 0) o->chip_deaths = 3;
    if (o->event_bytes == 0) o->event_bytes = DEFAULT_EVENT_BYTES;
}

/* ---- programs and worker ---- */

static ech_status register_programs(ech_engine *e, const ech_sizes *s, uint32_t n_threads,
                                    uint64_t *ret_arena_bytes, ech_error *err)
{
    ech_buf forward = { 0 }, embed = { 0 };
    ech_forward_options hidden = s->forward;
    hidden.gives_hidden = true;
    void *sample = NULL;
    size_t sample_len = 0;
    ech_programs *const p = &e->programs;
    ech_worker *const w = e->worker;
    ech_status rc = ech_load_register(e, err);
    if (rc == ECH_OK) rc = ech_model_forward_program(e->model, &s->forward, &forward, err);
    if (rc == ECH_OK) rc = ech_model_forward_program(e->model, &hidden, &embed, err);
    if (rc == ECH_OK)
        rc = ech_sample_program(s->shape.vocab, s->shape.max_seq_len, n_threads, &sample,
                                &sample_len, err);
    if (rc == ECH_OK)
        rc = ech_worker_register_program(w, "forward", "prefill", forward.data, forward.len,
                                         &p->prefill, err);
    if (rc == ECH_OK)
        rc = ech_worker_register_program(w, "forward", "decode", forward.data, forward.len,
                                         &p->decode, err);
    if (rc == ECH_OK)
        rc =
            ech_worker_register_program(w, "sample", "sample", sample, sample_len, &p->sample, err);
    if (rc == ECH_OK)
        rc = ech_worker_register_program(w, "forward", "embed", embed.data, embed.len, &p->embed,
                                         err);
    if (rc == ECH_OK) {
        const uint64_t arena = ech_sample_program_arena_bytes(sample);
        *ret_arena_bytes = arena > s->plan.arena_bytes ? arena : s->plan.arena_bytes;
    }
    ech_buf_fini(&forward);
    ech_buf_fini(&embed);
    free(sample);
    return rc;
}

static ech_status open_worker(ech_engine *e, ech_cpu_options *cpu, ech_error *err)
{
    const bool is_cpu = e->chip_options == NULL && strcmp(e->options.platform, "cpu") == 0;
    const void *const blobs[1] = { is_cpu ? cpu : e->chip_options };
    const size_t blob_bytes[1] = { is_cpu ? sizeof *cpu : e->chip_options_bytes };
    ech_worker_options wo = ech_worker_options_default();
    wo.name = "engine";
    wo.n_chips = 1;
    wo.chip_ops = ech_platform_find(e->options.platform);
    wo.chip_options = blobs;
    wo.chip_options_bytes = blob_bytes;
    wo.trace = e->trace_path != NULL;
    return ech_worker_create(&e->worker, &wo, err);
}

/* The arena's size must be known to make the worker, and programs are registered with a worker:
 * the sample program is made twice, which costs nothing. */
static ech_status plan_arena(const ech_sizes *s, uint32_t n_threads, uint64_t *ret_bytes,
                             ech_error *err)
{
    void *sample = NULL;
    size_t len;
    ECH_TRY(
        ech_sample_program(s->shape.vocab, s->shape.max_seq_len, n_threads, &sample, &len, err));
    const uint64_t bytes = ech_sample_program_arena_bytes(sample);
    free(sample);
    *ret_bytes = bytes > s->plan.arena_bytes ? bytes : s->plan.arena_bytes;
    return ECH_OK;
}

/* ---- opening ---- */

static ech_status open_model(ech_engine *e, const ech_engine_options *o, ech_error *err)
{
    const ech_model_options options = {
        .struct_size = sizeof(ech_model_options),
        .quantize = o->quantize,
    };
    ECH_TRY(ech_model_open_with(&e->model, o->model_dir, &options, err));
    ech_model_get_info(e->model, &e->model_info);
    ECH_TRY(ech_load_find(e, err));
    for (uint32_t i = 0; ech_model_warning_at(e->model, i) != NULL; i++)
        ech_log(ECH_LOG_WARN, "%s: %s", e->model_info.path, ech_model_warning_at(e->model, i));
    return ECH_OK;
}

static void set_limits(ech_engine *e, const ech_sizes *s)
{
    const ech_model_ids *const ids = ech_model_get_ids(e->model);
    e->limits = (ech_request_limits){
        .vocab = s->shape.vocab,
        .max_seq_len = s->shape.max_seq_len,
        .pool_tokens = (uint64_t)s->shape.n_pages * ECH_KV_PAGE,
        .max_lists = ECH_MAX_LISTS,
        .max_answers = e->options.max_queued,
        .eos_ids = ids->eos,
        .n_eos_ids = ids->n_eos,
        .hidden = s->shape.hidden,
        .pooling = e->options.pooling,
    };
    /* Answers need no pooling: a model whose own can't be computed serves them all the same. */
    if (e->limits.pooling == ECH_POOLING_MODEL &&
        ech_model_pooling(e->model, &e->limits.pooling, &e->limits.why_no_pooling) == ECH_OK)
        e->limits.why_no_pooling = (ech_error){ .code = ECH_OK };
    e->inbox->max_waiting = e->options.max_queued;
    e->inbox->max_waiting_ids = e->options.max_queued_tokens;
}

static void copy_page(void *ctx, uint32_t from, uint32_t to)
{
    const ech_memory *const m = ctx;
    memcpy(m->kv.ptr + to * m->shape.page_bytes, m->kv.ptr + from * m->shape.page_bytes,
           m->shape.page_bytes);
}

/* Positions whose keys and values cost a row as much as its weights. Attention's products run at
 * about half the speed of the weights'; what that is off is learned as part of the row's cost. */
static uint32_t depth_unit(const ech_model_info *m)
{
    const uint64_t head = (uint64_t)m->vocab * m->hidden;
    const uint64_t weights = m->n_params_step > head ? m->n_params_step - head : m->n_params_step;
    const uint64_t position = UINT64_C(2) * m->n_layers * m->n_heads * m->head_dim;
    const uint64_t unit = weights / (2 * position);
    return unit < UINT32_MAX ? (uint32_t)unit : UINT32_MAX;
}

/* Rows whose products take as long as reading keys and values does: six rows of queries for each
 * head of keys, measured on machines with AVX-512 and with AVX2 only (docs/engine.md). */
static uint32_t read_rows(const ech_model_info *m)
{
    const uint32_t n = 6 * m->n_kv_heads / m->n_heads;
    return n > 1 ? n : 1;
}

static ech_status open_scheduler(ech_engine *e, const ech_sizes *s, ech_error *err)
{
    uint64_t seed;
    ech_os_random(&seed, sizeof seed);
    ECH_TRY(ech_kv_init(&e->kv, s->shape.n_pages, seed, err));
    if (ech_sched_init(&e->sched, &e->kv, s->shape.max_running, s->shape.max_rows,
                       ECH_STEP_MAX_LOGITS) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "making the scheduler: out of memory");
    e->sched.max_prompt_rows = e->options.prefill_chunk;
    e->sched.depth_unit = depth_unit(&e->model_info);
    e->sched.read_rows = read_rows(&e->model_info);
    e->sched.copy_page = copy_page;
    e->sched.copy_ctx = &e->memory;
    e->sched.no_cache = e->options.no_prefix_cache;
    return ECH_OK;
}

static void log_lines(const char *text)
{
    for (size_t n; *text != '\0'; text += n + 1) {
        n = strcspn(text, "\n");
        ech_log(ECH_LOG_INFO, "%.*s", (int)n, text);
    }
}

static ech_status start(ech_engine *e, const ech_engine_options *options, ech_error *err)
{
    ech_sizes s;
    ech_machine machine;
    uint64_t registered_arena;
    ech_cpu_options cpu = { .struct_size = sizeof cpu, .isa = ECH_ISA_AUTO };
    ECH_TRY(open_model(e, options, err));
    const char *limited_by;
    const uint64_t available = ech_memory_available(&limited_by);
    ECH_TRY(ech_sizes_plan(e, available, limited_by, &s, err));
    const char *const oversubscribe = getenv("ECHELON_OVERSUBSCRIBE");
    ech_os_machine(&machine);
    ech_machine_plan_cores(&machine, e->options.threads,
                           oversubscribe != NULL && strcmp(oversubscribe, "1") == 0, &cpu);
    e->options.threads = cpu.n_threads;
    ECH_TRY(plan_arena(&s, cpu.n_threads, &cpu.arena_bytes, err));
    ECH_TRY(ech_sizes_describe(e, &s, &cpu, &e->plan_text, err));
    log_lines(e->plan_text);
    ECH_TRY(ech_inbox_create(&e->inbox, err));
    set_limits(e, &s);
    ECH_TRY(open_worker(e, &cpu, err));
    ECH_TRY(ech_memory_map(&e->memory, e->worker, &s.shape, e->model,
                           e->loading.has_file ? &e->loading.file : NULL, e->loading.is_mapped,
                           err));
    ECH_TRY(register_programs(e, &s, cpu.n_threads, &registered_arena, err));
    ECH_ASSERT(registered_arena == cpu.arena_bytes);
    ECH_TRY(ech_worker_init(e->worker, err));
    ECH_TRY(open_scheduler(e, &s, err));
    if (pthread_create(&e->thread, NULL, ech_engine_thread, e) != 0)
        return ech_fail_errno(err, ECH_EOS, "starting the engine's thread");
    e->thread_runs = true;
    /* Requests alone need it, and there are none before this returns. */
    return ech_load_tokenizer(e, err);
}

ech_status ech_engine_open(ech_engine **ret_engine, const ech_engine_options *options,
                           ech_error *err)
{
    const ech_open_how how = { 0 };
    return ech_engine_open_how(ret_engine, options, &how, err);
}

ech_status ech_engine_open_on(ech_engine **ret_engine, const ech_engine_options *options,
                              const void *chip_options, size_t chip_options_bytes, ech_error *err)
{
    const ech_open_how how = { .chip_options = chip_options,
                               .chip_options_bytes = chip_options_bytes };
    return ech_engine_open_how(ret_engine, options, &how, err);
}

/* A trace is written at the end, when it is too late to say that there is no such folder. */
static ech_status take_trace_path(ech_engine *e, const char *path, ech_error *err)
{
    if (path == NULL) return ECH_OK;
    ECH_TRY(ech_new_file_try(path, err));
    e->trace_path = strdup(path);
    if (e->trace_path == NULL) return ech_fail(err, ECH_ENOMEM, "making an engine: out of memory");
    return ECH_OK;
}

ech_status ech_engine_open_how(ech_engine **ret_engine, const ech_engine_options *options,
                               const ech_open_how *how, ech_error *err)
{
    ECH_TRY(check_options(options, err));
    ech_engine *e = calloc(1, sizeof *e);
    if (e == NULL) return ech_fail(err, ECH_ENOMEM, "making an engine: out of memory");
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_mutex_init(&e->vocab_lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&e->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    e->options = *options;
    e->chip_options = how->chip_options;
    e->chip_options_bytes = how->chip_options_bytes;
    e->loading.is_packing = how->is_packing;
    e->loading.output = how->output;
    fill_defaults(&e->options);
    ech_status rc = take_trace_path(e, options->trace_path, err);
    if (rc == ECH_OK) rc = start(e, options, err);
    if (rc != ECH_OK) {
        (void)ech_engine_close(&e);
        return rc;
    }
    *ret_engine = e;
    return ECH_OK;
}

/* ---- closing ---- */

static void stop_thread(ech_engine *e)
{
    if (!e->thread_runs) return;
    (void)pthread_mutex_lock(&e->lock);
    e->is_closing = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
    ech_inbox_ring(e->inbox);
    (void)pthread_join(e->thread, NULL);
}

static ech_status write_trace(const ech_engine *e)
{
    ech_error err;
    if (e->worker == NULL || e->trace_path == NULL || !e->thread_runs) return ECH_OK;
    const ech_status rc = ech_worker_trace_write(e->worker, e->trace_path, &err);
    if (rc != ECH_OK) ech_log(ECH_LOG_ERROR, "the trace is lost: %s", err.text);
    return rc;
}

ech_status ech_engine_close(ech_engine **engine)
{
    ech_engine *e;
    ech_error err = { .code = ECH_OK };
    if (engine == NULL || (e = *engine) == NULL) return ECH_OK;
    *engine = NULL;
    stop_thread(e);
    ech_load_fini(e);
    const ech_status traced = write_trace(e);
    if (e->worker != NULL && ech_worker_close(&e->worker, &err) != ECH_OK)
        ech_log(ECH_LOG_ERROR, "closing the worker: %s", err.text);
    if (e->sched.kv != NULL) ech_sched_fini(&e->sched);
    ech_kv_fini(&e->kv);
    ech_memory_fini(&e->memory);
    ech_tokenizer_close(&e->tokenizer);
    ech_model_close(&e->model);
    ech_inbox_unref(&e->inbox);
    free(e->plan_text);
    free(e->trace_path);
    ech_mask_vocab_unref(&e->mask_vocab);
    (void)pthread_mutex_destroy(&e->vocab_lock);
    (void)pthread_mutex_destroy(&e->lock);
    (void)pthread_cond_destroy(&e->changed);
    free(e);
    return traced;
}
