/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases 66 to 86: scheduling, slots, runs, scopes, replacement. */
#include "tests/conformance/harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    conf c;
    ech_buffer x, y;
    ech_error inner;
    ech_status rc[8];
    ech_gate gate;
    int k;
    uint32_t entered; /* atomic: callbacks begun */
} scene;

static void open_scene(scene *const s, const uint32_t n_chips, const uint32_t n_subs,
                       const ech_worker_options *const o)
{
    *s = (scene){ 0 };
    conf_open(&s->c, n_chips, n_subs, o);
    s->x = conf_buffer(&s->c, "x", 4096);
    s->y = conf_buffer(&s->c, "y", 4096);
}

#define PUT0(child, id, action, param) conf_put(&s->c, orch, child, id, action, param, NULL, 0, err)
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        const ech_status try_rc_ = (expr);                                                         \
        if (try_rc_ != ECH_OK) return try_rc_;                                                     \
    } while (0)

/* A group of conf_act() over children workers[0..n), member i with id first + i. */
static ech_status put_group(scene *const s, ech_orch *const orch, const int64_t *const workers,
                            const size_t n, const uint64_t first, const uint64_t action,
                            const uint64_t param, ech_error *const err)
{
    static ech_args args[8];
    ech_args *ptrs[8];
    const ech_tensor board = conf_bytes(s->c.board_buffer, 0, sizeof(conf_board));
    for (size_t i = 0; i < n; i++) {
        ech_args_clear(&args[i]);
        ech_args_add(&args[i], ECH_NO_DEP, &board);
        ech_args_add_scalar(&args[i], first + i);
        ech_args_add_scalar(&args[i], action);
        ech_args_add_scalar(&args[i], param);
        ptrs[i] = &args[i];
    }
    return ech_submit_next_level_group(orch, &s->c.act, ptrs, workers, n, NULL, err);
}

/* ---- scheduling ----------------------------------------------------------------------------- */

static ech_status submit_66(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 1, CONF_HOLD, 1));
    TRY(PUT0(0, 2, CONF_LOG, 0)); /* waits for A */
    return PUT0(1, 3, CONF_LOG, 0);
}

static void case_66(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_66, &s, &run, &err));
    CHECK(conf_ended(&s.c, 3));
    CHECK(!conf_has_run(&s.c, 2));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_67(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const int64_t pair[2] = { 0, 1 };
    TRY(PUT0(0, 1, CONF_HOLD, 1)); /* 0 is busy */
    TRY(put_group(s, orch, pair, 2, 2, CONF_LOG, 0, err));
    TRY(PUT0(1, 4, CONF_LOG, 0));   /* 1 is idle but reserved */
    return PUT0(2, 5, CONF_LOG, 0); /* 2 has nothing to do with it */
}

static void case_67(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_67, &s, &run, &err));
    CHECK(conf_ended(&s.c, 5));
    conf_pause_ms(20);
    CHECK(!conf_has_run(&s.c, 2) && !conf_has_run(&s.c, 3) && !conf_has_run(&s.c, 4));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    CHECK(conf_before(&s.c, 3, 4));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_68(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const int64_t first[2] = { 0, 1 }, second[2] = { 0, 2 };
    TRY(PUT0(0, 1, CONF_HOLD, 1));
    TRY(put_group(s, orch, first, 2, 2, CONF_LOG, 0, err));
    TRY(put_group(s, orch, second, 2, 6, CONF_LOG, 0, err));
    return PUT0(2, 10, CONF_LOG, 0); /* the second group reserves nothing */
}

static void case_68(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_68, &s, &run, &err));
    CHECK(conf_ended(&s.c, 10));
    CHECK(!conf_has_run(&s.c, 2) && !conf_has_run(&s.c, 6));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_70(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const int64_t BAD[3][2] = { { 0, 0 }, { 0, -1 }, { 0, 7 } };
    for (int i = 0; i < 3; i++) {
        s->rc[i] = put_group(s, orch, BAD[i], 2, 1, CONF_LOG, 0, &s->inner);
        CHECK(strstr(s->inner.text, "worker") != NULL || strstr(s->inner.text, "child") != NULL);
    }
    s->rc[3] = conf_put(&s->c, orch, 7, 1, CONF_LOG, 0, NULL, 0, &s->inner);
    return PUT0(1, 5, CONF_LOG, 0);
}

static void case_70(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    CHECK_OK(ech_worker_run(s.c.w, submit_70, &s, &err));
    for (int i = 0; i < 4; i++) {
        CHECK(s.rc[i] == ECH_EINVAL);
    }
    CHECK(!conf_has_run(&s.c, 1) && conf_has_run(&s.c, 5));
    conf_close(&s.c);
}

static ech_status submit_71(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    for (uint64_t i = 1; i <= 9; i++) {
        TRY(PUT0(-1, i, CONF_SLEEP, 5)); /* nine tasks, three subs */
    }
    return ECH_OK;
}

static void case_71(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 0, 3, NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(ech_worker_run(s.c.w, submit_71, &s, &err));
    }
    for (uint64_t id = 1; id <= 9; id++) {
        CHECK(s.c.board->id[id].times == 5);
    }
    CHECK(s.c.board->most_running >= 2 && s.c.board->most_running <= 3);
    conf_close(&s.c);
}

static ech_status submit_72(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 1, CONF_HOLD, 1));
    for (uint64_t i = 0; i < 20; i++) {
        TRY(PUT0(0, 10 + i, CONF_LOG, 0));
    }
    return PUT0(-1, 2, CONF_LOG, 0);
}

static void case_72(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 1, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_72, &s, &run, &err));
    CHECK(conf_ended(&s.c, 2));
    CHECK(!conf_has_run(&s.c, 10));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_73(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    /* Members: 0 fails at once, 1 and 2 take their time. */
    static ech_args args[3];
    ech_args *ptrs[3];
    const int64_t workers[3] = { 0, 1, 2 };
    const ech_tensor board = conf_bytes(s->c.board_buffer, 0, sizeof(conf_board));
    for (uint64_t i = 0; i < 3; i++) {
        ech_args_clear(&args[i]);
        ech_args_add(&args[i], ECH_NO_DEP, &board);
        ech_args_add_scalar(&args[i], 1 + i);
        ech_args_add_scalar(&args[i], i == 0 ? CONF_FAIL : CONF_SLOW);
        ech_args_add_scalar(&args[i], 50);
        ptrs[i] = &args[i];
    }
    return ech_submit_next_level_group(orch, &s->c.act, ptrs, workers, 3, NULL, err);
}

static void case_73(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0, NULL);
    CHECK(ech_worker_run(s.c.w, submit_73, &s, &err) != ECH_OK);
    CHECK_TEXT("X says m");
    for (uint64_t id = 1; id <= 3; id++) {
        CHECK(s.c.board->id[id].started == 0 ||
              s.c.board->id[id].ended != 0); /* who ran, finished */
    }
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.tasks_failed == 1 && n.in_flight == 0 && n.task_window[0].used == 0);
    conf_close(&s.c);
}

/* ---- slots, runs, scopes -------------------------------------------------------------------- */

static ech_status submit_75(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(ech_scope_begin(orch, err));
    TRY(PUT0(0, 1, CONF_LOG, 0));
    CHECK(conf_ended(&s->c, 1));
    TRY(ech_scope_end(orch, err));
    ech_worker_counters n;
    for (int i = 0; i < 5000; i++) {
        ech_worker_snapshot(s->c.w, &n);
        if (n.task_window[1].used == 0) return ECH_OK;
        conf_pause_ms(1);
    }
    CHECK(n.task_window[1].used == 0);
    return ECH_OK;
}

static void case_75(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    CHECK_OK(ech_worker_run(s.c.w, submit_75, &s, &err));
    conf_close(&s.c);
}

static ech_status submit_76(ech_orch *const orch, void *const arg, ech_error *const err)
{
    /* Producers end while their consumers are being built. */
    scene *const s = arg;
    for (uint64_t i = 0; i < 900; i++) {
        const conf_arg w = { ECH_INOUT, conf_bytes(s->x, i % 16, 1) };
        const conf_arg r = { ECH_INPUT, conf_bytes(s->x, i % 16, 1) };
        TRY(conf_put(&s->c, orch, 0, 2 * i, CONF_LOG, 0, &w, 1, err));
        TRY(conf_put(&s->c, orch, 1, 2 * i + 1, CONF_LOG, 0, &r, 1, err));
    }
    return ECH_OK;
}

static void case_76(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    CHECK_OK(ech_worker_run(s.c.w, submit_76, &s, &err));
    for (uint64_t id = 0; id < 1800; id++) {
        CHECK(s.c.board->id[id].times == 1);
        if (id % 2 == 1) CHECK(conf_before(&s.c, id - 1, id));
    }
    conf_close(&s.c);
}

static ech_status submit_hold(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const uint32_t nth = __atomic_add_fetch(&s->entered, 1, __ATOMIC_SEQ_CST);
    return PUT0(0, nth, CONF_HOLD, 1);
}

typedef struct submitter {
    scene *s;
    ech_run *run;
    ech_status rc;
} submitter;

static void *submit_main(void *const arg)
{
    submitter *const t = arg;
    ech_error err;
    t->rc = ech_worker_submit(t->s->c.w, submit_hold, t->s, &t->run, &err);
    return NULL;
}

static void depth_case(const uint32_t depth)
{
    scene s;
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.run_depth = depth;
    open_scene(&s, 1, 0, &o);
    ech_run *runs[2] = { NULL, NULL };
    for (uint32_t i = 0; i < depth; i++) {
        CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &runs[i], &err));
    }
    submitter t = { .s = &s };
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, submit_main, &t) == 0);
    conf_pause_ms(50);
    CHECK(__atomic_load_n(&s.entered, __ATOMIC_SEQ_CST) == depth); /* blocked before its callback */
    conf_set_flag(&s.c, 1);
    for (uint32_t i = 0; i < depth; i++) {
        CHECK_OK(ech_run_wait(runs[i], 10, &err));
        ech_run_release(&runs[i]);
    }
    (void)pthread_join(thread, NULL);
    CHECK(t.rc == ECH_OK && __atomic_load_n(&s.entered, __ATOMIC_SEQ_CST) == depth + 1);
    CHECK_OK(ech_run_wait(t.run, 10, &err));
    ech_run_release(&t.run);
    conf_close(&s.c);
}

static void case_78(void)
{
    depth_case(2);
    depth_case(1);
}

static ech_status submit_nothing(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)orch, (void)arg, (void)err;
    return ECH_OK;
}

static void case_79(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_nothing, NULL, &run, &err));
    CHECK_OK(ech_run_wait(run, 10, &err));
    CHECK(ech_run_done(run));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_fail(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(0, 9, CONF_FAIL, 0);
}

static void case_80(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &run, &err));
    CHECK_CODE(ech_run_wait(run, 0.02, &err), ECH_ETIMEOUT);
    CHECK(!ech_run_done(run));
    conf_set_flag(&s.c, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ech_run_wait(run, 10, &err));
    }
    ech_run_release(&run);
    CHECK_OK(ech_worker_submit(s.c.w, submit_fail, &s, &run, &err));
    char text[ECH_ERROR_TEXT] = "";
    ech_status first = ECH_OK;
    for (int i = 0; i < 3; i++) {
        const ech_status rc = ech_run_wait(run, 10, &err);
        CHECK(rc != ECH_OK);
        if (i == 0) {
            first = rc;
            memcpy(text, err.text, sizeof text);
        }
        CHECK(rc == first && strcmp(text, err.text) == 0);
    }
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_then_refuse(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 50, CONF_LOG, 0));
    err->code = ECH_EFORMAT;
    (void)snprintf(err->text, sizeof err->text, "changed my mind");
    return ECH_EFORMAT;
}

static void case_81(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    ech_run *active = NULL, *bad = NULL, *next = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &active, &err));
    CHECK_CODE(ech_worker_submit(s.c.w, submit_then_refuse, &s, &bad, &err), ECH_EFORMAT);
    CHECK(bad == NULL);
    CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &next, &err)); /* its lease came back */
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(active, 10, &err));
    CHECK_OK(ech_run_wait(next, 10, &err));
    CHECK(!conf_has_run(&s.c, 50));
    ech_run_release(&active);
    ech_run_release(&next);
    conf_close(&s.c);
}

static ech_status submit_83(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    s->rc[0] = ech_scope_end(orch, &s->inner);
    for (int i = 0; i < ECH_MAX_SCOPES; i++) {
        TRY(ech_scope_begin(orch, err));
    }
    s->rc[1] = ech_scope_begin(orch, &s->inner);
    for (int i = 0; i < ECH_MAX_SCOPES; i++) {
        TRY(ech_scope_end(orch, err));
    }
    s->rc[2] = ech_scope_end(orch, &s->inner);
    return PUT0(0, 1, CONF_LOG, 0);
}

static void case_83(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    CHECK_OK(ech_worker_run(s.c.w, submit_83, &s, &err));
    CHECK(s.rc[0] == ECH_ESTATE && s.rc[1] == ECH_ELIMIT && s.rc[2] == ECH_ESTATE);
    CHECK(conf_has_run(&s.c, 1));
    conf_close(&s.c);
}

static ech_status submit_84(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_run *run = NULL;
    ech_worker *w = s->c.w;
    s->rc[0] = ech_worker_submit(w, submit_nothing, NULL, &run, &s->inner);
    s->rc[1] = ech_worker_run(w, submit_nothing, NULL, &s->inner);
    s->rc[2] = ech_worker_shutdown(w, &s->inner);
    s->rc[3] = ech_worker_close(&w, &s->inner);
    return PUT0(0, 1, CONF_LOG, 0);
}

static void case_84(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    CHECK_OK(ech_worker_run(s.c.w, submit_84, &s, &err));
    for (int i = 0; i < 4; i++) {
        CHECK(s.rc[i] == ECH_EREENTRANT);
    }
    CHECK(conf_has_run(&s.c, 1));
    conf_close(&s.c);
}

static void case_85(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 1, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &run, &err));
    CHECK(conf_started(&s.c, 1));
    for (int i = 0; i < 200; i++) {
        char resp[16] = "";
        size_t len = 0;
        CHECK_OK(ech_worker_control(s.c.w, (uint32_t)(i % 2), 0, "hello", 5, resp, sizeof resp,
                                    &len, 5, &err));
        CHECK(len == 5 && memcmp(resp, "hello", 5) == 0);
    }
    CHECK(!ech_run_done(run));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_86(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const conf_arg a = { ECH_INOUT, conf_bytes(s->x, 0, 4096) };
    TRY(conf_put(&s->c, orch, 0, 1, s->k == 0 ? CONF_HOLD : CONF_WRITE, 42, &a, 1, err));
    return conf_put(&s->c, orch, 1, 2, CONF_READ, 0,
                    &(const conf_arg){ ECH_INPUT, conf_bytes(s->x, 0, 4096) }, 1, err);
}

static void case_86(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_86, &s, &run, &err));
    CHECK(conf_started(&s.c, 1));
    CHECK(kill(s.c.board->id[1].pid, SIGKILL) == 0);
    CHECK_CODE(ech_run_wait(run, 10, &err), ECH_ELOST);
    CHECK(!conf_has_run(&s.c, 2));
    ech_run_release(&run);
    s.k = 1;
    CHECK(ech_worker_run(s.c.w, submit_86, &s, &err) !=
          ECH_OK); /* without a replacement it stays lost */
    CHECK_OK(ech_worker_replace(s.c.w, 0, &err));
    CHECK_OK(ech_worker_run(s.c.w, submit_86, &s, &err));
    CHECK(s.c.board->id[2].value == 42);
    ech_child_info info;
    CHECK_OK(ech_worker_child_info(s.c.w, 0, &info, &err));
    CHECK(info.state == ECH_CHILD_READY && info.generation == 1);
    conf_close(&s.c);
}

static const conf_case CASES[] = {
    { 66, case_66 }, { 67, case_67 }, { 68, case_68 }, { 70, case_70 }, { 71, case_71 },
    { 72, case_72 }, { 73, case_73 }, { 75, case_75 }, { 76, case_76 }, { 78, case_78 },
    { 79, case_79 }, { 80, case_80 }, { 81, case_81 }, { 83, case_83 }, { 84, case_84 },
    { 85, case_85 }, { 86, case_86 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
