/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/messages: Anthropic's API over the same events, stateless; and
 * /v1/messages/count_tokens. Its content blocks become the messages that chat templates know, and
 * back.
 *
 * Read on a text thread, written on the loop thread. A stream has Anthropic's order, which its
 * SDK builds the message from:
 *
 *     message_start
 *     content_block_start, content_block_delta*, content_block_stop    for each block, index from 0
 *     message_delta (stop_reason, usage), message_stop; or error in the place of these two
 *
 * There is no [DONE]: message_stop is the end. Blocks never overlap; one closes before the next
 * begins. Left out: images and documents, tools that a server runs, signatures of thinking (an
 * empty one is sent, and what comes back isn't checked), cache_control.
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

/* The type stands twice, as the event's name and in the data: SDKs dispatch on either. */
static ech_status begin_frame(ech_exchange *const x, const char *const type)
{
    return ech_buf_printf(&x->out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static ech_status end_frame(ech_exchange *const x)
{
    return ech_buf_puts(&x->out, "}\n\n");
}

/* {"type":"text","text":…}; empty is how a block starts. */
static ech_status put_block(const ech_blocks *const b, const bool is_start, ech_buf *const out)
{
    const ech_str text = is_start ? ECH_STR_LIT("") : ech_buf_view(&b->text);
    if (b->kind == ECH_BLOCK_CALL) {
        ECH_TRY(ech_buf_puts(out, "{\"type\":\"tool_use\",\"id\":"));
        ECH_TRY(ech_json_put_cstring(out, b->call->id));
        ECH_TRY(ech_buf_puts(out, ",\"name\":"));
        ECH_TRY(ech_json_put_string(out, b->call->name.data, b->call->name.len));
        ECH_TRY(ech_buf_puts(out, ",\"input\":"));
        /* Arguments that were cut are no JSON and can't be put there. */
        const bool whole = !is_start && b->call->is_complete;
        ECH_TRY(whole ? ech_buf_append(out, b->text.data, b->text.len) : ech_buf_puts(out, "{}"));
        return ech_buf_push(out, '}');
    }
    const bool thinks = b->kind == ECH_BLOCK_REASONING;
    ECH_TRY(ech_buf_puts(out, thinks ? "{\"type\":\"thinking\",\"thinking\":"
                                     : "{\"type\":\"text\",\"text\":"));
    ECH_TRY(ech_json_put_string(out, text.ptr, text.len));
    return ech_buf_puts(out, thinks ? ",\"signature\":\"\"}" : "}");
}

/* A tool's name and id go out here whole; deltas of it carry arguments only. */
static ech_status block_open(ech_exchange *const x, ech_generation *const g, ech_blocks *const b)
{
    (void)g;
    ECH_TRY(begin_frame(x, "content_block_start"));
    ECH_TRY(ech_buf_printf(&x->out, ",\"index\":%u,\"content_block\":", b->index));
    ECH_TRY(put_block(b, true, &x->out));
    return end_frame(x);
}

/* partial_json is any piece of the arguments' text: only the pieces together are JSON. */
static ech_status block_delta(ech_exchange *const x, ech_generation *const g, ech_blocks *const b,
                              const char *const text, const size_t len)
{
    static const char *const DELTAS[] = {
        [ECH_BLOCK_TEXT] = "{\"type\":\"text_delta\",\"text\":",
        [ECH_BLOCK_REASONING] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [ECH_BLOCK_CALL] = "{\"type\":\"input_json_delta\",\"partial_json\":",
    };
    (void)g;
    ECH_TRY(begin_frame(x, "content_block_delta"));
    ECH_TRY(ech_buf_printf(&x->out, ",\"index\":%u,\"delta\":%s", b->index, DELTAS[b->kind]));
    ECH_TRY(ech_json_put_string(&x->out, text, len));
    ECH_TRY(ech_buf_push(&x->out, '}'));
    return end_frame(x);
}

/*
 * The whole block is kept for the body as well: a whole answer takes the same way, and its
 * frames are thrown away at the end.
 */
static ech_status block_close(ech_exchange *const x, ech_generation *const g, ech_blocks *const b)
{
    (void)g;
    ECH_TRY(put_block(b, false, &b->done));
    ECH_TRY(begin_frame(x, "content_block_stop"));
    ECH_TRY(ech_buf_printf(&x->out, ",\"index\":%u", b->index));
    return end_frame(x);
}

static const ech_block_ops BLOCKS = { block_open, block_delta, block_close };

static ech_status put_head(const ech_exchange *const x, const ech_generation *const g,
                           ech_buf *const b)
{
    ECH_TRY(ech_buf_printf(
        b, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", x->id));
    return ech_json_put_cstring(b, g->model);
}

/* Counts of the prompt aren't known yet; message_delta has them, and its numbers replace these. */
static ech_status on_begin(ech_exchange *const x, ech_generation *const g)
{
    ECH_TRY(begin_frame(x, "message_start"));
    ECH_TRY(ech_buf_puts(&x->out, ",\"message\":"));
    ECH_TRY(put_head(x, g, &x->out));
    ECH_TRY(ech_buf_puts(&x->out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"
                                  "\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}"));
    return end_frame(x);
}

/* A cut answer is max_tokens even with whole calls in it: the model had not ended. */
static const char *stop_reason(const ech_generation *const g)
{
    const ech_choice *const c = &g->choices[0];
    if (c->finish == ECH_FINISH_LENGTH) return "max_tokens";
    if (ech_choice_complete_calls(c) > 0) return "tool_use";
    return c->stop != NULL ? "stop_sequence" : "end_turn";
}

static ech_status put_stop(const ech_generation *const g, ech_buf *const b)
{
    ECH_TRY(ech_buf_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(g)));
    return g->choices[0].stop != NULL ? ech_json_put_cstring(b, g->choices[0].stop)
                                      : ech_buf_puts(b, "null");
}

/* input_tokens are those that were not reused; the three kinds of input add up to the prompt. */
static ech_status put_usage(const ech_generation *const g, ech_buf *const b)
{
    return ech_buf_printf(b,
                          "\"usage\":{\"input_tokens\":%u,\"cache_read_input_tokens\":%u,\"cache_"
                          "creation_input_tokens\":0,"
                          "\"output_tokens\":%u}",
                          g->usage.prompt_tokens - g->usage.cached_tokens, g->usage.cached_tokens,
                          g->usage.completion_tokens);
}

/* One choice only: Anthropic has no n. */
static ech_status on_finish(ech_exchange *const x, ech_generation *const g, const uint32_t choice)
{
    (void)choice;
    return ech_blocks_close(x, g);
}

/* stop_reason and usage come after all blocks, not with message_start: neither is known there. */
static ech_status on_done(ech_exchange *const x, ech_generation *const g)
{
    ECH_TRY(begin_frame(x, "message_delta"));
    ECH_TRY(ech_buf_puts(&x->out, ",\"delta\":{"));
    ECH_TRY(put_stop(g, &x->out));
    ECH_TRY(ech_buf_puts(&x->out, "},"));
    ECH_TRY(put_usage(g, &x->out));
    ECH_TRY(ech_put_token_ids(&x->out, g, 0));
    ECH_TRY(ech_put_prompt(&x->out, g, 0));
    ECH_TRY(end_frame(x));
    ECH_TRY(begin_frame(x, "message_stop"));
    return end_frame(x);
}

static ech_status on_body(ech_exchange *const x, ech_generation *const g)
{
    const ech_str done = ech_buf_view(&g->blocks->done);
    ECH_TRY(put_head(x, g, &x->reply));
    ECH_TRY(ech_buf_puts(&x->reply, ",\"content\":["));
    ECH_TRY(ech_buf_append(&x->reply, done.ptr, done.len));
    ECH_TRY(ech_buf_puts(&x->reply, "],"));
    ECH_TRY(put_stop(g, &x->reply));
    ECH_TRY(ech_buf_push(&x->reply, ','));
    ECH_TRY(put_usage(g, &x->reply));
    ECH_TRY(ech_put_token_ids(&x->reply, g, 0));
    ECH_TRY(ech_put_prompt(&x->reply, g, 0));
    return ech_buf_push(&x->reply, '}');
}

/* Without message_stop after it: SDKs raise an exception at this event and read no further. */
static ech_status on_fail(ech_exchange *const x, ech_generation *const g,
                          const ech_error *const why)
{
    (void)g;
    ECH_TRY(begin_frame(x, "error"));
    ECH_TRY(ech_buf_puts(&x->out, ",\"error\":{\"type\":\"api_error\",\"message\":"));
    ECH_TRY(ech_json_put_cstring(&x->out, why->text));
    ECH_TRY(ech_buf_push(&x->out, '}'));
    return end_frame(x);
}

/*
 * writes_always: the body is made of the blocks that the frames are made of, so both run for a
 * whole answer too.
 */
static const ech_dialect MESSAGES = {
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
 * A tool_use block as a call of an assistant's message. Arguments are an object here and a
 * string of JSON in OpenAI's form.
 */
static json_t *call_of(const json_t *const block)
{
    const json_t *const input = json_object_get(block, "input");
    ech_buf args = { 0 };
    const bool ok = input != NULL && ech_json_dump(&args, input) == ECH_OK;
    json_t *const call = json_pack("{s:s, s:s?, s:{s:s?, s:s}}", "type", "function", "id",
                                   json_string_value(json_object_get(block, "id")), "function",
                                   "name", json_string_value(json_object_get(block, "name")),
                                   "arguments", ok ? args.data : "{}");
    ech_buf_fini(&args);
    return call;
}

/* Blocks of one kind are joined: templates know one content and one reasoning a message. */
static bool append_text(json_t *const message, const char *const key, const json_t *const more)
{
    const json_t *const old = json_object_get(message, key);
    ech_buf b = { 0 };
    const bool ok =
        json_is_string(more) &&
        ech_buf_append(&b, json_string_value(old), json_string_length(old)) == ECH_OK &&
        ech_buf_append(&b, json_string_value(more), json_string_length(more)) == ECH_OK &&
        json_object_set_new(message, key, json_stringn(b.data != NULL ? b.data : "", b.len)) == 0;
    ech_buf_fini(&b);
    return ok;
}

/*
 * One message with blocks: a tool_result is a message of its own, the rest stays together.
 * Results come in a user's message beside its text, but a template wants the tool's answer
 * before what the user says next; so each is appended at once and the message itself at the end.
 * A message of results alone leaves no empty one behind. An unknown block is refused: to leave
 * out an image without a word would give an answer to another question.
 */
static bool take_blocks(ech_exchange *const x, json_t *const role, const json_t *const content,
                        json_t *const messages)
{
    json_t *const message = json_pack("{s:O, s:s}", "role", role, "content", "");
    bool has_own = false;
    bool ok = message != NULL;
    for (size_t i = 0; i < json_array_size(content) && ok; i++) {
        const json_t *const block = json_array_get(content, i);
        const char *const type = json_string_value(json_object_get(block, "type"));
        if (type != NULL && strcmp(type, "text") == 0) {
            ok = append_text(message, "content", json_object_get(block, "text"));
            has_own = true;
        } else if (type != NULL && strcmp(type, "thinking") == 0) {
            ok = append_text(message, "reasoning_content", json_object_get(block, "thinking"));
            has_own = true;
        } else if (type != NULL && strcmp(type, "tool_use") == 0) {
            if (json_object_get(message, "tool_calls") == NULL)
                (void)json_object_set_new(message, "tool_calls", json_array());
            (void)json_array_append_new(json_object_get(message, "tool_calls"), call_of(block));
            has_own = true;
        } else if (type != NULL && strcmp(type, "tool_result") == 0) {
            json_t *const text = json_object_get(block, "content") != NULL
                                     ? ech_text_of(json_object_get(block, "content"))
                                     : json_string("");
            ok = text != NULL;
            (void)json_array_append_new(
                messages, json_pack("{s:s, s:s?, s:o}", "role", "tool", "tool_call_id",
                                    json_string_value(json_object_get(block, "tool_use_id")),
                                    "content", text));
        } else {
            ok = false;
        }
    }
    if (ok && has_own) (void)json_array_append(messages, message);
    json_decref(message);
    return ok || ech_reply_refuse(
                     x, "messages",
                     "have a content block that is not text, thinking, tool_use or tool_result");
}

/*
 * A message whose content is a string goes through as it is; one of blocks is taken apart. The
 * system prompt, a field of its own here, becomes the first message. The new list belongs to
 * x->kept and lives as long as the exchange; what the client sent stays as it was.
 */
static bool take_messages(ech_exchange *const x, ech_params *const p, const json_t *const system)
{
    json_t *const messages = json_array();
    if (x->kept == NULL) x->kept = json_array();
    (void)json_array_append_new(x->kept, messages);
    if (system != NULL) {
        json_t *const text = ech_text_of(system);
        if (text == NULL)
            return ech_reply_refuse(x, "system", "must be a string or a list of text blocks");
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:o}", "role", "system", "content", text));
    }
    if (!json_is_array(p->messages))
        return ech_reply_refuse(x, "messages", "must be a list of messages");
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        const json_t *const m = json_array_get(p->messages, i);
        json_t *const role = json_object_get(m, "role");
        const json_t *const content = json_object_get(m, "content");
        if (!json_is_string(role))
            return ech_reply_refuse(x, "messages", "must be objects with a role");
        if (json_is_array(content)) {
            if (!take_blocks(x, role, content, messages)) return false;
        } else if (!json_is_string(content)) {
            return ech_reply_refuse(x, "messages", "must have a content, a string or blocks");
        } else {
            (void)json_array_append(messages, (json_t *)m);
        }
    }
    p->messages = messages;
    return true;
}

/*
 * {"name", "description", "input_schema"} → OpenAI's nested form. A type that Anthropic's own
 * servers would run (web_search, …) is refused: the model would call what nobody answers. Keys
 * other than the three are dropped, cache_control among them.
 */
static bool take_tools(ech_exchange *const x, ech_params *const p)
{
    if (p->tools == NULL) return true;
    if (!json_is_array(p->tools)) return ech_reply_refuse(x, "tools", "must be a list");
    json_t *const tools = json_array();
    (void)json_array_append_new(x->kept, tools);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *const tool = json_array_get(p->tools, i);
        const json_t *const type = json_object_get(tool, "type");
        const char *const name = json_string_value(type);
        if (type != NULL && !json_is_null(type) && (name == NULL || strcmp(name, "custom") != 0))
            return ech_reply_refuse(x, "tools", "may be of type custom only: nothing runs here");
        json_t *const function = json_object();
        static const char *const KEYS[][2] = { { "name", "name" },
                                               { "description", "description" },
                                               { "input_schema", "parameters" } };
        for (size_t k = 0; k < 3; k++) {
            json_t *const v = json_object_get(tool, KEYS[k][0]);
            if (v != NULL) (void)json_object_set(function, KEYS[k][1], v);
        }
        (void)json_array_append_new(
            tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    p->tools = tools;
    return true;
}

/*
 * {"type": "auto" | "any" | "tool" | "none", "name"}. "any" is what OpenAI calls "required".
 * Whether calls may be parallel is a member of the choice here, a field of its own in OpenAI's
 * form.
 */
static bool take_choice(ech_exchange *const x, ech_params *const p)
{
    const char *const type = json_string_value(json_object_get(p->tool_choice, "type"));
    if (p->tool_choice == NULL) return true;
    if (json_is_true(json_object_get(p->tool_choice, "disable_parallel_tool_use")))
        p->parallel_tool_calls = false;
    json_t *choice = NULL;
    if (type != NULL && strcmp(type, "any") == 0) {
        choice = json_string("required");
    } else if (type != NULL && (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0)) {
        choice = json_string(type);
    } else if (type != NULL && strcmp(type, "tool") == 0) {
        choice = json_incref((json_t *)p->tool_choice);
    }
    if (choice == NULL)
        return ech_reply_refuse(x, "tool_choice", "must have a type: auto, any, tool or none");
    (void)json_array_append_new(x->kept, choice);
    p->tool_choice = choice;
    return true;
}

/*
 * How much a model thinks is the template's business (enable_thinking) and the budget's, which the
 * engine enforces. This field wins over chat_template_kwargs of the same request.
 */
static bool take_thinking(ech_exchange *const x, ech_params *const p)
{
    if (p->thinking == NULL) return true;
    const char *const type = json_string_value(json_object_get(p->thinking, "type"));
    const bool enabled =
        type != NULL && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0);
    if (!enabled && (type == NULL || strcmp(type, "disabled") != 0))
        return ech_reply_refuse(x, "thinking.type", "must be enabled, adaptive or disabled");
    const json_t *const budget = json_object_get(p->thinking, "budget_tokens");
    if (budget != NULL && (!json_is_integer(budget) || json_integer_value(budget) < 0))
        return ech_reply_refuse(x, "thinking.budget_tokens", "must be a whole number, at least 0");
    if (enabled && budget != NULL) p->thinking_budget = json_integer_value(budget);
    json_t *const kwargs = json_pack("{s:b}", "enable_thinking", (int)enabled);
    if (json_is_object(p->chat_template_kwargs))
        (void)json_object_update_missing(kwargs, (json_t *)p->chat_template_kwargs);
    (void)json_array_append_new(x->kept, kwargs);
    p->chat_template_kwargs = kwargs;
    return true;
}

/* A schema is never dropped: an answer without it would be a 200 that its reader can't read. */
static bool take_output(ech_exchange *const x, ech_params *const p)
{
    const json_t *const format = json_object_get(p->output_config, "format");
    if (p->output_format != NULL) {
        p->response_format = p->output_format;
        x->format_name = "output_format";
    }
    if (format != NULL && !json_is_null(format)) {
        p->response_format = format;
        x->format_name = "output_config.format";
    }
    return ech_generation_take_effort(x, p, p->output_config, "output_config.effort");
}

/*
 * The request as one of chat. The new lists are made before ech_generate_options, since a
 * refusal must name the field that the client wrote. prompt_param says which one a prompt that
 * is too long came from.
 */
static bool take_request(ech_exchange *const x, ech_generation *const g, const json_t *const body,
                         ech_request_options *const options)
{
    ech_params *const p = &g->params;
    if (!ech_generation_parse(x, g, body, ECH_IN_MESSAGES)) return false;
    g->prompt_param = "messages";
    if (p->stop_sequences.n > 0) p->stop = p->stop_sequences;
    if (!take_messages(x, p, p->system) || !take_tools(x, p) || !take_choice(x, p) ||
        !take_thinking(x, p) || !take_output(x, p))
        return false;
    return ech_generate_options(x, g, options) && ech_chat_take(x, g, options);
}

/* max_tokens is needed here, as with Anthropic; in chat the server's own cap stands in for it. */
void ech_api_messages(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    if (!take_request(x, g, body, &options)) return;
    if (g->params.max_tokens < 1) {
        (void)ech_reply_refuse(x, "max_tokens", "is missing");
    } else if (ech_blocks_new(x, g, &BLOCKS) == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the request now");
    } else {
        ech_generate_start(x, &MESSAGES, g, &options);
    }
}

/*
 * The same way as a request up to the engine's door, so that the count is what the request would
 * cost. max_tokens may be missing here.
 */
void ech_api_count_tokens(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    ech_request_options options;
    if (!take_request(x, g, body, &options)) return;
    if (ech_buf_printf(&x->reply, "{\"input_tokens\":%zu}", options.prompts[0].n_ids) == ECH_OK) {
        ech_reply_json(x, 200);
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}
