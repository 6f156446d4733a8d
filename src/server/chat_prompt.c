/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request to a prompt; see chat_prompt.h. Rendering runs on a text thread.
 *
 * Invariant: what a client wrote reaches the template as values, never as template text, and its
 * special tokens as ordinary text (chat.h). Ownership: ids and texts that outlive the rendering
 * are copied into the exchange's arena; the served template belongs to the server and is only
 * read after opening.
 */
#include "src/server/chat_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/server/history.h"
#include "src/server/prompt.h"
#include "src/server/reply.h"
#include "src/server/state.h"
#include "src/text/json_dump.h"

/* ---- the template --------------------------------------------------------------------------- */

static ech_status read_from_folder(ech_served_chat *const t, const char *const model_dir,
                                   ech_error *const err)
{
    char *text;
    size_t len;
    ECH_TRY(ech_chat_read_source(&text, &len, model_dir, err));
    const ech_status rc = ech_buf_append(&t->source, text, len);
    free(text);
    return rc == ECH_OK ? rc : ech_fail(err, rc, "reading %s: out of memory", model_dir);
}

/* In this order: the file that was asked for, what a GGUF file carries, what the folder has. */
static ech_status read_source(ech_served_chat *const t, const char *const file,
                              const ech_engine *const engine, const char *const model_dir,
                              ech_error *const err)
{
    if (file != NULL) return ech_buf_read_file(&t->source, file, ECH_TEMPLATE_SOURCE_MAX, err);
    size_t len = 0;
    const char *const inside = ech_engine_chat_template(engine, &len);
    if (inside == NULL) return read_from_folder(t, model_dir, err);
    const ech_status rc = ech_buf_append(&t->source, inside, len);
    return rc == ECH_OK ? rc : ech_fail(err, rc, "reading %s: out of memory", model_dir);
}

/* A model without a template is served all the same; only chat is refused, and says why. */
ech_status ech_served_chat_open(ech_served_chat *const t, const char *const file,
                                const ech_engine *const engine, const char *const model_dir,
                                ech_error *const err)
{
    ech_status rc = read_source(t, file, engine, model_dir, err);
    if (rc == ECH_ENOTFOUND && file == NULL) {
        t->why_not = "this model has no chat template; give one with --chat-template, or use "
                     "/v1/completions";
        return ECH_OK;
    }
    ECH_TRY(rc);
    rc = ech_chat_open(&t->chat, t->source.data != NULL ? t->source.data : "", t->source.len,
                       ech_engine_tokenizer(engine), err);
    if (rc == ECH_OK) return ECH_OK;
    return ech_error_prefix(err, rc, "the chat template %s", file != NULL ? file : model_dir);
}

/*
 * Duplicate keys in --chat-template-kwargs are an error: an operator's typing error, and nobody
 * else would say it.
 */
ech_status ech_served_chat_set(ech_served_chat *const t, const char *const kwargs,
                               const char *const reasoning_field, ech_error *const err)
{
    const char *const field = reasoning_field != NULL ? reasoning_field : "reasoning_content";
    const bool both = strcmp(field, "both") == 0;
    t->has_reasoning_content = both || strcmp(field, "reasoning_content") == 0;
    t->has_reasoning = both || strcmp(field, "reasoning") == 0;
    if (!t->has_reasoning_content && !t->has_reasoning)
        return ech_fail(err, ECH_EINVAL,
                        "opening the server: --reasoning-field %s must be reasoning_content, "
                        "reasoning or both",
                        field);
    if (kwargs == NULL) return ECH_OK;
    t->kwargs = json_loads(kwargs, JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(t->kwargs)
               ? ECH_OK
               : ech_fail(err, ECH_EINVAL,
                          "opening the server: --chat-template-kwargs must be a JSON object");
}

void ech_served_chat_close(ech_served_chat *const t)
{
    json_decref(t->kwargs);
    ech_chat_close(&t->chat);
    ech_buf_fini(&t->source);
}

/* ---- a prompt ------------------------------------------------------------------------------- */

static void set(json_t *const request, const char *const name, const json_t *const v)
{
    if (v != NULL) (void)json_object_set(request, name, (json_t *)v);
}

/*
 * A last message that is to be gone on with stays as it is. A new reference, NULL: no memory.
 * The parser's options are those of the guide, which knows the formats of this request.
 */
static json_t *split_history(const ech_exchange *const x, const ech_params *const p)
{
    json_t *const list = ech_history_split((json_t *)p->messages, ech_guide_parser(x->guide));
    const size_t n = json_array_size(list);
    if (list != NULL && p->continue_final_message && n > 0)
        (void)json_array_set(list, n - 1, json_array_get(p->messages, n - 1));
    return list;
}

/*
 * The request as chat.h takes it: what the dialects have in common. JSON is the border: the
 * template's values come from a text that this writes, so that nothing of the client's tree is
 * shared with it. Defaults are those of --chat-template-kwargs; the request's own win.
 */
static ech_status put_request(const ech_exchange *const x, const ech_params *const p,
                              const bool has_tools, ech_buf *const b)
{
    json_t *const messages = split_history(x, p);
    json_t *const r = messages != NULL ? json_pack("{s:o}", "messages", messages) : NULL;
    if (r == NULL) return ECH_ENOMEM;
    set(r, "tools", has_tools ? p->tools : NULL);
    set(r, "documents", p->documents);
    set(r, "chat_template_kwargs", p->chat_template_kwargs);
    if (p->reasoning_effort != NULL)
        (void)json_object_set_new(r, "reasoning_effort", json_string(p->reasoning_effort));
    set(r, "chat_template_defaults", x->server->chat.kwargs);
    (void)json_object_set_new(r, "add_generation_prompt", json_boolean(p->add_generation_prompt));
    (void)json_object_set_new(r, "continue_final_message", json_boolean(p->continue_final_message));
    const ech_status rc = ech_json_dump(b, r);
    json_decref(r);
    return rc;
}

/* Where a dialect has made the messages, their places are none of the request's. */
static const char *param_of(const ech_generation *const g, const char *const param)
{
    return g->prompt_param != NULL && strncmp(param, "messages", 8) == 0 ? g->prompt_param : param;
}

/*
 * "messages[2].role: …" → the field that the answer names. The place in the list is taken from
 * the error's own text: the template's code knows it, the fields don't.
 */
static void refuse(ech_exchange *const x, const ech_generation *const g, const ech_error *const err)
{
    char text[64] = "messages";
    const size_t n = strcspn(err->text, ": ");
    const bool is_named = strncmp(err->text, "messages[", 9) == 0 ||
                          strncmp(err->text, "chat_template_kwargs:", 21) == 0;
    if (is_named && n < sizeof text) (void)snprintf(text, sizeof text, "%.*s", (int)n, err->text);
    const char *const param = param_of(g, text);
    if (err->code == ECH_ENOMEM) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the prompt now");
    } else {
        /* What a template refuses, and what it can't take, is the conversation's fault. */
        ech_reply_error(x, 400, err->code == ECH_EINVAL ? "invalid_value" : "template_error", param,
                        "%s", err->text);
    }
}

/* One prompt always; n answers of it are the engine's business. */
static bool take_prompt(ech_exchange *const x, const ech_chat_prompt *const made,
                        ech_request_options *const options)
{
    int32_t *const copy = ech_arena_array(&x->arena, made->ids.n + 1, sizeof *copy);
    ech_prompt *const prompt = ech_arena_alloc(&x->arena, sizeof *prompt);
    if (copy == NULL || prompt == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the prompt now");
        return false;
    }
    if (made->ids.n > 0) memcpy(copy, made->ids.data, made->ids.n * sizeof *copy);
    *prompt = (ech_prompt){ .ids = copy, .n_ids = made->ids.n };
    options->prompts = prompt;
    options->n_prompts = 1;
    return true;
}

/* The text too, for /apply-template. */
static bool keep_text(ech_exchange *const x, ech_generation *const g, const ech_chat_prompt *made)
{
    if (!g->keeps_text) return true;
    char *const copy =
        ech_arena_strdup(&x->arena, (ech_str){ made->rendered.text, made->rendered.len });
    if (copy == NULL) return ech_reply_refuse(x, "messages", "do not fit in memory");
    g->prompt_text = (ech_str){ copy, made->rendered.len };
    return true;
}

/*
 * The guide is read first (does the template get tools?) and applied last (where does the answer
 * begin?); between the two the prompt is made. The rendered text doesn't outlive this function.
 * Everything of the rendering is released here, on every way out.
 */
static bool render(ech_exchange *const x, ech_generation *const g,
                   ech_request_options *const options)
{
    const ech_params *const p = &g->params;
    ech_buf request = { 0 };
    ech_chat_prompt made = { 0 };
    ech_error err;
    const bool has_tools = ech_guide_tool_mode(x->guide) != ECH_TOOL_MODE_NONE;
    ech_status rc = put_request(x, p, has_tools, &request);
    if (rc != ECH_OK)
        (void)ech_fail(&err, rc, "making a prompt: out of memory");
    else
        rc = ech_chat_make_prompt(x->server->chat.chat, request.data, request.len, NULL, &made,
                                  &err);
    ech_buf_fini(&request);
    if (rc != ECH_OK) {
        refuse(x, g, &err);
        return false;
    }
    ech_guide_begin(x->guide, made.rendered.text, made.rendered.len);
    const bool ok =
        take_prompt(x, &made, options) && keep_text(x, g, &made) && ech_guide_apply(x, options);
    ech_chat_prompt_release(&made);
    return ok;
}

/*
 * A role that a template doesn't know would be left out without a word. Six are known to all;
 * others only if the template's text has them in quotes, in either kind.
 */
static bool role_is_known(const ech_served_chat *const t, const char *const role)
{
    static const char *const ROLES[] = { "developer", "system", "user",
                                         "assistant", "tool",   "function" };
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (strcmp(role, ROLES[i]) == 0) return true;
    }
    char quoted[2][72];
    (void)snprintf(quoted[0], sizeof quoted[0], "'%.64s'", role);
    (void)snprintf(quoted[1], sizeof quoted[1], "\"%.64s\"", role);
    return strstr(t->source.data, quoted[0]) != NULL || strstr(t->source.data, quoted[1]) != NULL;
}

static bool check_message(ech_exchange *const x, const ech_generation *const g,
                          const json_t *const m, const size_t i)
{
    char param[64];
    const json_t *const value = json_object_get(m, "role");
    const char *const role = json_string_value(value);
    (void)snprintf(param, sizeof param, "messages[%zu].role", i);
    if (role == NULL) return ech_reply_refuse(x, param_of(g, param), "must be a string");
    if (strlen(role) != json_string_length(value) || !role_is_known(&x->server->chat, role))
        return ech_reply_refuse(x, param_of(g, param),
                                "names no role that this model's template knows");
    (void)snprintf(param, sizeof param, "messages[%zu].tool_call_id", i);
    return strcmp(role, "tool") != 0 || json_is_string(json_object_get(m, "tool_call_id")) ||
           ech_reply_refuse(x, param_of(g, param), "is missing: it says which call was answered");
}

/*
 * The common end of the dialects that have a conversation. What is checked here is what no
 * template says well: roles that it would leave out without a word, answers to calls without the
 * call's id. Truncating comes last and cuts at the front: the beginning of the conversation
 * goes, the answer's beginning stays.
 */
bool ech_chat_take(ech_exchange *const x, ech_generation *const g,
                   ech_request_options *const options)
{
    const ech_params *const p = &g->params;
    if (x->server->chat.chat == NULL) {
        ech_reply_error(x, 400, "no_chat_template", NULL, "%s", x->server->chat.why_not);
        return false;
    }
    if (!json_is_array(p->messages) || json_array_size(p->messages) == 0) {
        return ech_reply_refuse(x, param_of(g, "messages"),
                                "must be a list with at least one message");
    }
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        if (!check_message(x, g, json_array_get(p->messages, i), i)) return false;
    }
    if (p->documents != NULL && !json_is_array(p->documents))
        return ech_reply_refuse(x, "documents", "must be a list");
    if (p->add_special_in_chat)
        return ech_reply_refuse(x, "add_special_tokens",
                                "must be false in chat: the template writes them");
    if (!ech_guide_take(x, p, false)) return false;
    g->is_named_call = ech_guide_tool_mode(x->guide) == ECH_TOOL_MODE_NAMED;
    if (p->continue_final_message && p->add_generation_prompt &&
        ech_fields_seen(p, "add_generation_prompt"))
        return ech_reply_refuse(x, "continue_final_message",
                                "and add_generation_prompt can't both be true");
    if (!render(x, g, options)) return false;
    ech_prompts_truncate(x, p, options);
    return options->prompts[0].n_ids > 0 ||
           ech_reply_refuse(x, param_of(g, "messages"),
                            "give an empty prompt with this template");
}
