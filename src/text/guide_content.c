/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured output: the names that servers have given to "the answer must be …", brought to one
 * kind and one text. At most one field may say so: two constraints that disagree would have no
 * answer, and to pick one silently would break the other's promise.
 */
#include "src/text/guide.h"

#include <string.h>

#include "src/base/error.h"
#include "src/text/json_dump.h"

/* v in the spec's form: a schema or a list of choices as JSON text, others as they are. */
static ech_status take_text(const ech_guide_reader *const r, const json_t *const v)
{
    ech_guide *const g = r->g;
    if (json_is_string(v)) {
        g->spec.content = json_string_value(v);
        g->spec.content_len = json_string_length(v);
        return ECH_OK;
    }
    if (ech_json_dump(&g->content, v) != ECH_OK)
        return ech_fail(r->err, ECH_ENOMEM, "reading a request: out of memory");
    g->spec.content = g->content.data;
    g->spec.content_len = g->content.len;
    return ECH_OK;
}

/*
 * One row of the table below. Types are checked here and not by the compiler, since only here is
 * the field's name known; what a schema or a pattern says is the compiler's to judge.
 */
static ech_status set_content(const ech_guide_reader *const r, const ech_constraint_kind kind,
                              const json_t *const v, const char *const field)
{
    if (v == NULL || json_is_null(v)) return ECH_OK;
    if (kind == ECH_CONSTRAINT_JSON_OBJECT && json_is_false(v)) return ECH_OK;
    if (r->g->spec_field[0] != '\0')
        return ech_guide_refuse(r, field, "and another field both say what the answer must be");
    if ((kind == ECH_CONSTRAINT_REGEX || kind == ECH_CONSTRAINT_GBNF) && !json_is_string(v))
        return ech_guide_refuse(r, field, "must be a string");
    if (kind == ECH_CONSTRAINT_CHOICE && !json_is_array(v))
        return ech_guide_refuse(r, field, "must be a list of strings");
    r->g->spec_field = field;
    r->g->spec.content_kind = kind;
    return kind == ECH_CONSTRAINT_JSON_OBJECT ? ECH_OK : take_text(r, v);
}

/* response_format, and text.format of /v1/responses, whose schema has no json_schema around it. */
static ech_status read_response_format(const ech_guide_reader *const r)
{
    const json_t *const f = ech_guide_get(r->g, "response_format");
    if (f == NULL) return ECH_OK;
    const char *const type = json_string_value(json_object_get(f, "type"));
    if (type == NULL)
        return ech_guide_refuse(r, "response_format", "must be an object with a type");
    if (strcmp(type, "text") == 0) return ECH_OK;
    if (strcmp(type, "json_object") == 0) {
        const json_t *const schema = json_object_get(f, "schema");
        if (schema != NULL)
            return set_content(r, ECH_CONSTRAINT_JSON_SCHEMA, schema, "response_format.schema");
        return set_content(r, ECH_CONSTRAINT_JSON_OBJECT, f, "response_format");
    }
    if (strcmp(type, "json_schema") != 0)
        return ech_guide_refuse(r, "response_format",
                                "must be of type text, json_object or json_schema");
    const json_t *const inner = json_object_get(f, "json_schema");
    const json_t *const schema = json_object_get(inner != NULL ? inner : f, "schema");
    if (schema == NULL) return ech_guide_refuse(r, "response_format", "has no schema");
    return set_content(r, ECH_CONSTRAINT_JSON_SCHEMA, schema, "response_format.json_schema.schema");
}

/* What would be asked for in vain is refused: an answer without the constraint looks like one with
 * it. Members that are null or false ask for nothing, as clients dump them. */
static ech_status check_members(const ech_guide_reader *const r, const json_t *const so)
{
    static const char *const KNOWN[] = { "json", "regex", "choice", "grammar", "json_object" };
    if (so == NULL) return ECH_OK;
    if (!json_is_object(so)) return ech_guide_refuse(r, "structured_outputs", "must be an object");
    const char *name;
    json_t *v;
    bool has_one = false;
    json_object_foreach((json_t *)so, name, v)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
            is_known = is_known || strcmp(name, KNOWN[i]) == 0;
        }
        if (json_is_null(v) || json_is_false(v)) continue;
        if (!is_known)
            return ech_guide_refuse(r, "structured_outputs",
                                    "has a member that is none of json, regex, choice, grammar and "
                                    "json_object");
        has_one = true;
    }
    return has_one ? ECH_OK
                   : ech_guide_refuse(r, "structured_outputs",
                                      "must have one of json, regex, choice, grammar, json_object");
}

/*
 * Every spelling in one table: structured_outputs and guided_* are vLLM's, json_schema and grammar
 * llama-server's, response_format OpenAI's. The order decides only which of two conflicting fields
 * the error names.
 */
ech_status ech_guide_read_content(const ech_guide_reader *const r)
{
    const json_t *const so = ech_guide_get(r->g, "structured_outputs");
    ECH_TRY(check_members(r, so));
    const struct {
        ech_constraint_kind kind;
        bool is_inner; /* a member of structured_outputs */
        const char *field;
    } ROWS[] = {
        { ECH_CONSTRAINT_JSON_SCHEMA, true, "structured_outputs.json" },
        { ECH_CONSTRAINT_REGEX, true, "structured_outputs.regex" },
        { ECH_CONSTRAINT_CHOICE, true, "structured_outputs.choice" },
        { ECH_CONSTRAINT_GBNF, true, "structured_outputs.grammar" },
        { ECH_CONSTRAINT_JSON_OBJECT, true, "structured_outputs.json_object" },
        { ECH_CONSTRAINT_JSON_SCHEMA, false, "guided_json" },
        { ECH_CONSTRAINT_JSON_SCHEMA, false, "json_schema" },
        { ECH_CONSTRAINT_REGEX, false, "guided_regex" },
        { ECH_CONSTRAINT_CHOICE, false, "guided_choice" },
        { ECH_CONSTRAINT_GBNF, false, "guided_grammar" },
        { ECH_CONSTRAINT_GBNF, false, "grammar" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const char *const field = ROWS[i].field;
        const json_t *const v = ROWS[i].is_inner ? json_object_get(so, strchr(field, '.') + 1)
                                                 : json_object_get(r->g->request, field);
        ECH_TRY(set_content(r, ROWS[i].kind, v, field));
    }
    return read_response_format(r);
}
