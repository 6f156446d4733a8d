/* SPDX-License-Identifier: Apache-2.0 */
/* The text threads; see pool.h. Invariant: tail is the last of the list that begins at head. */
#include "src/server/pool.h"

#include <errno.h>

#include "src/base/error.h"
#include "src/server/state.h"

/*
 * First come, first served. A queue without a bound of its own: it holds exchanges, whose number
 * --max-connections bounds, and each is in it at most once.
 */
static ech_exchange *take(ech_pool *const p)
{
    (void)pthread_mutex_lock(&p->lock);
    while (p->head == NULL && !p->stopping) {
        (void)pthread_cond_wait(&p->ready, &p->lock);
    }
    ech_exchange *const x = p->head;
    if (x != NULL) {
        p->head = x->job_next;
        if (p->head == NULL) p->tail = NULL;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return x;
}

/*
 * While a text thread has an exchange, its connection is suspended and nobody else touches it;
 * after leave_pool the loop may already be freeing it, so x is not looked at again.
 */
static void *pool_main(void *const arg)
{
    ech_pool *const p = arg;
    for (ech_exchange *x; (x = take(p)) != NULL;) {
        x->route->handler(x);
        ech_watch_leave_pool(&x->server->watch, x);
    }
    return NULL;
}

ech_status ech_pool_start(ech_pool *const p, const uint32_t n_threads, ech_error *const err)
{
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->ready, NULL);
    for (uint32_t i = 0; i < n_threads && i < ECH_POOL_MAX; i++) {
        const int rc = pthread_create(&p->threads[i], NULL, pool_main, p);
        if (rc != 0) {
            ech_pool_stop(p);
            errno = rc;
            return ech_fail_errno(err, ECH_EOS, "starting text thread %u", i);
        }
        p->n_threads = i + 1;
    }
    return ECH_OK;
}

void ech_pool_submit(ech_pool *const p, ech_exchange *const x)
{
    (void)pthread_mutex_lock(&p->lock);
    x->job_next = NULL;
    if (p->tail != NULL) {
        p->tail->job_next = x;
    } else {
        p->head = x;
    }
    p->tail = x;
    (void)pthread_cond_signal(&p->ready);
    (void)pthread_mutex_unlock(&p->lock);
}

/* What is queued is still run: each exchange has a connection that waits for its answer. */
void ech_pool_stop(ech_pool *const p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->stopping = true;
    (void)pthread_cond_broadcast(&p->ready);
    (void)pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads; i++) {
        (void)pthread_join(p->threads[i], NULL);
    }
    p->n_threads = 0;
    (void)pthread_cond_destroy(&p->ready);
    (void)pthread_mutex_destroy(&p->lock);
}
