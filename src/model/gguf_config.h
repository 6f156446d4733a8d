/* SPDX-License-Identifier: Apache-2.0 */
/* What a GGUF file's metadata says a model is: the same numbers that config.json gives. */
#ifndef ECH_MODEL_GGUF_CONFIG_H
#define ECH_MODEL_GGUF_CONFIG_H

#include "src/model/config.h"
#include "src/model/gguf.h"

/*
 * Reads the config; path names the file in errors. ws, sealed, tells the size of the vocabulary
 * and holds the frequency factors of Llama 3, which go into arena.
 */
ech_status ech_gguf_config(const ech_gguf *g, const ech_weights *ws, const char *path,
                           ech_arena *arena, ech_config *ret_config, ech_error *err);

#endif
