/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker itself: the struct that the runtime's files share. Each group of fields names its
 * file. `lock` guards everything that isn't said to be something else's; it is never held while
 * waiting. Lock order: submit_lock or registry_lock, then lock.
 */
#ifndef ECH_RUNTIME_NODE_H
#define ECH_RUNTIME_NODE_H

#include <pthread.h>

#include "src/base/clock.h"
#include "src/runtime/child.h"
#include "src/runtime/endpoint.h"
#include "src/runtime/journal.h"
#include "src/runtime/run.h"
#include "src/runtime/shared.h"

typedef struct ech_image {
    uint64_t lo, hi; /* addresses of a loaded image */
    uint8_t build_id[32];
    char name[ECH_NAME_BYTES];
} ech_image;

#define ECH_MAX_IMAGES 256

/* What a callback works with. One per worker: callbacks exclude each other. */
struct ech_orch {
    ech_worker *worker;
    ech_run *run;
    ech_box *boxes; /* scratch for the task being submitted */
    size_t boxes_cap;
};

struct ech_worker {
    /* worker.c: fixed after create */
    char name[ECH_NAME_BYTES];
    int level;
    ech_worker *parent;    /* the worker that this one is a child of, or NULL */
    uint32_t parent_child; /* as which child */
    uint32_t n_chips, n_next, n_subs, n_children;
    const ech_child_ops *chip_ops;
    void *chip_options[ECH_MAX_CHILDREN];
    size_t chip_options_bytes[ECH_MAX_CHILDREN];
    ech_worker *child_worker[ECH_MAX_CHILDREN]; /* by next-level child; NULL: a chip */
    double startup_timeout_s, close_timeout_s, stall_limit_s;
    int64_t spin_ns;
    ech_ring_sizes sizes;

    /* memory.c */
    ech_shared *shared;
    uint32_t n_regions;
    uint64_t reserve_used, region_bytes;
    uint32_t reserve_region;
    uint32_t n_buffers, n_live_buffers, free_buffer_hint;
    uint64_t buffer_generation;
    uint64_t buffer_run[ECH_MAX_BUFFERS]; /* the last run that named it */
    bool buffer_in_reserve[ECH_MAX_BUFFERS];

    /* registry.c */
    ech_image images[ECH_MAX_IMAGES]; /* loaded before the fork */
    uint32_t n_images;
    uint32_t n_callables;
    uint64_t last_ticket;
    uint64_t tickets[ECH_MAX_CALLABLES][32]; /* registrations that are not undone; 0: free */
    pthread_mutex_t registry_lock; /* before lock: one change at a time, though lock is given up */

    /* lifecycle.c */
    uint32_t state; /* ech_worker_state */
    bool closing;   /* new operations are refused */
    bool init_cancelled;
    bool init_running;
    int64_t init_deadline_ns; /* of the start; 0: from startup_timeout_s */
    bool close_running;
    uint32_t leases; /* operations in progress that close waits for */
    pthread_t init_thread;
    ech_error init_error; /* the first cause, for every waiter */
    ech_status close_result;
    ech_error close_error;
    uint64_t close_epoch; /* counts finished attempts to close */
    ech_journal journal;
    bool leak_check; /* children may look for leaks: no other thread existed at the fork */

    /* zygote.c */
    int32_t zygote_pid;
    int zygote_socket; /* -1: none */
    bool zygote_lost;  /* it died by itself */
    bool zygote_quit;  /* it was told to leave */
    uint32_t seen_events;

    /* sched.c, run.c */
    pthread_mutex_t lock;
    pthread_cond_t cond;         /* state, runs, closers: anything that isn't a child's doing */
    pthread_mutex_t submit_lock; /* one callback at a time */
    ech_graph graph;
    ech_run_table runs;
    ech_orch orch;
    ech_endpoint endpoints[ECH_MAX_CHILDREN];
    uint64_t dispatch_id;      /* last given out */
    uint32_t drivers;          /* threads that drive the scheduler besides its own */
    uint32_t boundary_waiters; /* registrations that go ahead of the prepared run */
    uint64_t pump_seq;         /* counts rounds of the scheduler, for its own thread to see */
    int64_t active_ns;         /* when a run or a wait last began */
    int64_t checked_ns;        /* when liveness was last looked at */
    pthread_t sched_thread;
    bool sched_started, sched_stop;
    uint32_t park;           /* futex of the scheduler's own thread */
    bool sched_parked;       /* for long: has to be woken */
    uint32_t kicks;          /* changes when spinning waiters have to look */
    uint32_t waiters;        /* threads inside ech_run_wait() */
    uint64_t my_task_run;    /* the parent's run whose task runs here; 0: none */
    ech_mailbox *my_mail;    /* in a child process that is this worker: its own mailbox */
    uint32_t next_sub;       /* where the search for an idle sub starts */
    uint64_t quiet_progress; /* of the graph, when nothing ran and it was looked at last */
    int64_t quiet_ns;        /* since when a run has waited with nothing in flight; 0: not so */
    bool quiet_logged;
    int64_t warn_ns; /* how long something may hang before a line is logged: 5 s */

    /* counters.c */
    struct {
        uint64_t runs, runs_failed, tasks, tasks_failed, tasks_skipped, accepted, gates, groups;
        uint64_t lost, replaced, wakes, warnings;
    } count;

    /* trace.c, deps.c */
    bool keep_deps;
    struct ech_trace *trace; /* in shared memory; NULL when there was no memory for it */
};

/*
 * lease.c: an operation that close has to wait for. ESTATE once the worker closes, EREENTRANT from
 * inside a callback of the same worker on this thread. The guard lives on the caller's stack.
 */
typedef struct ech_lease_guard {
    const ech_worker *worker;
    struct ech_lease_guard *outer;
    bool callback; /* the operation runs a callback of the owner */
} ech_lease_guard;

ech_status ech_lease_begin(ech_worker *w, const char *what, ech_lease_guard *guard, ech_error *err);
void ech_lease_end(ech_worker *w, ech_lease_guard *guard);
/* Marks the guard's callback as running; calls from inside it are reentrant. */
void ech_lease_callback(ech_lease_guard *guard, bool inside);
/* Whether this thread is inside a callback of w. */
bool ech_lease_inside(const ech_worker *w);

#endif
