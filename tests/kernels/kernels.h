/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the kernel checker share. */
#ifndef ECH_TESTS_KERNELS_H
#define ECH_TESTS_KERNELS_H

#include "src/chip/cpu/ops.h"

/* One instruction set as the checker sees it. */
typedef struct level {
    const char *name;
    uint32_t features; /* ECH_CPU_* that it needs */
    ech_cpu_ops ops;
} level;

/* The table that everything is compared with. */
extern ech_cpu_ops ref_ops;
/* Its name is printed with every failure. */
extern uint64_t seed;
extern uint64_t n_failures, n_checks;
extern uint32_t most_rows; /* of a matrix product */

void report(const char *level_name, const char *kernel, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

uint64_t draw(void);
/* Mostly ordinary numbers; with `odd`, now and then NaN, an infinity, a denormal, a huge or a zero.
 */
float draw_f32(bool odd);

/*
 * Memory that ends at an inaccessible page, filled with a pattern: a kernel that reads or writes
 * past the end dies by SIGSEGV. One mapping; give the pointer and the size back to guard_free.
 */
void *guard_alloc(size_t bytes);
void guard_free(void *ptr, size_t bytes);

/* Whether two results are the same: equal bits, or both NaN. */
bool same_f32(float a, float b);

void check_mm(const level *l);
void check_vector(const level *l);
void check_pack(const level *l);
void bench_all(const level *levels, uint32_t n_levels);

#endif
