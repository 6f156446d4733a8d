/* SPDX-License-Identifier: Apache-2.0 */
/* Peak loops of AVX2: see peak.h. The instructions are written out, so that each is made. */
#include <immintrin.h>

#include "src/chip/cpu/peak.h"

#define N_ACC 10

uint64_t ech_peak_int8_avx2(const uint64_t rounds)
{
    __m256i acc[N_ACC];
    const __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
    PEAK_UNROLL for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_setzero_si256();
    for (uint64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL for (int i = 0; i < N_ACC; i++)
        {
            __m256i t;
            __asm__ volatile("vpmaddubsw %2, %3, %0\n\tvpmaddwd %4, %0, %0\n\tvpaddd %0, %1, %1"
                             : "=&x"(t), "+x"(acc[i])
                             : "x"(w), "x"(x), "x"(one));
        }
    }
    return rounds * N_ACC * 32;
}

uint64_t ech_peak_f32_avx2(const uint64_t rounds)
{
    __m256 acc[N_ACC];
    const __m256 w = _mm256_set1_ps(1e-3f);
    PEAK_UNROLL for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_setzero_ps();
    for (uint64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL for (int i = 0; i < N_ACC; i++)
        {
            __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(acc[i]) : "x"(w));
        }
    }
    return rounds * N_ACC * 8;
}

void ech_peak_read_avx2(const void *const streams[ECH_READ_STREAMS], const size_t bytes)
{
    __m256i t;
    for (size_t at = 0; at < bytes; at += 256)
        PEAK_UNROLL for (int s = 0; s < ECH_READ_STREAMS; s++)
        {
            const char *const p = (const char *)streams[s] + at;
            PEAK_UNROLL for (int i = 0; i < 256; i += 32) __asm__ volatile(
                "vmovdqa %1, %0" : "=x"(t) : "m"(*(const __m256i *)(p + i)));
        }
    (void)t;
}
