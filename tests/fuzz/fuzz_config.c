/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json, and after a zero byte, if there is one, generation_config.json and then
 * model.safetensors.index.json.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/model/config.h"
#include "src/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

static char folder[256];

static void remove_file(const char *const name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

static void remove_folder(void)
{
    remove_file("config.json");
    remove_file("generation_config.json");
    remove_file("model.safetensors.index.json");
    (void)rmdir(folder);
}

static void write_file(const char *const name, const uint8_t *const data, const size_t len)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const f = fopen(path, "wb");
    if (f == NULL) return;
    (void)fwrite(data, 1, len, f);
    (void)fclose(f);
}

/* The piece up to a zero byte; the rest stays. */
static size_t take_piece(const uint8_t **const data, size_t *const len, const uint8_t **const ret)
{
    const uint8_t *const end = *len > 0 ? memchr(*data, 0, *len) : NULL;
    const size_t n = end != NULL ? (size_t)(end - *data) : *len;
    *ret = *data;
    *data += end != NULL ? n + 1 : n;
    *len -= end != NULL ? n + 1 : n;
    return n;
}

/* What the reader promises of a config it lets through. */
static void check(const ech_config *const c)
{
    ECH_ASSERT(c->head_dim >= 2 && c->head_dim % 2 == 0 && c->n_heads % c->n_kv_heads == 0);
    ECH_ASSERT(c->ids.n_eos <= ECH_MODEL_EOS_MAX);
    float *const freqs = calloc(c->head_dim / 2, sizeof *freqs);
    if (freqs == NULL) return;
    ech_rope_inv_freq(&c->rope, c->head_dim, freqs);
    for (uint32_t i = 0; i < c->head_dim / 2; i++) {
        ECH_ASSERT(isfinite(freqs[i]));
    }
    free(freqs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const NAMES[] = { "config.json", "generation_config.json",
                                         "model.safetensors.index.json" };
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/echelon-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL) abort();
        (void)atexit(remove_folder);
    }
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        const uint8_t *piece = NULL;
        const size_t n = take_piece(&data, &len, &piece);
        if (i == 0 || n > 0) {
            write_file(NAMES[i], piece, n);
        } else {
            remove_file(NAMES[i]);
        }
    }
    ech_config c;
    ech_error err;
    if (ech_config_load(folder, &c, &err) == ECH_OK) check(&c);

    char index[512];
    ech_weights ws = { 0 };
    (void)snprintf(index, sizeof index, "%s/%s", folder, NAMES[2]);
    (void)ech_safetensors_read_index(&ws, index, &err);
    ech_weights_fini(&ws);
    return 0;
}
