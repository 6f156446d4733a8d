/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON lines in, JSON lines out, for `echelon tokenize`: what is there to read is one batch, done
 * on several cores and written in order. A line that comes alone is answered at once, so that a
 * process may be kept and asked.
 */
#ifndef ECH_CLI_TOKENIZE_LINES_H
#define ECH_CLI_TOKENIZE_LINES_H

#include "echelon/tokenizer.h"
#include "src/base/buf.h"

typedef struct ech_line_job {
    const ech_tokenizer *tok;
    bool is_decode;     /* lines are lists of ids, else texts */
    unsigned flags;     /* of ech_tokenizer_encode() or _decode() */
    uint32_t n_threads; /* at least 1 */
} ech_line_job;

/* Standard input to standard output; returns the exit code, having said what was wrong. */
int ech_line_job_run(const ech_line_job *job);

/* Appends "[1, 2]". */
ech_status ech_line_put_ids(const ech_ids *ids, ech_buf *out);

#endif
