/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes: see mailbox.h. Both sides use this file, each its own words. */
#include "src/runtime/mailbox.h"

#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/futex.h"
#include "src/runtime/shared.h"

void ech_mailbox_reset(ech_mailbox *const m, const uint32_t child, const uint32_t generation)
{
    /* The payloads keep their old bytes: nothing reads them before a state says so. */
    memset(m, 0, offsetof(ech_mailbox, control));
    memset(&m->control, 0, offsetof(ech_control, data));
    for (uint32_t i = 0; i < ECH_FRAMES; i++)
        memset(&m->frames[i], 0, offsetof(ech_frame, scalars));
    m->magic = ECH_MAILBOX_MAGIC;
    m->version = ECH_MAILBOX_VERSION;
    m->bytes = sizeof *m;
    m->child = child;
    m->generation = generation;
}

bool ech_mailbox_valid(const ech_mailbox *const m, const uint32_t child)
{
    return m->magic == ECH_MAILBOX_MAGIC && m->version == ECH_MAILBOX_VERSION &&
           m->bytes == sizeof *m && m->child == child;
}

void ech_mailbox_ring(ech_mailbox *const m)
{
    /*
     * Partner: the child sets `sleeping`, fences, and looks at its frames once more. With the
     * fence here, either it sees what was stored before this call or we see it sleeping.
     */
    ech_fence();
    if (ech_load_relaxed(&m->sleeping) == 0) return;
    ech_fetch_add(&m->doorbell, 1);
    ech_os_futex_wake(&m->doorbell);
}

void ech_mailbox_shutdown(ech_mailbox *const m)
{
    ech_store_release(&m->shutdown, 1);
    ech_fetch_add(&m->doorbell, 1);
    ech_os_futex_wake(&m->doorbell);
    ech_fetch_add(&m->control_bell, 1);
    ech_os_futex_wake(&m->control_bell);
}

ech_status ech_frame_check(const ech_frame *const f, ech_error *const err)
{
    if (f->n_tensors > ECH_MAX_TENSORS || f->n_scalars > ECH_MAX_SCALARS)
        return ech_fail(err, ECH_EFORMAT,
                        "reading a task frame: %u tensors (at most %d) and %u scalars (at most %d)",
                        f->n_tensors, ECH_MAX_TENSORS, f->n_scalars, ECH_MAX_SCALARS);
    if (f->callable >= ECH_MAX_CALLABLES)
        return ech_fail(err, ECH_EFORMAT, "reading a task frame: callable %u is not one of %d",
                        f->callable, ECH_MAX_CALLABLES);
    return ECH_OK;
}

void ech_shared_ring(ech_shared *const s)
{
    /* Partner: sleep_on_bell of the worker, which counts itself, fences, and looks once more. */
    ech_fence();
    if (ech_load_relaxed(&s->sleeping) == 0) return;
    ech_fetch_add(&s->bell, 1);
    ech_os_futex_wake(&s->bell);
}
