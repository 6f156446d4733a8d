/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request's fields to the engine, and from its events to an answer; see generate.h.
 * Parsing runs on a text thread, pumping on the loop thread; the phase hands the exchange over.
 *
 * Invariant: what a client gets is made of events alone, in their order, by one function
 * (take_event), whether it streams or not. Ownership: the generation and its choices lie in the
 * exchange's arena; the buffers inside them are freed by ech_generate_release(), which the end
 * of every exchange calls.
 */
#include "src/server/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "echelon/tokenizer.h"
#include "src/base/atomic.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/blocks.h"
#include "src/server/observe.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/* ---- from fields to options ----------------------------------------------------------------- */

/*
 * The defaults of sampling are the model's own (generation_config.json), where it has some. -1
 * stands for "not given" in fields where 0 is a value that a client may mean.
 */
ech_generation *ech_generation_new(ech_exchange *const x)
{
    ech_generation *const g = ech_arena_alloc(&x->arena, sizeof *g);
    if (g == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the request now");
        return NULL;
    }
    ech_sampling s;
    ech_engine_sampling_default(x->server->engine, &s);
    g->params = (ech_params){
        .max_tokens = -1,
        .max_completion_tokens = -1,
        .max_output_tokens = -1,
        .n = 1,
        .best_of = -1,
        .top_logprobs = -1,
        .prompt_logprobs = -1,
        .temperature = s.temperature,
        .top_k = s.top_k,
        .top_p = s.top_p,
        .min_p = s.min_p,
        .typical_p = s.typical_p,
        .repetition_penalty = s.repetition_penalty,
        .frequency_penalty = s.frequency_penalty,
        .presence_penalty = s.presence_penalty,
        .dry_multiplier = s.dry_multiplier,
        .dry_base = s.dry_base,
        .dry_allowed_length = s.dry_allowed_length,
        .dry_range = s.dry_range,
        .xtc_probability = s.xtc_probability,
        .xtc_threshold = s.xtc_threshold,
        .mirostat = s.mirostat,
        .mirostat_tau = s.mirostat_tau,
        .mirostat_eta = s.mirostat_eta,
        .parallel_tool_calls = true,
        .thinking_budget = -1,
        .skip_special = true,
        .parse_special = true,
        .add_special = true,
        .add_generation_prompt = true,
    };
    return g;
}

/*
 * 404 with the names that are served, never a 500: clients retry a 500, and a deployment with a
 * wrong name in it would compute nothing three times a request.
 */
static bool model_is_served(ech_exchange *const x, const char *const name)
{
    const ech_server *const s = x->server;
    if (name == NULL || s->options.any_model) return true;
    for (size_t i = 0; i < s->n_names; i++) {
        if (strcmp(s->names[i], name) == 0) return true;
    }
    ech_buf list = { 0 };
    for (size_t i = 0; i < s->n_names; i++) {
        (void)ech_buf_printf(&list, "%s'%s'", i > 0 ? ", " : "", s->names[i]);
    }
    ech_reply_error(x, 404, "model_not_found", "model",
                    "the model '%.100s' is not served here; served: %.300s", name,
                    list.data != NULL ? list.data : "");
    ech_buf_fini(&list);
    return false;
}

/*
 * `created` is the wall clock of the server's start plus the monotonic time since: it doesn't
 * jump when somebody sets the clock.
 */
bool ech_generation_parse(ech_exchange *const x, ech_generation *const g, const json_t *const body,
                          const unsigned where)
{
    if (!ech_fields_parse(x, body, where, &g->params)) return false;
    if (!model_is_served(x, g->params.model)) return false;
    g->model = ech_arena_strdup(
        &x->arena, ech_str_from(g->params.model != NULL ? g->params.model : x->server->names[0]));
    g->created_s =
        x->server->created_s + (x->started_ns / 1000000000 - x->server->started_ns / 1000000000);
    /* OpenAI refuses it without stream, too: a client that sends it expects chunks. */
    const json_t *const so = g->params.stream_options;
    if (so != NULL && !g->params.stream) {
        ech_reply_error(x, 400, "invalid_value", "stream_options",
                        "stream_options is for stream: true only");
        return false;
    }
    const json_t *const usage = json_object_get(so, "include_usage");
    if (usage != NULL && !json_is_boolean(usage) && !json_is_null(usage))
        return ech_reply_refuse(x, "stream_options.include_usage", "must be true or false");
    g->include_usage = json_is_true(usage);
    return g->model != NULL;
}

/* The same words as reasoning_effort in chat, from the same row of the table. */
bool ech_generation_take_effort(ech_exchange *const x, ech_params *const p,
                                const json_t *const object, const char *const name)
{
    const json_t *const effort = json_object_get(object, "effort");
    return effort == NULL || json_is_null(effort) ||
           ech_field_take_word(ech_field_find("reasoning_effort", ECH_IN_CHAT), effort,
                               &p->reasoning_effort) ||
           ech_reply_refuse(x, name, "is none that reasoning_effort may be");
}

/* One spelling for each number: two keys are two ids. */
static bool is_id(const char *const key)
{
    const size_t n = strspn(key, "0123456789");
    return n > 0 && key[n] == '\0' && (key[0] != '0' || n == 1);
}

/*
 * {"123": -100, …} → pairs. Keys are strings, since JSON's objects have no others. ±100 is
 * OpenAI's bound; it is asked for in the form that NaN fails as well.
 */
static bool take_logit_bias(ech_exchange *const x, const json_t *const map, ech_sampling *const s)
{
    if (map == NULL) return true;
    const char *key;
    json_t *value;
    ech_logit_bias *const list =
        ech_arena_array(&x->arena, json_object_size(map) + 1, sizeof *list);
    if (!json_is_object(map) || list == NULL) {
        ech_reply_error(x, 400, "invalid_value", "logit_bias",
                        "logit_bias must be an object of token id → number");
        return false;
    }
    json_object_foreach((json_t *)map, key, value)
    {
        const long id = is_id(key) ? strtol(key, NULL, 10) : -1;
        const double bias = json_number_value(value);
        if (id < 0 || id >= (long)x->server->info.vocab_size || !json_is_number(value) ||
            !(bias >= -100 && bias <= 100)) {
            ech_reply_error(x, 400, "invalid_value", "logit_bias",
                            "logit_bias: '%.40s' must be a token id of this model and its bias a "
                            "number in [-100, 100]",
                            key);
            return false;
        }
        list[s->n_logit_bias++] = (ech_logit_bias){ (int32_t)id, (float)bias };
    }
    s->logit_bias = list;
    return true;
}

/*
 * A word is forbidden as it stands at a beginning and as it follows a space. 512 bytes bound
 * what a word may be, so that a request can't make the engine compare whole texts at every
 * token. A word that gives no ids forbids nothing.
 */
static bool take_bad_words(ech_exchange *const x, const ech_field_strings *const words,
                           ech_sampling *const s)
{
    if (words->n == 0) return true;
    ech_id_list *const lists = ech_arena_array(&x->arena, 2 * words->n, sizeof *lists);
    if (lists == NULL) return false;
    for (size_t i = 0; i < 2 * words->n; i++) {
        char word[512];
        const int len =
            snprintf(word, sizeof word, "%s%s", i % 2 == 0 ? "" : " ", words->items[i / 2]);
        ech_ids ids = { 0 };
        ech_error err;
        if (len < 0 || (size_t)len >= sizeof word ||
            ech_tokenizer_encode(ech_engine_tokenizer(x->server->engine), word, (size_t)len, 0,
                                 &ids, &err) != ECH_OK) {
            ech_ids_fini(&ids);
            ech_reply_error(x, 400, "invalid_value", "bad_words",
                            "bad_words has an entry that is too long");
            return false;
        }
        int32_t *const copy = ech_arena_array(&x->arena, ids.n + 1, sizeof *copy);
        if (copy != NULL && ids.n > 0) {
            memcpy(copy, ids.data, ids.n * sizeof *copy);
            lists[s->n_bad_words++] = (ech_id_list){ copy, ids.n };
        }
        ech_ids_fini(&ids);
    }
    s->bad_words = lists;
    return true;
}

/*
 * What a request left open has its default already: OpenAI's, or the model's own
 * generation_config.json, which ech_generation_new put there before the fields were read.
 */
static void fill_sampling(const ech_params *const p, ech_sampling *const s)
{
    ech_sampling_default(s);
    s->temperature = p->temperature;
    s->top_k = p->top_k < 0 ? 0 : (int32_t)p->top_k;
    s->top_p = p->top_p;
    s->min_p = p->min_p;
    s->typical_p = p->typical_p;
    s->repetition_penalty = p->repetition_penalty;
    s->frequency_penalty = p->frequency_penalty;
    s->presence_penalty = p->presence_penalty;
    s->dry_multiplier = p->dry_multiplier;
    s->dry_base = p->dry_base;
    s->dry_allowed_length = (int32_t)p->dry_allowed_length;
    s->dry_range = (int32_t)p->dry_range;
    if (ech_fields_seen(p, "dry_sequence_breakers")) {
        /* An empty list means no breakers at all; NULL would mean the default ones. */
        static const char *const none[1] = { NULL };
        s->dry_breakers = p->dry_breakers.n > 0 ? p->dry_breakers.items : none;
        s->n_dry_breakers = p->dry_breakers.n;
    }
    s->xtc_probability = p->xtc_probability;
    s->xtc_threshold = p->xtc_threshold;
    s->mirostat = (int32_t)p->mirostat;
    s->mirostat_tau = p->mirostat_tau;
    s->mirostat_eta = p->mirostat_eta;
    s->has_seed = ech_fields_seen(p, "seed");
    s->seed = (uint64_t)p->seed;
    s->allowed_ids = p->allowed_token_ids.items;
    s->n_allowed_ids = p->allowed_token_ids.n;
}

/*
 * Everything of a request but its prompt, as the engine wants it. max_completion_tokens wins over
 * max_tokens, its deprecated name; without either the server's own cap ends a runaway answer. A
 * key's priority is the most urgent one that its requests get, whatever they ask for.
 */
bool ech_generate_options(ech_exchange *const x, ech_generation *const g,
                          ech_request_options *const o)
{
    const ech_params *const p = &g->params;
    ech_request_options_default(o);
    if (p->max_tokens == 0 && p->max_completion_tokens < 0 && !p->echo && p->prompt_logprobs < 0)
        return ech_reply_refuse(x, "max_tokens",
                                "must be at least 1, or the prompt echoed or scored");
    fill_sampling(p, &o->sampling);
    if (ech_fields_seen(p, "allowed_token_ids") && p->allowed_token_ids.n == 0)
        return ech_reply_refuse(x, "allowed_token_ids", "is empty: nothing could be drawn");
    if (!take_logit_bias(x, p->logit_bias, &o->sampling)) return false;
    if (!take_bad_words(x, &p->bad_words, &o->sampling)) return false;
    o->n = (uint32_t)p->n;
    o->parse_special = p->parse_special;
    o->add_special = p->add_special;
    o->max_tokens = p->max_tokens >= 0 ? (uint32_t)p->max_tokens : x->server->options.max_tokens;
    if (p->max_completion_tokens >= 0) o->max_tokens = (uint32_t)p->max_completion_tokens;
    o->min_tokens = (uint32_t)p->min_tokens;
    if (o->min_tokens > o->max_tokens)
        return ech_reply_refuse(x, "min_tokens", "must be at most max_tokens");
    o->stop = p->stop.items;
    o->n_stop = p->stop.n;
    o->include_stop = p->include_stop;
    o->stop_ids = p->stop_token_ids.items;
    o->n_stop_ids = p->stop_token_ids.n;
    o->ignore_eos = p->ignore_eos;
    o->skip_special = p->skip_special;
    o->logprobs = g->wants_logprobs ? g->n_top : -1;
    o->prompt_logprobs = (int32_t)p->prompt_logprobs;
    o->echo = p->echo;
    o->priority = (int32_t)p->priority;
    if (x->key != NULL && x->key->limits.has_priority && o->priority < x->key->limits.priority)
        o->priority = x->key->limits.priority;
    o->cache_salt = p->cache_salt;
    if (x->key != NULL) {
        o->tenant = x->key->name;
        o->tenant_weight = x->key->limits.weight;
    }
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

/* Called on the engine's thread: it must not wait, and only rings the loop's bell. */
static void on_notify(void *const ctx)
{
    ech_watch_wake(ctx);
}

/*
 * False: the key is at a limit of its own, and the answer is set. Before the engine gets the
 * request: one that is refused costs no place in the queue. What is taken stands in
 * x->holds_quota, so that every way out gives it back once.
 */
static bool take_quota(ech_exchange *const x)
{
    const char *why;
    if (x->key == NULL) return true;
    x->holds_quota =
        ech_quota_take(&x->server->keys, x->key, ech_now_ns(), &why, &x->retry_after_s);
    if (!x->holds_quota)
        ech_reply_error(x, 429, "rate_limit_exceeded", NULL,
                        "the key '%.60s' is at its limit of %s; try again in %d s", x->key->name,
                        why, x->retry_after_s);
    return x->holds_quota;
}

/* What was used counts, also when the client left before the end. */
static void give_quota(ech_exchange *const x)
{
    if (!x->holds_quota) return;
    x->holds_quota = false;
    const bool is_done = x->usage.finished_ns != 0;
    ech_quota_give(&x->server->keys, x->key,
                   is_done ? x->usage.prompt_tokens : x->view.prompt_tokens,
                   is_done ? x->usage.completion_tokens : x->view.completion_tokens);
}

/* Options of the engine that clients have under other names; all others have their own. */
static const struct {
    const char *argument;
    const char *fields[3]; /* NULL where there are no more */
} ARGUMENT_FIELDS[] = {
    { "max_tokens", { "max_tokens", "max_completion_tokens", "max_output_tokens" } },
    { "logprobs", { "logprobs", "top_logprobs", "n_probs" } },
    { "stop", { "stop", "stop_sequences" } },
    { "stop_ids", { "stop_token_ids" } },
    { "allowed_ids", { "allowed_token_ids" } },
    { "dry_breakers", { "dry_sequence_breakers" } },
    { "dry_range", { "dry_penalty_last_n" } },
};

/* Of several names the one that the request has; a default of the model's goes by the first. */
static const char *field_of(const ech_params *const p, const char *const argument)
{
    for (size_t i = 0; i < sizeof ARGUMENT_FIELDS / sizeof ARGUMENT_FIELDS[0]; i++) {
        const char *const *const fields = ARGUMENT_FIELDS[i].fields;
        if (strcmp(ARGUMENT_FIELDS[i].argument, argument) != 0) continue;
        for (size_t k = 0; k < 3 && fields[k] != NULL; k++) {
            if (ech_fields_seen(p, fields[k])) return fields[k];
        }
        return fields[0];
    }
    return ech_field_find(argument, ~0U) != NULL ? argument : NULL;
}

/*
 * The client's field that a refusal of the engine's is about; NULL: none, as for a full queue or
 * an option that only the server sets.
 */
static const char *field_at_fault(const ech_generation *const g, const ech_error *const err)
{
    if (ech_status_http(err->code) != 400 || err->argument[0] == '\0') return NULL;
    if (strcmp(err->argument, "prompts") == 0)
        return g->prompt_param != NULL ? g->prompt_param : "messages";
    return field_of(&g->params, err->argument);
}

/* A failure of the engine's as an answer. */
static void reply_engine_failure(ech_exchange *const x, const ech_generation *const g,
                                 const ech_error *const err)
{
    const char *const field = field_at_fault(g, err);
    const char *const code = ech_error_code_of(err->code);
    if (field != NULL)
        ech_reply_error(x, 400, code != NULL ? code : "invalid_value", field, "%s", err->text);
    else
        ech_reply_failure(x, err);
}

/*
 * Hands the request to the engine. Until the release at the end the exchange is this text
 * thread's; after it the loop pumps events out of it. Whatever refuses the request before that
 * becomes an answer with a status; after it a stream can only end with an error frame. dialect,
 * gen and the quota are set before anything can fail after them: the release finds them there.
 * What options points to must live as long as the exchange: in its arena or its JSON.
 */
void ech_generate_start(ech_exchange *const x, const ech_dialect *const dialect,
                        ech_generation *const g, ech_request_options *const options)
{
    if (ech_load_relaxed(&x->server->draining) != 0) {
        x->retry_after_s = 5;
        ech_reply_error(x, 503, "shutting_down", NULL, "the server is shutting down");
        return;
    }
    g->n_choices = (uint32_t)options->n_prompts * options->n;
    g->choices = ech_arena_array(&x->arena, g->n_choices, sizeof *g->choices);
    if (g->choices == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the request now");
        return;
    }
    x->dialect = dialect;
    x->gen = g;
    if (!take_quota(x)) return;
    g->prompts = options->prompts;
    g->n_prompts = (uint32_t)options->n_prompts;
    x->is_stream = g->params.stream;
    const int64_t limit_s = x->server->options.request_timeout_s;
    /* From the arrival, not from here: a client doesn't care in which queue its time went. */
    if (limit_s > 0) options->deadline_ns = x->started_ns + limit_s * ECH_NS_PER_S;
    /*
     * May ring before this function ends. Nothing is lost: while a text thread has the exchange
     * nobody is woken, and the wake that ends its turn makes the loop look for events (watch.c).
     */
    options->notify = on_notify;
    options->notify_ctx = x;
    ech_request *request;
    ech_error err;
    if (ech_engine_submit(x->server->engine, options, &request, &err) != ECH_OK) {
        x->is_stream = false;
        reply_engine_failure(x, g, &err);
        return;
    }
    ech_observe_request(x, g, options->max_tokens);
    ech_watch_set_request(&x->server->watch, x, request);
    /*
     * A stream without memory for its first frame ends at once; the loop sees `ended` and closes
     * it.
     */
    if (x->is_stream && dialect->begin(x, g) != ECH_OK) x->ended = true;
    /* Partner: the acquire in http.c. */
    ech_store_release(&x->phase, ECH_PHASE_RUNNING);
}

/*
 * An id was drawn. Its text may come later, or never: a stop string or a marker can hold it. Ids
 * are counted and scored here, text comes with its own event: the two streams of events run
 * apart by what is held back.
 */
static ech_status take_token(ech_exchange *const x, ech_generation *const g,
                             const ech_event *const ev)
{
    ech_choice *const c = &g->choices[ev->choice];
    ech_observe_token(x, c, ev);
    ECH_TRY(ech_buf_printf(&c->ids, "%s%d", c->ids.len > 0 ? "," : "", ev->id));
    return g->wants_logprobs ? x->dialect->logprob(x, g, c, ev) : ECH_OK;
}

/* "ID":{"logprob":…,"rank":…,"decoded_token":…} */
static ech_status put_prompt_prob(const ech_exchange *const x, const int32_t id,
                                  const float logprob, const size_t rank, ech_buf *const b)
{
    size_t len;
    const char *const bytes =
        ech_tokenizer_token_bytes(ech_engine_tokenizer(x->server->engine), id, &len);
    ECH_TRY(ech_buf_printf(b, "\"%d\":{\"logprob\":", id));
    ECH_TRY(ech_json_put_float(b, logprob));
    ECH_TRY(ech_buf_printf(b, ",\"rank\":%zu,\"decoded_token\":", rank));
    ECH_TRY(ech_json_put_string(b, bytes, bytes != NULL ? len : 0));
    return ech_buf_push(b, '}');
}

/*
 * vLLM's form: null for the first id, else the id itself and the best ones, each once. One of the
 * best has its place as its rank, so that no two of them share one.
 */
static ech_status take_prompt_prob(const ech_exchange *const x, ech_generation *const g,
                                   const ech_event *const ev)
{
    ech_buf *const b = &g->choices[ev->choice].prompt_probs;
    if (b->len > 0) ECH_TRY(ech_buf_push(b, ','));
    if (!ev->has_logprob) return ech_buf_puts(b, "null");
    size_t rank = ev->rank, own = ev->n_top;
    for (size_t i = 0; i < ev->n_top; i++) {
        if (ev->top[i].id == ev->id) own = i;
    }
    if (own < ev->n_top) rank = own + 1;
    ECH_TRY(ech_buf_push(b, '{'));
    ECH_TRY(put_prompt_prob(x, ev->id, ev->logprob, rank, b));
    for (size_t i = 0; i < ev->n_top; i++) {
        if (i == own) continue;
        ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(put_prompt_prob(x, ev->top[i].id, ev->top[i].logprob, i + 1, b));
    }
    return ech_buf_push(b, '}');
}

/*
 * OpenAI's form; Mistral's templates accept nine letters and digits only. An id that the model
 * wrote itself is kept: its next turn refers to it. 24 letters are as many as OpenAI's ids have;
 * that modulo favours some letters doesn't matter for a name.
 */
static void make_call_id(const ech_exchange *const x, const ech_event *const ev, char *const id)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if (ev->call_id_len > 0) {
        (void)snprintf(id, ECH_CALL_ID_BYTES, "%.*s", (int)ev->call_id_len, ev->call_id);
        return;
    }
    const bool short_id = x->server->guides.tools == ECH_TOOLS_MISTRAL;
    size_t n = short_id ? 0 : (size_t)snprintf(id, ECH_CALL_ID_BYTES, "call_");
    uint8_t bytes[24] = { 0 };
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) memset(bytes, 1, sizeof bytes);
    for (size_t i = 0; i < (short_id ? 9U : sizeof bytes); i++) {
        id[n++] = LETTERS[bytes[i] % (sizeof LETTERS - 1)];
    }
    id[n] = '\0';
}

/*
 * The call that an event is about; made at its name. NULL: out of memory. The list may move when
 * it grows: who keeps a pointer into it takes it anew with each event (blocks.c).
 */
static ech_call *call_of(const ech_exchange *const x, ech_choice *const c,
                         const ech_event *const ev)
{
    if (ev->call_index < c->n_calls) return &c->calls[ev->call_index];
    if (c->n_calls == c->cap_calls) {
        const uint32_t cap = c->cap_calls == 0 ? 4 : 2 * c->cap_calls;
        ech_call *const calls = realloc(c->calls, cap * sizeof *calls);
        if (calls == NULL) return NULL;
        c->calls = calls;
        c->cap_calls = cap;
    }
    ech_call *const call = &c->calls[c->n_calls++];
    *call = (ech_call){ 0 };
    make_call_id(x, ev, call->id);
    return call;
}

/* Whether frames are made: for a stream, or by a dialect whose body is made of them. */
static bool writes(const ech_exchange *const x)
{
    return x->is_stream || x->dialect->writes_always;
}

/*
 * Text that is sure: the engine holds back what could still become a marker or a stop string, so
 * nothing that was streamed is ever taken back. The whole text is kept beside the stream, for the
 * audit log and for dialects that repeat it at the end of a block.
 */
static ech_status take_text(ech_exchange *const x, ech_generation *const g,
                            const ech_event *const ev)
{
    ech_choice *const c = &g->choices[ev->choice];
    if (ev->channel == ECH_CHANNEL_TOOL_NAME || ev->channel == ECH_CHANNEL_TOOL_ARGS) {
        ech_call *const call = call_of(x, c, ev);
        if (call == NULL) return ECH_ENOMEM;
        ECH_TRY(ech_buf_append(ev->channel == ECH_CHANNEL_TOOL_NAME ? &call->name : &call->args,
                               ev->text, ev->text_len));
    } else {
        ECH_TRY(ech_buf_append(&c->text[ev->channel], ev->text, ev->text_len));
    }
    return writes(x) ? x->dialect->delta(x, g, ev->choice, ev) : ECH_OK;
}

/* An end without a name before it says nothing to anybody. */
static ech_status take_call_end(ech_exchange *const x, ech_generation *const g,
                                const ech_event *const ev)
{
    ech_choice *const c = &g->choices[ev->choice];
    if (ev->call_index >= c->n_calls) return ECH_OK;
    ech_call *const call = &c->calls[ev->call_index];
    call->is_complete = ev->call_complete;
    if (!writes(x) || x->dialect->call_end == NULL) return ECH_OK;
    return x->dialect->call_end(x, g, ev->choice, call);
}

uint32_t ech_choice_complete_calls(const ech_choice *const c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_calls; i++) {
        n += c->calls[i].is_complete;
    }
    return n;
}

/*
 * One choice has ended. An error or a cancel ends the request as a whole; take_done says so.
 * finish_name is the last choice's; the audit line has room for one.
 */
static ech_status take_finish(ech_exchange *const x, ech_generation *const g,
                              const ech_event *const ev)
{
    ech_choice *const c = &g->choices[ev->choice];
    c->finish = ev->finish;
    c->usage = ev->usage;
    x->finish_name = ech_finish_name(ev->finish);
    ech_observe_finish(x, c, ev);
    if (ev->finish == ECH_FINISH_CANCELLED) g->was_cancelled = true;
    if (ev->stop != NULL) c->stop = ech_arena_strdup(&x->arena, ech_str_from(ev->stop));
    if (!writes(x) || ev->finish == ECH_FINISH_ERROR || ev->finish == ECH_FINISH_CANCELLED)
        return ECH_OK;
    return x->dialect->finish(x, g, ev->choice);
}

/*
 * A stream that can't go on ends with an error frame, never silently. The status line says 200
 * already, so this frame is all that is left to say it with. No [DONE] follows: to clients that
 * would be a good end.
 */
static void end_stream_with(ech_exchange *const x, const ech_error *const err)
{
    x->ended = true;
    if (x->dialect->fail != NULL) {
        (void)x->dialect->fail(x, x->gen, err);
        return;
    }
    (void)ech_buf_puts(&x->out, "data: ");
    (void)ech_error_object(&x->out, ech_status_http(err->code), ech_error_code_of(err->code), NULL,
                           err->text);
    (void)ech_buf_puts(&x->out, "\n\n");
}

/*
 * The last event of a request, once, after every choice has finished. A failure is a status where
 * no byte was sent yet, and an error frame in a stream: to end one without a word is what clients
 * take for success.
 */
static ech_status take_done(ech_exchange *const x, ech_generation *const g,
                            const ech_event *const ev)
{
    g->usage = ev->usage;
    x->usage = ev->usage;
    ech_error why = ev->error;
    if (why.code == ECH_OK && g->was_cancelled)
        (void)ech_fail(&why, ECH_ECANCELLED, "the request was cancelled");
    if (why.code != ECH_OK) {
        if (x->is_stream) {
            end_stream_with(x, &why);
        } else {
            reply_engine_failure(x, g, &why);
        }
        return ECH_OK;
    }
    if (x->is_stream) {
        x->ended = true;
        return x->dialect->done(x, g);
    }
    ech_buf_clear(&x->out); /* frames of a whole answer were only made for its blocks */
    ECH_TRY(x->dialect->body(x, g));
    ech_reply_json(x, 200);
    return ECH_OK;
}

/* What GET /requests shows; another loop thread may be looking. */
static void note_progress(ech_exchange *const x, const ech_event *const ev)
{
    ech_watch *const w = &x->server->watch;
    (void)pthread_mutex_lock(&w->lock);
    if (ev->kind == ECH_EVENT_STARTED) x->view.has_started = true;
    if (ev->kind == ECH_EVENT_QUEUED) x->view.prompt_tokens = ev->usage.prompt_tokens;
    if (ev->kind == ECH_EVENT_TOKEN) x->view.completion_tokens++;
    (void)pthread_mutex_unlock(&w->lock);
}

/*
 * For `timings` alone. first and last are those of all choices together, since llama-server
 * knows one choice only.
 */
static void note_time(ech_generation *const g, const ech_event *const ev)
{
    if (ev->kind == ECH_EVENT_STARTED) {
        if (g->timing.started_ns == 0) g->timing.started_ns = ev->time_ns;
        g->timing.prompt += ev->usage.prompt_tokens;
        g->timing.cached += ev->usage.cached_tokens;
    } else if (ev->kind == ECH_EVENT_TOKEN) {
        if (g->timing.first_ns == 0) g->timing.first_ns = ev->time_ns;
        g->timing.last_ns = ev->time_ns;
        g->timing.drawn++;
    }
}

/*
 * The one place where events become an answer. Streamed and whole answers take the same way; that
 * is why they can't differ. Order of events for a choice: QUEUED, STARTED, PROMPT_TOKEN*, then
 * TOKEN and TEXT mixed, FINISH; and DONE for the request.
 */
static ech_status take_event(ech_exchange *const x, ech_generation *const g,
                             const ech_event *const ev)
{
    note_progress(x, ev);
    note_time(g, ev);
    switch (ev->kind) {
    case ECH_EVENT_PROMPT_TOKEN:
        if (g->params.prompt_logprobs >= 0) ECH_TRY(take_prompt_prob(x, g, ev));
        return g->wants_logprobs && g->params.echo
                   ? x->dialect->logprob(x, g, &g->choices[ev->choice], ev)
                   : ECH_OK;
    case ECH_EVENT_TOKEN:
        return take_token(x, g, ev);
    case ECH_EVENT_TEXT:
        return take_text(x, g, ev);
    case ECH_EVENT_TOOL_END:
        return take_call_end(x, g, ev);
    case ECH_EVENT_EMBEDDING:
        return x->dialect->embedding(x, g, &g->choices[ev->choice], ev);
    case ECH_EVENT_FINISH:
        return take_finish(x, g, ev);
    case ECH_EVENT_DONE:
        return take_done(x, g, ev);
    default:
        return ECH_OK;
    }
}

/*
 * Takes what the engine has ready and returns; the loop calls it again when the bell rang, and
 * only while the socket takes bytes. A slow client so leaves its events with the engine, which
 * merges them and at last takes the row out of the batch. An error while writing (memory) ends
 * the exchange like one of the engine: with a status where nothing was sent, with a frame in a
 * stream.
 */
void ech_generate_pump(ech_exchange *const x)
{
    ech_generation *const g = x->gen;
    while (!x->ended && x->phase == ECH_PHASE_RUNNING) {
        ech_event ev;
        ech_error err;
        const ech_status got = ech_request_next(x->request, 0, &ev, &err);
        if (got == ECH_ETIMEOUT) return;
        const ech_status rc = got == ECH_OK ? take_event(x, g, &ev) : got;
        if (rc == ECH_OK) continue;
        if (got == ECH_OK) (void)ech_fail(&err, rc, "writing the answer: %s", ech_status_str(rc));
        if (x->is_stream) {
            end_stream_with(x, &err);
        } else {
            ech_reply_failure(x, &err);
        }
    }
}

static void choice_fini(ech_choice *const c)
{
    for (size_t i = 0; i < sizeof c->text / sizeof c->text[0]; i++) {
        ech_buf_fini(&c->text[i]);
    }
    for (size_t i = 0; i < ECH_LOGPROB_COLUMNS; i++) {
        ech_buf_fini(&c->items[i]);
    }
    ech_buf_fini(&c->ids);
    ech_buf_fini(&c->prompt_probs);
    for (uint32_t i = 0; i < c->n_calls; i++) {
        ech_buf_fini(&c->calls[i].name);
        ech_buf_fini(&c->calls[i].args);
    }
    free(c->calls);
}

/*
 * The end of an exchange, however it came: closing the request cancels it if it still runs. The
 * order matters: observing and the quota read the request's numbers; closing waits until no
 * callback of the engine runs any more, and after it nothing rings for this exchange; then the
 * buffers may go.
 */
void ech_generate_release(ech_exchange *const x)
{
    ech_generation *const g = x->gen;
    if (g != NULL) ech_observe_end(x, g);
    give_quota(x);
    if (x->request != NULL) ech_request_close(&x->request);
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->n_choices && g->choices != NULL; i++) {
        choice_fini(&g->choices[i]);
    }
    ech_blocks_fini(g->blocks);
    x->gen = NULL;
}

/*
 * Bytes of a column that frames have carried are only counted, not removed: a whole answer wants
 * all of them.
 */
ech_str ech_logprobs_take(ech_choice *const c, const size_t col, const bool fresh_only)
{
    ech_str s = ech_buf_view(&c->items[col]);
    if (fresh_only) {
        s.ptr += c->sent[col];
        s.len -= c->sent[col];
        /* The comma before the first item of this frame belongs to no frame. */
        if (s.len > 0 && c->sent[col] > 0) {
            s.ptr++;
            s.len--;
        }
    }
    c->sent[col] = c->items[col].len;
    return s;
}

ech_status ech_logprobs_next(ech_choice *const c, const size_t col)
{
    return c->items[col].len > 0 ? ech_buf_push(&c->items[col], ',') : ECH_OK;
}

/* The choices of one prompt lie side by side: with n = 3 choice 4 is of prompt 1. */
ech_status ech_put_prompt(ech_buf *const b, const ech_generation *const g, const uint32_t choice)
{
    const ech_prompt *const p = &g->prompts[choice / (g->n_choices / g->n_prompts)];
    if (g->params.return_token_ids) {
        ECH_TRY(ech_buf_puts(b, ",\"prompt_token_ids\":["));
        for (size_t i = 0; i < p->n_ids; i++) {
            ECH_TRY(ech_buf_printf(b, "%s%d", i > 0 ? "," : "", p->ids[i]));
        }
        ECH_TRY(ech_buf_push(b, ']'));
    }
    if (g->params.prompt_logprobs < 0) return ECH_OK;
    const char *const probs = g->choices[choice].prompt_probs.data;
    return ech_buf_printf(b, ",\"prompt_logprobs\":[%s]", probs != NULL ? probs : "");
}

/* Every drawn id is in the list, also one whose text was held back for ever. */
ech_status ech_put_token_ids(ech_buf *const b, const ech_generation *const g, const uint32_t choice)
{
    const char *const ids = g->choices[choice].ids.data;
    if (!g->params.return_token_ids) return ECH_OK;
    return ech_buf_printf(b, ",\"token_ids\":[%s]", ids != NULL ? ids : "");
}

/*
 * Names are llama-server's. Rates are over gaps: the first token belongs to the prompt's time,
 * so that n tokens have n - 1 gaps.
 */
ech_status ech_put_timings(ech_buf *const b, const ech_generation *const g)
{
    if (!g->params.timings) return ECH_OK;
    const double per_ms = (double)ECH_NS_PER_MS;
    const bool began = g->timing.first_ns > 0;
    const uint32_t n_prompt = g->timing.prompt - g->timing.cached;
    const double prompt_ms =
        began ? (double)(g->timing.first_ns - g->timing.started_ns) / per_ms : 0;
    const double answer_ms = began ? (double)(g->timing.last_ns - g->timing.first_ns) / per_ms : 0;
    return ech_buf_printf(
        b,
        ",\"timings\":{\"cache_n\":%u,\"prompt_n\":%u,\"prompt_ms\":%.3f,\"prompt_per_second\":"
        "%.3f,\"predicted_n\":%u,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f}",
        g->timing.cached, n_prompt, prompt_ms, prompt_ms > 0 ? n_prompt * 1000.0 / prompt_ms : 0,
        g->timing.drawn, answer_ms, answer_ms > 0 ? (g->timing.drawn - 1) * 1000.0 / answer_ms : 0);
}

/*
 * Members for what this server doesn't do (audio, predictions) are there with 0: typed clients
 * ask for them.
 */
ech_status ech_put_usage(ech_buf *const b, const ech_usage *const u)
{
    return ech_buf_printf(
        b,
        "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%u,\"audio_tokens\":0},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":%u,\"accepted_prediction_tokens\":0,"
        "\"rejected_prediction_tokens\":0,\"audio_tokens\":0}}",
        u->prompt_tokens, u->completion_tokens, u->prompt_tokens + u->completion_tokens,
        u->cached_tokens, u->reasoning_tokens);
}
