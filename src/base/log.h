/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines for the operator on stderr: "echelon: level: text". Off the hot path only. One write(2) a
 * line, so that lines of several processes don't mix. Safe on any thread and after fork.
 */
#ifndef ECH_BASE_LOG_H
#define ECH_BASE_LOG_H

#include "echelon/status.h"

typedef enum ech_log_level {
    ECH_LOG_ERROR,
    ECH_LOG_WARN,
    ECH_LOG_INFO,
    ECH_LOG_DEBUG,
} ech_log_level;

/* Default WARN. Inherited by children. Set it before threads are started. */
void ech_log_set_level(ech_log_level level);
ech_log_level ech_log_get_level(void);
void ech_log(ech_log_level level, const char *fmt, ...) ECH_PRINTF_(2, 3);

#endif
