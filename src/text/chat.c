/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation is put in order as values, between the reading of the request and the running of
 * the template: nothing is written out as JSON and read again, so that numbers keep their spelling
 * and every byte its origin.
 *
 * What a template can take is found out once, when it is opened: by rendering small conversations,
 * and by what its text says.
 *
 * Invariants: text of the request is data (is_data) all the way into the spans, so it can never
 * become a control token; what the template itself writes is not. An ech_chat is immutable once
 * open and may be used by many threads; a rendering belongs to one.
 *
 * Left out: the template language (template_*.c), and what the answer means (parser*.c).
 */
#include "echelon/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/parser.h"
#include "src/text/template_builtin.h"
#include "src/text/template_text.h"

/* Put behind the last message's content to find its end in the text again; ends in a blank. */
#define CONTINUE_MARK "\x1a\x1a[continue]\x1a "

struct ech_chat {
    ech_template *t;
    const ech_tokenizer *tok;
    int32_t *markers; /* [n_markers] added tokens that the template writes */
    size_t n_markers;
    const char *reasoning; /* the name that the template reads, or NULL */
    ech_tools_format tools;
    bool string_arguments; /* works with arguments as strings, not as objects */
    bool short_ids;        /* wants tool-call ids of nine letters and digits */
    bool knows_developer;
    bool lists_tools; /* walks `tools` even when there are none: [] does, None doesn't */
};

/* ---- what the template is like ---- */

/* Small limits: opening a template must not take long, whatever it is. */
static ech_template_options probe_options(void)
{
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.max_steps = 200000;
    opts.max_memory = (size_t)16 << 20;
    opts.max_output = (size_t)1 << 20;
    opts.now = "2026-01-02T03:04:05";
    return opts;
}

/*
 * Whether a conversation with a tool call comes out with its arguments as JSON. The name "argprobe"
 * is looked for as a JSON key: in single quotes it was printed as a Python dict, with a backslash
 * the template has encoded a string again.
 */
static bool probe_arguments(const ech_template *const t, const char *const arguments)
{
    char args[1200];
    ech_rendered r = { 0 };
    const ech_template_options opts = probe_options();
    const int n = snprintf(
        args, sizeof args,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"\",\"tool_calls\":"
        "[{\"id\":\"abcDEF123\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":%"
        "s}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"abcDEF123\",\"name\":\"f\",\"content\":\"b\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}],"
        "\"documents\":null,\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}",
        arguments);
    if (ech_template_render(t, args, (size_t)n, &opts, &r, NULL) != ECH_OK) return false;
    const bool ok = strstr(r.text, "argprobe") != NULL && strstr(r.text, "'argprobe'") == NULL &&
                    strstr(r.text, "\\\"argprobe") == NULL;
    ech_rendered_release(&r);
    return ok;
}

/*
 * Whether a plain question renders with this for `tools`. Some templates walk `tools` without
 * asking whether it is none.
 */
static bool probe_tools(const ech_template *const t, const char *const tools)
{
    char args[300];
    ech_rendered r = { 0 };
    const ech_template_options opts = probe_options();
    const int n = snprintf(
        args, sizeof args,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":%s,\"documents\":null,"
        "\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}",
        tools);
    const bool ok = ech_template_render(t, args, (size_t)n, &opts, &r, NULL) == ECH_OK;
    ech_rendered_release(&r);
    return ok;
}

/* The first of these that the template reads. */
static const char *reasoning_name(const ech_template *const t)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (ech_template_reads_field(t, names[i])) return names[i];
    }
    return NULL;
}

/*
 * The added tokens, not special, whose text the template writes. Special tokens need no list. Those
 * that are merely added (<think>, <tool_call>) may be so only where the template writes them: in a
 * client's text they stay text.
 */
static ech_status find_markers(ech_chat *const c, ech_error *const err)
{
    const size_t n_ids = c->tok == NULL ? 0 : ech_tokenizer_n_ids(c->tok);
    size_t cap = 0;
    for (size_t i = 0; i < n_ids; i++) {
        const int32_t id = (int32_t)i;
        size_t len;
        char text[128];
        if (!ech_tokenizer_is_added(c->tok, id) || ech_tokenizer_is_special(c->tok, id)) continue;
        const char *const bytes = ech_tokenizer_token_bytes(c->tok, id, &len);
        if (bytes == NULL || len == 0 || len >= sizeof text) continue;
        memcpy(text, bytes, len);
        text[len] = '\0';
        if (!ech_template_has_text(c->t, text)) continue;
        if (c->n_markers == cap) {
            cap = cap == 0 ? 8 : cap * 2;
            int32_t *const more = realloc(c->markers, cap * sizeof *more);
            if (more == NULL)
                return ech_fail(err, ECH_ENOMEM, "opening a chat template: out of memory");
            c->markers = more;
        }
        c->markers[c->n_markers++] = id;
    }
    return ECH_OK;
}

/*
 * tok may be NULL (no ids are made then) and must outlive the chat. "length 9" is from the message
 * with which Mistral's templates refuse other ids.
 */
ech_status ech_chat_open(ech_chat **const ret_chat, const char *const source, const size_t len,
                         const ech_tokenizer *const tok, ech_error *const err)
{
    ech_chat *c = calloc(1, sizeof *c);
    if (c == NULL) return ech_fail(err, ECH_ENOMEM, "opening a chat template: out of memory");
    c->tok = tok;
    ech_status rc = ech_template_compile(source, len, &c->t, err);
    if (rc == ECH_OK) rc = find_markers(c, err);
    if (rc != ECH_OK) {
        ech_chat_close(&c);
        return rc;
    }
    ech_reasoning_format unused;
    ech_parser_pick(source, len, &unused, &c->tools);
    c->reasoning = reasoning_name(c->t);
    c->string_arguments = !probe_arguments(c->t, "{\"argprobe\":1}") &&
                          probe_arguments(c->t, "\"{\\\"argprobe\\\": 1}\"");
    c->short_ids = ech_template_has_text(c->t, "length 9");
    c->knows_developer = ech_template_has_text(c->t, "developer");
    c->lists_tools = !probe_tools(c->t, "null") && probe_tools(c->t, "[]");
    *ret_chat = c;
    return ECH_OK;
}

void ech_chat_close(ech_chat **const chat)
{
    if (chat == NULL || *chat == NULL) return;
    ech_template_destroy(&(*chat)->t);
    free((*chat)->markers);
    free(*chat);
    *chat = NULL;
}

const ech_template *ech_chat_template(const ech_chat *const chat)
{
    return chat->t;
}

/* ---- putting history in order ---- */

typedef struct work {
    const ech_chat *chat;
    bool continues; /* the last message is to be continued */
} work;

/* JSON's null counts as absent, as OpenAI's API has it. */
static const ech_tval *get(const ech_tdict *const d, const char *const name)
{
    const ech_tval *const v = ech_tdict_get(d, name, strlen(name));
    return v == NULL || v->kind == ECH_T_NONE ? NULL : v;
}

static ech_status put(ech_tvm *const vm, ech_tdict *const d, const char *const name,
                      const ech_tval v)
{
    ech_tval key;
    ECH_TRY(ech_tv_lit(vm, name, &key));
    return ech_tdict_set(vm, d, key, v);
}

/* A field is not as it should be. */
#define refuse(vm, ...) ((void)ech_fail((vm)->err, ECH_EINVAL, __VA_ARGS__), ECH_EINVAL)

/* An image with a text beside it is still an image. Without a type the text says what it is. */
static bool is_text_type(const ech_tval *const type)
{
    return type == NULL ||
           (type->kind == ECH_T_STR &&
            (ech_tstr_is(type->as.str, "text") || ech_tstr_is(type->as.str, "input_text") ||
             ech_tstr_is(type->as.str, "output_text")));
}

/* The text of content[j], a part of kind text or refusal. */
static ech_status part_text(ech_tvm *const vm, const ech_tval part, const size_t i, const size_t j,
                            ech_tval *const ret)
{
    if (part.kind == ECH_T_STR) {
        *ret = part;
        return ECH_OK;
    }
    if (part.kind != ECH_T_DICT)
        return refuse(vm, "messages[%zu].content[%zu]: must be an object with a type", i, j);
    const ech_tval *const type = get(part.as.dict, "type");
    const bool refusal =
        type != NULL && type->kind == ECH_T_STR && ech_tstr_is(type->as.str, "refusal");
    const ech_tval *const text = get(part.as.dict, refusal ? "refusal" : "text");
    if (text == NULL || text->kind != ECH_T_STR || (!refusal && !is_text_type(type))) {
        return refuse(vm, "messages[%zu].content[%zu]: only text parts are supported by this model",
                      i, j);
    }
    *ret = *text;
    return ECH_OK;
}

/*
 * A list of parts: checked, and joined unless the template wants it as it is. Refusals count as
 * text. Images and audio are refused: no model here takes them.
 */
static ech_status order_parts(ech_tvm *const vm, const ech_chat *const c, const size_t i,
                              ech_tval *const content)
{
    ech_tbuild b = { .vm = vm };
    const ech_tseq *const parts = content->as.seq;
    for (size_t j = 0; j < parts->n; j++) {
        ech_tval text;
        ECH_TRY(part_text(vm, parts->items[j], i, j, &text));
        ECH_TRY(ech_tbuild_str(&b, text.as.str));
    }
    return ech_template_takes_parts(c->t) ? ECH_OK : ech_tbuild_done(&b, content);
}

/*
 * A message without content (calls only) gets an empty one: many templates concatenate it unasked.
 */
static ech_status order_content(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m,
                                const size_t i)
{
    const ech_tval *const given = get(m, "content");
    ech_tval content;
    if (given == NULL)
        ECH_TRY(ech_tv_view(vm, "", 0, true, &content));
    else
        content = *given;
    if (content.kind == ECH_T_LIST)
        ECH_TRY(order_parts(vm, c, i, &content));
    else if (content.kind != ECH_T_STR)
        return refuse(vm, "messages[%zu].content: must be a string, a list of parts or null", i);
    return put(vm, m, "content", content);
}

/* Templates that don't know OpenAI's `developer` know `system`, which it replaced. */
static ech_status order_role(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m,
                             const size_t i)
{
    const ech_tval *const role = get(m, "role");
    if (role == NULL || role->kind != ECH_T_STR)
        return refuse(vm, "messages[%zu].role: must be a string", i);
    if (c->knows_developer || !ech_tstr_is(role->as.str, "developer")) return ECH_OK;
    ech_tval system;
    ECH_TRY(ech_tv_view(vm, "system", 6, true, &system));
    return put(vm, m, "role", system);
}

static bool is_short_id(const ech_tstr *const s)
{
    for (size_t i = 0; i < s->len; i++) {
        const char c = s->ptr[i], lower = (char)(c | 32);
        if (!((c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z'))) return false;
    }
    return s->len == 9;
}

/*
 * The same nine letters and digits for the same id, wherever it stands. FNV-1a over the id, written
 * in base 62: a call and its result stay together, and the prompt is the same each time. Ids that
 * fit already are kept.
 */
static ech_status shorten_id(ech_tvm *const vm, ech_tdict *const d, const char *const name)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ech_tval *const id = get(d, name);
    if (id == NULL || id->kind != ECH_T_STR || is_short_id(id->as.str)) return ECH_OK;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < id->as.str->len; i++) {
        h = (h ^ (uint8_t)id->as.str->ptr[i]) * 0x100000001b3u;
    }
    char *text;
    ech_tval v;
    ECH_TRY(ech_tvm_alloc(vm, 9, 1, &text));
    for (int i = 0; i < 9; i++) {
        text[i] = digits[h % 62];
        h /= 62;
    }
    ECH_TRY(ech_tv_view(vm, text, 9, true, &v));
    return put(vm, d, name, v);
}

/*
 * arguments: an object for templates that print objects, else its JSON text. Clients send arguments
 * as JSON text (OpenAI's way); most templates print an object. Text that is no object is left
 * alone. The separators are Python's json.dumps, which models were trained on.
 */
static ech_status order_arguments(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const fn)
{
    static const ech_tstr comma = { .ptr = ", ", .len = 2 }, colon = { .ptr = ": ", .len = 2 };
    const ech_tval *const given = get(fn, "arguments");
    ech_tval v;
    if (given == NULL) return ECH_OK;
    if (given->kind == ECH_T_STR && !c->string_arguments) {
        ECH_TRY(ech_tjson_try(vm, given->as.str->ptr, given->as.str->len, &v));
        return v.kind == ECH_T_DICT ? put(vm, fn, "arguments", v) : ECH_OK;
    }
    if (given->kind == ECH_T_DICT && c->string_arguments) {
        const ech_tjson_style style = { .item_sep = &comma, .key_sep = &colon };
        ech_tbuild b = { .vm = vm };
        ECH_TRY(ech_tjson_dump(&b, &style, *given));
        ECH_TRY(ech_tbuild_done(&b, &v));
        return put(vm, fn, "arguments", v);
    }
    return ECH_OK;
}

static ech_status order_calls(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m,
                              const size_t i)
{
    const ech_tval *const calls = get(m, "tool_calls");
    if (calls == NULL) return ECH_OK;
    if (calls->kind != ECH_T_LIST) return refuse(vm, "messages[%zu].tool_calls: must be a list", i);
    for (size_t k = 0; k < calls->as.seq->n; k++) {
        const ech_tval call = calls->as.seq->items[k];
        const ech_tval *const fn = call.kind == ECH_T_DICT ? get(call.as.dict, "function") : NULL;
        if (fn == NULL || fn->kind != ECH_T_DICT)
            return refuse(vm, "messages[%zu].tool_calls[%zu].function: must be an object", i, k);
        const ech_tval *const name = get(fn->as.dict, "name");
        if (name == NULL || name->kind != ECH_T_STR)
            return refuse(vm, "messages[%zu].tool_calls[%zu].function.name: must be a string", i,
                          k);
        ECH_TRY(order_arguments(vm, c, fn->as.dict));
        if (c->short_ids) ECH_TRY(shorten_id(vm, call.as.dict, "id"));
    }
    return ECH_OK;
}

/* Where what in s, or SIZE_MAX. */
static size_t find(const ech_tstr *const s, const size_t from, const char *const what)
{
    const char *const hit = memmem(s->ptr + from, s->len - from, what, strlen(what));
    return hit == NULL ? SIZE_MAX : (size_t)(hit - s->ptr);
}

static ech_status strip_lines(ech_tvm *const vm, const ech_tstr *const s, const size_t from,
                              const size_t to, const int sides, ech_tval *const ret)
{
    static const ech_tstr nl = { .ptr = "\n", .len = 1 };
    ECH_TRY(ech_tv_slice(vm, s, from, to - from, ret));
    return ech_tstr_strip(vm, ret->as.str, &nl, sides, ret);
}

/*
 * <think>…</think> at the beginning of content: its inside becomes the reasoning. For histories of
 * clients that keep the raw text: 7 and 8 are the lengths of the two markers. Line breaks around
 * are the marker's (sides 3: both, 1: left).
 */
static ech_status split_think(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m)
{
    const ech_tval *const content = get(m, "content");
    if (content == NULL || content->kind != ECH_T_STR) return ECH_OK;
    const ech_tstr *const s = content->as.str;
    size_t at = 0, n;
    while (at < s->len && (n = ech_ttext_space(s->ptr + at, s->len - at)) > 0) {
        at += n;
    }
    if (s->len - at < 7 || memcmp(s->ptr + at, "<think>", 7) != 0) return ECH_OK;
    const size_t end = find(s, at, "</think>");
    if (end == SIZE_MAX) return ECH_OK;
    ech_tval inside, rest;
    ECH_TRY(strip_lines(vm, s, at + 7, end, 3, &inside));
    ECH_TRY(strip_lines(vm, s, end + 8, s->len, 1, &rest));
    ECH_TRY(put(vm, m, "content", rest));
    return put(vm, m, c->reasoning, inside);
}

/* A field of its own, under any of the three names, wins over a <think> in the content. */
static ech_status order_reasoning(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    if (c->reasoning == NULL) return ECH_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const ech_tval *const v = get(m, names[i]);
        if (v != NULL && v->kind == ECH_T_STR) return put(vm, m, c->reasoning, *v);
    }
    const ech_tval *const role = get(m, "role");
    return ech_tstr_is(role->as.str, "assistant") ? split_think(vm, c, m) : ECH_OK;
}

/* ---- calls that are written out in an assistant's content ---- */

/* What opens them, in the formats where content can't look like a call by chance. */
static const char *call_marker(const ech_tools_format format)
{
    static const char *const markers[ECH_TOOLS_COUNT] = {
        [ECH_TOOLS_HERMES] = "<tool_call>",
        [ECH_TOOLS_QWEN3_CODER] = "<tool_call>",
        [ECH_TOOLS_MISTRAL] = "[TOOL_CALLS]",
        [ECH_TOOLS_DEEPSEEK] = "<｜tool▁calls▁begin｜>",
    };
    return markers[format];
}

/* Whole texts of a parsed content, in order of its calls. */
typedef struct parsed {
    ech_buf content;
    ech_buf *names, *args; /* [n] */
    size_t n;
} parsed;

static void parsed_fini(parsed *const p)
{
    ech_buf_fini(&p->content);
    for (size_t i = 0; i < p->n; i++) {
        ech_buf_fini(&p->names[i]);
        ech_buf_fini(&p->args[i]);
    }
    free(p->names);
    free(p->args);
}

static ech_status add_call(parsed *const p)
{
    ech_buf *const names = realloc(p->names, (p->n + 1) * sizeof *names);
    if (names == NULL) return ECH_ENOMEM;
    p->names = names;
    ech_buf *const args = realloc(p->args, (p->n + 1) * sizeof *args);
    if (args == NULL) return ECH_ENOMEM;
    p->args = args;
    names[p->n] = args[p->n] = (ech_buf){ 0 };
    p->n++;
    return ECH_OK;
}

static ech_status take_events(const ech_parser *const parser, parsed *const p)
{
    size_t n;
    const ech_parser_event *const events = ech_parser_events(parser, &n);
    for (size_t i = 0; i < n; i++) {
        const ech_parser_event *const e = &events[i];
        ech_buf *to = &p->content;
        if (e->kind == ECH_PARSER_TOOL_START) ECH_TRY(add_call(p));
        if (e->kind == ECH_PARSER_TOOL_START) to = &p->names[p->n - 1];
        if (e->kind == ECH_PARSER_TOOL_ARGS) to = &p->args[p->n - 1];
        if (e->kind == ECH_PARSER_TOOL_END) continue;
        ECH_TRY(ech_buf_append(to, e->text, e->text_len));
    }
    return ECH_OK;
}

/*
 * The model's own parser over the content. *ret_calls: calls that are complete. In one piece and
 * with no token id, so markers are recognised by their text.
 */
static ech_status parse_content(const ech_chat *const c, const ech_tstr *const s, parsed *const p,
                                size_t *const ret_calls)
{
    ech_parser *parser = NULL;
    ech_parser_options o = ech_parser_options_default();
    o.tools = c->tools;
    ech_status rc = ech_parser_create(&parser, &o, NULL);
    if (rc == ECH_OK) rc = ech_parser_feed(parser, -1, s->ptr, s->len, NULL);
    if (rc == ECH_OK) rc = take_events(parser, p);
    if (rc == ECH_OK) rc = ech_parser_finish(parser, NULL);
    if (rc == ECH_OK) rc = take_events(parser, p);
    if (rc == ECH_OK) *ret_calls = ech_parser_complete_calls(parser);
    ech_parser_destroy(&parser);
    return rc;
}

/* A copy that lives as long as the rendering; data, like all of the message. */
static ech_status put_text(ech_tvm *const vm, ech_tdict *const d, const char *const name,
                           const ech_buf *const text)
{
    char *copy;
    ech_tval v;
    ECH_TRY(ech_tvm_alloc(vm, text->len + 1, 1, &copy));
    if (text->len > 0) memcpy(copy, text->data, text->len);
    ECH_TRY(ech_tv_view(vm, copy, text->len, true, &v));
    return put(vm, d, name, v);
}

static ech_status push_call(ech_tvm *const vm, ech_tseq *const calls, const parsed *const p,
                            const size_t i)
{
    ech_tdict *call, *fn;
    ech_tval type, id;
    char *text;
    ECH_TRY(ech_tdict_new(vm, &call));
    ECH_TRY(ech_tdict_new(vm, &fn));
    ECH_TRY(ech_tvm_alloc(vm, 32, 1, &text));
    const int len = snprintf(text, 32, "call_%zu", i);
    ECH_TRY(ech_tv_view(vm, text, (size_t)len, true, &id));
    ECH_TRY(ech_tv_view(vm, "function", 8, true, &type));
    ECH_TRY(put_text(vm, fn, "name", &p->names[i]));
    ECH_TRY(put_text(vm, fn, "arguments", &p->args[i]));
    ECH_TRY(put(vm, call, "id", id));
    ECH_TRY(put(vm, call, "type", type));
    ECH_TRY(put(vm, call, "function", ech_tv_dict(fn)));
    return ech_tseq_push(vm, calls, ech_tv_dict(call));
}

/*
 * Clients that show calls as text send them back as text. As data their markers would be no tokens,
 * and the model would see its own calls spelled as it never wrote them; so they become tool_calls
 * again. What isn't complete stays the text that it was.
 */
static ech_status split_calls(ech_tvm *const vm, const ech_chat *const c, ech_tdict *const m)
{
    const ech_tval *const content = get(m, "content"), *const role = get(m, "role");
    const char *const marker = call_marker(c->tools);
    if (marker == NULL || content->kind != ECH_T_STR || get(m, "tool_calls") != NULL ||
        !ech_tstr_is(role->as.str, "assistant") || find(content->as.str, 0, marker) == SIZE_MAX)
        return ECH_OK;
    parsed p = { 0 };
    size_t n_complete = 0;
    ech_tseq *calls = NULL;
    ech_status rc = parse_content(c, content->as.str, &p, &n_complete);
    if (rc == ECH_ENOMEM) rc = ech_tvm_no_memory(vm, 0);
    const bool all = rc == ECH_OK && p.n > 0 && n_complete == p.n;
    if (all) rc = ech_tseq_new(vm, p.n, &calls);
    for (size_t i = 0; all && rc == ECH_OK && i < p.n; i++)
        rc = push_call(vm, calls, &p, i);
    if (all && rc == ECH_OK) rc = put_text(vm, m, "content", &p.content);
    if (all && rc == ECH_OK) rc = put(vm, m, "tool_calls", ech_tv_seq(ECH_T_LIST, calls));
    parsed_fini(&p);
    return rc;
}

static ech_status order_message(ech_tvm *const vm, const ech_chat *const c, const ech_tval m,
                                const size_t i)
{
    if (m.kind != ECH_T_DICT) return refuse(vm, "messages[%zu]: must be an object", i);
    ECH_TRY(order_role(vm, c, m.as.dict, i));
    ECH_TRY(order_content(vm, c, m.as.dict, i));
    ECH_TRY(order_reasoning(vm, c, m.as.dict));
    ECH_TRY(split_calls(vm, c, m.as.dict));
    ECH_TRY(order_calls(vm, c, m.as.dict, i));
    return c->short_ids ? shorten_id(vm, m.as.dict, "tool_call_id") : ECH_OK;
}

static ech_status order_messages(ech_tvm *const vm, const ech_chat *const c)
{
    const ech_tval *const messages = get(vm->args, "messages");
    if (messages == NULL || messages->kind != ECH_T_LIST || messages->as.seq->n == 0) {
        return refuse(vm, "messages: must be a list of at least one message");
    }
    for (size_t i = 0; i < messages->as.seq->n; i++) {
        ECH_TRY(order_message(vm, c, messages->as.seq->items[i], i));
    }
    return ECH_OK;
}

/* ---- the other arguments ---- */

/* tool_choice "none" hides the tools from the model altogether. */
static ech_status order_tools(ech_tvm *const vm, const ech_chat *const c)
{
    const ech_tval *const tools = get(vm->args, "tools"), *const choice =
                                                              get(vm->args, "tool_choice");
    const bool none =
        choice != NULL && choice->kind == ECH_T_STR && ech_tstr_is(choice->as.str, "none");
    if (tools != NULL && tools->kind != ECH_T_LIST) return refuse(vm, "tools: must be a list");
    if (tools == NULL || none || tools->as.seq->n == 0) {
        ech_tseq *empty;
        ECH_TRY(ech_tseq_new(vm, 0, &empty));
        const ech_tval nothing = c->lists_tools ? ech_tv_seq(ECH_T_LIST, empty) : ech_tv_none();
        ECH_TRY(put(vm, vm->args, "tools", nothing));
    }
    if (get(vm->args, "documents") == NULL) ECH_TRY(put(vm, vm->args, "documents", ech_tv_none()));
    return ECH_OK;
}

/* Names that chat_template_kwargs may not set: they are the conversation itself. */
static bool is_reserved(const ech_tstr *const name)
{
    static const char *const names[] = { "messages",  "tools",     "documents", "bos_token",
                                         "eos_token", "pad_token", "unk_token", "sep_token",
                                         "cls_token", "mask_token" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (ech_tstr_is(name, names[i])) return true;
    }
    return false;
}

/* What a request says to others, a schema or a seed, is no variable of the template. */
static ech_status drop_others(ech_tvm *const vm)
{
    static const char *const names[] = {
        "tool_choice",      "chat_template_kwargs",  "chat_template_defaults",
        "reasoning_effort", "add_generation_prompt", "continue_final_message"
    };
    const ech_tdict *const all = vm->args;
    ech_tdict *kept;
    ECH_TRY(ech_tdict_new(vm, &kept));
    for (size_t i = 0; i < all->n; i++) {
        const ech_tstr *const name = all->entries[i].key.as.str;
        bool is_known = is_reserved(name);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            is_known = is_known || ech_tstr_is(name, names[k]);
        }
        if (is_known) ECH_TRY(ech_tdict_set(vm, kept, all->entries[i].key, all->entries[i].value));
    }
    vm->args = kept;
    return ECH_OK;
}

static ech_status add_kwargs(ech_tvm *const vm)
{
    const ech_tval *const kwargs = get(vm->args, "chat_template_kwargs");
    if (kwargs == NULL) return ECH_OK;
    if (kwargs->kind != ECH_T_DICT) return refuse(vm, "chat_template_kwargs: must be an object");
    const ech_tdict *const d = kwargs->as.dict;
    for (size_t i = 0; i < d->n; i++) {
        if (is_reserved(d->entries[i].key.as.str)) continue;
        ECH_TRY(ech_tdict_set(vm, vm->args, d->entries[i].key, d->entries[i].value));
    }
    return ECH_OK;
}

/* What nothing in the request has set, its effort neither. */
static ech_status add_defaults(ech_tvm *const vm)
{
    const ech_tval *const defaults = get(vm->args, "chat_template_defaults");
    if (defaults == NULL) return ECH_OK;
    if (defaults->kind != ECH_T_DICT)
        return refuse(vm, "chat_template_defaults: must be an object");
    const ech_tdict *const d = defaults->as.dict;
    for (size_t i = 0; i < d->n; i++) {
        const ech_tval key = d->entries[i].key;
        if (is_reserved(key.as.str) ||
            ech_tdict_get(vm->args, key.as.str->ptr, key.as.str->len) != NULL)
            continue;
        ECH_TRY(ech_tdict_set(vm, vm->args, key, d->entries[i].value));
    }
    return ECH_OK;
}

/* An effort of "none" is how OpenAI's clients ask for no reasoning at all. */
static ech_status apply_effort(ech_tvm *const vm)
{
    const ech_tval *const effort = get(vm->args, "reasoning_effort");
    if (effort == NULL || effort->kind != ECH_T_STR || !ech_tstr_is(effort->as.str, "none"))
        return ECH_OK;
    if (get(vm->args, "enable_thinking") != NULL) return ECH_OK;
    return put(vm, vm->args, "enable_thinking", ech_tv_bool(false));
}

static ech_status add_tokens(ech_tvm *const vm, const ech_tokenizer *const tok)
{
    static const char *const names[ECH_SPECIAL_COUNT] = {
        [ECH_SPECIAL_BOS] = "bos_token",   [ECH_SPECIAL_EOS] = "eos_token",
        [ECH_SPECIAL_PAD] = "pad_token",   [ECH_SPECIAL_UNK] = "unk_token",
        [ECH_SPECIAL_SEP] = "sep_token",   [ECH_SPECIAL_CLS] = "cls_token",
        [ECH_SPECIAL_MASK] = "mask_token",
    };
    for (int i = 0; tok != NULL && i < ECH_SPECIAL_COUNT; i++) {
        const char *const text = ech_tokenizer_special_text(tok, (ech_special)i);
        ech_tval v;
        if (text == NULL) continue;
        ECH_TRY(ech_tv_lit(vm, text, &v));
        ECH_TRY(put(vm, vm->args, names[i], v));
    }
    return ECH_OK;
}

/* ---- continuing the last message ---- */

/*
 * The mark is put behind the content as data, before the template runs, because only the template
 * knows where it prints it.
 */
static ech_status mark_end(ech_tvm *const vm)
{
    const ech_tseq *const messages = get(vm->args, "messages")->as.seq;
    ech_tdict *const m = messages->items[messages->n - 1].as.dict;
    const ech_tval *const content = get(m, "content");
    ech_tval mark, marked;
    if (content->kind != ECH_T_STR)
        return refuse(vm, "continue_final_message: the last message's content must be a string");
    ECH_TRY(ech_tv_view(vm, CONTINUE_MARK, sizeof CONTINUE_MARK - 1, true, &mark));
    ECH_TRY(ech_tstr_concat(vm, content->as.str, mark.as.str, &marked));
    return put(vm, m, "content", marked);
}

/* The last place of the mark: whatever a user wrote, ours comes behind it. */
static size_t find_mark(const ech_rendered *const r)
{
    size_t found = SIZE_MAX, at = 0;
    const char *hit;
    while ((hit = memmem(r->text + at, r->len - at, CONTINUE_MARK, sizeof CONTINUE_MARK - 2)) !=
           NULL) {
        found = (size_t)(hit - r->text);
        at = found + 1;
    }
    return found;
}

/*
 * Cuts the text before the mark; its blank is gone where the template trims what it prints. Spans
 * cover the text without gaps, so they are cut at the same place. [at + length] is readable: the
 * text ends in a 0.
 */
static ech_status cut_at_mark(ech_rendered *const r, ech_error *const err)
{
    const size_t at = find_mark(r);
    if (at == SIZE_MAX) {
        return ech_fail(
            err, ECH_EINVAL,
            "continue_final_message: the template does not print the last message's content");
    }
    const bool trims = r->text[at + sizeof CONTINUE_MARK - 2] != ' ';
    r->len = trims ? ech_ttext_rstrip(r->text, at) : at;
    r->text[r->len] = '\0';
    size_t left = r->len, n = 0;
    while (n < r->n_spans && left > 0) {
        if (r->spans[n].len > left) r->spans[n].len = left;
        left -= r->spans[n++].len;
    }
    r->n_spans = n;
    return ECH_OK;
}

/*
 * Runs between reading the request and rendering. The order matters: what the request says to
 * others is dropped first, and chat_template_kwargs come after what they may change.
 */
static ech_status prepare(ech_tvm *const vm, void *const ctx)
{
    work *const w = ctx;
    const ech_tval *const go_on = get(vm->args, "continue_final_message");
    w->continues = go_on != NULL && ech_tv_truth(*go_on);
    ECH_TRY(drop_others(vm));
    ECH_TRY(order_messages(vm, w->chat));
    ECH_TRY(order_tools(vm, w->chat));
    ECH_TRY(add_kwargs(vm));
    ECH_TRY(apply_effort(vm));
    ECH_TRY(add_defaults(vm));
    ECH_TRY(apply_effort(vm)); /* one of the defaults */
    ECH_TRY(add_tokens(vm, w->chat->tok));
    if (get(vm->args, "add_generation_prompt") == NULL)
        ECH_TRY(put(vm, vm->args, "add_generation_prompt", ech_tv_bool(true)));
    if (!w->continues) return ECH_OK;
    ECH_TRY(put(vm, vm->args, "add_generation_prompt", ech_tv_bool(false)));
    return mark_end(vm);
}

/* ---- the prompt ---- */

static ech_status encode(const ech_chat *const c, ech_chat_prompt *const p, ech_error *const err)
{
    if (c->tok == NULL) return ECH_OK;
    const ech_spans spans = {
        .text = p->rendered.text,
        .len = p->rendered.len,
        .spans = p->rendered.spans,
        .n_spans = p->rendered.n_spans,
        .marker_ids = c->markers,
        .n_markers = c->n_markers,
    };
    return ech_tokenizer_encode_spans(c->tok, &spans, 0, &p->ids, err);
}

/* *ret is written on success only; on failure everything made so far is released. */
ech_status ech_chat_make_prompt(const ech_chat *const chat, const char *const request,
                                const size_t len, const ech_template_options *const opts,
                                ech_chat_prompt *const ret, ech_error *const err)
{
    ech_chat_prompt p = { 0 };
    ech_template_options o;
    work w = { .chat = chat };
    const ech_trender job = { .args = request, .args_len = len, .prepare = prepare, .ctx = &w };
    ech_template_options_default(&o);
    if (opts != NULL) memcpy(&o, opts, opts->struct_size < sizeof o ? opts->struct_size : sizeof o);
    o.spelled_numbers = false;
    ech_status rc = ech_template_run(chat->t, &job, &o, &p.rendered, err);
    if (rc == ECH_OK && w.continues) rc = cut_at_mark(&p.rendered, err);
    if (rc == ECH_OK) rc = encode(chat, &p, err);
    if (rc != ECH_OK)
        ech_chat_prompt_release(&p);
    else
        *ret = p;
    return rc;
}

void ech_chat_prompt_release(ech_chat_prompt *const prompt)
{
    ech_rendered_release(&prompt->rendered);
    ech_ids_fini(&prompt->ids);
}
