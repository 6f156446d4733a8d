/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on an open engine. Any thread; what they read is constant, or under the engine's
 * lock.
 */
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/chip/kv.h"
#include "src/engine/engine_int.h"

ech_status ech_engine_wait_ready(ech_engine *e, int timeout_ms, ech_load_progress *ret_progress,
                                 ech_error *err)
{
    const int64_t end = ech_now_ns() + timeout_ms * ECH_NS_PER_MS;
    const struct timespec until = { .tv_sec = end / ECH_NS_PER_S, .tv_nsec = end % ECH_NS_PER_S };
    ech_status rc = ECH_OK;
    (void)pthread_mutex_lock(&e->lock);
    while (e->state == ECH_ENGINE_LOADING && timeout_ms != 0) {
        if (timeout_ms < 0)
            (void)pthread_cond_wait(&e->changed, &e->lock);
        else if (pthread_cond_timedwait(&e->changed, &e->lock, &until) != 0)
            break;
    }
    if (e->state == ECH_ENGINE_LOADING)
        rc = ech_fail(err, ECH_ETIMEOUT, "waiting for the weights: not there yet");
    else if (e->state == ECH_ENGINE_FAILED)
        rc = ech_fail(err, e->failure.code, "%s", e->failure.text);
    const bool is_ready = e->state == ECH_ENGINE_READY;
    (void)pthread_mutex_unlock(&e->lock);
    if (ret_progress != NULL) {
        ret_progress->total = e->memory.weights.bytes;
        ret_progress->done = is_ready ? ret_progress->total : ech_memory_weights_filled(&e->memory);
    }
    return rc;
}

/* Integer products for quantised weights, bf16 where it was asked for: what most bytes take. */
static ech_meter_kind main_product(const ech_engine *e)
{
    uint64_t bytes[ECH_METER_KINDS] = { 0 };
    ech_model_tensor t = { 0 };
    for (uint32_t i = 0; ech_model_tensor_at(e->model, i, &t) == ECH_OK; i++) {
        ech_meter_kind kind = t.packed_type[0] == 'q' ? ECH_METER_INT8 : ECH_METER_F32;
        if (e->options.compute == ECH_COMPUTE_BF16 && strcmp(t.packed_type, "bf16") == 0)
            kind = ECH_METER_BF16;
        if (t.read_per_step) bytes[kind] += t.packed_bytes;
    }
    if (bytes[ECH_METER_INT8] >= bytes[ECH_METER_BF16] + bytes[ECH_METER_F32])
        return ECH_METER_INT8;
    return bytes[ECH_METER_BF16] > bytes[ECH_METER_F32] ? ECH_METER_BF16 : ECH_METER_F32;
}

void ech_engine_info_get(const ech_engine *e, ech_engine_info *ret_info)
{
    const ech_memory_shape *const shape = &e->memory.shape;
    const ech_engine_info info = {
        .struct_size = ret_info->struct_size,
        .architecture = e->model_info.architecture,
        .plan = e->plan_text,
        .vocab_size = shape->vocab,
        .max_seq_len = shape->max_seq_len,
        .model_max_seq_len = e->model_info.max_context,
        .page_tokens = ECH_KV_PAGE,
        .n_pages = shape->n_pages,
        .page_bytes = shape->page_bytes,
        .weights_bytes = shape->weights_bytes,
        .max_running = shape->max_running,
        .prefill_chunk = e->options.prefill_chunk,
        .threads = e->options.threads,
        .eos_ids = e->limits.eos_ids,
        .n_eos_ids = e->limits.n_eos_ids,
        .model_dir = e->model_info.path,
        .step_bytes = e->model_info.step_bytes,
        .step_params = e->model_info.n_params_step,
        .layer_params =
            e->model_info.n_params_step - (uint64_t)e->model_info.vocab * e->model_info.hidden,
        .product = main_product(e),
        .embedding_size = shape->hidden,
        .pooling = e->limits.pooling,
    };
    const size_t size = ret_info->struct_size < sizeof info ? ret_info->struct_size : sizeof info;
    memcpy(ret_info, &info, size);
}

const struct ech_tokenizer *ech_engine_tokenizer(const ech_engine *e)
{
    return e->tokenizer;
}

const char *ech_engine_chat_template(const ech_engine *e, size_t *ret_len)
{
    ech_str text = { 0 };
    if (!ech_model_meta_str(e->model, "tokenizer.chat_template", &text)) return NULL;
    *ret_len = text.len;
    return text.ptr;
}

void ech_engine_sampling_default(const ech_engine *e, ech_sampling *s)
{
    const ech_sampling_defaults *const d = ech_model_get_sampling(e->model);
    ech_sampling_default(s);
    if (d->has_temperature) s->temperature = d->temperature;
    if (d->has_top_k) s->top_k = (int32_t)d->top_k;
    if (d->has_top_p) s->top_p = d->top_p;
    if (d->has_min_p) s->min_p = d->min_p;
    if (d->has_repetition_penalty) s->repetition_penalty = d->repetition_penalty;
    if (d->has_do_sample && !d->do_sample) s->temperature = 0;
}

ech_status ech_engine_mask_vocab(ech_engine *e, struct ech_mask_vocab **ret_vocab, ech_error *err)
{
    ech_status rc = ECH_OK;
    (void)pthread_mutex_lock(&e->vocab_lock); /* held for 50 ms once; nobody else needs it */
    if (e->mask_vocab == NULL)
        rc = ech_mask_vocab_from_tokenizer(e->tokenizer, e->limits.eos_ids, e->limits.n_eos_ids,
                                           &e->mask_vocab, err);
    if (rc == ECH_OK) *ret_vocab = ech_mask_vocab_ref(e->mask_vocab);
    (void)pthread_mutex_unlock(&e->vocab_lock);
    return rc;
}

ech_status ech_engine_submit(ech_engine *e, const ech_request_options *options,
                             ech_request **ret_request, ech_error *err)
{
    ech_request *r;
    ECH_TRY(ech_request_create(&r, &e->limits, options, err));
    uint64_t n_ids = 0;
    for (uint32_t i = 0; i < r->n_answers; i++)
        n_ids += r->answers[i].seq.n_prompt;
    r->inbox = e->inbox;
    ech_inbox_ref(e->inbox);
    ech_request_ref(r); /* the engine's */
    const ech_status rc = ech_inbox_put(e->inbox, r, r->n_answers, n_ids, err);
    if (rc == ECH_OK) {
        *ret_request = r;
        return ECH_OK;
    }
    ech_request *const again = r;
    ech_request_unref(&r);
    r = again;
    ech_request_unref(&r);
    return rc;
}

void ech_engine_counters_get(ech_engine *e, ech_engine_counters *ret_counters)
{
    const size_t size = ret_counters->struct_size;
    (void)pthread_mutex_lock(&e->lock);
    ech_engine_counters c = e->counters;
    (void)pthread_mutex_unlock(&e->lock);
    (void)pthread_mutex_lock(&e->inbox->lock);
    c.queued = e->inbox->waiting;
    c.queued_tokens = e->inbox->waiting_ids;
    c.requests_refused = e->inbox->n_refused;
    (void)pthread_mutex_unlock(&e->inbox->lock);
    c.struct_size = size;
    c.pages_total = e->memory.shape.n_pages;
    memcpy(ret_counters, &c, size < sizeof c ? size : sizeof c);
}

size_t ech_engine_rings_get(ech_engine *const e, ech_engine_ring *const ret_rings, const size_t cap)
{
    ech_worker_counters c;
    ech_worker_snapshot(e->worker, &c);
    const struct {
        const char *name;
        const ech_ring_counters *of_depth; /* [ECH_RINGS] */
    } KINDS[] = { { "heap", c.heap },
                  { "task_window", c.task_window },
                  { "dep_pool", c.dep_pool } };
    const size_t n_kinds = sizeof KINDS / sizeof KINDS[0];
    for (size_t i = 0; i < n_kinds * ECH_RINGS && i < cap; i++) {
        const uint32_t depth = (uint32_t)(i % ECH_RINGS);
        const ech_ring_counters *const r = &KINDS[i / ECH_RINGS].of_depth[depth];
        ret_rings[i] = (ech_engine_ring){ .name = KINDS[i / ECH_RINGS].name,
                                          .depth = depth,
                                          .capacity = r->capacity,
                                          .used = r->used,
                                          .high_water = r->high_water };
    }
    return n_kinds * ECH_RINGS;
}
