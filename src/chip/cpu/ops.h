/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel table: what an instruction set must offer, as one struct of function pointers. `ref/`
 * fills it with plain C, which is the specification; x86/ overrides upward, in the order
 * AVX2 → AVX-512 → AVX-512 BF16, arm/ in the order NEON → dotprod → i8mm, for what the CPU has.
 *
 * Order of accumulation, the same for every number of rows and panels and every tile:
 *
 *   mm, act f32   one chain per output: acc = fma(w[k], x[k], acc), k = 0, 1, 2, …, from 0.
 *                 Weights are widened exactly. With round to nearest even and no flushing this
 *                 gives equal bits on every CPU.
 *   mm, act bf16  one chain over pairs, k = 0, 2, 4, …, each pair as the CPU's vdpbf16ps adds it
 *                 (odd k first, then even, denormals flushed); elsewhere two fma in that order.
 *   mm, act q8    one chain over blocks of 32 columns, whose integer sum is exact: quant.h.
 *   sums          16 lanes, lane i takes elements i, i+16, …; then lanes i and i+8, i+4, i+2, i+1
 *                 are added. Elements past the end count as nothing.
 *   exp           one polynomial, ech_exp_ref() in ref/, the same operations on every CPU.
 *
 * Kernels read exactly the elements named, with any alignment of x and y (4 bytes); w is 64-byte
 * aligned. They have no state and run on any thread. Checked by tests/kernels.
 */
#ifndef ECH_CHIP_CPU_OPS_H
#define ECH_CHIP_CPU_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "src/chip/image.h"

/* What the activations of a matrix product are. */
typedef enum ech_act_type {
    ECH_ACT_F32,
    ECH_ACT_BF16, /* uint16_t, padded with a zero to an even number */
    ECH_ACT_Q8,   /* bytes in blocks of 32 with scales: quant.h */
    ECH_ACT_COUNT,
} ech_act_type;

/*
 * y[r, p * 16 + i] = sum over k of w[p][k][i] * x[r, k]
 *
 * K may come in parts that lie apart (pages of values): part 0 holds k = 0 … k_part-1, and so on;
 * the last part may be shorter. The chain runs through all of them.
 */
typedef struct ech_mm_args {
    const void *const *w; // [n_parts, n_panels] panels, each [k][16] of the kernel's pack type
    /*
     * [n_parts, n_panels] what will be read after this call, each as long as a panel of the part,
     * or NULL. A hint: while it reads w[i], a kernel may fetch next[i], or what is as far from
     * w[i] as next[0] is from w[0], into the cache. Any address will do.
     */
    const void *const *next;
    uint32_t n_panels; // 1 … ECH_MM_MAX_PANELS
    uint32_t n_parts;  // >= 1
    uint32_t k_part;   /* columns of a part; even where there are several */
    uint32_t k_last;   /* columns of the last part, 1 … k_part */
    const void *x;     // [n_rows, k]
    size_t x_stride;   /* bytes from row to row */
    uint32_t n_rows;   /* any */
    float *y;          // [n_rows, n_panels * 16]
    size_t y_stride;   /* floats from row to row */
} ech_mm_args;

#define ECH_MM_MAX_PANELS 8

typedef void ech_mm_fn(const ech_mm_args *args);

/*
 * n columns of a panel of 16 rows as a panel of another type. Both are aligned to 64 bytes. What
 * will be read later, or NULL: a hint as in ech_mm_args.
 */
typedef void ech_panel_fn(const void *from, uint32_t n, const void *next, void *to);

typedef struct ech_cpu_ops {
    const char *name;

    /* NULL where there is no such pair. */
    ech_mm_fn *mm[ECH_PACK_COUNT][ECH_ACT_COUNT];
    /* To f32, exactly. NULL but for f16 and s8: products of bf16 widen for next to nothing. */
    ech_panel_fn *widen[ECH_PACK_COUNT];
    /* To bf16, rounded to nearest even; of an odd n the spare column is zero. Of f16 and bf16. */
    ech_panel_fn *round[ECH_PACK_COUNT];

    /* y = x * w * 1 / sqrt(mean(x²) + eps); w NULL: without. y may be x. */
    void (*rms_norm)(const float *x, const float *w, uint32_t n, float eps, float *y);
    /* Rounded to nearest even; NaN stays NaN; n rounded up to even, the spare one zero. */
    void (*to_bf16)(const float *x, uint32_t n, uint16_t *y);
    /* Rounded to nearest even; what f16 can't hold becomes its largest; NaN stays NaN. */
    void (*to_f16)(const float *x, uint32_t n, uint16_t *y);
    /*
     * Blocks [first, end) of a row of n numbers for quantised weights (quant.h), whose block sums
     * are multiplied by factor.
     */
    void (*to_q8)(const float *x, uint32_t n, int32_t factor, void *row, uint32_t first,
                  uint32_t end);
    /* y += x */
    void (*add)(float *y, const float *x, uint32_t n);
    /* y = gate / (1 + exp(-gate)) * up */
    void (*swiglu)(const float *gate, const float *up, uint32_t n, float *y);
    /*
     * s[i] = exp(s[i] * scale - m), m the largest s[i] * scale; returns the sum, *ret_max = m.
     * n >= 1.
     */
    float (*softmax)(float *s, uint32_t n, float scale, float *ret_max);
    /* y = y * a + x * b, as fma(y, a, x * b) */
    void (*mix)(float *y, float a, const float *x, float b, uint32_t n);
    /* Rotates pairs (a[i], b[i]): a' = a c - b s, b' = b c + a s; each product rounded. */
    void (*rope)(float *a, float *b, const float *cos_in, const float *sin_in, uint32_t n);
    /* y = x * a */
    void (*scale)(float *y, const float *x, float a, uint32_t n);
} ech_cpu_ops;

/* Features found, as bits; narrowed by ECHELON_CPU=ref|avx2|avx512. */
enum {
    ECH_CPU_V3 = 1 << 0, /* AVX2, FMA, F16C, BMI1/2, and the OS saves ymm */
    ECH_CPU_V4 = 1 << 1, /* V3 and AVX-512 F, BW, DQ, VL, CD, and the OS saves zmm */
    ECH_CPU_V4_VNNI = 1 << 2,
    ECH_CPU_V4_BF16 = 1 << 3,
    ECH_CPU_NEON = 1 << 4,    /* every aarch64 */
    ECH_CPU_DOTPROD = 1 << 5, /* sdot */
    ECH_CPU_I8MM = 1 << 6,    /* usmmla */
};

/* How far to go up the instruction sets. */
typedef enum ech_isa {
    ECH_ISA_AUTO,   /* the best that CPU and ECHELON_CPU allow */
    ECH_ISA_REF,    /* plain C */
    ECH_ISA_AVX2,   /* AVX2, FMA, F16C, BMI2 */
    ECH_ISA_AVX512, /* F, BW, DQ, VL; VNNI and BF16 where the CPU has them */
} ech_isa;

/* The features that a choice leaves. */
uint32_t ech_cpu_features_mask(ech_isa isa);
/* What this CPU has (CPUID and XGETBV), without narrowing. */
uint32_t ech_cpu_features(void);
/* The same, narrowed by ECHELON_CPU. EINVAL for a value that is none of its words. */
ech_status ech_cpu_features_allowed(uint32_t *ret_features, ech_error *err);
/* Fills the table for these features; ref where there is nothing better. */
void ech_cpu_ops_init(ech_cpu_ops *ops, uint32_t features);

#endif
