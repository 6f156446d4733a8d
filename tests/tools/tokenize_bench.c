/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast texts are encoded: tokenize_bench TOKENIZER_FOLDER FILE [SECONDS].
 *
 * The file is cut at line ends into texts of about 4 kB, as prompts are, and encoded again and
 * again: with one thread, then as a batch with as many as there are usable cores. Prints the best
 * pass of each in MB/s, which other programs on the machine disturb least, and checks that both
 * gave as many ids.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/clock.h"
#include "src/base/os/parallel.h"

#define TEXT_BYTES 4096

static ech_tokenizer *tok;
static ech_piece *texts;
static ech_ids *ids;
static size_t n_texts, n_bytes;

static int fail(const char *const what)
{
    (void)fprintf(stderr, "tokenize_bench: %s\n", what);
    return 1;
}

/* Cuts behind the first line end past TEXT_BYTES: never inside a character. */
static bool cut(const char *const s, const size_t len)
{
    texts = calloc(len / TEXT_BYTES + 1, sizeof *texts);
    ids = calloc(len / TEXT_BYTES + 1, sizeof *ids);
    if (texts == NULL || ids == NULL) return false;
    for (size_t at = 0; at < len;) {
        const size_t left = len - at;
        const char *const line =
            left > TEXT_BYTES ? memchr(s + at + TEXT_BYTES, '\n', left - TEXT_BYTES) : NULL;
        const size_t n = line != NULL ? (size_t)(line + 1 - (s + at)) : left;
        texts[n_texts++] = (ech_piece){ .ptr = s + at, .len = n };
        at += n;
    }
    n_bytes = len;
    return true;
}

/* The best rate of passes over all texts within the time, in MB/s; negative: an error. */
static double best_rate(const uint32_t n_threads, const double seconds, size_t *const ret_ids)
{
    const int64_t end = ech_now_ns() + (int64_t)(seconds * 1e9);
    double best = -1;
    do {
        for (size_t i = 0; i < n_texts; i++) {
            ids[i].n = 0;
        }
        ech_error err;
        const int64_t start = ech_now_ns();
        if (ech_tokenizer_encode_batch(tok, texts, n_texts, 0, n_threads, ids, &err) != ECH_OK) {
            (void)fail(err.text);
            return -1;
        }
        const double rate = (double)n_bytes * 1e3 / (double)(ech_now_ns() - start);
        if (rate > best) best = rate;
    } while (ech_now_ns() < end);
    *ret_ids = 0;
    for (size_t i = 0; i < n_texts; i++) {
        *ret_ids += ids[i].n;
    }
    return best;
}

static bool read_file(const char *const path, ech_buf *const out)
{
    static char block[1 << 16];
    FILE *const f = fopen(path, "rb");
    if (f == NULL) return false;
    bool ok = true;
    for (size_t n; ok && (n = fread(block, 1, sizeof block, f)) > 0;) {
        ok = ech_buf_append(out, block, n) == ECH_OK;
    }
    ok = ok && ferror(f) == 0;
    (void)fclose(f);
    return ok && out->len > 0;
}

int main(const int argc, char **const argv)
{
    ech_error err;
    ech_buf text = { 0 };
    size_t n_one = 0, n_all = 0;
    if (argc < 3) return fail("usage: tokenize_bench TOKENIZER_FOLDER FILE [SECONDS]");
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 3;
    if (ech_tokenizer_open(&tok, argv[1], &err) != ECH_OK) return fail(err.text);
    if (!read_file(argv[2], &text) || !cut(text.data, text.len))
        return fail("cannot read the file, or it is empty");
    const double one = best_rate(1, seconds, &n_one);
    const uint32_t n_cores = ech_os_usable_cores();
    const double all = one < 0 ? -1 : best_rate(n_cores, seconds, &n_all);
    const bool ok = all > 0 && n_one == n_all;
    if (ok) {
        printf("%zu texts, %.2f MB, %zu ids: 1 thread %.1f MB/s, %u threads %.1f MB/s\n", n_texts,
               (double)n_bytes / 1e6, n_one, one, (unsigned)n_cores, all);
    } else if (all > 0) {
        (void)fail("the ids depend on the number of threads");
    }
    for (size_t i = 0; i < n_texts; i++) {
        ech_ids_fini(&ids[i]);
    }
    free(ids);
    free(texts);
    ech_buf_fini(&text);
    ech_tokenizer_close(&tok);
    return ok ? 0 : 1;
}
