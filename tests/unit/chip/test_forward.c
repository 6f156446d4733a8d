/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward programs of random models: right against double precision, and the same bits whatever
 * the chunks, the threads and the neighbours in a step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/chip/toy.h"
#include "tests/unit/test.h"

static const toy_shape small = {
    .hidden = 72,
    .n_layers = 2,
    .n_heads = 6,
    .n_kv_heads = 2,
    .head_dim = 24,
    .ffn = 100,
    .vocab = 77,
    .max_rows = 128,
    .max_positions = 1000,
    .source = ECH_SRC_F32,
    .type = ECH_PACK_F32,
    .kv = ECH_KV_F32,
    .compute = ECH_COMPUTE_F32,
    .is_qwen = true,
};

static uint64_t seed;

static void make_ids(int32_t *const ids, const uint32_t n, const uint32_t vocab)
{
    uint64_t s = seed;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(toy_random(&s) % vocab);
}

/* The largest difference of a row, relative to the row's largest magnitude. */
static double worst_row(const float *const got, const double *const want, const uint32_t n,
                        const uint32_t vocab)
{
    double worst = 0;
    for (uint32_t r = 0; r < n; r++) {
        double max = 0, diff = 0;
        for (uint32_t i = 0; i < vocab; i++) {
            max = fmax(max, fabs(want[r * vocab + i]));
            const double d = fabs(got[r * vocab + i] - want[r * vocab + i]);
            diff = isnan(d) ? INFINITY : fmax(diff, d);
        }
        worst = fmax(worst, diff / max);
    }
    return worst;
}

static void expect_close(const toy_shape *const shape, const ech_isa isa, const double bound)
{
    enum { N = 70 };
    int32_t ids[N];
    toy t;
    toy_init(&t, shape, seed);
    make_ids(ids, N, shape->vocab);
    double *const want = malloc(sizeof(double) * N * shape->vocab);
    toy_reference(&t, ids, N, want);
    toy_run r;
    toy_run_init(&r, &t, N, 2, isa);
    toy_run_chunks(&r, ids, 33);
    const double worst = worst_row(r.logits, want, N, shape->vocab);
    printf("  %s kv %d compute %d: %.2g of the row's maximum (bound %.2g)\n",
           ech_exec_isa_name(r.exec), shape->kv, shape->compute, worst, bound);
    assert_true(worst <= bound);
    toy_run_fini(&r);
    toy_fini(&t);
    free(want);
}

static void logits_are_those_of_double_precision(void **state)
{
    (void)state;
    for (int isa = ECH_ISA_REF; isa <= ECH_ISA_AVX512; isa++) {
        toy_shape s = small;
        expect_close(&s, (ech_isa)isa, 2e-5);
        s.is_qwen = false;
        s.pairs = ECH_ROPE_INTERLEAVED;
        s.source = ECH_SRC_F16;
        s.type = ECH_PACK_F16;
        s.head_dim = 18;
        expect_close(&s, (ech_isa)isa, 2e-5);
        s.source = ECH_SRC_BF16;
        s.type = ECH_PACK_BF16;
        s.hidden = 65; /* odd K: a bf16 pair is half padding */
        s.kv = ECH_KV_F16;
        expect_close(&s, (ech_isa)isa, 2e-3);
        s.kv = ECH_KV_BF16;
        expect_close(&s, (ech_isa)isa, 1e-2);
        s.kv = ECH_KV_Q8;
        expect_close(&s, (ech_isa)isa, 3e-2);
        s.kv = ECH_KV_F32;
        s.compute = ECH_COMPUTE_BF16;
        expect_close(&s, (ech_isa)isa, 3e-2);
        s.kv = ECH_KV_F16; /* attention's products are bf16 too */
        expect_close(&s, (ech_isa)isa, 3e-2);
        s.kv = ECH_KV_BF16;
        expect_close(&s, (ech_isa)isa, 3e-2);
    }
}

/* Activations are quantised too: 1/254 of a block's largest number at most. */
static void quantised_logits_are_close(void **state)
{
    (void)state;
    for (int isa = ECH_ISA_REF; isa <= ECH_ISA_AVX512; isa++)
        for (int type = ECH_PACK_Q8; type <= ECH_PACK_Q5K; type++) {
            toy_shape s = small;
            s.type = (ech_pack_type)type;
            expect_close(&s, (ech_isa)isa, 8e-2);
        }
}

/* The bits of every row whose logits a chunk gives: its last 64. */
static bool same_logits(const toy_run *const a, const toy_run *const b, const uint32_t chunk)
{
    const size_t vocab = a->t->s.vocab;
    for (uint32_t i = 0; i < a->n; i++) {
        const uint32_t next = (i / chunk + 1) * chunk, end = next < a->n ? next : a->n;
        if (end - i <= 64 &&
            memcmp(a->logits + i * vocab, b->logits + i * vocab, vocab * sizeof(float)) != 0)
            return false;
    }
    return true;
}

static void expect_same_bits(const toy_shape *const shape, const ech_isa isa, const uint32_t n)
{
    static const struct {
        uint32_t chunk, threads;
    } ways[] = { { 1, 1 },  { 7, 2 }, { 33, 1 },  { 64, 2 },
                 { 64, 3 }, { 1, 3 }, { 128, 1 }, { 128, 2 } };
    int32_t *const ids = malloc(n * sizeof(int32_t));
    toy t;
    toy_init(&t, shape, seed);
    make_ids(ids, n, shape->vocab);
    toy_run first;
    toy_run_init(&first, &t, n, 1, isa);
    toy_run_chunks(&first, ids, 64);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        toy_run r;
        toy_run_init(&r, &t, n, ways[i].threads, isa);
        toy_run_chunks(&r, ids, ways[i].chunk);
        if (!same_logits(&first, &r, ways[i].chunk))
            fail_msg("chunks of %u, %u threads: other bits (seed=%llu)", ways[i].chunk,
                     ways[i].threads, (unsigned long long)seed);
        toy_run_fini(&r);
    }
    toy_run_fini(&first);
    toy_fini(&t);
    free(ids);
}

/*
 * Over eight pages and past the first attention split; the largest chunks make blocks of several
 * parts (forward_attention.c).
 */
static void bits_do_not_depend_on_chunks_and_threads(void **state)
{
    (void)state;
    for (int isa = ECH_ISA_REF; isa <= ECH_ISA_AVX512; isa++)
        for (int i = 0; i < 2 * ECH_KV_TYPES; i++) {
            toy_shape s = small;
            s.n_layers = 1;
            s.kv = (ech_kv_type)(i / 2);
            s.source = ECH_SRC_BF16;
            s.type = ECH_PACK_BF16;
            s.compute = i % 2 == 0 ? ECH_COMPUTE_F32 : ECH_COMPUTE_BF16;
            /* The plain C kernels are slow; theirs are the bits of the others (tests/kernels). */
            expect_same_bits(&s, (ech_isa)isa, isa == ECH_ISA_REF ? 70 : 300);
        }
}

/* The widest head that is copied as bf16, and one that isn't: odd, and with no room for a copy. */
static void bits_of_wide_heads_do_not_either(void **state)
{
    (void)state;
    static const uint32_t dims[] = { 256, 255, 300 };
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int compute = ECH_COMPUTE_F32; compute <= ECH_COMPUTE_BF16; compute++) {
            toy_shape s = small;
            s.n_layers = 1;
            s.head_dim = dims[i];
            s.pairs = ECH_ROPE_INTERLEAVED;
            s.is_qwen = false;
            s.kv = ECH_KV_F16;
            s.source = ECH_SRC_BF16;
            s.type = ECH_PACK_BF16;
            s.compute = (ech_compute)compute;
            expect_same_bits(&s, ECH_ISA_AUTO, 280);
        }
}

/* The product of q, k and v of the program, which is one of the toy's. */
static ech_op_matmul *qkv_of(const toy *const t)
{
    const ech_forward_header *const h = t->program;
    ech_op *const ops = (ech_op *)((char *)t->program + h->ops_offset);
    uint32_t i = 0;
    while (ops[i].kind != ECH_OP_MATMUL)
        i++;
    assert_true(i < h->n_ops);
    return &ops[i].matmul;
}

/*
 * q, k and v are multiplied by heads. A program may end them anywhere: at every panel the rest is
 * left as it was, zeros, which are also what weights of zero give. So no order leaves a panel out
 * or goes past the last.
 */
static void heads_may_end_anywhere(void **state)
{
    (void)state;
    enum { N = 5 };
    toy_shape s = small;
    s.n_layers = 1;
    s.n_kv_heads = 8;
    s.n_heads = 8;
    s.head_dim = 16;
    s.is_qwen = false;
    const uint32_t all = (s.n_heads + 2 * s.n_kv_heads) * s.head_dim;
    for (uint32_t rows = all; rows > 0; rows -= ECH_PANEL) {
        toy zeroed, cut;
        toy_run want, got;
        int32_t ids[N];
        make_ids(ids, N, s.vocab);
        toy_init(&zeroed, &s, seed);
        toy_init(&cut, &s, seed);
        const ech_op_matmul *const whole = qkv_of(&zeroed);
        const size_t panel_bytes = ech_panel_bytes(s.type, whole->weight.cols);
        memset((char *)zeroed.image + whole->weight.offset + rows / ECH_PANEL * panel_bytes, 0,
               (all - rows) / ECH_PANEL * panel_bytes);
        qkv_of(&cut)->weight.rows = qkv_of(&cut)->out.width = rows;
        ech_program_seal(cut.program, cut.program_len, ECH_PROGRAM_FORWARD);
        toy_run_init(&want, &zeroed, N, 1, ECH_ISA_REF);
        toy_run_step(&want, ids, 0, N);
        for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
            toy_run_init(&got, &cut, N, n_threads, ECH_ISA_REF);
            toy_run_step(&got, ids, 0, N);
            if (!same_logits(&want, &got, N))
                fail_msg("%u of %u rows, %u threads: other bits", rows, all, n_threads);
            toy_run_fini(&got);
        }
        toy_run_fini(&want);
        toy_fini(&zeroed);
        toy_fini(&cut);
    }
}

/* Steps of 1 to 65 rows, and one over three pages, of a model whose products need many tiles. */
static void expect_rows_alone(toy_shape s)
{
    enum { N = 110, MAX = 65 };
    int32_t ids[N];
    s.max_rows = N;
    toy t;
    toy_init(&t, &s, seed);
    make_ids(ids, N, s.vocab);
    toy_run alone, together;
    toy_run_init(&alone, &t, N, 1, ECH_ISA_AUTO);
    toy_run_chunks(&alone, ids, 1);
    for (uint32_t n = 1; n <= MAX + 1; n++) {
        const uint32_t rows = n <= MAX ? n : N, first = rows > 64 ? rows - 64 : 0;
        toy_run_init(&together, &t, N, 1 + n % 3, ECH_ISA_AUTO);
        toy_run_step(&together, ids, 0, rows);
        if (memcmp(alone.logits + (size_t)first * s.vocab,
                   together.logits + (size_t)first * s.vocab,
                   (size_t)(rows - first) * s.vocab * sizeof(float)) != 0)
            fail_msg("%u rows on %u threads: other bits than alone, type %d, compute %d, kv %d "
                     "(seed=%llu)",
                     rows, 1 + n % 3, s.type, s.compute, s.kv, (unsigned long long)seed);
        toy_run_fini(&together);
    }
    toy_run_fini(&alone);
    toy_fini(&t);
}

static void wide_rows_do_not_depend_on_their_neighbours(void **state)
{
    (void)state;
    toy_shape s = {
        .hidden = 1024,
        .n_layers = 1,
        .n_heads = 12,
        .n_kv_heads = 4,
        .head_dim = 80,
        .ffn = 1208,
        .vocab = 517,
        .max_positions = 200,
        .is_qwen = true,
    };
    for (int type = ECH_PACK_F32; type <= ECH_PACK_BF16; type++) {
        s.type = (ech_pack_type)type;
        s.source = (ech_src_type)type;
        s.kv = (ech_kv_type)((type + 1) % ECH_KV_TYPES);
        expect_rows_alone(s);
    }
    s.compute = ECH_COMPUTE_BF16;
    for (int kv = 0; kv < ECH_KV_TYPES; kv++) {
        s.kv = (ech_kv_type)kv;
        expect_rows_alone(s);
    }
    s.source = ECH_SRC_F32;
    for (int type = ECH_PACK_Q8; type <= ECH_PACK_Q5K; type++) {
        s.type = (ech_pack_type)type;
        expect_rows_alone(s);
    }
}

int main(int argc, char **argv)
{
    const bool is_wide = argc > 1 && strcmp(argv[1], "wide") == 0;
    const int at = is_wide ? 2 : 1;
    seed = argc > at ? strtoull(argv[at], NULL, 0) : 20261130;
    printf("seed=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_double_precision),
        cmocka_unit_test(quantised_logits_are_close),
        cmocka_unit_test(bits_do_not_depend_on_chunks_and_threads),
        cmocka_unit_test(bits_of_wide_heads_do_not_either),
        cmocka_unit_test(heads_may_end_anywhere),
    };
    const struct CMUnitTest wide[] = {
        cmocka_unit_test(wide_rows_do_not_depend_on_their_neighbours),
    };
    return is_wide ? cmocka_run_group_tests(wide, NULL, NULL)
                   : cmocka_run_group_tests(tests, NULL, NULL);
}
