/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/chat/completions: messages in, a message out. The model's template makes the prompt;
 * user text never becomes control tokens (chat.h).
 *
 * The request is read on a text thread, the answer is written on the loop thread (generate.h). A
 * stream has OpenAI's order, which its SDKs rely on:
 *
 *     a chunk with the role for each choice
 *     deltas, in the order of the engine's events; choices interleave, `index` tells them apart
 *     an empty delta with the finish_reason for each choice
 *     one chunk with `usage` and no choices, where stream_options.include_usage asks for it
 *     data: [DONE]
 *
 * `refusal` is always null: a model's refusal is text like any other here.
 */
#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/chat_prompt.h"
#include "src/server/generate.h"
#include "src/server/reply.h"
#include "src/server/state.h"

/*
 * Every chunk repeats it, since each is an object of its own in OpenAI's schema; the id is the
 * request's, so that a client can find its answer in the audit log.
 */
static ech_status put_head(const ech_exchange *const x, const ech_generation *const g,
                           const char *const object, ech_buf *const b)
{
    ECH_TRY(ech_buf_printf(
        b, "{\"id\":\"chatcmpl-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", x->id, object,
        (long long)g->created_s));
    ECH_TRY(ech_json_put_cstring(b, g->model));
    return ech_buf_puts(b, ",\"system_fingerprint\":\"echelon\"");
}

/*
 * fresh: only what no chunk of this choice has carried yet. A token's score may so arrive in a
 * later chunk than its text or an earlier one, as the engine holds text back that could become a
 * stop string; scores are never lost.
 */
static ech_status put_logprobs(ech_generation *const g, ech_choice *const c, ech_buf *const b,
                               const bool fresh)
{
    if (!g->wants_logprobs) return ech_buf_puts(b, "null");
    const ech_str s = ech_logprobs_take(c, 0, fresh);
    ECH_TRY(ech_buf_puts(b, "{\"content\":["));
    ECH_TRY(ech_buf_append(b, s.ptr, s.len));
    return ech_buf_puts(b, "],\"refusal\":null}");
}

/*
 * delta is JSON; finish NULL: null. Token ids and the prompt's part go with the last chunk of a
 * choice only: before it they aren't whole. `usage` is null in all but the last chunk, and only
 * where it was asked for: clients that did not ask may not know the key.
 */
static ech_status put_chunk(ech_exchange *const x, ech_generation *const g, const uint32_t k,
                            const ech_str delta, const char *const finish)
{
    ech_buf *const b = &x->out;
    ECH_TRY(ech_buf_puts(b, "data: "));
    ECH_TRY(put_head(x, g, "chat.completion.chunk", b));
    ECH_TRY(ech_buf_printf(b, ",\"choices\":[{\"index\":%u,\"delta\":", k));
    ECH_TRY(ech_buf_append(b, delta.ptr, delta.len));
    ECH_TRY(ech_buf_puts(b, ",\"logprobs\":"));
    ECH_TRY(put_logprobs(g, &g->choices[k], b, true));
    if (finish != NULL) ECH_TRY(ech_put_token_ids(b, g, k));
    ECH_TRY(finish != NULL ? ech_buf_printf(b, ",\"finish_reason\":\"%s\"}]", finish)
                           : ech_buf_puts(b, ",\"finish_reason\":null}]"));
    if (finish != NULL) ECH_TRY(ech_put_prompt(b, g, k));
    ECH_TRY(ech_put_timings(b, g));
    return ech_buf_puts(b, g->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

/*
 * Written on the text thread, before the loop gets the exchange. The role goes out before the
 * first token is there, so that a client sees at once that its request was accepted.
 */
static ech_status on_begin(ech_exchange *const x, ech_generation *const g)
{
    for (uint32_t k = 0; k < g->n_choices; k++) {
        ECH_TRY(put_chunk(x, g, k, ECH_STR_LIT("{\"role\":\"assistant\",\"content\":\"\"}"), NULL));
    }
    return ECH_OK;
}

/* {"tool_calls":[{"index":k,…}]}: id, type and name once, then pieces of the arguments. */
static ech_status put_call_delta(const ech_choice *const c, const ech_event *const ev,
                                 ech_buf *const b)
{
    const ech_call *const call = &c->calls[ev->call_index];
    ECH_TRY(ech_buf_printf(b, "{\"tool_calls\":[{\"index\":%u,", ev->call_index));
    if (ev->channel == ECH_CHANNEL_TOOL_NAME) {
        ECH_TRY(ech_buf_puts(b, "\"id\":"));
        ECH_TRY(ech_json_put_cstring(b, call->id));
        ECH_TRY(ech_buf_puts(b, ",\"type\":\"function\",\"function\":{\"name\":"));
        ECH_TRY(ech_json_put_string(b, ev->text, ev->text_len));
        return ech_buf_puts(b, ",\"arguments\":\"\"}}]}");
    }
    ECH_TRY(ech_buf_puts(b, "\"function\":{\"arguments\":"));
    ECH_TRY(ech_json_put_string(b, ev->text, ev->text_len));
    return ech_buf_puts(b, "}}]}");
}

/* "reasoning_content":…, or as --reasoning-field says. */
static ech_status put_reasoning(const ech_exchange *const x, const char *const text,
                                const size_t len, ech_buf *const b)
{
    const ech_served_chat *const chat = &x->server->chat;
    if (chat->has_reasoning_content) {
        ECH_TRY(ech_buf_puts(b, "\"reasoning_content\":"));
        ECH_TRY(ech_json_put_string(b, text, len));
    }
    if (!chat->has_reasoning) return ECH_OK;
    ECH_TRY(ech_buf_puts(b, chat->has_reasoning_content ? ",\"reasoning\":" : "\"reasoning\":"));
    return ech_json_put_string(b, text, len);
}

/* One event is one delta: a chunk never mixes reasoning with content. */
static ech_status put_delta(const ech_exchange *const x, const ech_generation *const g,
                            const uint32_t choice, const ech_event *const ev, ech_buf *const b)
{
    if (ev->channel == ECH_CHANNEL_TOOL_NAME || ev->channel == ECH_CHANNEL_TOOL_ARGS) {
        return put_call_delta(&g->choices[choice], ev, b);
    }
    ECH_TRY(ech_buf_push(b, '{'));
    if (ev->channel == ECH_CHANNEL_REASONING) {
        ECH_TRY(put_reasoning(x, ev->text, ev->text_len, b));
    } else {
        ECH_TRY(ech_buf_puts(b, "\"content\":"));
        ECH_TRY(ech_json_put_string(b, ev->text, ev->text_len));
    }
    return ech_buf_push(b, '}');
}

static ech_status on_delta(ech_exchange *const x, ech_generation *const g, const uint32_t choice,
                           const ech_event *const ev)
{
    ech_buf delta = { 0 };
    ech_status rc = put_delta(x, g, choice, ev, &delta);
    if (rc == ECH_OK) rc = put_chunk(x, g, choice, ech_buf_view(&delta), NULL);
    ech_buf_fini(&delta);
    return rc;
}

/* A call that was cut short is no call; a named function's answer ends with stop, as OpenAI has it.
 */
static const char *finish_name(const ech_generation *const g, const uint32_t choice)
{
    const ech_choice *const c = &g->choices[choice];
    if (c->finish == ECH_FINISH_STOP && ech_choice_complete_calls(c) > 0 && !g->is_named_call)
        return "tool_calls";
    return ech_finish_name(c->finish);
}

/* Scores of the last tokens may still wait here: put_chunk sends whatever is left of them. */
static ech_status on_finish(ech_exchange *const x, ech_generation *const g, const uint32_t choice)
{
    return put_chunk(x, g, choice, ECH_STR_LIT("{}"), finish_name(g, choice));
}

/*
 * The usage comes after the finish of every choice and has an empty list of choices: clients
 * that read choices[0] without a look at the length have to ask for it themselves.
 */
static ech_status on_done(ech_exchange *const x, ech_generation *const g)
{
    if (g->include_usage) {
        ECH_TRY(ech_buf_puts(&x->out, "data: "));
        ECH_TRY(put_head(x, g, "chat.completion.chunk", &x->out));
        ECH_TRY(ech_buf_puts(&x->out, ",\"choices\":[],\"usage\":"));
        ECH_TRY(ech_put_usage(&x->out, &g->usage));
        ECH_TRY(ech_buf_puts(&x->out, "}\n\n"));
    }
    return ech_buf_puts(&x->out, "data: [DONE]\n\n");
}

/*
 * "token":…,"logprob":…,"bytes":[…]. A token may be a part of a character: the JSON string then
 * holds a replacement, and only `bytes` has what it was.
 */
static ech_status put_item(const ech_exchange *const x, const int32_t id, const float logprob,
                           ech_buf *const b)
{
    size_t len;
    const char *const bytes =
        ech_tokenizer_token_bytes(ech_engine_tokenizer(x->server->engine), id, &len);
    if (bytes == NULL) len = 0;
    ECH_TRY(ech_buf_puts(b, "\"token\":"));
    ECH_TRY(ech_json_put_string(b, bytes, len));
    ECH_TRY(ech_buf_puts(b, ",\"logprob\":"));
    /* OpenAI's word for "effectively impossible". */
    ECH_TRY(ech_json_put_float(b, logprob > -9999.0F ? logprob : -9999.0F));
    ECH_TRY(ech_buf_puts(b, ",\"bytes\":["));
    for (size_t i = 0; i < len; i++) {
        ECH_TRY(ech_buf_printf(b, "%s%u", i > 0 ? "," : "", (unsigned char)bytes[i]));
    }
    return ech_buf_push(b, ']');
}

/*
 * OpenAI lists no score for the token that ends an answer; with ignore_eos it doesn't end it and
 * is one like all others.
 */
static bool ends_sequence(const ech_exchange *const x, const ech_generation *const g,
                          const int32_t id)
{
    if (g->params.ignore_eos) return false;
    const ech_engine_info *const info = &x->server->info;
    for (size_t i = 0; i < info->n_eos_ids; i++) {
        if (info->eos_ids[i] == id) return true;
    }
    return false;
}

static ech_status on_logprob(ech_exchange *const x, ech_generation *const g, ech_choice *const c,
                             const ech_event *const ev)
{
    if (ends_sequence(x, g, ev->id)) return ECH_OK;
    ech_buf *const b = &c->items[0];
    ECH_TRY(ech_logprobs_next(c, 0));
    ECH_TRY(ech_buf_push(b, '{'));
    ECH_TRY(put_item(x, ev->id, ev->logprob, b));
    ECH_TRY(ech_buf_puts(b, ",\"top_logprobs\":["));
    for (size_t i = 0; i < ev->n_top; i++) {
        ECH_TRY(ech_buf_puts(b, i > 0 ? ",{" : "{"));
        ECH_TRY(put_item(x, ev->top[i].id, ev->top[i].logprob, b));
        ECH_TRY(ech_buf_push(b, '}'));
    }
    return ech_buf_puts(b, "]}");
}

/*
 * A call that max_tokens or a disconnect cut short is left out: its arguments are no JSON, and a
 * client would run it or crash. `arguments` is a string with JSON in it, not an object; so
 * OpenAI has it.
 */
static ech_status put_calls(const ech_choice *const c, ech_buf *const b)
{
    if (ech_choice_complete_calls(c) == 0) return ECH_OK;
    ECH_TRY(ech_buf_puts(b, ",\"tool_calls\":["));
    bool is_first = true;
    for (uint32_t i = 0; i < c->n_calls; i++) {
        const ech_call *const call = &c->calls[i];
        if (!call->is_complete) continue;
        ECH_TRY(ech_buf_puts(b, is_first ? "{\"id\":" : ",{\"id\":"));
        ECH_TRY(ech_json_put_cstring(b, call->id));
        ECH_TRY(ech_buf_puts(b, ",\"type\":\"function\",\"function\":{\"name\":"));
        ECH_TRY(ech_json_put_string(b, call->name.data, call->name.len));
        ECH_TRY(ech_buf_puts(b, ",\"arguments\":"));
        ECH_TRY(ech_json_put_string(b, call->args.data, call->args.len));
        ECH_TRY(ech_buf_puts(b, "}}"));
        is_first = false;
    }
    return ech_buf_push(b, ']');
}

/*
 * The whole answer. content is null where there are only calls, as OpenAI has it: some clients
 * take an empty string for an answer.
 */
static ech_status put_message(const ech_exchange *const x, ech_generation *const g,
                              const uint32_t k, ech_buf *const b)
{
    ech_choice *const c = &g->choices[k];
    const ech_str content = ech_buf_view(&c->text[ECH_CHANNEL_CONTENT]);
    const ech_str reasoning = ech_buf_view(&c->text[ECH_CHANNEL_REASONING]);
    ECH_TRY(ech_buf_printf(b, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", k));
    if (content.len == 0 && ech_choice_complete_calls(c) > 0) {
        ECH_TRY(ech_buf_puts(b, "null"));
    } else {
        ECH_TRY(ech_json_put_string(b, content.ptr, content.len));
    }
    ECH_TRY(ech_buf_puts(b, ",\"refusal\":null"));
    if (reasoning.len > 0) {
        ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(put_reasoning(x, reasoning.ptr, reasoning.len, b));
    }
    ECH_TRY(put_calls(c, b));
    ECH_TRY(ech_buf_puts(b, "},\"logprobs\":"));
    ECH_TRY(put_logprobs(g, c, b, false));
    ECH_TRY(ech_put_token_ids(b, g, k));
    return ech_buf_printf(b, ",\"finish_reason\":\"%s\"}", finish_name(g, k));
}

/* Made from the same accumulated choices that a stream was cut from. */
static ech_status on_body(ech_exchange *const x, ech_generation *const g)
{
    ech_buf *const b = &x->reply;
    ECH_TRY(put_head(x, g, "chat.completion", b));
    ECH_TRY(ech_buf_puts(b, ",\"choices\":["));
    for (uint32_t k = 0; k < g->n_choices; k++) {
        if (k > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(put_message(x, g, k, b));
    }
    ECH_TRY(ech_buf_push(b, ']'));
    ECH_TRY(ech_put_prompt(b, g, 0));
    ECH_TRY(ech_buf_puts(b, ",\"usage\":"));
    ECH_TRY(ech_put_usage(b, &g->usage));
    ECH_TRY(ech_put_timings(b, g));
    return ech_buf_push(b, '}');
}

static const ech_dialect CHAT = {
    .begin = on_begin,
    .delta = on_delta,
    .finish = on_finish,
    .done = on_done,
    .logprob = on_logprob,
    .body = on_body,
};

/*
 * The one field that differs between OpenAI's two APIs: a bool here with a count beside it, a
 * count alone in completions. top_logprobs without logprobs is an error with OpenAI too, not a
 * silent nothing.
 */
static bool take_logprobs(ech_exchange *const x, ech_generation *const g)
{
    const json_t *const v = g->params.logprobs;
    if (v != NULL && !json_is_boolean(v)) {
        ech_reply_error(x, 400, "invalid_value", "logprobs", "logprobs must be true or false");
        return false;
    }
    g->wants_logprobs = json_is_true(v);
    if (g->params.top_logprobs >= 0 && !g->wants_logprobs) {
        ech_reply_error(x, 400, "invalid_value", "top_logprobs",
                        "top_logprobs needs logprobs: true");
        return false;
    }
    g->n_top = g->params.top_logprobs > 0 ? (int32_t)g->params.top_logprobs : 0;
    return true;
}

/*
 * Text thread. The order is that of the answers: what is wrong with the fields is said before
 * the template is run, which costs most. Whatever fails has set its answer; what was made so far
 * lies in the exchange and goes with it.
 */
void ech_api_chat(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    if (!ech_generation_parse(x, g, body, ECH_IN_CHAT) || !take_logprobs(x, g) ||
        !ech_generate_options(x, g, &options) || !ech_chat_take(x, g, &options)) {
        return;
    }
    ech_generate_start(x, &CHAT, g, &options);
}
