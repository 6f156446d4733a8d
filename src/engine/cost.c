/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model of a step: three smoothed times. See cost.h. */
#include "src/engine/cost.h"

#include "src/base/clock.h"

/* Rows tried while nothing is known of their cost: enough to measure, short on any machine. */
enum { FIRST_ROWS = 16 };
/* From so many prompt rows on, a step says something of their cost. */
enum { MIN_ROWS = 4 };
#define SMOOTHING 0.25

static void smooth(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + SMOOTHING * (value - *mean) : value;
}

void ech_cost_observe(ech_cost *c, uint32_t n_decode, uint32_t n_prompt, int64_t ns)
{
    const double t = ns > 1 ? (double)ns : 1;
    smooth(&c->step_ns, t);
    if (n_prompt == 0) {
        if (n_decode == 1) smooth(&c->solo_ns, t);
        smooth(&c->base_ns, t);
    } else if (n_prompt >= MIN_ROWS) {
        /* Without a base of its own, a step of prompt rows counts whole: too dear, never too cheap.
         */
        const double base = n_decode > 0 ? c->base_ns : 0;
        const double rest = t - base > t / 8 ? t - base : t / 8;
        smooth(&c->row_ns, rest / n_prompt);
    }
}

uint32_t ech_cost_budget(const ech_cost *c, uint32_t n_decode, int64_t target_ns, uint32_t max_rows)
{
    if (n_decode == 0) return max_rows;
    if (c->row_ns <= 0) return max_rows < FIRST_ROWS ? max_rows : FIRST_ROWS;
    double target = (double)target_ns;
    if (target_ns == 0) {
        target = 50.0 * ECH_NS_PER_MS;
        if (2 * c->solo_ns > target) target = 2 * c->solo_ns;
    }
    const double rows = (target - c->base_ns) / c->row_ns;
    if (rows < 1) return 1;
    return rows < max_rows ? (uint32_t)rows : max_rows;
}
