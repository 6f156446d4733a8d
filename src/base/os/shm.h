/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory shared between processes, and read-only views of files. A mapping keeps its file alive,
 * so no descriptor outlives these calls, and memfds have no name that could be left behind.
 */
#ifndef ECH_BASE_OS_SHM_H
#define ECH_BASE_OS_SHM_H

#include "echelon/status.h"

#define ECH_HUGE_PAGE (UINT64_C(2) << 20)

/*
 * Maps bytes (rounded up to whole pages) of zeroed shared memory. huge: aligned to 2 MiB and
 * advised to be huge. ENOMEM when the system refuses.
 */
ech_status ech_os_shm_map(const char *name, uint64_t bytes, bool huge, void **ret_ptr,
                          ech_error *err);
/* Maps a whole file read-only and shared. EINVAL for an empty file or none at all. */
ech_status ech_os_file_map(const char *path, void **ret_ptr, uint64_t *ret_bytes, ech_error *err);
/* Undoes either. bytes as given to, or by, the call that mapped. */
ech_status ech_os_unmap(void *ptr, uint64_t bytes, ech_error *err);
/*
 * Puts a huge page under a 2 MiB-aligned piece of shared memory that nothing was written to yet, so
 * that filling it takes no fault and no copy. Keeps what other threads write meanwhile. Advice,
 * never a failure; a piece that is already populated is left alone.
 */
void ech_os_populate_huge(void *ptr);
/*
 * Enters a part of a mapping into this process's page tables, reading what isn't in memory. Advice.
 */
void ech_os_populate(void *ptr, uint64_t bytes);
/* Takes a shared mapping out of this process's page tables; touching it again brings it back. */
void ech_os_forget(void *ptr, uint64_t bytes);
/* Keeps what is populated of a mapping in memory; false where RLIMIT_MEMLOCK doesn't allow it. */
bool ech_os_lock(const void *ptr, uint64_t bytes);
/* Whether a child of this process may do that; nothing stays locked. */
bool ech_os_can_lock(const void *ptr, uint64_t bytes);
/* Has the kernel read a part of a mapped file ahead. Advice. */
void ech_os_read_ahead(const void *ptr, uint64_t bytes);
/* Makes populated pages huge; returns the bytes for which that worked. */
uint64_t ech_os_collapse(void *ptr, uint64_t bytes);
/*
 * Enters what is resident of a 2 MiB-aligned mapping into this process's page tables, so that its
 * first touch costs no fault; holes stay holes. Stops at the deadline (monotonic).
 */
void ech_os_populate_resident(void *ptr, uint64_t bytes, int64_t deadline_ns);

#endif
