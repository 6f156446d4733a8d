/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zygote's process and the worker's requests to it: see zygote.h. The zygote allocates nothing
 * and ends only by _exit.
 */
#include "src/runtime/zygote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/process.h"
#include "src/runtime/serve.h"

enum { SPAWN = 1, REAP, QUIT };

typedef struct request {
    uint32_t op, child, generation, reserved;
} request;

typedef struct zygote {
    ech_worker *worker;
    int socket, worker_pidfd;
    pid_t pids[ECH_MAX_CHILDREN]; /* 0: none, or reaped */
    int pidfds[ECH_MAX_CHILDREN]; /* -1: none, or its end was published */
    uint32_t generations[ECH_MAX_CHILDREN];
    int64_t orphans_until; /* descendants of a dead worker child may still arrive */
} zygote;

/* ---- In the zygote -----------------------------------------------------------------------------
 */

static void publish(zygote *const z, const uint32_t child, const uint32_t phase, const int status)
{
    ech_shared *const s = z->worker->shared;
    ech_proc *const p = &s->procs[child];
    p->pid = z->pids[child];
    p->wait_status = status;
    /* Partner: the acquire load in events.c. Generation and phase change in one store. */
    ech_store_release(&p->tag, ECH_PROC_TAG(z->generations[child], phase));
    ech_fetch_add(&s->zygote_events, 1);
    ech_shared_ring(s);
}

static void close_all(const zygote *const z)
{
    close(z->socket);
    close(z->worker_pidfd);
    for (uint32_t i = 0; i < ECH_MAX_CHILDREN; i++) {
        if (z->pidfds[i] >= 0) close(z->pidfds[i]);
    }
}

static void spawn(zygote *const z, const request *const r)
{
    const pid_t self = getpid();
    z->generations[r->child] = r->generation;
    const pid_t pid = ech_os_fork();
    if (pid == 0) {
        close_all(z);
        ech_serve_child(z->worker, r->child, r->generation, self);
    }
    if (pid < 0) {
        z->pids[r->child] = 0;
        publish(z, r->child, ECH_PROC_FORK_FAILED, errno);
        return;
    }
    (void)setpgid(pid, pid); /* the child does so too; whoever is first */
    z->pidfds[r->child] = ech_os_pidfd_open(pid);
    if (z->pidfds[r->child] < 0) { /* its end would go unseen */
        const int why = errno;
        ech_os_kill(pid, true);
        (void)waitpid(pid, NULL, 0);
        z->pids[r->child] = 0;
        publish(z, r->child, ECH_PROC_FORK_FAILED, why);
        return;
    }
    z->pids[r->child] = pid;
    publish(z, r->child, ECH_PROC_RUNNING, 0);
}

static void child_ended(zygote *const z, const uint32_t child)
{
    int status;
    if (!ech_os_child_status(z->pids[child], false, &status)) return;
    close(z->pidfds[child]);
    z->pidfds[child] = -1;
    if (z->worker->child_worker[child] != NULL) z->orphans_until = ech_now_ns() + 2 * ECH_NS_PER_S;
    publish(z, child, ECH_PROC_EXITED, status);
}

/* Descendants of a worker child that died come to the zygote; they are nobody else's to reap. */
static void reap_orphans(const zygote *const z)
{
    siginfo_t info = { 0 };
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
        for (uint32_t i = 0; i < ECH_MAX_CHILDREN; i++) {
            if (z->pids[i] == info.si_pid) return; /* the worker has to read it first */
        }
        (void)waitpid(info.si_pid, NULL, WNOHANG);
        info.si_pid = 0;
    }
}

/* Nothing may outlive the worker: kills all children, sees them gone, and leaves. */
static _Noreturn void leave(zygote *const z)
{
    for (uint32_t i = 0; i < ECH_MAX_CHILDREN; i++) {
        if (z->pids[i] > 0) ech_os_kill(z->pids[i], true);
    }
    const int64_t deadline = ech_now_ns() + ECH_NS_PER_S / 2;
    while (ech_now_ns() < deadline && (waitpid(-1, NULL, WNOHANG) >= 0 || errno == EINTR))
        usleep(500);
    ech_os_exit(0, false);
}

static void handle_request(zygote *const z)
{
    request r;
    const ssize_t n = recv(z->socket, &r, sizeof r, 0);
    if (n == 0) leave(z); /* the worker closed its end */
    if (n != sizeof r || r.child >= ECH_MAX_CHILDREN) return;
    if (r.op == SPAWN) {
        spawn(z, &r);
    } else if (r.op == QUIT) {
        leave(z);
    } else if (r.op == REAP && z->pids[r.child] > 0) {
        int status;
        (void)ech_os_child_status(z->pids[r.child], true, &status);
        z->pids[r.child] = 0;
        ech_store_release(&z->worker->shared->procs[r.child].tag,
                          ECH_PROC_TAG(z->generations[r.child], ECH_PROC_REAPED));
    }
}

static _Noreturn void zygote_loop(zygote *const z)
{
    struct pollfd fds[2 + ECH_MAX_CHILDREN];
    uint32_t child_of[2 + ECH_MAX_CHILDREN];
    for (;;) {
        nfds_t n = 2; /* those that are open: poll refuses more than RLIMIT_NOFILE */
        fds[0] = (struct pollfd){ .fd = z->worker_pidfd, .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = z->socket, .events = POLLIN };
        for (uint32_t i = 0; i < ECH_MAX_CHILDREN; i++) {
            if (z->pidfds[i] < 0) continue;
            child_of[n] = i;
            fds[n++] = (struct pollfd){ .fd = z->pidfds[i], .events = POLLIN };
        }
        const bool orphans = ech_now_ns() < z->orphans_until;
        if (poll(fds, n, orphans ? 20 : -1) < 0) {
            if (errno == EINTR) continue;
            leave(z); /* who sees nothing must not stay */
        }
        if (fds[0].revents != 0) leave(z);
        for (nfds_t i = 2; i < n; i++) {
            if (fds[i].revents != 0) child_ended(z, child_of[i]);
        }
        if (fds[1].revents != 0) handle_request(z);
        if (orphans) reap_orphans(z);
    }
}

static _Noreturn void zygote_main(ech_worker *const w, const int socket, const int worker_pidfd)
{
    static zygote z; /* static: one per process, and not on a stack that asan may watch */
    z = (zygote){ .worker = w, .socket = socket, .worker_pidfd = worker_pidfd };
    memset(z.pidfds, 0xff, sizeof z.pidfds);
    const int keep[] = { socket, worker_pidfd };
    ech_os_child_signals();
    /* A worker that is a child itself keeps its zygote in its group, which is killed as one. */
    if (w->my_mail == NULL) (void)setpgid(0, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    ech_os_close_others(keep, 2);
    ech_os_detach_stdio();
    ech_os_set_name("ech-zygote");
    ech_store_release(&w->shared->zygote_up, 1);
    zygote_loop(&z);
}

/* ---- In the worker -----------------------------------------------------------------------------
 */

static void send_request(ech_worker *const w, const request *const r)
{
    if (w->zygote_socket < 0) return;
    ssize_t n;
    do {
        n = send(w->zygote_socket, r, sizeof *r, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
}

void ech_zygote_spawn(ech_worker *const w, const uint32_t child, const uint32_t generation)
{
    send_request(w, &(request){ .op = SPAWN, .child = child, .generation = generation });
}

void ech_zygote_reap(ech_worker *const w, const uint32_t child)
{
    send_request(w, &(request){ .op = REAP, .child = child });
}

static bool make_sockets(int sockets[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return false;
    sockets[0] = ech_os_above_stdio(sockets[0]);
    sockets[1] = ech_os_above_stdio(sockets[1]);
    if (sockets[0] >= 0 && sockets[1] >= 0) return true;
    const int saved = errno;
    for (int i = 0; i < 2; i++) {
        if (sockets[i] >= 0) close(sockets[i]);
    }
    errno = saved;
    return false;
}

ech_status ech_zygote_start(ech_worker *const w, ech_error *const err)
{
    int sockets[2];
    const int self = ech_os_pidfd_open(getpid());
    if (self < 0) return ech_fail_errno(err, ECH_EOS, "starting %s: opening its pidfd", w->name);
    if (!make_sockets(sockets)) {
        (void)ech_fail_errno(err, ECH_EOS, "starting %s: making a socket", w->name);
        close(self);
        return ECH_EOS;
    }
    const pid_t pid = ech_os_fork();
    if (pid == 0) {
        close(sockets[0]);
        zygote_main(w, sockets[1], self);
    }
    const int saved = errno;
    close(sockets[1]);
    close(self);
    if (pid < 0) {
        close(sockets[0]);
        errno = saved;
        return ech_fail_errno(err, ECH_EOS, "starting %s: forking its zygote", w->name);
    }
    w->zygote_pid = pid;
    w->zygote_socket = sockets[0];
    w->zygote_lost = w->zygote_quit = false;
    return ECH_OK;
}

static bool wait_gone(const pid_t pid, const int64_t timeout_ns)
{
    const int64_t deadline = ech_now_ns() + timeout_ns;
    int status;
    const int fd = ech_os_pidfd_open(pid);
    if (fd >= 0) {
        (void)ech_os_pidfd_gone(fd, (int)(timeout_ns / ECH_NS_PER_MS));
        close(fd);
    }
    while (!ech_os_child_status(pid, true, &status)) {
        if (ech_now_ns() >= deadline) return false;
        usleep(1000);
    }
    return true;
}

ech_status ech_zygote_stop(ech_worker *const w, ech_error *const err)
{
    if (w->zygote_pid <= 0) return ECH_OK;
    w->zygote_quit = true;
    send_request(w, &(request){ .op = QUIT });
    if (!wait_gone(w->zygote_pid, 2 * ECH_NS_PER_S)) {
        ech_os_kill(w->zygote_pid, false);
        if (!wait_gone(w->zygote_pid, ECH_NS_PER_S))
            return ech_fail(err, ECH_ETIMEOUT, "closing %s: its zygote, pid %d, doesn't end",
                            w->name, w->zygote_pid);
    }
    close(w->zygote_socket);
    w->zygote_socket = -1;
    w->zygote_pid = 0;
    return ECH_OK;
}
