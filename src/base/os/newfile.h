/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is written beside its place: under its name it is whole, or what was there before.
 * Until it is kept it has no name at all, so that whatever ends the process leaves nothing behind.
 * Opened before the work whose result goes in: a place that can't be written is said at once.
 */
#ifndef ECH_BASE_OS_NEWFILE_H
#define ECH_BASE_OS_NEWFILE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "echelon/status.h"

typedef struct ech_new_file {
    int fd;        /* for reading and writing */
    char *path;    /* NULL: not open */
    char *beside;  /* "path.<process>-<number>.tmp" */
    bool is_named; /* under `beside`: where the file system has no files without a name */
} ech_new_file;

/*
 * What stands at path may be a regular file, which is replaced, or nothing; a folder, a device or a
 * pipe is refused. On failure *f needs nothing.
 */
ech_status ech_new_file_open(ech_new_file *f, const char *path, mode_t mode, ech_error *err);
/* Takes that much space for it: says now what would fail after gigabytes. */
ech_status ech_new_file_take(const ech_new_file *f, uint64_t bytes, ech_error *err);
/* Gives it its name. Two that keep the same path both succeed; the later one stays. */
ech_status ech_new_file_keep(ech_new_file *f, ech_error *err);
/* A stream of its own to the file, for the caller to close before keep(); NULL with errno. */
FILE *ech_new_file_stream(const ech_new_file *f);
/* A file that was not kept is gone. May be called twice, and for a zeroed *f. */
void ech_new_file_fini(ech_new_file *f);
/* Whether a file could be made there; nothing is left of the attempt. */
ech_status ech_new_file_try(const char *path, ech_error *err);

#endif
