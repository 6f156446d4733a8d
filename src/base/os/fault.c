/* SPDX-License-Identifier: Apache-2.0 */
/* Fault injection: see fault.h. Counters are atomic, since submit and close may race in a test. */
#include "src/base/os/fault.h"

#include <stdlib.h>

#include "src/base/atomic.h"

uint32_t ech_fault_armed;

static struct {
    uint64_t calls, skip, times;
} faults[ECH_FAULT_COUNT];

void ech_fault_arm(const ech_fault kind, const uint64_t skip, const uint64_t times)
{
    ech_store_relaxed(&faults[kind].calls, 0);
    ech_store_relaxed(&faults[kind].skip, skip);
    ech_store_relaxed(&faults[kind].times, times);
    if (times > 0) {
        ech_fetch_or(&ech_fault_armed, 1u << kind);
    } else {
        __atomic_fetch_and(&ech_fault_armed, ~(1u << kind), __ATOMIC_ACQ_REL);
    }
}

uint64_t ech_fault_calls(const ech_fault kind)
{
    return ech_load_relaxed(&faults[kind].calls);
}

bool ech_fault_check(const ech_fault kind)
{
    const uint64_t call = ech_fetch_add_relaxed(&faults[kind].calls, 1);
    const uint64_t skip = ech_load_relaxed(&faults[kind].skip);
    return call >= skip && call - skip < ech_load_relaxed(&faults[kind].times);
}

void *ech_mem_alloc(const size_t n, const size_t size)
{
    if (ech_fault_hit(ECH_FAULT_ALLOC)) return NULL;
    return calloc(n, size);
}

ech_point_fn ech_point_hooked;
static void *point_arg;

const char *ech_point_name(const ech_point point)
{
    static const char *const names[] = {
#define X(name, text) text,
        ECH_POINT_MAP(X)
#undef X
    };
    return (unsigned)point < ECH_POINT_COUNT ? names[point] : "unknown";
}

void ech_point_hook(const ech_point_fn fn, void *const arg)
{
    point_arg = arg;
    ech_point_hooked = fn;
}

void ech_point_call(const ech_point point, const uint32_t child)
{
    ech_point_hooked(point, child, point_arg);
}
