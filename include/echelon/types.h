/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/types.h - the names that more than one part of the library shares.
 *
 * Values are part of the ABI and of file formats: append, never renumber.
 */
#ifndef ECHELON_TYPES_H
#define ECHELON_TYPES_H

/** How keys and values are stored: X(NAME, value, "name on the command line"). */
#define ECH_KV_TYPE_MAP(X)                                                                         \
    X(F16, 0, "f16")                                                                               \
    X(F32, 1, "f32")                                                                               \
    X(BF16, 2, "bf16")                                                                             \
    X(Q8, 3, "q8")

typedef enum ech_kv_type {
#define X(name, value, text) ECH_KV_##name = value,
    ECH_KV_TYPE_MAP(X)
#undef X
} ech_kv_type;

/**
 * What 16- and 32-bit weights are multiplied with. F32: weights are widened, activations stay f32,
 * so that every CPU computes the same thing. BF16: activations are rounded to bf16, and for
 * attention keys and values of type f16 or bf16, and native dot products are used; faster, less
 * exact, never chosen silently.
 */
#define ECH_COMPUTE_MAP(X)                                                                         \
    X(F32, 0, "f32")                                                                               \
    X(BF16, 1, "bf16")

typedef enum ech_compute {
#define X(name, value, text) ECH_COMPUTE_##name = value,
    ECH_COMPUTE_MAP(X)
#undef X
} ech_compute;

/**
 * What matrices are written as when they are packed. KEEP: as the files have them. Otherwise those
 * that take more bits than this: X(NAME, value, "name on the command line"). Q8, Q6 and Q4 are
 * blocks of 32 with a scale; with Q6 and Q4, embedding and head are written as Q8. Vectors stay
 * f32.
 */
#define ECH_QUANTIZE_MAP(X)                                                                        \
    X(KEEP, 0, "keep")                                                                             \
    X(BF16, 1, "bf16")                                                                             \
    X(Q8, 2, "q8")                                                                                 \
    X(Q4, 3, "q4")                                                                                 \
    X(Q6, 4, "q6")

typedef enum ech_quantize {
#define X(name, value, text) ECH_QUANTIZE_##name = value,
    ECH_QUANTIZE_MAP(X)
#undef X
} ech_quantize;

/**
 * What of a prompt's hidden states is its embedding. MODEL: what the model's files say, else the
 * last token. X(NAME, value, "name on the command line").
 */
#define ECH_POOLING_MAP(X)                                                                         \
    X(MODEL, 0, "model")                                                                           \
    X(LAST, 1, "last")                                                                             \
    X(MEAN, 2, "mean")                                                                             \
    X(CLS, 3, "cls")

typedef enum ech_pooling {
#define X(name, value, text) ECH_POOLING_##name = value,
    ECH_POOLING_MAP(X)
#undef X
} ech_pooling;

/**
 * Where packed weights live. COPY: in shared memory, read from the cache's file. MAP: the file
 * itself, mapped; nothing is copied, but the system may drop pages that are idle. Either way a
 * first load packs into shared memory: X(NAME, value, "name on the command line").
 */
#define ECH_LOADS_MAP(X)                                                                           \
    X(COPY, 0, "copy")                                                                             \
    X(MAP, 1, "map")

typedef enum ech_load {
#define X(name, value, text) ECH_LOAD_##name = value,
    ECH_LOADS_MAP(X)
#undef X
} ech_load;

#endif
