/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client; see http_client.h. Invariant: what a server sends is input; lines and bodies have
 * limits, and a broken chunk is an error.
 *
 * One connection a call, "Connection: close", no state between calls; so many threads may call
 * at once with one URL. Left out: redirects, proxies, compression, cookies, interim answers
 * (nothing here sends Expect). Ownership: the caller frees call->reply, whatever became of the
 * call.
 */
#include "src/cli/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/error.h"

/*
 * Lines of a head and of chunk sizes; a line of a stream may be as long as a body, as one frame
 * can carry a whole answer.
 */
#define MAX_LINE 65536
#define MAX_BODY (64U << 20)

typedef struct conn {
    ech_http_call *call;
    int fd;
    ech_client_tls *tls; /* NULL: plain */
    char buf[16384];
    size_t at, len; /* unread bytes are buf[at..len) */
    bool is_chunked;
    int64_t length; /* of the body; -1: to the end of the connection */
    ech_buf event;  /* the data lines of the event being read */
    ech_buf line;   /* a line of the stream being read */
    bool taken_all; /* `take` said that it has enough */
} conn;

/* "HOST[:PORT]" or "[ADDRESS][:PORT]". A port that is empty is the scheme's, as in RFC 3986. */
static bool parse_authority(ech_url *const u)
{
    const bool is_bracketed = u->authority[0] == '[';
    const char *const host = u->authority + is_bracketed;
    const size_t n = strcspn(host, is_bracketed ? "]" : ":");
    const char *p = host + n;
    if (is_bracketed && *p++ != ']') return false;
    if (n == 0 || n >= sizeof u->host || (*p != ':' && *p != '\0')) return false;
    const char *const port = *p == ':' && p[1] != '\0' ? p + 1 : u->is_tls ? "443" : "80";
    if (strlen(port) >= sizeof u->port || port[strspn(port, "0123456789")] != '\0') return false;
    (void)snprintf(u->host, sizeof u->host, "%.*s", (int)n, host);
    (void)snprintf(u->port, sizeof u->port, "%s", port);
    return true;
}

/*
 * Slashes at the end are cut off, so that a path can be appended; what is behind '?' isn't told
 * apart and would be a part of the path.
 */
static ech_status parse(const char *const text, ech_url *const ret, ech_error *const err)
{
    const char *const colon = strstr(text, "://");
    const size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    ret->is_tls = n == 5 && strncasecmp(text, "https", 5) == 0;
    if (!ret->is_tls && !(n == 4 && strncasecmp(text, "http", 4) == 0)) {
        return ech_fail(err, ECH_EINVAL,
                        "reading the URL '%.100s': it must begin with http:// or https://", text);
    }
    const char *const authority = text + n + 3;
    const size_t len = strcspn(authority, "/");
    (void)snprintf(ret->authority, sizeof ret->authority, "%.*s", (int)len, authority);
    if (len >= sizeof ret->authority || !parse_authority(ret)) {
        return ech_fail(err, ECH_EINVAL,
                        "reading the URL '%.100s': after http:// there must be HOST, HOST:PORT or "
                        "[IPV6]:PORT",
                        text);
    }
    const char *const path = authority + len;
    size_t path_len = strlen(path);
    while (path_len > 0 && path[path_len - 1] == '/') {
        path_len--;
    }
    if (path_len >= sizeof ret->path)
        return ech_fail(err, ECH_EINVAL, "reading the URL '%.100s': the path is too long", text);
    (void)snprintf(ret->path, sizeof ret->path, "%.*s", (int)path_len, path);
    return ECH_OK;
}

/*
 * Authorities are read once a URL, not once a call: it takes milliseconds that a measurement
 * would hold.
 */
ech_status ech_url_open(const char *const text, ech_url *const ret, ech_error *const err)
{
    *ret = (ech_url){ 0 };
    ECH_TRY(parse(text, ret, err));
    return ret->is_tls ? ech_trust_open(&ret->trust, &ech_cli_tls, err) : ECH_OK;
}

void ech_url_close(ech_url *const url)
{
    ech_trust_close(&url->trust);
}

/* ---- the connection ------------------------------------------------------------------------- */

/*
 * All addresses of a name are tried in order; the error is the last one's. Looking up and
 * connecting block: only what comes after can be stopped.
 */
static ech_status connect_to(const ech_url *const url, int *const ret_fd, ech_error *const err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    const int rc = getaddrinfo(url->host, url->port, &hints, &list);
    if (rc != 0) return ech_fail(err, ECH_EIO, "connecting to %s: %s", url->host, gai_strerror(rc));
    int fd = -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            const int why = errno;
            (void)close(fd);
            errno = why;
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return ech_fail_errno(err, ECH_EIO, "connecting to %s port %s", url->host, url->port);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *ret_fd = fd;
    return ECH_OK;
}

/* Set by a signal handler, hence looked at after each wait. */
static bool is_stopped(const conn *const c)
{
    return c->call->stop != NULL && *c->call->stop != 0;
}

/*
 * Waits until the socket is ready for events. 50 ms: a signal may come just before poll(), which
 * then doesn't return for it. The timeout counts from the last byte: an answer may take as long
 * as it likes while it comes.
 */
static ech_status wait_for(const conn *const c, const short events, ech_error *const err)
{
    const int64_t start = ech_now_ns();
    for (;;) {
        if (is_stopped(c)) return ech_fail(err, ECH_ECANCELLED, "stopped");
        struct pollfd p = { .fd = c->fd, .events = events };
        const int n = poll(&p, 1, 50);
        if (n > 0) return ECH_OK;
        if (n < 0 && errno != EINTR) return ech_fail_errno(err, ECH_EIO, "waiting for the server");
        if (c->call->timeout_ms > 0 && ech_now_ns() - start > c->call->timeout_ms * ECH_NS_PER_MS) {
            return ech_fail(err, ECH_ETIMEOUT, "waiting for the server: no byte for %d ms",
                            c->call->timeout_ms);
        }
    }
}

/* The handshake says itself what it waits for. */
static ech_status shake_hands(conn *const c, ech_error *const err)
{
    const ech_url *const url = c->call->url;
    ECH_TRY(ech_client_tls_open(&c->tls, url->trust, url->host, c->fd, err));
    ech_status rc;
    while ((rc = ech_client_tls_handshake(c->tls, err)) == ECH_EAGAIN) {
        ECH_TRY(wait_for(c, ech_client_tls_events(c->tls), err));
    }
    return rc;
}

/* MSG_NOSIGNAL: a server that has closed is an error, no SIGPIPE. */
static ech_status send_all(const conn *const c, const char *s, size_t len, ech_error *const err)
{
    while (len > 0) {
        const ssize_t n = c->tls != NULL ? ech_client_tls_send(c->tls, s, len)
                                         : send(c->fd, s, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            ECH_TRY(wait_for(c, POLLOUT, err));
            continue;
        }
        if (n < 0) return ech_fail_errno(err, ECH_EIO, "sending the request");
        s += n;
        len -= (size_t)n;
    }
    return ECH_OK;
}

/*
 * More bytes; *ret_end when there are none any more. Reads first and waits then: TLS may hold
 * bytes that poll() doesn't see.
 */
static ech_status fill(conn *const c, bool *const ret_end, ech_error *const err)
{
    ssize_t n;
    for (;;) {
        n = c->tls != NULL ? ech_client_tls_recv(c->tls, c->buf, sizeof c->buf)
                           : recv(c->fd, c->buf, sizeof c->buf, 0);
        if (is_stopped(c)) return ech_fail(err, ECH_ECANCELLED, "stopped");
        if (n >= 0) break;
        if (errno != EINTR && errno != EAGAIN)
            return ech_fail_errno(err, ECH_EIO, "reading the answer");
        ECH_TRY(wait_for(c, POLLIN, err));
    }
    c->at = 0;
    c->len = (size_t)n;
    *ret_end = n == 0;
    return ECH_OK;
}

/* ---- the answer ----------------------------------------------------------------------------- */

/*
 * One line without its end. LF ends a line, with or without CR: a client may be lenient where
 * our own server isn't.
 */
static ech_status read_line(conn *const c, ech_buf *const line, ech_error *const err)
{
    ech_buf_clear(line);
    for (;;) {
        while (c->at < c->len) {
            const char ch = c->buf[c->at++];
            if (ch == '\n') {
                if (line->len > 0 && line->data[line->len - 1] == '\r')
                    line->data[--line->len] = '\0';
                return ECH_OK;
            }
            if (line->len >= MAX_LINE || ech_buf_push(line, ch) != ECH_OK) {
                return ech_fail(err, ECH_ELIMIT, "reading the answer: a line is too long");
            }
        }
        bool end = false;
        ECH_TRY(fill(c, &end, err));
        if (end) return ech_fail(err, ECH_EIO, "reading the answer: the connection ended early");
    }
}

/*
 * Names know no case. Without a length and without chunks the body goes to the end of the
 * connection.
 */
static ech_status read_head(conn *const c, ech_error *const err)
{
    ech_buf line = { 0 };
    ech_status rc = read_line(c, &line, err);
    if (rc == ECH_OK &&
        (line.data == NULL || sscanf(line.data, "HTTP/1.%*c %d", &c->call->status) != 1)) {
        rc = ech_fail(err, ECH_EIO, "reading the answer: it is no HTTP/1");
    }
    c->length = -1;
    while (rc == ECH_OK) {
        rc = read_line(c, &line, err);
        if (rc != ECH_OK || line.len == 0) break;
        if (strncasecmp(line.data, "content-length:", 15) == 0)
            c->length = strtoll(line.data + 15, NULL, 10);
        if (strncasecmp(line.data, "transfer-encoding:", 18) == 0 &&
            strstr(line.data, "chunked") != NULL)
            c->is_chunked = true;
    }
    ech_buf_fini(&line);
    return rc;
}

/*
 * A whole line of an event stream. The event stream of HTML: data lines of an event are joined,
 * an empty line ends it, one blank behind the colon doesn't count. Names of events, ids and
 * comments (": ping") are passed over: the data says all in these APIs. An event that the end of
 * the body cuts is dropped, as the standard wants it.
 */
static ech_status take_line(conn *const c, ech_error *const err)
{
    const ech_buf *const l = &c->line;
    if (l->len == 0) {
        if (c->event.len > 0 && !c->call->take(c->call->ctx, c->event.data, c->event.len))
            c->taken_all = true;
        ech_buf_clear(&c->event);
        return ECH_OK;
    }
    if (strncmp(l->data, "data:", 5) != 0) return ECH_OK;
    const size_t skip = l->len > 5 && l->data[5] == ' ' ? 6 : 5;
    const bool more = c->event.len > 0;
    if ((more && ech_buf_push(&c->event, '\n') != ECH_OK) ||
        ech_buf_append(&c->event, l->data + skip, l->len - skip) != ECH_OK) {
        return ech_fail(err, ECH_ENOMEM, "reading the answer: out of memory");
    }
    return ECH_OK;
}

/*
 * Only a 200 is a stream: an error's body is JSON and goes to reply, where the caller finds the
 * reason.
 */
static ech_status take_bytes(conn *const c, const char *const s, const size_t len,
                             ech_error *const err)
{
    if (c->call->take == NULL || c->call->status != 200) {
        if (c->call->reply.len + len > MAX_BODY)
            return ech_fail(err, ECH_ELIMIT, "reading the answer: it is too long");
        return ech_buf_append(&c->call->reply, s, len) == ECH_OK
                   ? ECH_OK
                   : ech_fail(err, ECH_ENOMEM, "reading the answer: out of memory");
    }
    for (size_t i = 0; i < len && !c->taken_all; i++) {
        if (s[i] == '\n') {
            if (c->line.len > 0 && c->line.data[c->line.len - 1] == '\r')
                c->line.data[--c->line.len] = '\0';
            ECH_TRY(take_line(c, err));
            ech_buf_clear(&c->line);
        } else if (c->line.len >= MAX_BODY || ech_buf_push(&c->line, s[i]) != ECH_OK) {
            return ech_fail(err, ECH_ELIMIT, "reading the answer: a line is too long");
        }
    }
    return ECH_OK;
}

/* n bytes of the body; n < 0: to the end of the connection. */
static ech_status read_part(conn *const c, int64_t n, ech_error *const err)
{
    while (n != 0 && !c->taken_all) {
        if (c->at == c->len) {
            bool end = false;
            ECH_TRY(fill(c, &end, err));
            if (end)
                return n < 0 ? ECH_OK
                             : ech_fail(err, ECH_EIO,
                                        "reading the answer: the connection ended early");
        }
        size_t take = c->len - c->at;
        if (n > 0 && (int64_t)take > n) take = (size_t)n;
        ECH_TRY(take_bytes(c, c->buf + c->at, take, err));
        c->at += take;
        if (n > 0) n -= (int64_t)take;
    }
    return ECH_OK;
}

/*
 * Trailers aren't read, as the connection ends here anyway. A size may have an extension behind
 * it, where strtoll stops.
 */
static ech_status read_chunks(conn *const c, ech_error *const err)
{
    ech_buf line = { 0 };
    ech_status rc = ECH_OK;
    while (rc == ECH_OK && !c->taken_all) {
        rc = read_line(c, &line, err);
        if (rc != ECH_OK) break;
        char *end;
        const long long n = strtoll(line.data != NULL ? line.data : "", &end, 16);
        if (line.len == 0 || end == line.data || n < 0) {
            rc = ech_fail(err, ECH_EIO, "reading the answer: a chunk without a size");
        } else if (n == 0) {
            break;
        } else {
            rc = read_part(c, n, err);
            if (rc == ECH_OK && !c->taken_all) rc = read_line(c, &line, err);
        }
    }
    ech_buf_fini(&line);
    return rc;
}

/*
 * A chunked body wins over a length, as RFC 9112 6.3 has it. Host is the authority as it was
 * given, port included.
 */
static ech_status exchange(conn *const c, ech_error *const err)
{
    const ech_http_call *const call = c->call;
    ech_buf head = { 0 };
    ech_status rc =
        ech_buf_printf(&head, "%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
                       call->method, call->url->path, call->path, call->url->authority);
    if (rc == ECH_OK && call->api_key != NULL)
        rc = ech_buf_printf(&head, "Authorization: Bearer %s\r\n", call->api_key);
    if (rc == ECH_OK && call->body != NULL) {
        rc = ech_buf_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                            call->body_len);
    }
    if (rc == ECH_OK) rc = ech_buf_puts(&head, "\r\n");
    if (rc != ECH_OK) (void)ech_fail(err, rc, "making the request: out of memory");
    if (rc == ECH_OK) rc = send_all(c, head.data, head.len, err);
    if (rc == ECH_OK && call->body != NULL) rc = send_all(c, call->body, call->body_len, err);
    ech_buf_fini(&head);
    ECH_TRY(rc);
    ECH_TRY(read_head(c, err));
    return c->is_chunked ? read_chunks(c, err) : read_part(c, c->length, err);
}

/* ECH_OK says that an answer was read, not that it is a good one: call->status tells. */
ech_status ech_http_run(ech_http_call *const call, ech_error *const err)
{
    conn c = { .call = call };
    call->status = 0;
    ECH_TRY(connect_to(call->url, &c.fd, err));
    ech_status rc = call->url->is_tls ? shake_hands(&c, err) : ECH_OK;
    if (rc == ECH_OK) rc = exchange(&c, err);
    ech_client_tls_close(&c.tls);
    (void)close(c.fd);
    ech_buf_fini(&c.event);
    ech_buf_fini(&c.line);
    return rc;
}

/*
 * malloc'ed; NULL when the server doesn't list any, which isn't an error: some need no name. 10
 * s: it is asked before anything is shown.
 */
char *ech_http_first_model(const ech_url *const url, const char *const api_key)
{
    ech_http_call call = {
        .url = url, .method = "GET", .path = "/models", .api_key = api_key, .timeout_ms = 10000
    };
    ech_error err;
    char *name = NULL;
    if (ech_http_run(&call, &err) == ECH_OK && call.status == 200 && call.reply.len > 0) {
        json_error_t why;
        json_t *const all = json_loadb(call.reply.data, call.reply.len, 0, &why);
        const json_t *const first = json_array_get(json_object_get(all, "data"), 0);
        const char *const id = json_string_value(json_object_get(first, "id"));
        if (id != NULL) name = strdup(id);
        json_decref(all);
    }
    ech_buf_fini(&call.reply);
    return name;
}
