/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS on GnuTLS; see tls.h. The credentials are read before there are threads and never change;
 * a session belongs to the loop thread.
 */
#include "src/server/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdlib.h>

#include "src/base/buf.h"
#include "src/base/error.h"

#define MAX_PEM  (1U << 20)
#define PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.2:+VERS-TLS1.3"

struct ech_tls {
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priority;
};

struct ech_tls_session {
    gnutls_session_t session;
    bool is_sending; /* a record is half out: the next send goes on with it */
};

/* ---- the certificate ------------------------------------------------------------------------ */

static ech_status take_pair(ech_tls *const t, const ech_buf *const cert, const ech_buf *const key,
                            const char *const cert_path, const char *const key_path,
                            ech_error *const err)
{
    const gnutls_datum_t c = { (unsigned char *)cert->data, (unsigned)cert->len };
    const gnutls_datum_t k = { (unsigned char *)key->data, (unsigned)key->len };
    gnutls_x509_crt_t *list = NULL;
    unsigned n = 0;
    int rc = gnutls_x509_crt_list_import2(&list, &n, &c, GNUTLS_X509_FMT_PEM, 0);
    for (unsigned i = 0; rc >= 0 && i < n; i++) {
        gnutls_x509_crt_deinit(list[i]);
    }
    if (rc >= 0) gnutls_free(list);
    if (rc < 0)
        return ech_fail(err, ECH_EFORMAT,
                        "reading the certificate %s: it is no PEM certificate: %s", cert_path,
                        gnutls_strerror(rc));
    rc = gnutls_certificate_set_x509_key_mem(t->credentials, &c, &k, GNUTLS_X509_FMT_PEM);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return ech_fail(err, ECH_EFORMAT,
                        "reading the key %s: it is not the key of the certificate %s", key_path,
                        cert_path);
    if (rc < 0)
        return ech_fail(err, ECH_EFORMAT, "reading the key %s: it is no PEM private key: %s",
                        key_path, gnutls_strerror(rc));
    return ECH_OK;
}

static ech_status fill(ech_tls *const t, const char *const cert_path, const char *const key_path,
                       ech_error *const err)
{
    if (gnutls_certificate_allocate_credentials(&t->credentials) < 0 ||
        gnutls_priority_init(&t->priority, PRIORITY, NULL) < 0)
        return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    ech_buf cert = { 0 };
    ech_buf key = { 0 };
    ech_status rc = ech_buf_read_file(&cert, cert_path, MAX_PEM, err);
    if (rc == ECH_OK) rc = ech_buf_read_file(&key, key_path, MAX_PEM, err);
    if (rc == ECH_OK) rc = take_pair(t, &cert, &key, cert_path, key_path, err);
    if (key.data != NULL) explicit_bzero(key.data, key.len);
    ech_buf_fini(&cert);
    ech_buf_fini(&key);
    return rc;
}

ech_status ech_tls_open(ech_tls **const ret_tls, const char *const cert_path,
                        const char *const key_path, ech_error *const err)
{
    ech_tls *t = calloc(1, sizeof *t);
    if (t == NULL) return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    const ech_status rc = fill(t, cert_path, key_path, err);
    if (rc != ECH_OK) {
        ech_tls_close(&t);
        return rc;
    }
    *ret_tls = t;
    return ECH_OK;
}

void ech_tls_close(ech_tls **const tls)
{
    ech_tls *const t = *tls;
    *tls = NULL;
    if (t == NULL) return;
    if (t->credentials != NULL) gnutls_certificate_free_credentials(t->credentials);
    if (t->priority != NULL) gnutls_priority_deinit(t->priority);
    free(t);
}

/* ---- sessions ------------------------------------------------------------------------------- */

ech_tls_session *ech_tls_session_new(ech_tls *const tls, const int fd)
{
    static const gnutls_datum_t HTTP = { (unsigned char *)"http/1.1", 8 };
    ech_tls_session *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    if (gnutls_init(&s->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(s);
        return NULL;
    }
    if (gnutls_priority_set(s->session, tls->priority) < 0 ||
        gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0) {
        ech_tls_session_free(&s);
        return NULL;
    }
    (void)gnutls_alpn_set_protocols(s->session, &HTTP, 1, 0);
    gnutls_transport_set_int(s->session, fd);
    return s;
}

void ech_tls_session_free(ech_tls_session **const session)
{
    ech_tls_session *const s = *session;
    *session = NULL;
    if (s == NULL) return;
    gnutls_deinit(s->session);
    free(s);
}

/* GnuTLS's answer as a socket would have given it. */
static ssize_t as_errno(const ssize_t rc)
{
    if (rc >= 0) return rc;
    errno = rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED ? EAGAIN : ECONNRESET;
    return -1;
}

int ech_tls_handshake(ech_tls_session *const session)
{
    int rc;
    do {
        rc = gnutls_handshake(session->session);
    } while (rc == GNUTLS_E_WARNING_ALERT_RECEIVED);
    return (int)as_errno(rc);
}

ssize_t ech_tls_recv(ech_tls_session *const session, void *const buf, const size_t len)
{
    const ssize_t rc = gnutls_record_recv(session->session, buf, len);
    /* A client that drops the connection without its goodbye has still sent what it has sent. */
    return rc == GNUTLS_E_PREMATURE_TERMINATION ? 0 : as_errno(rc);
}

ssize_t ech_tls_send(ech_tls_session *const session, const void *const buf, const size_t len)
{
    const ssize_t rc = session->is_sending ? gnutls_record_send(session->session, NULL, 0)
                                           : gnutls_record_send(session->session, buf, len);
    session->is_sending = rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED;
    return as_errno(rc);
}

void ech_tls_bye(ech_tls_session *const session)
{
    (void)gnutls_bye(session->session, GNUTLS_SHUT_WR);
}
