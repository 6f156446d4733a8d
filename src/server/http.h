/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on libmicrohttpd: one daemon behind the front (front.h), whose thread runs it. What is
 * checked here before a route runs: the key, Host and Origin, the body's size. The framing was
 * checked by the guard.
 */
#ifndef ECH_SERVER_HTTP_H
#define ECH_SERVER_HTTP_H

#include "src/server/exchange.h"
#include "src/server/front.h"

typedef struct ech_http ech_http;

/*
 * Serves n bound, listening sockets. On success they belong to *ret_http; on failure they are
 * still the caller's. tls is for the listeners that say so, and must outlive *ret_http.
 */
ech_status ech_http_start(ech_http **ret_http, ech_server *server, const ech_listener *listeners,
                          size_t n, ech_tls *tls, ech_error *err);
/* Takes no connection any more; those that are there stay. */
void ech_http_quiesce(ech_http *http);
/* Clients that are connected. Any thread. */
uint32_t ech_http_connections(const ech_http *http);
/* No exchange may be WORKING or suspended any more. Closes the sockets, sets *http NULL. */
void ech_http_stop(ech_http **http);

/* With its generation, whose request is cancelled if it still runs. */
void ech_exchange_free(ech_exchange *x);
/* The loop looks at the exchange's connection again. Any thread. */
void ech_http_wake(ech_exchange *x);
/* The value of a request header, NULL when it isn't there. Loop thread, or while WORKING. */
const char *ech_http_header(const ech_exchange *x, const char *name);

#endif
