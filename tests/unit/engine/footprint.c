/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/footprint.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/test.h"

/* A line of /proc/PID/status, in kB; 0 when it isn't there. */
static uint64_t status_kb(long pid, const char *name)
{
    char path[64], line[256];
    uint64_t kb = 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *const f = fopen(path, "re");
    if (f == NULL) return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) kb = strtoull(line + strlen(name), NULL, 10);
    (void)fclose(f);
    return kb;
}

static void take_descriptors(h_footprint *f)
{
    DIR *const dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (const struct dirent *d = readdir(dir); d != NULL; d = readdir(dir))
        f->n_fds += d->d_name[0] != '.' && atoi(d->d_name) != dirfd(dir);
    (void)closedir(dir);
}

static uint64_t resident_kb(char *begin, const char *end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)(end - begin) / page;
    unsigned char *const is_there = malloc(n + 1);
    uint64_t pages = 0;
    if (mincore(begin, n * page, is_there) == 0)
        for (size_t i = 0; i < n; i++)
            pages += is_there[i] & 1;
    free(is_there);
    return pages * page / 1024;
}

/* Nobody keeps the regions' descriptors, but a page of a memfd is allocated exactly when it is in
 * the page cache. */
static void take_memfds(h_footprint *f)
{
    char line[512];
    FILE *const maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t begin, end;
        if (strstr(line, "/memfd:") == NULL) continue;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
        f->memfd_kb += resident_kb((char *)begin, (const char *)end);
    }
    (void)fclose(maps);
}

static void take_worker(h_footprint *f, ech_worker *w)
{
    ech_worker_counters c;
    ech_child_info chip;
    ech_worker_snapshot(w, &c);
    for (int i = 0; i < ECH_RINGS; i++) {
        f->rings[3 * i] = c.heap[i].high_water;
        f->rings[3 * i + 1] = c.task_window[i].high_water;
        f->rings[3 * i + 2] = c.dep_pool[i].high_water;
    }
    f->buffers = c.buffers;
    f->regions = c.regions;
    f->reserve = c.reserve_used;
    /* A chip that was just killed has no memory, and its successor is there in a moment. */
    for (int i = 0; i < 5000 && f->chip_anon_kb == 0; i++) {
        if (i > 0) (void)usleep(1000);
        if (ech_worker_child_info(w, 0, &chip, NULL) == ECH_OK)
            f->chip_anon_kb = status_kb((long)chip.pid, "RssAnon:");
    }
}

h_footprint h_footprint_take(ech_engine *e)
{
    (void)malloc_trim(0); /* what was freed and is kept by malloc is no leak */
    h_footprint f = { .anon_kb = status_kb((long)getpid(), "RssAnon:"),
                      .shmem_kb = status_kb((long)getpid(), "RssShmem:") };
    take_descriptors(&f);
    take_memfds(&f);
    if (e != NULL) take_worker(&f, e->worker);
    return f;
}

void h_footprint_print(const char *when, const h_footprint *f)
{
    uint64_t rings = 0;
    for (int i = 0; i < 3 * ECH_RINGS; i++)
        rings += f->rings[i];
    print_message("%s: RssAnon %llu kB (chip %llu kB), RssShmem %llu kB, memfd blocks %llu kB, %u "
                  "descriptors, ring marks %llu\n",
                  when, (unsigned long long)f->anon_kb, (unsigned long long)f->chip_anon_kb,
                  (unsigned long long)f->shmem_kb, (unsigned long long)f->memfd_kb, f->n_fds,
                  (unsigned long long)rings);
}

void h_footprint_assert_flat(const h_footprint *before, const h_footprint *later, uint64_t slack_kb)
{
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* they keep what was freed */
    assert_true(later->anon_kb <= before->anon_kb + slack_kb);
    assert_true(later->chip_anon_kb <= before->chip_anon_kb + slack_kb);
#endif
    assert_true(later->shmem_kb <= before->shmem_kb + slack_kb);
    assert_true(later->memfd_kb <= before->memfd_kb + slack_kb);
    assert_true(later->n_fds <= before->n_fds);
    for (int i = 0; i < 3 * ECH_RINGS; i++)
        assert_true(later->rings[i] <= before->rings[i]);
    assert_int_equal(later->buffers, before->buffers);
    assert_int_equal(later->regions, before->regions);
    assert_int_equal(later->reserve, before->reserve);
}
