/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools: which may be called, what their arguments must be, and how the model writes a call.
 *
 *     tool_choice          mode       calls are constrained
 *     none                 NONE       no
 *     auto                 AUTO       from a call's marker on: with a strict tool, with
 *                                     allowed_tools, or with parallel_tool_calls: false
 *     required             REQUIRED   from the start
 *     {function: name}     NAMED      from the start, to this one
 *     {allowed_tools: …}   its mode   to those listed; the prompt shows all tools
 *
 * A tool's schema is enforced where a call must come, and with AUTO where it is strict; else its
 * arguments are any JSON object.
 */
#include <stdio.h>

#include "src/base/error.h"
#include "src/text/guide.h"
#include "src/text/json_dump.h"

/* OpenAI: at most 64 of [A-Za-z0-9_-]; dots occur in practice. */
static bool name_is_good(const char *const name)
{
    static const char GOOD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return name != NULL && name[0] != '\0' && strlen(name) <= 64 &&
           strspn(name, GOOD) == strlen(name);
}

static const json_t *function_at(const ech_guide *const g, const size_t i)
{
    return json_object_get(json_array_get(g->tools, i), "function");
}

static bool is_strict(const ech_guide *const g, const size_t i)
{
    return json_is_true(json_object_get(function_at(g, i), "strict"));
}

static size_t find_tool(const ech_guide *const g, const char *const name)
{
    size_t i = 0;
    while (i < g->n_tools && strcmp(g->names[i], name) != 0) {
        i++;
    }
    return i;
}

static ech_status out_of_memory(const ech_guide_reader *const r)
{
    return ech_fail(r->err, ECH_ENOMEM, "reading a request's tools: out of memory");
}

/* ---- the tools ------------------------------------------------------------------------------ */

/*
 * Names go into grammar and parser as they are, so what is no name by OpenAI's rule is refused,
 * not escaped: a model never sees a tool that it could not call.
 */
static ech_status take_tool(const ech_guide_reader *const r, const size_t i)
{
    ech_guide *const g = r->g;
    const char *const name = json_string_value(json_object_get(function_at(g, i), "name"));
    const json_t *const parameters = json_object_get(function_at(g, i), "parameters");
    const json_t *const type = json_object_get(json_array_get(g->tools, i), "type");
    char field[64];
    (void)snprintf(field, sizeof field, "tools[%zu].type", i);
    if (type != NULL &&
        (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return ech_guide_refuse(r, field, "must be function");
    (void)snprintf(field, sizeof field, "tools[%zu].function.name", i);
    if (!name_is_good(name))
        return ech_guide_refuse(r, field, "must be 1 to 64 letters, digits, _ or -");
    (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
    if (parameters != NULL && !json_is_object(parameters) && !json_is_null(parameters))
        return ech_guide_refuse(r, field, "must be an object: a JSON schema");
    g->names[i] = name;
    g->is_allowed[i] = true;
    g->n_tools = i + 1;
    return ECH_OK;
}

static ech_status take_tools(const ech_guide_reader *const r)
{
    ech_guide *const g = r->g;
    g->tools = ech_guide_get(g, "tools");
    if (g->tools == NULL) return ECH_OK;
    const size_t n = json_array_size(g->tools);
    if (!json_is_array(g->tools) || n > ECH_GUIDE_MAX_TOOLS)
        return ech_guide_refuse(r, "tools", "must be a list of at most 256 tools");
    g->names = ech_arena_array(&g->arena, n + 1, sizeof *g->names);
    g->is_allowed = ech_arena_array(&g->arena, n + 1, sizeof *g->is_allowed);
    if (g->names == NULL || g->is_allowed == NULL) return out_of_memory(r);
    for (size_t i = 0; i < n; i++) {
        ECH_TRY(take_tool(r, i));
    }
    return ECH_OK;
}

/* ---- tool_choice ---------------------------------------------------------------------------- */

/* {"type": "function", "function": {"name": …}}, or flat as in responses. */
static const char *chosen_name(const json_t *const choice)
{
    const char *const nested =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    return nested != NULL ? nested : json_string_value(json_object_get(choice, "name"));
}

static ech_status take_word(const ech_guide_reader *const r, const char *const word,
                            const char *const field)
{
    ech_guide *const g = r->g;
    if (strcmp(word, "auto") == 0) return ECH_OK;
    if (strcmp(word, "none") == 0) {
        g->mode = ECH_TOOL_MODE_NONE;
        return ECH_OK;
    }
    if (strcmp(word, "required") != 0)
        return ech_guide_refuse(r, field, "must be none, auto, required or a function by name");
    g->mode = ECH_TOOL_MODE_REQUIRED;
    return ECH_OK;
}

static ech_status allow_only(const ech_guide_reader *const r, const char *const name)
{
    ech_guide *const g = r->g;
    const size_t i = name != NULL ? find_tool(g, name) : g->n_tools;
    if (name == NULL)
        return ech_guide_refuse(r, "tool_choice",
                                "must be none, auto, required or a function by name");
    if (i == g->n_tools)
        return ech_guide_refuse(r, "tool_choice", "names a tool that does not exist");
    g->is_allowed[i] = true;
    return ECH_OK;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}, or flat as in responses.
 */
static ech_status take_allowed(const ech_guide_reader *const r, const json_t *const choice)
{
    ech_guide *const g = r->g;
    const json_t *const inner = json_object_get(choice, "allowed_tools");
    const json_t *const from = inner != NULL ? inner : choice;
    const json_t *const list = json_object_get(from, "tools");
    const char *const mode = json_string_value(json_object_get(from, "mode"));
    if (json_array_size(list) == 0)
        return ech_guide_refuse(r, "tool_choice.allowed_tools", "must list tools");
    memset(g->is_allowed, 0, g->n_tools * sizeof *g->is_allowed);
    for (size_t i = 0; i < json_array_size(list); i++) {
        ECH_TRY(allow_only(r, chosen_name(json_array_get(list, i))));
    }
    g->guides_calls = true;
    return take_word(r, mode != NULL ? mode : "auto", "tool_choice.allowed_tools.mode");
}

/*
 * Without tools only the choices that demand nothing are fine; clients send "auto" with an empty
 * list. A named tool and allowed_tools narrow is_allowed, never the list: the prompt shows all
 * tools, so the prefix cache holds across choices.
 */
static ech_status take_choice(const ech_guide_reader *const r)
{
    ech_guide *const g = r->g;
    const json_t *const choice = ech_guide_get(g, "tool_choice");
    const char *const word = json_string_value(choice);
    const char *const type = json_string_value(json_object_get(choice, "type"));
    g->mode = g->n_tools > 0 ? ECH_TOOL_MODE_AUTO : ECH_TOOL_MODE_NONE;
    if (choice == NULL) return ECH_OK;
    if (g->n_tools == 0) {
        if (word != NULL && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)) return ECH_OK;
        return ech_guide_refuse(r, "tool_choice", "asks for a call, but there are no tools");
    }
    if (word != NULL) return take_word(r, word, "tool_choice");
    if (type != NULL && strcmp(type, "allowed_tools") == 0) return take_allowed(r, choice);
    memset(g->is_allowed, 0, g->n_tools * sizeof *g->is_allowed);
    g->mode = ECH_TOOL_MODE_NAMED;
    return allow_only(r, chosen_name(choice));
}

/* ---- calls as the constraint demands them --------------------------------------------------- */

static char *join(ech_arena *const arena, const char *const a, const char *const b,
                  const char *const c)
{
    const size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *const s = ech_arena_alloc(arena, n);
    if (s != NULL) (void)snprintf(s, n, "%s%s%s", a, b, c);
    return s;
}

/* The schema's text in the arena; NULL in *ret: any object. */
static ech_status schema_text(const ech_guide_reader *const r, const size_t i,
                              const char **const ret)
{
    ech_guide *const g = r->g;
    const json_t *const parameters = json_object_get(function_at(g, i), "parameters");
    const bool is_enforced = g->mode != ECH_TOOL_MODE_AUTO || is_strict(g, i);
    *ret = NULL;
    if (!is_enforced || json_object_size(parameters) == 0) return ECH_OK;
    ech_buf text = { 0 };
    if (ech_json_dump(&text, parameters) == ECH_OK)
        *ret = ech_arena_strdup(&g->arena, ech_buf_view(&text));
    ech_buf_fini(&text);
    return *ret != NULL ? ECH_OK : out_of_memory(r);
}

/* One way to call a tool. */
static ech_status add_call(const ech_guide_reader *const r, ech_constraint_call *const calls,
                           const ech_call_syntax *const s, const size_t i, const char *const end)
{
    ech_guide *const g = r->g;
    const char *schema;
    ECH_TRY(schema_text(r, i, &schema));
    const char *const begin = join(&g->arena, s->before, g->names[i], s->between);
    if (begin == NULL) return out_of_memory(r);
    calls[g->spec.n_calls++] = (ech_constraint_call){
        .begin = begin,
        .begin_len = strlen(begin),
        .schema = schema,
        .schema_len = schema != NULL ? strlen(schema) : 0,
        .end = end,
        .end_len = strlen(end),
    };
    return ECH_OK;
}

/*
 * The pieces around name and arguments are those the model's own parser reads, so a forced call
 * can't be written in a form that would then be passed on as text.
 */
static ech_status add_calls(const ech_guide_reader *const r)
{
    ech_guide *const g = r->g;
    ech_call_syntax s;
    if (ech_tools_call_syntax(g->options.tools, &s) != ECH_OK || !s.json_arguments) {
        const bool by_choice = g->mode != ECH_TOOL_MODE_AUTO;
        return ech_guide_refuse(
            r, by_choice || g->parallel ? "tool_choice" : "parallel_tool_calls",
            "can't be enforced: the arguments of this model's calls are no JSON");
    }
    ech_constraint_call *const calls = ech_arena_array(&g->arena, g->n_tools, sizeof *calls);
    const char *const end = join(&g->arena, s.after, "", s.last);
    if (calls == NULL || end == NULL) return out_of_memory(r);
    for (size_t i = 0; i < g->n_tools; i++) {
        if (g->is_allowed[i]) ECH_TRY(add_call(r, calls, &s, i, end));
    }
    g->spec.calls = calls;
    g->spec.call_mode = g->mode == ECH_TOOL_MODE_AUTO ? ECH_CALLS_AUTO : ECH_CALLS_REQUIRED;
    g->spec.call_trigger = s.before;
    g->spec.call_trigger_len = strlen(s.before);
    /* Several calls only where each is written like the first, with something in between. */
    const size_t before = strlen(s.before), next = strlen(s.next);
    const bool repeats =
        s.last[0] == '\0' && next >= before && strcmp(s.next + next - before, s.before) == 0;
    g->spec.max_calls = g->parallel && repeats && g->mode != ECH_TOOL_MODE_NAMED ? 0 : 1;
    g->spec.call_separator = s.next;
    g->spec.call_separator_len = repeats ? next - before : 0;
    return ECH_OK;
}

/* ---- the types of parameters, for calls whose values have none ------------------------------ */

static bool all_strings(const json_t *const list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i))) return false;
    }
    return json_array_size(list) > 0;
}

/*
 * XML-like calls give every value as text: whether "12" is a number or a string is the schema's to
 * say. An unknown type leaves it to the parser, which tries JSON first.
 */
static ech_param_type type_of(const json_t *const schema)
{
    const json_t *const type = json_object_get(schema, "type");
    const char *const word = json_string_value(type);
    if (word != NULL) return strcmp(word, "string") == 0 ? ECH_PARAM_STRING : ECH_PARAM_JSON;
    if (all_strings(json_object_get(schema, "enum"))) return ECH_PARAM_STRING;
    /* ["string", "null"] and the like: what parses as something else is that. */
    return ECH_PARAM_UNKNOWN;
}

static ech_param_type param_type(void *const ctx, const char *const tool, const char *const param)
{
    const ech_guide *const g = ctx;
    const json_t *const parameters =
        json_object_get(function_at(g, find_tool(g, tool)), "parameters");
    return type_of(json_object_get(json_object_get(parameters, "properties"), param));
}

ech_status ech_guide_read_tools(const ech_guide_reader *const r)
{
    ech_guide *const g = r->g;
    const json_t *const parallel = ech_guide_get(g, "parallel_tool_calls");
    if (parallel != NULL && !json_is_boolean(parallel))
        return ech_guide_refuse(r, "parallel_tool_calls", "must be true or false");
    g->parallel = !json_is_false(parallel);
    ECH_TRY(take_tools(r));
    ECH_TRY(take_choice(r));
    if (g->mode == ECH_TOOL_MODE_NONE) {
        /* The parser stays without tools: what looks like a call is text then. */
        g->guides_calls = false;
        return ECH_OK;
    }
    if (g->options.tools == ECH_TOOLS_NONE) {
        return ech_guide_refuse(r, "tools",
                                "can't be used: this model's template shows no known form of calls "
                                "(--tool-call-parser)");
    }
    g->parser.tools = g->options.tools;
    g->parser.tool_names = g->names;
    g->parser.n_tools = g->n_tools;
    g->parser.param_type = param_type;
    g->parser.param_ctx = g;
    if (g->mode != ECH_TOOL_MODE_AUTO || !g->parallel) g->guides_calls = true;
    for (size_t i = 0; i < g->n_tools; i++) {
        if (is_strict(g, i)) g->guides_calls = true;
    }
    return g->guides_calls ? add_calls(r) : ECH_OK;
}
