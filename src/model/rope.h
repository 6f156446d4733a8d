/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding: how a config's scaling becomes one inverse frequency per pair of a
 * head, and one factor for cosine and sine. Computed as `transformers` does, in f32 where it uses
 * f32, because a frequency that is off by one ulp turns far positions visibly.
 */
#ifndef ECH_MODEL_ROPE_H
#define ECH_MODEL_ROPE_H

#include "echelon/status.h"

#define ECH_ROPE_MAP(X)                                                                            \
    X(DEFAULT, "default")                                                                          \
    X(LINEAR, "linear")                                                                            \
    X(LLAMA3, "llama3")                                                                            \
    X(YARN, "yarn")

typedef enum ech_rope_kind {
#define X(name, text) ECH_ROPE_##name,
    ECH_ROPE_MAP(X)
#undef X
} ech_rope_kind;

typedef struct ech_rope {
    ech_rope_kind kind;
    double theta;
    double factor;           /* linear, llama3, yarn */
    double original_context; /* llama3, yarn */
    double low_freq_factor;  /* llama3 */
    double high_freq_factor; /* llama3 */
    double beta_fast;        /* yarn */
    double beta_slow;        /* yarn */
    double attention_factor; /* yarn; 1 for the others */
    bool truncate;           /* yarn: correction range in whole dimensions */
} ech_rope;

const char *ech_rope_name(ech_rope_kind kind);
/* false when there is no such kind. */
bool ech_rope_kind_find(const char *name, ech_rope_kind *ret_kind);
/* YaRN's factor for cosine and sine: from factor alone, or from mscale and mscale_all_dim (0:
 * none). */
double ech_rope_yarn_attention(double factor, double mscale, double mscale_all_dim);
/* Fills ret_inv_freq[head_dim / 2]. */
void ech_rope_inv_freq(const ech_rope *rope, uint32_t head_dim, float *ret_inv_freq);

#endif
