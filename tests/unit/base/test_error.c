/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "src/base/error.h"

static void every_code_has_a_name_and_a_meaning(void **state)
{
    (void)state;
#define X(name, value, meaning, hint, http, exit_code, retry)                                      \
    assert_string_equal(ech_status_name(ECH_##name), #name);                                       \
    assert_true(strlen(ech_status_str(ECH_##name)) > 0);                                           \
    assert_in_range(ech_status_exit(ECH_##name), 0, 2);
    ECH_STATUS_MAP(X)
#undef X
    assert_string_equal(ech_status_name((ech_status)-9999), "UNKNOWN");
}

static void a_long_text_is_cut_visibly(void **state)
{
    (void)state;
    char longer[2 * ECH_ERROR_TEXT];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ech_error err;
    assert_int_equal(ech_fail(&err, ECH_EIO, "%s", longer), ECH_EIO);
    assert_int_equal(strlen(err.text), ECH_ERROR_TEXT - 1);
    assert_string_equal(err.text + ECH_ERROR_TEXT - 4, "...");
}

static void errno_and_prefix_are_kept(void **state)
{
    (void)state;
    ech_error err;
    errno = ENOENT;
    assert_int_equal(ech_fail_errno(&err, ECH_ENOTFOUND, "opening %s", "x"), ECH_ENOTFOUND);
    assert_int_equal(err.os_errno, ENOENT);
    assert_string_equal(err.text, "opening x: No such file or directory");
    (void)ech_error_prefix(&err, ECH_EIO, "loading");
    assert_string_equal(err.text, "loading: opening x: No such file or directory");
    assert_int_equal(err.code, ECH_EIO);
}

static void a_text_is_one_line(void **state)
{
    (void)state;
    ech_error err;
    (void)ech_fail(&err, ECH_EIO, "opening a\nb\r\033[31m\177c");
    assert_string_equal(err.text, "opening a?b??[31m?c");
    (void)ech_error_prefix(&err, ECH_EIO, "x\ty");
    assert_string_equal(err.text, "x?y: opening a?b??[31m?c");
}

static void an_argument_is_of_one_error_alone(void **state)
{
    (void)state;
    ech_error err;
    assert_int_equal(ech_fail_argument(&err, ECH_EINVAL, "top_p", "top_p is %d", 2), ECH_EINVAL);
    assert_string_equal(err.argument, "top_p");
    assert_string_equal(err.text, "top_p is 2");
    (void)ech_error_prefix(&err, ECH_EINVAL, "submitting");
    assert_string_equal(err.argument, "top_p");
    (void)ech_error_name_argument(&err, ECH_EINVAL, "sampling");
    assert_string_equal(err.argument, "sampling");
    (void)ech_fail(&err, ECH_EIO, "another");
    assert_string_equal(err.argument, "");
    assert_int_equal(ech_fail_argument(NULL, ECH_EINVAL, "n", "n"), ECH_EINVAL);
    assert_int_equal(ech_error_name_argument(NULL, ECH_EINVAL, "n"), ECH_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_meaning),
        cmocka_unit_test(a_long_text_is_cut_visibly),
        cmocka_unit_test(errno_and_prefix_are_kept),
        cmocka_unit_test(a_text_is_one_line),
        cmocka_unit_test(an_argument_is_of_one_error_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
