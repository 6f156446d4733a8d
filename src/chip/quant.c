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

/* Two halves, each with a scale of its own. */
static void quantise_q6k(const float *const x, const uint32_t n, ech_quant_block *const b)
{
    ech_quant_block second;
    quantise_signed(x, n < 16 ? n : 16, 32.0f, b);
    quantise_signed(x + 16, n < 16 ? 0 : n - 16, 32.0f, &second);
    memcpy(b->q + 16, second.q, 16);
    b->m = second.d;
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

static uint16_t *scales_at(const char *const unit, const ech_pack_type type, const uint32_t half)
{
    return (uint16_t *)(unit + ech_quant_data_bytes(type)) + half * ECH_PANEL;
}

/* Byte of column i of a block and row `lane`, from the block's first byte. */
static size_t byte_q8(const uint32_t lane, const uint32_t i)
{
    return (size_t)(i / 4) * 64 + lane * 4 + i % 4;
}

/* Bytes before the pairs of high bits in a block of q6. */
#define PAIRS 256
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
static void store_q6k(uint8_t *const data, const uint32_t lane, const ech_quant_block *const b)
{
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t last;
        memcpy(&last, b->q + h * 16 + 12, 4);
        for (uint32_t j = 0; j < 3; j++) {
            uint32_t q;
            memcpy(&q, b->q + h * 16 + (size_t)4 * j, 4);
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
    if (type != ECH_PACK_Q6) return nibble;
    const uint32_t group = i / 4;
    const uint8_t high = data[PAIRS + byte_q8(lane, group % 2 * 4 + i % 4)];
    return nibble | (high >> group / 2 * 2 & 3) << 4;
}

void ech_quant_store(char *const panel, const ech_pack_type type, const uint32_t lane,
                     const uint64_t k, const ech_quant_block *const b)
{
    char *const unit = panel + k / ECH_QUANT_UNIT * ech_quant_unit_bytes(type);
    const uint32_t half = (uint32_t)(k / ECH_QUANT_BLOCK % 2);
    uint8_t *const data = (uint8_t *)unit + half * ech_quant_data_bytes(type) / 2;
    scales_at(unit, type, half)[lane] = b->d;
    if (ech_quant_has_m(type)) scales_at(unit, type, 2 + half)[lane] = b->m;
    if (type == ECH_PACK_Q6K) {
        store_q6k(data, lane, b);
        return;
    }
    if (type == ECH_PACK_Q8) {
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i += 4)
            memcpy(data + byte_q8(lane, i), b->q + i, 4);
        return;
    }
    /* Four bytes at a time; no nibble reaches into the next byte. */
    if (type == ECH_PACK_Q6) store_q6(data, lane, b);
    for (uint32_t i = 0; i < ECH_QUANT_BLOCK / 2; i += 4) {
        uint32_t low, high;
        memcpy(&low, b->q + i, 4);
        memcpy(&high, b->q + i + ECH_QUANT_BLOCK / 2, 4);
        const uint32_t both = (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4;
        memcpy(data + byte_q8(lane, i), &both, 4);
    }
}

void ech_quantise(const ech_pack_type type, const float *const x, const uint32_t n,
                  ech_quant_block *const b)
{
    if (type == ECH_PACK_Q8) quantise_q8(x, n, b);
    if (type == ECH_PACK_Q6) quantise_signed(x, n, 32.0f, b);
    if (type == ECH_PACK_Q4) quantise_signed(x, n, 8.0f, b);
    if (type == ECH_PACK_Q4M) quantise_q4m(x, n, b);
    if (type == ECH_PACK_Q6K) quantise_q6k(x, n, b);
}

void ech_quant_put(char *const panel, const ech_pack_type type, const uint32_t lane,
                   const uint64_t k, const float *const x, const uint32_t n)
{
    ech_quant_block b = { 0 };
    ech_quantise(type, x, n, &b);
    ech_quant_store(panel, type, lane, k, &b);
}

void ech_quant_get(const char *const panel, const ech_pack_type type, const uint32_t lane,
                   const uint32_t n, float *const y)
{
    for (uint32_t k = 0; k < n; k++) {
        const char *const unit = panel + (size_t)(k / ECH_QUANT_UNIT) * ech_quant_unit_bytes(type);
        const uint32_t half = k / ECH_QUANT_BLOCK % 2, i = k % ECH_QUANT_BLOCK;
        const uint8_t *const data = (const uint8_t *)unit + half * ech_quant_data_bytes(type) / 2;
        const float d = ech_f16_to_f32(scales_at(unit, type, half)[lane]);
        const float m = ech_quant_has_m(type) ? ech_f16_to_f32(scales_at(unit, type, 2 + half)[lane])
                                              : 0.0f;
        const int32_t q = load(data, type, lane, i);
        if (type == ECH_PACK_Q4M)
            y[k] = fmaf((float)q, d, m);
        else if (type == ECH_PACK_Q6K)
            y[k] = (i < 16 ? d : m) * (float)(q - 32);
        else
            y[k] = d * (float)(q + ech_quant_factor(type));
    }
}
