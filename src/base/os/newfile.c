/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files written beside their place; see newfile.h. Any thread; keeps nothing of its own.
 *
 * Invariant: the name `beside` exists only between link and rename of one keep(), or, on file
 * systems without O_TMPFILE (network ones, FUSE), while the file is written.
 */
#include "src/base/os/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"

enum { MOST_SUFFIX = 40 }; /* of the name beside: two numbers and ".tmp" */
static uint32_t n_opened;  /* atomic */

static ech_status check_place(const char *const path, ech_error *const err)
{
    struct stat st;
    if (path[0] == '\0') return ech_fail(err, ECH_EINVAL, "writing a file: its name is empty");
    const bool is_there = stat(path, &st) == 0;
    if ((!is_there && errno == ENAMETOOLONG) || strlen(path) + MOST_SUFFIX >= PATH_MAX)
        return ech_fail(err, ECH_EINVAL, "writing a file: its name is too long: %zu bytes",
                        strlen(path));
    if (!is_there || S_ISREG(st.st_mode)) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "writing %s: it is %s; name a file", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
}

/* In the same folder. One name for each, that files of the same path don't meet there; cut where
 * the suffix makes a name too long. NULL: out of memory. */
static char *make_beside(const char *const path)
{
    char *beside;
    const char *const slash = strrchr(path, '/');
    const size_t folder = slash != NULL ? (size_t)(slash + 1 - path) : 0;
    const size_t name = strnlen(path + folder, NAME_MAX - MOST_SUFFIX);
    const unsigned n = ech_fetch_add_relaxed(&n_opened, 1);
    const int len =
        asprintf(&beside, "%.*s.%ld-%u.tmp", (int)(folder + name), path, (long)getpid(), n);
    return len < 0 ? NULL : beside;
}

/* A file without a name; -1 with EOPNOTSUPP where there are none. */
static int open_nameless(const char *const path, const mode_t mode)
{
    const char *const slash = strrchr(path, '/');
    if (ech_fault_hit(ECH_FAULT_TMPFILE)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (slash == NULL) return open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    char *const folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (folder == NULL) return -1; /* ENOMEM */
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    const int saved = errno;
    free(folder);
    errno = saved;
    return fd;
}

/* EISDIR is what kernels and file systems say that don't know O_TMPFILE. */
static bool has_none(const int why)
{
    return why == EOPNOTSUPP || why == EISDIR || why == EINVAL || why == ENOSYS;
}

ech_status ech_new_file_open(ech_new_file *const f, const char *const path, const mode_t mode,
                             ech_error *const err)
{
    *f = (ech_new_file){ .fd = -1 };
    ECH_TRY(check_place(path, err));
    f->path = strdup(path);
    f->beside = make_beside(path);
    if (f->path == NULL || f->beside == NULL) {
        ech_new_file_fini(f);
        return ech_fail(err, ECH_ENOMEM, "writing %s: out of memory", path);
    }
    f->fd = open_nameless(path, mode);
    if (f->fd < 0 && has_none(errno)) {
        f->fd = open(f->beside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
        f->is_named = f->fd >= 0;
    }
    if (f->fd >= 0) return ECH_OK;
    const ech_status rc = ech_fail_errno(err, ECH_EIO, "writing %s", path);
    ech_new_file_fini(f);
    return rc;
}

ech_status ech_new_file_take(const ech_new_file *const f, const uint64_t bytes,
                             ech_error *const err)
{
    struct statvfs fs;
    if (fallocate(f->fd, 0, 0, (off_t)bytes) == 0) return ECH_OK;
    const bool unsupported = errno == EOPNOTSUPP;
    if (!unsupported && errno != ENOSPC)
        return ech_fail_errno(err, ECH_EIO, "taking %" PRIu64 " bytes for %s", bytes, f->path);
    if (fstatvfs(f->fd, &fs) != 0) return ech_fail_errno(err, ECH_EIO, "looking at %s", f->path);
    const uint64_t there = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (unsupported && there >= bytes) return ECH_OK;
    return ech_fail(err, ECH_EIO, "writing %s: it takes %" PRIu64 " bytes, %" PRIu64 " are free",
                    f->path, bytes, there);
}

FILE *ech_new_file_stream(const ech_new_file *const f)
{
    const int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
    FILE *const stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (stream == NULL && fd >= 0) (void)close(fd);
    return stream;
}

/*
 * A link can't replace what is there, so it goes by way of `beside`. What has that name was left
 * by a process that had the number and was killed just here.
 */
static bool link_and_rename(const ech_new_file *const f)
{
    char from[32];
    (void)snprintf(from, sizeof from, "/proc/self/fd/%d", f->fd);
    (void)unlink(f->beside);
    if (linkat(AT_FDCWD, from, AT_FDCWD, f->beside, AT_SYMLINK_FOLLOW) != 0) return false;
    if (rename(f->beside, f->path) == 0) return true;
    const int why = errno;
    (void)unlink(f->beside);
    errno = why;
    return false;
}

ech_status ech_new_file_keep(ech_new_file *const f, ech_error *const err)
{
    ECH_TRY(check_place(f->path, err)); /* a rename would put it in the place of a device */
    if (f->is_named ? rename(f->beside, f->path) != 0 : !link_and_rename(f))
        return ech_fail_errno(err, ECH_EIO, "renaming %s to %s", f->beside, f->path);
    f->is_named = false;
    return ECH_OK;
}

void ech_new_file_fini(ech_new_file *const f)
{
    if (f->path != NULL && f->is_named) (void)unlink(f->beside);
    if (f->path != NULL && f->fd >= 0) (void)close(f->fd);
    free(f->path);
    free(f->beside);
    *f = (ech_new_file){ .fd = -1 };
}

ech_status ech_new_file_try(const char *const path, ech_error *const err)
{
    ech_new_file f;
    ECH_TRY(ech_new_file_open(&f, path, 0600, err));
    ech_new_file_fini(&f);
    return ECH_OK;
}
