/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests between steps, on the engine's thread: how they start, what a drawn id does, how they
 * end. Every event of every stream is made here.
 *
 * Invariant: a request is in e->live until each of its answers has had its FINISH, then in
 * e->ending until no step in flight names its answers, then it is let go.
 */
#include <math.h>
#include <stdlib.h>

#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/engine/engine_int.h"

enum { MAX_AHEAD = 64 }; /* forced ids that are looked for at once */

static void list_append(ech_request_list *l, ech_request *r)
{
    r->prev = l->tail;
    r->next = NULL;
    if (l->tail != NULL)
        l->tail->next = r;
    else
        l->head = r;
    l->tail = r;
    l->n++;
}

static void list_remove(ech_request_list *l, ech_request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        l->head = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        l->tail = r->prev;
    r->prev = r->next = NULL;
    l->n--;
}

/* ---- the end ---- */

static void add_usage(ech_usage *sum, const ech_answer *a, bool counts_prompt)
{
    const ech_usage *const u = &a->usage;
    if (counts_prompt) {
        sum->prompt_tokens += u->prompt_tokens;
        sum->cached_tokens += u->cached_tokens;
    }
    sum->reasoning_tokens += u->reasoning_tokens;
    sum->completion_tokens += u->completion_tokens;
    sum->preemptions += u->preemptions;
    sum->queued_ns = u->queued_ns;
    if (u->started_ns > 0 && (sum->started_ns == 0 || u->started_ns < sum->started_ns))
        sum->started_ns = u->started_ns;
    if (u->first_token_ns > 0 &&
        (sum->first_token_ns == 0 || u->first_token_ns < sum->first_token_ns))
        sum->first_token_ns = u->first_token_ns;
    if (u->finished_ns > sum->finished_ns) sum->finished_ns = u->finished_ns;
}

static void tell_done(ech_engine *e, ech_request *r)
{
    ech_event ev = { .kind = ECH_EVENT_DONE, .seed = r->seed, .error = r->first_error };
    for (uint32_t i = 0; i < r->n_answers; i++)
        add_usage(&ev.usage, &r->answers[i], i % r->n == 0);
    if (r->deadline_ns > 0) e->n_deadlines--;
    e->n_watchers -= r->logits != NULL;
    if (r->has_places) {
        ech_kv_salt_release(&e->kv, r->salt);
        ech_sched_tenant_release(&e->sched, r->tenant_idx);
    }
    list_remove(&e->live, r);
    list_append(&e->ending, r);
    ech_request_event(r, &ev);
}

static void count_finish(ech_engine *e, const ech_answer *a, ech_finish why)
{
    (void)pthread_mutex_lock(&e->lock);
    ech_engine_counters *const c = &e->counters;
    c->finished_stop += why == ECH_FINISH_STOP;
    c->finished_length += why == ECH_FINISH_LENGTH;
    c->finished_cancelled += why == ECH_FINISH_CANCELLED;
    c->finished_error += why == ECH_FINISH_ERROR;
    (void)pthread_mutex_unlock(&e->lock);
    if (a->usage.started_ns == 0) ech_inbox_started(e->inbox, 1, a->seq.n_prompt);
}

static void tell_parsed(ech_answer *a, const ech_parser_event *pe)
{
    static const ech_channel CHANNELS[] = {
        [ECH_PARSER_TEXT] = ECH_CHANNEL_CONTENT,
        [ECH_PARSER_REASONING] = ECH_CHANNEL_REASONING,
        [ECH_PARSER_TOOL_START] = ECH_CHANNEL_TOOL_NAME,
        [ECH_PARSER_TOOL_ARGS] = ECH_CHANNEL_TOOL_ARGS,
    };
    ech_event ev = { .kind = ECH_EVENT_TEXT, .choice = a->index, .call_index = pe->index };
    if (pe->kind == ECH_PARSER_TOOL_END) {
        ev.kind = ECH_EVENT_TOOL_END;
        ev.call_complete = pe->complete;
    } else {
        ev.channel = CHANNELS[pe->kind];
        ev.text = pe->text;
        ev.text_len = pe->text_len;
        ev.call_id = pe->call_id;
        ev.call_id_len = pe->call_id_len;
    }
    ech_request_event(a->request, &ev);
}

/* Tells what the parser's last call gave. The stop string that came, else NULL. */
static const char *tell_events(ech_answer *a)
{
    size_t n;
    const char *stop = NULL;
    const ech_parser_event *const events = ech_parser_events(a->parser, &n);
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == ECH_PARSER_STOP)
            stop = a->request->stop[events[i].index];
        else
            tell_parsed(a, &events[i]);
    }
    return stop;
}

/* What was held back comes out; a last character may complete a stop string. */
static void finish_parser(ech_answer *a, ech_event *finish)
{
    const bool had_stopped = ech_parser_stopped(a->parser);
    if (ech_parser_finish(a->parser, &finish->error) != ECH_OK) finish->finish = ECH_FINISH_ERROR;
    const char *const stop = had_stopped ? NULL : tell_events(a);
    if (stop != NULL && finish->finish == ECH_FINISH_LENGTH) {
        finish->finish = ECH_FINISH_STOP;
        finish->stop = stop;
    }
    finish->n_calls = ech_parser_complete_calls(a->parser);
    a->usage.reasoning_tokens = (uint32_t)ech_parser_reasoning_tokens(a->parser);
    ech_parser_destroy(&a->parser);
}

void ech_live_finish(ech_engine *e, ech_answer *a, ech_finish why, const char *stop,
                     const ech_error *err)
{
    ech_request *const r = a->request;
    if (a->has_finished) return;
    a->has_finished = true;
    e->n_suspects -= a->is_suspect;
    ech_event ev = { .kind = ECH_EVENT_FINISH, .choice = a->index, .finish = why, .stop = stop };
    if (why == ECH_FINISH_ERROR) ev.error = *err;
    if (a->parser != NULL) finish_parser(a, &ev);
    ech_embed_end(&a->embed);
    ech_guide_close(&a->guide);
    a->usage.finished_ns = ech_now_ns();
    a->usage.preemptions = a->seq.n_preempted;
    (void)ech_sched_end(&e->sched, &a->seq);
    count_finish(e, a, ev.finish);
    if (r->first_error.code == ECH_OK) r->first_error = ev.error;
    ev.usage = a->usage;
    ech_request_event(r, &ev);
    if (--r->n_live == 0) tell_done(e, r);
}

void ech_live_reap(ech_engine *e)
{
    for (ech_request *r = e->ending.head, *next; r != NULL; r = next) {
        next = r->next;
        bool is_over = true;
        for (uint32_t i = 0; i < r->n_answers && is_over; i++)
            is_over = r->answers[i].seq.state == ECH_SEQ_RELEASED;
        if (!is_over) continue;
        list_remove(&e->ending, r);
        ech_request_let_go(r);
    }
}

static void finish_all(ech_engine *e, ech_request *r, ech_finish why, const ech_error *err)
{
    const uint32_t n = r->n_answers;
    for (uint32_t i = 0; i < n; i++)
        ech_live_finish(e, &r->answers[i], why, NULL, err);
}

void ech_live_end_all(ech_engine *e, ech_finish why, const ech_error *err)
{
    for (ech_request *r = e->live.head, *next; r != NULL; r = next) {
        next = r->next;
        finish_all(e, r, why, err);
    }
}

/* ---- the beginning ---- */

/* Nothing has to be computed: a prompt that is only echoed, or a single id that is only scored. */
static bool needs_no_row(const ech_answer *a)
{
    return a->request->scores_only && (a->request->prompt_logprobs < 0 || a->seq.n_prompt == 1);
}

static ech_status take_places(ech_engine *e, ech_request *r, ech_error *err)
{
    if (ech_kv_salt_acquire(&e->kv, ech_str_from(r->cache_salt), &r->salt) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "queueing a request: out of memory");
    if (ech_sched_tenant_acquire(&e->sched, ech_str_from(r->tenant), r->tenant_weight,
                                 &r->tenant_idx) != ECH_OK) {
        ech_kv_salt_release(&e->kv, r->salt);
        return ech_fail(err, ECH_ENOMEM, "queueing a request: out of memory");
    }
    r->has_places = true;
    return ECH_OK;
}

void ech_live_accept(ech_engine *e, ech_request *r)
{
    const int64_t now = ech_now_ns();
    ech_error err = { .code = ECH_OK };
    ech_event ev = { .kind = ECH_EVENT_QUEUED, .seed = r->seed };
    r->n_live = r->n_answers;
    list_append(&e->live, r);
    e->n_deadlines += r->deadline_ns > 0;
    e->n_watchers += r->logits != NULL;
    for (uint32_t i = 0; i < r->n_answers; i++) {
        r->answers[i].usage.queued_ns = r->answers[i].seq.queued_ns = now;
        add_usage(&ev.usage, &r->answers[i], i % r->n == 0);
    }
    (void)pthread_mutex_lock(&e->lock);
    e->counters.requests_total++;
    (void)pthread_mutex_unlock(&e->lock);
    ech_request_event(r, &ev);
    if (take_places(e, r, &err) != ECH_OK) {
        finish_all(e, r, ECH_FINISH_ERROR, &err);
        return;
    }
    const uint32_t n = r->n_answers;
    for (uint32_t i = 0; i < n; i++) {
        ech_answer *const a = &r->answers[i];
        a->seq.salt = r->salt;
        a->seq.tenant = r->tenant_idx;
        if (!needs_no_row(a)) {
            ech_sched_push(&e->sched, &a->seq);
            continue;
        }
        ech_live_start(e, a);
        ech_live_finish(e, a, ECH_FINISH_LENGTH, NULL, NULL);
    }
}

static void tell_first_prompt_id(ech_answer *a)
{
    ech_event ev = { .kind = ECH_EVENT_PROMPT_TOKEN, .choice = a->index, .id = a->seq.ids[0] };
    ech_request_event(a->request, &ev);
    a->n_scored = 1;
}

/* The prompt's own text, before the answer's. */
static ech_status tell_echo(const ech_engine *e, ech_answer *a, ech_error *err)
{
    char *text;
    ech_event ev = { .kind = ECH_EVENT_TEXT, .choice = a->index };
    ECH_TRY(ech_tokenizer_decode(e->tokenizer, a->seq.ids, a->seq.n_prompt,
                                 a->request->skip_special ? ECH_DECODE_SKIP_SPECIAL : 0, &text,
                                 &ev.text_len, err));
    ev.text = text;
    if (ev.text_len > 0) ech_request_event(a->request, &ev);
    free(text);
    return ECH_OK;
}

/* At the first admission: the events and states that an answer begins with. */
static ech_status begin(ech_engine *e, ech_answer *a, ech_error *err)
{
    ech_request *const r = a->request;
    if (r->embeds) {
        const ech_status rc = ech_embed_begin(&a->embed, e->memory.shape.hidden);
        return rc == ECH_OK ? rc : ech_fail(err, rc, "embedding a prompt: out of memory");
    }
    ECH_TRY(ech_guide_open(&a->guide, r->constraint, r->thinking_budget, r->hook, err));
    if (r->echo) ECH_TRY(tell_echo(e, a, err));
    if (a->seq.n_scores > 0 && a->seq.scores_from == 0) tell_first_prompt_id(a);
    return ECH_OK;
}

void ech_live_start(ech_engine *e, ech_answer *a)
{
    const bool is_first = a->usage.started_ns == 0;
    if (a->seq.state == ECH_SEQ_RUNNING) ech_step_prepare_slot(&e->memory, a);
    if (!is_first) return;
    a->usage.started_ns = ech_now_ns();
    a->usage.cached_tokens = a->seq.n_reused;
    ech_inbox_started(e->inbox, 1, a->seq.n_prompt);
    (void)pthread_mutex_lock(&e->lock);
    e->counters.prompt_tokens += a->seq.n_prompt;
    e->counters.cached_tokens += a->seq.n_reused;
    (void)pthread_mutex_unlock(&e->lock);
    ech_event ev = {
        .kind = ECH_EVENT_STARTED, .choice = a->index, .seed = a->seed, .usage = a->usage
    };
    ech_request_event(a->request, &ev);
    ech_error err = { .code = ECH_OK };
    if (begin(e, a, &err) != ECH_OK) ech_live_finish(e, a, ECH_FINISH_ERROR, NULL, &err);
}

/* ---- what a step brings ---- */

static void set_logprobs(ech_event *ev, const ech_sample_out *out, int32_t wanted)
{
    if (wanted < 0) return;
    ev->has_logprob = true;
    ev->logprob = out->logprob;
    ev->rank = out->rank;
    _Static_assert(sizeof(ech_token_prob) == sizeof(ech_top_logprob), "the same pair");
    ev->top = (const ech_token_prob *)(const void *)out->top;
    ev->n_top = out->n_top < (uint32_t)wanted ? out->n_top : (uint32_t)wanted;
}

static void count_token(ech_engine *e, ech_answer *a)
{
    const int64_t now = ech_now_ns();
    (void)pthread_mutex_lock(&e->lock);
    ech_engine_counters *const c = &e->counters;
    c->generated_tokens++;
    if (a->usage.first_token_ns == 0) {
        c->ttft_count++;
        c->ttft_ns_total += (uint64_t)(now - a->usage.queued_ns);
        a->usage.first_token_ns = now;
    } else {
        c->gap_count++;
        c->gap_ns_total += (uint64_t)(now - a->last_token_ns);
    }
    (void)pthread_mutex_unlock(&e->lock);
    a->last_token_ns = now;
    a->usage.completion_tokens++;
}

static bool ends_answer(const ech_request *r, int32_t id)
{
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id) return true;
    return false;
}

/* A special token that isn't shown still reaches the parser: it may be a marker. */
static ech_status parse_id(const ech_engine *e, ech_answer *a, int32_t id, ech_error *err)
{
    size_t len;
    const char *const bytes = ech_tokenizer_token_bytes(e->tokenizer, id, &len);
    if (a->request->skip_special && ech_tokenizer_is_special(e->tokenizer, id)) len = 0;
    return ech_parser_feed(a->parser, id, bytes, len, err);
}

/* The id that was drawn, or one that was known ahead and has its log-probability now. */
static ech_status append_id(ech_answer *a, int32_t id, ech_error *err)
{
    ech_seq *const seq = &a->seq;
    const uint32_t at = ech_seq_n_taken(seq);
    if (seq->n_ahead == 0) {
        seq->ids[seq->n_ids++] = id;
        return ECH_OK;
    }
    if (seq->ids[at] != id)
        return ech_fail(err, ECH_EINTERNAL, "drawing a token: it is %d, its mask has only %d", id,
                        seq->ids[at]);
    seq->n_ahead--;
    return ECH_OK;
}

static ech_status take_id(ech_engine *e, ech_answer *a, const ech_sample_out *out, ech_error *err)
{
    ech_request *const r = a->request;
    const int32_t id = out->id;
    ECH_TRY(append_id(a, id, err));
    a->mu = out->mu;
    count_token(e, a);
    ech_event ev = { .kind = ECH_EVENT_TOKEN, .choice = a->index, .id = id };
    set_logprobs(&ev, out, r->logprobs);
    ech_request_event(r, &ev);
    if (ends_answer(r, id)) {
        ech_live_finish(e, a, ECH_FINISH_STOP, NULL, NULL);
        return ECH_OK;
    }
    bool has_ended;
    ECH_TRY(ech_guide_accept(&a->guide, id, &has_ended, err));
    ECH_TRY(parse_id(e, a, id, err));
    const char *const stop = tell_events(a);
    if (stop != NULL || has_ended) /* nothing but an end of sequence could follow */
        ech_live_finish(e, a, ECH_FINISH_STOP, stop, NULL);
    else if (ech_seq_n_taken(&a->seq) == a->seq.max_ids)
        ech_live_finish(e, a, ECH_FINISH_LENGTH, NULL, NULL);
    return ECH_OK;
}

/* The option of the request that forbids ids, the strictest first; NULL: none does. */
static const char *what_forbids(const ech_request *r)
{
    const ech_sampling *const s = &r->sampling;
    if (s->n_allowed_ids > 0) return "allowed_ids";
    if (s->n_banned_ids > 0) return "banned_ids";
    if (s->n_bad_words > 0) return "bad_words";
    for (size_t i = 0; i < s->n_logit_bias; i++)
        if (!isfinite(s->logit_bias[i].bias)) return "logit_bias";
    return r->min_tokens > 0 ? "min_tokens" : NULL;
}

/* Lists and masks that have no id in common are the caller's; a mask that is empty by itself isn't
 * a request's fault. */
static ech_status fail_masked(const ech_request *r, ech_error *err)
{
    static const char TEXT[] =
        "drawing a token: masks, banned and allowed ids leave nothing to choose";
    const char *const argument = what_forbids(r);
    return argument != NULL ? ech_fail_argument(err, ECH_EINVAL, argument, "%s", TEXT)
                            : ech_fail(err, ECH_ENUMERIC, "%s", TEXT);
}

/* Bytes that the chip wrote: a record may be anything. */
static ech_status check_record(const ech_engine *e, const ech_request *r, const ech_sample_out *out,
                               ech_error *err)
{
    if (out->status == ECH_SAMPLE_NAN)
        return ech_fail(err, ECH_ENUMERIC, "drawing a token: the model's logits are not numbers");
    if (out->status == ECH_SAMPLE_MASKED) return fail_masked(r, err);
    if (out->status != ECH_SAMPLE_OK || out->id < 0 || (uint32_t)out->id >= e->memory.shape.vocab ||
        out->n_top > ECH_SAMPLE_TOP_DEFAULT)
        return ech_fail(err, ECH_EINTERNAL, "drawing a token: the chip's record is broken (%u, %d)",
                        out->status, out->id);
    return ECH_OK;
}

/* Drawn, it would have been the only id of its mask. */
static ech_status check_forced(const ech_sample_out *out, ech_error *err)
{
    if (isfinite(out->logprob)) return ECH_OK;
    return ech_fail(err, ECH_ENUMERIC,
                    "drawing a token: the constraint leaves one id, the model's logits exclude it");
}

/* row: the logits that the record was made of; no later step has been sent when somebody looks. */
static void tell_score(ech_answer *a, uint32_t pos, const ech_sample_out *out, const float *row)
{
    if (pos < a->n_scored) return; /* computed again after a preemption */
    if (a->request->logits != NULL) a->request->logits(a->request->logits_ctx, a->index, pos, row);
    ech_event ev = { .kind = ECH_EVENT_PROMPT_TOKEN, .choice = a->index, .id = a->seq.ids[pos] };
    set_logprobs(&ev, out, a->request->prompt_logprobs);
    ech_request_event(a->request, &ev);
    a->n_scored = pos + 1;
}

/* Long prompts say how far they are; an answer that goes on tells it by its ids. */
static void tell_progress(const ech_plan_item *it)
{
    ech_answer *const a = (ech_answer *)it->seq;
    if (a->has_finished || it->decodes || it->first >= a->seq.n_prompt) return;
    const uint32_t done = it->first + it->n_rows;
    ech_event ev = {
        .kind = ECH_EVENT_PROGRESS,
        .choice = a->index,
        .progress_done = done < a->seq.n_prompt ? done : a->seq.n_prompt,
        .usage = a->usage,
    };
    ech_request_event(a->request, &ev);
}

static void read_draw(ech_engine *e, const ech_step *step, uint32_t i)
{
    const ech_draw *const d = &step->draws[i];
    ech_answer *const a = d->answer;
    if (a->has_finished) return;
    ech_error err = { .code = ECH_OK };
    const ech_sample_out *const out = ech_step_record(step, &e->memory, i);
    ech_status rc = check_record(e, a->request, out, &err);
    const bool is_prompt = d->pos < a->seq.n_prompt;
    const float *const row =
        (const float *)(const void *)e->memory.logits.ptr + (size_t)i * e->memory.shape.vocab;
    if (rc == ECH_OK && !is_prompt && d->is_score) rc = check_forced(out, &err);
    if (rc == ECH_OK && is_prompt) tell_score(a, d->pos, out, row);
    if (rc == ECH_OK && !is_prompt) rc = take_id(e, a, out, &err);
    if (rc != ECH_OK) ech_live_finish(e, a, ECH_FINISH_ERROR, NULL, &err);
}

/* A prompt that is only scored ends with its last score. */
static void finish_scored(ech_engine *e, const ech_plan_item *it)
{
    ech_answer *const a = (ech_answer *)it->seq;
    if (a->request->scores_only && a->n_scored == a->seq.n_prompt)
        ech_live_finish(e, a, ECH_FINISH_LENGTH, NULL, NULL);
}

/* A reader that is too far behind: its request makes no more until it has read everything. */
static void check_reader(const ech_engine *e, const ech_plan_item *it)
{
    ech_request *const r = ((ech_answer *)it->seq)->request;
    if (ech_load_relaxed(&r->unread_bytes) < e->options.event_bytes) return;
    ech_store_relaxed(&r->is_behind, 1);
    ech_fence(); /* with the one in ech_request_next */
    for (uint32_t i = 0; i < r->n_answers; i++)
        r->answers[i].seq.is_paused = true;
    /* It may have read the last byte before the flag was set, and rung for nothing. */
    if (ech_load_relaxed(&r->unread_bytes) > 0 || ech_exchange(&r->is_behind, 0) == 0) return;
    ech_inbox_ring(r->inbox);
}

/* Ids that the constraint leaves no choice about go into the next step as if they were a prompt. */
static void look_ahead(ech_engine *e, ech_answer *a)
{
    ech_seq *const seq = &a->seq;
    const ech_request *const r = a->request;
    if (a->has_finished || !r->takes_forced || seq->n_ahead > 0 || seq->n_ids == seq->n_prompt)
        return;
    if (seq->n_sent + 1 < seq->n_ids) return; /* computed again: its own ids are not through yet */
    if (seq->n_ids - seq->n_prompt < r->min_tokens) return; /* stop ids are banned */
    uint32_t room = seq->max_ids - seq->n_ids;
    if (room > MAX_AHEAD) room = MAX_AHEAD;
    const uint32_t n = ech_guide_look_ahead(&a->guide, seq->ids + seq->n_ids, room);
    /* One that is being drawn anyway brings nothing. */
    if (n > seq->n_pending) ech_sched_know(seq, n, &e->steps[e->n_done & 1].plan);
}

void ech_live_read(ech_engine *e, const ech_step *step)
{
    for (uint32_t i = 0; i < step->plan.n_items; i++)
        tell_progress(&step->plan.items[i]);
    for (uint32_t i = 0; i < step->n_draws; i++)
        read_draw(e, step, i);
    ech_embed_read(e, step);
    for (uint32_t i = 0; i < step->plan.n_items; i++) {
        finish_scored(e, &step->plan.items[i]);
        look_ahead(e, (ech_answer *)step->plan.items[i].seq);
        check_reader(e, &step->plan.items[i]);
    }
}

/* ---- looking around ---- */

static void look_at(ech_engine *e, ech_request *r, int64_t now, bool rung)
{
    const ech_error late = { .code = ECH_ETIMEOUT,
                             .offset = -1,
                             .text = "the deadline has passed" };
    if (rung && ech_load_relaxed(&r->cancel_wanted) != 0) {
        finish_all(e, r, ECH_FINISH_CANCELLED, NULL);
    } else if (r->deadline_ns > 0 && now >= r->deadline_ns) {
        finish_all(e, r, ECH_FINISH_ERROR, &late);
    } else if (rung && r->answers[0].seq.is_paused && ech_load_relaxed(&r->is_behind) == 0) {
        /* It had read everything when it rang; a step in flight may have brought more since. */
        for (uint32_t i = 0; i < r->n_answers; i++)
            r->answers[i].seq.is_paused = false;
    }
}

void ech_live_look(ech_engine *e, bool rung)
{
    if (!rung && e->n_deadlines == 0) return;
    const int64_t now = ech_now_ns();
    for (ech_request *r = e->live.head, *next; r != NULL; r = next) {
        next = r->next;
        look_at(e, r, now, rung);
    }
}

int64_t ech_live_next_deadline(const ech_engine *e)
{
    int64_t first = INT64_MAX;
    for (const ech_request *r = e->live.head; r != NULL && e->n_deadlines > 0; r = r->next)
        if (r->deadline_ns > 0 && r->deadline_ns < first) first = r->deadline_ns;
    return first;
}
