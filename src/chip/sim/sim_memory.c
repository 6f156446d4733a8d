/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation table of chip-local memory: sim_memory.h. One thread, the chip child's. */
#include "src/chip/sim/sim_memory.h"

#include <sys/mman.h>

#include "src/base/error.h"

ech_status ech_sim_memory_init(ech_sim_memory *const m, const uint64_t bytes, ech_error *const err)
{
    *m = (ech_sim_memory){ 0 };
    if (bytes == 0) return ECH_OK;
    void *const p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return ech_fail_errno(err, ECH_ENOMEM, "sim: mapping %llu bytes of chip-local memory",
                              (unsigned long long)bytes);
    }
    m->base = p;
    m->bytes = bytes;
    return ECH_OK;
}

void ech_sim_memory_fini(ech_sim_memory *const m)
{
    if (m->base != NULL) (void)munmap(m->base, m->bytes);
    *m = (ech_sim_memory){ 0 };
}

ech_status ech_sim_memory_alloc(ech_sim_memory *const m, const uint64_t bytes,
                                uint64_t *const ret_address, ech_error *const err)
{
    uint32_t i = 0;
    while (i < ECH_SIM_MAX_ALLOCATIONS && m->table[i].bytes != 0) {
        i++;
    }
    if (bytes == 0 || i == ECH_SIM_MAX_ALLOCATIONS || bytes > m->bytes - m->used) {
        return ech_fail(err, ECH_ELIMIT,
                        "sim: allocating %llu bytes of chip-local memory: %llu of %llu used, at "
                        "most %d allocations",
                        (unsigned long long)bytes, (unsigned long long)m->used,
                        (unsigned long long)m->bytes, ECH_SIM_MAX_ALLOCATIONS);
    }
    m->table[i] = (ech_sim_allocation){ m->used, bytes };
    *ret_address = (uint64_t)(uintptr_t)(m->base + m->used);
    const uint64_t end = (m->used + bytes + 63) & ~UINT64_C(63);
    m->used = end < m->bytes ? end : m->bytes;
    return ECH_OK;
}

ech_status ech_sim_memory_free(ech_sim_memory *const m, const uint64_t address,
                               ech_error *const err)
{
    const uint64_t offset = address - (uint64_t)(uintptr_t)m->base; /* wraps for foreign ones */
    uint32_t live = 0;
    ech_sim_allocation *found = NULL;
    for (uint32_t i = 0; i < ECH_SIM_MAX_ALLOCATIONS; i++) {
        if (m->table[i].bytes == 0) continue;
        live++;
        if (m->table[i].offset == offset) found = &m->table[i];
    }
    if (found == NULL) {
        return ech_fail(err, ECH_ESTALE,
                        "sim: freeing 0x%llx: no live allocation of this chip begins there",
                        (unsigned long long)address);
    }
    *found = (ech_sim_allocation){ 0 };
    if (live == 1) m->used = 0;
    return ECH_OK;
}

ech_status ech_sim_memory_at(const ech_sim_memory *const m, const uint64_t address,
                             const uint64_t bytes, void **const ret_ptr, ech_error *const err)
{
    const uint64_t offset = address - (uint64_t)(uintptr_t)m->base;
    for (uint32_t i = 0; i < ECH_SIM_MAX_ALLOCATIONS; i++) {
        const ech_sim_allocation *const a = &m->table[i];
        if (a->bytes == 0 || offset < a->offset || offset - a->offset >= a->bytes) continue;
        const uint64_t room = a->bytes - (offset - a->offset);
        if (bytes > room) {
            return ech_fail(err, ECH_ELIMIT,
                            "sim: copying %llu bytes at 0x%llx: the allocation ends after %llu",
                            (unsigned long long)bytes, (unsigned long long)address,
                            (unsigned long long)room);
        }
        *ret_ptr = m->base + offset;
        return ECH_OK;
    }
    return ech_fail(err, ECH_ESTALE,
                    "sim: copying at 0x%llx: not in a live allocation of this chip",
                    (unsigned long long)address);
}
