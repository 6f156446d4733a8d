/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings: see shm.h. Runs on any thread; keeps nothing. */
#include "src/base/os/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static uint64_t page_round(const uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Address space of `bytes`, starting at a multiple of 2 MiB; MAP_FAILED when there is none. */
static void *reserve_aligned(const uint64_t bytes)
{
    char *const area = mmap(NULL, bytes + ECH_HUGE_PAGE, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return MAP_FAILED;
    const uint64_t lead = (ECH_HUGE_PAGE - (uintptr_t)area % ECH_HUGE_PAGE) % ECH_HUGE_PAGE;
    if (lead > 0) munmap(area, lead);
    munmap(area + lead + bytes, ECH_HUGE_PAGE - lead);
    return area + lead;
}

static void *map_fd(const int fd, const uint64_t bytes, const bool huge)
{
    void *at = NULL;
    int flags = MAP_SHARED;
    if (huge) {
        at = reserve_aligned(bytes);
        if (at == MAP_FAILED) return MAP_FAILED;
        flags |= MAP_FIXED;
    }
    void *const ptr = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (ptr == MAP_FAILED) {
        const int saved = errno;
        if (huge) munmap(at, bytes);
        errno = saved;
        return MAP_FAILED;
    }
    /* Advice only: where shmem has no huge pages, ordinary ones serve. */
    if (huge) (void)madvise(ptr, bytes, MADV_HUGEPAGE);
    return ptr;
}

ech_status ech_os_shm_map(const char *const name, const uint64_t bytes, const bool huge,
                          void **const ret_ptr, ech_error *const err)
{
    const uint64_t size = page_round(bytes);
    if (bytes == 0 || size < bytes || size > INT64_MAX)
        return ech_fail(err, ECH_EINVAL, "mapping shared memory '%s': %llu bytes are not possible",
                        name, (unsigned long long)bytes);
    if (ech_fault_hit(ECH_FAULT_MAP)) {
        errno = ENOMEM;
        return ech_fail_errno(err, ECH_ENOMEM, "mapping %llu bytes of shared memory '%s'",
                              (unsigned long long)size, name);
    }
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return ech_fail_errno(err, ECH_ENOMEM, "creating shared memory '%s'", name);
    void *ptr = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0) ptr = map_fd(fd, size, huge);
    const int saved = errno;
    close(fd);
    if (ptr == MAP_FAILED) {
        errno = saved;
        return ech_fail_errno(err, ECH_ENOMEM, "mapping %llu bytes of shared memory '%s'",
                              (unsigned long long)size, name);
    }
    *ret_ptr = ptr;
    return ECH_OK;
}

ech_status ech_os_file_map(const char *const path, void **const ret_ptr, uint64_t *const ret_bytes,
                           ech_error *const err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ech_fail_errno(err, ECH_EIO, "opening %s", path);
    struct stat st;
    ech_status rc = ECH_OK;
    if (fstat(fd, &st) != 0) {
        rc = ech_fail_errno(err, ECH_EIO, "reading the size of %s", path);
    } else if (!S_ISREG(st.st_mode) || st.st_size <= 0) {
        rc = ech_fail(err, ECH_EINVAL, "mapping %s: it is empty or not a regular file", path);
    } else {
        void *const ptr = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (ptr == MAP_FAILED) {
            rc = ech_fail_errno(err, ECH_ENOMEM, "mapping %s", path);
        } else {
            *ret_ptr = ptr;
            *ret_bytes = (uint64_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

ech_status ech_os_unmap(void *const ptr, const uint64_t bytes, ech_error *const err)
{
    if (ech_fault_hit(ECH_FAULT_UNMAP))
        return ech_fail(err, ECH_EOS, "unmapping %llu bytes: injected", (unsigned long long)bytes);
    if (munmap(ptr, page_round(bytes)) != 0)
        return ech_fail_errno(err, ECH_EOS, "unmapping %llu bytes", (unsigned long long)bytes);
    return ECH_OK;
}

uint64_t ech_os_collapse(void *const ptr, const uint64_t bytes)
{
    uint64_t done = 0;
    const uint64_t whole = bytes / ECH_HUGE_PAGE * ECH_HUGE_PAGE;
    if ((uintptr_t)ptr % ECH_HUGE_PAGE != 0) return 0;
    for (uint64_t at = 0; at < whole; at += ECH_HUGE_PAGE) {
        if (madvise((char *)ptr + at, ECH_HUGE_PAGE, MADV_COLLAPSE) == 0) {
            done += ECH_HUGE_PAGE;
        } else if (errno == EINVAL) {
            break; /* this kernel or this mapping never will */
        }
    }
    return done;
}

void ech_os_populate_huge(void *const ptr)
{
    unsigned char resident = 0;
    if (mincore(ptr, 1, &resident) != 0 || (resident & 1)) return;
    /* The kernel refuses to collapse an empty range: one page is touched, changing nothing. */
    (void)__atomic_fetch_or((unsigned char *)ptr, 0, __ATOMIC_RELAXED);
    (void)madvise(ptr, ECH_HUGE_PAGE, MADV_COLLAPSE);
}

void ech_os_populate(void *const ptr, const uint64_t bytes)
{
    (void)madvise(ptr, page_round(bytes), MADV_POPULATE_READ);
}

void ech_os_forget(void *const ptr, const uint64_t bytes)
{
    (void)madvise(ptr, page_round(bytes), MADV_DONTNEED);
}

bool ech_os_lock(const void *const ptr, const uint64_t bytes)
{
    return mlock2(ptr, bytes, MLOCK_ONFAULT) == 0;
}

bool ech_os_can_lock(const void *const ptr, const uint64_t bytes)
{
    if (!ech_os_lock(ptr, bytes)) return false;
    (void)munlock(ptr, bytes);
    return true;
}

void ech_os_read_ahead(const void *const ptr, const uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)ptr / page * page;
    (void)madvise((void *)start, (uintptr_t)ptr + bytes - start, MADV_WILLNEED);
}

void ech_os_populate_resident(void *const ptr, const uint64_t bytes, const int64_t deadline_ns)
{
    char *const base = ptr;
    for (uint64_t at = 0; at < bytes && ech_now_ns() < deadline_ns; at += ECH_HUGE_PAGE) {
        unsigned char resident = 0;
        const uint64_t len = bytes - at < ECH_HUGE_PAGE ? page_round(bytes - at) : ECH_HUGE_PAGE;
        /* The first page speaks for its 2 MiB: regions are filled from their start. */
        if (mincore(base + at, 1, &resident) == 0 && (resident & 1))
            (void)madvise(base + at, len, MADV_POPULATE_READ);
    }
}
