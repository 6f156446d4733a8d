/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "tests/kernels/peak.h"

#define CHAINS 12

double peak_fma_avx2(const uint64_t n)
{
    __m256 acc[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm256_fmadd_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    volatile float sink = _mm256_cvtss_f32(acc[0]);
    (void)sink;
    return 2.0 * 8 * CHAINS * (double)n;
}

double peak_maddubs_avx2(const uint64_t n)
{
    __m256i acc[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_epi32(i);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    const __m256i one = _mm256_set1_epi16(1);
    for (uint64_t k = 0; k < n; k++) {
        __asm__ volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) {
            __m256i p = _mm256_maddubs_epi16(a, b);
            __asm__ volatile("" : "+x"(p));
            acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(p, one));
        }
    }
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm256_add_epi32(acc[0], acc[i]);
    volatile int sink = _mm256_extract_epi32(acc[0], 0);
    (void)sink;
    return 2.0 * 32 * CHAINS * (double)n;
}
