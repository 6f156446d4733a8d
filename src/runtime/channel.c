/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel to a running task: a ring of messages in a buffer that both processes have mapped, one
 * sender, one receiver. head counts messages sent, tail messages taken; each side writes its own
 * word and reads the other's. Sizes are in the header, which another process wrote, so each use
 * checks them against what the caller says the buffer has.
 */
#include <string.h>

#include "echelon/worker.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/os/futex.h"

#define MAGIC 0x48434345u /* "ECCH" */

typedef struct header {
    uint32_t magic, depth;
    uint64_t message_bytes;
    uint64_t reserved0[6];
    uint32_t head;    /* W: sender; futex of the receiver */
    uint32_t stopped; /* W: sender; sticky */
    uint64_t reserved1[7];
    uint32_t tail; /* W: receiver; futex of the sender */
    uint32_t reserved2[15];
} header;

_Static_assert(sizeof(header) == 192, "three lines");

uint64_t ech_channel_bytes(const uint32_t depth, const uint64_t message_bytes)
{
    const uint64_t each = (message_bytes + 7) / 8 * 8;
    if (depth == 0 || message_bytes == 0 || each < message_bytes || each > UINT64_MAX / 2 / depth)
        return 0;
    return sizeof(header) + depth * each;
}

ech_status ech_channel_init(void *const mem, const uint64_t bytes, const uint32_t depth,
                            const uint64_t message_bytes, ech_error *const err)
{
    const uint64_t need = ech_channel_bytes(depth, message_bytes);
    if (need == 0 || need > bytes)
        return ech_fail(err, ECH_EINVAL,
                        "making a channel of %u messages of %llu bytes: needs %llu bytes, has %llu",
                        depth, (unsigned long long)message_bytes, (unsigned long long)need,
                        (unsigned long long)bytes);
    header *const h = mem;
    memset(h, 0, sizeof *h);
    h->depth = depth;
    h->message_bytes = message_bytes;
    ech_store_release(&h->magic, MAGIC);
    return ECH_OK;
}

/* The header's sizes, copied and checked: the memory belongs to two processes. */
typedef struct shape {
    header *h;
    uint32_t depth;
    uint64_t bytes, each;
} shape;

static ech_status attach(void *const mem, const uint64_t bytes, shape *const s,
                         ech_error *const err)
{
    header *const h = mem;
    const bool there = bytes >= sizeof *h && ech_load_acquire(&h->magic) == MAGIC;
    s->h = h;
    s->depth = there ? h->depth : 0;
    s->bytes = there ? h->message_bytes : 0;
    s->each = (s->bytes + 7) / 8 * 8;
    const uint64_t need = ech_channel_bytes(s->depth, s->bytes);
    if (need > 0 && need <= bytes) return ECH_OK;
    (void)ech_fail(err, ECH_EFORMAT,
                   "using a channel: the memory holds none, or its sizes exceed the buffer");
    return ECH_EFORMAT;
}

static char *place(const shape *const s, const uint32_t n)
{
    return (char *)(s->h + 1) + (n % s->depth) * s->each;
}

static ech_status check_message(const shape *const s, const uint64_t len, ech_error *const err)
{
    if (len == s->bytes) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "using a channel: messages have %llu bytes, not %llu",
                    (unsigned long long)s->bytes, (unsigned long long)len);
}

ech_status ech_channel_try_send(void *const mem, const uint64_t bytes, const void *const message,
                                const uint64_t len, bool *const ret_sent, ech_error *const err)
{
    shape s = { 0 };
    ECH_TRY(attach(mem, bytes, &s, err));
    ECH_TRY(check_message(&s, len, err));
    if (ech_load_relaxed(&s.h->stopped))
        return ech_fail(err, ECH_ESTATE, "sending to a channel: it was stopped");
    const uint32_t head = s.h->head;
    /* Partner: the receiver's release store, after it has copied the message out. */
    if (head - ech_load_acquire(&s.h->tail) >= s.depth) {
        *ret_sent = false;
        return ECH_OK;
    }
    memcpy(place(&s, head), message, len);
    ech_store_release(&s.h->head, head + 1);
    ech_os_futex_wake(&s.h->head);
    *ret_sent = true;
    return ECH_OK;
}

ech_status ech_channel_stop(void *const mem, const uint64_t bytes, ech_error *const err)
{
    shape s = { 0 };
    ECH_TRY(attach(mem, bytes, &s, err));
    /* After the last head: a receiver that sees it looks at head once more. */
    ech_store_release(&s.h->stopped, 1);
    ech_os_futex_wake(&s.h->head);
    return ECH_OK;
}

ech_status ech_channel_receive(void *const mem, const uint64_t bytes, void *const message,
                               const uint64_t len, const double timeout_s, bool *const ret_stopped,
                               ech_error *const err)
{
    shape s = { 0 };
    ECH_TRY(attach(mem, bytes, &s, err));
    ECH_TRY(check_message(&s, len, err));
    const int64_t deadline = timeout_s >= 0 && timeout_s < 1e9
                                 ? ech_now_ns() + (int64_t)(timeout_s * 1e9)
                                 : ECH_NO_DEADLINE;
    const uint32_t tail = s.h->tail;
    for (;;) {
        const bool stopped = ech_load_acquire(&s.h->stopped) != 0;
        const uint32_t head = ech_load_acquire(&s.h->head);
        if (head != tail) break;
        if (stopped) {
            *ret_stopped = true;
            return ECH_OK;
        }
        /* Stopping changes no futex word, so a wait is cut short to see it. */
        const int64_t now = ech_now_ns(), slice = now + 50 * ECH_NS_PER_MS;
        if (now >= deadline) return ech_fail(err, ECH_ETIMEOUT, "receiving from a channel");
        (void)ech_os_futex_wait(&s.h->head, head, slice < deadline ? slice : deadline);
    }
    memcpy(message, place(&s, tail), len);
    ech_store_release(&s.h->tail, tail + 1);
    *ret_stopped = false;
    return ECH_OK;
}
