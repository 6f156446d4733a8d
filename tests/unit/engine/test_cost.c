/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/engine/cost.h"

#define MS ECH_NS_PER_MS

static void nobody_waits_nobody_limits(void **state)
{
    (void)state;
    const ech_cost c = { 0 };
    assert_int_equal(ech_cost_budget(&c, 0, 0), UINT32_MAX);
    assert_int_equal(ech_cost_budget(&c, 3, 0), 16); /* to measure */
}

static void the_budget_stays_below_the_target(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 40; i++) {
        ech_cost_observe(&c, 1, 0, 10 * MS);
        ech_cost_observe(&c, 1, 32, 10 * MS + 32 * MS / 2); /* half a ms a row */
    }
    assert_in_range(ech_cost_budget(&c, 1, 50 * MS), 68, 72); /* nine tenths of it */
    assert_in_range(ech_cost_budget(&c, 1, 0), 68, 72);       /* 50 ms is more than 2 × 10 */
    assert_int_equal(ech_cost_budget(&c, 1, 5 * MS), 1); /* can't be met: goes on all the same */
    assert_in_range(ech_cost_budget(&c, 1, 1000 * MS), 1760, 1800);
}

static void a_slow_solo_step_raises_the_default_target(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 40; i++) {
        ech_cost_observe(&c, 1, 0, 100 * MS);
        ech_cost_observe(&c, 1, 10, 200 * MS);
    }
    assert_in_range(ech_cost_budget(&c, 1, 0), 7, 9); /* 2 × 100 ms */
}

/* Sixteen rows take longer than the target: prompts get half of the time, not one row a step. */
static void the_default_target_follows_the_decode_rows(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 40; i++) {
        ech_cost_observe(&c, 1, 0, 10 * MS);
        ech_cost_observe(&c, 16, 0, 90 * MS);
        ech_cost_observe(&c, 16, 32, (90 + 32) * MS);
    }
    assert_in_range(ech_cost_budget(&c, 16, 0), 60, 80);
    assert_in_range(ech_cost_budget(&c, 1, 0), 30, 40);
    assert_int_equal(ech_cost_budget(&c, 16, 50 * MS), 1); /* as it was wanted */
}

/* Beside a burst's later prompts its first answers never run alone, so their step is not known. */
static void the_default_target_of_rows_that_were_never_alone(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 10; i++)
        ech_cost_observe(&c, 1, 0, 17 * MS);
    for (int i = 0; i < 4; i++)
        ech_cost_observe(&c, 0, 256, 256 * 3 * MS);
    uint32_t rows = 0;
    for (int i = 0; i < 40; i++) {
        rows = ech_cost_budget(&c, 8, 0);
        ech_cost_observe(&c, 8, rows, (52 + 3 * rows) * MS);
    }
    assert_in_range(rows, 6, 20);
}

/* Sixteen streams made a dear base; one is left, and no step without prompt rows shows it. */
static void a_base_that_is_too_large_comes_down(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 20; i++)
        ech_cost_observe(&c, 16, 0, 60 * MS);
    uint32_t rows = 0;
    for (int i = 0; i < 40; i++) {
        rows = ech_cost_budget(&c, 1, 50 * MS);
        ech_cost_observe(&c, 1, rows, 10 * MS + rows * (MS / 2));
    }
    assert_in_range(rows, 50, 90);
}

static void more_streams_than_were_seen_are_learned(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 20; i++)
        ech_cost_observe(&c, 1, 0, 10 * MS);
    int64_t took = 0;
    for (int i = 0; i < 20; i++) {
        const uint32_t rows = ech_cost_budget(&c, 16, 50 * MS);
        took = 30 * MS + rows * (MS / 2);
        ech_cost_observe(&c, 16, rows, took);
    }
    assert_in_range(took, 35 * MS, 55 * MS);
}

/* Times that vary by a tenth and a depth that is only half known: few steps are over the target. */
static void steps_of_a_long_prompt_keep_the_target(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    uint64_t rng = 7;
    uint32_t n = 0, n_over = 0;
    for (int i = 0; i < 10; i++)
        ech_cost_observe(&c, 1, 0, 10 * MS);
    for (double depth = 0; depth < 16000; n++) {
        const double unit = 1 + depth / 4000; /* of the scheduler; truly depth costs twice that */
        const uint32_t budget = ech_cost_budget(&c, 1, 50 * MS);
        const uint32_t rows = budget > unit ? (uint32_t)(budget / unit) : 1;
        rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const double noise = 0.9 + 0.2 * (double)(rng >> 33) / 2147483648.0;
        const double ns = (10 + rows * 0.25 * (1 + depth / 2000)) * noise * (double)MS;
        if (n > 4) n_over += ns > 1.25 * 50 * (double)MS;
        ech_cost_observe(&c, 1, rows * unit, (int64_t)ns);
        depth += rows;
    }
    assert_true(n > 100);
    assert_true(n_over * 100 < n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_nobody_limits),
        cmocka_unit_test(the_budget_stays_below_the_target),
        cmocka_unit_test(a_slow_solo_step_raises_the_default_target),
        cmocka_unit_test(the_default_target_follows_the_decode_rows),
        cmocka_unit_test(the_default_target_of_rows_that_were_never_alone),
        cmocka_unit_test(a_base_that_is_too_large_comes_down),
        cmocka_unit_test(more_streams_than_were_seen_are_learned),
        cmocka_unit_test(steps_of_a_long_prompt_keep_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
