/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "tests/kernels/peak.h"

#define CHAINS 24

double peak_fma_avx512(const uint64_t n)
{
    __m512 acc[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    volatile float sink = _mm512_cvtss_f32(acc[0]);
    (void)sink;
    return 2.0 * 16 * CHAINS * (double)n;
}

double peak_dpbf16_avx512(const uint64_t n)
{
    __m512 acc[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80),
                   b = (__m512bh)_mm512_set1_epi32(0x3a803a80);
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    volatile float sink = _mm512_cvtss_f32(acc[0]);
    (void)sink;
    return 2.0 * 32 * CHAINS * (double)n;
}

/* By hand: gcc 12 copies every accumulator in every round of the intrinsic. */
double peak_dpbusd_avx512(const uint64_t n)
{
    __m512i acc[CHAINS];
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_epi32(i);
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
#pragma GCC unroll 24
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_epi32(acc[0], acc[i]);
    volatile int sink = _mm512_cvtsi512_si32(acc[0]);
    (void)sink;
    return 2.0 * 64 * CHAINS * (double)n;
}
