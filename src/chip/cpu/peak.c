/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the peak loops: ref first, then upward for what the CPU has. See peak.h. */
#include "src/chip/cpu/peak.h"

#include "src/chip/cpu/ops.h"

static void set(ech_peak_ops *const ops, const ech_peak_kind kind, ech_peak_fn *const fn,
                const char *const loop)
{
    ops->peak[kind] = fn;
    ops->loop[kind] = loop;
}

static void use_f32(ech_peak_ops *const ops, ech_peak_fn *const fn, const char *const loop)
{
    set(ops, ECH_PEAK_OF_F32, fn, loop);
    set(ops, ECH_PEAK_OF_BF16, fn, loop); /* until there is something of its own */
}

#if defined(__x86_64__)
static void use_x86(ech_peak_ops *const ops, const uint32_t features)
{
    if ((features & ECH_CPU_V3) == 0) return;
    set(ops, ECH_PEAK_OF_INT8, ech_peak_int8_avx2, "vpmaddubsw+vpmaddwd+vpaddd ymm");
    use_f32(ops, ech_peak_f32_avx2, "vfmadd231ps ymm");
    ops->read = ech_peak_read_avx2;
    if ((features & ECH_CPU_V4) == 0) return;
    use_f32(ops, ech_peak_f32_avx512, "vfmadd231ps zmm");
    ops->read = ech_peak_read_avx512;
    if ((features & ECH_CPU_V4_VNNI) != 0)
        set(ops, ECH_PEAK_OF_INT8, ech_peak_int8_avx512_vnni, "vpdpbusd zmm");
    if ((features & ECH_CPU_V4_BF16) != 0)
        set(ops, ECH_PEAK_OF_BF16, ech_peak_bf16_avx512_bf16, "vdpbf16ps zmm");
}
#endif

void ech_peak_ops_init(ech_peak_ops *const ops, const uint32_t features)
{
    set(ops, ECH_PEAK_OF_INT8, ech_peak_int8_ref, "plain C");
    use_f32(ops, ech_peak_f32_ref, "plain C");
    ops->read = ech_peak_read_ref;
#if defined(__x86_64__)
    use_x86(ops, features);
#else
    (void)features;
#endif
}
