/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's numbers: config.json and generation_config.json, checked and with defaults filled in.
 * What a config asks for and Echelon doesn't compute is an error that names the field: a model
 * runs as its authors meant it, or not at all.
 */
#ifndef ECH_MODEL_CONFIG_H
#define ECH_MODEL_CONFIG_H

#include "src/model/arch.h"
#include "src/model/model.h"
#include "src/model/rope.h"

/* Bounds far above any model, low enough that products of three of them fit 64 bits. */
#define ECH_CONFIG_WIDTH_MAX   (1u << 20)
#define ECH_CONFIG_LAYERS_MAX  4096u
#define ECH_CONFIG_HEADS_MAX   4096u
#define ECH_CONFIG_VOCAB_MAX   (1u << 24)
#define ECH_CONFIG_CONTEXT_MAX (1u << 28)

typedef struct ech_config {
    const ech_arch *arch;
    uint32_t n_layers;
    uint32_t hidden;
    uint32_t ffn;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t max_context;
    double rms_eps;
    bool has_tie; /* the config says whether the head is the embedding */
    bool tie;
    ech_rope rope;
    const float *rope_factors; /* [head_dim / 2] that frequencies are divided by; NULL: none */
    ech_model_ids ids;
    ech_sampling_defaults sampling;
} ech_config;

/* Reads folder/config.json and, where it exists, folder/generation_config.json. */
ech_status ech_config_load(const char *folder, ech_config *ret_config, ech_error *err);
/* Checks that numbers agree with one another; where names the file in errors. */
ech_status ech_config_check(const ech_config *c, const char *where, ech_error *err);

#endif
