/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process may use of the machine: CPUs (affinity and cpuset), CPU time (cgroup quota, v1
 * and v2), memory, NUMA nodes. Read once at start-up, for the plan that is printed.
 */
#ifndef ECH_BASE_OS_CPU_H
#define ECH_BASE_OS_CPU_H

#include "echelon/status.h"

#define ECH_MAX_CPUS 1024

typedef struct ech_machine {
    uint32_t n_cpus;             /* CPUs that the affinity mask allows */
    uint16_t cpus[ECH_MAX_CPUS]; /* their numbers, ascending */
    int16_t node[ECH_MAX_CPUS];  /* NUMA node of cpus[i], 0 where unknown */
    uint16_t core[ECH_MAX_CPUS]; /* index of the first allowed CPU of the same physical core */
    uint32_t n_cores;            /* distinct physical cores among them */
    uint32_t n_nodes;            /* distinct NUMA nodes among them */
    double quota_cpus;           /* CPU time per second that the cgroup grants; 0: no limit */
    uint64_t memory_bytes;       /* the smaller of physical memory and cgroup limit */
} ech_machine;

/* Never fails: what can't be read keeps its most permissive value. */
void ech_os_machine(ech_machine *ret_machine);
/* Runs the calling thread on these CPUs only. */
ech_status ech_os_pin(const uint32_t *cpus, size_t n, ech_error *err);
/* Parses a kernel CPU list ("0-3,8"); returns how many were stored, at most cap. */
size_t ech_os_cpu_list(const char *text, uint16_t *out, size_t cap);

#endif
