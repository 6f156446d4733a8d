/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framing guard: reads the bytes of a connection before the HTTP library does and lets through
 * only what has one reading under RFC 9112. What two readers could cut apart differently (two
 * lengths, a length beside a coding, a folded header, a bare LF, a space before the colon, a NUL)
 * is refused here, whatever the library would have made of it.
 *
 *     REQUEST_LINE → HEADER* → BODY ───────────────────────────→ REQUEST_LINE
 *                            → CHUNK_SIZE → CHUNK_DATA → CHUNK_END ↺
 *                                         → TRAILER* ──────────→ REQUEST_LINE
 *
 * Pure: bytes in, a count out. The verdict doesn't depend on how the bytes were cut. A head passes
 * as a whole or not at all, so that the library never sees half of one that is bad.
 */
#ifndef ECH_SERVER_GUARD_H
#define ECH_SERVER_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ech_guard_limits {
    size_t max_head;      /* bytes of request line and headers, of trailers: 431 */
    size_t max_target;    /* bytes of the request target: 414 */
    uint32_t max_headers; /* 431 */
    uint64_t max_body;    /* bytes of a body in chunks: 413 */
} ech_guard_limits;

typedef enum ech_guard_state {
    ECH_GUARD_REQUEST_LINE,
    ECH_GUARD_HEADER,
    ECH_GUARD_BODY,
    ECH_GUARD_CHUNK_SIZE,
    ECH_GUARD_CHUNK_DATA,
    ECH_GUARD_CHUNK_END,
    ECH_GUARD_TRAILER,
    ECH_GUARD_REFUSED,
} ech_guard_state;

/* Starts as { 0 }. */
typedef struct ech_guard {
    ech_guard_state state;
    size_t at;     /* of the head's first byte that is in no checked line, from the head's start */
    size_t looked; /* bytes behind it in which there is no LF */
    size_t head;   /* bytes of checked lines of this head or these trailers */
    uint32_t n_headers, n_length, n_coding, n_host;
    uint64_t left;      /* bytes of the body or chunk to come; while in the head: Content-Length */
    uint64_t n_chunked; /* bytes of the chunks that were announced */
    bool is_http10;     /* of the last request line */
    uint64_t n_heads;   /* that passed */
    /* of REFUSED */
    int status;
    const char *code; /* machine code of the error body */
    const char *why;
    bool was_in_head; /* refused there: whatever passed before is a whole request */
} ech_guard;

/*
 * How many of the first len bytes may go on. The caller offers those that didn't again, with more
 * behind them, until the state is REFUSED: then nothing more will pass.
 */
size_t ech_guard_pass(ech_guard *g, const ech_guard_limits *limits, const char *data, size_t len);
/* Refuses what was begun and not finished in time. */
void ech_guard_time_out(ech_guard *g);

#endif
