/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows are taken in the order of their positions, so that a chunk may come in any order; each
 * reads the state of the position before it through the page table, as attention would. All that
 * a step reads was committed before or is written by this step: running it twice changes nothing.
 */
#include "src/chip/sim/sim_step.h"

#include "src/base/error.h"
#include "src/chip/kv.h"

/* splitmix64's finaliser: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static ech_status check_shape(const ech_sim_step *const s, const uint64_t n_rows,
                              const uint64_t n_logits, const uint64_t n_rows_there,
                              ech_error *const err)
{
    if (n_rows > n_rows_there || n_logits > s->n_logit_rows) {
        return ech_fail(err, ECH_EINVAL,
                        "sim: a step of %llu rows and %llu logits, its tensors hold %llu and %llu",
                        (unsigned long long)n_rows, (unsigned long long)n_logits,
                        (unsigned long long)n_rows_there, (unsigned long long)s->n_logit_rows);
    }
    return ECH_OK;
}

ech_status ech_sim_step_bind(const ech_forward_header *const h, const ech_exec_args *const args,
                             ech_sim_step *const ret_step, ech_error *const err)
{
    if (args->n_tensors != ECH_STEP_TENSORS || args->n_scalars != ECH_STEP_SCALARS) {
        return ech_fail(err, ECH_EINVAL, "sim: a step of %u tensors and %u scalars, needed %d, %d",
                        args->n_tensors, args->n_scalars, ECH_STEP_TENSORS, ECH_STEP_SCALARS);
    }
    const ech_exec_tensor *const t = args->tensors;
    const ech_kv_shape kv = { h->n_layers, h->n_kv_heads, h->head_dim, (ech_kv_type)h->kv_type };
    const uint64_t page_bytes = ech_kv_page_bytes(&kv);
    if (page_bytes < ECH_KV_PAGE * sizeof(uint64_t)) {
        return ech_fail(err, ECH_EINVAL, "sim: pages of %llu bytes hold no 32 states",
                        (unsigned long long)page_bytes);
    }
    const ech_sim_step s = {
        .rows = t[ECH_STEP_ROWS].ptr,
        .tables = t[ECH_STEP_PAGES].ptr,
        .kv = t[ECH_STEP_KV].ptr,
        .sampled = t[ECH_STEP_SAMPLED].ptr,
        .logits = t[ECH_STEP_LOGITS].ptr,
        .n_tables = t[ECH_STEP_PAGES].bytes / sizeof(uint32_t),
        .n_pages = t[ECH_STEP_KV].bytes / page_bytes,
        .page_bytes = page_bytes,
        .n_slots = t[ECH_STEP_SAMPLED].bytes / sizeof(int32_t),
        .n_logit_rows = t[ECH_STEP_LOGITS].bytes / (sizeof(float) * h->out_width),
        .n_rows = (uint32_t)args->scalars[ECH_STEP_N_ROWS],
        .vocab = h->vocab,
        .out_width = h->out_width,
        .max_positions = h->max_positions,
    };
    ECH_TRY(check_shape(&s, args->scalars[ECH_STEP_N_ROWS], args->scalars[ECH_STEP_N_LOGITS],
                        t[ECH_STEP_ROWS].bytes / sizeof(ech_row), err));
    if (s.n_rows > h->max_rows) {
        return ech_fail(err, ECH_EINVAL, "sim: a step of %u rows, the program has room for %u",
                        s.n_rows, h->max_rows);
    }
    *ret_step = s;
    return ECH_OK;
}

int32_t ech_sim_step_id(const ech_sim_step *const s, const uint32_t i)
{
    int64_t id = s->rows[i].id;
    if (id < 0) {
        const uint64_t slot = (uint64_t)(-1 - id);
        if (slot >= s->n_slots) return -1;
        id = s->sampled[slot];
    }
    return id < 0 || id >= (int64_t)s->vocab ? -1 : (int32_t)id;
}

/* Where the state of a position lies; its page was checked. */
static uint64_t *state_at(const ech_sim_step *const s, const ech_row *const row, const uint32_t pos)
{
    const uint64_t page = s->tables[row->pages + pos / ECH_KV_PAGE];
    return (uint64_t *)(void *)(s->kv + page * s->page_bytes) + pos % ECH_KV_PAGE;
}

static ech_status check_row(const ech_sim_step *const s, const uint32_t i, ech_error *const err)
{
    const ech_row *const row = &s->rows[i];
    const uint64_t n_pages = (uint64_t)row->pos / ECH_KV_PAGE + 1;
    if (ech_sim_step_id(s, i) < 0 || row->pos >= s->max_positions ||
        row->pages + n_pages > s->n_tables ||
        (row->logit_row >= 0 && (uint64_t)row->logit_row >= s->n_logit_rows)) {
        return ech_fail(err, ECH_EINVAL,
                        "sim: row %u (position %u, id %d, table %u, logits %d) is out of range", i,
                        row->pos, row->id, row->pages, row->logit_row);
    }
    for (uint64_t p = 0; p < n_pages; p++) {
        if (s->tables[row->pages + p] >= s->n_pages) {
            return ech_fail(err, ECH_EINVAL, "sim: row %u names page %u of %llu", i,
                            s->tables[row->pages + p], (unsigned long long)s->n_pages);
        }
    }
    return ECH_OK;
}

/* Insertion sort by position: chunks come in order, so it is one pass. */
static void order_rows(const ech_sim_step *const s, uint32_t *const order)
{
    for (uint32_t i = 0; i < s->n_rows; i++) {
        uint32_t j = i;
        for (; j > 0 && s->rows[order[j - 1]].pos > s->rows[i].pos; j--) {
            order[j] = order[j - 1];
        }
        order[j] = i;
    }
}

/* Numbers in [-4, 4), with the state's low bits as the key; a hidden state's likewise. */
static void write_logits(const ech_sim_step *const s, const uint32_t row, const uint64_t state)
{
    float *const x = s->logits + (size_t)row * s->out_width;
    for (uint32_t id = 0; id < s->out_width; id++) {
        x[id] = (float)(mix(state + id) >> 40) * 0x1p-21f - 4.0f;
    }
}

ech_status ech_sim_step_run(const ech_sim_step *const s, uint32_t *const order,
                            ech_error *const err)
{
    for (uint32_t i = 0; i < s->n_rows; i++) {
        ECH_TRY(check_row(s, i, err));
    }
    order_rows(s, order);
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const ech_row *const row = &s->rows[order[i]];
        const uint64_t before = row->pos == 0 ? 0 : *state_at(s, row, row->pos - 1);
        const uint64_t state = mix(before ^ mix((uint64_t)ech_sim_step_id(s, order[i])));
        *state_at(s, row, row->pos) = state;
        if (row->logit_row >= 0) write_logits(s, (uint32_t)row->logit_row, state);
    }
    return ECH_OK;
}
