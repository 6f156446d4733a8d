/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon bench serve`: load on any server that speaks /v1/completions, and what its clients see.
 * One thread per stream in flight; each writes its own record, the main thread prints the progress
 * and reports (bench_report.h) when all are joined.
 *
 * Invariant: what is sent depends on the options and the seed alone, so that two servers can be
 * compared. Names and definitions of the numbers are those of vLLM's benchmark. Each request has
 * a connection of its own, whose opening is a part of its first token's time. Exit codes: 1 when
 * a request failed, 2 for wrong usage. Left out: chat, tokenizing; prompts of ids need neither.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/os/newfile.h"
#include "src/cli/bench.h"
#include "src/cli/bench_report.h"
#include "src/cli/http_client.h"

static const char *url_text = "http://127.0.0.1:8080/v1", *api_key, *model_name,
                  *dataset = "random", *dataset_file, *plot_file;
static int64_t n_prompts = 32, concurrency = 8, input_len = 128, output_len = 128, prefix_len,
               seed = 1, vocab = 2000;
static double request_rate, goodput_ttft, goodput_tpot, goodput_e2el;
static bool as_json, is_detailed;

static const ech_option OPTIONS[] = {
    { "url", 0, ECH_OPT_STRING, &url_text, "URL", "the server; default http://127.0.0.1:8080/v1", 0,
      0, NULL },
    ECH_CLIENT_TLS_OPTIONS,
    { "api-key", 0, ECH_OPT_STRING, &api_key, "KEY",
      "its key; better in the environment: ECHELON_API_KEY", 0, 0, NULL },
    { "model", 0, ECH_OPT_STRING, &model_name, "NAME", "name of a model that the server serves", 0,
      0, NULL },
    { "num-prompts", 'n', ECH_OPT_INT, &n_prompts, "N", "requests; default 32", 1, 1000000, NULL },
    { "max-concurrency", 'c', ECH_OPT_INT, &concurrency, "N", "in flight at most; default 8", 1,
      1024, NULL },
    { "request-rate", 'r', ECH_OPT_DOUBLE, &request_rate, "R",
      "requests a second, Poisson; default: as fast as they go", 0, 1e6, NULL },
    { "dataset-name", 0, ECH_OPT_STRING, &dataset, "NAME",
      "random (ids), shared-prefix (ids) or file (lines of text)", 0, 0, NULL },
    { "dataset-path", 0, ECH_OPT_STRING, &dataset_file, "FILE",
      "of the dataset file: a prompt a line", 0, 0, NULL },
    { "random-input-len", 0, ECH_OPT_INT, &input_len, "N", "ids of a prompt; default 128", 1,
      1 << 20, NULL },
    { "random-output-len", 0, ECH_OPT_INT, &output_len, "N", "tokens of an answer; default 128", 1,
      1 << 20, NULL },
    { "random-prefix-len", 0, ECH_OPT_INT, &prefix_len, "N",
      "ids that all prompts of shared-prefix begin with", 0, 1 << 20, NULL },
    { "vocab", 0, ECH_OPT_INT, &vocab, "N", "random ids are below it; default 2000", 1, 1 << 24,
      NULL },
    { "seed", 0, ECH_OPT_INT, &seed, "N", "of prompts and arrivals; default 1", 0, 9e18, NULL },
    { "goodput-ttft", 0, ECH_OPT_DOUBLE, &goodput_ttft, "MS",
      "a request is good if its first token came so soon", 0, 1e9, NULL },
    { "goodput-tpot", 0, ECH_OPT_DOUBLE, &goodput_tpot, "MS", "… and its tokens so fast", 0, 1e9,
      NULL },
    { "goodput-e2el", 0, ECH_OPT_DOUBLE, &goodput_e2el, "MS", "… and it was done so soon", 0, 1e9,
      NULL },
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
    { "save-detailed", 0, ECH_OPT_FLAG, &is_detailed, NULL,
      "with --json: the times and lengths of each request too", 0, 0, NULL },
    { "plot", 0, ECH_OPT_STRING, &plot_file, "FILE",
      "write an SVG: each request's wait and tokens over time", 0, 0, NULL },
};

/* Written before the threads start, read by them; the words that say so are atomic. */
typedef struct load {
    ech_url url;
    ech_bench_record
        *records;       /* [n_prompts] each written by one thread, read after it was joined */
    int64_t *arrive_ns; /* [n_prompts] after the start; all 0 without a rate */
    char *served;       /* the model that the server named, NULL: none */
    char **lines;       /* [n_lines] of the dataset file */
    size_t n_lines;
    ech_new_file plot;
    int64_t start_ns;
    int64_t next;   /* atomic: index of the next request */
    int64_t done;   /* atomic */
    int64_t tokens; /* atomic: chunks seen, for the progress line */
} load;

/* splitmix64: prompts must be the same on every machine for one seed. */
static uint64_t mix(uint64_t *const s)
{
    uint64_t z = (*s += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ---- one request ---------------------------------------------------------------------------- */

/*
 * Each prompt has a generator of its own, so that it doesn't depend on which thread takes it.
 * Prompts share nothing but by chance, unless a prefix is asked for: a cache of prefixes has
 * nothing to give.
 */
static json_t *random_ids(const int64_t index)
{
    json_t *const ids = json_array();
    const bool shared = strcmp(dataset, "shared-prefix") == 0;
    uint64_t common = (uint64_t)seed;
    uint64_t own = (uint64_t)seed * 1000003 + (uint64_t)index + 1;
    for (int64_t i = 0; i < input_len; i++) {
        uint64_t *const s = shared && i < prefix_len ? &common : &own;
        (void)json_array_append_new(ids, json_integer((json_int_t)(mix(s) % (uint64_t)vocab)));
    }
    return ids;
}

/*
 * ignore_eos and temperature 0: every answer has the length that was asked for, in every run.
 * Lines of a file are used again from the start when there are fewer than requests.
 */
static char *request_body(const load *const l, const int64_t index)
{
    json_t *const prompt =
        l->n_lines > 0 ? json_string(l->lines[(size_t)index % l->n_lines]) : random_ids(index);
    json_t *const body =
        json_pack("{s:o, s:I, s:f, s:b, s:b, s:{s:b}}", "prompt", prompt, "max_tokens",
                  (json_int_t)output_len, "temperature", 0.0, "ignore_eos", 1, "stream", 1,
                  "stream_options", "include_usage", 1);
    if (model_name != NULL) (void)json_object_set_new(body, "model", json_string(model_name));
    char *const text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

typedef struct taking {
    load *l;
    ech_bench_record *r;
} taking;

/*
 * A chunk counts, whatever tokens it carries: gaps are what a reader sees. Without memory a gap
 * is lost, not the run.
 */
static void note_chunk(load *const l, ech_bench_record *const r)
{
    const int64_t now = ech_now_ns();
    (void)ech_fetch_add_relaxed(&l->tokens, 1);
    if (r->first_ns == 0) {
        r->first_ns = r->last_ns = now;
        return;
    }
    if (r->n_gaps == r->cap) {
        const size_t cap = r->cap == 0 ? 64 : 2 * r->cap;
        double *const gaps = realloc(r->gaps_ms, cap * sizeof *gaps);
        if (gaps == NULL) return;
        r->gaps_ms = gaps;
        r->cap = cap;
    }
    r->gaps_ms[r->n_gaps++] = (double)(now - r->last_ns) * 1e-6;
    r->last_ns = now;
}

/*
 * Good is what ended with [DONE] after some text: a stream that just stops was cut. The server's
 * own usage counts tokens, chunks don't.
 */
static bool take_frame(void *const ctx, const char *const data, const size_t len)
{
    const taking *const t = ctx;
    if (len >= 6 && strncmp(data, "[DONE]", 6) == 0) {
        t->r->ok = t->r->first_ns != 0;
        return false;
    }
    json_error_t why;
    json_t *const frame = json_loadb(data, len, 0, &why);
    const char *const text = json_string_value(
        json_object_get(json_array_get(json_object_get(frame, "choices"), 0), "text"));
    if (text != NULL && text[0] != '\0') note_chunk(t->l, t->r);
    const json_t *const usage = json_object_get(frame, "usage");
    if (json_is_object(usage)) {
        t->r->n_prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
        t->r->n_completion = json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    const char *const message =
        json_string_value(json_object_get(json_object_get(frame, "error"), "message"));
    if (message != NULL) (void)snprintf(t->r->failure, sizeof t->r->failure, "%s", message);
    json_decref(frame);
    return true;
}

/*
 * Ten minutes without a byte are a failure. The record is this thread's alone until it is
 * joined.
 */
static void run_one(load *const l, const int64_t index)
{
    ech_bench_record *const r = &l->records[index];
    char *const body = request_body(l, index);
    if (body == NULL) return;
    taking t = { l, r };
    ech_http_call call = {
        .url = &l->url,
        .method = "POST",
        .path = "/completions",
        .api_key = api_key,
        .body = body,
        .body_len = strlen(body),
        .take = take_frame,
        .ctx = &t,
        .timeout_ms = 600000,
    };
    ech_error err;
    r->start_ns = ech_now_ns();
    const ech_status rc = ech_http_run(&call, &err);
    r->end_ns = ech_now_ns();
    if (rc != ECH_OK) {
        r->ok = false;
        (void)snprintf(r->failure, sizeof r->failure, "%.150s", err.text);
    } else if (call.status != 200) {
        (void)snprintf(r->failure, sizeof r->failure, "HTTP %d: %.130s", call.status,
                       call.reply.data != NULL ? call.reply.data : "");
    }
    ech_buf_fini(&call.reply);
    free(body);
}

static void sleep_until(const int64_t t_ns)
{
    const struct timespec t = { .tv_sec = t_ns / ECH_NS_PER_S, .tv_nsec = t_ns % ECH_NS_PER_S };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/*
 * With a rate a request waits for its time of arrival; when all threads are busy it starts late,
 * and only --max-concurrency can mend that.
 */
static void *stream_main(void *const arg)
{
    load *const l = arg;
    for (;;) {
        const int64_t index = ech_fetch_add_relaxed(&l->next, 1);
        if (index >= n_prompts) return NULL;
        if (l->arrive_ns[index] > 0) sleep_until(l->start_ns + l->arrive_ns[index]);
        run_one(l, index);
        (void)ech_fetch_add_relaxed(&l->done, 1);
    }
}

/* ---- the whole load ------------------------------------------------------------------------- */

/*
 * Times between two arrivals of a Poisson process are exponential. Planned beforehand from the
 * seed: all servers get the same bursts. The half keeps the logarithm from 0.
 */
static void plan_arrivals(load *const l)
{
    uint64_t s = (uint64_t)seed ^ UINT64_C(0xA5A5A5A5A5A5A5A5);
    double t = 0;
    for (int64_t i = 0; i < n_prompts && request_rate > 0; i++) {
        l->arrive_ns[i] = (int64_t)(t * 1e9);
        const double u = ((double)(mix(&s) >> 11) + 0.5) / 9007199254740992.0;
        t += -log(u) / request_rate;
    }
}

/* Relaxed reads: the line is a hint. */
static void show_progress(const load *const l)
{
    if (isatty(STDERR_FILENO) != 1) return;
    const double seconds = (double)(ech_now_ns() - l->start_ns) * 1e-9;
    (void)fprintf(stderr, "\r%lld of %lld requests, %.0f chunks/s ",
                  (long long)ech_load_relaxed(&l->done), (long long)n_prompts,
                  (double)ech_load_relaxed(&l->tokens) / (seconds > 0 ? seconds : 1));
}

/*
 * With fewer threads than asked for the requests are all made, but the numbers would be of
 * another load: an error.
 */
static int run_load(load *const l)
{
    const int64_t n_threads = concurrency < n_prompts ? concurrency : n_prompts;
    pthread_t *const threads = calloc((size_t)n_threads, sizeof *threads);
    if (threads == NULL)
        return ech_usage_error("there is no memory for %lld streams", (long long)n_threads);
    l->start_ns = ech_now_ns();
    int64_t started = 0;
    while (started < n_threads && pthread_create(&threads[started], NULL, stream_main, l) == 0) {
        started++;
    }
    while (started > 0 && ech_load_relaxed(&l->done) < n_prompts) {
        sleep_until(ech_now_ns() + 100 * ECH_NS_PER_MS);
        show_progress(l);
    }
    for (int64_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    if (isatty(STDERR_FILENO) == 1) (void)fputs("\r\033[K", stderr);
    free(threads);
    return started == n_threads
               ? ECH_EXIT_OK
               : ech_usage_error("only %lld threads could be started", (long long)started);
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Empty lines are passed over. No more are read than requests are made. */
static int read_lines(load *const l)
{
    if (strcmp(dataset, "file") != 0) {
        if (strcmp(dataset, "random") == 0 || strcmp(dataset, "shared-prefix") == 0)
            return ECH_EXIT_OK;
        return ech_usage_error("--dataset-name %s must be random, shared-prefix or file", dataset);
    }
    FILE *const f = dataset_file != NULL ? fopen(dataset_file, "r") : NULL;
    if (f == NULL)
        return ech_usage_error("--dataset-path %s can't be read",
                               dataset_file != NULL ? dataset_file : "(missing)");
    l->lines = calloc((size_t)n_prompts, sizeof *l->lines);
    size_t cap = 0;
    while (l->lines != NULL && l->n_lines < (size_t)n_prompts) {
        char *line = NULL;
        const ssize_t n = getline(&line, &cap, f);
        if (n < 0 || line[0] == '\n') {
            free(line);
            cap = 0;
            if (n < 0) break;
            continue;
        }
        if (line[n - 1] == '\n') line[n - 1] = '\0';
        l->lines[l->n_lines++] = line;
        cap = 0;
    }
    (void)fclose(f);
    return l->n_lines > 0 ? ECH_EXIT_OK : ech_usage_error("%s holds no prompt", dataset_file);
}

/* One reason and a count: thousands of the same line help nobody. */
static void print_first_failure(const load *const l, const int64_t failed)
{
    for (int64_t i = 0; i < n_prompts; i++) {
        if (l->records[i].failure[0] == '\0') continue;
        (void)fprintf(stderr, "echelon: %lld of %lld requests failed; the first: %s\n",
                      (long long)failed, (long long)n_prompts, l->records[i].failure);
        return;
    }
}

static ech_status plot(load *const l, const ech_bench_run *const bench, ech_error *const err)
{
    FILE *const f = ech_new_file_stream(&l->plot);
    if (f == NULL || !ech_bench_plot(bench, f))
        return ech_fail_errno(err, ECH_EIO, "writing %s", plot_file);
    return ech_new_file_keep(&l->plot, err);
}

/* The report comes also when requests failed: those that did not are measured. */
static int report(load *const l)
{
    const ech_bench_run bench = {
        .records = l->records,
        .n = (size_t)n_prompts,
        .start_ns = l->start_ns,
        .seconds = (double)(ech_now_ns() - l->start_ns) * 1e-9,
        .model = model_name != NULL ? model_name : "",
        .request_rate = request_rate,
        .max_concurrency = concurrency,
        .goodput_ttft = goodput_ttft,
        .goodput_tpot = goodput_tpot,
        .goodput_e2el = goodput_e2el,
        .is_detailed = is_detailed,
    };
    json_t *const out = ech_bench_sum_up(&bench);
    if (out == NULL) return ech_usage_error("there is no memory for the report");
    const int64_t failed = json_integer_value(json_object_get(out, "failed"));
    if (as_json) {
        char *const text =
            json_dumps(out, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
        (void)printf("%s\n", text != NULL ? text : "{}");
        free(text);
    } else {
        ech_bench_print(&bench, out);
    }
    json_decref(out);
    print_first_failure(l, failed);
    ech_error err;
    if (plot_file != NULL && plot(l, &bench, &err) != ECH_OK) return ech_report(&err);
    return failed > 0 ? ECH_EXIT_FAILED : ECH_EXIT_OK;
}

/* The threads are joined before. */
static void load_fini(load *const l)
{
    ech_url_close(&l->url);
    ech_new_file_fini(&l->plot);
    for (int64_t i = 0; i < n_prompts && l->records != NULL; i++) {
        free(l->records[i].gaps_ms);
    }
    for (size_t i = 0; i < l->n_lines; i++) {
        free(l->lines[i]);
    }
    free(l->lines);
    free(l->records);
    free(l->arrive_ns);
    free(l->served);
}

static int run(const int argc, char **const argv)
{
    if (argc > 0) return ech_usage_error("bench serve takes no '%s'", argv[0]);
    load l = { .records = calloc((size_t)n_prompts, sizeof(ech_bench_record)),
               .arrive_ns = calloc((size_t)n_prompts, sizeof(int64_t)) };
    ech_error err;
    int rc = ECH_EXIT_OK;
    if (l.records == NULL || l.arrive_ns == NULL) {
        rc = ech_usage_error("there is no memory for %lld requests", (long long)n_prompts);
    } else if (ech_url_open(url_text, &l.url, &err) != ECH_OK) {
        rc = ech_report(&err);
    } else if (plot_file != NULL && ech_new_file_open(&l.plot, plot_file, 0644, &err) != ECH_OK) {
        rc = ech_report(&err);
    }
    if (rc == ECH_EXIT_OK) rc = read_lines(&l);
    if (rc == ECH_EXIT_OK) {
        /* Most servers want a model by name: the first that they list. */
        if (model_name == NULL) model_name = l.served = ech_http_first_model(&l.url, api_key);
        plan_arrivals(&l);
        rc = run_load(&l);
    }
    if (rc == ECH_EXIT_OK) rc = report(&l);
    load_fini(&l);
    return rc;
}

const ech_command ech_bench_serve = {
    "bench serve",
    "",
    "load on a running server: times to first token, between tokens, throughput",
    "echelon bench serve --url http://127.0.0.1:8080/v1 -n 64 -c 16 --json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
