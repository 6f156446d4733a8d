/* SPDX-License-Identifier: Apache-2.0 */
/* What x86-64 adds to the kernel table. */
#ifndef ECH_CHIP_CPU_X86_INIT_H
#define ECH_CHIP_CPU_X86_INIT_H

#include "src/chip/cpu/ops.h"

/* CPUID and XGETBV, as ECH_CPU_* bits. */
uint32_t ech_cpu_features_x86(void);
/* Overrides upward what these features allow. */
void ech_cpu_ops_init_x86(ech_cpu_ops *ops, uint32_t features);

#endif
