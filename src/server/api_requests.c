/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /requests, DELETE /requests/{id}: what runs and waits, and the end of one of them.
 *
 * Inline on the loop thread. The watcher's list holds what there is of exchanges; its lock
 * guards them while they are looked at, and an exchange leaves the list before it is freed.
 * Prompts and answers are not shown: an operator sees what costs, not what is said.
 */
#include <string.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/*
 * completion_tokens counts tokens drawn so far, over all choices; prompt_tokens is 0 until the
 * engine has queued the request.
 */
static ech_status put_request(ech_buf *const b, const ech_exchange *const x, const bool is_first)
{
    const ech_watch_view *const v = &x->view;
    ECH_TRY(ech_buf_printf(b,
                           "%s{\"id\":\"%s\",\"state\":\"%s\",\"age_ms\":%lld,\"prompt_tokens\":%u,"
                           "\"completion_tokens\":%u,\"key\":",
                           is_first ? "" : ",", x->id, v->has_started ? "running" : "queued",
                           (long long)((ech_now_ns() - x->started_ns) / ECH_NS_PER_MS),
                           v->prompt_tokens, v->completion_tokens));
    ECH_TRY(ech_json_put_cstring(b, x->key != NULL ? x->key->name : ""));
    return ech_buf_push(b, '}');
}

/*
 * The whole walk is under the lock; it writes a short line for each request and waits for
 * nothing. An exchange without a request (its prompt is being made) has nothing to cancel yet
 * and isn't listed.
 */
static ech_status put_list(ech_server *const s, ech_buf *const b)
{
    ECH_TRY(ech_buf_puts(b, "{\"object\":\"list\",\"data\":["));
    ech_status rc = ECH_OK;
    bool is_first = true;
    (void)pthread_mutex_lock(&s->watch.lock);
    for (const ech_exchange *x = s->watch.head; x != NULL && rc == ECH_OK; x = x->watch_next) {
        if (x->request == NULL) continue;
        rc = put_request(b, x, is_first);
        is_first = false;
    }
    (void)pthread_mutex_unlock(&s->watch.lock);
    ECH_TRY(rc);
    return ech_buf_puts(b, "]}");
}

/*
 * Every key sees the list, names of the other keys in it; only cancelling is bound to the owner.
 */
void ech_api_requests(ech_exchange *const x)
{
    if (put_list(x->server, &x->reply) == ECH_OK) {
        ech_reply_json(x, 200);
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}

/* An answer's id has the request's id as its tail: both are accepted. */
static bool names(const char *const given, const char *const id)
{
    const size_t n = strlen(given);
    return n >= ECH_REQUEST_ID_LEN && strcmp(given + n - ECH_REQUEST_ID_LEN, id) == 0;
}

/* Keys don't reach each other's requests. By name: a reload makes new keys of the same. */
static bool is_same_owner(const ech_key *const a, const ech_key *const b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a->name, b->name) == 0);
}

/*
 * Asks only: the engine ends the request at its next step, and its own stream ends with an error
 * frame then. 204 says that it was found, not that it is over. Somebody else's request is 404,
 * not 403: who may not touch it learns nothing of it.
 */
void ech_api_cancel(ech_exchange *const x)
{
    ech_watch *const w = &x->server->watch;
    bool found = false;
    (void)pthread_mutex_lock(&w->lock);
    for (ech_exchange *o = w->head; o != NULL && !found; o = o->watch_next) {
        if (o->request == NULL || !names(x->tail, o->id) || !is_same_owner(o->key, x->key))
            continue;
        ech_request_cancel(o->request);
        found = true;
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (!found) {
        ech_reply_error(x, 404, "request_not_found", "id", "no request '%.60s' runs or waits",
                        x->tail);
    } else {
        ech_reply_text(x, 204, NULL);
    }
}
