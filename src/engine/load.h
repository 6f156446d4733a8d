/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling the weights: from the model's files, or from the cache of packed weights.
 *
 *     cache      --load    region `weights`     task
 *     no file    either    shared memory        pack     then the cache file is written
 *     a file     copy      shared memory        copy     checksums compared; damaged: as no file
 *     a file     map       the file             enter    nothing is copied
 *
 * Found before anything is mapped; filled by the engine's thread; the cache file is written by a
 * thread of its own while requests run. No failure of the cache is a failure of the engine: it is
 * one line, and the model's files are packed.
 */
#ifndef ECH_ENGINE_LOAD_H
#define ECH_ENGINE_LOAD_H

#include <pthread.h>

#include "src/model/cache.h"

typedef struct ech_loading {
    bool uses_cache;
    bool is_small; /* faster packed than looked up: not written to the cache by itself */
    bool has_file;
    bool was_there;     /* at the start */
    bool is_mapped;     /* the weights are the file */
    bool is_packing;    /* ech_engine_pack(): the caller writes the file */
    const char *output; /* of packing: where to; NULL: the cache */
    bool is_fresh;      /* packed from the model's files, which did not change meanwhile */
    double pack_s;
    char folder[ECH_MODEL_PATH_MAX];
    ech_cache_key key;
    ech_cache_file file; // while has_file: until it is copied, or as long as it is mapped
    char *tables;        // the tokenizer's, out of the file; until it is open
    size_t tables_bytes;
    pthread_t writer;
    bool writer_runs;
    uint32_t stop; /* atomic: the writer should give up */
} ech_loading;

struct ech_engine;

/* Looks for a file of the open model. Fails only for a file that the user named. */
ech_status ech_load_find(struct ech_engine *e, ech_error *err);
/* Registers what fills the weights. NEW workers only. */
ech_status ech_load_register(struct ech_engine *e, ech_error *err);
/* Opens the tokenizer, with the file's tables if it has them; who opens the engine. */
ech_status ech_load_tokenizer(struct ech_engine *e, ech_error *err);
/* Fills the weights; the engine's thread. */
ech_status ech_load_run(struct ech_engine *e, ech_error *err);
/* Before and between steps: EIO when the file that is mapped was cut or written over. */
ech_status ech_load_check(const struct ech_engine *e, ech_error *err);
/* Waits for the writer, gives up descriptors. Before the worker is closed. */
void ech_load_fini(struct ech_engine *e);

#endif
