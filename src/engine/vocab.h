/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's text side, wherever the model keeps it: beside the weights (tokenizer.json) or inside
 * them (GGUF metadata). Here, because neither model nor text may know the other.
 */
#ifndef ECH_ENGINE_VOCAB_H
#define ECH_ENGINE_VOCAB_H

#include "echelon/tokenizer.h"
#include "src/model/model.h"

/* The tokenizer of an open model; the caller closes it. */
ech_status ech_vocab_open(const ech_model *model, ech_tokenizer **ret_tok, ech_error *err);

#endif
