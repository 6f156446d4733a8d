/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chip-local memory of the sim chip: a mapping of its process alone, cut into allocations that the
 * worker's side names by address and reaches by control commands. Every address is looked up in
 * the table of live allocations before anything is touched: one that is foreign, stale or inside an
 * allocation can't be freed, and a copy can't leave the allocation that it begins in.
 */
#ifndef ECH_CHIP_SIM_MEMORY_H
#define ECH_CHIP_SIM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "echelon/status.h"

#define ECH_SIM_MAX_ALLOCATIONS 64

/* Control commands: numbers of ech_sim_control(). Requests begin with an ech_sim_memory_request. */
enum ech_sim_command {
    ECH_SIM_ALLOC = 1, /* bytes -> address */
    ECH_SIM_FREE,      /* address */
    ECH_SIM_COPY_IN,   /* address, bytes, then the bytes themselves */
    ECH_SIM_COPY_OUT,  /* address, bytes -> the bytes */
};

typedef struct ech_sim_memory_request {
    uint64_t address;
    uint64_t bytes;
} ech_sim_memory_request;

typedef struct ech_sim_allocation {
    uint64_t offset;
    uint64_t bytes; /* 0: free place in the table */
} ech_sim_allocation;

typedef struct ech_sim_memory {
    char *base; /* NULL: the chip has none */
    uint64_t bytes;
    uint64_t used; /* bump: freed memory comes back when all is freed */
    ech_sim_allocation table[ECH_SIM_MAX_ALLOCATIONS];
} ech_sim_memory;

/* Maps bytes of private memory; 0: none. */
ech_status ech_sim_memory_init(ech_sim_memory *m, uint64_t bytes, ech_error *err);
void ech_sim_memory_fini(ech_sim_memory *m);
/* *ret_address is aligned to 64. ELIMIT when memory or table is full. */
ech_status ech_sim_memory_alloc(ech_sim_memory *m, uint64_t bytes, uint64_t *ret_address,
                                ech_error *err);
/* ESTALE for an address that no live allocation begins at. */
ech_status ech_sim_memory_free(ech_sim_memory *m, uint64_t address, ech_error *err);
/* [address, address + bytes) when it lies in one live allocation, else ESTALE or ELIMIT. */
ech_status ech_sim_memory_at(const ech_sim_memory *m, uint64_t address, uint64_t bytes,
                             void **ret_ptr, ech_error *err);

#endif
