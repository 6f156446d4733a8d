/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text threads: they run handlers that parse, tokenise and submit, so that the loop threads
 * never do. The queue is a list of exchanges, each in it at most once: bounded by the connections.
 */
#ifndef ECH_SERVER_POOL_H
#define ECH_SERVER_POOL_H

#include <pthread.h>

#include "src/server/exchange.h"

#define ECH_POOL_MAX 16

typedef struct ech_pool {
    pthread_t threads[ECH_POOL_MAX];
    uint32_t n_threads;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    ech_exchange *head, *tail;
    bool stopping;
} ech_pool;

ech_status ech_pool_start(ech_pool *p, uint32_t n_threads, ech_error *err);
/* Runs x->route->handler(x) on a text thread, then wakes the exchange. */
void ech_pool_submit(ech_pool *p, ech_exchange *x);
/* Finishes what is queued, then joins. */
void ech_pool_stop(ech_pool *p);

#endif
