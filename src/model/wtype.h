/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types as model files have them. One table: name, elements of a block, bytes of a block.
 * Types that Echelon only steps over (counters, masks) are in it too, because the size of every
 * tensor of a file is checked, used or not.
 */
#ifndef ECH_MODEL_WTYPE_H
#define ECH_MODEL_WTYPE_H

#include "src/base/buf.h"

/* X(NAME, "name", elements per block, bytes per block) */
#define ECH_WTYPE_MAP(X)                                                                           \
    X(F32, "f32", 1, 4)                                                                            \
    X(F16, "f16", 1, 2)                                                                            \
    X(BF16, "bf16", 1, 2)                                                                          \
    X(F64, "f64", 1, 8)                                                                            \
    X(I64, "i64", 1, 8)                                                                            \
    X(U64, "u64", 1, 8)                                                                            \
    X(I32, "i32", 1, 4)                                                                            \
    X(U32, "u32", 1, 4)                                                                            \
    X(I16, "i16", 1, 2)                                                                            \
    X(U16, "u16", 1, 2)                                                                            \
    X(I8, "i8", 1, 1)                                                                              \
    X(U8, "u8", 1, 1)                                                                              \
    X(BOOL, "bool", 1, 1)                                                                          \
    X(F8_E5M2, "f8_e5m2", 1, 1)                                                                    \
    X(F8_E4M3, "f8_e4m3", 1, 1)                                                                    \
    X(F8_E8M0, "f8_e8m0", 1, 1)                                                                    \
    X(C64, "c64", 1, 8)                                                                            \
    X(Q4_0, "q4_0", 32, 18)                                                                        \
    X(Q4_1, "q4_1", 32, 20)                                                                        \
    X(Q5_0, "q5_0", 32, 22)                                                                        \
    X(Q5_1, "q5_1", 32, 24)                                                                        \
    X(Q8_0, "q8_0", 32, 34)                                                                        \
    X(Q8_1, "q8_1", 32, 40)                                                                        \
    X(Q2_K, "q2_k", 256, 84)                                                                       \
    X(Q3_K, "q3_k", 256, 110)                                                                      \
    X(Q4_K, "q4_k", 256, 144)                                                                      \
    X(Q5_K, "q5_k", 256, 176)                                                                      \
    X(Q6_K, "q6_k", 256, 210)                                                                      \
    X(Q8_K, "q8_k", 256, 292)                                                                      \
    X(IQ2_XXS, "iq2_xxs", 256, 66)                                                                 \
    X(IQ2_XS, "iq2_xs", 256, 74)                                                                   \
    X(IQ2_S, "iq2_s", 256, 82)                                                                     \
    X(IQ3_XXS, "iq3_xxs", 256, 98)                                                                 \
    X(IQ3_S, "iq3_s", 256, 110)                                                                    \
    X(IQ1_S, "iq1_s", 256, 50)                                                                     \
    X(IQ1_M, "iq1_m", 256, 56)                                                                     \
    X(IQ4_NL, "iq4_nl", 32, 18)                                                                    \
    X(IQ4_XS, "iq4_xs", 256, 136)                                                                  \
    X(TQ1_0, "tq1_0", 256, 54)                                                                     \
    X(TQ2_0, "tq2_0", 256, 66)                                                                     \
    X(MXFP4, "mxfp4", 32, 17)                                                                      \
    X(NVFP4, "nvfp4", 64, 36)

typedef enum ech_wtype {
#define X(name, text, elems, bytes) ECH_WTYPE_##name,
    ECH_WTYPE_MAP(X)
#undef X
        ECH_WTYPE_COUNT,
} ech_wtype;

const char *ech_wtype_name(ech_wtype type);
uint32_t ech_wtype_block_elems(ech_wtype type);
uint32_t ech_wtype_block_bytes(ech_wtype type);
/* Reads the number that GGUF has for a type; false when there is no such type. */
bool ech_wtype_from_gguf(uint32_t number, ech_wtype *ret_type);
/* Reads a safetensors name ("BF16"); false when there is no such type. */
bool ech_wtype_from_safetensors(ech_str name, ech_wtype *ret_type);
/*
 * Bytes of a tensor of this type and shape, rows padded to nothing. False when a row isn't whole
 * blocks or the product doesn't fit 63 bits. No dimension at all is one element.
 */
bool ech_wtype_bytes(ech_wtype type, uint32_t n_dims, const uint64_t *dims, uint64_t *ret_bytes);

#endif
