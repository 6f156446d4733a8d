/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting an exchange's answer. Each call sets status, content type and body and moves the
 * exchange to ANSWER; it is the last thing a handler does.
 */
#ifndef ECH_SERVER_REPLY_H
#define ECH_SERVER_REPLY_H

#include "src/server/exchange.h"

/* The body that is in x->reply, as JSON. */
void ech_reply_json(ech_exchange *x, int status);
/* OpenAI's error body. param and code may be NULL; type follows from the status. */
void ech_reply_error(ech_exchange *x, int status, const char *code, const char *param,
                     const char *fmt, ...) ECH_PRINTF_(5, 6);
/* A 400 that says "PARAM WHY"; false, so that a check can end in it. */
bool ech_reply_refuse(ech_exchange *x, const char *param, const char *why);
/* The error of a library call. */
void ech_reply_failure(ech_exchange *x, const ech_error *err);
void ech_reply_text(ech_exchange *x, int status, const char *content_type);

/* A fresh id, zero-terminated: what x-request-id and the log carry. */
void ech_request_id_make(char id[ECH_REQUEST_ID_LEN + 1]);

/* Appends {"error":{…}}, all four keys, as bodies and stream frames have it. */
ech_status ech_error_object(ech_buf *b, int status, const char *code, const char *param,
                            const char *text);
/* The machine code of a status: "context_length_exceeded", …; NULL where there is none. */
const char *ech_error_code_of(ech_status status);

#endif
