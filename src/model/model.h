/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine needs of an open model beyond echelon/model.h: the files to map, the sizes to
 * map them at, the programs to register, and the numbers of its configs.
 *
 * The order of use is that of a start (DESIGN, "Processes and memory"):
 *
 *     ech_model_open → ech_model_make_plan → ech_plan_check      nothing mapped yet
 *     map source.N (ech_model_source_at), weights, kv, step       sizes from the plan
 *     ech_model_image_begin                                       directory of the weights
 *     ech_model_pack_program, ech_model_forward_program           registered before init
 *     fork; submit pack; ready
 *     ech_model_close_sources                                     after the pack task is done
 *
 * An open model never changes (but for closing its sources), so threads may share it.
 */
#ifndef ECH_MODEL_MODEL_H
#define ECH_MODEL_MODEL_H

#include "echelon/model.h"
#include "src/base/buf.h"

/* EOS ids that a model may have; Qwen and Llama have up to 3. */
#define ECH_MODEL_EOS_MAX 16

/* What generation_config.json suggests. A value is set only where the file has it. */
typedef struct ech_sampling_defaults {
    bool has_do_sample, has_temperature, has_top_k, has_top_p, has_min_p, has_repetition_penalty;
    bool do_sample;
    float temperature;
    uint32_t top_k;
    float top_p;
    float min_p;
    float repetition_penalty;
} ech_sampling_defaults;

typedef struct ech_model_ids {
    int32_t
        eos[ECH_MODEL_EOS_MAX]; /* generation_config.json and config.json together, no id twice */
    uint32_t n_eos;
    int32_t bos; /* -1: none */
    int32_t pad; /* -1: none */
} ech_model_ids;

const ech_model_ids *ech_model_get_ids(const ech_model *model);
const ech_sampling_defaults *ech_model_get_sampling(const ech_model *model);

/* What the files say of pooling; ECH_POOLING_LAST where they say nothing. EUNSUPPORTED, EFORMAT. */
ech_status ech_model_pooling(const ech_model *model, ech_pooling *ret, ech_error *err);

/*
 * The folder that holds tokenizer.json and chat_template.jinja; of a GGUF file, the folder it lies
 * in. Borrowed from the model.
 */
const char *ech_model_folder(const ech_model *model);

/*
 * Metadata of a GGUF model: its tokenizer and chat template live there ("tokenizer.ggml.tokens",
 * "tokenizer.chat_template", …). A model of another format has none of it. False when the key is
 * absent or of another kind. Strings are borrowed from the model; arrays are the caller's, for
 * free(), and *ret_n their length. Arrays: also false when memory is short.
 */
bool ech_model_meta_str(const ech_model *model, const char *key, ech_str *ret);
bool ech_model_meta_int(const ech_model *model, const char *key, int64_t *ret);
bool ech_model_meta_bool(const ech_model *model, const char *key, bool *ret);
bool ech_model_meta_strings(const ech_model *model, const char *key, ech_str **ret, size_t *ret_n);
bool ech_model_meta_ints(const ech_model *model, const char *key, int32_t **ret, size_t *ret_n);
bool ech_model_meta_floats(const ech_model *model, const char *key, float **ret, size_t *ret_n);

/* A weight file, to be mapped read-only as the region source.N. */
typedef struct ech_model_source {
    const char *path;
    int fd;         /* open for reading, the model's; what was checked is what will be mapped */
    uint64_t bytes; /* the file's size when it was checked */
} ech_model_source;

uint32_t ech_model_n_sources(const ech_model *model);
/* EIO when a file is shorter than it was: reading its mapping ends a process. */
ech_status ech_model_check_sources(const ech_model *model, ech_error *err);
/* idx must be below ech_model_n_sources. */
ech_model_source ech_model_source_at(const ech_model *model, uint32_t idx);
/* Gives the descriptors back once the weights are packed; fd is -1 from then on. */
void ech_model_close_sources(ech_model *model);

/* What a forward program is made for. */
typedef struct ech_forward_options {
    uint32_t max_rows;      /* rows of one step at most */
    uint32_t max_logits;    /* rows of one step that want logits at most */
    uint32_t max_positions; /* context length: positions are below it */
    ech_kv_type kv_type;
    ech_compute compute;
    bool gives_hidden; /* hidden states of up to max_rows rows, not logits: `embed` */
} ech_forward_options;

/* Every size that is mapped, known before anything is allocated. */
typedef struct ech_model_plan {
    uint64_t weights_bytes;  /* the packed image */
    uint64_t arena_bytes;    /* activations of one step, in each chip child */
    uint64_t kv_page_bytes;  /* 32 positions of one sequence, all layers */
    uint64_t kv_token_bytes; /* one position: kv_page_bytes / 32 */
    uint64_t logits_bytes;   /* max_logits × vocab × 4 */
} ech_model_plan;

/* Sizes for these options. EINVAL for options that can't be, EUNSUPPORTED for types not built. */
ech_status ech_model_make_plan(const ech_model *model, const ech_forward_options *opts,
                               ech_model_plan *ret_plan, ech_error *err);

/*
 * Whether weights, n_pages of KV, and what n_chips chips need fit into available_bytes (see
 * ech_memory_available). ENOMEM says what each part takes, what there is and what to change.
 */
ech_status ech_plan_check(const ech_model *model, const ech_model_plan *plan, uint64_t n_pages,
                          uint32_t n_chips, uint64_t available_bytes, ech_error *err);

/*
 * Bytes that this process may still take: the machine's available memory or what the tightest
 * memory limit of its cgroups leaves, whichever is less. UINT64_MAX when neither can be read.
 * *ret_limit (may be NULL) becomes what limits it, a constant string for messages.
 */
uint64_t ech_memory_available(const char **ret_limit);

/*
 * Writes header and directory of the packed image to the beginning of the weights region, which is
 * new (all zero) and has plan.weights_bytes. The pack task fills in the rest.
 */
void ech_model_image_begin(const ech_model *model, void *image);

/*
 * The programs' bytes, appended to out (the caller's; on failure it holds what it held).
 *   pack:     source tensors → packed image. Tensor i of the task is source i, then the weights.
 *   forward:  one step; registered as both `prefill` and `decode`.
 */
ech_status ech_model_pack_program(const ech_model *model, ech_buf *out, ech_error *err);
ech_status ech_model_forward_program(const ech_model *model, const ech_forward_options *opts,
                                     ech_buf *out, ech_error *err);

#endif
