/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/model.h - a model's files: finding them, checking them, saying what they hold.
 *
 * A model is a folder in Hugging Face's layout (config.json, generation_config.json and
 * safetensors, one file or sharded by model.safetensors.index.json), or a GGUF file, of a split one
 * whichever part; a folder that holds one GGUF file means that file. Opening reads configs and
 * tensor headers only: it takes milliseconds whatever the model's size, allocates no weights and
 * starts no thread. Everything that can be wrong with the files is found here: a file that was cut,
 * a shard that is missing, a tensor of the wrong shape, a setting that Echelon doesn't compute.
 * The error names the file, the tensor or field, what was expected and what was found.
 *
 *     ech_model *m;
 *     ech_error err;
 *     if (ech_model_open(&m, "models/tale", &err) != ECH_OK) { puts(err.text); return 1; }
 *     ech_model_info info;
 *     ech_model_get_info(m, &info);
 *     printf("%s, %u layers\n", info.architecture, info.n_layers);
 *     ech_model_close(&m);
 *
 * Threads: an open model never changes, so any number of threads may read it; open and close it
 * from one.
 */
#ifndef ECHELON_MODEL_H
#define ECHELON_MODEL_H

#include "echelon/status.h"
#include "echelon/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** "f16", …; "?" for a value that is no type. */
ECH_API const char *ech_kv_type_name(ech_kv_type type);
/** Reads a name as the command line takes it. EINVAL lists what there is. */
ECH_API ech_status ech_kv_type_parse(const char *name, ech_kv_type *ret_type, ech_error *err);
/** "f32", "bf16"; "?" for a value that is no type. */
ECH_API const char *ech_compute_name(ech_compute compute);
/** Reads a name as the command line takes it. EINVAL lists what there is. */
ECH_API ech_status ech_compute_parse(const char *name, ech_compute *ret_compute, ech_error *err);

/** "keep", "q8", …; "?" for a value that is none. */
ECH_API const char *ech_quantize_name(ech_quantize quantize);
/** Reads a name as the command line takes it. EINVAL lists what there is. */
ECH_API ech_status ech_quantize_parse(const char *name, ech_quantize *ret_quantize, ech_error *err);

/** "model", "last", "mean", "cls"; "?" for a value that is none. */
ECH_API const char *ech_pooling_name(ech_pooling pooling);
/** Reads a name as the command line takes it, "lasttoken" too. EINVAL lists what there is. */
ECH_API ech_status ech_pooling_parse(const char *name, ech_pooling *ret_pooling, ech_error *err);
/** "copy", "map"; "?" for a value that is none. */
ECH_API const char *ech_load_name(ech_load load);
/** Reads a name as the command line takes it. EINVAL lists what there is. */
ECH_API ech_status ech_load_parse(const char *name, ech_load *ret_load, ech_error *err);

/** An open model. Opaque. */
typedef struct ech_model ech_model;

/** Bytes of a path, its terminating zero included. */
#define ECH_MODEL_PATH_MAX 4096

/**
 * Says which model a name means, without opening it.
 *
 * path    a folder or file, taken as it is; NULL or "": the first that exists of the environment's
 *         ECHELON_MODEL (an error when it is set and doesn't exist), ./models/tale, models/tale of
 *         the source tree this library was built from, and the installed share/echelon/models/tale.
 * ret     [ECH_MODEL_PATH_MAX] receives the path.
 *
 * ENOTFOUND names every place that was looked at. Nothing is owned.
 */
ECH_API ech_status ech_model_find(const char *path, char *ret, ech_error *err);

/**
 * Opens and checks a model. path as ech_model_find takes it, NULL included.
 *
 * Ownership: on success *ret_model is the caller's, to be closed with ech_model_close(); it keeps
 * the weight files open (one descriptor each). On failure nothing is left and *ret_model is
 * untouched.
 *
 * Errors: ENOTFOUND a file is missing; EFORMAT a file is damaged or disagrees with another;
 * EUNSUPPORTED an architecture, type or setting that Echelon doesn't compute; EIO; ENOMEM; ELIMIT
 * a header or config larger than Echelon reads.
 */
ECH_API ech_status ech_model_open(ech_model **ret_model, const char *path, ech_error *err);

/** How a model is opened. Start from { .struct_size = sizeof(ech_model_options) }. */
typedef struct ech_model_options {
    size_t struct_size;
    ech_quantize quantize; /* what the packed weights are; the files stay as they are */
} ech_model_options;

/**
 * The same with options. options may be NULL: everything as ech_model_open has it. EINVAL: an
 * option that has no such value.
 */
ECH_API ech_status ech_model_open_with(ech_model **ret_model, const char *path,
                                       const ech_model_options *options, ech_error *err);

/** Closes and sets *model to NULL. NULL and a NULL model are accepted. */
ECH_API void ech_model_close(ech_model **model);

/**
 * What a model is, in numbers. Strings belong to the model and live as long as it. Byte counts are
 * bytes, not MB; parameters are counted per tensor, a tied head once.
 */
typedef struct ech_model_info {
    const char *path;         /* the folder or file that was opened */
    const char *architecture; /* "qwen3", "llama" */
    const char *format;       /* "safetensors" or "gguf" */
    uint32_t n_files;         /* weight files */
    uint32_t n_tensors;       /* tensors that the architecture uses */
    uint32_t n_layers;
    uint32_t hidden;     /* width of the residual stream */
    uint32_t ffn;        /* width of the gated layer */
    uint32_t n_heads;    /* query heads */
    uint32_t n_kv_heads; /* key and value heads */
    uint32_t head_dim;
    uint32_t vocab;         /* rows of the head: ids are below it */
    uint32_t max_context;   /* positions that the model was made for */
    bool tied;              /* the head is the embedding */
    const char *rope;       /* "default", "linear", "llama3", "yarn" */
    uint64_t n_params;      /* all parameters */
    uint64_t n_params_step; /* those that a decoded token multiplies with */
    uint64_t source_bytes;  /* of the tensors in their files */
    uint64_t packed_bytes;  /* of the packed weights in memory */
    uint64_t step_bytes;    /* packed weights that one decode step reads, whatever its rows */
} ech_model_info;

/** Fills *ret. Can't fail. */
ECH_API void ech_model_get_info(const ech_model *model, ech_model_info *ret);

/** Bytes of KV cache that one position of one sequence takes. 0 for a type that is no KV type. */
ECH_API uint64_t ech_model_kv_bytes_per_token(const ech_model *model, ech_kv_type type);

/** One tensor. The strings belong to the model. */
typedef struct ech_model_tensor {
    const char *name;        /* as the file has it */
    const char *file;        /* path of the file that holds it */
    const char *type;        /* type in the file: "bf16", … */
    const char *packed_type; /* type in memory */
    uint32_t n_dims;         /* 1 to 4 */
    uint64_t dims[4];        /* outermost first: [rows, columns] for a matrix */
    uint64_t offset;         /* first byte in the file */
    uint64_t bytes;          /* in the file */
    uint64_t packed_bytes;   /* in memory, padding included */
    bool read_per_step;      /* a decode step reads all of it (an embedding alone: one row) */
} ech_model_tensor;

/** Tensors that the architecture uses: what ech_model_tensor_at counts. */
ECH_API uint32_t ech_model_n_tensors(const ech_model *model);
/** Fills *ret for the tensor number idx, in the order of the computation. EINVAL beyond the end. */
ECH_API ech_status ech_model_tensor_at(const ech_model *model, uint32_t idx, ech_model_tensor *ret);

/**
 * What was odd in the files but doesn't keep the model from running, one line each, as
 * "tie_word_embeddings is true but lm_head.weight exists: the tensor is used". NULL beyond the
 * last. The text belongs to the model. Opening prints nothing.
 */
ECH_API const char *ech_model_warning_at(const ech_model *model, uint32_t idx);

/* ---- the cache of packed weights -------------------------------------------------------------- */

/** A file of the cache. Texts are empty where it says nothing (not usable, unfinished). */
typedef struct ech_cache_entry {
    char path[ECH_MODEL_PATH_MAX];
    char model[ECH_MODEL_PATH_MAX]; /* what was packed */
    char architecture[32];
    char type[16];     /* what --quantize said */
    uint64_t bytes;
    int64_t created_s; /* seconds since 1970; 0: not known */
    int64_t used_s;    /* the last time an engine opened it */
    bool usable;       /* whole, and of this version's layout */
    bool unfinished;   /* being written, or left by a process that was killed */
} ech_cache_entry;

/**
 * What the cache holds, most recently used first. folder: NULL or "" means the environment's
 * ECHELON_CACHE_DIR, else $XDG_CACHE_HOME/echelon, else ~/.cache/echelon. A folder that doesn't
 * exist holds nothing. Ownership: *ret_list is the caller's, for free(). Errors: EIO, ENOMEM,
 * ENOTFOUND: no folder is known.
 */
ECH_API ech_status ech_cache_list(const char *folder, ech_cache_entry **ret_list, size_t *ret_n,
                                  ech_error *err);

/**
 * Removes the cache's files, and nothing else that lies in the folder; a file that another process
 * is writing stays. Engines that have one mapped keep it. *ret_n files of *ret_bytes went, on
 * failure too: EIO is the first that couldn't.
 */
ECH_API ech_status ech_cache_clear(const char *folder, size_t *ret_n, uint64_t *ret_bytes,
                                   ech_error *err);

#ifdef __cplusplus
}
#endif

#endif
