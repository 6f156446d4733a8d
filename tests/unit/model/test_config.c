/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "src/model/config.h"
#include "tests/unit/model/fixture.h"

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

/* A whole config; a field named in more replaces nothing: it comes in addition. */
static void write_config(const char *const type, const char *const more)
{
    char text[4096];
    (void)snprintf(text, sizeof text,
                   "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":96,\"num_"
                   "hidden_layers\":2,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":100,"
                   "\"max_position_embeddings\":512%s%s}",
                   type, more[0] != '\0' ? "," : "", more);
    fixture_puts(&dir, "config.json", text);
}

static void load(ech_config *const c)
{
    ech_error err = { 0 };
    if (ech_config_load(dir.folder, c, &err) != ECH_OK) fail_msg("%s", err.text);
}

static void refuse(const char *const more, const ech_status code, const char *const text)
{
    ech_config c;
    ech_error err = { 0 };
    write_config("qwen3", more);
    const ech_status rc = ech_config_load(dir.folder, &c, &err);
    if (rc != code || strstr(err.text, text) == NULL) {
        print_error("config with %s: %s \"%s\"\n", more, ech_status_name(rc), err.text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
}

static void defaults_are_those_of_the_architecture(void **state)
{
    (void)state;
    ech_config c;
    write_config("qwen3", "\"head_dim\":null,\"rope_scaling\":null");
    load(&c);
    assert_string_equal(c.arch->name, "qwen3");
    assert_int_equal(c.head_dim, 128);
    assert_true(c.rms_eps == 1e-6);
    assert_true(c.rope.theta == 10000.0);
    assert_int_equal(c.rope.kind, ECH_ROPE_DEFAULT);
    assert_false(c.has_tie);
    assert_int_equal(c.ids.n_eos, 0);
    assert_int_equal(c.ids.bos, -1);

    write_config("llama", "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true");
    load(&c);
    assert_string_equal(c.arch->name, "llama");
    assert_int_equal(c.head_dim, 16);
    assert_true(c.rms_eps == 1e-5);
    assert_true(c.has_tie && c.tie);
}

static void both_files_give_eos_ids(void **state)
{
    (void)state;
    ech_config c;
    write_config("qwen3", "\"eos_token_id\":41,\"bos_token_id\":39,\"pad_token_id\":-1");
    fixture_puts(&dir, "generation_config.json",
                 "{\"eos_token_id\":[43,41,43],\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,"
                 "\"top_p\":0.95}");
    load(&c);
    assert_int_equal(c.ids.n_eos, 2);
    assert_int_equal(c.ids.eos[0], 43);
    assert_int_equal(c.ids.eos[1], 41);
    assert_int_equal(c.ids.bos, 39);
    assert_int_equal(c.ids.pad, -1);
    assert_true(c.sampling.has_temperature && c.sampling.temperature == 0.6f);
    assert_true(c.sampling.has_top_k && c.sampling.top_k == 20);
    assert_true(c.sampling.has_top_p && c.sampling.top_p == 0.95f);
    assert_true(c.sampling.has_do_sample && c.sampling.do_sample);
    assert_false(c.sampling.has_min_p || c.sampling.has_repetition_penalty);

    fixture_puts(&dir, "generation_config.json", "{\"temperature\":-1}");
    ech_error err;
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_EFORMAT);
    assert_non_null(
        strstr(err.text, "generation_config.json: temperature: expected a number from 0"));
}

static void what_is_not_computed_is_refused_by_name(void **state)
{
    (void)state;
    refuse("\"attention_bias\":true", ECH_EUNSUPPORTED, "attention_bias is true");
    refuse("\"mlp_bias\":true", ECH_EUNSUPPORTED, "mlp_bias");
    refuse("\"hidden_act\":\"gelu\"", ECH_EUNSUPPORTED, "hidden_act is \"gelu\"");
    refuse("\"num_experts\":8", ECH_EUNSUPPORTED, "num_experts is 8");
    refuse("\"num_local_experts\":8", ECH_EUNSUPPORTED, "num_local_experts");
    refuse("\"quantization_config\":{}", ECH_EUNSUPPORTED, "quantization_config is an object");
    refuse("\"final_logit_softcapping\":30.0", ECH_EUNSUPPORTED, "final_logit_softcapping");
    refuse("\"layer_types\":[\"full_attention\",\"sliding_attention\"]", ECH_EUNSUPPORTED,
           "layer_types[1]");
    refuse("\"layer_types\":\"full_attention\"", ECH_EFORMAT, "layer_types: expected an array");
    refuse("\"layer_types\":{\"0\":\"sliding_attention\"}", ECH_EFORMAT,
           "layer_types: expected an array");
    refuse("\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":1",
           ECH_EUNSUPPORTED, "use_sliding_window");
    refuse("\"partial_rotary_factor\":0.5", ECH_EUNSUPPORTED, "partial_rotary_factor");
    refuse("\"architectures\":[\"Qwen3ForSequenceClassification\"]", ECH_EUNSUPPORTED,
           "architectures: expected \"Qwen3ForCausalLM\"");
    refuse("\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}", ECH_EUNSUPPORTED,
           "rope_scaling.rope_type");
    refuse("\"rope_parameters\":{\"rope_type\":\"longrope\"}", ECH_EUNSUPPORTED,
           "rope_parameters.rope_type");
    ech_config c;
    ech_error err;
    write_config("qwen3_moe", "");
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_EUNSUPPORTED);
    assert_non_null(
        strstr(err.text, "model_type: expected one of qwen3, llama, found \"qwen3_moe\""));
}

static void a_sliding_window_that_no_layer_uses_is_no_fault(void **state)
{
    (void)state;
    ech_config c;
    write_config("qwen3",
                 "\"use_sliding_window\":false,\"sliding_window\":64,\"max_window_layers\":1");
    load(&c);
    write_config("qwen3",
                 "\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":2");
    load(&c);
    write_config("qwen3",
                 "\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":0");
    load(&c);
}

static void wrong_values_name_field_expected_and_found(void **state)
{
    (void)state;
    refuse("\"head_dim\":\"x\"", ECH_EFORMAT,
           "head_dim: expected an integer from 2 to 1048576, found \"x\"");
    refuse("\"head_dim\":15", ECH_EFORMAT, "head_dim: expected an even number, found 15");
    refuse("\"head_dim\":1000000", ECH_ELIMIT, "wider");
    refuse("\"rms_norm_eps\":-1", ECH_EFORMAT, "rms_norm_eps");
    refuse("\"rms_norm_eps\":true", ECH_EFORMAT, "found true");
    refuse("\"tie_word_embeddings\":1", ECH_EFORMAT,
           "tie_word_embeddings: expected true or false, found 1");
    refuse("\"eos_token_id\":100", ECH_EFORMAT,
           "eos_token_id: expected ids from 0 to 99, found 100");
    refuse("\"eos_token_id\":[1,-1]", ECH_EFORMAT, "found -1");
    refuse("\"eos_token_id\":\"a\"", ECH_EFORMAT, "eos_token_id");
    refuse("\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", ECH_ELIMIT, "at most 16");
    refuse("\"rope_theta\":0", ECH_EFORMAT, "rope_theta");
    refuse("\"rope_scaling\":7", ECH_EFORMAT, "rope_scaling: expected an object or null, found 7");
    refuse("\"rope_scaling\":{\"rope_type\":\"linear\"}", ECH_EFORMAT,
           "rope_scaling.factor is missing");
    refuse("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":4.0,"
           "\"high_freq_factor\":1.0}",
           ECH_EFORMAT, "high_freq_factor");
    refuse("\"vocab_size\":1", ECH_EFORMAT, "duplicate");

    ech_config c;
    ech_error err;
    fixture_puts(&dir, "config.json", "{\"model_type\":\"qwen3\"}");
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "hidden_size is missing"));
    fixture_puts(&dir, "config.json", "{\"model_type\":\"qwen3\",}");
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "line 1"));
    write_config("qwen3", "");
    fixture_replace(&dir, "config.json", "\"num_key_value_heads\":2", "\"num_key_value_heads\":3");
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "4 query heads and 3 KV heads"));
}

static void without_a_config_the_folder_is_named(void **state)
{
    (void)state;
    ech_config c;
    ech_error err;
    assert_int_equal(ech_config_load(dir.folder, &c, &err), ECH_ENOTFOUND);
    assert_non_null(strstr(err.text, "config.json"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_those_of_the_architecture),
        TEST(both_files_give_eos_ids),
        TEST(what_is_not_computed_is_refused_by_name),
        TEST(a_sliding_window_that_no_layer_uses_is_no_fault),
        TEST(wrong_values_name_field_expected_and_found),
        TEST(without_a_config_the_folder_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
