/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's wishes for the form of its answer, read once: parser and constraint are made from the
 * same fields, so that what is demanded is also what is recognised. What depends on the prompt, the
 * state of reasoning at its end, is filled in by ech_guide_begin().
 *
 * Left out: compiling (constraint.h) and keeping what was compiled, which is the server's.
 */
#include "src/text/guide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/text/json_read.h"

ech_guide_options ech_guide_options_default(void)
{
    return (ech_guide_options){ .struct_size = sizeof(ech_guide_options) };
}

/*
 * Clients write null for a field they don't set, as OpenAI's own library does: it counts as
 * absent.
 */
const json_t *ech_guide_get(const ech_guide *const g, const char *const name)
{
    const json_t *const v = json_object_get(g->request, name);
    return json_is_null(v) ? NULL : v;
}

/*
 * The field is given apart from the message, because a dialect may know it by another name and
 * puts its own into the error's "param".
 */
ech_status ech_guide_refuse(const ech_guide_reader *const r, const char *const field,
                            const char *const why)
{
    (void)snprintf(r->field, ECH_GUIDE_FIELD_BYTES, "%s", field);
    return ech_fail(r->err, ECH_EINVAL, "%s %s", field, why);
}

/* Plain completions have no reasoning to bound; a budget there is ignored as any unknown field. */
static ech_status read_budget(const ech_guide_reader *const r)
{
    const json_t *const v = ech_guide_get(r->g, "thinking_budget");
    r->g->thinking_budget = -1;
    if (v == NULL || r->g->options.is_text) return ECH_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ech_guide_refuse(r, "thinking_budget", "must be a whole number, 0 or more");
    r->g->thinking_budget = json_integer_value(v);
    return ECH_OK;
}

/*
 * The content before the tools: tools may be added to a constraint of the answer, and which field
 * is to blame for an error of compiling is the first that made one.
 */
static ech_status read_request(const ech_guide_reader *const r, const char *const request,
                               const size_t len)
{
    json_error_t why;
    r->g->request = ech_json_read(request, len, JSON_ALLOW_NUL, &why);
    if (!json_is_object(r->g->request)) {
        return ech_fail(r->err, ECH_EFORMAT, "reading a request: no JSON object: %s",
                        r->g->request == NULL ? why.text : "something else");
    }
    r->g->parser = ech_parser_options_default();
    r->g->parser.start = ECH_START_CLOSED; /* until the prompt is known: ech_guide_begin() */
    r->g->spec = ech_constraint_spec_default();
    r->g->spec_field = "";
    ECH_TRY(read_budget(r));
    ECH_TRY(ech_guide_read_content(r));
    if (r->g->options.is_text) return ECH_OK;
    r->g->parser.reasoning = r->g->options.reasoning;
    ECH_TRY(ech_guide_read_tools(r));
    if (r->g->spec_field[0] == '\0' && r->g->guides_calls) r->g->spec_field = "tools";
    return ECH_OK;
}

ech_status ech_guide_create(ech_guide **const ret_guide, const char *const request,
                            const size_t len, const ech_guide_options *const options,
                            char *const ret_field, ech_error *const err)
{
    char field[ECH_GUIDE_FIELD_BYTES] = "";
    ech_guide *g = calloc(1, sizeof *g);
    if (g == NULL) return ech_fail(err, ECH_ENOMEM, "reading a request: out of memory");
    g->options = *options;
    const ech_guide_reader r = { .g = g, .field = field, .err = err };
    const ech_status rc = read_request(&r, request, len);
    if (ret_field != NULL) memcpy(ret_field, field, sizeof field);
    if (rc == ECH_OK)
        *ret_guide = g;
    else
        ech_guide_destroy(&g);
    return rc;
}

void ech_guide_destroy(ech_guide **const guide)
{
    if (guide == NULL || *guide == NULL) return;
    ech_buf_fini(&(*guide)->content);
    ech_arena_fini(&(*guide)->arena);
    json_decref((*guide)->request);
    free(*guide);
    *guide = NULL;
}

ech_tool_mode ech_guide_tool_mode(const ech_guide *const guide)
{
    return guide->mode;
}

/*
 * Whether the model reasons is seen in the prompt's end alone: a template may have opened the
 * block, opened and closed it (thinking switched off), or left it to the model. Without reasoning
 * there is no end to wait for, and the constraint begins with the first token.
 */
void ech_guide_begin(ech_guide *const guide, const char *const prompt, const size_t len)
{
    static const ech_reasoning_start STARTS[] = {
        [ECH_START_NONE] = ECH_THINKING_OPTIONAL,
        [ECH_START_OPEN] = ECH_THINKING_OPEN,
        [ECH_START_CLOSED] = ECH_THINKING_NONE,
    };
    const ech_reasoning_format format = guide->options.reasoning;
    const char *const begin = ech_reasoning_begin(format);
    const char *const end = ech_reasoning_end(format);
    guide->parser.start = ech_parser_start_of(format, prompt, len);
    if (end[0] == '\0') return;
    guide->spec.reasoning = STARTS[guide->parser.start];
    guide->spec.reasoning_begin = begin;
    guide->spec.reasoning_begin_len = strlen(begin);
    guide->spec.reasoning_end = end;
    guide->spec.reasoning_end_len = strlen(end);
}

const ech_parser_options *ech_guide_parser(const ech_guide *const guide)
{
    return guide->options.is_text ? NULL : &guide->parser;
}

/*
 * A budget alone makes a constraint too, one whose content is free: the end marker must be forced
 * once it is spent. NULL otherwise, so that rows without a wish take no mask.
 */
const ech_constraint_spec *ech_guide_spec(const ech_guide *const guide)
{
    const bool bounds_reasoning =
        guide->thinking_budget >= 0 && guide->spec.reasoning != ECH_THINKING_NONE;
    return guide->spec_field[0] != '\0' || bounds_reasoning ? &guide->spec : NULL;
}

/* The field that an error of compiling names; the budget only where nothing else asked. */
const char *ech_guide_spec_field(const ech_guide *const guide)
{
    return guide->spec_field[0] != '\0' || guide->thinking_budget < 0 ? guide->spec_field
                                                                      : "thinking_budget";
}

int64_t ech_guide_thinking_budget(const ech_guide *const guide)
{
    return guide->thinking_budget;
}
