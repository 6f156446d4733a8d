/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance cases that need a look inside, or a fault that only tests can make: 17, 18, 22, 30,
 * 31, 33 to 35, 37 to 41, 51, 69, 74, 77, 82, 87, 89, 90, 97, 103, 107.
 */
#include "tests/conformance/harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/os/fault.h"
#include "src/runtime/child.h"
#include "src/runtime/node.h"

typedef struct scene {
    conf c;
    ech_buffer x, y;
    ech_error inner;
    ech_status rc[8];
    ech_gate gate;
    double t;
    int k;
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

static ech_status submit_log(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(0, 2, CONF_LOG, 0);
}

static ech_status submit_hold(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(0, 1, CONF_HOLD, 1);
}

/* ---- start and close ------------------------------------------------------------------------ */

typedef struct wedge {
    ech_worker *w;
    uint32_t reached, release;
    ech_status rc;
    bool closes;
} wedge;

static void at_point(const ech_point point, const uint32_t child, void *const arg)
{
    wedge *const g = arg;
    (void)child;
    if (point != ECH_POINT_INIT_FORKED ||
        __atomic_exchange_n(&g->reached, 1, __ATOMIC_SEQ_CST) != 0)
        return;
    if (g->closes) {
        ech_error err;
        g->rc = ech_worker_shutdown(g->w, &err);
        return;
    }
    while (__atomic_load_n(&g->release, __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
}

static void *init_main(void *const arg)
{
    wedge *const g = arg;
    ech_error err;
    (void)ech_worker_init(g->w, &err);
    return NULL;
}

static void case_17(void)
{
    conf c;
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.close_timeout_s = 0.3;
    conf_create(&c, 1, 0, &o);
    wedge g = { .w = c.w };
    ech_point_hook(at_point, &g);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, init_main, &g) == 0);
    while (__atomic_load_n(&g.reached, __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
    const double t = conf_now();
    CHECK(ech_worker_shutdown(c.w, &err) != ECH_OK);
    CHECK(conf_now() - t < 11);
    __atomic_store_n(&g.release, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(thread, NULL);
    ech_point_hook(NULL, NULL);
    conf_close(&c);
}

static void case_18(void)
{
    conf c;
    conf_create(&c, 1, 0, NULL);
    wedge g = { .w = c.w, .closes = true };
    ech_point_hook(at_point, &g);
    (void)init_main(&g);
    ech_point_hook(NULL, NULL);
    CHECK(g.reached == 1 && g.rc == ECH_ESTATE);
    conf_close(&c);
}

static void case_22(void)
{
    conf c;
    ech_error err;
    conf_open(&c, 1, 0, NULL);
    ech_child_info info;
    CHECK_OK(ech_worker_child_info(c.w, 0, &info, &err));
    ech_fault_arm(ECH_FAULT_UNMAP, 0, 2);
    CHECK(ech_worker_shutdown(c.w, &err) != ECH_OK);
    CHECK(ech_fault_calls(ECH_FAULT_UNMAP) >=
          2);                          /* the second was tried after the first had failed */
    CHECK(conf_pid_is_gone(info.pid)); /* and so was the other class: processes */
    CHECK(c.w->journal.n == 2);
    ech_fault_arm(ECH_FAULT_UNMAP, 0, 0);
    conf_close(&c);
}

/* ---- mailbox and endpoint ------------------------------------------------------------------- */

static ech_mailbox *shared_mailbox(void)
{
    void *const p =
        mmap(NULL, sizeof(ech_mailbox), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    ech_mailbox_reset(p, 0, 0);
    return p;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return z ^ z >> 31;
}

#define ROUNDS 20000

/* The child of case 30: sees whole payloads and answers with their sum. */
static void echo_child(ech_mailbox *const m)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        ech_frame *const f = &m->frames[(i - 1) % ECH_FRAMES];
        while (ech_load_acquire(&f->state) != ECH_FRAME_READY) {
            ech_cpu_relax();
        }
        bool whole = f->id.dispatch_id == i;
        for (uint32_t k = 0; k < ECH_MAX_SCALARS; k += 9) {
            whole = whole && f->scalars[k] == mix(i * 1000 + k);
        }
        if (!whole) _exit(3);
        f->done_id = i;
        f->result = (int32_t)(i % 1000);
        ech_store_release(&f->state, ECH_FRAME_DONE);
    }
    _exit(0);
}

static void case_30(void)
{
    ech_mailbox *const m = shared_mailbox();
    const int pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) echo_child(m);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        ech_frame *const f = &m->frames[(i - 1) % ECH_FRAMES];
        while (i > ECH_FRAMES && ech_load_acquire(&f->state) != ECH_FRAME_DONE) {
            ech_cpu_relax();
        }
        if (i > ECH_FRAMES)
            CHECK(f->done_id == i - ECH_FRAMES && f->result == (int32_t)((i - ECH_FRAMES) % 1000));
        f->id.dispatch_id = i;
        for (uint32_t k = 0; k < ECH_MAX_SCALARS; k++) {
            f->scalars[k] = mix(i * 1000 + k);
        }
        ech_store_release(&f->state, ECH_FRAME_READY);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    (void)munmap(m, sizeof *m);
}

static void case_31(void)
{
    /* Offsets and sizes are static_asserts of mailbox.h; here: every value of every table has a
     * name. */
#define X(name, value, meaning, hint, http, exit_code, retry)                                      \
    CHECK(strcmp(ech_status_name(ECH_##name), #name) == 0 && ech_status_str(ECH_##name)[0] != '\0');
    ECH_STATUS_MAP(X)
#undef X
    CHECK(strcmp(ech_status_name((ech_status)1), "UNKNOWN") == 0);
    for (uint32_t i = 0; i < ECH_SLOT_STATE_COUNT; i++) {
        for (uint32_t j = 0; j < i; j++) {
            CHECK(strcmp(ech_slot_state_name(i), ech_slot_state_name(j)) != 0);
        }
    }
    for (int i = 0; i < ECH_WORKER_STATE_COUNT; i++) {
        CHECK(ech_worker_state_name((ech_worker_state)i)[0] != '\0');
    }
    for (int i = 0; i < ECH_POINT_COUNT; i++) {
        CHECK(ech_point_name((ech_point)i)[0] != '\0');
    }
    for (int i = 0; i < ECH_DTYPE_COUNT; i++) {
        CHECK(ech_dtype_bytes((ech_dtype)i) > 0);
    }
    CHECK(ech_dtype_bytes(ECH_DTYPE_COUNT) == 0);
}

static void case_33(void)
{
    ech_error err;
    static ech_frame f;
    f.n_tensors = ECH_MAX_TENSORS;
    f.n_scalars = ECH_MAX_SCALARS;
    CHECK_OK(ech_frame_check(&f, &err));
    const uint16_t BAD[] = { ECH_MAX_TENSORS + 1, 32768, 65535 };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        f.n_tensors = BAD[i];
        CHECK_CODE(ech_frame_check(&f, &err), ECH_EFORMAT);
        f.n_tensors = 0;
        f.n_scalars = BAD[i];
        CHECK_CODE(ech_frame_check(&f, &err), ECH_EFORMAT);
        f.n_scalars = 0;
    }
}

typedef struct heard {
    char log[16];
    size_t n;
} heard;

static void hear_accepted(void *const ctx, ech_endpoint *const ep, const ech_identity *const id)
{
    heard *const h = ctx;
    (void)ep, (void)id;
    h->log[h->n++] = 'a';
}

static void hear_completed(void *const ctx, ech_endpoint *const ep, const ech_completion *const c)
{
    heard *const h = ctx;
    (void)ep, (void)c;
    h->log[h->n++] = 'c';
}

/* An endpoint over a mailbox of this process: the test plays the child. */
static void open_endpoint(ech_endpoint *const ep, ech_mailbox *const m)
{
    *ep = (ech_endpoint){ .mail = m };
    ech_endpoint_reset(ep, 0);
    ep->state = ECH_CHILD_READY;
}

static void hand_over(ech_endpoint *const ep, const uint64_t dispatch_id)
{
    static ech_slot slot;
    const ech_identity id = { .dispatch_id = dispatch_id, .run_id = 7, .slot = 3, .generation = 2 };
    ech_endpoint_activate(ep, ech_endpoint_stage(ep, &id, &slot, 0, 0));
}

static void answer(ech_mailbox *const m, const uint64_t dispatch_id, const uint64_t done_id)
{
    ech_frame *const f = &m->frames[(dispatch_id - 1) % ECH_FRAMES];
    f->accepted = (uint32_t)dispatch_id;
    f->done_id = done_id;
    f->result = ECH_OK;
    ech_store_release(&f->state, ECH_FRAME_DONE);
}

static void case_34(void)
{
    ech_mailbox *const m = shared_mailbox();
    ech_endpoint ep;
    heard h = { 0 };
    const ech_completion_sink sink = { hear_accepted, hear_completed, &h };
    open_endpoint(&ep, m);
    hand_over(&ep, 1);
    answer(m, 1, 1);
    ech_endpoint_collect(&ep, &sink);
    CHECK(memchr(h.log, 'c', h.n) != NULL && ep.state == ECH_CHILD_READY);
    hand_over(&ep, 2);
    answer(m, 2, 1); /* a stale one */
    const size_t before = h.n;
    ech_endpoint_collect(&ep, &sink);
    CHECK(memchr(h.log + before, 'c', h.n - before) == NULL);
    CHECK(ep.state == ECH_CHILD_POISONED);
    (void)munmap(m, sizeof *m);
}

static void case_35(void)
{
    ech_mailbox *const m = shared_mailbox();
    ech_endpoint ep;
    heard h = { 0 };
    const ech_completion_sink sink = { hear_accepted, hear_completed, &h };
    open_endpoint(&ep, m);
    hand_over(&ep, 1);
    answer(m, 1, 1); /* begun and finished between two looks */
    ech_endpoint_collect(&ep, &sink);
    CHECK(h.n == 2 && h.log[0] == 'a' && h.log[1] == 'c');
    (void)munmap(m, sizeof *m);
}

static ech_status submit_fail_on_flag(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 1, CONF_HOLD, 1));
    return PUT0(0, 3, CONF_FAIL, 0);
}

static ech_status submit_prepared(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(PUT0(0, 10, CONF_LOG, 0));
    return PUT0(1, 11, CONF_LOG, 0);
}

static void case_37(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    ech_run *active = NULL, *prepared = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_fail_on_flag, &s, &active, &err));
    CHECK_OK(ech_worker_submit(s.c.w, submit_prepared, &s, &prepared, &err));
    conf_pause_ms(20);
    CHECK(!conf_has_run(&s.c, 11)); /* child 1 is idle, but the run isn't active */
    conf_set_flag(&s.c, 1);
    CHECK(ech_run_wait(active, 10, &err) != ECH_OK);
    CHECK(ech_run_wait(prepared, 10, &err) != ECH_OK);
    CHECK_TEXT("X says m");
    CHECK(!conf_has_run(&s.c, 10) && !conf_has_run(&s.c, 11));
    ech_run_release(&active);
    ech_run_release(&prepared);
    CHECK_OK(
        ech_worker_run(s.c.w, submit_prepared, &s, &err)); /* reported: the next one succeeds */
    conf_close(&s.c);

    open_scene(&s, 2, 0, NULL);
    CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &active, &err));
    CHECK_OK(ech_worker_submit(s.c.w, submit_prepared, &s, &prepared, &err));
    (void)ech_worker_shutdown(s.c.w, &err);
    CHECK(ech_run_wait(prepared, 10, &err) != ECH_OK);
    ech_run_release(&active);
    ech_run_release(&prepared);
    conf_close(&s.c);
}

static ech_status nothing(ech_task *const task, ech_error *const err)
{
    (void)task, (void)err;
    return ECH_OK;
}

typedef struct registrar {
    ech_worker *w;
    ech_callable callable;
    ech_status rc;
    uint32_t done;
    bool undo;
} registrar;

static void *register_main(void *const arg)
{
    registrar *const r = arg;
    ech_error err;
    r->rc = r->undo ? ech_worker_unregister(r->w, &r->callable, &err)
                    : ech_worker_register_host(r->w, "late", nothing, &r->callable, &err);
    __atomic_store_n(&r->done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void case_38(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 1, NULL);
    registrar r = { .w = s.c.w };
    for (int undo = 0; undo < 2; undo++) {
        ech_run *run = NULL;
        s.c.board->flags[1] = 0;
        s.c.board->id[1].started = 0;
        CHECK_OK(ech_worker_submit(s.c.w, submit_hold, &s, &run, &err));
        CHECK(conf_started(&s.c, 1));
        pthread_t thread;
        r.undo = undo != 0;
        r.done = 0;
        CHECK(pthread_create(&thread, NULL, register_main, &r) == 0);
        conf_pause_ms(50);
        CHECK(__atomic_load_n(&r.done, __ATOMIC_SEQ_CST) == 0); /* not before the run's end */
        conf_set_flag(&s.c, 1);
        CHECK_OK(ech_run_wait(run, 10, &err));
        (void)pthread_join(thread, NULL);
        CHECK(r.rc == ECH_OK);
        ech_run_release(&run);
    }
    conf_close(&s.c);
}

/* A platform that takes its time with command 5. */
static ech_status lazy_control(void *const s, const uint32_t op, const void *const req,
                               const size_t req_len, void *const resp, const size_t cap,
                               size_t *const ret_len, ech_error *const err)
{
    (void)s, (void)req, (void)req_len, (void)resp, (void)cap, (void)err;
    if (op == 5) conf_pause_ms(700);
    *ret_len = 0;
    return ECH_OK;
}

static ech_status lazy_open(const ech_child_env *const env, void **const ret_state,
                            ech_error *const err)
{
    (void)env, (void)err;
    static int state;
    *ret_state = &state;
    return ECH_OK;
}

static ech_status lazy_load(void *s, const char *kind, const char *name, const void *b, size_t n,
                            void **p, ech_error *e)
{
    (void)s, (void)kind, (void)name, (void)b, (void)n, (void)p, (void)e;
    return ECH_OK;
}

static ech_status lazy_run(void *s, void *p, const void *b, size_t n, ech_task *t, ech_error *e)
{
    (void)s, (void)p, (void)b, (void)n, (void)t, (void)e;
    return ECH_OK;
}

static void lazy_close(void *const state)
{
    (void)state;
}

static const ech_child_ops LAZY = {
    .name = "lazy",
    .open = lazy_open,
    .load = lazy_load,
    .run = lazy_run,
    .control = lazy_control,
    .close = lazy_close,
};

static ech_status submit_deaf(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return PUT0(0, 1, CONF_DEAF, 1);
}

static void case_39(void)
{
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.n_chips = 1;
    o.chip_ops = &LAZY;
    ech_worker *w = NULL;
    CHECK_OK(ech_worker_create(&w, &o, &err));
    CHECK_OK(ech_worker_init(w, &err));
    char resp[8];
    size_t len;
    CHECK_OK(ech_worker_control(w, 0, 4, "x", 1, resp, sizeof resp, &len, 5, &err));
    CHECK_CODE(ech_worker_control(w, 0, 5, "x", 1, resp, sizeof resp, &len, 0.1, &err),
               ECH_ETIMEOUT);
    const double t = conf_now();
    CHECK_CODE(ech_worker_control(w, 0, 4, "x", 1, resp, sizeof resp, &len, 5, &err),
               ECH_EPOISONED);
    CHECK(conf_now() - t < 0.1);
    CHECK_OK(ech_worker_close(&w, &err));
}

static void die_at(const ech_point point, const uint32_t child, void *const arg)
{
    (void)child;
    if (point == *(const ech_point *)arg) (void)kill(getpid(), SIGKILL);
}

static void case_40(void)
{
    const ech_point POINTS[] = { ECH_POINT_FRAME_SEEN, ECH_POINT_FRAME_ACCEPTED,
                                 ECH_POINT_FRAME_DECODED, ECH_POINT_FRAME_RAN,
                                 ECH_POINT_FRAME_RESULT };
    for (size_t i = 0; i < sizeof POINTS / sizeof POINTS[0]; i++) {
        scene s;
        ech_error err;
        ech_point at = POINTS[i];
        ech_point_hook(die_at, &at);
        open_scene(&s, 1, 0, NULL);
        CHECK_CODE(ech_worker_run(s.c.w, submit_log, &s, &err), ECH_ELOST);
        ech_worker_counters n;
        ech_worker_snapshot(s.c.w, &n);
        CHECK(n.tasks == 1 && n.tasks_failed == 1 && n.children_lost == 1 && n.in_flight == 0);
        ech_point_hook(NULL, NULL);
        conf_close(&s.c);
    }
}

static void case_41(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_deaf, &s, &run, &err));
    CHECK(conf_started(&s.c, 1));
    ech_run_cancel(run);
    ech_child_info info;
    for (int i = 0; i < 20; i++) {
        conf_pause_ms(5);
        CHECK_OK(ech_worker_child_info(s.c.w, 0, &info, &err));
        CHECK(info.in_flight == 1); /* busy until its last completion */
        CHECK(ech_load_acquire(&s.c.w->endpoints[0].mail->abort_run) >=
              ech_run_id(run)); /* the request stands */
    }
    conf_set_flag(&s.c, 1);
    CHECK_CODE(ech_run_wait(run, 10, &err), ECH_ECANCELLED);
    CHECK_OK(ech_worker_child_info(s.c.w, 0, &info, &err));
    CHECK(info.in_flight == 0);
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_gate(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(ech_gate_create(orch, &s->gate, err));
    conf_gate(s->gate);
    TRY(PUT0(0, 1, CONF_LOG, 0));
    ech_gate_open(s->c.w, s->gate);
    return ECH_OK;
}

static void case_51(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 1, 0, NULL);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(ech_worker_run(s.c.w, submit_gate, &s, &err));
        ech_gate_fail(s.c.w, s.gate, ECH_EINTERNAL, "too late"); /* of a run that is over */
        ech_gate unknown = s.gate;
        unknown.slot = 3U << 28 | 77777;
        unknown.generation += 9;
        ech_gate_fail(s.c.w, unknown, ECH_EINTERNAL, "never was");
        unknown.run += 100;
        ech_gate_open(s.c.w, unknown);
    }
    CHECK(s.c.board->id[1].times == 50);
    conf_close(&s.c);
}

/* ---- scheduling and slots ------------------------------------------------------------------- */

static ech_status submit_69(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    static ech_args args[2];
    ech_args *ptrs[2] = { &args[0], &args[1] };
    const int64_t workers[2] = { 0, 1 };
    const ech_tensor board = conf_bytes(s->c.board_buffer, 0, sizeof(conf_board));
    TRY(PUT0(0, 1, CONF_HOLD, 1));
    for (uint64_t i = 0; i < 2; i++) {
        ech_args_clear(&args[i]);
        ech_args_add(&args[i], ECH_NO_DEP, &board);
        ech_args_add_scalar(&args[i], 5 + i);
    }
    TRY(ech_submit_next_level_group(orch, &s->c.act, ptrs, workers, 2, NULL, err));
    return PUT0(1, 4, CONF_LOG, 0); /* its child is idle and reserved */
}

static void case_69(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    s.c.w->warn_ns = 20 * 1000000;
    for (uint64_t episode = 1; episode <= 2; episode++) {
        ech_run *run = NULL;
        s.c.board->flags[1] = 0;
        s.c.board->id[1].started = 0;
        CHECK_OK(ech_worker_submit(s.c.w, submit_69, &s, &run, &err));
        CHECK(conf_started(&s.c, 1));
        CHECK_CODE(ech_run_wait(run, 2, &err), ECH_ETIMEOUT);
        CHECK(s.c.w->count.warnings == episode);
        conf_set_flag(&s.c, 1);
        CHECK_OK(ech_run_wait(run, 10, &err));
        ech_run_release(&run);
    }
    conf_close(&s.c);
}

static ech_status submit_74(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    TRY(ech_gate_create(orch, &s->gate, err));
    for (uint64_t i = 0; i < 100; i++) {
        conf_arg many[12];
        for (uint64_t k = 0; k < 12; k++) {
            many[k] = (conf_arg){ k % 2 == 0 ? ECH_INPUT : ECH_INOUT,
                                  conf_bytes(k % 2 == 0 ? s->x : s->y, (i * 12 + k) % 4096, 1) };
        }
        conf_gate(s->gate);
        TRY(conf_put(&s->c, orch, (int)(i % 2), 100 + i, CONF_LOG, 0, many, 12, err));
    }
    return ECH_OK;
}

static void case_74(void)
{
    scene s;
    ech_error err;
    open_scene(&s, 2, 0, NULL);
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(s.c.w, submit_74, &s, &run, &err));
    ech_fault_arm(ECH_FAULT_ALLOC, 0, UINT64_MAX); /* from here on whoever allocates, fails */
    ech_gate_open(s.c.w, s.gate);
    const ech_status rc = ech_run_wait(run, 10, &err);
    const uint64_t calls = ech_fault_calls(ECH_FAULT_ALLOC);
    ech_fault_arm(ECH_FAULT_ALLOC, 0, 0);
    CHECK_OK(rc);
    CHECK(calls == 0);
    ech_run_release(&run);
    conf_close(&s.c);
}

static ech_status submit_77(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    conf_arg many[40];
    for (uint64_t k = 0; k < 40; k++) {
        many[k] = (conf_arg){ ECH_INOUT, conf_bytes(s->x, k * 8, 8) };
    }
    TRY(PUT0(0, 1, CONF_LOG, 0));
    ech_fault_arm(ECH_FAULT_ALLOC, (uint64_t)s->k, 1);
    s->rc[0] = conf_put(&s->c, orch, 0, 2, CONF_LOG, 0, many, 40, &s->inner);
    s->rc[1] =
        ech_fault_calls(ECH_FAULT_ALLOC) > (uint64_t)s->k ? ECH_OK : ECH_EAGAIN; /* did it hit? */
    ech_fault_arm(ECH_FAULT_ALLOC, 0, 0);
    return ECH_OK;
}

static void case_77(void)
{
    int hits = 0;
    for (int n = 0; n < 50; n++) {
        scene s; /* a new worker each time: it grows its tables at the first need */
        ech_error err;
        open_scene(&s, 1, 0, NULL);
        s.k = n;
        CHECK_OK(ech_worker_run(s.c.w, submit_77, &s, &err));
        const bool hit = s.rc[1] == ECH_OK;
        hits += hit;
        CHECK(!hit || s.rc[0] == ECH_ENOMEM);
        CHECK(s.c.board->id[1].times == 1 && s.c.board->id[2].times == (hit ? 0U : 1U));
        ech_worker_counters counters;
        ech_worker_snapshot(s.c.w, &counters);
        CHECK(counters.task_window[0].used == 0 && counters.dep_pool[0].used == 0);
        CHECK_OK(ech_worker_run(s.c.w, submit_log, &s, &err));
        conf_close(&s.c);
        if (!hit) break;
    }
    CHECK(hits > 0);
}

static void case_82(void)
{
    static ech_run_table t;
    static ech_run a, b;
    t.depth = 2;
    ech_lease la, lb, lc;
    CHECK(ech_lease_take(&t, &a, &la) && ech_lease_take(&t, &b, &lb));
    CHECK(!ech_lease_take(&t, &a, &lc));
    CHECK(ech_lease_release(&t, la));
    CHECK(!ech_lease_release(&t, la)); /* twice: harmless */
    CHECK(ech_lease_take(&t, &b, &lc));
    CHECK(ech_lease_run(&t, la) == NULL); /* stale: can neither see … */
    CHECK(!ech_lease_release(&t, la));    /* … nor release the new holder's place */
    CHECK(ech_lease_run(&t, lc) == &b && ech_lease_run(&t, lb) == &b);
}

/* ---- rings ---------------------------------------------------------------------------------- */

static ech_worker_options with_heap(const uint64_t bytes)
{
    ech_worker_options o = ech_worker_options_default();
    for (int i = 0; i < ECH_RINGS; i++) {
        o.rings.heap_bytes[i] = bytes;
    }
    return o;
}

static ech_status alloc_bytes(ech_orch *const orch, const uint64_t n, ech_tensor *const ret,
                              ech_error *const err)
{
    const uint64_t shape[1] = { n };
    return ech_alloc(orch, ECH_DTYPE_U8, 1, shape, ret, err);
}

/* A piece of ring 1 that lives until the task `id` on `child` is done. */
static ech_status hold_slab(scene *const s, ech_orch *const orch, const int child,
                            const uint64_t id, const uint64_t bytes, ech_error *const err)
{
    ech_tensor t;
    TRY(ech_scope_begin(orch, err));
    TRY(alloc_bytes(orch, bytes, &t, err));
    const conf_arg a = { ECH_INOUT, t };
    TRY(conf_put(&s->c, orch, child, id, CONF_HOLD, id, &a, 1, err));
    return ech_scope_end(orch, err);
}

static void *release_87(void *const arg)
{
    scene *const s = arg;
    conf_set_flag(&s->c, 3);
    CHECK(conf_ended(&s->c, 3));
    conf_pause_ms(100);
    double now = conf_now();
    __atomic_store(&s->t, &now, __ATOMIC_SEQ_CST);
    conf_set_flag(&s->c, 1);
    conf_set_flag(&s->c, 2);
    return NULL;
}

static ech_status submit_87(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    for (uint64_t id = 1; id <= 4; id++) {
        TRY(hold_slab(s, orch, (int)id - 1, id, 1024, err));
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, release_87, s) == 0);
    ech_tensor t;
    TRY(ech_scope_begin(orch, err));
    TRY(alloc_bytes(orch, 1024, &t, err));
    double freed;
    __atomic_load(&s->t, &freed, __ATOMIC_SEQ_CST);
    CHECK(freed != 0 && conf_now() >= freed); /* slab 3 alone was no help */
    TRY(ech_scope_end(orch, err));
    (void)pthread_join(thread, NULL);
    conf_set_flag(&s->c, 4);
    return ECH_OK;
}

static void case_87(void)
{
    scene s;
    ech_error err;
    const ech_worker_options o = with_heap(4096);
    open_scene(&s, 4, 0, &o);
    CHECK_OK(ech_worker_run(s.c.w, submit_87, &s, &err));
    conf_close(&s.c);
}

static void *set_flag_soon(void *const arg)
{
    scene *const s = arg;
    conf_pause_ms(20);
    conf_set_flag(&s->c, 1);
    return NULL;
}

static void *shut_down_soon(void *const arg)
{
    scene *const s = arg;
    ech_error err;
    conf_pause_ms(50);
    (void)ech_worker_shutdown(s->c.w, &err);
    return NULL;
}

static ech_status submit_89(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_tensor t;
    pthread_t thread;
    if (s->k == 1) {
        /* Nobody will ever open this gate while the callback runs: nothing progresses. */
        TRY(ech_gate_create(orch, &s->gate, err));
        TRY(ech_scope_begin(orch, err));
        TRY(alloc_bytes(orch, 4096, &t, err));
        conf_gate(s->gate);
        const conf_arg a = { ECH_INOUT, t };
        TRY(conf_put(&s->c, orch, 0, 1, CONF_LOG, 0, &a, 1, err));
        TRY(ech_scope_end(orch, err));
    } else {
        TRY(hold_slab(s, orch, 0, 1, 4096, err));
    }
    if (s->k != 1)
        CHECK(pthread_create(&thread, NULL, s->k == 0 ? set_flag_soon : shut_down_soon, s) == 0);
    s->t = conf_now();
    TRY(ech_scope_begin(orch, err));
    s->rc[0] = alloc_bytes(orch, 64, &t, &s->inner);
    s->t = conf_now() - s->t;
    TRY(ech_scope_end(orch, err));
    if (s->k == 0) (void)pthread_join(thread, NULL);
    if (s->k == 2) (void)pthread_detach(thread);
    if (s->k == 1) ech_gate_open(s->c.w, s->gate);
    return ECH_OK;
}

static void case_89(void)
{
    ech_error err;
    ech_worker_options o = with_heap(4096);
    o.close_timeout_s = 0.3;
    for (int k = 0; k < 3; k++) {
        scene s;
        open_scene(&s, 1, 0, &o);
        s.k = k;
        (void)ech_worker_run(s.c.w, submit_89, &s, &err);
        if (k == 0) CHECK(s.rc[0] == ECH_OK && s.t > 0.01 && s.t < 5);
        if (k == 1) CHECK(s.rc[0] == ECH_HEAP_RING_DEADLOCK && s.t > 0.4 && s.t < 5);
        if (k == 2) CHECK(s.rc[0] != ECH_OK && s.t < 10);
        conf_set_flag(&s.c, 1);
        conf_pause_ms(k == 2 ? 500 : 0); /* the detached closer */
        conf_close(&s.c);
    }
}

static ech_status submit_90(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_tensor outer, t;
    TRY(alloc_bytes(orch, 1024, &outer, err)); /* an outer-scope live slab */
    TRY(hold_slab(s, orch, 0, 1, 4096, err));  /* ring 1 is full */
    const double start = conf_now();
    TRY(alloc_bytes(orch, 1024, &t, err)); /* ring 0 isn't */
    CHECK(conf_now() - start < 0.05);
    conf_set_flag(&s->c, 1);
    for (int i = 0; i < 500; i++) { /* churn inside, while the outer slab lives */
        TRY(ech_scope_begin(orch, err));
        TRY(alloc_bytes(orch, 4096, &t, err));
        TRY(ech_scope_end(orch, err));
    }
    return ECH_OK;
}

static void case_90(void)
{
    scene s;
    ech_error err;
    const ech_worker_options o = with_heap(4096);
    open_scene(&s, 1, 0, &o);
    CHECK_OK(ech_worker_run(s.c.w, submit_90, &s, &err));
    conf_close(&s.c);
}

static ech_status submit_97(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_tensor t;
    (void)err;
    s->rc[0] = alloc_bytes(orch, 1 << 20, &t, &s->inner); /* fatal: it can never fit */
    ech_error later;
    s->rc[1] = conf_put(&s->c, orch, 0, 1, CONF_LOG, 0, NULL, 0, &later);
    s->rc[2] = alloc_bytes(orch, 64, &t, &later);
    CHECK(strstr(later.text, s->inner.text) != NULL || strcmp(later.text, s->inner.text) == 0);
    return ECH_OK;
}

static void case_97(void)
{
    scene s;
    ech_error err;
    const ech_worker_options o = with_heap(4096);
    open_scene(&s, 1, 0, &o);
    CHECK(ech_worker_run(s.c.w, submit_97, &s, &err) == s.rc[0]);
    CHECK(s.rc[0] != ECH_OK && s.rc[1] == s.rc[0] && s.rc[2] == s.rc[0]);
    CHECK(!conf_has_run(&s.c, 1));
    /* The line for the operator: what it is called, what it means, what to do. */
    CHECK(ech_status_name(s.rc[0])[0] != '\0' && ech_status_str(s.rc[0])[0] != '\0' &&
          ech_status_hint(s.rc[0])[0] != '\0');
    conf_close(&s.c);
}

/* ---- levels, registration ------------------------------------------------------------------- */

static ech_callable sub_103, orch_103;
static ech_buffer buffer_103;

static ech_status write_scalar(ech_task *const task, ech_error *const err)
{
    (void)err;
    uint64_t *const words = ech_task_tensor_at(task, 0)->ptr;
    const ech_tensor *const view = ech_task_view_at(task, 0);
    words[0] = ech_task_scalar_at(task, 0);
    words[1] = ech_task_scalar_at(task, 1);
    memcpy(&words[2], &view->buffer, sizeof view->buffer);
    return ECH_OK;
}

static ech_status forward_103(ech_orch *const orch, void *const arg, ech_error *const err)
{
    const ech_task *const task = arg;
    static ech_args args;
    ech_args_clear(&args);
    ech_args_add(&args, ECH_INOUT, ech_task_view_at(task, 0));
    ech_args_add_scalar(&args, ech_task_scalar_at(task, 0) + 1);
    ech_args_add_scalar(&args, ech_task_scalar_at(task, 1));
    return ech_submit_sub(orch, &sub_103, &args, NULL, err);
}

static ech_status top_103(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)arg;
    static ech_args args;
    const uint64_t shape[1] = { 8 };
    const ech_tensor t = ech_tensor_view(buffer_103, 0, ECH_DTYPE_U64, 1, shape);
    ech_args_clear(&args);
    ech_args_add(&args, ECH_INOUT, &t);
    ech_args_add_scalar(&args, 41);
    ech_args_add_scalar(&args, UINT64_MAX);
    return ech_submit_next_level(orch, &orch_103, &args, NULL, 0, err);
}

static void case_103(void)
{
    ech_error err;
    ech_worker_options lo = ech_worker_options_default();
    lo.n_subs = 1;
    ech_worker *low = NULL, *high = NULL;
    CHECK_OK(ech_worker_create(&low, &lo, &err));
    CHECK_OK(ech_worker_register_host(low, "write", write_scalar, &sub_103, &err));
    ech_worker_options hi = ech_worker_options_default();
    hi.level = 4;
    CHECK_OK(ech_worker_create(&high, &hi, &err));
    CHECK_OK(ech_worker_add_child(high, &low, NULL, &err));
    CHECK_OK(ech_worker_buffer_create(high, "b", 64, ECH_ACCESS_RW, &buffer_103, &err));
    CHECK_OK(ech_worker_register_orch(high, "forward", forward_103, &orch_103, &err));
    CHECK_OK(ech_worker_init(high, &err));
    CHECK_OK(ech_worker_run(high, top_103, NULL, &err));
    const uint64_t *const words = ech_worker_buffer_ptr(high, buffer_103);
    CHECK(words[0] == 42 && words[1] == UINT64_MAX);
    CHECK(memcmp(&words[2], &buffer_103, sizeof buffer_103) == 0);
    CHECK_OK(ech_worker_close(&high, &err));
}

/* A platform whose second chip can't load what is called "picky". */
static ech_status picky_open(const ech_child_env *const env, void **const ret_state,
                             ech_error *const err)
{
    static uint32_t child;
    (void)err;
    child = env->child;
    *ret_state = &child;
    return ECH_OK;
}

static uint32_t *unloads; /* shared: how often chips forgot a program */

static ech_status picky_load(void *const state, const char *const kind, const char *const name,
                             const void *const bytes, const size_t n, void **const ret_program,
                             ech_error *const err)
{
    (void)kind, (void)bytes, (void)n, (void)ret_program;
    if (*(uint32_t *)state != 1 || strcmp(name, "picky") != 0) return ECH_OK;
    err->code = ECH_EUNSUPPORTED;
    (void)snprintf(err->text, sizeof err->text, "not my kind of program");
    return ECH_EUNSUPPORTED;
}

static void picky_unload(void *const state, void *const program)
{
    (void)state, (void)program;
    (void)__atomic_add_fetch(unloads, 1, __ATOMIC_SEQ_CST);
}

static ech_status picky_run(void *s, void *p, const void *b, size_t n, ech_task *t, ech_error *e)
{
    (void)s, (void)p, (void)b, (void)n, (void)t, (void)e;
    return ECH_OK;
}

static void picky_close(void *const state)
{
    (void)state;
}

static const ech_child_ops PICKY = {
    .name = "picky",
    .open = picky_open,
    .load = picky_load,
    .unload = picky_unload,
    .run = picky_run,
    .close = picky_close,
};

static void case_107(void)
{
    ech_error err;
    unloads = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(unloads != MAP_FAILED);
    ech_worker_options o = ech_worker_options_default();
    o.n_chips = 3;
    o.chip_ops = &PICKY;
    ech_worker *w = NULL;
    CHECK_OK(ech_worker_create(&w, &o, &err));
    CHECK_OK(ech_worker_init(w, &err));
    ech_callable callable = { 0 };
    CHECK(ech_worker_register_program(w, "program", "picky", "p", 1, &callable, &err) != ECH_OK);
    CHECK_TEXT("not my kind of program");
    static const ech_callable NONE;
    CHECK(memcmp(&callable, &NONE, sizeof NONE) == 0); /* no handle */
    CHECK(*unloads >= 1);                              /* who had taken it, gave it back */
    ech_worker_counters n;
    ech_worker_snapshot(w, &n);
    CHECK(n.callables == 0);
    CHECK_OK(ech_worker_register_program(w, "program", "easy", "p", 1, &callable, &err));
    CHECK_OK(ech_worker_close(&w, &err));
    (void)munmap(unloads, 4096);
}

static const conf_case CASES[] = {
    { 17, case_17 }, { 18, case_18 }, { 22, case_22 },   { 30, case_30 },   { 31, case_31 },
    { 33, case_33 }, { 34, case_34 }, { 35, case_35 },   { 37, case_37 },   { 38, case_38 },
    { 39, case_39 }, { 40, case_40 }, { 41, case_41 },   { 51, case_51 },   { 69, case_69 },
    { 74, case_74 }, { 77, case_77 }, { 82, case_82 },   { 87, case_87 },   { 89, case_89 },
    { 90, case_90 }, { 97, case_97 }, { 103, case_103 }, { 107, case_107 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
