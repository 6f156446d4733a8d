/* SPDX-License-Identifier: Apache-2.0 */
/* The way from other threads to the engine's. See inbox.h. */
#include "src/engine/inbox.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/engine/request.h"

ech_status ech_inbox_create(ech_inbox **ret_inbox, ech_error *err)
{
    ech_inbox *const inbox = calloc(1, sizeof *inbox);
    if (inbox == NULL) return ech_fail(err, ECH_ENOMEM, "making an engine: out of memory");
    inbox->refs = 1;
    (void)pthread_mutex_init(&inbox->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&inbox->bell, &monotonic);
    (void)pthread_cond_init(&inbox->called, NULL);
    (void)pthread_condattr_destroy(&monotonic);
    *ret_inbox = inbox;
    return ECH_OK;
}

void ech_inbox_ref(ech_inbox *inbox)
{
    (void)pthread_mutex_lock(&inbox->lock);
    inbox->refs++;
    (void)pthread_mutex_unlock(&inbox->lock);
}

void ech_inbox_unref(ech_inbox **inbox)
{
    ech_inbox *const b = *inbox;
    if (b == NULL) return;
    *inbox = NULL;
    (void)pthread_mutex_lock(&b->lock);
    const bool is_last = --b->refs == 0;
    (void)pthread_mutex_unlock(&b->lock);
    if (!is_last) return;
    (void)pthread_mutex_destroy(&b->lock);
    (void)pthread_cond_destroy(&b->bell);
    (void)pthread_cond_destroy(&b->called);
    free(b);
}

static ech_status check_room(ech_inbox *b, uint32_t n_choices, uint64_t n_ids, ech_error *err)
{
    if (b->failed.code != ECH_OK) {
        if (err != NULL) *err = b->failed;
        return b->failed.code;
    }
    if (b->is_closed)
        return ech_fail(err, ECH_ESTATE, "submitting a request: the engine is closed");
    if (b->waiting + (uint64_t)n_choices > b->max_waiting)
        return ech_fail(
            err, ECH_EBUSY,
            "submitting a request of %u choices: %u wait, at most %u may; try again later",
            n_choices, b->waiting, b->max_waiting);
    if (b->waiting > 0 && b->waiting_ids + n_ids > b->max_waiting_ids)
        return ech_fail(err, ECH_EBUSY,
                        "submitting a request of %llu prompt tokens: %llu wait, at most %llu may; "
                        "try again later",
                        (unsigned long long)n_ids, (unsigned long long)b->waiting_ids,
                        (unsigned long long)b->max_waiting_ids);
    return ECH_OK;
}

ech_status ech_inbox_put(ech_inbox *b, ech_request *request, uint32_t n_choices, uint64_t n_ids,
                         ech_error *err)
{
    (void)pthread_mutex_lock(&b->lock);
    const ech_status rc = check_room(b, n_choices, n_ids, err);
    if (rc == ECH_OK) {
        request->id = ++b->n_requests;
        request->next_new = NULL;
        if (b->tail != NULL)
            b->tail->next_new = request;
        else
            b->head = request;
        b->tail = request;
        b->waiting += n_choices;
        b->waiting_ids += n_ids;
        (void)pthread_cond_signal(&b->bell);
    } else {
        b->n_refused++;
    }
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

void ech_inbox_started(ech_inbox *b, uint32_t n_choices, uint64_t n_ids)
{
    (void)pthread_mutex_lock(&b->lock);
    ECH_ASSERT(b->waiting >= n_choices && b->waiting_ids >= n_ids);
    b->waiting -= n_choices;
    b->waiting_ids -= n_ids;
    (void)pthread_mutex_unlock(&b->lock);
}

void ech_inbox_ring(ech_inbox *b)
{
    (void)pthread_mutex_lock(&b->lock);
    b->has_rung = true;
    (void)pthread_cond_signal(&b->bell);
    (void)pthread_mutex_unlock(&b->lock);
}

ech_request *ech_inbox_take(ech_inbox *b, int64_t deadline_ns, bool *ret_rung)
{
    const struct timespec until = { .tv_sec = deadline_ns / ECH_NS_PER_S,
                                    .tv_nsec = deadline_ns % ECH_NS_PER_S };
    (void)pthread_mutex_lock(&b->lock);
    while (deadline_ns > 0 && b->head == NULL && b->calls == NULL && !b->has_rung)
        if (pthread_cond_timedwait(&b->bell, &b->lock, &until) != 0) break;
    ech_request *const first = b->head;
    b->head = b->tail = NULL;
    *ret_rung = b->has_rung;
    b->has_rung = false;
    (void)pthread_mutex_unlock(&b->lock);
    return first;
}

ech_status ech_inbox_call_and_wait(ech_inbox *b, void (*fn)(void *arg), void *arg, ech_error *err)
{
    ech_inbox_call call = { .fn = fn, .arg = arg };
    (void)pthread_mutex_lock(&b->lock);
    const bool is_closed = b->is_closed;
    if (!is_closed) {
        call.next = b->calls;
        b->calls = &call;
        (void)pthread_cond_signal(&b->bell);
        while (!call.is_done)
            (void)pthread_cond_wait(&b->called, &b->lock);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return is_closed ? ech_fail(err, ECH_ESTATE, "asking the engine: it is closed") : ECH_OK;
}

void ech_inbox_serve(ech_inbox *b)
{
    (void)pthread_mutex_lock(&b->lock);
    ech_inbox_call *call;
    while ((call = b->calls) != NULL) {
        b->calls = call->next;
        (void)pthread_mutex_unlock(&b->lock);
        call->fn(call->arg);
        (void)pthread_mutex_lock(&b->lock);
        call->is_done = true; /* its memory is the waiter's: not touched after this */
        (void)pthread_cond_broadcast(&b->called);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

void ech_inbox_fail(ech_inbox *b, const ech_error *why)
{
    (void)pthread_mutex_lock(&b->lock);
    if (why != NULL)
        b->failed = *why;
    else
        b->is_closed = true;
    (void)pthread_mutex_unlock(&b->lock);
}

void ech_inbox_heal(ech_inbox *b)
{
    (void)pthread_mutex_lock(&b->lock);
    b->failed.code = ECH_OK;
    (void)pthread_mutex_unlock(&b->lock);
}
