/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher; see watch.h. Invariant: an exchange is in the list exactly while its socket is in
 * the epoll set. Events carry a serial, not a pointer, since an exchange may be gone by the time
 * its event is looked at; a few thousand at most are watched, so finding one is a walk.
 *
 * Why a thread of its own: libmicrohttpd doesn't look at a suspended connection, and a
 * generation may compute for a minute for a client that has left. Nothing here calls into an
 * exchange's own code: it sets flags and wakes.
 */
#include "src/server/watch.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/server/http.h"

#define WAKE_SERIAL 0

/* Not while a text thread has it. Partner: the release in leave_pool, which wakes it then. */
static void wake(ech_exchange *const x)
{
    if (!ech_load_acquire(&x->is_pooled)) ech_http_wake(x);
}

/* Serial 0 is the watcher's own descriptor and is in no list. */
static ech_exchange *find(const ech_watch *const w, const uint64_t serial)
{
    for (ech_exchange *x = w->head; x != NULL; x = x->watch_next) {
        if (x->watch_serial == serial) return x;
    }
    return NULL;
}

/*
 * The client has left: its request ends, and its connection is looked at again. Lock held. Once:
 * `gone` stays. The exchange isn't touched beyond that, its thread reads the flag.
 */
static void client_left(ech_exchange *const x)
{
    if (x->gone) return;
    x->gone = true;
    if (x->request != NULL) ech_request_cancel(x->request);
    wake(x);
}

/*
 * The client sends no more (the front says so by closing one direction of the pair). It may still
 * wait for its answer: a stream gets a comment, which a client that has left answers with a reset.
 * Other answers are probed by the front. What isn't a stream yet may become one: the end is said
 * once, so it is kept. Lock held.
 */
static void client_ended(ech_exchange *const x)
{
    x->has_ended = true;
    if (x->gone || !x->is_watched_stream) return;
    x->ping_due = true;
    wake(x);
}

/*
 * Comments for silent streams, and the end for clients that take nothing. Lock held. Only
 * streams: a whole answer writes nothing for as long as it takes. shutdown() and not close():
 * the descriptor is the library's.
 */
static void look_at_clocks(ech_watch *const w, const int64_t now)
{
    for (ech_exchange *x = w->head; x != NULL; x = x->watch_next) {
        if (!x->is_watched_stream || x->gone) continue;
        if (now - x->last_out_ns > w->write_timeout_ns) {
            (void)shutdown(x->fd, SHUT_RDWR);
            client_left(x);
        } else if (now - x->last_out_ns > w->ping_ns && !x->ping_due) {
            x->ping_due = true;
            wake(x);
        }
    }
}

/*
 * Half a second at most between two looks, which is how exact pings and write timeouts are.
 * Everything under the lock, so that an exchange can't end in the middle.
 */
static void *watch_main(void *const arg)
{
    ech_watch *const w = arg;
    for (;;) {
        struct epoll_event events[64];
        const int n = epoll_wait(w->epoll_fd, events, 64, 500);
        (void)pthread_mutex_lock(&w->lock);
        if (w->stopping) {
            (void)pthread_mutex_unlock(&w->lock);
            return NULL;
        }
        for (int i = 0; i < n; i++) {
            ech_exchange *const x = find(w, events[i].data.u64);
            if (x == NULL) continue;
            if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0) {
                client_left(x);
            } else {
                client_ended(x);
            }
        }
        look_at_clocks(w, ech_now_ns());
        (void)pthread_mutex_unlock(&w->lock);
    }
}

/*
 * After a failure ech_watch_stop() closes what was opened; the server's closing calls it in any
 * case.
 */
ech_status ech_watch_start(ech_watch *const w, const uint32_t ping_ms,
                           const uint32_t write_timeout_ms, ech_error *const err)
{
    w->ping_ns = ping_ms * ECH_NS_PER_MS;
    w->write_timeout_ns = write_timeout_ms * ECH_NS_PER_MS;
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll_fd < 0 || w->wake_fd < 0)
        return ech_fail_errno(err, ECH_EOS, "making the watcher's descriptors");
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = WAKE_SERIAL };
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &ev) != 0) {
        return ech_fail_errno(err, ECH_EOS, "watching the watcher's own descriptor");
    }
    (void)pthread_mutex_init(&w->lock, NULL);
    const int rc = pthread_create(&w->thread, NULL, watch_main, w);
    if (rc != 0) {
        errno = rc;
        return ech_fail_errno(err, ECH_EOS, "starting the watcher");
    }
    w->is_running = true;
    return ECH_OK;
}

void ech_watch_stop(ech_watch *const w)
{
    if (w->is_running) {
        (void)pthread_mutex_lock(&w->lock);
        w->stopping = true;
        (void)pthread_mutex_unlock(&w->lock);
        const ssize_t n = write(w->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
        (void)n; /* the thread looks every half second anyway */
        (void)pthread_join(w->thread, NULL);
        (void)pthread_mutex_destroy(&w->lock);
        w->is_running = false;
    }
    if (w->epoll_fd >= 0) (void)close(w->epoll_fd);
    if (w->wake_fd >= 0) (void)close(w->wake_fd);
    w->epoll_fd = w->wake_fd = -1;
}

/*
 * Loop thread, before the exchange goes to a text thread. Edge-triggered: what a client's end
 * means is asked once.
 */
void ech_watch_add(ech_watch *const w, ech_exchange *const x)
{
    (void)pthread_mutex_lock(&w->lock);
    x->watch_serial = ++w->last_serial;
    x->last_out_ns = ech_now_ns();
    x->watch_next = w->head;
    x->watch_prev = NULL;
    if (w->head != NULL) w->head->watch_prev = x;
    w->head = x;
    w->count++;
    struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLET, .data.u64 = x->watch_serial };
    /* A socket that can't be watched is noticed when it is written to. */
    (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, x->fd, &ev);
    (void)pthread_mutex_unlock(&w->lock);
}

/*
 * Loop thread. After it the watcher can't reach the exchange; one that never was in the list
 * passes.
 */
void ech_watch_remove(ech_watch *const w, ech_exchange *const x)
{
    (void)pthread_mutex_lock(&w->lock);
    if (x->watch_serial != 0) {
        (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, x->fd, NULL);
        if (x->watch_prev != NULL) x->watch_prev->watch_next = x->watch_next;
        if (x->watch_next != NULL) x->watch_next->watch_prev = x->watch_prev;
        if (w->head == x) w->head = x->watch_next;
        x->watch_serial = 0;
        w->count--;
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/*
 * Text thread. The client may have left while its prompt was made: then nobody else would cancel.
 * is_stream is this thread's until the loop gets the exchange; the watcher has its own.
 */
void ech_watch_set_request(ech_watch *const w, ech_exchange *const x, ech_request *const request)
{
    (void)pthread_mutex_lock(&w->lock);
    x->request = request;
    x->is_watched_stream = x->is_stream;
    x->ping_due = x->is_stream && x->has_ended;
    if (x->gone && request != NULL) ech_request_cancel(request);
    (void)pthread_mutex_unlock(&w->lock);
}

void ech_watch_wake(ech_exchange *const x)
{
    wake(x);
}

/*
 * The last touch of a text thread: the loop may free the exchange as soon as the lock is given
 * back.
 */
void ech_watch_leave_pool(ech_watch *const w, ech_exchange *const x)
{
    (void)pthread_mutex_lock(&w->lock);
    ech_store_release(&x->is_pooled, false);
    wake(x);
    (void)pthread_mutex_unlock(&w->lock);
}

bool ech_watch_is_gone(ech_watch *const w, const ech_exchange *const x)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool gone = x->gone;
    (void)pthread_mutex_unlock(&w->lock);
    return gone;
}

/*
 * Called with every block that is asked for, so that it is the clock of a stream's last sign of
 * life as well.
 */
bool ech_watch_take_ping(ech_watch *const w, ech_exchange *const x)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool due = x->ping_due;
    x->ping_due = false;
    x->last_out_ns = ech_now_ns();
    (void)pthread_mutex_unlock(&w->lock);
    return due;
}

/*
 * For a drain, which calls it until nobody is left: a request that is submitted meanwhile is met
 * in the next round.
 */
uint32_t ech_watch_cancel_all(ech_watch *const w)
{
    (void)pthread_mutex_lock(&w->lock);
    for (ech_exchange *x = w->head; x != NULL; x = x->watch_next) {
        if (x->request != NULL) ech_request_cancel(x->request);
        wake(x);
    }
    const uint32_t n = w->count;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

uint32_t ech_watch_count(ech_watch *const w)
{
    (void)pthread_mutex_lock(&w->lock);
    const uint32_t n = w->count;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}
