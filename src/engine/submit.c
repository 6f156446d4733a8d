/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a request from its options: everything is checked, tokenised and copied here, on the
 * submitting thread, so that the engine's thread meets only requests that can run.
 */
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/os/process.h"
#include "src/engine/request.h"
#include "src/engine/sampling.h"
#include "src/engine/sched_int.h"

enum { MAX_PROMPTS = 4096, MAX_N = 128, MAX_LOGPROBS = 20 };

void ech_request_options_default(ech_request_options *o)
{
    *o = (ech_request_options){
        .struct_size = sizeof *o,
        .n = 1,
        .parse_special = true,
        .add_special = true,
        .max_tokens = 256,
        .skip_special = true,
        .logprobs = -1,
        .prompt_logprobs = -1,
        .tenant_weight = 1,
        .thinking_budget = -1,
    };
    ech_sampling_default(&o->sampling);
}

/* ---- checks ---- */

static ech_status check_counts(const ech_request_options *o, const ech_request_limits *limits,
                               ech_error *err)
{
    if (o->struct_size != sizeof *o || o->sampling.struct_size != sizeof o->sampling)
        return ech_fail_argument(
            err, ECH_EINVAL, "struct_size",
            "struct_size is not set; call ech_request_options_default() first");
    if (o->prompts == NULL || o->n_prompts < 1 || o->n_prompts > MAX_PROMPTS)
        return ech_fail_argument(err, ECH_EINVAL, "prompts",
                                 "there are %zu prompts, must be 1 to %d", o->n_prompts,
                                 MAX_PROMPTS);
    if (o->n < 1 || o->n > MAX_N)
        return ech_fail_argument(err, ECH_EINVAL, "n", "n is %u, must be 1 to %d", o->n, MAX_N);
    if (o->n_prompts * o->n > limits->max_answers)
        return ech_fail_argument(
            err, ECH_ELIMIT, o->n > o->n_prompts ? "n" : "prompts",
            "the request has %zu choices, one request may have %u; send fewer at a "
            "time",
            o->n_prompts * o->n, limits->max_answers);
    if (o->logprobs < -1 || o->logprobs > MAX_LOGPROBS)
        return ech_fail_argument(err, ECH_EINVAL, "logprobs",
                                 "logprobs is %d, must be 0 to %d, or -1 for none", o->logprobs,
                                 MAX_LOGPROBS);
    if (o->prompt_logprobs < -1 || o->prompt_logprobs > MAX_LOGPROBS)
        return ech_fail_argument(err, ECH_EINVAL, "prompt_logprobs",
                                 "prompt_logprobs is %d, must be 0 to %d, or -1 for none",
                                 o->prompt_logprobs, MAX_LOGPROBS);
    if (o->max_tokens == 0 && o->prompt_logprobs < 0 && !o->echo && !o->embed)
        return ech_fail_argument(
            err, ECH_EINVAL, "max_tokens",
            "max_tokens is 0, must be at least 1 unless the prompt is echoed or scored");
    if (o->logits != NULL && o->prompt_logprobs < 0)
        return ech_fail_argument(err, ECH_EINVAL, "logits",
                                 "logits are asked for without prompt_logprobs");
    if (o->min_tokens > o->max_tokens)
        return ech_fail_argument(err, ECH_EINVAL, "min_tokens",
                                 "min_tokens is %u, more than max_tokens, %u", o->min_tokens,
                                 o->max_tokens);
    if (o->constraint != NULL && o->hook != NULL)
        return ech_fail_argument(err, ECH_EINVAL, "hook",
                                 "both constraint and hook are given, one is possible");
    if (o->thinking_budget < -1)
        return ech_fail_argument(err, ECH_EINVAL, "thinking_budget",
                                 "thinking_budget is %lld, must be at least 0, or -1",
                                 (long long)o->thinking_budget);
    if (o->tenant_weight < 1 || o->tenant_weight > 1000000)
        return ech_fail_argument(err, ECH_EINVAL, "tenant_weight",
                                 "tenant_weight is %u, must be 1 to 1000000", o->tenant_weight);
    return ECH_OK;
}

static ech_status check_stop(const ech_request_options *o, const ech_request_limits *limits,
                             ech_error *err)
{
    for (size_t i = 0; i < o->n_stop; i++)
        if (o->stop[i] == NULL)
            return ech_fail_argument(err, ECH_EINVAL, "stop", "stop[%zu] is no string", i);
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] < 0 || (uint32_t)o->stop_ids[i] >= limits->vocab)
            return ech_fail_argument(err, ECH_EINVAL, "stop_ids",
                                     "stop_ids has the id %d, ids are 0 to %u", o->stop_ids[i],
                                     limits->vocab - 1);
    return ECH_OK;
}

static ech_status check_embed(const ech_request_options *o, const ech_request_limits *limits,
                              ech_error *err)
{
    if (!o->embed) return ECH_OK;
    if (limits->why_no_pooling.code != ECH_OK) {
        if (err != NULL) *err = limits->why_no_pooling;
        return limits->why_no_pooling.code;
    }
    if (o->n != 1 || o->echo || o->logprobs >= 0 || o->prompt_logprobs >= 0 ||
        o->constraint != NULL || o->hook != NULL)
        return ech_fail_argument(
            err, ECH_EINVAL, "embed",
            "embed goes with prompts alone: not with n, echo, log-probabilities or a "
            "constraint");
    if (o->dimensions > limits->hidden)
        return ech_fail_argument(err, ECH_EINVAL, "dimensions",
                                 "dimensions is %u, the model's embeddings have %u", o->dimensions,
                                 limits->hidden);
    return ECH_OK;
}

/* ---- copies ---- */

static ech_status copy_strings(ech_request *r, const ech_request_options *o)
{
    r->n_stop = o->n_stop;
    r->stop = ech_arena_array(&r->arena, o->n_stop, sizeof *r->stop);
    r->tenant = ech_arena_strdup(&r->arena, ech_str_from(o->tenant != NULL ? o->tenant : ""));
    r->cache_salt =
        ech_arena_strdup(&r->arena, ech_str_from(o->cache_salt != NULL ? o->cache_salt : ""));
    if (r->stop == NULL || r->tenant == NULL || r->cache_salt == NULL) return ECH_ENOMEM;
    for (size_t i = 0; i < o->n_stop; i++)
        if ((r->stop[i] = ech_arena_strdup(&r->arena, ech_str_from(o->stop[i]))) == NULL)
            return ECH_ENOMEM;
    return ECH_OK;
}

static ech_status copy_stop_ids(ech_request *r, const ech_request_options *o,
                                const ech_request_limits *limits)
{
    const size_t n_eos = o->ignore_eos ? 0 : limits->n_eos_ids;
    int32_t *const ids = ech_arena_array(&r->arena, n_eos + o->n_stop_ids, sizeof *ids);
    if (ids == NULL) return ECH_ENOMEM;
    if (n_eos > 0) memcpy(ids, limits->eos_ids, n_eos * sizeof *ids);
    if (o->n_stop_ids > 0) memcpy(ids + n_eos, o->stop_ids, o->n_stop_ids * sizeof *ids);
    r->stop_ids = ids;
    r->n_stop_ids = n_eos + o->n_stop_ids;
    return ECH_OK;
}

static ech_status copy_options(ech_request *r, const ech_request_options *o,
                               const ech_request_limits *limits)
{
    r->n_prompts = (uint32_t)o->n_prompts;
    r->n = o->n;
    r->n_answers = r->n_prompts * r->n;
    r->seed = o->sampling.seed;
    if (!o->sampling.has_seed) ech_os_random(&r->seed, sizeof r->seed);
    r->min_tokens = o->min_tokens;
    r->logprobs = o->logprobs;
    r->prompt_logprobs = o->prompt_logprobs;
    r->thinking_budget = o->thinking_budget;
    r->skip_special = o->skip_special;
    r->echo = o->echo;
    r->scores_only = o->max_tokens == 0 && !o->embed;
    r->embeds = o->embed;
    r->pooling = limits->pooling;
    r->dimensions = o->dimensions;
    r->deadline_ns = o->deadline_ns;
    r->tenant_weight = o->tenant_weight;
    r->logits = o->logits;
    r->logits_ctx = o->logits_ctx;
    r->hook = o->hook;
    if (o->constraint != NULL) r->constraint = ech_constraint_ref(o->constraint);
    r->notify = o->notify;
    r->notify_ctx = o->notify_ctx;
    ECH_TRY(ech_sampling_copy(&r->sampling, &o->sampling, &r->arena));
    ECH_TRY(copy_strings(r, o));
    return copy_stop_ids(r, o, limits);
}

/* ---- prompts ---- */

static ech_status tokenise(const ech_prompt *prompt, size_t number, const ech_request_options *o,
                           const ech_request_limits *limits, ech_ids *ids, ech_error *err)
{
    ech_status rc;
    if (prompt->ids == NULL) {
        const unsigned flags = (o->parse_special ? ECH_ENCODE_SPECIAL : 0) |
                               (o->add_special ? ECH_ENCODE_ADD | ECH_ENCODE_ONE_BOS : 0);
        rc = ech_tokenizer_encode(limits->tokenizer, prompt->text, prompt->text_len, flags, ids,
                                  err);
    } else {
        rc = ech_ids_append(ids, prompt->ids, prompt->n_ids);
    }
    if (rc != ECH_OK) {
        (void)ech_error_prefix(err, rc, "prompt %zu", number);
        return ech_error_name_argument(err, rc, "prompts");
    }
    if (ids->n == 0)
        return ech_fail_argument(err, ECH_EINVAL, "prompts",
                                 "prompt %zu is empty, it must have at least one token", number);
    for (size_t i = 0; i < ids->n; i++)
        if (ids->data[i] < 0 || (uint32_t)ids->data[i] >= limits->vocab)
            return ech_fail_argument(err, ECH_EINVAL, "prompts",
                                     "prompt %zu has the id %d at %zu, ids are 0 to %u", number,
                                     ids->data[i], i, limits->vocab - 1);
    return ECH_OK;
}

/* Ids that an answer may have with its prompt. */
static ech_status fit(const ech_ids *ids, size_t number, const ech_request_options *o,
                      const ech_request_limits *limits, uint32_t *ret_max_ids, ech_error *err)
{
    const bool pool_is_less = limits->pool_tokens < limits->max_seq_len;
    const uint64_t limit = pool_is_less ? limits->pool_tokens : limits->max_seq_len;
    const bool draws = o->max_tokens > 0 && !o->embed;
    const uint64_t least = (uint64_t)ids->n + draws;
    if (least > limit)
        return ech_fail_argument(
            err, ECH_ECONTEXT, "prompts",
            "prompt %zu has %zu tokens, %s is over %s of %llu tokens; "
            "shorten it%s",
            number, ids->n, draws ? "with one more that" : "that",
            pool_is_less ? "the KV memory" : "the context", (unsigned long long)limit,
            pool_is_less ? " or raise the KV memory" : " or raise the context length");
    const uint64_t wanted = (uint64_t)ids->n + (draws ? o->max_tokens : 0);
    *ret_max_ids = (uint32_t)(wanted < limit ? wanted : limit);
    return ECH_OK;
}

/* An added token's id by its text. The tokenizer outlives every parser's making. */
static int32_t marker_id(void *ctx, const char *text, size_t len)
{
    return ech_tokenizer_find_added(ctx, text, len);
}

static ech_status make_parser(ech_answer *a, const ech_request_limits *limits,
                              const ech_request_options *o, ech_error *err)
{
    ech_parser_options po = o->parser != NULL ? *o->parser : ech_parser_options_default();
    po.stops = o->stop;
    po.n_stops = o->n_stop;
    po.include_stop = o->include_stop;
    po.marker_id = marker_id;
    po.marker_ctx = (void *)(uintptr_t)limits->tokenizer;
    const ech_status rc = ech_parser_create(&a->parser, &po, err);
    /* The parser's option is this header's under another name. */
    const bool is_stop = rc != ECH_OK && err != NULL && strcmp(err->argument, "stops") == 0;
    return is_stop ? ech_error_name_argument(err, rc, "stop") : rc;
}

static ech_status make_answer(ech_request *r, ech_answer *a, const ech_ids *prompt,
                              uint32_t max_ids, const ech_request_limits *limits,
                              const ech_request_options *o, ech_error *err)
{
    a->request = r;
    a->index = (uint32_t)(a - r->answers);
    a->seed = r->seed + a->index % r->n;
    a->seq = (ech_seq){
        .n_ids = (uint32_t)prompt->n,
        .n_prompt = (uint32_t)prompt->n,
        .max_ids = max_ids,
        .priority = o->priority,
        .n_scores = o->prompt_logprobs >= 0 ? (uint32_t)prompt->n : 0,
        .scores_from = o->prompt_logprobs >= 0 ? o->prompt_logprobs_from : 0,
        /* What is pooled or scored over all positions must be computed at all of them. */
        .no_reuse = o->prompt_logprobs >= 0 || (o->embed && r->pooling != ECH_POOLING_LAST),
        .embeds = o->embed,
        .leader = a->index % r->n > 0 ? &a[-(ptrdiff_t)(a->index % r->n)].seq : NULL,
        .ids = malloc(max_ids * sizeof *a->seq.ids),
        .pages = malloc(ech_pages_of(max_ids) * sizeof *a->seq.pages),
    };
    if (a->seq.ids == NULL || a->seq.pages == NULL)
        return ech_fail(err, ECH_ENOMEM, "making a request: out of memory");
    memcpy(a->seq.ids, prompt->data, prompt->n * sizeof *prompt->data);
    a->usage.prompt_tokens = (uint32_t)prompt->n;
    return o->embed ? ECH_OK : make_parser(a, limits, o, err);
}

static ech_status make_answers(ech_request *r, const ech_request_options *o,
                               const ech_request_limits *limits, ech_ids *ids, ech_error *err)
{
    r->answers = calloc(r->n_answers, sizeof *r->answers);
    if (r->answers == NULL) return ech_fail(err, ECH_ENOMEM, "making a request: out of memory");
    for (uint32_t p = 0; p < r->n_prompts; p++) {
        uint32_t max_ids = 0;
        ids->n = 0;
        ECH_TRY(tokenise(&o->prompts[p], p, o, limits, ids, err));
        ECH_TRY(fit(ids, p, o, limits, &max_ids, err));
        if (o->prompt_logprobs >= 0 && o->prompt_logprobs_from >= ids->n)
            return ech_fail_argument(err, ECH_EINVAL, "prompt_logprobs_from",
                                     "prompt_logprobs_from is %u, prompt %u has %zu tokens",
                                     o->prompt_logprobs_from, p, ids->n);
        for (uint32_t k = 0; k < r->n; k++)
            ECH_TRY(make_answer(r, &r->answers[p * r->n + k], ids, max_ids, limits, o, err));
    }
    return ECH_OK;
}

static ech_status find_breakers(ech_request *r, const ech_request_limits *limits, ech_error *err)
{
    ech_breakers *const b = &r->breakers;
    ECH_TRY(ech_breakers_find(b, &r->sampling, limits->tokenizer, &r->arena, err));
    r->sampling.dry_breakers = NULL; /* the caller's */
    r->sampling.n_dry_breakers = 0;
    if (b->n_ids + b->n_sequences <= limits->max_lists) return ECH_OK;
    return ech_fail_argument(
        err, ECH_ELIMIT, "dry_breakers",
        "dry_breakers stand for %zu tokens, a request may have %u; give longer ones",
        b->n_ids + b->n_sequences, limits->max_lists);
}

static ech_status fill(ech_request *r, const ech_request_limits *limits,
                       const ech_request_options *o, ech_error *err)
{
    if (copy_options(r, o, limits) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "making a request: out of memory");
    const uint64_t n_lists = ech_sampling_list_ints(&r->sampling, r->n_stop_ids);
    if (n_lists > limits->max_lists)
        return ech_fail_argument(
            err, ECH_ELIMIT, ech_sampling_longest_list(&r->sampling, o->n_stop_ids),
            "the lists of ids (bias, allowed, banned, bad words, stop) take %llu "
            "entries, a request may have %u",
            (unsigned long long)n_lists, limits->max_lists);
    r->takes_forced = !ech_sampling_bends_masks(&r->sampling);
    ECH_TRY(find_breakers(r, limits, err));
    ech_ids ids = { 0 };
    const ech_status rc = make_answers(r, o, limits, &ids, err);
    ech_ids_fini(&ids);
    return rc;
}

ech_status ech_request_create(ech_request **ret_request, const ech_request_limits *limits,
                              const ech_request_options *o, ech_error *err)
{
    ECH_TRY(check_counts(o, limits, err));
    ECH_TRY(check_embed(o, limits, err));
    ECH_TRY(check_stop(o, limits, err));
    ECH_TRY(ech_sampling_check(&o->sampling, limits->vocab, err));
    ech_request *r = calloc(1, sizeof *r);
    if (r == NULL) return ech_fail(err, ECH_ENOMEM, "making a request: out of memory");
    r->refs = 1;
    (void)pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    const ech_status rc = fill(r, limits, o, err);
    if (rc != ECH_OK) {
        ech_request_unref(&r);
        return rc;
    }
    *ret_request = r;
    return ECH_OK;
}
