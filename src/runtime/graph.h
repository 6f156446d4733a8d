/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph: slots in bounded rings, their dependencies, and what becomes ready when.
 *
 * It knows nothing of processes: a worker feeds it from callbacks and completions, and an
 * orchestration inside a chip (local.h) runs the same code. One lock of the owner guards all of
 * it; nothing here waits. What can't be had now is ECH_EAGAIN with the resource's name, and
 * ech_graph_stuck() says whether waiting can help.
 *
 *     slot states
 *     FREE -> BUILDING -> PENDING -> READY -> RUNNING -> COMPLETED -> CONSUMED -> FREE
 *                            |         |         |
 *                            +---------+---------+-----> FAILED ----> CONSUMED
 *
 * A slot is CONSUMED when it is terminal, its scope has ended, no task that uses it is unfinished
 * and no producer still points at it. Rings give back in order of taking: a slot's place, its heap
 * bytes and its dependency entries return when every older slot of the ring is consumed.
 */
#ifndef ECH_RUNTIME_GRAPH_H
#define ECH_RUNTIME_GRAPH_H

#include "src/runtime/tensormap.h"

typedef struct ech_graph ech_graph;

enum ech_slot_state {
    ECH_SLOT_FREE,
    ECH_SLOT_BUILDING,
    ECH_SLOT_PENDING,
    ECH_SLOT_READY,
    ECH_SLOT_RUNNING,
    ECH_SLOT_COMPLETED,
    ECH_SLOT_FAILED,
    ECH_SLOT_CONSUMED,
    ECH_SLOT_STATE_COUNT
};

const char *ech_slot_state_name(uint32_t state);

enum ech_slot_kind {
    ECH_SLOT_SINGLE, /* one task for one named child */
    ECH_SLOT_GROUP,  /* one task with a member per child */
    ECH_SLOT_SUB,    /* one task for any sub child */
    ECH_SLOT_GATE,   /* opened by the owner */
    ECH_SLOT_ALLOC,  /* ring memory, complete from the start */
    ECH_SLOT_LOCAL,  /* runs in this process (local.h) */
};

#define ECH_INLINE_TENSORS 6
#define ECH_INLINE_SCALARS 8
#define ECH_LABEL_BYTES    16

/* Arguments as they are kept until the task is dispatched. */
typedef struct ech_slot_args {
    uint32_t n_tensors, n_scalars;
    ech_tensor *tensors;
    uint64_t *scalars;
} ech_slot_args;

typedef struct ech_slot {
    uint32_t state;      /* ech_slot_state; changed by compare-and-swap only */
    uint32_t generation; /* counts uses of this place */
    uint32_t ref;        /* its own reference */
    uint32_t pending;    /* producers not yet terminal, plus 1 while BUILDING */
    uint32_t consumers;  /* unfinished tasks that depend on it or use its memory */
    uint32_t first_out;  /* chain of entries whose producer this is, oldest first: consumers */
    uint32_t last_out;   /* become ready in the order of their submission */
    uint32_t next;       /* in a ready queue, or in the list of failures being spread */
    uint32_t scope_next; /* in the list of its scope */
    uint32_t map_head;   /* its entries of the tensor map */
    uint64_t mark;       /* submission that looked at it last: one edge per producer */
    uint8_t kind;
    uint8_t ring;
    bool scope_held;
    bool settled;     /* its outcome is known, and consumers of a failed one have failed */
    bool drained;     /* and nothing that it was ordered behind still runs */
    bool accepted;    /* its child has taken it; reported before completion */
    uint8_t depth;    /* of its scope */
    uint8_t callable; /* in the registry */
    uint8_t cause;    /* of a failure: 1 + index in the run's list of root causes */
    uint8_t poisoned; /* failed because a producer did */
    uint64_t run_id;
    uint32_t run;              /* place in the run table */
    int32_t child;             /* SINGLE: its child; SUB: the one that runs it; else -1 */
    uint64_t ready_seq;        /* order of becoming ready, over all queues */
    uint64_t heap_lo, heap_hi; /* its ring memory, as ring positions; equal: none */
    uint64_t dep_lo, dep_hi;   /* its fan-in entries, as ring positions */
    uint32_t n_members;        /* GROUP */
    uint32_t members_left;
    uint32_t members_failed;
    uint32_t serial; /* number of the task in its run, for dumps and traces */
    int32_t *member_child;
    ech_slot_args *member_args;
    uint64_t rings_heap; /* per-dispatch ring sizes; 0: not set */
    uint32_t rings_window, rings_pool;
    void *extra;        /* one allocation that holds what doesn't fit inline */
    void *owner;        /* for the graph's user */
    int64_t t_ready_ns; /* when it became ready, when traced */
    char label[ECH_LABEL_BYTES];
    ech_slot_args args;
    ech_tensor inline_tensors[ECH_INLINE_TENSORS];
    uint64_t inline_scalars[ECH_INLINE_SCALARS];
} ech_slot;

/* A reference names ring and place; ECH_NO_SLOT is none. */
#define ECH_NO_SLOT             UINT32_MAX
#define ECH_SLOT_REF(ring, idx) ((uint32_t)(ring) << 28 | (uint32_t)(idx))

/* One fan-in entry: owned by the consumer, chained to its producer while that is unfinished. */
typedef struct ech_dep {
    uint32_t producer, consumer;
    uint32_t next; /* in the producer's chain: ring << 28 | index */
} ech_dep;

typedef struct ech_graph_ring {
    ech_slot *slots;
    ech_dep *deps;
    uint32_t index;  /* 0..ECH_RINGS-1 */
    uint32_t window; /* power of two */
    uint32_t dep_cap;
    uint64_t head, tail; /* slots taken, slots given back, since init */
    uint64_t dep_head, dep_tail;
    uint64_t heap_bytes;           /* of the ring */
    uint64_t heap_head, heap_tail; /* positions; the place is position % heap_bytes */
    uint64_t region_offset;        /* of the ring's first byte in the heap region */
    ech_ring_counters count[3];    /* by ech_resource */
} ech_graph_ring;

typedef enum ech_resource {
    ECH_RES_WINDOW,
    ECH_RES_HEAP,
    ECH_RES_DEPS,
    ECH_RES_COUNT
} ech_resource;

/* Runs whose tasks may be in a graph at one time. */
#define ECH_GRAPH_RUNS 2

/* What the graph tells its owner; called with the owner's lock held. */
typedef struct ech_graph_hooks {
    void (*ready)(void *ctx, ech_slot *slot);    /* PENDING -> READY has happened */
    void (*terminal)(void *ctx, ech_slot *slot); /* COMPLETED or FAILED */
    void (*edge)(void *ctx, const ech_slot *producer, const ech_slot *consumer); /* may be NULL */
    void *ctx;
} ech_graph_hooks;

struct ech_graph {
    ech_graph_ring rings[ECH_RINGS];
    ech_tensormap maps[ECH_GRAPH_RUNS]; /* by place of the run: runs have no edges in common */
    ech_graph_hooks hooks;
    uint64_t nonce[2];
    uint32_t depth;                          /* of the open scope, 0 while a callback runs */
    bool open;                               /* a callback runs */
    uint32_t scope_head[ECH_MAX_SCOPES + 1]; /* list of each open scope */
    uint64_t mark;                           /* counts submissions */
    uint32_t serial;                         /* of the next task of the run */
    uint64_t run_id;
    uint32_t run;
    uint32_t *found; /* scratch: producers of the task being built */
    uint32_t n_found, found_cap;
    uint64_t edges;    /* made in total */
    uint64_t progress; /* counts what can free something */
    uint64_t ready_seq;
};

/* What one submission needs. Everything was checked before. */
typedef struct ech_submission {
    uint8_t kind;
    uint8_t callable;
    int32_t child;               /* SINGLE */
    const int32_t *member_child; /* GROUP */
    ech_args *const *args;       /* n_members of them (1 unless GROUP); gets OUTPUT buffers */
    uint32_t n_members;
    const ech_box *boxes; /* of all members' tensors, one after the other */
    uint64_t heap_bytes;  /* ECH_SLOT_ALLOC, or the sum of unplaced outputs */
    const char *label;
    const ech_ring_sizes *rings; /* per-dispatch, NULL: none */
    const uint32_t *after;       /* LOCAL: explicit producers */
    uint32_t n_after;
    void *owner;
} ech_submission;

ech_status ech_graph_init(ech_graph *g, const ech_ring_sizes *sizes, const ech_graph_hooks *hooks,
                          const uint64_t nonce[2], ech_error *err);
void ech_graph_fini(ech_graph *g);
/* Bytes of the region that holds all four heap rings. */
uint64_t ech_graph_heap_total(const ech_ring_sizes *sizes);

/*
 * Begins and ends a run's construction: the scope of depth 0. `run` is its place, below
 * ECH_GRAPH_RUNS, whose earlier run has ended, so that its tensor map is empty.
 */
void ech_graph_open(ech_graph *g, uint64_t run_id, uint32_t run);
void ech_graph_close(ech_graph *g);
ech_status ech_graph_scope_begin(ech_graph *g, ech_error *err);
ech_status ech_graph_scope_end(ech_graph *g, ech_error *err);
/* The ring of a scope depth: 0, 1, 2, and 3 for all deeper ones. */
uint32_t ech_graph_ring_of(uint32_t depth);

/*
 * Adds a task. ECH_OK: *ret_slot is PENDING, READY or, for ALLOC, COMPLETED. ECH_EAGAIN: *ret_lack
 * is what the ring of the current depth lacks now; nothing was taken. Other codes: nothing was
 * taken and waiting won't help.
 */
ech_status ech_graph_submit(ech_graph *g, const ech_submission *s, ech_slot **ret_slot,
                            ech_resource *ret_lack, ech_error *err);

/*
 * Whether a blocked submitter waits in vain: ECH_OK means that something may still be freed;
 * otherwise the code and text of the deadlock. idle_ns: how long nothing has progressed while
 * nothing was being executed.
 */
ech_status ech_graph_stuck(const ech_graph *g, ech_resource lack, uint64_t need, int64_t idle_ns,
                           ech_error *err);
/* Without any progress for this long, a blocked submitter gives up (spec: about 500 ms). */
#define ECH_STUCK_NS (INT64_C(500) * 1000000)

/* READY -> RUNNING: one claim; false when a cancellation was faster. */
bool ech_slot_claim(ech_slot *slot);
/* RUNNING (or, for gates and cancelled tasks, PENDING or READY) -> COMPLETED or FAILED. */
void ech_graph_finish(ech_graph *g, ech_slot *slot, bool failed, uint8_t cause);

ech_slot *ech_graph_slot(const ech_graph *g, uint32_t ref);
/* The slot that owns ring memory, by a buffer's identity; NULL when it is stale or none. */
ech_slot *ech_graph_memory_owner(const ech_graph *g, const ech_buffer *buffer);

/* Ring buffers carry their place in the identity: flag, ring, and start in units of 64 bytes. */
#define ECH_RING_BUFFER    (UINT64_C(1) << 63)
#define ECH_RING_OF(id)    ((uint32_t)((id) >> 60 & 7))
#define ECH_RING_START(id) (((id) & ((UINT64_C(1) << 60) - 1)) * 64)

#endif
