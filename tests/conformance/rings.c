/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance cases of what is below and beside a worker's graph: 36 (order of staged frames), 58
 * and 102 (chip-local memory), 92 (slots stay where they are), 93 (rings inside a chip), 110 (the
 * channel to a running task).
 */
#include "tests/conformance/harness.h"

#include <stdlib.h>
#include <string.h>

#include "src/runtime/endpoint.h"
#include "src/runtime/local.h"
#include "src/runtime/memory.h"
#include "src/runtime/registry.h"
#include "src/runtime/serve.h"

/* ---- 36 ------------------------------------------------------------------------------------- */

static void hear(void *const ctx, ech_endpoint *const ep, const ech_identity *const id)
{
    (void)ctx;
    (void)ep;
    (void)id;
}

static void count(void *const ctx, ech_endpoint *const ep, const ech_completion *const c)
{
    (void)ep;
    CHECK(c->result == ECH_OK);
    ++*(int *)ctx;
}

/* A frame that runs conf_act(id, CONF_LOG), not yet allowed to start. */
static ech_frame *stage(conf *const c, const uint32_t place, const uint64_t id)
{
    ech_tensor board = conf_bytes(c->board_buffer, 0, sizeof(conf_board));
    uint64_t scalars[3] = { id, CONF_LOG, 0 };
    board.tag = ECH_NO_DEP;
    const ech_slot slot = { .kind = ECH_SLOT_SUB,
                            .callable = (uint8_t)place,
                            .args = { 1, 3, &board, scalars } };
    const ech_identity identity = { ++c->w->dispatch_id, 1, 0, 0 };
    return ech_endpoint_stage(&c->w->endpoints[0], &identity, &slot, 0,
                              c->w->shared->callables[place].generation);
}

static void case_36(void)
{
    conf c;
    ech_error err;
    uint32_t place = 0;
    int n = 0;
    const ech_completion_sink sink = { hear, count, &n };
    conf_open(&c, 1, 0, NULL);
    pthread_mutex_lock(&c.w->lock);
    CHECK_OK(ech_registry_find(c.w, &c.act, &place, &err));
    ech_frame *const first = stage(&c, place, 1);
    ech_frame *const second = stage(&c, place, 2);
    ech_endpoint_activate(&c.w->endpoints[0], second);
    conf_pause_ms(30);
    CHECK(!conf_has_run(&c, 2)); /* the lower dispatch id goes first */
    ech_endpoint_activate(&c.w->endpoints[0], first);
    for (int i = 0; i < 1000 && n < 2; i++) {
        ech_endpoint_collect(&c.w->endpoints[0], &sink);
        conf_pause_ms(1);
    }
    pthread_mutex_unlock(&c.w->lock);
    CHECK(n == 2);
    CHECK(conf_before(&c, 1, 2));
    conf_close(&c);
}

/* ---- 58, 102 -------------------------------------------------------------------------------- */

typedef struct local_memory {
    conf c;
    ech_buffer mine[2]; /* of chip 0 and chip 1 */
    ech_status rc;
    ech_error inner;
} local_memory;

static void open_local(local_memory *const m, const uint32_t n_subs)
{
    ech_error err;
    ech_region region;
    *m = (local_memory){ 0 };
    conf_create(&m->c, 2, n_subs, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(ech_memory_region_local(m->c.w, "device", 4096, i, &region, &err));
        CHECK_OK(ech_worker_buffer_at(m->c.w, &region, 0, 4096, ECH_ACCESS_RW, &m->mine[i], &err));
    }
    CHECK_OK(ech_worker_init(m->c.w, &err));
    m->c.board = ech_worker_buffer_ptr(m->c.w, m->c.board_buffer);
}

static ech_status submit_58(ech_orch *const orch, void *const arg, ech_error *const err)
{
    local_memory *const m = arg;
    for (int i = 0; i < 2; i++) {
        /* The same offset of the same kind of memory, each on its own chip. */
        const conf_arg a = { ECH_INOUT, conf_bytes(m->mine[i], 0, 64) };
        const ech_status rc = conf_put(&m->c, orch, i, 1 + i, CONF_HOLD, 1, &a, 1, err);
        if (rc != ECH_OK) return rc;
    }
    return ECH_OK;
}

static void case_58(void)
{
    local_memory m;
    ech_error err;
    ech_run *run = NULL;
    ech_worker_counters n;
    open_local(&m, 0);
    CHECK_OK(ech_worker_submit(m.c.w, submit_58, &m, &run, &err));
    CHECK(conf_started(&m.c, 1) && conf_started(&m.c, 2)); /* both run at once */
    ech_worker_snapshot(m.c.w, &n);
    CHECK(n.edges == 0);
    conf_set_flag(&m.c, 1);
    CHECK_OK(ech_run_wait(run, 10, &err));
    ech_run_release(&run);
    conf_close(&m.c);
}

static ech_status submit_102(ech_orch *const orch, void *const arg, ech_error *const err)
{
    local_memory *const m = arg;
    const conf_arg a = { ECH_INPUT, conf_bytes(m->mine[0], 0, 64) };
    m->rc = conf_put(&m->c, orch, -1, 1, CONF_READ, 0, &a, 1, &m->inner);
    const ech_status other = conf_put(&m->c, orch, 1, 2, CONF_READ, 0, &a, 1, NULL);
    CHECK(other == ECH_EACCESS);
    return conf_put(&m->c, orch, 0, 3, CONF_READ, 0, &a, 1, err);
}

static void case_102(void)
{
    local_memory m;
    ech_error err;
    open_local(&m, 1);
    CHECK_OK(ech_worker_run(m.c.w, submit_102, &m, &err));
    CHECK(m.rc == ECH_EACCESS && strstr(m.inner.text, "device") != NULL);
    CHECK(!conf_has_run(&m.c, 1) && !conf_has_run(&m.c, 2) && conf_has_run(&m.c, 3));
    /* A frame that names it all the same is refused where it would be used. */
    static ech_frame frame;
    static ech_task task;
    frame.n_tensors = 1;
    frame.tensors[0] = conf_bytes(m.mine[0], 0, 64);
    frame.tensors[0].tag = ECH_INPUT;
    CHECK_CODE(ech_task_decode(&task, m.c.w, 2, &frame, &err), ECH_EACCESS);
    CHECK_TEXT("device");
    CHECK_OK(ech_task_decode(&task, m.c.w, 0, &frame, &err));
    conf_close(&m.c);
}

/* ---- 92, 93 --------------------------------------------------------------------------------- */

static void no_ready(void *const ctx, ech_slot *const slot)
{
    (void)ctx;
    (void)slot;
}

static ech_ring_sizes sizes_of(const uint64_t heap, const uint32_t window, const uint32_t pool)
{
    ech_ring_sizes s;
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        s.heap_bytes[r] = heap;
        s.task_window[r] = window;
        s.dep_pool[r] = pool;
    }
    return s;
}

static void case_92(void)
{
    static ech_graph g;
    ech_error err;
    ech_resource lack;
    const ech_graph_hooks hooks = { no_ready, no_ready, NULL, NULL };
    const ech_ring_sizes sizes = sizes_of(65536, 1024, 16);
    const uint64_t nonce[2] = { 1, 2 };
    const ech_submission s = {
        .kind = ECH_SLOT_ALLOC, .child = -1, .heap_bytes = 64, .label = "a"
    };
    ech_slot *slots[1001];
    CHECK_OK(ech_graph_init(&g, &sizes, &hooks, nonce, &err));
    ech_graph_open(&g, 1, 0);
    for (uint32_t i = 0; i <= 1000; i++) {
        CHECK_OK(ech_graph_submit(&g, &s, &slots[i], &lack, &err));
    }
    for (uint32_t i = 0; i <= 1000; i++) {
        CHECK(ech_graph_slot(&g, slots[i]->ref) == slots[i]);
        CHECK(slots[i]->serial == i && slots[i]->state == ECH_SLOT_COMPLETED);
    }
    CHECK(g.rings[0].head - g.rings[0].tail == 1001);
    ech_graph_close(&g); /* the scope held them all */
    CHECK(g.rings[0].head == g.rings[0].tail);
    CHECK(g.rings[0].heap_head == 0 &&
          g.rings[0].heap_tail == 0); /* only an empty ring starts over */
    ech_graph_fini(&g);
}

static ech_status add_one(const ech_local_task *const task, ech_error *const err)
{
    (void)err;
    ++*(int *)task->arg;
    return ECH_OK;
}

static ech_local *open_rings(const uint64_t heap, const uint32_t window, const uint32_t pool)
{
    ech_local *l = NULL;
    ech_error err;
    const ech_ring_sizes sizes = sizes_of(heap, window, pool);
    CHECK_OK(ech_local_open(NULL, &sizes, &l, &err));
    return l;
}

/* After the fatal one, nothing does anything and all say the same. */
static void expect_fatal(ech_local **const l, const ech_status rc, const int code)
{
    ech_error err;
    int n = 0;
    CHECK(rc != ECH_OK && ech_local_fatal_code(*l) == code);
    CHECK_CODE(ech_local_submit(*l, add_one, &n, NULL, NULL, 0, NULL, &err), rc);
    CHECK_CODE(ech_local_scope_begin(*l, &err), rc);
    CHECK_CODE(ech_local_wait(*l, &err), rc);
    CHECK(n == 0);
    ech_local_close(l);
}

static ech_status submit_n(ech_local *const l, const int n, int *const sum, uint32_t *const tasks)
{
    for (int i = 0; i < n; i++) {
        const ech_status rc = ech_local_submit(l, add_one, sum, NULL, NULL, 0,
                                               tasks != NULL ? &tasks[i] : NULL, NULL);
        if (rc != ECH_OK) return rc;
    }
    return ECH_OK;
}

static void scope_deadlock(void)
{
    int sum = 0;
    ech_local *l = open_rings(4096, 4, 16);
    expect_fatal(&l, submit_n(l, 8, &sum, NULL), 1);
}

static void heap_deadlock(void)
{
    static ech_args args;
    int sum = 0;
    const uint64_t bytes = 32768;
    const ech_tensor out = ech_tensor_unplaced(ECH_DTYPE_U8, 1, &bytes);
    ech_local *l = open_rings(1024, 16, 16);
    ech_args_add(&args, ECH_OUTPUT, &out);
    expect_fatal(&l, ech_local_submit(l, add_one, &sum, &args, NULL, 0, NULL, NULL), 2);
}

static void window_deadlock(void)
{
    int sum = 0;
    ech_status rc = ECH_OK;
    ech_local *l = open_rings(4096, 4, 16);
    for (int depth = 0; depth < 8 && rc == ECH_OK; depth++) {
        rc = ech_local_scope_begin(l, NULL);
        if (rc == ECH_OK) rc = submit_n(l, 3, &sum, NULL);
    }
    expect_fatal(&l, rc, 3);
}

static void pool_overflow(void)
{
    int sum = 0;
    uint32_t producers[128];
    ech_local *l = open_rings(4096, 256, 4);
    CHECK(submit_n(l, 128, &sum, producers) == ECH_OK);
    expect_fatal(&l, ech_local_submit(l, add_one, &sum, NULL, producers, 128, NULL, NULL), 4);
}

static void invalid_list(void)
{
    int sum = 0;
    ech_local *l = open_rings(4096, 16, 16);
    expect_fatal(&l, ech_local_submit(l, add_one, &sum, NULL, NULL, 4, NULL, NULL), 5);
}

/* And where everything fits, everything runs, in order. */
static ech_status times_two_plus(const ech_local_task *const task, ech_error *const err)
{
    (void)err;
    uint64_t *const x = task->ptr[0];
    *x = *x * 2 + task->scalars[0];
    return ECH_OK;
}

static void local_graph_runs(void)
{
    static ech_args args;
    ech_error err;
    uint64_t x = 0, expect = 0;
    ech_buffer b;
    const uint64_t one = 1;
    ech_local *l = open_rings(4096, 4, 16);
    CHECK_OK(ech_local_buffer(l, &x, sizeof x, &b, &err));
    const ech_tensor t = ech_tensor_view(b, 0, ECH_DTYPE_U64, 1, &one);
    for (uint64_t i = 0; i < 100; i++) {
        CHECK_OK(ech_local_scope_begin(l, &err));
        ech_args_clear(&args);
        ech_args_add(&args, ECH_INOUT, &t);
        ech_args_add_scalar(&args, i % 7);
        CHECK_OK(ech_local_submit(l, times_two_plus, NULL, &args, NULL, 0, NULL, &err));
        CHECK_OK(ech_local_scope_end(l, &err));
        expect = expect * 2 + i % 7;
    }
    CHECK_OK(ech_local_wait(l, &err));
    CHECK(x == expect);
    ech_local_close(&l);
}

static void case_93(void)
{
    scope_deadlock();
    heap_deadlock();
    window_deadlock();
    pool_overflow();
    invalid_list();
    local_graph_runs();
}

/* ---- 110 ------------------------------------------------------------------------------------ */

#define DEPTH 5

/* Adds up what it is sent, after flag 0 of the board... until it is told to stop. */
static ech_status summing(ech_task *const task, ech_error *const err)
{
    const ech_task_tensor *const ch = ech_task_tensor_at(task, 0);
    uint64_t *const sum = ech_task_tensor_at(task, 1)->ptr;
    const uint32_t *const go = (const uint32_t *)(sum + 1);
    while (__atomic_load_n(go, __ATOMIC_ACQUIRE) == 0) {
        conf_pause_ms(1);
        if (ech_task_poll(task, 0)) return ECH_ECANCELLED;
    }
    for (;;) {
        uint64_t message;
        bool stopped;
        const ech_status rc =
            ech_channel_receive(ch->ptr, ch->bytes, &message, sizeof message, 10, &stopped, err);
        if (rc != ECH_OK) return rc;
        if (stopped) return ECH_OK;
        *sum = *sum * 10 + message;
    }
}

typedef struct channel_scene {
    ech_callable task;
    ech_buffer channel, sum;
} channel_scene;

static ech_status submit_110(ech_orch *const orch, void *const arg, ech_error *const err)
{
    static ech_args args;
    channel_scene *const s = arg;
    const ech_tensor ch = conf_bytes(s->channel, 0, ech_channel_bytes(DEPTH, 8));
    const ech_tensor sum = conf_bytes(s->sum, 0, 64);
    ech_args_clear(&args);
    ech_args_add(&args, ECH_NO_DEP, &ch);
    ech_args_add(&args, ECH_INOUT, &sum);
    return ech_submit_next_level(orch, &s->task, &args, NULL, 0, err);
}

static void case_110(void)
{
    conf c;
    ech_error err;
    channel_scene s;
    ech_run *run = NULL;
    bool sent = false;
    const uint64_t bytes = ech_channel_bytes(DEPTH, 8);
    conf_create(&c, 1, 0, NULL);
    s.channel = conf_buffer(&c, "channel", bytes);
    s.sum = conf_buffer(&c, "sum", 64);
    CHECK_OK(ech_worker_register_host(c.w, "summing", summing, &s.task, &err));
    CHECK_OK(ech_worker_init(c.w, &err));
    void *const ch = ech_worker_buffer_ptr(c.w, s.channel);
    uint64_t *const sum = ech_worker_buffer_ptr(c.w, s.sum);
    CHECK_OK(ech_channel_init(ch, bytes, DEPTH, 8, &err));
    CHECK_OK(ech_worker_submit(c.w, submit_110, &s, &run, &err));
    for (uint64_t i = 1; i <= DEPTH; i++) {
        CHECK_OK(ech_channel_try_send(ch, bytes, &i, sizeof i, &sent, &err));
        CHECK(sent);
    }
    const uint64_t more = 9;
    CHECK_OK(ech_channel_try_send(ch, bytes, &more, sizeof more, &sent, &err));
    CHECK(!sent); /* exactly DEPTH fit, and a full one is no harm */
    __atomic_store_n((uint32_t *)(sum + 1), 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 1000 && !sent; i++) {
        CHECK_OK(ech_channel_try_send(ch, bytes, &more, sizeof more, &sent, &err));
        if (!sent) conf_pause_ms(1);
    }
    CHECK(sent);
    CHECK_OK(ech_channel_stop(ch, bytes, &err));
    CHECK_CODE(ech_channel_try_send(ch, bytes, &more, sizeof more, &sent, &err), ECH_ESTATE);
    CHECK_OK(ech_run_wait(run, 10, &err));
    CHECK(*sum == 123459); /* the stop came after all that was sent before */
    ech_run_release(&run);
    conf_close(&c);
}

static const conf_case CASES[] = {
    { 36, case_36 }, { 58, case_58 },   { 92, case_92 },
    { 93, case_93 }, { 102, case_102 }, { 110, case_110 },
};

int main(const int argc, char **const argv)
{
    return conf_main(CASES, sizeof CASES / sizeof CASES[0], argc, argv);
}
