/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in the trace: from arrival to end, with the first step and the first token, the
 * server's id and the client's W3C traceparent. Kept while the server runs (--trace), written into
 * the engine's Chrome trace when that is there.
 */
#ifndef ECH_SERVER_TRACKS_H
#define ECH_SERVER_TRACKS_H

#include "src/server/exchange.h"

typedef struct ech_track ech_track;

/* Owned by the loop thread while it runs, then by who closes the server. */
typedef struct ech_tracks {
    ech_track *items; /* [n] */
    size_t n, cap;
    uint64_t n_dropped; /* beyond what is kept */
} ech_tracks;

/* A generation is over. */
void ech_tracks_add(ech_tracks *s, const ech_exchange *x);
/* Adds them to a trace that ech_engine_close() has written; on failure that stays as it was. */
ech_status ech_tracks_write(const ech_tracks *s, const char *path, ech_error *err);
void ech_tracks_fini(ech_tracks *s);

#endif
