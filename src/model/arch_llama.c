/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama and what shares its shape (SmolLM2, TinyLlama, …). GGUF files of it store the rows of
 * queries and keys so that a pair stands side by side.
 */
#include "src/model/decoder.h"

static const ech_decoder_traits TRAITS = { .qk_norm = false, .gguf_pairs = ECH_ROPE_INTERLEAVED };

static ech_status bind(ech_layout *const layout, ech_error *const err)
{
    return ech_decoder_bind(&TRAITS, layout, err);
}

static ech_status emit(const ech_layout *const layout, ech_program_builder *const b,
                       ech_error *const err)
{
    return ech_decoder_emit(&TRAITS, layout, b, err);
}

const ech_arch ech_arch_llama = {
    .name = "llama",
    .hf_class = "LlamaForCausalLM",
    .head_dim = 0,
    .bind = bind,
    .emit = emit,
};
