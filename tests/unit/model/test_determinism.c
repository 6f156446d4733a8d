/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Same ids, same bits of the logits, whatever a step looks like: prompt whole, in chunks of 1, 7
 * and 64, alone and among nine, with 1, 2 and 3 threads. Argument: a model's folder in the source
 * tree, or "random" for one with hidden 1024 that is made here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/random_model.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

/* Over three pages of 32 positions, and no multiple of anything. */
#define N_IDS    109u
#define N_LANES  9u
#define N_LOGITS 7u

static char model_path[1024];
static int32_t ids[N_LANES][N_IDS];
static uint32_t vocab;

/* Logits of the last positions of lane 0, from one way of running. */
typedef struct way {
    const char *name;
    uint32_t chunk;
    uint32_t n_lanes;
    uint32_t n_threads;
} way;

static const way WAYS[] = {
    { "whole, 1 thread", N_IDS, 1, 1 },
    { "chunks of 1", 1, 1, 1 },
    { "chunks of 7", 7, 1, 1 },
    { "chunks of 64", 64, 1, 1 },
    { "chunks of 65", 65, 1, 1 },
    { "whole, 2 threads", N_IDS, 1, 2 },
    { "whole, 3 threads", N_IDS, 1, 3 },
    { "chunks of 1, 2 threads", 1, 1, 2 },
    { "chunks of 33, 3 threads", 33, 1, 3 },
    { "among nine, chunks of 7", 7, N_LANES, 1 },
    { "among nine, chunks of 1, 2 threads", 1, N_LANES, 2 },
    { "among nine, whole, 3 threads", N_IDS, N_LANES, 3 },
};

static void make_ids(void)
{
    uint32_t x = 12345;
    for (uint32_t l = 0; l < N_LANES; l++) {
        for (uint32_t i = 0; i < N_IDS; i++) {
            x = x * 1664525u + 1013904223u;
            ids[l][i] = (int32_t)((x >> 8) % vocab);
        }
    }
}

/* Lanes beside the first are of different lengths, so that rows of many kinds meet in a step. */
static void run_way(const way *const w, const runner_options *const base, float *const out)
{
    runner r;
    runner_options o = *base;
    o.n_threads = w->n_threads;
    o.n_seqs = w->n_lanes;
    o.max_rows = w->chunk * w->n_lanes;
    assert_int_equal(runner_open(&r, model_path, &o), ECH_OK);
    float *const logits = calloc((size_t)N_LANES * N_IDS * vocab, sizeof *logits);
    assert_non_null(logits);
    lane lanes[N_LANES];
    for (uint32_t l = 0; l < w->n_lanes; l++) {
        const uint32_t n = N_IDS - 11 * l;
        lanes[l] = (lane){
            .ids = ids[l],
            .n = n,
            .chunk = w->chunk,
            .logits_from = n - N_LOGITS,
            .logits = logits + (size_t)l * N_IDS * vocab,
        };
    }
    runner_run(&r, lanes, w->n_lanes);
    memcpy(out, logits + (size_t)(N_IDS - N_LOGITS) * vocab,
           (size_t)N_LOGITS * vocab * sizeof *out);
    free(logits);
    runner_close(&r);
}

static void check_ways(const runner_options *const base)
{
    const size_t n = (size_t)N_LOGITS * vocab;
    float *const first = calloc(n, sizeof *first);
    float *const other = calloc(n, sizeof *other);
    run_way(&WAYS[0], base, first);
    for (size_t i = 1; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        run_way(&WAYS[i], base, other);
        for (size_t k = 0; k < n; k++) {
            if (memcmp(&first[k], &other[k], sizeof *first) == 0) continue;
            fail_msg("%s: logit %zu of position %zu: %.9g instead of %.9g", WAYS[i].name, k % vocab,
                     N_IDS - N_LOGITS + k / vocab, (double)other[k], (double)first[k]);
        }
    }
    free(first);
    free(other);
}

static bool has_isa(const ech_isa isa)
{
    runner r;
    const runner_options o = {
        .isa = isa,
        .n_threads = 1,
        .max_rows = 1,
        .max_positions = 1,
        .n_seqs = 1,
    };
    if (runner_open(&r, model_path, &o) != ECH_OK) return false;
    runner_close(&r);
    return true;
}

/* Plain C takes its time: of the KV types it plays the default alone. */
static void check_isa(const ech_isa isa)
{
    if (!has_isa(isa)) skip();
    const ech_kv_type kv_types[] = { ECH_KV_F16, ECH_KV_F32, ECH_KV_BF16, ECH_KV_Q8 };
    const size_t n = isa == ECH_ISA_REF ? 1 : sizeof kv_types / sizeof kv_types[0];
    for (size_t i = 0; i < n; i++) {
        const runner_options o = { .isa = isa, .kv_type = kv_types[i], .max_positions = 128 };
        check_ways(&o);
    }
    const runner_options bf16 = { .isa = isa, .compute = ECH_COMPUTE_BF16, .max_positions = 128 };
    check_ways(&bf16);
}

static void same_bits_with_ref(void **state)
{
    (void)state;
    check_isa(ECH_ISA_REF);
}

static void same_bits_with_avx2(void **state)
{
    (void)state;
    check_isa(ECH_ISA_AVX2);
}

static void same_bits_with_avx512(void **state)
{
    (void)state;
    check_isa(ECH_ISA_AVX512);
}

static void read_vocab(void)
{
    ech_model *m = NULL;
    ech_error err;
    ech_model_info info;
    if (ech_model_open(&m, model_path, &err) != ECH_OK) fail_msg("%s", err.text);
    ech_model_get_info(m, &info);
    vocab = info.vocab;
    ech_model_close(&m);
}

/* Wide enough that tiles, splits and tails differ; few layers and a small vocabulary for time. */
static void make_random(fixture *const dir, const char *const type)
{
    const random_model m = {
        .architecture = "qwen3",
        .type = type,
        .n_layers = 1,
        .hidden = 1024,
        .ffn = 648,
        .n_heads = 16,
        .n_kv_heads = 4,
        .head_dim = 64,
        .vocab = 500,
        .max_context = 4096,
        .tied = false,
        .seed = 7,
    };
    fixture_open(dir);
    assert_true(random_model_write(&m, dir->folder));
    (void)snprintf(model_path, sizeof model_path, "%s", dir->folder);
}

int main(const int argc, char **const argv)
{
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: %s MODEL | random TYPE\n", argv[0]);
        return 2;
    }
    fixture dir = { 0 };
    if (argc == 3) {
        make_random(&dir, argv[2]);
    } else {
        (void)snprintf(model_path, sizeof model_path, "%s/%s", ECH_SOURCE_DIR, argv[1]);
    }
    read_vocab();
    make_ids();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_with_ref),
        cmocka_unit_test(same_bits_with_avx2),
        cmocka_unit_test(same_bits_with_avx512),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (argc == 3) fixture_close(&dir);
    return failed;
}
