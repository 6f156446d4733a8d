/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 and their neighbours in length. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "src/base/sha256.h"

static void check(const char *text, size_t len, const char *hex)
{
    /* In one piece and in pieces of every size. */
    for (size_t step = 0; step <= 65; step++) {
        ech_sha256 s;
        uint8_t out[32];
        char got[65];
        ech_sha256_init(&s);
        for (size_t at = 0; at < len && step > 0; at += step)
            ech_sha256_update(&s, text + at, len - at < step ? len - at : step);
        if (step == 0) ech_sha256_update(&s, text, len);
        ech_sha256_final(&s, out);
        for (int i = 0; i < 32; i++)
            snprintf(got + 2 * i, 3, "%02x", out[i]);
        assert_string_equal(got, hex);
    }
}

static void examples(void **state)
{
    (void)state;
    char a[1000];
    memset(a, 'a', sizeof a);
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    check(a, 1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(examples) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
