/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <string.h>

#include "src/base/utf8.h"

static void every_code_point_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        char out[4];
        const int n = ech_utf8_encode(cp, out);
        if ((cp >= 0xD800 && cp < 0xE000) || cp > 0x10FFFF) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back = 0;
        assert_int_equal(ech_utf8_decode(out, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        for (int cut = 1; cut < n; cut++) {
            assert_int_equal(ech_utf8_decode(out, (size_t)cut, &back), -2);
        }
    }
}

static void broken_sequences_are_replaced_as_python_does(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t broken;
    } CASES[] = {
        { "\xC0\x80", 1 }, { "\xE0\x80\x80", 1 }, { "\xED\xA0\x80", 1 }, { "\xF4\x90\x80\x80", 1 },
        { "\xF0\x9F\x98", 3 }, { "\xE2\x82" "a", 2 }, { "\xFF", 1 }, { "\x80", 1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const size_t len = strlen(CASES[i].s);
        size_t bad = 99;
        assert_false(ech_utf8_valid(CASES[i].s, len, &bad));
        assert_int_equal(bad, 0);
        assert_int_equal(ech_utf8_broken_len(CASES[i].s, len), CASES[i].broken);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_survives_the_round_trip),
        cmocka_unit_test(broken_sequences_are_replaced_as_python_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
