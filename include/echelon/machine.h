/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/machine.h - what this machine is, and what it can do at most, measured now.
 *
 * A speed says little until it stands beside the machine's limit of the same minute: a meter
 * measures the plain read of memory and the bare products of registers, with the threads that a
 * chip would get. `echelon doctor` prints all of it.
 *
 *     ech_meter *m;
 *     if (ech_meter_open(&m, NULL, &err) != ECH_OK) …
 *     double bytes_per_s, macs_per_s;
 *     (void)ech_meter_run(m, ECH_METER_READ, 0.3, &bytes_per_s, &err);
 *     (void)ech_meter_run(m, ECH_METER_INT8, 0.1, &macs_per_s, &err);
 *     ech_meter_close(&m);
 *
 * Threads: a meter is used by one thread at a time. While it runs it takes all the cores.
 */
#ifndef ECHELON_MACHINE_H
#define ECHELON_MACHINE_H

#include "echelon/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which kernels serve one pair of weights and activations. */
typedef struct ech_kernel_path {
    const char *weights;     /* packed type: "q8", "bf16", … */
    const char *activations; /* "f32", "bf16", "q8" */
    const char *isa;         /* "ref", "avx2", "avx512", "avx512_vnni", "avx512_bf16" */
} ech_kernel_path;

#define ECH_KERNEL_PATHS_MAX 32

/** A machine as this process may use it. 0, or an empty text: unknown. */
typedef struct ech_machine_info {
    size_t struct_size; /* set by the caller: sizeof(ech_machine_info) */
    char cpu[80];       /* the CPU's own name */
    uint32_t n_cpus;    /* that the affinity mask (cpuset) allows */
    uint32_t n_cores;   /* physical ones among them */
    uint32_t n_nodes;   /* NUMA nodes among them */
    double quota_cpus;  /* CPU time per second that the cgroup grants; 0: no limit */
    uint32_t threads;   /* that a chip gets by default */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* caches as the first CPU sees them */
    uint64_t memory_bytes;                  /* the smaller of physical memory and cgroup limit */
    uint64_t memory_available;
    char huge_shmem[16];    /* the kernel's policy of huge pages in shared memory: "advise", … */
    uint64_t shm_bytes;     /* of /dev/shm */
    uint64_t memlock_bytes; /* RLIMIT_MEMLOCK; UINT64_MAX: no limit */
    uint32_t n_paths;
    ech_kernel_path paths[ECH_KERNEL_PATHS_MAX]; // [n_paths]
} ech_machine_info;

/**
 * Fills *ret as far as its struct_size says. What can't be read stays unknown. EINVAL: the
 * environment's ECHELON_CPU is none of its words.
 */
ECH_API ech_status ech_machine_info_get(ech_machine_info *ret, ech_error *err);

/** What a meter measures. */
typedef enum ech_meter_kind {
    ECH_METER_READ = 0, /* bytes a second: 4 streams per thread, memory of the weights' kind */
    ECH_METER_INT8 = 1, /* multiply-accumulates a second, in registers */
    ECH_METER_BF16 = 2, /* the same; of f32 where the CPU has no bf16 products */
    ECH_METER_F32 = 3,
    ECH_METER_KINDS = 4,
} ech_meter_kind;

/** Start from { .struct_size = sizeof(ech_meter_options) }. 0: the default. */
typedef struct ech_meter_options {
    size_t struct_size;
    uint32_t threads;    /* one per physical core that may be used */
    uint64_t read_bytes; /* memory that is read: 2 GiB, less where memory is short; ENOMEM for more
                            than three quarters of what is free */
} ech_meter_options;

typedef struct ech_meter ech_meter;

/**
 * Makes a meter; its memory is mapped at the first ECH_METER_READ. options NULL: all defaults.
 * Ownership: *ret_meter is the caller's, for ech_meter_close(). EINVAL, ENOMEM.
 */
ECH_API ech_status ech_meter_open(ech_meter **ret_meter, const ech_meter_options *options,
                                  ech_error *err);

/**
 * Measures for about `seconds` (0.001 to 60), on all threads at once; *ret_per_second is their sum.
 * The first read also fills its memory, which takes about a second more.
 * Errors: EINVAL, ENOMEM, EOS.
 */
ECH_API ech_status ech_meter_run(ech_meter *meter, ech_meter_kind kind, double seconds,
                                 double *ret_per_second, ech_error *err);

/** The instructions that are measured, as "vpdpbusd zmm"; static. */
ECH_API const char *ech_meter_loop(const ech_meter *meter, ech_meter_kind kind);
/** Threads that measure. */
ECH_API uint32_t ech_meter_threads(const ech_meter *meter);
/** Memory that is read, and how much of it is in huge pages (0 before the first read). */
ECH_API uint64_t ech_meter_read_bytes(const ech_meter *meter, uint64_t *ret_huge);

/** Frees it; sets *meter to NULL. Accepts NULL and a pointer to NULL. */
ECH_API void ech_meter_close(ech_meter **meter);

#ifdef __cplusplus
}
#endif

#endif
