/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as the caller holds them: events, cancel, close. Their making is submit.c's. See
 * request.h for who owns what.
 */
#include "src/engine/request.h"

#include <stdlib.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"

void ech_request_ref(ech_request *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->refs++;
    (void)pthread_mutex_unlock(&r->lock);
}

static void free_request(ech_request *r)
{
    for (uint32_t i = 0; r->answers != NULL && i < r->n_answers; i++) {
        ech_parser_destroy(&r->answers[i].parser);
        ech_embed_end(&r->answers[i].embed);
        free(r->answers[i].seq.ids);
        free(r->answers[i].seq.pages);
    }
    free(r->answers);
    ech_constraint_unref(&r->constraint);
    ech_event_queue_fini(&r->events);
    ech_arena_fini(&r->arena);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    ech_inbox_unref(&r->inbox);
    free(r);
}

void ech_request_unref(ech_request **request)
{
    ech_request *const r = *request;
    if (r == NULL) return;
    *request = NULL;
    (void)pthread_mutex_lock(&r->lock);
    const bool is_last = --r->refs == 0;
    (void)pthread_mutex_unlock(&r->lock);
    if (is_last) free_request(r);
}

/* ---- the engine's side ---- */

void ech_request_event(ech_request *r, ech_event *ev)
{
    ev->time_ns = ech_now_ns();
    (void)pthread_mutex_lock(&r->lock);
    if (r->is_closed) {
        (void)pthread_mutex_unlock(&r->lock);
        return;
    }
    const bool was_empty = ech_event_queue_unread(&r->events) == 0;
    if (ech_event_queue_push(&r->events, ev) != ECH_OK) {
        r->lost_event = true;
        ech_store_relaxed(&r->cancel_wanted, 1);
    }
    ech_store_relaxed(&r->unread_bytes, ech_event_queue_unread(&r->events));
    const bool tells = was_empty && r->notify != NULL;
    r->n_callbacks += tells;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    if (!tells) return;
    r->notify(r->notify_ctx);
    (void)pthread_mutex_lock(&r->lock);
    r->n_callbacks--;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

void ech_request_let_go(ech_request *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->engine_let_go = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    ech_request_unref(&r);
}

/* ---- the caller's side ---- */

void ech_request_cancel(ech_request *request)
{
    ech_store_relaxed(&request->cancel_wanted, 1);
    ech_inbox_ring(request->inbox);
}

void ech_request_close(ech_request **request)
{
    ech_request *r;
    if (request == NULL || (r = *request) == NULL) return;
    *request = NULL;
    (void)pthread_mutex_lock(&r->lock);
    r->is_closed = true;
    const bool is_over = r->engine_let_go;
    (void)pthread_mutex_unlock(&r->lock);
    if (!is_over) ech_request_cancel(r);
    (void)pthread_mutex_lock(&r->lock);
    while (r->n_callbacks > 0 || (r->hook != NULL && !r->engine_let_go))
        (void)pthread_cond_wait(&r->changed, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
    ech_request_unref(&r);
}

uint64_t ech_request_id(const ech_request *request)
{
    return request->id;
}

/* Waits with the lock held until there is an event. False when the time is up. */
static bool wait_for_event(ech_request *r, int timeout_ms)
{
    const int64_t end = ech_now_ns() + timeout_ms * ECH_NS_PER_MS;
    const struct timespec until = { .tv_sec = end / ECH_NS_PER_S, .tv_nsec = end % ECH_NS_PER_S };
    while (ech_event_queue_unread(&r->events) == 0 && !r->lost_event) {
        if (timeout_ms == 0) return false;
        if (timeout_ms < 0)
            (void)pthread_cond_wait(&r->changed, &r->lock);
        else if (pthread_cond_timedwait(&r->changed, &r->lock, &until) != 0)
            return ech_event_queue_unread(&r->events) > 0;
    }
    return true;
}

ech_status ech_request_next(ech_request *r, int timeout_ms, ech_event *ret_event, ech_error *err)
{
    ech_status rc = ECH_OK;
    (void)pthread_mutex_lock(&r->lock);
    if (r->done_was_read)
        rc = ech_fail(err, ECH_ESTATE, "reading an event: the request's last one was read");
    else if (!wait_for_event(r, timeout_ms))
        rc = ech_fail(err, ECH_ETIMEOUT, "reading an event: there is none yet");
    else if (!ech_event_queue_pop(&r->events, ret_event))
        rc = ech_fail(err, ECH_ENOMEM, "reading an event: there was no memory to keep it");
    else
        r->done_was_read = ret_event->kind == ECH_EVENT_DONE;
    const size_t unread = ech_event_queue_unread(&r->events);
    ech_store_relaxed(&r->unread_bytes, unread);
    /* The engine's thread sets it when it takes the request out of the batch, and looks again
     * after that, so that one of the two sees that the reader has caught up. Whoever clears it
     * rings: the request is put back because it is clear. */
    ech_fence(); /* with the one in live.c */
    const bool rings = unread == 0 && ech_exchange(&r->is_behind, 0) != 0;
    (void)pthread_mutex_unlock(&r->lock);
    if (rings) ech_inbox_ring(r->inbox);
    return rc;
}

const char *ech_finish_name(ech_finish finish)
{
    switch (finish) {
    case ECH_FINISH_STOP:
        return "stop";
    case ECH_FINISH_LENGTH:
        return "length";
    case ECH_FINISH_CANCELLED:
        return "cancelled";
    case ECH_FINISH_ERROR:
        return "error";
    case ECH_FINISH_NONE:
        break;
    }
    return "";
}
