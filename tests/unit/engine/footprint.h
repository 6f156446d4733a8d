/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine holds at one moment, in this process and in its chip: memory, blocks of every
 * memfd, descriptors, marks of the rings. Taken when nothing runs; two of them must not differ by
 * what ran in between.
 */
#ifndef ECH_TESTS_UNIT_ENGINE_FOOTPRINT_H
#define ECH_TESTS_UNIT_ENGINE_FOOTPRINT_H

#include "src/engine/engine_int.h"

typedef struct h_footprint {
    uint64_t anon_kb, shmem_kb;         // of this process
    uint64_t chip_anon_kb;              // of chip 0
    uint64_t memfd_kb;                  // allocated blocks of all of them
    uint32_t n_fds;                     // descriptors of this process
    uint64_t rings[3 * ECH_RINGS];      // high-water marks
    uint64_t buffers, regions, reserve; // of the worker
} h_footprint;

/* e NULL: of this process alone. */
h_footprint h_footprint_take(ech_engine *e);
void h_footprint_print(const char *when, const h_footprint *f);
/* Fails the test where later has more than before; memory may have slack_kb more. */
void h_footprint_assert_flat(const h_footprint *before, const h_footprint *later,
                             uint64_t slack_kb);

#endif
