/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved rows of logits: what `echelon kld --save` writes and `--base` reads. Little-endian:
 *
 *     0     "ECHLOGIT"
 *     8     u32 version (1), vocab, ctx, n_windows, first, n_rows
 *     32    32 bytes of 0
 *     64    i32 ids[n_windows][ctx]                       the windows as the model read them
 *     …     f32 logits[n_windows][n_rows][vocab]          of positions first … first + n_rows - 1
 *
 * Row r of a window holds the logits from which its id at first + r + 1 is predicted. A file is
 * input: its length must be what its header says, and its ids those that are evaluated now.
 */
#ifndef ECH_CLI_LOGITS_FILE_H
#define ECH_CLI_LOGITS_FILE_H

#include "echelon/status.h"

typedef struct ech_logits_shape {
    uint32_t vocab, ctx, n_windows, first, n_rows;
} ech_logits_shape;

typedef struct ech_logits_file ech_logits_file;

/* A new file beside path; ech_logits_file_finish() puts it there. ids: [n_windows][ctx]. */
ech_status ech_logits_file_create(ech_logits_file **ret, const char *path,
                                  const ech_logits_shape *shape, const int32_t *ids,
                                  ech_error *err);
/* EFORMAT, with both numbers: it is damaged, or was made of other windows or another vocabulary. */
ech_status ech_logits_file_open(ech_logits_file **ret, const char *path,
                                const ech_logits_shape *shape, const int32_t *ids, ech_error *err);
/* One row of [vocab] numbers. Any order. */
ech_status ech_logits_file_write(ech_logits_file *f, uint32_t window, uint32_t row,
                                 const float *logits, ech_error *err);
ech_status ech_logits_file_read(ech_logits_file *f, uint32_t window, uint32_t row, float *logits,
                                ech_error *err);
/* The file is whole: renames it to its place. */
ech_status ech_logits_file_finish(ech_logits_file *f, ech_error *err);
/* Closes it; removes what was created and not finished. */
void ech_logits_file_close(ech_logits_file **f);

#endif
