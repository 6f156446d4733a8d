/* SPDX-License-Identifier: Apache-2.0 */
/* Filling the weights: see load.h. */
#include "src/engine/load.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/shm.h"
#include "src/engine/engine_int.h"
#include "src/engine/vocab.h"
#include "src/text/tokenizer_tables.h"

/* Packing this much takes less time than a user notices. */
#define SMALL (UINT64_C(64) << 20)

/* ---- finding ---- */

/* A file that the user named must be what it should be. */
static ech_status open_packed(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    ECH_TRY(ech_cache_key_make(e->model, &l->key, err));
    ECH_TRY(ech_cache_open(e->model, &l->key, e->options.packed, &l->file, err));
    l->has_file = true;
    return ECH_OK;
}

static ech_status take_error(ech_error *err, const ech_error *from)
{
    if (err != NULL) *err = *from;
    return from->code;
}

/* Packing needs a cache; running doesn't. */
static ech_status find_in_cache(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    ech_error why = { .code = ECH_OK };
    ech_status rc = ech_cache_folder(e->options.cache_dir, l->folder, &why);
    if (rc == ECH_OK) rc = ech_cache_key_make(e->model, &l->key, &why);
    if (rc != ECH_OK && l->is_packing) return take_error(err, &why);
    if (rc != ECH_OK) {
        ech_log(ECH_LOG_WARN, "%s; the weights are packed without a cache", why.text);
        return ECH_OK;
    }
    l->uses_cache = true;
    l->is_small = e->model_info.packed_bytes < SMALL;
    rc = ech_cache_find(e->model, &l->key, l->folder, &l->file, &why);
    l->has_file = rc == ECH_OK;
    if (rc == ECH_EINVAL && l->is_packing) return take_error(err, &why);
    if (rc != ECH_OK && rc != ECH_ENOTFOUND)
        ech_log(ECH_LOG_WARN, "%s; the model is packed again", why.text);
    return ECH_OK;
}

/* What can't be written is said before everything is packed for it. */
static ech_status try_output(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    if (l->output != NULL) return ech_cache_try_file(e->model, l->output, err);
    return ech_cache_try(e->model, &l->key, l->folder, err);
}

ech_status ech_load_find(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    /* The sim chip computes nothing: its image is worth nothing. */
    const bool has_weights = strcmp(e->options.platform, "cpu") == 0;
    if (has_weights && e->options.packed != NULL)
        ECH_TRY(open_packed(e, err));
    else if (has_weights && !e->options.no_cache)
        ECH_TRY(find_in_cache(e, err));
    if (l->is_packing && !l->has_file && e->options.no_cache)
        ECH_TRY(ech_cache_key_make(e->model, &l->key, err));
    if (l->is_packing && !l->has_file) ECH_TRY(try_output(e, err));
    l->was_there = l->has_file;
    l->tables = l->file.section; /* the engine's thread is done with the file when it likes */
    l->tables_bytes = l->file.section_bytes;
    l->file.section = NULL;
    l->is_mapped = l->has_file && (e->options.load == ECH_LOAD_MAP || l->is_packing);
    return ECH_OK;
}

/* ---- running ---- */

ech_status ech_load_register(ech_engine *e, ech_error *err)
{
    ech_buf pack = { 0 }, load = { 0 };
    ech_status rc = ech_model_pack_program(e->model, &pack, err);
    if (rc == ECH_OK)
        rc = ech_worker_register_program(e->worker, "pack", "pack", pack.data, pack.len,
                                         &e->programs.pack, err);
    if (rc == ECH_OK && e->loading.has_file)
        rc = ech_cache_program(&e->loading.file, e->loading.is_mapped, &load, err);
    if (rc == ECH_OK && e->loading.has_file)
        rc = ech_worker_register_program(e->worker, "pack", "load", load.data, load.len,
                                         &e->programs.load, err);
    ech_buf_fini(&pack);
    ech_buf_fini(&load);
    return rc;
}

static void add_area(ech_args *args, ech_tag tag, const ech_area *a)
{
    const ech_tensor t = ech_tensor_view(a->buffer, 0, ECH_DTYPE_U8, 1, &a->bytes);
    ech_args_add(args, tag, &t);
}

static ech_status submit_pack(ech_orch *orch, void *arg, ech_error *err)
{
    ech_engine *const e = arg;
    ech_args_clear(&e->args);
    for (uint32_t i = 0; i < e->memory.n_sources; i++)
        add_area(&e->args, ECH_INPUT, &e->memory.sources[i]);
    add_area(&e->args, ECH_OUTPUT_EXISTING, &e->memory.weights);
    return ech_submit_next_level(orch, &e->programs.pack, &e->args, NULL, 0, err);
}

static ech_status submit_load(ech_orch *orch, void *arg, ech_error *err)
{
    ech_engine *const e = arg;
    const bool is_mapped = e->loading.is_mapped;
    ech_args_clear(&e->args);
    if (!is_mapped) add_area(&e->args, ECH_INPUT, &e->memory.cache);
    add_area(&e->args, is_mapped ? ECH_INPUT : ECH_OUTPUT_EXISTING, &e->memory.weights);
    return ech_submit_next_level(orch, &e->programs.load, &e->args, NULL, 0, err);
}

static ech_status run(ech_engine *e, ech_orch_fn submit, ech_error *err)
{
    ech_run *run;
    ECH_TRY(ech_worker_submit(e->worker, submit, e, &run, err));
    ech_status rc;
    while ((rc = ech_run_wait(run, 0.05, err)) == ECH_ETIMEOUT) {
        (void)pthread_mutex_lock(&e->lock);
        const bool closing = e->is_closing;
        (void)pthread_mutex_unlock(&e->lock);
        if (closing) ech_run_cancel(run);
    }
    ech_run_release(&run);
    return rc;
}

/* ---- the tokenizer ---- */

static void free_tables(ech_loading *l)
{
    free(l->tables);
    l->tables = NULL;
    l->tables_bytes = 0;
}

ech_status ech_load_tokenizer(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    ech_tokenizer *tok = NULL;
    ECH_TRY(ech_vocab_open(e->model, (ech_str){ l->tables, l->tables_bytes }, &tok, err));
    if (l->tables_bytes > 0 && !ech_tokenizer_had_tables(tok))
        ech_log(ECH_LOG_INFO, "%s: the packed file has another tokenizer's tables; they are made",
                e->model_info.path);
    free_tables(l);
    (void)pthread_mutex_lock(&e->lock);
    e->tokenizer = tok;
    e->limits.tokenizer = tok;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
    return ECH_OK;
}

/* The writer's: false when the engine was not opened. */
static bool wait_tokenizer(ech_engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    while (e->tokenizer == NULL && !e->is_closing)
        (void)pthread_cond_wait(&e->changed, &e->lock);
    const bool is_there = e->tokenizer != NULL;
    (void)pthread_mutex_unlock(&e->lock);
    return is_there;
}

/* ---- writing ---- */

/* To the cache, or to a file that the user named. */
static ech_status write_file(ech_engine *e, bool (*stop)(void *), ech_error *err)
{
    ech_loading *const l = &e->loading;
    ech_buf tables = { 0 };
    ech_status rc = ech_tokenizer_write_tables(e->tokenizer, &tables);
    const ech_cache_content content = {
        .model = e->model,
        .key = &l->key,
        .image = e->memory.weights.ptr,
        .section = tables.data,
        .section_bytes = tables.len,
        .stop = stop,
        .stop_ctx = &l->stop,
    };
    if (rc != ECH_OK)
        rc = ech_fail(err, rc, "packing %s: out of memory", e->model_info.path);
    else if (l->output != NULL)
        rc = ech_cache_write_file(&content, l->output, err);
    else
        rc = ech_cache_write(&content, l->folder, err);
    ech_buf_fini(&tables);
    return rc;
}

static bool wants_stop(void *stop)
{
    return ech_load_relaxed((uint32_t *)stop) != 0;
}

static void *writer_main(void *arg)
{
    ech_engine *const e = arg;
    ech_error err = { .code = ECH_OK };
    if (!wait_tokenizer(e)) return NULL;
    const ech_status rc = write_file(e, wants_stop, &err);
    if (rc != ECH_OK && rc != ECH_ECANCELLED)
        ech_log(ECH_LOG_WARN, "%s; the next start packs the model again", err.text);
    return NULL;
}

/* All signals are the others': and one that says "file too large" is an error of write. */
static void start_writer(ech_engine *e)
{
    ech_loading *const l = &e->loading;
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    l->writer_runs = pthread_create(&l->writer, NULL, writer_main, e) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static ech_status pack(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    ech_cache_key now;
    const int64_t begin = ech_now_ns();
    ech_model_image_begin(e->model, e->memory.weights.ptr);
    ECH_TRY(run(e, submit_pack, err));
    l->pack_s = (double)(ech_now_ns() - begin) / ECH_NS_PER_S;
    if (!l->uses_cache && !l->is_packing) return ECH_OK;
    l->is_fresh =
        ech_cache_key_make(e->model, &now, NULL) == ECH_OK && strcmp(now.hex, l->key.hex) == 0;
    if (!l->is_fresh)
        ech_log(ECH_LOG_WARN, "%s changed while it was read; what was packed is not kept",
                e->model_info.path);
    if (l->is_fresh && !l->is_small && !l->is_packing) start_writer(e);
    return ECH_OK;
}

/* A damaged file: what was copied of it must not stay between what is packed. */
static ech_status pack_instead(ech_engine *e, const ech_error *why, ech_error *err)
{
    ech_log(ECH_LOG_WARN, "%s is damaged: %s; the model is packed again", e->loading.file.path,
            why->text);
    if (e->options.packed == NULL) (void)unlink(e->loading.file.path);
    memset(e->memory.weights.ptr, 0, e->memory.weights.bytes);
    return pack(e, err);
}

ech_status ech_load_check(const ech_engine *e, ech_error *err)
{
    const ech_loading *const l = &e->loading;
    return l->has_file && l->is_mapped ? ech_cache_file_check(&l->file, err) : ECH_OK;
}

/* The chip locks them as it enters them; its limits are those of this process. */
static void log_mapped(const ech_engine *e)
{
    const ech_area *const w = &e->memory.weights;
    const bool is_locked = ech_os_can_lock(w->ptr, w->bytes);
    ech_log(ECH_LOG_INFO, "weights mapped from %s, %s", e->loading.file.path,
            is_locked ? "locked in memory"
                      : "not locked: 'ulimit -l' is too small, pages that idle may be evicted");
}

static ech_status load(ech_engine *e, ech_error *err)
{
    ech_loading *const l = &e->loading;
    ech_error why = { .code = ECH_OK };
    if (!l->is_mapped) ech_model_image_begin(e->model, e->memory.weights.ptr);
    ech_status rc = run(e, submit_load, &why);
    /* It may have been cut under the chip; and what is mapped must be what was checked. */
    if ((rc == ECH_ELOST || (rc == ECH_OK && l->is_mapped)) &&
        ech_cache_file_check(&l->file, &why) != ECH_OK)
        rc = why.code;
    if (rc == ECH_ETASK) /* not a lost chip, not a cancel: the file */
        rc = pack_instead(e, &why, err);
    else if (rc != ECH_OK)
        rc = take_error(err, &why);
    if (rc == ECH_OK && l->is_mapped && !l->is_packing) log_mapped(e);
    if (!l->is_mapped) {
        ech_cache_file_fini(&l->file);
        l->has_file = false;
    }
    return rc;
}

ech_status ech_load_run(ech_engine *e, ech_error *err)
{
    ech_status rc = e->loading.has_file ? load(e, err) : pack(e, err);
    if (rc == ECH_ELOST) (void)ech_model_check_sources(e->model, err);
    ech_model_close_sources(e->model);
    return rc;
}

void ech_load_fini(ech_engine *e)
{
    ech_loading *const l = &e->loading;
    if (l->writer_runs) (void)pthread_join(l->writer, NULL);
    l->writer_runs = false;
    if (l->has_file) ech_cache_file_fini(&l->file);
    l->has_file = false;
    free_tables(l);
}

/* ---- packing alone ---- */

static ech_status write_packed(ech_engine *e, ech_pack_report *r, ech_error *err)
{
    ech_loading *const l = &e->loading;
    if (!l->is_fresh)
        return ech_fail(err, ECH_EIO, "packing %s: its files changed while they were read",
                        e->model_info.path);
    if (l->output != NULL)
        (void)snprintf(r->path, sizeof r->path, "%s", l->output);
    else
        (void)ech_cache_path(l->folder, l->key.hex, r->path);
    return write_file(e, NULL, err);
}

static ech_status pack_and_write(ech_engine *e, ech_pack_report *r, ech_error *err)
{
    sigset_t too_large, old;
    for (uint32_t i = 0; i < ech_model_n_sources(e->model); i++)
        r->source_bytes += ech_model_source_at(e->model, i).bytes;
    r->packed_bytes = e->model_info.packed_bytes;
    ECH_TRY(ech_engine_wait_ready(e, -1, NULL, err));
    r->pack_s = e->loading.pack_s;
    const int64_t begin = ech_now_ns();
    (void)sigemptyset(&too_large);
    (void)sigaddset(&too_large, SIGXFSZ); /* is an error of write here */
    (void)pthread_sigmask(SIG_BLOCK, &too_large, &old);
    const ech_status rc = write_packed(e, r, err);
    const struct timespec now = { 0 };
    if (sigismember(&old, SIGXFSZ) == 0) /* it was reported: it must not come when let through */
        (void)sigtimedwait(&too_large, NULL, &now);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    r->write_s = (double)(ech_now_ns() - begin) / ECH_NS_PER_S;
    return rc;
}

ech_status ech_engine_pack(const ech_engine_options *options, const char *file,
                           ech_pack_report *ret_report, ech_error *err)
{
    ech_engine_options o = *options;
    ech_engine *e = NULL;
    *ret_report = (ech_pack_report){ 0 };
    o.max_seq_len = ECH_KV_TOKENS; /* it runs no step: the least that can be opened */
    o.max_running = 1;
    o.packed = NULL;
    o.no_cache = file != NULL;
    const ech_open_how how = { .is_packing = true, .output = file };
    ECH_TRY(ech_engine_open_how(&e, &o, &how, err));
    ech_status rc = ECH_OK;
    if (e->loading.was_there) {
        ret_report->was_there = true;
        ret_report->packed_bytes = e->model_info.packed_bytes;
        (void)ech_cache_path(e->loading.folder, e->loading.key.hex, ret_report->path);
    } else {
        rc = pack_and_write(e, ret_report, err);
    }
    (void)ech_engine_close(&e); /* it has no trace */
    return rc;
}
