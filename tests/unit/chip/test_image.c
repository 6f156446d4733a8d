/* SPDX-License-Identifier: Apache-2.0 */
/* The packed image: what plan and pack write is found again, and no damage gets past the check. */
#include <stdlib.h>
#include <string.h>

#include "src/chip/half.h"
#include "src/chip/image.h"
#include "tests/unit/chip/toy.h"
#include "tests/unit/test.h"

static void sizes_follow_the_layout(void **state)
{
    (void)state;
    assert_int_equal(ech_panel_bytes(ECH_PACK_F32, 3), 3 * 64);
    assert_int_equal(ech_panel_bytes(ECH_PACK_F16, 3), 128); /* 96, to a multiple of 64 */
    assert_int_equal(ech_panel_bytes(ECH_PACK_BF16, 3), 128);
    assert_int_equal(ech_matrix_bytes(ECH_PACK_BF16, 17, 64), 2 * 64 * 32);
    assert_int_equal(ech_panel_bytes(ECH_PACK_COUNT, 64), 0);
    assert_int_equal(ech_panel_bytes(ECH_PACK_F32, 0), 0);
    assert_int_equal(ech_matrix_bytes(ECH_PACK_F32, UINT64_MAX, 64), 0);
}

static void *make_image(uint64_t *const ret_bytes)
{
    ech_image_plan plan = { 0 };
    ech_error err;
    uint32_t idx = 9;
    assert_int_equal(ech_image_plan_matrix(&plan, "m", ECH_PACK_F16, 20, 40, &idx, &err), ECH_OK);
    assert_int_equal(idx, 0);
    assert_int_equal(ech_image_plan_vector(&plan, "v", 7, &idx, &err), ECH_OK);
    assert_int_equal(ech_image_plan_raw(&plan, "r", 5000, NULL, &err), ECH_OK);
    assert_int_equal(ech_image_plan_raw(&plan, "v", 1, NULL, &err), ECH_EINVAL);
    assert_int_equal(ech_image_plan_raw(&plan, "", 1, NULL, &err), ECH_EINVAL);
    assert_int_equal(ech_image_plan_vector(&plan, "none", 0, NULL, &err), ECH_EINVAL);
    *ret_bytes = ech_image_plan_place(&plan);
    void *const image = aligned_alloc(ECH_IMAGE_ALIGN, *ret_bytes);
    memset(image, 0, *ret_bytes);
    ech_image_plan_write(&plan, image);
    ech_image_plan_fini(&plan);
    return image;
}

static void entries_are_found_by_name(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    ech_error err;
    void *const image = make_image(&bytes);
    assert_int_equal(ech_image_check(image, bytes, &err), ECH_OK);
    const ech_image_entry *const v = ech_image_find(image, "v");
    assert_non_null(v);
    assert_int_equal(v->rows, 7);
    assert_int_equal(v->offset % ECH_IMAGE_ALIGN, 0);
    assert_null(ech_image_find(image, "w"));
    assert_int_equal(ech_image_verify(image, bytes, &err), ECH_OK);
    free(image);
}

static void every_damaged_byte_of_the_directory_is_found(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    ech_error err;
    char *const image = make_image(&bytes);
    const size_t end = sizeof(ech_image_header) + 3 * sizeof(ech_image_entry);
    for (size_t i = 0; i < end; i++) {
        if (i >= offsetof(ech_image_header, reserved) && i < sizeof(ech_image_header)) continue;
        image[i] ^= 0x11;
        assert_int_equal(ech_image_check(image, bytes, &err), ECH_EFORMAT);
        image[i] ^= 0x11;
    }
    for (size_t len = 0; len < bytes; len += 97)
        assert_int_equal(ech_image_check(image, len, &err), ECH_EFORMAT);
    assert_int_equal(ech_image_check(image, bytes, &err), ECH_OK);
    free(image);
}

/* A directory with a right checksum is still input. */
static void entries_outside_the_image_are_refused(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    ech_error err;
    char *const image = make_image(&bytes);
    ech_image_header *const h = (ech_image_header *)image;
    ech_image_entry *const e = (ech_image_entry *)(image + h->dir_offset);
    const ech_image_entry good = e[1];
    const ech_image_entry bads[] = {
        { .kind = 2, .rows = 7, .cols = 1, .offset = bytes, .bytes = 28, .name = "v" },
        { .kind = 2, .rows = 7, .cols = 1, .offset = UINT64_MAX - 4095, .bytes = 28, .name = "v" },
        { .kind = 2, .rows = 7, .cols = 1, .offset = good.offset + 4, .bytes = 28, .name = "v" },
        { .kind = 2, .rows = 7, .cols = 1, .offset = 0, .bytes = 28, .name = "v" },
        { .kind = 2, .rows = 8, .cols = 1, .offset = good.offset, .bytes = 28, .name = "v" },
        { .kind = 9, .rows = 7, .cols = 1, .offset = good.offset, .bytes = 28, .name = "v" },
        { .kind = 1,
          .type = 99,
          .rows = 1,
          .cols = 1,
          .offset = good.offset,
          .bytes = 64,
          .name = "v" },
        { .kind = 2, .rows = 7, .cols = 1, .offset = good.offset, .bytes = 28, .name = "m" },
        { .kind = 2, .rows = 7, .cols = 1, .offset = good.offset, .bytes = 28, .name = "" },
    };
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        e[1] = bads[i];
        h->dir_checksum = ech_checksum(e, h->n_entries * sizeof(*e));
        assert_int_equal(ech_image_check(image, bytes, &err), ECH_EFORMAT);
    }
    free(image);
}

static void checksums_see_every_bit_and_the_length(void **state)
{
    (void)state;
    unsigned char data[100] = { 1, 2, 3 };
    for (size_t len = 0; len < sizeof(data); len++) {
        const uint64_t sum = ech_checksum(data, len);
        assert_true(sum != ech_checksum(data, len + 1));
        for (size_t bit = 0; bit < len * 8; bit += 5) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_true(ech_checksum(data, len) != sum);
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

static void half_floats_convert_as_the_standard_has_it(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = ech_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00)
            assert_true(f != f);
        else
            assert_int_equal(ech_f16_from_f32(f), h);
        const float b = ech_bf16_to_f32((uint16_t)h);
        if (b == b) assert_int_equal(ech_bf16_from_f32(b), h);
    }
    assert_int_equal(ech_f16_from_f32(65519.9f), 0x7bff);
    assert_int_equal(ech_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(ech_f16_from_f32_clamped(1e9f), 0x7bff);
    assert_int_equal(ech_f16_from_f32(0x1p-25f), 0); /* a tie, to even */
    assert_int_equal(ech_f16_from_f32(0x1.000002p-25f), 1);
    assert_int_equal(ech_f16_from_f32(0x1.002p0f), 0x3c00); /* a tie, to even */
    assert_int_equal(ech_bf16_from_f32(0x1.01p0f), 0x3f80); /* a tie, to even */
    assert_int_equal(ech_bf16_from_f32(0x1.03p0f), 0x3f82);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_layout),
        cmocka_unit_test(entries_are_found_by_name),
        cmocka_unit_test(every_damaged_byte_of_the_directory_is_found),
        cmocka_unit_test(entries_outside_the_image_are_refused),
        cmocka_unit_test(checksums_see_every_bit_and_the_length),
        cmocka_unit_test(half_floats_convert_as_the_standard_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
