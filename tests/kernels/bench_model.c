/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of whole steps of a random model, through the executor and its cores:
 *
 *     bench_model [--shape 0.6B|1.7B|4B] [--layers N] [--threads N] [--type bf16|f16|f32]
 *                 [--kv f16|f32|bf16|q8] [--compute f32|bf16] [--rows N] [--depth N] [--cpu avx2]
 *
 * Prints the time of a step with that many rows of one sequence (the prompt's chunk), or with that
 * many sequences of one row each (--streams), at that depth; what a step reads per second, beside
 * a plain read by as many threads, and operations per second. Not a test: needs a quiet machine.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "tests/kernels/peak.h"
#include "tests/unit/chip/toy.h"

typedef struct setup {
    toy_shape shape;
    uint32_t n_threads, n_rows, depth, repeats;
    bool is_streams;
    ech_isa isa;
} setup;

static const struct {
    const char *name;
    uint32_t hidden, n_heads, n_kv_heads, head_dim, ffn;
} shapes[] = {
    { "0.6B", 1024, 16, 8, 128, 3072 },
    { "1.7B", 2048, 16, 8, 128, 6144 },
    { "4B", 2560, 32, 8, 128, 9728 },
};

static uint32_t pick(const char *const word, const char *const *const words)
{
    for (uint32_t i = 0; words[i] != NULL; i++)
        if (strcmp(word, words[i]) == 0) return i;
    fprintf(stderr, "bench_model: %s is none of the choices\n", word);
    exit(2);
}

static void take_shape(toy_shape *const s, const char *const name)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(name, shapes[i].name) == 0) {
            s->hidden = shapes[i].hidden;
            s->n_heads = shapes[i].n_heads;
            s->n_kv_heads = shapes[i].n_kv_heads;
            s->head_dim = shapes[i].head_dim;
            s->ffn = shapes[i].ffn;
        }
}

static void take_option(setup *const o, const char *const name, const char *const value)
{
    static const char *const types[] = { "f32", "f16", "bf16", "s8",  "q8",  "q4",
                                         "q4m", "q6",  "q6k",  "q4k", "q5k", NULL };
    static const char *const kvs[] = { "f16", "f32", "bf16", "q8", NULL };
    static const char *const computes[] = { "f32", "bf16", NULL };
    static const char *const isas[] = { "auto", "ref", "avx2", "avx512", NULL };
    const uint32_t n = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(name, "--shape") == 0)
        take_shape(&o->shape, value);
    else if (strcmp(name, "--layers") == 0)
        o->shape.n_layers = n < TOY_MAX_LAYERS ? n : TOY_MAX_LAYERS;
    else if (strcmp(name, "--vocab") == 0)
        o->shape.vocab = n;
    else if (strcmp(name, "--threads") == 0)
        o->n_threads = n;
    else if (strcmp(name, "--rows") == 0)
        o->n_rows = n;
    else if (strcmp(name, "--depth") == 0)
        o->depth = n;
    else if (strcmp(name, "--repeats") == 0)
        o->repeats = n;
    else if (strcmp(name, "--streams") == 0)
        o->is_streams = n != 0 || strcmp(value, "yes") == 0;
    else if (strcmp(name, "--kv") == 0)
        o->shape.kv = (ech_kv_type)pick(value, kvs);
    else if (strcmp(name, "--compute") == 0)
        o->shape.compute = (ech_compute)pick(value, computes);
    else if (strcmp(name, "--cpu") == 0)
        o->isa = (ech_isa)pick(value, isas);
    else if (strcmp(name, "--type") == 0) {
        o->shape.type = (ech_pack_type)pick(value, types);
        o->shape.source = o->shape.type < ECH_PACK_S8 ? (ech_src_type)o->shape.type : ECH_SRC_F32;
    } else {
        fprintf(stderr, "bench_model: unknown option %s\n", name);
        exit(2);
    }
}

/* ---- plain read -------------------------------------------------------------------------------
 */

typedef struct reader {
    const char *p;
    size_t n;
    uint64_t sum;
} reader;

static void *read_part(void *const arg)
{
    reader *const r = arg;
    r->sum = peak_read(r->p, r->n);
    return NULL;
}

/* GB/s of n_threads plain reads over the model's own image. */
static double read_rate(const toy *const t, const uint32_t n_threads)
{
    pthread_t threads[64];
    reader readers[64];
    const int64_t t0 = ech_now_ns();
    for (uint32_t i = 0; i < n_threads; i++) {
        readers[i] = (reader){ (const char *)t->image + t->image_bytes / n_threads / 64 * 64 * i,
                               t->image_bytes / n_threads, 0 };
        pthread_create(&threads[i], NULL, read_part, &readers[i]);
    }
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    return (double)t->image_bytes / (double)(ech_now_ns() - t0);
}

/* ---- steps ------------------------------------------------------------------------------------
 */

typedef struct bench {
    const setup *o;
    toy t;
    ech_exec *exec;
    ech_row *rows;
    uint32_t *pages;
    void *kv;
    float *logits;
    uint32_t n_pages, n_logits;
    int64_t at_ns;                  /* when the operation that runs began */
    double op_ns[ECH_OP_COUNT + 4]; /* by kind; the matrix products of a layer apart */
} bench;

/* One thread is timed by its CPU time, which neighbours on the machine disturb less. */
static int64_t clock_ns(const setup *const o)
{
    if (o->n_threads > 1) return ech_now_ns();
    struct timespec ts;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * ECH_NS_PER_S + ts.tv_nsec;
}

/* Matrix products by their place in a layer: qkv, o, gate and up, down. */
static uint32_t op_class(const bench *const b, const uint32_t step)
{
    const ech_forward_header *const h = b->t.program;
    const ech_op *const ops = (const ech_op *)((const char *)b->t.program + h->ops_offset);
    static const uint32_t places[6] = { 0, 0, 0, 1, 2, 3 };
    if (ops[step].kind != ECH_OP_MATMUL) return ops[step].kind;
    return ECH_OP_COUNT + places[(step - 2) % 6];
}

static bool count_time(void *const ctx, const uint32_t step)
{
    bench *const b = ctx;
    const int64_t now = clock_ns(b->o);
    b->op_ns[op_class(b, step)] += (double)(now - b->at_ns);
    b->at_ns = now;
    return false;
}

static void step(bench *const b)
{
    const uint64_t scalars[] = { b->o->n_rows, b->n_logits };
    int32_t no_ids[1] = { 0 };
    ech_error err;
    b->at_ns = clock_ns(b->o);
    const ech_exec_tensor tensors[ECH_STEP_TENSORS] = {
        [ECH_STEP_WEIGHTS] = { b->t.image, b->t.image_bytes },
        [ECH_STEP_ROWS] = { b->rows, b->o->n_rows * sizeof(ech_row) },
        [ECH_STEP_PAGES] = { b->pages, b->n_pages * sizeof(uint32_t) },
        [ECH_STEP_KV] = { b->kv, b->n_pages * b->t.page_bytes },
        [ECH_STEP_SAMPLED] = { no_ids, sizeof(no_ids) },
        [ECH_STEP_LOGITS] = { b->logits, (size_t)b->n_logits * b->t.s.vocab * sizeof(float) },
    };
    if (ech_exec_run(b->exec, b->t.program, b->t.program_len,
                     &(ech_exec_args){ .tensors = tensors,
                                       .n_tensors = ECH_STEP_TENSORS,
                                       .scalars = scalars,
                                       .poll = count_time,
                                       .poll_ctx = b,
                                       .n_scalars = ECH_STEP_SCALARS },
                     &err) != ECH_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static void open_bench(bench *const b, const setup *const o)
{
    *b = (bench){ .o = o };
    toy_init(&b->t, &o->shape, 1);
    const uint32_t cpus[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    ech_error err;
    const ech_exec_options options = {
        .n_threads = o->n_threads,
        .cpus = cpus,
        .isa = o->isa,
        .arena_bytes = ech_program_arena_bytes(b->t.program, b->t.program_len),
    };
    if (ech_exec_create(&b->exec, &options, &err) != ECH_OK ||
        ech_exec_load(b->exec, b->t.program, b->t.program_len, &err) != ECH_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    const uint32_t n_seqs = o->is_streams ? o->n_rows : 1;
    const uint32_t per_seq = (o->depth + (o->is_streams ? 1 : o->n_rows) + 31) / 32;
    b->n_pages = n_seqs * per_seq;
    b->n_logits = o->is_streams ? o->n_rows : 1;
    b->rows = calloc(o->n_rows, sizeof(*b->rows));
    b->pages = calloc(b->n_pages, sizeof(*b->pages));
    b->kv = aligned_alloc(64, (b->n_pages * b->t.page_bytes + 63) / 64 * 64);
    memset(b->kv, 0, b->n_pages * b->t.page_bytes);
    b->logits = calloc((size_t)b->n_logits * o->shape.vocab, sizeof(float));
    for (uint32_t i = 0; i < b->n_pages; i++)
        b->pages[i] = i;
    for (uint32_t i = 0; i < o->n_rows; i++)
        b->rows[i] = (ech_row){
            .seq = o->is_streams ? i : 0,
            .pos = o->depth + (o->is_streams ? 0 : i),
            .id = (int32_t)(i * 37 % o->shape.vocab),
            .pages = o->is_streams ? i * per_seq : 0,
            .logit_row = o->is_streams        ? (int32_t)i
                         : i == o->n_rows - 1 ? 0
                                              : -1,
        };
}

int main(int argc, char **argv)
{
    setup o = {
        .shape = { .n_layers = 4,
                   .vocab = 32768,
                   .type = ECH_PACK_BF16,
                   .source = ECH_SRC_BF16,
                   .kv = ECH_KV_F16,
                   .is_qwen = true },
        .n_threads = 2,
        .n_rows = 1,
        .repeats = 20,
    };
    take_shape(&o.shape, "0.6B");
    for (int i = 1; i + 1 < argc; i += 2)
        take_option(&o, argv[i], argv[i + 1]);
    o.shape.max_rows = o.n_rows;
    o.shape.max_positions = o.depth + o.n_rows + 1;
    bench b;
    open_bench(&b, &o);
    step(&b);
    double best = 1e18, read = 0;
    for (uint32_t i = 0; i < o.repeats; i++) {
        const int64_t t0 = clock_ns(&o);
        step(&b);
        const double t = (double)(clock_ns(&o) - t0);
        if (t < best) best = t;
        const double r = i < 5 ? read_rate(&b.t, o.n_threads) : 0;
        if (r > read) read = r;
    }
    /* The embedding is read a row at a time: leave it out of a step's bytes and operations. */
    const double embed = (double)ech_matrix_bytes(o.shape.type, o.shape.vocab, o.shape.hidden);
    const double bytes = (double)b.t.image_bytes - embed;
    const double weights =
        (double)o.shape.n_layers * ((double)o.shape.hidden * o.shape.head_dim *
                                        (2 * o.shape.n_heads + 2 * o.shape.n_kv_heads) +
                                    3.0 * o.shape.hidden * o.shape.ffn);
    const double flops =
        2 * (weights * o.n_rows + (double)o.shape.hidden * o.shape.vocab * b.n_logits);
    printf("%s %u threads, %u rows at %u: best %.3f ms; %.1f GB/s (plain read %.1f, %.0f %%); %.0f "
           "GFLOP/s\n",
           ech_exec_isa_name(b.exec), o.n_threads, o.n_rows, o.depth, best * 1e-6, bytes / best,
           read, 100 * bytes / best / read, flops / best);
    static const char *const names[ECH_OP_COUNT + 4] = {
        [ECH_OP_EMBED] = "embed", [ECH_OP_ROPE_KV] = "rope_kv",   [ECH_OP_ATTENTION] = "attention",
        [ECH_OP_HEAD] = "head",   [ECH_OP_ROPE_TABLE] = "rope",   [ECH_OP_COUNT] = "qkv",
        [ECH_OP_COUNT + 1] = "o", [ECH_OP_COUNT + 2] = "gate_up", [ECH_OP_COUNT + 3] = "down",
    };
    for (int i = 0; i < ECH_OP_COUNT + 4; i++)
        if (names[i] != NULL) printf("  %s %.3f", names[i], b.op_ns[i] * 1e-6 / (o.repeats + 1));
    printf(" ms a step, mean\n");
    return 0;
}
