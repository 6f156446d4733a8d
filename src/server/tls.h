/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a client's socket: GnuTLS behind calls that look like recv and send on a socket that
 * doesn't block. One certificate per server at a time.
 */
#ifndef ECH_SERVER_TLS_H
#define ECH_SERVER_TLS_H

#include <sys/types.h>

#include "echelon/status.h"

typedef struct ech_tls ech_tls;
typedef struct ech_tls_session ech_tls_session;

/* Reads a certificate chain and its private key, both PEM. Says which file is at fault. The paths
 * stay the caller's, to the end: a reload reads them again. */
ech_status ech_tls_open(ech_tls **ret_tls, const char *cert_path, const char *key_path,
                        ech_error *err);
/* Sessions that begin from now on show what the files hold now; those that are there keep theirs.
 * On failure nothing changes. Not on two threads at once. */
ech_status ech_tls_reload(ech_tls *tls, ech_error *err);
/* After the last session. */
void ech_tls_close(ech_tls **tls);

/* A session on a connected socket; NULL: out of memory. The socket stays the caller's. */
ech_tls_session *ech_tls_session_new(ech_tls *tls, int fd);
void ech_tls_session_free(ech_tls_session **session);
/* 0: done; -1 with errno EAGAIN: wait for the socket; any other errno: the client is no good. */
int ech_tls_handshake(ech_tls_session *session);
/* As recv(2) and send(2) on a socket that doesn't block. 0 of recv: the client will send no more.
 * After EAGAIN, send wants the same bytes again. */
ssize_t ech_tls_recv(ech_tls_session *session, void *buf, size_t len);
ssize_t ech_tls_send(ech_tls_session *session, const void *buf, size_t len);
/* Tells the client that nothing more comes. */
void ech_tls_bye(ech_tls_session *session);

#endif
