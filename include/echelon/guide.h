/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echelon/guide.h - what a request asks of the form of its answer: structured output, tools,
 * reasoning. From a request's fields to a parser's options and a constraint.
 *
 *     ech_guide_options o = ech_guide_options_default();
 *     ech_parser_pick(template_source, template_len, &o.reasoning, &o.tools);
 *     if (ech_guide_create(&guide, request, request_len, &o, field, &err) != ECH_OK) …
 *     … ech_chat_make_prompt(): without the tools where ech_guide_tool_mode() is NONE …
 *     ech_guide_begin(guide, prompt.rendered.text, prompt.rendered.len);
 *     parser = ech_guide_parser(guide);
 *     spec = ech_guide_spec(guide);
 *     if (spec != NULL) ech_constraint_compile(&constraint, vocab, spec, NULL, &err);
 *     … submit, read the events …
 *     ech_guide_destroy(&guide);
 *
 * A request is JSON as /v1/chat/completions takes it. Of its members these are looked at, and
 * everything else is ignored:
 *
 * | member | what it says |
 * | --- | --- |
 * | `tools` | functions that may be called; `strict` in one: its arguments are constrained |
 * | `tool_choice` | none, auto, required, a function by name, or `allowed_tools` |
 * | `parallel_tool_calls` | whether several calls may come; default true |
 * | `response_format` | text, json_object or json_schema |
 * | `structured_outputs` | an object with one of json, regex, choice, grammar |
 * | `json_schema`, `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`, `grammar` |
 * the same, as other servers call it | | `thinking_budget` | most tokens of reasoning |
 *
 * At most one member may say what the content must be. A schema may be given as an object or as
 * its text. What can't be enforced is an error, here or when the spec is compiled; it is never
 * left out.
 *
 * Threads: a guide belongs to one thread at a time.
 */
#ifndef ECHELON_GUIDE_H
#define ECHELON_GUIDE_H

#include "echelon/constraint.h"
#include "echelon/parser.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ech_guide ech_guide; /* opaque */

/** Bytes for the name of a field, "tools[3].function.name", its zero included. */
#define ECH_GUIDE_FIELD_BYTES 96
/** Most tools of a request. */
#define ECH_GUIDE_MAX_TOOLS 256

/** What tool_choice comes to. */
typedef enum ech_tool_mode {
    ECH_TOOL_MODE_NONE, /* no tools, or none may be called: the prompt has none */
    ECH_TOOL_MODE_AUTO,
    ECH_TOOL_MODE_REQUIRED,
    ECH_TOOL_MODE_NAMED,
} ech_tool_mode;

typedef struct ech_guide_options {
    size_t struct_size;             /* set by _default() */
    ech_reasoning_format reasoning; /* of the model, as ech_parser_pick() finds them */
    ech_tools_format tools;
    bool is_text; /* a text is continued, there is no conversation: no reasoning, no tools */
} ech_guide_options;

/** No reasoning, no tools. */
ECH_API ech_guide_options ech_guide_options_default(void);

/**
 * Reads request[0..len), a JSON object.
 *
 * Errors: EINVAL (a field is not as it should be), EFORMAT (no JSON object), ENOMEM.
 * ret_field, [ECH_GUIDE_FIELD_BYTES], NULL allowed, then names the field at fault or is ""; err's
 * text begins with it.
 * Ownership: on success *ret_guide is the caller's, for ech_guide_destroy(); what was passed in is
 * not needed any more. On failure it is untouched.
 */
ECH_API ech_status ech_guide_create(ech_guide **ret_guide, const char *request, size_t len,
                                    const ech_guide_options *options, char *ret_field,
                                    ech_error *err);
/**
 * Frees it; NULL and a pointer to NULL are fine. What its parser's options are used for must be
 * over: the parser asks the guide for the types of parameters.
 */
ECH_API void ech_guide_destroy(ech_guide **guide);

ECH_API ech_tool_mode ech_guide_tool_mode(const ech_guide *guide);

/**
 * Says which prompt the answer follows: the end of the rendered text shows whether the model is
 * already reasoning. Call it before the two below; not needed with is_text.
 */
ECH_API void ech_guide_begin(ech_guide *guide, const char *prompt, size_t len);

/** How the answer is told apart; NULL with is_text. Borrowed, valid as long as the guide. */
ECH_API const ech_parser_options *ech_guide_parser(const ech_guide *guide);

/** What the answer must satisfy; NULL: nothing. Borrowed, valid as long as the guide. */
ECH_API const ech_constraint_spec *ech_guide_spec(const ech_guide *guide);
/** The field that asked for it, for the errors of ech_constraint_compile(); "" for none. */
ECH_API const char *ech_guide_spec_field(const ech_guide *guide);
/** The most tokens of reasoning; -1: no bound. */
ECH_API int64_t ech_guide_thinking_budget(const ech_guide *guide);

#ifdef __cplusplus
}
#endif

#endif
