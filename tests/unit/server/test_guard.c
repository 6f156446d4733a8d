/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the framing guard refuses and lets through, and that the verdict is the same however the
 * bytes are cut: whole, in two at every place, byte by byte.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/server/guard.h"
#include "tests/unit/test.h"

static const ech_guard_limits LIMITS = {
    .max_head = 1024,
    .max_target = 100,
    .max_headers = 20,
    .max_body = 4000,
};

/* The head of a POST with the line in question in it. */
#define POST(lines)      "POST /x HTTP/1.1\r\nHost: h\r\n" lines "\r\n"
#define CHUNKED(body)    POST("Transfer-Encoding: chunked\r\n") body
#define LINE_ONLY(first) first "\r\nHost: h\r\n\r\n"

typedef struct sample {
    int status; /* 0: passes whole */
    const char *bytes;
    size_t len;
} sample;

#define ROW(status, bytes)                                                                         \
    {                                                                                              \
        status, bytes, sizeof(bytes) - 1                                                           \
    }

static const sample SAMPLES[] = {
    ROW(0, POST("Content-Length: 5\r\n") "12345"),
    ROW(0, POST("content-length:5\r\n") "12345"),
    ROW(0, POST("Content-Length: \t 5 \r\n") "12345"),
    ROW(0, POST("Content-Length: 0\r\n")),
    ROW(0, POST("Content-Length: 5\r\n") "12345" POST("") POST("Content-Length: 1\r\n") "1"),
    ROW(0, POST("X: \x80\xff\tb\r\n")),
    ROW(0, POST("X:\r\n")),
    ROW(0, LINE_ONLY("\r\nGET /a?b=c%20d HTTP/1.1")),
    ROW(0, "GET / HTTP/1.0\r\n\r\n"),
    ROW(0, CHUNKED("5\r\n12345\r\n0\r\n\r\n")),
    ROW(0, CHUNKED("5;a=b\r\n12345\r\n3\r\n123\r\n000\r\nX: y\r\n\r\n") POST("")),
    ROW(0, CHUNKED("a\r\n\r\n0\r\n\r\nGET\r\n0\r\n\r\n")),
    /* where a body ends */
    ROW(400, POST("Content-Length: 5\r\nContent-Length: 5\r\n")),
    ROW(400, POST("Content-Length: 5\r\nContent-Length: 6\r\n")),
    ROW(400, POST("Content-Length: 5, 5\r\n")),
    ROW(400, POST("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")),
    ROW(400, POST("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")),
    ROW(400, POST("Transfer-Encoding: x, chunked\r\n")),
    ROW(400, POST("Transfer-Encoding: chunked, chunked\r\n")),
    ROW(400, POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
    ROW(400, POST("Transfer-Encoding: gzip\r\n")),
    ROW(400, POST("Transfer-Encoding:\r\n")),
    ROW(400, "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ROW(400, POST("Content-Length: +5\r\n")),
    ROW(400, POST("Content-Length: -5\r\n")),
    ROW(400, POST("Content-Length: 0x5\r\n")),
    ROW(400, POST("Content-Length: 5 5\r\n")),
    ROW(400, POST("Content-Length: \r\n")),
    ROW(400, POST("Content-Length: 9999999999999999999\r\n")),
    /* lines */
    ROW(400, POST("X: a\r\n b\r\n")),
    ROW(400, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"),
    ROW(400, POST("X: a\r\n\tb\r\n")),
    ROW(400, POST("X: a\n")),
    ROW(400, "GET / HTTP/1.1\nHost: h\r\n\r\n"),
    ROW(400, "GET / HTTP/1.1\r\nHost: h\r\n\n"),
    ROW(400, POST("X: a\rb\r\n")),
    ROW(400, POST("X: a\r\r\n")),
    ROW(400, POST("X : a\r\n")),
    ROW(400, POST("X\t: a\r\n")),
    ROW(400, POST("X Y: a\r\n")),
    ROW(400, POST("X(: a\r\n")),
    ROW(400, POST("X\r\n")),
    ROW(400, POST(": a\r\n")),
    ROW(400, POST("X: a\0b\r\n")),
    ROW(400, POST("X\0: a\r\n")),
    ROW(400, POST("X: a\x01\r\n")),
    ROW(400, POST("X: a\x7f\r\n")),
    ROW(400, POST("Host: h\r\n")),
    ROW(400, "GET / HTTP/1.1\r\n\r\n"),
    /* the request line */
    ROW(400, LINE_ONLY(" GET / HTTP/1.1")),
    ROW(400, LINE_ONLY("GET  / HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /  HTTP/1.1")),
    ROW(400, LINE_ONLY("GET / HTTP/1.1 ")),
    ROW(400, LINE_ONLY("GET\t/\tHTTP/1.1")),
    ROW(400, LINE_ONLY("GET / x HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /")),
    ROW(400, LINE_ONLY("GET HTTP/1.1")),
    ROW(400, LINE_ONLY("GET / http/1.1")),
    ROW(400, LINE_ONLY("GET / HTTP/1.10")),
    ROW(400, LINE_ONLY("G@T / HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /\0x HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /%00 HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /\x80 HTTP/1.1")),
    ROW(400, LINE_ONLY("GET /#a HTTP/1.1")),
    ROW(400, "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    ROW(400, "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    ROW(400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc"),
    ROW(505, LINE_ONLY("GET / HTTP/2.0")),
    ROW(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    /* chunks */
    ROW(413, CHUNKED("fa1\r\n")),
    ROW(413, CHUNKED("ffffffffffffffff\r\n")),
    ROW(413, CHUNKED("fffffffffffffffffffffffffffffff\r\n")),
    ROW(400, CHUNKED("+5\r\n12345\r\n")),
    ROW(400, CHUNKED("-1\r\n12345\r\n")),
    ROW(400, CHUNKED("0x5\r\n12345\r\n")),
    ROW(400, CHUNKED(" 5\r\n12345\r\n")),
    ROW(400, CHUNKED("5 \r\n12345\r\n")),
    ROW(400, CHUNKED("5\n12345\r\n")),
    ROW(400, CHUNKED("5;a\x01\r\n12345\r\n")),
    ROW(400, CHUNKED("\r\n12345\r\n")),
    ROW(400, CHUNKED("5\r\n12345\n0\r\n\r\n")),
    ROW(400, CHUNKED("5\r\n123456\r\n0\r\n\r\n")),
    ROW(400, CHUNKED("5\r\n1234\r\n0\r\n\r\n")),
    ROW(400, CHUNKED("0\r\n\n")),
    ROW(400, CHUNKED("0\r\nX: y\r\n z\r\n\r\n")),
    ROW(400, CHUNKED("0\r\nContent-Length: 5\r\n\r\n")),
    ROW(400, CHUNKED("0\r\nTransfer-Encoding: chunked\r\n\r\n")),
    ROW(400, CHUNKED("0\r\nHost: h\r\n\r\n")),
};

/* The connection's view: bytes come, what passed goes. */
typedef struct reader {
    ech_guard guard;
    ech_buf waiting;
    size_t passed;
} reader;

static void feed(reader *const r, const char *const data, const size_t len)
{
    if (r->guard.state == ECH_GUARD_REFUSED) return;
    assert_int_equal(ech_buf_append(&r->waiting, data, len), ECH_OK);
    const size_t n = ech_guard_pass(&r->guard, &LIMITS, r->waiting.data, r->waiting.len);
    assert_true(n <= r->waiting.len);
    memmove(r->waiting.data, r->waiting.data + n, r->waiting.len - n);
    r->waiting.len -= n;
    r->passed += n;
}

/* The verdict when the bytes come in two parts, then what is left a step at a time. */
static int verdict(const char *const data, const size_t len, const size_t first, const size_t step,
                   size_t *const ret_passed)
{
    reader r = { 0 };
    if (first > 0) feed(&r, data, first);
    for (size_t i = first; i < len; i += step) {
        feed(&r, data + i, len - i < step ? len - i : step);
    }
    const int status = r.guard.status;
    *ret_passed = r.passed;
    ech_buf_fini(&r.waiting);
    return status;
}

static void every_split_has_one_verdict(void **const state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof SAMPLES[0]; i++) {
        const sample *const s = &SAMPLES[i];
        size_t passed;
        const int whole = verdict(s->bytes, s->len, 0, s->len, &passed);
        if (whole != s->status)
            fail_msg("sample %zu is %d, not %d: %s", i, whole, s->status, s->bytes);
        if (s->status == 0) assert_int_equal(passed, s->len);
        for (size_t cut = 0; cut <= s->len; cut++) {
            size_t n;
            const int status = verdict(s->bytes, s->len, cut, cut == 0 ? 1 : s->len, &n);
            if (status != whole || n != passed)
                fail_msg("sample %zu cut at %zu is %d (%zu passed), not %d (%zu)", i, cut, status,
                         n, whole, passed);
        }
    }
}

static void nothing_of_a_bad_head_passes(void **const state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof SAMPLES[0]; i++) {
        size_t passed;
        const sample *const s = &SAMPLES[i];
        if (s->status == 0 || memmem(s->bytes, s->len, "chunked\r\n\r\n", 11) != NULL) continue;
        (void)verdict(s->bytes, s->len, 0, s->len, &passed);
        assert_int_equal(passed, 0);
    }
}

static void sizes_are_bounded(void **const state)
{
    (void)state;
    static const struct {
        const char *before, *filling, *after;
        size_t n;
        int status;
    } ROWS[] = {
        { "GET / HTTP/1.1\r\nHost: h\r\nX: ", "a", "\r\n\r\n", 900, 0 },
        { "GET / HTTP/1.1\r\nHost: h\r\nX: ", "a", "\r\n\r\n", 1000, 431 },
        { "GET / HTTP/1.1\r\nHost: h\r\n", "X: a\r\n", "\r\n", 19, 0 },
        { "GET / HTTP/1.1\r\nHost: h\r\n", "X: a\r\n", "\r\n", 20, 431 },
        { "GET /", "a", " HTTP/1.1\r\nHost: h\r\n\r\n", 99, 0 },
        { "GET /", "a", " HTTP/1.1\r\nHost: h\r\n\r\n", 100, 414 },
        { "GET /", "a", " HTTP/1.1\r\nHost: h\r\n\r\n", 5000, 414 },
        { "GET /?", "&", " HTTP/1.1\r\nHost: h\r\n\r\n", 64, 0 },
        { "GET /?", "&", " HTTP/1.1\r\nHost: h\r\n\r\n", 65, 414 },
        { CHUNKED("0\r\n"), "X: a\r\n", "\r\n", 21, 431 },
        { CHUNKED("1;"), "a", "\r\n1\r\n", 300, 400 },
        { CHUNKED(""), "1\r\na\r\n", "0\r\n\r\n", 4000, 0 },
        { CHUNKED(""), "1\r\na\r\n", "0\r\n\r\n", 4001, 413 },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        ech_buf b = { 0 };
        assert_int_equal(ech_buf_puts(&b, ROWS[i].before), ECH_OK);
        for (size_t n = 0; n < ROWS[i].n; n++) {
            assert_int_equal(ech_buf_puts(&b, ROWS[i].filling), ECH_OK);
        }
        assert_int_equal(ech_buf_puts(&b, ROWS[i].after), ECH_OK);
        size_t passed;
        assert_int_equal(verdict(b.data, b.len, 0, b.len, &passed), ROWS[i].status);
        assert_int_equal(verdict(b.data, b.len, 0, 1, &passed), ROWS[i].status);
        ech_buf_fini(&b);
    }
}

static void bodies_are_counted_not_read(void **const state)
{
    (void)state;
    static const char HEAD[] = POST("Content-Length: 4000000000\r\n");
    static const char BLOCK[4096] = "\n\0\x01";
    ech_guard g = { 0 };
    assert_int_equal(ech_guard_pass(&g, &LIMITS, HEAD, sizeof HEAD - 1), sizeof HEAD - 1);
    for (uint64_t left = 4000000000; left > 0;) {
        const size_t n = left < sizeof BLOCK ? (size_t)left : sizeof BLOCK;
        assert_int_equal(ech_guard_pass(&g, &LIMITS, BLOCK, n), n);
        left -= n;
    }
    assert_int_equal(g.state, ECH_GUARD_REQUEST_LINE);
    assert_int_equal(g.n_heads, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_has_one_verdict),
        cmocka_unit_test(nothing_of_a_bad_head_passes),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(bodies_are_counted_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
