/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: see trace.h. trace_write.c makes the file. */
#include "src/runtime/trace.h"

#include <string.h>

#include "src/base/os/shm.h"
#include "src/runtime/deps.h"

ech_status ech_trace_open(ech_worker *const w, ech_error *const err)
{
    const uint32_t n = 1 + w->n_chips * ECH_TRACE_CORES;
    const uint64_t bytes = sizeof(ech_trace) + n * sizeof(ech_trace_lane);
    void *ptr;
    const ech_status reserved = ech_journal_reserve(&w->journal, err);
    if (reserved != ECH_OK) return reserved;
    const ech_status rc = ech_os_shm_map("echelon-trace", bytes, false, &ptr, err);
    if (rc != ECH_OK) return rc;
    ech_journal_note(&w->journal, ptr, bytes, "echelon-trace");
    w->trace = ptr;
    w->trace->n_lanes = n;
    return ECH_OK;
}

/* Lanes get their switch when a producer first asks: untouched ones take no memory. */
static ech_trace_lane *lane_at(const ech_worker *const w, const uint32_t i)
{
    ech_trace_lane *const lane = &w->trace->lanes[i];
    lane->on = &w->shared->tracing;
    return lane;
}

ech_trace_lane *ech_trace_core_lane(const ech_worker *const w, const uint32_t child,
                                    const uint32_t core)
{
    return lane_at(w, 1 + child * ECH_TRACE_CORES + core);
}

static void put(ech_trace_lane *const lane, const ech_trace_record *const r)
{
    const uint64_t n = lane->n;
    if (n >= ECH_TRACE_RECORDS) {
        lane->dropped++;
        return;
    }
    lane->records[n] = *r;
    /* Partner: the writer of the file, which reads only what the count says. */
    ech_store_release(&lane->n, n + 1);
}

static void set_name(ech_trace_record *const r, const char *const name)
{
    size_t len = 0;
    while (len < sizeof r->name - 1 && name[len] != '\0')
        len++;
    memcpy(r->name, name, len);
}

void ech_trace_span(ech_trace_lane *const lane, const char *const name, const uint64_t id,
                    const int64_t t0, const int64_t t1)
{
    if (!ech_trace_lane_on(lane)) return;
    ech_trace_record r = { .t0 = t0, .t1 = t1, .id = id, .kind = ECH_TRACE_SPAN };
    set_name(&r, name);
    put(lane, &r);
}

static uint64_t task_id(const ech_slot *const s)
{
    return s->run_id << 24 | s->serial;
}

void ech_trace_task(ech_worker *const w, const ech_endpoint *const ep, const ech_slot *const s,
                    const ech_completion *const c)
{
    if (!ech_trace_on(w) || c->t_end == 0) return;
    ech_trace_record r = { .t0 = c->t_start,
                           .t1 = c->t_end,
                           .id = task_id(s),
                           .kind = ECH_TRACE_TASK,
                           .lane = 1 + ep->child };
    set_name(&r, s->label);
    put(lane_at(w, 0), &r);
}

void ech_trace_terminal(ech_worker *const w, const ech_slot *const s)
{
    ech_run *const run =
        ech_lease_run(&w->runs, (ech_lease){ s->run, w->runs.places[s->run].generation });
    if (run != NULL && run->id == s->run_id) ech_deps_terminal(run->deps, s);
}

void ech_trace_run(ech_worker *const w, const ech_run *const run)
{
    if (!ech_trace_on(w) || run->t_begin_ns == 0) return;
    ech_trace_span(lane_at(w, 0), "run", run->id, run->t_begin_ns, ech_now_ns());
}

void ech_trace_edge(void *const worker, const ech_slot *const producer,
                    const ech_slot *const consumer)
{
    ech_worker *const w = worker;
    if (w->orch.run != NULL) ech_deps_edge(w->orch.run->deps, producer, consumer);
    if (!ech_trace_on(w)) return;
    const ech_trace_record r = { .id = task_id(producer),
                                 .id2 = task_id(consumer),
                                 .kind = ECH_TRACE_EDGE };
    put(lane_at(w, 0), &r);
}
