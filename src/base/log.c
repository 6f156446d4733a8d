/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines; see log.h. Owns the level, which is written once at start-up. */
#include "src/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "src/base/error.h"

static ech_log_level level_now = ECH_LOG_WARN;

void ech_log_set_level(const ech_log_level level) { level_now = level; }
ech_log_level ech_log_get_level(void) { return level_now; }

void ech_log(const ech_log_level level, const char *const fmt, ...)
{
    static const char *const NAMES[] = { "error", "warning", "info", "debug" };
    if (level > level_now) return;

    char line[1024];
    int n = snprintf(line, sizeof line, "echelon: %s: ", NAMES[level]);
    va_list ap;
    va_start(ap, fmt);
    const int m = vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
    va_end(ap);
    if (m < 0) return;
    n += m;
    if ((size_t)n > sizeof line - 2) n = sizeof line - 2;
    ech_one_line(line);
    line[n++] = '\n';
    /* A log line that can't be written has nowhere to be reported. */
    const ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written;
}
