/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as this process sees it: see cpu.h. Reads /proc and /sys, keeps nothing. */
#include "src/base/os/cpu.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"

/* The first line of a small file, without its newline; false when there is none. */
static bool read_line(const char *const path, char *const out, const size_t cap)
{
    FILE *const f = fopen(path, "re");
    if (f == NULL) return false;
    const bool ok = fgets(out, (int)cap, f) != NULL;
    (void)fclose(f);
    if (ok) out[strcspn(out, "\n")] = '\0';
    return ok;
}

size_t ech_os_cpu_list(const char *text, uint16_t *const out, const size_t cap)
{
    size_t n = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        const unsigned long first = strtoul(text, &end, 10);
        unsigned long last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long c = first; c <= last && c < ECH_MAX_CPUS && n < cap; c++)
            out[n++] = (uint16_t)c;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static void read_affinity(ech_machine *const m)
{
    cpu_set_t *const set = CPU_ALLOC(ECH_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(ECH_MAX_CPUS);
    if (set != NULL && sched_getaffinity(0, bytes, set) == 0) {
        for (uint32_t c = 0; c < ECH_MAX_CPUS; c++) {
            if (CPU_ISSET_S(c, bytes, set)) m->cpus[m->n_cpus++] = (uint16_t)c;
        }
    }
    if (set != NULL) CPU_FREE(set);
    if (m->n_cpus == 0) m->n_cpus = 1; /* CPU 0: something runs us */
}

static void read_nodes(ech_machine *const m)
{
    char path[96], line[4096];
    uint16_t list[ECH_MAX_CPUS];
    bool any[64] = { false };
    for (int node = 0; node < 64; node++) {
        (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!read_line(path, line, sizeof line)) continue;
        const size_t n = ech_os_cpu_list(line, list, ECH_MAX_CPUS);
        for (size_t k = 0; k < n; k++) {
            for (uint32_t i = 0; i < m->n_cpus; i++) {
                if (m->cpus[i] != list[k]) continue;
                m->node[i] = (int16_t)node;
                any[node] = true;
            }
        }
    }
    for (int node = 0; node < 64; node++)
        m->n_nodes += any[node];
    if (m->n_nodes == 0) m->n_nodes = 1;
}

/* Hyper-threads of one core share its first allowed sibling's index. */
static void read_cores(ech_machine *const m)
{
    char path[128], line[1024];
    uint16_t list[64];
    for (uint32_t i = 0; i < m->n_cpus; i++) {
        m->core[i] = (uint16_t)i;
        (void)snprintf(path, sizeof path,
                       "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", m->cpus[i]);
        const size_t n = read_line(path, line, sizeof line) ? ech_os_cpu_list(line, list, 64) : 0;
        for (uint32_t j = 0; j < i; j++) {
            for (size_t k = 0; k < n; k++) {
                if (m->cpus[j] == list[k] && m->core[i] == i) m->core[i] = m->core[j];
            }
        }
        m->n_cores += m->core[i] == i;
    }
}

/* The directory of this process in a cgroup hierarchy; controller "" is the unified one. */
static bool cgroup_path(const char *const controller, char *const out, const size_t cap)
{
    FILE *const f = fopen("/proc/self/cgroup", "re");
    char line[1024];
    bool found = false;
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *const names = strchr(line, ':');
        char *const path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) continue;
        *path = '\0';
        for (char *s = names + 1, *t; s != NULL && !found; s = t) {
            t = strchr(s, ',');
            if (t != NULL) *t++ = '\0';
            found = strcmp(s, controller) == 0;
        }
        if (found) (void)snprintf(out, cap, "%s", path + 1);
    }
    (void)fclose(f);
    return found;
}

typedef void (*cgroup_fn)(ech_machine *m, const char *dir);

/* A limit may sit on any ancestor, so every directory up to the mount is read. */
static void walk_cgroups(ech_machine *const m, const char *const mount, const char *const path,
                         const cgroup_fn fn)
{
    char dir[1200];
    (void)snprintf(dir, sizeof dir, "%s%s", mount, path);
    const size_t root = strlen(mount);
    for (;;) {
        fn(m, dir);
        char *const slash = strrchr(dir, '/');
        if (strlen(dir) <= root || slash == NULL) return;
        if ((size_t)(slash - dir) < root) return;
        *slash = '\0';
    }
}

static void take_quota(ech_machine *const m, const double quota, const double period)
{
    if (quota <= 0 || period <= 0) return;
    const double cpus = quota / period;
    if (m->quota_cpus == 0 || cpus < m->quota_cpus) m->quota_cpus = cpus;
}

static void take_memory(ech_machine *const m, const char *const line)
{
    char *end;
    const unsigned long long bytes = strtoull(line, &end, 10);
    if (end != line && bytes > 0 && bytes < m->memory_bytes) m->memory_bytes = bytes;
}

static void read_cgroup2(ech_machine *const m, const char *const dir)
{
    char path[1300], line[128];
    double quota, period;
    (void)snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_line(path, line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2)
        take_quota(m, quota, period);
    (void)snprintf(path, sizeof path, "%s/memory.max", dir);
    if (read_line(path, line, sizeof line)) take_memory(m, line);
}

static void read_cgroup1_cpu(ech_machine *const m, const char *const dir)
{
    char path[1300], quota[64], period[64];
    (void)snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, quota, sizeof quota)) return;
    (void)snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (read_line(path, period, sizeof period))
        take_quota(m, strtod(quota, NULL), strtod(period, NULL));
}

static void read_cgroup1_memory(ech_machine *const m, const char *const dir)
{
    char path[1300], line[64];
    (void)snprintf(path, sizeof path, "%s/memory.limit_in_bytes", dir);
    if (read_line(path, line, sizeof line)) take_memory(m, line);
}

void ech_os_machine(ech_machine *const ret_machine)
{
    ech_machine *const m = ret_machine;
    char path[1024];
    memset(m, 0, sizeof *m);
    read_affinity(m);
    read_nodes(m);
    read_cores(m);
    m->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (cgroup_path("", path, sizeof path)) walk_cgroups(m, "/sys/fs/cgroup", path, read_cgroup2);
    if (cgroup_path("cpu", path, sizeof path))
        walk_cgroups(m, "/sys/fs/cgroup/cpu", path, read_cgroup1_cpu);
    if (cgroup_path("memory", path, sizeof path))
        walk_cgroups(m, "/sys/fs/cgroup/memory", path, read_cgroup1_memory);
}

ech_status ech_os_pin(const uint32_t *const cpus, const size_t n, ech_error *const err)
{
    cpu_set_t *const set = CPU_ALLOC(ECH_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(ECH_MAX_CPUS);
    if (set == NULL) return ech_fail(err, ECH_ENOMEM, "pinning a thread: out of memory");
    CPU_ZERO_S(bytes, set);
    for (size_t i = 0; i < n; i++) {
        if (cpus[i] < ECH_MAX_CPUS) CPU_SET_S(cpus[i], bytes, set);
    }
    const int rc = sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
    if (rc != 0) return ech_fail_errno(err, ECH_EOS, "pinning a thread to CPU %u", n ? cpus[0] : 0);
    return ECH_OK;
}
