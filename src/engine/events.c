/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of events in two byte buffers. See events.h; the lock is the caller's.
 *
 * A record is its head, the event up to `usage`, then what its kind needs: usage, error, top
 * log-probabilities, embedding, text. Sizes are multiples of 8, so that every part is aligned.
 */
#include "src/engine/events.h"

#include <stddef.h>

#include "src/base/error.h"

/* The part of an event that every record has. */
#define CORE_BYTES offsetof(ech_event, usage)

typedef struct record {
    uint32_t bytes; /* of the whole record */
    uint32_t text_len;
    uint32_t n_top;
    uint32_t call_id_len;
    uint32_t n_embedding;
    uint8_t has_usage, has_error;
    uint8_t reserved[2];
} record;

static size_t padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static bool kind_has_usage(ech_event_kind kind)
{
    return kind == ECH_EVENT_QUEUED || kind == ECH_EVENT_STARTED || kind == ECH_EVENT_PROGRESS ||
           kind == ECH_EVENT_FINISH || kind == ECH_EVENT_DONE;
}

void ech_event_queue_fini(ech_event_queue *q)
{
    ech_buf_fini(&q->back);
    ech_buf_fini(&q->front);
    *q = (ech_event_queue){ 0 };
}

static void put(char **at, const void *from, size_t n)
{
    if (n == 0) return;
    memcpy(*at, from, n);
    memset(*at + n, 0, padded(n) - n);
    *at += padded(n);
}

ech_status ech_event_queue_push(ech_event_queue *q, const ech_event *ev)
{
    const record head = {
        .text_len = (uint32_t)ev->text_len,
        .n_top = (uint32_t)ev->n_top,
        .call_id_len = (uint32_t)ev->call_id_len,
        .n_embedding = (uint32_t)ev->n_embedding,
        .has_usage = kind_has_usage(ev->kind),
        .has_error = ev->error.code != ECH_OK,
    };
    const size_t bytes =
        padded(sizeof head) + padded(CORE_BYTES) + (head.has_usage ? padded(sizeof ev->usage) : 0) +
        (head.has_error ? padded(sizeof ev->error) : 0) + padded(ev->n_top * sizeof *ev->top) +
        padded(ev->n_embedding * sizeof *ev->embedding) + padded(ev->call_id_len) +
        padded(ev->text_len);
    ECH_TRY(ech_buf_reserve(&q->back, bytes));
    char *at = q->back.data + q->back.len;
    record *const placed = (record *)(void *)at;
    put(&at, &head, sizeof head);
    put(&at, ev, CORE_BYTES);
    if (head.has_usage) put(&at, &ev->usage, sizeof ev->usage);
    if (head.has_error) put(&at, &ev->error, sizeof ev->error);
    put(&at, ev->top, ev->n_top * sizeof *ev->top);
    put(&at, ev->embedding, ev->n_embedding * sizeof *ev->embedding);
    put(&at, ev->call_id, ev->call_id_len);
    put(&at, ev->text, ev->text_len);
    placed->bytes = (uint32_t)bytes;
    q->back.len += bytes;
    return ECH_OK;
}

static const char *take(const char **at, size_t n)
{
    const char *const was = *at;
    *at += padded(n);
    return was;
}

bool ech_event_queue_pop(ech_event_queue *q, ech_event *ret_ev)
{
    if (q->front_pos == q->front.len) {
        const ech_buf was = q->front;
        q->front = q->back;
        q->back = was;
        ech_buf_clear(&q->back);
        q->front_pos = 0;
    }
    if (q->front.len == 0) return false;
    const char *at = q->front.data + q->front_pos;
    const record *const head = (const record *)(const void *)take(&at, sizeof *head);
    memset(ret_ev, 0, sizeof *ret_ev);
    memcpy(ret_ev, take(&at, CORE_BYTES), CORE_BYTES);
    if (head->has_usage)
        memcpy(&ret_ev->usage, take(&at, sizeof ret_ev->usage), sizeof ret_ev->usage);
    if (head->has_error)
        memcpy(&ret_ev->error, take(&at, sizeof ret_ev->error), sizeof ret_ev->error);
    ret_ev->top =
        head->n_top > 0 ? (const void *)take(&at, head->n_top * sizeof *ret_ev->top) : NULL;
    ret_ev->n_top = head->n_top;
    const size_t embedding_bytes = head->n_embedding * sizeof *ret_ev->embedding;
    ret_ev->embedding = embedding_bytes > 0 ? (const void *)take(&at, embedding_bytes) : NULL;
    ret_ev->n_embedding = head->n_embedding;
    ret_ev->call_id = head->call_id_len > 0 ? take(&at, head->call_id_len) : NULL;
    ret_ev->text = head->text_len > 0 ? at : NULL;
    ret_ev->text_len = head->text_len;
    q->front_pos += head->bytes;
    return true;
}

size_t ech_event_queue_unread(const ech_event_queue *q)
{
    return q->back.len + q->front.len - q->front_pos;
}
