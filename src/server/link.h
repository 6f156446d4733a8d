/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one client's connection, and the pair of sockets that leads from it to the HTTP library.
 *
 *     client ⇄ [TLS] → guard → pair ⇄ libmicrohttpd
 *
 * What the client sends reaches the library only after the guard (guard.h) has passed it; what
 * the library writes goes to the client as it is. The pair is made with the first head that
 * passes, so that a connection which never asks for anything costs the library nothing. Back-
 * pressure goes through: nothing is read from either side while the other takes nothing.
 *
 * A client that has only closed its sending side still gets its answer. One that has left
 * altogether looks the same at first, so it is sent something harmless (a 100, or a stream's
 * comment by way of the watcher): a socket that is closed answers with a reset.
 */
#ifndef ECH_SERVER_LINK_H
#define ECH_SERVER_LINK_H

#include "src/base/buf.h"
#include "src/server/front.h"
#include "src/server/guard.h"
#include "src/server/tls.h"

typedef struct ech_link ech_link;

struct ech_link {
    ech_front *front;
    ech_link *next, *prev; /* of the front's list */
    ech_link *again;       /* of those that have more to do than one round */
    ech_link *dead;        /* of those to be freed */
    int client, pair;      /* pair: -1 before the first head */
    int far;               /* the library's end of the pair; -1: not made yet, or done with */
    ech_tls_session *tls;  /* NULL: none */
    ech_guard guard;
    ech_buf in;      /* from the client: [n_passed] bytes that may go on, then what waits */
    size_t n_passed; /* for a head's end */
    ech_buf out;     /* to the client, from out_sent on */
    size_t out_sent;
    int64_t since_ns;         /* accepted, last byte that went either way: what a limit runs from */
    int64_t due_ns;           /* when the request that has begun is late; see its clock in link.c */
    uint64_t n_begun, n_done; /* answers of the library: set, written whole */
    bool is_answered;         /* more than a 100 came from the library since the last head passed */
    bool client_in, client_out, pair_in, pair_out; /* may be read, written */
    bool is_shaking;                               /* TLS hands */
    bool client_ended;                             /* sends no more */
    bool is_deaf;      /* what it still sends is of no use: the library has closed */
    bool pair_ended;   /* the library has closed its end */
    bool pair_told;    /* that the client sends no more */
    bool has_refused;  /* the refusal is in out */
    bool is_lingering; /* everything is sent; until the client has closed too */
    bool is_dead;      /* closed; freed at the end of the round */
    bool is_again;
};

/* Takes over the client's socket, which doesn't block. NULL: no memory; it is closed then. */
ech_link *ech_link_new(ech_front *front, int client, bool is_tls);
/* What epoll said of one side, then as much as can be done without waiting. */
void ech_link_on_event(ech_link *l, bool is_pair, uint32_t events);
void ech_link_pump(ech_link *l);
/* Closes a link whose time is over. */
void ech_link_look_at_clock(ech_link *l, int64_t now);
/*
 * The library has an answer for the request that is next on this end of a pair, or has written it
 * whole. Heads pass before the answers that come before theirs, so bytes alone don't tell of which
 * request they are. The front's thread.
 */
void ech_link_note_answer(ech_front *f, int far, bool is_done);
/* Whether the client still has something to get. */
bool ech_link_is_busy(const ech_link *l);
/* Closes both sides and puts the link on the front's list of dead ones. */
void ech_link_close(ech_link *l);
void ech_link_free(ech_link *l);
/* Appends a whole answer with an error body, the last on its connection. */
ech_status ech_link_put_error(ech_buf *out, const char *id, int status, const char *code,
                              const char *why);

#endif
