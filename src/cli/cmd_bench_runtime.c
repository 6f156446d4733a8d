/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon bench runtime`: what the worker runtime costs. All numbers are of one run on one machine
 * in the same minute: the floor that two spinning processes reach over one cache line, the bare
 * hand-over, runs of 1 to 4096 no-op tasks and the line through them, chains, fan-out and fan-in, a
 * long stream through a small window, the wake-up of an idle tree, and a replacement.
 *
 * One worker with one child, no model, no chip: what is timed is the runtime alone. Main thread.
 * Exit codes: those of the error; numbers have no bound here, --compare prints ratios and judges
 * nothing.
 */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "echelon/worker.h"
#include "src/base/atomic.h"
#include "src/base/buf.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/newfile.h"
#include "src/cli/bench.h"

#define N_TRIPS   20000u
#define MAX_TASKS 4096u

/* One measured quantity, in its own unit. */
typedef struct number {
    const char *name;  /* JSON field */
    const char *label; /* for people */
    double p50, p99, p999;
} number;

enum {
    SPIN_FLOOR,
    ROUND_TRIP,
    RUN_ONE,
    RUN_FIT,
    TASK_FIT,
    CHAIN,
    FAN,
    STREAM,
    WAKE,
    REPLACE,
    N_NUMBERS
};

static number numbers[N_NUMBERS] = {
    [SPIN_FLOOR] = { .name = "spin_floor_us", .label = "spin floor, us" },
    [ROUND_TRIP] = { .name = "round_trip_us", .label = "bare round trip, us" },
    [RUN_ONE] = { .name = "run_one_task_us", .label = "run with one task, us" },
    [RUN_FIT] = { .name = "run_us", .label = "fitted, per run, us" },
    [TASK_FIT] = { .name = "task_us", .label = "fitted, per task, us" },
    [CHAIN] = { .name = "chain_task_us", .label = "chain of 1000, per task, us" },
    [FAN] = { .name = "fan_us", .label = "fan 1 -> 256 -> 1, us" },
    [STREAM] = { .name = "stream_task_us",
                 .label = "stream through a window of 1024, per task, us" },
    [WAKE] = { .name = "wake_us", .label = "run with one task, idle tree, us" },
    [REPLACE] = { .name = "replace_ms", .label = "replacement of a child, ms" },
};

enum { MAX_OLD_BYTES = 1 << 20 };

static bool as_json, as_markdown;
static const char *compare_file, *trace_file;
static int64_t stream_tasks = 1000000;

/* Callables and buffers are registered before the worker forks, and used by every graph. */
static ech_worker *worker;
static ech_callable noop_id;
static ech_buffer buffer;
static ech_args args;

/* ---- Statistics --------------------------------------------------------------------------------
 */

static int compare_ns(const void *const a, const void *const b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/*
 * Sorts, and keeps the percentiles in units of `per` nanoseconds. At least one sample. p99.9 of
 * a hundred runs is the slowest of them.
 */
static void keep(number *const out, int64_t *const ns, const size_t n, const double per)
{
    qsort(ns, n, sizeof *ns, compare_ns);
    const size_t at50 = n / 2, at99 = n * 99 / 100, at999 = n * 999 / 1000;
    out->p50 = (double)ns[at50] / per;
    out->p99 = (double)ns[at99] / per;
    out->p999 = (double)ns[at999] / per;
}

/* Least squares y = a + b x, weighted by 1 / x² so that every size counts alike. */
static void fit(const double *const x, const double *const y, const size_t n, double *const a,
                double *const b)
{
    double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = 1 / (x[i] * x[i]);
        sw += w;
        sx += w * x[i];
        sy += w * y[i];
        sxx += w * x[i] * x[i];
        sxy += w * x[i] * y[i];
    }
    *b = (sw * sxy - sx * sy) / (sw * sxx - sx * sx);
    *a = (sy - *b * sx) / sw;
}

/* ---- The floor ---------------------------------------------------------------------------------
 */

/* The child: it ends by the parent's SIGKILL only. */
static _Noreturn void answer_for_ever(uint32_t *const word)
{
    for (uint32_t n = 1;; n += 2) {
        while (ech_load_acquire(word) != n)
            ech_cpu_relax();
        ech_store_release(word, n + 1);
    }
}

/*
 * Two processes, one cache line, nothing else. Before the worker exists, so that nothing of it
 * runs beside. No runtime on this machine can be faster than that.
 */
static ech_status measure_floor(int64_t *const ns, ech_error *const err)
{
    uint32_t *const word =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED) return ech_fail_errno(err, ECH_ENOMEM, "mapping a page");
    const pid_t pid = fork();
    if (pid == 0) answer_for_ever(word);
    if (pid < 0) {
        munmap(word, 4096);
        return ech_fail_errno(err, ECH_EOS, "forking");
    }
    for (uint32_t i = 0, n = 1; i < 2 * N_TRIPS; i++, n += 2) {
        const int64_t start = ech_now_ns();
        ech_store_release(word, n);
        while (ech_load_acquire(word) != n + 1)
            ech_cpu_relax();
        ns[i % N_TRIPS] = ech_now_ns() - start; /* the first half warms up */
    }
    kill(pid, SIGKILL);
    munmap(word, 4096);
    keep(&numbers[SPIN_FLOOR], ns, N_TRIPS, 1e3);
    return ECH_OK;
}

/* ---- Graphs ------------------------------------------------------------------------------------
 */

static ech_status noop(ech_task *const task, ech_error *const err)
{
    (void)task;
    (void)err;
    return ECH_OK;
}

/* One set of arguments is used again and again: making it isn't what is measured. */
static ech_status submit_noop(ech_orch *const o, const ech_tag tag, const ech_tensor *const t,
                              ech_error *const err)
{
    ech_args_clear(&args);
    if (t != NULL) ech_args_add(&args, tag, t);
    ech_args_add_scalar(&args, 1);
    return ech_submit_sub(o, &noop_id, &args, NULL, err);
}

static ech_status flat(ech_orch *const o, void *const arg, ech_error *const err)
{
    for (int64_t i = 0; i < *(const int64_t *)arg; i++)
        ECH_TRY(submit_noop(o, ECH_INPUT, NULL, err));
    return ECH_OK;
}

static ech_tensor element(const uint64_t i)
{
    const uint64_t one = 1;
    return ech_tensor_view(buffer, i * 4, ECH_DTYPE_U32, 1, &one);
}

/* Each task writes what the next one reads: nothing can run side by side. */
static ech_status chain(ech_orch *const o, void *const arg, ech_error *const err)
{
    const ech_tensor t = element(0);
    for (int64_t i = 0; i < *(const int64_t *)arg; i++)
        ECH_TRY(submit_noop(o, ECH_INOUT, &t, err));
    return ECH_OK;
}

/*
 * One task writes all, 256 work on an element each, one reads all: the dependencies of a layer.
 */
static ech_status fan(ech_orch *const o, void *const arg, ech_error *const err)
{
    const uint64_t all = 257;
    const ech_tensor whole = ech_tensor_view(buffer, 0, ECH_DTYPE_U32, 1, &all);
    (void)arg;
    ECH_TRY(submit_noop(o, ECH_OUTPUT_EXISTING, &whole, err));
    for (uint64_t i = 1; i <= 256; i++) {
        const ech_tensor t = element(i);
        ECH_TRY(submit_noop(o, ECH_INOUT, &t, err));
    }
    return submit_noop(o, ECH_INPUT, &whole, err);
}

/* Scopes of 256 tasks give their slots back as the stream goes on. */
static ech_status stream(ech_orch *const o, void *const arg, ech_error *const err)
{
    for (int64_t left = *(const int64_t *)arg; left > 0; left -= 256) {
        ECH_TRY(ech_scope_begin(o, err));
        for (int64_t i = 0; i < 256 && i < left; i++)
            ECH_TRY(submit_noop(o, ECH_INPUT, NULL, err));
        ECH_TRY(ech_scope_end(o, err));
    }
    return ECH_OK;
}

/* ---- Measuring ---------------------------------------------------------------------------------
 */

/* A run is timed from the call to its return, submitting included. */
static ech_status time_runs(const ech_orch_fn fn, int64_t n_tasks, const size_t n_runs,
                            int64_t *const ns, ech_error *const err)
{
    for (size_t i = 0; i < n_runs; i++) {
        const int64_t start = ech_now_ns();
        ECH_TRY(ech_worker_run(worker, fn, &n_tasks, err));
        ns[i] = ech_now_ns() - start;
    }
    return ECH_OK;
}

/* The first of both passes warms up. */
static ech_status measure_trips(int64_t *const ns, ech_error *const err)
{
    for (int i = 0; i < 2; i++)
        ECH_TRY(ech_worker_round_trips(worker, 0, &noop_id, N_TRIPS, ns, err));
    keep(&numbers[ROUND_TRIP], ns, N_TRIPS, 1e3);
    return ECH_OK;
}

/*
 * Sizes are powers of two, so that a weighted line has small and large ones; small runs are
 * repeated more often, as they vary more.
 */
static ech_status measure_sizes(int64_t *const ns, ech_error *const err)
{
    double x[16], y50[16], y99[16], y999[16];
    size_t n_sizes = 0;
    for (int64_t n = 1; n <= MAX_TASKS; n *= 2, n_sizes++) {
        number r;
        const size_t runs = n <= 4 ? 5000 : (size_t)(20000 / n + 50);
        ECH_TRY(time_runs(flat, n, runs, ns, err));
        keep(&r, ns, runs, 1e3);
        x[n_sizes] = (double)n;
        y50[n_sizes] = r.p50;
        y99[n_sizes] = r.p99;
        y999[n_sizes] = r.p999;
        if (n > 1) continue;
        numbers[RUN_ONE].p50 = r.p50;
        numbers[RUN_ONE].p99 = r.p99;
        numbers[RUN_ONE].p999 = r.p999;
    }
    fit(x, y50, n_sizes, &numbers[RUN_FIT].p50, &numbers[TASK_FIT].p50);
    /* The line is drawn through medians; tails are those of its two ends. */
    numbers[TASK_FIT].p99 = y99[n_sizes - 1] / x[n_sizes - 1];
    numbers[TASK_FIT].p999 = y999[n_sizes - 1] / x[n_sizes - 1];
    numbers[RUN_FIT].p99 = y99[0] - numbers[TASK_FIT].p50;
    numbers[RUN_FIT].p999 = y999[0] - numbers[TASK_FIT].p50;
    return ECH_OK;
}

/* The stream is one long run: its percentiles are one number three times. */
static ech_status measure_shapes(int64_t *const ns, ech_error *const err)
{
    ECH_TRY(time_runs(chain, 1000, 100, ns, err));
    keep(&numbers[CHAIN], ns, 100, 1e3 * 1000);
    ECH_TRY(time_runs(fan, 0, 200, ns, err));
    keep(&numbers[FAN], ns, 200, 1e3);
    ECH_TRY(time_runs(stream, stream_tasks, 1, ns, err));
    keep(&numbers[STREAM], ns, 1, 1e3 * (double)stream_tasks);
    return ECH_OK;
}

static ech_status measure_wake(int64_t *const ns, ech_error *const err)
{
    for (size_t i = 0; i < 100; i++) {
        usleep(5000); /* long enough for everybody to sleep */
        ECH_TRY(time_runs(flat, 1, 1, &ns[i], err));
    }
    keep(&numbers[WAKE], ns, 100, 1e3);
    return ECH_OK;
}

/*
 * The child is killed from outside, as the kernel would for want of memory; runs go on until the
 * loss is noticed, then the clock starts.
 */
static ech_status measure_replace(int64_t *const ns, ech_error *const err)
{
    for (size_t i = 0; i < 30; i++) {
        ech_child_info info;
        ECH_TRY(ech_worker_child_info(worker, 0, &info, err));
        kill(info.pid, SIGKILL);
        int64_t one = 1;
        while (ech_worker_run(worker, flat, &one, err) == ECH_OK)
            usleep(100);
        const int64_t start = ech_now_ns();
        ECH_TRY(ech_worker_replace(worker, 0, err));
        ns[i] = ech_now_ns() - start;
    }
    keep(&numbers[REPLACE], ns, 30, 1e6);
    return ECH_OK;
}

/* In this order: registering comes before init, which forks. */
static ech_status open_worker(ech_error *const err)
{
    ech_worker_options o = ech_worker_options_default();
    o.name = "bench";
    o.n_subs = 1;
    o.trace = trace_file != NULL;
    /* The runs above sit in ring 0; the stream's scopes in ring 1, the small window. */
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        o.rings.task_window[r] = r == 1 ? 1024 : 4096;
        o.rings.dep_pool[r] = 16384;
    }
    ECH_TRY(ech_worker_create(&worker, &o, err));
    ECH_TRY(ech_worker_register_host(worker, "noop", noop, &noop_id, err));
    ECH_TRY(ech_worker_buffer_create(worker, "elements", 4096, ECH_ACCESS_RW, &buffer, err));
    return ech_worker_init(worker, err);
}

static ech_status measure_all(int64_t *const ns, ech_error *const err)
{
    ECH_TRY(measure_floor(ns, err));
    ECH_TRY(open_worker(err));
    ECH_TRY(measure_trips(ns, err));
    ECH_TRY(measure_sizes(ns, err));
    ECH_TRY(measure_shapes(ns, err));
    ECH_TRY(measure_wake(ns, err));
    return measure_replace(ns, err);
}

/* ---- Printing ----------------------------------------------------------------------------------
 */

static void print_json(void)
{
    printf("{");
    for (size_t i = 0; i < N_NUMBERS; i++)
        printf("%s\"%s\": {\"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f}", i ? ", " : "",
               numbers[i].name, numbers[i].p50, numbers[i].p99, numbers[i].p999);
    printf("}\n");
}

static void print_table(void)
{
    printf(as_markdown ? "| quantity | p50 | p99 | p99.9 |\n| --- | ---: | ---: | ---: |\n"
                       : "%-48s %9s %9s %9s\n",
           "", "p50", "p99", "p99.9");
    for (size_t i = 0; i < N_NUMBERS; i++)
        printf(as_markdown ? "| %s | %.3f | %.3f | %.3f |\n" : "%-48s %9.3f %9.3f %9.3f\n",
               numbers[i].label, numbers[i].p50, numbers[i].p99, numbers[i].p999);
}

/* Of the numbers that are there each must be whole; there must be one, or nothing is compared. */
static ech_status check_old(const json_t *const old, ech_error *const err)
{
    static const char *const KEYS[] = { "p50", "p99", "p999" };
    size_t n = 0;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const json_t *const o = json_object_get(old, numbers[i].name);
        if (o == NULL) continue;
        n++;
        for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++) {
            if (!(json_number_value(json_object_get(o, KEYS[k])) > 0))
                return ech_fail(err, ECH_EFORMAT, "reading %s: %s has no %s above 0", compare_file,
                                numbers[i].name, KEYS[k]);
        }
    }
    return n > 0 ? ECH_OK
                 : ech_fail(err, ECH_EFORMAT, "reading %s: it has no number of bench runtime's",
                            compare_file);
}

/* Before anything is measured: the files that can't be read or written. */
static ech_status look_at_files(json_t **const ret_old, ech_error *const err)
{
    json_error_t je;
    if (trace_file != NULL) ECH_TRY(ech_new_file_try(trace_file, err));
    if (compare_file == NULL) return ECH_OK;
    ech_buf text = { 0 };
    ech_status rc = ech_buf_read_file(&text, compare_file, MAX_OLD_BYTES, err);
    if (rc == ECH_OK) *ret_old = json_loadb(text.data != NULL ? text.data : "", text.len, 0, &je);
    ech_buf_fini(&text);
    ECH_TRY(rc);
    if (*ret_old != NULL) return check_old(*ret_old, err);
    return ech_fail_at(err, ECH_EFORMAT, je.line, je.column, je.position, "reading %s: %s",
                       compare_file, je.text);
}

/* What the file doesn't have is left out: older files lack newer numbers. */
static void print_ratios(const json_t *const old)
{
    printf("%-48s %9s %9s %9s\n", "ratio to the file's numbers", "p50", "p99", "p99.9");
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const json_t *const o = json_object_get(old, numbers[i].name);
        if (!json_is_object(o)) continue;
        printf("%-48s %9.3f %9.3f %9.3f\n", numbers[i].label,
               numbers[i].p50 / json_number_value(json_object_get(o, "p50")),
               numbers[i].p99 / json_number_value(json_object_get(o, "p99")),
               numbers[i].p999 / json_number_value(json_object_get(o, "p999")));
    }
}

/* Closing may fail as well; the first error is the one that is reported. */
static int run(const int argc, char **const argv)
{
    (void)argv;
    ech_error err = { 0 };
    json_t *old = NULL;
    if (argc > 0) return ech_usage_error("bench runtime takes no arguments");
    if (look_at_files(&old, &err) != ECH_OK) {
        json_decref(old);
        return ech_report(&err);
    }
    /* The child that is killed to time its replacement would be a warning each time. */
    ech_log_set_level(ECH_LOG_ERROR);
    int64_t *const ns = calloc(N_TRIPS, sizeof *ns);
    ech_status rc =
        ns != NULL ? measure_all(ns, &err) : ech_fail(&err, ECH_ENOMEM, "out of memory");
    free(ns);
    if (rc == ECH_OK && trace_file != NULL) rc = ech_worker_trace_write(worker, trace_file, &err);
    ech_error closing = { 0 };
    const ech_status closed = ech_worker_close(&worker, &closing);
    if (rc != ECH_OK || closed != ECH_OK) {
        json_decref(old);
        return ech_report(rc != ECH_OK ? &err : &closing);
    }
    if (as_json) {
        print_json();
    } else {
        print_table();
    }
    if (old != NULL) print_ratios(old);
    json_decref(old);
    return ECH_EXIT_OK;
}

static const ech_option OPTIONS[] = {
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one object", 0, 0, NULL },
    { "markdown", 0, ECH_OPT_FLAG, &as_markdown, NULL, "print a Markdown table", 0, 0, NULL },
    { "compare", 0, ECH_OPT_STRING, &compare_file, "FILE",
      "print ratios to the --json output in FILE", 0, 0, NULL },
    { "trace", 0, ECH_OPT_STRING, &trace_file, "FILE",
      "write a Chrome trace; recording it costs time that the numbers then hold", 0, 0, NULL },
    { "stream-tasks", 0, ECH_OPT_INT, &stream_tasks, "N", "tasks of the stream (default 1000000)",
      256, 100000000, NULL },
};

const ech_command ech_bench_runtime = {
    "bench runtime",
    "",
    "what runs and tasks of the worker cost",
    "echelon bench runtime --json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
