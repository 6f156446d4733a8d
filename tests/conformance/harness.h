/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the conformance cases share. A case is a function named by its number; a program holds the
 * cases of one section and runs the one that its argument names, in a process of its own under
 * ctest, so that a hung fork is killed and named.
 *
 * After a case the harness looks for what it left: a child, a descriptor, a shared mapping.
 *
 * The tasks of most cases are one host function, conf_act(), that does what its scalars say and
 * writes when it started and ended on a BOARD in shared memory: the cases read orders from there.
 */
#ifndef ECH_TESTS_CONFORMANCE_HARNESS_H
#define ECH_TESTS_CONFORMANCE_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "echelon/worker.h"

typedef struct conf_case {
    int number;
    void (*run)(void);
} conf_case;

/* Runs the case named by argv[1]; the exit code of main(). */
int conf_main(const conf_case *cases, size_t n, int argc, char **argv);

/* Ends the process with the place and the text; the case has failed. */
_Noreturn void conf_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) conf_fail(__FILE__, __LINE__, "not true: %s", #cond);                         \
    } while (0)

/* A call that must succeed; err is declared by CASE_ERR. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        const ech_status rc_ = (call);                                                             \
        if (rc_ != ECH_OK)                                                                         \
            conf_fail(__FILE__, __LINE__, "%s: %s: %s", #call, ech_status_name(rc_), err.text);    \
    } while (0)

/* A call that must fail with this code. */
#define CHECK_CODE(call, code)                                                                     \
    do {                                                                                           \
        const ech_status rc_ = (call);                                                             \
        if (rc_ != (code)) {                                                                       \
            conf_fail(__FILE__, __LINE__, "%s: %s instead of %s: %s", #call, ech_status_name(rc_), \
                      ech_status_name(code), rc_ == ECH_OK ? "" : err.text);                       \
        }                                                                                          \
    } while (0)

/* The error's text must say this. */
#define CHECK_TEXT(part)                                                                           \
    do {                                                                                           \
        if (strstr(err.text, (part)) == NULL)                                                      \
            conf_fail(__FILE__, __LINE__, "'%s' doesn't say '%s'", err.text, (part));              \
    } while (0)

/* ---- the board ------------------------------------------------------------------------------ */

#define CONF_IDS   2048
#define CONF_FLAGS 64

typedef struct conf_board {
    uint32_t clock; /* one more per event */
    uint32_t running, most_running;
    uint32_t flags[CONF_FLAGS]; /* what CONF_HOLD waits for */
    struct {
        uint32_t started, ended; /* clock of the event; 0: not yet */
        uint32_t times;          /* how often it ran */
        int32_t pid;
        uint64_t value; /* what CONF_READ saw */
    } id[CONF_IDS];
} conf_board;

/* What a task does between its start and its end. */
enum {
    CONF_LOG,   /* nothing */
    CONF_HOLD,  /* waits for flags[param], polling */
    CONF_DEAF,  /* waits for flags[param] without polling: makes no progress */
    CONF_FAIL,  /* fails with ECH_EUNSUPPORTED and the text "X says m" */
    CONF_EXIT,  /* _exit(param) */
    CONF_KILL,  /* SIGKILL to itself */
    CONF_SLEEP, /* param ms, polling */
    CONF_WRITE, /* every byte of tensors 1… that are writable becomes param */
    CONF_READ,  /* remembers the first byte of tensor 1 */
    CONF_SLOW,  /* param ms in small pieces, each with progress, ignoring requests to stop */
};

/* A worker under test and what its tasks need. */
typedef struct conf {
    ech_worker *w;
    ech_callable act;
    ech_buffer board_buffer;
    conf_board *board;
} conf;

/* A NEW worker with a board and conf_act() registered. NULL options: defaults. */
void conf_create(conf *c, uint32_t n_chips, uint32_t n_subs, const ech_worker_options *options);
/* The same, and initialised. */
void conf_open(conf *c, uint32_t n_chips, uint32_t n_subs, const ech_worker_options *options);
/* Close must succeed. */
void conf_close(conf *c);

ech_status conf_act(ech_task *task, ech_error *err);

/* One tensor of a task. */
typedef struct conf_arg {
    ech_tag tag;
    ech_tensor tensor;
} conf_arg;

/*
 * Submits conf_act() with an id, an action and its parameter; child -1: to a sub. args ends where
 * n says. Gates may be added with conf_gate().
 */
ech_status conf_put(conf *c, ech_orch *orch, int child, uint64_t id, uint64_t action,
                    uint64_t param, const conf_arg *args, size_t n, ech_error *err);
/* The gate that the next conf_put() waits for. */
void conf_gate(ech_gate gate);
/* The args of the last conf_put(), as submit left them. */
const ech_args *conf_last_args(void);

/* Waits at most 10 s until id has started or ended; false: it hasn't. */
bool conf_started(const conf *c, uint64_t id);
bool conf_ended(const conf *c, uint64_t id);
/* Whether a ended before b started. Both must have run. */
bool conf_before(const conf *c, uint64_t a, uint64_t b);
bool conf_has_run(const conf *c, uint64_t id);
void conf_set_flag(conf *c, uint32_t flag);
void conf_pause_ms(uint32_t ms);
double conf_now(void);

/* A buffer of n bytes, made before or after init. */
ech_buffer conf_buffer(conf *c, const char *name, uint64_t n);
/* Bytes [from, from + n) of it. */
ech_tensor conf_bytes(ech_buffer b, uint64_t from, uint64_t n);

/* Counts of this process: children (zombies too), open descriptors, mappings of shared memory. */
int conf_n_children(void);
int conf_n_fds(void);
int conf_n_shared_maps(void);
bool conf_pid_is_gone(int pid);

#endif
