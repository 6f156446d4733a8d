/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: see settings.h. */
#include "src/runtime/settings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"

enum { HEAP, WINDOW, POOL, N_KINDS };

static const struct {
    const char *name, *alias;
    uint64_t built_in;
} kinds[N_KINDS] = {
    [HEAP] = { "ECHELON_RING_HEAP", "PTO2_RING_HEAP", UINT64_C(16) << 20 },
    [WINDOW] = { "ECHELON_RING_TASK_WINDOW", "PTO2_RING_TASK_WINDOW", 4096 },
    [POOL] = { "ECHELON_RING_DEP_POOL", "PTO2_RING_DEP_POOL", 16384 },
};

static uint64_t field(const ech_ring_sizes *const s, const int kind, const uint32_t ring)
{
    if (s == NULL) return 0;
    if (kind == HEAP) return s->heap_bytes[ring];
    return kind == WINDOW ? s->task_window[ring] : s->dep_pool[ring];
}

static void set_field(ech_ring_sizes *const s, const int kind, const uint32_t ring,
                      const uint64_t value)
{
    if (kind == HEAP) {
        s->heap_bytes[ring] = value;
    } else if (kind == WINDOW) {
        s->task_window[ring] = (uint32_t)value;
    } else {
        s->dep_pool[ring] = (uint32_t)value;
    }
}

/* What is wrong with a value, NULL when nothing is. */
static const char *complaint(const int kind, const uint64_t value)
{
    if (kind == HEAP)
        return value % 64 != 0 || value > UINT64_C(1) << 46 ? "must be a multiple of 64" : NULL;
    if (value < 4) return "must be at least 4";
    if (value > UINT64_C(1) << 27) return "must be at most 2^27";
    if (kind == WINDOW && (value & (value - 1)) != 0) return "must be a power of two";
    return NULL;
}

ech_status ech_settings_check(const ech_ring_sizes *const sizes, const char *const where,
                              ech_error *const err)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (uint32_t r = 0; r < ECH_RINGS; r++) {
            const uint64_t v = field(sizes, kind, r);
            const char *const bad = v != 0 ? complaint(kind, v) : NULL;
            if (bad != NULL)
                return ech_fail(err, ECH_EINVAL, "%s: %s of ring %u is %llu, it %s", where,
                                kinds[kind].name, r, (unsigned long long)v, bad);
        }
    }
    return ECH_OK;
}

/* One number, or four separated by commas. Bytes may carry k, m or g. */
static bool parse(const char *text, uint64_t out[ECH_RINGS])
{
    uint32_t n = 0;
    for (; n < ECH_RINGS; n++) {
        char *end;
        errno = 0;
        if (*text < '0' || *text > '9') return false;
        out[n] = strtoull(text, &end, 10);
        if (errno != 0) return false;
        const int shift = *end == 'k' || *end == 'K'   ? 10
                          : *end == 'm' || *end == 'M' ? 20
                          : *end == 'g' || *end == 'G' ? 30
                                                       : 0;
        if (shift != 0 && out[n] >> (63 - shift) != 0) return false;
        out[n] <<= shift;
        end += shift != 0;
        if (*end == '\0') break;
        if (*end != ',') return false;
        text = end + 1;
    }
    if (n == 0) out[1] = out[2] = out[3] = out[0];
    return n == 0 || n == ECH_RINGS - 1;
}

static ech_status from_environment(const int kind, uint64_t out[ECH_RINGS], ech_error *const err)
{
    const char *name = kinds[kind].name;
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        name = kinds[kind].alias;
        text = getenv(name);
    }
    for (uint32_t r = 0; r < ECH_RINGS; r++)
        out[r] = kinds[kind].built_in;
    if (text == NULL || *text == '\0') return ECH_OK;
    if (!parse(text, out))
        return ech_fail(err, ECH_EINVAL,
                        "reading %s='%s': it must be one number, or four separated by commas", name,
                        text);
    for (uint32_t r = 0; r < ECH_RINGS; r++) {
        const char *const bad = complaint(kind, out[r]);
        if (bad != NULL)
            return ech_fail(err, ECH_EINVAL, "reading %s='%s': the value of ring %u %s", name, text,
                            r, bad);
    }
    return ECH_OK;
}

ech_status ech_settings_rings(const ech_ring_sizes *const first, const ech_ring_sizes *const second,
                              ech_ring_sizes *const ret_sizes, ech_error *const err)
{
    ech_ring_sizes out;
    if (first != NULL) ECH_TRY(ech_settings_check(first, "checking the dispatch's rings", err));
    if (second != NULL) ECH_TRY(ech_settings_check(second, "checking options.rings", err));
    for (int kind = 0; kind < N_KINDS; kind++) {
        uint64_t env[ECH_RINGS];
        ECH_TRY(from_environment(kind, env, err));
        for (uint32_t r = 0; r < ECH_RINGS; r++) {
            uint64_t v = field(first, kind, r);
            if (v == 0) v = field(second, kind, r);
            set_field(&out, kind, r, v != 0 ? v : env[r]);
        }
    }
    *ret_sizes = out;
    return ECH_OK;
}

ech_status ech_settings_stall(const double option, double *const ret_seconds, ech_error *const err)
{
    if (!isfinite(option) || option < 0)
        return ech_fail(err, ECH_EINVAL, "checking options.stall_limit_s: %g is not a time",
                        option);
    *ret_seconds = option > 0 ? option : 30;
    const char *const text = getenv("ECHELON_STALL_LIMIT");
    if (option > 0 || text == NULL || *text == '\0') return ECH_OK;
    char *end;
    const double v = strtod(text, &end);
    if (*end != '\0' || !isfinite(v) || v <= 0)
        return ech_fail(err, ECH_EINVAL,
                        "reading ECHELON_STALL_LIMIT='%s': it must be seconds above 0", text);
    *ret_seconds = v;
    return ECH_OK;
}
