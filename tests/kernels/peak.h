/* SPDX-License-Identifier: Apache-2.0 */
/* What one core of this machine can do at most, measured. */
#ifndef ECH_TESTS_KERNELS_PEAK_H
#define ECH_TESTS_KERNELS_PEAK_H

#include <stddef.h>
#include <stdint.h>

/* The calling thread's CPU time, which neighbours on the machine disturb less than wall time. */
int64_t cpu_ns(void);
/* Reads n bytes in four streams; the value only keeps the reads alive. */
uint64_t peak_read(const void *p, size_t n);
/* Loops of one instruction between registers, n rounds; returns operations done. */
double peak_fma_avx2(uint64_t n);
double peak_fma_avx512(uint64_t n);
double peak_dpbf16_avx512(uint64_t n);
double peak_dpbusd_avx512(uint64_t n);
double peak_maddubs_avx2(uint64_t n);
/* Runs those that the CPU has and prints them. */
void peak_print(uint32_t features);

#endif
