/* SPDX-License-Identifier: Apache-2.0 */
/* Running a pack program on the cores of a chip. */
#ifndef ECH_CHIP_PACK_RUN_H
#define ECH_CHIP_PACK_RUN_H

#include "src/chip/exec.h"
#include "src/chip/pack.h"

/*
 * Runs a checked program; tensors as pack.h says. EINVAL where one is too short, before anything is
 * written; ECANCELLED when poll ended it.
 */
ech_status ech_pack_execute(const void *program, const ech_exec_args *args, ech_pool *pool,
                            const ech_pack_ops *ops, ech_error *err);

#endif
