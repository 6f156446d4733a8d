/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection's bytes; the first one says where they are cut. The guard's verdict must be the same
 * cut there, whole and byte by byte. And two readers that are lenient in opposite ways must find
 * the same requests in what passed: that is what the guard is for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/server/guard.h"
#include "tests/fuzz/fuzz.h"

static const ech_guard_limits LIMITS = {
    .max_head = 2048,
    .max_target = 512,
    .max_headers = 20,
    .max_body = 100000,
};

typedef struct verdict {
    int status;
    uint64_t n_heads;
    size_t passed;
    bool is_between; /* no request is half there */
} verdict;

static verdict feed(const char *const data, const size_t len, const size_t first, const size_t step)
{
    ech_guard g = { 0 };
    ech_buf waiting = { 0 };
    verdict v = { 0 };
    for (size_t at = 0; at < len && g.state != ECH_GUARD_REFUSED;) {
        const size_t want = at == 0 && first > 0 ? first : step;
        const size_t n = want < len - at ? want : len - at;
        ECH_ASSERT(ech_buf_append(&waiting, data + at, n) == ECH_OK);
        at += n;
        const size_t passed = ech_guard_pass(&g, &LIMITS, waiting.data, waiting.len);
        ECH_ASSERT(passed <= waiting.len);
        waiting.len -= passed;
        if (waiting.len > 0) memmove(waiting.data, waiting.data + passed, waiting.len);
        v.passed += passed;
    }
    v.status = g.status;
    v.n_heads = g.n_heads;
    v.is_between = g.state == ECH_GUARD_REQUEST_LINE;
    ech_buf_fini(&waiting);
    return v;
}

/* ---- two readers ---------------------------------------------------------------------------- */

typedef struct framing {
    bool has_length, is_chunked;
    unsigned long long length;
} framing;

/* The next line; the lenient reader takes a bare LF for its end, the literal one only CR LF. */
static bool next_line(const char *const s, const size_t len, size_t *const at, const bool lenient,
                      ech_str *const ret)
{
    for (size_t i = *at; i < len; i++) {
        if (s[i] != '\n' || (!lenient && (i == *at || s[i - 1] != '\r'))) continue;
        *ret = (ech_str){ s + *at, i - *at };
        if (ret->len > 0 && ret->ptr[ret->len - 1] == '\r') ret->len--;
        *at = i + 1;
        return true;
    }
    return false;
}

/* The lenient reader takes the first length, any case of sign, spaces before the colon; the literal
 * one the last. */
static void take_header(const ech_str line, const bool lenient, framing *const f)
{
    char text[2100];
    (void)snprintf(text, sizeof text, "%.*s", (int)line.len, line.ptr);
    char *const colon = strchr(text, ':');
    if (colon == NULL) return;
    size_t n = (size_t)(colon - text);
    while (lenient && n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) {
        n--;
    }
    if (n == 14 && strncasecmp(text, "content-length", n) == 0 && !(lenient && f->has_length)) {
        f->has_length = true;
        f->length = strtoull(colon + 1, NULL, lenient ? 0 : 10);
    }
    /* The lenient reader looks for the word anywhere, the literal one wants it alone. */
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (n == 17 && strncasecmp(text, "transfer-encoding", n) == 0)
        f->is_chunked |= lenient ? strcasestr(value, "chunked") != NULL
                                 : strncasecmp(value, "chunked", 7) == 0 &&
                                       strspn(value + 7, " \t") == strlen(value + 7);
}

static bool skip_chunks(const char *const s, const size_t len, size_t *const at, const bool lenient)
{
    ech_str line;
    for (;;) {
        if (!next_line(s, len, at, lenient, &line)) return false;
        char size[24];
        (void)snprintf(size, sizeof size, "%.*s", (int)(line.len < 20 ? line.len : 20), line.ptr);
        const unsigned long long n = strtoull(size, NULL, 16);
        if (n == 0) break;
        if (n > len - *at) return false;
        *at += (size_t)n;
        if (!next_line(s, len, at, lenient, &line)) return false;
    }
    do {
        if (!next_line(s, len, at, lenient, &line)) return false;
    } while (line.len > 0);
    return true;
}

/* Where each whole request ends; how many there are. */
static uint64_t read_all(const char *const s, const size_t len, const bool lenient,
                         size_t *const ret_end)
{
    uint64_t n = 0;
    for (size_t at = 0; at < len; n++) {
        framing f = { 0 };
        ech_str line;
        do {
            if (!next_line(s, len, &at, lenient, &line)) return n;
        } while (line.len == 0);
        while (line.len > 0) {
            if (!next_line(s, len, &at, lenient, &line)) return n;
            take_header(line, lenient, &f);
        }
        if (f.is_chunked && (lenient || !f.has_length)) {
            if (!skip_chunks(s, len, &at, lenient)) return n;
        } else {
            if (f.length > len - at) return n;
            at += (size_t)f.length;
        }
        *ret_end = at;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    if (size < 2) return 0;
    const char *const s = (const char *)data + 1;
    const size_t len = size - 1;
    const verdict whole = feed(s, len, 0, len);
    const verdict cut = feed(s, len, 1 + data[0] % len, len);
    const verdict bytes = feed(s, len, 0, 1);
    ECH_ASSERT(whole.status == cut.status && whole.passed == cut.passed);
    ECH_ASSERT(whole.status == bytes.status && whole.passed == bytes.passed);
    ECH_ASSERT(whole.n_heads == bytes.n_heads && whole.n_heads == cut.n_heads);

    size_t a_end = 0;
    size_t b_end = 0;
    const uint64_t a = read_all(s, whole.passed, true, &a_end);
    const uint64_t b = read_all(s, whole.passed, false, &b_end);
    ECH_ASSERT(a == b && a_end == b_end);
    if (whole.is_between && whole.status == 0) ECH_ASSERT(a == whole.n_heads);
    return 0;
}
