/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of prompts. See embed.h. What a step brought is read here as live.c reads draws. */
#include "src/engine/embed.h"

#include <math.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/engine/engine_int.h"

/* ---- one vector ---- */

ech_status ech_embed_begin(ech_embed *m, uint32_t width)
{
    *m = (ech_embed){ .sum = calloc(width, sizeof *m->sum) };
    return m->sum != NULL ? ECH_OK : ECH_ENOMEM;
}

void ech_embed_end(ech_embed *m)
{
    free(m->sum);
    *m = (ech_embed){ 0 };
}

void ech_embed_add(ech_embed *m, uint32_t idx, const float *hidden, uint32_t width)
{
    if (idx < m->n_pooled) return; /* computed again after a preemption */
    for (uint32_t i = 0; i < width; i++)
        m->sum[i] += hidden[i];
    m->n_pooled++;
}

ech_status ech_embed_finish(ech_embed *m, uint32_t width, uint32_t dimensions, const float **ret,
                            size_t *ret_n, ech_error *err)
{
    const size_t n = dimensions > 0 ? dimensions : width;
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        m->sum[i] /= m->n_pooled;
        squares += m->sum[i] * m->sum[i];
    }
    if (!isfinite(squares))
        return ech_fail(err, ECH_ENUMERIC,
                        "embedding a prompt: the model's hidden states are not numbers");
    const double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    float *const out = (float *)(void *)m->sum; /* a float never lies behind the double it is of */
    for (size_t i = 0; i < n; i++) {
        const float value = (float)(m->sum[i] * scale);
        memcpy(&out[i], &value, sizeof value);
    }
    *ret = out;
    *ret_n = n;
    return ECH_OK;
}

/* ---- what a step brings ---- */

static void tell(ech_engine *e, ech_answer *a)
{
    ech_event ev = { .kind = ECH_EVENT_EMBEDDING, .choice = a->index };
    ech_error err = { .code = ECH_OK };
    const ech_status rc =
        ech_embed_finish(&a->embed, e->memory.shape.hidden, a->request->dimensions, &ev.embedding,
                         &ev.n_embedding, &err);
    if (rc == ECH_OK) ech_request_event(a->request, &ev);
    ech_live_finish(e, a, rc == ECH_OK ? ECH_FINISH_STOP : ECH_FINISH_ERROR, NULL, &err);
}

/* The rows of one item; *row counts hidden states as ech_step_build() has placed them. */
static void read_item(ech_engine *e, const ech_step *step, const ech_plan_item *it, uint32_t *row)
{
    const uint32_t width = e->memory.shape.hidden;
    const float *const hidden = (const float *)(const void *)e->memory.hidden.ptr +
                                (size_t)step->parity * e->memory.shape.max_rows * width;
    ech_answer *const a = (ech_answer *)it->seq;
    const ech_pooling pooling = a->request->pooling;
    for (uint32_t pos = it->first; pos < it->first + it->n_rows; pos++) {
        if (!ech_embed_wants(pooling, pos, it->seq->n_prompt)) continue;
        if (!a->has_finished)
            ech_embed_add(&a->embed, pooling == ECH_POOLING_MEAN ? pos : 0,
                          hidden + (size_t)*row * width, width);
        (*row)++;
    }
    if (!a->has_finished && it->first + it->n_rows == it->seq->n_prompt) tell(e, a);
}

void ech_embed_read(ech_engine *e, const ech_step *step)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->plan.n_items; i++)
        if (step->plan.items[i].seq->embeds) read_item(e, step, &step->plan.items[i], &row);
}
