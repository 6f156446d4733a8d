/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/status.h - how every call of the library reports failure.
 *
 * A call that can fail returns ech_status: 0 is success, a negative value is one of the codes
 * below. Results go through `ret_` parameters, which are written only on success. Detail travels
 * in an optional ech_error, always the last parameter, NULL allowed: a call that fails fills it,
 * a call that succeeds leaves it alone.
 *
 * The table is the only source: the enum, ech_status_name(), ech_status_str(), ech_status_hint(),
 * the HTTP status, the exit code of the command line and the table in docs/runtime.md are made
 * from it.
 */
#ifndef ECHELON_STATUS_H
#define ECHELON_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ECH_API             __attribute__((visibility("default")))
#define ECH_PRINTF_(fmt, va) __attribute__((format(printf, fmt, va)))
#else
#define ECH_API
#define ECH_PRINTF_(fmt, va)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * X(NAME, value, "meaning", "what to do", HTTP status, exit code, worth a retry)
 *
 * Values are part of the ABI: append, never renumber. 1xx are general, 2xx belong to the worker
 * runtime, 3xx to its rings.
 */
#define ECH_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success", "", 200, 0, 0)                                                             \
    X(EINVAL, -101, "invalid argument", "correct the named argument", 400, 2, 0)                   \
    X(ENOMEM, -102, "out of memory", "free memory or choose smaller sizes", 503, 1, 1)             \
    X(EIO, -103, "input or output failed", "check the named file and the disk", 500, 1, 0)         \
    X(EFORMAT, -104, "malformed data", "the named file or text is not what it should be", 400, 1, 0) \
    X(EUNSUPPORTED, -105, "not supported", "see the documentation for what is", 400, 1, 0)         \
    X(ENOTFOUND, -106, "not found", "check the name or path", 404, 1, 0)                           \
    X(ELIMIT, -107, "a limit was exceeded", "raise the named limit or send less", 400, 1, 0)       \
    X(ECONTEXT, -108, "context length exceeded", "shorten the prompt or raise --max-seq-len", 400, 1, 0) \
    X(EBUSY, -109, "the queue is full", "try again later", 429, 1, 1)                              \
    X(ECANCELLED, -110, "cancelled", "", 499, 1, 0)                                                \
    X(ETIMEOUT, -111, "timed out", "try again or allow more time", 504, 1, 1)                      \
    X(EOS, -112, "an operating system call failed", "see the errno", 500, 1, 1)                    \
    X(EINTERNAL, -113, "internal error", "please report it with the text", 500, 1, 0)              \
    X(EAGAIN, -114, "would block", "call again when there is room", 503, 1, 1)                     \
    X(ENUMERIC, -115, "not a number", "the model gave NaN or every choice was masked", 500, 1, 0)  \
    X(ESTATE, -201, "not possible in this state", "see the life cycle in worker.h", 500, 1, 0)     \
    X(EREENTRANT, -202, "called from inside a callback of the same worker",                        \
      "call it after the callback has returned", 500, 1, 0)                                        \
    X(ETASK, -203, "a task failed", "see the callable's own text", 500, 1, 0)                      \
    X(ELOST, -204, "a child process was lost", "replace the child and submit again", 503, 1, 1)    \
    X(EPOISONED, -205, "an earlier failure left this unusable", "close the worker", 500, 1, 0)     \
    X(EACCESS, -206, "the buffer does not grant this access", "check tag and buffer", 500, 1, 0)   \
    X(ESTALE, -207, "a handle is stale or forged", "use the handle that is current", 500, 1, 0)    \
    X(ESKIPPED, -208, "a task was skipped, another of its run failed first", "", 500, 1, 0)        \
    X(ESTALLED, -209, "a child made no progress", "see ECHELON_STALL_LIMIT", 503, 1, 1)            \
    X(SCOPE_DEADLOCK, -301, "the open scope holds every task slot",                                \
      "end the scope earlier or raise ECHELON_RING_TASK_WINDOW", 500, 1, 0)                        \
    X(HEAP_RING_DEADLOCK, -302, "the heap ring cannot free what is needed",                        \
      "raise ECHELON_RING_HEAP", 500, 1, 0)                                                        \
    X(TASK_WINDOW_DEADLOCK, -303, "the task window cannot free a slot",                            \
      "raise ECHELON_RING_TASK_WINDOW", 500, 1, 0)                                                 \
    X(DEP_POOL_OVERFLOW, -304, "the dependency pool cannot hold the fan-in",                       \
      "raise ECHELON_RING_DEP_POOL", 500, 1, 0)                                                    \
    X(RING_INVALID_ARGS, -305, "invalid dependency arguments", "correct the dependency list", 500, 1, 0)

typedef enum ech_status {
#define X(name, value, meaning, hint, http, exit_code, retry) ECH_##name = value,
    ECH_STATUS_MAP(X)
#undef X
} ech_status;

/** Bytes of an error's text, its terminating zero included. */
#define ECH_ERROR_TEXT 512
/** Bytes of the name of an argument, its terminating zero included. */
#define ECH_ERROR_ARGUMENT 32

/*
 * Detail of one failure. Plain data: copy it freely, nothing to release.
 * Grammar of the text: what was being done, on what, why it failed, what to do; lower case, no
 * full stop at the end, no line break.
 */
typedef struct ech_error {
    ech_status code;
    int os_errno;        /* errno of a failed system call, else 0 */
    int64_t line;        /* 1-based, 0 when it has no meaning */
    int64_t column;      /* 1-based, in bytes */
    int64_t offset;      /* byte in the input, -1 when it has no meaning */
    /* The member of the options at fault, "temperature", as the call's header spells it; "" where
       it isn't one alone. Programs that have other names for it map this one, not the text. */
    char argument[ECH_ERROR_ARGUMENT];
    char text[ECH_ERROR_TEXT];
} ech_error;

/** The code's name without its prefix, "EINVAL"; "UNKNOWN" for a value that is no code. */
ECH_API const char *ech_status_name(ech_status code);
/** What the code means, a phrase in lower case. */
ECH_API const char *ech_status_str(ech_status code);
/** What to do about it; "" where there is nothing to do. */
ECH_API const char *ech_status_hint(ech_status code);
/** The HTTP status that the server answers with. */
ECH_API int ech_status_http(ech_status code);
/** The exit code of the command line: 0, 1 failed, 2 wrong usage. */
ECH_API int ech_status_exit(ech_status code);
/** Whether the same call may succeed later. */
ECH_API bool ech_status_retryable(ech_status code);

#ifdef __cplusplus
}
#endif

#endif
