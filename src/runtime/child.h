/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's side of the runtime, as a platform sees it: what a chip must provide (ech_child_ops)
 * and what it is given (ech_child_env, ech_task). The runtime knows no chip beyond this struct.
 *
 * All of it runs in the child process, after the fork: `open` on the child's only thread, which
 * then starts the core threads; `run` and `control` on that same thread. Nothing here may touch
 * descriptors of the parent, and `exit` is never called: the child loop leaves by _exit.
 */
#ifndef ECH_RUNTIME_CHILD_H
#define ECH_RUNTIME_CHILD_H

#include "echelon/worker.h"

/* What a chip child knows about itself. Borrowed, valid until close. */
typedef struct ech_child_env {
    const char *worker_name;
    uint32_t child;      /* number among the worker's children */
    uint32_t generation; /* 0 for the first process, then one more per replacement */
    const void *options; /* the blob of ech_worker_options.chip_options, or NULL */
    size_t options_bytes;
    int64_t deadline_ns;                 /* of the start, monotonic clock */
    struct ech_trace_lane *const *lanes; /* for spans of core threads; see trace.h */
    uint32_t n_lanes;
} ech_child_env;

/*
 * A platform. All functions return ECH_OK or fill *err, whose text reaches the owner unchanged
 * behind the child's name.
 */
typedef struct ech_child_ops {
    const char *name; /* "cpu", "sim" */
    /*
     * Brings the chip up: core threads, arena. May take its time before env->deadline_ns.
     * Ownership: *ret_state is passed to the other functions, and to close.
     */
    ech_status (*open)(const ech_child_env *env, void **ret_state, ech_error *err);
    /*
     * Whether the chip can run these bytes; called once per callable and child, before its first
     * run. `kind` and `name` as registered; the bytes stay mapped at this address until the
     * callable is unregistered. *ret_program (may be left NULL) is handed to run and unload: the
     * place for what was decoded.
     */
    ech_status (*load)(void *state, const char *kind, const char *name, const void *bytes,
                       size_t n_bytes, void **ret_program, ech_error *err);
    /* The program is never run again; NULL when load keeps nothing. */
    void (*unload)(void *state, void *program);
    /*
     * Runs one task to its end. Between operations it calls ech_task_poll(task, step), and returns
     * ECH_ECANCELLED when that says so.
     */
    ech_status (*run)(void *state, void *program, const void *bytes, size_t n_bytes, ech_task *task,
                      ech_error *err);
    /*
     * Answers a command (op >= 1) between operations or when idle; may be NULL. *ret_len <= cap.
     * Must not wait.
     */
    ech_status (*control)(void *state, uint32_t op, const void *req, size_t req_len, void *resp,
                          size_t cap, size_t *ret_len, ech_error *err);
    /* Ends the core threads and frees everything (the leak check runs after it). */
    void (*close)(void *state);
} ech_child_ops;

/*
 * Between operations: `step` is the program's step, named by the report of a stall. True: stop.
 * The public ech_task_poll() is this; core threads other than the one that got the task must not
 * call it, but may read the abort word.
 */
const uint32_t *ech_task_abort_word(const ech_task *task);
/* Progress without the rest: any core thread may bump it. */
void ech_task_progress(ech_task *task);

#endif
