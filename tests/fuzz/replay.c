/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main of a fuzz target in a normal test run: replay FOLDER. Runs every file of the corpus,
 * then mutations of each: cuts, flipped bits, copied and repeated pieces, numbers at their limits.
 * ECH_TEST_SEED takes back a seed that was printed; the input that runs is written nowhere, so a
 * crash is found again by its seed.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "tests/fuzz/fuzz.h"

#ifdef ECH_SANITIZE
#define MUTATIONS 150
#else
#define MUTATIONS 400
#endif
#define INPUT_MAX 65536u

static uint64_t rng;

static uint32_t random_below(const size_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return n == 0 ? 0 : (uint32_t)((rng >> 33) % n);
}

static void flip(char *const data, const size_t len)
{
    data[random_below(len)] ^= (char)(1u << random_below(8));
}

static void overwrite(char *const data, const size_t len)
{
    static const uint8_t ODD[] = {
        0x00, 0xff, 0x7f, 0x80, '"', '\\', '[', '{', '-', '9', 0xc3, '\n'
    };
    const size_t n = 1 + random_below(8);
    const size_t at = random_below(len);
    const uint8_t byte = ODD[random_below(sizeof ODD)];
    for (size_t i = at; i < at + n && i < len; i++) {
        data[i] = (char)byte;
    }
}

static void copy_piece(char *const data, const size_t len)
{
    const size_t n = 1 + random_below(len / 2 + 1);
    const size_t from = random_below(len - n + 1);
    const size_t to = random_below(len - n + 1);
    memmove(data + to, data + from, n);
}

/* Changes a few places of a copy and runs it; the copy is of its exact size, so that overruns show.
 */
static void run_mutation(const ech_buf *const input)
{
    const size_t len = random_below(4) == 0 ? random_below(input->len + 1) : input->len;
    char *const data = malloc(len > 0 ? len : 1);
    if (data == NULL) return;
    if (len > 0) memcpy(data, input->data, len);
    for (uint32_t n = random_below(4); n > 0 && len > 0; n--) {
        switch (random_below(3)) {
        case 0:
            flip(data, len);
            break;
        case 1:
            overwrite(data, len);
            break;
        default:
            copy_piece(data, len);
            break;
        }
    }
    (void)LLVMFuzzerTestOneInput((const uint8_t *)data, len);
    free(data);
}

static int run_file(const char *const path)
{
    ech_buf input = { 0 };
    ech_error err;
    if (ech_buf_read_file(&input, path, INPUT_MAX, &err) != ECH_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    (void)LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.len);
    for (int i = 0; i < MUTATIONS && input.len > 0; i++) {
        run_mutation(&input);
    }
    ech_buf_fini(&input);
    return 0;
}

int main(const int argc, char **const argv)
{
    const char *const seed = getenv("ECH_TEST_SEED");
    rng = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    (void)printf("seed=%llu\n", (unsigned long long)rng);
    DIR *const dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (dir == NULL) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    int failed = 0;
    unsigned n = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[1024];
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        failed |= run_file(path);
        n++;
    }
    (void)closedir(dir);
    (void)printf("%u inputs\n", n);
    return n == 0 || failed;
}
