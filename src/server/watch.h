/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices what the HTTP library can't see on a suspended connection: a client that has left, a
 * stream that has been silent for too long (a comment is due), a client that takes nothing.
 *
 * One thread with an epoll set of its own. An exchange is watched from the end of its body to its
 * completion. Its `request`, `gone` and `ping_due` are guarded by the watcher's lock.
 */
#ifndef ECH_SERVER_WATCH_H
#define ECH_SERVER_WATCH_H

#include <pthread.h>

#include "src/server/exchange.h"

typedef struct ech_watch {
    pthread_t thread;
    pthread_mutex_t lock;
    int epoll_fd, wake_fd;
    ech_exchange *head; /* doubly linked through watch_next, watch_prev */
    uint64_t last_serial;
    uint32_t count;
    bool stopping;
    bool is_running;
    int64_t ping_ns, write_timeout_ns;
} ech_watch;

ech_status ech_watch_start(ech_watch *w, uint32_t ping_ms, uint32_t write_timeout_ms,
                           ech_error *err);
/* No exchange may be watched any more. */
void ech_watch_stop(ech_watch *w);
void ech_watch_add(ech_watch *w, ech_exchange *x);
void ech_watch_remove(ech_watch *w, ech_exchange *x);
/* Hands over the engine's request, or cancels it at once when the client has left already. */
void ech_watch_set_request(ech_watch *w, ech_exchange *x, ech_request *request);
/*
 * Wakes the exchange, unless a text thread has it: a connection that is awake may end, and the
 * exchange with it. For who knows that the exchange is there: the engine's notify. Takes no lock,
 * so that the loop never waits for a thread of the engine.
 */
void ech_watch_wake(ech_exchange *x);
/* A text thread is done with it: wakes it, under the lock, so that it can't end in the midst. */
void ech_watch_leave_pool(ech_watch *w, ech_exchange *x);
bool ech_watch_is_gone(ech_watch *w, const ech_exchange *x);
bool ech_watch_take_ping(ech_watch *w, ech_exchange *x);
/* Cancels every watched request; how many exchanges are watched. */
uint32_t ech_watch_cancel_all(ech_watch *w);
uint32_t ech_watch_count(ech_watch *w);

#endif
