/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other servers reported, turned into tests of the engine: prefix cache and
 * KV (KV…), cancellation and scheduling (CX…), determinism and limits (DT…, TR…, TK…). The case is
 * named on the command line; without one all run.
 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/machine.h"
#include "echelon/tokenizer.h"
#include "src/base/clock.h"
#include "src/engine/sizes.h"
#include "tests/unit/engine/harness.h"

static const char TALE[] =
    "Once upon a time, there was a clever turtle named Molly. She liked to eat cheese and to look "
    "at "
    "the stars. One day Molly went to the river with her friend Hugo. They found a small boat, and "
    "the boat was old. They walked back to the village and asked the carpenter for wood and a "
    "rope.";

static ech_engine *open_small(uint32_t n_pages, uint32_t max_seq_len, uint32_t chunk)
{
    ech_engine_options o = h_options();
    o.kv_memory = o.kv_memory / 64 * n_pages;
    o.max_seq_len = max_seq_len;
    o.prefill_chunk = chunk;
    return h_open(&o);
}

static h_result *run_text(ech_engine *e, const char *text, uint32_t max_tokens)
{
    const ech_prompt prompt = h_text(text);
    ech_request_options ro = h_request(&prompt);
    ro.max_tokens = max_tokens;
    return h_run(e, &ro);
}

static ech_request *submit_text(ech_engine *e, const char *text, uint32_t max_tokens)
{
    const ech_prompt prompt = h_text(text);
    ech_request_options ro = h_request(&prompt);
    ech_request *r;
    ro.max_tokens = max_tokens;
    ro.ignore_eos = true;
    assert_int_equal(ech_engine_submit(e, &ro, &r, NULL), ECH_OK);
    return r;
}

/* Reads until so many ids came. */
static void read_tokens(ech_request *r, int n)
{
    ech_event ev;
    while (n > 0) {
        assert_int_equal(ech_request_next(r, 20000, &ev, NULL), ECH_OK);
        n -= ev.kind == ECH_EVENT_TOKEN;
    }
}

/* ids of a text of about n tokens, different for each number */
static void long_ids(int32_t *ids, uint32_t n, uint64_t number)
{
    uint64_t rng = number * 7 + 1;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)h_draw(&rng, 2000);
}

static ech_request *submit_ids(ech_engine *e, const int32_t *ids, uint32_t n, uint32_t max_tokens)
{
    const ech_prompt prompt = { .ids = ids, .n_ids = n };
    ech_request_options ro = h_request(&prompt);
    ech_request *r;
    ro.max_tokens = max_tokens;
    ro.ignore_eos = true;
    assert_int_equal(ech_engine_submit(e, &ro, &r, NULL), ECH_OK);
    return r;
}

/* ---- prefix cache and KV ---- */

/* A, then B that shares nothing, then A: nothing of B, and what is said to be cached is. */
static void KV1(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    h_result *a = run_text(e, TALE, 30);
    h_result *b = run_text(e, "A big red balloon flew over the hill.", 30);
    h_result *again = run_text(e, TALE, 30);
    assert_int_equal(b->usage.cached_tokens, 0);
    assert_int_equal(again->usage.cached_tokens, again->usage.prompt_tokens - 1);
    h_assert_same(&a->choices[0], &again->choices[0]);
    h_free(&a);
    h_free(&b);
    h_free(&again);
    ech_engine_close(&e);
}

/*
 * Parallel prompts, each with a secret of its own: the pages of each hold ids that occur in no
 * other, and with a bias to copy (every id of the others is banned in none) the answer must be the
 * solo run's. cross: pages are exchanged on purpose, and that must be seen.
 */
enum { N_NEEDLES = 16 };

static void needles(bool cancels)
{
    uint64_t rng = h_seed(11);
    ech_engine *e = open_small(40, 256, 32);
    ech_engine_options o = h_options();
    o.no_prefix_cache = true;
    o.max_seq_len = 256;
    ech_engine *solo = h_open(&o);
    static int32_t ids[N_NEEDLES][120];
    h_result *alone[N_NEEDLES];
    for (int i = 0; i < N_NEEDLES; i++) {
        long_ids(ids[i], 120, 3); /* the same text … */
        for (int k = 0; k < 6; k++)
            ids[i][40 + k] = 100 * (i + 1) + k; /* … with a secret in its middle */
        ech_request *r = submit_ids(solo, ids[i], 120, 40);
        alone[i] = h_finish(&r);
    }
    for (int round = 0; round < 6; round++) {
        ech_request *r[N_NEEDLES];
        h_result *got[N_NEEDLES];
        for (int i = 0; i < N_NEEDLES; i++)
            r[i] = submit_ids(e, ids[i], 120, 40);
        for (int i = 0; i < N_NEEDLES; i++) {
            if (cancels && h_draw(&rng, 10) < 3) {
                read_tokens(r[i], (int)h_draw(&rng, 10));
                ech_request_close(&r[i]);
                continue;
            }
            got[i] = h_finish(&r[i]);
            h_assert_same(&alone[i]->choices[0], &got[i]->choices[0]);
            h_free(&got[i]);
        }
    }
    h_assert_idle(e);
    for (int i = 0; i < N_NEEDLES; i++)
        h_free(&alone[i]);
    ech_engine_close(&e);
    ech_engine_close(&solo);
}

static void KV2(void **state)
{
    (void)state;
    needles(false);
}

static void KV4(void **state)
{
    (void)state;
    needles(true);
}

static void KV6(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    h_result *first = run_text(e, TALE, 1);
    char longer[1024];
    (void)snprintf(longer, sizeof longer, "%s They were very pleased.", TALE);
    h_result *second = run_text(e, longer, 1);
    assert_in_range(second->usage.cached_tokens, first->usage.prompt_tokens - 1,
                    first->usage.prompt_tokens);
    h_free(&first);
    h_free(&second);
    ech_engine_close(&e);
}

static void KV7(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 8);
    h_result *cold = run_text(e, TALE, 20);
    for (int i = 0; i < 20; i++) {
        int32_t ids[300];
        long_ids(ids, 300, (uint64_t)i);
        ech_request *r = submit_ids(e, ids, 300, 5);
        (void)usleep((useconds_t)(i * 500));
        ech_request_close(&r); /* in the middle of its prompt */
        r = submit_ids(e, ids, 300, 5);
        h_result *after = h_finish(&r);
        r = submit_ids(e, ids, 300, 5);
        h_result *warm = h_finish(&r);
        h_assert_same(&after->choices[0], &warm->choices[0]);
        h_free(&after);
        h_free(&warm);
    }
    h_result *again = run_text(e, TALE, 20);
    h_assert_same(&cold->choices[0], &again->choices[0]);
    h_assert_idle(e);
    h_free(&cold);
    h_free(&again);
    ech_engine_close(&e);
}

/* A session's name on its first use. */
static void KV9(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    const ech_prompt prompt = h_text(TALE);
    ech_request_options ro = h_request(&prompt);
    ro.cache_salt = "a new session";
    h_result *a = h_run(e, &ro), *b = h_run(e, &ro);
    assert_int_equal(a->usage.cached_tokens, 0);
    assert_int_equal(b->usage.cached_tokens, b->usage.prompt_tokens - 1);
    ro.cache_salt = "another";
    h_result *c = h_run(e, &ro);
    assert_int_equal(c->usage.cached_tokens, 0);
    h_assert_same(&a->choices[0], &c->choices[0]);
    h_free(&a);
    h_free(&b);
    h_free(&c);
    ech_engine_close(&e);
}

static void KV10(void **state)
{
    (void)state;
    ech_engine *e = open_small(8, 128, 0);
    ech_request *r[4];
    h_result *solo = NULL;
    for (int i = 0; i < 4; i++)
        r[i] = submit_text(e, "What is the meaning of life?", 128);
    for (int i = 0; i < 4; i++) {
        h_result *got = h_finish(&r[i]);
        assert_int_equal(got->choices[0].finish, ECH_FINISH_LENGTH);
        assert_int_equal(got->usage.prompt_tokens + got->usage.completion_tokens, 128);
        if (solo == NULL)
            solo = got;
        else {
            h_assert_same(&solo->choices[0], &got->choices[0]);
            h_free(&got);
        }
    }
    h_free(&solo);
    ech_engine_close(&e);
}

static void KV11(void **state)
{
    (void)state;
    ech_engine *e = open_small(16, 512, 0); /* the runaway could take all of it */
    ech_request *runaway = submit_text(e, "The", 508);
    ech_request *r[3];
    for (int i = 0; i < 3; i++)
        r[i] = submit_text(e, TALE, 60);
    for (int i = 0; i < 3; i++) {
        h_result *got = h_finish(&r[i]);
        assert_int_equal(got->choices[0].finish, ECH_FINISH_LENGTH);
        assert_int_equal(got->choices[0].n, 60);
        h_free(&got);
    }
    h_result *last = h_finish(&runaway);
    assert_int_equal(last->choices[0].finish, ECH_FINISH_LENGTH);
    h_free(&last);
    ech_engine_close(&e);
}

static void KV12(void **state)
{
    (void)state;
    ech_engine *e = open_small(16, 512, 16);
    h_result *cold = run_text(e, TALE, 40);
    h_result *warm = run_text(e, TALE, 40);
    assert_true(warm->usage.cached_tokens > 0);
    for (uint64_t i = 0; i < 4; i++) { /* evicts everything */
        int32_t ids[400];
        long_ids(ids, 400, i);
        ech_request *r = submit_ids(e, ids, 400, 10);
        h_result *other = h_finish(&r);
        h_free(&other);
    }
    assert_true(h_counters(e).evictions > 0);
    h_result *evicted = run_text(e, TALE, 40);
    h_assert_same(&cold->choices[0], &warm->choices[0]);
    h_assert_same(&cold->choices[0], &evicted->choices[0]);
    h_free(&cold);
    h_free(&warm);
    h_free(&evicted);
    ech_engine_close(&e);
}

/* A prefix of every length is reused, and goes on as if it had been computed. */
static void KV14(void **state)
{
    (void)state;
    enum { LEN = 100 };
    int32_t ids[LEN];
    long_ids(ids, LEN, 77);
    ech_engine *cold = open_small(64, 256, 0);
    ech_engine_options o = h_options();
    o.no_prefix_cache = true;
    ech_engine *solo = h_open(&o);
    for (uint32_t n = 1; n <= LEN; n++) {
        ech_request *a = submit_ids(cold, ids, n, 3), *b = submit_ids(solo, ids, n, 3);
        h_result *x = h_finish(&a), *y = h_finish(&b);
        h_assert_same(&x->choices[0], &y->choices[0]);
        if (n > 1) assert_int_equal(x->usage.cached_tokens, n - 1);
        h_free(&x);
        h_free(&y);
    }
    ech_engine_close(&cold);
    ech_engine_close(&solo);
}

/* A turn is aborted, the session goes on. */
static void KV15(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    ech_engine *fresh = open_small(64, 512, 0);
    for (int cut = 1; cut < 30; cut += 4) {
        ech_request *turn = submit_text(e, TALE, 100);
        read_tokens(turn, cut);
        ech_request_close(&turn);
        char next[1024];
        (void)snprintf(next, sizeof next, "%s And then number %d said", TALE, cut);
        h_result *a = run_text(e, next, 20), *b = run_text(fresh, next, 20);
        h_assert_same(&a->choices[0], &b->choices[0]);
        h_free(&a);
        h_free(&b);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
    ech_engine_close(&fresh);
}

/* Log-probabilities of a long prompt on these kernels with this type of KV; false: not on this CPU.
 */
static bool score_with(const char *isa, const char *model, ech_kv_type type, h_result **ret)
{
    static int32_t ids[80];
    char dir[512];
    ech_engine *e = NULL;
    ech_engine_options o = h_options();
    (void)snprintf(dir, sizeof dir, ECH_SOURCE_DIR "/%s", model);
    o.model_dir = dir;
    o.kv_type = type;
    o.kv_memory = 0;
    o.max_seq_len = 256;
    o.prefill_chunk = 32;
    (void)setenv("ECHELON_CPU", isa, 1);
    const ech_status rc = ech_engine_open(&e, &o, NULL);
    (void)unsetenv("ECHELON_CPU");
    if (rc != ECH_OK) return false;
    long_ids(ids, 80, 5);
    const ech_prompt prompt = { .ids = ids, .n_ids = 80 };
    ech_request_options ro = h_request(&prompt);
    ro.prompt_logprobs = 0;
    ro.max_tokens = 8; /* rows of one, too */
    ro.ignore_eos = true;
    *ret = h_run(e, &ro);
    assert_int_equal((*ret)->error.code, ECH_OK);
    ech_engine_close(&e);
    return true;
}

/* How far the worst of the prompt's log-probabilities is from another run's. */
static double worst_difference(const h_choice *a, const h_choice *b)
{
    double worst = 0;
    assert_int_equal(a->n_prompt, b->n_prompt);
    for (uint32_t i = 1; i < a->n_prompt; i++) {
        const double d = fabs((double)a->prompt_logprobs[i] - (double)b->prompt_logprobs[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

/* Every type of KV on every set of kernels and every head size says what f32 on the plain ones
 * does, as nearly as its digits allow. */
static void KV17(void **state)
{
    (void)state;
    static const char *const MODELS[] = { "tests/golden/qwen3/mha-f16",            // heads of 16
                                          "tests/golden/qwen3/gqa-tied-bf16",      // 32
                                          "models/tale",                           // 64
                                          "tests/golden/qwen3/mqa-sharded-bf16" }; // 128
    static const char *const ISAS[] = { "ref", "avx2", "avx512" };
    static const struct {
        ech_kv_type type;
        double most;
    } TYPES[] = {
        { ECH_KV_F32, 1e-3 }, { ECH_KV_F16, 0.05 }, { ECH_KV_BF16, 0.3 }, { ECH_KV_Q8, 0.5 }
    };
    for (size_t m = 0; m < 4; m++) {
        h_result *exact = NULL;
        assert_true(score_with("ref", MODELS[m], ECH_KV_F32, &exact));
        for (size_t i = 0; i < 12; i++) {
            h_result *r = NULL;
            if (!score_with(ISAS[i / 4], MODELS[m], TYPES[i % 4].type, &r)) continue;
            const double d = worst_difference(&exact->choices[0], &r->choices[0]);
            if (!(d <= TYPES[i % 4].most))
                fail_msg("%s, %s, KV type %d: off by %g", MODELS[m], ISAS[i / 4],
                         (int)TYPES[i % 4].type, d);
            h_free(&r);
        }
        h_free(&exact);
    }
}

static void KV19(void **state)
{
    (void)state;
    ech_engine *e = open_small(4, 512, 0); /* a pool of 128 positions */
    h_result *r = run_text(e, "Once upon a time", 100000);
    assert_int_equal(r->submitted, ECH_OK);
    assert_int_equal(r->error.code, ECH_OK);
    ech_request *more = submit_text(e, "Once upon a time", 100000);
    h_result *whole = h_finish(&more);
    assert_int_equal(whole->choices[0].finish, ECH_FINISH_LENGTH);
    assert_int_equal(whole->usage.prompt_tokens + whole->usage.completion_tokens, 128);
    h_free(&r);
    h_free(&whole);
    ech_engine_close(&e);
}

/* How far the cache goes, and what made it end. */
static void CT8(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    h_result *r =
        run_text(e, "It is Monday, 10:15. You are a helpful turtle that likes cheese.", 1);
    const ech_prompt later =
        h_text("It is Monday, 10:45. You are a helpful turtle that likes cheese.");
    ech_cache_explanation x;
    assert_int_equal(ech_engine_cache_explain(e, &later, NULL, &x, NULL), ECH_OK);
    assert_true(x.has_divergence && x.cached_tokens > 0 && x.cached_tokens < x.n_tokens);
    assert_non_null(strstr(x.around, "10:[4][1]"));
    const ech_request_options ro = h_request(&later);
    h_result *second = h_run(e, &ro);
    assert_int_equal(second->usage.cached_tokens, x.cached_tokens);
    h_free(&r);
    h_free(&second);
    ech_engine_close(&e);
}

/* ---- cancellation and scheduling ---- */

static void CX1(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.max_running = 1;
    ech_engine *e = h_open(&o);
    ech_request *r[50];
    ech_request *busy = submit_text(e, TALE, 200);
    read_tokens(busy, 1);
    for (int i = 0; i < 50; i++)
        r[i] = submit_text(e, TALE, 300);
    for (int i = 0; i < 49; i++)
        ech_request_close(&r[i]);
    ech_request_close(&busy);
    const uint64_t before = h_counters(e).steps;
    read_tokens(r[49], 1);
    assert_true(h_counters(e).steps - before <= 8);
    ech_request_close(&r[49]);
    h_assert_idle(e);
    ech_engine_close(&e);
}

static void CX2(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 8);
    for (uint64_t i = 0; i < 200; i++) {
        int32_t ids[200];
        long_ids(ids, 200, i);
        ech_request *stream = submit_text(e, "Once", 100);
        read_tokens(stream, 1);
        ech_request *prefill = submit_ids(e, ids, 200, 1);
        ech_request_close(&stream);
        if (i % 2 == 0) {
            ech_request_close(&prefill);
            continue;
        }
        h_result *r = h_finish(&prefill);
        assert_int_equal(r->choices[0].n, 1);
        h_free(&r);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
}

static void CX3(void **state)
{
    (void)state;
    ech_engine *e = open_small(24, 256, 0);
    for (int i = 0; i < 400; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "<|im_start|>user\ncount to %d<|im_end|>\n", i % 37);
        h_result *r = run_text(e, text, 8); /* the harness gives up after a minute without event */
        assert_int_equal(r->error.code, ECH_OK);
        h_free(&r);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
}

static void CX5(void **state)
{
    (void)state;
    ech_engine *e = open_small(256, 4096, 16);
    static int32_t ids[4000];
    long_ids(ids, 4000, 9);
    ech_request *r = submit_ids(e, ids, 4000, 1);
    ech_event ev = { 0 };
    while (ev.kind != ECH_EVENT_PROGRESS)
        assert_int_equal(ech_request_next(r, 20000, &ev, NULL), ECH_OK);
    ech_request_cancel(r);
    while (ev.kind != ECH_EVENT_DONE)
        assert_int_equal(ech_request_next(r, 20000, &ev, NULL), ECH_OK);
    const uint64_t rows = h_counters(e).prefill_rows;
    assert_true(rows < 2000);
    h_assert_idle(e);
    (void)usleep(100000);
    assert_true(h_counters(e).prefill_rows <= rows + 48); /* steps that were in flight */
    ech_request_close(&r);
    ech_engine_close(&e);
}

static void CX8(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    for (int i = 0; i < 20; i++) {
        ech_request *r = submit_text(e, TALE, 400);
        read_tokens(r, 1 + i % 5);
        const uint64_t before = h_counters(e).steps;
        ech_request_close(&r);
        h_assert_idle(e);
        assert_true(h_counters(e).steps - before <= 3 + 4); /* two in flight, reading takes time */
    }
    ech_engine_close(&e);
}

/* Prompts keep arriving; a stream goes on in every step. */
static void CX10(void **state)
{
    (void)state;
    ech_engine *e = open_small(128, 512, 16);
    ech_request *stream = submit_text(e, "Once", 300);
    read_tokens(stream, 5);
    ech_request *prompts[40] = { NULL };
    const ech_engine_counters before = h_counters(e);
    int n = 0;
    ech_event ev = { 0 };
    while (ev.kind != ECH_EVENT_FINISH) {
        assert_int_equal(ech_request_next(stream, 20000, &ev, NULL), ECH_OK);
        if (ev.kind != ECH_EVENT_TOKEN || n >= 40) continue;
        int32_t ids[200];
        long_ids(ids, 200, (uint64_t)n);
        prompts[n++] = submit_ids(e, ids, 200, 1);
    }
    const ech_engine_counters after = h_counters(e);
    /* 295 tokens took hardly more steps than tokens: none was skipped for a prompt. */
    assert_true(after.steps - before.steps < 330);
    assert_true(after.mixed_steps > before.mixed_steps);
    for (int i = 0; i < n; i++) {
        h_result *r = h_finish(&prompts[i]);
        assert_int_equal(r->choices[0].n, 1);
        h_free(&r);
    }
    ech_request_close(&stream);
    ech_engine_close(&e);
}

static void CX11(void **state)
{
    (void)state;
    ech_engine *e = open_small(256, 4096, 16);
    static int32_t ids[3000];
    long_ids(ids, 3000, 1);
    ech_request *longest = submit_ids(e, ids, 3000, 1);
    ech_event ev = { 0 };
    while (ev.kind != ECH_EVENT_PROGRESS)
        assert_int_equal(ech_request_next(longest, 20000, &ev, NULL), ECH_OK);
    ech_request *shorter = submit_text(e, "The", 1);
    h_result *r = h_finish(&shorter);
    while (ech_request_next(longest, 0, &ev, NULL) == ECH_OK)
        assert_int_equal(ev.kind, ECH_EVENT_PROGRESS);
    assert_true(ev.progress_done < 2000);
    ech_request_close(&longest);
    h_free(&r);
    ech_engine_close(&e);
}

static void CX12(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.threads = 64;
    ech_engine *e = h_open(&o);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(e, &info);
    assert_in_range(info.threads, 1, sysconf(_SC_NPROCESSORS_CONF));
    h_result *r = run_text(e, "Once", 5);
    assert_int_equal(r->error.code, ECH_OK);
    h_free(&r);
    ech_engine_close(&e);
}

static void CX13(void **state)
{
    (void)state;
    ech_engine *e = open_small(4, 64, 0);
    for (int i = 0; i < 50; i++) {
        ech_request *r = submit_text(e, "Once upon a time", 1000);
        h_result *got = h_finish(&r);
        assert_int_equal(got->choices[0].finish, ECH_FINISH_LENGTH);
        assert_int_equal(got->usage.prompt_tokens + got->usage.completion_tokens, 64);
        h_free(&got);
    }
    ech_engine_close(&e);
}

static void CX15(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    const ech_prompt prompt = h_text("Once");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ro.max_tokens = 500;
    ro.n = 16;
    ro.deadline_ns = ech_now_ns() + 5 * ECH_NS_PER_MS;
    h_result *r = h_run(e, &ro);
    assert_int_equal(r->error.code, ECH_ETIMEOUT);
    h_assert_idle(e);
    h_free(&r);
    ech_engine_close(&e);
}

static void CX18(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    o.max_queued = 4;
    o.max_running = 1;
    ech_engine *e = h_open(&o);
    ech_request *busy = submit_text(e, TALE, 400);
    read_tokens(busy, 1);
    const ech_prompt prompt = h_text("x");
    const ech_request_options ro = h_request(&prompt);
    ech_request *r[20] = { NULL };
    int n_taken = 0, n_refused = 0;
    for (int i = 0; i < 20; i++) {
        ech_error err;
        const ech_status rc = ech_engine_submit(e, &ro, &r[i], &err);
        n_taken += rc == ECH_OK;
        n_refused += rc == ECH_EBUSY;
        if (rc == ECH_EBUSY) assert_true(ech_status_retryable(rc) && strstr(err.text, "4") != NULL);
    }
    assert_int_equal(n_taken, 4);
    assert_int_equal(n_refused, 16);
    assert_int_equal(h_counters(e).requests_refused, 16);
    ech_request_close(&busy);
    for (int i = 0; i < 20; i++)
        ech_request_close(&r[i]);
    h_assert_idle(e);
    ech_engine_close(&e);
}

/* Any value of any numeric field is refused by name or served; the engine goes on. */
static void CX20(void **state)
{
    (void)state;
    static const float ODD[] = { 0, -1, -0.0f, 1, 2, 0.01f, 1e-30f, 1e30f, 3.4e38f };
    ech_engine *e = open_small(64, 512, 0);
    uint64_t rng = h_seed(20);
    int n_refused = 0;
    for (int i = 0; i < 300; i++) {
        const ech_prompt prompt = h_text("Once");
        ech_request_options ro = h_request(&prompt);
        ech_sampling *const s = &ro.sampling;
        float *const fields[] = { &s->temperature,
                                  &s->top_p,
                                  &s->min_p,
                                  &s->typical_p,
                                  &s->repetition_penalty,
                                  &s->frequency_penalty,
                                  &s->presence_penalty,
                                  &s->dry_multiplier,
                                  &s->dry_base,
                                  &s->xtc_probability,
                                  &s->xtc_threshold,
                                  &s->mirostat_tau,
                                  &s->mirostat_eta };
        const uint32_t which = h_draw(&rng, 17), value = h_draw(&rng, 12);
        const int64_t wide[] = { 0, -1, 1, INT32_MIN, INT32_MAX, 7 };
        ro.max_tokens = 4;
        if (which < 13)
            *fields[which] = value < 9     ? ODD[value]
                             : value == 9  ? NAN
                             : value == 10 ? INFINITY
                                           : -INFINITY;
        if (which == 13) s->top_k = (int32_t)wide[value % 6];
        if (which == 14) ro.max_tokens = (uint32_t)wide[value % 6];
        if (which == 15) ro.n = (uint32_t)wide[value % 6];
        if (which == 16) ro.logprobs = (int32_t)wide[value % 6];
        if (ro.max_tokens > 400) ro.stop_ids = NULL;
        h_result *r = h_run(e, &ro);
        n_refused += r->submitted != ECH_OK;
        assert_true(r->submitted == ECH_OK || r->submitted == ECH_EINVAL ||
                    r->submitted == ECH_ELIMIT);
        if (r->submitted == ECH_OK)
            if (r->error.code != ECH_OK && r->error.code != ECH_ENUMERIC &&
                r->error.code != ECH_EINVAL)
                fail_msg("field %u, value %u: %s", which, value, r->error.text);
        h_free(&r);
    }
    assert_in_range(n_refused, 50, 250);
    h_result *healthy = run_text(e, "Once", 4);
    assert_int_equal(healthy->choices[0].n, 4);
    h_free(&healthy);
    ech_engine_close(&e);
}

/* ---- determinism and limits ---- */

static void DT1(void **state)
{
    (void)state;
    ech_engine *e = open_small(128, 512, 0);
    h_result *alone = run_text(e, TALE, 50);
    ech_engine *other = open_small(128, 512, 0);
    ech_request *r[16];
    for (uint64_t i = 0; i < 15; i++) {
        int32_t ids[80];
        long_ids(ids, 20 + 4 * (uint32_t)i, i);
        r[i] = submit_ids(other, ids, 20 + 4 * (uint32_t)i, 60);
    }
    h_result *among = run_text(other, TALE, 50);
    h_result *warm = run_text(other, TALE, 50);
    h_assert_same(&alone->choices[0], &among->choices[0]);
    h_assert_same(&alone->choices[0], &warm->choices[0]);
    for (int i = 0; i < 15; i++)
        ech_request_close(&r[i]);
    h_free(&alone);
    h_free(&among);
    h_free(&warm);
    ech_engine_close(&e);
    ech_engine_close(&other);
}

static void DT2(void **state)
{
    (void)state;
    ech_engine *e = open_small(128, 512, 0);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ro.sampling.seed = 42;
    h_result *first = h_run(e, &ro);
    for (int round = 0; round < 3; round++) {
        ech_request *load[8];
        for (int i = 0; i < 8; i++)
            load[i] = submit_text(e, TALE, 100);
        h_result *again = h_run(e, &ro);
        h_assert_same(&first->choices[0], &again->choices[0]);
        h_free(&again);
        for (int i = 0; i < 8; i++)
            ech_request_close(&load[i]);
    }
    ro.sampling.seed = 43;
    h_result *different = h_run(e, &ro);
    assert_false(h_is_same(&first->choices[0], &different->choices[0]));
    h_free(&first);
    h_free(&different);
    ech_engine_close(&e);
}

static void DT3(void **state)
{
    (void)state;
    ech_engine *e = open_small(128, 512, 0);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ro.sampling.seed = 5;
    ro.n = 8;
    h_result *a = h_run(e, &ro), *b = h_run(e, &ro);
    assert_int_equal(a->n_choices, 8);
    for (int i = 0; i < 8; i++) {
        h_assert_same(&a->choices[i], &b->choices[i]);
        assert_true(a->choices[i].n > 0);
        for (int k = 0; k < i; k++)
            assert_false(h_is_same(&a->choices[i], &a->choices[k]));
    }
    h_free(&a);
    h_free(&b);
    ech_engine_close(&e);
}

static void TR2(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    const ech_prompt prompt = h_text("Once");
    ech_request_options ro;
    ech_request_options_default(&ro);
    ro.prompts = &prompt;
    ro.n_prompts = 1;
    ro.ignore_eos = true;
    h_result *r = h_run(e, &ro);
    assert_int_equal(r->choices[0].finish, ECH_FINISH_LENGTH);
    assert_int_equal(r->choices[0].n, 256);
    h_free(&r);
    ech_engine_close(&e);
}

static void TK10(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    static const int32_t none[1];
    const ech_prompt empty[] = { { .text = "" }, { .ids = none, .n_ids = 0 }, { .text = NULL } };
    for (size_t i = 0; i < 3; i++) {
        const ech_request_options ro = h_request(&empty[i]);
        h_result *r = h_run(e, &ro);
        assert_int_equal(r->submitted, ECH_EINVAL);
        assert_non_null(strstr(r->error.text, "empty"));
        h_free(&r);
    }
    h_result *r = run_text(e, "x", 2);
    assert_int_equal(r->choices[0].n, 2);
    h_free(&r);
    ech_engine_close(&e);
}

/* Every end-of-sequence id of the model ends an answer, whatever else is set. */
static void TK11(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(e, &info);
    assert_int_equal(info.n_eos_ids, 2);
    for (size_t i = 0; i < info.n_eos_ids; i++) {
        const ech_prompt prompt = h_text("Once upon a time");
        ech_request_options ro = h_request(&prompt);
        const ech_logit_bias bias = { .id = info.eos_ids[i], .bias = 1000 };
        ro.sampling.logit_bias = &bias;
        ro.sampling.n_logit_bias = 1;
        ro.sampling.top_p = 0.9f;
        ro.sampling.temperature = 1;
        h_result *r = h_run(e, &ro);
        assert_int_equal(r->choices[0].finish, ECH_FINISH_STOP);
        assert_int_equal(r->choices[0].n, 1);
        assert_int_equal(r->choices[0].ids[0], info.eos_ids[i]);
        assert_int_equal(r->choices[0].text.len, 0);
        ro.min_tokens = 5; /* banned until then */
        h_result *later = h_run(e, &ro);
        assert_int_equal(later->choices[0].n, 6);
        h_free(&r);
        h_free(&later);
    }
    ech_engine_close(&e);
}

static void TK12(void **state)
{
    (void)state;
    ech_engine *e = open_small(64, 512, 0);
    ech_request *r = submit_text(e, "Once upon a time", 200);
    h_result *got = h_finish(&r);
    assert_int_equal(got->choices[0].n, 200);
    assert_int_equal(got->choices[0].finish, ECH_FINISH_LENGTH);
    h_free(&got);
    ech_engine_close(&e);
}

/* ---- memory and kernels, as they are planned ---- */

/* An engine that has its options and model, and nothing mapped. */
static ech_engine *plan_for(const char *folder)
{
    ech_engine *const e = calloc(1, sizeof *e);
    ech_error err;
    assert_non_null(e);
    ech_engine_options_default(&e->options);
    e->options.max_running = 32;
    e->options.prefill_chunk = 256;
    e->options.platform = "cpu";
    assert_int_equal(ech_model_open(&e->model, folder, &err), ECH_OK);
    ech_model_get_info(e->model, &e->model_info);
    return e;
}

static void close_plan(ech_engine *e)
{
    ech_model_close(&e->model);
    free(e);
}

/* What is said on the way, to be freed. */
static char *plan_and_listen(ech_engine *e, uint64_t available, ech_sizes *ret, ech_status want,
                             ech_error *err)
{
    FILE *const said = tmpfile();
    const int saved = dup(STDERR_FILENO);
    assert_true(said != NULL && saved >= 0);
    (void)dup2(fileno(said), STDERR_FILENO);
    const ech_status rc = ech_sizes_plan(e, available, "the test", ret, err);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    assert_int_equal(rc, want);
    rewind(said);
    char *const text = calloc(1, 2000);
    assert_non_null(text);
    (void)fread(text, 1, 1999, said);
    (void)fclose(said);
    return text;
}

/* Bytes of everything but the pages, and of the pages of one answer of full length. */
static void needs_of(ech_engine *e, uint64_t *ret_rest, uint64_t *ret_one)
{
    ech_sizes s;
    assert_int_equal(ech_sizes_plan(e, UINT64_MAX / 4, NULL, &s, NULL), ECH_OK);
    assert_int_equal(s.shape.n_pages, 32 * ech_memory_table_len(&s.shape));
    *ret_rest = s.plan.weights_bytes + s.plan.arena_bytes + s.plan.logits_bytes;
    *ret_one = ech_memory_table_len(&s.shape) * s.plan.kv_page_bytes;
}

/* By default one answer of full length fits, or it is said why it does not. */
static void ME4(void **state)
{
    (void)state;
    ech_engine *const e = plan_for(ECH_SOURCE_DIR "/models/tale");
    uint64_t rest, one;
    needs_of(e, &rest, &one);
    for (uint32_t quarters = 1; quarters < 40; quarters++) {
        ech_sizes s;
        char *const said = plan_and_listen(e, rest + one / 4 * quarters, &s, ECH_OK, NULL);
        const uint64_t pool = (uint64_t)s.shape.n_pages * ECH_KV_TOKENS;
        assert_true(s.shape.max_seq_len <= pool); /* what is promised can be held */
        assert_true(s.shape.n_pages * s.plan.kv_page_bytes <= one / 4 * quarters);
        if (quarters >= 5) assert_int_equal(s.shape.max_seq_len, e->model_info.max_context);
        if (s.shape.max_seq_len == e->model_info.max_context) {
            assert_string_equal(said, "");
        } else {
            assert_non_null(strstr(said, "of the model's 4096"));
            assert_non_null(strstr(said, "the test"));
            assert_non_null(strstr(said, "--kv-type"));
        }
        free(said);
    }
    close_plan(e);
}

/* What can't fit is refused with its numbers, before anything is taken; by the engine as well. */
static void ME5(void **state)
{
    (void)state;
    ech_engine *const e = plan_for(ECH_SOURCE_DIR "/models/tale");
    uint64_t rest, one;
    needs_of(e, &rest, &one);
    const uint64_t little[] = { 0, 1, rest / 2, rest, rest + 1 };
    for (size_t i = 0; i < sizeof little / sizeof little[0]; i++) {
        ech_sizes s;
        ech_error err;
        free(plan_and_listen(e, little[i], &s, ECH_ENOMEM, &err));
        assert_non_null(strstr(err.text, "weights"));
        assert_non_null(strstr(err.text, "KV cache"));
    }
    close_plan(e);
    for (uint64_t kv = UINT64_C(1) << 38; kv != 0; kv <<= 5) {
        ech_engine_options o = h_options();
        ech_engine *none = NULL;
        ech_error err;
        o.kv_memory = kv;
        assert_int_equal(ech_engine_open(&none, &o, &err), ECH_ENOMEM);
        assert_null(none);
        assert_non_null(strstr(err.text, "KV cache"));
    }
}

/* The plan names the kernel of each class of tensors, and the instructions that are there. */
static void CP10(void **state)
{
    (void)state;
    ech_engine_options o = h_options();
    for (int q8 = 0; q8 < 2; q8++) {
        o.quantize = q8 ? ECH_QUANTIZE_Q8 : ECH_QUANTIZE_KEEP;
        ech_engine *e = h_open(&o);
        ech_engine_info info = { .struct_size = sizeof info };
        ech_machine_info machine = { .struct_size = sizeof machine };
        ech_engine_info_get(e, &info);
        assert_int_equal(ech_machine_info_get(&machine, NULL), ECH_OK);
        uint32_t n_found = 0;
        for (uint32_t i = 0; i < machine.n_paths; i++) {
            const ech_kernel_path p = machine.paths[i];
            char line[100];
            (void)snprintf(line, sizeof line, " %s weights × %s by %s,", p.weights, p.activations,
                           p.isa);
            n_found += strstr(info.plan, line) != NULL;
        }
        uint32_t n_named = 0;
        for (const char *at = info.plan; (at = strstr(at, " weights × ")) != NULL; at++)
            n_named++;
        assert_true(n_named > 0);
        assert_int_equal(n_found, n_named);
        assert_non_null(strstr(info.plan, q8 ? "q8 weights × q8" : "bf16 weights × f32"));
        assert_non_null(strstr(info.plan, "f16 keys and values × f32 by "));
        ech_engine_close(&e);
    }
}

int main(int argc, char **argv)
{
#define CASE(id) cmocka_unit_test(id)
    const struct CMUnitTest tests[] = {
        CASE(KV1),  CASE(KV2),  CASE(KV4),  CASE(KV6),  CASE(KV7),  CASE(KV9),
        CASE(KV10), CASE(KV11), CASE(KV12), CASE(KV14), CASE(KV15), CASE(KV17),
        CASE(KV19), CASE(CT8),  CASE(CX1),  CASE(CX2),  CASE(CX3),  CASE(CX5),
        CASE(CX8),  CASE(CX10), CASE(CX11), CASE(CX12), CASE(CX13), CASE(CX15),
        CASE(CX18), CASE(CX20), CASE(DT1),  CASE(DT2),  CASE(DT3),  CASE(TR2),
        CASE(TK10), CASE(TK11), CASE(TK12), CASE(ME4),  CASE(ME5),  CASE(CP10),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
