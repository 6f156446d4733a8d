/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of tensors and the files that hold them. Names and paths live in one arena, the arrays
 * in two blocks; a set belongs to one model. What is left out: any file format.
 */
#include "src/model/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"

static ech_status add_file(ech_weights *const ts, const char *const path, const int fd,
                           const uint64_t size, uint32_t *const ret_file, ech_error *const err)
{
    if (ts->n_files == ECH_WEIGHT_FILES_MAX) {
        return ech_fail(err, ECH_ELIMIT, "opening %s: a model may have at most %u weight files",
                        path, ECH_WEIGHT_FILES_MAX);
    }
    ech_weight_file *const files = realloc(ts->files, (ts->n_files + 1) * sizeof *files);
    if (files == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", path);
    ts->files = files;
    const char *const copy = ech_arena_strdup(&ts->arena, ech_str_from(path));
    if (copy == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", path);
    files[ts->n_files] = (ech_weight_file){ .path = copy, .fd = fd, .size = size };
    *ret_file = ts->n_files++;
    return ECH_OK;
}

ech_status ech_weights_open_file(ech_weights *const ts, const char *const path,
                                 uint32_t *const ret_file, ech_error *const err)
{
    /* O_NONBLOCK: a FIFO of that name must not hang the start. It means nothing for a file. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return ech_fail_errno(err, errno == ENOENT ? ECH_ENOTFOUND : ECH_EIO, "opening %s", path);
    }
    struct stat st;
    ech_status rc;
    if (fstat(fd, &st) != 0) {
        rc = ech_fail_errno(err, ECH_EIO, "opening %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = ech_fail(err, ECH_EFORMAT, "opening %s: not a regular file", path);
    } else {
        rc = add_file(ts, path, fd, (uint64_t)st.st_size, ret_file, err);
    }
    if (rc != ECH_OK) (void)close(fd);
    return rc;
}

ech_status ech_weights_read(const ech_weights *const ts, const uint32_t file, const uint64_t offset,
                            void *const to, const size_t len, ech_error *const err)
{
    const ech_weight_file *const f = &ts->files[file];
    for (size_t done = 0; done < len;) {
        const ssize_t n = pread(f->fd, (char *)to + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ech_fail_errno(err, ECH_EIO, "reading %s", f->path);
        if (n == 0) {
            return ech_fail_at(err, ECH_EFORMAT, 0, 0, (int64_t)(offset + done),
                               "reading %s: expected %zu bytes at offset %" PRIu64
                               ", found %zu: the file was cut",
                               f->path, len, offset, done);
        }
        done += (size_t)n;
    }
    return ECH_OK;
}

ech_status ech_weights_add(ech_weights *const ts, const ech_weight *const t, ech_error *const err)
{
    const char *const path = ts->files[t->file].path;
    if (ts->n == ECH_WEIGHTS_MAX) {
        return ech_fail(err, ECH_ELIMIT, "reading %s: a model may have at most %u tensors", path,
                        ECH_WEIGHTS_MAX);
    }
    if (ts->n == ts->cap) {
        const uint32_t cap = ts->cap == 0 ? 256 : 2 * ts->cap;
        ech_weight *const list = realloc(ts->list, cap * sizeof *list);
        if (list == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
        ts->list = list;
        ts->cap = cap;
    }
    const char *const name = ech_arena_strdup(&ts->arena, ech_str_from(t->name));
    if (name == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
    ts->list[ts->n] = *t;
    ts->list[ts->n++].name = name;
    return ECH_OK;
}

static int compare_names(const void *const a, const void *const b)
{
    return strcmp(((const ech_weight *)a)->name, ((const ech_weight *)b)->name);
}

ech_status ech_weights_seal(ech_weights *const ts, ech_error *const err)
{
    if (ts->n == 0) return ECH_OK;
    qsort(ts->list, ts->n, sizeof *ts->list, compare_names);
    for (uint32_t i = 1; i < ts->n; i++) {
        const ech_weight *const a = &ts->list[i - 1];
        const ech_weight *const b = &ts->list[i];
        if (strcmp(a->name, b->name) == 0) {
            return ech_fail(err, ECH_EFORMAT,
                            "reading tensor %s: it is twice in the model, in %s and in %s", a->name,
                            ts->files[a->file].path, ts->files[b->file].path);
        }
    }
    return ECH_OK;
}

const ech_weight *ech_weights_find(const ech_weights *const ts, const char *const name)
{
    if (ts->n == 0) return NULL;
    const ech_weight key = { .name = name };
    return bsearch(&key, ts->list, ts->n, sizeof *ts->list, compare_names);
}

const char *ech_weight_shape_text(const uint32_t n_dims, const uint64_t *const dims,
                                  char *const buf, const size_t cap)
{
    size_t len = 0;
    for (uint32_t i = 0; i < n_dims && len < cap; i++) {
        const int n = snprintf(buf + len, cap - len, "%s%" PRIu64, i == 0 ? "[" : ", ", dims[i]);
        if (n > 0) len += (size_t)n;
    }
    if (len < cap) (void)snprintf(buf + len, cap - len, n_dims == 0 ? "[]" : "]");
    return buf;
}

void ech_weights_close_files(ech_weights *const ts)
{
    for (uint32_t i = 0; i < ts->n_files; i++) {
        if (ts->files[i].fd >= 0) (void)close(ts->files[i].fd);
        ts->files[i].fd = -1;
    }
}

void ech_weights_fini(ech_weights *const ts)
{
    ech_weights_close_files(ts);
    free(ts->files);
    free(ts->list);
    ech_arena_fini(&ts->arena);
    *ts = (ech_weights){ 0 };
}
