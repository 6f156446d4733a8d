/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/model/gguf.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

#define SPLIT GOLDEN "/gguf/gqa-tied-bf16-00001-of-00003.gguf"
#define ONE   GOLDEN "/gguf/gqa-tied-quant.gguf"

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

static ech_status read_one(const char *const path, ech_error *const err)
{
    ech_gguf g = { 0 };
    ech_weights ws = { 0 };
    const ech_status rc = ech_gguf_read(&g, &ws, path, err);
    ech_gguf_fini(&g);
    ech_weights_fini(&ws);
    return rc;
}

/* A header that is put together piece by piece. */
static ech_buf made;

static void put(const void *const bytes, const size_t len)
{
    assert_int_equal(ech_buf_append(&made, bytes, len), ECH_OK);
}

static void put_u32(const uint32_t v)
{
    put(&v, sizeof v);
}
static void put_u64(const uint64_t v)
{
    put(&v, sizeof v);
}

static void put_str(const char *const text)
{
    put_u64(strlen(text));
    put(text, strlen(text));
}

static void begin(const uint64_t n_tensors, const uint64_t n_pairs)
{
    ech_buf_fini(&made);
    put("GGUF", 4);
    put_u32(3);
    put_u64(n_tensors);
    put_u64(n_pairs);
}

static void put_tensor(const char *const name, const uint64_t inner, const uint64_t outer,
                       const uint32_t type, const uint64_t offset)
{
    put_str(name);
    put_u32(2);
    put_u64(inner);
    put_u64(outer);
    put_u32(type);
    put_u64(offset);
}

/* Fills up to the data and adds n bytes of it. */
static void put_data(const size_t n)
{
    static const char ZEROS[256];
    put(ZEROS, (32 - made.len % 32) % 32);
    put(ZEROS, n);
}

static void expect(const ech_status code, const char *const text)
{
    ech_error err = { 0 };
    fixture_write(&dir, "a.gguf", made.data, made.len);
    const ech_status rc = read_one(fixture_path(&dir, "a.gguf"), &err);
    if (rc != code || strstr(err.text, text) == NULL)
        print_error("%s \"%s\" instead of \"%s\"\n", ech_status_name(rc), err.text, text);
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
    ech_buf_fini(&made);
}

static void reads_values_of_every_type(void **state)
{
    (void)state;
    ech_gguf g = { 0 };
    ech_weights ws = { 0 };
    ech_error err;
    assert_int_equal(ech_gguf_read(&g, &ws, SPLIT, &err), ECH_OK);
    static const struct {
        const char *key;
        int64_t value;
    } INTS[] = {
        { "test.u8", 200 },
        { "test.i8", -100 },
        { "test.u16", 60000 },
        { "test.i16", -30000 },
        { "test.u32", 4000000000 },
        { "test.i32", -2000000000 },
        { "test.i64", -(INT64_C(1) << 62) - 1 },
    };
    int64_t v = 0;
    double x = 0.0;
    for (size_t i = 0; i < sizeof INTS / sizeof INTS[0]; i++) {
        assert_true(ech_gguf_int(&g, INTS[i].key, &v));
        assert_true(v == INTS[i].value);
        assert_true(ech_gguf_number(&g, INTS[i].key, &x));
    }
    assert_false(ech_gguf_int(&g, "test.u64", &v));
    assert_false(ech_gguf_int(&g, "test.f32", &v));
    assert_false(ech_gguf_int(&g, "test.bool", &v));
    assert_false(ech_gguf_int(&g, "test.none", &v));
    assert_false(ech_gguf_int(&g, "test.ints", &v));
    assert_true(ech_gguf_number(&g, "test.f32", &x) && x == 0.5);
    assert_true(ech_gguf_number(&g, "test.f64", &x) && x == 1e300);
    bool on = false;
    assert_true(ech_gguf_bool(&g, "test.bool", &on) && on);
    ech_str s = { 0 };
    assert_true(ech_gguf_str(&g, "test.string", &s));
    assert_true(ech_str_eq(s, ECH_STR_LIT("caf\xc3\xa9")));
    assert_false(ech_gguf_str(&g, "test.u8", &s));
    assert_int_equal(ws.n, 24);
    assert_int_equal(ws.n_files, 3);
    ech_gguf_fini(&g);
    ech_weights_fini(&ws);
}

static void a_model_gives_its_metadata(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, SPLIT, &err), ECH_OK);
    ech_str *tokens = NULL;
    int32_t *kinds = NULL;
    float *floats = NULL;
    size_t n = 0;
    ech_str s = { 0 };
    int64_t id = 0;
    bool bos = true;
    assert_true(ech_model_meta_strings(m, "tokenizer.ggml.tokens", &tokens, &n));
    assert_int_equal(n, 2048);
    assert_true(ech_str_eq(tokens[2041], ECH_STR_LIT("<|im_end|>")));
    free(tokens);
    assert_true(ech_model_meta_strings(m, "test.strings", &tokens, &n));
    assert_int_equal(n, 3);
    assert_true(ech_str_eq(tokens[0], ECH_STR_LIT("")) &&
                ech_str_eq(tokens[1], ECH_STR_LIT("one")));
    free(tokens);
    assert_true(ech_model_meta_ints(m, "tokenizer.ggml.token_type", &kinds, &n));
    assert_int_equal(n, 2048);
    assert_int_equal(kinds[2041], 3);
    free(kinds);
    assert_true(ech_model_meta_ints(m, "test.ints", &kinds, &n));
    assert_true(n == 3 && kinds[0] == 1 && kinds[1] == -2 && kinds[2] == 3);
    free(kinds);
    assert_true(ech_model_meta_floats(m, "test.floats", &floats, &n));
    assert_true(n == 2 && floats[0] == 0.25f && floats[1] == -1.5f);
    free(floats);
    assert_false(ech_model_meta_strings(m, "test.ints", &tokens, &n));
    assert_false(ech_model_meta_ints(m, "test.strings", &kinds, &n));
    assert_true(ech_model_meta_str(m, "tokenizer.ggml.pre", &s) &&
                ech_str_eq(s, ECH_STR_LIT("qwen2")));
    assert_true(ech_model_meta_int(m, "tokenizer.ggml.eos_token_id", &id) && id == 2041);
    assert_true(ech_model_meta_bool(m, "tokenizer.ggml.add_bos_token", &bos) && !bos);
    assert_int_equal(ech_model_get_ids(m)->eos[0], 2041);
    ech_model_close(&m);

    /* A folder in the other format has none. */
    assert_int_equal(ech_model_open(&m, GOLDEN "/qwen3/gqa-tied-bf16", &err), ECH_OK);
    assert_false(ech_model_meta_str(m, "tokenizer.ggml.pre", &s));
    ech_model_close(&m);
}

static void the_image_is_that_of_safetensors(void **state)
{
    (void)state;
    const runner_options o = { .n_threads = 1, .max_rows = 1, .max_positions = 1, .n_seqs = 1 };
    const char *const parts[] = { SPLIT, GOLDEN "/gguf/gqa-tied-bf16-00003-of-00003.gguf" };
    runner a;
    assert_int_equal(runner_open(&a, GOLDEN "/qwen3/gqa-tied-bf16", &o), ECH_OK);
    for (size_t i = 0; i < 2; i++) {
        runner b;
        assert_int_equal(runner_open(&b, parts[i], &o), ECH_OK);
        assert_string_equal(b.info.format, "gguf");
        assert_int_equal(a.image_bytes, b.image_bytes);
        assert_memory_equal(a.image, b.image, a.image_bytes);
        runner_close(&b);
    }
    runner_close(&a);
}

static void a_folder_with_one_gguf_file_means_it(void **state)
{
    (void)state;
    ech_model *m = NULL;
    ech_error err;
    ech_buf whole = fixture_read(ONE);
    fixture_write(&dir, "a.gguf", whole.data, whole.len);
    assert_int_equal(ech_model_open(&m, dir.folder, &err), ECH_OK);
    assert_string_equal(ech_model_folder(m), dir.folder);
    ech_model_close(&m);
    fixture_write(&dir, "b.gguf", whole.data, whole.len);
    assert_int_equal(ech_model_open(&m, dir.folder, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "several GGUF files"));
    ech_buf_fini(&whole);
}

static void parts_of_a_split_file_must_all_be_there(void **state)
{
    (void)state;
    ech_error err;
    fixture_copy(&dir, GOLDEN "/gguf");
    const char *const first = fixture_path(&dir, "gqa-tied-bf16-00001-of-00003.gguf");
    const char *const second = fixture_path(&dir, "gqa-tied-bf16-00002-of-00003.gguf");
    const char *const third = fixture_path(&dir, "gqa-tied-bf16-00003-of-00003.gguf");
    assert_int_equal(read_one(second, &err), ECH_OK);
    assert_int_equal(unlink(second), 0);
    assert_int_equal(read_one(first, &err), ECH_ENOTFOUND);
    assert_non_null(strstr(err.text, "00002-of-00003"));
    /* Another part in its place. */
    assert_int_equal(link(third, second), 0);
    assert_int_equal(read_one(first, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "split.no: expected 1, found 2"));
    /* The first alone, under another name. */
    assert_int_equal(rename(first, fixture_path(&dir, "x.gguf")), 0);
    assert_int_equal(read_one(fixture_path(&dir, "x.gguf"), &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "one of 3 files"));
}

static void headers_are_held_against_the_file(void **state)
{
    (void)state;
    begin(0, 0);
    expect(ECH_OK, "");
    begin(0, 0);
    made.data[4] = 1;
    expect(ECH_EUNSUPPORTED, "version 1");
    begin(0, 0);
    made.data[0] = 'g';
    expect(ECH_EFORMAT, "other first bytes");
    begin(UINT64_MAX, 0);
    expect(ECH_ELIMIT, "at most");
    begin(0, UINT64_MAX);
    expect(ECH_ELIMIT, "at most");
    begin(0, 1);
    put_u64(UINT64_MAX);
    expect(ECH_EFORMAT, "longer than the format allows");
    begin(0, 1);
    put_u64(1000);
    expect(ECH_EFORMAT, "expected 1000 bytes");
    begin(0, 1);
    put_str("k");
    put_u32(13);
    expect(ECH_EFORMAT, "unknown type");
    begin(0, 1);
    put_str("k");
    put_u32(ECH_GGUF_ARRAY);
    put_u32(ECH_GGUF_F64);
    put_u64(UINT64_MAX / 4);
    expect(ECH_EFORMAT, "longer than any file");
    begin(0, 1);
    put_str("k");
    put_u32(ECH_GGUF_ARRAY);
    put_u32(ECH_GGUF_STRING);
    put_u64(UINT64_MAX);
    expect(ECH_EFORMAT, "cut or is damaged");
    begin(0, 1);
    put_str("general.alignment");
    put_u32(ECH_GGUF_U32);
    put_u32(48);
    expect(ECH_EFORMAT, "power of two");
    begin(0, 2);
    for (int i = 0; i < 2; i++) {
        put_str("k");
        put_u32(ECH_GGUF_U8);
        put("x", 1);
    }
    expect(ECH_EFORMAT, "key k stands twice");
}

static void nested_arrays_are_read_to_a_depth(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth < 8; depth++) {
        begin(0, 1);
        put_str("k");
        for (uint32_t i = 0; i < depth; i++) {
            put_u32(ECH_GGUF_ARRAY);
            if (i > 0) put_u64(1);
        }
        put_u32(ECH_GGUF_U8);
        put_u64(1);
        put("x", 1);
        const bool deep = depth > ECH_GGUF_DEPTH_MAX + 1;
        expect(deep ? ECH_EFORMAT : ECH_OK, deep ? "too deeply" : "");
    }
}

static void tensors_lie_aligned_inside_and_apart(void **state)
{
    (void)state;
    begin(2, 0);
    put_tensor("a", 4, 2, 0, 0);
    put_tensor("b", 4, 2, 0, 32);
    put_data(64);
    expect(ECH_OK, "");
    begin(2, 0);
    put_tensor("a", 4, 2, 0, 0);
    put_tensor("b", 4, 2, 0, 32);
    put_data(63);
    expect(ECH_EFORMAT, "tensor b: expected 32 bytes");
    begin(1, 0);
    put_tensor("a", 4, 2, 0, 16);
    put_data(64);
    expect(ECH_EFORMAT, "alignment");
    begin(2, 0);
    put_tensor("a", 4, 4, 0, 0);
    put_tensor("b", 4, 2, 0, 32);
    put_data(64);
    expect(ECH_EFORMAT, "tensor b: its data overlaps that of a");
    begin(1, 0);
    put_tensor("a", 4, 2, 0, UINT64_MAX - 31);
    put_data(64);
    expect(ECH_EFORMAT, "was cut");
    begin(1, 0);
    put_tensor("a", UINT64_MAX / 2, UINT64_MAX / 2, 0, 0);
    put_data(64);
    expect(ECH_EFORMAT, "larger than any file");
    begin(1, 0);
    put_tensor("a", 33, 1, 2, 0);
    put_data(64);
    expect(ECH_EFORMAT, "whole blocks of q4_0");
    begin(1, 0);
    put_tensor("a", 32, 1, 4, 0);
    put_data(64);
    expect(ECH_EUNSUPPORTED, "unknown type number 4");
    begin(2, 0);
    put_tensor("a", 4, 2, 0, 0);
    put_tensor("a", 4, 2, 0, 32);
    put_data(64);
    expect(ECH_EFORMAT, "twice");
    begin(1, 0);
    put_str("a");
    put_u32(5);
    expect(ECH_EFORMAT, "4 dimensions");
    begin(1, 0);
    put_str("a\n");
    expect(ECH_EFORMAT, "control characters");
}

static void every_truncation_is_an_error(void **state)
{
    (void)state;
    ech_buf whole = fixture_read(ONE);
    fixture_write(&dir, "m.gguf", whole.data, whole.len);
    const char *const path = fixture_path(&dir, "m.gguf");
    ech_error err;
    assert_int_equal(read_one(path, &err), ECH_OK);
    for (size_t i = 1; i <= 200; i++) {
        /* The last bytes fill the file up to the alignment and may be missing. */
        const size_t len = (whole.len - 32) * (200 - i) / 200;
        assert_int_equal(truncate(path, (off_t)len), 0);
        const ech_status rc = read_one(path, &err);
        if (rc != ECH_EFORMAT) print_error("cut at %zu: %s\n", len, ech_status_name(rc));
        assert_int_equal(rc, ECH_EFORMAT);
    }
    ech_buf_fini(&whole);
}

static void bit_flips_never_crash(void **state)
{
    (void)state;
    const char *const text = getenv("ECH_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    print_message("seed=%llu\n", (unsigned long long)seed);
    ech_buf whole = fixture_read(ONE);
    fixture_write(&dir, "m.gguf", whole.data, whole.len);
    const char *const path = fixture_path(&dir, "m.gguf");
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned errors = 0;
    for (int i = 0; i < 600; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const off_t at = i < 192 ? i / 8 : (off_t)((seed >> 33) % (i < 400 ? 2000 : 70000));
        const char flipped = (char)(whole.data[at] ^ (1 << (i % 8)));
        assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
        ech_model *m = NULL;
        errors += ech_model_open(&m, path, NULL) != ECH_OK;
        ech_model_close(&m);
        assert_int_equal(pwrite(fd, &whole.data[at], 1, at), 1);
    }
    assert_true(errors > 150);
    assert_int_equal(read_one(path, NULL), ECH_OK);
    (void)close(fd);
    ech_buf_fini(&whole);
}

/* Changes one value of the metadata in place. */
static void change(const char *const key, const void *const bytes, const size_t len)
{
    ech_buf b = fixture_read(ONE);
    char *const at = memmem(b.data, b.len, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + sizeof(uint32_t), bytes, len);
    fixture_write(&dir, "c.gguf", b.data, b.len);
    ech_buf_fini(&b);
}

static void refuse(const ech_status code, const char *const text)
{
    ech_model *m = NULL;
    ech_error err = { 0 };
    const ech_status rc = ech_model_open(&m, fixture_path(&dir, "c.gguf"), &err);
    if (rc != code || strstr(err.text, text) == NULL)
        print_error("%s \"%s\" instead of \"%s\"\n", ech_status_name(rc), err.text, text);
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
}

static void what_is_not_computed_is_refused_by_name(void **state)
{
    (void)state;
    const uint32_t three = 3;
    const uint32_t sixteen = 16;
    const uint32_t zero = 0;
    const uint32_t many = 100000;
    const float minus = -1.0f;
    change("qwen3.attention.value_length", &sixteen, 4);
    refuse(ECH_EUNSUPPORTED, "qwen3.attention.value_length: values of another length");
    change("qwen3.attention.head_count_kv", &three, 4);
    refuse(ECH_EFORMAT, "4 query heads and 3 KV heads");
    change("qwen3.block_count", &zero, 4);
    refuse(ECH_EFORMAT, "qwen3.block_count: expected an integer from 1 to");
    change("qwen3.block_count", &many, 4);
    refuse(ECH_EFORMAT, "qwen3.block_count");
    change("qwen3.block_count", &three, 4);
    refuse(ECH_EFORMAT, "blk.2.attn_norm.weight is missing");
    change("qwen3.rope.freq_base", &minus, 4);
    refuse(ECH_EFORMAT, "qwen3.rope.freq_base");
    change("general.architecture", "\5\0\0\0\0\0\0\0qwen9", 13);
    refuse(ECH_EUNSUPPORTED, "general.architecture: expected one of qwen3, llama, found \"qwen9\"");
}

/* Another pair before all others, of a size that keeps the data aligned; the key's own is renamed. */
static void give(const char *const key, const uint32_t type, const void *const value,
                 const size_t len)
{
    ech_buf b = fixture_read(ONE);
    ech_buf out = { 0 };
    char *const at = memmem(b.data, b.len, key, strlen(key));
    if (at != NULL) at[strlen(key) - 1] = 'Z';
    const uint64_t key_len = strlen(key), one = 1;
    const size_t pair = sizeof key_len + key_len + sizeof type + len;
    const size_t rest = sizeof one + 1 + sizeof type + sizeof one;
    const uint64_t filler = (32 - (pair + rest) % 32) % 32;
    const uint32_t string = 8;
    char zeros[32] = "";
    uint64_t n;
    memcpy(&n, b.data + 16, sizeof n);
    n += 2;
    memcpy(b.data + 16, &n, sizeof n);
    const struct {
        const void *ptr;
        size_t len;
    } parts[] = { { b.data, 24 },   { &key_len, 8 }, { key, key_len }, { &type, 4 },
                  { value, len },   { &one, 8 },     { "x", 1 },       { &string, 4 },
                  { &filler, 8 },   { zeros, filler }, { b.data + 24, b.len - 24 } };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_int_equal(ech_buf_append(&out, parts[i].ptr, parts[i].len), ECH_OK);
    fixture_write(&dir, "c.gguf", out.data, out.len);
    ech_buf_fini(&out);
    ech_buf_fini(&b);
}

static void a_key_of_another_type_is_not_an_absent_one(void **state)
{
    (void)state;
    static const char *const NUMBERS[] = { "bos_token_id",     "eos_token_id",     "eot_token_id",
                                           "eom_token_id",     "unknown_token_id", "padding_token_id",
                                           "seperator_token_id", "cls_token_id" };
    static const char *const OTHERS[] = { "model",         "pre",           "tokens",
                                          "merges",        "scores",        "token_type",
                                          "add_bos_token", "add_eos_token", "add_space_prefix",
                                          "remove_extra_whitespaces" };
    const uint32_t seven = 7;
    const char text[] = "\1\0\0\0\0\0\0\0a";
    const char list[] = "\4\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\1\0\0"; /* two u32 */
    char key[128];
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", OTHERS[i]);
        give(key, 4, &seven, 4);
        refuse(ECH_EFORMAT, key);
    }
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", NUMBERS[i]);
        give(key, 8, text, sizeof text - 1);
        refuse(ECH_EFORMAT, key);
        give(key, 7, "\1", 1);
        refuse(ECH_EFORMAT, key);
    }
    give("tokenizer.chat_template", 4, &seven, 4);
    refuse(ECH_EFORMAT, "tokenizer.chat_template: expected a string");
    give("qwen3.rope.scaling.type", 4, &seven, 4);
    refuse(ECH_EFORMAT, "qwen3.rope.scaling.type: expected a string");
    give("qwen3.pooling_type", 8, text, sizeof text - 1);
    refuse(ECH_EFORMAT, "qwen3.pooling_type: expected a number");
    give("tokenizer.ggml.token_type", 9, list, sizeof list);
    refuse(ECH_EFORMAT, "tokenizer.ggml.token_type: expected one element for each of");
    give("tokenizer.ggml.scores", 9, list, sizeof list);
    refuse(ECH_EFORMAT, "tokenizer.ggml.scores: expected one element for each of");
    give("a.key.that.nobody.knows", 4, &seven, 4); /* the helper itself makes a good file */
    ech_model *m = NULL;
    assert_int_equal(ech_model_open(&m, fixture_path(&dir, "c.gguf"), NULL), ECH_OK);
    ech_model_close(&m);
}

static void an_epsilon_is_not_guessed(void **state)
{
    (void)state;
    ech_buf b = fixture_read(ONE);
    char *const at = memmem(b.data, b.len, "layer_norm_rms", 14);
    assert_non_null(at);
    *at = 'L';
    fixture_write(&dir, "c.gguf", b.data, b.len);
    ech_buf_fini(&b);
    refuse(ECH_EFORMAT, "qwen3.attention.layer_norm_rms_epsilon is missing");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reads_values_of_every_type),
        TEST(a_model_gives_its_metadata),
        TEST(the_image_is_that_of_safetensors),
        TEST(a_folder_with_one_gguf_file_means_it),
        TEST(parts_of_a_split_file_must_all_be_there),
        TEST(headers_are_held_against_the_file),
        TEST(nested_arrays_are_read_to_a_depth),
        TEST(tensors_lie_aligned_inside_and_apart),
        TEST(every_truncation_is_an_error),
        TEST(bit_flips_never_crash),
        TEST(what_is_not_computed_is_refused_by_name),
        TEST(a_key_of_another_type_is_not_an_absent_one),
        TEST(an_epsilon_is_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
