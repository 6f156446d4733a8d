/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of one step: what a forward task binds, in order, and the record of a row.
 *
 *     # tensor        dtype, shape                     tag               access
 *     0 weights       u8  [image_bytes]                INPUT             the packed image (image.h)
 *     1 rows          u8  [n_rows * sizeof(ech_row)]   INPUT
 *     2 page tables   u32 [n]                          INPUT             page numbers, in position
 * order 3 kv            u8  [n_pages, page_bytes]        INOUT             the chip's whole arena
 * (kv.h) 4 sampled ids   i32 [n_slots]                    INPUT             what `sample` wrote
 * last 5 logits        f32 [>= n_logits, vocab]         OUTPUT_EXISTING   row r at r * vocab
 *     scalars: n_rows, n_logits
 *
 * The program `embed` takes the same and gives hidden states after the final norm in the place of
 * logits: f32 [>= n_logits, hidden], of as many rows as a step may have.
 *
 * A step may mix rows of prefill and of decode, of any number of sequences. A row reads the keys
 * and values of positions 0 … pos of its sequence, as stored, those that this step writes
 * included; so the rows of one chunk may be in any order, but consecutive positions of one
 * sequence that stand together in the array are computed together, which is much faster.
 * A pair (sequence, position) occurs once in a step.
 */
#ifndef ECH_CHIP_STEP_H
#define ECH_CHIP_STEP_H

#include <stdint.h>

enum {
    ECH_STEP_WEIGHTS,
    ECH_STEP_ROWS,
    ECH_STEP_PAGES,
    ECH_STEP_KV,
    ECH_STEP_SAMPLED,
    ECH_STEP_LOGITS,
    ECH_STEP_TENSORS,
};

enum {
    ECH_STEP_N_ROWS,
    ECH_STEP_N_LOGITS,
    ECH_STEP_SCALARS,
};

/* Logits, unlike hidden states, exist for at most this many rows at a time. */
#define ECH_STEP_MAX_LOGITS 64

typedef struct ech_row {
    uint32_t seq;   /* tells rows of different sequences apart; any number */
    uint32_t pos;   /* absolute position, 0-based */
    int32_t id;     /* token >= 0, or -1 - slot: read sampled ids[slot] */
    uint32_t pages; /* index in the page tables of the sequence's first page number */
    int32_t
        logit_row; /* row of the logits tensor that this row fills; -1: none. Unique in a step */
    uint32_t reserved; /* 0 */
} ech_row;

_Static_assert(sizeof(ech_row) == 24, "shared between processes");

#endif
