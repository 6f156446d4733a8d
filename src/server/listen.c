/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets; see listen.h. Called once, before there are threads.
 *
 * Ownership: a function that returns a descriptor gives it to the caller; after a failure
 * nothing is left open. No socket blocks, and all are closed on exec.
 */
#include "src/server/listen.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/error.h"

#define BACKLOG 1024

/*
 * All of 127/8; ::1. Addresses of IPv4 inside of IPv6 are taken for foreign, which errs on the
 * safe side.
 */
static bool is_loopback(const struct sockaddr *const a)
{
    if (a->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    }
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* A bound, listening socket, or -1 with errno. */
/*
 * SO_REUSEADDR: a restart must not wait for the old server's connections to time out. errno is
 * that of what failed, not of close().
 */
static int bind_one(const struct addrinfo *const a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

/* What the system chose for port 0. */
static int port_of(const int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static struct addrinfo *resolve(const char *const host, const int port, int *const ret_rc)
{
    char service[16];
    (void)snprintf(service, sizeof service, "%d", port);
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *list = NULL;
    *ret_rc = getaddrinfo(host, service, &hints, &list);
    return *ret_rc == 0 ? list : NULL;
}

/*
 * Of a name with several addresses the first is taken: `localhost` on both families would be two
 * sockets, and --listen is there to say so. Port 0 leaves the choice to the system. more: how
 * many further ports may be tried; only a port that is taken makes it go on, as every other
 * error would be the same there.
 */
ech_status ech_listen_tcp(const char *const host, const int port, const int more, int *const ret_fd,
                          int *const ret_port, bool *const ret_loopback, ech_error *const err)
{
    for (int p = port; p <= port + more && p <= 65535; p++) {
        int rc;
        struct addrinfo *const list = resolve(host, p, &rc);
        if (list == NULL)
            return ech_fail(err, ECH_EINVAL, "binding %s: %s (--host)", host, gai_strerror(rc));
        const int fd = bind_one(list);
        const int why = errno;
        const bool loopback = is_loopback(list->ai_addr);
        freeaddrinfo(list);
        if (fd >= 0) {
            *ret_fd = fd;
            *ret_port = port_of(fd);
            *ret_loopback = loopback;
            return ECH_OK;
        }
        errno = why;
        if (why != EADDRINUSE) return ech_fail_errno(err, ECH_EOS, "binding %s port %d", host, p);
    }
    return ech_fail(err, ECH_EBUSY, "binding %s port %d: it is taken; choose another with --port",
                    host, port);
}

/*
 * A socket file that nobody answers on is what a killed server left. Asking is the only way to
 * know: the file stays when its process is killed. A file of another kind is refused as well when
 * it is asked, and is somebody's.
 */
static bool is_left_over(const struct sockaddr_un *const a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool refused =
        connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return refused;
}

/*
 * A path that somebody answers on is in use, and stays; see is_left_over. Between the question
 * and the bind another server may start; then one of them fails at bind() and says so. Who may
 * connect is for the folder's rights to say.
 */
ech_status ech_listen_unix(const char *const path, int *const ret_fd, ech_error *const err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    const size_t len = strlen(path);
    if (len == 0 || len >= sizeof a.sun_path) {
        return ech_fail(err, ECH_EINVAL, "binding '%s': must have 1 to %zu bytes (--unix)", path,
                        sizeof a.sun_path - 1);
    }
    memcpy(a.sun_path, path, len + 1);
    if (is_left_over(&a)) (void)unlink(path);
    const struct addrinfo ai = {
        .ai_family = AF_UNIX,
        .ai_addr = (struct sockaddr *)&a,
        .ai_addrlen = sizeof a,
    };
    const int fd = bind_one(&ai);
    if (fd < 0)
        return ech_fail_errno(err, errno == EADDRINUSE ? ECH_EBUSY : ECH_EOS, "binding %s", path);
    *ret_fd = fd;
    return ECH_OK;
}

/*
 * sd_listen_fds(3), the part that matters: descriptors from 3 on, meant for this process alone.
 * LISTEN_PID guards against variables that a parent has left in the environment. 64 is a bound
 * on nonsense.
 */
int ech_listen_inherited(void)
{
    const char *const pid = getenv("LISTEN_PID");
    const char *const n = getenv("LISTEN_FDS");
    if (pid == NULL || n == NULL || strtol(pid, NULL, 10) != (long)getpid()) return 0;
    const long count = strtol(n, NULL, 10);
    return count > 0 && count < 64 ? (int)count : 0;
}

/*
 * What systemd hands over may be anything that a unit file says: it is checked like any input.
 * The flags are set here: systemd hands sockets over that block and stay open on exec.
 */
ech_status ech_listen_adopt(const int fd, bool *const ret_tcp, bool *const ret_loopback,
                            int *const ret_port, ech_error *const err)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof a;
    int listening = 0;
    socklen_t size = sizeof listening;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening)
        return ech_fail(err, ECH_EINVAL,
                        "taking over descriptor %d (LISTEN_FDS): it is no listening socket", fd);
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return ech_fail_errno(err, ECH_EOS, "taking over descriptor %d", fd);
    *ret_tcp = a.ss_family == AF_INET || a.ss_family == AF_INET6;
    *ret_loopback = !*ret_tcp || is_loopback((const struct sockaddr *)&a);
    *ret_port = *ret_tcp ? port_of(fd) : 0;
    return ECH_OK;
}

/*
 * The port is behind the last colon, so that IPv6 needs brackets; without a host (":8080") the
 * text is empty and the caller decides.
 */
ech_status ech_listen_parse(const char *const address, char *const ret_host, const size_t cap,
                            int *const ret_port, ech_error *const err)
{
    const char *const colon = strrchr(address, ':');
    const char *host = address;
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;
    char *end = NULL;
    const long port =
        colon != NULL && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len) != NULL) {
        end = NULL; /* an IPv6 address without brackets */
    }
    if (end == NULL || *end != '\0' || port < 0 || port > 65535 || len >= cap)
        return ech_fail(err, ECH_EINVAL, "--listen %.100s must be HOST:PORT or [IPV6]:PORT",
                        address);
    (void)snprintf(ret_host, cap, "%.*s", (int)len, host);
    *ret_port = (int)port;
    return ECH_OK;
}
