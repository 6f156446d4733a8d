/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop threads' side of an exchange; see exchange.h for its phases. Invariant: whatever this
 * file calls on the loop thread returns without waiting. libmicrohttpd calls on_request() first
 * with the headers, then with parts of the body, then with nothing; and once more after every wake.
 *
 * Ownership: an exchange is made with the first call and hangs at the library's con_cls;
 * on_completed() frees it, which the library calls once for every request, however it ended.
 * Left out: what the library would do by itself and does badly for us; it doesn't listen (the
 * front does) and sees no head that the guard hasn't passed.
 */
#include "src/server/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "echelon/guide.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/server/audit.h"
#include "src/server/generate.h"
#include "src/server/link.h"
#include "src/server/reply.h"
#include "src/server/route.h"
#include "src/server/state.h"

/* What the library may hold of one connection beside its headers: an entry for each of them, those
 * of the answer, a block of a stream. It clears what it gives back, so an idle stream costs it all.
 */
#define CONNECTION_EXTRA (16 * 1024)
#define MAX_TARGET       4096 /* the guard's, as the next one; SDKs stay far below */
#define MAX_HEADERS      100
/* What the loop asks of a stream at a time. */
#define STREAM_BLOCK 4096

struct ech_http {
    ech_server *server;
    ech_front front;
};

const char *ech_http_header(const ech_exchange *const x, const char *const name)
{
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

void ech_http_wake(ech_exchange *const x)
{
    MHD_resume_connection(x->conn);
    /* The library's own signal can be used up by a run that began before the line above. */
    ech_front_wake(&x->server->http->front);
}

/* ---- before a route ------------------------------------------------------------------------- */

/* The name ends there or at a port: localhost.example and localhost:1@example are others' names. */
static bool host_is_local(const char *host)
{
    static const char *const LOCAL[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; i < sizeof LOCAL / sizeof LOCAL[0]; i++) {
        const size_t n = strlen(LOCAL[i]);
        if (strncasecmp(host, LOCAL[i], n) != 0) continue;
        const char *rest = host + n;
        if (*rest == ':') rest += 1 + strspn(rest + 1, "0123456789");
        if (*rest == '\0') return true;
    }
    return false;
}

/*
 * Without keys a page from elsewhere must not reach a server on loopback (DNS rebinding). A page
 * of another site may make a browser send requests here, and with rebound DNS even under this
 * server's address: Host then names the site. curl and SDKs send no Origin and pass.
 */
static bool origin_is_allowed(const ech_exchange *const x)
{
    const ech_server *const s = x->server;
    if (ech_keys_required(&s->keys) || !s->is_loopback) return true;
    const char *const host = x->host != NULL ? x->host : ech_http_header(x, "Host");
    if (host != NULL && !host_is_local(host)) return false;
    const char *const origin = ech_http_header(x, "Origin");
    if (origin == NULL ||
        (s->options.cors_origin != NULL && (strcmp(s->options.cors_origin, "*") == 0 ||
                                            strcasecmp(s->options.cors_origin, origin) == 0))) {
        return true;
    }
    const char *const scheme_end = strstr(origin, "://");
    return scheme_end != NULL && host_is_local(scheme_end + 3);
}

/* OpenAI's SDK sends Bearer, Anthropic's x-api-key. */
static const char *secret_of(const ech_exchange *const x)
{
    const char *const auth = ech_http_header(x, "Authorization");
    if (auth != NULL && strncasecmp(auth, "Bearer ", 7) == 0) return auth + 7;
    return ech_http_header(x, "x-api-key");
}

/*
 * A path that doesn't exist asks for the key as well: who has none doesn't learn which paths
 * there are.
 */
static bool key_is_good(ech_exchange *const x)
{
    if (!ech_keys_required(&x->server->keys) || (x->route != NULL && x->route->is_open))
        return true;
    const char *const secret = secret_of(x);
    x->key = secret != NULL ? ech_keys_find(&x->server->keys, secret) : NULL;
    return x->key != NULL;
}

/* "http://HOST/PATH" → "/PATH". The host that a target names counts, not the header's. */
static const char *path_of(ech_exchange *const x, const char *const target)
{
    const size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                          : strncasecmp(target, "https://", 8) == 0 ? 8
                                                                    : 0;
    const char *const host = target + scheme;
    const size_t n = strcspn(host, "/");
    if (scheme == 0 || n == 0) return target;
    x->host = ech_arena_strdup(&x->arena, (ech_str){ host, n });
    if (x->host == NULL) x->host = ""; /* out of memory: no name that is let in */
    return host[n] == '/' ? host + n : "/";
}

/* Bodies are taken as they are: to unpack them would let a small request ask for much memory. */
static bool is_packed(const ech_exchange *const x)
{
    const char *const coding = ech_http_header(x, "Content-Encoding");
    return coding != NULL && coding[0] != '\0' && strcasecmp(coding, "identity") != 0;
}

/*
 * Sets an answer when the request ends here, before its body is read. The order is that of what
 * a stranger may learn: first whether the page may talk to us at all, then the preflight, then
 * the key, and only then which paths and methods there are.
 */
static void check_head(ech_exchange *const x, const char *const method, const char *const path)
{
    const char *tail = "";
    x->route = ech_route_find(method, path, &tail, &x->allow);
    x->tail = ech_arena_strdup(&x->arena, ech_str_from(tail));
    if (x->tail == NULL) x->tail = "";
    if (!origin_is_allowed(x)) {
        ech_reply_error(
            x, 403, "foreign_origin", NULL,
            "this Host or Origin may not use the server; set an API key or --cors-origin");
    } else if (strcmp(method, "OPTIONS") == 0) {
        /* A preflight carries no key by design. */
        ech_reply_text(x, 204, NULL);
    } else if (!key_is_good(x)) {
        ech_reply_error(x, 401, "invalid_api_key", NULL, "the API key is missing or wrong");
    } else if (x->route == NULL && x->allow != NULL) {
        ech_reply_error(x, 405, "method_not_allowed", NULL, "%s is not possible here, %s is",
                        method, x->allow);
    } else if (x->route == NULL) {
        ech_reply_error(x, 404, "unknown_path", NULL,
                        "there is nothing at %s; /openapi.json lists what there is", path);
    } else if (is_packed(x)) {
        ech_reply_error(x, 415, "unsupported_coding", NULL,
                        "the body must come as it is, without a Content-Encoding");
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

/*
 * Which headers a page of the allowed origin may send: those that its browser asks for. SDKs send
 * headers of their own with every request (x-stainless-os, anthropic-version), and a browser drops
 * the request when one is missing here. What comes back is nothing but names of headers.
 */
static const char *allowed_headers(const ech_exchange *const x)
{
    static const char NAMES[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_, ";
    const char *const asked = ech_http_header(x, "Access-Control-Request-Headers");
    return asked != NULL && asked[0] != '\0' && strspn(asked, NAMES) == strlen(asked)
               ? asked
               : "authorization, content-type, x-api-key";
}

/*
 * On every answer, errors too: a browser hides from the page what lacks these headers, and the
 * page would not see why it was refused. Exposed are those that SDKs read.
 */
static void add_cors(const ech_exchange *const x, struct MHD_Response *const r)
{
    const char *const origin = x->server->options.cors_origin;
    if (origin == NULL) return;
    (void)MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
    (void)MHD_add_response_header(r, "Access-Control-Allow-Headers", allowed_headers(x));
    (void)MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    (void)MHD_add_response_header(r, "Access-Control-Expose-Headers",
                                  "x-request-id, retry-after, x-should-retry, x-echelon-ignored");
}

static void add_headers(ech_exchange *const x, struct MHD_Response *const r)
{
    (void)MHD_add_response_header(r, "x-request-id", x->id);
    (void)MHD_add_response_header(r, "request-id", x->id); /* where Anthropic's SDK looks */
    if (x->content_type != NULL) (void)MHD_add_response_header(r, "Content-Type", x->content_type);
    if (x->allow != NULL && x->status == 405) (void)MHD_add_response_header(r, "Allow", x->allow);
    if (x->ignored.len > 0) (void)MHD_add_response_header(r, "x-echelon-ignored", x->ignored.data);
    if (x->retry_after_s > 0) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", x->retry_after_s);
        (void)MHD_add_response_header(r, "retry-after", text);
    }
    /*
     * OpenAI's SDK obeys it. A fault of ours would come again and cost the same tokens; a 503
     * passes.
     */
    if (x->status >= 500 && x->status != 503)
        (void)MHD_add_response_header(r, "x-should-retry", "false");
    /* Only the files of the web page have a policy. */
    if (x->policy != NULL) {
        (void)MHD_add_response_header(r, "Content-Security-Policy", x->policy);
        (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
        (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    }
    if (x->status == 415) (void)MHD_add_response_header(r, "Accept-Encoding", "identity");
    if (x->status == 401) (void)MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    add_cors(x, r);
}

/*
 * MHD_NO closes the connection without an answer: all that is left without memory. The library
 * takes its own reference, so that ours can go at once.
 */
static enum MHD_Result queue(ech_exchange *const x, struct MHD_Response *const r)
{
    if (r == NULL) return MHD_NO;
    add_headers(x, r);
    x->has_response = true;
    ech_link_note_answer(&x->server->http->front, x->fd, false);
    const enum MHD_Result rc = MHD_queue_response(x->conn, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result queue_answer(ech_exchange *const x)
{
    /* The body stays the exchange's: the library has sent it when the exchange completes. */
    return queue(
        x, MHD_create_response_from_buffer(x->reply.len, x->reply.data, MHD_RESPMEM_PERSISTENT));
}

/*
 * Gives the loop the next bytes of a stream; none: the connection sleeps until it is woken.
 * Called on the loop thread when the last block is gone. The next events are only taken when all
 * of `out` was: so what a client doesn't read stays with the engine. A 0 without a suspension
 * would be asked again at once, for ever. An event that comes between the pump and the
 * suspension isn't slept over: its wake makes the suspension void. END_WITH_ERROR closes without
 * the last chunk, which is how HTTP says that a body is cut.
 */
static ssize_t read_stream(void *const cls, uint64_t pos, char *const buf, const size_t max)
{
    (void)pos;
    ech_exchange *const x = cls;
    if (ech_watch_is_gone(&x->server->watch, x)) return MHD_CONTENT_READER_END_WITH_ERROR;
    const bool ping = ech_watch_take_ping(&x->server->watch, x);
    if (x->out_taken == x->out.len && !x->ended) {
        ech_buf_clear(&x->out);
        x->out_taken = 0;
        ech_generate_pump(x);
        if (x->out.len == 0 && ping) (void)ech_buf_puts(&x->out, ": ping\n\n");
    }
    const size_t left = x->out.len - x->out_taken;
    if (left == 0) {
        if (x->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        MHD_suspend_connection(x->conn);
        return 0;
    }
    const size_t n = left < max ? left : max;
    memcpy(buf, x->out.data + x->out_taken, n);
    x->out_taken += n;
    return (ssize_t)n;
}

/*
 * Of unknown size: chunks, or with HTTP/1.0 up to the end of the connection. Proxies are told
 * not to collect the events (X-Accel-Buffering is nginx's).
 */
static enum MHD_Result queue_stream(ech_exchange *const x)
{
    struct MHD_Response *const r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL);
    if (r == NULL) return MHD_NO;
    x->status = 200;
    x->content_type = "text/event-stream";
    (void)MHD_add_response_header(r, "Cache-Control", "no-cache");
    (void)MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return queue(x, r);
}

/* ---- the life of an exchange ---------------------------------------------------------------- */

/* Also false for all zeros, which the specification calls invalid. */
static bool is_hex(const char *const s, const size_t n)
{
    bool is_zero = true;
    for (size_t i = 0; i < n; i++) {
        if (strchr("0123456789abcdef", s[i]) == NULL || s[i] == '\0') return false;
        is_zero &= s[i] == '0';
    }
    return !is_zero;
}

/* W3C trace context: VERSION-TRACE-PARENT-FLAGS, lower case, neither id all zeros. One that is
 * malformed is as none. */
static void take_trace_parent(ech_exchange *const x)
{
    const char *const s = ech_http_header(x, "traceparent");
    if (s == NULL || strlen(s) != 55 || strncmp(s, "00-", 3) != 0 || s[35] != '-' || s[52] != '-')
        return;
    const bool has_flags = isxdigit((unsigned char)s[53]) && isxdigit((unsigned char)s[54]);
    if (is_hex(s + 3, 32) && is_hex(s + 36, 16) && has_flags)
        x->trace_parent = ech_arena_strdup(&x->arena, ech_str_from(s));
}

/*
 * The library's clock is for a connection without a request. Within one others run: those of the
 * link for what comes too slowly or isn't taken, the request's own for the answer.
 */
static void set_idle(const ech_server *const server, struct MHD_Connection *const conn,
                     const bool is_idle)
{
    const unsigned seconds = is_idle ? server->options.idle_timeout_s : 0;
    (void)MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

/* x->fd is the library's end of the link's pair: what the watcher listens on. */
static ech_exchange *exchange_new(ech_server *const server, struct MHD_Connection *const conn)
{
    ech_exchange *const x = calloc(1, sizeof *x);
    if (x == NULL) return NULL;
    x->server = server;
    x->conn = conn;
    x->started_ns = ech_now_ns();
    set_idle(server, conn, false);
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info != NULL ? info->connect_fd : -1;
    ech_request_id_make(x->id);
    take_trace_parent(x);
    (void)ech_fetch_add_relaxed(&server->http_requests, 1);
    return x;
}

/*
 * The generation goes first: it closes the request, and until then the engine may call with this
 * exchange.
 */
void ech_exchange_free(ech_exchange *const x)
{
    ech_generate_release(x);
    json_decref(x->json);
    json_decref(x->kept);
    ech_guide_destroy(&x->guide);
    ech_constraint_unref(&x->constraint);
    ech_buf_fini(&x->body);
    ech_buf_fini(&x->reply);
    ech_buf_fini(&x->ignored);
    ech_buf_fini(&x->out);
    ech_arena_fini(&x->arena);
    free(x);
}

/*
 * The watcher forgets it before anything else, since its thread could wake the exchange; the
 * audit line comes before the release, which takes the texts away.
 */
static void on_completed(void *const cls, struct MHD_Connection *const conn, void **const con_cls,
                         const enum MHD_RequestTerminationCode code)
{
    ech_server *const server = cls;
    ech_exchange *const x = *con_cls;
    if (x == NULL) return;
    *con_cls = NULL;
    if (x->has_response && code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        ech_link_note_answer(&server->http->front, x->fd, true);
    set_idle(server, conn, true);
    ech_watch_remove(&server->watch, x);
    (void)ech_fetch_add_relaxed(&server->http_errors[x->status / 100 < 6 ? x->status / 100 : 5], 1);
    /* Neither: it ended before it was whole; there was nothing to answer. */
    if (x->status != 0 || x->request != NULL) ech_audit_write(x);
    if (x->request != NULL && server->trace_path != NULL) ech_tracks_add(&server->tracks, x);
    ech_exchange_free(x);
}

/*
 * *len = 0 says that everything was taken, also what is thrown away: after an answer is set the
 * rest of a body is read and dropped. The subtraction can't wrap: what is there was checked
 * against the limit.
 */
static enum MHD_Result take_body(ech_exchange *const x, const char *const data, size_t *const len)
{
    const size_t limit = x->server->options.max_body;
    if (x->phase == ECH_PHASE_READING) {
        if (*len > limit - x->body.len) {
            ech_buf_fini(&x->body);
            ech_reply_error(x, 413, "body_too_large", NULL,
                            "the body is larger than %zu bytes (--max-body)", limit);
        } else if (ech_buf_append(&x->body, data, *len) != ECH_OK) {
            ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the body now");
        }
    }
    *len = 0;
    return MHD_YES;
}

/*
 * A body that says beforehand that it is too long is not read at all. A body in chunks has no
 * length beforehand; the guard counts it.
 */
static void check_length(ech_exchange *const x)
{
    const char *const text = ech_http_header(x, "Content-Length");
    const size_t limit = x->server->options.max_body;
    if (text != NULL && strtoull(text, NULL, 10) > limit) {
        ech_reply_error(x, 413, "body_too_large", NULL,
                        "the body is larger than %zu bytes (--max-body)", limit);
    }
}

/*
 * A text thread is about to get the exchange: until it wakes the connection nothing else may. A
 * wake that came too late for the request before this one makes a suspension void; then it takes a
 * second one, since a connection that is awake may end.
 */
static void suspend_for_work(const ech_exchange *const x)
{
    MHD_suspend_connection(x->conn);
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED);
    if (info != NULL && info->suspended == MHD_NO) MHD_suspend_connection(x->conn);
}

/*
 * The order matters, since a text thread may be done before the next line here: the phase and
 * is_pooled are set before others can see the exchange, and the connection is suspended before
 * the thread gets it, or its wake would come too early and be lost.
 */
static enum MHD_Result start_work(ech_exchange *const x)
{
    if (x->route->is_inline) {
        x->route->handler(x);
        return queue_answer(x);
    }
    x->phase = ECH_PHASE_WORKING;
    x->is_pooled = true;
    ech_watch_add(&x->server->watch, x);
    suspend_for_work(x);
    ech_pool_submit(&x->server->pool, x);
    return MHD_YES;
}

/*
 * After the body, and after every wake. A wake may be spurious, so each case asks again what
 * there is. A client that has left gets MHD_NO, which ends the exchange through on_completed().
 */
static enum MHD_Result go_on(ech_exchange *const x)
{
    /* Partner: the release of whoever moved the exchange to ANSWER or RUNNING. */
    switch (ech_load_acquire(&x->phase)) {
    case ECH_PHASE_READING:
        return start_work(x);
    case ECH_PHASE_RUNNING:
        if (ech_watch_is_gone(&x->server->watch, x)) return MHD_NO;
        if (x->is_stream) return queue_stream(x);
        ech_generate_pump(x);
        if (x->phase == ECH_PHASE_ANSWER) return queue_answer(x);
        MHD_suspend_connection(x->conn);
        return MHD_YES;
    case ECH_PHASE_ANSWER:
        return queue_answer(x);
    case ECH_PHASE_WORKING:
        break; /* a text thread leaves it in one of the others */
    }
    return MHD_NO;
}

/*
 * Returning MHD_YES without an answer is how the library is told to go on: with the body, or to
 * wait for a wake.
 */
static enum MHD_Result on_request(void *const cls, struct MHD_Connection *const conn,
                                  const char *const url, const char *const method,
                                  const char *const version, const char *const upload,
                                  size_t *const upload_len, void **const con_cls)
{
    (void)version;
    ech_exchange *x = *con_cls;
    if (x == NULL) {
        x = exchange_new(cls, conn);
        if (x == NULL) return MHD_NO;
        *con_cls = x;
        check_head(x, method, path_of(x, url));
        if (x->phase == ECH_PHASE_READING) check_length(x);
        /* Answered before the body is read: the library closes the connection after it. */
        return x->phase == ECH_PHASE_ANSWER ? queue_answer(x) : MHD_YES;
    }
    if (x->has_response) return MHD_YES;
    if (*upload_len > 0) return take_body(x, upload, upload_len);
    return go_on(x);
}

/* libmicrohttpd's own complaints are dropped: they are about what clients sent, or about clients
 * that left, and the audit log says that better. */
static void on_log(void *const cls, const char *const fmt, va_list ap)
{
    (void)cls;
    (void)fmt;
    (void)ap;
}

/*
 * No thread of its own and no listening socket: the front's thread calls MHD_run() and hands it
 * sockets. ITC gives the daemon a descriptor that a resume from another thread signals.
 */
static ech_status start_daemon(ech_http *const http, ech_error *const err)
{
    const ech_server_options *const o = &http->server->options;
    http->front.daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, http->server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http->server, MHD_OPTION_CONNECTION_LIMIT,
        o->max_connections, MHD_OPTION_CONNECTION_TIMEOUT, o->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->max_header_bytes + CONNECTION_EXTRA, MHD_OPTION_END);
    return http->front.daemon != NULL
               ? ECH_OK
               : ech_fail(err, ECH_EOS, "starting the HTTP library: libmicrohttpd refused");
}

/*
 * The sockets are copied, so that a failure leaves the caller's as they were. header_timeout is
 * the front's business, idle_timeout is given to both: the library's runs inside a pair, the
 * front's before there is one.
 */
ech_status ech_http_start(ech_http **const ret_http, ech_server *const server,
                          const ech_listener *const listeners, const size_t n, ech_tls *const tls,
                          ech_error *const err)
{
    ech_http *const http = calloc(1, sizeof *http);
    if (http == NULL) return ech_fail(err, ECH_ENOMEM, "starting the listeners: out of memory");
    const ech_server_options *const o = &server->options;
    http->server = server;
    http->front = (ech_front){
        .server = server,
        .tls = tls,
        .limits = { .max_head = o->max_header_bytes,
                    .max_target = MAX_TARGET,
                    .max_headers = MAX_HEADERS,
                    .max_body = o->max_body },
        .max_links = o->max_connections,
        .head_ns = o->header_timeout_s * 1000 * ECH_NS_PER_MS,
        .idle_ns = o->idle_timeout_s * 1000 * ECH_NS_PER_MS,
        .write_ns = o->write_timeout_ms * ECH_NS_PER_MS,
        .n_listeners = n,
    };
    memcpy(http->front.listeners, listeners, n * sizeof *listeners);
    ech_status rc = start_daemon(http, err);
    *ret_http = http; /* before the thread: its requests look for it */
    if (rc == ECH_OK) rc = ech_front_start(&http->front, err);
    if (rc != ECH_OK) {
        if (http->front.daemon != NULL) MHD_stop_daemon(http->front.daemon);
        free(http->front.by_pair);
        free(http);
        *ret_http = NULL;
    }
    return rc;
}

void ech_http_quiesce(ech_http *const http)
{
    ech_front_quiesce(&http->front);
}

uint32_t ech_http_connections(const ech_http *const http)
{
    return ech_load_relaxed(&http->front.n_links);
}

/* The front first: its thread is the only one that may call the library while it runs. */
void ech_http_stop(ech_http **const http)
{
    if (*http == NULL) return;
    ech_front_stop(&(*http)->front);
    MHD_stop_daemon((*http)->front.daemon);
    free((*http)->front.by_pair);
    free(*http);
    *http = NULL;
}
