/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights to quantised panels, block by block, and back. The choice of d (and m) finds again what
 * a block of Q8_0, Q4_0 or Q4_1 was made of, so that such files are repacked without a loss.
 * Any thread; a block is written by one.
 */
#include "src/chip/quant.h"

#include <math.h>
#include <string.h>

#include "src/chip/half.h"

static int32_t clamp(const float v, const int32_t lo, const int32_t hi)
{
    /* NaN and infinities of a weight can't be stored: they become lo. */
    if (!(v > (float)lo)) return lo;
    return v < (float)hi ? (int32_t)v : hi;
}

static void quantise_q8(const float *const x, const uint32_t n, ech_quant_block *const b)
{
    float max = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    b->d = ech_f16_from_f32_clamped(max / 127.0f);
    const float inverse = ech_f16_inverse(b->d);
    for (uint32_t i = 0; i < n; i++)
        b->q[i] = (uint8_t)(clamp(rintf(x[i] * inverse), -128, 127) + 128);
    for (uint32_t i = n; i < ECH_QUANT_BLOCK; i++)
        b->q[i] = 128;
}

/* Numbers 0 … 2 half - 1; that of largest magnitude becomes -half d exactly. */
static void quantise_signed(const float *const x, const uint32_t n, const float half,
                            ech_quant_block *const b)
{
    float max = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    b->d = ech_f16_from_f32_clamped(max / -half);
    const float inverse = ech_f16_inverse(b->d);
    for (uint32_t i = 0; i < n; i++)
        b->q[i] = (uint8_t)clamp(rintf(x[i] * inverse) + half, 0, 2 * (int32_t)half - 1);
    for (uint32_t i = n; i < ECH_QUANT_BLOCK; i++)
        b->q[i] = (uint8_t)half;
}

static void quantise_q4m(const float *const x, const uint32_t n, ech_quant_block *const b)
{
    float min = x[0], max = x[0];
    for (uint32_t i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    b->d = ech_f16_from_f32_clamped((max - min) / 15.0f);
    b->m = ech_f16_from_f32_clamped(min);
    const float inverse = ech_f16_inverse(b->d), m = ech_f16_to_f32(b->m);
    for (uint32_t i = 0; i < n; i++)
        b->q[i] = (uint8_t)clamp(rintf((x[i] - m) * inverse), 0, 15);
    /* Of padding the activations are 0, their sum too: any number will do. */
    for (uint32_t i = n; i < ECH_QUANT_BLOCK; i++)
        b->q[i] = 0;
}

/* ---- super-blocks ---- */

/* Scales of parts of a super-block as whole multiples of an f16, at most `most`; returns it. */
static uint16_t common_factor(const float *const scale, const uint32_t n, const float most)
{
    float max = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        max = fabsf(scale[i]) > max ? fabsf(scale[i]) : max;
    return ech_f16_from_f32_clamped(max / most);
}

static void quantise_q6k(const float *const x, ech_quant_super *const b)
{
    float scale[16];
    for (uint32_t h = 0; h < 16; h++) {
        float max = 0.0f;
        for (uint32_t i = 0; i < 16; i++)
            max = fabsf(x[16 * h + i]) > fabsf(max) ? x[16 * h + i] : max;
        scale[h] = max / -32.0f;
    }
    b->d = common_factor(scale, 16, 127.0f);
    const float inverse = ech_f16_inverse(b->d), d = ech_f16_to_f32(b->d);
    for (uint32_t h = 0; h < 16; h++) {
        b->scale[h] = (int8_t)clamp(rintf(scale[h] * inverse), -127, 127);
        const float step = d * (float)b->scale[h];
        const float by = step != 0.0f ? 1.0f / step : 0.0f;
        for (uint32_t i = 16 * h; i < 16 * h + 16; i++)
            b->q[i] = (uint8_t)clamp(rintf(x[i] * by) + 32.0f, 0, 63);
    }
}

/* Numbers 0 … most. */
static void quantise_min(const float *const x, const float most, ech_quant_super *const b)
{
    float scale[8], low[8];
    for (uint32_t j = 0; j < 8; j++) {
        float min = 0.0f, max = x[32 * j]; /* a minimum is taken away, never added */
        for (uint32_t i = 32 * j; i < 32 * j + 32; i++) {
            min = x[i] < min ? x[i] : min;
            max = x[i] > max ? x[i] : max;
        }
        scale[j] = (max - min) / most;
        low[j] = -min;
    }
    b->d = common_factor(scale, 8, 63.0f);
    b->m = common_factor(low, 8, 63.0f);
    const float d = ech_f16_to_f32(b->d), m = ech_f16_to_f32(b->m);
    for (uint32_t j = 0; j < 8; j++) {
        b->scale[j] = (int8_t)clamp(rintf(scale[j] * ech_f16_inverse(b->d)), 0, 63);
        b->min[j] = (uint8_t)clamp(rintf(low[j] * ech_f16_inverse(b->m)), 0, 63);
        const float step = d * (float)b->scale[j], taken = m * (float)b->min[j];
        const float by = step != 0.0f ? 1.0f / step : 0.0f;
        for (uint32_t i = 32 * j; i < 32 * j + 32; i++)
            b->q[i] = (uint8_t)clamp(rintf((x[i] + taken) * by), 0, (int32_t)most);
    }
}

/* Numbers of padding are those of 0, and their activations are 0: any scale will do. */
static void put_super(char *const panel, const ech_pack_type type, const uint32_t lane,
                      const uint64_t k, const float *const x, const uint32_t n)
{
    ech_quant_super b = { 0 };
    float all[ECH_QUANT_SUPER] = { 0 };
    memcpy(all, x, n * sizeof(*x));
    if (type == ECH_PACK_Q6K)
        quantise_q6k(all, &b);
    else
        quantise_min(all, type == ECH_PACK_Q4K ? 15.0f : 31.0f, &b);
    ech_quant_store_super(panel, type, lane, k, &b);
}

/* ---- panels ---- */

static uint16_t *scales_at(const char *const unit, const ech_pack_type type, const uint32_t half)
{
    return (uint16_t *)(unit + ech_quant_data_bytes(type)) + half * ECH_PANEL;
}

/* Byte of column i of a block and row `lane`, from the block's first byte. */
static size_t byte_q8(const uint32_t lane, const uint32_t i)
{
    return (size_t)(i / 4) * 64 + lane * 4 + i % 4;
}

/* Bytes before the pairs of high bits in a block of q6, and before q5k's fifth bits. */
#define PAIRS 256
#define FIFTH 256
/* Bytes of half a block of q6k. */
#define HALF_Q6K 192

/* Bits 4 and 5 of a block's numbers; ech_quant_store() writes the nibbles. */
static void store_q6(uint8_t *const data, const uint32_t lane, const ech_quant_block *const b)
{
    for (uint32_t j = 0; j < 2; j++) {
        uint32_t pairs = 0;
        for (uint32_t c = 0; c < 4; c++) {
            uint32_t q;
            memcpy(&q, b->q + (size_t)4 * (j + 2 * c), 4);
            pairs |= (q >> 4 & 0x03030303u) << 2 * c;
        }
        memcpy(data + PAIRS + byte_q8(lane, 4 * j), &pairs, 4);
    }
}

/* A half of a q6k block: three numbers fill a word's low bits, a fourth their spare ones. */
static void store_q6k(uint8_t *const data, const uint32_t lane, const uint8_t *const numbers)
{
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t last;
        memcpy(&last, numbers + h * 16 + 12, 4);
        for (uint32_t j = 0; j < 3; j++) {
            uint32_t q;
            memcpy(&q, numbers + h * 16 + (size_t)4 * j, 4);
            q |= (last >> 2 * j & 0x03030303u) << 6;
            memcpy(data + h * HALF_Q6K + byte_q8(lane, 4 * j), &q, 4);
        }
    }
}

static int32_t load_q6k(const uint8_t *data, const uint32_t lane, const uint32_t i)
{
    data += i / 16 * HALF_Q6K;
    if (i % 16 < 12) return data[byte_q8(lane, i % 16)] & 63;
    int32_t q = 0;
    for (uint32_t j = 0; j < 3; j++)
        q |= data[byte_q8(lane, 4 * j + i % 4)] >> 6 << 2 * j;
    return q;
}

/* Stored number of column i of a block. */
static int32_t load(const uint8_t *const data, const ech_pack_type type, const uint32_t lane,
                    const uint32_t i)
{
    if (type == ECH_PACK_Q8) return data[byte_q8(lane, i)];
    if (type == ECH_PACK_Q6K) return load_q6k(data, lane, i);
    const uint8_t pair = data[byte_q8(lane, i % 16)];
    const int32_t nibble = i < 16 ? pair & 15 : pair >> 4;
    if (type == ECH_PACK_Q5K)
        return nibble | (data[FIFTH + byte_q8(lane, i % 4)] >> i / 4 & 1) << 4;
    if (type != ECH_PACK_Q6) return nibble;
    const uint32_t group = i / 4;
    const uint8_t high = data[PAIRS + byte_q8(lane, group % 2 * 4 + i % 4)];
    return nibble | (high >> group / 2 * 2 & 3) << 4;
}

/* Four bytes at a time; no nibble reaches into the next byte. */
static void store_nibbles(uint8_t *const data, const uint32_t lane, const uint8_t *const q)
{
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK / 2; i += 4) {
        uint32_t low, high;
        memcpy(&low, q + i, 4);
        memcpy(&high, q + i + ECH_QUANT_BLOCK / 2, 4);
        const uint32_t both = (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4;
        memcpy(data + byte_q8(lane, i), &both, 4);
    }
}

void ech_quant_store(char *const panel, const ech_pack_type type, const uint32_t lane,
                     const uint64_t k, const ech_quant_block *const b)
{
    char *const unit = panel + k / ECH_QUANT_UNIT * ech_quant_unit_bytes(type);
    const uint32_t half = (uint32_t)(k / ECH_QUANT_BLOCK % 2);
    uint8_t *const data = (uint8_t *)unit + half * ech_quant_block_bytes(type);
    scales_at(unit, type, half)[lane] = b->d;
    if (type == ECH_PACK_Q4M) scales_at(unit, type, 2 + half)[lane] = b->m;
    if (type == ECH_PACK_Q8) {
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i += 4)
            memcpy(data + byte_q8(lane, i), b->q + i, 4);
        return;
    }
    if (type == ECH_PACK_Q6) store_q6(data, lane, b);
    store_nibbles(data, lane, b->q);
}

/* Bit 4 of a block's numbers. */
static void store_fifth(uint8_t *const data, const uint32_t lane, const uint8_t *const q)
{
    uint32_t bits = 0;
    for (uint32_t g = 0; g < 8; g++) {
        uint32_t four;
        memcpy(&four, q + (size_t)4 * g, 4);
        bits |= (four >> 4 & 0x01010101u) << g;
    }
    memcpy(data + FIFTH + byte_q8(lane, 0), &bits, 4);
}

/* Bits of a block's scale and minimum; the odd block of a pair comes second. */
static void store_scale(uint8_t *const unit, const ech_pack_type type, const uint32_t lane,
                        const uint32_t j, const ech_quant_super *const b)
{
    const uint32_t scale = (uint8_t)b->scale[j], min = b->min[j];
    uint8_t *const high = unit + ech_quant_high_at(type) + j / 2 * ECH_PANEL + lane;
    unit[ech_quant_data_bytes(type) + j * ECH_PANEL + lane] = (uint8_t)((scale & 15u) | min << 4);
    const uint32_t bits = (scale >> 4 & 3u) | (min >> 2 & 12u);
    *high = (uint8_t)(j % 2 == 0 ? bits : *high | bits << 4);
}

void ech_quant_store_super(char *const panel, const ech_pack_type type, const uint32_t lane,
                           const uint64_t k, const ech_quant_super *const b)
{
    uint8_t *const unit = (uint8_t *)panel + k / ECH_QUANT_SUPER * ech_quant_unit_bytes(type);
    const uint32_t block_bytes = ech_quant_block_bytes(type);
    const bool has_min = ech_quant_has_min(type);
    uint16_t *const factor = (uint16_t *)(unit + ech_quant_factor_at(type));
    factor[lane] = b->d;
    /* Minima have a factor; behind q6k's d are zeros, the same bytes on every machine. */
    factor[ECH_PANEL + lane] = has_min ? b->m : 0;
    for (uint32_t j = 0; j < 8; j++) {
        const uint8_t *const q = b->q + (size_t)j * ECH_QUANT_BLOCK;
        if (has_min) {
            store_nibbles(unit + j * block_bytes, lane, q);
            if (type == ECH_PACK_Q5K) store_fifth(unit + j * block_bytes, lane, q);
            store_scale(unit, type, lane, j, b);
            continue;
        }
        store_q6k(unit + j * block_bytes, lane, q);
        for (uint32_t h = 2 * j; h < 2 * j + 2; h++)
            unit[ech_quant_data_bytes(type) + h * ECH_PANEL + lane] = (uint8_t)b->scale[h];
    }
}

void ech_quantise(const ech_pack_type type, const float *const x, const uint32_t n,
                  ech_quant_block *const b)
{
    if (type == ECH_PACK_Q8) quantise_q8(x, n, b);
    if (type == ECH_PACK_Q6) quantise_signed(x, n, 32.0f, b);
    if (type == ECH_PACK_Q4) quantise_signed(x, n, 8.0f, b);
    if (type == ECH_PACK_Q4M) quantise_q4m(x, n, b);
}

void ech_quant_put(char *const panel, const ech_pack_type type, const uint32_t lane,
                   const uint64_t k, const float *const x, const uint32_t n)
{
    ech_quant_block b = { 0 };
    if (ech_quant_is_super(type)) {
        put_super(panel, type, lane, k, x, n);
        return;
    }
    ech_quantise(type, x, n, &b);
    ech_quant_store(panel, type, lane, k, &b);
}

/* What a block's numbers (q6k: a half's) are multiplied with, and what is added. */
typedef struct line {
    float d, m;
} line;

static line line_of(const uint8_t *const unit, const ech_pack_type type, const uint32_t lane,
                    const uint32_t block, const uint32_t i)
{
    const uint8_t *const scales = unit + ech_quant_data_bytes(type);
    if (type == ECH_PACK_Q6K) {
        const uint16_t *const d = (const uint16_t *)(unit + ech_quant_factor_at(type));
        const int8_t scale = (int8_t)scales[(2 * block + i / 16) * ECH_PANEL + lane];
        return (line){ ech_f16_to_f32(d[lane]) * (float)scale, 0.0f };
    }
    if (ech_quant_is_super(type)) {
        const uint16_t *const d = (const uint16_t *)(unit + ech_quant_factor_at(type));
        const uint32_t low = scales[block * ECH_PANEL + lane];
        const uint32_t high =
            (uint32_t)unit[ech_quant_high_at(type) + block / 2 * ECH_PANEL + lane] >> block % 2 * 4;
        const uint32_t scale = (low & 15u) | (high & 3u) << 4, min = low >> 4 | (high & 12u) << 2;
        return (line){ ech_f16_to_f32(d[lane]) * (float)scale,
                       -(ech_f16_to_f32(d[ECH_PANEL + lane]) * (float)min) };
    }
    const uint16_t *const d = scales_at((const char *)unit, type, block);
    return (line){ ech_f16_to_f32(d[lane]),
                   type == ECH_PACK_Q4M ? ech_f16_to_f32(d[2 * ECH_PANEL + lane]) : 0.0f };
}

void ech_quant_get(const char *const panel, const ech_pack_type type, const uint32_t lane,
                   const uint32_t n, float *const y)
{
    const uint32_t cols = ech_quant_unit_cols(type);
    for (uint32_t k = 0; k < n; k++) {
        const uint8_t *const unit =
            (const uint8_t *)panel + (size_t)(k / cols) * ech_quant_unit_bytes(type);
        const uint32_t block = k % cols / ECH_QUANT_BLOCK, i = k % ECH_QUANT_BLOCK;
        const line l = line_of(unit, type, lane, block, i);
        const int32_t q = load(unit + block * ech_quant_block_bytes(type), type, lane, i);
        if (ech_quant_has_min(type))
            y[k] = fmaf((float)q, l.d, l.m);
        else if (type == ECH_PACK_Q6K)
            y[k] = l.d * (float)(q - 32);
        else
            y[k] = l.d * (float)(q + ech_quant_factor(type));
    }
}
