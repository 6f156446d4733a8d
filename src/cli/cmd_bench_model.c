/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon bench MODEL`: speed of prompts and of generation, at depths and with several streams, on
 * the engine that generates and serves. Options and columns are llama-bench's where it has them.
 * One process, one engine for all rows; main thread.
 *
 * Invariant: rows are measured one after another with nothing else in the engine, and each
 * stands as soon as it is done. Sizes of the engine (context, rows, KV memory) are what the
 * largest test needs, so that options of tests are enough. Exit codes: those of the error; a
 * slower result than the saved one is none.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/os/newfile.h"
#include "src/cli/bench.h"
#include "src/cli/bench_model.h"
#include "src/cli/last_run.h"
#include "src/cli/load_options.h"

enum { MAX_LIST = 32, MAX_TESTS = 4 * MAX_LIST };
#define MAX_SAVED_BYTES (16u << 20)

/*
 * Numbers separated by commas. Room on the stack; one more than fits is an error and not left
 * out.
 */
typedef struct numbers {
    uint32_t at[MAX_LIST];
    uint32_t n;
} numbers;

static numbers prompts = { { 512 }, 1 }, gens = { { 128 }, 1 }, depths = { { 0 }, 1 },
               streams = { { 1 }, 1 };
static int64_t reps = 5, threads, prefill_chunk, seed = 1;
static uint64_t kv_memory, read_bytes;
static const char *output = "md", *save_path, *compare_path;

/* ---- the command line ---- */

/* The list replaces the default as a whole. A sign is refused before strtoul can wrap it. */
static const char *take_numbers(const char *value, uint32_t max, numbers *ret)
{
    ret->n = 0;
    for (const char *at = value; *at != '\0';) {
        char *end;
        errno = 0;
        const unsigned long v = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || errno != 0 || v > max)
            return "must be whole numbers, separated by commas, none too large";
        if (ret->n == MAX_LIST) return "has too many numbers, 32 are possible";
        ret->at[ret->n++] = (uint32_t)v;
        at = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0') return "must be whole numbers, separated by commas";
    }
    return ret->n > 0 ? NULL : "must have a number";
}

/* 2^24 is above every context; the engine refuses what the model can't hold. */
static const char *take_prompts(const char *name, const char *value)
{
    (void)name;
    return take_numbers(value, 1 << 24, &prompts);
}

static const char *take_gens(const char *name, const char *value)
{
    (void)name;
    return take_numbers(value, 1 << 24, &gens);
}

static const char *take_depths(const char *name, const char *value)
{
    (void)name;
    return take_numbers(value, 1 << 24, &depths);
}

/* 64 rows are the most that a step has. */
static const char *take_streams(const char *name, const char *value)
{
    (void)name;
    const char *const wrong = take_numbers(value, 64, &streams);
    for (uint32_t i = 0; wrong == NULL && i < streams.n; i++)
        if (streams.at[i] == 0) return "must be 1 to 64 streams";
    return wrong;
}

/* The pointer goes into argv. */
static const char *take_output(const char *name, const char *value)
{
    static const char *const KNOWN[] = { "md", "csv", "json", "jsonl" };
    (void)name;
    output = value;
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strcmp(value, KNOWN[i]) == 0) return NULL;
    return "must be md, csv, json or jsonl";
}

static const ech_option OPTIONS[] = {
    { "n-prompt", 'p', ECH_OPT_CALL, NULL, "N,…", "tokens of prompts; default 512; 0: none", 0, 0,
      take_prompts },
    { "n-gen", 'n', ECH_OPT_CALL, NULL, "N,…", "tokens generated; default 128; 0: none", 0, 0,
      take_gens },
    { "n-depth", 'd', ECH_OPT_CALL, NULL, "N,…", "tokens that are there before; default 0", 0, 0,
      take_depths },
    { "streams", 'b', ECH_OPT_CALL, NULL, "N,…",
      "answers generated at once, rows of a step; default 1", 0, 0, take_streams },
    { "repetitions", 'r', ECH_OPT_INT, &reps, "N", "of each test, after a warm-up; default 5", 1,
      ECH_BENCH_MAX_REPS, NULL },
    { "output", 'o', ECH_OPT_CALL, NULL, "FORMAT", "md (default), csv, json or jsonl", 0, 0,
      take_output },
    { "threads", 't', ECH_OPT_INT, &threads, "N", "cores of a chip; default: all physical cores", 1,
      256, NULL },
    { "prefill-chunk", 0, ECH_OPT_INT, &prefill_chunk, "N",
      "most prompt tokens in one step; default: the engine's", 1, 512, NULL },
    ECH_LOAD_OPTIONS,
    ECH_KV_TYPE_OPTION,
    { "kv-memory", 0, ECH_OPT_SIZE, &kv_memory, "BYTES",
      "memory for keys and values; default: what the tests need", 0, 0, NULL },
    ECH_COMPUTE_OPTION,
    { "seed", 0, ECH_OPT_INT, &seed, "N", "of the random ids; default 1", 0, 9e15, NULL },
    { "read-bytes", 0, ECH_OPT_SIZE, &read_bytes, "BYTES",
      "memory that the plain read reads; default 2G, less where memory is short", 0, 0, NULL },
    { "save", 0, ECH_OPT_STRING, &save_path, "FILE", "write the rows as JSON", 0, 0, NULL },
    { "compare", 0, ECH_OPT_STRING, &compare_path, "FILE",
      "put the same tests of a saved run beside", 0, 0, NULL },
};

/* ---- the tests ---- */

/* 0 tokens mean that this kind of test isn't wanted. */
static void add_test(ech_bench_test *tests, uint32_t *n, ech_bench_test t)
{
    if ((t.n_prompt > 0 || t.n_gen > 0) && *n < MAX_TESTS) tests[(*n)++] = t;
}

/*
 * Depth by depth, so that a deeper one finds the shallower one computed. A prompt is always one
 * stream: several at once would be a question of the scheduler's, not of the kernels'.
 */
static uint32_t list_tests(ech_bench_test *tests)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < depths.n; d++) {
        for (uint32_t i = 0; i < prompts.n; i++)
            add_test(tests, &n,
                     (ech_bench_test){
                         .n_prompt = prompts.at[i], .n_depth = depths.at[d], .n_streams = 1 });
        for (uint32_t i = 0; i < gens.n; i++)
            for (uint32_t s = 0; s < streams.n; s++)
                add_test(tests, &n,
                         (ech_bench_test){ .n_gen = gens.at[i],
                                           .n_depth = depths.at[d],
                                           .n_streams = streams.at[s] });
    }
    return n;
}

/* ---- opening ---- */

/* The context and the KV memory of the largest test; more would only be reserved. */
static void set_sizes(const ech_bench_test *tests, uint32_t n, uint64_t token_bytes,
                      ech_engine_options *o)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ech_bench_test *const t = &tests[i];
        const uint64_t len = (uint64_t)t->n_depth + t->n_prompt + t->n_gen + 2;
        if (len > o->max_seq_len) o->max_seq_len = (uint32_t)len;
        if (t->n_streams > o->max_running) o->max_running = t->n_streams;
        if (ech_bench_kv_tokens(t) > tokens) tokens = ech_bench_kv_tokens(t);
    }
    o->kv_memory = kv_memory > 0 ? kv_memory : tokens * token_bytes;
}

/*
 * The type that most bytes of the files have. Files mix types; the name says the one that most
 * of the bytes have.
 */
static const char *main_type(const ech_model *m)
{
    const char *best = "";
    uint64_t best_bytes = 0;
    ech_model_tensor t = { 0 }, u = { 0 };
    for (uint32_t i = 0; ech_model_tensor_at(m, i, &t) == ECH_OK; i++) {
        uint64_t bytes = 0;
        for (uint32_t k = 0; ech_model_tensor_at(m, k, &u) == ECH_OK; k++)
            bytes += strcmp(t.type, u.type) == 0 ? u.bytes : 0;
        if (bytes <= best_bytes) continue;
        best_bytes = bytes;
        best = t.type;
    }
    return best;
}

/* The first columns of llama-bench: a name, a size, a count. */
static void describe(const ech_model *m, ech_bench_subject *s)
{
    ech_model_info info;
    ech_model_get_info(m, &info);
    const double millions = (double)info.n_params / 1e6;
    (void)snprintf(
        s->model_type, sizeof s->model_type, "%s %.2f%s %s%s%s", info.architecture,
        millions < 1000 ? millions : millions / 1000, millions < 1000 ? "M" : "B", main_type(m),
        ech_cli_load.quantize != ECH_QUANTIZE_KEEP ? " as " : "",
        ech_cli_load.quantize != ECH_QUANTIZE_KEEP ? ech_quantize_name(ech_cli_load.quantize) : "");
    s->model_size = info.packed_bytes;
    s->model_n_params = info.n_params;
    s->type_kv = ech_kv_type_name(ech_cli_load.kv_type);
    s->compute = ech_compute_name(ech_cli_load.compute);
}

/*
 * The model is opened twice: once for its headers, which the sizes come from, then by the
 * engine. After a failure what is open stays in *b, for bench() to close.
 */
static ech_status open_engine(ech_bench *b, const char *path, const ech_bench_test *tests,
                              uint32_t n, ech_bench_subject *s, ech_error *err)
{
    ech_engine_options o;
    ech_model *m = NULL;
    const ech_model_options mo = { .struct_size = sizeof mo, .quantize = ech_cli_load.quantize };
    ech_engine_options_default(&o);
    ECH_TRY(ech_model_open_with(&m, path, &mo, err));
    describe(m, s);
    b->kv_bytes_per_token = ech_model_kv_bytes_per_token(m, ech_cli_load.kv_type);
    ech_model_close(&m);
    o.model_dir = path;
    o.threads = (uint32_t)threads;
    o.prefill_chunk = (uint32_t)prefill_chunk;
    ech_take_load_options(&o);
    set_sizes(tests, n, b->kv_bytes_per_token, &o);
    ECH_TRY(ech_engine_open(&b->engine, &o, err));
    ECH_TRY(ech_engine_wait_ready(b->engine, -1, NULL, err));
    b->info.struct_size = sizeof b->info;
    ech_engine_info_get(b->engine, &b->info);
    s->model_filename = b->info.model_dir;
    const ech_meter_options meter = { .struct_size = sizeof meter,
                                      .threads = b->info.threads,
                                      .read_bytes = read_bytes };
    return ech_meter_open(&b->meter, &meter, err);
}

/* ---- saved runs ---- */

/* A row that names no test would only ever be passed over: a damaged file looks like a new one. */
static ech_status check_saved(const json_t *rows, ech_error *err)
{
    static const char *const KEYS[] = { "n_prompt", "n_gen", "n_depth", "n_streams" };
    if (!json_is_array(rows))
        return ech_fail(err, ECH_EFORMAT, "reading %s: it is no array of rows, as --save writes",
                        compare_path);
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        bool ok = json_number_value(json_object_get(row, "median_ts")) > 0;
        for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++)
            ok = ok && json_is_integer(json_object_get(row, KEYS[k]));
        if (!ok)
            return ech_fail(err, ECH_EFORMAT, "reading %s: row %zu is none that --save writes",
                            compare_path, i);
    }
    return ECH_OK;
}

/* Before anything is measured: a file that can't be read should not cost the run. */
static ech_status load_saved(json_t **ret, ech_error *err)
{
    ech_buf text = { 0 };
    json_error_t je;
    if (compare_path == NULL) return ECH_OK;
    ech_status rc = ech_buf_read_file(&text, compare_path, MAX_SAVED_BYTES, err);
    if (rc == ECH_OK) {
        *ret = json_loadb(text.data != NULL ? text.data : "", text.len, 0, &je);
        if (*ret == NULL)
            rc = ech_fail_at(err, ECH_EFORMAT, je.line, je.column, je.position, "reading %s: %s",
                             compare_path, je.text);
        else
            rc = check_saved(*ret, err);
    }
    ech_buf_fini(&text);
    return rc;
}

/* Written after all rows, so that a saved run is one that ended. */
static ech_status save_rows(ech_new_file *file, const json_t *rows, ech_error *err)
{
    if (save_path == NULL) return ECH_OK;
    FILE *const f = ech_new_file_stream(file);
    const bool failed = f == NULL || json_dumpf(rows, f, JSON_INDENT(2)) != 0;
    if ((f != NULL && fclose(f) != 0) || failed)
        return ech_fail_errno(err, ECH_EIO, "saving %s", save_path);
    return ech_new_file_keep(file, err);
}

/* ---- running ---- */

/* JSON has no head: its keys stand in every row. */
static void print_head(bool compares)
{
    if (strcmp(output, "md") == 0) ech_bench_print_md_head(compares);
    if (strcmp(output, "csv") == 0) ech_bench_print_csv_head();
}

/* md, csv and jsonl are printed row by row, json as one array at the end. */
static void print_row(const ech_bench_subject *s, const json_t *row)
{
    if (strcmp(output, "md") == 0) ech_bench_print_md(s, row);
    if (strcmp(output, "csv") == 0) ech_bench_print_csv(row);
    if (strcmp(output, "jsonl") == 0) {
        (void)json_dumpf(row, stdout, JSON_COMPACT);
        (void)printf("\n");
        (void)fflush(stdout);
    }
}

/* The name of the running test is on the terminal only, and gone before its row is printed. */
static ech_status run_tests(ech_bench *b, const ech_bench_subject *s, const ech_bench_test *tests,
                            uint32_t n, const json_t *old, json_t *rows, ech_error *err)
{
    static ech_bench_row row;
    print_head(old != NULL);
    for (uint32_t i = 0; i < n; i++) {
        char name[64];
        ech_bench_test_name(&tests[i], name, sizeof name);
        if (isatty(STDERR_FILENO)) (void)fprintf(stderr, "\r\033[K%s …\r", name);
        ECH_TRY(ech_bench_measure(b, &tests[i], (uint32_t)reps, &row, err));
        json_t *const o = ech_bench_row_json(b, s, &row, old);
        if (o == NULL || json_array_append_new(rows, o) != 0)
            return ech_fail(err, ECH_ENOMEM, "bench: out of memory");
        if (isatty(STDERR_FILENO)) (void)fprintf(stderr, "\033[K");
        print_row(s, o);
    }
    if (strcmp(output, "json") == 0) {
        (void)json_dumpf(rows, stdout, JSON_INDENT(2));
        (void)printf("\n");
    }
    return ECH_OK;
}

/*
 * The first error ends it; rows before it were printed, but nothing is saved: half a run
 * compares badly.
 */
static ech_status bench(const char *path, ech_error *err)
{
    ech_bench_test tests[MAX_TESTS];
    const uint32_t n = list_tests(tests);
    if (n == 0)
        return ech_fail(err, ECH_EINVAL,
                        "bench has nothing to measure: --n-prompt and --n-gen are both 0");
    ech_bench b = { .seed = seed };
    ech_machine_info machine = { .struct_size = sizeof machine };
    ech_bench_subject subject = { .version = ECH_VERSION };
    json_t *old = NULL, *const rows = json_array();
    ech_new_file saved = { 0 };
    ech_status rc =
        rows != NULL ? load_saved(&old, err) : ech_fail(err, ECH_ENOMEM, "bench: out of memory");
    if (rc == ECH_OK && save_path != NULL) rc = ech_new_file_open(&saved, save_path, 0644, err);
    if (rc == ECH_OK) rc = ech_machine_info_get(&machine, err);
    subject.cpu = machine.cpu;
    if (rc == ECH_OK) rc = open_engine(&b, path, tests, n, &subject, err);
    if (rc == ECH_OK) rc = run_tests(&b, &subject, tests, n, old, rows, err);
    if (rc == ECH_OK) rc = save_rows(&saved, rows, err);
    if (rc == ECH_OK) ech_last_run_keep("bench", b.engine);
    ech_new_file_fini(&saved);
    ech_meter_close(&b.meter);
    (void)ech_engine_close(&b.engine);
    json_decref(old);
    json_decref(rows);
    return rc;
}

static int run(int argc, char **argv)
{
    ech_error err = { .code = ECH_OK };
    if (argc > 1) return ech_usage_error("bench takes one MODEL, not also '%s'", argv[1]);
    if (bench(argc > 0 ? argv[0] : NULL, &err) != ECH_OK) return ech_report(&err);
    return ECH_EXIT_OK;
}

const ech_command ech_bench_model = {
    "bench model",
    "[MODEL]",
    "a model's speed: prompts, generation, at depths, with several streams",
    "echelon bench models/tale -p 512,2048 -n 128 -d 0,4096\n"
    "echelon bench MODEL.gguf -n 128 -b 1,4,16 -o json --save before.json\n"
    "echelon bench MODEL.gguf --compare before.json",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
