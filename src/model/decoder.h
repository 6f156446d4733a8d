/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dense decoders of the Llama family have in common: RMS norm, grouped attention with rotary
 * positions, a gated layer with SiLU, pre-norm residuals. An architecture file gives its traits.
 */
#ifndef ECH_MODEL_DECODER_H
#define ECH_MODEL_DECODER_H

#include "src/model/layout.h"

typedef struct ech_decoder_traits {
    bool qk_norm;              /* RMS norm per head of queries and keys, before the rotation */
    ech_rope_pairs gguf_pairs; /* pairs of a rotated head as GGUF files of it are stored */
} ech_decoder_traits;

ech_status ech_decoder_bind(const ech_decoder_traits *t, ech_layout *l, ech_error *err);
ech_status ech_decoder_emit(const ech_decoder_traits *t, const ech_layout *l,
                            ech_program_builder *b, ech_error *err);

#endif
