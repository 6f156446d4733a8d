/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of the last run: see last_run.h. Written beside its place and renamed in, so that it is
 * whole or not there. What is read is input: bounded, and every field checked.
 *
 * Nothing here may make a command fail: every error means that nothing is remembered. Main
 * thread; several processes may write at once, each its own part file, and the last rename wins.
 */
#include "src/cli/last_run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/buf.h"

#define MAX_BYTES 65536u
#define NAME      "last-run.json"

/* The XDG rule: a relative path in the variable is ignored. */
static ech_status folder_of(ech_buf *path)
{
    const char *const xdg = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (xdg != NULL && xdg[0] == '/') return ech_buf_printf(path, "%s/echelon", xdg);
    if (home != NULL && home[0] == '/') return ech_buf_printf(path, "%s/.cache/echelon", home);
    return ECH_ENOTFOUND;
}

/* Both folders, where they aren't there yet. 0700: it says what a user runs. */
static void make_folder(const char *path)
{
    char parent[ECH_MODEL_PATH_MAX];
    const char *const slash = strrchr(path, '/');
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    (void)mkdir(parent, 0700);
    (void)mkdir(path, 0700);
}

/* The process id keeps two writers from one part file. */
static void write_file(const char *text)
{
    ech_buf folder = { 0 }, path = { 0 }, part = { 0 };
    if (folder_of(&folder) == ECH_OK && ech_buf_printf(&path, "%s/" NAME, folder.data) == ECH_OK &&
        ech_buf_printf(&part, "%s/" NAME ".%ld", folder.data, (long)getpid()) == ECH_OK) {
        make_folder(folder.data);
        FILE *const f = fopen(part.data, "we");
        if (f != NULL) {
            const bool ok = fputs(text, f) >= 0;
            if (fclose(f) != 0 || !ok || rename(part.data, path.data) != 0) (void)unlink(part.data);
        }
    }
    ech_buf_fini(&folder);
    ech_buf_fini(&path);
    ech_buf_fini(&part);
}

/* The end of a path tells models apart, its beginning doesn't. */
static const char *tail_of(const char *path)
{
    const size_t len = strlen(path), cap = sizeof((ech_last_run *)0)->model - 1;
    return len > cap ? path + len - cap : path;
}

/*
 * Times are the engine's own, smoothed over its steps; a run without a step has nothing to say.
 */
void ech_last_run_keep(const char *command, ech_engine *engine)
{
    ech_engine_counters c = { .struct_size = sizeof c };
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_counters_get(engine, &c);
    ech_engine_info_get(engine, &info);
    if (c.solo_step_ms <= 0 && c.row_us <= 0) return;
    const double bytes = c.solo_step_ms > 0 ? (double)info.step_bytes * 1e3 / c.solo_step_ms : 0;
    const double macs = c.row_us > 0 ? (double)info.layer_params * 1e6 / c.row_us : 0;
    json_t *const root =
        json_pack("{s:s, s:s, s:I, s:i, s:f, s:f}", "command", command, "model",
                  tail_of(info.model_dir), "time", (json_int_t)time(NULL), "product",
                  (int)info.product, "bytes_per_second", bytes, "macs_per_second", macs);
    char *const text = root != NULL ? json_dumps(root, 0) : NULL;
    if (text != NULL) write_file(text);
    free(text);
    json_decref(root);
}

/* product indexes tables of doctor, so it is checked here; texts are cut to their fields. */
static bool take_fields(json_t *root, ech_last_run *ret)
{
    const char *command, *model;
    json_int_t when;
    int product;
    *ret = (ech_last_run){ 0 };
    if (json_unpack(root, "{s:s, s:s, s:I, s:i, s:f, s:f}", "command", &command, "model", &model,
                    "time", &when, "product", &product, "bytes_per_second", &ret->bytes_per_second,
                    "macs_per_second", &ret->macs_per_second) != 0)
        return false;
    if (product < 0 || product >= ECH_METER_KINDS || ret->bytes_per_second < 0 ||
        ret->macs_per_second < 0)
        return false;
    (void)snprintf(ret->command, sizeof ret->command, "%s", command);
    (void)snprintf(ret->model, sizeof ret->model, "%s", model);
    ret->time = (int64_t)when;
    ret->product = (ech_meter_kind)product;
    return true;
}

/* A file that is broken, too large or of another version is the same as none. */
bool ech_last_run_read(ech_last_run *ret)
{
    ech_buf path = { 0 }, text = { 0 };
    json_t *root = NULL;
    if (folder_of(&path) == ECH_OK && ech_buf_puts(&path, "/" NAME) == ECH_OK &&
        ech_buf_read_file(&text, path.data, MAX_BYTES, NULL) == ECH_OK && text.len > 0)
        root = json_loadb(text.data, text.len, 0, NULL);
    const bool ok = root != NULL && take_fields(root, ret);
    json_decref(root);
    ech_buf_fini(&path);
    ech_buf_fini(&text);
    return ok;
}
