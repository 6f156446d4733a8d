/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/random_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"

#define CHUNK 65536u

typedef struct writer {
    const random_model *m;
    ech_buf header; /* entries, while they are collected */
    FILE *file;     /* NULL while entries are collected */
    uint64_t offset;
    uint64_t rng;
    size_t elem; /* bytes of an element */
} writer;

static const struct {
    const char *name;
    uint32_t n_layers, hidden, ffn, n_heads, n_kv_heads;
    bool tied;
} SHAPES[] = {
    { "0.6b", 28, 1024, 3072, 16, 8, true },  { "1.7b", 28, 2048, 6144, 16, 8, true },
    { "4b", 36, 2560, 9728, 32, 8, true },    { "8b", 36, 4096, 12288, 32, 8, false },
    { "14b", 40, 5120, 17408, 40, 8, false },
};

bool random_model_shape(const char *const name, random_model *const ret)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        if (strcmp(SHAPES[i].name, name) != 0) continue;
        *ret = (random_model){
            .architecture = "qwen3",
            .type = "bf16",
            .n_layers = SHAPES[i].n_layers,
            .hidden = SHAPES[i].hidden,
            .ffn = SHAPES[i].ffn,
            .n_heads = SHAPES[i].n_heads,
            .n_kv_heads = SHAPES[i].n_kv_heads,
            .head_dim = 128,
            .vocab = 151936,
            .max_context = 40960,
            .tied = SHAPES[i].tied,
            .seed = 1,
        };
        return true;
    }
    return false;
}

/* Uniform in [-1, 1). */
static float next(writer *const w)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (float)(int32_t)(w->rng >> 32) * 0x1p-31f;
}

/* Small numbers only: no infinity, no NaN. Halves below 2^-14 become zero. */
static void store(const writer *const w, const float x, uint8_t *const to)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (w->elem == 4) {
        memcpy(to, &bits, 4);
        return;
    }
    uint16_t half = (uint16_t)(bits >> 16);
    if (w->m->type[0] == 'f') {
        const int exponent = (int)(bits >> 23 & 255) - 127 + 15;
        half = (uint16_t)(bits >> 16 & 0x8000);
        if (exponent > 0) half = (uint16_t)(half | (unsigned)exponent << 10 | (bits >> 13 & 1023));
    }
    memcpy(to, &half, 2);
}

static bool write_values(writer *const w, uint64_t n, const float centre, const float spread)
{
    static uint8_t chunk[CHUNK * 4];
    while (n > 0) {
        const size_t some = n < CHUNK ? (size_t)n : CHUNK;
        for (size_t i = 0; i < some; i++) {
            store(w, centre + spread * next(w), chunk + i * w->elem);
        }
        if (fwrite(chunk, w->elem, some, w->file) != some) return false;
        n -= some;
    }
    return true;
}

/* One tensor: its entry in the first pass, its values in the second. cols 0: a vector. */
static bool tensor(writer *const w, const char *const name, const uint64_t rows,
                   const uint64_t cols)
{
    const uint64_t n = rows * (cols > 0 ? cols : 1);
    if (w->file != NULL) {
        const float spread = cols > 0 ? 1.7f / sqrtf((float)cols) : 0.2f;
        return write_values(w, n, cols > 0 ? 0.0f : 1.0f, spread);
    }
    const uint64_t begin = w->offset;
    w->offset += n * w->elem;
    const char *const type = w->elem == 4 ? "F32" : w->m->type[0] == 'f' ? "F16" : "BF16";
    char shape[64];
    (void)snprintf(shape, sizeof shape, cols > 0 ? "%" PRIu64 ",%" PRIu64 : "%" PRIu64, rows, cols);
    return ech_buf_printf(&w->header,
                          "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                          ",%" PRIu64 "]}",
                          w->header.len > 0 ? "," : "", name, type, shape, begin,
                          w->offset) == ECH_OK;
}

static bool layer_tensor(writer *const w, const uint32_t layer, const char *const name,
                         const uint64_t rows, const uint64_t cols)
{
    char full[128];
    (void)snprintf(full, sizeof full, "model.layers.%u.%s.weight", layer, name);
    return tensor(w, full, rows, cols);
}

static bool layer(writer *const w, const uint32_t i)
{
    const random_model *const m = w->m;
    const uint64_t q = (uint64_t)m->n_heads * m->head_dim;
    const uint64_t kv = (uint64_t)m->n_kv_heads * m->head_dim;
    bool ok = layer_tensor(w, i, "input_layernorm", m->hidden, 0);
    ok = ok && layer_tensor(w, i, "self_attn.q_proj", q, m->hidden);
    ok = ok && layer_tensor(w, i, "self_attn.k_proj", kv, m->hidden);
    ok = ok && layer_tensor(w, i, "self_attn.v_proj", kv, m->hidden);
    if (strcmp(m->architecture, "qwen3") == 0) {
        ok = ok && layer_tensor(w, i, "self_attn.q_norm", m->head_dim, 0);
        ok = ok && layer_tensor(w, i, "self_attn.k_norm", m->head_dim, 0);
    }
    ok = ok && layer_tensor(w, i, "self_attn.o_proj", m->hidden, q);
    ok = ok && layer_tensor(w, i, "post_attention_layernorm", m->hidden, 0);
    ok = ok && layer_tensor(w, i, "mlp.gate_proj", m->ffn, m->hidden);
    ok = ok && layer_tensor(w, i, "mlp.up_proj", m->ffn, m->hidden);
    return ok && layer_tensor(w, i, "mlp.down_proj", m->hidden, m->ffn);
}

static bool all_tensors(writer *const w)
{
    bool ok = tensor(w, "model.embed_tokens.weight", w->m->vocab, w->m->hidden);
    for (uint32_t i = 0; ok && i < w->m->n_layers; i++) {
        ok = layer(w, i);
    }
    ok = ok && tensor(w, "model.norm.weight", w->m->hidden, 0);
    return ok && (w->m->tied || tensor(w, "lm_head.weight", w->m->vocab, w->m->hidden));
}

static bool write_weights(writer *const w, const char *const path)
{
    if (!all_tensors(w)) return false;
    /* Spaces fill the header up, so that the data begins at a multiple of 8. */
    const uint64_t len = (w->header.len + 2 + 7) / 8 * 8;
    FILE *const file = fopen(path, "wb");
    if (file == NULL) return false;
    uint8_t le[8];
    for (int i = 0; i < 8; i++) {
        le[i] = (uint8_t)(len >> (8 * i));
    }
    const int spaces = (int)(len - w->header.len - 2);
    bool ok =
        fwrite(le, 1, 8, file) == 8 && fprintf(file, "{%s}%*s", w->header.data, spaces, "") > 0;
    w->file = file;
    ok = ok && all_tensors(w);
    return fclose(file) == 0 && ok;
}

static bool write_config(const random_model *const m, const char *const path)
{
    FILE *const f = fopen(path, "w");
    if (f == NULL) return false;
    const bool qwen = strcmp(m->architecture, "qwen3") == 0;
    (void)fprintf(
        f,
        "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n \"hidden_size\": %u,\n"
        " \"intermediate_size\": %u,\n \"num_hidden_layers\": %u,\n \"num_attention_heads\": %u,\n"
        " \"num_key_value_heads\": %u,\n \"head_dim\": %u,\n \"vocab_size\": %u,\n"
        " \"max_position_embeddings\": %u,\n \"rms_norm_eps\": 1e-06,\n \"rope_theta\": "
        "1000000.0,\n"
        " \"hidden_act\": \"silu\",\n \"tie_word_embeddings\": %s\n}\n",
        qwen ? "Qwen3ForCausalLM" : "LlamaForCausalLM", m->architecture, m->hidden, m->ffn,
        m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim, m->vocab, m->max_context,
        m->tied ? "true" : "false");
    return fclose(f) == 0;
}

bool random_model_write(const random_model *const m, const char *const folder)
{
    char path[1024];
    writer w = { .m = m, .rng = m->seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
    w.elem = strcmp(m->type, "f32") == 0 ? 4 : 2;
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    bool ok = write_config(m, path);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok = ok && write_weights(&w, path);
    ech_buf_fini(&w.header);
    return ok;
}
