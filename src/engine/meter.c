/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's limits, measured: threads on the cores that a chip would get run a loop of the chip
 * module (chip/cpu/peak.h) for a while; each counts what it did in its own time, and the rates are
 * summed. Threads live for one measurement: nothing of a meter runs between two.
 *
 * Owned by whoever opened it. Left out: several NUMA nodes (a thread fills, and later reads, its
 * own part of the memory, so that it is local).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/machine.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/os/shm.h"
#include "src/chip/cpu/ops.h"
#include "src/chip/cpu/peak.h"
#include "src/engine/machine.h"
#include "src/model/model.h"

#define DEFAULT_READ_BYTES (UINT64_C(2) << 30)
#define MIN_READ_BYTES     (UINT64_C(64) << 20)
/* Of a stream, between two looks at the clock: far more than a look costs. */
#define READ_PIECE (UINT64_C(128) << 10)
/* Rounds between two looks: some 10 µs. */
#define PEAK_ROUNDS 2000u

struct ech_meter {
    ech_peak_ops ops;
    ech_cpu_options cpu; /* threads and their CPUs */
    uint64_t read_bytes, huge_bytes;
    uint8_t *memory; // [read_bytes], NULL before the first read
};

typedef struct job {
    ech_meter *meter;
    uint32_t index;
    ech_meter_kind kind;
    bool fills; /* the memory, and measures nothing */
    int64_t ns; /* how long */
    uint32_t *arrived;
    double per_second;
    pthread_t thread;
} job;

/* ---- one thread ---- */

static uint8_t *part_of(const job *j, uint64_t *ret_bytes)
{
    const uint64_t bytes = j->meter->read_bytes / j->meter->cpu.n_threads;
    *ret_bytes = bytes / ECH_HUGE_PAGE * ECH_HUGE_PAGE;
    return j->meter->memory + j->index * *ret_bytes;
}

/* All begin together, or the first would measure an idle machine. */
static void meet(const job *j)
{
    (void)ech_fetch_add(j->arrived, 1);
    while (ech_load_acquire(j->arrived) < j->meter->cpu.n_threads)
        ech_cpu_relax();
}

static double read_memory(const job *j, int64_t began)
{
    uint64_t bytes;
    const uint8_t *const part = part_of(j, &bytes);
    const uint64_t stream = bytes / ECH_READ_STREAMS;
    uint64_t at = 0, total = 0;
    int64_t now;
    do {
        const void *streams[ECH_READ_STREAMS];
        for (uint32_t s = 0; s < ECH_READ_STREAMS; s++)
            streams[s] = part + s * stream + at;
        j->meter->ops.read(streams, READ_PIECE);
        total += READ_PIECE * ECH_READ_STREAMS;
        at = at + 2 * READ_PIECE <= stream ? at + READ_PIECE : 0;
        now = ech_now_ns();
    } while (now - began < j->ns);
    return (double)total * 1e9 / (double)(now - began);
}

static double multiply(const job *j, int64_t began)
{
    static const ech_peak_kind KINDS[ECH_METER_KINDS] = {
        [ECH_METER_INT8] = ECH_PEAK_OF_INT8,
        [ECH_METER_BF16] = ECH_PEAK_OF_BF16,
        [ECH_METER_F32] = ECH_PEAK_OF_F32,
    };
    ech_peak_fn *const peak = j->meter->ops.peak[KINDS[j->kind]];
    uint64_t total = 0;
    int64_t now;
    do {
        total += peak(PEAK_ROUNDS);
        now = ech_now_ns();
    } while (now - began < j->ns);
    return (double)total * 1e9 / (double)(now - began);
}

static void *run_job(void *arg)
{
    job *const j = arg;
    uint64_t bytes;
    if (j->meter->cpu.pin) (void)ech_os_pin(&j->meter->cpu.cpus[j->index], 1, NULL);
    if (j->fills) {
        uint8_t *const part = part_of(j, &bytes);
        memset(part, 1 + (int)j->index, bytes);
        return NULL;
    }
    meet(j);
    const int64_t began = ech_now_ns();
    j->per_second = j->kind == ECH_METER_READ ? read_memory(j, began) : multiply(j, began);
    return NULL;
}

/* ---- all threads ---- */

static ech_status run_jobs(ech_meter *m, job shared, double *ret_sum, ech_error *err)
{
    const uint32_t n = m->cpu.n_threads;
    uint32_t arrived = 0, n_started = 0;
    job *const jobs = calloc(n, sizeof *jobs);
    if (jobs == NULL) return ech_fail(err, ECH_ENOMEM, "measuring: out of memory");
    shared.meter = m;
    shared.arrived = &arrived;
    while (n_started < n) {
        jobs[n_started] = shared;
        jobs[n_started].index = n_started;
        if (pthread_create(&jobs[n_started].thread, NULL, run_job, &jobs[n_started]) != 0) break;
        n_started++;
    }
    const bool failed = n_started < n;
    if (failed) ech_store_release(&arrived, n); /* those that wait go on and end */
    *ret_sum = 0;
    for (uint32_t i = 0; i < n_started; i++) {
        (void)pthread_join(jobs[i].thread, NULL);
        *ret_sum += jobs[i].per_second;
    }
    free(jobs);
    return failed ? ech_fail(err, ECH_EOS, "measuring: can't start %u threads", n) : ECH_OK;
}

static ech_status map_memory(ech_meter *m, ech_error *err)
{
    void *ptr;
    double unused;
    ECH_TRY(ech_os_shm_map("meter", m->read_bytes, true, &ptr, err));
    m->memory = ptr;
    ECH_TRY(run_jobs(m, (job){ .fills = true }, &unused, err));
    m->huge_bytes = ech_os_collapse(m->memory, m->read_bytes);
    return ECH_OK;
}

/* ---- public ---- */

/* What is asked for beyond what there is would end some process, maybe another's. */
static ech_status choose_size(ech_meter *m, uint64_t asked, ech_error *err)
{
    const char *limited_by;
    uint64_t bytes = asked > 0 ? asked : DEFAULT_READ_BYTES;
    const uint64_t available = ech_memory_available(&limited_by), share = available / 4;
    if (asked > available - share)
        return ech_fail(
            err, ECH_ENOMEM,
            "measuring: %llu MiB are to be read, %llu MiB are free (%s); choose at most "
            "three quarters of that",
            (unsigned long long)asked >> 20, (unsigned long long)available >> 20, limited_by);
    if (asked == 0 && bytes > share) bytes = share;
    /* A stream of every thread is at least one piece. */
    const uint64_t least = MIN_READ_BYTES > m->cpu.n_threads * ECH_HUGE_PAGE
                               ? MIN_READ_BYTES
                               : m->cpu.n_threads * ECH_HUGE_PAGE;
    if (bytes < least) bytes = least;
    m->read_bytes = bytes / ECH_HUGE_PAGE * ECH_HUGE_PAGE;
    return ECH_OK;
}

ech_status ech_meter_open(ech_meter **ret_meter, const ech_meter_options *options, ech_error *err)
{
    uint32_t features;
    ech_machine machine;
    const char *const oversubscribe = getenv("ECHELON_OVERSUBSCRIBE");
    if (options != NULL &&
        (options->struct_size != sizeof *options || options->threads > ECH_CPU_MAX_THREADS))
        return ech_fail(err, ECH_EINVAL,
                        "making a meter: struct_size is not set, or threads is "
                        "more than %d",
                        ECH_CPU_MAX_THREADS);
    ECH_TRY(ech_cpu_features_allowed(&features, err));
    ech_meter *const m = calloc(1, sizeof *m);
    if (m == NULL) return ech_fail(err, ECH_ENOMEM, "making a meter: out of memory");
    ech_peak_ops_init(&m->ops, features);
    ech_os_machine(&machine);
    ech_machine_plan_cores(&machine, options != NULL ? options->threads : 0,
                           oversubscribe != NULL && strcmp(oversubscribe, "1") == 0, &m->cpu);
    const ech_status rc = choose_size(m, options != NULL ? options->read_bytes : 0, err);
    if (rc == ECH_OK)
        *ret_meter = m;
    else
        free(m);
    return rc;
}

ech_status ech_meter_run(ech_meter *m, ech_meter_kind kind, double seconds, double *ret_per_second,
                         ech_error *err)
{
    if ((unsigned)kind >= ECH_METER_KINDS || !(seconds >= 0.001 && seconds <= 60))
        return ech_fail(err, ECH_EINVAL, "measuring: kind %d for %g seconds is not possible",
                        (int)kind, seconds);
    if (kind == ECH_METER_READ && m->memory == NULL) ECH_TRY(map_memory(m, err));
    return run_jobs(m, (job){ .kind = kind, .ns = (int64_t)(seconds * 1e9) }, ret_per_second, err);
}

const char *ech_meter_loop(const ech_meter *m, ech_meter_kind kind)
{
    switch (kind) {
    case ECH_METER_INT8:
        return m->ops.loop[ECH_PEAK_OF_INT8];
    case ECH_METER_BF16:
        return m->ops.loop[ECH_PEAK_OF_BF16];
    case ECH_METER_F32:
        return m->ops.loop[ECH_PEAK_OF_F32];
    case ECH_METER_READ:
    case ECH_METER_KINDS:
        break;
    }
    return "read";
}

uint32_t ech_meter_threads(const ech_meter *m)
{
    return m->cpu.n_threads;
}

uint64_t ech_meter_read_bytes(const ech_meter *m, uint64_t *ret_huge)
{
    if (ret_huge != NULL) *ret_huge = m->huge_bytes;
    return m->read_bytes;
}

void ech_meter_close(ech_meter **meter)
{
    if (meter == NULL || *meter == NULL) return;
    if ((*meter)->memory != NULL) (void)ech_os_unmap((*meter)->memory, (*meter)->read_bytes, NULL);
    free(*meter);
    *meter = NULL;
}
