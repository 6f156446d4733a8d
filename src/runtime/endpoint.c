/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: see endpoint.h. */
#include "src/runtime/endpoint.h"

#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/process.h"

bool ech_endpoint_has_news(const ech_endpoint *const ep)
{
    if (ep->head == ep->tail) return false;
    /* Only a hint: collect loads it again, with acquire. */
    return ech_load_relaxed(&ep->mail->frames[ep->tail % ECH_FRAMES].state) == ECH_FRAME_DONE;
}

ech_frame *ech_endpoint_stage(ech_endpoint *const ep, const ech_identity *const id,
                              const ech_slot *const slot, const uint16_t member,
                              const uint32_t callable_generation)
{
    ech_frame *const f = &ep->mail->frames[ep->head % ECH_FRAMES];
    const ech_slot_args *const a =
        slot->kind == ECH_SLOT_GROUP ? &slot->member_args[member] : &slot->args;
    f->id = *id;
    f->callable = slot->callable;
    f->callable_generation = callable_generation;
    f->member = member;
    f->n_tensors = (uint16_t)a->n_tensors;
    f->n_scalars = (uint16_t)a->n_scalars;
    f->result = ECH_OK;
    if (a->n_scalars > 0) f->scalar0 = a->scalars[0];
    if (a->n_scalars > 1) memcpy(f->scalars, a->scalars, a->n_scalars * sizeof *a->scalars);
    if (a->n_tensors > 0) memcpy(f->tensors, a->tensors, a->n_tensors * sizeof *a->tensors);
    ech_store_relaxed(&f->state, ECH_FRAME_STAGED);
    ep->in_flight[ep->head % ECH_FRAMES] = (ech_in_flight){ .id = *id, .member = member };
    ep->head++;
    return f;
}

void ech_endpoint_activate(ech_endpoint *const ep, ech_frame *const frame)
{
    /* Partner: the acquire load of the child's loop; it sees the payload that stage wrote. */
    ech_store_release(&frame->state, ECH_FRAME_READY);
    ech_mailbox_ring(ep->mail);
}

static bool same(const ech_identity *const a, const ech_identity *const b)
{
    return a->dispatch_id == b->dispatch_id && a->run_id == b->run_id && a->slot == b->slot &&
           a->generation == b->generation;
}

/* A sticky word, so that it is seen even when the task was done before anybody looked. */
static void report_accepted(ech_endpoint *const ep, ech_in_flight *const fl,
                            const ech_frame *const f, const ech_completion_sink *const sink)
{
    if (fl->accepted || (ech_load_relaxed(&f->accepted) != (uint32_t)fl->id.dispatch_id &&
                         ech_load_relaxed(&ep->mail->accepted) < fl->id.dispatch_id))
        return;
    fl->accepted = true;
    sink->accepted(sink->ctx, ep, &fl->id);
}

static void poison_stale(ech_endpoint *const ep, const ech_frame *const f,
                         const ech_in_flight *const fl)
{
    ech_error why = { 0 };
    (void)ech_fail(&why, ECH_EPOISONED,
                   "taking a completion of child %u: it names dispatch %llu of run %llu, slot "
                   "%u/%u, but %llu of run %llu, slot %u/%u was handed over; replace the child",
                   ep->child, (unsigned long long)f->done_id, (unsigned long long)f->id.run_id,
                   f->id.slot, f->id.generation, (unsigned long long)fl->id.dispatch_id,
                   (unsigned long long)fl->id.run_id, fl->id.slot, fl->id.generation);
    ech_endpoint_poison(ep, &why, true);
}

void ech_endpoint_collect(ech_endpoint *const ep, const ech_completion_sink *const sink)
{
    while (ep->head != ep->tail && !ep->distrusted) {
        ech_frame *const f = &ep->mail->frames[ep->tail % ECH_FRAMES];
        ech_in_flight *const fl = &ep->in_flight[ep->tail % ECH_FRAMES];
        /* Partner: the release store of the child when it has written the result. */
        if (ech_load_acquire(&f->state) != ECH_FRAME_DONE) {
            report_accepted(ep, fl, f, sink);
            return;
        }
        if (!same(&f->id, &fl->id) || f->done_id != fl->id.dispatch_id) {
            poison_stale(ep, f, fl);
            return;
        }
        report_accepted(ep, fl, f, sink);
        ech_completion c = { .id = fl->id, .member = fl->member, .result = (ech_status)f->result };
        if (c.result != ECH_OK) {
            f->error[sizeof f->error - 1] = '\0'; /* the child's bytes */
            c.text = f->error;
        }
        c.t_start = f->t_start;
        c.t_end = f->t_end;
        ep->tail++;
        ep->seen_ns = 0;
        sink->completed(sink->ctx, ep, &c);
    }
}

void ech_endpoint_poison(ech_endpoint *const ep, const ech_error *const why, const bool distrust)
{
    if (ep->state != ECH_CHILD_READY) return;
    ep->state = ECH_CHILD_POISONED;
    ep->lost = *why;
    if (!distrust) return;
    ep->distrusted = true;
    /* The zygote reaps only what the worker has read, so the pid can't be another's. */
    ech_os_kill(ep->pid, true);
}

void ech_endpoint_lose(ech_endpoint *const ep, const ech_error *const why,
                       const ech_completion_sink *const sink)
{
    if (ep->state != ECH_CHILD_POISONED) {
        ep->state = ECH_CHILD_LOST;
        ep->lost = *why;
    }
    ep->seen_ns = 0;
    while (ep->head != ep->tail) {
        const ech_in_flight *const fl = &ep->in_flight[ep->tail % ECH_FRAMES];
        const ech_completion c = {
            .id = fl->id, .member = fl->member, .result = ep->lost.code, .text = ep->lost.text
        };
        ep->tail++;
        sink->completed(sink->ctx, ep, &c);
    }
}

void ech_endpoint_reset(ech_endpoint *const ep, const uint32_t generation)
{
    ep->tasks += ep->mail->tasks;
    ech_mailbox_reset(ep->mail, ep->child, generation);
    ep->generation = generation;
    ep->pid = ep->wait_status = 0;
    ep->reaped = ep->stall_logged = false;
    ep->head = ep->tail = 0;
    ep->seen_progress = 0;
    ep->seen_ns = 0;
    ep->reserved_ns = 0;
    ep->control_poisoned = ep->distrusted = ep->stopping = false;
    ep->state = ECH_CHILD_STARTING;
    ep->lost = (ech_error){ 0 };
}

void ech_endpoint_name(const ech_endpoint *const ep, const char *const worker,
                       const uint32_t n_next, char *const out, const size_t cap)
{
    static const char *const kinds[] = { "chip", "worker", "sub" };
    (void)snprintf(out, cap, "%s %u of %s", kinds[ep->kind],
                   ep->kind == ECH_ENDPOINT_SUB ? ep->child - n_next : ep->child, worker);
}
