/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The growing buffer. Invariant: data is NULL, or cap > len and data[len] is zero. No thread of
 * its own: a buffer belongs to whoever holds it.
 */
#include "src/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"

void ech_buf_fini(ech_buf *const b)
{
    free(b->data);
    *b = (ech_buf){ 0 };
}

void ech_buf_clear(ech_buf *const b)
{
    b->len = 0;
    if (b->data != NULL) b->data[0] = '\0';
}

ech_status ech_buf_reserve(ech_buf *const b, const size_t extra)
{
    if (extra >= SIZE_MAX / 2 - b->len) return ECH_ENOMEM;
    const size_t need = b->len + extra + 1;
    if (need <= b->cap) return ECH_OK;

    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need) {
        cap += cap / 2 + 1;
    }
    char *const data = realloc(b->data, cap);
    if (data == NULL) return ECH_ENOMEM;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return ECH_OK;
}

ech_status ech_buf_append(ech_buf *const b, const void *const ptr, const size_t len)
{
    ECH_TRY(ech_buf_reserve(b, len));
    if (len > 0) memcpy(b->data + b->len, ptr, len);
    b->len += len;
    b->data[b->len] = '\0';
    return ECH_OK;
}

ech_status ech_buf_push(ech_buf *const b, const char c)
{
    return ech_buf_append(b, &c, 1);
}

ech_status ech_buf_puts(ech_buf *const b, const char *const cstr)
{
    return ech_buf_append(b, cstr, strlen(cstr));
}

ech_status ech_buf_vprintf(ech_buf *const b, const char *const fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0) return ECH_EINVAL;
    ECH_TRY(ech_buf_reserve(b, (size_t)n));
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    b->len += (size_t)n;
    return ECH_OK;
}

ech_status ech_buf_printf(ech_buf *const b, const char *const fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const ech_status rc = ech_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

/* A short read is not the end. */
ech_status ech_buf_read_fd(ech_buf *const b, const int fd, const char *const path,
                           const size_t max_bytes, ech_error *const err)
{
    const size_t start = b->len;
    for (;;) {
        if (ech_buf_reserve(b, 65536) != ECH_OK) {
            return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
        }
        const ssize_t n = read(fd, b->data + b->len, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ech_fail_errno(err, ECH_EIO, "reading %s", path);
        if (n == 0) return ECH_OK;
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        if (b->len - start > max_bytes) {
            return ech_fail(err, ECH_ELIMIT, "reading %s: larger than the limit of %zu bytes", path,
                            max_bytes);
        }
    }
}

static ech_status read_file(ech_buf *const b, const char *const path, const size_t max_bytes,
                            const bool is_regular, ech_error *const err)
{
    struct stat st;
    /* Nobody may ever write to a pipe: it is opened without waiting for that, and refused. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | (is_regular ? O_NONBLOCK : 0));
    if (fd < 0) {
        return ech_fail_errno(err, errno == ENOENT ? ECH_ENOTFOUND : ECH_EIO, "opening %s", path);
    }
    if (is_regular && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return ech_fail(err, ECH_EIO, "opening %s: it is not a regular file", path);
    }
    const size_t start = b->len;
    const ech_status rc = ech_buf_read_fd(b, fd, path, max_bytes, err);
    (void)close(fd);
    if (rc != ECH_OK && b->data != NULL) {
        b->len = start;
        b->data[start] = '\0';
    }
    return rc;
}

ech_status ech_buf_read_file(ech_buf *const b, const char *const path, const size_t max_bytes,
                             ech_error *const err)
{
    return read_file(b, path, max_bytes, false, err);
}

ech_status ech_buf_read_regular(ech_buf *const b, const char *const path, const size_t max_bytes,
                                ech_error *const err)
{
    return read_file(b, path, max_bytes, true, err);
}
