/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine does when a chip fails, stalls or dies: sim chips (src/chip/sim) do so on
 * request. Their model is of hashes: a page that is lost or crossed, or an id that is drawn twice,
 * changes everything after it.
 */
#include "tests/unit/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/chip/sim/sim.h"
#include "src/engine/engine_int.h"
#include "tests/unit/engine/harness.h"

enum { N = 12, POISON = 1777 };

static ech_engine *open_sim(const ech_sim_rule *rules, uint32_t n_rules, uint32_t chip_deaths)
{
    ech_sim_options so = { .struct_size = sizeof so, .n_rules = n_rules };
    if (n_rules > 0) memcpy(so.rules, rules, n_rules * sizeof *rules);
    ech_engine_options o = h_options();
    o.platform = "sim";
    o.chip_deaths = chip_deaths;
    o.prefill_chunk = 16;
    ech_engine *e = NULL;
    ech_error err = { .code = ECH_OK };
    if (ech_engine_open_on(&e, &o, &so, sizeof so, &err) != ECH_OK) fail_msg("%s", err.text);
    return e;
}

static int32_t IDS[N][64];
static ech_prompt PROMPTS[N];

static void make_prompts(void)
{
    uint64_t rng = 5;
    for (int i = 0; i < N; i++) {
        const uint32_t n = 1 + h_draw(&rng, 60);
        for (uint32_t k = 0; k < n; k++)
            IDS[i][k] = (int32_t)h_draw(&rng, 1000);
        PROMPTS[i] = (ech_prompt){ .ids = IDS[i], .n_ids = n };
    }
}

static ech_request_options all_prompts(void)
{
    make_prompts();
    ech_request_options ro = h_request(PROMPTS);
    ro.n_prompts = N;
    ro.ignore_eos = true;
    ro.max_tokens = 40;
    return ro;
}

/* What a chip without faults answers. */
static h_result *expected(void)
{
    ech_engine *e = open_sim(NULL, 0, 3);
    ech_request_options ro = all_prompts();
    h_result *all = h_run(e, &ro);
    ro.n_prompts = 1;
    for (int i = 0; i < N; i++) {
        ro.prompts = &PROMPTS[i];
        h_result *one = h_run(e, &ro);
        h_assert_same(&one->choices[0], &all->choices[i]);
        h_free(&one);
    }
    ech_engine_close(&e);
    return all;
}

static void streams_go_on_after_a_death(void **state)
{
    (void)state;
    h_result *good = expected();
    for (uint32_t first = 1; first < 30; first += 4) {
        const ech_sim_rule dies = { .event = ECH_SIM_RUN,
                                    .action = ECH_SIM_KILL,
                                    .first = first,
                                    .max_generation = UINT32_MAX };
        ech_engine *e = open_sim(&dies, 1, 3);
        const ech_request_options ro = all_prompts();
        h_result *r = h_run(e, &ro);
        for (int i = 0; i < N && first >= 6; i++)
            h_assert_same(&good->choices[i], &r->choices[i]);
        assert_true(h_counters(e).chip_replacements > 0);
        h_assert_idle(e);
        h_free(&r);
        ech_engine_close(&e);
    }
    h_free(&good);
}

static void only_the_poisoned_request_fails(void **state)
{
    (void)state;
    h_result *good = expected();
    const ech_sim_rule poison = { .event = ECH_SIM_RUN,
                                  .action = ECH_SIM_KILL,
                                  .kind = ECH_PROGRAM_FORWARD,
                                  .first = 0,
                                  .every = 1,
                                  .max_generation = UINT32_MAX,
                                  .has_id = 1,
                                  .id = POISON };
    ech_engine *e = open_sim(&poison, 1, 3);
    const ech_request_options ro = all_prompts();
    ech_request *others;
    assert_int_equal(ech_engine_submit(e, &ro, &others, NULL), ECH_OK);
    const int32_t ids[3] = { 1, POISON, 2 };
    const ech_prompt bad = { .ids = ids, .n_ids = 3 };
    const ech_request_options bo = h_request(&bad);
    h_result *b = h_run(e, &bo);
    assert_int_equal(b->choices[0].finish, ECH_FINISH_ERROR);
    assert_int_equal(b->error.code, ECH_ELOST);
    h_result *r = h_finish(&others);
    for (int i = 0; i < N; i++)
        h_assert_same(&good->choices[i], &r->choices[i]);
    assert_int_equal(h_counters(e).chip_replacements, 3);
    h_assert_idle(e);
    h_free(&good);
    h_free(&b);
    h_free(&r);
    ech_engine_close(&e);
}

static void a_failed_task_fails_its_step_alone(void **state)
{
    (void)state;
    const ech_sim_rule fails = { .event = ECH_SIM_RUN,
                                 .action = ECH_SIM_FAIL,
                                 .kind = ECH_PROGRAM_FORWARD,
                                 .first = 5,
                                 .max_generation = 1 };
    ech_engine *e = open_sim(&fails, 1, 3);
    const ech_request_options ro = all_prompts();
    h_result *r = h_run(e, &ro);
    uint32_t n_failed = 0;
    for (int i = 0; i < N; i++)
        n_failed += r->choices[i].finish == ECH_FINISH_ERROR;
    assert_in_range(n_failed, 1, N);
    assert_int_equal(h_counters(e).chip_replacements, 0);
    h_result *again = h_run(e, &ro);
    assert_int_equal(again->error.code, ECH_OK);
    h_assert_idle(e);
    h_free(&r);
    h_free(&again);
    ech_engine_close(&e);
}

static void a_stalled_chip_is_replaced(void **state)
{
    (void)state;
    h_result *good = expected();
    const ech_sim_rule stalls = {
        .event = ECH_SIM_RUN, .action = ECH_SIM_STALL, .first = 12, .max_generation = 1
    };
    (void)setenv("ECHELON_STALL_LIMIT", "1", 1);
    ech_engine *e = open_sim(&stalls, 1, 3);
    (void)unsetenv("ECHELON_STALL_LIMIT");
    const ech_request_options ro = all_prompts();
    h_result *r = h_run(e, &ro);
    for (int i = 0; i < N; i++)
        h_assert_same(&good->choices[i], &r->choices[i]);
    assert_in_range(h_counters(e).chip_replacements, 1, 2);
    h_free(&good);
    h_free(&r);
    ech_engine_close(&e);
}

static void too_many_deaths_fail_the_step_and_not_the_engine(void **state)
{
    (void)state;
    /* Every process dies at its first forward, until the sixth. */
    const ech_sim_rule dies = { .event = ECH_SIM_RUN,
                                .action = ECH_SIM_KILL,
                                .kind = ECH_PROGRAM_FORWARD,
                                .first = 0,
                                .max_generation = 5 };
    ech_engine *e = open_sim(&dies, 1, 2);
    const ech_request_options ro = all_prompts();
    h_result *r = h_run(e, &ro);
    assert_int_equal(r->error.code, ECH_ELOST);
    assert_non_null(strstr(r->error.text, "2 chips in a row"));
    for (int i = 0; i < 4; i++) {
        h_result *again = h_run(e, &ro);
        h_free(&again);
    }
    h_result *healthy = h_run(e, &ro);
    assert_int_equal(healthy->error.code, ECH_OK);
    assert_true(h_counters(e).is_ready);
    h_free(&r);
    h_free(&healthy);
    ech_engine_close(&e);
}

static void an_engine_without_a_chip_stays_up(void **state)
{
    (void)state;
    const ech_sim_rule rules[] = {
        { .event = ECH_SIM_RUN,
          .action = ECH_SIM_KILL,
          .kind = ECH_PROGRAM_FORWARD,
          .first = 3,
          .max_generation = 1 },
        { .event = ECH_SIM_OPEN,
          .action = ECH_SIM_EXIT,
          .min_generation = 2,
          .max_generation = 3,
          .first = 0,
          .arg = 1 },
    };
    ech_engine *e = open_sim(rules, 2, 3);
    const ech_request_options ro = all_prompts();
    h_result *r = h_run(e, &ro); /* waits for the third process */
    assert_int_equal(r->error.code, ECH_OK);
    assert_true(h_counters(e).is_ready);
    h_free(&r);
    ech_engine_close(&e);
}

static void weights_that_cannot_be_filled_fail_every_request(void **state)
{
    (void)state;
    const ech_sim_rule fails = { .event = ECH_SIM_RUN,
                                 .action = ECH_SIM_FAIL,
                                 .kind = ECH_PROGRAM_PACK,
                                 .first = 0,
                                 .max_generation = 1 };
    ech_engine *e = open_sim(&fails, 1, 3);
    const ech_request_options ro = all_prompts();
    ech_request *early;
    const ech_status rc = ech_engine_submit(e, &ro, &early, NULL);
    ech_error err;
    assert_int_not_equal(ech_engine_wait_ready(e, 10000, NULL, &err), ECH_OK);
    assert_non_null(strstr(err.text, "loading the weights"));
    if (rc == ECH_OK) {
        h_result *r = h_finish(&early);
        assert_int_equal(r->choices[0].finish, ECH_FINISH_ERROR);
        h_free(&r);
    }
    h_result *late = h_run(e, &ro);
    assert_int_not_equal(late->submitted, ECH_OK);
    h_free(&late);
    ech_engine_close(&e);
}

/* ---- the process that forks chips is gone ---- */

static void kill_zygote(ech_engine *e)
{
    ech_child_info info;
    char path[64], line[512] = "";
    int zygote = 0;
    assert_int_equal(ech_worker_child_info(e->worker, 0, &info, NULL), ECH_OK);
    (void)snprintf(path, sizeof path, "/proc/%d/stat", info.pid);
    FILE *const f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    (void)fclose(f);
    assert_int_equal(sscanf(strrchr(line, ')'), ") %*c %d", &zygote), 1);
    assert_true(zygote > 1);
    assert_int_equal(kill(zygote, SIGKILL), 0);
}

static void a_lost_zygote_ends_every_request(void **state)
{
    (void)state;
    const ech_engine_options o = h_options();
    for (int is_idle = 0; is_idle < 2; is_idle++) {
        ech_engine *e = h_open(&o);
        const ech_prompt prompt = h_text("Once upon a time");
        ech_request_options ro = h_request(&prompt);
        ro.ignore_eos = true;
        ro.max_tokens = 400;
        ech_request *request;
        if (is_idle != 0) kill_zygote(e);
        assert_int_equal(ech_engine_submit(e, &ro, &request, NULL), ECH_OK);
        while (is_idle == 0 && h_counters(e).steps < 3)
            (void)usleep(500);
        if (is_idle == 0) kill_zygote(e);
        h_result *r = h_finish(&request);
        assert_int_equal(r->choices[0].finish, ECH_FINISH_ERROR);
        assert_non_null(strstr(r->choices[0].error.text, "zygote"));
        h_free(&r);
        h_result *late = h_run(e, &ro);
        assert_int_not_equal(late->submitted, ECH_OK);
        h_free(&late);
        assert_false(h_counters(e).is_ready);
        ech_engine_close(&e);
    }
}

static void a_step_that_nobody_wants_is_stopped(void **state)
{
    (void)state;
    const ech_sim_rule slow = { .event = ECH_SIM_RUN,
                                .action = ECH_SIM_SLOW,
                                .kind = ECH_PROGRAM_FORWARD,
                                .first = 2,
                                .max_generation = 1,
                                .arg = 20000 };
    ech_engine *e = open_sim(&slow, 1, 3);
    const ech_prompt prompt = h_text("Once upon a time");
    ech_request_options ro = h_request(&prompt);
    ro.ignore_eos = true;
    ech_request *request;
    ech_event ev = { 0 };
    assert_int_equal(ech_engine_submit(e, &ro, &request, NULL), ECH_OK);
    while (ev.kind != ECH_EVENT_TOKEN)
        assert_int_equal(ech_request_next(request, 10000, &ev, NULL), ECH_OK);
    (void)usleep(50000);
    const int64_t began = ech_now_ns();
    ech_request_close(&request);
    h_assert_idle(e);
    assert_true(ech_now_ns() - began < ECH_NS_PER_S);
    ech_engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_go_on_after_a_death),
        cmocka_unit_test(only_the_poisoned_request_fails),
        cmocka_unit_test(a_failed_task_fails_its_step_alone),
        cmocka_unit_test(a_stalled_chip_is_replaced),
        cmocka_unit_test(too_many_deaths_fail_the_step_and_not_the_engine),
        cmocka_unit_test(an_engine_without_a_chip_stays_up),
        cmocka_unit_test(weights_that_cannot_be_filled_fail_every_request),
        cmocka_unit_test(a_lost_zygote_ends_every_request),
        cmocka_unit_test(a_step_that_nobody_wants_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
