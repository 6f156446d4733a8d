/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling ech_error, and the three levels of assertion.
 *
 * ECH_ASSERT is always on: cheap invariants at module borders. ECH_DCHECK is on in `dev`, `asan`
 * and `tsan`. Both are for our own bugs only; bytes from a client, a file or another process are
 * input and get an error.
 */
#ifndef ECH_BASE_ERROR_H
#define ECH_BASE_ERROR_H

#include <stdarg.h>

#include "echelon/status.h"

/*
 * Fills err (when not NULL) with code and a formatted text, and returns code, so that a failing
 * function ends in `return ech_fail(err, ECH_EINVAL, "…")`.
 */
ech_status ech_fail(ech_error *err, ech_status code, const char *fmt, ...) ECH_PRINTF_(3, 4);
/* The same with the name of the option that is at fault, as the public header spells it. */
ech_status ech_fail_argument(ech_error *err, ech_status code, const char *argument, const char *fmt,
                             ...) ECH_PRINTF_(4, 5);
/* The same with the calling thread's errno kept and its text appended. */
ech_status ech_fail_errno(ech_error *err, ech_status code, const char *fmt, ...) ECH_PRINTF_(3, 4);
/* The same with a position in the input; any of them may be 0 (line, column) or -1 (offset). */
ech_status ech_fail_at(ech_error *err, ech_status code, int64_t line, int64_t column,
                       int64_t offset, const char *fmt, ...) ECH_PRINTF_(6, 7);
/* Puts "text: " before what err says: the way an error gains context on its way up. */
ech_status ech_error_prefix(ech_error *err, ech_status code, const char *fmt, ...)
    ECH_PRINTF_(3, 4);
/* Says which option an error from further down is about; returns code. */
ech_status ech_error_name_argument(ech_error *err, ech_status code, const char *argument);

/* Control bytes, which a name of a file or an option may hold, become '?': one line, no escapes. */
void ech_one_line(char *text);

#define ECH_TRY(expr)                                                                              \
    do {                                                                                           \
        const ech_status ech_try_rc_ = (expr);                                                     \
        if (ech_try_rc_ != ECH_OK) return ech_try_rc_;                                             \
    } while (0)

_Noreturn void ech_assert_failed(const char *cond, const char *file, int line);

#define ECH_ASSERT(cond) ((cond) ? (void)0 : ech_assert_failed(#cond, __FILE__, __LINE__))
#ifdef ECH_DEBUG
#define ECH_DCHECK(cond) ECH_ASSERT(cond)
#else
#define ECH_DCHECK(cond) ((void)sizeof(cond))
#endif

#endif
