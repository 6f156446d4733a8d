/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases 42 to 65: errors and dependencies. */
#include "tests/conformance/harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most cases: a worker with so many chips, one buffer, a callback that submits. */
typedef struct scene {
    conf c;
    ech_buffer x, y;
    ech_error inner; /* what a submit inside the callback said */
    ech_status rc[8];
    ech_tensor made;
    int k;
} scene;

static void open_scene(scene *const s, const uint32_t n_chips, const uint32_t n_subs)
{
    *s = (scene){ 0 };
    conf_open(&s->c, n_chips, n_subs, NULL);
    s->x = conf_buffer(&s->c, "x", 4096);
    s->y = conf_buffer(&s->c, "y", 4096);
}

static ech_status run_scene(scene *const s, const ech_orch_fn fn, ech_error *const err)
{
    return ech_worker_run(s->c.w, fn, s, err);
}

#define PUT(child, id, action, param, ...)                                                         \
    conf_put(&s->c, orch, child, id, action, param, (const conf_arg[]){ __VA_ARGS__ },             \
             sizeof((const conf_arg[]){ __VA_ARGS__ }) / sizeof(conf_arg), err)
#define PUT0(child, id, action, param) conf_put(&s->c, orch, child, id, action, param, NULL, 0, err)
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        const ech_status try_rc_ = (expr);                                                         \
        if (try_rc_ != ECH_OK) return try_rc_;                                                     \
    } while (0)

static ech_tensor all(const ech_buffer b)
{
    return conf_bytes(b, 0, 4096);
}

/* ---- errors --------------------------------------------------------------------------------- */

static ech_status submit_fail_on_sub(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(-1, 1, CONF_FAIL, 0);
}

static void case_42(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 0, 1);
    CHECK(run_scene(&s, submit_fail_on_sub, &err) != ECH_OK);
    CHECK_TEXT("sub");
    CHECK_TEXT("EUNSUPPORTED");
    CHECK_TEXT("X says m");
    conf_close(&s.c);
}

static ech_status submit_log(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(-1, 2, CONF_LOG, 0);
}

static void case_43(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 0, 1);
    for (int i = 0; i < 20; i++) {
        CHECK(run_scene(&s, submit_fail_on_sub, &err) != ECH_OK);
        CHECK_OK(run_scene(&s, submit_log, &err));
    }
    CHECK(s.c.board->id[2].times == 20);
    conf_close(&s.c);
}

static ech_status submit_after_failure(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 1, CONF_FAIL, 0));
    CHECK(conf_ended(&s->c, 1));
    for (int i = 0; i < 10000; i++) {
        s->rc[0] = conf_put(&s->c, orch, 0, 3, CONF_LOG, 0, NULL, 0, &s->inner);
        if (s->rc[0] != ECH_OK) break;
        conf_pause_ms(1);
    }
    (void)err;
    return ECH_OK;
}

static void case_44(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    CHECK(run_scene(&s, submit_after_failure, &err) != ECH_OK);
    CHECK(s.rc[0] != ECH_OK);
    CHECK(strstr(s.inner.text, "X says m") != NULL);
    conf_close(&s.c);
}

static ech_status fail_at_once(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)orch, (void)arg;
    err->code = ECH_EFORMAT;
    (void)snprintf(err->text, sizeof err->text, "the callback has no mind to");
    return ECH_EFORMAT;
}

static void case_45(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    ech_run *run = NULL;
    for (int i = 0; i < 5000; i++) { /* more than a window of slots */
        CHECK_CODE(ech_worker_submit(s.c.w, fail_at_once, &s, &run, &err), ECH_EFORMAT);
        CHECK(run == NULL);
    }
    CHECK_TEXT("the callback has no mind to");
    s.c.board = ech_worker_buffer_ptr(s.c.w, s.c.board_buffer);
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.task_window[0].used == 0 && n.runs_in_flight == 0);
    conf_close(&s.c);
}

static ech_status inner_fn(ech_task *const task, ech_error *const err)
{
    (void)task;
    err->code = ECH_EFORMAT;
    (void)snprintf(err->text, sizeof err->text, "deep down");
    return ECH_EFORMAT;
}

static ech_callable inner_callable;

static ech_status inner_orch(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)arg;
    static ech_args args;
    ech_args_clear(&args);
    return ech_submit_sub(orch, &inner_callable, &args, NULL, err);
}

static ech_callable outer_callable;

static ech_status outer_orch(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)arg;
    static ech_args args;
    ech_args_clear(&args);
    return ech_submit_next_level(orch, &outer_callable, &args, NULL, 0, err);
}

static void case_46(void)
{
    ech_error err;
    ech_worker_options lo = ech_worker_options_default();
    lo.name = "lowland";
    lo.n_subs = 1;
    ech_worker *low = NULL;
    CHECK_OK(ech_worker_create(&low, &lo, &err));
    CHECK_OK(ech_worker_register_host(low, "deep", inner_fn, &inner_callable, &err));
    ech_worker_options hi = ech_worker_options_default();
    hi.name = "highland";
    hi.level = 4;
    ech_worker *high = NULL;
    CHECK_OK(ech_worker_create(&high, &hi, &err));
    CHECK_OK(ech_worker_add_child(high, &low, NULL, &err));
    CHECK_OK(ech_worker_register_orch(high, "orch", inner_orch, &outer_callable, &err));
    CHECK_OK(ech_worker_init(high, &err));
    CHECK(ech_worker_run(high, outer_orch, NULL, &err) != ECH_OK);
    CHECK_TEXT("highland");
    CHECK_TEXT("lowland");
    CHECK_TEXT("deep down");
    CHECK_OK(ech_worker_close(&high, &err));
}

static ech_status submit_fail_and_consumers(ech_orch *const orch, void *const arg,
                                            ech_error *const err)
{
    scene *const s = arg;
    /* The producer is held until its consumers are there, then fails. */
    ech_gate gate;
    TRY(ech_gate_create(orch, &gate, err));
    conf_gate(gate);
    TRY(PUT(0, 1, CONF_FAIL, 0, { ECH_INOUT, all(s->x) }));
    TRY(PUT(1, 2, CONF_LOG, 0, { ECH_INPUT, all(s->x) }));
    TRY(PUT(1, 3, CONF_LOG, 0, { ECH_INOUT, all(s->x) }, { ECH_OUTPUT_EXISTING, all(s->y) }));
    TRY(PUT(0, 4, CONF_LOG, 0, { ECH_INPUT, all(s->y) }));
    ech_gate_open(s->c.w, gate);
    return ECH_OK;
}

static void case_47(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0);
    CHECK(run_scene(&s, submit_fail_and_consumers, &err) != ECH_OK);
    CHECK_TEXT("X says m");
    for (uint64_t id = 2; id <= 4; id++) {
        CHECK(!conf_has_run(&s.c, id));
    }
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.tasks_failed + n.tasks_skipped == 4 && n.in_flight == 0);
    conf_close(&s.c);
}

static void case_48(void)
{
    /* As 44: the consumer comes after the failure; it is refused or poisoned, and nothing waits for
     * it. */
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    CHECK(run_scene(&s, submit_after_failure, &err) != ECH_OK);
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.ready == 0 && n.in_flight == 0 && n.task_window[0].used == 0);
    CHECK(s.c.board->id[3].times <= 1);
    conf_close(&s.c);
}

static ech_status submit_gated(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_gate gate;
    TRY(ech_gate_create(orch, &gate, err));
    conf_gate(gate);
    TRY(PUT0(0, (uint64_t)s->k + 10, CONF_LOG, 0));
    ech_gate_open(s->c.w, gate);
    return ECH_OK;
}

static void *cancel_main(void *const arg)
{
    ech_run_cancel(arg);
    return NULL;
}

static void case_49(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    for (s.k = 0; s.k < 300; s.k++) {
        ech_run *run = NULL;
        pthread_t thread;
        CHECK_OK(ech_worker_submit(s.c.w, submit_gated, &s, &run, &err));
        CHECK(pthread_create(&thread, NULL, cancel_main, run) == 0);
        const ech_status rc = ech_run_wait(run, 10, &err);
        (void)pthread_join(thread, NULL);
        const uint32_t times = s.c.board->id[s.k + 10].times;
        CHECK(times <= 1);
        CHECK(rc == ECH_ECANCELLED || (rc == ECH_OK && times == 1));
        ech_run_release(&run);
    }
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.task_window[0].used == 0);
    conf_close(&s.c);
}

static ech_status submit_reader_of_ring(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const uint64_t shape[1] = { 64 };
    TRY(PUT(0, 1, CONF_WRITE, 77, { ECH_OUTPUT, ech_tensor_unplaced(ECH_DTYPE_U8, 1, shape) }));
    s->made = *ech_args_tensor(conf_last_args(), 1);
    TRY(PUT(0, 2, CONF_DEAF, 9, { ECH_INPUT, s->made }));
    return PUT(0, 3, CONF_LOG, 0, { ECH_INPUT, s->made });
}

static void case_50(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_reader_of_ring, &s, &run, &err));
    CHECK(conf_started(&s.c, 2));
    ech_run_cancel(run);
    CHECK_CODE(ech_run_wait(run, 0.1, &err), ECH_ETIMEOUT);
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.heap[0].used >= 64); /* the consumer runs: its input is still there */
    conf_set_flag(&s.c, 9);
    CHECK_CODE(ech_run_wait(run, 10, &err), ECH_ECANCELLED);
    CHECK(!conf_has_run(&s.c, 3)); /* handed over, but not begun */
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.heap[0].used == 0);
    ech_run_release(&run);
    conf_close(&s.c);
}

/* ---- dependencies --------------------------------------------------------------------------- */

static ech_status submit_raw(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT(0, 1, CONF_SLEEP, 30, { ECH_INOUT, all(s->x) }));
    return PUT(1, 2, CONF_LOG, 0, { ECH_INPUT, all(s->x) });
}

static void case_52(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0);
    CHECK_OK(run_scene(&s, submit_raw, &err));
    CHECK(conf_before(&s.c, 1, 2));
    conf_close(&s.c);
}

static ech_status submit_waw(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT(0, 1, CONF_SLEEP, 30, { ECH_OUTPUT_EXISTING, all(s->x) }));
    TRY(PUT(1, 2, CONF_WRITE, 5, { ECH_OUTPUT_EXISTING, all(s->x) }));
    CHECK(conf_ended(&s->c, 2)); /* the first one is long consumed */
    return PUT(0, 3, CONF_READ, 0, { ECH_INPUT, all(s->x) });
}

static void case_53(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0);
    CHECK_OK(run_scene(&s, submit_waw, &err));
    CHECK(conf_before(&s.c, 1, 2) && conf_before(&s.c, 2, 3));
    CHECK(s.c.board->id[3].value == 5);
    conf_close(&s.c);
}

static ech_status submit_no_dep(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT(0, 1, CONF_HOLD, 1, { ECH_INOUT, all(s->x) }));
    TRY(PUT(1, 2, CONF_HOLD, 2, { ECH_NO_DEP, all(s->x) }));  /* looks nothing up */
    return PUT(2, 3, CONF_LOG, 0, { ECH_NO_DEP, all(s->x) }); /* and left nothing */
}

static void case_54(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_no_dep, &s, &run, &err));
    CHECK(conf_started(&s.c, 1) && conf_started(&s.c, 2) && conf_ended(&s.c, 3));
    conf_set_flag(&s.c, 1);
    conf_set_flag(&s.c, 2);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

/* A 64 × 64 matrix of bytes over x. */
static ech_tensor tile(const ech_buffer b, const uint64_t row, const uint64_t n_rows,
                       const uint64_t col, const uint64_t n_cols)
{
    const uint64_t shape[2] = { 64, 64 };
    const ech_tensor t = ech_tensor_view(b, 0, ECH_DTYPE_U8, 2, shape);
    const ech_tensor rows = ech_tensor_slice(&t, 0, row, n_rows);
    return ech_tensor_slice(&rows, 1, col, n_cols);
}

static ech_status submit_tiles(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    /* Four disjoint ones at the same time: a row slice, and tiles and a block beside each other. */
    TRY(PUT(0, 1, CONF_HOLD, 1, { ECH_INOUT, tile(s->x, 0, 8, 0, 64) }));
    TRY(PUT(1, 2, CONF_HOLD, 1, { ECH_INOUT, tile(s->x, 8, 56, 0, 32) }));
    TRY(PUT(2, 3, CONF_HOLD, 1, { ECH_INOUT, tile(s->x, 8, 28, 32, 32) }));
    TRY(PUT(3, 4, CONF_HOLD, 1, { ECH_INOUT, tile(s->x, 36, 28, 32, 32) }));
    /* One that touches 1 and 2 by a byte each. */
    return PUT(4, 5, CONF_LOG, 0, { ECH_INOUT, tile(s->x, 7, 2, 31, 1) });
}

static void case_55(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 5, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_tiles, &s, &run, &err));
    for (uint64_t id = 1; id <= 4; id++) {
        CHECK(conf_started(&s.c, id));
    }
    conf_pause_ms(20);
    CHECK(!conf_has_run(&s.c, 5));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    CHECK(conf_before(&s.c, 1, 5) && conf_before(&s.c, 2, 5));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_whole_reader(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    for (uint64_t k = 0; k < 8; k++) {
        TRY(PUT((int)(k % 2), 1 + k, CONF_SLEEP, 5,
                { ECH_OUTPUT_EXISTING, conf_bytes(s->x, k * 512, 512) }));
    }
    return PUT(2, 20, CONF_LOG, 0, { ECH_INPUT, all(s->x) });
}

static void case_56(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0);
    CHECK_OK(run_scene(&s, submit_whole_reader, &err));
    for (uint64_t k = 0; k < 8; k++) {
        CHECK(conf_before(&s.c, 1 + k, 20));
    }
    conf_close(&s.c);
}

static ech_status submit_partial_cover(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT(0, 1, CONF_HOLD, 1, { ECH_OUTPUT_EXISTING, conf_bytes(s->x, 0, 2048) }));
    TRY(PUT(1, 2, CONF_HOLD, 2, { ECH_OUTPUT_EXISTING, conf_bytes(s->x, 2048, 2048) }));
    /* 3 covers the end of 1 and all of 2. */
    TRY(PUT(1, 3, CONF_LOG, 0, { ECH_OUTPUT_EXISTING, conf_bytes(s->x, 1024, 3072) }));
    /* 4 reads what 1 alone wrote; 5 what 3 wrote last. */
    TRY(PUT(2, 4, CONF_LOG, 0, { ECH_INPUT, conf_bytes(s->x, 0, 1024) }));
    return PUT(2, 5, CONF_LOG, 0, { ECH_INPUT, conf_bytes(s->x, 3000, 100) });
}

static void case_57(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_partial_cover, &s, &run, &err));
    CHECK(conf_started(&s.c, 1));
    conf_pause_ms(20);
    CHECK(!conf_has_run(&s.c, 4)); /* 1 is still the writer of its first bytes */
    conf_set_flag(&s.c, 1);
    CHECK(conf_ended(&s.c, 4)); /* and 4 doesn't wait for 2 or 3 */
    CHECK(!conf_has_run(&s.c, 3));
    conf_set_flag(&s.c, 2);
    CHECK_OK(ech_run_wait(run, 10, &err));
    CHECK(conf_before(&s.c, 1, 4) && conf_before(&s.c, 1, 3) && conf_before(&s.c, 2, 3) &&
          conf_before(&s.c, 3, 5));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_x_writer(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    s->k++;
    return PUT(s->k - 1, (uint64_t)s->k, CONF_LOG, 0, { ECH_INOUT, all(s->x) });
}

static void case_59(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0);
    ech_run *a = NULL, *b = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_x_writer, &s, &a, &err));
    CHECK_OK(ech_worker_submit(s.c.w, submit_x_writer, &s, &b, &err));
    CHECK_OK(ech_run_wait(b, 10, &err));
    CHECK_OK(ech_run_wait(a, 10, &err));
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.edges == 0 && n.tasks == 2);
    ech_run_release(&a);
    ech_run_release(&b);
    conf_close(&s.c);
}

static ech_status submit_two_from_one(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT(0, 1, CONF_HOLD, 1, { ECH_INOUT, all(s->x) }, { ECH_INOUT, all(s->y) }));
    return PUT(1, 2, CONF_LOG, 0, { ECH_INPUT, all(s->x) }, { ECH_INPUT, all(s->y) },
               { ECH_INPUT, conf_bytes(s->x, 0, 8) });
}

static void case_60(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_two_from_one, &s, &run, &err));
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.edges == 1);
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_group_then_reader(ech_orch *const orch, void *const arg,
                                           ech_error *const err)
{
    scene *const s = arg;
    static ech_args args[3];
    ech_args *ptrs[3];
    const int64_t workers[3] = { 0, 1, 2 };
    const ech_tensor board = conf_bytes(s->c.board_buffer, 0, sizeof(conf_board));
    const ech_tensor token = conf_bytes(s->x, 0, 1);
    for (uint64_t i = 0; i < 3; i++) {
        ech_args_clear(&args[i]);
        ech_args_add(&args[i], ECH_NO_DEP, &board);
        ech_args_add(&args[i], ECH_OUTPUT, &token);
        ech_args_add_scalar(&args[i], 1 + i);
        ech_args_add_scalar(&args[i], CONF_SLEEP);
        ech_args_add_scalar(&args[i], 10 * (i + 1));
        ptrs[i] = &args[i];
    }
    TRY(ech_submit_next_level_group(orch, &s->c.act, ptrs, workers, 3, NULL, err));
    return PUT(0, 10, CONF_LOG, 0, { ECH_INPUT, token });
}

static void case_61(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 3, 0);
    CHECK_OK(run_scene(&s, submit_group_then_reader, &err));
    for (uint64_t id = 1; id <= 3; id++) {
        CHECK(conf_before(&s.c, id, 10));
    }
    ech_worker_counters n;
    ech_worker_snapshot(s.c.w, &n);
    CHECK(n.tasks == 2 && n.groups == 1 && n.edges == 1);
    conf_close(&s.c);
}

static ech_status submit_war(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    for (uint64_t k = 0; k < 3; k++) {
        TRY(PUT((int)k, 1 + k, CONF_HOLD, 1, { ECH_INPUT, all(s->x) }));
    }
    return PUT(3, 10, CONF_LOG, 0, { ECH_OUTPUT_EXISTING, all(s->x) });
}

static void case_62(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 4, 0);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_war, &s, &run, &err));
    CHECK(conf_started(&s.c, 1) && conf_started(&s.c, 2) && conf_started(&s.c, 3)); /* together */
    conf_pause_ms(20);
    CHECK(!conf_has_run(&s.c, 10));
    conf_set_flag(&s.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    for (uint64_t k = 1; k <= 3; k++) {
        CHECK(conf_before(&s.c, k, 10));
    }
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_scratch(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const uint64_t shape[1] = { 1024 };
    ech_tensor scratch, unused;
    TRY(ech_scope_begin(orch, err));
    TRY(ech_alloc(orch, ECH_DTYPE_U8, 1, shape, &unused, err));
    TRY(ech_alloc(orch, ECH_DTYPE_U8, 1, shape, &scratch, err));
    TRY(PUT(0, 1, CONF_WRITE, 9, { ECH_INOUT, scratch }));
    TRY(PUT(0, 2, CONF_HOLD, 1, { ECH_INOUT, scratch }));
    TRY(PUT(0, 3, CONF_READ, 0, { ECH_INPUT, scratch }));
    TRY(ech_scope_end(orch, err));
    CHECK(conf_started(&s->c, 2));
    ech_worker_counters n;
    ech_worker_snapshot(s->c.w, &n);
    CHECK(n.heap[1].used >= 1024); /* the scope has ended, its users haven't */
    conf_set_flag(&s->c, 1);
    CHECK(conf_ended(&s->c, 3));
    for (int i = 0; i < 2000 && n.heap[1].used != 0; i++) {
        conf_pause_ms(1);
        ech_worker_snapshot(s->c.w, &n);
    }
    CHECK(n.heap[1].used == 0);
    TRY(ech_scope_begin(orch, err));
    TRY(ech_alloc(orch, ECH_DTYPE_U8, 1, shape, &unused, err));
    TRY(ech_scope_end(orch, err));
    ech_worker_snapshot(s->c.w, &n);
    CHECK(n.heap[1].used == 0); /* nobody used it: free at the end of the scope */
    return ECH_OK;
}

static void case_63(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    CHECK_OK(run_scene(&s, submit_scratch, &err));
    CHECK(s.c.board->id[3].value == 9);
    conf_close(&s.c);
}

static ech_status submit_overlaps(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    const conf_arg bad[2] = { { ECH_INOUT, conf_bytes(s->x, 0, 100) },
                              { ECH_OUTPUT_EXISTING, conf_bytes(s->x, 99, 10) } };
    s->rc[0] = conf_put(&s->c, orch, 0, 1, CONF_LOG, 0, bad, 2, &s->inner);
    TRY(PUT(0, 2, CONF_LOG, 0, { ECH_INOUT, conf_bytes(s->x, 0, 100) },
            { ECH_OUTPUT_EXISTING, conf_bytes(s->x, 100, 10) }));
    return PUT(0, 3, CONF_LOG, 0, { ECH_INPUT, conf_bytes(s->x, 0, 100) },
               { ECH_INPUT, conf_bytes(s->x, 50, 100) });
}

static void case_64(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0);
    CHECK_OK(run_scene(&s, submit_overlaps, &err));
    CHECK(s.rc[0] == ECH_EINVAL);
    CHECK(strstr(s.inner.text, "overlap") != NULL);
    CHECK(!conf_has_run(&s.c, 1) && conf_has_run(&s.c, 2) && conf_has_run(&s.c, 3));
    conf_close(&s.c);
}

static ech_status submit_write_to_read_only(ech_orch *const orch, void *const arg,
                                            ech_error *const err)
{
    scene *const s = arg;
    (void)err;
    const ech_tag TAGS[] = { ECH_OUTPUT_EXISTING, ECH_INOUT };
    for (int i = 0; i < 2; i++) {
        const conf_arg a = { TAGS[i], conf_bytes(s->y, 0, 16) };
        s->rc[i] = conf_put(&s->c, orch, 0, 1, CONF_LOG, 0, &a, 1, &s->inner);
    }
    /* The tag of what was added is changed behind the builder's back. */
    static ech_args args;
    const ech_tensor board = conf_bytes(s->c.board_buffer, 0, sizeof(conf_board));
    const ech_tensor t = conf_bytes(s->y, 0, 16);
    ech_args_clear(&args);
    ech_args_add(&args, ECH_NO_DEP, &board);
    ech_args_add(&args, ECH_INPUT, &t);
    args.tensors[1].tag = ECH_INOUT;
    ech_args_add_scalar(&args, 1);
    s->rc[2] = ech_submit_next_level(orch, &s->c.act, &args, NULL, 0, &s->inner);
    const conf_arg a = { ECH_INPUT, conf_bytes(s->y, 0, 16) };
    return conf_put(&s->c, orch, 0, 2, CONF_LOG, 0, &a, 1, err);
}

static void case_65(void)
{
    scene s = { 0 };
    ech_error err;
    conf_create(&s.c, 1, 0, NULL);
    CHECK_OK(ech_worker_buffer_create(s.c.w, "sealed", 4096, ECH_ACCESS_READ, &s.y, &err));
    CHECK_OK(ech_worker_init(s.c.w, &err));
    s.c.board = ech_worker_buffer_ptr(s.c.w, s.c.board_buffer);
    CHECK_OK(run_scene(&s, submit_write_to_read_only, &err));
    for (int i = 0; i < 3; i++) {
        CHECK(s.rc[i] == ECH_EACCESS);
    }
    CHECK(!conf_has_run(&s.c, 1) && conf_has_run(&s.c, 2));
    conf_close(&s.c);
}

static const conf_case CASES[] = {
    { 42, case_42 }, { 43, case_43 }, { 44, case_44 }, { 45, case_45 }, { 46, case_46 },
    { 47, case_47 }, { 48, case_48 }, { 49, case_49 }, { 50, case_50 }, { 52, case_52 },
    { 53, case_53 }, { 54, case_54 }, { 55, case_55 }, { 56, case_56 }, { 57, case_57 },
    { 59, case_59 }, { 60, case_60 }, { 61, case_61 }, { 62, case_62 }, { 63, case_63 },
    { 64, case_64 }, { 65, case_65 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
