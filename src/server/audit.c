/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit line; see audit.h. Loop threads; one write(2) a line, so that lines don't mix.
 *
 * Invariant: a line for every request that was answered or that the engine took, and one for
 * what the guard refused; none for a connection that asked for nothing. Each is whole in one
 * write to a file opened for appending. What users said is left out unless --audit-text asks for
 * it; keys appear by name, never the secret.
 */
#include "src/server/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/generate.h"
#include "src/server/http.h"
#include "src/server/state.h"

static double ms_between(const int64_t from, const int64_t to)
{
    return (double)(to - from) / (double)ECH_NS_PER_MS;
}

/* Wall clock, to be set beside other logs; durations in the line are monotonic. */
static ech_status put_time(ech_buf *const b)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return ech_buf_printf(b, "{\"time\":%lld.%03ld,", (long long)now.tv_sec, now.tv_nsec / 1000000);
}

/*
 * What a generation used, how long it waited, how it ended. A client that left has read no end.
 * ttft_ms runs from the arrival, queue_ms from the submission: the difference is what the
 * prompt's making took.
 */
static ech_status put_generation(ech_buf *const b, const ech_exchange *const x)
{
    const ech_usage *const u = &x->usage;
    const bool is_done = u->finished_ns != 0;
    ECH_TRY(ech_buf_printf(b,
                           ",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"completion_tokens\":%u,"
                           "\"finish\":\"%s\"",
                           is_done ? u->prompt_tokens : x->view.prompt_tokens, u->cached_tokens,
                           is_done ? u->completion_tokens : x->view.completion_tokens,
                           is_done && x->finish_name != NULL ? x->finish_name : "cancelled"));
    if (is_done && u->started_ns != 0)
        ECH_TRY(ech_buf_printf(b, ",\"queue_ms\":%.1f", ms_between(u->queued_ns, u->started_ns)));
    if (is_done && u->first_token_ns != 0)
        ECH_TRY(
            ech_buf_printf(b, ",\"ttft_ms\":%.1f", ms_between(x->started_ns, u->first_token_ns)));
    return ECH_OK;
}

/* A client's own id is its own business: any bytes, so it is cut and written as JSON. */
static ech_status put_client_ids(ech_buf *const b, const ech_exchange *const x)
{
    const char *const id = ech_http_header(x, "x-request-id");
    if (id != NULL) {
        char cut[129];
        (void)snprintf(cut, sizeof cut, "%s", id);
        ECH_TRY(ech_buf_puts(b, ",\"client_id\":"));
        ECH_TRY(ech_json_put_cstring(b, cut));
    }
    /* 00-TRACE-PARENT-FLAGS; checked when it came. */
    if (x->trace_parent != NULL)
        ECH_TRY(ech_buf_printf(b, ",\"trace\":\"%.32s\",\"parent\":\"%.16s\"", x->trace_parent + 3,
                               x->trace_parent + 36));
    return ECH_OK;
}

/*
 * What was asked and answered: only where --audit-text asks for it. From the parsed JSON and not
 * from the bytes: the line stays one line of valid JSON whatever was sent.
 */
static ech_status put_texts(ech_buf *const b, const ech_exchange *const x)
{
    const ech_generation *const g = x->gen;
    if (x->json != NULL) {
        char *const body = json_dumps(x->json, JSON_COMPACT | JSON_ENSURE_ASCII);
        const ech_status rc = body != NULL ? ech_buf_printf(b, ",\"body\":%s", body) : ECH_ENOMEM;
        free(body);
        ECH_TRY(rc);
    }
    if (g == NULL || g->choices == NULL) return ECH_OK;
    ECH_TRY(ech_buf_puts(b, ",\"text\":["));
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const ech_buf *const text = &g->choices[i].text[ECH_CHANNEL_CONTENT];
        if (i > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(ech_json_put_string(b, text->data != NULL ? text->data : "", text->len));
    }
    return ech_buf_push(b, ']');
}

static ech_status put_line(ech_buf *const b, const ech_exchange *const x)
{
    ECH_TRY(put_time(b));
    ECH_TRY(ech_buf_printf(b, "\"request\":\"%s\",\"key\":", x->id));
    ECH_TRY(ech_json_put_cstring(b, x->key != NULL ? x->key->name : ""));
    ECH_TRY(ech_buf_puts(b, ",\"route\":"));
    ECH_TRY(ech_json_put_cstring(b, x->route != NULL ? x->route->path : ""));
    ECH_TRY(ech_buf_printf(b, ",\"status\":%d,\"ms\":%.1f", x->status,
                           ms_between(x->started_ns, ech_now_ns())));
    ECH_TRY(put_client_ids(b, x));
    if (x->request != NULL) ECH_TRY(put_generation(b, x));
    if (x->server->options.audit_text) ECH_TRY(put_texts(b, x));
    return ech_buf_puts(b, "}\n");
}

static void write_line(const ech_server *const server, const ech_buf *const line)
{
    /* A line that can't be written has nowhere to be reported. */
    const ssize_t n = write(server->audit_fd, line->data, line->len);
    (void)n;
}

/* A line that memory doesn't suffice for is lost; the request isn't. */
void ech_audit_write(const ech_exchange *const x)
{
    if (x->server->audit_fd < 0) return;
    ech_buf line = { 0 };
    if (put_line(&line, x) == ECH_OK) write_line(x->server, &line);
    ech_buf_fini(&line);
}

/* Counts as a request too, though no route ever saw it: attacks show in the metrics. */
void ech_audit_write_refused(ech_server *const server, const char *const id, const int status,
                             const char *const code)
{
    (void)ech_fetch_add_relaxed(&server->http_requests, 1);
    (void)ech_fetch_add_relaxed(&server->http_errors[status / 100], 1);
    if (server->audit_fd < 0) return;
    ech_buf line = { 0 };
    if (put_time(&line) == ECH_OK &&
        ech_buf_printf(&line,
                       "\"request\":\"%s\",\"key\":\"\",\"route\":\"\",\"status\":%d,"
                       "\"refused\":\"%s\"}\n",
                       id, status, code) == ECH_OK)
        write_line(server, &line);
    ech_buf_fini(&line);
}
