/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, from several threads: requests of every kind, cancelled, closed, late or left
 * unread, on a pool that is far too small, while chips die, others ask for counters and
 * explanations, and in the end the engine is closed under them. What is asked afterwards is
 * answered as ever. Meant for the sanitizers as much as for its own checks.
 *
 *     test_storm [REQUESTS]        ECH_SEED=n repeats one
 */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/constraint.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/trouble.h"

enum { N_CLIENTS = 6, MAX_PROMPT = 150 };

static uint32_t n_requests = 300;

static ech_engine_options storm_options(const char *platform)
{
    ech_engine_options o = h_options();
    o.platform = platform;
    o.prefill_chunk = 24;
    o.max_running = 6;
    o.max_seq_len = 256;
    o.kv_memory = o.kv_memory / 64 * 10; /* one answer of full length takes eight */
    o.event_bytes = 2000;                /* readers fall behind */
    o.chip_deaths = 1000;
    return o;
}

/* ---- a hook that fails when it is told to ---- */

typedef struct moody {
    uint32_t n_opened; // atomic
    uint32_t fails_at; // mask or accept of that number, of each state; 0: never
    bool fails_open;   // the third state doesn't open
} moody;

typedef struct mood {
    const moody *of;
    uint32_t n_calls;
} mood;

static ech_status moody_open(void *self, void **ret_state, ech_error *err)
{
    moody *const m = self;
    if (ech_fetch_add(&m->n_opened, 1) == 2 && m->fails_open) {
        err->code = ECH_ELIMIT;
        return ECH_ELIMIT;
    }
    mood *const s = malloc(sizeof *s);
    *s = (mood){ .of = m };
    *ret_state = s;
    return ECH_OK;
}

static ech_status count_call(mood *s, ech_error *err)
{
    if (++s->n_calls != s->of->fails_at) return ECH_OK;
    err->code = ECH_ELIMIT;
    return ECH_ELIMIT;
}

static ech_status moody_mask(void *state, uint32_t *words, size_t n_words, ech_error *err)
{
    memset(words, 0xff, n_words * sizeof *words);
    return count_call(state, err);
}

static ech_status moody_accept(void *state, int32_t id, bool *ret_ended, ech_error *err)
{
    (void)id;
    *ret_ended = false;
    return count_call(state, err);
}

static ech_constraint_hook moody_hook(moody *m)
{
    return (ech_constraint_hook){ m, moody_open, moody_mask, moody_accept, free };
}

/* ---- clients ---- */

typedef struct client {
    ech_engine *engine;
    ech_constraint *constraint;
    uint32_t *left; // atomic
    uint64_t rng;
    uint32_t n_lost; // requests without an end
    int32_t ids[MAX_PROMPT];
    ech_prompt prompts[2];
    moody moody;
    ech_constraint_hook hook;
    h_result got;
} client;

static ech_request_options any_request(client *c)
{
    uint64_t *const rng = &c->rng;
    for (int i = 0; i < MAX_PROMPT; i++)
        c->ids[i] = i < 64 ? 7 * i : (int32_t)h_draw(rng, 2000);
    c->prompts[0] = (ech_prompt){ .ids = c->ids, .n_ids = 1 + h_draw(rng, MAX_PROMPT) };
    c->prompts[1] = h_text("Once upon a time");
    ech_request_options o = h_request(c->prompts);
    o.n_prompts = 1 + h_draw(rng, 2);
    o.n = 1 + h_draw(rng, 4);
    o.max_tokens = 1 + h_draw(rng, 60);
    o.logprobs = (int32_t)h_draw(rng, 7) - 1;
    o.priority = (int32_t)h_draw(rng, 3);
    o.sampling.temperature = (float)h_draw(rng, 2);
    o.sampling.mirostat = h_draw(rng, 5) == 0 ? 2 : 0;
    o.sampling.dry_multiplier = h_draw(rng, 4) == 0 ? 1 : 0;
    if (h_draw(rng, 5) == 0) o.prompt_logprobs = 2;
    if (h_draw(rng, 6) == 0) o.echo = true;
    if (h_draw(rng, 8) == 0) o.deadline_ns = ech_now_ns() + h_draw(rng, 20) * ECH_NS_PER_MS - 1;
    const uint32_t kind = h_draw(rng, 4);
    if (kind == 0) o.constraint = c->constraint;
    if (kind == 1) {
        c->moody = (moody){ .fails_at = h_draw(rng, 12), .fails_open = h_draw(rng, 3) == 0 };
        c->hook = moody_hook(&c->moody);
        o.hook = &c->hook;
    }
    return o;
}

/* Reads some, or all; then leaves in one of several ways. */
static void go_through(client *c, ech_request *r)
{
    ech_event ev = { 0 };
    uint32_t left = h_draw(&c->rng, 3) == 0 ? h_draw(&c->rng, 30) : UINT32_MAX;
    if (h_draw(&c->rng, 6) == 0) (void)usleep(h_draw(&c->rng, 20000)); /* falls behind */
    while (ev.kind != ECH_EVENT_DONE && left-- > 0) {
        if (ech_request_next(r, 60000, &ev, NULL) != ECH_OK) {
            c->n_lost++;
            return;
        }
        h_take(&c->got, &ev);
        if (h_draw(&c->rng, 60) == 0) ech_request_cancel(r);
    }
}

static void *run_client(void *arg)
{
    client *const c = arg;
    for (;;) {
        uint32_t left = ech_load_relaxed(c->left);
        if (left == 0) return NULL;
        if (!ech_cas(c->left, &left, left - 1)) continue;
        const ech_request_options o = any_request(c);
        ech_request *r;
        if (ech_engine_submit(c->engine, &o, &r, NULL) != ECH_OK) continue;
        go_through(c, r);
        ech_request_close(&r);
        h_clear(&c->got);
    }
}

/* Looks at everything that may be looked at. */
typedef struct looker {
    ech_engine *engine;
    uint32_t ends; // atomic
    pthread_t thread;
} looker;

static void *look(void *arg)
{
    looker *const l = arg;
    const ech_prompt prompt = h_text("Once upon a time");
    while (!ech_load_acquire(&l->ends)) {
        ech_cache_explanation x;
        ech_mask_vocab *vocab = NULL;
        (void)h_counters(l->engine);
        (void)ech_engine_cache_explain(l->engine, &prompt, NULL, &x, NULL);
        if (ech_engine_mask_vocab(l->engine, &vocab, NULL) == ECH_OK) ech_mask_vocab_unref(&vocab);
        (void)usleep(500);
    }
    return NULL;
}

static void run_clients(ech_engine *e, ech_constraint *constraint, uint32_t n, uint64_t seed)
{
    static client CLIENTS[N_CLIENTS];
    pthread_t threads[N_CLIENTS];
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        CLIENTS[i] =
            (client){ .engine = e, .constraint = constraint, .left = &n, .rng = seed * 31 + i };
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &CLIENTS[i]), 0);
    }
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(CLIENTS[i].n_lost, 0);
    }
}

static void storm_on(const char *platform)
{
    const uint64_t seed = h_seed(20261130);
    const ech_engine_options o = storm_options(platform);
    const ech_prompt prompt = h_text("Once upon a time, there was");
    const ech_request_options ro = h_request(&prompt);
    ech_engine *e = h_open(&o);
    h_result *before = h_run(e, &ro);
    ech_constraint *constraint = h_constraint(e, ECH_CONSTRAINT_REGEX, "([a-z]{2,5}#@~%0){1,9}");
    looker l = { .engine = e };
    h_trouble t;
    assert_int_equal(pthread_create(&l.thread, NULL, look, &l), 0);
    h_trouble_start(&t, e, H_CHIPS_DIE, 12);
    run_clients(e, constraint, n_requests, seed);
    const uint32_t n_kills = h_trouble_stop(&t);
    ech_store_release(&l.ends, 1);
    (void)pthread_join(l.thread, NULL);
    h_assert_idle(e);
    h_result *after = h_run(e, &ro);
    h_assert_same(&before->choices[0], &after->choices[0]);
    const ech_engine_counters c = h_counters(e);
    print_message("%s: %u kills, %llu preemptions, finished %llu stop %llu length %llu cancelled "
                  "%llu error\n",
                  platform, n_kills, (unsigned long long)c.preemptions,
                  (unsigned long long)c.finished_stop, (unsigned long long)c.finished_length,
                  (unsigned long long)c.finished_cancelled, (unsigned long long)c.finished_error);
    h_free(&before);
    h_free(&after);
    ech_constraint_unref(&constraint);
    ech_engine_close(&e);
}

static void an_engine_outlives_a_storm(void **state)
{
    (void)state;
    storm_on("sim");
}

static void with_a_model_that_computes(void **state)
{
    (void)state;
    storm_on("cpu");
}

/* The engine goes while requests run, wait, are being read, and a chip has just died. */
static void closing_ends_a_storm(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        const ech_engine_options o = storm_options("sim");
        ech_engine *e = h_open(&o);
        ech_constraint *constraint = h_constraint(e, ECH_CONSTRAINT_REGEX, "([a-z]{2,5}#@~){1,9}");
        const ech_prompt prompt = h_text("Once upon a time");
        ech_request *r[20];
        for (uint32_t i = 0; i < 20; i++) {
            ech_request_options ro = h_request(&prompt);
            ro.n = 1 + i % 4;
            ro.max_tokens = 200;
            ro.ignore_eos = true;
            if (i % 3 == 0) ro.constraint = constraint;
            assert_int_equal(ech_engine_submit(e, &ro, &r[i], NULL), ECH_OK);
        }
        h_trouble t;
        h_trouble_start(&t, e, H_CHIPS_DIE, 6);
        (void)usleep(round * 4000);
        (void)h_trouble_stop(&t);
        for (uint32_t i = 0; i < 10; i++)
            ech_request_cancel(r[i]);
        ech_engine_close(&e);
        for (uint32_t i = 0; i < 20; i++) {
            h_result *got = h_finish(&r[i]); /* every choice has its end, whatever that is */
            h_free(&got);
        }
        ech_constraint_unref(&constraint);
    }
}

/* A callback that goes into the engine again, and ends its own request. */
static void cancel_itself(void *ctx)
{
    ech_request *const r = ech_load_acquire((ech_request **)ctx);
    if (r != NULL) ech_request_cancel(r);
}

static void a_callback_may_cancel_its_request(void **state)
{
    (void)state;
    const ech_engine_options o = storm_options("sim");
    ech_engine *e = h_open(&o);
    const ech_prompt prompt = h_text("Once upon a time");
    for (int i = 0; i < 50; i++) {
        ech_request *r = NULL, *shown = NULL;
        ech_request_options ro = h_request(&prompt);
        ro.n = 4;
        ro.max_tokens = 200;
        ro.notify = cancel_itself;
        ro.notify_ctx = &shown;
        assert_int_equal(ech_engine_submit(e, &ro, &r, NULL), ECH_OK);
        ech_store_release(&shown, r);
        h_result *got = h_finish(&r);
        assert_int_equal(got->n_done, 1);
        h_free(&got);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
}

/* Its limit is passed at nearly every step and it catches up at once: it gets everything. */
static void a_reader_that_keeps_up_is_never_left_out(void **state)
{
    (void)state;
    ech_engine_options o = storm_options("sim");
    o.event_bytes = 300;
    ech_engine *e = h_open(&o);
    const ech_prompt prompt = h_text("Once upon a time");
    for (int i = 0; i < 30; i++) {
        ech_request_options ro = h_request(&prompt);
        ro.n = 1 + (uint32_t)i % 4;
        ro.max_tokens = 100;
        ro.ignore_eos = true;
        h_result *got = h_run(e, &ro);
        assert_int_equal(got->choices[0].n, 100);
        h_free(&got);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
}

/* Requests that nobody reads hold neither slots nor pages for ever; read, they go on. */
static void unread_requests_block_nobody(void **state)
{
    (void)state;
    ech_engine_options o = storm_options("sim");
    o.event_bytes = 400;
    ech_engine *e = h_open(&o);
    const ech_prompt prompts[2] = { h_text("Once upon a time"), h_text("The old house") };
    ech_request_options ro = h_request(&prompts[0]);
    ro.max_tokens = 150;
    ro.ignore_eos = true;
    h_result *alone = h_run(e, &ro);
    ech_request *unread[12];
    for (int i = 0; i < 12; i++)
        assert_int_equal(ech_engine_submit(e, &ro, &unread[i], NULL), ECH_OK);
    ech_request_options other = ro;
    other.prompts = &prompts[1];
    for (int i = 0; i < 4; i++) {
        h_result *r = h_run(e, &other);
        assert_int_equal(r->choices[0].n, 150);
        h_free(&r);
    }
    for (int i = 0; i < 12; i++) {
        h_result *r = h_finish(&unread[i]);
        h_assert_same(&alone->choices[0], &r->choices[0]);
        h_free(&r);
    }
    h_free(&alone);
    h_assert_idle(e);
    ech_engine_close(&e);
}

/* ---- a hook that spoils the first page of its own request, once another runs beside it ---- */

typedef struct poison {
    ech_engine *engine;
    bool is_given;
} poison;

static ech_status poison_open(void *self, void **ret_state, ech_error *err)
{
    (void)err;
    *ret_state = self;
    return ECH_OK;
}

static ech_status poison_mask(void *state, uint32_t *words, size_t n_words, ech_error *err)
{
    (void)state;
    (void)err;
    memset(words, 0xff, n_words * sizeof *words);
    return ECH_OK;
}

/* Called by the engine's thread, so its lists may be read; the oldest that runs is the request. */
static ech_status poison_accept(void *state, int32_t id, bool *ret_ended, ech_error *err)
{
    poison *const p = state;
    ech_engine *const e = p->engine;
    (void)id;
    (void)err;
    *ret_ended = false;
    if (p->is_given || e->sched.running.n < 2) return ECH_OK;
    const uint64_t bytes = e->memory.shape.page_bytes;
    memset(e->memory.kv.ptr + e->sched.running.head->pages[0] * bytes, 0xff, bytes);
    p->is_given = true;
    return ECH_OK;
}

static void poison_close(void *state)
{
    (void)state;
}

/* Keys and values that are no numbers, an impossible mask: that request fails, its neighbours in
 * the same steps don't notice. */
static void what_cannot_be_drawn_fails_alone(void **state)
{
    (void)state;
    ech_engine_options o = storm_options("cpu");
    o.event_bytes = 0;
    ech_engine *e = h_open(&o);
    const ech_prompt prompts[2] = { h_text("Once upon a time"), h_text("The old house") };
    ech_request_options ro = h_request(&prompts[1]);
    ro.max_tokens = 100;
    ro.ignore_eos = true;
    h_result *alone = h_run(e, &ro);
    ech_request *sick, *well;
    poison given = { .engine = e };
    const ech_constraint_hook hook = { &given, poison_open, poison_mask, poison_accept,
                                       poison_close };
    ech_request_options so = ro;
    so.prompts = &prompts[0];
    so.max_tokens = 200;
    so.hook = &hook;
    assert_int_equal(ech_engine_submit(e, &so, &sick, NULL), ECH_OK);
    assert_int_equal(ech_engine_submit(e, &ro, &well, NULL), ECH_OK);
    h_result *bad = h_finish(&sick), *good = h_finish(&well);
    assert_true(given.is_given);
    assert_int_equal(bad->error.code, ECH_ENUMERIC);
    h_assert_same(&alone->choices[0], &good->choices[0]);
    h_free(&bad);
    h_free(&good);
    so.hook = NULL;
    so.prompts = &prompts[1]; /* the first one's pages hold NaN, and are found again */
    so.sampling.allowed_ids = so.sampling.banned_ids = (const int32_t[]){ 7 };
    so.sampling.n_allowed_ids = so.sampling.n_banned_ids = 1;
    assert_int_equal(ech_engine_submit(e, &ro, &well, NULL), ECH_OK);
    bad = h_run(e, &so);
    good = h_finish(&well);
    assert_int_equal(bad->error.code, ECH_EINVAL);
    assert_string_equal(bad->error.argument, "allowed_ids");
    assert_int_equal(bad->choices[0].n, 0);
    h_assert_same(&alone->choices[0], &good->choices[0]);
    h_free(&alone);
    h_free(&bad);
    h_free(&good);
    h_assert_idle(e);
    ech_engine_close(&e);
}

/* The most choices that one prompt may have: each is there, and each as if it were alone. */
static void a_hundred_and_twenty_eight_choices(void **state)
{
    (void)state;
    const ech_engine_options o = storm_options("sim");
    ech_engine *e = h_open(&o);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.n = 128;
    ro.max_tokens = 8;
    ro.ignore_eos = true;
    ro.sampling.temperature = 1;
    ro.sampling.has_seed = true;
    ro.sampling.seed = 900;
    h_result *all = h_run(e, &ro);
    assert_int_equal(all->n_choices, 128);
    ro.n = 1;
    for (uint32_t k = 0; k < 128; k += 31) {
        ro.sampling.seed = 900 + k;
        h_result *one = h_run(e, &ro);
        h_assert_same(&one->choices[0], &all->choices[k]);
        h_free(&one);
    }
    h_free(&all);
    h_assert_idle(e);
    ech_engine_close(&e);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_requests = (uint32_t)atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_outlives_a_storm),
        cmocka_unit_test(with_a_model_that_computes),
        cmocka_unit_test(closing_ends_a_storm),
        cmocka_unit_test(a_callback_may_cancel_its_request),
        cmocka_unit_test(a_reader_that_keeps_up_is_never_left_out),
        cmocka_unit_test(unread_requests_block_nobody),
        cmocka_unit_test(what_cannot_be_drawn_fails_alone),
        cmocka_unit_test(a_hundred_and_twenty_eight_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
