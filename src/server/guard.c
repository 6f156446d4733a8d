/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framing guard; see guard.h. Invariant: every byte that passed belongs to a line that was
 * checked, or to a body whose length is known. Bodies are counted, never looked at.
 *
 * Allocates nothing and copies nothing: it counts and compares in the caller's buffer. Why it is
 * there: where a proxy in front and the library behind read the same bytes differently, one of
 * them sees a request that the other has taken for a body; so whatever has two readings is
 * refused.
 */
#include "src/server/guard.h"

#include <string.h>
#include <strings.h>

#include "src/base/buf.h"

#define MAX_METHOD     32
#define MAX_ARGUMENTS  64 /* '&' in a target; each costs the library an entry */
#define MAX_CHUNK_LINE 256
#define MAX_DIGITS     18 /* of a Content-Length: below 2^63 */
#define MAX_HEX        15 /* of a chunk's size: below 2^63 */

/* Trailers don't count: what stands before them has passed already. */
static bool in_head(const ech_guard *const g)
{
    return g->state == ECH_GUARD_REQUEST_LINE || g->state == ECH_GUARD_HEADER;
}

/*
 * Final: nothing of this connection passes any more, since where the next request begins is just
 * what isn't known. Texts are literals, the guard may outlive the bytes.
 */
static void refuse(ech_guard *const g, const int status, const char *const code,
                   const char *const why)
{
    g->was_in_head = in_head(g);
    g->state = ECH_GUARD_REFUSED;
    g->status = status;
    g->code = code;
    g->why = why;
}

static void refuse_framing(ech_guard *const g, const char *const why)
{
    refuse(g, 400, "bad_framing", why);
}

/*
 * RFC 9110 5.6.2: what names are made of. The test for NUL comes first: strchr would find the
 * end of its list.
 */
static bool is_token_char(const unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_token(const ech_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_token_char((unsigned char)s.ptr[i])) return false;
    }
    return s.len > 0;
}

/*
 * Bytes above 0x7f are let through (obs-text); CR, LF and NUL are not, which could end a line
 * for another reader.
 */
static bool is_text(const ech_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char c = (unsigned char)s.ptr[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

/* Names of headers and codings know no case. */
static bool equals(const ech_str s, const char *const name)
{
    return s.len == strlen(name) && strncasecmp(s.ptr, name, s.len) == 0;
}

/* ---- the request line ----------------------------------------------------------------------- */

/*
 * '&' is counted, as the library makes an entry of each argument from memory that
 * --max-header-bytes bounds. An encoded NUL would end the path in C.
 */
static void check_target(ech_guard *const g, const ech_guard_limits *const limits,
                         const ech_str target)
{
    unsigned n_arguments = 0;
    if (target.len > limits->max_target) {
        refuse(g, 414, "uri_too_long", "the request target is too long");
        return;
    }
    if (target.len == 0) refuse_framing(g, "the request line has no target");
    for (size_t i = 0; i < target.len && g->state != ECH_GUARD_REFUSED; i++) {
        const unsigned char c = (unsigned char)target.ptr[i];
        n_arguments += c == '&';
        if (c <= 0x20 || c >= 0x7f || c == '#') {
            refuse_framing(g, "the request target has a byte that must be percent-encoded");
        } else if (c == '%' && target.len - i >= 3 && memcmp(&target.ptr[i], "%00", 3) == 0) {
            refuse_framing(g, "the request target has a NUL");
        } else if (n_arguments > MAX_ARGUMENTS) {
            refuse(g, 414, "uri_too_long", "the request target has too many arguments");
        }
    }
}

/* HTTP/1.2 and up are 1.1 to us, as RFC 9110 2.5 has it for minor versions. */
static void check_version(ech_guard *const g, const ech_str v)
{
    const bool has_form = v.len == 8 && memcmp(v.ptr, "HTTP/", 5) == 0 && v.ptr[5] >= '0' &&
                          v.ptr[5] <= '9' && v.ptr[6] == '.' && v.ptr[7] >= '0' && v.ptr[7] <= '9';
    if (!has_form) {
        refuse_framing(g, "the request line must end in a version, as HTTP/1.1");
    } else if (v.ptr[5] != '1') {
        refuse(g, 505, "http_version", "this server speaks HTTP/1.1");
    }
    g->is_http10 = has_form && v.ptr[7] == '0';
}

/*
 * METHOD SP TARGET SP VERSION, one space each. RFC 9112 3 lets a reader split at any run of
 * blanks as well; two readers then need not find the same target.
 */
static void check_request_line(ech_guard *const g, const ech_guard_limits *const limits,
                               const ech_str line)
{
    const char *const sp = memchr(line.ptr, ' ', line.len);
    const ech_str method = { line.ptr, sp != NULL ? (size_t)(sp - line.ptr) : line.len };
    if (!is_token(method) || method.len > MAX_METHOD || sp == NULL) {
        refuse_framing(g, "the request line must be METHOD TARGET HTTP/1.1");
        return;
    }
    const ech_str rest = { sp + 1, line.len - method.len - 1 };
    const char *const end = memchr(rest.ptr, ' ', rest.len);
    const ech_str target = { rest.ptr, end != NULL ? (size_t)(end - rest.ptr) : rest.len };
    g->state = ECH_GUARD_HEADER;
    check_target(g, limits, target);
    if (g->state == ECH_GUARD_REFUSED) return;
    if (end == NULL) {
        refuse_framing(g, "the request line must end in a version, as HTTP/1.1");
        return;
    }
    check_version(g, (ech_str){ end + 1, rest.len - target.len - 1 });
}

/* ---- headers -------------------------------------------------------------------------------- */

/* Blanks and tabs around a value don't belong to it (RFC 9112 5). */
static ech_str trimmed(ech_str s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/*
 * A sign, a blank inside or a list "5, 5" are no digits and are refused; so nothing wraps and
 * nothing has two readings.
 */
static void take_length(ech_guard *const g, const ech_str value)
{
    g->n_length++;
    g->left = 0;
    if (value.len == 0 || value.len > MAX_DIGITS) {
        refuse_framing(g, "Content-Length must be a decimal number of at most 18 digits");
        return;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9') {
            refuse_framing(g, "Content-Length must be digits and nothing else");
            return;
        }
        g->left = g->left * 10 + (uint64_t)(value.ptr[i] - '0');
    }
}

/* Sets the fields that decide where a body ends; in trailers they come too late. */
static void take_framing(ech_guard *const g, const ech_str name, const ech_str value)
{
    const bool is_length = equals(name, "content-length");
    const bool is_coding = equals(name, "transfer-encoding");
    const bool is_host = equals(name, "host");
    if (g->state == ECH_GUARD_TRAILER) {
        if (is_length || is_coding || is_host)
            refuse_framing(g, "a trailer can't frame or route the request");
        return;
    }
    if (is_length) take_length(g, value);
    if (is_coding) {
        g->n_coding++;
        if (!equals(value, "chunked"))
            refuse_framing(g, "Transfer-Encoding can be chunked and nothing else");
    }
    g->n_host += is_host;
}

/*
 * Folding is obsolete since RFC 7230, and readers differ in what they make of it. A space before
 * the colon has hidden Transfer-Encoding from proxies.
 */
static void check_header(ech_guard *const g, const ech_guard_limits *const limits,
                         const ech_str line)
{
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') {
        refuse_framing(g, "a header is folded over two lines");
        return;
    }
    const char *const colon = memchr(line.ptr, ':', line.len);
    const ech_str name = { line.ptr, colon != NULL ? (size_t)(colon - line.ptr) : 0 };
    if (!is_token(name)) {
        refuse_framing(g, "a header must be NAME: VALUE, without a space before the colon");
        return;
    }
    const ech_str value = trimmed((ech_str){ colon + 1, line.len - name.len - 1 });
    if (!is_text(value)) {
        refuse_framing(g, "a header's value has a control character");
        return;
    }
    take_framing(g, name, value);
    if (g->state != ECH_GUARD_REFUSED && ++g->n_headers > limits->max_headers)
        refuse(g, 431, "headers_too_large", "there are too many headers");
}

/*
 * n_heads goes on counting over the whole connection; is_http10 stays until the next request
 * line says otherwise, since an end of sending is asked about after it.
 */
static void start_head(ech_guard *const g)
{
    *g = (ech_guard){ .n_heads = g->n_heads, .is_http10 = g->is_http10 };
}

/*
 * The empty line: what follows is a body, or the next request. A length together with a coding
 * is the classic of request smuggling: RFC 9112 6.3 lets a server take the coding, we take
 * neither. n_heads grows with what passed: the link sees a new request by it.
 */
static void end_head(ech_guard *const g)
{
    if (g->n_length + g->n_coding > 1) {
        refuse_framing(g, "Content-Length or Transfer-Encoding is repeated, or both are there");
    } else if (g->n_coding > 0 && g->is_http10) {
        refuse_framing(g, "HTTP/1.0 has no Transfer-Encoding");
    } else if (g->n_host > 1 || (g->n_host == 0 && !g->is_http10)) {
        refuse_framing(g, "there must be exactly one Host header");
    } else if (g->n_coding > 0) {
        g->state = ECH_GUARD_CHUNK_SIZE;
        g->head = 0;
        g->n_headers = 0;
    } else if (g->left > 0) {
        g->state = ECH_GUARD_BODY;
    } else {
        start_head(g);
    }
    g->n_heads += g->state != ECH_GUARD_REFUSED;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static int hex_of(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    const char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/*
 * HEX [";" extension]. Extensions are passed on and mean nothing. The subtraction can't wrap:
 * n_chunked has never been above max_body. Digits beyond MAX_HEX are counted but not added, so
 * the size can't overflow either.
 */
static void check_chunk_size(ech_guard *const g, const ech_guard_limits *const limits,
                             const ech_str line)
{
    uint64_t size = 0;
    size_t n = 0;
    for (; n < line.len && hex_of(line.ptr[n]) >= 0; n++) {
        if (n < MAX_HEX) size = size * 16 + (uint64_t)hex_of(line.ptr[n]);
    }
    if (n == 0 || (n < line.len && line.ptr[n] != ';') || !is_text(line)) {
        refuse_framing(g, "a chunk's size must be hexadecimal digits and nothing else");
    } else if (n > MAX_HEX || size > limits->max_body - g->n_chunked) {
        refuse(g, 413, "body_too_large", "the body is larger than it may be (--max-body)");
    } else {
        g->n_chunked += size;
        g->left = size;
        g->state = size > 0 ? ECH_GUARD_CHUNK_DATA : ECH_GUARD_TRAILER;
        g->head = 0;
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* The table of guard.h. A state that isn't line-wise never comes here. */
static void check_line(ech_guard *const g, const ech_guard_limits *const limits, const ech_str line)
{
    switch (g->state) {
    case ECH_GUARD_REQUEST_LINE:
        /* RFC 9112 2.2: an empty line before a request is passed over, one of them. */
        if (line.len == 0 && g->head <= 2) return;
        check_request_line(g, limits, line);
        return;
    case ECH_GUARD_HEADER:
        if (line.len == 0) {
            end_head(g);
        } else {
            check_header(g, limits, line);
        }
        return;
    case ECH_GUARD_CHUNK_SIZE:
        check_chunk_size(g, limits, line);
        return;
    case ECH_GUARD_CHUNK_END:
        g->state = ECH_GUARD_CHUNK_SIZE;
        if (line.len > 0) refuse_framing(g, "a chunk is longer than its size says");
        return;
    case ECH_GUARD_TRAILER:
        if (line.len == 0) {
            start_head(g);
        } else {
            check_header(g, limits, line);
        }
        return;
    default:
        return;
    }
}

/*
 * What an unfinished line may grow to. Without these a line without end would grow in memory.
 * The request line may be longer than its target by a method and a version.
 */
static void check_size(ech_guard *const g, const ech_guard_limits *const limits, const size_t line)
{
    if (g->state == ECH_GUARD_REQUEST_LINE && line > limits->max_target + MAX_METHOD + 16) {
        refuse(g, 414, "uri_too_long", "the request line is too long");
    } else if ((in_head(g) || g->state == ECH_GUARD_TRAILER) && g->head + line > limits->max_head) {
        refuse(g, 431, "headers_too_large", "the headers are too large (--max-header-bytes)");
    } else if (g->state == ECH_GUARD_CHUNK_SIZE && line > MAX_CHUNK_LINE) {
        refuse_framing(g, "the line of a chunk's size is too long");
    } else if (g->state == ECH_GUARD_CHUNK_END && line > 2) {
        refuse_framing(g, "a chunk is longer than its size says");
    }
}

/*
 * One line of the bytes; 0 when its end isn't there yet, else its length with CR and LF.
 * `looked` spares a second search through what was there the last time: bytes that trickle in
 * would cost the square of their number. The first byte is looked at alone, so that a TLS hello
 * or garbage is refused before a line of it is there.
 */
static size_t take_line(ech_guard *const g, const ech_guard_limits *const limits,
                        const char *const data, const size_t len)
{
    const char *const lf = len > g->looked ? memchr(data + g->looked, '\n', len - g->looked) : NULL;
    const size_t n = lf != NULL ? (size_t)(lf - data) + 1 : len;
    if (g->state == ECH_GUARD_REQUEST_LINE && !is_token_char((unsigned char)data[0]) &&
        data[0] != '\r') {
        refuse_framing(g, "the request doesn't begin with a method");
        return 0;
    }
    check_size(g, limits, n);
    g->looked = len;
    if (lf == NULL || g->state == ECH_GUARD_REFUSED) return 0;
    g->looked = 0;
    if (n < 2 || data[n - 2] != '\r') {
        refuse_framing(g, "a line ends in LF without CR");
        return 0;
    }
    g->head += n;
    check_line(g, limits, (ech_str){ data, n - 2 });
    return n;
}

/*
 * Bodies pass as they come; of heads and trailers only whole lines count, and a head passes with
 * its last line. at: how far the lines of the unfinished head go.
 */
size_t ech_guard_pass(ech_guard *const g, const ech_guard_limits *const limits,
                      const char *const data, const size_t len)
{
    size_t passed = 0;
    while (passed + g->at < len && g->state != ECH_GUARD_REFUSED) {
        if (g->state == ECH_GUARD_BODY || g->state == ECH_GUARD_CHUNK_DATA) {
            const uint64_t n = g->left < len - passed ? g->left : len - passed;
            passed += (size_t)n;
            g->left -= n;
            if (g->left > 0) break;
            if (g->state == ECH_GUARD_BODY) {
                start_head(g);
            } else {
                g->state = ECH_GUARD_CHUNK_END;
            }
            continue;
        }
        const bool was_head = in_head(g);
        const uint64_t n_heads = g->n_heads;
        const size_t at = g->at;
        const size_t n = take_line(g, limits, data + passed + at, len - passed - at);
        if (n == 0 || g->state == ECH_GUARD_REFUSED) break;
        if (was_head && n_heads == g->n_heads) {
            g->at = at + n; /* passes with the rest of its head */
        } else {
            passed += at + n;
            g->at = 0;
        }
    }
    return passed;
}

/* The link's clock calls it; the guard has none. */
void ech_guard_time_out(ech_guard *const g)
{
    refuse(g, 408, "request_timeout", "the request came too slowly (--header-timeout)");
}
