/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler driven by a pretended engine: two steps in flight, a virtual clock, and a pool
 * whose contents are checked, so that a page in two hands, a stale page or a skipped row is seen.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/engine/sched_int.h"

#define T ECH_KV_TOKENS
enum { MAX_IDS = 8 * T, MAX_SEQS = 512, MAX_PAGES = 256 };

typedef struct sim_seq {
    ech_seq seq; /* first */
    int32_t ids[MAX_IDS];
    uint32_t pages[MAX_IDS / T];
    uint32_t stop_at; /* ids after which it ends by itself, as by an end of sequence */
    bool is_ended;
    int64_t started_ns, ended_ns;
    uint64_t first_step;
} sim_seq;

typedef struct sim {
    ech_kv kv;
    ech_sched sched;
    uint64_t content[MAX_PAGES][T];
    ech_step_plan plans[2];
    bool draws[2][ECH_SCHED_MAX_RUNNING]; /* as it was when the plan was sent */
    bool looks_ahead;                     /* now and then ids are known before they are drawn */
    uint64_t n_sent, n_done;
    int64_t now;
    sim_seq *seqs[MAX_SEQS];
    uint32_t n_seqs;
    uint64_t rows, rows_done; // sent, computed
} sim;

static uint64_t rng;

static uint32_t draw(uint32_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((rng >> 33) % n);
}

static uint64_t hash_ids(const int32_t *ids, uint32_t n)
{
    uint64_t h = 7;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)ids[i]) * UINT64_C(1099511628211) + 7;
    return h;
}

static void copy_page(void *ctx, uint32_t from, uint32_t to)
{
    sim *const m = ctx;
    memcpy(m->content[to], m->content[from], sizeof m->content[to]);
}

static void sim_open(sim *m, uint32_t n_pages, uint32_t max_running, uint32_t max_rows)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(ech_kv_init(&m->kv, n_pages, 1, NULL), ECH_OK);
    assert_int_equal(ech_sched_init(&m->sched, &m->kv, max_running, max_rows, 64), ECH_OK);
    m->sched.copy_page = copy_page;
    m->sched.copy_ctx = m;
}

static void sim_close(sim *m)
{
    assert_int_equal(m->sched.n_stale, 0);
    assert_int_equal(ech_kv_n_available(&m->kv), m->kv.n_pages);
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        assert_int_equal(m->seqs[i]->seq.state, ECH_SEQ_RELEASED);
        ech_sched_tenant_release(&m->sched, m->seqs[i]->seq.tenant);
        free(m->seqs[i]);
    }
    ech_sched_fini(&m->sched);
    ech_kv_fini(&m->kv);
}

/* The id after ids[0..n): what the model would draw. */
static int32_t next_id(const int32_t *ids, uint32_t n)
{
    return (int32_t)(hash_ids(ids, n) % 3);
}

static sim_seq *push(sim *m, uint32_t n_prompt, uint32_t n_answer, const char *tenant,
                     uint32_t weight)
{
    sim_seq *const q = calloc(1, sizeof *q);
    assert_true(m->n_seqs < MAX_SEQS && n_prompt + n_answer <= MAX_IDS);
    m->seqs[m->n_seqs++] = q;
    for (uint32_t i = 0; i < n_prompt; i++)
        q->ids[i] = draw(30) == 0;
    q->stop_at = n_prompt + n_answer;
    q->seq = (ech_seq){ .ids = q->ids,
                        .n_ids = n_prompt,
                        .n_prompt = n_prompt,
                        .max_ids = n_prompt + n_answer,
                        .pages = q->pages,
                        .queued_ns = m->now };
    assert_int_equal(
        ech_sched_tenant_acquire(&m->sched, ech_str_from(tenant), weight, &q->seq.tenant), ECH_OK);
    ech_sched_push(&m->sched, &q->seq);
    return q;
}

static void end(sim *m, sim_seq *q)
{
    q->is_ended = true;
    q->ended_ns = m->now;
    (void)ech_sched_end(&m->sched, &q->seq);
}

/* Computes a step: every row reads all positions before it and writes its own. */
static void compute(sim *m, const ech_step_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item *const it = &plan->items[i];
        for (uint32_t r = 0; r < it->n_rows; r++) {
            const uint32_t pos = it->first + r;
            for (uint32_t k = 0; k < pos && !((sim_seq *)it->seq)->is_ended; k++)
                assert_int_equal(m->content[it->seq->pages[k / T]][k % T],
                                 hash_ids(it->seq->ids, k + 1));
            m->content[it->seq->pages[pos / T]][pos % T] = hash_ids(it->seq->ids, pos + 1);
        }
    }
}

static void check_plan(const sim *m, const ech_step_plan *plan)
{
    uint32_t rows = 0, logits = 0, decode = 0, embed = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item *const it = &plan->items[i];
        assert_int_equal(it->first, it->seq->n_sent);
        assert_true(it->n_rows > 0 && !it->seq->is_paused);
        for (uint32_t k = 0; k < i; k++)
            assert_ptr_not_equal(plan->items[k].seq, it->seq);
        rows += it->n_rows;
        decode += it->decodes;
        assert_true(!it->decodes || it->n_rows == 1);
        assert_int_equal(it->decodes,
                         it->n_rows == 1 && ech_seq_end_of_rows(it->seq) == it->first + 1);
        logits += it->samples + it->n_scores;
        embed += it->seq->embeds ? it->n_rows : 0;
        assert_false(it->seq->embeds && it->samples);
    }
    assert_int_equal(rows, plan->n_rows);
    assert_int_equal(decode, plan->n_decode_rows);
    assert_int_equal(logits, plan->n_logits);
    assert_int_equal(embed, plan->n_embed_rows);
    assert_true(rows <= m->sched.max_rows && logits <= m->sched.max_logits);
}

/* No more prompt rows than were asked for, and nobody who needs one row is left out, but a prompt's
 * last one where prompts are gathered. */
static void check_shares(const sim *m, const ech_step_plan *plan, uint32_t prefill_rows)
{
    uint32_t n_prompt = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const ech_plan_item *const it = &plan->items[i];
        if (it->n_rows > 1) n_prompt += it->n_rows - (it->seq->n_ahead > 0);
    }
    const uint32_t most = prefill_rows > m->sched.read_rows ? prefill_rows : m->sched.read_rows;
    assert_true(n_prompt <= most);
    if (plan->needs_drain || plan->n_logits >= m->sched.max_logits) return;
    for (const ech_seq *seq = m->sched.running.head; seq != NULL; seq = seq->next) {
        bool is_planned = seq->is_paused || ech_seq_end_of_rows(seq) != seq->n_sent + 1 ||
                          (m->sched.gathers && seq->n_sent + 1 == seq->n_prompt);
        for (uint32_t i = 0; i < plan->n_items; i++)
            is_planned = is_planned || plan->items[i].seq == seq;
        assert_true(is_planned);
    }
}

static void look_ahead(sim *m, sim_seq *q)
{
    ech_seq *const seq = &q->seq;
    if (q->is_ended || seq->n_ahead > 0 || seq->n_ids == seq->n_prompt || draw(3) > 0) return;
    if (seq->n_sent + 1 < seq->n_ids) return; /* computed again: see ech_sched_know */
    const uint32_t most = seq->max_ids - seq->n_ids;
    uint32_t n = draw(20);
    if (n > most) n = most;
    for (uint32_t i = 0; i < n; i++)
        q->ids[seq->n_ids + i] = next_id(q->ids, seq->n_ids + i);
    if (n > seq->n_pending) ech_sched_know(seq, n, &m->plans[m->n_done % 2]);
}

/* An id was drawn, or scored that was known. */
static void take(sim *m, sim_seq *q)
{
    const uint32_t at = ech_seq_n_taken(&q->seq);
    const int32_t id = next_id(q->ids, at);
    if (q->is_ended) return;
    if (q->seq.n_ahead > 0) {
        assert_int_equal(q->ids[at], id);
        q->seq.n_ahead--;
    } else {
        q->ids[q->seq.n_ids++] = id;
    }
    if (at + 1 >= q->stop_at) end(m, q);
}

static void finish_step(sim *m)
{
    const ech_step_plan *const plan = &m->plans[m->n_done % 2];
    compute(m, plan);
    m->n_done++;
    m->rows_done += plan->n_rows;
    m->now += ECH_NS_PER_MS;
    ech_sched_committed(&m->sched, plan);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        sim_seq *const q = (sim_seq *)plan->items[i].seq;
        const uint32_t first = plan->items[i].first + 1; /* the id that the first row scores */
        for (uint32_t k = 0; k < plan->items[i].n_scores; k++)
            if (first + k >= q->seq.n_prompt) take(m, q);
        if (m->draws[(m->n_done - 1) % 2][i]) take(m, q);
        if (m->looks_ahead && !q->seq.embeds) look_ahead(m, q);
        if (q->seq.embeds && !q->is_ended && q->seq.n_committed == q->seq.n_prompt) end(m, q);
    }
}

/* One turn of the engine's loop. False when there is nothing to do. */
static bool turn(sim *m, uint32_t prefill_rows)
{
    if (m->n_sent - m->n_done < 2) {
        ech_step_plan *const plan = &m->plans[m->n_sent % 2];
        ech_sched_plan(&m->sched, m->now, prefill_rows, plan);
        assert_true(ech_sched_is_sound(&m->sched));
        check_plan(m, plan);
        check_shares(m, plan, prefill_rows);
        if (plan->n_items > 0) {
            for (uint32_t i = 0; i < plan->n_admitted; i++) {
                sim_seq *const q = (sim_seq *)plan->admitted[i];
                if (q->started_ns == 0) q->started_ns = m->now;
            }
            m->rows += plan->n_rows;
            for (uint32_t i = 0; i < plan->n_items; i++)
                m->draws[m->n_sent % 2][i] = plan->items[i].samples;
            ech_sched_sent(&m->sched, plan);
            m->n_sent++;
            return true;
        }
        assert_true(m->n_sent > m->n_done || m->sched.running.n == 0 ||
                    m->sched.running.head->is_paused);
    }
    if (m->n_sent == m->n_done) return false;
    finish_step(m);
    return true;
}

static void run_dry(sim *m, uint32_t prefill_rows)
{
    for (int i = 0; turn(m, prefill_rows); i++)
        assert_true(i < 100000);
    assert_int_equal(m->sched.waiting.n, 0);
}

/* The answer that a lone sequence gives. */
static void check_answer(const sim_seq *q)
{
    for (uint32_t i = q->seq.n_prompt; i < q->seq.n_ids; i++)
        assert_int_equal(q->ids[i], next_id(q->ids, i));
}

static sim M;

/* A deep row costs more, so that many fewer fit, whichever prompt they are of. */
static void deep_rows_cost_more(void **state)
{
    (void)state;
    sim_open(&M, 16, 4, 68);
    M.sched.depth_unit = 32;
    M.sched.max_prompt_rows = 64;
    sim_seq *const q = push(&M, 200, 2, "", 1);
    double cost = 0;
    uint32_t last = 64;
    while (q->seq.n_sent < 200) {
        ech_step_plan *const plan = &M.plans[M.n_sent % 2];
        const uint64_t before = M.n_sent, first = q->seq.n_sent;
        (void)turn(&M, 40);
        if (M.n_sent == before) continue;
        cost = ech_sched_row_cost(&M.sched, (uint32_t)first, plan->n_rows);
        assert_true(cost <= 40 * 1.7); /* by its first row's depth */
        assert_true(plan->n_rows <= last);
        last = plan->n_rows;
    }
    assert_true(last <= 8);
    run_dry(&M, 40);
    sim_close(&M);
}

/* Prompt rows that one row's read of keys and values is enough for come along with it, deep down;
 * and a row of a prompt that has more is not one of an answer, even alone. */
static void rows_share_a_deep_read(void **state)
{
    (void)state;
    sim_open(&M, 16, 4, 68);
    M.sched.depth_unit = 8;
    M.sched.read_rows = 3;
    sim_seq *const q = push(&M, 200, 2, "", 1);
    while (q->seq.n_sent < 200) {
        ech_step_plan *const plan = &M.plans[M.n_sent % 2];
        const uint64_t before = M.n_sent, first = q->seq.n_sent;
        (void)turn(&M, 1);
        if (M.n_sent == before) continue;
        const bool is_last = first + plan->n_rows == 200;
        if (!is_last) assert_int_equal(plan->n_rows, first < 11 ? 1 : first < 22 ? 2 : 3);
        assert_int_equal(plan->n_decode_rows, is_last && plan->n_rows == 1);
    }
    assert_true(ech_sched_row_cost(&M.sched, 80, 3) < 1.1 * ech_sched_row_cost(&M.sched, 80, 1));
    assert_true(ech_sched_row_cost(&M.sched, 80, 6) > 1.9 * ech_sched_row_cost(&M.sched, 80, 3));
    run_dry(&M, 1);
    sim_close(&M);
}

/* Known ids take one step together with the row before them, and the step in flight is used. */
static void known_ids_are_computed_at_once(void **state)
{
    (void)state;
    sim_open(&M, 16, 4, 68);
    sim_seq *const q = push(&M, 10, 40, "", 1);
    while (q->seq.n_ids < 12)
        (void)turn(&M, 32);
    for (uint32_t i = 0; i < 20; i++)
        q->ids[12 + i] = next_id(q->ids, 12 + i);
    const uint64_t before = M.n_sent;
    ech_sched_know(&q->seq, 20, &M.plans[M.n_done % 2]);
    while (q->seq.n_ids < 33)
        assert_true(turn(&M, 64));
    assert_true(M.n_sent - before <= 2);
    run_dry(&M, 32);
    check_answer(q);
    sim_close(&M);
}

static void first_come_first_admitted(void **state)
{
    (void)state;
    sim_open(&M, 64, 4, 40);
    sim_seq *q[12];
    for (int i = 0; i < 12; i++)
        q[i] = push(&M, 10 + (uint32_t)i, 8, "", 1);
    run_dry(&M, 32);
    for (int i = 1; i < 12; i++)
        assert_true(q[i]->seq.admitted > q[i - 1]->seq.admitted);
    for (int i = 0; i < 12; i++)
        check_answer(q[i]);
    sim_close(&M);
}

static void a_lower_priority_number_overtakes_and_ages(void **state)
{
    (void)state;
    sim_open(&M, 64, 1, 40);
    sim_seq *const first = push(&M, 10, 50, "", 1);
    (void)turn(&M, 32);
    sim_seq *const low = push(&M, 10, 5, "", 1);
    low->seq.priority = 2;
    sim_seq *const high = push(&M, 10, 5, "", 1);
    run_dry(&M, 32);
    assert_true(first->seq.admitted < high->seq.admitted && high->seq.admitted < low->seq.admitted);
    /* A stream of urgent ones doesn't starve it: after 30 s it is as urgent as they are. */
    sim_seq *const starving = push(&M, 10, 5, "", 1);
    starving->seq.priority = 2;
    int n = 0;
    for (; !starving->is_ended && n < 300; n++) {
        (void)push(&M, 10, 5, "", 1);
        M.now += 200 * ECH_NS_PER_MS;
        for (int i = 0; i < 6; i++)
            (void)turn(&M, 32);
    }
    assert_true(starving->is_ended && n > 20);
    run_dry(&M, 32);
    sim_close(&M);
}

static void tenants_share_by_weight(void **state)
{
    (void)state;
    sim_open(&M, 64, 2, 40);
    for (int i = 0; i < 100; i++)
        (void)push(&M, 20, 10, "a", 1);
    for (int i = 0; i < 100; i++)
        (void)push(&M, 20, 10, "b", 3);
    M.sched.no_cache = true; /* so that each has the same number of rows */
    uint32_t done_a = 0, done_b = 0;
    while (done_b < 60) {
        assert_true(turn(&M, 32));
        done_a = done_b = 0;
        for (uint32_t i = 0; i < 200; i++)
            *(i < 100 ? &done_a : &done_b) += M.seqs[i]->is_ended;
    }
    assert_in_range(done_a, 17, 23);
    run_dry(&M, 32);
    sim_close(&M);
}

static void a_short_prompt_does_not_wait_for_a_long_one(void **state)
{
    (void)state;
    sim_open(&M, 64, 8, 24);
    sim_seq *const longest = push(&M, 7 * T, 4, "", 1);
    (void)turn(&M, 16);
    sim_seq *const shorter = push(&M, 15, 4, "", 1);
    const uint64_t before = M.n_sent;
    while (shorter->seq.n_ids == 15)
        assert_true(turn(&M, 16));
    assert_true(M.n_sent - before <= 4);
    assert_int_equal(longest->seq.n_ids, 7 * T);
    run_dry(&M, 16);
    sim_close(&M);
}

static void decodes_run_in_every_step_of_a_long_prompt(void **state)
{
    (void)state;
    sim_open(&M, 64, 4, 24);
    sim_seq *const stream = push(&M, 4, 200, "", 1);
    for (int i = 0; i < 8; i++)
        (void)turn(&M, 16);
    (void)push(&M, 7 * T, 2, "", 1);
    uint64_t n_with_prompt = 0;
    while (!stream->is_ended) {
        const uint64_t sent = M.n_sent;
        assert_true(turn(&M, 16));
        if (M.n_sent == sent) continue;
        const ech_step_plan *const plan = &M.plans[sent % 2];
        assert_true(stream->is_ended || plan->n_decode_rows >= 1 ||
                    stream->seq.n_ids + stream->seq.n_pending == stream->seq.max_ids);
        n_with_prompt += plan->n_decode_rows > 0 && plan->n_rows > plan->n_decode_rows;
    }
    assert_true(n_with_prompt >= 7 * T / 16 - 1);
    run_dry(&M, 16);
    sim_close(&M);
}

/* Steps until each has its first token; 0: not yet. Returns the rows until the first of all. */
static uint64_t first_tokens(sim *m, uint32_t prefill_rows, uint64_t *ret_steps)
{
    uint64_t rows = 0;
    memset(ret_steps, 0, MAX_SEQS * sizeof *ret_steps);
    for (uint32_t left = m->n_seqs; left > 0;) {
        assert_true(turn(m, prefill_rows));
        for (uint32_t i = 0; i < m->n_seqs; i++) {
            const ech_seq *const q = &m->seqs[i]->seq;
            if (ret_steps[i] != 0 || q->n_ids == q->n_prompt) continue;
            ret_steps[i] = m->n_done;
            if (rows == 0) rows = m->rows_done;
            left--;
        }
    }
    return rows;
}

static sim_seq *push_own(sim *m, uint32_t n_prompt, int32_t id)
{
    sim_seq *const q = push(m, n_prompt, 20, "", 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        q->ids[i] = id;
    return q;
}

static void most_of_a_burst_begins_together(void **state)
{
    (void)state;
    static uint64_t steps[MAX_SEQS];
    for (uint32_t n = 1; n <= 8; n++) {
        sim_open(&M, 64, 8, 40);
        M.sched.max_prompt_rows = 16;
        for (uint32_t i = 0; i < n; i++)
            (void)push_own(&M, 10, (int32_t)i);
        const uint64_t rows = first_tokens(&M, 16, steps);
        const uint32_t half = n > 2 ? n / 2 + 1 : 1;
        for (uint32_t i = 0; i < half; i++)
            assert_int_equal(steps[i], steps[0]);
        assert_in_range(steps[0], 10 * half / 16, 10 * half / 16 + 2);
        if (half < n) assert_true(steps[half] >= steps[0]);
        if (n > 2) assert_in_range(rows, 10 * half, 10 * half + 10); /* one more, and no other */
        run_dry(&M, 16);
        for (uint32_t i = 0; i < n; i++)
            check_answer(M.seqs[i]);
        sim_close(&M);
    }
}

/* Four full steps at most: 128 rows, seven prompts of these and what the step holds. */
static void a_burst_is_not_gathered_for_long(void **state)
{
    (void)state;
    static uint64_t steps[MAX_SEQS];
    sim_open(&M, 128, 32, 40);
    M.sched.max_prompt_rows = 32;
    for (int32_t i = 0; i < 32; i++)
        (void)push_own(&M, 20, i);
    (void)first_tokens(&M, 32, steps);
    assert_in_range(steps[0], 4, 6);
    assert_true(steps[10] > steps[0]); /* not half of all */
    run_dry(&M, 32);
    sim_close(&M);
}

static void whoever_decodes_is_not_kept_waiting(void **state)
{
    (void)state;
    static uint64_t steps[MAX_SEQS];
    sim_open(&M, 64, 8, 40);
    M.sched.max_prompt_rows = 32;
    sim_seq *const stream = push_own(&M, 4, 99);
    while (stream->seq.n_ids == 4)
        assert_true(turn(&M, 32));
    for (int32_t i = 0; i < 6; i++)
        (void)push_own(&M, 20, i);
    (void)first_tokens(&M, 32, steps);
    assert_true(steps[1] < steps[3]); /* in turn, as they came */
    run_dry(&M, 32);
    sim_close(&M);
}

/* Prompts that are only scored draw nothing, so nothing of them waits; one has no row at all. */
static void scores_alone_are_not_gathered(void **state)
{
    (void)state;
    static const uint32_t n_prompts[] = { 1, 2, 20, 20 };
    sim_open(&M, 64, 8, 64);
    for (int32_t i = 0; i < 4; i++) {
        sim_seq *const q = push_own(&M, n_prompts[i], i);
        q->seq.max_ids = q->seq.n_scores = n_prompts[i];
    }
    assert_true(turn(&M, 64));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(M.seqs[i]->seq.n_sent, n_prompts[i] - 1);
        end(&M, M.seqs[i]);
    }
    run_dry(&M, 64);
    sim_close(&M);
}

/* The pool holds two prompts: the third can't be computed before one of them has ended. */
static void a_burst_without_room_is_not_gathered(void **state)
{
    (void)state;
    sim_open(&M, 4, 8, 40);
    for (int32_t i = 0; i < 8; i++)
        (void)push_own(&M, T + 8, i);
    run_dry(&M, 32);
    for (uint32_t i = 0; i < M.n_seqs; i++)
        check_answer(M.seqs[i]);
    sim_close(&M);
}

static void siblings_share_their_prompt(void **state)
{
    (void)state;
    sim_open(&M, 64, 8, 72);
    sim_seq *const leader = push(&M, 70, 10, "", 1);
    for (int k = 0; k < 3; k++) {
        sim_seq *const q = push(&M, 70, 10, "", 1);
        memcpy(q->ids, leader->ids, sizeof q->ids);
        q->seq.leader = &leader->seq;
    }
    run_dry(&M, 64);
    for (int k = 1; k < 4; k++) {
        assert_int_equal(M.seqs[k]->seq.n_reused, 69);
        check_answer(M.seqs[k]);
    }
    assert_int_equal(M.sched.n_copies, 3); /* the page that the prompt ends in */
    sim_close(&M);
}

static void a_burst_computes_its_common_beginning_once(void **state)
{
    (void)state;
    sim_open(&M, 128, 16, 80);
    sim_seq *const first = push(&M, 5 * T, 4, "", 1);
    for (int k = 1; k < 12; k++) {
        sim_seq *const q = push(&M, 5 * T, 4, "", 1);
        memcpy(q->ids, first->ids, 4 * T * sizeof *q->ids); /* then ids of its own */
        q->ids[4 * T] = 50 + k;
    }
    run_dry(&M, 64);
    for (uint32_t k = 1; k < 12; k++) {
        assert_int_equal(M.seqs[k]->seq.n_reused, 4 * T);
        check_answer(M.seqs[k]);
    }
    assert_true(M.rows < 5 * T + 11 * (T + 1) + 12 * 4);
    sim_close(&M);
}

static void the_oldest_is_never_preempted(void **state)
{
    (void)state;
    sim_open(&M, 8, 4, 40); /* as many pages as one of them needs at its end */
    for (int i = 0; i < 6; i++)
        (void)push(&M, 20, MAX_IDS - 20, "", 1);
    run_dry(&M, 32);
    assert_int_equal(M.seqs[0]->seq.n_preempted, 0);
    assert_true(M.sched.n_preemptions > 0);
    for (uint32_t i = 0; i < M.n_seqs; i++)
        check_answer(M.seqs[i]);
    sim_close(&M);
}

static void random_load(uint32_t n_pages, uint32_t max_running, uint32_t chunk, bool no_cache,
                        bool looks_ahead)
{
    sim_open(&M, n_pages, max_running, chunk + max_running);
    M.sched.no_cache = no_cache;
    M.looks_ahead = looks_ahead;
    uint32_t n_rollbacks = 0;
    while (M.n_seqs < 300) {
        if (draw(6) == 0) {
            const uint32_t n_prompt = 1 + draw(MAX_IDS / 2);
            const uint32_t n_answer = 1 + draw(MAX_IDS / 2);
            static const char *const TENANTS[] = { "", "a", "b" };
            sim_seq *const q = push(&M, n_prompt, n_answer, TENANTS[draw(3)], 1 + draw(3));
            q->stop_at = n_prompt + 1 + draw(n_answer); /* some end before max_ids */
            q->seq.priority = (int32_t)draw(3);
            if (draw(4) == 0) {
                q->seq.embeds = true;
                q->seq.max_ids = q->stop_at = n_prompt;
                q->seq.no_reuse = draw(2) == 0;
            } else if (draw(8) == 0) {
                q->seq.n_scores = n_prompt;
                q->seq.no_reuse = true;
            }
        }
        if (draw(50) == 0 && M.n_seqs > 0) {
            sim_seq *const q = M.seqs[draw(M.n_seqs)];
            if (!q->is_ended) end(&M, q);
        }
        if (draw(20) == 0 && M.n_seqs > 0) {
            ech_seq *const seq = &M.seqs[draw(M.n_seqs)]->seq;
            seq->is_paused = !seq->is_paused;
        }
        if (draw(100) == 0) { /* a chip died */
            M.n_done = M.n_sent;
            ech_sched_rolled_back(&M.sched);
            n_rollbacks++;
        }
        (void)turn(&M, chunk);
    }
    for (uint32_t i = 0; i < M.n_seqs; i++)
        M.seqs[i]->seq.is_paused = false;
    run_dry(&M, chunk);
    assert_true(n_rollbacks > 0);
    for (uint32_t i = 0; i < M.n_seqs; i++)
        check_answer(M.seqs[i]);
    sim_close(&M);
}

static void random_loads_are_answered_as_if_alone(void **state)
{
    (void)state;
    const char *const given = getenv("ECH_SEED");
    rng = given != NULL ? strtoull(given, NULL, 0) : 20261130;
    print_message("seed=%llu\n", (unsigned long long)rng);
    for (int ahead = 0; ahead < 2; ahead++) {
        random_load(8, 4, 32, false, ahead);
        random_load(11, 8, 7, false, ahead);
        random_load(40, 16, 64, false, ahead);
        random_load(9, 5, 1, false, ahead);
        random_load(12, 6, 32, true, ahead);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_admitted),
        cmocka_unit_test(known_ids_are_computed_at_once),
        cmocka_unit_test(deep_rows_cost_more),
        cmocka_unit_test(rows_share_a_deep_read),
        cmocka_unit_test(a_lower_priority_number_overtakes_and_ages),
        cmocka_unit_test(tenants_share_by_weight),
        cmocka_unit_test(a_short_prompt_does_not_wait_for_a_long_one),
        cmocka_unit_test(decodes_run_in_every_step_of_a_long_prompt),
        cmocka_unit_test(most_of_a_burst_begins_together),
        cmocka_unit_test(a_burst_is_not_gathered_for_long),
        cmocka_unit_test(whoever_decodes_is_not_kept_waiting),
        cmocka_unit_test(scores_alone_are_not_gathered),
        cmocka_unit_test(a_burst_without_room_is_not_gathered),
        cmocka_unit_test(siblings_share_their_prompt),
        cmocka_unit_test(a_burst_computes_its_common_beginning_once),
        cmocka_unit_test(the_oldest_is_never_preempted),
        cmocka_unit_test(random_loads_are_answered_as_if_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
