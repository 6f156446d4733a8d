/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's text side, wherever the model keeps it: beside the weights (tokenizer.json) or inside
 * them (GGUF metadata). Here, because neither model nor text may know the other.
 */
#ifndef ECH_ENGINE_VOCAB_H
#define ECH_ENGINE_VOCAB_H

#include "echelon/tokenizer.h"
#include "src/model/model.h"

/* The tokenizer of an open model, which the caller closes; tables may hold those of an earlier
 * opening (tokenizer_tables.h), or nothing. */
ech_status ech_vocab_open(const ech_model *model, ech_str tables, ech_tokenizer **ret_tok,
                          ech_error *err);

#endif
