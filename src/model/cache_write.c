/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a file of the cache: beside its place, under the folder's lock, and renamed when every
 * byte is on the disk. Whatever goes wrong, the old file stays or there is none.
 *
 * The lock is a flock of the folder itself: it ends with its process, and leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/os/newfile.h"
#include "src/model/cache.h"
#include "src/model/internal.h"

#define PIECE     ((size_t)4 << 20) /* written at a time; stop is asked in between */
#define LOCK_LOOK ((struct timespec){ .tv_nsec = 50000000 })

static bool wants_stop(const ech_cache_content *const c)
{
    return c->stop != NULL && c->stop(c->stop_ctx);
}

static ech_status write_at(const ech_cache_content *const c, const int fd, const char *const path,
                           const uint64_t offset, const void *const from, const size_t len,
                           ech_error *const err)
{
    for (size_t done = 0; done < len;) {
        if (wants_stop(c)) return ech_fail(err, ECH_ECANCELLED, "writing %s: given up", path);
        const size_t some = len - done < PIECE ? len - done : PIECE;
        const ssize_t n = pwrite(fd, (const char *)from + done, some, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ech_fail_errno(err, ECH_EIO, "writing %s", path);
        /* Begins writing to the disk now, so that the end doesn't wait for all of it. */
        (void)sync_file_range(fd, (off_t)(offset + done), n, SYNC_FILE_RANGE_WRITE);
        done += (size_t)n;
    }
    return ECH_OK;
}

/* ---- the content ---- */

static ech_status write_entries(const ech_cache_content *const c, const int fd,
                                const char *const path, ech_image_entry *const entries,
                                const uint32_t n, ech_error *const err)
{
    const char *const image = c->image;
    for (uint32_t i = 0; i < n; i++) {
        ech_image_entry *const e = &entries[i];
        e->checksum = ech_checksum(image + e->offset, e->bytes);
        ECH_TRY(write_at(c, fd, path, e->offset, image + e->offset, e->bytes, err));
    }
    return ECH_OK;
}

static ech_status write_head(const ech_cache_content *const c, const int fd, const char *const path,
                             const ech_image_entry *const entries, const uint32_t n,
                             ech_error *const err)
{
    ech_image_header h;
    memcpy(&h, c->image, sizeof h);
    h.dir_checksum = ech_checksum(entries, n * sizeof *entries);
    ECH_TRY(write_at(c, fd, path, h.dir_offset, entries, n * sizeof *entries, err));
    return write_at(c, fd, path, 0, &h, sizeof h, err);
}

static ech_cache_tail make_tail(const ech_cache_content *const c)
{
    ech_cache_tail t = {
        .magic = ECH_CACHE_MAGIC,
        .version = ECH_CACHE_VERSION,
        .file_bytes = c->model->layout.image_bytes + sizeof t + c->section_bytes,
        .created_s = (int64_t)time(NULL),
        .section_bytes = c->section_bytes,
    };
    for (uint32_t i = 0; i < c->model->weights.n_files; i++)
        t.source_bytes += c->model->weights.files[i].size;
    (void)snprintf(t.key, sizeof t.key, "%s", c->key->hex);
    (void)snprintf(t.content, sizeof t.content, "%s", c->key->content);
    (void)snprintf(t.type, sizeof t.type, "%s", ech_quantize_name(c->model->quantize));
    (void)snprintf(t.architecture, sizeof t.architecture, "%s", c->model->config.arch->name);
    if (realpath(c->model->path, t.model) == NULL)
        (void)snprintf(t.model, sizeof t.model, "%s", c->model->path);
    return t;
}

static ech_status write_tail(const ech_cache_content *const c, const int fd, const char *const path,
                             ech_error *const err)
{
    const ech_cache_tail t = make_tail(c);
    const size_t len = sizeof t + c->section_bytes;
    char *const all = malloc(len);
    if (all == NULL) return ech_fail(err, ECH_ENOMEM, "writing %s: out of memory", path);
    memcpy(all, &t, sizeof t);
    if (c->section_bytes > 0) memcpy(all + sizeof t, c->section, c->section_bytes);
    const uint64_t sum = ech_checksum(all, len);
    memcpy(all + offsetof(ech_cache_tail, checksum), &sum, sizeof sum);
    const ech_status rc = write_at(c, fd, path, c->model->layout.image_bytes, all, len, err);
    free(all);
    return rc;
}

/* The header is written last: a file without one is no cache file, whatever happened. */
static ech_status write_all(const ech_cache_content *const c, const int fd, const char *const path,
                            ech_error *const err)
{
    const ech_image_plan *const plan = &c->model->layout.image;
    ech_image_entry *const entries = malloc(plan->n_entries * sizeof *entries);
    if (entries == NULL) return ech_fail(err, ECH_ENOMEM, "writing %s: out of memory", path);
    memcpy(entries, plan->entries, plan->n_entries * sizeof *entries);
    ech_status rc = write_entries(c, fd, path, entries, plan->n_entries, err);
    if (rc == ECH_OK) rc = write_tail(c, fd, path, err);
    if (rc == ECH_OK) rc = write_head(c, fd, path, entries, plan->n_entries, err);
    if (rc == ECH_OK && fdatasync(fd) != 0) rc = ech_fail_errno(err, ECH_EIO, "writing %s", path);
    free(entries);
    return rc;
}

ech_status ech_cache_write_file(const ech_cache_content *const c, const char *const path,
                                ech_error *const err)
{
    ech_new_file f;
    ECH_TRY(ech_new_file_open(&f, path, 0600, err));
    ech_status rc = ech_new_file_take(&f, make_tail(c).file_bytes, err);
    if (rc == ECH_OK) rc = write_all(c, f.fd, path, err);
    if (rc == ECH_OK) rc = ech_new_file_keep(&f, err);
    ech_new_file_fini(&f);
    return rc;
}

ech_status ech_cache_try_file(const ech_model *const model, const char *const path,
                              ech_error *const err)
{
    ech_new_file f;
    ECH_TRY(ech_new_file_open(&f, path, 0600, err));
    const ech_status rc = ech_new_file_take(&f, model->layout.image_bytes, err);
    ech_new_file_fini(&f);
    return rc;
}

/* ---- the folder ---- */

static ech_status make_folder(const char *const folder, ech_error *const err)
{
    char path[ECH_MODEL_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1;; at++) {
        const char was = *at;
        if (was != '/' && was != '\0') continue;
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return ech_fail_errno(err, ECH_EIO, "making the folder %s", path);
        if (was == '\0') return ECH_OK;
        *at = was;
    }
}

/* ret_fd holds the lock until it is closed. */
static ech_status lock_folder(const ech_cache_content *const c, const char *const folder,
                              int *const ret_fd, ech_error *const err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ech_fail_errno(err, ECH_EIO, "opening the folder %s", folder);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            const ech_status rc = ech_fail_errno(err, ECH_EIO, "locking the folder %s", folder);
            (void)close(fd);
            return rc;
        }
        if (wants_stop(c)) {
            (void)close(fd);
            return ech_fail(err, ECH_ECANCELLED, "waiting for the folder %s: given up", folder);
        }
        (void)nanosleep(&LOCK_LOOK, NULL);
    }
    *ret_fd = fd;
    return ECH_OK;
}

ech_status ech_cache_try(const ech_model *const model, const ech_cache_key *const key,
                         const char *const folder, ech_error *const err)
{
    char path[ECH_MODEL_PATH_MAX];
    if (!ech_cache_path(folder, key->hex, path))
        return ech_fail(err, ECH_EINVAL, "writing packed weights: the path is too long: %s",
                        folder);
    ECH_TRY(make_folder(folder, err));
    return ech_cache_try_file(model, path, err);
}

ech_status ech_cache_write(const ech_cache_content *const c, const char *const folder,
                           ech_error *const err)
{
    char path[ECH_MODEL_PATH_MAX];
    int lock = -1;
    ech_cache_file there;
    if (!ech_cache_path(folder, c->key->hex, path))
        return ech_fail(err, ECH_EINVAL, "writing packed weights: the path is too long: %s",
                        folder);
    ECH_TRY(make_folder(folder, err));
    ECH_TRY(lock_folder(c, folder, &lock, err));
    ech_status rc = ECH_OK;
    if (ech_cache_find(c->model, c->key, folder, &there, NULL) == ECH_OK) {
        ech_cache_file_fini(&there); /* another process was faster */
    } else {
        rc = ech_cache_write_file(c, path, err);
        const ech_cache_tail tail = make_tail(c);
        if (rc == ECH_OK) ech_cache_remove_stale(folder, &tail, path);
        if (rc == ECH_OK) (void)fsync(lock); /* the new name */
    }
    (void)close(lock);
    return rc;
}
