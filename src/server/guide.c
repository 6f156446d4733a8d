/* SPDX-License-Identifier: Apache-2.0 */
/* From fields to constraints; see guide.h. */
#include "src/server/guide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/server/reply.h"
#include "src/server/state.h"

#define MAX_TOOLS 256

ech_status ech_guides_open(ech_guides *const g, const char *const template_source, const size_t len,
                           const char *const reasoning_name, const char *const tools_name,
                           ech_error *const err)
{
    (void)pthread_mutex_init(&g->lock, NULL);
    if (template_source != NULL) ech_parser_pick(template_source, len, &g->reasoning, &g->tools);
    if (reasoning_name != NULL && !ech_reasoning_format_find(reasoning_name, &g->reasoning)) {
        return ech_fail(err, ECH_EINVAL, "opening the server: --reasoning-parser %s is not known",
                        reasoning_name);
    }
    if (tools_name != NULL && !ech_tools_format_find(tools_name, &g->tools)) {
        return ech_fail(err, ECH_EINVAL, "opening the server: --tool-call-parser %s is not known",
                        tools_name);
    }
    return ECH_OK;
}

void ech_guides_close(ech_guides *const g)
{
    for (size_t i = 0; i < ECH_GUIDE_CACHE; i++) {
        ech_buf_fini(&g->cache[i].key);
        ech_constraint_unref(&g->cache[i].constraint);
    }
    ech_mask_vocab_unref(&g->vocab);
}

/* ---- tools ---------------------------------------------------------------------------------- */

/* OpenAI: at most 64 of [A-Za-z0-9_-]; dots occur in practice. */
static bool name_is_good(const char *const name)
{
    static const char GOOD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return name != NULL && name[0] != '\0' && strlen(name) <= 64 &&
           strspn(name, GOOD) == strlen(name);
}

static const json_t *function_of(const json_t *const tool)
{
    return json_object_get(tool, "function");
}

static const char *tool_name(const json_t *const tool)
{
    return json_string_value(json_object_get(function_of(tool), "name"));
}

static const json_t *tool_named(const json_t *const tools, const char *const name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const tool = json_array_get(tools, i);
        if (strcmp(tool_name(tool), name) == 0) return tool;
    }
    return NULL;
}

static bool check_tools(ech_exchange *const x, const json_t *const tools,
                        ech_guide_request *const r)
{
    const size_t n = json_array_size(tools);
    if (!json_is_array(tools) || n > MAX_TOOLS)
        return ech_reply_refuse(x, "tools", "must be a list of at most 256 tools");
    r->names = ech_arena_array(&x->arena, n + 1, sizeof *r->names);
    if (r->names == NULL) return ech_reply_refuse(x, "tools", "does not fit in memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *const tool = json_array_get(tools, i);
        const char *const name = tool_name(tool);
        const json_t *const parameters = json_object_get(function_of(tool), "parameters");
        char param[64];
        (void)snprintf(param, sizeof param, "tools[%zu].function.name", i);
        if (!name_is_good(name))
            return ech_reply_refuse(x, param, "must be 1 to 64 letters, digits, _ or -");
        (void)snprintf(param, sizeof param, "tools[%zu].function.parameters", i);
        if (parameters != NULL && !json_is_object(parameters) && !json_is_null(parameters)) {
            return ech_reply_refuse(x, param, "must be an object: a JSON schema");
        }
        r->names[r->n_names++] = name;
    }
    return true;
}

/* {"type": "function", "function": {"name": …}}, or flat as in responses. */
static const char *chosen_name(const json_t *const choice)
{
    const char *const nested =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    return nested != NULL ? nested : json_string_value(json_object_get(choice, "name"));
}

static bool take_choice(ech_exchange *const x, const json_t *const choice,
                        ech_guide_request *const r)
{
    const char *const word = json_string_value(choice);
    r->mode = r->n_names > 0 ? ECH_TOOL_MODE_AUTO : ECH_TOOL_MODE_NONE;
    if (choice == NULL || (word != NULL && strcmp(word, "auto") == 0)) return true;
    if (word != NULL && strcmp(word, "none") == 0) {
        r->mode = ECH_TOOL_MODE_NONE;
        return true;
    }
    if (r->n_names == 0)
        return ech_reply_refuse(x, "tool_choice", "asks for a call, but there are no tools");
    if (word != NULL && strcmp(word, "required") == 0) {
        r->mode = ECH_TOOL_MODE_REQUIRED;
        return true;
    }
    r->named = chosen_name(choice);
    if (r->named == NULL)
        return ech_reply_refuse(x, "tool_choice",
                                "must be none, auto, required or a function by name");
    if (tool_named(r->tools, r->named) == NULL)
        return ech_reply_refuse(x, "tool_choice", "names a tool that does not exist");
    r->mode = ECH_TOOL_MODE_NAMED;
    return true;
}

bool ech_guide_take_tools(ech_exchange *const x, const ech_params *const p,
                          ech_guide_request *const ret)
{
    *ret = (ech_guide_request){ .tools = p->tools };
    if (p->tools != NULL && !check_tools(x, p->tools, ret)) return false;
    if (!take_choice(x, p->tool_choice, ret)) return false;
    if (ret->mode == ECH_TOOL_MODE_NONE) ret->tools = NULL;
    if (ret->mode != ECH_TOOL_MODE_NONE && x->server->guides.tools == ECH_TOOLS_NONE) {
        return ech_reply_refuse(x, "tools",
                                "can't be used: this model's template shows no known form of calls "
                                "(--tool-call-parser)");
    }
    return true;
}

/* ---- structured output ---------------------------------------------------------------------- */

/* What the content must be; at most one field may say so. */
typedef struct content_spec {
    ech_constraint_kind kind;
    const json_t *value; /* the schema, or the list of choices */
    const char *text;    /* the expression or grammar */
    const char *param;   /* the field that said it; NULL: nothing is asked for */
} content_spec;

static bool set_content(ech_exchange *const x, content_spec *const c,
                        const ech_constraint_kind kind, const json_t *const v,
                        const char *const param)
{
    if (v == NULL || json_is_null(v)) return true;
    if (c->param != NULL)
        return ech_reply_refuse(x, param, "and another field both say what the answer must be");
    *c = (content_spec){ .kind = kind, .value = v, .text = json_string_value(v), .param = param };
    if ((kind == ECH_CONSTRAINT_REGEX || kind == ECH_CONSTRAINT_GBNF) && c->text == NULL)
        return ech_reply_refuse(x, param, "must be a string");
    if (kind == ECH_CONSTRAINT_CHOICE && !json_is_array(v))
        return ech_reply_refuse(x, param, "must be a list of strings");
    return true;
}

static bool take_response_format(ech_exchange *const x, const json_t *const f,
                                 content_spec *const c)
{
    if (f == NULL) return true;
    const char *const type = json_string_value(json_object_get(f, "type"));
    if (type == NULL)
        return ech_reply_refuse(x, "response_format", "must be an object with a type");
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) {
        const json_t *const schema = json_object_get(f, "schema");
        if (schema != NULL)
            return set_content(x, c, ECH_CONSTRAINT_JSON_SCHEMA, schema, "response_format.schema");
        return set_content(x, c, ECH_CONSTRAINT_JSON_OBJECT, f, "response_format");
    }
    if (strcmp(type, "json_schema") != 0)
        return ech_reply_refuse(x, "response_format",
                                "must be of type text, json_object or json_schema");
    const json_t *const inner = json_object_get(f, "json_schema");
    const json_t *const schema = json_object_get(inner != NULL ? inner : f, "schema");
    if (schema == NULL) return ech_reply_refuse(x, "response_format", "has no schema");
    return set_content(x, c, ECH_CONSTRAINT_JSON_SCHEMA, schema,
                       "response_format.json_schema.schema");
}

/* A schema may come as an object or as its text. */
static const json_t *as_schema(ech_exchange *const x, const json_t *const v)
{
    if (!json_is_string(v)) return v;
    json_error_t why;
    json_t *const parsed = json_loads(json_string_value(v), JSON_DECODE_ANY, &why);
    if (parsed == NULL) return v;
    if (x->kept == NULL) x->kept = json_array();
    (void)json_array_append_new(x->kept, parsed);
    return parsed;
}

static bool take_content(ech_exchange *const x, const ech_params *const p, content_spec *const c)
{
    *c = (content_spec){ .kind = ECH_CONSTRAINT_TEXT };
    const json_t *const so = p->structured_outputs;
    if (so != NULL && !json_is_object(so))
        return ech_reply_refuse(x, "structured_outputs", "must be an object");
    const struct {
        ech_constraint_kind kind;
        const json_t *value;
        const char *param;
    } ROWS[] = {
        { ECH_CONSTRAINT_JSON_SCHEMA, json_object_get(so, "json"), "structured_outputs.json" },
        { ECH_CONSTRAINT_REGEX, json_object_get(so, "regex"), "structured_outputs.regex" },
        { ECH_CONSTRAINT_CHOICE, json_object_get(so, "choice"), "structured_outputs.choice" },
        { ECH_CONSTRAINT_GBNF, json_object_get(so, "grammar"), "structured_outputs.grammar" },
        { ECH_CONSTRAINT_JSON_SCHEMA, p->guided_json, "guided_json" },
        { ECH_CONSTRAINT_JSON_SCHEMA, p->json_schema, "json_schema" },
        { ECH_CONSTRAINT_REGEX, p->guided_regex, "guided_regex" },
        { ECH_CONSTRAINT_CHOICE, p->guided_choice, "guided_choice" },
        { ECH_CONSTRAINT_GBNF, p->guided_grammar, "guided_grammar" },
        { ECH_CONSTRAINT_GBNF, p->grammar, "grammar" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (!set_content(x, c, ROWS[i].kind, ROWS[i].value, ROWS[i].param)) return false;
    }
    if (!take_response_format(x, p->response_format, c)) return false;
    if (c->kind == ECH_CONSTRAINT_JSON_SCHEMA) c->value = as_schema(x, c->value);
    return true;
}

/* ---- the spec ------------------------------------------------------------------------------- */

/* Texts of a spec, until it is compiled. */
typedef struct spec_texts {
    ech_constraint_spec spec;
    char *content;              /* dumped JSON */
    ech_constraint_call *calls; /* in the arena; their begins too */
    char **schemas;             /* dumped JSON of each call */
    size_t n_schemas;
} spec_texts;

static void spec_fini(spec_texts *const t)
{
    free(t->content);
    for (size_t i = 0; i < t->n_schemas; i++) {
        free(t->schemas[i]);
    }
}

static void spec_content(spec_texts *const t, const content_spec *const c)
{
    t->spec.content_kind = c->kind;
    if (c->kind == ECH_CONSTRAINT_JSON_SCHEMA || c->kind == ECH_CONSTRAINT_CHOICE) {
        t->content = json_dumps(c->value, JSON_COMPACT | JSON_ENCODE_ANY);
        t->spec.content = t->content;
        t->spec.content_len = t->content != NULL ? strlen(t->content) : 0;
    } else if (c->text != NULL) {
        t->spec.content = c->text;
        t->spec.content_len = strlen(c->text);
    }
}

static void spec_reasoning(const ech_guides *const g, spec_texts *const t,
                           const ech_parser_start start)
{
    static const ech_reasoning_start STARTS[] = {
        [ECH_START_NONE] = ECH_THINKING_OPTIONAL,
        [ECH_START_OPEN] = ECH_THINKING_OPEN,
        [ECH_START_CLOSED] = ECH_THINKING_NONE,
    };
    const char *const begin = ech_reasoning_begin(g->reasoning);
    const char *const end = ech_reasoning_end(g->reasoning);
    if (end[0] == '\0') return;
    t->spec.reasoning = STARTS[start];
    t->spec.reasoning_begin = begin;
    t->spec.reasoning_begin_len = strlen(begin);
    t->spec.reasoning_end = end;
    t->spec.reasoning_end_len = strlen(end);
}

static char *join(ech_exchange *const x, const char *const a, const char *const b,
                  const char *const c)
{
    const size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *const s = ech_arena_alloc(&x->arena, n);
    if (s != NULL) (void)snprintf(s, n, "%s%s%s", a, b, c);
    return s;
}

/* One way to call a tool. */
static bool spec_call(ech_exchange *const x, spec_texts *const t, const ech_call_syntax *const s,
                      const json_t *const tool, const char *const end)
{
    const char *const begin = join(x, s->before, tool_name(tool), s->between);
    const json_t *const parameters = json_object_get(function_of(tool), "parameters");
    if (begin == NULL) return ech_reply_refuse(x, "tools", "does not fit in memory");
    ech_constraint_call *const call = &t->calls[t->spec.n_calls++];
    *call = (ech_constraint_call){
        .begin = begin, .begin_len = strlen(begin), .end = end, .end_len = strlen(end)
    };
    if (json_is_object(parameters) && json_object_size(parameters) > 0) {
        char *const text = json_dumps(parameters, JSON_COMPACT);
        t->schemas[t->n_schemas++] = text;
        call->schema = text;
        call->schema_len = text != NULL ? strlen(text) : 0;
    }
    return true;
}

static bool spec_calls(ech_exchange *const x, spec_texts *const t, const ech_guide_request *const r,
                       const bool parallel)
{
    ech_call_syntax s;
    if (ech_tools_call_syntax(x->server->guides.tools, &s) != ECH_OK || !s.json_arguments) {
        return ech_reply_refuse(
            x, "tool_choice", "can't be enforced: the arguments of this model's calls are no JSON");
    }
    const size_t n = json_array_size(r->tools);
    t->calls = ech_arena_array(&x->arena, n, sizeof *t->calls);
    t->schemas = ech_arena_array(&x->arena, n, sizeof *t->schemas);
    const char *const end = join(x, s.after, "", s.last);
    if (t->calls == NULL || t->schemas == NULL || end == NULL)
        return ech_reply_refuse(x, "tools", "does not fit in memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *const tool = json_array_get(r->tools, i);
        if (r->named != NULL && strcmp(tool_name(tool), r->named) != 0) continue;
        if (!spec_call(x, t, &s, tool, end)) return false;
    }
    t->spec.calls = t->calls;
    t->spec.call_mode = r->mode == ECH_TOOL_MODE_AUTO ? ECH_CALLS_AUTO : ECH_CALLS_REQUIRED;
    t->spec.call_trigger = s.before;
    t->spec.call_trigger_len = strlen(s.before);
    /* Several calls only where each is written like the first, with something in between. */
    const size_t before = strlen(s.before);
    const size_t next = strlen(s.next);
    const bool repeats =
        s.last[0] == '\0' && next >= before && strcmp(s.next + next - before, s.before) == 0;
    t->spec.max_calls = parallel && repeats && r->mode != ECH_TOOL_MODE_NAMED ? 0 : 1;
    t->spec.call_separator = s.next;
    t->spec.call_separator_len = repeats ? next - before : 0;
    return true;
}

static bool has_strict_tool(const ech_guide_request *const r)
{
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        if (json_is_true(json_object_get(function_of(json_array_get(r->tools, i)), "strict")))
            return true;
    }
    return false;
}

/* ---- compiling, with the cache -------------------------------------------------------------- */

static ech_status key_part(ech_buf *const key, const void *const s, const size_t len)
{
    ECH_TRY(ech_buf_append(key, &len, sizeof len));
    return len > 0 ? ech_buf_append(key, s, len) : ECH_OK;
}

static ech_status make_key(const ech_constraint_spec *const s, ech_buf *const key)
{
    ECH_TRY(ech_buf_printf(key, "%d %d %d %u ", (int)s->content_kind, (int)s->reasoning,
                           (int)s->call_mode, s->max_calls));
    ECH_TRY(key_part(key, s->content, s->content_len));
    ECH_TRY(key_part(key, s->call_separator, s->call_separator_len));
    for (size_t i = 0; i < s->n_calls; i++) {
        ECH_TRY(key_part(key, s->calls[i].begin, s->calls[i].begin_len));
        ECH_TRY(key_part(key, s->calls[i].schema, s->calls[i].schema_len));
        ECH_TRY(key_part(key, s->calls[i].end, s->calls[i].end_len));
    }
    return ECH_OK;
}

/* A reference to what was compiled from the same, NULL: not there. */
static ech_constraint *look_up(ech_guides *const g, const ech_buf *const key)
{
    ech_constraint *found = NULL;
    (void)pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < ECH_GUIDE_CACHE && found == NULL; i++) {
        if (g->cache[i].constraint == NULL ||
            !ech_str_eq(ech_buf_view(&g->cache[i].key), ech_buf_view(key)))
            continue;
        g->cache[i].used = ++g->clock;
        found = ech_constraint_ref(g->cache[i].constraint);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return found;
}

/* Keeps it in place of the one that was asked for the longest ago; takes the key. */
static void keep(ech_guides *const g, ech_buf *const key, ech_constraint *const constraint)
{
    (void)pthread_mutex_lock(&g->lock);
    size_t oldest = 0;
    for (size_t i = 1; i < ECH_GUIDE_CACHE; i++) {
        if (g->cache[i].used < g->cache[oldest].used) oldest = i;
    }
    ech_buf_fini(&g->cache[oldest].key);
    ech_constraint_unref(&g->cache[oldest].constraint);
    g->cache[oldest].key = *key;
    g->cache[oldest].constraint = ech_constraint_ref(constraint);
    g->cache[oldest].used = ++g->clock;
    (void)pthread_mutex_unlock(&g->lock);
    *key = (ech_buf){ 0 };
}

static ech_status take_vocab(ech_server *const s, ech_mask_vocab **const ret, ech_error *const err)
{
    (void)pthread_mutex_lock(&s->guides.lock);
    ech_status rc = ECH_OK;
    if (s->guides.vocab == NULL) rc = ech_engine_mask_vocab(s->engine, &s->guides.vocab, err);
    *ret = s->guides.vocab;
    (void)pthread_mutex_unlock(&s->guides.lock);
    return rc;
}

static ech_status compile(ech_server *const s, const ech_constraint_spec *const spec,
                          ech_constraint **const ret, ech_error *const err)
{
    ech_buf key = { 0 };
    ech_mask_vocab *vocab;
    ech_status rc = make_key(spec, &key);
    if (rc != ECH_OK) (void)ech_fail(err, rc, "compiling a constraint: out of memory");
    ech_constraint *c = rc == ECH_OK ? look_up(&s->guides, &key) : NULL;
    if (rc == ECH_OK && c == NULL) {
        rc = take_vocab(s, &vocab, err);
        if (rc == ECH_OK) rc = ech_constraint_compile(vocab, spec, NULL, &c, err);
        if (rc == ECH_OK) keep(&s->guides, &key, c);
    }
    ech_buf_fini(&key);
    if (rc == ECH_OK) *ret = c;
    return rc;
}

static bool constrain(ech_exchange *const x, spec_texts *const t, const char *const param,
                      ech_request_options *const options)
{
    ech_constraint *c = NULL;
    ech_error err;
    const ech_status rc = compile(x->server, &t->spec, &c, &err);
    if (rc != ECH_OK) {
        const int status = rc == ECH_ENOMEM ? 503 : 400;
        ech_reply_error(x, status, rc == ECH_EUNSUPPORTED ? "unsupported_value" : "invalid_value",
                        param, "%s", err.text);
        return false;
    }
    x->constraint = c;
    options->constraint = c;
    return true;
}

static bool fill_parser(ech_exchange *const x, const ech_guide_request *const r,
                        const ech_parser_start start, ech_request_options *const options)
{
    ech_parser_options *const o = ech_arena_alloc(&x->arena, sizeof *o);
    if (o == NULL) return ech_reply_refuse(x, "messages", "do not fit in memory");
    *o = ech_parser_options_default();
    o->reasoning = x->server->guides.reasoning;
    o->tools = r->mode != ECH_TOOL_MODE_NONE ? x->server->guides.tools : ECH_TOOLS_NONE;
    o->start = start;
    o->tool_names = r->names;
    o->n_tools = r->n_names;
    options->parser = o;
    return true;
}

bool ech_guide_apply(ech_exchange *const x, const ech_params *const p,
                     const ech_guide_request *const r, const char *const prompt, const size_t len,
                     ech_request_options *const options)
{
    const ech_guides *const g = &x->server->guides;
    const bool is_chat = prompt != NULL;
    const ech_parser_start start =
        is_chat ? ech_parser_start_of(g->reasoning, prompt, len) : ECH_START_CLOSED;
    content_spec content;
    if (!take_content(x, p, &content)) return false;
    if (is_chat && !fill_parser(x, r, start, options)) return false;

    const bool must_call = r->mode == ECH_TOOL_MODE_REQUIRED || r->mode == ECH_TOOL_MODE_NAMED;
    const bool guides_calls = must_call || (r->mode == ECH_TOOL_MODE_AUTO && has_strict_tool(r));
    options->thinking_budget = is_chat ? p->thinking_budget : -1;
    if (content.param == NULL && !guides_calls && options->thinking_budget < 0) return true;

    spec_texts t = { .spec = ech_constraint_spec_default() };
    spec_content(&t, &content);
    if (is_chat) spec_reasoning(g, &t, start);
    const char *const param = content.param != NULL ? content.param
                              : guides_calls        ? "tools"
                                                    : "thinking_budget";
    const bool ok = (!guides_calls || spec_calls(x, &t, r, p->parallel_tool_calls)) &&
                    constrain(x, &t, param, options);
    spec_fini(&t);
    return ok;
}
