/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace file: Chrome's JSON, which Perfetto reads too. A process per child, a thread per lane,
 * tasks as spans with the run's number, dependencies as flow arrows. Times are microseconds of the
 * monotonic clock from the first record on, the same clock in all processes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/newfile.h"
#include "src/runtime/trace.h"

void ech_worker_trace_set(ech_worker *const w, const bool enabled)
{
    pthread_mutex_lock(&w->lock);
    if (w->shared != NULL) ech_store_release(&w->shared->tracing, (uint32_t)enabled);
    pthread_mutex_unlock(&w->lock);
}

/* Where each task ran, for the ends of arrows; sorted by id. */
typedef struct placed {
    uint64_t id;
    uint32_t lane;
    int64_t t0, t1;
} placed;

typedef struct writer {
    FILE *f;
    const ech_worker *w;
    int64_t origin;
    bool any;
    placed *tasks;
    size_t n_tasks;
} writer;

static double us(const writer *const x, const int64_t t)
{
    return (double)(t - x->origin) / 1e3;
}

static void separate(writer *const x)
{
    (void)fputs(x->any ? ",\n" : "\n", x->f);
    x->any = true;
}

static uint32_t drawn_lane(const uint32_t lane)
{
    return lane == 0 ? 0 : ECH_MAX_CHILDREN + lane;
}

/* Lanes of a chip's cores belong to the chip's process. */
static uint32_t process_of(const uint32_t lane)
{
    if (lane <= ECH_MAX_CHILDREN) return lane;
    return 1 + (lane - 1 - ECH_MAX_CHILDREN) / ECH_TRACE_CORES;
}

/* Names come from owners: what JSON can't hold in a string is replaced. */
static void plain(const char *const name, char out[24])
{
    for (size_t i = 0; i < 24; i++) {
        const char c = name[i];
        out[i] = c == '"' || c == '\\' || (c > 0 && c < 32) || c < 0 ? '_' : c;
    }
    out[23] = '\0';
}

static void put_span(writer *const x, const ech_trace_record *const r, const uint32_t lane)
{
    char name[24];
    plain(r->name, name);
    separate(x);
    (void)fprintf(x->f,
                  "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
                  "\"args\":{\"run\":%llu,\"task\":%llu}}",
                  name, process_of(lane), lane, us(x, r->t0), (double)(r->t1 - r->t0) / 1e3,
                  (unsigned long long)(r->kind == ECH_TRACE_TASK ? r->id >> 24 : r->id),
                  (unsigned long long)(r->kind == ECH_TRACE_TASK ? r->id & 0xffffff : 0));
}

static int by_id(const void *const a, const void *const b)
{
    const uint64_t x = ((const placed *)a)->id, y = ((const placed *)b)->id;
    return (x > y) - (x < y);
}

static const placed *find_task(const writer *const x, const uint64_t id)
{
    const placed key = { .id = id };
    return bsearch(&key, x->tasks, x->n_tasks, sizeof key, by_id);
}

static void put_arrow(writer *const x, const ech_trace_record *const r, const uint64_t number)
{
    const placed *const from = find_task(x, r->id), *const to = find_task(x, r->id2);
    if (from == NULL || to == NULL) return;
    separate(x);
    (void)fprintf(x->f,
                  "{\"name\":\"dep\",\"cat\":\"dep\",\"ph\":\"s\",\"id\":%llu,\"pid\":%u,\"tid\":%"
                  "u,\"ts\":%.3f}",
                  (unsigned long long)number, process_of(from->lane), from->lane, us(x, from->t1));
    separate(x);
    (void)fprintf(x->f,
                  "{\"name\":\"dep\",\"cat\":\"dep\",\"ph\":\"f\",\"bp\":\"e\",\"id\":%llu,\"pid\":"
                  "%u,\"tid\":%u,\"ts\":%.3f}",
                  (unsigned long long)number, process_of(to->lane), to->lane, us(x, to->t0));
}

static uint64_t count_of(const ech_trace_lane *const lane)
{
    /* Partner: the release store of the lane's producer. */
    const uint64_t n = ech_load_acquire(&lane->n);
    return n < ECH_TRACE_RECORDS ? n : ECH_TRACE_RECORDS;
}

static ech_status collect_tasks(writer *const x, ech_error *const err)
{
    const ech_trace_lane *const lane = &x->w->trace->lanes[0];
    const uint64_t n = count_of(lane);
    x->tasks = ech_mem_alloc(n + 1, sizeof *x->tasks);
    if (x->tasks == NULL) return ech_fail(err, ECH_ENOMEM, "writing a trace: out of memory");
    for (uint64_t i = 0; i < n; i++) {
        const ech_trace_record *const r = &lane->records[i];
        if (r->kind != ECH_TRACE_TASK) continue;
        x->tasks[x->n_tasks++] = (placed){ r->id, r->lane, r->t0, r->t1 };
    }
    qsort(x->tasks, x->n_tasks, sizeof *x->tasks, by_id);
    return ECH_OK;
}

static void find_origin(writer *const x)
{
    x->origin = INT64_MAX;
    for (uint32_t l = 0; l < x->w->trace->n_lanes; l++) {
        const ech_trace_lane *const lane = &x->w->trace->lanes[l];
        for (uint64_t i = 0, n = count_of(lane); i < n; i++) {
            if (lane->records[i].kind != ECH_TRACE_EDGE && lane->records[i].t0 < x->origin)
                x->origin = lane->records[i].t0;
        }
    }
}

static void put_names(writer *const x)
{
    char who[ECH_NAME_BYTES + 32];
    separate(x);
    (void)fprintf(x->f,
                  "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"%s\"}}",
                  x->w->name);
    for (uint32_t c = 0; c < x->w->n_children; c++) {
        ech_endpoint_name(&x->w->endpoints[c], x->w->name, x->w->n_next, who, sizeof who);
        separate(x);
        (void)fprintf(
            x->f, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"%s\"}}",
            1 + c, who);
    }
}

static void put_lanes(writer *const x)
{
    uint64_t arrows = 0, dropped = 0;
    for (uint32_t l = 0; l < x->w->trace->n_lanes; l++) {
        const ech_trace_lane *const lane = &x->w->trace->lanes[l];
        dropped += ech_load_relaxed(&lane->dropped);
        for (uint64_t i = 0, n = count_of(lane); i < n; i++) {
            const ech_trace_record *const r = &lane->records[i];
            if (r->kind == ECH_TRACE_EDGE) {
                put_arrow(x, r, ++arrows);
            } else {
                put_span(x, r, r->kind == ECH_TRACE_TASK ? r->lane : drawn_lane(l));
            }
        }
    }
    (void)fprintf(x->f, "\n],\"otherData\":{\"dropped\":%llu,\"origin_ns\":%lld}}\n",
                  (unsigned long long)dropped, (long long)x->origin);
}

ech_status ech_worker_trace_write(ech_worker *const w, const char *const path, ech_error *const err)
{
    if (w->trace == NULL)
        return ech_fail(err, ECH_ESTATE, "writing a trace: %s is closed", w->name);
    ech_new_file file;
    ECH_TRY(ech_new_file_open(&file, path, 0644, err));
    writer x = { .f = ech_new_file_stream(&file), .w = w };
    if (x.f == NULL) {
        ech_new_file_fini(&file);
        return ech_fail_errno(err, ECH_EIO, "writing %s", path);
    }
    pthread_mutex_lock(&w->lock);
    ech_status rc = collect_tasks(&x, err);
    if (rc == ECH_OK) {
        find_origin(&x);
        (void)fputs("{\"traceEvents\":[", x.f);
        put_names(&x);
        put_lanes(&x);
    }
    pthread_mutex_unlock(&w->lock);
    free(x.tasks);
    const bool bad = ferror(x.f) != 0;
    if ((fclose(x.f) != 0 || bad) && rc == ECH_OK)
        rc = ech_fail_errno(err, ECH_EIO, "writing %s", path);
    if (rc == ECH_OK) rc = ech_new_file_keep(&file, err);
    ech_new_file_fini(&file);
    return rc;
}
