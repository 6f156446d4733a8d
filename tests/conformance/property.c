/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model-based test of the graph: random graphs (boxes of a buffer, all tags, groups, gates,
 * scopes, failures, tiny rings) run in a random order and are compared with an oracle that knows
 * only bytes: a buffer has 64, so what a task reads and writes is two 64-bit masks.
 *
 *   - whatever ran, ran after everything that it conflicts with and that was submitted before it;
 *   - every edge joins a pair that conflicts, a gate and its task, or memory and its user;
 *   - nothing ran behind an edge from a failed task;
 *   - at the end every ring is empty.
 *
 * usage: property [GRAPHS [SEED]]. The seed is printed; with it a failure can be seen again. It
 * counts how often each thing of interest occurred, and fails when any is below 100.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/runtime/local.h"
#include "src/runtime/ring.h"

#define MAX_TASKS   48
#define N_BUFFERS   3
#define MAX_MEMBERS 3

typedef struct touch {
    uint64_t buffer;        /* identity: id of a buffer, or id ^ generation of ring memory */
    uint64_t reads, writes; /* masks of bytes */
    uint8_t tag;
} touch;

typedef struct task {
    ech_slot *slot;
    uint32_t generation;
    uint8_t kind;
    bool terminal, failed, ran, ready;
    uint32_t started, ended;
    touch acc[MAX_MEMBERS * 3];
    int n_acc;
    uint64_t uses[MAX_MEMBERS * 3]; /* ring memory it names: the owner is held */
    int n_uses;
    uint64_t owns[MAX_MEMBERS * 3];
    int n_owns;
    uint64_t waits_for; /* gates, as a mask of tasks */
    uint64_t edges;     /* producers, as a mask of tasks */
} task;

static struct world {
    ech_graph g;
    uint64_t rng, seed, graph;
    uint32_t clock;
    task tasks[MAX_TASKS];
    int n_tasks;
    int building;                 /* index of the task being submitted */
    ech_tensor memory[MAX_TASKS]; /* ring memory whose scope is open */
    uint32_t memory_depth[MAX_TASKS];
    int n_memory;
} W;

/* ---- Coverage ------------------------------------------------------------------------------- */

enum {
    N_STATE = ECH_SLOT_STATE_COUNT,
    COVER_STATE = 0,
    COVER_CODE = COVER_STATE + N_STATE,
    COVER_FULL = COVER_CODE + 5,
    COVER_PAIR = COVER_FULL + ECH_RES_COUNT * ECH_RINGS,
    COVER_GATE_OPEN = COVER_PAIR + ECH_TAG_COUNT * ECH_TAG_COUNT,
    COVER_GATE_FAIL,
    COVER_GROUP_FAIL,
    COVER_SPREAD,
    COVER_ALLOC,
    N_COVER
};

static uint64_t cover[N_COVER];

static const char *cover_name(const int i)
{
    static char out[96];
    static const char *const tags[] = { "INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING", "NO_DEP" };
    static const char *const rest[] = { "gate opened", "gate failed", "group failed",
                                        "failure spread", "alloc" };
    static const char *const res[] = { "window", "heap", "pool" };
    if (i < COVER_CODE) {
        snprintf(out, sizeof out, "slot state %s", ech_slot_state_name((uint32_t)i));
    } else if (i < COVER_FULL) {
        snprintf(out, sizeof out, "%s",
                 ech_status_name((ech_status)(ECH_SCOPE_DEADLOCK - (i - COVER_CODE))));
    } else if (i < COVER_PAIR) {
        const int k = i - COVER_FULL;
        snprintf(out, sizeof out, "full %s of ring %d", res[k / ECH_RINGS], k % ECH_RINGS);
    } else if (i < COVER_GATE_OPEN) {
        const int k = i - COVER_PAIR;
        snprintf(out, sizeof out, "%s then %s of common bytes", tags[k / ECH_TAG_COUNT],
                 tags[k % ECH_TAG_COUNT]);
    } else {
        snprintf(out, sizeof out, "%s", rest[i - COVER_GATE_OPEN]);
    }
    return out;
}

_Noreturn static void fail(const char *const what, const int a, const int b)
{
    fprintf(stderr, "property: graph %llu of seed %llu: %s (tasks %d and %d)\n",
            (unsigned long long)W.graph, (unsigned long long)W.seed, what, a, b);
    exit(1);
}

/* ---- Random numbers ------------------------------------------------------------------------- */

static uint64_t rnd(void)
{
    uint64_t z = W.rng += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint32_t below(const uint32_t n)
{
    return (uint32_t)(rnd() % n);
}

/* ---- The graph's hooks ---------------------------------------------------------------------- */

static int index_of(const ech_slot *const s)
{
    for (int i = 0; i < W.n_tasks; i++) {
        if (W.tasks[i].slot == s && W.tasks[i].generation == s->generation) return i;
    }
    return W.building; /* the one that is being made has no slot yet */
}

static void on_ready(void *const ctx, ech_slot *const s)
{
    (void)ctx;
    task *const t = &W.tasks[index_of(s)];
    if (t->ready) fail("became ready twice", index_of(s), -1);
    t->ready = true;
    cover[COVER_STATE + ECH_SLOT_READY]++;
}

static void on_terminal(void *const ctx, ech_slot *const s)
{
    (void)ctx;
    task *const t = &W.tasks[index_of(s)];
    if (t->terminal) fail("ended twice", index_of(s), -1);
    t->terminal = true;
    t->failed = s->state == ECH_SLOT_FAILED;
    t->ended = ++W.clock;
    cover[COVER_STATE + s->state]++;
    if (t->failed && s->poisoned) cover[COVER_SPREAD]++;
    if (t->failed && t->kind == ECH_SLOT_GROUP && !s->poisoned) cover[COVER_GROUP_FAIL]++;
}

static bool conflict(const task *const a, const task *const b)
{
    for (int i = 0; i < a->n_acc; i++) {
        for (int k = 0; k < b->n_acc; k++) {
            const touch *const x = &a->acc[i], *const y = &b->acc[k];
            if (x->buffer != y->buffer) continue;
            if ((x->writes & (y->reads | y->writes)) | (x->reads & y->writes)) return true;
        }
    }
    return false;
}

static bool holds_memory(const task *const owner, const task *const user)
{
    for (int i = 0; i < owner->n_owns; i++) {
        for (int k = 0; k < user->n_uses; k++) {
            if (owner->owns[i] == user->uses[k]) return true;
        }
    }
    return false;
}

static void on_edge(void *const ctx, const ech_slot *const producer, const ech_slot *const consumer)
{
    (void)ctx;
    const int p = index_of(producer), c = index_of(consumer);
    if (p == c) fail("an edge from a task to itself", p, c);
    task *const t = &W.tasks[c];
    if (t->edges >> p & 1) fail("two edges between one pair", p, c);
    t->edges |= UINT64_C(1) << p;
    if (!conflict(&W.tasks[p], t) && !(t->waits_for >> p & 1) && !holds_memory(&W.tasks[p], t))
        fail("an edge that needn't be there", p, c);
}

/* ---- Making tasks --------------------------------------------------------------------------- */

static uint64_t memory_key(const ech_buffer *const b)
{
    return b->id ^ b->generation << 8 ^ UINT64_C(0x5555000000000000);
}

/* A random box of an 8 x 8 byte matrix, as a view and as a mask. */
static ech_tensor random_box(const ech_buffer b, uint64_t *const mask)
{
    const uint32_t r0 = below(8), c0 = below(8);
    const uint32_t nr = 1 + below(8 - r0), nc = 1 + below(8 - c0);
    const bool whole = below(6) == 0;
    ech_tensor t = { .buffer = b, .dtype = ECH_DTYPE_U8, .ndim = 2 };
    t.offset = whole ? 0 : r0 * 8 + c0;
    t.shape[0] = whole ? 8 : nr;
    t.shape[1] = whole ? 8 : nc;
    t.strides[0] = 8;
    t.strides[1] = 1;
    *mask = 0;
    for (uint64_t r = 0; r < t.shape[0]; r++) {
        for (uint64_t c = 0; c < t.shape[1]; c++)
            *mask |= UINT64_C(1) << (t.offset + r * 8 + c);
    }
    return t;
}

static void note(task *const t, const uint64_t buffer, const uint8_t tag, const uint64_t mask)
{
    touch *const a = &t->acc[t->n_acc++];
    *a = (touch){ .buffer = buffer, .tag = tag };
    if (tag == ECH_INPUT || tag == ECH_INOUT) a->reads = mask;
    if (tag != ECH_INPUT && tag != ECH_NO_DEP) a->writes = mask;
}

/* Whether this task writes any of these bytes already: one task's writes must be disjoint. */
static bool writes_too(const task *const t, const uint64_t buffer, const uint64_t mask)
{
    for (int i = 0; i < t->n_acc; i++) {
        if (t->acc[i].buffer == buffer && (t->acc[i].writes & mask)) return true;
    }
    return false;
}

static void add_tensor(task *const t, ech_args *const a, ech_box *const boxes, int *const n_boxes,
                       uint64_t *const heap)
{
    static const uint8_t all_tags[] = { ECH_INPUT, ECH_OUTPUT, ECH_INOUT, ECH_OUTPUT_EXISTING,
                                        ECH_NO_DEP };
    uint8_t tag = all_tags[below(5)];
    uint64_t mask, key;
    ech_tensor x;
    ech_error err;
    if (tag == ECH_OUTPUT && below(2) == 0) {
        const uint64_t bytes = 64;
        x = ech_tensor_unplaced(ECH_DTYPE_U8, 1, &bytes);
        if (ech_box_from(&x, UINT64_MAX, "x", &boxes[*n_boxes], &err) != ECH_OK)
            fail(err.text, -1, -1);
        *heap += ech_ring_round(bytes);
        ech_args_add(a, ECH_OUTPUT, &x);
        ++*n_boxes;
        return; /* noted once it is placed */
    }
    if (W.n_memory > 0 && below(3) == 0) {
        const ech_buffer b = W.memory[below((uint32_t)W.n_memory)].buffer;
        x = random_box(b, &mask);
        key = memory_key(&b);
        t->uses[t->n_uses++] = key;
    } else {
        const ech_buffer b = { { 99, 1 }, 1 + below(N_BUFFERS), 1 };
        x = random_box(b, &mask);
        key = b.id;
    }
    const bool writes = tag != ECH_INPUT && tag != ECH_NO_DEP;
    if (writes && writes_too(t, key, mask)) tag = ECH_INPUT;
    if (ech_box_from(&x, 64, "x", &boxes[*n_boxes], &err) != ECH_OK) fail(err.text, -1, -1);
    note(t, key, tag, mask);
    ech_args_add(a, (ech_tag)tag, &x);
    ++*n_boxes;
}

static void count_pairs(const int j)
{
    const task *const b = &W.tasks[j];
    for (int i = 0; i < j; i++) {
        for (int x = 0; x < W.tasks[i].n_acc; x++) {
            for (int y = 0; y < b->n_acc; y++) {
                const touch *const p = &W.tasks[i].acc[x], *const q = &b->acc[y];
                if (p->buffer == q->buffer) cover[COVER_PAIR + p->tag * ECH_TAG_COUNT + q->tag]++;
            }
        }
    }
}

/* ---- Running -------------------------------------------------------------------------------- */

static void start(const int i)
{
    task *const t = &W.tasks[i];
    if (!ech_slot_claim(t->slot)) fail("a ready task could not be claimed", i, -1);
    cover[COVER_STATE + ECH_SLOT_RUNNING]++;
    t->ran = true;
    t->started = ++W.clock;
    for (int p = 0; p < i; p++) {
        const task *const q = &W.tasks[p];
        if (conflict(q, t) && !q->terminal)
            fail("it started before one that it conflicts with", p, i);
        if ((t->waits_for >> p & 1) && !q->terminal)
            fail("it started before its gate was open", p, i);
        if ((t->edges >> p & 1) && q->failed) fail("it ran behind a failed one", p, i);
    }
}

/* One random step; false when nothing can move without opening a gate. */
static bool step(void)
{
    int movable[2 * MAX_TASKS], n = 0;
    for (int i = 0; i < W.n_tasks; i++) {
        const task *const t = &W.tasks[i];
        if (t->ready && !t->terminal) movable[n++] = i;
    }
    if (n == 0) return false;
    const int i = movable[below((uint32_t)n)];
    task *const t = &W.tasks[i];
    if (!t->ran) {
        start(i);
    } else {
        ech_graph_finish(&W.g, t->slot, below(25) == 0, 1);
    }
    return true;
}

static bool open_gate(void)
{
    for (int i = 0; i < W.n_tasks; i++) {
        task *const t = &W.tasks[i];
        if (t->kind != ECH_SLOT_GATE || t->terminal) continue;
        const bool bad = below(10) == 0;
        ech_graph_finish(&W.g, t->slot, bad, 1);
        cover[bad ? COVER_GATE_FAIL : COVER_GATE_OPEN]++;
        return true;
    }
    return false;
}

/* ---- Submitting ----------------------------------------------------------------------------- */

static void note_placed(task *const t, ech_args *const *const args, const uint32_t n)
{
    for (uint32_t m = 0; m < n; m++) {
        for (uint32_t i = 0; i < args[m]->n_tensors; i++) {
            const ech_tensor *const x = &args[m]->tensors[i];
            if (x->tag != ECH_OUTPUT || !(x->buffer.id & ECH_RING_BUFFER) || x->ndim != 1) continue;
            const uint64_t key = memory_key(&x->buffer);
            t->owns[t->n_owns++] = key;
            note(t, key, ECH_OUTPUT, UINT64_MAX);
            W.memory[W.n_memory] = *x;
            W.memory_depth[W.n_memory++] = W.g.depth;
            if (W.n_memory == MAX_TASKS) W.n_memory--;
        }
    }
}

/* True: the task is in. False: it never can be, and the code was counted. */
static bool submit(const ech_submission *const s)
{
    const int i = W.n_tasks;
    task *const t = &W.tasks[i];
    const uint32_t ring = ech_graph_ring_of(W.g.depth);
    W.building = i;
    for (;;) {
        ech_slot *slot;
        ech_resource lack;
        ech_error err = { 0 };
        cover[COVER_STATE + ECH_SLOT_FREE] += ech_ring_has_slot(&W.g.rings[ring]);
        ech_status rc = ech_graph_submit(&W.g, s, &slot, &lack, &err);
        if (rc == ECH_OK) {
            t->slot = slot;
            t->generation = slot->generation;
            W.n_tasks++;
            cover[COVER_STATE + ECH_SLOT_BUILDING]++;
            cover[COVER_STATE + ECH_SLOT_PENDING] += slot->state == ECH_SLOT_PENDING;
            cover[COVER_ALLOC] += s->kind == ECH_SLOT_ALLOC;
            return true;
        }
        if (rc == ECH_EAGAIN) {
            cover[COVER_FULL + (int)lack * ECH_RINGS + (int)ring]++;
            if (step() || open_gate()) continue;
            rc = ech_graph_stuck(&W.g, lack, 1, ECH_STUCK_NS, &err);
            if (rc == ECH_OK) fail("a full ring, nothing to run, and no deadlock", i, -1);
        }
        if (rc < ECH_RING_INVALID_ARGS || rc > ECH_SCOPE_DEADLOCK) fail(err.text, i, -1);
        cover[COVER_CODE + (ECH_SCOPE_DEADLOCK - (int)rc)]++;
        return false;
    }
}

static bool submit_task(void)
{
    static ech_args args[MAX_MEMBERS];
    static ech_box boxes[MAX_MEMBERS * 3];
    ech_args *ptrs[MAX_MEMBERS];
    int32_t children[MAX_MEMBERS] = { 0, 1, 2 };
    int n_boxes = 0;
    task *const t = &W.tasks[W.n_tasks];
    *t = (task){ .kind = below(6) == 0 ? ECH_SLOT_GROUP : ECH_SLOT_SINGLE };
    ech_submission s = { .kind = t->kind, .args = ptrs, .boxes = boxes, .label = "t" };
    s.n_members = t->kind == ECH_SLOT_GROUP ? 1 + below(MAX_MEMBERS) : 1;
    s.member_child = t->kind == ECH_SLOT_GROUP ? children : NULL;
    for (uint32_t m = 0; m < s.n_members; m++) {
        ech_args_clear(&args[m]);
        ptrs[m] = &args[m];
        for (uint32_t k = below(4); k > 0; k--)
            add_tensor(t, &args[m], boxes, &n_boxes, &s.heap_bytes);
        ech_args_add_scalar(&args[m], 1);
    }
    for (int i = 0; i < W.n_tasks; i++) {
        task *const g = &W.tasks[i];
        if (g->kind != ECH_SLOT_GATE || g->slot->generation != g->generation || below(3) != 0)
            continue;
        if (args[0].n_gates == ECH_MAX_GATES || (g->terminal && g->slot->state == ECH_SLOT_FREE))
            continue;
        ech_args_add_gate(&args[0], (ech_gate){ 1, g->slot->ref, g->generation });
        t->waits_for |= UINT64_C(1) << i;
    }
    count_pairs(W.n_tasks);
    if (!submit(&s)) return false;
    note_placed(t, ptrs, s.n_members);
    return true;
}

static bool submit_other(void)
{
    task *const t = &W.tasks[W.n_tasks];
    const bool gate = below(2) == 0;
    *t = (task){ .kind = gate ? ECH_SLOT_GATE : ECH_SLOT_ALLOC };
    const ech_submission s = {
        .kind = t->kind, .child = -1, .heap_bytes = gate ? 0 : 64, .n_members = 0, .label = "o"
    };
    if (!submit(&s)) return false;
    if (gate) return true;
    ech_tensor m = { .dtype = ECH_DTYPE_U8, .ndim = 1 };
    ech_ring_buffer(&W.g, t->slot, t->slot->heap_lo, &m.buffer);
    t->terminal = true;
    t->owns[t->n_owns++] = memory_key(&m.buffer);
    W.memory[W.n_memory] = m;
    W.memory_depth[W.n_memory++] = W.g.depth;
    if (W.n_memory == MAX_TASKS) W.n_memory--;
    return true;
}

static void leave_scope(void)
{
    int kept = 0;
    for (int i = 0; i < W.n_memory; i++) {
        if (W.memory_depth[i] >= W.g.depth) continue;
        W.memory[kept] = W.memory[i];
        W.memory_depth[kept++] = W.memory_depth[i];
    }
    W.n_memory = kept;
    if (ech_graph_scope_end(&W.g, NULL) != ECH_OK) fail("a scope didn't end", -1, -1);
}

/* ---- One graph ------------------------------------------------------------------------------ */

static void open_graph(void)
{
    const ech_graph_hooks hooks = { on_ready, on_terminal, on_edge, NULL };
    const uint64_t nonce[2] = { 7, 7 };
    ech_ring_sizes sizes;
    ech_error err;
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        sizes.heap_bytes[r] = 64 * (1 + below(8));
        sizes.task_window[r] = 4u << below(3);
        sizes.dep_pool[r] = 4 + below(24);
    }
    if (ech_graph_init(&W.g, &sizes, &hooks, nonce, &err) != ECH_OK) fail(err.text, -1, -1);
    ech_graph_open(&W.g, 1, 0);
    W.n_tasks = W.n_memory = 0;
    W.clock = 0;
}

static void drain(void)
{
    while (step() || open_gate()) {
    }
    for (int i = 0; i < W.n_tasks; i++) {
        if (!W.tasks[i].terminal) fail("it never ended", i, -1);
    }
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        const ech_graph_ring *const ring = &W.g.rings[r];
        if (ring->head != ring->tail || ring->heap_head != 0 || ring->dep_head != ring->dep_tail)
            fail("a ring isn't empty at the end", (int)r, -1);
        cover[COVER_STATE + ECH_SLOT_CONSUMED] += ring->tail;
    }
    if (W.g.maps[0].used_entries != 0) fail("the tensor map isn't empty at the end", -1, -1);
}

static void one_graph(void)
{
    open_graph();
    const int n = 1 + (int)below(MAX_TASKS - 1);
    const uint32_t eagerness = below(4); /* how much runs while the graph is being made */
    bool ok = true;
    while (W.n_tasks < n && ok) {
        const uint32_t what = below(12);
        if (what == 0 && W.g.depth < 6) {
            ok = ech_graph_scope_begin(&W.g, NULL) == ECH_OK;
        } else if (what == 1 && W.g.depth > 0) {
            leave_scope();
        } else {
            ok = what == 2 ? submit_other() : submit_task();
        }
        for (uint32_t k = below(1 + eagerness); k > 0; k--)
            (void)step();
        if (below(8) == 0) (void)open_gate();
    }
    ech_graph_close(&W.g);
    drain();
    ech_graph_fini(&W.g);
}

/* The one code that only explicit lists can give. */
static void one_bad_list(void)
{
    ech_local *l = NULL;
    if (ech_local_open(NULL, NULL, &l, NULL) != ECH_OK) fail("no local graph", -1, -1);
    const int terminal = dup(2), null = open("/dev/null", O_WRONLY);
    (void)dup2(null, 2); /* the line for the operator isn't looked at here */
    if (ech_local_submit(l, NULL, NULL, NULL, NULL, 4, NULL, NULL) == ECH_RING_INVALID_ARGS)
        cover[COVER_CODE + 4]++;
    (void)dup2(terminal, 2);
    close(terminal);
    close(null);
    ech_local_close(&l);
}

static int report(const uint64_t n_graphs)
{
    int bad = 0;
    for (int i = 0; i < N_COVER && n_graphs >= 30000; i++) {
        if (cover[i] >= 100) continue;
        fprintf(stderr, "property: '%s' occurred only %llu times\n", cover_name(i),
                (unsigned long long)cover[i]);
        bad = 1;
    }
    return bad;
}

int main(const int argc, char **const argv)
{
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    W.seed =
        argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
    printf("property: %llu graphs, seed=%llu\n", (unsigned long long)n, (unsigned long long)W.seed);
    fflush(stdout);
    for (W.graph = 0; W.graph < n; W.graph++) {
        W.rng = W.seed * UINT64_C(1000003) + W.graph;
        one_graph();
        if (W.graph % 50 == 0) one_bad_list();
    }
    return report(n);
}
