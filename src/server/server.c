/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, draining and closing. The order of a start is fixed (docs/architecture.md): bind, open
 * the engine, which forks, then start threads. Closing goes the other way round. Called from the
 * program's main thread.
 *
 * Invariant: every step of opening can be the last one, and closing copes with any prefix of
 * them; so a failure halfway closes like a server that ran. Ownership: the caller has the server
 * until ech_server_close(); its options' strings are copied. Exits nothing and prints nothing
 * but its log: what is wrong is in the error.
 */
#include "echelon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "echelon/template.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/server/chat_prompt.h"
#include "src/server/listen.h"
#include "src/server/reply.h"
#include "src/server/state.h"
#include "src/text/json_read.h"

/*
 * Loopback and no key: what a developer wants at once and no stranger reaches. A ping each 15 s
 * keeps a stream alive through proxies, which drop silent connections.
 */
void ech_server_options_default(ech_server_options *const o)
{
    *o = (ech_server_options){
        .struct_size = sizeof *o,
        .host = "127.0.0.1",
        .port = 8080,
        .metrics_prefix = "echelon",
        .max_body = 32U << 20,
        .max_connections = 4096,
        .text_threads = 2,
        .max_tokens = 4096,
        .ping_ms = 15000,
        .write_timeout_ms = 60000,
        .idle_timeout_s = 120,
        .header_timeout_s = 30,
        .max_header_bytes = 8192,
    };
    ech_engine_options_default(&o->engine);
}

/*
 * Text thread. The body may hold zero bytes in strings (JSON_ALLOW_NUL): whether a field takes
 * them is the field's business. The position in the message is that in the body as it was sent.
 */
json_t *ech_exchange_json(ech_exchange *const x)
{
    json_error_t why;
    x->json =
        ech_json_read(x->body.data != NULL ? x->body.data : "", x->body.len, JSON_ALLOW_NUL, &why);
    if (x->json == NULL) {
        ech_reply_error(x, 400, "invalid_json", NULL,
                        "the body is no JSON: line %d, column %d: %.160s", why.line, why.column,
                        why.text);
        return NULL;
    }
    if (!json_is_object(x->json)) {
        ech_reply_error(x, 400, "invalid_json", NULL, "the body must be a JSON object");
        return NULL;
    }
    return x->json;
}

/* ---- opening -------------------------------------------------------------------------------- */

/*
 * Takes the socket over, also when it fails. TLS is for TCP: a Unix socket is the machine's own.
 * From here on the socket is closed by ech_server_close(), or by the front once it has taken it.
 */
static ech_status add_listener(ech_server *const s, const int fd, const bool is_tcp,
                               ech_error *const err)
{
    if (s->n_listeners == ECH_MAX_LISTENERS) {
        (void)close(fd);
        return ech_fail(err, ECH_EINVAL, "binding: at most %d sockets can be served",
                        ECH_MAX_LISTENERS);
    }
    s->listeners[s->n_listeners++] = (ech_listener){ fd, is_tcp && s->tls != NULL };
    return ECH_OK;
}

/*
 * The first port is what the program prints; one listener beyond loopback makes the whole server
 * one that others reach.
 */
static ech_status add_tcp(ech_server *const s, const char *const host, const int port,
                          const int more, ech_error *const err)
{
    int fd;
    int bound;
    bool loopback;
    ECH_TRY(ech_listen_tcp(host, port, more, &fd, &bound, &loopback, err));
    if (s->port == 0) s->port = bound;
    s->is_loopback &= loopback;
    return add_listener(s, fd, true, err);
}

/*
 * Sockets that systemd hands over take the place of --host and --port. systemd hands over
 * descriptors from 3 on (sd_listen_fds). A socket that can't be used is an error and not
 * skipped: a unit file that is wrong should say so.
 */
static ech_status add_inherited(ech_server *const s, ech_error *const err)
{
    const int n = s->options.inherit_sockets ? ech_listen_inherited() : 0;
    for (int i = 0; i < n; i++) {
        bool is_tcp;
        bool loopback;
        int port;
        ECH_TRY(ech_listen_adopt(3 + i, &is_tcp, &loopback, &port, err));
        if (s->port == 0) s->port = port;
        s->is_loopback &= loopback;
        ECH_TRY(add_listener(s, 3 + i, is_tcp, err));
    }
    return ECH_OK;
}

/*
 * Bound before the model is looked at: a port that is taken is said at once, and clients can ask
 * /health while weights are read. A server that others can reach asks for a key. 31 more ports
 * are tried with --next-port.
 */
static ech_status bind_sockets(ech_server *const s, ech_error *const err)
{
    const ech_server_options *const o = &s->options;
    s->is_loopback = true;
    ECH_TRY(add_inherited(s, err));
    if (s->n_listeners == 0) ECH_TRY(add_tcp(s, o->host, o->port, o->try_next_port ? 31 : 0, err));
    for (size_t i = 0; i < o->n_listen; i++) {
        char host[256];
        int port;
        ECH_TRY(ech_listen_parse(o->listen[i], host, sizeof host, &port, err));
        ECH_TRY(add_tcp(s, host[0] != '\0' ? host : "0.0.0.0", port, 0, err));
    }
    if (o->unix_path != NULL) {
        int fd;
        ECH_TRY(ech_listen_unix(o->unix_path, &fd, err));
        s->owns_unix = true;
        ECH_TRY(add_listener(s, fd, false, err));
    }
    if (!s->is_loopback && !ech_keys_required(&s->keys) && !o->insecure) {
        return ech_fail(err, ECH_EINVAL,
                        "binding %s: everybody who reaches this address could use the server; give "
                        "--api-key-file, or "
                        "--insecure if that is meant",
                        o->host);
    }
    return ECH_OK;
}

/*
 * The caller's strings may be gone when the call returns; a reload reads paths again much later.
 * The trace's path is kept beside the engine's own option: requests are added to that file after
 * the engine has closed.
 */
static ech_status copy_strings(ech_server *const s, ech_error *const err)
{
    ech_server_options *const o = &s->options;
    s->trace_path = o->engine.trace_path;
    const char **const strings[] = {
        &o->host,
        &o->unix_path,
        &o->tls_cert,
        &o->tls_key,
        &o->api_key_file,
        &o->api_key,
        &o->cors_origin,
        &o->chat_template,
        &o->chat_template_kwargs,
        &o->reasoning_field,
        &o->metrics_prefix,
        &o->audit_path,
        &s->trace_path,
    };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        if (*strings[i] == NULL) continue;
        *strings[i] = ech_arena_strdup(&s->arena, ech_str_from(*strings[i]));
        if (*strings[i] == NULL)
            return ech_fail(err, ECH_ENOMEM, "opening the server: out of memory");
    }
    return ECH_OK;
}

/*
 * Names of the model: those given, else the last part of its folder. An answer carries the name
 * that its request had, the first one where it had none. More than ECH_MAX_NAMES are left out.
 */
static ech_status take_names(ech_server *const s, ech_error *const err)
{
    for (size_t i = 0; i < s->options.n_served_names && i < ECH_MAX_NAMES; i++) {
        s->names[s->n_names++] =
            ech_arena_strdup(&s->arena, ech_str_from(s->options.served_names[i]));
    }
    if (s->n_names == 0) {
        const char *const dir =
            s->options.engine.model_dir != NULL ? s->options.engine.model_dir : "tale";
        size_t len = strlen(dir);
        while (len > 1 && dir[len - 1] == '/') {
            len--;
        }
        size_t start = len;
        while (start > 0 && dir[start - 1] != '/') {
            start--;
        }
        s->names[s->n_names++] = ech_arena_strdup(&s->arena, (ech_str){ dir + start, len - start });
    }
    for (size_t i = 0; i < s->n_names; i++) {
        if (s->names[i] == NULL)
            return ech_fail(err, ECH_ENOMEM, "opening the server: out of memory");
    }
    return ECH_OK;
}

/*
 * Appended to and never truncated, so that logrotate's copy-and-truncate works; 0640, since
 * lines may hold texts. stderr is duplicated, so that closing is the same in both cases.
 */
static ech_status open_audit(ech_server *const s, ech_error *const err)
{
    const char *const path = s->options.audit_path;
    if (path == NULL) return ECH_OK;
    s->audit_fd = strcmp(path, "-") == 0
                      ? dup(STDERR_FILENO)
                      : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    return s->audit_fd >= 0 ? ECH_OK
                            : ech_fail_errno(err, ECH_EIO, "opening the audit file %s", path);
}

/* The sockets are the front's now: with n_listeners at 0 closing doesn't touch them. */
static ech_status start_listeners(ech_server *const s, ech_error *const err)
{
    ECH_TRY(ech_http_start(&s->http, s, s->listeners, s->n_listeners, s->tls, err));
    s->n_listeners = 0;
    return ECH_OK;
}

/* struct_size guards against a program that was built with another header. */
static ech_status check_options(const ech_server_options *const o, ech_error *const err)
{
    if (o->struct_size != sizeof *o)
        return ech_fail(err, ECH_EINVAL, "opening the server: options of another version");
    if ((o->tls_cert != NULL) != (o->tls_key != NULL)) {
        return ech_fail(err, ECH_EINVAL,
                        "opening the server: --tls-cert and --tls-key go together");
    }
    if (o->max_header_bytes < 1024 || o->max_header_bytes > 65536)
        return ech_fail(err, ECH_EINVAL,
                        "opening the server: --max-header-bytes %zu must be 1024 to 65536",
                        o->max_header_bytes);
    if (o->port < 0 || o->port > 65535)
        return ech_fail(err, ECH_EINVAL, "opening the server: --port %d is no port", o->port);
    return ECH_OK;
}

/*
 * The order is the design's: bind, then fork (inside ech_engine_open), then start threads. A
 * child that was forked after a thread might find a lock held by somebody who doesn't exist
 * there. Keys and certificate come before the model: they are read in a moment, and what is
 * wrong in them is said before minutes of loading. The template needs the engine (a GGUF file
 * carries one), the guides need the template.
 */
static ech_status open_all(ech_server *const s, ech_error *const err)
{
    ECH_TRY(copy_strings(s, err));
    ECH_TRY(take_names(s, err));
    ECH_TRY(ech_keys_load(&s->keys, s->options.api_key_file, s->options.api_key, err));
    ECH_TRY(open_audit(s, err));
    if (s->options.tls_cert != NULL)
        ECH_TRY(ech_tls_open(&s->tls, s->options.tls_cert, s->options.tls_key, err));
    ECH_TRY(bind_sockets(s, err));
    ECH_TRY(ech_engine_open(&s->engine, &s->options.engine, err));
    s->info.struct_size = sizeof s->info;
    ech_engine_info_get(s->engine, &s->info);
    ECH_TRY(ech_served_chat_open(&s->chat, s->options.chat_template, s->engine, s->info.model_dir,
                                 err));
    ECH_TRY(ech_served_chat_set(&s->chat, s->options.chat_template_kwargs,
                                s->options.reasoning_field, err));
    ECH_TRY(ech_guides_open(&s->guides, s->chat.source.data, s->chat.source.len,
                            s->options.reasoning_parser, s->options.tool_call_parser, err));
    ECH_TRY(ech_watch_start(&s->watch, s->options.ping_ms, s->options.write_timeout_ms, err));
    ECH_TRY(ech_pool_start(&s->pool, s->options.text_threads, err));
    return start_listeners(s, err);
}

/*
 * *ret_server is written on success only. Returns while weights may still be filled; /health
 * says how far they are.
 */
ech_status ech_server_open(ech_server **const ret_server, const ech_server_options *const options,
                           ech_error *const err)
{
    ECH_TRY(check_options(options, err));
    ech_server *s = calloc(1, sizeof *s);
    if (s == NULL) return ech_fail(err, ECH_ENOMEM, "opening the server: out of memory");
    s->options = *options;
    s->audit_fd = s->watch.epoll_fd = s->watch.wake_fd = -1;
    ech_keys_init(&s->keys);
    s->created_s = (int64_t)time(NULL);
    s->started_ns = ech_now_ns();
    const ech_status rc = open_all(s, err);
    if (rc != ECH_OK) {
        (void)ech_server_close(&s);
        return rc;
    }
    *ret_server = s;
    return ECH_OK;
}

int ech_server_port(const ech_server *const server)
{
    return server->port;
}

ech_engine *ech_server_engine(ech_server *const server)
{
    return server->engine;
}

/*
 * Both are tried, so that a broken certificate doesn't hold back a key that was revoked. What
 * can't be read leaves the old one in force. Called while requests run: readers see the old set
 * or the new one.
 */
ech_status ech_server_reload(ech_server *const server, ech_error *const err)
{
    const ech_server_options *const o = &server->options;
    ech_error why;
    const ech_status tls = server->tls != NULL ? ech_tls_reload(server->tls, err) : ECH_OK;
    const ech_status keys = ech_keys_load(&server->keys, o->api_key_file, o->api_key, &why);
    if (keys == ECH_OK) return tls;
    if (tls == ECH_OK) return ech_fail(err, keys, "%s", why.text);
    ech_log(ECH_LOG_ERROR, "%s", why.text); /* one error is the caller's; the other is said here */
    return tls;
}

/* ---- closing -------------------------------------------------------------------------------- */

/*
 * 20 ms of delay at a shutdown cost nobody anything; a condition variable would cost a wake at
 * the end of each request.
 */
static void pause_ms(const long ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    (void)nanosleep(&t, NULL);
}

/*
 * 1: no new request is taken, those that run go on. 2: the time is over, the rest is cancelled;
 * a second signal sets the same through another thread's call with 0, and the loop here sees it.
 * A new request gets 503 with a retry-after meanwhile, /health 503. Waits until no exchange is
 * watched any more, which is when each has its whole answer or its client has left.
 */
void ech_server_drain(ech_server *const server, const int timeout_ms)
{
    ech_store_release(&server->draining, 1);
    if (!server->watch.is_running) return;
    const int64_t deadline = ech_now_ns() + timeout_ms * ECH_NS_PER_MS;
    while (ech_now_ns() < deadline && ech_load_acquire(&server->draining) == 1 &&
           ech_watch_count(&server->watch) > 0) {
        pause_ms(20);
    }
    /* Whoever still runs is cancelled; each ends with an error frame, within a step. */
    ech_store_release(&server->draining, 2);
    while (ech_watch_cancel_all(&server->watch) > 0) {
        pause_ms(20);
    }
}

/* Requests are added to a trace of this run alone: what lies there after a failure is an older one.
 */
static ech_status close_engine(ech_server *const s)
{
    const bool has_trace = s->engine != NULL && s->trace_path != NULL;
    ech_error err;
    ech_status rc = ech_engine_close(&s->engine);
    if (has_trace && rc == ECH_OK) {
        rc = ech_tracks_write(&s->tracks, s->trace_path, &err);
        if (rc != ECH_OK) ech_log(ECH_LOG_ERROR, "%s", err.text);
    }
    return rc;
}

/*
 * The way back: no new clients, no requests, no loop, no text threads, no watcher, no engine.
 * Each step is safe after an opening that stopped anywhere. The loop ends before the pool, since
 * it submits; no exchange is pooled any more after the drain. The watcher after both, who take
 * exchanges out of its list. The engine after everybody who could ask it. Requests are added to
 * the trace when the engine has written it.
 */
ech_status ech_server_close(ech_server **const server)
{
    ech_server *const s = *server;
    if (s == NULL) return ECH_OK;
    *server = NULL;
    if (s->http != NULL) ech_http_quiesce(s->http);
    ech_server_drain(s, 0);
    ech_http_stop(&s->http);
    ech_tls_close(&s->tls);
    if (s->pool.n_threads > 0) ech_pool_stop(&s->pool);
    ech_watch_stop(&s->watch);
    ech_guides_close(&s->guides);
    ech_served_chat_close(&s->chat);
    const ech_status traced = close_engine(s);
    ech_tracks_fini(&s->tracks);
    for (size_t i = 0; i < s->n_listeners; i++) {
        (void)close(s->listeners[i].fd);
    }
    if (s->owns_unix) (void)unlink(s->options.unix_path);
    if (s->audit_fd >= 0) (void)close(s->audit_fd);
    ech_keys_fini(&s->keys);
    ech_arena_fini(&s->arena);
    free(s);
    return traced;
}
