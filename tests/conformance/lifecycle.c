/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases 1 to 29: life cycle and start-up. */
#include "tests/conformance/harness.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/runtime/child.h"

/* ---- a platform whose start misbehaves as its options say ----------------------------------- */

typedef struct start_plan {
    enum { START_GOOD, START_FAILS, START_EXITS, START_HANGS } how;
    uint32_t *saw; /* shared: [0] pid of the chip, [1] it was closed in good order */
} start_plan;

static ech_status plan_open(const ech_child_env *const env, void **const ret_state,
                            ech_error *const err)
{
    static start_plan plan;
    memcpy(&plan, env->options, sizeof plan);
    if (plan.how == START_FAILS) {
        /* Case 8: the sibling is ready first. */
        while (plan.saw != NULL && __atomic_load_n(&plan.saw[0], __ATOMIC_SEQ_CST) == 0) {
            conf_pause_ms(1);
        }
        conf_pause_ms(plan.saw != NULL ? 100 : 0);
        err->code = ECH_EUNSUPPORTED;
        (void)snprintf(err->text, sizeof err->text, "this chip has no magic smoke");
        return ECH_EUNSUPPORTED;
    }
    if (plan.saw != NULL) __atomic_store_n(&plan.saw[0], (uint32_t)getpid(), __ATOMIC_SEQ_CST);
    if (plan.how == START_EXITS) _exit(23);
    while (plan.how == START_HANGS) {
        conf_pause_ms(1000);
    }
    *ret_state = &plan;
    return ECH_OK;
}

static ech_status plan_load(void *s, const char *kind, const char *name, const void *b, size_t n,
                            void **p, ech_error *e)
{
    (void)s, (void)kind, (void)name, (void)b, (void)n, (void)p, (void)e;
    return ECH_OK;
}

static ech_status plan_run(void *s, void *p, const void *b, size_t n, ech_task *t, ech_error *e)
{
    (void)s, (void)p, (void)b, (void)n, (void)t, (void)e;
    return ECH_OK;
}

static void plan_close(void *const state)
{
    const start_plan *const plan = state;
    if (plan->saw != NULL) plan->saw[1] = 1;
}

static const ech_child_ops PLAN_OPS = {
    .name = "plan",
    .open = plan_open,
    .load = plan_load,
    .run = plan_run,
    .close = plan_close,
};

static uint32_t *shared_words(void)
{
    uint32_t *const p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* A NEW worker with one chip per plan. */
static ech_worker *planned(const start_plan *const plans, const uint32_t n, const double timeout_s)
{
    ech_error err;
    const void *blobs[8];
    size_t sizes[8];
    for (uint32_t i = 0; i < n; i++) {
        blobs[i] = &plans[i];
        sizes[i] = sizeof plans[i];
    }
    ech_worker_options o = ech_worker_options_default();
    o.n_chips = n;
    o.chip_ops = &PLAN_OPS;
    o.chip_options = blobs;
    o.chip_options_bytes = sizes;
    o.startup_timeout_s = timeout_s;
    ech_worker *w = NULL;
    CHECK_OK(ech_worker_create(&w, &o, &err));
    return w;
}

static void close_worker(ech_worker *w)
{
    ech_error err;
    CHECK_OK(ech_worker_close(&w, &err));
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void case_1(void)
{
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    ech_worker *w = NULL;
    CHECK_OK(ech_worker_create(&w, &o, &err));
    CHECK(ech_worker_state_get(w) == ECH_WORKER_NEW);
    CHECK_OK(ech_worker_shutdown(w, &err));
    CHECK_OK(ech_worker_shutdown(w, &err));
    CHECK(ech_worker_state_get(w) == ECH_WORKER_CLOSED);
    CHECK_OK(ech_worker_close(&w, &err));
    CHECK_OK(ech_worker_close(&w, &err));
}

static void case_2(void)
{
    conf c;
    conf_open(&c, 0, 1, NULL);
    CHECK(conf_n_children() == 1); /* the zygote */
    ech_error err;
    ech_child_info info;
    CHECK_OK(ech_worker_child_info(c.w, 0, &info, &err));
    const int pid = info.pid;
    conf_close(&c);
    CHECK(conf_pid_is_gone(pid));
}

/* A worker of level 4 with one child of level 3, which has one sub; *ret_inner_log is shared. */
static ech_worker *two_levels(ech_callable *const ret_orch, ech_orch_fn orch)
{
    ech_error err;
    ech_worker_options inner = ech_worker_options_default();
    inner.name = "inner";
    inner.n_subs = 1;
    ech_worker *low = NULL;
    CHECK_OK(ech_worker_create(&low, &inner, &err));
    ech_worker_options outer = ech_worker_options_default();
    outer.name = "outer";
    outer.level = 4;
    ech_worker *high = NULL;
    CHECK_OK(ech_worker_create(&high, &outer, &err));
    CHECK_OK(ech_worker_add_child(high, &low, NULL, &err));
    CHECK(low == NULL);
    if (orch != NULL) CHECK_OK(ech_worker_register_orch(high, "orch", orch, ret_orch, &err));
    return high;
}

/* How many processes descend from pid. */
static int n_descendants(const int pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *const f = fopen(path, "r");
    int n = 0;
    for (int child; f != NULL && fscanf(f, "%d", &child) == 1;) {
        n += 1 + n_descendants(child);
    }
    if (f != NULL) (void)fclose(f);
    return n;
}

static void case_3(void)
{
    ech_error err;
    ech_worker *const w = two_levels(NULL, NULL);
    CHECK_OK(ech_worker_init(w, &err));
    /* Zygote, inner worker, its zygote, its sub. */
    CHECK(n_descendants((int)getpid()) == 4);
    close_worker(w);
}

static ech_status submit_nothing(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)orch, (void)arg, (void)err;
    return ECH_OK;
}

static void case_4(void)
{
    conf c;
    ech_error err;
    conf_open(&c, 1, 1, NULL);
    ech_child_info before[2], after;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(ech_worker_child_info(c.w, i, &before[i], &err));
    }
    const int n = n_descendants((int)getpid());
    for (int i = 0; i < 50; i++) {
        CHECK_OK(ech_worker_run(c.w, submit_nothing, NULL, &err));
    }
    CHECK(n_descendants((int)getpid()) == n);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(ech_worker_child_info(c.w, i, &after, &err));
        CHECK(after.pid == before[i].pid && after.generation == 0);
    }
    conf_close(&c);
}

static void case_5(void)
{
    ech_error err;
    const start_plan plan = { START_FAILS, NULL };
    ech_worker *const w = planned(&plan, 1, 60);
    CHECK_CODE(ech_worker_init(w, &err), ECH_EUNSUPPORTED);
    CHECK_TEXT("this chip has no magic smoke");
    CHECK(strlen(err.text) < sizeof err.text);
    CHECK(ech_worker_state_get(w) == ECH_WORKER_FAILED);
    CHECK(conf_n_children() == 0);
    close_worker(w);
}

static void case_6(void)
{
    ech_error err;
    const start_plan plan = { START_EXITS, NULL };
    ech_worker *const w = planned(&plan, 1, 60);
    const double t = conf_now();
    CHECK(ech_worker_init(w, &err) != ECH_OK);
    CHECK_TEXT("exited");
    CHECK_TEXT("before signalling ready");
    CHECK_TEXT("23");
    CHECK(conf_now() - t < 15);
    close_worker(w);
}

static void case_7(void)
{
    ech_error err;
    uint32_t *const saw = shared_words();
    const start_plan plan = { START_HANGS, saw };
    ech_worker *const w = planned(&plan, 1, 0.5);
    const double t = conf_now();
    CHECK_CODE(ech_worker_init(w, &err), ECH_ETIMEOUT);
    CHECK(conf_now() - t < 11);
    CHECK(saw[0] != 0 && conf_pid_is_gone((int)saw[0]));
    CHECK(conf_n_children() == 0);
    close_worker(w);
    (void)munmap(saw, 4096);
}

static void case_8(void)
{
    ech_error err;
    uint32_t *const saw = shared_words();
    const start_plan plans[2] = { { START_GOOD, saw }, { START_FAILS, saw } };
    ech_worker *const w = planned(plans, 2, 60);
    CHECK_CODE(ech_worker_init(w, &err), ECH_EUNSUPPORTED);
    CHECK(saw[1] == 1); /* close ran: it was asked, not killed */
    close_worker(w);
    (void)munmap(saw, 4096);
}

static void case_9(void)
{
    /* The inner worker's chip hangs in its start; the outer worker's deadline passes. */
    ech_error err;
    uint32_t *const saw = shared_words();
    const start_plan plan = { START_HANGS, saw };
    ech_worker *low = planned(&plan, 1, 60);
    ech_worker_options outer = ech_worker_options_default();
    outer.level = 4;
    outer.startup_timeout_s = 0.7;
    ech_worker *high = NULL;
    CHECK_OK(ech_worker_create(&high, &outer, &err));
    CHECK_OK(ech_worker_add_child(high, &low, NULL, &err));
    CHECK_CODE(ech_worker_init(high, &err), ECH_ETIMEOUT);
    CHECK(saw[0] != 0 && conf_pid_is_gone((int)saw[0]));
    close_worker(high);
    (void)munmap(saw, 4096);
}

static void case_10(void)
{
    ech_error err;
    const double BAD[] = { 0.0, -1.0, NAN, INFINITY };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ech_worker_options o = ech_worker_options_default();
        o.startup_timeout_s = BAD[i];
        ech_worker *w = NULL;
        CHECK_CODE(ech_worker_create(&w, &o, &err), ECH_EINVAL);
        CHECK_TEXT("startup_timeout");
        CHECK(w == NULL);
    }
}

typedef struct init_thread {
    ech_worker *w;
    ech_status rc;
    ech_error err;
} init_thread;

static void *init_main(void *const arg)
{
    init_thread *const t = arg;
    t->rc = ech_worker_init(t->w, &t->err);
    return NULL;
}

static void *wait_ready_main(void *const arg)
{
    init_thread *const t = arg;
    t->rc = ech_worker_wait_ready(t->w, &t->err);
    return NULL;
}

static void case_11(void)
{
    ech_error err;
    char texts[4][ECH_ERROR_TEXT];
    conf c;
    conf_open(&c, 0, 1, NULL);
    CHECK_CODE(ech_worker_init(c.w, &err), ECH_ESTATE);
    memcpy(texts[0], err.text, sizeof err.text);
    CHECK_OK(ech_worker_shutdown(c.w, &err));
    CHECK_CODE(ech_worker_init(c.w, &err), ECH_ESTATE);
    memcpy(texts[1], err.text, sizeof err.text);
    conf_close(&c);

    const start_plan failing = { START_FAILS, NULL };
    ech_worker *w = planned(&failing, 1, 60);
    CHECK(ech_worker_init(w, &err) != ECH_OK);
    CHECK_CODE(ech_worker_init(w, &err), ECH_ESTATE);
    memcpy(texts[2], err.text, sizeof err.text);
    close_worker(w);

    uint32_t *const saw = shared_words();
    const start_plan hanging = { START_HANGS, saw };
    w = planned(&hanging, 1, 2);
    init_thread t = { .w = w };
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, init_main, &t) == 0);
    while (__atomic_load_n(&saw[0], __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
    CHECK_CODE(ech_worker_init(w, &err), ECH_ESTATE);
    memcpy(texts[3], err.text, sizeof err.text);
    (void)pthread_join(thread, NULL);
    close_worker(w);
    (void)munmap(saw, 4096);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(texts[i], texts[j]) != 0);
        }
    }
}

static void case_12(void)
{
    for (int round = 0; round < 10; round++) {
        conf c;
        conf_create(&c, 0, 1, NULL);
        init_thread t[4];
        pthread_t threads[4];
        int won = 0;
        for (int i = 0; i < 4; i++) {
            t[i] = (init_thread){ .w = c.w };
            CHECK(pthread_create(&threads[i], NULL, init_main, &t[i]) == 0);
        }
        for (int i = 0; i < 4; i++) {
            (void)pthread_join(threads[i], NULL);
            won += t[i].rc == ECH_OK;
            CHECK(t[i].rc == ECH_OK || t[i].rc == ECH_ESTATE);
        }
        CHECK(won == 1);
        conf_close(&c);
    }
}

static void case_13(void)
{
    uint32_t *const saw = shared_words();
    const start_plan plans[2] = { { START_HANGS, saw }, { START_GOOD, NULL } };
    ech_worker *const w = planned(plans, 2, 0.5);
    init_thread first = { .w = w };
    init_thread t[3];
    pthread_t thread, threads[3];
    CHECK(pthread_create(&thread, NULL, init_main, &first) == 0);
    while (__atomic_load_n(&saw[0], __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
    for (int i = 0; i < 3; i++) {
        t[i] = (init_thread){ .w = w };
        CHECK(pthread_create(&threads[i], NULL, wait_ready_main, &t[i]) == 0);
    }
    (void)pthread_join(thread, NULL);
    CHECK(first.rc == ECH_ETIMEOUT);
    for (int i = 0; i < 3; i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK(t[i].rc == first.rc);
        CHECK(strcmp(t[i].err.text, first.err.text) == 0);
    }
    close_worker(w);
    (void)munmap(saw, 4096);
}

static void case_14(void)
{
    /* Programs need a chip with a platform; this worker has subs alone. */
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.n_subs = 1;
    ech_worker *w = NULL;
    ech_callable callable;
    CHECK_OK(ech_worker_create(&w, &o, &err));
    CHECK_OK(ech_worker_register_program(w, "program", "forward", "bytes", 5, &callable, &err));
    CHECK(ech_worker_init(w, &err) != ECH_OK);
    CHECK_TEXT("forward");
    CHECK(conf_n_children() == 0);
    close_worker(w);
}

static void case_15(void)
{
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.n_ranks = 2;
    ech_worker *w = NULL;
    CHECK_CODE(ech_worker_create(&w, &o, &err), ECH_EINVAL);
    CHECK_TEXT("n_ranks");
}

static void case_16(void)
{
    ech_error err;
    uint32_t *const saw = shared_words();
    const start_plan plan = { START_HANGS, saw };
    ech_worker *const w = planned(&plan, 1, 60);
    init_thread t = { .w = w };
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, init_main, &t) == 0);
    while (__atomic_load_n(&saw[0], __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
    CHECK_OK(ech_worker_shutdown(w, &err));
    (void)pthread_join(thread, NULL);
    CHECK(t.rc == ECH_ECANCELLED);
    CHECK(ech_worker_state_get(w) == ECH_WORKER_CLOSED);
    conf_pause_ms(50);
    CHECK(ech_worker_state_get(w) == ECH_WORKER_CLOSED);
    CHECK(conf_pid_is_gone((int)saw[0]));
    close_worker(w);
    (void)munmap(saw, 4096);
}

static ech_status close_inside(ech_orch *const orch, void *const arg, ech_error *const err)
{
    (void)arg;
    ech_error inner;
    const ech_status rc = ech_worker_shutdown(ech_orch_worker(orch), &inner);
    if (rc == ECH_EREENTRANT) return ECH_OK;
    err->code = ECH_EINTERNAL;
    (void)snprintf(err->text, sizeof err->text, "shutdown from a callback gave %s",
                   ech_status_name(rc));
    return ECH_EINTERNAL;
}

static void case_19(void)
{
    conf c;
    ech_error err;
    conf_open(&c, 0, 1, NULL);
    CHECK_OK(ech_worker_run(c.w, close_inside, NULL, &err));
    CHECK(ech_worker_state_get(c.w) == ECH_WORKER_READY);
    conf_close(&c);
}

typedef struct one_task {
    conf *c;
    int child;
    uint64_t id, action, param;
} one_task;

static ech_status submit_one(ech_orch *const orch, void *const arg, ech_error *const err)
{
    const one_task *const t = arg;
    return conf_put(t->c, orch, t->child, t->id, t->action, t->param, NULL, 0, err);
}

static void case_20(void)
{
    conf c;
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.close_timeout_s = 0.3;
    conf_open(&c, 0, 1, &o);
    one_task t = { &c, -1, 1, CONF_HOLD, 5 };
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(c.w, submit_one, &t, &run, &err));
    CHECK(conf_started(&c, 1));
    const ech_status first = ech_worker_shutdown(c.w, &err);
    /* The task polls, so it may have been stopped in time; a deferred close says so. */
    if (first == ECH_OK) {
        CHECK(ech_run_wait(run, 5, &err) != ECH_OK);
    } else {
        one_task more = { &c, -1, 2, CONF_LOG, 0 };
        CHECK_CODE(ech_worker_run(c.w, submit_one, &more, &err), ECH_ESTATE);
        conf_set_flag(&c, 5);
        CHECK_OK(ech_worker_shutdown(c.w, &err));
    }
    ech_run_release(&run);
    conf_close(&c);
}

typedef struct closer {
    ech_worker *w;
    ech_status rc;
    ech_error err;
} closer;

static void *close_main(void *const arg)
{
    closer *const k = arg;
    k->rc = ech_worker_shutdown(k->w, &k->err);
    return NULL;
}

static void case_21(void)
{
    for (int round = 0; round < 20; round++) {
        conf c;
        conf_open(&c, 1, 1, NULL);
        closer k[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            k[i] = (closer){ .w = c.w };
            CHECK(pthread_create(&threads[i], NULL, close_main, &k[i]) == 0);
        }
        for (int i = 0; i < 4; i++) {
            (void)pthread_join(threads[i], NULL);
            CHECK(k[i].rc == k[0].rc);
        }
        conf_close(&c);
    }
}

static void case_23(void)
{
    /* Child 0 ignores everything for good; child 1 is well. */
    conf c;
    ech_error err;
    ech_worker_options o = ech_worker_options_default();
    o.close_timeout_s = 0.5;
    conf_open(&c, 2, 0, &o);
    ech_child_info sick, well;
    CHECK_OK(ech_worker_child_info(c.w, 0, &sick, &err));
    CHECK_OK(ech_worker_child_info(c.w, 1, &well, &err));
    one_task t = { &c, 0, 1, CONF_DEAF, 6 };
    ech_run *run = NULL;
    CHECK_OK(ech_worker_submit(c.w, submit_one, &t, &run, &err));
    CHECK(conf_started(&c, 1));
    const double start = conf_now();
    const ech_status rc = ech_worker_shutdown(c.w, &err);
    CHECK(conf_now() - start < 12);
    CHECK(conf_pid_is_gone(well.pid));
    if (rc != ECH_OK) {
        conf_set_flag(&c, 6); /* the survivor's mailbox is still there: it can end */
        CHECK_OK(ech_worker_shutdown(c.w, &err));
    }
    CHECK(conf_pid_is_gone(sick.pid));
    ech_run_release(&run);
    conf_close(&c);
}

static void case_24(void)
{
    conf c;
    ech_error err;
    conf_create(&c, 1, 1, NULL);
    init_thread t = { .w = c.w };
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, init_main, &t) == 0);
    (void)pthread_join(thread, NULL);
    CHECK(t.rc == ECH_OK);
    c.board = ech_worker_buffer_ptr(c.w, c.board_buffer);
    /* The thread that called init has ended: its children live on. */
    one_task one = { &c, 0, 1, CONF_LOG, 0 };
    CHECK_OK(ech_worker_run(c.w, submit_one, &one, &err));
    closer k = { .w = c.w };
    CHECK(pthread_create(&thread, NULL, close_main, &k) == 0);
    (void)pthread_join(thread, NULL);
    CHECK(k.rc == ECH_OK);
    conf_close(&c);
}

static void on_signal(const int sig)
{
    (void)sig;
}

static void case_25(void)
{
    /* Closers are interrupted by signals while they wait for each other. */
    const struct sigaction sa = { .sa_handler = on_signal };
    CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
    for (int round = 0; round < 20; round++) {
        conf c;
        conf_open(&c, 1, 1, NULL);
        closer k[3];
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            k[i] = (closer){ .w = c.w };
            CHECK(pthread_create(&threads[i], NULL, close_main, &k[i]) == 0);
        }
        for (int s = 0; s < 30; s++) {
            for (int i = 0; i < 3; i++) {
                (void)pthread_kill(threads[i], SIGUSR1);
            }
        }
        for (int i = 0; i < 3; i++) {
            (void)pthread_join(threads[i], NULL);
            CHECK(k[i].rc == ECH_OK);
        }
        conf_close(&c);
    }
}

/* Kills a process that owns a worker and looks for what stays. mode 0: idle, 1: in a task. */
static void kill_owner(const int mode)
{
    uint32_t *const pids = shared_words();
    const int owner = fork();
    CHECK(owner >= 0);
    if (owner == 0) {
        conf c;
        ech_error err;
        conf_open(&c, 1, 1, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            ech_child_info info;
            CHECK_OK(ech_worker_child_info(c.w, i, &info, &err));
            pids[1 + i] = (uint32_t)info.pid;
        }
        one_task t = { &c, 0, 1, CONF_SLOW, 10000 };
        ech_run *run = NULL;
        if (mode == 1) {
            CHECK_OK(ech_worker_submit(c.w, submit_one, &t, &run, &err));
            CHECK(conf_started(&c, 1));
        }
        __atomic_store_n(&pids[0], 1, __ATOMIC_SEQ_CST);
        for (;;) {
            (void)pause();
        }
    }
    while (__atomic_load_n(&pids[0], __ATOMIC_SEQ_CST) == 0) {
        conf_pause_ms(1);
    }
    CHECK(kill(owner, SIGKILL) == 0);
    CHECK(waitpid(owner, NULL, 0) == owner);
    const double t = conf_now();
    CHECK(conf_pid_is_gone((int)pids[1]) && conf_pid_is_gone((int)pids[2]));
    CHECK(conf_now() - t < 1.0);
    (void)munmap(pids, 4096);
}

static void case_26(void)
{
    kill_owner(0);
    kill_owner(1);
}

static void case_27(void)
{
    conf c;
    ech_error err;
    conf_open(&c, 1, 0, NULL);
    ech_child_info info;
    CHECK_OK(ech_worker_child_info(c.w, 0, &info, &err));
    CHECK(kill(info.pid, SIGKILL) == 0);
    char resp[16];
    size_t len = 0;
    CHECK_CODE(ech_worker_control(c.w, 0, 0, "ping", 4, resp, sizeof resp, &len, 5, &err),
               ECH_ELOST);
    char pid_text[16];
    (void)snprintf(pid_text, sizeof pid_text, "%d", info.pid);
    CHECK_TEXT(pid_text);
    CHECK_TEXT("9"); /* the signal */
    CHECK(ech_worker_control(c.w, 0, 0, "ping", 4, resp, sizeof resp, &len, 5, &err) != ECH_OK);
    conf_close(&c);
}

static void case_28(void)
{
    conf c;
    ech_error err;
    conf_open(&c, 1, 0, NULL);
    one_task t = { &c, 0, 1, CONF_KILL, 0 };
    CHECK_CODE(ech_worker_run(c.w, submit_one, &t, &err), ECH_ELOST);
    ech_child_info info;
    CHECK_OK(ech_worker_child_info(c.w, 0, &info, &err));
    CHECK(info.state == ECH_CHILD_LOST);
    CHECK(WIFSIGNALED(info.wait_status) && WTERMSIG(info.wait_status) == SIGKILL);
    CHECK(conf_pid_is_gone(c.board->id[1].pid));
    ech_worker_counters n;
    ech_worker_snapshot(c.w, &n);
    CHECK(n.tasks_failed == 1 && n.children_lost == 1 && n.in_flight == 0);
    conf_close(&c);
}

static void *ping_main(void *const arg)
{
    ech_worker *const w = arg;
    ech_error err;
    char resp[64];
    size_t len;
    while (ech_worker_control(w, 0, 0, "x", 1, resp, sizeof resp, &len, 5, &err) == ECH_OK) {
    }
    return NULL;
}

static void case_29(void)
{
    for (int round = 0; round < 20; round++) {
        conf c;
        ech_error err;
        conf_open(&c, 1, 0, NULL);
        ech_child_info info;
        CHECK_OK(ech_worker_child_info(c.w, 0, &info, &err));
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ping_main, c.w) == 0);
        conf_pause_ms(1);
        CHECK_OK(ech_worker_shutdown(c.w, &err));
        (void)pthread_join(thread, NULL);
        CHECK(conf_pid_is_gone(info.pid));
        conf_close(&c);
    }
}

static const conf_case CASES[] = {
    { 1, case_1 },   { 2, case_2 },   { 3, case_3 },   { 4, case_4 },   { 5, case_5 },
    { 6, case_6 },   { 7, case_7 },   { 8, case_8 },   { 9, case_9 },   { 10, case_10 },
    { 11, case_11 }, { 12, case_12 }, { 13, case_13 }, { 14, case_14 }, { 15, case_15 },
    { 16, case_16 }, { 19, case_19 }, { 20, case_20 }, { 21, case_21 }, { 23, case_23 },
    { 24, case_24 }, { 25, case_25 }, { 26, case_26 }, { 27, case_27 }, { 28, case_28 },
    { 29, case_29 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
