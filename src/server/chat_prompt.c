/* SPDX-License-Identifier: Apache-2.0 */
/* From messages to a prompt; see chat_prompt.h. Rendering runs on a text thread. */
#include "src/server/chat_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/server/reply.h"
#include "src/server/state.h"

#define MAX_CONFIG (64U << 20)

/* ---- the template --------------------------------------------------------------------------- */

static ech_status compile(ech_chat_template *const t, ech_error *const err)
{
    return ech_template_compile(t->source.data != NULL ? t->source.data : "", t->source.len,
                                &t->compiled, err);
}

/* The template that older folders keep inside tokenizer_config.json. */
static ech_status read_from_config(ech_chat_template *const t, const char *const path,
                                   ech_error *const err)
{
    json_error_t why;
    json_t *const config = json_load_file(path, 0, &why);
    const json_t *const source = json_object_get(config, "chat_template");
    ech_status rc = ECH_ENOTFOUND;
    if (json_is_string(source)) {
        rc = ech_buf_append(&t->source, json_string_value(source), json_string_length(source));
        if (rc != ECH_OK) (void)ech_fail(err, rc, "reading %s: out of memory", path);
    }
    json_decref(config);
    return rc;
}

/* Added tokens that the template writes but that aren't special (<think>, <tool_call>): in messages
 * they are text, as special tokens are. */
static ech_status find_markers(ech_chat_template *const t, const ech_tokenizer *const tok,
                               ech_error *const err)
{
    for (int32_t id = 0; (size_t)id < ech_tokenizer_n_ids(tok); id++) {
        size_t len;
        if (!ech_tokenizer_is_added(tok, id) || ech_tokenizer_is_special(tok, id)) continue;
        const char *const bytes = ech_tokenizer_token_bytes(tok, id, &len);
        char text[128];
        if (bytes == NULL || len >= sizeof text) continue;
        (void)snprintf(text, sizeof text, "%.*s", (int)len, bytes);
        if (ech_template_has_text(t->compiled, text) &&
            ech_ids_append(&t->markers, &id, 1) != ECH_OK) {
            return ech_fail(err, ECH_ENOMEM, "reading the chat template: out of memory");
        }
    }
    return ECH_OK;
}

/* A GGUF file that holds no template has no folder to look in either. */
static ech_status read_from_folder(ech_chat_template *const t, const char *const model_dir,
                                   ech_error *const err)
{
    struct stat st;
    if (stat(model_dir, &st) == 0 && !S_ISDIR(st.st_mode)) return ECH_ENOTFOUND;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", model_dir);
    const ech_status rc = ech_buf_read_file(&t->source, path, ECH_TEMPLATE_SOURCE_MAX, err);
    if (rc != ECH_ENOTFOUND) return rc;
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    return read_from_config(t, path, err);
}

static ech_status read_source(ech_chat_template *const t, const char *const file,
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

ech_status ech_chat_template_open(ech_chat_template *const t, const char *const file,
                                  const ech_engine *const engine, const char *const model_dir,
                                  ech_error *const err)
{
    ech_status rc = read_source(t, file, engine, model_dir, err);
    if (rc == ECH_ENOTFOUND && file == NULL) {
        t->why_not = "this model has no chat template; give one with --chat-template, or use "
                     "/v1/completions";
        return ECH_OK;
    }
    if (rc == ECH_OK) rc = compile(t, err);
    return rc == ECH_OK ? find_markers(t, ech_engine_tokenizer(engine), err) : rc;
}

void ech_chat_template_close(ech_chat_template *const t)
{
    ech_template_destroy(&t->compiled);
    ech_buf_fini(&t->source);
    ech_ids_fini(&t->markers);
}

/* ---- rendering ------------------------------------------------------------------------------ */

static void set_special(json_t *const args, const ech_tokenizer *const tok, const char *const name,
                        const ech_special which)
{
    const char *const text = ech_tokenizer_special_text(tok, which);
    if (text != NULL) (void)json_object_set_new(args, name, json_string(text));
}

static json_t *make_args(const ech_exchange *const x, const ech_params *const p,
                         const ech_guide_request *const r)
{
    json_t *const args = json_object();
    if (args == NULL) return NULL;
    if (p->reasoning_effort != NULL) {
        (void)json_object_set_new(args, "reasoning_effort", json_string(p->reasoning_effort));
        if (strcmp(p->reasoning_effort, "none") == 0)
            (void)json_object_set_new(args, "enable_thinking", json_false());
    }
    if (json_is_object(p->chat_template_kwargs))
        (void)json_object_update(args, (json_t *)p->chat_template_kwargs);
    (void)json_object_set(args, "messages", (json_t *)p->messages);
    (void)(r->tools != NULL ? json_object_set(args, "tools", (json_t *)r->tools)
                            : json_object_set_new(args, "tools", json_null()));
    (void)(p->documents != NULL ? json_object_set(args, "documents", (json_t *)p->documents)
                                : json_object_set_new(args, "documents", json_null()));
    (void)json_object_set_new(args, "add_generation_prompt",
                              json_boolean(p->add_generation_prompt));
    const ech_tokenizer *const tok = ech_engine_tokenizer(x->server->engine);
    set_special(args, tok, "bos_token", ECH_SPECIAL_BOS);
    set_special(args, tok, "eos_token", ECH_SPECIAL_EOS);
    set_special(args, tok, "pad_token", ECH_SPECIAL_PAD);
    set_special(args, tok, "unk_token", ECH_SPECIAL_UNK);
    return args;
}

static bool encode(ech_exchange *const x, const ech_rendered *const r,
                   ech_request_options *const options)
{
    const ech_ids *const markers = &x->server->chat.markers;
    const ech_spans spans = {
        .text = r->text,
        .len = r->len,
        .spans = r->spans,
        .n_spans = r->n_spans,
        .marker_ids = markers->data,
        .n_markers = markers->n,
    };
    ech_ids ids = { 0 };
    ech_error err;
    const ech_status rc =
        ech_tokenizer_encode_spans(ech_engine_tokenizer(x->server->engine), &spans, 0, &ids, &err);
    int32_t *const copy = ech_arena_array(&x->arena, ids.n + 1, sizeof *copy);
    ech_prompt *const prompt = ech_arena_alloc(&x->arena, sizeof *prompt);
    if (rc != ECH_OK || copy == NULL || prompt == NULL) {
        if (rc == ECH_OK) (void)ech_fail(&err, ECH_ENOMEM, "making the prompt: out of memory");
        ech_reply_failure(x, &err);
        ech_ids_fini(&ids);
        return false;
    }
    if (ids.n > 0) memcpy(copy, ids.data, ids.n * sizeof *copy);
    *prompt = (ech_prompt){ .ids = copy, .n_ids = ids.n };
    ech_ids_fini(&ids);
    options->prompts = prompt;
    options->n_prompts = 1;
    return true;
}

static bool render(ech_exchange *const x, const ech_params *const p,
                   const ech_guide_request *const guide, const json_t *const args,
                   ech_request_options *const options)
{
    char *const text = json_dumps(args, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the prompt now");
        return false;
    }
    ech_rendered r = { 0 };
    ech_error err;
    const ech_status rc =
        ech_template_render(x->server->chat.compiled, text, strlen(text), NULL, &r, &err);
    free(text);
    if (rc != ECH_OK) {
        /* What a template refuses, and what it can't take, is the conversation's fault. */
        ech_reply_error(x, rc == ECH_ENOMEM ? 503 : 400, "template_error", "messages",
                        "the chat template: %s", err.text);
        return false;
    }
    const bool ok = encode(x, &r, options) && ech_guide_apply(x, p, guide, r.text, r.len, options);
    ech_rendered_release(&r);
    return ok;
}

/* Each message is an object with a role; what else it holds is the template's to judge. */
static bool check_messages(ech_exchange *const x, const json_t *const messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (json_is_string(json_object_get(json_array_get(messages, i), "role"))) continue;
        char param[48];
        (void)snprintf(param, sizeof param, "messages[%zu].role", i);
        ech_reply_error(x, 400, "invalid_value", param,
                        "messages[%zu] must be an object with a role", i);
        return false;
    }
    return true;
}

bool ech_chat_prompt(ech_exchange *const x, ech_generation *const g,
                     ech_request_options *const options)
{
    const ech_params *const p = &g->params;
    if (x->server->chat.compiled == NULL) {
        ech_reply_error(x, 400, "no_chat_template", NULL, "%s", x->server->chat.why_not);
        return false;
    }
    if (!json_is_array(p->messages) || json_array_size(p->messages) == 0) {
        ech_reply_error(x, 400, "invalid_value", "messages",
                        "messages must be a list with at least one message");
        return false;
    }
    if (!check_messages(x, p->messages)) return false;
    if (p->chat_template_kwargs != NULL && !json_is_object(p->chat_template_kwargs)) {
        ech_reply_error(x, 400, "invalid_value", "chat_template_kwargs",
                        "chat_template_kwargs must be an object");
        return false;
    }
    ech_guide_request guide;
    if (!ech_guide_take_tools(x, p, &guide)) return false;
    g->is_named_call = guide.mode == ECH_TOOL_MODE_NAMED;
    json_t *const args = make_args(x, p, &guide);
    if (args == NULL) {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the prompt now");
        return false;
    }
    const bool ok = render(x, p, &guide, args, options);
    json_decref(args);
    return ok;
}
