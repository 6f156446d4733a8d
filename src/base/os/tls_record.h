/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GnuTLS session on a socket that doesn't block, read and written as the socket itself would be:
 * -1 with errno EAGAIN where it must be waited for, ECONNRESET for whatever else GnuTLS says. For
 * server and client alike; the session and its flag belong to the caller's thread.
 */
#ifndef ECH_BASE_OS_TLS_RECORD_H
#define ECH_BASE_OS_TLS_RECORD_H

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <sys/types.h>

static inline bool ech_tls_must_wait(const ssize_t rc)
{
    return rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED;
}

static inline ssize_t ech_tls_as_errno(const ssize_t rc)
{
    if (rc >= 0) return rc;
    errno = ech_tls_must_wait(rc) ? EAGAIN : ECONNRESET;
    return -1;
}

/* GnuTLS's own codes. Warnings (an unknown name in SNI) are no reason to stop. */
static inline int ech_tls_shake_hands(const gnutls_session_t session)
{
    int rc;
    do {
        rc = gnutls_handshake(session);
    } while (rc == GNUTLS_E_WARNING_ALERT_RECEIVED);
    return rc;
}

/* Many peers close without a goodbye: they have still sent what they have sent, and a body that is
 * cut short shows by its framing. */
static inline ssize_t ech_tls_record_recv(const gnutls_session_t session, void *const buf,
                                          const size_t len)
{
    const ssize_t rc = gnutls_record_recv(session, buf, len);
    return rc == GNUTLS_E_PREMATURE_TERMINATION ? 0 : ech_tls_as_errno(rc);
}

/*
 * GnuTLS keeps a record that didn't go out whole: it must be called again without data, or the
 * bytes would be sent twice. *is_sending says so; false for a new session.
 */
static inline ssize_t ech_tls_record_send(const gnutls_session_t session, bool *const is_sending,
                                          const void *const buf, const size_t len)
{
    const ssize_t rc =
        *is_sending ? gnutls_record_send(session, NULL, 0) : gnutls_record_send(session, buf, len);
    *is_sending = ech_tls_must_wait(rc);
    return ech_tls_as_errno(rc);
}

#endif
