/* SPDX-License-Identifier: Apache-2.0 */
/* Dependency dumps: see deps.h. */
#include "src/runtime/deps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/runtime/node.h"

typedef struct dep_node {
    uint32_t serial;
    int32_t child;
    uint8_t kind, state, depth, poisoned;
    char label[ECH_LABEL_BYTES];
} dep_node;

typedef struct dep_edge {
    uint32_t from, to; /* serials */
} dep_edge;

struct ech_deps {
    dep_node *nodes;
    dep_edge *edges;
    uint32_t n_nodes, cap_nodes, n_edges, cap_edges;
    bool incomplete; /* no memory for all of it */
};

ech_deps *ech_deps_new(const ech_worker *const w)
{
    (void)w;
    return ech_mem_alloc(1, sizeof(ech_deps));
}

void ech_deps_free(ech_deps **const deps)
{
    if (*deps == NULL) return;
    free((*deps)->nodes);
    free((*deps)->edges);
    free(*deps);
    *deps = NULL;
}

/* Room for one more; false when there is no memory. */
static bool room(void **const items, const uint32_t n, uint32_t *const cap, const size_t size)
{
    if (n < *cap) return true;
    const uint32_t more = *cap ? *cap * 2 : 64;
    void *const p = ech_mem_alloc(more, size);
    if (p == NULL) return false;
    if (n > 0) memcpy(p, *items, n * size);
    free(*items);
    *items = p;
    *cap = more;
    return true;
}

void ech_deps_edge(ech_deps *const d, const ech_slot *const producer,
                   const ech_slot *const consumer)
{
    if (d == NULL) return;
    if (!room((void **)&d->edges, d->n_edges, &d->cap_edges, sizeof *d->edges)) {
        d->incomplete = true;
        return;
    }
    d->edges[d->n_edges++] = (dep_edge){ producer->serial, consumer->serial };
}

void ech_deps_terminal(ech_deps *const d, const ech_slot *const s)
{
    if (d == NULL) return;
    if (!room((void **)&d->nodes, d->n_nodes, &d->cap_nodes, sizeof *d->nodes)) {
        d->incomplete = true;
        return;
    }
    dep_node *const n = &d->nodes[d->n_nodes++];
    *n = (dep_node){ .serial = s->serial,
                     .child = s->child,
                     .kind = s->kind,
                     .state = (uint8_t)s->state,
                     .depth = s->depth,
                     .poisoned = s->poisoned };
    memcpy(n->label, s->label, sizeof n->label);
}

static const char *kind_name(const uint8_t kind)
{
    static const char *const names[] = { "single", "group", "sub", "gate", "alloc", "local" };
    return kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* Labels come from the owner: what JSON and DOT can't hold in a string is replaced. */
static void plain(const char *const label, char out[ECH_LABEL_BYTES])
{
    for (size_t i = 0; i < ECH_LABEL_BYTES; i++) {
        const char c = label[i];
        out[i] = c == '"' || c == '\\' || (c > 0 && c < 32) || c < 0 ? '_' : c;
    }
    out[ECH_LABEL_BYTES - 1] = '\0';
}

static ech_status put_dot(ech_buf *const b, const ech_deps *const d, const uint64_t run)
{
    char label[ECH_LABEL_BYTES];
    ECH_TRY(ech_buf_printf(b, "digraph run_%llu {\n", (unsigned long long)run));
    for (uint32_t i = 0; i < d->n_nodes; i++) {
        const dep_node *const n = &d->nodes[i];
        plain(n->label, label);
        ECH_TRY(ech_buf_printf(b, "  t%u [label=\"%u %s\\n%s, child %d\"%s];\n", n->serial,
                               n->serial, label, kind_name(n->kind), n->child,
                               n->state == ECH_SLOT_FAILED ? ", color=red" : ""));
    }
    for (uint32_t i = 0; i < d->n_edges; i++)
        ECH_TRY(ech_buf_printf(b, "  t%u -> t%u;\n", d->edges[i].from, d->edges[i].to));
    return ech_buf_puts(b, "}\n");
}

static ech_status put_json(ech_buf *const b, const ech_deps *const d, const uint64_t run)
{
    char label[ECH_LABEL_BYTES];
    ECH_TRY(ech_buf_printf(b, "{\"run\": %llu, \"complete\": %s, \"tasks\": [",
                           (unsigned long long)run, d->incomplete ? "false" : "true"));
    for (uint32_t i = 0; i < d->n_nodes; i++) {
        const dep_node *const n = &d->nodes[i];
        plain(n->label, label);
        ECH_TRY(ech_buf_printf(
            b,
            "%s\n  {\"task\": %u, \"label\": \"%s\", \"kind\": \"%s\", \"child\": %d, "
            "\"depth\": %u, \"state\": \"%s\", \"poisoned\": %s}",
            i ? "," : "", n->serial, label, kind_name(n->kind), n->child, n->depth,
            ech_slot_state_name(n->state), n->poisoned ? "true" : "false"));
    }
    ECH_TRY(ech_buf_puts(b, "],\n \"edges\": ["));
    for (uint32_t i = 0; i < d->n_edges; i++)
        ECH_TRY(ech_buf_printf(b, "%s[%u, %u]", i ? ", " : "", d->edges[i].from, d->edges[i].to));
    return ech_buf_puts(b, "]}\n");
}

static ech_status write_file(const char *const path, const ech_buf *const b, ech_error *const err)
{
    FILE *const f = fopen(path, "we");
    if (f == NULL) return ech_fail_errno(err, ECH_EIO, "writing %s", path);
    const bool ok = fwrite(b->data, 1, b->len, f) == b->len;
    if (fclose(f) != 0 || !ok) return ech_fail_errno(err, ECH_EIO, "writing %s", path);
    return ECH_OK;
}

void ech_worker_deps_set(ech_worker *const w, const bool enabled)
{
    pthread_mutex_lock(&w->lock);
    w->keep_deps = enabled;
    pthread_mutex_unlock(&w->lock);
}

ech_status ech_run_deps_write(const ech_run *const run, const char *const path,
                              ech_error *const err)
{
    ech_buf b = { 0 };
    ech_worker *const w = run->worker;
    const size_t len = strlen(path);
    const bool dot = len >= 4 && strcmp(path + len - 4, ".dot") == 0;
    pthread_mutex_lock(&w->lock);
    ech_status rc = ECH_OK;
    if (run->deps == NULL || !run->done) {
        rc = ech_fail(err, ECH_ESTATE,
                      "writing the graph of run %llu: it %s; see ech_worker_deps_set()",
                      (unsigned long long)run->id, run->done ? "was not kept" : "still runs");
    } else {
        rc = dot ? put_dot(&b, run->deps, run->id) : put_json(&b, run->deps, run->id);
        if (rc != ECH_OK) (void)ech_fail(err, rc, "writing the graph of a run: out of memory");
    }
    pthread_mutex_unlock(&w->lock);
    if (rc == ECH_OK) rc = write_file(path, &b, err);
    ech_buf_fini(&b);
    return rc;
}
