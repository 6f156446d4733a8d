/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks against what the gguf package makes of them (tests/tools/make_dequant_golden.py), to the
 * bit. It is here, though the code is the chip's, because the golden file needs the reader.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/dequant.h"
#include "src/model/safetensors.h"
#include "tests/unit/model/fixture.h"

static void *load(const ech_weights *const ws, const char *const name, const char *const what,
                  size_t *const ret_bytes)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s.%s", name, what);
    const ech_weight *const w = ech_weights_find(ws, full);
    assert_non_null(w);
    void *const data = malloc(w->bytes);
    assert_int_equal(ech_weights_read(ws, w->file, w->offset, data, w->bytes, NULL), ECH_OK);
    *ret_bytes = w->bytes;
    return data;
}

static void check_type(const ech_weights *const ws, const char *const name, const ech_src_type type)
{
    size_t n_blocks = 0;
    size_t n_values = 0;
    uint8_t *const blocks = load(ws, name, "blocks", &n_blocks);
    float *const want = load(ws, name, "values", &n_values);
    const size_t n = n_values / sizeof *want;
    float *const found = calloc(n, sizeof *found);
    assert_int_equal(ech_src_bytes(type, n), n_blocks);
    assert_int_equal(ech_src_bytes(type, n + 1), 0);
    ech_dequant(type, blocks, n, found);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&found[i], &want[i], sizeof *want) == 0) continue;
        fail_msg("%s: number %zu is %.9g instead of %.9g", name, i, (double)found[i],
                 (double)want[i]);
    }
    free(blocks);
    free(want);
    free(found);
}

static void blocks_are_those_of_gguf(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ech_src_type type;
    } TYPES[] = {
        { "q4_0", ECH_SRC_Q4_0 }, { "q4_1", ECH_SRC_Q4_1 },     { "q5_0", ECH_SRC_Q5_0 },
        { "q5_1", ECH_SRC_Q5_1 }, { "q8_0", ECH_SRC_Q8_0 },     { "q2_k", ECH_SRC_Q2_K },
        { "q3_k", ECH_SRC_Q3_K }, { "q4_k", ECH_SRC_Q4_K },     { "q5_k", ECH_SRC_Q5_K },
        { "q6_k", ECH_SRC_Q6_K }, { "iq4_nl", ECH_SRC_IQ4_NL }, { "mxfp4", ECH_SRC_MXFP4 },
    };
    ech_weights ws = { 0 };
    assert_int_equal(ech_safetensors_read(&ws, GOLDEN "/dequant.safetensors", NULL), ECH_OK);
    assert_int_equal(ech_weights_seal(&ws, NULL), ECH_OK);
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        check_type(&ws, TYPES[i].name, TYPES[i].type);
    }
    ech_weights_fini(&ws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
