/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building and sending a step. See step.h for the order, memory.h for who may write what when.
 */
#include "src/engine/step.h"

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/engine/sampling.h"

/* Where an answer's drawn id stands in the ids tensor: by slot and the parity of the step. */
static int32_t id_slot(const ech_seq *seq, uint32_t parity)
{
    return (int32_t)(parity * ECH_SCHED_MAX_RUNNING + seq->slot);
}

static int32_t *slot_history(const ech_memory *m, uint32_t slot)
{
    return (int32_t *)(void *)m->history.ptr + (uint64_t)slot * m->shape.max_seq_len;
}

static int32_t *slot_lists(const ech_memory *m, uint32_t slot)
{
    return (int32_t *)(void *)m->lists.ptr + (uint64_t)slot * ECH_LISTS_PER_SLOT;
}

void ech_step_prepare_slot(const ech_memory *m, ech_answer *a)
{
    a->n_history = 0;
    float *const state = (float *)(void *)m->state.ptr + 2 * (size_t)a->seq.slot;
    const uint32_t n_done = a->seq.n_ids - a->seq.n_prompt;
    state[n_done & 1] = a->mu;
    ech_sampler_row *const row = &a->row;
    ech_sampler_row_init(row);
    ech_sampling_fill(row, &a->request->sampling, &a->request->breakers, a->request->stop_ids,
                      a->request->n_stop_ids, slot_lists(m, a->seq.slot),
                      a->seq.slot * ECH_LISTS_PER_SLOT);
    row->seed = a->seed;
    row->min_tokens = a->request->min_tokens;
    row->want_logprob = a->request->logprobs >= 0;
    row->n_top = a->request->logprobs > 0 ? (uint32_t)a->request->logprobs : 0;
    row->state_slot = a->seq.slot;
}

/* ---- forward rows ---- */

static void write_table(const ech_memory *m, const ech_seq *seq)
{
    uint32_t *const table =
        (uint32_t *)(void *)m->tables.ptr + (uint64_t)seq->slot * ech_memory_table_len(&m->shape);
    memcpy(table, seq->pages, seq->n_pages * sizeof *table);
}

static void write_row(const ech_step *step, const ech_memory *m, const ech_seq *seq, uint32_t pos,
                      int32_t logit_row, ech_row *row)
{
    *row = (ech_row){
        .seq = seq->slot,
        .pos = pos,
        .id = pos < seq->n_ids ? seq->ids[pos] : -1 - id_slot(seq, step->parity ^ 1),
        .pages = seq->slot * ech_memory_table_len(&m->shape),
        .logit_row = logit_row,
    };
}

/* ---- sampler rows ---- */

static void write_history(const ech_memory *m, ech_answer *a)
{
    int32_t *const history = slot_history(m, a->seq.slot);
    if (a->n_history > a->seq.n_ids) a->n_history = a->seq.n_ids; /* some were forgotten */
    memcpy(history + a->n_history, a->seq.ids + a->n_history,
           (a->seq.n_ids - a->n_history) * sizeof *history);
    a->n_history = a->seq.n_ids;
}

static void write_score_row(const ech_draw *d, uint32_t logit_row, ech_sampler_row *row)
{
    ech_sampler_row_init(row);
    row->mode = ECH_SAMPLE_SCORE;
    row->logit_row = logit_row;
    row->target_id = d->answer->seq.ids[d->pos];
    row->out_slot = -1;
    row->want_logprob = 1;
    const ech_request *const r = d->answer->request;
    const int32_t wanted = d->pos < d->answer->seq.n_prompt ? r->prompt_logprobs : r->logprobs;
    row->n_top = wanted > 0 ? (uint32_t)wanted : 0;
}

static void write_draw_row(const ech_step *step, const ech_memory *m, const ech_draw *d,
                           uint32_t logit_row, ech_sampler_row *row)
{
    ech_answer *const a = d->answer;
    const ech_seq *const seq = &a->seq;
    *row = a->row;
    row->pos = d->pos;
    row->logit_row = logit_row;
    row->out_slot = id_slot(seq, step->parity);
    row->n_done = d->pos - seq->n_prompt;
    row->state_parity = row->n_done & 1;
    if (ech_sampling_needs_history(&a->request->sampling)) {
        write_history(m, a);
        row->history = seq->slot * m->shape.max_seq_len;
        row->n_prompt = seq->n_prompt;
        row->n_output = seq->n_ids - seq->n_prompt;
        row->pending_slot = d->pos > seq->n_ids ? id_slot(seq, step->parity ^ 1) : -1;
    }
}

static uint32_t *mask_of(const ech_step *step, const ech_memory *m, const ech_seq *seq,
                         uint32_t *ret_row)
{
    *ret_row = step->parity * ECH_SCHED_MAX_RUNNING + seq->slot;
    return (uint32_t *)(void *)m->masks.ptr + (uint64_t)*ret_row * ECH_MASK_WORDS(m->shape.vocab);
}

/* Its mask now, or later where the id before it is still being drawn. */
static ech_status write_mask(ech_step *step, const ech_memory *m, ech_draw *d, ech_sampler_row *row,
                             ech_error *err)
{
    ech_answer *const a = d->answer;
    if (!ech_guide_is_open(&a->guide)) return ECH_OK;
    uint32_t mask_row;
    uint32_t *const words = mask_of(step, m, &a->seq, &mask_row);
    row->mask_row = (int32_t)mask_row;
    d->awaits_mask = d->pos > a->seq.n_ids;
    step->has_gate = step->has_gate || d->awaits_mask;
    if (d->awaits_mask) return ECH_OK;
    if (a->seq.n_ahead > 0)
        return ech_guide_mask_ahead(&a->guide, words, ECH_MASK_WORDS(m->shape.vocab), err);
    return ech_guide_mask(&a->guide, words, ECH_MASK_WORDS(m->shape.vocab), err);
}

/* One awaited mask. An answer that has ended draws what it likes: nothing of it is seen. */
static ech_status write_awaited(ech_step *step, const ech_memory *m, ech_draw *d, ech_error *err)
{
    const uint32_t n_words = ECH_MASK_WORDS(m->shape.vocab);
    uint32_t mask_row;
    uint32_t *const words = mask_of(step, m, &d->answer->seq, &mask_row);
    d->awaits_mask = false;
    ech_status rc = ECH_OK;
    if (!d->answer->has_finished) rc = ech_guide_mask(&d->answer->guide, words, n_words, err);
    if (d->answer->has_finished || rc != ECH_OK) memset(words, 0xff, n_words * sizeof *words);
    return rc;
}

ech_status ech_step_open_gate(ech_step *step, const ech_memory *m, ech_worker *w,
                              ech_answer **ret_failed, ech_error *err)
{
    for (uint32_t i = 0; i < step->n_draws; i++) {
        ech_draw *const d = &step->draws[i];
        if (!d->awaits_mask) continue;
        const ech_status rc = write_awaited(step, m, d, err);
        if (rc == ECH_OK) continue;
        *ret_failed = d->answer;
        return rc;
    }
    ech_gate_open(w, step->gate);
    step->has_gate = false;
    return ECH_OK;
}

static ech_status write_sampler_rows(ech_step *step, const ech_memory *m, ech_answer **ret_failed,
                                     ech_error *err)
{
    ech_sampler_row *const rows =
        (ech_sampler_row *)(void *)m->srows.ptr + step->parity * ECH_STEP_MAX_LOGITS;
    for (uint32_t i = 0; i < step->n_draws; i++) {
        ech_draw *const d = &step->draws[i];
        if (d->is_score) {
            write_score_row(d, i, &rows[i]);
            continue;
        }
        write_draw_row(step, m, d, i, &rows[i]);
        const ech_status rc = write_mask(step, m, d, &rows[i], err);
        if (rc == ECH_OK) continue;
        *ret_failed = d->answer;
        return rc;
    }
    return ECH_OK;
}

/* ---- building ---- */

/* Rows of an item to embed; hidden states are numbered as logits are. */
static uint32_t write_embed_item(ech_step *step, const ech_memory *m, const ech_plan_item *it,
                                 ech_row *rows)
{
    const ech_pooling pooling = ((const ech_answer *)it->seq)->request->pooling;
    write_table(m, it->seq);
    for (uint32_t k = 0; k < it->n_rows; k++) {
        const uint32_t pos = it->first + k;
        const bool wants = ech_embed_wants(pooling, pos, it->seq->n_prompt);
        write_row(step, m, it->seq, pos, wants ? (int32_t)step->n_hidden : -1, &rows[k]);
        step->n_hidden += wants;
    }
    return it->n_rows;
}

/* Rows of one item; logits are numbered in the order of the rows that want them. */
static uint32_t write_item(ech_step *step, const ech_memory *m, const ech_plan_item *it,
                           ech_row *rows)
{
    ech_answer *const a = (ech_answer *)it->seq;
    write_table(m, it->seq);
    for (uint32_t k = 0; k < it->n_rows; k++) {
        const bool scores = k < it->n_scores;
        const bool draws = it->samples && k + 1 == it->n_rows;
        const uint32_t pos = it->first + k;
        int32_t logit_row = -1;
        if (scores || draws) {
            logit_row = (int32_t)step->n_draws;
            step->draws[step->n_draws++] =
                (ech_draw){ .answer = a, .is_score = scores, .pos = pos + 1 };
        }
        write_row(step, m, it->seq, pos, logit_row, &rows[k]);
    }
    return it->n_rows;
}

ech_status ech_step_build(ech_step *step, const ech_memory *m, ech_answer **ret_failed,
                          ech_error *err)
{
    ech_row *const rows = (ech_row *)(void *)m->rows.ptr + step->parity * m->shape.max_rows;
    uint32_t n = 0;
    step->n_draws = step->n_hidden = 0;
    step->has_gate = false;
    for (uint32_t i = 0; i < step->plan.n_items; i++)
        if (!step->plan.items[i].seq->embeds)
            n += write_item(step, m, &step->plan.items[i], rows + n);
    for (uint32_t i = 0; i < step->plan.n_items; i++)
        if (step->plan.items[i].seq->embeds)
            n += write_embed_item(step, m, &step->plan.items[i], rows + n);
    ECH_ASSERT(n == step->plan.n_rows && step->n_draws == step->plan.n_logits);
    return write_sampler_rows(step, m, ret_failed, err);
}

/* ---- the graph ---- */

typedef struct graph {
    ech_step *step;
    const ech_memory *m;
    const ech_programs *programs;
    ech_args *args;
} graph;

static void add(ech_args *args, ech_tag tag, const ech_area *area, uint64_t offset, ech_dtype dtype,
                uint64_t n0, uint64_t n1)
{
    const uint64_t shape[2] = { n0, n1 };
    const ech_tensor t = ech_tensor_view(area->buffer, offset, dtype, n1 > 0 ? 2 : 1, shape);
    ech_args_add(args, tag, &t);
}

/* What every forward program takes before its output. */
static void add_forward(const graph *g, uint32_t first_row, uint32_t n_rows)
{
    const ech_memory *const m = g->m;
    ech_args *const args = g->args;
    ech_args_clear(args);
    add(args, ECH_INPUT, &m->weights, 0, ECH_DTYPE_U8, m->weights.bytes, 0);
    add(args, ECH_INPUT, &m->rows,
        g->step->parity * m->rows.bytes / 2 + first_row * sizeof(ech_row), ECH_DTYPE_U8,
        n_rows * sizeof(ech_row), 0);
    add(args, ECH_INPUT, &m->tables, 0, ECH_DTYPE_U32, m->tables.bytes / 4, 0);
    add(args, ECH_INOUT, &m->kv, 0, ECH_DTYPE_U8, m->shape.n_pages, m->shape.page_bytes);
    add(args, ECH_INPUT, &m->ids, 0, ECH_DTYPE_I32, m->ids.bytes / 4, 0);
}

static ech_status submit_forward(const graph *g, ech_orch *orch, ech_error *err)
{
    const ech_step_plan *const plan = &g->step->plan;
    const uint32_t n_rows = plan->n_rows - plan->n_embed_rows;
    add_forward(g, 0, n_rows);
    add(g->args, ECH_OUTPUT_EXISTING, &g->m->logits, 0, ECH_DTYPE_F32, ECH_STEP_MAX_LOGITS,
        g->m->shape.vocab);
    ech_args_add_scalar(g->args, n_rows);
    ech_args_add_scalar(g->args, g->step->n_draws);
    const bool decodes = plan->n_rows == plan->n_decode_rows;
    return ech_submit_next_level(orch, decodes ? &g->programs->decode : &g->programs->prefill,
                                 g->args, NULL, 0, err);
}

static ech_status submit_embed(const graph *g, ech_orch *orch, ech_error *err)
{
    const ech_memory *const m = g->m;
    const ech_step_plan *const plan = &g->step->plan;
    add_forward(g, plan->n_rows - plan->n_embed_rows, plan->n_embed_rows);
    add(g->args, ECH_OUTPUT_EXISTING, &m->hidden, g->step->parity * m->hidden.bytes / 2,
        ECH_DTYPE_F32, m->shape.max_rows, m->shape.hidden);
    ech_args_add_scalar(g->args, plan->n_embed_rows);
    ech_args_add_scalar(g->args, g->step->n_hidden);
    return ech_submit_next_level(orch, &g->programs->embed, g->args, NULL, 0, err);
}

static ech_status submit_sample(const graph *g, ech_orch *orch, ech_error *err)
{
    const ech_memory *const m = g->m;
    const uint32_t n = g->step->n_draws, parity = g->step->parity;
    ech_args *const args = g->args;
    ech_args_clear(args);
    add(args, ECH_INPUT, &m->logits, 0, ECH_DTYPE_F32, n, m->shape.vocab);
    add(args, ECH_INPUT, &m->srows, parity * m->srows.bytes / 2, ECH_DTYPE_U8, n,
        sizeof(ech_sampler_row));
    add(args, ECH_INPUT, &m->history, 0, ECH_DTYPE_I32, m->history.bytes / 4, 0);
    add(args, ECH_INPUT, &m->lists, 0, ECH_DTYPE_I32, m->lists.bytes / 4, 0);
    add(args, ECH_INPUT, &m->masks, 0, ECH_DTYPE_U32, UINT64_C(2) * ECH_SCHED_MAX_RUNNING,
        ECH_MASK_WORDS(m->shape.vocab));
    add(args, ECH_INOUT, &m->state, 0, ECH_DTYPE_F32, ECH_SCHED_MAX_RUNNING, 2);
    add(args, ECH_INOUT, &m->ids, 0, ECH_DTYPE_I32, m->ids.bytes / 4, 0);
    add(args, ECH_OUTPUT_EXISTING, &m->out, parity * m->out.bytes / 2, ECH_DTYPE_U8, n,
        ECH_OUT_STRIDE);
    ech_args_add_scalar(args, n);
    ech_args_add_scalar(args, ECH_OUT_STRIDE);
    if (g->step->has_gate) {
        ECH_TRY(ech_gate_create(orch, &g->step->gate, err));
        ech_args_add_gate(args, g->step->gate);
    }
    return ech_submit_next_level(orch, &g->programs->sample, args, NULL, 0, err);
}

static ech_status submit_step(ech_orch *orch, void *arg, ech_error *err)
{
    const graph *const g = arg;
    const ech_step_plan *const plan = &g->step->plan;
    if (plan->n_rows > plan->n_embed_rows) ECH_TRY(submit_forward(g, orch, err));
    if (g->step->n_draws > 0) ECH_TRY(submit_sample(g, orch, err));
    return plan->n_embed_rows > 0 ? submit_embed(g, orch, err) : ECH_OK;
}

ech_status ech_step_send(ech_step *step, const ech_memory *m, const ech_programs *programs,
                         ech_worker *w, ech_args *args, ech_error *err)
{
    graph g = { .step = step, .m = m, .programs = programs, .args = args };
    step->sent_ns = ech_now_ns();
    return ech_worker_submit(w, submit_step, &g, &step->run, err);
}

const ech_sample_out *ech_step_record(const ech_step *step, const ech_memory *m, uint32_t i)
{
    const uint8_t *const out = m->out.ptr + step->parity * m->out.bytes / 2;
    return (const ech_sample_out *)(const void *)(out + (uint64_t)i * ECH_OUT_STRIDE);
}
