/* SPDX-License-Identifier: Apache-2.0 */
/* Frequencies against those that transformers computed (tests/tools/make_rope_golden.py). */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "src/model/config.h"
#include "tests/unit/model/fixture.h"

/* Steps between two positive floats. */
static int64_t ulps(const float a, const uint32_t bits)
{
    uint32_t own;
    memcpy(&own, &a, sizeof own);
    return own > bits ? own - bits : bits - own;
}

static void check_case(const fixture *const dir, const json_t *const row, const size_t number)
{
    char *const text = json_dumps(json_object_get(row, "config"), 0);
    fixture_puts(dir, "config.json", text);
    ech_config c;
    ech_error err = { 0 };
    if (ech_config_load(dir->folder, &c, &err) != ECH_OK)
        fail_msg("case %zu: %s", number, err.text);
    free(text);

    float freqs[128];
    ech_rope_inv_freq(&c.rope, c.head_dim, freqs);
    const json_t *const bits = json_object_get(row, "bits");
    assert_int_equal(json_array_size(bits), c.head_dim / 2);
    for (size_t i = 0; i < c.head_dim / 2; i++) {
        const int64_t off = ulps(freqs[i], (uint32_t)json_integer_value(json_array_get(bits, i)));
        if (off > 1)
            fail_msg("case %zu: frequency %zu is %lld ulps off", number, i, (long long)off);
    }
    const double factor = json_number_value(json_object_get(row, "attention_factor"));
    assert_true(fabs(c.rope.attention_factor - factor) < 1e-12);
}

static void frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    fixture dir;
    fixture_open(&dir);
    json_error_t at;
    json_t *const rows = json_load_file(GOLDEN "/rope.json", 0, &at);
    assert_true(json_array_size(rows) > 10);
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        check_case(&dir, row, i);
    }
    json_decref(rows);
    fixture_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
