/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frequencies. A power is computed in double and rounded once, the steps after it are f32 in the
 * order of the reference, so each result is the reference's to the last bit or one beside it.
 */
#include "src/model/rope.h"

#include <math.h>
#include <string.h>

static const char *const NAMES[] = {
#define X(name, text) text,
    ECH_ROPE_MAP(X)
#undef X
};

const char *ech_rope_name(const ech_rope_kind kind)
{
    return NAMES[kind];
}

bool ech_rope_kind_find(const char *const name, ech_rope_kind *const ret_kind)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            *ret_kind = (ech_rope_kind)i;
            return true;
        }
    }
    return false;
}

static double yarn_mscale(const double scale, const double mscale)
{
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

double ech_rope_yarn_attention(const double factor, const double mscale,
                               const double mscale_all_dim)
{
    if (mscale != 0.0 && mscale_all_dim != 0.0) {
        return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
    }
    return yarn_mscale(factor, 1.0);
}

/* theta ^ (2 i / head_dim) */
static float base_power(const ech_rope *const rope, const uint32_t i, const uint32_t head_dim)
{
    const float exponent = (float)(2 * i) / (float)head_dim;
    return (float)pow(rope->theta, (double)exponent);
}

/* Long wavelengths are divided by the factor, short ones kept, those between blended. */
static float llama3_freq(const ech_rope *const rope, const float freq)
{
    const float two_pi = 6.2831853071795864f;
    const float wavelen = two_pi / freq;
    const double context = rope->original_context;
    if (wavelen > (float)(context / rope->low_freq_factor)) return freq / (float)rope->factor;
    if (wavelen < (float)(context / rope->high_freq_factor)) return freq;
    const float smooth = ((float)context / wavelen - (float)rope->low_freq_factor) /
                         (float)(rope->high_freq_factor - rope->low_freq_factor);
    return (1.0f - smooth) * freq / (float)rope->factor + smooth * freq;
}

/* The dimension whose wave turns this many times within the original context. */
static double yarn_dim(const ech_rope *const rope, const double rotations, const uint32_t head_dim)
{
    const double two_pi = 6.283185307179586476925;
    return head_dim * log(rope->original_context / (rotations * two_pi)) / (2.0 * log(rope->theta));
}

static void yarn_range(const ech_rope *const rope, const uint32_t head_dim, double *const ret_low,
                       double *const ret_high)
{
    double low = yarn_dim(rope, rope->beta_fast, head_dim);
    double high = yarn_dim(rope, rope->beta_slow, head_dim);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    *ret_low = fmax(low, 0.0);
    *ret_high = fmin(high, (double)head_dim - 1.0);
    if (*ret_low == *ret_high) *ret_high += 0.001; /* the reference's guard of its division */
}

static void yarn_freqs(const ech_rope *const rope, const uint32_t head_dim, float *const inv_freq)
{
    double low = 0.0;
    double high = 0.0;
    yarn_range(rope, head_dim, &low, &high);
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        const float power = base_power(rope, i, head_dim);
        const float extrapolated = 1.0f / power;
        const float interpolated = 1.0f / ((float)rope->factor * power);
        const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0.0f), 1.0f);
        const float keep = 1.0f - ramp;
        inv_freq[i] = interpolated * (1.0f - keep) + extrapolated * keep;
    }
}

void ech_rope_inv_freq(const ech_rope *const rope, const uint32_t head_dim,
                       float *const ret_inv_freq)
{
    if (rope->kind == ECH_ROPE_YARN) {
        yarn_freqs(rope, head_dim, ret_inv_freq);
        return;
    }
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        const float freq = 1.0f / base_power(rope, i, head_dim);
        switch (rope->kind) {
        case ECH_ROPE_LINEAR:
            ret_inv_freq[i] = freq / (float)rope->factor;
            break;
        case ECH_ROPE_LLAMA3:
            ret_inv_freq[i] = llama3_freq(rope, freq);
            break;
        default:
            ret_inv_freq[i] = freq;
            break;
        }
    }
}
