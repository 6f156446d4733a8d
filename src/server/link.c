/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's connection; see link.h. Runs on the front's thread alone. Invariant: a side whose
 * flag says that it may be read or written has not said EAGAIN since; epoll reports each change
 * once, so nothing else would wake the link.
 *
 * Bytes move in two directions; what waits is bounded in both: a head and MAX_WAITING to the
 * library, a block to the client.
 *
 *     client → in → [guard] → pair → library
 *     client ← out ←          pair ← library
 *
 * Ownership: the link has the client's socket and its own end of the pair; the other end is the
 * library's from open_pair() on. A link that died stays allocated until the round is over, since
 * epoll's events of this round may still name it.
 */
#include "src/server/link.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/server/audit.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/*
 * Rounds before others get their turn. A client that sends as fast as we read could hold the
 * loop otherwise.
 */
#define MAX_ROUNDS 8
/* Bytes of a body that wait for the library. */
#define MAX_WAITING (4 * ECH_FRONT_BLOCK)
/* What the pair's buffers hold each way: what a slow client can make the server keep. */
#define PAIR_BUFFER 65536
#define LINGER_NS   (2000 * ECH_NS_PER_MS) /* to read a last answer and close */

/* ---- sockets -------------------------------------------------------------------------------- */

/*
 * The low bit of what epoll hands back says which side it is. Edge-triggered, and for reading
 * and writing at once: no call is needed to change what is waited for.
 */
static bool watch(ech_link *const l, const int fd, const bool is_pair)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                              .data.u64 = (uint64_t)(uintptr_t)l | is_pair };
    return epoll_ctl(l->front->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* A fresh socket can be written to; whether it can be read epoll says. */
ech_link *ech_link_new(ech_front *const front, const int client, const bool is_tls)
{
    ech_link *const l = calloc(1, sizeof *l);
    if (l == NULL) {
        (void)close(client);
        return NULL;
    }
    l->front = front;
    l->client = client;
    l->pair = l->far = -1;
    l->since_ns = ech_now_ns();
    l->client_out = true;
    l->is_shaking = is_tls;
    if (is_tls) l->tls = ech_tls_session_new(front->tls, client);
    if ((is_tls && l->tls == NULL) || !watch(l, client, false)) {
        ech_link_free(l);
        return NULL;
    }
    return l;
}

/* A number that the kernel gives anew is of another pair: the library has closed the one before. */
static bool set_far(ech_link *const l, const int far)
{
    ech_front *const f = l->front;
    const size_t n = (size_t)far + 1;
    if (n > f->n_by_pair) {
        struct ech_link **const more = realloc(f->by_pair, 2 * n * sizeof *more);
        if (more == NULL) return false;
        memset(more + f->n_by_pair, 0, (2 * n - f->n_by_pair) * sizeof *more);
        f->by_pair = more;
        f->n_by_pair = 2 * n;
    }
    f->by_pair[far] = l;
    l->far = far;
    return true;
}

static void forget_far(ech_link *const l)
{
    if (l->far >= 0 && l->front->by_pair[l->far] == l) l->front->by_pair[l->far] = NULL;
    l->far = -1;
}

void ech_link_note_answer(ech_front *const f, const int far, const bool is_done)
{
    ech_link *const l = far >= 0 && (size_t)far < f->n_by_pair ? f->by_pair[far] : NULL;
    if (l == NULL) return;
    l->n_begun += !is_done;
    l->n_done += is_done;
}

/*
 * The library gets its end of a new pair. The address is made up: the library wants one, and
 * what it would do with it (limits by address) isn't used.
 */
static bool open_pair(ech_link *const l)
{
    int fds[2];
    static const struct sockaddr_un NOBODY = { .sun_family = AF_UNIX };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return false;
    for (size_t i = 0; i < 2; i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){ PAIR_BUFFER }, sizeof(int));
    }
    l->pair = fds[0];
    l->pair_out = true;
    if (!watch(l, fds[0], true) || !set_far(l, fds[1])) {
        (void)close(fds[1]);
        return false;
    }
    /* It closes its end itself, on failure too. */
    return MHD_add_connection(l->front->daemon, fds[1], (const struct sockaddr *)&NOBODY,
                              sizeof NOBODY) == MHD_YES;
}

/* Closing takes a socket out of epoll's set, too: neither end was duplicated. */
static void close_sockets(ech_link *const l)
{
    forget_far(l);
    if (l->client >= 0) (void)close(l->client);
    if (l->pair >= 0) (void)close(l->pair);
    l->client = l->pair = -1;
}

/*
 * May be called again, and from deep inside a round: it only marks and closes; the front frees.
 */
void ech_link_close(ech_link *const l)
{
    if (l->is_dead) return;
    l->is_dead = true;
    close_sockets(l);
    l->dead = l->front->dead;
    l->front->dead = l;
}

void ech_link_free(ech_link *const l)
{
    close_sockets(l);
    ech_tls_session_free(&l->tls);
    ech_buf_fini(&l->in);
    ech_buf_fini(&l->out);
    free(l);
}

static ssize_t client_recv(ech_link *const l, void *const buf, const size_t len)
{
    return l->tls != NULL ? ech_tls_recv(l->tls, buf, len) : recv(l->client, buf, len, 0);
}

static ssize_t client_send(ech_link *const l, const void *const buf, const size_t len)
{
    return l->tls != NULL ? ech_tls_send(l->tls, buf, len)
                          : send(l->client, buf, len, MSG_NOSIGNAL);
}

/* ---- to the client -------------------------------------------------------------------------- */

/* Without memory the answer can't be delivered whole, and half of one must not look whole. */
static bool append_out(ech_link *const l, const void *const data, const size_t len)
{
    if (ech_buf_append(&l->out, data, len) == ECH_OK) return true;
    ech_link_close(l);
    return false;
}

/*
 * Sends what waits; true when something went. The clock starts anew with each byte that goes: a
 * slow client is no dead one. The buffer is given back as soon as it is empty; thousands of idle
 * streams would keep it otherwise.
 */
static bool flush_out(ech_link *const l)
{
    const size_t left = l->out.len - l->out_sent;
    if (left == 0 || !l->client_out || l->is_shaking || l->is_dead) return false;
    const ssize_t n = client_send(l, l->out.data + l->out_sent, left);
    if (n < 0) {
        l->client_out = false;
        if (errno != EAGAIN && errno != EINTR) ech_link_close(l);
        return false;
    }
    l->since_ns = ech_now_ns();
    l->out_sent += (size_t)n;
    if (l->out_sent == l->out.len) {
        ech_buf_fini(&l->out);
        l->out_sent = 0;
    }
    return true;
}

static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";

/*
 * One block of the library's, once the last one is gone. Nothing is read while something waits
 * to be sent: so the library's writes stop, then the stream's pump, then the engine's row. A 100
 * is no answer; nothing else tells it from one but its bytes, which the library writes alone.
 */
static bool read_pair(ech_link *const l)
{
    if (!l->pair_in || l->pair < 0 || l->out.len > 0 || l->is_dead) return false;
    const ssize_t n = recv(l->pair, l->front->block, sizeof l->front->block, 0);
    if (n > 0) {
        l->since_ns = ech_now_ns();
        if (n != sizeof CONTINUE - 1 || memcmp(l->front->block, CONTINUE, (size_t)n) != 0)
            l->is_answered = true;
        return append_out(l, l->front->block, (size_t)n);
    }
    l->pair_in = false;
    /* A reset: it closed without reading what was sent to it. */
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    l->pair_ended = true;
    return true;
}

/* ---- from the client ------------------------------------------------------------------------ */

/*
 * Everything up to n_passed was checked; the rest waits for its end. A new head means that what
 * was answered before is over.
 */
static void run_guard(ech_link *const l)
{
    const uint64_t n_heads = l->guard.n_heads;
    l->n_passed += ech_guard_pass(&l->guard, &l->front->limits, l->in.data + l->n_passed,
                                  l->in.len - l->n_passed);
    if (l->guard.n_heads != n_heads) l->is_answered = false;
    if (l->n_passed > 0 && l->pair < 0 && !open_pair(l)) ech_link_close(l);
}

/*
 * The clock of what the client sends. A head has --header-timeout from its first byte on, however
 * it trickles. What follows it, body, chunks and trailers, may fall behind ECH_FRONT_MIN_PACE by
 * as much: each byte buys its time, and no more than that is ever saved up, so that a large body
 * which came fast can't be left hanging for hours. Bytes count as they come, the lines of chunks
 * too: what a client must spend is what bounds it.
 */
typedef struct sending {
    enum { SENDS_NOTHING, SENDS_HEAD, SENDS_BODY } what;
    uint64_t n_heads;
} sending;

static sending sending_of(const ech_link *const l)
{
    const ech_guard *const g = &l->guard;
    const bool is_head = g->state == ECH_GUARD_REQUEST_LINE || g->state == ECH_GUARD_HEADER;
    const bool is_over = l->client_ended || l->is_deaf || g->state == ECH_GUARD_REFUSED;
    return (sending){ .what = is_over                   ? SENDS_NOTHING
                              : !is_head                ? SENDS_BODY
                              : l->in.len > l->n_passed ? SENDS_HEAD
                                                        : SENDS_NOTHING,
                      .n_heads = g->n_heads };
}

/* After a read of n bytes; `before` is what was being sent until then. */
static void run_clock(ech_link *const l, const sending before, const size_t n)
{
    const sending now = sending_of(l);
    const int64_t latest = ech_now_ns() + l->front->head_ns;
    if (now.what != before.what || now.n_heads != before.n_heads) {
        l->due_ns = latest;
    } else if (now.what == SENDS_BODY) {
        l->due_ns += (int64_t)n * (1000 * ECH_NS_PER_MS / ECH_FRONT_MIN_PACE);
        if (l->due_ns > latest) l->due_ns = latest;
    }
}

/*
 * Not after a refusal, nor once the library has closed, nor while it doesn't take what was
 * passed: what isn't read here fills the kernel's buffer and stops the client.
 */
static bool read_client(ech_link *const l)
{
    if (!l->client_in || l->is_shaking || l->client_ended || l->is_dead || l->is_deaf ||
        l->guard.state == ECH_GUARD_REFUSED || l->n_passed > MAX_WAITING)
        return false;
    const ssize_t n = client_recv(l, l->front->block, sizeof l->front->block);
    if (n < 0) {
        l->client_in = false;
        if (errno != EAGAIN && errno != EINTR) ech_link_close(l);
        return false;
    }
    if (n == 0) {
        l->client_in = false;
        l->client_ended = true;
        return true;
    }
    const sending before = sending_of(l);
    if (ech_buf_append(&l->in, l->front->block, (size_t)n) != ECH_OK) {
        ech_link_close(l);
        return false;
    }
    run_guard(l);
    run_clock(l, before, (size_t)n);
    return true;
}

/* What is left moves to the front of the buffer; at most MAX_WAITING and a head. */
static bool write_pair(ech_link *const l)
{
    if (l->n_passed == 0 || !l->pair_out || l->is_dead) return false;
    const ssize_t n = send(l->pair, l->in.data, l->n_passed, MSG_NOSIGNAL);
    if (n < 0) {
        l->pair_out = false;
        if (errno == EAGAIN || errno == EINTR) return false;
        /* The library is done with this client: it has answered before the body was there. */
        l->n_passed = 0;
        l->is_deaf = true;
        ech_buf_fini(&l->in);
        return true;
    }
    l->n_passed -= (size_t)n;
    l->in.len -= (size_t)n;
    l->since_ns = ech_now_ns();
    if (l->in.len > 0) {
        memmove(l->in.data, l->in.data + n, l->in.len);
    } else {
        ech_buf_fini(&l->in);
    }
    return true;
}

/* ---- ends ----------------------------------------------------------------------------------- */

/*
 * Has the client left, or does it only send no more? A closed socket answers this with a reset.
 * Called once, when the client's end of sending has been passed on. An interim answer is allowed
 * before any final one; between two answers, or in the middle of one, it would be garbage.
 */
static void probe(ech_link *const l)
{
    if (l->is_answered || l->out.len > 0 || l->guard.n_heads == 0) return;
    /* HTTP/1.0 has no interim answers: there, who sends no more counts as gone. */
    if (l->guard.is_http10) {
        ech_link_close(l);
        return;
    }
    (void)append_out(l, CONTINUE, sizeof CONTINUE - 1);
}

/* Bytes that the library hasn't read yet. */
static bool has_unread(const ech_link *const l)
{
    int n = 0;
    return ioctl(l->pair, SIOCOUTQ, &n) == 0 && n > 0;
}

/*
 * Nothing more passes: the library hears of it once it has read all that did, which epoll tells
 * (there is room again). Not before: it reads once per event, so that an end which comes with the
 * last bytes would never be read.
 */
static bool tell_pair(ech_link *const l)
{
    const bool is_over = l->client_ended || l->guard.state == ECH_GUARD_REFUSED;
    if (!is_over || l->n_passed > 0 || l->pair_told || l->is_dead) return false;
    if (l->pair >= 0 && has_unread(l)) return false;
    l->pair_told = true;
    if (l->pair < 0) {
        l->pair_ended = true;
        return true;
    }
    (void)shutdown(l->pair, SHUT_WR);
    if (l->client_ended) probe(l);
    return true;
}

/*
 * For those statuses that never come from the library. Clients don't read the words, people with
 * curl do.
 */
static const char *reason_of(const int status)
{
    switch (status) {
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

/*
 * The same body as every other error has, in OpenAI's form: clients parse it without knowing
 * that no route was reached.
 */
ech_status ech_link_put_error(ech_buf *const out, const char *const id, const int status,
                              const char *const code, const char *const why)
{
    ech_buf body = { 0 };
    ech_status rc = ech_error_object(&body, status, code, NULL, why);
    if (rc == ECH_OK) {
        rc = ech_buf_printf(out,
                            "HTTP/1.1 %d %s\r\nx-request-id: %s\r\nContent-Type: "
                            "application/json\r\n%sConnection: close\r\nContent-Length: "
                            "%zu\r\n\r\n",
                            status, reason_of(status), id,
                            status == 503 ? "retry-after: 1\r\n" : "", body.len);
    }
    if (rc == ECH_OK) rc = ech_buf_append(out, body.data, body.len);
    ech_buf_fini(&body);
    return rc;
}

/*
 * The guard's own answer, after whatever answers came before it. The library knows nothing of
 * this request, so that counting and logging happen here.
 */
static void put_refusal(ech_link *const l)
{
    const ech_guard *const g = &l->guard;
    char id[ECH_REQUEST_ID_LEN + 1];
    ech_request_id_make(id);
    const ech_status rc = ech_link_put_error(&l->out, id, g->status, g->code, g->why);
    ech_audit_write_refused(l->front->server, id, g->status, g->code);
    if (rc != ECH_OK) ech_link_close(l);
}

/*
 * A body was refused, and the answers before its own are whole: then the refusal is its answer. In
 * the middle of an answered body the answer was the last word, behind one that was cut nothing is
 * read.
 */
static bool is_next_in_turn(const ech_link *const l)
{
    return l->n_begun == l->n_done && l->n_done + 1 == l->guard.n_heads;
}

/*
 * The library has closed and all it wrote is sent: a refusal is due, then the end. The order on
 * the wire is that of the requests: answers that were due before the bad head come first, then
 * the refusal, then the end.
 */
static bool finish(ech_link *const l)
{
    if (!l->pair_ended || l->out.len > 0 || l->is_lingering || l->is_dead) return false;
    if (l->guard.state == ECH_GUARD_REFUSED && !l->has_refused &&
        (l->guard.was_in_head || is_next_in_turn(l))) {
        l->has_refused = true;
        put_refusal(l);
        return true;
    }
    if (l->client_ended) {
        ech_link_close(l);
        return true;
    }
    /* A close with bytes unread would be a reset, which may overtake the answer. */
    if (l->tls != NULL && !l->is_shaking) ech_tls_bye(l->tls);
    (void)shutdown(l->client, SHUT_WR);
    l->is_lingering = true;
    l->client_in = true;
    l->since_ns = ech_now_ns();
    return true;
}

/* Read and thrown away, with TLS without decrypting: only the end matters now. */
static bool discard(ech_link *const l)
{
    if (!l->is_lingering || !l->client_in || l->is_dead) return false;
    const ssize_t n = recv(l->client, l->front->block, sizeof l->front->block, 0);
    if (n > 0) return true;
    l->client_in = false;
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) ech_link_close(l);
    return false;
}

/* A handshake wants now to read, now to write; after EAGAIN either event makes it go on. */
static bool shake(ech_link *const l)
{
    if (!l->is_shaking || l->is_dead || !(l->client_in || l->client_out)) return false;
    if (ech_tls_handshake(l->tls) == 0) {
        l->is_shaking = false;
        l->client_in = l->client_out = true;
        return true;
    }
    l->client_in = l->client_out = false;
    if (errno != EAGAIN) ech_link_close(l);
    return false;
}

/* ---- the loop's calls ----------------------------------------------------------------------- */

/*
 * In the order of a request's way through: so a short request reaches the library, and its
 * answer the client, in few rounds. Each step says whether it moved something; none waits.
 */
static bool work(ech_link *const l)
{
    bool moved = shake(l);
    moved |= read_client(l);
    moved |= write_pair(l);
    moved |= tell_pair(l);
    moved |= read_pair(l);
    moved |= flush_out(l);
    moved |= finish(l);
    moved |= discard(l);
    return moved;
}

/*
 * After MAX_ROUNDS the link is put at the front's list of those that go on in the next turn:
 * with edge-triggered events nothing else would call it.
 */
void ech_link_pump(ech_link *const l)
{
    for (int i = 0; i < MAX_ROUNDS; i++) {
        if (!work(l)) return;
    }
    if (l->is_again || l->is_dead) return;
    l->is_again = true;
    l->again = l->front->again;
    l->front->again = l;
}

/* Flags are only set here; the steps clear them when a call says EAGAIN. */
void ech_link_on_event(ech_link *const l, const bool is_pair, const uint32_t events)
{
    if (l->is_dead) return;
    if (is_pair) {
        l->pair_in |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        l->pair_out |= (events & EPOLLOUT) != 0;
    } else if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        /* Both directions are over: nobody is there to be answered. */
        ech_link_close(l);
        return;
    } else {
        l->client_in |= (events & (EPOLLIN | EPOLLRDHUP)) != 0;
        l->client_out |= (events & EPOLLOUT) != 0;
    }
    ech_link_pump(l);
}

/* What the front waits for at its end, a second at most. */
bool ech_link_is_busy(const ech_link *const l)
{
    return l->out.len > 0 || (l->pair >= 0 && l->pair_in);
}

/*
 * A client that doesn't finish what it began is told so; one that takes nothing is cut off.
 * Which limit runs depends on what is waited for:
 *
 *     linger            everything is sent, the client hasn't closed    close
 *     write timeout     the client takes nothing                        close
 *     header timeout    a head is half there, a body comes too slowly   408, then close
 *     header timeout    TLS hands are shaken                            close
 *     idle timeout      nothing was ever asked                          close
 *
 * Between requests of one connection the library's own timeout runs. A request whose bytes the
 * library hasn't read waits for the answer to the one before it, maybe for its own 100: that is
 * not the client's fault. Asked before the pump, after which fresh bytes would look the same.
 */
void ech_link_look_at_clock(ech_link *const l, const int64_t now)
{
    const ech_front *const f = l->front;
    const int64_t quiet = now - l->since_ns;
    if (l->n_passed > 0 || (l->pair >= 0 && has_unread(l))) l->due_ns = now + f->head_ns;
    ech_link_pump(l); /* whatever an event should have told */
    if (l->is_dead) return;
    if (l->is_lingering) {
        if (quiet > LINGER_NS) ech_link_close(l);
    } else if (l->out.len > 0) {
        if (quiet > f->write_ns) ech_link_close(l);
    } else if (sending_of(l).what != SENDS_NOTHING) {
        if (now <= l->due_ns) return;
        ech_guard_time_out(&l->guard);
        ech_link_pump(l);
    } else if (l->pair < 0 && quiet > (l->is_shaking ? f->head_ns : f->idle_ns)) {
        ech_link_close(l);
    }
}
