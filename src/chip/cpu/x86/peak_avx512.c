/* SPDX-License-Identifier: Apache-2.0 */
/* Peak loops of AVX-512 F: see peak.h. The instructions are written out, so that each is made. */
#include <immintrin.h>

#include "src/chip/cpu/peak.h"

#define N_ACC 16

uint64_t ech_peak_f32_avx512(const uint64_t rounds)
{
    __m512 acc[N_ACC];
    const __m512 w = _mm512_set1_ps(1e-3f);
    PEAK_UNROLL for (int i = 0; i < N_ACC; i++) acc[i] = _mm512_setzero_ps();
    for (uint64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL for (int i = 0; i < N_ACC; i++)
        {
            __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(acc[i]) : "v"(w));
        }
    }
    return rounds * N_ACC * 16;
}

void ech_peak_read_avx512(const void *const streams[ECH_READ_STREAMS], const size_t bytes)
{
    __m512i t;
    for (size_t at = 0; at < bytes; at += 256)
        PEAK_UNROLL for (int s = 0; s < ECH_READ_STREAMS; s++)
        {
            const char *const p = (const char *)streams[s] + at;
            PEAK_UNROLL for (int i = 0; i < 256; i += 64) __asm__ volatile(
                "vmovdqa64 %1, %0" : "=v"(t) : "m"(*(const __m512i *)(p + i)));
        }
    (void)t;
}
