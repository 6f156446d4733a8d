/* SPDX-License-Identifier: Apache-2.0 */
/* The audit line; see audit.h. Loop threads; one write(2) a line, so that lines don't mix. */
#include "src/server/audit.h"

#include <time.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/state.h"

static ech_status put_line(ech_buf *const b, const ech_exchange *const x)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    ECH_TRY(ech_buf_printf(b, "{\"time\":%lld.%03ld,\"request\":\"%s\",\"key\":",
                           (long long)now.tv_sec, now.tv_nsec / 1000000, x->id));
    ECH_TRY(ech_json_put_cstring(b, x->key != NULL ? x->key->name : ""));
    ECH_TRY(ech_buf_puts(b, ",\"route\":"));
    ECH_TRY(ech_json_put_cstring(b, x->route != NULL ? x->route->path : ""));
    ECH_TRY(ech_buf_printf(b, ",\"status\":%d,\"ms\":%.1f", x->status,
                           (double)(ech_now_ns() - x->started_ns) / (double)ECH_NS_PER_MS));
    if (x->finish_name != NULL) {
        ECH_TRY(ech_buf_printf(
            b,
            ",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"completion_tokens\":%u,\"finish\":\"%s\"",
            x->usage.prompt_tokens, x->usage.cached_tokens, x->usage.completion_tokens,
            x->finish_name));
    }
    return ech_buf_puts(b, "}\n");
}

static void write_line(const ech_server *const server, const ech_buf *const line)
{
    /* A line that can't be written has nowhere to be reported. */
    const ssize_t n = write(server->audit_fd, line->data, line->len);
    (void)n;
}

void ech_audit_write(const ech_exchange *const x)
{
    if (x->server->audit_fd < 0) return;
    ech_buf line = { 0 };
    if (put_line(&line, x) == ECH_OK) write_line(x->server, &line);
    ech_buf_fini(&line);
}

void ech_audit_write_refused(ech_server *const server, const char *const id, const int status,
                             const char *const code)
{
    (void)ech_fetch_add_relaxed(&server->http_requests, 1);
    (void)ech_fetch_add_relaxed(&server->http_errors[status / 100], 1);
    if (server->audit_fd < 0) return;
    ech_buf line = { 0 };
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ech_buf_printf(&line,
                       "{\"time\":%lld.%03ld,\"request\":\"%s\",\"key\":\"\",\"route\":\"\","
                       "\"status\":%d,\"refused\":\"%s\"}\n",
                       (long long)now.tv_sec, now.tv_nsec / 1000000, id, status, code) == ECH_OK)
        write_line(server, &line);
    ech_buf_fini(&line);
}
