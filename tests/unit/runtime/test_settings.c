/* SPDX-License-Identifier: Apache-2.0 */
/* Ring sizes: precedence, aliases, and what is refused. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "src/runtime/settings.h"

static ech_error err;

static void clear(void)
{
    unsetenv("ECHELON_RING_HEAP");
    unsetenv("ECHELON_RING_TASK_WINDOW");
    unsetenv("ECHELON_RING_DEP_POOL");
    unsetenv("PTO2_RING_HEAP");
    unsetenv("PTO2_RING_TASK_WINDOW");
    unsetenv("PTO2_RING_DEP_POOL");
}

static ech_ring_sizes read_all(const ech_ring_sizes *first, const ech_ring_sizes *second)
{
    ech_ring_sizes s;
    assert_int_equal(ech_settings_rings(first, second, &s, &err), ECH_OK);
    return s;
}

static void built_in(void **state)
{
    (void)state;
    clear();
    const ech_ring_sizes s = read_all(NULL, NULL);
    for (int r = 0; r < ECH_RINGS; r++) {
        assert_int_equal(s.heap_bytes[r], 16 << 20);
        assert_int_equal(s.task_window[r], 4096);
        assert_int_equal(s.dep_pool[r], 16384);
    }
}

static void nearer_settings_win(void **state)
{
    (void)state;
    clear();
    setenv("ECHELON_RING_TASK_WINDOW", "64,128,256,512", 1);
    setenv("PTO2_RING_HEAP", "4m", 1);
    setenv("PTO2_RING_DEP_POOL", "9", 1);
    setenv("ECHELON_RING_DEP_POOL", "77", 1);
    const ech_ring_sizes option = { .task_window = { 0, 1024, 0, 0 } };
    const ech_ring_sizes dispatch = { .task_window = { 0, 2048, 0, 0 },
                                      .heap_bytes = { 0, 0, 64, 0 } };
    ech_ring_sizes s = read_all(NULL, &option);
    assert_int_equal(s.task_window[0], 64);
    assert_int_equal(s.task_window[1], 1024);
    assert_int_equal(s.task_window[3], 512);
    assert_int_equal(s.heap_bytes[3], 4 << 20);
    assert_int_equal(s.dep_pool[2], 77);
    s = read_all(&dispatch, &option);
    assert_int_equal(s.task_window[1], 2048);
    assert_int_equal(s.heap_bytes[2], 64);
    clear();
}

static void bad_values_are_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "ECHELON_RING_TASK_WINDOW", "5" },    { "ECHELON_RING_TASK_WINDOW", "2" },
        { "ECHELON_RING_TASK_WINDOW", "8,8" },  { "ECHELON_RING_TASK_WINDOW", "8,8,8,8,8" },
        { "ECHELON_RING_HEAP", "100" },         { "ECHELON_RING_HEAP", "-64" },
        { "ECHELON_RING_HEAP", "64x" },         { "PTO2_RING_DEP_POOL", "3" },
        { "ECHELON_RING_DEP_POOL", "one" },     { "ECHELON_RING_HEAP", "99999999999999999999999" },
        { "ECHELON_RING_HEAP", "9999999999g" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ech_ring_sizes s;
        clear();
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(ech_settings_rings(NULL, NULL, &s, &err), ECH_EINVAL);
        assert_non_null(strstr(err.text, bad[i][0]));
        assert_non_null(strstr(err.text, bad[i][1]));
    }
    clear();
}

static void stall_limit(void **state)
{
    (void)state;
    double s = 0;
    unsetenv("ECHELON_STALL_LIMIT");
    assert_int_equal(ech_settings_stall(0, &s, &err), ECH_OK);
    assert_true(s == 30);
    setenv("ECHELON_STALL_LIMIT", "2.5", 1);
    assert_int_equal(ech_settings_stall(0, &s, &err), ECH_OK);
    assert_true(s == 2.5);
    assert_int_equal(ech_settings_stall(7, &s, &err), ECH_OK);
    assert_true(s == 7);
    setenv("ECHELON_STALL_LIMIT", "soon", 1);
    assert_int_equal(ech_settings_stall(0, &s, &err), ECH_EINVAL);
    unsetenv("ECHELON_STALL_LIMIT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in),
        cmocka_unit_test(nearer_settings_win),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(stall_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
