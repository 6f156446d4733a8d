/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a callback calls: checks arguments before anything is taken, waits when a ring is full, and
 * hands ready tasks over at once, on the callback's own thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/futex.h"
#include "src/runtime/memory.h"
#include "src/runtime/registry.h"
#include "src/runtime/ring.h"
#include "src/runtime/sched.h"
#include "src/runtime/settings.h"

ech_dispatch ech_dispatch_default(void)
{
    return (ech_dispatch){ .struct_size = sizeof(ech_dispatch) };
}

ech_worker *ech_orch_worker(ech_orch *const orch)
{
    return orch->worker;
}

uint64_t ech_orch_run_id(const ech_orch *const orch)
{
    return orch->run->id;
}

/* ---- Checks ------------------------------------------------------------------------------------
 */

static ech_status check_counts(const ech_args *const a, ech_error *const err)
{
    if (a->n_tensors > ECH_MAX_TENSORS || a->n_scalars > ECH_MAX_SCALARS ||
        a->n_gates > ECH_MAX_GATES)
        return ech_fail(
            err, ECH_ELIMIT,
            "submitting a task: it needs %u tensors, %u scalars and %u gates, a task has "
            "room for %d, %d and %d",
            a->n_tensors, a->n_scalars, a->n_gates, ECH_MAX_TENSORS, ECH_MAX_SCALARS,
            ECH_MAX_GATES);
    if (a->misordered)
        return ech_fail(err, ECH_EINVAL, "submitting a task: a tensor was added after a scalar");
    return ECH_OK;
}

static bool is_unplaced(const ech_tensor *const t)
{
    return t->buffer.id == 0 && t->buffer.generation == 0 && t->buffer.nonce[0] == 0;
}

static bool tag_writes(const uint8_t tag)
{
    return tag == ECH_OUTPUT || tag == ECH_INOUT || tag == ECH_OUTPUT_EXISTING;
}

/* An output that gets its memory from the ring: any size that is a size, dense. */
static ech_status check_unplaced(const ech_tensor *const t, const char *const what,
                                 ech_box *const box, uint64_t *const heap, ech_error *const err)
{
    if (t->tag != ECH_OUTPUT)
        return ech_fail(err, ECH_EACCESS,
                        "%s: it has no buffer; only OUTPUT gets memory from the ring", what);
    if (t->offset != 0) return ech_fail(err, ECH_EINVAL, "%s: an offset without a buffer", what);
    ECH_TRY(ech_box_from(t, UINT64_MAX, what, box, err));
    if (box->ndim != 1)
        return ech_fail(err, ECH_EINVAL, "%s: an output without a buffer must be dense", what);
    *heap += ech_ring_round(box->hi);
    return ECH_OK;
}

/* Two writes of one task to common bytes have no order, whatever the graph does. */
static ech_status check_overlaps(const ech_args *const a, const ech_box *const boxes,
                                 const char *const who, ech_error *const err)
{
    for (uint32_t i = 1; i < a->n_tensors; i++) {
        const ech_tensor *const t = &a->tensors[i];
        for (uint32_t k = 0; k < i && tag_writes(t->tag); k++) {
            const ech_tensor *const u = &a->tensors[k];
            if (!tag_writes(u->tag) || is_unplaced(t) ||
                memcmp(&t->buffer, &u->buffer, sizeof t->buffer) != 0 ||
                !ech_box_overlaps(&boxes[i], &boxes[k]))
                continue;
            return ech_fail(err, ECH_EINVAL,
                            "%s: tensors %u and %u are both written and overlap in bytes %llu to "
                            "%llu",
                            who, k, i, (unsigned long long)boxes[i].lo,
                            (unsigned long long)boxes[i].hi);
        }
    }
    return ECH_OK;
}

static ech_status check_args(ech_orch *const o, const ech_args *const a, const int32_t child,
                             ech_box *const boxes, uint64_t *const heap, ech_error *const err)
{
    char what[64];
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const ech_tensor *const t = &a->tensors[i];
        ech_error e;
        const ech_status rc = is_unplaced(t) ? check_unplaced(t, "tensor", &boxes[i], heap, &e)
                                             : ech_memory_check(o->worker, t, "tensor", child,
                                                                o->run->id, &boxes[i], &e);
        if (rc == ECH_OK) continue;
        /* The number is put in only when there is something to say: this is the hot path. */
        (void)snprintf(what, sizeof what, "submitting a task: tensor %u", i);
        return ech_fail(err, rc, "%s%s", what, e.text + sizeof "tensor" - 1);
    }
    return check_overlaps(a, boxes, "submitting a task", err);
}

static ech_status check_gates(const ech_orch *const o, const ech_args *const a,
                              ech_error *const err)
{
    const ech_graph *const g = &o->worker->graph;
    for (uint32_t i = 0; i < a->n_gates; i++) {
        const uint32_t ring = a->gates[i].slot >> 28, idx = a->gates[i].slot & 0x0fffffff;
        if (a->gates[i].run != o->run->id || ring >= ECH_RINGS || idx >= g->rings[ring].window ||
            g->rings[ring].slots[idx].generation < a->gates[i].generation)
            return ech_fail(err, ECH_ESTALE, "submitting a task: gate %u is not one of this run",
                            i);
    }
    return ECH_OK;
}

static ech_status check_child(const ech_worker *const w, const int64_t child, const uint32_t kind,
                              const char *const name, ech_error *const err)
{
    if (child < 0 || child >= w->n_next)
        return ech_fail(err, ECH_EINVAL,
                        "submitting '%s': worker %lld is not one of the %u next-level children",
                        name, (long long)child, w->n_next);
    if (!ech_registry_runs(w, w->endpoints[child].kind, kind))
        return ech_fail(err, ECH_EINVAL,
                        "submitting '%s': child %lld can't run that kind of callable", name,
                        (long long)child);
    return ECH_OK;
}

static ech_status check_dispatch(const ech_dispatch *const d, ech_error *const err)
{
    if (d == NULL) return ECH_OK;
    if (d->struct_size != sizeof *d)
        return ech_fail(err, ECH_EINVAL, "submitting a task: dispatch.struct_size is %zu, not %zu",
                        d->struct_size, sizeof *d);
    return ech_settings_check(&d->rings, "submitting a task", err);
}

/* ---- Waiting for room --------------------------------------------------------------------------
 */

typedef struct blocked {
    ech_resource lack;
    uint64_t need;
    uint64_t progress;   /* of the graph when it was seen last */
    int64_t quiet_since; /* since when nothing has run or progressed */
    const ech_run *run;
    ech_status stuck;
    ech_error why;
} blocked;

static bool anything_runs(const ech_worker *const w)
{
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (ech_endpoint_busy(&w->endpoints[c])) return true;
    }
    return false;
}

/* Room may have come, or can't come any more, or nobody wants it. */
static bool may_retry(ech_worker *const w, void *const ctx)
{
    blocked *const b = ctx;
    const int64_t now = ech_now_ns();
    if (w->closing || b->run->n_causes > 0 || w->graph.progress != b->progress) return true;
    if (anything_runs(w)) b->quiet_since = now;
    b->stuck = ech_graph_stuck(&w->graph, b->lack, b->need, now - b->quiet_since, &b->why);
    return b->stuck != ECH_OK;
}

static ech_status run_error(const ech_orch *const o, ech_error *const err)
{
    const ech_run *const run = o->run;
    if (run->n_causes > 0) {
        if (err != NULL) *err = run->causes[0];
        return run->causes[0].code;
    }
    if (o->worker->closing)
        return ech_fail(err, ECH_ECANCELLED, "submitting a task: %s is being closed",
                        o->worker->name);
    return ECH_OK;
}

static ech_status wait_for_room(ech_orch *const o, blocked *const b, ech_error *const err)
{
    ech_worker *const w = o->worker;
    ech_graph_ring *const r = &w->graph.rings[ech_graph_ring_of(w->graph.depth)];
    const int64_t start = ech_now_ns();
    if (b->progress != w->graph.progress || b->quiet_since == 0) b->quiet_since = start;
    b->progress = w->graph.progress;
    b->stuck = ECH_OK;
    (void)ech_sched_wait(w, may_retry, b, ECH_NO_DEADLINE);
    r->count[b->lack].blocked_ns += ech_now_ns() - start;
    if (b->stuck == ECH_OK) return run_error(o, err);
    /* The run can't go on: what it was told stays its result, even if the callback swallows it. */
    (void)ech_run_add_cause(o->run, &b->why);
    if (err != NULL) *err = b->why;
    return b->stuck;
}

static uint64_t need_of(const ech_graph *const g, const ech_resource lack,
                        const ech_submission *const s)
{
    if (lack == ECH_RES_HEAP) return ech_ring_round(s->heap_bytes);
    return lack == ECH_RES_DEPS ? g->n_found : 1;
}

static ech_status add(ech_orch *const o, const ech_submission *const s, ech_slot **const ret_slot,
                      ech_error *const err)
{
    ech_worker *const w = o->worker;
    blocked b = { .run = o->run };
    for (;;) {
        const ech_status rc = ech_graph_submit(&w->graph, s, ret_slot, &b.lack, err);
        if (rc == ECH_OK) return ECH_OK;
        if (rc != ECH_EAGAIN) {
            if (rc == ECH_HEAP_RING_DEADLOCK || rc == ECH_DEP_POOL_OVERFLOW) {
                if (err != NULL) (void)ech_run_add_cause(o->run, err);
            }
            return rc;
        }
        b.need = need_of(&w->graph, b.lack, s);
        ECH_TRY(wait_for_room(o, &b, err));
    }
}

/* ---- Submitting --------------------------------------------------------------------------------
 */

static ech_status enough_boxes(ech_orch *const o, const size_t n, ech_error *const err)
{
    if (n <= o->boxes_cap) return ECH_OK;
    ech_box *const b = ech_mem_alloc(n, sizeof *b);
    if (b == NULL) return ech_fail(err, ECH_ENOMEM, "submitting a task: out of memory");
    free(o->boxes);
    o->boxes = b;
    o->boxes_cap = n;
    return ECH_OK;
}

/* The last part of every submission: into the graph, and out to a child if it can start. */
static ech_status finish_submit(ech_orch *const o, ech_submission *const s,
                                const ech_dispatch *const d, ech_error *const err)
{
    ech_worker *const w = o->worker;
    ech_slot *slot;
    const char *const name = s->kind < ECH_SLOT_GATE ? w->shared->callables[s->callable].name : "";
    s->label = d != NULL && d->label != NULL ? d->label : name;
    s->rings = d != NULL ? &d->rings : NULL;
    s->boxes = o->boxes;
    o->run->open++; /* before publication: the task may end inside the call */
    ech_status rc = add(o, s, &slot, err);
    if (rc != ECH_OK) {
        o->run->open--;
        return rc;
    }
    (void)ech_sched_pump(w); /* the active run is driven from here too, even when it is another */
    return ECH_OK;
}

static ech_status check_callable(const ech_orch *const o, const ech_callable *const c,
                                 uint32_t *const place, uint32_t *const kind, ech_error *const err)
{
    ECH_TRY(run_error(o, err));
    ECH_TRY(ech_registry_find(o->worker, c, place, err));
    *kind = o->worker->shared->callables[*place].kind;
    return ECH_OK;
}

static ech_status submit_single(ech_orch *const o, const ech_callable *const callable,
                                ech_args *const args, const ech_dispatch *const d,
                                const int64_t child, ech_error *const err)
{
    uint32_t place, kind;
    ECH_TRY(check_callable(o, callable, &place, &kind, err));
    ECH_TRY(check_child(o->worker, child, kind, o->worker->shared->callables[place].name, err));
    ECH_TRY(check_dispatch(d, err));
    ECH_TRY(check_counts(args, err));
    ECH_TRY(check_gates(o, args, err));
    ech_submission s = { .kind = ECH_SLOT_SINGLE,
                         .callable = (uint8_t)place,
                         .child = (int32_t)child,
                         .args = &args,
                         .n_members = 1 };
    ECH_TRY(check_args(o, args, (int32_t)child, o->boxes, &s.heap_bytes, err));
    return finish_submit(o, &s, d, err);
}

ech_status ech_submit_next_level(ech_orch *const orch, const ech_callable *const callable,
                                 ech_args *const args, const ech_dispatch *const dispatch,
                                 const int64_t worker, ech_error *const err)
{
    ech_error own; /* a latched error needs its text even when the caller wants none */
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = submit_single(orch, callable, args, dispatch, worker, err ? err : &own);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

static ech_status submit_sub(ech_orch *const o, const ech_callable *const callable,
                             ech_args *const args, const ech_dispatch *const d,
                             ech_error *const err)
{
    uint32_t place, kind;
    ECH_TRY(check_callable(o, callable, &place, &kind, err));
    const char *const name = o->worker->shared->callables[place].name;
    if (o->worker->n_subs == 0)
        return ech_fail(err, ECH_EINVAL, "submitting '%s': %s has no sub children", name,
                        o->worker->name);
    if (kind != ECH_CALLABLE_HOST)
        return ech_fail(err, ECH_EINVAL, "submitting '%s': sub children run host functions only",
                        name);
    ECH_TRY(check_dispatch(d, err));
    ECH_TRY(check_counts(args, err));
    ECH_TRY(check_gates(o, args, err));
    ech_submission s = {
        .kind = ECH_SLOT_SUB, .callable = (uint8_t)place, .child = -1, .args = &args, .n_members = 1
    };
    ECH_TRY(check_args(o, args, -1, o->boxes, &s.heap_bytes, err));
    return finish_submit(o, &s, d, err);
}

ech_status ech_submit_sub(ech_orch *const orch, const ech_callable *const callable,
                          ech_args *const args, const ech_dispatch *const dispatch,
                          ech_error *const err)
{
    ech_error own;
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = submit_sub(orch, callable, args, dispatch, err ? err : &own);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

static ech_status check_members(ech_orch *const o, const uint32_t place, const uint32_t kind,
                                ech_args *const *const args, const int64_t *const workers,
                                const size_t n, int32_t children[], ech_error *const err)
{
    const char *const name = o->worker->shared->callables[place].name;
    if (n == 0 || n > ECH_MAX_CHILDREN)
        return ech_fail(err, ECH_EINVAL,
                        "submitting '%s': a group of %zu members; 1 to %d are possible", name, n,
                        ECH_MAX_CHILDREN);
    uint64_t seen = 0;
    size_t n_tensors = 0;
    for (size_t i = 0; i < n; i++) {
        ECH_TRY(check_child(o->worker, workers[i], kind, name, err));
        if (seen >> workers[i] & 1)
            return ech_fail(err, ECH_EINVAL, "submitting '%s': worker %lld is in the group twice",
                            name, (long long)workers[i]);
        seen |= UINT64_C(1) << workers[i];
        children[i] = (int32_t)workers[i];
        ECH_TRY(check_counts(args[i], err));
        ECH_TRY(check_gates(o, args[i], err));
        n_tensors += args[i]->n_tensors;
    }
    return enough_boxes(o, n_tensors, err);
}

static ech_status submit_group(ech_orch *const o, const ech_callable *const callable,
                               ech_args *const *const args, const int64_t *const workers,
                               const size_t n, const ech_dispatch *const d, ech_error *const err)
{
    uint32_t place, kind;
    int32_t children[ECH_MAX_CHILDREN] = { 0 };
    ECH_TRY(check_callable(o, callable, &place, &kind, err));
    ECH_TRY(check_dispatch(d, err));
    ECH_TRY(check_members(o, place, kind, args, workers, n, children, err));
    ech_submission s = { .kind = ECH_SLOT_GROUP,
                         .callable = (uint8_t)place,
                         .child = -1,
                         .member_child = children,
                         .args = args,
                         .n_members = (uint32_t)n };
    ech_box *boxes = o->boxes;
    for (size_t i = 0; i < n; i++) {
        ECH_TRY(check_args(o, args[i], children[i], boxes, &s.heap_bytes, err));
        boxes += args[i]->n_tensors;
    }
    o->worker->count.groups++;
    return finish_submit(o, &s, d, err);
}

ech_status ech_submit_next_level_group(ech_orch *const orch, const ech_callable *const callable,
                                       ech_args *const *const args, const int64_t *const workers,
                                       const size_t n, const ech_dispatch *const dispatch,
                                       ech_error *const err)
{
    ech_error own;
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc =
        submit_group(orch, callable, args, workers, n, dispatch, err ? err : &own);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

/* ---- Memory, scopes, gates ---------------------------------------------------------------------
 */

static ech_status alloc_tensor(ech_orch *const o, ech_tensor *const t, ech_error *const err)
{
    ech_box box;
    ech_slot *slot;
    ECH_TRY(run_error(o, err));
    ECH_TRY(ech_box_from(t, UINT64_MAX, "allocating ring memory", &box, err));
    const ech_submission s = {
        .kind = ECH_SLOT_ALLOC, .child = -1, .heap_bytes = box.hi, .label = "alloc"
    };
    ECH_TRY(add(o, &s, &slot, err));
    ech_ring_buffer(&o->worker->graph, slot, slot->heap_lo, &t->buffer);
    return ECH_OK;
}

ech_status ech_alloc(ech_orch *const orch, const ech_dtype dtype, const uint32_t ndim,
                     const uint64_t *const shape, ech_tensor *const ret_tensor,
                     ech_error *const err)
{
    ech_error own;
    ech_tensor t = ech_tensor_unplaced(dtype, ndim, shape);
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = alloc_tensor(orch, &t, err ? err : &own);
    pthread_mutex_unlock(&orch->worker->lock);
    if (rc == ECH_OK) *ret_tensor = t;
    return rc;
}

ech_status ech_scope_begin(ech_orch *const orch, ech_error *const err)
{
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = ech_graph_scope_begin(&orch->worker->graph, err);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

ech_status ech_scope_end(ech_orch *const orch, ech_error *const err)
{
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = ech_graph_scope_end(&orch->worker->graph, err);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

static ech_status create_gate(ech_orch *const o, ech_gate *const ret, ech_error *const err)
{
    ech_slot *slot;
    ECH_TRY(run_error(o, err));
    const ech_submission s = { .kind = ECH_SLOT_GATE, .child = -1, .label = "gate" };
    o->run->open++;
    const ech_status rc = add(o, &s, &slot, err);
    if (rc != ECH_OK) {
        o->run->open--;
        return rc;
    }
    o->worker->count.gates++;
    *ret = (ech_gate){ o->run->id, slot->ref, slot->generation };
    return ECH_OK;
}

ech_status ech_gate_create(ech_orch *const orch, ech_gate *const ret_gate, ech_error *const err)
{
    ech_error own;
    pthread_mutex_lock(&orch->worker->lock);
    const ech_status rc = create_gate(orch, ret_gate, err ? err : &own);
    pthread_mutex_unlock(&orch->worker->lock);
    return rc;
}

/* The gate's slot while it is closed; NULL when it is open, failed, or of a finished run. */
static ech_slot *closed_gate(const ech_worker *const w, const ech_gate *const gate)
{
    const uint32_t ring = gate->slot >> 28, idx = gate->slot & 0x0fffffff;
    if (ring >= ECH_RINGS || w->graph.rings[ring].slots == NULL ||
        idx >= w->graph.rings[ring].window)
        return NULL;
    ech_slot *const s = &w->graph.rings[ring].slots[idx];
    return s->generation == gate->generation && s->run_id == gate->run &&
                   s->kind == ECH_SLOT_GATE && s->state == ECH_SLOT_PENDING
               ? s
               : NULL;
}

void ech_gate_open(ech_worker *const w, const ech_gate gate)
{
    pthread_mutex_lock(&w->lock);
    ech_slot *const s = closed_gate(w, &gate);
    if (s != NULL) {
        ech_graph_finish(&w->graph, s, false, 0);
        ech_run_promote(w);
        (void)ech_sched_dispatch(w);
        ech_sched_kick(w);
    }
    pthread_mutex_unlock(&w->lock);
}

void ech_gate_fail(ech_worker *const w, const ech_gate gate, const ech_status code,
                   const char *const text)
{
    pthread_mutex_lock(&w->lock);
    ech_slot *const s = closed_gate(w, &gate);
    ech_run *const run = s != NULL ? ech_run_of(w, s) : NULL;
    if (run != NULL) {
        ech_error e = { 0 };
        (void)ech_fail(&e, code, "gate %u of run %llu failed: %s", s->serial,
                       (unsigned long long)run->id, text);
        ech_graph_finish(&w->graph, s, true, ech_run_add_cause(run, &e));
        ech_run_promote(w);
        ech_sched_kick(w);
    }
    pthread_mutex_unlock(&w->lock);
}
