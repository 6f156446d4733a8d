/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that say how an engine gets its weights and in which types it computes, for every
 * command that opens one:
 *
 *     static const ech_option OPTIONS[] = { …, ECH_LOAD_OPTIONS, … };
 *     ech_take_load_options(&engine_options);
 */
#ifndef ECH_CLI_LOAD_OPTIONS_H
#define ECH_CLI_LOAD_OPTIONS_H

#include "echelon/engine.h"
#include "src/cli/options.h"

typedef struct ech_load_options {
    ech_quantize quantize;
    ech_load load;
    ech_kv_type kv_type;
    ech_compute compute;
    const char *cache_dir;
    const char *packed;
    bool no_cache;
} ech_load_options;

/* What the command line said. */
extern ech_load_options ech_cli_load;

const char *ech_cli_take_quantize(const char *name, const char *value);
const char *ech_cli_take_load(const char *name, const char *value);
const char *ech_cli_take_kv_type(const char *name, const char *value);
const char *ech_cli_take_compute(const char *name, const char *value);

#define ECH_QUANTIZE_OPTION                                                                        \
    {                                                                                              \
        "quantize", 0, ECH_OPT_CALL, NULL, "TYPE",                                                 \
            "pack the weights as q8, q6, q4 or bf16; keep (default): as the files have them", 0,   \
            0, ech_cli_take_quantize                                                               \
    }
#define ECH_KV_TYPE_OPTION                                                                         \
    {                                                                                              \
        "kv-type", 0, ECH_OPT_CALL, NULL, "TYPE", "f16 (default), f32, bf16 or q8", 0, 0,          \
            ech_cli_take_kv_type                                                                   \
    }
#define ECH_COMPUTE_OPTION                                                                         \
    {                                                                                              \
        "compute", 0, ECH_OPT_CALL, NULL, "TYPE", "f32 (default) or bf16", 0, 0,                   \
            ech_cli_take_compute                                                                   \
    }
#define ECH_CACHE_DIR_OPTION                                                                       \
    {                                                                                              \
        "cache-dir", 0, ECH_OPT_STRING, &ech_cli_load.cache_dir, "DIR",                            \
            "folder of packed weights; default: $XDG_CACHE_HOME/echelon", 0, 0, NULL               \
    }
#define ECH_LOAD_OPTIONS                                                                           \
    ECH_QUANTIZE_OPTION,                                                                           \
        { "load",                                                                                  \
          0,                                                                                       \
          ECH_OPT_CALL,                                                                            \
          NULL,                                                                                    \
          "HOW",                                                                                   \
          "packed weights from the cache: copy (default) into memory, or map the file",            \
          0,                                                                                       \
          0,                                                                                       \
          ech_cli_take_load },                                                                     \
        ECH_CACHE_DIR_OPTION,                                                                      \
        { "packed",                                                                                \
          0,                                                                                       \
          ECH_OPT_STRING,                                                                          \
          &ech_cli_load.packed,                                                                    \
          "FILE",                                                                                  \
          "packed weights that 'echelon pack -o' made, instead of the cache's",                    \
          0,                                                                                       \
          0,                                                                                       \
          NULL },                                                                                  \
    {                                                                                              \
        "no-cache", 0, ECH_OPT_FLAG, &ech_cli_load.no_cache, NULL,                                 \
            "pack the model's files; read and write no cache", 0, 0, NULL                          \
    }

void ech_take_load_options(ech_engine_options *o);

#endif
