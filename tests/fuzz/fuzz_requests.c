/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a request, read by a dialect: the first line is the route's path, the rest is what a
 * client sent. Everything up to the engine runs, on a server with the demo model whose chip
 * computes nothing; the server is draining, so that nothing is submitted. Whatever comes, there is
 * an answer, and its body is JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/server/http.h"
#include "src/server/route.h"
#include "src/server/state.h"
#include "tests/fuzz/fuzz.h"

static ech_server *server;

static void close_server(void)
{
    ech_server_close(&server);
}

static void open_server(void)
{
    ech_server_options o;
    ech_error err;
    ech_server_options_default(&o);
    o.port = 0;
    o.engine.platform = "sim";
    o.engine.model_dir = ECH_SOURCE_DIR "/models/tale";
    o.engine.max_running = 1;
    if (ech_server_open(&server, &o, &err) != ECH_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    (void)atexit(close_server);
    ech_store_release(&server->draining, 1);
}

static bool takes_body(const ech_route *const r)
{
    return strcmp(r->method, "POST") == 0;
}

/* The route of a path; of one that is none, any. */
static const ech_route *route_of(const ech_str path)
{
    size_t n = 0;
    for (size_t i = 0; ech_route_at(i) != NULL; i++) {
        const ech_route *const r = ech_route_at(i);
        if (takes_body(r) && ech_str_eq(path, ech_str_from(r->path))) return r;
        n += takes_body(r);
    }
    size_t left = path.len % n;
    for (size_t i = 0;; i++) {
        if (takes_body(ech_route_at(i)) && left-- == 0) return ech_route_at(i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    if (server == NULL) open_server();
    const uint8_t *const nl = memchr(data, '\n', size);
    if (nl == NULL) return 0;
    const size_t path_len = (size_t)(nl - data);
    ech_exchange *const x = calloc(1, sizeof *x);
    if (x == NULL) return 0;
    x->server = server;
    x->fd = -1;
    x->tail = "";
    x->route = route_of((ech_str){ (const char *)data, path_len });
    x->phase = ECH_PHASE_WORKING;
    ECH_ASSERT(ech_buf_append(&x->body, nl + 1, size - path_len - 1) == ECH_OK);
    x->route->handler(x);
    ECH_ASSERT(x->phase == ECH_PHASE_ANSWER);
    ECH_ASSERT(x->status == 200 || x->status == 400 || x->status == 404 || x->status == 503);
    json_t *const answer = json_loadb(x->reply.data, x->reply.len, 0, NULL);
    ECH_ASSERT(answer != NULL);
    json_decref(answer);
    ech_exchange_free(x);
    return 0;
}
