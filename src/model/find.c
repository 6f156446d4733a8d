/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which model a name means. The demo model is found wherever Echelon stands: beside the shell's
 * folder, in the source tree it was built from, or where it was installed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/model/model.h"
#include "src/model/names.h"

#define DEMO "models/tale"

static ech_status copy_path(const char *const path, char *const ret, ech_error *const err)
{
    if (strlen(path) >= ECH_MODEL_PATH_MAX) {
        return ech_fail(err, ECH_ELIMIT, "opening a model: its path has over %d bytes",
                        ECH_MODEL_PATH_MAX - 1);
    }
    if (!ech_path_exists(path))
        return ech_fail(err, ECH_ENOTFOUND, "opening %s: no such file or folder", path);
    memcpy(ret, path, strlen(path) + 1);
    return ECH_OK;
}

/* share/echelon beside the bin folder that the program runs from: what --prefix at install changes.
 */
static void beside_program(char *const out, const size_t cap)
{
    char exe[ECH_MODEL_PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    out[0] = '\0';
    if (n <= 0) return;
    exe[n] = '\0';
    char *const slash = strrchr(exe, '/');
    if (slash == NULL) return;
    *slash = '\0';
    (void)snprintf(out, cap, "%s/../share/echelon/%s", exe, DEMO);
}

ech_status ech_model_find(const char *const path, char *const ret, ech_error *const err)
{
    if (path != NULL && path[0] != '\0') return copy_path(path, ret, err);
    const char *const named = getenv("ECHELON_MODEL");
    if (named != NULL && named[0] != '\0') {
        const ech_status rc = copy_path(named, ret, err);
        return rc == ECH_OK ? rc : ech_error_prefix(err, rc, "reading ECHELON_MODEL");
    }
    char beside[ECH_MODEL_PATH_MAX + 64];
    beside_program(beside, sizeof beside);
    const char *const places[] = { DEMO, ECH_MODEL_SOURCE_DIR "/" DEMO, beside,
                                   ECH_MODEL_DATA_DIR "/" DEMO };
    ech_buf looked = { 0 };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i][0] != '\0' && ech_path_exists(places[i])) {
            ech_buf_fini(&looked);
            return copy_path(places[i], ret, err);
        }
        (void)ech_buf_printf(&looked, "%s%s", i == 0 ? "" : ", ", places[i]);
    }
    const ech_status rc = ech_fail(err, ECH_ENOTFOUND,
                                   "looking for a model: none was named, and none is at %s: name a "
                                   "folder, or set ECHELON_MODEL",
                                   looked.data != NULL ? looked.data : "?");
    ech_buf_fini(&looked);
    return rc;
}
