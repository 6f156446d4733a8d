/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch scheduler: tenants, queue, admission, preemption, the plan of a step. See sched.h.
 *
 * Invariants: a running sequence has a slot of its own; slots and pages of an ended sequence are
 * given back only when no step in flight names them; the running list is in the order of
 * admission, so its tail is the one to be preempted. Runs on the engine's thread.
 */
#include "src/engine/sched_int.h"

#include <float.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/error.h"

/* Waiting so long is worth one step of priority. */
#define AGING_NS (10 * ECH_NS_PER_S)
/* Prompts that are computed at the same time: two take turns, the others are admitted early so
 * that a short one among them can be seen. */
enum { MAX_PREFILLING = 4 };
/* A step of prompt rows may cost as much as so many full ones without depth, even where nobody
 * waits: a request that comes meanwhile would, and a step at depth 32k takes twenty times as long.
 */
enum { DEEPEST = 4 };

/* ---- lists ---- */

static void list_append(ech_seq_list *l, ech_seq *seq)
{
    seq->prev = l->tail;
    seq->next = NULL;
    if (l->tail != NULL)
        l->tail->next = seq;
    else
        l->head = seq;
    l->tail = seq;
    l->n++;
}

static void list_remove(ech_seq_list *l, ech_seq *seq)
{
    if (seq->prev != NULL)
        seq->prev->next = seq->next;
    else
        l->head = seq->next;
    if (seq->next != NULL)
        seq->next->prev = seq->prev;
    else
        l->tail = seq->prev;
    seq->prev = seq->next = NULL;
    l->n--;
}

/* ---- tenants ---- */

ech_status ech_sched_init(ech_sched *s, ech_kv *kv, uint32_t max_running, uint32_t max_rows,
                          uint32_t max_logits)
{
    ECH_ASSERT(max_running >= 1 && max_running <= ECH_SCHED_MAX_RUNNING);
    ECH_ASSERT(max_rows >= max_running && max_logits >= max_running);
    *s = (ech_sched){
        .kv = kv,
        .max_running = max_running,
        .max_rows = max_rows,
        .max_logits = max_logits,
        .max_prompt_rows = max_rows,
        .read_rows = 1,
    };
    s->stale = calloc(kv->n_pages, sizeof *s->stale);
    return s->stale != NULL ? ECH_OK : ECH_ENOMEM;
}

void ech_sched_fini(ech_sched *s)
{
    ECH_ASSERT(s->waiting.n == 0 && s->running.n == 0 && s->ending.n == 0);
    for (uint32_t i = 0; i < s->n_tenants; i++)
        free(s->tenants[i].name);
    free(s->tenants);
    free(s->stale);
    *s = (ech_sched){ 0 };
}

/* Where a tenant begins that comes now: where the least served of those that are there is, so that
 * it neither waits for them nor makes them wait for what it never asked for. */
static double least_served(const ech_sched *s)
{
    double least = DBL_MAX;
    for (uint32_t i = 0; i < s->n_tenants; i++)
        if (s->tenants[i].n_uses > 0 && s->tenants[i].served < least) least = s->tenants[i].served;
    return least < DBL_MAX ? least : 0;
}

static ech_tenant *find_tenant(ech_sched *s, ech_str name)
{
    for (uint32_t i = 0; i < s->n_tenants; i++) {
        ech_tenant *const t = &s->tenants[i];
        if (t->n_uses > 0 && ech_str_eq((ech_str){ t->name, t->len }, name)) return t;
    }
    return NULL;
}

static ech_tenant *free_tenant(ech_sched *s)
{
    for (uint32_t i = 0; i < s->n_tenants; i++)
        if (s->tenants[i].n_uses == 0) return &s->tenants[i];
    ech_tenant *const grown = realloc(s->tenants, (s->n_tenants + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    s->tenants = grown;
    grown[s->n_tenants] = (ech_tenant){ 0 };
    return &grown[s->n_tenants++];
}

ech_status ech_sched_tenant_acquire(ech_sched *s, ech_str name, uint32_t weight,
                                    uint32_t *ret_tenant)
{
    ech_tenant *t = find_tenant(s, name);
    if (t == NULL) {
        const double served = least_served(s);
        char *const copy = malloc(name.len + 1);
        t = copy != NULL ? free_tenant(s) : NULL;
        if (t == NULL) {
            free(copy);
            return ECH_ENOMEM;
        }
        if (name.len > 0) memcpy(copy, name.ptr, name.len);
        *t = (ech_tenant){ .name = copy, .len = name.len, .served = served };
    }
    t->weight = weight;
    t->n_uses++;
    *ret_tenant = (uint32_t)(t - s->tenants);
    return ECH_OK;
}

void ech_sched_tenant_release(ech_sched *s, uint32_t tenant)
{
    ech_tenant *const t = &s->tenants[tenant];
    ECH_ASSERT(tenant < s->n_tenants && t->n_uses > 0);
    if (--t->n_uses > 0) return;
    free(t->name);
    *t = (ech_tenant){ 0 };
}

/* ---- queue and admission ---- */

void ech_sched_push(ech_sched *s, ech_seq *seq)
{
    ECH_ASSERT(seq->state == ECH_SEQ_NEW && seq->n_prompt >= 1 && seq->n_ids >= seq->n_prompt);
    seq->state = ECH_SEQ_WAITING;
    seq->order = ++s->n_order;
    list_append(&s->waiting, seq);
    s->waiting_ids += seq->n_ids;
}

bool ech_sched_fits(const ech_sched *s, uint64_t max_ids)
{
    return (max_ids + ECH_KV_TOKENS - 1) / ECH_KV_TOKENS <= s->kv->n_pages;
}

static int64_t aged_priority(const ech_seq *seq, int64_t now_ns)
{
    return seq->priority - (now_ns - seq->queued_ns) / AGING_NS;
}

static bool comes_before(const ech_sched *s, const ech_seq *a, const ech_seq *b, int64_t now_ns)
{
    const int64_t pri_a = aged_priority(a, now_ns), pri_b = aged_priority(b, now_ns);
    if (pri_a != pri_b) return pri_a < pri_b;
    const double served_a = s->tenants[a->tenant].served, served_b = s->tenants[b->tenant].served;
    if (a->tenant != b->tenant && served_a != served_b) return served_a < served_b;
    return a->order < b->order;
}

/* The first choice of its prompt is being computed: what it makes will be found in the tree. */
static bool awaits_leader(const ech_sched *s, const ech_seq *seq)
{
    const ech_seq *const leader = seq->leader;
    if (leader == NULL || s->no_cache || seq->no_reuse) return false;
    if (leader->state == ECH_SEQ_WAITING) return true;
    return leader->state == ECH_SEQ_RUNNING && leader->n_committed + 1 < leader->n_prompt;
}

static uint32_t common_pages(const ech_seq *a, const ech_seq *b)
{
    const uint32_t n = a->n_prompt < b->n_prompt ? a->n_prompt : b->n_prompt;
    uint32_t i = 0;
    while (i < n && a->ids[i] == b->ids[i])
        i++;
    return i / ECH_KV_TOKENS;
}

/* Somebody is just computing pages that it begins with: it waits for them, a step or a few, and
 * others may be admitted meanwhile. Of a burst with one system prompt, one computes it. */
static bool awaits_prefix(const ech_sched *s, const ech_seq *seq)
{
    if (s->no_cache || seq->no_reuse) return false;
    for (const ech_seq *r = s->running.head; r != NULL; r = r->next) {
        const bool is_computing = !r->is_paused && r->n_committed < r->n_prompt;
        if (!is_computing || r->salt != seq->salt) continue;
        if (common_pages(r, seq) > r->n_committed / ECH_KV_TOKENS) return true;
    }
    return false;
}

static ech_seq *next_waiting(const ech_sched *s, int64_t now_ns)
{
    ech_seq *best = NULL;
    for (ech_seq *seq = s->waiting.head; seq != NULL; seq = seq->next) {
        if (seq->is_paused || awaits_leader(s, seq)) continue;
        if (best != NULL && !comes_before(s, seq, best, now_ns)) continue;
        if (!awaits_prefix(s, seq)) best = seq;
    }
    return best;
}

/* Pages that running prompts will still take. Admission leaves these alone, or two long prompts
 * would throw each other out by turns. */
static uint32_t promised_pages(const ech_sched *s)
{
    uint32_t n = 0;
    for (const ech_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
        const uint32_t needed = ech_pages_of((uint64_t)seq->n_ids + 1);
        if (needed > seq->n_pages) n += needed - seq->n_pages;
    }
    return n;
}

/* Pages of its prefix that others hold now: it takes none for these. */
static uint32_t shared_pages(const ech_sched *s, ech_seq *seq)
{
    if (s->no_cache || seq->no_reuse) return 0;
    ech_kv_hit hit;
    uint32_t n = 0;
    ech_kv_find(s->kv, seq->salt, seq->ids, seq->n_ids - 1, seq->pages, &hit);
    for (uint32_t i = 0; i < hit.n_full; i++)
        n += ech_kv_refs(s->kv, seq->pages[i]) > 0;
    return n;
}

static bool has_room_for(const ech_sched *s, ech_seq *seq)
{
    if (s->running.n == 0) return true;
    const uint64_t needed = (uint64_t)promised_pages(s) + ech_pages_of((uint64_t)seq->n_ids + 1);
    const uint32_t available = ech_kv_n_available(s->kv);
    return needed <= available || needed - shared_pages(s, seq) <= available;
}

static void admit(ech_sched *s, ech_seq *seq, ech_step_plan *plan)
{
    list_remove(&s->waiting, seq);
    s->waiting_ids -= seq->n_ids;
    list_append(&s->running, seq);
    seq->state = ECH_SEQ_RUNNING;
    seq->admitted = ++s->n_admitted;
    seq->slot = (uint32_t)__builtin_ctzll(~s->slots_used);
    s->slots_used |= UINT64_C(1) << seq->slot;
    ech_seq_reuse(s, seq);
    plan->admitted[plan->n_admitted++] = seq;
}

/* Prompt rows that are ready to be sent, and the prompts they belong to. */
static uint64_t prompt_backlog(const ech_sched *s, uint32_t *ret_n_prompts)
{
    uint64_t rows = 0;
    *ret_n_prompts = 0;
    for (const ech_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
        const uint32_t end = ech_seq_end_of_rows(seq);
        if (seq->is_paused || end <= seq->n_sent + 1) continue;
        rows += end - seq->n_sent;
        (*ret_n_prompts)++;
    }
    return rows;
}

/* ---- preemption ---- */

static void unplan(ech_step_plan *plan, const ech_seq *seq)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item it = plan->items[i];
        if (it.seq != seq) continue;
        plan->n_rows -= it.n_rows;
        plan->n_decode_rows -= it.decodes;
        plan->n_embed_rows -= it.seq->embeds ? it.n_rows : 0;
        plan->n_logits -= it.samples + it.n_scores;
        memmove(&plan->items[i], &plan->items[i + 1],
                (plan->n_items - i - 1) * sizeof plan->items[0]);
        plan->n_items--;
        break;
    }
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        if (plan->admitted[i] != seq) continue;
        memmove(&plan->admitted[i], &plan->admitted[i + 1],
                (plan->n_admitted - i - 1) * sizeof plan->admitted[0]);
        plan->n_admitted--;
        break;
    }
}

static void give_up_slot(ech_sched *s, ech_seq *seq)
{
    s->slots_used &= ~(UINT64_C(1) << seq->slot);
}

static void forget_ahead(ech_seq *seq)
{
    seq->n_ids -= seq->n_ahead;
    seq->n_ahead = 0;
}

static void preempt(ech_sched *s, ech_seq *seq, ech_step_plan *plan)
{
    ECH_ASSERT(seq->state == ECH_SEQ_RUNNING && seq->in_flight == 0 && seq->n_pending == 0);
    unplan(plan, seq);
    forget_ahead(seq);
    ech_seq_drop_pages(s, seq);
    list_remove(&s->running, seq);
    give_up_slot(s, seq);
    seq->state = ECH_SEQ_WAITING;
    seq->n_preempted++;
    s->n_preemptions++;
    list_append(&s->waiting, seq);
    s->waiting_ids += seq->n_ids;
}

/* Whoever is paused, because nobody reads what it makes, keeps no slot and no pages from those who
 * wait. Its rows are not in flight, so nobody reads its pages but those who hold them too. */
static bool preempt_paused(ech_sched *s, ech_step_plan *plan)
{
    for (ech_seq *seq = s->running.tail; seq != NULL; seq = seq->prev) {
        if (!seq->is_paused || seq->in_flight > 0) continue;
        preempt(s, seq, plan);
        return true;
    }
    return false;
}

static void admit_some(ech_sched *s, int64_t now_ns, uint32_t prefill_rows, ech_step_plan *plan)
{
    for (;;) {
        uint32_t n_prompts;
        const uint64_t backlog = prompt_backlog(s, &n_prompts);
        if (backlog >= prefill_rows && n_prompts >= MAX_PREFILLING) return;
        ech_seq *const seq = next_waiting(s, now_ns);
        if (seq == NULL) return;
        const bool has_slot = (uint32_t)__builtin_popcountll(s->slots_used) < s->max_running;
        if (has_slot && has_room_for(s, seq))
            admit(s, seq, plan);
        else if (!preempt_paused(s, plan))
            return;
    }
}

/* ---- room ---- */

/* Pages for a sequence's positions below end, at the cost of those admitted after it. */
static bool make_room(ech_sched *s, ech_seq *seq, uint32_t end, ech_step_plan *plan)
{
    while (!ech_seq_extend(s, seq, end)) {
        if (s->n_steps_sent > s->n_steps_done) {
            plan->needs_drain = true;
            return false;
        }
        ech_seq *const victim = s->running.tail;
        ECH_ASSERT(victim != s->running.head); /* one alone always fits */
        preempt(s, victim, plan);
        if (victim == seq) return false;
    }
    return true;
}

/* ---- the plan ---- */

static bool is_planned(const ech_step_plan *plan, const ech_seq *seq)
{
    for (uint32_t i = 0; i < plan->n_items; i++)
        if (plan->items[i].seq == seq) return true;
    return false;
}

/* Whose first answer is still to be drawn; of an embedding or of scores alone none ever is. */
static bool is_prompt(const ech_seq *seq)
{
    return seq->max_ids > seq->n_prompt && seq->n_ids + seq->n_pending == seq->n_prompt;
}

static bool has_answer(const ech_seq *seq)
{
    return seq->n_ids + seq->n_pending > seq->n_prompt;
}

/* Prompts with the best priority of those that nobody has to wait for. */
typedef struct gathering {
    int64_t priority;
    uint32_t n_prompts, n_complete; /* complete: but for the last row */
    uint64_t rows;                  /* of the complete ones */
} gathering;

static void gather(gathering *g, const ech_seq *seq)
{
    if (seq->is_paused || seq->leader != NULL || !is_prompt(seq)) return;
    if (seq->priority > g->priority) return;
    if (seq->priority < g->priority) *g = (gathering){ .priority = seq->priority };
    g->n_prompts++;
    if (seq->n_sent + 1 < seq->n_prompt) return;
    g->n_complete++;
    g->rows += seq->n_prompt - seq->n_reused;
}

/*
 * Prompts that came together while nobody decodes: more than half of them are computed before the
 * first answer begins, or it would take a good part of every step from all the others. Their last
 * rows wait for that, for as many rows as a step may cost at most. The step in which they go has
 * the rows of one more prompt and of no other, so that the first half's answers begin at once.
 */
static void gather_prompts(ech_sched *s)
{
    gathering g = { .priority = INT64_MAX };
    s->gathers = s->opens = false;
    if (s->only != NULL) return;
    for (const ech_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
        if (!seq->is_paused && has_answer(seq)) return;
        gather(&g, seq);
    }
    for (const ech_seq *seq = s->waiting.head; seq != NULL; seq = seq->next)
        gather(&g, seq);
    const uint32_t most = g.n_prompts > 2 ? g.n_prompts / 2 + 1 : 1;
    s->gathers = g.n_complete + 1 < most && g.rows < (uint64_t)DEEPEST * s->max_prompt_rows;
    s->opens = !s->gathers && g.n_prompts > 2 && g.n_complete > 0;
}

/* Rows that a sequence has ready. */
static uint32_t ready_rows(const ech_sched *s, const ech_seq *seq)
{
    if (seq->is_paused) return 0;
    if (s->only != NULL && s->only != seq) return 0;
    const uint32_t end = ech_seq_end_of_rows(seq) - (s->gathers && is_prompt(seq));
    return end > seq->n_sent ? end - seq->n_sent : 0;
}

/* Of n rows from n_sent on, those whose logits score the id after them: of a prompt that is scored,
 * or one that is known ahead. */
static uint32_t scored_rows(const ech_seq *seq, uint32_t n)
{
    const uint32_t end = seq->n_ahead > 0 ? seq->n_ids : seq->n_scores;
    if (seq->n_sent + 1 >= end || seq->n_sent + 1 < seq->scores_from) return 0;
    const uint32_t left = end - 1 - seq->n_sent;
    return n < left ? n : left;
}

/* Rows before the first that is scored; an item has scored rows from its first one on, or none. */
static uint32_t unscored_rows(const ech_seq *seq, uint32_t n)
{
    if (seq->n_sent + 1 >= seq->scores_from) return n;
    const uint32_t left = seq->scores_from - 1 - seq->n_sent;
    return n < left ? n : left;
}

/* Adds at most n rows of a sequence; how many. Others may be preempted for their pages. */
static uint32_t plan_rows(ech_sched *s, ech_seq *seq, uint32_t n, ech_step_plan *plan)
{
    n = unscored_rows(seq, n);
    const uint32_t logits_left = s->max_logits - plan->n_logits;
    const bool draws = seq->n_sent + n == seq->n_ids + seq->n_pending;
    if (scored_rows(seq, n) + draws > logits_left) n = logits_left;
    if (n == 0 || !make_room(s, seq, seq->n_sent + n, plan)) return 0;
    const uint32_t end = seq->n_sent + n;
    ech_plan_item *const it = &plan->items[plan->n_items++];
    *it = (ech_plan_item){
        .seq = seq,
        .first = seq->n_sent,
        .n_rows = n,
        .decodes = n == 1 && end == ech_seq_end_of_rows(seq),
        .samples = !seq->embeds && end == seq->n_ids + seq->n_pending && end >= seq->n_prompt,
        .n_scores = scored_rows(seq, n),
    };
    plan->n_rows += n;
    plan->n_decode_rows += it->decodes;
    plan->n_embed_rows += seq->embeds ? n : 0;
    plan->n_logits += it->n_scores + it->samples;
    s->tenants[seq->tenant].served += (double)n / s->tenants[seq->tenant].weight;
    return n;
}

/* One row of each sequence that needs just one: decoding, or a prompt that was found in the tree.
 */
static void plan_single_rows(ech_sched *s, ech_step_plan *plan)
{
    for (ech_seq *seq = s->running.head, *next; seq != NULL; seq = next) {
        next = seq->next;
        if (plan->n_logits >= s->max_logits || plan->n_rows >= s->max_rows) return;
        if (ready_rows(s, seq) == 1 && !is_planned(plan, seq)) (void)plan_rows(s, seq, 1, plan);
        if (seq->state != ECH_SEQ_RUNNING) return; /* preempted itself: nothing behind it is left */
    }
}

/* What reading keys and values down to a position costs, in rows without depth. */
static double read_cost(const ech_sched *s, double position)
{
    return s->depth_unit > 0 ? s->read_rows * position / s->depth_unit : 0;
}

double ech_sched_row_cost(const ech_sched *s, uint32_t first, uint32_t n)
{
    const double read = read_cost(s, first + n / 2.0);
    return n + (n > s->read_rows ? read * n / s->read_rows : read);
}

/*
 * Rows from first on that cost no more, at least one. What one alone reads is read anyway: those
 * that share it come along where they add no more than a quarter.
 */
static uint32_t rows_for(const ech_sched *s, uint32_t first, double cost)
{
    const double read = read_cost(s, first);
    double n = cost / (1 + read / s->read_rows);
    if (n < s->read_rows) {
        const double left = cost - read, least = 1 + read / 4;
        n = left > least ? left : least;
        if (n > s->read_rows) n = s->read_rows;
    }
    return n < s->max_prompt_rows ? (uint32_t)n : s->max_prompt_rows;
}

/* How many rows a sequence with known ids gets: one, as if it drew them, and what half the prompt
 * rows' budget has. Rows with logits are left for the others. */
static uint32_t ahead_rows(const ech_sched *s, const ech_seq *seq, double budget,
                           const ech_step_plan *plan)
{
    const uint32_t ready = ready_rows(s, seq), others = s->running.n - plan->n_items;
    const uint32_t logits = s->max_logits - plan->n_logits, rows = s->max_rows - plan->n_rows;
    const uint32_t room = logits < rows ? logits : rows;
    const uint32_t most = room > others ? room - others + 1 : 1;
    uint32_t n = budget >= 1 ? 1 + rows_for(s, seq->n_sent, budget / 2) : 1;
    if (n > most) n = most;
    return n < ready ? n : ready;
}

/* Sequences with known ids. Returns what is left of the budget. */
static double plan_ahead(ech_sched *s, double budget, ech_step_plan *plan)
{
    for (ech_seq *seq = s->running.head, *next; seq != NULL; seq = next) {
        next = seq->next;
        if (plan->n_logits >= s->max_logits || plan->n_rows >= s->max_rows) return budget;
        if (seq->n_ahead == 0 || ready_rows(s, seq) < 2 || is_planned(plan, seq)) continue;
        const uint32_t n = plan_rows(s, seq, ahead_rows(s, seq, budget, plan), plan);
        if (n > 1) budget -= ech_sched_row_cost(s, seq->n_sent + 1, n - 1);
        if (seq->state != ECH_SEQ_RUNNING) return budget; /* preempted itself */
    }
    return budget;
}

static ech_seq *oldest_prompt(const ech_sched *s, const ech_step_plan *plan)
{
    for (ech_seq *seq = s->running.head; seq != NULL; seq = seq->next)
        if (ready_rows(s, seq) > 1 && !is_planned(plan, seq)) return seq;
    return NULL;
}

static ech_seq *shortest_prompt(const ech_sched *s, const ech_step_plan *plan)
{
    ech_seq *best = NULL;
    for (ech_seq *seq = s->running.head; seq != NULL; seq = seq->next)
        if (ready_rows(s, seq) > 1 && !is_planned(plan, seq) &&
            (best == NULL || ready_rows(s, seq) < ready_rows(s, best)))
            best = seq;
    return best;
}

/* Prompt rows that may still be added. */
static uint32_t prompt_room(const ech_sched *s, const ech_step_plan *plan)
{
    const uint32_t n_prompt = plan->n_rows - plan->n_decode_rows;
    const uint32_t rows = s->max_rows - plan->n_rows;
    const uint32_t more = n_prompt < s->max_prompt_rows ? s->max_prompt_rows - n_prompt : 0;
    return rows < more ? rows : more;
}

/*
 * Half the budget to the prompt nearest to its end, all that is left to the oldest, then on. Where
 * answers begin, the nearest gets all, and no other anything.
 */
static void plan_prompts(ech_sched *s, double budget, ech_step_plan *plan)
{
    for (bool is_first = true;; is_first = false) {
        const uint32_t room = prompt_room(s, plan);
        ech_seq *const oldest = oldest_prompt(s, plan);
        if (budget < 1 || room == 0 || oldest == NULL || plan->n_items == ECH_SCHED_MAX_RUNNING)
            return;
        ech_seq *const seq = is_first ? shortest_prompt(s, plan) : oldest;
        const bool is_half = seq != oldest && !s->opens;
        const uint32_t most = is_half ? (room + 1) / 2 : room, ready = ready_rows(s, seq);
        uint32_t n = rows_for(s, seq->n_sent, is_half ? budget / 2 : budget);
        if (n > most) n = most;
        n = plan_rows(s, seq, n < ready ? n : ready, plan);
        if (n == 0 || s->opens) return; /* no pages, or no logits: wait for the next step */
        budget -= ech_sched_row_cost(s, seq->n_sent, n);
    }
}

void ech_sched_plan(ech_sched *s, int64_t now_ns, uint32_t prompt_cost, ech_step_plan *plan)
{
    const uint32_t rows = prompt_cost < s->max_prompt_rows ? prompt_cost : s->max_prompt_rows;
    const double most = DEEPEST * (double)s->max_prompt_rows;
    const double cost = prompt_cost < most ? prompt_cost : most;
    plan->n_items = plan->n_rows = plan->n_decode_rows = plan->n_logits = plan->n_embed_rows = 0;
    plan->n_admitted = 0;
    plan->needs_drain = false;
    gather_prompts(s);
    plan_single_rows(s, plan);
    const double left = plan_ahead(s, cost, plan);
    if (!plan->needs_drain && s->only == NULL) admit_some(s, now_ns, rows, plan);
    plan_single_rows(s, plan);
    plan_prompts(s, left, plan);
    if (plan->n_items > 0 || !s->gathers) return;
    s->gathers = false; /* there was room for no other prompt */
    plan_single_rows(s, plan);
}

/* ---- the life of a step ---- */

void ech_sched_sent(ech_sched *s, const ech_step_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item *const it = &plan->items[i];
        it->seq->n_sent += it->n_rows;
        it->seq->n_pending += it->samples;
        it->seq->in_flight++;
    }
    s->n_steps_sent++;
}

static void release(ech_sched *s, ech_seq *seq)
{
    list_remove(&s->ending, seq);
    ech_seq_drop_pages(s, seq);
    give_up_slot(s, seq);
    seq->state = ECH_SEQ_RELEASED;
}

/* A choice's siblings begin with its whole prompt, so the prompt's last page is entered at once. */
static bool prompt_is_done(const ech_seq *seq, uint32_t n_before)
{
    return n_before < seq->n_prompt && seq->n_committed >= seq->n_prompt;
}

void ech_sched_committed(ech_sched *s, const ech_step_plan *plan)
{
    ECH_ASSERT(s->n_steps_sent > s->n_steps_done);
    s->n_steps_done++;
    ech_sched_drop_stale(s);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item *const it = &plan->items[i];
        ech_seq *const seq = it->seq;
        ECH_ASSERT(seq->in_flight > 0);
        seq->in_flight--;
        if (seq->state == ECH_SEQ_ENDED) {
            if (seq->in_flight == 0) release(s, seq);
            continue;
        }
        const uint32_t before = seq->n_committed;
        seq->n_committed += it->n_rows;
        seq->n_pending -= it->samples;
        if (seq->n_committed / ECH_KV_TOKENS > before / ECH_KV_TOKENS ||
            prompt_is_done(seq, before))
            ech_seq_insert(s, seq, prompt_is_done(seq, before));
    }
}

void ech_sched_know(ech_seq *seq, uint32_t n, ech_step_plan *in_flight)
{
    ECH_ASSERT(seq->state == ECH_SEQ_RUNNING && seq->n_ahead == 0 && seq->n_pending <= 1);
    ECH_ASSERT(seq->n_sent + 1 >= seq->n_ids); /* or rows of ids that were taken would score too */
    for (uint32_t i = 0; seq->n_pending > 0 && i < in_flight->n_items; i++) {
        if (in_flight->items[i].seq != seq) continue;
        in_flight->items[i].samples = false; /* what it draws is known */
        seq->n_pending = 0;
    }
    ECH_ASSERT(seq->n_pending == 0);
    seq->n_ids += n;
    seq->n_ahead = n;
}

void ech_sched_rolled_back(ech_sched *s)
{
    s->n_steps_done = s->n_steps_sent;
    ech_sched_drop_stale(s);
    for (ech_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
        forget_ahead(seq);
        seq->n_sent = seq->n_committed;
        seq->n_pending = 0;
        seq->in_flight = 0;
    }
    while (s->ending.head != NULL)
        release(s, s->ending.head);
}

bool ech_sched_end(ech_sched *s, ech_seq *seq)
{
    if (seq->state == ECH_SEQ_WAITING) {
        list_remove(&s->waiting, seq);
        s->waiting_ids -= seq->n_ids;
        seq->state = ECH_SEQ_RELEASED;
    } else if (seq->state == ECH_SEQ_RUNNING) {
        list_remove(&s->running, seq);
        list_append(&s->ending, seq);
        seq->state = ECH_SEQ_ENDED;
        if (seq->in_flight == 0) release(s, seq);
    } else if (seq->state == ECH_SEQ_NEW) {
        seq->state = ECH_SEQ_RELEASED;
    }
    return seq->state == ECH_SEQ_RELEASED;
}

/* ---- soundness ---- */

bool ech_sched_is_sound(const ech_sched *s)
{
    uint64_t slots = 0, last_admitted = 0;
    for (const ech_seq *seq = s->running.head; seq != NULL; seq = seq->next) {
        if (seq->state != ECH_SEQ_RUNNING || seq->slot >= s->max_running) return false;
        if (seq->admitted <= last_admitted || (slots >> seq->slot & 1) != 0) return false;
        last_admitted = seq->admitted;
        slots |= UINT64_C(1) << seq->slot;
        if (seq->n_committed > seq->n_sent || seq->n_sent > seq->n_ids + seq->n_pending)
            return false;
        if (ech_pages_of(seq->n_sent) > seq->n_pages) return false;
        /* A page that is still written is in one hand, but for readers of its committed head. */
        for (uint32_t i = seq->n_committed / ECH_KV_TOKENS; i < seq->n_pages; i++)
            if (ech_kv_refs(s->kv, seq->pages[i]) != 1) return false;
    }
    if ((slots & ~s->slots_used) != 0) return false;
    uint64_t ids = 0;
    for (const ech_seq *seq = s->waiting.head; seq != NULL; seq = seq->next) {
        if (seq->state != ECH_SEQ_WAITING || seq->n_pages != 0) return false;
        ids += seq->n_ids;
    }
    return ids == s->waiting_ids && ech_kv_is_sound(s->kv);
}
