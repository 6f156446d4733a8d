/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores a chip gets: from the affinity mask, the cgroup's quota and what was asked for; and
 * which instructions its products are made of. */
#ifndef ECH_ENGINE_MACHINE_H
#define ECH_ENGINE_MACHINE_H

#include "src/base/os/cpu.h"
#include "src/chip/cpu/ops.h"
#include "src/chip/platform.h"

/*
 * Fills threads, CPUs and pinning of *o. threads 0: one per physical core, no more than the quota
 * grants. More than there are CPUs are clamped with a warning, unless ECHELON_OVERSUBSCRIBE=1 is
 * set; then nothing is pinned.
 */
void ech_machine_plan_cores(const ech_machine *m, uint32_t threads, bool oversubscribe,
                            ech_cpu_options *o);

/* The instruction set of the kernel for these weights and activations, as "avx2". The pair must be
 * one that has a kernel. Static text. */
const char *ech_machine_kernel(ech_pack_type weights, ech_act_type act, uint32_t features);
const char *ech_machine_act_name(ech_act_type act);

#endif
