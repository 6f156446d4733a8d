/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine is: echelon/machine.h. Reads /proc and /sys through libc, keeps nothing; what
 * can't be read stays unknown.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "echelon/machine.h"
#include "src/base/error.h"
#include "src/chip/cpu/ops.h"
#include "src/engine/machine.h"
#include "src/model/model.h"

/* ---- files ---- */

/* What follows "key" and a colon in the first line that begins with it. */
static void read_cpu_name(char *out, size_t cap)
{
    static const char KEY[] = "model name";
    char line[256];
    FILE *const f = fopen("/proc/cpuinfo", "re");
    if (f == NULL) return;
    while (fgets(line, sizeof line, f) != NULL) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, KEY, sizeof KEY - 1) != 0 || colon == NULL) continue;
        (void)snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    (void)fclose(f);
}

/* "always within_size [advise] never" → "advise" */
static void read_choice(const char *path, char *out, size_t cap)
{
    char line[128];
    FILE *const f = fopen(path, "re");
    if (f == NULL) return;
    const bool ok = fgets(line, sizeof line, f) != NULL;
    (void)fclose(f);
    const char *const open = ok ? strchr(line, '[') : NULL;
    if (open != NULL) (void)snprintf(out, cap, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
}

/* A word of a file of the first CPU's cache. */
static bool read_cache(unsigned index, const char *name, char out[16])
{
    char path[80];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, name);
    FILE *const f = fopen(path, "re");
    if (f == NULL) return false;
    const bool ok = fscanf(f, "%15s", out) == 1;
    (void)fclose(f);
    return ok;
}

/* The data cache of a level, as the kernel sees it: sysconf() counts other guests' CPUs in on some
 * virtual machines, and names ten times the third level that is there. */
static uint64_t cache_bytes(unsigned level)
{
    char word[16], type[16];
    for (unsigned i = 0; read_cache(i, "level", word); i++) {
        if (strtoul(word, NULL, 10) != level) continue;
        if (!read_cache(i, "type", type) || strcmp(type, "Instruction") == 0) continue;
        if (!read_cache(i, "size", word)) return 0;
        return strtoull(word, NULL, 10) << (strchr(word, 'M') != NULL ? 20 : 10);
    }
    return 0;
}

static void read_limits(ech_machine_info *info)
{
    struct rlimit lock;
    struct statvfs shm;
    if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0)
        info->memlock_bytes = lock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lock.rlim_cur;
    if (statvfs("/dev/shm", &shm) == 0) info->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
    read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled", info->huge_shmem,
                sizeof info->huge_shmem);
}

/* ---- kernels ---- */

static const char *const ACTIVATIONS[ECH_ACT_COUNT] = {
    [ECH_ACT_F32] = "f32",
    [ECH_ACT_BF16] = "bf16",
    [ECH_ACT_Q8] = "q8",
};

const char *ech_machine_act_name(ech_act_type act)
{
    return ACTIVATIONS[act];
}

/* The lowest level whose table already has this kernel: the one that it was written for. */
static const char *isa_of(ech_mm_fn *fn, uint32_t weights, uint32_t activations, uint32_t features)
{
    static const struct {
        uint32_t features;
        const char *name;
    } LEVELS[] = {
        { 0, "ref" },
        { ECH_CPU_V3, "avx2" },
        { ECH_CPU_V3 | ECH_CPU_V4, "avx512" },
        { ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_VNNI, "avx512_vnni" },
        { ECH_CPU_V3 | ECH_CPU_V4 | ECH_CPU_V4_BF16, "avx512_bf16" },
    };
    ech_cpu_ops ops;
    for (size_t i = 0; i < sizeof LEVELS / sizeof LEVELS[0]; i++) {
        if ((LEVELS[i].features & ~features) != 0) continue;
        ech_cpu_ops_init(&ops, LEVELS[i].features);
        if (ops.mm[weights][activations] == fn) return LEVELS[i].name;
    }
    ech_cpu_ops_init(&ops, features);
    return ops.name;
}

const char *ech_machine_kernel(ech_pack_type weights, ech_act_type act, uint32_t features)
{
    ech_cpu_ops ops;
    ech_cpu_ops_init(&ops, features);
    return isa_of(ops.mm[weights][act], weights, act, features);
}

static void list_paths(ech_machine_info *info, uint32_t features)
{
    ech_cpu_ops ops;
    ech_cpu_ops_init(&ops, features);
    for (uint32_t w = 0; w < ECH_PACK_COUNT; w++)
        for (uint32_t a = 0; a < ECH_ACT_COUNT; a++) {
            if (ops.mm[w][a] == NULL || info->n_paths == ECH_KERNEL_PATHS_MAX) continue;
            info->paths[info->n_paths++] = (ech_kernel_path){
                .weights = ech_pack_type_name((ech_pack_type)w),
                .activations = ACTIVATIONS[a],
                .isa = isa_of(ops.mm[w][a], w, a, features),
            };
        }
}

ech_status ech_machine_info_get(ech_machine_info *ret, ech_error *err)
{
    uint32_t features;
    ech_machine m;
    ech_cpu_options cpu = { 0 };
    ECH_TRY(ech_cpu_features_allowed(&features, err));
    ech_os_machine(&m);
    ech_machine_plan_cores(&m, 0, false, &cpu);
    ech_machine_info info = {
        .struct_size = ret->struct_size,
        .n_cpus = m.n_cpus,
        .n_cores = m.n_cores,
        .n_nodes = m.n_nodes,
        .quota_cpus = m.quota_cpus,
        .threads = cpu.n_threads,
        .l1d_bytes = cache_bytes(1),
        .l2_bytes = cache_bytes(2),
        .l3_bytes = cache_bytes(3),
        .memory_bytes = m.memory_bytes,
        .memory_available = ech_memory_available(NULL),
    };
    read_cpu_name(info.cpu, sizeof info.cpu);
    read_limits(&info);
    list_paths(&info, features);
    memcpy(ret, &info, ret->struct_size < sizeof info ? ret->struct_size : sizeof info);
    return ECH_OK;
}
