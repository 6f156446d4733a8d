/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers and error bodies; see reply.h. Runs on whichever thread has the exchange.
 *
 * Invariant: an exchange gets one answer. Each function writes status, type and body and
 * publishes them with one release store, after which the exchange may already belong to the
 * loop: the caller doesn't touch it again.
 */
#include "src/server/reply.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/json.h"

/*
 * OpenAI's words, by which its clients tell failures apart. What has no word of its own is the
 * client's fault below 500 and ours from there.
 */
static const char *type_of(const int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/*
 * OpenAI's codes where it has them: agents react to context_length_exceeded by shortening the
 * conversation. The others have none, the text says it.
 */
const char *ech_error_code_of(const ech_status status)
{
    switch (status) {
    case ECH_ECONTEXT:
        return "context_length_exceeded";
    case ECH_EBUSY:
        return "rate_limit_exceeded";
    case ECH_EUNSUPPORTED:
        return "unsupported_value";
    case ECH_EINVAL:
        return "invalid_value";
    case ECH_ETIMEOUT:
        return "timeout";
    default:
        return NULL;
    }
}

/*
 * Random, not counted: ids of several servers behind one balancer must not meet. Zeros are left
 * where the system gives no randomness; an answer with a poor id is better than none.
 */
void ech_request_id_make(char id[ECH_REQUEST_ID_LEN + 1])
{
    static const char HEX[] = "0123456789abcdef";
    uint8_t bytes[ECH_REQUEST_ID_LEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        id[2 * i] = HEX[bytes[i] >> 4];
        id[2 * i + 1] = HEX[bytes[i] & 15];
    }
    id[ECH_REQUEST_ID_LEN] = '\0';
}

/* All four keys are always there: typed clients fail at a missing one, not at null. */
static ech_status put_nullable(ech_buf *const b, const char *const s)
{
    return s != NULL ? ech_json_put_cstring(b, s) : ech_buf_puts(b, "null");
}

ech_status ech_error_object(ech_buf *const b, const int status, const char *const code,
                            const char *const param, const char *const text)
{
    ECH_TRY(ech_buf_puts(b, "{\"error\":{\"message\":"));
    ECH_TRY(ech_json_put_cstring(b, text));
    ECH_TRY(ech_buf_puts(b, ",\"type\":"));
    ECH_TRY(ech_json_put_cstring(b, type_of(status)));
    ECH_TRY(ech_buf_puts(b, ",\"param\":"));
    ECH_TRY(put_nullable(b, param));
    ECH_TRY(ech_buf_puts(b, ",\"code\":"));
    ECH_TRY(put_nullable(b, code));
    return ech_buf_puts(b, "}}");
}

/*
 * The one place that ends an exchange with an answer; what it points to (content_type) must
 * outlive the exchange, so literals.
 */
void ech_reply_text(ech_exchange *const x, const int status, const char *const content_type)
{
    x->status = status;
    x->content_type = content_type;
    /* Partner: the loop's acquire in http.c; the answer is whole before the phase says so. */
    ech_store_release(&x->phase, ECH_PHASE_ANSWER);
}

void ech_reply_json(ech_exchange *const x, const int status)
{
    ech_reply_text(x, status, "application/json");
}

/* Anthropic's form has a type of its own around the same object. */
static ech_status put_error(const ech_exchange *const x, const int status, const char *const code,
                            const char *const param, const char *const text, ech_buf *const b)
{
    static const char MESSAGES[] = "/messages";
    const bool is_typed =
        x->route != NULL && strncmp(x->route->path, MESSAGES, sizeof MESSAGES - 1) == 0;
    ECH_TRY(ech_error_object(b, status, code, param, text));
    if (!is_typed) return ECH_OK;
    b->data[b->len - 1] = ','; /* the object's own brace */
    return ech_buf_puts(b, "\"type\":\"error\"}");
}

/*
 * Clears what a handler may have written before it failed: a body is an answer or an error,
 * never both.
 */
static void reply_error_text(ech_exchange *const x, const int status, const char *const code,
                             const char *const param, const char *const text)
{
    ech_buf_clear(&x->reply);
    if (put_error(x, status, code, param, text, &x->reply) != ECH_OK) {
        /* No memory for the body: an empty one with the right status is still an answer. */
        ech_buf_clear(&x->reply);
    }
    ech_reply_json(x, status);
}

/*
 * The text is cut at ECH_ERROR_TEXT; callers bound what they repeat of a client (%.100s), so
 * that a long name doesn't push out the reason.
 */
void ech_reply_error(ech_exchange *const x, const int status, const char *const code,
                     const char *const param, const char *const fmt, ...)
{
    char text[ECH_ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    reply_error_text(x, status, code, param, text);
}

bool ech_reply_refuse(ech_exchange *const x, const char *const param, const char *const why)
{
    ech_reply_error(x, 400, "invalid_value", param, "%s %s", param, why);
    return false;
}

/*
 * For errors that come from below, whose status the table of ech_status knows. What may work
 * later gets a retry-after of a second, where nobody said something better.
 */
void ech_reply_failure(ech_exchange *const x, const ech_error *const err)
{
    const int status = ech_status_http(err->code);
    if (ech_status_retryable(err->code) && x->retry_after_s == 0) x->retry_after_s = 1;
    reply_error_text(x, status, ech_error_code_of(err->code), NULL, err->text);
}
