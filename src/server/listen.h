/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: TCP, Unix, and those a service manager hands over. */
#ifndef ECH_SERVER_LISTEN_H
#define ECH_SERVER_LISTEN_H

#include "echelon/status.h"

/*
 * Binds and listens on host:port, trying `more` ports above it when one is taken. *ret_port is the
 * one that was bound, *ret_loopback whether only this machine reaches it. EBUSY: taken.
 */
ech_status ech_listen_tcp(const char *host, int port, int more, int *ret_fd, int *ret_port,
                          bool *ret_loopback, ech_error *err);
/* Binds a Unix socket; one that is left over from a dead server is replaced. */
ech_status ech_listen_unix(const char *path, int *ret_fd, ech_error *err);
/* "HOST:PORT", "[::1]:PORT" or ":PORT" as host (the brackets removed) and port. */
ech_status ech_listen_parse(const char *address, char *ret_host, size_t cap, int *ret_port,
                            ech_error *err);
/* How many sockets were handed over (LISTEN_PID, LISTEN_FDS); they begin at descriptor 3. */
int ech_listen_inherited(void);
/*
 * Makes such a socket ready for the loop. *ret_tcp, *ret_loopback and *ret_port (0: none) say what
 * it is. EINVAL: it is no listening stream socket.
 */
ech_status ech_listen_adopt(int fd, bool *ret_tcp, bool *ret_loopback, int *ret_port,
                            ech_error *err);

#endif
