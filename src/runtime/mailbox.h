/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox between a worker and one child: shared memory, no pointers, fixed layout.
 *
 *     head      magic, version, layout                       written once, by the worker
 *     to_child  doorbell, shutdown, abort                    written by the worker
 *     to_worker state, progress, sleeping                    written by the child
 *     control   one command at a time, either way
 *     frames    a ring of 8 tasks
 *
 * A task takes the ring's next frame. Its first cache line holds identity and state, so that one
 * transfer brings the reader all that a small task needs:
 *
 *     EMPTY --worker--> STAGED --worker--> READY --child--> DONE --worker--> STAGED
 *
 * STAGED is a frame that is written but not yet allowed to start. The child runs READY frames in
 * ring order, which is the order of their dispatch ids. A DONE frame is staged again as it is when
 * its turn comes. `accepted` isn't a state but a word that keeps the last dispatch id that the
 * child has begun, so that a fast task can't hide it. It has a line of its own with the other words
 * that the child writes per task, and is repeated in the frame at the end: a store into the frame
 * at the beginning would cost the line's way to the spinning worker and back. `shutdown` is a word
 * of its own as well: no answer can overwrite it.
 *
 * Order of memory: payload, then state with release; the reader loads the state with acquire. All
 * words that the other side wrote are input: bounded before use.
 */
#ifndef ECH_RUNTIME_MAILBOX_H
#define ECH_RUNTIME_MAILBOX_H

#include <assert.h>

#include "echelon/worker.h"

#define ECH_MAILBOX_MAGIC   0x4d434845u /* "EHCM" */
#define ECH_MAILBOX_VERSION 1u
#define ECH_FRAMES          8u
#define ECH_LINE            64

enum ech_frame_state {
    ECH_FRAME_EMPTY,
    ECH_FRAME_STAGED,
    ECH_FRAME_READY,
    ECH_FRAME_DONE,
    ECH_FRAME_STATE_COUNT
};

/* What a completion must repeat to be believed. */
typedef struct ech_identity {
    uint64_t dispatch_id; /* counts hand-overs of the worker, from 1 */
    uint64_t run_id;
    uint32_t slot;
    uint32_t generation; /* of the slot */
} ech_identity;

typedef struct ech_frame {
    /* line 0: what the reader spins on */
    uint32_t state;    /* W: both, in turn */
    uint32_t accepted; /* W: child; low half of the dispatch id, with DONE. Never cleared */
    ech_identity id;   /* W: worker */
    uint16_t callable; /* W: worker; place in the registry */
    uint16_t member;   /* of a group */
    uint16_t n_tensors;
    uint16_t n_scalars;
    uint64_t scalar0; /* the first scalar, so that a small task needs this line only */
    uint64_t done_id; /* W: child; the dispatch id that it has finished */
    int32_t result;   /* W: child; ech_status */
    uint32_t callable_generation;
    /* line 1: what only some tasks need */
    uint32_t ring_window, ring_pool; /* of an orchestration that runs in the child; 0: not set */
    uint64_t ring_heap;
    int64_t t_start, t_end; /* W: child, when traced */
    char label[16];
    uint64_t reserved[2];
    /* then the payload */
    uint64_t scalars[ECH_MAX_SCALARS];
    ech_tensor tensors[ECH_MAX_TENSORS];
    char error[ECH_ERROR_TEXT]; /* W: child; of a result that isn't ECH_OK */
} ech_frame;

enum ech_control_state {
    ECH_CONTROL_IDLE,
    ECH_CONTROL_PENDING, /* W: worker; the request is complete */
    ECH_CONTROL_ANSWERED /* W: child; the answer is complete */
};

/* Commands of the runtime itself have the high bit; others are the platform's. 0 is a ping. */
enum ech_control_op {
    ECH_OP_PING = 0,
    ECH_OP_REGISTER = INT32_MIN, /* look at registry entry `arg` and load it */
    ECH_OP_UNREGISTER,           /* forget it */
};

typedef struct ech_control {
    uint32_t state;
    int32_t op;          /* W: worker */
    uint32_t seq;        /* W: worker; counts commands */
    uint32_t answer_seq; /* W: child; must repeat seq */
    uint32_t arg;
    uint32_t len;   /* of the request, then of the answer */
    int32_t result; /* W: child */
    uint32_t cap;   /* W: worker; room for the answer */
    uint64_t reserved[4];
    uint8_t data[ECH_CONTROL_BYTES];
    char error[ECH_ERROR_TEXT];
} ech_control;

/* Where a child is in its life, as it says itself. */
enum ech_mail_state {
    ECH_MAIL_NONE,
    ECH_MAIL_INIT_READY = 1,
    ECH_MAIL_INIT_FAILED,
    ECH_MAIL_CLOSING,
};

typedef struct ech_mailbox {
    uint32_t magic, version, bytes, child;
    uint64_t reserved0[6];

    /* to_child: W: worker */
    uint32_t doorbell;     /* futex; changes when there is something to look at */
    uint32_t shutdown;     /* sticky: 1 once the child has to leave */
    uint64_t abort_run;    /* runs up to this one are to stop */
    uint32_t control_bell; /* futex of a child whose commands have a thread of their own */
    uint32_t generation;   /* of the process that this mailbox belongs to */
    uint64_t reserved1[5];

    /* to_worker: W: child. The worker reads the first line at every hand-over, so what changes with
     * every task is on another one. */
    uint32_t state;     /* ech_mail_state */
    uint32_t sleeping;  /* 1 while it waits on the doorbell: a hand-over has to wake it */
    int32_t error_code; /* with INIT_FAILED */
    uint32_t reserved2[13];
    uint64_t progress;   /* counts operations */
    uint32_t where;      /* the program step it is at */
    uint32_t where_core; /* and the core that said so */
    uint64_t tasks;      /* finished */
    int64_t busy_ns;     /* spent in callables, while traced */
    uint64_t accepted;   /* the last dispatch id that was begun. Sticky: it only grows */
    uint64_t reserved3[3];
    char error[ECH_ERROR_TEXT]; /* with INIT_FAILED */

    ech_control control;
    ech_frame frames[ECH_FRAMES];
} ech_mailbox;

/* The layout is part of the protocol: a worker and its children may come from one build only, but
 * tools that look into a mailbox rely on it, and so does every comment above about lines. */
#define AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #field)
AT(ech_frame, state, 0);
AT(ech_frame, accepted, 4);
AT(ech_frame, id, 8);
AT(ech_frame, callable, 32);
AT(ech_frame, member, 34);
AT(ech_frame, n_tensors, 36);
AT(ech_frame, n_scalars, 38);
AT(ech_frame, scalar0, 40);
AT(ech_frame, done_id, 48);
AT(ech_frame, result, 56);
AT(ech_frame, callable_generation, 60);
AT(ech_frame, ring_window, 64);
AT(ech_frame, ring_pool, 68);
AT(ech_frame, ring_heap, 72);
AT(ech_frame, t_start, 80);
AT(ech_frame, t_end, 88);
AT(ech_frame, label, 96);
AT(ech_frame, reserved, 112);
AT(ech_frame, scalars, 128);
AT(ech_frame, tensors, 1152);
AT(ech_frame, error, 33920);
static_assert(sizeof(ech_frame) == 34432 && sizeof(ech_frame) % ECH_LINE == 0, "frame");
AT(ech_identity, dispatch_id, 0);
AT(ech_identity, run_id, 8);
AT(ech_identity, slot, 16);
AT(ech_identity, generation, 20);
AT(ech_control, state, 0);
AT(ech_control, op, 4);
AT(ech_control, seq, 8);
AT(ech_control, answer_seq, 12);
AT(ech_control, arg, 16);
AT(ech_control, len, 20);
AT(ech_control, result, 24);
AT(ech_control, cap, 28);
AT(ech_control, data, 64);
AT(ech_control, error, 4160);
static_assert(sizeof(ech_control) == 4672 && sizeof(ech_control) % ECH_LINE == 0, "control");
AT(ech_mailbox, magic, 0);
AT(ech_mailbox, version, 4);
AT(ech_mailbox, bytes, 8);
AT(ech_mailbox, child, 12);
AT(ech_mailbox, doorbell, 64);
AT(ech_mailbox, shutdown, 68);
AT(ech_mailbox, abort_run, 72);
AT(ech_mailbox, control_bell, 80);
AT(ech_mailbox, generation, 84);
AT(ech_mailbox, state, 128);
AT(ech_mailbox, sleeping, 132);
AT(ech_mailbox, error_code, 136);
AT(ech_mailbox, progress, 192);
AT(ech_mailbox, where, 200);
AT(ech_mailbox, where_core, 204);
AT(ech_mailbox, tasks, 208);
AT(ech_mailbox, busy_ns, 216);
AT(ech_mailbox, accepted, 224);
AT(ech_mailbox, error, 256);
AT(ech_mailbox, control, 768);
AT(ech_mailbox, frames, 5440);
static_assert(sizeof(ech_tensor) == 128, "a tensor is two lines");
#undef AT

/* Writes an empty mailbox for the next process of a child. Nobody else looks at it yet. */
void ech_mailbox_reset(ech_mailbox *m, uint32_t child, uint32_t generation);
/* Whether the fixed words are what they should be. */
bool ech_mailbox_valid(const ech_mailbox *m, uint32_t child);
/* Wakes the child if it sleeps; after a store that it has to see. W: worker. */
void ech_mailbox_ring(ech_mailbox *m);
/* Sets the sticky word and wakes the child, both its threads. */
void ech_mailbox_shutdown(ech_mailbox *m);

/*
 * Reads a frame's counts, which another process wrote. EFORMAT when they can't be: the payload is
 * not touched then.
 */
ech_status ech_frame_check(const ech_frame *f, ech_error *err);

#endif
