/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random decoder for tests of the chip: its source weights, its image (packed by the pack
 * program), its forward program, and a plain double-precision evaluation to compare with.
 *
 * Weights are drawn so that activations stay near 1 and logits differ clearly.
 */
#ifndef ECH_TESTS_CHIP_TOY_H
#define ECH_TESTS_CHIP_TOY_H

#include "src/chip/builder.h"
#include "src/chip/exec.h"
#include "src/chip/pack.h"

enum { TOY_MAX_LAYERS = 64 };

typedef struct toy_shape {
    uint32_t hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab;
    uint32_t max_rows, max_positions;
    ech_src_type source;
    ech_pack_type type;
    ech_kv_type kv;
    ech_compute compute;
    bool is_qwen; /* q and k norms */
    ech_rope_pairs pairs;
} toy_shape;

typedef struct toy {
    toy_shape s;
    float *weights; /* all source numbers, after rounding to the source type, in order */
    void *source;   /* the same as bytes of the source type */
    size_t source_bytes;
    void *image;
    uint64_t image_bytes;
    void *pack;
    size_t pack_len;
    void *program;
    size_t program_len;
    size_t page_bytes;
    float *inv_freq; // [head_dim / 2]
} toy;

uint64_t toy_random(uint64_t *state);
/* Uniform in [-1, 1). */
float toy_uniform(uint64_t *state);

/* Builds everything and packs the image with one thread. Fails the test on any error. */
void toy_init(toy *t, const toy_shape *shape, uint64_t seed);
void toy_fini(toy *t);

/* One sequence's pages and logits of all its positions. */
typedef struct toy_run {
    const toy *t;
    ech_exec *exec;
    void *kv;
    uint32_t *pages;
    uint32_t n_pages;
    float *logits; // [n, vocab]
    uint32_t n;
} toy_run;

/* Pages in a shuffled order, filled with finite garbage. */
void toy_run_init(toy_run *r, const toy *t, uint32_t n, uint32_t n_threads, ech_isa isa);
void toy_run_fini(toy_run *r);
/* Computes positions [from, from + n) of ids in one step, logits of all of them (n <= 64). */
void toy_run_step(toy_run *r, const int32_t *ids, uint32_t from, uint32_t n);
/* The same, returning the failure. */
ech_status toy_run_try(toy_run *r, const int32_t *ids, uint32_t from, uint32_t n, ech_error *err);
/* All n positions, in chunks. */
void toy_run_chunks(toy_run *r, const int32_t *ids, uint32_t chunk);

/* Logits of every position in double precision; f32 weights as rounded to the packed type. */
void toy_reference(const toy *t, const int32_t *ids, uint32_t n, double *logits);

#endif
