/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel checker: every kernel of every instruction set that this machine has, against ref.
 *
 *     kernels [--seed N] [--rows N] [--bench]
 *
 * --rows leaves matrix products of more rows out, for a slow, emulated machine.
 * Prints the seed, a line per instruction set (what the CPU lacks is named as skipped), and every
 * difference. Exit 1 when there was one. --bench times the kernels instead, beside ref and beside
 * what the machine can do (a loop of register FMAs, a loop of plain reads), all in one run.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/chip/half.h"
#include "tests/kernels/kernels.h"

ech_cpu_ops ref_ops;
uint64_t seed = 20261130;
uint64_t n_failures, n_checks;
uint32_t most_rows = UINT32_MAX;
static uint64_t state;

void report(const char *const level_name, const char *const kernel, const char *const fmt, ...)
{
    va_list ap;
    n_failures++;
    if (n_failures > 40) return;
    printf("FAIL %s %s: ", level_name, kernel);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf(" (seed=%llu)\n", (unsigned long long)seed);
}

uint64_t draw(void)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

float draw_f32(const bool odd)
{
    static const float odds[] = { NAN,     INFINITY, -INFINITY, 0.0f,     -0.0f,    1e-40f,
                                  -1e-42f, 3e38f,    -3e38f,    65504.0f, 65519.9f, 1e-7f,
                                  88.4f,   -87.4f,   100.0f,    -100.0f };
    const uint64_t r = draw();
    if (odd && r % 16 == 0) return odds[(r >> 8) % (sizeof(odds) / sizeof(odds[0]))];
    return ((float)(r >> 40) * 0x1p-23f - 1.0f) * (r % 8 == 1 ? 30.0f : 1.0f);
}

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t mapped_bytes(const size_t bytes)
{
    return (bytes + page() - 1) / page() * page() + page();
}

void *guard_alloc(const size_t bytes)
{
    const size_t total = mapped_bytes(bytes);
    char *const p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + total - page(), page(), PROT_NONE) != 0) {
        perror("mmap");
        exit(2);
    }
    memset(p, 0x5a, total - page());
    return p + total - page() - bytes;
}

void guard_free(void *const ptr, const size_t bytes)
{
    char *const end = (char *)ptr + bytes + page();
    (void)munmap(end - mapped_bytes(bytes), mapped_bytes(bytes));
}

bool same_f32(const float a, const float b)
{
    return ech_f32_bits(a) == ech_f32_bits(b) || (isnan(a) && isnan(b));
}

int main(int argc, char **argv)
{
    bool is_bench = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0)
            is_bench = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc)
            most_rows = (uint32_t)strtoul(argv[++i], NULL, 0);
        else
            return fprintf(stderr, "usage: kernels [--seed N] [--rows N] [--bench]\n"), 2;
    }
    state = seed;
    ech_cpu_ops_init(&ref_ops, 0);
    level levels[] = {
        { .name = "ref" },
        { .name = "avx2", .features = ECH_CPU_V3 },
        { .name = "avx512", .features = ECH_CPU_V3 | ECH_CPU_V4 },
        { .name = "avx512_vnni", .features = ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_VNNI },
        { .name = "avx512_bf16",
          .features = ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_VNNI | ECH_CPU_V4_BF16 },
        { .name = "neon", .features = ECH_CPU_NEON },
        { .name = "dotprod", .features = ECH_CPU_NEON | ECH_CPU_DOTPROD },
        { .name = "i8mm", .features = ECH_CPU_NEON | ECH_CPU_DOTPROD | ECH_CPU_I8MM },
    };
    printf("seed=%llu\n", (unsigned long long)seed);
    level present[sizeof(levels) / sizeof(levels[0])];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if ((ech_cpu_features() & levels[i].features) != levels[i].features) {
            printf("skip %s: this CPU lacks it\n", levels[i].name);
            continue;
        }
        ech_cpu_ops_init(&levels[i].ops, levels[i].features);
        present[n++] = levels[i];
    }
    if (is_bench) {
        bench_all(present, n);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t before = n_failures, checked = n_checks;
        check_mm(&present[i]);
        check_vector(&present[i]);
        check_pack(&present[i]);
        printf("%s %s: %llu checks\n", n_failures == before ? "ok  " : "FAIL", present[i].name,
               (unsigned long long)(n_checks - checked));
    }
    return n_failures == 0 ? 0 : 1;
}
