/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platforms: for each name, the operations that the worker's chip child calls (child.h of the
 * runtime). Adding a device is one folder here and one row in platform.c.
 */
#ifndef ECH_CHIP_PLATFORM_H
#define ECH_CHIP_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#include "src/chip/exec.h"

typedef struct ech_child_ops ech_child_ops;

/* "cpu" or "sim"; NULL for a name that is none. */
const ech_child_ops *ech_platform_find(const char *name);
/* The names, comma-separated, for messages. */
const char *ech_platform_names(void);

#define ECH_CPU_MAX_THREADS 256

/* The options blob of platform "cpu": plain bytes, copied by the worker to its children. */
typedef struct ech_cpu_options {
    uint32_t struct_size; /* sizeof(ech_cpu_options) */
    uint32_t n_threads;   /* 1 … ECH_CPU_MAX_THREADS */
    uint32_t isa;         /* ech_isa */
    uint32_t pin;         /* 1: thread i runs on cpus[i] alone */
    uint64_t arena_bytes; /* as in ech_exec_options */
    uint32_t cpus[ECH_CPU_MAX_THREADS];
} ech_cpu_options;

#endif
