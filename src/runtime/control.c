/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's end of the control lane: see control.h. The child's is in serve.c. */
#include "src/runtime/control.h"

#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/futex.h"
#include "src/runtime/sched.h"

typedef struct lane {
    ech_endpoint *ep;
    uint32_t generation; /* of the process that got the command */
} lane;

static bool is_gone(const lane *const l)
{
    return l->ep->generation != l->generation || l->ep->state == ECH_CHILD_LOST ||
           l->ep->state == ECH_CHILD_STOPPED || l->ep->distrusted || l->ep->reaped;
}

static bool is_free(ech_worker *const w, void *const ctx)
{
    const lane *const l = ctx;
    (void)w;
    return !l->ep->control_busy || is_gone(l);
}

static bool is_answered(ech_worker *const w, void *const ctx)
{
    const lane *const l = ctx;
    (void)w;
    /* Partner: the child's release store when the answer is complete. */
    return ech_load_acquire(&l->ep->mail->control.state) == ECH_CONTROL_ANSWERED || is_gone(l);
}

static ech_status check_endpoint(const ech_worker *const w, const ech_endpoint *const ep,
                                 ech_error *const err)
{
    if (ep->state == ECH_CHILD_READY && !ep->control_poisoned) return ECH_OK;
    if (ep->state == ECH_CHILD_LOST || ep->state == ECH_CHILD_POISONED)
        return ech_fail(err, ep->lost.code, "sending a command to child %u of %s: %s", ep->child,
                        w->name, ep->lost.text);
    return ech_fail(err, ECH_ESTATE, "sending a command to child %u of %s: it is not ready",
                    ep->child, w->name);
}

static void publish(ech_endpoint *const ep, const int32_t op, const uint32_t arg,
                    const void *const req, const size_t req_len, const size_t cap)
{
    ech_control *const c = &ep->mail->control;
    c->op = op;
    c->arg = arg;
    c->seq++;
    c->len = (uint32_t)req_len;
    c->cap = (uint32_t)(cap < ECH_CONTROL_BYTES ? cap : ECH_CONTROL_BYTES);
    if (req_len > 0) memcpy(c->data, req, req_len);
    ech_store_release(&c->state, (uint32_t)ECH_CONTROL_PENDING);
    ech_mailbox_ring(ep->mail);
    ech_fetch_add(&ep->mail->control_bell, 1);
    ech_os_futex_wake(&ep->mail->control_bell);
}

static ech_status take_answer(ech_endpoint *const ep, void *const resp, const size_t cap,
                              size_t *const ret_len, ech_error *const err)
{
    ech_control *const c = &ep->mail->control;
    const uint32_t len = ech_load_relaxed(&c->len);
    ech_status rc = (ech_status)c->result;
    if (c->answer_seq != c->seq || len > ECH_CONTROL_BYTES) {
        ech_error why = { 0 };
        (void)ech_fail(
            &why, ECH_EPOISONED,
            "taking a command's answer from child %u: number %u, length %u; number %u was "
            "sent",
            ep->child, c->answer_seq, len, c->seq);
        ech_endpoint_poison(ep, &why, true);
        if (err != NULL) *err = why;
        rc = ECH_EPOISONED;
    } else if (rc != ECH_OK) {
        c->error[sizeof c->error - 1] = '\0';
        (void)ech_fail(err, rc, "%s", c->error);
    } else if (len > cap) {
        rc = ech_fail(err, ECH_ELIMIT, "taking a command's answer: %u bytes, there is room for %zu",
                      len, cap);
    } else {
        if (len > 0) memcpy(resp, c->data, len);
        if (ret_len != NULL) *ret_len = len;
    }
    ech_store_relaxed(&c->state, (uint32_t)ECH_CONTROL_IDLE);
    return rc;
}

static ech_status timed_out(ech_worker *const w, ech_endpoint *const ep, const double timeout_s,
                            ech_error *const err)
{
    ech_error why = { 0 };
    (void)ech_fail(&why, ECH_EPOISONED,
                   "child %u of %s didn't answer a command within %g s; replace it", ep->child,
                   w->name, timeout_s);
    ep->control_poisoned = true;
    ech_endpoint_poison(ep, &why, false);
    return ech_fail(err, ECH_ETIMEOUT, "sending a command: %s", why.text);
}

ech_status ech_control_send(ech_worker *const w, const uint32_t child, const int32_t op,
                            const uint32_t arg, const void *const req, const size_t req_len,
                            void *const resp, const size_t cap, size_t *const ret_len,
                            const double timeout_s, ech_error *const err)
{
    ech_endpoint *const ep = &w->endpoints[child];
    lane l = { ep, ep->generation };
    const int64_t deadline = timeout_s >= 0 && timeout_s < 1e9
                                 ? ech_now_ns() + (int64_t)(timeout_s * 1e9)
                                 : ECH_NO_DEADLINE;
    ECH_TRY(check_endpoint(w, ep, err));
    if (ep->control_busy && !ech_sched_wait(w, is_free, &l, deadline))
        return ech_fail(err, ECH_ETIMEOUT,
                        "sending a command to child %u of %s: an earlier one still waits", child,
                        w->name);
    ECH_TRY(check_endpoint(w, ep, err));
    ep->control_busy = true;
    publish(ep, op, arg, req, req_len, cap);
    const bool answered = ech_sched_wait(w, is_answered, &l, deadline);
    ech_status rc;
    if (answered && ep->generation == l.generation &&
        ech_load_acquire(&ep->mail->control.state) == ECH_CONTROL_ANSWERED) {
        rc = take_answer(ep, resp, cap, ret_len, err);
    } else if (answered) {
        rc = check_endpoint(w, ep, err);
        if (rc == ECH_OK)
            rc = ech_fail(err, ECH_ELOST, "sending a command: child %u was replaced", child);
    } else {
        rc = timed_out(w, ep, timeout_s, err);
    }
    ep->control_busy = false;
    ech_sched_kick(w);
    return rc;
}

ech_status ech_worker_control(ech_worker *const w, const uint32_t child, const uint32_t op,
                              const void *const req, const size_t req_len, void *const resp,
                              const size_t cap, size_t *const ret_len, const double timeout_s,
                              ech_error *const err)
{
    ech_lease_guard guard;
    if (child >= w->n_children)
        return ech_fail(err, ECH_EINVAL, "sending a command: child %u is not one of %u", child,
                        w->n_children);
    if (req_len > ECH_CONTROL_BYTES)
        return ech_fail(err, ECH_ELIMIT, "sending a command: %zu bytes, at most %d are possible",
                        req_len, ECH_CONTROL_BYTES);
    if (op > INT32_MAX)
        return ech_fail(err, ECH_EINVAL, "sending a command: op %u is the runtime's", op);
    ECH_TRY(ech_lease_begin(w, "sending a command", &guard, err));
    pthread_mutex_lock(&w->lock);
    const ech_status rc = w->state == ECH_WORKER_READY
                              ? ech_control_send(w, child, (int32_t)op, 0, req, req_len, resp, cap,
                                                 ret_len, timeout_s, err)
                              : ech_fail(err, ECH_ESTATE, "sending a command: %s is %s", w->name,
                                         ech_worker_state_name((ech_worker_state)w->state));
    pthread_mutex_unlock(&w->lock);
    ech_lease_end(w, &guard);
    return rc;
}
