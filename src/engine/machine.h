/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores a chip gets: from the affinity mask, the cgroup's quota and what was asked for. */
#ifndef ECH_ENGINE_MACHINE_H
#define ECH_ENGINE_MACHINE_H

#include "src/base/os/cpu.h"
#include "src/chip/platform.h"

/*
 * Fills threads, CPUs and pinning of *o. threads 0: one per physical core, no more than the quota
 * grants. More than there are CPUs are clamped with a warning, unless ECHELON_OVERSUBSCRIBE=1 is
 * set; then nothing is pinned.
 */
void ech_machine_plan_cores(const ech_machine *m, uint32_t threads, bool oversubscribe,
                            ech_cpu_options *o);

#endif
