/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of one sequence: what it reuses, takes, enters into the tree and gives back.
 *
 * Invariant: pages[0 … n_inserted) are nodes whose parents are the pages before them, so every
 * page of the tree that a sequence builds on is held by it. Only the engine's thread comes here.
 */
#include "src/engine/sched_int.h"

#include "src/base/error.h"

static void take_partial(ech_sched *s, ech_seq *seq, const ech_kv_hit *hit)
{
    ech_kv *const kv = s->kv;
    uint32_t n_ids;
    (void)ech_kv_node_ids(kv, hit->partial_page, &n_ids);
    const bool is_free = ech_kv_refs(kv, hit->partial_page) == 0;
    ech_kv_ref(kv, hit->partial_page); /* keeps it while another page is acquired for the copy */
    ech_kv_touch(kv, hit->partial_page);
    uint32_t page = hit->partial_page;
    if (is_free && n_ids == hit->partial_ids) {
        /* Positions below n_ids are only read, and nobody else will write those beyond. */
        seq->pages[seq->n_pages++] = page;
        seq->n_inserted++;
    } else if (ech_kv_acquire(kv, &page)) {
        s->copy_page(s->copy_ctx, hit->partial_page, page);
        s->n_copies++;
        seq->pages[seq->n_pages++] = page;
        ech_kv_unref(kv, hit->partial_page);
    } else {
        ech_kv_unref(kv, hit->partial_page);
        return;
    }
    seq->n_reused += hit->partial_ids;
}

void ech_seq_reuse(ech_sched *s, ech_seq *seq)
{
    ECH_DCHECK(seq->n_pages == 0 && seq->n_sent == 0);
    seq->n_reused = 0;
    if (s->no_cache || seq->no_reuse || seq->n_ids < 2) return;
    ech_kv_hit hit;
    ech_kv_find(s->kv, seq->salt, seq->ids, seq->n_ids - 1, seq->pages, &hit);
    for (uint32_t i = 0; i < hit.n_full; i++) {
        ech_kv_ref(s->kv, seq->pages[i]);
        ech_kv_touch(s->kv, seq->pages[i]);
    }
    seq->n_pages = seq->n_inserted = hit.n_full;
    seq->n_reused = hit.n_full * ECH_KV_TOKENS;
    if (hit.partial_page != ECH_KV_NONE) take_partial(s, seq, &hit);
    seq->n_committed = seq->n_sent = seq->n_reused;
}

bool ech_seq_extend(ech_sched *s, ech_seq *seq, uint32_t end)
{
    const uint32_t n = ech_pages_of(end);
    while (seq->n_pages < n) {
        if (!ech_kv_acquire(s->kv, &seq->pages[seq->n_pages])) return false;
        seq->n_pages++;
    }
    return true;
}

/* Page at holds the same as node, which is held from now on in its place. The steps in flight may
 * still read the page, so it is let go after them. */
static void replace_page(ech_sched *s, ech_seq *seq, uint32_t at, uint32_t node)
{
    const uint32_t n_pages = s->kv->n_pages;
    ECH_ASSERT(s->n_stale < n_pages); /* each holds a page */
    s->stale[(s->stale_head + s->n_stale++) % n_pages] =
        (ech_stale_page){ .page = seq->pages[at], .after = s->n_steps_sent };
    ech_kv_ref(s->kv, node);
    seq->pages[at] = node;
    ech_sched_drop_stale(s);
}

void ech_sched_drop_stale(ech_sched *s)
{
    while (s->n_stale > 0 && s->stale[s->stale_head].after <= s->n_steps_done) {
        ech_kv_unref(s->kv, s->stale[s->stale_head].page);
        s->stale_head = (s->stale_head + 1) % s->kv->n_pages;
        s->n_stale--;
    }
}

void ech_seq_insert(ech_sched *s, ech_seq *seq, bool tail)
{
    if (s->no_cache) return;
    const uint32_t n_full = seq->n_committed / ECH_KV_TOKENS;
    const uint32_t n_tail = seq->n_committed % ECH_KV_TOKENS;
    /* A page that was entered in part and has become full is entered again, as full. */
    uint32_t at = seq->n_inserted > 0 ? seq->n_inserted - 1 : 0;
    for (; at < n_full; at++) {
        const uint32_t parent = at > 0 ? seq->pages[at - 1] : ECH_KV_NONE;
        const uint32_t node = ech_kv_insert(s->kv, seq->salt, parent, seq->ids + at * ECH_KV_TOKENS,
                                            ECH_KV_TOKENS, seq->pages[at]);
        if (node != seq->pages[at]) replace_page(s, seq, at, node);
        seq->n_inserted = at + 1;
    }
    if (!tail || n_tail == 0) return;
    const uint32_t parent = n_full > 0 ? seq->pages[n_full - 1] : ECH_KV_NONE;
    const uint32_t node = ech_kv_insert(s->kv, seq->salt, parent, seq->ids + n_full * ECH_KV_TOKENS,
                                        n_tail, seq->pages[n_full]);
    if (node == seq->pages[n_full]) seq->n_inserted = n_full + 1;
}

void ech_seq_drop_pages(ech_sched *s, ech_seq *seq)
{
    ech_seq_insert(s, seq, true);
    /* Tail first, so that a page's parents stay held until it is let go. */
    while (seq->n_pages > 0)
        ech_kv_unref(s->kv, seq->pages[--seq->n_pages]);
    seq->n_inserted = seq->n_committed = seq->n_sent = 0;
}
