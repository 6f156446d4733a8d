/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two loops of the sampler that go over a whole row of logits: block maxima, and the sum of
 * weights. Pure functions; results are the same on every CPU and with every compiler, because the
 * lanes are spelled out and nothing is contracted.
 */
#ifndef ECH_CHIP_SAMPLER_SCAN_H
#define ECH_CHIP_SAMPLER_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#define ECH_SCAN_BLOCK 64u

static inline uint32_t ech_scan_blocks(const uint32_t n)
{
    return (n + ECH_SCAN_BLOCK - 1) / ECH_SCAN_BLOCK;
}

/*
 * The largest of every 64 numbers of x[0 .. n), NaN passed over, goes to block_max; the largest of
 * all to *ret_max (-inf where there is no other). True: there is a NaN.
 */
bool ech_scan_max(const float *x, uint32_t n, float *block_max, float *ret_max);

/*
 * Sums of the weights e^z, z = (x - max) * inv_t, over x[0 .. n): *ret_mass = sum of e^z; and where
 * ret_wz isn't NULL, *ret_wz = sum of z * e^z. block_max and max are those of ech_scan_max().
 *
 * Accumulation order, in double: eight lanes, lane l takes x[l], x[l + 8], x[l + 16], …, one after
 * the other; then ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)). Blocks whose largest weight is
 * under e^-50 are left out: all of them together are less than the sum's last bit.
 */
void ech_scan_sum(const float *x, uint32_t n, const float *block_max, float max, double inv_t,
                  double *ret_mass, double *ret_wz);

#endif
