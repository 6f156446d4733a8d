/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings: a borrowed slice (ech_str) and a growing buffer (ech_buf).
 *
 *     ech_buf b = { 0 };
 *     if (ech_buf_append(&b, "x", 1) != ECH_OK) …
 *     ech_buf_fini(&b);
 *
 * A buffer is always followed by a zero byte that is not counted, so that `b.data` is a C string
 * when it holds no zero itself. A failed append leaves the buffer as it was. One owner at a time.
 */
#ifndef ECH_BASE_BUF_H
#define ECH_BASE_BUF_H

#include <stdarg.h>
#include <string.h>

#include "echelon/status.h"

/* Bytes that somebody else owns; not zero-terminated. */
typedef struct ech_str {
    const char *ptr;
    size_t len;
} ech_str;

#define ECH_STR_LIT(s) ((ech_str){ (s), sizeof(s) - 1 })

static inline ech_str ech_str_from(const char *const cstr)
{
    return (ech_str){ cstr, cstr != NULL ? strlen(cstr) : 0 };
}

static inline bool ech_str_eq(const ech_str a, const ech_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

typedef struct ech_buf {
    char *data; /* NULL until the first append */
    size_t len;
    size_t cap; /* bytes allocated, the uncounted zero included */
} ech_buf;

void ech_buf_fini(ech_buf *b);
/* Empty, the memory kept. */
void ech_buf_clear(ech_buf *b);
/* Room for extra more bytes. ENOMEM also when the size would overflow. */
ech_status ech_buf_reserve(ech_buf *b, size_t extra);
ech_status ech_buf_append(ech_buf *b, const void *ptr, size_t len);
ech_status ech_buf_push(ech_buf *b, char c);
ech_status ech_buf_puts(ech_buf *b, const char *cstr);
ech_status ech_buf_printf(ech_buf *b, const char *fmt, ...) ECH_PRINTF_(2, 3);
ech_status ech_buf_vprintf(ech_buf *b, const char *fmt, va_list ap);

static inline ech_str ech_buf_view(const ech_buf *const b)
{
    return (ech_str){ b->data, b->len };
}

/* Reads a whole file and appends it. Fails with ELIMIT when it is larger than max_bytes. */
ech_status ech_buf_read_file(ech_buf *b, const char *path, size_t max_bytes, ech_error *err);
/* The same of a regular file alone: a model's folder may hold a pipe, which would be waited for. */
ech_status ech_buf_read_regular(ech_buf *b, const char *path, size_t max_bytes, ech_error *err);
/* The same to the end of a descriptor that is open; name: what errors call it. */
ech_status ech_buf_read_fd(ech_buf *b, int fd, const char *name, size_t max_bytes, ech_error *err);

#endif
