/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file. It goes through a memory file, because the reader wants a path. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

/* What the reader promises of every tensor it lets through. */
static void check(const ech_weights *const ws)
{
    for (uint32_t i = 0; i < ws->n; i++) {
        const ech_weight *const w = &ws->list[i];
        const uint64_t size = ws->files[w->file].size;
        uint64_t bytes = 0;
        ECH_ASSERT(w->offset <= size && w->bytes <= size - w->offset);
        ECH_ASSERT(ech_wtype_bytes(w->type, w->n_dims, w->dims, &bytes) && bytes == w->bytes);
        ECH_ASSERT(ech_weights_find(ws, w->name) == w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t len)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ech_weights ws = { 0 };
    ech_error err;
    if (len == 0 || write(fd, data, len) == (ssize_t)len) {
        if (ech_safetensors_read(&ws, path, &err) == ECH_OK &&
            ech_weights_seal(&ws, &err) == ECH_OK)
            check(&ws);
    }
    ech_weights_fini(&ws);
    (void)close(fd);
    return 0;
}
