/* SPDX-License-Identifier: Apache-2.0 */
/* What sched.c (queue, admission, plan) and sched_pages.c (pages of a sequence) share. */
#ifndef ECH_ENGINE_SCHED_INT_H
#define ECH_ENGINE_SCHED_INT_H

#include "src/engine/sched.h"

struct ech_tenant {
    char *name; // [len], owned
    size_t len;
    uint32_t weight;
    uint32_t n_uses; /* 0: the entry is free */
    double served;   /* rows ÷ weight, comparable among tenants */
};

/* Pages that hold positions 0 … n_ids - 1. */
static inline uint32_t ech_pages_of(uint64_t n_ids)
{
    return (uint32_t)((n_ids + ECH_KV_TOKENS - 1) / ECH_KV_TOKENS);
}

/* Positions that need a row: the last id of an answer is drawn and never computed. */
static inline uint32_t ech_seq_end_of_rows(const ech_seq *const seq)
{
    if (seq->embeds) return seq->n_prompt;
    const uint32_t known = seq->n_ids + seq->n_pending;
    return known < seq->max_ids ? known : seq->max_ids - 1;
}

/*
 * Takes what the tree has of the sequence's ids, all but the last: pages that match whole are
 * shared; of one that matches in part, the head is copied, or the page itself is taken where nobody
 * else holds it and all of it matches.
 */
void ech_seq_reuse(ech_sched *s, ech_seq *seq);
/* Lets go of pages that were replaced before the last complete step was sent. */
void ech_sched_drop_stale(ech_sched *s);
/* Makes pages for positions below end. False when there are none; what was had is kept. */
bool ech_seq_extend(ech_sched *s, ech_seq *seq, uint32_t end);
/* Enters what is committed into the tree: full pages; with tail the last one's head too. */
void ech_seq_insert(ech_sched *s, ech_seq *seq, bool tail);
/* Lets go of every page. What is committed stays cached. */
void ech_seq_drop_pages(ech_sched *s, ech_seq *seq);

#endif
