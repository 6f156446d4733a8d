/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine takes beside weights and KV, and how soon it is ready:
 *
 *     engine_test_footprint [MODEL [QUANTIZE [LOAD]]]       default: the demo model, keep, copy
 *
 * Opens it twice, so that the second start may find packed weights, and computes one answer. Prints
 * the time to ready of both and the sum of PSS over the process tree, without the mappings of
 * weights and KV. Fails over 100 MB of the latter; how long a start may take is for a quiet machine
 * and a reader to judge. "random": makes a model of the 0.6B shape for the run.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/engine.h"
#include "src/base/clock.h"
#include "tests/tools/random_model.h"
#include "tests/unit/test.h"

#define LIMIT_MB 100.0

static const char *model;
static ech_engine_options options;

/* Weights, KV, and files that were packed: named by their mappings. */
static bool is_counted(const char *const line)
{
    static const char *const apart[] = { "memfd:weights", "memfd:kv", ".safetensors", ".gguf",
                                         ".echelon" };
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
        if (strstr(line, apart[i]) != NULL) return false;
    return true;
}

/* kB of one process. */
static uint64_t pss_of(const int pid)
{
    char line[1024];
    uint64_t sum = 0, kb = 0;
    bool counts = true;
    (void)snprintf(line, sizeof line, "/proc/%d/smaps", pid);
    FILE *const f = fopen(line, "r");
    if (f == NULL) return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            counts = is_counted(line);
        else if (counts && sscanf(line, "Pss: %" SCNu64, &kb) == 1)
            sum += kb;
    }
    (void)fclose(f);
    return sum;
}

static int parent_of(const int pid)
{
    char path[64], line[512];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *const f = fopen(path, "r");
    if (f == NULL) return 0;
    const char *const end = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
    if (end != NULL) (void)sscanf(end, ") %*c %d", &parent);
    (void)fclose(f);
    return parent;
}

static bool is_below(int pid, const int root)
{
    for (int depth = 0; pid > 1 && depth < 8; depth++) {
        if (pid == root) return true;
        pid = parent_of(pid);
    }
    return false;
}

static double tree_mb(void)
{
    uint64_t kb = 0;
    DIR *const dir = opendir("/proc");
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        const int pid = atoi(e->d_name);
        if (pid > 0 && is_below(pid, getpid())) kb += pss_of(pid);
    }
    (void)closedir(dir);
    return (double)kb * 1024.0 / 1e6;
}

static void answer(ech_engine *const engine)
{
    ech_error err;
    ech_event ev;
    ech_request *request = NULL;
    const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const ech_prompt prompt = { .ids = ids, .n_ids = 8 };
    ech_request_options o;
    ech_request_options_default(&o);
    o.prompts = &prompt;
    o.n_prompts = 1;
    o.max_tokens = 8;
    assert_int_equal(ech_engine_submit(engine, &o, &request, &err), ECH_OK);
    do {
        assert_int_equal(ech_request_next(request, -1, &ev, &err), ECH_OK);
    } while (ev.kind != ECH_EVENT_DONE);
    ech_request_close(&request);
}

/* Opens, waits, answers; returns MB beside weights and KV. */
static double start(double *const ret_ms)
{
    ech_error err;
    ech_engine *engine = NULL;
    const int64_t begin = ech_now_ns();
    if (ech_engine_open(&engine, &options, &err) != ECH_OK) fail_msg("%s", err.text);
    if (ech_engine_wait_ready(engine, -1, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
    *ret_ms = (double)(ech_now_ns() - begin) / ECH_NS_PER_MS;
    answer(engine);
    const double mb = tree_mb();
    ech_engine_close(&engine);
    return mb;
}

static void the_rest_is_small(void **state)
{
    (void)state;
    double first = 0.0, second = 0.0;
    const double mb1 = start(&first), mb2 = start(&second);
    print_message(
        "%s: ready after %.0f ms, the second time %.0f ms; %.1f and %.1f MB beside weights "
        "and KV\n",
        model, first, second, mb1, mb2);
    assert_true(mb1 < LIMIT_MB && mb2 < LIMIT_MB);
}

/* The tokenizer is the demo model's: fewer tokens than the model has ids, which is allowed. */
static void make_random(char *const folder)
{
    char command[1024];
    random_model m;
    assert_non_null(mkdtemp(folder));
    assert_true(random_model_shape("0.6b", &m));
    assert_true(random_model_write(&m, folder));
    (void)snprintf(command, sizeof command, "%s/tokenizer.json", folder);
    assert_int_equal(symlink(ECH_SOURCE_DIR "/models/tale/tokenizer.json", command), 0);
}

static void remove_random(const char *const folder)
{
    static const char *const names[] = { "config.json", "model.safetensors", "tokenizer.json" };
    char path[1024];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int main(int argc, char **argv)
{
    ech_error err = { 0 };
    char folder[] = "/tmp/echelon-footprint-XXXXXX";
    model = argc > 1 ? argv[1] : ECH_SOURCE_DIR "/models/tale";
    const bool is_random = strcmp(model, "random") == 0;
    if (is_random) {
        make_random(folder);
        model = folder;
    }
    ech_engine_options_default(&options);
    options.model_dir = model;
    options.no_cache = is_random;
    if ((argc > 2 && ech_quantize_parse(argv[2], &options.quantize, &err) != ECH_OK) ||
        (argc > 3 && ech_load_parse(argv[3], &options.load, &err) != ECH_OK)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_rest_is_small) };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (is_random) remove_random(folder);
    return rc;
}
