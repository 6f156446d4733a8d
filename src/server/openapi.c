/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of the API. Invariant: nothing is said here of a field or a route that is not in
 * the table that parses it, so what is documented is what is accepted. Pure; any thread.
 *
 * Two readers: machines get /openapi.json, people docs/api.md, which is printed by `serve
 * --print-api`. Out of memory jansson's calls return NULL and take NULL: a part is then missing,
 * and json_pack() gives NULL for the whole, which is what is checked.
 */
#include "src/server/openapi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/server.h"
#include "src/base/error.h"
#include "src/server/api.h"
#include "src/server/fields.h"
#include "src/server/reply.h"
#include "src/server/route.h"

/* ---- fields --------------------------------------------------------------------------------- */

static bool has_bounds(const ech_field *const f)
{
    return f->max >= f->min;
}

/*
 * A number as JSON has it: whole ones without a fraction. 9.2e18 is below 2^63: above it the
 * cast would be undefined.
 */
static json_t *number(const double v)
{
    return v == floor(v) && fabs(v) < 9.2e18 ? json_integer((json_int_t)v) : json_real(v);
}

/*
 * Bounds of 64 bits are left out: readers of JSON hold numbers in doubles, which round them to
 * values that are refused here.
 */
static json_t *numeric(const ech_field *const f, const char *const type)
{
    json_t *const s = json_pack("{s:s}", "type", type);
    if (has_bounds(f) && fabs(f->min) < 9.2e18) {
        (void)json_object_set_new(s, "minimum", number(f->min));
        (void)json_object_set_new(s, "maximum", number(f->max));
    }
    return s;
}

/* "a|b" → {"enum": ["a", "b"]} */
static json_t *words(const char *p)
{
    json_t *const list = json_array();
    while (*p != '\0') {
        const size_t n = strcspn(p, "|");
        (void)json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] == '|');
    }
    return json_pack("{s:o}", "enum", list);
}

/*
 * What a field takes, without null. A field without effect takes anything, so its schema says
 * nothing.
 */
static json_t *plain_schema(const ech_field *const f)
{
    switch (f->kind) {
    case ECH_FIELD_NUMBER:
        return numeric(f, "number");
    case ECH_FIELD_INT:
        return numeric(f, "integer");
    case ECH_FIELD_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case ECH_FIELD_STRING:
        return f->values != NULL ? words(f->values) : json_pack("{s:s}", "type", "string");
    case ECH_FIELD_STRINGS:
        return json_pack("{s:[{s:s, s:i, s:i}, {s:s, s:I, s:{s:s, s:i, s:i}}]}", "anyOf", "type",
                         "string", "minLength", 1, "maxLength", (int)f->entry_bytes, "type",
                         "array", "maxItems", (json_int_t)f->max, "items", "type", "string",
                         "minLength", 1, "maxLength", (int)f->entry_bytes);
    case ECH_FIELD_IDS:
        return json_pack("{s:s, s:{s:s, s:i}}", "type", "array", "items", "type", "integer",
                         "minimum", 0);
    case ECH_FIELD_OBJECT:
        return json_pack("{s:s}", "type", "object");
    case ECH_FIELD_JSON:
        return f->schema != NULL ? json_loads(f->schema, 0, NULL) : json_object();
    case ECH_FIELD_REFUSED: {
        json_t *const s = words(f->values != NULL ? f->values : "");
        json_t *const none = json_pack("[b, i, s, []]", 0, 0, "");
        (void)json_array_extend(json_object_get(s, "enum"), none);
        json_decref(none);
        return s;
    }
    case ECH_FIELD_ACCEPTED:
        break;
    }
    return json_object();
}

/* null is what clients send for "not given". */
static json_t *field_schema(const ech_field *const f, const bool is_needed)
{
    json_t *s = plain_schema(f);
    if (!is_needed && json_object_size(s) > 0)
        s = json_pack("{s:[o, {s:s}]}", "anyOf", s, "type", "null");
    (void)json_object_set_new(s, "description", json_string(f->doc));
    return s;
}

/*
 * A name has one row for each path, so that no property is set twice. additionalProperties isn't
 * false: unknown fields are ignored unless the server is strict.
 */
static json_t *body_schema(const unsigned where)
{
    json_t *const properties = json_object();
    json_t *const needed = json_array();
    for (size_t i = 0; i < ech_fields_count(); i++) {
        const ech_field *const f = ech_field_at(i);
        if ((f->where & where) == 0) continue;
        const bool is_needed = (f->needed & where) != 0;
        (void)json_object_set_new(properties, f->name, field_schema(f, is_needed));
        if (is_needed) (void)json_array_append_new(needed, json_string(f->name));
    }
    json_t *const schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (json_array_size(needed) > 0) (void)json_object_set(schema, "required", needed);
    json_decref(needed);
    return schema;
}

/* ---- routes --------------------------------------------------------------------------------- */

static json_t *json_answer(const char *const schema, const char *const description)
{
    return json_pack("{s:s, s:{s:{s:{s:o}}}}", "description", description, "content",
                     "application/json", "schema", "$ref",
                     json_sprintf("#/components/schemas/%s", schema));
}

/* An answer with a slash in it is a content type, else the name of a schema; NULL is a 204. */
static json_t *good_answer(const ech_route *const r)
{
    if (r->answer == NULL) return json_pack("{s:s}", "description", r->summary);
    if (strchr(r->answer, '/') != NULL) {
        return json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", r->summary, "content", r->answer,
                         "schema", "type", "string");
    }
    json_t *const a = json_answer(r->answer, r->summary);
    if ((r->fields & ECH_IN_GENERATION) != 0 && !r->counts_only) {
        (void)json_object_set_new(
            json_object_get(a, "content"), "text/event-stream",
            /* No type: some tools read it as the text, some as each event. */
            json_pack("{s:{s:s}}", "schema", "description",
                      "with stream: true, the same answer as server-sent events"));
    }
    return a;
}

/*
 * All errors share one schema, under "default". /health is the exception: its 503 is an answer
 * of its own kind.
 */
static json_t *operation(const ech_route *const r)
{
    json_t *const op = json_pack("{s:s, s:{s:o, s:o}}", "summary", r->summary, "responses",
                                 r->answer != NULL ? "200" : "204", good_answer(r), "default",
                                 json_answer("Error", "what went wrong"));
    if (strcmp(r->path, "/health") == 0) {
        (void)json_object_set_new(json_object_get(op, "responses"), "503",
                                  json_answer("Unready", "weights are filled, or it ends"));
    }
    if (r->takes_tail) {
        (void)json_object_set_new(op, "parameters",
                                  json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "id", "in",
                                            "path", "required", 1, "schema", "type", "string"));
    }
    if (r->fields != 0) {
        (void)json_object_set_new(op, "requestBody",
                                  json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content",
                                            "application/json", "schema", body_schema(r->fields)));
    }
    return op;
}

/*
 * Several methods of a path are members of one object. Methods are upper-case letters, for which
 * the bit makes them small.
 */
static void add_route(json_t *const paths, const ech_route *const r)
{
    char path[128];
    char method[8] = "";
    (void)snprintf(path, sizeof path, "%s%s", r->path, r->takes_tail ? "{id}" : "");
    for (size_t i = 0; r->method[i] != '\0' && i + 1 < sizeof method; i++) {
        method[i] = (char)(r->method[i] | 0x20);
    }
    if (json_object_get(paths, path) == NULL) (void)json_object_set_new(paths, path, json_object());
    (void)json_object_set_new(json_object_get(paths, path), method, operation(r));
}

/*
 * Two servers, "/" and "/v1", instead of every path twice. An empty security requirement beside
 * the bearer says that a key may be needed or not: the server's options decide.
 */
static json_t *document(void)
{
    json_t *const paths = json_object();
    const ech_route *r;
    for (size_t i = 0; (r = ech_route_at(i)) != NULL; i++) {
        add_route(paths, r);
    }
    return json_pack("{s:s, s:{s:s, s:s, s:s}, s:[{s:s}, {s:s}], s:[{}, {s:[]}], s:o, "
                     "s:{s:{s:{s:s, s:s}}, s:o}}",
                     "openapi", "3.1.0", "info", "title", "Echelon", "version", ECH_VERSION,
                     "description",
                     "OpenAI's API and its kin. Every path answers with and without /v1 before it.",
                     "servers", "url", "/", "url", "/v1", "security", "bearer", "paths", paths,
                     "components", "securitySchemes", "bearer", "type", "http", "scheme", "bearer",
                     "schemas", ech_openapi_schemas());
}

/*
 * Made anew for each request: it is asked for once by a tool, and a copy would be one more thing
 * to keep.
 */
ech_status ech_openapi_put(ech_buf *const b)
{
    json_t *const root = document();
    char *const text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    const ech_status rc = text != NULL ? ech_buf_puts(b, text) : ECH_ENOMEM;
    free(text);
    json_decref(root);
    return rc;
}

/* On a text thread, unlike the other GETs: it allocates a lot. */
void ech_api_openapi(ech_exchange *const x)
{
    if (ech_openapi_put(&x->reply) == ECH_OK) {
        ech_reply_json(x, 200);
    } else {
        ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
    }
}

/* ---- docs/api.md ---------------------------------------------------------------------------- */

static const char *kind_name(const ech_field *const f)
{
    static const char *const NAMES[] = {
        [ECH_FIELD_NUMBER] = "number",
        [ECH_FIELD_INT] = "integer",
        [ECH_FIELD_BOOL] = "boolean",
        [ECH_FIELD_STRING] = "string",
        [ECH_FIELD_STRINGS] = "string or strings",
        [ECH_FIELD_IDS] = "token ids",
        [ECH_FIELD_OBJECT] = "object",
        [ECH_FIELD_JSON] = "JSON",
        [ECH_FIELD_ACCEPTED] = "anything",
        [ECH_FIELD_REFUSED] = "refused",
    };
    return NAMES[f->kind];
}

/*
 * Bounds that are those of a 32-bit number say nothing to a reader: only where it begins is
 * printed.
 */
static ech_status put_range(const ech_field *const f, ech_buf *const b)
{
    if (!has_bounds(f)) return ECH_OK;
    if (f->kind == ECH_FIELD_STRINGS)
        return ech_buf_printf(b, "at most %g, of %u bytes", f->max, f->entry_bytes);
    if (f->kind == ECH_FIELD_IDS) return ECH_OK;
    if (fabs(f->min) >= 9.2e18) return ech_buf_puts(b, "64 bits");
    return f->max >= 2147483647.0 ? ech_buf_printf(b, "from %.10g", f->min)
                                  : ech_buf_printf(b, "%.10g to %.10g", f->min, f->max);
}

/* The paths that take a field, needed ones in bold; sets of them have a name. */
static ech_status put_where(const ech_field *const f, ech_buf *const b)
{
    unsigned left = f->where;
    const char *comma = "";
    if (left == ~0U) return ech_buf_puts(b, "everywhere");
    if ((left & ECH_IN_GENERATION) == ECH_IN_GENERATION && (f->needed & ECH_IN_GENERATION) == 0) {
        ECH_TRY(ech_buf_puts(b, "all that generate"));
        left &= ~(unsigned)ECH_IN_GENERATION;
        comma = ", ";
    }
    const ech_route *r;
    for (size_t i = 0; (r = ech_route_at(i)) != NULL; i++) {
        if ((r->fields & left) == 0 || r->counts_only) continue;
        const char *const mark = (f->needed & r->fields) != 0 ? "**" : "";
        ECH_TRY(ech_buf_printf(b, "%s%s%s%s", comma, mark, r->path, mark));
        comma = ", ";
    }
    return ECH_OK;
}

static ech_status put_routes(ech_buf *const b)
{
    const ech_route *r;
    ECH_TRY(ech_buf_puts(b, "| method | path | what | answer |\n| --- | --- | --- | --- |\n"));
    for (size_t i = 0; (r = ech_route_at(i)) != NULL; i++) {
        ECH_TRY(ech_buf_printf(b, "| %s | `%s%s` | %s | %s |\n", r->method, r->path,
                               r->takes_tail ? "{id}" : "", r->summary,
                               r->answer != NULL ? r->answer : "204"));
    }
    return ECH_OK;
}

/* A test compares this text with docs/api.md: who adds a row prints it again. */
ech_status ech_api_doc_put(ech_buf *const b)
{
    ECH_TRY(ech_buf_puts(
        b, "# The HTTP API\n\n"
           "Made by `echelon serve --print-api` from the tables that parse requests "
           "(`src/server/route.c`, `fields.c`); a test keeps it true.\n"
           "`GET /openapi.json` says the same to machines, with the schemas of the answers.\n\n"
           "## Routes\n\nEach with and without `/v1` before it.\n\n"));
    ECH_TRY(put_routes(b));
    ECH_TRY(ech_buf_puts(
        b,
        "\n## Fields\n\n"
        "`null` counts as not given. A value out of its range is a 400 whose `param` names the "
        "field. Where a path stands in bold the field is needed.\nA refused field would change "
        "the answer and isn't done here: false, 0, an empty string or list pass, all else is a "
        "400.\nSampling that a request "
        "leaves open comes from the model's `generation_config.json`, else OpenAI's defaults.\n\n"
        "| field | type | range | where | meaning |\n| --- | --- | --- | --- | --- |\n"));
    for (size_t i = 0; i < ech_fields_count(); i++) {
        const ech_field *const f = ech_field_at(i);
        ECH_TRY(ech_buf_printf(b, "| `%s` | %s | ", f->name, kind_name(f)));
        ECH_TRY(put_range(f, b));
        ECH_TRY(ech_buf_puts(b, " | "));
        ECH_TRY(put_where(f, b));
        ECH_TRY(ech_buf_printf(b, " | %s |\n", f->doc));
    }
    return ECH_OK;
}

/*
 * The caller frees it; NULL: out of memory. For the program, which may not look into this
 * folder.
 */
char *ech_server_api_text(void)
{
    ech_buf b = { 0 };
    if (ech_api_doc_put(&b) == ECH_OK) return b.data;
    ech_buf_fini(&b);
    return NULL;
}
