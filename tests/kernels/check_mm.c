/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products against ref: every pair of types, panels, rows, odd and even k, unaligned
 * activations, K in parts, gaps between output rows. f32 activations: equal bits. bf16: within
 * 1e-5 of the sum of magnitudes, since CPUs add a pair in their own way. Quantised: equal bits,
 * with bytes at their extremes. And for all: a row's bits don't depend on the rows beside it.
 * Panels as another type: equal bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/half.h"
#include "src/chip/quant.h"
#include "tests/kernels/kernels.h"

#define GAP    3          /* floats between output rows */
#define CANARY 12345.678f /* in them */

static const char *const act_names[ECH_ACT_COUNT] = { "f32", "bf16", "q8" };

typedef struct mm_case {
    ech_pack_type type;
    ech_act_type act;
    uint32_t n_panels, n_rows, k, n_parts, k_part, k_last; /* k in all */
    bool odd;
    void *w;
    const void *panels[4 * ECH_MM_MAX_PANELS];
    char *x;
    float *start; /* of accumulation, and canaries */
    size_t w_bytes, x_bytes, x_stride, y_stride, y_bytes;
} mm_case;

/* One of several kinds of bytes: the extremes that would saturate, and random ones. */
static void fill_bytes(uint8_t *const to, const size_t n, const uint8_t low, const uint8_t high)
{
    const uint64_t kind = draw() % 5;
    for (size_t i = 0; i < n; i++)
        to[i] = kind == 0   ? low
                : kind == 1 ? high
                : kind == 2 ? (i % 2 == 0 ? low : high)
                : kind == 3 ? (i / 4 % 2 == 0 ? low : high)
                            : (uint8_t)draw();
}

/* d, and m, of every row and block. */
static void fill_scales(uint16_t *const to, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = ech_f16_from_f32(draw_f32(false));
}

/* Numbers and scales in bytes are any; factors in f16 follow. */
static void fill_quant_panel(const mm_case *const c, char *const at)
{
    const uint32_t unit = ech_quant_unit_bytes(c->type);
    const uint32_t bytes =
        ech_quant_is_super(c->type) ? ech_quant_factor_at(c->type) : ech_quant_data_bytes(c->type);
    for (size_t u = 0; u < ech_panel_bytes(c->type, c->k_last) / unit; u++) {
        fill_bytes((uint8_t *)at + u * unit, bytes, 0, 255);
        fill_scales((uint16_t *)(at + u * unit + bytes), (unit - bytes) / 2);
    }
}

/* Activations -127 … 127 and their corrections. */
static void fill_quant_row(const mm_case *const c, char *const row)
{
    const uint32_t n_blocks = ech_quant_blocks(c->k_last);
    int8_t *const q = (int8_t *)row;
    float *const s = (float *)(row + (size_t)n_blocks * ECH_QUANT_BLOCK);
    int32_t *const sums = (int32_t *)(s + n_blocks);
    for (uint32_t b = 0; b < n_blocks; b++) {
        int8_t *const block = q + (size_t)b * ECH_QUANT_BLOCK;
        fill_bytes((uint8_t *)block, ECH_QUANT_BLOCK, 0x81, 0x7f);
        int32_t sums_of[2] = { 0, 0 };
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++) {
            if (block[i] == -128) block[i] = 127;
            sums_of[i / 16] += block[i];
        }
        s[b] = draw_f32(c->odd);
        ech_quant_put_c(sums, b, sums_of[0], sums_of[1], ech_quant_factor(c->type));
    }
}

static void fill_panel(const mm_case *const c, char *const at, const uint32_t k)
{
    if (ech_pack_is_quant(c->type)) {
        fill_quant_panel(c, at);
        return;
    }
    const uint32_t k_pad = c->type == ECH_PACK_BF16 ? (k + 1) / 2 * 2 : k;
    for (size_t i = 0; i < (size_t)k_pad * ECH_PANEL; i++) {
        const float v = draw_f32(c->odd);
        if (c->type == ECH_PACK_F32) ((float *)at)[i] = v;
        if (c->type == ECH_PACK_F16) ((uint16_t *)at)[i] = ech_f16_from_f32(v);
        if (c->type == ECH_PACK_BF16) ((uint16_t *)at)[i] = ech_bf16_from_f32(v);
        if (c->type == ECH_PACK_S8) ((int8_t *)at)[i] = (int8_t)draw();
    }
    /* The padding of an odd k is zero, as the image promises. */
    for (uint32_t i = 0; i < ECH_PANEL && k_pad != k; i++)
        ((uint16_t *)at)[((size_t)(k / 2) * ECH_PANEL + i) * 2 + 1] = 0;
}

/* Panels lie in memory in another order than the kernel takes them. */
static void fill_weights(mm_case *const c)
{
    const size_t panel = ech_panel_bytes(c->type, c->k_part);
    const uint32_t n = c->n_panels * c->n_parts;
    for (uint32_t i = 0; i < n; i++) {
        char *const at = (char *)c->w + (n - 1 - i) * panel;
        fill_panel(c, at, i / c->n_panels == c->n_parts - 1 ? c->k_last : c->k_part);
        c->panels[i] = at;
    }
}

static void fill_activations(mm_case *const c)
{
    for (uint32_t r = 0; r < c->n_rows && ech_pack_is_quant(c->type); r++)
        fill_quant_row(c, c->x + r * c->x_stride);
    for (uint32_t r = 0; r < c->n_rows && !ech_pack_is_quant(c->type); r++)
        for (uint32_t k = 0; k < c->x_stride / (c->act == ECH_ACT_F32 ? 4 : 2); k++) {
            const float v = draw_f32(c->odd);
            if (c->act == ECH_ACT_F32)
                ((float *)(c->x + r * c->x_stride))[k] = v;
            else
                ((uint16_t *)(c->x + r * c->x_stride))[k] = k < c->k ? ech_bf16_from_f32(v) : 0;
        }
}

static void open_case(mm_case *const c)
{
    c->k = (c->n_parts - 1) * c->k_part + c->k_last;
    c->w_bytes = c->n_panels * c->n_parts * ech_panel_bytes(c->type, c->k_part);
    /* Odd multiples of 4: rows are aligned to nothing more. */
    c->x_stride = ech_pack_is_quant(c->type)
                      ? ech_quant_row_bytes(c->k_last) + (draw() % 2) * 4
                      : (c->k + 1) / 2 * 4 * (c->act == ECH_ACT_F32 ? 2 : 1) + (draw() % 2) * 4;
    c->x_bytes = c->n_rows * c->x_stride;
    c->y_stride = c->n_panels * ECH_PANEL + GAP;
    c->y_bytes = c->n_rows * c->y_stride * sizeof(float);
    c->w = guard_alloc(c->w_bytes);
    c->x = guard_alloc(c->x_bytes);
    c->start = malloc(c->y_bytes);
    fill_weights(c);
    fill_activations(c);
    for (size_t i = 0; i < c->y_bytes / sizeof(float); i++)
        c->start[i] = i % c->y_stride < c->y_stride - GAP ? draw_f32(false) : CANARY;
}

static void close_case(mm_case *const c)
{
    guard_free(c->w, c->w_bytes);
    guard_free(c->x, c->x_bytes);
    free(c->start);
}

/* Rows [r, r + n) into y, which begins as `start`. */
static void run(const mm_case *const c, const ech_cpu_ops *const ops, float *const y,
                const uint32_t r, const uint32_t n)
{
    ops->mm[c->type][c->act](&(ech_mm_args){
        .w = c->panels,
        .n_panels = c->n_panels,
        .n_parts = c->n_parts,
        .k_part = c->k_part,
        .k_last = c->k_last,
        .x = c->x + r * c->x_stride,
        .x_stride = c->x_stride,
        .n_rows = n,
        .y = y + r * c->y_stride,
        .y_stride = c->y_stride,
    });
}

/* How far bf16 results may be apart: the chain's magnitude is at most k * 30 * 30. */
static bool close_enough(const mm_case *const c, const float a, const float b)
{
    if (c->act != ECH_ACT_BF16 || c->odd) return same_f32(a, b);
    return fabsf(a - b) <= 1e-5f * (float)c->k * 30.0f + 1e-6f * fabsf(a);
}

static void compare(const level *const l, const mm_case *const c, const float *const got,
                    const float *const want)
{
    n_checks++;
    for (size_t i = 0; i < c->y_bytes / sizeof(float); i++) {
        const bool in_gap = i % c->y_stride >= c->y_stride - GAP;
        if (in_gap ? got[i] == CANARY : close_enough(c, got[i], want[i])) continue;
        report(l->name, "mm",
               "%s x %s, %u panels, %u rows, k %u in %u parts: row %zu column %zu "
               "is %.9g, expected %.9g",
               ech_pack_type_name(c->type), act_names[c->act], c->n_panels, c->n_rows, c->k,
               c->n_parts, i / c->y_stride, i % c->y_stride, (double)got[i], (double)want[i]);
        return;
    }
}

static void check_case(const level *const l, mm_case *const c)
{
    open_case(c);
    float *const got = guard_alloc(c->y_bytes), *const want = malloc(c->y_bytes);
    memcpy(got, c->start, c->y_bytes);
    memcpy(want, c->start, c->y_bytes);
    run(c, &l->ops, got, 0, c->n_rows);
    run(c, &ref_ops, want, 0, c->n_rows);
    if (!(c->odd && c->act == ECH_ACT_BF16)) compare(l, c, got, want);
    /* The same, one row at a time: equal bits whatever the type. */
    memcpy(want, c->start, c->y_bytes);
    for (uint32_t r = 0; r < c->n_rows; r++)
        run(c, &l->ops, want, r, 1);
    for (size_t i = 0; i < c->y_bytes / sizeof(float); i++)
        if (!same_f32(got[i], want[i])) {
            report(l->name, "mm", "%s x %s, %u panels, k %u: row %zu of %u has other bits alone",
                   ech_pack_type_name(c->type), act_names[c->act], c->n_panels, c->k,
                   i / c->y_stride, c->n_rows);
            break;
        }
    guard_free(got, c->y_bytes);
    free(want);
    close_case(c);
}

static void check_rows(const level *const l, const ech_pack_type type, const ech_act_type act,
                       const uint32_t rows)
{
    static const uint32_t ks[] = { 1, 2, 3, 15, 16, 17, 33, 64, 129, 256, 400 };
    if (rows > most_rows) return;
    mm_case c = {
        .type = type,
        .act = act,
        .n_panels = 1 + (uint32_t)(draw() % ECH_MM_MAX_PANELS),
        .n_rows = rows,
        .n_parts = act == ECH_ACT_Q8 || draw() % 2 == 0 ? 1 : 1 + (uint32_t)(draw() % 4),
        .k_last = ks[draw() % (sizeof(ks) / sizeof(ks[0]))],
        .odd = draw() % 4 == 0,
    };
    c.k_part = c.n_parts == 1 ? c.k_last : (c.k_last + 1) / 2 * 2;
    check_case(l, &c);
}

/* ---- panels of another type -------------------------------------------------------------------
 */

static void check_panel(const level *const l, const char *const kernel, ech_panel_fn *const fn,
                        ech_panel_fn *const ref, const mm_case *const c, const size_t bytes)
{
    char *const got = guard_alloc(bytes), *const want = guard_alloc(bytes);
    n_checks++;
    fn(c->w, c->k_last, NULL, got);
    ref(c->w, c->k_last, c->w, want);
    if (memcmp(got, want, bytes) != 0)
        report(l->name, kernel, "%s, %u columns: other bits", ech_pack_type_name(c->type),
               c->k_last);
    guard_free(got, bytes);
    guard_free(want, bytes);
}

static void check_panels_of(const level *const l, mm_case *const c)
{
    const uint32_t n = c->k_last;
    const size_t bytes = (ech_panel_bytes(c->type, n) + 63) / 64 * 64;
    c->w = guard_alloc(bytes);
    fill_panel(c, c->w, n);
    if (ref_ops.widen[c->type] != NULL)
        check_panel(l, "widen", l->ops.widen[c->type], ref_ops.widen[c->type], c,
                    (size_t)n * ECH_PANEL * sizeof(float));
    if (ref_ops.round[c->type] != NULL)
        check_panel(l, "round", l->ops.round[c->type], ref_ops.round[c->type], c,
                    ech_panel_bytes(ECH_PACK_BF16, n));
    guard_free(c->w, bytes);
}

static void check_panels(const level *const l)
{
    static const ech_pack_type types[] = { ECH_PACK_F16, ECH_PACK_BF16, ECH_PACK_S8 };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (uint32_t n = 1; n <= 40; n++)
            check_panels_of(l, &(mm_case){ .type = types[i], .k_last = n, .odd = n % 3 == 0 });
}

/* Longer rows than any whose scales are prepared (mm_prepared.h), and the longest that are. */
static void check_long(const level *const l, const ech_pack_type type)
{
    for (uint32_t k = 32768; k <= 32769 && ech_quant_is_super(type) && most_rows >= 13; k++) {
        mm_case c = { .type = type, .act = ECH_ACT_Q8, .n_panels = 3, .n_rows = 13, .n_parts = 1 };
        c.k_last = c.k_part = k;
        check_case(l, &c);
    }
}

void check_mm(const level *const l)
{
    for (int type = 0; type < ECH_PACK_COUNT; type++)
        if (l->ops.mm[type][ECH_ACT_Q8] != NULL) check_long(l, (ech_pack_type)type);
    check_panels(l);
    for (int type = 0; type < ECH_PACK_COUNT; type++)
        for (int act = 0; act < ECH_ACT_COUNT; act++) {
            if (l->ops.mm[type][act] == NULL) continue;
            for (uint32_t rows = 1; rows <= 64; rows++)
                for (int i = 0; i < (rows <= 16 ? 6 : 3); i++)
                    check_rows(l, (ech_pack_type)type, (ech_act_type)act, rows);
            static const uint32_t many[] = { 65, 96, 127, 256, 511, 512 };
            for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
                check_rows(l, (ech_pack_type)type, (ech_act_type)act, many[i]);
        }
}
