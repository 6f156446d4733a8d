/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP/1.1 client for `chat --url` and `bench serve`: one request a connection, bodies
 * whole or as server-sent events, over TCP or TLS. Any thread, one connection a call.
 */
#ifndef ECH_CLI_HTTP_CLIENT_H
#define ECH_CLI_HTTP_CLIENT_H

#include "src/base/buf.h"
#include "src/cli/client_tls.h"

typedef struct ech_url {
    char authority[272]; /* host and port as they were written */
    char host[256];      /* without brackets */
    char port[8];
    char path[512]; /* without a slash at its end; "" for the root */
    bool is_tls;
    ech_trust *trust; /* with is_tls: whom it must be proved by */
} ech_url;

/* "http[s]://HOST[:PORT][/PATH]". EINVAL says what is wrong with it. Of https it reads the
 * authorities too, as --ca-file and --insecure say; the caller closes it, also after a failure. */
ech_status ech_url_open(const char *text, ech_url *ret, ech_error *err);
void ech_url_close(ech_url *url);

/* Called with the data of each event; false ends the call, as if the stream had ended. */
typedef bool (*ech_sse_take)(void *ctx, const char *data, size_t len);

typedef struct ech_http_call {
    const ech_url *url;
    const char *method;
    const char *path;    /* after the URL's own */
    const char *api_key; /* NULL: none */
    const char *body;    /* NULL: none */
    size_t body_len;
    ech_sse_take take; /* NULL: the body goes to `reply` whole */
    void *ctx;
    int timeout_ms;           /* without a byte; 0: none */
    const volatile int *stop; /* NULL, or ends the call when it becomes 1 */
    ech_buf reply;            /* out: the body, or that of an error; freed by the caller */
    int status;               /* out: 0 until the status line was read */
} ech_http_call;

/*
 * Runs a call. ECH_OK whatever the status is; ECANCELLED when stopped; EIO or EOS when the
 * connection failed or the answer is no HTTP.
 */
ech_status ech_http_run(ech_http_call *call, ech_error *err);

/* The first id that GET /models lists, malloc'ed; NULL when the server lists none. */
char *ech_http_first_model(const ech_url *url, const char *api_key);

#endif
