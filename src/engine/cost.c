/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model of a step: smoothed times. See cost.h. */
#include "src/engine/cost.h"

#include "src/base/clock.h"

/* Rows tried while nothing is known of their cost: enough to measure, short on any machine. */
enum { FIRST_ROWS = 16 };
/* From so many prompt rows on, a step says something of their cost. */
enum { MIN_ROWS = 4 };
/* Times vary by a tenth and more from step to step; the slowest should be near what is wanted. */
#define AIM    0.9
#define WEIGHT 0.2 /* of a new time in a mean */

/* Towards larger and smaller values alike: a mean that rises faster than it falls is the mean of
 * the slowest steps, and prompts then wait for a time that nobody needs. */
static void smooth(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + WEIGHT * (value - *mean) : value;
}

static uint32_t bucket_of(uint32_t n_decode)
{
    uint32_t b = 0;
    while (b + 1 < ECH_COST_BASES && (1u << b) < n_decode)
        b++;
    return b;
}

/* Of these decode rows; where they were never seen alone, of the next fewer ones and as many rows
 * of a prompt as there are more, else of more ones. */
static double base_of(const ech_cost *c, uint32_t n_decode)
{
    const uint32_t bucket = bucket_of(n_decode);
    if (c->base_ns[bucket] > 0) return c->base_ns[bucket];
    for (uint32_t b = bucket; b-- > 0;)
        if (c->base_ns[b] > 0) return c->base_ns[b] + (n_decode - (1u << b)) * c->row_ns;
    for (uint32_t b = bucket + 1; b < ECH_COST_BASES; b++)
        if (c->base_ns[b] > 0) return c->base_ns[b];
    return 0;
}

void ech_cost_observe(ech_cost *c, uint32_t n_decode, double prompt_cost, int64_t ns)
{
    const double t = ns > 1 ? (double)ns : 1;
    double *const base = &c->base_ns[bucket_of(n_decode)];
    smooth(&c->step_ns, t);
    if (prompt_cost <= 0) {
        if (n_decode == 1) smooth(&c->solo_ns, t);
        smooth(base, t);
        return;
    }
    const double known = base_of(c, n_decode);
    if (t < known) {
        *base = known;
        smooth(base, t);
    }
    if (prompt_cost < MIN_ROWS) return;
    /* Rows are never taken to be free: what is left is at least an eighth. */
    const double rest = t - known > t / 8 ? t - known : t / 8;
    /* The ratio of the means, not the mean of ratios: a few rows carry all of a step's noise. */
    smooth(&c->rest_ns, rest);
    smooth(&c->rest_rows, prompt_cost);
    c->row_ns = c->rest_ns / c->rest_rows;
}

uint32_t ech_cost_budget(const ech_cost *c, uint32_t n_decode, int64_t target_ns)
{
    if (n_decode == 0) return UINT32_MAX;
    if (c->row_ns <= 0) return FIRST_ROWS;
    const double base = base_of(c, n_decode);
    double target = (double)target_ns;
    if (target_ns == 0) {
        target = 50.0 * ECH_NS_PER_MS;
        if (2 * base > target) target = 2 * base;
    }
    const double rows = (AIM * target - base) / c->row_ns;
    if (rows < 1) return 1;
    return rows < 1e6 ? (uint32_t)rows : 1000000;
}
