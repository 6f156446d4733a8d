/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front: one loop thread that accepts clients on every listening socket, carries bytes between
 * them and the HTTP library through the framing guard (link.h), and runs the library.
 */
#ifndef ECH_SERVER_FRONT_H
#define ECH_SERVER_FRONT_H

#include <microhttpd.h>
#include <pthread.h>

#include "echelon/server.h"
#include "src/server/guard.h"
#include "src/server/tls.h"

#define ECH_MAX_LISTENERS 16
/* What the loop reads or writes at a time. */
#define ECH_FRONT_BLOCK 16384
/* Bytes a second of a body at least, as Apache's mod_reqtimeout has it: a bad modem does more. */
#define ECH_FRONT_MIN_PACE 500

struct ech_link;

typedef struct ech_listener {
    int fd; /* -1: closed */
    bool is_tls;
} ech_listener;

typedef struct ech_front {
    ech_server *server;
    struct MHD_Daemon *daemon;
    ech_tls *tls; /* NULL: none; borrowed */
    ech_guard_limits limits;
    uint32_t max_links;
    int64_t head_ns, idle_ns, write_ns; /* limits of a client's silence */
    ech_listener listeners[ECH_MAX_LISTENERS];
    size_t n_listeners;
    int epoll_fd, wake_fd;
    pthread_t thread;
    bool is_running;
    uint32_t stopping; /* atomic: 1 no new clients, 2 end */
    struct ech_link *head, *again, *dead;
    struct ech_link **by_pair; /* [n_by_pair] by the library's end of its pair; NULL: none */
    size_t n_by_pair;
    uint32_t n_links; /* atomic for readers elsewhere */
    bool is_deaf;     /* out of descriptors: the listeners rest until the next look at the clocks */
    char block[ECH_FRONT_BLOCK];
} ech_front;

/* Starts the thread. On failure the listening sockets are still the caller's. */
ech_status ech_front_start(ech_front *f, ech_error *err);
/* The loop runs the library soon. Any thread. */
void ech_front_wake(ech_front *f);
/* Closes the listening sockets; clients that are there stay. Any thread. */
void ech_front_quiesce(ech_front *f);
/* Delivers what is left (a second at most), closes every client, ends the thread. */
void ech_front_stop(ech_front *f);

#endif
