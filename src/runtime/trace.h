/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans: who did what from when to when. Each producer (the worker, each child, each core of a
 * chip) has a lane of its own in shared memory, so that recording is one store of a cache line and
 * one of the count. Off by default: then it costs a load and a branch. A full lane counts what it
 * drops.
 */
#ifndef ECH_RUNTIME_TRACE_H
#define ECH_RUNTIME_TRACE_H

#include "src/base/atomic.h"
#include "src/runtime/node.h"

#define ECH_TRACE_RECORDS 16384u /* per lane; 1 MiB, taken when used */
#define ECH_TRACE_CORES   16u    /* core lanes per chip */

enum ech_trace_kind {
    ECH_TRACE_SPAN, /* name, t0..t1, on this lane */
    ECH_TRACE_TASK, /* the same on lane `lane`; id is run << 24 | serial */
    ECH_TRACE_EDGE, /* id -> id2 */
};

typedef struct ech_trace_record {
    int64_t t0, t1; /* ns, monotonic */
    uint64_t id, id2;
    uint32_t kind, lane;
    char name[24];
} ech_trace_record;

/* W: its producer. */
typedef struct ech_trace_lane {
    uint64_t n; /* records written; published with release */
    uint64_t dropped;
    const uint32_t *on; /* the switch, at the same address everywhere */
    uint64_t reserved[5];
    ech_trace_record records[ECH_TRACE_RECORDS];
} ech_trace_lane;

/*
 * Lane 0 is the worker's (guarded by its lock) and holds the tasks of all children; then come the
 * cores of the chips. Each child's tasks are drawn on a lane of their own, 1 + child; the cores'
 * are drawn behind those of ECH_MAX_CHILDREN children.
 */
typedef struct ech_trace {
    uint32_t n_lanes;
    uint32_t reserved[15];
    ech_trace_lane lanes[];
} ech_trace;

static inline bool ech_trace_on(const ech_worker *const w)
{
    return __builtin_expect(ech_load_relaxed(&w->shared->tracing) != 0, 0);
}

/* For a producer: one record, if spans are on. name is cut to 23 bytes. */
void ech_trace_span(ech_trace_lane *lane, const char *name, uint64_t id, int64_t t0, int64_t t1);
static inline bool ech_trace_lane_on(const ech_trace_lane *const lane)
{
    return lane != NULL && ech_load_relaxed(lane->on) != 0;
}

/* Maps the lanes; noted in the journal. */
ech_status ech_trace_open(ech_worker *w, ech_error *err);
ech_trace_lane *ech_trace_core_lane(const ech_worker *w, uint32_t child, uint32_t core);

/* The scheduler's events; lock held. */
void ech_trace_task(ech_worker *w, const ech_endpoint *ep, const ech_slot *s,
                    const ech_completion *c);
void ech_trace_terminal(ech_worker *w, const ech_slot *s);
void ech_trace_run(ech_worker *w, const ech_run *run);
void ech_trace_edge(void *worker, const ech_slot *producer, const ech_slot *consumer);

#endif
