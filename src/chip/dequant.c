/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function per block type, and the table that names them. Runs in a chip while weights are
 * packed; any thread, no state. Bytes come from a file, and every pattern of them is a block.
 */
#include "src/chip/dequant.h"

#include <string.h>

#include "src/chip/half.h"

/* Numbers of a super block, of the types whose names end in _K. */
#define QK 256

static float f16_at(const uint8_t *const p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return ech_f16_to_f32(h);
}

static uint32_t u32_at(const uint8_t *const p)
{
    uint32_t u;
    memcpy(&u, p, sizeof(u));
    return u;
}

/* The types without blocks. */
static void widen(const ech_src_type type, const uint8_t *const src, const uint64_t n,
                  float *const y)
{
    if (type == ECH_SRC_F32) {
        memcpy(y, src, n * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof(h));
        y[i] = type == ECH_SRC_BF16 ? ech_bf16_to_f32(h) : ech_f16_to_f32(h);
    }
}

/* Low nibbles are the first half of a block, high nibbles the second. */
static uint32_t nibble(const uint8_t *const q, const uint32_t i)
{
    return i < 16 ? q[i] & 15u : q[i - 16] >> 4;
}

static void q4_0_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)((int32_t)nibble(b + 2, i) - 8);
}

static void q4_1_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)nibble(b + 4, i) + m;
}

static void q5_0_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    const uint32_t high = u32_at(b + 2);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)((int32_t)(nibble(b + 6, i) | (high >> i & 1u) << 4) - 16);
}

static void q5_1_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    const uint32_t high = u32_at(b + 4);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)(nibble(b + 8, i) | (high >> i & 1u) << 4) + m;
}

static void q8_0_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

const int8_t ech_iq4_nl_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113 };

static void iq4_nl_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)ech_iq4_nl_values[nibble(b + 2, i)];
}

/* e2m1 times 2, so the scale is halved. */
const int8_t ech_mxfp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

float ech_mxfp4_scale(const uint8_t e)
{
    return ech_f32_from_bits(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

static void mxfp4_block(const uint8_t *const b, float *const y)
{
    const float d = ech_mxfp4_scale(b[0]);
    for (uint32_t i = 0; i < 32; i++)
        y[i] = d * (float)ech_mxfp4_values[nibble(b + 1, i)];
}

/* Two bits of a K block: groups of 32 bytes hold 128 numbers, 32 per position of the bits. */
static uint32_t crumb(const uint8_t *const q, const uint32_t i)
{
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3u;
}

static void q2_k_block(const uint8_t *const b, float *const y)
{
    const uint8_t *const scales = b;
    const uint8_t *const q = b + 16;
    const float d = f16_at(b + 80);
    const float m = f16_at(b + 82);
    for (uint32_t i = 0; i < QK; i++) {
        const float dl = d * (float)(scales[i / 16] & 15u);
        const float ml = m * (float)(scales[i / 16] >> 4);
        y[i] = dl * (float)crumb(q, i) - ml;
    }
}

/* Scale j of 16: four low bits in the first eight bytes, two high bits in the last four. */
static int32_t q3_k_scale(const uint8_t *const s, const uint32_t j)
{
    const uint32_t low = s[j % 8] >> (j / 8 * 4) & 15u;
    const uint32_t high = s[8 + j % 4] >> (j / 4 * 2) & 3u;
    return (int32_t)(low | high << 4) - 32;
}

static void q3_k_block(const uint8_t *const b, float *const y)
{
    const uint8_t *const high = b;
    const uint8_t *const q = b + 32;
    const float d = f16_at(b + 108);
    for (uint32_t i = 0; i < QK; i++) {
        const float dl = d * (float)q3_k_scale(b + 96, i / 16);
        const int32_t offset = high[i % 32] >> (i / 32) & 1 ? 0 : 4;
        y[i] = dl * (float)((int32_t)crumb(q, i) - offset);
    }
}

void ech_q4_k_scale(const uint8_t *const s, const uint32_t j, uint32_t *const ret_scale,
                    uint32_t *const ret_min)
{
    if (j < 4) {
        *ret_scale = s[j] & 63u;
        *ret_min = s[j + 4] & 63u;
        return;
    }
    *ret_scale = (s[j + 4] & 15u) | (uint32_t)(s[j - 4] >> 6) << 4;
    *ret_min = (uint32_t)(s[j + 4] >> 4) | (uint32_t)(s[j] >> 6) << 4;
}

/* Four bits of a K block: groups of 32 bytes hold 64 numbers. */
static uint32_t k_nibble(const uint8_t *const q, const uint32_t i)
{
    return q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15u;
}

static void q4_k_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    for (uint32_t i = 0; i < QK; i++) {
        uint32_t scale = 0;
        uint32_t min = 0;
        ech_q4_k_scale(b + 4, i / 32, &scale, &min);
        const float dl = d * (float)scale;
        const float ml = m * (float)min;
        y[i] = dl * (float)k_nibble(b + 16, i) - ml;
    }
}

static void q5_k_block(const uint8_t *const b, float *const y)
{
    const float d = f16_at(b);
    const float m = f16_at(b + 2);
    const uint8_t *const high = b + 16;
    for (uint32_t i = 0; i < QK; i++) {
        uint32_t scale = 0;
        uint32_t min = 0;
        ech_q4_k_scale(b + 4, i / 32, &scale, &min);
        const float dl = d * (float)scale;
        const float ml = m * (float)min;
        const uint32_t bit = high[i % 32] >> (i / 32) & 1u;
        y[i] = dl * (float)(k_nibble(b + 48, i) | bit << 4) - ml;
    }
}

static void q6_k_block(const uint8_t *const b, float *const y)
{
    const uint8_t *const low = b;
    const uint8_t *const high = b + 128;
    const uint8_t *const scales = b + 192;
    const float d = f16_at(b + 208);
    for (uint32_t i = 0; i < QK; i++) {
        /* 64 bytes of nibbles hold 128 numbers, and beside them 32 bytes their high bits. */
        const uint32_t nib = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15u;
        const int32_t q = (int32_t)(nib | crumb(high, i) << 4) - 32;
        const float dl = d * (float)(int8_t)scales[i / 16];
        y[i] = dl * (float)q;
    }
}

typedef struct src_row {
    uint32_t elems;
    uint32_t bytes;
    void (*block)(const uint8_t *b, float *y); /* NULL: a type without blocks */
} src_row;

static const src_row ROWS[ECH_SRC_COUNT] = {
    [ECH_SRC_F32] = { 1, 4, NULL },
    [ECH_SRC_F16] = { 1, 2, NULL },
    [ECH_SRC_BF16] = { 1, 2, NULL },
    [ECH_SRC_Q4_0] = { 32, 18, q4_0_block },
    [ECH_SRC_Q4_1] = { 32, 20, q4_1_block },
    [ECH_SRC_Q5_0] = { 32, 22, q5_0_block },
    [ECH_SRC_Q5_1] = { 32, 24, q5_1_block },
    [ECH_SRC_Q8_0] = { 32, 34, q8_0_block },
    [ECH_SRC_Q2_K] = { QK, 84, q2_k_block },
    [ECH_SRC_Q3_K] = { QK, 110, q3_k_block },
    [ECH_SRC_Q4_K] = { QK, 144, q4_k_block },
    [ECH_SRC_Q5_K] = { QK, 176, q5_k_block },
    [ECH_SRC_Q6_K] = { QK, 210, q6_k_block },
    [ECH_SRC_IQ4_NL] = { 32, 18, iq4_nl_block },
    [ECH_SRC_MXFP4] = { 32, 17, mxfp4_block },
};

uint32_t ech_src_block_elems(const ech_src_type type)
{
    return (uint32_t)type < ECH_SRC_COUNT ? ROWS[type].elems : 0;
}

uint32_t ech_src_block_bytes(const ech_src_type type)
{
    return (uint32_t)type < ECH_SRC_COUNT ? ROWS[type].bytes : 0;
}

void ech_dequant(const ech_src_type type, const void *const src, const uint64_t n, float *const out)
{
    const src_row *const row = &ROWS[type];
    const uint8_t *const bytes = src;
    if (row->block == NULL) {
        widen(type, bytes, n, out);
        return;
    }
    for (uint64_t i = 0; i < n / row->elems; i++)
        row->block(bytes + i * row->bytes, out + i * row->elems);
}
