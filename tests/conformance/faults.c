/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault runs: a child killed at every point of the mailbox protocol; allocation, mapping, fork and
 * threads failing at the n-th call for every n; the parent killed at different times. Each must
 * give one clear error or none, leave a usable or closed worker, and nothing behind.
 *
 *     1 points   2 allocation   3 mapping   4 fork   5 thread   6 the parent's death
 *     7 standard streams that are closed
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

#include "src/base/log.h"
#include "src/base/os/fault.h"

/* ---- what every run does -------------------------------------------------------------------- */

typedef struct scene {
    conf c;
    ech_buffer x;
} scene;

static ech_status submit_some(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    ech_gate gate;
    const uint64_t shape[1] = { 64 };
    ech_status rc = ech_gate_create(orch, &gate, err);
    if (rc == ECH_OK) ech_gate_open(s->c.w, gate);
    for (int i = 0; i < 12 && rc == ECH_OK; i++) {
        const conf_arg many[8] = {
            { ECH_INOUT, conf_bytes(s->x, 0, 8) },
            { ECH_INPUT, conf_bytes(s->x, 8, 8) },
            { ECH_INPUT, conf_bytes(s->x, 16, 8) },
            { ECH_INPUT, conf_bytes(s->x, 24, 8) },
            { ECH_INOUT, conf_bytes(s->x, 32, 8) },
            { ECH_INPUT, conf_bytes(s->x, 40, 8) },
            { ECH_OUTPUT, ech_tensor_unplaced(ECH_DTYPE_U8, 1, shape) },
            { ECH_INPUT, conf_bytes(s->x, 48, 8) },
        };
        /* More than fits into a slot, so that each submit allocates. */
        rc = conf_put(&s->c, orch, i % 2 == 0 ? 0 : -1, 1 + i, CONF_LOG, 0, many,
                      i % 3 == 0 ? 8 : 2, err);
    }
    return rc;
}

/* What a user would do: one whole life. The first error, or ECH_OK. */
static ech_status one_life(scene *const s, ech_error *const err)
{
    ech_worker_options o = ech_worker_options_default();
    ech_region region;
    o.n_chips = 1;
    o.n_subs = 1;
    o.close_timeout_s = 4;
    ech_status rc = ech_worker_create(&s->c.w, &o, err);
    if (rc != ECH_OK) return rc;
    rc = ech_worker_region_create(s->c.w, "x", 4096, 0, &region, err);
    if (rc == ECH_OK)
        rc = ech_worker_buffer_at(s->c.w, &region, 0, 4096, ECH_ACCESS_RW, &s->x, err);
    if (rc == ECH_OK)
        rc = ech_worker_buffer_create(s->c.w, "board", sizeof(conf_board), ECH_ACCESS_RW,
                                      &s->c.board_buffer, err);
    if (rc == ECH_OK) rc = ech_worker_register_host(s->c.w, "act", conf_act, &s->c.act, err);
    if (rc == ECH_OK) rc = ech_worker_init(s->c.w, err);
    if (rc == ECH_OK) {
        s->c.board = ech_worker_buffer_ptr(s->c.w, s->c.board_buffer);
        rc = ech_worker_run(s->c.w, submit_some, s, err);
    }
    return rc;
}

static void end_life(scene *const s)
{
    ech_error err = { 0 };
    if (s->c.w == NULL) return;
    CHECK_OK(ech_worker_close(&s->c.w, &err));
}

/* Every n of one kind of failure, until a life passes without meeting it. */
static void sweep(const ech_fault kind, const uint64_t most)
{
    for (uint64_t n = 0;; n++) {
        scene s = { 0 };
        ech_error err = { 0 };
        CHECK(n < most);
        ech_fault_arm(kind, n, 1);
        const ech_status rc = one_life(&s, &err);
        const bool met = ech_fault_calls(kind) > n;
        ech_fault_arm(kind, 0, 0);
        if (rc != ECH_OK && err.text[0] == '\0')
            conf_fail(__FILE__, __LINE__, "no text at n = %d", (int)n);
        /* After a failed submit the worker is as good as before. */
        if (rc != ECH_OK && s.c.w != NULL && ech_worker_state_get(s.c.w) == ECH_WORKER_READY)
            CHECK_OK(ech_worker_run(s.c.w, submit_some, &s, &err));
        end_life(&s);
        CHECK(conf_n_children() == 0);
        if (!met && rc == ECH_OK) return;
    }
}

static void case_2(void)
{
    sweep(ECH_FAULT_ALLOC, 200);
}

static void case_3(void)
{
    sweep(ECH_FAULT_MAP, 50);
}

/* Forks happen in the zygote as well, whose count nobody sees: three are made. */
static void case_4(void)
{
    for (uint64_t n = 0; n < 3; n++) {
        scene s = { 0 };
        ech_error err = { 0 };
        ech_fault_arm(ECH_FAULT_FORK, n, 1);
        CHECK(one_life(&s, &err) == ECH_EOS);
        CHECK_TEXT(n == 0 ? "zygote" : "fork");
        ech_fault_arm(ECH_FAULT_FORK, 0, 0);
        end_life(&s);
    }
}

static void case_5(void)
{
    sweep(ECH_FAULT_THREAD, 10);
}

/* ---- a child dies --------------------------------------------------------------------------- */

typedef struct assassin {
    ech_point point;
    uint32_t *shared; /* [0]: done; pids of children from [1] on */
} assassin;

static void strike(const ech_point point, const uint32_t child, void *const arg)
{
    assassin *const a = arg;
    if (point != a->point || child != 0 || point >= ECH_POINT_INIT_MAPPED) return;
    if (__atomic_exchange_n(&a->shared[0], 1, __ATOMIC_SEQ_CST) == 0) (void)kill(getpid(), SIGKILL);
}

static uint32_t *shared_words(void)
{
    void *const p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* Pings until the child has lived through the point or died of it. */
static void use_everything(scene *const s)
{
    char out[4];
    size_t n;
    for (int i = 0; i < 3; i++) {
        (void)ech_worker_control(s->c.w, 0, 0, "abc", 3, out, sizeof out, &n, 5, NULL);
        (void)ech_worker_run(s->c.w, submit_some, s, NULL);
    }
    conf_pause_ms(5); /* so that children go to sleep */
}

static void life_with_death(const ech_point point, uint32_t *const words)
{
    scene s = { 0 };
    ech_error err = { 0 };
    assassin a = { point, words };
    ech_child_info info;
    words[0] = 0;
    ech_point_hook(strike, &a);
    const ech_status rc = one_life(&s, &err);
    const ech_worker_state state = ech_worker_state_get(s.c.w);
    if (rc != ECH_OK) CHECK(err.text[0] != '\0');
    if (state == ECH_WORKER_READY) {
        use_everything(&s);
        CHECK_OK(ech_worker_child_info(s.c.w, 0, &info, &err));
        if (info.state == ECH_CHILD_LOST || info.state == ECH_CHILD_POISONED)
            CHECK_OK(ech_worker_replace(s.c.w, 0, &err));
        CHECK_OK(ech_worker_run(s.c.w, submit_some, &s, &err)); /* usable again */
    } else {
        CHECK(state == ECH_WORKER_FAILED && strstr(err.text, "signal 9") != NULL);
    }
    end_life(&s);
    ech_point_hook(NULL, NULL);
    if (words[0] != 1)
        conf_fail(__FILE__, __LINE__, "point '%s' was not reached", ech_point_name(point));
    CHECK(conf_n_children() == 0);
}

static void case_1(void)
{
    uint32_t *const words = shared_words();
    ech_log_set_level(ECH_LOG_ERROR);
    for (int p = 0; p < ECH_POINT_INIT_MAPPED; p++)
        life_with_death((ech_point)p, words);
    (void)munmap(words, 4096);
}

/* ---- the parent dies ------------------------------------------------------------------------ */

enum { IDLE, IN_INIT, IN_TASK, INIT_THREAD_GONE, N_TIMES };

typedef struct victim {
    int when;
    uint32_t *words; /* [0]: ready to die; [1]: number of pids; pids from [2] on */
} victim;

static void note_pid(const ech_point point, const uint32_t child, void *const arg)
{
    const victim *const v = arg;
    (void)child;
    if (point == ECH_POINT_CHILD_FORKED) {
        const uint32_t i = __atomic_fetch_add(&v->words[1], 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&v->words[2 + i], (uint32_t)getpid(), __ATOMIC_SEQ_CST);
    }
    if (point == ECH_POINT_CHILD_OPENED && v->when == IN_INIT) conf_pause_ms(10000);
}

static ech_status submit_long(ech_orch *const orch, void *const arg, ech_error *const err)
{
    scene *const s = arg;
    return conf_put(&s->c, orch, 0, 1, CONF_SLOW, 10000, NULL, 0, err);
}

static void *init_main(void *const arg)
{
    CHECK(ech_worker_init(((scene *)arg)->c.w, NULL) == ECH_OK);
    return NULL;
}

_Noreturn static void be_victim(victim *const v)
{
    scene s = { 0 };
    pthread_t thread;
    ech_run *run = NULL;
    ech_error err;
    ech_point_hook(note_pid, v);
    conf_create(&s.c, 1, 1, NULL);
    if (v->when == IN_INIT) __atomic_store_n(&v->words[0], 1, __ATOMIC_SEQ_CST);
    if (v->when == INIT_THREAD_GONE) {
        CHECK(pthread_create(&thread, NULL, init_main, &s) == 0);
        (void)pthread_join(thread, NULL);
    } else {
        CHECK_OK(ech_worker_init(s.c.w, &err));
    }
    if (v->when == IN_TASK) CHECK_OK(ech_worker_submit(s.c.w, submit_long, &s, &run, &err));
    __atomic_store_n(&v->words[0], 1, __ATOMIC_SEQ_CST);
    for (;;)
        conf_pause_ms(100);
}

static bool all_gone(const uint32_t *const words)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (!conf_pid_is_gone((int)words[2 + i])) return false;
    }
    return true;
}

static void kill_at(const int when, uint32_t *const words)
{
    victim v = { when, words };
    memset(words, 0, 4096);
    const pid_t pid = fork();
    if (pid == 0) be_victim(&v);
    for (int i = 0; i < 20000 && (__atomic_load_n(&words[0], __ATOMIC_SEQ_CST) == 0 ||
                                  __atomic_load_n(&words[3], __ATOMIC_SEQ_CST) == 0);
         i++)
        conf_pause_ms(1);
    CHECK(words[3] != 0);
    conf_pause_ms(20);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    const double t = conf_now();
    while (!all_gone(words) && conf_now() - t < 5)
        conf_pause_ms(5);
    CHECK(all_gone(words) && conf_now() - t < 1);
}

static void case_6(void)
{
    uint32_t *const words = shared_words();
    for (int when = 0; when < N_TIMES; when++)
        kill_at(when, words);
    (void)munmap(words, 4096);
}

/* ---- a host without standard streams: the worker's own descriptors would get their numbers --- */

_Noreturn static void live_without(const int closed)
{
    scene s = { 0 };
    ech_error err = { 0 };
    for (int fd = 0; fd < 3; fd++) {
        if ((closed >> fd & 1) != 0) close(fd);
    }
    ech_status rc = one_life(&s, &err);
    const ech_status end = s.c.w != NULL ? ech_worker_close(&s.c.w, NULL) : ECH_OK;
    _exit(rc != ECH_OK ? 1 : end != ECH_OK ? 2 : 0);
}

static void case_7(void)
{
    for (int closed = 0; closed < 8; closed++) {
        int status = -1;
        const pid_t pid = fork();
        if (pid == 0) live_without(closed);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status != 0)
            conf_fail(__FILE__, __LINE__, "streams %d closed: status %#x", closed, status);
    }
}

static const conf_case CASES[] = {
    { 1, case_1 }, { 2, case_2 }, { 3, case_3 }, { 4, case_4 }, { 5, case_5 }, { 6, case_6 },
    { 7, case_7 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
