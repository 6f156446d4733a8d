/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of a buffer a view touches, and whether two views touch a common one.
 *
 * A view becomes nested runs of bytes: the innermost dimension is a run of neighbouring bytes,
 * each outer one repeats what is inside it at a stride that is at least its span. Dimensions that
 * follow each other without a gap are merged, so a dense view is one run, whatever its shape.
 *
 *     [4 rows of 8 floats, columns 2..5]     stride 32 x extent 4, run of 12 bytes, from byte 8
 *
 * Overlap is exact for equal strides and between a run and anything; where it isn't (views of one
 * buffer with strides that don't nest) the answer may be a false yes, never a false no.
 * Pure functions.
 */
#ifndef ECH_RUNTIME_BOX_H
#define ECH_RUNTIME_BOX_H

#include "echelon/worker.h"

typedef struct ech_box {
    uint64_t lo, hi; /* first byte, one past the last, in the buffer */
    uint32_t ndim;   /* 1: a run; 0: only lo and hi are known */
    uint32_t reserved;
    uint64_t stride[ECH_MAX_DIMS + 1]; /* bytes, outermost first; the innermost is 1 */
    uint64_t extent[ECH_MAX_DIMS + 1]; /* of each dimension */
} ech_box;

/*
 * Checks a view (dtype, ndim, shape, strides, no overflow, inside buf_bytes) and gives its box.
 * `what` names the tensor in the error, whose text names the field that is wrong.
 */
ech_status ech_box_from(const ech_tensor *t, uint64_t buf_bytes, const char *what, ech_box *ret_box,
                        ech_error *err);
bool ech_box_overlaps(const ech_box *a, const ech_box *b);
/* Whether every byte of b is in a. May be a false no. */
bool ech_box_covers(const ech_box *a, const ech_box *b);

#endif
