/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks against what the gguf package makes of them (tests/tools/make_dequant_golden.py), to the
 * bit. It is here, though the code is the chip's, because the golden file needs the reader.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/dequant.h"
#include "src/chip/quant.h"
#include "src/chip/repack.h"
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

/* A row of blocks in lane 5 of a panel, read back: the numbers that the blocks stand for. */
static void check_repacked(const ech_weights *const ws, const char *const name,
                           const ech_src_type type, const ech_pack_type packed,
                           const double tolerance)
{
    size_t n_blocks = 0;
    size_t n_values = 0;
    uint8_t *const blocks = load(ws, name, "blocks", &n_blocks);
    float *const want = load(ws, name, "values", &n_values);
    const size_t n = n_values / sizeof *want;
    char *const panel = calloc(1, ech_panel_bytes(packed, n));
    float *const found = calloc(n, sizeof *found);
    assert_true(ech_repack_has(type, packed));
    ech_repack(type, blocks, n, panel, 5, 0);
    ech_quant_get(panel, packed, 5, (uint32_t)n, found);
    for (size_t i = 0; i < n; i++) {
        const double scale = fabs((double)want[i / 32 * 32]) + fabs((double)want[i]) + 1e-30;
        const double off = fabs((double)found[i] - (double)want[i]);
        if (off <= tolerance * scale) continue;
        fail_msg("%s: number %zu is %.9g instead of %.9g", name, i, (double)found[i],
                 (double)want[i]);
    }
    free(blocks);
    free(want);
    free(panel);
    free(found);
}

/* Squared error of a row of blocks as q8: repacked, or through f32. */
static double error_as_q8(const ech_src_type type, const uint8_t *const blocks,
                          const float *const want, const size_t n, const bool repacks)
{
    char *const panel = calloc(1, ech_panel_bytes(ECH_PACK_Q8, n));
    float *const found = calloc(n, sizeof *found);
    double sum = 0.0;
    if (repacks) ech_repack(type, blocks, n, panel, 5, 0);
    for (size_t k = 0; k < n && !repacks; k += 32)
        ech_quant_put(panel, ECH_PACK_Q8, 5, k, want + k, 32);
    ech_quant_get(panel, ECH_PACK_Q8, 5, (uint32_t)n, found);
    for (size_t i = 0; i < n; i++)
        sum += ((double)found[i] - want[i]) * ((double)found[i] - want[i]);
    free(panel);
    free(found);
    return sum;
}

/* Numbers of a file's own grid: as bytes with scales of 32 they lose less than 8 bits of anything.
 */
static void grids_become_bytes_with_little_loss(void **state)
{
    (void)state;
    enum { N = 64 * 256 };
    static const struct {
        ech_src_type type;
        size_t bytes, scale_at; /* of a block, and of its f16 */
        double most;            /* of the error through f32 */
    } CASES[] = {
        { ECH_SRC_Q3_K, 110, 108, 0.01 },
        { ECH_SRC_Q5_1, 24, 0, 0.7 },
    };
    static uint8_t blocks[N / 32 * 24];
    static float want[N];
    uint64_t rng = 7;
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++) {
        const size_t bytes = CASES[c].bytes, n_blocks = N / ech_src_block_elems(CASES[c].type);
        for (size_t i = 0; i < n_blocks * bytes; i++) {
            rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
            blocks[i] = (uint8_t)(rng >> 56);
        }
        for (size_t b = 0; b < n_blocks; b++) {
            static const uint16_t SCALES[2] = { 0x1400, 0x2800 }; /* 2^-10; 2^-5 for a minimum */
            uint8_t *const block = blocks + b * bytes;
            memcpy(block + CASES[c].scale_at, SCALES, c == 1 ? 4 : 2);
        }
        ech_dequant(CASES[c].type, blocks, N, want);
        const double repacked = error_as_q8(CASES[c].type, blocks, want, N, true);
        const double plain = error_as_q8(CASES[c].type, blocks, want, N, false);
        if (!(repacked <= CASES[c].most * plain))
            fail_msg("case %zu: squared error %g of the plain way's", c, repacked / plain);
    }
}

static void blocks_are_repacked_without_loss(void **state)
{
    (void)state;
    ech_weights ws = { 0 };
    assert_int_equal(ech_safetensors_read(&ws, GOLDEN "/dequant.safetensors", NULL), ECH_OK);
    assert_int_equal(ech_weights_seal(&ws, NULL), ECH_OK);
    check_repacked(&ws, "q8_0", ECH_SRC_Q8_0, ECH_PACK_Q8, 0.0);
    check_repacked(&ws, "q5_0", ECH_SRC_Q5_0, ECH_PACK_Q8, 0.0);
    check_repacked(&ws, "q4_0", ECH_SRC_Q4_0, ECH_PACK_Q4, 0.0);
    check_repacked(&ws, "iq4_nl", ECH_SRC_IQ4_NL, ECH_PACK_Q8, 0.0);
    /* One rounding instead of two. */
    check_repacked(&ws, "q4_1", ECH_SRC_Q4_1, ECH_PACK_Q4M, 1e-5);
    check_repacked(&ws, "q4_k", ECH_SRC_Q4_K, ECH_PACK_Q4K, 1e-5);
    check_repacked(&ws, "q5_k", ECH_SRC_Q5_K, ECH_PACK_Q5K, 1e-5);
    check_repacked(&ws, "q6_k", ECH_SRC_Q6_K, ECH_PACK_Q6K, 0.0);
    assert_false(ech_repack_has(ECH_SRC_Q8_0, ECH_PACK_Q4));
    assert_false(ech_repack_has(ECH_SRC_Q2_K, ECH_PACK_Q8));
    assert_false(ech_repack_has(ECH_SRC_F32, ECH_PACK_F32));
    ech_weights_fini(&ws);
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
        cmocka_unit_test(blocks_are_repacked_without_loss),
        cmocka_unit_test(grids_become_bytes_with_little_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
