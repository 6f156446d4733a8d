/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embeddings in the engine: the same bits alone, in a batch, in chunks, among answers, after a
 * preemption and after a chip's death; pooling; what is refused. The sim chip's hidden states are
 * hashes, so a row that is lost, doubled or crossed changes the vector.
 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/sim/sim.h"
#include "src/engine/engine_int.h"
#include "tests/unit/engine/harness.h"

enum { N = 10, MAX_IDS = 300, MAX_WIDTH = 1024 };

static int32_t IDS[N][MAX_IDS];
static ech_prompt PROMPTS[N];

typedef struct vectors {
    float x[N][MAX_WIDTH];
    size_t n[N];
    uint32_t n_seen[N];
    ech_error error; /* of DONE */
} vectors;

static void make_prompts(void)
{
    uint64_t rng = 9;
    for (int i = 0; i < N; i++) {
        const uint32_t n = i == 0 ? 1 : 1 + h_draw(&rng, MAX_IDS - 1);
        for (uint32_t k = 0; k < n; k++)
            IDS[i][k] = (int32_t)(k < 40 ? k : h_draw(&rng, 1000)); /* they begin alike */
        PROMPTS[i] = (ech_prompt){ .ids = IDS[i], .n_ids = n };
    }
}

static ech_engine *open_sim(ech_pooling pooling, uint32_t chunk, uint64_t kv_memory,
                            const ech_sim_rule *rule)
{
    ech_sim_options so = { .struct_size = sizeof so, .n_rules = rule != NULL };
    if (rule != NULL) so.rules[0] = *rule;
    ech_engine_options o = h_options();
    o.platform = "sim";
    o.pooling = pooling;
    o.prefill_chunk = chunk;
    o.chip_deaths = 100;
    if (kv_memory > 0) o.kv_memory = kv_memory;
    ech_engine *e = NULL;
    ech_error err = { .code = ECH_OK };
    if (ech_engine_open_on(&e, &o, &so, sizeof so, &err) != ECH_OK) fail_msg("%s", err.text);
    return e;
}

static ech_request *submit(ech_engine *e, const ech_prompt *prompts, size_t n)
{
    ech_request_options o;
    ech_request *r;
    ech_error err;
    ech_request_options_default(&o);
    o.prompts = prompts;
    o.n_prompts = n;
    o.embed = true;
    if (ech_engine_submit(e, &o, &r, &err) != ECH_OK) fail_msg("%s", err.text);
    return r;
}

/* Reads a request to its end, its first vector being number `first`. */
static void collect(ech_request **request, uint32_t first, vectors *v)
{
    ech_event ev = { 0 };
    ech_error err;
    while (ev.kind != ECH_EVENT_DONE) {
        if (ech_request_next(*request, 60000, &ev, &err) != ECH_OK) fail_msg("%s", err.text);
        if (ev.kind != ECH_EVENT_EMBEDDING) continue;
        const uint32_t i = first + ev.choice;
        assert_true(ev.n_embedding <= MAX_WIDTH);
        memcpy(v->x[i], ev.embedding, ev.n_embedding * sizeof *ev.embedding);
        v->n[i] = ev.n_embedding;
        v->n_seen[i]++;
    }
    v->error = ev.error;
    ech_request_close(request);
}

static vectors *embed_all(ech_engine *e)
{
    vectors *const v = calloc(1, sizeof *v);
    ech_request *r = submit(e, PROMPTS, N);
    collect(&r, 0, v);
    return v;
}

static void assert_same(const vectors *a, const vectors *b)
{
    for (int i = 0; i < N; i++) {
        assert_int_equal(a->n_seen[i], 1);
        assert_int_equal(b->n_seen[i], 1);
        assert_int_equal(a->n[i], b->n[i]);
        assert_memory_equal(a->x[i], b->x[i], a->n[i] * sizeof(float));
    }
}

/* Each prompt by itself, one after the other, without what the others left in the cache. */
static vectors *one_by_one(ech_pooling pooling)
{
    vectors *const v = calloc(1, sizeof *v);
    for (uint32_t i = 0; i < N; i++) {
        ech_engine *e = open_sim(pooling, 64, 0, NULL);
        ech_request *r = submit(e, &PROMPTS[i], 1);
        collect(&r, i, v);
        ech_engine_close(&e);
    }
    return v;
}

static void same_bits_whatever_it_runs_with(void **state)
{
    static const ech_pooling POOLINGS[] = { ECH_POOLING_LAST, ECH_POOLING_MEAN, ECH_POOLING_CLS };
    static const uint32_t CHUNKS[] = { 1, 16, 512 };
    (void)state;
    for (int p = 0; p < 3; p++) {
        vectors *const good = one_by_one(POOLINGS[p]);
        for (int c = 0; c < 3; c++) {
            ech_engine *e = open_sim(POOLINGS[p], CHUNKS[c], 0, NULL);
            for (int again = 0; again < 2; again++) { /* cold, then with a full cache */
                vectors *v = embed_all(e);
                assert_same(good, v);
                free(v);
            }
            h_assert_idle(e);
            ech_engine_close(&e);
        }
        free(good);
    }
}

/* Answers run beside it and neither changes; pages are short, so that prompts are preempted. */
static void answers_and_embeddings_share_steps(void **state)
{
    (void)state;
    const uint64_t few_pages = h_options().kv_memory / 4;
    vectors *const good = one_by_one(ECH_POOLING_MEAN);
    ech_engine *e = open_sim(ECH_POOLING_MEAN, 32, few_pages, NULL);
    ech_request_options ro = h_request(PROMPTS);
    ro.n_prompts = 4;
    ro.ignore_eos = true;
    h_result *const alone = h_run(e, &ro);
    ech_request *answers;
    assert_int_equal(ech_engine_submit(e, &ro, &answers, NULL), ECH_OK);
    vectors *const v = embed_all(e);
    h_result *const among = h_finish(&answers);
    assert_same(good, v);
    for (int i = 0; i < 4; i++)
        h_assert_same(&alone->choices[i], &among->choices[i]);
    h_assert_idle(e);
    ech_engine_close(&e);
    free(good);
    free(v);
    h_result *results[] = { alone, among };
    h_free(&results[0]);
    h_free(&results[1]);
}

static void a_chips_death_changes_nothing(void **state)
{
    (void)state;
    vectors *const good = one_by_one(ECH_POOLING_MEAN);
    for (uint32_t first = 3; first < 20; first += 4) {
        const ech_sim_rule dies = { .event = ECH_SIM_RUN,
                                    .action = ECH_SIM_KILL,
                                    .first = first,
                                    .max_generation = UINT32_MAX };
        ech_engine *e = open_sim(ECH_POOLING_MEAN, 32, 0, &dies);
        vectors *const v = embed_all(e);
        assert_same(good, v);
        assert_true(h_counters(e).chip_replacements > 0);
        free(v);
        ech_engine_close(&e);
    }
    free(good);
}

static void a_cancelled_one_gives_its_pages_back(void **state)
{
    (void)state;
    ech_engine *e = open_sim(ECH_POOLING_MEAN, 1, 0, NULL);
    vectors *const v = calloc(1, sizeof *v);
    for (int i = 0; i < 5; i++) {
        ech_request *r = submit(e, PROMPTS, N);
        ech_request_cancel(r);
        collect(&r, 0, v);
    }
    h_assert_idle(e);
    ech_engine_close(&e);
    free(v);
}

static void pooling_is_what_it_says(void **state)
{
    (void)state;
    const float rows[3][2] = { { 3, 0 }, { 0, 5 }, { 6, 4 } };
    ech_embed m;
    const float *out;
    size_t n;
    ech_error err;
    assert_int_equal(ech_embed_begin(&m, 2), ECH_OK);
    for (uint32_t i = 0; i < 3; i++) {
        ech_embed_add(&m, i, rows[i], 2);
        ech_embed_add(&m, i, rows[i], 2); /* computed twice */
    }
    assert_int_equal(ech_embed_finish(&m, 2, 0, &out, &n, &err), ECH_OK);
    assert_int_equal(n, 2);
    assert_float_equal(out[0], 0.70710678f, 1e-6f);
    assert_float_equal(out[1], 0.70710678f, 1e-6f);
    ech_embed_end(&m);
    assert_int_equal(ech_embed_begin(&m, 2), ECH_OK);
    ech_embed_add(&m, 0, rows[2], 2);
    assert_int_equal(ech_embed_finish(&m, 2, 1, &out, &n, &err), ECH_OK);
    assert_int_equal(n, 1);
    assert_float_equal(out[0], 1, 0);
    ech_embed_end(&m);
    const float zeros[2] = { 0, 0 }, bad[2] = { NAN, 0 };
    assert_int_equal(ech_embed_begin(&m, 2), ECH_OK);
    ech_embed_add(&m, 0, zeros, 2);
    assert_int_equal(ech_embed_finish(&m, 2, 0, &out, &n, &err), ECH_OK);
    assert_float_equal(out[1], 0, 0);
    ech_embed_end(&m);
    assert_int_equal(ech_embed_begin(&m, 2), ECH_OK);
    ech_embed_add(&m, 0, bad, 2);
    assert_int_equal(ech_embed_finish(&m, 2, 0, &out, &n, &err), ECH_ENUMERIC);
    ech_embed_end(&m);
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    (void)state;
    ech_engine *e = open_sim(ECH_POOLING_MODEL, 64, 0, NULL);
    ech_engine_info info = { .struct_size = sizeof info };
    ech_engine_info_get(e, &info);
    assert_int_equal(info.pooling, ECH_POOLING_LAST);
    ech_request_options good, o;
    ech_request *r;
    ech_error err;
    ech_request_options_default(&good);
    good.prompts = PROMPTS;
    good.n_prompts = 1;
    good.embed = true;
    o = good;
    o.n = 2;
    assert_int_equal(ech_engine_submit(e, &o, &r, &err), ECH_EINVAL);
    o = good;
    o.echo = true;
    assert_int_equal(ech_engine_submit(e, &o, &r, &err), ECH_EINVAL);
    o = good;
    o.logprobs = 0;
    assert_int_equal(ech_engine_submit(e, &o, &r, &err), ECH_EINVAL);
    o = good;
    o.dimensions = info.embedding_size + 1;
    assert_int_equal(ech_engine_submit(e, &o, &r, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "dimensions"));
    ech_engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_whatever_it_runs_with),
        cmocka_unit_test(answers_and_embeddings_share_steps),
        cmocka_unit_test(a_chips_death_changes_nothing),
        cmocka_unit_test(a_cancelled_one_gives_its_pages_back),
        cmocka_unit_test(pooling_is_what_it_says),
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
    };
    make_prompts();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
