/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of the client on GnuTLS; see client_tls.h. Invariant: no byte of a request is sent before
 * the handshake has proved the server's name, unless --insecure said not to ask.
 *
 * Ownership: a trust may serve many sessions, also of several threads at once, and must outlive
 * them; sockets stay the caller's. Left out: certificates of our own, revocation lists, session
 * resumption: a call is one connection.
 */
#include "src/cli/client_tls.h"

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/os/tls_record.h"

/* As the server's: TLS 1.0 and 1.1 are off (RFC 8996). */
#define PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.2:+VERS-TLS1.3"

struct ech_trust {
    gnutls_certificate_credentials_t credentials;
    bool insecure;
};

struct ech_client_tls {
    gnutls_session_t session;
    bool is_sending; /* a record is half out: the next send goes on with it */
};

ech_client_tls_flags ech_cli_tls;

/* ---- whom to trust -------------------------------------------------------------------------- */

/*
 * No authority at all is an error here: every handshake would fail later, with a text that says
 * less.
 */
static ech_status add_authorities(const ech_trust *const t, const char *const file,
                                  ech_error *const err)
{
    const int n = file != NULL ? gnutls_certificate_set_x509_trust_file(t->credentials, file,
                                                                        GNUTLS_X509_FMT_PEM)
                               : gnutls_certificate_set_x509_system_trust(t->credentials);
    if (n > 0) return ECH_OK;
    if (file != NULL)
        return ech_fail(err, ECH_EFORMAT, "reading the authorities in %s (--ca-file): %s", file,
                        n < 0 ? gnutls_strerror(n) : "there is no PEM certificate in it");
    return ech_fail(err, ECH_EIO,
                    "the system has no certificates of authorities: install ca-certificates, or "
                    "name a file with --ca-file");
}

/* With --insecure nothing is read: it is for machines that have no authorities. */
ech_status ech_trust_open(ech_trust **const ret, const ech_client_tls_flags *const flags,
                          ech_error *const err)
{
    ech_trust *t = calloc(1, sizeof *t);
    if (t == NULL || gnutls_certificate_allocate_credentials(&t->credentials) < 0) {
        free(t);
        return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    }
    t->insecure = flags->insecure;
    const ech_status rc = t->insecure ? ECH_OK : add_authorities(t, flags->ca_file, err);
    if (rc != ECH_OK) ech_trust_close(&t);
    *ret = t;
    return rc;
}

void ech_trust_close(ech_trust **const trust)
{
    ech_trust *const t = *trust;
    *trust = NULL;
    if (t == NULL) return;
    gnutls_certificate_free_credentials(t->credentials);
    free(t);
}

/* ---- sessions ------------------------------------------------------------------------------- */

/* Certificates may name addresses as well; only the name in the hello may not be one. */
static bool is_address(const char *const host)
{
    unsigned char a[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, a) == 1 || inet_pton(AF_INET6, host, a) == 1;
}

/*
 * http/1.1 is all that http_client.c reads. The check of the name runs inside the handshake,
 * before a byte of the request is sent.
 */
static int set_up(const ech_client_tls *const s, const ech_trust *const trust,
                  const char *const host, const int fd)
{
    static const gnutls_datum_t HTTP = { (unsigned char *)"http/1.1", 8 };
    int rc = gnutls_priority_set_direct(s->session, PRIORITY, NULL);
    if (rc >= 0)
        rc = gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, trust->credentials);
    if (rc >= 0 && !is_address(host)) /* RFC 6066: a name, never an address */
        rc = gnutls_server_name_set(s->session, GNUTLS_NAME_DNS, host, strlen(host));
    if (rc >= 0) rc = gnutls_alpn_set_protocols(s->session, &HTTP, 1, 0);
    if (!trust->insecure) gnutls_session_set_verify_cert(s->session, host, 0);
    gnutls_transport_set_int(s->session, fd);
    return rc;
}

/* The socket doesn't block. *ret is written on success only. */
ech_status ech_client_tls_open(ech_client_tls **const ret, const ech_trust *const trust,
                               const char *const host, const int fd, ech_error *const err)
{
    ech_client_tls *s = calloc(1, sizeof *s);
    if (s == NULL ||
        gnutls_init(&s->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(s);
        return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    }
    const int rc = set_up(s, trust, host, fd);
    if (rc < 0) {
        ech_client_tls_close(&s);
        return ech_fail(err, ECH_EOS, "starting TLS with %s: %s", host, gnutls_strerror(rc));
    }
    *ret = s;
    return ECH_OK;
}

void ech_client_tls_close(ech_client_tls **const tls)
{
    ech_client_tls *const s = *tls;
    *tls = NULL;
    if (s == NULL) return;
    gnutls_deinit(s->session);
    free(s);
}

/* What is wrong with the server's certificate, as GnuTLS says it. */
static ech_status fail_untrusted(const ech_client_tls *const s, ech_error *const err)
{
    gnutls_datum_t text = { 0 };
    const unsigned status = gnutls_session_get_verify_cert_status(s->session);
    const bool said =
        gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) >= 0;
    const ech_status rc = ech_fail(
        err, ECH_EIO,
        "the server's certificate is not trusted: %s --ca-file names who is, --insecure takes any",
        said ? (const char *)text.data : "");
    gnutls_free(text.data);
    return rc;
}

/* ECH_EAGAIN: wait for what ech_client_tls_events() says and call again. */
ech_status ech_client_tls_handshake(ech_client_tls *const tls, ech_error *const err)
{
    const int rc = ech_tls_shake_hands(tls->session);
    if (rc >= 0) return ECH_OK;
    if (ech_tls_must_wait(rc)) return ECH_EAGAIN;
    if (rc == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) return fail_untrusted(tls, err);
    return ech_fail(err, ECH_EIO, "starting TLS: %s", gnutls_strerror(rc));
}

short ech_client_tls_events(const ech_client_tls *const tls)
{
    return gnutls_record_get_direction(tls->session) == 1 ? POLLOUT : POLLIN;
}

ssize_t ech_client_tls_recv(ech_client_tls *const tls, void *const buf, const size_t len)
{
    return ech_tls_record_recv(tls->session, buf, len);
}

ssize_t ech_client_tls_send(ech_client_tls *const tls, const void *const buf, const size_t len)
{
    return ech_tls_record_send(tls->session, &tls->is_sending, buf, len);
}
