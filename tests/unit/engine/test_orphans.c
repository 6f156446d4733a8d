/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's process is killed with SIGKILL: one second later nothing of its tree is left. Idle,
 * while the weights are packed, in the middle of a generation, and after the thread that opened the
 * engine has ended.
 */
#include "tests/unit/test.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "tests/unit/engine/harness.h"

enum { MAX_TREE = 64 };

/* ---- a tree of processes ---- */

static int parent_of(int pid)
{
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *const f = fopen(path, "r");
    if (f == NULL) return -1;
    const size_t n = fread(line, 1, sizeof line - 1, f);
    (void)fclose(f);
    line[n] = '\0';
    const char *const end = strrchr(line, ')');
    char state;
    int ppid;
    if (end == NULL || sscanf(end + 1, " %c %d", &state, &ppid) != 2 || state == 'Z') return -1;
    return ppid;
}

/* Everything below root. */
static int tree_below(int root, int *pids)
{
    int n = 0;
    pids[n++] = root;
    for (int at = 0; at < n; at++) {
        DIR *const d = opendir("/proc");
        const struct dirent *e;
        while (d != NULL && (e = readdir(d)) != NULL && n < MAX_TREE) {
            const int pid = atoi(e->d_name);
            if (pid > 0 && parent_of(pid) == pids[at]) pids[n++] = pid;
        }
        if (d != NULL) (void)closedir(d);
    }
    memmove(pids, pids + 1, (size_t)(n - 1) * sizeof *pids);
    return n - 1;
}

static bool is_alive(int pid)
{
    return parent_of(pid) >= 0;
}

/* ---- the process that is killed ---- */

typedef enum moment { IDLE, PACKING, GENERATING, OPENER_GONE } moment;

static ech_engine *opened;

static void *open_on_thread(void *arg)
{
    const ech_engine_options o = h_options();
    (void)arg;
    opened = h_open(&o);
    return NULL;
}

static void live(moment when, int told)
{
    const ech_engine_options o = h_options();
    ech_error err;
    pthread_t thread;
    ech_request *request = NULL;
    if (when == OPENER_GONE) {
        (void)pthread_create(&thread, NULL, open_on_thread, NULL);
        (void)pthread_join(thread, NULL);
    } else if (ech_engine_open(&opened, &o, &err) != ECH_OK) {
        _exit(1);
    }
    if (when != PACKING && ech_engine_wait_ready(opened, 30000, NULL, &err) != ECH_OK) _exit(1);
    if (when == GENERATING) {
        const ech_prompt prompt = h_text("Once upon a time");
        ech_request_options ro = h_request(&prompt);
        ro.ignore_eos = true;
        ro.max_tokens = 500;
        ro.n = 16;
        ech_event ev = { 0 };
        if (ech_engine_submit(opened, &ro, &request, &err) != ECH_OK) _exit(1);
        for (int i = 0; i < 100; i++)
            (void)ech_request_next(request, -1, &ev, &err);
    }
    (void)!write(told, "x", 1);
    for (;;)
        (void)pause();
}

static void nothing_is_left(moment when)
{
    int told[2], pids[MAX_TREE];
    char byte;
    assert_int_equal(pipe(told), 0);
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(told[0]);
        live(when, told[1]);
    }
    (void)close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    (void)close(told[0]);
    const int n = tree_below(child, pids);
    assert_true(n >= 2); /* zygote and chip */
    assert_int_equal(kill(child, SIGKILL), 0);
    (void)waitpid(child, NULL, 0);
    const int64_t limit = ech_now_ns() + ECH_NS_PER_S;
    int n_alive = n;
    while (n_alive > 0 && ech_now_ns() < limit) {
        (void)usleep(5000);
        n_alive = 0;
        for (int i = 0; i < n; i++)
            n_alive += is_alive(pids[i]);
    }
    assert_int_equal(n_alive, 0);
}

static void killed_idle(void **state)
{
    (void)state;
    nothing_is_left(IDLE);
}

static void killed_while_packing(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        nothing_is_left(PACKING);
}

static void killed_while_generating(void **state)
{
    (void)state;
    nothing_is_left(GENERATING);
}

static void killed_after_the_opening_thread_ended(void **state)
{
    (void)state;
    nothing_is_left(OPENER_GONE);
}

/* Opening and closing leaves no process, descriptor or mapping behind. */
static size_t count_dir(const char *path)
{
    size_t n = 0;
    DIR *const d = opendir(path);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL) (void)closedir(d);
    return n;
}

static size_t count_maps(void)
{
    size_t n = 0;
    char line[1024];
    FILE *const f = fopen("/proc/self/maps", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, "memfd:") != NULL || strstr(line, ".safetensors") != NULL;
    if (f != NULL) (void)fclose(f);
    return n;
}

static void closing_leaves_nothing(void **state)
{
    (void)state;
    const ech_engine_options o = h_options();
    int pids[MAX_TREE];
    ech_engine *e = h_open(&o);
    ech_engine_close(&e);
    const size_t n_fds = count_dir("/proc/self/fd"), n_maps = count_maps();
    for (int i = 0; i < 10; i++) {
        e = h_open(&o);
        const ech_prompt prompt = h_text("Once");
        ech_request_options ro = h_request(&prompt);
        ro.max_tokens = 2;
        h_result *r = h_run(e, &ro);
        h_free(&r);
        ech_engine_close(&e);
        assert_int_equal(tree_below(getpid(), pids), 0);
        assert_int_equal(count_dir("/proc/self/fd"), n_fds);
        assert_int_equal(count_maps(), n_maps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_idle),
        cmocka_unit_test(killed_while_packing),
        cmocka_unit_test(killed_while_generating),
        cmocka_unit_test(killed_after_the_opening_thread_ended),
        cmocka_unit_test(closing_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
