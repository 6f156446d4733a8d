/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a child process: see serve.h. The process owns nothing of its parent's but the
 * mappings; it ends by the shutdown word, by SIGKILL when the zygote ends, or because it finds
 * that its parent isn't the zygote any more.
 */
#include "src/runtime/serve.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/futex.h"
#include "src/base/os/process.h"
#include "src/runtime/memory.h"
#include "src/runtime/registry.h"
#include "src/runtime/trace.h"

typedef struct loaded {
    uint32_t generation; /* of the registry entry; 0: nothing loaded */
    void *program;
} loaded;

struct ech_serve {
    ech_worker *worker; /* the parent's, as it was at the fork */
    ech_worker *inner;  /* the worker that this child is; NULL: a chip or sub */
    ech_mailbox *mail;
    uint32_t child;
    uint8_t kind;
    bool own_control; /* commands have a thread of their own */
    pthread_t control_thread;
    pid_t zygote;
    void *chip;    /* the platform's state */
    uint64_t next; /* frames taken */
    loaded programs[ECH_MAX_CALLABLES];
    ech_trace_lane *cores[ECH_TRACE_CORES];
    ech_task task;
};

/* ---- Programs ----------------------------------------------------------------------------------
 */

static const ech_child_ops *ops_of(const ech_serve *const s)
{
    return s->kind == ECH_ENDPOINT_CHIP ? s->worker->chip_ops : NULL;
}

static void unload(ech_serve *const s, const uint32_t place)
{
    loaded *const l = &s->programs[place];
    const ech_child_ops *const ops = ops_of(s);
    if (l->generation != 0 && ops != NULL && ops->unload != NULL) ops->unload(s->chip, l->program);
    *l = (loaded){ 0 };
}

/* The program's bytes, bounded: the entry was written by another process. */
static ech_status program_bytes(const ech_serve *const s, const ech_callable_entry *const e,
                                const void **const ret, ech_error *const err)
{
    const ech_shared *const sh = s->worker->shared;
    if (e->bytes_offset > sh->programs_bytes || e->n_bytes > sh->programs_bytes - e->bytes_offset)
        return ech_fail(err, ECH_EFORMAT, "loading a program: its bytes are outside the region");
    *ret = (const char *)(uintptr_t)sh->programs_ptr + e->bytes_offset;
    return ECH_OK;
}

static ech_status load(ech_serve *const s, const uint32_t place, ech_error *const err)
{
    const ech_callable_entry *const e = &s->worker->shared->callables[place];
    const ech_child_ops *const ops = ops_of(s);
    if (e->kind != ECH_CALLABLE_PROGRAM || ops == NULL) return ECH_OK;
    if (s->programs[place].generation == e->generation) return ECH_OK;
    const void *bytes = NULL;
    unload(s, place);
    ECH_TRY(program_bytes(s, e, &bytes, err));
    if (ops->load != NULL)
        ECH_TRY(ops->load(s->chip, e->program_kind, e->name, bytes, e->n_bytes,
                          &s->programs[place].program, err));
    s->programs[place].generation = e->generation;
    return ECH_OK;
}

static ech_status load_all(ech_serve *const s, ech_error *const err)
{
    for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++) {
        const ech_status rc = load(s, i, err);
        if (rc != ECH_OK)
            return ech_error_prefix(err, rc, "loading '%s'", s->worker->shared->callables[i].name);
    }
    return ECH_OK;
}

/* ---- Commands ----------------------------------------------------------------------------------
 */

static ech_status registered(ech_serve *const s, const uint32_t place, ech_error *const err)
{
    if (place >= ECH_MAX_CALLABLES)
        return ech_fail(err, ECH_EFORMAT, "registering: place %u isn't one", place);
    return load(s, place, err);
}

static ech_status answer(ech_serve *const s, ech_control *const c, size_t *const len,
                         ech_error *const err)
{
    const ech_child_ops *const ops = ops_of(s);
    ECH_ASSERT(c != NULL);
    if (c->len > ECH_CONTROL_BYTES || c->cap > ECH_CONTROL_BYTES)
        return ech_fail(err, ECH_EFORMAT, "reading a command: length %u, capacity %u", c->len,
                        c->cap);
    *len = 0;
    if (c->op == ECH_OP_PING) {
        *len = c->len;
        return ECH_OK;
    }
    if (c->op == (int32_t)ECH_OP_REGISTER) return registered(s, c->arg, err);
    if (c->op == (int32_t)ECH_OP_UNREGISTER) {
        if (c->arg < ECH_MAX_CALLABLES) unload(s, c->arg);
        return ECH_OK;
    }
    if (ops == NULL || ops->control == NULL || c->op < 0)
        return ech_fail(err, ECH_EUNSUPPORTED, "command %d: this child knows no such command",
                        c->op);
    uint8_t req[ECH_CONTROL_BYTES];
    memcpy(req, c->data, c->len);
    return ops->control(s->chip, (uint32_t)c->op, req, c->len, c->data, c->cap, len, err);
}

static void serve_control(ech_serve *const s)
{
    ech_control *const c = &s->mail->control;
    /* Partner: the release store of the worker when the request is complete. */
    if (ech_load_acquire(&c->state) != ECH_CONTROL_PENDING) return;
    ech_point_at(ECH_POINT_CONTROL_SEEN, s->child);
    size_t len = 0;
    ech_error e = { 0 };
    const ech_status rc = answer(s, c, &len, &e);
    if (rc != ECH_OK) {
        len = 0;
        (void)snprintf(c->error, sizeof c->error, "%s", e.text);
    }
    c->result = rc;
    c->len = (uint32_t)len;
    c->answer_seq = c->seq;
    ech_point_at(ECH_POINT_CONTROL_ANSWERED, s->child);
    ech_store_release(&c->state, (uint32_t)ECH_CONTROL_ANSWERED);
    ech_shared_ring(s->worker->shared);
    ech_point_at(ECH_POINT_CONTROL_DONE, s->child);
}

static bool shutting_down(const ech_serve *const s)
{
    return ech_load_acquire(&s->mail->shutdown) != 0;
}

static bool orphaned(const ech_serve *const s)
{
    return getppid() != s->zygote;
}

static void *control_thread(void *const arg)
{
    ech_serve *const s = arg;
    ech_os_set_name("ech-control");
    while (!shutting_down(s)) {
        const uint32_t bell = ech_load_acquire(&s->mail->control_bell);
        serve_control(s);
        if (shutting_down(s)) break;
        (void)ech_os_futex_wait(&s->mail->control_bell, bell, ech_now_ns() + ECH_NS_PER_S);
    }
    return NULL;
}

/* ---- Tasks -------------------------------------------------------------------------------------
 */

bool ech_task_poll(ech_task *const task, const uint32_t where)
{
    ech_serve *const s = task->serve;
    ech_store_relaxed(&s->mail->where, where);
    ech_fetch_add_relaxed(&s->mail->progress, 1);
    if (!s->own_control) serve_control(s);
    if (ech_load_acquire(&s->mail->abort_run) >= task->frame->id.run_id || shutting_down(s))
        ech_store_relaxed(&task->abort, 1);
    return ech_load_relaxed(&task->abort) != 0;
}

void ech_task_progress(ech_task *const task)
{
    ech_fetch_add_relaxed(&task->serve->mail->progress, 1);
}

static ech_status run_orch(ech_serve *const s, const ech_orch_fn fn, ech_error *const err)
{
    ech_worker *const in = s->inner;
    ech_store_relaxed(&in->my_task_run, s->task.frame->id.run_id);
    const ech_status rc = ech_worker_run(in, fn, &s->task, err);
    ech_store_relaxed(&in->my_task_run, (uint64_t)0);
    return rc;
}

static ech_status run_callable(ech_serve *const s, ech_frame *const f, ech_error *const err)
{
    const ech_callable_entry *const e = &s->worker->shared->callables[f->callable];
    /* Partner: the registry's release store of the kind, last of a new entry. */
    const uint32_t kind = ech_load_acquire(&e->kind);
    if (!ech_registry_runs(s->worker, s->kind, kind) || e->generation != f->callable_generation)
        return ech_fail(err, ECH_ESTALE, "running callable %u: it isn't registered here any more",
                        f->callable);
    if (kind == ECH_CALLABLE_HOST) return ((ech_host_fn)(uintptr_t)e->fn)(&s->task, err);
    if (kind == ECH_CALLABLE_ORCH) return run_orch(s, (ech_orch_fn)(uintptr_t)e->fn, err);
    const void *bytes = NULL;
    ECH_TRY(load(s, f->callable, err));
    ECH_TRY(program_bytes(s, e, &bytes, err));
    return ops_of(s)->run(s->chip, s->programs[f->callable].program, bytes, e->n_bytes, &s->task,
                          err);
}

static ech_status run_frame(ech_serve *const s, ech_frame *const f, ech_error *const err)
{
    if (ech_load_acquire(&s->mail->abort_run) >= f->id.run_id)
        return ech_fail(err, ECH_ECANCELLED, "cancelled before it began");
    ECH_TRY(ech_task_decode(&s->task, s->worker, s->child, f, err));
    ech_point_at(ECH_POINT_FRAME_DECODED, s->child);
    return run_callable(s, f, err);
}

static void finish_frame(ech_serve *const s, ech_frame *const f, const ech_status rc,
                         const ech_error *const e)
{
    if (rc != ECH_OK)
        (void)snprintf(f->error, sizeof f->error, "%s", e->text[0] ? e->text : ech_status_str(rc));
    f->accepted = (uint32_t)f->id.dispatch_id;
    f->result = rc;
    f->done_id = f->id.dispatch_id;
    ech_point_at(ECH_POINT_FRAME_RESULT, s->child);
    /* Partner: the acquire load of ech_endpoint_collect. */
    ech_store_release(&f->state, (uint32_t)ECH_FRAME_DONE);
    ech_shared_ring(s->worker->shared);
    ech_store_relaxed(&s->mail->tasks, s->mail->tasks + 1);
    ech_fetch_add_relaxed(&s->mail->progress, 1);
    ech_point_at(ECH_POINT_FRAME_DONE, s->child);
}

static void serve_frame(ech_serve *const s, ech_frame *const f)
{
    ech_point_at(ECH_POINT_FRAME_SEEN, s->child);
    ech_store_relaxed(&s->mail->accepted, f->id.dispatch_id);
    ech_point_at(ECH_POINT_FRAME_ACCEPTED, s->child);
    ech_error e;
    e.text[0] = '\0';
    const bool traced = ech_trace_on(s->worker);
    if (traced) f->t_start = ech_now_ns();
    const ech_status rc = run_frame(s, f, &e);
    if (traced) {
        f->t_end = ech_now_ns();
        ech_store_relaxed(&s->mail->busy_ns, s->mail->busy_ns + (f->t_end - f->t_start));
    } else if (f->t_end != 0) {
        f->t_end = 0;
    }
    ech_point_at(ECH_POINT_FRAME_RAN, s->child);
    finish_frame(s, f, rc, &e);
    s->next++;
}

/* ---- Waiting -----------------------------------------------------------------------------------
 */

static bool has_control(const ech_serve *const s)
{
    return !s->own_control && ech_load_relaxed(&s->mail->control.state) == ECH_CONTROL_PENDING;
}

static bool has_work(const ech_serve *const s, const ech_frame *const f)
{
    return ech_load_relaxed(&f->state) == ECH_FRAME_READY || has_control(s) ||
           ech_load_relaxed(&s->mail->shutdown) != 0;
}

static void sleep_for_work(ech_serve *const s, const ech_frame *const f)
{
    ech_mailbox *const m = s->mail;
    const uint32_t bell = ech_load_relaxed(&m->doorbell);
    ech_store_relaxed(&m->sleeping, 1);
    /* Partner: ech_mailbox_ring. Either the worker sees us sleeping, or we see what it stored. */
    ech_fence();
    if (!has_work(s, f)) (void)ech_os_futex_wait(&m->doorbell, bell, ech_now_ns() + ECH_NS_PER_S);
    ech_store_relaxed(&m->sleeping, 0);
}

/* The next frame that may start, or NULL when something else is to be done. */
static ech_frame *wait_for_work(ech_serve *const s)
{
    ech_frame *const f = &s->mail->frames[s->next % ECH_FRAMES];
    int64_t spin_until = 0; /* the clock is looked at only when there was nothing to do */
    for (uint32_t round = 1;; round++) {
        /* Partner: the release store of ech_endpoint_activate. */
        if (ech_load_acquire(&f->state) == ECH_FRAME_READY) return f;
        if (has_work(s, f)) return NULL;
        ech_cpu_relax();
        if (round % 64 != 0) continue;
        const int64_t now = ech_now_ns();
        if (spin_until == 0) spin_until = now + s->worker->spin_ns;
        if (now >= spin_until) break;
    }
    ech_point_at(ECH_POINT_CHILD_IDLE, s->child);
    sleep_for_work(s, f);
    return NULL;
}

static void serve_loop(ech_serve *const s)
{
    while (!shutting_down(s)) {
        ech_frame *const f = wait_for_work(s);
        if (f != NULL) {
            serve_frame(s, f);
        } else if (has_control(s)) {
            serve_control(s);
        } else if (orphaned(s)) {
            break;
        }
    }
}

/* ---- Beginning and end -------------------------------------------------------------------------
 */

static ech_status open_chip(ech_serve *const s, const uint32_t generation, ech_error *const err)
{
    const ech_worker *const w = s->worker;
    const uint32_t n = w->trace != NULL ? ECH_TRACE_CORES : 0;
    for (uint32_t i = 0; i < n; i++)
        s->cores[i] = ech_trace_core_lane(w, s->child, i);
    const ech_child_env env = { .worker_name = w->name,
                                .child = s->child,
                                .generation = generation,
                                .options = w->chip_options[s->child],
                                .options_bytes = w->chip_options_bytes[s->child],
                                .deadline_ns = w->init_deadline_ns,
                                .lanes = s->cores,
                                .n_lanes = n };
    ECH_TRY(w->chip_ops->open(&env, &s->chip, err));
    return load_all(s, err);
}

static ech_status open_inner(ech_serve *const s, const uint32_t generation, ech_error *const err)
{
    ech_worker *const in = s->inner;
    in->my_mail = s->mail;
    /* A replacement starts long after the first deadline. */
    in->init_deadline_ns = generation == 0 ? s->worker->init_deadline_ns : 0;
    return ech_worker_init(in, err);
}

/* What a replacement may spend on page tables; it is to be ready within 50 ms. */
#define POPULATE_NS (30 * ECH_NS_PER_MS)

/* generation: how many processes this child has had before. */
static ech_status open_child(ech_serve *const s, const uint32_t generation, ech_error *const err)
{
    ech_memory_protect(s->worker, s->child);
    if (generation > 0) ech_memory_populate(s->worker, ech_now_ns() + POPULATE_NS);
    if (s->inner != NULL) ECH_TRY(open_inner(s, generation, err));
    if (ops_of(s) != NULL) ECH_TRY(open_chip(s, generation, err));
    s->own_control = ops_of(s) == NULL;
    if (s->own_control && pthread_create(&s->control_thread, NULL, control_thread, s) != 0)
        return ech_fail(err, ECH_EOS, "starting child %u: no thread for its commands", s->child);
    return ECH_OK;
}

static void close_child(ech_serve *const s)
{
    if (s->own_control) pthread_join(s->control_thread, NULL);
    if (s->inner != NULL) (void)ech_worker_close(&s->inner, NULL);
    for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++)
        unload(s, i);
    const ech_child_ops *const ops = ops_of(s);
    if (ops != NULL && s->chip != NULL) ops->close(s->chip);
}

static void announce(ech_serve *const s, const uint32_t state, const ech_status rc,
                     const ech_error *const e)
{
    if (rc != ECH_OK) {
        s->mail->error_code = rc;
        (void)snprintf(s->mail->error, sizeof s->mail->error, "%s", e->text);
    }
    /* Partner: the acquire load of the thread that waits for the start. */
    ech_store_release(&s->mail->state, state);
    ech_shared_ring(s->worker->shared);
}

static void become_child(const ech_worker *const w, const uint32_t child, const uint8_t kind,
                         const pid_t zygote)
{
    static const char *const kinds[] = { "chip", "work", "sub" };
    char name[16];
    ech_os_die_with_parent();
    if (getppid() != zygote) ech_os_exit(0, false); /* it died before we asked for the signal */
    (void)setpgid(0, 0);
    (void)snprintf(name, sizeof name, "ech-%s%u", kinds[kind], child % 1000);
    ech_os_set_name(name);
    (void)w;
}

void ech_serve_child(ech_worker *const w, const uint32_t child, const uint32_t generation,
                     const pid_t zygote)
{
    become_child(w, child, w->endpoints[child].kind, zygote);
    ech_point_at(ECH_POINT_CHILD_FORKED, child);
    ech_error e = { 0 };
    ech_serve *const s = calloc(1, sizeof *s);
    if (s == NULL) ech_os_exit(1, false);
    *s = (ech_serve){ .worker = w,
                      .inner = w->child_worker[child],
                      .mail = &w->shared->mail[child],
                      .child = child,
                      .kind = w->endpoints[child].kind,
                      .zygote = zygote };
    s->task.serve = s;
    if (!ech_mailbox_valid(s->mail, child)) ech_os_exit(1, false);
    const ech_status rc = open_child(s, generation - 1, &e); /* processes are counted from 1 */
    ech_point_at(ECH_POINT_CHILD_OPENED, child);
    if (rc == ECH_OK) {
        announce(s, ECH_MAIL_INIT_READY, ECH_OK, NULL);
        ech_point_at(ECH_POINT_CHILD_READY, child);
        serve_loop(s);
        ech_point_at(ECH_POINT_SHUTDOWN_SEEN, child);
    } else {
        s->own_control = false;
        announce(s, ECH_MAIL_INIT_FAILED, rc, &e);
    }
    close_child(s);
    ech_point_at(ECH_POINT_CHILD_CLOSED, child);
    const bool leaks = w->leak_check;
    free(s);
    ech_os_exit(rc == ECH_OK ? 0 : 1, leaks);
}
