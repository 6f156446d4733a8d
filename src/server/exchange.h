/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its answer: from the first header to the last byte.
 *
 *   phase     who may touch it            leaves by
 *   READING   the loop thread             body complete → WORKING, or an inline route → ANSWER
 *   WORKING   one text thread             the handler set an answer → ANSWER; it submitted →
 * RUNNING RUNNING   the loop thread             the last event was read → ANSWER (streams stay
 * here) ANSWER    the loop thread             the connection is done with it
 *
 * While it is WORKING, or RUNNING without an unread event, its connection is suspended: the loop
 * doesn't look at it. It is woken (http.h) by the end of the job, by the engine's notify, or by the
 * watcher when the client has left. A wake may be spurious; the phase decides.
 */
#ifndef ECH_SERVER_EXCHANGE_H
#define ECH_SERVER_EXCHANGE_H

#include <jansson.h>
#include <microhttpd.h>

#include "echelon/engine.h"
#include "echelon/server.h"
#include "src/base/arena.h"
#include "src/base/buf.h"

typedef struct ech_exchange ech_exchange;
typedef struct ech_route ech_route;
typedef struct ech_dialect ech_dialect;
struct ech_key;

typedef enum ech_phase {
    ECH_PHASE_READING,
    ECH_PHASE_WORKING,
    ECH_PHASE_RUNNING,
    ECH_PHASE_ANSWER,
} ech_phase;

#define ECH_REQUEST_ID_LEN 24

/* What GET /requests shows of a generation. */
typedef struct ech_watch_view {
    bool has_started;
    uint32_t prompt_tokens, completion_tokens;
} ech_watch_view;

struct ech_exchange {
    ech_server *server;
    struct MHD_Connection *conn;
    const ech_route *route;
    const char *tail; /* what follows the route's path, in the arena; "" */
    const char *host; /* what an absolute request target names, in the arena; NULL */
    char id[ECH_REQUEST_ID_LEN + 1];
    const struct ech_key *key; /* NULL: no key is needed */
    bool holds_quota;          /* of the key's, to be given back */
    const char *format_name;   /* what the client calls response_format; NULL: that */
    const char *trace_parent;  /* the client's W3C traceparent, in the arena; NULL: none */
    int64_t started_ns;
    ech_arena arena; /* lives as long as the exchange */

    ech_phase phase; /* written with release by whoever hands it on */
    ech_buf body;
    json_t *json;            /* the parsed body */
    json_t *kept;            /* a list of JSON made on the way, freed with it; NULL: none */
    struct ech_guide *guide; /* owned; NULL: none */
    struct ech_constraint *constraint; /* one reference; NULL: none */

    /* the answer of ANSWER */
    int status;
    const char *content_type;
    ech_buf reply;
    const char *allow;  /* header of a 405, else NULL */
    const char *policy; /* Content-Security-Policy of a page, else NULL */
    int retry_after_s;  /* header of a 429 or 503; 0: none */
    ech_buf ignored;    /* x-echelon-ignored: names of unknown fields */

    /* the generation of RUNNING */
    ech_request *request; /* written under the watcher's lock */
    const ech_dialect *dialect;
    void *gen; /* the dialect's state, in the arena or freed by its release */
    bool is_stream;
    bool has_response; /* headers are out */
    bool ended;        /* the last frame is in out */
    ech_buf out;       /* frames not yet taken by the loop */
    size_t out_taken;
    ech_usage usage;
    const char *finish_name;

    /* the watcher's (watch.h), under its lock */
    ech_exchange *watch_next, *watch_prev;
    uint64_t watch_serial; /* 0: not watched */
    int fd;
    bool gone;      /* the client has left */
    bool has_ended; /* it sends no more */
    bool is_watched_stream; /* is_stream, once there is a request */
    bool is_pooled; /* a text thread has it: it may not end before that has woken it; atomic */
    bool ping_due;
    ech_watch_view view;
    int64_t last_out_ns; /* when bytes were last taken */

    ech_exchange *job_next; /* the text threads' queue */
};

/* What a route does. Inline handlers run on the loop thread and must not wait; others get a text
 * thread. A handler either sets an answer (reply.h) or starts a generation (generate.h). */
typedef void (*ech_handler)(ech_exchange *x);

struct ech_route {
    const char *method;
    const char *path; /* without /v1 */
    bool takes_tail;  /* the path is a prefix, ending in '/' */
    bool is_inline;
    bool is_open; /* no key is asked for */
    ech_handler handler;
    const char *summary; /* for docs/api.md and /openapi.json, as what follows */
    unsigned fields;     /* ECH_IN_… that its body has; 0: it has none */
    const char *answer;  /* a schema (openapi_schemas.c), a content type, or NULL: none */
    bool counts_only;    /* takes a generation's fields and generates nothing */
};

/* The parsed body of a POST, an object that lives as long as the exchange; on failure the answer
 * (400) is set and NULL returned. */
json_t *ech_exchange_json(ech_exchange *x);

#endif
