/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: what a callback submitted, as one thing that is waited for. At most two hold a lease of
 * the run table: the active one, whose tasks are dispatched, and the prepared one, which waits.
 * Each has ready queues of its own, so that a prepared run needs no sorting out.
 */
#ifndef ECH_RUNTIME_RUN_H
#define ECH_RUNTIME_RUN_H

#include "src/runtime/graph.h"

#define ECH_RUN_DEPTH  ECH_GRAPH_RUNS
#define ECH_MAX_CAUSES 8 /* root causes kept per run; later failures carry the last of them */

/* A FIFO of slots, linked by ech_slot.next. */
typedef struct ech_queue {
    uint32_t head, tail, len;
} ech_queue;

void ech_queue_push(ech_graph *g, ech_queue *q, ech_slot *s);
ech_slot *ech_queue_peek(const ech_graph *g, const ech_queue *q);
ech_slot *ech_queue_pop(const ech_graph *g, ech_queue *q);

struct ech_run {
    ech_worker *worker;
    uint64_t id;
    uint32_t refs;  /* the handle and the table */
    uint32_t lease; /* place in the run table */
    uint32_t lease_generation;
    bool building; /* its callback runs */
    bool cancelled;
    bool reported; /* its failure was returned by submit already */
    bool done;     /* result is final */
    ech_status result;
    uint32_t open; /* tasks and gates that are not terminal */
    uint32_t n_ready;
    uint64_t singles_mask; /* next-level children with a queue */
    uint32_t n_causes;
    ech_error causes[ECH_MAX_CAUSES];
    ech_queue singles[ECH_MAX_CHILDREN]; /* by next-level child */
    ech_queue groups, subs;
    struct ech_deps *deps; /* recorded graph, or NULL */
    int64_t t_begin_ns;
    ech_run *free_next; /* in the pool */
};

/* Who may use a place of the run table: the generation tells holders of the same place apart. */
typedef struct ech_lease {
    uint32_t place, generation;
} ech_lease;

typedef struct ech_run_table {
    struct {
        ech_run *run;        /* NULL: free */
        uint32_t generation; /* changes with every holder */
    } places[ECH_RUN_DEPTH];
    uint32_t depth;  /* places in use: 1 or 2 */
    ech_run *active; /* the older one */
    ech_run *prepared;
    ech_run *pool;    /* finished run objects */
    uint64_t last_id; /* given out */
    uint64_t done_id; /* all runs up to this one are finished */
} ech_run_table;

/* Takes a free place; false when both are taken. */
bool ech_lease_take(ech_run_table *t, ech_run *run, ech_lease *ret_lease);
/* The run of a current lease, NULL for a stale one. */
ech_run *ech_lease_run(const ech_run_table *t, ech_lease lease);
/* Gives the place back; a stale or released lease does nothing. Whether it was current. */
bool ech_lease_release(ech_run_table *t, ech_lease lease);

/* Adds a root cause; its number + 1 is what slots carry. The first one is the run's result. */
uint8_t ech_run_add_cause(ech_run *run, const ech_error *cause);

#endif
