/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/server.h - an engine behind the HTTP APIs that clients already speak.
 *
 *     ech_server_options so;
 *     ech_server_options_default(&so);
 *     so.port = 8080;
 *     so.engine.model_dir = "models/tale";
 *     ech_server *server;
 *     if (ech_server_open(&server, &so, &err) != ECH_OK) …
 *     printf("http://127.0.0.1:%d\n", ech_server_port(server));
 *     …
 *     ech_server_drain(server, 30000);
 *     ech_server_close(&server);
 *
 * Opening binds the sockets first, then opens the engine (which forks its processes), then starts
 * the server's threads: /health answers while the weights are still being filled.
 *
 * Threads: one loop thread accepts clients, checks framing, parses HTTP, authenticates and streams,
 * and never waits for anything else; a few text threads parse JSON, tokenise and submit; one
 * watcher notices clients that leave. Every call of this header is safe from any thread; open and
 * close are not called at the same time.
 */
#ifndef ECHELON_SERVER_H
#define ECHELON_SERVER_H

#include "echelon/engine.h"
#include "echelon/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ech_server ech_server;

/*
 * How a server is opened. Filled by ech_server_options_default() first. Strings are read during
 * ech_server_open() only. 0 means "the default" for every size and count.
 */
typedef struct ech_server_options {
    size_t struct_size;        /* set by the defaults function, don't change */
    ech_engine_options engine; /* what is served */
    const char *host;          /* address to bind; default 127.0.0.1. Anything but loopback needs a
                                  key or `insecure` */
    int port;                  /* default 8080; 0: any free one, see ech_server_port() */
    bool try_next_port;        /* a port that is taken: try the 31 above it */
    const char *const *listen; /* [n_listen] "HOST:PORT" of further sockets; strings must live
                                  until ech_server_open() returns */
    size_t n_listen;
    const char *unix_path;    /* listen on this Unix socket too; removed at close */
    bool inherit_sockets;     /* serve the sockets that a service manager hands over (LISTEN_FDS)
                                 instead of host and port */
    const char *tls_cert;     /* PEM file; with tls_key: TLS on the TCP sockets */
    const char *tls_key;      /* PEM file */
    const char *api_key_file; /* lines "NAME KEY [SETTING=VALUE …]" or "KEY"; '#' begins a comment;
                                 settings: max-requests, requests-per-minute, tokens-per-minute,
                                 weight, priority (docs/serving.md) */
    const char *api_key;      /* one key, named "default"; NULL: none */
    bool insecure;            /* a foreign address may be bound without a key */
    const char *const
        *served_names; /* [n_served_names] names of the model; default: its folder's */
    size_t n_served_names;
    bool any_model;                   /* a request may name any model */
    bool strict;                      /* an unknown field is a 400 instead of a header */
    const char *cors_origin;          /* NULL: no CORS headers; an origin or "*" */
    const char *chat_template;        /* file that replaces the model's template */
    const char *chat_template_kwargs; /* JSON object: the template's variables that requests leave
                                         open; NULL: none */
    const char *reasoning_field;      /* where reasoning is returned: reasoning_content (default),
                                         reasoning, or both */
    const char *reasoning_parser;     /* NULL: as the template shows; a name of parser.h, or none */
    const char *tool_call_parser;     /* the same for tool calls */
    const char *metrics_prefix;       /* default "echelon" */
    size_t max_body;                  /* bytes; default 32 MiB: beyond it 413 */
    size_t max_header_bytes;  /* request line and headers; default 8 KiB, at most 64: beyond it
                                 431 */
    uint32_t max_connections; /* default 4096; beyond it 503 */
    uint32_t text_threads;    /* default 2 */
    uint32_t max_tokens;      /* cap of an answer when the request names none; default 4096 */
    uint32_t ping_ms;         /* a comment goes to a silent stream so often; default 15000 */
    uint32_t
        write_timeout_ms;    /* a client that takes nothing for so long is cut off; default 60000 */
    uint32_t idle_timeout_s; /* a connection without a request is closed; default 120 */
    uint32_t request_timeout_s; /* of an answer, from its arrival to its end; 0: none */
    uint32_t header_timeout_s;  /* a request's head must be there by then, else 408; a body may be
                                   late by as much against 500 bytes a second; default 30 */
    const char *audit_path;     /* one JSON line per request; "-" is stderr; NULL: none */
    bool audit_text;            /* the lines carry what was asked and answered too */
} ech_server_options;

/** Fills *o with the defaults, struct_size and the engine's included. */
ECH_API void ech_server_options_default(ech_server_options *o);

/*
 * Binds, opens the engine, starts serving, returns.
 *
 * Ownership: on success *ret_server is the caller's, to be closed. On failure nothing is left.
 * Errors: EINVAL (names the option), EBUSY (the port is taken), EACCESS (a foreign address without
 * a key), what ech_engine_open() says, EOS.
 */
ECH_API ech_status ech_server_open(ech_server **ret_server, const ech_server_options *options,
                                   ech_error *err);

/** The TCP port that is served, 0 when there is none. */
ECH_API int ech_server_port(const ech_server *server);

/**
 * What a server takes, in Markdown: docs/api.md. Ownership: the caller's, for free(); NULL when out
 * of memory.
 */
ECH_API char *ech_server_api_text(void);

/** The engine, borrowed until the server is closed. */
ECH_API ech_engine *ech_server_engine(ech_server *server);

/*
 * Stops being ready at once (/health answers 503, new requests too), lets running requests finish
 * for at most timeout_ms, then ends each with an error frame. Returns when no request is left.
 * May be called from another thread a second time with 0 to cut the wait short.
 */
ECH_API void ech_server_drain(ech_server *server, int timeout_ms);

/** Reads keys with their limits, and the certificate with its key, again. Each of the two that has
 * a fault stays as it was; the error says what is wrong. Connections keep the certificate that they
 * began with.
 */
ECH_API ech_status ech_server_reload(ech_server *server, ech_error *err);

/**
 * Drains with 0, stops the threads, closes the engine, sets *server NULL. Accepts NULL. Everything
 * is closed whatever it returns: EIO as ech_engine_close() has it, also where the trace is written
 * but for the requests in it.
 */
ECH_API ech_status ech_server_close(ech_server **server);

#ifdef __cplusplus
}
#endif

#endif
