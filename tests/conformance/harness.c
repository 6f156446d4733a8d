/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance harness; see harness.h. conf_act() runs in children, all else in the parent. */
#include "tests/conformance/harness.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_S 10.0

void conf_fail(const char *const file, const int line, const char *const fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "%s:%d: ", file, line);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    /* Not exit(): a worker under test may hold locks that an exit handler would want. */
    _exit(1);
}

/* ---- what is left --------------------------------------------------------------------------- */

int conf_n_children(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *const f = fopen(path, "r");
    if (f == NULL) return -1;
    int n = 0;
    for (int pid; fscanf(f, "%d", &pid) == 1;) {
        n++;
    }
    (void)fclose(f);
    return n;
}

int conf_n_fds(void)
{
    DIR *const d = opendir("/proc/self/fd");
    int n = 0;
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    if (d != NULL) (void)closedir(d);
    return n;
}

int conf_n_shared_maps(void)
{
    FILE *const f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        n += strstr(line, "memfd:") != NULL || strstr(line, "/dev/zero") != NULL;
    }
    if (f != NULL) (void)fclose(f);
    return n;
}

bool conf_pid_is_gone(const int pid)
{
    for (double end = conf_now() + WAIT_S; conf_now() < end; conf_pause_ms(2)) {
        if (kill(pid, 0) != 0 && errno == ESRCH) return true;
        char path[64], state = '?';
        (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *const f = fopen(path, "r");
        if (f == NULL) return true;
        (void)fscanf(f, "%*d (%*[^)]) %c", &state);
        (void)fclose(f);
        if (state == 'Z') return true; /* dead; its parent has yet to look */
    }
    return false;
}

int conf_main(const conf_case *const cases, const size_t n, const int argc, char **const argv)
{
    const int wanted = argc > 1 ? atoi(argv[1]) : 0;
    for (size_t i = 0; i < n; i++) {
        if (cases[i].number != wanted) continue;
        const int fds = conf_n_fds();
        const int maps = conf_n_shared_maps();
        cases[i].run();
        if (conf_n_children() != 0)
            conf_fail(argv[0], wanted, "%d children are left", conf_n_children());
        if (conf_n_fds() != fds)
            conf_fail(argv[0], wanted, "%d descriptors before, %d after", fds, conf_n_fds());
        if (conf_n_shared_maps() != maps)
            conf_fail(argv[0], wanted, "%d shared mappings before, %d after", maps,
                      conf_n_shared_maps());
        return 0;
    }
    (void)fprintf(stderr, "usage: %s NUMBER; this program has:", argv[0]);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(stderr, " %d", cases[i].number);
    }
    (void)fputc('\n', stderr);
    return 2;
}

/* ---- time ----------------------------------------------------------------------------------- */

double conf_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void conf_pause_ms(const uint32_t ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    (void)nanosleep(&t, NULL);
}

/* ---- a task --------------------------------------------------------------------------------- */

static uint32_t tick(conf_board *const b)
{
    return __atomic_add_fetch(&b->clock, 1, __ATOMIC_SEQ_CST);
}

static bool flag_is_set(const conf_board *const b, const uint64_t flag)
{
    return __atomic_load_n(&b->flags[flag % CONF_FLAGS], __ATOMIC_SEQ_CST) != 0;
}

static void write_all(ech_task *const task, const int value)
{
    for (uint32_t i = 1; i < ech_task_n_tensors(task); i++) {
        const ech_task_tensor *const t = ech_task_tensor_at(task, i);
        if (t->writable != 0) memset(t->ptr, value, t->bytes);
    }
}

static ech_status hold(ech_task *const task, const conf_board *const b, const uint64_t flag,
                       const bool is_deaf)
{
    while (!flag_is_set(b, flag)) {
        if (!is_deaf && ech_task_poll(task, 7)) return ECH_ECANCELLED;
        conf_pause_ms(1);
    }
    return ECH_OK;
}

static ech_status spend(ech_task *const task, const uint64_t ms, const bool may_stop)
{
    for (double end = conf_now() + (double)ms * 1e-3; conf_now() < end; conf_pause_ms(1)) {
        if (ech_task_poll(task, 3) && may_stop) return ECH_ECANCELLED;
    }
    return ECH_OK;
}

static ech_status act(ech_task *const task, conf_board *const b, const uint64_t id,
                      ech_error *const err)
{
    const uint64_t param = ech_task_scalar_at(task, 2);
    switch (ech_task_scalar_at(task, 1)) {
    case CONF_HOLD:
        return hold(task, b, param, false);
    case CONF_DEAF:
        return hold(task, b, param, true);
    case CONF_FAIL:
        err->code = ECH_EUNSUPPORTED;
        (void)snprintf(err->text, sizeof err->text, "X says m");
        return ECH_EUNSUPPORTED;
    case CONF_EXIT:
        _exit((int)param);
    case CONF_KILL:
        (void)kill(getpid(), SIGKILL);
        return ECH_OK;
    case CONF_SLEEP:
        return spend(task, param, true);
    case CONF_SLOW:
        return spend(task, param, false);
    case CONF_WRITE:
        write_all(task, (int)param);
        return ECH_OK;
    case CONF_READ:
        b->id[id].value = *(const uint8_t *)ech_task_tensor_at(task, 1)->ptr;
        return ECH_OK;
    default:
        return ECH_OK;
    }
}

ech_status conf_act(ech_task *const task, ech_error *const err)
{
    conf_board *const b = ech_task_tensor_at(task, 0)->ptr;
    const uint64_t id = ech_task_scalar_at(task, 0) % CONF_IDS;
    const uint32_t now_running = __atomic_add_fetch(&b->running, 1, __ATOMIC_SEQ_CST);
    uint32_t most = __atomic_load_n(&b->most_running, __ATOMIC_SEQ_CST);
    while (now_running > most &&
           !__atomic_compare_exchange_n(&b->most_running, &most, now_running, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    b->id[id].pid = (int32_t)getpid();
    (void)__atomic_add_fetch(&b->id[id].times, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&b->id[id].started, tick(b), __ATOMIC_SEQ_CST);
    const ech_status rc = act(task, b, id, err);
    __atomic_store_n(&b->id[id].ended, tick(b), __ATOMIC_SEQ_CST);
    (void)__atomic_sub_fetch(&b->running, 1, __ATOMIC_SEQ_CST);
    return rc;
}

/* ---- a worker ------------------------------------------------------------------------------- */

void conf_create(conf *const c, const uint32_t n_chips, const uint32_t n_subs,
                 const ech_worker_options *const options)
{
    ech_error err;
    ech_worker_options o = options != NULL ? *options : ech_worker_options_default();
    o.n_chips = n_chips;
    o.n_subs = n_subs;
    *c = (conf){ 0 };
    CHECK_OK(ech_worker_create(&c->w, &o, &err));
    CHECK_OK(ech_worker_buffer_create(c->w, "board", sizeof(conf_board), ECH_ACCESS_RW,
                                      &c->board_buffer, &err));
    CHECK_OK(ech_worker_register_host(c->w, "act", conf_act, &c->act, &err));
}

void conf_open(conf *const c, const uint32_t n_chips, const uint32_t n_subs,
               const ech_worker_options *const options)
{
    ech_error err;
    conf_create(c, n_chips, n_subs, options);
    CHECK_OK(ech_worker_init(c->w, &err));
    c->board = ech_worker_buffer_ptr(c->w, c->board_buffer);
    CHECK(c->board != NULL);
}

void conf_close(conf *const c)
{
    ech_error err;
    CHECK_OK(ech_worker_close(&c->w, &err));
    CHECK(c->w == NULL);
}

ech_buffer conf_buffer(conf *const c, const char *const name, const uint64_t n)
{
    ech_error err;
    ech_buffer b;
    CHECK_OK(ech_worker_buffer_create(c->w, name, n, ECH_ACCESS_RW, &b, &err));
    return b;
}

ech_tensor conf_bytes(const ech_buffer b, const uint64_t from, const uint64_t n)
{
    const uint64_t shape[1] = { n };
    return ech_tensor_view(b, from, ECH_DTYPE_U8, 1, shape);
}

static ech_args last_args;
static ech_gate next_gate;
static bool has_gate;

void conf_gate(const ech_gate gate)
{
    next_gate = gate;
    has_gate = true;
}

const ech_args *conf_last_args(void)
{
    return &last_args;
}

ech_status conf_put(conf *const c, ech_orch *const orch, const int child, const uint64_t id,
                    const uint64_t action, const uint64_t param, const conf_arg *const args,
                    const size_t n, ech_error *const err)
{
    const ech_tensor board = conf_bytes(c->board_buffer, 0, sizeof(conf_board));
    ech_args_clear(&last_args);
    ech_args_add(&last_args, ECH_NO_DEP, &board);
    for (size_t i = 0; i < n; i++) {
        ech_args_add(&last_args, args[i].tag, &args[i].tensor);
    }
    ech_args_add_scalar(&last_args, id);
    ech_args_add_scalar(&last_args, action);
    ech_args_add_scalar(&last_args, param);
    if (has_gate) ech_args_add_gate(&last_args, next_gate);
    has_gate = false;
    return child < 0 ? ech_submit_sub(orch, &c->act, &last_args, NULL, err)
                     : ech_submit_next_level(orch, &c->act, &last_args, NULL, child, err);
}

static bool wait_for(const uint32_t *const word)
{
    for (double end = conf_now() + WAIT_S; conf_now() < end; conf_pause_ms(1)) {
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != 0) return true;
    }
    return false;
}

bool conf_started(const conf *const c, const uint64_t id)
{
    return wait_for(&c->board->id[id].started);
}
bool conf_ended(const conf *const c, const uint64_t id)
{
    return wait_for(&c->board->id[id].ended);
}

bool conf_has_run(const conf *const c, const uint64_t id)
{
    return __atomic_load_n(&c->board->id[id].started, __ATOMIC_SEQ_CST) != 0;
}

bool conf_before(const conf *const c, const uint64_t a, const uint64_t b)
{
    const uint32_t ended = __atomic_load_n(&c->board->id[a].ended, __ATOMIC_SEQ_CST);
    return ended != 0 && ended < __atomic_load_n(&c->board->id[b].started, __ATOMIC_SEQ_CST);
}

void conf_set_flag(conf *const c, const uint32_t flag)
{
    __atomic_store_n(&c->board->flags[flag], 1, __ATOMIC_SEQ_CST);
}
