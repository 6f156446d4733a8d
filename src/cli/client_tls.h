/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of the client (http_client.h): whom it trusts, and a session on a connected socket. A server
 * proves who it is by the authorities that the system trusts, or by those of --ca-file; --insecure
 * asks for no proof. A trust may be used by many threads at once, a session by one.
 */
#ifndef ECH_CLI_CLIENT_TLS_H
#define ECH_CLI_CLIENT_TLS_H

#include <sys/types.h>

#include "src/cli/options.h"

/* What the command line said, for every command that talks to a server. */
typedef struct ech_client_tls_flags {
    const char *ca_file;
    bool insecure;
} ech_client_tls_flags;

extern ech_client_tls_flags ech_cli_tls;

#define ECH_CLIENT_TLS_OPTIONS                                                                     \
    { "ca-file",                                                                                   \
      0,                                                                                           \
      ECH_OPT_STRING,                                                                              \
      &ech_cli_tls.ca_file,                                                                        \
      "FILE",                                                                                      \
      "https: trust the authorities in this PEM file instead of the system's",                     \
      0,                                                                                           \
      0,                                                                                           \
      NULL },                                                                                      \
    {                                                                                              \
        "insecure", 0, ECH_OPT_FLAG, &ech_cli_tls.insecure, NULL,                                  \
            "https: trust whoever answers", 0, 0, NULL                                             \
    }

typedef struct ech_trust ech_trust;
typedef struct ech_client_tls ech_client_tls;

/* Reads the authorities. The caller closes the trust after the last session of it. */
ech_status ech_trust_open(ech_trust **ret, const ech_client_tls_flags *flags, ech_error *err);
void ech_trust_close(ech_trust **trust);

/* A session with `host` on a socket that doesn't block and stays the caller's. */
ech_status ech_client_tls_open(ech_client_tls **ret, const ech_trust *trust, const char *host,
                               int fd, ech_error *err);
void ech_client_tls_close(ech_client_tls **tls);
/* ECH_EAGAIN: wait for what ech_client_tls_events says, then again. Any other failure says why the
 * server isn't trusted or what went wrong. */
ech_status ech_client_tls_handshake(ech_client_tls *tls, ech_error *err);
short ech_client_tls_events(const ech_client_tls *tls);
/* As recv(2) and send(2). */
ssize_t ech_client_tls_recv(ech_client_tls *tls, void *buf, size_t len);
ssize_t ech_client_tls_send(ech_client_tls *tls, const void *buf, size_t len);

#endif
