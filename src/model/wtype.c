/* SPDX-License-Identifier: Apache-2.0 */
/* The table of element types. Pure functions. */
#include "src/model/wtype.h"

#include <strings.h>

typedef struct wtype_row {
    const char *name;
    uint32_t elems;
    uint32_t bytes;
} wtype_row;

static const wtype_row ROWS[ECH_WTYPE_COUNT] = {
#define X(name, text, elems, bytes) [ECH_WTYPE_##name] = { text, elems, bytes },
    ECH_WTYPE_MAP(X)
#undef X
};

/* The size that a dimension product may reach: file offsets are signed 64-bit numbers. */
#define BYTES_MAX ((uint64_t)INT64_MAX)

const char *ech_wtype_name(const ech_wtype type)
{
    return ROWS[type].name;
}
uint32_t ech_wtype_block_elems(const ech_wtype type)
{
    return ROWS[type].elems;
}
uint32_t ech_wtype_block_bytes(const ech_wtype type)
{
    return ROWS[type].bytes;
}

bool ech_wtype_from_safetensors(const ech_str name, ech_wtype *const ret_type)
{
    static const struct {
        const char *name;
        ech_wtype type;
    } NAMES[] = {
        { "F32", ECH_WTYPE_F32 },         { "F16", ECH_WTYPE_F16 },
        { "BF16", ECH_WTYPE_BF16 },       { "F64", ECH_WTYPE_F64 },
        { "I64", ECH_WTYPE_I64 },         { "U64", ECH_WTYPE_U64 },
        { "I32", ECH_WTYPE_I32 },         { "U32", ECH_WTYPE_U32 },
        { "I16", ECH_WTYPE_I16 },         { "U16", ECH_WTYPE_U16 },
        { "I8", ECH_WTYPE_I8 },           { "U8", ECH_WTYPE_U8 },
        { "BOOL", ECH_WTYPE_BOOL },       { "F8_E5M2", ECH_WTYPE_F8_E5M2 },
        { "F8_E4M3", ECH_WTYPE_F8_E4M3 }, { "F8_E8M0", ECH_WTYPE_F8_E8M0 },
        { "C64", ECH_WTYPE_C64 },
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (ech_str_eq(name, ech_str_from(NAMES[i].name))) {
            *ret_type = NAMES[i].type;
            return true;
        }
    }
    return false;
}

bool ech_wtype_from_gguf(const uint32_t number, ech_wtype *const ret_type)
{
    /* The format's numbers; those between them were types that no reader has any more. */
    static const struct {
        uint32_t number;
        ech_wtype type;
    } NUMBERS[] = {
        { 0, ECH_WTYPE_F32 },     { 1, ECH_WTYPE_F16 },      { 2, ECH_WTYPE_Q4_0 },
        { 3, ECH_WTYPE_Q4_1 },    { 6, ECH_WTYPE_Q5_0 },     { 7, ECH_WTYPE_Q5_1 },
        { 8, ECH_WTYPE_Q8_0 },    { 9, ECH_WTYPE_Q8_1 },     { 10, ECH_WTYPE_Q2_K },
        { 11, ECH_WTYPE_Q3_K },   { 12, ECH_WTYPE_Q4_K },    { 13, ECH_WTYPE_Q5_K },
        { 14, ECH_WTYPE_Q6_K },   { 15, ECH_WTYPE_Q8_K },    { 16, ECH_WTYPE_IQ2_XXS },
        { 17, ECH_WTYPE_IQ2_XS }, { 18, ECH_WTYPE_IQ3_XXS }, { 19, ECH_WTYPE_IQ1_S },
        { 20, ECH_WTYPE_IQ4_NL }, { 21, ECH_WTYPE_IQ3_S },   { 22, ECH_WTYPE_IQ2_S },
        { 23, ECH_WTYPE_IQ4_XS }, { 24, ECH_WTYPE_I8 },      { 25, ECH_WTYPE_I16 },
        { 26, ECH_WTYPE_I32 },    { 27, ECH_WTYPE_I64 },     { 28, ECH_WTYPE_F64 },
        { 29, ECH_WTYPE_IQ1_M },  { 30, ECH_WTYPE_BF16 },    { 34, ECH_WTYPE_TQ1_0 },
        { 35, ECH_WTYPE_TQ2_0 },  { 39, ECH_WTYPE_MXFP4 },   { 40, ECH_WTYPE_NVFP4 },
    };
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        if (NUMBERS[i].number == number) {
            *ret_type = NUMBERS[i].type;
            return true;
        }
    }
    return false;
}

bool ech_wtype_bytes(const ech_wtype type, const uint32_t n_dims, const uint64_t *const dims,
                     uint64_t *const ret_bytes)
{
    const uint64_t row = n_dims > 0 ? dims[n_dims - 1] : 1;
    if (row % ROWS[type].elems != 0) return false;
    uint64_t bytes = row / ROWS[type].elems;
    if (__builtin_mul_overflow(bytes, (uint64_t)ROWS[type].bytes, &bytes)) return false;
    /* A zero anywhere makes the product zero; a later overflow can't be hidden by it. */
    for (uint32_t i = 0; i + 1 < n_dims; i++) {
        if (__builtin_mul_overflow(bytes, dims[i], &bytes)) return false;
    }
    if (bytes > BYTES_MAX) return false;
    *ret_bytes = bytes;
    return true;
}
