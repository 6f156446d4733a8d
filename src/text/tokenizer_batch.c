/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many texts at once: each is encoded by itself, as ech_tokenizer_encode() does it, so the ids do
 * not depend on the batch or on the number of threads. Threads are base's; what they share is the
 * tokenizer, which doesn't change, and each writes its own list.
 *
 * Left out: cutting one long text. Its pieces would have to be found first, which is most of the
 * work, and normalizers may look across any cut.
 */
#include "echelon/tokenizer.h"
#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/os/parallel.h"

/* Below this many bytes a thread's start costs more than it saves. */
#define WORTH_A_THREAD ((size_t)64 << 10)

typedef struct batch {
    const ech_tokenizer *tok;
    const ech_piece *texts;
    unsigned flags;
    ech_ids *ids;
    size_t first_bad; /* atomic: index of the first text that failed; SIZE_MAX: none */
} batch;

static void encode_one(void *const ctx, const size_t i)
{
    batch *const b = ctx;
    if (ech_tokenizer_encode(b->tok, b->texts[i].ptr, b->texts[i].len, b->flags, &b->ids[i],
                             NULL) == ECH_OK)
        return;
    size_t seen = ech_load_relaxed(&b->first_bad);
    while (i < seen && !ech_cas(&b->first_bad, &seen, i)) {
    }
}

static uint32_t threads_for(const ech_piece *const texts, const size_t n, const uint32_t wanted)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += texts[i].len;
    }
    const uint32_t most = wanted > 0 ? wanted : ech_os_usable_cores();
    const size_t worth = bytes / WORTH_A_THREAD + 1;
    return worth < most ? (uint32_t)worth : most;
}

ech_status ech_tokenizer_encode_batch(const ech_tokenizer *const tok, const ech_piece *const texts,
                                      const size_t n_texts, const unsigned flags,
                                      const uint32_t n_threads, ech_ids *const ids,
                                      ech_error *const err)
{
    batch b = { .tok = tok, .texts = texts, .flags = flags, .ids = ids, .first_bad = SIZE_MAX };
    ech_os_parallel(threads_for(texts, n_texts, n_threads), n_texts, encode_one, &b);
    if (b.first_bad == SIZE_MAX) return ECH_OK;
    /* Once more, for what is wrong with it: the same text fails the same way. */
    const ech_piece bad = texts[b.first_bad];
    const size_t before = ids[b.first_bad].n;
    const ech_status rc =
        ech_tokenizer_encode(tok, bad.ptr, bad.len, flags, &ids[b.first_bad], err);
    if (rc == ECH_OK) { /* memory that has come back */
        ids[b.first_bad].n = before;
        return ech_fail(err, ECH_ENOMEM, "encoding text %zu of a batch: out of memory",
                        b.first_bad);
    }
    return ech_error_prefix(err, rc, "text %zu of the batch", b.first_bad);
}
