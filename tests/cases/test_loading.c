/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other servers reported about loading. Argument: the case.
 *
 * CP13  weights lie in ordinary pages, and are read at less than memory's speed
 * CP14  a start takes minutes
 * CP15  the first request is much slower than later ones
 * CP16  ready is said too early, or loading doesn't say how far it is
 *
 * A random model of 60 MB plays a large one. A machine may be busy with something else: times are
 * the least of several, and those beside a fixed bound are divided by how crowded it is.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/engine.h"
#include "src/base/clock.h"
#include "src/base/os/shm.h"
#include "tests/tools/random_model.h"
#include "tests/unit/test.h"

enum { TRIES = 5 };

static char folder[] = "/tmp/echelon-loading-XXXXXX";

static ech_engine *open_engine(void)
{
    ech_error err;
    ech_engine *engine = NULL;
    ech_engine_options o;
    ech_engine_options_default(&o);
    o.model_dir = folder;
    o.max_seq_len = 256;
    o.no_cache = true;
    if (ech_engine_open(&engine, &o, &err) != ECH_OK) fail_msg("%s", err.text);
    return engine;
}

static void wait_ready(ech_engine *const engine)
{
    ech_error err;
    if (ech_engine_wait_ready(engine, -1, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
}

/* kB of the weights that this process has mapped by huge pages, or of all of them. */
static uint64_t weights_kb(const char *const field)
{
    char line[1024], format[64];
    uint64_t sum = 0, kb = 0;
    bool counts = false;
    FILE *const f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    (void)snprintf(format, sizeof format, "%s: %%" SCNu64, field);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            counts = strstr(line, "memfd:weights") != NULL;
        else if (counts && sscanf(line, format, &kb) == 1)
            sum += kb;
    }
    (void)fclose(f);
    return sum;
}

/* Whether this kernel makes huge pages of shared memory on demand. */
static bool has_huge_pages(void)
{
    ech_error err;
    void *ptr = NULL;
    assert_int_equal(ech_os_shm_map("probe", ECH_HUGE_PAGE, true, &ptr, &err), ECH_OK);
    *(volatile char *)ptr = 1;
    const bool has = ech_os_collapse(ptr, ECH_HUGE_PAGE) > 0;
    assert_int_equal(ech_os_unmap(ptr, ECH_HUGE_PAGE, &err), ECH_OK);
    return has;
}

static void cp13(void **state)
{
    (void)state;
    if (!has_huge_pages()) skip();
    ech_engine *engine = open_engine();
    wait_ready(engine);
    /* Entered into this process's tables, which map a huge page whole. */
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(engine, &info);
    char line[1024];
    FILE *const f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long from, to;
        if (strstr(line, "memfd:weights") != NULL && sscanf(line, "%lx-%lx ", &from, &to) == 2)
            ech_os_populate((void *)from, to - from);
    }
    (void)fclose(f);
    const uint64_t all = weights_kb("Rss"), huge = weights_kb("ShmemPmdMapped");
    print_message("%" PRIu64 " of %" PRIu64 " kB in huge pages\n", huge, all);
    assert_true(all * 1024 >= info.weights_bytes);
    assert_true(huge * 10 >= all * 9 || all - huge <= 4096); /* but for the ends */
    ech_engine_close(&engine);
}

#define WORK_NS (20 * ECH_NS_PER_MS)

/* So much work, as the thread's own clock has it. */
static void *work(void *const arg)
{
    struct timespec t;
    int64_t end = 0;
    do {
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        const int64_t now = t.tv_sec * ECH_NS_PER_S + t.tv_nsec;
        if (end == 0) end = now + WORK_NS;
        if (now >= end) return arg;
    } while (true);
}

/* How long two threads wait for their work, by how much it is; 1 where nothing else runs. */
static double crowd(void)
{
    pthread_t other;
    const int64_t begin = ech_now_ns();
    assert_int_equal(pthread_create(&other, NULL, work, NULL), 0);
    (void)work(NULL);
    assert_int_equal(pthread_join(other, NULL), 0);
    const double times = (double)(ech_now_ns() - begin) / WORK_NS;
    return times > 1 ? times : 1;
}

static double start_ms(void)
{
    const int64_t begin = ech_now_ns();
    ech_engine *engine = open_engine();
    wait_ready(engine);
    const double ms = (double)(ech_now_ns() - begin) / ECH_NS_PER_MS;
    ech_engine_close(&engine);
    return ms;
}

static void cp14(void **state)
{
    (void)state;
    double best = 1e9, before = crowd();
    for (int i = 0; i < TRIES && best >= 1000.0; i++) { /* the first quiet second will do */
        const double ms = start_ms(), after = crowd();
        const double alone = ms / (before < after ? before : after);
        print_message("ready after %.0f ms; %.1f and %.1f times crowded\n", ms, before, after);
        best = alone < best ? alone : best;
        before = after;
    }
    assert_true(best < 1000.0);
}

/* ms to the first token of an answer. */
static double first_token(ech_engine *const engine)
{
    ech_error err;
    ech_event ev;
    ech_request *request = NULL;
    static int32_t n_calls;
    int32_t ids[64];
    n_calls++;
    for (int i = 0; i < 64; i++) /* no prompt begins as another: nothing is in the prefix cache */
        ids[i] = 100 * n_calls + i;
    const ech_prompt prompt = { .ids = ids, .n_ids = 64 };
    ech_request_options o;
    ech_request_options_default(&o);
    o.prompts = &prompt;
    o.n_prompts = 1;
    o.max_tokens = 1;
    const int64_t begin = ech_now_ns();
    assert_int_equal(ech_engine_submit(engine, &o, &request, &err), ECH_OK);
    do {
        assert_int_equal(ech_request_next(request, -1, &ev, &err), ECH_OK);
    } while (ev.kind != ECH_EVENT_DONE);
    ech_request_close(&request);
    return (double)(ech_now_ns() - begin) / ECH_NS_PER_MS;
}

static int by_size(const void *const a, const void *const b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Two readings of the same pairs, for two kinds of noise: the middle of the ratios, where whatever
 * else runs slows a first and its second alike; and the least of each, where some ran undisturbed.
 * A first that is slow of itself shows in both. */
static void cp15(void **state)
{
    (void)state;
    double ratios[10 * TRIES], first = 1e9, second = 1e9, ratio = 1e9;
    int n = 0;
    while (n < 10 * TRIES && (n < TRIES || ratio > 1.1)) {
        ech_engine *engine = open_engine();
        wait_ready(engine);
        const double a = first_token(engine), b = first_token(engine);
        ech_engine_close(&engine);
        first = a < first ? a : first;
        second = b < second ? b : second;
        ratios[n++] = a / b;
        qsort(ratios, (size_t)n, sizeof *ratios, by_size);
        ratio = ratios[n / 2] < first / second ? ratios[n / 2] : first / second;
    }
    print_message("first %.1f ms, second %.1f ms; %.3f in the middle of %d pairs\n", first, second,
                  ratios[n / 2], n);
    assert_true(ratio <= 1.1);
}

static void cp16(void **state)
{
    (void)state;
    ech_error err;
    ech_load_progress p = { 0 };
    uint64_t last = 0;
    ech_engine *engine = open_engine();
    ech_status rc;
    while ((rc = ech_engine_wait_ready(engine, 1, &p, &err)) == ECH_ETIMEOUT) {
        assert_true(p.total > 0 && p.done <= p.total);
        assert_true(p.done >= last);
        last = p.done;
    }
    assert_int_equal(rc, ECH_OK);
    assert_int_equal(p.done, p.total);
    /* Ready means it: an answer, and nothing of the weights was still to come. */
    (void)first_token(engine);
    ech_engine_close(&engine);
}

static void remove_model(void)
{
    static const char *const names[] = { "config.json", "model.safetensors", "tokenizer.json" };
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static int make_model(void)
{
    char path[256];
    random_model m;
    if (mkdtemp(folder) == NULL || !random_model_shape("0.6b", &m)) return 1;
    m.n_layers = 4;
    m.hidden = 512;
    m.ffn = 1536;
    m.n_heads = 4;
    m.n_kv_heads = 2;
    m.vocab = 36000;
    if (!random_model_write(&m, folder)) return 1;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return symlink(ECH_SOURCE_DIR "/models/tale/tokenizer.json", path);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } CASES[] = { { "CP13", cp13 }, { "CP14", cp14 }, { "CP15", cp15 }, { "CP16", cp16 } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        if (argc < 2 || strcmp(argv[1], CASES[i].name) != 0) continue;
        const struct CMUnitTest tests[] = { { CASES[i].name, CASES[i].test, NULL, NULL, NULL } };
        const int rc = make_model() == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
        remove_model();
        return rc;
    }
    (void)fprintf(stderr, "there is no such case\n");
    return 2;
}
