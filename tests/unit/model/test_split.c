/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of another type than queries and keys are a matrix of their own, and nothing changes but
 * that: bf16 values written as f32 are the same numbers, so the logits are the same bits.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/chip/half.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

#define MODEL GOLDEN "/qwen3/gqa-tied-bf16"

static bool is_value(const char *const name)
{
    return strstr(name, ".v_proj.") != NULL;
}

/* One tensor of the old file to the end of the new one's data; returns its new entry. */
static json_t *move_tensor(const char *const name, const json_t *const entry, const char *const old,
                           ech_buf *const data)
{
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
    const size_t to = (size_t)json_integer_value(json_array_get(offsets, 1));
    const size_t begin = data->len;
    for (size_t at = from; is_value(name) && at < to; at += 2) {
        uint16_t h;
        memcpy(&h, old + at, 2);
        const float x = ech_bf16_to_f32(h);
        assert_int_equal(ech_buf_append(data, &x, 4), ECH_OK);
    }
    if (!is_value(name)) assert_int_equal(ech_buf_append(data, old + from, to - from), ECH_OK);
    return json_pack("{s:s, s:O, s:[I, I]}", "dtype",
                     is_value(name) ? "F32" : json_string_value(json_object_get(entry, "dtype")),
                     "shape", json_object_get(entry, "shape"), "data_offsets", (json_int_t)begin,
                     (json_int_t)data->len);
}

static void widen_values(const fixture *const f)
{
    ech_buf old = fixture_read(fixture_path(f, "model.safetensors")), data = { 0 }, all = { 0 };
    uint64_t len = 0;
    memcpy(&len, old.data, 8);
    json_t *const header = json_loadb(old.data + 8, len, 0, NULL), *const out = json_object();
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        (void)json_object_set_new(out, name, move_tensor(name, entry, old.data + 8 + len, &data));
    }
    char *const text = json_dumps(out, JSON_COMPACT);
    len = strlen(text);
    assert_int_equal(ech_buf_append(&all, &len, 8), ECH_OK);
    assert_int_equal(ech_buf_append(&all, text, len), ECH_OK);
    assert_int_equal(ech_buf_append(&all, data.data, data.len), ECH_OK);
    fixture_write(f, "model.safetensors", all.data, all.len);
    free(text);
    json_decref(header);
    json_decref(out);
    ech_buf_fini(&old);
    ech_buf_fini(&data);
    ech_buf_fini(&all);
}

static float *logits_of(const char *const path, const uint32_t chunk, size_t *const ret_bytes,
                        char *const ret_types)
{
    static const int32_t IDS[] = { 5, 9, 30, 2, 7, 11 };
    const runner_options o = { .n_threads = 2, .max_rows = 6, .max_positions = 32, .n_seqs = 1 };
    runner r;
    ech_model_tensor t;
    assert_int_equal(runner_open(&r, path, &o), ECH_OK);
    for (uint32_t i = 0; i < ech_model_n_tensors(r.model); i++) {
        assert_int_equal(ech_model_tensor_at(r.model, i, &t), ECH_OK);
        if (is_value(t.name)) strcpy(ret_types, t.packed_type);
        if (strstr(t.name, ".q_proj.") != NULL) assert_string_equal(t.packed_type, "bf16");
    }
    *ret_bytes = (size_t)6 * r.info.vocab * sizeof(float);
    float *const logits = calloc(1, *ret_bytes);
    lane l = { .ids = IDS, .n = 6, .chunk = chunk, .logits = logits };
    runner_run(&r, &l, 1);
    runner_close(&r);
    return logits;
}

static void values_of_another_type_are_a_matrix_of_their_own(void **state)
{
    (void)state;
    fixture f;
    size_t bytes = 0;
    char type[16] = "";
    float *const want = logits_of(MODEL, 6, &bytes, type);
    assert_string_equal(type, "bf16");
    fixture_open(&f);
    fixture_copy(&f, MODEL);
    widen_values(&f);
    for (uint32_t chunk = 1; chunk <= 6; chunk += 5) {
        float *const got = logits_of(f.folder, chunk, &bytes, type);
        assert_string_equal(type, "f32");
        assert_memory_equal(got, want, bytes);
        free(got);
    }
    free(want);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_another_type_are_a_matrix_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
