/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a cache folder as a whole: what is in it, and emptying it. Files whose names aren't
 * the cache's are nobody's business here. Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/model/cache.h"

#define TMP ".tmp"

/* "<key>.echelon", or that, anything and ".tmp": a file that is being written, or was. */
static bool is_ours(const char *const name, bool *const ret_unfinished)
{
    char base[ECH_CACHE_NAME + sizeof ECH_CACHE_SUFFIX];
    const size_t len = strlen(name), tail = sizeof TMP - 1;
    (void)snprintf(base, sizeof base, "%.*s", (int)sizeof base - 1, name);
    *ret_unfinished = len > tail && strcmp(name + len - tail, TMP) == 0;
    return ech_cache_is_name(*ret_unfinished ? base : name);
}

typedef void visit_fn(void *ctx, const char *path, bool unfinished);

static ech_status visit(const char *const folder, visit_fn *const fn, void *const ctx,
                        ech_error *const err)
{
    DIR *const dir = opendir(folder);
    if (dir == NULL && errno == ENOENT) return ECH_OK;
    if (dir == NULL) return ech_fail_errno(err, ECH_EIO, "opening the folder %s", folder);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        bool unfinished = false;
        char path[ECH_MODEL_PATH_MAX];
        if (!is_ours(e->d_name, &unfinished)) continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (n > 0 && (size_t)n < sizeof path) fn(ctx, path, unfinished);
    }
    (void)closedir(dir);
    return ECH_OK;
}

/* ---- listing ---- */

typedef struct listing {
    ech_cache_entry *list;
    size_t n, cap;
    bool no_memory;
} listing;

static void describe(const char *const path, ech_cache_entry *const e)
{
    struct stat st;
    ech_image_header h;
    ech_cache_tail tail;
    ech_image_entry *dir = NULL;
    char *section = NULL;
    ech_error err;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0) {
        e->bytes = (uint64_t)st.st_size;
        e->used_s = st.st_atim.tv_sec;
    }
    if (!e->unfinished && ech_cache_read(fd, path, &h, &tail, &section, &dir, &err) == ECH_OK) {
        e->usable = true;
        e->created_s = tail.created_s;
        (void)snprintf(e->model, sizeof e->model, "%s", tail.model);
        (void)snprintf(e->type, sizeof e->type, "%s", tail.type);
        (void)snprintf(e->architecture, sizeof e->architecture, "%s", tail.architecture);
        free(dir);
        free(section);
    }
    (void)close(fd);
}

static void add(void *const ctx, const char *const path, const bool unfinished)
{
    listing *const l = ctx;
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 8 : 2 * l->cap;
        ech_cache_entry *const grown = realloc(l->list, cap * sizeof *grown);
        if (grown == NULL) {
            l->no_memory = true;
            return;
        }
        l->list = grown;
        l->cap = cap;
    }
    ech_cache_entry *const e = &l->list[l->n++];
    *e = (ech_cache_entry){ .unfinished = unfinished };
    (void)snprintf(e->path, sizeof e->path, "%s", path);
    describe(path, e);
}

static int compare_use(const void *const a, const void *const b)
{
    const int64_t x = ((const ech_cache_entry *)a)->used_s;
    const int64_t y = ((const ech_cache_entry *)b)->used_s;
    return (x < y) - (x > y);
}

ech_status ech_cache_list(const char *const folder, ech_cache_entry **const ret_list,
                          size_t *const ret_n, ech_error *const err)
{
    listing l = { 0 };
    char path[ECH_MODEL_PATH_MAX];
    ECH_TRY(ech_cache_folder(folder, path, err));
    ech_status rc = visit(path, add, &l, err);
    if (rc == ECH_OK && l.no_memory)
        rc = ech_fail(err, ECH_ENOMEM, "listing %s: out of memory", path);
    if (rc != ECH_OK) {
        free(l.list);
        return rc;
    }
    if (l.n > 0) qsort(l.list, l.n, sizeof *l.list, compare_use);
    *ret_list = l.list;
    *ret_n = l.n;
    return ECH_OK;
}

/* ---- removing ---- */

typedef struct clearing {
    size_t n;
    uint64_t bytes;
    bool locked; /* nobody is writing: unfinished files are left over */
    ech_status rc;
    ech_error *err;
} clearing;

static void remove_one(void *const ctx, const char *const path, const bool unfinished)
{
    clearing *const c = ctx;
    struct stat st;
    if (unfinished && !c->locked) return;
    const uint64_t bytes = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (unlink(path) == 0) {
        c->n++;
        c->bytes += bytes;
    } else if (errno != ENOENT && c->rc == ECH_OK) {
        c->rc = ech_fail_errno(c->err, ECH_EIO, "removing %s", path);
    }
}

ech_status ech_cache_clear(const char *const folder, size_t *const ret_n, uint64_t *const ret_bytes,
                           ech_error *const err)
{
    clearing c = { .err = err };
    char path[ECH_MODEL_PATH_MAX];
    ECH_TRY(ech_cache_folder(folder, path, err));
    const int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c.locked = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0;
    const ech_status rc = visit(path, remove_one, &c, err);
    if (lock >= 0) (void)close(lock);
    *ret_n = c.n;
    *ret_bytes = c.bytes;
    return rc != ECH_OK ? rc : c.rc;
}

typedef struct stale {
    const ech_cache_tail *like;
    const char *keep;
} stale;

static void remove_if_stale(void *const ctx, const char *const path, const bool unfinished)
{
    const stale *const s = ctx;
    ech_cache_entry e = { .unfinished = unfinished };
    if (strcmp(path, s->keep) == 0) return;
    describe(path, &e);
    /* Under the lock, an unfinished file is one that a killed process left. */
    if (unfinished ||
        (e.usable && strcmp(e.model, s->like->model) == 0 && strcmp(e.type, s->like->type) == 0))
        (void)unlink(path);
}

void ech_cache_remove_stale(const char *const folder, const ech_cache_tail *const like,
                            const char *const keep)
{
    stale s = { .like = like, .keep = keep };
    (void)visit(folder, remove_if_stale, &s, NULL);
}
