/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file, read, asked for its values, and opened as a model. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/model/gguf.h"
#include "src/model/model.h"
#include "tests/fuzz/fuzz.h"

/* Touches every byte of every value. */
static uint64_t sum_values(const ech_gguf *const g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const ech_gguf_entry *const e = &g->entries[i];
        if (e->type == ECH_GGUF_ARRAY) continue;
        if (e->type != ECH_GGUF_STRING) {
            for (uint64_t k = 0; k < e->n; k++) {
                sum += ech_gguf_element(g, e, k) > 0.0;
            }
            continue;
        }
        ech_str *const strings = calloc(e->n + 1, sizeof *strings);
        if (strings == NULL) continue;
        ech_gguf_strings(g, e, strings);
        for (uint64_t k = 0; k < e->n; k++) {
            for (size_t c = 0; c < strings[k].len; c++) {
                sum += (unsigned char)strings[k].ptr[c];
            }
        }
        free(strings);
    }
    return sum;
}

static void check(const ech_gguf *const g, const ech_weights *const ws)
{
    for (uint32_t i = 0; i < ws->n; i++) {
        const ech_weight *const w = &ws->list[i];
        ECH_ASSERT(w->offset <= ws->files[w->file].size &&
                   w->bytes <= ws->files[w->file].size - w->offset);
    }
    ECH_ASSERT(sum_values(g) < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t len)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ech_gguf g = { 0 };
    ech_weights ws = { 0 };
    ech_model *m = NULL;
    ech_error err;
    if (len == 0 || write(fd, data, len) == (ssize_t)len) {
        if (ech_gguf_read(&g, &ws, path, &err) == ECH_OK) check(&g, &ws);
        (void)ech_model_open(&m, path, &err);
    }
    ech_model_close(&m);
    ech_gguf_fini(&g);
    ech_weights_fini(&ws);
    (void)close(fd);
    return 0;
}
