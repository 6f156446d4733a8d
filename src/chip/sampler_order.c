/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partial sorting of a row of logits: sampler_order.h says how. Runs on a core thread of a chip, in
 * the caller's scratch. Keys are whole numbers that no two ids share, so the order is one and the
 * same whatever sorts it.
 */
#include "src/chip/sampler_order.h"

#include <math.h>
#include <string.h>

#include "src/chip/sampler_scan.h"

/* Block maxima used for the first bound, and the factor for every further one. */
#define FIRST_STEPS 32u
#define STEP_GROWTH 4u
/* Below this the insertion sort is quicker than a pass over 256 counters. */
#define INSERTION_MAX 64u

#define LANES         8u

/* A key whose ascending order is the descending order of x; -0 and +0 are one value. */
static inline uint64_t key_of(const float x, const uint32_t id)
{
    const float y = x + 0.0f;
    uint32_t b;
    memcpy(&b, &y, sizeof b);
    b ^= (b >> 31) != 0 ? 0xffffffffu : 0x80000000u;
    return ((uint64_t)~b << 32) | id;
}

static inline float key_value(const uint64_t key)
{
    uint32_t b = ~(uint32_t)(key >> 32);
    b ^= (b >> 31) != 0 ? 0x80000000u : 0xffffffffu;
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static void insertion_sort(uint64_t *const keys, const uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const uint64_t k = keys[i];
        uint32_t j = i;
        for (; j > 0 && keys[j - 1] > k; j--) {
            keys[j] = keys[j - 1];
        }
        keys[j] = k;
    }
}

/*
 * Sorts keys whose lower halves already ascend: a stable radix sort of the upper half, a byte at a
 * time from the lowest, leaves equal values in the order of their ids. Linear in the worst case
 * too: a row of equal logits is no trap.
 */
static void sort_keys(uint64_t *const keys, uint64_t *const tmp, const uint32_t n)
{
    if (n <= INSERTION_MAX) {
        insertion_sort(keys, n);
        return;
    }
    uint64_t *src = keys;
    uint64_t *dst = tmp;
    for (unsigned shift = 32; shift < 64; shift += 8) {
        uint32_t at[256] = { 0 };
        for (uint32_t i = 0; i < n; i++) {
            at[(src[i] >> shift) & 255u]++;
        }
        if (at[(src[0] >> shift) & 255u] == n) continue; /* one value: already in order */
        uint32_t sum = 0;
        for (uint32_t b = 0; b < 256; b++) {
            const uint32_t count = at[b];
            at[b] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++) {
            dst[at[(src[i] >> shift) & 255u]++] = src[i];
        }
        uint64_t *const swap = src;
        src = dst;
        dst = swap;
    }
    if (src != keys) memcpy(keys, src, n * sizeof *keys);
}

void ech_order_start(ech_order *const o, const float *const logits, const uint32_t vocab)
{
    o->logits = logits;
    o->vocab = vocab;
    o->n_blocks = ech_scan_blocks(vocab);
    o->n = 0;
    o->n_steps = 0;
    o->bound = INFINITY;
    o->steps_sorted = false;
    o->has_nan = ech_scan_max(logits, vocab, o->block_max, &o->max);
    o->complete = !(o->max > -INFINITY);
}

static void sort_steps(ech_order *const o)
{
    for (uint32_t b = 0; b < o->n_blocks; b++) {
        o->steps[b] = key_of(o->block_max[b], b);
    }
    sort_keys(o->steps, o->tmp, o->n_blocks);
    o->steps_sorted = true;
}

/* Appends the ids of one block with low <= logit < high. */
static void gather_block(ech_order *const o, const uint32_t b, const float low, const float high)
{
    const uint32_t end = (b + 1) * ECH_SCAN_BLOCK < o->vocab ? (b + 1) * ECH_SCAN_BLOCK : o->vocab;
    for (uint32_t id = b * ECH_SCAN_BLOCK; id < end; id++) {
        const float x = o->logits[id];
        if (x >= low && x < high) o->keys[o->n++] = key_of(x, id);
    }
}

/* Lowers the bound and puts the ids above it in order. Always makes progress or completes. */
static void lower_bound(ech_order *const o)
{
    if (!o->steps_sorted) sort_steps(o);
    const float high = o->bound;
    float low = high;
    /* Equal block maxima could leave the bound where it was: go on until it moves. */
    while (low >= high && o->n_steps < o->n_blocks) {
        const uint32_t want = o->n_steps == 0 ? FIRST_STEPS : o->n_steps * STEP_GROWTH;
        o->n_steps = want < o->n_blocks ? want : o->n_blocks;
        low = key_value(o->steps[o->n_steps - 1]);
    }
    if (o->n_steps == o->n_blocks || !(low > -INFINITY)) {
        low = -INFINITY;
        o->complete = true;
    }
    o->bound = low;
    const uint32_t begin = o->n;
    const float least = low > -INFINITY ? low : -__FLT_MAX__;
    for (uint32_t b = 0; b < o->n_blocks; b++) {
        if (o->block_max[b] >= least) gather_block(o, b, least, high);
    }
    sort_keys(o->keys + begin, o->tmp, o->n - begin);
}

bool ech_order_reach(ech_order *const o, const uint32_t i)
{
    while (i >= o->n && !o->complete) {
        lower_bound(o);
    }
    return i < o->n;
}

uint32_t ech_order_first(const ech_order *const o)
{
    uint32_t b = 0;
    while (b < o->n_blocks && o->block_max[b] != o->max) {
        b++;
    }
    for (uint32_t id = b * ECH_SCAN_BLOCK; id < o->vocab; id++) {
        if (o->logits[id] == o->max) return id;
    }
    return 0;
}
