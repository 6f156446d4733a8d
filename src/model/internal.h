/* SPDX-License-Identifier: Apache-2.0 */
/* The open model, for the files of this folder alone. */
#ifndef ECH_MODEL_INTERNAL_H
#define ECH_MODEL_INTERNAL_H

#include "src/model/gguf.h"
#include "src/model/layout.h"

#define ECH_MODEL_WARNINGS_MAX 8u

struct ech_model {
    char *path;
    char *folder;
    ech_model_format format;
    ech_quantize quantize;
    ech_weights weights;
    ech_gguf gguf; /* empty for other formats */
    ech_config config;
    ech_layout layout;
    const char *warnings[ECH_MODEL_WARNINGS_MAX]; /* in strings */
    uint32_t n_warnings;
    ech_arena strings;
};

/* Keeps a warning; beyond the maximum, or without memory, it is dropped. */
void ech_model_warn(ech_model *m, const char *fmt, ...) ECH_PRINTF_(2, 3);

#endif
