/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/responses: OpenAI's newer API over the same events, stateless. Its items become the
 * messages that chat templates know, and back; frames carry a type and a sequence number.
 *
 * Read on a text thread, written on the loop thread. A stream has OpenAI's order:
 *
 *     response.created, response.in_progress
 *     response.output_item.added, response.content_part.added     for each item (calls: no part)
 *     response.output_text.delta* (or reasoning_text, function_call_arguments), ….done
 *     response.content_part.done, response.output_item.done
 *     response.completed, or response.incomplete after max_output_tokens, or response.failed
 *
 * There is no [DONE]. Left out: responses that are kept (previous_response_id is refused), tools
 * that a server runs, images.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/api.h"
#include "src/server/blocks.h"
#include "src/server/chat_prompt.h"
#include "src/server/reply.h"
#include "src/server/state.h"
#include "src/text/json_dump.h"

/* ---- writing -------------------------------------------------------------------------------- */

/* Numbers begin at 0 and never skip one: clients use them to notice what they missed. */
static ech_status begin_frame(ech_exchange *const x, const ech_generation *const g,
                              const char *const type)
{
    return ech_buf_printf(&x->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu",
                          type, type, (unsigned long long)g->blocks->sequence++);
}

static ech_status end_frame(ech_exchange *const x)
{
    return ech_buf_puts(&x->out, "}\n\n");
}

/* An item's place and name, as most frames carry them. */
static ech_status put_place(ech_exchange *const x, const ech_blocks *const b)
{
    static const char *const PREFIXES[] = {
        [ECH_BLOCK_TEXT] = "msg", [ECH_BLOCK_REASONING] = "rs", [ECH_BLOCK_CALL] = "fc"
    };
    return ech_buf_printf(&x->out, ",\"output_index\":%u,\"item_id\":\"%s_%s%u\"", b->index,
                          PREFIXES[b->kind], x->id, b->index);
}

/* annotations are always there and empty: typed clients fail at a missing list. */
static ech_status put_part(const ech_blocks *const b, const ech_str text, ech_buf *const out)
{
    const bool thinks = b->kind == ECH_BLOCK_REASONING;
    ECH_TRY(ech_buf_puts(out, thinks ? "{\"type\":\"reasoning_text\",\"text\":"
                                     : "{\"type\":\"output_text\",\"annotations\":[],\"text\":"));
    ECH_TRY(ech_json_put_string(out, text.ptr, text.len));
    return ech_buf_push(out, '}');
}

/*
 * A call has two ids: `id` names the item, `call_id` is what function_call_output refers to. One
 * that was cut is shown and said to be incomplete; so a client sees why nothing is to be run.
 */
static ech_status put_call_item(const ech_exchange *const x, const ech_blocks *const b,
                                const bool is_start, ech_buf *const out)
{
    ECH_TRY(ech_buf_printf(
        out, "{\"type\":\"function_call\",\"id\":\"fc_%s%u\",\"call_id\":", x->id, b->index));
    ECH_TRY(ech_json_put_cstring(out, b->call->id));
    ECH_TRY(ech_buf_puts(out, ",\"name\":"));
    ECH_TRY(ech_json_put_string(out, b->call->name.data, b->call->name.len));
    ECH_TRY(ech_buf_puts(out, ",\"arguments\":"));
    ECH_TRY(ech_json_put_string(out, is_start ? "" : b->text.data, is_start ? 0 : b->text.len));
    const char *const done = b->call->is_complete ? "completed" : "incomplete";
    return ech_buf_printf(out, ",\"status\":\"%s\"}", is_start ? "in_progress" : done);
}

/* The item as it begins (empty, in progress) or as it is. */
static ech_status put_item(const ech_exchange *const x, const ech_blocks *const b,
                           const bool is_start, ech_buf *const out)
{
    if (b->kind == ECH_BLOCK_CALL) return put_call_item(x, b, is_start, out);
    const bool thinks = b->kind == ECH_BLOCK_REASONING;
    ECH_TRY(ech_buf_printf(out,
                           thinks
                               ? "{\"type\":\"reasoning\",\"id\":\"rs_%s%u\",\"summary\":[]"
                               : "{\"type\":\"message\",\"id\":\"msg_%s%u\",\"role\":\"assistant\"",
                           x->id, b->index));
    ECH_TRY(ech_buf_printf(out, ",\"status\":\"%s\",\"content\":[",
                           is_start ? "in_progress" : "completed"));
    if (!is_start) ECH_TRY(put_part(b, ech_buf_view(&b->text), out));
    return ech_buf_puts(out, "]}");
}

/*
 * An item is announced before anything of it is sent, and so is its one part; clients that get a
 * delta for an item they don't know of break (both were left out by servers that came before).
 */
static ech_status block_open(ech_exchange *const x, ech_generation *const g, ech_blocks *const b)
{
    ECH_TRY(begin_frame(x, g, "response.output_item.added"));
    ECH_TRY(ech_buf_printf(&x->out, ",\"output_index\":%u,\"item\":", b->index));
    ECH_TRY(put_item(x, b, true, &x->out));
    ECH_TRY(end_frame(x));
    if (b->kind == ECH_BLOCK_CALL) return ECH_OK;
    ECH_TRY(begin_frame(x, g, "response.content_part.added"));
    ECH_TRY(put_place(x, b));
    ECH_TRY(ech_buf_puts(&x->out, ",\"content_index\":0,\"part\":"));
    ECH_TRY(put_part(b, ECH_STR_LIT(""), &x->out));
    return end_frame(x);
}

/*
 * An empty list of logprobs is part of the schema of text deltas; scores are not offered on this
 * path.
 */
static ech_status block_delta(ech_exchange *const x, ech_generation *const g, ech_blocks *const b,
                              const char *const text, const size_t len)
{
    static const char *const TYPES[] = {
        [ECH_BLOCK_TEXT] = "response.output_text.delta",
        [ECH_BLOCK_REASONING] = "response.reasoning_text.delta",
        [ECH_BLOCK_CALL] = "response.function_call_arguments.delta",
    };
    ECH_TRY(begin_frame(x, g, TYPES[b->kind]));
    ECH_TRY(put_place(x, b));
    if (b->kind != ECH_BLOCK_CALL) ECH_TRY(ech_buf_puts(&x->out, ",\"content_index\":0"));
    if (b->kind == ECH_BLOCK_TEXT) ECH_TRY(ech_buf_puts(&x->out, ",\"logprobs\":[]"));
    ECH_TRY(ech_buf_puts(&x->out, ",\"delta\":"));
    ECH_TRY(ech_json_put_string(&x->out, text, len));
    return end_frame(x);
}

/*
 * The frame that says the whole text of what was sent in pieces. Clients that look at the end
 * only need no sum of the deltas.
 */
static ech_status put_text_done(ech_exchange *const x, ech_generation *const g,
                                const ech_blocks *const b)
{
    static const char *const TYPES[] = {
        [ECH_BLOCK_TEXT] = "response.output_text.done",
        [ECH_BLOCK_REASONING] = "response.reasoning_text.done",
        [ECH_BLOCK_CALL] = "response.function_call_arguments.done",
    };
    ECH_TRY(begin_frame(x, g, TYPES[b->kind]));
    ECH_TRY(put_place(x, b));
    if (b->kind == ECH_BLOCK_CALL) {
        ECH_TRY(ech_buf_puts(&x->out, ",\"name\":"));
        ECH_TRY(ech_json_put_string(&x->out, b->call->name.data, b->call->name.len));
    } else {
        ECH_TRY(ech_buf_puts(&x->out, ",\"content_index\":0"));
    }
    if (b->kind == ECH_BLOCK_TEXT) ECH_TRY(ech_buf_puts(&x->out, ",\"logprobs\":[]"));
    ECH_TRY(ech_buf_puts(&x->out, b->kind == ECH_BLOCK_CALL ? ",\"arguments\":" : ",\"text\":"));
    ECH_TRY(ech_json_put_string(&x->out, b->text.data, b->text.len));
    return end_frame(x);
}

/* The same way back: text, part, item; each says again what it was as a whole. */
static ech_status block_close(ech_exchange *const x, ech_generation *const g, ech_blocks *const b)
{
    ECH_TRY(put_text_done(x, g, b));
    if (b->kind != ECH_BLOCK_CALL) {
        ECH_TRY(begin_frame(x, g, "response.content_part.done"));
        ECH_TRY(put_place(x, b));
        ECH_TRY(ech_buf_puts(&x->out, ",\"content_index\":0,\"part\":"));
        ECH_TRY(put_part(b, ech_buf_view(&b->text), &x->out));
        ECH_TRY(end_frame(x));
    }
    ECH_TRY(put_item(x, b, false, &b->done));
    ECH_TRY(begin_frame(x, g, "response.output_item.done"));
    ECH_TRY(ech_buf_printf(&x->out, ",\"output_index\":%u,\"item\":", b->index));
    ECH_TRY(put_item(x, b, false, &x->out));
    return end_frame(x);
}

static const ech_block_ops BLOCKS = { block_open, block_delta, block_close };

/*
 * What the request said, as it said it. The response repeats what it answers. From the client's
 * own JSON, not from the parsed fields: those were turned into chat's form.
 */
static ech_status put_given(const ech_exchange *const x, const char *const name,
                            const char *const absent, ech_buf *const b)
{
    const json_t *const v = json_object_get(x->json, name);
    ECH_TRY(ech_buf_printf(b, ",\"%s\":", name));
    return v != NULL && !json_is_null(v) ? ech_json_dump(b, v) : ech_buf_puts(b, absent);
}

/*
 * The response object; status NULL: as the choice ended. It goes out three times in a stream
 * (created, in_progress, the end) and once as a body. Output and usage are only in the last:
 * before it nothing is known, and a client would count it twice.
 */
static ech_status put_response(const ech_exchange *const x, const ech_generation *const g,
                               const char *status, ech_buf *const b)
{
    const bool is_cut = g->choices[0].finish == ECH_FINISH_LENGTH;
    const bool is_done = status == NULL;
    if (is_done) status = is_cut ? "incomplete" : "completed";
    const ech_str output = ech_buf_view(&g->blocks->done);
    ECH_TRY(ech_buf_printf(b,
                           "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,"
                           "\"status\":\"%s\",\"model\":",
                           x->id, (long long)g->created_s, status));
    ECH_TRY(ech_json_put_cstring(b, g->model));
    ECH_TRY(ech_buf_puts(b, ",\"error\":null,\"previous_response_id\":null"));
    ECH_TRY(put_given(x, "instructions", "null", b));
    ECH_TRY(put_given(x, "max_output_tokens", "null", b));
    ECH_TRY(put_given(x, "metadata", "{}", b));
    ECH_TRY(put_given(x, "tools", "[]", b));
    ECH_TRY(put_given(x, "tool_choice", "\"auto\"", b));
    ECH_TRY(put_given(x, "text", "{\"format\":{\"type\":\"text\"}}", b));
    ECH_TRY(ech_buf_printf(b, ",\"parallel_tool_calls\":%s,\"temperature\":",
                           g->params.parallel_tool_calls ? "true" : "false"));
    ECH_TRY(ech_json_put_float(b, g->params.temperature));
    ECH_TRY(ech_buf_puts(b, ",\"top_p\":"));
    ECH_TRY(ech_json_put_float(b, g->params.top_p));
    ECH_TRY(ech_buf_puts(b, is_done && is_cut
                                ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                                : ",\"incomplete_details\":null"));
    ECH_TRY(ech_buf_puts(b, ",\"output\":["));
    if (is_done) ECH_TRY(ech_buf_append(b, output.ptr, output.len));
    if (!is_done) return ech_buf_puts(b, "],\"usage\":null}");
    ECH_TRY(ech_buf_push(b, ']'));
    ECH_TRY(ech_put_token_ids(b, g, 0));
    ECH_TRY(ech_put_prompt(b, g, 0));
    return ech_buf_printf(
        b,
        ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
        "\"cache_write_tokens\":0},\"output_tokens\":%u,"
        "\"output_tokens_details\":{\"reasoning_tokens\":%u},\"total_tokens\":%u}}",
        g->usage.prompt_tokens, g->usage.cached_tokens, g->usage.completion_tokens,
        g->usage.reasoning_tokens, g->usage.prompt_tokens + g->usage.completion_tokens);
}

static ech_status put_state(ech_exchange *const x, ech_generation *const g, const char *const type,
                            const char *const status)
{
    ECH_TRY(begin_frame(x, g, type));
    ECH_TRY(ech_buf_puts(&x->out, ",\"response\":"));
    ECH_TRY(put_response(x, g, status, &x->out));
    return end_frame(x);
}

/* Two events that say the same here: OpenAI's servers queue a request between them. */
static ech_status on_begin(ech_exchange *const x, ech_generation *const g)
{
    ECH_TRY(put_state(x, g, "response.created", "in_progress"));
    return put_state(x, g, "response.in_progress", "in_progress");
}

/* One choice only: this API has no n. */
static ech_status on_finish(ech_exchange *const x, ech_generation *const g, const uint32_t choice)
{
    (void)choice;
    return ech_blocks_close(x, g);
}

/* The last item was closed by on_finish, so that the response that follows holds it. */
static ech_status on_done(ech_exchange *const x, ech_generation *const g)
{
    const bool is_cut = g->choices[0].finish == ECH_FINISH_LENGTH;
    return put_state(x, g, is_cut ? "response.incomplete" : "response.completed", NULL);
}

static ech_status on_body(ech_exchange *const x, ech_generation *const g)
{
    return put_response(x, g, NULL, &x->reply);
}

/* The one event that may come without those before it having been closed. */
static ech_status on_fail(ech_exchange *const x, ech_generation *const g,
                          const ech_error *const why)
{
    ECH_TRY(begin_frame(x, g, "response.failed"));
    ECH_TRY(ech_buf_printf(&x->out,
                           ",\"response\":{\"id\":\"resp_%s\",\"object\":\"response\",\"status\":"
                           "\"failed\",\"output\":[],"
                           "\"error\":{\"code\":\"server_error\",\"message\":",
                           x->id));
    ECH_TRY(ech_json_put_cstring(&x->out, why->text));
    ECH_TRY(ech_buf_puts(&x->out, "}}"));
    return end_frame(x);
}

static const ech_dialect RESPONSES = {
    .writes_always = true,
    .begin = on_begin,
    .delta = ech_blocks_delta,
    .call_end = ech_blocks_call_end,
    .finish = on_finish,
    .done = on_done,
    .body = on_body,
    .fail = on_fail,
};

/* ---- reading -------------------------------------------------------------------------------- */

/*
 * A call goes to the assistant's message before it, if that is the last one. Each call is an
 * item of its own here; in chat all calls of a turn belong to one assistant's message. Without
 * it a template would see several turns of an assistant in a row.
 */
static void add_call(json_t *const messages, const json_t *const item)
{
    const size_t n = json_array_size(messages);
    json_t *last = n > 0 ? json_array_get(messages, n - 1) : NULL;
    const char *const role = json_string_value(json_object_get(last, "role"));
    if (role == NULL || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        (void)json_array_append_new(messages, last);
    }
    if (json_object_get(last, "tool_calls") == NULL)
        (void)json_object_set_new(last, "tool_calls", json_array());
    (void)json_array_append_new(
        json_object_get(last, "tool_calls"),
        json_pack("{s:s, s:s?, s:{s:s?, s:s?}}", "type", "function", "id",
                  json_string_value(json_object_get(item, "call_id")), "function", "name",
                  json_string_value(json_object_get(item, "name")), "arguments",
                  json_string_value(json_object_get(item, "arguments"))));
}

/* Parts are input_text, output_text or text; their names differ, their texts are joined. */
static bool take_message(ech_exchange *const x, const char *const param, const json_t *const item,
                         json_t *const messages)
{
    json_t *const role = json_object_get(item, "role");
    json_t *const text =
        json_is_string(role) ? ech_text_of(json_object_get(item, "content")) : NULL;
    if (text == NULL)
        return ech_reply_refuse(x, param,
                                "is a message without a role, or with a part that is no text");
    (void)json_array_append_new(messages, json_pack("{s:O, s:o}", "role", role, "content", text));
    return true;
}

/*
 * An item without a type is a message: OpenAI's own examples leave it out. The index goes into
 * the error's param: in a list of hundreds of items "input" alone helps nobody.
 */
static bool take_item(ech_exchange *const x, const size_t i, const json_t *const item,
                      json_t *const messages)
{
    char param[32];
    (void)snprintf(param, sizeof param, "input[%zu]", i);
    const char *const type = json_string_value(json_object_get(item, "type"));
    if (type == NULL || strcmp(type, "message") == 0) return take_message(x, param, item, messages);
    if (strcmp(type, "reasoning") == 0) return true; /* templates drop what was thought before */
    if (strcmp(type, "function_call") == 0) {
        const json_t *const args = json_object_get(item, "arguments");
        if (!json_is_string(json_object_get(item, "name")) ||
            (args != NULL && !json_is_string(args)))
            return ech_reply_refuse(x, param, "is a function_call without a name or arguments");
        add_call(messages, item);
        return true;
    }
    if (strcmp(type, "function_call_output") == 0) {
        json_t *const text = ech_text_of(json_object_get(item, "output"));
        if (text == NULL)
            return ech_reply_refuse(x, param, "is a function_call_output without text");
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:s?, s:o}", "role", "tool", "tool_call_id",
                                              json_string_value(json_object_get(item, "call_id")),
                                              "content", text));
        return true;
    }
    return ech_reply_refuse(
        x, param, "must be a message, function_call, function_call_output or reasoning");
}

/* The messages are the exchange's own (x->kept): what the request said stays as it was, since the
 * answer repeats it. */
static bool take_input(ech_exchange *const x, ech_params *const p)
{
    json_t *const messages = json_array();
    if (x->kept == NULL) x->kept = json_array();
    (void)json_array_append_new(x->kept, messages);
    p->messages = messages;
    if (p->instructions != NULL) {
        (void)json_array_append_new(
            messages, json_pack("{s:s, s:s}", "role", "system", "content", p->instructions));
    }
    if (json_is_string(p->input)) {
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:O}", "role", "user", "content", p->input));
        return true;
    }
    if (!json_is_array(p->input))
        return ech_reply_refuse(x, "input", "must be a string or a list of items");
    for (size_t i = 0; i < json_array_size(p->input); i++) {
        if (!take_item(x, i, json_array_get(p->input, i), messages)) return false;
    }
    return true;
}

/*
 * Flat here, nested in chat. A copy is taken since a member is removed; the request's own is
 * what the answer repeats.
 */
static bool take_tools(ech_exchange *const x, ech_params *const p)
{
    if (p->tools == NULL) return true;
    if (!json_is_array(p->tools)) return ech_reply_refuse(x, "tools", "must be a list");
    json_t *const tools = json_array();
    (void)json_array_append_new(x->kept, tools);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *const tool = json_array_get(p->tools, i);
        const char *const type = json_string_value(json_object_get(tool, "type"));
        if (type == NULL || strcmp(type, "function") != 0)
            return ech_reply_refuse(x, "tools", "may be functions only");
        json_t *const function = json_deep_copy(tool);
        (void)json_object_del(function, "type");
        (void)json_array_append_new(
            tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    p->tools = tools;
    return true;
}

/* Agents ask for encrypted reasoning with every request; of what there is, only this is missed. */
static bool take_include(ech_exchange *const x, const json_t *const list)
{
    if (list != NULL && !json_is_array(list))
        return ech_reply_refuse(x, "include", "must be a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *const what = json_string_value(json_array_get(list, i));
        if (what == NULL || strcmp(what, "message.output_text.logprobs") == 0)
            return ech_reply_refuse(x, "include",
                                    "has an entry that can't be included; log-probabilities are "
                                    "in chat and completions");
    }
    return true;
}

/*
 * text.format is what response_format is elsewhere; reasoning.effort what reasoning_effort is.
 */
static bool take_request(ech_exchange *const x, ech_generation *const g, const json_t *const body,
                         ech_request_options *const options)
{
    ech_params *const p = &g->params;
    if (!ech_generation_parse(x, g, body, ECH_IN_RESPONSES)) return false;
    if (p->max_output_tokens >= 0) p->max_tokens = p->max_output_tokens;
    if (p->text != NULL) p->response_format = json_object_get(p->text, "format");
    x->format_name = "text.format";
    g->prompt_param = "input";
    return ech_generation_take_effort(x, p, p->reasoning, "reasoning.effort") &&
           take_include(x, p->include) && take_input(x, p) && take_tools(x, p) &&
           ech_generate_options(x, g, options) && ech_chat_take(x, g, options);
}

/* Text thread. The blocks are made last: everything that can refuse has had its turn. */
void ech_api_responses(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    if (!take_request(x, g, body, &options)) return;
    if (ech_blocks_new(x, g, &BLOCKS) == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the request now");
    } else {
        ech_generate_start(x, &RESPONSES, g, &options);
    }
}
