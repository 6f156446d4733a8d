/* SPDX-License-Identifier: Apache-2.0 */
/* The table of platforms; a new device is one row. */
#include "src/chip/platform.h"

#include <string.h>

#include "src/chip/cpu/child.h"
#include "src/chip/sim/child.h"

static const ech_child_ops *const platforms[] = { &ech_cpu_child_ops, &ech_sim_child_ops };

const ech_child_ops *ech_platform_find(const char *const name)
{
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++)
        if (strcmp(platforms[i]->name, name) == 0) return platforms[i];
    return NULL;
}

const char *ech_platform_names(void)
{
    return "cpu, sim";
}
