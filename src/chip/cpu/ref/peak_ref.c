/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peak loops in plain C, for a CPU that has nothing better. The empty assembly after each round
 * keeps the compiler from computing the result without the work.
 */
#include "src/chip/cpu/peak.h"

#define LANES       32

#define KEEP(array) __asm__ volatile("" : : "r"(array) : "memory")

uint64_t ech_peak_int8_ref(const uint64_t rounds)
{
    int32_t acc[LANES] = { 0 };
    int8_t w[LANES], x[LANES];
    for (int i = 0; i < LANES; i++)
        w[i] = x[i] = (int8_t)i;
    KEEP(w);
    KEEP(x);
    for (uint64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < LANES; i++)
            acc[i] += w[i] * x[i] & 0xff; /* small, so that no sum overflows in a second */
        KEEP(acc);
    }
    return rounds * LANES;
}

uint64_t ech_peak_f32_ref(const uint64_t rounds)
{
    float acc[LANES] = { 0 }, w[LANES], x[LANES];
    for (int i = 0; i < LANES; i++)
        w[i] = x[i] = 1e-3f;
    KEEP(w);
    KEEP(x);
    for (uint64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < LANES; i++)
            acc[i] += w[i] * x[i];
        KEEP(acc);
    }
    return rounds * LANES;
}

void ech_peak_read_ref(const void *const streams[ECH_READ_STREAMS], const size_t bytes)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes; at += 64)
        for (int s = 0; s < ECH_READ_STREAMS; s++) {
            const uint64_t *const p = (const void *)((const char *)streams[s] + at);
            sum += p[0] ^ p[1] ^ p[2] ^ p[3] ^ p[4] ^ p[5] ^ p[6] ^ p[7];
        }
    __asm__ volatile("" : : "r"(sum));
}
