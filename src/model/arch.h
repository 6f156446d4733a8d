/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Architectures: one file each (arch_*.c), one table. An architecture says which tensors make up
 * the packed image (bind) and which operations a step is (emit). It reads numbers from ech_config
 * and knows no file format but the names that each format gives its tensors.
 *
 * Adding one: a file that defines an ech_arch, and its line in ECH_ARCH_TABLE.
 */
#ifndef ECH_MODEL_ARCH_H
#define ECH_MODEL_ARCH_H

#include "src/base/buf.h"
#include "src/chip/builder.h"

typedef struct ech_config ech_config;
typedef struct ech_layout ech_layout;

/* How the file that is being bound names its tensors and orders the pairs of a rotated head. */
typedef enum ech_model_format {
    ECH_FORMAT_SAFETENSORS,
    ECH_FORMAT_GGUF,
} ech_model_format;

typedef struct ech_arch {
    const char *name;     /* model_type in config.json, general.architecture in GGUF */
    const char *hf_class; /* architectures[0] in config.json */
    uint32_t head_dim;    /* where the config has none; 0: hidden / heads */
    /* Binds every tensor of the model to an entry of the layout. */
    ech_status (*bind)(ech_layout *layout, ech_error *err);
    /* Adds the operations of a step to b, which remembers its own errors. */
    ech_status (*emit)(const ech_layout *layout, ech_program_builder *b, ech_error *err);
} ech_arch;

extern const ech_arch ech_arch_qwen3;
extern const ech_arch ech_arch_llama;

/* NULL when there is none of that name. */
const ech_arch *ech_arch_find(const char *name);
/* Appends the names, comma-separated, for messages. */
void ech_arch_list(ech_buf *out);

#endif
