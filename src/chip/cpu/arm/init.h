/* SPDX-License-Identifier: Apache-2.0 */
/* What aarch64 adds to the kernel table. */
#ifndef ECH_CHIP_CPU_ARM_INIT_H
#define ECH_CHIP_CPU_ARM_INIT_H

#include "src/chip/cpu/ops.h"

/* The kernel's hardware capabilities, as ECH_CPU_* bits. */
uint32_t ech_cpu_features_arm(void);
/* Overrides upward what these features allow. */
void ech_cpu_ops_init_arm(ech_cpu_ops *ops, uint32_t features);

#endif
