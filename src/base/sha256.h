/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4). Names callables and model files; own, so that chips need libc only. */
#ifndef ECH_BASE_SHA256_H
#define ECH_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct ech_sha256 {
    uint32_t state[8];
    uint64_t len;      /* bytes taken so far */
    uint8_t block[64]; /* the unfinished block, len % 64 bytes of it */
} ech_sha256;

void ech_sha256_init(ech_sha256 *s);
void ech_sha256_update(ech_sha256 *s, const void *data, size_t len);
/* s can't be used again without init. */
void ech_sha256_final(ech_sha256 *s, uint8_t out[32]);

#endif
