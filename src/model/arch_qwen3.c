/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3, dense: a decoder whose queries and keys are normalised per head before they are rotated.
 * GGUF files keep the pairs as transformers has them.
 */
#include "src/model/decoder.h"

static const ech_decoder_traits TRAITS = { .qk_norm = true, .gguf_pairs = ECH_ROPE_HALF };

static ech_status bind(ech_layout *const layout, ech_error *const err)
{
    return ech_decoder_bind(&TRAITS, layout, err);
}

static ech_status emit(const ech_layout *const layout, ech_program_builder *const b,
                       ech_error *const err)
{
    return ech_decoder_emit(&TRAITS, layout, b, err);
}

const ech_arch ech_arch_qwen3 = {
    .name = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .head_dim = 128, /* the default of transformers: not hidden / heads */
    .bind = bind,
    .emit = emit,
};
