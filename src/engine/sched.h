/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows run in the next step.
 *
 * A sequence (one choice of one prompt) waits, runs, or has ended. Running ones hold a slot and KV
 * pages. A plan takes decode rows first, one of every running sequence that has one; then prompt
 * rows up to a budget: half to the oldest prompt, half to the one that is nearest to its end, so
 * that a long prompt goes on and a short one doesn't wait for it. Of prompts that came together
 * while nobody decodes, more than half begin to decode at the same time, once they are computed.
 *
 *     waiting ──admit──> running ──end──> ended ──last step done──> released
 *        ^────preempt───────┘
 *
 * Admission goes by priority, lowered by one for every AGING_NS that a sequence has waited; then by
 * tenant, the one that has had the fewest rows for its weight; then by arrival. The first in that
 * order is admitted or nobody: nobody overtakes it because it is small. (One whose first pages are
 * being computed by another waits for them, and is not counted meanwhile.)
 *
 * A paused sequence gives its slot and pages to those who wait for them, and is computed again when
 * it goes on. When pages run out, the sequence that was admitted last is put back to wait and
 * computed again later, never the one that was admitted first, so somebody always finishes. That is
 * possible only while no step is in flight; a plan says when it needs that.
 *
 * Positions of a sequence, in order:
 *
 *     0 … n_committed   keys and values are in its pages
 *       … n_sent        rows are in steps in flight
 *       … n_ids         ids are known, rows to be sent; the last n_ahead of them are not drawn: a
 *                       constraint leaves no other, and the rows before them score them
 *       … + n_pending   ids are being drawn by steps in flight
 *       … max_ids       the end
 *
 * Pure: no thread, no clock (times are arguments), no I/O. Owned by the engine's thread.
 */
#ifndef ECH_ENGINE_SCHED_H
#define ECH_ENGINE_SCHED_H

#include "src/engine/kv.h"

enum { ECH_SCHED_MAX_RUNNING = 64 };

typedef enum ech_seq_state {
    ECH_SEQ_NEW,
    ECH_SEQ_WAITING,
    ECH_SEQ_RUNNING,
    ECH_SEQ_ENDED, /* holds slot and pages while steps with its rows are in flight */
    ECH_SEQ_RELEASED,
} ech_seq_state;

typedef struct ech_seq ech_seq;
struct ech_seq {
    /* set by the owner before ech_sched_push */
    int32_t *ids; // [max_ids], the first n_ids are known; the owner's
    uint32_t n_ids;
    uint32_t n_prompt; // ≥ 1
    uint32_t max_ids;  // n_prompt and answer
    uint32_t *pages;   // [pages of max_ids], the owner's memory, the scheduler's content
    uint32_t salt;     // of ech_kv
    int32_t priority;  // lower runs first
    uint32_t tenant;   // of ech_sched_tenant_acquire
    int64_t queued_ns;
    uint32_t n_scores;     // 0, or n_prompt: log-probabilities of prompt ids are wanted, see plan
    uint32_t scores_from;  // of ids from here on, below n_prompt
    bool no_reuse;         // takes nothing from the prefix tree
    bool embeds;           // every position has a row and nothing is drawn; max_ids is n_prompt
    const ech_seq *leader; // NULL, or the same prompt's first choice, to be awaited for its pages

    /* the owner may change it at any time */
    bool is_paused; // no rows while it is set

    /* the scheduler's; the owner reads */
    ech_seq_state state;
    uint64_t order;    // of arrival
    uint64_t admitted; // of admission, 0: never
    uint32_t slot;     // below max_running while it runs
    uint32_t n_pages;
    uint32_t n_committed, n_sent, n_pending;
    uint32_t n_ahead;    // see ech_sched_know; the owner takes them one by one
    uint32_t n_inserted; // pages of it that are in the tree
    uint32_t in_flight;  // steps with its rows
    uint32_t n_reused;   // positions found in the tree at the last admission
    uint32_t n_preempted;
    ech_seq *prev, *next; // in the list of its state
};

typedef struct ech_seq_list {
    ech_seq *head, *tail;
    uint32_t n;
} ech_seq_list;

typedef struct ech_tenant ech_tenant;

/* A page that is let go once the steps that may read it are complete. */
typedef struct ech_stale_page {
    uint32_t page;
    uint64_t after; // number of a step
} ech_stale_page;

typedef struct ech_sched {
    ech_kv *kv; // the owner's
    /* Copies the content of a page; called inside ech_sched_plan, on pages no step writes. */
    void (*copy_page)(void *ctx, uint32_t from, uint32_t to);
    void *copy_ctx;
    uint32_t max_running, max_rows, max_logits;
    uint32_t max_prompt_rows; /* of a step, whatever they cost; init: max_rows */
    uint32_t depth_unit;      /* positions of depth that cost as much as a row; 0: nothing */
    uint32_t read_rows;       /* rows that one read of keys and values is enough for; init: 1 */
    bool no_cache;            /* nothing is put into the tree, nothing taken */
    const ech_seq *only;      // NULL, or no other sequence has rows and none is admitted
    bool gathers;             /* in this plan the last rows of prompts wait for other prompts */
    bool opens;               /* in this plan those that waited go */
    ech_seq_list waiting, running; // running: in the order of admission
    ech_seq_list ending;           // ended, with steps in flight
    uint64_t slots_used;           // bit i: slot i
    uint64_t n_order, n_admitted;
    ech_tenant *tenants; // [n_tenants]
    uint32_t n_tenants;
    uint64_t waiting_ids; // prompt tokens
    uint64_t n_steps_sent, n_steps_done;
    ech_stale_page *stale; // [n_pages of kv] a ring, oldest first
    uint32_t stale_head, n_stale;
    uint64_t n_preemptions, n_copies;
} ech_sched;

/* Rows of one sequence in a step: positions first … first + n_rows. */
typedef struct ech_plan_item {
    ech_seq *seq;
    uint32_t first, n_rows;
    bool decodes;      // the one row that was left
    bool samples;      // the last row's logits give the next id
    uint32_t n_scores; // rows, from the first, whose logits score the next id
} ech_plan_item;

typedef struct ech_step_plan {
    ech_plan_item items[ECH_SCHED_MAX_RUNNING]; // in slot-independent, deterministic order
    uint32_t n_items;
    uint32_t n_rows, n_decode_rows, n_logits;
    uint32_t n_embed_rows;                    // of n_rows
    ech_seq *admitted[ECH_SCHED_MAX_RUNNING]; // got a slot in this plan, to be prepared
    uint32_t n_admitted;
    bool needs_drain; // something waits for pages: plan again when nothing is in flight
} ech_step_plan;

/* max_rows ≥ max_running; max_logits ≥ max_running ≤ ECH_SCHED_MAX_RUNNING. ENOMEM. */
ech_status ech_sched_init(ech_sched *s, ech_kv *kv, uint32_t max_running, uint32_t max_rows,
                          uint32_t max_logits);
/* Every sequence must be gone. */
void ech_sched_fini(ech_sched *s);

/* A tenant's number, valid until as many releases; weight ≥ 1 is the latest one's. */
ech_status ech_sched_tenant_acquire(ech_sched *s, ech_str name, uint32_t weight,
                                    uint32_t *ret_tenant);
void ech_sched_tenant_release(ech_sched *s, uint32_t tenant);

/* Puts a new sequence into the queue. */
void ech_sched_push(ech_sched *s, ech_seq *seq);

/*
 * Plans a step: a row of each sequence that needs just one, and prompt rows that cost no more than
 * prompt_cost rows without depth. Acquires pages, admits, preempts. n_items is 0 when there is
 * nothing to do now. Nothing is sent yet: see ech_sched_sent.
 */
void ech_sched_plan(ech_sched *s, int64_t now_ns, uint32_t prompt_cost, ech_step_plan *plan);
/* What n rows from position first on cost, in rows without depth. */
double ech_sched_row_cost(const ech_sched *s, uint32_t first, uint32_t n);

/* The plan was submitted: its rows are in flight. */
void ech_sched_sent(ech_sched *s, const ech_step_plan *plan);
/*
 * The plan's step, the oldest in flight, is complete: its positions are committed, full pages enter
 * the tree. Ended sequences whose last step it was are released. Then the owner appends the drawn
 * ids to seq->ids and n_ids.
 */
void ech_sched_committed(ech_sched *s, const ech_step_plan *plan);
/*
 * The owner knows the n ids that follow, and has put them behind seq->ids[n_ids - 1]: they need not
 * be drawn, and their rows go into one step. All rows but the last known id's must have been sent.
 * in_flight: the plan of the step in flight, if there is one; what it draws for the sequence is the
 * first of these ids. Forgotten, to be drawn or known again, when the sequence is preempted or a
 * step is lost.
 */
void ech_sched_know(ech_seq *seq, uint32_t n, ech_step_plan *in_flight);
/* Every step in flight was lost: all rows since the last commit are to be sent again. */
void ech_sched_rolled_back(ech_sched *s);

/*
 * The sequence has ended or is cancelled, whatever its state. It is released at once (true), or
 * when the last step with its rows completes (false; the state then becomes RELEASED in
 * ech_sched_committed or ech_sched_rolled_back).
 */
bool ech_sched_end(ech_sched *s, ech_seq *seq);

/* Ids that were drawn or taken, the prompt's included. */
static inline uint32_t ech_seq_n_taken(const ech_seq *const seq)
{
    return seq->n_ids - seq->n_ahead;
}

/* Whether a sequence of so many ids could run if it were alone. */
bool ech_sched_fits(const ech_sched *s, uint64_t max_ids);

/* For tests and ECH_DCHECK: no page in two hands that may write it, lists and counts agree. */
bool ech_sched_is_sound(const ech_sched *s);

#endif
