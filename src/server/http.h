/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on libmicrohttpd: one daemon with one loop thread per listening socket. What is checked
 * before a route runs: the framing of the request, the key, Host and Origin.
 */
#ifndef ECH_SERVER_HTTP_H
#define ECH_SERVER_HTTP_H

#include "src/server/exchange.h"

typedef struct ech_http ech_http;

/* Key and certificate in PEM, both zero-terminated; NULL: no TLS. Copied by the library. */
typedef struct ech_http_tls {
    const char *cert, *key;
} ech_http_tls;

/*
 * Serves a bound, listening socket. On success the socket belongs to *ret_http; on failure it is
 * still the caller's.
 */
ech_status ech_http_start(ech_http **ret_http, ech_server *server, int listen_fd,
                          const ech_http_tls *tls, ech_error *err);
/* Takes no connection any more; those that are there stay. */
void ech_http_quiesce(ech_http *http);
/* No exchange may be WORKING or suspended any more. Closes the socket, sets *http NULL. */
void ech_http_stop(ech_http **http);

/* The loop looks at the exchange's connection again. Any thread. */
void ech_http_wake(ech_exchange *x);
/* The value of a request header, NULL when it isn't there. Loop thread, or while WORKING. */
const char *ech_http_header(const ech_exchange *x, const char *name);

#endif
