/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function per source type: its block as one or more blocks of 32 with an f16 scale (and
 * minimum). Bytes come from a file, and every pattern of them is a block.
 */
#include "src/chip/repack.h"

#include <math.h>
#include <string.h>

#include "src/chip/dequant.h"
#include "src/chip/half.h"
#include "src/chip/quant.h"

static uint16_t u16_at(const uint8_t *const p)
{
    uint16_t u;
    memcpy(&u, p, sizeof(u));
    return u;
}

/* Low nibbles are the first half of a block, high nibbles the second. */
static uint8_t nibble(const uint8_t *const q, const uint32_t i)
{
    return i < 16 ? q[i] & 15u : q[i - 16] >> 4;
}

static void from_q8_0(const uint8_t *const b, ech_quant_block *const y)
{
    y->d = u16_at(b);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = (uint8_t)(b[2 + i] ^ 0x80u); /* q + 128 */
}

static void from_q5_0(const uint8_t *const b, ech_quant_block *const y)
{
    uint32_t high;
    memcpy(&high, b + 2, sizeof(high));
    y->d = u16_at(b);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = (uint8_t)((nibble(b + 6, i) | (high >> i & 1u) << 4) + 128 - 16);
}

static void from_q4_0(const uint8_t *const b, ech_quant_block *const y)
{
    y->d = u16_at(b);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = nibble(b + 2, i);
}

static void from_q4_1(const uint8_t *const b, ech_quant_block *const y)
{
    y->d = u16_at(b);
    y->m = u16_at(b + 2);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = nibble(b + 4, i);
}

static void from_iq4_nl(const uint8_t *const b, ech_quant_block *const y)
{
    y->d = u16_at(b);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = (uint8_t)(ech_iq4_nl_values[nibble(b + 2, i)] + 128);
}

static void from_mxfp4(const uint8_t *const b, ech_quant_block *const y)
{
    y->d = ech_f16_from_f32_clamped(ech_mxfp4_scale(b[0]));
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        y->q[i] = (uint8_t)(ech_mxfp4_values[nibble(b + 1, i)] + 128);
}

/* What q4_k and q5_k have in common: nibbles from byte `at` of the block on. */
static void from_min_k(const uint8_t *const b, const uint32_t at, ech_quant_super *const y)
{
    y->d = u16_at(b);
    y->m = u16_at(b + 2);
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t scale = 0;
        uint32_t min = 0;
        ech_q4_k_scale(b + 4, j, &scale, &min);
        y->scale[j] = (int8_t)scale;
        y->min[j] = (uint8_t)min;
        const uint8_t *const q = b + at + j / 2 * 32;
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
            y->q[j * ECH_QUANT_BLOCK + i] = q[i] >> (j % 2 * 4) & 15u;
    }
}

static void from_q4_k(const uint8_t *const b, ech_quant_super *const y)
{
    from_min_k(b, 16, y);
}

/* Bit j of fifth-bit byte i is that of number i of block j. */
static void from_q5_k(const uint8_t *const b, ech_quant_super *const y)
{
    from_min_k(b, 48, y);
    for (uint32_t i = 0; i < ECH_QUANT_SUPER; i++)
        y->q[i] |= (uint8_t)((b[16 + i % 32] >> i / 32 & 1u) << 4);
}

static void store_q8(const float *const x, const float step, ech_quant_block *const y)
{
    const float inverse = step != 0.0f ? 1.0f / step : 0.0f;
    y->d = ech_f16_from_f32_clamped(step);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++) {
        float q = x[i] * inverse;
        q = q >= -128.0f ? q : -128.0f; /* NaN too */
        y->q[i] = (uint8_t)(128 + (int32_t)lrintf(q <= 127.0f ? q : 127.0f));
    }
}

static float extreme_of(const float *const x)
{
    float extreme = 0.0f;
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    return extreme;
}

/*
 * All products of a block's scales and numbers are whole multiples of its f16, up to 128: a step of
 * that costs nothing. The largest number becomes -128, by a negative scale where need be. Blocks
 * whose numbers are zero beside the unit, or too many of it, get the usual step.
 */
static void put_q8(const float *const x, const float unit, ech_quant_block *const y)
{
    const float extreme = extreme_of(x), max = fabsf(extreme);
    if (!(max > 0.0f) || !(max < INFINITY)) {
        store_q8(x, 0.0f, y);
        return;
    }
    const float parts = 128.0f * unit / max * 1.000001f;
    const float step = parts >= 1.0f && parts < 4096.0f ? unit : max / 127.0f;
    store_q8(x, extreme > 0.0f ? -step : step, y);
}

static void from_q3_k(const uint8_t *const b, ech_quant_block *const y)
{
    float x[256];
    ech_dequant(ECH_SRC_Q3_K, b, 256, x);
    for (uint32_t j = 0; j < 8; j++)
        put_q8(x + j * ECH_QUANT_BLOCK, fabsf(ech_f16_to_f32(u16_at(b + 108))), &y[j]);
}

/* Bits of number i of 256: a low nibble and a pair of high bits, each at its place in 128 numbers.
 */
static uint8_t q6_k_at(const uint8_t *const b, const uint32_t i)
{
    const uint32_t part = i / 32 % 4;
    const uint32_t low = b[i / 128 * 64 + i % 64] >> part / 2 * 4 & 15u;
    const uint32_t high = b[128 + i / 128 * 32 + i % 32] >> part * 2 & 3u;
    return (uint8_t)(low | high << 4);
}

static void from_q6_k(const uint8_t *const b, ech_quant_super *const y)
{
    y->d = u16_at(b + 208);
    memcpy(y->scale, b + 192, sizeof(y->scale));
    for (uint32_t i = 0; i < ECH_QUANT_SUPER; i++)
        y->q[i] = q6_k_at(b, i);
}

/*
 * Numbers that are an offset and whole multiples of a unit. On a grid that divides the unit all of
 * them are off by the same part of a step, which is small for one of the divisors that can be.
 */
static void put_q8_offset(const float *const x, const float unit, const float offset,
                          ech_quant_block *const y)
{
    const float max = fabsf(extreme_of(x));
    float step = max / 127.0f;
    float least = step * step / 12.0f; /* of any numbers on that grid */
    float most = max > 0.0f ? floorf(127.0f * unit / max) : 0.0f;
    if (most > 64.0f) most = 64.0f; /* all but the offset is zero: no need to look far */
    if (!(max < INFINITY)) step = 0.0f;
    for (float parts = most; parts >= 1.0f && 2.0f * parts > most; parts -= 1.0f) {
        const float cut = unit / parts, at = offset / cut;
        const float off = (at - (float)lrintf(at)) * cut;
        if (!(off * off < least)) continue;
        least = off * off;
        step = cut;
    }
    store_q8(x, step, y);
}

static void from_q5_1(const uint8_t *const b, ech_quant_block *const y)
{
    float x[ECH_QUANT_BLOCK];
    ech_dequant(ECH_SRC_Q5_1, b, ECH_QUANT_BLOCK, x);
    put_q8_offset(x, fabsf(ech_f16_to_f32(u16_at(b))), ech_f16_to_f32(u16_at(b + 2)), y);
}

typedef struct repack_row {
    ech_pack_type type;
    void (*read)(const uint8_t *b, ech_quant_block *y); /* its blocks of 32, or */
    void (*read_super)(const uint8_t *b,
                       ech_quant_super *y); /* its 256; neither: there is no way */
} repack_row;

static const repack_row ROWS[ECH_SRC_COUNT] = {
    [ECH_SRC_Q8_0] = { ECH_PACK_Q8, from_q8_0, NULL },
    [ECH_SRC_Q5_0] = { ECH_PACK_Q8, from_q5_0, NULL },
    [ECH_SRC_Q4_0] = { ECH_PACK_Q4, from_q4_0, NULL },
    [ECH_SRC_Q4_1] = { ECH_PACK_Q4M, from_q4_1, NULL },
    [ECH_SRC_IQ4_NL] = { ECH_PACK_Q8, from_iq4_nl, NULL },
    [ECH_SRC_MXFP4] = { ECH_PACK_Q8, from_mxfp4, NULL },
    [ECH_SRC_Q4_K] = { ECH_PACK_Q4K, NULL, from_q4_k },
    [ECH_SRC_Q3_K] = { ECH_PACK_Q8, from_q3_k, NULL },
    [ECH_SRC_Q6_K] = { ECH_PACK_Q6K, NULL, from_q6_k },
    [ECH_SRC_Q5_K] = { ECH_PACK_Q5K, NULL, from_q5_k },
    [ECH_SRC_Q5_1] = { ECH_PACK_Q8, from_q5_1, NULL },
};

bool ech_repack_has(const ech_src_type source, const ech_pack_type type)
{
    return (uint32_t)source < ECH_SRC_COUNT && ROWS[source].type == type &&
           (ROWS[source].read != NULL || ROWS[source].read_super != NULL);
}

/* One block of the source to column k. */
static void repack_block(const repack_row *const row, const uint8_t *const from, const uint32_t n,
                         char *const panel, const uint32_t lane, const uint64_t k)
{
    ech_quant_block blocks[8] = { 0 };
    ech_quant_super super = { 0 };
    if (row->read_super != NULL) {
        row->read_super(from, &super);
        ech_quant_store_super(panel, row->type, lane, k, &super);
        return;
    }
    row->read(from, blocks);
    for (uint32_t j = 0; j < n / ECH_QUANT_BLOCK; j++)
        ech_quant_store(panel, row->type, lane, k + (uint64_t)j * ECH_QUANT_BLOCK, &blocks[j]);
}

void ech_repack(const ech_src_type source, const void *const src, const uint64_t n,
                char *const panel, const uint32_t lane, const uint64_t k)
{
    const uint8_t *const bytes = src;
    const uint32_t elems = ech_src_block_elems(source);
    for (uint64_t i = 0; i < n; i += elems)
        repack_block(&ROWS[source], bytes + i / elems * ech_src_block_bytes(source), elems, panel,
                     lane, k + i);
}
