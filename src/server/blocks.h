/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer as a row of blocks: reasoning, text, calls, each opened, filled and closed in order.
 * Responses and messages are written that way; this is what they share. The same events make the
 * frames of a stream and the blocks of a whole answer, so the two can't differ.
 *
 * A loop thread; belongs to one generation of one choice.
 */
#ifndef ECH_SERVER_BLOCKS_H
#define ECH_SERVER_BLOCKS_H

#include "src/server/generate.h"

typedef enum ech_block_kind {
    ECH_BLOCK_NONE,
    ECH_BLOCK_TEXT,
    ECH_BLOCK_REASONING,
    ECH_BLOCK_CALL,
} ech_block_kind;

typedef struct ech_blocks ech_blocks;

/* How a dialect writes a block; each appends frames to x->out. `b` has kind, index, text, call. */
typedef struct ech_block_ops {
    ech_status (*open)(ech_exchange *x, ech_generation *g, ech_blocks *b);
    ech_status (*delta)(ech_exchange *x, ech_generation *g, ech_blocks *b, const char *text,
                        size_t len);
    /* Also appends the finished block, as JSON, to b->done. */
    ech_status (*close)(ech_exchange *x, ech_generation *g, ech_blocks *b);
} ech_block_ops;

struct ech_blocks {
    const ech_block_ops *ops;
    ech_block_kind kind;  /* of the open block */
    uint32_t index;       /* of the open block; of the next one when none is open */
    ech_buf text;         /* of the open block so far; a call's arguments */
    const ech_call *call; /* CALL; valid until the next event */
    uint64_t sequence;    /* of the next frame, where a dialect counts them */
    ech_buf done;         /* finished blocks, joined by ',' */
};

/* In the exchange's arena, kept in g->blocks; NULL: out of memory. */
ech_blocks *ech_blocks_new(ech_exchange *x, ech_generation *g, const ech_block_ops *ops);
void ech_blocks_fini(ech_blocks *b);
/* The dialect's delta, call_end and finish. */
ech_status ech_blocks_delta(ech_exchange *x, ech_generation *g, uint32_t choice,
                            const ech_event *ev);
ech_status ech_blocks_call_end(ech_exchange *x, ech_generation *g, uint32_t choice, ech_call *call);
ech_status ech_blocks_close(ech_exchange *x, ech_generation *g);

/* The text of a string, or of a list's parts joined; NULL: a part has none. A new reference. */
json_t *ech_text_of(const json_t *content);

#endif
