/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop thread; see front.h. It waits in one place, for: a listening socket, a client, the
 * other end of a client's pair, the library's own epoll set, a word from another thread. After
 * each wait the library runs once; what it wrote is carried on by the next.
 *
 * Invariant: nothing here blocks but epoll_wait(). The library's set is an element of ours, so
 * that one wait serves both. Ownership: the front has the listening sockets from
 * ech_front_start() on and every link in its list; all of it is touched by this thread only, but
 * for the words that are atomic.
 */
#include "src/server/front.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/server/link.h"
#include "src/server/reply.h"

/* What one round takes at most; the rest is there in the next. */
#define MAX_EVENTS  128
#define MAX_ACCEPTS 64
#define CLOCK_MS    500
#define LAST_WORDS  (1000 * ECH_NS_PER_MS)

/* What epoll hands back; links are pointers, and those are larger. */
enum {
    TAG_WAKE = 1,
    TAG_LIBRARY = 2,
    TAG_LISTENER = 16,
    TAG_END = TAG_LISTENER + ECH_MAX_LISTENERS
};

/* ---- clients -------------------------------------------------------------------------------- */

/*
 * The events are set to none instead of closing: the kernel keeps the clients in the backlog
 * until there are descriptors again. Level-triggered, so nothing is missed.
 */
static void listen_again(ech_front *const f, const bool wanted)
{
    f->is_deaf = !wanted;
    for (size_t i = 0; i < f->n_listeners; i++) {
        struct epoll_event ev = { .events = wanted ? EPOLLIN : 0, .data.u64 = TAG_LISTENER + i };
        if (f->listeners[i].fd >= 0)
            (void)epoll_ctl(f->epoll_fd, EPOLL_CTL_MOD, f->listeners[i].fd, &ev);
    }
}

/*
 * An answer is worth more than a closed connection: SDKs retry a 503. It must not wait for the
 * client, so it is sent or not; a fresh socket's buffer has room.
 */
static void turn_away(const int fd)
{
    char id[ECH_REQUEST_ID_LEN + 1];
    ech_buf out = { 0 };
    ech_request_id_make(id);
    if (ech_link_put_error(&out, id, 503, "too_many_connections",
                           "there are too many connections (--max-connections)") == ECH_OK)
        (void)send(fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    ech_buf_fini(&out);
}

/*
 * A TLS client can't be told without a handshake, which is the very work that is to be saved: it
 * is closed. Nagle's algorithm would hold a token's few bytes back until the client has
 * acknowledged those before.
 */
static void add_link(ech_front *const f, const int fd, const bool is_tls)
{
    if (f->n_links >= f->max_links) {
        if (!is_tls) turn_away(fd);
        (void)close(fd);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    ech_link *const l = ech_link_new(f, fd, is_tls);
    if (l == NULL) return;
    l->next = f->head;
    if (f->head != NULL) f->head->prev = l;
    f->head = l;
    ech_store_relaxed(&f->n_links, f->n_links + 1);
}

/*
 * Takes the sockets in turns of MAX_ACCEPTS, so that a flood of clients doesn't starve those
 * that are there. Out of descriptors the listeners rest until the next look at the clocks:
 * level-triggered, they would spin. ECONNABORTED: that client has left again, the next may be
 * good.
 */
static void accept_clients(ech_front *const f, const ech_listener *const from)
{
    for (int i = 0; i < MAX_ACCEPTS && from->fd >= 0; i++) {
        const int fd = accept4(from->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            add_link(f, fd, from->is_tls);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            ech_log(ECH_LOG_WARN, "accepting a client: %s; raise the limit (ulimit -n)",
                    strerror(errno));
            listen_again(f, false);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

/* n_links is written by this thread alone; the store is atomic for those who read it. */
static void unlink_one(ech_front *const f, ech_link *const l)
{
    if (l->prev != NULL) l->prev->next = l->next;
    if (l->next != NULL) l->next->prev = l->prev;
    if (f->head == l) f->head = l->next;
    ech_store_relaxed(&f->n_links, f->n_links - 1);
}

/* Events of this round may still name a link that died in it: it is freed after the round. */
static void free_dead(ech_front *const f)
{
    ech_link *l = f->dead;
    f->dead = NULL;
    while (l != NULL) {
        ech_link *const next = l->dead;
        if (l->is_again) { /* still in that list: the next round takes it out */
            l->dead = f->dead;
            f->dead = l;
        } else {
            unlink_one(f, l);
            ech_link_free(l);
        }
        l = next;
    }
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* A closed socket leaves epoll's set; clients in its backlog get a reset. */
static void close_listeners(ech_front *const f)
{
    for (size_t i = 0; i < f->n_listeners; i++) {
        if (f->listeners[i].fd >= 0) (void)close(f->listeners[i].fd);
        f->listeners[i].fd = -1;
    }
}

/*
 * A tag below TAG_END is no pointer: the first page isn't mapped. The library's tag does
 * nothing, MHD_run() follows in any case.
 */
static void take_event(ech_front *const f, const struct epoll_event *const ev)
{
    const uint64_t tag = ev->data.u64;
    if (tag >= TAG_END) {
        ech_link *const l = (void *)(uintptr_t)(tag & ~UINT64_C(1));
        ech_link_on_event(l, (tag & 1) != 0, ev->events);
    } else if (tag >= TAG_LISTENER) {
        accept_clients(f, &f->listeners[tag - TAG_LISTENER]);
    } else if (tag == TAG_WAKE) {
        uint64_t n;
        if (read(f->wake_fd, &n, sizeof n) < 0) return; /* it was only a word to look up */
    }
}

/*
 * The list is taken as a whole: a link that has again too much to do is put into the next
 * turn's.
 */
static void go_on(ech_front *const f)
{
    ech_link *l = f->again;
    f->again = NULL;
    while (l != NULL) {
        ech_link *const next = l->again;
        l->is_again = false;
        ech_link_pump(l);
        l = next;
    }
}

/*
 * Twice a second over all links: limits are seconds, and a heap of timers would cost more than
 * the walk.
 */
static void look_at_clocks(ech_front *const f, int64_t *const last_ns)
{
    const int64_t now = ech_now_ns();
    if (now - *last_ns < CLOCK_MS * ECH_NS_PER_MS) return;
    *last_ns = now;
    if (f->is_deaf) listen_again(f, true);
    for (ech_link *l = f->head; l != NULL; l = l->next) {
        if (!l->is_dead) ech_link_look_at_clock(l, now);
    }
}

/*
 * Not longer than the library wants, nor than the clocks; not at all while links have more to
 * do.
 */
static int patience(const ech_front *const f)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (f->again != NULL) return 0;
    if (MHD_get_timeout(f->daemon, &ms) != MHD_YES || ms > CLOCK_MS) return CLOCK_MS;
    return (int)ms;
}

/*
 * One round; how many events there were. The order: clients' bytes go to the library, it runs,
 * then the dead are freed. What it wrote makes the pairs readable, which the next wait reports
 * at once.
 */
static int run_once(ech_front *const f, const int timeout_ms, int64_t *const last_ns)
{
    struct epoll_event events[MAX_EVENTS];
    const int n = epoll_wait(f->epoll_fd, events, MAX_EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        take_event(f, &events[i]);
    }
    go_on(f);
    (void)MHD_run(f->daemon);
    look_at_clocks(f, last_ns);
    free_dead(f);
    return n;
}

static bool has_last_words(const ech_front *const f)
{
    for (const ech_link *l = f->head; l != NULL; l = l->next) {
        if (!l->is_dead && ech_link_is_busy(l)) return true;
    }
    return false;
}

/*
 * At the end what is written is still delivered: error frames of requests that were cancelled,
 * last chunks.
 */
static void *front_main(void *const arg)
{
    ech_front *const f = arg;
    int64_t last_ns = ech_now_ns();
    uint32_t stopping;
    /* Partner: the releases in quiesce and stop. */
    while ((stopping = ech_load_acquire(&f->stopping)) < 2) {
        if (stopping == 1) close_listeners(f);
        (void)run_once(f, patience(f), &last_ns);
    }
    close_listeners(f);
    const int64_t end = ech_now_ns() + LAST_WORDS;
    while (ech_now_ns() < end && (run_once(f, 10, &last_ns) > 0 || has_last_words(f))) {
    }
    for (ech_link *l = f->head; l != NULL; l = l->next) {
        ech_link_close(l);
    }
    go_on(f);
    free_dead(f);
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------ */

static bool add(const ech_front *const f, const int fd, const uint64_t tag)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = tag };
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* Listeners are level-triggered, unlike links: what a round didn't accept is reported again. */
static bool add_all(const ech_front *const f)
{
    const union MHD_DaemonInfo *const info =
        MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || !add(f, info->epoll_fd, TAG_LIBRARY) || !add(f, f->wake_fd, TAG_WAKE))
        return false;
    for (size_t i = 0; i < f->n_listeners; i++) {
        if (!add(f, f->listeners[i].fd, TAG_LISTENER + i)) return false;
    }
    return true;
}

static void close_own(ech_front *const f)
{
    if (f->epoll_fd >= 0) (void)close(f->epoll_fd);
    if (f->wake_fd >= 0) (void)close(f->wake_fd);
    f->epoll_fd = f->wake_fd = -1;
}

/*
 * After a failure everything that was opened here is closed, and the listening sockets are the
 * caller's again.
 */
ech_status ech_front_start(ech_front *const f, ech_error *const err)
{
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->epoll_fd < 0 || f->wake_fd < 0 || !add_all(f)) {
        const ech_status rc = ech_fail_errno(err, ECH_EOS, "making the loop's descriptors");
        close_own(f);
        return rc;
    }
    const int rc = pthread_create(&f->thread, NULL, front_main, f);
    if (rc != 0) {
        close_own(f);
        errno = rc;
        return ech_fail_errno(err, ECH_EOS, "starting the loop thread");
    }
    f->is_running = true;
    return ECH_OK;
}

void ech_front_wake(ech_front *const f)
{
    const ssize_t n = write(f->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
    (void)n; /* the thread looks every half second anyway */
}

/* Never backwards: a quiesce after a stop changes nothing. */
static void tell(ech_front *const f, const uint32_t word)
{
    if (ech_load_relaxed(&f->stopping) < word) ech_store_release(&f->stopping, word);
    ech_front_wake(f);
}

void ech_front_quiesce(ech_front *const f)
{
    if (f->is_running) tell(f, 1);
}

/* The caller frees the front afterwards: the thread has ended by then. */
void ech_front_stop(ech_front *const f)
{
    if (!f->is_running) return;
    tell(f, 2);
    (void)pthread_join(f->thread, NULL);
    f->is_running = false;
    close_own(f);
}
