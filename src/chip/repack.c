/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function per source type: its block as one or more blocks of 32 with an f16 scale (and
 * minimum). Bytes come from a file, and every pattern of them is a block.
 */
#include "src/chip/repack.h"

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

static void from_q4_k(const uint8_t *const b, ech_quant_block *const y)
{
    const float d = ech_f16_to_f32(u16_at(b));
    const float m = ech_f16_to_f32(u16_at(b + 2));
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t scale = 0;
        uint32_t min = 0;
        ech_q4_k_scale(b + 4, j, &scale, &min);
        y[j].d = ech_f16_from_f32_clamped(d * (float)scale);
        y[j].m = ech_f16_from_f32_clamped(-(m * (float)min));
        const uint8_t *const q = b + 16 + j / 2 * 32;
        for (uint32_t i = 0; i < ECH_QUANT_BLOCK; i++)
            y[j].q[i] = q[i] >> (j % 2 * 4) & 15u;
    }
}

typedef struct repack_row {
    ech_pack_type type;
    void (*read)(const uint8_t *b, ech_quant_block *y); /* NULL: there is no way */
} repack_row;

static const repack_row ROWS[ECH_SRC_COUNT] = {
    [ECH_SRC_Q8_0] = { ECH_PACK_Q8, from_q8_0 },     [ECH_SRC_Q5_0] = { ECH_PACK_Q8, from_q5_0 },
    [ECH_SRC_Q4_0] = { ECH_PACK_Q4, from_q4_0 },     [ECH_SRC_Q4_1] = { ECH_PACK_Q4M, from_q4_1 },
    [ECH_SRC_IQ4_NL] = { ECH_PACK_Q8, from_iq4_nl }, [ECH_SRC_MXFP4] = { ECH_PACK_Q8, from_mxfp4 },
    [ECH_SRC_Q4_K] = { ECH_PACK_Q4M, from_q4_k },
};

bool ech_repack_has(const ech_src_type source, const ech_pack_type type)
{
    return (uint32_t)source < ECH_SRC_COUNT && ROWS[source].read != NULL &&
           ROWS[source].type == type;
}

void ech_repack(const ech_src_type source, const void *const src, const uint64_t n,
                char *const panel, const ech_pack_type type, const uint32_t lane, const uint64_t k)
{
    const uint8_t *const bytes = src;
    const uint32_t elems = ech_src_block_elems(source);
    for (uint64_t i = 0; i < n; i += elems) {
        ech_quant_block blocks[8] = { 0 };
        ROWS[source].read(bytes + i / elems * ech_src_block_bytes(source), blocks);
        for (uint32_t j = 0; j < elems / ECH_QUANT_BLOCK; j++)
            ech_quant_store(panel, type, lane, k + i + (uint64_t)j * ECH_QUANT_BLOCK, &blocks[j]);
    }
}
