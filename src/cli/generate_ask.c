/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From flags to a request, from a request to the engine's options; see generate_ask.h. A flag
 * replaces what a request's file says of the same.
 *
 * Why a text in between: the server's functions read requests as JSON, and reading flags by the
 * same ones means that a constraint, a tool or a template behaves here as it does there.
 * Ownership: everything hangs in *a, and ech_ask_fini() frees it after any failure. Main thread.
 */
#include "src/cli/generate_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define SPACE          " \t\r\n"

/* ---- flags to a request --------------------------------------------------------------------- */

/*
 * The request is written as text, the members of flags behind those of a file: of a repeated member
 * the last counts, and every number stays as it was spelled.
 */

static ech_status no_memory(ech_error *const err)
{
    return ech_fail(err, ECH_ENOMEM, "reading the flags: out of memory");
}

/* The first member has no comma: the request is "{" until then. */
static ech_status put_json(ech_ask *const a, const char *const name, const char *const text,
                           const size_t len, ech_error *const err)
{
    ech_buf *const b = &a->request;
    const bool ok = ech_buf_printf(b, "%s\"%s\": ", b->len > 1 ? ", " : "", name) == ECH_OK &&
                    ech_buf_append(b, text, len) == ECH_OK;
    return ok ? ECH_OK : no_memory(err);
}

/* JSON's strings are UTF-8: another byte would be replaced, and the answer be held to that. */
static ech_status check_utf8(const char *const name, const char *const text, const size_t len,
                             ech_error *const err)
{
    size_t bad;
    if (ech_utf8_valid(text, len, &bad)) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "%s: byte %zu is not UTF-8", name, bad);
}

static ech_status put_string(ech_ask *const a, const char *const name, const char *const text,
                             const size_t len, ech_error *const err)
{
    ECH_TRY(check_utf8(name, text, len, err));
    ech_buf quoted = { 0 };
    ech_status rc = ech_json_put_string(&quoted, text, len);
    rc = rc == ECH_OK ? put_json(a, name, quoted.data, quoted.len, err) : no_memory(err);
    ech_buf_fini(&quoted);
    return rc;
}

/* Any JSON value; the place of an error is that in what the user gave. */
static ech_status parse(const char *const flag, const char *const text, const size_t len,
                        json_t **const ret, ech_error *const err)
{
    json_error_t why;
    *ret = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (*ret != NULL) return ECH_OK;
    return ech_fail(err, ECH_EINVAL, "--%s: not JSON: line %d, column %d: %s", flag, why.line,
                    why.column, why.text);
}

/*
 * Checked by itself: JSON that is broken would break the whole request, and the error would name
 * no flag.
 */
static ech_status put_checked(ech_ask *const a, const char *const flag, const char *const name,
                              const char *const text, ech_error *const err)
{
    json_t *v;
    ECH_TRY(parse(flag, text, strlen(text), &v, err));
    json_decref(v);
    return put_json(a, name, text, strlen(text), err);
}

/* "-" is standard input, which can be read once. */
static ech_status read_file(const char *const flag, const char *const path, ech_buf *const b,
                            ech_error *const err)
{
    const ech_status rc = strcmp(path, "-") == 0
                              ? ech_buf_read_fd(b, 0, "standard input", MAX_FILE_BYTES, err)
                              : ech_buf_read_file(b, path, MAX_FILE_BYTES, err);
    if (rc != ECH_OK) return ech_error_prefix(err, rc, "--%s", flag);
    return ech_buf_reserve(b, 0) == ECH_OK ? ECH_OK : no_memory(err); /* empty is a text too */
}

/*
 * The members of an object's text: without its braces and the space around them. The text is
 * JSON already, so the last brace is its end.
 */
static ech_str inside(const ech_buf *const object)
{
    size_t from = strspn(object->data, SPACE) + 1, to = object->len;
    while (to > from && object->data[to - 1] != '}') {
        to--;
    }
    from += strspn(object->data + from, SPACE);
    return (ech_str){ object->data + from, to > from ? to - 1 - from : 0 };
}

/* --chat: a list of messages, or an object that holds them among other members. */
static ech_status put_chat(ech_ask *const a, const json_t *const v, const ech_buf *const text,
                           ech_error *const err)
{
    const json_t *const messages = json_is_object(v) ? json_object_get(v, "messages") : v;
    if (json_array_size(messages) == 0) {
        return ech_fail(err, ECH_EINVAL,
                        "--chat: it holds no messages; it is a list of {role, content}, or an "
                        "object with such \"messages\"");
    }
    if (json_is_array(v)) return put_json(a, "messages", text->data, text->len, err);
    const ech_str members = inside(text);
    return ech_buf_append(&a->request, members.ptr, members.len) == ECH_OK ? ECH_OK
                                                                           : no_memory(err);
}

/* The parsed file is kept: flags add to its chat_template_kwargs. */
static ech_status read_chat(ech_ask *const a, const ech_ask_flags *const f, ech_error *const err)
{
    ech_buf text = { 0 };
    ech_status rc = read_file("chat", f->chat, &text, err);
    if (rc == ECH_OK) rc = parse("chat", text.data, text.len, &a->file, err);
    if (rc == ECH_OK) rc = put_chat(a, a->file, &text, err);
    ech_buf_fini(&text);
    return rc;
}

static ech_status put_file(ech_ask *const a, const char *const flag, const char *const path,
                           const char *const name, const bool is_json, ech_error *const err)
{
    ech_buf b = { 0 };
    ech_status rc = read_file(flag, path, &b, err);
    if (rc == ECH_OK) {
        rc = is_json ? put_checked(a, flag, name, b.data, err)
                     : put_string(a, name, b.data, b.len, err);
    }
    ech_buf_fini(&b);
    return rc;
}

/* Under vLLM's name, as the server takes it. */
static ech_status put_choices(ech_ask *const a, const ech_strings *const choices,
                              ech_error *const err)
{
    for (size_t i = 0; i < choices->count; i++)
        ECH_TRY(check_utf8("--choice", choices->items[i], strlen(choices->items[i]), err));
    ech_buf list = { 0 };
    ech_status rc = ech_buf_push(&list, '[');
    for (size_t i = 0; i < choices->count && rc == ECH_OK; i++) {
        if (i > 0) rc = ech_buf_push(&list, ',');
        if (rc == ECH_OK) rc = ech_json_put_cstring(&list, choices->items[i]);
    }
    if (rc == ECH_OK) rc = ech_buf_push(&list, ']');
    rc = rc == ECH_OK ? put_json(a, "guided_choice", list.data, list.len, err) : no_memory(err);
    ech_buf_fini(&list);
    return rc;
}

/*
 * What the content must be. Two of them could contradict each other, and which one wins would be
 * a guess. A schema that begins with a brace is the schema itself; hardly a file's name does.
 */
static ech_status add_content(ech_ask *const a, const ech_ask_flags *const f, ech_error *const err)
{
    static const char OBJECT[] = "{\"type\": \"json_object\"}";
    const char *const schema = f->schema;
    const int n = (schema != NULL) + f->json_object + (f->regex != NULL) + (f->choices.count > 0) +
                  (f->grammar != NULL);
    if (n > 1)
        return ech_fail(
            err, ECH_EINVAL,
            "--schema, --json-object, --regex, --choice and --grammar: only one of them "
            "can say what the answer must be");
    if (f->json_object) return put_json(a, "response_format", OBJECT, sizeof OBJECT - 1, err);
    if (f->regex != NULL) return put_string(a, "guided_regex", f->regex, strlen(f->regex), err);
    if (f->grammar != NULL) return put_file(a, "grammar", f->grammar, "grammar", false, err);
    if (f->choices.count > 0) return put_choices(a, &f->choices, err);
    if (schema != NULL && schema[strspn(schema, SPACE)] == '{')
        return put_string(a, "guided_json", schema, strlen(schema), err);
    return schema != NULL ? put_file(a, "schema", schema, "guided_json", false, err) : ECH_OK;
}

/*
 * none, auto, required; JSON as in a request; or a tool's name. What is no word and no JSON is
 * the name of a tool.
 */
static ech_status add_tool_choice(ech_ask *const a, const char *const choice, ech_error *const err)
{
    static const char *const WORDS[] = { "none", "auto", "required" };
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (strcmp(choice, WORDS[i]) == 0)
            return put_string(a, "tool_choice", choice, strlen(choice), err);
    }
    if (choice[0] == '{') return put_checked(a, "tool-choice", "tool_choice", choice, err);
    ech_buf b = { 0 };
    ech_status rc = ech_buf_puts(&b, "{\"type\": \"function\", \"function\": {\"name\": ");
    if (rc == ECH_OK) rc = ech_json_put_cstring(&b, choice);
    if (rc == ECH_OK) rc = ech_buf_puts(&b, "}}");
    rc = rc == ECH_OK ? put_json(a, "tool_choice", b.data, b.len, err) : no_memory(err);
    ech_buf_fini(&b);
    return rc;
}

/*
 * Variables of the template: of the flag or the file, and what has a flag of its own. The flag
 * replaces the file's object as a whole; --enable-thinking and its opposite then change one
 * member.
 */
static ech_status add_kwargs(ech_ask *const a, const ech_ask_flags *const f, ech_error *const err)
{
    const char *const given = f->template_kwargs;
    json_t *kwargs = NULL;
    if (given != NULL) {
        ECH_TRY(parse("chat-template-kwargs", given, strlen(given), &kwargs, err));
    } else {
        kwargs = json_incref(json_object_get(a->file, "chat_template_kwargs"));
    }
    if (!json_is_object(kwargs)) {
        json_decref(kwargs);
        if (given != NULL)
            return ech_fail(err, ECH_EINVAL, "--chat-template-kwargs: must be a JSON object");
        kwargs = json_object();
    }
    if (f->enable_thinking || f->no_thinking)
        (void)json_object_set_new(kwargs, "enable_thinking", json_boolean(f->enable_thinking));
    char *const text = json_dumps(kwargs, JSON_COMPACT);
    const ech_status rc = text == NULL
                              ? no_memory(err)
                              : put_json(a, "chat_template_kwargs", text, strlen(text), err);
    free(text);
    json_decref(kwargs);
    return rc;
}

static ech_status add_turn_flags(ech_ask *const a, const ech_ask_flags *const f,
                                 ech_error *const err)
{
    char digits[24];
    const char *const effort = f->reasoning_effort;
    if (f->tools != NULL) ECH_TRY(put_file(a, "tools", f->tools, "tools", true, err));
    if (f->tool_choice != NULL) ECH_TRY(add_tool_choice(a, f->tool_choice, err));
    if (effort != NULL) ECH_TRY(put_string(a, "reasoning_effort", effort, strlen(effort), err));
    if (f->reasoning_budget >= 0) {
        const int n = snprintf(digits, sizeof digits, "%lld", (long long)f->reasoning_budget);
        ECH_TRY(put_json(a, "thinking_budget", digits, (size_t)n, err));
    }
    return f->template_kwargs != NULL || f->enable_thinking || f->no_thinking
               ? add_kwargs(a, f, err)
               : ECH_OK;
}

/*
 * The first flag that only a conversation can have. Named in the error: without a conversation
 * these would be ignored without a word.
 */
static const char *turn_flag(const ech_ask_flags *const f)
{
    if (f->tools != NULL) return "--tools";
    if (f->tool_choice != NULL) return "--tool-choice";
    if (f->enable_thinking) return "--enable-thinking";
    if (f->no_thinking) return "--no-thinking";
    if (f->reasoning_budget >= 0) return "--reasoning-budget";
    if (f->reasoning_effort != NULL) return "--reasoning-effort";
    return f->template_path != NULL || f->template_kwargs != NULL ? "--chat-template" : NULL;
}

/* Before the engine is opened: a wrong flag should not cost the loading of a model. */
ech_status ech_ask_read(ech_ask *const a, const ech_ask_flags *const f, ech_error *const err)
{
    a->is_chat = f->chat != NULL;
    if (!a->is_chat && turn_flag(f) != NULL)
        return ech_fail(err, ECH_EINVAL, "%s is for a conversation: it needs --chat", turn_flag(f));
    if (ech_buf_push(&a->request, '{') != ECH_OK) return no_memory(err);
    if (a->is_chat) ECH_TRY(read_chat(a, f, err));
    if (a->is_chat) ECH_TRY(add_turn_flags(a, f, err));
    ECH_TRY(add_content(a, f, err));
    return ech_buf_push(&a->request, '}') == ECH_OK ? ECH_OK : no_memory(err);
}

/* ---- a request to options ------------------------------------------------------------------- */

/* The template: of the flag, else of the model. ECH_ENOTFOUND only where there is none. */
static ech_status open_chat(ech_ask *const a, const ech_ask_flags *const f,
                            const ech_engine *const engine, ech_guide_options *const go,
                            ech_error *const err)
{
    ech_engine_info info = { .struct_size = sizeof info };
    ech_buf file = { 0 };
    char *owned = NULL;
    size_t len = 0;
    const char *source = f->template_path == NULL ? ech_engine_chat_template(engine, &len) : NULL;
    ech_status rc = ECH_OK;
    ech_engine_info_get(engine, &info);
    if (f->template_path != NULL) {
        rc = read_file("chat-template", f->template_path, &file, err);
        source = file.data;
        len = file.len;
    } else if (source == NULL) {
        rc = ech_chat_read_source(&owned, &len, info.model_dir, err);
        source = owned;
    }
    if (rc == ECH_OK) ech_parser_pick(source, len, &go->reasoning, &go->tools);
    if (rc == ECH_OK) {
        rc = ech_chat_open(&a->chat, source, len, ech_engine_tokenizer(engine), err);
        if (rc != ECH_OK)
            (void)ech_error_prefix(err, rc, "the chat template %s",
                                   f->template_path != NULL ? f->template_path : info.model_dir);
    }
    ech_buf_fini(&file);
    free(owned);
    return rc;
}

/* After the template was looked at: a name overrules what it shows. */
static ech_status name_parsers(const ech_ask_flags *const f, ech_guide_options *const go,
                               ech_error *const err)
{
    const char *const r = f->reasoning_parser, *const t = f->tool_call_parser;
    if (r != NULL && !ech_reasoning_format_find(r, &go->reasoning))
        return ech_fail(err, ECH_EINVAL, "--reasoning-parser %s is not known", r);
    if (t != NULL && !ech_tools_format_find(t, &go->tools))
        return ech_fail(err, ECH_EINVAL, "--tool-call-parser %s is not known", t);
    return ECH_OK;
}

/* The guide has to see how the prompt ends: inside of reasoning or not. */
static ech_status make_prompt(ech_ask *const a, ech_request_options *const o, ech_error *const err)
{
    ECH_TRY(ech_chat_make_prompt(a->chat, a->request.data, a->request.len, NULL, &a->made, err));
    a->prompt = (ech_prompt){ .ids = a->made.ids.data, .n_ids = a->made.ids.n };
    o->prompts = &a->prompt;
    o->n_prompts = 1;
    ech_guide_begin(a->guide, a->made.rendered.text, a->made.rendered.len);
    return ECH_OK;
}

/* The vocabulary is the engine's, made once; the constraint keeps what it needs of it. */
static ech_status constrain(ech_ask *const a, ech_engine *const engine,
                            ech_request_options *const o, ech_error *const err)
{
    const ech_constraint_spec *const spec = ech_guide_spec(a->guide);
    ech_mask_vocab *vocab = NULL;
    o->parser = ech_guide_parser(a->guide);
    o->thinking_budget = ech_guide_thinking_budget(a->guide);
    if (spec == NULL) return ECH_OK;
    ECH_TRY(ech_engine_mask_vocab(engine, &vocab, err));
    const ech_status rc = ech_constraint_compile(vocab, spec, NULL, &a->constraint, err);
    ech_mask_vocab_unref(&vocab);
    if (rc != ECH_OK) return ech_error_prefix(err, rc, "%s", ech_guide_spec_field(a->guide));
    o->constraint = a->constraint;
    return ECH_OK;
}

/* In this order: template, parsers, guide, prompt, constraint; each needs the one before. */
ech_status ech_ask_apply(ech_ask *const a, const ech_ask_flags *const f, ech_engine *const engine,
                         ech_request_options *const o, ech_error *const err)
{
    ech_guide_options go = ech_guide_options_default();
    go.is_text = !a->is_chat;
    if (a->is_chat) ECH_TRY(open_chat(a, f, engine, &go, err));
    ECH_TRY(name_parsers(f, &go, err));
    ECH_TRY(ech_guide_create(&a->guide, a->request.data, a->request.len, &go, NULL, err));
    if (a->is_chat) ECH_TRY(make_prompt(a, o, err));
    return constrain(a, engine, o, err);
}

void ech_ask_fini(ech_ask *const a)
{
    ech_guide_destroy(&a->guide);
    ech_constraint_unref(&a->constraint);
    ech_chat_prompt_release(&a->made);
    ech_chat_close(&a->chat);
    ech_buf_fini(&a->request);
    json_decref(a->file);
    *a = (ech_ask){ 0 };
}
