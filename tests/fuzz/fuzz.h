/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target defines, under the name that libFuzzer wants. */
#ifndef ECH_TESTS_FUZZ_FUZZ_H
#define ECH_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Takes any bytes; returns 0. Must not crash, leak, or take long. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif
