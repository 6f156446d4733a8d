/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions, and the meaning of identities: see memory.h. buffer.c has the buffers. The tables are
 * written under the worker's lock and read by children at any time, so an entry is published by
 * its generation.
 */
#include "src/runtime/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/process.h"
#include "src/base/os/shm.h"

/* Maps and notes in one: nothing is mapped that close wouldn't find. */
static ech_status map_noted(ech_worker *const w, const char *const name, const uint64_t bytes,
                            const bool huge, void **const ret, ech_error *const err)
{
    ECH_TRY(ech_journal_reserve(&w->journal, err));
    ECH_TRY(ech_os_shm_map(name, bytes, huge, ret, err));
    ech_journal_note(&w->journal, *ret, bytes, name);
    return ECH_OK;
}

static void add_region(ech_worker *const w, const char *const name, void *const ptr,
                       const uint64_t bytes, const bool writable, const int32_t only_child)
{
    ech_region_entry *const e = &w->shared->regions[w->n_regions++];
    e->ptr = (uint64_t)(uintptr_t)ptr;
    e->bytes = bytes;
    e->writable = writable;
    e->huge = false;
    e->only_child = only_child;
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    w->region_bytes += bytes;
}

ech_status ech_memory_open(ech_worker *const w, const uint64_t reserve_bytes,
                           const uint64_t program_bytes, ech_error *const err)
{
    void *shared, *heap, *reserve, *programs;
    const uint64_t heap_total = ech_graph_heap_total(&w->sizes);
    const uint64_t heap_bytes = heap_total > 0 ? heap_total : 1; /* a mapping can't be empty */
    ECH_TRY(map_noted(w, "echelon-shared", sizeof(ech_shared), false, &shared, err));
    ECH_TRY(map_noted(w, "echelon-heap", heap_bytes, false, &heap, err));
    ECH_TRY(map_noted(w, "echelon-reserve", reserve_bytes, false, &reserve, err));
    ECH_TRY(map_noted(w, "echelon-programs", program_bytes, false, &programs, err));
    ech_shared *const s = shared;
    w->shared = s;
    s->magic = ECH_SHARED_MAGIC;
    s->version = ECH_SHARED_VERSION;
    ech_os_random(s->nonce, sizeof s->nonce);
    s->nonce[0] |= 1; /* an identity of zeros means "no buffer" */
    s->heap_ptr = (uint64_t)(uintptr_t)heap;
    s->heap_bytes = heap_bytes;
    s->programs_ptr = (uint64_t)(uintptr_t)programs;
    s->programs_bytes = program_bytes;
    add_region(w, "ring heap", heap, heap_bytes, true, -1);
    add_region(w, "reserve", reserve, reserve_bytes, true, -1);
    return ECH_OK;
}

ech_worker *ech_memory_maker(const ech_worker *const w, const uint64_t nonce[2])
{
    for (const ech_worker *x = w; x != NULL; x = x->parent) {
        if (x->shared != NULL && x->shared->nonce[0] == nonce[0] && x->shared->nonce[1] == nonce[1])
            return (ech_worker *)x;
    }
    return NULL;
}

/* Where the memory of an identity is. The tables were written by another process: all is bounded.
 */
typedef struct extent {
    uint64_t ptr, bytes;
    bool writable;
    int32_t only_child;
    const char *region;
} extent;

static ech_status ring_extent(const ech_shared *const s, const ech_buffer *const b,
                              const char *const what, extent *const ret, ech_error *const err)
{
    const uint64_t start = ECH_RING_START(b->id);
    if (start >= s->heap_bytes)
        return ech_fail(err, ECH_ESTALE, "%s: its ring memory starts at %llu, the heap has %llu",
                        what, (unsigned long long)start, (unsigned long long)s->heap_bytes);
    *ret = (extent){ s->heap_ptr + start, s->heap_bytes - start, true, -1, "ring heap" };
    return ECH_OK;
}

static ech_status table_extent(const ech_shared *const s, const ech_buffer *const b,
                               const char *const what, extent *const ret, ech_error *const err)
{
    /* Partner: the release store that publishes or ends the entry. */
    if (b->id >= ECH_MAX_BUFFERS || b->generation == 0 ||
        ech_load_acquire(&s->buffers[b->id].generation) != b->generation)
        return ech_fail(err, ECH_ESTALE,
                        "%s: buffer %llu has another generation than %llu; it was released or the "
                        "handle is forged",
                        what, (unsigned long long)b->id, (unsigned long long)b->generation);
    const ech_buffer_entry *const e = &s->buffers[b->id];
    if (e->region >= ECH_MAX_REGIONS || s->regions[e->region].bytes == 0)
        return ech_fail(err, ECH_EFORMAT, "%s: region %u of its buffer isn't there", what,
                        e->region);
    const ech_region_entry *const r = &s->regions[e->region];
    if (e->offset > r->bytes || e->bytes > r->bytes - e->offset)
        return ech_fail(err, ECH_EFORMAT,
                        "%s: its buffer's nbytes %llu at offset %llu exceed region '%s' of %llu",
                        what, (unsigned long long)e->bytes, (unsigned long long)e->offset, r->name,
                        (unsigned long long)r->bytes);
    *ret = (extent){ r->ptr + e->offset, e->bytes, r->writable && e->access == ECH_ACCESS_RW,
                     r->only_child, r->name };
    return ECH_OK;
}

static ech_status find_extent(const ech_worker *const w, const ech_tensor *const t,
                              const char *const what, extent *const ret, ech_error *const err)
{
    const ech_worker *const maker = ech_memory_maker(w, t->buffer.nonce);
    if (maker == NULL)
        return ech_fail(err, ECH_EACCESS,
                        "%s: its buffer belongs to no worker here; memory that isn't shared can't "
                        "be an argument",
                        what);
    if (t->buffer.id & ECH_RING_BUFFER)
        return ring_extent(maker->shared, &t->buffer, what, ret, err);
    return table_extent(maker->shared, &t->buffer, what, ret, err);
}

static bool tag_writes(const uint8_t tag)
{
    return tag == ECH_OUTPUT || tag == ECH_INOUT || tag == ECH_OUTPUT_EXISTING;
}

static ech_status check_access(const extent *const x, const ech_tensor *const t,
                               const char *const what, const int32_t child, ech_error *const err)
{
    static const char *const tags[] = { "INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING", "NO_DEP" };
    if (t->tag >= ECH_TAG_COUNT)
        return ech_fail(err, ECH_EINVAL, "%s: tag %u is not one", what, t->tag);
    if (tag_writes(t->tag) && !x->writable)
        return ech_fail(err, ECH_EACCESS, "%s: tagged %s, but its buffer in '%s' is read-only",
                        what, tags[t->tag], x->region);
    if (x->only_child >= 0 && x->only_child != child)
        return ech_fail(err, ECH_EACCESS,
                        "%s: '%s' is local to chip %d and can't be used by another child", what,
                        x->region, x->only_child);
    return ECH_OK;
}

/* Own ring memory is bounded by the slot that holds it, which also tells whether it is current. */
static ech_status bound_by_slot(ech_worker *const w, const ech_tensor *const t,
                                const char *const what, extent *const x, ech_error *const err)
{
    if (!(t->buffer.id & ECH_RING_BUFFER) || t->buffer.nonce[0] != w->shared->nonce[0])
        return ECH_OK;
    const ech_slot *const s = ech_graph_memory_owner(&w->graph, &t->buffer);
    if (s == NULL || !s->scope_held) /* nothing but the scope would keep it until the commit */
        return ech_fail(err, ECH_ESTALE, "%s: its ring memory was given back; its scope has ended",
                        what);
    const ech_graph_ring *const r = &w->graph.rings[s->ring];
    const uint64_t lo = r->region_offset + s->heap_lo % r->heap_bytes;
    const uint64_t hi = lo + (s->heap_hi - s->heap_lo), start = ECH_RING_START(t->buffer.id);
    if (start < lo || start >= hi)
        return ech_fail(err, ECH_ESTALE, "%s: its ring memory is not its task's", what);
    x->bytes = hi - start;
    return ECH_OK;
}

ech_status ech_memory_check(ech_worker *const w, const ech_tensor *const t, const char *const what,
                            const int32_t child, const uint64_t run_id, ech_box *const ret_box,
                            ech_error *const err)
{
    extent x = { 0 };
    ECH_TRY(find_extent(w, t, what, &x, err));
    ECH_TRY(bound_by_slot(w, t, what, &x, err));
    ECH_TRY(check_access(&x, t, what, child, err));
    ECH_TRY(ech_box_from(t, x.bytes, what, ret_box, err));
    if (!(t->buffer.id & ECH_RING_BUFFER) && t->buffer.nonce[0] == w->shared->nonce[0])
        w->buffer_run[t->buffer.id] = run_id;
    return ECH_OK;
}

ech_status ech_memory_resolve(const ech_worker *const w, const ech_tensor *const t,
                              const char *const what, const uint32_t child,
                              ech_task_tensor *const ret, ech_error *const err)
{
    extent x = { 0 };
    ech_box box;
    ECH_TRY(find_extent(w, t, what, &x, err));
    const bool own = t->buffer.nonce[0] == w->shared->nonce[0];
    ECH_TRY(check_access(&x, t, what, own ? (int32_t)child : -1, err));
    ECH_TRY(ech_box_from(t, x.bytes, what, &box, err));
    ret->ptr = (void *)(uintptr_t)(x.ptr + t->offset);
    ret->bytes = box.hi - box.lo;
    memcpy(ret->shape, t->shape, sizeof ret->shape);
    memcpy(ret->strides, t->strides, sizeof ret->strides);
    ret->dtype = t->dtype;
    ret->ndim = t->ndim;
    ret->tag = t->tag;
    ret->writable = x.writable && (tag_writes(t->tag) || t->tag == ECH_NO_DEP);
    return ECH_OK;
}

void ech_memory_protect(const ech_worker *const w, const uint32_t child)
{
    for (uint32_t i = 0; i < w->n_regions; i++) {
        const ech_region_entry *const e = &w->shared->regions[i];
        if (e->only_child >= 0 && (uint32_t)e->only_child != child)
            (void)mprotect((void *)(uintptr_t)e->ptr, e->bytes, PROT_READ);
    }
}

void ech_memory_populate(const ech_worker *const w, const int64_t deadline_ns)
{
    for (uint32_t i = 0; i < w->n_regions; i++) {
        const ech_region_entry *const e = &w->shared->regions[i];
        if (e->huge) ech_os_populate_resident((void *)(uintptr_t)e->ptr, e->bytes, deadline_ns);
    }
}

/* ---- Public calls ------------------------------------------------------------------------------
 */

static ech_status may_map(const ech_worker *const w, const char *const name, ech_error *const err)
{
    if (w->state != ECH_WORKER_NEW)
        return ech_fail(err, ECH_ESTATE,
                        "mapping region '%s': the worker is %s; regions are made before init", name,
                        ech_worker_state_name((ech_worker_state)w->state));
    if (w->n_regions >= ECH_MAX_REGIONS)
        return ech_fail(err, ECH_ELIMIT, "mapping region '%s': there are %d regions, the limit",
                        name, ECH_MAX_REGIONS);
    return ECH_OK;
}

static void fill_region(const ech_worker *const w, ech_region *const ret)
{
    const ech_region_entry *const e = &w->shared->regions[w->n_regions - 1];
    ret->index = w->n_regions - 1;
    ret->bytes = e->bytes;
    ret->ptr = (void *)(uintptr_t)e->ptr;
}

static ech_status region_create(ech_worker *const w, const char *const name, const uint64_t bytes,
                                const bool huge, const int32_t only_child, ech_region *const ret,
                                ech_error *const err)
{
    void *ptr;
    pthread_mutex_lock(&w->lock);
    ech_status rc = may_map(w, name, err);
    if (rc == ECH_OK) rc = map_noted(w, name, bytes, huge, &ptr, err);
    if (rc == ECH_OK) {
        add_region(w, name, ptr, bytes, true, only_child);
        w->shared->regions[w->n_regions - 1].huge = huge;
        fill_region(w, ret);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

ech_status ech_worker_region_create(ech_worker *const w, const char *const name,
                                    const uint64_t bytes, const uint32_t flags,
                                    ech_region *const ret_region, ech_error *const err)
{
    return region_create(w, name, bytes, flags & ECH_REGION_HUGE, -1, ret_region, err);
}

ech_status ech_memory_region_local(ech_worker *const w, const char *const name,
                                   const uint64_t bytes, const uint32_t child,
                                   ech_region *const ret_region, ech_error *const err)
{
    return region_create(w, name, bytes, false, (int32_t)child, ret_region, err);
}

ech_status ech_worker_region_map_file(ech_worker *const w, const char *const name,
                                      const char *const path, ech_region *const ret_region,
                                      ech_error *const err)
{
    void *ptr;
    uint64_t bytes;
    pthread_mutex_lock(&w->lock);
    ech_status rc = may_map(w, name, err);
    if (rc == ECH_OK) rc = ech_journal_reserve(&w->journal, err);
    if (rc == ECH_OK) rc = ech_os_file_map(path, &ptr, &bytes, err);
    if (rc == ECH_OK) {
        ech_journal_note(&w->journal, ptr, bytes, name);
        add_region(w, name, ptr, bytes, false, -1);
        fill_region(w, ret_region);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

uint64_t ech_worker_region_collapse(ech_worker *const w, const ech_region *const region)
{
    if (region->index >= w->n_regions) return 0;
    return ech_os_collapse(region->ptr, region->bytes);
}
