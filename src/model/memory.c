/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory is left: MemAvailable of /proc/meminfo, and for each cgroup from this process's own
 * up to the root, its limit less what it holds that can't be given back. Both versions of cgroups.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/model/model.h"

#define TEXT_MAX (1u << 20)

/* The number after key at the beginning of a line; false when there is none. */
static bool number_after(const char *const text, const char *const key, uint64_t *const ret)
{
    const size_t len = strlen(key);
    for (const char *line = text; line != NULL;
         line = strchr(line, '\n'), line = line != NULL ? line + 1 : NULL) {
        if (strncmp(line, key, len) != 0) continue;
        return sscanf(line + len, " %" SCNu64, ret) == 1;
    }
    return false;
}

/* A number alone in a file of a cgroup; false for "max" or no such file. */
static bool read_number(const char *const folder, const char *const file, uint64_t *const ret)
{
    char path[1024];
    ech_buf text = { 0 };
    const int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    const bool found = n > 0 && (size_t)n < sizeof path &&
                       ech_buf_read_file(&text, path, TEXT_MAX, NULL) == ECH_OK && text.len > 0 &&
                       number_after(text.data, "", ret);
    ech_buf_fini(&text);
    return found;
}

/* Page cache of the group that the kernel takes back first. */
static uint64_t reclaimable(const char *const folder)
{
    char path[1024];
    ech_buf text = { 0 };
    uint64_t bytes = 0;
    const int n = snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (n > 0 && (size_t)n < sizeof path &&
        ech_buf_read_file(&text, path, TEXT_MAX, NULL) == ECH_OK && text.len > 0) {
        if (!number_after(text.data, "total_inactive_file", &bytes))
            (void)number_after(text.data, "inactive_file", &bytes);
    }
    ech_buf_fini(&text);
    return bytes;
}

/* Lowers *left by what one group allows. */
static bool apply_group(const char *const folder, uint64_t *const left)
{
    uint64_t limit = 0;
    uint64_t used = 0;
    const bool v2 =
        read_number(folder, "memory.max", &limit) && read_number(folder, "memory.current", &used);
    if (!v2 && !(read_number(folder, "memory.limit_in_bytes", &limit) &&
                 read_number(folder, "memory.usage_in_bytes", &used))) {
        return false;
    }
    const uint64_t cache = reclaimable(folder);
    used = used > cache ? used - cache : 0;
    const uint64_t room = limit > used ? limit - used : 0;
    if (room >= *left) return false;
    *left = room;
    return true;
}

/* From the group to the root of its hierarchy: any of them may be the tightest. */
static bool apply_groups(const char *const root, const char *const group, uint64_t *const left)
{
    char folder[1024];
    const int n = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (n <= 0 || (size_t)n >= sizeof folder) return false;
    bool lowered = false;
    for (;;) {
        lowered = apply_group(folder, left) || lowered;
        char *const slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < strlen(root)) return lowered;
        *slash = '\0';
    }
}

/* Each line of /proc/self/cgroup: "0::/path" (v2) or "9:memory:/path" (v1). */
static bool apply_cgroups(uint64_t *const left)
{
    ech_buf text = { 0 };
    bool lowered = false;
    if (ech_buf_read_file(&text, "/proc/self/cgroup", TEXT_MAX, NULL) == ECH_OK && text.len > 0) {
        char *save = NULL;
        for (char *line = strtok_r(text.data, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            const char *const first = strchr(line, ':');
            const char *const second = first != NULL ? strchr(first + 1, ':') : NULL;
            if (second == NULL) continue;
            if (strncmp(line, "0::", 3) == 0)
                lowered = apply_groups("/sys/fs/cgroup", second + 1, left) || lowered;
            if (strncmp(first, ":memory:", 8) == 0)
                lowered = apply_groups("/sys/fs/cgroup/memory", second + 1, left) || lowered;
        }
    }
    ech_buf_fini(&text);
    return lowered;
}

uint64_t ech_memory_available(const char **const ret_limit)
{
    uint64_t left = UINT64_MAX;
    ech_buf text = { 0 };
    uint64_t kib = 0;
    if (ech_buf_read_file(&text, "/proc/meminfo", TEXT_MAX, NULL) == ECH_OK && text.len > 0 &&
        number_after(text.data, "MemAvailable:", &kib)) {
        left = kib * 1024;
    }
    ech_buf_fini(&text);
    const bool by_group = apply_cgroups(&left);
    if (ret_limit != NULL)
        *ret_limit = by_group ? "the memory limit of the cgroup" : "the machine's memory";
    return left;
}
