/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own state: what its files share. Written before the threads start, but for the
 * words that say otherwise.
 */
#ifndef ECH_SERVER_STATE_H
#define ECH_SERVER_STATE_H

#include "src/server/auth.h"
#include "src/server/chat_prompt.h"
#include "src/server/guide.h"
#include "src/server/http.h"
#include "src/server/observe.h"
#include "src/server/pool.h"
#include "src/server/tracks.h"
#include "src/server/watch.h"

#define ECH_MAX_NAMES 16

struct ech_server {
    ech_server_options options; /* strings point into arena */
    ech_arena arena;
    ech_engine *engine;
    ech_engine_info info;
    ech_keys keys;
    ech_served_chat chat;
    ech_guides guides;
    ech_watch watch;
    ech_pool pool;
    ech_http *http;
    ech_tls *tls;                              /* NULL: none */
    ech_listener listeners[ECH_MAX_LISTENERS]; /* until the front takes them */
    size_t n_listeners;
    bool owns_unix;   /* the socket's file is removed at the end */
    int port;         /* of the first TCP listener; 0: none */
    bool is_loopback; /* only this machine reaches the listeners */
    const char *names[ECH_MAX_NAMES];
    size_t n_names;
    int64_t started_ns; /* monotonic, at created_s */
    int64_t created_s;  /* Unix time of the start, for `created` fields */
    int audit_fd;       /* -1: none */
    uint32_t draining;  /* atomic: 1 after ech_server_drain() was called */
    ech_observed observed;
    ech_tracks tracks;       /* of requests, with a trace */
    const char *trace_path;  /* NULL: none */
    uint64_t http_requests;  /* atomic */
    uint64_t http_errors[6]; /* atomic: answers by hundreds of their status */
};

#endif
