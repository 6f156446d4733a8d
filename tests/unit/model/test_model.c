/* SPDX-License-Identifier: Apache-2.0 */
/* Opening whole models: what is wrong with one is found, named, and leaves nothing behind. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/model/model.h"
#include "src/model/safetensors.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

static fixture dir;

static int setup(void **state)
{
    (void)state;
    fixture_open(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&dir);
    return 0;
}

static ech_status open_dir(ech_error *const err)
{
    ech_model *m = NULL;
    const ech_status rc = ech_model_open(&m, dir.folder, err);
    ech_model_close(&m);
    return rc;
}

static void refuse(const ech_status code, const char *const text)
{
    ech_error err = { 0 };
    const ech_status rc = open_dir(&err);
    if (rc != code || strstr(err.text, text) == NULL) {
        print_error("%s \"%s\" instead of \"%s\"\n", ech_status_name(rc), err.text, text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
}

static void says_what_a_model_is(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/gqa-tied-bf16", &err), ECH_OK);
    ech_model_info i;
    ech_model_get_info(m, &i);
    assert_string_equal(i.architecture, "qwen3");
    assert_string_equal(i.format, "safetensors");
    assert_int_equal(i.n_layers, 2);
    assert_int_equal(i.vocab, 2048);
    assert_true(i.tied);
    assert_int_equal(i.n_tensors, 2 * 11 + 2);
    assert_int_equal(i.n_params, i.n_params_step);
    assert_int_equal(i.source_bytes, 2 * i.n_params);
    /* Two layers, two KV heads, K and V of 32. */
    assert_int_equal(ech_model_kv_bytes_per_token(m, ECH_KV_F16), 2 * 2 * 2 * 32 * 2);
    assert_int_equal(ech_model_kv_bytes_per_token(m, (ech_kv_type)99), 0);
    assert_int_equal(ech_model_get_ids(m)->n_eos, 2);
    assert_int_equal(ech_model_get_ids(m)->eos[0], 2041);
    assert_int_equal(ech_model_get_ids(m)->eos[1], 2039);

    uint64_t bytes = 0;
    for (uint32_t t = 0; t < ech_model_n_tensors(m); t++) {
        ech_model_tensor row;
        assert_int_equal(ech_model_tensor_at(m, t, &row), ECH_OK);
        assert_true(row.read_per_step);
        bytes += row.bytes;
    }
    assert_int_equal(bytes, i.source_bytes);
    ech_model_tensor none;
    assert_int_equal(ech_model_tensor_at(m, i.n_tensors, &none), ECH_EINVAL);
    assert_null(ech_model_warning_at(m, 0));
    ech_model_close(&m);
    assert_null(m);
    ech_model_close(&m);
    ech_model_close(NULL);
}

/* Of an untied model a step reads one row of the embedding. */
static void an_untied_embedding_is_not_read_by_a_step(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/untied-f32", &err), ECH_OK);
    ech_model_info i;
    ech_model_get_info(m, &i);
    assert_false(i.tied);
    assert_int_equal(i.n_params - i.n_params_step, 2053 * 96);
    assert_true(i.step_bytes < i.packed_bytes);
    ech_model_close(&m);
}

static void a_tensor_of_another_shape_is_named(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    fixture_replace(&dir, "config.json", "\"intermediate_size\": 176",
                    "\"intermediate_size\": 177");
    refuse(ECH_EFORMAT, "model.safetensors: tensor model.layers.0.mlp.gate_proj.weight: expected "
                        "shape [177, 64] by the config, found [176, 64]");
    fixture_replace(&dir, "config.json", "\"intermediate_size\": 177",
                    "\"intermediate_size\": 176");
    fixture_replace(&dir, "config.json", "\"vocab_size\": 2048", "\"vocab_size\": 2049");
    refuse(ECH_EFORMAT, "tensor model.embed_tokens.weight: expected shape [2049, 64]");
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    fixture_replace(&dir, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    refuse(ECH_EFORMAT, "tensor model.layers.2.input_layernorm.weight is missing");
}

static void a_tensor_that_nothing_computes_is_named(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    fixture_replace(&dir, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    fixture_replace(&dir, "config.json", "\"full_attention\",\n    \"full_attention\"",
                    "\"full_attention\"");
    refuse(ECH_EUNSUPPORTED, "model.layers.1.");
    refuse(ECH_EUNSUPPORTED, "is not part of architecture qwen3 with 1 layers");
}

/* As a llama, a model with norms per head would run, and wrongly. */
static void another_architecture_does_not_run_it(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    fixture_replace(&dir, "config.json", "Qwen3ForCausalLM", "LlamaForCausalLM");
    fixture_replace(&dir, "config.json", "\"model_type\": \"qwen3\"", "\"model_type\": \"llama\"");
    refuse(ECH_EUNSUPPORTED, "k_norm.weight is not part of architecture llama");
}

static void weights_of_other_types_are_named(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    /* Types of the same size, so that only the type is wrong. */
    fixture_replace(&dir, "model.safetensors", "\"BF16\"", "\"I16\" ");
    refuse(ECH_EUNSUPPORTED, "weights of type i16 are not computed");
}

static void missing_files_are_named(void **state)
{
    (void)state;
    ech_error err;
    refuse(ECH_ENOTFOUND, "config.json");
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    (void)unlink(fixture_path(&dir, "model.safetensors"));
    refuse(ECH_ENOTFOUND, "expected model.safetensors or model.safetensors.index.json");
    ech_model *m = NULL;
    assert_int_equal(ech_model_open(&m, "/no/such/model", &err), ECH_ENOTFOUND);
    assert_int_equal(ech_model_open(&m, fixture_path(&dir, "config.json"), &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "name its folder"));
    assert_null(m);
}

/* Writes all shards of the golden model into one file, tensors in the order of their names. */
static void merge_shards(const char *const folder)
{
    ech_weights ws = { 0 };
    ech_buf header = { 0 };
    ech_buf data = { 0 };
    ech_error err;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_int_equal(ech_safetensors_read_index(&ws, path, &err), ECH_OK);
    for (uint32_t i = 0; i < ws.n; i++) {
        const ech_weight *const w = &ws.list[i];
        char shape[64];
        assert_int_equal(
            ech_buf_printf(&header,
                           "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                           i == 0 ? '{' : ',', w->name,
                           ech_weight_shape_text(w->n_dims, w->dims, shape, sizeof shape), data.len,
                           (size_t)(data.len + w->bytes)),
            ECH_OK);
        assert_int_equal(ech_buf_reserve(&data, w->bytes), ECH_OK);
        assert_int_equal(
            ech_weights_read(&ws, w->file, w->offset, data.data + data.len, w->bytes, &err),
            ECH_OK);
        data.len += w->bytes;
    }
    assert_int_equal(ech_buf_puts(&header, "}"), ECH_OK);
    /* An odd length, so that no tensor is aligned to its type. */
    if (header.len % 2 == 0) assert_int_equal(ech_buf_puts(&header, " "), ECH_OK);
    fixture_safetensors(&dir, "model.safetensors", header.data, 0);
    FILE *const file = fopen(fixture_path(&dir, "model.safetensors"), "ab");
    assert_int_equal(fwrite(data.data, 1, data.len, file), data.len);
    assert_int_equal(fclose(file), 0);
    ech_buf_fini(&header);
    ech_buf_fini(&data);
    ech_weights_fini(&ws);
}

static void sharded_equals_unsharded(void **state)
{
    (void)state;
    const char *const sharded = GOLDEN "/qwen3/mqa-sharded-bf16";
    ech_buf config = fixture_read(GOLDEN "/qwen3/mqa-sharded-bf16/config.json");
    fixture_write(&dir, "config.json", config.data, config.len);
    ech_buf_fini(&config);
    merge_shards(sharded);
    const runner_options o = { .n_threads = 2, .max_rows = 1, .max_positions = 1, .n_seqs = 1 };
    runner a;
    runner b;
    assert_int_equal(runner_open(&a, sharded, &o), ECH_OK);
    assert_int_equal(runner_open(&b, dir.folder, &o), ECH_OK);
    assert_int_equal(a.info.n_files, 9);
    assert_int_equal(b.info.n_files, 1);
    assert_int_equal(a.image_bytes, b.image_bytes);
    assert_memory_equal(a.image, b.image, a.image_bytes);
    runner_close(&a);
    runner_close(&b);
}

/* Logits of a text, one row per id; the caller frees. */
static float *run_tale(const ech_quantize quantize, runner *const r)
{
    static const int32_t IDS[] = { 630, 399, 258, 466, 552, 258, 977, 13 };
    const runner_options o = {
        .quantize = quantize,
        .n_threads = 2,
        .max_rows = 8,
        .max_positions = 8,
        .n_seqs = 1,
    };
    assert_int_equal(runner_open(r, ECH_SOURCE_DIR "/models/tale", &o), ECH_OK);
    float *const logits = calloc((size_t)8 * r->info.vocab, sizeof *logits);
    lane l = { .ids = IDS, .n = 8, .chunk = 8, .logits = logits };
    runner_run(r, &l, 1);
    return logits;
}

static void quantised_weights_are_smaller_and_nearly_as_good(void **state)
{
    (void)state;
    static const struct {
        ech_quantize quantize;
        double size;  /* of the image against bf16, at most */
        double error; /* of a logit against the largest, at most */
    } ROWS[] = { { ECH_QUANTIZE_BF16, 1.0, 0.0 },
                 { ECH_QUANTIZE_Q8, 0.56, 0.05 },
                 { ECH_QUANTIZE_Q6, 0.46, 0.1 },
                 { ECH_QUANTIZE_Q4, 0.35, 0.5 } };
    runner r;
    float *const exact = run_tale(ECH_QUANTIZE_KEEP, &r);
    const size_t n = (size_t)8 * r.info.vocab;
    const double whole = (double)r.info.packed_bytes;
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)exact[i]));
    }
    runner_close(&r);
    for (size_t k = 0; k < sizeof ROWS / sizeof ROWS[0]; k++) {
        float *const logits = run_tale(ROWS[k].quantize, &r);
        double worst = 0.0;
        for (size_t i = 0; i < n; i++) {
            worst = fmax(worst, fabs((double)logits[i] - (double)exact[i]) / largest);
        }
        print_message("%s: %.2f of the size, error %.4f\n", ech_quantize_name(ROWS[k].quantize),
                      (double)r.info.packed_bytes / whole, worst);
        assert_true((double)r.info.packed_bytes <= ROWS[k].size * whole);
        assert_true(worst <= ROWS[k].error);
        runner_close(&r);
        free(logits);
    }
    free(exact);
}

static void the_edges_keep_8_bits_and_few_bits_are_kept(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    ech_model_tensor t;
    ech_model_options o = { .struct_size = sizeof o, .quantize = ECH_QUANTIZE_Q4 };
    assert_int_equal(ech_model_open_with(&m, GOLDEN "/qwen3/untied-f32", &o, &err), ECH_OK);
    const uint32_t n = ech_model_n_tensors(m);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ech_model_tensor_at(m, i, &t), ECH_OK);
        const char *const want = t.n_dims == 1 ? "f32" : i == 0 || i == n - 1 ? "q8" : "q4";
        assert_string_equal(t.packed_type, want);
    }
    ech_model_close(&m);
    o.quantize = (ech_quantize)9;
    assert_int_equal(ech_model_open_with(&m, GOLDEN "/qwen3/untied-f32", &o, &err), ECH_EINVAL);
    /* Asking for 8 bits doesn't blow 4 up. */
    o.quantize = ECH_QUANTIZE_Q8;
    assert_int_equal(ech_model_open_with(&m, GOLDEN "/gguf/gqa-tied-quant.gguf", &o, &err), ECH_OK);
    bool has_q4 = false;
    for (uint32_t i = 0; i < ech_model_n_tensors(m); i++) {
        assert_int_equal(ech_model_tensor_at(m, i, &t), ECH_OK);
        has_q4 = has_q4 || strcmp(t.packed_type, "q4") == 0;
    }
    assert_true(has_q4);
    ech_model_close(&m);
}

static void options_that_cannot_be_are_refused(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/gqa-tied-bf16", &err), ECH_OK);
    ech_model_plan plan;
    const ech_forward_options good = { .max_rows = 8, .max_logits = 4, .max_positions = 64 };
    assert_int_equal(ech_model_make_plan(m, &good, &plan, &err), ECH_OK);
    assert_true(plan.weights_bytes > 0 && plan.arena_bytes > 0);
    assert_int_equal(plan.kv_page_bytes, 32 * plan.kv_token_bytes);
    ech_forward_options bad = good;
    bad.max_rows = 0;
    assert_int_equal(ech_model_make_plan(m, &bad, &plan, &err), ECH_EINVAL);
    bad = good;
    bad.max_logits = 65;
    assert_int_equal(ech_model_make_plan(m, &bad, &plan, &err), ECH_EINVAL);
    bad = good;
    bad.max_positions = 0;
    assert_int_equal(ech_model_make_plan(m, &bad, &plan, &err), ECH_EINVAL);
    ech_model_close(&m);
}

static void a_model_that_does_not_fit_is_refused_with_the_sum(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/gqa-tied-bf16", &err), ECH_OK);
    const ech_model_plan plan = {
        .weights_bytes = 8000, .arena_bytes = 100, .kv_page_bytes = 1000, .logits_bytes = 10
    };
    assert_int_equal(ech_plan_check(m, &plan, 5, 2, 13210, &err), ECH_OK);
    assert_int_equal(ech_plan_check(m, &plan, 5, 2, 13209, &err), ECH_ENOMEM);
    assert_non_null(strstr(err.text, "160 positions"));
    assert_int_equal(ech_plan_check(m, &plan, UINT64_MAX / 999, 2, UINT64_MAX, &err), ECH_ENOMEM);
    assert_int_equal(ech_plan_check(m, &plan, UINT64_MAX / 1000, 2, UINT64_MAX, &err), ECH_ENOMEM);
    ech_model_close(&m);

    const char *limit = NULL;
    const uint64_t available = ech_memory_available(&limit);
    assert_true(available > 0);
    assert_non_null(limit);
}

/* Descriptors of this process, the one that counts them included. */
static unsigned count_descriptors(void)
{
    unsigned n = 0;
    DIR *const fds = opendir("/proc/self/fd");
    assert_non_null(fds);
    while (readdir(fds) != NULL) {
        n++;
    }
    (void)closedir(fds);
    return n;
}

static void no_descriptor_is_left(void **state)
{
    (void)state;
    const unsigned before = count_descriptors();
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/mqa-sharded-bf16", &err), ECH_OK);
    assert_int_equal(count_descriptors(), before + 9);
    ech_model_close_sources(m);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(ech_model_source_at(m, 3).fd, -1);
    ech_model_close(&m);
    fixture_copy(&dir, GOLDEN "/qwen3/gqa-tied-bf16");
    fixture_replace(&dir, "config.json", "\"vocab_size\": 2048", "\"vocab_size\": 2049");
    refuse(ECH_EFORMAT, "embed_tokens");
    assert_int_equal(count_descriptors(), before);
}

static void the_demo_model_is_found(void **state)
{
    (void)state;
    char path[ECH_MODEL_PATH_MAX];
    ech_error err;
    (void)unsetenv("ECHELON_MODEL");
    assert_int_equal(ech_model_find(NULL, path, &err), ECH_OK);
    assert_int_equal(ech_model_find("", path, &err), ECH_OK);
    assert_non_null(strstr(path, "models/tale"));
    (void)setenv("ECHELON_MODEL", dir.folder, 1);
    assert_int_equal(ech_model_find(NULL, path, &err), ECH_OK);
    assert_string_equal(path, dir.folder);
    (void)setenv("ECHELON_MODEL", "/no/such/model", 1);
    assert_int_equal(ech_model_find(NULL, path, &err), ECH_ENOTFOUND);
    assert_non_null(strstr(err.text, "ECHELON_MODEL"));
    (void)unsetenv("ECHELON_MODEL");
}

static void types_are_read_by_name(void **state)
{
    (void)state;
    ech_kv_type kv;
    ech_compute compute;
    ech_error err;
    assert_int_equal(ech_kv_type_parse("q8", &kv, &err), ECH_OK);
    assert_int_equal(kv, ECH_KV_Q8);
    assert_string_equal(ech_kv_type_name(kv), "q8");
    assert_int_equal(ech_kv_type_parse("f8", &kv, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "f16, f32, bf16, q8"));
    assert_int_equal(ech_compute_parse("bf16", &compute, &err), ECH_OK);
    assert_string_equal(ech_compute_name(compute), "bf16");
    assert_string_equal(ech_kv_type_name((ech_kv_type)77), "?");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(says_what_a_model_is),
        TEST(an_untied_embedding_is_not_read_by_a_step),
        TEST(a_tensor_of_another_shape_is_named),
        TEST(a_missing_tensor_is_named),
        TEST(a_tensor_that_nothing_computes_is_named),
        TEST(another_architecture_does_not_run_it),
        TEST(weights_of_other_types_are_named),
        TEST(missing_files_are_named),
        TEST(sharded_equals_unsharded),
        TEST(quantised_weights_are_smaller_and_nearly_as_good),
        TEST(the_edges_keep_8_bits_and_few_bits_are_kept),
        TEST(options_that_cannot_be_are_refused),
        TEST(a_model_that_does_not_fit_is_refused_with_the_sum),
        TEST(no_descriptor_is_left),
        TEST(the_demo_model_is_found),
        TEST(types_are_read_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
