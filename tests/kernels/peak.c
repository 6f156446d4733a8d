/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/peak.h"

#include <stdio.h>
#include <time.h>

#include "src/chip/cpu/ops.h"

int64_t cpu_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

uint64_t peak_read(const void *const p, const size_t n)
{
    const size_t part = n / 4 / 64 * 8; /* in words */
    const uint64_t *const w = p;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < part; i += 8)
        for (size_t s = 0; s < 4; s++)
            for (size_t j = 0; j < 8; j++)
                sum[j] += w[s * part + i + j];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)

typedef double peak_fn(uint64_t n);

static void print_one(const char *const name, peak_fn *const fn)
{
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const int64_t t0 = cpu_ns();
        const double rate = fn(2000000) / (double)(cpu_ns() - t0);
        if (rate > best) best = rate;
    }
    printf("peak, 1 thread: %-24s %.0f G operations/s (a multiply and an add are two)\n", name,
           best);
}

void peak_print(const uint32_t features)
{
    if (features & ECH_CPU_V3) print_one("f32 vfmadd ymm", peak_fma_avx2);
    if (features & ECH_CPU_V3) print_one("i8 vpmaddubsw ymm x3", peak_maddubs_avx2);
    if (features & ECH_CPU_V4) print_one("f32 vfmadd zmm", peak_fma_avx512);
    if (features & ECH_CPU_V4_VNNI) print_one("i8 vpdpbusd zmm", peak_dpbusd_avx512);
    if (features & ECH_CPU_V4_BF16) print_one("bf16 vdpbf16ps zmm", peak_dpbf16_avx512);
}

#else

void peak_print(const uint32_t features)
{
    (void)features;
}

#endif
