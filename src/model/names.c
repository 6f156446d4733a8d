/* SPDX-License-Identifier: Apache-2.0 */
/* Small checks of names, small work with paths. No state. */
#include "src/model/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ech_name_is_plain(const char *const name)
{
    const size_t len = strnlen(name, ECH_NAME_MAX + 1);
    if (len == 0 || len > ECH_NAME_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f) return false;
    }
    return true;
}

bool ech_name_is_file(const char *const name)
{
    return ech_name_is_plain(name) && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

char *ech_path_join(const char *const folder, const char *const name)
{
    if (name == NULL) return strdup(folder);
    const size_t len = strlen(folder);
    const char *const slash = len > 0 && folder[len - 1] == '/' ? "" : "/";
    char *joined = NULL;
    return asprintf(&joined, "%s%s%s", folder, slash, name) < 0 ? NULL : joined;
}

char *ech_path_folder(const char *const path)
{
    const char *const slash = strrchr(path, '/');
    if (slash == NULL) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

bool ech_path_exists(const char *const path)
{
    return access(path, F_OK) == 0;
}

bool ech_path_is_folder(const char *const path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
