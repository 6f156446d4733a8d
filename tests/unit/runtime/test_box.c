/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes against brute force: every byte of random views is marked and compared. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/runtime/box.h"

#define BYTES 512
#ifdef ECH_SANITIZE
#define ROUNDS 10000
#else
#define ROUNDS 200000
#endif

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static void mark(const ech_tensor *t, uint32_t dim, uint64_t at, uint8_t *map)
{
    if (dim == t->ndim) {
        for (size_t i = 0; i < ech_dtype_bytes((ech_dtype)t->dtype); i++)
            map[at + i] = 1;
        return;
    }
    for (uint64_t i = 0; i < t->shape[dim]; i++)
        mark(t, dim + 1, at + i * t->strides[dim] * ech_dtype_bytes((ech_dtype)t->dtype), map);
}

/* A box of a row-major tensor of random shape, as slices of it give. */
static bool random_view(const uint64_t *shape, uint32_t ndim, ech_dtype dtype, ech_tensor *t)
{
    *t = ech_tensor_view((ech_buffer){ { 1, 1 }, 1, 1 }, 0, dtype, ndim, shape);
    for (uint32_t d = 0; d < ndim; d++) {
        const uint32_t start = below((uint32_t)shape[d]);
        *t = ech_tensor_slice(t, d, start, 1 + below((uint32_t)shape[d] - start));
    }
    return true;
}

static void check_pair(const ech_tensor *a, const ech_tensor *b, bool exact)
{
    uint8_t ma[BYTES * 8] = { 0 }, mb[BYTES * 8] = { 0 };
    ech_box ba, bb;
    assert_int_equal(ech_box_from(a, BYTES * 8, "a", &ba, NULL), ECH_OK);
    assert_int_equal(ech_box_from(b, BYTES * 8, "b", &bb, NULL), ECH_OK);
    mark(a, 0, a->offset, ma);
    mark(b, 0, b->offset, mb);
    bool common = false, inside = true;
    for (int i = 0; i < BYTES * 8; i++) {
        common |= ma[i] && mb[i];
        inside &= !mb[i] || ma[i];
    }
    const bool said = ech_box_overlaps(&ba, &bb);
    if (said != ech_box_overlaps(&bb, &ba)) fail_msg("overlap isn't symmetric");
    if (common && !said) fail_msg("an overlap was missed");
    if (exact && said && !common) fail_msg("an overlap was made up");
    if (ech_box_covers(&ba, &bb) && !inside) fail_msg("a cover was made up");
}

static void boxes_of_one_tensor_are_exact(void **s)
{
    (void)s;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t shape[ECH_MAX_DIMS];
        ech_tensor a, b;
        const uint32_t ndim = 1 + below(ECH_MAX_DIMS);
        const ech_dtype dtype = (ech_dtype)below(ECH_DTYPE_COUNT);
        for (uint32_t d = 0; d < ndim; d++)
            shape[d] = 1 + below(3);
        random_view(shape, ndim, dtype, &a);
        random_view(shape, ndim, dtype, &b);
        check_pair(&a, &b, true);
    }
}

static void a_dense_range_and_a_box_are_exact(void **s)
{
    (void)s;
    for (int i = 0; i < ROUNDS / 2; i++) {
        const uint64_t shape[3] = { 1 + below(4), 1 + below(5), 1 + below(6) };
        const uint64_t all = shape[0] * shape[1] * shape[2];
        ech_tensor a, b;
        random_view(shape, 3, ECH_DTYPE_F32, &a);
        random_view(&all, 1, ECH_DTYPE_F32, &b);
        check_pair(&a, &b, true);
    }
}

static void unrelated_strides_never_miss(void **s)
{
    (void)s;
    for (int i = 0; i < ROUNDS; i++) {
        ech_tensor t[2];
        for (int k = 0; k < 2; k++) {
            t[k] = (ech_tensor){ .dtype = (uint8_t)below(ECH_DTYPE_COUNT),
                                 .ndim = (uint8_t)(1 + below(3)) };
            t[k].offset = below(64);
            for (uint32_t d = 0; d < t[k].ndim; d++) {
                t[k].shape[d] = 1 + below(4);
                t[k].strides[d] = below(20);
            }
        }
        check_pair(&t[0], &t[1], false);
    }
}

static void bad_views_are_named(void **s)
{
    (void)s;
    ech_error err;
    ech_box box;
    const uint64_t n = 16, big = UINT64_MAX / 2;
    ech_tensor t = ech_tensor_view((ech_buffer){ { 1, 1 }, 1, 1 }, 0, ECH_DTYPE_F32, 1, &n);
    assert_int_equal(ech_box_from(&t, 63, "x", &box, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "nbytes"));
    t.dtype = 99;
    assert_int_equal(ech_box_from(&t, 64, "x", &box, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "dtype"));
    t.dtype = ECH_DTYPE_F32;
    t.ndim = 6;
    assert_int_equal(ech_box_from(&t, 64, "x", &box, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "ndim"));
    t = ech_tensor_view((ech_buffer){ { 1, 1 }, 1, 1 }, 8, ECH_DTYPE_F32, 1, &big);
    assert_int_equal(ech_box_from(&t, 64, "x", &box, &err), ECH_EINVAL);
    t = ech_tensor_slice(&t, 0, 5, big);
    assert_int_equal(ech_box_from(&t, 64, "x", &box, &err), ECH_EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_of_one_tensor_are_exact),
        cmocka_unit_test(a_dense_range_and_a_box_are_exact),
        cmocka_unit_test(unrelated_strides_never_miss),
        cmocka_unit_test(bad_views_are_named),
    };
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    printf("seed=%llu\n", (unsigned long long)state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
