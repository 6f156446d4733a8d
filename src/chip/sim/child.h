/* SPDX-License-Identifier: Apache-2.0 */
/* Platform "sim": the operations of its chip child. Options: ech_sim_options (sim.h). */
#ifndef ECH_CHIP_SIM_CHILD_H
#define ECH_CHIP_SIM_CHILD_H

#include "src/runtime/child.h"

extern const ech_child_ops ech_sim_child_ops;

#endif
