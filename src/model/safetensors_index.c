/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.safetensors.index.json: { "weight_map": { "tensor": "shard.safetensors", … } }. The usual
 * faults are downloads that stopped half-way and an index that outlived its shards, so every shard
 * is looked for before one is read, and the error says which are missing and what is there.
 */
#include "src/model/safetensors.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "src/base/error.h"
#include "src/model/names.h"

#define INDEX_BYTES_MAX (64u << 20)
/* Names that an error lists before it says how many more there are. */
#define LISTED_MAX 4u

typedef struct index_reader {
    ech_weights *ts;
    const char *path;
    char *folder;
    const char **shards; /* [n_shards] unique, sorted; borrowed from the JSON */
    size_t n_shards;
    ech_error *err;
} index_reader;

static int compare_strings(const void *const a, const void *const b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Collects the shards' names, each once. */
static ech_status collect_shards(index_reader *const ix, json_t *const map)
{
    const size_t n = json_object_size(map);
    ix->shards = calloc(n + 1, sizeof *ix->shards);
    if (ix->shards == NULL)
        return ech_fail(ix->err, ECH_ENOMEM, "reading %s: out of memory", ix->path);
    size_t i = 0;
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file)
    {
        if (!json_is_string(file) || !ech_name_is_file(json_string_value(file))) {
            return ech_fail(
                ix->err, ECH_EFORMAT,
                "reading %s: tensor %.128s: expected the name of a file in the same folder",
                ix->path, tensor);
        }
        ix->shards[i++] = json_string_value(file);
    }
    qsort(ix->shards, n, sizeof *ix->shards, compare_strings);
    for (i = 0; i < n; i++) {
        if (i == 0 || strcmp(ix->shards[i], ix->shards[ix->n_shards - 1]) != 0) {
            ix->shards[ix->n_shards++] = ix->shards[i];
        }
    }
    return ECH_OK;
}

/* "a, b, c and 5 more" */
static void list_name(ech_buf *const out, const char *const name, const size_t number)
{
    if (number < LISTED_MAX) (void)ech_buf_printf(out, "%s%s", number == 0 ? "" : ", ", name);
}

static void list_more(ech_buf *const out, const size_t n)
{
    if (n > LISTED_MAX) (void)ech_buf_printf(out, " and %zu more", n - LISTED_MAX);
}

/* What safetensors files the folder does hold, for the error. */
static void list_present(ech_buf *const out, const char *const folder)
{
    DIR *const dir = opendir(folder);
    if (dir == NULL) return;
    size_t n = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        const size_t len = strlen(e->d_name);
        if (len < 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0) continue;
        list_name(out, ech_name_is_file(e->d_name) ? e->d_name : "?", n++);
    }
    (void)closedir(dir);
    list_more(out, n);
}

static ech_status check_shards(const index_reader *const ix)
{
    ech_buf missing = { 0 };
    ech_buf present = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < ix->n_shards; i++) {
        char *const path = ech_path_join(ix->folder, ix->shards[i]);
        const bool found = path != NULL && ech_path_exists(path);
        free(path);
        if (!found) list_name(&missing, ix->shards[i], n++);
    }
    ech_status rc = ECH_OK;
    if (n > 0) {
        list_more(&missing, n);
        list_present(&present, ix->folder);
        rc = ech_fail(ix->err, ECH_ENOTFOUND,
                      "reading %s: %zu of its %zu shards don't exist: %s; the folder holds: %s; "
                      "get the missing files, or remove the index if it is stale",
                      ix->path, n, ix->n_shards, missing.data,
                      present.len > 0 ? present.data : "no safetensors file");
    }
    ech_buf_fini(&missing);
    ech_buf_fini(&present);
    return rc;
}

static ech_status read_shards(const index_reader *const ix)
{
    for (size_t i = 0; i < ix->n_shards; i++) {
        char *const path = ech_path_join(ix->folder, ix->shards[i]);
        if (path == NULL)
            return ech_fail(ix->err, ECH_ENOMEM, "reading %s: out of memory", ix->path);
        const ech_status rc = ech_safetensors_read(ix->ts, path, ix->err);
        free(path);
        if (rc != ECH_OK) return rc;
    }
    return ECH_OK;
}

/* Every tensor of the index is in the shard that the index says. */
static ech_status check_map(const index_reader *const ix, json_t *const map)
{
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file)
    {
        const char *const shard = json_string_value(file);
        const ech_weight *const t = ech_weights_find(ix->ts, name);
        const char *const found = t != NULL ? strrchr(ix->ts->files[t->file].path, '/') : NULL;
        if (found != NULL && strcmp(found + 1, shard) == 0) continue;
        return ech_fail(ix->err, ECH_EFORMAT,
                        "reading %s: tensor %.128s: expected it in %.128s, found %s: index and "
                        "shards are not of one download",
                        ix->path, name, shard, t == NULL ? "it nowhere" : "it in another shard");
    }
    return ECH_OK;
}

static ech_status read_map(index_reader *const ix, json_t *const map)
{
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return ech_fail(ix->err, ECH_EFORMAT,
                        "reading %s: \"weight_map\" is missing, empty or no object", ix->path);
    }
    ECH_TRY(collect_shards(ix, map));
    ECH_TRY(check_shards(ix));
    ECH_TRY(read_shards(ix));
    ECH_TRY(ech_weights_seal(ix->ts, ix->err));
    return check_map(ix, map);
}

ech_status ech_safetensors_read_index(ech_weights *const ts, const char *const index_path,
                                      ech_error *const err)
{
    ech_buf text = { 0 };
    json_t *root = NULL;
    index_reader ix = { .ts = ts, .path = index_path, .err = err };
    json_error_t at;
    ech_status rc = ech_buf_read_regular(&text, index_path, INDEX_BYTES_MAX, err);
    if (rc != ECH_OK) goto out;
    ix.folder = ech_path_folder(index_path);
    if (ix.folder == NULL) {
        rc = ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", index_path);
        goto out;
    }
    root = json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &at);
    if (root == NULL) {
        rc = ech_fail_at(err, ECH_EFORMAT, at.line, at.column, at.position,
                         "reading %s: line %d, column %d: %s", index_path, at.line, at.column,
                         at.text);
        goto out;
    }
    rc = read_map(&ix, json_object_get(root, "weight_map"));
out:
    free(ix.shards);
    free(ix.folder);
    json_decref(root);
    ech_buf_fini(&text);
    return rc;
}
