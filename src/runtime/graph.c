/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a graph: see graph.h. Submission looks first and takes then: once every resource is
 * known to be there, the commit that follows can't fail, so a slot is never half built.
 *
 * ring.c holds the rings, finish.c what happens when a task ends. Guarded by the owner's lock.
 */
#include "src/runtime/graph.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/runtime/ring.h"

const char *ech_slot_state_name(const uint32_t state)
{
    static const char *const names[ECH_SLOT_STATE_COUNT] = {
        "FREE", "BUILDING", "PENDING", "READY", "RUNNING", "COMPLETED", "FAILED", "CONSUMED",
    };
    return state < ECH_SLOT_STATE_COUNT ? names[state] : "unknown";
}

uint32_t ech_graph_ring_of(const uint32_t depth)
{
    return depth < ECH_RINGS ? depth : ECH_RINGS - 1;
}

ech_status ech_graph_init(ech_graph *const g, const ech_ring_sizes *const sizes,
                          const ech_graph_hooks *const hooks, const uint64_t nonce[2],
                          ech_error *const err)
{
    memset(g, 0, sizeof *g);
    g->hooks = *hooks;
    g->nonce[0] = nonce[0];
    g->nonce[1] = nonce[1];
    uint64_t offset = 0;
    ech_status rc = ECH_OK;
    for (uint32_t i = 0; i < ECH_GRAPH_RUNS && rc == ECH_OK; i++)
        rc = ech_tensormap_init(&g->maps[i], err);
    for (uint32_t r = 0; r < ECH_RINGS && rc == ECH_OK; r++) {
        rc = ech_ring_init(&g->rings[r], r, sizes, offset, err);
        offset += sizes->heap_bytes[r];
        g->found_cap += sizes->task_window[r];
    }
    if (rc == ECH_OK) {
        g->found = ech_mem_alloc(g->found_cap, sizeof *g->found);
        if (g->found == NULL) rc = ech_fail(err, ECH_ENOMEM, "making a graph: out of memory");
    }
    if (rc != ECH_OK) ech_graph_fini(g);
    return rc;
}

void ech_graph_fini(ech_graph *const g)
{
    for (uint32_t r = 0; r < ECH_RINGS; r++)
        ech_ring_fini(&g->rings[r]);
    for (uint32_t i = 0; i < ECH_GRAPH_RUNS; i++)
        ech_tensormap_fini(&g->maps[i]);
    free(g->found);
    g->found = NULL;
}

uint64_t ech_graph_heap_total(const ech_ring_sizes *const sizes)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < ECH_RINGS; r++)
        sum += sizes->heap_bytes[r];
    return sum;
}

ech_slot *ech_graph_slot(const ech_graph *const g, const uint32_t ref)
{
    return &g->rings[ref >> 28].slots[ref & 0x0fffffff];
}

ech_slot *ech_graph_memory_owner(const ech_graph *const g, const ech_buffer *const buffer)
{
    const uint32_t ring = ECH_RING_OF(buffer->id);
    if (!(buffer->id & ECH_RING_BUFFER) || ring >= ECH_RINGS) return NULL;
    const ech_graph_ring *const r = &g->rings[ring];
    const uint32_t idx = (uint32_t)buffer->generation;
    if (idx >= r->window) return NULL;
    ech_slot *const s = &r->slots[idx];
    if (s->generation != buffer->generation >> 32 || s->state == ECH_SLOT_FREE) return NULL;
    return s->heap_hi > s->heap_lo ? s : NULL;
}

void ech_graph_open(ech_graph *const g, const uint64_t run_id, const uint32_t run)
{
    g->open = true;
    g->depth = 0;
    g->scope_head[0] = ECH_NO_SLOT;
    g->run_id = run_id;
    g->run = run;
    g->serial = 0;
}

ech_status ech_graph_scope_begin(ech_graph *const g, ech_error *const err)
{
    if (g->depth >= ECH_MAX_SCOPES)
        return ech_fail(err, ECH_ELIMIT, "beginning a scope: %d are nested already, the limit",
                        ECH_MAX_SCOPES);
    g->scope_head[++g->depth] = ECH_NO_SLOT;
    return ECH_OK;
}

static void end_scope(ech_graph *const g)
{
    uint32_t ref = g->scope_head[g->depth];
    while (ref != ECH_NO_SLOT) {
        ech_slot *const s = ech_graph_slot(g, ref);
        ref = s->scope_next;
        s->scope_held = false;
        ech_graph_consume(g, s);
    }
    g->scope_head[g->depth] = ECH_NO_SLOT;
}

ech_status ech_graph_scope_end(ech_graph *const g, ech_error *const err)
{
    if (g->depth == 0)
        return ech_fail(err, ECH_ESTATE, "ending a scope: none was begun in this callback");
    end_scope(g);
    g->depth--;
    return ECH_OK;
}

void ech_graph_close(ech_graph *const g)
{
    while (g->depth > 0) {
        end_scope(g);
        g->depth--;
    }
    end_scope(g);
    g->open = false;
}

/* ---- Looking: producers and room --------------------------------------------------------------
 */

static void note_producer(void *const ctx, const uint32_t ref)
{
    ech_graph *const g = ctx;
    ech_slot *const p = ech_graph_slot(g, ref);
    if (p->mark == g->mark) return;
    p->mark = g->mark;
    g->found[g->n_found++] = ref;
}

static bool tag_reads(const uint8_t tag)
{
    return tag == ECH_INPUT || tag == ECH_INOUT;
}

static bool tag_writes(const uint8_t tag)
{
    return tag == ECH_OUTPUT || tag == ECH_INOUT || tag == ECH_OUTPUT_EXISTING;
}

static bool is_unplaced(const ech_tensor *const t)
{
    return t->buffer.id == 0 && t->buffer.generation == 0 && t->buffer.nonce[0] == 0;
}

static bool is_alive(const ech_slot *const s)
{
    return s->state != ECH_SLOT_FREE && s->state != ECH_SLOT_CONSUMED;
}

/* Everybody this task waits for or whose memory it uses, each once, into g->found. */
static void find_producers(ech_graph *const g, const ech_submission *const s)
{
    const ech_box *box = s->boxes;
    g->mark++;
    g->n_found = 0;
    for (uint32_t m = 0; m < s->n_members && s->args != NULL; m++) {
        const ech_args *const a = s->args[m];
        for (uint32_t i = 0; i < a->n_tensors; i++, box++) {
            const ech_tensor *const t = &a->tensors[i];
            if (is_unplaced(t)) continue;
            const ech_slot *const owner = ech_graph_memory_owner(g, &t->buffer);
            if (owner != NULL && t->buffer.nonce[0] == g->nonce[0]) note_producer(g, owner->ref);
            if (t->tag == ECH_NO_DEP) continue;
            ech_tensormap_find(&g->maps[g->run], &t->buffer, box, tag_reads(t->tag),
                               tag_writes(t->tag), note_producer, g);
        }
        for (uint32_t i = 0; i < a->n_gates; i++) {
            const ech_gate *const gate = &a->gates[i];
            const ech_slot *const p = ech_graph_slot(g, gate->slot);
            /* One that was opened and given back holds nobody up. */
            if (p->generation == gate->generation && is_alive(p)) note_producer(g, p->ref);
        }
    }
    for (uint32_t i = 0; i < s->n_after; i++) {
        if (is_alive(ech_graph_slot(g, s->after[i]))) note_producer(g, s->after[i]);
    }
}

static uint32_t count_tensors(const ech_submission *const s)
{
    uint32_t n = 0;
    for (uint32_t m = 0; m < s->n_members && s->args != NULL; m++)
        n += s->args[m]->n_tensors;
    return n;
}

static bool fits_inline(const ech_submission *const s)
{
    return s->kind != ECH_SLOT_GROUP &&
           (s->args == NULL || (s->args[0]->n_tensors <= ECH_INLINE_TENSORS &&
                                s->args[0]->n_scalars <= ECH_INLINE_SCALARS));
}

/* One allocation for what doesn't fit into the slot: members, then tensors, then scalars. */
static ech_status alloc_extra(const ech_submission *const s, void **const ret, ech_error *const err)
{
    *ret = NULL;
    if (fits_inline(s)) return ECH_OK;
    size_t n_scalars = 0;
    for (uint32_t m = 0; m < s->n_members; m++)
        n_scalars += s->args[m]->n_scalars;
    const size_t bytes = s->n_members * (sizeof(ech_slot_args) + sizeof(uint64_t)) +
                         count_tensors(s) * sizeof(ech_tensor) + n_scalars * sizeof(uint64_t);
    *ret = ech_mem_alloc(1, bytes);
    if (*ret == NULL)
        return ech_fail(err, ECH_ENOMEM, "submitting a task: no memory for its arguments");
    return ECH_OK;
}

/* ---- Taking ------------------------------------------------------------------------------------
 */

static void copy_args(ech_slot_args *const to, const ech_args *const a)
{
    to->n_tensors = a->n_tensors;
    to->n_scalars = a->n_scalars;
    memcpy(to->tensors, a->tensors, a->n_tensors * sizeof *to->tensors);
    memcpy(to->scalars, a->scalars, a->n_scalars * sizeof *to->scalars);
}

static void store_args(ech_slot *const slot, const ech_submission *const s, void *const extra)
{
    slot->extra = extra;
    slot->n_members = s->n_members;
    slot->args =
        (ech_slot_args){ .tensors = slot->inline_tensors, .scalars = slot->inline_scalars };
    if (s->args == NULL) return;
    if (extra == NULL) {
        copy_args(&slot->args, s->args[0]);
        return;
    }
    slot->member_args = extra;
    slot->member_child = (int32_t *)(slot->member_args + s->n_members);
    ech_tensor *t = (ech_tensor *)((uint64_t *)slot->member_child + s->n_members);
    uint64_t *sc = (uint64_t *)(t + count_tensors(s));
    for (uint32_t m = 0; m < s->n_members; m++) {
        ech_slot_args *const to = &slot->member_args[m];
        *to = (ech_slot_args){ .tensors = t, .scalars = sc };
        copy_args(to, s->args[m]);
        t += to->n_tensors;
        sc += to->n_scalars;
        slot->member_child[m] = s->member_child != NULL ? s->member_child[m] : s->child;
    }
    slot->args = slot->member_args[0];
}

/* Gives the unplaced outputs their pieces of the slot's ring memory, in the caller's args too. */
static void place_outputs(ech_graph *const g, ech_slot *const slot, const ech_submission *const s)
{
    uint64_t at = slot->heap_lo;
    for (uint32_t m = 0; m < s->n_members; m++) {
        for (uint32_t i = 0; i < s->args[m]->n_tensors; i++) {
            ech_tensor *const t = &s->args[m]->tensors[i];
            if (!is_unplaced(t)) continue;
            uint64_t bytes = ech_dtype_bytes((ech_dtype)t->dtype);
            for (uint32_t k = 0; k < t->ndim; k++)
                bytes *= t->shape[k];
            ech_ring_buffer(g, slot, at, &t->buffer);
            t->offset = 0;
            at += ech_ring_round(bytes);
        }
    }
}

static void insert_accesses(ech_graph *const g, ech_slot *const slot, const ech_submission *const s)
{
    const ech_box *box = s->boxes;
    for (uint32_t m = 0; m < s->n_members && s->args != NULL; m++) {
        for (uint32_t i = 0; i < s->args[m]->n_tensors; i++, box++) {
            const ech_tensor *const t = &s->args[m]->tensors[i];
            if (t->tag == ECH_NO_DEP) continue;
            ech_tensormap_insert(&g->maps[g->run], &t->buffer, box, tag_writes(t->tag), slot->ref,
                                 &slot->map_head);
        }
    }
}

static bool is_terminal(const ech_slot *const s)
{
    return s->state == ECH_SLOT_COMPLETED || s->state == ECH_SLOT_FAILED;
}

/* One entry per producer: all are held until this task ends, the unfinished ones are waited for. */
static void link_producers(ech_graph *const g, ech_slot *const slot)
{
    ech_graph_ring *const r = &g->rings[slot->ring];
    slot->dep_lo = r->dep_head;
    for (uint32_t i = 0; i < g->n_found; i++) {
        ech_slot *const p = ech_graph_slot(g, g->found[i]);
        const uint32_t at = (uint32_t)(r->dep_head++ % r->dep_cap);
        ech_dep *const d = &r->deps[at];
        *d = (ech_dep){ .producer = p->ref, .consumer = slot->ref, .next = ECH_NO_SLOT };
        p->consumers++;
        if (p->state == ECH_SLOT_FAILED) {
            slot->poisoned = 1;
            slot->cause = p->cause;
        } else if (!is_terminal(p)) {
            const uint32_t ref = ECH_SLOT_REF(slot->ring, at);
            if (p->first_out == ECH_NO_SLOT) {
                p->first_out = ref;
            } else {
                g->rings[p->last_out >> 28].deps[p->last_out & 0x0fffffff].next = ref;
            }
            p->last_out = ref;
            slot->pending++;
        }
        g->edges++;
        if (g->hooks.edge != NULL) g->hooks.edge(g->hooks.ctx, p, slot);
    }
    slot->dep_hi = r->dep_head;
    ech_ring_count(r, ECH_RES_DEPS, g->n_found, r->dep_head - r->dep_tail);
}

static void enter_scope(ech_graph *const g, ech_slot *const slot)
{
    slot->scope_held = true;
    slot->depth = (uint8_t)g->depth;
    slot->scope_next = g->scope_head[g->depth];
    g->scope_head[g->depth] = slot->ref;
}

static void move(ech_slot *const s, uint32_t from, const uint32_t to)
{
    const bool moved = ech_cas(&s->state, &from, to);
    ECH_ASSERT(moved);
    (void)moved;
}

/* The last step: the guard of BUILDING is dropped, and the task becomes READY exactly once. */
static void publish(ech_graph *const g, ech_slot *const slot)
{
    move(slot, ECH_SLOT_BUILDING, ECH_SLOT_PENDING);
    slot->pending--;
    if (slot->kind == ECH_SLOT_ALLOC) {
        move(slot, ECH_SLOT_PENDING, ECH_SLOT_COMPLETED);
        slot->settled = slot->drained = true;
    } else if (slot->poisoned) {
        ech_graph_finish(g, slot, true, slot->cause);
    } else if (slot->pending == 0 && slot->kind != ECH_SLOT_GATE) {
        ech_graph_make_ready(g, slot);
    }
}

static ech_slot *commit(ech_graph *const g, const ech_submission *const s, void *const extra)
{
    ech_graph_ring *const r = &g->rings[ech_graph_ring_of(g->depth)];
    ech_slot *const slot = ech_ring_take_slot(r);
    slot->kind = s->kind;
    slot->callable = s->callable;
    slot->child = s->child;
    slot->run_id = g->run_id;
    slot->run = g->run;
    slot->serial = g->serial++;
    slot->pending = 1;
    slot->owner = s->owner;
    slot->members_left = s->n_members;
    memset(slot->label, 0, sizeof slot->label);
    if (s->label != NULL) memcpy(slot->label, s->label, strnlen(s->label, ECH_LABEL_BYTES - 1));
    slot->rings_heap = s->rings != NULL ? s->rings->heap_bytes[0] : 0;
    slot->rings_window = s->rings != NULL ? s->rings->task_window[0] : 0;
    slot->rings_pool = s->rings != NULL ? s->rings->dep_pool[0] : 0;
    if (s->heap_bytes > 0) ech_ring_take_heap(r, slot, s->heap_bytes);
    if (s->args != NULL) place_outputs(g, slot, s);
    store_args(slot, s, extra);
    link_producers(g, slot);
    /* One that fails at once never runs: it must not hide the accesses that it would have covered.
     */
    if (!slot->poisoned) insert_accesses(g, slot, s);
    enter_scope(g, slot);
    publish(g, slot);
    return slot;
}

ech_status ech_graph_submit(ech_graph *const g, const ech_submission *const s,
                            ech_slot **const ret_slot, ech_resource *const ret_lack,
                            ech_error *const err)
{
    const uint32_t ring = ech_graph_ring_of(g->depth);
    ech_graph_ring *const r = &g->rings[ring];
    ECH_TRY(ech_ring_possible(r, ring, ECH_RES_HEAP, s->heap_bytes, err));
    if (!ech_ring_has_slot(r)) {
        *ret_lack = ECH_RES_WINDOW;
        return ECH_EAGAIN;
    }
    if (!ech_ring_has_heap(r, s->heap_bytes)) {
        *ret_lack = ECH_RES_HEAP;
        return ECH_EAGAIN;
    }
    find_producers(g, s);
    ECH_TRY(ech_ring_possible(r, ring, ECH_RES_DEPS, g->n_found, err));
    if (r->dep_cap - (r->dep_head - r->dep_tail) < g->n_found) {
        *ret_lack = ECH_RES_DEPS;
        return ECH_EAGAIN;
    }
    ECH_TRY(ech_tensormap_reserve(&g->maps[g->run], count_tensors(s), err));
    void *extra;
    ECH_TRY(alloc_extra(s, &extra, err));
    *ret_slot = commit(g, s, extra);
    return ECH_OK;
}
