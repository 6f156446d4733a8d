/* SPDX-License-Identifier: Apache-2.0 */
/* Orchestration inside one process: see local.h. */
#include "src/runtime/local.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/os/fault.h"
#include "src/base/os/process.h"
#include "src/runtime/ring.h"
#include "src/runtime/run.h"
#include "src/runtime/serve.h"
#include "src/runtime/settings.h"

#define MAX_BUFFERS 64

/* What runs in a slot; found by the slot's place, so that submitting allocates nothing. */
typedef struct call {
    ech_local_fn fn;
    void *arg;
} call;

struct ech_local {
    ech_graph graph;
    char *heap;
    ech_queue ready;
    struct {
        void *ptr;
        uint64_t bytes;
    } buffers[MAX_BUFFERS];
    uint32_t n_buffers;
    ech_box boxes[ECH_INLINE_TENSORS];
    call *calls[ECH_RINGS];
    ech_status failed; /* of the first task that failed */
    ech_error failure;
    ech_status fatal;
    ech_error fatal_error;
};

static void on_ready(void *const ctx, ech_slot *const slot)
{
    ech_local *const l = ctx;
    ech_queue_push(&l->graph, &l->ready, slot);
}

static void on_terminal(void *const ctx, ech_slot *const slot)
{
    (void)ctx;
    (void)slot;
}

/* Each ring's sizes: those of the dispatch, which has one value for all four, come first. */
static ech_status choose_sizes(const ech_task *const task, const ech_ring_sizes *const given,
                               ech_ring_sizes *const ret, ech_error *const err)
{
    ech_ring_sizes of_dispatch = { { 0 }, { 0 }, { 0 } };
    for (uint32_t r = 0; task != NULL && r < ECH_RINGS; r++) {
        of_dispatch.heap_bytes[r] = task->frame->ring_heap;
        of_dispatch.task_window[r] = task->frame->ring_window;
        of_dispatch.dep_pool[r] = task->frame->ring_pool;
    }
    return ech_settings_rings(&of_dispatch, given, ret, err);
}

static ech_status allocate(ech_local *const l, const ech_ring_sizes *const sizes,
                           ech_error *const err)
{
    const ech_graph_hooks hooks = { on_ready, on_terminal, NULL, l };
    uint64_t nonce[2];
    ech_os_random(nonce, sizeof nonce);
    nonce[0] |= 1;
    ECH_TRY(ech_graph_init(&l->graph, sizes, &hooks, nonce, err));
    l->heap = ech_mem_alloc(1, ech_graph_heap_total(sizes) + ECH_HEAP_ALIGN);
    bool ok = l->heap != NULL;
    for (uint32_t r = 0; r < ECH_RINGS && ok; r++) {
        l->calls[r] = ech_mem_alloc(sizes->task_window[r], sizeof *l->calls[r]);
        ok = l->calls[r] != NULL;
    }
    if (!ok) return ech_fail(err, ECH_ENOMEM, "opening an orchestration: out of memory");
    ech_graph_open(&l->graph, 1, 0);
    return ECH_OK;
}

ech_status ech_local_open(const ech_task *const task, const ech_ring_sizes *const sizes,
                          ech_local **const ret, ech_error *const err)
{
    ech_ring_sizes chosen;
    ECH_TRY(choose_sizes(task, sizes, &chosen, err));
    ech_local *l = ech_mem_alloc(1, sizeof *l);
    if (l == NULL) return ech_fail(err, ECH_ENOMEM, "opening an orchestration: out of memory");
    const ech_status rc = allocate(l, &chosen, err);
    if (rc != ECH_OK) {
        ech_local_close(&l);
        return rc;
    }
    *ret = l;
    return ECH_OK;
}

void ech_local_close(ech_local **const local)
{
    ech_local *const l = *local;
    if (l == NULL) return;
    ech_graph_fini(&l->graph);
    for (uint32_t r = 0; r < ECH_RINGS; r++)
        free(l->calls[r]);
    free(l->heap);
    free(l);
    *local = NULL;
}

/* ---- Failure -----------------------------------------------------------------------------------
 */

static ech_status latched(const ech_local *const l, ech_error *const err)
{
    if (l->fatal != ECH_OK && err != NULL) *err = l->fatal_error;
    return l->fatal;
}

int ech_local_fatal_code(const ech_local *const l)
{
    return l->fatal == ECH_OK ? 0 : ECH_SCOPE_DEADLOCK - (int)l->fatal + 1;
}

/* Latches ring failures; other errors are the caller's to correct. */
static ech_status latch(ech_local *const l, const ech_status rc, ech_error *const err,
                        const ech_error *const e)
{
    if (err != NULL) *err = *e;
    if (rc > ECH_SCOPE_DEADLOCK || rc < ECH_RING_INVALID_ARGS) return rc;
    l->fatal = rc;
    l->fatal_error = *e;
    ech_log(ECH_LOG_ERROR, "orchestration stopped with code %d %s: %s (%s); %s",
            ech_local_fatal_code(l), ech_status_name(rc), ech_status_str(rc), e->text,
            ech_status_hint(rc));
    return rc;
}

/* ---- Running -----------------------------------------------------------------------------------
 */

static void *address(const ech_local *const l, const ech_tensor *const t)
{
    if (t->buffer.nonce[0] != l->graph.nonce[0]) return NULL;
    if (t->buffer.id & ECH_RING_BUFFER) return l->heap + ECH_RING_START(t->buffer.id) + t->offset;
    return (char *)l->buffers[t->buffer.id - 1].ptr + t->offset;
}

static void run_slot(ech_local *const l, ech_slot *const s)
{
    if (!ech_slot_claim(s)) return;
    const call *const c = &l->calls[s->ring][s->ref & 0x0fffffff];
    ech_local_task task = { .tensors = s->args.tensors,
                            .scalars = s->args.scalars,
                            .n_tensors = s->args.n_tensors,
                            .n_scalars = s->args.n_scalars,
                            .arg = c->arg };
    ech_error e = { 0 };
    for (uint32_t i = 0; i < task.n_tensors; i++)
        task.ptr[i] = address(l, &task.tensors[i]);
    const ech_status rc = c->fn(&task, &e);
    if (rc != ECH_OK && l->failed == ECH_OK) {
        l->failed = rc;
        (void)ech_fail(&l->failure, rc, "task %u: %s: %s", s->serial, ech_status_name(rc), e.text);
    }
    ech_graph_finish(&l->graph, s, rc != ECH_OK, 1);
}

static bool run_ready(ech_local *const l)
{
    ech_slot *const s = ech_queue_pop(&l->graph, &l->ready);
    if (s != NULL) run_slot(l, s);
    return s != NULL;
}

ech_status ech_local_wait(ech_local *const l, ech_error *const err)
{
    ECH_TRY(latched(l, err));
    while (run_ready(l)) {
    }
    if (l->failed != ECH_OK && err != NULL) *err = l->failure;
    return l->failed;
}

/* ---- Submitting --------------------------------------------------------------------------------
 */

static ech_status add(ech_local *const l, const ech_submission *const s, const call *const c,
                      ech_slot **const ret, ech_error *const err)
{
    ech_graph *const g = &l->graph;
    ech_error e = { 0 };
    for (;;) {
        ech_resource lack;
        const ech_graph_ring *const r = &g->rings[ech_graph_ring_of(g->depth)];
        /* The call is noted where the slot will be, since publishing may queue it at once. */
        if (c != NULL && ech_ring_has_slot(r)) l->calls[r->index][r->head & (r->window - 1)] = *c;
        ech_status rc = ech_graph_submit(g, s, ret, &lack, &e);
        if (rc == ECH_OK) return ECH_OK;
        if (rc != ECH_EAGAIN) return latch(l, rc, err, &e);
        if (run_ready(l)) continue;
        /* Nothing is left to run, so whatever holds the ring holds it for good. */
        const uint64_t need = lack == ECH_RES_HEAP   ? s->heap_bytes
                              : lack == ECH_RES_DEPS ? g->n_found
                                                     : 1;
        rc = ech_graph_stuck(g, lack, need, ECH_STUCK_NS, &e);
        if (rc != ECH_OK) return latch(l, rc, err, &e);
    }
}

static bool is_unplaced(const ech_tensor *const t)
{
    return t->buffer.id == 0 && t->buffer.generation == 0 && t->buffer.nonce[0] == 0;
}

static ech_status check_tensor(ech_local *const l, const ech_tensor *const t, ech_box *const box,
                               uint64_t *const heap, ech_error *const err)
{
    if (is_unplaced(t)) {
        if (t->tag != ECH_OUTPUT)
            return ech_fail(err, ECH_EACCESS,
                            "submitting a call: only OUTPUT gets memory from the ring");
        ECH_TRY(ech_box_from(t, UINT64_MAX, "submitting a call", box, err));
        *heap += ech_ring_round(box->hi);
        return ECH_OK;
    }
    uint64_t bytes = 0;
    const ech_slot *const owner = ech_graph_memory_owner(&l->graph, &t->buffer);
    if (t->buffer.nonce[0] == l->graph.nonce[0]) {
        if (owner != NULL && owner->scope_held) bytes = owner->heap_hi - owner->heap_lo;
        if (t->buffer.id >= 1 && t->buffer.id <= l->n_buffers)
            bytes = l->buffers[t->buffer.id - 1].bytes;
    }
    if (bytes == 0)
        return ech_fail(err, ECH_ESTALE,
                        "submitting a call: a tensor names no memory of this orchestration");
    return ech_box_from(t, bytes, "submitting a call", box, err);
}

static ech_status check_after(ech_local *const l, const uint32_t *const after, const uint32_t n,
                              ech_error *const err)
{
    if (n > 0 && after == NULL)
        return ech_fail(err, ECH_RING_INVALID_ARGS,
                        "submitting a call: the list of %u dependencies is NULL", n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t ring = after[i] >> 28, idx = after[i] & 0x0fffffff;
        if (ring >= ECH_RINGS || idx >= l->graph.rings[ring].window ||
            l->graph.rings[ring].slots[idx].state == ECH_SLOT_FREE)
            return ech_fail(err, ECH_RING_INVALID_ARGS,
                            "submitting a call: dependency %u is no task", i);
    }
    return ECH_OK;
}

ech_status ech_local_submit(ech_local *const l, const ech_local_fn fn, void *const arg,
                            ech_args *args, const uint32_t *const after, const uint32_t n_after,
                            uint32_t *const ret_task, ech_error *const err)
{
    static const ech_args none;
    ech_error e = { 0 };
    ECH_TRY(latched(l, err));
    const ech_status rc = check_after(l, after, n_after, &e);
    if (rc != ECH_OK) return latch(l, rc, err, &e);
    ech_submission s = { .kind = ECH_SLOT_LOCAL,
                         .child = -1,
                         .n_members = 1,
                         .boxes = l->boxes,
                         .after = after,
                         .n_after = n_after,
                         .label = "call" };
    if (args == NULL) args = (ech_args *)&none; /* read only: it has no tensor to place */
    s.args = &args;
    if (args->n_tensors > ECH_INLINE_TENSORS || args->n_scalars > ECH_INLINE_SCALARS ||
        args->misordered)
        return ech_fail(err, ECH_ELIMIT,
                        "submitting a call: %u tensors and %u scalars, at most %d and %d",
                        args->n_tensors, args->n_scalars, ECH_INLINE_TENSORS, ECH_INLINE_SCALARS);
    for (uint32_t i = 0; i < args->n_tensors; i++)
        ECH_TRY(check_tensor(l, &args->tensors[i], &l->boxes[i], &s.heap_bytes, err));
    const call c = { fn, arg };
    ech_slot *slot = NULL;
    ECH_TRY(add(l, &s, &c, &slot, err));
    if (ret_task != NULL) *ret_task = slot->ref;
    return ECH_OK;
}

ech_status ech_local_alloc(ech_local *const l, const ech_dtype dtype, const uint32_t ndim,
                           const uint64_t *const shape, ech_tensor *const ret, ech_error *const err)
{
    ech_tensor t = ech_tensor_unplaced(dtype, ndim, shape);
    ech_box box;
    ech_slot *slot = NULL;
    ECH_TRY(latched(l, err));
    ECH_TRY(ech_box_from(&t, UINT64_MAX, "allocating ring memory", &box, err));
    const ech_submission s = {
        .kind = ECH_SLOT_ALLOC, .child = -1, .heap_bytes = box.hi, .label = "alloc"
    };
    ECH_TRY(add(l, &s, NULL, &slot, err));
    ech_ring_buffer(&l->graph, slot, slot->heap_lo, &t.buffer);
    *ret = t;
    return ECH_OK;
}

ech_status ech_local_buffer(ech_local *const l, void *const ptr, const uint64_t bytes,
                            ech_buffer *const ret, ech_error *const err)
{
    if (l->n_buffers == MAX_BUFFERS)
        return ech_fail(err, ECH_ELIMIT, "naming memory: %d buffers are the limit", MAX_BUFFERS);
    l->buffers[l->n_buffers].ptr = ptr;
    l->buffers[l->n_buffers].bytes = bytes;
    *ret = (ech_buffer){ { l->graph.nonce[0], l->graph.nonce[1] }, ++l->n_buffers, 1 };
    return ECH_OK;
}

ech_status ech_local_scope_begin(ech_local *const l, ech_error *const err)
{
    ECH_TRY(latched(l, err));
    return ech_graph_scope_begin(&l->graph, err);
}

ech_status ech_local_scope_end(ech_local *const l, ech_error *const err)
{
    ECH_TRY(latched(l, err));
    return ech_graph_scope_end(&l->graph, err);
}
