/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler behind a pipe, for the comparison with numpy (tests/scripts/test_sampler.py). Reads
 * one case after the other from stdin, all little-endian:
 *
 *     u32 vocab, n_history, n_lists, has_mask, n_draws, 0
 *     the row (ech_sampler_row), f32 logits[vocab], i32 history[], i32 lists[], u32 mask[]
 *
 * and writes for each
 *
 *     record of the first draw with 20 top entries, 2 x (u32 n, u32 ids[n]): the support without
 *     and with XTC's exclusion, u32 counts[vocab] of n_draws positions from the row's on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/sampler.h"
#include "src/chip/sampler_edit.h"
#include "src/chip/sampler_filter.h"
#include "src/chip/sampler_scan.h"

enum { TOP = 20, MAX_VOCAB = 1 << 20 };

typedef struct head {
    uint32_t vocab, n_history, n_lists, has_mask, n_draws, zero;
} head;

static void *read_array(const size_t n, const size_t size)
{
    void *const p = calloc(n + 1, size);
    if (p == NULL || fread(p, size, n, stdin) != n) exit(2);
    return p;
}

static void write_array(const void *const p, const size_t n, const size_t size)
{
    if (fwrite(p, size, n, stdout) != n) exit(2);
}

/* The places that the filters leave, by the sampler's own parts. u is XTC's draw. */
static void write_support(const ech_sample_args *const a, const ech_sampler_row *const row,
                          const double u)
{
    const uint32_t n = a->vocab;
    float *const logits = calloc(n, sizeof *logits);
    ech_order o = { .block_max = calloc(ech_scan_blocks(n), sizeof(float)),
                    .steps = calloc(ech_scan_blocks(n), sizeof(uint64_t)),
                    .keys = calloc(n, sizeof(uint64_t)),
                    .tmp = calloc(n, sizeof(uint64_t)) };
    ech_sampler_edit e = { .args = a,
                           .row = row,
                           .logits = logits,
                           .count = calloc(n, sizeof(uint32_t)),
                           .ids = calloc(a->max_history + 1, sizeof(int32_t)),
                           .match = calloc(a->max_history + 1, sizeof(uint32_t)) };
    double *const weights = calloc(n, sizeof *weights);
    uint32_t *const ids = calloc(n, sizeof *ids);
    memcpy(logits, a->logits, n * sizeof *logits);
    uint32_t count = 0;
    if (ech_sampler_edit_apply(&e)) {
        ech_order_start(&o, logits, n);
        ech_sampler_view v;
        ech_sampler_view_start(&v, &o, weights, row->temperature);
        if (row->mirostat != 0) {
            float mu = 2.0f * row->mirostat_tau;
            (void)ech_sampler_mirostat(&v, row, 0.5, &mu);
        } else {
            ech_sampler_filter(&v, row, u);
        }
        for (uint32_t i = v.begin; i < v.end && ech_order_reach(&o, i); i++) {
            ids[count++] = ech_order_id(&o, i);
        }
    }
    write_array(&count, 1, sizeof count);
    write_array(ids, count, sizeof *ids);
    void *const all[] = { logits,  o.block_max, o.steps, o.keys,  o.tmp,
                          e.count, e.ids,       e.match, weights, ids };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

static void run_case(const head *const h)
{
    ech_sampler_row *const row = read_array(1, sizeof *row);
    ech_sample_args a = { .rows = row, .vocab = h->vocab, .n_rows = 1, .n_logits = 1 };
    float *const logits = read_array(h->vocab, sizeof *logits);
    int32_t *const history = read_array(h->n_history, sizeof *history);
    int32_t *const lists = read_array(h->n_lists, sizeof *lists);
    uint32_t *const masks = read_array(h->has_mask ? ECH_MASK_WORDS(h->vocab) : 0, sizeof *masks);
    float state[2] = { 2.0f * row->mirostat_tau, 0.0f };
    int32_t id = 0;
    _Alignas(8) uint8_t out[ECH_SAMPLE_OUT_BYTES(TOP)] = { 0 };
    a.logits = logits;
    a.history = history;
    a.n_history = h->n_history;
    a.lists = lists;
    a.n_lists = h->n_lists;
    a.masks = masks;
    a.n_masks = h->has_mask;
    a.state = state;
    a.n_state = 1;
    a.ids = &id;
    a.n_ids = 1;
    a.out = out;
    a.out_stride = sizeof out;
    a.max_history = h->n_history;
    const size_t bytes = ech_sample_scratch_bytes(h->vocab, h->n_history);
    void *const scratch = aligned_alloc(64, bytes);
    uint32_t *const counts = calloc(h->vocab, sizeof *counts);
    if (scratch == NULL || counts == NULL) exit(2);
    memset(scratch, 0xa5, bytes);

    ech_sample_row(&a, 0, scratch);
    write_array(out, sizeof out, 1);
    write_support(&a, row, 1.0);
    write_support(&a, row, 0.0);
    row->n_top = 0;
    row->want_logprob = 0;
    for (uint32_t i = 0; i < h->n_draws; i++, row->pos++) {
        ech_sample_row(&a, 0, scratch);
        const ech_sample_out *const o = (const ech_sample_out *)(const void *)out;
        if (o->status == ECH_SAMPLE_OK) counts[o->id]++;
    }
    write_array(counts, h->vocab, sizeof *counts);
    (void)fflush(stdout); /* the other side waits for it */
    void *const all[] = { row, logits, history, lists, masks, scratch, counts };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

int main(void)
{
    head h;
    while (fread(&h, sizeof h, 1, stdin) == 1) {
        if (h.vocab == 0 || h.vocab > MAX_VOCAB) return 2;
        run_case(&h);
    }
    return 0;
}
