/* SPDX-License-Identifier: Apache-2.0 */
/* The peak loop of AVX-512 VNNI: see peak.h. */
#include <immintrin.h>

#include "src/chip/cpu/peak.h"

#define N_ACC 16

uint64_t ech_peak_int8_avx512_vnni(const uint64_t rounds)
{
    __m512i acc[N_ACC];
    const __m512i w = _mm512_set1_epi8(1);
    PEAK_UNROLL for (int i = 0; i < N_ACC; i++) acc[i] = _mm512_setzero_si512();
    for (uint64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL for (int i = 0; i < N_ACC; i++)
        {
            __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(acc[i]) : "v"(w));
        }
    }
    return rounds * N_ACC * 64;
}
