/* SPDX-License-Identifier: Apache-2.0 */
/* Ring sizes and limits from their four sources. Pure, apart from reading the environment. */
#ifndef ECH_RUNTIME_SETTINGS_H
#define ECH_RUNTIME_SETTINGS_H

#include "echelon/worker.h"

/*
 * Fills every field: `first` (may be NULL), then `second` (may be NULL), then the environment,
 * then what is built in. EINVAL names the setting and the value that is bad.
 */
ech_status ech_settings_rings(const ech_ring_sizes *first, const ech_ring_sizes *second,
                              ech_ring_sizes *ret_sizes, ech_error *err);
/* Checks given sizes; fields that are 0 are not set and pass. */
ech_status ech_settings_check(const ech_ring_sizes *sizes, const char *where, ech_error *err);
/* Seconds without progress, from the option or ECHELON_STALL_LIMIT. */
ech_status ech_settings_stall(double option, double *ret_seconds, ech_error *err);

#endif
