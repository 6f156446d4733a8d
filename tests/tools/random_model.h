/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a model of random weights in Hugging Face's layout: for tests of shapes that no golden
 * model has, and for speed, which doesn't depend on the values. The same spec gives the same bytes.
 */
#ifndef ECH_TESTS_TOOLS_RANDOM_MODEL_H
#define ECH_TESTS_TOOLS_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct random_model {
    const char *architecture; /* "qwen3" or "llama" */
    const char *type;         /* "f32", "f16" or "bf16" */
    uint32_t n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab, max_context;
    bool tied;
    uint64_t seed;
} random_model;

/* Fills *ret with the shape of a published model: "0.6b", "1.7b", "4b", "8b", "14b", as Qwen3 has
 * them. */
bool random_model_shape(const char *name, random_model *ret);

/* Writes config.json, generation_config.json and model.safetensors into an existing folder. */
bool random_model_write(const random_model *m, const char *folder);

#endif
