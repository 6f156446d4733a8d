/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon doctor`: what this machine is, which kernels serve which weights, what memory and
 * registers can do, measured now, and how much of it the last run reached.
 *
 * Measuring takes a second or two on all cores, so it isn't for a machine under load: the
 * numbers would be those of what is left. Exit code 0 whatever is found: it describes and
 * doesn't judge. The last run's share of the limits tells whether a slow model is the machine's
 * fault. Main thread; the meter has threads of its own.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "echelon/machine.h"
#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/json_out.h"
#include "src/cli/last_run.h"

/* A measurement is the best of some short ones: another program that takes a core is no limit. */
#define N_TRIALS 5

static bool as_json;
static int64_t threads;
static uint64_t read_bytes;

static const ech_option OPTIONS[] = {
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
    { "threads", 'j', ECH_OPT_INT, &threads, "N",
      "threads that measure; default: one per physical core", 1, 256, NULL },
    { "read-bytes", 0, ECH_OPT_SIZE, &read_bytes, "BYTES",
      "memory that is read; default 2G, less where memory is short", 0, 0, NULL },
};

/* All that is printed, in either form: first everything is found out, then it is written. */
typedef struct examined {
    ech_machine_info machine;
    double rate[ECH_METER_KINDS]; /* bytes or multiply-accumulates a second */
    const char *loop[ECH_METER_KINDS];
    uint32_t threads;
    uint64_t read_bytes, huge_bytes;
    bool has_last;
    ech_last_run last;
} examined;

static const char *const KIND_NAMES[ECH_METER_KINDS] = {
    [ECH_METER_READ] = "read",
    [ECH_METER_INT8] = "int8",
    [ECH_METER_BF16] = "bf16",
    [ECH_METER_F32] = "f32",
};

/* ---- measuring ---- */

/*
 * Kinds take turns, trial by trial, so that a disturbance doesn't hit one of them alone. Reading
 * takes longer: it has to leave the caches.
 */
static ech_status measure(examined *x, ech_error *err)
{
    const ech_meter_options options = { .struct_size = sizeof options,
                                        .threads = (uint32_t)threads,
                                        .read_bytes = read_bytes };
    ech_meter *m;
    ECH_TRY(ech_meter_open(&m, &options, err));
    ech_status rc = ECH_OK;
    for (int trial = 0; trial < N_TRIALS && rc == ECH_OK; trial++)
        for (int kind = 0; kind < ECH_METER_KINDS && rc == ECH_OK; kind++) {
            double rate = 0;
            rc = ech_meter_run(m, (ech_meter_kind)kind, kind == ECH_METER_READ ? 0.15 : 0.05, &rate,
                               err);
            if (rate > x->rate[kind]) x->rate[kind] = rate;
        }
    for (int kind = 0; kind < ECH_METER_KINDS; kind++)
        x->loop[kind] = ech_meter_loop(m, (ech_meter_kind)kind);
    x->threads = ech_meter_threads(m);
    x->read_bytes = ech_meter_read_bytes(m, &x->huge_bytes);
    ech_meter_close(&m);
    return rc;
}

/* No last run is no error. */
static ech_status examine(examined *x, ech_error *err)
{
    x->machine.struct_size = sizeof x->machine;
    ECH_TRY(ech_machine_info_get(&x->machine, err));
    x->has_last = ech_last_run_read(&x->last);
    return measure(x, err);
}

/* ---- text ---- */

/* Powers of 1024 for memory and caches; rates are decimal, as data sheets have them. */
static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/*
 * What a container allows counts beside what the hardware has: a quota is what makes threads
 * slow without any load.
 */
static void print_machine(const ech_machine_info *m)
{
    (void)printf("cpu          %s\n", m->cpu[0] != '\0' ? m->cpu : "unknown");
    (void)printf("cores        %u physical of %u allowed CPUs, %u NUMA node%s; a chip gets %u "
                 "thread%s\n",
                 m->n_cores, m->n_cpus, m->n_nodes, m->n_nodes == 1 ? "" : "s", m->threads,
                 m->threads == 1 ? "" : "s");
    if (m->quota_cpus > 0)
        (void)printf("quota        %.2f CPUs, by the cgroup\n", m->quota_cpus);
    else
        (void)printf("quota        none\n");
    (void)printf("caches       L1d %.0f KiB, L2 %.2f MiB, L3 %.1f MiB\n",
                 (double)m->l1d_bytes / 1024, mib(m->l2_bytes), mib(m->l3_bytes));
    (void)printf("memory       %.1f GiB, %.1f GiB of it available\n", mib(m->memory_bytes) / 1024,
                 mib(m->memory_available) / 1024);
    (void)printf("huge pages   shared memory: %s\n",
                 m->huge_shmem[0] != '\0' ? m->huge_shmem : "unknown");
    (void)printf("/dev/shm     %.0f MiB\n", mib(m->shm_bytes));
    if (m->memlock_bytes == UINT64_MAX)
        (void)printf("memlock      unlimited\n");
    else
        (void)printf(
            "memlock      %.1f MiB: larger weights of a mapped cache file can't be locked, "
            "the system may evict their idle pages\n",
            mib(m->memlock_bytes));
}

/* Which code serves which type on this CPU; a fallback shows here. */
static void print_paths(const ech_machine_info *m)
{
    (void)printf("\n%-12s %-12s %s\n", "weights", "activations", "kernels");
    for (uint32_t i = 0; i < m->n_paths; i++)
        (void)printf("%-12s %-12s %s\n", m->paths[i].weights, m->paths[i].activations,
                     m->paths[i].isa);
}

/* The name of the loop says which instructions reached the peak. */
static void print_limits(const examined *x)
{
    (void)printf("\nmeasured now, %u threads, best of %d\n", x->threads, N_TRIALS);
    (void)printf("read         %8.1f GB/s      4 streams a thread over %.0f MiB, %.0f MiB in huge "
                 "pages\n",
                 x->rate[ECH_METER_READ] / 1e9, mib(x->read_bytes), mib(x->huge_bytes));
    for (int k = ECH_METER_INT8; k < ECH_METER_KINDS; k++)
        (void)printf("%-12s %8.1f GMAC/s    %s\n", KIND_NAMES[k], x->rate[k] / 1e9, x->loop[k]);
}

/*
 * Shares are of what was measured just now, so they can pass 100 % when the machine is busier
 * than it was.
 */
static void print_last(const examined *x)
{
    const ech_last_run *const r = &x->last;
    char when[32] = "?";
    const time_t t = (time_t)r->time;
    struct tm tm;
    if (!x->has_last) {
        (void)printf("\nlast run     none remembered\n");
        return;
    }
    if (localtime_r(&t, &tm) != NULL) (void)strftime(when, sizeof when, "%F %T", &tm);
    (void)printf("\nlast run     %s of %s, %s\n", r->command, r->model, when);
    if (r->bytes_per_second > 0)
        (void)printf("  decode     %8.1f GB/s of weights, %.0f %% of the read\n",
                     r->bytes_per_second / 1e9,
                     100 * r->bytes_per_second / x->rate[ECH_METER_READ]);
    if (r->macs_per_second > 0)
        (void)printf("  prefill    %8.1f GMAC/s, %.0f %% of the %s peak\n",
                     r->macs_per_second / 1e9, 100 * r->macs_per_second / x->rate[r->product],
                     KIND_NAMES[r->product]);
}

/* ---- JSON ---- */

/* A list and no object: a type of weights stands in it once for each type of activations. */
static json_t *paths_json(const ech_machine_info *m)
{
    json_t *const paths = json_array();
    for (uint32_t i = 0; i < m->n_paths; i++)
        (void)json_array_append_new(
            paths, json_pack("{s:s, s:s, s:s}", "weights", m->paths[i].weights, "activations",
                             m->paths[i].activations, "kernels", m->paths[i].isa));
    return paths;
}

static json_t *limits_json(const examined *x)
{
    json_t *const peaks = json_object();
    for (int k = ECH_METER_INT8; k < ECH_METER_KINDS; k++)
        (void)json_object_set_new(
            peaks, KIND_NAMES[k],
            json_pack("{s:f, s:s}", "macs_per_second", x->rate[k], "loop", x->loop[k]));
    return json_pack("{s:i, s:f, s:I, s:I, s:o}", "threads", (int)x->threads,
                     "read_bytes_per_second", x->rate[ECH_METER_READ], "read_bytes",
                     (json_int_t)x->read_bytes, "huge_bytes", (json_int_t)x->huge_bytes, "peaks",
                     peaks);
}

/* null and no missing member: a reader can ask for it. */
static json_t *last_json(const examined *x)
{
    const ech_last_run *const r = &x->last;
    if (!x->has_last) return json_null();
    return json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:f, s:f}", "command", r->command, "model",
                     r->model, "time", (json_int_t)r->time, "product", KIND_NAMES[r->product],
                     "bytes_per_second", r->bytes_per_second, "read_fraction",
                     r->bytes_per_second / x->rate[ECH_METER_READ], "macs_per_second",
                     r->macs_per_second, "peak_fraction", r->macs_per_second / x->rate[r->product]);
}

/* memlock is null where there is no limit. */
static int print_json(const examined *x)
{
    const ech_machine_info *const m = &x->machine;
    json_t *const root = json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:o, s:o, s:o, s:o}",
        "cpu", m->cpu, "cpus", (int)m->n_cpus, "cores", (int)m->n_cores, "nodes", (int)m->n_nodes,
        "quota_cpus", m->quota_cpus, "threads", (int)m->threads, "l1d_bytes",
        (json_int_t)m->l1d_bytes, "l2_bytes", (json_int_t)m->l2_bytes, "l3_bytes",
        (json_int_t)m->l3_bytes, "memory_bytes", (json_int_t)m->memory_bytes, "memory_available",
        (json_int_t)m->memory_available, "huge_shmem", m->huge_shmem, "shm_bytes",
        (json_int_t)m->shm_bytes, "memlock_bytes",
        m->memlock_bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)m->memlock_bytes),
        "paths", paths_json(m), "measured", limits_json(x), "last_run", last_json(x));
    return ech_print_json(root, "what was found");
}

static int run(int argc, char **argv)
{
    if (argc > 0) return ech_usage_error("doctor takes no '%s'", argv[0]);
    examined x = { 0 };
    ech_error err = { .code = ECH_OK };
    if (examine(&x, &err) != ECH_OK) return ech_report(&err);
    if (as_json) return print_json(&x);
    print_machine(&x.machine);
    print_paths(&x.machine);
    print_limits(&x);
    print_last(&x);
    return ECH_EXIT_OK;
}

const ech_command ech_cmd_doctor = {
    "doctor",
    "",
    "what this machine is and can do, measured now",
    "echelon doctor\nechelon doctor --json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
