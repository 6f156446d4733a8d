/* SPDX-License-Identifier: Apache-2.0 */
/* Platform "cpu": the operations of its chip child. Options: ech_cpu_options (platform.h). */
#ifndef ECH_CHIP_CPU_CHILD_H
#define ECH_CHIP_CPU_CHILD_H

#include "src/runtime/child.h"

extern const ech_child_ops ech_cpu_child_ops;

#endif
