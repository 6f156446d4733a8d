/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status tables and error texts. Pure functions of their arguments, safe on any thread and in a
 * child after fork: no allocation, no locale. What is left out: who prints an error (src/cli) and
 * who maps it to a response (src/server).
 */
#include "src/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct status_row {
    ech_status code;
    const char *name;
    const char *meaning;
    const char *hint;
    int http;
    int exit_code;
    bool retryable;
} status_row;

static const status_row STATUS_ROWS[] = {
#define X(name, value, meaning, hint, http, exit_code, retry)                                      \
    { ECH_##name, #name, meaning, hint, http, exit_code, (retry) != 0 },
    ECH_STATUS_MAP(X)
#undef X
};

static const status_row UNKNOWN_ROW = { ECH_EINTERNAL, "UNKNOWN", "unknown status", "", 500, 1,
                                        false };

static const status_row *row_of(const ech_status code)
{
    for (size_t i = 0; i < sizeof STATUS_ROWS / sizeof STATUS_ROWS[0]; i++) {
        if (STATUS_ROWS[i].code == code) return &STATUS_ROWS[i];
    }
    return &UNKNOWN_ROW;
}

const char *ech_status_name(const ech_status code)
{
    return row_of(code)->name;
}
const char *ech_status_str(const ech_status code)
{
    return row_of(code)->meaning;
}
const char *ech_status_hint(const ech_status code)
{
    return row_of(code)->hint;
}
int ech_status_http(const ech_status code)
{
    return row_of(code)->http;
}
int ech_status_exit(const ech_status code)
{
    return row_of(code)->exit_code;
}
bool ech_status_retryable(const ech_status code)
{
    return row_of(code)->retryable;
}

void ech_one_line(char *const text)
{
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
}

/* A text that was cut ends in "..." instead of in half a word that reads like the whole. */
static void set_text(ech_error *err, const char *fmt, va_list ap)
{
    const int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    if (n < 0) {
        err->text[0] = '\0';
    } else if ((size_t)n >= sizeof err->text) {
        memcpy(err->text + sizeof err->text - 4, "...", 4);
    }
    ech_one_line(err->text);
}

/* Appends what fits: the first cause stands at the end, so a cut loses detail, not context. */
static void append_text(ech_error *const err, const char *const more)
{
    const size_t len = strlen(err->text);
    const size_t room = sizeof err->text - 1 - len;
    const size_t n = strlen(more) < room ? strlen(more) : room;
    memcpy(err->text + len, more, n);
    err->text[len + n] = '\0';
}

static void set_header(ech_error *err, const ech_status code, const int os_errno)
{
    err->code = code;
    err->os_errno = os_errno;
    err->line = 0;
    err->column = 0;
    err->offset = -1;
    err->argument[0] = '\0';
}

ech_status ech_fail(ech_error *err, const ech_status code, const char *fmt, ...)
{
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    set_header(err, code, 0);
    set_text(err, fmt, ap);
    va_end(ap);
    return code;
}

ech_status ech_error_name_argument(ech_error *err, const ech_status code, const char *argument)
{
    if (err == NULL) return code;
    ECH_DCHECK(strlen(argument) < sizeof err->argument); /* names are our own */
    (void)snprintf(err->argument, sizeof err->argument, "%s", argument);
    return code;
}

ech_status ech_fail_argument(ech_error *err, const ech_status code, const char *argument,
                             const char *fmt, ...)
{
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    set_header(err, code, 0);
    set_text(err, fmt, ap);
    va_end(ap);
    return ech_error_name_argument(err, code, argument);
}

ech_status ech_fail_errno(ech_error *err, const ech_status code, const char *fmt, ...)
{
    const int os_errno = errno;
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    set_header(err, code, os_errno);
    set_text(err, fmt, ap);
    va_end(ap);

    /* strerrordesc_np gives a constant string: strerror's buffer is not for several threads. */
    const char *why = strerrordesc_np(os_errno);
    append_text(err, ": ");
    append_text(err, why != NULL ? why : "unknown errno");
    return code;
}

ech_status ech_fail_at(ech_error *err, const ech_status code, const int64_t line,
                       const int64_t column, const int64_t offset, const char *fmt, ...)
{
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    set_header(err, code, 0);
    err->line = line;
    err->column = column;
    err->offset = offset;
    set_text(err, fmt, ap);
    va_end(ap);
    return code;
}

ech_status ech_error_prefix(ech_error *err, const ech_status code, const char *fmt, ...)
{
    if (err == NULL) return code;
    ech_error with;
    va_list ap;
    va_start(ap, fmt);
    set_text(&with, fmt, ap);
    va_end(ap);
    append_text(&with, ": ");
    append_text(&with, err->text);
    memcpy(err->text, with.text, sizeof err->text);
    err->code = code;
    return code;
}

void ech_assert_failed(const char *cond, const char *file, const int line)
{
    (void)fprintf(stderr, "echelon: %s:%d: this should never be: !(%s)\n", file, line, cond);
    abort();
}
