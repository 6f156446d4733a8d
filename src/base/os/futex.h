/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a word of shared memory. The words are plain uint32_t; who changes one wakes those
 * who sleep on it. All waits are between processes.
 */
#ifndef ECH_BASE_OS_FUTEX_H
#define ECH_BASE_OS_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

#define ECH_NO_DEADLINE INT64_MAX

/*
 * Sleeps while *word == expected, until a wake or the deadline (monotonic). May return early for
 * no reason: callers look again. False only when the deadline has passed.
 */
bool ech_os_futex_wait(const uint32_t *word, uint32_t expected, int64_t deadline_ns);
/* Wakes all sleepers. */
void ech_os_futex_wake(uint32_t *word);

#endif
