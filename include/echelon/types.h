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
 * so that every CPU computes the same thing. BF16: activations are rounded to bf16 and native dot
 * products are used; faster, less exact, never chosen silently.
 */
#define ECH_COMPUTE_MAP(X)                                                                         \
    X(F32, 0, "f32")                                                                               \
    X(BF16, 1, "bf16")

typedef enum ech_compute {
#define X(name, value, text) ECH_COMPUTE_##name = value,
    ECH_COMPUTE_MAP(X)
#undef X
} ech_compute;

#endif
