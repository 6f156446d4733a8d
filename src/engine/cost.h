/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step costs, measured, and how many prompt rows fit a wanted step time.
 *
 *     time of a step = base(decode rows) + prompt rows × row cost
 *
 * base is learned from steps without prompt rows, the row cost from those with many; both are
 * smoothed, so the cost follows depth and other load within a few steps. Pure; owned by the
 * engine's thread.
 */
#ifndef ECH_ENGINE_COST_H
#define ECH_ENGINE_COST_H

#include <stdint.h>

typedef struct ech_cost {
    double solo_ns; // a step of one decode row; 0: none seen
    double base_ns; // a step of the decode rows there are now; 0: none seen
    double row_ns;  // one more prompt row; 0: none seen
    double step_ns; // any step
} ech_cost;

/* A step of so many rows took ns. */
void ech_cost_observe(ech_cost *c, uint32_t n_decode, uint32_t n_prompt, int64_t ns);
/*
 * Prompt rows for the next step, 1..max_rows. Without decode rows nobody waits: max_rows.
 * target_ns 0: the larger of twice the solo step and 50 ms.
 */
uint32_t ech_cost_budget(const ech_cost *c, uint32_t n_decode, int64_t target_ns,
                         uint32_t max_rows);

#endif
