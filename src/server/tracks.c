/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in the trace; see tracks.h. The trace is a JSON object that ends in
 * `],"otherData":{…}}`; the events go before that end, on its clock, whose origin stands there.
 *
 * Loop thread while the server runs, afterwards whoever closes it. The engine has written its
 * trace by the time, and a trace may be large: so only its end is read and written over.
 */
#include "src/server/tracks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/server/route.h"

/* What is kept; 13 MB. A trace of more is cut, and says so. */
#define MAX_TRACKS 65536
#define MAX_END    256

struct ech_track {
    char id[ECH_REQUEST_ID_LEN + 1];
    char parent[56]; /* traceparent; "" */
    const char *path;
    int64_t begin_ns, started_ns, first_ns, end_ns; /* 0: never */
    uint32_t prompt_tokens, completion_tokens;
};

/*
 * Called at the end of a request; nothing is written while clients wait. Beyond the bound
 * requests are counted only.
 */
void ech_tracks_add(ech_tracks *const s, const ech_exchange *const x)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 256 : 2 * s->cap;
        ech_track *const items = cap <= MAX_TRACKS ? realloc(s->items, cap * sizeof *items) : NULL;
        if (items == NULL) {
            s->n_dropped++;
            return;
        }
        s->items = items;
        s->cap = cap;
    }
    const ech_usage *const u = &x->usage;
    ech_track *const p = &s->items[s->n++];
    *p = (ech_track){
        .path = x->route->path,
        .begin_ns = x->started_ns,
        .started_ns = u->started_ns,
        .first_ns = u->first_token_ns,
        .end_ns = u->finished_ns != 0 ? u->finished_ns : ech_now_ns(),
        .prompt_tokens = u->prompt_tokens,
        .completion_tokens = u->completion_tokens,
    };
    memcpy(p->id, x->id, sizeof p->id);
    if (x->trace_parent != NULL) (void)snprintf(p->parent, sizeof p->parent, "%s", x->trace_parent);
}

/* An event of the request's own row: b begins, n is a moment, e ends. */
static void put(FILE *const f, const ech_track *const p, const char phase, const char *const name,
                const int64_t at_ns, const int64_t origin_ns)
{
    (void)fprintf(f,
                  ",\n{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"%c\",\"id\":\"%s\",\"pid\":0,"
                  "\"tid\":0,\"ts\":%.3f",
                  name, phase, p->id, (double)(at_ns - origin_ns) / 1e3);
    if (phase == 'b')
        (void)fprintf(f,
                      ",\"args\":{\"request\":\"%s\",\"traceparent\":\"%s\",\"prompt_tokens\":%u,"
                      "\"completion_tokens\":%u}",
                      p->id, p->parent, p->prompt_tokens, p->completion_tokens);
    (void)fputc('}', f);
}

static void put_all(FILE *const f, const ech_tracks *const s, const int64_t origin_ns)
{
    for (size_t i = 0; i < s->n; i++) {
        const ech_track *const p = &s->items[i];
        put(f, p, 'b', p->path, p->begin_ns, origin_ns);
        if (p->started_ns != 0) put(f, p, 'n', "first step", p->started_ns, origin_ns);
        if (p->first_ns != 0) put(f, p, 'n', "first token", p->first_ns, origin_ns);
        put(f, p, 'e', p->path, p->end_ns, origin_ns);
    }
}

/*
 * Reads the file's end from its `],` on, and leaves the file there. The engine's writer puts
 * this end there; another file under the name isn't touched.
 */
static bool find_end(FILE *const f, char *const end, long *const ret_at,
                     int64_t *const ret_origin_ns)
{
    char tail[MAX_END + 1];
    if (fseek(f, 0, SEEK_END) != 0) return false;
    const long size = ftell(f);
    const long from = size > MAX_END ? size - MAX_END : 0;
    if (size < 0 || fseek(f, from, SEEK_SET) != 0) return false;
    tail[fread(tail, 1, MAX_END, f)] = '\0';
    const char *const at = strstr(tail, "\n],\"otherData\":");
    const char *const origin = at != NULL ? strstr(at, "\"origin_ns\":") : NULL;
    if (origin == NULL) return false;
    *ret_origin_ns = strtoll(origin + strlen("\"origin_ns\":"), NULL, 10);
    (void)snprintf(end, MAX_END + 1, "%s", at);
    *ret_at = from + (long)(at - tail);
    return fseek(f, *ret_at, SEEK_SET) == 0;
}

/* The file as it was before: its end takes no place that it didn't have. */
static bool put_back(const char *const path, const char *const end, const long at)
{
    const size_t len = strlen(end);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool ok =
        fd >= 0 && pwrite(fd, end, len, at) == (ssize_t)len && ftruncate(fd, at + (off_t)len) == 0;
    if (fd >= 0) (void)close(fd);
    return ok;
}

/* Where it fails for want of space, half of the requests would make the whole no JSON. */
static ech_status put_before_end(FILE *const f, const ech_tracks *const s, const char *const path,
                                 const char *const end, const long at, const int64_t origin_ns,
                                 ech_error *const err)
{
    put_all(f, s, origin_ns);
    (void)fputs(end, f);
    const bool failed = fflush(f) != 0 || ferror(f) != 0;
    if (fclose(f) == 0 && !failed) return ECH_OK;
    const ech_status rc = ech_fail_errno(err, ECH_EIO, "adding requests to the trace %s", path);
    if (!put_back(path, end, at)) (void)ech_error_prefix(err, rc, "the trace is broken");
    return rc;
}

/* Without requests the file stays as the engine has written it. */
ech_status ech_tracks_write(const ech_tracks *const s, const char *const path, ech_error *const err)
{
    char end[MAX_END + 1];
    long at;
    int64_t origin_ns;
    if (s->n == 0) return ECH_OK;
    FILE *const f = fopen(path, "r+e");
    if (f == NULL) return ech_fail_errno(err, ECH_EIO, "adding requests to the trace %s", path);
    if (find_end(f, end, &at, &origin_ns))
        return put_before_end(f, s, path, end, at, origin_ns, err);
    (void)fclose(f);
    return ech_fail(err, ECH_EFORMAT,
                    "adding requests to the trace %s: it doesn't end as it should", path);
}

void ech_tracks_fini(ech_tracks *const s)
{
    free(s->items);
    *s = (ech_tracks){ 0 };
}
