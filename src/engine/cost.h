/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step costs, measured, and how many prompt rows fit a wanted step time.
 *
 *     time of a step = base(decode rows) + prompt rows × row cost
 *
 * Prompt rows are counted as if they stood at the beginning of their prompt: a deep row reads more
 * keys and counts for more (ech_sched_row_cost), so the row cost is one number for all prompts.
 *
 * base is learned from steps without prompt rows, for each power of two of decode rows; the row
 * cost from steps with some. A step that took less than its base shows that the base is too large.
 * Everything is smoothed. Pure; owned by the engine's thread.
 */
#ifndef ECH_ENGINE_COST_H
#define ECH_ENGINE_COST_H

#include <stdint.h>

enum { ECH_COST_BASES = 7 }; /* 1, 2, 3…4, 5…8, … 33…64 decode rows */

typedef struct ech_cost {
    double solo_ns;                 // a step of one decode row; 0: none seen
    double base_ns[ECH_COST_BASES]; // a step of so many decode rows; 0: none seen
    double rest_ns, rest_rows;      // beyond the base, of steps with prompt rows; their rows
    double row_ns;                  // one more prompt row, rest_ns / rest_rows; 0: none seen
    double step_ns;                 // any step
} ech_cost;

/* A step of so many rows took ns. prompt_cost: of its prompt rows, in rows without depth. */
void ech_cost_observe(ech_cost *c, uint32_t n_decode, double prompt_cost, int64_t ns);
/*
 * What the prompt rows of the next step may cost, in rows without depth, at least 1. Without decode
 * rows nobody waits: UINT32_MAX. target_ns 0: the larger of 50 ms and twice a step of these decode
 * rows alone: prompts take at most half of the time from the answers that run.
 */
uint32_t ech_cost_budget(const ech_cost *c, uint32_t n_decode, int64_t target_ns);

#endif
