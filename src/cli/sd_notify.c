/* SPDX-License-Identifier: Apache-2.0 */
/* One datagram per word; see sd_notify.h. A manager that can't be told is no reason to stop. */
#include "src/cli/sd_notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/clock.h"

void ech_sd_notify(const char *const state)
{
    const char *const path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    const size_t len = path != NULL ? strlen(path) : 0;
    if (len < 2 || len >= sizeof a.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(a.sun_path, path, len);
    if (path[0] == '@') a.sun_path[0] = '\0'; /* the abstract namespace */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&a,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    (void)close(fd);
}

void ech_sd_notify_reloading(void)
{
    char state[64];
    (void)snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
                   (long long)(ech_now_ns() / 1000));
    ech_sd_notify(state);
}
