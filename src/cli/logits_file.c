/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of logits: see logits_file.h. Positioned reads and writes, so that windows may come in any
 * order and nothing is held in memory. One thread at a time.
 *
 * The format, little-endian as the machines that this runs on; offsets follow from the header
 * alone:
 *
 *     header                        64 bytes
 *     ids    [n_windows][ctx]       int32, what was scored
 *     rows   [n_windows][n_rows][vocab]   float32
 *
 * Invariant: a file under its name is whole. It gets its name in finish().
 * What is read is input: nothing of it is used before shape, length and ids are those of this
 * run.
 */
#include "src/cli/logits_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/os/newfile.h"

#define MAGIC        "ECHLOGIT"
#define VERSION      1u
#define HEADER_BYTES 64u

struct ech_logits_file {
    int fd;
    ech_logits_shape shape;
    ech_buf path;
    ech_new_file made; /* fd is its own; not open for a file that is read */
};

/* A layout of fixed-width fields without gaps; reserved bytes are 0. */
typedef struct header {
    char magic[8];
    uint32_t version, vocab, ctx, n_windows, first, n_rows;
    uint8_t reserved[32];
} header;

_Static_assert(sizeof(header) == HEADER_BYTES, "part of the file's format");

/* 64 bits throughout: a vocabulary of 150 000 and a few thousand rows are gigabytes. */
static uint64_t ids_bytes(const ech_logits_shape *s)
{
    return (uint64_t)s->n_windows * s->ctx * sizeof(int32_t);
}

static uint64_t row_bytes(const ech_logits_shape *s)
{
    return (uint64_t)s->vocab * sizeof(float);
}

static uint64_t file_bytes(const ech_logits_shape *s)
{
    return HEADER_BYTES + ids_bytes(s) + (uint64_t)s->n_windows * s->n_rows * row_bytes(s);
}

static uint64_t row_offset(const ech_logits_shape *s, uint32_t window, uint32_t row)
{
    return HEADER_BYTES + ids_bytes(s) + ((uint64_t)window * s->n_rows + row) * row_bytes(s);
}

/* A read may be short, a file that was cut meanwhile ends: both are met by the loop. */
static ech_status read_at(ech_logits_file *f, uint64_t at, void *out, uint64_t len, ech_error *err)
{
    for (uint64_t done = 0; done < len;) {
        const ssize_t n = pread(f->fd, (char *)out + done, len - done, (off_t)(at + done));
        if (n <= 0) return ech_fail_errno(err, ECH_EIO, "reading %s", f->path.data);
        done += (uint64_t)n;
    }
    return ECH_OK;
}

static ech_status write_at(ech_logits_file *f, uint64_t at, const void *data, uint64_t len,
                           ech_error *err)
{
    for (uint64_t done = 0; done < len;) {
        const ssize_t n = pwrite(f->fd, (const char *)data + done, len - done, (off_t)(at + done));
        if (n <= 0) return ech_fail_errno(err, ECH_EIO, "writing %s", f->path.data);
        done += (uint64_t)n;
    }
    return ECH_OK;
}

static ech_status make(ech_logits_file **ret, const char *path, const ech_logits_shape *shape,
                       bool creates, ech_error *err)
{
    ech_logits_file *f = calloc(1, sizeof *f);
    if (f == NULL) return ech_fail(err, ECH_ENOMEM, "opening %s: out of memory", path);
    f->fd = -1;
    f->shape = *shape;
    ech_status rc = ech_buf_puts(&f->path, path);
    if (rc != ECH_OK) (void)ech_fail(err, rc, "opening %s: out of memory", path);
    if (rc == ECH_OK && creates) {
        rc = ech_new_file_open(&f->made, path, 0644, err);
        f->fd = f->made.fd;
    } else if (rc == ECH_OK) {
        f->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (f->fd < 0) rc = ech_fail_errno(err, ECH_EIO, "opening %s", path);
    }
    if (rc == ECH_OK)
        *ret = f;
    else
        ech_logits_file_close(&f);
    return rc;
}

/*
 * The ids go in at once, rows as they come. On failure there is no file and *ret isn't written.
 */
ech_status ech_logits_file_create(ech_logits_file **ret, const char *path,
                                  const ech_logits_shape *shape, const int32_t *ids, ech_error *err)
{
    ech_logits_file *f;
    header h = { .version = VERSION,
                 .vocab = shape->vocab,
                 .ctx = shape->ctx,
                 .n_windows = shape->n_windows,
                 .first = shape->first,
                 .n_rows = shape->n_rows };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    ECH_TRY(make(&f, path, shape, true, err));
    ech_status rc = ech_new_file_take(&f->made, file_bytes(shape), err);
    if (rc == ECH_OK) rc = write_at(f, 0, &h, sizeof h, err);
    if (rc == ECH_OK) rc = write_at(f, sizeof h, ids, ids_bytes(shape), err);
    if (rc != ECH_OK) {
        ech_logits_file_close(&f);
        return rc;
    }
    *ret = f;
    return ECH_OK;
}

/* Says both numbers and what to do: mostly another --ctx or another text. */
static ech_status check_number(const ech_logits_file *f, const char *what, uint32_t found,
                               uint32_t wanted, ech_error *err)
{
    if (found == wanted) return ECH_OK;
    return ech_fail(err, ECH_EFORMAT,
                    "reading %s: its %s is %u, of this run it is %u; make it with the same text, "
                    "tokenizer and options",
                    f->path.data, what, found, wanted);
}

/* The length is checked against the shape, so that no later read can fail for it. */
static ech_status check_header(ech_logits_file *f, ech_error *err)
{
    header h;
    struct stat st;
    const ech_logits_shape *const s = &f->shape;
    if (fstat(f->fd, &st) != 0) return ech_fail_errno(err, ECH_EIO, "reading %s", f->path.data);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof h)
        return ech_fail(err, ECH_EFORMAT, "reading %s: it is too short for saved logits",
                        f->path.data);
    ECH_TRY(read_at(f, 0, &h, sizeof h, err));
    if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 || h.version != VERSION)
        return ech_fail(err, ECH_EFORMAT,
                        "reading %s: it doesn't begin as saved logits of version %u do",
                        f->path.data, VERSION);
    ECH_TRY(check_number(f, "vocabulary", h.vocab, s->vocab, err));
    ECH_TRY(check_number(f, "window length", h.ctx, s->ctx, err));
    ECH_TRY(check_number(f, "number of windows", h.n_windows, s->n_windows, err));
    ECH_TRY(check_number(f, "first row", h.first, s->first, err));
    ECH_TRY(check_number(f, "number of rows", h.n_rows, s->n_rows, err));
    if ((uint64_t)st.st_size == file_bytes(s)) return ECH_OK;
    return ech_fail(err, ECH_EFORMAT, "reading %s: it has %llu bytes, its header says %llu",
                    f->path.data, (unsigned long long)st.st_size,
                    (unsigned long long)file_bytes(s));
}

/*
 * Logits of another text would give a divergence that means nothing. All are compared: it costs
 * nothing beside the rows.
 */
static ech_status check_ids(ech_logits_file *f, const int32_t *ids, ech_error *err)
{
    const uint64_t bytes = ids_bytes(&f->shape);
    int32_t *const had = malloc(bytes);
    if (had == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", f->path.data);
    ech_status rc = read_at(f, HEADER_BYTES, had, bytes, err);
    for (uint64_t i = 0; rc == ECH_OK && i < bytes / sizeof *ids; i++)
        if (had[i] != ids[i])
            rc = ech_fail(err, ECH_EFORMAT,
                          "reading %s: token %llu is %d, of this run it is %d; make it with the "
                          "same text and tokenizer",
                          f->path.data, (unsigned long long)i, had[i], ids[i]);
    free(had);
    return rc;
}

ech_status ech_logits_file_open(ech_logits_file **ret, const char *path,
                                const ech_logits_shape *shape, const int32_t *ids, ech_error *err)
{
    ech_logits_file *f;
    ECH_TRY(make(&f, path, shape, false, err));
    ech_status rc = check_header(f, err);
    if (rc == ECH_OK) rc = check_ids(f, ids, err);
    if (rc != ECH_OK) {
        ech_logits_file_close(&f);
        return rc;
    }
    *ret = f;
    return ECH_OK;
}

ech_status ech_logits_file_write(ech_logits_file *f, uint32_t window, uint32_t row,
                                 const float *logits, ech_error *err)
{
    return write_at(f, row_offset(&f->shape, window, row), logits, row_bytes(&f->shape), err);
}

ech_status ech_logits_file_read(ech_logits_file *f, uint32_t window, uint32_t row, float *logits,
                                ech_error *err)
{
    return read_at(f, row_offset(&f->shape, window, row), logits, row_bytes(&f->shape), err);
}

/*
 * After it the file is the user's and closing removes nothing. Without fsync: a crash of the
 * machine costs a run that can be made again.
 */
ech_status ech_logits_file_finish(ech_logits_file *f, ech_error *err)
{
    return ech_new_file_keep(&f->made, err);
}

/* A file that wasn't finished is removed. */
void ech_logits_file_close(ech_logits_file **file)
{
    ech_logits_file *const f = *file;
    if (f == NULL) return;
    if (f->made.path != NULL)
        ech_new_file_fini(&f->made);
    else if (f->fd >= 0)
        (void)close(f->fd);
    ech_buf_fini(&f->path);
    free(f);
    *file = NULL;
}
