/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row of the `sample` program, from raw logits to its record: check, log-probabilities, edits,
 * greedy choice or draw. The parts are in files of their own: sampler_edit.c (masks and penalties),
 * sampler_order.c (partial sorting), sampler_filter.c (truncation and draw).
 *
 * Runs on any core of a chip, in that core's scratch; touches nothing but its own record, slot and
 * state half. A row that can't be sampled says so in its record and never disturbs another.
 */
#include "src/chip/sampler.h"

#include <math.h>
#include <string.h>

#include "src/chip/sampler_edit.h"
#include "src/chip/sampler_filter.h"
#include "src/chip/sampler_math.h"
#include "src/chip/sampler_order.h"
#include "src/chip/sampler_scan.h"

void ech_sampler_row_init(ech_sampler_row *const row)
{
    *row = (ech_sampler_row){
        .mode = ECH_SAMPLE_DRAW,
        .out_slot = -1,
        .pending_slot = -1,
        .mask_row = -1,
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .repetition = 1.0f,
        .dry_base = 1.0f,
        .xtc_threshold = 1.0f,
    };
}

/* ---- scratch ------------------------------------------------------------------------------- */

/* The scratch of one core, cut into its arrays; each begins at a multiple of 64 bytes. */
typedef struct scratch {
    float *logits;    // [vocab]
    uint32_t *count;  // [vocab]
    float *block_max; // [n_blocks]
    uint64_t *steps;  // [n_blocks]
    uint64_t *keys;   // [vocab]
    uint64_t *tmp;    // [vocab]
    double *weights;  // [vocab]
    int32_t *ids;     // [max_history]
    uint32_t *match;  // [max_history]
} scratch;

/* Takes n elements of size bytes from the running offset. base NULL: only measures. */
static void *cut(char *const base, size_t *const at, const size_t n, const size_t size)
{
    void *const p = base != NULL ? base + *at : NULL;
    *at += (n * size + 63) & ~(size_t)63;
    return p;
}

static size_t cut_scratch(scratch *const s, void *const base, const uint32_t vocab,
                          const uint32_t max_history)
{
    size_t at = 0;
    const size_t n_blocks = ech_scan_blocks(vocab);
    s->logits = cut(base, &at, vocab, sizeof *s->logits);
    s->count = cut(base, &at, vocab, sizeof *s->count);
    s->block_max = cut(base, &at, n_blocks, sizeof *s->block_max);
    s->steps = cut(base, &at, n_blocks, sizeof *s->steps);
    s->keys = cut(base, &at, vocab, sizeof *s->keys);
    s->tmp = cut(base, &at, vocab, sizeof *s->tmp);
    s->weights = cut(base, &at, vocab, sizeof *s->weights);
    s->ids = cut(base, &at, max_history, sizeof *s->ids);
    s->match = cut(base, &at, max_history, sizeof *s->match);
    return at;
}

size_t ech_sample_scratch_bytes(const uint32_t vocab, const uint32_t max_history)
{
    scratch s;
    return cut_scratch(&s, NULL, vocab, max_history);
}

/* ---- checks -------------------------------------------------------------------------------- */

/* NaN fails every comparison, so it fails these too. */
static bool within(const float x, const float low, const float high)
{
    return x >= low && x <= high;
}

static bool list_fits(const ech_sample_args *const a, const ech_sampler_list list)
{
    return (uint64_t)list.offset + list.n <= a->n_lists;
}

static bool lists_fit(const ech_sample_args *const a, const ech_sampler_row *const row)
{
    return list_fits(a, row->bias) && row->bias.n % 2 == 0 && list_fits(a, row->allowed) &&
           list_fits(a, row->banned) && list_fits(a, row->stop) && list_fits(a, row->bad_words) &&
           list_fits(a, row->dry_breakers) && list_fits(a, row->dry_sequences);
}

static bool history_fits(const ech_sample_args *const a, const ech_sampler_row *const row)
{
    const uint64_t given = (uint64_t)row->n_prompt + row->n_output;
    const uint64_t pending = row->pending_slot >= 0 ? 1 : 0;
    return row->history + given <= a->n_history && given + pending <= a->max_history &&
           (row->pending_slot < 0 || (uint32_t)row->pending_slot < a->n_ids);
}

static bool numbers_are_good(const ech_sampler_row *const row)
{
    const float big = 1e9f;
    return within(row->temperature, 0.0f, big) && within(row->top_p, 0.0f, 1.0f) &&
           within(row->min_p, 0.0f, 1.0f) && within(row->typical_p, 0.0f, 1.0f) &&
           within(row->repetition, 1e-9f, big) && within(row->frequency, -big, big) &&
           within(row->presence, -big, big) && within(row->dry_multiplier, 0.0f, big) &&
           within(row->dry_base, 1.0f, big) && within(row->xtc_probability, 0.0f, 1.0f) &&
           within(row->xtc_threshold, 0.0f, 1.0f) && row->mirostat <= 2 &&
           (row->mirostat == 0 ||
            (within(row->mirostat_tau, 0.0f, big) && within(row->mirostat_eta, 0.0f, big)));
}

static bool row_is_good(const ech_sample_args *const a, const ech_sampler_row *const row)
{
    if (row->mode > ECH_SAMPLE_SCORE || row->logit_row >= a->n_logits) return false;
    if (row->n_top > (a->out_stride - sizeof(ech_sample_out)) / sizeof(ech_top_logprob)) {
        return false;
    }
    if (row->mode == ECH_SAMPLE_SCORE) {
        return row->target_id >= 0 && (uint32_t)row->target_id < a->vocab;
    }
    return (row->out_slot < 0 || (uint32_t)row->out_slot < a->n_ids) &&
           (row->mask_row < 0 || (uint32_t)row->mask_row < a->n_masks) &&
           (row->mirostat == 0 || (row->state_slot < a->n_state && row->state_parity <= 1)) &&
           lists_fit(a, row) && history_fits(a, row) && numbers_are_good(row);
}

/* ---- one row ------------------------------------------------------------------------------- */

/* What a row needs on its way; on the stack of the core. */
typedef struct work {
    const ech_sample_args *args;
    const ech_sampler_row *row;
    const float *raw; // [vocab]
    ech_sample_out *out;
    scratch s;
    ech_order order;
    float raw_max;
    double log_mass; /* ln of the sum of e^(raw - raw_max) */
} work;

/*
 * ln p of the raw logits: (x - max) - ln(sum of e^(x - max)), all in double, rounded once. The
 * sum's order is ech_scan_sum()'s, at temperature 1.
 */
static float logprob_of(const work *const w, const uint32_t id)
{
    return (float)(((double)w->raw[id] - (double)w->raw_max) - w->log_mass);
}

static void write_logprobs(work *const w)
{
    double mass;
    ech_scan_sum(w->raw, w->args->vocab, w->order.block_max, w->raw_max, 1.0, &mass, NULL);
    w->log_mass = ech_sampler_log(mass);
    const uint32_t want = w->row->n_top < w->args->vocab ? w->row->n_top : w->args->vocab;
    uint32_t n = 0;
    for (; n < want && ech_order_reach(&w->order, n); n++) {
        const uint32_t id = ech_order_id(&w->order, n);
        w->out->top[n] = (ech_top_logprob){ (int32_t)id, logprob_of(w, id) };
    }
    w->out->n_top = n;
}

/* 1 for the best. Equal logits share the last of their places, as vLLM counts. */
static uint32_t rank_of(const work *const w, const uint32_t id)
{
    const float own = w->raw[id];
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->args->vocab; i++) {
        n += w->raw[i] >= own;
    }
    return n;
}

/* The logits that the draw sees: the raw ones, or an edited copy with an order of its own. */
static uint32_t edit(work *const w)
{
    if (!ech_sampler_edits(w->row)) return ECH_SAMPLE_OK;
    memcpy(w->s.logits, w->raw, w->args->vocab * sizeof *w->raw);
    ech_sampler_edit e = {
        .args = w->args,
        .row = w->row,
        .logits = w->s.logits,
        .count = w->s.count,
        .ids = w->s.ids,
        .match = w->s.match,
    };
    if (!ech_sampler_edit_apply(&e)) return ECH_SAMPLE_BAD_ROW;
    ech_order_start(&w->order, w->s.logits, w->args->vocab);
    if (w->order.has_nan || w->order.max == INFINITY) return ECH_SAMPLE_NAN;
    return w->order.max > -INFINITY ? ECH_SAMPLE_OK : ECH_SAMPLE_MASKED;
}

/* Mirostat's mu, from one half of the state to the other and into the record. */
static uint32_t draw_mirostat(work *const w, ech_sampler_view *const v, const double u)
{
    const ech_sampler_row *const row = w->row;
    float *const state = w->args->state + (size_t)row->state_slot * 2;
    float mu = row->n_done == 0 ? 2.0f * row->mirostat_tau : state[row->state_parity];
    if (!isfinite(mu)) mu = 2.0f * row->mirostat_tau; /* nothing the row wrote: start again */
    const uint32_t place = ech_sampler_mirostat(v, row, u, &mu);
    state[row->state_parity ^ 1u] = mu;
    w->out->mu = mu;
    return place;
}

static uint32_t choose(work *const w)
{
    const ech_sampler_row *const row = w->row;
    if (row->temperature == 0.0f) return ech_order_first(&w->order);
    uint32_t r[4];
    ech_sampler_philox(row->seed, row->pos, r);
    const double u = ech_sampler_uniform(r[0], r[1]);
    ech_sampler_view v;
    ech_sampler_view_start(&v, &w->order, w->s.weights, row->temperature);
    uint32_t place;
    if (row->mirostat != 0) {
        place = draw_mirostat(w, &v, u);
    } else {
        ech_sampler_filter(&v, row, ech_sampler_uniform(r[2], r[3]));
        place = ech_sampler_draw(&v, u);
    }
    return ech_order_id(&w->order, place);
}

static uint32_t sample(work *const w)
{
    const ech_sampler_row *const row = w->row;
    ech_order_start(&w->order, w->raw, w->args->vocab);
    w->raw_max = w->order.max;
    if (w->order.has_nan || !isfinite(w->raw_max)) return ECH_SAMPLE_NAN;
    const bool want_logprob =
        row->want_logprob != 0 || row->n_top != 0 || row->mode == ECH_SAMPLE_SCORE;
    if (want_logprob) write_logprobs(w);
    uint32_t id = (uint32_t)row->target_id;
    if (row->mode == ECH_SAMPLE_DRAW) {
        const uint32_t status = edit(w);
        if (status != ECH_SAMPLE_OK) return status;
        id = choose(w);
    }
    w->out->id = (int32_t)id;
    if (want_logprob) {
        w->out->logprob = logprob_of(w, id);
        w->out->rank = rank_of(w, id);
    }
    return ECH_SAMPLE_OK;
}

void ech_sample_row(const ech_sample_args *const args, const uint32_t i, void *const scratch_bytes)
{
    work w;
    w.args = args;
    w.row = &args->rows[i];
    w.out = (ech_sample_out *)(void *)(args->out + (size_t)i * args->out_stride);
    *w.out = (ech_sample_out){ .status = ECH_SAMPLE_BAD_ROW };
    if (row_is_good(args, w.row)) {
        w.raw = args->logits + (size_t)w.row->logit_row * args->vocab;
        (void)cut_scratch(&w.s, scratch_bytes, args->vocab, args->max_history);
        w.order.block_max = w.s.block_max;
        w.order.steps = w.s.steps;
        w.order.keys = w.s.keys;
        w.order.tmp = w.s.tmp;
        w.out->status = sample(&w);
    }
    if (w.out->status != ECH_SAMPLE_OK) {
        *w.out = (ech_sample_out){ .status = w.out->status };
    }
    const int32_t slot = w.row->out_slot;
    if (w.row->mode == ECH_SAMPLE_DRAW && slot >= 0 && (uint32_t)slot < args->n_ids) {
        args->ids[slot] = w.out->id;
    }
}
