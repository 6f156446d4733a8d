/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS on GnuTLS; see tls.h. Certificates are read on the main thread; a session belongs to the loop
 * thread. Invariant: a pair of certificate and key never changes; a reload makes another current,
 * and the old one goes with the last session that began with it.
 *
 * Left out: certificates of clients, and HTTP/2, which the library behind doesn't speak: ALPN
 * offers http/1.1 alone. TLS 1.0 and 1.1 are off (RFC 8996).
 */
#include "src/server/tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdlib.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/os/tls_record.h"

#define MAX_PEM  (1U << 20)
#define PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.2:+VERS-TLS1.3"

/* A certificate and its key. */
typedef struct pair {
    gnutls_certificate_credentials_t credentials;
    size_t refs; /* guarded by the lock: the sessions, and one for being current */
} pair;

struct ech_tls {
    const char *cert_path, *key_path; /* the caller's */
    gnutls_priority_t priority;
    pthread_mutex_t lock; /* held for a few instructions only */
    pair *current;        /* guarded by the lock */
};

struct ech_tls_session {
    ech_tls *tls;
    pair *pair;
    gnutls_session_t session;
    bool is_sending; /* a record is half out: the next send goes on with it */
};

/* ---- the certificate ------------------------------------------------------------------------ */

/*
 * The certificate is parsed once by itself before it is used with the key: GnuTLS's error for
 * the pair doesn't say which of both files is the bad one.
 */
static ech_status take_pair(const ech_tls *const t, pair *const p, const ech_buf *const cert,
                            const ech_buf *const key, ech_error *const err)
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
                        "reading the certificate %s: it is no PEM certificate: %s", t->cert_path,
                        gnutls_strerror(rc));
    rc = gnutls_certificate_set_x509_key_mem(p->credentials, &c, &k, GNUTLS_X509_FMT_PEM);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return ech_fail(err, ECH_EFORMAT,
                        "reading the key %s: it is not the key of the certificate %s", t->key_path,
                        t->cert_path);
    if (rc < 0)
        return ech_fail(err, ECH_EFORMAT, "reading the key %s: it is no PEM private key: %s",
                        t->key_path, gnutls_strerror(rc));
    return ECH_OK;
}

/* The key's bytes are wiped before the buffer goes back to the heap; GnuTLS has its own copy. */
static ech_status read_pair(const ech_tls *const t, pair *const p, ech_error *const err)
{
    ech_buf cert = { 0 };
    ech_buf key = { 0 };
    ech_status rc = ech_buf_read_file(&cert, t->cert_path, MAX_PEM, err);
    if (rc == ECH_OK) rc = ech_buf_read_file(&key, t->key_path, MAX_PEM, err);
    if (rc == ECH_OK) rc = take_pair(t, p, &cert, &key, err);
    if (key.data != NULL) explicit_bzero(key.data, key.len);
    ech_buf_fini(&cert);
    ech_buf_fini(&key);
    return rc;
}

static void pair_free(pair *const p)
{
    gnutls_certificate_free_credentials(p->credentials);
    free(p);
}

/* Freed outside of the lock, which the loop thread wants at every new client. */
static void pair_unref(ech_tls *const t, pair *const p)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&t->lock);
    const bool is_last = --p->refs == 0;
    (void)pthread_mutex_unlock(&t->lock);
    if (is_last) pair_free(p);
}

/* A session keeps the pair that it began with, also over a reload. */
static pair *current_ref(ech_tls *const t)
{
    (void)pthread_mutex_lock(&t->lock);
    pair *const p = t->current;
    p->refs++;
    (void)pthread_mutex_unlock(&t->lock);
    return p;
}

/*
 * Main thread. The new pair is whole before it becomes current; after a failure the old one
 * stays.
 */
ech_status ech_tls_reload(ech_tls *const t, ech_error *const err)
{
    pair *const p = calloc(1, sizeof *p);
    if (p == NULL || gnutls_certificate_allocate_credentials(&p->credentials) < 0) {
        free(p);
        return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    }
    const ech_status rc = read_pair(t, p, err);
    if (rc != ECH_OK) {
        pair_free(p);
        return rc;
    }
    p->refs = 1;
    (void)pthread_mutex_lock(&t->lock);
    pair *const old = t->current;
    t->current = p;
    (void)pthread_mutex_unlock(&t->lock);
    pair_unref(t, old);
    return ECH_OK;
}

/*
 * The first reading is a reload from nothing, so there is one way to read. The paths must
 * outlive it.
 */
ech_status ech_tls_open(ech_tls **const ret_tls, const char *const cert_path,
                        const char *const key_path, ech_error *const err)
{
    ech_tls *t = calloc(1, sizeof *t);
    if (t == NULL) return ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory");
    (void)pthread_mutex_init(&t->lock, NULL);
    t->cert_path = cert_path;
    t->key_path = key_path;
    const ech_status rc = gnutls_priority_init(&t->priority, PRIORITY, NULL) < 0
                              ? ech_fail(err, ECH_ENOMEM, "starting TLS: out of memory")
                              : ech_tls_reload(t, err);
    if (rc != ECH_OK) ech_tls_close(&t);
    *ret_tls = t;
    return rc;
}

/* No session may be left: they hold references and the lock. */
void ech_tls_close(ech_tls **const tls)
{
    ech_tls *const t = *tls;
    *tls = NULL;
    if (t == NULL) return;
    pair_unref(t, t->current);
    if (t->priority != NULL) gnutls_priority_deinit(t->priority);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- sessions ------------------------------------------------------------------------------- */

/*
 * NULL: out of memory; the socket stays the caller's in either case. No SIGPIPE from GnuTLS's
 * own writes.
 */
ech_tls_session *ech_tls_session_new(ech_tls *const tls, const int fd)
{
    static const gnutls_datum_t HTTP = { (unsigned char *)"http/1.1", 8 };
    ech_tls_session *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->tls = tls;
    if (gnutls_init(&s->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(s);
        return NULL;
    }
    s->pair = current_ref(tls);
    if (gnutls_priority_set(s->session, tls->priority) < 0 ||
        gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, s->pair->credentials) < 0) {
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
    pair_unref(s->tls, s->pair);
    free(s);
}

int ech_tls_handshake(ech_tls_session *const session)
{
    return (int)ech_tls_as_errno(ech_tls_shake_hands(session->session));
}

ssize_t ech_tls_recv(ech_tls_session *const session, void *const buf, const size_t len)
{
    return ech_tls_record_recv(session->session, buf, len);
}

ssize_t ech_tls_send(ech_tls_session *const session, const void *const buf, const size_t len)
{
    return ech_tls_record_send(session->session, &session->is_sending, buf, len);
}

/* One-sided: it isn't waited for the client's own, which many never send. */
void ech_tls_bye(ech_tls_session *const session)
{
    (void)gnutls_bye(session->session, GNUTLS_SHUT_WR);
}
