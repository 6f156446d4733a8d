/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions and buffers of a worker, and what a tensor's identity means in each process. Region 0 is
 * the heap of the rings, region 1 the reserve. A worker below another one resolves identities of
 * the levels above by the same tables, which it inherited with the mappings.
 */
#ifndef ECH_RUNTIME_MEMORY_H
#define ECH_RUNTIME_MEMORY_H

#include "src/runtime/box.h"
#include "src/runtime/node.h"

#define ECH_REGION_HEAP    0u
#define ECH_REGION_RESERVE 1u

/* Maps the shared tables, the heap, the reserve and the program region. Noted in the journal. */
ech_status ech_memory_open(ech_worker *w, uint64_t reserve_bytes, uint64_t program_bytes,
                           ech_error *err);
/* The worker that made an identity: w or one above it; NULL when it is nobody's here. */
ech_worker *ech_memory_maker(const ech_worker *w, const uint64_t nonce[2]);

/*
 * Checks a placed tensor for a task of `child` (-1: of any sub child) before it is submitted:
 * identity, bounds, access of its tag, chip-local memory. Notes that the run names the buffer.
 */
ech_status ech_memory_check(ech_worker *w, const ech_tensor *t, const char *what, int32_t child,
                            uint64_t run_id, ech_box *ret_box, ech_error *err);
/* The same in the child, from its own tables; gives the address. */
ech_status ech_memory_resolve(const ech_worker *w, const ech_tensor *t, const char *what,
                              uint32_t child, ech_task_tensor *ret, ech_error *err);
/* Makes the chip-local regions of other children read-only in this one. */
void ech_memory_protect(const ech_worker *w, uint32_t child);
/*
 * Enters what is filled of the huge regions into this process's page tables: a replaced child's
 * first task then runs at its usual speed.
 */
void ech_memory_populate(const ech_worker *w, int64_t deadline_ns);
/*
 * A region that only `child` may write: chip-local memory. Others have it read-only, and its
 * tensors are refused for their tasks.
 */
ech_status ech_memory_region_local(ech_worker *w, const char *name, uint64_t bytes, uint32_t child,
                                   ech_region *ret_region, ech_error *err);

#endif
