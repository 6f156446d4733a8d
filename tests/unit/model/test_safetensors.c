/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/model/safetensors.h"
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

static ech_status read_one(const char *const path, ech_error *const err)
{
    ech_weights ws = { 0 };
    ech_status rc = ech_safetensors_read(&ws, path, err);
    if (rc == ECH_OK) rc = ech_weights_seal(&ws, err);
    ech_weights_fini(&ws);
    return rc;
}

/* Writes a file with this header and expects an error that contains each text. */
static void refuse(const char *const header, const size_t n_data, const ech_status code,
                   const char *const text)
{
    ech_error err = { 0 };
    fixture_safetensors(&dir, "a.safetensors", header, n_data);
    const ech_status rc = read_one(fixture_path(&dir, "a.safetensors"), &err);
    if (rc != code || strstr(err.text, text) == NULL) {
        print_error("header %s: %s \"%s\"\n", header, ech_status_name(rc), err.text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "a.safetensors"));
}

static void reads_names_types_shapes_and_offsets(void **state)
{
    (void)state;
    ech_weights ws = { 0 };
    fixture_safetensors(&dir, "a.safetensors",
                        "{\"__metadata__\":{\"format\":\"pt\"},"
                        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                        "\"z\":{\"dtype\":\"F16\",\"shape\":[0,5],\"data_offsets\":[16,16]}}   ",
                        16);
    ech_error err;
    assert_int_equal(ech_safetensors_read(&ws, fixture_path(&dir, "a.safetensors"), &err), ECH_OK);
    assert_int_equal(ech_weights_seal(&ws, &err), ECH_OK);
    assert_int_equal(ws.n, 3);
    const ech_weight *const b = ech_weights_find(&ws, "b");
    assert_non_null(b);
    assert_int_equal(b->type, ECH_WTYPE_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->offset, ws.files[0].size - 12);
    assert_int_equal(ech_weights_find(&ws, "a")->bytes, 4);
    assert_int_equal(ech_weights_find(&ws, "z")->bytes, 0);
    assert_null(ech_weights_find(&ws, "c"));
    ech_weights_fini(&ws);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void refuses_headers_that_do_not_fit(void **state)
{
    (void)state;
    refuse("{" T("a", "F32", "[2]", "[0,8]") "}", 7, ECH_EFORMAT, "cut");
    refuse("{" T("a", "F32", "[2]", "[0,8]") "}", 9, ECH_EFORMAT, "expected the file to end");
    refuse("{" T("a", "F32", "[3]", "[0,8]") "}", 8, ECH_EFORMAT,
           "expected 12 bytes for f32 [3], found 8");
    refuse("{" T("a", "F32", "[2]", "[8,0]") "}", 8, ECH_EFORMAT, "data_offsets");
    refuse("{" T("a", "F32", "[2]", "[-8,0]") "}", 8, ECH_EFORMAT, "data_offsets");
    refuse("{" T("a", "F32", "[2]", "[0,8,9]") "}", 8, ECH_EFORMAT, "data_offsets");
    refuse("{" T("a", "F32", "[2]", "[0]") "}", 8, ECH_EFORMAT, "data_offsets");
    refuse("{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 12,
           ECH_EFORMAT, "overlap");
    refuse("{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[0,8]") "}", 8, ECH_EFORMAT,
           "overlap");
    refuse("{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[12,16]") "}", 16,
           ECH_EFORMAT, "hole");
    refuse("{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[8,16]") "}", 16,
           ECH_EFORMAT, "duplicate");
    refuse("{" T("a", "F32", "[-1]", "[0,8]") "}", 8, ECH_EFORMAT, "sizes");
    refuse("{" T("a", "F32", "[1.5]", "[0,8]") "}", 8, ECH_EFORMAT, "sizes");
    refuse("{" T("a", "F32", "3", "[0,8]") "}", 8, ECH_EFORMAT, "shape");
    refuse("{" T("a", "F32", "[4294967296,4294967296]", "[0,8]") "}", 8, ECH_EFORMAT,
           "larger than any file");
    refuse("{" T("a", "F32", "[9223372036854775807]", "[0,8]") "}", 8, ECH_EFORMAT,
           "larger than any file");
    refuse("{" T("a", "F32", "[18446744073709551616]", "[0,8]") "}", 8, ECH_EFORMAT, "not JSON");
    refuse("{" T("a", "F31", "[2]", "[0,8]") "}", 8, ECH_EUNSUPPORTED, "F31");
    refuse("{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, ECH_EUNSUPPORTED,
           "9 dimensions");
    refuse("{" T("a\\n", "F32", "[2]", "[0,8]") "}", 8, ECH_EFORMAT, "control characters");
    refuse("{" T("", "F32", "[2]", "[0,8]") "}", 8, ECH_EFORMAT, "empty");
    refuse("{\"a\":7}", 0, ECH_EFORMAT, "no object");
    refuse("{\"a\":{}}", 0, ECH_EFORMAT, "dtype");
    refuse("[]", 0, ECH_EFORMAT, "no JSON object");
    refuse("{", 0, ECH_EFORMAT, "not JSON");
    refuse("", 0, ECH_EFORMAT, "not JSON");
}

static void refuses_deep_json(void **state)
{
    (void)state;
    char deep[20001];
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = '\0';
    refuse(deep, 0, ECH_EFORMAT, "depth");
}

static void refuses_lengths_beyond_the_file_or_the_limit(void **state)
{
    (void)state;
    ech_error err = { 0 };
    fixture_write(&dir, "a.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_int_equal(read_one(fixture_path(&dir, "a.safetensors"), &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "expected a header of 18446744073709551615 bytes, found 2"));

    /* A sparse file is large enough for any length. */
    fixture_write(&dir, "a.safetensors", "\x01\x00\x00\x02\x00\x00\x00\x00{}", 10);
    assert_int_equal(truncate(fixture_path(&dir, "a.safetensors"), 1 << 30), 0);
    assert_int_equal(read_one(fixture_path(&dir, "a.safetensors"), &err), ECH_ELIMIT);

    fixture_write(&dir, "a.safetensors", "", 0);
    assert_int_equal(read_one(fixture_path(&dir, "a.safetensors"), &err), ECH_EFORMAT);
    assert_int_equal(read_one(fixture_path(&dir, "none.safetensors"), &err), ECH_ENOTFOUND);
    assert_int_equal(read_one(dir.folder, &err), ECH_EFORMAT);
}

static void refuses_a_fifo_without_waiting(void **state)
{
    (void)state;
    ech_error err;
    assert_int_equal(mkfifo(fixture_path(&dir, "f.safetensors"), 0600), 0);
    assert_int_equal(read_one(fixture_path(&dir, "f.safetensors"), &err), ECH_EFORMAT);
}

/* A real file cut at 200 places, from the end to nothing, then whole again but for one byte more.
 */
static void every_truncation_is_an_error(void **state)
{
    (void)state;
    ech_buf whole = fixture_read(GOLDEN "/qwen3/gqa-tied-bf16/model.safetensors");
    fixture_write(&dir, "m.safetensors", whole.data, whole.len);
    const char *const path = fixture_path(&dir, "m.safetensors");
    ech_error err;
    assert_int_equal(read_one(path, &err), ECH_OK);
    for (size_t i = 1; i <= 200; i++) {
        /* Half of the places in the header, where the structure is, half in the data. */
        const size_t header = 4096;
        const size_t len = i <= 100 ? whole.len - 1 - (whole.len - header) * (i - 1) / 100
                                    : header - header * (i - 100) / 100;
        assert_int_equal(truncate(path, (off_t)len), 0);
        const ech_status rc = read_one(path, &err);
        if (rc != ECH_EFORMAT) print_error("cut at %zu: %s\n", len, ech_status_name(rc));
        assert_int_equal(rc, ECH_EFORMAT);
    }
    ech_buf_fini(&whole);
}

/* Whatever one flipped bit makes of the header, reading ends, in order, with or without an error.
 */
static void bit_flips_never_crash(void **state)
{
    (void)state;
    const char *const text = getenv("ECH_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    print_message("seed=%llu\n", (unsigned long long)seed);
    ech_buf whole = fixture_read(GOLDEN "/qwen3/gqa-tied-bf16/model.safetensors");
    fixture_write(&dir, "m.safetensors", whole.data, whole.len);
    const char *const path = fixture_path(&dir, "m.safetensors");
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned errors = 0;
    for (int i = 0; i < 400; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const off_t at = i < 64 ? i / 8 : (off_t)(8 + (seed >> 33) % 2400);
        const char flipped = (char)(whole.data[at] ^ (1 << (i % 8)));
        assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
        errors += read_one(path, NULL) != ECH_OK;
        assert_int_equal(pwrite(fd, &whole.data[at], 1, at), 1);
    }
    assert_true(errors > 200);
    assert_int_equal(read_one(path, NULL), ECH_OK);
    (void)close(fd);
    ech_buf_fini(&whole);
}

static ech_status read_index(ech_weights *const ws, ech_error *const err)
{
    return ech_safetensors_read_index(ws, fixture_path(&dir, "model.safetensors.index.json"), err);
}

static void refuse_index(const char *const json, const ech_status code, const char *const text)
{
    ech_weights ws = { 0 };
    ech_error err = { 0 };
    fixture_puts(&dir, "model.safetensors.index.json", json);
    const ech_status rc = read_index(&ws, &err);
    if (rc != code || strstr(err.text, text) == NULL) {
        print_error("index %s: %s \"%s\"\n", json, ech_status_name(rc), err.text);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, text));
    ech_weights_fini(&ws);
}

static void an_index_is_held_against_its_shards(void **state)
{
    (void)state;
    fixture_safetensors(&dir, "one.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    fixture_safetensors(&dir, "two.safetensors", "{" T("b", "F32", "[2]", "[0,8]") "}", 8);
    fixture_safetensors(&dir, "twice.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    fixture_puts(&dir, "model.safetensors.index.json",
                 "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    ech_weights ws = { 0 };
    ech_error err;
    assert_int_equal(read_index(&ws, &err), ECH_OK);
    assert_int_equal(ws.n, 2);
    assert_int_equal(ws.n_files, 2);
    ech_weights_fini(&ws);

    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}",
                 ECH_EFORMAT, "tensor c: expected it in two.safetensors, found it nowhere");
    refuse_index("{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}",
                 ECH_EFORMAT, "another shard");
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"twice.safetensors\"}}",
                 ECH_EFORMAT, "twice in the model");
    refuse_index("{\"weight_map\":{\"a\":\"../one.safetensors\"}}", ECH_EFORMAT, "same folder");
    refuse_index("{\"weight_map\":{\"a\":\"..\"}}", ECH_EFORMAT, "same folder");
    refuse_index("{\"weight_map\":{\"a\":7}}", ECH_EFORMAT, "same folder");
    refuse_index("{\"weight_map\":{}}", ECH_EFORMAT, "empty");
    refuse_index("{}", ECH_EFORMAT, "missing");
    refuse_index("[]", ECH_EFORMAT, "missing");
    refuse_index("{\"weight_map\"", ECH_EFORMAT, "line 1");
}

static void missing_shards_are_named_with_what_is_there(void **state)
{
    (void)state;
    fixture_safetensors(&dir, "one.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"m-2.safetensors\",\"c\":\"m-3."
                 "safetensors\"}}",
                 ECH_ENOTFOUND,
                 "2 of its 3 shards don't exist: m-2.safetensors, m-3.safetensors; the folder "
                 "holds: one.safetensors");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reads_names_types_shapes_and_offsets),
        TEST(refuses_headers_that_do_not_fit),
        TEST(refuses_deep_json),
        TEST(refuses_lengths_beyond_the_file_or_the_limit),
        TEST(refuses_a_fifo_without_waiting),
        TEST(every_truncation_is_an_error),
        TEST(bit_flips_never_crash),
        TEST(an_index_is_held_against_its_shards),
        TEST(missing_shards_are_named_with_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
