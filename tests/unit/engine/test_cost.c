/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "src/base/clock.h"
#include "src/engine/cost.h"

#define MS ECH_NS_PER_MS

static void nobody_waits_nobody_limits(void **state)
{
    (void)state;
    const ech_cost c = { 0 };
    assert_int_equal(ech_cost_budget(&c, 0, 0, 256), 256);
    assert_int_equal(ech_cost_budget(&c, 3, 0, 256), 16); /* to measure */
    assert_int_equal(ech_cost_budget(&c, 3, 0, 8), 8);
}

static void the_budget_meets_the_target(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 40; i++) {
        ech_cost_observe(&c, 1, 0, 10 * MS);
        ech_cost_observe(&c, 1, 32, 10 * MS + 32 * MS / 2); /* half a ms a row */
    }
    assert_in_range(ech_cost_budget(&c, 1, 50 * MS, 256), 78, 82);
    assert_in_range(ech_cost_budget(&c, 1, 0, 256), 78, 82); /* 50 ms is more than 2 × 10 */
    assert_int_equal(ech_cost_budget(&c, 1, 5 * MS, 256),
                     1); /* can't be met: goes on all the same */
    assert_int_equal(ech_cost_budget(&c, 1, 1000 * MS, 256), 256);
}

static void a_slow_solo_step_raises_the_default_target(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 40; i++) {
        ech_cost_observe(&c, 1, 0, 100 * MS);
        ech_cost_observe(&c, 1, 10, 200 * MS);
    }
    assert_in_range(ech_cost_budget(&c, 1, 0, 256), 9, 11); /* 2 × 100 ms */
}

static void the_cost_follows_the_depth(void **state)
{
    (void)state;
    ech_cost c = { 0 };
    for (int i = 0; i < 10; i++)
        ech_cost_observe(&c, 1, 0, 10 * MS);
    uint32_t rows = ech_cost_budget(&c, 1, 50 * MS, 256);
    int64_t worst = 0;
    for (int depth = 0; depth < 16000; depth += (int)rows) {
        const int64_t ns = 10 * MS + rows * (MS / 4 + depth * (MS / 20000));
        if (depth > 1000 && ns > worst) worst = ns;
        ech_cost_observe(&c, 1, rows, ns);
        rows = ech_cost_budget(&c, 1, 50 * MS, 256);
    }
    assert_true(worst < 60 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_nobody_limits),
        cmocka_unit_test(the_budget_meets_the_target),
        cmocka_unit_test(a_slow_solo_step_raises_the_default_target),
        cmocka_unit_test(the_cost_follows_the_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
