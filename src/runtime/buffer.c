/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: slices of regions with an identity and an access. A buffer can end only when no run in
 * flight names it; runs finish in order, so remembering the last run's number is enough.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/runtime/memory.h"
#include "src/runtime/ring.h"

static bool is_current(const ech_worker *const w, const ech_buffer *const b)
{
    return w->shared != NULL && b->nonce[0] == w->shared->nonce[0] &&
           b->nonce[1] == w->shared->nonce[1] && b->id < ECH_MAX_BUFFERS && b->generation != 0 &&
           ech_load_acquire(&w->shared->buffers[b->id].generation) == b->generation;
}

/* Lock held. The region and the bounds were checked. */
static ech_status make_buffer(ech_worker *const w, const uint32_t region, const uint64_t offset,
                              const uint64_t bytes, const ech_access access, ech_buffer *const ret,
                              ech_error *const err)
{
    uint32_t id = w->free_buffer_hint;
    for (uint32_t i = 0; i < ECH_MAX_BUFFERS; i++, id++) {
        id %= ECH_MAX_BUFFERS;
        if (w->shared->buffers[id].generation != 0) continue;
        ech_buffer_entry *const e = &w->shared->buffers[id];
        e->offset = offset;
        e->bytes = bytes;
        e->region = region;
        e->access = access;
        w->buffer_run[id] = 0;
        w->buffer_in_reserve[id] = region == ECH_REGION_RESERVE;
        *ret = (ech_buffer){ { w->shared->nonce[0], w->shared->nonce[1] },
                             id,
                             ++w->buffer_generation };
        ech_store_release(&e->generation, ret->generation);
        w->free_buffer_hint = id + 1;
        w->n_live_buffers++;
        return ECH_OK;
    }
    return ech_fail(err, ECH_ELIMIT, "making a buffer: %d are alive, the limit", ECH_MAX_BUFFERS);
}

static ech_status check_open(const ech_worker *const w, const char *const what,
                             ech_error *const err)
{
    if (w->shared != NULL && w->state != ECH_WORKER_CLOSED) return ECH_OK;
    return ech_fail(err, ECH_ESTATE, "%s: the worker is closed", what);
}

static ech_status check_slice(const ech_worker *const w, const ech_region *const region,
                              const uint64_t offset, const uint64_t bytes, const ech_access access,
                              ech_error *const err)
{
    ECH_TRY(check_open(w, "making a buffer", err));
    if (region->index >= w->n_regions)
        return ech_fail(err, ECH_EINVAL, "making a buffer: region %u isn't there", region->index);
    const ech_region_entry *const e = &w->shared->regions[region->index];
    if (bytes == 0 || offset > e->bytes || bytes > e->bytes - offset)
        return ech_fail(
            err, ECH_EINVAL,
            "making a buffer: bytes %llu at offset %llu are not inside region '%s' of %llu",
            (unsigned long long)bytes, (unsigned long long)offset, e->name,
            (unsigned long long)e->bytes);
    if (access != ECH_ACCESS_READ && access != ECH_ACCESS_RW)
        return ech_fail(err, ECH_EINVAL, "making a buffer: access %d is not one", (int)access);
    if (access == ECH_ACCESS_RW && !e->writable)
        return ech_fail(err, ECH_EACCESS,
                        "making a writable buffer: region '%s' is a file mapped read-only",
                        e->name);
    return ECH_OK;
}

ech_status ech_worker_buffer_at(ech_worker *const w, const ech_region *const region,
                                const uint64_t offset, const uint64_t bytes,
                                const ech_access access, ech_buffer *const ret_buffer,
                                ech_error *const err)
{
    pthread_mutex_lock(&w->lock);
    ech_status rc = check_slice(w, region, offset, bytes, access, err);
    if (rc == ECH_OK) rc = make_buffer(w, region->index, offset, bytes, access, ret_buffer, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* The lowest place of the reserve where size bytes are free: buffers there are few. */
static bool find_reserve(const ech_worker *const w, const uint64_t size, uint64_t *const ret)
{
    const uint64_t total = w->shared->regions[ECH_REGION_RESERVE].bytes;
    uint64_t at = 0;
    bool moved = true;
    while (moved && size <= total && at <= total - size) {
        moved = false;
        for (uint32_t i = 0; i < ECH_MAX_BUFFERS; i++) {
            const ech_buffer_entry *const e = &w->shared->buffers[i];
            if (e->generation == 0 || !w->buffer_in_reserve[i]) continue;
            const uint64_t end = e->offset + ech_ring_round(e->bytes);
            if (e->offset >= at + size || end <= at) continue;
            at = end;
            moved = true;
        }
    }
    *ret = at;
    return size <= total && at <= total - size;
}

static ech_status reserve_buffer(ech_worker *const w, const char *const name, const uint64_t bytes,
                                 const ech_access access, ech_buffer *const ret,
                                 ech_error *const err)
{
    const uint64_t size = ech_ring_round(bytes);
    uint64_t at;
    if (bytes == 0) return ech_fail(err, ECH_EINVAL, "making buffer '%s': 0 bytes", name);
    if (size < bytes || !find_reserve(w, size, &at))
        return ech_fail(
            err, ECH_ELIMIT,
            "making buffer '%s' of %llu bytes after init: the reserve has %llu, of which "
            "%llu are used; set options.reserve_bytes, or make it before init",
            name, (unsigned long long)bytes,
            (unsigned long long)w->shared->regions[ECH_REGION_RESERVE].bytes,
            (unsigned long long)w->reserve_used);
    ECH_TRY(make_buffer(w, ECH_REGION_RESERVE, at, bytes, access, ret, err));
    w->reserve_used += size;
    memset((char *)(uintptr_t)w->shared->regions[ECH_REGION_RESERVE].ptr + at, 0, bytes);
    return ECH_OK;
}

ech_status ech_worker_buffer_create(ech_worker *const w, const char *const name,
                                    const uint64_t bytes, const ech_access access,
                                    ech_buffer *const ret_buffer, ech_error *const err)
{
    ech_region region;
    if (ech_worker_state_get(w) == ECH_WORKER_NEW && bytes > 0) {
        ECH_TRY(ech_worker_region_create(w, name, bytes, 0, &region, err));
        return ech_worker_buffer_at(w, &region, 0, bytes, access, ret_buffer, err);
    }
    pthread_mutex_lock(&w->lock);
    ech_status rc = check_open(w, "making a buffer", err);
    if (rc == ECH_OK) rc = reserve_buffer(w, name, bytes, access, ret_buffer, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static ech_status release_buffer(ech_worker *const w, const ech_buffer *const b,
                                 ech_error *const err)
{
    ECH_TRY(check_open(w, "releasing a buffer", err));
    if (b->nonce[0] != w->shared->nonce[0] || b->nonce[1] != w->shared->nonce[1] ||
        b->id >= ECH_MAX_BUFFERS || b->generation == 0 || b->generation > w->buffer_generation)
        return ech_fail(err, ECH_ESTALE,
                        "releasing a buffer: the identity was never one of this worker's");
    ech_buffer_entry *const e = &w->shared->buffers[b->id];
    if (e->generation != b->generation) return ECH_OK; /* released before */
    if (w->buffer_run[b->id] > w->runs.done_id)
        return ech_fail(err, ECH_EBUSY, "releasing buffer %llu: run %llu in flight names it",
                        (unsigned long long)b->id, (unsigned long long)w->buffer_run[b->id]);
    ech_store_release(&e->generation, (uint64_t)0);
    if (w->buffer_in_reserve[b->id]) w->reserve_used -= ech_ring_round(e->bytes);
    w->free_buffer_hint = (uint32_t)b->id;
    w->n_live_buffers--;
    return ECH_OK;
}

ech_status ech_worker_buffer_release(ech_worker *const w, const ech_buffer buffer,
                                     ech_error *const err)
{
    pthread_mutex_lock(&w->lock);
    const ech_status rc = release_buffer(w, &buffer, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void *ech_worker_buffer_ptr(const ech_worker *const w, const ech_buffer buffer)
{
    if (!is_current(w, &buffer)) return NULL;
    const ech_buffer_entry *const e = &w->shared->buffers[buffer.id];
    return (char *)(uintptr_t)w->shared->regions[e->region].ptr + e->offset;
}

uint64_t ech_worker_buffer_bytes(const ech_worker *const w, const ech_buffer buffer)
{
    return is_current(w, &buffer) ? w->shared->buffers[buffer.id].bytes : 0;
}

static uint64_t dense_bytes(const ech_tensor *const t)
{
    uint64_t n = ech_dtype_bytes((ech_dtype)t->dtype);
    for (uint32_t i = 0; i < t->ndim && i < ECH_MAX_DIMS; i++) {
        if (__builtin_mul_overflow(n, t->shape[i], &n)) return UINT64_MAX;
    }
    return n;
}

ech_status ech_worker_tensor_at(const ech_worker *const w, const char *const what,
                                const void *const ptr, const ech_dtype dtype, const uint32_t ndim,
                                const uint64_t *const shape, ech_tensor *const ret_tensor,
                                ech_error *const err)
{
    ECH_TRY(check_open(w, "naming memory", err));
    ech_buffer b = { { w->shared->nonce[0], w->shared->nonce[1] }, 0, 0 };
    const ech_tensor t = ech_tensor_view(b, 0, dtype, ndim, shape);
    const uint64_t bytes = dense_bytes(&t);
    for (uint32_t i = 0; i < ECH_MAX_BUFFERS; i++) {
        const ech_buffer_entry *const e = &w->shared->buffers[i];
        const uint64_t generation = ech_load_acquire(&e->generation);
        if (generation == 0) continue;
        const uint64_t start = w->shared->regions[e->region].ptr + e->offset;
        const uint64_t at = (uint64_t)(uintptr_t)ptr;
        if (at < start || at - start > e->bytes || bytes > e->bytes - (at - start)) continue;
        b.id = i;
        b.generation = generation;
        *ret_tensor = ech_tensor_view(b, at - start, dtype, ndim, shape);
        return ECH_OK;
    }
    return ech_fail(err, ECH_EACCESS,
                    "naming '%s': its memory is private, not inside one buffer of the worker; put "
                    "it into a buffer",
                    what);
}

static ech_status check_copy(const ech_worker *const w, const ech_buffer *const b,
                             const uint64_t offset, const uint64_t len, const char *const what,
                             ech_error *const err)
{
    ECH_TRY(check_open(w, what, err));
    if (!is_current(w, b))
        return ech_fail(err, ECH_ESTALE, "%s: the buffer was released or the handle is forged",
                        what);
    const uint64_t bytes = w->shared->buffers[b->id].bytes;
    if (offset > bytes || len > bytes - offset)
        return ech_fail(err, ECH_ELIMIT, "%s: length %llu at offset %llu leaves the buffer of %llu",
                        what, (unsigned long long)len, (unsigned long long)offset,
                        (unsigned long long)bytes);
    return ECH_OK;
}

ech_status ech_worker_copy_in(ech_worker *const w, const ech_buffer buffer, const uint64_t offset,
                              const void *const src, const uint64_t len, ech_error *const err)
{
    ECH_TRY(check_copy(w, &buffer, offset, len, "copying into a buffer", err));
    if (w->shared->buffers[buffer.id].access != ECH_ACCESS_RW)
        return ech_fail(err, ECH_EACCESS, "copying into a buffer: it is read-only");
    memcpy((char *)ech_worker_buffer_ptr(w, buffer) + offset, src, len);
    return ECH_OK;
}

ech_status ech_worker_copy_out(const ech_worker *const w, const ech_buffer buffer,
                               const uint64_t offset, void *const dst, const uint64_t len,
                               ech_error *const err)
{
    ECH_TRY(check_copy(w, &buffer, offset, len, "copying out of a buffer", err));
    memcpy(dst, (const char *)ech_worker_buffer_ptr(w, buffer) + offset, len);
    return ECH_OK;
}
