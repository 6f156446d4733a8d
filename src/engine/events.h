/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unread events of one request: a queue of bytes, appended by the engine's thread, read by the
 * caller's.
 *
 *     back:  [record][record]…      guarded by the request's lock, appended to
 *     front: [record][record]…      the reader's alone; when it is used up, the two are swapped
 *
 * Two buffers, so that what an event points to stays where it is until the next read, and so that
 * after the first tokens nothing allocates. The buffers keep their memory and grow to what was
 * unread at one time, which the engine bounds by taking choices out of the batch.
 */
#ifndef ECH_ENGINE_EVENTS_H
#define ECH_ENGINE_EVENTS_H

#include "echelon/engine.h"
#include "src/base/buf.h"

typedef struct ech_event_queue {
    ech_buf back;
    ech_buf front;
    size_t front_pos;
} ech_event_queue;

void ech_event_queue_fini(ech_event_queue *q);
/* Copies the event and what it points to, but for `stop`, which outlives the queue. ENOMEM. */
ech_status ech_event_queue_push(ech_event_queue *q, const ech_event *ev);
/* False when there is none. The event points into the queue until the next pop. */
bool ech_event_queue_pop(ech_event_queue *q, ech_event *ret_ev);
/* Bytes that are not read. */
size_t ech_event_queue_unread(const ech_event_queue *q);

#endif
